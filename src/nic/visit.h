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
struct seg_visit *visit_enter_otherwise(struct nic *nic, const struct nic_segment *target);

/* Between the store that begins a visit and the look at the target: a barrier, paired with the one in
 * visits_over(), or the one that the owner makes us pass there. */
static inline void visit_begun(const struct nic *nic, const struct nic_segment *target)
{
	if (nic->seg->hdr.membarrier && target->hdr.membarrier)
		atomic_signal_fence(memory_order_seq_cst);
	else
		atomic_thread_fence(memory_order_seq_cst);
	crash_point(VISIT_ENTERED);
}

/* Enters a visit of a process by its segment. A thread that is inside of one already, and one that is
 * too many to keep a word for itself, takes one of a few words that are left: NULL when they are all
 * in use at this very moment: try again. */
static inline struct seg_visit *visit_enter(struct nic *nic, const struct nic_segment *target)
{
	struct seg_visit *visit = visit_own.kept;

	if (visit_own.instance != nic->seg->hdr.instance || !visit ||
	    atomic_load_explicit(&visit->word, memory_order_relaxed) & VISIT_SLOT_MASK)
		return visit_enter_otherwise(nic, target);
	atomic_store_explicit(&visit->word,
			      target->hdr.primary_slot | ++visit_own.count << VISIT_COUNT_SHIFT,
			      memory_order_relaxed);
	visit_begun(nic, target);
	return visit;
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

/* The same for our own visits of another process: afterwards its segment may be unmapped. */
void visits_to_over(struct nic *nic, uint32_t primary_slot);

#define NIC_GRACE \
	(1000ull * 1000 * 1000) /* ns: how long a verb waits for a visitor that does not move */

#endif
