/* SPDX-License-Identifier: MIT */
/*
 * Users and namespaces: who meets whom, by what way, and that those who do not meet do not disturb each other.
 */
#include "cases.h"

#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "observe/cause.h"

#define NOBODY 65534

static void become_nobody(void)
{
	if (geteuid())
		SKIP("only root can become another user");
	CHECK_EQUAL(setgroups(0, NULL), 0);
	CHECK_EQUAL(setresgid(NOBODY, NOBODY, NOBODY), 0);
	CHECK_EQUAL(setresuid(NOBODY, NOBODY, NOBODY), 0);
	/* Nothing of that user is to stay in /dev/shm. */
	setenv("UROCE_RUNTIME_DIR", "/proc/uroce/none", 1);
}

static void nobody_exchanges(int line)
{
	become_nobody();
	open_and_exchange(line);
}

static void other_user_exchanges(void)
{
	run_pair(nobody_exchanges, nobody_exchanges);
}

static void unreachable(struct node *node, int line, uint32_t cause)
{
	struct outcome outcome = try_to_send(node, line);

	CHECK_EQUAL(outcome.status, IBV_WC_RETRY_EXC_ERR);
	CHECK_EQUAL(outcome.cause, cause);
}

static void root_tries(int line)
{
	struct node node;

	node_open(&node);
	unreachable(&node, line, CAUSE_PEER_OTHER_USER);
	be_tried(&node, line);
	node_close(&node);
}

static void nobody_tries(int line)
{
	struct node node;

	become_nobody();
	node_open(&node);
	be_tried(&node, line);
	unreachable(&node, line, CAUSE_PEER_OTHER_USER);
	node_close(&node);
}

static void users_do_not_meet(void)
{
	run_pair(root_tries, nobody_tries);
}

static void daemon_exchanges(int line)
{
	struct node node;

	node_open(&node);
	become_nobody();
	exchange(&node, line);
	node_close(&node);
}

/* It can become root again. */
static void seeming_nobody_exchanges(int line)
{
	struct node node;

	if (geteuid())
		SKIP("only root can become another user");
	node_open(&node);
	CHECK_EQUAL(seteuid(NOBODY), 0);
	exchange(&node, line);
	CHECK_EQUAL(seteuid(0), 0);
	node_close(&node);
}

static void daemons_exchange(void)
{
	run_pair(daemon_exchanges, daemon_exchanges);
	run_pair(seeming_nobody_exchanges, seeming_nobody_exchanges);
}

/* It has opened its device as root. */
static void daemon_tries(int line)
{
	struct node node;

	node_open(&node);
	become_nobody();
	unreachable(&node, line, CAUSE_PEER_OTHER_USER);
	be_tried(&node, line);
	node_close(&node);
}

/* Opens it as nobody, and can become root again. */
static void seeming_nobody_is_tried(int line)
{
	struct node node;

	if (geteuid())
		SKIP("only root can become another user");
	setenv("UROCE_RUNTIME_DIR", "/proc/uroce/none", 1);
	CHECK_EQUAL(seteuid(NOBODY), 0);
	node_open(&node);
	be_tried(&node, line);
	unreachable(&node, line, CAUSE_PEER_OTHER_USER);
	node_close(&node);
}

/* Nobody gets at the memory of who was, is, or can be root. */
static void daemon_meets_no_other_user(void)
{
	run_pair(daemon_tries, nobody_tries);
	run_pair(root_tries, nobody_tries);
	run_pair(root_tries, seeming_nobody_is_tried);
}

static void run_pair_of_root(int to_test, void *arg)
{
	(void)to_test;
	(void)arg;
	run_pair(open_and_exchange, open_and_exchange);
}

static void run_pair_of_nobody(int to_test, void *arg)
{
	(void)to_test;
	(void)arg;
	other_user_exchanges();
}

/* Pairs of both users exchange while the two users try to reach each other. */
static void users_do_not_disturb(void)
{
	struct actor pairs[2];

	actor_start(&pairs[0], run_pair_of_root, NULL);
	actor_start(&pairs[1], run_pair_of_nobody, NULL);
	users_do_not_meet();
	end_well(&pairs[0]);
	end_well(&pairs[1]);
}

/* Goes on in a child that sees only its own processes and its own /dev/shm; the caller ends with the child's status. */
static void enter_container(void)
{
	int status;
	pid_t child;

	if (unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS))
		SKIP("no PID namespace: %s", strerror(errno));
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		SKIP("the root of this chroot is no mount: %s", strerror(errno));
	child = fork();
	CHECK(child >= 0);
	if (child) {
		CHECK_EQUAL(waitpid(child, &status, 0), child);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CHECK_EQUAL(getpid(), 1);
	if (mount("proc", "/proc", "proc", 0, NULL) ||
	    mount("shm", "/dev/shm", "tmpfs", 0, "size=1m"))
		SKIP("a container's file systems cannot be mounted: %s", strerror(errno));
}

/* The same, with users of its own: two of a pod have the network in common, and nothing else. */
static void enter_pod(void)
{
	enter_user_namespace();
	enter_container();
	setenv("HOME", "/nonexistent", 1);
	unsetenv("XDG_RUNTIME_DIR");
	unsetenv("UROCE_RUNTIME_DIR");
}

static void in_pod(int line)
{
	enter_pod();
	open_and_exchange(line);
}

static void pod_exchanges(void)
{
	run_pair(in_pod, in_pod);
}

static void in_container(int line)
{
	enter_container();
	open_and_exchange(line);
}

static void containers_meet(void)
{
	become_root();
	run_pair(in_container, in_container);
}

static void container_meets_its_host(void)
{
	become_root();
	run_pair(in_container, open_and_exchange);
}

/* Both are process 1 of their namespace; were QPNs made of process numbers, they would be the same. */
static void numbers_differ(int line)
{
	uint32_t mine[64], theirs[64];
	struct ibv_qp *qps[64];
	struct node node;

	node_open(&node);
	for (int i = 0; i < 64; i++) {
		qps[i] = node_qp(&node, IBV_QPT_RC, NULL);
		mine[i] = qps[i]->qp_num;
	}
	line_send(line, mine, sizeof(mine));
	line_receive(line, theirs, sizeof(theirs));
	for (int i = 0; i < 64 * 64; i++)
		CHECK(mine[i / 64] != theirs[i % 64]);
	for (int i = 0; i < 64; i++)
		CHECK_EQUAL(ibv_destroy_qp(qps[i]), 0);
	node_close(&node);
}

static void numbers_differ_in_container(int line)
{
	enter_container();
	numbers_differ(line);
}

static void containers_have_different_numbers(void)
{
	become_root();
	run_pair(numbers_differ_in_container, numbers_differ_in_container);
}

static void numbers_differ_in_pod(int line)
{
	enter_pod();
	numbers_differ(line);
}

static void pod_has_different_numbers(void)
{
	run_pair(numbers_differ_in_pod, numbers_differ_in_pod);
}

static void dies_in_container(int line)
{
	struct node node;

	enter_container();
	node_open(&node);
	exchange(&node, line);
	_exit(0); /* with everything open: PID 1, so the kernel ends the namespace */
}

static void survives(int line)
{
	struct node node;
	uint64_t deadline = now_ms() + TIMEOUT_MS;

	enter_container();
	node_open(&node);
	exchange(&node, line);
	while (count_maps() > 1 && now_ms() < deadline)
		usleep(1000);
	CHECK_EQUAL(count_maps(), 1);
	node_close(&node);
}

static void death_is_seen_across_containers(void)
{
	become_root();
	run_pair(dies_in_container, survives);
}

/* A network of its own, whose only interface is loopback, up or not. */
static void enter_network(bool up)
{
	if (unshare(CLONE_NEWNET))
		SKIP("no network namespace: %s", strerror(errno));
	if (up)
		raise_loopback();
}

static void tries_from_its_network(int line)
{
	struct node node;

	enter_network(true);
	node_open(&node);
	unreachable(&node, line, CAUSE_PEER_ABSENT);
	node_close(&node);
}

static void tried_in_its_network(int line)
{
	struct node node;

	enter_network(true);
	node_open(&node);
	be_tried(&node, line);
	node_close(&node);
}

static void networks_do_not_meet(void)
{
	become_root();
	run_pair(tries_from_its_network, tried_in_its_network);
}

static void network_of_its_own(void)
{
	become_root();
	enter_network(true);
	run_pair(open_and_exchange, open_and_exchange);
}

/* A port without addresses is down; the device opens, as one does whose cable is unplugged. */
static void network_without_addresses(void)
{
	struct ibv_port_attr port;
	struct ibv_context *ctx;
	union ibv_gid gid;

	become_root();
	enter_network(false);
	ctx = open_device();
	CHECK(ctx);
	CHECK_EQUAL(ibv_query_port(ctx, 1, &port), 0);
	CHECK_EQUAL(port.state, IBV_PORT_DOWN);
	ibv_query_gid(ctx, 1, 0, &gid);
	CHECK_EQUAL(ibv_close_device(ctx), 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "another_user_exchanges", other_user_exchanges },
		{ "users_do_not_meet", users_do_not_meet },
		{ "daemons_that_become_another_user_exchange", daemons_exchange },
		{ "daemon_that_became_another_user_meets_no_other", daemon_meets_no_other_user },
		{ "users_do_not_disturb_each_other", users_do_not_disturb },
		{ "containers_meet", containers_meet },
		{ "container_meets_its_host", container_meets_its_host },
		{ "containers_have_different_numbers", containers_have_different_numbers },
		{ "pod_exchanges", pod_exchanges },
		{ "pod_has_different_numbers", pod_has_different_numbers },
		{ "death_is_seen_across_containers", death_is_seen_across_containers },
		{ "networks_do_not_meet", networks_do_not_meet },
		{ "network_of_its_own", network_of_its_own },
		{ "network_without_addresses", network_without_addresses },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
