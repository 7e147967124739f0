/* SPDX-License-Identifier: MIT */
/*
 * Completion by polling and by event: what waiting costs, and an event that never comes.
 * See docs/concepts/completion.md.
 *
 *     gcc -o completion completion.c -libverbs && uroce run -- ./completion
 */
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "failed: %s\n", what);
	exit(1);
}

/* The first device that there is. */
static struct ibv_context *open_device(union ibv_gid *gid)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;

	check(context && !ibv_query_gid(context, 1, 0, gid), "opening a device");
	ibv_free_device_list(list);
	return context;
}

/* Takes a queue pair from RESET to RTS, connected to queue pair number `peer` at the same address. */
static void connect_to(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 0 };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = peer,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 12,
				   .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid, .hop_limit = 64 } } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	check(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	check(!ibv_modify_qp(qp, &rtr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	      "RTR");
	check(!ibv_modify_qp(qp, &rts,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC),
	      "RTS");
}

static char text[2][16] = { "ding" };
static struct ibv_qp *sender, *receiver;
static struct ibv_mr *mr;

static double now_ms(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void post_receive(void)
{
	struct ibv_sge sge = { (uintptr_t)text[1], sizeof(text[1]), mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	check(!ibv_post_recv(receiver, &wr, &bad), "ibv_post_recv");
}

static void send_message(void)
{
	struct ibv_sge sge = { (uintptr_t)text[0], sizeof(text[0]), mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	check(!ibv_post_send(sender, &wr, &bad), "ibv_post_send");
	while (!ibv_poll_cq(sender->send_cq, 1, &wc))
		;
	check(wc.status == IBV_WC_SUCCESS, "sending");
}

static void *send_later(void *unused)
{
	usleep(50000);
	send_message();
	return unused;
}

static void wait_by_polling(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		;
}

static void wait_by_event(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	struct ibv_cq *whose;
	void *context;

	for (;;) {
		check(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq"); /* from now on a completion is an event */
		if (ibv_poll_cq(cq, 1, &wc))			       /* what came before is not */
			return;
		check(!ibv_get_cq_event(cq->channel, &whose, &context), "ibv_get_cq_event"); /* sleeps */
		ibv_ack_cq_events(whose, 1);
	}
}

static void measure(const char *name, void (*wait)(struct ibv_cq *), struct ibv_cq *cq)
{
	double begun = now_ms(CLOCK_MONOTONIC), used = now_ms(CLOCK_THREAD_CPUTIME_ID);
	pthread_t thread;

	post_receive();
	check(!pthread_create(&thread, NULL, send_later, NULL), "pthread_create");
	wait(cq);
	printf("%s: waited %.1f ms, used %.1f ms of the processor\n", name, now_ms(CLOCK_MONOTONIC) - begun,
	       now_ms(CLOCK_THREAD_CPUTIME_ID) - used);
	pthread_join(thread, NULL);
}

int main(void)
{
	union ibv_gid gid;
	struct ibv_context *context = open_device(&gid);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = channel ? ibv_create_cq(context, 4, NULL, channel, 0) : NULL; /* its events go to the channel */
	struct ibv_cq *send_cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = send_cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 2, 2, 1, 1, 0 } };
	struct ibv_wc wc;

	check(pd && cq && send_cq, "creating");
	mr = ibv_reg_mr(pd, text, sizeof(text), IBV_ACCESS_LOCAL_WRITE);
	sender = ibv_create_qp(pd, &attr);
	receiver = ibv_create_qp(pd, &attr);
	check(mr && sender && receiver, "creating");
	connect_to(sender, receiver->qp_num, &gid);
	connect_to(receiver, sender->qp_num, &gid);

	measure("polling", wait_by_polling, cq);
	/* The mistake: a completion comes between the last poll and the arming, and is not looked for again. */
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };

	post_receive();
	printf("the last poll finds %d completions\n", ibv_poll_cq(cq, 1, &wc));
	send_message();
	check(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
	printf("armed; events within 200 ms: %d\n", poll(&fd, 1, 200));
	printf("one more poll finds %d completion\n", ibv_poll_cq(cq, 1, &wc));

	/* Armed, looked again, and only then asleep. */
	measure("event", wait_by_event, cq);
	return 0;
}
