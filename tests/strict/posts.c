/* SPDX-License-Identifier: MIT */
/*
 * Posting: what is refused at once, with bad_wr at the first request that was not taken, and how
 * many requests the queues hold. Of a batch of the extended API all is posted or nothing.
 */
#include <string.h>

#include "strict.h"

enum {
	FIRST = 0x2000,
	PLACE = 0x3000,
	INBOX = 0x8000,
	GOOD = 16,
	DEPTH = 8,
	MAX_SGE = 3,
	INLINE = 64
};

static struct wr good(struct world *w, uint64_t id, unsigned flags)
{
	struct wr wr = send_wr(id, &w->ra, FIRST, GOOD);

	wr.flags = flags;
	wr.ah = 0;
	wr.qpn = w->b->qpn[0];
	wr.qkey = QKEY;
	return wr;
}

static struct wr good_write(struct world *w, uint64_t id, unsigned flags)
{
	struct wr wr = rdma_wr(id, IBV_WR_RDMA_WRITE, &w->ra, FIRST, GOOD, &w->rb, FIRST);

	wr.flags = flags;
	return wr;
}

static struct wr inbox(struct world *w, struct node *n, unsigned i)
{
	return recv_wr(100 + i, n == w->a ? &w->ra : &w->rb, INBOX + i * 0x400, 0x100);
}

static void post_inbox(struct world *w, struct node *n, unsigned from, unsigned count)
{
	struct wr in[LIST];

	for (unsigned i = 0; i < count; i++)
		in[i] = inbox(w, n, from + i);
	receive(n, 0, in, count);
}

/* Receive number i of B got a good send. */
static void arrived(struct world *w, enum ibv_qp_type type, unsigned i)
{
	uint32_t header = type == IBV_QPT_UD ? GRH_BYTES : 0;

	equal(completes(w->b, RECV_CQ, 100 + i, IBV_WC_SUCCESS).byte_len, GOOD + header);
	changes(w, w->b, INBOX + i * 0x400, header);
	changes_to(w, w->b, INBOX + i * 0x400 + header, GOOD, w->a, FIRST);
}

/* ---- A bad request in the middle of a list ---- */

struct refusal {
	const char *name;
	enum ibv_qp_type type;
	void (*spoil)(struct world *w, struct wr *wr);
	enum cause_code code;
	int64_t value, limit; /* -1: not told */
};

static void too_many_sges(struct world *w, struct wr *wr)
{
	(void)w;
	wr->sges = MAX_SGE + 1;
	for (int i = 1; i < wr->sges; i++)
		wr->sge[i] = wr->sge[0];
}

static void negative_sges(struct world *w, struct wr *wr)
{
	(void)w;
	wr->sges = -1;
}

static void inline_too_long(struct world *w, struct wr *wr)
{
	(void)w;
	wr->flags |= IBV_SEND_INLINE;
	wr->sge[0].length = INLINE + 1;
}

static void inline_too_long_in_pieces(struct world *w, struct wr *wr)
{
	inline_too_long(w, wr);
	wr->sges = 2;
	wr->sge[0].length = INLINE;
	wr->sge[1] = wr->sge[0];
	wr->sge[1].length = 1;
}

static void no_address(struct world *w, struct wr *wr)
{
	(void)w;
	wr->ah = -1;
}

static void as_op(struct world *w, struct wr *wr, enum ibv_wr_opcode op)
{
	*wr = rdma_wr(2, op, &w->ra, PLACE, 8, &w->rb, PLACE);
	wr->ah = 0;
	wr->qpn = w->b->qpn[0];
	wr->qkey = QKEY;
}

#define AS_OP(name, op)                                  \
	static void name(struct world *w, struct wr *wr) \
	{                                                \
		as_op(w, wr, op);                        \
	}

AS_OP(write, IBV_WR_RDMA_WRITE)
AS_OP(write_imm, IBV_WR_RDMA_WRITE_WITH_IMM)
AS_OP(read, IBV_WR_RDMA_READ)
AS_OP(cmp_swp, IBV_WR_ATOMIC_CMP_AND_SWP)
AS_OP(fetch_add, IBV_WR_ATOMIC_FETCH_AND_ADD)
AS_OP(local_inv, IBV_WR_LOCAL_INV)
AS_OP(send_inv, IBV_WR_SEND_WITH_INV)
AS_OP(bind_mw, IBV_WR_BIND_MW)
AS_OP(tso, IBV_WR_TSO)
AS_OP(nonsense, (enum ibv_wr_opcode)99)

static void bind_nothing(struct world *w, struct wr *wr)
{
	bind_mw(w, wr);
	wr->bind.window = -1;
}

static void inline_read(struct world *w, struct wr *wr)
{
	read(w, wr);
	wr->flags |= IBV_SEND_INLINE;
}

static void inline_atomic(struct world *w, struct wr *wr)
{
	fetch_add(w, wr);
	wr->flags |= IBV_SEND_INLINE;
}

#define OPCODE(name, type, spoil)                            \
	{                                                    \
		name, type, spoil, CAUSE_POST_OPCODE, -1, -1 \
	}

static const struct refusal refusals[] = {
	{ "rc/too-many-sges", IBV_QPT_RC, too_many_sges, CAUSE_POST_SGES, MAX_SGE + 1, MAX_SGE },
	{ "uc/too-many-sges", IBV_QPT_UC, too_many_sges, CAUSE_POST_SGES, MAX_SGE + 1, MAX_SGE },
	{ "ud/too-many-sges", IBV_QPT_UD, too_many_sges, CAUSE_POST_SGES, MAX_SGE + 1, MAX_SGE },
	{ "rc/negative-number-of-sges", IBV_QPT_RC, negative_sges, CAUSE_POST_SGES, -1, MAX_SGE },
	{ "rc/inline-too-long", IBV_QPT_RC, inline_too_long, CAUSE_POST_INLINE, INLINE + 1,
	  INLINE },
	{ "ud/inline-too-long", IBV_QPT_UD, inline_too_long, CAUSE_POST_INLINE, INLINE + 1,
	  INLINE },
	{ "rc/inline-too-long-in-pieces", IBV_QPT_RC, inline_too_long_in_pieces, CAUSE_POST_INLINE,
	  INLINE + 1, INLINE },
	{ "rc/inline-read", IBV_QPT_RC, inline_read, CAUSE_POST_FLAGS, -1, -1 },
	{ "rc/inline-atomic", IBV_QPT_RC, inline_atomic, CAUSE_POST_FLAGS, -1, -1 },
	{ "ud/no-address-handle", IBV_QPT_UD, no_address, CAUSE_POST_NO_AH, -1, -1 },
	{ "rc/bind-no-window", IBV_QPT_RC, bind_nothing, CAUSE_POST_BIND, -1, -1 },
	OPCODE("uc/send-with-invalidate", IBV_QPT_UC, send_inv),
	OPCODE("ud/send-with-invalidate", IBV_QPT_UD, send_inv),
	OPCODE("ud/local-invalidate", IBV_QPT_UD, local_inv),
	OPCODE("ud/bind-mw", IBV_QPT_UD, bind_mw),
	OPCODE("rc/tso", IBV_QPT_RC, tso),
	OPCODE("rc/unknown-opcode", IBV_QPT_RC, nonsense),
	OPCODE("uc/read", IBV_QPT_UC, read),
	OPCODE("uc/cmp-swp", IBV_QPT_UC, cmp_swp),
	OPCODE("uc/fetch-add", IBV_QPT_UC, fetch_add),
	OPCODE("uc/unknown-opcode", IBV_QPT_UC, nonsense),
	OPCODE("ud/write", IBV_QPT_UD, write),
	OPCODE("ud/write-imm", IBV_QPT_UD, write_imm),
	OPCODE("ud/read", IBV_QPT_UD, read),
	OPCODE("ud/cmp-swp", IBV_QPT_UD, cmp_swp),
	OPCODE("ud/fetch-add", IBV_QPT_UD, fetch_add),
	OPCODE("ud/unknown-opcode", IBV_QPT_UD, nonsense),
};

static void run_refusal(struct world *w, const void *arg)
{
	const struct refusal *r = arg;
	struct wr out[3];
	struct cause c;
	unsigned next = 0;
	int bad;

	make_pair(w, r->type);
	post_inbox(w, w->b, 0, 3);
	for (unsigned i = 0; i < 3; i++)
		out[i] = good(w, 1 + i, IBV_SEND_SIGNALED);
	r->spoil(w, &out[1]);
	equal(post_list(w->a, 0, out, 3, &bad), EINVAL);
	c = refused_with(w->a, r->code, EINVAL);
	equal(c.qpn, w->a->qpn[0]);
	equal(c.wr_id, 2);
	if (r->limit >= 0) {
		equal(c.wr_index, 1);
		equal((int32_t)c.value, r->value == -1 ? -1 : r->value);
		equal(c.limit, r->limit);
	}
	if (!w->extended) {
		/* What stands before it is posted. */
		equal(bad, 1);
		completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
		arrived(w, r->type, next++);
	}
	silent(w->a, SEND_CQ);
	silent(w->b, RECV_CQ);
	/* Nothing has happened to the queue. */
	equal(state_of(w->a, 0), IBV_QPS_RTS);
	out[0].id = 4;
	post(w->a, 0, out, 1);
	completes(w->a, SEND_CQ, 4, IBV_WC_SUCCESS);
	arrived(w, r->type, next);
}

static void receives_of_too_many_sges(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	bool srq = *(const bool *)arg;
	struct wr in[3];
	struct cause c;
	int bad;

	if (srq) {
		other.srq = 0;
		equal(make_srq(w->b, 0, 0, DEPTH, MAX_SGE), 0);
	}
	make_pair_with(w, &want, &other, NULL, NULL);
	for (unsigned sges = 0; sges < 2; sges++) {
		for (unsigned i = 0; i < 3; i++)
			in[i] = inbox(w, w->b, i);
		if (sges)
			too_many_sges(w, &in[1]);
		else
			negative_sges(w, &in[1]);
		equal(srq ? post_srq(w->b, 0, in, 3, &bad) : post_receives(w->b, 0, in, 3, &bad),
		      EINVAL);
		equal(bad, 1);
		c = refused_with(w->b, CAUSE_POST_SGES, EINVAL);
		equal(c.wr_index, 1);
		equal(c.wr_id, 101);
		equal(c.limit, MAX_SGE);
	}
	/* Each time the first was taken. */
	for (unsigned i = 0; i < 2; i++)
		in[i] = good(w, 1 + i, IBV_SEND_SIGNALED);
	post(w->a, 0, in, 2);
	for (unsigned i = 0; i < 2; i++) {
		completes(w->a, SEND_CQ, 1 + i, IBV_WC_SUCCESS);
		arrived(w, IBV_QPT_RC, 0);
	}
}

static void receive_on_a_qp_with_an_srq_is_refused(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct wr in = inbox(w, w->b, 0);
	int bad;

	(void)arg;
	other.srq = 0;
	equal(make_srq(w->b, 0, 0, DEPTH, MAX_SGE), 0);
	make_pair_with(w, &want, &other, NULL, NULL);
	equal(post_receives(w->b, 0, &in, 1, &bad), EINVAL);
	equal(bad, 0);
	refused_with(w->b, CAUSE_POST_ON_SRQ_QP, EINVAL);
}

/* ---- Full queues ---- */

static void full_sq(struct world *w, const void *arg)
{
	struct wr out[LIST];
	struct cause c;
	unsigned taken = 6;
	int bad;

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	for (unsigned i = 0; i < LIST; i++)
		out[i] = good_write(w, 1 + i, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 6);
	equal(post_list(w->a, 0, out + 4, 4, &bad), ENOMEM);
	c = refused_with(w->a, CAUSE_SQ_FULL, ENOMEM);
	equal(c.limit, DEPTH);
	equal(c.wr_index, 2);
	equal(c.wr_id, 7);
	if (!w->extended) {
		equal(bad, 2);
		taken = 8;
	}
	for (unsigned i = 0; i < 6; i++)
		completes(w->a, SEND_CQ, 1 + i, IBV_WC_SUCCESS);
	for (unsigned i = 6; i < taken; i++)
		completes(w->a, SEND_CQ, i - 1, IBV_WC_SUCCESS);
	silent(w->a, SEND_CQ);
	/* Polled, they are free again: all of them. */
	post(w->a, 0, out, 8);
	for (unsigned i = 0; i < 8; i++)
		completes(w->a, SEND_CQ, 1 + i, IBV_WC_SUCCESS);
	changes_to(w, w->b, FIRST, GOOD, w->a, FIRST);
}

/* Executed is not free: the slots come back when the completion is polled, one by one. */
static void sq_slots_come_back_by_polling(struct world *w, const void *arg)
{
	struct wr out[LIST];

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	for (unsigned i = 0; i < LIST; i++) {
		out[i] = good_write(w, 1 + i, IBV_SEND_SIGNALED);
		out[i].remote += i * GOOD;
	}
	post(w->a, 0, out, 8);
	changes_to(w, w->b, FIRST, 8 * GOOD, w->a, FIRST);
	for (unsigned i = 0; i < 8; i++)
		changes_to(w, w->b, FIRST + i * GOOD, GOOD, w->a, FIRST);
	while (!has_content(w->b, addr_of(w->b, FIRST + 7 * GOOD), GOOD, w->a, FIRST))
		pause_ms(1);
	equal(post_list(w->a, 0, out, 1, NULL), ENOMEM);
	refused_with(w->a, CAUSE_SQ_FULL, ENOMEM);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	post(w->a, 0, out, 1);
	equal(post_list(w->a, 0, out, 1, NULL), ENOMEM);
	for (unsigned i = 1; i < 8; i++)
		completes(w->a, SEND_CQ, 1 + i, IBV_WC_SUCCESS);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
}

static void sq_slots_of_unsignaled_come_back_by_a_later_signaled(struct world *w, const void *arg)
{
	struct wr out[LIST];

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	for (unsigned i = 0; i < LIST; i++)
		out[i] = good_write(w, 1 + i, i == 4 ? IBV_SEND_SIGNALED : 0);
	out[7].remote += GOOD;
	post(w->a, 0, out, 8);
	changes_to(w, w->b, FIRST, GOOD, w->a, FIRST);
	changes_to(w, w->b, FIRST + GOOD, GOOD, w->a, FIRST);
	while (!has_content(w->b, addr_of(w->b, FIRST + GOOD), GOOD, w->a, FIRST))
		pause_ms(1);
	equal(post_list(w->a, 0, out, 1, NULL), ENOMEM);
	completes(w->a, SEND_CQ, 5, IBV_WC_SUCCESS);
	silent(w->a, SEND_CQ);
	/* Five are back, the three behind it are not. */
	equal(post_list(w->a, 0, out, 6, NULL), ENOMEM);
	equal(refused_with(w->a, CAUSE_SQ_FULL, ENOMEM).wr_index, 5);
	if (w->extended)
		post(w->a, 0, out, 5);
	completes(w->a, SEND_CQ, 5, IBV_WC_SUCCESS);
}

static void unsignaled_only_fill_the_sq_for_ever(struct world *w, const void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct wr out[LIST];

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	for (unsigned i = 0; i < LIST; i++)
		out[i] = good_write(w, 1 + i, 0);
	out[7].remote += GOOD;
	post(w->a, 0, out, 8);
	changes_to(w, w->b, FIRST, GOOD, w->a, FIRST);
	changes_to(w, w->b, FIRST + GOOD, GOOD, w->a, FIRST);
	while (!has_content(w->b, addr_of(w->b, FIRST + GOOD), GOOD, w->a, FIRST))
		pause_ms(1);
	silent(w->a, SEND_CQ);
	equal(post_list(w->a, 0, out, 1, NULL), ENOMEM);
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	equal(post_list(w->a, 0, out, 1, NULL), ENOMEM);
	/* A new life begins with all slots. */
	attr.qp_state = IBV_QPS_RESET;
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	silent(w->a, SEND_CQ);
}

static void full_rq(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	bool srq = *(const bool *)arg;
	struct wr in[LIST], out[LIST];
	struct cause c;
	int bad;

	if (srq) {
		other.srq = 0;
		equal(make_srq(w->b, 0, 0, DEPTH, MAX_SGE), 0);
	}
	make_pair_with(w, &want, &other, NULL, NULL);
	for (unsigned i = 0; i < LIST; i++) {
		in[i] = inbox(w, w->b, i);
		out[i] = good(w, 1 + i, IBV_SEND_SIGNALED);
	}
#define POST(from, count)                                    \
	(srq ? post_srq(w->b, 0, in + (from), count, &bad) : \
	       post_receives(w->b, 0, in + (from), count, &bad))
	equal(POST(0, 6), 0);
	equal(POST(4, 4), ENOMEM);
	equal(bad, 2);
	c = refused_with(w->b, srq ? CAUSE_SRQ_FULL : CAUSE_RQ_FULL, ENOMEM);
	equal(c.limit, DEPTH);
	equal(c.wr_index, 2);
	equal(c.wr_id, 106);
	/* Received is not free: a slot comes back when its completion is polled. */
	post(w->a, 0, out, 8);
	for (unsigned i = 0; i < 8; i++)
		completes(w->a, SEND_CQ, 1 + i, IBV_WC_SUCCESS);
	equal(POST(0, 1), ENOMEM);
	equal(bad, 0);
	arrived(w, IBV_QPT_RC, 0);
	equal(POST(0, 2), ENOMEM);
	equal(bad, 1);
	for (unsigned i = 1; i < 6; i++)
		arrived(w, IBV_QPT_RC, i);
	arrived(w, IBV_QPT_RC, 4);
	arrived(w, IBV_QPT_RC, 5);
	silent(w->b, RECV_CQ);
#undef POST
}

static void queues_of_no_depth_take_nothing(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct wr in = inbox(w, w->a, 0), out = good(w, 1, IBV_SEND_SIGNALED);
	int bad;

	(void)arg;
	memset(&want.cap, 0, sizeof(want.cap));
	make_pair_with(w, &want, &other, NULL, NULL);
	in.sges = out.sges = 0;
	equal(post_list(w->a, 0, &out, 1, &bad), ENOMEM);
	equal(refused_with(w->a, CAUSE_SQ_FULL, ENOMEM).limit, 0);
	equal(post_receives(w->a, 0, &in, 1, &bad), ENOMEM);
	equal(bad, 0);
	equal(refused_with(w->a, CAUSE_RQ_FULL, ENOMEM).limit, 0);
}

/* ---- States that do not take requests ---- */

static const struct {
	enum ibv_qp_type type;
	const char *name;
} types[] = { { IBV_QPT_RC, "rc" }, { IBV_QPT_UC, "uc" }, { IBV_QPT_UD, "ud" } };

static void refuse_send(struct world *w, enum ibv_qp_state state)
{
	struct wr out[2] = { good(w, 1, IBV_SEND_SIGNALED), good(w, 2, IBV_SEND_SIGNALED) };
	struct cause c;
	int bad;

	equal(post_list(w->a, 0, out, 2, &bad), EINVAL);
	if (!w->extended)
		equal(bad, 0);
	c = refused_with(w->a, CAUSE_POST_STATE, EINVAL);
	equal(c.qpn, w->a->qpn[0]);
	equal(c.state, state);
	equal(c.wr_id, 1);
}

static void posting_before_rts(struct world *w, const void *arg)
{
	const enum ibv_qp_type type = *(const enum ibv_qp_type *)arg;
	struct qp_want want = qp_default(type), other = want;
	struct wr in = inbox(w, w->a, 0), out;
	struct side a, b;
	int bad;

	equal(make_qp(w->a, 0, &want), 0);
	equal(make_qp(w->b, 0, &other), 0);
	equal(make_ah(w->a, 0, 0, &w->b->gid), 0);
	equal(make_ah(w->b, 0, 0, &w->a->gid), 0);
	a = side_default(w->a, 0, type, w->b, 0);
	b = side_default(w->b, 0, type, w->a, 0);
	bring_up(&b);

	refuse_send(w, IBV_QPS_RESET);
	equal(post_receives(w->a, 0, &in, 1, &bad), EINVAL);
	equal(bad, 0);
	equal(refused_with(w->a, CAUSE_POST_STATE, EINVAL).state, IBV_QPS_RESET);
	equal(to_init(&a), 0);
	refuse_send(w, IBV_QPS_INIT);
	receive(w->a, 0, &in, 1);
	equal(to_rtr(&a), 0);
	refuse_send(w, IBV_QPS_RTR);
	in = inbox(w, w->a, 1);
	receive(w->a, 0, &in, 1);
	/* What was posted in INIT and RTR serves, already in RTR. */
	out = send_wr(1, &w->rb, FIRST, GOOD);
	out.ah = 0;
	out.qpn = w->a->qpn[0];
	out.qkey = QKEY;
	post(w->b, 0, &out, 1);
	completes(w->b, SEND_CQ, 1, IBV_WC_SUCCESS);
	completes(w->a, RECV_CQ, 100, IBV_WC_SUCCESS);
	changes(w, w->a, INBOX, GRH_BYTES + GOOD);
	raises(w->a, IBV_EVENT_COMM_EST, 0);
	equal(state_of(w->a, 0), IBV_QPS_RTR);
	equal(to_rts(&a), 0);
	silent(w->a, SEND_CQ);
	post_inbox(w, w->b, 0, 1);
	out = good(w, 2, IBV_SEND_SIGNALED);
	post(w->a, 0, &out, 1);
	completes(w->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	arrived(w, type, 0);
}

static void posting_in_the_error_state_is_flushed(struct world *w, const void *arg)
{
	const enum ibv_qp_type type = *(const enum ibv_qp_type *)arg;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct wr out[2];

	make_pair(w, type);
	post_inbox(w, w->a, 0, 2);
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	completes(w->a, RECV_CQ, 100, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, RECV_CQ, 101, IBV_WC_WR_FLUSH_ERR);
	/* Unsignaled ones too. */
	out[0] = good(w, 1, 0);
	out[1] = good(w, 2, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 2);
	post_inbox(w, w->a, 2, 2);
	completes(w->a, SEND_CQ, 1, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, SEND_CQ, 2, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, RECV_CQ, 102, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, RECV_CQ, 103, IBV_WC_WR_FLUSH_ERR);
	silent(w->a, SEND_CQ);
	silent(w->a, RECV_CQ);
}

static void posting_while_drained_waits(struct world *w, const void *arg)
{
	const enum ibv_qp_type type = *(const enum ibv_qp_type *)arg;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct wr out;

	make_pair(w, type);
	post_inbox(w, w->b, 0, 2);
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	raises(w->a, IBV_EVENT_SQ_DRAINED, 0);
	out = good(w, 1, IBV_SEND_SIGNALED);
	post(w->a, 0, &out, 1);
	silent(w->a, SEND_CQ);
	silent(w->b, RECV_CQ);
	equal(state_of(w->a, 0), IBV_QPS_SQD);
	attr.qp_state = IBV_QPS_RTS;
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	arrived(w, type, 0);
}

/* ---- What is found when it is executed ---- */

struct late_fault {
	const char *name;
	void (*spoil)(struct world *w, struct wr *wr);
	enum ibv_wc_status status;
	enum cause_code code;
	bool responder; /* it is the responder's finding */
	uint8_t depth;
};

static void misaligned(struct world *w, struct wr *wr)
{
	fetch_add(w, wr);
	wr->remote += 4;
}

static void misaligned_cmp_swp(struct world *w, struct wr *wr)
{
	cmp_swp(w, wr);
	wr->remote += 1;
}

static void short_atomic(struct world *w, struct wr *wr)
{
	fetch_add(w, wr);
	wr->sge[0].length = 4;
}

static void long_atomic(struct world *w, struct wr *wr)
{
	cmp_swp(w, wr);
	wr->sge[0].length = 16;
}

static void atomic_without_sge(struct world *w, struct wr *wr)
{
	fetch_add(w, wr);
	wr->sges = 0;
}

static void longer_than_any_message(struct world *w, struct wr *wr)
{
	write(w, wr);
	wr->sges = 2;
	wr->sge[0].length = 0x7fffffff;
	wr->sge[1] = wr->sge[0];
	wr->sge[1].length = 2;
}

static const struct late_fault late_faults[] = {
	{ "misaligned-fetch-add", misaligned, IBV_WC_REM_INV_REQ_ERR, CAUSE_ATOMIC_ALIGNMENT, true,
	  4 },
	{ "misaligned-cmp-swp", misaligned_cmp_swp, IBV_WC_REM_INV_REQ_ERR, CAUSE_ATOMIC_ALIGNMENT,
	  true, 4 },
	{ "atomic-into-4-bytes", short_atomic, IBV_WC_LOC_LEN_ERR, CAUSE_ATOMIC_LENGTH, false, 4 },
	{ "atomic-into-16-bytes", long_atomic, IBV_WC_LOC_LEN_ERR, CAUSE_ATOMIC_LENGTH, false, 4 },
	{ "atomic-without-sge", atomic_without_sge, IBV_WC_LOC_LEN_ERR, CAUSE_ATOMIC_LENGTH, false,
	  4 },
	{ "message-above-2-gib", longer_than_any_message, IBV_WC_LOC_LEN_ERR,
	  CAUSE_MESSAGE_TOO_LONG, false, 4 },
	{ "read-without-initiator-depth", read, IBV_WC_LOC_QP_OP_ERR, CAUSE_NO_INITIATOR_DEPTH,
	  false, 0 },
	{ "atomic-without-initiator-depth", fetch_add, IBV_WC_LOC_QP_OP_ERR,
	  CAUSE_NO_INITIATOR_DEPTH, false, 0 },
};

static void run_late_fault(struct world *w, const void *arg)
{
	const struct late_fault *f = arg;
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct side side = side_default(w->a, 0, IBV_QPT_RC, w->b, 0);
	struct wr out[4];
	struct cause c;

	side.depth = f->depth;
	make_pair_with(w, &want, &other, &side, NULL);
	post_inbox(w, w->b, 0, 3);
	post_inbox(w, w->a, 0, 2);
	out[0] = good(w, 1, IBV_SEND_SIGNALED);
	out[1] = good(w, 2, 0);
	f->spoil(w, &out[1]);
	out[2] = good(w, 3, 0);
	out[3] = good(w, 4, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 4);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	arrived(w, IBV_QPT_RC, 0);
	says(completes(w->a, SEND_CQ, 2, f->status), f->code);
	completes(w->a, SEND_CQ, 3, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, SEND_CQ, 4, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, RECV_CQ, 100, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, RECV_CQ, 101, IBV_WC_WR_FLUSH_ERR);
	equal(state_of(w->a, 0), IBV_QPS_ERR);
	c = cause_of(w->a, f->code);
	equal(c.wr_id, 2);
	equal(c.wr_index, 1);
	equal(c.error, f->status);
	if (!f->responder) {
		silent(w->b, RECV_CQ);
		equal(state_of(w->b, 0), IBV_QPS_RTS);
		return;
	}
	equal(c.addr, out[1].remote);
	/* Misaligned atomics are access violations in the table of events (11.6.3.2), though the
	 * NAK says otherwise. */
	raises(w->b, IBV_EVENT_QP_ACCESS_ERR, 0);
	equal(state_of(w->b, 0), IBV_QPS_ERR);
	completes(w->b, RECV_CQ, 101, IBV_WC_WR_FLUSH_ERR);
	completes(w->b, RECV_CQ, 102, IBV_WC_WR_FLUSH_ERR);
}

/* A fenced request begins when the READs and atomics before it have brought their data. */
static void fenced_send_sends_what_was_read(struct world *w, const void *arg)
{
	struct wr out[3];

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	for (unsigned round = 0; round < 8; round++) {
		const uint32_t from = 0x10000 + round * 0x1000, to = INBOX + round * 0x400;

		post_inbox(w, w->b, round, 1);
		out[0] = rdma_wr(1, IBV_WR_RDMA_READ, &w->ra, PLACE, 0x100, &w->rb, from);
		out[0].flags = 0;
		out[1] = rdma_wr(2, IBV_WR_ATOMIC_FETCH_AND_ADD, &w->ra, PLACE, 8, &w->rb, from);
		out[1].flags = 0;
		out[2] = send_wr(3, &w->ra, PLACE, 0x100);
		out[2].flags |= IBV_SEND_FENCE;
		post(w->a, 0, out, 3);
		completes(w->a, SEND_CQ, 3, IBV_WC_SUCCESS);
		completes(w->b, RECV_CQ, 100 + round, IBV_WC_SUCCESS);
		changes_to(w, w->a, PLACE, 0x100, w->b, from);
		changes_to(w, w->b, to, 0x100, w->b, from);
	}
}

/* Extended API: operations that were not asked for when the QP was made. */
static void operations_not_asked_for_are_refused(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct wr out = good(w, 1, IBV_SEND_SIGNALED);

	(void)arg;
	want.no_operations = true;
	make_pair_with(w, &want, &other, NULL, NULL);
	post_inbox(w, w->b, 0, 1);
	if (!w->extended) {
		post(w->a, 0, &out, 1);
		completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
		arrived(w, IBV_QPT_RC, 0);
		return;
	}
	equal(post_list(w->a, 0, &out, 1, NULL), EINVAL);
	refused_with(w->a, CAUSE_POST_OPCODE, EINVAL);
	silent(w->a, SEND_CQ);
	silent(w->b, RECV_CQ);
}

void add_posts(void)
{
	static const bool no = false, yes = true;

	for (unsigned i = 0; i < sizeof(refusals) / sizeof(*refusals); i++)
		add_case("posts", run_refusal, &refusals[i], "refused/%s", refusals[i].name);
	add_case("posts", receives_of_too_many_sges, &no, "refused/rq/too-many-sges");
	add_case("posts", receives_of_too_many_sges, &yes, "refused/srq/too-many-sges");
	add_case("posts", receive_on_a_qp_with_an_srq_is_refused, NULL, "refused/rq/qp-has-an-srq");
	add_case("posts", operations_not_asked_for_are_refused, NULL,
		 "refused/rc/operations-not-asked-for");
	add_case("posts", full_sq, NULL, "sq/full-in-the-middle-of-a-list");
	add_case("posts", sq_slots_come_back_by_polling, NULL, "sq/slots-come-back-by-polling");
	add_case("posts", sq_slots_of_unsignaled_come_back_by_a_later_signaled, NULL,
		 "sq/slots-of-unsignaled-come-back-by-a-later-signaled");
	add_case("posts", unsignaled_only_fill_the_sq_for_ever, NULL,
		 "sq/unsignaled-only-fill-it-for-ever");
	add_case("posts", full_rq, &no, "rq/full-and-not-polled");
	add_case("posts", full_rq, &yes, "srq/full-and-not-polled");
	add_case("posts", queues_of_no_depth_take_nothing, NULL, "queues-of-no-depth-take-nothing");
	for (unsigned i = 0; i < sizeof(types) / sizeof(*types); i++) {
		add_case("posts", posting_before_rts, &types[i].type, "%s/before-rts",
			 types[i].name);
		add_case("posts", posting_in_the_error_state_is_flushed, &types[i].type,
			 "%s/flushed-in-the-error-state", types[i].name);
		add_case("posts", posting_while_drained_waits, &types[i].type, "%s/waits-in-sqd",
			 types[i].name);
	}
	for (unsigned i = 0; i < sizeof(late_faults) / sizeof(*late_faults); i++)
		add_case("posts", run_late_fault, &late_faults[i], "executed/%s",
			 late_faults[i].name);
	add_case("posts", fenced_send_sends_what_was_read, NULL, "fenced-send-sends-what-was-read");
}
