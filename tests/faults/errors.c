/* SPDX-License-Identifier: MIT */
/*
 * What goes wrong without anybody dying: statuses, states, flush order, events, times, on QPs of
 * one process that are connected to each other. /
 */
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>

struct pair {
	struct node node;
	struct ibv_qp *a, *b;
};

static void open_pair_with(struct pair *p, enum ibv_qp_type type, struct link_attr a,
			   struct link_attr b)
{
	struct card a_card, b_card;

	node_open(&p->node);
	p->a = node_qp(&p->node, type, NULL);
	p->b = node_qp(&p->node, type, NULL);
	a_card = node_card(&p->node, p->a);
	b_card = node_card(&p->node, p->b);
	node_connect(p->a, &b_card, &a);
	node_connect(p->b, &a_card, &b);
}

static void open_pair(struct pair *p, enum ibv_qp_type type)
{
	open_pair_with(p, type, node_defaults, node_defaults);
}

static void close_pair(struct pair *p)
{
	CHECK_EQUAL(ibv_destroy_qp(p->a), 0);
	CHECK_EQUAL(ibv_destroy_qp(p->b), 0);
	node_close(&p->node);
}

static void expect_nothing(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	CHECK(!node_poll(cq, &wc, 20));
}

static void rnr_retry_exhausts_after_the_attributes_count_and_time(void)
{
	struct link_attr retrying = node_defaults, slow = node_defaults;
	struct pair p;
	uint64_t start;

	retrying.rnr_retry = 3;
	slow.min_rnr_timer = 20; /* 10.24 ms */
	open_pair_with(&p, IBV_QPT_RC, retrying, slow);
	start = now_ms();
	CHECK_EQUAL(node_send(&p.node, p.a, 1, 0, 8), 0);
	CHECK_EQUAL(node_send(&p.node, p.a, 2, 0, 8), 0);
	CHECK_EQUAL(node_recv(&p.node, p.a, 3, 0, 8), 0);
	node_expect(p.node.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	CHECK(now_ms() - start >= 30);
	node_expect(p.node.cq, 2, IBV_WC_WR_FLUSH_ERR);
	node_expect(p.node.cq, 3, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQUAL(node_state(p.a), IBV_QPS_ERR);
	CHECK_EQUAL(node_state(p.b), IBV_QPS_RTS); /* the receiver did nothing wrong */
	close_pair(&p);
}

static void no_rnr_retry_fails_at_once(void)
{
	struct link_attr link = node_defaults;
	struct pair p;
	uint64_t start;

	link.rnr_retry = 0;
	link.min_rnr_timer = 0; /* 655 ms */
	open_pair_with(&p, IBV_QPT_RC, link, link);
	start = now_ms();
	CHECK_EQUAL(node_send(&p.node, p.a, 1, 0, 8), 0);
	node_expect(p.node.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	CHECK(now_ms() - start < 600);
	close_pair(&p);
}

static void receive_posted_late_is_found_by_the_retry(void)
{
	struct link_attr link = node_defaults;
	struct pair p;

	link.min_rnr_timer = 14; /* 1.28 ms */
	open_pair_with(&p, IBV_QPT_RC, link, link);
	CHECK_EQUAL(node_send(&p.node, p.a, 1, 0, 8), 0);
	expect_nothing(p.node.cq);
	CHECK_EQUAL(node_recv(&p.node, p.b, 2, 8, 8), 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc;

		CHECK(node_poll(p.node.cq, &wc, TIMEOUT_MS));
		CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
	}
	close_pair(&p);
}

/* a asks b, which is connected to something else: nobody answers. */
static void check_silence(struct node *node, struct ibv_qp *a, struct ibv_qp *b,
			  const struct link_attr *link, bool takes_what_is_not_its_own)
{
	uint64_t start = now_ms(), least = (4096ull << link->timeout) * link->retry_cnt / 1000000;

	CHECK_EQUAL(node_recv(node, b, 9, 0, 8), 0);
	CHECK_EQUAL(node_send(node, a, 1, 0, 8), 0);
	/* Packets do not say whose they are: over the wire b takes them for its peer's, and answers that. */
	if (takes_what_is_not_its_own)
		node_expect(node->cq, 9, IBV_WC_SUCCESS);
	CHECK_EQUAL(node_rdma(node, a, 2, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)node->buf,
			      node->mr->rkey),
		    0);
	node_expect(node->cq, 1, IBV_WC_RETRY_EXC_ERR);
	CHECK(now_ms() - start >= least);
	CHECK(now_ms() - start < 20 * least + 2000);
	node_expect(node->cq, 2, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQUAL(node_state(a), IBV_QPS_ERR);
	expect_nothing(node->cq);
}

static const struct link_attr retrying = { .mtu = IBV_MTU_1024,
					   .timeout = 12 /* 17 ms */,
					   .retry_cnt = 3,
					   .rnr_retry = 7,
					   .rd_atomic = 4,
					   .dest_rd_atomic = 4 };

static void peer_that_is_not_connected_back_is_silent(void)
{
	struct node node;
	struct ibv_qp *a, *b, *c;
	struct card card;

	node_open(&node);
	a = node_qp(&node, IBV_QPT_RC, NULL);
	b = node_qp(&node, IBV_QPT_RC, NULL);
	c = node_qp(&node, IBV_QPT_RC, NULL);
	card = node_card(&node, b);
	node_connect(a, &card, &retrying);
	card = node_card(&node, c);
	node_connect(b, &card, &retrying);
	check_silence(&node, a, b, &retrying, over_the_wire());
	CHECK_EQUAL(node_state(b), IBV_QPS_RTS);
	CHECK_EQUAL(ibv_destroy_qp(c), 0);
	CHECK_EQUAL(ibv_destroy_qp(b), 0);
	CHECK_EQUAL(ibv_destroy_qp(a), 0);
	node_close(&node);
}

static void peer_that_is_in_init_is_silent(void)
{
	struct node node;
	struct ibv_qp *a, *b;
	struct card card;

	node_open(&node);
	a = node_qp(&node, IBV_QPT_RC, NULL);
	b = node_qp(&node, IBV_QPT_RC, NULL);
	card = node_card(&node, b);
	node_connect(a, &card, &retrying);
	check_silence(&node, a, b, &retrying, false);
	CHECK_EQUAL(ibv_destroy_qp(b), 0);
	CHECK_EQUAL(ibv_destroy_qp(a), 0);
	node_close(&node);
}

static void psns_that_disagree_are_silent(void)
{
	struct link_attr other = retrying;
	struct pair p;

	other.rq_psn = 1000; /* of one less the wire's responder would acknowledge what is before it as duplicates */
	open_pair_with(&p, IBV_QPT_RC, retrying, other);
	check_silence(&p.node, p.a, p.b, &retrying, false);
	CHECK_EQUAL(node_state(p.b), IBV_QPS_RTS);
	close_pair(&p);
}

static void psns_count_packets_and_wrap(void)
{
	struct link_attr a = node_defaults, b = node_defaults;
	struct pair p;
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	a.sq_psn = b.rq_psn = 0xfffffe;
	open_pair_with(&p, IBV_QPT_RC, a, b);
	for (int i = 0; i < 4; i++) {
		CHECK_EQUAL(node_rdma(&p.node, p.a, 1, IBV_WR_RDMA_WRITE, 0, 1025,
				      (uintptr_t)p.node.buf + 4096, p.node.mr->rkey),
			    0);
		node_expect(p.node.cq, 1, IBV_WC_SUCCESS);
	}
	CHECK_EQUAL(ibv_query_qp(p.a, &attr, IBV_QP_SQ_PSN, &init), 0);
	CHECK_EQUAL(attr.sq_psn, 6);
	close_pair(&p);
}

static void mtus_that_disagree_fail_messages_of_several_packets(void)
{
	struct link_attr small = node_defaults, large = node_defaults;
	struct pair p;

	small.mtu = IBV_MTU_256;
	open_pair_with(&p, IBV_QPT_RC, small, large);
	CHECK_EQUAL(node_rdma(&p.node, p.a, 1, IBV_WR_RDMA_WRITE, 0, 256,
			      (uintptr_t)p.node.buf + 4096, p.node.mr->rkey),
		    0);
	node_expect(p.node.cq, 1, IBV_WC_SUCCESS);
	CHECK_EQUAL(node_rdma(&p.node, p.a, 2, IBV_WR_RDMA_WRITE, 0, 257,
			      (uintptr_t)p.node.buf + 4096, p.node.mr->rkey),
		    0);
	node_expect(p.node.cq, 2, IBV_WC_REM_INV_REQ_ERR);
	node_expect_event(p.node.ctx, IBV_EVENT_QP_ACCESS_ERR, p.b);
	CHECK_EQUAL(node_state(p.b), IBV_QPS_ERR);
	close_pair(&p);
}

static void more_reads_than_the_responder_takes_fail(void)
{
	struct link_attr many = node_defaults, none = node_defaults;
	struct pair p;

	none.dest_rd_atomic = 0;
	open_pair_with(&p, IBV_QPT_RC, many, none);
	CHECK_EQUAL(node_rdma(&p.node, p.a, 1, IBV_WR_RDMA_READ, 0, 8, (uintptr_t)p.node.buf + 4096,
			      p.node.mr->rkey),
		    0);
	node_expect(p.node.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	CHECK_EQUAL(node_state(p.b), IBV_QPS_ERR);
	close_pair(&p);
}

static void read_without_initiator_depth_is_a_local_error(void)
{
	struct link_attr none = node_defaults;
	struct pair p;

	none.rd_atomic = 0;
	open_pair_with(&p, IBV_QPT_RC, none, node_defaults);
	CHECK_EQUAL(node_rdma(&p.node, p.a, 1, IBV_WR_RDMA_READ, 0, 8, (uintptr_t)p.node.buf + 4096,
			      p.node.mr->rkey),
		    0);
	node_expect(p.node.cq, 1, IBV_WC_LOC_QP_OP_ERR);
	CHECK_EQUAL(node_state(p.b), IBV_QPS_RTS);
	close_pair(&p);
}

/* Both ends: the requester's completion, the responder's event and flushed receives. */
static void remote_access_error_is_told_at_both_ends(void)
{
	struct pair p;

	open_pair(&p, IBV_QPT_RC);
	CHECK_EQUAL(node_recv(&p.node, p.b, 7, 0, 8), 0);
	CHECK_EQUAL(node_rdma(&p.node, p.a, 1, IBV_WR_RDMA_WRITE, 0, 8,
			      (uintptr_t)p.node.buf + NODE_BYTES - 7, p.node.mr->rkey),
		    0);
	node_expect(p.node.cq, 1, IBV_WC_REM_ACCESS_ERR);
	CHECK_EQUAL(node_state(p.a), IBV_QPS_ERR);
	node_expect_event(p.node.ctx, IBV_EVENT_QP_ACCESS_ERR, p.b);
	CHECK_EQUAL(node_state(p.b), IBV_QPS_ERR);
	node_expect(p.node.cq, 7, IBV_WC_WR_FLUSH_ERR);
	close_pair(&p);
}

/* The event comes although the owner finds out by itself, by posting, at the same moment. */
static void access_error_is_told_to_one_who_is_posting(void)
{
	struct pair p;

	open_pair(&p, IBV_QPT_RC);
	for (int round = 0; round < 200; round++) {
		struct ibv_wc wc;
		int got = 0;

		CHECK_EQUAL(node_rdma(&p.node, p.a, 1, IBV_WR_RDMA_WRITE, 0, 8, 0, p.node.mr->rkey),
			    0);
		if (round % 2)
			CHECK_EQUAL(node_send(&p.node, p.b, 2, 0, 8), 0);
		else
			CHECK_EQUAL(node_recv(&p.node, p.b, 2, 0, 8), 0);
		while (got < 2) {
			CHECK(node_poll(p.node.cq, &wc, TIMEOUT_MS));
			CHECK_EQUAL(wc.status,
				    wc.wr_id == 1 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
			got++;
		}
		node_expect_event(p.node.ctx, IBV_EVENT_QP_ACCESS_ERR, p.b);
		for (struct ibv_qp **qp = (struct ibv_qp *[]){ p.a, p.b, NULL }; *qp; qp++) {
			struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

			CHECK_EQUAL(ibv_modify_qp(*qp, &reset, IBV_QP_STATE), 0);
			node_init_qp(*qp, node_defaults.access);
		}
		node_connect_pair(&p.node, p.a, p.b, &node_defaults);
	}
	close_pair(&p);
}

static void send_longer_than_the_receive_fails_both_ends(void)
{
	struct pair p;

	open_pair(&p, IBV_QPT_RC);
	CHECK_EQUAL(node_recv(&p.node, p.b, 7, 4096, 16), 0);
	CHECK_EQUAL(node_recv(&p.node, p.b, 8, 4096, 16), 0);
	memset(p.node.buf, 0xaa, 17);
	CHECK_EQUAL(node_send(&p.node, p.a, 1, 0, 17), 0);

	/* One CQ for all: which end's completion comes first is not said. */
	for (int i = 0; i < 3; i++) {
		struct ibv_wc wc;

		CHECK(node_poll(p.node.cq, &wc, TIMEOUT_MS));
		CHECK_EQUAL(wc.status, wc.wr_id == 1 ? IBV_WC_REM_INV_REQ_ERR :
				       wc.wr_id == 7 ? IBV_WC_LOC_LEN_ERR :
						       IBV_WC_WR_FLUSH_ERR);
		CHECK(wc.wr_id != 8 || i > 0);
	}
	for (int i = 0; i < 32; i++)
		CHECK_EQUAL(p.node.buf[4096 + i], 0);
	CHECK_EQUAL(node_state(p.a), IBV_QPS_ERR);
	CHECK_EQUAL(node_state(p.b), IBV_QPS_ERR);
	close_pair(&p);
}

static void overflow_of_a_cq_fails_its_qps_and_raises_an_event(void)
{
	struct pair p;
	struct ibv_cq *small;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 32,
			 .max_recv_wr = 32,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *c, *d;
	struct ibv_wc wc;
	int polled = 0;

	open_pair(&p, IBV_QPT_RC);
	small = ibv_create_cq(p.node.ctx, 3, NULL, NULL, 0);
	CHECK(small);
	init.send_cq = small;
	init.recv_cq = p.node.cq;
	c = ibv_create_qp(p.node.pd, &init);
	d = node_qp(&p.node, IBV_QPT_RC, NULL);
	CHECK(c);
	node_init_qp(c, node_defaults.access);
	node_connect_pair(&p.node, c, d, &node_defaults);
	for (int i = 0; i <= small->cqe; i++)
		CHECK_EQUAL(node_rdma(&p.node, c, 1, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p.node.buf,
				      p.node.mr->rkey),
			    0);
	node_expect_event(p.node.ctx, IBV_EVENT_CQ_ERR, small);
	CHECK_EQUAL(node_state(c), IBV_QPS_ERR);
	/* QPs of other CQs know nothing of it. */
	CHECK_EQUAL(node_state(p.a), IBV_QPS_RTS);
	CHECK_EQUAL(node_rdma(&p.node, p.a, 5, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p.node.buf,
			      p.node.mr->rkey),
		    0);
	node_expect(p.node.cq, 5, IBV_WC_SUCCESS);
	while (ibv_poll_cq(small, 1, &wc) == 1)
		polled++;
	CHECK_EQUAL(polled, small->cqe);
	CHECK_EQUAL(ibv_destroy_qp(c), 0);
	CHECK_EQUAL(ibv_destroy_qp(d), 0);
	CHECK_EQUAL(ibv_destroy_cq(small), 0);
	close_pair(&p);
}

static void overflow_of_the_receivers_cq_fails_the_sender(void)
{
	struct node node;
	struct ibv_cq *small;
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 32,
			 .max_recv_wr = 32,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *a, *b;
	struct ibv_wc wc;
	int ok = 0;

	node_open(&node);
	small = ibv_create_cq(node.ctx, 3, NULL, NULL, 0);
	CHECK(small);
	init.send_cq = node.cq;
	init.recv_cq = small;
	b = ibv_create_qp(node.pd, &init);
	CHECK(b);
	node_init_qp(b, node_defaults.access);
	a = node_qp(&node, IBV_QPT_RC, NULL);
	node_connect_pair(&node, a, b, &retrying);
	for (int i = 0; i < 8; i++)
		CHECK_EQUAL(node_recv(&node, b, 1, 0, 8), 0);
	for (int i = 0; i < 8; i++)
		CHECK_EQUAL(node_send(&node, a, 2, 8, 8), 0);
	for (int i = 0; i < 8; i++) {
		CHECK(node_poll(node.cq, &wc, TIMEOUT_MS));
		ok += wc.status == IBV_WC_SUCCESS;
	}
	CHECK(ok < 8);
	CHECK_EQUAL(node_state(a), IBV_QPS_ERR);
	while (node_state(b) != IBV_QPS_ERR)
		usleep(1000);
	CHECK_EQUAL(ibv_destroy_qp(a), 0);
	CHECK_EQUAL(ibv_destroy_qp(b), 0);
	CHECK_EQUAL(ibv_destroy_cq(small), 0);
	node_close(&node);
}

static struct ibv_srq *make_srq(struct node *node, uint32_t depth)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = depth, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(node->pd, &init);

	CHECK(srq);
	return srq;
}

static void srq_limit_raises_its_event_once(void)
{
	struct node node;
	struct ibv_srq *srq;
	struct ibv_srq_attr limit = { .srq_limit = 4 };
	struct ibv_qp *a, *b;
	struct pollfd readable;

	node_open(&node);
	srq = make_srq(&node, 16);
	a = node_qp(&node, IBV_QPT_RC, NULL);
	b = node_qp(&node, IBV_QPT_RC, srq);
	node_connect_pair(&node, a, b, &node_defaults);
	for (int i = 0; i < 8; i++)
		CHECK_EQUAL(node_srq_recv(&node, srq, 1, 0, 8), 0);
	CHECK_EQUAL(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	readable = (struct pollfd){ .fd = node.ctx->async_fd, .events = POLLIN };
	for (int i = 0; i < 8; i++) {
		struct ibv_wc wc;

		CHECK_EQUAL(node_send(&node, a, 2, 8, 8), 0);
		for (int j = 0; j < 2; j++)
			CHECK(node_poll(node.cq, &wc, TIMEOUT_MS));
		if (i == 4) {
			node_expect_event(node.ctx, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
			continue;
		}
		CHECK_EQUAL(poll(&readable, 1, 20), 0);
	}
	CHECK_EQUAL(poll(&readable, 1, 20), 0);
	CHECK_EQUAL(ibv_query_srq(srq, &limit), 0);
	CHECK_EQUAL(limit.srq_limit, 0);
	CHECK_EQUAL(ibv_destroy_qp(a), 0);
	CHECK_EQUAL(ibv_destroy_qp(b), 0);
	CHECK_EQUAL(ibv_destroy_srq(srq), 0);
	node_close(&node);
}

static void last_wqe_event_comes_once(void)
{
	struct node node;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct card card;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct pollfd readable;

	node_open(&node);
	srq = make_srq(&node, 16);
	qp = node_qp(&node, IBV_QPT_RC, srq);
	card = node_card(&node, qp);
	node_connect(qp, &card, &node_defaults);
	CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	node_expect_event(node.ctx, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
	readable = (struct pollfd){ .fd = node.ctx->async_fd, .events = POLLIN };
	CHECK_EQUAL(poll(&readable, 1, 20), 0);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	CHECK_EQUAL(ibv_destroy_srq(srq), 0);
	node_close(&node);
}

static void destroying_drops_work_that_waits(void)
{
	struct link_attr link = node_defaults;
	struct pair p;
	struct ibv_wc wc;

	link.min_rnr_timer = 20;
	for (int round = 0; round < 20; round++) {
		open_pair_with(&p, IBV_QPT_RC, link, link);
		/* Waits for a receive; completed and not polled; posted and not taken. */
		for (uint64_t i = 0; i < 8; i++) {
			CHECK_EQUAL(node_rdma(&p.node, p.b, i, IBV_WR_RDMA_WRITE, 0, 8,
					      (uintptr_t)p.node.buf, p.node.mr->rkey),
				    0);
			CHECK_EQUAL(node_recv(&p.node, p.a, i, 0, 8), 0);
			CHECK_EQUAL(node_send(&p.node, p.a, i, 0, 8), 0);
		}
		CHECK_EQUAL(ibv_destroy_qp(p.a), 0);
		CHECK_EQUAL(ibv_destroy_qp(p.b), 0);
		CHECK_EQUAL(ibv_poll_cq(p.node.cq, 1, &wc), 0);
		node_close(&p.node);
	}
}

static void destroying_a_failed_qp_beside_its_flushing_is_clean(void)
{
	struct pair p;

	node_open(&p.node);
	for (int round = 0; round < 300; round++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

		p.a = node_qp(&p.node, IBV_QPT_RC, NULL);
		p.b = node_qp(&p.node, IBV_QPT_RC, NULL);
		node_connect_pair(&p.node, p.a, p.b, &node_defaults);
		CHECK_EQUAL(node_recv(&p.node, p.a, 1, 0, 8), 0);
		CHECK_EQUAL(node_send(&p.node, p.a, 1, 0, 8), 0);
		/* Fails b through its responder's side, so that the helper flushes it. */
		CHECK_EQUAL(node_rdma(&p.node, p.a, 1, IBV_WR_RDMA_WRITE, 0, 8, 0, 0), 0);
		if (round % 2)
			CHECK_EQUAL(ibv_modify_qp(p.a, &attr, IBV_QP_STATE), 0);
		CHECK_EQUAL(ibv_destroy_qp(p.b), 0);
		CHECK_EQUAL(ibv_destroy_qp(p.a), 0);
	}
	node_close(&p.node);
}

static void reset_qp_serves_again_and_shows_nothing_of_before(void)
{
	struct pair p;
	struct ibv_wc wc;

	open_pair(&p, IBV_QPT_RC);
	for (int round = 0; round < 50; round++) {
		struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

		CHECK_EQUAL(node_recv(&p.node, p.b, 2, 4096, 8), 0);
		CHECK_EQUAL(node_send(&p.node, p.a, 1, 0, 8), 0);
		for (int i = 0; i < 2; i++) {
			CHECK(node_poll(p.node.cq, &wc, TIMEOUT_MS));
			CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
		}
		/* Left behind: receives, a send that waits, completions. */
		CHECK_EQUAL(node_recv(&p.node, p.a, 3, 0, 8), 0);
		CHECK_EQUAL(node_send(&p.node, p.b, 4, 0, 8), 0);
		CHECK_EQUAL(node_send(&p.node, p.b, 5, 0, 8), 0);
		CHECK_EQUAL(ibv_modify_qp(p.b, &reset, IBV_QP_STATE), 0);
		CHECK_EQUAL(ibv_modify_qp(p.a, &reset, IBV_QP_STATE), 0);
		CHECK_EQUAL(ibv_poll_cq(p.node.cq, 1, &wc), 0);
		node_init_qp(p.a, node_defaults.access);
		node_init_qp(p.b, node_defaults.access);
		node_connect_pair(&p.node, p.a, p.b, &node_defaults);
	}
	close_pair(&p);
}

static void failed_send_of_ud_and_uc_goes_to_sqe_and_back(void)
{
	const enum ibv_qp_type types[] = { IBV_QPT_UC, IBV_QPT_UD };

	for (int t = 0; t < 2; t++) {
		struct node node;
		struct ibv_qp *a, *b;
		struct ibv_ah_attr ah_attr = { .is_global = 1,
					       .port_num = 1,
					       .grh = { .hop_limit = 1 } };
		struct ibv_sge sge = { .addr = 0, .length = 8, .lkey = 0 };
		struct ibv_send_wr wr = { .wr_id = 1,
					  .sg_list = &sge,
					  .num_sge = 1,
					  .opcode = IBV_WR_SEND },
				   *bad;
		struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE };
		struct ibv_wc wc;

		node_open(&node);
		a = node_qp(&node, types[t], NULL);
		b = node_qp(&node, types[t], NULL);
		node_connect_pair(&node, a, b, &node_defaults);
		ah_attr.grh.dgid = node.gid;
		if (types[t] == IBV_QPT_UD) {
			wr.wr.ud.ah = ibv_create_ah(node.pd, &ah_attr);
			CHECK(wr.wr.ud.ah);
			wr.wr.ud.remote_qpn = b->qp_num;
			wr.wr.ud.remote_qkey = 0x11;
		}
		CHECK_EQUAL(ibv_post_send(a, &wr, &bad), 0);
		node_expect(node.cq, 1, IBV_WC_LOC_PROT_ERR);
		CHECK_EQUAL(node_state(a), IBV_QPS_SQE);
		wr.wr_id = 2;
		CHECK_EQUAL(ibv_post_send(a, &wr, &bad), 0);
		node_expect(node.cq, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQUAL(ibv_modify_qp(a, &rts, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
		CHECK_EQUAL(node_recv(&node, b, 3, 4096, 64), 0);
		sge = (struct ibv_sge){ .addr = (uintptr_t)node.buf,
					.length = 8,
					.lkey = node.mr->lkey };
		wr.wr_id = 4;
		CHECK_EQUAL(ibv_post_send(a, &wr, &bad), 0);
		for (int i = 0; i < 2; i++) {
			CHECK(node_poll(node.cq, &wc, TIMEOUT_MS));
			CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
		}
		if (wr.wr.ud.ah && types[t] == IBV_QPT_UD)
			CHECK_EQUAL(ibv_destroy_ah(wr.wr.ud.ah), 0);
		CHECK_EQUAL(ibv_destroy_qp(a), 0);
		CHECK_EQUAL(ibv_destroy_qp(b), 0);
		node_close(&node);
	}
}

static void drained_queue_raises_its_event_and_goes_on(void)
{
	struct pair p;
	struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 },
			   rts = { .qp_state = IBV_QPS_RTS };

	open_pair(&p, IBV_QPT_RC);
	CHECK_EQUAL(ibv_modify_qp(p.a, &sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	node_expect_event(p.node.ctx, IBV_EVENT_SQ_DRAINED, p.a);
	CHECK_EQUAL(node_rdma(&p.node, p.a, 1, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p.node.buf,
			      p.node.mr->rkey),
		    0);
	expect_nothing(p.node.cq);
	CHECK_EQUAL(ibv_modify_qp(p.a, &rts, IBV_QP_STATE), 0);
	node_expect(p.node.cq, 1, IBV_WC_SUCCESS);
	close_pair(&p);
}

/* Asked for once, it comes once: another way to SQD does not ask for it. */
static void draining_raises_its_event_only_when_asked(void)
{
	struct pair p;
	struct ibv_qp_attr sqd = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 },
			   rts = { .qp_state = IBV_QPS_RTS };
	struct ibv_async_event event;

	open_pair(&p, IBV_QPT_RC);
	CHECK_EQUAL(ibv_modify_qp(p.a, &sqd, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	node_expect_event(p.node.ctx, IBV_EVENT_SQ_DRAINED, p.a);
	CHECK_EQUAL(ibv_modify_qp(p.a, &rts, IBV_QP_STATE), 0);
	CHECK_EQUAL(ibv_modify_qp(p.a, &sqd, IBV_QP_STATE), 0);
	CHECK_EQUAL(fcntl(p.node.ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
	/* It is raised in the call. */
	CHECK_EQUAL(ibv_get_async_event(p.node.ctx, &event), -1);
	CHECK_EQUAL(errno, EAGAIN);
	close_pair(&p);
}

/* A program that holds a CQ between start_poll and end_poll, and posts there to a QP that fails. */
static void posting_to_a_failing_qp_while_polling_does_not_hang(void)
{
	struct pair p;
	struct ibv_cq_init_attr_ex attr = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 32,
			 .max_recv_wr = 32,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_poll_cq_attr poll_attr = { 0 };
	struct ibv_cq_ex *cq;
	struct ibv_qp *c, *d;
	int flushed = 0;

	open_pair(&p, IBV_QPT_RC);
	cq = ibv_create_cq_ex(p.node.ctx, &attr);
	CHECK(cq);
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
	c = ibv_create_qp(p.node.pd, &init);
	d = ibv_create_qp(p.node.pd, &init);
	CHECK(c && d);
	node_init_qp(c, node_defaults.access);
	node_init_qp(d, node_defaults.access);
	node_connect_pair(&p.node, c, d, &node_defaults);
	for (int i = 0; i < 4; i++)
		CHECK_EQUAL(node_recv(&p.node, c, 10, 0, 8), 0);
	CHECK_EQUAL(node_rdma(&p.node, c, 1, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p.node.buf,
			      p.node.mr->rkey),
		    0);
	while (ibv_start_poll(cq, &poll_attr))
		;
	CHECK_EQUAL(cq->status, IBV_WC_SUCCESS);
	CHECK_EQUAL(node_rdma(&p.node, c, 2, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p.node.buf, 0), 0);
	CHECK_EQUAL(node_recv(&p.node, c, 10, 0, 8), 0);
	while (node_state(c) != IBV_QPS_ERR)
		usleep(1000);
	ibv_end_poll(cq);
	while (flushed < 5) {
		if (ibv_start_poll(cq, &poll_attr))
			continue;
		do {
			CHECK_EQUAL(cq->status,
				    cq->wr_id == 2 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
			flushed += cq->wr_id == 10;
		} while (!ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	CHECK_EQUAL(ibv_destroy_qp(c), 0);
	CHECK_EQUAL(ibv_destroy_qp(d), 0);
	CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
	close_pair(&p);
}

static void retries_that_end_while_polling_do_not_hang(void)
{
	struct node node;
	struct ibv_qp *qp;
	struct card nobody;

	node_open(&node);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	nobody = node_card(&node, qp);
	nobody.qpn ^= 1 << 14; /* another process's */
	node_connect(qp, &nobody, &retrying);
	for (int i = 0; i < 4; i++)
		CHECK_EQUAL(node_recv(&node, qp, 2, 0, 8), 0);
	CHECK_EQUAL(node_send(&node, qp, 1, 0, 8), 0);
	node_expect(node.cq, 1, IBV_WC_RETRY_EXC_ERR);
	for (int i = 0; i < 4; i++)
		node_expect(node.cq, 2, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	node_close(&node);
}

/* The pages go after registration. Those that peers map stay, as on hardware; where the kernel copies, the access fails at
 * the end that it belongs to. */
static void write_unmapped_memory(bool mapped)
{
	struct pair p;
	uint8_t *gone;
	struct ibv_mr *mr;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE },
			   *bad;

	for (int remote = 0; remote < 2; remote++) {
		open_pair(&p, IBV_QPT_RC);
		gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		mr = ibv_reg_mr(p.node.pd, gone, 8192,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		CHECK(mr);
		munmap(gone, 8192);
		sge = (struct ibv_sge){ .addr = (uintptr_t)(remote ? p.node.buf : gone),
					.length = 8192,
					.lkey = remote ? p.node.mr->lkey : mr->lkey };
		wr.wr.rdma.remote_addr = (uintptr_t)(remote ? gone : p.node.buf);
		wr.wr.rdma.rkey = remote ? mr->rkey : p.node.mr->rkey;
		CHECK_EQUAL(ibv_post_send(p.a, &wr, &bad), 0);
		node_expect(p.node.cq, 1,
			    mapped ? IBV_WC_SUCCESS :
			    remote ? IBV_WC_REM_ACCESS_ERR :
				     IBV_WC_LOC_PROT_ERR);
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
		close_pair(&p);
	}
}

static void unmapped_memory_is_an_error_and_never_a_signal(void)
{
	CHECK_EQUAL(setenv("UROCE_MEMORY", "cma", 1), 0);
	write_unmapped_memory(false);
}

static void mapped_pages_outlive_their_unmapping(void)
{
	write_unmapped_memory(true);
}

struct churn {
	struct node *node;
	_Atomic bool stop;
};

static void *create_and_destroy(void *arg)
{
	struct churn *churn = arg;

	while (!churn->stop) {
		struct ibv_cq *cq = ibv_create_cq(churn->node->ctx, 8, NULL, NULL, 0);
		struct ibv_qp *a = node_qp(churn->node, IBV_QPT_RC, NULL),
			      *b = node_qp(churn->node, IBV_QPT_RC, NULL);
		struct ibv_mr *mr =
			ibv_reg_mr(churn->node->pd, churn->node->buf, 4096, IBV_ACCESS_LOCAL_WRITE);

		CHECK(cq && mr);
		node_connect_pair(churn->node, a, b, &node_defaults);
		CHECK_EQUAL(node_recv(churn->node, a, 100, 0, 8), 0);
		CHECK_EQUAL(ibv_resize_cq(cq, 100), 0);
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
		CHECK_EQUAL(ibv_destroy_qp(a), 0);
		CHECK_EQUAL(ibv_destroy_qp(b), 0);
		CHECK_EQUAL(ibv_destroy_cq(cq), 0);
	}
	return NULL;
}

static void creating_and_destroying_beside_traffic_disturbs_nothing(void)
{
	struct pair p;
	struct churn churn = { .node = &p.node };
	pthread_t threads[2];

	open_pair(&p, IBV_QPT_RC);
	for (int i = 0; i < 2; i++)
		CHECK_EQUAL(pthread_create(&threads[i], NULL, create_and_destroy, &churn), 0);
	for (uint64_t end = now_ms() + 2000, i = 0; now_ms() < end; i++) {
		struct ibv_wc wc;

		CHECK_EQUAL(node_recv(&p.node, p.b, i, 4096, 8), 0);
		CHECK_EQUAL(node_send(&p.node, p.a, i, 0, 8), 0);
		for (int j = 0; j < 2; j++) {
			CHECK(node_poll(p.node.cq, &wc, TIMEOUT_MS));
			CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
			CHECK_EQUAL(wc.wr_id, i);
		}
	}
	churn.stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	close_pair(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(rnr_retry_exhausts_after_the_attributes_count_and_time),
		CASE(no_rnr_retry_fails_at_once),
		CASE(receive_posted_late_is_found_by_the_retry),
		CASE(peer_that_is_not_connected_back_is_silent),
		CASE(peer_that_is_in_init_is_silent),
		CASE(psns_that_disagree_are_silent),
		CASE(psns_count_packets_and_wrap),
		CASE(mtus_that_disagree_fail_messages_of_several_packets),
		CASE(more_reads_than_the_responder_takes_fail),
		CASE(read_without_initiator_depth_is_a_local_error),
		CASE(remote_access_error_is_told_at_both_ends),
		CASE(access_error_is_told_to_one_who_is_posting),
		CASE(send_longer_than_the_receive_fails_both_ends),
		CASE(overflow_of_a_cq_fails_its_qps_and_raises_an_event),
		CASE(overflow_of_the_receivers_cq_fails_the_sender),
		CASE(srq_limit_raises_its_event_once),
		CASE(last_wqe_event_comes_once),
		CASE(destroying_drops_work_that_waits),
		CASE(destroying_a_failed_qp_beside_its_flushing_is_clean),
		CASE(reset_qp_serves_again_and_shows_nothing_of_before),
		CASE(failed_send_of_ud_and_uc_goes_to_sqe_and_back),
		CASE(drained_queue_raises_its_event_and_goes_on),
		CASE(draining_raises_its_event_only_when_asked),
		CASE(posting_to_a_failing_qp_while_polling_does_not_hang),
		CASE(retries_that_end_while_polling_do_not_hang),
		CASE(unmapped_memory_is_an_error_and_never_a_signal),
		CASE(mapped_pages_outlive_their_unmapping),
		CASE(creating_and_destroying_beside_traffic_disturbs_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
