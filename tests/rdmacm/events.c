/* SPDX-License-Identifier: MIT */
/* Which events come, in which order, and what they say (rdma_get_cm_event(3)). */
#include "meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

static void fill(uint8_t *data, size_t length, uint8_t first)
{
	for (size_t i = 0; i < length; i++)
		data[i] = (uint8_t)(first + i);
}

static void resolving_binds_the_device_and_tells_the_path(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct sockaddr_in address;
	struct rdma_cm_event *event;

	(void)state;
	set_loopback(&address, htons(7));
	assert_int_equal(failure(rdma_create_id(channel, &id, state, RDMA_PS_TCP)), 0);
	assert_null(id->verbs);
	assert_ptr_equal(id->context, state);
	assert_ptr_equal(id->channel, channel);
	assert_int_equal(id->ps, RDMA_PS_TCP);
	assert_int_equal(id->qp_type, IBV_QPT_RC);
	assert_int_equal(rdma_get_src_port(id), 0);
	assert_int_equal(rdma_get_dst_port(id), 0);

	assert_int_equal(failure(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS)), 0);
	event = expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(event->id, id);
	assert_null(event->listen_id);
	assert_int_equal(event->status, 0);
	rdma_ack_cm_event(event);
	assert_non_null(id->verbs);
	assert_non_null(id->pd);
	assert_int_equal(id->port_num, 1);
	assert_int_equal(rdma_get_local_addr(id)->sa_family, AF_INET);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	assert_int_equal(rdma_get_dst_port(id), htons(7));
	assert_int_equal(id->route.num_paths, 0);

	assert_int_equal(failure(rdma_resolve_route(id, RESOLVE_MS)), 0);
	event = expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	assert_ptr_equal(event->id, id);
	rdma_ack_cm_event(event);
	assert_int_equal(id->route.num_paths, 1);
	assert_non_null(id->route.path_rec);
	assert_memory_equal(&id->route.path_rec->sgid, &id->route.addr.addr.ibaddr.sgid, 16);
	assert_memory_equal(&id->route.path_rec->dgid, &id->route.addr.addr.ibaddr.dgid, 16);
	assert_in_range(id->route.path_rec->mtu, IBV_MTU_256, IBV_MTU_4096);
	assert_int_equal(id->route.path_rec->pkey, 0xffff);

	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

/* In RTS, with as many READs outstanding as both ends have agreed on. */
static void check_reads(struct ibv_qp *qp, uint8_t initiator_depth, uint8_t responder_resources)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(attr.max_rd_atomic, initiator_depth);
	assert_int_equal(attr.max_dest_rd_atomic, responder_resources);
}

static void a_connection_carries_private_data_and_parameters(void **state)
{
	struct meeting meeting;
	uint8_t asked[56], answered[196];
	struct rdma_conn_param param = { .private_data = asked,
					 .private_data_len = sizeof(asked),
					 .responder_resources = 3,
					 .initiator_depth = 2,
					 .flow_control = 1,
					 .retry_count = 5,
					 .rnr_retry_count = 6 };
	struct rdma_cm_event *event;

	(void)state;
	fill(asked, sizeof(asked), 1);
	fill(answered, sizeof(answered), 100);
	meet_listen(&meeting, RDMA_PS_TCP);
	meeting.to_server = meet_resolve(meeting.client, RDMA_PS_TCP, rdma_get_src_port(meeting.listener));
	equip(meeting.to_server);
	assert_int_equal(failure(rdma_connect(meeting.to_server, &param)), 0);

	event = expect(meeting.server, RDMA_CM_EVENT_CONNECT_REQUEST);
	meeting.to_client = event->id;
	assert_ptr_equal(event->listen_id, meeting.listener);
	assert_int_equal(event->status, 0);
	assert_int_equal(event->param.conn.private_data_len, sizeof(asked));
	assert_memory_equal(event->param.conn.private_data, asked, sizeof(asked));
	assert_int_equal(event->param.conn.responder_resources, 2);
	assert_int_equal(event->param.conn.initiator_depth, 3);
	assert_int_equal(event->param.conn.retry_count, 5);
	assert_int_equal(event->param.conn.rnr_retry_count, 6);
	assert_int_equal(event->param.conn.qp_num, meeting.to_server->qp->qp_num);
	assert_int_equal(event->param.conn.srq, 0);
	/* The new id is where the listener is, and knows who asks. */
	assert_ptr_equal(meeting.to_client->channel, meeting.server);
	assert_ptr_equal(meeting.to_client->context, &meeting);
	assert_non_null(meeting.to_client->verbs);
	assert_ptr_equal(meeting.to_client->verbs, meeting.to_server->verbs);
	assert_int_equal(rdma_get_src_port(meeting.to_client), rdma_get_src_port(meeting.listener));
	assert_int_equal(rdma_get_dst_port(meeting.to_client), rdma_get_src_port(meeting.to_server));
	assert_int_equal(rdma_get_peer_addr(meeting.to_client)->sa_family, AF_INET);
	equip(meeting.to_client);
	param = event->param.conn;
	param.private_data = answered;
	param.private_data_len = sizeof(answered);
	param.responder_resources = 1;
	param.initiator_depth = 2;
	assert_int_equal(failure(rdma_accept(meeting.to_client, &param)), 0);
	rdma_ack_cm_event(event);

	event = expect(meeting.client, RDMA_CM_EVENT_ESTABLISHED);
	assert_ptr_equal(event->id, meeting.to_server);
	assert_int_equal(event->param.conn.private_data_len, sizeof(answered));
	assert_memory_equal(event->param.conn.private_data, answered, sizeof(answered));
	assert_int_equal(event->param.conn.responder_resources, 2);
	assert_int_equal(event->param.conn.initiator_depth, 1);
	assert_int_equal(event->param.conn.qp_num, meeting.to_client->qp->qp_num);
	rdma_ack_cm_event(event);
	event = expect(meeting.server, RDMA_CM_EVENT_ESTABLISHED);
	assert_ptr_equal(event->id, meeting.to_client);
	rdma_ack_cm_event(event);
	check_reads(meeting.to_client->qp, 2, 1);
	check_reads(meeting.to_server->qp, 1, 2);

	/* Either end may end it; both are told, once. */
	assert_int_equal(failure(rdma_disconnect(meeting.to_client)), 0);
	assert_int_equal(meeting.to_client->qp->state, IBV_QPS_ERR);
	event = expect(meeting.client, RDMA_CM_EVENT_DISCONNECTED);
	assert_ptr_equal(event->id, meeting.to_server);
	rdma_ack_cm_event(event);
	assert_int_equal(failure(rdma_disconnect(meeting.to_server)), 0);
	event = expect(meeting.server, RDMA_CM_EVENT_DISCONNECTED);
	assert_ptr_equal(event->id, meeting.to_client);
	rdma_ack_cm_event(event);
	part(&meeting);
}

static void without_a_qp_the_program_completes_the_connection(void **state)
{
	struct rdma_conn_param param = {
		.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7, .qp_num = 0x4711, .srq = 1
	};
	struct ibv_ece offered = { .vendor_id = 0x1234, .options = 0x567, .comp_mask = 0 }, chosen = { 0 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct rdma_cm_event *event;
	struct meeting meeting;
	int mask;

	(void)state;
	meet_listen(&meeting, RDMA_PS_TCP);
	meeting.to_server = meet_resolve(meeting.client, RDMA_PS_TCP, rdma_get_src_port(meeting.listener));
	assert_int_equal(failure(rdma_connect(meeting.to_server, NULL)), EINVAL);
	assert_int_equal(failure(rdma_set_local_ece(meeting.to_server, &offered)), 0);
	assert_int_equal(failure(rdma_connect(meeting.to_server, &param)), 0);
	event = expect(meeting.server, RDMA_CM_EVENT_CONNECT_REQUEST);
	meeting.to_client = event->id;
	assert_int_equal(event->param.conn.qp_num, 0x4711);
	assert_int_equal(event->param.conn.srq, 1);
	rdma_ack_cm_event(event);

	assert_int_equal(failure(rdma_get_remote_ece(meeting.to_client, &chosen)), 0);
	assert_int_equal(chosen.vendor_id, 0x1234);
	assert_int_equal(chosen.options, 0x567);

	/* Who brings his own QP asks how to set it. */
	assert_int_equal(failure(rdma_init_qp_attr(meeting.to_client, &attr, &mask)), 0);
	assert_int_equal(attr.dest_qp_num, 0x4711);
	assert_int_equal(mask & (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN),
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	assert_int_equal(attr.ah_attr.is_global, 1);
	assert_int_equal(attr.ah_attr.port_num, 1);
	assert_memory_equal(&attr.ah_attr.grh.dgid, &meeting.to_client->route.addr.addr.ibaddr.dgid, 16);

	param.qp_num = 0x815;
	assert_int_equal(failure(rdma_accept(meeting.to_client, &param)), 0);
	event = expect(meeting.client, RDMA_CM_EVENT_CONNECT_RESPONSE);
	assert_int_equal(event->param.conn.qp_num, 0x815);
	rdma_ack_cm_event(event);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(failure(rdma_init_qp_attr(meeting.to_server, &attr, &mask)), 0);
	assert_int_equal(attr.dest_qp_num, 0x815);
	expect_none(meeting.server);
	assert_int_equal(failure(rdma_establish(meeting.to_server)), 0);
	expect_only(meeting.server, RDMA_CM_EVENT_ESTABLISHED);
	expect_none(meeting.client);
	part(&meeting);
}

/* A device is bound with the address, but for the loopback of what will be connected: as on Linux, that is any device's. */
static void binding_to_loopback_binds_the_device_of_datagrams_only(void **state)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in address;
	struct rdma_cm_id *id;

	(void)state;
	set_loopback(&address, 0);
	assert_int_equal(failure(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)), 0);
	assert_int_equal(failure(rdma_bind_addr(id, (struct sockaddr *)&address)), 0);
	assert_null(id->verbs);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	assert_int_equal(((struct sockaddr_in *)rdma_get_local_addr(id))->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	set_loopback(&address, htons(7));
	assert_int_equal(failure(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS)), 0);
	expect_only(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_non_null(id->verbs);
	rdma_destroy_id(id);

	set_loopback(&address, 0);
	assert_int_equal(failure(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP)), 0);
	assert_int_equal(failure(rdma_bind_addr(id, (struct sockaddr *)&address)), 0);
	assert_non_null(id->verbs);
	assert_non_null(id->pd);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

static void datagram_service_is_looked_up(void **state)
{
	uint8_t asked[180], answered[136];
	struct rdma_conn_param param = { .private_data = answered, .private_data_len = sizeof(answered) };
	struct rdma_conn_param asking = { .private_data = asked, .private_data_len = sizeof(asked) };
	struct rdma_cm_event *event;
	struct meeting meeting;

	(void)state;
	fill(asked, sizeof(asked), 1);
	fill(answered, sizeof(answered), 100);
	meet_listen(&meeting, RDMA_PS_UDP);
	meeting.to_server = meet_resolve(meeting.client, RDMA_PS_UDP, rdma_get_src_port(meeting.listener));
	equip(meeting.to_server);
	assert_int_equal(meeting.to_server->qp->state, IBV_QPS_RTS);
	assert_int_equal(failure(rdma_connect(meeting.to_server, &asking)), 0);
	event = expect(meeting.server, RDMA_CM_EVENT_CONNECT_REQUEST);
	meeting.to_client = event->id;
	assert_int_equal(meeting.to_client->qp_type, IBV_QPT_UD);
	assert_int_equal(event->param.ud.private_data_len, sizeof(asked));
	assert_memory_equal(event->param.ud.private_data, asked, sizeof(asked));
	rdma_ack_cm_event(event);
	equip(meeting.to_client);
	assert_int_equal(failure(rdma_accept(meeting.to_client, &param)), 0);
	event = expect(meeting.client, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(event->param.ud.private_data_len, sizeof(answered));
	assert_memory_equal(event->param.ud.private_data, answered, sizeof(answered));
	assert_int_equal(event->param.ud.qp_num, meeting.to_client->qp->qp_num);
	assert_int_equal(event->param.ud.qkey, RDMA_UDP_QKEY);
	assert_int_equal(event->param.ud.ah_attr.is_global, 1);
	assert_int_equal(event->param.ud.ah_attr.port_num, 1);
	assert_memory_equal(&event->param.ud.ah_attr.grh.dgid, &meeting.to_server->route.addr.addr.ibaddr.dgid, 16);

	/* With that a message arrives. */
	struct ibv_ah *ah = ibv_create_ah(meeting.to_server->pd, &event->param.ud.ah_attr);
	struct ibv_wc wc;
	uint8_t received[40 + 8], sent[8] = "message";
	struct ibv_mr *to = rdma_reg_msgs(meeting.to_client, received, sizeof(received));
	struct ibv_mr *from = rdma_reg_msgs(meeting.to_server, sent, sizeof(sent));

	assert_non_null(ah);
	assert_non_null(to);
	assert_non_null(from);
	assert_int_equal(failure(rdma_post_recv(meeting.to_client, NULL, received, sizeof(received), to)), 0);
	assert_int_equal(
		failure(rdma_post_ud_send(meeting.to_server, NULL, sent, sizeof(sent), from, 0, ah, event->param.ud.qp_num)), 0);
	assert_int_equal(rdma_get_send_comp(meeting.to_server, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(rdma_get_recv_comp(meeting.to_client, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_string_equal(received + 40, "message");
	ibv_destroy_ah(ah);
	rdma_dereg_mr(to);
	rdma_dereg_mr(from);
	rdma_ack_cm_event(event);
	expect_none(meeting.server);
	part(&meeting);
}

static void events_have_their_names(void **state)
{
	(void)state;
	assert_string_equal(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
	assert_string_equal(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
	assert_string_equal(rdma_event_str((enum rdma_cm_event_type)99), "UNKNOWN EVENT");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resolving_binds_the_device_and_tells_the_path),
		cmocka_unit_test(a_connection_carries_private_data_and_parameters),
		cmocka_unit_test(without_a_qp_the_program_completes_the_connection),
		cmocka_unit_test(binding_to_loopback_binds_the_device_of_datagrams_only),
		cmocka_unit_test(datagram_service_is_looked_up),
		cmocka_unit_test(events_have_their_names),
	};

	return cmocka_run_group_tests_name("events", tests, NULL, NULL);
}
