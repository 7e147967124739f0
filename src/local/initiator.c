/* SPDX-License-Identifier: MIT */
/* The local transport. See initiator.h. */
#include "local/initiator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "local/assist.h"
#include "local/grh.h"
#include "local/memory.h"
#include "nic/crash.h"
#include "nic/gid.h"
#include "nic/limits.h"
#include "nic/mr.h"
#include "nic/qp.h"
#include "nic/qp_internal.h"
#include "nic/requester.h"
#include "nic/responder.h"
#include "nic/visit.h"

#define ATTACH_WAIT  20000000ull   /* ns: how long RTR waits for an answer */
#define ATTACH_POLL  200000ull	   /* ns */
#define ATTACH_LIMIT 1000000000ull /* ns: then a peer that does not answer counts as silent */
#define ASK_POLL     50000ull	   /* ns: when a request could not be sent yet */
#define ASK_LIMIT \
	1000000000ull	   /* ns: the same, for an answer, where the QP has no timer of its own */
#define PACE_STEP 50000ull /* ns */
#define PACE_LIMIT \
	100000000ull	    /* ns without a single delivery: then UC and UD messages are dropped */
#define BUSY_POLL  20000ull /* ns */
#define BUSY_LIMIT 100000000ull /* ns */

/* Beside enum transport_outcome: the step is done, the message goes on. */
enum { GO_ON = -1 };

struct transport_state {
	struct peer *peer; /* RC, UC: from when it is reachable; UD: while a message is under way */
	/* since when it cannot be attached, or asked for assistance; 0: not so */
	uint64_t attach_since;
	uint64_t busy_since; /* UD: since when another datagram is being received; 0: it is not */
	/* since when the receiver has been found empty at every look; 0: the last one was taken */
	uint64_t paced_since;
	/* The message under way */
	bool taken; /* receive is valid */
	struct receive receive;
	uint64_t done; /* bytes in place */
	struct ask *ask;
	uint64_t ask_deadline;
	uint8_t grh[GRH_BYTES]; /* UD */
};

/* All that a message needs while it is being executed. */
struct walk {
	struct nic_qp *qp;
	struct nic_swqe *wqe;
	struct transport_state *ts;
	struct transport_result *result;
	struct request request;
	struct seg_qp *target_qp;
	uint32_t target_index;
	uint64_t target_state; /* by which it admitted us */
	struct iovec local[MEMORY_PIECES];
	uint32_t local_count;
	uint64_t length; /* to be moved; UD: with the GRH */
	struct iovec remote[NIC_MAX_SGE];
	uint32_t remote_count;
	struct cause cause;
};

static bool is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool reads_remote(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

static bool is_send(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

static bool has_imm(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool needs_receive(enum ibv_wr_opcode opcode)
{
	return is_send(opcode) || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* The WQE ends, in whatever way: nothing of it is left. */
static void finish(struct nic_qp *qp, struct transport_state *ts)
{
	if (ts->ask)
		assist_end(qp->nic, ts->ask);
	ts->ask = NULL;
	ts->taken = false;
	ts->done = 0;
	ts->attach_since = 0;
	if (qp->type == IBV_QPT_UD && ts->peer) {
		attach_put(qp->nic, ts->peer);
		ts->peer = NULL;
	}
}

static uint32_t record(struct walk *w, enum cause_code code, enum ibv_wc_status status)
{
	w->cause.code = code;
	w->cause.error = (int32_t)status;
	w->cause.qpn = w->qp->qpn;
	w->cause.peer_qpn = w->request.dest_qpn;
	w->cause.wr_id = w->wqe->wr_id;
	w->cause.wr_index = w->wqe->list_index;
	w->cause.opcode = w->wqe->opcode;
	w->cause.state = w->qp->state;
	if (w->ts->peer)
		w->cause.peer_pid = w->ts->peer->pid;
	if (!w->cause.length)
		w->cause.length = w->wqe->length;
	return cause_record(nic_causes(w->qp->nic), &w->cause);
}

static enum transport_outcome failed(struct walk *w, enum cause_code code,
				     enum ibv_wc_status status)
{
	w->result->status = status;
	w->result->cause = record(w, code, status);
	return TRANSPORT_FAILED;
}

static enum transport_outcome wait_until(struct walk *w, uint64_t due)
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
static enum transport_outcome dropped(struct walk *w, enum cause_code code)
{
	if (w->target_qp && w->ts->peer) {
		atomic_fetch_add_explicit(&w->target_qp->drops, 1, memory_order_relaxed);
		counter_add(&w->ts->peer->visitor.seg->counters.rx_drops, 1);
	}
	record(w, drop_code(code), IBV_WC_SUCCESS);
	return TRANSPORT_DONE;
}

/* Nothing came back. */
static enum transport_outcome silence(struct walk *w, enum cause_code code)
{
	w->result->cause = code;
	return w->qp->type == IBV_QPT_RC ? TRANSPORT_NO_RESPONSE : dropped(w, code);
}

/* Our side of the message: pieces of our memory, each checked. */
static enum cause_code gather(struct walk *w)
{
	struct nic_swqe *wqe = w->wqe;
	uint32_t rights = reads_remote(wqe->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;

	w->local_count = 0;
	w->length = wqe->length;
	if (w->qp->type == IBV_QPT_UD) {
		w->local[w->local_count++] =
			(struct iovec){ .iov_base = w->ts->grh, .iov_len = GRH_BYTES };
		w->length += GRH_BYTES;
	}
	if (wqe->send_flags & IBV_SEND_INLINE) {
		w->local[w->local_count++] =
			(struct iovec){ .iov_base = nic_swqe_inline(w->qp, wqe),
					.iov_len = wqe->inline_length };
		return CAUSE_NONE;
	}
	for (uint32_t i = 0; i < wqe->num_sge; i++) {
		uint64_t va;

		if (!wqe->sge[i].length)
			continue;
		enum cause_code code = mr_check(w->qp->nic->seg, false, wqe->sge[i].lkey,
						wqe->sge[i].addr, wqe->sge[i].length, rights,
						w->qp->pd, &va, &w->cause);

		if (code)
			return code;
		w->local[w->local_count++] = (struct iovec){ .iov_base = (void *)(uintptr_t)va,
							     .iov_len = wqe->sge[i].length };
	}
	return CAUSE_NONE;
}

static int wrong_length(struct walk *w, enum cause_code code, uint64_t limit)
{
	w->cause.limit = limit;
	w->cause.value = w->wqe->length;
	return failed(w, code, IBV_WC_LOC_LEN_ERR);
}

/* What the request itself gets wrong, whoever it is sent to. */
static int check_request(struct walk *w)
{
	struct nic_swqe *wqe = w->wqe;

	if (wqe->length > nic_limits()->max_msg)
		return wrong_length(w, CAUSE_MESSAGE_TOO_LONG, nic_limits()->max_msg);
	if (w->qp->type == IBV_QPT_UD && wqe->length > w->qp->mtu)
		return wrong_length(w, CAUSE_UD_TOO_LONG, w->qp->mtu);
	if (w->qp->type == IBV_QPT_UD && wqe->ah.pd != w->qp->pd) {
		w->cause.pd = w->qp->pd;
		w->cause.region_pd = wqe->ah.pd;
		return failed(w, CAUSE_AH_PD, IBV_WC_LOC_QP_OP_ERR);
	}
	if (is_atomic(wqe->opcode) && wqe->length != 8)
		return wrong_length(w, CAUSE_ATOMIC_LENGTH, 8);
	if (reads_remote(wqe->opcode) && !w->qp->attr.max_rd_atomic)
		return failed(w, CAUSE_NO_INITIATOR_DEPTH, IBV_WC_LOC_QP_OP_ERR);

	enum cause_code code = gather(w);

	return code ? (int)failed(w, code, IBV_WC_LOC_PROT_ERR) : GO_ON;
}

/* How many READs and atomics the requester would have under way at once, this one first: those
 * queued behind it, as far as max_rd_atomic lets them start before the first is answered. */
static uint32_t outstanding(const struct walk *w)
{
	struct nic_qp *qp = w->qp;
	uint32_t count = 0;

	if (!reads_remote(w->wqe->opcode))
		return 0;
	for (uint64_t position = qp->sq_exec;
	     position != qp->sq_tail && count < qp->attr.max_rd_atomic; position++) {
		const struct nic_swqe *wqe = qp_swqe(qp, position);

		if (position != qp->sq_exec && wqe->send_flags & IBV_SEND_FENCE)
			break;
		count += reads_remote(wqe->opcode);
	}
	return count;
}

static void make_request(struct walk *w)
{
	struct nic_qp *qp = w->qp;
	bool datagram = qp->type == IBV_QPT_UD;
	const struct nic_ah *path = datagram ? &w->wqe->ah : &qp->path;

	w->request = (struct request){
		.type = qp->type,
		.opcode = w->wqe->opcode,
		.src_qpn = qp->qpn,
		.dest_qpn = datagram ? w->wqe->remote_qpn : qp->attr.dest_qp_num,
		.instance = qp->nic->seg->hdr.instance,
		.sgid = &path->sgid,
		.dgid = &path->dgid,
		.psn = qp->sq_psn,
		.mtu = datagram ? qp->mtu : qp_mtu_bytes(qp->attr.path_mtu),
		.length = w->wqe->length,
		/* A remote Q_Key with the top bit set means the QP's own (specification 10.2.5). */
		.qkey = w->wqe->remote_qkey & 0x80000000u ? qp->attr.qkey : w->wqe->remote_qkey,
		.outstanding = outstanding(w),
	};
}

/* The process that holds the destination QPN: into ts->peer. */
static int reach(struct walk *w)
{
	struct transport_state *ts = w->ts;
	enum cause_code why;

	if (ts->peer)
		return atomic_load(&ts->peer->dead) ? (int)silence(w, CAUSE_PEER_DIED) : GO_ON;
	if (!gid_is_local(w->request.dgid))
		return silence(w, CAUSE_NO_WIRE);
	ts->peer = attach_get(w->qp->nic, w->request.dest_qpn >> NIC_QPN_INDEX_BITS, 0, &why);
	if (ts->peer) {
		ts->attach_since = 0;
		if (w->qp->type != IBV_QPT_UD)
			atomic_store(&w->qp->shared->peer_instance, ts->peer->instance);
		return GO_ON;
	}
	if (why)
		return silence(w, why);
	if (!ts->attach_since)
		ts->attach_since = nic_now();
	if (nic_now() - ts->attach_since > ATTACH_LIMIT)
		return silence(w, CAUSE_PEER_SILENT);
	return wait_until(w, nic_now() + ATTACH_POLL);
}

/* The receive fails: RC's responder reports it to both ends, UC and UD lose the message; the
 * receive completes in error and its QP goes to the error state. */
static enum transport_outcome receive_fails(struct walk *w, enum cause_code code)
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
	/* An SRQ serves other QPs: a datagram that fails there leaves its QP alone (class E). */
	if (w->qp->type == IBV_QPT_RC || w->ts->receive.srq < 0)
		responder_fail(&peer->target, w->target_qp, w->target_state, NIC_QP_FAILED);
	if (w->qp->type != IBV_QPT_RC)
		return dropped(w, too_short ? CAUSE_DROP_TOO_LONG : CAUSE_DROP_BAD_SGE);
	return failed(w, code, too_short ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
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
static enum transport_outcome refused(struct walk *w, enum response response)
{
	if (w->qp->type != IBV_QPT_RC)
		return dropped(w,
			       w->cause.code == CAUSE_QP_ACCESS || response == RESPONSE_NAK_ACCESS ?
				       CAUSE_DROP_ACCESS :
				       w->cause.code);
	if (response == RESPONSE_BAD)
		return failed(w, (enum cause_code)w->cause.code, IBV_WC_BAD_RESP_ERR);
	responder_fail(&w->ts->peer->target, w->target_qp, w->target_state,
		       event_flag(response, w->cause.code));
	return failed(w, (enum cause_code)w->cause.code,
		      response == RESPONSE_NAK_ACCESS  ? IBV_WC_REM_ACCESS_ERR :
		      response == RESPONSE_NAK_INVALID ? IBV_WC_REM_INV_REQ_ERR :
							 IBV_WC_REM_OP_ERR);
}

/* True once the receiver has posted anything. */
static bool has_posted(const struct walk *w)
{
	const struct seg_qp *qp = w->target_qp;
	const struct seg_rq *rq = qp->srq < 0 ? &qp->rq :
						&w->ts->peer->visitor.seg->srqs[qp->srq].rq;

	return atomic_load_explicit(&rq->tail, memory_order_relaxed);
}

/* No receive is posted. RC waits for what the responder's timer says; UC and UD wait a little, for
 * a receiver that is only slow, but not for one that does not come or never did. */
static enum transport_outcome not_ready(struct walk *w)
{
	uint64_t now = nic_now();

	if (w->qp->type == IBV_QPT_RC) {
		w->result->timer = rnr_timer(
			atomic_load_explicit(&w->target_qp->min_rnr_timer, memory_order_relaxed));
		w->result->due = now + w->result->timer;
		return TRANSPORT_RNR;
	}
	if (!has_posted(w))
		return dropped(w, CAUSE_DROP_NO_RECEIVE);
	if (!w->ts->paced_since)
		w->ts->paced_since = now;
	if (now - w->ts->paced_since < PACE_LIMIT)
		return wait_until(w, now + PACE_STEP);
	return dropped(w, CAUSE_DROP_NO_RECEIVE);
}

/* The memory that the remote key names. */
static enum cause_code check_remote_range(struct walk *w, uint64_t *va)
{
	struct nic_swqe *wqe = w->wqe;
	uint32_t rights = wqe->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ :
			  is_atomic(wqe->opcode)	  ? IBV_ACCESS_REMOTE_ATOMIC :
							    IBV_ACCESS_REMOTE_WRITE;

	if (is_atomic(wqe->opcode) && wqe->remote_addr % 8) {
		w->cause.addr = wqe->remote_addr;
		return CAUSE_ATOMIC_ALIGNMENT;
	}
	return mr_check(w->ts->peer->visitor.seg, true, wqe->rkey, wqe->remote_addr, wqe->length,
			rights, w->target_qp->pd, va, &w->cause);
}

/* Datagrams of several senders wait for each other, but not for one that stands still. */
static bool keeps_order(struct walk *w)
{
	return w->qp->type == IBV_QPT_UD &&
	       (!w->ts->busy_since || nic_now() - w->ts->busy_since < BUSY_LIMIT);
}

/* Finds the memory at the other end: of the key, or of a receive, which is taken. */
static int aim(struct walk *w)
{
	struct transport_state *ts = w->ts;
	enum ibv_wr_opcode opcode = w->wqe->opcode;
	uint64_t va = 0;

	w->remote_count = 0;
	/* Zero bytes at any address with any key are nothing (specification 9.7.4.1.2). */
	if (!is_send(opcode) && w->wqe->length) {
		enum cause_code code = check_remote_range(w, &va);

		if (code) {
			w->cause.code = code;
			return refused(w, code == CAUSE_ATOMIC_ALIGNMENT ? RESPONSE_NAK_INVALID :
									   RESPONSE_NAK_ACCESS);
		}
		w->remote[w->remote_count++] =
			(struct iovec){ .iov_base = (void *)(uintptr_t)va, .iov_len = w->length };
	}
	if (needs_receive(opcode) && !ts->taken) {
		enum response response = responder_take(&ts->peer->target, w->target_qp,
							w->target_state, &w->request,
							is_send(opcode) ? w->length : 0,
							keeps_order(w), &ts->receive, &w->cause);

		if (response == RESPONSE_BUSY) {
			if (!ts->busy_since)
				ts->busy_since = nic_now();
			return wait_until(w, nic_now() + BUSY_POLL);
		}
		if (response == RESPONSE_RNR)
			return not_ready(w);
		if (response == RESPONSE_NONE)
			return dropped(w, (enum cause_code)w->cause.code);
		if (response != RESPONSE_ACK)
			return refused(w, response);
		ts->taken = true;
		ts->paced_since = ts->busy_since = 0;
	}
	if (is_send(opcode)) {
		enum cause_code code = responder_scatter(&ts->peer->target, &ts->receive, w->length,
							 w->remote, &w->remote_count, &w->cause);

		if (code)
			return receive_fails(w, code);
	}
	return GO_ON;
}

/* All bytes are in place: what the two ends see of it. */
static enum transport_outcome delivered(struct walk *w)
{
	struct nic_qp *qp = w->qp;
	struct target *target = &w->ts->peer->target;
	enum ibv_wr_opcode opcode = w->wqe->opcode;

	crash_point(DELIVERING);
	uint64_t packets = w->wqe->length ? (w->wqe->length + w->request.mtu - 1) / w->request.mtu :
					    1;
	uint32_t psn = qp->sq_psn;

	qp->sq_psn = (uint32_t)(psn + packets) & 0xffffff;
	responder_established(target, w->target_qp, w->target_state, psn, qp->sq_psn);
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

		responder_complete(target, w->target_qp, &w->ts->receive, &cqe,
				   w->wqe->send_flags & IBV_SEND_SOLICITED);
	}
	return TRANSPORT_DONE;
}

/* A copy did not succeed. */
static enum transport_outcome copy_failed(struct walk *w, enum copy_result result)
{
	if (result == COPY_LOCAL_FAULT)
		return failed(w, CAUSE_LOCAL_FAULT, IBV_WC_LOC_PROT_ERR);
	if (result == COPY_GONE)
		return silence(w, CAUSE_PEER_DIED);
	w->cause.code = CAUSE_REMOTE_FAULT;
	if (is_send(w->wqe->opcode))
		return receive_fails(w, CAUSE_REMOTE_FAULT);
	return refused(w, RESPONSE_NAK_ACCESS);
}

/* Asks the target's helper for the next part. */
static enum transport_outcome ask(struct walk *w)
{
	struct transport_state *ts = w->ts;
	struct nic_swqe *wqe = w->wqe;
	uint64_t length = w->length - ts->done;
	uint64_t patience = w->qp->type == IBV_QPT_RC && w->qp->attr.timeout ?
				    4096ull << w->qp->attr.timeout :
				    ASK_LIMIT;
	struct message message = {
		.qpn = w->qp->qpn,
		.dest_qpn = w->request.dest_qpn,
		.pd = is_send(wqe->opcode) ? ts->receive.pd : w->target_qp->pd,
		.op = is_send(wqe->opcode)			 ? ASSIST_SCATTER :
		      wqe->opcode == IBV_WR_RDMA_READ		 ? ASSIST_READ :
		      wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP	 ? ASSIST_COMPARE_SWAP :
		      wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? ASSIST_FETCH_ADD :
								   ASSIST_WRITE,
		.compare_add = wqe->compare_add,
		.swap = wqe->swap,
	};
	struct iovec local[MEMORY_PIECES];
	uint32_t n;
	int error;

	if (length > ASSIST_CHUNK)
		length = ASSIST_CHUNK;
	message.length = length;
	n = memory_slice(w->local, w->local_count, ts->done, length, local);
	if (is_send(wqe->opcode)) {
		/* The receive's SGEs in its keys' address space: the helper checks them again
		 * itself. */
		uint64_t skip = ts->done, left = length;

		for (uint32_t i = 0; i < ts->receive.wqe->num_sge && i < NIC_MAX_SGE && left; i++) {
			struct ibv_sge sge = ts->receive.wqe->sge[i];

			if (skip >= sge.length) {
				skip -= sge.length;
				continue;
			}
			sge.addr += skip;
			sge.length -= (uint32_t)skip;
			skip = 0;
			if (sge.length > left)
				sge.length = (uint32_t)left;
			left -= sge.length;
			message.ranges[message.count++] = sge;
		}
	} else {
		message.ranges[message.count++] =
			(struct ibv_sge){ .addr = wqe->remote_addr + ts->done,
					  .length = (uint32_t)length,
					  .lkey = wqe->rkey };
	}
	ts->ask = assist_begin(w->qp->nic, ts->peer, w->qp->index, &message, local, n, &error);
	if (!ts->ask) {
		switch (error) {
		case EFAULT:
			return failed(w, CAUSE_LOCAL_FAULT, IBV_WC_LOC_PROT_ERR);
		case ECONNRESET:
		case EPIPE:
			return silence(w, CAUSE_PEER_DIED);
		default:
			if (!ts->attach_since)
				ts->attach_since = nic_now();
			if (nic_now() - ts->attach_since < patience)
				return wait_until(w, nic_now() + ASK_POLL);
			ts->attach_since = 0;
			return silence(w, CAUSE_PEER_SILENT);
		}
	}
	ts->attach_since = 0;
	ts->ask_deadline = nic_now() + patience;
	return wait_until(w, ts->ask_deadline);
}

/* The rest of a message whose memory is known: by copying ourselves or, where that is not possible,
 * by asking. */
static enum transport_outcome move(struct walk *w, uint64_t *budget)
{
	struct transport_state *ts = w->ts;
	bool from_peer = reads_remote(w->wqe->opcode);
	struct iovec local[MEMORY_PIECES], remote[NIC_MAX_SGE];

	while (ts->done < w->length) {
		uint64_t part = w->length - ts->done;

		if (!*budget)
			return TRANSPORT_MORE;
		if (part > *budget)
			part = *budget;

		uint32_t n = memory_slice(w->local, w->local_count, ts->done, part, local);
		uint32_t m = memory_slice(w->remote, w->remote_count, ts->done, part, remote);
		enum copy_result result =
			memory_copy(ts->peer, from_peer ? COPY_FROM_PEER : COPY_TO_PEER, local, n,
				    remote, m, part, !from_peer && !is_send(w->wqe->opcode));

		if (result == COPY_REFUSED)
			return ask(w);
		if (result != COPY_DONE)
			return copy_failed(w, result);
		crash_point(COPY_END);
		ts->done += part;
		*budget -= part;
	}
	return delivered(w);
}

static enum transport_outcome move_atomic(struct walk *w)
{
	struct peer *peer = w->ts->peer;
	uint64_t old;

	if (!peer->is_self)
		return ask(w);
	if (!assist_atomic(w->qp->nic, (uint64_t)(uintptr_t)w->remote[0].iov_base,
			   w->wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? ASSIST_COMPARE_SWAP :
									 ASSIST_FETCH_ADD,
			   w->wqe->compare_add, w->wqe->swap, &old))
		return copy_failed(w, COPY_REMOTE_FAULT);
	if (memory_copy(attach_self(w->qp->nic), COPY_TO_PEER,
			&(struct iovec){ .iov_base = &old, .iov_len = sizeof(old) }, 1, w->local,
			w->local_count, sizeof(old), false) != COPY_DONE)
		return failed(w, CAUSE_LOCAL_FAULT, IBV_WC_LOC_PROT_ERR);
	return delivered(w);
}

/* The answer of the target's helper is there. Within a visit. */
static enum transport_outcome take_answer(struct walk *w)
{
	struct transport_state *ts = w->ts;
	struct ask *ask = ts->ask;
	struct iovec local[MEMORY_PIECES];
	uint64_t length = ask->length;
	enum cause_code status = ask->status;
	bool collected = true;

	if (!status) {
		uint32_t n = memory_slice(w->local, w->local_count, ts->done, length, local);

		if (is_atomic(w->wqe->opcode)) {
			struct iovec value = { .iov_base = &ask->value,
					       .iov_len = sizeof(ask->value) };

			collected = memory_copy(attach_self(w->qp->nic), COPY_TO_PEER, &value, 1,
						local, n, sizeof(ask->value), false) == COPY_DONE;
		} else if (w->wqe->opcode == IBV_WR_RDMA_READ) {
			collected = assist_collect(w->qp->nic, ask, local, n);
		}
	}
	assist_end(w->qp->nic, ask);
	ts->ask = NULL;
	if (!collected)
		return failed(w, CAUSE_LOCAL_FAULT, IBV_WC_LOC_PROT_ERR);
	if (status == CAUSE_REMOTE_FAULT)
		return copy_failed(w, COPY_REMOTE_FAULT);
	if (status && is_send(w->wqe->opcode)) {
		return receive_fails(w, CAUSE_RECEIVE_BAD_SGE);
	} else if (status) {
		w->cause.code = status;
		return refused(w, RESPONSE_NAK_ACCESS);
	}
	ts->done += length;
	return ts->done == w->length ? delivered(w) : TRANSPORT_MORE;
}

/* Within a visit of the target: from here on until its end neither their queues nor any region,
 * theirs or ours, goes. */
static enum transport_outcome visit(struct walk *w, uint64_t *budget)
{
	struct transport_state *ts = w->ts;
	int outcome = check_request(w);

	if (outcome != GO_ON)
		return outcome;
	w->target_qp = responder_find(&ts->peer->target, w->request.dest_qpn, &w->target_index);
	if (!w->target_qp)
		return silence(w, CAUSE_PEER_QP_UNKNOWN);

	enum response response = responder_admit(&ts->peer->target, w->target_qp, &w->request,
						 &w->target_state, &w->cause);

	/* What was taken in another life of the QP was forgotten with it. */
	if (ts->taken && ts->receive.life != nic_qp_life(w->target_state)) {
		if (ts->ask)
			assist_end(w->qp->nic, ts->ask);
		ts->ask = NULL;
		ts->taken = false;
		ts->done = 0;
	}
	if (response == RESPONSE_NONE)
		return silence(w, (enum cause_code)w->cause.code);
	if (response != RESPONSE_ACK)
		return refused(w, response);
	outcome = aim(w);
	if (outcome != GO_ON)
		return outcome;
	if (ts->ask)
		return take_answer(w);
	return is_atomic(w->wqe->opcode) ? move_atomic(w) : move(w, budget);
}

static enum transport_outcome walk(struct walk *w, uint64_t *budget)
{
	struct nic *nic = w->qp->nic;
	struct transport_state *ts = w->ts;
	int outcome = GO_ON;

	make_request(w);
	if (!ts->peer)
		outcome = check_request(w);
	if (outcome == GO_ON)
		outcome = reach(w);
	if (outcome != GO_ON)
		return outcome;
	if (ts->ask) {
		switch (assist_state(nic, ts->ask)) {
		case ASK_SENT:
			/* An overdue answer costs a retry, but the request is not sent again: it
			 * may be done. */
			return nic_now() < ts->ask_deadline ? wait_until(w, ts->ask_deadline) :
							      silence(w, CAUSE_PEER_SILENT);
		case ASK_LOST:
			assist_end(nic, ts->ask);
			ts->ask = NULL;
			return silence(w, CAUSE_PEER_SILENT);
		case ASK_ANSWERED:
			break;
		}
	}
	if (w->qp->type == IBV_QPT_UD)
		grh_write(ts->grh, &w->wqe->ah, w->wqe->length);

	struct seg_visit *here = visit_enter(nic, ts->peer->primary_slot);

	if (!here)
		return wait_until(w, nic_now() + BUSY_POLL);
	outcome = visit(w, budget);
	visit_leave(here);
	return outcome;
}

static enum transport_outcome execute(struct nic_qp *qp, struct nic_swqe *wqe, uint64_t *budget,
				      struct transport_result *result)
{
	struct walk w = { .qp = qp, .wqe = wqe, .ts = qp->ts, .result = result };
	enum transport_outcome outcome = walk(&w, budget);

	if (outcome == TRANSPORT_DONE || outcome == TRANSPORT_FAILED)
		finish(qp, qp->ts);
	return outcome;
}

static void connect_qp(struct nic_qp *qp)
{
	enum cause_code why;

	if (!qp->ts)
		qp->ts = calloc(1, sizeof(*qp->ts));
	if (qp->type == IBV_QPT_UD || !gid_is_local(&qp->path.dgid))
		return;
	qp->ts->peer =
		attach_get(qp->nic, qp->attr.dest_qp_num >> NIC_QPN_INDEX_BITS, ATTACH_WAIT, &why);
	if (qp->ts->peer)
		atomic_store(&qp->shared->peer_instance, qp->ts->peer->instance);
}

static void cancel(struct nic_qp *qp)
{
	if (qp->ts)
		finish(qp, qp->ts);
}

static void disconnect(struct nic_qp *qp)
{
	if (!qp->ts)
		return;
	finish(qp, qp->ts);
	if (qp->ts->peer)
		attach_put(qp->nic, qp->ts->peer);
	free(qp->ts);
	qp->ts = NULL;
}

const struct transport local_transport = {
	.connect = connect_qp,
	.disconnect = disconnect,
	.execute = execute,
	.cancel = cancel,
};

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

void initiator_peer_died(struct nic *nic, struct peer *peer)
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
