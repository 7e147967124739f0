/* SPDX-License-Identifier: MIT */
/* The bytes of a message. See payload.h. */
#include "local/payload.h"

#include <errno.h>

#include "nic/crash.h"
#include "observe/trace.h"

/* ns: when a request that could not be sent is tried again; how long an answer may take where the
 * QP has no timer of its own. */
#define ASK_POLL  50000ull
#define ASK_LIMIT 1000000000ull

static enum transport_outcome delivered(struct walk *w)
{
	if (trace_on())
		walk_trace(w);
	return walk_delivered(w);
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
		.life = nic_qp_life(w->target_state),
		.pd = is_send(wqe->opcode) ? ts->receive.pd : w->target_qp->pd,
		.op = is_send(wqe->opcode)			 ? ASSIST_SCATTER :
		      wqe->opcode == IBV_WR_RDMA_READ		 ? ASSIST_READ :
		      wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP	 ? ASSIST_COMPARE_SWAP :
		      wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? ASSIST_FETCH_ADD :
								   ASSIST_WRITE,
		.compare_add = wqe->compare_add,
		.swap = wqe->swap,
	};
	struct piece local[MEMORY_PIECES];
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
			return walk_failed(w, CAUSE_LOCAL_FAULT, IBV_WC_LOC_PROT_ERR);
		case ECONNRESET:
		case EPIPE:
			return walk_silence(w, CAUSE_PEER_DIED);
		default:
			if (!ts->attach_since)
				ts->attach_since = nic_now();
			if (nic_now() - ts->attach_since < patience)
				return walk_wait(w, nic_now() + ASK_POLL);
			ts->attach_since = 0;
			return walk_silence(w, CAUSE_PEER_SILENT);
		}
	}
	ts->attach_since = 0;
	ts->ask_deadline = nic_now() + patience;
	return walk_wait(w, ts->ask_deadline);
}

/* The rest of a message whose memory is known: by copying ourselves or, where that is not possible,
 * by asking. */
static enum transport_outcome move(struct walk *w, uint64_t *budget)
{
	struct transport_state *ts = w->ts;
	bool from_peer = reads_remote(w->wqe->opcode);
	struct piece local[MEMORY_PIECES], remote[NIC_MAX_SGE];

	while (ts->done < w->length) {
		uint64_t part = w->length - ts->done;

		if (!*budget)
			return TRANSPORT_MORE;
		if (part > *budget)
			part = *budget;

		uint32_t n = memory_slice(w->local, w->local_count, ts->done, part, local);
		uint32_t m = memory_slice(w->remote, w->remote_count, ts->done, part, remote);
		enum copy_result result = memory_copy(w->qp->nic, ts->peer, w->here,
						      from_peer ? COPY_FROM_PEER : COPY_TO_PEER,
						      local, n, remote, m, part,
						      !from_peer && !is_send(w->wqe->opcode));

		if (result == COPY_REFUSED)
			return ask(w);
		if (result == COPY_EVICTED)
			return TRANSPORT_MORE;
		if (result != COPY_DONE)
			return walk_copy_failed(w, result);
		crash_point(COPY_END);
		ts->done += part;
		*budget -= part;
	}
	return delivered(w);
}

/* The result of an atomic into our memory. */
static bool keep_old(struct walk *w, const struct piece *local, uint32_t count, const uint64_t *old)
{
	struct nic *nic = w->qp->nic;
	struct piece value = piece_ours(old, sizeof(*old));

	return memory_copy(nic, attach_self(nic), NULL, COPY_TO_PEER, &value, 1, local, count,
			   sizeof(*old), false) == COPY_DONE;
}

static enum transport_outcome move_atomic(struct walk *w)
{
	struct nic *nic = w->qp->nic;
	struct nic_swqe *wqe = w->wqe;
	bool compare = wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	uint64_t old;

	if (!w->ts->peer->is_self) {
		if (!memory_atomic(w->ts->peer, &w->remote[0], compare, wqe->compare_add, wqe->swap,
				   &old))
			return ask(w);
		if (visit_is_evicted(w->here))
			return TRANSPORT_MORE;
	} else if (!assist_atomic(nic, &w->remote[0],
				  compare ? ASSIST_COMPARE_SWAP : ASSIST_FETCH_ADD,
				  wqe->compare_add, wqe->swap, &old)) {
		return walk_copy_failed(w, COPY_REMOTE_FAULT);
	}
	if (!keep_old(w, w->local, w->local_count, &old))
		return walk_failed(w, CAUSE_LOCAL_FAULT, IBV_WC_LOC_PROT_ERR);
	return delivered(w);
}

/* The answer of the target's helper is there. Within a visit. */
enum transport_outcome payload_take_answer(struct walk *w)
{
	struct transport_state *ts = w->ts;
	struct ask *ask = ts->ask;
	struct piece local[MEMORY_PIECES];
	uint64_t length = ask->length;
	enum cause_code status = ask->status;
	bool collected = true;

	if (!status) {
		uint32_t n = memory_slice(w->local, w->local_count, ts->done, length, local);

		if (is_atomic(w->wqe->opcode)) {
			collected = keep_old(w, local, n, &ask->value);
		} else if (w->wqe->opcode == IBV_WR_RDMA_READ) {
			collected = assist_collect(w->qp->nic, ask, local, n);
		}
	}
	assist_end(w->qp->nic, ask);
	ts->ask = NULL;
	if (!collected)
		return walk_failed(w, CAUSE_LOCAL_FAULT, IBV_WC_LOC_PROT_ERR);
	if (status == CAUSE_REMOTE_FAULT)
		return walk_copy_failed(w, COPY_REMOTE_FAULT);
	if (status == CAUSE_PEER_QP_STATE)
		return walk_silence(w, CAUSE_PEER_QP_STATE);
	if (status && is_send(w->wqe->opcode)) {
		return walk_receive_fails(w, CAUSE_RECEIVE_BAD_SGE);
	} else if (status) {
		w->cause.code = status;
		return walk_refused(w, RESPONSE_NAK_ACCESS);
	}
	ts->done += length;
	return ts->done == w->length ? delivered(w) : TRANSPORT_MORE;
}

enum transport_outcome payload_move(struct walk *w, uint64_t *budget)
{
	return is_atomic(w->wqe->opcode) ? move_atomic(w) : move(w, budget);
}
