/* SPDX-License-Identifier: MIT */
/* What is refused, by whom and how: errno at once, or an event with its status. */
#include "meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include <infiniband/ib.h>

/* Reasons of a REJ (table 114 of the specification) */
#define INVALID_SERVICE_ID 8
#define CONSUMER	   28
#define VENDOR_OPTION	   35
/* Of a SIDR_REP: its status (table 120) */
#define SIDR_REJECTED 2

static struct rdma_conn_param parameters(const void *data, uint8_t length)
{
	return (struct rdma_conn_param){ .private_data = data,
					 .private_data_len = length,
					 .responder_resources = 1,
					 .initiator_depth = 1,
					 .retry_count = 7,
					 .rnr_retry_count = 7 };
}

/* A port where nobody listens: one was had and given back. */
static __be16 free_port(struct rdma_event_channel *channel, enum rdma_port_space ps)
{
	struct sockaddr_in address;
	struct rdma_cm_id *id;
	__be16 port;

	set_loopback(&address, 0);
	assert_int_equal(failure(rdma_create_id(channel, &id, NULL, ps)), 0);
	assert_int_equal(failure(rdma_bind_addr(id, (struct sockaddr *)&address)), 0);
	port = rdma_get_src_port(id);
	rdma_destroy_id(id);
	return port;
}

static void a_port_without_listener_rejects(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = meet_resolve(channel, RDMA_PS_TCP, free_port(channel, RDMA_PS_TCP));
	struct rdma_conn_param param = parameters(NULL, 0);
	struct rdma_cm_event *event;

	(void)state;
	equip(id);
	assert_int_equal(failure(rdma_connect(id, &param)), 0);
	event = expect(channel, RDMA_CM_EVENT_REJECTED);
	assert_ptr_equal(event->id, id);
	assert_int_equal(event->status, INVALID_SERVICE_ID);
	rdma_ack_cm_event(event);
	assert_int_equal(id->qp->state, IBV_QPS_ERR);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

static void a_datagram_port_without_listener_is_unreachable(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id = meet_resolve(channel, RDMA_PS_UDP, free_port(channel, RDMA_PS_UDP));
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_event *event;

	(void)state;
	assert_int_equal(failure(rdma_connect(id, &param)), 0);
	event = expect(channel, RDMA_CM_EVENT_UNREACHABLE);
	assert_int_not_equal(event->status, 0);
	rdma_ack_cm_event(event);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

static void check_rejection(int (*reject)(struct rdma_cm_id *, const void *, uint8_t), int reason)
{
	struct rdma_cm_event *event;
	struct meeting meeting;

	meet_request(&meeting, RDMA_PS_TCP, NULL, 0);
	assert_int_equal(failure(reject(meeting.to_client, "no room", 8)), 0);
	event = expect(meeting.client, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, reason);
	assert_in_range(event->param.conn.private_data_len, 8, 148);
	assert_string_equal(event->param.conn.private_data, "no room");
	rdma_ack_cm_event(event);
	expect_none(meeting.server);
	part(&meeting);
}

static void a_rejection_carries_reason_and_data(void **state)
{
	(void)state;
	check_rejection(rdma_reject, CONSUMER);
}

static void a_rejection_for_its_ece_says_so(void **state)
{
	(void)state;
	check_rejection(rdma_reject_ece, VENDOR_OPTION);
}

static void a_request_destroyed_is_rejected(void **state)
{
	struct rdma_cm_event *event;
	struct meeting meeting;

	(void)state;
	meet_request(&meeting, RDMA_PS_TCP, NULL, 0);
	assert_int_equal(failure(rdma_destroy_id(meeting.to_client)), 0);
	meeting.to_client = NULL;
	event = expect(meeting.client, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, CONSUMER);
	rdma_ack_cm_event(event);
	part(&meeting);
}

static void a_listener_destroyed_rejects_what_it_did_not_read(void **state)
{
	struct rdma_conn_param param = parameters(NULL, 0);
	struct rdma_cm_event *event;
	struct meeting meeting;

	(void)state;
	meet_listen(&meeting, RDMA_PS_TCP);
	meeting.to_server = meet_resolve(meeting.client, RDMA_PS_TCP, rdma_get_src_port(meeting.listener));
	equip(meeting.to_server);
	assert_int_equal(failure(rdma_connect(meeting.to_server, &param)), 0);
	assert_int_equal(failure(rdma_destroy_id(meeting.listener)), 0);
	meeting.listener = NULL;
	event = expect(meeting.client, RDMA_CM_EVENT_REJECTED);
	assert_true(event->status == CONSUMER || event->status == INVALID_SERVICE_ID);
	rdma_ack_cm_event(event);
	expect_none(meeting.server);
	part(&meeting);
}

static void too_much_private_data_is_refused(void **state)
{
	static const uint8_t data[255];
	struct rdma_conn_param param = parameters(data, 57);
	struct rdma_cm_event *event;
	struct meeting meeting;

	(void)state;
	meet_listen(&meeting, RDMA_PS_TCP);
	meeting.to_server = meet_resolve(meeting.client, RDMA_PS_TCP, rdma_get_src_port(meeting.listener));
	equip(meeting.to_server);
	assert_int_equal(failure(rdma_connect(meeting.to_server, &param)), EINVAL);
	/* It may be asked again with less. */
	param.private_data_len = 56;
	assert_int_equal(failure(rdma_connect(meeting.to_server, &param)), 0);
	event = expect(meeting.server, RDMA_CM_EVENT_CONNECT_REQUEST);
	meeting.to_client = event->id;
	rdma_ack_cm_event(event);
	assert_int_equal(failure(rdma_reject(meeting.to_client, data, 149)), EINVAL);
	/* An acceptance that fails is the end of it: who asked is not left waiting. */
	equip(meeting.to_client);
	param.private_data_len = 197;
	assert_int_equal(failure(rdma_accept(meeting.to_client, &param)), EINVAL);
	assert_int_equal(meeting.to_client->qp->state, IBV_QPS_ERR);
	event = expect(meeting.client, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(event->status, CONSUMER);
	rdma_ack_cm_event(event);
	assert_int_not_equal(failure(rdma_reject(meeting.to_client, NULL, 0)), 0);
	assert_int_equal(failure(rdma_disconnect(meeting.to_client)), 0);
	expect_none(meeting.server);
	part(&meeting);
}

static void too_much_private_data_for_datagrams_is_refused(void **state)
{
	static const uint8_t data[255];
	struct rdma_conn_param param = parameters(data, 137);
	struct rdma_cm_event *event;
	struct meeting meeting;

	(void)state;
	meet_request(&meeting, RDMA_PS_UDP, NULL, 0);
	equip(meeting.to_client);
	assert_int_equal(failure(rdma_accept(meeting.to_client, &param)), EINVAL);
	event = expect(meeting.client, RDMA_CM_EVENT_UNREACHABLE);
	assert_int_equal(event->status, SIDR_REJECTED);
	rdma_ack_cm_event(event);
	part(&meeting);
}

/* What the kernel was not asked, because the QP or the arguments were refused before, rejects nobody: the request is as it was. */
static void an_acceptance_refused_before_it_is_sent_may_be_tried_again(void **state)
{
	struct rdma_conn_param param = parameters(NULL, 0);
	struct meeting meeting;

	(void)state;
	meet_request(&meeting, RDMA_PS_TCP, NULL, 0);
	param.responder_resources = 254;
	assert_int_equal(failure(rdma_accept(meeting.to_client, &param)), EINVAL);
	param.responder_resources = 1;
	equip(meeting.to_client);
	assert_int_equal(failure(rdma_accept(meeting.to_client, &param)), 0);
	expect_only(meeting.client, RDMA_CM_EVENT_ESTABLISHED);
	expect_only(meeting.server, RDMA_CM_EVENT_ESTABLISHED);
	part(&meeting);
}

/* Who has not read yet that it was accepted finds that it cannot be connected any more; who has is rejected as connected. */
static void a_rejection_after_the_acceptance_ends_it(void **state)
{
	struct rdma_cm_event *event;
	struct meeting meeting;

	(void)state;
	meet_request(&meeting, RDMA_PS_TCP, NULL, 0);
	equip(meeting.to_client);
	assert_int_equal(failure(rdma_accept(meeting.to_client, NULL)), 0);
	assert_int_equal(failure(rdma_reject(meeting.to_client, "no", 3)), 0);
	event = next(meeting.client);
	if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
		rdma_ack_cm_event(event);
		event = expect(meeting.client, RDMA_CM_EVENT_REJECTED);
		assert_int_equal(event->status, CONSUMER);
	} else {
		assert_int_equal(event->event, RDMA_CM_EVENT_CONNECT_ERROR);
		assert_int_equal(event->status, -EINVAL);
		expect_none(meeting.client);
	}
	rdma_ack_cm_event(event);
	assert_int_equal(meeting.to_server->qp->state, IBV_QPS_ERR);
	assert_int_equal(failure(rdma_disconnect(meeting.to_server)), 0);
	assert_int_equal(failure(rdma_disconnect(meeting.to_client)), 0);
	expect_none(meeting.server);
	part(&meeting);
}

static void more_outstanding_reads_than_the_device_has_are_refused(void **state)
{
	struct rdma_conn_param param = parameters(NULL, 0);
	struct ibv_device_attr attr;
	struct meeting meeting;

	(void)state;
	meet_listen(&meeting, RDMA_PS_TCP);
	meeting.to_server = meet_resolve(meeting.client, RDMA_PS_TCP, rdma_get_src_port(meeting.listener));
	equip(meeting.to_server);
	assert_int_equal(ibv_query_device(meeting.to_server->verbs, &attr), 0);
	param.initiator_depth = (uint8_t)(attr.max_qp_init_rd_atom + 1);
	assert_int_equal(failure(rdma_connect(meeting.to_server, &param)), EINVAL);
	param.initiator_depth = 1;
	param.responder_resources = (uint8_t)(attr.max_qp_rd_atom + 1);
	assert_int_equal(failure(rdma_connect(meeting.to_server, &param)), EINVAL);
	part(&meeting);
}

static void a_request_is_answered_once(void **state)
{
	struct meeting meeting;

	(void)state;
	meet_request(&meeting, RDMA_PS_TCP, NULL, 0);
	equip(meeting.to_client);
	assert_int_equal(failure(rdma_accept(meeting.to_client, NULL)), 0);
	assert_int_equal(failure(rdma_accept(meeting.to_client, NULL)), EINVAL);
	/* The connection comes about all the same. */
	expect_only(meeting.client, RDMA_CM_EVENT_ESTABLISHED);
	expect_only(meeting.server, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(meeting.to_client->qp->state, IBV_QPS_RTS);
	part(&meeting);

	meet_request(&meeting, RDMA_PS_TCP, NULL, 0);
	assert_int_equal(failure(rdma_reject(meeting.to_client, NULL, 0)), 0);
	assert_int_not_equal(failure(rdma_reject(meeting.to_client, NULL, 0)), 0);
	expect_only(meeting.client, RDMA_CM_EVENT_REJECTED);
	part(&meeting);
}

/* Its QP does not depend on who asked for it; only that he has gone is found out later. */
static void a_request_whose_asker_has_gone_may_have_a_qp(void **state)
{
	struct meeting meeting;

	(void)state;
	meet_request(&meeting, RDMA_PS_TCP, NULL, 0);
	rdma_destroy_qp(meeting.to_server);
	assert_int_equal(failure(rdma_destroy_id(meeting.to_server)), 0);
	meeting.to_server = NULL;
	expect_only(meeting.server, RDMA_CM_EVENT_REJECTED);
	equip(meeting.to_client);
	assert_int_equal(failure(rdma_accept(meeting.to_client, NULL)), EINVAL);
	part(&meeting);
}

static void steps_out_of_order_are_refused(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = parameters(NULL, 0);
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	struct sockaddr_ib of_infiniband = { .sib_family = AF_IB, .sib_pkey = 0xffff };
	struct sockaddr_in address;
	struct rdma_cm_id *id;

	(void)state;
	set_loopback(&address, 0);
	assert_int_equal(failure(rdma_create_id(channel, &id, NULL, (enum rdma_port_space)1)), EINVAL);
	assert_int_equal(failure(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)), 0);
	assert_int_equal(failure(rdma_bind_addr(id, (struct sockaddr *)&of_infiniband)), ENODEV);
	assert_int_equal(failure(rdma_connect(id, &param)), EINVAL);
	assert_int_equal(failure(rdma_accept(id, &param)), EINVAL);
	assert_int_equal(failure(rdma_resolve_route(id, RESOLVE_MS)), EINVAL);
	assert_int_equal(failure(rdma_disconnect(id)), EINVAL);
	assert_int_equal(failure(rdma_establish(id)), EINVAL);
	assert_int_equal(failure(rdma_create_qp(id, NULL, &attr)), EINVAL);
	assert_int_equal(failure(rdma_get_request(id, &id)), EINVAL);
	assert_int_equal(failure(rdma_bind_addr(id, (struct sockaddr *)&address)), 0);
	assert_int_equal(failure(rdma_bind_addr(id, (struct sockaddr *)&address)), EINVAL);
	address.sin_family = AF_UNIX;
	assert_int_equal(failure(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS)), EINVAL);
	assert_int_equal(failure(rdma_resolve_addr(id, NULL, (struct sockaddr *)&of_infiniband, RESOLVE_MS)), ENODEV);
	expect_none(channel);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

static void an_address_is_bound_once(void **state)
{
	struct rdma_cm_id *other, *elsewhere;
	struct sockaddr_in address;
	struct meeting meeting;

	(void)state;
	meet_listen(&meeting, RDMA_PS_TCP);
	set_loopback(&address, rdma_get_src_port(meeting.listener));
	assert_int_equal(failure(rdma_create_id(meeting.server, &other, NULL, RDMA_PS_TCP)), 0);
	assert_int_equal(failure(rdma_bind_addr(other, (struct sockaddr *)&address)), EADDRINUSE);
	/* The same port of another space is another. */
	assert_int_equal(failure(rdma_create_id(meeting.server, &elsewhere, NULL, RDMA_PS_UDP)), 0);
	assert_int_equal(failure(rdma_bind_addr(elsewhere, (struct sockaddr *)&address)), 0);
	rdma_destroy_id(elsewhere);
	/* 240.0.0.0/4 is reserved. */
	assert_int_equal(inet_pton(AF_INET, "240.0.0.1", &address.sin_addr), 1);
	assert_int_equal(failure(rdma_bind_addr(other, (struct sockaddr *)&address)), EADDRNOTAVAIL);
	rdma_destroy_id(other);
	part(&meeting);
}

static void a_way_without_a_device_is_an_address_error(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in source, destination;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	(void)state;
	/* An address that this host has, and no device: it is no interface's. */
	set_loopback(&source, 0);
	source.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	set_loopback(&destination, htons(7));
	assert_int_equal(failure(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)), 0);
	assert_int_equal(
		failure(rdma_resolve_addr(id, (struct sockaddr *)&source, (struct sockaddr *)&destination, RESOLVE_MS)), 0);
	event = expect(channel, RDMA_CM_EVENT_ADDR_ERROR);
	assert_ptr_equal(event->id, id);
	assert_int_equal(event->status, -ENODEV);
	rdma_ack_cm_event(event);
	assert_null(id->verbs);
	rdma_destroy_id(id);

	assert_int_equal(failure(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP)), 0);
	assert_int_equal(failure(rdma_bind_addr(id, (struct sockaddr *)&source)), ENODEV);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

/* As connect(2) says it: the routes are asked at once. */
static void a_destination_without_a_route_is_refused(void **state)
{
	struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons(7), .sin6_scope_id = INT_MAX };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	(void)state;
	assert_int_equal(inet_pton(AF_INET6, "fe80::1", &address.sin6_addr), 1);
	assert_int_equal(failure(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)), 0);
	assert_int_not_equal(failure(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS)), 0);
	/* Without a scope it may be anywhere. */
	address.sin6_scope_id = 0;
	assert_int_equal(failure(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS)), EINVAL);
	expect_none(channel);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

static void options_of_a_wrong_kind_are_refused(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	uint8_t tos = 0x20;
	struct rdma_cm_id *id;
	int one = 1;

	(void)state;
	assert_int_equal(failure(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)), 0);
	assert_int_equal(failure(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos))), 0);
	assert_int_equal(failure(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one))), 0);
	assert_int_equal(failure(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one, sizeof(one))), 0);
	assert_int_equal(failure(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &tos, sizeof(tos))), 0);
	assert_int_equal(failure(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &one, sizeof(one))), EINVAL);
	assert_int_equal(failure(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 0)), EINVAL);
	assert_int_equal(failure(rdma_set_option(id, RDMA_OPTION_ID, 99, &one, sizeof(one))), ENOSYS);
	assert_int_equal(failure(rdma_set_option(id, 99, 0, &one, sizeof(one))), ENOSYS);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_port_without_listener_rejects),
		cmocka_unit_test(a_datagram_port_without_listener_is_unreachable),
		cmocka_unit_test(a_rejection_carries_reason_and_data),
		cmocka_unit_test(a_rejection_for_its_ece_says_so),
		cmocka_unit_test(a_request_destroyed_is_rejected),
		cmocka_unit_test(a_listener_destroyed_rejects_what_it_did_not_read),
		cmocka_unit_test(too_much_private_data_is_refused),
		cmocka_unit_test(too_much_private_data_for_datagrams_is_refused),
		cmocka_unit_test(an_acceptance_refused_before_it_is_sent_may_be_tried_again),
		cmocka_unit_test(a_rejection_after_the_acceptance_ends_it),
		cmocka_unit_test(more_outstanding_reads_than_the_device_has_are_refused),
		cmocka_unit_test(a_request_is_answered_once),
		cmocka_unit_test(a_request_whose_asker_has_gone_may_have_a_qp),
		cmocka_unit_test(steps_out_of_order_are_refused),
		cmocka_unit_test(an_address_is_bound_once),
		cmocka_unit_test(a_way_without_a_device_is_an_address_error),
		cmocka_unit_test(a_destination_without_a_route_is_refused),
		cmocka_unit_test(options_of_a_wrong_kind_are_refused),
	};

	return cmocka_run_group_tests_name("refusals", tests, NULL, NULL);
}
