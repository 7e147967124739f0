/* SPDX-License-Identifier: MIT */
/* Repair after a peer's death. See repair.h. */
#include "local/repair.h"

#include <stdlib.h>

#include "nic/qp.h"
#include "nic/qp_internal.h"
#include "nic/responder.h"

/* Whether a receive's taker was a datagram QP of this process. */
static bool was_datagram_of(const struct peer *peer, uint32_t taker)
{
	uint32_t index;
	struct seg_qp *qp = taker ? responder_find(&peer->target, taker, &index) : NULL;

	return qp && (atomic_load(&qp->state) >> 8 & 0xff) == qp_type_code(IBV_QPT_UD);
}

/* Which receives of a queue have completions that were not polled: these are whole. */
static void mark_completed(struct nic *nic, const struct nic_rq *rq, enum nic_ref_kind kind,
			   uint32_t index, uint8_t *seen)
{
	for (uint32_t i = 0; i < nic->qps.fresh; i++) {
		struct nic_qp *qp = nic_qp_get(nic, i);

		if (!qp)
			continue;
		if (rq == (qp->srq ? &qp->srq->rq : &qp->rq))
			nic_cq_mark(qp->recv_cq, kind, index, seen);
		nic_qp_put(qp);
	}
}

/* Receives that the dead process took for datagrams and did not complete become available again.
 * What it took for a connection stays with that connection's QP until the error state or RESET, as
 * in hardware. */
static void repair_queue(struct nic *nic, struct peer *peer, struct nic_rq *rq,
			 enum nic_ref_kind kind, uint32_t index)
{
	uint8_t *seen = NULL;

	for (uint32_t slot = 0; slot < rq->max_wr; slot++) {
		if (!was_datagram_of(peer, nic_rq_taker(rq, slot)))
			continue;
		if (!seen) {
			seen = calloc(1, NIC_MAX_WR);
			if (!seen)
				return;
			mark_completed(nic, rq, kind, index, seen);
		}
		if (!seen[slot])
			nic_rq_repost(rq, slot);
		else
			nic_rq_settle(rq, slot);
	}
	free(seen);
}

void repair_after(struct nic *nic, struct peer *peer)
{
	attention_serve(nic, true);
	for (uint32_t i = 0; i < nic->qps.fresh; i++) {
		struct nic_qp *qp = nic_qp_get(nic, i);

		if (!qp)
			continue;
		if (qp->srq)
			repair_queue(nic, peer, &qp->srq->rq, NIC_REF_SRQ, qp->srq->index);
		else if (qp->type == IBV_QPT_UD)
			repair_queue(nic, peer, &qp->rq, NIC_REF_RQ, i);
		nic_qp_put(qp);
	}
}
