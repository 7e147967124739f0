/* SPDX-License-Identifier: MIT */
/*
 * Receives: too short, missing, shared; and datagrams that their receiver does not want.
 *
 * A message that does not fit fails both ends of an RC pair (specification 9.9.3, class C). UC and
 * UD lose it: it leaves the receive of an RQ alone (class D), and ends that of an SRQ in error
 * (class E), which costs no other QP anything.
 */
#include "strict.h"

enum { FIRST = 0x2000, PLACE = 0x3000, INBOX = 0x8000, GOOD = 16, MTU = 1024 };

static struct wr message(struct world *w, uint64_t id, uint32_t length, unsigned flags)
{
	struct wr wr = send_wr(id, &w->ra, FIRST, length);

	wr.flags = flags;
	wr.ah = 0;
	wr.qpn = w->b->qpn[0];
	wr.qkey = QKEY;
	return wr;
}

static struct wr good(struct world *w, uint64_t id, unsigned flags)
{
	return message(w, id, GOOD, flags);
}

static void post_inbox(struct world *w, struct node *n, bool srq, unsigned from, unsigned count,
		       uint32_t room)
{
	struct wr in[LIST];

	for (unsigned i = 0; i < count; i++)
		in[i] = recv_wr(100 + from + i, n == w->a ? &w->ra : &w->rb,
				INBOX + (from + i) * 0x2000, room);
	if (srq)
		equal(post_srq(n, 0, in, count, NULL), 0);
	else
		receive(n, 0, in, count);
}

static uint32_t header(enum ibv_qp_type type)
{
	return type == IBV_QPT_UD ? GRH_BYTES : 0;
}

/* Receive number i of B got `length` bytes. */
static void arrived(struct world *w, enum ibv_qp_type type, unsigned i, uint32_t length)
{
	equal(completes(w->b, RECV_CQ, 100 + i, IBV_WC_SUCCESS).byte_len, length + header(type));
	changes(w, w->b, INBOX + i * 0x2000, header(type));
	changes_to(w, w->b, INBOX + i * 0x2000 + header(type), length, w->a, FIRST);
}

static void pair_with_srq(struct world *w, enum ibv_qp_type type, bool srq, const struct side *a,
			  const struct side *b)
{
	struct qp_want want = qp_default(type), other = want;

	if (srq) {
		other.srq = 0;
		equal(make_srq(w->b, 0, 0, 8, 3), 0);
	}
	make_pair_with(w, &want, &other, a, b);
}

/* ---- Too long ---- */

struct length_case {
	const char *name;
	enum ibv_qp_type type;
	bool srq;
	uint32_t room, length;
	int sges; /* of the receive: all but the last have 8 bytes */
};

static const struct length_case length_cases[] = {
	{ "rc/one-byte-too-long", IBV_QPT_RC, false, 64, 65, 1 },
	{ "rc/many-packets-too-long", IBV_QPT_RC, false, 2000, 5000, 1 },
	{ "rc/last-packet-too-long", IBV_QPT_RC, false, 4096, 4097, 1 },
	{ "rc/too-long-for-three-sges", IBV_QPT_RC, false, 40, 41, 3 },
	{ "rc/too-long-for-no-sge", IBV_QPT_RC, false, 0, 1, 0 },
	{ "rc/srq/one-byte-too-long", IBV_QPT_RC, true, 64, 65, 1 },
	{ "rc/srq/many-packets-too-long", IBV_QPT_RC, true, 2000, 5000, 1 },
	{ "uc/one-byte-too-long", IBV_QPT_UC, false, 64, 65, 1 },
	{ "uc/many-packets-too-long", IBV_QPT_UC, false, 2000, 5000, 1 },
	{ "ud/one-byte-too-long", IBV_QPT_UD, false, 64 + GRH_BYTES, 65, 1 },
	{ "ud/no-room-for-the-header", IBV_QPT_UD, false, 64, 64, 1 },
	{ "ud/srq/one-byte-too-long", IBV_QPT_UD, true, 64 + GRH_BYTES, 65, 1 },
};

static void run_too_long(struct world *w, const void *arg)
{
	const struct length_case *c = arg;
	/* What a message ends of an SRQ, the next one cannot have. */
	const unsigned count = c->srq && c->type == IBV_QPT_UD ? 4 : 3;
	struct wr in[4], out[4];
	struct cause cause;
	struct ibv_wc wc;

	pair_with_srq(w, c->type, c->srq, NULL, NULL);
	for (unsigned i = 0; i < count; i++)
		in[i] = recv_wr(100 + i, &w->rb, INBOX + i * 0x2000, 0x1000);
	in[1].sge[0].length = c->room;
	in[1].sges = c->sges;
	for (int i = 1; i < c->sges; i++) {
		in[1].sge[i] = in[1].sge[0];
		in[1].sge[i - 1].length = 8;
		in[1].sge[i].addr += 0x100 * (unsigned)i;
		in[1].sge[i].length = c->room - 8 * (unsigned)i;
	}
	if (c->srq)
		equal(post_srq(w->b, 0, in, count, NULL), 0);
	else
		receive(w->b, 0, in, count);
	post_inbox(w, w->a, false, 0, 1, 0x100);
	out[0] = good(w, 1, IBV_SEND_SIGNALED);
	out[1] = message(w, 2, c->length, 0);
	out[2] = good(w, 3, 0);
	out[3] = good(w, 4, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 4);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	arrived(w, c->type, 0, GOOD);
	/* And that is in place by then. */
	if (over_the_wire() && c->length > MTU)
		changes(w, w->b, INBOX + 0x2000, c->room);
	if (c->type == IBV_QPT_RC) {
		says(completes(w->a, SEND_CQ, 2, IBV_WC_REM_INV_REQ_ERR),
		      CAUSE_RECEIVE_TOO_SHORT);
		completes(w->a, SEND_CQ, 3, IBV_WC_WR_FLUSH_ERR);
		completes(w->a, SEND_CQ, 4, IBV_WC_WR_FLUSH_ERR);
		completes(w->a, RECV_CQ, 100, IBV_WC_WR_FLUSH_ERR);
		equal(state_of(w->a, 0), IBV_QPS_ERR);
		wc = completes(w->b, RECV_CQ, 101, IBV_WC_LOC_LEN_ERR);
		says(wc, CAUSE_RECEIVE_TOO_SHORT);
		equal(wc.qp_num, w->b->qpn[0]);
		if (c->srq)
			raises(w->b, IBV_EVENT_QP_LAST_WQE_REACHED, 0);
		else
			completes(w->b, RECV_CQ, 102, IBV_WC_WR_FLUSH_ERR);
		becomes(w->b, 0, IBV_QPS_ERR);
		cause = cause_of(w->a, CAUSE_RECEIVE_TOO_SHORT);
		equal(cause.error, IBV_WC_REM_INV_REQ_ERR);
	} else {
		completes(w->a, SEND_CQ, 4, IBV_WC_SUCCESS);
		if (c->srq)
			says(completes(w->b, RECV_CQ, 101, IBV_WC_LOC_LEN_ERR),
			      CAUSE_RECEIVE_TOO_SHORT);
		else
			arrived(w, c->type, 1, GOOD);
		arrived(w, c->type, 2, GOOD);
		if (count == 4)
			arrived(w, c->type, 3, GOOD);
		equal(state_of(w->a, 0), IBV_QPS_RTS);
		equal(state_of(w->b, 0), IBV_QPS_RTS);
		cause = cause_of(w->a, CAUSE_DROP_TOO_LONG);
	}
	silent(w->b, RECV_CQ);
	is_of_request(&cause, 2);
	equal(cause.limit, c->room);
	/* Over the wire a message is as long as what has come of it. */
	if (!over_the_wire() || c->length <= MTU)
		equal(cause.value, c->length + header(c->type));
	check(cause.value > cause.limit, "the message fits: %llu", (unsigned long long)cause.value);
}

/* Bytes of the longest datagram. */
static uint32_t port_mtu(struct node *node)
{
	struct ibv_port_attr attr;

	equal(ibv_query_port(node->ctx, 1, &attr), 0);
	return 128u << attr.active_mtu;
}

struct fit_case {
	const char *name;
	enum ibv_qp_type type;
	uint32_t length;
};

static const struct fit_case fit_cases[] = {
	{ "rc/one-packet-that-just-fits", IBV_QPT_RC, 64 },
	{ "rc/many-packets-that-just-fit", IBV_QPT_RC, 5000 },
	{ "uc/many-packets-that-just-fit", IBV_QPT_UC, 5000 },
	{ "ud/just-fits-with-its-header", IBV_QPT_UD, 64 },
	{ "ud/as-long-as-the-mtu", IBV_QPT_UD, 0 },
};

static void run_just_fits(struct world *w, const void *arg)
{
	const struct fit_case *f = arg;
	uint32_t length = f->length ? f->length : port_mtu(w->a);
	struct wr out;

	make_pair(w, f->type);
	post_inbox(w, w->b, false, 0, 1, length + header(f->type));
	out = message(w, 1, length, IBV_SEND_SIGNALED);
	post(w->a, 0, &out, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	arrived(w, f->type, 0, length);
}

static void datagram_above_the_mtu_is_a_local_error(struct world *w, const void *arg)
{
	uint32_t mtu = port_mtu(w->a);
	struct wr out[2];
	struct cause c;

	(void)arg;
	make_pair(w, IBV_QPT_UD);
	post_inbox(w, w->b, false, 0, 1, 0x2000);
	out[0] = message(w, 1, mtu + 1, 0);
	out[1] = good(w, 2, 0);
	post(w->a, 0, out, 2);
	says(completes(w->a, SEND_CQ, 1, IBV_WC_LOC_LEN_ERR), CAUSE_UD_TOO_LONG);
	completes(w->a, SEND_CQ, 2, IBV_WC_WR_FLUSH_ERR);
	equal(state_of(w->a, 0), IBV_QPS_SQE);
	c = cause_of(w->a, CAUSE_UD_TOO_LONG);
	equal(c.length, mtu + 1);
	equal(c.limit, mtu);
	equal(c.value, mtu + 1);
	silent(w->b, RECV_CQ);
}

/* ---- Not there ---- */

struct rnr_case {
	const char *name;
	enum ibv_wr_opcode op;
	bool srq;
	uint8_t retries, timer;
	uint32_t timer_us; /* specification table 45 */
};

static const struct rnr_case rnr_cases[] = {
	{ "send", IBV_WR_SEND, false, 3, 16, 2560 },
	{ "send-imm", IBV_WR_SEND_WITH_IMM, false, 1, 20, 10240 },
	{ "write-imm", IBV_WR_RDMA_WRITE_WITH_IMM, false, 2, 14, 1280 },
	{ "send/at-once", IBV_WR_SEND, false, 0, 31, 491520 },
	{ "srq/send", IBV_WR_SEND, true, 6, 12, 640 },
};

static void run_rnr(struct world *w, const void *arg)
{
	const struct rnr_case *r = arg;
	struct side a = side_default(w->a, 0, IBV_QPT_RC, w->b, 0);
	struct side b = side_default(w->b, 0, IBV_QPT_RC, w->a, 0);
	uint64_t start, took, least = r->retries * r->timer_us * 1000ull;
	struct wr out[3];
	struct cause c;

	a.rnr_retries = r->retries;
	b.min_rnr_timer = r->timer;
	pair_with_srq(w, IBV_QPT_RC, r->srq, &a, &b);
	post_inbox(w, w->a, false, 0, 1, 0x100);
	out[0] = rdma_wr(1, r->op, &w->ra, FIRST, GOOD, &w->rb, PLACE);
	out[1] = good(w, 2, 0);
	out[2] = good(w, 3, IBV_SEND_SIGNALED);
	start = now_ns();
	post(w->a, 0, out, 3);
	says(completes(w->a, SEND_CQ, 1, IBV_WC_RNR_RETRY_EXC_ERR), CAUSE_RNR);
	took = now_ns() - start;
	check(took >= least, "given up after %llu ns, not %llu", (unsigned long long)took,
	      (unsigned long long)least);
	/* Generous: the machine may be busy. */
	check(took < least + 2000000000ull, "given up only after %llu ns",
	      (unsigned long long)took);
	completes(w->a, SEND_CQ, 2, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, SEND_CQ, 3, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, RECV_CQ, 100, IBV_WC_WR_FLUSH_ERR);
	equal(state_of(w->a, 0), IBV_QPS_ERR);
	/* The data of a WRITE may be there, the receiver hears nothing. */
	if (r->op == IBV_WR_RDMA_WRITE_WITH_IMM)
		changes(w, w->b, PLACE, GOOD);
	c = cause_of(w->a, CAUSE_RNR);
	equal(c.error, IBV_WC_RNR_RETRY_EXC_ERR);
	equal(c.qpn, w->a->qpn[0]);
	equal(c.peer_qpn, w->b->qpn[0]);
	equal(c.wr_id, 1);
	equal(c.count, r->retries);
	equal(c.limit, r->timer_us * 1000ull);
	silent(w->b, RECV_CQ);
	equal(state_of(w->b, 0), IBV_QPS_RTS);
}

static void receive_that_comes_late_is_found(struct world *w, const void *arg)
{
	struct side b = side_default(w->b, 0, IBV_QPT_RC, w->a, 0);
	bool srq = *(const bool *)arg;
	struct wr out[2];

	b.min_rnr_timer = 16;
	pair_with_srq(w, IBV_QPT_RC, srq, NULL, &b);
	out[0] = good(w, 1, IBV_SEND_SIGNALED);
	out[1] = rdma_wr(2, IBV_WR_RDMA_WRITE, &w->ra, FIRST, GOOD, &w->rb, PLACE);
	post(w->a, 0, out, 2);
	/* Seven retries are for ever, and what is behind waits too. */
	pause_ms(40);
	silent(w->a, SEND_CQ);
	post_inbox(w, w->b, srq, 0, 1, 0x100);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	completes(w->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	arrived(w, IBV_QPT_RC, 0, GOOD);
	changes_to(w, w->b, PLACE, GOOD, w->a, FIRST);
}

static void rdma_needs_no_receive(struct world *w, const void *arg)
{
	struct side a = side_default(w->a, 0, IBV_QPT_RC, w->b, 0);
	struct wr out[3];

	(void)arg;
	a.rnr_retries = 0;
	pair_with_srq(w, IBV_QPT_RC, false, &a, NULL);
	out[0] = rdma_wr(1, IBV_WR_RDMA_WRITE, &w->ra, FIRST, GOOD, &w->rb, PLACE);
	out[1] = rdma_wr(2, IBV_WR_RDMA_READ, &w->ra, PLACE, GOOD, &w->rb, FIRST);
	out[2] = rdma_wr(3, IBV_WR_ATOMIC_CMP_AND_SWP, &w->ra, PLACE + 0x100, 8, &w->rb, FIRST);
	post(w->a, 0, out, 3);
	for (unsigned id = 1; id <= 3; id++)
		completes(w->a, SEND_CQ, id, IBV_WC_SUCCESS);
	changes_to(w, w->b, PLACE, GOOD, w->a, FIRST);
	changes_to(w, w->a, PLACE, GOOD, w->b, FIRST);
	changes_to(w, w->a, PLACE + 0x100, 8, w->b, FIRST);
}

/* A sender that nobody receives from succeeds; it may have been paced before. */
static void unreliable_without_a_receive_is_lost(struct world *w, const void *arg)
{
	const enum ibv_qp_type type = *(const enum ibv_qp_type *)arg;
	struct wr out[2];
	struct cause c;

	make_pair(w, type);
	out[0] = good(w, 1, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	silent(w->b, RECV_CQ);
	c = cause_of(w->a, CAUSE_DROP_NO_RECEIVE);
	is_of_request(&c, 1);
	/* The next one finds a receive, the one after it none again. */
	post_inbox(w, w->b, false, 0, 1, 0x100);
	out[0] = good(w, 2, IBV_SEND_SIGNALED);
	out[1] = good(w, 3, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 2);
	completes(w->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	completes(w->a, SEND_CQ, 3, IBV_WC_SUCCESS);
	arrived(w, type, 0, GOOD);
	silent(w->b, RECV_CQ);
	c = cause_of(w->a, CAUSE_DROP_NO_RECEIVE);
	is_of_request(&c, 3);
	equal(state_of(w->a, 0), IBV_QPS_RTS);
	equal(state_of(w->b, 0), IBV_QPS_RTS);
}

/* ---- The SRQ's limit, and its end ---- */

static void srq_limit_is_told_once(struct world *w, const void *arg)
{
	struct wr out[2];

	(void)arg;
	pair_with_srq(w, IBV_QPT_RC, true, NULL, NULL);
	post_inbox(w, w->b, true, 0, 6, 0x100);
	equal(arm_srq(w->b, 0, 5), 0);
	out[0] = good(w, 1, IBV_SEND_SIGNALED);
	out[1] = good(w, 2, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	arrived(w, IBV_QPT_RC, 0, GOOD);
	/* Five are left: not below five. */
	no_event(w->b);
	post(w->a, 0, out, 2);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	completes(w->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	arrived(w, IBV_QPT_RC, 1, GOOD);
	arrived(w, IBV_QPT_RC, 2, GOOD);
	raises(w->b, IBV_EVENT_SRQ_LIMIT_REACHED, 0);
	no_event(w->b);
	/* Armed above what is there, it is due at once. */
	equal(arm_srq(w->b, 0, 4), 0);
	raises(w->b, IBV_EVENT_SRQ_LIMIT_REACHED, 0);
	/* Disarmed, nothing comes. */
	equal(arm_srq(w->b, 0, 3), 0);
	equal(arm_srq(w->b, 0, 0), 0);
	post(w->a, 0, out, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	arrived(w, IBV_QPT_RC, 3, GOOD);
	no_event(w->b);
}

static void srq_limit_above_its_size_is_refused(struct world *w, const void *arg)
{
	struct cause c;

	(void)arg;
	equal(make_srq(w->b, 0, 0, 8, 3), 0);
	equal(arm_srq(w->b, 0, 9), EINVAL);
	c = refused_with(w->b, CAUSE_SRQ_LIMIT, EINVAL);
	equal(c.limit, 8);
	equal(c.value, 9);
}

/* The receives of an SRQ are not flushed: other QPs want them. */
static void error_of_one_qp_leaves_the_srq_to_others(struct world *w, const void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct side a, b;
	struct wr out;

	(void)arg;
	pair_with_srq(w, IBV_QPT_RC, true, NULL, NULL);
	other.srq = 0;
	equal(make_qp(w->a, 1, &want), 0);
	equal(make_qp(w->b, 1, &other), 0);
	a = side_default(w->a, 1, IBV_QPT_RC, w->b, 1);
	b = side_default(w->b, 1, IBV_QPT_RC, w->a, 1);
	bring_up(&a);
	bring_up(&b);
	post_inbox(w, w->b, true, 0, 2, 0x100);
	equal(modify_qp(w->b, 0, &attr, IBV_QP_STATE), 0);
	raises(w->b, IBV_EVENT_QP_LAST_WQE_REACHED, 0);
	silent(w->b, RECV_CQ);
	out = good(w, 1, IBV_SEND_SIGNALED);
	for (unsigned i = 0; i < 2; i++) {
		post(w->a, 1, &out, 1);
		completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
		arrived(w, IBV_QPT_RC, i, GOOD);
	}
}

/* ---- Datagrams that are not wanted ---- */

struct drop_case {
	const char *name;
	void (*spoil)(struct world *w, struct wr *wr);
	enum cause_code code;
};

static void wrong_qkey(struct world *w, struct wr *wr)
{
	(void)w;
	wr->qkey ^= 1;
}

static void unknown_qpn(struct world *w, struct wr *wr)
{
	wr->qpn = w->b->qpn[0] + 1000;
}

static void connected_qpn(struct world *w, struct wr *wr)
{
	wr->qpn = w->b->qpn[BYSTANDER];
}

static void qpn_of_no_process(struct world *w, struct wr *wr)
{
	(void)w;
	wr->qpn = QPN_OF_NO_PROCESS;
}

static const struct drop_case drop_cases[] = {
	{ "wrong-qkey", wrong_qkey, CAUSE_DROP_QKEY },
	{ "unknown-qpn", unknown_qpn, CAUSE_DROP_NO_QP },
	{ "qpn-of-a-connected-qp", connected_qpn, CAUSE_DROP_NO_QP },
	{ "qpn-of-no-process", qpn_of_no_process, CAUSE_DROP_UNREACHABLE },
};

static void run_drop(struct world *w, const void *arg)
{
	const struct drop_case *d = arg;
	struct wr out[2];
	struct cause c;

	make_pair(w, IBV_QPT_UD);
	post_inbox(w, w->b, false, 0, 1, 0x100);
	out[0] = good(w, 1, IBV_SEND_SIGNALED);
	out[1] = good(w, 2, IBV_SEND_SIGNALED);
	d->spoil(w, &out[0]);
	post(w->a, 0, out, 2);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	completes(w->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	/* The receive is the second one's. */
	arrived(w, IBV_QPT_UD, 0, GOOD);
	silent(w->b, RECV_CQ);
	/* Whether anybody has that QPN, no initiator on the wire knows. */
	if (leaves_cause(d->code) && !(over_the_wire() && d->spoil == qpn_of_no_process)) {
		c = cause_of(w->a, d->code);
		is_of_request(&c, 1);
		equal(c.peer_qpn, out[0].qpn);
	}
	equal(state_of(w->a, 0), IBV_QPS_RTS);
	equal(state_of(w->b, 0), IBV_QPS_RTS);
}

/* Not what the request says, but the sending QP's own (specification 10.2.5). */
static void qkey_with_the_top_bit_is_the_qps_own(struct world *w, const void *arg)
{
	struct wr out;

	(void)arg;
	make_pair(w, IBV_QPT_UD);
	post_inbox(w, w->b, false, 0, 1, 0x100);
	out = good(w, 1, IBV_SEND_SIGNALED);
	out.qkey = 0x80010000;
	post(w->a, 0, &out, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	arrived(w, IBV_QPT_UD, 0, GOOD);
}

void add_receives(void)
{
	static const enum ibv_qp_type uc = IBV_QPT_UC, ud = IBV_QPT_UD;
	static const bool no = false, yes = true;

	for (unsigned i = 0; i < sizeof(length_cases) / sizeof(*length_cases); i++)
		add_case("receives", run_too_long, &length_cases[i], "%s", length_cases[i].name);
	for (unsigned i = 0; i < sizeof(fit_cases) / sizeof(*fit_cases); i++)
		add_case("receives", run_just_fits, &fit_cases[i], "%s", fit_cases[i].name);
	add_case("receives", datagram_above_the_mtu_is_a_local_error, NULL,
		 "ud/longer-than-the-mtu");
	for (unsigned i = 0; i < sizeof(rnr_cases) / sizeof(*rnr_cases); i++)
		add_case("receives", run_rnr, &rnr_cases[i], "rc/rnr-retries-end/%s",
			 rnr_cases[i].name);
	add_case("receives", receive_that_comes_late_is_found, &no,
		 "rc/receive-that-comes-late-is-found");
	add_case("receives", receive_that_comes_late_is_found, &yes,
		 "rc/srq/receive-that-comes-late-is-found");
	add_case("receives", rdma_needs_no_receive, NULL, "rc/rdma-needs-no-receive");
	add_case("receives", unreliable_without_a_receive_is_lost, &uc,
		 "uc/without-a-receive-is-lost");
	add_case("receives", unreliable_without_a_receive_is_lost, &ud,
		 "ud/without-a-receive-is-lost");
	add_case("receives", srq_limit_is_told_once, NULL, "srq/limit-is-told-once");
	add_case("receives", srq_limit_above_its_size_is_refused, NULL, "srq/limit-above-its-size");
	add_case("receives", error_of_one_qp_leaves_the_srq_to_others, NULL,
		 "srq/error-of-one-qp-leaves-it-to-others");
	for (unsigned i = 0; i < sizeof(drop_cases) / sizeof(*drop_cases); i++)
		add_case("receives", run_drop, &drop_cases[i], "ud/dropped/%s", drop_cases[i].name);
	add_case("receives", qkey_with_the_top_bit_is_the_qps_own, NULL,
		 "ud/qkey-with-the-top-bit-is-the-qps-own");
}
