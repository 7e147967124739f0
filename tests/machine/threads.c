/* SPDX-License-Identifier: MIT */
/*
 * Many threads in the verbs at once: on objects of their own, on the same objects, and while others open and close the
 * device. All in one process, whose QPs are connected to each other across two contexts, so that ThreadSanitizer sees both
 * sides of what is shared.
 */
#include "cases.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define THREADS	 6
#define ROUNDS	 60
#define MESSAGES 3000u
#define ACCESS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_ATOMIC)

typedef void work(unsigned number, void *arg);

struct worker {
	pthread_t thread;
	work *run;
	unsigned number;
	void *arg;
};

static void *run_worker(void *arg)
{
	struct worker *worker = arg;

	worker->run(worker->number, worker->arg);
	return NULL;
}

static void start(struct worker *worker, work *run, unsigned number, void *arg)
{
	*worker = (struct worker){ .run = run, .number = number, .arg = arg };
	CHECK_EQUAL(pthread_create(&worker->thread, NULL, run_worker, worker), 0);
}

static void run_in_threads(work *run, void *arg)
{
	struct worker workers[THREADS];

	for (unsigned i = 0; i < THREADS; i++)
		start(&workers[i], run, i, arg);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
}

static void query_all(struct ibv_context *ctx)
{
	struct ibv_device_attr_ex device_ex;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	__be16 pkey;

	CHECK_EQUAL(ibv_query_device(ctx, &device), 0);
	CHECK_EQUAL(ibv_query_device_ex(ctx, NULL, &device_ex), 0);
	CHECK_EQUAL(ibv_query_port(ctx, 1, &port), 0);
	CHECK_EQUAL(ibv_query_gid(ctx, 1, 0, &gid), 0);
	CHECK_EQUAL(ibv_query_gid_ex(ctx, 1, 0, &entry, 0), 0);
	CHECK_EQUAL(ibv_query_pkey(ctx, 1, 0, &pkey), 0);
	CHECK(ibv_get_device_name(ctx->device) && ibv_get_device_guid(ctx->device));
}

static void use_regions(struct ibv_pd *pd)
{
	uint8_t bytes[8192];
	struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof(bytes), ACCESS);
	struct ibv_mr *at =
		ibv_reg_mr_iova(pd, bytes, sizeof(bytes), (uintptr_t)bytes + (1u << 30), ACCESS);

	CHECK(mr && at && mr->lkey != at->lkey);
	CHECK_EQUAL(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				 IBV_ACCESS_LOCAL_WRITE),
		    0);
	CHECK_EQUAL(ibv_dereg_mr(at), 0);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
}

static void use_extended_cq(struct ibv_context *ctx)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr poll_attr = { 0 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &attr);

	CHECK(cq);
	CHECK_EQUAL(ibv_start_poll(cq, &poll_attr), ENOENT);
	CHECK_EQUAL(ibv_resize_cq(ibv_cq_ex_to_cq(cq), 64), 0);
	CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

static void use_srq(struct node *node)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq_attr attr = { .srq_limit = 0 };
	struct ibv_srq *srq = ibv_create_srq(node->pd, &init);

	CHECK(srq);
	for (unsigned i = 0; i < 16; i++)
		CHECK_EQUAL(node_srq_recv(node, srq, i, 0, 64), 0);
	attr.srq_limit = 4;
	CHECK_EQUAL(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
	CHECK_EQUAL(ibv_query_srq(srq, &attr), 0);
	CHECK_EQUAL(attr.srq_limit, 4);

	struct ibv_qp *qp = node_qp(node, IBV_QPT_UD, srq);

	node_connect(qp, NULL, &patient);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	CHECK_EQUAL(ibv_destroy_srq(srq), 0);
}

static void use_address_handle(struct node *node)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = node->gid, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(node->pd, &attr);

	CHECK(ah);
	CHECK_EQUAL(ibv_destroy_ah(ah), 0);
}

/* A message by classic posting, one by extended, and the event of the latter. */
static void use_connection(struct node *node, unsigned number)
{
	uint32_t at = number * 1024;
	struct ibv_qp_init_attr_ex init = {
		.send_cq = node->cq,
		.recv_cq = node->cq,
		.cap = { .max_send_wr = 4,
			 .max_recv_wr = 4,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = 64 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = node->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp *sender = ibv_create_qp_ex(node->ctx, &init),
		      *receiver = node_qp(node, IBV_QPT_RC, NULL);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(sender);
	struct ibv_cq *event_cq;
	void *event_context;

	CHECK(ex);
	node_init_qp(sender, patient.access);
	node_connect_pair(node, sender, receiver, &patient);
	CHECK_EQUAL(node_state(sender), IBV_QPS_RTS);
	CHECK_EQUAL(node_recv(node, receiver, 1, at, 64), 0);
	CHECK_EQUAL(node_recv(node, receiver, 2, at, 64), 0);
	CHECK_EQUAL(node_send(node, sender, 3, at + 512, 64), 0);
	CHECK_EQUAL(ibv_req_notify_cq(node->cq, 0), 0);
	ibv_wr_start(ex);
	ex->wr_id = 4;
	ex->wr_flags = 0;
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, node->buf + at, 64);
	CHECK_EQUAL(ibv_wr_complete(ex), 0);
	for (int left = 4; left; left--) {
		struct ibv_wc wc;

		CHECK(node_poll(node->cq, &wc, TIMEOUT_MS));
		CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
	}
	CHECK_EQUAL(ibv_get_cq_event(node->channel, &event_cq, &event_context), 0);
	CHECK(event_cq == node->cq);
	ibv_ack_cq_events(event_cq, 1);
	CHECK_EQUAL(ibv_destroy_qp(sender), 0);
	CHECK_EQUAL(ibv_destroy_qp(receiver), 0);
}

/* One context for all; everything below it is the thread's own. */
static void use_every_verb(unsigned number, void *arg)
{
	struct node *shared = arg;

	for (unsigned round = 0; round < ROUNDS; round++) {
		struct node node = { .ctx = shared->ctx, .buf = shared->buf, .gid = shared->gid };

		query_all(node.ctx);
		node.pd = ibv_alloc_pd(node.ctx);
		node.channel = ibv_create_comp_channel(node.ctx);
		CHECK(node.pd && node.channel);
		node.cq = ibv_create_cq(node.ctx, NODE_DEPTH, NULL, node.channel, 0);
		node.mr = ibv_reg_mr(node.pd, node.buf + number * 1024, 1024, ACCESS);
		CHECK(node.cq && node.mr);
		use_regions(node.pd);
		use_extended_cq(node.ctx);
		use_srq(&node);
		use_address_handle(&node);
		use_connection(&node, number);
		CHECK_EQUAL(ibv_dereg_mr(node.mr), 0);
		CHECK_EQUAL(ibv_destroy_cq(node.cq), 0);
		CHECK_EQUAL(ibv_destroy_comp_channel(node.channel), 0);
		CHECK_EQUAL(ibv_dealloc_pd(node.pd), 0);
	}
}

static void every_verb(void)
{
	struct node node;

	node_open(&node);
	run_in_threads(use_every_verb, &node);
	node_close(&node);
}

/* Two contexts, a QP of each connected to the other's, and what threads count of them together. */
struct joint {
	struct node sender, receiver;
	struct ibv_qp *from, *to;
	struct ibv_srq *srq; /* or NULL */
	_Atomic unsigned posted, sent, received;
	_Atomic bool over;
};

static void open_joint(struct joint *joint, bool with_srq)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = NODE_DEPTH, .max_sge = 1 } };
	struct card card;

	memset(joint, 0, sizeof(*joint));
	node_open(&joint->sender);
	node_open(&joint->receiver);
	if (with_srq) {
		joint->srq = ibv_create_srq(joint->receiver.pd, &init);
		CHECK(joint->srq);
	}
	joint->from = node_qp(&joint->sender, IBV_QPT_RC, NULL);
	joint->to = node_qp(&joint->receiver, IBV_QPT_RC, joint->srq);
	card = node_card(&joint->receiver, joint->to);
	node_connect(joint->from, &card, &patient);
	card = node_card(&joint->sender, joint->from);
	node_connect(joint->to, &card, &patient);
}

static void close_joint(struct joint *joint)
{
	CHECK_EQUAL(ibv_destroy_qp(joint->from), 0);
	CHECK_EQUAL(ibv_destroy_qp(joint->to), 0);
	if (joint->srq)
		CHECK_EQUAL(ibv_destroy_srq(joint->srq), 0);
	node_close(&joint->sender);
	node_close(&joint->receiver);
}

static void receive_once(struct joint *joint)
{
	int error = joint->srq ? node_srq_recv(&joint->receiver, joint->srq, 1, 0, 64) :
				 node_recv(&joint->receiver, joint->to, 1, 0, 64);

	CHECK(!error || error == ENOMEM);
}

/* Polls one CQ, whose completions are all of one kind. */
static unsigned collect(struct ibv_cq *cq)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(cq, 4, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		CHECK_EQUAL(wc[i].status, IBV_WC_SUCCESS);
	return (unsigned)n;
}

/* Every thread posts sends and receives, and polls both CQs, until all messages have gone through. */
static void take_part(unsigned number, void *arg)
{
	struct joint *joint = arg;

	(void)number;
	while (joint->sent < MESSAGES || joint->received < MESSAGES) {
		receive_once(joint);
		if (atomic_fetch_add(&joint->posted, 1) < MESSAGES) {
			int error =
				node_send(&joint->sender, joint->from, 2, 4096 + number * 64, 64);

			CHECK(!error || error == ENOMEM);
			if (error)
				atomic_fetch_sub(&joint->posted, 1);
		} else {
			atomic_fetch_sub(&joint->posted, 1);
		}
		atomic_fetch_add(&joint->sent, collect(joint->sender.cq));
		atomic_fetch_add(&joint->received, collect(joint->receiver.cq));
	}
}

static void same_objects(bool with_srq)
{
	struct joint joint;

	open_joint(&joint, with_srq);
	run_in_threads(take_part, &joint);
	CHECK_EQUAL(joint.sent, MESSAGES);
	CHECK_EQUAL(joint.received, MESSAGES);
	close_joint(&joint);
}

static void same_queues(void)
{
	same_objects(false);
}

static void same_srq(void)
{
	same_objects(true);
}

/* WRITEs go on to a region that stays, beside all that comes and goes in both contexts. */
static void keep_writing(unsigned number, void *arg)
{
	struct joint *joint = arg;

	(void)number;
	while (!joint->over) {
		CHECK_EQUAL(node_rdma(&joint->sender, joint->from, 3, IBV_WR_RDMA_WRITE, 0, 256,
				      (uintptr_t)joint->receiver.buf + 8192,
				      joint->receiver.mr->rkey),
			    0);
		node_expect(joint->sender.cq, 3, IBV_WC_SUCCESS);
	}
}

static void create_and_destroy(unsigned number, void *arg)
{
	struct joint *joint = arg;

	for (unsigned round = 0; round < ROUNDS; round++) {
		struct node *node = (round + number) % 2 ? &joint->sender : &joint->receiver;
		struct ibv_cq *cq = ibv_create_cq(node->ctx, 100, NULL, node->channel, 0);
		struct ibv_qp *qp = node_qp(node, IBV_QPT_RC, NULL);
		struct card card;

		CHECK(cq);
		use_regions(node->pd);
		use_address_handle(node);
		use_srq(node);
		card = node_card(node, qp);
		node_connect(qp, &card, &patient);
		CHECK_EQUAL(ibv_destroy_qp(qp), 0);
		CHECK_EQUAL(ibv_destroy_cq(cq), 0);
	}
}

static void beside_traffic(void)
{
	struct worker writer;
	struct joint joint;

	open_joint(&joint, false);
	start(&writer, keep_writing, 0, &joint);
	run_in_threads(create_and_destroy, &joint);
	joint.over = true;
	pthread_join(writer.thread, NULL);
	close_joint(&joint);
}

/* The process's NIC comes and goes with the last context, whoever has it. */
static void open_and_close(unsigned number, void *arg)
{
	(void)number;
	(void)arg;
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct ibv_context *ctx = open_device();
		struct ibv_pd *pd;

		CHECK(ctx);
		pd = ibv_alloc_pd(ctx);
		CHECK(pd);
		query_all(ctx);
		use_regions(pd);
		CHECK_EQUAL(ibv_dealloc_pd(pd), 0);
		CHECK_EQUAL(ibv_close_device(ctx), 0);
	}
}

static void opening(void)
{
	unsigned fds = count_fds();

	run_in_threads(open_and_close, NULL);
	CHECK_EQUAL(count_fds(), fds);
}

/* Sleepers on one channel and on one context's events, while others make completions and events. */
struct sleepers {
	struct joint joint;
	_Atomic unsigned events;
};

static void wait_for_completions(unsigned number, void *arg)
{
	struct sleepers *sleepers = arg;
	struct joint *joint = &sleepers->joint;

	(void)number;
	while (joint->received < MESSAGES) {
		struct pollfd readable = { .fd = joint->receiver.channel->fd, .events = POLLIN };
		struct ibv_cq *cq;
		void *context;

		receive_once(joint);
		CHECK_EQUAL(ibv_req_notify_cq(joint->receiver.cq, 0), 0);
		atomic_fetch_add(&joint->received, collect(joint->receiver.cq));
		if (joint->received >= MESSAGES || poll(&readable, 1, 1) != 1)
			continue;
		/* Its descriptor does not block: another thread may have been first. */
		if (ibv_get_cq_event(joint->receiver.channel, &cq, &context))
			continue;
		atomic_fetch_add(&sleepers->events, 1);
		ibv_ack_cq_events(cq, 1);
	}
}

static void send_all(unsigned number, void *arg)
{
	struct sleepers *sleepers = arg;
	struct joint *joint = &sleepers->joint;

	(void)number;
	for (unsigned i = 0; i < MESSAGES; i++) {
		CHECK_EQUAL(node_send(&joint->sender, joint->from, 2, 4096, 64), 0);
		node_expect(joint->sender.cq, 2, IBV_WC_SUCCESS);
	}
}

static void sleeping(void)
{
	struct sleepers sleepers = { .events = 0 };
	struct worker sender;

	open_joint(&sleepers.joint, false);
	CHECK_EQUAL(fcntl(sleepers.joint.receiver.channel->fd, F_SETFL, O_NONBLOCK), 0);
	start(&sender, send_all, 0, &sleepers);
	run_in_threads(wait_for_completions, &sleepers);
	pthread_join(sender.thread, NULL);
	CHECK_EQUAL(sleepers.joint.received, MESSAGES);
	CHECK(sleepers.events);
	close_joint(&sleepers.joint);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "every_verb_on_objects_of_their_own", every_verb },
		{ "one_queue_pair_and_its_cqs", same_queues },
		{ "one_srq_and_its_cqs", same_srq },
		{ "create_and_destroy_beside_traffic", beside_traffic },
		{ "open_and_close_the_device", opening },
		{ "sleep_on_one_channel", sleeping },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
