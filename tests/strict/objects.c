/* SPDX-License-Identifier: MIT */
/* Making, changing and dropping the objects of a node, in its process. */
#include <string.h>

#include "strict.h"

/* errno of a verb that returned a pointer. */
static int error_of(const void *object)
{
	return object ? 0 : errno;
}

struct sized {
	unsigned slot, pd;
	int cqe;
	bool events;
	uint32_t max_wr, max_sge;
	int result;
};

static void do_make_cq(struct node *n, void *arg)
{
	struct sized *s = arg;
	struct ibv_comp_channel *channel = s->events ? n->channel : NULL;
	struct ibv_cq_init_attr_ex attr = {
		.cqe = (uint32_t)s->cqe,
		.channel = channel,
		.wc_flags = IBV_WC_STANDARD_FLAGS,
	};

	errno = 0;
	if (n->extended) {
		n->cqx[s->slot] = ibv_create_cq_ex(n->ctx, &attr);
		n->cq[s->slot] = n->cqx[s->slot] ? ibv_cq_ex_to_cq(n->cqx[s->slot]) : NULL;
	} else {
		n->cq[s->slot] = ibv_create_cq(n->ctx, s->cqe, NULL, channel, 0);
	}
	s->result = error_of(n->cq[s->slot]);
}

int make_cq(struct node *n, unsigned slot, int cqe)
{
	struct sized s = { .slot = slot, .cqe = cqe };

	at(n, do_make_cq, &s, sizeof(s));
	return s.result;
}

int make_cq_with_events(struct node *n, unsigned slot, int cqe)
{
	struct sized s = { .slot = slot, .cqe = cqe, .events = true };

	at(n, do_make_cq, &s, sizeof(s));
	return s.result;
}

static void do_cq_capacity(struct node *n, void *arg)
{
	struct sized *s = arg;

	s->result = n->cq[s->slot]->cqe;
}

int cq_capacity(struct node *n, unsigned slot)
{
	struct sized s = { .slot = slot };

	at(n, do_cq_capacity, &s, sizeof(s));
	return s.result;
}

static void do_resize_cq(struct node *n, void *arg)
{
	struct sized *s = arg;

	s->result = ibv_resize_cq(n->cq[s->slot], s->cqe);
}

int resize_cq(struct node *n, unsigned slot, int cqe)
{
	struct sized s = { .slot = slot, .cqe = cqe };

	at(n, do_resize_cq, &s, sizeof(s));
	return s.result;
}

static void do_drop_cq(struct node *n, void *arg)
{
	struct sized *s = arg;

	s->result = ibv_destroy_cq(n->cq[s->slot]);
	if (!s->result)
		n->cq[s->slot] = NULL;
}

int drop_cq(struct node *n, unsigned slot)
{
	struct sized s = { .slot = slot };

	at(n, do_drop_cq, &s, sizeof(s));
	return s.result;
}

static void do_make_srq(struct node *n, void *arg)
{
	struct sized *s = arg;
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = s->max_wr, .max_sge = s->max_sge } };

	errno = 0;
	n->srq[s->slot] = ibv_create_srq(n->pd[s->pd], &attr);
	s->result = error_of(n->srq[s->slot]);
}

int make_srq(struct node *n, unsigned slot, unsigned pd, uint32_t max_wr, uint32_t max_sge)
{
	struct sized s = { .slot = slot, .pd = pd, .max_wr = max_wr, .max_sge = max_sge };

	at(n, do_make_srq, &s, sizeof(s));
	return s.result;
}

static void do_arm_srq(struct node *n, void *arg)
{
	struct sized *s = arg;
	struct ibv_srq_attr attr = { .srq_limit = s->max_wr };

	s->result = ibv_modify_srq(n->srq[s->slot], &attr, IBV_SRQ_LIMIT);
}

int arm_srq(struct node *n, unsigned slot, uint32_t limit)
{
	struct sized s = { .slot = slot, .max_wr = limit };

	at(n, do_arm_srq, &s, sizeof(s));
	return s.result;
}

static void do_drop_srq(struct node *n, void *arg)
{
	struct sized *s = arg;

	s->result = ibv_destroy_srq(n->srq[s->slot]);
	if (!s->result)
		n->srq[s->slot] = NULL;
}

int drop_srq(struct node *n, unsigned slot)
{
	struct sized s = { .slot = slot };

	at(n, do_drop_srq, &s, sizeof(s));
	return s.result;
}

static void do_drop_pd(struct node *n, void *arg)
{
	struct sized *s = arg;

	s->result = ibv_dealloc_pd(n->pd[s->slot]);
	if (!s->result)
		n->pd[s->slot] = NULL;
}

int drop_pd(struct node *n, unsigned slot)
{
	struct sized s = { .slot = slot };

	at(n, do_drop_pd, &s, sizeof(s));
	return s.result;
}

struct address {
	unsigned slot, pd;
	bool global;
	union ibv_gid dgid;
	int result;
};

static void do_make_ah(struct node *n, void *arg)
{
	struct address *a = arg;
	struct ibv_ah_attr attr = {
		.is_global = a->global,
		.port_num = 1,
		.grh = { .dgid = a->dgid, .hop_limit = 64 },
	};

	errno = 0;
	n->ah[a->slot] = ibv_create_ah(n->pd[a->pd], &attr);
	a->result = error_of(n->ah[a->slot]);
}

int make_ah(struct node *n, unsigned slot, unsigned pd, const union ibv_gid *dgid)
{
	struct address a = { .slot = slot, .pd = pd, .global = dgid };

	if (dgid)
		a.dgid = *dgid;
	at(n, do_make_ah, &a, sizeof(a));
	return a.result;
}

static void do_drop_ah(struct node *n, void *arg)
{
	struct address *a = arg;

	a->result = ibv_destroy_ah(n->ah[a->slot]);
	n->ah[a->slot] = NULL;
}

int drop_ah(struct node *n, unsigned slot)
{
	struct address a = { .slot = slot };

	at(n, do_drop_ah, &a, sizeof(a));
	return a.result;
}

struct window {
	unsigned slot, pd;
	enum ibv_mw_type type;
	uint32_t rkey;
	int result;
};

static void do_make_window(struct node *n, void *arg)
{
	struct window *win = arg;

	errno = 0;
	n->mw[win->slot] = ibv_alloc_mw(n->pd[win->pd], win->type);
	win->result = error_of(n->mw[win->slot]);
	win->rkey = n->mw[win->slot] ? n->mw[win->slot]->rkey : 0;
}

int make_window(struct node *n, unsigned slot, unsigned pd, enum ibv_mw_type type, uint32_t *rkey)
{
	struct window win = { .slot = slot, .pd = pd, .type = type };

	at(n, do_make_window, &win, sizeof(win));
	*rkey = win.rkey;
	return win.result;
}

static void do_drop_window(struct node *n, void *arg)
{
	struct window *win = arg;

	win->result = ibv_dealloc_mw(n->mw[win->slot]);
	n->mw[win->slot] = NULL;
}

int drop_window(struct node *n, unsigned slot)
{
	struct window win = { .slot = slot };

	at(n, do_drop_window, &win, sizeof(win));
	return win.result;
}

struct registration {
	int slot;
	unsigned pd, access;
	int flags;
	bool with_iova;
	uint64_t addr, length, iova;
	uint32_t lkey, rkey;
	int result;
};

static void do_register(struct node *n, void *arg)
{
	struct registration *r = arg;
	void *addr = (void *)(uintptr_t)r->addr;
	struct ibv_mr *mr;

	for (r->slot = 0; n->mr[r->slot];)
		check(++r->slot < MRS, "too many regions: a bug of this test");
	errno = 0;
	/* The access is no constant, so the inline function of verbs.h does not choose for us. */
	mr = r->with_iova ?
		     ibv_reg_mr_iova(n->pd[r->pd], addr, r->length, r->iova, (int)r->access) :
		     ibv_reg_mr(n->pd[r->pd], addr, r->length, (int)r->access);
	r->result = error_of(mr);
	n->mr[r->slot] = mr;
	if (mr) {
		r->lkey = mr->lkey;
		r->rkey = mr->rkey;
	}
}

static struct region register_with(struct node *n, struct registration r, int *error)
{
	at(n, do_register, &r, sizeof(r));
	*error = r.result;
	return (struct region){ n, r.slot, r.with_iova ? r.iova : r.addr, r.length, r.lkey, r.rkey };
}

struct region try_register(struct node *n, unsigned pd, uint64_t addr, uint64_t length,
			   unsigned access, int *error)
{
	return register_with(
		n,
		(struct registration){ .pd = pd, .access = access, .addr = addr, .length = length },
		error);
}

struct region register_at(struct node *n, unsigned pd, uint64_t addr, uint64_t length,
			  unsigned access)
{
	int error;
	struct region r = try_register(n, pd, addr, length, access, &error);

	equal(error, 0);
	return r;
}

struct region register_iova(struct node *n, unsigned pd, uint64_t addr, uint64_t length,
			    uint64_t iova, unsigned access, int *error)
{
	return register_with(n,
			     (struct registration){ .pd = pd,
						    .access = access,
						    .addr = addr,
						    .length = length,
						    .with_iova = true,
						    .iova = iova },
			     error);
}

static void do_reregister(struct node *n, void *arg)
{
	struct registration *r = arg;
	struct ibv_mr *mr = n->mr[r->slot];

	r->result = ibv_rereg_mr(mr, r->flags, n->pd[r->pd], (void *)(uintptr_t)r->addr, r->length,
				 (int)r->access);
	r->lkey = mr->lkey;
	r->rkey = mr->rkey;
}

int reregister(struct region *region, int flags, unsigned pd, uint64_t addr, uint64_t length,
	       unsigned access)
{
	struct registration r = { .slot = region->slot,
				  .flags = flags,
				  .pd = pd,
				  .addr = addr,
				  .length = length,
				  .access = access };

	at(region->node, do_reregister, &r, sizeof(r));
	if (!r.result && flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		region->addr = addr;
		region->length = length;
	}
	region->lkey = r.lkey;
	region->rkey = r.rkey;
	return r.result;
}

static void do_deregister(struct node *n, void *arg)
{
	struct registration *r = arg;

	r->result = ibv_dereg_mr(n->mr[r->slot]);
	if (!r->result)
		n->mr[r->slot] = NULL;
}

int deregister(struct region *region)
{
	struct registration r = { .slot = region->slot };

	at(region->node, do_deregister, &r, sizeof(r));
	return r.result;
}

struct qp_want qp_default(enum ibv_qp_type type)
{
	return (struct qp_want){
		.type = type,
		.send_cq = SEND_CQ,
		.recv_cq = RECV_CQ,
		.srq = NO_SRQ,
		.cap = { .max_send_wr = 8,
			 .max_recv_wr = 8,
			 .max_send_sge = 3,
			 .max_recv_sge = 3,
			 .max_inline_data = 64 },
	};
}

struct qp_making {
	unsigned slot;
	struct qp_want want;
	uint32_t qpn;
	int result;
};

static uint64_t operations(enum ibv_qp_type type)
{
	uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	if (type != IBV_QPT_UD)
		ops |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_BIND_MW |
		       IBV_QP_EX_WITH_LOCAL_INV;
	if (type == IBV_QPT_RC)
		ops |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;
	return ops;
}

static void do_make_qp(struct node *n, void *arg)
{
	struct qp_making *m = arg;
	struct ibv_srq *srq = m->want.srq == NO_SRQ ? NULL : n->srq[m->want.srq];
	struct ibv_qp_init_attr plain = {
		.send_cq = n->cq[m->want.send_cq],
		.recv_cq = n->cq[m->want.recv_cq],
		.srq = srq,
		.cap = m->want.cap,
		.qp_type = m->want.type,
		.sq_sig_all = m->want.sig_all,
	};
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = plain.send_cq,
		.recv_cq = plain.recv_cq,
		.srq = srq,
		.cap = m->want.cap,
		.qp_type = m->want.type,
		.sq_sig_all = m->want.sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = n->pd[m->want.pd],
		.send_ops_flags = m->want.no_operations ? 0 : operations(m->want.type),
	};
	struct ibv_qp *qp;

	errno = 0;
	qp = n->extended ? ibv_create_qp_ex(n->ctx, &ex) : ibv_create_qp(n->pd[m->want.pd], &plain);
	m->result = error_of(qp);
	if (!qp)
		return;
	n->qp[m->slot] = qp;
	n->qpx[m->slot] = n->extended ? ibv_qp_to_qp_ex(qp) : NULL;
	m->want.cap = n->extended ? ex.cap : plain.cap;
	m->qpn = qp->qp_num;
}

int make_qp(struct node *n, unsigned slot, struct qp_want *want)
{
	struct qp_making m = { .slot = slot, .want = *want };

	at(n, do_make_qp, &m, sizeof(m));
	n->qpn[slot] = m.qpn;
	want->cap = m.want.cap;
	return m.result;
}

static void do_drop_qp(struct node *n, void *arg)
{
	struct qp_making *m = arg;

	m->result = ibv_destroy_qp(n->qp[m->slot]);
	if (!m->result)
		n->qp[m->slot] = NULL;
}

int drop_qp(struct node *n, unsigned slot)
{
	struct qp_making m = { .slot = slot };

	at(n, do_drop_qp, &m, sizeof(m));
	return m.result;
}

struct modification {
	unsigned slot;
	int mask;
	struct ibv_qp_attr attr;
	int result;
};

static void do_modify_qp(struct node *n, void *arg)
{
	struct modification *m = arg;

	m->result = ibv_modify_qp(n->qp[m->slot], &m->attr, m->mask);
}

int modify_qp(struct node *n, unsigned slot, const struct ibv_qp_attr *attr, int mask)
{
	struct modification m = { .slot = slot, .mask = mask, .attr = *attr };

	at(n, do_modify_qp, &m, sizeof(m));
	return m.result;
}

static void do_query_qp(struct node *n, void *arg)
{
	struct modification *m = arg;
	struct ibv_qp_init_attr init;

	equal(ibv_query_qp(n->qp[m->slot], &m->attr, m->mask, &init), 0);
}

void query_qp(struct node *n, unsigned slot, struct ibv_qp_attr *attr)
{
	struct modification m = { .slot = slot, .mask = IBV_QP_STATE };

	at(n, do_query_qp, &m, sizeof(m));
	*attr = m.attr;
}

enum ibv_qp_state state_of(struct node *n, unsigned slot)
{
	struct ibv_qp_attr attr;

	query_qp(n, slot, &attr);
	return attr.qp_state;
}

void becomes(struct node *n, unsigned slot, enum ibv_qp_state state)
{
	uint64_t end = now_ns() + WAIT_MS * 1000000ull;

	while (state_of(n, slot) != state) {
		if (now_ns() > end)
			fail("the QP of node %c is in state %d, not %d", 'A' + n->id,
			     state_of(n, slot), state);
		pause_ms(1);
	}
}

struct side side_default(struct node *n, unsigned qp, enum ibv_qp_type type,
			 const struct node *peer, unsigned peer_qp)
{
	return (struct side){
		.n = n,
		.qp = qp,
		.type = type,
		.dest_qpn = peer->qpn[peer_qp],
		.dgid = peer->gid,
		.mtu = IBV_MTU_1024,
		.sq_psn = 0xfffff0 + n->id,
		.rq_psn = 0xfffff0 + peer->id,
		.timeout = 14,
		.retries = 7,
		.rnr_retries = 7,
		.min_rnr_timer = 12,
		.depth = 4,
		.dest_depth = 4,
		.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC,
	};
}

int to_init(const struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = s->access,
		.qkey = QKEY,
	};

	return modify_qp(s->n, s->qp, &attr,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				 (s->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

int to_rtr(const struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = s->mtu,
		.dest_qp_num = s->dest_qpn,
		.rq_psn = s->rq_psn,
		.max_dest_rd_atomic = s->dest_depth,
		.min_rnr_timer = s->min_rnr_timer,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = s->dgid, .hop_limit = 64 } },
	};
	int mask = IBV_QP_STATE;

	if (s->type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (s->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return modify_qp(s->n, s->qp, &attr, mask);
}

int to_rts(const struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = s->sq_psn,
		.timeout = s->timeout,
		.retry_cnt = s->retries,
		.rnr_retry = s->rnr_retries,
		.max_rd_atomic = s->depth,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (s->type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return modify_qp(s->n, s->qp, &attr, mask);
}

void bring_up(const struct side *s)
{
	equal(to_init(s), 0);
	equal(to_rtr(s), 0);
	equal(to_rts(s), 0);
}

void make_pair_with(struct world *w, struct qp_want *a, struct qp_want *b, const struct side *sa,
		    const struct side *sb)
{
	struct side side_a, side_b;

	equal(make_qp(w->a, 0, a), 0);
	equal(make_qp(w->b, 0, b), 0);
	side_a = sa ? *sa : side_default(w->a, 0, a->type, w->b, 0);
	side_b = sb ? *sb : side_default(w->b, 0, b->type, w->a, 0);
	/* Given before there were QPNs. */
	side_a.dest_qpn = w->b->qpn[0];
	side_b.dest_qpn = w->a->qpn[0];
	bring_up(&side_a);
	bring_up(&side_b);
	if (a->type == IBV_QPT_UD) {
		equal(make_ah(w->a, 0, a->pd, &w->b->gid), 0);
		equal(make_ah(w->b, 0, b->pd, &w->a->gid), 0);
	}
}

void make_pair(struct world *w, enum ibv_qp_type type)
{
	struct qp_want a = qp_default(type), b = qp_default(type);

	make_pair_with(w, &a, &b, NULL, NULL);
}
