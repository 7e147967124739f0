/* SPDX-License-Identifier: MIT */
/*
 * CQ and CQE: what completions say, which requests have one, and what is flushed when a queue pair ends.
 * See docs/concepts/cqe.md.
 *
 *     gcc -o cqe cqe.c -libverbs && uroce run -- ./cqe
 */
#include <arpa/inet.h>
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

/* Polls until there are `count` completions, and prints them. */
static void print_completions(const char *name, struct ibv_cq *cq, int count)
{
	struct ibv_wc wc[8];

	while (count) {
		int got = ibv_poll_cq(cq, 8, wc); /* as many as there are, 8 at most */

		check(got >= 0, "ibv_poll_cq");
		for (int i = 0; i < got; i++, count--) {
			printf("%s: wr_id %d, %s", name, (int)wc[i].wr_id, ibv_wc_status_str(wc[i].status));
			/* The rest of an error's completion has no meaning. */
			if (wc[i].status == IBV_WC_SUCCESS && wc[i].opcode == IBV_WC_RECV)
				printf(", IBV_WC_RECV, %u bytes", wc[i].byte_len);
			else if (wc[i].status == IBV_WC_SUCCESS)
				printf(", IBV_WC_SEND");
			if (wc[i].status == IBV_WC_SUCCESS && (wc[i].wc_flags & IBV_WC_WITH_IMM))
				printf(", immediate data %u", ntohl(wc[i].imm_data));
			printf("\n");
		}
	}
}

int main(void)
{
	static char sent[64], received[6][64];
	union ibv_gid gid;
	struct ibv_context *context = open_device(&gid);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *sent_mr = ibv_reg_mr(pd, sent, sizeof(sent), 0);
	struct ibv_mr *received_mr = ibv_reg_mr(pd, received, sizeof(received), IBV_ACCESS_LOCAL_WRITE);
	/* Deep enough for all that can complete in them: three sends, two receive queues of six. */
	struct ibv_cq *send_cq = ibv_create_cq(context, 6, NULL, NULL, 0), *recv_cq = ibv_create_cq(context, 12, NULL, NULL, 0);

	check(pd && sent_mr && received_mr && send_cq && recv_cq, "creating");

	/* sq_sig_all is 0: a send has a completion only if it asks for one, or fails. */
	struct ibv_qp_init_attr attr = { .send_cq = send_cq, .recv_cq = recv_cq, .qp_type = IBV_QPT_RC, .cap = { 3, 6, 1, 1, 0 } };
	struct ibv_qp *sender = ibv_create_qp(pd, &attr), *receiver = ibv_create_qp(pd, &attr);

	check(sender && receiver, "ibv_create_qp");
	connect_to(sender, receiver->qp_num, &gid);
	connect_to(receiver, sender->qp_num, &gid);
	for (uint64_t i = 0; i < 6; i++) {
		struct ibv_sge sge = { (uintptr_t)received[i], sizeof(received[i]), received_mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = 100 + i, .sg_list = &sge, .num_sge = 1 }, *bad;

		check(!ibv_post_recv(receiver, &wr, &bad), "ibv_post_recv");
	}
	for (uint64_t i = 0; i < 3; i++) {
		struct ibv_sge sge = { (uintptr_t)sent, 10 * (uint32_t)i + 10, sent_mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

		if (i == 1) {
			wr.opcode = IBV_WR_SEND_WITH_IMM;
			wr.imm_data = htonl(4711);
		}
		if (i == 2)
			wr.send_flags = IBV_SEND_SIGNALED;
		check(!ibv_post_send(sender, &wr, &bad), "ibv_post_send");
	}
	print_completions("send CQ", send_cq, 1);
	print_completions("receive CQ", recv_cq, 3);

	/* Three receives are left. ERR ends the queue pair, and each of them with a completion. */
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;

	check(!ibv_modify_qp(receiver, &error, IBV_QP_STATE), "ERR");
	print_completions("receive CQ", recv_cq, 3);
	printf("both are empty now: %d, %d\n", ibv_poll_cq(send_cq, 1, &wc), ibv_poll_cq(recv_cq, 1, &wc));
	return 0;
}
