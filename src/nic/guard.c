/* SPDX-License-Identifier: MIT */
/* The guard. See guard.h. */
#include "nic/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>

/* For how long who is not asleep may be on the way to our handler. */
#define LOOKS	   200
#define LOOK_AGAIN 100000 /* ns */
#define HELD_LOOK  10000  /* ns */

static struct {
	uint64_t start, end;
	int prot;
	_Atomic bool closed;
	struct sigaction program; /* what the program has for SIGSEGV */
} guard;

static void held(int signal, siginfo_t *info, void *context)
{
	uint64_t addr = (uintptr_t)info->si_addr;
	bool is_fault = info->si_code > 0;

	/* Also who comes after the end: if it was not because of us, it comes again. */
	if (is_fault && addr >= guard.start && addr < guard.end) {
		int error = errno;

		while (atomic_load(&guard.closed))
			nanosleep(&(struct timespec){ .tv_nsec = HELD_LOOK }, NULL);
		errno = error;
		return;
	}
	if (guard.program.sa_flags & SA_SIGINFO) {
		guard.program.sa_sigaction(signal, info, context);
	} else if (guard.program.sa_handler == SIG_IGN && !is_fault) {
		return;
	} else if (guard.program.sa_handler == SIG_DFL || guard.program.sa_handler == SIG_IGN) {
		/* It ends the program, as it would have without us. */
		sigaction(SIGSEGV, &guard.program, NULL);
		if (!is_fault)
			raise(signal);
	} else {
		guard.program.sa_handler(signal);
	}
}

bool guard_begin(uint64_t start, uint64_t end, int prot)
{
	struct sigaction ours = { .sa_sigaction = held };

	/* A handler that is for once would be for good. */
	if (sigaction(SIGSEGV, NULL, &guard.program) || guard.program.sa_flags & (int)SA_RESETHAND)
		return false;
	ours.sa_mask = guard.program.sa_mask;
	/* Not on a stack for signals, which may lie in the range itself. */
	ours.sa_flags = (guard.program.sa_flags & ~SA_ONSTACK) | SA_SIGINFO;
	guard.start = start;
	guard.end = end;
	guard.prot = prot;
	atomic_store(&guard.closed, true);
	if (sigaction(SIGSEGV, &ours, NULL)) {
		atomic_store(&guard.closed, false);
		return false;
	}
	if (mprotect((void *)(uintptr_t)start, end - start, prot & ~PROT_WRITE)) {
		atomic_store(&guard.closed, false);
		sigaction(SIGSEGV, &guard.program, NULL);
		return false;
	}
	return true;
}

void guard_end(const struct threads *threads, bool restore)
{
	if (restore)
		mprotect((void *)(uintptr_t)guard.start, guard.end - guard.start, guard.prot);
	atomic_store(&guard.closed, false);
	/* A thread that has faulted finds its handler only when it gets its signal. */
	for (int looks = 0; looks < LOOKS && !threads_sleep(threads, 0, 0); looks++)
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_AGAIN }, NULL);
	sigaction(SIGSEGV, &guard.program, NULL);
}
