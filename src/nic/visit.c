/* SPDX-License-Identifier: MIT */
/* Visits. See visit.h. */
#include "nic/visit.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nic/crash.h"
#include "nic/life.h"
#include "nic/spin.h"

/* Looks before a visitor is said to stand still, many of them 50 us apart: time may also have passed
 * because we stood still with it, stopped, or on a machine that was. */
#define PATIENCE (SPIN_LOOKS + 1000)
/* Threads that keep a word for themselves; the other words are taken for a visit by who has none. */
#define KEPT (NIC_VISITS - NIC_VISITS / 8)

NIC_HOT_TLS struct visit_own visit_own;

bool visit_start(void)
{
	return !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) &&
	       !syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

/* A word for this thread to keep: one that nobody has, or whose thread has ended. */
static void keep_one(struct nic *nic)
{
	pid_t self = gettid();

	visit_own.instance = nic->seg->hdr.instance;
	visit_own.kept = NULL;
	for (int ended = 0; ended < 2; ended++) {
		for (unsigned i = 0; i < KEPT; i++) {
			pid_t owner = atomic_load(&nic->visit_owners[i]);

			if (owner && (!ended || (owner != self &&
						 (!tgkill(getpid(), owner, 0) || errno != ESRCH))))
				continue;
			if (atomic_compare_exchange_strong(&nic->visit_owners[i], &owner, self)) {
				visit_own.kept = &nic->seg->visits[i];
				return;
			}
		}
	}
}

/* For one visit. */
static struct seg_visit *take_one(struct nic *nic, uint64_t word)
{
	for (unsigned i = KEPT; i < NIC_VISITS; i++) {
		uint64_t free_word = 0;

		if (atomic_compare_exchange_strong(&nic->seg->visits[i].word, &free_word, word))
			return &nic->seg->visits[i];
	}
	return NULL;
}

struct seg_visit *visit_enter_otherwise(struct nic *nic, const struct nic_segment *target)
{
	struct seg_visit *visit;

	if (visit_own.instance != nic->seg->hdr.instance) {
		keep_one(nic);
		if (visit_own.kept)
			return visit_enter(nic, target);
	}
	visit = take_one(nic, target->hdr.primary_slot | ++visit_own.count << VISIT_COUNT_SHIFT);
	if (visit)
		visit_begun(nic, target);
	return visit;
}

/* Between the owner's store that makes a thing unreachable and its look at the visits. */
static void barrier(const struct nic *nic)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (nic->seg->hdr.membarrier)
		syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

void visitor_add(struct nic *nic, struct visitor *visitor)
{
	pthread_mutex_lock(&nic->visitors_lock);
	list_add_tail(&nic->visitors, &visitor->node);
	pthread_mutex_unlock(&nic->visitors_lock);
}

void visitor_remove(struct nic *nic, struct visitor *visitor)
{
	pthread_mutex_lock(&nic->visitors_lock);
	list_del(&visitor->node);
	pthread_mutex_unlock(&nic->visitors_lock);
}

/* A visit that was going on when its owner looked. */
struct pending {
	struct visitor *visitor;
	struct nic_segment *seg; /* its: the place of a visitor that went may be another's by now */
	unsigned index;
	uint64_t seen;
};

#define PENDING 64

/* Lock held. Whether the visit is over: its word changed, or its process is dead or no visitor any
 * more. */
static bool is_over(struct nic *nic, const struct pending *visit, bool ask_life)
{
	list_for_each(node, &nic->visitors) {
		if (list_entry(node, struct visitor, node) != visit->visitor)
			continue;
		if (visit->visitor->seg != visit->seg ||
		    atomic_load_explicit(&visit->seg->visits[visit->index].word,
					 memory_order_acquire) != visit->seen)
			return true;
		return ask_life && visit->visitor->seg_fd >= 0 &&
		       !life_is_alive(visit->visitor->seg_fd);
	}
	return true;
}

/* Waits for the visits in pending[]; the lock is free in between, so that a visitor who stands
 * still keeps only us. */
static bool wait_for(struct nic *nic, struct pending *pending, unsigned count, uint64_t deadline,
		     uint32_t *pid)
{
	for (unsigned looks = 0; count; looks++) {
		pthread_mutex_lock(&nic->visitors_lock);
		for (unsigned i = 0; i < count;) {
			if (is_over(nic, &pending[i], looks >= SPIN_LOOKS / 2))
				pending[i] = pending[--count];
			else
				i++;
		}
		bool enough = count && looks >= (deadline ? PATIENCE : SPIN_LOOKS / 2) &&
			      nic_now() >= deadline;

		if (enough && pid)
			*pid = pending[0].seg->hdr.pid;
		for (unsigned i = 0; enough && deadline && i < count; i++)
			pending[i].visitor->stood[pending[i].index] = pending[i].seen;
		pthread_mutex_unlock(&nic->visitors_lock);
		if (enough)
			return false;
		spin_relax(looks);
	}
	return true;
}

bool visits_over(struct nic *nic, uint64_t timeout, uint32_t *pid)
{
	uint64_t deadline = timeout ? nic_now() + timeout : 0;
	uint32_t self = nic->seg->hdr.primary_slot;
	struct arena_block *quarantine = arena_take_quarantine(&nic->arena);
	struct pending pending[PENDING];
	bool over, more, stands = false;

	do {
		unsigned count = 0;

		more = false;
		barrier(nic);
		pthread_mutex_lock(&nic->visitors_lock);
		list_for_each(node, &nic->visitors) {
			struct visitor *visitor = list_entry(node, struct visitor, node);

			for (unsigned i = 0; i < NIC_VISITS; i++) {
				uint64_t seen = atomic_load_explicit(&visitor->seg->visits[i].word,
								     memory_order_acquire);

				/* Our own threads use our memory whomever they visit. */
				if (!(seen & VISIT_SLOT_MASK) ||
				    (visitor->seg != nic->seg && (seen & VISIT_SLOT_MASK) != self))
					continue;
				if (seen == visitor->stood[i]) {
					stands = true;
					if (pid)
						*pid = visitor->seg->hdr.pid;
				} else if (count == PENDING) {
					more = true; /* look again when these are over */
				} else {
					pending[count++] =
						(struct pending){ visitor, visitor->seg, i, seen };
				}
			}
		}
		pthread_mutex_unlock(&nic->visitors_lock);
		over = wait_for(nic, pending, count, deadline, pid) && !stands;
	} while (over && more);
	arena_end_quarantine(&nic->arena, quarantine, over);
	return over;
}

void visits_to_over(struct nic *nic, uint32_t primary_slot)
{
	barrier(nic);
	for (unsigned i = 0; i < NIC_VISITS; i++) {
		_Atomic uint64_t *word = &nic->seg->visits[i].word;
		uint64_t seen = atomic_load_explicit(word, memory_order_acquire);

		if ((seen & VISIT_SLOT_MASK) != primary_slot)
			continue;
		for (unsigned looks = 0; atomic_load_explicit(word, memory_order_acquire) == seen;
		     looks++)
			spin_relax(looks);
	}
}
