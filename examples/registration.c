/* SPDX-License-Identifier: MIT */
/*
 * Memory registration: five ways to get the same status from the other end's memory.
 * See docs/concepts/troubleshooting.md.
 *
 *     gcc -o registration registration.c -libverbs && uroce run -- ./registration
 */
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
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
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

static union ibv_gid gid;
static struct ibv_pd *pd;
static struct ibv_mr *from_mr;
static char from[SIZE], to[SIZE];

/* Writes over a connection of its own: an error ends a queue pair. */
static void write_to(const char *mistake, uint64_t address, uint32_t rkey, uint32_t length)
{
	struct ibv_cq *cq = ibv_create_cq(pd->context, 2, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *here = ibv_create_qp(pd, &attr), *there = ibv_create_qp(pd, &attr);
	struct ibv_sge sge = { (uintptr_t)from, length, from_mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { address, rkey } },
			   *bad;
	struct ibv_wc wc;

	check(cq && here && there, "creating");
	connect_to(here, there->qp_num, &gid);
	connect_to(there, here->qp_num, &gid);
	check(!ibv_post_send(here, &wr, &bad), "ibv_post_send");
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	printf("%-36s %s\n", mistake, ibv_wc_status_str(wc.status));
	check(!ibv_destroy_qp(here) && !ibv_destroy_qp(there) && !ibv_destroy_cq(cq), "destroying");
}

int main(void)
{
	struct ibv_context *context = open_device(&gid);
	struct ibv_pd *other_pd = ibv_alloc_pd(context);

	pd = ibv_alloc_pd(context);
	from_mr = pd ? ibv_reg_mr(pd, from, SIZE, 0) : NULL;
	check(other_pd && from_mr, "creating");

	const int right = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_mr *mr = ibv_reg_mr(pd, to, SIZE, right), *no_right = ibv_reg_mr(pd, to, SIZE, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *others = ibv_reg_mr(other_pd, to, SIZE, right);

	check(mr && no_right && others, "ibv_reg_mr");
	write_to("no mistake:", (uintptr_t)to, mr->rkey, SIZE);
	write_to("its lkey instead of its rkey:", (uintptr_t)to, mr->lkey, SIZE);
	write_to("one byte too far:", (uintptr_t)to + 1, mr->rkey, SIZE);
	write_to("registered without REMOTE_WRITE:", (uintptr_t)to, no_right->rkey, SIZE);
	write_to("registered in another PD:", (uintptr_t)to, others->rkey, SIZE);

	uint32_t old_rkey = mr->rkey;

	check(!ibv_dereg_mr(mr) && (mr = ibv_reg_mr(pd, to, SIZE, right)), "registering anew");
	write_to("the rkey of an earlier registration:", (uintptr_t)to, old_rkey, SIZE);
	write_to("no mistake:", (uintptr_t)to, mr->rkey, SIZE);
	return 0;
}
