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

/* Returns the number. */
static uint64_t put(struct cause_ring *ring, const struct cause *c)
{
	struct timespec now;
	uint64_t position;
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
	return position + 1;
}

static void tell(const struct cause *c)
{
	void (*listener)(const struct cause *) = atomic_load_explicit(&cause_listener, memory_order_acquire);

	if (listener)
		listener(c);
}

static void trace(const struct cause *c, uint64_t number)
{
	if (trace_on())
		trace_write(TRACE_CAUSE, 0, 0, c->qpn, c->code, (uint32_t)c->error, number - 1);
}

uint32_t cause_record(struct cause_ring *ring, const struct cause *c)
{
	struct cause completed;

	if (watch_now()) {
		completed = *c;
		watch_complete(&completed);
		c = &completed;
	}
	tell(c);
	if (ring)
		trace(c, put(ring, c));
	return c->code;
}

uint64_t cause_leave(struct cause_ring *ring, const struct cause *c)
{
	return put(ring, c);
}

bool cause_tell(const struct cause_ring *ring, uint64_t number)
{
	const struct cause *slot = &ring->slots[(number - 1) % RING_SLOTS];
	struct cause copy;

	if (atomic_load_explicit(&slot->seq, memory_order_acquire) != number)
		return false;
	memcpy((char *)&copy + offsetof(struct cause, time), (const char *)slot + offsetof(struct cause, time),
	       sizeof(copy) - offsetof(struct cause, time));
	/* Pairs with the store of seq by whoever writes there next. */
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&slot->seq, memory_order_relaxed) != number)
		return false;
	watch_complete(&copy);
	tell(&copy);
	trace(&copy, number);
	return true;
}

bool cause_join(struct cause *request, const struct cause *message)
{
	bool nak = request->code == CAUSE_NAK_INVALID_REQUEST || request->code == CAUSE_NAK_ACCESS ||
		   request->code == CAUSE_NAK_OPERATION;
	struct cause joined = *message;

	if (request->role != CAUSE_OF_REQUEST || !request->error || message->role != CAUSE_OF_OTHER || message->error ||
	    request->qpn != message->peer_qpn || request->peer_qpn != message->qpn)
		return false;
	if (!nak)
		return message->code == request->code || message->code == CAUSE_PEER_REPORTED;
	if (message->code == CAUSE_PEER_REPORTED)
		return true;
	joined.time = request->time;
	joined.role = request->role;
	joined.error = request->error;
	joined.qpn = request->qpn;
	joined.peer_qpn = request->peer_qpn;
	joined.wr_id = request->wr_id;
	joined.wr_index = request->wr_index;
	joined.opcode = request->opcode;
	joined.state = request->state;
	if (!joined.length)
		joined.length = request->length;
	joined.tid = request->tid;
	for (unsigned i = 0; i < CAUSE_STACKS; i++)
		joined.stacks[i] = i == CAUSE_STACK_CALL || i == CAUSE_STACK_QP ? request->stacks[i] :
				   message->stacks[i]				? message->stacks[i] | CAUSE_STACK_OF_PEER :
										  0;
	/* It is the receive that is wrong, so it is its posting that matters. */
	if (message->stacks[CAUSE_STACK_CALL])
		joined.stacks[CAUSE_STACK_CALL] = message->stacks[CAUSE_STACK_CALL] | CAUSE_STACK_OF_PEER;
	*request = joined;
	return true;
}
