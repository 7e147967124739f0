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
#include "nic/mr.h"
#include "nic/spin.h"

/* ns: what counts at most of the time between two looks, which are 50 us apart: more has passed because we stood still too,
 * stopped, or on a machine that was. */
#define LOOK_LIMIT 20000000ull

#define ANY UINT32_MAX /* region */

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
		struct seg_visit *visit = &nic->seg->visits[i];
		uint64_t free_word = 0;

		/* First one of nobody, so that what the last visit touched is not taken for this one's. */
		if (!atomic_compare_exchange_strong(&visit->word, &free_word, word & ~(uint64_t)VISIT_SLOT_MASK))
			continue;
		atomic_store_explicit(&visit->touches, 0, memory_order_relaxed);
		atomic_store_explicit(&visit->word, word, memory_order_release);
		return visit;
	}
	return NULL;
}

struct seg_visit *visit_enter_otherwise(struct nic *nic, const struct nic_segment *target, uint32_t key)
{
	struct seg_visit *visit;

	if (visit_own.instance != nic->seg->hdr.instance) {
		keep_one(nic);
		if (visit_own.kept)
			return visit_enter_with(nic, target, key);
	}
	visit = take_one(nic, target->hdr.primary_slot | ++visit_own.count << VISIT_COUNT_SHIFT);
	if (!visit)
		return NULL;
	visit_barrier(nic, target);
	crash_point(VISIT_ENTERED);
	if (key)
		visit_touch(nic, visit, target, key);
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

/* Lock held. */
static bool is_over(struct nic *nic, const struct visit_seen *visit, bool ask_life)
{
	list_for_each(node, &nic->visitors) {
		if (list_entry(node, struct visitor, node) != visit->visitor)
			continue;
		if (visit->visitor->seg != visit->seg ||
		    atomic_load_explicit(&visit->seg->visits[visit->index].word, memory_order_acquire) != visit->word)
			return true;
		return ask_life && visit->visitor->seg_fd >= 0 && !life_is_alive(visit->visitor->seg_fd);
	}
	return true;
}

bool visit_is_over(struct nic *nic, const struct visit_seen *visit)
{
	pthread_mutex_lock(&nic->visitors_lock);
	bool over = is_over(nic, visit, true);

	pthread_mutex_unlock(&nic->visitors_lock);
	return over;
}

/* Whether a visit of us, that another process makes, may be using a region or window. A window's visitor looks at its region. */
static bool may_touch(struct nic *nic, const struct seg_visit *visit, uint32_t region)
{
	uint32_t count = atomic_load_explicit(&visit->touches, memory_order_acquire);

	if (region == ANY || count > NIC_TOUCHES)
		return true;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t key = atomic_load_explicit(&visit->keys[i], memory_order_relaxed);
		struct seg_mr *entry = mr_of_key(nic->seg, key);
		uint64_t state = atomic_load_explicit(&entry->state, memory_order_relaxed);
		bool is_window = state & NIC_MW;

		/* By a key of the entry's earlier life it is not this region that the visitor has found. */
		if (entry == &nic->seg->mrs[region] ?
			    is_window || !((state >> MR_TAG_SHIFT ^ key >> 1) & MR_TAG_MASK) :
			    is_window && atomic_load_explicit(&entry->region, memory_order_relaxed) == region + 1)
			return true;
	}
	return false;
}

/* Lock held. Whether a visitor's word, which becomes *seen, is a visit that may use what we take back. Our own threads use our
 * memory whomever they visit. */
static bool concerns_us(struct nic *nic, const struct visitor *visitor, unsigned index, uint32_t region, uint64_t *seen)
{
	const struct seg_visit *visit = &visitor->seg->visits[index];

	*seen = atomic_load_explicit(&visit->word, memory_order_acquire);
	if (visitor->seg == nic->seg)
		return *seen & VISIT_SLOT_MASK;
	return (*seen & VISIT_SLOT_MASK) == nic->seg->hdr.primary_slot && may_touch(nic, visit, region);
}

/* Waits for the visits in pending[]; the lock is free in between, so that a visitor who stands
 * still keeps only us. */
static bool wait_for(struct nic *nic, struct visit_seen *pending, unsigned count, uint64_t timeout,
		     uint32_t *pid)
{
	uint64_t last = nic_now(), waited = 0;

	for (unsigned looks = 0; count; looks++) {
		uint64_t now = nic_now();

		waited += now - last < LOOK_LIMIT ? now - last : LOOK_LIMIT;
		last = now;
		pthread_mutex_lock(&nic->visitors_lock);
		for (unsigned i = 0; i < count;) {
			if (is_over(nic, &pending[i], looks >= SPIN_LOOKS / 2))
				pending[i] = pending[--count];
			else
				i++;
		}
		bool enough = count && (timeout ? waited >= timeout : looks >= SPIN_LOOKS / 2);

		if (enough && pid)
			*pid = pending[0].seg->hdr.pid;
		for (unsigned i = 0; enough && timeout && i < count; i++)
			pending[i].visitor->stood[pending[i].index] = pending[i].word;
		pthread_mutex_unlock(&nic->visitors_lock);
		if (enough)
			return false;
		spin_relax(looks);
	}
	return true;
}

bool visits_over_region(struct nic *nic, uint32_t region, uint64_t timeout, uint32_t *pid)
{
	struct visit_seen pending[VISITS_SEEN];
	bool over, more, stands = false;

	do {
		unsigned count = 0;

		more = false;
		barrier(nic);
		pthread_mutex_lock(&nic->visitors_lock);
		list_for_each(node, &nic->visitors) {
			struct visitor *visitor = list_entry(node, struct visitor, node);

			for (unsigned i = 0; i < NIC_VISITS; i++) {
				uint64_t seen;

				if (!concerns_us(nic, visitor, i, region, &seen))
					continue;
				if (seen == visitor->stood[i]) {
					stands = true;
					if (pid)
						*pid = visitor->seg->hdr.pid;
				} else if (count == VISITS_SEEN) {
					more = true; /* look again when these are over */
				} else {
					pending[count++] = (struct visit_seen){ visitor, visitor->seg, i, seen };
				}
			}
		}
		pthread_mutex_unlock(&nic->visitors_lock);
		over = wait_for(nic, pending, count, timeout, pid) && !stands;
	} while (over && more);
	return over;
}

bool visits_over(struct nic *nic, uint64_t timeout, uint32_t *pid)
{
	struct arena_block *quarantine = arena_take_quarantine(&nic->arena);
	bool over = visits_over_region(nic, ANY, timeout, pid);

	arena_end_quarantine(&nic->arena, quarantine, over);
	return over;
}

/* Who has no membarrier(2) has no barrier between his stores and his look at `evicted` either. */
static bool can_be_evicted(const struct nic *nic, const struct visitor *visitor)
{
	return visitor->seg != nic->seg && visitor->seg->hdr.membarrier && nic->seg->hdr.membarrier;
}

bool visits_evict(struct nic *nic, uint32_t region, struct visit_seen *evicted, uint32_t room, uint32_t *count, uint32_t *pid)
{
	bool done = true;

	*count = 0;
	pthread_mutex_lock(&nic->visitors_lock);
	list_for_each(node, &nic->visitors) {
		struct visitor *visitor = list_entry(node, struct visitor, node);

		for (unsigned i = 0; i < NIC_VISITS && done; i++) {
			uint64_t seen;

			if (!concerns_us(nic, visitor, i, region, &seen))
				continue;
			*pid = visitor->seg->hdr.pid;
			done = can_be_evicted(nic, visitor) && *count < room;
			if (!done)
				break;
			atomic_store(&visitor->seg->visits[i].evicted, seen);
			evicted[(*count)++] = (struct visit_seen){ visitor, visitor->seg, i, seen };
		}
	}
	barrier(nic);
	/* Whoever has not said by now that the kernel copies for it, will not have it copy any more. */
	for (uint32_t i = 0; i < *count && done; i++) {
		struct seg_visit *visit = &evicted[i].seg->visits[evicted[i].index];

		done = atomic_load_explicit(&visit->copying, memory_order_acquire) != evicted[i].word ||
		       is_over(nic, &evicted[i], true);
		*pid = evicted[i].seg->hdr.pid;
	}
	pthread_mutex_unlock(&nic->visitors_lock);
	return done;
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
