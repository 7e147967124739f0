/* SPDX-License-Identifier: MIT */
/* Ids without a channel, and endpoints: calls that wait (rdma_create_ep(3), rdma_get_request(3)), and the verbs of rdma_verbs.h. */
#include "meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct ibv_qp_init_attr attributes(void)
{
	return (struct ibv_qp_init_attr){
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
}

/* An endpoint on 127.0.0.1. Passive: with a port of its own. */
static struct rdma_cm_id *make_endpoint(int flags, __be16 port, struct ibv_qp_init_attr *attr)
{
	struct rdma_addrinfo hints = { .ai_flags = flags | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP }, *info;
	struct rdma_cm_id *id;
	char service[8];

	snprintf(service, sizeof(service), "%u", ntohs(port));
	assert_int_equal(rdma_getaddrinfo("127.0.0.1", service, &hints, &info), 0);
	assert_int_equal(failure(rdma_create_ep(&id, info, NULL, attr)), 0);
	rdma_freeaddrinfo(info);
	return id;
}

/* The server of a thread: takes one request, answers a message, and waits for the end. */
static void *serve(void *arg)
{
	struct rdma_cm_id *listener = arg, *id;
	static char message[16];
	struct ibv_mr *mr;
	struct ibv_wc wc;

	if (rdma_get_request(listener, &id))
		return "no request";
	if (!id->qp || !id->event || id->event->event != RDMA_CM_EVENT_CONNECT_REQUEST || id->event->listen_id != listener)
		return "the request is not as it should be";
	if (id->channel == listener->channel)
		return "the request's id has no channel of its own";
	mr = rdma_reg_msgs(id, message, sizeof(message));
	if (!mr || rdma_post_recv(id, NULL, message, sizeof(message), mr))
		return "no receive";
	if (rdma_accept(id, NULL))
		return "not accepted";
	if (id->event->event != RDMA_CM_EVENT_ESTABLISHED)
		return "not established";
	if (rdma_get_recv_comp(id, &wc) != 1 || wc.status || strcmp(message, "question"))
		return "not received";
	strcpy(message, "answer");
	if (rdma_post_send(id, NULL, message, sizeof(message), mr, 0) || rdma_get_send_comp(id, &wc) != 1 || wc.status)
		return "not sent";
	if (rdma_disconnect(id))
		return "not disconnected";
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	return NULL;
}

static void endpoints_connect_and_exchange_messages(void **state)
{
	struct ibv_qp_init_attr attr = attributes();
	struct rdma_cm_id *listener = make_endpoint(RAI_PASSIVE, 0, &attr), *id;
	char question[16] = "question", received[16];
	struct ibv_mr *to, *from;
	struct ibv_wc wc;
	pthread_t thread;
	void *failed;

	(void)state;
	assert_int_equal(failure(rdma_listen(listener, 1)), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve, listener), 0);
	id = make_endpoint(0, rdma_get_src_port(listener), &attr);
	assert_non_null(id->qp);
	to = rdma_reg_msgs(id, received, sizeof(received));
	from = rdma_reg_msgs(id, question, sizeof(question));
	assert_int_equal(failure(rdma_post_recv(id, NULL, received, sizeof(received), to)), 0);
	assert_int_equal(failure(rdma_connect(id, NULL)), 0);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(failure(rdma_post_send(id, NULL, question, sizeof(question), from, 0)), 0);
	assert_int_equal(rdma_get_send_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(rdma_get_recv_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_string_equal(received, "answer");
	assert_int_equal(failure(rdma_disconnect(id)), 0);
	rdma_dereg_mr(to);
	rdma_dereg_mr(from);
	rdma_destroy_ep(id);
	pthread_join(thread, &failed);
	if (failed)
		fail_msg("server: %s", (char *)failed);
	rdma_destroy_ep(listener);
}

static void a_refused_connection_is_an_errno(void **state)
{
	struct ibv_qp_init_attr attr = attributes();
	struct rdma_cm_id *listener = make_endpoint(RAI_PASSIVE, 0, NULL), *id;

	(void)state;
	/* Bound, but not listening. */
	id = make_endpoint(0, rdma_get_src_port(listener), &attr);
	assert_int_equal(failure(rdma_connect(id, NULL)), ECONNREFUSED);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
}

static void ids_without_a_channel_wait(void **state)
{
	struct sockaddr_in address;
	struct rdma_cm_id *id;

	(void)state;
	set_loopback(&address, htons(7));
	assert_int_equal(failure(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP)), 0);
	assert_int_equal(failure(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS)), 0);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_non_null(id->verbs);
	assert_int_equal(failure(rdma_resolve_route(id, RESOLVE_MS)), 0);
	assert_int_equal(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	assert_int_equal(id->route.num_paths, 1);
	assert_int_equal(failure(rdma_destroy_id(id)), 0);
}

/* A route that the program brings stands for one that is resolved. */
static void a_path_may_be_given(void **state)
{
	struct rdma_addrinfo info = { .ai_port_space = RDMA_PS_TCP, .ai_qp_type = IBV_QPT_RC };
	struct rdma_cm_id *known = make_endpoint(0, htons(7), NULL), *id;
	struct ibv_path_data path = {
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
		.path = {
			.dgid = known->route.path_rec->dgid,
			.sgid = known->route.path_rec->sgid,
			.reversible_numpath = IBV_PATH_RECORD_REVERSIBLE | 1,
			.pkey = 0xffff,
			.mtu = (uint8_t)(2 << 6 | IBV_MTU_1024),
			.rate = 2 << 6 | IBV_RATE_100_GBPS,
			.packetlifetime = 2 << 6 | 14,
		},
	};

	(void)state;
	info.ai_dst_addr = rdma_get_peer_addr(known);
	info.ai_dst_len = sizeof(struct sockaddr_in);
	info.ai_route = &path;
	info.ai_route_len = sizeof(path);
	assert_int_equal(failure(rdma_create_ep(&id, &info, NULL, NULL)), 0);
	assert_int_equal(id->route.num_paths, 1);
	rdma_destroy_ep(id);
	rdma_destroy_ep(known);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(endpoints_connect_and_exchange_messages),
		cmocka_unit_test(a_refused_connection_is_an_errno),
		cmocka_unit_test(ids_without_a_channel_wait),
		cmocka_unit_test(a_path_may_be_given),
	};

	return cmocka_run_group_tests_name("synchronous", tests, NULL, NULL);
}
