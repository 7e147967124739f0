/* SPDX-License-Identifier: MIT */
/*
 * MR: what a registration gives, and what the device says to memory one byte beyond it.
 * See docs/concepts/mr.md.
 *
 *     gcc -o mr mr.c -libverbs && uroce run -- ./mr
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define SIZE 4096

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

int main(void)
{
	char *order = calloc(1, SIZE), *plate = calloc(1, SIZE);
	union ibv_gid gid;
	struct ibv_context *context = open_device(&gid);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);

	check(order && plate && pd && cq, "creating");

	/* Ordinary memory, of any address and length. What is only read needs no right. */
	struct ibv_mr *order_mr = ibv_reg_mr(pd, order, SIZE, 0);
	struct ibv_mr *plate_mr = ibv_reg_mr(pd, plate, SIZE, IBV_ACCESS_LOCAL_WRITE);

	check(order_mr && plate_mr, "ibv_reg_mr");
	printf("registered %zu bytes: the memory stays where it is: %s; lkey and rkey are two numbers: %s\n", order_mr->length,
	       order_mr->addr == order ? "yes" : "no", order_mr->lkey != order_mr->rkey ? "yes" : "no");

	/* A right that others have and the owner has not. */
	if (!ibv_reg_mr(pd, plate, SIZE, IBV_ACCESS_REMOTE_WRITE))
		printf("REMOTE_WRITE without LOCAL_WRITE: %s\n", strerror(errno));

	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 2, 2, 1, 1, 0 }, .sq_sig_all = 1
	};
	struct ibv_qp *sender = ibv_create_qp(pd, &attr), *receiver = ibv_create_qp(pd, &attr);

	check(sender && receiver, "ibv_create_qp");
	connect_to(sender, receiver->qp_num, &gid);
	connect_to(receiver, sender->qp_num, &gid);

	/* The last 96 bytes of the region, then as many one byte further on. */
	for (int beyond = 0; beyond < 2; beyond++) {
		struct ibv_sge to = { (uintptr_t)plate, SIZE, plate_mr->lkey };
		struct ibv_recv_wr receive = { .wr_id = 7, .sg_list = &to, .num_sge = 1 }, *bad_receive;
		struct ibv_sge from = { (uintptr_t)order + SIZE - 96 + (unsigned)beyond, 96, order_mr->lkey };
		struct ibv_send_wr send = { .wr_id = 8, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
		struct ibv_wc wc;

		check(!ibv_post_recv(receiver, &receive, &bad_receive), "ibv_post_recv");
		check(!ibv_post_send(sender, &send, &bad_send), "ibv_post_send");
		/* In the CQ of both ends the receive has a completion too; it may come first. */
		while ((wc = next(cq)).wr_id != 8)
			;
		printf("96 bytes from byte %d on: %s\n", SIZE - 96 + beyond, ibv_wc_status_str(wc.status));
	}

	/* Who still uses the memory must be done before this. */
	check(!ibv_destroy_qp(sender) && !ibv_destroy_qp(receiver), "ibv_destroy_qp");
	check(!ibv_dereg_mr(order_mr) && !ibv_dereg_mr(plate_mr), "ibv_dereg_mr");
	free(order);
	free(plate);
	return 0;
}
