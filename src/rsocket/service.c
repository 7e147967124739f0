/* SPDX-License-Identifier: MIT */
/* The service thread. A forked child has none, and starts its own when it needs one. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "rsocket.h"
#include "service.h"
#include "nic/own_thread.h"

struct service {
	struct list link;
	uint64_t number; /* that epoll gives back: the structure may be gone by then */
	int fd;
	bool paused;
	void (*call)(struct rsocket *rs);
	struct rsocket *rs;
};

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct list services = { &services, &services };
static uint64_t numbers;
static int poller = -1;
static bool running;

void service_lock(void)
{
	pthread_mutex_lock(&lock);
}

void service_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* The parent's rsockets are not ours, nor is its epoll instance. The lock is made anew, for whoever had it: to take it before the fork
 * would be no way, since the thread opens devices under it, whose locks a fork takes too. */
static void fork_child(void)
{
	list_init(&services);
	if (poller >= 0)
		descriptor_close(poller);
	poller = -1;
	running = false;
	lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

static struct service *find(uint64_t number)
{
	list_for_each(node, &services) {
		struct service *service = list_entry(node, struct service, link);
		if (service->number == number)
			return service;
	}
	return NULL;
}

static void *serve(void *unused)
{
	(void)unused;
	for (;;) {
		struct epoll_event event;
		if (!descriptor_is_ours(poller))
			return NULL;
		if (epoll_wait(poller, &event, 1, -1) < 1)
			continue;
		service_lock();
		struct service *service = find(event.data.u64);
		if (service && !service->paused)
			service->call(service->rs);
		service_unlock();
	}
	return NULL;
}

static int start(void)
{
	static bool watching;
	pthread_t thread;

	if (running)
		return 0;
	if (!watching)
		pthread_atfork(NULL, NULL, fork_child);
	watching = true;
	if (poller < 0)
		poller = descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
	if (poller < 0)
		return errno;
	int error = own_thread_start(&thread, true, serve, NULL);
	if (error)
		return error;
	pthread_setname_np(thread, "rsockets");
	running = true;
	return 0;
}

static int control(struct service *service, int operation, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.u64 = service->number };

	if (!descriptor_is_ours(poller))
		return EBADF;
	return epoll_ctl(poller, operation, service->fd, &event) ? errno : 0;
}

int service_add(int fd, void (*call)(struct rsocket *rs), struct rsocket *rs, struct service **out)
{
	int error = start();
	if (error)
		return error;
	struct service *service = malloc(sizeof(*service));
	if (!service)
		return ENOMEM;
	*service = (struct service){ .number = ++numbers, .fd = fd, .call = call, .rs = rs };
	error = control(service, EPOLL_CTL_ADD, EPOLLIN);
	if (error) {
		free(service);
		return error;
	}
	list_add_tail(&services, &service->link);
	*out = service;
	return 0;
}

void service_pause(struct service *service)
{
	if (service->paused)
		return;
	service->paused = true;
	control(service, EPOLL_CTL_MOD, 0);
}

void service_resume(struct service *service)
{
	if (!service->paused)
		return;
	service->paused = false;
	control(service, EPOLL_CTL_MOD, EPOLLIN);
}

void service_remove(struct service *service)
{
	if (!service)
		return;
	control(service, EPOLL_CTL_DEL, 0);
	list_del(&service->link);
	free(service);
}
