/* SPDX-License-Identifier: MIT */
/* Biased locks: one inside at a time, whoever owns the bias. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>

#include "nic/lock.h"

#define THREADS 3
#define ROUNDS	100000

struct shared {
	struct nic_lock lock;
	_Atomic bool inside; /* checks; not needed for the counting */
	uint64_t count;	     /* plain: only the lock makes it right */
	bool tries;
	unsigned pause; /* yields between two entries, every so often */
};

static void enter_once(struct shared *shared)
{
	if (!shared->tries)
		nic_lock(&shared->lock);
	else
		while (!nic_trylock(&shared->lock))
			sched_yield();
	THREAD_CHECK(!atomic_exchange(&shared->inside, true));
	shared->count++;
	atomic_store(&shared->inside, false);
	nic_unlock(&shared->lock);
}

static void *enter_often(void *arg)
{
	struct shared *shared = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		enter_once(shared);
		if (shared->pause && i % shared->pause == 0)
			sched_yield();
	}
	return NULL;
}

static void run_threads(void *(*run)(void *), void *arg)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run, arg), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void hammer(bool tries, unsigned pause)
{
	struct shared shared = { .tries = tries, .pause = pause };

	nic_lock_start();
	nic_lock_init(&shared.lock);
	run_threads(enter_often, &shared);
	assert_int_equal(shared.count, (uint64_t)THREADS * ROUNDS);
}

static void one_is_inside_at_a_time(void **state)
{
	(void)state;
	hammer(false, 0);
	hammer(false, 100);
	hammer(true, 10);
}

/* The bias is taken away while its owner comes and goes: with each lock once. */
#define LOCKS	5000
#define ENTRIES 400

static struct shared each[LOCKS];
static _Atomic int current = -1;

static void *own_each(void *arg)
{
	for (int i = 0; i < LOCKS; i++) {
		enter_once(&each[i]);
		atomic_store(&current, i);
		for (int k = 1; k < ENTRIES; k++)
			enter_once(&each[i]);
	}
	return arg;
}

static void bias_is_taken_away_from_a_busy_owner(void **state)
{
	pthread_t owner;

	(void)state;
	nic_lock_start();
	assert_int_equal(pthread_create(&owner, NULL, own_each, NULL), 0);
	for (int i = 0; i < LOCKS; i++) {
		while (atomic_load(&current) < i)
			sched_yield();
		enter_once(&each[i]);
	}
	pthread_join(owner, NULL);
	for (int i = 0; i < LOCKS; i++)
		assert_int_equal(each[i].count, ENTRIES + 1);
}

static void *enter_one_time(void *arg)
{
	enter_once(arg);
	return NULL;
}

/* Who might be the owner next comes before who was has noticed. */
static void *share_each(void *arg)
{
	for (int i = 0; i < LOCKS; i++) {
		for (int k = 0; k < ENTRIES; k++)
			enter_once(&each[i]);
		atomic_fetch_add(&current, 1);
		while (atomic_load(&current) < THREADS * (i + 1))
			sched_yield();
	}
	return arg;
}

static void several_threads_would_be_the_owner(void **state)
{
	(void)state;
	nic_lock_start();
	memset(each, 0, sizeof(each));
	atomic_store(&current, 0);
	run_threads(share_each, NULL);
	for (int i = 0; i < LOCKS; i++)
		assert_int_equal(each[i].count, THREADS * ENTRIES);
}

/* The owner has ended, or is seldom there: others enter. */
static void other_threads_enter_while_the_owner_is_outside(void **state)
{
	struct shared shared = { 0 };

	(void)state;
	nic_lock_start();
	nic_lock_init(&shared.lock);
	for (int i = 0; i < 100; i++) {
		pthread_t thread;

		assert_int_equal(pthread_create(&thread, NULL, enter_one_time, &shared), 0);
		pthread_join(thread, NULL);
		enter_once(&shared);
	}
	assert_int_equal(shared.count, 200);
}

static void *try_once(void *arg)
{
	struct shared *shared = arg;

	return nic_trylock(&shared->lock) ? shared : NULL;
}

static void trying_fails_while_the_owner_is_inside_and_leaves_it_there(void **state)
{
	struct shared shared = { 0 };

	(void)state;
	nic_lock_start();
	nic_lock_init(&shared.lock);
	for (int biased = 0; biased < 2; biased++) {
		pthread_t thread;
		void *got;

		/* The second time by its own bias. */
		for (int i = 0; biased && i < ENTRIES; i++)
			enter_once(&shared);
		nic_lock(&shared.lock);
		assert_int_equal(pthread_create(&thread, NULL, try_once, &shared), 0);
		pthread_join(thread, &got);
		assert_null(got);
		nic_unlock(&shared.lock);
	}
	enter_once(&shared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_is_inside_at_a_time),
		cmocka_unit_test(bias_is_taken_away_from_a_busy_owner),
		cmocka_unit_test(several_threads_would_be_the_owner),
		cmocka_unit_test(other_threads_enter_while_the_owner_is_outside),
		cmocka_unit_test(trying_fails_while_the_owner_is_inside_and_leaves_it_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
