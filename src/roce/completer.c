/* SPDX-License-Identifier: MIT */
/* The completer: what responders answer, and what follows from it for the requests under way. */
#include <stdlib.h>

#include "nic/visit.h"
#include "roce/wire.h"

/* The oldest request under way ends in error: nothing more is expected. */
static bool has_failed(const struct wire_qp *w)
{
	return w->failed && w->failed_pos == w->una_pos;
}

/* Something got lost: the window shrinks, once for all that was under way. */
static void lost(struct wire_qp *w)
{
	if (w->recovering)
		return;
	w->recovering = true;
	w->recover = w->next;
	congestion_lost(&w->congestion);
}

/* There is an answer, and it brings us on. */
static void progress(struct nic_qp *qp, struct wire_qp *w, uint32_t packets)
{
	uint64_t now = nic_now();

	if (w->timed_at && psn_diff(w->una, w->timed) > 0) {
		congestion_measured(&w->congestion, now - w->timed_at);
		w->timed_at = 0;
	}
	congestion_acknowledged(&w->congestion, packets,
				(uint32_t)psn_diff(w->next, w->una) + packets >= congestion_window(&w->congestion));
	w->psn_mismatch = false;
	if (w->recovering && psn_diff(w->una, w->recover) >= 0)
		w->recovering = false;
	if (psn_diff(w->next, w->una) < 0) {
		w->next = w->una;
		w->next_pos = w->una_pos;
	}
	qp->retry_left = qp->attr.retry_cnt;
	w->deadline = w->probe_at = 0;
}

/* All before `psn` has arrived: what was sent or written there is done, what was read is not. False when a READ or atomic whose
 * answer is missing is in the way: it got lost. */
static bool acknowledge(struct nic_qp *qp, struct wire_qp *w, uint32_t psn)
{
	uint32_t before = w->una;
	bool all = true;

	while (w->una_pos != w->end_pos && psn_diff(psn, w->una) > 0) {
		struct nic_swqe *wqe = qp_swqe(qp, w->una_pos);
		uint32_t end = psn_add(wqe->psn, wqe->packets);

		if (reads_remote(wqe->opcode)) {
			all = false;
			break;
		}
		if (psn_diff(psn, end) < 0) {
			w->una = psn;
			break;
		}
		w->una = end;
		w->una_pos++;
	}
	if (w->una != before)
		progress(qp, w, (uint32_t)psn_diff(w->una, before));
	return all;
}

/* The request that una is in is sent again. */
static void note_retry(struct nic_qp *qp, const struct wire_qp *w)
{
	qp->retries++;
	if (trace_on())
		trace_write(TRACE_RETRY, TRACE_RETRY_SEQUENCE, 0, qp->qpn, (uint32_t)w->una_pos, qp->retries, 0);
}

/* Packet una is missing at the other end, or its answer here. */
static void recover(struct nic_qp *qp, struct wire_qp *w)
{
	lost(w);
	w->timed_at = 0;
	if (w->peer_forgets) {
		/* A responder says so for each packet that was under way when it did: it is answered once in a round trip, or
		 * each answer makes a window more of them. */
		if (w->back_at && w->back == w->una && nic_now() - w->back_at < w->congestion.srtt)
			return;
		note_retry(qp, w);
		wire_go_back(w);
		return;
	}
	if (w->resent_one && w->resent == w->una)
		return;
	if (!w->resend_one)
		note_retry(qp, w);
	w->resend_one = true;
}

static void take_nak(struct nic_qp *qp, struct wire_qp *w, uint32_t psn, uint8_t code)
{
	static const struct {
		enum ibv_wc_status status;
		enum cause_code code;
	} ends[] = {
		[ROCE_NAK_INVALID_REQUEST] = { IBV_WC_REM_INV_REQ_ERR, CAUSE_NAK_INVALID_REQUEST },
		[ROCE_NAK_ACCESS] = { IBV_WC_REM_ACCESS_ERR, CAUSE_NAK_ACCESS },
		[ROCE_NAK_OPERATION] = { IBV_WC_REM_OP_ERR, CAUSE_NAK_OPERATION },
		[ROCE_NAK_INVALID_RD] = { IBV_WC_REM_INV_RD_REQ_ERR, CAUSE_NAK_INVALID_REQUEST },
	};
	struct cause c = { 0 };

	if (code >= sizeof(ends) / sizeof(ends[0]))
		return;
	if (!acknowledge(qp, w, psn)) {
		recover(qp, w);
		return;
	}
	if (w->una_pos == w->end_pos)
		return;
	if (code == ROCE_NAK_PSN) {
		/* Behind an RNR NAK strangers say what they miss, and wait all the same. */
		if (w->rnr || nic_now() < w->rnr_until)
			return;
		counter_add_event(&qp->shared->events.packet_seq_err, &qp->nic->seg->counters.packet_seq_err);
		recover(qp, w);
		return;
	}
	wire_fail(w, w->una_pos, ends[code].status, ends[code].code, &c);
}

static void take_acknowledgement(struct nic_qp *qp, struct wire_qp *w, const struct roce_packet *packet)
{
	uint8_t value = packet->syndrome & 31;
	uint32_t before = w->una;

	switch (packet->syndrome >> 5) {
	case ROCE_ACK:
		if (!acknowledge(qp, w, psn_add(packet->psn, 1))) {
			recover(qp, w);
			break;
		}
		/* The one that was sent again closed the gap: was what lies behind it still there? */
		if (w->resent_one && before == w->resent && w->una != before) {
			w->resent_one = false;
			if (psn_diff(w->una, before) > 1) {
				w->peer_holds = true;
			} else if (w->recovering && w->una != w->next && !w->peer_holds) {
				w->peer_forgets = true;
				note_retry(qp, w);
				wire_go_back(w);
			}
		}
		break;
	case ROCE_RNR_NAK:
		if (!acknowledge(qp, w, packet->psn)) {
			recover(qp, w);
			break;
		}
		if (w->una_pos == w->end_pos)
			break;
		if (nic_now() < w->rnr_until)
			break;
		w->rnr = true;
		w->rnr_code = value;
		break;
	case ROCE_NAK:
		take_nak(qp, w, packet->psn, value);
		break;
	default:
		break;
	}
}

/* limit: the bytes that were due, of which there came `value`; 0: value is the kind of the answer, which is none for the request. */
static void bad_response(struct wire_qp *w, uint64_t value, uint64_t limit)
{
	struct cause c = { .value = value, .limit = limit };

	wire_fail(w, w->una_pos, IBV_WC_BAD_RESP_ERR, CAUSE_BAD_RESPONSE, &c);
}

/* Bytes of the answer to the request that una is in, at an offset of it. */
static bool place(struct nic_qp *qp, struct wire_qp *w, struct nic_swqe *wqe, uint64_t offset, const void *bytes, uint32_t length)
{
	struct piece pieces[MEMORY_PIECES], slice[MEMORY_PIECES], here = piece_ours(bytes, length);
	struct seg_visit *visit = visit_enter(qp->nic, qp->nic->seg);
	enum ibv_wc_status status;
	struct cause c = { 0 };
	enum cause_code code;
	uint32_t count;

	if (!visit)
		return false; /* as if it had got lost */
	code = request_check(qp, wqe, pieces, &count, &c, &status);
	if (!code && length) {
		uint32_t n = memory_slice(pieces, count, offset, length, slice);

		if (memory_copy(qp->nic, attach_self(qp->nic), NULL, COPY_TO_PEER, &here, 1, slice, n, length, false) != COPY_DONE) {
			code = CAUSE_LOCAL_FAULT;
			status = IBV_WC_LOC_PROT_ERR;
		}
	}
	visit_leave(visit);
	if (code)
		wire_fail(w, w->una_pos, status, code, &c);
	return !code;
}

/* What was asked for is here. */
static void trace_answered(const struct nic_qp *qp, const struct nic_swqe *wqe, uint32_t position)
{
	struct trace_claim claim = trace_claim(2);

	trace_put(&claim, TRACE_GATHERED, wqe->opcode, 0, qp->qpn, position, (uint32_t)wqe->length, 0);
	trace_put(&claim, TRACE_PLACED, 0, 0, qp->attr.dest_qp_num, ~0u, (uint32_t)wqe->length, (uint64_t)qp->qpn << 32 | position);
}

/* The next packet of an answer: a READ's, or an atomic's only one. */
static void take_answer(struct nic_qp *qp, struct wire_qp *w, const struct roce_packet *packet)
{
	struct nic_swqe *wqe = qp_swqe(qp, w->una_pos);
	uint32_t operation = packet->opcode & 31;

	if (operation == ROCE_ATOMIC_ACKNOWLEDGE) {
		if (!is_atomic(wqe->opcode)) {
			bad_response(w, packet->opcode, 0);
			return;
		}
		if (!place(qp, w, wqe, 0, &packet->original, sizeof(packet->original)))
			return;
	} else {
		uint64_t offset = (uint64_t)(uint32_t)psn_diff(w->una, wqe->psn) * w->mtu;
		uint64_t length = wqe->length - offset < w->mtu ? wqe->length - offset : w->mtu;

		/* The first and those in the middle are as long as the responder's path MTU. */
		if (wqe->opcode == IBV_WR_RDMA_READ && packet->length != w->mtu &&
		    (operation == ROCE_READ_RESPONSE_FIRST || operation == ROCE_READ_RESPONSE_MIDDLE)) {
			struct cause c = { .value = w->mtu, .limit = packet->length };

			wire_fail(w, w->una_pos, IBV_WC_BAD_RESP_ERR, CAUSE_MTU_MISMATCH, &c);
			return;
		}
		if (wqe->opcode != IBV_WR_RDMA_READ || packet->length != length) {
			if (wqe->opcode == IBV_WR_RDMA_READ)
				bad_response(w, packet->length, length);
			else
				bad_response(w, packet->opcode, 0);
			return;
		}
		if (!place(qp, w, wqe, offset, packet->payload, packet->length))
			return;
	}
	w->una = psn_add(w->una, 1);
	if (w->una == psn_add(wqe->psn, wqe->packets)) {
		if (trace_on())
			trace_answered(qp, wqe, (uint32_t)w->una_pos);
		w->una_pos++;
	}
	if (w->resent_one && psn_diff(w->una, w->resent) > 0)
		w->resent_one = false;
	progress(qp, w, 1);
}

/* An answer with data. What comes too early is kept, and what is missing asked for again. */
static void take_data(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	uint32_t psn = arrival->packet.psn;

	if (!acknowledge(qp, w, psn) && psn != w->una) {
		counter_add(&qp->nic->seg->counters.implied_nak_seq_err, 1);
		held_add(&w->responses, arrival);
		recover(qp, w);
		return;
	}
	if (w->una_pos == w->end_pos || psn != w->una)
		return;
	take_answer(qp, w, &arrival->packet);
	while (w->responses.first && !has_failed(w) && w->una_pos != w->end_pos) {
		if (!acknowledge(qp, w, w->responses.first->arrival.packet.psn) &&
		    psn_diff(w->responses.first->arrival.packet.psn, w->una) > 0)
			break;
		struct held *held = held_take(&w->responses, w->una);

		if (!held)
			break;
		take_answer(qp, w, &held->arrival.packet);
		free(held);
	}
	if (w->responses.first && !has_failed(w))
		recover(qp, w);
}

/* A NAK of what was before our first packet, or an ACK of what is behind all of them, before anything was acknowledged: the other
 * end counts from elsewhere. */
static void notice_mismatch(const struct nic_qp *qp, struct wire_qp *w, const struct roce_packet *packet)
{
	bool nak = packet->syndrome == ROCE_SYNDROME(ROCE_NAK, ROCE_NAK_PSN);

	if (w->una == qp->attr.sq_psn && w->una != w->end && (packet->opcode & 31) == ROCE_ACKNOWLEDGE &&
	    (nak || packet->syndrome >> 5 == ROCE_ACK) && nak == (psn_diff(packet->psn, w->una) < 0))
		w->psn_mismatch = true;
}

void wire_take_response(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	const struct roce_packet *packet = &arrival->packet;
	const struct roce_opcode *row = roce_opcode(packet->opcode);

	if (qp->type != IBV_QPT_RC || (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD) || has_failed(w))
		return;
	/* Of something long answered, or never asked. A NAK or RNR NAK of una - 1 cannot be either. */
	if (psn_diff(packet->psn, w->una) < 0 || psn_diff(packet->psn, w->end) >= 0) {
		notice_mismatch(qp, w, packet);
		return;
	}
	if ((packet->opcode & 31) == ROCE_ACKNOWLEDGE)
		take_acknowledgement(qp, w, packet);
	else if (row->headers & ROCE_HAS_AETH && packet->syndrome >> 5 != ROCE_ACK)
		bad_response(w, packet->syndrome, 0);
	else
		take_data(qp, w, arrival);
}
