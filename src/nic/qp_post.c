/* SPDX-License-Identifier: MIT */
/*
 * Posting: from ibv_send_wr lists and from the calls of the extended API into send WQEs. A WQE is
 * checked completely before it is published; what a request cannot say wrongly until it is executed
 * (keys, bounds) is the requester's.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "nic/limits.h"
#include "nic/request.h"
#include "nic/requester.h"
#include "observe/trace.h"

/* Where the opcode may be used (specification tables 38 and 76: there is no UC packet that invalidates). */
static bool opcode_is_supported(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return true;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return type != IBV_QPT_UD;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return type == IBV_QPT_RC;
	case IBV_WR_BIND_MW:
	case IBV_WR_LOCAL_INV:
		return type != IBV_QPT_UD && nic_limits()->windows;
	case IBV_WR_SEND_WITH_INV:
		return type == IBV_QPT_RC && nic_limits()->windows;
	default:
		return false;
	}
}

static int refuse(const struct nic_qp *qp, enum cause_code code, int error, uint64_t wr_id,
		  uint32_t index, uint32_t opcode, uint64_t value, uint64_t limit)
{
	cause_record(nic_causes(qp->nic), &(struct cause){ .role = CAUSE_OF_POST,
							   .code = code,
							   .error = error,
							   .qpn = qp->qpn,
							   .wr_id = wr_id,
							   .wr_index = index,
							   .opcode = opcode,
							   .state = qp->state,
							   .value = value,
							   .limit = limit });
	return error;
}

/* There are three ways to get here: completions that were not polled, none because nothing was signaled, or more under way than
 * there is room for. value: how many were executed; count: 1 if one of them has a completion. */
static int refuse_full(struct nic_qp *qp, uint32_t head, uint64_t wr_id, uint32_t index, uint32_t opcode)
{
	uint64_t executed = (uint32_t)qp->sq_exec - head, position = qp->sq_exec - executed;

	while (position != qp->sq_exec && !(qp_swqe(qp, position)->send_flags & IBV_SEND_SIGNALED))
		position++;
	cause_record(nic_causes(qp->nic), &(struct cause){ .role = CAUSE_OF_POST,
							   .code = CAUSE_SQ_FULL,
							   .error = ENOMEM,
							   .qpn = qp->qpn,
							   .wr_id = wr_id,
							   .wr_index = index,
							   .opcode = opcode,
							   .state = qp->state,
							   .value = executed,
							   .limit = qp->cap.max_send_wr,
							   .count = position != qp->sq_exec });
	return ENOMEM;
}

/* Finds room and sets what is common to both APIs. */
static int claim(struct nic_qp *qp, uint64_t wr_id, enum ibv_wr_opcode opcode, unsigned flags,
		 struct nic_swqe **to)
{
	uint32_t index = qp->batch_count;

	if (qp->state < IBV_QPS_RTS)
		return refuse(qp, CAUSE_POST_STATE, EINVAL, wr_id, index, opcode, qp->state,
			      IBV_QPS_RTS);
	if (!opcode_is_supported(qp->type, opcode))
		return refuse(qp, CAUSE_POST_OPCODE, EINVAL, wr_id, index, opcode, opcode, 0);

	uint32_t head = atomic_load_explicit(&qp->shared->sent.head, memory_order_acquire);

	if ((uint32_t)qp->sq_claimed - head >= qp->cap.max_send_wr)
		return refuse_full(qp, head, wr_id, index, opcode);

	struct nic_swqe *wqe = qp_swqe(qp, qp->sq_claimed);

	memset(&wqe->wr_id, 0, offsetof(struct nic_swqe, sge) - offsetof(struct nic_swqe, wr_id));
	if (qp->type == IBV_QPT_UD)
		wqe->ah.pd = 0;
	wqe->wr_id = wr_id;
	wqe->opcode = (uint8_t)opcode;
	wqe->send_flags = (uint16_t)(flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0));
	wqe->list_index = index;
	*to = wqe;
	qp->sq_claimed++;
	qp->batch_count++;
	return 0;
}

/* Mostly a few words: not worth a call. Returns where the next bytes go. */
static inline uint8_t *copy_inline(uint8_t *to, const uint8_t *from, size_t length)
{
	uint8_t *end = to + length;

	if (length > 4 * sizeof(uint64_t) || length % sizeof(uint64_t)) {
		memcpy(to, from, length);
		return end;
	}
	for (; to < end; to += sizeof(uint64_t), from += sizeof(uint64_t))
		memcpy(to, from, sizeof(uint64_t));
	return end;
}

/* Makes a WQE one of length inline bytes, which are not copied yet. */
static int set_inline_length(struct nic_qp *qp, struct nic_swqe *wqe, uint64_t length)
{
	wqe->send_flags |= IBV_SEND_INLINE;
	/* What is brought back needs memory to go to. */
	if (wqe->opcode == IBV_WR_RDMA_READ || is_atomic(wqe->opcode))
		return refuse(qp, CAUSE_POST_FLAGS, EINVAL, wqe->wr_id, wqe->list_index,
			      wqe->opcode, wqe->send_flags, 0);
	if (length > qp->cap.max_inline_data)
		return refuse(qp, CAUSE_POST_INLINE, EINVAL, wqe->wr_id, wqe->list_index,
			      wqe->opcode, length, qp->cap.max_inline_data);
	wqe->num_sge = 0;
	wqe->length = length;
	return 0;
}

int nic_swqe_set_sges(struct nic_qp *qp, struct nic_swqe *wqe, const struct ibv_sge *sge,
		      uint32_t num_sge)
{
	uint32_t limit = qp->cap.max_send_sge;
	uint64_t length = 0;

	if (wqe->opcode == IBV_WR_RDMA_READ && limit > nic_limits()->max_sge_rd)
		limit = nic_limits()->max_sge_rd;
	if (num_sge > limit)
		return refuse(qp, CAUSE_POST_SGES, EINVAL, wqe->wr_id, wqe->list_index, wqe->opcode,
			      num_sge, limit);
	for (uint32_t i = 0; i < num_sge; i++)
		length += sge[i].length;
	if (wqe->send_flags & IBV_SEND_INLINE) {
		uint8_t *to = nic_swqe_inline(wqe);
		int error = set_inline_length(qp, wqe, length);

		for (uint32_t i = 0; i < num_sge && !error; i++)
			to = copy_inline(to, (const uint8_t *)(uintptr_t)sge[i].addr,
					 sge[i].length);
		return error;
	}
	wqe->num_sge = (uint8_t)num_sge;
	wqe->length = length;
	for (uint32_t i = 0; i < num_sge; i++)
		wqe->sge[i] = sge[i];
	return 0;
}

int nic_swqe_set_inline(struct nic_qp *qp, struct nic_swqe *wqe, const struct ibv_data_buf *buf,
			size_t num_buf)
{
	uint8_t *to = nic_swqe_inline(wqe);
	uint64_t length = 0;
	int error;

	for (size_t i = 0; i < num_buf; i++)
		length += buf[i].length;
	error = set_inline_length(qp, wqe, length);
	for (size_t i = 0; i < num_buf && !error; i++)
		to = copy_inline(to, buf[i].addr, buf[i].length);
	return error;
}

#define WINDOW_ACCESS                                                                                           \
	(IBV_ACCESS_LOCAL_WRITE /* says nothing */ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED)

int nic_swqe_set_bind(struct nic_qp *qp, struct nic_swqe *wqe, const struct ibv_mw *mw, uint32_t rkey,
		      const struct ibv_mw_bind_info *info)
{
	if (!mw || (!info->mr && info->length) || info->mw_access_flags & ~(unsigned)WINDOW_ACCESS)
		return refuse(qp, CAUSE_POST_BIND, EINVAL, wqe->wr_id, wqe->list_index, wqe->opcode, info->mw_access_flags,
			      WINDOW_ACCESS);
	wqe->window = mw_key(&((const struct nic_mw_handle *)mw)->nic);
	wqe->rkey = rkey;
	wqe->remote_addr = info->addr;
	wqe->window_length = info->length;
	wqe->window_lkey = info->mr ? info->mr->lkey : 0;
	wqe->window_access = info->mw_access_flags;
	return 0;
}

/* What can be said only when the whole WQE is there. */
static int check(struct nic_qp *qp, struct nic_swqe *wqe)
{
	if (qp->type == IBV_QPT_UD && !wqe->ah.pd)
		return refuse(qp, CAUSE_POST_NO_AH, EINVAL, wqe->wr_id, wqe->list_index,
			      wqe->opcode, 0, 0);
	return 0;
}

static void begin(struct nic_qp *qp)
{
	/* An initiator's report counts from now on, even if the helper has not read it. */
	if (atomic_load_explicit(&qp->shared->state, memory_order_acquire) & NIC_QP_RESP_ERROR)
		nic_qp_attend(qp);
	nic_lock(&qp->lock);
	qp->sq_claimed = qp->sq_tail;
	qp->batch_count = 0;
	qp->batch_error = 0;
}

/* Not worth a call. */
static inline __attribute__((always_inline)) void publish(struct nic_qp *qp)
{
	struct seg_sent *sent = &qp->shared->sent;
	uint32_t tail = (uint32_t)qp->sq_claimed;
	uint32_t depth = tail - atomic_load_explicit(&sent->head, memory_order_relaxed);

	qp->sq_tail = qp->sq_claimed;
	atomic_store_explicit(&sent->posted, tail, memory_order_relaxed);
	if (__builtin_expect(depth > atomic_load_explicit(&sent->high, memory_order_relaxed), false))
		atomic_store_explicit(&sent->high, depth, memory_order_relaxed);
	requester_run(qp);
	nic_unlock(&qp->lock);
}

/* A request that was posted, in the trace; with the last one of a list that all of it is about to be executed. */
static __attribute__((cold, noinline)) void trace_post(struct nic_qp *qp, uint64_t position, bool last)
{
	const struct nic_swqe *wqe = qp_swqe(qp, position);
	struct trace_claim claim = trace_claim(1 + last);

	trace_put(&claim, TRACE_POST_SEND, wqe->opcode, (uint8_t)wqe->send_flags, qp->qpn, (uint32_t)position, (uint32_t)wqe->length,
		  wqe->wr_id);
	if (last)
		trace_put(&claim, TRACE_RING, 0, 0, qp->qpn, (uint32_t)qp->sq_tail, (uint32_t)(position + 1 - qp->sq_tail), 0);
}

static int take_over(struct nic_qp *qp, const struct ibv_send_wr *wr)
{
	struct nic_swqe *wqe;
	int error = claim(qp, wr->wr_id, wr->opcode, wr->send_flags, &wqe);

	if (error)
		return error;
	wqe->imm_data = wr->imm_data;
	if (wr->opcode == IBV_WR_BIND_MW) {
		error = nic_swqe_set_bind(qp, wqe, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
	} else if (wr->opcode == IBV_WR_LOCAL_INV || wr->opcode == IBV_WR_SEND_WITH_INV) {
		wqe->rkey = wr->invalidate_rkey;
	} else if (is_atomic(wr->opcode)) {
		wqe->remote_addr = wr->wr.atomic.remote_addr;
		wqe->rkey = wr->wr.atomic.rkey;
		wqe->compare_add = wr->wr.atomic.compare_add;
		wqe->swap = wr->wr.atomic.swap;
	} else if (qp->type == IBV_QPT_UD) {
		if (wr->wr.ud.ah)
			wqe->ah = *nic_ah_of(wr->wr.ud.ah);
		wqe->remote_qpn = wr->wr.ud.remote_qpn;
		wqe->remote_qkey = wr->wr.ud.remote_qkey;
	} else {
		wqe->remote_addr = wr->wr.rdma.remote_addr;
		wqe->rkey = wr->wr.rdma.rkey;
	}
	/* A negative number of SGEs is too many as well. */
	if (!is_local(wr->opcode))
		error = nic_swqe_set_sges(qp, wqe, wr->sg_list, (uint32_t)wr->num_sge);
	if (!error)
		error = check(qp, wqe);
	if (error)
		qp->sq_claimed--;
	return error;
}

/* Up to the first that is refused, which is *wr then. */
static inline __attribute__((always_inline)) int take_over_list(struct nic_qp *qp, struct ibv_send_wr **wr)
{
	int error = 0;

	for (; *wr && !(error = take_over(qp, *wr)); *wr = (*wr)->next)
		continue;
	return error;
}

/* The same, with each request in the trace. */
static __attribute__((cold, noinline)) int take_over_traced(struct nic_qp *qp, struct ibv_send_wr **wr)
{
	int error = 0;

	for (; *wr && !(error = take_over(qp, *wr)); *wr = (*wr)->next)
		trace_post(qp, qp->sq_claimed - 1, !(*wr)->next);
	/* What came before the bad one is executed too. */
	if (error && qp->sq_claimed != qp->sq_tail)
		trace_write(TRACE_RING, 0, 0, qp->qpn, (uint32_t)qp->sq_tail, (uint32_t)(qp->sq_claimed - qp->sq_tail), 0);
	return error;
}

int nic_qp_post_send(struct nic_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	int error;

	if (nic_is_orphan(qp->nic)) {
		if (bad_wr)
			*bad_wr = wr;
		return EIO;
	}
	begin(qp);
	error = trace_on() ? take_over_traced(qp, &wr) : take_over_list(qp, &wr);
	if (error && bad_wr)
		*bad_wr = wr;
	/* What came before the bad one is posted. */
	publish(qp);
	return error;
}

int nic_qp_post_recv(struct nic_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	enum cause_code refused = CAUSE_NONE;
	uint64_t state;
	int error;

	if (nic_is_orphan(qp->nic)) {
		if (bad_wr)
			*bad_wr = wr;
		return EIO;
	}
	state = atomic_load_explicit(&qp->shared->state, memory_order_relaxed) & 0xff;
	/* A receive posted in the error state is flushed; the check comes after posting, so that
	 * whichever of the two comes later finds the other. */
	if (qp->srq)
		refused = CAUSE_POST_ON_SRQ_QP;
	else if (state == IBV_QPS_RESET)
		refused = CAUSE_POST_STATE;
	if (refused) {
		if (bad_wr)
			*bad_wr = wr;
		return refuse(qp, refused, EINVAL, wr ? wr->wr_id : 0, 0, IBV_WC_RECV, state, 0);
	}
	error = nic_rq_post(&qp->rq, wr, bad_wr, qp->qpn, CAUSE_RQ_FULL);
	state = atomic_load(&qp->shared->state);
	if (state & NIC_QP_RESP_ERROR)
		nic_qp_attend(qp);
	if (state & NIC_QP_RESP_ERROR || (state & 0xff) == IBV_QPS_ERR) {
		nic_lock(&qp->lock);
		if (qp->state == IBV_QPS_ERR) {
			qp->flush_receives = true;
			qp->flush_deadline = nic_now() + 1;
		}
		requester_run(qp);
		nic_unlock(&qp->lock);
	}
	return error;
}

void nic_qp_begin(struct nic_qp *qp)
{
	/* An orphan's lock may be held for ever. */
	if (!nic_is_orphan(qp->nic))
		begin(qp);
}

struct nic_swqe *nic_qp_claim(struct nic_qp *qp, uint64_t wr_id, enum ibv_wr_opcode opcode,
			      unsigned flags, int *error)
{
	struct nic_swqe *wqe = NULL;

	*error = nic_is_orphan(qp->nic) ? EIO : claim(qp, wr_id, opcode, flags, &wqe);
	return *error ? NULL : wqe;
}

int nic_qp_commit(struct nic_qp *qp)
{
	int error = 0;

	if (nic_is_orphan(qp->nic))
		return EIO;
	for (uint64_t position = qp->sq_tail; position != qp->sq_claimed && !error; position++)
		error = check(qp, qp_swqe(qp, position));
	if (error)
		qp->sq_claimed = qp->sq_tail;
	for (uint64_t position = qp->sq_tail; trace_on() && position != qp->sq_claimed; position++)
		trace_post(qp, position, position + 1 == qp->sq_claimed);
	publish(qp);
	return error;
}

void nic_qp_abort(struct nic_qp *qp)
{
	if (nic_is_orphan(qp->nic))
		return;
	qp->sq_claimed = qp->sq_tail;
	nic_unlock(&qp->lock);
}
