/* SPDX-License-Identifier: MIT */
/* Locks. See lock.h. */
#include "nic/lock.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nic/spin.h"

/* So often in a row makes an owner. One that entered less often between two revocations is not worth
 * its bias. */
#define WORTH 64

NIC_HOT_TLS char nic_thread_mark;

static _Atomic bool can_bias;

void nic_lock_start(void)
{
	can_bias = !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) &&
		   !syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/* `held` is ours: keeps the owner out, waiting for it to leave if that is wanted. */
static bool keep_out(struct nic_lock *lock, bool wait)
{
	atomic_store_explicit(&lock->revoked, true, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
	for (unsigned looks = 0; atomic_load_explicit(&lock->inside, memory_order_acquire);
	     looks++) {
		if (!wait)
			return false;
		spin_relax(looks);
	}
	return true;
}

/* `held` is ours, and the lock has no owner yet. */
static void look_for_owner(struct nic_lock *lock)
{
	if (lock->last != nic_this_thread()) {
		lock->last = nic_this_thread();
		lock->entries = 0;
	}
	if (++lock->entries < WORTH)
		return;
	lock->settled = true;
	lock->entries = 0;
	if (can_bias)
		atomic_store_explicit(&lock->owner, nic_this_thread(), memory_order_relaxed);
}

/* `held` is ours. */
static bool enter(struct nic_lock *lock, bool wait)
{
	uintptr_t owner = atomic_load_explicit(&lock->owner, memory_order_relaxed);

	if (!lock->settled)
		look_for_owner(lock);
	if (!owner || owner == nic_this_thread())
		return true;
	if (!keep_out(lock, wait))
		return false;
	if (lock->entries < WORTH)
		atomic_store_explicit(&lock->owner, 0, memory_order_relaxed);
	lock->entries = 0;
	return true;
}

void nic_lock_common(struct nic_lock *lock)
{
	unsigned looks = 0;

	while (atomic_exchange_explicit(&lock->held, true, memory_order_acquire)) {
		while (atomic_load_explicit(&lock->held, memory_order_relaxed))
			spin_relax(looks++);
	}
	enter(lock, true);
}

bool nic_trylock_common(struct nic_lock *lock)
{
	if (atomic_exchange_explicit(&lock->held, true, memory_order_acquire))
		return false;
	if (enter(lock, false))
		return true;
	nic_unlock(lock);
	return false;
}
