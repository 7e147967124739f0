/* SPDX-License-Identifier: MIT */
/*
 * The local transport (nic/transport.h): the initiator's thread walks the message through the
 * target's segment. This file leads the walk: checks the request, reaches the process, visits it,
 * finds the memory at the other end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "local/express.h"
#include "local/payload.h"
#include "nic/qp.h"
#include "nic/qp_internal.h"
#include "nic/requester.h"
#include "nic/responder.h"
#include "nic/visit.h"
#include "observe/trace.h"

/* ns: how long RTR waits for an answer; how often it is asked for later; when a process that does
 * not answer counts as silent. */
#define ATTACH_WAIT  20000000ull
#define ATTACH_POLL  200000ull
#define ATTACH_LIMIT 1000000000ull

/* ns: how often a receiver of datagrams, or over UC, is looked at again; how long without a single
 * delivery, before messages are dropped. */
#define PACE_STEP  50000ull
#define PACE_LIMIT 100000000ull

/* ns: for how long a message of RC travels that finds no receive. */
#define RNR_TRAVEL 20000ull

/* ns: the same while another datagram is being received; then its sender counts as standing
 * still. */
#define BUSY_POLL  20000ull
#define BUSY_LIMIT 100000000ull

/* Beside enum transport_outcome: the step is done, the message goes on. */
enum { GO_ON = -1 };

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

/* Our side of the message: what the request itself gets wrong, and the pieces of our memory. */
static int check_request(struct walk *w)
{
	enum ibv_wc_status status;
	uint32_t header = 0;
	enum cause_code code;

	w->length = w->wqe->length;
	if (w->qp->type == IBV_QPT_UD) {
		w->local[header++] = piece_ours(w->ts->grh, GRH_BYTES);
		w->length += GRH_BYTES;
	}
	code = request_check(w->qp, w->wqe, w->local + header, &w->local_count, &w->cause, &status);
	w->local_count += header;
	return code ? (int)walk_failed(w, code, status) : GO_ON;
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
		.qkey = datagram ? request_qkey(qp, w->wqe) : 0,
		.outstanding = outstanding(w),
	};
}

/* The process is of this host, and takes messages by the wire only. */
static enum transport_outcome take_wire(struct walk *w)
{
	uint64_t budget = 0;

	attach_put(w->qp->nic, w->ts->peer);
	w->ts->peer = NULL;
	if (w->qp->type == IBV_QPT_UD)
		return wire_transport.execute(w->qp, w->wqe, &budget, w->result);
	w->qp->transport = &wire_transport;
	w->qp->transport->connect(w->qp); /* else it says so when it sends */
	if (trace_on())
		nic_qp_trace(w->qp, (uint8_t)w->qp->state);
	return walk_wait(w, 0);
}

/* The process that holds the destination QPN: into ts->peer. */
static int reach(struct walk *w)
{
	struct transport_state *ts = w->ts;
	enum cause_code why;

	if (ts->peer)
		return atomic_load(&ts->peer->dead) ? (int)walk_silence(w, CAUSE_PEER_DIED) : GO_ON;
	ts->peer = attach_get(w->qp->nic, w->request.dest_qpn >> NIC_QPN_INDEX_BITS, 0, &why);
	if (ts->peer && ts->peer->visitor.seg->hdr.wire_only)
		return take_wire(w);
	if (ts->peer) {
		ts->attach_since = 0;
		if (w->qp->type != IBV_QPT_UD)
			atomic_store(&w->qp->shared->peer_instance, ts->peer->instance);
		return GO_ON;
	}
	if (why)
		return walk_silence(w, why);
	if (!ts->attach_since)
		ts->attach_since = nic_now();
	if (nic_now() - ts->attach_since > ATTACH_LIMIT)
		return walk_silence(w, CAUSE_PEER_SILENT);
	return walk_wait(w, nic_now() + ATTACH_POLL);
}

/* How many receives the receiver has posted. */
static uint64_t has_posted(const struct walk *w)
{
	const struct seg_qp *qp = w->target_qp;
	const struct seg_rq *rq = qp->srq < 0 ? &qp->rq :
						&w->ts->peer->visitor.seg->srqs[qp->srq].rq;

	return atomic_load_explicit(&rq->tail, memory_order_relaxed);
}

/* No receive is posted. RC waits for what the responder's timer says, unless the receiver is only a
 * moment behind: on the wire that moment is the message's travel. UC and UD wait a little, for a receiver
 * that is slow, but not for one that does not come or never did. */
static enum transport_outcome not_ready(struct walk *w)
{
	uint64_t now = nic_now();
	struct nic_segment *seg = w->ts->peer->visitor.seg;

	if (w->qp->type == IBV_QPT_RC) {
		if (!w->ts->paced_since && has_posted(w)) {
			w->ts->paced_since = now;
			return walk_wait(w, now + RNR_TRAVEL);
		}
		w->result->timer = rnr_timer(
			atomic_load_explicit(&w->target_qp->min_rnr_timer, memory_order_relaxed));
		w->result->due = now + w->result->timer;
		w->result->value = has_posted(w);
		w->result->srq = w->target_qp->srq >= 0;
		w->result->peer_pid = w->ts->peer->pid;
		responder_count_empty(seg, w->target_qp);
		return TRANSPORT_RNR;
	}
	if (has_posted(w) && !w->ts->paced_since)
		w->ts->paced_since = now;
	if (has_posted(w) && now - w->ts->paced_since < PACE_LIMIT)
		return walk_wait(w, now + PACE_STEP);
	responder_count_empty(seg, w->target_qp);
	return walk_dropped(w, CAUSE_DROP_NO_RECEIVE);
}

/* The memory that the remote key names. */
static enum cause_code check_remote_range(struct walk *w)
{
	struct nic_swqe *wqe = w->wqe;

	if (is_atomic(wqe->opcode) && wqe->remote_addr % 8) {
		w->cause.addr = wqe->remote_addr;
		return CAUSE_ATOMIC_ALIGNMENT;
	}
	visit_touch(w->qp->nic, w->here, w->ts->peer->visitor.seg, wqe->rkey);
	return mr_check(w->ts->peer->visitor.seg, true, wqe->rkey, wqe->remote_addr, wqe->length,
			responder_rights(wqe->opcode), w->target_qp->pd, w->request.dest_qpn, &w->remote[0], &w->cause);
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

	w->remote_count = 0;
	/* Zero bytes at any address with any key are nothing (specification 9.7.4.1.2). */
	if (!is_send(opcode) && w->wqe->length) {
		enum cause_code code = check_remote_range(w);

		if (code) {
			w->cause.code = code;
			return walk_refused(w, code == CAUSE_ATOMIC_ALIGNMENT ?
						       RESPONSE_NAK_INVALID :
						       RESPONSE_NAK_ACCESS);
		}
		w->remote_count = 1;
	}
	if (needs_receive(opcode) && !ts->taken) {
		enum response response = responder_take(&ts->peer->target, w->target_qp,
							w->target_state, &w->request,
							is_send(opcode) ? w->length : 0,
							keeps_order(w), &ts->receive, &w->cause);

		if (response == RESPONSE_BUSY) {
			if (!ts->busy_since)
				ts->busy_since = nic_now();
			return walk_wait(w, nic_now() + BUSY_POLL);
		}
		if (response == RESPONSE_RNR)
			return not_ready(w);
		if (response == RESPONSE_NONE)
			return walk_dropped(w, (enum cause_code)w->cause.code);
		if (response != RESPONSE_ACK)
			return walk_refused(w, response);
		if (trace_on())
			walk_trace_taken(w);
		ts->taken = true;
		ts->paced_since = ts->busy_since = 0;
	}
	if (is_send(opcode)) {
		enum cause_code code = responder_scatter(w->qp->nic, w->here, &ts->peer->target, &ts->receive, w->length,
							 w->remote, &w->remote_count, &w->cause);

		if (code)
			return walk_receive_fails(w, code);
	}
	return GO_ON;
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
		return walk_silence(w, CAUSE_PEER_QP_UNKNOWN);

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
		return walk_silence(w, (enum cause_code)w->cause.code);
	if (response != RESPONSE_ACK)
		return walk_refused(w, response);
	express_know(w);
	outcome = aim(w);
	if (outcome != GO_ON)
		return outcome;
	if (ts->ask)
		return payload_take_answer(w);
	return payload_move(w, budget);
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
			return nic_now() < ts->ask_deadline ? walk_wait(w, ts->ask_deadline) :
							      walk_silence(w, CAUSE_PEER_SILENT);
		case ASK_LOST:
			assist_end(nic, ts->ask);
			ts->ask = NULL;
			return walk_silence(w, CAUSE_PEER_SILENT);
		case ASK_ANSWERED:
			break;
		}
	}
	if (w->qp->type == IBV_QPT_UD)
		grh_write(ts->grh, &w->wqe->ah, w->wqe->length);

	w->here = visit_enter(nic, ts->peer->visitor.seg);
	if (!w->here)
		return walk_wait(w, nic_now() + BUSY_POLL);
	outcome = visit(w, budget);
	visit_leave(w->here);
	return outcome;
}

static enum transport_outcome execute(struct nic_qp *qp, struct nic_swqe *wqe, uint64_t *budget,
				      struct transport_result *result)
{
	struct walk w;

	/* The rest is not looked at before it is set, and is not small. */
	w.qp = qp;
	w.wqe = wqe;
	w.ts = qp->ts;
	w.result = result;
	if (express(&w, budget))
		return TRANSPORT_DONE;
	w.target_qp = NULL;
	w.seen = NULL;
	memset(&w.cause, 0, sizeof(w.cause));

	enum transport_outcome outcome = walk(&w, budget);

	if (outcome == TRANSPORT_DONE || outcome == TRANSPORT_FAILED)
		finish(qp, qp->ts);
	return outcome;
}

static int connect_qp(struct nic_qp *qp)
{
	enum cause_code why;

	if (!qp->ts)
		qp->ts = calloc(1, sizeof(*qp->ts));
	if (!qp->ts)
		return ENOMEM;
	if (qp->type == IBV_QPT_UD)
		return 0;
	qp->ts->peer =
		attach_get(qp->nic, qp->attr.dest_qp_num >> NIC_QPN_INDEX_BITS, ATTACH_WAIT, &why);
	if (!qp->ts->peer)
		return 0;
	if (qp->ts->peer->visitor.seg->hdr.wire_only) {
		attach_put(qp->nic, qp->ts->peer);
		qp->ts->peer = NULL;
		qp->transport = &wire_transport;
		return qp->transport->connect(qp);
	}
	atomic_store(&qp->shared->peer_instance, qp->ts->peer->instance);
	return 0;
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

static uint64_t filled_at(const struct nic_qp *qp)
{
	const struct seg_rq *rq = qp->ts->receive.rq;

	return rq ? atomic_load_explicit(&rq->filled_at, memory_order_relaxed) : 0;
}

const struct transport local_transport = {
	.connect = connect_qp,
	.disconnect = disconnect,
	.execute = execute,
	.cancel = cancel,
	.filled_at = filled_at,
};
