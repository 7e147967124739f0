/* SPDX-License-Identifier: MIT */
/* Posting, polling, events and causes of a node, in its process; and memory that does not stay as
 * it was. */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nic/layout.h"
#include "strict.h"

#define PAGE 4096u

/* How long nothing must happen until it counts as never. */
#define MOMENT_MS 3

struct wr send_wr(uint64_t id, const struct region *r, uint32_t at, uint32_t length)
{
	return (struct wr){ .id = id,
			    .op = IBV_WR_SEND,
			    .flags = IBV_SEND_SIGNALED,
			    .sges = 1,
			    .sge = { { addr_of(r->node, at), length, r->lkey } },
			    .ah = -1 };
}

struct wr rdma_wr(uint64_t id, enum ibv_wr_opcode op, const struct region *r, uint32_t at,
		  uint32_t length, const struct region *remote, uint32_t remote_at)
{
	struct wr wr = send_wr(id, r, at, length);

	wr.op = op;
	wr.remote = addr_of(remote->node, remote_at);
	wr.rkey = remote->rkey;
	return wr;
}

struct wr recv_wr(uint64_t id, const struct region *r, uint32_t at, uint32_t length)
{
	return send_wr(id, r, at, length);
}

struct posting {
	unsigned slot, count;
	struct wr wr[LIST];
	int bad, result;
};

static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool has_data(enum ibv_wr_opcode op)
{
	return op != IBV_WR_BIND_MW && op != IBV_WR_LOCAL_INV;
}

static struct ibv_mw_bind_info bind_info(struct node *n, const struct bind *bind)
{
	return (struct ibv_mw_bind_info){ .mr = bind->region < 0 ? NULL : n->mr[bind->region],
					  .addr = bind->addr,
					  .length = bind->length,
					  .mw_access_flags = bind->access };
}

static struct ibv_mw *window_of(struct node *n, const struct bind *bind)
{
	return bind->window < 0 ? NULL : n->mw[bind->window];
}

static void post_classic(struct node *n, struct posting *p)
{
	struct ibv_send_wr wr[LIST] = { 0 }, *bad = NULL;

	for (unsigned i = 0; i < p->count; i++) {
		const struct wr *from = &p->wr[i];

		wr[i].wr_id = from->id;
		wr[i].next = i + 1 < p->count ? &wr[i + 1] : NULL;
		wr[i].sg_list = p->wr[i].sge;
		wr[i].num_sge = from->sges;
		wr[i].opcode = from->op;
		wr[i].send_flags = from->flags;
		wr[i].imm_data = from->imm;
		if (from->op == IBV_WR_BIND_MW) {
			wr[i].bind_mw.mw = window_of(n, &from->bind);
			wr[i].bind_mw.rkey = from->rkey;
			wr[i].bind_mw.bind_info = bind_info(n, &from->bind);
		} else if (from->op == IBV_WR_LOCAL_INV || from->op == IBV_WR_SEND_WITH_INV) {
			wr[i].invalidate_rkey = from->rkey;
		} else if (is_atomic(from->op)) {
			wr[i].wr.atomic.remote_addr = from->remote;
			wr[i].wr.atomic.rkey = from->rkey;
			wr[i].wr.atomic.compare_add = from->compare_add;
			wr[i].wr.atomic.swap = from->swap;
		} else if (n->qp[p->slot]->qp_type == IBV_QPT_UD) {
			wr[i].wr.ud.ah = from->ah < 0 ? NULL : n->ah[from->ah];
			wr[i].wr.ud.remote_qpn = from->qpn;
			wr[i].wr.ud.remote_qkey = from->qkey;
		} else {
			wr[i].wr.rdma.remote_addr = from->remote;
			wr[i].wr.rdma.rkey = from->rkey;
		}
	}
	p->result = ibv_post_send(n->qp[p->slot], wr, &bad);
	p->bad = bad ? (int)(bad - wr) : -1;
	/* The list is the program's again. */
	memset(wr, 0xee, sizeof(wr));
}

static void build(struct node *n, struct ibv_qp_ex *qpx, const struct wr *wr)
{
	struct ibv_mw_bind_info info;

	switch (wr->op) {
	case IBV_WR_SEND:
		ibv_wr_send(qpx);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(qpx, wr->imm);
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qpx, wr->rkey, wr->remote);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qpx, wr->rkey, wr->remote, wr->imm);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qpx, wr->rkey, wr->remote);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(qpx, wr->rkey, wr->remote, wr->compare_add, wr->swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(qpx, wr->rkey, wr->remote, wr->compare_add);
		break;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(qpx, wr->rkey);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(qpx, wr->rkey);
		break;
	case IBV_WR_BIND_MW:
		info = bind_info(n, &wr->bind);
		ibv_wr_bind_mw(qpx, window_of(n, &wr->bind), wr->rkey, &info);
		break;
	default:
		ibv_wr_send_tso(qpx, NULL, 0, 0);
	}
}

static void post_extended(struct node *n, struct posting *p)
{
	struct ibv_qp_ex *qpx = n->qpx[p->slot];

	ibv_wr_start(qpx);
	for (unsigned i = 0; i < p->count; i++) {
		const struct wr *wr = &p->wr[i];
		struct ibv_data_buf buf[SGES];

		qpx->wr_id = wr->id;
		qpx->wr_flags = wr->flags;
		build(n, qpx, wr);
		if (!has_data(wr->op))
			continue;
		if (n->qp[p->slot]->qp_type == IBV_QPT_UD && wr->ah >= 0)
			ibv_wr_set_ud_addr(qpx, n->ah[wr->ah], wr->qpn, wr->qkey);
		if (!(wr->flags & IBV_SEND_INLINE)) {
			ibv_wr_set_sge_list(qpx, (size_t)wr->sges, wr->sge);
			continue;
		}
		for (int s = 0; s < wr->sges; s++)
			buf[s] = (struct ibv_data_buf){ (void *)(uintptr_t)wr->sge[s].addr,
							wr->sge[s].length };
		ibv_wr_set_inline_data_list(qpx, (size_t)wr->sges, buf);
	}
	p->result = ibv_wr_complete(qpx);
	p->bad = -1;
}

static void do_post(struct node *n, void *arg)
{
	if (n->extended)
		post_extended(n, arg);
	else
		post_classic(n, arg);
}

static int post_with(struct node *n, void (*fn)(struct node *n, void *arg), unsigned slot,
		     const struct wr *wr, unsigned count, int *bad)
{
	struct posting p = { .slot = slot, .count = count };

	check(count <= LIST, "a list too long: a bug of this test");
	memcpy(p.wr, wr, count * sizeof(*wr));
	at(n, fn, &p, sizeof(p));
	if (bad)
		*bad = p.bad;
	return p.result;
}

int post_list(struct node *n, unsigned qp, const struct wr *wr, unsigned count, int *bad)
{
	return post_with(n, do_post, qp, wr, count, bad);
}

struct binding {
	unsigned qp;
	uint64_t id;
	struct bind bind;
	uint32_t rkey;
	int result;
};

static void do_bind(struct node *n, void *arg)
{
	struct binding *b = arg;
	struct ibv_mw_bind bind = { .wr_id = b->id,
				    .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = bind_info(n, &b->bind) };

	b->result = ibv_bind_mw(n->qp[b->qp], n->mw[b->bind.window], &bind);
	b->rkey = n->mw[b->bind.window]->rkey;
}

int bind_window(struct node *n, unsigned qp, uint64_t id, const struct bind *bind, uint32_t *rkey)
{
	struct binding b = { .qp = qp, .id = id, .bind = *bind };

	at(n, do_bind, &b, sizeof(b));
	*rkey = b.rkey;
	return b.result;
}

static void to_receives(struct posting *p, struct ibv_recv_wr *wr)
{
	for (unsigned i = 0; i < p->count; i++)
		wr[i] = (struct ibv_recv_wr){ .wr_id = p->wr[i].id,
					      .next = i + 1 < p->count ? &wr[i + 1] : NULL,
					      .sg_list = p->wr[i].sge,
					      .num_sge = p->wr[i].sges };
}

static void do_receive(struct node *n, void *arg)
{
	struct posting *p = arg;
	struct ibv_recv_wr wr[LIST], *bad = NULL;

	to_receives(p, wr);
	p->result = ibv_post_recv(n->qp[p->slot], wr, &bad);
	p->bad = bad ? (int)(bad - wr) : -1;
}

int post_receives(struct node *n, unsigned qp, const struct wr *wr, unsigned count, int *bad)
{
	return post_with(n, do_receive, qp, wr, count, bad);
}

static void do_receive_srq(struct node *n, void *arg)
{
	struct posting *p = arg;
	struct ibv_recv_wr wr[LIST], *bad = NULL;

	to_receives(p, wr);
	p->result = ibv_post_srq_recv(n->srq[p->slot], wr, &bad);
	p->bad = bad ? (int)(bad - wr) : -1;
}

int post_srq(struct node *n, unsigned srq, const struct wr *wr, unsigned count, int *bad)
{
	return post_with(n, do_receive_srq, srq, wr, count, bad);
}

void post(struct node *n, unsigned qp, const struct wr *wr, unsigned count)
{
	equal(post_list(n, qp, wr, count, NULL), 0);
}

void receive(struct node *n, unsigned qp, const struct wr *wr, unsigned count)
{
	equal(post_receives(n, qp, wr, count, NULL), 0);
}

struct polling {
	unsigned cq, ms;
	int got;
	struct ibv_wc wc;
};

/* The current completion of an extended CQ; of a failed one only these fields mean something. */
static void read_wc(struct ibv_cq_ex *cqx, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc){ .wr_id = cqx->wr_id,
			       .status = cqx->status,
			       .vendor_err = ibv_wc_read_vendor_err(cqx),
			       .qp_num = ibv_wc_read_qp_num(cqx) };
	if (cqx->status)
		return;
	wc->opcode = ibv_wc_read_opcode(cqx);
	wc->byte_len = ibv_wc_read_byte_len(cqx);
	wc->wc_flags = ibv_wc_read_wc_flags(cqx);
	wc->imm_data = ibv_wc_read_imm_data(cqx);
	wc->src_qp = ibv_wc_read_src_qp(cqx);
}

static int poll_once(struct node *n, unsigned cq, struct ibv_wc *wc)
{
	struct ibv_poll_cq_attr attr = { 0 };
	int error;

	if (!n->extended)
		return ibv_poll_cq(n->cq[cq], 1, wc);
	error = ibv_start_poll(n->cqx[cq], &attr);
	if (error)
		return error == ENOENT ? 0 : -error;
	read_wc(n->cqx[cq], wc);
	ibv_end_poll(n->cqx[cq]);
	return 1;
}

static void do_poll(struct node *n, void *arg)
{
	struct polling *p = arg;
	uint64_t end = now_ns() + p->ms * 1000000ull;

	while (!(p->got = poll_once(n, p->cq, &p->wc)) && now_ns() < end)
		sched_yield();
}

struct ibv_wc completes_at(const char *file, int line, struct node *n, unsigned cq, uint64_t id,
			   enum ibv_wc_status status)
{
	struct polling p = { .cq = cq, .ms = WAIT_MS };

	at(n, do_poll, &p, sizeof(p));
	if (p.got != 1)
		fail_at(file, line, "no completion of %llu at node %c: poll says %d",
			(unsigned long long)id, 'A' + n->id, p.got);
	if (p.wc.wr_id != id || p.wc.status != status)
		fail_at(file, line,
			"node %c: %llu completes with %d (%s), cause %u (%s); not %llu with %d (%s)",
			'A' + n->id, (unsigned long long)p.wc.wr_id, p.wc.status,
			ibv_wc_status_str(p.wc.status), p.wc.vendor_err,
			cause_text(p.wc.vendor_err), (unsigned long long)id, status,
			ibv_wc_status_str(status));
	if (status == IBV_WC_WR_FLUSH_ERR && p.wc.vendor_err != CAUSE_FLUSHED && p.wc.vendor_err != CAUSE_FLUSHED_BY_PROGRAM &&
	    p.wc.vendor_err != CAUSE_FLUSHED_BY_CQ)
		fail_at(file, line, "a flushed WR has cause %u", p.wc.vendor_err);
	return p.wc;
}

struct ibv_wc next_wc(struct node *n, unsigned cq)
{
	struct polling p = { .cq = cq, .ms = WAIT_MS };

	at(n, do_poll, &p, sizeof(p));
	check(p.got == 1, "no completion at node %c", 'A' + n->id);
	return p.wc;
}

void silent_at(const char *file, int line, struct node *n, unsigned cq)
{
	struct polling p = { .cq = cq, .ms = MOMENT_MS };

	at(n, do_poll, &p, sizeof(p));
	if (p.got)
		fail_at(file, line,
			"node %c: %llu completes with %d, cause %u (%s); nothing should",
			'A' + n->id, (unsigned long long)p.wc.wr_id, p.wc.status, p.wc.vendor_err,
			cause_text(p.wc.vendor_err));
}

static void do_drain(struct node *n, void *arg)
{
	struct polling *p = arg;
	int got;

	while ((got = poll_once(n, p->cq, &p->wc)) == 1)
		p->got++;
	equal(got, 0);
}

unsigned drain(struct node *n, unsigned cq)
{
	struct polling p = { .cq = cq };

	at(n, do_drain, &p, sizeof(p));
	return (unsigned)p.got;
}

struct event {
	unsigned ms;
	bool got;
	int type;
	int slot;
};

static void do_event(struct node *n, void *arg)
{
	struct event *e = arg;
	struct pollfd fd = { .fd = n->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	e->got = poll(&fd, 1, (int)e->ms) == 1;
	if (!e->got)
		return;
	equal(ibv_get_async_event(n->ctx, &event), 0);
	e->type = event.event_type;
	e->slot = -1;
	for (int i = 0; i < QPS; i++)
		if (event.element.qp == n->qp[i])
			e->slot = i;
	for (int i = 0; i < CQS; i++)
		if (event.element.cq == n->cq[i])
			e->slot = i;
	for (int i = 0; i < SRQS; i++)
		if (event.element.srq == n->srq[i])
			e->slot = i;
	ibv_ack_async_event(&event);
}

void raises_at(const char *file, int line, struct node *n, enum ibv_event_type type, unsigned slot)
{
	struct event e = { .ms = WAIT_MS };

	at(n, do_event, &e, sizeof(e));
	if (!e.got)
		fail_at(file, line, "no event at node %c; %s should come", 'A' + n->id,
			ibv_event_type_str(type));
	if (e.type != (int)type || e.slot != (int)slot)
		fail_at(file, line, "node %c: event %s of %d comes, not %s of %u", 'A' + n->id,
			ibv_event_type_str(e.type), e.slot, ibv_event_type_str(type), slot);
}

void no_event(struct node *n)
{
	struct event e = { .ms = MOMENT_MS };

	at(n, do_event, &e, sizeof(e));
	check(!e.got, "node %c: event %s of %d comes; none should", 'A' + n->id,
	      ibv_event_type_str(e.type), e.slot);
}

struct arming {
	unsigned cq, ms, count;
	bool solicited, ack, got;
	int result;
};

static void do_arm(struct node *n, void *arg)
{
	struct arming *a = arg;

	a->result = ibv_req_notify_cq(n->cq[a->cq], a->solicited);
}

int arm_cq(struct node *n, unsigned cq, bool solicited)
{
	struct arming a = { .cq = cq, .solicited = solicited };

	at(n, do_arm, &a, sizeof(a));
	return a.result;
}

static void do_read_event(struct node *n, void *arg)
{
	struct arming *a = arg;
	struct pollfd fd = { .fd = n->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	a->got = poll(&fd, 1, (int)a->ms) == 1;
	if (!a->got)
		return;
	equal(ibv_get_cq_event(n->channel, &cq, &context), 0);
	check(cq == n->cq[a->cq], "the event is another CQ's");
	if (a->ack)
		ibv_ack_cq_events(cq, 1);
}

bool read_event(struct node *n, unsigned cq, unsigned ms, bool ack)
{
	struct arming a = { .cq = cq, .ms = ms, .ack = ack };

	at(n, do_read_event, &a, sizeof(a));
	return a.got;
}

static void do_acknowledge(struct node *n, void *arg)
{
	struct arming *a = arg;

	ibv_ack_cq_events(n->cq[a->cq], a->count);
}

void acknowledge(struct node *n, unsigned cq, unsigned count)
{
	struct arming a = { .cq = cq, .count = count };

	at(n, do_acknowledge, &a, sizeof(a));
}

/* The process's own segment: of those mapped, the one whose header names us. */
static const struct nic_segment *own_segment(void)
{
	static const struct nic_segment *found;
	FILE *maps = found ? NULL : fopen("/proc/self/maps", "r");
	int memory = maps ? open("/proc/self/mem", O_RDONLY | O_CLOEXEC) : -1;
	char text[512];

	while (maps && fgets(text, sizeof(text), maps)) {
		struct seg_header hdr;
		unsigned long from, to, offset;

		if (!strstr(text, "/memfd:uroce") ||
		    sscanf(text, "%lx-%lx %*s %lx", &from, &to, &offset) != 3 || offset ||
		    to - from < sizeof(*found))
			continue;
		/* It may be a peer's that the helper has mapped this moment. */
		if (pread(memory, &hdr, sizeof(hdr), (off_t)from) == sizeof(hdr) && hdr.magic == NIC_MAGIC &&
		    hdr.pid == (uint32_t)getpid())
			found = (const struct nic_segment *)from;
	}
	if (maps) {
		fclose(maps);
		close(memory);
	}
	check(found, "no segment of this process is mapped");
	return found;
}

struct look {
	uint32_t code; /* 0: the newest of this thread */
	bool found;
	struct cause cause;
};

static void do_look(struct node *n, void *arg)
{
	struct look *look = arg;
	const struct cause_ring *ring = &own_segment()->causes;
	uint64_t next = atomic_load(&ring->next);

	(void)n;
	for (uint64_t i = next; i > 0 && next - i < NIC_CAUSES && !look->found; i--) {
		const struct cause *c = &ring->slots[(i - 1) % NIC_CAUSES];

		if (atomic_load(&c->seq) != i)
			continue;
		look->found = look->code ? c->code == look->code :
					   c->tid == (uint32_t)syscall(SYS_gettid);
		if (look->found)
			memcpy(&look->cause, c, sizeof(*c));
	}
}

bool over_the_wire(void)
{
	const char *transport = getenv("UROCE_TRANSPORT");

	return transport && !strcmp(transport, "roce");
}

/* Who finds that out, where the two ends only exchange packets. */
enum finder { INITIATOR, RESPONDER_TELLS, RESPONDER_DROPS, NOBODY };

static enum finder finder_of(enum cause_code code)
{
	if (!over_the_wire())
		return INITIATOR;
	switch (code) {
	case CAUSE_RKEY_UNKNOWN ... CAUSE_MTU_MISMATCH:
	case CAUSE_REMOTE_CQ_ERROR:
	case CAUSE_WINDOW_UNBOUND ... CAUSE_WINDOW_ACCESS:
		return RESPONDER_TELLS;
	case CAUSE_DROP_NO_RECEIVE:
	case CAUSE_DROP_QKEY:
	case CAUSE_DROP_TOO_LONG ... CAUSE_DROP_BAD_SGE:
		return RESPONDER_DROPS;
	case CAUSE_PEER_ABSENT ... CAUSE_PEER_OTHER_USER:
	case CAUSE_PEER_QP_TYPE:
	case CAUSE_DROP_NO_QP:
		return NOBODY;
	default:
		return INITIATOR;
	}
}

/* What an initiator says whose request ends so; nothing of what it found itself. */
static enum cause_code heard(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
		return CAUSE_NAK_ACCESS;
	case IBV_WC_REM_INV_REQ_ERR:
		return CAUSE_NAK_INVALID_REQUEST;
	case IBV_WC_REM_OP_ERR:
		return CAUSE_NAK_OPERATION;
	case IBV_WC_RETRY_EXC_ERR:
		return CAUSE_NO_ANSWER;
	default:
		return CAUSE_NONE;
	}
}

void says_at(const char *file, int line, struct ibv_wc wc, enum cause_code code)
{
	if (heard(wc.status) && finder_of(code) != INITIATOR)
		code = heard(wc.status);
	if (wc.vendor_err != code)
		fail_at(file, line, "the completion's cause is %u (%s), not \"%s\"", wc.vendor_err,
			cause_text(wc.vendor_err), cause_text(code));
}

bool leaves_cause(enum cause_code code)
{
	return finder_of(code) != NOBODY;
}

static bool look_for(struct node *n, enum cause_code code, struct cause *c)
{
	struct look look = { .code = code };

	at(n, do_look, &look, sizeof(look));
	*c = look.cause;
	return look.found;
}

/* The request as its initiator knows it, the rest as the responder does. */
static struct cause both_ends(const char *file, int line, struct cause ours, const struct cause *theirs)
{
	if (ours.qpn != theirs->peer_qpn || ours.peer_qpn != theirs->qpn)
		fail_at(file, line, "the two ends' causes are of other queue pairs: %#x to %#x, %#x to %#x", ours.qpn,
			ours.peer_qpn, theirs->qpn, theirs->peer_qpn);
	ours.code = theirs->code;
	ours.addr = theirs->addr;
	ours.key = theirs->key;
	ours.access = theirs->access;
	ours.region_addr = theirs->region_addr;
	ours.region_length = theirs->region_length;
	ours.region_access = theirs->region_access;
	ours.limit = theirs->limit;
	ours.value = theirs->value;
	return ours;
}

struct cause cause_at(const char *file, int line, struct node *n, enum cause_code code)
{
	static const enum cause_code naks[] = { CAUSE_NAK_ACCESS, CAUSE_NAK_INVALID_REQUEST, CAUSE_NAK_OPERATION };
	enum finder finder = finder_of(code);
	struct cause ours = { 0 }, theirs = { 0 };
	bool found = false;

	/* A request that ends there without a NAK has its cause in full. */
	if (look_for(n, code, &ours) && ours.error)
		return ours;
	if (finder == RESPONDER_TELLS || finder == RESPONDER_DROPS) {
		/* Nobody tells when a message has been dropped. */
		for (uint64_t end = now_ns() + WAIT_MS * 1000000ull; !look_for(peer_of(n), code, &theirs) && now_ns() < end;)
			pause_ms(1);
		if (!theirs.code)
			fail_at(file, line, "the responder has no cause \"%s\"", cause_text(code));
		for (unsigned i = 0; i < 3 && !found && finder == RESPONDER_TELLS; i++)
			found = look_for(n, naks[i], &ours);
		if (!found)
			ours = (struct cause){ .qpn = theirs.peer_qpn, .peer_qpn = theirs.qpn, .length = theirs.length };
		if (!found && finder == RESPONDER_TELLS)
			fail_at(file, line, "node %c has heard nothing of \"%s\"", 'A' + n->id, cause_text(code));
		return both_ends(file, line, ours, &theirs);
	}
	if (finder == NOBODY)
		code = CAUSE_NO_ANSWER;
	if (!look_for(n, code, &ours))
		fail_at(file, line, "node %c has no cause \"%s\"", 'A' + n->id, cause_text(code));
	return ours;
}

void is_of_request_at(const char *file, int line, const struct cause *c, uint64_t id)
{
	if (finder_of((enum cause_code)c->code) != RESPONDER_DROPS && c->wr_id != id)
		fail_at(file, line, "the cause is of request %llu, not %llu", (unsigned long long)c->wr_id,
			(unsigned long long)id);
}

struct count {
	size_t place;
	uint64_t value;
};

static void do_count(struct node *n, void *arg)
{
	struct count *count = arg;

	(void)n;
	count->value = atomic_load(
		(const _Atomic uint64_t *)((const uint8_t *)&own_segment()->counters + count->place));
}

uint64_t counter_of(struct node *n, size_t place)
{
	struct count count = { .place = place };

	at(n, do_count, &count, sizeof(count));
	return count.value;
}

struct cause refused_at(const char *file, int line, struct node *n, enum cause_code code, int error)
{
	struct look look = { .code = 0 };

	at(n, do_look, &look, sizeof(look));
	if (!look.found || look.cause.code != code || look.cause.error != error)
		fail_at(file, line, "the newest cause is %u (%s), error %d; not \"%s\", error %d",
			look.cause.code, cause_text(look.cause.code), look.cause.error,
			cause_text(code), error);
	return look.cause;
}

struct pages {
	uint64_t addr;
	unsigned pages, kept;
	enum backing backing;
	enum fate fate;
	uint32_t length, from_at;
	const struct node *from;
	bool result;
};

/* Of the mapping that a case makes; one a node. */
static int memfd[2] = { -1, -1 };

static void do_map(struct node *n, void *arg)
{
	struct pages *p = arg;
	size_t length = p->pages * PAGE;
	uint8_t *to;

	if (memfd[n->id] >= 0)
		close(memfd[n->id]);
	memfd[n->id] = -1;
	if (p->backing) {
		memfd[n->id] = memfd_create("strict", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		check(memfd[n->id] >= 0 && !ftruncate(memfd[n->id], (off_t)length) &&
			      !fcntl(memfd[n->id], F_ADD_SEALS,
				     p->backing == SEALED ? F_SEAL_SHRINK : F_SEAL_GROW),
		      "memfd: %s", strerror(errno));
	}
	/* Neighbours must not be reached by mistake, and what is freed must not be taken by
	 * others: the kernel looks for room from the top. */
	to = mmap((void *)(0x200000000000 + ((uintptr_t)n->id << 36)), length + 2 * PAGE, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(to != MAP_FAILED, "mmap: %s", strerror(errno));
	to = mmap(to + PAGE, length, PROT_READ | PROT_WRITE,
		  MAP_FIXED | (p->backing ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS), memfd[n->id],
		  0);
	check(to != MAP_FAILED, "mmap: %s", strerror(errno));
	for (uint32_t i = 0; i < length; i++)
		to[i] = content(n, i);
	p->addr = (uintptr_t)to;
}

uint64_t map_pages(struct node *n, unsigned pages, enum backing backing)
{
	struct pages p = { .pages = pages, .backing = backing };

	at(n, do_map, &p, sizeof(p));
	return p.addr;
}

static void do_let_happen(struct node *n, void *arg)
{
	struct pages *p = arg;
	uint8_t *from = (uint8_t *)(uintptr_t)p->addr + p->kept * PAGE;
	size_t length = (p->pages - p->kept) * PAGE;

	switch (p->fate) {
	case UNMAPPED:
		equal(munmap(from, length), 0);
		break;
	case NO_ACCESS:
		equal(mprotect(from, length, PROT_NONE), 0);
		break;
	case READ_ONLY:
		equal(mprotect(from, length, PROT_READ), 0);
		break;
	case TRUNCATED:
		equal(ftruncate(memfd[n->id], (off_t)p->kept * PAGE), 0);
		break;
	case DISCARDED:
		equal(madvise(from, length, MADV_DONTNEED), 0);
		break;
	case REPLACED:
		check(mmap(from, length, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == from,
		      "mmap: %s", strerror(errno));
		break;
	}
}

void let_happen(struct node *n, uint64_t addr, unsigned pages, unsigned kept, enum fate fate)
{
	struct pages p = { .addr = addr, .pages = pages, .kept = kept, .fate = fate };

	at(n, do_let_happen, &p, sizeof(p));
}

static void do_has_content(struct node *n, void *arg)
{
	struct pages *p = arg;
	const uint8_t *bytes = (const uint8_t *)(uintptr_t)p->addr;

	(void)n;
	p->result = true;
	for (uint32_t i = 0; i < p->length && p->result; i++)
		p->result = bytes[i] == (p->from ? content(p->from, p->from_at + i) : 0);
}

bool has_content(struct node *n, uint64_t addr, uint32_t length, const struct node *from,
		 uint32_t from_at)
{
	struct pages p = { .addr = addr, .length = length, .from = from, .from_at = from_at };

	at(n, do_has_content, &p, sizeof(p));
	return p.result;
}

bool is_zero(struct node *n, uint64_t addr, uint32_t length)
{
	return has_content(n, addr, length, NULL, 0);
}

struct sum {
	uint64_t addr, sum;
	uint32_t length;
};

static void do_sum(struct node *n, void *arg)
{
	struct sum *s = arg;
	const uint8_t *bytes = (const uint8_t *)(uintptr_t)s->addr;

	(void)n;
	for (uint32_t i = 0; i + 8 <= s->length; i += 8) {
		uint64_t word;

		memcpy(&word, bytes + i, sizeof(word));
		s->sum = (s->sum ^ word) * 0x9e3779b97f4a7c15u;
	}
}

uint64_t sum_of(struct node *n, uint64_t addr, uint32_t length)
{
	struct sum s = { .addr = addr, .length = length };

	at(n, do_sum, &s, sizeof(s));
	return s.sum;
}
