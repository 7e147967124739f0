/* SPDX-License-Identifier: MIT */
/*
 * SEND and RECV: each message takes the oldest receive, whole, and both ends get a completion; then a receive that is too short.
 * See docs/concepts/send-recv.md.
 *
 *     gcc -o send_recv send_recv.c -libverbs && uroce run -- ./send_recv
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define SIZE 64

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

static void post_receive(struct ibv_qp *qp, uint64_t id, char *to, uint32_t length, struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)to, length, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	check(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

static void post_send(struct ibv_qp *qp, uint64_t id, const char *from, uint32_t length, struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)from, length, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	check(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

int main(void)
{
	static char sent[3][SIZE] = { "soup", "a longer order: noodles with vegetables", "tea" }, received[4][SIZE];
	union ibv_gid gid;
	struct ibv_context *context = open_device(&gid);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *sent_mr = ibv_reg_mr(pd, sent, sizeof(sent), 0);
	struct ibv_mr *received_mr = ibv_reg_mr(pd, received, sizeof(received), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *sender_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_cq *receiver_cq = ibv_create_cq(context, 8, NULL, NULL, 0);

	check(pd && sent_mr && received_mr && sender_cq && receiver_cq, "creating");

	struct ibv_qp_init_attr attr = {
		.send_cq = sender_cq, .recv_cq = sender_cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 }
	};
	struct ibv_qp *sender = ibv_create_qp(pd, &attr);

	attr.send_cq = attr.recv_cq = receiver_cq;

	struct ibv_qp *receiver = ibv_create_qp(pd, &attr);

	check(sender && receiver, "ibv_create_qp");
	connect_to(sender, receiver->qp_num, &gid);
	connect_to(receiver, sender->qp_num, &gid);

	/* First the receiver: memory for three messages, and a short one for the fourth. */
	for (uint64_t i = 0; i < 4; i++)
		post_receive(receiver, i, received[i], i < 3 ? SIZE : 8, received_mr);

	/* Then the sender. It names neither address nor receive at the other end. */
	for (uint64_t i = 0; i < 3; i++)
		post_send(sender, i, sent[i], (uint32_t)strlen(sent[i]) + 1, sent_mr);

	for (int i = 0; i < 3; i++) {
		struct ibv_wc wc = next(receiver_cq);

		check(wc.status == IBV_WC_SUCCESS, "receiving");
		printf("receive %d of %d bytes took a message of %u: '%s'\n", (int)wc.wr_id, SIZE, wc.byte_len, received[wc.wr_id]);
	}
	for (int i = 0; i < 3; i++)
		printf("send %d: %s\n", i, ibv_wc_status_str(next(sender_cq).status));

	/* The mistake: 40 bytes for a receive of 8. */
	post_send(sender, 3, sent[1], 40, sent_mr);
	printf("send 3: %s\n", ibv_wc_status_str(next(sender_cq).status));
	printf("receive 3: %s\n", ibv_wc_status_str(next(receiver_cq).status));
	return 0;
}
