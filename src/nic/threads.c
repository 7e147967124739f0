/* SPDX-License-Identifier: MIT */
/* Threads. See threads.h. */
#include "nic/threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
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

/* Bytes of stack that a handler may take. */
#define FRAME (64u << 10)

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

/* The system call that a thread is asleep in. */
struct asleep {
	long number; /* -1: in none, but in a fault */
	uint64_t arguments[ARGUMENTS];
	uint64_t stack; /* pointer */
};

enum state { RUNS, SLEEPS, UNKNOWN };

static enum state state_of(const char *tid, struct asleep *call)
{
	uint64_t *a = call->arguments;
	char text[256];

	if (!read_of(tid, "syscall", text, sizeof(text)))
		return UNKNOWN;
	/* Of one that runs this says just that; of one in a fault it has no arguments. */
	if (!strncmp(text, "running", 7))
		return RUNS;
	if (sscanf(text,
		   "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
		   " %" SCNx64,
		   &call->number, &a[0], &a[1], &a[2], &a[3], &a[4], &a[5],
		   &call->stack) != 1 + ARGUMENTS + 1)
		call->number = -1;
	return SLEEPS;
}

static bool is_known(const struct asleep *call)
{
	int operation = (int)call->arguments[1] & FUTEX_CMD_MASK;

	for (size_t i = 0; i < sizeof(sleep_calls) / sizeof(sleep_calls[0]); i++) {
		if (sleep_calls[i].number == call->number)
			return true;
	}
	return call->number == SYS_futex &&
	       (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET);
}

/* As far as that is known. */
static bool will_write_to(const struct asleep *call, uint64_t start, uint64_t end)
{
	for (size_t i = 0; i < sizeof(sleep_calls) / sizeof(sleep_calls[0]); i++) {
		if (sleep_calls[i].number == call->number &&
		    writes_to(&sleep_calls[i], call->arguments, start, end))
			return true;
	}
	return false;
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

/* What is asked about each of the other threads, and what was found. */
struct question {
	bool (*fits)(struct question *question, const char *tid);
	uint64_t start, end; /* about this range */
	int most;	     /* threads that are looked at */
	bool some_run;
	uint64_t *waits_at; /* of waits_room */
	size_t waits_room, waits;
};

/* Looks at the others until one does not fit: false then, or when they cannot be looked at. */
static bool ask_all(const struct threads *threads, struct question *question)
{
	int dir = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), looked = 0;
	pid_t self = (pid_t)syscall(SYS_gettid);
	_Alignas(struct dirent64) char entries[2048];
	ssize_t bytes = -1;
	bool all = dir >= 0;

	question->some_run = false;
	question->waits = 0;
	/* Not by readdir(), which allocates. */
	while (all && (bytes = syscall(SYS_getdents64, dir, entries, sizeof(entries))) > 0) {
		for (ssize_t at = 0; all && at < bytes;) {
			const struct dirent64 *entry = (const struct dirent64 *)(entries + at);
			pid_t tid = atoi(entry->d_name);

			at += entry->d_reclen;
			if (tid && tid != self && tid != threads->helper)
				all = looked++ < question->most &&
				      question->fits(question, entry->d_name);
		}
	}
	if (dir >= 0)
		close(dir);
	return all && !bytes;
}

/* The same, and if somebody runs once more after pause ns: who has just begun to sleep in a call may not be asleep yet. */
static bool ask_all_settled(const struct threads *threads, struct question *question, long pause)
{
	bool all = ask_all(threads, question);

	if (!all || !question->some_run)
		return all;
	if (pause)
		nanosleep(&(struct timespec){ .tv_nsec = pause }, NULL);
	return ask_all(threads, question);
}

static bool can_be_held(struct question *question, const char *tid)
{
	struct asleep call;

	/* A handler's frame goes onto the stack, which is some coroutine's perhaps. */
	return state_of(tid, &call) == SLEEPS && is_known(&call) &&
	       !will_write_to(&call, question->start, question->end) &&
	       (call.stack < question->start || call.stack - FRAME >= question->end) &&
	       !blocks_faults(tid);
}

bool threads_sleep(const struct threads *threads, uint64_t start, uint64_t end)
{
	return ask_all(threads,
		       &(struct question){
			       .fits = can_be_held, .start = start, .end = end, .most = OTHERS });
}

static bool does_not_read_into(struct question *question, const char *tid)
{
	struct asleep call;
	enum state state = state_of(tid, &call);

	question->some_run |= state == RUNS;
	return state != SLEEPS || !will_write_to(&call, question->start, question->end);
}

bool threads_read_into(const struct threads *threads, uint64_t start, uint64_t end)
{
	struct question question = {
		.fits = does_not_read_into, .start = start, .end = end, .most = INT_MAX
	};

	/* A read from a disk is some time under way before it sleeps. */
	return !threads->alone && !ask_all_settled(threads, &question, LOOK_AGAIN);
}

static bool note_wait(struct question *question, const char *tid)
{
	struct asleep call;
	enum state state = state_of(tid, &call);

	question->some_run |= state == RUNS;
	if (state != SLEEPS || call.number != SYS_futex || call.arguments[1] & FUTEX_PRIVATE_FLAG ||
	    call.arguments[0] < question->start || call.arguments[0] >= question->end)
		return true;
	if (question->waits == question->waits_room)
		return false;
	question->waits_at[question->waits++] = call.arguments[0];
	return true;
}

size_t threads_waits(const struct threads *threads, uint64_t start, uint64_t end, uint64_t *at,
		     size_t room)
{
	struct question question = { .fits = note_wait,
				     .start = start,
				     .end = end,
				     .most = INT_MAX,
				     .waits_at = at,
				     .waits_room = room };

	if (!threads->alone)
		ask_all_settled(threads, &question, 0);
	return question.waits;
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
