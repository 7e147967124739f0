/* SPDX-License-Identifier: MIT */
/* Threads. See threads.h. */
#include "nic/threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Bytes: how far what belongs to the control block (static thread-local storage) reaches around it. */
#define BLOCK_BELOW 16384u
#define BLOCK_ABOVE 4096u

#define LOOKS	   10
#define LOOK_AGAIN 100000 /* ns */

/* Others that are looked at for a region that can do without: each costs some microseconds. */
#define OTHERS 64

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

	*threads = (struct threads){ .alone = true, .helper = helper };
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

/* What a thread may sleep in, and where that call writes: at the pointers among its arguments (one bit each), so many bytes,
 * times another argument if one tells the number. */
#define POINTER(n) (1u << (n))
#define NO_COUNT   (-1)
static const struct sleep_call {
	long number;
	unsigned pointers;
	int count;
	uint64_t bytes;
} sleep_calls[] = {
#ifdef SYS_poll
	{ SYS_poll, POINTER(0), 1, 8 },
	{ SYS_select, POINTER(1) | POINTER(2) | POINTER(3) | POINTER(4), NO_COUNT, 128 },
	{ SYS_epoll_wait, POINTER(1), 2, 16 },
	{ SYS_pause, 0, NO_COUNT, 0 },
#endif
	{ SYS_ppoll, POINTER(0), 1, 8 },
	{ SYS_ppoll, POINTER(2), NO_COUNT, 16 },
	{ SYS_pselect6, POINTER(1) | POINTER(2) | POINTER(3) | POINTER(4), NO_COUNT, 128 },
	{ SYS_epoll_pwait, POINTER(1), 2, 16 },
	{ SYS_futex, POINTER(0) | POINTER(4), NO_COUNT, 8 },
	{ SYS_nanosleep, POINTER(1), NO_COUNT, 16 },
	{ SYS_clock_nanosleep, POINTER(3), NO_COUNT, 16 },
	{ SYS_read, POINTER(1), 2, 1 },
	{ SYS_pread64, POINTER(1), 2, 1 },
	{ SYS_recvfrom, POINTER(1), 2, 1 },
	{ SYS_recvfrom, POINTER(4) | POINTER(5), NO_COUNT, 128 },
	{ SYS_accept, POINTER(1) | POINTER(2), NO_COUNT, 128 },
	{ SYS_accept4, POINTER(1) | POINTER(2), NO_COUNT, 128 },
	{ SYS_wait4, POINTER(1) | POINTER(3), NO_COUNT, 256 },
	{ SYS_waitid, POINTER(2) | POINTER(4), NO_COUNT, 256 },
	{ SYS_rt_sigtimedwait, POINTER(1), NO_COUNT, 128 },
	{ SYS_rt_sigsuspend, 0, NO_COUNT, 0 },
	{ SYS_write, 0, NO_COUNT, 0 },
	{ SYS_pwrite64, 0, NO_COUNT, 0 },
	{ SYS_writev, 0, NO_COUNT, 0 },
	{ SYS_sendto, 0, NO_COUNT, 0 },
	{ SYS_sendmsg, 0, NO_COUNT, 0 },
};
#define ARGUMENTS 6

static bool writes_to(const struct sleep_call *call, const uint64_t *arguments, uint64_t start,
		      uint64_t end)
{
	uint64_t count = call->count == NO_COUNT ? 1 : arguments[call->count];

	for (int i = 0; i < ARGUMENTS; i++) {
		if (call->pointers & POINTER(i) && arguments[i] < end &&
		    (arguments[i] >= start || start - arguments[i] < count * call->bytes))
			return true;
	}
	return false;
}

/* A file of a thread's directory in /proc, as text. */
static bool read_of(const char *tid, const char *name, char *text, size_t size)
{
	char path[64];
	int fd;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/%s", tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	close(fd);
	text[n < 0 ? 0 : n] = 0;
	return n > 0;
}

enum activity {
	RUNS,
	SLEEPS_APART,	/* in a call that writes nothing to the range */
	SLEEPS_SOMEHOW, /* in another call, or in a fault */
};

static enum activity activity_of(const char *tid, uint64_t start, uint64_t end)
{
	uint64_t arguments[ARGUMENTS];
	enum activity activity = SLEEPS_SOMEHOW;
	char text[256];
	long number;

	if (!read_of(tid, "syscall", text, sizeof(text)))
		return SLEEPS_SOMEHOW;
	/* Of one that runs this says just that; of one in a fault it has no arguments. */
	if (!strncmp(text, "running", 7))
		return RUNS;
	if (sscanf(text, "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64,
		   &number, &arguments[0], &arguments[1], &arguments[2], &arguments[3],
		   &arguments[4], &arguments[5]) != 1 + ARGUMENTS)
		return SLEEPS_SOMEHOW;
	for (size_t i = 0; i < sizeof(sleep_calls) / sizeof(sleep_calls[0]); i++) {
		if (sleep_calls[i].number != number)
			continue;
		if (writes_to(&sleep_calls[i], arguments, start, end))
			return SLEEPS_SOMEHOW;
		activity = SLEEPS_APART;
	}
	return activity;
}

static bool blocks_faults(const char *tid)
{
	char text[4096];
	const char *mask;
	uint64_t blocked;

	if (!read_of(tid, "status", text, sizeof(text)))
		return true;
	mask = strstr(text, "\nSigBlk:");
	return !mask || sscanf(mask, "\nSigBlk: %" SCNx64, &blocked) != 1 ||
	       blocked >> (SIGSEGV - 1) & 1;
}

/* Looks at all others, `most` of them, until one does not fit: false then, or when they cannot be looked at. */
static bool others_all(const struct threads *threads, int most, uint64_t start, uint64_t end,
		       bool (*fits)(const char *tid, uint64_t start, uint64_t end))
{
	DIR *dir = opendir("/proc/self/task");
	pid_t self = (pid_t)syscall(SYS_gettid);
	struct dirent *entry;
	bool all = dir;
	int looked = 0;

	while (all && (entry = readdir(dir))) {
		pid_t tid = atoi(entry->d_name);

		if (tid && tid != self && tid != threads->helper)
			all = looked++ < most && fits(entry->d_name, start, end);
	}
	if (dir)
		closedir(dir);
	return all;
}

static bool can_be_held(const char *tid, uint64_t start, uint64_t end)
{
	return activity_of(tid, start, end) == SLEEPS_APART && !blocks_faults(tid);
}

bool threads_sleep(const struct threads *threads, uint64_t start, uint64_t end)
{
	return others_all(threads, OTHERS, start, end, can_be_held);
}

/* Who began to read a moment ago is asleep in it a moment later. */
static bool lets_alone(const char *tid, uint64_t start, uint64_t end)
{
	enum activity activity = activity_of(tid, start, end);

	if (activity == RUNS) {
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_AGAIN }, NULL);
		activity = activity_of(tid, start, end);
	}
	return activity != SLEEPS_SOMEHOW;
}

bool threads_let_alone(const struct threads *threads, uint64_t start, uint64_t end)
{
	return threads->alone || others_all(threads, INT_MAX, start, end, lets_alone);
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
