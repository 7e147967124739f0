/* SPDX-License-Identifier: MIT */
/* The responder's rules. See responder.h. */
#include "nic/responder.h"

#include <string.h>

#include "nic/cq.h"
#include "nic/crash.h"
#include "nic/mr.h"
#include "nic/qp_internal.h"
#include "nic/visit.h"
#include "observe/trace.h"
#include "observe/watch.h"

struct seg_qp *responder_find(const struct target *target, uint32_t qpn, uint32_t *index)
{
	struct seg_header *hdr = &target->seg->hdr;
	uint32_t slots = atomic_load_explicit(&hdr->slot_count, memory_order_acquire);

	for (uint32_t i = 0; i < slots && i < NIC_OWN_SLOTS; i++) {
		if (atomic_load_explicit(&hdr->slots[i], memory_order_relaxed) ==
		    qpn >> NIC_QPN_INDEX_BITS) {
			*index = i << NIC_QPN_INDEX_BITS | (qpn & ((1u << NIC_QPN_INDEX_BITS) - 1));
			return &target->seg->qps[*index];
		}
	}
	return NULL;
}

static bool gid_equal(const union ibv_gid *a, const union ibv_gid *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static enum response say(struct cause *c, enum cause_code code, enum response response)
{
	c->code = code;
	return response;
}

uint32_t responder_rights(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_ACCESS_REMOTE_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_ACCESS_REMOTE_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_ACCESS_REMOTE_ATOMIC;
	default:
		return 0;
	}
}

/* RC and UC: is this our peer, and does it speak of the same connection? */
static enum response admit_connected(struct seg_qp *qp, const struct request *request,
				     struct cause *c)
{
	if (qp->dest_qpn != request->src_qpn)
		return say(c, CAUSE_PEER_NOT_CONNECTED, RESPONSE_NONE);
	/* Whose life the QP is connected to is fixed at RTR or, if the process did not answer then,
	 * by its first message. */
	uint64_t instance = atomic_load_explicit(&qp->peer_instance, memory_order_relaxed);

	if (!instance)
		atomic_compare_exchange_strong(&qp->peer_instance, &instance, request->instance);
	if (instance && instance != request->instance)
		return say(c, CAUSE_PEER_NOT_CONNECTED, RESPONSE_NONE);
	if (!gid_equal(&qp->dgid, request->sgid) || !gid_equal(&qp->sgid, request->dgid))
		return say(c, CAUSE_PEER_GID, RESPONSE_NONE);
	/* UC starts a message at any PSN (specification 9.8.2.2.1). */
	uint32_t epsn = atomic_load_explicit(&qp->epsn, memory_order_relaxed);

	c->limit = epsn;
	c->value = request->psn;
	if (request->type == IBV_QPT_RC && epsn != request->psn)
		return say(c, CAUSE_PSN_MISMATCH, RESPONSE_NONE);

	uint32_t access = atomic_load_explicit(&qp->access, memory_order_relaxed);
	uint32_t rights = responder_rights(request->opcode);

	if ((access & rights) != rights) {
		c->access = rights;
		c->region_access = access;
		return say(c, CAUSE_QP_ACCESS, RESPONSE_NAK_INVALID);
	}
	/* Packets of another size than the path MTU are only right when the message fits into
	 * one. */
	c->limit = qp->path_mtu;
	c->value = request->mtu;
	if (qp->path_mtu != request->mtu &&
	    request->length > (qp->path_mtu < request->mtu ? qp->path_mtu : request->mtu))
		return say(c, CAUSE_MTU_MISMATCH,
			   request->opcode == IBV_WR_RDMA_READ ? RESPONSE_BAD :
								 RESPONSE_NAK_INVALID);
	if (rights & (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC) &&
	    request->outstanding > qp->max_dest_rd_atomic) {
		c->limit = qp->max_dest_rd_atomic;
		c->value = request->outstanding;
		return say(c, CAUSE_RESPONDER_DEPTH, RESPONSE_NAK_INVALID);
	}
	c->limit = c->value = 0;
	return RESPONSE_ACK;
}

/* It is the receive that is wrong, so it is its posting that matters. */
static void blame_receive(const struct target *target, const struct nic_rwqe *wqe, struct cause *c)
{
	uint64_t watch = atomic_load_explicit(&target->seg->hdr.watch, memory_order_acquire);

	if (watch && wqe->stack)
		c->stacks[CAUSE_STACK_CALL] =
			wqe->stack | (seg_at(target->seg, watch) == watch_now() ? 0 : CAUSE_STACK_OF_PEER);
}

static enum response refuse_qkey(struct cause *c, uint32_t qkey, uint32_t found)
{
	c->limit = qkey;
	c->value = found;
	return say(c, CAUSE_DROP_QKEY, RESPONSE_NONE);
}

static uint32_t index_of(const struct target *target, const struct seg_qp *qp)
{
	return (uint32_t)(qp - target->seg->qps);
}

enum response responder_admit(const struct target *target, struct seg_qp *qp,
			      const struct request *request, uint64_t *admitted, struct cause *c)
{
	uint64_t word = atomic_load_explicit(&qp->state, memory_order_acquire);
	enum ibv_qp_state state = word & 0xff;

	*admitted = word;

	c->peer_qpn = request->dest_qpn;
	c->peer_state = state;
	if (!(word & NIC_QP_EXISTS))
		return say(c, CAUSE_PEER_QP_UNKNOWN, RESPONSE_NONE);
	if ((word >> 8 & 0xff) != qp_type_code(request->type))
		return say(c, CAUSE_PEER_QP_TYPE, RESPONSE_NONE);
	if (word & NIC_QP_RESP_ERROR)
		attention_qp(target,
			     index_of(target,
				      qp)); /* who set it may have been stopped before telling */
	if (word & NIC_QP_RESP_ERROR || state < IBV_QPS_RTR || state == IBV_QPS_ERR)
		return say(c, CAUSE_PEER_QP_STATE, RESPONSE_NONE);
	if (request->type == IBV_QPT_UD)
		return qp->qkey == request->qkey ? RESPONSE_ACK : refuse_qkey(c, qp->qkey, request->qkey);
	return admit_connected(qp, request, c);
}

/* How many receives are available behind the one that was taken. */
static uint64_t left_behind(const struct receive *receive)
{
	uint64_t tail = atomic_load_explicit(&receive->rq->tail, memory_order_relaxed);
	uint64_t next = receive->taken.position + 1;

	return tail > next ? tail - next : 0; /* the tail may lag behind what was posted */
}

enum response responder_take(const struct target *target, struct seg_qp *qp, uint64_t state,
			     const struct request *request, uint64_t length, bool in_order,
			     struct receive *receive, struct cause *c)
{
	struct nic_segment *seg = target->seg;
	struct seg_srq *srq = qp->srq >= 0 ? &seg->srqs[qp->srq] : NULL;

	if (atomic_load_explicit(&seg->cqs[qp->recv_cq].error, memory_order_relaxed)) {
		c->count = atomic_load(&seg->cqs[qp->recv_cq].overflows);
		return say(c, CAUSE_REMOTE_CQ_ERROR, RESPONSE_NAK_OPERATION);
	}
	receive->srq = qp->srq;
	receive->rq = srq ? &srq->rq : &qp->rq;
	receive->pd = srq ? srq->pd : qp->pd;
	receive->life = nic_qp_life(state);

	uint64_t need = request->type == IBV_QPT_RC || srq ? 0 : length;

	switch (rq_take(seg, receive->rq, srq ? 0 : receive->life, request->src_qpn, need,
			in_order && !srq, &receive->taken)) {
	case RQ_TOO_SHORT:
		c->limit = rq_wqe(seg, receive->rq, receive->taken.slot)->room;
		c->value = length;
		return say(c, CAUSE_DROP_TOO_LONG, RESPONSE_NONE);
	case RQ_EMPTY:
		return say(c, CAUSE_RNR, RESPONSE_RNR);
	case RQ_BUSY:
		return RESPONSE_BUSY;
	case RQ_TAKEN:
		break;
	}
	receive->wqe = rq_wqe(seg, receive->rq, receive->taken.slot);
	if (srq) {
		/* seq_cst: pairs with nic_srq_arm_limit(), which arms and then looks at the
		 * head. */
		uint32_t limit = atomic_load(&receive->rq->limit);

		if (limit & NIC_LIMIT_FIRED)
			attention_srq(target, (uint32_t)qp->srq);
		else if (limit && left_behind(receive) < limit) {
			atomic_compare_exchange_strong(&receive->rq->limit, &limit,
						       NIC_LIMIT_FIRED);
			crash_point(LIMIT_FIRED);
			attention_srq(target, (uint32_t)qp->srq);
		}
	}
	return RESPONSE_ACK;
}

enum cause_code responder_scatter(const struct nic *nic, struct seg_visit *here, const struct target *target,
				  const struct receive *receive, uint64_t length, struct piece *pieces, uint32_t *count,
				  struct cause *c)
{
	const struct nic_rwqe *wqe = receive->wqe;
	uint64_t left = length, room = 0;

	*count = 0;
	for (uint32_t i = 0; i < wqe->num_sge && i < receive->rq->max_sge; i++) {
		const struct ibv_sge *sge = &wqe->sge[i];

		/* Hardware checks what it touches, and what it touches ends with the message. */
		uint64_t part = sge->length < left ? sge->length : left;

		room += sge->length;
		if (!part)
			continue;
		if (here)
			visit_touch(nic, here, target->seg, sge->lkey);
		enum cause_code wrong = mr_check(target->seg, false, sge->lkey, sge->addr, part, IBV_ACCESS_LOCAL_WRITE, receive->pd, 0,
						 &pieces[*count], c);

		if (wrong) {
			c->value = wrong;
			blame_receive(target, wqe, c);
			return CAUSE_RECEIVE_BAD_SGE;
		}
		(*count)++;
		left -= part;
	}
	if (left) {
		c->limit = room;
		c->value = length;
		blame_receive(target, wqe, c);
		return CAUSE_RECEIVE_TOO_SHORT;
	}
	return CAUSE_NONE;
}

void responder_count_empty(struct nic_segment *seg, struct seg_qp *qp)
{
	struct seg_rq *rq = qp->srq >= 0 ? &seg->srqs[qp->srq].rq : &qp->rq;

	counter_add_event(&rq->out_of_buffer, &seg->counters.out_of_buffer);
}

void responder_count_error(struct nic_segment *seg, struct seg_qp *qp, enum ibv_wc_status status)
{
	counter_add_event(&qp->events.resp_cqe_error, &seg->counters.resp_cqe_error);
	if (status == IBV_WC_WR_FLUSH_ERR)
		counter_add(&seg->counters.resp_cqe_flush_error, 1);
	else if (status == IBV_WC_LOC_LEN_ERR)
		counter_add(&seg->counters.resp_local_length_error, 1);
}

void responder_complete(const struct target *target, struct seg_qp *qp,
			const struct receive *receive, struct nic_cqe *cqe, bool solicited)
{
	const struct seg_cq *cq = &target->seg->cqs[qp->recv_cq];
	enum nic_ref_kind kind = receive->srq >= 0 ? NIC_REF_SRQ : NIC_REF_RQ;
	uint32_t index = receive->srq >= 0 ? (uint32_t)receive->srq : index_of(target, qp);
	uint64_t brief = cq_brief(cq, cqe);

	if (cqe->status != IBV_WC_SUCCESS)
		responder_count_error(target->seg, qp, cqe->status);
	if (!brief) {
		cqe->timestamp = cq_timestamp(cq);
		rq_complete(receive->wqe, cqe);
	}
	if (trace_on())
		trace_write(TRACE_CQE, (uint8_t)cqe->status, TRACE_CQE_RECV | (kind == NIC_REF_SRQ ? TRACE_CQE_SRQ : 0), qp->qpn,
			    receive->taken.slot, cqe->byte_len, qp->recv_cq);
	enum cq_publish result = cq_publish(target->seg, qp->recv_cq,
					    cq_reference(kind, index, receive->taken.slot, brief),
					    solicited || cqe->status != IBV_WC_SUCCESS);

	if (result != CQ_PUBLISHED) {
		if (result == CQ_PUBLISHED_FIRED && trace_on())
			trace_write(TRACE_FIRED, 0, 0, qp->recv_cq, 0, 0, qp->qpn);
		attention_cq(target, qp->recv_cq);
	}
	if (kind == NIC_REF_RQ && (atomic_load_explicit(&qp->state, memory_order_relaxed) >> 8 &
				   0xff) == qp_type_code(IBV_QPT_UD))
		rq_done(target->seg, receive->rq, receive->taken.position);
}

/* Adds a flag to the state of the life that admitted us. */
static bool add_flag(struct seg_qp *qp, uint64_t state, uint64_t flag)
{
	uint64_t word = atomic_load_explicit(&qp->state, memory_order_relaxed);

	do {
		if (nic_qp_life(word) != nic_qp_life(state) || word & flag)
			return false;
	} while (!atomic_compare_exchange_weak(&qp->state, &word, word | flag));
	return true;
}

void responder_fail(const struct target *target, struct seg_qp *qp, uint64_t state, uint64_t flag, uint64_t why)
{
	atomic_store_explicit(&qp->why, why, memory_order_relaxed);
	if (add_flag(qp, state, flag)) {
		crash_point(QP_FLAGGED);
		attention_qp(target, index_of(target, qp));
	}
}

void responder_established(const struct target *target, struct seg_qp *qp, uint64_t state,
			   uint32_t psn, uint32_t next_psn)
{
	/* A datagram's PSN means nothing to its receiver, and UC takes up any. */
	if ((state >> 8 & 0xff) == qp_type_code(IBV_QPT_RC))
		atomic_compare_exchange_strong(&qp->epsn, &psn, next_psn);
	else if ((state >> 8 & 0xff) == qp_type_code(IBV_QPT_UC))
		atomic_store(&qp->epsn, next_psn);
	crash_point(EPSN_MOVED);
	if ((state & 0xff) == IBV_QPS_RTR && !(state & NIC_QP_COMM_EST) &&
	    add_flag(qp, state, NIC_QP_COMM_EST))
		attention_qp(target, index_of(target, qp));
}

uint64_t rnr_timer(uint32_t code)
{
	/* In units of 10 us. */
	static const uint32_t table[32] = { 65536, 1,	 2,    3,     4,     6,	    8,	   12,
					    16,	   24,	 32,   48,    64,    96,    128,   192,
					    256,   384,	 512,  768,   1024,  1536,  2048,  3072,
					    4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152 };

	return table[code & 31] * 10000ull;
}
