/* SPDX-License-Identifier: MIT */
/*
 * Two nodes: their processes, their memory and what every case begins and ends with.
 *
 * The second process is forked before anything is opened, so functions, tables and both memories
 * have the same addresses in the two: a request is a function and its argument.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "strict.h"

/* Not looked at by ThreadSanitizer: every byte of the memories, while nothing is under way, takes it most of the time of a case. */
#define UNSEEN __attribute__((no_sanitize("thread")))

static struct node nodes[2];

struct request {
	void (*fn)(struct node *n, void *arg);
	size_t size;
	_Alignas(16) uint8_t arg[24 << 10];
};

struct node *peer_of(const struct node *n)
{
	return &nodes[!n->id];
}

void fail_at(const char *file, int line, const char *format, ...)
{
	const char *name = strrchr(file, '/');
	va_list args;

	fprintf(stderr, "%s:%d: ", name ? name + 1 : file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

void equal_at(const char *file, int line, const char *what, int64_t got, int64_t want)
{
	if (got != want)
		fail_at(file, line, "%s is %lld, not %lld", what, (long long)got, (long long)want);
}

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void pause_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l }, NULL);
}

UNSEEN uint8_t content(const struct node *n, uint32_t offset)
{
	return (uint8_t)((offset * 0x9e3779b1u + (n->id + 1) * 0x7f4a7c15u) >> 23);
}

/* It has said why, unless a signal ended it. */
static _Noreturn void gone(const struct node *n)
{
	int status;

	if (waitpid(n->pid, &status, 0) == n->pid && WIFSIGNALED(status))
		fail("the other process got SIG%s", sigabbrev_np(WTERMSIG(status)));
	_exit(1);
}

void at(struct node *n, void (*fn)(struct node *n, void *arg), void *arg, size_t size)
{
	static struct request request;
	size_t whole = offsetof(struct request, arg) + size;

	if (!n->remote) {
		fn(n, arg);
		return;
	}
	if (size > sizeof(request.arg))
		fail("an argument of %zu bytes: a bug of this test", size);
	request.fn = fn;
	request.size = size;
	memcpy(request.arg, arg, size);
	if (write(n->line, &request, whole) != (ssize_t)whole ||
	    read(n->line, &request, sizeof(request)) != (ssize_t)whole)
		gone(n);
	memcpy(arg, request.arg, size);
}

static _Noreturn void serve(struct node *n, int line)
{
	static struct request request;
	ssize_t length;

	while ((length = read(line, &request, sizeof(request))) > 0) {
		request.fn(n, request.arg);
		if (write(line, &request, (size_t)length) != length)
			break;
	}
	_exit(0);
}

static void fork_node(struct node *n)
{
	int line[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line))
		fail("socketpair: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(line[0]);
		serve(n, line[1]);
	}
	close(line[1]);
	n->line = line[0];
	n->pid = pid;
	n->remote = true;
}

static void do_open(struct node *n, void *arg)
{
	union ibv_gid *gid = arg;
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0])
		fail("there is no device");
	n->ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (!n->ctx)
		fail("ibv_open_device: %s", strerror(errno));
	for (unsigned i = 0; i < 2; i++) {
		n->pd[i] = ibv_alloc_pd(n->ctx);
		check(n->pd[i], "ibv_alloc_pd: %s", strerror(errno));
	}
	n->channel = ibv_create_comp_channel(n->ctx);
	check(n->channel, "ibv_create_comp_channel: %s", strerror(errno));
	equal(ibv_query_gid(n->ctx, 1, 0, gid), 0);
}

static void make_bystanders(struct world *w)
{
	struct qp_want want = qp_default(IBV_QPT_RC);
	struct side a, b;

	want.send_cq = want.recv_cq = BYSTANDER_CQ;
	equal(make_cq(w->a, BYSTANDER_CQ, 16), 0);
	equal(make_cq(w->b, BYSTANDER_CQ, 16), 0);
	equal(make_qp(w->a, BYSTANDER, &want), 0);
	equal(make_qp(w->b, BYSTANDER, &want), 0);
	a = side_default(w->a, BYSTANDER, IBV_QPT_RC, w->b, BYSTANDER);
	b = side_default(w->b, BYSTANDER, IBV_QPT_RC, w->a, BYSTANDER);
	/* They are not what is tried: nothing that takes long for lack of a CPU may fail them. */
	a.timeout = b.timeout = 18;
	bring_up(&a);
	bring_up(&b);
}

UNSEEN static void fill_memory(struct node *n)
{
	for (uint32_t offset = 0; offset < ARENA; offset++)
		n->memory[offset] = content(n, offset);
}

void world_open(struct world *w)
{
	w->a = &nodes[0];
	w->b = &nodes[1];
	for (unsigned i = 0; i < 2; i++) {
		struct node *n = &nodes[i];

		n->id = i;
		n->extended = w->extended;
		n->memory = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);
		if (n->memory == MAP_FAILED)
			fail("mmap: %s", strerror(errno));
		fill_memory(n);
	}
	if (w->two_processes)
		fork_node(w->b);
	for (unsigned i = 0; i < 2; i++) {
		at(&nodes[i], do_open, &nodes[i].gid, sizeof(nodes[i].gid));
		equal(make_cq(&nodes[i], SEND_CQ, 64), 0);
		equal(make_cq(&nodes[i], RECV_CQ, 64), 0);
	}
	w->ra = register_at(w->a, 0, addr_of(w->a, GUARD), ARENA - 2 * GUARD, ALL_RIGHTS);
	w->rb = register_at(w->b, 0, addr_of(w->b, GUARD), ARENA - 2 * GUARD, ALL_RIGHTS);
	make_bystanders(w);
}

static void add_change(struct world *w, struct change change)
{
	check(w->changes < CHANGES, "too many changes: a bug of this test");
	w->change[w->changes++] = change;
}

void changes_to(struct world *w, struct node *n, uint32_t at, uint32_t length,
		const struct node *from, uint32_t from_at)
{
	add_change(w, (struct change){ n, at, length, from, from_at });
}

void changes(struct world *w, struct node *n, uint32_t at, uint32_t length)
{
	add_change(w, (struct change){ n, at, length, NULL, 0 });
}

struct compare {
	unsigned count;
	struct change change[CHANGES];
};

/* The last change that names a byte counts. */
UNSEEN static void do_compare(struct node *n, void *arg)
{
	const struct compare *compare = arg;

	for (uint32_t offset = 0; offset < ARENA; offset++) {
		const struct change *c = compare->change + compare->count;
		uint8_t want = content(n, offset);
		bool any = false;

		while (c-- > compare->change) {
			if (c->node != n || offset < c->at || offset - c->at >= c->length)
				continue;
			any = !c->from;
			if (c->from)
				want = content(c->from, c->from_at + offset - c->at);
			break;
		}
		if (!any && n->memory[offset] != want)
			fail("byte %#x of node %c is %#x, not %#x", offset, 'A' + n->id,
			     n->memory[offset], want);
	}
}

static void compare_memory(struct world *w)
{
	struct compare compare = { .count = w->changes };

	memcpy(compare.change, w->change, sizeof(compare.change));
	for (unsigned i = 0; i < 2; i++)
		at(&nodes[i], do_compare, &compare, sizeof(compare));
}

/* Messages of each kind go both ways between the bystanders. */
static void use_bystanders(struct world *w)
{
	for (unsigned i = 0; i < 2; i++) {
		struct node *n = &nodes[i], *peer = &nodes[!i];
		const struct region *r = i ? &w->rb : &w->ra, *pr = i ? &w->ra : &w->rb;
		const uint32_t from = ARENA - GUARD - 0x200, to = ARENA - GUARD - 0x100;
		const struct wr in = recv_wr(1, pr, to, 32);
		const struct wr out[] = { rdma_wr(2, IBV_WR_RDMA_WRITE, r, from, 32, pr, to + 32),
					  rdma_wr(3, IBV_WR_RDMA_READ, r, to + 64, 32, pr, from),
					  send_wr(4, r, from, 32) };

		receive(peer, BYSTANDER, &in, 1);
		post(n, BYSTANDER, out, 3);
		for (unsigned id = 2; id <= 4; id++)
			completes(n, BYSTANDER_CQ, id, IBV_WC_SUCCESS);
		completes(peer, BYSTANDER_CQ, 1, IBV_WC_SUCCESS);
		equal(state_of(n, BYSTANDER), IBV_QPS_RTS);
		changes_to(w, peer, to, 32, n, from);
		changes_to(w, peer, to + 32, 32, n, from);
		changes_to(w, n, to + 64, 32, peer, from);
	}
}

static void do_close(struct node *n, void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < QPS; i++)
		if (n->qp[i])
			equal(ibv_destroy_qp(n->qp[i]), 0);
	for (unsigned i = 0; i < SRQS; i++)
		if (n->srq[i])
			equal(ibv_destroy_srq(n->srq[i]), 0);
	for (unsigned i = 0; i < CQS; i++)
		if (n->cq[i])
			equal(ibv_destroy_cq(n->cq[i]), 0);
	for (unsigned i = 0; i < MWS; i++)
		if (n->mw[i])
			equal(ibv_dealloc_mw(n->mw[i]), 0);
	for (unsigned i = 0; i < MRS; i++)
		if (n->mr[i])
			equal(ibv_dereg_mr(n->mr[i]), 0);
	for (unsigned i = 0; i < AHS; i++)
		if (n->ah[i])
			equal(ibv_destroy_ah(n->ah[i]), 0);
	for (unsigned i = 0; i < PDS; i++)
		if (n->pd[i])
			equal(ibv_dealloc_pd(n->pd[i]), 0);
	equal(ibv_destroy_comp_channel(n->channel), 0);
	equal(ibv_close_device(n->ctx), 0);
}

void world_close(struct world *w)
{
	uint8_t nothing = 0;

	use_bystanders(w);
	compare_memory(w);
	for (unsigned i = 0; i < 2; i++) {
		no_event(&nodes[i]);
		at(&nodes[i], do_close, &nothing, sizeof(nothing));
	}
	/* And once more: nothing is written late. */
	compare_memory(w);
}
