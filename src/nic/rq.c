/* SPDX-License-Identifier: MIT */
/*
 * Receive queues. The protocol is docs/protocols.md, "Receive queue"; the words are nic/layout.h's.
 */
#include "nic/rq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nic/buffers.h"
#include "nic/crash.h"
#include "nic/prefetch.h"
#include "nic/timing.h"
#include "observe/trace.h"
#include "observe/watch.h"

#define LAP_SHIFT   41
#define LAP_MASK    0x7fffffu
#define TAKER_SHIFT 17
#define TAKER_MASK  0xffffffu
#define STATE_SHIFT 15
#define SLOT_MASK   0x7fffu

/* How many messages ahead a WQE's lines are asked for: some 100 ns, or more, before they are needed. */
#define AHEAD 4

/* nic_rwqe.cqe.reserved: the CQE is written. Tells a reference that a late taker publishes from a
 * real one. */
#define COMPLETED 1u

static uint64_t make_word(uint64_t lap, uint32_t taker, enum nic_fifo_state state, uint32_t slot)
{
	return (lap & LAP_MASK) << LAP_SHIFT | (uint64_t)taker << TAKER_SHIFT |
	       (uint64_t)state << STATE_SHIFT | slot;
}

static uint64_t word_lap(uint64_t word)
{
	return word >> LAP_SHIFT;
}

static uint32_t word_taker(uint64_t word)
{
	return word >> TAKER_SHIFT & TAKER_MASK;
}

static enum nic_fifo_state word_state(uint64_t word)
{
	return (enum nic_fifo_state)(word >> STATE_SHIFT & 3);
}

static uint64_t rq_lap(const struct seg_rq *rq, uint64_t position)
{
	return position >> rq->log2 & LAP_MASK;
}

static _Atomic uint64_t *rq_word(struct nic_segment *seg, const struct seg_rq *rq,
				 uint64_t position)
{
	return (_Atomic uint64_t *)seg_at(seg, rq->fifo) + (position & ((1ull << rq->log2) - 1));
}

int nic_rq_create(struct nic *nic, struct seg_rq *shared, uint32_t max_wr, uint32_t max_sge,
		  struct nic_rq *rq)
{
	uint32_t log2 = 0;

	memset(rq, 0, sizeof(*rq));
	rq->nic = nic;
	rq->shared = shared;
	rq->max_wr = max_wr;
	rq->max_sge = max_sge;
	nic_lock_init(&rq->lock);
	while ((1u << log2) < max_wr)
		log2++;
	shared->log2 = (uint16_t)log2;
	shared->one_taker = false;
	shared->max_sge = max_sge;
	shared->max_wr = max_wr;
	shared->stride = (uint32_t)((sizeof(struct nic_rwqe) + max_sge * sizeof(struct ibv_sge) +
				     NIC_CACHE_LINE - 1) &
				    ~(NIC_CACHE_LINE - 1u));
	/* Words of lap 0 in state 0 are not available. */
	rq->fifo_length = sizeof(uint64_t) << log2;
	rq->slots_length = (uint64_t)shared->stride * max_wr;
	shared->fifo = arena_alloc(&nic->arena, rq->fifo_length);
	shared->slots = max_wr ? arena_alloc(&nic->arena, rq->slots_length) : 0;
	rq->free_slots = malloc((max_wr + 1) * sizeof(*rq->free_slots));
	rq->slots = calloc(max_wr + 1, sizeof(*rq->slots));
	if (!shared->fifo || (max_wr && !shared->slots) || !rq->free_slots || !rq->slots) {
		nic_rq_destroy(rq, false);
		return ENOMEM;
	}
	atomic_store(&shared->head, 0);
	atomic_store(&shared->tail, 0);
	atomic_store(&shared->limit, 0);
	atomic_store(&shared->high, 0);
	atomic_store(&shared->out_of_buffer, 0);
	atomic_store(&shared->datagram_bytes, 0);
	for (uint32_t i = 0; i < max_wr; i++)
		rq->free_slots[i] = (uint16_t)(max_wr - 1 - i);
	rq->free_count = max_wr;
	return 0;
}

void nic_rq_destroy(struct nic_rq *rq, bool visited)
{
	if (!nic_is_orphan(rq->nic)) {
		arena_free(&rq->nic->arena, rq->shared->fifo, rq->fifo_length, visited);
		arena_free(&rq->nic->arena, rq->shared->slots, rq->slots_length, visited);
	}
	free(rq->free_slots);
	free(rq->slots);
	rq->free_slots = NULL;
	rq->slots = NULL;
}

/* Who took the slot that this word named is forgotten by the FIFO from now on: remember it if that slot
 * is not back yet (an SRQ's slots come back in any order). */
static void remember_taker(struct nic_rq *rq, uint64_t tail, uint64_t old)
{
	struct nic_rq_slot *slot = &rq->slots[old & SLOT_MASK];

	if (word_state(old) == NIC_FIFO_TAKEN && slot->posted &&
	    slot->position + (1ull << rq->shared->log2) == tail)
		slot->taker = word_taker(old);
}

/* Makes a slot available at the tail; lock held. */
static void publish_slot(struct nic_rq *rq, uint32_t slot)
{
	struct seg_rq *shared = rq->shared;
	uint64_t tail = atomic_load_explicit(&shared->tail, memory_order_relaxed);
	_Atomic uint64_t *at = rq_word(rq->nic->seg, shared, tail);

	if (!shared->one_taker)
		remember_taker(rq, tail, atomic_load_explicit(at, memory_order_relaxed));
	rq->slots[slot].posted = true;
	rq->slots[slot].taker = 0;
	rq->slots[slot].position = tail;
	/* Release: the taker's acquire load of the word sees the WQE. */
	atomic_store_explicit(at,
			      make_word(rq_lap(shared, tail), rq->life, NIC_FIFO_AVAILABLE, slot),
			      memory_order_release);
	crash_point(RQ_POSTED);
	atomic_store_explicit(&shared->tail, tail + 1, memory_order_release);
}

/* Lock held. For who waited for it: whether messages have found nothing since the last post. */
static bool note_filling(struct seg_rq *shared)
{
	uint32_t empty = atomic_load_explicit(&shared->out_of_buffer, memory_order_relaxed);

	if (empty == atomic_load_explicit(&shared->filled_after, memory_order_relaxed))
		return false;
	atomic_store_explicit(&shared->filled_after, empty, memory_order_relaxed);
	atomic_store_explicit(&shared->filled_at, nic_now(), memory_order_relaxed);
	return true;
}

int nic_rq_post(struct nic_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr,
		uint32_t qpn, enum cause_code full)
{
	struct cause cause = { .role = CAUSE_OF_POST, .opcode = IBV_WC_RECV, .qpn = qpn };

	bool watched = __builtin_expect(watch_now() != NULL, false);
	uint32_t before = watched ? rq_available(rq->shared) : 0;
	uint64_t room = 0;

	nic_lock(&rq->lock);
	bool dry = watched && note_filling(rq->shared);

	for (; wr; wr = wr->next, cause.wr_index++) {
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge) {
			cause.code = CAUSE_POST_SGES;
			cause.error = EINVAL;
			cause.limit = rq->max_sge;
			cause.value = (uint64_t)wr->num_sge;
			break;
		}
		if (!rq->free_count) {
			cause.code = full;
			cause.error = ENOMEM;
			cause.limit = rq->max_wr;
			cause.value = rq_available(rq->shared);
			break;
		}
		uint32_t slot = rq->free_slots[--rq->free_count];
		struct nic_rwqe *wqe = rq_wqe(rq->nic->seg, rq->shared, slot);

		wqe->wr_id = wr->wr_id;
		wqe->num_sge = (uint32_t)wr->num_sge;
		wqe->room = 0;
		if (watched) {
			wqe->stack = watch_stack();
			buffers_receive(wr->sg_list, wqe->num_sge);
		}
		/* Not if it is 0, so that nobody waits for a line that nobody needs. */
		if (wqe->cqe.reserved)
			wqe->cqe.reserved = 0;
		for (uint32_t i = 0; i < wqe->num_sge; i++) {
			wqe->sge[i] = wr->sg_list[i];
			wqe->room += wr->sg_list[i].length;
		}
		if (trace_on()) /* before anybody can take it */
			trace_write(TRACE_POST_RECV, full == CAUSE_SRQ_FULL, 0, qpn, slot, (uint32_t)wqe->room, wr->wr_id);
		if (watched && wqe->room > room)
			room = wqe->room;
		publish_slot(rq, slot);
	}
	if (watched)
		watch_received(qpn, before, rq_available(rq->shared), room, dry);
	if (rq->max_wr - rq->free_count > atomic_load_explicit(&rq->shared->high, memory_order_relaxed))
		atomic_store_explicit(&rq->shared->high, rq->max_wr - rq->free_count, memory_order_relaxed);
	nic_unlock(&rq->lock);
	if (!wr)
		return 0;
	if (bad_wr)
		*bad_wr = wr;
	cause.wr_id = wr->wr_id;
	cause_record(nic_causes(rq->nic), &cause);
	return cause.error;
}

void nic_rq_release(struct nic_rq *rq, uint32_t slot)
{
	nic_lock(&rq->lock);
	rq->slots[slot].posted = false;
	/* The taker of a datagram's receive may have died between publishing and saying so. */
	if (rq->keeps_order)
		rq_done(rq->nic->seg, rq->shared, rq->slots[slot].position);
	rq->free_slots[rq->free_count++] = (uint16_t)slot;
	nic_unlock(&rq->lock);
}

bool nic_rq_is_completed(const struct nic_rq *rq, uint32_t slot, bool brief)
{
	return slot < rq->max_wr && rq->slots[slot].posted &&
	       (brief || rq_wqe(rq->nic->seg, rq->shared, slot)->cqe.reserved == COMPLETED);
}

void nic_rq_published(struct nic_rq *rq, uint32_t slot)
{
	rq_wqe(rq->nic->seg, rq->shared, slot)->cqe.reserved = COMPLETED;
}

void nic_rq_reset(struct nic_rq *rq, uint32_t life, bool visited)
{
	struct rq_taken taken;

	nic_lock(&rq->lock);
	rq->free_count = 0;
	for (uint32_t slot = 0; slot < rq->max_wr; slot++) {
		uint64_t word =
			atomic_load(rq_word(rq->nic->seg, rq->shared, rq->slots[slot].position));
		bool available = word_state(word) == NIC_FIFO_AVAILABLE &&
				 (word & SLOT_MASK) == slot;
		bool begun = rq->slots[slot].posted && !available &&
			     rq_wqe(rq->nic->seg, rq->shared, slot)->cqe.reserved != COMPLETED;

		/* The next life's datagrams wait for none of this one's. */
		if (rq->slots[slot].posted)
			rq_done(rq->nic->seg, rq->shared, rq->slots[slot].position);
		rq->slots[slot].kept |= begun && visited;
		rq->slots[slot].kept &= visited;
		rq->slots[slot].posted = false;
		if (!rq->slots[slot].kept)
			rq->free_slots[rq->free_count++] = (uint16_t)slot;
	}
	/* What was available is taken by nobody. */
	while (rq_take(rq->nic->seg, rq->shared, rq->life, 0, 0, false, &taken) == RQ_TAKEN)
		rq_done(rq->nic->seg, rq->shared, taken.position);
	rq->life = life & TAKER_MASK;
	nic_unlock(&rq->lock);
}

enum rq_answer rq_take(struct nic_segment *seg, struct seg_rq *rq, uint32_t life, uint32_t taker,
		       uint64_t need, bool in_order, struct rq_taken *taken)
{
	for (;;) {
		uint64_t head = atomic_load_explicit(&rq->head, memory_order_acquire);
		_Atomic uint64_t *at = rq_word(seg, rq, head);
		uint64_t word = atomic_load_explicit(at, memory_order_acquire);

		if (!word_state(word) || word_lap(word) == ((rq_lap(rq, head) - 1) & LAP_MASK))
			return RQ_EMPTY; /* not posted yet, this lap */
		if (word_lap(word) != rq_lap(rq, head) || word_state(word) != NIC_FIFO_AVAILABLE) {
			/* Taken by one who has not moved the head yet; perhaps even posted anew
			 * since. */
			atomic_compare_exchange_strong(&rq->head, &head, head + 1);
			continue;
		}
		if (word_taker(word) != (life & TAKER_MASK))
			return RQ_EMPTY; /* of a life that we do not belong to */

		uint32_t slot = word & SLOT_MASK;

		if (in_order && head) {
			uint64_t before = atomic_load_explicit(rq_word(seg, rq, head - 1),
							       memory_order_acquire);

			if (word_state(before) == NIC_FIFO_TAKEN &&
			    word_lap(before) == rq_lap(rq, head - 1))
				return RQ_BUSY;
		}
		if (need && rq_wqe(seg, rq, slot)->room < need) {
			taken->slot = slot;
			return RQ_TOO_SHORT;
		}
		if (!atomic_compare_exchange_strong(
			    at, &word, make_word(rq_lap(rq, head), taker, NIC_FIFO_TAKEN, slot)))
			continue;
		crash_point(RQ_TAKEN);
		*taken = (struct rq_taken){ .position = head, .slot = slot };
		if (rq->one_taker)
			atomic_store_explicit(&rq->head, head + 1, memory_order_release);
		else /* a full barrier: an SRQ's limit is looked at after this */
			atomic_compare_exchange_strong(&rq->head, &head, head + 1);
		return RQ_TAKEN;
	}
}

void rq_prefetch(struct nic_segment *seg, const struct seg_rq *rq, const struct rq_taken *taken)
{
	const uint8_t *wqe = (const uint8_t *)rq_wqe(seg, rq, taken->slot + AHEAD);

	prefetch_to_write(rq_word(seg, rq, taken->position + AHEAD));
	prefetch_to_write(wqe);
	__builtin_prefetch(wqe + NIC_CACHE_LINE);
}

void rq_done(struct nic_segment *seg, struct seg_rq *rq, uint64_t position)
{
	crash_point(RQ_DONE);
	_Atomic uint64_t *at = rq_word(seg, rq, position);
	uint64_t word = atomic_load_explicit(at, memory_order_relaxed);

	/* Unless its slot is back and the word names another already. */
	if (word_lap(word) == rq_lap(rq, position) && word_state(word) == NIC_FIFO_TAKEN)
		atomic_compare_exchange_strong(at, &word,
					       make_word(word_lap(word), word_taker(word),
							 NIC_FIFO_DONE, word & SLOT_MASK));
}

uint32_t rq_available(const struct seg_rq *rq)
{
	uint64_t head = atomic_load_explicit(&rq->head, memory_order_acquire);
	uint64_t tail = atomic_load_explicit(&rq->tail, memory_order_acquire);

	return tail > head ? (uint32_t)(tail - head) : 0;
}

void rq_complete(struct nic_rwqe *wqe, const struct nic_cqe *cqe)
{
	wqe->cqe = *cqe;
	wqe->cqe.wr_id = wqe->wr_id;
	wqe->cqe.reserved = COMPLETED;
	crash_point(CQE_WRITTEN);
}

uint32_t nic_rq_taker(struct nic_rq *rq, uint32_t slot)
{
	uint32_t taker = 0;

	nic_lock(&rq->lock);
	if (rq->slots[slot].posted) {
		uint64_t position = rq->slots[slot].position;
		uint64_t word = atomic_load(rq_word(rq->nic->seg, rq->shared, position));

		if (rq->slots[slot].taker)
			taker = rq->slots[slot].taker;
		else if (word_lap(word) == rq_lap(rq->shared, position) &&
			 word_state(word) == NIC_FIFO_TAKEN)
			taker = word_taker(word);
	}
	nic_unlock(&rq->lock);
	return taker;
}

void nic_rq_settle(struct nic_rq *rq, uint32_t slot)
{
	nic_lock(&rq->lock);
	if (rq->slots[slot].posted)
		rq_done(rq->nic->seg, rq->shared, rq->slots[slot].position);
	nic_unlock(&rq->lock);
}

void nic_rq_repost(struct nic_rq *rq, uint32_t slot)
{
	nic_lock(&rq->lock);
	rq_done(rq->nic->seg, rq->shared, rq->slots[slot].position);
	rq_wqe(rq->nic->seg, rq->shared, slot)->cqe.reserved = 0;
	publish_slot(rq, slot);
	nic_unlock(&rq->lock);
}
