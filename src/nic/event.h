/* SPDX-License-Identifier: MIT */
/*
 * Completion channels and asynchronous event queues. Both are process-private; programs poll their
 * eventfds.
 *
 * Their eventfds are in semaphore mode: one token for each event, which comes and goes with it
 * under the lock, so that who finds the fd readable does not wait. An event that is due and not
 * here yet is seg_cq.arm == NIC_ARM_FIRED.
 */
#ifndef UROCE_NIC_EVENT_H
#define UROCE_NIC_EVENT_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>

#include "nic/list.h"

struct nic_cq;

/* Such an eventfd: -1 with errno; to tell of n events; to wait for one (unless the fd is O_NONBLOCK): 0, or -1 with errno; to take
 * back those of n events that are dropped; to close it. What the program has put in its place is left alone. Adding and dropping
 * under the lock of the events. */
int nic_tokens_open(void);
void nic_tokens_add(int fd, uint64_t n);
int nic_tokens_take(int fd);
void nic_tokens_drop(int fd, uint32_t n);
void nic_tokens_close(int fd);

struct nic_channel {
	/* eventfd, EFD_SEMAPHORE | EFD_CLOEXEC, blocking until the program makes it not so */
	int fd;
	pthread_mutex_t lock;
	struct list cqs; /* of nic_cq.of_channel */
};

/* 0, or errno. */
int nic_channel_init(struct nic_channel *channel);
void nic_channel_destroy(struct nic_channel *channel);

/* Drops the events of a CQ that is being destroyed. */
void nic_channel_forget(struct nic_channel *channel, struct nic_cq *cq);

/* The CQ whose event is next; waits unless the fd is O_NONBLOCK. NULL with errno (EAGAIN,
 * EINTR). */
struct nic_cq *nic_channel_wait(struct nic_channel *channel);

struct nic_event_queue {
	int fd; /* eventfd, EFD_SEMAPHORE | EFD_CLOEXEC */
	pthread_mutex_t lock;
	struct list events;
	/* Called under the lock when an event is handed out, so that who destroys its object,
	 * having called nic_event_forget, knows of every event that the program has to acknowledge.
	 * Set after init, never NULL. */
	void (*handed_out)(const struct ibv_async_event *event);
};

int nic_event_queue_init(struct nic_event_queue *queue);
void nic_event_queue_destroy(struct nic_event_queue *queue);

/* Queues an event about an object (ibv_qp, ibv_cq or ibv_srq in event->element), or about the port.
 * Lost only when memory is exhausted. */
void nic_event_raise(struct nic_event_queue *queue, const struct ibv_async_event *event);

/* Takes the next event; waits unless the fd is O_NONBLOCK. 0, or -1 with errno. */
int nic_event_wait(struct nic_event_queue *queue, struct ibv_async_event *event);

/* Drops the events about an object that is being destroyed; says how many had not been read. */
unsigned nic_event_forget(struct nic_event_queue *queue, const void *element);

#endif
