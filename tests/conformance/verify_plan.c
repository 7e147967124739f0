/* SPDX-License-Identifier: MIT */
/*
 * The plan of a round, carried out in the model of both memories.
 *
 * Both processes run this with the same random numbers. Each operation claims the bytes it touches;
 * a byte may be claimed twice only where the specification's ordering table makes the outcome
 * certain (may_overlap). So the model can carry out the operations one after the other, in the
 * order they were planned, before any of them is posted, and still be what both memories must hold
 * when the round is over.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "verify.h"

/* What an operation does to bytes. */
enum role {
	LOCAL_SOURCE,  /* SEND, WRITE */
	LOCAL_TARGET,  /* result of a READ or an atomic */
	REMOTE_SOURCE, /* READ */
	REMOTE_TARGET, /* WRITE */
	REMOTE_ATOMIC,
};

struct claim {
	unsigned node;
	size_t off, len;
	enum role role;
	struct op *op;
};

static const unsigned needs[] = {
	[LOCAL_SOURCE] = 0,
	[LOCAL_TARGET] = IBV_ACCESS_LOCAL_WRITE,
	[REMOTE_SOURCE] = IBV_ACCESS_REMOTE_READ,
	[REMOTE_TARGET] = IBV_ACCESS_REMOTE_WRITE,
	[REMOTE_ATOMIC] = IBV_ACCESS_REMOTE_ATOMIC,
};

static const char *const kind_name[] = { "SEND", "SEND_WITH_IMM", "WRITE",    "WRITE_WITH_IMM",
					 "READ", "CMP_SWP",	  "FETCH_ADD" };

/* ---- Claims ---- */

/*
 * Will the outcome be certain when op uses, in a role, bytes that an earlier operation of the round
 * claimed?
 */
static bool may_overlap(const struct claim *c, enum role role, const struct op *op)
{
	const bool ordered = c->op != op && c->op->node == op->node && c->op->qp == op->qp;
	const bool fenced = ordered && op->fence;

	switch (role) {
	case LOCAL_SOURCE:
		if (c->role == LOCAL_SOURCE || c->role == REMOTE_SOURCE)
			return true;
		return c->role == LOCAL_TARGET && fenced;
	case REMOTE_SOURCE:
		if (c->role == LOCAL_SOURCE || c->role == REMOTE_SOURCE)
			return true;
		return (c->role == REMOTE_TARGET && ordered) ||
		       (c->role == REMOTE_ATOMIC && fenced);
	case REMOTE_TARGET:
		if (c->role == REMOTE_TARGET)
			return ordered;
		return (c->role == REMOTE_SOURCE || c->role == REMOTE_ATOMIC) && fenced;
	case REMOTE_ATOMIC:
		if (c->role == REMOTE_TARGET || c->role == REMOTE_ATOMIC)
			return ordered;
		return c->role == REMOTE_SOURCE && fenced;
	case LOCAL_TARGET:
		return false;
	}
	return false;
}

static bool overlaps(const struct claim *c, unsigned node, size_t off, size_t len)
{
	return c->node == node && off < c->off + c->len && c->off < off + len;
}

static bool range_free(const struct world *w, unsigned node, size_t off, size_t len, enum role role,
		       const struct op *op, bool *untouched)
{
	*untouched = true;
	for (unsigned i = 0; i < w->claims; i++) {
		if (!overlaps(&w->claim[i], node, off, len))
			continue;
		*untouched = false;
		if (!may_overlap(&w->claim[i], role, op))
			return false;
	}
	return true;
}

/* An offset for len bytes: anywhere, or in a chaining row often where an earlier operation was. */
static size_t candidate(struct world *w, unsigned node, size_t len, enum role role)
{
	const struct arena *a = &w->node[node].arena;
	const struct claim *c;
	size_t off = a->data + rng_below(&w->rng, a->data_len - len - 8);

	if (w->row->chain && w->claims > 0 && rng_chance(&w->rng, 40)) {
		c = &w->claim[rng_below(&w->rng, w->claims)];
		if (c->node == node && c->len >= len)
			off = c->off + rng_below(&w->rng, c->len - len + 1);
	}
	/*
	 * The arena begins on a page, so that this aligns addresses too, whatever base names them.
	 */
	if (role == REMOTE_ATOMIC) {
		off &= ~(size_t)7;
		if (off < a->data)
			off += 8;
	}
	return off;
}

/* A memory region of the node that covers a range and grants what the role needs. */
static unsigned pick_mr(struct world *w, unsigned node, const struct piece *p, enum role role)
{
	const struct hello *h = &w->node[node].hello;
	unsigned mr = rng_below(&w->rng, h->mrs);

	for (unsigned i = 0; i < h->mrs; i++, mr = (mr + 1) % h->mrs)
		if (h->mr[mr].is_data && (h->mr[mr].access & needs[role]) == needs[role] &&
		    p->off >= h->mr[mr].off && p->off + p->len <= h->mr[mr].off + h->mr[mr].len)
			return mr;
	fail("no memory region for a planned range");
}

/*
 * Claims p->len bytes for op, or returns false. Some of what it will read gets new content first.
 */
static bool claim_piece(struct world *w, unsigned node, struct piece *p, enum role role,
			struct op *op)
{
	const bool reads = role == LOCAL_SOURCE || role == REMOTE_SOURCE;
	bool untouched;

	if (p->len == 0) {
		p->off = w->node[node].arena.data;
		p->mr = pick_mr(w, node, p, role);
		return true;
	}
	for (unsigned attempt = 0; attempt < 30; attempt++) {
		p->off = candidate(w, node, p->len, role);
		if (!range_free(w, node, p->off, p->len, role, op, &untouched))
			continue;
		if (w->claims == w->max_claims) {
			w->max_claims = 2 * w->max_claims + 256;
			w->claim = realloc(w->claim, w->max_claims * sizeof(*w->claim));
			if (!w->claim)
				fail("no memory for the plan");
		}
		p->mr = pick_mr(w, node, p, role);
		w->claim[w->claims++] = (struct claim){ node, p->off, p->len, role, op };
		if (reads && untouched && rng_chance(&w->rng, 50))
			arena_fill(&w->node[node], p->off, p->len, rng_next(&w->rng));
		return true;
	}
	return false;
}

/* Claims everything op touches, or nothing. */
static bool claim_op(struct world *w, struct op *op)
{
	const unsigned before = w->claims;
	enum role here = LOCAL_SOURCE, there = REMOTE_TARGET;

	if (op->kind == OP_READ || op_is_atomic(op->kind)) {
		here = LOCAL_TARGET;
		there = op->kind == OP_READ ? REMOTE_SOURCE : REMOTE_ATOMIC;
	}
	for (unsigned i = 0; i < op->pieces && !op->inl; i++)
		if (!claim_piece(w, op->node, &op->piece[i], here, op))
			goto undo;
	if (op->kind > OP_SEND_IMM && !claim_piece(w, op->dnode, &op->remote, there, op))
		goto undo;

	/* What this operation writes over is not to be looked for before it has come. */
	if (there != REMOTE_SOURCE && op->kind > OP_SEND_IMM)
		for (unsigned i = 0; i < before; i++)
			if (overlaps(&w->claim[i], op->dnode, op->remote.off, op->remote.len))
				w->claim[i].op->last_word = false;
	return true;
undo:
	w->claims = before;
	return false;
}

/* ---- Operations ---- */

static uint32_t pick_len(struct world *w, const struct op *op)
{
	static const uint32_t mtus[] = { 256, 512, 1024, 2048, 4096 };
	enum size_class size = w->row->size;
	uint32_t limit = w->max_len, len = 0;

	if (op_is_atomic(op->kind))
		return 8;
	if (op->inl && limit > w->max_inl)
		limit = w->max_inl;
	if (size == SIZE_ANY) {
		const unsigned percent = rng_below(&w->rng, 100);

		size = percent < 5  ? SIZE_ZERO :
		       percent < 45 ? SIZE_SMALL :
		       percent < 85 ? SIZE_MTU :
				      SIZE_LARGE;
	}
	switch (size) {
	case SIZE_ZERO:
		return 0;
	case SIZE_MTU:
		len = mtus[rng_below(&w->rng, 5)];
		if (!rng_chance(&w->rng, 50))
			len *= 1 + rng_below(&w->rng, 3);
		len += rng_below(&w->rng, 3) - 1;
		break;
	case SIZE_LARGE:
		/* As many of each order of magnitude. */
		len = 4096u << rng_below(&w->rng, 9);
		len = rng_chance(&w->rng, 20) ? len : len / 2 + rng_below(&w->rng, len);
		break;
	case SIZE_HUGE:
		len = (1u << 20) + rng_below(&w->rng, 7 << 20);
		break;
	default:
		len = 1 + rng_below(&w->rng, 64);
	}
	return len <= limit ? len : limit - rng_below(&w->rng, limit < 16 ? 1 : 3);
}

static void shape(struct world *w, struct op *op, uint32_t len)
{
	const struct row *row = w->row;

	op->len = len;
	op->pieces = row->sges == 1 || op_is_atomic(op->kind) ?
			     1 :
			     2 + rng_below(&w->rng, row->sges - 1);
	cut(&w->rng, len, op->piece, op->pieces);
	if (len == 0 && rng_chance(&w->rng, 50))
		op->pieces = 0;
	op->remote.len = len;
	op->no_remote = len == 0 && rng_chance(&w->rng, 50);
	/* Asked again, soft-RoCE of Linux 6.1 looks at the key of a READ of nothing. */
	if (op->kind == OP_READ && w->far)
		op->no_remote = false;
}

static enum verify_op pick_kind(struct world *w)
{
	enum verify_op kind;

	do
		kind = rng_below(&w->rng, OP_KINDS);
	while (!(w->row->ops & 1u << kind));
	return kind;
}

void op_payload(const struct world *w, const struct op *op, uint8_t *buf)
{
	const struct node *n = &w->node[op->node];

	if (op->inl)
		rng_fill(buf, op->len, op->inl_seed);
	else if (op->kind <= OP_WRITE_IMM)
		gather(buf, n->arena.model, op->piece, op->pieces, 0, op->len);
	else
		memcpy(buf, w->node[op->dnode].arena.model + op->remote.off, op->len);
}

/*
 * Carry op out in the model. SENDs arrive where the responder's receives say: receive_done does
 * those.
 */
static void op_apply(struct world *w, struct op *op)
{
	uint8_t *here = w->node[op->node].arena.model;
	uint8_t *there = w->node[op->dnode].arena.model + op->remote.off;
	uint64_t value;

	op_payload(w, op, w->payload);
	switch (op->kind) {
	case OP_SEND:
	case OP_SEND_IMM:
		break;
	case OP_WRITE:
	case OP_WRITE_IMM:
		memcpy(there, w->payload, op->len);
		break;
	case OP_CMP_SWP:
	case OP_FETCH_ADD:
		memcpy(&value, there, sizeof(value));
		if (op->kind == OP_FETCH_ADD) {
			value += op->add_or_compare;
		} else {
			if (rng_chance(&w->rng, 50))
				op->add_or_compare = value;
			value = value == op->add_or_compare ? op->swap : value;
		}
		memcpy(there, &value, sizeof(value));
		/* fall through */
	case OP_READ:
		scatter(here, op->piece, op->pieces, 0, w->payload, op->len);
		break;
	case OP_KINDS:
		break;
	}
}

/* Plan one operation of kind between a node's QP and its peer; false if there is no room left. */
static bool plan_op(struct world *w, unsigned node, unsigned qp, enum verify_op kind)
{
	const struct row *row = w->row;
	struct vqp *q = &w->node[node].qp[qp], *d;
	struct op *op = &w->op[w->ops];
	struct inbox *inbox;
	uint32_t len;

	*op = (struct op){
		.kind = kind, .node = node, .qp = qp, .dnode = q->peer, .dqp = qp, .index = q->count
	};
	if (row->type == IBV_QPT_UD)
		op->dqp = rng_below(&w->rng, row->qps);
	op->last_word = true;
	op->fence = row->chain && row->type == IBV_QPT_RC && rng_chance(&w->rng, 30);
	op->solicited = op_takes_receive(kind) && rng_chance(&w->rng, 10);
	op->signaled = (op->index + 1) % row->signal_every == 0;
	op->inl = kind <= OP_WRITE_IMM &&
		  (row->inl == INLINE_ALL || (row->inl == INLINE_SOME && rng_chance(&w->rng, 25)));
	op->inl_seed = rng_next(&w->rng);
	op->imm = rng_next(&w->rng);
	op->add_or_compare = rng_next(&w->rng);
	op->swap = rng_next(&w->rng);
	op->wr_id = rng_next(&w->rng) << 16 | op->index;
	len = pick_len(w, op);
	for (;;) {
		shape(w, op, len);
		if (claim_op(w, op))
			break;
		if (len < 16 || op_is_atomic(kind))
			return false;
		len /= 4;
	}
	w->ops++;
	q->sq[q->count++] = op;
	if (op_takes_receive(kind)) {
		d = &w->node[op->dnode].qp[op->dqp];
		inbox = &d->inbox[qp];
		inbox->op[inbox->count++] = op;
	}
	op_apply(w, op);
	return true;
}

static void clear(struct world *w)
{
	w->ops = 0;
	w->claims = 0;
	for (unsigned node = 0; node < w->nodes; node++)
		for (unsigned qp = 0; qp < w->row->qps; qp++) {
			struct vqp *q = &w->node[node].qp[qp];

			q->count = q->posted = q->completed = q->visible = 0;
			for (unsigned from = 0; from < w->row->qps; from++)
				q->inbox[from].count = q->inbox[from].got = 0;
		}
}

/* Nothing but a later message says that an unreliable WRITE has come. */
static void plan_last_message(struct world *w, unsigned node, unsigned qp)
{
	const struct vqp *q = &w->node[node].qp[qp];

	if (w->row->type == IBV_QPT_UC && q->count > 0 && q->sq[q->count - 1]->kind == OP_WRITE &&
	    !plan_op(w, node, qp, OP_SEND))
		fail("no room for the message that ends a round of WRITEs");
}

/* What a queue's last operation is marked with, so that its end is noticed. */
static void mark_last(struct world *w, struct vqp *q)
{
	if (q->count > 0)
		q->sq[q->count - 1]->signaled = true;
	for (unsigned from = 0; from < w->row->qps; from++)
		if (q->inbox[from].count > 0 && w->row->solicited)
			q->inbox[from].op[q->inbox[from].count - 1]->solicited = true;
}

void plan_round(struct world *w, unsigned ops)
{
	const struct row *row = w->row;

	clear(w);
	for (unsigned i = 0; i < ops; i++)
		if (!plan_op(w, rng_below(&w->rng, w->nodes), rng_below(&w->rng, row->qps),
			     pick_kind(w)))
			break;
	for (unsigned node = 0; node < w->nodes; node++)
		for (unsigned qp = 0; qp < row->qps; qp++)
			plan_last_message(w, node, qp);
	for (unsigned node = 0; node < w->nodes; node++)
		for (unsigned qp = 0; qp < row->qps; qp++)
			mark_last(w, &w->node[node].qp[qp]);
}

void op_print(const struct world *w, const struct op *op)
{
	fprintf(stderr, "    node %u QP %u WR %u: %s, %u bytes", op->node, op->qp, op->index,
		kind_name[op->kind], op->len);
	if (op->inl)
		fprintf(stderr, ", inline in %u", op->pieces);
	else
		fprintf(stderr, ", %u SGEs", op->pieces);
	if (op->pieces == 1 && !op->inl)
		fprintf(stderr, " at %#zx mr %u", op->piece[0].off, op->piece[0].mr);
	if (op->kind > OP_SEND_IMM)
		fprintf(stderr, ", remote %#zx mr %u", op->remote.off, op->remote.mr);
	fprintf(stderr, "%s%s%s wr_id %#llx", op->signaled ? ", signaled" : "",
		op->fence ? ", fence" : "", op->solicited ? ", solicited" : "",
		(unsigned long long)op->wr_id);
	if (w->row->type == IBV_QPT_UD)
		fprintf(stderr, ", to QP %u", op->dqp);
	fputc('\n', stderr);
}

void plan_print_touching(const struct world *w, unsigned node, size_t off)
{
	for (unsigned i = 0; i < w->claims; i++)
		if (overlaps(&w->claim[i], node, off, 1))
			op_print(w, w->claim[i].op);
}
