/* SPDX-License-Identifier: MIT */
/*
 * The rounds of a row: plan, receives, barrier, work, barrier, compare.
 *
 * Send completions are expected one for each signaled operation, in order; each also stands for the
 * unsignaled ones before it, and says that the results of all of these are here. Completions that
 * nobody expects end the row.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "verify.h"

#define POLL_BATCH 16
/* A node whose peer is slower than this does not play on; its row is run again. */
#define LOST_MS 500
/* Operations of a round whose messages may get lost: no more than a socket holds. */
#define LOSSY_ROUND 16

const char *wc_text(const struct ibv_wc *wc)
{
	static char text[256];

	snprintf(
		text, sizeof(text),
		"wr_id %#llx, %s, vendor_err %#x, opcode %u, QP %#x, byte_len %u, flags %#x, imm %#x, src_qp %#x",
		(unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status), wc->vendor_err,
		wc->opcode, wc->qp_num, wc->byte_len, wc->wc_flags, wc->imm_data, wc->src_qp);
	return text;
}

/* ---- Sends ---- */

static enum ibv_wc_opcode wc_opcode(enum verify_op kind)
{
	static const enum ibv_wc_opcode opcode[] = {
		[OP_SEND] = IBV_WC_SEND,	   [OP_SEND_IMM] = IBV_WC_SEND,
		[OP_WRITE] = IBV_WC_RDMA_WRITE,	   [OP_WRITE_IMM] = IBV_WC_RDMA_WRITE,
		[OP_READ] = IBV_WC_RDMA_READ,	   [OP_CMP_SWP] = IBV_WC_COMP_SWAP,
		[OP_FETCH_ADD] = IBV_WC_FETCH_ADD,
	};

	return opcode[kind];
}

static bool makes_completion(const struct world *w, const struct op *op)
{
	return op->signaled || w->row->sig_all;
}

/*
 * Results of READs and atomics, and what an acknowledged WRITE did if its target is in this
 * process.
 */
static void check_results(struct node *n, const struct op *op)
{
	struct world *w = n->w;
	struct node *d = &w->node[op->dnode];

	if (op->kind == OP_READ || op_is_atomic(op->kind))
		for (unsigned i = 0; i < op->pieces; i++)
			range_compare(w, n, op->piece[i].off, op->piece[i].len, op,
				      "it had completed");
	if (op->kind == OP_WRITE && op->last_word && d->mine && w->row->type == IBV_QPT_RC)
		range_compare(w, d, op->remote.off, op->len, op, "it had completed");
}

static void send_done(struct node *n, struct vqp *q, const struct ibv_wc *wc)
{
	struct world *w = n->w;
	unsigned i = q->completed;
	const struct op *op;

	while (i < q->posted && !makes_completion(w, q->sq[i]))
		i++;
	if (i == q->posted)
		fail("node %u: a send completion that nothing was posted for: %s", n->id,
		     wc_text(wc));
	op = q->sq[i];
	if (wc->wr_id != op->wr_id || wc->opcode != wc_opcode(op->kind)) {
		op_print(w, op);
		fail("node %u: a completion other than this one's: %s", n->id, wc_text(wc));
	}
	if ((op->kind == OP_READ || op_is_atomic(op->kind)) && wc->byte_len != op->len) {
		op_print(w, op);
		fail("node %u: this one's completion has another byte_len: %s", n->id, wc_text(wc));
	}
	for (; q->completed <= i; q->completed++)
		check_results(n, q->sq[q->completed]);
}

/*
 * Post what the queue has room for: lists as long as the row has them, of any length in a chaining
 * row.
 */
static bool post_some(struct node *n, struct vqp *q)
{
	const struct row *row = n->w->row;
	const unsigned room = row_sq_depth(row) - (q->posted - q->completed);
	unsigned chunk = row->chain ? 1 + rng_below(&n->rng, row->list) : row->list;

	if (chunk > q->count - q->posted)
		chunk = q->count - q->posted;
	if (row->chain && chunk > room)
		chunk = room;
	if (chunk == 0 || chunk > room)
		return false;
	post(n, q, &q->sq[q->posted], chunk);
	q->posted += chunk;
	return true;
}

/* ---- Polling ---- */

static void completion(struct node *n, const struct cq *cq, const struct ibv_wc *wc)
{
	struct vqp *q = NULL;
	bool receive;

	for (unsigned i = 0; i < n->w->row->qps; i++)
		if (n->qp[i].qp->qp_num == wc->qp_num)
			q = &n->qp[i];
	if (!q)
		fail("node %u: a completion of no QP of this process: %s", n->id, wc_text(wc));
	if (wc->status != IBV_WC_SUCCESS)
		fail("node %u: %s", n->id, wc_text(wc));
	receive = wc->opcode & IBV_WC_RECV;
	if (cq != (receive ? q->rcq : q->scq))
		fail("node %u: a completion in the wrong CQ: %s", n->id, wc_text(wc));
	if (receive)
		receive_done(n, q, wc);
	else
		send_done(n, q, wc);
}

bool node_poll(struct node *n)
{
	struct ibv_wc wc[POLL_BATCH];
	bool any = false;

	for (unsigned c = 0; c < n->cqs; c++) {
		const int got = poll_cq(n, &n->cq[c], wc, 1 + rng_below(&n->rng, POLL_BATCH));

		for (int i = 0; i < got; i++)
			completion(n, &n->cq[c], &wc[i]);
		any |= got > 0;
	}
	return any;
}

/* Post receives that the round still owes, a few now and then. */
static bool post_late_receives(struct node *n)
{
	bool any = false;

	for (unsigned i = 0; i < n->w->row->qps; i++) {
		struct vqp *q = &n->qp[i];
		unsigned count = 1 + rng_below(&n->rng, 4);

		if (q->rq->owed == 0 || !rng_chance(&n->rng, 5))
			continue;
		if (count > q->rq->owed)
			count = q->rq->owed;
		q->rq->owed -= count;
		rq_post(n, q, count);
		any = true;
	}
	return any;
}

bool node_progress(struct node *n)
{
	bool any = false;

	for (unsigned i = 0; i < n->w->row->qps; i++)
		any |= post_some(n, &n->qp[i]);
	any |= node_poll(n);
	if (n->w->row->late_receives)
		any |= post_late_receives(n);
	return any;
}

static bool qp_done(const struct world *w, const struct vqp *q)
{
	if (q->completed < q->count || q->rq->owed > 0)
		return false;
	for (unsigned from = 0; from < w->row->qps; from++)
		if (q->inbox[from].got < q->inbox[from].count)
			return false;
	return true;
}

static bool node_done(const struct node *n)
{
	for (unsigned i = 0; i < n->w->row->qps; i++)
		if (!qp_done(n->w, &n->qp[i]))
			return false;
	return true;
}

/* Arm, look again, and sleep until the channel has an event. */
static void node_sleep(struct node *n)
{
	const struct row *row = n->w->row;
	struct pollfd fds[2] = { { .fd = n->channel->fd, .events = POLLIN },
				 { .fd = n->w->oob, .events = 0 } };
	struct ibv_cq *from;
	void *context;
	struct cq *cq;
	int ret;

	for (unsigned c = 0; c < n->cqs; c++) {
		ret = ibv_req_notify_cq(n->cq[c].cq, row->solicited && n->cq[c].receives);
		if (ret)
			fail("ibv_req_notify_cq: %s", strerror(ret));
	}
	if (node_poll(n) || node_done(n))
		return;
	if (poll(fds, 2, -1) < 0)
		fail("poll: %s", strerror(errno));
	if (!(fds[0].revents & POLLIN))
		return;
	if (ibv_get_cq_event(n->channel, &from, &context))
		fail("ibv_get_cq_event: %s", strerror(errno));
	cq = context;
	if (cq < n->cq || cq >= n->cq + n->cqs || cq->cq != from)
		fail("an event of another CQ than its context says");
	if (++cq->events == 8) {
		ibv_ack_cq_events(cq->cq, cq->events);
		cq->events = 0;
	}
}

/* ---- Rounds ---- */

/* As many receives as messages will come, and sometimes some more. */
static void prepare_receives(struct node *n)
{
	const struct world *w = n->w;

	for (unsigned i = 0; i < w->row->qps; i++) {
		struct vqp *q = &n->qp[i];
		const unsigned extra = rng_below(&n->rng, 3);

		for (unsigned from = 0; from < w->row->qps; from++)
			q->rq->owed += q->inbox[from].count;
		if (n->srq && i + 1 < w->row->qps)
			continue;
		q->rq->owed = q->rq->owed + extra > q->rq->posted ?
				      q->rq->owed + extra - q->rq->posted :
				      0;
		if (!w->row->late_receives) {
			rq_post(n, q, q->rq->owed);
			q->rq->owed = 0;
		}
	}
}

/* Nothing has come for so long that nothing will. Messages are still missing, but nobody promised that they come. */
static void give_up_lost(const struct world *w, struct timespec *since, bool any)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (any || !since->tv_sec)
		*since = now;
	else if ((now.tv_sec - since->tv_sec) * 1000 + (now.tv_nsec - since->tv_nsec) / 1000000 > LOST_MS && row_may_lose(w->row))
		fail_as(VERDICT_DROP, "messages got lost on the wire");
}

static void work(struct world *w)
{
	struct timespec since = {};
	unsigned idle = 0;
	bool done, any;

	do {
		done = true;
		any = false;
		for (unsigned i = 0; i < w->nodes; i++) {
			struct node *n = &w->node[i];

			if (!n->mine)
				continue;
			any |= node_progress(n);
			done &= node_done(n);
			if (!any && !done && w->row->events)
				node_sleep(n);
		}
		idle = any ? 0 : idle + 1;
		if (idle >= 64) {
			give_up_lost(w, &since, idle == 64);
			sched_yield();
			if (idle % 1024 == 0 && oob_peer_gone(w))
				fail_as(VERDICT_PEER, "the other process has gone");
		}
	} while (!done);
}

void rounds_run(struct world *w)
{
	while (w->ops_done < w->ops_wanted) {
		const unsigned left = w->ops_wanted - w->ops_done, most = w->row->round,
			       full = row_may_lose(w->row) && most > LOSSY_ROUND ? LOSSY_ROUND : most,
			       want = 1 + rng_below(&w->rng, full);

		alarm(w->timeout);
		/* Rounds of any length, but every third a full one. */
		w->round++;
		plan_round(w, w->round % 3 == 1 ? full : want < left ? want : left);
		for (unsigned i = 0; i < w->nodes; i++)
			if (w->node[i].mine)
				prepare_receives(&w->node[i]);
		oob_barrier(w);
		work(w);
		oob_barrier(w);
		for (unsigned i = 0; i < w->nodes; i++)
			if (w->node[i].mine)
				arena_compare(w, &w->node[i]);
		for (unsigned i = 0; i < w->nodes; i++)
			if (w->node[i].mine && node_poll(&w->node[i]))
				fail("node %u: more completions than operations", i);
		w->ops_done += w->ops;
	}
}

/* ---- When something went wrong ---- */

static void dump_qp(const struct world *w, const struct node *n, unsigned i)
{
	const struct vqp *q = &n->qp[i];
	unsigned missing = 0;

	fprintf(stderr,
		"  node %u QP %u (%#x): %u of %u posted, %u completed; %u receives posted, %u owed\n",
		n->id, i, n->hello.qpn[i], q->posted, q->count, q->completed,
		q->rq ? q->rq->posted : 0, q->rq ? q->rq->owed : 0);
	for (unsigned k = q->completed; k < q->posted && k < q->completed + 4; k++)
		op_print(w, q->sq[k]);
	for (unsigned from = 0; from < w->row->qps; from++) {
		const struct inbox *inbox = &q->inbox[from];

		missing += inbox->count - inbox->got;
		if (inbox->got < inbox->count) {
			fprintf(stderr, "   has %u of %u messages of the peer's QP %u; next:\n",
				inbox->got, inbox->count, from);
			op_print(w, inbox->op[inbox->got]);
		}
	}
	if (missing && w->row->type != IBV_QPT_RC)
		fprintf(stderr, "   if the peer's sends have completed, %u messages were DROPPED\n",
			missing);
}

void world_dump(const struct world *w)
{
	fprintf(stderr, "  round %u, %llu operations done before it, %u in it\n", w->round,
		(unsigned long long)w->ops_done, w->ops);
	for (unsigned i = 0; i < w->nodes; i++)
		for (unsigned qp = 0; qp < w->row->qps && w->node[i].mine; qp++)
			dump_qp(w, &w->node[i], qp);
}
