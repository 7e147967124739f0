/* SPDX-License-Identifier: MIT */
/* Threads with as little stack as there can be: the program's, which use verbs and fail, and those that the library starts. */
#include "cases.h"

#include <limits.h>
#include <pthread.h>

static struct node node;
static struct ibv_qp *qps[2];

/* One of each, and a failure, which is told in words (UROCE_EXPLAIN). */
static void *work(void *unused)
{
	struct ibv_qp *other;
	struct ibv_mr *mr;

	(void)unused;
	CHECK_EQUAL(node_rdma(&node, qps[0], 1, IBV_WR_RDMA_WRITE, 0, 4096,
			      (uintptr_t)node.buf + 8192, node.mr->rkey),
		    0);
	node_expect(node.cq, 1, IBV_WC_SUCCESS);
	CHECK_EQUAL(node_rdma(&node, qps[0], 2, IBV_WR_RDMA_READ, 0, 4096,
			      (uintptr_t)node.buf + 8192, node.mr->rkey),
		    0);
	node_expect(node.cq, 2, IBV_WC_SUCCESS);
	mr = ibv_reg_mr(node.pd, node.buf, NODE_BYTES, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	other = node_qp(&node, IBV_QPT_RC, NULL);
	CHECK_EQUAL(ibv_destroy_qp(other), 0);
	CHECK_EQUAL(node_rdma(&node, qps[0], 3, IBV_WR_RDMA_READ, 0, 4096, (uintptr_t)node.buf,
			      node.mr->rkey + 2),
		    0);
	node_expect(node.cq, 3, IBV_WC_REM_ACCESS_ERR);
	return NULL;
}

static void open_pair(void)
{
	node_open(&node);
	for (int i = 0; i < 2; i++)
		qps[i] = node_qp(&node, IBV_QPT_RC, NULL);
	node_connect_pair(&node, qps[0], qps[1], &patient);
}

static void close_pair(void)
{
	for (int i = 0; i < 2; i++)
		CHECK_EQUAL(ibv_destroy_qp(qps[i]), 0);
	node_close(&node);
}

static void least_of_the_programs_threads(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	open_pair();
	CHECK_EQUAL(pthread_attr_init(&attr), 0);
	CHECK_EQUAL(pthread_attr_setstacksize(&attr, (size_t)PTHREAD_STACK_MIN), 0);
	CHECK_EQUAL(pthread_create(&thread, &attr, work, NULL), 0);
	CHECK_EQUAL(pthread_join(thread, NULL), 0);
	close_pair();
}

static void least_by_default(void)
{
	pthread_attr_t attr;

	CHECK_EQUAL(pthread_attr_init(&attr), 0);
	CHECK_EQUAL(pthread_attr_setstacksize(&attr, (size_t)PTHREAD_STACK_MIN), 0);
	CHECK_EQUAL(pthread_setattr_default_np(&attr), 0);
	open_pair();
	work(NULL);
	close_pair();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "least_of_the_programs_threads", least_of_the_programs_threads },
		{ "least_by_default", least_by_default },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
