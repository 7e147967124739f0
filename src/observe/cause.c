/* SPDX-License-Identifier: MIT */
/* Causes: the ring that keeps the newest ones, and the first of each kind. */
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

/* Numbers of 24 bits, one for nearly each set of attributes. */
static uint64_t detail_of(const struct cause *c)
{
	uint64_t detail = c->thing;

	if (c->code == CAUSE_MODIFY_VALUE)
		detail += c->opcode * 0x9e3779b97f4a7c15u;
	else if (c->code == CAUSE_MODIFY_MISSING || c->code == CAUSE_MODIFY_SUPERFLUOUS)
		detail += c->value * 0x9e3779b97f4a7c15u;
	return (detail ^ detail >> 40) & 0xffffff;
}

uint64_t cause_kind(const struct cause *c)
{
	return (uint64_t)c->code << 56 | detail_of(c) << 32 | c->qpn;
}

static void copy(struct cause *slot, const struct cause *c, uint64_t seq)
{
	/* A reader takes a record only if seq is the same before and after it read the rest. */
	atomic_thread_fence(memory_order_release);
	memcpy((char *)slot + offsetof(struct cause, time),
	       (const char *)c + offsetof(struct cause, time),
	       sizeof(*c) - offsetof(struct cause, time));
	atomic_store_explicit(&slot->seq, seq, memory_order_release);
}

/* Counts it, and keeps it if it is the first of its kind. */
static void count(struct cause_kinds *kinds, const struct cause *c, uint64_t seq)
{
	uint64_t kind = cause_kind(c);
	unsigned same = 0;

	for (unsigned i = 0; i < CAUSE_KINDS && same < CAUSE_OF_ONE_CODE; i++) {
		uint64_t there = atomic_load_explicit(&kinds->kinds[i], memory_order_relaxed);

		if (!there && atomic_compare_exchange_strong(&kinds->kinds[i], &there, kind)) {
			copy(&kinds->firsts[i], c, seq);
			there = kind;
		}
		if (there == kind) {
			atomic_fetch_add_explicit(&kinds->counts[i], 1, memory_order_relaxed);
			return;
		}
		same += there >> 56 == c->code;
	}
	atomic_fetch_add_explicit(&kinds->others[c->code % CAUSE_CODES], 1, memory_order_relaxed);
}

/* Of this moment and thread. */
static struct cause stamp(const struct cause *c)
{
	struct cause stamped = *c;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	stamped.time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	stamped.tid = (uint32_t)syscall(SYS_gettid);
	return stamped;
}

/* Returns the number. */
static uint64_t put(struct cause_ring *ring, const struct cause *c)
{
	uint64_t position;
	struct cause *slot = claim(ring, &position);

	copy(slot, c, position + 1);
	count(&ring->kinds, c, position + 1);
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
	struct cause stamped = stamp(c);

	if (watch_now())
		watch_complete(&stamped);
	tell(&stamped);
	if (ring)
		trace(&stamped, put(ring, &stamped));
	return c->code;
}

uint64_t cause_leave(struct cause_ring *ring, const struct cause *c)
{
	struct cause stamped = stamp(c);

	return put(ring, &stamped);
}

bool cause_tell(const struct cause_ring *ring, uint64_t number)
{
	const struct cause *slot = &ring->slots[(number - 1) % RING_SLOTS];
	struct cause there;

	if (atomic_load_explicit(&slot->seq, memory_order_acquire) != number)
		return false;
	memcpy((char *)&there + offsetof(struct cause, time), (const char *)slot + offsetof(struct cause, time),
	       sizeof(there) - offsetof(struct cause, time));
	/* Pairs with the store of seq by whoever writes there next. */
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&slot->seq, memory_order_relaxed) != number)
		return false;
	watch_complete(&there);
	tell(&there);
	trace(&there, number);
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
