/* SPDX-License-Identifier: MIT */
/* The requester over a transport that answers as it is told: order of completions, retries, slots,
 * states. */
#include "unit.h"

#include <errno.h>
#include <sched.h>

#include "nic/requester.h"

#define DEPTH 8

/* What the transport answers to the WQE whose wr_id is the index; the last one for ever. */
static _Atomic int answers[64][8];
static _Atomic unsigned answer_count[64], executions[64], cancels;

static int connect_nothing(struct nic_qp *qp)
{
	(void)qp;
	return 0;
}

static void disconnect_nothing(struct nic_qp *qp)
{
	(void)qp;
}

static enum transport_outcome execute(struct nic_qp *qp, struct nic_swqe *wqe, uint64_t *budget,
				      struct transport_result *result)
{
	uint64_t id = wqe->wr_id;
	unsigned n = executions[id]++;

	(void)qp;
	(void)budget;
	result->status = IBV_WC_REM_ACCESS_ERR;
	result->cause = CAUSE_RKEY_BOUNDS;
	result->due = nic_now() + 100000;
	if (!answer_count[id])
		return TRANSPORT_DONE;
	return (enum transport_outcome)answers[id][n < answer_count[id] ? n : answer_count[id] - 1];
}

static void cancel(struct nic_qp *qp)
{
	(void)qp;
	cancels++;
}

static const struct transport told = {
	.connect = connect_nothing, .disconnect = disconnect_nothing, .execute = execute, .cancel = cancel
};

static void answer_list(uint64_t id, const int *list, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		answers[id][i] = list[i];
	answer_count[id] = count;
}

#define ANSWER(id, ...)                               \
	answer_list(id, (const int[]){ __VA_ARGS__ }, \
		    sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int))

struct objects {
	struct nic_cq cq;
	struct nic_qp qp;
};

static void open_objects(void **state, struct objects *o, enum ibv_qp_type type)
{
	for (int i = 0; i < 64; i++)
		answer_count[i] = executions[i] = 0;
	cancels = 0;
	assert_int_equal(nic_cq_create(*state, 64, NULL, &o->cq), 0);
	make_qp(*state, type, &o->cq, NULL, DEPTH, &o->qp);
	o->qp.sq_sig_all = false;
	bring_up(&o->qp, o->qp.qpn);
	o->qp.transport->disconnect(&o->qp);
	o->qp.transport = &told;
}

static void close_objects(struct objects *o)
{
	nic_qp_destroy(&o->qp);
	assert_int_equal(nic_cq_destroy(&o->cq), 0);
}

static int post_with(struct objects *o, uint64_t wr_id, unsigned flags)
{
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = flags },
			   *bad;

	return nic_qp_post_send(&o->qp, &wr, &bad);
}

static void post(struct objects *o, uint64_t wr_id)
{
	assert_int_equal(post_with(o, wr_id, IBV_SEND_SIGNALED), 0);
}

static void expect_completion(struct objects *o, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	uint64_t deadline = nic_now() + 10000000000u;

	while (!nic_cq_poll(&o->cq, 1, &wc)) {
		assert_true(nic_now() < deadline);
		sched_yield();
	}
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
	assert_int_equal(wc.qp_num, o->qp.qpn);
}

static void expect_nothing(struct objects *o)
{
	struct ibv_wc wc;

	assert_int_equal(nic_cq_poll(&o->cq, 1, &wc), 0);
}

static void failure_flushes_what_is_behind_it_in_order(void **state)
{
	struct objects o;
	struct ibv_recv_wr recv = { .wr_id = 20 }, *bad;

	open_objects(state, &o, IBV_QPT_RC);
	for (recv.wr_id = 20; recv.wr_id < 23; recv.wr_id++)
		assert_int_equal(nic_qp_post_recv(&o.qp, &recv, &bad), 0);
	ANSWER(1, TRANSPORT_WAIT);
	post(&o, 0);
	for (uint64_t id = 1; id < 6; id++)
		assert_int_equal(post_with(&o, id, id % 2 ? IBV_SEND_SIGNALED : 0), 0);
	expect_completion(&o, 0, IBV_WC_SUCCESS);
	expect_nothing(&o);
	ANSWER(1, TRANSPORT_FAILED);
	expect_completion(&o, 1, IBV_WC_REM_ACCESS_ERR);
	/* Signaled or not. */
	for (uint64_t id = 2; id < 6; id++)
		expect_completion(&o, id, IBV_WC_WR_FLUSH_ERR);
	for (uint64_t id = 20; id < 23; id++)
		expect_completion(&o, id, IBV_WC_WR_FLUSH_ERR);
	for (uint64_t id = 2; id < 6; id++)
		assert_int_equal(executions[id], 0);
	/* What is posted now is flushed as well. */
	post(&o, 6);
	expect_completion(&o, 6, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(nic_qp_post_recv(&o.qp, &recv, &bad), 0);
	expect_completion(&o, 23, IBV_WC_WR_FLUSH_ERR);
	expect_nothing(&o);
	close_objects(&o);
}

static void no_response_is_retried_as_often_as_said(void **state)
{
	struct objects o;

	for (uint8_t count = 0; count < 4; count++) {
		open_objects(state, &o, IBV_QPT_RC);
		o.qp.attr.retry_cnt = count;
		o.qp.attr.timeout = 6; /* 262 us */
		ANSWER(1, TRANSPORT_NO_RESPONSE);
		uint64_t start = nic_now();

		post(&o, 1);
		expect_completion(&o, 1, IBV_WC_RETRY_EXC_ERR);
		assert_true(nic_now() - start >= count * (4096ull << 6));
		assert_int_equal(executions[1], count + 1);
		assert_int_equal(o.qp.state, IBV_QPS_ERR);
		close_objects(&o);
	}
}

static void retries_are_counted_anew_for_each_request(void **state)
{
	struct objects o;

	open_objects(state, &o, IBV_QPT_RC);
	o.qp.attr.retry_cnt = 2;
	o.qp.attr.timeout = 1;
	for (uint64_t id = 0; id < 5; id++) {
		ANSWER(id, TRANSPORT_NO_RESPONSE, TRANSPORT_NO_RESPONSE, TRANSPORT_DONE);
		post(&o, id);
	}
	for (uint64_t id = 0; id < 5; id++)
		expect_completion(&o, id, IBV_WC_SUCCESS);
	close_objects(&o);
}

static void receiver_that_is_not_ready_is_retried_as_often_as_said(void **state)
{
	struct objects o;

	for (uint8_t count = 0; count < 7; count++) {
		open_objects(state, &o, IBV_QPT_RC);
		o.qp.attr.rnr_retry = count;
		ANSWER(1, TRANSPORT_RNR);
		post(&o, 1);
		expect_completion(&o, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		assert_int_equal(executions[1], count + 1);
		close_objects(&o);
	}
}

static void rnr_retry_of_7_is_for_ever(void **state)
{
	struct objects o;

	open_objects(state, &o, IBV_QPT_RC);
	o.qp.attr.rnr_retry = 7;
	ANSWER(1, TRANSPORT_RNR);
	post(&o, 1);
	while (executions[1] < 50)
		expect_nothing(&o);
	ANSWER(1, TRANSPORT_DONE);
	expect_completion(&o, 1, IBV_WC_SUCCESS);
	close_objects(&o);
}

static void helper_goes_on_when_nobody_polls(void **state)
{
	struct objects o;
	uint64_t deadline = nic_now() + 10000000000u;

	open_objects(state, &o, IBV_QPT_RC);
	ANSWER(1, TRANSPORT_MORE, TRANSPORT_WAIT, TRANSPORT_RNR, TRANSPORT_NO_RESPONSE,
	       TRANSPORT_DONE);
	post(&o, 1);
	post(&o, 2);
	while (!executions[2]) {
		assert_true(nic_now() < deadline);
		usleep(100);
	}
	expect_completion(&o, 1, IBV_WC_SUCCESS);
	expect_completion(&o, 2, IBV_WC_SUCCESS);
	close_objects(&o);
}

static void slots_come_back_when_the_completion_that_covers_them_is_polled(void **state)
{
	struct objects o;

	open_objects(state, &o, IBV_QPT_RC);
	for (uint64_t round = 0; round < 5; round++) {
		for (uint64_t id = 0; id < DEPTH - 1; id++)
			assert_int_equal(post_with(&o, id, 0), 0);
		assert_int_equal(post_with(&o, DEPTH - 1, IBV_SEND_SIGNALED), 0);
		/* All are executed; none is back. */
		assert_int_equal(post_with(&o, 9, 0), ENOMEM);
		expect_completion(&o, DEPTH - 1, IBV_WC_SUCCESS);
		expect_nothing(&o);
	}
	close_objects(&o);
}

static void draining_finishes_what_was_begun_and_begins_nothing(void **state)
{
	struct objects o;

	open_objects(state, &o, IBV_QPT_RC);
	ANSWER(1, TRANSPORT_WAIT);
	post(&o, 1);
	post(&o, 2);
	assert_int_equal(move_to(&o.qp, IBV_QPS_SQD, 0), 0);
	ANSWER(1, TRANSPORT_DONE);
	expect_completion(&o, 1, IBV_WC_SUCCESS);
	usleep(2000);
	expect_nothing(&o);
	assert_int_equal(executions[2], 0);

	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };

	assert_int_equal(nic_qp_modify(&o.qp, &attr, IBV_QP_STATE), 0);
	expect_completion(&o, 2, IBV_WC_SUCCESS);
	close_objects(&o);
}

static void error_state_gives_up_what_is_under_way(void **state)
{
	struct objects o;

	open_objects(state, &o, IBV_QPT_RC);
	ANSWER(1, TRANSPORT_WAIT);
	post(&o, 1);
	post(&o, 2);
	assert_int_equal(move_to(&o.qp, IBV_QPS_ERR, 0), 0);
	assert_int_equal(cancels, 1);
	expect_completion(&o, 1, IBV_WC_WR_FLUSH_ERR);
	expect_completion(&o, 2, IBV_WC_WR_FLUSH_ERR);
	close_objects(&o);
}

static void failed_uc_request_leaves_the_receiving_side_alone(void **state)
{
	struct objects o;
	struct ibv_recv_wr recv = { .wr_id = 20 }, *bad;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };

	open_objects(state, &o, IBV_QPT_UC);
	assert_int_equal(nic_qp_post_recv(&o.qp, &recv, &bad), 0);
	ANSWER(1, TRANSPORT_FAILED);
	post(&o, 1);
	post(&o, 2);
	expect_completion(&o, 1, IBV_WC_REM_ACCESS_ERR);
	expect_completion(&o, 2, IBV_WC_WR_FLUSH_ERR);
	expect_nothing(&o);
	assert_int_equal(o.qp.state, IBV_QPS_SQE);
	assert_int_equal(nic_qp_modify(&o.qp, &attr, IBV_QP_STATE), 0);
	post(&o, 3);
	expect_completion(&o, 3, IBV_WC_SUCCESS);
	close_objects(&o);
}

static void destroyed_qp_is_not_gone_on_with(void **state)
{
	struct objects o;
	unsigned before;

	for (int round = 0; round < 200; round++) {
		open_objects(state, &o, IBV_QPT_RC);
		ANSWER(1, TRANSPORT_MORE);
		post(&o, 1);
		usleep((useconds_t)(round * 7 % 300));
		if (round % 2)
			assert_int_equal(move_to(&o.qp, IBV_QPS_ERR, 0), 0);
		close_objects(&o);
		before = executions[1];
		sched_yield();
		assert_int_equal(executions[1], before);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(failure_flushes_what_is_behind_it_in_order),
		cmocka_unit_test(no_response_is_retried_as_often_as_said),
		cmocka_unit_test(retries_are_counted_anew_for_each_request),
		cmocka_unit_test(receiver_that_is_not_ready_is_retried_as_often_as_said),
		cmocka_unit_test(rnr_retry_of_7_is_for_ever),
		cmocka_unit_test(helper_goes_on_when_nobody_polls),
		cmocka_unit_test(slots_come_back_when_the_completion_that_covers_them_is_polled),
		cmocka_unit_test(draining_finishes_what_was_begun_and_begins_nothing),
		cmocka_unit_test(error_state_gives_up_what_is_under_way),
		cmocka_unit_test(failed_uc_request_leaves_the_receiving_side_alone),
		cmocka_unit_test(destroyed_qp_is_not_gone_on_with),
	};

	return cmocka_run_group_tests(tests, open_nic, close_nic);
}
