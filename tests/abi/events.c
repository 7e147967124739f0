/* SPDX-License-Identifier: MIT */
/* Events and their acknowledgement: destroying an object waits for what was read of it and drops what was not. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

/* A queue pair that is connected to itself, with a channel. */
struct bench {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static void connect_to_itself(const struct bench *bench)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = bench->qp->qp_num,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
	};

	assert_int_equal(ibv_query_gid(bench->context, 1, 0, &attr.ah_attr.grh.dgid), 0);
	assert_int_equal(ibv_modify_qp(bench->qp, &attr,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS),
			 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(bench->qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(bench->qp, &attr,
				       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					       IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

static int set_up(void **state)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr attr = { .cap = { .max_send_wr = 8, .max_recv_wr = 8 },
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };

	assert_true(bench && list && list[0]);
	bench->context = ibv_open_device(list[0]);
	assert_non_null(bench->context);
	ibv_free_device_list(list);
	bench->pd = ibv_alloc_pd(bench->context);
	bench->channel = ibv_create_comp_channel(bench->context);
	bench->cq = ibv_create_cq(bench->context, 16, bench, bench->channel, 0);
	assert_true(bench->pd && bench->channel && bench->cq);
	attr.send_cq = attr.recv_cq = bench->cq;
	bench->qp = ibv_create_qp(bench->pd, &attr);
	assert_non_null(bench->qp);
	connect_to_itself(bench);
	*state = bench;
	return 0;
}

/* cq and qp may be gone. */
static int tear_down(void **state)
{
	struct bench *bench = *state;

	assert_int_equal(bench->qp ? ibv_destroy_qp(bench->qp) : 0, 0);
	assert_int_equal(bench->cq ? ibv_destroy_cq(bench->cq) : 0, 0);
	assert_int_equal(ibv_destroy_comp_channel(bench->channel), 0);
	assert_int_equal(ibv_dealloc_pd(bench->pd), 0);
	assert_int_equal(ibv_close_device(bench->context), 0);
	free(bench);
	return 0;
}

static void send_to_itself(const struct bench *bench)
{
	struct ibv_recv_wr receive = { .wr_id = 1 }, *bad_receive;
	struct ibv_send_wr send = { .wr_id = 2, .opcode = IBV_WR_SEND }, *bad_send;

	assert_int_equal(ibv_post_recv(bench->qp, &receive, &bad_receive), 0);
	assert_int_equal(ibv_post_send(bench->qp, &send, &bad_send), 0);
}

/* Both completions of a message. */
static void poll_both(const struct bench *bench)
{
	struct ibv_wc wc;

	for (int found = 0; found < 2;) {
		int n = ibv_poll_cq(bench->cq, 1, &wc);

		assert_true(n >= 0);
		assert_true(!n || wc.status == IBV_WC_SUCCESS);
		found += n;
	}
}

static void read_event(const struct bench *bench)
{
	struct ibv_cq *cq = NULL;
	void *cq_context = NULL;

	assert_int_equal(ibv_get_cq_event(bench->channel, &cq, &cq_context), 0);
	assert_ptr_equal(cq, bench->cq);
	assert_ptr_equal(cq_context, bench);
}

static void one_event_for_one_arming(void **state)
{
	struct bench *bench = *state;
	struct pollfd polled = { .fd = bench->channel->fd, .events = POLLIN };

	send_to_itself(bench);
	poll_both(bench);
	assert_int_equal(poll(&polled, 1, 0), 0); /* nobody asked */
	assert_int_equal(ibv_req_notify_cq(bench->cq, 0), 0);
	assert_int_equal(poll(&polled, 1, 0), 0); /* nothing came */
	send_to_itself(bench);
	read_event(bench);
	poll_both(bench);
	send_to_itself(bench);
	poll_both(bench);
	assert_int_equal(poll(&polled, 1, 0), 0);
	ibv_ack_cq_events(bench->cq, 1);
}

static atomic_bool acknowledged;

struct destruction {
	void *object;
	int (*destroy)(void *object);
	bool was_acknowledged; /* when destroy returned */
	int result;
};

static void *destroy_thread(void *arg)
{
	struct destruction *destruction = arg;

	destruction->result = destruction->destroy(destruction->object);
	destruction->was_acknowledged = atomic_load(&acknowledged);
	return NULL;
}

static int destroy_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

static int destroy_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

/* Starts to destroy, acknowledges by `acknowledge`, and says whether destroying waited for that. */
static void assert_waits(struct destruction *destruction, void (*acknowledge)(void *arg), void *arg)
{
	pthread_t thread;

	atomic_store(&acknowledged, false);
	assert_int_equal(pthread_create(&thread, NULL, destroy_thread, destruction), 0);
	for (int i = 0; i < 1000; i++) /* gives it the chance to be wrong */
		sched_yield();
	atomic_store(&acknowledged, true);
	acknowledge(arg);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(destruction->result, 0);
	assert_true(destruction->was_acknowledged);
}

static void acknowledge_completions(void *cq)
{
	ibv_ack_cq_events(cq, 2);
}

static void destroying_a_cq_waits_for_its_completion_events(void **state)
{
	struct bench *bench = *state;
	struct destruction destruction = { .object = bench->cq, .destroy = destroy_cq };

	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_req_notify_cq(bench->cq, 0), 0);
		send_to_itself(bench);
		read_event(bench);
		poll_both(bench);
	}
	assert_int_equal(ibv_destroy_qp(bench->qp), 0);
	bench->qp = NULL;
	assert_waits(&destruction, acknowledge_completions, bench->cq);
	bench->cq = NULL;
}

static void unread_completion_events_go_with_the_cq(void **state)
{
	struct bench *bench = *state;
	struct pollfd polled = { .fd = bench->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *cq_context;

	assert_int_equal(ibv_req_notify_cq(bench->cq, 0), 0);
	send_to_itself(bench);
	assert_int_equal(poll(&polled, 1, -1), 1);
	poll_both(bench);
	assert_int_equal(ibv_destroy_qp(bench->qp), 0);
	bench->qp = NULL;
	assert_int_equal(ibv_destroy_cq(bench->cq), 0);
	bench->cq = NULL;
	assert_int_equal(fcntl(bench->channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_get_cq_event(bench->channel, &cq, &cq_context), -1);
	assert_int_equal(errno, EAGAIN);
}

/* An SRQ whose limit event is due: it holds less than the limit. */
static struct ibv_srq *make_srq_below_its_limit(const struct bench *bench)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 2 };
	struct ibv_srq *srq = ibv_create_srq(bench->pd, &attr);

	assert_non_null(srq);
	assert_int_equal(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	return srq;
}

static void acknowledge_async(void *event)
{
	ibv_ack_async_event(event);
}

static void destroying_an_srq_waits_for_its_async_events(void **state)
{
	struct bench *bench = *state;
	struct destruction destruction = { .object = make_srq_below_its_limit(bench),
					   .destroy = destroy_srq };
	struct ibv_async_event event;

	assert_int_equal(ibv_get_async_event(bench->context, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, destruction.object);
	assert_waits(&destruction, acknowledge_async, &event);
}

static void unread_async_events_go_with_the_object(void **state)
{
	struct bench *bench = *state;
	struct pollfd polled = { .fd = bench->context->async_fd, .events = POLLIN };
	struct ibv_srq *srq = make_srq_below_its_limit(bench);
	struct ibv_async_event event;

	assert_int_equal(poll(&polled, 1, -1), 1);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(fcntl(bench->context->async_fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_get_async_event(bench->context, &event), -1);
	assert_int_equal(errno, EAGAIN);
}

static void *wait_for_event(void *arg)
{
	read_event(arg);
	return arg;
}

static void sleeper_in_get_cq_event_is_woken(void **state)
{
	struct bench *bench = *state;
	pthread_t thread;
	void *result;

	assert_int_equal(ibv_req_notify_cq(bench->cq, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_event, bench), 0);
	send_to_itself(bench);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_ptr_equal(result, bench);
	ibv_ack_cq_events(bench->cq, 1);
	poll_both(bench);
}

static void extended_polling_reads_both_ends_of_a_message(void **state)
{
	struct bench *bench = *state;
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 8,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_qp_init_attr attr = { .cap = { .max_send_wr = 8, .max_recv_wr = 1 },
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(bench->context, &cq_attr);
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_recv_wr receive = { .wr_id = 1 }, *bad_receive;
	struct ibv_send_wr send = { .wr_id = 2, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 77 },
			   *bad_send;
	struct bench own = *bench;
	unsigned seen = 0;
	int error;

	assert_non_null(cq);
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
	own.qp = ibv_create_qp(bench->pd, &attr);
	assert_non_null(own.qp);
	connect_to_itself(&own);
	assert_int_equal(ibv_post_recv(own.qp, &receive, &bad_receive), 0);
	assert_int_equal(ibv_post_send(own.qp, &send, &bad_send), 0);
	while (seen != 3) {
		while ((error = ibv_start_poll(cq, &poll)))
			assert_int_equal(error, ENOENT);
		do {
			assert_int_equal(cq->status, IBV_WC_SUCCESS);
			assert_int_equal(ibv_wc_read_qp_num(cq), own.qp->qp_num);
			assert_true(ibv_wc_read_completion_ts(cq) ==
				    ibv_wc_read_completion_wallclock_ns(cq));
			seen |= (unsigned)cq->wr_id;
			if (cq->wr_id != 1)
				continue;
			assert_int_equal(ibv_wc_read_opcode(cq), IBV_WC_RECV);
			assert_true(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM);
			assert_int_equal(ibv_wc_read_imm_data(cq), 77);
			assert_int_equal(ibv_wc_read_byte_len(cq), 0);
			/* its place in the queue of one is free already */
			assert_int_equal(ibv_post_recv(own.qp, &receive, &bad_receive), 0);
		} while (!ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	assert_int_equal(ibv_destroy_qp(own.qp), 0);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

#define ON_BENCH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BENCH(one_event_for_one_arming),
		ON_BENCH(destroying_a_cq_waits_for_its_completion_events),
		ON_BENCH(unread_completion_events_go_with_the_cq),
		ON_BENCH(destroying_an_srq_waits_for_its_async_events),
		ON_BENCH(unread_async_events_go_with_the_object),
		ON_BENCH(sleeper_in_get_cq_event_is_woken),
		ON_BENCH(extended_polling_reads_both_ends_of_a_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
