/* SPDX-License-Identifier: MIT */
/*
 * Two QPs that do not fit: what is sent finds silence, which RC takes for a lost packet until its
 * retries are used up and UC does not notice. Also what a QP may be made of, and that RESET begins
 * a life without the last one's rest.
 */
#include <arpa/inet.h>
#include <string.h>

#include "strict.h"

enum { FIRST = 0x2000, PLACE = 0x3000, INBOX = 0x8000, GOOD = 16 };

/* A timer that ends soon: 4.096 us << 11 = 8 ms; three attempts. */
enum { TIMEOUT = 11, RETRIES = 2 };

static struct wr good(struct world *w, uint64_t id, unsigned flags)
{
	struct wr wr = send_wr(id, &w->ra, FIRST, GOOD);

	wr.flags = flags;
	wr.ah = 0;
	wr.qpn = w->b->qpn[0];
	wr.qkey = QKEY;
	return wr;
}

static void post_inbox(struct world *w, struct node *n, unsigned from, unsigned count)
{
	struct wr in[LIST];

	for (unsigned i = 0; i < count; i++)
		in[i] = recv_wr(100 + from + i, n == w->a ? &w->ra : &w->rb,
				INBOX + (from + i) * 0x1000, 0x1000);
	receive(n, 0, in, count);
}

/* ---- Silence ---- */

struct silence {
	const char *name;
	/* Spoils one of the sides before they are brought up. */
	void (*spoil)(struct world *w, struct side *a, struct side *b);
	enum ibv_qp_state b_state;
	enum cause_code code;
	enum { AS_USUAL, RC_ONLY, B_GOES, B_IS_OTHER_TYPE } odd;
};

static void nothing(struct world *w, struct side *a, struct side *b)
{
	(void)w;
	(void)a;
	(void)b;
}

static void not_connected_back(struct world *w, struct side *a, struct side *b)
{
	(void)a;
	b->dest_qpn = w->a->qpn[BYSTANDER];
}

static void connected_to_itself(struct world *w, struct side *a, struct side *b)
{
	(void)a;
	b->dest_qpn = w->b->qpn[0];
}

/* The bystander is connected to another QP than ours. Over the wire only PSNs tell the two apart. */
static void to_one_who_has_another(struct world *w, struct side *a, struct side *b)
{
	(void)b;
	a->sq_psn = (a->sq_psn - 1000) & 0xffffff;
	a->dest_qpn = w->b->qpn[BYSTANDER];
}

static void psn_ahead(struct world *w, struct side *a, struct side *b)
{
	(void)w;
	(void)b;
	a->sq_psn = (a->sq_psn + 1) & 0xffffff;
}

static void psn_behind(struct world *w, struct side *a, struct side *b)
{
	(void)w;
	(void)a;
	/* By more than what is sent: what was sent before the first is a duplicate, and duplicates are acknowledged over the wire
	 * (specification 9.7.5.1.2), so that of PSNs that differ by one a message is taken for delivered. */
	b->rq_psn = (b->rq_psn + 100) & 0xffffff;
}

static void other_gid(struct world *w, struct side *a, struct side *b)
{
	(void)w;
	(void)a;
	b->dgid.raw[15] ^= 1;
}

static void foreign_host(struct world *w, struct side *a, struct side *b)
{
	/* Where nothing is sent without being asked for expressly: no packet leaves, on whatever network this runs. */
	const uint32_t address = INADDR_BROADCAST;

	(void)w;
	(void)b;
	memset(&a->dgid, 0, 10);
	memset(&a->dgid.raw[10], 0xff, 2);
	memcpy(&a->dgid.raw[12], &address, 4);
}

static void nobody(struct world *w, struct side *a, struct side *b)
{
	(void)w;
	(void)b;
	a->dest_qpn = QPN_OF_NO_PROCESS;
}

static void unmade(struct world *w, struct side *a, struct side *b)
{
	(void)b;
	a->dest_qpn = w->b->qpn[0] + 1000;
}

static const struct silence silences[] = {
	{ "not-connected-back", not_connected_back, IBV_QPS_RTS, CAUSE_PEER_NOT_CONNECTED,
	  AS_USUAL },
	{ "peer-connected-to-itself", connected_to_itself, IBV_QPS_RTS, CAUSE_PEER_NOT_CONNECTED,
	  AS_USUAL },
	{ "peer-of-another", to_one_who_has_another, IBV_QPS_RTS, CAUSE_PEER_NOT_CONNECTED,
	  RC_ONLY },
	{ "psn-ahead", psn_ahead, IBV_QPS_RTS, CAUSE_PSN_MISMATCH, RC_ONLY },
	{ "psn-behind", psn_behind, IBV_QPS_RTS, CAUSE_PSN_MISMATCH, RC_ONLY },
	{ "gids-that-disagree", other_gid, IBV_QPS_RTS, CAUSE_PEER_GID, AS_USUAL },
	{ "gid-of-another-host", foreign_host, IBV_QPS_RTS, CAUSE_WIRE_UNREACHABLE, AS_USUAL },
	{ "qpn-of-no-process", nobody, IBV_QPS_RTS, CAUSE_PEER_ABSENT, AS_USUAL },
	{ "qpn-that-was-never-made", unmade, IBV_QPS_RTS, CAUSE_PEER_QP_UNKNOWN, AS_USUAL },
	{ "peer-in-reset", nothing, IBV_QPS_RESET, CAUSE_PEER_QP_STATE, AS_USUAL },
	{ "peer-in-init", nothing, IBV_QPS_INIT, CAUSE_PEER_QP_STATE, AS_USUAL },
	{ "peer-in-error", nothing, IBV_QPS_ERR, CAUSE_PEER_QP_STATE, AS_USUAL },
	{ "peer-destroyed", nothing, IBV_QPS_RTS, CAUSE_PEER_QP_UNKNOWN, B_GOES },
	{ "peer-of-another-type", nothing, IBV_QPS_RTS, CAUSE_PEER_QP_TYPE, B_IS_OTHER_TYPE },
};

struct silence_case {
	enum ibv_qp_type type;
	const struct silence *what;
};

static enum cause_code as_drop(enum cause_code code)
{
	switch (code) {
	case CAUSE_PEER_QP_STATE:
	case CAUSE_PEER_QP_UNKNOWN:
	case CAUSE_PEER_QP_TYPE:
		return CAUSE_DROP_NO_QP;
	default:
		return CAUSE_DROP_UNREACHABLE;
	}
}

/* B as it was before: its receives are there. Packets of RC and UC say nothing of who sent them but an address (specification
 * 9.2, 9.6.1): over the wire B takes what comes from A's for its own peer's, and answers that. */
static void b_is_untouched(struct world *w, const struct silence *s, enum ibv_qp_type type)
{
	if (over_the_wire() && (s->spoil == not_connected_back || s->spoil == connected_to_itself)) {
		completes(w->b, RECV_CQ, 100, IBV_WC_SUCCESS);
		changes_to(w, w->b, INBOX, GOOD, w->a, FIRST);
		changes_to(w, w->b, INBOX + 0x1000, GOOD, w->a, FIRST);
		if (type == IBV_QPT_UC) {
			completes(w->b, RECV_CQ, 101, IBV_WC_SUCCESS);
		} else {
			/* The next one, if it was sent before the first had failed. */
			changes(w, w->b, INBOX + 0x1000, GOOD);
			return;
		}
	}
	silent(w->b, RECV_CQ);
	if (s->odd != B_GOES)
		equal(state_of(w->b, 0), s->b_state);
}

static void run_silence(struct world *w, const void *arg)
{
	const struct silence_case *c = arg;
	const struct silence *s = c->what;
	struct qp_want want = qp_default(c->type), other = want;
	struct ibv_qp_attr attr = { .qp_state = s->b_state };
	struct wr out[3];
	struct side a, b;
	struct cause cause;
	uint64_t start;

	if (s->odd == B_IS_OTHER_TYPE)
		other.type = c->type == IBV_QPT_RC ? IBV_QPT_UC : IBV_QPT_RC;
	equal(make_qp(w->a, 0, &want), 0);
	equal(make_qp(w->b, 0, &other), 0);
	a = side_default(w->a, 0, want.type, w->b, 0);
	b = side_default(w->b, 0, other.type, w->a, 0);
	a.timeout = TIMEOUT;
	a.retries = RETRIES;
	s->spoil(w, &a, &b);
	bring_up(&a);
	if (s->b_state != IBV_QPS_RESET)
		equal(to_init(&b), 0);
	if (s->b_state == IBV_QPS_INIT || s->b_state == IBV_QPS_RTS)
		post_inbox(w, w->b, 0, 2);
	if (s->b_state == IBV_QPS_RTS) {
		equal(to_rtr(&b), 0);
		equal(to_rts(&b), 0);
	}
	if (s->b_state == IBV_QPS_ERR)
		equal(modify_qp(w->b, 0, &attr, IBV_QP_STATE), 0);
	if (s->odd == B_GOES)
		equal(drop_qp(w->b, 0), 0);

	post_inbox(w, w->a, 0, 1);
	start = now_ns();
	out[0] = good(w, 1, 0);
	out[1] = good(w, 2, 0);
	out[2] = good(w, 3, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 3);
	if (c->type == IBV_QPT_UC) {
		completes(w->a, SEND_CQ, 3, IBV_WC_SUCCESS);
		if (leaves_cause(s->code))
			equal(cause_of(w->a, as_drop(s->code)).wr_id, 3);
		equal(state_of(w->a, 0), IBV_QPS_RTS);
		b_is_untouched(w, s, c->type);
		return;
	}
	says(completes(w->a, SEND_CQ, 1, IBV_WC_RETRY_EXC_ERR), s->code);
	check(now_ns() - start >= RETRIES * (4096ull << TIMEOUT), "given up after %llu ns",
	      (unsigned long long)(now_ns() - start));
	completes(w->a, SEND_CQ, 2, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, SEND_CQ, 3, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, RECV_CQ, 100, IBV_WC_WR_FLUSH_ERR);
	equal(state_of(w->a, 0), IBV_QPS_ERR);
	cause = cause_of(w->a, s->code);
	equal(cause.error, IBV_WC_RETRY_EXC_ERR);
	equal(cause.qpn, w->a->qpn[0]);
	equal(cause.peer_qpn, a.dest_qpn);
	equal(cause.wr_id, 1);
	equal(cause.count, RETRIES + 1);
	equal(cause.limit, 4096 << TIMEOUT);
	b_is_untouched(w, s, c->type);
}

/* ---- Numbers that disagree ---- */

struct mtu_case {
	const char *name;
	enum ibv_wr_opcode op;
	uint32_t length;
	enum ibv_mtu ours, theirs;
	enum ibv_wc_status status;
};

/* One packet has no MTU. Of several, the responder finds their size wrong; of a READ's the
 * requester does, and the responder has nothing to complain of (specification 9.9.2.4, bad
 * response). */
static const struct mtu_case mtu_cases[] = {
	{ "send/one-packet", IBV_WR_SEND, 256, IBV_MTU_256, IBV_MTU_4096, IBV_WC_SUCCESS },
	{ "send/smaller", IBV_WR_SEND, 257, IBV_MTU_256, IBV_MTU_1024, IBV_WC_REM_INV_REQ_ERR },
	{ "send/larger", IBV_WR_SEND, 1000, IBV_MTU_1024, IBV_MTU_512, IBV_WC_REM_INV_REQ_ERR },
	{ "write/one-packet", IBV_WR_RDMA_WRITE, 512, IBV_MTU_1024, IBV_MTU_512, IBV_WC_SUCCESS },
	{ "write/smaller", IBV_WR_RDMA_WRITE, 0x800, IBV_MTU_256, IBV_MTU_1024,
	  IBV_WC_REM_INV_REQ_ERR },
	{ "write/larger", IBV_WR_RDMA_WRITE, 0x800, IBV_MTU_1024, IBV_MTU_512,
	  IBV_WC_REM_INV_REQ_ERR },
	{ "read/one-packet", IBV_WR_RDMA_READ, 512, IBV_MTU_1024, IBV_MTU_512, IBV_WC_SUCCESS },
	{ "read/smaller", IBV_WR_RDMA_READ, 0x800, IBV_MTU_256, IBV_MTU_1024, IBV_WC_BAD_RESP_ERR },
	{ "read/larger", IBV_WR_RDMA_READ, 0x800, IBV_MTU_1024, IBV_MTU_512, IBV_WC_BAD_RESP_ERR },
	{ "fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, IBV_MTU_1024, IBV_MTU_512, IBV_WC_SUCCESS },
};

static void run_mtu(struct world *w, const void *arg)
{
	const struct mtu_case *m = arg;
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct side a = side_default(w->a, 0, IBV_QPT_RC, w->b, 0);
	struct side b = side_default(w->b, 0, IBV_QPT_RC, w->a, 0);
	struct wr out[2];
	struct cause c;

	a.mtu = m->ours;
	b.mtu = m->theirs;
	make_pair_with(w, &want, &other, &a, &b);
	post_inbox(w, w->b, 0, 2);
	out[0] = rdma_wr(1, m->op, &w->ra, PLACE, m->length, &w->rb, PLACE);
	out[1] = rdma_wr(2, IBV_WR_RDMA_WRITE, &w->ra, FIRST, GOOD, &w->rb, FIRST);
	post(w->a, 0, out, 2);
	says(completes(w->a, SEND_CQ, 1, m->status),
	      m->status ? CAUSE_MTU_MISMATCH : 0);
	if (!m->status) {
		completes(w->a, SEND_CQ, 2, IBV_WC_SUCCESS);
		changes_to(w, w->b, FIRST, GOOD, w->a, FIRST);
		if (m->op == IBV_WR_SEND) {
			completes(w->b, RECV_CQ, 100, IBV_WC_SUCCESS);
			changes_to(w, w->b, INBOX, m->length, w->a, PLACE);
		}
		if (m->op == IBV_WR_RDMA_WRITE)
			changes_to(w, w->b, PLACE, m->length, w->a, PLACE);
		if (m->op >= IBV_WR_RDMA_READ)
			changes_to(w, w->a, PLACE, m->length, w->b, PLACE);
		silent(w->b, RECV_CQ);
		return;
	}
	completes(w->a, SEND_CQ, 2, IBV_WC_WR_FLUSH_ERR);
	equal(state_of(w->a, 0), IBV_QPS_ERR);
	c = cause_of(w->a, CAUSE_MTU_MISMATCH);
	equal(c.error, m->status);
	/* Of a packet that is alone the wire shows its length. */
	equal(c.value, over_the_wire() && m->length < 128u << m->ours ? m->length : 128u << m->ours);
	equal(c.limit, 128 << m->theirs);
	equal(c.length, m->length);
	if (m->op == IBV_WR_RDMA_READ) {
		silent(w->b, RECV_CQ);
		equal(state_of(w->b, 0), IBV_QPS_RTS);
		return;
	}
	raises(w->b, IBV_EVENT_QP_ACCESS_ERR, 0);
	equal(state_of(w->b, 0), IBV_QPS_ERR);
	completes(w->b, RECV_CQ, 100, IBV_WC_WR_FLUSH_ERR);
	completes(w->b, RECV_CQ, 101, IBV_WC_WR_FLUSH_ERR);
}

/* UC's messages of packets of the wrong size are lost. */
static void uc_mtus_that_disagree_lose_messages(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_UC), other = want;
	struct side b = side_default(w->b, 0, IBV_QPT_UC, w->a, 0);
	struct wr out[2];

	(void)arg;
	b.mtu = IBV_MTU_256;
	make_pair_with(w, &want, &other, NULL, &b);
	post_inbox(w, w->b, 0, 2);
	out[0] = send_wr(1, &w->ra, PLACE, 0x400);
	out[1] = good(w, 2, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 2);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	completes(w->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	equal(completes(w->b, RECV_CQ, 100, IBV_WC_SUCCESS).byte_len, GOOD);
	changes_to(w, w->b, INBOX, GOOD, w->a, FIRST);
	silent(w->b, RECV_CQ);
	equal(state_of(w->a, 0), IBV_QPS_RTS);
	equal(state_of(w->b, 0), IBV_QPS_RTS);
}

struct depth_case {
	const char *name;
	enum ibv_wr_opcode op;
	uint8_t depth, dest_depth;
	bool fence;
	bool fails;
};

static const struct depth_case depth_cases[] = {
	{ "read/none-at-the-responder", IBV_WR_RDMA_READ, 1, 0, false, true },
	{ "fetch-add/none-at-the-responder", IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, false, true },
	{ "read/more-than-the-responder-has", IBV_WR_RDMA_READ, 4, 2, false, true },
	{ "fetch-add/more-than-the-responder-has", IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 2, false, true },
	{ "read/fenced-one-at-a-time", IBV_WR_RDMA_READ, 4, 1, true, false },
	{ "read/fewer-than-the-responder-has", IBV_WR_RDMA_READ, 1, 4, false, false },
};

static void run_depth(struct world *w, const void *arg)
{
	const struct depth_case *d = arg;
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct side a = side_default(w->a, 0, IBV_QPT_RC, w->b, 0);
	struct side b = side_default(w->b, 0, IBV_QPT_RC, w->a, 0);
	unsigned good_ones = 0;
	struct ibv_wc wc = { 0 };
	struct wr out[4];
	struct cause c;

	a.depth = d->depth;
	b.dest_depth = d->dest_depth;
	make_pair_with(w, &want, &other, &a, &b);
	for (unsigned i = 0; i < 4; i++) {
		out[i] = rdma_wr(1 + i, d->op, &w->ra, PLACE + 8 * i, 8, &w->rb, PLACE + 8 * i);
		out[i].flags |= d->fence ? IBV_SEND_FENCE : 0;
	}
	post(w->a, 0, out, 4);
	changes_to(w, w->a, PLACE, 32, w->b, PLACE);
	if (!d->fails) {
		for (unsigned i = 0; i < 4; i++)
			completes(w->a, SEND_CQ, 1 + i, IBV_WC_SUCCESS);
		return;
	}
	/* The responder may have answered some before there were too many at once. */
	changes(w, w->a, PLACE, 32);
	for (; good_ones < 4 && (wc = next_wc(w->a, SEND_CQ)).status == IBV_WC_SUCCESS; good_ones++)
		equal(wc.wr_id, 1 + good_ones);
	/* Over the wire each may have been answered before the next one came. */
	if (over_the_wire() && good_ones == 4)
		return;
	check(over_the_wire() || good_ones <= d->dest_depth, "%u succeed", good_ones);
	equal(wc.wr_id, 1 + good_ones);
	equal(wc.status, IBV_WC_REM_INV_REQ_ERR);
	says(wc, CAUSE_RESPONDER_DEPTH);
	for (unsigned i = good_ones + 1; i < 4; i++)
		completes(w->a, SEND_CQ, 1 + i, IBV_WC_WR_FLUSH_ERR);
	equal(state_of(w->a, 0), IBV_QPS_ERR);
	c = cause_of(w->a, CAUSE_RESPONDER_DEPTH);
	equal(c.limit, d->dest_depth);
	check(c.value > c.limit, "the cause says %llu of %llu", (unsigned long long)c.value,
	      (unsigned long long)c.limit);
	raises(w->b, IBV_EVENT_QP_ACCESS_ERR, 0);
	equal(state_of(w->b, 0), IBV_QPS_ERR);
}

/* ---- What a QP is made of ---- */

struct creation {
	const char *name;
	enum ibv_qp_type type;
	struct ibv_qp_cap cap; /* what is not 0 */
	int error;
	enum cause_code code;
};

static const struct creation creations[] = {
	{ "unknown-type", (enum ibv_qp_type)99, { 0 }, EOPNOTSUPP, CAUSE_NOT_SUPPORTED },
	{ "type-0", (enum ibv_qp_type)0, { 0 }, EOPNOTSUPP, CAUSE_NOT_SUPPORTED },
	{ "raw-packet", IBV_QPT_RAW_PACKET, { 0 }, EOPNOTSUPP, CAUSE_NOT_SUPPORTED },
	{ "xrc-send", IBV_QPT_XRC_SEND, { 0 }, EOPNOTSUPP, CAUSE_NOT_SUPPORTED },
	{ "send-wrs", IBV_QPT_RC, { .max_send_wr = UINT32_MAX }, EINVAL, CAUSE_CREATE_LIMIT },
	{ "send-wrs-one-above", IBV_QPT_RC, { .max_send_wr = 32769 }, EINVAL, CAUSE_CREATE_LIMIT },
	{ "recv-wrs", IBV_QPT_RC, { .max_recv_wr = 1u << 31 }, EINVAL, CAUSE_CREATE_LIMIT },
	{ "send-sges", IBV_QPT_UC, { .max_send_sge = UINT32_MAX }, EINVAL, CAUSE_CREATE_LIMIT },
	{ "send-sges-one-above", IBV_QPT_UC, { .max_send_sge = 33 }, EINVAL, CAUSE_CREATE_LIMIT },
	{ "recv-sges", IBV_QPT_UD, { .max_recv_sge = UINT32_MAX }, EINVAL, CAUSE_CREATE_LIMIT },
	{ "inline-data", IBV_QPT_RC, { .max_inline_data = UINT32_MAX }, EINVAL, CAUSE_CREATE_LIMIT },
	{ "inline-data-one-above",
	  IBV_QPT_RC,
	  { .max_inline_data = 1025 },
	  EINVAL,
	  CAUSE_CREATE_LIMIT },
};

static void run_creation(struct world *w, const void *arg)
{
	const struct creation *c = arg;
	struct qp_want want = qp_default(c->type);
	struct cause cause;

	want.cap = c->cap;
	equal(make_qp(w->a, 0, &want), c->error);
	cause = refused_with(w->a, c->code, c->error);
	if (c->code == CAUSE_CREATE_LIMIT)
		check(cause.value > cause.limit && cause.limit, "the cause has no numbers");
}

static void largest_qp_can_be_made(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC);

	(void)arg;
	want.cap = (struct ibv_qp_cap){ 32768, 32768, 32, 32, 1024 };
	equal(make_qp(w->a, 0, &want), 0);
	check(want.cap.max_send_wr >= 32768 && want.cap.max_recv_wr >= 32768 &&
		      want.cap.max_send_sge >= 32 && want.cap.max_recv_sge >= 32 &&
		      want.cap.max_inline_data >= 1024,
	      "less than what was asked for");
}

static void uc_with_an_srq_is_refused(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_UC);

	(void)arg;
	want.srq = 0;
	equal(make_srq(w->a, 0, 0, 8, 1), 0);
	equal(make_qp(w->a, 0, &want), EINVAL);
	refused_with(w->a, CAUSE_CREATE_ARGUMENT, EINVAL);
}

static void ah_needs_a_grh(struct world *w, const void *arg)
{
	static const union ibv_gid zero;

	(void)arg;
	equal(make_ah(w->a, 0, 0, NULL), EINVAL);
	refused_with(w->a, CAUSE_NO_GRH, EINVAL);
	equal(make_ah(w->a, 0, 0, &zero), EINVAL);
	refused_with(w->a, CAUSE_BAD_DGID, EINVAL);
}

/* ---- Flushing and another life ---- */

static const struct {
	enum ibv_qp_type type;
	const char *name;
} types[] = { { IBV_QPT_RC, "rc" }, { IBV_QPT_UC, "uc" }, { IBV_QPT_UD, "ud" } };

/* Everything comes back, in order, each once. */
static void error_state_flushes_in_order(struct world *w, const void *arg)
{
	const enum ibv_qp_type type = *(const enum ibv_qp_type *)arg;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	struct wr out[5];

	make_pair(w, type);
	post_inbox(w, w->a, 0, 5);
	/* So that none of them has gone. */
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	for (unsigned i = 0; i < 5; i++)
		out[i] = good(w, 1 + i, i % 2 ? IBV_SEND_SIGNALED : 0);
	post(w->a, 0, out, 5);
	attr.qp_state = IBV_QPS_ERR;
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	for (unsigned i = 0; i < 5; i++) {
		completes(w->a, SEND_CQ, 1 + i, IBV_WC_WR_FLUSH_ERR);
		completes(w->a, RECV_CQ, 100 + i, IBV_WC_WR_FLUSH_ERR);
	}
	silent(w->a, SEND_CQ);
	silent(w->a, RECV_CQ);
	silent(w->b, RECV_CQ);
	/* Again is nothing new. */
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	silent(w->a, SEND_CQ);
	equal(state_of(w->b, 0), IBV_QPS_RTS);
}

static void exchange(struct world *w, enum ibv_qp_type type, unsigned inbox)
{
	uint32_t header = type == IBV_QPT_UD ? GRH_BYTES : 0;
	struct wr out = good(w, 50, IBV_SEND_SIGNALED);

	post_inbox(w, w->b, inbox, 1);
	post(w->a, 0, &out, 1);
	completes(w->a, SEND_CQ, 50, IBV_WC_SUCCESS);
	equal(completes(w->b, RECV_CQ, 100 + inbox, IBV_WC_SUCCESS).byte_len, GOOD + header);
	changes(w, w->b, INBOX + inbox * 0x1000, header);
	changes_to(w, w->b, INBOX + inbox * 0x1000 + header, GOOD, w->a, FIRST);
}

static void reset(struct world *w, struct node *n)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	(void)w;
	equal(modify_qp(n, 0, &attr, IBV_QP_STATE), 0);
	equal(state_of(n, 0), IBV_QPS_RESET);
}

static void bring_up_again(struct world *w, enum ibv_qp_type type, uint32_t psn)
{
	struct side a = side_default(w->a, 0, type, w->b, 0),
		    b = side_default(w->b, 0, type, w->a, 0);

	a.sq_psn = b.rq_psn = psn;
	bring_up(&a);
	bring_up(&b);
}

/* What was posted, and what was completed and not polled, is gone. */
static void reset_forgets_everything(struct world *w, const void *arg)
{
	const enum ibv_qp_type type = *(const enum ibv_qp_type *)arg;
	const uint32_t header = type == IBV_QPT_UD ? GRH_BYTES : 0;
	struct ibv_qp_attr attr;
	struct wr out[2];

	make_pair(w, type);
	for (unsigned life = 0; life < 3; life++) {
		exchange(w, type, 0);
		post_inbox(w, w->b, 1, 3);
		post_inbox(w, w->a, 1, 3);
		out[0] = good(w, 2, IBV_SEND_SIGNALED);
		out[0].sge[0].addr += life * GOOD;
		post(w->a, 0, out, 1);
		/* One completion lies in each CQ, more is queued. */
		while (!has_content(w->b, addr_of(w->b, INBOX + 0x1000 + header), GOOD, w->a,
				    FIRST + life * GOOD))
			pause_ms(1);
		changes(w, w->b, INBOX + 0x1000, GRH_BYTES + GOOD);
		attr.qp_state = IBV_QPS_SQD;
		equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
		out[0] = good(w, 3, 0);
		out[1] = good(w, 4, IBV_SEND_SIGNALED);
		post(w->a, 0, out, 2);
		if (life == 1) {
			attr.qp_state = IBV_QPS_ERR;
			equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
			equal(modify_qp(w->b, 0, &attr, IBV_QP_STATE), 0);
		}
		reset(w, w->a);
		reset(w, w->b);
		for (unsigned cq = SEND_CQ; cq <= RECV_CQ; cq++) {
			silent(w->a, cq);
			silent(w->b, cq);
		}
		bring_up_again(w, type, 100 * life);
		/* Its whole depth is there again. */
		post_inbox(w, w->a, 0, 8);
		reset(w, w->a);
		reset(w, w->b);
		bring_up_again(w, type, 7);
	}
	exchange(w, type, 0);
}

/* The other end is not told. */
static void reset_of_one_end_is_silence_for_the_other(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct side a = side_default(w->a, 0, IBV_QPT_RC, w->b, 0);
	struct wr out;

	(void)arg;
	a.timeout = TIMEOUT;
	a.retries = RETRIES;
	make_pair_with(w, &want, &other, &a, NULL);
	/* So short a timer must not end an exchange that a busy machine delays. */
	post_inbox(w, w->b, 0, 2);
	reset(w, w->b);
	equal(state_of(w->a, 0), IBV_QPS_RTS);
	out = good(w, 1, IBV_SEND_SIGNALED);
	post(w->a, 0, &out, 1);
	says(completes(w->a, SEND_CQ, 1, IBV_WC_RETRY_EXC_ERR), CAUSE_PEER_QP_STATE);
	equal(cause_of(w->a, CAUSE_PEER_QP_STATE).peer_state, IBV_QPS_RESET);
	silent(w->b, RECV_CQ);
}

/* A requester that waits for a receiver is waiting when its own end is reset: nothing of it comes
 * later. */
static void reset_ends_waiting_for_a_receiver(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct side b = side_default(w->b, 0, IBV_QPT_RC, w->a, 0);
	struct wr out;

	(void)arg;
	b.min_rnr_timer = 0; /* 655 ms */
	make_pair_with(w, &want, &other, NULL, &b);
	out = good(w, 1, IBV_SEND_SIGNALED);
	post(w->a, 0, &out, 1);
	silent(w->a, SEND_CQ);
	/* Packets on their way would still arrive. */
	while (over_the_wire() && !counter_of(w->a, offsetof(struct device_counters, rnr_nak_retry_err)))
		pause_ms(1);
	reset(w, w->a);
	post_inbox(w, w->b, 0, 1);
	silent(w->a, SEND_CQ);
	silent(w->b, RECV_CQ);
	equal(state_of(w->b, 0), IBV_QPS_RTS);
}

void add_states(void)
{
	static struct silence_case rows[2 * sizeof(silences) / sizeof(*silences)];
	unsigned used = 0;

	for (unsigned i = 0; i < sizeof(silences) / sizeof(*silences); i++) {
		for (unsigned t = 0; t < 2; t++) {
			if (types[t].type == IBV_QPT_UC && silences[i].odd == RC_ONLY)
				continue;
			rows[used] = (struct silence_case){ types[t].type, &silences[i] };
			add_case("states", run_silence, &rows[used++], "%s/silence/%s",
				 types[t].name, silences[i].name);
		}
	}
	for (unsigned i = 0; i < sizeof(mtu_cases) / sizeof(*mtu_cases); i++)
		add_case("states", run_mtu, &mtu_cases[i], "rc/mtus-that-disagree/%s",
			 mtu_cases[i].name);
	add_case("states", uc_mtus_that_disagree_lose_messages, NULL,
		 "uc/mtus-that-disagree-lose-messages");
	for (unsigned i = 0; i < sizeof(depth_cases) / sizeof(*depth_cases); i++)
		add_case("states", run_depth, &depth_cases[i], "rc/depth/%s", depth_cases[i].name);
	for (unsigned i = 0; i < sizeof(creations) / sizeof(*creations); i++)
		add_case("states", run_creation, &creations[i], "creation/%s", creations[i].name);
	add_case("states", largest_qp_can_be_made, NULL, "creation/largest");
	add_case("states", uc_with_an_srq_is_refused, NULL, "creation/uc-with-an-srq");
	add_case("states", ah_needs_a_grh, NULL, "creation/ah-needs-a-grh");
	for (unsigned i = 0; i < sizeof(types) / sizeof(*types); i++) {
		add_case("states", error_state_flushes_in_order, &types[i].type,
			 "%s/error-flushes-in-order", types[i].name);
		add_case("states", reset_forgets_everything, &types[i].type,
			 "%s/reset-forgets-everything", types[i].name);
	}
	add_case("states", reset_of_one_end_is_silence_for_the_other, NULL,
		 "rc/reset-of-one-end-is-silence-for-the-other");
	add_case("states", reset_ends_waiting_for_a_receiver, NULL,
		 "rc/reset-ends-waiting-for-a-receiver");
}
