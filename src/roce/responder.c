/* SPDX-License-Identifier: MIT */
/*
 * The responder on the wire: takes the requests of a connected QP's peer in order, puts their bytes in place, and answers.
 * Acknowledgements, READs and atomics are answered behind all that has arrived (wire_answer), in the order of their requests.
 */
#include <stdlib.h>
#include <string.h>

#include "local/assist.h"
#include "nic/mw.h"
#include "nic/visit.h"
#include "roce/wire.h"

/* Bytes of READ answers that one call sends; the rest waits for its turn. */
#define ANSWER_BUDGET (512u << 10)

/* ns between two CNPs of a QP. */
#define CNP_INTERVAL 50000ull

/* What became of a packet. */
enum taken {
	TAKEN,
	NOT_READY,  /* no receive: to be told, and sent again */
	LATER,	    /* something of ours is short: as if it had got lost */
	REFUSED,    /* with w->nak */
	DROPPED,    /* UC: the message is lost */
};

static uint32_t operation_of(const struct arrival *arrival)
{
	return arrival->packet.opcode & 31;
}

static bool reads(uint32_t operation)
{
	return operation == ROCE_READ_REQUEST || operation == ROCE_COMPARE_SWAP || operation == ROCE_FETCH_ADD;
}

static bool is_write(uint32_t operation)
{
	return operation >= ROCE_WRITE_FIRST && operation <= ROCE_WRITE_ONLY_IMM;
}

/* Why something does not go on is recorded here, where it is known. */
static void record(struct nic_qp *qp, enum cause_code code, struct cause *c)
{
	c->code = code;
	c->qpn = qp->qpn;
	c->peer_qpn = qp->attr.dest_qp_num;
	c->state = qp->state;
	cause_record(nic_causes(qp->nic), c);
}

/* The message is lost, and its sender does not hear of it. */
static enum taken drop(struct nic_qp *qp, enum cause_code code, struct cause *c)
{
	record(qp, code, c);
	return DROPPED;
}

/* The connection ends with a NAK; flag: what its owner is told (NIC_QP_...). */
static enum taken end(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival, uint8_t nak, enum cause_code code,
		      uint64_t flag, struct cause *c)
{
	const struct target self = target_self(qp->nic);

	record(qp, code, c);
	w->nak = ROCE_SYNDROME(ROCE_NAK, nak);
	w->nak_psn = arrival->packet.psn;
	responder_fail(&self, qp->shared, atomic_load(&qp->shared->state), flag, CAUSE_TOLD);
	return REFUSED;
}

/* The message ends the connection, or (UC) only itself. Events as between processes of one host (local/outcome.c). */
static enum taken refuse(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival, uint8_t nak, enum cause_code code,
			 struct cause *c)
{
	if (qp->type != IBV_QPT_RC)
		return drop(qp, code == CAUSE_QP_ACCESS || nak == ROCE_NAK_ACCESS ? CAUSE_DROP_ACCESS : code, c);
	return end(qp, w, arrival, nak, code,
		   nak == ROCE_NAK_OPERATION				? NIC_QP_FAILED :
		   code == CAUSE_QP_ACCESS || code == CAUSE_BAD_REQUEST ? NIC_QP_REQ_ERR :
									  NIC_QP_ACCESS_ERR,
		   c);
}

/* The receive of the message is not what it must be: it ends in error, which fails the QP (specification 9.9.3, class C). Only
 * what is too long for UC leaves its receive to the next message (class D). */
static enum taken fail_receive(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival, enum cause_code code,
			       struct cause *c)
{
	const struct target self = target_self(qp->nic);
	bool too_short = code == CAUSE_RECEIVE_TOO_SHORT;
	struct nic_cqe cqe = { .status = too_short ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR,
			       .opcode = IBV_WC_RECV,
			       .qp_num = qp->qpn,
			       .src_qp = qp->attr.dest_qp_num,
			       .vendor_err = code };

	if (too_short && qp->type != IBV_QPT_RC)
		return drop(qp, CAUSE_DROP_TOO_LONG, c);
	responder_complete(&self, qp->shared, &w->receive, &cqe, true);
	w->taken = false;
	if (qp->type == IBV_QPT_RC)
		return end(qp, w, arrival, too_short ? ROCE_NAK_INVALID_REQUEST : ROCE_NAK_OPERATION, code, NIC_QP_FAILED, c);
	responder_fail(&self, qp->shared, atomic_load(&qp->shared->state), NIC_QP_FAILED, CAUSE_TOLD);
	return drop(qp, CAUSE_DROP_BAD_SGE, c);
}

/* A receive for the message; it stays with it until it is complete. */
static enum taken take_receive(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	const struct target self = target_self(qp->nic);
	struct cause c = { 0 };
	/* Nobody else must take the receive of a process that dies for the taker's: it is we who hold it. */
	struct request request = { .type = qp->type, .src_qpn = qp->qpn };

	if (w->taken)
		return TAKEN;
	switch (responder_take(&self, qp->shared, atomic_load(&qp->shared->state), &request, 0, false, &w->receive, &c)) {
	case RESPONSE_ACK:
		w->taken = true;
		if (trace_on())
			trace_write(TRACE_TAKEN, w->receive.srq >= 0, 0, qp->qpn, w->receive.taken.slot, 0, 0);
		return TAKEN;
	case RESPONSE_RNR:
		responder_count_empty(qp->nic->seg, qp->shared);
		if (qp->type == IBV_QPT_RC)
			return NOT_READY;
		return drop(qp, CAUSE_DROP_NO_RECEIVE, &c);
	case RESPONSE_NAK_OPERATION:
		return refuse(qp, w, arrival, ROCE_NAK_OPERATION, CAUSE_REMOTE_CQ_ERROR, &c);
	default:
		return LATER;
	}
}

/* Bytes of a SEND, behind those that have come before. */
static enum taken put_sent(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	const struct target self = target_self(qp->nic);
	uint32_t length = arrival->packet.length, count;
	struct piece all[NIC_MAX_SGE], slice[MEMORY_PIECES], here = piece_ours(arrival->packet.payload, length);
	struct cause c = { 0 };
	enum cause_code code = responder_scatter(qp->nic, NULL, &self, &w->receive, w->offset + length, all, &count, &c);

	if (code)
		return fail_receive(qp, w, arrival, code, &c);
	uint32_t n = memory_slice(all, count, w->offset, length, slice);

	if (length && memory_copy(qp->nic, attach_self(qp->nic), NULL, COPY_TO_PEER, &here, 1, slice, n, length, false) != COPY_DONE)
		return fail_receive(qp, w, arrival, CAUSE_REMOTE_FAULT, &c);
	w->offset += length;
	return TAKEN;
}

/* Bytes of a WRITE. The key is looked at each time: it may have been taken back meanwhile. */
static enum taken put_written(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	uint32_t length = arrival->packet.length;
	struct piece piece, here = piece_ours(arrival->packet.payload, length);
	struct cause c = { 0 };
	enum cause_code code;

	if (w->offset + length > w->dma_length) {
		c.value = w->offset + length;
		c.limit = w->dma_length;
		return refuse(qp, w, arrival, ROCE_NAK_INVALID_REQUEST, CAUSE_BAD_REQUEST, &c);
	}
	if (!length)
		return TAKEN;
	code = mr_check(qp->nic->seg, true, w->rkey, w->va + w->offset, length, IBV_ACCESS_REMOTE_WRITE, qp->pd, qp->qpn, &piece,
			&c);
	if (!code &&
	    memory_copy(qp->nic, attach_self(qp->nic), NULL, COPY_TO_PEER, &here, 1, &piece, 1, length, true) != COPY_DONE)
		code = CAUSE_REMOTE_FAULT;
	if (code)
		return refuse(qp, w, arrival, ROCE_NAK_ACCESS, code, &c);
	w->offset += length;
	return TAKEN;
}

/* A SEND with Invalidate that cannot invalidate has arrived all the same, and is acknowledged; its receive and the connection
 * fail (specification 9.9.3, class J, as Linux's rxe has it). False: so it is. */
static bool invalidate(struct nic_qp *qp, const struct arrival *arrival, struct nic_cqe *cqe)
{
	struct cause c = { .opcode = arrival->packet.opcode };
	enum cause_code code = mw_invalidate(qp->nic->seg, arrival->packet.rkey, qp->qpn, qp->pd, &c);

	if (!code) {
		cqe->wc_flags |= IBV_WC_WITH_INV;
		cqe->imm_data = arrival->packet.rkey;
		return true;
	}
	cqe->status = IBV_WC_REM_INV_REQ_ERR;
	cqe->vendor_err = code;
	record(qp, code, &c);
	return false;
}

static void trace_placed(const struct nic_qp *qp, const struct wire_qp *w, bool has_receive)
{
	trace_write(TRACE_PLACED, has_receive && w->receive.srq >= 0, 0, qp->qpn, has_receive ? w->receive.taken.slot : ~0u,
		    (uint32_t)w->offset, 0);
}

/* All of a message is there. */
static void complete(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	const struct target self = target_self(qp->nic);
	uint8_t headers = roce_opcode(arrival->packet.opcode)->headers;
	bool imm = headers & ROCE_HAS_IMM, write = is_write(operation_of(arrival)), valid;

	w->msn = psn_add(w->msn, 1);
	w->begun = false;
	if (trace_on())
		trace_placed(qp, w, w->taken && (!write || imm));
	/* A WRITE leaves alone what a SEND of UC took before it was lost: that is the next one's. */
	if (w->taken && (!write || imm)) {
		struct nic_cqe cqe = {
			.status = IBV_WC_SUCCESS,
			.opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
			.byte_len = (uint32_t)w->offset,
			.imm_data = imm ? arrival->packet.imm_data : 0,
			.qp_num = qp->qpn,
			.src_qp = qp->attr.dest_qp_num,
			.wc_flags = imm ? IBV_WC_WITH_IMM : 0,
			.sl = qp->path.sl,
		};

		w->taken = false;
		valid = !(headers & ROCE_HAS_IETH) || invalidate(qp, arrival, &cqe);
		responder_complete(&self, qp->shared, &w->receive, &cqe, arrival->packet.solicited);
		if (!valid)
			responder_fail(&self, qp->shared, atomic_load(&qp->shared->state), NIC_QP_FAILED, CAUSE_TOLD);
	}
	responder_count(qp->shared, write ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, w->offset);
	w->offset = 0;
}

static enum taken check_right(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival, uint32_t right)
{
	struct cause c = { .access = right, .region_access = atomic_load(&qp->shared->access) };

	if (c.region_access & right)
		return TAKEN;
	return refuse(qp, w, arrival, ROCE_NAK_INVALID_REQUEST, CAUSE_QP_ACCESS, &c);
}

static enum taken check_key(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival, uint32_t length, uint32_t right)
{
	struct piece piece;
	struct cause c = { 0 };

	if (!length) /* zero bytes at any address with any key are nothing */
		return TAKEN;
	enum cause_code code = mr_check(qp->nic->seg, true, arrival->packet.rkey, arrival->packet.va, length, right, qp->pd,
					qp->qpn, &piece, &c);

	return code ? refuse(qp, w, arrival, ROCE_NAK_ACCESS, code, &c) : TAKEN;
}

/* SEND and WRITE: whether the packet is in its place, and as long as it must be. */
static enum cause_code misfit(const struct wire_qp *w, const struct arrival *arrival)
{
	const struct roce_opcode *row = roce_opcode(arrival->packet.opcode);
	bool starts = row->place == ROCE_FIRST || row->place == ROCE_ONLY;

	if (starts == w->begun || (!starts && is_write(operation_of(arrival)) != is_write(w->operation)))
		return CAUSE_BAD_REQUEST;
	if (roce_payload_fits(row, arrival->packet.length, w->mtu))
		return CAUSE_NONE;
	return arrival->packet.length ? CAUSE_MTU_MISMATCH : CAUSE_BAD_REQUEST;
}

static enum taken take_message(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	const struct roce_opcode *row = roce_opcode(arrival->packet.opcode);
	bool starts = row->place == ROCE_FIRST || row->place == ROCE_ONLY;
	bool ends = row->place == ROCE_LAST || row->place == ROCE_ONLY;
	bool write = is_write(operation_of(arrival));
	enum taken taken = TAKEN;
	struct cause c = { .opcode = arrival->packet.opcode, .value = arrival->packet.length, .limit = w->mtu };
	enum cause_code code = misfit(w, arrival);

	if (code)
		return refuse(qp, w, arrival, ROCE_NAK_INVALID_REQUEST, code, &c);
	if (starts) {
		w->offset = 0;
		w->operation = (uint8_t)operation_of(arrival);
	}
	if (starts && write) {
		taken = check_right(qp, w, arrival, IBV_ACCESS_REMOTE_WRITE);
		if (taken == TAKEN)
			taken = check_key(qp, w, arrival, arrival->packet.dma_length, IBV_ACCESS_REMOTE_WRITE);
		w->va = arrival->packet.va;
		w->rkey = arrival->packet.rkey;
		w->dma_length = arrival->packet.dma_length;
	}
	/* A WRITE takes a receive for its immediate data, at its end. */
	if (taken == TAKEN && (write ? row->headers & ROCE_HAS_IMM : starts))
		taken = take_receive(qp, w, arrival);
	if (taken == TAKEN)
		taken = write ? put_written(qp, w, arrival) : put_sent(qp, w, arrival);
	if (taken == TAKEN && ends && write && w->offset != w->dma_length) {
		c.value = w->offset;
		c.limit = w->dma_length;
		taken = refuse(qp, w, arrival, ROCE_NAK_INVALID_REQUEST, CAUSE_BAD_REQUEST, &c);
	}
	if (taken != TAKEN)
		return taken;
	w->begun = !ends;
	if (ends)
		complete(qp, w, arrival);
	return TAKEN;
}

static struct reply *reply_at(struct wire_qp *w, uint32_t number)
{
	return &w->replies[number % w->replies_room];
}

/* A place for the answer to a READ or atomic; NULL when more are under way than this end agreed to. */
static struct reply *new_reply(struct nic_qp *qp, struct wire_qp *w)
{
	uint32_t room = qp->attr.max_dest_rd_atomic;

	if (!w->replies && room) {
		w->replies = calloc(room, sizeof(*w->replies));
		w->replies_room = w->replies ? room : 0;
	}
	if (!w->replies || w->reply_end - w->reply_next >= w->replies_room)
		return NULL;
	struct reply *reply = reply_at(w, w->reply_end++);

	*reply = (struct reply){ 0 };
	return reply;
}

/* There was no place for the answer. */
static enum taken too_many(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	if (!w->replies && qp->attr.max_dest_rd_atomic) /* no memory for any */
		return LATER;

	struct cause c = { .limit = qp->attr.max_dest_rd_atomic, .value = qp->attr.max_dest_rd_atomic + 1u };

	return refuse(qp, w, arrival, ROCE_NAK_INVALID_REQUEST, CAUSE_RESPONDER_DEPTH, &c);
}

static enum taken take_read(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival, uint32_t *packets)
{
	const struct roce_packet *packet = &arrival->packet;
	enum taken taken = check_right(qp, w, arrival, IBV_ACCESS_REMOTE_READ);
	struct reply *reply;

	if (taken == TAKEN)
		taken = check_key(qp, w, arrival, packet->dma_length, IBV_ACCESS_REMOTE_READ);
	if (taken != TAKEN)
		return taken;
	reply = new_reply(qp, w);
	if (!reply)
		return too_many(qp, w, arrival);
	*packets = psn_packets(packet->dma_length, w->mtu);
	reply->psn = packet->psn;
	reply->packets = *packets;
	reply->va = packet->va;
	reply->length = packet->dma_length;
	reply->rkey = packet->rkey;
	w->msn = psn_add(w->msn, 1);
	responder_count(qp->shared, IBV_WR_RDMA_READ, packet->dma_length);
	return TAKEN;
}

static enum taken take_atomic(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	const struct roce_packet *packet = &arrival->packet;
	bool compare = operation_of(arrival) == ROCE_COMPARE_SWAP;
	enum taken taken = check_right(qp, w, arrival, IBV_ACCESS_REMOTE_ATOMIC);
	uint64_t compare_add = compare ? packet->compare : packet->swap_add, old;
	struct reply *reply;
	struct piece piece;
	struct cause c = { .addr = packet->va };
	enum cause_code code;

	if (taken != TAKEN)
		return taken;
	if (packet->va % 8)
		return refuse(qp, w, arrival, ROCE_NAK_INVALID_REQUEST, CAUSE_ATOMIC_ALIGNMENT, &c);
	code = mr_check(qp->nic->seg, true, packet->rkey, packet->va, 8, IBV_ACCESS_REMOTE_ATOMIC, qp->pd, qp->qpn, &piece, &c);
	if (code)
		return refuse(qp, w, arrival, ROCE_NAK_ACCESS, code, &c);
	reply = new_reply(qp, w);
	if (!reply)
		return too_many(qp, w, arrival);
	if (!assist_atomic(qp->nic, &piece, compare ? ASSIST_COMPARE_SWAP : ASSIST_FETCH_ADD, compare_add, packet->swap_add, &old)) {
		w->reply_end--;
		return refuse(qp, w, arrival, ROCE_NAK_ACCESS, CAUSE_REMOTE_FAULT, &c);
	}
	reply->psn = packet->psn;
	reply->packets = 1;
	reply->is_atomic = true;
	reply->original = old;
	w->msn = psn_add(w->msn, 1);
	responder_count(qp->shared, IBV_WR_ATOMIC_FETCH_AND_ADD, sizeof(old));
	return TAKEN;
}

static enum taken take_in_order(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival, uint32_t *packets)
{
	struct cause c = { .opcode = arrival->packet.opcode };

	*packets = 1;
	switch (operation_of(arrival)) {
	case ROCE_READ_REQUEST:
	case ROCE_COMPARE_SWAP:
	case ROCE_FETCH_ADD:
		if (w->begun)
			return refuse(qp, w, arrival, ROCE_NAK_INVALID_REQUEST, CAUSE_BAD_REQUEST, &c);
		return operation_of(arrival) == ROCE_READ_REQUEST ? take_read(qp, w, arrival, packets) :
								     take_atomic(qp, w, arrival);
	default:
		return take_message(qp, w, arrival);
	}
}

static void send_one(const struct nic_qp *qp, const struct wire_qp *w, const struct roce_packet *packet)
{
	struct burst burst;

	if (!burst_begin(&burst, &w->route, qp->qpn))
		return;
	uint8_t *to = burst_next(&burst, ROCE_MAX_HEADERS);

	burst_add(&burst, roce_build(packet, to));
	burst_end(&burst);
}

static struct roce_packet answer(const struct nic_qp *qp, const struct wire_qp *w, uint32_t operation, uint32_t psn,
				 uint8_t syndrome)
{
	return (struct roce_packet){ .opcode = ROCE_OPCODE(ROCE_RC, operation),
				     .migreq = true,
				     .pkey = ROCE_DEFAULT_PKEY,
				     .qpn = qp->attr.dest_qp_num,
				     .psn = psn,
				     .syndrome = syndrome,
				     .msn = w->msn };
}

static void acknowledge(struct nic_qp *qp, struct wire_qp *w, uint32_t psn, uint8_t syndrome)
{
	struct roce_packet packet = answer(qp, w, ROCE_ACKNOWLEDGE, psn, syndrome);

	send_one(qp, w, &packet);
}

/* One packet of a READ's answer. False: full; a region that is gone ends the answer. */
static bool emit_answer(struct nic_qp *qp, struct wire_qp *w, struct reply *reply, struct burst *burst)
{
	uint64_t offset = (uint64_t)reply->sent * w->mtu;
	uint32_t length = reply->length - offset < w->mtu ? (uint32_t)(reply->length - offset) : w->mtu;
	bool first = !reply->sent, last = reply->sent + 1 == reply->packets;
	uint32_t operation = first && last ? ROCE_READ_RESPONSE_ONLY :
			     first	   ? ROCE_READ_RESPONSE_FIRST :
			     last	   ? ROCE_READ_RESPONSE_LAST :
					     ROCE_READ_RESPONSE_MIDDLE;
	struct roce_packet packet = answer(qp, w, operation, psn_add(reply->psn, reply->sent),
					   ROCE_SYNDROME(ROCE_ACK, ROCE_CREDITS_INVALID));
	uint8_t *to = burst_next(burst, ROCE_MAX_HEADERS + length + roce_pad(length));
	struct piece piece;
	struct cause c = { 0 };
	enum cause_code code = CAUSE_NONE;

	if (!to)
		return false;
	packet.length = length;
	size_t bytes = roce_build(&packet, to);
	struct piece here = piece_ours(to + bytes, length);

	if (length)
		code = mr_check(qp->nic->seg, true, reply->rkey, reply->va + offset, length, IBV_ACCESS_REMOTE_READ, qp->pd,
				qp->qpn, &piece, &c);
	if (!code && length &&
	    memory_copy(qp->nic, attach_self(qp->nic), NULL, COPY_FROM_PEER, &here, 1, &piece, 1, length, false) != COPY_DONE)
		code = CAUSE_REMOTE_FAULT;
	if (code) {
		struct arrival request = { .packet.psn = packet.psn };

		/* Nothing behind it is answered. What is answered again is none of those. */
		if (reply == reply_at(w, w->reply_next))
			w->reply_end = w->reply_next + 1;
		reply->packets = reply->sent;
		if (!w->nak)
			refuse(qp, w, &request, ROCE_NAK_ACCESS, code, &c);
		return true;
	}
	memset(to + bytes + length, 0, roce_pad(length));
	burst_add(burst, bytes + length + roce_pad(length));
	reply->sent++;
	return true;
}

/* Sends what there is to be answered, oldest first. True when something is left. */
static bool send_replies(struct nic_qp *qp, struct wire_qp *w)
{
	uint32_t budget = ANSWER_BUDGET;
	struct burst burst;

	/* Without memory it is left until it is asked for again. */
	if (!burst_begin(&burst, &w->route, qp->qpn))
		return false;
	while (w->reply_next != w->reply_end && budget >= w->mtu) {
		struct reply *reply = reply_at(w, w->reply_next);

		if (reply->is_atomic) {
			struct roce_packet packet = answer(qp, w, ROCE_ATOMIC_ACKNOWLEDGE, reply->psn,
							   ROCE_SYNDROME(ROCE_ACK, ROCE_CREDITS_INVALID));
			uint8_t *to = burst_next(&burst, ROCE_MAX_HEADERS);

			if (to) {
				packet.original = reply->original;
				burst_add(&burst, roce_build(&packet, to));
				w->reply_next++;
				continue;
			}
		} else {
			struct seg_visit *here = visit_enter(qp->nic, qp->nic->seg);
			bool room = true;

			if (!here)
				break;
			while (reply->sent < reply->packets && budget >= w->mtu && room) {
				room = emit_answer(qp, w, reply, &burst);
				budget -= room ? w->mtu : 0;
			}
			visit_leave(here);
			if (reply->sent == reply->packets)
				w->reply_next++;
			if (room)
				continue;
		}
		burst_flush(&burst);
	}
	burst_end(&burst);
	return w->reply_next != w->reply_end;
}

static void set_busy(struct nic_qp *qp, struct wire_qp *w, bool busy)
{
	struct wire *wire = qp->nic->wire;

	if (w->is_busy == busy)
		return;
	pthread_mutex_lock(&wire->lock);
	if (busy)
		list_add_tail(&wire->busy, &w->of_busy);
	else
		list_del(&w->of_busy);
	w->is_busy = busy;
	pthread_mutex_unlock(&wire->lock);
	if (busy)
		nic_ring_doorbell(qp->nic);
}

void wire_answer(struct nic_qp *qp, struct wire_qp *w)
{
	uint32_t epsn = atomic_load_explicit(&qp->shared->epsn, memory_order_relaxed);
	bool left = false;

	if (qp->type != IBV_QPT_RC || !w->has_route)
		return;
	if (w->reply_next != w->reply_end && qp->state != IBV_QPS_ERR)
		left = send_replies(qp, w);
	set_busy(qp, w, left);
	if (left)
		return;
	if (w->nak) {
		if (!w->nak_sent)
			acknowledge(qp, w, w->nak_psn, w->nak);
		w->nak_sent = true;
		return;
	}
	if (w->ack_due)
		acknowledge(qp, w, w->ack_psn, ROCE_SYNDROME(ROCE_ACK, ROCE_CREDITS_INVALID));
	w->ack_due = false;
	if (w->gap && !w->gap_told) {
		acknowledge(qp, w, epsn, ROCE_SYNDROME(ROCE_NAK, ROCE_NAK_PSN));
		w->gap_told = true;
	}
}

void wire_reset_responder(struct wire_qp *w)
{
	held_clear(&w->requests);
	held_clear(&w->responses);
	w->begun = w->taken = w->gap = w->gap_told = w->ack_due = false;
	w->reply_next = w->reply_end;
}

/* Asked again for what was answered before. */
static void replay(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	const struct roce_packet *packet = &arrival->packet;
	uint32_t operation = operation_of(arrival);

	counter_add_event(&qp->shared->duplicate_request, &qp->nic->seg->counters.duplicate_request);
	if (!reads(operation)) {
		w->ack_due = true;
		return;
	}
	/* What was answered is kept until its place is needed again, which is as long as a requester may ask. */
	for (uint32_t i = 0; i < w->replies_room && i < w->reply_end; i++) {
		struct reply *old = reply_at(w, w->reply_end - 1 - i);
		int32_t into = psn_diff(packet->psn, old->psn);

		if (into < 0 || into >= (int32_t)old->packets || old->is_atomic != (operation != ROCE_READ_REQUEST))
			continue;
		/* It waits for its turn anyway. */
		if (w->reply_end - 1 - i - w->reply_next < w->reply_end - w->reply_next)
			return;
		if (old->is_atomic) {
			struct roce_packet again = answer(qp, w, ROCE_ATOMIC_ACKNOWLEDGE, old->psn,
							  ROCE_SYNDROME(ROCE_ACK, ROCE_CREDITS_INVALID));

			again.original = old->original;
			send_one(qp, w, &again);
			return;
		}
		/* A part of it, from there on: with the bytes that are there now (specification 9.7.5.1.5). */
		uint32_t packets = psn_packets(packet->dma_length, w->mtu);
		struct reply part = { .psn = packet->psn,
				      .packets = packets,
				      .va = packet->va,
				      .length = packet->dma_length,
				      .rkey = packet->rkey };
		struct burst burst;

		if (packets > old->packets - (uint32_t)into || packet->rkey != old->rkey ||
		    packet->va != old->va + (uint64_t)(uint32_t)into * w->mtu || !burst_begin(&burst, &w->route, qp->qpn))
			return;
		while (part.sent < part.packets && !w->nak) {
			struct seg_visit *here = visit_enter(qp->nic, qp->nic->seg);
			bool room = here && emit_answer(qp, w, &part, &burst);

			if (!here)
				break;
			visit_leave(here);
			if (!room)
				burst_flush(&burst);
		}
		burst_end(&burst);
		return;
	}
}

/* A READ or atomic is acknowledged by its answer, with all before it. An ACK beside that would, if the answer gets lost, have a
 * requester (Linux's rxe) take it for answered. */
static void acknowledge_later(struct wire_qp *w, const struct arrival *arrival)
{
	if (reads(operation_of(arrival))) {
		w->ack_due = false;
		return;
	}
	w->ack_psn = arrival->packet.psn;
	w->ack_due |= arrival->packet.ack_req;
}

/* The next packet of an RC connection. */
static void take_next(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	const struct target self = target_self(qp->nic);
	uint64_t state = atomic_load_explicit(&qp->shared->state, memory_order_relaxed);
	bool invalidates = roce_opcode(arrival->packet.opcode)->headers & ROCE_HAS_IETH;
	struct seg_visit *here;
	uint32_t packets = 1;

	/* What was asked for through a window before is answered before it goes; if that takes long, the packet counts as lost. */
	if (invalidates && w->reply_next != w->reply_end && send_replies(qp, w))
		return;
	here = visit_enter(qp->nic, qp->nic->seg);
	if (!here)
		return;
	enum taken taken = take_in_order(qp, w, arrival, &packets);

	visit_leave(here);
	switch (taken) {
	case TAKEN:
		atomic_store_explicit(&qp->shared->epsn, psn_add(arrival->packet.psn, packets), memory_order_relaxed);
		w->gap = w->gap_told = false;
		acknowledge_later(w, arrival);
		if ((state & 0xff) == IBV_QPS_RTR)
			responder_established(&self, qp->shared, state, 0, 0);
		break;
	case NOT_READY:
		acknowledge(qp, w, arrival->packet.psn,
			    ROCE_SYNDROME(ROCE_RNR_NAK, atomic_load(&qp->shared->min_rnr_timer) & 31));
		w->gap = w->gap_told = true;
		w->ack_due = false;
		held_clear(&w->requests);
		break;
	default:
		break;
	}
}

static void take_reliable(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	int32_t ahead = psn_diff(arrival->packet.psn, atomic_load_explicit(&qp->shared->epsn, memory_order_relaxed));

	if (w->nak)
		return;
	if (ahead < 0) {
		replay(qp, w, arrival);
		return;
	}
	if (ahead > 0) {
		counter_add_event(&qp->shared->out_of_sequence, &qp->nic->seg->counters.out_of_sequence);
		w->gap = true;
		if (ahead < HELD_AHEAD)
			held_add(&w->requests, arrival);
		return;
	}
	take_next(qp, w, arrival);
	while (w->requests.first && !w->nak) {
		uint32_t epsn = atomic_load_explicit(&qp->shared->epsn, memory_order_relaxed);
		struct held *held = held_take(&w->requests, epsn);

		if (!held)
			break;
		take_next(qp, w, &held->arrival);
		free(held);
	}
	/* What came behind another gap is kept: the requester has to know of that too. */
	if (w->requests.first)
		w->gap = true;
}

/* UC: a message that misses a packet is lost; its receive serves the next one (specification 9.8.2.2). */
static void take_unreliable(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	const struct target self = target_self(qp->nic);
	const struct roce_opcode *row = roce_opcode(arrival->packet.opcode);
	uint64_t state = atomic_load_explicit(&qp->shared->state, memory_order_relaxed);
	bool starts = row->place == ROCE_FIRST || row->place == ROCE_ONLY;
	uint32_t epsn = atomic_load_explicit(&qp->shared->epsn, memory_order_relaxed);
	enum taken taken = DROPPED;
	struct seg_visit *here;
	uint32_t packets;

	if (w->begun && (starts || arrival->packet.psn != epsn)) {
		w->begun = false;
		counter_add(&qp->nic->seg->counters.rx_drops, 1);
		atomic_fetch_add_explicit(&qp->shared->drops, 1, memory_order_relaxed);
	}
	atomic_store_explicit(&qp->shared->epsn, psn_add(arrival->packet.psn, 1), memory_order_relaxed);
	if (!starts && !w->begun)
		return;
	here = visit_enter(qp->nic, qp->nic->seg);
	if (here) {
		taken = take_in_order(qp, w, arrival, &packets);
		visit_leave(here);
	}
	if (taken != TAKEN) {
		w->begun = false;
		counter_add(&qp->nic->seg->counters.rx_drops, 1);
		atomic_fetch_add_explicit(&qp->shared->drops, 1, memory_order_relaxed);
	} else if ((state & 0xff) == IBV_QPS_RTR) {
		responder_established(&self, qp->shared, state, 0, psn_add(arrival->packet.psn, 1));
	}
}

static void notify_congestion(struct nic_qp *qp, struct wire_qp *w)
{
	uint64_t now = nic_now();
	struct roce_packet packet = { .opcode = ROCE_OPCODE_CNP,
				      .migreq = true,
				      .becn = true,
				      .pkey = ROCE_DEFAULT_PKEY,
				      .qpn = qp->attr.dest_qp_num };

	if (now - w->cnp_at < CNP_INTERVAL)
		return;
	w->cnp_at = now;
	counter_add(&qp->nic->seg->counters.np_cnp_sent, 1);
	send_one(qp, w, &packet);
}

void wire_take_request(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival)
{
	uint64_t state = atomic_load_explicit(&qp->shared->state, memory_order_relaxed);

	/* What ended the connection is said again to who asks again: else a NAK that got lost would look like silence. */
	if (w->nak && arrival->packet.psn == w->nak_psn)
		w->nak_sent = false;
	if (state & NIC_QP_RESP_ERROR || qp->state < IBV_QPS_RTR || qp->state == IBV_QPS_ERR)
		return;
	if (!wire_route(qp, w))
		return;
	if ((arrival->traffic_class & 3) == 3) { /* ECN: congestion experienced */
		counter_add(&qp->nic->seg->counters.np_ecn_marked_roce_packets, 1);
		notify_congestion(qp, w);
	}
	if (qp->type == IBV_QPT_RC)
		take_reliable(qp, w, arrival);
	else
		take_unreliable(qp, w, arrival);
}
