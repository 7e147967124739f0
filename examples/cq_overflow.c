/* SPDX-License-Identifier: MIT */
/*
 * CQ overflow: more completions than a CQ has entries, and who gets to know of it.
 * See docs/concepts/troubleshooting.md.
 *
 *     gcc -o cq_overflow cq_overflow.c -libverbs && uroce run -- ./cq_overflow
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define RECEIVES 16

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

/* Polls until there is a completion. */
static struct ibv_wc next(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int got;

	while (!(got = ibv_poll_cq(cq, 1, &wc)))
		;
	check(got == 1, "ibv_poll_cq");
	return wc;
}

static enum ibv_wc_status send_one(struct ibv_qp *qp, char *text, struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)text, 8, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	check(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
	return next(qp->send_cq).status;
}

int main(void)
{
	static char text[2][8] = { "soup" };
	union ibv_gid gid;
	struct ibv_context *context = open_device(&gid);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, text, sizeof(text), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *send_cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	/* The mistake: four entries, for a receive queue of sixteen. */
	struct ibv_cq *recv_cq = ibv_create_cq(context, 4, NULL, NULL, 0);

	check(pd && mr && send_cq && recv_cq, "creating");

	struct ibv_qp_init_attr attr = { .send_cq = send_cq, .recv_cq = send_cq, .qp_type = IBV_QPT_RC, .cap = { 4, 1, 1, 1, 0 } };
	struct ibv_qp *sender = ibv_create_qp(pd, &attr);

	attr.recv_cq = recv_cq;
	attr.cap.max_recv_wr = RECEIVES;

	struct ibv_qp *receiver = ibv_create_qp(pd, &attr);

	check(sender && receiver, "ibv_create_qp");
	connect_to(sender, receiver->qp_num, &gid);
	connect_to(receiver, sender->qp_num, &gid);
	for (int i = 0; i < RECEIVES; i++) {
		struct ibv_sge sge = { (uintptr_t)text[1], 8, mr->lkey };
		struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

		check(!ibv_post_recv(receiver, &wr, &bad), "ibv_post_recv");
	}

	/* The sender polls as it should, the receiver does not. */
	for (int i = 0; i < recv_cq->cqe + 1; i++)
		check(send_one(sender, text[0], mr) == IBV_WC_SUCCESS, "sending");
	printf("a CQ of %d entries, and %d messages that were received: every send succeeded\n", recv_cq->cqe, recv_cq->cqe + 1);

	struct ibv_async_event event = { .event_type = IBV_EVENT_COMM_EST };
	struct ibv_qp_attr state;
	struct ibv_wc wc;
	int left = 0;

	while (event.event_type != IBV_EVENT_CQ_ERR) {
		check(!ibv_get_async_event(context, &event), "ibv_get_async_event"); /* waits for one */
		ibv_ack_async_event(&event);
	}
	printf("event: %s\n", ibv_event_type_str(event.event_type));
	do /* its queue pairs follow */
		check(!ibv_query_qp(receiver, &state, IBV_QP_STATE, &attr), "ibv_query_qp");
	while (state.qp_state != IBV_QPS_ERR);
	printf("the receiver is in ERR\n");
	while (ibv_poll_cq(recv_cq, 1, &wc) > 0)
		left++;
	printf("completions left to poll: %d\n", left);
	printf("the next send: %s\n", ibv_wc_status_str(send_one(sender, text[0], mr)));
	return 0;
}
