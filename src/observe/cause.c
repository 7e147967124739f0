/* SPDX-License-Identifier: MIT */
/* Causes: the ring that keeps the newest ones, and their short texts. */
#include "observe/cause.h"

#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "observe/trace.h"

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
	struct timespec now;
	uint64_t position;

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

static const struct cause_entry entries[] = {
#define CAUSE(name, number, text) { number, #name, text },
#include "observe/cause_codes.h"
#undef CAUSE
};

const struct cause_entry *cause_entry(unsigned place)
{
	return place < sizeof(entries) / sizeof(entries[0]) ? &entries[place] : NULL;
}

static const struct cause_entry *find(uint32_t code)
{
	const struct cause_entry *entry;

	for (unsigned place = 0; (entry = cause_entry(place)); place++)
		if (entry->code == code)
			return entry;
	return NULL;
}

const char *cause_text(uint32_t code)
{
	const struct cause_entry *entry = find(code);

	return entry ? entry->text : "unknown cause";
}

const char *cause_name(uint32_t code)
{
	const struct cause_entry *entry = find(code);

	return entry ? entry->name : NULL;
}
