/* SPDX-License-Identifier: MIT */
/* The switch between private and shared pages. See switch.h. */
#include "nic/switch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "local/dma.h"
#include "nic/crash.h"
#include "nic/descriptor.h"
#include "nic/guard.h"
#include "nic/mapping.h"
#include "nic/pins.h"
#include "nic/segment.h"

#define HUGE_PAGE (2ull << 20)
#define TRIES	  10
#define TRY_AGAIN 200000 /* ns, times the number of tries: how long a pin may last */

#define READ_LOOKS	100
#define READ_LOOK_AGAIN 200000 /* ns */
#define READ_QUIET	2      /* looks in a row */

#define HOLE_LEAST (1ull << 20)

#define WAITERS 512 /* threads that wait for futexes in a range */

#define SLEEP_TRIES	4
#define SLEEP_TRY_AGAIN 50000 /* ns */

#define PRESENT (1ull << 63 | 1ull << 62) /* in memory, or swapped out */

/* Debian 12's headers lack these. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#define FEATURE_WP	 (1ull << 0)
#define FEATURE_WP_SHMEM (1ull << 12)
#define FEATURE_MOVE	 (1ull << 16)
struct uffd_move {
	uint64_t dst, src, len, mode;
	int64_t moved;
};
#define UFFD_MOVE	     _IOWR(UFFDIO, 0x05, struct uffd_move)
#define UFFD_MOVE_OVER_HOLES 2ull

struct page_region {
	uint64_t start, end, categories;
};
struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, category_mask,
		category_anyof_mask, return_mask;
};
#define SCAN_PAGES   _IOWR('f', 16, struct scan) /* PAGEMAP_SCAN, of Linux 6.7 */
#define SCAN_PRESENT (1ull << 3)
#define SCAN_SWAPPED (1ull << 4)

static void *at(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

static int open_uffd(bool *holds_all)
{
	int device, fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	*holds_all = true;
	if (fd >= 0)
		return fd;
	device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (device >= 0) {
		fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
		close(device);
		if (fd >= 0)
			return fd;
	}
	*holds_all = false;
	return (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
}

static bool watch(struct switcher *s, uint64_t start, uint64_t length, uint64_t mode)
{
	struct uffdio_register arg = { .range = { start, length }, .mode = mode };

	return !ioctl(s->uffd, UFFDIO_REGISTER, &arg);
}

/* Who was held goes on. */
static void unwatch(struct switcher *s, uint64_t start, uint64_t length)
{
	struct uffdio_range range = { start, length };

	ioctl(s->uffd, UFFDIO_UNREGISTER, &range);
}

static void wake(struct switcher *s, uint64_t start, uint64_t length)
{
	struct uffdio_range range = { start, length };

	ioctl(s->uffd, UFFDIO_WAKE, &range);
}

bool switch_init(struct switcher *s, int file)
{
	struct uffdio_api api = { .api = UFFD_API,
				  .features = FEATURE_WP | FEATURE_WP_SHMEM | FEATURE_MOVE };
	struct stat st;

	if (fstat(file, &st))
		return false;
	s->scratch_bytes = SWITCH_CHUNK + 2 * HUGE_PAGE;
	s->scratch = mapping_make(s->scratch_bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (s->scratch == MAP_FAILED)
		return false;
	mprotect(s->scratch, s->scratch_bytes, PROT_NONE);
	segment_keep_apart(s->scratch, s->scratch_bytes);
	s->file = file;
	s->inode = st.st_ino;
	s->device = st.st_dev;
	s->uffd = descriptor_keep(open_uffd(&s->holds_all));
	if (s->uffd >= 0 && (ioctl(s->uffd, UFFDIO_API, &api) ||
			     !watch(s, (uint64_t)(uintptr_t)s->scratch, s->scratch_bytes,
				    UFFDIO_REGISTER_MODE_MISSING))) {
		descriptor_close(s->uffd);
		s->uffd = -1;
	}
	if (s->uffd < 0)
		s->holds_all = false;
	return true;
}

void switch_close(struct switcher *s)
{
	if (s->uffd >= 0)
		descriptor_close(s->uffd);
}

void switch_destroy(struct switcher *s)
{
	switch_close(s);
	munmap(s->scratch, s->scratch_bytes);
}

/* Which pages of a range are there: into seen. */
static bool look(struct switcher *s, uint64_t start, uint64_t length)
{
	uint64_t page = page_size(), bytes = length / page * sizeof(s->seen[0]);
	int fd = open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC);
	bool done = fd >= 0 && pread(fd, s->seen, bytes,
				     (off_t)(start / page * sizeof(s->seen[0]))) == (ssize_t)bytes;

	if (fd >= 0)
		close(fd);
	return done;
}

/* The next run of pages that look() saw, in bytes from the range's start; *from is where to begin. */
static bool next_run(const struct switcher *s, uint64_t length, uint64_t *from, uint64_t *to)
{
	uint64_t page = page_size(), i = *from / page, n = length / page;

	while (i < n && !(s->seen[i] & PRESENT))
		i++;
	*from = i * page;
	if (i == n)
		return false;
	while (i < n && s->seen[i] & PRESENT)
		i++;
	*to = i * page;
	return true;
}

static bool write_all(int file, const uint8_t *from, uint64_t length, uint64_t offset)
{
	while (length) {
		struct iovec iov = { .iov_base = (void *)from, .iov_len = length };
		ssize_t n = dma_to_file(file, &iov, 1, offset);

		if (n <= 0)
			return false;
		from += n;
		offset += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return true;
}

static bool read_all(int file, uint8_t *to, uint64_t length, uint64_t offset)
{
	while (length) {
		struct iovec iov = { .iov_base = to, .iov_len = length };
		ssize_t n = dma_from_file(file, &iov, 1, offset);

		if (n <= 0)
			return false;
		to += n;
		offset += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return true;
}

/* The pages of [from, from + length) to the place in the file that start names. */
static bool fill_file(struct switcher *s, const uint8_t *from, uint64_t length, uint64_t start)
{
	if (!look(s, (uint64_t)(uintptr_t)from, length))
		return false;
	for (uint64_t run = 0, end = 0; next_run(s, length, &run, &end); run = end) {
		if (!write_all(s->file, from + run, end - run, start + run))
			return false;
	}
	return true;
}

static bool has_file(const struct switcher *s)
{
	struct stat st;

	return descriptor_is_ours(s->file) && !fstat(s->file, &st) && st.st_ino == s->inode && st.st_dev == s->device;
}

void switch_empty(struct switcher *s, uint64_t offset, uint64_t length)
{
	if (!has_file(s))
		return;
	fallocate(s->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
		  (off_t)length);
}

/* Moves pages between two places of which the first is watched; returns how far it came, with errno if not to the end. */
static uint64_t move(struct switcher *s, uint64_t to, uint64_t from, uint64_t length)
{
	uint64_t done = 0;

	while (done < length) {
		struct uffd_move arg = { .dst = to + done,
					 .src = from + done,
					 .len = length - done,
					 .mode = UFFD_MOVE_OVER_HOLES };
		int failed = ioctl(s->uffd, UFFD_MOVE, &arg);

		if (arg.moved > 0)
			done += (uint64_t)arg.moved;
		if (failed && errno != EAGAIN)
			break;
	}
	return done;
}

/* Ours are never pinned for longer than the kernel looks at them. What cannot go back, because the program has unmapped
 * its place meanwhile, is not missed. */
static void move_back(struct switcher *s, uint64_t to, uint64_t from, uint64_t length)
{
	uint64_t done = 0;

	do
		done += move(s, to + done, from + done, length - done);
	while (done < length && errno == EBUSY);
}

/* Where a chunk moves to: at the same place in a huge page, so that such pages move whole. */
static uint64_t scratch_of(const struct switcher *s, uint64_t start)
{
	uint64_t base = ((uint64_t)(uintptr_t)s->scratch + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);

	return base + start % HUGE_PAGE;
}

/* Pages that a fork left shared with the child become ours alone. */
static void break_cow(struct switcher *s, uint64_t start, uint64_t length)
{
	if (!look(s, start, length))
		return;
	for (uint64_t run = 0, end = 0; next_run(s, length, &run, &end); run = end)
		madvise(at(start + run), end - run, MADV_POPULATE_WRITE);
}

/* The scratch memory is there only while it is used: a tool that looks at all memory, as one for leaks does, would wait in it
 * for ever. */
static void scratch_open(struct switcher *s, bool open)
{
	/* Locked by mlockall(2) it would be filled. */
	if (open)
		munlock(s->scratch, s->scratch_bytes);
	mprotect(s->scratch, s->scratch_bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

/* Moves a chunk into the scratch memory. Whoever touches it from now on waits. */
static enum nic_unmapped try_to_take_away(struct switcher *s, uint64_t start, uint64_t length)
{
	uint64_t scratch = scratch_of(s, start);

	for (int tries = 0;; tries++) {
		if (!watch(s, start, length, UFFDIO_REGISTER_MODE_MISSING))
			return errno == ENOMEM ? NIC_UNMAPPED_LIMIT : NIC_UNMAPPED_KIND;

		uint64_t moved = move(s, scratch, start, length);
		int error = errno;

		if (moved == length)
			return NIC_MAPPED;
		move_back(s, start, scratch, moved);
		unwatch(s, start, length);
		if (error != EBUSY)
			return NIC_UNMAPPED_KIND;
		if (tries == TRIES)
			return NIC_UNMAPPED_PINNED;
		if (!tries)
			break_cow(s, start, length);
		else
			nanosleep(&(struct timespec){ .tv_nsec = tries * TRY_AGAIN }, NULL);
	}
}

static enum nic_unmapped take_away(struct switcher *s, uint64_t start, uint64_t length)
{
	enum nic_unmapped why;

	scratch_open(s, true);
	why = try_to_take_away(s, start, length);
	if (why)
		scratch_open(s, false);
	return why;
}

/* How others are kept from storing into what is being switched. */
enum hold {
	HOLD_NOBODY, /* there are none */
	HOLD_FAULTS, /* userfaultfd */
	HOLD_GUARD,
	HOLD_NOTHING, /* there is no way */
};

/* Whether pages are moved away, and whoever touches them waits: of the program's threads, or there are none. */
static bool can_move(const struct switcher *s, const struct threads *threads)
{
	return descriptor_is_ours(s->uffd) && (s->holds_all || threads->alone);
}

/* Without a userfaultfd that holds system calls only who wakes up just now can be held. */
static enum hold choose_hold(const struct switcher *s, const struct threads *threads,
			     uint64_t start, uint64_t end)
{
	if (can_move(s, threads))
		return HOLD_FAULTS;
	if (threads->alone)
		return HOLD_NOBODY;
	for (int tries = 0; !threads_sleep(threads, start, end); tries++) {
		if (tries == SLEEP_TRIES)
			return HOLD_NOTHING;
		nanosleep(&(struct timespec){ .tv_nsec = SLEEP_TRY_AGAIN }, NULL);
	}
	return HOLD_GUARD;
}

/* Ends a hold: everybody goes on, with what has taken the place or, with restore, with what was there. */
static void release(struct switcher *s, enum hold hold, const struct threads *threads,
		    uint64_t start, uint64_t length, bool restore)
{
	if (hold == HOLD_FAULTS && restore) {
		move_back(s, start, scratch_of(s, start), length);
		unwatch(s, start, length);
	} else if (hold == HOLD_FAULTS) {
		wake(s, start, length);
		madvise(at(scratch_of(s, start)), length, MADV_DONTNEED);
	}
	if (hold == HOLD_FAULTS)
		scratch_open(s, false);
	else if (hold == HOLD_GUARD)
		guard_end(threads, restore);
}

static enum nic_unmapped share_chunk(struct switcher *s, uint64_t start, uint64_t length, int prot,
				     const struct threads *threads)
{
	if (!has_file(s))
		return NIC_UNMAPPED_OFF;
	/* Pins first, where their pages do not tell by refusing to move: later there is no time to look for them. */
	bool pinned = !can_move(s, threads) && (pins_are_possible() || memory_is_locked());
	enum hold hold = choose_hold(s, threads, start, start + length);
	uint64_t from = hold == HOLD_FAULTS ? scratch_of(s, start) : start;
	enum nic_unmapped why = NIC_MAPPED;
	uint64_t waiter;

	if (hold == HOLD_NOTHING)
		why = NIC_UNMAPPED_THREADS;
	else if (pinned)
		why = NIC_UNMAPPED_PINNED;
	else if (hold == HOLD_FAULTS)
		why = take_away(s, start, length);
	else if (hold == HOLD_GUARD && !guard_begin(start, start + length, prot))
		why = NIC_UNMAPPED_THREADS;
	if (why)
		return why;
	/* From here on nobody can begin to. */
	if (threads_waits(threads, start, start + length, &waiter, 1)) {
		release(s, hold, threads, start, length, true);
		return NIC_UNMAPPED_THREADS;
	}
	crash_point(SHARE_AWAY);
	/* A stopped visitor, or a switch that failed, may have left something. */
	switch_empty(s, start, length);
	if (!fill_file(s, at(from), length, start) ||
	    !dma_map(at(start), length, prot, MAP_SHARED | MAP_NORESERVE, s->file, start)) {
		release(s, hold, threads, start, length, true);
		switch_empty(s, start, length);
		return NIC_UNMAPPED_MEMORY;
	}
	crash_point(SHARE_MAPPED);
	release(s, hold, threads, start, length, false);
	/* Ours, so that they are charged to us, and nobody's first access is slow. */
	for (uint64_t run = 0, end = 0; next_run(s, length, &run, &end); run = end)
		madvise(at(start + run), end - run, MADV_POPULATE_WRITE);
	return NIC_MAPPED;
}

/* Where, in [start, end), the first page is that is there; end: nowhere. */
static uint64_t first_present(struct switcher *s, uint64_t start, uint64_t end)
{
	struct page_region region = { .start = end };
	struct scan scan = { .size = sizeof(scan),
			     .start = start,
			     .end = end,
			     .vec = (uintptr_t)&region,
			     .vec_len = 1,
			     .max_pages = 1,
			     .category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
			     .return_mask = SCAN_PRESENT };
	int fd = open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC);
	long found = fd < 0 ? -1 : ioctl(fd, SCAN_PAGES, &scan);

	if (fd >= 0)
		close(fd);
	if (found >= 0)
		return found ? region.start : end;
	for (uint64_t at = start, next, from; at < end; at = next) {
		uint64_t to;

		next = end - at < SWITCH_CHUNK ? end : at + SWITCH_CHUNK;
		from = 0;
		if (!look(s, at, next - at))
			return at;
		if (next_run(s, next - at, &from, &to))
			return at + from;
	}
	return end;
}

static bool begin_in_hole(struct switcher *s, enum hold hold, uint64_t start, uint64_t length, int prot)
{
	if (hold == HOLD_FAULTS)
		return watch(s, start, length, UFFDIO_REGISTER_MODE_MISSING);
	return hold == HOLD_NOBODY || (hold == HOLD_GUARD && guard_begin(start, start + length, prot));
}

static void end_in_hole(struct switcher *s, enum hold hold, const struct threads *threads, uint64_t start, uint64_t length,
			bool restore)
{
	if (hold == HOLD_GUARD)
		guard_end(threads, restore);
	else if (hold == HOLD_FAULTS && restore)
		unwatch(s, start, length);
	else if (hold == HOLD_FAULTS)
		wake(s, start, length);
}

/* Of pages that nobody has touched yet there is nothing to move: however many they are, one mapping takes their place. False if it
 * could not, or somebody has touched one meanwhile. */
static bool share_hole(struct switcher *s, uint64_t start, uint64_t length, int prot, const struct threads *threads)
{
	enum hold hold = choose_hold(s, threads, start, start + length);
	uint64_t waiter;
	bool done;

	if (!has_file(s) || !begin_in_hole(s, hold, start, length, prot))
		return false;
	done = first_present(s, start, start + length) == start + length &&
	       !threads_waits(threads, start, start + length, &waiter, 1);
	if (done) {
		switch_empty(s, start, length);
		done = dma_map(at(start), length, prot, MAP_SHARED | MAP_NORESERVE, s->file, start);
	}
	end_in_hole(s, hold, threads, start, length, !done);
	return done;
}

enum nic_unmapped switch_to_shared(struct switcher *s, uint64_t start, uint64_t end, int prot,
				   const struct threads *threads, uint64_t *done)
{
	enum nic_unmapped why = NIC_MAPPED;

	for (*done = start; *done < end && !why;) {
		uint64_t length = end - *done < SWITCH_CHUNK ? end - *done : SWITCH_CHUNK;
		uint64_t hole = *done;

		/* Whole huge pages: what lies in one moves at once. */
		if (end - *done >= HOLE_LEAST)
			hole = first_present(s, *done, end) & ~(HUGE_PAGE - 1);
		if (hole > *done && hole - *done >= HOLE_LEAST && share_hole(s, *done, hole - *done, prot, threads)) {
			*done = hole;
			continue;
		}
		why = share_chunk(s, *done, length, prot, threads);
		if (!why)
			*done += length;
	}
	return why;
}

/* The next run of bytes that a range of the file has; *from is where to begin. Page by page: SEEK_HOLE would walk on through
 * all that follows the range, which can be many times its size. */
static bool next_data(int file, uint64_t end, uint64_t *from, uint64_t *to)
{
	off_t data = lseek(file, (off_t)*from, SEEK_DATA), page = (off_t)page_size();

	if (data < 0 || (uint64_t)data >= end)
		return false;
	*from = (uint64_t)data;
	do
		data += page;
	while ((uint64_t)data < end && lseek(file, data, SEEK_DATA) == data);
	*to = (uint64_t)data;
	return true;
}

/* Where the file's number is not ours any more: from the program's own view of it. */
static bool copy_memory(uint64_t to, uint64_t from, uint64_t length)
{
	pid_t self = getpid();

	while (length) {
		struct iovec local = { at(to), length }, remote = { at(from), length };
		ssize_t n = dma_read(self, &local, 1, &remote, 1);

		if (n <= 0)
			return false;
		to += (uint64_t)n;
		from += (uint64_t)n;
		length -= (uint64_t)n;
	}
	return true;
}

/* A range of the file into memory. */
static bool fill_memory(struct switcher *s, uint64_t to, uint64_t offset, uint64_t length)
{
	for (uint64_t run = offset, end = 0; next_data(s->file, offset + length, &run, &end);
	     run = end) {
		if (!read_all(s->file, at(to + (run - offset)), end - run, run))
			return false;
	}
	return true;
}

/* Nobody looks: new memory in the same place, which the kernel joins with what is beside it. */
static bool replace(struct switcher *s, uint64_t start, uint64_t length, uint64_t offset, int prot)
{
	if (!dma_map(at(start), length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
		return false;
	if (!fill_memory(s, start, offset, length)) {
		dma_map(at(start), length, prot, MAP_SHARED | MAP_NORESERVE, s->file, offset);
		return false;
	}
	if (prot != (PROT_READ | PROT_WRITE))
		mprotect(at(start), length, prot);
	return true;
}

static bool protect(struct switcher *s, enum hold hold, uint64_t start, uint64_t length, int prot)
{
	struct uffdio_writeprotect arg = { .range = { start, length },
					   .mode = UFFDIO_WRITEPROTECT_MODE_WP };

	if (hold == HOLD_GUARD)
		return guard_begin(start, start + length, prot);
	if (!watch(s, start, length, UFFDIO_REGISTER_MODE_WP))
		return false;
	if (!ioctl(s->uffd, UFFDIO_WRITEPROTECT, &arg))
		return true;
	unwatch(s, start, length);
	return false;
}

static void unprotect(struct switcher *s, enum hold hold, const struct threads *threads,
		      uint64_t start, uint64_t length, bool restore)
{
	struct uffdio_writeprotect arg = { .range = { start, length } };

	if (hold == HOLD_GUARD) {
		guard_end(threads, restore);
	} else if (restore) {
		ioctl(s->uffd, UFFDIO_WRITEPROTECT, &arg);
		unwatch(s, start, length);
	} else {
		wake(s, start, length);
	}
}

/* What began to read into the range before it was protected ends; what begins now is held, and looks the same, so that there is a
 * limit. */
static void let_reads_end(const struct threads *threads, uint64_t start, uint64_t length)
{
	int quiet = 0;

	for (int looks = 0; looks < READ_LOOKS && quiet < READ_QUIET; looks++) {
		if (!threads_read_into(threads, start, start + length)) {
			quiet++;
			continue;
		}
		quiet = 0;
		nanosleep(&(struct timespec){ .tv_nsec = READ_LOOK_AGAIN }, NULL);
	}
}

/* Who writes is held, the copy is made elsewhere (spare) and takes the place. */
static bool replace_held(struct switcher *s, enum hold hold, const struct threads *threads,
			 uint64_t start, uint64_t length, uint64_t offset, int prot, uint64_t spare)
{
	bool replaced;

	if (hold != HOLD_NOBODY && !protect(s, hold, start, length, prot))
		return false;
	if (hold == HOLD_FAULTS)
		let_reads_end(threads, start, length);
	replaced = (has_file(s) ? fill_memory(s, spare, offset, length) : copy_memory(spare, start, length)) && !mprotect(at(spare), length, prot) &&
		   dma_move(at(spare), length, at(start));
	if (hold != HOLD_NOBODY)
		unprotect(s, hold, threads, start, length, !replaced);
	return replaced;
}

/* Nothing holds the others: a private mapping of the file takes the place, at once and with the same bytes, and its pages
 * are copied by touching them. */
static bool detach(struct switcher *s, uint64_t start, uint64_t length, uint64_t offset, int prot)
{
	if (!has_file(s) || !dma_map(at(start), length, prot, MAP_PRIVATE, s->file, offset))
		return false;
	for (uint64_t run = offset, end = 0; next_data(s->file, offset + length, &run, &end);
	     run = end) {
		if (madvise(at(start + (run - offset)), end - run, MADV_POPULATE_WRITE))
			return false;
	}
	return true;
}

/* Who waits for a futex by the file's page looks again, and waits by the page that is there now. */
static void wake_waiters(struct switcher *s, const struct threads *threads, uint64_t start,
			 uint64_t length, uint64_t offset)
{
	uint64_t at[WAITERS], page = page_size();
	size_t count = threads_waits(threads, start, start + length, at, WAITERS);

	for (size_t i = 0; i < count && has_file(s); i++) {
		uint64_t within = at[i] - start + offset;
		uint8_t *view = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, s->file,
				     (off_t)(within & ~(page - 1)));

		if (view == MAP_FAILED)
			return;
		syscall(SYS_futex, view + within % page, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		munmap(view, page);
	}
}

void switch_copy(struct switcher *s, uint64_t start, uint64_t end, int prot)
{
	void *spare;

	if (has_file(s)) {
		replace(s, start, end - start, start, prot);
		return;
	}
	spare = mmap(NULL, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (spare != MAP_FAILED && (!copy_memory((uint64_t)(uintptr_t)spare, start, end - start) ||
				    mprotect(spare, end - start, prot) || !dma_move(spare, end - start, at(start))))
		munmap(spare, end - start);
}

/* The same the other way, for a range of which the file has nothing. */
static bool replace_hole(struct switcher *s, uint64_t start, uint64_t length, uint64_t offset, int prot,
			 const struct threads *threads)
{
	enum hold hold = choose_hold(s, threads, start, start + length);
	uint64_t from = offset, to, waiter;
	bool done;

	if (!begin_in_hole(s, hold, start, length, prot))
		return false;
	done = has_file(s) && !next_data(s->file, offset + length, &from, &to) &&
	       !threads_waits(threads, start, start + length, &waiter, 1) &&
	       dma_map(at(start), length, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	end_in_hole(s, hold, threads, start, length, !done);
	return done;
}

/* Bytes of a range up to where the file has something. */
static uint64_t hole_of(const struct switcher *s, uint64_t offset, uint64_t length)
{
	uint64_t from = offset, to;

	if (!has_file(s))
		return 0;
	return next_data(s->file, offset + length, &from, &to) ? (from - offset) : length;
}

void switch_to_private(struct switcher *s, uint64_t start, uint64_t end, uint64_t offset, int prot,
		       const struct threads *threads)
{
	uint64_t length = end - start, done = 0;
	uint8_t *spare = MAP_FAILED;

	/* One for all chunks: they are one mapping in the end. */
	if (!threads->alone || !has_file(s))
		spare = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	while (done < length) {
		uint64_t part = length - done < SWITCH_CHUNK ? length - done : SWITCH_CHUNK;
		uint64_t place = start + done, from = offset + done;
		bool replaced = false;
		enum hold hold;

		crash_point(SHARE_RETURNING);
		uint64_t hole = length - done > part ? hole_of(s, from, length - done) : 0;

		if (hole > part && replace_hole(s, place, hole, from, prot, threads)) {
			if (spare != MAP_FAILED)
				munmap(spare + done, hole);
			crash_point(SHARE_RETURNED);
			done += hole;
			continue;
		}
		if (threads->alone && has_file(s)) {
			replaced = replace(s, place, part, from, prot);
		} else if (spare != MAP_FAILED) {
			hold = choose_hold(s, threads, place, place + part);
			replaced = hold != HOLD_NOTHING &&
				   replace_held(s, hold, threads, place, part, from, prot,
						(uint64_t)(uintptr_t)spare + done);
			if (!replaced)
				munmap(spare + done, part);
		}
		if (replaced || detach(s, place, part, from, prot)) {
			crash_point(SHARE_RETURNED);
			wake_waiters(s, threads, place, part, from);
			switch_empty(s, from, part);
		}
		done += part;
	}
}
