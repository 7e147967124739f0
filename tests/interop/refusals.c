/* SPDX-License-Identifier: MIT */
/*
 * usage: refusals GID_INDEX PATH_MTU PORT [ADDRESS]
 *
 * What must fail between two implementations, and how. With an address it is the requester, without one the responder, which
 * listens at the TCP port. Both go through the same cases; each judges what it sees at its own end. Soft-RoCE of Linux 6.1 does
 * not do as the specification says in one thing, which is expected of it: a message that is longer than its receive (9.7.5.2.8,
 * invalid request) is a remote operational error, and ends the receive with IBV_WC_LOC_QP_OP_ERR.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFER	 65536
#define RECEIVES 32768 /* their place in the buffer */
#define ACCESS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define BAD_KEY	 0xff00u /* other bits of a key */
#define PATIENCE 20	 /* seconds */

/* What the ends tell each other. */
struct end {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t qpn, psn, rkey;
	uint32_t is_rxe;
};

struct refusal {
	const char *name;
	enum ibv_wr_opcode opcode;
	uint32_t length; /* of the request; PACKETS(n): so many */
	uint32_t offset; /* of the remote address in the buffer */
	bool bad_key;
	bool no_rights;	   /* the responder's QP has none for remote access */
	unsigned before;   /* good WRITEs in front of it */
	unsigned receives; /* posted, of 16 bytes each */
	unsigned rnr_retry;
	bool late_receive;		  /* one that is large enough is posted after a while */
	enum ibv_wc_status status;	  /* of the request */
	enum ibv_wc_status status_by_rxe; /* of soft-RoCE, if not the same */
	enum ibv_wc_status receive;	  /* of the responder's first receive */
	enum ibv_wc_status receive_by_rxe;
	bool lives; /* the responder's QP goes on */
};

#define PACKETS(n) (0x80000000u | (n))

/* clang-format off */
static const struct refusal refusals[] = {
	{ .name = "write_with_a_bad_key", .opcode = IBV_WR_RDMA_WRITE, .length = 8, .offset = RECEIVES, .bad_key = true, .receives = 2,
	  .status = IBV_WC_REM_ACCESS_ERR, .receive = IBV_WC_WR_FLUSH_ERR },
	{ .name = "write_past_the_end", .opcode = IBV_WR_RDMA_WRITE, .length = 8, .offset = BUFFER - 4, .receives = 2,
	  .status = IBV_WC_REM_ACCESS_ERR, .receive = IBV_WC_WR_FLUSH_ERR },
	{ .name = "long_write_with_a_bad_key", .opcode = IBV_WR_RDMA_WRITE, .length = PACKETS(3), .offset = RECEIVES, .bad_key = true,
	  .receives = 2, .status = IBV_WC_REM_ACCESS_ERR, .receive = IBV_WC_WR_FLUSH_ERR },
	{ .name = "write_without_the_right", .opcode = IBV_WR_RDMA_WRITE, .length = 8, .offset = RECEIVES, .no_rights = true,
	  .receives = 2, .status = IBV_WC_REM_INV_REQ_ERR, .receive = IBV_WC_WR_FLUSH_ERR },
	{ .name = "read_with_a_bad_key", .opcode = IBV_WR_RDMA_READ, .length = 8, .offset = RECEIVES, .bad_key = true, .receives = 2,
	  .status = IBV_WC_REM_ACCESS_ERR, .receive = IBV_WC_WR_FLUSH_ERR },
	{ .name = "long_read_past_the_end", .opcode = IBV_WR_RDMA_READ, .length = PACKETS(3), .offset = BUFFER - 256, .receives = 2,
	  .status = IBV_WC_REM_ACCESS_ERR, .receive = IBV_WC_WR_FLUSH_ERR },
	{ .name = "read_with_a_bad_key_behind_writes", .opcode = IBV_WR_RDMA_READ, .length = 8, .offset = RECEIVES, .bad_key = true,
	  .before = 3, .receives = 2, .status = IBV_WC_REM_ACCESS_ERR, .receive = IBV_WC_WR_FLUSH_ERR },
	{ .name = "read_without_the_right", .opcode = IBV_WR_RDMA_READ, .length = 8, .offset = RECEIVES, .no_rights = true,
	  .receives = 2, .status = IBV_WC_REM_INV_REQ_ERR, .receive = IBV_WC_WR_FLUSH_ERR },
	{ .name = "atomic_with_a_bad_key", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .length = 8, .offset = RECEIVES, .bad_key = true,
	  .receives = 2, .status = IBV_WC_REM_ACCESS_ERR, .receive = IBV_WC_WR_FLUSH_ERR },
	{ .name = "atomic_without_the_right", .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .length = 8, .offset = RECEIVES, .no_rights = true,
	  .receives = 2, .status = IBV_WC_REM_INV_REQ_ERR, .receive = IBV_WC_WR_FLUSH_ERR },
	{ .name = "send_longer_than_its_receive", .opcode = IBV_WR_SEND, .length = 17, .receives = 2,
	  .status = IBV_WC_REM_INV_REQ_ERR, .status_by_rxe = IBV_WC_REM_OP_ERR,
	  .receive = IBV_WC_LOC_LEN_ERR, .receive_by_rxe = IBV_WC_LOC_QP_OP_ERR },
	{ .name = "long_send_longer_than_its_receive", .opcode = IBV_WR_SEND, .length = PACKETS(3), .receives = 2,
	  .status = IBV_WC_REM_INV_REQ_ERR, .status_by_rxe = IBV_WC_REM_OP_ERR,
	  .receive = IBV_WC_LOC_LEN_ERR, .receive_by_rxe = IBV_WC_LOC_QP_OP_ERR },
	{ .name = "send_without_a_receive", .opcode = IBV_WR_SEND, .length = 8, .rnr_retry = 2,
	  .status = IBV_WC_RNR_RETRY_EXC_ERR, .lives = true },
	{ .name = "write_imm_without_a_receive", .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .length = 8, .offset = RECEIVES, .rnr_retry = 1,
	  .status = IBV_WC_RNR_RETRY_EXC_ERR, .lives = true },
	{ .name = "send_before_its_receive", .opcode = IBV_WR_SEND, .length = PACKETS(3), .rnr_retry = 7, .late_receive = true,
	  .status = IBV_WC_SUCCESS, .receive = IBV_WC_SUCCESS, .lives = true },
};
/* clang-format on */

static const struct refusal dead_peer = { .name = "write_to_a_process_that_was_killed",
					  .opcode = IBV_WR_RDMA_WRITE,
					  .length = 8,
					  .offset = RECEIVES,
					  .status = IBV_WC_RETRY_EXC_ERR };

static int gid_index, mtu, oob = -1;
static bool is_requester;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static struct end mine, theirs;
static uint8_t *buffer;

static void must(bool good, const char *what)
{
	if (good)
		return;
	printf("refusals: %s failed: %s\n", what, strerror(errno));
	exit(2);
}

#define MUST(call) must((call), #call)

/* ---- The two ends ---- */

static void meet(uint16_t port, const char *address)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener, on = 1;

	if (address) {
		MUST(inet_aton(address, &name.sin_addr));
		/* The second time the other one may not be back yet. */
		for (int i = 0; i < PATIENCE * 20; i++, usleep(50000)) {
			MUST((oob = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
			if (!connect(oob, (struct sockaddr *)&name, sizeof(name)))
				return;
			close(oob);
		}
		must(false, "connect");
	}
	MUST((listener = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	MUST(!setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	MUST(!bind(listener, (struct sockaddr *)&name, sizeof(name)) && !listen(listener, 1));
	MUST((oob = accept(listener, NULL, NULL)) >= 0);
	close(listener);
}

/* Both come here, with what they have to say. */
static void swap(void)
{
	MUST(write(oob, &mine, sizeof(mine)) == sizeof(mine));
	MUST(recv(oob, &theirs, sizeof(theirs), MSG_WAITALL) == sizeof(theirs));
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	MUST(list && list[0] && (context = ibv_open_device(list[0])));
	mine.is_rxe = !strncmp(ibv_get_device_name(list[0]), "rxe", 3);
	ibv_free_device_list(list);
	MUST(!ibv_query_gid(context, 1, gid_index, &mine.gid));
	MUST((pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	MUST((buffer = aligned_alloc(4096, BUFFER)));
	for (int i = 0; i < BUFFER; i++)
		buffer[i] = (uint8_t)(is_requester ? i : 0);
	MUST((mr = ibv_reg_mr(pd, buffer, BUFFER, ACCESS)));
	mine.addr = (uintptr_t)buffer;
	mine.rkey = mr->rkey;
}

static void connect_qp(const struct refusal *r)
{
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { 16, 16, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qp_access_flags = r->no_rights ? 0 : ACCESS };

	MUST((qp = ibv_create_qp(pd, &init)));
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	mine.qpn = qp->qp_num;
	mine.psn = (uint32_t)random() & 0xffffff;
	swap();
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)__builtin_ctz((unsigned)mtu / 128),
		.dest_qp_num = theirs.qpn,
		.rq_psn = theirs.psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 18, /* 4 ms */
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { theirs.gid, .sgid_index = (uint8_t)gid_index,
				      .hop_limit = 64 } },
	};
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER));
	/* 537 ms: the other one may be on an emulated machine. */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .sq_psn = mine.psn,
				     .timeout = 17,
				     .retry_cnt = 2,
				     .rnr_retry = (uint8_t)r->rnr_retry,
				     .max_rd_atomic = 4 };
	MUST(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

static uint32_t length_of(const struct refusal *r)
{
	return r->length & 0x80000000u ? (r->length & 0xff) * (uint32_t)mtu : r->length;
}

static void post_receive(uint32_t length)
{
	struct ibv_sge sge = { mine.addr + RECEIVES, length, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(!ibv_post_recv(qp, &wr, &bad));
}

static void post(enum ibv_wr_opcode opcode, uint32_t length, uint32_t offset, uint32_t rkey)
{
	struct ibv_sge sge = { mine.addr, length, mr->lkey };
	struct ibv_send_wr wr = { .opcode = opcode, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = theirs.addr + offset;
		wr.wr.atomic.rkey = rkey;
	} else {
		wr.wr.rdma.remote_addr = theirs.addr + offset;
		wr.wr.rdma.rkey = rkey;
	}
	MUST(!ibv_post_send(qp, &wr, &bad));
}

/* ---- Judging ---- */

static bool expect_status(const char *what, enum ibv_wc_status expected)
{
	struct ibv_wc wc;
	time_t until = time(NULL) + PATIENCE;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)) && time(NULL) < until)
		usleep(100);
	if (n == 1 && wc.status == expected)
		return true;
	printf("  %s: %s, expected %s\n", what, n == 1 ? ibv_wc_status_str(wc.status) : "nothing",
	       ibv_wc_status_str(expected));
	return false;
}

static bool expect_state(enum ibv_qp_state expected)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	MUST(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	if (attr.qp_state == expected)
		return true;
	printf("  state of the QP: %d, expected %d\n", attr.qp_state, expected);
	return false;
}

static bool expect_nothing(void)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(cq, 1, &wc) <= 0)
		return true;
	printf("  one completion too many: %s\n", ibv_wc_status_str(wc.status));
	return false;
}

/* The request, what is in front of it and one behind it, which is flushed. */
static bool request(const struct refusal *r)
{
	bool good = true, fails = r->status != IBV_WC_SUCCESS;

	for (unsigned i = 0; i < r->before; i++)
		post(IBV_WR_RDMA_WRITE, 8, RECEIVES, theirs.rkey);
	post(r->opcode, length_of(r), r->offset, r->bad_key ? theirs.rkey ^ BAD_KEY : theirs.rkey);
	if (fails)
		post(IBV_WR_RDMA_WRITE, 8, RECEIVES, theirs.rkey);
	for (unsigned i = 0; i < r->before; i++)
		good &= expect_status("what was before it", IBV_WC_SUCCESS);
	good &= expect_status("the request",
			      theirs.is_rxe && r->status_by_rxe ? r->status_by_rxe : r->status);
	if (fails)
		good &= expect_status("what was behind it", IBV_WC_WR_FLUSH_ERR);
	return good & expect_state(fails ? IBV_QPS_ERR : IBV_QPS_RTS);
}

static bool content_is(uint32_t length)
{
	for (uint32_t i = 0; i < length; i++) {
		if (buffer[RECEIVES + i] == (uint8_t)i)
			continue;
		printf("  byte %u is %u\n", i, buffer[RECEIVES + i]);
		return false;
	}
	return true;
}

/* What the responder sees of it, at its end. */
static bool respond(const struct refusal *r)
{
	enum ibv_wc_status first = mine.is_rxe && r->receive_by_rxe ? r->receive_by_rxe :
								      r->receive;
	bool good = expect_state(r->lives ? IBV_QPS_RTS : IBV_QPS_ERR);

	for (unsigned i = 0; i < r->receives + r->late_receive; i++)
		good &= expect_status("a receive", i ? IBV_WC_WR_FLUSH_ERR : first);
	if (r->late_receive)
		good &= content_is(length_of(r));
	return good;
}

static bool play(const struct refusal *r)
{
	bool good = true;

	connect_qp(r);
	for (unsigned i = 0; !is_requester && i < r->receives; i++)
		post_receive(16);
	swap();
	if (is_requester) {
		good = request(r);
	} else if (r->late_receive) {
		usleep(150000);
		post_receive(length_of(r));
	}
	swap();
	if (!is_requester)
		good = respond(r);
	good &= expect_nothing();
	MUST(!ibv_destroy_qp(qp));
	printf("%s %s\n", good ? "ok    " : "FAILED", r->name);
	return good;
}

/* Nothing is left of the responder, once connected. */
static bool play_dead_peer(void)
{
	bool good = true;
	char byte;

	connect_qp(&dead_peer);
	swap();
	if (!is_requester)
		raise(SIGKILL);
	MUST(read(oob, &byte, 1) <= 0);
	good = request(&dead_peer) & expect_nothing();
	MUST(!ibv_destroy_qp(qp));
	close(oob);
	printf("%s %s\n", good ? "ok    " : "FAILED", dead_peer.name);
	return good;
}

int main(int argc, char **argv)
{
	const char *address = argc > 4 ? argv[4] : NULL;
	unsigned cases = sizeof(refusals) / sizeof(refusals[0]), failed = 0;
	uint16_t port;
	int status;

	if (argc < 4) {
		fprintf(stderr, "usage: refusals GID_INDEX PATH_MTU PORT [ADDRESS]\n");
		return 2;
	}
	gid_index = atoi(argv[1]);
	mtu = atoi(argv[2]);
	port = (uint16_t)atoi(argv[3]);
	is_requester = address;
	setvbuf(stdout, NULL, _IOLBF, 0);
	srandom((unsigned)getpid());

	/* The one that dies is another process. */
	if (!is_requester && !fork()) {
		meet(port, NULL);
		open_device();
		play_dead_peer();
	}
	if (is_requester) {
		meet(port, address);
		open_device();
		failed += !play_dead_peer();
		cases++;
	} else {
		MUST(wait(&status) > 0);
	}
	meet(port, address);
	if (!is_requester)
		open_device();
	for (unsigned i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		failed += !play(&refusals[i]);
	printf("%u cases, %u failed\n", cases, failed);
	return failed > 0;
}
