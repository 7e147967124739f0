/* SPDX-License-Identifier: MIT */
/*
 * Completion queues. The protocol is docs/protocols.md, "Completion queue"; the words are
 * nic/layout.h's.
 */
#include "nic/cq.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "nic/attention.h"
#include "nic/crash.h"
#include "nic/qp.h"
#include "nic/requester.h"
#include "nic/spin.h"
#include "nic/srq.h"
#include "nic/visit.h"

#define LAP_SHIFT  33
#define LAP_MASK   0x7fffffffu
#define KIND_SHIFT 31
#define SLOT_MASK  0x7fffu

/* EMPTY words that are no longer free to publish into. */
#define EMPTY_VOID  1u	    /* the completion was taken away: its QP is gone */
#define EMPTY_MOVED 0x7fffu /* the ring goes on in ring->next */

static uint64_t make_word(uint64_t lap, enum nic_ref_kind kind, uint32_t index, uint32_t slot)
{
	return (lap & LAP_MASK) << LAP_SHIFT | (uint64_t)kind << KIND_SHIFT |
	       (uint64_t)index << 15 | slot;
}

static uint32_t word_lap(uint64_t word)
{
	return (uint32_t)(word >> LAP_SHIFT);
}

static enum nic_ref_kind word_kind(uint64_t word)
{
	return (enum nic_ref_kind)(word >> KIND_SHIFT & 3);
}

static uint32_t word_index(uint64_t word)
{
	return word >> 15 & 0xffff;
}

static struct seg_cq_entry *ring_entry(struct seg_cq_ring *ring, uint64_t position)
{
	return &ring->entries[position & ((1ull << ring->log2) - 1)];
}

static _Atomic uint64_t *ring_word(struct seg_cq_ring *ring, uint64_t position)
{
	return &ring_entry(ring, position)->word;
}

static uint64_t ring_lap(const struct seg_cq_ring *ring, uint64_t position)
{
	return position >> ring->log2 & LAP_MASK;
}

static uint64_t free_word(const struct seg_cq_ring *ring, uint64_t position)
{
	return make_word(ring_lap(ring, position), NIC_REF_EMPTY, 0, 0);
}

static void help_tail(struct seg_cq_ring *ring, uint64_t position)
{
	atomic_compare_exchange_strong(&ring->tail, &position, position + 1);
}

/* Turns a free entry into a published one, as a whole. A full barrier. */
static bool entry_publish(struct seg_cq_entry *entry, uint64_t free, uint64_t word, uint64_t brief)
{
	unsigned __int128 both = (unsigned __int128)brief << 64 | word;

	return __sync_bool_compare_and_swap((unsigned __int128 *)entry, (unsigned __int128)free,
					    both);
}

/* Publishes a reference in the chain of rings that starts at *ring. False when the CQ is full. */
static bool ring_publish(struct nic_segment *seg, struct seg_cq_ring *ring,
			 const struct cq_reference *ref)
{
	for (;;) {
		uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
		uint64_t expected = free_word(ring, tail);
		uint64_t word = atomic_load_explicit(ring_word(ring, tail), memory_order_acquire);

		if (word == expected) {
			/* One word stays free, so that a full ring differs from an empty one and
			 * MOVED always fits. */
			uint64_t after = atomic_load_explicit(ring_word(ring, tail + 1),
							      memory_order_acquire);

			if (after != free_word(ring, tail + 1)) {
				if (atomic_load_explicit(&ring->tail, memory_order_acquire) != tail)
					continue;
				return false;
			}
			crash_point(CQ_PUBLISHING);
			/* seq_cst: pairs with the arming store; see fire(). */
			if (entry_publish(ring_entry(ring, tail), expected,
					  make_word(ring_lap(ring, tail), ref->kind, ref->index,
						    ref->slot),
					  ref->brief)) {
				crash_point(CQ_PUBLISHED);
				help_tail(ring, tail);
				return true;
			}
			continue;
		}
		if (word == make_word(ring_lap(ring, tail), NIC_REF_EMPTY, 0, EMPTY_MOVED))
			ring = seg_at(seg, atomic_load_explicit(&ring->next, memory_order_acquire));
		else
			/* Published by one who has not moved the tail yet, and perhaps consumed:
			 * the word at the true tail is always free. */
			help_tail(ring, tail);
	}
}

/* Turns an armed CQ into one with an event due. True also if somebody else did: he may have been
 * stopped before he told the owner. */
static bool fire(struct seg_cq *cq, bool solicited)
{
	/* Pairs with the arming store: either we see the CQ armed, or who armed it sees the
	 * completion when polling. */
	uint32_t arm = atomic_load(&cq->arm);

	while (arm == NIC_ARM_ANY || (arm == NIC_ARM_SOLICITED && solicited)) {
		if (atomic_compare_exchange_weak(&cq->arm, &arm, NIC_ARM_FIRED)) {
			crash_point(CQ_FIRED);
			return true;
		}
	}
	return arm == NIC_ARM_FIRED;
}

enum cq_publish cq_publish(struct nic_segment *seg, uint32_t index, const struct cq_reference *ref,
			   bool solicited)
{
	struct seg_cq *cq = &seg->cqs[index];
	uint64_t ring = atomic_load_explicit(&cq->ring, memory_order_acquire);

	if (!ring) /* destroyed since we looked: nobody waits for this */
		return CQ_PUBLISHED;
	if (atomic_load_explicit(&cq->error, memory_order_relaxed) ||
	    !ring_publish(seg, seg_at(seg, ring), ref)) {
		atomic_store(&cq->error, 1);
		atomic_fetch_add(&cq->overflows, 1);
		counter_add(&seg->counters.cq_overflows, 1);
		return CQ_OVERFLOW;
	}
	return fire(cq, solicited) ? CQ_PUBLISHED_FIRED : CQ_PUBLISHED;
}

static uint64_t ring_length(uint32_t log2)
{
	return sizeof(struct seg_cq_ring) + (sizeof(struct seg_cq_entry) << log2);
}

/* A ring of at least cqe completions. */
static uint64_t ring_create(struct nic *nic, uint32_t cqe, uint32_t *capacity)
{
	uint32_t log2 = 1;

	while ((1ull << log2) - 1 < cqe)
		log2++;
	*capacity = (uint32_t)((1ull << log2) - 1);

	uint64_t offset = arena_alloc(&nic->arena, ring_length(log2));

	if (offset)
		((struct seg_cq_ring *)seg_at(nic->seg, offset))->log2 = log2;
	return offset;
}

int nic_cq_create(struct nic *nic, uint32_t cqe, struct nic_channel *channel, struct nic_cq *cq)
{
	int64_t index = table_alloc(&nic->cqs, NULL, NIC_MAX_CQ);

	if (index < 0)
		return ENOMEM;
	memset(cq, 0, sizeof(*cq));
	cq->nic = nic;
	cq->index = (uint32_t)index;
	cq->shared = &nic->seg->cqs[index];

	uint64_t ring = 0;

	if (!segment_commit(nic->seg, nic->seg_fd, cq->shared, sizeof(*cq->shared)))
		ring = ring_create(nic, cqe, &cq->capacity);
	if (!ring) {
		table_free(&nic->cqs, cq->index);
		return ENOMEM;
	}
	nic_lock_init(&cq->lock);
	nic_lock_init(&cq->ring_lock);
	cq->ring = seg_at(nic->seg, ring);
	cq->channel = channel;
	list_init(&cq->of_channel);
	if (channel) {
		pthread_mutex_lock(&channel->lock);
		list_add_tail(&channel->cqs, &cq->of_channel);
		pthread_mutex_unlock(&channel->lock);
	}
	atomic_store(&cq->shared->arm, NIC_ARM_NONE);
	atomic_store(&cq->shared->error, 0);
	atomic_store(&cq->shared->overflows, 0);
	atomic_store(&cq->shared->timestamps, 0);
	atomic_store(&cq->shared->ring, ring);
	atomic_store_explicit(&nic->cqs.objects[cq->index], cq, memory_order_release);
	return 0;
}

static void free_ring(struct nic_cq *cq, struct seg_cq_ring *ring, bool visited)
{
	arena_free(&cq->nic->arena, (uint64_t)((uint8_t *)ring - (uint8_t *)cq->nic->seg),
		   ring_length(ring->log2), visited);
}

int nic_cq_destroy(struct nic_cq *cq)
{
	if (atomic_load(&cq->users))
		return EBUSY;
	if (!nic_is_orphan(cq->nic)) {
		struct nic *nic = cq->nic;

		atomic_store(&cq->shared->ring, 0);
		/* From here on the helper cannot find it; index reuse is slow. */
		pthread_mutex_lock(&nic->lock);
		table_free(&nic->cqs, cq->index);
		pthread_mutex_unlock(&nic->lock);

		bool visited = !visits_over(nic, NIC_GRACE, NULL);

		/* More than one after a resize whose old ring was not polled empty. */
		for (uint64_t next; cq->ring; cq->ring = next ? seg_at(nic->seg, next) : NULL) {
			next = atomic_load(&cq->ring->next);
			free_ring(cq, cq->ring, visited);
		}
	}
	if (cq->channel)
		nic_channel_forget(cq->channel, cq);
	return 0;
}

/* The queue that a reference to a receive is about. */
static struct nic_rq *receive_queue(struct nic *nic, uint64_t word)
{
	if (word_kind(word) == NIC_REF_RQ) {
		struct nic_qp *qp = table_get(&nic->qps, word_index(word));

		return qp ? &qp->rq : NULL;
	}
	struct nic_srq *srq = table_get(&nic->srqs, word_index(word));

	return srq ? &srq->rq : NULL;
}

/* The completion that an entry brings, in its WQE or, until the next look, in cq->brief; NULL if its queue is gone or the
 * reference is that of a taker who came too late. Ring lock held. */
static const struct nic_cqe *read_entry(struct nic_cq *cq, const struct seg_cq_entry *entry,
					uint64_t word)
{
	struct nic *nic = cq->nic;
	uint32_t slot = word & SLOT_MASK;
	uint64_t brief = entry->brief, wr_id;
	const struct nic_cqe *cqe;

	if (word_kind(word) == NIC_REF_SQ) {
		struct nic_qp *qp = table_get(&nic->qps, word_index(word));

		if (!qp)
			return NULL;
		cqe = &qp_swqe(qp, slot)->cqe;
		wr_id = qp_swqe(qp, slot)->wr_id;
	} else {
		struct nic_rq *rq = receive_queue(nic, word);

		if (!rq || !nic_rq_is_completed(rq, slot, brief))
			return NULL;
		cqe = &rq_wqe(nic->seg, rq->shared, slot)->cqe;
		wr_id = rq_wqe(nic->seg, rq->shared, slot)->wr_id;
	}
	if (!brief)
		return cqe;
	/* The other fields stay 0. */
	cq->brief.wr_id = wr_id;
	cq->brief.opcode = (uint32_t)(brief >> 56);
	cq->brief.qp_num = brief >> 32 & 0xffffff;
	cq->brief.byte_len = (uint32_t)brief;
	return &cq->brief;
}

static void give_back(struct nic *nic, uint64_t word)
{
	uint32_t index = word_index(word), slot = word & SLOT_MASK;

	if (word_kind(word) == NIC_REF_SRQ) {
		nic_rq_release(&((struct nic_srq *)table_get(&nic->srqs, index))->rq, slot);
		return;
	}
	struct nic_qp *qp = table_get(&nic->qps, index);

	if (word_kind(word) == NIC_REF_RQ) {
		nic_rq_release(&qp->rq, slot);
	} else {
		/* All up to this WQE come back: those before it without a completion were
		 * unsignaled. */
		uint64_t head = atomic_load_explicit(&qp->sq_head, memory_order_relaxed);
		uint64_t mask = (1ull << qp->sq_log2) - 1;

		atomic_store_explicit(&qp->sq_head, head + ((slot - head) & mask) + 1,
				      memory_order_release);
	}
}

static void advance(struct nic_cq *cq)
{
	ring_entry(cq->ring, cq->head)->brief = 0;
	/* Release: the next publisher into this entry finds the WQE given back by then. */
	atomic_store_explicit(ring_word(cq->ring, cq->head),
			      free_word(cq->ring, cq->head + (1ull << cq->ring->log2)),
			      memory_order_release);
	cq->head++;
}

void nic_cq_begin(struct nic_cq *cq)
{
	if (atomic_load_explicit(&cq->deferred, memory_order_relaxed))
		requester_run_for(cq);
}

/* The oldest completion, and the word that refers to it; NULL when there is none. Skips what was taken
 * away, follows a resize. Ring lock held. */
static const struct nic_cqe *next_cqe(struct nic_cq *cq, uint64_t *word_of)
{
	for (;;) {
		const struct seg_cq_entry *entry = ring_entry(cq->ring, cq->head);
		uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
		const struct nic_cqe *cqe;

		*word_of = word;
		if (word_lap(word) != ring_lap(cq->ring, cq->head))
			return NULL;
		if (word_kind(word) != NIC_REF_EMPTY && (cqe = read_entry(cq, entry, word)))
			return cqe;
		if (word == free_word(cq->ring, cq->head))
			return NULL;
		if (word_kind(word) == NIC_REF_EMPTY && (word & SLOT_MASK) == EMPTY_MOVED) {
			struct seg_cq_ring *old = cq->ring;

			cq->ring = seg_at(cq->nic->seg, atomic_load(&old->next));
			cq->head = 0;
			free_ring(cq, old, !visits_over(cq->nic, 0, NULL));
			continue;
		}
		advance(cq);
	}
}

/* Ends with a completion that was read. Ring lock held, since it was found: who destroys a queue takes
 * its completions away under it, before it frees what they refer to. */
static void consume(struct nic_cq *cq, uint64_t word)
{
	give_back(cq->nic, word);
	advance(cq);
}

bool nic_cq_take(struct nic_cq *cq, struct nic_cqe *taken)
{
	const struct nic_cqe *cqe;
	uint64_t word;

	nic_lock(&cq->ring_lock);
	cqe = next_cqe(cq, &word);
	if (cqe) {
		*taken = *cqe;
		consume(cq, word);
	}
	nic_unlock(&cq->ring_lock);
	return cqe;
}

/* Asks for the completion behind the one at the head, if it is there. Ring lock held. */
static void prefetch_next(const struct nic_cq *cq)
{
	uint64_t word =
		atomic_load_explicit(ring_word(cq->ring, cq->head + 1), memory_order_relaxed);
	const struct nic_qp *qp;

	if (word_kind(word) != NIC_REF_RQ)
		return;
	qp = table_get(&cq->nic->qps, word_index(word));
	if (qp)
		__builtin_prefetch(rq_wqe(cq->nic->seg, qp->rq.shared, word & SLOT_MASK));
}

int nic_cq_poll(struct nic_cq *cq, int n, struct ibv_wc *wc)
{
	const struct nic_cqe *cqe;
	uint64_t word;
	int got = 0;

	if (nic_is_orphan(cq->nic)) {
		errno = EIO;
		return -1;
	}
	nic_cq_begin(cq);
	nic_lock(&cq->ring_lock);
	for (; got < n && (cqe = next_cqe(cq, &word)); got++) {
		wc[got] = (struct ibv_wc){
			.wr_id = cqe->wr_id,
			.status = cqe->status,
			.opcode = cqe->opcode,
			.vendor_err = cqe->vendor_err,
			.byte_len = cqe->byte_len,
			.imm_data = cqe->imm_data,
			.qp_num = cqe->qp_num,
			.src_qp = cqe->src_qp,
			.wc_flags = cqe->wc_flags,
			.slid = cqe->slid,
			.sl = cqe->sl,
			.dlid_path_bits = cqe->dlid_path_bits,
		};
		prefetch_next(cq);
		consume(cq, word);
	}
	nic_unlock(&cq->ring_lock);
	spin_polled(got);
	return got;
}

int nic_cq_arm(struct nic_cq *cq, bool solicited_only)
{
	if (nic_is_orphan(cq->nic))
		return EIO;
	/* seq_cst: pairs with fire(). ANY is not weakened to SOLICITED by a second call
	 * (ibv_req_notify_cq(3)). */
	uint32_t want = solicited_only ? NIC_ARM_SOLICITED : NIC_ARM_ANY;
	uint32_t arm = atomic_load(&cq->shared->arm);

	do {
		if (arm == NIC_ARM_ANY && solicited_only)
			return 0;
	} while (!atomic_compare_exchange_weak(&cq->shared->arm, &arm, want));
	if (arm == NIC_ARM_FIRED)
		nic_cq_deliver(cq);
	return 0;
}

/* Calls visit for each queued word, in order; ring lock held. */
static void for_each_word(struct nic_cq *cq,
			  void (*visit)(struct seg_cq_entry *entry, uint64_t word, void *arg),
			  void *arg)
{
	struct seg_cq_ring *ring = cq->ring;
	uint64_t position = cq->head;

	for (;;) {
		struct seg_cq_entry *entry = ring_entry(ring, position);
		uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);

		if (word_lap(word) != ring_lap(ring, position) || word == free_word(ring, position))
			return;
		if (word == make_word(ring_lap(ring, position), NIC_REF_EMPTY, 0, EMPTY_MOVED)) {
			ring = seg_at(cq->nic->seg, atomic_load(&ring->next));
			position = 0;
			continue;
		}
		visit(entry, word, arg);
		position++;
	}
}

struct of_queue {
	struct nic_cq *cq;
	enum nic_ref_kind kind;
	uint32_t index;
	uint32_t qpn;  /* NIC_REF_SRQ: whose completions */
	uint8_t *seen; /* NULL: take them away */
};

static void of_queue(struct seg_cq_entry *entry, uint64_t word, void *arg)
{
	struct of_queue *match = arg;

	if (word_kind(word) != match->kind || word_index(word) != match->index)
		return;
	if (match->seen) {
		match->seen[word & SLOT_MASK] = 1;
		return;
	}
	if (match->kind == NIC_REF_SRQ) {
		const struct nic_cqe *cqe = read_entry(match->cq, entry, word);

		if (cqe && cqe->qp_num != match->qpn)
			return;
		if (cqe)
			give_back(match->cq->nic, word);
	} else if (match->kind == NIC_REF_RQ && entry->brief) {
		struct nic_qp *qp = table_get(&match->cq->nic->qps, match->index);

		if (qp) /* it is not being destroyed */
			nic_rq_published(&qp->rq, word & SLOT_MASK);
	}
	atomic_store_explicit(&entry->word, make_word(word_lap(word), NIC_REF_EMPTY, 0, EMPTY_VOID),
			      memory_order_release);
}

void nic_cq_forget(struct nic_cq *cq, enum nic_ref_kind kind, uint32_t index, uint32_t qpn)
{
	struct of_queue match = { .cq = cq, .kind = kind, .index = index, .qpn = qpn };

	nic_lock(&cq->ring_lock);
	for_each_word(cq, of_queue, &match);
	nic_unlock(&cq->ring_lock);
}

void nic_cq_mark(struct nic_cq *cq, enum nic_ref_kind kind, uint32_t index, uint8_t *seen)
{
	struct of_queue match = { .cq = cq, .kind = kind, .index = index, .seen = seen };

	nic_lock(&cq->ring_lock);
	for_each_word(cq, of_queue, &match);
	nic_unlock(&cq->ring_lock);
}

static void count_word(struct seg_cq_entry *entry, uint64_t word, void *arg)
{
	(void)entry;
	*(uint32_t *)arg += word_kind(word) != NIC_REF_EMPTY;
}

/* Ends the current ring with MOVED. One word is always free there: see ring_publish(). */
static void seal(struct seg_cq_ring *ring)
{
	for (;;) {
		uint64_t tail = atomic_load(&ring->tail);
		uint64_t word = free_word(ring, tail);

		if (atomic_compare_exchange_strong(ring_word(ring, tail), &word,
						   make_word(ring_lap(ring, tail), NIC_REF_EMPTY, 0,
							     EMPTY_MOVED)))
			return;
		help_tail(ring, tail);
	}
}

int nic_cq_resize(struct nic_cq *cq, uint32_t cqe)
{
	uint32_t queued = 0, capacity;
	uint64_t word;
	int error = 0;

	if (nic_is_orphan(cq->nic))
		return EIO;
	nic_lock(&cq->ring_lock);
	for_each_word(cq, count_word, &queued);

	uint64_t offset = queued > cqe ? 0 : ring_create(cq->nic, cqe, &capacity);

	if (queued > cqe) {
		cause_record(nic_causes(cq->nic), &(struct cause){ .code = CAUSE_RESIZE_TOO_SMALL,
								   .error = EINVAL,
								   .qpn = cq->index,
								   .limit = cqe,
								   .value = queued });
		error = EINVAL;
	} else if (!offset) {
		error = ENOMEM;
	} else {
		/* The ring that publishers use now; the consumer may still be in an older one. */
		struct seg_cq_ring *current = seg_at(cq->nic->seg, atomic_load(&cq->shared->ring));

		atomic_store(&current->next, offset);
		crash_point(CQ_NEXT);
		seal(current);
		crash_point(CQ_SEALED);
		atomic_store(&cq->shared->ring, offset);
		cq->capacity = capacity;
		/* Follow at once if nothing is queued, so that destroying finds a single ring. */
		next_cqe(cq, &word);
	}
	nic_unlock(&cq->ring_lock);
	return error;
}

enum cq_publish nic_cq_publish(struct nic_cq *cq, const struct cq_reference *ref, bool solicited)
{
	struct nic *nic = cq->nic;
	struct target self = target_self(nic);
	struct seg_visit *visit;

	/* A resize frees the old ring when no visit is left. */
	while (!(visit = visit_enter(nic, nic->seg)))
		sched_yield();
	enum cq_publish result = cq_publish(nic->seg, cq->index, ref, solicited);

	visit_leave(visit);
	if (result == CQ_PUBLISHED_FIRED)
		nic_cq_attend(cq);
	else if (result == CQ_OVERFLOW)
		/* The helper fails all QPs of the CQ; the caller holds the lock of one. */
		attention_cq(&self, cq->index);
	return result;
}

void nic_cq_refire(struct nic_cq *cq)
{
	uint64_t word;

	nic_lock(&cq->ring_lock);
	bool queued = next_cqe(cq, &word);

	nic_unlock(&cq->ring_lock);
	if (queued)
		fire(cq->shared, true);
	nic_cq_attend(cq);
}

bool nic_cq_report_error(struct nic_cq *cq)
{
	if (cq->error_reported || !atomic_load(&cq->shared->error))
		return false;
	cq->error_reported = true;
	cause_record(nic_causes(cq->nic),
		     &(struct cause){ .code = CAUSE_CQ_OVERFLOW,
				      .qpn = cq->index,
				      .limit = cq->capacity,
				      .count = atomic_load(&cq->shared->overflows) });
	if (cq->events)
		nic_event_raise(cq->events,
				&(struct ibv_async_event){ .element.cq = cq->handle,
							   .event_type = IBV_EVENT_CQ_ERR });
	return true;
}
