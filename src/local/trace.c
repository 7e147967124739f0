/* SPDX-License-Identifier: MIT */
/* A message in the trace of its initiator. See walk.h. */
#include <string.h>

#include "local/copy.h"
#include "local/dma.h"
#include "local/walk.h"
#include "observe/trace.h"

static uint64_t sender(const struct walk *w)
{
	return (uint64_t)w->qp->qpn << 32 | (uint32_t)w->qp->sq_exec;
}

static void put_taken(struct trace_claim *claim, const struct walk *w)
{
	const struct receive *receive = &w->ts->receive;

	trace_put(claim, TRACE_TAKEN, receive->srq >= 0, 0, w->request.dest_qpn, receive->taken.slot, 0, sender(w));
}

void walk_trace_taken(struct walk *w)
{
	struct trace_claim claim = trace_claim(1);

	put_taken(&claim, w);
}

/* By what this library sees; false where it does not see all of it. */
static bool read_seen(struct peer *self, const struct piece *pieces, uint32_t count, uint8_t *to)
{
	for (uint32_t i = 0; i < count; i++) {
		for (uint64_t offset = 0; offset < pieces[i].length;) {
			uint64_t part = pieces[i].length - offset;
			const uint8_t *from = memory_see(self, &pieces[i], offset, &part);

			if (!from)
				return false;
			copy_ordered(to, from, part);
			to += part;
			offset += part;
		}
	}
	return true;
}

/* The first bytes of the payload, without the GRH of a datagram: from our end, which has sent them or got them. As the copy was made, but
 * that it counts as none. */
static bool read_payload(struct walk *w, uint8_t *to, uint32_t bytes)
{
	struct iovec here = { .iov_base = to, .iov_len = bytes }, there[MEMORY_PIECES];
	struct piece slice[MEMORY_PIECES];
	struct nic *nic = w->qp->nic;
	struct peer *self = attach_self(nic);
	uint32_t count;

	if (w->seen) {
		copy_ordered(to, w->seen, bytes);
		return true;
	}
	count = memory_slice(w->local, w->local_count, w->length - w->wqe->length, bytes, slice);
	if (read_seen(self, slice, count, to))
		return true;
	memory_vector(nic, slice, count, there);
	return dma_read(self->pid, &here, 1, there, count) == (ssize_t)bytes;
}

void walk_trace(struct walk *w)
{
	const struct nic_swqe *wqe = w->wqe;
	const struct nic_qp *qp = w->qp;
	const bool taken = w->seen && w->ts->taken;
	const bool datagram = qp->type == IBV_QPT_UD, atomic = is_atomic(wqe->opcode), send = is_send(wqe->opcode);
	struct trace_message about = {
		.sq_index = (uint32_t)qp->sq_exec,
		.dest_qpn = w->request.dest_qpn,
		.rkey = send ? 0 : wqe->rkey,
		.imm = has_imm(wqe->opcode)		   ? wqe->imm_data :
		       wqe->opcode == IBV_WR_SEND_WITH_INV ? wqe->rkey :
							     0,
		.qkey = datagram ? w->request.qkey : 0,
		.kept = trace_kept(wqe->length, 0),
		.compare_add = atomic ? wqe->compare_add : 0,
		.swap = atomic ? wqe->swap : 0,
	};
	uint8_t payload[TRACE_SNAP];
	struct trace_claim claim;

	if (datagram)
		memcpy(about.dgid, wqe->ah.dgid.raw, sizeof(about.dgid));
	if (about.kept && !read_payload(w, payload, about.kept))
		about.kept = 0;
	claim = trace_claim(2 + taken + trace_slots(sizeof(about) + about.kept));
	if (taken)
		put_taken(&claim, w);
	trace_put(&claim, TRACE_GATHERED, wqe->opcode, 0, qp->qpn, about.sq_index, (uint32_t)wqe->length, 0);
	trace_put(&claim, TRACE_PLACED, w->ts->taken && w->ts->receive.srq >= 0, 0, about.dest_qpn,
		  w->ts->taken ? w->ts->receive.taken.slot : ~0u, (uint32_t)wqe->length, sender(w));
	trace_put_more(&claim, TRACE_MESSAGE, wqe->opcode, (uint8_t)wqe->send_flags, qp->qpn, qp->sq_psn, (uint32_t)wqe->length,
		       send ? 0 : wqe->remote_addr, &about, sizeof(about), payload, about.kept);
}
