/* SPDX-License-Identifier: MIT */
/*
 * rpoll and rselect: rsockets and other descriptors together. What is true is looked up, not what happened: after a sleep, and after
 * completions were asked to wake us, every rsocket is looked at again.
 */
#include <limits.h>
#include <poll.h>
#include <stdlib.h>

#include "rsocket.h"
#include "nic/cancel.h"

enum { SPIN_US = 10, FEW = 16 };

/* One of the program's entries. */
struct member {
	struct rsocket *rs; /* NULL: another descriptor */
	struct waiter waiter;
};

struct set {
	struct pollfd *fds; /* the program's */
	nfds_t count;
	struct member *members;
	struct pollfd *real; /* what poll(2) is asked: the calling thread's eventfd, then one for each */
	bool any;	     /* there are rsockets */
	bool registered;     /* among those who wait for them */
	struct member few_members[FEW];
	struct pollfd few_real[FEW + 1];
};

static int set_up(struct set *set, struct pollfd *fds, nfds_t count)
{
	*set = (struct set){ .fds = fds, .count = count };
	set->members = count > FEW ? calloc(count, sizeof(*set->members)) : set->few_members;
	set->real = count > FEW ? calloc(count + 1, sizeof(*set->real)) : set->few_real;
	if (!set->members || !set->real) {
		if (count > FEW) {
			free(set->members);
			free(set->real);
		}
		return ENOMEM;
	}
	for (nfds_t i = 0; i < count; i++) {
		set->members[i].rs = table_get(fds[i].fd);
		set->any |= set->members[i].rs != NULL;
		set->real[i + 1] = fds[i];
	}
	return 0;
}

static void tear_down(struct set *set)
{
	for (nfds_t i = 0; i < set->count; i++)
		if (set->members[i].rs)
			table_put(set->members[i].rs);
	if (set->count > FEW) {
		free(set->members);
		free(set->real);
	}
}

/* How many rsockets have what they were asked for. `arm`: what comes later wakes those who poll. */
static int look(struct set *set, void (*progress)(struct rsocket *rs), bool arm)
{
	int ready = 0;

	for (nfds_t i = 0; i < set->count; i++) {
		struct rsocket *rs = set->members[i].rs;
		if (!rs)
			continue;
		pthread_mutex_lock(&rs->lock);
		progress(rs);
		if (arm)
			progress_arm(rs);
		set->fds[i].revents = progress_poll(rs, set->fds[i].events);
		/* A listener's queue is not news to who waits for something else. */
		bool idle = is_stream(rs) && rs->stream.state == STREAM_LISTENING && !(set->fds[i].events & (POLLIN | POLLRDNORM));
		set->real[i + 1] = (struct pollfd){ idle ? -1 : rs->fd, POLLIN, 0 };
		pthread_mutex_unlock(&rs->lock);
		ready += set->fds[i].revents != 0;
	}
	return ready;
}

static void register_all(struct set *set, void (*change)(struct rsocket *rs, struct waiter *waiter))
{
	for (nfds_t i = 0; i < set->count; i++) {
		struct rsocket *rs = set->members[i].rs;
		if (!rs)
			continue;
		pthread_mutex_lock(&rs->lock);
		change(rs, &set->members[i].waiter);
		pthread_mutex_unlock(&rs->lock);
	}
}

static void cancelled(void *arg)
{
	struct set *set = arg;

	if (set->registered)
		register_all(set, wait_leave);
	tear_down(set);
}

/* poll(2), where the thread may be cancelled. */
static int poll_cancelled(struct set *set, struct pollfd *fds, nfds_t count, int timeout)
{
	int ready;

	pthread_cleanup_push(cancelled, set);
	cancel_allowed = true;
	ready = poll(fds, count, timeout);
	cancel_allowed = false;
	pthread_cleanup_pop(false);
	return ready;
}

/* poll(2), which has the last word about what are no rsockets: how many of these are ready, or -1. */
static int sleep_on(struct set *set, int timeout)
{
	int ready = poll_cancelled(set, set->real, set->count + 1, timeout);

	if (ready < 0)
		return -1;
	ready = 0;
	for (nfds_t i = 0; i < set->count; i++) {
		if (set->members[i].rs)
			continue;
		set->fds[i].revents = set->real[i + 1].revents;
		ready += set->fds[i].revents != 0;
	}
	return ready;
}

static bool spin(struct set *set)
{
	for (int64_t end = now_us() + SPIN_US; now_us() < end;)
		if (look(set, progress_quick, false))
			return true;
	return false;
}

static int left_ms(int64_t end)
{
	if (end < 0)
		return wait_fd() < 0 ? 10 : -1;
	int64_t left = (end - now_us() + 999) / 1000;
	return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

/* Registered as one who waits. */
static int wait_for_one(struct set *set, int64_t end)
{
	for (;;) {
		int ready = look(set, progress_all, true);
		int timeout = ready ? 0 : left_ms(end);
		int others = sleep_on(set, timeout);
		wait_clear();
		if (others < 0)
			return -1;
		if (ready + others)
			return ready + others;
		if (end >= 0 && now_us() >= end)
			/* It may have come while nobody looked. */
			return look(set, progress_all, false);
	}
}

static int poll_set(struct set *set, int timeout)
{
	int64_t end = timeout < 0 ? -1 : now_us() + timeout * INT64_C(1000);

	set->real[0] = (struct pollfd){ wait_fd(), POLLIN, 0 };
	int ready = look(set, progress_quick, false);
	if (!ready && timeout && spin(set))
		ready = look(set, progress_quick, false);
	if (ready || !timeout) {
		ready = look(set, progress_all, false);
		int others = sleep_on(set, 0);
		if (others < 0 || ready + others || !timeout)
			return others < 0 ? -1 : ready + others;
	}
	register_all(set, wait_enter);
	set->registered = true;
	ready = wait_for_one(set, end);
	register_all(set, wait_leave);
	set->registered = false;
	return ready;
}

PUBLIC int rpoll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	struct set set;
	int before = errno, error = set_up(&set, fds, nfds);

	if (error)
		return fail(error);
	int ready = set.any ? poll_set(&set, timeout) : poll_cancelled(&set, fds, nfds, timeout);
	error = errno;
	tear_down(&set);
	errno = ready < 0 ? error : before;
	return ready;
}

/* The entries of sets for select(2); the number, and in *fds memory of the caller's. */
static int gather(int count, const fd_set *readable, const fd_set *writable, const fd_set *exceptional, struct pollfd **fds)
{
	int entries = 0;

	*fds = calloc(count ? count : 1, sizeof(**fds));
	if (!*fds)
		return -1;
	for (int fd = 0; fd < count; fd++) {
		short events = (readable && FD_ISSET(fd, readable) ? POLLIN : 0) |
			       (writable && FD_ISSET(fd, writable) ? POLLOUT : 0) |
			       (exceptional && FD_ISSET(fd, exceptional) ? POLLPRI : 0);
		if (events)
			(*fds)[entries++] = (struct pollfd){ .fd = fd, .events = events };
	}
	return entries;
}

/* Leaves in the set what is ready of it, and says how many. */
static int reduce(fd_set *set, const struct pollfd *fds, int count, short asked, short events)
{
	int ready = 0;

	for (int i = 0; set && i < count; i++) {
		if (!(fds[i].events & asked))
			continue;
		if (fds[i].revents & events)
			ready++;
		else
			FD_CLR(fds[i].fd, set);
	}
	return ready;
}

/* What was gathered is freed when the thread is cancelled. */
static int poll_gathered(struct pollfd *fds, nfds_t count, int timeout)
{
	int ready;

	pthread_cleanup_push(free, fds);
	ready = rpoll(fds, count, timeout);
	pthread_cleanup_pop(false);
	return ready;
}

PUBLIC int rselect(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout)
{
	struct pollfd *fds;

	if (nfds < 0 || nfds > FD_SETSIZE || (timeout && (timeout->tv_sec < 0 || timeout->tv_usec < 0)))
		return fail(EINVAL);
	int count = gather(nfds, readfds, writefds, exceptfds, &fds);
	if (count < 0)
		return fail(ENOMEM);
	int64_t wait = timeout ? timeout->tv_sec * INT64_C(1000) + (timeout->tv_usec + 999) / 1000 : -1;
	int ready = poll_gathered(fds, count, wait > INT_MAX ? INT_MAX : (int)wait);
	for (int i = 0; ready > 0 && i < count; i++) {
		if (fds[i].revents & POLLNVAL)
			ready = fail(EBADF);
	}
	if (ready >= 0)
		ready = reduce(readfds, fds, count, POLLIN, POLLIN | POLLHUP | POLLERR) +
			reduce(writefds, fds, count, POLLOUT, POLLOUT | POLLERR) + reduce(exceptfds, fds, count, POLLPRI, POLLPRI);
	int error = errno;
	free(fds);
	errno = error;
	return ready;
}
