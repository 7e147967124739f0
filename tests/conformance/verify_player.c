/* SPDX-License-Identifier: MIT */
/*
 * One process's part of a row: sets its node or nodes up, runs the row, takes them down. An alarm
 * ends a round that hangs, wherever it does, and says what was outstanding.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "verify.h"

static struct world world = { .oob = -1 };

_Noreturn static void end(enum verdict verdict)
{
	fprintf(stderr, "  row %s, seed %llu; UROCE_TIMING=%s\n", world.row->name,
		(unsigned long long)world.row_seed, getenv("UROCE_TIMING") ?: "");
	world_dump(&world);
	fflush(stderr);
	_exit(verdict);
}

void fail_as(enum verdict verdict, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fprintf(stderr, "verify: ");
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	end(verdict);
}

void fail(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fprintf(stderr, "verify: ");
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	end(VERDICT_FAIL);
}

/*
 * Not async-signal-safe, which a process that ends here may dare: _exit follows, and the runner's
 * SIGKILL.
 */
static void on_signal(int signal)
{
	fprintf(stderr, "verify: %s\n",
		signal == SIGALRM ? "no end in time" : "the other process failed; here:");
	end(signal == SIGALRM ? VERDICT_FAIL : VERDICT_PEER);
}

static void allocate(struct world *w)
{
	const struct row *row = w->row;
	const unsigned ops = row->round + MAX_NODES * row->qps;

	w->op = calloc(ops, sizeof(*w->op));
	w->payload = malloc(w->max_len + 1);
	w->got = malloc(w->max_len + 1);
	if (!w->op || !w->payload || !w->got)
		fail("no memory for the plan");
	for (unsigned i = 0; i < w->nodes; i++)
		for (unsigned qp = 0; qp < row->qps; qp++) {
			struct vqp *q = &w->node[i].qp[qp];

			q->sq = calloc(ops, sizeof(*q->sq));
			if (!q->sq)
				fail("no memory for the plan");
			for (unsigned from = 0; from < row->qps; from++) {
				q->inbox[from].op = calloc(ops, sizeof(*q->inbox[from].op));
				if (!q->inbox[from].op)
					fail("no memory for the plan");
			}
		}
}

static void set_up(struct world *w)
{
	for (unsigned i = 0; i < w->nodes; i++)
		if (w->node[i].mine)
			node_open(w, &w->node[i]);
	allocate(w);
	for (unsigned i = 0; i < w->nodes; i++)
		arena_lay_out(w, &w->node[i]);
	for (unsigned i = 0; i < w->nodes; i++)
		if (w->node[i].mine)
			node_create(w, &w->node[i]);
	oob_exchange_hello(w);
	for (unsigned i = 0; i < w->nodes; i++)
		if (w->node[i].mine)
			node_connect(w, &w->node[i]);
}

struct report play(const struct row *row, unsigned node, int oob, uint64_t seed, unsigned ops,
		   int gid_index, unsigned timeout)
{
	struct world *w = &world;

	w->row = row;
	w->row_seed = seed;
	w->seed = rng_hash(seed, row->name);
	w->rng.state = w->seed;
	w->oob = oob;
	w->far = oob_is_far(oob);
	w->max_inl = w->far ? MAX_FAR_INL : MAX_INL;
	w->gid_index = gid_index;
	/* 80 large ones are as many bytes as all others of the matrix together. */
	w->ops_wanted = ops * row->times / (row->size == SIZE_LARGE ? 2 : 1);
	w->nodes = row->place == ONE_NODE ? 1 : 2;
	for (unsigned i = 0; i < w->nodes; i++) {
		struct node *n = &w->node[i];

		n->w = w;
		n->id = i;
		n->mine = oob < 0 || i == node;
		n->rng.state = w->seed + 0x1000 + i;
		for (unsigned qp = 0; qp < row->qps; qp++)
			n->qp[qp].peer = qp + row->self_qps >= row->qps ? i : !i;
	}
	/* So that what one process says is not torn by what the other says. */
	setvbuf(stderr, NULL, _IOFBF, 64 * 1024);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGALRM, on_signal);
	signal(SIGTERM, on_signal);
	w->timeout = timeout;
	alarm(timeout);

	set_up(w);
	if (row->scene)
		row->scene(w);
	else
		rounds_run(w);
	oob_barrier(w);
	for (unsigned i = 0; i < w->nodes; i++)
		if (w->node[i].mine)
			node_close(w, &w->node[i]);
	return (struct report){ w->ops_done, w->bytes_checked };
}
