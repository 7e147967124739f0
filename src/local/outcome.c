/* SPDX-License-Identifier: MIT */
/* How a message ends, and what its two ends see and record of that. See walk.h. */
#include "local/walk.h"
#include "nic/crash.h"
#include "nic/mw.h"
#include "nic/visit.h"

static uint32_t record(struct walk *w, enum cause_code code, enum ibv_wc_status status)
{
	if (w->ts->peer)
		w->cause.peer_pid = w->ts->peer->pid;
	return request_record(w->qp, w->wqe, code, status, &w->cause);
}

enum transport_outcome walk_failed(struct walk *w, enum cause_code code, enum ibv_wc_status status)
{
	w->result->status = status;
	w->result->cause = record(w, code, status);
	return TRANSPORT_FAILED;
}

enum transport_outcome walk_wait(struct walk *w, uint64_t due)
{
	w->result->due = due;
	return TRANSPORT_WAIT;
}

static enum cause_code drop_code(enum cause_code code)
{
	switch (code) {
	case CAUSE_RNR:
		return CAUSE_DROP_NO_RECEIVE;
	case CAUSE_PEER_QP_STATE:
	case CAUSE_PEER_QP_UNKNOWN:
	case CAUSE_PEER_QP_TYPE:
		return CAUSE_DROP_NO_QP;
	case CAUSE_QP_ACCESS:
		return CAUSE_DROP_ACCESS;
	default:
		return code < CAUSE_DROP_NO_RECEIVE ? CAUSE_DROP_UNREACHABLE : code;
	}
}

/* UC and UD: the message is lost and its sender does not hear of it; but it can be found out. */
enum transport_outcome walk_dropped(struct walk *w, enum cause_code code)
{
	if (w->target_qp && w->ts->peer) {
		atomic_fetch_add_explicit(&w->target_qp->drops, 1, memory_order_relaxed);
		counter_add(&w->ts->peer->visitor.seg->counters.rx_drops, 1);
	}
	record(w, drop_code(code), IBV_WC_SUCCESS);
	return TRANSPORT_DONE;
}

/* Nothing came back. */
enum transport_outcome walk_silence(struct walk *w, enum cause_code code)
{
	w->result->cause = code;
	w->result->peer_state = w->cause.peer_state;
	w->result->peer_pid = w->ts->peer ? w->ts->peer->pid : 0;
	if (code == CAUSE_PSN_MISMATCH) {
		w->result->psn = (uint32_t)w->cause.value;
		w->result->peer_psn = (uint32_t)w->cause.limit;
	}
	return w->qp->type == IBV_QPT_RC ? TRANSPORT_NO_RESPONSE : walk_dropped(w, code);
}

/* The target's QP fails, by what was recorded here. Its process is given its own view of it: of a message that arrived. */
static void fail_target(struct walk *w, uint64_t flag, const struct cause *recorded)
{
	struct nic_segment *seg = w->ts->peer->target.seg;
	struct cause c = *recorded;
	uint64_t why = CAUSE_TOLD;

	if (seg != w->qp->nic->seg) {
		c.role = CAUSE_OF_OTHER;
		c.error = 0;
		c.qpn = w->request.dest_qpn;
		c.peer_qpn = w->request.src_qpn;
		c.peer_pid = (int32_t)w->qp->nic->seg->hdr.pid;
		c.state = c.peer_state;
		for (unsigned i = 0; i < CAUSE_STACKS; i++)
			c.stacks[i] ^= c.stacks[i] ? CAUSE_STACK_OF_PEER : 0;
		c.stacks[CAUSE_STACK_QP] = 0;
		why = cause_leave(&seg->causes, &c);
	}
	responder_fail(&w->ts->peer->target, w->target_qp, w->target_state, flag, why);
}

/* The receive fails: RC's responder reports it to both ends, UC and UD lose the message; the
 * receive completes in error and its QP goes to the error state. */
enum transport_outcome walk_receive_fails(struct walk *w, enum cause_code code)
{
	bool too_short = code == CAUSE_RECEIVE_TOO_SHORT;
	struct peer *peer = w->ts->peer;
	struct nic_cqe cqe = {
		.status = too_short ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR,
		.opcode = IBV_WC_RECV,
		.qp_num = w->request.dest_qpn,
		.src_qp = w->request.src_qpn,
		.vendor_err = code,
	};

	responder_complete(&peer->target, w->target_qp, &w->ts->receive, &cqe, true);
	w->ts->taken = false;
	enum transport_outcome outcome =
		w->qp->type != IBV_QPT_RC ?
			walk_dropped(w, too_short ? CAUSE_DROP_TOO_LONG : CAUSE_DROP_BAD_SGE) :
			walk_failed(w, code, too_short ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);

	/* An SRQ serves other QPs: a datagram that fails there leaves its QP alone (class E). */
	if (w->qp->type == IBV_QPT_RC || w->ts->receive.srq < 0)
		fail_target(w, NIC_QP_FAILED, &w->cause);
	return outcome;
}

/* The event at the responder (specification 11.6.3.2): opcodes that the QP does not take are
 * invalid requests; keys, misaligned atomics, too many READs and wrong lengths are access
 * violations, also where the NAK says invalid request. */
static uint64_t event_flag(enum response response, uint32_t code)
{
	if (response == RESPONSE_NAK_OPERATION)
		return NIC_QP_FAILED;
	return code == CAUSE_QP_ACCESS ? NIC_QP_REQ_ERR : NIC_QP_ACCESS_ERR;
}

/* The responder refuses with a NAK. */
enum transport_outcome walk_refused(struct walk *w, enum response response)
{
	if (w->qp->type != IBV_QPT_RC)
		return walk_dropped(w, w->cause.code == CAUSE_QP_ACCESS ||
						       response == RESPONSE_NAK_ACCESS ?
					       CAUSE_DROP_ACCESS :
					       w->cause.code);
	if (response == RESPONSE_BAD)
		return walk_failed(w, (enum cause_code)w->cause.code, IBV_WC_BAD_RESP_ERR);

	uint64_t flag = event_flag(response, w->cause.code);
	enum transport_outcome outcome = walk_failed(w, (enum cause_code)w->cause.code,
						     response == RESPONSE_NAK_ACCESS  ? IBV_WC_REM_ACCESS_ERR :
						     response == RESPONSE_NAK_INVALID ? IBV_WC_REM_INV_REQ_ERR :
											IBV_WC_REM_OP_ERR);

	fail_target(w, flag, &w->cause);
	return outcome;
}

/* A copy did not succeed. */
enum transport_outcome walk_copy_failed(struct walk *w, enum copy_result result)
{
	if (result == COPY_LOCAL_FAULT)
		return walk_failed(w, CAUSE_LOCAL_FAULT, IBV_WC_LOC_PROT_ERR);
	if (result == COPY_GONE)
		return walk_silence(w, CAUSE_PEER_DIED);
	w->cause.code = CAUSE_REMOTE_FAULT;
	if (is_send(w->wqe->opcode))
		return walk_receive_fails(w, CAUSE_REMOTE_FAULT);
	return walk_refused(w, RESPONSE_NAK_ACCESS);
}

/* A SEND with Invalidate that cannot invalidate has arrived all the same, and its sender hears of nothing; its receive and the
 * connection fail (specification 9.9.3, class J). False: so it is. */
static bool invalidate(struct walk *w, struct nic_cqe *cqe, struct cause *c)
{
	struct peer *peer = w->ts->peer;
	enum cause_code code;

	visit_touch(w->qp->nic, w->here, peer->visitor.seg, w->wqe->rkey);
	code = mw_invalidate(peer->visitor.seg, w->wqe->rkey, w->request.dest_qpn, w->target_qp->pd, c);

	if (!code) {
		cqe->wc_flags |= IBV_WC_WITH_INV;
		cqe->imm_data = w->wqe->rkey;
		return true;
	}
	cqe->status = IBV_WC_REM_INV_REQ_ERR;
	cqe->vendor_err = request_record(w->qp, w->wqe, code, IBV_WC_SUCCESS, c);
	return false;
}

/* All bytes are in place: what the two ends see of it. */
enum transport_outcome walk_delivered(struct walk *w)
{
	struct nic_qp *qp = w->qp;
	struct target *target = &w->ts->peer->target;
	enum ibv_wr_opcode opcode = w->wqe->opcode;

	crash_point(DELIVERING);
	uint64_t packets = w->wqe->length <= w->request.mtu ?
				   1 :
				   (w->wqe->length + w->request.mtu - 1) / w->request.mtu;
	uint32_t psn = qp->sq_psn;

	qp->sq_psn = (uint32_t)(psn + packets) & 0xffffff;
	responder_established(target, w->target_qp, w->target_state, psn, qp->sq_psn);
	if (qp->type != IBV_QPT_UD)
		responder_count(w->target_qp, opcode, w->wqe->length);
	else if (w->ts->taken) /* what a taker has just written to */
		counter_add(&w->ts->receive.rq->datagram_bytes, w->wqe->length);
	if (w->ts->taken) {
		struct nic_cqe cqe = {
			.status = IBV_WC_SUCCESS,
			.opcode = is_send(opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
			.byte_len = (uint32_t)w->length,
			.imm_data = has_imm(opcode) ? w->wqe->imm_data : 0,
			.qp_num = w->request.dest_qpn,
			.src_qp = w->request.src_qpn,
			.wc_flags = (has_imm(opcode) ? IBV_WC_WITH_IMM : 0u) |
				    (qp->type == IBV_QPT_UD ? IBV_WC_GRH : 0u),
			.sl = qp->type == IBV_QPT_UD ? w->wqe->ah.sl : qp->path.sl,
		};

		struct cause c = { .peer_pid = w->ts->peer->pid };
		bool valid = opcode != IBV_WR_SEND_WITH_INV || invalidate(w, &cqe, &c);

		responder_complete(target, w->target_qp, &w->ts->receive, &cqe,
				   w->wqe->send_flags & IBV_SEND_SOLICITED);
		if (!valid)
			fail_target(w, NIC_QP_FAILED, &c);
	}
	return TRANSPORT_DONE;
}
