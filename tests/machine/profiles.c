/* SPDX-License-Identifier: MIT */
/*
 * Profiles: what a NIC's published limits are, the device reports and keeps. A case a profile; in each, one more than every
 * limit is refused and the limit itself is had.
 */
#include "cases.h"

#include <string.h>

/* As published (src/nic/limits.c names the places), or ours where the NIC has more. */
struct profile {
	const char *name;
	uint32_t max_qp, max_qp_wr, max_sge, max_inline, max_cqe;
	uint8_t max_rd_atomic, max_init_rd_atomic;
	uint32_t max_srq_wr, max_srq_sge; /* 0: none */
	bool atomics;
	uint32_t max_msg;
	bool windows;
};

static const struct profile profiles[] = {
	{ "connectx-3", 65536, 16351, 32, 900, 4194303, 16, 128, 16383, 31, true, 1u << 30, true },
	{ "connectx-5", 65536, 32768, 30, 828, 4194303, 16, 16, 32767, 31, true, 1u << 30, true },
	{ "connectx-6", 65536, 32768, 30, 828, 4194303, 16, 16, 32767, 31, true, 1u << 30, true },
	{ "e810", 4092, 8127, 6, 101, 1048574, 8, 8, 0, 0, false, 0x7fffffff, true },
	{ "rxe", 65536, 16384, 32, 512, 32767, 128, 128, 16384, 27, true, 1u << 23, false },
};

static struct node node;

static void refused(bool refuses, int error)
{
	CHECK(refuses);
	CHECK_EQUAL(errno, error);
}

static struct ibv_qp *make_qp(struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = { .send_cq = node.cq,
					 .recv_cq = node.cq,
					 .cap = cap,
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };
	struct ibv_qp *qp;

	errno = 0;
	qp = ibv_create_qp(node.pd, &init);
	if (qp) {
		CHECK(init.cap.max_send_wr >= cap.max_send_wr &&
		      init.cap.max_recv_wr >= cap.max_recv_wr);
		CHECK(init.cap.max_send_sge >= cap.max_send_sge &&
		      init.cap.max_recv_sge >= cap.max_recv_sge);
		CHECK(init.cap.max_inline_data >= cap.max_inline_data);
	}
	return qp;
}

static void has(struct ibv_qp_cap cap)
{
	struct ibv_qp *qp = make_qp(cap);

	CHECK(qp);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
}

static void has_not(struct ibv_qp_cap cap)
{
	refused(!make_qp(cap), EINVAL);
}

static void reports(const struct profile *profile)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;

	CHECK_EQUAL(ibv_query_device(node.ctx, &device), 0);
	CHECK_EQUAL(device.max_qp, profile->max_qp);
	CHECK_EQUAL(device.max_qp_wr, profile->max_qp_wr);
	CHECK_EQUAL(device.max_sge, profile->max_sge);
	CHECK_EQUAL(device.max_cqe, profile->max_cqe);
	CHECK_EQUAL(device.max_qp_rd_atom, profile->max_rd_atomic);
	CHECK_EQUAL(device.max_qp_init_rd_atom, profile->max_init_rd_atomic);
	CHECK_EQUAL(device.max_srq_wr, profile->max_srq_wr);
	CHECK_EQUAL(device.max_srq_sge, profile->max_srq_sge);
	CHECK_EQUAL(device.atomic_cap, profile->atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE);
	CHECK_EQUAL(ibv_query_port(node.ctx, 1, &port), 0);
	CHECK_EQUAL(port.max_msg_sz, profile->max_msg);
}

static void keeps_queues(const struct profile *profile)
{
	uint32_t wr = profile->max_qp_wr, sge = profile->max_sge, room = profile->max_inline;

	has((struct ibv_qp_cap){ .max_send_wr = wr, .max_send_sge = 1 });
	has((struct ibv_qp_cap){ .max_recv_wr = wr, .max_recv_sge = 1 });
	has((struct ibv_qp_cap){
		.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = sge, .max_recv_sge = sge });
	has((struct ibv_qp_cap){ .max_send_wr = 1, .max_send_sge = 1, .max_inline_data = room });
	has_not((struct ibv_qp_cap){ .max_send_wr = wr + 1, .max_send_sge = 1 });
	has_not((struct ibv_qp_cap){ .max_recv_wr = wr + 1, .max_recv_sge = 1 });
	has_not((struct ibv_qp_cap){ .max_send_wr = 1, .max_send_sge = sge + 1 });
	has_not((struct ibv_qp_cap){ .max_recv_wr = 1, .max_recv_sge = sge + 1 });
	has_not((struct ibv_qp_cap){
		.max_send_wr = 1, .max_send_sge = 1, .max_inline_data = room + 1 });
}

static void keeps_completions(const struct profile *profile)
{
	struct ibv_cq *cq = ibv_create_cq(node.ctx, (int)profile->max_cqe, NULL, NULL, 0);

	CHECK(cq);
	CHECK(cq->cqe >= (int)profile->max_cqe);
	CHECK_EQUAL(ibv_destroy_cq(cq), 0);
	refused(!ibv_create_cq(node.ctx, (int)profile->max_cqe + 1, NULL, NULL, 0), EINVAL);
}

static void keeps_srqs(const struct profile *profile)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = profile->max_srq_wr, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(node.pd, &init);

	if (!profile->max_srq_wr) {
		CHECK(!srq);
		return;
	}
	CHECK(srq);
	CHECK_EQUAL(ibv_destroy_srq(srq), 0);
	init.attr = (struct ibv_srq_attr){ .max_wr = profile->max_srq_wr + 1, .max_sge = 1 };
	refused(!ibv_create_srq(node.pd, &init), EINVAL);
	init.attr = (struct ibv_srq_attr){ .max_wr = 1, .max_sge = profile->max_srq_sge };
	srq = ibv_create_srq(node.pd, &init);
	CHECK(srq);
	CHECK_EQUAL(ibv_destroy_srq(srq), 0);
	init.attr = (struct ibv_srq_attr){ .max_wr = 1, .max_sge = profile->max_srq_sge + 1 };
	refused(!ibv_create_srq(node.pd, &init), EINVAL);
}

/* Those that have them say so by a flag, and not how many. */
static void keeps_windows(const struct profile *profile)
{
	const unsigned flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	struct ibv_device_attr device;
	struct ibv_mw *mw;
	struct ibv_mr *mr;

	CHECK_EQUAL(ibv_query_device(node.ctx, &device), 0);
	CHECK_EQUAL(device.max_mw, 0);
	CHECK_EQUAL(device.device_cap_flags & flags, profile->windows ? flags : 0);
	errno = 0;
	mw = ibv_alloc_mw(node.pd, IBV_MW_TYPE_2);
	mr = ibv_reg_mr(node.pd, node.buf, 4096, IBV_ACCESS_MW_BIND);
	if (!profile->windows) {
		refused(!mw && !mr, EOPNOTSUPP);
		return;
	}
	CHECK(mw && mr);
	CHECK_EQUAL(ibv_dealloc_mw(mw), 0);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
}

static int to_rtr(struct ibv_qp *qp, uint8_t depth)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = depth,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = node.gid, .hop_limit = 1 } },
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ibv_qp *qp, uint8_t depth)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = depth };

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void keeps_depths_and_atomics(const struct profile *profile)
{
	struct ibv_qp *qp = node_qp(&node, IBV_QPT_RC, NULL);

	CHECK_EQUAL(to_rtr(qp, (uint8_t)(profile->max_rd_atomic + 1)), EINVAL);
	CHECK_EQUAL(to_rtr(qp, profile->max_rd_atomic), 0);
	CHECK_EQUAL(to_rts(qp, (uint8_t)(profile->max_init_rd_atomic + 1)), EINVAL);
	CHECK_EQUAL(to_rts(qp, profile->max_init_rd_atomic), 0);
	/* A QP that is connected to itself carries what the NIC has. */
	CHECK_EQUAL(node_rdma(&node, qp, 1, IBV_WR_RDMA_READ, 0, 64, (uintptr_t)node.buf + 4096,
			      node.mr->rkey),
		    0);
	node_expect(node.cq, 1, IBV_WC_SUCCESS);
	CHECK_EQUAL(node_rdma(&node, qp, 2, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8,
			      (uintptr_t)node.buf + 4096, node.mr->rkey),
		    profile->atomics ? 0 : EOPNOTSUPP);
	if (profile->atomics)
		node_expect(node.cq, 2, IBV_WC_SUCCESS);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
}

static void keep(const char *name)
{
	const struct profile *profile = profiles;

	while (strcmp(profile->name, name))
		profile++;
	setenv("UROCE_PROFILE", name, 1);
	node_open(&node);
	reports(profile);
	keeps_queues(profile);
	keeps_completions(profile);
	keeps_srqs(profile);
	keeps_windows(profile);
	keeps_depths_and_atomics(profile);
	node_close(&node);
}

static void connectx_3(void)
{
	keep("connectx-3");
}

static void connectx_5(void)
{
	keep("connectx-5");
}

static void connectx_6(void)
{
	keep("connectx-6");
}

static void e810(void)
{
	keep("e810");
}

static void rxe(void)
{
	keep("rxe");
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "connectx_3", connectx_3 },
		{ "connectx_5", connectx_5 },
		{ "connectx_6", connectx_6 },
		{ "e810", e810 },
		{ "rxe", rxe },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
