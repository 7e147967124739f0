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
#include "nic/buffers.h"
#include "nic/crash.h"
#include "nic/keep_errno.h"
#include "nic/qp.h"
#include "nic/requester.h"
#include "nic/spin.h"
#include "nic/srq.h"
#include "nic/visit.h"
#include "observe/trace.h"
#include "observe/watch.h"
#include "roce/wire.h"

#define LAP_SHIFT  33
#define LAP_BITS   (~0ull << LAP_SHIFT)
#define KIND_SHIFT 31
#define SLOT_MASK  0x7fffu

/* EMPTY words that are no longer free to publish into. */
#define EMPTY_VOID  1u	    /* the completion was taken away: its QP is gone */
#define EMPTY_MOVED 0x7fffu /* the ring goes on in ring->next */

static enum nic_ref_kind word_kind(uint64_t word)
{
	return (enum nic_ref_kind)(word >> KIND_SHIFT & 3);
}

static uint32_t word_index(uint64_t word)
{
	return word >> 15 & 0xffff;
}

static bool is_of_lap(uint64_t word, uint64_t free_word)
{
	return !((word ^ free_word) >> LAP_SHIFT);
}

static struct seg_cq_entry *ring_entry(struct seg_cq_ring *ring, uint64_t position)
{
	return &ring->entries[position & ring->mask];
}

/* EMPTY of the position's lap: what is published there is added to it. */
static uint64_t free_word(const struct seg_cq_ring *ring, uint64_t position)
{
	return position >> ring->log2 << LAP_SHIFT;
}

static void help_tail(struct seg_cq_ring *ring, uint64_t position)
{
	atomic_compare_exchange_strong(&ring->tail, &position, position + 1);
}

#ifdef __SANITIZE_THREAD__
void __tsan_release(void *addr);
#endif

/* Turns a free entry into a published one, as a whole. A full barrier. */
static bool entry_publish(struct seg_cq_entry *entry, uint64_t free, uint64_t word, uint64_t brief)
{
#ifdef __SANITIZE_THREAD__
	__tsan_release(entry); /* what it makes of 16 bytes excludes no other process */
#endif
#ifdef __x86_64__
	uint64_t none = 0;
	bool done;

	__asm__ volatile("lock cmpxchg16b %1"
			 : "=@ccz"(done), "+m"(*entry), "+a"(free), "+d"(none)
			 : "b"(word), "c"(brief)
			 : "memory");
	return done;
#else
	return __sync_bool_compare_and_swap((unsigned __int128 *)entry, (unsigned __int128)free,
					    (unsigned __int128)brief << 64 | word);
#endif
}

/* Publishes a reference in the chain of rings that starts at *ring. False when the CQ is full. */
static bool ring_publish(struct nic_segment *seg, struct seg_cq_ring *ring, struct cq_reference ref)
{
	for (;;) {
		uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
		struct seg_cq_entry *entry = ring_entry(ring, tail);
		uint64_t free = free_word(ring, tail);
		uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);

		if (word == free) {
			/* One word stays free, so that a full ring differs from an empty one and
			 * MOVED always fits. */
			uint64_t after = atomic_load_explicit(&ring_entry(ring, tail + 1)->word,
							      memory_order_acquire);

			if (after != free_word(ring, tail + 1)) {
				if (atomic_load_explicit(&ring->tail, memory_order_acquire) != tail)
					continue;
				return false;
			}
			crash_point(CQ_PUBLISHING);
			/* seq_cst: pairs with the arming store; see fire(). */
			if (entry_publish(entry, free, free | ref.word, ref.brief)) {
				crash_point(CQ_PUBLISHED);
				help_tail(ring, tail);
				return true;
			}
			continue;
		}
		if (word == (free | EMPTY_MOVED))
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

enum cq_publish cq_publish(struct nic_segment *seg, uint32_t index, struct cq_reference ref,
			   bool solicited)
{
	struct seg_cq *cq = &seg->cqs[index];
	uint64_t ring = atomic_load_explicit(&cq->ring, memory_order_acquire);

	if (!ring) /* destroyed since we looked: nobody waits for this */
		return CQ_PUBLISHED;
	if (atomic_load_explicit(&cq->error, memory_order_relaxed) ||
	    !ring_publish(seg, seg_at(seg, ring), ref)) {
		/* Counted first: who sees the error tells of one at least. */
		atomic_fetch_add(&cq->overflows, 1);
		atomic_store(&cq->error, 1);
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

	if (offset) {
		struct seg_cq_ring *ring = seg_at(nic->seg, offset);

		ring->log2 = log2;
		ring->mask = *capacity;
	}
	return offset;
}

int nic_cq_create(struct nic *nic, uint32_t cqe, struct nic_channel *channel, struct nic_cq *cq)
{
	KEEP_ERRNO;
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
	atomic_store(&cq->shared->high, 0);
	atomic_store(&cq->shared->earlier, 0);
	atomic_store(&cq->shared->timestamps, 0);
	atomic_store(&cq->shared->ring, ring);
	watch_cq_created(cq->index, cqe);
	atomic_store_explicit(&nic->cqs.objects[cq->index], cq, memory_order_release);
	if (trace_on())
		trace_write(TRACE_CQ, 0, 0, cq->index, 0, cq->capacity, 0);
	return 0;
}

static void free_ring(struct nic_cq *cq, struct seg_cq_ring *ring, bool visited)
{
	arena_free(&cq->nic->arena, (uint64_t)((uint8_t *)ring - (uint8_t *)cq->nic->seg),
		   ring_length(ring->log2), visited);
}

int nic_cq_destroy(struct nic_cq *cq)
{
	KEEP_ERRNO;
	if (atomic_load(&cq->users))
		return EBUSY;
	if (!nic_is_orphan(cq->nic)) {
		struct nic *nic = cq->nic;

		if (trace_on())
			trace_write(TRACE_CQ, 0, 0, cq->index, 0, 0, 0);
		watch_cq_ended(cq->index, cq->high);
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

/* A completion that was found in a ring, and whose WQE it gives back. */
struct found {
	const struct nic_cqe *cqe; /* in the WQE or, until the next look, cq->brief */
	struct nic_qp *sender;	   /* or NULL */
	struct nic_rq *rq;
	uint32_t slot;
};

/* False if the queue that an entry refers to is gone, or the reference is that of a taker who came too late. Ring lock
 * held. */
static inline bool read_entry(struct nic_cq *cq, const struct seg_cq_entry *entry, uint64_t word,
			      struct found *found)
{
	struct nic *nic = cq->nic;
	uint32_t index = word_index(word), slot = word & SLOT_MASK;
	uint64_t brief = entry->brief, wr_id;

	*found = (struct found){ .slot = slot };
	if (word_kind(word) == NIC_REF_SQ) {
		const struct nic_swqe *wqe;

		found->sender = table_get(&nic->qps, index);
		if (!found->sender)
			return false;
		wqe = qp_swqe(found->sender, slot);
		found->cqe = &wqe->cqe;
		wr_id = wqe->wr_id;
	} else {
		const struct nic_rwqe *wqe;

		if (word_kind(word) == NIC_REF_RQ) {
			struct nic_qp *qp = table_get(&nic->qps, index);

			found->rq = qp ? &qp->rq : NULL;
		} else {
			struct nic_srq *srq = table_get(&nic->srqs, index);

			found->rq = srq ? &srq->rq : NULL;
		}
		if (!found->rq || !nic_rq_is_completed(found->rq, slot, brief))
			return false;
		wqe = rq_wqe(nic->seg, found->rq->shared, slot);
		found->cqe = &wqe->cqe;
		wr_id = wqe->wr_id;
	}
	if (brief) {
		/* The other fields stay 0. */
		cq->brief.wr_id = wr_id;
		cq->brief.opcode = (uint32_t)(brief >> 56);
		cq->brief.qp_num = brief >> 32 & 0xffffff;
		cq->brief.byte_len = (uint32_t)brief;
		found->cqe = &cq->brief;
	}
	return true;
}

static void give_back(const struct found *found)
{
	struct nic_qp *qp = found->sender;

	if (!qp) {
		nic_rq_release(found->rq, found->slot);
		return;
	}
	/* All up to this WQE come back: those before it without a completion were unsignaled. */
	_Atomic uint32_t *shared = &qp->shared->sent.head;
	uint32_t head = atomic_load_explicit(shared, memory_order_relaxed);
	uint32_t mask = (1u << qp->sq_log2) - 1;

	atomic_store_explicit(shared, head + ((found->slot - head) & mask) + 1, memory_order_release);
}

static void advance(struct nic_cq *cq)
{
	struct seg_cq_entry *entry = ring_entry(cq->ring, cq->head);

	entry->brief = 0;
	/* Release: the next publisher into this entry finds the WQE given back by then. */
	atomic_store_explicit(&entry->word, free_word(cq->ring, cq->head) + (1ull << LAP_SHIFT),
			      memory_order_release);
	cq->head++;
}

void nic_cq_begin(struct nic_cq *cq)
{
	if (atomic_load_explicit(&cq->deferred, memory_order_relaxed))
		requester_run_for(cq);
}

/* The oldest completion; false when there is none. Skips what was taken away, follows a resize. Ring lock held. */
static inline bool find_oldest(struct nic_cq *cq, struct found *found)
{
	for (;;) {
		const struct seg_cq_entry *entry = ring_entry(cq->ring, cq->head);
		uint64_t free = free_word(cq->ring, cq->head);
		uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);

		if (word == free || !is_of_lap(word, free))
			return false;
		if (word_kind(word) != NIC_REF_EMPTY) {
			if (read_entry(cq, entry, word, found))
				return true;
		} else if (word == (free | EMPTY_MOVED)) {
			struct seg_cq_ring *old = cq->ring;

			cq->ring = seg_at(cq->nic->seg, atomic_load(&old->next));
			cq->head = 0;
			free_ring(cq, old, !visits_over(cq->nic, 0, NULL));
			continue;
		}
		advance(cq);
	}
}

/* Whether more than `most` completions are waiting, as it seems. Ring lock held. */
static inline bool more_wait(const struct nic_cq *cq, uint32_t most)
{
	uint64_t position = cq->head + most;
	uint64_t word = atomic_load_explicit(&ring_entry(cq->ring, position)->word, memory_order_relaxed);

	/* Of this lap, and not free; it may be the mark that ends the ring. One entry is always free. */
	return word - free_word(cq->ring, position) - 1 < (1ull << LAP_SHIFT) - 1;
}

static __attribute__((cold, noinline)) void raise_high(struct nic_cq *cq, uint32_t got)
{
	uint32_t left = cq->high > got ? cq->high - got : 0;

	while (left < cq->ring->mask && more_wait(cq, left) &&
	       atomic_load(&ring_entry(cq->ring, cq->head + left)->word) != (free_word(cq->ring, cq->head + left) | EMPTY_MOVED))
		left++;
	cq->high = got + left;
	atomic_store_explicit(&cq->shared->high, cq->high, memory_order_relaxed);
}

/* After a poll that asked for n completions and took `got`, before which most of them were waiting: if they were more than ever. What
 * is left is of interest only where the poll did not take all. Ring lock held. */
static inline void note_fill(struct nic_cq *cq, uint32_t n, uint32_t got)
{
	if (__builtin_expect(got > cq->high || (got == n && more_wait(cq, cq->high - got)), false))
		raise_high(cq, got);
}

static __attribute__((cold, noinline)) void trace_polled(struct nic_cq *cq, const struct found *found)
{
	const struct nic_cqe *cqe = found->cqe;
	uint32_t index = found->slot;
	uint8_t flags = 0;

	if (found->sender) {
		uint32_t head = atomic_load_explicit(&found->sender->shared->sent.head, memory_order_relaxed);

		index = head + ((index - head) & ((1u << found->sender->sq_log2) - 1));
	} else {
		uint64_t word = atomic_load_explicit(&ring_entry(cq->ring, cq->head)->word, memory_order_relaxed);

		flags = TRACE_CQE_RECV | (word_kind(word) == NIC_REF_SRQ ? TRACE_CQE_SRQ : 0);
	}
	cq->in_vain = false;
	trace_write(TRACE_POLLED, (uint8_t)cqe->status, flags, cqe->qp_num, index, cq->index, cqe->wr_id);
}

/* Only the first time after something was found: who polls polls mostly in vain. Ring lock held. */
static __attribute__((cold, noinline)) void trace_in_vain(struct nic_cq *cq)
{
	if (!cq->in_vain)
		trace_write(TRACE_POLLED_EMPTY, 0, 0, cq->index, 0, 0, 0);
	cq->in_vain = true;
}

/* Of what is about to be given back, while somebody watches. */
static __attribute__((cold, noinline)) void look_at_buffers(struct nic_qp *qp, uint32_t slot)
{
	uint32_t head = atomic_load_explicit(&qp->shared->sent.head, memory_order_relaxed);

	buffers_completed(qp, head, ((slot - head) & ((1u << qp->sq_log2) - 1)) + 1);
}

/* Ends with a completion that was read. Ring lock held, since it was found: who destroys a queue takes
 * its completions away under it, before it frees what they refer to. */
static void consume(struct nic_cq *cq, const struct found *found)
{
	if (trace_on())
		trace_polled(cq, found);
	if (__builtin_expect(watch_now() != NULL, false) && found->sender)
		look_at_buffers(found->sender, found->slot);
	give_back(found);
	advance(cq);
}

static inline void count_poll(struct nic_cq *cq)
{
	cq->polls++;
	if (__builtin_expect(watch_now() != NULL, false))
		watch_cq_polled(cq->index);
}

bool nic_cq_take(struct nic_cq *cq, struct nic_cqe *cqe)
{
	struct found found;
	bool any;

	nic_lock(&cq->ring_lock);
	any = find_oldest(cq, &found);
	count_poll(cq);
	if (any) {
		*cqe = *found.cqe;
		consume(cq, &found);
		note_fill(cq, 1, 1);
	} else if (trace_on()) {
		trace_in_vain(cq);
	}
	nic_unlock(&cq->ring_lock);
	return any;
}

int nic_cq_poll(struct nic_cq *cq, int n, struct ibv_wc *wc)
{
	struct found found;
	int got = 0;

	if (nic_is_orphan(cq->nic)) {
		errno = EIO;
		return -1;
	}
again:
	nic_cq_begin(cq);
	nic_lock(&cq->ring_lock);
	count_poll(cq);
	for (; got < n && find_oldest(cq, &found); got++) {
		const struct nic_cqe *cqe = found.cqe;

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
		consume(cq, &found);
	}
	if (got)
		note_fill(cq, (uint32_t)n, (uint32_t)got);
	else if (trace_on())
		trace_in_vain(cq);
	nic_unlock(&cq->ring_lock);
	if (!got && wire_is_used(cq) && wire_poll(cq->nic))
		goto again;
	spin_polled(got);
	return got;
}

/* While somebody watches. */
static __attribute__((cold, noinline)) void note_arming(struct nic_cq *cq)
{
	uint32_t waiting = 0;

	nic_lock(&cq->ring_lock);
	while (waiting < cq->ring->mask && more_wait(cq, waiting))
		waiting++;
	nic_unlock(&cq->ring_lock);
	watch_cq_armed(cq->index, waiting, nic_now());
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
	if (trace_on())
		trace_write(TRACE_ARMED, solicited_only, 0, cq->index, 0, 0, 0);
	if (watch_now())
		note_arming(cq);
	if (arm == NIC_ARM_FIRED)
		nic_cq_deliver(cq);
	if (wire_is_used(cq))
		wire_listen(cq->nic);
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
		uint64_t free = free_word(ring, position);
		uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);

		if (word == free || !is_of_lap(word, free))
			return;
		if (word == (free | EMPTY_MOVED)) {
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
		struct found found;
		bool is_there = read_entry(match->cq, entry, word, &found);

		if (is_there && found.cqe->qp_num != match->qpn)
			return;
		if (is_there)
			give_back(&found);
	} else if (match->kind == NIC_REF_RQ && entry->brief) {
		struct nic_qp *qp = table_get(&match->cq->nic->qps, match->index);

		if (qp) /* it is not being destroyed */
			nic_rq_published(&qp->rq, word & SLOT_MASK);
	}
	atomic_store_explicit(&entry->word, word >> LAP_SHIFT << LAP_SHIFT | EMPTY_VOID,
			      memory_order_release);
}

/* The places of completions that were taken away become free: those that are left move up to the newest. Publishers look at
 * entries behind the tail only to see that they are not free. Ring lock held. */
static void compact(struct nic_cq *cq)
{
	struct seg_cq_ring *ring = cq->ring;
	uint64_t end = cq->head, to;

	for (;; end++) {
		uint64_t free = free_word(ring, end);
		uint64_t word =
			atomic_load_explicit(&ring_entry(ring, end)->word, memory_order_acquire);

		if (word == free || !is_of_lap(word, free) || word == (free | EMPTY_MOVED))
			break;
	}
	to = end;
	for (uint64_t from = end; from-- > cq->head;) {
		struct seg_cq_entry *entry = ring_entry(ring, from), *place;
		uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);

		if (word_kind(word) == NIC_REF_EMPTY || --to == from)
			continue;
		place = ring_entry(ring, to);
		place->brief = entry->brief;
		atomic_store_explicit(&place->word, free_word(ring, to) | (word & ~LAP_BITS),
				      memory_order_release);
	}
	while (cq->head != to)
		advance(cq);
}

void nic_cq_forget(struct nic_cq *cq, enum nic_ref_kind kind, uint32_t index, uint32_t qpn)
{
	struct of_queue match = { .cq = cq, .kind = kind, .index = index, .qpn = qpn };

	nic_lock(&cq->ring_lock);
	for_each_word(cq, of_queue, &match);
	compact(cq);
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

/* Ends the current ring with MOVED; returns its position. One word is always free there: see ring_publish(). */
static uint64_t seal(struct seg_cq_ring *ring)
{
	for (;;) {
		uint64_t tail = atomic_load(&ring->tail);
		uint64_t free = free_word(ring, tail);

		if (atomic_compare_exchange_strong(&ring_entry(ring, tail)->word, &free,
						   free | EMPTY_MOVED))
			return tail;
		help_tail(ring, tail);
	}
}

int nic_cq_resize(struct nic_cq *cq, uint32_t cqe)
{
	KEEP_ERRNO;
	uint32_t queued = 0, capacity;
	struct found oldest;
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
		atomic_fetch_add(&cq->shared->earlier, seal(current));
		crash_point(CQ_SEALED);
		atomic_store(&cq->shared->ring, offset);
		cq->capacity = capacity;
		if (trace_on())
			trace_write(TRACE_CQ, 0, 0, cq->index, 0, capacity, 0);
		/* Follow at once if nothing is queued, so that destroying finds a single ring. */
		find_oldest(cq, &oldest);
	}
	nic_unlock(&cq->ring_lock);
	return error;
}

enum cq_publish nic_cq_publish(struct nic_cq *cq, struct cq_reference ref, bool solicited)
{
	struct nic *nic = cq->nic;
	struct target self = target_self(nic);
	struct seg_visit *visit;

	/* A resize frees the old ring when no visit is left. */
	while (!(visit = visit_enter(nic, nic->seg)))
		sched_yield();
	enum cq_publish result = cq_publish(nic->seg, cq->index, ref, solicited);

	visit_leave(visit);
	if (result == CQ_PUBLISHED_FIRED) {
		if (trace_on())
			trace_write(TRACE_FIRED, 0, 0, cq->index, 0, 0, 0);
		nic_cq_attend(cq);
	} else if (result == CQ_OVERFLOW) {
		/* The helper fails all QPs of the CQ; the caller holds the lock of one. */
		attention_cq(&self, cq->index);
	}
	return result;
}

void nic_cq_refire(struct nic_cq *cq)
{
	struct found oldest;

	nic_lock(&cq->ring_lock);
	bool queued = find_oldest(cq, &oldest);

	nic_unlock(&cq->ring_lock);
	if (queued)
		fire(cq->shared, true);
	nic_cq_attend(cq);
}

bool nic_cq_find_error(struct nic_cq *cq)
{
	if (cq->error_reported || !atomic_load(&cq->shared->error))
		return false;
	cq->error_reported = true;
	cause_record(nic_causes(cq->nic),
		     &(struct cause){ .code = CAUSE_CQ_OVERFLOW,
				      .qpn = cq->index,
				      .limit = cq->capacity,
				      .count = atomic_load(&cq->shared->overflows) });
	return true;
}

void nic_cq_raise_error(struct nic_cq *cq)
{
	if (cq->events)
		nic_event_raise(cq->events,
				&(struct ibv_async_event){ .element.cq = cq->handle,
							   .event_type = IBV_EVENT_CQ_ERR });
}
