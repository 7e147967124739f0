/* SPDX-License-Identifier: MIT */
/* The requester. See requester.h. */
#include "nic/requester.h"

#include <string.h>

#include "nic/attention.h"
#include "nic/mw.h"
#include "nic/request.h"
#include "nic/timing.h"
#include "nic/visit.h"
#include "observe/report.h"
#include "observe/trace.h"
#include "observe/watch.h"

/* How long work that only waits for its turn is left to the program's own polling before the helper
 * takes it. */
#define HELPER_DELAY 200000u /* ns */
#define FLUSH_RETRY  100000u /* ns */
#define BATCH	     16

static void defer(struct nic_qp *qp, uint64_t due)
{
	struct nic *nic = qp->nic;
	uint64_t helper_due = due ? due : nic_now() + HELPER_DELAY;

	pthread_mutex_lock(&nic->lock);
	qp->poller_due = due;
	qp->helper_due = helper_due;
	if (!qp->is_deferred) {
		qp->is_deferred = true;
		list_add_tail(&nic->deferred, &qp->of_deferred);
		atomic_fetch_add(&qp->send_cq->deferred, 1);
	}
	pthread_mutex_unlock(&nic->lock);
	/* The helper looks at the list before it sets helper_wakes_at: see helper.c. */
	if (helper_due < atomic_load(&nic->helper_wakes_at))
		nic_ring_doorbell(nic);
}

void requester_forget(struct nic_qp *qp)
{
	struct nic *nic = qp->nic;

	pthread_mutex_lock(&nic->lock);
	if (qp->is_deferred) {
		qp->is_deferred = false;
		list_del(&qp->of_deferred);
		atomic_fetch_sub(&qp->send_cq->deferred, 1);
	}
	pthread_mutex_unlock(&nic->lock);
}

static enum ibv_wc_opcode completion_opcode(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_SEND;
	}
}

static void count(struct nic_qp *qp, const struct nic_swqe *wqe)
{
	struct seg_sent *sent = &qp->shared->sent;

	if (is_local(wqe->opcode)) /* nothing was sent */
		return;
	counter_add_alone(&sent->requests[nic_kind(wqe->opcode)], 1);
	counter_add_alone(&sent->bytes, wqe->length);
}

static void count_error(struct nic_qp *qp, enum ibv_wc_status status)
{
	struct device_counters *device = &qp->nic->seg->counters;
	struct seg_qp_events *events = &qp->shared->events;

	counter_add_event(&events->req_cqe_error, &device->req_cqe_error);
	if (status == IBV_WC_WR_FLUSH_ERR)
		counter_add_event(&events->req_cqe_flush_error, &device->req_cqe_flush_error);
	else if (status == IBV_WC_REM_ACCESS_ERR)
		counter_add(&device->req_remote_access_errors, 1);
	else if (status == IBV_WC_REM_INV_REQ_ERR)
		counter_add(&device->req_remote_invalid_request, 1);
}

/* Ends the WQE at the head of the send queue. */
static void complete(struct nic_qp *qp, struct nic_swqe *wqe, enum ibv_wc_status status,
		     uint32_t cause)
{
	uint32_t slot = (uint32_t)(qp->sq_exec & ((1u << qp->sq_log2) - 1));

	qp->started = false;
	qp->finish_at = 0;
	qp->due = 0;
	qp->sq_exec++;
	atomic_store_explicit(&qp->shared->sent.executed, (uint32_t)qp->sq_exec, memory_order_relaxed);
	if (status == IBV_WC_SUCCESS) {
		count(qp, wqe);
		if (!(wqe->send_flags & IBV_SEND_SIGNALED))
			return;
	} else {
		count_error(qp, status);
	}

	struct nic_cqe cqe = {
		.wr_id = wqe->wr_id,
		.status = status,
		.opcode = completion_opcode(wqe->opcode),
		.byte_len = (uint32_t)wqe->length,
		.qp_num = qp->qpn,
		.vendor_err = cause,
	};
	uint64_t brief = cq_brief(qp->send_cq->shared, &cqe);

	if (!brief) {
		cqe.timestamp = cq_timestamp(qp->send_cq->shared);
		wqe->cqe = cqe;
	}
	if (trace_on())
		trace_write(TRACE_CQE, (uint8_t)status, 0, qp->qpn, (uint32_t)qp->sq_exec - 1, cqe.byte_len, qp->send_cq->index);
	nic_cq_publish(qp->send_cq, cq_reference(NIC_REF_SQ, qp->index, slot, brief),
		       status != IBV_WC_SUCCESS);
}

/* The WQE at the head is sent again. */
static void note_retry(struct nic_qp *qp, enum trace_retry kind)
{
	qp->retries++;
	if (trace_on())
		trace_write(TRACE_RETRY, (uint8_t)kind, 0, qp->qpn, (uint32_t)qp->sq_exec, qp->retries, 0);
}

/* Long enough for a person to notice, ns. */
#define RNR_LONG       1000000000ull
#define RNR_LOST       10000000ull  /* behind the posting of the receive */
#define RNR_TIMER_LONG 100000000ull /* where it is not known when that was */

/* A WQE failed: its completion, and what follows from it for the QP (specification 10.3.1: RC goes
 * to the error state, UC and UD to SQE). */
static void fail(struct nic_qp *qp, struct nic_swqe *wqe, enum ibv_wc_status status, uint32_t cause)
{
	complete(qp, wqe, status, cause);
	if (qp->type == IBV_QPT_RC) {
		nic_qp_fail(qp, CAUSE_FLUSHED);
	} else {
		qp->flushes = CAUSE_FLUSHED;
		nic_qp_set_state(qp, IBV_QPS_SQE);
	}
}

static uint64_t ack_timeout(const struct nic_qp *qp)
{
	return 4096ull << qp->attr.timeout;
}

static void no_response(struct nic_qp *qp, struct nic_swqe *wqe,
			const struct transport_result *result)
{
	if (!qp->attr.timeout) { /* no timer: for ever (specification 9.7.6.1.3) */
		qp->due = nic_now() + (100ull << 20);
		return;
	}
	counter_add_event(&qp->shared->events.local_ack_timeout_err, &qp->nic->seg->counters.local_ack_timeout_err);
	if (qp->retry_left--) {
		note_retry(qp, TRACE_RETRY_TIMEOUT);
		qp->due = result->waited ? 0 : nic_now() + ack_timeout(qp);
		return;
	}
	counter_add_event(&qp->shared->events.retry_exceeded_err, &qp->nic->seg->counters.retry_exceeded_err);

	struct cause c = { .limit = ack_timeout(qp),
			   .value = result->value,
			   .length = result->length,
			   .count = qp->attr.retry_cnt + 1u,
			   .psn = result->psn,
			   .peer_psn = result->peer_psn,
			   .peer_state = result->peer_state,
			   .peer_pid = result->peer_pid };
	uint32_t cause = request_record(qp, wqe, (enum cause_code)result->cause, IBV_WC_RETRY_EXC_ERR, &c);

	fail(qp, wqe, IBV_WC_RETRY_EXC_ERR, cause);
}

/* It may go on for ever and never be an error: that it takes long is said once, for each request. */
static void tell_of_waiting(struct nic_qp *qp, struct nic_swqe *wqe, const struct transport_result *result)
{
	uint64_t now = nic_now();

	if (qp->rnr_told || now - qp->rnr_since < RNR_LONG)
		return;

	struct cause c = { .thing = result->srq ? CAUSE_THING_SRQ : CAUSE_THING_NONE,
			   .limit = result->timer,
			   .value = now - qp->rnr_since,
			   .count = qp->attr.rnr_retry,
			   .peer_pid = result->peer_pid };

	request_record(qp, wqe, CAUSE_RNR_WAIT, IBV_WC_SUCCESS, &c);
	qp->rnr_told = true;
}

/* A receive was there at last. What matters is how late it came, and how long it was not looked at then. */
static void tell_of_timer(struct nic_qp *qp, struct nic_swqe *wqe)
{
	uint64_t now = nic_now(), filled = qp->transport->filled_at ? qp->transport->filled_at(qp) : 0;
	uint64_t late = filled > qp->rnr_since ? filled - qp->rnr_since : 0;
	struct cause c = { .limit = qp->rnr_timer, .value = now - qp->rnr_since, .count = late };
	uint64_t lost = late ? c.value - late : 0;

	watch_waited(qp->qpn, now, (uint32_t)(qp->sq_tail - qp->sq_exec), late, lost, qp->rnr_timer);
	if (qp->rnr_told)
		return;
	if (lost > qp->rnr_timer) /* this process was not run */
		lost = qp->rnr_timer;
	if (late ? lost >= RNR_LOST : qp->rnr_timer >= RNR_TIMER_LONG)
		request_record(qp, wqe, CAUSE_RNR_TIMER, IBV_WC_SUCCESS, &c);
}

static void receiver_not_ready(struct nic_qp *qp, struct nic_swqe *wqe,
			       const struct transport_result *result)
{
	if (!qp->rnr_waits) {
		qp->rnr_since = nic_now();
		qp->rnr_told = false;
		watch_waits(qp->qpn, qp->rnr_since, (uint32_t)(qp->sq_tail - qp->sq_exec));
	}
	qp->rnr_waits = true;
	qp->rnr_timer = (uint32_t)result->timer;
	counter_add_event(&qp->shared->events.rnr_nak_retry_err, &qp->nic->seg->counters.rnr_nak_retry_err);
	if (qp->attr.rnr_retry == 7 || qp->rnr_left) { /* 7: for ever */
		if (qp->attr.rnr_retry != 7)
			qp->rnr_left--;
		note_retry(qp, TRACE_RETRY_RNR);
		qp->due = result->due;
		tell_of_waiting(qp, wqe, result);
		return;
	}
	counter_add_event(&qp->shared->events.retry_rnr_exceeded_err, &qp->nic->seg->counters.retry_rnr_exceeded_err);

	struct cause c = { .thing = result->srq ? CAUSE_THING_SRQ : CAUSE_THING_NONE,
			   .limit = result->timer,
			   .value = result->value,
			   .count = qp->attr.rnr_retry,
			   .peer_pid = result->peer_pid };
	uint32_t cause = request_record(qp, wqe, CAUSE_RNR, IBV_WC_RNR_RETRY_EXC_ERR, &c);

	fail(qp, wqe, IBV_WC_RNR_RETRY_EXC_ERR, cause);
}

/* Completes with WR_FLUSH_ERR all that was received for and not delivered. Receives that a taker
 * began and left (it died, or the QP's errors made it stop) come before those that nobody took. */
static void flush_receives(struct nic_qp *qp)
{
	bool over = visits_over(qp->nic, 0, NULL);

	if (!over && nic_now() < qp->flush_deadline)
		return;
	/* With a visitor that stands still, what it began waits on; the others do not. */
	nic_qp_flush_receives(qp, over);
	qp->flush_receives = !over;
}

/* Of what there is no error to count it under, the first is told. */
static void flush(struct nic_qp *qp, struct nic_swqe *wqe)
{
	struct cause c = { .count = qp->sq_tail - qp->sq_exec };

	if (qp->flushes == CAUSE_FLUSHED_BY_PROGRAM && !qp->flush_told)
		request_record(qp, wqe, CAUSE_FLUSHED_BY_PROGRAM, IBV_WC_WR_FLUSH_ERR, &c);
	else
		nic_qp_count_flush(qp);
	qp->flush_told = true;
	complete(qp, wqe, IBV_WC_WR_FLUSH_ERR, qp->flushes);
}

static void step(struct nic_qp *qp, uint64_t *budget)
{
	struct nic_swqe *wqe = qp_swqe(qp, qp->sq_exec);
	struct transport_result result = { 0 };

	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE) {
		flush(qp, wqe);
		return;
	}
	if (qp->finish_at) {
		complete(qp, wqe, IBV_WC_SUCCESS, 0);
		return;
	}
	if (!qp->started) {
		uint64_t delay = timing_delay();

		qp->started = true;
		qp->retry_left = qp->attr.retry_cnt;
		qp->rnr_left = qp->attr.rnr_retry;
		qp->rnr_waits = false;
		qp->retries = 0;
		/* The wire has begun it long ago, mostly, and said so. */
		if (trace_on() && (is_local(wqe->opcode) || qp->type == IBV_QPT_UD || !qp->transport->advance))
			trace_write(TRACE_SEEN, wqe->opcode, 0, qp->qpn, (uint32_t)qp->sq_exec, (uint32_t)wqe->length, wqe->wr_id);
		if (delay) {
			qp->due = nic_now() + delay;
			return;
		}
	}
	if (qp->type == IBV_QPT_UD)
		qp->transport = transport_to(&wqe->ah.dgid);

	enum transport_outcome outcome = is_local(wqe->opcode) ? mw_execute(qp, wqe, &result) :
								 qp->transport->execute(qp, wqe, budget, &result);

	switch (outcome) {
	case TRANSPORT_DONE: {
		if (qp->rnr_waits)
			tell_of_timer(qp, wqe);
		uint64_t delay = timing_mode() == TIMING_RANDOM ? timing_delay() : 0;

		if (delay)
			qp->due = qp->finish_at = nic_now() + delay;
		else
			complete(qp, wqe, IBV_WC_SUCCESS, 0);
		break;
	}
	case TRANSPORT_MORE:
		*budget = 0;
		qp->due = 0;
		break;
	case TRANSPORT_WAIT:
		qp->due = result.due;
		break;
	case TRANSPORT_RNR:
		receiver_not_ready(qp, wqe, &result);
		break;
	case TRANSPORT_NO_RESPONSE:
		no_response(qp, wqe, &result);
		break;
	case TRANSPORT_FAILED:
		fail(qp, wqe, result.status, result.cause);
		break;
	}
}

/* Whether the request at the head was begun, or sent ahead by its transport. */
static bool has_begun(const struct nic_qp *qp)
{
	return qp->started || (int64_t)(qp->sq_begun - qp->sq_exec) > 0;
}

static bool may_execute(const struct nic_qp *qp)
{
	switch (qp->state) {
	case IBV_QPS_RTS:
	case IBV_QPS_SQE:
	case IBV_QPS_ERR:
		return true;
	case IBV_QPS_SQD: /* what was begun is finished, nothing new is begun */
		return has_begun(qp);
	default:
		return false;
	}
}

void requester_run(struct nic_qp *qp)
{
	uint64_t budget = REQUESTER_BUDGET;

	while (qp->sq_exec != qp->sq_tail && may_execute(qp)) {
		/* An initiator failed our receiving side: nothing more is sent. It may have been
		 * stopped before telling. */
		if (atomic_load_explicit(&qp->shared->state, memory_order_acquire) &
		    NIC_QP_RESP_ERROR) {
			struct target self = target_self(qp->nic);

			attention_qp(&self, qp->index);
			break;
		}
		if (qp->due && qp->state != IBV_QPS_ERR && nic_now() < qp->due) {
			if (qp->transport->advance)
				qp->transport->advance(qp);
			break;
		}
		if (!budget)
			break;
		qp->due = 0;
		step(qp, &budget);
	}
	if (qp->flush_receives)
		flush_receives(qp);
	if (qp->state == IBV_QPS_SQD && !has_begun(qp) && qp->drain_event) {
		qp->drain_event = false;
		nic_qp_raise(qp, IBV_EVENT_SQ_DRAINED);
	}
	if (qp->sq_exec != qp->sq_tail && may_execute(qp))
		defer(qp, qp->due);
	else if (qp->flush_receives)
		defer(qp, nic_now() + FLUSH_RETRY);
	else if (qp->is_deferred)
		requester_forget(qp);
}

void requester_wake(struct nic_qp *qp)
{
	nic_lock(&qp->lock);
	qp->due = 0;
	requester_run(qp);
	nic_unlock(&qp->lock);
}

/* Takes references to up to BATCH deferred QPs: those that complete into cq and may run now or, for
 * the helper (no cq), those that are due. The ones taken go to the end of the list, so that all get
 * their turn. */
static int pick(struct nic *nic, struct nic_cq *cq, struct nic_qp **picked, uint64_t *next_due)
{
	uint64_t now = nic_now();
	int n = 0;

	*next_due = UINT64_MAX;
	pthread_mutex_lock(&nic->lock);
	list_for_each_safe(node, tmp, &nic->deferred) {
		struct nic_qp *qp = list_entry(node, struct nic_qp, of_deferred);
		uint64_t due = cq ? qp->poller_due : qp->helper_due;

		if (cq && qp->send_cq != cq)
			continue;
		if (due > now || n == BATCH) {
			if (due < *next_due)
				*next_due = due;
			continue;
		}
		atomic_fetch_add(&qp->refs, 1);
		picked[n++] = qp;
	}
	for (int i = 0; i < n; i++) {
		list_del(&picked[i]->of_deferred);
		list_add_tail(&nic->deferred, &picked[i]->of_deferred);
	}
	pthread_mutex_unlock(&nic->lock);
	/* Unkind timing: the specification orders nothing between QPs. */
	for (int i = n - 1; i > 0 && timing_mode() == TIMING_RANDOM; i--) {
		int j = (int)timing_choice((uint32_t)i + 1);
		struct nic_qp *other = picked[i];

		picked[i] = picked[j];
		picked[j] = other;
	}
	return n;
}

void requester_run_for(struct nic_cq *cq)
{
	struct nic_qp *picked[BATCH];
	uint64_t next_due;
	int n = pick(cq->nic, cq, picked, &next_due);

	for (int i = 0; i < n; i++) {
		/* The caller holds the CQ's lock, which who holds a QP's lock may wait for. */
		if (nic_trylock(&picked[i]->lock)) {
			requester_run(picked[i]);
			nic_unlock(&picked[i]->lock);
		}
		nic_qp_put(picked[i]);
	}
}

uint64_t requester_run_due(struct nic *nic)
{
	struct nic_qp *picked[BATCH];
	uint64_t next_due;
	int n = pick(nic, NULL, picked, &next_due);

	for (int i = 0; i < n; i++) {
		nic_lock(&picked[i]->lock);
		requester_run(picked[i]);
		nic_unlock(&picked[i]->lock);
		nic_qp_put(picked[i]);
	}
	/* Those that ran may be due again, at a time that only another look tells. */
	return n ? 0 : next_due;
}

uint64_t requester_next_due(struct nic *nic)
{
	uint64_t next = UINT64_MAX;

	pthread_mutex_lock(&nic->lock);
	list_for_each(node, &nic->deferred) {
		const struct nic_qp *qp = list_entry(node, struct nic_qp, of_deferred);

		if (qp->helper_due < next)
			next = qp->helper_due;
	}
	pthread_mutex_unlock(&nic->lock);
	return next;
}
