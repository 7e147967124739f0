/* SPDX-License-Identifier: MIT */
/*
 * A node's memory and its model: laid out with the regions at odd places, filled, and compared byte
 * by byte, the bytes around the regions too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "verify.h"

/* ---- Ranges and pieces ---- */

/* Calls copy for the part of each piece that lies in skip..skip+len of their concatenation. */
static void walk(const struct piece *piece, unsigned pieces, size_t skip, size_t len,
		 void (*copy)(size_t off, size_t at, size_t n, void *arg), void *arg)
{
	size_t at = 0;

	for (unsigned i = 0; i < pieces && len > 0; i++) {
		size_t n = piece[i].len;

		if (skip >= n) {
			skip -= n;
			continue;
		}
		n -= skip;
		if (n > len)
			n = len;
		copy(piece[i].off + skip, at, n, arg);
		skip = 0;
		at += n;
		len -= n;
	}
}

struct copy {
	uint8_t *to;
	const uint8_t *from;
};

static void copy_out(size_t off, size_t at, size_t n, void *arg)
{
	const struct copy *copy = arg;

	memcpy(copy->to + at, copy->from + off, n);
}

static void copy_in(size_t off, size_t at, size_t n, void *arg)
{
	const struct copy *copy = arg;

	memcpy(copy->to + off, copy->from + at, n);
}

void gather(uint8_t *to, const uint8_t *base, const struct piece *piece, unsigned pieces,
	    size_t skip, size_t len)
{
	walk(piece, pieces, skip, len, copy_out, &(struct copy){ to, base });
}

void scatter(uint8_t *base, const struct piece *piece, unsigned pieces, size_t skip,
	     const uint8_t *from, size_t len)
{
	walk(piece, pieces, skip, len, copy_in, &(struct copy){ base, from });
}

void cut(struct rng *rng, uint32_t len, struct piece *piece, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		uint32_t n = len;

		if (i + 1 < count)
			n = rng_chance(rng, 15) ? 0 : rng_below(rng, 2ull * len / (count - i) + 1);
		if (n > len)
			n = len;
		piece[i].len = n;
		len -= n;
	}
}

/* ---- The arena ---- */

static uint8_t *map(size_t len)
{
	void *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		fail("no memory for %zu bytes", len);
	return mem;
}

/*
 * Guard, data region, bytes that belong to no region, receive region, guard: all of random lengths,
 * so that the regions begin and end anywhere in a page, and neighbours share their edge pages.
 */
void arena_lay_out(struct world *w, struct node *n)
{
	const struct row *row = w->row;
	struct arena *a = &n->arena;
	size_t want = 2ull * row->round * w->max_len;
	const unsigned queues = row->srq ? 1 : row->qps;
	const bool page_aligned = rng_chance(&w->rng, 25);

	if (want > 16 << 20)
		want = 16 << 20;
	if (want < 4ull * w->max_len)
		want = 4ull * w->max_len;
	a->data_len = 64 * 1024 + want + rng_below(&w->rng, 4096);
	/* Addresses from 0 are as aligned as the region: atomics need 8. */
	a->data = page_aligned ?
			  4096 :
			  (4096 + rng_below(&w->rng, 4096)) & (row->mrs & MR_ZERO ? ~7ull : ~0ull);
	a->recv = a->data + a->data_len + 1 + rng_below(&w->rng, 3000);
	a->recv_len = (size_t)queues * row_rq_depth(row) * (w->max_len + GRH_BYTES + 256);
	a->len = a->recv + a->recv_len + 1 + rng_below(&w->rng, 4096);

	a->model = map(a->len);
	if (n->mine) {
		a->mem = map(a->len);
		rng_fill(a->model, a->len, w->seed + 2 + n->id);
	}
	rng_fill(a->model + a->data, a->data_len, w->seed + n->id);
	if (n->mine)
		memcpy(a->mem, a->model, a->len);
}

void arena_fill(struct node *n, size_t off, size_t len, uint64_t seed)
{
	rng_fill(n->arena.model + off, len, seed);
	if (n->mine)
		memcpy(n->arena.mem + off, n->arena.model + off, len);
}

/* ---- Comparing ---- */

static void print_bytes(const char *what, const uint8_t *bytes, size_t n)
{
	fprintf(stderr, "    %s", what);
	for (size_t i = 0; i < n; i++)
		fprintf(stderr, " %02x", bytes[i]);
	fputc('\n', stderr);
}

static const char *place(const struct arena *a, size_t off)
{
	if (off < a->data)
		return "before the data region";
	if (off < a->data + a->data_len)
		return "in the data region";
	if (off < a->recv)
		return "between the regions";
	if (off < a->recv + a->recv_len)
		return "in the receive region";
	return "after the receive region";
}

static _Noreturn void report_difference(struct world *w, struct node *n, size_t off, size_t len)
{
	const struct arena *a = &n->arena;
	size_t first = off, wrong = 0, end = off + len, last, shown;

	while (a->mem[first] == a->model[first])
		first++;
	last = first;
	for (size_t i = first; i < end; i++)
		if (a->mem[i] != a->model[i]) {
			wrong++;
			last = i;
		}
	shown = end - first < 16 ? end - first : 16;
	print_bytes("is       ", a->mem + first, shown);
	print_bytes("should be", a->model + first, shown);
	plan_print_touching(w, n->id, first);
	/* A WRITE of UC that got lost looks so. What is wrong each time is not lost. */
	fail_as(row_may_lose(w->row) ? VERDICT_DROP : VERDICT_FAIL,
		"node %u: %zu bytes differ from the model, from %#zx to %#zx, %s (%zu bytes in)",
	     n->id, wrong, first, last, place(a, first),
	     first < a->recv ? first - a->data : first - a->recv);
}

void arena_compare(struct world *w, struct node *n)
{
	if (memcmp(n->arena.mem, n->arena.model, n->arena.len))
		report_difference(w, n, 0, n->arena.len);
	w->bytes_checked += n->arena.len;
}

void range_compare(struct world *w, struct node *n, size_t off, size_t len, const struct op *op,
		   const char *when)
{
	if (memcmp(n->arena.mem + off, n->arena.model + off, len)) {
		fprintf(stderr, "  seen when %s:\n", when);
		op_print(w, op);
		report_difference(w, n, off, len);
	}
	w->bytes_checked += len;
}
