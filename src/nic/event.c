/* SPDX-License-Identifier: MIT */
/* Completion channels and asynchronous event queues. See event.h. */
#include "nic/event.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "nic/cancel.h"
#include "nic/cq.h"
#include "nic/descriptor.h"
#include "observe/trace.h"
#include "observe/watch.h"

#define LOST_AFTER 200 /* ms */

int nic_tokens_open(void)
{
	return descriptor_keep(eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC));
}

void nic_tokens_add(int fd, uint64_t n)
{
	/* Fails only past 2^64 - 2 tokens. */
	if (n && descriptor_is_shared(fd) && write(fd, &n, sizeof(n)) < 0)
		return;
}

/* Takes back the tokens of events that are dropped: a program that polls the fd before it reads
 * would else wait for ever. One that a reader has taken already is not there; that reader finds no
 * event and waits on. Lock of the events held. */
void nic_tokens_drop(int fd, uint32_t n)
{
	uint64_t token;
	struct iovec iov = { .iov_base = &token, .iov_len = sizeof(token) };

	while (n && descriptor_is_shared(fd) && preadv2(fd, &iov, 1, -1, RWF_NOWAIT) == sizeof(token))
		n--;
}

/* One token; waits unless the fd is O_NONBLOCK. */
int nic_tokens_take(int fd)
{
	uint64_t token;
	ssize_t n;

	if (!descriptor_is_shared(fd)) {
		errno = EBADF;
		return -1;
	}
	cancel_allowed = true;
	n = read(fd, &token, sizeof(token));
	cancel_allowed = false;
	return n == sizeof(token) ? 0 : -1;
}

void nic_tokens_close(int fd)
{
	if (descriptor_is_shared(fd))
		close(fd);
}

int nic_channel_init(struct nic_channel *channel)
{
	channel->fd = nic_tokens_open();
	if (channel->fd < 0)
		return errno;
	pthread_mutex_init(&channel->lock, NULL);
	list_init(&channel->cqs);
	return 0;
}

void nic_channel_destroy(struct nic_channel *channel)
{
	nic_tokens_close(channel->fd);
	pthread_mutex_destroy(&channel->lock);
}

static struct nic_cq *next_due(struct nic_channel *channel)
{
	struct nic_cq *found = NULL;

	pthread_mutex_lock(&channel->lock);
	list_for_each(node, &channel->cqs) {
		struct nic_cq *cq = list_entry(node, struct nic_cq, of_channel);

		if (cq->events_due) {
			cq->events_due--;
			cq->events_read++;
			/* To the end: a busy CQ must not starve its neighbours. */
			list_del(&cq->of_channel);
			list_add_tail(&channel->cqs, &cq->of_channel);
			found = cq;
			break;
		}
	}
	pthread_mutex_unlock(&channel->lock);
	return found;
}

/* Whether a CQ of the channel was armed over completions and not polled since: its NIC, and its numbers in *c. NULL: none was. */
static struct nic *find_forgotten(struct nic_channel *channel, struct cause *c)
{
	struct nic *found = NULL;

	pthread_mutex_lock(&channel->lock);
	list_for_each(node, &channel->cqs) {
		struct nic_cq *cq = list_entry(node, struct nic_cq, of_channel);
		uint32_t arm = atomic_load(&cq->shared->arm);
		uint64_t armed_at = 0;

		c->value = watch_cq_forgotten(cq->index, &armed_at);
		if (!c->value || (arm != NIC_ARM_ANY && arm != NIC_ARM_SOLICITED))
			continue;
		c->limit = nic_now() - armed_at;
		c->qpn = cq->index;
		found = cq->nic;
		break;
	}
	pthread_mutex_unlock(&channel->lock);
	return found;
}

/* While somebody watches: a program that waits so waits for ever, unless another thread polls or more arrives. It is given a moment;
 * signals are kept for the wait proper, which they may be meant to end. */
static void look_for_lost_event(struct nic_channel *channel)
{
	struct pollfd event = { .fd = channel->fd, .events = POLLIN };
	struct cause c = { .code = CAUSE_CQ_EVENT_LOST };
	sigset_t all, old;
	struct nic *nic;
	int came;

	if (!find_forgotten(channel, &c))
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	came = poll(&event, 1, LOST_AFTER);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	nic = came ? NULL : find_forgotten(channel, &c);
	if (!nic)
		return;
	c.stacks[CAUSE_STACK_CALL] = watch_stack();
	cause_record(nic_causes(nic), &c);
	watch_cq_polled(c.qpn); /* it is told once */
}

struct nic_cq *nic_channel_wait(struct nic_channel *channel)
{
	if (watch_now() && !(fcntl(channel->fd, F_GETFL) & O_NONBLOCK))
		look_for_lost_event(channel);
	for (;;) {
		if (nic_tokens_take(channel->fd))
			return NULL;
		struct nic_cq *cq = next_due(channel);

		if (cq && trace_on())
			trace_write(TRACE_AWOKE, 0, 0, cq->index, 0, 0, 0);
		if (cq)
			return cq;
	}
}

void nic_cq_attend(struct nic_cq *cq)
{
	uint32_t fired = NIC_ARM_FIRED;

	if (!atomic_compare_exchange_strong(&cq->shared->arm, &fired, NIC_ARM_NONE))
		return;
	nic_cq_deliver(cq);
}

void nic_cq_deliver(struct nic_cq *cq)
{
	if (!cq->channel)
		return;
	pthread_mutex_lock(&cq->channel->lock);
	cq->events_due++;
	nic_tokens_add(cq->channel->fd, 1);
	pthread_mutex_unlock(&cq->channel->lock);
}

void nic_channel_forget(struct nic_channel *channel, struct nic_cq *cq)
{
	pthread_mutex_lock(&channel->lock);
	list_del(&cq->of_channel);
	nic_tokens_drop(channel->fd, cq->events_due);
	pthread_mutex_unlock(&channel->lock);
}

struct queued_event {
	struct list node;
	struct ibv_async_event event;
};

int nic_event_queue_init(struct nic_event_queue *queue)
{
	queue->fd = nic_tokens_open();
	if (queue->fd < 0)
		return errno;
	pthread_mutex_init(&queue->lock, NULL);
	list_init(&queue->events);
	return 0;
}

void nic_event_queue_destroy(struct nic_event_queue *queue)
{
	list_for_each_safe(node, tmp, &queue->events)
		free(list_entry(node, struct queued_event, node));
	nic_tokens_close(queue->fd);
	pthread_mutex_destroy(&queue->lock);
}

void nic_event_raise(struct nic_event_queue *queue, const struct ibv_async_event *event)
{
	struct queued_event *queued = malloc(sizeof(*queued));

	if (!queued)
		return;
	queued->event = *event;
	pthread_mutex_lock(&queue->lock);
	list_add_tail(&queue->events, &queued->node);
	nic_tokens_add(queue->fd, 1);
	pthread_mutex_unlock(&queue->lock);
}

int nic_event_wait(struct nic_event_queue *queue, struct ibv_async_event *event)
{
	for (;;) {
		if (nic_tokens_take(queue->fd))
			return -1;
		struct queued_event *queued = NULL;

		pthread_mutex_lock(&queue->lock);
		if (!list_empty(&queue->events)) { /* empty: its object was destroyed */
			queued = list_entry(queue->events.next, struct queued_event, node);
			list_del(&queued->node);
			queue->handed_out(&queued->event);
		}
		pthread_mutex_unlock(&queue->lock);
		if (queued) {
			*event = queued->event;
			free(queued);
			return 0;
		}
	}
}

unsigned nic_event_forget(struct nic_event_queue *queue, const void *element)
{
	unsigned dropped = 0;

	pthread_mutex_lock(&queue->lock);
	list_for_each_safe(node, tmp, &queue->events) {
		struct queued_event *queued = list_entry(node, struct queued_event, node);

		if ((const void *)queued->event.element.qp == element) {
			list_del(&queued->node);
			free(queued);
			dropped++;
		}
	}
	nic_tokens_drop(queue->fd, dropped);
	pthread_mutex_unlock(&queue->lock);
	return dropped;
}
