/* SPDX-License-Identifier: MIT */
/*
 * usage: thousands QPS BUSY MILLISECONDS        on each host of `uroce lab 2`
 *
 * Many RC queue pairs between one process of each host. Measures how long it takes to connect them and what memory an idle one
 * needs; some are busy with messages of which every byte is compared; then all are idle, and cost no CPU time, while the program sleeps on
 * its completion channel. In the end each is used once more. What is measured is printed and bounded.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "../faults/node.h"

#include "nic/qp.h"

#define PORT	      9978
#define MESSAGE	      1500u
#define BOUND_OF_A_QP 2688.0 /* bytes, beside its rings: docs/architecture.md */
#define IDLE_MS	      3000
#define IDLE_CPU_MS   30.0
#define PATIENCE_MS   300000

struct name {
	uint32_t qpn, psn;
};

struct flow {
	struct ibv_qp *qp;
	struct name mine, theirs;
	uint64_t sent, done, received;
};

static unsigned count, busy;
static int line;
static bool first;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct flow *flows;
static uint8_t (*memory)[2][MESSAGE]; /* of each: received, sent */
static union ibv_gid gid, other_gid;
static uint64_t received, all_sent, all_done;

/* Of the whole process: the program's threads and the helper. */
static double cpu_ms(void)
{
	struct rusage usage;

	CHECK_EQUAL(getrusage(RUSAGE_SELF, &usage), 0);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

static void meet(void)
{
	char byte = 0;

	CHECK_EQUAL(write(line, &byte, 1), 1);
	CHECK_EQUAL(recv(line, &byte, 1, MSG_WAITALL), 1);
}

static void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	CHECK_EQUAL(ibv_query_gid(context, 1, 0, &gid), 0);
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, (int)(4 * count), NULL, channel, 0);
	memory = calloc(count, sizeof(*memory));
	flows = calloc(count, sizeof(*flows));
	CHECK(pd && channel && cq && memory && flows);
	mr = ibv_reg_mr(pd, memory, count * sizeof(*memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK_EQUAL(write(line, &gid, sizeof(gid)), sizeof(gid));
	CHECK_EQUAL(recv(line, &other_gid, sizeof(other_gid), MSG_WAITALL), sizeof(other_gid));
}

static void post_receive(unsigned i)
{
	struct ibv_sge sge = { (uintptr_t)memory[i][0], MESSAGE, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 2 * i, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK_EQUAL(ibv_post_recv(flows[i].qp, &wr, &bad), 0);
}

static void make_qp(unsigned i)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	flows[i].qp = ibv_create_qp(pd, &init);
	CHECK(flows[i].qp);
	flows[i].mine = (struct name){ flows[i].qp->qp_num, i * 2654435761u & 0xffffff };
	node_init_qp(flows[i].qp, 0);
}

static void exchange_names(void)
{
	/* Less than a socket holds at a time. */
	for (unsigned i = 0; i < count; i += 1000) {
		struct name names[1000];
		unsigned n = count - i < 1000 ? count - i : 1000;

		for (unsigned j = 0; j < n; j++)
			names[j] = flows[i + j].mine;
		CHECK_EQUAL(write(line, names, n * sizeof(*names)), n * sizeof(*names));
		CHECK_EQUAL(recv(line, names, n * sizeof(*names), MSG_WAITALL), n * sizeof(*names));
		for (unsigned j = 0; j < n; j++)
			flows[i + j].theirs = names[j];
	}
}

static void connect_all(void)
{
	for (unsigned i = 0; i < count; i++) {
		struct card card = { .qpn = flows[i].theirs.qpn, .gid = other_gid };
		struct link_attr attr = node_defaults;

		attr.sq_psn = flows[i].mine.psn;
		attr.rq_psn = flows[i].theirs.psn;
		node_connect(flows[i].qp, &card, &attr);
	}
}

static uint8_t byte_of(bool of_first, unsigned i, uint64_t number, unsigned at)
{
	uint32_t x = (i * 2 + of_first) * 0x9e3779b1u ^ (uint32_t)number * 0x85ebca6bu ^ at * 0xc2b2ae35u;

	return (uint8_t)(x >> 24 ^ x >> 13);
}

static void send_on(unsigned i)
{
	struct ibv_sge sge = { (uintptr_t)memory[i][1], 0, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2 * i + 1, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 }, *bad;

	flows[i].sent++;
	all_sent++;
	sge.length = 1 + (uint32_t)(flows[i].sent * 131 + i) % MESSAGE;
	for (unsigned at = 0; at < sge.length; at++)
		memory[i][1][at] = byte_of(first, i, flows[i].sent, at);
	CHECK_EQUAL(ibv_post_send(flows[i].qp, &wr, &bad), 0);
}

static void take(const struct ibv_wc *wc)
{
	unsigned i = (unsigned)(wc->wr_id / 2);
	struct flow *flow = &flows[i];

	if (wc->status)
		fprintf(stderr, "%s, cause %u\n", ibv_wc_status_str(wc->status), wc->vendor_err);
	CHECK_EQUAL(wc->status, IBV_WC_SUCCESS);
	CHECK_EQUAL(wc->qp_num, flow->qp->qp_num);
	if (wc->wr_id & 1) {
		flow->done++;
		all_done++;
		return;
	}
	flow->received++;
	received++;
	CHECK_EQUAL(wc->byte_len, 1 + (flow->received * 131 + i) % MESSAGE);
	for (unsigned at = 0; at < wc->byte_len; at++)
		CHECK(memory[i][0][at] == byte_of(!first, i, flow->received, at));
	post_receive(i);
}

static int poll_some(void)
{
	struct ibv_wc wc[64];
	int n = ibv_poll_cq(cq, 64, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		take(&wc[i]);
	return n;
}

/* Each of the first n sends one message at a time, until the time is over; returns how many were received. */
static uint64_t keep_busy(unsigned n, uint64_t ms)
{
	uint64_t end = now_ms() + ms, before = received, patience;

	while (now_ms() < end) {
		for (unsigned i = 0; i < n; i++) {
			/* One at a time: it is done, and so far is the other end. */
			if (flows[i].sent == flows[i].done && flows[i].sent <= flows[i].received)
				send_on(i);
		}
		poll_some();
	}
	/* All that was sent is done, and all that was received: both say how much that is. */
	for (unsigned i = 0; i < n; i++) {
		uint64_t theirs;

		CHECK_EQUAL(write(line, &flows[i].sent, sizeof(theirs)), sizeof(theirs));
		CHECK_EQUAL(recv(line, &theirs, sizeof(theirs), MSG_WAITALL), sizeof(theirs));
		patience = now_ms() + PATIENCE_MS;
		while (flows[i].received < theirs) {
			poll_some();
			CHECK(now_ms() < patience);
		}
	}
	patience = now_ms() + PATIENCE_MS;
	while (all_done < all_sent) {
		poll_some();
		CHECK(now_ms() < patience);
	}
	meet();
	return received - before;
}

static void stay_idle(void)
{
	struct pollfd readable = { .fd = channel->fd, .events = POLLIN };
	double before;

	meet();
	CHECK_EQUAL(ibv_req_notify_cq(cq, 0), 0);
	CHECK_EQUAL(poll_some(), 0);
	usleep(300000); /* whatever is left to be done */
	before = cpu_ms();
	CHECK_EQUAL(poll(&readable, 1, IDLE_MS), 0);
	printf("%u idle QPs took %.1f ms of CPU time in %d ms\n", count, cpu_ms() - before, IDLE_MS);
	CHECK(cpu_ms() - before <= IDLE_CPU_MS);
	meet();
}

static void connect_line(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (first) {
		CHECK_EQUAL(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
		CHECK_EQUAL(listen(fd, 1), 0);
		line = accept(fd, NULL, NULL);
		CHECK(line >= 0);
		return;
	}
	struct addrinfo *found, hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };

	CHECK_EQUAL(getaddrinfo(getenv("UROCE_LAB_PEER"), NULL, &hints, &found), 0);
	((struct sockaddr_in *)found->ai_addr)->sin_port = htons(PORT);
	for (int i = 0; connect(fd, found->ai_addr, found->ai_addrlen); i++) {
		CHECK(i < 1000);
		usleep(10000);
	}
	freeaddrinfo(found);
	line = fd;
}

int main(int argc, char **argv)
{
	const char *host = getenv("UROCE_LAB_HOST");
	struct memory_use before, after;
	uint64_t start, made;
	double each, rings;

	if (argc != 4 || !host) {
		fprintf(stderr, "usage: thousands QPS BUSY MILLISECONDS\n");
		return 2;
	}
	count = (unsigned)atoi(argv[1]);
	busy = (unsigned)atoi(argv[2]);
	first = atoi(host) == 1;
	setvbuf(stdout, NULL, _IOLBF, 0); /* a check that fails does not flush */
	alarm(PATIENCE_MS / 1000);
	connect_line();
	open_all();
	/* What is there once for all is there before one is measured. */
	before = memory_use();
	start = now_ms();
	for (unsigned i = 0; i < count; i++)
		make_qp(i);
	exchange_names();
	connect_all();
	made = now_ms();
	after = memory_use();
	each = (double)(after.private - before.private + after.segment - before.segment) / count;
	rings = (double)(sizeof(struct nic_swqe) + sizeof(struct nic_rwqe) + 2 * sizeof(struct ibv_sge) + sizeof(uint64_t));
	printf("%u QPs made and connected in %llu ms; each %.0f bytes (private %.0f, segment %.0f), of this in the rings %.0f\n",
	       count, (unsigned long long)(made - start), each, (double)(after.private - before.private) / count,
	       (double)(after.segment - before.segment) / count, rings);
	CHECK(each - rings <= BOUND_OF_A_QP);
	for (unsigned i = 0; i < count; i++)
		post_receive(i);
	meet();
	start = now_ms();
	uint64_t messages = keep_busy(busy, strtoull(argv[3], NULL, 10));

	printf("%u busy QPs received %llu messages in %llu ms\n", busy, (unsigned long long)messages,
	       (unsigned long long)(now_ms() - start));
	CHECK(messages >= busy);
	stay_idle();
	start = now_ms();
	for (unsigned i = 0; i < count; i++)
		send_on(i);
	CHECK_EQUAL(keep_busy(count, 0), count);
	printf("a message of each of %u in %llu ms\n", count, (unsigned long long)(now_ms() - start));
	for (unsigned i = 0; i < count; i++)
		CHECK_EQUAL(ibv_destroy_qp(flows[i].qp), 0);
	meet();
	return 0;
}
