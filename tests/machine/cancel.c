/* SPDX-License-Identifier: MIT */
/*
 * Threads that are cancelled (deferred, as is the default) in the middle of their work: it is done first, as on hardware, and what
 * they used goes on working. Where a call waits as read(2) does, they end in it and leave nothing behind.
 */
#include "cases.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include <rdma/rdma_cma.h>

#include "../rsocket/pair.h"

#define ROUNDS	 40
#define DEADLINE 10 /* s, for a thread that was cancelled to end */

static struct node node;
static struct ibv_qp *qps[2];
static atomic_bool inside, begun;

static void open_pair(void)
{
	node_open(&node);
	for (int i = 0; i < 2; i++)
		qps[i] = node_qp(&node, IBV_QPT_RC, NULL);
	node_connect_pair(&node, qps[0], qps[1], &patient);
}

static void close_pair(void)
{
	for (int i = 0; i < 2; i++)
		CHECK_EQUAL(ibv_destroy_qp(qps[i]), 0);
	node_close(&node);
}

/* ---- In the middle ---- */

static void drop_completions(void)
{
	struct ibv_wc wc;

	/* Not node_poll(), which sleeps. */
	while (ibv_poll_cq(node.cq, 1, &wc) > 0)
		CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
}

static void write_once(void)
{
	int error = node_rdma(&node, qps[0], 1, IBV_WR_RDMA_WRITE, 0, 4000,
			      (uintptr_t)node.buf + 8192, node.mr->rkey);

	CHECK(!error || error == ENOMEM);
	drop_completions();
}

static void send_once(void)
{
	if (!node_recv(&node, qps[1], 2, 0, 64))
		node_send(&node, qps[0], 1, 64, 64);
	CHECK_EQUAL(ibv_req_notify_cq(node.cq, 0), 0);
	drop_completions();
}

static void register_once(void)
{
	struct ibv_mr *mr = ibv_reg_mr(node.pd, node.buf, NODE_BYTES, IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
}

static void create_once(void)
{
	struct card card = node_card(&node, qps[0]);
	struct ibv_qp *qp = node_qp(&node, IBV_QPT_RC, NULL);

	node_connect(qp, &card, &patient);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
}

static void open_once(void)
{
	struct ibv_context *ctx = open_device();

	CHECK(ctx);
	CHECK_EQUAL(ibv_close_device(ctx), 0);
}

/* As far as the address: an event comes, and is read. */
static void resolve_once(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = 1,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_cm_id *id;

	CHECK(channel);
	CHECK_EQUAL(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);

	CHECK_EQUAL(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000), 0);
	CHECK_EQUAL(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

static void *work(void *once)
{
	for (;;) {
		atomic_store(&inside, true);
		atomic_store(&begun, true);
		((void (*)(void))once)();
		atomic_store(&inside, false);
		pthread_testcancel();
	}
	return NULL;
}

static void cancel_soon(pthread_t thread)
{
	struct timespec until;
	void *result;

	while (!atomic_load(&begun))
		usleep(100);
	usleep((useconds_t)(random() % 3000));
	CHECK_EQUAL(pthread_cancel(thread), 0);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += DEADLINE;
	CHECK_EQUAL(pthread_timedjoin_np(thread, &result, &until), 0);
	CHECK(result == PTHREAD_CANCELED);
}

static void cancel_within(void (*once)(void))
{
	open_pair();
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t thread;

		atomic_store(&begun, false);
		CHECK_EQUAL(pthread_create(&thread, NULL, work, (void *)once), 0);
		cancel_soon(thread);
		CHECK(!atomic_load(&inside));
	}
	/* Nobody has their locks. */
	once();
	for (struct ibv_wc wc; node_poll(node.cq, &wc, 200);)
		CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
	close_pair();
}

static void writing(void)
{
	cancel_within(write_once);
}

static void sending(void)
{
	cancel_within(send_once);
}

static void registering(void)
{
	cancel_within(register_once);
}

static void creating(void)
{
	cancel_within(create_once);
}

static void opening(void)
{
	cancel_within(open_once);
}

static void resolving(void)
{
	cancel_within(resolve_once);
}

/* ---- While it waits ---- */

static void *wait_for(void *call)
{
	atomic_store(&begun, true);
	((void (*)(void))call)();
	return NULL;
}

static void cancel_waiting(void (*call)(void))
{
	for (int round = 0; round < ROUNDS / 4; round++) {
		pthread_t thread;

		atomic_store(&begun, false);
		CHECK_EQUAL(pthread_create(&thread, NULL, wait_for, (void *)call), 0);
		cancel_soon(thread);
	}
}

static void get_cq_event(void)
{
	struct ibv_cq *cq;
	void *context;

	CHECK_EQUAL(ibv_get_cq_event(node.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
}

static void get_async_event(void)
{
	struct ibv_async_event event;

	CHECK_EQUAL(ibv_get_async_event(node.ctx, &event), 0);
	ibv_ack_async_event(&event);
}

/* The events that come afterwards are got. */
static void waiting_for_events(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	open_pair();
	cancel_waiting(get_cq_event);
	cancel_waiting(get_async_event);
	CHECK_EQUAL(ibv_req_notify_cq(node.cq, 0), 0);
	write_once();
	get_cq_event();
	CHECK_EQUAL(ibv_modify_qp(qps[0], &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	get_async_event();
	close_pair();
}

static struct rdma_event_channel *channel;

static void get_cm_event(void)
{
	struct rdma_cm_event *event;

	CHECK_EQUAL(rdma_get_cm_event(channel, &event), 0);
	CHECK_EQUAL(rdma_ack_cm_event(event), 0);
}

static void waiting_for_connections(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = 1,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_cm_id *id;

	channel = rdma_create_event_channel();
	CHECK(channel);
	cancel_waiting(get_cm_event);
	CHECK_EQUAL(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_EQUAL(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000), 0);
	get_cm_event();
	CHECK_EQUAL(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(channel);
}

static struct pair sockets;

static void receive(void)
{
	char byte;

	CHECK_EQUAL(rrecv(sockets.server, &byte, 1, 0), 1);
}

static void poll_it(void)
{
	struct pollfd fd = { .fd = sockets.server, .events = POLLIN };

	CHECK_EQUAL(rpoll(&fd, 1, -1), 1);
}

static void select_it(void)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(sockets.server, &set);
	CHECK_EQUAL(rselect(sockets.server + 1, &set, NULL, NULL, NULL), 1);
}

static void accept_it(void)
{
	CHECK(raccept(sockets.listener, NULL, NULL) >= 0);
}

/* What is sent afterwards arrives, and closing finds nobody at the rsockets. */
static void waiting_for_rsockets(void)
{
	int fd;

	pair_open(&sockets, NULL);
	cancel_waiting(receive);
	cancel_waiting(poll_it);
	cancel_waiting(select_it);
	cancel_waiting(accept_it);
	CHECK_EQUAL(rsend(sockets.client, "x", 1, 0), 1);
	poll_it();
	select_it();
	receive();
	fd = sockets.server;
	pair_close(&sockets);
	/* The last reference was given back. */
	CHECK_EQUAL(fcntl(fd, F_GETFD), -1);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "writing", writing },
		{ "sending", sending },
		{ "registering", registering },
		{ "creating", creating },
		{ "opening", opening },
		{ "resolving", resolving },
		{ "waiting_for_events", waiting_for_events },
		{ "waiting_for_connections", waiting_for_connections },
		{ "waiting_for_rsockets", waiting_for_rsockets },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
