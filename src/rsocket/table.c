/* SPDX-License-Identifier: MIT */
/*
 * The rsockets by descriptor. One lock for the table; who gets an rsocket holds a reference.
 *
 * A forked child has the parent's descriptors, but not what is behind them: its table is emptied, and remembers which they were.
 */
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "rsocket.h"
#include "nic/keep_errno.h"

struct slot {
	struct rsocket *rs;
	bool inherited;
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot *slots; /* by descriptor */
static int slots_count;

static void fork_prepare(void)
{
	pthread_mutex_lock(&table_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&table_lock);
}

/* The parent's memory of them stays, as nobody knows who held what. */
static void fork_child(void)
{
	for (int i = 0; i < slots_count; i++) {
		if (slots[i].rs)
			slots[i] = (struct slot){ .inherited = true };
	}
	pthread_mutex_unlock(&table_lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static void init(struct rsocket *rs, int domain, int type)
{
	rs->domain = domain;
	rs->type = type;
	atomic_init(&rs->references, 1);
	pthread_mutex_init(&rs->lock, NULL);
	pthread_mutex_init(&rs->sending, NULL);
	pthread_mutex_init(&rs->receiving, NULL);
	list_init(&rs->waiters);
	list_init(&rs->link);
	/* As rdma-core has them. */
	rs->sends = 384;
	rs->receives = 384;
	rs->inlined = 64;
	rs->send_size = 128 << 10;
	rs->receive_size = 128 << 10;
	rs->keepalive_idle = 7200;
	if (type == SOCK_STREAM) {
		rs->stream.queue_fd = -1;
		list_init(&rs->stream.mappings);
		list_init(&rs->stream.queue);
		list_init(&rs->stream.arriving);
	} else {
		rs->datagram.udp = -1;
	}
}

int table_new(int domain, int type, struct rsocket **out)
{
	struct rsocket *rs = calloc(1, sizeof(*rs));
	if (!rs)
		return ENOMEM;
	rs->fd = epoll_create1(EPOLL_CLOEXEC);
	if (rs->fd < 0) {
		int error = errno;
		free(rs);
		return error;
	}
	descriptor_mark(rs->fd);
	init(rs, domain, type);
	*out = rs;
	return 0;
}

int table_add(struct rsocket *rs)
{
	int error = 0;

	pthread_mutex_lock(&table_lock);
	if (rs->fd >= slots_count) {
		int count = (rs->fd + 64) / 64 * 64;
		struct slot *grown = realloc(slots, count * sizeof(*grown));
		if (grown) {
			for (int i = slots_count; i < count; i++)
				grown[i] = (struct slot){ 0 };
			slots = grown;
			slots_count = count;
		} else {
			error = ENOMEM;
		}
	}
	if (!error)
		slots[rs->fd] = (struct slot){ .rs = rs };
	pthread_mutex_unlock(&table_lock);
	return error;
}

struct rsocket *table_get(int fd)
{
	struct rsocket *rs = NULL;

	pthread_mutex_lock(&table_lock);
	if (fd >= 0 && fd < slots_count)
		rs = slots[fd].rs;
	if (rs)
		atomic_fetch_add(&rs->references, 1);
	pthread_mutex_unlock(&table_lock);
	return rs;
}

struct rsocket *table_remove(int fd)
{
	struct rsocket *rs = NULL;

	pthread_mutex_lock(&table_lock);
	if (fd >= 0 && fd < slots_count) {
		rs = slots[fd].rs;
		slots[fd].rs = NULL;
	}
	pthread_mutex_unlock(&table_lock);
	return rs;
}

int table_close_inherited(int fd)
{
	bool inherited = false;

	pthread_mutex_lock(&table_lock);
	if (fd >= 0 && fd < slots_count) {
		inherited = slots[fd].inherited;
		slots[fd].inherited = false;
	}
	pthread_mutex_unlock(&table_lock);
	if (!inherited)
		return EBADF;
	descriptor_close(fd);
	return 0;
}

void table_put(struct rsocket *rs)
{
	KEEP_ERRNO;
	if (atomic_fetch_sub(&rs->references, 1) > 1)
		return;
	if (is_stream(rs))
		connect_close(rs);
	else
		datagram_close(rs);
	descriptor_close(rs->fd);
	pthread_mutex_destroy(&rs->lock);
	pthread_mutex_destroy(&rs->sending);
	pthread_mutex_destroy(&rs->receiving);
	free(rs);
}

void table_each(void (*call)(struct rsocket *rs))
{
	for (int fd = 0; fd < slots_count; fd++) {
		struct rsocket *rs = table_get(fd);
		if (!rs)
			continue;
		call(rs);
		table_put(rs);
	}
}
