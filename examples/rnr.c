/* SPDX-License-Identifier: MIT */
/*
 * Receiver not ready: a SEND that finds no receive, with little patience, with much, and with a timer of 0.
 * See docs/concepts/troubleshooting.md.
 *
 *     gcc -o rnr rnr.c -libverbs && uroce run -- ./rnr
 */
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
static void connect_to(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid, uint8_t rnr_retry, uint8_t timer)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 0 };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = peer,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = timer,
				   .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid, .hop_limit = 64 } } };
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = rnr_retry, .max_rd_atomic = 1
	};

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

static double now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* Sends to a receiver that posts its receive only after `late` ms; never if that is 0. */
static void send_to_late_receiver(struct ibv_pd *pd, const union ibv_gid *gid, uint8_t rnr_retry, uint8_t timer, unsigned late)
{
	static char text[2][8] = { "soup" };
	struct ibv_mr *mr = ibv_reg_mr(pd, text, sizeof(text), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = ibv_create_cq(pd->context, 4, NULL, NULL, 0), *recv_cq = ibv_create_cq(pd->context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = recv_cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *sender = ibv_create_qp(pd, &attr), *receiver = ibv_create_qp(pd, &attr);

	check(mr && cq && recv_cq && sender && receiver, "creating");
	connect_to(sender, receiver->qp_num, gid, rnr_retry, 12);
	connect_to(receiver, sender->qp_num, gid, 7, timer);

	struct ibv_sge from = { (uintptr_t)text[0], 8, mr->lkey }, to = { (uintptr_t)text[1], 8, mr->lkey };
	struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_receive;
	double begun = now_ms();
	bool posted = !late;
	struct ibv_wc wc;

	check(!ibv_post_send(sender, &send, &bad), "ibv_post_send");
	while (!ibv_poll_cq(cq, 1, &wc))
		if (!posted && now_ms() - begun >= late) {
			check(!ibv_post_recv(receiver, &receive, &bad_receive), "ibv_post_recv");
			posted = true;
		}
	printf("rnr_retry %u, min_rnr_timer %u, receive ", rnr_retry, timer);
	if (late)
		printf("%u ms late: ", late);
	else
		printf("never posted: ");
	printf("%s after %.1f ms\n", ibv_wc_status_str(wc.status), now_ms() - begun);
}

int main(void)
{
	union ibv_gid gid;
	struct ibv_pd *pd = ibv_alloc_pd(open_device(&gid));

	check(pd, "ibv_alloc_pd");
	send_to_late_receiver(pd, &gid, 3, 12, 0);
	send_to_late_receiver(pd, &gid, 7, 12, 20);
	send_to_late_receiver(pd, &gid, 7, 0, 20);
	return 0;
}
