/* SPDX-License-Identifier: MIT */
/*
 * The extended API: ibv_create_cq_ex and its read accessors, ibv_create_qp_ex and ibv_wr_*.
 *
 * Now and then a critical region is begun and aborted before the real one: what it built must leave
 * no trace.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include "verify.h"

void extended_create_cq(struct node *n, struct cq *cq, int depth)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = depth,
		.cq_context = cq,
		.channel = n->channel,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};

	if (n->w->row->timestamps)
		attr.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
				 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	cq->cqx = ibv_create_cq_ex(n->ctx, &attr);
	if (!cq->cqx)
		fail("ibv_create_cq_ex: %s", strerror(errno));
	cq->cq = ibv_cq_ex_to_cq(cq->cqx);
	cq->timestamps = n->w->row->timestamps;
}

void extended_create_qp(struct node *n, struct vqp *q, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = n->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};

	if (attr->qp_type != IBV_QPT_UD)
		ex.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	if (attr->qp_type == IBV_QPT_RC)
		ex.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	q->qp = ibv_create_qp_ex(n->ctx, &ex);
	if (!q->qp)
		fail("ibv_create_qp_ex: %s", strerror(errno));
	q->qpx = ibv_qp_to_qp_ex(q->qp);
	if (!q->qpx)
		fail("ibv_qp_to_qp_ex: %s", strerror(errno));
	attr->cap = ex.cap;
}

static void build_operation(struct node *n, struct ibv_qp_ex *qpx, const struct op *op)
{
	uint64_t addr = 0;
	uint32_t rkey = 0;

	if (op->kind > OP_SEND_IMM)
		op_remote(n, op, &addr, &rkey);
	switch (op->kind) {
	case OP_SEND:
		ibv_wr_send(qpx);
		break;
	case OP_SEND_IMM:
		ibv_wr_send_imm(qpx, op->imm);
		break;
	case OP_WRITE:
		ibv_wr_rdma_write(qpx, rkey, addr);
		break;
	case OP_WRITE_IMM:
		ibv_wr_rdma_write_imm(qpx, rkey, addr, op->imm);
		break;
	case OP_READ:
		ibv_wr_rdma_read(qpx, rkey, addr);
		break;
	case OP_CMP_SWP:
		ibv_wr_atomic_cmp_swp(qpx, rkey, addr, op->add_or_compare, op->swap);
		break;
	case OP_FETCH_ADD:
		ibv_wr_atomic_fetch_add(qpx, rkey, addr, op->add_or_compare);
		break;
	case OP_KINDS:
		break;
	}
}

static void set_data(struct ibv_qp_ex *qpx, const struct op *op, const struct ibv_sge *sge)
{
	struct ibv_data_buf bufs[MAX_SGE];

	for (unsigned i = 0; i < op->pieces; i++)
		bufs[i] = (struct ibv_data_buf){ (void *)(uintptr_t)sge[i].addr, sge[i].length };
	if (op->inl && op->pieces == 1)
		ibv_wr_set_inline_data(qpx, bufs[0].addr, bufs[0].length);
	else if (op->inl)
		ibv_wr_set_inline_data_list(qpx, op->pieces, bufs);
	else if (op->pieces == 1)
		ibv_wr_set_sge(qpx, sge[0].lkey, sge[0].addr, sge[0].length);
	else
		ibv_wr_set_sge_list(qpx, op->pieces, sge);
}

static void build(struct node *n, struct ibv_qp_ex *qpx, const struct op *op)
{
	const struct world *w = n->w;
	struct ibv_sge sge[MAX_SGE];

	op_sges(n, op, sge, n->w->inl[0]);
	qpx->wr_id = op->wr_id;
	qpx->wr_flags = (op->signaled && !w->row->sig_all ? IBV_SEND_SIGNALED : 0) |
			(op->fence ? IBV_SEND_FENCE : 0) | (op->solicited ? IBV_SEND_SOLICITED : 0);
	build_operation(n, qpx, op);
	if (w->row->type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(qpx, n->ah, w->node[op->dnode].hello.qpn[op->dqp], QKEY);
	set_data(qpx, op, sge);
	/* The setter has copied what it needs. */
	memset(sge, 0xee, sizeof(sge));
	memset(n->w->inl[0], 0xee, sizeof(n->w->inl[0]));
}

int extended_post(struct node *n, struct vqp *q, struct op **ops, unsigned count)
{
	if (rng_chance(&n->rng, 10)) {
		ibv_wr_start(q->qpx);
		build(n, q->qpx, ops[rng_below(&n->rng, count)]);
		ibv_wr_abort(q->qpx);
	}
	ibv_wr_start(q->qpx);
	for (unsigned i = 0; i < count; i++)
		build(n, q->qpx, ops[i]);
	return ibv_wr_complete(q->qpx);
}

/*
 * The current completion as the classic API would give it. Of a failed one only these fields mean
 * something.
 */
static void read_wc(struct ibv_cq_ex *cqx, struct ibv_wc *wc)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = cqx->wr_id;
	wc->status = cqx->status;
	wc->vendor_err = ibv_wc_read_vendor_err(cqx);
	wc->qp_num = ibv_wc_read_qp_num(cqx);
	if (cqx->status != IBV_WC_SUCCESS)
		return;
	wc->opcode = ibv_wc_read_opcode(cqx);
	wc->wc_flags = ibv_wc_read_wc_flags(cqx);
	wc->byte_len = ibv_wc_read_byte_len(cqx);
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		wc->imm_data = ibv_wc_read_imm_data(cqx);
	wc->src_qp = ibv_wc_read_src_qp(cqx);
	wc->slid = ibv_wc_read_slid(cqx);
	wc->sl = ibv_wc_read_sl(cqx);
	wc->dlid_path_bits = ibv_wc_read_dlid_path_bits(cqx);
}

/* Within the minute before now, by the machine's clock. */
static void check_timestamps(struct cq *cq)
{
	const uint64_t wallclock = ibv_wc_read_completion_wallclock_ns(cq->cqx);
	const uint64_t ticks = ibv_wc_read_completion_ts(cq->cqx);
	struct timespec now;
	int64_t off;

	clock_gettime(CLOCK_REALTIME, &now);
	off = (int64_t)(now.tv_sec * 1000000000ull + now.tv_nsec - wallclock);
	if (off < 0 || off > 60 * 1000000000ll)
		fail("a completion's wallclock time lies %lld ns back", (long long)off);
	if (ticks == 0)
		fail("a completion's timestamp is 0");
}

int extended_poll(struct cq *cq, struct ibv_wc *wc, int max)
{
	struct ibv_poll_cq_attr attr = { .comp_mask = 0 };
	int ret = ibv_start_poll(cq->cqx, &attr), n = 0;

	if (ret == ENOENT)
		return 0;
	if (ret)
		return -ret;
	do {
		read_wc(cq->cqx, &wc[n++]);
		if (cq->timestamps)
			check_timestamps(cq);
	} while (n < max && !(ret = ibv_next_poll(cq->cqx)));
	ibv_end_poll(cq->cqx);
	return ret && ret != ENOENT ? -ret : n;
}
