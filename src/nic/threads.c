/* SPDX-License-Identifier: MIT */
/* Threads. See threads.h. */
#include "nic/threads.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Bytes: how far what belongs to the control block (static thread-local storage) reaches around it. */
#define BLOCK_BELOW 16384u
#define BLOCK_ABOVE 4096u

#define LOOKS	   10
#define LOOK_AGAIN 100000 /* ns */

/* The kernel's list of robust futexes begins in the control block; 0 when the thread has none, which one
 * that is just starting may soon have. */
static uint64_t block_of(pid_t tid)
{
	void *head = NULL;
	size_t length;

	for (int looks = 0; looks < LOOKS; looks++) {
		if (syscall(SYS_get_robust_list, (long)tid, &head, &length))
			return 0;
		if (head)
			break;
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_AGAIN }, NULL);
	}
	return (uintptr_t)head;
}

static bool add(struct threads *threads, struct thread_block block)
{
	struct thread_block *blocks =
		realloc(threads->blocks, (threads->count + 1) * sizeof(*blocks));

	if (!blocks)
		return false;
	threads->blocks = blocks;
	blocks[threads->count++] = block;
	return true;
}

bool threads_look(struct threads *threads, pid_t helper)
{
	DIR *dir = opendir("/proc/self/task");
	pid_t self = (pid_t)syscall(SYS_gettid), process = getpid();
	struct dirent *entry;
	bool done = dir;

	*threads = (struct threads){ .alone = true };
	while (done && (entry = readdir(dir))) {
		pid_t tid = atoi(entry->d_name);
		uint64_t block = tid ? block_of(tid) : 0;

		if (!tid)
			continue;
		if (tid != self && tid != helper)
			threads->alone = false;
		if (block)
			done = add(threads, (struct thread_block){ .addr = block,
								   .is_first = tid == process });
	}
	if (dir)
		closedir(dir);
	if (!done)
		threads_forget(threads);
	return done;
}

void threads_forget(struct threads *threads)
{
	free(threads->blocks);
	*threads = (struct threads){ 0 };
}

bool threads_own(const struct threads *threads, const struct vma *vma, uint64_t addr,
		 uint64_t *start, uint64_t *end)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t here = (uintptr_t)__builtin_frame_address(0);
	bool explained = false, found = false;

	for (size_t i = 0; i < threads->count; i++) {
		uint64_t block = threads->blocks[i].addr, from = vma->start;
		uint64_t to = (block + BLOCK_ABOVE + page - 1) & ~(page - 1);

		if (block < vma->start || block >= vma->end)
			continue;
		/* A stack lies below its control block, down to where the mapping begins. */
		if (threads->blocks[i].is_first && block - vma->start > BLOCK_BELOW)
			from = (block - BLOCK_BELOW) & ~(page - 1);
		explained |= here >= from && here < to;
		if (to > addr && (!found || from < *start)) {
			*start = from;
			*end = to;
			found = true;
		}
	}
	/* A stack that no control block explains: the first thread's, or one that the program made. */
	if (vma->is_stack || (here >= vma->start && here < vma->end && !explained)) {
		*start = vma->start;
		*end = vma->end;
		found = true;
	}
	return found;
}
