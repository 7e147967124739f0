/* SPDX-License-Identifier: MIT */
/*
 * Sleeping until something is so. A thread that waits has an eventfd, and is on the list of every rsocket that it waits for: what
 * is ready on an rsocket's descriptor is taken by the thread that comes first, and is news for the others too.
 */
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "rsocket.h"
#include "nic/cancel.h"
#include "nic/keep_errno.h"

/* How long to look for completions before sleeping: an answer from the same host is here sooner than a thread is awake. */
enum { SPIN_US = 10 };
/* Without an eventfd of its own (out of descriptors) a thread looks that often. */
enum { BLIND_MS = 10 };

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static _Thread_local int own_fd = -1;

/* value: the descriptor and 1, because NULL is none. */
static void thread_ended(void *value)
{
	descriptor_close((int)(intptr_t)value - 1);
	own_fd = -1;
}

/* The parent's thread has it too. */
static void fork_child(void)
{
	if (own_fd < 0)
		return;
	descriptor_close(own_fd);
	own_fd = -1;
	pthread_setspecific(key, NULL);
}

static void make_key(void)
{
	pthread_key_create(&key, thread_ended);
	pthread_atfork(NULL, NULL, fork_child);
}

int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

int wait_fd(void)
{
	if (own_fd >= 0)
		return own_fd;
	pthread_once(&key_once, make_key);
	own_fd = descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (own_fd >= 0)
		pthread_setspecific(key, (void *)(intptr_t)(own_fd + 1));
	return own_fd;
}

void wait_clear(void)
{
	eventfd_t count;

	if (descriptor_is_ours(own_fd))
		eventfd_read(own_fd, &count);
}

void wait_enter(struct rsocket *rs, struct waiter *waiter)
{
	waiter->fd = own_fd;
	list_add_tail(&rs->waiters, &waiter->link);
}

void wait_leave(struct rsocket *rs, struct waiter *waiter)
{
	(void)rs;
	list_del(&waiter->link);
}

void wait_wake(struct rsocket *rs)
{
	list_for_each(node, &rs->waiters) {
		struct waiter *waiter = list_entry(node, struct waiter, link);
		if (waiter->fd != own_fd && descriptor_is_ours(waiter->fd))
			eventfd_write(waiter->fd, 1);
	}
}

/* Looks for SPIN_US; the lock is free now and then. */
static bool spin(struct rsocket *rs, bool (*ready)(const struct rsocket *))
{
	for (int64_t end = now_us() + SPIN_US; now_us() < end;) {
		pthread_mutex_unlock(&rs->lock);
		pthread_mutex_lock(&rs->lock);
		progress_quick(rs);
		if (ready(rs))
			return true;
	}
	return false;
}

static int timeout_ms(int64_t end)
{
	if (end < 0)
		return own_fd < 0 ? BLIND_MS : -1;
	int64_t left = (end - now_us() + 999) / 1000;
	if (left < 0)
		left = 0;
	if (own_fd < 0 && left > BLIND_MS)
		return BLIND_MS;
	return left > INT_MAX ? INT_MAX : (int)left;
}

struct wait {
	struct rsocket *rs;
	struct waiter waiter;
};

/* The thread ends in poll(2), in place of the call that it is in, and gives back what that has. */
static void cancelled(void *arg)
{
	struct wait *wait = arg;
	struct rsocket *rs = wait->rs;

	pthread_mutex_lock(&rs->lock);
	wait_leave(rs, &wait->waiter);
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
}

static int sleep_on(struct wait *wait, struct pollfd fds[2], int timeout, bool is_cancellable)
{
	int error;

	pthread_cleanup_push(cancelled, wait);
	cancel_allowed = is_cancellable;
	error = poll(fds, 2, timeout) < 0 ? errno : 0;
	cancel_allowed = false;
	pthread_cleanup_pop(false);
	return error;
}

static int wait_for(struct rsocket *rs, bool (*ready)(const struct rsocket *), int64_t patience, bool is_cancellable)
{
	KEEP_ERRNO;
	progress_quick(rs);
	if (ready(rs))
		return 0;
	if (!patience) {
		progress_all(rs);
		return ready(rs) ? 0 : EAGAIN;
	}
	int64_t end = patience < 0 ? -1 : now_us() + patience;
	if (spin(rs, ready))
		return 0;

	int error = 0;
	struct pollfd fds[] = { { wait_fd(), POLLIN, 0 }, { rs->fd, POLLIN, 0 } };
	struct wait wait = { .rs = rs };
	wait_enter(rs, &wait.waiter);
	for (;;) {
		progress_all(rs);
		progress_arm(rs);
		if (ready(rs))
			break;
		if (rs->closed)
			error = EBADF;
		if (!error && end >= 0 && now_us() >= end)
			error = EAGAIN;
		if (error)
			break;
		pthread_mutex_unlock(&rs->lock);
		error = sleep_on(&wait, fds, timeout_ms(end), is_cancellable);
		wait_clear();
		pthread_mutex_lock(&rs->lock);
	}
	wait_leave(rs, &wait.waiter);
	return error && ready(rs) ? 0 : error;
}

int wait_until(struct rsocket *rs, bool (*ready)(const struct rsocket *), int64_t patience)
{
	return wait_for(rs, ready, patience, true);
}

int wait_to_finish(struct rsocket *rs, bool (*ready)(const struct rsocket *), int64_t patience)
{
	return wait_for(rs, ready, patience, false);
}
