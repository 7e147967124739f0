/* SPDX-License-Identifier: MIT */
/*
 * Memory that is not what it was when it was registered. A NIC has pinned its pages, and goes on
 * with them. So do peers that map them, whatever the program does to its own mapping. Where memory
 * is reached by copies of the kernel or the helper (UROCE_MEMORY=cma, and unsealed files), what
 * cannot be reached any more is a protection error with its cause; what can be reached is used as
 * it is now. In no case does a signal come, at either end.
 */
#include <stdlib.h>
#include <string.h>

#include "strict.h"

#define PAGE 4096u

enum { FIRST = 0x2000, PLACE = 0x3000, INBOX = 0x8000, SIZE = 64, GOOD = 16, PAGES = 2 };

enum where { LOCAL, REMOTE, RECEIVE };

struct memory_case {
	enum ibv_qp_type type;
	enum ibv_wr_opcode op;
	enum where where;
	enum fate fate;
	enum backing backing;
	unsigned kept; /* pages that stay as they were */
};

static bool is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Whether the NIC stores there. */
static bool stores(const struct memory_case *m)
{
	if (m->where == LOCAL)
		return m->op == IBV_WR_RDMA_READ || is_atomic(m->op);
	return m->op != IBV_WR_RDMA_READ;
}

/* Whether peers have the pages that were registered. */
static bool keeps_pages(const struct memory_case *m)
{
	const char *way = getenv("UROCE_MEMORY");

	if (m->fate == DISCARDED && m->backing == SEALED)
		return true;
	return m->fate != TRUNCATED && (!way || !strcmp(way, "mapped"));
}

/* Whether the program has new pages in their place. */
static bool renews(enum fate fate)
{
	return fate == DISCARDED || fate == REPLACED;
}

static bool fails(const struct memory_case *m)
{
	return !keeps_pages(m) && !renews(m->fate) && (m->fate != READ_ONLY || stores(m));
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

static uint32_t header(enum ibv_qp_type type)
{
	return type == IBV_QPT_UD ? GRH_BYTES : 0;
}

/* Receive number i of B got a good send. */
static void arrived(struct world *w, enum ibv_qp_type type, unsigned i)
{
	completes(w->b, RECV_CQ, 100 + i, IBV_WC_SUCCESS);
	changes(w, w->b, INBOX + i * 0x400, header(type));
	changes_to(w, w->b, INBOX + i * 0x400 + header(type), GOOD, w->a, FIRST);
}

static void local_fails(struct world *w, const struct memory_case *m)
{
	struct cause c;

	says(completes(w->a, SEND_CQ, 2, IBV_WC_LOC_PROT_ERR), CAUSE_LOCAL_FAULT);
	completes(w->a, SEND_CQ, 3, IBV_WC_WR_FLUSH_ERR);
	equal(state_of(w->a, 0), m->type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
	c = cause_of(w->a, CAUSE_LOCAL_FAULT);
	equal(c.wr_id, 2);
	equal(c.error, IBV_WC_LOC_PROT_ERR);
	/* The other end is not to blame. A message of which something had arrived before has taken
	 * its receive. */
	equal(state_of(w->b, 0), IBV_QPS_RTS);
	/* What was read cannot be put down, and over the wire what is behind it is on its way by then. */
	if (over_the_wire() && stores(m) && drain(w->b, RECV_CQ))
		changes_to(w, w->b, INBOX + 0x400, GOOD, w->a, FIRST);
	silent(w->b, RECV_CQ);
}

static void remote_fails(struct world *w, const struct memory_case *m)
{
	struct ibv_wc wc;
	struct cause c;

	if (m->type != IBV_QPT_RC) {
		completes(w->a, SEND_CQ, 3, IBV_WC_SUCCESS);
		c = cause_of(w->a, CAUSE_DROP_ACCESS);
		is_of_request(&c, 2);
		arrived(w, m->type, 1);
		return;
	}
	says(completes(w->a, SEND_CQ, 2, IBV_WC_REM_ACCESS_ERR), CAUSE_REMOTE_FAULT);
	completes(w->a, SEND_CQ, 3, IBV_WC_WR_FLUSH_ERR);
	equal(state_of(w->a, 0), IBV_QPS_ERR);
	c = cause_of(w->a, CAUSE_REMOTE_FAULT);
	equal(c.wr_id, 2);
	equal(c.error, IBV_WC_REM_ACCESS_ERR);
	raises(w->b, IBV_EVENT_QP_ACCESS_ERR, 0);
	equal(state_of(w->b, 0), IBV_QPS_ERR);
	wc = next_wc(w->b, RECV_CQ);
	equal(wc.wr_id, 101);
	/* A responder may execute a SEND while it still answers a READ (specification 10.8.3.3). */
	if (wc.status == IBV_WC_SUCCESS && over_the_wire() && m->op == IBV_WR_RDMA_READ)
		changes_to(w, w->b, INBOX + 0x400, GOOD, w->a, FIRST);
	else
		equal(wc.status, IBV_WC_WR_FLUSH_ERR);
}

static void receive_fails(struct world *w, const struct memory_case *m)
{
	struct cause c;

	if (m->type == IBV_QPT_RC) {
		says(completes(w->a, SEND_CQ, 2, IBV_WC_REM_OP_ERR),
		      CAUSE_REMOTE_FAULT);
		completes(w->a, SEND_CQ, 3, IBV_WC_WR_FLUSH_ERR);
		equal(state_of(w->a, 0), IBV_QPS_ERR);
		equal(cause_of(w->a, CAUSE_REMOTE_FAULT).error, IBV_WC_REM_OP_ERR);
	} else {
		completes(w->a, SEND_CQ, 3, IBV_WC_SUCCESS);
		c = cause_of(w->a, CAUSE_DROP_BAD_SGE);
		is_of_request(&c, 2);
	}
	says(completes(w->b, RECV_CQ, 101, IBV_WC_LOC_PROT_ERR), CAUSE_REMOTE_FAULT);
	completes(w->b, RECV_CQ, 102, IBV_WC_WR_FLUSH_ERR);
	becomes(w->b, 0, IBV_QPS_ERR);
}

/* Bytes that came from the region: those that were registered, or what is there instead. */
static void fetched(struct world *w, const struct memory_case *m, struct node *to, uint32_t at,
		    uint32_t length, const struct node *owner, uint32_t in_page)
{
	if (keeps_pages(m))
		changes_to(w, to, at, length, owner, in_page);
	else
		changes(w, to, at, length);
}

/* It works: where the bytes went to, and what they are. */
static void goes_well(struct world *w, const struct memory_case *m, uint64_t pages,
		      uint32_t in_page)
{
	struct node *owner = m->where == LOCAL ? w->a : w->b;
	const uint32_t length = is_atomic(m->op) ? 8 : SIZE;
	uint64_t spot = pages + in_page;

	completes(w->a, SEND_CQ, 3, IBV_WC_SUCCESS);
	if (m->op == IBV_WR_SEND && m->where == LOCAL) {
		completes(w->b, RECV_CQ, 101, IBV_WC_SUCCESS);
		changes(w, w->b, INBOX + 0x400, header(m->type));
		fetched(w, m, w->b, INBOX + 0x400 + header(m->type), length, w->a, in_page);
	}
	if (m->op == IBV_WR_SEND && m->where == RECEIVE)
		completes(w->b, RECV_CQ, 101, IBV_WC_SUCCESS);
	arrived(w, m->type, m->op == IBV_WR_SEND ? 2 : 1);
	if (m->where == LOCAL && m->op == IBV_WR_RDMA_WRITE)
		fetched(w, m, w->b, PLACE, length, w->a, in_page);
	if (m->where == LOCAL && m->op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		changes(w, w->b, PLACE, length);
	if (m->where == REMOTE && (m->op == IBV_WR_RDMA_READ || is_atomic(m->op)))
		fetched(w, m, w->a, PLACE, length, w->b, in_page);
	equal(state_of(w->a, 0), IBV_QPS_RTS);
	equal(state_of(w->b, 0), IBV_QPS_RTS);
	/* What was stored is there for the program as far as it still has these pages: also where they were discarded, which
	 * a NIC would not do. */
	if (!stores(m) || is_atomic(m->op))
		return;
	if (keeps_pages(m) && (m->fate == UNMAPPED || m->fate == REPLACED)) {
		if (m->fate == REPLACED)
			check(is_zero(owner, pages + m->kept * PAGE, (PAGES - m->kept) * PAGE),
			      "stored into pages that were never registered");
		return;
	}
	if (m->fate == NO_ACCESS)
		let_happen(owner, pages, PAGES, m->kept, READ_ONLY);
	if (m->where == RECEIVE)
		check(has_content(owner, spot + header(m->type), length, w->a, PLACE),
		      "not what was sent");
	else if (m->where == REMOTE)
		check(has_content(owner, spot, length, w->a, PLACE), "not what was written");
	else
		check(has_content(owner, spot, length, w->b, PLACE), "not what was read");
}

static void run_memory(struct world *w, const void *arg)
{
	const struct memory_case *m = arg;
	struct node *owner = m->where == LOCAL ? w->a : w->b;
	const uint32_t length = is_atomic(m->op) ? 8 : SIZE;
	const uint32_t extra = m->where == RECEIVE ? header(m->type) : 0;
	uint64_t pages = map_pages(owner, PAGES, m->backing), spot;
	struct region r = register_at(owner, 0, pages, PAGES * PAGE, ALL_RIGHTS);
	struct wr in[3], out[3];
	uint32_t in_page;

	/* Half of it on the page that stays, if one does. */
	in_page = m->kept ? m->kept * PAGE - (is_atomic(m->op) ? 0 : SIZE / 2) : 128;
	spot = pages + in_page;
	make_pair(w, m->type);
	for (unsigned i = 0; i < 3; i++)
		in[i] = recv_wr(100 + i, &w->rb, INBOX + i * 0x400, 0x100);
	if (m->where == RECEIVE)
		in[1].sge[0] = (struct ibv_sge){ spot, length + extra, r.lkey };
	receive(w->b, 0, in, 3);
	out[0] = good_send(w, 1, IBV_SEND_SIGNALED);
	out[1] = rdma_wr(2, m->op, &w->ra, PLACE, length, &w->rb, PLACE);
	out[1].flags = 0;
	/* So that it does store. */
	out[1].compare_add = 1;
	if (m->op == IBV_WR_ATOMIC_CMP_AND_SWP)
		for (unsigned i = 8; i-- > 0;)
			out[1].compare_add = out[1].compare_add << 8 |
					     (keeps_pages(m) || !renews(m->fate) ?
						      content(w->b, in_page + i) :
						      0);
	out[1].ah = 0;
	out[1].qpn = w->b->qpn[0];
	out[1].qkey = QKEY;
	if (m->where == LOCAL)
		out[1].sge[0] = (struct ibv_sge){ spot, length, r.lkey };
	if (m->where == REMOTE) {
		out[1].remote = spot;
		out[1].rkey = r.rkey;
	}
	out[2] = good_send(w, 3, IBV_SEND_SIGNALED);
	let_happen(owner, pages, PAGES, m->kept, m->fate);
	post(w->a, 0, out, 3);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	arrived(w, m->type, 0);
	/* What had been moved before the fault was found has been moved. */
	if (m->where == LOCAL && fails(m) && (m->kept || m->type == IBV_QPT_UD || is_atomic(m->op)))
		changes(w, w->b, m->op == IBV_WR_SEND ? INBOX + 0x400 : PLACE,
			length + header(m->type));
	if (m->where == REMOTE && fails(m) && m->kept && m->op == IBV_WR_RDMA_READ)
		changes(w, w->a, PLACE, length);
	if (!fails(m))
		goes_well(w, m, pages, in_page);
	else if (m->where == LOCAL)
		local_fails(w, m);
	else if (m->where == REMOTE)
		remote_fails(w, m);
	else
		receive_fails(w, m);
	silent(w->a, SEND_CQ);
	/* A region of what is gone can still be given back: world_close() does. */
}

/* A region is as long as it was, also when its pages are others. */
static void pages_mapped_anew_are_used(struct world *w, const void *arg)
{
	const struct memory_case m = { .fate = DISCARDED };
	uint64_t pages = map_pages(w->b, PAGES, ANONYMOUS);
	struct region r = register_at(w->b, 0, pages, PAGES * PAGE, ALL_RIGHTS);
	struct wr out;

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	let_happen(w->b, pages, PAGES, 0, DISCARDED);
	if (keeps_pages(&m))
		check(has_content(w->b, pages, PAGES * PAGE, w->b, 0), "discarded pages changed");
	else
		check(is_zero(w->b, pages, PAGES * PAGE), "discarded pages are not zero");
	out = rdma_wr(1, IBV_WR_RDMA_WRITE, &w->ra, PLACE, SIZE, &w->rb, PLACE);
	out.remote = r.addr + 100;
	out.rkey = r.rkey;
	post(w->a, 0, &out, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	check(has_content(w->b, pages + 100, SIZE, w->a, PLACE), "not what was written");
	if (keeps_pages(&m))
		check(has_content(w->b, pages, 100, w->b, 0) &&
			      has_content(w->b, pages + 100 + SIZE, PAGE, w->b, 100 + SIZE),
		      "more was written");
	else
		check(is_zero(w->b, pages, 100) && is_zero(w->b, pages + 100 + SIZE, PAGE),
		      "more was written");
}

static const char *const fates[] = {
	[UNMAPPED] = "unmapped",   [NO_ACCESS] = "no-access", [READ_ONLY] = "read-only",
	[TRUNCATED] = "truncated", [DISCARDED] = "discarded", [REPLACED] = "replaced"
};

void add_memory(void)
{
	static const struct {
		const char *name;
		enum ibv_qp_type type;
		enum ibv_wr_opcode op;
		enum where where;
	} accesses[] = {
		{ "rc/send", IBV_QPT_RC, IBV_WR_SEND, LOCAL },
		{ "rc/write/local", IBV_QPT_RC, IBV_WR_RDMA_WRITE, LOCAL },
		{ "rc/read/local", IBV_QPT_RC, IBV_WR_RDMA_READ, LOCAL },
		{ "rc/fetch-add/local", IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, LOCAL },
		{ "rc/receive", IBV_QPT_RC, IBV_WR_SEND, RECEIVE },
		{ "rc/write/remote", IBV_QPT_RC, IBV_WR_RDMA_WRITE, REMOTE },
		{ "rc/read/remote", IBV_QPT_RC, IBV_WR_RDMA_READ, REMOTE },
		{ "rc/cmp-swp/remote", IBV_QPT_RC, IBV_WR_ATOMIC_CMP_AND_SWP, REMOTE },
		{ "rc/fetch-add/remote", IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, REMOTE },
		{ "uc/send", IBV_QPT_UC, IBV_WR_SEND, LOCAL },
		{ "uc/write/remote", IBV_QPT_UC, IBV_WR_RDMA_WRITE, REMOTE },
		{ "uc/receive", IBV_QPT_UC, IBV_WR_SEND, RECEIVE },
		{ "ud/send", IBV_QPT_UD, IBV_WR_SEND, LOCAL },
		{ "ud/receive", IBV_QPT_UD, IBV_WR_SEND, RECEIVE },
	};
	static struct memory_case rows[sizeof(accesses) / sizeof(*accesses) * 22], *row = rows;

	for (unsigned a = 0; a < sizeof(accesses) / sizeof(*accesses); a++)
		for (enum fate fate = UNMAPPED; fate <= REPLACED; fate++)
			for (unsigned i = 0; i < 4; i++) {
				bool sealed = i & 2;

				/* Only unsealed files are truncated. */
				if (sealed && fate == TRUNCATED)
					continue;
				*row = (struct memory_case){
					.type = accesses[a].type,
					.op = accesses[a].op,
					.where = accesses[a].where,
					.fate = fate,
					.backing = fate == TRUNCATED ? UNSEALED :
						   sealed	     ? SEALED :
								       ANONYMOUS,
					.kept = i & 1,
				};
				add_case("memory", run_memory, row, "%s/%s%s%s", accesses[a].name,
					 sealed ? "sealed-file-" : "", fates[fate],
					 row->kept ? "-in-its-second-half" : "");
				row++;
			}
	add_case("memory", pages_mapped_anew_are_used, NULL, "rc/write/remote/pages-anew-are-used");
}
