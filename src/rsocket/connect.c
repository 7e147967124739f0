/* SPDX-License-Identifier: MIT */
/*
 * How a stream finds its peer, and how it ends: the id, its events, and the state that they lead to. Who connects goes from one
 * event to the next; each may come while some thread waits for it, or when one looks.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "rsocket.h"
#include "service.h"
#include "nic/keep_errno.h"

enum {
	RESOLVE_MS = 5000,
	/* How long rclose() waits for what was sent to arrive, unless SO_LINGER says otherwise. The peer's NIC takes it without
	 * its program, as long as that reads now and then. */
	FINISH_US = 5000000,
};

static const struct rdma_conn_param parameters = { .flow_control = 1, .retry_count = 7, .rnr_retry_count = 7 };

int connect_open_channel(struct rsocket *rs)
{
	struct stream *stream = &rs->stream;
	struct epoll_event event = { .events = EPOLLIN };

	stream->channel = rdma_create_event_channel();
	if (!stream->channel)
		return errno;
	fcntl(stream->channel->fd, F_SETFL, O_NONBLOCK);
	return epoll_ctl(rs->fd, EPOLL_CTL_ADD, stream->channel->fd, &event) ? errno : 0;
}

int connect_open(struct rsocket *rs)
{
	KEEP_ERRNO;
	struct stream *stream = &rs->stream;

	if (!stream->channel) {
		int error = connect_open_channel(rs);
		if (error)
			return error;
	}
	return rdma_create_id(stream->channel, &stream->id, rs, RDMA_PS_TCP) ? errno : 0;
}

static void set_options(struct rsocket *rs)
{
	int yes = 1;

	if (rs->reuse_address)
		rdma_set_option(rs->stream.id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof(yes));
	if (rs->v6only)
		rdma_set_option(rs->stream.id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof(yes));
}

int connect_bind(struct rsocket *rs, const struct sockaddr *address)
{
	KEEP_ERRNO;
	struct stream *stream = &rs->stream;

	if (stream->state != STREAM_NEW || stream->bound)
		return EINVAL;
	set_options(rs);
	if (rdma_bind_addr(stream->id, (struct sockaddr *)address))
		return errno;
	stream->bound = true;
	memcpy(&stream->local, address, address_length(address));
	return 0;
}

/* An id that could not connect is of no use any more. */
static int reopen(struct rsocket *rs)
{
	struct stream *stream = &rs->stream;

	stream_release(rs);
	if (stream->id)
		rdma_destroy_id(stream->id);
	stream->id = NULL;
	stream->state = STREAM_NEW;
	int error = connect_open(rs);
	if (error || !stream->bound)
		return error;
	stream->bound = false;
	union address local = stream->local;
	return connect_bind(rs, &local.any);
}

static void failed(struct rsocket *rs, int error)
{
	rs->stream.state = STREAM_FAILED;
	rs->error = error;
	wait_wake(rs);
}

int connect_begin(struct rsocket *rs, const struct sockaddr *address)
{
	KEEP_ERRNO;
	struct stream *stream = &rs->stream;
	int error = 0;

	if (stream->state == STREAM_FAILED)
		error = reopen(rs);
	if (error)
		return error;
	if (!stream->bound)
		set_options(rs);
	if (rdma_resolve_addr(stream->id, NULL, (struct sockaddr *)address, RESOLVE_MS)) {
		error = errno;
		failed(rs, 0);
		return error;
	}
	stream->state = STREAM_RESOLVING_ADDRESS;
	return 0;
}

bool connect_done(const struct rsocket *rs)
{
	switch (rs->stream.state) {
	case STREAM_RESOLVING_ADDRESS:
	case STREAM_RESOLVING_ROUTE:
	case STREAM_CONNECTING:
		return false;
	default:
		return true;
	}
}

static int resolve_route(struct stream *stream)
{
	if (stream->route)
		return rdma_set_option(stream->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, stream->route, stream->route_size) ? errno :
															     0;
	return rdma_resolve_route(stream->id, RESOLVE_MS) ? errno : 0;
}

static int ask(struct rsocket *rs)
{
	struct connection_data ours;
	struct rdma_conn_param param = parameters;
	int error = stream_prepare(rs);

	if (error)
		return error;
	stream_describe(rs, &ours);
	param.private_data = &ours;
	param.private_data_len = sizeof(ours);
	return rdma_connect(rs->stream.id, &param) ? errno : 0;
}

bool connect_check(const void *data, size_t length, struct connection_data *theirs)
{
	if (!data || length < sizeof(*theirs))
		return false;
	memcpy(theirs, data, sizeof(*theirs));
	return theirs->version == PROTOCOL_VERSION && theirs->table.length && theirs->buffer.length;
}

int connect_accept(struct rsocket *rs, const struct connection_data *theirs)
{
	struct connection_data ours;
	struct rdma_conn_param param = parameters;
	int error = stream_prepare(rs);

	if (error)
		return error;
	stream_learn(rs, theirs);
	stream_describe(rs, &ours);
	param.private_data = &ours;
	param.private_data_len = sizeof(ours);
	rs->stream.state = STREAM_CONNECTING;
	return rdma_accept(rs->stream.id, &param) ? errno : 0;
}

/* Who asked learns about the peer now; who was asked did so then. */
static int established(struct rsocket *rs, const struct rdma_conn_param *param)
{
	if (!rs->stream.peer_table.length) {
		struct connection_data theirs;
		if (!connect_check(param->private_data, param->private_data_len, &theirs))
			return EPROTO;
		stream_learn(rs, &theirs);
	}
	stream_begin(rs);
	return 0;
}

static int from_status(int status, int otherwise)
{
	return status < 0 ? -status : otherwise;
}

/* 0, or why it does not go on. */
static int on_event(struct rsocket *rs, const struct rdma_cm_event *event)
{
	struct stream *stream = &rs->stream;

	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		stream->state = STREAM_RESOLVING_ROUTE;
		return resolve_route(stream);
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		stream->state = STREAM_CONNECTING;
		return ask(rs);
	case RDMA_CM_EVENT_ESTABLISHED:
		return stream->state == STREAM_CONNECTING ? established(rs, &event->param.conn) : 0;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return from_status(event->status, EHOSTUNREACH);
	case RDMA_CM_EVENT_UNREACHABLE:
		return from_status(event->status, ETIMEDOUT);
	case RDMA_CM_EVENT_REJECTED:
		return ECONNREFUSED;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return from_status(event->status, ECONNABORTED);
	case RDMA_CM_EVENT_DISCONNECTED:
		/* What came before is still to be seen, farewell above all. */
		stream_progress(rs);
		rdma_disconnect(stream->id);
		return stream->farewell || stream->said_all ? 0 : ECONNRESET;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return ENODEV;
	default:
		return 0;
	}
}

void connect_events(struct rsocket *rs)
{
	struct stream *stream = &rs->stream;
	struct epoll_event ready[2];
	struct rdma_cm_event *event;

	if (epoll_wait(rs->fd, ready, 2, 0) < 1)
		return;
	if (stream->armed) {
		struct ibv_cq *cq;
		void *context;
		if (ibv_get_cq_event(stream->completions, &cq, &context) == 0) {
			stream->armed = false;
			ibv_ack_cq_events(cq, 1);
			wait_wake(rs);
		}
	}
	while (stream->channel && rdma_get_cm_event(stream->channel, &event) == 0) {
		bool ended = event->event == RDMA_CM_EVENT_DISCONNECTED;
		int error = on_event(rs, event);
		rdma_ack_cm_event(event);
		if (!connect_done(rs) && error)
			failed(rs, error);
		else if (error || ended)
			stream_end(rs, error);
		wait_wake(rs);
	}
}

int connect_shutdown(struct rsocket *rs, int how)
{
	KEEP_ERRNO;
	struct stream *stream = &rs->stream;

	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return EINVAL;
	if (stream->state == STREAM_CLOSED)
		return 0;
	if (stream->state != STREAM_CONNECTED)
		return ENOTCONN;
	bool wrote = stream->may_write;
	if (how != SHUT_WR)
		stream->may_read = false;
	if (how != SHUT_RD)
		stream->may_write = false;
	wait_wake(rs);
	if (!wrote || stream->may_write)
		return 0;
	int error = wait_to_finish(rs, stream_control_free, FINISH_US);
	if (!error)
		stream_control(rs, how == SHUT_RDWR ? CONTROL_DISCONNECT : CONTROL_SHUTDOWN);
	stream->said_all = how == SHUT_RDWR;
	return error;
}

void connect_keepalive(struct rsocket *rs)
{
	if (stream_control_free(rs))
		stream_control(rs, CONTROL_KEEPALIVE);
}

void connect_finish(struct rsocket *rs)
{
	KEEP_ERRNO;
	struct stream *stream = &rs->stream;
	int64_t patience = FINISH_US;

	if (stream->state == STREAM_CONNECTED) {
		if (rs->linger.l_onoff)
			patience = rs->linger.l_linger * INT64_C(1000000);
		int64_t end = now_us() + patience; /* of both waits together */
		stream->may_read = stream->may_write = false;
		if (!stream->said_all && wait_to_finish(rs, stream_control_free, patience) == 0)
			stream_control(rs, CONTROL_DISCONNECT);
		stream->said_all = true;
		patience = end - now_us();
		wait_to_finish(rs, stream_all_sent, patience > 0 ? patience : 0);
		stream_end(rs, 0);
		rdma_disconnect(stream->id);
	}
}

void connect_close(struct rsocket *rs)
{
	struct stream *stream = &rs->stream;

	listen_end(rs);
	service_lock();
	bool kept = rs->keeper;
	service_remove(rs->keeper);
	if (kept)
		descriptor_close(rs->keepalive_timer);
	service_unlock();
	stream_release(rs);
	if (stream->id)
		rdma_destroy_id(stream->id);
	if (stream->channel)
		rdma_destroy_event_channel(stream->channel);
	free(stream->route);
}
