/* SPDX-License-Identifier: MIT */
/*
 * The requester on the wire: turns the send queue into packets, as many as may be under way, and sends again what got lost.
 * Requests leave in order; how they end is told for the oldest only (wire_outcome), as nic/requester.c asks for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nic/timing.h"
#include "nic/visit.h"
#include "roce/wire.h"

/* Within a long message, and where the window ends, an answer is asked for so often (packets). */
#define ACK_EVERY 16u

/* Packets that one READ request asks for at most: what is asked for arrives at once. Requests end at multiples of it within their
 * message, also when they are made again: a responder answers again only what was asked for by one request. */
#define READ_MOST 32u

enum emitted { EMITTED, BURST_FULL, NOT_NOW };

/* ns. A requester may wait up to four times what its attribute says (specification 9.7.6.1.3); short times are meant for hardware,
 * which needs no processor to answer. */
#define PATIENT_UNTIL 256000000ull

static uint64_t ack_timeout(const struct nic_qp *qp)
{
	uint64_t timeout = 4096ull << qp->attr.timeout;

	return timeout >= PATIENT_UNTIL ? timeout : 4 * timeout < PATIENT_UNTIL ? 4 * timeout : PATIENT_UNTIL;
}

void wire_fail(struct wire_qp *w, uint64_t position, enum ibv_wc_status status, enum cause_code code, const struct cause *c)
{
	if (w->failed && w->failed_pos <= position)
		return;
	w->failed = true;
	w->failed_pos = position;
	w->status = status;
	w->code = code;
	w->cause = *c;
}

static uint8_t opcode_of(const struct nic_qp *qp, const struct nic_swqe *wqe, bool first, bool last)
{
	bool imm = has_imm(wqe->opcode), inv = wqe->opcode == IBV_WR_SEND_WITH_INV;
	uint8_t operation;

	switch (wqe->opcode) {
	case IBV_WR_RDMA_READ:
		operation = ROCE_READ_REQUEST;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		operation = ROCE_COMPARE_SWAP;
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		operation = ROCE_FETCH_ADD;
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		operation = first && last ? (imm ? ROCE_WRITE_ONLY_IMM : ROCE_WRITE_ONLY) :
			    first	  ? ROCE_WRITE_FIRST :
			    last	  ? (imm ? ROCE_WRITE_LAST_IMM : ROCE_WRITE_LAST) :
					    ROCE_WRITE_MIDDLE;
		break;
	default:
		operation = first && last ? (imm ? ROCE_SEND_ONLY_IMM :
					     inv ? ROCE_SEND_ONLY_INV :
						   ROCE_SEND_ONLY) :
			    first	  ? ROCE_SEND_FIRST :
			    last	  ? (imm ? ROCE_SEND_LAST_IMM :
					     inv ? ROCE_SEND_LAST_INV :
						   ROCE_SEND_LAST) :
					    ROCE_SEND_MIDDLE;
	}
	return ROCE_OPCODE(qp->type == IBV_QPT_UC ? ROCE_UC : ROCE_RC, operation);
}

static struct roce_packet header(const struct nic_qp *qp, const struct nic_swqe *wqe, uint32_t psn)
{
	return (struct roce_packet){ .migreq = true,
				     .pkey = ROCE_DEFAULT_PKEY,
				     .qpn = qp->attr.dest_qp_num,
				     .psn = psn,
				     .va = wqe->remote_addr,
				     .rkey = wqe->rkey,
				     .dma_length = (uint32_t)wqe->length,
				     .imm_data = wqe->imm_data };
}

/* How many packets the request for those from psn on asks for. */
static uint32_t read_step(const struct nic_swqe *wqe, uint32_t psn)
{
	uint32_t k = (uint32_t)psn_diff(psn, wqe->psn);
	uint32_t step = READ_MOST - k % READ_MOST;

	return step < wqe->packets - k ? step : wqe->packets - k;
}

/* A READ request for the next packets of the answer, or an atomic. */
static enum emitted emit_read(struct nic_qp *qp, struct wire_qp *w, struct nic_swqe *wqe, uint32_t psn, uint32_t packets,
			      struct burst *burst)
{
	struct roce_packet packet = header(qp, wqe, psn);
	uint8_t *to = burst_next(burst, ROCE_MAX_HEADERS);
	uint64_t offset = (uint64_t)(uint32_t)psn_diff(psn, wqe->psn) * w->mtu;
	uint64_t length = (uint64_t)packets * w->mtu;

	if (!to)
		return BURST_FULL;
	packet.opcode = opcode_of(qp, wqe, true, true);
	packet.ack_req = true;
	packet.va += offset;
	packet.dma_length = (uint32_t)(wqe->length - offset < length ? wqe->length - offset : length);
	/* Of a compare and swap, swap is the first operand on the wire (specification 9.3.5.3). */
	packet.swap_add = wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? wqe->swap : wqe->compare_add;
	packet.compare = wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? wqe->compare_add : 0;
	burst_add(burst, roce_build(&packet, to));
	return EMITTED;
}

/* One packet of a SEND or WRITE, whose memory is known. */
static enum emitted emit_packet(struct nic_qp *qp, struct wire_qp *w, uint64_t position, uint32_t psn, const struct piece *pieces,
				uint32_t count, bool ask, struct burst *burst)
{
	struct nic_swqe *wqe = qp_swqe(qp, position);
	uint32_t k = (uint32_t)psn_diff(psn, wqe->psn), mtu = w->mtu;
	uint64_t offset = (uint64_t)k * mtu;
	uint32_t length = (uint32_t)(wqe->length - offset < mtu ? wqe->length - offset : mtu);
	bool last = k + 1 == wqe->packets;
	struct roce_packet packet = header(qp, wqe, psn);
	uint8_t *to = burst_next(burst, ROCE_MAX_HEADERS + length + roce_pad(length));
	size_t bytes;

	if (!to)
		return BURST_FULL;
	packet.opcode = opcode_of(qp, wqe, !k, last);
	packet.solicited = last && wqe->send_flags & IBV_SEND_SOLICITED && needs_receive(wqe->opcode);
	packet.ack_req = qp->type == IBV_QPT_RC && (last || ask || k % ACK_EVERY == ACK_EVERY - 1);
	packet.length = length;
	bytes = roce_build(&packet, to);
	if (length) {
		struct piece slice[MEMORY_PIECES], here = piece_ours(to + bytes, length);
		uint32_t n = memory_slice(pieces, count, offset, length, slice);

		if (memory_copy(qp->nic, attach_self(qp->nic), NULL, COPY_FROM_PEER, &here, 1, slice, n, length, false) != COPY_DONE) {
			struct cause c = { 0 };

			wire_fail(w, position, IBV_WC_LOC_PROT_ERR, CAUSE_LOCAL_FAULT, &c);
			return NOT_NOW;
		}
		memset(to + bytes + length, 0, roce_pad(length));
	}
	if (last && trace_on())
		trace_write(TRACE_GATHERED, wqe->opcode, 0, qp->qpn, (uint32_t)position, (uint32_t)wqe->length, 0);
	burst_add(burst, bytes + length + roce_pad(length));
	return EMITTED;
}

/* READs and atomics under way, of which those that were answered are forgotten. */
static uint32_t reads_under_way(struct wire_qp *w)
{
	uint32_t done = 0;

	while (done < w->reads && psn_diff(w->read_ends[done], w->una) <= 0)
		done++;
	if (done) {
		w->reads -= done;
		memmove(w->read_ends, w->read_ends + done, w->reads * sizeof(*w->read_ends));
	}
	return w->reads;
}

static bool may_read(struct nic_qp *qp, struct wire_qp *w)
{
	uint32_t room = qp->attr.max_rd_atomic;

	if (w->reads_room < room) {
		uint32_t *ends = realloc(w->read_ends, room * sizeof(*ends));

		if (!ends) {
			w->route_error = ENOMEM;
			return false;
		}
		w->read_ends = ends;
		w->reads_room = room;
	}
	return reads_under_way(w) < room;
}

/* Whether a request that was not sent before may be begun; its own faults end it in its turn. */
static bool begin(struct nic_qp *qp, struct wire_qp *w, struct nic_swqe *wqe)
{
	if (qp->state != IBV_QPS_RTS)
		return false;
	/* Unkind timing: one by one, each in its own time. */
	if (timing_mode() != TIMING_PROMPT && w->next_pos != qp->sq_exec)
		return false;
	if (wqe->send_flags & IBV_SEND_FENCE && reads_under_way(w))
		return false;
	if (reads_remote(wqe->opcode) && qp->attr.max_rd_atomic && !may_read(qp, w))
		return false;
	wqe->psn = w->end;
	wqe->packets = psn_packets(wqe->length, w->mtu);
	if (trace_on())
		trace_write(TRACE_SEEN, wqe->opcode, 0, qp->qpn, (uint32_t)w->end_pos, (uint32_t)wqe->length, wqe->wr_id);
	w->end_pos++;
	qp->sq_begun = w->end_pos;
	return true;
}

static void sent(struct wire_qp *w, uint32_t packets)
{
	w->next = psn_add(w->next, packets);
	if (psn_diff(w->next, w->end) > 0) {
		/* Only what was sent once is measured: of others nobody knows which one was answered. */
		if (!w->timed_at && !w->recovering) {
			w->timed = w->end;
			w->timed_at = nic_now();
		}
		w->end = w->next;
	}
}

/* Writes packets from next on, as far as the window and the rules let it. Within a visit of ourselves. */
static enum emitted fill(struct nic_qp *qp, struct wire_qp *w, struct burst *burst)
{
	while (w->next_pos != qp->sq_tail && !(w->failed && w->failed_pos <= w->next_pos)) {
		struct nic_swqe *wqe = qp_swqe(qp, w->next_pos);
		uint32_t window = qp->type == IBV_QPT_RC ? congestion_window(&w->congestion) : UINT32_MAX >> 9;
		struct piece pieces[MEMORY_PIECES];
		enum ibv_wc_status status;
		struct cause c = { 0 };
		uint32_t count;

		/* Executed in its turn, when all before it is done (nic/requester.c). */
		if (is_local(wqe->opcode))
			return NOT_NOW;
		if (psn_diff(w->next, w->una) >= (int32_t)window)
			return NOT_NOW;
		if (w->next_pos == w->end_pos && !begin(qp, w, wqe))
			return NOT_NOW;
		enum cause_code code = request_check(qp, wqe, pieces, &count, &c, &status);

		if (code) {
			wire_fail(w, w->next_pos, status, code, &c);
			return NOT_NOW;
		}
		while (w->next != psn_add(wqe->psn, wqe->packets)) {
			uint32_t step = 1;
			int32_t room = (int32_t)window - psn_diff(w->next, w->una);
			enum emitted emitted;

			if (room <= 0)
				return NOT_NOW;
			if (reads_remote(wqe->opcode)) {
				if (!may_read(qp, w))
					return NOT_NOW;
				step = read_step(wqe, w->next);
				emitted = emit_read(qp, w, wqe, w->next, step, burst);
				if (emitted == EMITTED)
					w->read_ends[w->reads++] = psn_add(w->next, step);
			} else {
				emitted = emit_packet(qp, w, w->next_pos, w->next, pieces, count, room == 1, burst);
			}
			if (emitted != EMITTED)
				return emitted;
			sent(w, step);
		}
		w->next_pos++;
	}
	return NOT_NOW;
}

/* The oldest packet without an answer, alone: as the first one that is missing, or to make the other end say what is. */
static void fill_one(struct nic_qp *qp, struct wire_qp *w, struct burst *burst)
{
	struct nic_swqe *wqe = qp_swqe(qp, w->una_pos);
	struct piece pieces[MEMORY_PIECES];
	enum ibv_wc_status status;
	struct cause c = { 0 };
	uint32_t count;
	enum cause_code code = request_check(qp, wqe, pieces, &count, &c, &status);

	if (code) {
		wire_fail(w, w->una_pos, status, code, &c);
		return;
	}
	if (reads_remote(wqe->opcode)) {
		uint32_t step = read_step(wqe, w->una);
		int32_t asked = psn_diff(w->next, w->una);

		/* Not what was not asked for yet, nor what has come already. */
		if ((int32_t)step > asked)
			step = (uint32_t)asked;
		if (w->responses.first) {
			int32_t missing = psn_diff(w->responses.first->arrival.packet.psn, w->una);

			if (missing > 0 && missing < (int32_t)step)
				step = (uint32_t)missing;
		}
		emit_read(qp, w, wqe, w->una, step, burst);
	} else {
		emit_packet(qp, w, w->una_pos, w->una, pieces, count, true, burst);
	}
	w->resent = w->una;
	w->resent_one = true;
}

void wire_go_back(struct wire_qp *w)
{
	w->back = w->una;
	w->back_at = nic_now();
	w->next = w->una;
	w->next_pos = w->una_pos;
	w->reads = 0;
	w->timed_at = 0;
}

static void set_timers(struct nic_qp *qp, struct wire_qp *w)
{
	uint64_t now = nic_now();

	if (w->una == w->next) {
		w->deadline = w->probe_at = 0;
		return;
	}
	if (!w->deadline && qp->attr.timeout)
		w->deadline = now + ack_timeout(qp);
	if (!w->probe_at)
		w->probe_at = now + w->congestion.probe;
}

/* Unreliable: what was sent is done. */
static void forget_sent(struct wire_qp *w)
{
	w->una = w->next;
	w->una_pos = w->next_pos;
}

static void send_what_may(struct nic_qp *qp, struct wire_qp *w)
{
	struct burst burst;
	enum emitted last;

	if (!wire_route(qp, w))
		return;
	if (!burst_begin(&burst, &w->route, qp->qpn)) {
		w->route_error = ENOMEM;
		return;
	}
	do {
		struct seg_visit *here = visit_enter(qp->nic, qp->nic->seg);

		if (!here)
			break;
		last = NOT_NOW;
		if (w->resend_one) {
			w->resend_one = false;
			if (w->una_pos != w->end_pos && w->una != w->next)
				fill_one(qp, w, &burst);
		}
		last = fill(qp, w, &burst);
		visit_leave(here);
		if (burst.runs) /* else it stays as it was: nothing was tried */
			w->route_error = burst_flush(&burst);
		if (qp->type == IBV_QPT_UC)
			forget_sent(w);
	} while (last == BURST_FULL);
	burst_end(&burst);
}

void wire_send(struct nic_qp *qp, struct wire_qp *w)
{
	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD)
		return;
	if (!w->started || (int64_t)(w->una_pos - qp->sq_exec) < 0) { /* as after SQE */
		w->started = true;
		w->failed = false;
		w->una_pos = w->next_pos = w->end_pos = qp->sq_begun = qp->sq_exec;
		w->una = w->next = w->end = qp->sq_psn;
	}
	if ((w->next_pos != qp->sq_tail || w->resend_one) && w->rnr_until <= nic_now())
		send_what_may(qp, w);
	qp->sq_psn = w->end;
	if (qp->type == IBV_QPT_RC)
		set_timers(qp, w);
}

/* Why nothing comes back, as far as this end can know. */
static enum transport_outcome no_response(struct nic_qp *qp, struct wire_qp *w, struct transport_result *result, bool waited)
{
	result->cause = w->psn_mismatch		   ? CAUSE_PSN_MISMATCH :
			w->no_route		   ? w->no_route :
			w->route_error == EMSGSIZE ? CAUSE_WIRE_MTU :
			w->route_error		   ? CAUSE_WIRE_UNREACHABLE :
						     CAUSE_NO_ANSWER;
	uint32_t uid;

	result->value = (uint64_t)w->route_error;
	if (result->cause == CAUSE_WIRE_PORT && port_owner(&qp->path.sgid, port_configured(), &uid))
		result->value = uid;
	if (result->cause == CAUSE_WIRE_MTU) {
		result->length = w->mtu;
		result->value = port_route_mtu(&w->route);
	}
	result->waited = waited;
	return TRANSPORT_NO_RESPONSE;
}

static enum transport_outcome wait_until(struct transport_result *result, uint64_t due)
{
	result->due = due;
	return TRANSPORT_WAIT;
}

/* UC: the system did not send it. Nobody hears of it, but it can be found out. */
static void record_loss(struct nic_qp *qp, const struct nic_swqe *wqe, int error)
{
	struct cause c = { .value = (uint64_t)error };

	request_record(qp, wqe, CAUSE_DROP_UNREACHABLE, IBV_WC_SUCCESS, &c);
}

static void lost_here(struct nic_qp *qp, const struct nic_swqe *wqe, struct wire_qp *w)
{
	record_loss(qp, wqe, w->route_error);
	if (qp->sq_exec + 1 == w->una_pos) /* the last that was sent so far */
		w->route_error = 0;
}

/* How the request at the head of the send queue stands. */
static enum transport_outcome outcome_of_head(struct nic_qp *qp, struct nic_swqe *wqe, struct wire_qp *w,
					      struct transport_result *result)
{
	uint64_t now = nic_now();

	if (qp->sq_exec != w->una_pos) {
		if (qp->type == IBV_QPT_UC && w->route_error)
			lost_here(qp, wqe, w);
		return TRANSPORT_DONE;
	}
	if (w->failed && w->failed_pos == qp->sq_exec) {
		result->status = w->status;
		result->cause = request_record(qp, wqe, w->code, w->status, &w->cause);
		return TRANSPORT_FAILED;
	}
	/* Not even tried. With something under way there is a time to end it. */
	bool unsent = !w->has_route || (!w->probe_at && w->route_error == ENOMEM);

	if (unsent && qp->type == IBV_QPT_UC) {
		lost_here(qp, wqe, w);
		w->una_pos++;
		w->next_pos = w->end_pos = w->una_pos;
		return TRANSPORT_DONE;
	}
	if (unsent)
		return no_response(qp, w, result, false);
	if (w->rnr) {
		w->rnr = w->resend_one = false;
		result->timer = rnr_timer(w->rnr_code);
		result->due = w->rnr_until = now + result->timer;
		wire_go_back(w);
		w->deadline = w->probe_at = 0;
		return TRANSPORT_RNR;
	}
	if (now < w->rnr_until)
		return wait_until(result, w->rnr_until);
	if (w->deadline && now >= w->deadline) {
		congestion_silent(&w->congestion);
		wire_go_back(w);
		w->deadline = w->probe_at = 0;
		w->recovering = false;
		return no_response(qp, w, result, true);
	}
	if (w->probe_at && now >= w->probe_at) {
		w->resend_one = true;
		congestion_probed(&w->congestion);
		w->probe_at = 0;
		wire_send(qp, w);
	}
	if (!w->probe_at) /* nothing is under way: a visit's word is short */
		return wait_until(result, now + 1000000u);
	return wait_until(result, w->deadline && w->deadline < w->probe_at ? w->deadline : w->probe_at);
}

enum transport_outcome wire_outcome(struct nic_qp *qp, struct nic_swqe *wqe, struct transport_result *result)
{
	struct wire_qp *w = wire_of(qp);

	if (!w && qp->type == IBV_QPT_UC) {
		record_loss(qp, wqe, ENOMEM);
		return TRANSPORT_DONE;
	}
	if (!w) {
		result->cause = CAUSE_WIRE_UNREACHABLE;
		result->value = ENOMEM;
		return TRANSPORT_NO_RESPONSE;
	}
	wire_send(qp, w);
	return outcome_of_head(qp, wqe, w, result);
}
