/* SPDX-License-Identifier: MIT */
/* Causes: the ring that keeps the newest ones. */
#include "observe/cause.h"

#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "observe/trace.h"
#include "observe/watch.h"

#define RING_SLOTS (sizeof(((struct cause_ring *)0)->slots) / sizeof(struct cause))

/* The next record, marked as being written. Who is late with one, while the ring has gone round,
 * keeps it: the next is taken instead. */
static struct cause *claim(struct cause_ring *ring, uint64_t *position)
{
	for (;;) {
		*position = atomic_fetch_add_explicit(&ring->next, 1, memory_order_relaxed);

		struct cause *slot = &ring->slots[*position % RING_SLOTS];
		uint64_t seq = atomic_load_explicit(&slot->seq, memory_order_relaxed);

		/* Acquire: pairs with the store that ended the writing before. */
		if (seq != CAUSE_BEING_WRITTEN &&
		    atomic_compare_exchange_strong_explicit(&slot->seq, &seq, CAUSE_BEING_WRITTEN,
							    memory_order_acquire,
							    memory_order_relaxed))
			return slot;
	}
}

void (*_Atomic cause_listener)(const struct cause *c);

uint32_t cause_record(struct cause_ring *ring, const struct cause *c)
{
	void (*listener)(const struct cause *) = atomic_load_explicit(&cause_listener, memory_order_acquire);
	struct cause completed;
	struct timespec now;
	uint64_t position;

	if (watch_now()) {
		completed = *c;
		watch_complete(&completed);
		c = &completed;
	}
	if (listener)
		listener(c);
	if (!ring)
		return c->code;

	struct cause *slot = claim(ring, &position);

	clock_gettime(CLOCK_REALTIME, &now);
	/* A reader takes a record only if seq is the same before and after it read the rest. */
	atomic_thread_fence(memory_order_release);
	memcpy((char *)slot + offsetof(struct cause, time),
	       (const char *)c + offsetof(struct cause, time),
	       sizeof(*c) - offsetof(struct cause, time));
	slot->time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	slot->tid = (uint32_t)syscall(SYS_gettid);
	atomic_store_explicit(&slot->seq, position + 1, memory_order_release);
	if (trace_on())
		trace_write(TRACE_CAUSE, 0, 0, c->qpn, c->code, (uint32_t)c->error, position);
	return c->code;
}
