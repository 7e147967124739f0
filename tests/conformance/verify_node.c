/* SPDX-License-Identifier: MIT */
/*
 * A node's verbs objects: made, connected, and taken down with nothing left over.
 *
 * Timers are those that careful programs set: timeout 14 (67 ms), 7 retries, RNR without end. A peer on another machine may
 * be an emulated one: timeout 17 (537 ms).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "verify.h"

#define PORT	  1
#define MAX_ATOMS 16

static const unsigned all_rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/* ---- Memory regions ---- */

static void register_range(struct node *n, size_t off, size_t len, unsigned access, unsigned kind)
{
	const unsigned i = n->hello.mrs++;
	uint8_t *addr = n->arena.mem + off;
	uint64_t base = (uintptr_t)addr;

	if (kind == MR_IOVA) {
		/* Somewhere else, at the same place in its page as the memory. */
		base = (base & 4095) + ((rng_next(&n->rng) & 0xffffffff) << 12);
		n->mr[i] = ibv_reg_mr_iova(n->pd, addr, len, base, access);
	} else if (kind == MR_ZERO) {
		base = 0;
		n->mr[i] = ibv_reg_mr(n->pd, addr, len, access | IBV_ACCESS_ZERO_BASED);
	} else if (kind == MR_WINDOW) {
		n->mr[i] = ibv_reg_mr(n->pd, addr, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
		n->mw = ibv_alloc_mw(n->pd, IBV_MW_TYPE_1);
		if (!n->mw)
			fail("ibv_alloc_mw: %s", strerror(errno));
	} else {
		n->mr[i] = ibv_reg_mr(n->pd, addr, len, access);
	}
	if (!n->mr[i])
		fail("registering %zu bytes (kind %#x, access %#x): %s", len, kind, access,
		     strerror(errno));
	if (n->mr[i]->addr != addr || n->mr[i]->length != len || n->mr[i]->pd != n->pd ||
	    n->mr[i]->context != n->ctx)
		fail("struct ibv_mr is not what was registered");
	n->hello.mr[i].base = base;
	n->hello.mr[i].off = off;
	n->hello.mr[i].len = len;
	n->hello.mr[i].lkey = n->mr[i]->lkey;
	/* A window's key when it will be bound: nobody uses it before the first barrier. */
	n->hello.mr[i].rkey = kind == MR_WINDOW ? ibv_inc_rkey(n->mw->rkey) : n->mr[i]->rkey;
	n->hello.mr[i].access = access;
	n->hello.mr[i].is_data = true;
}

/* Region 0 is for receives; the others are views of the data region. */
static void register_all(struct world *w, struct node *n)
{
	static const struct {
		unsigned kind, access;
	} views[] = {
		{ MR_WHOLE, all_rights }, { MR_HALF, all_rights },
		{ MR_LOCAL, 0 },	  { MR_READ, IBV_ACCESS_REMOTE_READ },
		{ MR_IOVA, all_rights },  { MR_ZERO, all_rights },
		{ MR_WINDOW, all_rights },
	};
	const struct arena *a = &n->arena;

	register_range(n, a->recv, a->recv_len, IBV_ACCESS_LOCAL_WRITE, MR_WHOLE);
	n->hello.mr[0].is_data = false;
	for (unsigned i = 0; i < sizeof(views) / sizeof(*views); i++)
		if (w->row->mrs & views[i].kind)
			register_range(n, a->data,
				       views[i].kind == MR_HALF ? a->data_len / 2 : a->data_len,
				       views[i].access, views[i].kind);
}

/* ---- Queues ---- */

static void open_device(struct node *n)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0])
		fail("no RDMA device");
	n->ctx = ibv_open_device(list[0]);
	if (!n->ctx)
		fail("ibv_open_device: %s", strerror(errno));
	ibv_free_device_list(list);
}

static struct cq *create_cq(struct node *n, int depth, bool receives)
{
	struct cq *cq = &n->cq[n->cqs++];

	if (n->w->row->api[n->id] == API_CLASSIC)
		classic_create_cq(n, cq, depth);
	else
		extended_create_cq(n, cq, depth);
	if (cq->cq->cqe < depth)
		fail("a CQ of %d is smaller than was asked for: %d", cq->cq->cqe, depth);
	cq->receives = receives;
	return cq;
}

static void create_srq(struct node *n, unsigned depth)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = depth, .max_sge = n->w->row->sges } };

	n->srq = ibv_create_srq(n->pd, &attr);
	if (!n->srq)
		fail("ibv_create_srq: %s", strerror(errno));
	if (attr.attr.max_wr < depth || attr.attr.max_sge < n->w->row->sges)
		fail("an SRQ of %u with %u SGEs is smaller than was asked for", attr.attr.max_wr,
		     attr.attr.max_sge);
}

static void create_qp(struct world *w, struct node *n, unsigned i, unsigned sq_depth,
		      unsigned rq_depth)
{
	const struct row *row = w->row;
	struct vqp *q = &n->qp[i];
	struct ibv_qp_init_attr attr = {
		.qp_context = q,
		.send_cq = q->scq->cq,
		.recv_cq = q->rcq->cq,
		.srq = n->srq,
		.cap = { .max_send_wr = sq_depth,
			 .max_recv_wr = n->srq ? 0 : rq_depth,
			 .max_send_sge = row->sges,
			 .max_recv_sge = n->srq ? 0 : row->sges,
			 .max_inline_data = 0 },
		.qp_type = row->type,
		.sq_sig_all = row->sig_all,
	};
	struct ibv_qp_cap asked;

	if (row->inl)
		attr.cap.max_inline_data = w->max_len < w->max_inl ? w->max_len : w->max_inl;
	asked = attr.cap;
	if (row->api[n->id] == API_CLASSIC)
		classic_create_qp(n, q, &attr);
	else
		extended_create_qp(n, q, &attr);
	if (attr.cap.max_send_wr < asked.max_send_wr ||
	    attr.cap.max_send_sge < asked.max_send_sge ||
	    attr.cap.max_inline_data < asked.max_inline_data ||
	    (!n->srq && (attr.cap.max_recv_wr < asked.max_recv_wr ||
			 attr.cap.max_recv_sge < asked.max_recv_sge)))
		fail("a QP is smaller than was asked for");
	if (q->qp->qp_type != row->type || q->qp->state != IBV_QPS_RESET || q->qp->qp_context != q)
		fail("struct ibv_qp is not what was created");
	for (unsigned other = 0; other < i; other++)
		if (n->qp[other].qp->qp_num == q->qp->qp_num)
			fail("two QPs have the number %#x", q->qp->qp_num);
	n->hello.qpn[i] = q->qp->qp_num;
	n->hello.psn[i] = rng_next(&n->rng) & 0xffffff;
}

static void to_init(struct world *w, struct vqp *q)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = PORT };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, ret;

	if (w->row->type == IBV_QPT_UD) {
		attr.qkey = QKEY;
		mask |= IBV_QP_QKEY;
	} else {
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		if (w->row->type == IBV_QPT_RC)
			attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
		mask |= IBV_QP_ACCESS_FLAGS;
	}
	ret = ibv_modify_qp(q->qp, &attr, mask);
	if (ret)
		fail("RESET to INIT: %s", strerror(ret));
}

/* The largest of a message, from the row's sizes and, for UD, the port's MTU. */
static void measure(struct world *w, struct node *n)
{
	static const uint32_t limits[] = {
		[SIZE_ZERO] = 0,	 [SIZE_SMALL] = 64,	 [SIZE_MTU] = 3 * 4096 + 1,
		[SIZE_LARGE] = 1u << 20, [SIZE_HUGE] = 8u << 20, [SIZE_ANY] = 64 * 1024,
	};
	struct ibv_port_attr port;
	int ret = ibv_query_port(n->ctx, PORT, &port);

	if (ret)
		fail("ibv_query_port: %s", strerror(ret));
	if (port.state != IBV_PORT_ACTIVE)
		fail("the port is not active");
	w->mtu = 128u << port.active_mtu;
	w->max_len = limits[w->row->size];
	if (w->row->size == SIZE_LARGE && w->row->list > 8)
		w->max_len = 256 * 1024;
	if (w->row->type == IBV_QPT_UD && w->max_len > w->mtu)
		w->max_len = w->mtu;
	if (w->row->ops & OPS_ATOMIC && w->max_len < 8)
		w->max_len = 8;
}

void node_open(struct world *w, struct node *n)
{
	open_device(n);
	measure(w, n);
}

void node_create(struct world *w, struct node *n)
{
	const struct row *row = w->row;
	const unsigned sq_depth = row_sq_depth(row), rq_depth = row_rq_depth(row),
		       rqs = row->srq ? 1 : row->qps;
	size_t stride;
	int ret;

	ret = ibv_query_gid(n->ctx, PORT, w->gid_index, &n->hello.gid);
	if (ret)
		fail("ibv_query_gid, index %d: %s", w->gid_index, strerror(errno));
	n->pd = ibv_alloc_pd(n->ctx);
	if (!n->pd)
		fail("ibv_alloc_pd: %s", strerror(errno));
	if (row->events) {
		n->channel = ibv_create_comp_channel(n->ctx);
		if (!n->channel)
			fail("ibv_create_comp_channel: %s", strerror(errno));
	}

	if (row->srq)
		create_srq(n, rq_depth);
	for (unsigned i = 0; i < row->qps; i++) {
		const int sends = sq_depth, receives = rq_depth;
		struct vqp *q = &n->qp[i];

		if (row->cqs == CQ_PER_QP || i == 0) {
			const unsigned sharers = row->cqs == CQ_PER_QP ? 1 : row->qps;

			if (row->cqs == CQ_SHARED) {
				q->scq = q->rcq = create_cq(n, sharers * (sends + receives), false);
			} else {
				q->scq = create_cq(n, sharers * sends, false);
				q->rcq = create_cq(n, sharers * receives, true);
			}
		} else {
			q->scq = n->qp[0].scq;
			q->rcq = n->qp[0].rcq;
		}
		create_qp(w, n, i, sq_depth, rq_depth);
		to_init(w, q);
	}
	register_all(w, n);
	stride = n->arena.recv_len / (rqs * rq_depth);
	for (unsigned i = 0; i < rqs; i++) {
		struct rq *rq = row->srq ? &n->shared_rq : &n->qp[i].own_rq;

		rq_init(rq, rq_depth, n->arena.recv + i * stride * rq_depth, stride);
	}
	for (unsigned i = 0; i < row->qps; i++)
		n->qp[i].rq = row->srq ? &n->shared_rq : &n->qp[i].own_rq;
}

/* ---- Connecting ---- */

static struct ibv_ah_attr address(struct world *w, const struct node *peer)
{
	return (struct ibv_ah_attr){
		.grh = { .dgid = peer->hello.gid, .sgid_index = w->gid_index, .hop_limit = 64 },
		.is_global = 1,
		.port_num = PORT,
	};
}

static void connect_qp(struct world *w, struct node *n, unsigned i)
{
	struct vqp *q = &n->qp[i];
	const struct node *peer = &w->node[q->peer];
	const bool rc = w->row->type == IBV_QPT_RC, ud = w->row->type == IBV_QPT_UD;
	int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN, ret;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct ibv_device_attr device;
	struct ibv_port_attr port;

	if (ibv_query_device(n->ctx, &device) || ibv_query_port(n->ctx, PORT, &port))
		fail("querying device or port failed");
	if (!ud) {
		attr.ah_attr = address(w, peer);
		attr.path_mtu = w->row->path_mtu ? w->row->path_mtu : port.active_mtu;
		attr.dest_qp_num = peer->hello.qpn[i];
		attr.rq_psn = peer->hello.psn[i];
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (rc) {
		attr.max_dest_rd_atomic =
			device.max_qp_rd_atom < MAX_ATOMS ? device.max_qp_rd_atom : MAX_ATOMS;
		attr.min_rnr_timer = 12;
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	ret = ibv_modify_qp(q->qp, &attr, rtr);
	if (ret)
		fail("INIT to RTR: %s", strerror(ret));

	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = n->hello.psn[i];
	if (rc) {
		attr.max_rd_atomic = attr.max_dest_rd_atomic;
		attr.timeout = w->far ? 17 : 14;
		attr.retry_cnt = 7;
		attr.rnr_retry = 7;
		rts |= IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		       IBV_QP_RNR_RETRY;
	}
	ret = ibv_modify_qp(q->qp, &attr, rts);
	if (ret)
		fail("RTR to RTS: %s", strerror(ret));
}

static void bind_window(struct node *n)
{
	struct ibv_mr *mr = n->mr[n->hello.mrs - 1];
	struct ibv_mw_bind bind = {
		.wr_id = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mr,
			       .addr = (uintptr_t)mr->addr,
			       .length = mr->length,
			       .mw_access_flags = all_rights & ~(unsigned)IBV_ACCESS_LOCAL_WRITE },
	};
	int ret = ibv_bind_mw(n->qp[0].qp, n->mw, &bind);
	struct ibv_wc wc;

	if (ret)
		fail("ibv_bind_mw: %s", strerror(ret));
	while (!poll_cq(n, n->qp[0].scq, &wc, 1))
		sched_yield();
	if (wc.status || wc.wr_id != 1 || wc.opcode != IBV_WC_BIND_MW)
		fail("binding a memory window: %s", wc_text(&wc));
	if (n->mw->rkey != n->hello.mr[n->hello.mrs - 1].rkey)
		fail("a bind made the memory window's key %#x", n->mw->rkey);
}

void node_connect(struct world *w, struct node *n)
{
	struct ibv_ah_attr attr;

	for (unsigned i = 0; i < w->row->qps; i++)
		connect_qp(w, n, i);
	if (n->mw)
		bind_window(n);
	if (w->row->type == IBV_QPT_UD) {
		attr = address(w, &w->node[n->qp[0].peer]);
		n->ah = ibv_create_ah(n->pd, &attr);
		if (!n->ah)
			fail("ibv_create_ah: %s", strerror(errno));
	}
}

/* ---- The end ---- */

/* Receives still posted to a QP come back flushed, each once, in their order. */
static void flush(struct node *n, struct vqp *q)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	int ret = ibv_modify_qp(q->qp, &attr, IBV_QP_STATE);
	struct ibv_wc wc;

	if (ret)
		fail("to ERR: %s", strerror(ret));
	while (!n->srq && q->rq->posted > 0) {
		if (!poll_cq(n, q->rcq, &wc, 1)) {
			sched_yield();
			continue;
		}
		if (wc.status != IBV_WC_WR_FLUSH_ERR || wc.qp_num != q->qp->qp_num)
			fail("while a QP's receives were flushed: %s", wc_text(&wc));
		rq_take(n, q, wc.wr_id);
	}
}

static void no_bad_event(struct node *n)
{
	struct ibv_async_event event;

	if (fcntl(n->ctx->async_fd, F_SETFL, O_NONBLOCK))
		fail("async_fd: %s", strerror(errno));
	while (!ibv_get_async_event(n->ctx, &event)) {
		if (event.event_type != IBV_EVENT_COMM_EST &&
		    event.event_type != IBV_EVENT_QP_LAST_WQE_REACHED)
			fail("asynchronous event: %s", ibv_event_type_str(event.event_type));
		ibv_ack_async_event(&event);
	}
	if (errno != EAGAIN)
		fail("ibv_get_async_event: %s", strerror(errno));
}

static void gone(const char *what, int ret)
{
	if (ret)
		fail("%s: %s", what, strerror(ret));
}

void node_close(struct world *w, struct node *n)
{
	struct ibv_wc wc;

	for (unsigned i = 0; i < w->row->qps; i++)
		flush(n, &n->qp[i]);
	for (unsigned i = 0; i < n->cqs; i++)
		if (poll_cq(n, &n->cq[i], &wc, 1))
			fail("left in a CQ: %s", wc_text(&wc));
	no_bad_event(n);
	oob_barrier(w);

	for (unsigned i = 0; i < w->row->qps; i++)
		gone("ibv_destroy_qp", ibv_destroy_qp(n->qp[i].qp));
	if (n->ah)
		gone("ibv_destroy_ah", ibv_destroy_ah(n->ah));
	if (n->srq)
		gone("ibv_destroy_srq", ibv_destroy_srq(n->srq));
	for (unsigned i = 0; i < n->cqs; i++) {
		ibv_ack_cq_events(n->cq[i].cq, n->cq[i].events);
		gone("ibv_destroy_cq", ibv_destroy_cq(n->cq[i].cq));
	}
	if (n->channel)
		gone("ibv_destroy_comp_channel", ibv_destroy_comp_channel(n->channel));
	if (n->mw)
		gone("ibv_dealloc_mw", ibv_dealloc_mw(n->mw));
	for (unsigned i = 0; i < n->hello.mrs; i++)
		gone("ibv_dereg_mr", ibv_dereg_mr(n->mr[i]));
	gone("ibv_dealloc_pd", ibv_dealloc_pd(n->pd));
	gone("ibv_close_device", ibv_close_device(n->ctx));
}
