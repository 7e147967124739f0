/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs: creation, destruction, the states as initiators see them, flushing. The transitions
 * and their attributes are nic/qp_modify.c, posting is nic/qp_post.c, execution nic/requester.c.
 */
#include "nic/qp.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "local/attach.h"
#include "nic/attention.h"
#include "nic/crash.h"
#include "nic/keep_errno.h"
#include "nic/qp_internal.h"
#include "nic/requester.h"
#include "nic/responder.h"
#include "nic/visit.h"
#include "observe/report.h"
#include "observe/trace.h"
#include "observe/watch.h"

#define DESTROYED 255 /* of struct trace_qp */

static const char type_code[] = { [IBV_QPT_RC] = 1, [IBV_QPT_UC] = 2, [IBV_QPT_UD] = 3 };

uint8_t qp_type_code(enum ibv_qp_type type)
{
	return (uint8_t)type_code[type];
}

void nic_qp_trace(const struct nic_qp *qp, uint8_t state)
{
	struct trace_qp about = { .type = qp->type,
				  .dest_qpn = qp->attr.dest_qp_num,
				  .sq_psn = qp->attr.sq_psn,
				  .rq_psn = qp->attr.rq_psn,
				  .path_mtu = qp->type == IBV_QPT_UD  ? qp->mtu :
					      qp->attr.path_mtu ? qp_mtu_bytes(qp->attr.path_mtu) :
								  0,
				  .max_send_wr = qp->cap.max_send_wr,
				  .max_recv_wr = qp->cap.max_recv_wr,
				  .send_cq = qp->send_cq->index,
				  .recv_cq = qp->recv_cq->index,
				  .srq = qp->srq ? (int32_t)qp->srq->index : -1,
				  .wire = transport_is_wire_only() || qp->transport == &wire_transport };
	struct trace_claim claim = trace_claim(trace_slots(sizeof(about)));

	memcpy(about.sgid, qp->path.sgid.raw, sizeof(about.sgid));
	memcpy(about.dgid, qp->path.dgid.raw, sizeof(about.dgid));
	trace_put_more(&claim, TRACE_QP, state, 0, qp->qpn, 0, 0, 0, &about, sizeof(about), NULL, 0);
}

static void tell(const struct nic_qp *qp, enum story_kind kind)
{
	const struct seg_sent *sent = &qp->shared->sent;
	const struct seg_received *received = &qp->shared->received;
	const struct seg_qp_events *events = &qp->shared->events;
	struct story story = { .qpn = qp->qpn,
			       .kind = (uint16_t)kind,
			       .state = (uint16_t)qp->state,
			       .peer_qpn = qp->attr.dest_qp_num,
			       .type = qp->type };

	if (kind == STORY_DESTROYED) {
		for (unsigned i = 0; i < NIC_KINDS; i++) {
			story.requests += atomic_load(&sent->requests[i]);
			story.arrived += (uint32_t)atomic_load(&received->requests[i]);
		}
		story.bytes = atomic_load(&sent->bytes);
		story.flushed = atomic_load(&events->req_cqe_flush_error) + qp->flushed_receives;
	}
	story_record(&qp->nic->seg->stories, &story);
	if (trace_on())
		nic_qp_trace(qp, kind == STORY_DESTROYED ? DESTROYED : (uint8_t)qp->state);
}

void nic_qp_set_state(struct nic_qp *qp, enum ibv_qp_state state)
{
	bool is_new = state != qp->state;

	uint64_t word = (uint64_t)qp->generation << 32 | NIC_QP_EXISTS |
			(uint64_t)qp_type_code(qp->type) << 8 | state;
	uint64_t old = atomic_load(&qp->shared->state);
	uint64_t changed;

	qp->state = qp->attr.qp_state = state;
	do {
		/* What initiators reported stays until the error state, or RESET, has answered
		 * it. */
		changed = word;
		if (state != IBV_QPS_RESET && state != IBV_QPS_ERR)
			changed |= old & (NIC_QP_RESP_ERROR | NIC_QP_COMM_EST);
	} while (!atomic_compare_exchange_weak(&qp->shared->state, &old, changed));
	if (is_new)
		tell(qp, STORY_STATE);
}

/* Of an odd number of cache lines, so that the first ones of all WQEs do not share a few places in the cache. */
static uint32_t swqe_stride(const struct ibv_qp_cap *cap)
{
	size_t sges = cap->max_send_sge * sizeof(struct ibv_sge);
	size_t data = sges > cap->max_inline_data ? sges : cap->max_inline_data;
	size_t lines =
		(offsetof(struct nic_swqe, sge) + data + NIC_CACHE_LINE - 1) / NIC_CACHE_LINE;

	return (uint32_t)((lines | 1) * NIC_CACHE_LINE);
}

static void watch_creation(const struct nic_qp *qp, const struct nic_qp_init *init)
{
	if (!watch_now())
		return;
	watch_qp_created(&(struct watch_qp){ .qpn = qp->qpn,
					     .send_cq = qp->send_cq->index,
					     .recv_cq = qp->recv_cq->index,
					     .max_send_wr = init->cap.max_send_wr,
					     .max_recv_wr = qp->srq ? 0 : init->cap.max_recv_wr },
			 qp->srq != NULL);
	watch_asks((struct watch_asked){ .send_wr = init->cap.max_send_wr,
					 .recv_wr = qp->srq ? 0 : init->cap.max_recv_wr,
					 .send_sge = init->cap.max_send_sge,
					 .recv_sge = qp->srq ? 0 : init->cap.max_recv_sge,
					 .inline_bytes = init->cap.max_inline_data });
}

int nic_qp_create(struct nic *nic, const struct nic_qp_init *init, struct nic_qp *qp)
{
	KEEP_ERRNO;
	int64_t index;
	int error;

	memset(qp, 0, sizeof(*qp));
	qp->nic = nic;
	qp->type = init->type;
	qp->pd = init->pd;
	qp->sq_sig_all = init->sq_sig_all;
	qp->cap = init->cap;
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq;
	qp->srq = init->srq;
	qp->gids = init->gids;
	qp->mtu = init->mtu;
	if (qp->srq)
		qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;

	/* An index whose slot is not ours yet needs another slot. */
	index = table_alloc(&nic->qps, NULL, NIC_MAX_QP);
	if (index < 0)
		return ENOMEM;
	qp->index = (uint32_t)index;
	qp->shared = &nic->seg->qps[index];
	error = attach_own_slot(nic, qp->index >> NIC_QPN_INDEX_BITS);
	if (error)
		goto no_slot;
	qp->qpn = atomic_load(&nic->seg->hdr.slots[qp->index >> NIC_QPN_INDEX_BITS])
			  << NIC_QPN_INDEX_BITS |
		  (qp->index & ((1u << NIC_QPN_INDEX_BITS) - 1));

	while ((1u << qp->sq_log2) < qp->cap.max_send_wr)
		qp->sq_log2++;
	qp->sq_stride = swqe_stride(&qp->cap);
	qp->sq = aligned_alloc(NIC_CACHE_LINE, (size_t)qp->sq_stride << qp->sq_log2);
	error = ENOMEM;
	if (!qp->sq || segment_commit(nic->seg, nic->seg_fd, qp->shared, sizeof(*qp->shared)))
		goto no_queue;
	error = nic_rq_create(nic, &qp->shared->rq, qp->cap.max_recv_wr, qp->cap.max_recv_sge,
			      &qp->rq);
	if (error)
		goto no_queue;
	qp->rq.keeps_order = qp->type == IBV_QPT_UD;
	qp->shared->rq.one_taker = qp->type != IBV_QPT_UD;

	nic_lock_init(&qp->lock);
	list_init(&qp->of_deferred);
	qp->generation = nic_qp_life(atomic_load(&qp->shared->state)) + 1;
	qp->rq.life = qp->generation & 0xffffff;
	qp->shared->qpn = qp->qpn;
	qp->shared->pd = qp->pd;
	qp->shared->recv_cq = qp->recv_cq->index;
	qp->shared->srq = qp->srq ? (int32_t)qp->srq->index : -1;
	qp->shared->send_cq = qp->send_cq->index;
	qp->shared->max_send_wr = qp->cap.max_send_wr;
	atomic_store(&qp->shared->out_of_sequence, 0);
	atomic_store(&qp->shared->duplicate_request, 0);
	atomic_store(&qp->shared->drops, 0);
	memset(&qp->shared->received, 0, sizeof(qp->shared->received));
	memset(&qp->shared->events, 0, sizeof(qp->shared->events));
	memset(&qp->shared->sent, 0, sizeof(qp->shared->sent));
	atomic_fetch_add(&qp->send_cq->users, 1);
	if (qp->recv_cq != qp->send_cq)
		atomic_fetch_add(&qp->recv_cq->users, 1);
	if (qp->srq)
		atomic_fetch_add(&qp->srq->users, 1);
	nic_qp_set_state(qp, IBV_QPS_RESET);
	tell(qp, STORY_CREATED);
	watch_creation(qp, init);
	atomic_store_explicit(&nic->qps.objects[qp->index], qp, memory_order_release);
	return 0;

no_queue:
	free(qp->sq);
no_slot:
	table_free(&nic->qps, qp->index);
	return error;
}

struct nic_qp *nic_qp_get(struct nic *nic, uint32_t index)
{
	pthread_mutex_lock(&nic->lock);
	struct nic_qp *qp = table_get(&nic->qps, index);

	if (qp)
		atomic_fetch_add(&qp->refs, 1);
	pthread_mutex_unlock(&nic->lock);
	return qp;
}

void nic_qp_put(struct nic_qp *qp)
{
	atomic_fetch_sub_explicit(&qp->refs, 1, memory_order_release);
}

/* Takes away what was posted and completed but not polled: after RESET and destroy nothing of it
 * appears any more. */
static void forget_work(struct nic_qp *qp)
{
	nic_cq_forget(qp->send_cq, NIC_REF_SQ, qp->index, qp->qpn);
	if (qp->srq)
		nic_cq_forget(qp->recv_cq, NIC_REF_SRQ, qp->srq->index, qp->qpn);
	else
		nic_cq_forget(qp->recv_cq, NIC_REF_RQ, qp->index, qp->qpn);
	atomic_store(&qp->shared->sent.head, 0);
	atomic_store(&qp->shared->sent.executed, 0);
	atomic_store(&qp->shared->sent.posted, 0);
	qp->sq_exec = qp->sq_tail = 0;
	qp->started = qp->flush_receives = false;
	qp->finish_at = qp->due = 0;
}

/* The QPN in whose name receives of an SRQ are taken for this QP: its peer's or, from the wire, its own. Not after
 * disconnecting. */
static uint32_t taker_for(const struct nic_qp *qp)
{
	return qp->transport == &wire_transport ? qp->qpn : qp->attr.dest_qp_num;
}

/* Receives of an SRQ that were taken for this QP, and not completed, are available to others again. Nobody visits. */
static void give_back_begun(struct nic_qp *qp, uint32_t taker)
{
	uint8_t *seen = qp->srq && qp->type != IBV_QPT_UD ? calloc(1, NIC_MAX_WR) : NULL;

	if (!seen)
		return;
	nic_cq_mark(qp->recv_cq, NIC_REF_SRQ, qp->srq->index, seen);
	for (uint32_t slot = 0; slot < qp->srq->rq.max_wr; slot++) {
		if (taker && nic_rq_taker(&qp->srq->rq, slot) == taker && !seen[slot])
			nic_rq_repost(&qp->srq->rq, slot);
	}
	free(seen);
}

/* Into the counters of the device. */
static void fold_counters(struct nic_qp *qp)
{
	struct device_counters *device = &qp->nic->seg->counters;
	const struct seg_sent *sent = &qp->shared->sent;
	const struct seg_received *received = &qp->shared->received;
	const struct seg_rq *rq = &qp->shared->rq;

	counter_add(&device->rdma_sends, atomic_load(&sent->requests[NIC_SENDS]));
	counter_add(&device->rdma_writes, atomic_load(&sent->requests[NIC_WRITES]));
	counter_add(&device->rdma_reads, atomic_load(&sent->requests[NIC_READS]));
	counter_add(&device->rdma_atomics, atomic_load(&sent->requests[NIC_ATOMICS]));
	counter_add(&device->req_bytes, atomic_load(&sent->bytes));
	counter_add(&device->mapped_copies, atomic_load(&sent->mapped));
	counter_add(&device->rdma_recvs, atomic_load(&received->requests[NIC_SENDS]));
	counter_add(&device->rx_write_requests, atomic_load(&received->requests[NIC_WRITES]));
	counter_add(&device->rx_read_requests, atomic_load(&received->requests[NIC_READS]));
	counter_add(&device->rx_atomic_requests, atomic_load(&received->requests[NIC_ATOMICS]));
	counter_add(&device->resp_bytes, atomic_load(&received->bytes) + atomic_load(&rq->datagram_bytes));
}

void nic_qp_destroy(struct nic_qp *qp)
{
	KEEP_ERRNO;
	struct nic *nic = qp->nic;
	uint32_t taker = taker_for(qp);
	bool visited = false;

	if (!nic_is_orphan(nic)) {
		watch_qp_ended(qp->qpn, qp->srq ? 0 : rq_available(&qp->shared->rq));
		nic_lock(&qp->lock);
		transport_disconnect(qp);
		qp->state = IBV_QPS_RESET;
		qp->flush_receives = qp->drain_event =
			false; /* the helper may have it in hand: nothing defers it again */
		/* Not there any more for initiators; generation stays, so that the next QP here has
		 * another. */
		atomic_store(&qp->shared->state, (uint64_t)qp->generation << 32);
		crash_point(QP_GONE);
		requester_forget(qp);
		nic_unlock(&qp->lock);

		/* Nobody can find it from here on; who found it before finishes. */
		pthread_mutex_lock(&nic->lock);
		atomic_store(&nic->qps.objects[qp->index], NULL);
		pthread_mutex_unlock(&nic->lock);
		while (atomic_load_explicit(&qp->refs, memory_order_acquire))
			sched_yield();
		visited = !visits_over(nic, NIC_GRACE, NULL);
		forget_work(qp);
		if (!visited)
			give_back_begun(qp, taker);
		tell(qp, STORY_DESTROYED);
		fold_counters(qp);
		table_free(&nic->qps, qp->index);
	}
	nic_rq_destroy(&qp->rq, visited);
	free(qp->sq);
	atomic_fetch_sub(&qp->send_cq->users, 1);
	if (qp->recv_cq != qp->send_cq)
		atomic_fetch_sub(&qp->recv_cq->users, 1);
	if (qp->srq)
		atomic_fetch_sub(&qp->srq->users, 1);
}

void nic_qp_reset(struct nic_qp *qp)
{
	uint32_t taker = taker_for(qp);

	transport_disconnect(qp);
	qp->generation++;
	nic_qp_set_state(qp, IBV_QPS_RESET);
	requester_forget(qp); /* the helper must not wait for our lock meanwhile */
	bool visited = !visits_over(qp->nic, NIC_GRACE, NULL);

	forget_work(qp);
	if (!visited)
		give_back_begun(qp, taker);
	nic_rq_reset(&qp->rq, qp->generation, visited);
	qp->established = false;
	atomic_store(&qp->shared->peer_instance, 0);
	atomic_store(&qp->shared->why, 0);
	qp->drain_event = false;
	memset(&qp->attr, 0, sizeof(qp->attr));
}

void nic_qp_raise(struct nic_qp *qp, enum ibv_event_type type)
{
	if (qp->events)
		nic_event_raise(qp->events, &(struct ibv_async_event){ .element.qp = qp->handle,
								       .event_type = type });
}

void nic_qp_fail(struct nic_qp *qp, enum cause_code flushes)
{
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_RESET)
		return;
	if (qp->transport)
		qp->transport->cancel(qp);
	nic_qp_set_state(qp, IBV_QPS_ERR);
	qp->flushes = flushes;
	qp->flush_told = false;
	qp->started = false;
	qp->finish_at = qp->due = 0;
	qp->flush_receives = true;
	qp->last_wqe_raised = false;
	qp->flush_deadline = nic_now() + NIC_GRACE;
}

void nic_qp_count_flush(const struct nic_qp *qp)
{
	const struct nic_cq *full = atomic_load(&qp->send_cq->shared->error) ? qp->send_cq : qp->recv_cq;

	if (qp->flushes == CAUSE_FLUSHED_BY_CQ)
		report_flush(CAUSE_CQ_OVERFLOW, full->index);
	else
		report_flush(CAUSE_NONE, qp->qpn);
}

static void flush_one(struct nic_qp *qp, enum nic_ref_kind kind, uint32_t index, struct seg_rq *rq,
		      uint32_t slot)
{
	struct nic_cqe cqe = { .timestamp = cq_timestamp(qp->recv_cq->shared),
			       .status = IBV_WC_WR_FLUSH_ERR,
			       .opcode = IBV_WC_RECV,
			       .qp_num = qp->qpn,
			       .vendor_err = qp->flushes };

	responder_count_error(qp->nic->seg, qp->shared, IBV_WC_WR_FLUSH_ERR);
	rq_complete(rq_wqe(qp->nic->seg, rq, slot), &cqe);
	if (trace_on())
		trace_write(TRACE_CQE, IBV_WC_WR_FLUSH_ERR, TRACE_CQE_RECV | (kind == NIC_REF_SRQ ? TRACE_CQE_SRQ : 0), qp->qpn, slot, 0,
			    qp->recv_cq->index);
	nic_cq_publish(qp->recv_cq, cq_reference(kind, index, slot, 0), true);
	qp->flushed_receives++;
	nic_qp_count_flush(qp);
}

/* Flushes slots that a taker began for this QP and neither completed nor will. */
static void flush_begun(struct nic_qp *qp, struct nic_rq *rq, enum nic_ref_kind kind,
			uint32_t index)
{
	uint8_t *seen = calloc(1, NIC_MAX_WR);

	if (!seen)
		return;
	nic_cq_mark(qp->recv_cq, kind, index, seen);
	for (uint32_t slot = 0; slot < rq->max_wr; slot++) {
		uint32_t taker = nic_rq_taker(rq, slot);

		/* In an SRQ only what was taken for us is ours. */
		if (taker && !seen[slot] && (kind == NIC_REF_RQ || taker == taker_for(qp)))
			flush_one(qp, kind, index, rq->shared, slot);
	}
	free(seen);
}

void nic_qp_flush_receives(struct nic_qp *qp, bool all)
{
	struct seg_rq *rq = &qp->shared->rq;
	struct rq_taken taken;

	if (qp->srq) {
		if (all && qp->type != IBV_QPT_UD)
			flush_begun(qp, &qp->srq->rq, NIC_REF_SRQ, qp->srq->index);
		if (!qp->last_wqe_raised)
			nic_qp_raise(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
		qp->last_wqe_raised = true;
		return;
	}
	if (all)
		flush_begun(qp, &qp->rq, NIC_REF_RQ, qp->index);
	while (rq_take(qp->nic->seg, rq, qp->rq.life, qp->qpn, 0, false, &taken) == RQ_TAKEN)
		flush_one(qp, NIC_REF_RQ, qp->index, rq, taken.slot);
}

void nic_qp_attend(struct nic_qp *qp)
{
	nic_lock(&qp->lock);
	uint64_t word = atomic_load(&qp->shared->state);

	if (word & NIC_QP_COMM_EST && !qp->established) {
		qp->established = true;
		nic_qp_raise(qp, IBV_EVENT_COMM_EST);
	}
	if (word & NIC_QP_RESP_ERROR && qp->state != IBV_QPS_ERR && qp->state != IBV_QPS_RESET) {
		/* Nobody could say what it was: who did it has died. */
		uint64_t why = atomic_load(&qp->shared->why);

		if (why != CAUSE_TOLD && !(why && cause_tell(nic_causes(qp->nic), why)))
			cause_record(nic_causes(qp->nic),
				     &(struct cause){ .code = CAUSE_PEER_REPORTED,
						      .qpn = qp->qpn,
						      .peer_qpn = qp->attr.dest_qp_num,
						      .state = qp->state,
						      .value = word & NIC_QP_RESP_ERROR });
		if (word & NIC_QP_ACCESS_ERR)
			nic_qp_raise(qp, IBV_EVENT_QP_ACCESS_ERR);
		if (word & NIC_QP_REQ_ERR)
			nic_qp_raise(qp, IBV_EVENT_QP_REQ_ERR);
		nic_qp_fail(qp, CAUSE_FLUSHED);
		requester_run(qp);
	}
	nic_unlock(&qp->lock);
}

/* Calls for each QP that completes into the CQ, with its lock held. */
static void for_each_user(struct nic *nic, uint32_t cq, void (*call)(struct nic_qp *qp))
{
	for (uint32_t i = 0; i < nic->qps.fresh; i++) {
		struct nic_qp *qp = nic_qp_get(nic, i);

		if (!qp)
			continue;
		if (qp->send_cq->index == cq || qp->recv_cq->index == cq) {
			nic_lock(&qp->lock);
			call(qp);
			nic_unlock(&qp->lock);
		}
		nic_qp_put(qp);
	}
}

static void fail_user(struct nic_qp *qp)
{
	qp->fatal_due = qp->state != IBV_QPS_ERR && qp->state != IBV_QPS_RESET;
	nic_qp_fail(qp, CAUSE_FLUSHED_BY_CQ);
	requester_run(qp);
}

static void raise_user(struct nic_qp *qp)
{
	if (qp->fatal_due)
		nic_qp_raise(qp, IBV_EVENT_QP_FATAL);
	qp->fatal_due = false;
}

void nic_qp_fail_users(struct nic *nic, uint32_t cq)
{
	for_each_user(nic, cq, fail_user);
}

void nic_qp_raise_users(struct nic *nic, uint32_t cq)
{
	for_each_user(nic, cq, raise_user);
}

void nic_qp_query(struct nic_qp *qp, struct ibv_qp_attr *attr)
{
	if (nic_is_orphan(qp->nic)) {
		memset(attr, 0, sizeof(*attr));
		attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
		return;
	}
	/* What an initiator has just reported counts before the helper gets to it. */
	if (atomic_load(&qp->shared->state) & NIC_QP_RESP_ERROR)
		nic_qp_attend(qp);
	nic_lock(&qp->lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->cap = qp->cap;
	attr->sq_psn = qp->sq_psn;
	attr->rq_psn = atomic_load(&qp->shared->epsn);
	attr->sq_draining = qp->state == IBV_QPS_SQD && qp->started;
	nic_unlock(&qp->lock);
}
