/* SPDX-License-Identifier: MIT */
#include "meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#define PATIENCE_MS 20000

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel, const char *due)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&fd, 1, PATIENCE_MS) != 1)
		fail_msg("no event, where %s is due", due);
	assert_int_equal(failure(rdma_get_cm_event(channel, &event)), 0);
	return event;
}

struct rdma_cm_event *next(struct rdma_event_channel *channel)
{
	return next_event(channel, "one");
}

struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event = next_event(channel, rdma_event_str(type));

	if (event->event != type)
		fail_msg("%s (status %d), where %s is due", rdma_event_str(event->event), event->status, rdma_event_str(type));
	return event;
}

void expect_only(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	assert_int_equal(failure(rdma_ack_cm_event(expect(channel, type))), 0);
}

void expect_none(struct rdma_event_channel *channel)
{
	int flags = fcntl(channel->fd, F_GETFL);
	struct rdma_cm_event *event;

	assert_int_equal(fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK), 0);
	assert_int_equal(failure(rdma_get_cm_event(channel, &event)), EAGAIN);
	assert_int_equal(fcntl(channel->fd, F_SETFL, flags), 0);
}

void set_loopback(struct sockaddr_in *address, __be16 port)
{
	*address = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = port,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

static struct rdma_event_channel *open_channel(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	assert_non_null(channel);
	return channel;
}

void meet_listen(struct meeting *meeting, enum rdma_port_space ps)
{
	struct sockaddr_in address;

	*meeting = (struct meeting){ .server = open_channel(), .client = open_channel() };
	set_loopback(&address, 0);
	assert_int_equal(failure(rdma_create_id(meeting->server, &meeting->listener, meeting, ps)), 0);
	assert_int_equal(failure(rdma_bind_addr(meeting->listener, (struct sockaddr *)&address)), 0);
	assert_int_equal(failure(rdma_listen(meeting->listener, 8)), 0);
	assert_int_not_equal(rdma_get_src_port(meeting->listener), 0);
}

struct rdma_cm_id *meet_resolve(struct rdma_event_channel *channel, enum rdma_port_space ps, __be16 port)
{
	struct sockaddr_in address;
	struct rdma_cm_id *id;

	set_loopback(&address, port);
	assert_int_equal(failure(rdma_create_id(channel, &id, channel, ps)), 0);
	assert_int_equal(failure(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS)), 0);
	expect_only(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(failure(rdma_resolve_route(id, RESOLVE_MS)), 0);
	expect_only(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

void equip(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = id->qp_type,
		.sq_sig_all = 1,
	};

	assert_int_equal(failure(rdma_create_qp(id, NULL, &attr)), 0);
	assert_non_null(id->qp);
}

void meet_request(struct meeting *meeting, enum rdma_port_space ps, const void *data, uint8_t length)
{
	struct rdma_conn_param param = { .private_data = data,
					 .private_data_len = length,
					 .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };
	struct rdma_cm_event *event;

	meet_listen(meeting, ps);
	meeting->to_server = meet_resolve(meeting->client, ps, rdma_get_src_port(meeting->listener));
	equip(meeting->to_server);
	assert_int_equal(failure(rdma_connect(meeting->to_server, &param)), 0);
	event = expect(meeting->server, RDMA_CM_EVENT_CONNECT_REQUEST);
	meeting->to_client = event->id;
	assert_int_equal(failure(rdma_ack_cm_event(event)), 0);
}

void meet(struct meeting *meeting)
{
	meet_request(meeting, RDMA_PS_TCP, NULL, 0);
	equip(meeting->to_client);
	assert_int_equal(failure(rdma_accept(meeting->to_client, NULL)), 0);
	expect_only(meeting->client, RDMA_CM_EVENT_ESTABLISHED);
	expect_only(meeting->server, RDMA_CM_EVENT_ESTABLISHED);
}

static void destroy(struct rdma_cm_id *id)
{
	if (!id)
		return;
	rdma_destroy_qp(id);
	assert_int_equal(failure(rdma_destroy_id(id)), 0);
}

void part(struct meeting *meeting)
{
	destroy(meeting->to_server);
	destroy(meeting->to_client);
	destroy(meeting->listener);
	rdma_destroy_event_channel(meeting->client);
	rdma_destroy_event_channel(meeting->server);
}
