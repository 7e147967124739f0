/* SPDX-License-Identifier: MIT */
/*
 * One-sided operations: a process writes, reads and counts in the memory of another, which sleeps meanwhile.
 * See docs/concepts/one-sided.md.
 *
 *     gcc -o one_sided one_sided.c -libverbs && uroce run -- ./one_sided
 */
#include <inttypes.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* What each end tells the other beforehand, by some other way; here a socket. */
struct card {
	uint32_t qp_num, rkey;
	uint64_t address;
};

/* What lies in the memory of each. */
struct table {
	uint64_t counter;
	char text[56];
};

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
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL };
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

/* Posts one operation and waits for its completion. */
static void perform(struct ibv_qp *qp, struct ibv_send_wr wr, void *local, uint32_t length, struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)local, length, mr->lkey };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int got;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	check(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
	while (!(got = ibv_poll_cq(qp->send_cq, 1, &wc)))
		;
	check(got == 1 && wc.status == IBV_WC_SUCCESS, "a completion");
}

int main(void)
{
	static struct table table, mine;
	struct card card, peer;
	union ibv_gid gid;
	struct ibv_wc wc;
	int way[2];
	char word;

	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, way), "socketpair");

	pid_t sleeper = fork(); /* before the device is opened: each opens it for itself */
	int out = way[sleeper ? 0 : 1];
	struct ibv_context *context = open_device(&gid);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *table_mr = ibv_reg_mr(pd, &table, sizeof(table), ALL);
	struct ibv_mr *mine_mr = ibv_reg_mr(pd, &mine, sizeof(mine), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 4, 1, 1, 1, 0 } };
	struct ibv_qp *qp = pd && cq ? ibv_create_qp(pd, &attr) : NULL;

	check(table_mr && mine_mr && qp, "creating");
	strcpy(table.text, "laid by its owner");
	table.counter = 41;
	card = (struct card){ qp->qp_num, table_mr->rkey, (uintptr_t)&table };
	check(write(out, &card, sizeof(card)) == sizeof(card) && read(out, &peer, sizeof(peer)) == sizeof(peer), "cards");
	connect_to(qp, peer.qp_num, &gid);
	check(write(out, "c", 1) == 1 && read(out, &word, 1) == 1, "both are connected");

	if (!sleeper) {
		/* Sleeps in read() until the other says that it is done. No receive is posted, nothing polled. */
		check(read(out, &word, 1) == 1, "waking");
		printf("the sleeper finds: '%s', counter %" PRIu64 "; completions: %d\n", table.text, table.counter,
		       ibv_poll_cq(cq, 1, &wc));
		return 0;
	}

	struct ibv_send_wr read_all = { .opcode = IBV_WR_RDMA_READ, .wr.rdma = { peer.address, peer.rkey } };

	perform(qp, read_all, &mine, sizeof(mine), mine_mr);
	printf("READ: '%s', counter %" PRIu64 "\n", mine.text, mine.counter);

	struct ibv_send_wr write_text = { .opcode = IBV_WR_RDMA_WRITE,
					  .wr.rdma = { peer.address + offsetof(struct table, text), peer.rkey } };

	strcpy(mine.text, "laid by a stranger");
	perform(qp, write_text, mine.text, sizeof(mine.text), mine_mr);
	printf("WRITE: done\n");

	struct ibv_send_wr add = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				   .wr.atomic = { .remote_addr = peer.address, .compare_add = 1, .rkey = peer.rkey } };

	perform(qp, add, &mine.counter, sizeof(mine.counter), mine_mr);
	printf("FETCH_AND_ADD of 1: the counter was %" PRIu64 "\n", mine.counter);
	fflush(stdout);
	check(write(out, "d", 1) == 1 && waitpid(sleeper, NULL, 0) == sleeper, "the end");
	return 0;
}
