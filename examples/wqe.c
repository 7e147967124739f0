/* SPDX-License-Identifier: MIT */
/*
 * WQ and WQE: a send queue with four places is filled, refuses a fifth request, and gets its places back by one completion.
 * See docs/concepts/wqe.md.
 *
 *     gcc -o wqe wqe.c -libverbs && uroce run -- ./wqe
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define PLACES 4
#define SIZE   16

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
	static char sent[2 * PLACES][SIZE], received[2 * PLACES][SIZE];
	union ibv_gid gid;
	struct ibv_context *context = open_device(&gid);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *send_cq = ibv_create_cq(context, PLACES, NULL, NULL, 0);
	struct ibv_cq *recv_cq = ibv_create_cq(context, 2 * PLACES, NULL, NULL, 0);
	struct ibv_mr *sent_mr = ibv_reg_mr(pd, sent, sizeof(sent), 0);
	struct ibv_mr *received_mr = ibv_reg_mr(pd, received, sizeof(received), IBV_ACCESS_LOCAL_WRITE);

	check(pd && send_cq && recv_cq && sent_mr && received_mr, "creating");

	/* Each queue pair has two work queues; their sizes are asked for here. */
	struct ibv_qp_init_attr attr = {
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = PLACES, .max_recv_wr = 2 * PLACES, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *sender = ibv_create_qp(pd, &attr), *receiver = ibv_create_qp(pd, &attr);

	check(sender && receiver, "ibv_create_qp");
	printf("a send queue with %u places, a receive queue with %u\n", attr.cap.max_send_wr, attr.cap.max_recv_wr);
	connect_to(sender, receiver->qp_num, &gid);
	connect_to(receiver, sender->qp_num, &gid);

	for (uint64_t i = 0; i < 2 * PLACES; i++) {
		struct ibv_sge sge = { (uintptr_t)received[i], SIZE, received_mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

		check(!ibv_post_recv(receiver, &wr, &bad), "ibv_post_recv");
	}

	/* One struct for all requests: posting copies it into a WQE. The buffer that it names is not copied, so each has its own. */
	for (uint64_t i = 0; i < 2 * PLACES;) {
		snprintf(sent[i], SIZE, "message %d", (int)i);

		struct ibv_sge sge = { (uintptr_t)sent[i], SIZE, sent_mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

		/* Only every fourth request asks for a completion. */
		if (i % PLACES == PLACES - 1)
			wr.send_flags = IBV_SEND_SIGNALED;

		int error = ibv_post_send(sender, &wr, &bad);

		if (!error) {
			printf("posted wr_id %d\n", (int)i++);
			continue;
		}
		printf("refused wr_id %d: %s; bad_wr is wr_id %d\n", (int)i, strerror(error), (int)bad->wr_id);
		printf("polled the completion of wr_id %d, and posted again\n", (int)next(send_cq).wr_id);
	}
	for (int i = 0; i < 2 * PLACES; i++) {
		int id = (int)next(recv_cq).wr_id;

		printf("receive %d holds '%s'\n", id, received[id]);
	}
	return 0;
}
