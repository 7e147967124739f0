/* SPDX-License-Identifier: MIT */
/*
 * The lock of what posting and polling use: held for a fraction of a microsecond, and nearly always
 * by the same thread. So it becomes biased to one that took it often in a row: its owner enters and
 * leaves by plain stores, since an atomic exchange would wait until all stores before it, into other
 * processes' memory, have got there. Another thread makes the owner pass a barrier (membarrier(2)) and
 * waits until it is outside. If the owner hardly used its bias the lock is a common one from then on.
 *
 * There is one owner in a lock's life: one that had been, and has not noticed, still writes `inside`
 * when it looks, and nobody else may mean anything by that word.
 *
 * Not recursive; not for orphans (nic.h): there its holder may not exist.
 */
#ifndef UROCE_NIC_LOCK_H
#define UROCE_NIC_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct nic_lock {
	_Atomic uintptr_t owner; /* a thread by its mark; 0: common. Written by who holds `held` */
	_Atomic bool inside;	 /* the owner is; written by it alone */
	_Atomic bool revoked;	 /* the owner must not enter; written by who holds `held` */
	_Atomic bool held;	 /* by any other thread, or by all of a common lock */
	/* The rest is of who holds the lock. */
	bool settled;	  /* it has an owner, or had one, or may have none */
	uint32_t entries; /* of the owner since the last revocation; before: of `last` in a row */
	uintptr_t last;
};

#define NIC_HOT_TLS _Thread_local __attribute__((tls_model("initial-exec")))

extern NIC_HOT_TLS char nic_thread_mark;

/* Once per process and before any lock is used, or again: whether locks can be biased here. */
void nic_lock_start(void);

/* The ways of who does not own the lock. */
void nic_lock_common(struct nic_lock *lock);
bool nic_trylock_common(struct nic_lock *lock);

static inline uintptr_t nic_this_thread(void)
{
	return (uintptr_t)&nic_thread_mark;
}

static inline void nic_lock_init(struct nic_lock *lock)
{
	*lock = (struct nic_lock){ 0 };
}

static inline bool nic_lock_as_owner(struct nic_lock *lock)
{
	if (atomic_load_explicit(&lock->owner, memory_order_relaxed) != nic_this_thread())
		return false;
	atomic_store_explicit(&lock->inside, true, memory_order_relaxed);
	/* Who revokes makes this a full barrier, between its store of `revoked` and its load of `inside`. */
	atomic_signal_fence(memory_order_seq_cst);
	/* The owner once more: it may have changed since we looked. */
	if (!atomic_load_explicit(&lock->revoked, memory_order_acquire) &&
	    atomic_load_explicit(&lock->owner, memory_order_relaxed) == nic_this_thread()) {
		lock->entries++;
		return true;
	}
	atomic_store_explicit(&lock->inside, false, memory_order_release);
	return false;
}

static inline void nic_lock(struct nic_lock *lock)
{
	if (!nic_lock_as_owner(lock))
		nic_lock_common(lock);
}

static inline bool nic_trylock(struct nic_lock *lock)
{
	return nic_lock_as_owner(lock) || nic_trylock_common(lock);
}

static inline void nic_unlock(struct nic_lock *lock)
{
	if (atomic_load_explicit(&lock->owner, memory_order_relaxed) == nic_this_thread() &&
	    atomic_load_explicit(&lock->inside, memory_order_relaxed)) {
		atomic_store_explicit(&lock->inside, false, memory_order_release);
		return;
	}
	atomic_store_explicit(&lock->revoked, false, memory_order_release);
	atomic_store_explicit(&lock->held, false, memory_order_release);
}

#endif
