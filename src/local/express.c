/* SPDX-License-Identifier: MIT */
/* The way that most messages go. See express.h. */
#include "local/express.h"

#include "local/copy.h"
#include "nic/crash.h"
#include "nic/mr.h"
#include "nic/qp_internal.h"
#include "nic/visit.h"
#include "observe/trace.h"

void express_know(struct walk *w)
{
	struct transport_state *ts = w->ts;
	const struct seg_qp *target = w->target_qp;
	const struct ibv_qp_attr *attr = &w->qp->attr;

	ts->known = NULL;
	if (w->qp->type == IBV_QPT_UD || target->path_mtu != w->request.mtu ||
	    attr->max_rd_atomic > target->max_dest_rd_atomic)
		return;
	ts->known = w->target_qp;
	ts->known_state = w->target_state;
	ts->known_as = w->qp->modified;
}

static void *local_view(struct walk *w)
{
	struct nic_swqe *wqe = w->wqe;
	struct nic *nic = w->qp->nic;
	struct piece piece;

	if (wqe->send_flags & IBV_SEND_INLINE)
		return nic_swqe_inline(wqe);
	if (wqe->num_sge != 1 ||
	    !mr_find(nic->seg, false, wqe->sge[0].lkey, wqe->sge[0].addr, wqe->length,
		     reads_remote(wqe->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0, w->qp->pd, &piece))
		return NULL;
	return memory_view(attach_self(nic), &piece);
}

static void *remote_view(struct walk *w, uint32_t rights)
{
	struct nic_swqe *wqe = w->wqe;
	struct peer *peer = w->ts->peer;
	struct piece piece;

	if (!mr_find(peer->visitor.seg, true, wqe->rkey, wqe->remote_addr, wqe->length, rights,
		     w->target_qp->pd, &piece))
		return NULL;
	return memory_view(peer, &piece);
}

/* Of the receive that was taken. */
static void *receive_view(struct walk *w)
{
	const struct receive *receive = &w->ts->receive;
	const struct ibv_sge *sge = &receive->wqe->sge[0];
	struct peer *peer = w->ts->peer;
	struct piece piece;

	visit_touch(w->qp->nic, w->here, peer->visitor.seg, sge->lkey);
	if (receive->wqe->num_sge != 1 || sge->length < w->length ||
	    !mr_find(peer->visitor.seg, false, sge->lkey, sge->addr, w->length,
		     IBV_ACCESS_LOCAL_WRITE, receive->pd, &piece))
		return NULL;
	return memory_view(peer, &piece);
}

static void move(struct walk *w, void *local, void *remote)
{
	const struct nic_swqe *wqe = w->wqe;

	crash_point(COPY_BEGIN);
	if (is_atomic(wqe->opcode)) {
		uint64_t old = copy_atomic(remote, wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP,
					   wqe->compare_add, wqe->swap);

		copy_ordered(local, &old, sizeof(old));
	} else if (wqe->opcode == IBV_WR_RDMA_READ) {
		copy_ordered(local, remote, w->length);
	} else {
		copy_ordered(remote, local, w->length);
	}
	crash_point(COPY_END);
}

/* Within a visit. */
static bool deliver(struct walk *w)
{
	struct transport_state *ts = w->ts;
	struct nic_qp *qp = w->qp;
	enum ibv_wr_opcode opcode = w->wqe->opcode;
	uint32_t rights = responder_rights(opcode);
	void *local, *remote = NULL;

	w->target_qp = ts->known;
	w->target_state = ts->known_state;
	if (atomic_load_explicit(&w->target_qp->state, memory_order_acquire) != ts->known_state ||
	    (qp->type == IBV_QPT_RC &&
	     atomic_load_explicit(&w->target_qp->epsn, memory_order_relaxed) != qp->sq_psn) ||
	    (atomic_load_explicit(&w->target_qp->access, memory_order_relaxed) & rights) != rights)
		return false;
	local = local_view(w);
	if (!local)
		return false;
	if (rights) {
		if (is_atomic(opcode) && (w->wqe->remote_addr % 8 || w->length != 8))
			return false;
		remote = remote_view(w, rights);
		if (!remote)
			return false;
	}
	if (needs_receive(opcode)) {
		if (responder_take(&ts->peer->target, w->target_qp, w->target_state, &w->request,
				   is_send(opcode) ? w->length : 0, false, &ts->receive,
				   &w->cause) != RESPONSE_ACK)
			return false;
		ts->taken = true;
		if (is_send(opcode)) {
			remote = receive_view(w);
			if (!remote) {
				if (trace_on())
					walk_trace_taken(w);
				return false;
			}
		}
	}
	move(w, local, remote);
	if (visit_is_evicted(w->here))
		return false;
	counter_add_alone(&qp->shared->sent.mapped, 1);
	if (trace_on()) {
		w->seen = local;
		walk_trace(w);
	}
	walk_delivered(w);
	if (ts->taken) {
		/* The next one will want these; until then they have the time. */
		rq_prefetch(ts->peer->visitor.seg, ts->receive.rq, &ts->receive.taken);
		ts->taken = false;
	}
	return true;
}

bool express(struct walk *w, uint64_t *budget)
{
	struct transport_state *ts = w->ts;
	struct nic_qp *qp = w->qp;

	w->length = w->wqe->length;
	if (!ts->known || ts->known_as != qp->modified || ts->taken || ts->done || ts->ask ||
	    !w->length || w->length > *budget ||
	    (reads_remote(w->wqe->opcode) && !qp->attr.max_rd_atomic) ||
	    atomic_load_explicit(&ts->peer->dead, memory_order_relaxed))
		return false;
	/* Of the request only what the responder looks at from here on. */
	w->request.type = qp->type;
	w->request.src_qpn = qp->qpn;
	w->request.dest_qpn = qp->attr.dest_qp_num;
	w->request.mtu = ts->known->path_mtu;

	w->here = visit_enter_with(qp->nic, ts->peer->visitor.seg, responder_rights(w->wqe->opcode) ? visit_key(w->wqe->rkey) : 0);
	bool delivered = w->here && deliver(w);

	if (w->here)
		visit_leave(w->here);
	if (delivered)
		*budget -= w->length;
	return delivered;
}
