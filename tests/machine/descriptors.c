/* SPDX-License-Identifier: MIT */
/*
 * Programs that close descriptors which are not theirs: daemons, that close all they have inherited, and careless ones
 * that close the library's own.
 */
#include "cases.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>

static void close_all_but(int kept)
{
	if (kept > 3)
		CHECK_EQUAL(close_range(3, (unsigned)kept - 1, 0), 0);
	CHECK_EQUAL(close_range((unsigned)kept + 1, ~0u, 0), 0);
}

/* The parent opens the device; its child gives up all descriptors, has new ones of the same numbers, and goes on with a
 * device of its own. */
static void daemon_closes_all(int line)
{
	int files[32], status;
	struct node inherited;
	pid_t child;

	node_open(&inherited);
	child = fork();
	CHECK(child >= 0);
	if (child) {
		CHECK_EQUAL(waitpid(child, &status, 0), child);
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
		exchange(&inherited, line);
		node_close(&inherited);
		return;
	}
	close_all_but(line);
	for (int i = 0; i < 32; i++)
		files[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
	open_and_exchange(line);
	for (int i = 0; i < 32; i++)
		CHECK_EQUAL(fcntl(files[i], F_GETFD), FD_CLOEXEC);
	_exit(0);
}

static void exchanges_twice(int line)
{
	struct node node;

	node_open(&node);
	exchange(&node, line);
	exchange(&node, line);
	node_close(&node);
}

static void daemon_child(void)
{
	run_pair(daemon_closes_all, exchanges_twice);
}

/* As daemon(3): the parent ends, and its child is nobody's. */
static void daemonizes(int line)
{
	struct node inherited;
	pid_t child;

	node_open(&inherited);
	child = fork();
	CHECK(child >= 0);
	if (child)
		_exit(0);
	CHECK(setsid() > 0);
	open_and_exchange(line);
	_exit(0);
}

static void daemon_of_its_own(void)
{
	run_pair(daemonizes, open_and_exchange);
}

static unsigned cpu_ms(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (unsigned)(used.tv_sec * 1000 + used.tv_nsec / 1000000);
}

/* Whatever its verbs then say, they return, and no thread spins. */
static void closes_its_own(int line)
{
	struct timespec time = { .tv_nsec = 100000000 };
	struct ibv_qp *qp;
	struct node node;
	struct ibv_wc wc;
	unsigned before;

	node_open(&node);
	exchange(&node, line);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	close_all_but(line);
	say(line, 4);
	before = cpu_ms();
	nanosleep(&time, NULL);
	CHECK(cpu_ms() - before < 50);
	node_recv(&node, qp, 1, 0, 64);
	node_send(&node, qp, 1, 0, 64);
	ibv_poll_cq(node.cq, 1, &wc);
	ibv_reg_mr(node.pd, node.buf, 64, 0);
	ibv_create_cq(node.ctx, 100000, NULL, NULL, 0);
	ibv_destroy_qp(qp);
	ibv_close_device(node.ctx);
	say(line, 5);
}

static void sees_it_end(int line)
{
	struct node node;
	uint64_t deadline = now_ms() + TIMEOUT_MS;

	node_open(&node);
	exchange(&node, line);
	expect(line, 4);
	while (count_maps() > 1 && now_ms() < deadline)
		usleep(1000);
	CHECK_EQUAL(count_maps(), 1);
	expect(line, 5);
	node_close(&node);
}

static void careless(void)
{
	run_pair(closes_its_own, sees_it_end);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "daemon_closes_what_it_inherited", daemon_child },
		{ "daemon_without_its_parent", daemon_of_its_own },
		{ "process_that_closes_the_librarys_own", careless },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
