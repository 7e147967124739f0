/* SPDX-License-Identifier: MIT */
/*
 * Death and standstill at each step of each protocol. A victim works with a witness and dies, or is stopped, at one of the
 * crash points (src/nic/crash_points.h; this program uses a library that has them). The witness goes on with somebody else
 * meanwhile, hears of the victim's end in bounded time, gets nothing but whole messages, gives up what it shared with it,
 * and meets a new process afterwards.
 *
 *   points kill      the victim dies there
 *   points resume    it is stopped there, goes on later, and must not have noticed
 *   points stop      it is stopped there, and the witness gives everything up before it dies
 *
 * UROCE_MEMORY is the way in which memory is reached: each has steps that the others do not have.
 */
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#define ROUNDS	   24
#define MESSAGE	   200 /* bytes; not a multiple of a word */
#define RECEIVES   16  /* kept posted on each queue */
#define STANDSTILL 250 /* ms */

/* RC waits for receives for ever, and for an answer 8 * 134 ms: longer than anybody is stopped. */
static const struct link_attr patient = {
	.mtu = IBV_MTU_1024,
	.timeout = 15,
	.retry_cnt = 7,
	.rnr_retry = 7,
	.min_rnr_timer = 8,
	.rd_atomic = 4,
	.dest_rd_atomic = 4,
	.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
};

enum mode { KILL, RESUME, STOP };
enum word { READY = 1, GO, END, GIVE_UP, GIVEN_UP };

/* The four QPs that both have; each of the victim's is connected to the witness's of the same place. */
enum { PLAIN, SHARED, DATAGRAM, DOOMED, QPS };

static const char *const points[] = {
#define CRASH_POINT(name) #name,
#include "nic/crash_points.h"
#undef CRASH_POINT
};

/* Whether a step is one of the switch to shared pages, or back. */
static bool is_of_switch(const char *point)
{
	return !strncmp(point, "SHARE_", 6);
}

static bool is_of_copy(const char *point)
{
	return !strcmp(point, "COPY_TAIL") || !strncmp(point, "ASK_", 4);
}

static bool has_mapped_pages(void)
{
	const char *way = getenv("UROCE_MEMORY");

	return !way || !*way || !strcmp(way, "mapped");
}

struct plan {
	const char *point;
	enum mode mode;
};

/* Where the witness connects first, so that the victim is the one who is asked. */
static bool witness_is_first(const char *point)
{
	return !strcmp(point, "PEER_KNOWN") || !strcmp(point, "WELCOME_SENT");
}

struct world {
	struct node node;
	struct ibv_qp *qps[QPS];
	struct card other[QPS];
	struct ibv_srq *srq;
	uint8_t *spare; /* a page that is registered for a moment in each round of the victim's */
};

static void world_open(struct world *w)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 2 * RECEIVES, .max_sge = 1 } };

	node_open(&w->node);
	w->srq = ibv_create_srq(w->node.pd, &init);
	CHECK(w->srq);
	w->spare = aligned_alloc(4096, 4096);
	CHECK(w->spare);
	w->qps[PLAIN] = node_qp(&w->node, IBV_QPT_RC, NULL);
	w->qps[SHARED] = node_qp(&w->node, IBV_QPT_RC, w->srq);
	w->qps[DATAGRAM] = node_qp(&w->node, IBV_QPT_UD, NULL);
	w->qps[DOOMED] = node_qp(&w->node, IBV_QPT_RC, NULL);
}

/* Gives its cards, gets the other's, connects, says so. */
static void world_meet(struct world *w, int line)
{
	struct card mine[QPS];

	for (int i = 0; i < QPS; i++)
		mine[i] = node_card(&w->node, w->qps[i]);
	line_send(line, mine, sizeof(mine));
	line_receive(line, w->other, sizeof(w->other));
	for (int i = 0; i < QPS; i++)
		node_connect(w->qps[i], &w->other[i], &patient);
	say(line, READY);
}

static void fill(uint8_t *bytes, uint32_t number)
{
	for (uint32_t i = 0; i < MESSAGE; i++)
		bytes[i] = (uint8_t)(number * 31 + i);
}

/* ---- the victim ---- */

static struct ibv_ah *make_ah(struct world *w, const struct card *card)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = card->gid, .hop_limit = 64 } };
	struct ibv_ah *ah = ibv_create_ah(w->node.pd, &attr);

	CHECK(ah);
	return ah;
}

static void send_datagram(struct world *w, struct ibv_ah *ah, uint64_t wr_id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)w->node.buf,
			       .length = MESSAGE,
			       .lkey = w->node.mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = w->other[DATAGRAM].qpn, .remote_qkey = 0x11 },
	};
	struct ibv_send_wr *bad;

	CHECK_EQUAL(ibv_post_send(w->qps[DATAGRAM], &wr, &bad), 0);
}

/* Everything that an initiator and an owner does. */
static void victim_round(struct world *w, struct ibv_ah *ah, uint32_t number)
{
	struct node *node = &w->node;
	const struct card *card = &w->other[PLAIN];
	struct ibv_mr *mr;

	fill(node->buf, number);
	CHECK_EQUAL(node_rdma(node, w->qps[PLAIN], 1, IBV_WR_RDMA_WRITE, 0, MESSAGE,
			      card->addr + 1024, card->rkey),
		    0);
	node_expect(node->cq, 1, IBV_WC_SUCCESS);
	CHECK_EQUAL(node_send(node, w->qps[PLAIN], 2, 0, MESSAGE), 0);
	node_expect(node->cq, 2, IBV_WC_SUCCESS);
	CHECK_EQUAL(node_send(node, w->qps[SHARED], 3, 0, MESSAGE), 0);
	node_expect(node->cq, 3, IBV_WC_SUCCESS);
	send_datagram(w, ah, 4);
	node_expect(node->cq, 4, IBV_WC_SUCCESS);
	CHECK_EQUAL(node_rdma(node, w->qps[PLAIN], 5, IBV_WR_RDMA_READ, 4096, MESSAGE, card->addr,
			      card->rkey),
		    0);
	node_expect(node->cq, 5, IBV_WC_SUCCESS);
	CHECK_EQUAL(node_rdma(node, w->qps[PLAIN], 6, IBV_WR_ATOMIC_FETCH_AND_ADD, 8192, 8,
			      card->addr + 2048, card->rkey),
		    0);
	node_expect(node->cq, 6, IBV_WC_SUCCESS);

	mr = ibv_reg_mr(node->pd, node->buf, NODE_BYTES, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	memset(w->spare, (int)number, 4096);
	mr = ibv_reg_mr(node->pd, w->spare, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(w->spare[0], number);
	CHECK_EQUAL(node_recv(node, w->qps[PLAIN], 100 + number, 16384, MESSAGE), 0);
	CHECK_EQUAL(ibv_resize_cq(node->cq, number % 2 ? 600 : 300), 0);
}

static void victim(int line, void *arg)
{
	const struct plan *plan = arg;
	struct world w = { 0 };
	struct ibv_ah *ah;

	if (plan) {
		/* The first switch is that of the node's own region, which nobody knows yet. */
		bool second = !strcmp(plan->point, "SHARE_AWAY") ||
			      !strcmp(plan->point, "SHARE_MAPPED");
		char point[64];

		snprintf(point, sizeof(point), "%s:%d", plan->point, second ? 2 : 1);
		setenv("UROCE_CRASH", point, 1);
		setenv("UROCE_CRASH_BY", plan->mode == KILL ? "kill" : "stop", 1);
	}
	world_open(&w);
	world_meet(&w, line);
	expect(line, GO);
	ah = make_ah(&w, &w.other[DATAGRAM]);
	for (uint32_t number = 0; number < ROUNDS; number++) {
		victim_round(&w, ah, number);
		usleep(2000); /* the witness arms its CQ and SRQ again */
	}
	/* A fault at the witness's QP: the flag, and the way to its owner. */
	CHECK_EQUAL(node_rdma(&w.node, w.qps[DOOMED], 9, IBV_WR_RDMA_WRITE, 0, 8,
			      w.other[DOOMED].addr, w.other[DOOMED].rkey ^ 0x1000),
		    0);
	node_expect(w.node.cq, 9, IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < QPS; i++)
		CHECK_EQUAL(ibv_destroy_qp(w.qps[i]), 0);
	say(line, END);
	expect(line, END);
}

/* ---- the witness ---- */

struct witness {
	struct world w;
	struct ibv_qp *mine[2]; /* its own pair: traffic that has nothing to do with the victim */
	uint64_t atomics;	/* asked of the victim, not answered */
	uint32_t answers;
	uint32_t counts[QPS]; /* messages received */
	bool broken[QPS];     /* a QP that reported an error */
};

/* Where a receive of a queue puts its bytes. */
static uint32_t area(int queue, uint32_t k)
{
	return 20480 + ((uint32_t)queue * RECEIVES + k % RECEIVES) * 512;
}

static void post_receive(struct witness *t, int queue, uint32_t k)
{
	uint64_t wr_id = (uint64_t)(queue + 1) << 32 | k;
	int error = queue == SHARED ?
			    node_srq_recv(&t->w.node, t->w.srq, wr_id, area(queue, k), 512) :
			    node_recv(&t->w.node, t->w.qps[queue], wr_id, area(queue, k), 512);

	CHECK_EQUAL(error, 0);
}

static void check_message(struct witness *t, int queue, const struct ibv_wc *wc)
{
	const uint8_t *bytes =
		t->w.node.buf + area(queue, (uint32_t)wc->wr_id) + (queue == DATAGRAM ? 40 : 0);
	uint8_t number_seen = bytes[0], want[MESSAGE];

	CHECK_EQUAL(wc->byte_len, MESSAGE + (queue == DATAGRAM ? 40 : 0));
	for (uint32_t number = 0; number < ROUNDS; number++) {
		fill(want, number);
		if (want[0] == number_seen)
			break;
	}
	CHECK(!memcmp(bytes, want, MESSAGE));
}

static void serve(struct witness *t, uint64_t *pings)
{
	struct ibv_wc wc;

	while (node_poll(t->w.node.cq, &wc, 0)) {
		int queue = (int)(wc.wr_id >> 32) - 1;

		if (wc.wr_id == 1 || wc.wr_id == 2) { /* the pair's ping */
			CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
			*pings += wc.wr_id == 2;
		} else if (wc.wr_id == 3) {
			t->atomics = 0;
			t->broken[PLAIN] |= wc.status != IBV_WC_SUCCESS;
			t->answers += wc.status == IBV_WC_SUCCESS;
		} else if (wc.status == IBV_WC_SUCCESS) {
			check_message(t, queue, &wc);
			t->counts[queue]++;
			post_receive(t, queue, (uint32_t)wc.wr_id);
		} else {
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
			t->broken[queue] = true;
		}
	}
}

/* What the witness does all the time. Its pair must answer within a second, whatever became of the victim. */
static void witness_step(struct witness *t)
{
	struct node *node = &t->w.node;
	struct ibv_srq_attr limit = { .srq_limit = RECEIVES };
	struct ibv_cq *cq;
	void *context;
	uint64_t pings = 0, start = now_ms();

	CHECK_EQUAL(ibv_modify_srq(t->w.srq, &limit, IBV_SRQ_LIMIT), 0);
	CHECK_EQUAL(node_recv(node, t->mine[1], 2, 0, 8), 0);
	CHECK_EQUAL(node_send(node, t->mine[0], 1, 8, 8), 0);
	if (!t->atomics && !t->broken[PLAIN]) {
		t->atomics = 1;
		CHECK_EQUAL(node_rdma(node, t->w.qps[PLAIN], 3, IBV_WR_ATOMIC_FETCH_AND_ADD, 12288,
				      8, t->w.other[PLAIN].addr + 32768, t->w.other[PLAIN].rkey),
			    0);
	}
	while (!pings) {
		serve(t, &pings);
		CHECK(now_ms() - start < 1000);
	}
	if (!ibv_get_cq_event(node->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	/* Armed while it is quiet: the next completion is the victim's. */
	CHECK_EQUAL(ibv_req_notify_cq(node->cq, 0), 0);
}

static bool is_told(int line)
{
	struct pollfd in = { .fd = line, .events = POLLIN };

	return poll(&in, 1, 2) == 1;
}

/* Everything shared with the victim goes: in bounded time, whatever it is doing. */
static int witness_gives_up(struct witness *t)
{
	uint64_t start = now_ms();
	int error;

	for (int i = 0; i < QPS; i++)
		CHECK_EQUAL(ibv_destroy_qp(t->w.qps[i]), 0);
	CHECK_EQUAL(ibv_destroy_srq(t->w.srq), 0);
	error = ibv_dereg_mr(t->w.node.mr);
	/* A second of grace for each, if somebody stands in the way. */
	CHECK(now_ms() - start < 1000 * (QPS + 3));
	return error;
}

static void witness(int line, void *arg)
{
	const struct plan *plan = arg;
	struct witness t = { 0 };
	uint64_t end, start;
	int error;

	world_open(&t.w);
	CHECK_EQUAL(fcntl(t.w.node.channel->fd, F_SETFL, O_NONBLOCK), 0);
	t.mine[0] = node_qp(&t.w.node, IBV_QPT_RC, NULL);
	t.mine[1] = node_qp(&t.w.node, IBV_QPT_RC, NULL);
	node_connect_pair(&t.w.node, t.mine[0], t.mine[1], &patient);
	for (int queue = PLAIN; queue <= DATAGRAM; queue++) {
		for (uint32_t k = 0; k < RECEIVES; k++)
			post_receive(&t, queue, k);
	}
	world_meet(&t.w, line);
	expect(line, GO);
	witness_step(&t);
	say(line, READY); /* armed */
	while (!is_told(line))
		witness_step(&t);
	expect(line, END); /* the victim has ended, or stands */
	t.answers = 0;
	for (end = now_ms() + STANDSTILL; now_ms() < end;)
		witness_step(&t);
	/* What it is switching is its own matter: its other region is there. */
	if (plan->mode != KILL && is_of_switch(plan->point))
		CHECK(t.answers > 1);
	if (plan->mode == KILL) {
		/* Nobody answers any more, and that is said after timeout and retries. */
		for (start = now_ms(); !t.broken[PLAIN];) {
			witness_step(&t);
			CHECK(now_ms() - start < 5000);
		}
	}
	say(line, READY);
	while (!is_told(line))
		witness_step(&t);
	expect(line, GIVE_UP);
	error = witness_gives_up(&t);
	CHECK(!error || (error == EBUSY && plan->mode == STOP));
	say(line, GIVEN_UP);
	expect(line, END); /* now the victim is dead in any case */
	if (error) {
		for (start = now_ms(); (error = ibv_dereg_mr(t.w.node.mr));)
			CHECK(error == EBUSY && now_ms() - start < 5000);
	}
	/* Somebody new. */
	t.w.node.mr = ibv_reg_mr(t.w.node.pd, t.w.node.buf, NODE_BYTES,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
					 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(t.w.node.mr);
	struct ibv_qp *qp = node_qp(&t.w.node, IBV_QPT_RC, NULL);
	struct card card;

	CHECK_EQUAL(node_recv(&t.w.node, qp, 77, 0, MESSAGE), 0);
	node_meet(&t.w.node, qp, line, &card, &patient);
	node_expect(t.w.node.cq, 77, IBV_WC_SUCCESS);
	say(line, END);
}

static void newcomer(int line, void *arg)
{
	struct node node;
	struct card card;

	(void)arg;
	node_open(&node);
	struct ibv_qp *qp = node_qp(&node, IBV_QPT_RC, NULL);

	node_meet(&node, qp, line, &card, &patient);
	CHECK_EQUAL(node_send(&node, qp, 1, 0, MESSAGE), 0);
	node_expect(node.cq, 1, IBV_WC_SUCCESS);
	expect(line, END);
}

/* ---- the test ---- */

enum fate { RUNS, STANDS, KILLED, EXITED };

static enum fate fate_of(pid_t pid)
{
	siginfo_t info = { 0 };

	if (waitid(P_PID, (id_t)pid, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) || !info.si_pid)
		return RUNS;
	return info.si_code == CLD_STOPPED ? STANDS : info.si_code == CLD_KILLED ? KILLED : EXITED;
}

static void end_standstill(pid_t pid, enum mode mode)
{
	int status;

	waitpid(pid, &status, WUNTRACED | WNOHANG);
	usleep(STANDSTILL * 1000);
	kill(pid, mode == RESUME ? SIGCONT : SIGKILL);
}

/* A message from an actor, while the victim may come to its point: stopped then, it goes on, or dies, after a while. */
static bool hear(struct actor *from, void *bytes, size_t size, struct actor *bad, enum mode mode,
		 bool *came)
{
	struct pollfd in = { .fd = from->line, .events = POLLIN };

	for (uint64_t end = now_ms() + TIMEOUT_MS; now_ms() < end;) {
		if (poll(&in, 1, 10) == 1)
			return line_receive(from->line, bytes, size);
		if (!*came && fate_of(bad->pid) == STANDS) {
			*came = true;
			end_standstill(bad->pid, mode);
		}
	}
	return false;
}

/* Hands the cards over, one side first. False when the victim never gave its own. */
static bool introduce_all(struct actor *good, struct actor *bad, const struct plan *plan,
			  bool *came)
{
	bool good_first = witness_is_first(plan->point);
	struct card good_cards[QPS], bad_cards[QPS];
	uint32_t word;

	assert_true(hear(good, good_cards, sizeof(good_cards), bad, plan->mode, came));
	if (!hear(bad, bad_cards, sizeof(bad_cards), bad, plan->mode, came))
		return false;
	if (good_first) {
		assert_true(line_send(good->line, bad_cards, sizeof(bad_cards)));
		assert_true(hear(good, &word, sizeof(word), bad, plan->mode, came));
	}
	/* Who is dead does not hear, and does not answer. */
	if (line_send(bad->line, good_cards, sizeof(good_cards)))
		hear(bad, &word, sizeof(word), bad, plan->mode, came);
	if (!good_first) {
		assert_true(line_send(good->line, bad_cards, sizeof(bad_cards)));
		assert_true(hear(good, &word, sizeof(word), bad, plan->mode, came));
	}
	return true;
}

static void wait_for_point(struct actor *bad)
{
	for (uint64_t end = now_ms() + TIMEOUT_MS; fate_of(bad->pid) == RUNS && now_ms() < end;)
		usleep(1000);
}

static void run_plan(void **state)
{
	const struct plan *plan = *state;
	struct actor good = { 0 }, bad = { 0 }, fresh = { 0 };
	bool came = false; /* the victim was stopped, and is not any more */

	actor_start(&good, witness, (void *)plan);
	actor_start(&bad, victim, (void *)plan);
	if (!introduce_all(&good, &bad, plan, &came)) {
		/* It died before anybody knew of it: there is nobody to be hurt. */
		wait_for_point(&bad);
		assert_int_equal(fate_of(bad.pid), KILLED);
		kill(good.pid, SIGKILL);
		actor_end(&good);
		actor_end(&bad);
		return;
	}
	say(good.line, GO);
	expect(good.line, READY);
	line_send(bad.line, &(uint32_t){ GO }, sizeof(uint32_t));
	if (!came) {
		wait_for_point(&bad);
		/* It comes to the point at all. */
		assert_int_equal(fate_of(bad.pid), plan->mode == KILL ? KILLED : STANDS);
	}
	say(good.line, END);
	expect(good.line, READY);
	if (plan->mode == RESUME) {
		if (!came)
			end_standstill(bad.pid, RESUME);
		expect(bad.line, END);
		say(bad.line, END);
		assert_int_equal(actor_end(&bad), 0);
	}
	say(good.line, GIVE_UP);
	expect(good.line, GIVEN_UP);
	if (plan->mode != RESUME) {
		kill(bad.pid, SIGKILL);
		actor_end(&bad);
	}
	say(good.line, END);
	actor_start(&fresh, newcomer, NULL);
	assert_true(introduce(&good, &fresh));
	expect(good.line, END);
	say(fresh.line, END);
	assert_int_equal(actor_end(&fresh), 0);
	assert_int_equal(actor_end(&good), 0);
}

int main(int argc, char **argv)
{
	size_t count = sizeof(points) / sizeof(points[0]), n = 0;
	struct plan plans[sizeof(points) / sizeof(points[0])];
	struct CMUnitTest tests[sizeof(points) / sizeof(points[0])];
	enum mode mode;

	if (argc < 2 ||
	    (strcmp(argv[1], "kill") && strcmp(argv[1], "resume") && strcmp(argv[1], "stop"))) {
		fprintf(stderr, "usage: points kill|resume|stop [POINT]\n");
		return 2;
	}
	mode = argv[1][0] == 'k' ? KILL : argv[1][0] == 'r' ? RESUME : STOP;
	for (size_t i = 0; i < count; i++) {
		if (argc > 2	       ? strcmp(argv[2], points[i]) :
		    has_mapped_pages() ? is_of_copy(points[i]) :
					 is_of_switch(points[i]))
			continue;
		plans[n] = (struct plan){ .point = points[i], .mode = mode };
		tests[n] = (struct CMUnitTest){ .name = points[i],
						.test_func = run_plan,
						.initial_state = &plans[n] };
		n++;
	}
	return _cmocka_run_group_tests(argv[1], tests, n, NULL, NULL);
}
