/* SPDX-License-Identifier: MIT */
/*
 * The classic API: ibv_create_cq, ibv_create_qp, ibv_post_send with lists, ibv_poll_cq; and what
 * both share.
 *
 * Everything handed to a post is spoilt as soon as it returns: work requests, SGEs and inline data
 * are the caller's again.
 */
#include <errno.h>
#include <string.h>
#include "verify.h"

void classic_create_cq(struct node *n, struct cq *cq, int depth)
{
	cq->cq = ibv_create_cq(n->ctx, depth, cq, n->channel, 0);
	if (!cq->cq)
		fail("ibv_create_cq: %s", strerror(errno));
}

void classic_create_qp(struct node *n, struct vqp *q, struct ibv_qp_init_attr *attr)
{
	q->qp = ibv_create_qp(n->pd, attr);
	if (!q->qp)
		fail("ibv_create_qp: %s", strerror(errno));
}

unsigned op_sges(struct node *n, const struct op *op, struct ibv_sge *sge, uint8_t *buf)
{
	uint8_t *at = buf;

	if (op->inl)
		rng_fill(buf, op->len, op->inl_seed);
	for (unsigned i = 0; i < op->pieces; i++) {
		const struct piece *p = &op->piece[i];

		sge[i].length = p->len;
		if (op->inl) {
			/* Whatever key: nobody looks at it. */
			sge[i].addr = (uintptr_t)at;
			sge[i].lkey = rng_next(&n->rng);
			at += p->len;
		} else {
			sge[i].addr = n->hello.mr[p->mr].base + (p->off - n->hello.mr[p->mr].off);
			sge[i].lkey = n->hello.mr[p->mr].lkey;
		}
	}
	return op->pieces;
}

void op_remote(const struct node *n, const struct op *op, uint64_t *addr, uint32_t *rkey)
{
	const struct hello *peer = &n->w->node[op->dnode].hello;

	if (op->no_remote) {
		*addr = ~op->wr_id;
		*rkey = op->imm;
	} else {
		*addr = peer->mr[op->remote.mr].base +
			(op->remote.off - peer->mr[op->remote.mr].off);
		*rkey = peer->mr[op->remote.mr].rkey;
	}
}

static void fill_wr(struct node *n, const struct op *op, struct ibv_send_wr *wr)
{
	static const enum ibv_wr_opcode opcode[] = {
		[OP_SEND] = IBV_WR_SEND,
		[OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
		[OP_WRITE] = IBV_WR_RDMA_WRITE,
		[OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[OP_READ] = IBV_WR_RDMA_READ,
		[OP_CMP_SWP] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[OP_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	const bool sig_all = n->w->row->sig_all;

	wr->wr_id = op->wr_id;
	wr->opcode = opcode[op->kind];
	wr->send_flags = (op->signaled && !sig_all ? IBV_SEND_SIGNALED : 0) |
			 (op->fence ? IBV_SEND_FENCE : 0) |
			 (op->solicited ? IBV_SEND_SOLICITED : 0) | (op->inl ? IBV_SEND_INLINE : 0);
	if (op_has_imm(op->kind))
		wr->imm_data = op->imm;
	if (n->w->row->type == IBV_QPT_UD) {
		wr->wr.ud.ah = n->ah;
		wr->wr.ud.remote_qpn = n->w->node[op->dnode].hello.qpn[op->dqp];
		wr->wr.ud.remote_qkey = QKEY;
	} else if (op_is_atomic(op->kind)) {
		op_remote(n, op, &wr->wr.atomic.remote_addr, &wr->wr.atomic.rkey);
		wr->wr.atomic.compare_add = op->add_or_compare;
		wr->wr.atomic.swap = op->swap;
	} else if (op->kind > OP_SEND_IMM) {
		op_remote(n, op, &wr->wr.rdma.remote_addr, &wr->wr.rdma.rkey);
	}
}

int classic_post(struct node *n, struct vqp *q, struct op **ops, unsigned count)
{
	static struct ibv_send_wr wr[MAX_LIST];
	static struct ibv_sge sge[MAX_LIST][MAX_SGE];
	struct ibv_send_wr *bad = NULL;
	int ret;

	memset(wr, 0, count * sizeof(*wr));
	for (unsigned i = 0; i < count; i++) {
		fill_wr(n, ops[i], &wr[i]);
		wr[i].num_sge = op_sges(n, ops[i], sge[i], n->w->inl[i]);
		wr[i].sg_list = wr[i].num_sge ? sge[i] : NULL;
		wr[i].next = i + 1 < count ? &wr[i + 1] : NULL;
	}
	ret = ibv_post_send(q->qp, wr, &bad);
	memset(wr, 0xee, count * sizeof(*wr));
	memset(sge, 0xee, count * sizeof(*sge));
	memset(n->w->inl, 0xee, count * sizeof(*n->w->inl));
	return ret;
}

int classic_poll(struct cq *cq, struct ibv_wc *wc, int max)
{
	return ibv_poll_cq(cq->cq, max, wc);
}

void post(struct node *n, struct vqp *q, struct op **ops, unsigned count)
{
	const enum api api = n->w->row->api[n->id];
	const bool extended = api == API_EXTENDED || (api == API_BOTH && rng_chance(&n->rng, 50));
	int ret = extended ? extended_post(n, q, ops, count) : classic_post(n, q, ops, count);

	if (ret)
		fail("posting %u work requests: %s", count, strerror(ret));
}

int poll_cq(struct node *n, struct cq *cq, struct ibv_wc *wc, int max)
{
	const enum api api = n->w->row->api[n->id];
	const bool extended = api == API_EXTENDED || (api == API_BOTH && rng_chance(&n->rng, 50));
	int ret = extended ? extended_poll(cq, wc, max) : classic_poll(cq, wc, max);

	if (ret < 0)
		fail("polling a CQ: %d", ret);
	return ret;
}
