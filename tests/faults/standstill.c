/* SPDX-License-Identifier: MIT */
/*
 * A peer that is stopped in the middle of an access to one region: the owner takes back others at once, and that one in bounded
 * time, after which nothing that the peer does when it goes on reaches the memory. Only where the kernel itself may be copying
 * for it, the region stays registered (EBUSY) until it goes on. This program uses the library that has crash points.
 *
 * Also run where UROCE_MEMORY is cma.
 */
#include "node.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define REGION	  (64u << 10) /* whole pages of which peers may map all */
#define LENGTH	  40001u
#define AT_ONCE	  500  /* ms: what nobody waits for */
#define BOUNDED	  3000 /* ms: a second, on a machine that is busy */
#define ACCESS	  (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

enum word { READY = 1, GO, TAKEN_BACK, RESUMED, END };

struct plan {
	enum ibv_wr_opcode opcode;
	const char *point; /* where it stops */
	bool busy;	   /* the region cannot be taken back meanwhile */
	enum ibv_wc_status status; /* of the message that was stopped, afterwards */
};

static uint8_t *pages(void)
{
	uint8_t *start = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(start != MAP_FAILED);
	return start;
}

static bool all_are(const uint8_t *bytes, uint8_t value)
{
	for (uint32_t i = 0; i < REGION; i++) {
		if (bytes[i] != value)
			return false;
	}
	return true;
}

static void visitor(int line, void *arg)
{
	const struct plan *plan = arg;
	struct node node;
	struct ibv_qp *qp;
	struct card other, target;
	uint32_t length = plan->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LENGTH;
	struct ibv_wc wc;

	setenv("UROCE_CRASH", plan->point, 1);
	setenv("UROCE_CRASH_BY", "stop", 1);
	node_open(&node);
	memset(node.buf, 'v', NODE_BYTES);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	node_meet(&node, qp, line, &other, &node_defaults);
	CHECK(line_receive(line, &target, sizeof(target)));
	/* The second one goes the short way, where there is one. */
	for (uint64_t i = 0; i < 2; i++) {
		if (plan->opcode == IBV_WR_SEND)
			CHECK_EQUAL(node_send(&node, qp, i, 0, length), 0);
		else
			CHECK_EQUAL(node_rdma(&node, qp, i, plan->opcode, 0, length, target.addr, target.rkey), 0);
		CHECK(node_poll(node.cq, &wc, TIMEOUT_MS));
		if (wc.status != IBV_WC_SUCCESS)
			break;
	}
	CHECK_EQUAL(wc.status, plan->status);
	say(line, END);
	expect(line, END);
	exit(0);
}

static struct ibv_mr *reg(struct node *node, uint8_t *start)
{
	struct ibv_mr *mr = ibv_reg_mr(node->pd, start, REGION, ACCESS);

	CHECK(mr);
	return mr;
}

/* Two regions that nobody uses, one of them as old as the one in use. */
static void take_back_others(struct node *node, struct ibv_mr *old)
{
	uint64_t start = now_ms();
	uint8_t *memory = pages();

	CHECK_EQUAL(ibv_dereg_mr(old), 0);
	CHECK_EQUAL(ibv_dereg_mr(reg(node, memory)), 0);
	CHECK(now_ms() - start < AT_ONCE);
	munmap(memory, REGION);
}

static void owner(int line, void *arg)
{
	const struct plan *plan = arg;
	struct node node;
	struct ibv_qp *qp;
	struct card other, target;
	uint8_t *used = pages(), *unused = pages();
	struct ibv_mr *mr, *old;
	uint64_t start;

	node_open(&node);
	mr = reg(&node, used);
	old = reg(&node, unused);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	for (uint64_t i = 0; i < 2; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)used, .length = REGION, .lkey = mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = 10 + i, .sg_list = &sge, .num_sge = 1 }, *bad;

		CHECK_EQUAL(ibv_post_recv(qp, &wr, &bad), 0);
	}
	node_meet(&node, qp, line, &other, &node_defaults);
	target = (struct card){ .rkey = mr->rkey, .addr = (uintptr_t)used };
	CHECK(line_send(line, &target, sizeof(target)));

	/* The visitor stands. */
	expect(line, GO);
	take_back_others(&node, old);
	start = now_ms();
	CHECK_EQUAL(ibv_dereg_mr(mr), plan->busy ? EBUSY : 0);
	CHECK(now_ms() - start < BOUNDED);
	start = now_ms();
	if (!plan->busy) {
		/* The memory is the program's: also when it is registered again. */
		memset(used, 'o', REGION);
		mr = reg(&node, used);
	} else {
		CHECK_EQUAL(ibv_dereg_mr(mr), EBUSY);
	}
	CHECK(now_ms() - start < AT_ONCE);
	say(line, TAKEN_BACK);

	expect(line, RESUMED);
	CHECK(plan->busy || all_are(used, 'o'));
	start = now_ms();
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK(now_ms() - start < AT_ONCE);
	CHECK(plan->busy || all_are(used, 'o'));
	/* Nothing that it stored comes up in what is registered there next. */
	munmap(used, REGION);
	CHECK(mmap(used, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == used);
	mr = reg(&node, used);
	CHECK(all_are(used, 0));
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK(all_are(used, 0));
	say(line, END);
	expect(line, END);
	exit(0);
}

static void run_plan(void **state)
{
	const struct plan *plan = *state;
	struct actor here = { 0 }, there = { 0 };
	struct card target;
	int status;

	actor_start(&here, owner, (void *)plan);
	actor_start(&there, visitor, (void *)plan);
	assert_true(introduce(&here, &there));
	assert_true(line_receive(here.line, &target, sizeof(target)));
	assert_true(line_send(there.line, &target, sizeof(target)));
	assert_int_equal(waitpid(there.pid, &status, WUNTRACED), there.pid);
	assert_true(WIFSTOPPED(status));
	say(here.line, GO);
	expect(here.line, TAKEN_BACK);
	assert_int_equal(kill(there.pid, SIGCONT), 0);
	expect(there.line, END);
	say(here.line, RESUMED);
	expect(here.line, END);
	say(there.line, END);
	say(here.line, END);
	assert_int_equal(actor_end(&there), 0);
	assert_int_equal(actor_end(&here), 0);
}

#define NAMED(text, ...) { .name = text, .test_func = run_plan, .initial_state = &(struct plan){ __VA_ARGS__ } }

int main(void)
{
	const char *way = getenv("UROCE_MEMORY");
	const struct CMUnitTest everywhere[] = {
		NAMED("stopped_before_a_write", IBV_WR_RDMA_WRITE, "COPY_BEGIN:1", false, IBV_WC_REM_ACCESS_ERR),
		NAMED("stopped_before_a_later_write", IBV_WR_RDMA_WRITE, "COPY_BEGIN:2", false, IBV_WC_REM_ACCESS_ERR),
		NAMED("stopped_before_a_read", IBV_WR_RDMA_READ, "COPY_BEGIN:1", false, IBV_WC_REM_ACCESS_ERR),
		NAMED("stopped_before_a_later_read", IBV_WR_RDMA_READ, "COPY_BEGIN:2", false, IBV_WC_REM_ACCESS_ERR),
		NAMED("stopped_before_a_message", IBV_WR_SEND, "COPY_BEGIN:1", false, IBV_WC_REM_OP_ERR),
		NAMED("stopped_before_a_later_message", IBV_WR_SEND, "COPY_BEGIN:2", false, IBV_WC_REM_OP_ERR),
		NAMED("stopped_before_it_looks", IBV_WR_RDMA_WRITE, "VISIT_TOUCHES:1", false, IBV_WC_REM_ACCESS_ERR),
	};
	const struct CMUnitTest mapped[] = {
		NAMED("stopped_before_an_atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, "COPY_BEGIN:1", false, IBV_WC_REM_ACCESS_ERR),
	};
	const struct CMUnitTest by_the_kernel[] = {
		NAMED("stopped_in_a_copy_of_the_kernels", IBV_WR_RDMA_WRITE, "COPY_TAIL:1", true, IBV_WC_SUCCESS),
		NAMED("stopped_after_a_copy_of_the_kernels", IBV_WR_RDMA_READ, "COPY_END:1", true, IBV_WC_SUCCESS),
	};
	int failed = cmocka_run_group_tests_name("standstill", everywhere, NULL, NULL);

	if (way && !strcmp(way, "cma"))
		failed += cmocka_run_group_tests_name("standstill in the kernel", by_the_kernel, NULL, NULL);
	else
		failed += cmocka_run_group_tests_name("standstill on pages", mapped, NULL, NULL);
	return failed;
}
