/* SPDX-License-Identifier: MIT */
/*
 * A program that makes the mistake that its argument names, on two connected queue pairs, and prints its own numbers: one line
 * "name=value" each, for the test to look for in what is said about it. "none" makes no mistake.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "mistakes.h"

#define LENGTH 8192u
#define ALL    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct ibv_context *context;
static struct ibv_pd *pd, *other_pd;
static struct ibv_cq *cq, *receive_cq;
static struct ibv_qp *a, *b;
static struct ibv_srq *srq; /* of the receives, or NULL */
static bool receive_cq_is_cq;
static struct ibv_mr *mr, *remote;
static uint8_t *memory, *remote_memory;
static union ibv_gid gid;

/* What the cases change. */
static struct {
	uint32_t depth, receives, sges, inline_bytes;
	int cqe, receive_cqe;
	uint8_t rnr_retry, min_rnr_timer, timeout, retry_cnt, max_rd_atomic;
	enum ibv_mtu mtu_a, mtu_b;
	bool b_stays_in_init, b_has_other_gid, has_channel;
	uint32_t dest_qpn; /* of a; 0: b's */
	uint32_t sq_psn;   /* of both; the other end expects 0 */
	unsigned b_access;
} with = { .depth = 16,
	   .receives = 16,
	   .sges = 2,
	   .inline_bytes = 64,
	   .cqe = 256,
	   .receive_cqe = 256,
	   .rnr_retry = 1,
	   .min_rnr_timer = 1,
	   .timeout = 1,
	   .retry_cnt = 1,
	   .max_rd_atomic = 1,
	   .mtu_a = IBV_MTU_1024,
	   .mtu_b = IBV_MTU_1024,
	   .b_access = ALL };

void must(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stdout, "FAILED: %s: %s\n", what, strerror(errno));
	exit(99);
}

void say(const char *name, uint64_t value)
{
	printf("%s=0x%" PRIx64 "\n", name, value);
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (getenv("UROCE_TRANSPORT")) /* an answer takes its time */
		with.timeout = 18;
	must(list && *list, "ibv_get_device_list");
	context = ibv_open_device(*list);
	must(context, "ibv_open_device");
	ibv_free_device_list(list);
	must(!ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");
	pd = ibv_alloc_pd(context);
	other_pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, with.cqe, NULL, with.has_channel ? ibv_create_comp_channel(context) : NULL, 0);
	receive_cq = receive_cq_is_cq ? cq : ibv_create_cq(context, with.receive_cqe, NULL, NULL, 0);
	memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	remote_memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(pd && other_pd && cq && receive_cq, "creating");
	mr = ibv_reg_mr(pd, memory, LENGTH, ALL);
	remote = ibv_reg_mr(pd, remote_memory, LENGTH, ALL);
	must(mr && remote, "ibv_reg_mr");
}

static struct ibv_qp *make_qp(void)
{
	struct ibv_qp_init_attr attr = { .send_cq = cq,
					 .recv_cq = receive_cq,
					 .srq = srq,
					 .qp_type = IBV_QPT_RC,
					 .cap = { with.depth, with.receives, with.sges, 2, with.inline_bytes } };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = with.b_access };

	must(qp, "ibv_create_qp");
	must(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	return qp;
}

static void connect_to(struct ibv_qp *qp, uint32_t dest, const union ibv_gid *dgid, enum ibv_mtu mtu)
{
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR,
				   .path_mtu = mtu,
				   .dest_qp_num = dest,
				   .rq_psn = 0,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = with.min_rnr_timer,
				   .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = *dgid, .hop_limit = 1 } } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS,
				   .timeout = with.timeout,
				   .retry_cnt = with.retry_cnt,
				   .sq_psn = with.sq_psn,
				   .rnr_retry = with.rnr_retry,
				   .max_rd_atomic = with.max_rd_atomic };

	must(!ibv_modify_qp(qp, &rtr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     "RTR");
	must(!ibv_modify_qp(qp, &rts,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	     "RTS");
}

static void connect_both(void)
{
	union ibv_gid nobody = gid;

	open_device();
	a = make_qp();
	b = make_qp();
	nobody.raw[15] ^= 0x55;
	connect_to(a, with.dest_qpn ? with.dest_qpn : b->qp_num, &gid, with.mtu_a);
	if (!with.b_stays_in_init)
		connect_to(b, a->qp_num, with.b_has_other_gid ? &nobody : &gid, with.mtu_b);
	say("a", a->qp_num);
	say("b", b->qp_num);
}

static int post_wr(enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge sge, uint64_t address, uint32_t rkey, unsigned flags)
{
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags }, *bad;

	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(a, &wr, &bad);
}

static int post(enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge sge, uint64_t address, uint32_t rkey)
{
	return post_wr(opcode, id, sge, address, rkey, IBV_SEND_SIGNALED);
}

static struct ibv_sge sge_of(uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)memory, length, mr->lkey };
}

static void post_receive(struct ibv_sge sge)
{
	struct ibv_recv_wr wr = { .wr_id = 77, .sg_list = &sge, .num_sge = 1 }, *bad;

	must(!ibv_post_recv(b, &wr, &bad), "ibv_post_recv");
}

static struct ibv_sge receive_sge(void)
{
	return (struct ibv_sge){ (uintptr_t)remote_memory, LENGTH, remote->lkey };
}

static struct ibv_wc next(void)
{
	struct timespec moment = { .tv_nsec = 100000 };
	struct ibv_wc wc;

	for (int i = 0; i < 100000; i++) {
		int got = ibv_poll_cq(cq, 1, &wc);

		must(got >= 0, "ibv_poll_cq");
		if (got)
			return wc;
		nanosleep(&moment, NULL);
	}
	must(false, "a completion");
	return wc;
}

static void ends_with(enum ibv_wc_status status)
{
	struct ibv_wc wc = next();

	say("vendor_err", wc.vendor_err);
	if (wc.status == status)
		return;
	printf("FAILED: status %s\n", ibv_wc_status_str(wc.status));
	exit(99);
}

/* Polls while nothing completes: whoever polls carries out what is posted, so that what finds no receive has found none by then. */
static void nothing_ends(void)
{
	struct ibv_wc wc;

	for (int i = 0; i < 50; i++) {
		if (ibv_poll_cq(cq, 1, &wc)) {
			printf("FAILED: a completion that should not be\n");
			exit(99);
		}
		usleep(1000);
	}
}

/* ---- The mistakes ---- */

static void none(void)
{
	connect_both();
	for (int i = 0; i < 10; i++) {
		post_receive(receive_sge());
		must(!post(IBV_WR_SEND, (uint64_t)i, sge_of(100), 0, 0), "ibv_post_send");
		ends_with(IBV_WC_SUCCESS);
		must(!post(IBV_WR_RDMA_WRITE, (uint64_t)i, sge_of(LENGTH), (uintptr_t)remote_memory, remote->rkey), "write");
		ends_with(IBV_WC_SUCCESS);
	}
	ibv_destroy_qp(a);
	ibv_destroy_qp(b);
	ibv_dereg_mr(mr);
	ibv_dereg_mr(remote);
	ibv_destroy_cq(cq);
	ibv_destroy_cq(receive_cq);
	ibv_dealloc_pd(pd);
	ibv_dealloc_pd(other_pd);
	ibv_close_device(context);
}

static void rnr_never_posted(void)
{
	connect_both();
	post(IBV_WR_SEND, 5, sge_of(8), 0, 0);
	ends_with(IBV_WC_RNR_RETRY_EXC_ERR);
}

static void rnr_ran_dry(void)
{
	connect_both();
	for (int i = 0; i < 3; i++)
		post_receive(receive_sge());
	for (uint64_t i = 0; i < 4; i++) {
		post(IBV_WR_SEND, i, sge_of(8), 0, 0);
		ends_with(i < 3 ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR);
	}
}

static void rnr_posted_too_late(void)
{
	with.rnr_retry = 7;
	with.min_rnr_timer = 0;
	connect_both();
	post(IBV_WR_SEND, 5, sge_of(8), 0, 0);
	sleep(2);
	post_receive(receive_sge());
	ends_with(IBV_WC_SUCCESS);
}

static void late_receive(uint8_t timer)
{
	with.rnr_retry = 7;
	with.min_rnr_timer = timer;
	connect_both();
	post(IBV_WR_SEND, 5, sge_of(8), 0, 0);
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	post_receive(receive_sge());
	ends_with(IBV_WC_SUCCESS);
}

static void rnr_timer_of_zero(void)
{
	late_receive(0);
}

static void receive_posted_late(void)
{
	late_receive(12); /* 0.64 ms */
}

/* Three queue pairs share two receives. */
static void rnr_of_shared_queue(void)
{
	struct ibv_srq_init_attr of_srq = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_recv_wr wr = { .wr_id = 1, .num_sge = 1 }, *bad;
	struct ibv_sge sge;

	open_device();
	srq = ibv_create_srq(pd, &of_srq);
	must(srq, "ibv_create_srq");
	sge = receive_sge();
	wr.sg_list = &sge;
	must(!ibv_post_srq_recv(srq, &wr, &bad) && !ibv_post_srq_recv(srq, &wr, &bad), "ibv_post_srq_recv");
	a = make_qp();
	b = make_qp();
	connect_to(a, b->qp_num, &gid, with.mtu_a);
	connect_to(b, a->qp_num, &gid, with.mtu_b);
	say("a", a->qp_num);
	say("b", b->qp_num);
	for (uint64_t i = 0; i < 3; i++) {
		post(IBV_WR_SEND, i, sge_of(8), 0, 0);
		ends_with(i < 2 ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR);
	}
}

static void send_to_nobody(void)
{
	connect_both();
	post(IBV_WR_SEND, 5, sge_of(8), 0, 0);
	ends_with(IBV_WC_RETRY_EXC_ERR);
}

static void retry_peer_in_init(void)
{
	with.b_stays_in_init = true;
	send_to_nobody();
}

static void retry_wrong_gid(void)
{
	with.b_has_other_gid = true;
	send_to_nobody();
}

static void retry_wrong_number(void)
{
	with.dest_qpn = 0x3abc; /* no process has these, of the first slot */
	send_to_nobody();
}

/* Needs a network: to another host, with packets that its interface does not take. */
static void retry_packets_too_long(void)
{
	union ibv_gid nobody;

	with.mtu_a = IBV_MTU_4096;
	open_device();
	a = make_qp();
	nobody = gid;
	nobody.raw[15] ^= 0x10;
	connect_to(a, 0x4001, &nobody, with.mtu_a);
	say("a", a->qp_num);
	post(IBV_WR_SEND, 5, sge_of(5000), 0, 0);
	ends_with(IBV_WC_RETRY_EXC_ERR);
}

static void retry_wrong_psn(void)
{
	with.sq_psn = 84;
	send_to_nobody();
}

/* The other end is another process, which is killed. */
static void retry_dead_peer(void)
{
	int there[2], back[2];
	uint32_t number, ours;

	must(!pipe(there) && !pipe(back), "pipe");
	with.rnr_retry = 7; /* until its death is noticed there is only nobody who posts receives */

	pid_t child = fork();

	open_device();
	a = make_qp();
	if (!child) {
		must(read(back[0], &number, sizeof(number)) == sizeof(number), "read");
		connect_to(a, number, &gid, with.mtu_a);
		must(write(there[1], &a->qp_num, sizeof(a->qp_num)) == sizeof(a->qp_num), "write");
		for (;;)
			pause();
	}
	ours = a->qp_num;
	must(write(back[1], &ours, sizeof(ours)) == sizeof(ours), "write");
	must(read(there[0], &number, sizeof(number)) == sizeof(number), "read");
	connect_to(a, number, &gid, with.mtu_a);
	say("b", number);
	post(IBV_WR_RDMA_WRITE, 4, sge_of(0), 0, 0); /* nothing: it is there */
	ends_with(IBV_WC_SUCCESS);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	post(IBV_WR_SEND, 5, sge_of(8), 0, 0);
	ends_with(IBV_WC_RETRY_EXC_ERR);
}

static void mtu_mismatch(void)
{
	with.mtu_b = IBV_MTU_256;
	connect_both();
	post_receive(receive_sge());
	post(IBV_WR_SEND, 5, sge_of(2000), 0, 0);
	ends_with(IBV_WC_REM_INV_REQ_ERR);
}

/* Their packets have other sizes: an answer comes that does not fit. */
static void mtu_mismatch_of_read(void)
{
	with.mtu_b = IBV_MTU_256;
	connect_both();
	post(IBV_WR_RDMA_READ, 5, sge_of(3000), (uintptr_t)remote_memory, remote->rkey);
	ends_with(IBV_WC_BAD_RESP_ERR);
}

/* Over the wire only: the other end is no correct device, and brings fewer bytes than were asked for. */
static void answer_too_short(void)
{
	union ibv_gid there = { .raw = { [10] = 0xff, 0xff, 127, 0, 0, 2 } };
	uint16_t port = (uint16_t)(20000 + getpid() % 20000);
	uint32_t host = 0x7f000002;
	char number[8];
	int stranger;

	snprintf(number, sizeof(number), "%u", port);
	setenv("UROCE_PORT", number, 1);
	open_device();
	a = make_qp();
	stranger = stranger_open(host, port);
	connect_to(a, 0x123, &there, with.mtu_a);
	say("a", a->qp_num);
	post(IBV_WR_RDMA_READ, 5, sge_of(100), 0x1000, 7);
	stranger_answers(stranger, host, port, a->qp_num, 8);
	ends_with(IBV_WC_BAD_RESP_ERR);
}

static void local(struct ibv_sge sge)
{
	post_receive(receive_sge());
	say("addr", sge.addr);
	say("key", sge.lkey);
	post(IBV_WR_SEND, 5, sge, 0, 0);
	ends_with(IBV_WC_LOC_PROT_ERR);
}

static void lkey_unknown(void)
{
	connect_both();
	local((struct ibv_sge){ (uintptr_t)memory, 8, 0xdead00 });
}

static void lkey_one_byte_out(void)
{
	connect_both();
	local((struct ibv_sge){ (uintptr_t)memory + 1, LENGTH, mr->lkey });
}

static void lkey_is_rkey(void)
{
	connect_both();
	local((struct ibv_sge){ (uintptr_t)memory, 8, mr->rkey });
}

static void lkey_of_other_pd(void)
{
	connect_both();

	struct ibv_mr *other = ibv_reg_mr(other_pd, memory, LENGTH, ALL);

	local((struct ibv_sge){ (uintptr_t)memory, 8, other->lkey });
}

static void lkey_deregistered(void)
{
	connect_both();

	struct ibv_sge sge = sge_of(8);

	ibv_dereg_mr(mr); /* too early */
	local(sge);
}

static void rdma(uint64_t address, uint32_t rkey, uint32_t length)
{
	say("addr", address);
	say("key", rkey);
	post(IBV_WR_RDMA_WRITE, 5, sge_of(length), address, rkey);
	ends_with(IBV_WC_REM_ACCESS_ERR);
}

static void rkey_is_lkey(void)
{
	connect_both();
	rdma((uintptr_t)remote_memory, remote->lkey, 8);
}

static void rkey_of_other_pd(void)
{
	connect_both();
	rdma((uintptr_t)remote_memory, ibv_reg_mr(other_pd, remote_memory, LENGTH, ALL)->rkey, 8);
}

static void rkey_seven_bytes_before(void)
{
	connect_both();
	rdma((uintptr_t)remote_memory - 7, remote->rkey, 8);
}

static void rkey_deregistered(void)
{
	connect_both();

	uint32_t rkey = remote->rkey;

	ibv_dereg_mr(remote);
	rdma((uintptr_t)remote_memory, rkey, 8);
}

/* The other end is another process, which deregisters its region and says nothing. */
static void rkey_deregistered_by_peer(void)
{
	struct {
		uint32_t number, rkey;
		uint64_t address;
	} its;
	int there[2], back[2], status;
	struct ibv_async_event event;
	uint32_t ours;

	must(!pipe(there) && !pipe(back), "pipe");
	pid_t child = fork();

	open_device();
	a = make_qp();
	if (!child) {
		its.number = a->qp_num;
		its.rkey = remote->rkey;
		its.address = (uintptr_t)remote_memory;
		ibv_dereg_mr(remote);
		must(read(back[0], &ours, sizeof(ours)) == sizeof(ours), "read");
		connect_to(a, ours, &gid, with.mtu_a);
		must(write(there[1], &its, sizeof(its)) == sizeof(its), "write");
		do
			must(!ibv_get_async_event(context, &event), "ibv_get_async_event");
		while (event.event_type != IBV_EVENT_QP_ACCESS_ERR);
		exit(0);
	}
	must(write(back[1], &a->qp_num, sizeof(a->qp_num)) == sizeof(a->qp_num), "write");
	must(read(there[0], &its, sizeof(its)) == sizeof(its), "read");
	connect_to(a, its.number, &gid, with.mtu_a);
	rdma(its.address, its.rkey, 8);
	must(waitpid(child, &status, 0) == child && !status, "child");
}

static void rkey_without_right(void)
{
	connect_both();
	rdma((uintptr_t)remote_memory, ibv_reg_mr(pd, remote_memory, LENGTH, IBV_ACCESS_LOCAL_WRITE)->rkey, 8);
}

static void qp_without_right(void)
{
	with.b_access = IBV_ACCESS_LOCAL_WRITE;
	connect_both();
	post(IBV_WR_RDMA_WRITE, 5, sge_of(8), (uintptr_t)remote_memory, remote->rkey);
	ends_with(IBV_WC_REM_INV_REQ_ERR);
}

static void receive_too_short(void)
{
	connect_both();
	post_receive((struct ibv_sge){ (uintptr_t)remote_memory, 99, remote->lkey });
	post(IBV_WR_SEND, 5, sge_of(100), 0, 0);
	ends_with(IBV_WC_REM_INV_REQ_ERR);
}

static void remote_without_local_write(void)
{
	open_device();
	say("addr", (uintptr_t)memory);
	must(!ibv_reg_mr(pd, memory, LENGTH, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL, "refused");
}

static void full(unsigned flags, bool receives)
{
	int error = 0;

	with.rnr_retry = 7;
	connect_both();
	for (int i = 0; i < 16 && receives; i++)
		post_receive(receive_sge());
	for (uint64_t i = 0; i <= with.depth && !error; i++)
		error = post_wr(IBV_WR_SEND, i, sge_of(8), 0, 0, flags);
	must(error == ENOMEM, "ENOMEM");
}

static void full_of_unsignaled(void)
{
	full(0, true);
}

static void full_never_polled(void)
{
	full(IBV_SEND_SIGNALED, true);
}

static void full_too_deep(void)
{
	full(IBV_SEND_SIGNALED, false);
}

static void first_of_many_flushes(void)
{
	with.depth = 128;
	with.rnr_retry = 7;
	connect_both();
	post(IBV_WR_SEND, 1, sge_of(8), 0, 0); /* holds up the rest */
	for (uint64_t i = 0; i < 100; i++)
		post(IBV_WR_RDMA_WRITE, i + 5, sge_of(8), (uintptr_t)remote_memory, i ? remote->rkey : remote->lkey);
	post_receive(receive_sge());
	ends_with(IBV_WC_SUCCESS);
	ends_with(IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < 99; i++)
		ends_with(IBV_WC_WR_FLUSH_ERR);
}

/* What waits when the program gives the connection up. */
static void flushed_by_program(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	with.rnr_retry = 7;
	connect_both();
	for (uint64_t i = 0; i < 6; i++)
		post(IBV_WR_SEND, i + 5, sge_of(8), 0, 0);
	must(!ibv_modify_qp(a, &attr, IBV_QP_STATE), "ERR");
	for (int i = 0; i < 6; i++)
		ends_with(IBV_WC_WR_FLUSH_ERR);
}

/* What is posted after nobody has polled the CQ, and it was full. */
static void flushed_by_cq(void)
{
	struct ibv_async_event event;

	with.cqe = 1;
	with.rnr_retry = 7;
	connect_both();
	for (int i = 0; i < 16; i++)
		post_receive(receive_sge());
	for (int i = 0; i <= cq->cqe; i++)
		post(IBV_WR_SEND, 1, sge_of(8), 0, 0);
	do
		must(!ibv_get_async_event(context, &event), "ibv_get_async_event");
	while (event.event_type != IBV_EVENT_QP_FATAL);
	for (uint64_t i = 0; i < 4; i++)
		post(IBV_WR_SEND, 5, sge_of(8), 0, 0);
}

static void many_times(void)
{
	open_device();
	for (int i = 0; i < 1000; i++)
		must(!ibv_reg_mr(pd, memory, LENGTH, IBV_ACCESS_REMOTE_WRITE), "refused");
}

static void too_much_inline(void)
{
	struct ibv_send_wr *bad;
	struct ibv_sge sge;

	connect_both();
	sge = sge_of(1000);

	struct ibv_send_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE };

	must(ibv_post_send(a, &wr, &bad) == EINVAL, "refused");
}

static void too_many_sges(void)
{
	struct ibv_sge sges[20];
	struct ibv_send_wr wr = { .wr_id = 5, .sg_list = sges, .num_sge = 20, .opcode = IBV_WR_SEND }, *bad;

	connect_both();
	for (int i = 0; i < 20; i++)
		sges[i] = sge_of(8);
	must(ibv_post_send(a, &wr, &bad) == EINVAL, "refused");
}

static void cq_overflow(void)
{
	struct ibv_async_event event;

	with.cqe = 4;
	connect_both();
	say("cqe", (uint64_t)cq->cqe);
	for (int i = 0; i < 16; i++)
		post_receive(receive_sge());
	for (uint64_t i = 0; i < 16; i++)
		post(IBV_WR_SEND, i, sge_of(8), 0, 0);
	do
		must(!ibv_get_async_event(context, &event), "ibv_get_async_event");
	while (event.event_type != IBV_EVENT_CQ_ERR);
}

static void rkey_of_other_process(void)
{
	connect_both();
	rdma((uintptr_t)remote_memory, 0xdead01, 8);
}

/* The same memory, registered again: a peer that was not told has the old key. */
static void rkey_of_earlier_registration(void)
{
	uint32_t rkey;

	connect_both();
	rkey = remote->rkey;
	ibv_dereg_mr(remote);
	remote = ibv_reg_mr(pd, remote_memory, LENGTH, ALL);
	must(remote && remote->rkey != rkey, "another key");
	rdma((uintptr_t)remote_memory, rkey, 8);
}

/* Needs two devices. */
static void rkey_of_other_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *other;
	struct ibv_pd *there;

	connect_both();
	must(list && list[0] && list[1], "two devices");
	other = ibv_open_device(list[1]);
	there = other ? ibv_alloc_pd(other) : NULL;
	must(there, "the other device");
	rdma((uintptr_t)remote_memory, ibv_reg_mr(there, remote_memory, LENGTH, ALL)->rkey, 8);
}

static void atomic_too_short(void)
{
	connect_both();
	post(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, sge_of(4), (uintptr_t)remote_memory, remote->rkey);
	ends_with(IBV_WC_LOC_LEN_ERR);
}

static void message_too_long(void)
{
	connect_both();
	post(IBV_WR_RDMA_WRITE, 5, sge_of(0x80000001u), (uintptr_t)remote_memory, remote->rkey);
	ends_with(IBV_WC_LOC_LEN_ERR);
}

static void read_without_depth(void)
{
	with.max_rd_atomic = 0;
	connect_both();
	post(IBV_WR_RDMA_READ, 5, sge_of(8), (uintptr_t)remote_memory, remote->rkey);
	ends_with(IBV_WC_LOC_QP_OP_ERR);
}

static void address_handle_of_other_pd(void)
{
	struct ibv_ah_attr way = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_send_wr wr = { .wr_id = 5, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
	struct ibv_qp_init_attr init;
	struct ibv_sge sge;

	open_device();
	init = (struct ibv_qp_init_attr){ .send_cq = cq, .recv_cq = receive_cq, .qp_type = IBV_QPT_UD, .cap = { 16, 16, 2, 2, 0 } };
	a = ibv_create_qp(pd, &init);
	must(a && !ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
	attr.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(a, &attr, IBV_QP_STATE), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(a, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
	say("a", a->qp_num);
	way.grh.dgid = gid;
	sge = sge_of(8);
	wr.sg_list = &sge;
	wr.wr.ud.ah = ibv_create_ah(other_pd, &way);
	wr.wr.ud.remote_qpn = a->qp_num;
	wr.wr.ud.remote_qkey = 1;
	must(wr.wr.ud.ah && !ibv_post_send(a, &wr, &bad), "ibv_post_send");
	ends_with(IBV_WC_LOC_QP_OP_ERR);
}

static void receive_outside_its_region(void)
{
	connect_both();
	post_receive((struct ibv_sge){ (uintptr_t)remote_memory + 1, LENGTH, remote->lkey });
	say("addr", (uintptr_t)remote_memory + 1);
	post(IBV_WR_SEND, 5, sge_of(LENGTH), 0, 0);
	ends_with(IBV_WC_REM_OP_ERR);
}

static void receive_deregistered(void)
{
	struct ibv_sge sge;

	connect_both();
	sge = receive_sge();
	post_receive(sge);
	say("addr", sge.addr);
	say("key", sge.lkey);
	ibv_dereg_mr(remote); /* the receive is still posted */
	post(IBV_WR_SEND, 5, sge_of(8), 0, 0);
	ends_with(IBV_WC_REM_OP_ERR);
}

/* The other end is another process, stopped, whose CQ for receives is full. */
static void remote_cq_full(void)
{
	uint32_t number, entries;
	int there[2], back[2];

	must(!pipe(there) && !pipe(back), "pipe");
	with.receive_cqe = 1;
	with.timeout = 18;
	with.retry_cnt = 7;

	pid_t child = fork();

	open_device();
	entries = (uint32_t)receive_cq->cqe;
	a = b = make_qp();
	if (!child) {
		must(read(back[0], &number, sizeof(number)) == sizeof(number), "read");
		connect_to(a, number, &gid, with.mtu_a);
		for (uint32_t i = 0; i < 16; i++)
			post_receive(receive_sge());
		must(write(there[1], &a->qp_num, sizeof(a->qp_num)) == sizeof(a->qp_num), "write");
		for (;;)
			pause();
	}
	must(write(back[1], &a->qp_num, sizeof(a->qp_num)) == sizeof(a->qp_num), "write");
	must(read(there[0], &number, sizeof(number)) == sizeof(number), "read");
	connect_to(a, number, &gid, with.mtu_a);
	say("a", a->qp_num);
	say("b", number);
	post(IBV_WR_RDMA_WRITE, 4, sge_of(0), 0, 0); /* nothing: it is there */
	ends_with(IBV_WC_SUCCESS);
	kill(child, SIGSTOP);
	must(waitpid(child, NULL, WUNTRACED) == child, "stopped");
	for (uint32_t i = 0; i <= entries; i++) {
		post(IBV_WR_SEND, i, sge_of(8), 0, 0);
		ends_with(IBV_WC_SUCCESS);
	}
	post(IBV_WR_SEND, 55, sge_of(8), 0, 0);
	ends_with(IBV_WC_REM_OP_ERR);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* A CQ for receives that takes fewer than arrive, and nobody polls. */
static void remote_cq_too_small(void)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct ibv_async_event event;

	with.receive_cqe = 1;
	connect_both();
	for (int i = 0; i <= receive_cq->cqe; i++) {
		post_receive(receive_sge());
		post(IBV_WR_SEND, (uint64_t)i, sge_of(8), 0, 0);
		status = next().status;
	}
	must(status == IBV_WC_SUCCESS || status == IBV_WC_REM_OP_ERR, "the last that fits, or what is too much");
	do
		must(!ibv_get_async_event(context, &event), "ibv_get_async_event");
	while (event.event_type != IBV_EVENT_CQ_ERR);
}

static void bind_window(struct ibv_mr *region, uint64_t address, uint64_t length)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .wr_id = 5,
				    .send_flags = IBV_SEND_SIGNALED,
				    .bind_info = { region, address, length, IBV_ACCESS_REMOTE_WRITE } };

	must(mw && !ibv_bind_mw(a, mw, &bind), "ibv_bind_mw");
	say("addr", address);
}

static void window_without_right(void)
{
	connect_both();
	bind_window(mr, (uintptr_t)memory, LENGTH);
	ends_with(IBV_WC_MW_BIND_ERR);
}

static void window_outside_its_region(void)
{
	connect_both();
	bind_window(ibv_reg_mr(pd, memory, LENGTH, ALL | IBV_ACCESS_MW_BIND), (uintptr_t)memory + 9, LENGTH);
	ends_with(IBV_WC_MW_BIND_ERR);
}

static void access_outside_the_window(void)
{
	struct ibv_mw_bind bind = { .bind_info = { NULL, 0, 64, IBV_ACCESS_REMOTE_WRITE }, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_mw *mw;

	connect_both();
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	bind.bind_info.mr = ibv_reg_mr(pd, remote_memory, LENGTH, ALL | IBV_ACCESS_MW_BIND);
	bind.bind_info.addr = (uintptr_t)remote_memory;
	must(mw && bind.bind_info.mr && !ibv_bind_mw(a, mw, &bind), "ibv_bind_mw");
	ends_with(IBV_WC_SUCCESS);
	rdma((uintptr_t)remote_memory + 60, mw->rkey, 8);
}

static void send_buffer_changed(void)
{
	connect_both();
	post_receive(receive_sge());
	memory[5] = 7;
	say("addr", (uintptr_t)memory + 5);
	post(IBV_WR_SEND, 5, sge_of(64), 0, 0);
	memory[5] = 9;
	ends_with(IBV_WC_SUCCESS);
}

static void send_buffer_unmapped(void)
{
	connect_both();
	post_receive(receive_sge());
	say("addr", (uintptr_t)memory);
	post(IBV_WR_SEND, 5, sge_of(64), 0, 0);
	munmap(memory, LENGTH);
	ends_with(IBV_WC_SUCCESS);
}

static void region_unmapped(void)
{
	open_device();
	say("addr", (uintptr_t)memory);
	say("key", mr->lkey);
	munmap(memory, LENGTH);
	must(!ibv_dereg_mr(mr), "ibv_dereg_mr");
}

/* Something of the library's is mapped there when it is deregistered. */
static void region_unmapped_and_used(void)
{
	const size_t length = 1 << 20;

	connect_both();

	void *large = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(large != MAP_FAILED, "mmap");
	memset(large, 1, length);

	struct ibv_mr *region = ibv_reg_mr(pd, large, length, ALL);

	must(region, "ibv_reg_mr");
	say("addr", (uintptr_t)large);
	say("key", region->lkey);
	munmap(large, length);
	post(IBV_WR_RDMA_WRITE, 5, sge_of(8), (uintptr_t)large, region->rkey);
	next(); /* whatever it brings */
	must(!ibv_dereg_mr(region), "ibv_dereg_mr");
}

static void region_unmapped_and_left(void)
{
	open_device();
	say("addr", (uintptr_t)memory);
	say("key", mr->lkey);
	munmap(memory, LENGTH);
}

/* ---- What verbs refuse ---- */

static void cq_of_nothing(void)
{
	open_device();
	must(!ibv_create_cq(context, 0, NULL, NULL, 0) && errno == EINVAL, "refused");
}

static void cq_in_use(void)
{
	receive_cq_is_cq = true;
	connect_both();
	ibv_destroy_qp(b);
	must(ibv_destroy_cq(cq) == EBUSY, "refused");
}

static void domain_in_use(void)
{
	open_device();
	must(ibv_dealloc_pd(pd) == EBUSY, "refused");
}

static void qp_without_cq(void)
{
	struct ibv_qp_init_attr attr = { .recv_cq = NULL, .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };

	open_device();
	attr.send_cq = cq;
	must(!ibv_create_qp(pd, &attr) && errno == EINVAL, "refused");
}

static void vast_region(void)
{
	open_device();
	say("addr", (uintptr_t)memory);
	must(!ibv_reg_mr(pd, memory, 1ull << 50, IBV_ACCESS_LOCAL_WRITE), "refused");
}

static void wrong_port(void)
{
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 2 };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };

	open_device();
	attr.send_cq = attr.recv_cq = cq;
	a = ibv_create_qp(pd, &attr);
	must(a, "ibv_create_qp");
	say("a", a->qp_num);
	must(ibv_modify_qp(a, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == EINVAL, "refused");
}

static void wrong_vector(void)
{
	open_device();
	must(!ibv_create_cq(context, 10, NULL, NULL, 77) && errno == EINVAL, "refused");
}

/* Of one code, but each of another attribute. */
static void several_limits(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1000, 1, 0 } };

	open_device();
	attr.send_cq = attr.recv_cq = cq;
	must(!ibv_create_qp(pd, &attr), "refused");
	attr.cap.max_send_sge = 1;
	attr.cap.max_inline_data = 100000;
	must(!ibv_create_qp(pd, &attr), "refused");
	must(!ibv_create_cq(context, 0, NULL, NULL, 0), "refused");
}

static void wrong_qkey(void)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_UD, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp *qps[2];

	open_device();
	attr.send_cq = cq;
	attr.recv_cq = receive_cq;
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr to = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x222 };

		qps[i] = ibv_create_qp(pd, &attr);
		must(qps[i] && !ibv_modify_qp(qps[i], &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
		to.qp_state = IBV_QPS_RTR;
		must(!ibv_modify_qp(qps[i], &to, IBV_QP_STATE), "RTR");
		to.qp_state = IBV_QPS_RTS;
		must(!ibv_modify_qp(qps[i], &to, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
	}
	say("a", qps[0]->qp_num);

	struct ibv_ah_attr path = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } };
	struct ibv_ah *ah = ibv_create_ah(pd, &path);
	struct ibv_sge sge = sge_of(8);
	struct ibv_send_wr wr = { .wr_id = 5,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	must(ah, "ibv_create_ah");
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qps[1]->qp_num;
	wr.wr.ud.remote_qkey = 0x111;
	must(!ibv_post_send(qps[0], &wr, &bad), "ibv_post_send");
	ends_with(IBV_WC_SUCCESS);
}

/* ---- What comes too often ---- */

/* One true error; then a full queue, tried again and again. */
static void first_cause_of_many(void)
{
	struct ibv_qp *failed;

	connect_both();
	rdma((uintptr_t)remote_memory, remote->lkey, 8);
	failed = a;
	a = make_qp();
	b = make_qp();
	with.rnr_retry = 7;
	connect_to(a, b->qp_num, &gid, with.mtu_a);
	connect_to(b, a->qp_num, &gid, with.mtu_b);
	say("c", a->qp_num);
	for (uint64_t i = 0; i < 6016; i++)
		post_wr(IBV_WR_SEND, i, sge_of(8), 0, 0, 0);
	(void)failed;
}

static void one_cause_many_times(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .num_sge = 50 }, *bad;

	connect_both();
	for (wr.wr_id = 0; wr.wr_id < 6000; wr.wr_id++)
		must(ibv_post_send(a, &wr, &bad) == EINVAL, "refused");
}

static void one_cause_of_many_qps(void)
{
	open_device();
	for (int i = 0; i < 20; i++) {
		a = make_qp();
		must(post(IBV_WR_SEND, 5, sge_of(8), 0, 0) == EINVAL, "refused");
	}
}

/* Fills it anew for each request, once those before have been polled for; and receives where it sends from. */
static void buffers_used_again(void)
{
	struct ibv_wc wc;

	connect_both();
	for (int i = 0; i < 100; i++) {
		memset(memory, i, 256);
		post_receive((struct ibv_sge){ (uintptr_t)memory + 128, 128, mr->lkey });
		post_wr(IBV_WR_RDMA_WRITE, 1, sge_of(128), (uintptr_t)remote_memory, remote->rkey, 0);
		post(IBV_WR_SEND, 2, sge_of(128), 0, 0);
		ends_with(IBV_WC_SUCCESS);
		while (!ibv_poll_cq(receive_cq, 1, &wc))
			;
		post(IBV_WR_RDMA_READ, 3, sge_of(64), (uintptr_t)remote_memory, remote->rkey);
		ends_with(IBV_WC_SUCCESS);
	}
}

static void on_alarm(int signal)
{
	(void)signal;
}

static struct ibv_comp_channel *channel_of_both(void)
{
	with.has_channel = true;
	connect_both();
	return cq->channel;
}

static void write_and_arm(void)
{
	post(IBV_WR_RDMA_WRITE, 5, sge_of(8), (uintptr_t)remote_memory, remote->rkey);
	must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
}

static void event_waited_for_in_vain(void)
{
	struct ibv_comp_channel *channel = channel_of_both();
	struct sigaction action = { .sa_handler = on_alarm };
	struct ibv_cq *of;
	void *nothing;

	sigaction(SIGALRM, &action, NULL);
	write_and_arm();
	alarm(1);
	must(ibv_get_cq_event(channel, &of, &nothing) == -1 && errno == EINTR, "no event");
}

static void event_polled_for_in_vain(void)
{
	struct pollfd event = { .fd = channel_of_both()->fd, .events = POLLIN };

	write_and_arm();
	must(poll(&event, 1, 1500) == 0, "no event");
}

/* As it is done right. */
static void events_waited_for(void)
{
	struct ibv_comp_channel *channel = channel_of_both();
	struct ibv_cq *of;
	struct ibv_wc wc;
	void *nothing;

	for (int i = 0; i < 10; i++) {
		must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
		while (ibv_poll_cq(cq, 1, &wc) > 0)
			;
		post(IBV_WR_RDMA_WRITE, 5, sge_of(8), (uintptr_t)remote_memory, remote->rkey);
		must(!ibv_get_cq_event(channel, &of, &nothing) && of == cq, "ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
	}
}

/* ---- What works, and could be better ---- */

static void write_and_poll(uint64_t requests)
{
	for (uint64_t i = 0; i < requests; i++)
		must(!post(IBV_WR_RDMA_WRITE, i, sge_of(8), (uintptr_t)remote_memory, remote->rkey), "ibv_post_send");
	for (uint64_t i = 0; i < requests; i++)
		ends_with(IBV_WC_SUCCESS);
}

static void one_call_each(void)
{
	with.depth = 128;
	connect_both();
	write_and_poll(100);
}

/* The same in lists: nothing could be better. */
static void lists_with_one_completion(void)
{
	struct ibv_send_wr wrs[32], *bad;
	struct ibv_sge sge;

	with.depth = 128;
	connect_both();
	sge = sge_of(8);
	for (int i = 0; i < 32; i++) {
		wrs[i] = (struct ibv_send_wr){ .wr_id = (uint64_t)i,
					       .next = i < 31 ? &wrs[i + 1] : NULL,
					       .sg_list = &sge,
					       .num_sge = 1,
					       .opcode = IBV_WR_RDMA_WRITE,
					       .send_flags = i < 31 ? 0 : IBV_SEND_SIGNALED,
					       .wr.rdma = { (uintptr_t)remote_memory, remote->rkey } };
	}
	for (int i = 0; i < 10; i++) {
		must(!ibv_post_send(a, wrs, &bad), "ibv_post_send");
		ends_with(IBV_WC_SUCCESS);
	}
}

static void cq_much_too_deep(void)
{
	with.cqe = 100000;
	connect_both();
	write_and_poll(5);
}

static void cq_polled_too_seldom(void)
{
	with.cqe = 15;
	connect_both();
	write_and_poll(14);
}

static void receives_ran_out(void)
{
	with.rnr_retry = 7;
	with.min_rnr_timer = 14; /* 1 ms */
	connect_both();
	post_receive(receive_sge());
	post_receive(receive_sge());
	for (uint64_t i = 0; i < 6; i++)
		post(IBV_WR_SEND, i, sge_of(8), 0, 0);
	for (uint64_t i = 0; i < 6; i++) {
		ends_with(IBV_WC_SUCCESS);
		if (i == 1)
			nothing_ends();
		if (i > 0 && i < 5)
			post_receive(receive_sge());
	}
}

static void receives_for_each(void)
{
	struct ibv_sge all;

	connect_both();
	all = receive_sge();
	for (int i = 0; i < 8; i++) {
		struct ibv_recv_wr wr = { .sg_list = &all, .num_sge = 1 }, *bad;
		struct ibv_qp *qp = i ? make_qp() : b;

		for (int n = 0; n < 16; n++)
			must(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
	}
	post(IBV_WR_SEND, 5, sge_of(8), 0, 0);
	ends_with(IBV_WC_SUCCESS);
}

static void inline_of_few_cards(void)
{
	with.inline_bytes = 850;
	connect_both();
	write_and_poll(1);
}

static void sges_of_few_cards(void)
{
	with.sges = 20;
	connect_both();
	write_and_poll(1);
}

static void crash(void)
{
	struct rlimit no_core = { 0 };

	rnr_never_posted();
	fflush(stdout);
	setrlimit(RLIMIT_CORE, &no_core);
	raise(SIGSEGV);
}

static void closed_stderr(void)
{
	close(STDERR_FILENO);
	/* A file of the program's own has the number now. */
	FILE *mine = fopen("mine", "w");

	must(mine && fileno(mine) == STDERR_FILENO, "descriptor 2");
	rnr_never_posted();
}

static void mistake_before_fork(void)
{
	rnr_never_posted();
	fflush(stdout);

	pid_t child = fork();
	int status;

	if (!child)
		exit(0);
	must(waitpid(child, &status, 0) == child && !status, "child");
}

static void child_uses_what_it_inherited(void)
{
	connect_both();
	fflush(stdout);

	pid_t child = fork();
	int status;

	if (!child)
		_exit(post(IBV_WR_SEND, 5, sge_of(8), 0, 0) == EIO ? 0 : 1);
	say("child", (uint64_t)child);
	must(waitpid(child, &status, 0) == child && !status, "child");
}

static void killed(void)
{
	rnr_never_posted();
	fflush(stdout);
	raise(SIGKILL);
}

/* Its queue is as deep as it can be, and still too small. */
static void receive_queue_too_small(void)
{
	with.rnr_retry = 7;
	with.min_rnr_timer = 14;
	with.receives = 4;
	connect_both();
	for (int i = 0; i < 4; i++)
		post_receive(receive_sge());
	for (uint64_t i = 0; i < 6; i++)
		post(IBV_WR_SEND, i, sge_of(8), 0, 0);
	for (uint64_t i = 0; i < 6; i++) {
		struct ibv_wc wc;

		ends_with(IBV_WC_SUCCESS);
		while (!ibv_poll_cq(receive_cq, 1, &wc))
			;
		if (i == 3)
			nothing_ends();
		if (i > 2)
			post_receive(receive_sge());
	}
}

static const struct {
	const char *name;
	void (*make)(void);
} mistakes[] = {
#define MISTAKE(name)       \
	{                   \
#name, name \
	}
	MISTAKE(none),
	MISTAKE(rnr_never_posted),
	MISTAKE(rnr_ran_dry),
	MISTAKE(rnr_posted_too_late),
	MISTAKE(rnr_timer_of_zero),
	MISTAKE(rnr_of_shared_queue),
	MISTAKE(receive_posted_late),
	MISTAKE(receive_queue_too_small),
	MISTAKE(retry_peer_in_init),
	MISTAKE(retry_wrong_gid),
	MISTAKE(retry_wrong_number),
	MISTAKE(retry_packets_too_long),
	MISTAKE(retry_wrong_psn),
	MISTAKE(retry_dead_peer),
	MISTAKE(mtu_mismatch),
	MISTAKE(mtu_mismatch_of_read),
	MISTAKE(answer_too_short),
	MISTAKE(lkey_unknown),
	MISTAKE(lkey_one_byte_out),
	MISTAKE(lkey_is_rkey),
	MISTAKE(lkey_of_other_pd),
	MISTAKE(lkey_deregistered),
	MISTAKE(rkey_is_lkey),
	MISTAKE(rkey_of_other_pd),
	MISTAKE(rkey_seven_bytes_before),
	MISTAKE(rkey_deregistered),
	MISTAKE(rkey_deregistered_by_peer),
	MISTAKE(rkey_without_right),
	MISTAKE(qp_without_right),
	MISTAKE(receive_too_short),
	MISTAKE(remote_without_local_write),
	MISTAKE(full_of_unsignaled),
	MISTAKE(full_never_polled),
	MISTAKE(full_too_deep),
	MISTAKE(first_of_many_flushes),
	MISTAKE(flushed_by_program),
	MISTAKE(flushed_by_cq),
	MISTAKE(many_times),
	MISTAKE(too_much_inline),
	MISTAKE(too_many_sges),
	MISTAKE(cq_overflow),
	MISTAKE(rkey_of_other_process),
	MISTAKE(rkey_of_earlier_registration),
	MISTAKE(rkey_of_other_device),
	MISTAKE(atomic_too_short),
	MISTAKE(message_too_long),
	MISTAKE(read_without_depth),
	MISTAKE(address_handle_of_other_pd),
	MISTAKE(receive_outside_its_region),
	MISTAKE(receive_deregistered),
	MISTAKE(remote_cq_full),
	MISTAKE(remote_cq_too_small),
	MISTAKE(window_without_right),
	MISTAKE(window_outside_its_region),
	MISTAKE(access_outside_the_window),
	MISTAKE(cm_nobody_listens),
	MISTAKE(cm_rejected),
	MISTAKE(cm_wrong_order),
	MISTAKE(cm_port_used),
	MISTAKE(cm_no_address),
	MISTAKE(cm_address_of_infiniband),
	MISTAKE(cm_backlog),
	MISTAKE(send_buffer_changed),
	MISTAKE(send_buffer_unmapped),
	MISTAKE(region_unmapped),
	MISTAKE(region_unmapped_and_used),
	MISTAKE(region_unmapped_and_left),
	MISTAKE(cq_of_nothing),
	MISTAKE(cq_in_use),
	MISTAKE(domain_in_use),
	MISTAKE(qp_without_cq),
	MISTAKE(vast_region),
	MISTAKE(wrong_port),
	MISTAKE(wrong_vector),
	MISTAKE(several_limits),
	MISTAKE(wrong_qkey),
	MISTAKE(first_cause_of_many),
	MISTAKE(one_cause_many_times),
	MISTAKE(one_cause_of_many_qps),
	MISTAKE(buffers_used_again),
	MISTAKE(event_waited_for_in_vain),
	MISTAKE(event_polled_for_in_vain),
	MISTAKE(events_waited_for),
	MISTAKE(one_call_each),
	MISTAKE(lists_with_one_completion),
	MISTAKE(cq_much_too_deep),
	MISTAKE(cq_polled_too_seldom),
	MISTAKE(receives_ran_out),
	MISTAKE(receives_for_each),
	MISTAKE(inline_of_few_cards),
	MISTAKE(sges_of_few_cards),
	MISTAKE(crash),
	MISTAKE(closed_stderr),
	MISTAKE(mistake_before_fork),
	MISTAKE(child_uses_what_it_inherited),
	MISTAKE(killed),
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 2 && i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		if (strcmp(argv[1], mistakes[i].name))
			continue;
		mistakes[i].make();
		return 0;
	}
	return 98;
}
