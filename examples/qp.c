/* SPDX-License-Identifier: MIT */
/*
 * QP: two queue pairs on their way from RESET to RTS, what each state allows, and one message in each direction.
 * See docs/concepts/qp.md.
 *
 *     gcc -o qp qp.c -libverbs && uroce run -- ./qp
 */
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

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	check(!ibv_modify_qp(qp, attr, mask), "ibv_modify_qp");
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* Ready to receive: here it learns who the other end is. */
static void to_rtr(struct ibv_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = peer,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *gid, .hop_limit = 64 } },
		.path_mtu = IBV_MTU_1024,
		.rq_psn = 0, /* the peer's sq_psn */
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, /* 0.64 ms */
	};

	modify(qp, &attr,
	       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		       IBV_QP_MIN_RNR_TIMER);
}

/* Ready to send: how patient it is. */
static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 0,
		.timeout = 14, /* 67 ms */
		.retry_cnt = 7,
		.rnr_retry = 7, /* for ever */
		.max_rd_atomic = 1,
	};

	modify(qp, &attr,
	       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int post_send(struct ibv_qp *qp, const char *text, struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)text, (uint32_t)strlen(text) + 1, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	return ibv_post_send(qp, &wr, &bad);
}

static int post_recv(struct ibv_qp *qp, char *to, uint32_t size, struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)to, size, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

static void tell(const char *what, int error)
{
	printf("%-34s %s\n", what, error ? strerror(error) : "good");
}

int main(void)
{
	static char text[4][32] = { "a question", "an answer" };
	union ibv_gid gid;
	struct ibv_context *context = open_device(&gid);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, text, sizeof(text), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq_a = ibv_create_cq(context, 4, NULL, NULL, 0), *cq_b = ibv_create_cq(context, 4, NULL, NULL, 0);

	check(pd && mr && cq_a && cq_b, "creating");

	struct ibv_qp_init_attr attr = { .send_cq = cq_a, .recv_cq = cq_a, .qp_type = IBV_QPT_RC, .cap = { 2, 2, 1, 1, 0 } };
	struct ibv_qp *a = ibv_create_qp(pd, &attr);

	attr.send_cq = attr.recv_cq = cq_b;

	struct ibv_qp *b = ibv_create_qp(pd, &attr);

	check(a && b, "ibv_create_qp");
	tell("post a receive to A in RESET:", post_recv(a, text[2], sizeof(text[2]), mr));
	to_init(a);
	to_init(b);
	tell("post a receive to A in INIT:", post_recv(a, text[2], sizeof(text[2]), mr));
	tell("post a receive to B in INIT:", post_recv(b, text[3], sizeof(text[3]), mr));
	tell("post a send to A in INIT:", post_send(a, text[0], mr));
	to_rtr(a, b->qp_num, &gid);
	to_rtr(b, a->qp_num, &gid);
	tell("post a send to A in RTR:", post_send(a, text[0], mr));
	to_rts(a);
	to_rts(b);
	tell("post a send to A in RTS:", post_send(a, text[0], mr));
	check(next(cq_b).status == IBV_WC_SUCCESS, "receiving at B");
	printf("B received '%s'\n", text[3]);
	tell("post a send to B in RTS:", post_send(b, text[1], mr));
	/* At A two requests complete, one of each queue. */
	for (int i = 0; i < 2; i++)
		check(next(cq_a).status == IBV_WC_SUCCESS, "sending and receiving at A");
	printf("A received '%s'\n", text[2]);
	return 0;
}
