/* SPDX-License-Identifier: MIT */
/*
 * Visits: how an owner learns that nobody touches any more what it took back.
 *
 * An initiator enters a visit, then looks whether what it wants is there, acts, leaves. An owner
 * makes a thing unreachable, then waits until every visit that it can see has ended. Both sides have
 * a full barrier between their store and their load, so at least one of them sees the other; the
 * visitor's is the membarrier(2) of the owner where both have that, since visits are many and waits
 * are few.
 * Nothing ever waits inside a visit.
 *
 * A visit of another process says by which keys it looks at that one's memory, before it looks: so who takes a region back waits
 * for those who may be using this one. One that does not move is evicted if it can only be storing to pages that peers map: what
 * it still does there counts for nothing, and it finds that out itself.
 */
#ifndef UROCE_NIC_VISIT_H
#define UROCE_NIC_VISIT_H

#include "nic/crash.h"
#include "nic/lock.h"
#include "nic/nic.h"

/* A process that can visit us; part of struct peer, and one of our own. */
struct visitor {
	struct list node; /* nic->visitors */
	struct nic_segment *seg;
	int seg_fd; /* its life lock; -1: ourselves */
	/* visits that were waited for in vain: nobody waits for them again; under the lock */
	uint64_t stood[NIC_VISITS];
};

/* Whether this process takes part in membarrier(2): for seg_header.membarrier. */
bool visit_start(void);

/* seg_visit.word: see nic/layout.h. */
#define VISIT_SLOT_MASK	  (NIC_SLOTS - 1)
#define VISIT_COUNT_SHIFT 10

/* What a thread keeps. */
struct visit_own {
	uint64_t instance; /* of the NIC that the rest is about */
	struct seg_visit *kept;
	uint64_t count;
};
extern NIC_HOT_TLS struct visit_own visit_own;

/* Of visit_enter(), where the thread's own word is not to be had. */
struct seg_visit *visit_enter_otherwise(struct nic *nic, const struct nic_segment *target, uint32_t key);

/* Between a store of a visitor's and its look at the target: a barrier, paired with the one in visits_over(), or the one that
 * the owner makes us pass there. */
static inline void visit_barrier(const struct nic *nic, const struct nic_segment *target)
{
	if (nic->seg->hdr.membarrier && target->hdr.membarrier)
		atomic_signal_fence(memory_order_seq_cst);
	else
		atomic_thread_fence(memory_order_seq_cst);
}

/* As seg_visit.keys has them: never 0. */
static inline uint32_t visit_key(uint32_t key)
{
	return key | 1;
}

/* Enters a visit of a process by its segment. A thread that is inside of one already, and one that is
 * too many to keep a word for itself, takes one of a few words that are left: NULL when they are all
 * in use at this very moment: try again. key: visit_key() of the first one that it touches, 0: that is not known yet. */
static inline struct seg_visit *visit_enter_with(struct nic *nic, const struct nic_segment *target, uint32_t key)
{
	struct seg_visit *visit = visit_own.kept;

	if (visit_own.instance != nic->seg->hdr.instance || !visit ||
	    atomic_load_explicit(&visit->word, memory_order_relaxed) & VISIT_SLOT_MASK)
		return visit_enter_otherwise(nic, target, key);
	atomic_store_explicit(&visit->keys[0], key, memory_order_relaxed);
	atomic_store_explicit(&visit->touches, !!key, memory_order_relaxed);
	/* Release: who sees this visit does not take what the last one touched for its. */
	atomic_store_explicit(&visit->word,
			      target->hdr.primary_slot | ++visit_own.count << VISIT_COUNT_SHIFT,
			      memory_order_release);
	visit_barrier(nic, target);
	crash_point(VISIT_ENTERED);
	return visit;
}

static inline struct seg_visit *visit_enter(struct nic *nic, const struct nic_segment *target)
{
	return visit_enter_with(nic, target, 0);
}

/* Before the visitor looks at a region or window of the target by this key. */
static inline void visit_touch(const struct nic *nic, struct seg_visit *visit, const struct nic_segment *target, uint32_t key)
{
	uint32_t count = atomic_load_explicit(&visit->touches, memory_order_relaxed);

	if (count < NIC_TOUCHES)
		atomic_store_explicit(&visit->keys[count], visit_key(key), memory_order_relaxed);
	atomic_store_explicit(&visit->touches, count + 1, memory_order_release);
	visit_barrier(nic, target);
	crash_point(VISIT_TOUCHES);
}

/* Whether the owner has given this visit up. After the visitor has touched what peers map, and before it relies on that. */
static inline bool visit_is_evicted(const struct seg_visit *visit)
{
	atomic_signal_fence(memory_order_seq_cst);
	return atomic_load_explicit(&visit->evicted, memory_order_acquire) ==
	       atomic_load_explicit(&visit->word, memory_order_relaxed);
}

/* Before the visitor has the kernel copy to or from the target: false when it must not, because it is evicted. */
static inline bool visit_copies(const struct nic *nic, struct seg_visit *visit, const struct nic_segment *target)
{
	atomic_store_explicit(&visit->copying, atomic_load_explicit(&visit->word, memory_order_relaxed), memory_order_relaxed);
	visit_barrier(nic, target);
	return !visit_is_evicted(visit);
}

static inline void visit_leave(struct seg_visit *visit)
{
	crash_point(VISIT_LEAVING);
	/* Release: the owner that sees no visit sees all that we did. */
	atomic_store_explicit(&visit->word,
			      visit == visit_own.kept ? visit_own.count << VISIT_COUNT_SHIFT : 0,
			      memory_order_release);
}

void visitor_add(struct nic *nic, struct visitor *visitor);
void visitor_remove(struct nic *nic, struct visitor *visitor);

/* Waits until every visit of us, and every visit that our own threads make anywhere, that was going
 * on when called is over, timeout ns at most (0: only looks); one that a call has waited for in
 * vain is not waited for again. True when that is so; false when a visitor is still there, in *pid
 * if that is wanted. Visits of dead processes are over. */
bool visits_over(struct nic *nic, uint64_t timeout, uint32_t *pid);

/* The same of visits that may be using one region, or window, of ours, by its index; and all of our own threads. */
bool visits_over_region(struct nic *nic, uint32_t region, uint64_t timeout, uint32_t *pid);

/* A visit that somebody has seen. */
struct visit_seen {
	struct visitor *visitor;
	struct nic_segment *seg; /* its: the place of a visitor that went may be another's by now */
	unsigned index;
	uint64_t word;
};

#define VISITS_SEEN 64

/* Evicts those that may be using a region: into evicted[], of which there are `room`, how many into *count. False when that
 * cannot be: the kernel may be copying for one of *pid, or he has no membarrier(2). */
bool visits_evict(struct nic *nic, uint32_t region, struct visit_seen *evicted, uint32_t room, uint32_t *count, uint32_t *pid);

/* Whether it is over. */
bool visit_is_over(struct nic *nic, const struct visit_seen *visit);

/* The same for our own visits of another process: afterwards its segment may be unmapped. */
void visits_to_over(struct nic *nic, uint32_t primary_slot);

#define NIC_GRACE \
	(1000ull * 1000 * 1000) /* ns: how long a verb waits for a visitor that does not move */

#endif
