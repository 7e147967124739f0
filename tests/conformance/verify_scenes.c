/* SPDX-License-Identifier: MIT */
/*
 * Rows that are no rounds of random operations: what must hold while operations are under way.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include "verify.h"

/* ---- A WRITE's last byte ---- */

static void wait_for_sends(struct node *n, struct vqp *q)
{
	while (q->completed < q->count)
		node_progress(n);
}

/* Spin, as ib_write_lat does, on memory alone: no verb is called until the byte has changed. */
static void spin(struct world *w, const volatile uint8_t *byte, uint8_t old)
{
	for (unsigned idle = 1; *byte == old; idle++) {
		if (idle % 256 == 0)
			sched_yield();
		if (idle % 65536 == 0 && oob_peer_gone(w))
			fail_as(VERDICT_PEER, "the other process has gone");
	}
	/* What the NIC wrote before the last byte is read after it. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/* From the end, because a writer that had put the last byte first would be just before it now. */
static bool same_from_the_end(const uint8_t *a, const uint8_t *b, size_t len)
{
	size_t part;

	for (; len > 0; len -= part) {
		part = len < 64 ? len : 64;
		if (memcmp(a + len - part, b + len - part, part))
			return false;
	}
	return true;
}

/*
 * The two write to each other in turns; the reader spins on the last byte and then compares all of
 * the message. Sources lie in the lower half of the data regions, targets in the upper.
 */
void scene_last_byte(struct world *w)
{
	const size_t len0 = w->node[0].arena.data_len, len1 = w->node[1].arena.data_len;
	const size_t half = (len0 < len1 ? len0 : len1) / 2;
	static struct op op[MAX_NODES];

	oob_barrier(w);
	for (w->round = 1; w->ops_done < w->ops_wanted; w->round++, w->ops_done++) {
		struct node *from = &w->node[w->round % 2], *to = &w->node[!(w->round % 2)];
		const size_t len =
			1 + rng_below(&w->rng, rng_chance(&w->rng, 50) ? 5000 : w->max_len);
		const size_t src = from->arena.data + rng_below(&w->rng, half - len);
		const size_t dst = to->arena.data + half + rng_below(&w->rng, half - len);
		const uint64_t seed = rng_next(&w->rng);
		const uint8_t old = to->arena.model[dst + len - 1];
		struct vqp *q = &from->qp[0];

		if (from->mine)
			wait_for_sends(from, q);
		rng_fill(from->arena.model + src, len, seed);
		if (from->arena.model[src + len - 1] == old)
			from->arena.model[src + len - 1]++;
		memcpy(to->arena.model + dst, from->arena.model + src, len);
		if (from->mine) {
			struct op *write = &op[from->id];

			memcpy(from->arena.mem + src, from->arena.model + src, len);
			*write = (struct op){
				.kind = OP_WRITE,
				.node = from->id,
				.dnode = to->id,
				.signaled = true,
				.len = len,
				.pieces = 1,
				.piece = { { src, len, 1 } },
				.remote = { dst, len, 1 },
				.wr_id = seed,
			};
			q->sq[0] = write;
			q->posted = q->completed = 0;
			q->count = 1;
			while (!q->posted)
				node_progress(from);
		}
		if (to->mine) {
			spin(w, to->arena.mem + dst + len - 1, old);
			if (!same_from_the_end(to->arena.mem + dst, to->arena.model + dst, len))
				fail("node %u: the last of %zu bytes had come, others had not",
				     to->id, len);
			w->bytes_checked += len;
		}
	}
	for (unsigned i = 0; i < w->nodes; i++)
		if (w->node[i].mine)
			wait_for_sends(&w->node[i], &w->node[i].qp[0]);
	oob_barrier(w);
	for (unsigned i = 0; i < w->nodes; i++)
		if (w->node[i].mine)
			arena_compare(w, &w->node[i]);
}

/* ---- Atomics from all sides ---- */

/*
 * A QP that counts two words of node 1 up: one by FETCH_ADD, one by CMP_SWP. One operation at a
 * time.
 */
struct contender {
	struct node *n;
	struct vqp *q;
	struct op op;
	struct op *list[1];
	unsigned adds, swaps; /* to go */
	bool any, waiting;
	uint64_t last, guess, sum;
};

/* Where a QP's results go, in its own node's data region. */
static size_t result_of(const struct contender *c)
{
	return c->n->arena.data + 128 + 8 * (c->q - c->n->qp);
}

static void contend(struct contender *c, size_t adding, size_t swapping)
{
	struct node *n = c->n;
	const bool add = c->swaps == 0 || (c->adds > 0 && rng_chance(&n->rng, 50));

	c->op = (struct op){
		.kind = add ? OP_FETCH_ADD : OP_CMP_SWP,
		.node = n->id,
		.qp = c->q - n->qp,
		.dnode = 1,
		.signaled = true,
		.len = 8,
		.pieces = 1,
		.piece = { { result_of(c), 8, 1 } },
		.remote = { add ? adding : swapping, 8, 1 },
		.add_or_compare = add ? 1 : c->guess,
		.swap = c->guess + 1,
		.wr_id = rng_next(&n->rng),
	};
	c->list[0] = &c->op;
	c->waiting = true;
	post(n, c->q, c->list, 1);
}

static void answered(struct contender *c)
{
	const size_t result = result_of(c);
	uint64_t value;

	memcpy(&value, c->n->arena.mem + result, sizeof(value));
	memcpy(c->n->arena.model + result, &value, sizeof(value));
	c->waiting = false;
	if (c->op.kind == OP_FETCH_ADD) {
		if (c->any && value <= c->last)
			fail("FETCH_ADD on one QP returned %llu after %llu",
			     (unsigned long long)value, (unsigned long long)c->last);
		c->any = true;
		c->last = value;
		c->sum += value;
		c->adds--;
	} else if (value == c->guess) {
		c->guess++;
		c->swaps--;
	} else {
		if (value < c->guess)
			fail("CMP_SWP returned %llu from a counter that was %llu",
			     (unsigned long long)value, (unsigned long long)c->guess);
		c->guess = value;
	}
}

static void poll_contenders(struct node *n, struct contender *contender, unsigned count)
{
	struct ibv_wc wc;

	while (poll_cq(n, n->qp[0].scq, &wc, 1)) {
		struct contender *c = NULL;

		for (unsigned i = 0; i < count; i++)
			if (contender[i].n == n && contender[i].q->qp->qp_num == wc.qp_num)
				c = &contender[i];
		if (wc.status != IBV_WC_SUCCESS || !c || !c->waiting || wc.wr_id != c->op.wr_id)
			fail("node %u: an atomic's completion: %s", n->id, wc_text(&wc));
		answered(c);
	}
}

/* Every count is somebody's: what FETCH_ADD returned is 0..n-1, each once. */
void scene_contended_atomics(struct world *w)
{
	struct contender contender[MAX_NODES * MAX_QPS] = {};
	const size_t adding = (w->node[1].arena.data + 64) & ~7, swapping = adding + 8;
	const unsigned remote = w->row->qps - w->row->self_qps, all = remote + w->row->self_qps;
	const unsigned each = w->ops_wanted / (2 * all) + 16;
	uint64_t total = (uint64_t)all * each, sum = 0, zero[2] = { 0, 0 };
	unsigned count = 0, left;

	for (unsigned i = 0; i < w->nodes; i++) {
		struct node *n = &w->node[i];

		for (unsigned qp = 0; qp < w->row->qps && n->mine; qp++)
			if (n->qp[qp].peer == 1)
				contender[count++] = (struct contender){
					.n = n, .q = &n->qp[qp], .adds = each, .swaps = each
				};
		if (n->mine) {
			memcpy(n->arena.mem + adding, zero, sizeof(zero));
			memcpy(n->arena.model + adding, zero, sizeof(zero));
		}
	}
	oob_barrier(w);
	do {
		left = 0;
		for (unsigned i = 0; i < count; i++) {
			struct contender *c = &contender[i];

			left += c->adds + c->swaps;
			if (!c->waiting && c->adds + c->swaps > 0)
				contend(c, adding, swapping);
		}
		for (unsigned i = 0; i < w->nodes; i++)
			if (w->node[i].mine)
				poll_contenders(&w->node[i], contender, count);
	} while (left > 0);

	for (unsigned i = 0; i < count; i++) {
		sum += contender[i].sum;
		w->ops_done += 2 * each;
	}
	sum += oob_swap(w, sum);
	if (sum != total * (total - 1) / 2)
		fail("what %llu FETCH_ADDs returned sums to %llu", (unsigned long long)total,
		     (unsigned long long)sum);
	if (w->node[1].mine) {
		memcpy(w->node[1].arena.model + adding, &total, sizeof(total));
		memcpy(w->node[1].arena.model + swapping, &total, sizeof(total));
	}
	for (unsigned i = 0; i < w->nodes; i++)
		if (w->node[i].mine)
			arena_compare(w, &w->node[i]);
}

/* ---- 2 GiB in one message ---- */

#define BIG   (1ull << 31)
#define CHUNK (1u << 20)
#define GUARD 4096

static uint8_t *big_buffer(void)
{
	uint8_t *buf = mmap(NULL, BIG + 2 * GUARD, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buf == MAP_FAILED)
		fail("no memory for 2 GiB");
	return buf + GUARD;
}

static void big_fill(uint8_t *buf, uint64_t seed)
{
	for (size_t off = 0; off < BIG; off += CHUNK)
		rng_fill(buf + off, CHUNK, seed + off);
}

static void big_compare(struct world *w, const uint8_t *buf, const char *what)
{
	static uint8_t chunk[CHUNK];

	for (size_t off = 0; off < BIG; off += CHUNK) {
		rng_fill(chunk, CHUNK, w->seed + off);
		if (memcmp(buf + off, chunk, CHUNK))
			fail("2 GiB by %s: differs after %#zx", what, off);
	}
	for (unsigned i = 1; i <= GUARD; i++)
		if (buf[-(int)i] || buf[BIG + i - 1])
			fail("2 GiB by %s: bytes beyond it were written", what);
	w->bytes_checked += BIG + 2 * GUARD;
	w->ops_done++;
}

static void big_wait(struct node *n, struct cq *cq, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc;

	while (!poll_cq(n, cq, &wc, 1))
		sched_yield();
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != opcode ||
	    ((opcode == IBV_WC_RECV || opcode == IBV_WC_RDMA_READ) && wc.byte_len != BIG))
		fail("node %u: 2 GiB: %s", n->id, wc_text(&wc));
}

static void big_post(struct node *n, enum ibv_wr_opcode opcode, struct ibv_sge *sge, uint64_t addr,
		     uint32_t rkey)
{
	struct ibv_send_wr wr = { .sg_list = sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	int ret;

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	ret = ibv_post_send(n->qp[0].qp, &wr, &bad);
	if (ret)
		fail("posting 2 GiB: %s", strerror(ret));
}

/* Node 0 has the bytes; node 1 gets them by WRITE, by SEND and by its own READ. */
void scene_two_gib(struct world *w)
{
	struct node *n = w->node[0].mine ? &w->node[0] : &w->node[1];
	const bool source = n->id == 0;
	uint8_t *buf = big_buffer();
	struct ibv_mr *mr = ibv_reg_mr(n->pd, buf, BIG,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					       IBV_ACCESS_REMOTE_READ);
	struct ibv_sge sge = { .addr = (uintptr_t)buf, .length = BIG };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	uint64_t addr;
	uint32_t rkey;

	if (!mr)
		fail("registering 2 GiB: %s", strerror(errno));
	sge.lkey = mr->lkey;
	addr = oob_swap(w, (uintptr_t)buf);
	rkey = oob_swap(w, mr->rkey);
	if (source) {
		big_fill(buf, w->seed);
		big_post(n, IBV_WR_RDMA_WRITE, &sge, addr, rkey);
		big_wait(n, n->qp[0].scq, IBV_WC_RDMA_WRITE);
	}
	oob_barrier(w);
	if (!source) {
		big_compare(w, buf, "WRITE");
		memset(buf, 0, BIG);
		if (ibv_post_recv(n->qp[0].qp, &wr, &bad))
			fail("posting a receive of 2 GiB");
	}
	oob_barrier(w);
	if (source) {
		big_post(n, IBV_WR_SEND, &sge, 0, 0);
		big_wait(n, n->qp[0].scq, IBV_WC_SEND);
	} else {
		big_wait(n, n->qp[0].rcq, IBV_WC_RECV);
		big_compare(w, buf, "SEND");
		memset(buf, 0, BIG);
		big_post(n, IBV_WR_RDMA_READ, &sge, addr, rkey);
		big_wait(n, n->qp[0].scq, IBV_WC_RDMA_READ);
		big_compare(w, buf, "READ");
	}
	oob_barrier(w);
	if (ibv_dereg_mr(mr))
		fail("deregistering 2 GiB failed");
	munmap(buf - GUARD, BIG + 2 * GUARD);
	for (unsigned i = 0; i < w->nodes; i++)
		if (w->node[i].mine)
			arena_compare(w, &w->node[i]);
}
