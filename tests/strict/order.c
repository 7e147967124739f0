/* SPDX-License-Identifier: MIT */
/*
 * Destroying: what is in use is not destroyed and goes on as before, and what is destroyed under
 * work that is queued ends that work as the specification says.
 */
#include "strict.h"

enum { FIRST = 0x2000, PLACE = 0x3000, INBOX = 0x8000, GOOD = 16 };

static struct wr good(struct world *w, uint64_t id)
{
	struct wr wr = send_wr(id, &w->ra, FIRST, GOOD);

	wr.ah = 0;
	wr.qpn = w->b->qpn[0];
	wr.qkey = QKEY;
	return wr;
}

static void exchange(struct world *w, bool srq)
{
	struct wr in = recv_wr(100, &w->rb, INBOX, 0x100), out = good(w, 1);

	if (srq)
		equal(post_srq(w->b, 0, &in, 1, NULL), 0);
	else
		receive(w->b, 0, &in, 1);
	post(w->a, 0, &out, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	completes(w->b, RECV_CQ, 100, IBV_WC_SUCCESS);
	changes_to(w, w->b, INBOX, GOOD, w->a, FIRST);
}

static void what_is_in_use_is_busy(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;

	(void)arg;
	other.srq = 0;
	equal(make_srq(w->b, 0, 1, 8, 3), 0);
	w->rb = register_at(w->b, 1, addr_of(w->b, GUARD), ARENA - 2 * GUARD, ALL_RIGHTS);
	make_pair_with(w, &want, &other, NULL, NULL);
	for (unsigned round = 0; round < 2; round++) {
		equal(drop_srq(w->b, 0), EBUSY);
		refused_with(w->b, CAUSE_BUSY, EBUSY);
		for (unsigned cq = SEND_CQ; cq <= RECV_CQ; cq++) {
			equal(drop_cq(w->b, cq), EBUSY);
			refused_with(w->b, CAUSE_BUSY, EBUSY);
		}
		for (unsigned pd = 0; pd < 2; pd++) {
			equal(drop_pd(w->b, pd), EBUSY);
			refused_with(w->b, CAUSE_BUSY, EBUSY);
		}
		/* They go on as if nothing had been asked for. */
		exchange(w, true);
	}
	equal(drop_qp(w->b, 0), 0);
	equal(drop_srq(w->b, 0), 0);
	/* A region is left in each domain. */
	equal(drop_pd(w->b, 0), EBUSY);
	equal(drop_pd(w->b, 1), EBUSY);
	equal(deregister(&w->rb), 0);
	equal(drop_pd(w->b, 1), 0);
	w->rb = register_at(w->b, 0, addr_of(w->b, GUARD), ARENA - 2 * GUARD, ALL_RIGHTS);
}

/* Of a request that waits for its receiver: it was found good, and is not any more. */
static void deregistering_under_a_request_that_waits(struct world *w, const void *arg)
{
	struct region r = register_at(w->a, 0, addr_of(w->a, PLACE), 64, ALL_RIGHTS);
	struct wr in = recv_wr(100, &w->rb, INBOX, 0x100), out = send_wr(1, &r, PLACE, 64);

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	post(w->a, 0, &out, 1);
	silent(w->a, SEND_CQ);
	equal(deregister(&r), 0);
	if (over_the_wire())
		pause_ms(200); /* what was sent before may still be on its way: it must find no receive either */
	receive(w->b, 0, &in, 1);
	says(completes(w->a, SEND_CQ, 1, IBV_WC_LOC_PROT_ERR), CAUSE_LKEY_DEREGISTERED);
	equal(state_of(w->a, 0), IBV_QPS_ERR);
	silent(w->b, RECV_CQ);
	equal(state_of(w->b, 0), IBV_QPS_RTS);
}

static void deregistering_under_a_receive(struct world *w, const void *arg)
{
	struct region r = register_at(w->b, 0, addr_of(w->b, INBOX), 64, ALL_RIGHTS);
	struct wr in = recv_wr(100, &r, INBOX, 64), out = good(w, 1);

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	receive(w->b, 0, &in, 1);
	equal(deregister(&r), 0);
	post(w->a, 0, &out, 1);
	says(completes(w->a, SEND_CQ, 1, IBV_WC_REM_OP_ERR), CAUSE_RECEIVE_BAD_SGE);
	says(completes(w->b, RECV_CQ, 100, IBV_WC_LOC_PROT_ERR), CAUSE_RECEIVE_BAD_SGE);
	becomes(w->b, 0, IBV_QPS_ERR);
}

/* ---- Under a long message, which is moved piece by piece ---- */

enum { LONG_PAGES = 4096, LONG = LONG_PAGES * 4096 };

struct long_case {
	const char *name;
	enum ibv_wr_opcode op;
	/* Takes something away while the message is under way. */
	void (*take)(struct world *w, struct region *local, struct region *remote);
	enum ibv_wc_status status; /* unless it was fast enough to succeed */
	enum cause_code code;
};

static void deregister_local(struct world *w, struct region *local, struct region *remote)
{
	(void)w;
	(void)remote;
	equal(deregister(local), 0);
}

static void deregister_remote(struct world *w, struct region *local, struct region *remote)
{
	(void)w;
	(void)local;
	equal(deregister(remote), 0);
}

static void put_into(struct world *w, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	equal(modify_qp(w->b, 0, &attr, IBV_QP_STATE), 0);
}

static void reset_remote(struct world *w, struct region *local, struct region *remote)
{
	(void)local;
	(void)remote;
	put_into(w, IBV_QPS_RESET);
}

static void fail_remote(struct world *w, struct region *local, struct region *remote)
{
	(void)local;
	(void)remote;
	put_into(w, IBV_QPS_ERR);
}

static void destroy_remote(struct world *w, struct region *local, struct region *remote)
{
	(void)local;
	(void)remote;
	equal(drop_qp(w->b, 0), 0);
}

static const struct long_case long_cases[] = {
	{ "write/local-region-deregistered", IBV_WR_RDMA_WRITE, deregister_local,
	  IBV_WC_LOC_PROT_ERR, CAUSE_LKEY_DEREGISTERED },
	{ "write/remote-region-deregistered", IBV_WR_RDMA_WRITE, deregister_remote,
	  IBV_WC_REM_ACCESS_ERR, CAUSE_RKEY_DEREGISTERED },
	{ "read/local-region-deregistered", IBV_WR_RDMA_READ, deregister_local, IBV_WC_LOC_PROT_ERR,
	  CAUSE_LKEY_DEREGISTERED },
	{ "read/remote-region-deregistered", IBV_WR_RDMA_READ, deregister_remote,
	  IBV_WC_REM_ACCESS_ERR, CAUSE_RKEY_DEREGISTERED },
	{ "send/receive-region-deregistered", IBV_WR_SEND, deregister_remote, IBV_WC_REM_OP_ERR,
	  CAUSE_RECEIVE_BAD_SGE },
	{ "write/responder-reset", IBV_WR_RDMA_WRITE, reset_remote, IBV_WC_RETRY_EXC_ERR,
	  CAUSE_PEER_QP_STATE },
	{ "send/responder-reset", IBV_WR_SEND, reset_remote, IBV_WC_RETRY_EXC_ERR,
	  CAUSE_PEER_QP_STATE },
	{ "send/responder-failed", IBV_WR_SEND, fail_remote, IBV_WC_RETRY_EXC_ERR,
	  CAUSE_PEER_QP_STATE },
	{ "send/responder-destroyed", IBV_WR_SEND, destroy_remote, IBV_WC_RETRY_EXC_ERR,
	  CAUSE_PEER_QP_UNKNOWN },
};

/* What was given back is not touched any more, whatever was under way. */
static void run_long(struct world *w, const void *arg)
{
	const struct long_case *c = arg;
	struct node *owner = c->take == deregister_local ? w->a : w->b;
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct side a = side_default(w->a, 0, IBV_QPT_RC, w->b, 0);
	uint64_t from = map_pages(w->a, LONG_PAGES, ANONYMOUS), to = map_pages(w->b, LONG_PAGES, ANONYMOUS),
		 sum;
	struct region local = register_at(w->a, 0, from, LONG, ALL_RIGHTS);
	struct region remote = register_at(w->b, 0, to, LONG, ALL_RIGHTS);
	struct wr in = { .id = 100, .sges = 1, .sge = { { to, LONG, remote.lkey } } };
	struct wr out = { .id = 1, .op = c->op, .sges = 1, .sge = { { from, LONG, local.lkey } } };
	const bool silence = c->status == IBV_WC_RETRY_EXC_ERR;
	enum ibv_wc_status flushed = IBV_WC_SUCCESS;
	bool in_vain;

	/* What ends in silence costs these timers; what does not must not be ended by them. */
	a.timeout = silence ? 15 : 18;
	a.retries = silence ? 2 : 7;
	make_pair_with(w, &want, &other, &a, NULL);
	if (c->op == IBV_WR_SEND)
		receive(w->b, 0, &in, 1);
	out.flags = IBV_SEND_SIGNALED;
	out.remote = to;
	out.rkey = remote.rkey;
	post(w->a, 0, &out, 1);
	c->take(w, &local, &remote);
	/* In the error state the buffer is the program's when its receive has come back. */
	if (c->take == fail_remote)
		flushed = next_wc(w->b, RECV_CQ).status;
	sum = sum_of(owner, owner == w->a ? from : to, LONG);
	struct ibv_wc wc = next_wc(w->a, SEND_CQ);

	in_vain = wc.status != IBV_WC_SUCCESS;
	if (in_vain) {
		equal(wc.status, c->status);
		/* Who asks the other's helper may be waiting for it. */
		if (!silence || wc.vendor_err != CAUSE_PEER_SILENT)
			says(wc, c->code);
		equal(state_of(w->a, 0), IBV_QPS_ERR);
	}
	check(sum_of(owner, owner == w->a ? from : to, LONG) == sum, "changed afterwards");
	if (c->take == fail_remote)
		equal(flushed, in_vain ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS);
	if (in_vain && c->take == deregister_remote && c->op == IBV_WR_SEND) {
		completes(w->b, RECV_CQ, 100, IBV_WC_LOC_PROT_ERR);
		becomes(w->b, 0, IBV_QPS_ERR);
	}
	if (in_vain && c->take == deregister_remote && c->op != IBV_WR_SEND)
		raises(w->b, IBV_EVENT_QP_ACCESS_ERR, 0);
}

/* Neither end's completions of it appear any more. */
static void destroying_a_qp_takes_its_work_along(struct world *w, const void *arg)
{
	const enum ibv_qp_type type = *(const enum ibv_qp_type *)arg;
	struct wr in[3], out[2];

	make_pair(w, type);
	for (unsigned i = 0; i < 3; i++)
		in[i] = recv_wr(100 + i, &w->rb, INBOX + i * 0x400, 0x100);
	receive(w->b, 0, in, 3);
	for (unsigned i = 0; i < 2; i++)
		out[i] = good(w, 1 + i);
	changes(w, w->b, INBOX, GRH_BYTES + GOOD);
	changes(w, w->b, INBOX + 0x400, GRH_BYTES + GOOD);
	post(w->a, 0, out, 2);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	equal(drop_qp(w->a, 0), 0);
	silent(w->a, SEND_CQ);
	completes(w->b, RECV_CQ, 100, IBV_WC_SUCCESS);
	equal(drop_qp(w->b, 0), 0);
	silent(w->b, RECV_CQ);
}

/* Completions of an SRQ outlive neither it nor its QP, and polling afterwards finds nothing. */
static void destroying_an_srq_under_completions(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct wr in[3], out[2];

	(void)arg;
	other.srq = 0;
	equal(make_srq(w->b, 0, 0, 8, 3), 0);
	make_pair_with(w, &want, &other, NULL, NULL);
	for (unsigned i = 0; i < 3; i++)
		in[i] = recv_wr(100 + i, &w->rb, INBOX + i * 0x400, 0x100);
	equal(post_srq(w->b, 0, in, 3, NULL), 0);
	for (unsigned i = 0; i < 2; i++)
		out[i] = good(w, 1 + i);
	post(w->a, 0, out, 2);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	completes(w->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	changes(w, w->b, INBOX, GOOD);
	changes(w, w->b, INBOX + 0x400, GOOD);
	equal(drop_qp(w->b, 0), 0);
	equal(drop_srq(w->b, 0), 0);
	silent(w->b, RECV_CQ);
	/* In the same places. */
	equal(make_srq(w->b, 0, 0, 8, 3), 0);
	equal(make_qp(w->b, 0, &other), 0);
	silent(w->b, RECV_CQ);
}

/* The address handle is the program's again when the post returns. */
static void destroying_an_ah_under_a_request(struct world *w, const void *arg)
{
	struct wr in = recv_wr(100, &w->rb, INBOX, 0x100), out;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };

	(void)arg;
	make_pair(w, IBV_QPT_UD);
	receive(w->b, 0, &in, 1);
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	out = good(w, 1);
	post(w->a, 0, &out, 1);
	equal(drop_ah(w->a, 0), 0);
	attr.qp_state = IBV_QPS_RTS;
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	completes(w->b, RECV_CQ, 100, IBV_WC_SUCCESS);
	changes(w, w->b, INBOX, GRH_BYTES);
	changes_to(w, w->b, INBOX + GRH_BYTES, GOOD, w->a, FIRST);
}

/* QPNs and keys are slow to be reused: who holds an old one reaches nobody. */
static void numbers_are_not_given_out_again_at_once(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC);
	uint32_t qpn[200], key[200];

	(void)arg;
	for (unsigned i = 0; i < 200; i++) {
		struct region r = register_at(w->a, 0, addr_of(w->a, PLACE), 64, ALL_RIGHTS);

		equal(make_qp(w->a, 0, &want), 0);
		qpn[i] = w->a->qpn[0];
		key[i] = r.rkey;
		check(r.lkey != r.rkey, "lkey and rkey are the same");
		for (unsigned j = 0; j < i; j++) {
			check(qpn[j] != qpn[i], "QPN %#x again, after %u others", qpn[i],
			      i - j - 1);
			check(key[j] != key[i], "key %#x again, after %u others", key[i],
			      i - j - 1);
		}
		equal(drop_qp(w->a, 0), 0);
		equal(deregister(&r), 0);
	}
}

void add_order(void)
{
	static const enum ibv_qp_type rc = IBV_QPT_RC, uc = IBV_QPT_UC, ud = IBV_QPT_UD;

	add_case("order", what_is_in_use_is_busy, NULL, "what-is-in-use-is-busy");
	add_case("order", deregistering_under_a_request_that_waits, NULL,
		 "deregistering-under-a-request-that-waits");
	add_case("order", deregistering_under_a_receive, NULL, "deregistering-under-a-receive");
	add_case("order", destroying_a_qp_takes_its_work_along, &rc, "destroying-a-qp/rc");
	add_case("order", destroying_a_qp_takes_its_work_along, &uc, "destroying-a-qp/uc");
	add_case("order", destroying_a_qp_takes_its_work_along, &ud, "destroying-a-qp/ud");
	add_case("order", destroying_an_srq_under_completions, NULL,
		 "destroying-an-srq-under-completions");
	add_case("order", destroying_an_ah_under_a_request, NULL,
		 "destroying-an-ah-under-a-request");
	for (unsigned i = 0; i < sizeof(long_cases) / sizeof(*long_cases); i++)
		add_case("order", run_long, &long_cases[i], "under-a-long/%s", long_cases[i].name);
	add_case("order", numbers_are_not_given_out_again_at_once, NULL,
		 "numbers-are-not-given-out-again-at-once");
}
