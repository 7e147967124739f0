/* SPDX-License-Identifier: MIT */
/* The ordered copy: every byte, no other, and the last word last. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "local/copy.h"

#define LONGEST 700u
#define LINE	64u

static void exactly_the_bytes_asked_for(void **state)
{
	static uint8_t from[LONGEST + LINE], to[LONGEST + 3 * LINE], expected[sizeof(to)];

	(void)state;
	for (unsigned i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)(i * 13 + 1);
	for (unsigned length = 0; length <= LONGEST; length += length < 150 ? 1 : 37) {
		for (unsigned target = 0; target < LINE; target++) {
			for (unsigned source = 0; source < LINE; source += 5) {
				memset(to, 0, sizeof(to));
				memset(expected, 0, sizeof(to));
				memcpy(expected + LINE + target, from + source, length);
				copy_ordered(to + LINE + target, from + source, length);
				assert_memory_equal(to, expected, sizeof(to));
			}
		}
	}
}

#define WORDS  512u
#define ROUNDS 20000u

struct watch {
	_Alignas(LINE) _Atomic uint64_t words[WORDS];
	_Atomic uint64_t round; /* that the watcher waits for */
	unsigned early;
};

/* Whoever sees the last word sees all others. */
static void *watch_words(void *arg)
{
	struct watch *watch = arg;

	for (uint64_t round = 1; round <= ROUNDS; round++) {
		while (atomic_load_explicit(&watch->words[WORDS - 1], memory_order_acquire) !=
		       round)
			;
		for (unsigned i = WORDS; i-- > 0;) {
			if (atomic_load_explicit(&watch->words[i], memory_order_relaxed) != round) {
				watch->early++;
				break;
			}
		}
		atomic_store_explicit(&watch->round, round + 1, memory_order_release);
	}
	return NULL;
}

static void last_word_is_stored_last(void **state)
{
	static struct watch watch;
	static uint64_t from[WORDS];
	pthread_t thread;

	(void)state;
	atomic_store(&watch.round, 1);
	assert_int_equal(pthread_create(&thread, NULL, watch_words, &watch), 0);
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		for (unsigned i = 0; i < WORDS; i++)
			from[i] = round;
		while (atomic_load_explicit(&watch.round, memory_order_acquire) != round)
			;
		copy_ordered(watch.words, from, sizeof(from));
	}
	pthread_join(thread, NULL);
	assert_int_equal(watch.early, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exactly_the_bytes_asked_for),
		cmocka_unit_test(last_word_is_stored_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
