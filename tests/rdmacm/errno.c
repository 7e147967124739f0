/* SPDX-License-Identifier: MIT */
/*
 * Calls that succeed leave errno alone, whatever they had to try to do what they did: programs look at it after several calls, and
 * perror() of a call that only sets it when it fails must not say what another had met.
 */
#include "meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rsocket.h>

/* No errno of Linux */
#define MARK 4711

static unsigned touched;

static void look(const char *call, int line)
{
	if (errno == MARK)
		return;
	print_error("line %d: errno is %d (%s) after %s\n", line, errno, strerror(errno), call);
	touched++;
}

#define KEEPS(call)                              \
	({                                       \
		errno = MARK;                    \
		__auto_type _answer = (call);    \
		int _left = errno;               \
		look_at(_left, #call, __LINE__); \
		_answer;                         \
	})
#define DONE(call) assert_int_equal(KEEPS(call), 0)
#define MADE(call)                               \
	({                                       \
		__auto_type _made = KEEPS(call); \
		assert_non_null(_made);          \
		_made;                           \
	})
#define KEEPS_VOID(call)               \
	do {                           \
		errno = MARK;          \
		call;                  \
		look(#call, __LINE__); \
	} while (0)

static void look_at(int left, const char *call, int line)
{
	errno = left;
	look(call, line);
}

static void none_touched(void)
{
	unsigned count = touched;

	touched = 0;
	assert_int_equal(count, 0);
}

/* The verbs, of which those that connect are seen with librdmacm. */

static void query(struct ibv_context *context)
{
	struct ibv_device_attr_ex ex;
	struct ibv_device_attr attr;
	struct ibv_gid_entry entry, *entries;
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	DONE(ibv_query_device(context, &attr));
	DONE(ibv_query_device_ex(context, NULL, &ex));
	DONE(ibv_query_port(context, 1, &port));
	DONE(ibv_query_gid(context, 1, 0, &gid));
	DONE(ibv_query_gid_ex(context, 1, 0, &entry, 0));
	entries = calloc((size_t)port.gid_tbl_len, sizeof(*entries));
	assert_true(KEEPS(ibv_query_gid_table(context, entries, (size_t)port.gid_tbl_len, 0)) > 0);
	free(entries);
	DONE(ibv_query_pkey(context, 1, 0, &pkey));
	DONE(ibv_get_pkey_index(context, 1, pkey));
}

static void use_memory(struct ibv_pd *pd)
{
	enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, PAGES = 16 << 20 };
	static char small[100];
	void *large = NULL;
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	assert_int_equal(posix_memalign(&large, 4096, PAGES), 0);
	memset(large, 1, PAGES);
	mr = MADE(ibv_reg_mr(pd, small, sizeof(small), ACCESS));
	DONE(ibv_dereg_mr(mr));
	mr = MADE(ibv_reg_mr(pd, large, PAGES, ACCESS));
	DONE(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE));
	DONE(ibv_dereg_mr(mr));
	mr = MADE(ibv_reg_mr_iova(pd, large, PAGES, 4096, ACCESS));
	DONE(ibv_dereg_mr(mr));
	mw = MADE(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	DONE(ibv_dealloc_mw(mw));
	free(large);
}

static void use_queues(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_qp_init_attr init = { .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_cq_init_attr_ex cq_ex = { .cqe = 8 };
	struct ibv_srq_attr srq_attr = { .srq_limit = 1 };
	struct ibv_comp_channel *channel = MADE(ibv_create_comp_channel(context));
	struct ibv_cq *cq = MADE(ibv_create_cq(context, 16, NULL, channel, 0)), *ex;
	struct ibv_srq *srq = MADE(ibv_create_srq(pd, &srq_init));
	struct ibv_qp *qp;
	struct ibv_wc wc;

	ex = ibv_cq_ex_to_cq(MADE(ibv_create_cq_ex(context, &cq_ex)));
	DONE(ibv_resize_cq(cq, 64));
	DONE(ibv_req_notify_cq(cq, 0));
	DONE(ibv_poll_cq(cq, 1, &wc));
	DONE(ibv_modify_srq(srq, &srq_attr, IBV_SRQ_LIMIT));
	DONE(ibv_query_srq(srq, &srq_attr));
	init.send_cq = init.recv_cq = cq;
	init.srq = srq;
	qp = MADE(ibv_create_qp(pd, &init));
	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	DONE(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	attr.qp_state = IBV_QPS_ERR;
	DONE(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	DONE(ibv_destroy_qp(qp));
	DONE(ibv_destroy_srq(srq));
	DONE(ibv_destroy_cq(ex));
	DONE(ibv_destroy_cq(cq));
	DONE(ibv_destroy_comp_channel(channel));
}

static void verbs_leave_errno_alone(void **state)
{
	struct ibv_device **list = MADE(ibv_get_device_list(NULL));
	struct ibv_context *context;
	struct ibv_pd *pd;

	(void)state;
	MADE(ibv_get_device_name(list[0]));
	assert_true(KEEPS(ibv_get_device_guid(list[0])) != 0);
	KEEPS(ibv_get_device_index(list[0]));
	context = MADE(ibv_open_device(list[0]));
	KEEPS_VOID(ibv_free_device_list(list));
	query(context);
	pd = MADE(ibv_alloc_pd(context));
	use_memory(pd);
	use_queues(context, pd);
	DONE(ibv_dealloc_pd(pd));
	DONE(ibv_close_device(context));
	none_touched();
}

/* Connections. */

static struct rdma_cm_event *take(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	assert_int_equal(poll(&fd, 1, 20000), 1);
	DONE(rdma_get_cm_event(channel, &event));
	assert_int_equal(event->event, type);
	return event;
}

static void take_only(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	DONE(rdma_ack_cm_event(take(channel, type)));
}

static struct rdma_cm_id *resolve(struct rdma_event_channel *channel, enum rdma_port_space ps, __be16 port)
{
	struct sockaddr_in address;
	struct rdma_cm_id *id;

	set_loopback(&address, port);
	DONE(rdma_create_id(channel, &id, NULL, ps));
	DONE(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, RESOLVE_MS));
	take_only(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	DONE(rdma_resolve_route(id, RESOLVE_MS));
	take_only(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

static struct rdma_cm_id *listen_on(struct rdma_event_channel *channel, enum rdma_port_space ps)
{
	struct sockaddr_in address;
	struct rdma_cm_id *id;
	int one = 1;

	set_loopback(&address, 0);
	DONE(rdma_create_id(channel, &id, NULL, ps));
	DONE(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof(one)));
	DONE(rdma_bind_addr(id, (struct sockaddr *)&address));
	DONE(rdma_listen(id, 8));
	return id;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = id->qp_type,
		.sq_sig_all = 1,
	};

	DONE(rdma_create_qp(id, NULL, &attr));
}

static void end_id(struct rdma_cm_id *id)
{
	KEEPS_VOID(rdma_destroy_qp(id));
	DONE(rdma_destroy_id(id));
}

/* A message each way, the one polled for and the other waited for. */
static void exchange(struct rdma_cm_id *one, struct rdma_cm_id *other)
{
	static char from[64], to[64];
	struct ibv_mr *sent = MADE(rdma_reg_msgs(one, from, sizeof(from)));
	struct ibv_mr *received = MADE(rdma_reg_msgs(other, to, sizeof(to)));
	struct ibv_wc wc;
	int n;

	DONE(rdma_post_recv(other, NULL, to, sizeof(to), received));
	DONE(rdma_post_send(one, NULL, from, sizeof(from), sent, 0));
	do {
		n = KEEPS(ibv_poll_cq(other->recv_cq, 1, &wc));
	} while (!n);
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(KEEPS(rdma_get_send_comp(one, &wc)), 1);
	DONE(rdma_post_recv(other, NULL, to, sizeof(to), received));
	DONE(rdma_post_send(one, NULL, from, sizeof(from), sent, 0));
	assert_int_equal(KEEPS(rdma_get_recv_comp(other, &wc)), 1);
	do {
		n = KEEPS(ibv_poll_cq(one->send_cq, 1, &wc));
	} while (!n);
	DONE(rdma_dereg_mr(sent));
	DONE(rdma_dereg_mr(received));
}

static void connections_leave_errno_alone(void **state)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_event_channel *server = MADE(rdma_create_event_channel()), *client = MADE(rdma_create_event_channel());
	struct rdma_event_channel *other = MADE(rdma_create_event_channel());
	struct rdma_cm_id *listener = listen_on(server, RDMA_PS_TCP), *id, *taken;
	struct rdma_cm_event *event;

	(void)state;
	id = resolve(client, RDMA_PS_TCP, KEEPS(rdma_get_src_port(listener)));
	make_qp(id);
	DONE(rdma_connect(id, &param));
	event = take(server, RDMA_CM_EVENT_CONNECT_REQUEST);
	taken = event->id;
	DONE(rdma_ack_cm_event(event));
	make_qp(taken);
	DONE(rdma_accept(taken, &param));
	take_only(client, RDMA_CM_EVENT_ESTABLISHED);
	take_only(server, RDMA_CM_EVENT_ESTABLISHED);
	exchange(id, taken);
	exchange(taken, id);
	DONE(rdma_migrate_id(taken, other));
	DONE(rdma_disconnect(id));
	take_only(other, RDMA_CM_EVENT_DISCONNECTED);
	DONE(rdma_disconnect(taken));
	take_only(client, RDMA_CM_EVENT_DISCONNECTED);
	end_id(taken);
	end_id(id);

	id = resolve(client, RDMA_PS_TCP, rdma_get_src_port(listener));
	make_qp(id);
	DONE(rdma_connect(id, &param));
	event = take(server, RDMA_CM_EVENT_CONNECT_REQUEST);
	taken = event->id;
	DONE(rdma_ack_cm_event(event));
	DONE(rdma_reject(taken, "no", 3));
	take_only(client, RDMA_CM_EVENT_REJECTED);
	end_id(taken);
	end_id(id);

	/* Where nobody listens any more: the event says so, the call does not. */
	__be16 port = rdma_get_src_port(listener);

	end_id(listener);
	id = resolve(client, RDMA_PS_TCP, port);
	make_qp(id);
	DONE(rdma_connect(id, &param));
	take_only(client, RDMA_CM_EVENT_REJECTED);
	end_id(id);
	KEEPS_VOID(rdma_destroy_event_channel(other));
	KEEPS_VOID(rdma_destroy_event_channel(client));
	KEEPS_VOID(rdma_destroy_event_channel(server));
	none_touched();
}

static void datagrams_leave_errno_alone(void **state)
{
	struct rdma_conn_param param = { 0 };
	struct rdma_event_channel *server = MADE(rdma_create_event_channel()), *client = MADE(rdma_create_event_channel());
	struct rdma_cm_id *listener = listen_on(server, RDMA_PS_UDP), *id, *taken;
	struct sockaddr_in group = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef070903) }, own;
	struct rdma_cm_event *event;
	struct ibv_ah *ah;

	(void)state;
	id = resolve(client, RDMA_PS_UDP, rdma_get_src_port(listener));
	make_qp(id);
	DONE(rdma_connect(id, &param));
	event = take(server, RDMA_CM_EVENT_CONNECT_REQUEST);
	taken = event->id;
	DONE(rdma_ack_cm_event(event));
	make_qp(taken);
	DONE(rdma_accept(taken, &param));
	event = take(client, RDMA_CM_EVENT_ESTABLISHED);
	ah = MADE(ibv_create_ah(id->pd, &event->param.ud.ah_attr));
	DONE(ibv_destroy_ah(ah));
	DONE(rdma_ack_cm_event(event));
	end_id(taken);
	end_id(id);
	set_loopback(&own, 0);
	DONE(rdma_create_id(client, &id, NULL, RDMA_PS_UDP));
	DONE(rdma_bind_addr(id, (struct sockaddr *)&own));
	make_qp(id);
	DONE(rdma_join_multicast(id, (struct sockaddr *)&group, NULL));
	take_only(client, RDMA_CM_EVENT_MULTICAST_JOIN);
	DONE(rdma_leave_multicast(id, (struct sockaddr *)&group));
	end_id(id);
	end_id(listener);
	KEEPS_VOID(rdma_destroy_event_channel(client));
	KEEPS_VOID(rdma_destroy_event_channel(server));
	none_touched();
}

static void endpoints_leave_errno_alone(void **state)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *info;
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_context **devices;
	struct rdma_cm_id *id;
	int count;

	(void)state;
	devices = MADE(rdma_get_devices(&count));
	KEEPS_VOID(rdma_free_devices(devices));
	DONE(rdma_getaddrinfo("localhost", "0", &hints, &info));
	KEEPS_VOID(rdma_freeaddrinfo(info));
	DONE(rdma_getaddrinfo("127.0.0.1", "7", &hints, &info));
	KEEPS_VOID(rdma_freeaddrinfo(info));
	hints.ai_flags = RAI_NUMERICHOST;
	DONE(rdma_getaddrinfo("127.0.0.1", "7", &hints, &info));
	DONE(rdma_create_ep(&id, info, NULL, NULL));
	KEEPS_VOID(rdma_freeaddrinfo(info));
	DONE(rdma_create_srq(id, NULL, &srq));
	KEEPS_VOID(rdma_destroy_srq(id));
	KEEPS_VOID(rdma_destroy_ep(id));
	none_touched();
}

/* rsockets, whose calls are those of sockets. */

static void streams_leave_errno_alone(void **state)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	int listener = KEEPS(rsocket(AF_INET, SOCK_STREAM, 0)), client = KEEPS(rsocket(AF_INET, SOCK_STREAM, 0)), server, one = 1;
	struct pollfd fd = { .events = POLLIN };
	char bytes[100] = { 0 };

	(void)state;
	set_loopback(&address, 0);
	DONE(rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	DONE(rbind(listener, (struct sockaddr *)&address, sizeof(address)));
	DONE(rlisten(listener, 8));
	DONE(rgetsockname(listener, (struct sockaddr *)&address, &length));
	DONE(rconnect(client, (struct sockaddr *)&address, sizeof(address)));
	server = KEEPS(raccept(listener, NULL, NULL));
	assert_true(server >= 0);
	length = sizeof(address);
	DONE(rgetpeername(client, (struct sockaddr *)&address, &length));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(KEEPS(rsend(client, bytes, sizeof(bytes), 0)), sizeof(bytes));
		fd.fd = server;
		assert_int_equal(KEEPS(rpoll(&fd, 1, 20000)), 1);
		assert_int_equal(KEEPS(rrecv(server, bytes, sizeof(bytes), 0)), sizeof(bytes));
		assert_int_equal(KEEPS(rwrite(server, bytes, sizeof(bytes))), sizeof(bytes));
		assert_int_equal(KEEPS(rread(client, bytes, sizeof(bytes))), sizeof(bytes));
		fd.fd = client;
		DONE(rpoll(&fd, 1, 1));
	}
	DONE(rfcntl(client, F_SETFL, O_NONBLOCK));
	DONE(rshutdown(client, SHUT_WR));
	DONE(rread(server, bytes, sizeof(bytes)));
	DONE(rclose(client));
	DONE(rclose(server));
	DONE(rclose(listener));
	none_touched();
}

static void datagram_sockets_leave_errno_alone(void **state)
{
	int one = KEEPS(rsocket(AF_INET, SOCK_DGRAM, 0)), other = KEEPS(rsocket(AF_INET, SOCK_DGRAM, 0));
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	char bytes[100] = { 0 };

	(void)state;
	set_loopback(&address, 0);
	DONE(rbind(one, (struct sockaddr *)&address, sizeof(address)));
	DONE(rgetsockname(one, (struct sockaddr *)&address, &length));
	DONE(rconnect(other, (struct sockaddr *)&address, sizeof(address)));
	for (int i = 0; i < 5; i++) {
		length = sizeof(address);
		assert_int_equal(KEEPS(rsend(other, bytes, sizeof(bytes), 0)), sizeof(bytes));
		assert_int_equal(KEEPS(rrecvfrom(one, bytes, sizeof(bytes), 0, (struct sockaddr *)&address, &length)),
				 sizeof(bytes));
		assert_int_equal(KEEPS(rsendto(one, bytes, sizeof(bytes), 0, (struct sockaddr *)&address, length)), sizeof(bytes));
		assert_int_equal(KEEPS(rrecv(other, bytes, sizeof(bytes), 0)), sizeof(bytes));
	}
	DONE(rclose(one));
	DONE(rclose(other));
	none_touched();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(verbs_leave_errno_alone),     cmocka_unit_test(connections_leave_errno_alone),
		cmocka_unit_test(datagrams_leave_errno_alone), cmocka_unit_test(endpoints_leave_errno_alone),
		cmocka_unit_test(streams_leave_errno_alone),   cmocka_unit_test(datagram_sockets_leave_errno_alone),
	};

	return cmocka_run_group_tests_name("errno", tests, NULL, NULL);
}
