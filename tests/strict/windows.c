/* SPDX-License-Identifier: MIT */
/*
 * Memory windows (specification 10.6.7): what may be bound, what a bound window lets in, and how long.
 *
 * B binds windows to a region of its own, and A reaches it through them. An access that a window does not let in fails both ends
 * as one by a region's key does (9.9.3, class C); a bind or an invalidation that cannot be fails its QP alone; a SEND with
 * Invalidate that cannot invalidate arrives, and fails its receive and the receiver (class J).
 */
#include "strict.h"

enum {
	FIRST = 0x2000,
	BASE = 0x4000, /* of the region that windows are bound to, */
	SIZE = 0x1000, /* and its length */
	START = BASE + 0x100,
	LENGTH = 0x200,
	INBOX = 0x8000,
	GOOD = 16,
};

#define REGION_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)
#define REMOTE	      (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static const enum ibv_mw_type type_1 = IBV_MW_TYPE_1, type_2 = IBV_MW_TYPE_2;

static struct region bindable(struct world *w)
{
	return register_at(w->b, 0, addr_of(w->b, BASE), SIZE, REGION_ACCESS);
}

static struct wr local_wr(uint64_t id, enum ibv_wr_opcode op, uint32_t rkey)
{
	return (struct wr){ .id = id, .op = op, .flags = IBV_SEND_SIGNALED, .rkey = rkey, .ah = -1 };
}

static struct wr bind_wr(uint64_t id, const struct region *r, uint64_t addr, uint64_t length,
			 unsigned access, uint32_t rkey)
{
	struct wr wr = local_wr(id, IBV_WR_BIND_MW, rkey);

	wr.bind = (struct bind){
		.region = r->slot, .addr = addr, .length = length, .access = access
	};
	return wr;
}

/* Window 0 of B, bound by QP 0 to LENGTH bytes: its key. */
static uint32_t bound(struct world *w, enum ibv_mw_type type, const struct region *r,
		      unsigned access)
{
	uint32_t key;
	struct wr wr;

	equal(make_window(w->b, 0, 0, type, &key), 0);
	wr = bind_wr(50, r, addr_of(w->b, START), LENGTH, access, ibv_inc_rkey(key));
	post(w->b, 0, &wr, 1);
	equal(completes(w->b, SEND_CQ, 50, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
	return ibv_inc_rkey(key);
}

static struct wr through(struct world *w, uint64_t id, enum ibv_wr_opcode op, uint32_t at,
			 uint32_t length, uint32_t key)
{
	struct wr wr = rdma_wr(id, op, &w->ra, at, length, &w->rb, at);

	wr.rkey = key;
	return wr;
}

/* A's QP `qp` writes GOOD bytes through a window. */
static void lets_in(struct world *w, unsigned qp, uint32_t at, uint32_t key)
{
	struct wr wr = through(w, 60, IBV_WR_RDMA_WRITE, at, GOOD, key);

	post(w->a, qp, &wr, 1);
	completes(w->a, SEND_CQ, 60, IBV_WC_SUCCESS);
	changes_to(w, w->b, at, GOOD, w->a, at);
}

static void post_inbox(struct world *w, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct wr in = recv_wr(100 + i, &w->rb, INBOX + i * 0x2000, 0x2000);

		receive(w->b, 0, &in, 1);
	}
}

/* An access between others is refused, and ends the connection of the two QPs. */
static void keeps_out_with(struct world *w, unsigned qp, struct wr wr, enum cause_code code)
{
	struct wr out[3] = { rdma_wr(1, IBV_WR_RDMA_WRITE, &w->ra, FIRST, GOOD, &w->rb, FIRST), wr,
			     send_wr(3, &w->ra, FIRST, GOOD) };
	struct ibv_wc wc;
	struct cause c;

	out[1].id = 2;
	out[1].flags = 0;
	post(w->a, qp, out, 3);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	changes_to(w, w->b, FIRST, GOOD, w->a, FIRST);
	wc = completes(w->a, SEND_CQ, 2, IBV_WC_REM_ACCESS_ERR);
	says(wc, code);
	c = cause_of(w->a, code);
	is_of_request(&c, 2);
	equal(c.key, wr.rkey);
	equal(c.addr, wr.remote);
	completes(w->a, SEND_CQ, 3, IBV_WC_WR_FLUSH_ERR);
	raises(w->b, IBV_EVENT_QP_ACCESS_ERR, qp);
	equal(state_of(w->a, qp), IBV_QPS_ERR);
	equal(state_of(w->b, qp), IBV_QPS_ERR);
}

static void keeps_out(struct world *w, uint32_t key, enum cause_code code)
{
	keeps_out_with(w, 0, through(w, 2, IBV_WR_RDMA_WRITE, START, GOOD, key), code);
}

/* ---- Accesses ---- */

static void all_operations_go_through(struct world *w, const void *arg)
{
	const enum ibv_mw_type *type = arg;
	struct region r = bindable(w);
	struct wr out[4];
	uint32_t key;

	make_pair(w, IBV_QPT_RC);
	key = bound(w, *type, &r, REMOTE);
	out[0] = through(w, 1, IBV_WR_RDMA_WRITE, START, 24, key);
	out[1] = through(w, 2, IBV_WR_RDMA_READ, START + 64, 24, key);
	out[2] = through(w, 3, IBV_WR_ATOMIC_FETCH_AND_ADD, START + 128, 8, key);
	out[3] = through(w, 4, IBV_WR_RDMA_WRITE, START + LENGTH - 1, 1, key);
	post(w->a, 0, out, 4);
	for (unsigned id = 1; id <= 4; id++)
		completes(w->a, SEND_CQ, id, IBV_WC_SUCCESS);
	changes_to(w, w->b, START, 24, w->a, START);
	changes_to(w, w->a, START + 64, 24, w->b, START + 64);
	changes_to(w, w->a, START + 128, 8, w->b, START + 128);
	changes_to(w, w->b, START + LENGTH - 1, 1, w->a, START + LENGTH - 1);
}

static void uc_writes_go_through(struct world *w, const void *arg)
{
	const enum ibv_mw_type *type = arg;
	struct region r = bindable(w);
	uint32_t key;
	struct wr wr;

	make_pair(w, IBV_QPT_UC);
	key = bound(w, *type, &r, IBV_ACCESS_REMOTE_WRITE);
	post_inbox(w, 1);
	lets_in(w, 0, START, key);
	wr = through(w, 1, IBV_WR_RDMA_WRITE_WITH_IMM, START + 32, GOOD, key);
	post(w->a, 0, &wr, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	completes(w->b, RECV_CQ, 100, IBV_WC_SUCCESS);
	changes_to(w, w->b, START + 32, GOOD, w->a, START + 32);
}

/* A zero-based window is reached by offsets; only type 2 can be that. */
static void zero_based(struct world *w, const void *arg)
{
	struct region r = bindable(w);
	struct wr wr;
	uint32_t key;

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	key = bound(w, IBV_MW_TYPE_2, &r, REMOTE | IBV_ACCESS_ZERO_BASED);
	wr = through(w, 1, IBV_WR_RDMA_WRITE, START + 8, GOOD, key);
	wr.remote = 8;
	post(w->a, 0, &wr, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	changes_to(w, w->b, START + 8, GOOD, w->a, START + 8);
	wr.remote = LENGTH - GOOD + 1;
	keeps_out_with(w, 0, wr, CAUSE_WINDOW_BOUNDS);
}

struct access_case {
	const char *name;
	enum ibv_wr_opcode op;
	uint32_t at, length;
	unsigned access;
	enum cause_code code;
};

static const struct access_case access_cases[] = {
	{ "a-byte-before", IBV_WR_RDMA_WRITE, START - 1, GOOD, REMOTE, CAUSE_WINDOW_BOUNDS },
	{ "a-byte-behind", IBV_WR_RDMA_WRITE, START + LENGTH - GOOD + 1, GOOD, REMOTE,
	  CAUSE_WINDOW_BOUNDS },
	{ "read-behind", IBV_WR_RDMA_READ, START + LENGTH, 1, REMOTE, CAUSE_WINDOW_BOUNDS },
	{ "write-without-right", IBV_WR_RDMA_WRITE, START, GOOD, REMOTE & ~IBV_ACCESS_REMOTE_WRITE,
	  CAUSE_WINDOW_ACCESS },
	{ "read-without-right", IBV_WR_RDMA_READ, START, GOOD, REMOTE & ~IBV_ACCESS_REMOTE_READ,
	  CAUSE_WINDOW_ACCESS },
	{ "atomic-without-right", IBV_WR_ATOMIC_CMP_AND_SWP, START, 8,
	  REMOTE & ~IBV_ACCESS_REMOTE_ATOMIC, CAUSE_WINDOW_ACCESS },
};

static void run_access(struct world *w, const void *arg)
{
	const struct access_case *a = arg;
	struct region r = bindable(w);
	uint32_t key;

	make_pair(w, IBV_QPT_RC);
	key = bound(w, a->access & IBV_ACCESS_REMOTE_ATOMIC ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1, &r,
		    a->access);
	keeps_out_with(w, 0, through(w, 2, a->op, a->at, a->length, key), a->code);
}

/* The key that a window has before it is bound, and its region's without rights of its own, let nobody in. */
static void not_before_it_is_bound(struct world *w, const void *arg)
{
	const enum ibv_mw_type *type = arg;
	uint32_t key;

	make_pair(w, IBV_QPT_RC);
	equal(make_window(w->b, 0, 0, *type, &key), 0);
	keeps_out(w, key, CAUSE_WINDOW_UNBOUND);
}

static void a_windows_key_is_no_lkey(struct world *w, const void *arg)
{
	struct region r = bindable(w);
	struct wr wr = send_wr(1, &w->rb, START, GOOD);

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	wr.sge[0].lkey = bound(w, IBV_MW_TYPE_2, &r, REMOTE);
	post(w->b, 0, &wr, 1);
	says(completes(w->b, SEND_CQ, 1, IBV_WC_LOC_PROT_ERR), CAUSE_LKEY_IS_RKEY);
}

/* A second connection between the nodes, QPs 1. */
static void make_second(struct world *w, unsigned pd)
{
	struct qp_want a = qp_default(IBV_QPT_RC), b = a;
	struct side sa, sb;

	b.pd = pd;
	equal(make_qp(w->a, 1, &a), 0);
	equal(make_qp(w->b, 1, &b), 0);
	sa = side_default(w->a, 1, IBV_QPT_RC, w->b, 1);
	sb = side_default(w->b, 1, IBV_QPT_RC, w->a, 1);
	bring_up(&sa);
	bring_up(&sb);
}

static void through_another_qp(struct world *w, const void *arg)
{
	const enum ibv_mw_type *type = arg;
	struct region r = bindable(w);
	uint32_t key;

	make_pair(w, IBV_QPT_RC);
	make_second(w, 0);
	key = bound(w, *type, &r, REMOTE);
	if (*type == IBV_MW_TYPE_1)
		lets_in(w, 1, START, key);
	else
		keeps_out_with(w, 1, through(w, 2, IBV_WR_RDMA_WRITE, START, GOOD, key),
			       CAUSE_WINDOW_QP);
	lets_in(w, 0, START + 64, key);
}

static void through_another_domain(struct world *w, const void *arg)
{
	const enum ibv_mw_type *type = arg;
	struct region r = bindable(w);
	uint32_t key;

	make_pair(w, IBV_QPT_RC);
	make_second(w, 1);
	key = bound(w, *type, &r, REMOTE);
	/* What is written elsewhere before needs a key of that domain too. */
	struct wr wr = through(w, 1, IBV_WR_RDMA_WRITE, START, GOOD, key);

	post(w->a, 1, &wr, 1);
	says(completes(w->a, SEND_CQ, 1, IBV_WC_REM_ACCESS_ERR), CAUSE_WINDOW_PD);
	raises(w->b, IBV_EVENT_QP_ACCESS_ERR, 1);
	lets_in(w, 0, START, key);
}

/* ---- How it ends ---- */

enum end { EMPTY_BIND, EMPTY_BIND_VERB, LOCAL, FROM_PEER, DEALLOCATION, BOUND_AGAIN };

struct end_case {
	const char *name;
	enum end end;
	enum ibv_mw_type type;
	enum cause_code code;
};

static const struct end_case end_cases[] = {
	{ "bound-to-nothing", EMPTY_BIND, IBV_MW_TYPE_1, CAUSE_WINDOW_OTHER_KEY },
	/* The verb's next key is the first bind's: that was a work request, which leaves ibv_mw.rkey to the program. */
	{ "bound-to-nothing-by-the-verb", EMPTY_BIND_VERB, IBV_MW_TYPE_1, CAUSE_WINDOW_UNBOUND },
	{ "invalidated", LOCAL, IBV_MW_TYPE_2, CAUSE_WINDOW_UNBOUND },
	{ "invalidated-by-the-peer", FROM_PEER, IBV_MW_TYPE_2, CAUSE_WINDOW_UNBOUND },
	{ "deallocated/type-1", DEALLOCATION, IBV_MW_TYPE_1, CAUSE_RKEY_DEREGISTERED },
	{ "deallocated/type-2", DEALLOCATION, IBV_MW_TYPE_2, CAUSE_RKEY_DEREGISTERED },
	{ "bound-again/type-1", BOUND_AGAIN, IBV_MW_TYPE_1, CAUSE_WINDOW_OTHER_KEY },
	{ "bound-again/type-2", BOUND_AGAIN, IBV_MW_TYPE_2, CAUSE_WINDOW_OTHER_KEY },
};

/* B's receive 0 gets a SEND with Invalidate of GOOD bytes. */
static void send_inv(struct world *w, uint32_t key)
{
	struct wr wr = send_wr(70, &w->ra, FIRST, GOOD);
	struct ibv_wc wc;

	wr.op = IBV_WR_SEND_WITH_INV;
	wr.rkey = key;
	post_inbox(w, 1);
	post(w->a, 0, &wr, 1);
	equal(completes(w->a, SEND_CQ, 70, IBV_WC_SUCCESS).opcode, IBV_WC_SEND);
	wc = completes(w->b, RECV_CQ, 100, IBV_WC_SUCCESS);
	equal(wc.opcode, IBV_WC_RECV);
	equal(wc.byte_len, GOOD);
	equal(wc.wc_flags, IBV_WC_WITH_INV);
	equal(wc.invalidated_rkey, key);
	changes_to(w, w->b, INBOX, GOOD, w->a, FIRST);
}

static void end_window(struct world *w, enum end end, enum ibv_mw_type type, const struct region *r,
		       uint32_t key)
{
	struct bind nothing = { .region = -1 };
	struct wr wr[2];
	unsigned count = 0;
	uint32_t next;

	switch (end) {
	case EMPTY_BIND:
		wr[count++] = bind_wr(80, r, 0, 0, 0, ibv_inc_rkey(key));
		break;
	case EMPTY_BIND_VERB:
		equal(bind_window(w->b, 0, 80, &nothing, &next), 0);
		equal(completes(w->b, SEND_CQ, 80, IBV_WC_SUCCESS).opcode, IBV_WC_BIND_MW);
		break;
	case LOCAL:
		wr[count++] = local_wr(80, IBV_WR_LOCAL_INV, key);
		break;
	case FROM_PEER:
		send_inv(w, key);
		break;
	case DEALLOCATION:
		equal(drop_window(w->b, 0), 0);
		break;
	case BOUND_AGAIN:
		if (type == IBV_MW_TYPE_2)
			wr[count++] = local_wr(80, IBV_WR_LOCAL_INV, key);
		wr[count++] =
			bind_wr(81, r, addr_of(w->b, START), LENGTH, REMOTE, ibv_inc_rkey(key));
		break;
	}
	for (unsigned i = 0; i < count; i++)
		post(w->b, 0, &wr[i], 1);
	for (unsigned i = 0; i < count; i++)
		equal(completes(w->b, SEND_CQ, wr[i].id, IBV_WC_SUCCESS).opcode,
		      wr[i].op == IBV_WR_BIND_MW ? IBV_WC_BIND_MW : IBV_WC_LOCAL_INV);
}

static void run_end(struct world *w, const void *arg)
{
	const struct end_case *e = arg;
	struct region r = bindable(w);
	uint32_t key;

	make_pair(w, IBV_QPT_RC);
	key = bound(w, e->type, &r, REMOTE);
	lets_in(w, 0, START, key);
	end_window(w, e->end, e->type, &r, key);
	if (e->end == BOUND_AGAIN)
		lets_in(w, 0, START + 64, ibv_inc_rkey(key));
	keeps_out(w, key, e->code);
}

/* A region stays registered as long as a window is bound to it, and no longer. */
static void run_region_is_busy(struct world *w, const void *arg)
{
	const struct end_case *e = arg;
	struct region r = bindable(w);
	struct cause c;
	uint32_t key;

	make_pair(w, IBV_QPT_RC);
	key = bound(w, e->type, &r, REMOTE);
	equal(deregister(&r), EBUSY);
	c = refused_with(w->b, CAUSE_REGION_HAS_WINDOWS, EBUSY);
	equal(c.key, r.rkey);
	equal(c.count, 1);
	equal(reregister(&r, IBV_REREG_MR_CHANGE_ACCESS, 0, 0, 0, REGION_ACCESS),
	      IBV_REREG_MR_ERR_CMD);
	refused_with(w->b, CAUSE_REGION_HAS_WINDOWS, EBUSY);
	lets_in(w, 0, START, key);
	if (e->end == BOUND_AGAIN) {
		struct region other =
			register_at(w->b, 0, addr_of(w->b, BASE), SIZE, REGION_ACCESS);

		end_window(w, e->end, e->type, &other, key);
		lets_in(w, 0, START + 64, ibv_inc_rkey(key));
		equal(deregister(&other), EBUSY);
	} else {
		end_window(w, e->end, e->type, &r, key);
	}
	equal(deregister(&r), 0);
}

/* A window can be bound again any number of times, also with keys that it had before. */
static void bound_and_invalidated_for_ever(struct world *w, const void *arg)
{
	const bool *by_peer = arg;
	struct region r = bindable(w);
	uint32_t key, next;

	make_pair(w, IBV_QPT_RC);
	key = next = bound(w, IBV_MW_TYPE_2, &r, REMOTE);
	for (unsigned i = 0; i < 40; i++) {
		struct wr bind =
			bind_wr(2, &r, addr_of(w->b, START), LENGTH, REMOTE, key + (i & 1));
		unsigned changes = w->changes;

		lets_in(w, 0, START, next);
		if (*by_peer)
			send_inv(w, next);
		else
			end_window(w, LOCAL, IBV_MW_TYPE_2, &r, next);
		if (i)
			w->changes = changes; /* the same bytes */
		post(w->b, 0, &bind, 1);
		completes(w->b, SEND_CQ, 2, IBV_WC_SUCCESS);
		next = bind.rkey;
	}
}

/* Destroying its QP leaves a window bound, for nobody (type 2B: specification 10.6.7.2.3). */
static void the_qp_goes(struct world *w, const void *arg)
{
	const enum ibv_mw_type *type = arg;
	struct region r = bindable(w);
	uint32_t key;

	make_pair(w, IBV_QPT_RC);
	make_second(w, 0);
	key = bound(w, *type, &r, REMOTE);
	equal(drop_qp(w->b, 0), 0);
	equal(deregister(&r), EBUSY);
	if (*type == IBV_MW_TYPE_1)
		lets_in(w, 1, START, key);
	else
		keeps_out_with(w, 1, through(w, 2, IBV_WR_RDMA_WRITE, START, GOOD, key),
			       CAUSE_WINDOW_QP);
	equal(drop_window(w->b, 0), 0);
	equal(deregister(&r), 0);
}

/* Its number is the same in its next life. */
static void the_qp_is_reset(struct world *w, const void *arg)
{
	const enum ibv_mw_type *type = arg;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct region r = bindable(w);
	struct side a, b;
	uint32_t key;

	make_pair(w, IBV_QPT_RC);
	key = bound(w, *type, &r, REMOTE);
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	equal(modify_qp(w->b, 0, &attr, IBV_QP_STATE), 0);
	a = side_default(w->a, 0, IBV_QPT_RC, w->b, 0);
	b = side_default(w->b, 0, IBV_QPT_RC, w->a, 0);
	bring_up(&a);
	bring_up(&b);
	lets_in(w, 0, START, key);
	equal(deregister(&r), EBUSY);
}

/* ---- Binds and invalidations that cannot be ---- */

struct bad_case {
	const char *name;
	enum ibv_mw_type type;
	void (*spoil)(struct world *w, struct region *r, struct wr *wr);
	enum cause_code code;
};

static void right_of_region(struct world *w, struct region *r, struct wr *wr)
{
	struct region other = register_at(w->b, 0, addr_of(w->b, BASE), SIZE, ALL_RIGHTS);

	(void)r;
	wr->bind.region = other.slot;
}

static void read_only_region(struct world *w, struct region *r, struct wr *wr)
{
	struct region other = register_at(w->b, 0, addr_of(w->b, BASE), SIZE, IBV_ACCESS_MW_BIND);

	(void)r;
	wr->bind.region = other.slot;
}

static void zero_based_region(struct world *w, struct region *r, struct wr *wr)
{
	struct region other = register_at(w->b, 0, addr_of(w->b, BASE), SIZE,
					  REGION_ACCESS | IBV_ACCESS_ZERO_BASED);

	(void)r;
	wr->bind.region = other.slot;
	wr->bind.addr = 0;
}

static void region_of_another_domain(struct world *w, struct region *r, struct wr *wr)
{
	struct region other = register_at(w->b, 1, addr_of(w->b, BASE), SIZE, REGION_ACCESS);

	(void)r;
	wr->bind.region = other.slot;
}

static void window_of_another_domain(struct world *w, struct region *r, struct wr *wr)
{
	(void)r;
	wr->bind.window = 1;
	equal(make_window(w->b, 1, 1, IBV_MW_TYPE_2, &wr->rkey), 0);
}

static void before_the_region(struct world *w, struct region *r, struct wr *wr)
{
	(void)w;
	wr->bind.addr = r->addr - 1;
}

static void behind_the_region(struct world *w, struct region *r, struct wr *wr)
{
	(void)w;
	wr->bind.addr = r->addr + SIZE - LENGTH + 1;
}

static void longer_than_all(struct world *w, struct region *r, struct wr *wr)
{
	(void)w;
	(void)r;
	wr->bind.length = UINT64_MAX;
}

static void zero_based_window(struct world *w, struct region *r, struct wr *wr)
{
	(void)w;
	(void)r;
	wr->bind.access |= IBV_ACCESS_ZERO_BASED;
}

static void to_nothing(struct world *w, struct region *r, struct wr *wr)
{
	(void)w;
	(void)r;
	wr->bind.length = 0;
}

static void twice(struct world *w, struct region *r, struct wr *wr)
{
	struct wr first = *wr;

	(void)r;
	first.id = 9;
	first.flags = IBV_SEND_SIGNALED;
	post(w->b, 0, &first, 1);
	completes(w->b, SEND_CQ, 9, IBV_WC_SUCCESS);
}

static void invalid_key(struct wr *wr, uint32_t key)
{
	*wr = local_wr(wr->id, IBV_WR_LOCAL_INV, key);
}

static void key_of_a_region(struct world *w, struct region *r, struct wr *wr)
{
	(void)w;
	invalid_key(wr, r->rkey);
}

static void key_of_nothing(struct world *w, struct region *r, struct wr *wr)
{
	(void)w;
	invalid_key(wr, r->rkey ^ 0x5a5a5000u);
}

static void key_of_an_unbound(struct world *w, struct region *r, struct wr *wr)
{
	(void)w;
	(void)r;
	invalid_key(wr, wr->rkey - 1);
}

static void key_of_a_bound(struct world *w, struct region *r, struct wr *wr)
{
	uint32_t key = wr->rkey;

	twice(w, r, wr);
	invalid_key(wr, key);
}

static void earlier_key(struct world *w, struct region *r, struct wr *wr)
{
	uint32_t key = wr->rkey;

	twice(w, r, wr);
	invalid_key(wr, key - 1);
}

static void key_of_another_qp(struct world *w, struct region *r, struct wr *wr)
{
	struct wr first = *wr;

	(void)r;
	make_second(w, 0);
	first.id = 9;
	first.flags = IBV_SEND_SIGNALED;
	post(w->b, 1, &first, 1);
	completes(w->b, SEND_CQ, 9, IBV_WC_SUCCESS);
	invalid_key(wr, wr->rkey);
}

static const struct bad_case bad_binds[] = {
	{ "region-without-mw-bind", IBV_MW_TYPE_2, right_of_region, CAUSE_BIND_RIGHT },
	{ "region-without-local-write", IBV_MW_TYPE_2, read_only_region, CAUSE_BIND_ACCESS },
	{ "zero-based-region", IBV_MW_TYPE_2, zero_based_region, CAUSE_BIND_ZERO_BASED },
	{ "zero-based-window-of-type-1", IBV_MW_TYPE_1, zero_based_window, CAUSE_BIND_ZERO_BASED },
	{ "region-of-another-domain", IBV_MW_TYPE_2, region_of_another_domain, CAUSE_BIND_PD },
	{ "window-of-another-domain", IBV_MW_TYPE_2, window_of_another_domain, CAUSE_BIND_PD },
	{ "before-the-region", IBV_MW_TYPE_1, before_the_region, CAUSE_BIND_BOUNDS },
	{ "behind-the-region", IBV_MW_TYPE_2, behind_the_region, CAUSE_BIND_BOUNDS },
	{ "longer-than-all", IBV_MW_TYPE_1, longer_than_all, CAUSE_BIND_BOUNDS },
	{ "type-2-to-nothing", IBV_MW_TYPE_2, to_nothing, CAUSE_BIND_EMPTY },
	{ "type-2-twice", IBV_MW_TYPE_2, twice, CAUSE_BIND_BOUND },
};

static const struct bad_case bad_keys[] = {
	{ "of-a-region", IBV_MW_TYPE_2, key_of_a_region, CAUSE_INVALIDATE_KEY },
	{ "of-nothing", IBV_MW_TYPE_2, key_of_nothing, CAUSE_INVALIDATE_KEY },
	{ "of-an-unbound-window", IBV_MW_TYPE_2, key_of_an_unbound, CAUSE_INVALIDATE_UNBOUND },
	{ "of-an-earlier-binding", IBV_MW_TYPE_2, earlier_key, CAUSE_INVALIDATE_KEY },
	{ "of-a-window-of-type-1", IBV_MW_TYPE_1, key_of_a_bound, CAUSE_INVALIDATE_TYPE },
	{ "of-another-qp", IBV_MW_TYPE_2, key_of_another_qp, CAUSE_INVALIDATE_QP },
};

/* Window 0 of B, and the request that would be right. */
static struct wr good_bind(struct world *w, enum ibv_mw_type type, const struct region *r)
{
	uint32_t key;

	equal(make_window(w->b, 0, 0, type, &key), 0);
	return bind_wr(2, r, addr_of(w->b, START), LENGTH, REMOTE, ibv_inc_rkey(key));
}

/* What fails at B is B's: A does not hear of it, until it sends something. */
static void run_bad(struct world *w, const void *arg)
{
	const struct bad_case *bad = arg;
	struct region r = bindable(w);
	struct wr out[3], in;
	struct ibv_wc wc;
	struct cause c;

	make_pair(w, IBV_QPT_RC);
	out[1] = good_bind(w, bad->type, &r);
	bad->spoil(w, &r, &out[1]);
	out[1].flags = 0;
	out[0] = rdma_wr(1, IBV_WR_RDMA_WRITE, &w->rb, FIRST, GOOD, &w->ra, FIRST);
	out[2] = local_wr(3, IBV_WR_LOCAL_INV, out[1].rkey);
	in = recv_wr(100, &w->rb, INBOX, GOOD);
	receive(w->b, 0, &in, 1);
	post(w->b, 0, out, 3);
	completes(w->b, SEND_CQ, 1, IBV_WC_SUCCESS);
	changes_to(w, w->a, FIRST, GOOD, w->b, FIRST);
	wc = completes(w->b, SEND_CQ, 2, IBV_WC_MW_BIND_ERR);
	equal(wc.vendor_err, bad->code);
	c = cause_of(w->b, bad->code);
	equal(c.wr_id, 2);
	equal(c.wr_index, 1);
	equal(c.key, out[1].rkey);
	completes(w->b, SEND_CQ, 3, IBV_WC_WR_FLUSH_ERR);
	completes(w->b, RECV_CQ, 100, IBV_WC_WR_FLUSH_ERR);
	equal(state_of(w->b, 0), IBV_QPS_ERR);
	equal(state_of(w->a, 0), IBV_QPS_RTS);
	silent(w->a, SEND_CQ);
}

static void a_bad_bind_stops_uc(struct world *w, const void *arg)
{
	struct region r = bindable(w);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct wr wr;

	(void)arg;
	make_pair(w, IBV_QPT_UC);
	wr = good_bind(w, IBV_MW_TYPE_2, &r);
	wr.bind.length = 0;
	post(w->b, 0, &wr, 1);
	equal(completes(w->b, SEND_CQ, 2, IBV_WC_MW_BIND_ERR).vendor_err, CAUSE_BIND_EMPTY);
	equal(state_of(w->b, 0), IBV_QPS_SQE);
	equal(modify_qp(w->b, 0, &attr, IBV_QP_STATE), 0);
	wr.bind.length = LENGTH;
	post(w->b, 0, &wr, 1);
	completes(w->b, SEND_CQ, 2, IBV_WC_SUCCESS);
	lets_in(w, 0, START, wr.rkey);
}

/* The same keys from the peer: what was sent arrives, and the receiver fails. */
static void run_bad_from_peer(struct world *w, const void *arg)
{
	const struct bad_case *bad = arg;
	struct region r = bindable(w);
	struct wr wr, out;
	struct ibv_wc wc;

	make_pair(w, IBV_QPT_RC);
	wr = good_bind(w, bad->type, &r);
	bad->spoil(w, &r, &wr);
	post_inbox(w, 2);
	out = send_wr(1, &w->ra, FIRST, GOOD);
	out.op = IBV_WR_SEND_WITH_INV;
	out.rkey = wr.rkey;
	post(w->a, 0, &out, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	changes_to(w, w->b, INBOX, GOOD, w->a, FIRST);
	wc = completes(w->b, RECV_CQ, 100, IBV_WC_REM_INV_REQ_ERR);
	equal(wc.vendor_err, bad->code);
	completes(w->b, RECV_CQ, 101, IBV_WC_WR_FLUSH_ERR);
	becomes(w->b, 0, IBV_QPS_ERR);
	equal(state_of(w->a, 0), IBV_QPS_RTS);
	equal(cause_of(over_the_wire() ? w->b : w->a, bad->code).key, wr.rkey);
}

/* ---- Order ---- */

struct length_case {
	const char *name;
	uint32_t length;
	unsigned flags;
};

static const struct length_case length_cases[] = {
	{ "nothing", 0, 0 },
	{ "inline", 16, IBV_SEND_INLINE },
	{ "a-packet", 1024, 0 },
	{ "packets", 5003, IBV_SEND_SOLICITED },
};

/* A SEND with Invalidate of any length, behind what it invalidates: all before it goes through, nothing behind it does. */
static void run_length(struct world *w, const void *arg)
{
	const struct length_case *l = arg;
	struct region r = bindable(w);
	struct wr out[4];
	struct ibv_wc wc;
	uint32_t key;

	make_pair(w, IBV_QPT_RC);
	key = bound(w, IBV_MW_TYPE_2, &r, REMOTE);
	post_inbox(w, 2);
	out[0] = through(w, 1, IBV_WR_RDMA_WRITE, START, GOOD, key);
	out[1] = through(w, 2, IBV_WR_RDMA_READ, START + 64, GOOD, key);
	out[2] = send_wr(3, &w->ra, FIRST, l->length);
	out[2].op = IBV_WR_SEND_WITH_INV;
	out[2].rkey = key;
	out[2].flags |= l->flags;
	out[3] = through(w, 4, IBV_WR_RDMA_WRITE, START + 128, GOOD, key);
	post(w->a, 0, out, 4);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	completes(w->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	completes(w->a, SEND_CQ, 3, IBV_WC_SUCCESS);
	says(completes(w->a, SEND_CQ, 4, IBV_WC_REM_ACCESS_ERR), CAUSE_WINDOW_UNBOUND);
	wc = completes(w->b, RECV_CQ, 100, IBV_WC_SUCCESS);
	equal(wc.byte_len, l->length);
	equal(wc.wc_flags, IBV_WC_WITH_INV);
	equal(wc.invalidated_rkey, key);
	completes(w->b, RECV_CQ, 101, IBV_WC_WR_FLUSH_ERR);
	raises(w->b, IBV_EVENT_QP_ACCESS_ERR, 0);
	changes_to(w, w->b, START, GOOD, w->a, START);
	changes_to(w, w->a, START + 64, GOOD, w->b, START + 64);
	changes_to(w, w->b, INBOX, l->length, w->a, FIRST);
}

/* Bind, tell the peer, work, invalidate, bind again: one list, and its completions in order. */
static void one_list(struct world *w, const void *arg)
{
	struct region r = bindable(w);
	struct wr out[6], in;
	uint32_t key;

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	in = recv_wr(200, &w->ra, INBOX, GOOD);
	receive(w->a, 0, &in, 1);
	out[0] = good_bind(w, IBV_MW_TYPE_2, &r);
	key = out[0].rkey;
	out[0].id = 1;
	out[1] = send_wr(2, &w->rb, FIRST, GOOD);
	out[2] = rdma_wr(3, IBV_WR_RDMA_READ, &w->rb, 0x6000, 3000, &w->ra, 0x6000);
	out[3] = local_wr(4, IBV_WR_LOCAL_INV, key);
	out[3].flags |= IBV_SEND_FENCE;
	out[4] = out[0];
	out[4].id = 5;
	out[4].rkey = ibv_inc_rkey(key);
	out[5] = rdma_wr(6, IBV_WR_RDMA_WRITE, &w->rb, 0x7000, 3000, &w->ra, 0x7000);
	post(w->b, 0, out, 6);
	for (unsigned id = 1; id <= 6; id++)
		completes(w->b, SEND_CQ, id, IBV_WC_SUCCESS);
	completes(w->a, RECV_CQ, 200, IBV_WC_SUCCESS);
	changes_to(w, w->a, INBOX, GOOD, w->b, FIRST);
	changes_to(w, w->b, 0x6000, 3000, w->a, 0x6000);
	changes_to(w, w->a, 0x7000, 3000, w->b, 0x7000);
	lets_in(w, 0, START, ibv_inc_rkey(key));
	keeps_out(w, key, CAUSE_WINDOW_OTHER_KEY);
}

/* ---- Verbs ---- */

static void the_verb_binds_type_1(struct world *w, const void *arg)
{
	struct region r = bindable(w),
		      other = register_at(w->b, 1, addr_of(w->b, BASE), SIZE, REGION_ACCESS);
	struct bind bind = {
		.region = r.slot, .addr = addr_of(w->b, START), .length = LENGTH, .access = REMOTE
	};
	uint32_t first, key, again, type_2_key;

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	equal(make_window(w->b, 0, 0, IBV_MW_TYPE_1, &first), 0);
	equal(make_window(w->b, 1, 0, IBV_MW_TYPE_2, &type_2_key), 0);
	bind.window = 1;
	equal(bind_window(w->b, 0, 1, &bind, &key), EINVAL);
	equal(key, type_2_key);
	bind.window = 0;
	bind.region = -1;
	equal(bind_window(w->b, 0, 1, &bind, &key), EINVAL);
	bind.region = other.slot;
	equal(bind_window(w->b, 0, 1, &bind, &key), EPERM);
	bind.region = r.slot;
	bind.access |= IBV_ACCESS_ZERO_BASED;
	equal(bind_window(w->b, 0, 1, &bind, &key), EINVAL);
	bind.access = 1 << 10;
	equal(bind_window(w->b, 0, 1, &bind, &key), EINVAL);
	refused_with(w->b, CAUSE_POST_BIND, EINVAL);
	equal(key, first);
	bind.access = REMOTE;
	equal(bind_window(w->b, 0, 1, &bind, &key), 0);
	completes(w->b, SEND_CQ, 1, IBV_WC_SUCCESS);
	check(key != first && !((key ^ first) & ~0xffu), "key %#x after %#x", key, first);
	lets_in(w, 0, START, key);
	equal(bind_window(w->b, 0, 2, &bind, &again), 0);
	completes(w->b, SEND_CQ, 2, IBV_WC_SUCCESS);
	lets_in(w, 0, START + 64, again);
	keeps_out(w, key, CAUSE_WINDOW_OTHER_KEY);
}

static void types_and_domains(struct world *w, const void *arg)
{
	uint32_t key;

	(void)arg;
	equal(make_window(w->b, 0, 0, (enum ibv_mw_type)0, &key), EINVAL);
	equal(make_window(w->b, 0, 0, (enum ibv_mw_type)3, &key), EINVAL);
	refused_with(w->b, CAUSE_CREATE_ARGUMENT, EINVAL);
	equal(make_window(w->b, 0, 1, IBV_MW_TYPE_2, &key), 0);
	equal(drop_pd(w->b, 1), EBUSY);
}

#define ADD_ALL(cases, run, format)                                     \
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*(cases)); i++) \
	add_case("windows", run, &(cases)[i], format, (cases)[i].name)

static void add_both(void (*run)(struct world *w, const void *arg), const char *name)
{
	add_case("windows", run, &type_1, "%s/type-1", name);
	add_case("windows", run, &type_2, "%s/type-2", name);
}

void add_windows(void)
{
	static const bool here = false, by_peer = true;

	add_both(all_operations_go_through, "all-operations-go-through");
	add_both(uc_writes_go_through, "uc-writes-go-through");
	add_case("windows", zero_based, NULL, "zero-based");
	ADD_ALL(access_cases, run_access, "keeps-out/%s");
	add_both(not_before_it_is_bound, "not-before-it-is-bound");
	add_case("windows", a_windows_key_is_no_lkey, NULL, "a-windows-key-is-no-lkey");
	add_both(through_another_qp, "through-another-qp");
	add_both(through_another_domain, "through-another-domain");
	ADD_ALL(end_cases, run_end, "keeps-out-when/%s");
	ADD_ALL(end_cases, run_region_is_busy, "region-is-busy-until/%s");
	add_case("windows", bound_and_invalidated_for_ever, &here,
		 "bound-and-invalidated-for-ever");
	add_case("windows", bound_and_invalidated_for_ever, &by_peer,
		 "bound-and-invalidated-for-ever/by-the-peer");
	add_both(the_qp_goes, "the-qp-goes");
	add_both(the_qp_is_reset, "the-qp-is-reset");
	ADD_ALL(bad_binds, run_bad, "bad-bind/%s");
	ADD_ALL(bad_keys, run_bad, "bad-key/%s");
	ADD_ALL(bad_keys, run_bad_from_peer, "bad-key-from-the-peer/%s");
	add_case("windows", a_bad_bind_stops_uc, NULL, "a-bad-bind-stops-uc");
	ADD_ALL(length_cases, run_length, "send-with-invalidate/%s");
	add_case("windows", one_list, NULL, "one-list");
	add_case("windows", the_verb_binds_type_1, NULL, "the-verb-binds-type-1");
	add_case("windows", types_and_domains, NULL, "types-and-domains");
}
