/* SPDX-License-Identifier: MIT */
/*
 * Fork: the child's copies of the parent's objects answer errors, a device that it opens itself
 * works, and the parent goes on as if nothing had been.
 */
#include "node.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

/* One of everything. */
struct all {
	struct node node;
	struct ibv_qp *a, *b, *ex_qp;
	struct ibv_cq_ex *ex_cq;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_mr *windowed; /* the buffer, without rights for peers */
	struct ibv_mw *mw;	 /* of type 1, bound to it by b */
};

static int bind_window(struct all *all)
{
	struct ibv_mw_bind bind = { .wr_id = 77,
				    .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = { .mr = all->windowed,
						   .addr = (uintptr_t)all->node.buf,
						   .length = 8192,
						   .mw_access_flags = IBV_ACCESS_REMOTE_WRITE } };

	return ibv_bind_mw(all->b, all->mw, &bind);
}

static void open_all(struct all *all)
{
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_ah_attr ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_qp_init_attr_ex qp_attr = {
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};

	node_open(&all->node);
	all->a = node_qp(&all->node, IBV_QPT_RC, NULL);
	all->b = node_qp(&all->node, IBV_QPT_RC, NULL);
	node_connect_pair(&all->node, all->a, all->b, &node_defaults);
	all->ex_cq = ibv_create_cq_ex(all->node.ctx, &cq_attr);
	all->srq = ibv_create_srq(all->node.pd, &srq_attr);
	ah_attr.grh.dgid = all->node.gid;
	all->ah = ibv_create_ah(all->node.pd, &ah_attr);
	qp_attr.pd = all->node.pd;
	qp_attr.send_cq = qp_attr.recv_cq = ibv_cq_ex_to_cq(all->ex_cq);
	all->ex_qp = ibv_create_qp_ex(all->node.ctx, &qp_attr);
	CHECK(all->ex_cq && all->srq && all->ah && all->ex_qp);
	all->windowed = ibv_reg_mr(all->node.pd, all->node.buf, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	all->mw = ibv_alloc_mw(all->node.pd, IBV_MW_TYPE_1);
	CHECK(all->windowed && all->mw);
	CHECK_EQUAL(bind_window(all), 0);
	node_expect(all->node.cq, 77, IBV_WC_SUCCESS);
}

/* A message from a to b, and a WRITE through b's window. */
static void exchange(struct all *all, uint64_t wr_id)
{
	struct ibv_wc wc;

	CHECK_EQUAL(node_recv(&all->node, all->b, wr_id, 4096, 8), 0);
	CHECK_EQUAL(node_send(&all->node, all->a, wr_id, 0, 8), 0);
	for (int i = 0; i < 2; i++) {
		CHECK(node_poll(all->node.cq, &wc, TIMEOUT_MS));
		CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
		CHECK_EQUAL(wc.wr_id, wr_id);
	}
	CHECK_EQUAL(node_rdma(&all->node, all->a, wr_id, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)all->node.buf + 4096 + 8,
			      all->mw->rkey),
		    0);
	node_expect(all->node.cq, wr_id, IBV_WC_SUCCESS);
}

#define FAILS(call)                      \
	do {                             \
		errno = 0;               \
		CHECK((call));           \
		CHECK_EQUAL(errno, EIO); \
	} while (0)

static void every_verb_fails(struct all *all)
{
	struct node *node = &all->node;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init = { .send_cq = node->cq,
					 .recv_cq = node->cq,
					 .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq_attr srq_attr = { .srq_limit = 1 };
	struct ibv_ah_attr ah_attr = { .is_global = 1,
				       .port_num = 1,
				       .grh = { .dgid = node->gid } };
	struct ibv_poll_cq_attr poll_attr = { 0 };
	struct ibv_async_event event;
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(all->ex_qp);
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	FAILS(node_send(node, all->a, 1, 0, 8) == EIO);
	FAILS(node_recv(node, all->a, 1, 0, 8) == EIO);
	FAILS(node_srq_recv(node, all->srq, 1, 0, 8) == EIO);
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, node->mr->lkey, (uintptr_t)node->buf, 8);
	FAILS(ibv_wr_complete(ex) == EIO);
	ibv_wr_start(ex);
	ibv_wr_abort(ex);
	FAILS(ibv_poll_cq(node->cq, 1, &wc) == -1);
	FAILS(ibv_start_poll(all->ex_cq, &poll_attr) == EIO);
	FAILS(ibv_req_notify_cq(node->cq, 0) == EIO);
	FAILS(ibv_resize_cq(node->cq, 500) == EIO);
	FAILS(ibv_get_cq_event(node->channel, &cq, &context) == -1);
	FAILS(ibv_get_async_event(node->ctx, &event) == -1);
	FAILS(ibv_modify_qp(all->a, &attr, IBV_QP_STATE) == EIO);
	FAILS(ibv_query_qp(all->a, &attr, IBV_QP_STATE, &init) == EIO);
	init = (struct ibv_qp_init_attr){ .send_cq = node->cq,
					  .recv_cq = node->cq,
					  .qp_type = IBV_QPT_RC,
					  .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	FAILS(!ibv_create_qp(node->pd, &init));
	FAILS(!ibv_create_cq(node->ctx, 1, NULL, NULL, 0));
	FAILS(!ibv_create_comp_channel(node->ctx));
	FAILS(!ibv_alloc_pd(node->ctx));
	FAILS(!ibv_reg_mr(node->pd, node->buf, 8, IBV_ACCESS_LOCAL_WRITE));
	FAILS(ibv_rereg_mr(node->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   IBV_ACCESS_LOCAL_WRITE));
	FAILS(!ibv_create_srq(node->pd, &srq_init));
	FAILS(ibv_modify_srq(all->srq, &srq_attr, IBV_SRQ_LIMIT) == EIO);
	FAILS(ibv_query_srq(all->srq, &srq_attr) == EIO);
	FAILS(!ibv_create_ah(node->pd, &ah_attr));
	FAILS(!ibv_alloc_mw(node->pd, IBV_MW_TYPE_2));
	FAILS(bind_window(all) == EIO);
}

static void destroy_all(struct all *all)
{
	CHECK_EQUAL(ibv_destroy_ah(all->ah), 0);
	CHECK_EQUAL(ibv_destroy_qp(all->ex_qp), 0);
	CHECK_EQUAL(ibv_destroy_qp(all->a), 0);
	CHECK_EQUAL(ibv_destroy_qp(all->b), 0);
	CHECK_EQUAL(ibv_destroy_cq(ibv_cq_ex_to_cq(all->ex_cq)), 0);
	CHECK_EQUAL(ibv_destroy_srq(all->srq), 0);
	CHECK_EQUAL(ibv_dealloc_mw(all->mw), 0);
	CHECK_EQUAL(ibv_dereg_mr(all->windowed), 0);
	node_close(&all->node);
}

/* Exits 0 if the child did. */
static void expect_good_end(pid_t pid)
{
	int status = 0;

	CHECK(pid > 0);
	CHECK_EQUAL(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	CHECK_EQUAL(WEXITSTATUS(status), 0);
}

static void inherited_objects_answer_errors_and_can_be_destroyed(void)
{
	struct all all;
	pid_t pid;

	open_all(&all);
	exchange(&all, 1);
	pid = fork();
	if (!pid) {
		alarm(10);
		every_verb_fails(&all);
		destroy_all(&all);
		_exit(0);
	}
	expect_good_end(pid);
	exchange(&all, 2);
	destroy_all(&all);
}

struct worker {
	pthread_t thread;
	struct all all;
	_Atomic bool *stop;
};

static void *keep_working(void *arg)
{
	struct worker *worker = arg;

	for (uint64_t i = 0; !*worker->stop; i++) {
		struct ibv_mr *mr = ibv_reg_mr(worker->all.node.pd, worker->all.node.buf, 64,
					       IBV_ACCESS_LOCAL_WRITE);

		CHECK(mr);
		exchange(&worker->all, i);
		CHECK_EQUAL(ibv_req_notify_cq(worker->all.node.cq, 0), 0);
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	}
	return NULL;
}

/* Locks that a thread held at the fork stay locked in the child: it needs none of them. */
__attribute__((unused)) static void fork_beside_busy_threads_leaves_a_child_that_is_not_stuck(void)
{
	_Atomic bool stop = false;
	struct worker workers[2];

	for (int i = 0; i < 2; i++) {
		open_all(&workers[i].all);
		workers[i].stop = &stop;
	}
	for (int i = 0; i < 2; i++)
		CHECK_EQUAL(pthread_create(&workers[i].thread, NULL, keep_working, &workers[i]), 0);
	for (int round = 0; round < 60; round++) {
		pid_t pid = fork();

		if (!pid) {
			struct node node;

			alarm(10);
			every_verb_fails(&workers[0].all);
			destroy_all(&workers[1].all);
			node_open(&node);
			node_close(&node);
			_exit(0);
		}
		expect_good_end(pid);
	}
	stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(workers[i].thread, NULL);
	for (int i = 0; i < 2; i++)
		destroy_all(&workers[i].all);
}

static void receive_card(int fd, struct card *card)
{
	CHECK_EQUAL(read(fd, card, sizeof(*card)), sizeof(*card));
}

static void send_card(int fd, const struct card *card)
{
	CHECK_EQUAL(write(fd, card, sizeof(*card)), sizeof(*card));
}

/* Connected to the process at the other end of the pipes; one message each way. */
static void talk(struct node *node, int in, int out)
{
	struct ibv_qp *qp = node_qp(node, IBV_QPT_RC, NULL);
	struct card mine = node_card(node, qp), theirs;
	struct ibv_wc wc;

	CHECK_EQUAL(node_recv(node, qp, 1, 4096, 64), 0);
	send_card(out, &mine);
	receive_card(in, &theirs);
	node_connect(qp, &theirs, &node_defaults);
	send_card(out, &mine);
	receive_card(in, &theirs); /* it is connected too */
	CHECK_EQUAL(node_send(node, qp, 2, 0, 64), 0);
	for (int i = 0; i < 2; i++) {
		CHECK(node_poll(node->cq, &wc, TIMEOUT_MS));
		CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
	}
	/* Nobody leaves before the other is done. */
	send_card(out, &mine);
	receive_card(in, &theirs);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
}

__attribute__((unused)) static void childs_own_device_works_with_its_parent(void)
{
	struct all all;
	int down[2], up[2];

	open_all(&all);
	exchange(&all, 1);
	for (int round = 0; round < 5; round++) {
		CHECK_EQUAL(pipe(down), 0);
		CHECK_EQUAL(pipe(up), 0);
		pid_t pid = fork();

		if (!pid) {
			struct node node;

			alarm(20);
			node_open(&node);
			talk(&node, down[0], up[1]);
			node_close(&node);
			_exit(0);
		}
		talk(&all.node, up[0], down[1]);
		expect_good_end(pid);
		for (int i = 0; i < 2; i++) {
			close(down[i]);
			close(up[i]);
		}
	}
	exchange(&all, 2);
	destroy_all(&all);
}

/* A connection that ends is over, though a child that no handler ran in still has a copy of it. */
__attribute__((unused)) static void copies_of_a_connection_do_not_bring_it_back(void)
{
	struct all all;
	int down[2], up[2];
	pid_t peer, copy;

	CHECK_EQUAL(pipe(down), 0);
	CHECK_EQUAL(pipe(up), 0);
	peer = fork();
	if (!peer) {
		struct node node;

		alarm(20);
		node_open(&node);
		talk(&node, down[0], up[1]);
		pause();
	}
	open_all(&all);
	talk(&all.node, up[0], down[1]);
	copy = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!copy) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	kill(peer, SIGKILL);
	CHECK_EQUAL(waitpid(peer, NULL, 0), peer);
	/* Longer than the dead peer is kept. */
	for (int i = 0; i < 1000; i++, usleep(1000))
		exchange(&all, (uint64_t)i);
	kill(copy, SIGKILL);
	CHECK_EQUAL(waitpid(copy, NULL, 0), copy);
	destroy_all(&all);
}

__attribute__((unused)) static void grandchildren_have_devices_too(void)
{
	struct all all;

	open_all(&all);
	for (int depth = 0; depth < 4; depth++) {
		pid_t pid = fork();

		if (!pid) { /* the child goes on in the loop */
			alarm(20);
			open_all(&all);
			exchange(&all, 1);
			continue;
		}
		expect_good_end(pid);
		exchange(&all, 2);
		destroy_all(&all);
		if (depth)
			_exit(0); /* what it inherited it leaves */
		return;
	}
	_exit(0);
}

static void child_that_outlives_its_parent_does_not_hold_its_place(void)
{
	struct node node;
	struct ibv_qp *qp;
	int report[2], born[2];
	uint32_t qpn = 0;
	pid_t parent;

	CHECK_EQUAL(pipe(report), 0);
	CHECK_EQUAL(pipe(born), 0);
	parent = fork();
	if (!parent) {
		pid_t child;

		node_open(&node);
		qp = node_qp(&node, IBV_QPT_RC, NULL);
		child = fork();
		if (!child) {
			pid_t self = getpid();

			alarm(20);
			/* From here on it has let go of what it inherited. */
			CHECK_EQUAL(write(born[1], &self, sizeof(self)), sizeof(self));
			pause();
			_exit(0);
		}
		CHECK_EQUAL(write(report[1], &qp->qp_num, sizeof(qpn)), sizeof(qpn));
		pause();
	}
	pid_t child;

	CHECK_EQUAL(read(report[0], &qpn, sizeof(qpn)), sizeof(qpn));
	CHECK_EQUAL(read(born[0], &child, sizeof(child)), sizeof(child));
	uint64_t socket = slot_socket(qpn);

	CHECK(socket);
	kill(parent, SIGKILL);
	CHECK_EQUAL(waitpid(parent, NULL, 0), parent);
	CHECK(slot_socket(qpn) != socket);
	CHECK_EQUAL(kill(child, 0), 0);
	kill(child, SIGKILL);
}

/* An executed program finds nothing of ours among its descriptors. */
static char *const look[] = { "sh", "-c",
			      "! ls -l /proc/self/fd | grep -e memfd: -e socket: -e eventpoll -e eventfd",
			      NULL };

static void executed_programs_inherit_no_descriptors(void)
{
	struct all all;
	pid_t pid;

	open_all(&all);
	exchange(&all, 1);
	pid = fork();
	if (!pid) {
		execvp(look[0], look);
		_exit(127);
	}
	expect_good_end(pid);
	CHECK_EQUAL(posix_spawnp(&pid, look[0], NULL, NULL, look, environ), 0);
	expect_good_end(pid);
	pid = vfork();
	if (!pid) {
		execvp(look[0], look);
		_exit(127);
	}
	expect_good_end(pid);
	CHECK_EQUAL(system(look[2]), 0);
	exchange(&all, 2);
	destroy_all(&all);
}

static void fork_before_opening_leaves_two_processes_alike(void)
{
	pid_t pid = fork();
	struct all all;

	open_all(&all);
	exchange(&all, 1);
	destroy_all(&all);
	if (!pid)
		_exit(0);
	expect_good_end(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(inherited_objects_answer_errors_and_can_be_destroyed),
#ifndef __SANITIZE_THREAD__ /* no new threads in the child of a process that had some */
		CASE(fork_beside_busy_threads_leaves_a_child_that_is_not_stuck),
		CASE(childs_own_device_works_with_its_parent),
		CASE(grandchildren_have_devices_too),
		CASE(copies_of_a_connection_do_not_bring_it_back),
#endif
		CASE(child_that_outlives_its_parent_does_not_hold_its_place),
		CASE(executed_programs_inherit_no_descriptors),
		CASE(fork_before_opening_leaves_two_processes_alike),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
