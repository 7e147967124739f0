/* SPDX-License-Identifier: MIT */
/*
 * Keys, bounds, rights and protection domains.
 *
 * Every row is the same scene: four requests in one list, of which the second has a bad key, and
 * receives at both ends. A local key fails the requester alone (specification 9.9.2: RC to the
 * error state, UC and UD to SQE), a remote key both ends of an RC pair (9.9.3, class C) and neither
 * of a UC pair (class D), a receive's key its QP, and the requester's if it is RC.
 */
#include "strict.h"

/* Offsets that a scene uses, at both ends. */
enum { FIRST = 0x2000, PLACE = 0x3000, INBOX = 0x8000, SIZE = 32, GOOD = 16 };

/* What a bad key was made of, and what the cause has to say of it. */
struct aim {
	uint64_t addr;
	uint32_t lkey, rkey;
	uint64_t region_addr, region_length; /* 0: the key names none */
	enum cause_code lcode, rcode;
};

struct fault {
	const char *name;
	/* Something bad for `length` bytes at offset `at` of n; right is what the access needs
	 * there. */
	struct aim (*spoil)(struct world *w, struct node *n, uint32_t at, uint32_t length,
			    unsigned right);
};

static struct aim aim_at(const struct region *r, uint64_t addr, enum cause_code lcode,
			 enum cause_code rcode)
{
	return (struct aim){ addr, r->lkey, r->rkey, r->addr, r->length, lcode, rcode };
}

static struct region whole(struct world *w, const struct node *n)
{
	return n == w->a ? w->ra : w->rb;
}

static struct aim unknown(struct world *w, struct node *n, uint32_t at, uint32_t length,
			  unsigned right)
{
	struct region r = whole(w, n);
	struct aim aim = aim_at(&r, addr_of(n, at), CAUSE_LKEY_UNKNOWN, CAUSE_RKEY_UNKNOWN);

	(void)length;
	(void)right;
	/* Another region's number, which was never given out. */
	aim.lkey ^= 0x5a5a5000u;
	aim.rkey ^= 0x5a5a5000u;
	aim.region_addr = aim.region_length = 0;
	return aim;
}

static struct aim guessed(struct world *w, struct node *n, uint32_t at, uint32_t length,
			  unsigned right)
{
	struct aim aim = unknown(w, n, at, length, right);
	struct region r = whole(w, n);

	/* The region's number, and the tag that it did not get. */
	aim.lkey = r.lkey ^ 2;
	aim.rkey = r.rkey ^ 2;
	return aim;
}

static struct aim zero(struct world *w, struct node *n, uint32_t at, uint32_t length,
		       unsigned right)
{
	struct aim aim = unknown(w, n, at, length, right);

	aim.lkey = aim.rkey = 0;
	return aim;
}

/* The other node's key. In one process both have one table of regions: then the domain is
 * another. */
static struct aim foreign(struct world *w, struct node *n, uint32_t at, uint32_t length,
			  unsigned right)
{
	struct aim aim = unknown(w, n, at, length, right);
	struct region other = whole(w, n == w->a ? w->b : w->a);

	aim.lkey = other.lkey;
	aim.rkey = other.rkey;
	if (!w->two_processes) {
		aim = aim_at(&other, addr_of(n, at), CAUSE_LKEY_PD, CAUSE_RKEY_PD);
	}
	return aim;
}

static struct aim deregistered(struct world *w, struct node *n, uint32_t at, uint32_t length,
			       unsigned right)
{
	struct region r = register_at(n, 0, addr_of(n, at), length, ALL_RIGHTS);

	(void)w;
	(void)right;
	equal(deregister(&r), 0);
	return aim_at(&r, r.addr, CAUSE_LKEY_DEREGISTERED, CAUSE_RKEY_DEREGISTERED);
}

static struct aim registered_again(struct world *w, struct node *n, uint32_t at, uint32_t length,
				   unsigned right)
{
	struct aim aim = deregistered(w, n, at, length, right);

	/* Whoever reuses what the old key named at once would let the old key in. */
	register_at(n, 0, addr_of(n, at), length, ALL_RIGHTS);
	return aim;
}

static struct aim exchanged(struct world *w, struct node *n, uint32_t at, uint32_t length,
			    unsigned right)
{
	struct region r = whole(w, n);
	struct aim aim = aim_at(&r, addr_of(n, at), CAUSE_LKEY_IS_RKEY, CAUSE_RKEY_IS_LKEY);

	(void)length;
	(void)right;
	aim.lkey = r.rkey;
	aim.rkey = r.lkey;
	return aim;
}

static struct aim out_of_bounds(struct node *n, uint32_t at, uint32_t from, uint32_t to)
{
	struct region r = register_at(n, 0, addr_of(n, from), to - from, ALL_RIGHTS);

	return aim_at(&r, addr_of(n, at), CAUSE_LKEY_BOUNDS, CAUSE_RKEY_BOUNDS);
}

static struct aim byte_before(struct world *w, struct node *n, uint32_t at, uint32_t length,
			      unsigned right)
{
	(void)w;
	(void)right;
	return out_of_bounds(n, at, at + 1, at + length + 100);
}

static struct aim byte_behind(struct world *w, struct node *n, uint32_t at, uint32_t length,
			      unsigned right)
{
	(void)w;
	(void)right;
	return out_of_bounds(n, at, at - 100, at + length - 1);
}

static struct aim two_regions(struct world *w, struct node *n, uint32_t at, uint32_t length,
			      unsigned right)
{
	(void)w;
	(void)right;
	register_at(n, 0, addr_of(n, at + length / 2), length, ALL_RIGHTS);
	return out_of_bounds(n, at, at, at + length / 2);
}

static struct aim wrapping(struct world *w, struct node *n, uint32_t at, uint32_t length,
			   unsigned right)
{
	struct region r = whole(w, n);

	(void)at;
	(void)right;
	/* A multiple of 8, so that an atomic has no other fault. */
	return aim_at(&r, length > 8 ? UINT64_MAX - 15 : UINT64_MAX - 7, CAUSE_LKEY_BOUNDS,
		      CAUSE_RKEY_BOUNDS);
}

static struct aim null_address(struct world *w, struct node *n, uint32_t at, uint32_t length,
			       unsigned right)
{
	struct region r = whole(w, n);

	(void)at;
	(void)length;
	(void)right;
	return aim_at(&r, 0, CAUSE_LKEY_BOUNDS, CAUSE_RKEY_BOUNDS);
}

/* Registered under other addresses than its own. */
static struct aim by_its_own_address(struct world *w, struct node *n, uint32_t at, uint32_t length,
				     unsigned right)
{
	int error;
	struct region r =
		register_iova(n, 0, addr_of(n, at), length, 0x10000000 + at, ALL_RIGHTS, &error);

	(void)w;
	(void)right;
	equal(error, 0);
	return aim_at(&r, addr_of(n, at), CAUSE_LKEY_BOUNDS, CAUSE_RKEY_BOUNDS);
}

static struct aim other_domain(struct world *w, struct node *n, uint32_t at, uint32_t length,
			       unsigned right)
{
	struct region r = register_at(n, 1, addr_of(n, at), length, ALL_RIGHTS);

	(void)w;
	(void)right;
	return aim_at(&r, r.addr, CAUSE_LKEY_PD, CAUSE_RKEY_PD);
}

static struct aim moved_to_other_domain(struct world *w, struct node *n, uint32_t at,
					uint32_t length, unsigned right)
{
	struct region r = register_at(n, 0, addr_of(n, at), length, ALL_RIGHTS);

	(void)w;
	(void)right;
	equal(reregister(&r, IBV_REREG_MR_CHANGE_PD, 1, 0, 0, 0), 0);
	return aim_at(&r, r.addr, CAUSE_LKEY_PD, CAUSE_RKEY_PD);
}

/* All rights but the one that is needed, and those that need it. */
static unsigned all_but(unsigned right)
{
	return right == IBV_ACCESS_LOCAL_WRITE ? IBV_ACCESS_REMOTE_READ : ALL_RIGHTS & ~right;
}

static struct aim without_right(struct world *w, struct node *n, uint32_t at, uint32_t length,
				unsigned right)
{
	struct region r = register_at(n, 0, addr_of(n, at), length, all_but(right));

	(void)w;
	return aim_at(&r, r.addr, CAUSE_LKEY_ACCESS, CAUSE_RKEY_ACCESS);
}

static struct aim right_taken_away(struct world *w, struct node *n, uint32_t at, uint32_t length,
				   unsigned right)
{
	struct region r = register_at(n, 0, addr_of(n, at), length, ALL_RIGHTS);

	(void)w;
	equal(reregister(&r, IBV_REREG_MR_CHANGE_ACCESS, 0, 0, 0, all_but(right)), 0);
	return aim_at(&r, r.addr, CAUSE_LKEY_ACCESS, CAUSE_RKEY_ACCESS);
}

static struct aim moved_away(struct world *w, struct node *n, uint32_t at, uint32_t length,
			     unsigned right)
{
	struct region r = register_at(n, 0, addr_of(n, at), length, ALL_RIGHTS);

	(void)w;
	(void)right;
	equal(reregister(&r, IBV_REREG_MR_CHANGE_TRANSLATION, 0, addr_of(n, at + length), length,
			 0),
	      0);
	return aim_at(&r, addr_of(n, at), CAUSE_LKEY_BOUNDS, CAUSE_RKEY_BOUNDS);
}

static const struct fault faults[] = {
	{ "unknown-key", unknown },
	{ "guessed-key", guessed },
	{ "zero-key", zero },
	{ "key-of-the-other-node", foreign },
	{ "deregistered-key", deregistered },
	{ "deregistered-key-beside-its-successor", registered_again },
	{ "lkey-and-rkey-exchanged", exchanged },
	{ "one-byte-before-the-region", byte_before },
	{ "one-byte-behind-the-region", byte_behind },
	{ "across-two-neighbouring-regions", two_regions },
	{ "address-that-wraps", wrapping },
	{ "address-zero", null_address },
	{ "own-address-instead-of-iova", by_its_own_address },
	{ "other-pd", other_domain },
	{ "moved-to-other-pd", moved_to_other_domain },
	{ "moved-away", moved_away },
	{ "without-the-right", without_right },
	{ "right-taken-away", right_taken_away },
};

enum where { LOCAL, SECOND_SGE, REMOTE, RECEIVE };

struct key_case {
	enum ibv_qp_type type;
	enum ibv_wr_opcode op;
	enum where where;
	const struct fault *fault;
};

static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static unsigned right_for(const struct key_case *k)
{
	if (k->where == RECEIVE)
		return IBV_ACCESS_LOCAL_WRITE;
	if (k->where != REMOTE)
		return k->op == IBV_WR_RDMA_READ || is_atomic(k->op) ? IBV_ACCESS_LOCAL_WRITE : 0;
	return k->op == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ :
	       is_atomic(k->op)		 ? IBV_ACCESS_REMOTE_ATOMIC :
					   IBV_ACCESS_REMOTE_WRITE;
}

/* A request that is right: what the scene begins with. */
static struct wr good_wr(struct world *w, enum ibv_qp_type type, uint64_t id)
{
	struct wr wr = type == IBV_QPT_UD ?
			       send_wr(id, &w->ra, FIRST, GOOD) :
			       rdma_wr(id, IBV_WR_RDMA_WRITE, &w->ra, FIRST, GOOD, &w->rb, FIRST);

	wr.ah = 0;
	wr.qpn = w->b->qpn[0];
	wr.qkey = QKEY;
	return wr;
}

static struct wr good_send(struct world *w, uint64_t id, unsigned flags)
{
	struct wr wr = send_wr(id, &w->ra, FIRST, GOOD);

	wr.flags = flags;
	wr.ah = 0;
	wr.qpn = w->b->qpn[0];
	wr.qkey = QKEY;
	return wr;
}

/* Receive number i of node n. */
static struct wr inbox(struct world *w, const struct node *n, unsigned i)
{
	struct region r = whole(w, n);

	return recv_wr(100 + i, &r, INBOX + i * 0x400, 0x100);
}

static uint32_t header(enum ibv_qp_type type)
{
	return type == IBV_QPT_UD ? GRH_BYTES : 0;
}

/* Receive number i of B got a good send. */
static void arrived(struct world *w, enum ibv_qp_type type, unsigned i)
{
	struct ibv_wc wc = completes(w->b, RECV_CQ, 100 + i, IBV_WC_SUCCESS);

	equal(wc.byte_len, GOOD + header(type));
	changes(w, w->b, INBOX + i * 0x400, header(type));
	changes_to(w, w->b, INBOX + i * 0x400 + header(type), GOOD, w->a, FIRST);
}

/* The good first request, wherever it went; returns the number of B's receives that are used up. */
static unsigned first_is_good(struct world *w, enum ibv_qp_type type)
{
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	if (type != IBV_QPT_UD) {
		changes_to(w, w->b, FIRST, GOOD, w->a, FIRST);
		return 0;
	}
	arrived(w, type, 0);
	return 1;
}

static void check_numbers(struct world *w, const struct key_case *k, const struct aim *aim,
			  enum cause_code code, int error, uint32_t key, uint32_t length)
{
	struct cause c = cause_of(w->a, code);

	equal(c.error, error);
	equal(c.qpn, w->a->qpn[0]);
	equal(c.peer_qpn, w->b->qpn[0]);
	is_of_request(&c, 2);
	if (c.wr_id) {
		equal(c.wr_index, 1);
		equal(c.opcode, k->op);
	}
	equal(c.key, key);
	equal(c.addr, aim->addr);
	equal(c.length, length);
	if (aim->region_length) {
		equal(c.region_addr, aim->region_addr);
		equal(c.region_length, aim->region_length);
	}
}

/* What the requester's QP and its receives come to when a request of its own fails. */
static void requester_failed(struct world *w, enum ibv_qp_type type, unsigned used)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct wr again;

	completes(w->a, SEND_CQ, 3, IBV_WC_WR_FLUSH_ERR);
	completes(w->a, SEND_CQ, 4, IBV_WC_WR_FLUSH_ERR);
	if (type == IBV_QPT_RC) {
		completes(w->a, RECV_CQ, 100, IBV_WC_WR_FLUSH_ERR);
		completes(w->a, RECV_CQ, 101, IBV_WC_WR_FLUSH_ERR);
		equal(state_of(w->a, 0), IBV_QPS_ERR);
		return;
	}
	silent(w->a, RECV_CQ);
	equal(state_of(w->a, 0), IBV_QPS_SQE);
	/* What is posted in SQE is flushed as well; the way back is to RTS, and then it works. */
	again = good_send(w, 5, 0);
	post(w->a, 0, &again, 1);
	completes(w->a, SEND_CQ, 5, IBV_WC_WR_FLUSH_ERR);
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	again = good_send(w, 6, IBV_SEND_SIGNALED);
	post(w->a, 0, &again, 1);
	completes(w->a, SEND_CQ, 6, IBV_WC_SUCCESS);
	arrived(w, type, used);
}

static void local_key(struct world *w, const struct key_case *k, const struct aim *aim)
{
	unsigned used = first_is_good(w, k->type);
	uint32_t length = is_atomic(k->op) ? 8 : SIZE;
	struct ibv_wc wc = completes(w->a, SEND_CQ, 2, IBV_WC_LOC_PROT_ERR);

	says(wc, aim->lcode);
	check_numbers(w, k, aim, aim->lcode, IBV_WC_LOC_PROT_ERR, aim->lkey, length);
	requester_failed(w, k->type, used);
	/* The other end knows nothing of it. */
	silent(w->b, RECV_CQ);
	equal(state_of(w->b, 0), IBV_QPS_RTS);
}

static void remote_key(struct world *w, const struct key_case *k, const struct aim *aim)
{
	uint32_t length = is_atomic(k->op) ? 8 : SIZE;
	struct ibv_wc wc;

	first_is_good(w, k->type);
	if (k->type == IBV_QPT_UC) {
		/* Dropped, and nobody hears of it. */
		completes(w->a, SEND_CQ, 4, IBV_WC_SUCCESS);
		arrived(w, k->type, 0);
		arrived(w, k->type, 1);
		silent(w->b, RECV_CQ);
		check_numbers(w, k, aim, CAUSE_DROP_ACCESS, IBV_WC_SUCCESS, aim->rkey, length);
		equal(state_of(w->a, 0), IBV_QPS_RTS);
		equal(state_of(w->b, 0), IBV_QPS_RTS);
		return;
	}
	wc = completes(w->a, SEND_CQ, 2, IBV_WC_REM_ACCESS_ERR);
	says(wc, aim->rcode);
	check_numbers(w, k, aim, aim->rcode, IBV_WC_REM_ACCESS_ERR, aim->rkey, length);
	requester_failed(w, k->type, 0);
	raises(w->b, IBV_EVENT_QP_ACCESS_ERR, 0);
	equal(state_of(w->b, 0), IBV_QPS_ERR);
	for (unsigned i = 0; i < 3; i++)
		completes(w->b, RECV_CQ, 100 + i, IBV_WC_WR_FLUSH_ERR);
	silent(w->b, RECV_CQ);
}

static void receive_key(struct world *w, const struct key_case *k, const struct aim *aim)
{
	struct ibv_wc wc;

	arrived(w, k->type, 0);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	if (k->type == IBV_QPT_RC) {
		wc = completes(w->a, SEND_CQ, 2, IBV_WC_REM_OP_ERR);
		says(wc, CAUSE_RECEIVE_BAD_SGE);
		check_numbers(w, k, aim, CAUSE_RECEIVE_BAD_SGE, IBV_WC_REM_OP_ERR, aim->lkey, SIZE);
		requester_failed(w, k->type, 0);
	} else {
		completes(w->a, SEND_CQ, 4, IBV_WC_SUCCESS);
		check_numbers(w, k, aim, CAUSE_DROP_BAD_SGE, IBV_WC_SUCCESS, aim->lkey,
			      SIZE + header(k->type));
		equal(state_of(w->a, 0), IBV_QPS_RTS);
	}
	wc = completes(w->b, RECV_CQ, 101, IBV_WC_LOC_PROT_ERR);
	says(wc, CAUSE_RECEIVE_BAD_SGE);
	completes(w->b, RECV_CQ, 102, IBV_WC_WR_FLUSH_ERR);
	silent(w->b, RECV_CQ);
	becomes(w->b, 0, IBV_QPS_ERR);
}

static void run_key_case(struct world *w, const void *arg)
{
	const struct key_case *k = arg;
	uint32_t length = is_atomic(k->op) ? 8 : SIZE + (k->where == RECEIVE ? header(k->type) : 0);
	struct wr in[3], out[4];
	struct aim aim;

	make_pair(w, k->type);
	aim = k->fault->spoil(w, k->where >= REMOTE ? w->b : w->a, PLACE, length, right_for(k));
	for (unsigned i = 0; i < 3; i++)
		in[i] = inbox(w, w->b, i);
	if (k->where == RECEIVE)
		in[1].sge[0] = (struct ibv_sge){ aim.addr, length, aim.lkey };
	receive(w->b, 0, in, 3);
	for (unsigned i = 0; i < 2; i++)
		in[i] = inbox(w, w->a, i);
	receive(w->a, 0, in, 2);

	out[0] = k->where == RECEIVE ? good_send(w, 1, IBV_SEND_SIGNALED) : good_wr(w, k->type, 1);
	out[1] = rdma_wr(2, k->op, &w->ra, PLACE, is_atomic(k->op) ? 8 : SIZE, &w->rb, PLACE);
	out[1].flags = 0;
	out[1].ah = 0;
	out[1].qpn = w->b->qpn[0];
	out[1].qkey = QKEY;
	if (k->where == LOCAL)
		out[1].sge[0] = (struct ibv_sge){ aim.addr, out[1].sge[0].length, aim.lkey };
	if (k->where == SECOND_SGE) {
		out[1].sges = 3;
		out[1].sge[1] = (struct ibv_sge){ aim.addr, SIZE, aim.lkey };
		out[1].sge[2] = out[1].sge[0];
	}
	if (k->where == REMOTE) {
		out[1].remote = aim.addr;
		out[1].rkey = aim.rkey;
	}
	out[2] = good_send(w, 3, 0);
	out[3] = good_send(w, 4, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 4);
	if (k->where == RECEIVE)
		receive_key(w, k, &aim);
	else if (k->where == REMOTE)
		remote_key(w, k, &aim);
	else
		local_key(w, k, &aim);
	silent(w->a, SEND_CQ);
}

/* ---- Rights of the QP ---- */

struct qp_right_case {
	enum ibv_qp_type type;
	enum ibv_wr_opcode op;
	unsigned right;
	uint32_t length;
};

static void run_qp_right(struct world *w, const void *arg)
{
	const struct qp_right_case *q = arg;
	struct qp_want a = qp_default(q->type), b = a;
	struct side side = side_default(w->b, 0, q->type, w->a, 0);
	struct wr in[3], out[4];
	struct cause c;

	side.access &= ~q->right;
	make_pair_with(w, &a, &b, NULL, &side);
	for (unsigned i = 0; i < 3; i++)
		in[i] = inbox(w, w->b, i);
	receive(w->b, 0, in, 3);
	for (unsigned i = 0; i < 2; i++)
		in[i] = inbox(w, w->a, i);
	receive(w->a, 0, in, 2);
	out[0] = good_send(w, 1, IBV_SEND_SIGNALED);
	out[1] = rdma_wr(2, q->op, &w->ra, PLACE, q->length, &w->rb, PLACE);
	out[1].flags = 0;
	out[2] = good_send(w, 3, 0);
	out[3] = good_send(w, 4, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 4);
	arrived(w, q->type, 0);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	if (q->type == IBV_QPT_UC) {
		completes(w->a, SEND_CQ, 4, IBV_WC_SUCCESS);
		arrived(w, q->type, 1);
		arrived(w, q->type, 2);
		c = cause_of(w->a, CAUSE_DROP_ACCESS);
		equal(state_of(w->a, 0), IBV_QPS_RTS);
		equal(state_of(w->b, 0), IBV_QPS_RTS);
	} else {
		says(completes(w->a, SEND_CQ, 2, IBV_WC_REM_INV_REQ_ERR),
		      CAUSE_QP_ACCESS);
		c = cause_of(w->a, CAUSE_QP_ACCESS);
		requester_failed(w, q->type, 0);
		raises(w->b, IBV_EVENT_QP_REQ_ERR, 0);
		equal(state_of(w->b, 0), IBV_QPS_ERR);
		completes(w->b, RECV_CQ, 101, IBV_WC_WR_FLUSH_ERR);
		completes(w->b, RECV_CQ, 102, IBV_WC_WR_FLUSH_ERR);
	}
	is_of_request(&c, 2);
	equal(c.access, q->right);
	equal(c.region_access, side.access);
	silent(w->b, RECV_CQ);
}

/* ---- Zero bytes ---- */

struct zero_case {
	enum ibv_qp_type type;
	enum ibv_wr_opcode op;
};

/* Zero bytes at any address with any key are nothing (specification 9.7.4.1.2); a local SGE without
 * bytes is not looked at either. */
static void run_zero(struct world *w, const void *arg)
{
	const struct zero_case *z = arg;
	bool takes = z->op != IBV_WR_RDMA_WRITE && z->op != IBV_WR_RDMA_READ;
	struct wr in, out;

	make_pair(w, z->type);
	in = inbox(w, w->b, 0);
	in.sge[1] = (struct ibv_sge){ .addr = 12, .lkey = 0xdeadbeef };
	in.sges = 2;
	receive(w->b, 0, &in, 1);
	for (unsigned sges = 0; sges < 2; sges++) {
		out = rdma_wr(1 + sges, z->op, &w->ra, PLACE, 0, &w->rb, PLACE);
		out.sge[0] = (struct ibv_sge){ .addr = UINT64_MAX, .lkey = 0xdeadbeef };
		out.sges = (int)sges;
		out.remote = UINT64_MAX - 2;
		out.rkey = 0xdeadbeef;
		out.ah = 0;
		out.qpn = w->b->qpn[0];
		out.qkey = QKEY;
		post(w->a, 0, &out, 1);
		completes(w->a, SEND_CQ, 1 + sges, IBV_WC_SUCCESS);
		if (takes) {
			equal(completes(w->b, RECV_CQ, 100, IBV_WC_SUCCESS).byte_len,
			      header(z->type));
			receive(w->b, 0, &in, 1);
		}
	}
	if (takes)
		changes(w, w->b, INBOX, header(z->type));
	equal(state_of(w->a, 0), IBV_QPS_RTS);
	equal(state_of(w->b, 0), IBV_QPS_RTS);
}

/* ---- Protection domains of SRQs and AHs; receives that are not looked into ---- */

static void srq_regions_are_of_its_own_pd(struct world *w, const void *arg)
{
	struct qp_want a = qp_default(IBV_QPT_RC), b = a;
	struct region own = register_at(w->b, 1, addr_of(w->b, INBOX), 0x100, ALL_RIGHTS);
	struct wr in[2] = { recv_wr(100, &own, INBOX, 0x100),
			    recv_wr(101, &w->rb, INBOX + 0x400, 0x100) };
	struct wr out[2];

	(void)arg;
	b.srq = 0;
	equal(make_srq(w->b, 0, 1, 8, 2), 0);
	make_pair_with(w, &a, &b, NULL, NULL);
	equal(post_srq(w->b, 0, in, 2, NULL), 0);
	out[0] = good_send(w, 1, IBV_SEND_SIGNALED);
	out[1] = good_send(w, 2, IBV_SEND_SIGNALED);
	post(w->a, 0, out, 2);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	arrived(w, IBV_QPT_RC, 0);
	says(completes(w->a, SEND_CQ, 2, IBV_WC_REM_OP_ERR), CAUSE_RECEIVE_BAD_SGE);
	says(completes(w->b, RECV_CQ, 101, IBV_WC_LOC_PROT_ERR), CAUSE_RECEIVE_BAD_SGE);
	raises(w->b, IBV_EVENT_QP_LAST_WQE_REACHED, 0);
	equal(state_of(w->b, 0), IBV_QPS_ERR);
}

static void ah_of_another_pd_is_a_local_error(struct world *w, const void *arg)
{
	struct wr in = inbox(w, w->b, 0), out[2];

	(void)arg;
	make_pair(w, IBV_QPT_UD);
	receive(w->b, 0, &in, 1);
	equal(make_ah(w->a, 1, 1, &w->b->gid), 0);
	out[0] = good_send(w, 2, 0);
	out[0].ah = 1;
	out[1] = good_send(w, 3, 0);
	post(w->a, 0, out, 2);
	says(completes(w->a, SEND_CQ, 2, IBV_WC_LOC_QP_OP_ERR), CAUSE_AH_PD);
	completes(w->a, SEND_CQ, 3, IBV_WC_WR_FLUSH_ERR);
	equal(state_of(w->a, 0), IBV_QPS_SQE);
	silent(w->b, RECV_CQ);
	equal(cause_of(w->a, CAUSE_AH_PD).wr_id, 2);
}

static void write_with_imm_does_not_look_into_the_receive(struct world *w, const void *arg)
{
	struct wr in = inbox(w, w->b, 0), out;

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	in.sge[0].lkey ^= 0x5000;
	receive(w->b, 0, &in, 1);
	out = rdma_wr(1, IBV_WR_RDMA_WRITE_WITH_IMM, &w->ra, PLACE, SIZE, &w->rb, PLACE);
	post(w->a, 0, &out, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	equal(completes(w->b, RECV_CQ, 100, IBV_WC_SUCCESS).byte_len, SIZE);
	changes_to(w, w->b, PLACE, SIZE, w->a, PLACE);
}

/* ---- Registration ---- */

struct registration_case {
	const char *name;
	uint32_t at;
	uint64_t length;
	unsigned access;
	int error;
	enum cause_code code;
};

static const struct registration_case registrations[] = {
	{ "zero-bytes", 0, 0, ALL_RIGHTS, EINVAL, CAUSE_REG_RANGE },
	{ "range-that-wraps", 0, UINT64_MAX - 100, ALL_RIGHTS, EINVAL, CAUSE_REG_RANGE },
	{ "remote-write-without-local-write", 0, 64, IBV_ACCESS_REMOTE_WRITE, EINVAL,
	  CAUSE_REG_ACCESS },
	{ "remote-atomic-without-local-write", 0, 64, IBV_ACCESS_REMOTE_ATOMIC, EINVAL,
	  CAUSE_REG_ACCESS },
	{ "unknown-access-flag", 0, 64, 1u << 18, EINVAL, CAUSE_REG_ACCESS },
};

static void run_registration(struct world *w, const void *arg)
{
	const struct registration_case *c = arg;
	int error;

	try_register(w->a, 0, addr_of(w->a, c->at), c->length, c->access, &error);
	equal(error, c->error);
	refused_with(w->a, c->code, c->error);
}

static void registering_what_is_not_mapped_is_efault(struct world *w, const void *arg)
{
	uint64_t pages = map_pages(w->a, 2, ANONYMOUS);
	int error;

	(void)arg;
	/* What is around them is mapped without rights. */
	try_register(w->a, 0, pages - 1, 8, ALL_RIGHTS, &error);
	equal(error, EFAULT);
	refused_with(w->a, CAUSE_REG_NOT_WRITABLE, EFAULT);
	let_happen(w->a, pages, 2, 1, UNMAPPED);
	try_register(w->a, 0, pages, 4097, ALL_RIGHTS, &error);
	equal(error, EFAULT);
	refused_with(w->a, CAUSE_REG_UNMAPPED, EFAULT);
	try_register(w->a, 0, pages, 4096, ALL_RIGHTS, &error);
	equal(error, 0);
}

static void read_only_memory_takes_no_write_access(struct world *w, const void *arg)
{
	uint64_t pages = map_pages(w->a, 1, ANONYMOUS);
	int error;

	(void)arg;
	let_happen(w->a, pages, 1, 0, READ_ONLY);
	try_register(w->a, 0, pages, 4096, IBV_ACCESS_LOCAL_WRITE, &error);
	equal(error, EFAULT);
	refused_with(w->a, CAUSE_REG_NOT_WRITABLE, EFAULT);
	try_register(w->a, 0, pages, 4096, IBV_ACCESS_REMOTE_READ, &error);
	equal(error, 0);
}

/* The kernel's ib_uverbs_reg_mr asks for the same place within a page. */
static void iova_of_another_page_offset_is_refused(struct world *w, const void *arg)
{
	struct cause c;
	int error;

	(void)arg;
	register_iova(w->a, 0, addr_of(w->a, PLACE), 64, 0x10000008, ALL_RIGHTS, &error);
	equal(error, EINVAL);
	c = refused_with(w->a, CAUSE_REG_IOVA, EINVAL);
	equal(c.limit, PLACE % 4096);
	equal(c.value, 8);
}

/* ---- The table ---- */

static const struct {
	enum ibv_wr_opcode op;
	const char *name;
} ops[] = {
	{ IBV_WR_SEND, "send" },
	{ IBV_WR_RDMA_WRITE, "write" },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, "write-imm" },
	{ IBV_WR_RDMA_READ, "read" },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, "cmp-swp" },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, "fetch-add" },
};

static const struct {
	enum ibv_qp_type type;
	const char *name;
	unsigned ops; /* the first so many of them */
} types[] = { { IBV_QPT_RC, "rc", 6 }, { IBV_QPT_UC, "uc", 3 }, { IBV_QPT_UD, "ud", 1 } };

static const char *const places[] = { "lkey", "second-lkey", "rkey", "receive" };

static bool makes_sense(const struct key_case *k)
{
	bool needs_right = k->fault->spoil == without_right || k->fault->spoil == right_taken_away;

	if (needs_right && !right_for(k))
		return false;
	switch (k->where) {
	case SECOND_SGE:
		return k->fault->spoil == unknown && !is_atomic(k->op);
	case REMOTE:
		return k->op != IBV_WR_SEND;
	case RECEIVE:
		return k->op == IBV_WR_SEND;
	default:
		return true;
	}
}

static void add_key_rows(unsigned t, unsigned o)
{
	for (enum where where = LOCAL; where <= RECEIVE; where++) {
		for (unsigned f = 0; f < sizeof(faults) / sizeof(*faults); f++) {
			static struct key_case rows[1000];
			static unsigned used;
			struct key_case *k = &rows[used];

			*k = (struct key_case){ types[t].type, ops[o].op, where, &faults[f] };
			if (!makes_sense(k))
				continue;
			used++;
			add_case("keys", run_key_case, k, "%s/%s/%s/%s", types[t].name, ops[o].name,
				 places[where], faults[f].name);
		}
	}
}

static const char *name_of(enum ibv_wr_opcode op)
{
	unsigned o = 0;

	while (ops[o].op != op)
		o++;
	return ops[o].name;
}

static const char *name_of_type(enum ibv_qp_type type)
{
	unsigned t = 0;

	while (types[t].type != type)
		t++;
	return types[t].name;
}

void add_keys(void)
{
	static const struct qp_right_case rights[] = {
		{ IBV_QPT_RC, IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, SIZE },
		{ IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_ACCESS_REMOTE_WRITE, SIZE },
		{ IBV_QPT_RC, IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ, SIZE },
		{ IBV_QPT_RC, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_ACCESS_REMOTE_ATOMIC, 8 },
		{ IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC, 8 },
		{ IBV_QPT_RC, IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, 0 },
		{ IBV_QPT_RC, IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ, 0 },
		{ IBV_QPT_UC, IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, SIZE },
		{ IBV_QPT_UC, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_ACCESS_REMOTE_WRITE, SIZE },
	};
	static const struct zero_case zeros[] = {
		{ IBV_QPT_RC, IBV_WR_SEND },	   { IBV_QPT_RC, IBV_WR_RDMA_WRITE },
		{ IBV_QPT_RC, IBV_WR_RDMA_READ },  { IBV_QPT_RC, IBV_WR_RDMA_WRITE_WITH_IMM },
		{ IBV_QPT_UC, IBV_WR_RDMA_WRITE }, { IBV_QPT_UC, IBV_WR_RDMA_WRITE_WITH_IMM },
		{ IBV_QPT_UC, IBV_WR_SEND },	   { IBV_QPT_UD, IBV_WR_SEND },
	};

	for (unsigned t = 0; t < sizeof(types) / sizeof(*types); t++)
		for (unsigned o = 0; o < types[t].ops; o++)
			add_key_rows(t, o);
	for (unsigned i = 0; i < sizeof(rights) / sizeof(*rights); i++)
		add_case("keys", run_qp_right, &rights[i], "%s/%s/right-missing-on-the-qp%s",
			 name_of_type(rights[i].type), name_of(rights[i].op),
			 rights[i].length ? "" : "-for-zero-bytes");
	for (unsigned i = 0; i < sizeof(zeros) / sizeof(*zeros); i++)
		add_case("keys", run_zero, &zeros[i], "%s/%s/zero-length-with-bad-keys-succeeds",
			 name_of_type(zeros[i].type), name_of(zeros[i].op));
	for (unsigned i = 0; i < sizeof(registrations) / sizeof(*registrations); i++)
		add_case("keys", run_registration, &registrations[i], "registering/%s",
			 registrations[i].name);
	add_case("keys", registering_what_is_not_mapped_is_efault, NULL,
		 "registering/what-is-not-mapped-is-efault");
	add_case("keys", read_only_memory_takes_no_write_access, NULL,
		 "registering/read-only-memory-takes-no-write-access");
	add_case("keys", iova_of_another_page_offset_is_refused, NULL,
		 "registering/iova-of-another-page-offset-is-refused");
	add_case("keys", srq_regions_are_of_its_own_pd, NULL, "srq/regions-are-of-its-own-pd");
	add_case("keys", ah_of_another_pd_is_a_local_error, NULL, "ud/send/ah-of-another-pd");
	add_case("keys", write_with_imm_does_not_look_into_the_receive, NULL,
		 "rc/write-imm/does-not-look-into-the-receive");
}
