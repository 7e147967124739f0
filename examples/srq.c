/* SPDX-License-Identifier: MIT */
/*
 * SRQ: three connections of a server take their receives from one queue, which says when it runs low.
 * See docs/concepts/srq.md.
 *
 *     gcc -o srq srq.c -libverbs && uroce run -- ./srq
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define CLIENTS	 3
#define RECEIVES 6
#define LOW	 3
#define SIZE	 32

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

static void post_receive(struct ibv_srq *srq, uint64_t id, char (*buffers)[SIZE], struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)buffers[id], SIZE, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	check(!ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
}

int main(void)
{
	static char sent[SIZE], received[RECEIVES][SIZE];
	union ibv_gid gid;
	struct ibv_context *context = open_device(&gid);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *sent_mr = ibv_reg_mr(pd, sent, sizeof(sent), 0);
	struct ibv_mr *received_mr = ibv_reg_mr(pd, received, sizeof(received), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *client_cq = ibv_create_cq(context, CLIENTS, NULL, NULL, 0);
	struct ibv_cq *server_cq = ibv_create_cq(context, RECEIVES + CLIENTS, NULL, NULL, 0);
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = RECEIVES, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);

	check(pd && sent_mr && received_mr && client_cq && server_cq && srq, "creating");

	struct ibv_qp_init_attr attr = {
		.send_cq = client_cq, .recv_cq = client_cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 }, .sq_sig_all = 1
	};
	struct ibv_qp *client[CLIENTS], *server[CLIENTS];

	for (int i = 0; i < CLIENTS; i++)
		client[i] = ibv_create_qp(pd, &attr);
	/* The server's queue pairs have no receive queue of their own. */
	attr.srq = srq;
	attr.send_cq = attr.recv_cq = server_cq;
	for (int i = 0; i < CLIENTS; i++) {
		server[i] = ibv_create_qp(pd, &attr);
		check(client[i] && server[i], "ibv_create_qp");
		connect_to(server[i], client[i]->qp_num, &gid);
		connect_to(client[i], server[i]->qp_num, &gid);
	}
	for (uint64_t i = 0; i < RECEIVES; i++)
		post_receive(srq, i, received, received_mr);

	/* Wake me when fewer than this are left. */
	struct ibv_srq_attr limit = { .srq_limit = LOW };

	check(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), "ibv_modify_srq");

	/* Client 0 talks much, client 1 little, client 2 not at all. */
	const int talk[] = { 0, 0, 1, 0 };

	for (int i = 0; i < 4; i++) {
		struct ibv_sge sge = { (uintptr_t)sent, SIZE, sent_mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
		int from = 0;

		snprintf(sent, SIZE, "message %d of client %d", i, talk[i]);
		check(!ibv_post_send(client[talk[i]], &wr, &bad), "ibv_post_send");
		check(next(client_cq).status == IBV_WC_SUCCESS, "sending");

		struct ibv_wc wc = next(server_cq);

		check(wc.status == IBV_WC_SUCCESS, "receiving");
		/* Only qp_num tells whose message it is: the receives are anybody's. */
		while (server[from]->qp_num != wc.qp_num)
			from++;
		printf("receive %d went to the connection with client %d: '%s'\n", (int)wc.wr_id, from, received[wc.wr_id]);
	}

	struct ibv_async_event event;

	check(!ibv_get_async_event(context, &event), "ibv_get_async_event");
	printf("event: %s\n", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
	check(!ibv_query_srq(srq, &limit), "ibv_query_srq");
	printf("the limit is %u now: it comes once, and is set anew after new receives were posted\n", limit.srq_limit);
	for (uint64_t i = 0; i < 4; i++)
		post_receive(srq, i, received, received_mr);
	limit.srq_limit = LOW;
	check(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), "ibv_modify_srq");
	return 0;
}
