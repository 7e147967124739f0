/* SPDX-License-Identifier: MIT */
/* The threads of this process, as the kernel knows them: whether there are others, and which memory is their own. */
#ifndef UROCE_NIC_THREADS_H
#define UROCE_NIC_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "nic/vma.h"

/* Where a thread's control block is. */
struct thread_block {
	uint64_t addr;
	bool is_first; /* of the process: its stack is elsewhere */
};

struct threads {
	bool alone; /* nobody but the caller and the helper */
	pid_t helper;
	struct thread_block *blocks;
	size_t count;
};

/* False when it cannot be found out. End with threads_forget(). */
bool threads_look(struct threads *threads, pid_t helper);
void threads_forget(struct threads *threads);

/*
 * Whether all others are asleep, in system calls that write nothing to [start, end) when they wake up, and none has SIGSEGV
 * blocked: then whoever wakes up now and writes there can be held by a handler of that signal (nic/guard.h). False where it
 * cannot be found out.
 */
bool threads_sleep(const struct threads *threads, uint64_t start, uint64_t end);

/* Whether another thread is asleep in a system call that will write to [start, end), as a direct read from a disk does through
 * pages that it has pinned; of calls that say where in their arguments. */
bool threads_read_into(const struct threads *threads, uint64_t start, uint64_t end);

/*
 * Where in [start, end) other threads wait for futexes that processes may share, room of them at most. The kernel finds such
 * waiters by the kind of page that the futex is in: once that is another, who wakes them does not find them.
 */
size_t threads_waits(const struct threads *threads, uint64_t start, uint64_t end, uint64_t *at,
		     size_t room);

/* The first part of a mapping that ends after addr and is a thread's own: stack, control block. False when there is
 * none. */
bool threads_own(const struct threads *threads, const struct vma *vma, uint64_t addr,
		 uint64_t *start, uint64_t *end);

#endif
