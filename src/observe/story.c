/* SPDX-License-Identifier: MIT */
#include "observe/story.h"

#include <stddef.h>
#include <string.h>
#include <time.h>

#define RECORDS (sizeof(((struct story_ring *)0)->records) / sizeof(struct story))

void story_record(struct story_ring *ring, const struct story *s)
{
	struct story *record;
	struct timespec now;
	uint64_t position, seq;

	/* Who is late with a record, while the ring has gone round, keeps it. */
	do {
		position = atomic_fetch_add_explicit(&ring->next, 1, memory_order_relaxed);
		record = &ring->records[position % RECORDS];
		seq = atomic_load_explicit(&record->seq, memory_order_relaxed);
	} while (seq == STORY_BEING_WRITTEN ||
		 !atomic_compare_exchange_strong_explicit(&record->seq, &seq, STORY_BEING_WRITTEN, memory_order_acquire,
							  memory_order_relaxed));
	clock_gettime(CLOCK_REALTIME, &now);
	/* A reader takes a record only if seq is the same before and after it read the rest. */
	atomic_thread_fence(memory_order_release);
	memcpy((char *)record + offsetof(struct story, time), (const char *)s + offsetof(struct story, time),
	       sizeof(*s) - offsetof(struct story, time));
	record->time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	atomic_store_explicit(&record->seq, position + 1, memory_order_release);
}
