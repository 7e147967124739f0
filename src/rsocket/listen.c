/* SPDX-License-Identifier: MIT */
/*
 * Listeners. As with TCP, connections come about while the program is elsewhere: the service thread answers requests, and puts a
 * connection into the listener's queue when it is established. With `backlog` of them it leaves requests to the CM.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "rsocket.h"
#include "service.h"
#include "nic/keep_errno.h"

bool listen_ready(const struct rsocket *rs)
{
	return !list_empty(&rs->stream.queue) || rs->stream.state != STREAM_LISTENING;
}

/* It was never a program's. */
static void discard(struct rsocket *rs)
{
	if (rs->listener)
		rs->listener->stream.queued--;
	service_remove(rs->arrival);
	list_del(&rs->link);
	table_put(rs);
}

/* A connection that was asked for is established, or will not be. */
static void on_arrival(struct rsocket *rs)
{
	struct rsocket *listener = rs->listener;

	pthread_mutex_lock(&rs->lock);
	connect_events(rs);
	enum stream_state state = rs->stream.state;
	pthread_mutex_unlock(&rs->lock);
	if (state == STREAM_CONNECTING)
		return;
	if (state == STREAM_FAILED) {
		discard(rs);
		service_resume(listener->arrival);
		return;
	}
	service_remove(rs->arrival);
	rs->arrival = NULL;
	list_del(&rs->link);
	pthread_mutex_lock(&listener->lock);
	list_add_tail(&listener->stream.queue, &rs->link);
	eventfd_write(listener->stream.queue_fd, 1);
	wait_wake(listener);
	pthread_mutex_unlock(&listener->lock);
}

static void inherit(struct rsocket *rs, const struct rsocket *listener)
{
	rs->sends = listener->sends;
	rs->receives = listener->receives;
	rs->inlined = listener->inlined;
	rs->send_size = listener->send_size;
	rs->receive_size = listener->receive_size;
	rs->stream.iomaps = listener->stream.iomaps;
	rs->nodelay = listener->nodelay;
	rs->linger = listener->linger;
	rs->listener = (struct rsocket *)listener;
}

/* Answers a request: 0, or it was not answered and the caller rejects it. */
static int arrive(struct rsocket *listener, struct rdma_cm_id *id, const struct connection_data *theirs)
{
	struct rsocket *rs;
	int error = table_new(listener->domain, SOCK_STREAM, &rs);

	if (error)
		return error;
	inherit(rs, listener);
	error = connect_open_channel(rs);
	if (!error)
		error = rdma_migrate_id(id, rs->stream.channel) ? errno : 0;
	if (error) {
		rs->listener = NULL;
		table_put(rs);
		return error;
	}
	id->context = rs;
	rs->stream.id = id;
	listener->stream.queued++;
	list_add_tail(&listener->stream.arriving, &rs->link);
	pthread_mutex_lock(&rs->lock);
	error = connect_accept(rs, theirs);
	pthread_mutex_unlock(&rs->lock);
	if (!error)
		error = service_add(rs->stream.channel->fd, on_arrival, rs, &rs->arrival);
	if (error) {
		rdma_reject(id, NULL, 0);
		discard(rs);
	}
	return 0;
}

/* Destroys the id that a request brought. */
static void refuse(struct rdma_cm_id *id)
{
	rdma_reject(id, NULL, 0);
	rdma_destroy_id(id);
}

static void on_request(struct rsocket *listener)
{
	struct stream *stream = &listener->stream;
	struct rdma_cm_event *event;

	while (stream->queued < stream->backlog && rdma_get_cm_event(stream->channel, &event) == 0) {
		if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
			rdma_ack_cm_event(event);
			continue;
		}
		const struct rdma_conn_param *param = &event->param.conn;
		struct connection_data theirs;
		bool known = connect_check(param->private_data, param->private_data_len, &theirs);
		struct rdma_cm_id *id = event->id;
		rdma_ack_cm_event(event);
		if (!known || arrive(listener, id, &theirs))
			refuse(id);
	}
	if (stream->queued >= stream->backlog)
		service_pause(listener->arrival);
}

int listen_begin(struct rsocket *rs, int backlog)
{
	KEEP_ERRNO;
	struct stream *stream = &rs->stream;
	union address any = { .any.sa_family = rs->domain };

	if (backlog < 1)
		backlog = 1;
	if (stream->state == STREAM_LISTENING) {
		stream->backlog = backlog;
		service_resume(rs->arrival);
		return 0;
	}
	if (stream->state != STREAM_NEW)
		return EINVAL;
	int error = stream->bound ? 0 : connect_bind(rs, &any.any);
	if (error)
		return error;
	stream->queue_fd = descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (stream->queue_fd < 0)
		return errno;
	struct epoll_event event = { .events = EPOLLIN };
	if (epoll_ctl(rs->fd, EPOLL_CTL_ADD, stream->queue_fd, &event))
		return errno;
	epoll_ctl(rs->fd, EPOLL_CTL_DEL, stream->channel->fd, NULL);
	if (rdma_listen(stream->id, backlog))
		return errno;
	stream->backlog = backlog;
	stream->state = STREAM_LISTENING;
	return service_add(stream->channel->fd, on_request, rs, &rs->arrival);
}

int listen_accept(struct rsocket *rs, struct rsocket **out)
{
	KEEP_ERRNO;
	struct stream *stream = &rs->stream;
	eventfd_t count;

	pthread_mutex_lock(&rs->lock);
	int error = stream->state == STREAM_LISTENING ? 0 : EINVAL;
	while (!error && list_empty(&stream->queue)) {
		error = wait_until(rs, listen_ready, atomic_load(&rs->flags) & O_NONBLOCK ? 0 : -1);
		if (!error && stream->state != STREAM_LISTENING)
			error = EINVAL;
	}
	if (error) {
		pthread_mutex_unlock(&rs->lock);
		return error;
	}
	*out = list_entry(stream->queue.next, struct rsocket, link);
	list_del(&(*out)->link);
	if (list_empty(&stream->queue))
		eventfd_read(stream->queue_fd, &count);
	pthread_mutex_unlock(&rs->lock);

	service_lock();
	(*out)->listener = NULL;
	stream->queued--;
	if (rs->arrival)
		service_resume(rs->arrival);
	service_unlock();
	return 0;
}

void listen_end(struct rsocket *rs)
{
	KEEP_ERRNO;
	struct stream *stream = &rs->stream;

	service_lock();
	if (stream->state == STREAM_LISTENING) {
		service_remove(rs->arrival);
		rs->arrival = NULL;
	}
	list_for_each_safe(node, next, &stream->arriving)
		discard(list_entry(node, struct rsocket, link));
	pthread_mutex_lock(&rs->lock);
	struct list queue;
	list_init(&queue);
	list_for_each_safe(node, next, &stream->queue) {
		list_del(node);
		list_add_tail(&queue, node);
	}
	if (stream->queue_fd >= 0)
		descriptor_close(stream->queue_fd);
	stream->queue_fd = -1;
	pthread_mutex_unlock(&rs->lock);
	list_for_each_safe(node, next, &queue)
		discard(list_entry(node, struct rsocket, link));
	service_unlock();
}
