/* SPDX-License-Identifier: MIT */
/* Datagrams on the wire: one packet each, to wherever its address handle says, and from anybody. */
#include <errno.h>
#include <string.h>

#include "local/grh.h"
#include "nic/visit.h"
#include "roce/wire.h"

static enum transport_outcome failed(struct nic_qp *qp, struct nic_swqe *wqe, struct transport_result *result, enum cause_code code,
				     enum ibv_wc_status status, struct cause *c)
{
	result->status = status;
	result->cause = request_record(qp, wqe, code, status, c);
	return TRANSPORT_FAILED;
}

/* It is lost, and its sender does not hear of it; but it can be found out. */
static enum transport_outcome dropped(struct nic_qp *qp, struct nic_swqe *wqe, int error)
{
	struct cause c = { .value = (uint64_t)error };

	request_record(qp, wqe, CAUSE_DROP_UNREACHABLE, IBV_WC_SUCCESS, &c);
	return TRANSPORT_DONE;
}

/* The packet with its payload; false when the program's memory is not there. Within a visit. */
static bool write_packet(struct nic_qp *qp, struct nic_swqe *wqe, const struct piece *pieces, uint32_t count, struct burst *burst)
{
	uint32_t length = (uint32_t)wqe->length;
	struct roce_packet packet = {
		.opcode = ROCE_OPCODE(ROCE_UD, has_imm(wqe->opcode) ? ROCE_SEND_ONLY_IMM : ROCE_SEND_ONLY),
		.solicited = wqe->send_flags & IBV_SEND_SOLICITED,
		.migreq = true,
		.pkey = ROCE_DEFAULT_PKEY,
		.qpn = wqe->remote_qpn,
		.psn = qp->sq_psn,
		.qkey = request_qkey(qp, wqe),
		.src_qpn = qp->qpn,
		.imm_data = wqe->imm_data,
		.length = length,
	};
	uint8_t *to = burst_next(burst, ROCE_MAX_HEADERS + length + roce_pad(length));
	size_t bytes = roce_build(&packet, to);
	struct piece here = piece_ours(to + bytes, length);

	if (memory_copy(qp->nic, attach_self(qp->nic), NULL, COPY_FROM_PEER, &here, 1, pieces, count, length, false) != COPY_DONE)
		return false;
	memset(to + bytes + length, 0, roce_pad(length));
	if (trace_on())
		trace_write(TRACE_GATHERED, wqe->opcode, 0, qp->qpn, (uint32_t)qp->sq_exec, length, 0);
	burst_add(burst, bytes + length + roce_pad(length));
	return true;
}

enum transport_outcome wire_send_datagram(struct nic_qp *qp, struct nic_swqe *wqe, struct transport_result *result)
{
	struct piece pieces[MEMORY_PIECES];
	enum ibv_wc_status status;
	enum cause_code code;
	struct cause c = { 0 };
	struct burst burst;
	struct route route;
	uint32_t count;
	bool written = false;
	int error;
	struct port *port = wire_port(qp->nic, &wqe->ah.sgid, true, &code);
	struct seg_visit *here;

	error = port ? wire_route_to(qp->nic, port, &wqe->ah, qp->qpn, &route) : errno;
	if (!error && !burst_begin(&burst, &route, qp->qpn))
		error = ENOMEM;
	here = visit_enter(qp->nic, qp->nic->seg);
	if (!here) {
		if (!error)
			burst_end(&burst);
		result->due = nic_now() + 20000u;
		return TRANSPORT_WAIT;
	}
	code = request_check(qp, wqe, pieces, &count, &c, &status);
	if (!code && !error)
		written = write_packet(qp, wqe, pieces, count, &burst);
	visit_leave(here);
	if (!code && !error && !written) {
		code = CAUSE_LOCAL_FAULT;
		status = IBV_WC_LOC_PROT_ERR;
	}
	if (!error)
		error = burst_end(&burst);
	if (code)
		return failed(qp, wqe, result, code, status, &c);
	qp->sq_psn = psn_add(qp->sq_psn, 1);
	return error ? dropped(qp, wqe, error) : TRANSPORT_DONE;
}

static void drop(struct nic_qp *qp, const struct arrival *arrival, enum cause_code code, struct cause *c)
{
	c->code = code;
	c->qpn = qp->qpn;
	c->peer_qpn = arrival->packet.src_qpn;
	c->state = qp->state;
	if (!c->length)
		c->length = arrival->packet.length;
	atomic_fetch_add_explicit(&qp->shared->drops, 1, memory_order_relaxed);
	counter_add(&qp->nic->seg->counters.rx_drops, 1);
	cause_record(nic_causes(qp->nic), c);
}

/* The header area, as the packet's IP header was. */
static void write_header(const struct arrival *arrival, uint8_t *grh)
{
	struct nic_ah back = { .sgid = arrival->sgid,
			       .dgid = arrival->dgid,
			       .traffic_class = arrival->traffic_class,
			       .hop_limit = arrival->hop_limit };

	grh_write(grh, &back, arrival->packet.length);
}

void wire_take_datagram(struct nic_qp *qp, const struct arrival *arrival)
{
	const struct target self = target_self(qp->nic);
	const struct roce_opcode *row = roce_opcode(arrival->packet.opcode);
	uint64_t state = atomic_load_explicit(&qp->shared->state, memory_order_relaxed);
	uint32_t length = arrival->packet.length, count;
	/* It is we who hold the receive: no other process's death must give it back. */
	struct request request = { .type = IBV_QPT_UD, .src_qpn = qp->qpn };
	struct receive receive;
	struct piece pieces[NIC_MAX_SGE], from[2];
	uint8_t grh[GRH_BYTES];
	bool imm = row->headers & ROCE_HAS_IMM;
	struct cause c = { .value = arrival->packet.qkey, .limit = qp->attr.qkey };

	if (state & NIC_QP_RESP_ERROR || qp->state < IBV_QPS_RTR || qp->state == IBV_QPS_ERR)
		return;
	if (arrival->packet.qkey != qp->attr.qkey) {
		drop(qp, arrival, CAUSE_DROP_QKEY, &c);
		return;
	}
	if (!roce_payload_fits(row, length, qp->mtu))
		return;
	c = (struct cause){ 0 };
	switch (responder_take(&self, qp->shared, state, &request, length + GRH_BYTES, false, &receive, &c)) {
	case RESPONSE_ACK:
		if (trace_on())
			trace_write(TRACE_TAKEN, receive.srq >= 0, 0, qp->qpn, receive.taken.slot, 0, 0);
		break;
	case RESPONSE_RNR:
		responder_count_empty(qp->nic->seg, qp->shared);
		drop(qp, arrival, CAUSE_DROP_NO_RECEIVE, &c);
		return;
	case RESPONSE_NONE:
		drop(qp, arrival, (enum cause_code)c.code, &c);
		return;
	default:
		return;
	}

	struct nic_cqe cqe = {
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV,
		.byte_len = length + GRH_BYTES,
		.imm_data = imm ? arrival->packet.imm_data : 0,
		.qp_num = qp->qpn,
		.src_qp = arrival->packet.src_qpn,
		.wc_flags = IBV_WC_GRH | (imm ? IBV_WC_WITH_IMM : 0u),
	};
	enum cause_code code = responder_scatter(qp->nic, NULL, &self, &receive, length + GRH_BYTES, pieces, &count, &c);

	write_header(arrival, grh);
	from[0] = piece_ours(grh, GRH_BYTES);
	from[1] = piece_ours(arrival->packet.payload, length);
	if (!code && memory_copy(qp->nic, attach_self(qp->nic), NULL, COPY_TO_PEER, from, length ? 2 : 1, pieces, count, length + GRH_BYTES,
				 false) != COPY_DONE)
		code = CAUSE_REMOTE_FAULT;
	if (code) {
		cqe.status = code == CAUSE_RECEIVE_TOO_SHORT ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR;
		cqe.vendor_err = code;
		cqe.byte_len = 0;
		cqe.wc_flags = 0;
		drop(qp, arrival, code == CAUSE_RECEIVE_TOO_SHORT ? CAUSE_DROP_TOO_LONG : CAUSE_DROP_BAD_SGE, &c);
	} else {
		counter_add(&receive.rq->datagram_bytes, length);
		if (trace_on())
			trace_write(TRACE_PLACED, receive.srq >= 0, 0, qp->qpn, receive.taken.slot, length, 0);
	}
	responder_complete(&self, qp->shared, &receive, &cqe, code || arrival->packet.solicited);
	/* An SRQ serves other QPs: a datagram that fails there leaves its QP alone (class E). */
	if (code && receive.srq < 0)
		responder_fail(&self, qp->shared, state, NIC_QP_FAILED, CAUSE_TOLD);
	else if ((state & 0xff) == IBV_QPS_RTR)
		responder_established(&self, qp->shared, state, 0, 0);
}
