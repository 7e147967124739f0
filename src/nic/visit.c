/* SPDX-License-Identifier: MIT */
/* Visits. See visit.h. */
#include "nic/visit.h"

#include <fcntl.h>
#include <sched.h>
#include <time.h>

#include "nic/crash.h"
#include "nic/life.h"

#define SLOT_MASK (NIC_SLOTS - 1)
#define SPINS	  1000
/* Looks before a visitor is said to stand still, most of them 50 us apart: time may also have passed because we stood
 * still with it, stopped, or on a machine that was. */
#define PATIENCE (3 * SPINS)

static _Thread_local unsigned hint;

struct seg_visit *visit_enter(struct nic *nic, uint32_t primary_slot)
{
	static _Atomic uint64_t count;
	uint64_t word = primary_slot |
			(atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1) << 10;

	for (unsigned i = 0; i < NIC_VISITS; i++) {
		struct seg_visit *visit = &nic->seg->visits[(hint + i) % NIC_VISITS];
		uint64_t free_word = 0;

		if (atomic_compare_exchange_strong(&visit->word, &free_word, word)) {
			hint = (hint + i) % NIC_VISITS;
			/* Pairs with the fence in visits_over: our look at the target comes after
			 * this. */
			atomic_thread_fence(memory_order_seq_cst);
			crash_point(VISIT_ENTERED);
			return visit;
		}
	}
	return NULL;
}

void visit_leave(struct seg_visit *visit)
{
	crash_point(VISIT_LEAVING);
	/* Release: the owner that sees 0 sees all that we did. */
	atomic_store_explicit(&visit->word, 0, memory_order_release);
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

/* Spins a little, since a visit mostly lasts a microsecond, then sleeps between looks. Says how
 * often it was called. */
static void relax(unsigned looks)
{
	if (looks < SPINS)
		return;
	if (looks < 2 * SPINS)
		sched_yield();
	else
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

/* Waits for the visits in pending[]; the lock is free in between, so that a visitor who stands
 * still keeps only us. */
static bool wait_for(struct nic *nic, struct pending *pending, unsigned count, uint64_t deadline,
		     uint32_t *pid)
{
	for (unsigned looks = 0; count; looks++) {
		pthread_mutex_lock(&nic->visitors_lock);
		for (unsigned i = 0; i < count;) {
			if (is_over(nic, &pending[i], looks >= SPINS))
				pending[i] = pending[--count];
			else
				i++;
		}
		bool enough = count && looks >= (deadline ? PATIENCE : SPINS) &&
			      nic_now() >= deadline;

		if (enough && pid)
			*pid = pending[0].seg->hdr.pid;
		for (unsigned i = 0; enough && deadline && i < count; i++)
			pending[i].visitor->stood[pending[i].index] = pending[i].seen;
		pthread_mutex_unlock(&nic->visitors_lock);
		if (enough)
			return false;
		relax(looks);
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
		/* Pairs with the fence in visit_enter: our look at the visits comes after what we
		 * made unreachable. */
		atomic_thread_fence(memory_order_seq_cst);
		pthread_mutex_lock(&nic->visitors_lock);
		list_for_each(node, &nic->visitors) {
			struct visitor *visitor = list_entry(node, struct visitor, node);

			for (unsigned i = 0; i < NIC_VISITS; i++) {
				uint64_t seen = atomic_load_explicit(&visitor->seg->visits[i].word,
								     memory_order_acquire);

				/* Our own threads use our memory whomever they visit. */
				if (!seen ||
				    (visitor->seg != nic->seg && (seen & SLOT_MASK) != self))
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
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned i = 0; i < NIC_VISITS; i++) {
		_Atomic uint64_t *word = &nic->seg->visits[i].word;
		uint64_t seen = atomic_load_explicit(word, memory_order_acquire);

		if (!seen || (seen & SLOT_MASK) != primary_slot)
			continue;
		for (unsigned looks = 0; atomic_load_explicit(word, memory_order_acquire) == seen;
		     looks++)
			relax(looks);
	}
}
