/* SPDX-License-Identifier: MIT */
/* A send request. See request.h. */
#include "nic/request.h"

#include "nic/limits.h"
#include "observe/watch.h"

static enum cause_code wrong_length(const struct nic_swqe *wqe, enum cause_code code, uint64_t limit, struct cause *c)
{
	c->limit = limit;
	c->value = wqe->length;
	return code;
}

static enum cause_code gather(const struct nic_qp *qp, struct nic_swqe *wqe, struct piece *pieces, uint32_t *count,
			      struct cause *c)
{
	uint32_t rights = reads_remote(wqe->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (wqe->send_flags & IBV_SEND_INLINE) {
		pieces[(*count)++] = piece_ours(nic_swqe_inline(wqe), wqe->length);
		return CAUSE_NONE;
	}
	for (uint32_t i = 0; i < wqe->num_sge; i++) {
		if (!wqe->sge[i].length)
			continue;
		enum cause_code code = mr_check(qp->nic->seg, false, wqe->sge[i].lkey, wqe->sge[i].addr,
						wqe->sge[i].length, rights, qp->pd, 0, &pieces[*count], c);

		if (code)
			return code;
		(*count)++;
	}
	return CAUSE_NONE;
}

enum cause_code request_check(struct nic_qp *qp, struct nic_swqe *wqe, struct piece *pieces, uint32_t *count, struct cause *c,
			      enum ibv_wc_status *status)
{
	*count = 0;
	*status = IBV_WC_LOC_LEN_ERR;
	if (wqe->length > nic_limits()->max_msg)
		return wrong_length(wqe, CAUSE_MESSAGE_TOO_LONG, nic_limits()->max_msg, c);
	if (qp->type == IBV_QPT_UD && wqe->length > qp->mtu)
		return wrong_length(wqe, CAUSE_UD_TOO_LONG, qp->mtu, c);
	if (is_atomic(wqe->opcode) && wqe->length != 8)
		return wrong_length(wqe, CAUSE_ATOMIC_LENGTH, 8, c);
	*status = IBV_WC_LOC_QP_OP_ERR;
	if (qp->type == IBV_QPT_UD && wqe->ah.pd != qp->pd) {
		c->pd = qp->pd;
		c->region_pd = wqe->ah.pd;
		return CAUSE_AH_PD;
	}
	if (reads_remote(wqe->opcode) && !qp->attr.max_rd_atomic)
		return CAUSE_NO_INITIATOR_DEPTH;
	*status = IBV_WC_LOC_PROT_ERR;
	return gather(qp, wqe, pieces, count, c);
}

uint32_t request_record(const struct nic_qp *qp, const struct nic_swqe *wqe, enum cause_code code, enum ibv_wc_status status,
			struct cause *c)
{
	c->role = CAUSE_OF_REQUEST;
	c->code = code;
	c->error = (int32_t)status;
	c->qpn = qp->qpn;
	if (!c->peer_qpn)
		c->peer_qpn = qp->type == IBV_QPT_UD ? wqe->remote_qpn : qp->attr.dest_qp_num;
	c->wr_id = wqe->wr_id;
	c->wr_index = wqe->list_index;
	c->opcode = wqe->opcode;
	c->state = qp->state;
	if (!c->length)
		c->length = wqe->length;
	if (watch_now() && !c->stacks[CAUSE_STACK_CALL])
		c->stacks[CAUSE_STACK_CALL] = wqe->stack;
	return cause_record(nic_causes(qp->nic), c);
}
