/* SPDX-License-Identifier: MIT */
/*
 * usage: counted [--pace N]
 *
 * Does a known number of operations between queue pairs of its own, says "NAME QPN" (or a handle) of what they were done with, then
 * "ready", and stays until its input ends. What it does is what stat.sh and top.sh expect to see. With --pace it
 * goes on with N WRITEs in a second instead, in tens, until it is killed.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                                 \
	do {                                                                                             \
		if (!(condition)) {                                                                      \
			fprintf(stderr, "counted: %s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                                         \
		}                                                                                        \
	} while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static _Alignas(4096) uint8_t memory[8192];
static union ibv_gid gid;

static struct ibv_qp *make_qp(enum ibv_qp_type type, struct ibv_cq *send, struct ibv_cq *receive, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = send,
		.recv_cq = receive,
		.srq = srq,
		.cap = { .max_send_wr = 32, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64 },
		.qp_type = type,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	return qp;
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer)
{
	bool datagram = qp->qp_type == IBV_QPT_UD;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = 7,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer->qp_num;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 0; /* 655 ms */
	attr.ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } };
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | (datagram ? 0 :
							IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
								IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	CHECK(!ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN |
				     (datagram ? 0 :
						 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)));
}

struct pair {
	struct ibv_qp *a, *b;
};

static struct pair make_pair(struct ibv_cq *send, struct ibv_cq *receive)
{
	struct pair pair = { make_qp(IBV_QPT_RC, send, receive, NULL), make_qp(IBV_QPT_RC, send, receive, NULL) };

	connect_to(pair.a, pair.b);
	connect_to(pair.b, pair.a);
	return pair;
}

static struct ibv_sge sge_at(uint32_t offset, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)memory + offset, .length = length, .lkey = mr->lkey };
}

static void post_recv(struct ibv_qp *qp, struct ibv_srq *srq, int count)
{
	struct ibv_sge sge = sge_at(4096, 1024);
	struct ibv_recv_wr wr = { .wr_id = 0x9e0, .sg_list = &sge, .num_sge = 1 }, *bad;

	for (int i = 0; i < count; i++, wr.wr_id++)
		CHECK(!(srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad)));
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t length, int count)
{
	struct ibv_sge sge = sge_at(0, length);
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)memory + 2048;
		wr.wr.atomic.rkey = mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)memory + 2048;
		wr.wr.rdma.rkey = mr->rkey;
	}
	for (int i = 0; i < count; i++)
		CHECK(!ibv_post_send(qp, &wr, &bad));
}

/* Takes completions one by one, as they come. */
static void take(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;

	while (count) {
		int n = ibv_poll_cq(cq, 1, &wc);

		CHECK(n >= 0);
		CHECK(!n || wc.status == IBV_WC_SUCCESS);
		count -= n;
	}
}

static void datagrams(struct ibv_cq *cq)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 1 };
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_qp *from = make_qp(IBV_QPT_UD, cq, cq, NULL), *to;
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_sge sge = sge_at(0, 64);
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	CHECK(srq && ah);
	to = make_qp(IBV_QPT_UD, cq, cq, srq);
	connect_to(from, from);
	connect_to(to, to);
	post_recv(NULL, srq, 6);
	CHECK(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = to->qp_num;
	wr.wr.ud.remote_qkey = 7;
	for (int i = 0; i < 4; i++)
		CHECK(!ibv_post_send(from, &wr, &bad));
	take(cq, 8);
	printf("datagrams 0x%06x\n", from->qp_num);
}

/* A SEND to one who never posts a receive. */
static void wait_for_ever(struct ibv_cq *cq)
{
	struct pair pair = make_pair(cq, cq);
	struct ibv_sge sges[] = { sge_at(16, 100), sge_at(512, 28) };
	struct ibv_send_wr wr = { .wr_id = 0xabcdef, .sg_list = sges, .num_sge = 2, .opcode = IBV_WR_SEND }, *bad;

	CHECK(!ibv_post_send(pair.a, &wr, &bad));
	printf("waiting 0x%06x\nabsent 0x%06x\naddress 0x%lx\nlkey 0x%08x\n", pair.a->qp_num, pair.b->qp_num,
	       (unsigned long)sges[0].addr, mr->lkey);
}

/* Room for one completion, and two. */
static void overflow(struct ibv_cq *receive)
{
	struct ibv_cq *tiny = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct pair pair;

	CHECK(tiny && tiny->cqe == 1);
	pair = make_pair(tiny, receive);
	post(pair.a, IBV_WR_RDMA_WRITE, 8, 2);
	for (enum ibv_event_type type = 0; type != IBV_EVENT_CQ_ERR;) {
		struct ibv_async_event event;

		CHECK(!ibv_get_async_event(context, &event));
		type = event.event_type;
		ibv_ack_async_event(&event);
	}
}

/* A queue that waits for solicited completions. */
static void make_armed(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = channel ? ibv_create_cq(context, 15, NULL, channel, 0) : NULL;

	CHECK(cq && !ibv_req_notify_cq(cq, 1));
}

/* A WRITE one byte beyond the region. */
static void reach_beyond(struct ibv_cq *cq)
{
	struct pair pair = make_pair(cq, cq);
	struct ibv_sge sge = sge_at(0, 8);
	struct ibv_send_wr wr = { .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .wr.rdma = { .remote_addr = (uintptr_t)memory + sizeof(memory) - 7, .rkey = mr->rkey } },
			   *bad;
	struct ibv_wc wc;
	int n;

	CHECK(!ibv_post_send(pair.a, &wr, &bad));
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	CHECK(n == 1 && wc.status == IBV_WC_REM_ACCESS_ERR);
}

static void __attribute__((noreturn)) go_on(struct ibv_qp *qp, struct ibv_cq *cq, unsigned pace)
{
	puts("ready");
	fflush(stdout);
	for (;;) {
		post(qp, IBV_WR_RDMA_WRITE, 200, 10);
		take(cq, 10);
		usleep(10 * 1000000u / pace);
	}
}

/* In a thread whose name is not the program's. */
static void *open_device(void *device)
{
	pthread_setname_np(pthread_self(), "opener");
	context = ibv_open_device(device);
	return NULL;
}

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	pthread_t opener;
	struct ibv_cq *cq, *idle;
	struct pair pair;
	char byte;

	CHECK(devices && devices[0]);
	CHECK(!pthread_create(&opener, NULL, open_device, devices[0]) && !pthread_join(opener, NULL));
	CHECK(context);
	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	mr = ibv_reg_mr(pd, memory, sizeof(memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	cq = ibv_create_cq(context, 63, NULL, NULL, 0);
	idle = ibv_create_cq(context, 63, NULL, NULL, 0);
	CHECK(mr && cq && idle);

	pair = make_pair(cq, cq);
	if (argc == 3 && !strcmp(argv[1], "--pace"))
		go_on(pair.a, cq, (unsigned)atoi(argv[2]));
	post_recv(pair.b, NULL, 10);
	post(pair.a, IBV_WR_SEND, 100, 7);
	post(pair.a, IBV_WR_RDMA_WRITE, 200, 5);
	post(pair.a, IBV_WR_RDMA_READ, 50, 3);
	post(pair.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 2);
	take(cq, 24);
	post(pair.a, IBV_WR_RDMA_WRITE, 200, 2); /* not polled */
	printf("requester 0x%06x\nresponder 0x%06x\n", pair.a->qp_num, pair.b->qp_num);
	make_armed();
	datagrams(idle);
	reach_beyond(idle);
	overflow(idle);
	wait_for_ever(idle);
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
