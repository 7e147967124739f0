/* SPDX-License-Identifier: MIT */
/* Visits: an owner that waits finds every visitor that may have seen what it took back. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "nic/mr.h"
#include "nic/visit.h"

#define ROUNDS 20000

static uint32_t own_slot(const struct nic *nic)
{
	return nic->seg->hdr.primary_slot;
}

static struct nic_segment *other_segment(void)
{
	struct nic_segment *other = mmap(NULL, sizeof(*other), PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(other, MAP_FAILED);
	return other;
}

static void nobody_there_is_over_at_once(void **state)
{
	uint64_t start = nic_now();

	assert_true(visits_over(*state, NIC_GRACE, NULL));
	assert_true(visits_over(*state, 0, NULL));
	assert_true(nic_now() - start < NIC_GRACE);
}

static void visit_that_goes_on_is_seen_and_named(void **state)
{
	struct nic *nic = *state;
	struct seg_visit *visit = visit_enter(nic, nic->seg);
	uint32_t pid = 0;

	assert_non_null(visit);
	assert_false(visits_over(nic, 0, &pid));
	assert_int_equal(pid, getpid());
	assert_false(visits_over(nic, 1000000, &pid));
	visit_leave(visit);
	assert_true(visits_over(nic, 0, &pid));
}

/* Our threads use our memory whomever they visit. */
static void own_visit_of_another_process_counts(void **state)
{
	struct nic *nic = *state;
	struct nic_segment *other = other_segment();

	other->hdr.primary_slot = own_slot(nic) ^ 1;

	struct seg_visit *visit = visit_enter(nic, other);

	assert_false(visits_over(nic, 0, NULL));
	visit_leave(visit);
	assert_true(visits_over(nic, 0, NULL));
	munmap(other, sizeof(*other));
}

/* Of another process's visits only those of us are waited for. */
static void foreign_visit_of_a_third_process_does_not_count(void **state)
{
	struct nic *nic = *state;
	struct nic_segment *other = other_segment();
	struct visitor visitor = { .seg = other, .seg_fd = -1 };

	visitor_add(nic, &visitor);
	atomic_store(&other->visits[5].word, (own_slot(nic) ^ 1) | 1 << 10);
	assert_true(visits_over(nic, 0, NULL));
	atomic_store(&other->visits[5].word, own_slot(nic) | 2 << 10);
	assert_false(visits_over(nic, 0, NULL));
	visitor_remove(nic, &visitor);
	assert_true(visits_over(nic, 0, NULL));
	munmap(other, sizeof(*other));
}

/* Who takes back a region waits for those who name it, by a key of its life. */
static void visit_delays_only_what_it_names(void **state)
{
	struct nic *nic = *state;
	struct nic_segment *other = other_segment();
	struct visitor visitor = { .seg = other, .seg_fd = -1 };
	struct seg_visit *visit = &other->visits[5];
	struct visit_seen evicted[VISITS_SEEN];
	static uint8_t memory[2];
	struct nic_mr a, b;
	uint32_t count, pid;

	assert_int_equal(nic_mr_register(nic, UNIT_PD, (uintptr_t)&memory[0], 1, 0, 0, &a), 0);
	assert_int_equal(nic_mr_register(nic, UNIT_PD, (uintptr_t)&memory[1], 1, 0, 0, &b), 0);
	visitor_add(nic, &visitor);
	atomic_store(&visit->word, own_slot(nic) | 1 << 10);
	assert_true(visits_over_region(nic, a.index, 0, NULL));
	visit_touch(nic, visit, nic->seg, a.rkey);
	assert_false(visits_over_region(nic, a.index, 0, NULL));
	assert_true(visits_over_region(nic, b.index, 0, NULL));
	visit_touch(nic, visit, nic->seg, b.lkey);
	assert_false(visits_over_region(nic, b.index, 0, NULL));
	/* Of an earlier life of the entry. */
	atomic_store(&visit->keys[0], visit_key(a.rkey ^ 2));
	assert_true(visits_over_region(nic, a.index, 0, NULL));
	/* More than there is room for. */
	atomic_store(&visit->touches, NIC_TOUCHES + 1);
	assert_false(visits_over_region(nic, a.index, 0, NULL));

	/* Without membarrier(2) nobody can be evicted; nor who may be in a copy of the kernel's. */
	other->hdr.membarrier = 0;
	assert_false(visits_evict(nic, a.index, evicted, VISITS_SEEN, &count, &pid));
	other->hdr.membarrier = nic->seg->hdr.membarrier;
	if (nic->seg->hdr.membarrier) {
		assert_true(visit_copies(nic, visit, nic->seg));
		assert_false(visits_evict(nic, a.index, evicted, VISITS_SEEN, &count, &pid));
		assert_false(visit_copies(nic, visit, nic->seg));
		atomic_store(&visit->copying, 0);
		assert_true(visits_evict(nic, a.index, evicted, VISITS_SEEN, &count, &pid));
		assert_int_equal(count, 1);
		assert_true(visit_is_evicted(visit));
		assert_false(visit_is_over(nic, &evicted[0]));
		atomic_store(&visit->word, own_slot(nic) | 2 << 10);
		assert_true(visit_is_over(nic, &evicted[0]));
		assert_false(visit_is_evicted(visit));
	}
	visitor_remove(nic, &visitor);
	munmap(other, sizeof(*other));
	assert_int_equal(nic_mr_deregister(&a), 0);
	assert_int_equal(nic_mr_deregister(&b), 0);
}

/* One in the word that the thread keeps, the others in those for who has none. */
static void visits_of_one_thread_at_once_are_many_and_then_none(void **state)
{
	struct nic *nic = *state;
	struct seg_visit *visits[NIC_VISITS];
	int count = 0;

	while ((visits[count] = visit_enter(nic, nic->seg)))
		count++;
	assert_in_range(count, 2, NIC_VISITS - 1);
	assert_false(visits_over(nic, 0, NULL));
	for (int i = 0; i < count; i++)
		visit_leave(visits[i]);
	assert_true(visits_over(nic, 0, NULL));
}

static void *visit_once(void *arg)
{
	struct nic *nic = arg;
	struct seg_visit *visit = visit_enter(nic, nic->seg);

	THREAD_CHECK(visit);
	visit_leave(visit);
	return visit;
}

/* Threads that have ended leave their words to others. */
static void words_of_ended_threads_are_kept_by_others(void **state)
{
	struct nic *nic = *state;
	unsigned transient = 0;

	for (unsigned i = 0; i < 4 * NIC_VISITS; i++) {
		pthread_t thread;
		void *visit;

		assert_int_equal(pthread_create(&thread, NULL, visit_once, nic), 0);
		assert_int_equal(pthread_join(thread, &visit), 0);
		/* Such a word is free again, where a kept one has its count. */
		transient += !atomic_load(&((struct seg_visit *)visit)->word);
	}
	assert_int_equal(transient, 0);
	assert_true(visits_over(nic, 0, NULL));
}

static void *stand_still(void *arg)
{
	struct nic *nic = arg;
	struct seg_visit *visit = visit_enter(nic, nic->seg);

	usleep(300000);
	visit_leave(visit);
	return NULL;
}

/* One owner waits for a visitor that stands still; another thread's owner, and visitors, are not
 * kept by that. */
static void waiting_keeps_nobody_else(void **state)
{
	struct nic *nic = *state;
	static struct visitor visitor;
	pthread_t thread;
	uint64_t start;

	assert_int_equal(pthread_create(&thread, NULL, stand_still, nic), 0);
	while (visits_over(nic, 0, NULL))
		sched_yield();
	visitor = (struct visitor){ .seg = nic->seg, .seg_fd = -1 };
	start = nic_now();
	visitor_add(nic, &visitor);
	visitor_remove(nic, &visitor);
	assert_true(nic_now() - start < 200000000);
	assert_true(visits_over(nic, NIC_GRACE, NULL));
	pthread_join(thread, NULL);
}

/* The owner takes a thing back and waits; then it destroys it. Who visits either finds it gone or
 * is waited for. */
struct thing {
	struct nic *nic;
	_Atomic(int *) reachable;
	_Atomic bool stop;
	_Atomic uint64_t uses;
};

static void *keep_using(void *arg)
{
	struct thing *thing = arg;

	while (!atomic_load(&thing->stop)) {
		struct seg_visit *visit = visit_enter(thing->nic, thing->nic->seg);

		THREAD_CHECK(visit);
		int *value = atomic_load_explicit(&thing->reachable, memory_order_acquire);

		if (value) {
			THREAD_CHECK(*(volatile int *)value == 1);
			atomic_fetch_add_explicit(&thing->uses, 1, memory_order_relaxed);
		}
		visit_leave(visit);
	}
	return NULL;
}

static void taken_back_thing_is_touched_by_nobody_after_the_wait(void **state)
{
	struct thing thing = { .nic = *state };
	pthread_t threads[2];
	int values[2] = { 1, 0 };

	for (int t = 0; t < 2; t++)
		assert_int_equal(pthread_create(&threads[t], NULL, keep_using, &thing), 0);
	for (int i = 0; i < ROUNDS; i++) {
		int *value = &values[i % 2];

		*value = 1;
		atomic_store_explicit(&thing.reachable, value, memory_order_release);
		if (!(i % 64))
			sched_yield();
		atomic_store_explicit(&thing.reachable, NULL, memory_order_release);
		assert_true(visits_over(thing.nic, NIC_GRACE, NULL));
		*value = 0;
	}
	atomic_store(&thing.stop, true);
	for (int t = 0; t < 2; t++)
		pthread_join(threads[t], NULL);
	assert_true(atomic_load(&thing.uses) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_there_is_over_at_once),
		cmocka_unit_test(visit_that_goes_on_is_seen_and_named),
		cmocka_unit_test(own_visit_of_another_process_counts),
		cmocka_unit_test(foreign_visit_of_a_third_process_does_not_count),
		cmocka_unit_test(visit_delays_only_what_it_names),
		cmocka_unit_test(visits_of_one_thread_at_once_are_many_and_then_none),
		cmocka_unit_test(words_of_ended_threads_are_kept_by_others),
		cmocka_unit_test(waiting_keeps_nobody_else),
		cmocka_unit_test(taken_back_thing_is_touched_by_nobody_after_the_wait),
	};

	return cmocka_run_group_tests(tests, open_nic, close_nic);
}
