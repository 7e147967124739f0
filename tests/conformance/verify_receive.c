/* SPDX-License-Identifier: MIT */
/*
 * Receive queues and what arrives in them.
 *
 * Each receive is a slot of the receive region: up to MAX_SGE pieces in any order, with bytes
 * between them that must stay as they are. The n-th message of a requester's QP is known from the
 * plan; where it went is known from the wr_id. A queue without sharing must use its receives in the
 * order of posting.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "verify.h"

void rq_init(struct rq *rq, unsigned slots, size_t off, size_t stride)
{
	rq->slot = calloc(slots, sizeof(*rq->slot));
	rq->fifo = calloc(slots, sizeof(*rq->fifo));
	if (!rq->slot || !rq->fifo)
		fail("no memory for %u receives", slots);
	rq->slots = slots;
	rq->off = off;
	rq->stride = stride;
}

/* ---- Posting ---- */

/* Lay the slot's pieces out in its stride, which has 256 bytes more than any message. */
static void shape_slot(struct node *n, struct rq *rq, unsigned i)
{
	const struct world *w = n->w;
	const struct row *row = w->row;
	const uint32_t grh = row->type == IBV_QPT_UD ? GRH_BYTES : 0;
	const bool sends = row->ops & OPS_UD || row->type == IBV_QPT_UC;
	struct slot *slot = &rq->slot[i];
	uint32_t spare = rng_chance(&n->rng, 50) ? 0 : rng_below(&n->rng, 64),
		 cap = grh + (sends ? w->max_len : 0) + spare;
	size_t at = rq->off + i * rq->stride + rng_below(&n->rng, 64);
	unsigned order[MAX_SGE];

	slot->pieces = row->sges == 1 ? 1 : 1 + rng_below(&n->rng, row->sges);
	cut(&n->rng, cap, slot->piece, slot->pieces);
	for (unsigned p = 0; p < slot->pieces; p++) {
		const unsigned other = rng_below(&n->rng, p + 1);

		order[p] = order[other];
		order[other] = p;
	}
	for (unsigned p = 0; p < slot->pieces; p++) {
		struct piece *piece = &slot->piece[order[p]];

		piece->off = at;
		piece->mr = 0;
		at += piece->len + rng_below(&n->rng, 4);
	}
	if (cap == 0 && rng_chance(&n->rng, 50))
		slot->pieces = 0;
}

static unsigned free_slot(struct node *n, struct rq *rq)
{
	unsigned i = rng_below(&n->rng, rq->slots);

	while (rq->slot[i].posted)
		i = (i + 1) % rq->slots;
	return i;
}

static void post_list(struct node *n, struct vqp *q, unsigned count)
{
	static struct ibv_recv_wr wr[MAX_LIST];
	static struct ibv_sge sge[MAX_LIST][MAX_SGE];
	struct ibv_recv_wr *bad = NULL;
	struct rq *rq = q->rq;
	int ret;

	for (unsigned k = 0; k < count; k++) {
		const unsigned i = free_slot(n, rq);
		struct slot *slot = &rq->slot[i];

		shape_slot(n, rq, i);
		slot->posted = true;
		slot->wr_id = rng_next(&n->rng) << 16 | i;
		for (unsigned p = 0; p < slot->pieces; p++) {
			sge[k][p].addr =
				n->hello.mr[0].base + (slot->piece[p].off - n->hello.mr[0].off);
			sge[k][p].length = slot->piece[p].len;
			sge[k][p].lkey = n->hello.mr[0].lkey;
		}
		wr[k] = (struct ibv_recv_wr){
			.wr_id = slot->wr_id,
			.next = k + 1 < count ? &wr[k + 1] : NULL,
			.sg_list = slot->pieces ? sge[k] : NULL,
			.num_sge = slot->pieces,
		};
		rq->fifo[(rq->head + rq->posted++) % rq->slots] = i;
	}
	ret = n->srq ? ibv_post_srq_recv(n->srq, wr, &bad) : ibv_post_recv(q->qp, wr, &bad);
	memset(wr, 0xee, count * sizeof(*wr));
	memset(sge, 0xee, count * sizeof(*sge));
	if (ret)
		fail("posting %u receives: %s", count, strerror(ret));
}

void rq_post(struct node *n, struct vqp *q, unsigned count)
{
	while (count > 0) {
		const unsigned list = n->w->row->list, chunk = count < list ? count : list;

		post_list(n, q, chunk);
		count -= chunk;
	}
}

struct slot *rq_take(struct node *n, struct vqp *q, uint64_t wr_id)
{
	struct rq *rq = q->rq;
	const unsigned i = wr_id & 0xffff, first = rq->fifo[rq->head];

	if (i >= rq->slots || !rq->slot[i].posted || rq->slot[i].wr_id != wr_id)
		fail("node %u: a completion for wr_id %#llx, which is no posted receive", n->id,
		     (unsigned long long)wr_id);
	if (!n->srq && i != first)
		fail("node %u: receives used out of order: wr_id %#llx, but first is %#llx", n->id,
		     (unsigned long long)wr_id, (unsigned long long)rq->slot[first].wr_id);
	rq->slot[i].posted = false;
	rq->posted--;
	rq->head = (rq->head + 1) % rq->slots;
	return &rq->slot[i];
}

/* ---- Arriving ---- */

/*
 * What stands before a datagram's payload: a GRH, or for IPv4 20 bytes that mean nothing and the
 * IPv4 header. The model takes it over as it is.
 */
static void check_grh(struct node *n, const struct vqp *q, const struct slot *slot,
		      const struct ibv_wc *wc)
{
	static const uint8_t v4_mapped[12] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *from = n->w->node[q->peer].hello.gid.raw, *to = n->hello.gid.raw;
	uint8_t grh[GRH_BYTES];
	uint16_t udp_len;

	gather(grh, n->arena.mem, slot->piece, slot->pieces, 0, sizeof(grh));
	scatter(n->arena.model, slot->piece, slot->pieces, 0, grh, sizeof(grh));
	if (!memcmp(to, v4_mapped, sizeof(v4_mapped))) {
		const uint8_t *ip = grh + 20;

		if (ip[0] != 0x45)
			fail("the IPv4 header before a datagram begins with %#x", ip[0]);
		if (ip[9] != IPPROTO_UDP)
			fail("the IPv4 header before a datagram is of protocol %u", ip[9]);
		if (memcmp(ip + 12, from + 12, 4) || memcmp(ip + 16, to + 12, 4))
			fail("the IPv4 header before a datagram has other addresses");
	} else {
		if (grh[0] >> 4 != 6)
			fail("the GRH before a datagram begins with %#x", grh[0]);
		memcpy(&udp_len, grh + 4, sizeof(udp_len));
		if (ntohs(udp_len) < wc->byte_len - GRH_BYTES)
			fail("the GRH before a datagram of %u bytes says %u",
			     wc->byte_len - GRH_BYTES, ntohs(udp_len));
		if (memcmp(grh + 8, from, 16) || memcmp(grh + 24, to, 16))
			fail("the GRH before a datagram has other addresses");
	}
}

/*
 * Does the completion, with the bytes in slot, fit op? Leaves op's payload in w->payload. NULL: it
 * does.
 */
static const char *misfit(struct node *n, const struct slot *slot, const struct op *op,
			  const struct ibv_wc *wc)
{
	struct world *w = n->w;
	const uint32_t grh = w->row->type == IBV_QPT_UD ? GRH_BYTES : 0;
	const unsigned flags = (op_has_imm(op->kind) ? IBV_WC_WITH_IMM : 0) |
			       (grh ? IBV_WC_GRH : 0);

	if (wc->opcode != (op->kind == OP_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		return "opcode";
	if (wc->byte_len != op->len + grh)
		return "byte_len";
	/* "GRH is present" is defined for UD alone (ibv_poll_cq(3)). */
	if ((grh ? wc->wc_flags : wc->wc_flags & ~IBV_WC_GRH) != flags)
		return "wc_flags";
	if (op_has_imm(op->kind) && wc->imm_data != op->imm)
		return "imm_data";
	op_payload(w, op, w->payload);
	if (op->kind == OP_WRITE_IMM)
		return NULL;
	gather(w->got, n->arena.mem, slot->piece, slot->pieces, grh, op->len);
	return memcmp(w->got, w->payload, op->len) ? "data" : NULL;
}

static struct inbox *inbox_of(struct node *n, struct vqp *q, const struct ibv_wc *wc,
			      unsigned *from)
{
	const struct world *w = n->w;

	*from = q - n->qp;
	if (w->row->type == IBV_QPT_UD) {
		for (*from = 0; *from < w->row->qps; ++*from)
			if (w->node[q->peer].hello.qpn[*from] == wc->src_qp)
				break;
		if (*from == w->row->qps)
			fail("node %u: src_qp %#x is no QP of the peer", n->id, wc->src_qp);
	}
	return &q->inbox[*from];
}

/* A message has come: so have all WRITEs that its QP was asked for before it. */
static void check_earlier_writes(struct node *n, struct vqp *q, const struct op *message)
{
	struct world *w = n->w;
	struct vqp *requester = &w->node[message->node].qp[message->qp];

	for (; q->visible <= message->index; q->visible++) {
		const struct op *op = requester->sq[q->visible];

		if ((op->kind == OP_WRITE || op->kind == OP_WRITE_IMM) && op->last_word)
			range_compare(w, n, op->remote.off, op->len, op,
				      "a later message had come");
	}
}

static void print_payloads(const struct world *w, const struct op *op)
{
	for (uint32_t i = 0; i < op->len; i++)
		if (w->got[i] != w->payload[i]) {
			fprintf(stderr, "    data differ from byte %u: %#04x instead of %#04x\n", i,
				w->got[i], w->payload[i]);
			break;
		}
}

void receive_done(struct node *n, struct vqp *q, const struct ibv_wc *wc)
{
	struct world *w = n->w;
	const bool reliable = w->row->type == IBV_QPT_RC, ud = w->row->type == IBV_QPT_UD;
	struct slot *slot;
	struct inbox *inbox;
	const struct op *op;
	const char *wrong;
	unsigned from;

	inbox = inbox_of(n, q, wc, &from);
	slot = rq_take(n, q, wc->wr_id);
	if (inbox->got == inbox->count)
		fail("node %u: a message more than was sent: %s", n->id, wc_text(wc));
	op = inbox->op[inbox->got];
	wrong = misfit(n, slot, op, wc);
	for (unsigned later = inbox->got + 1; wrong && !reliable && later < inbox->count; later++)
		if (!misfit(n, slot, inbox->op[later], wc))
			fail_as(VERDICT_DROP, "node %u: %u messages were dropped before %s", n->id,
				later - inbox->got, wc_text(wc));
	if (wrong) {
		op_print(w, op);
		if (!strcmp(wrong, "data"))
			print_payloads(w, op);
		fail("node %u: the receive completion for this has a wrong %s: %s", n->id, wrong,
		     wc_text(wc));
	}
	inbox->got++;
	if (ud)
		check_grh(n, q, slot, wc);
	if (op->kind != OP_WRITE_IMM)
		scatter(n->arena.model, slot->piece, slot->pieces, ud ? GRH_BYTES : 0, w->payload,
			op->len);
	w->bytes_checked += op->len;
	if (!ud)
		check_earlier_writes(n, q, op);
}
