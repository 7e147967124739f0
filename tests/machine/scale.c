/* SPDX-License-Identifier: MIT */
/*
 * Many queue pairs, many processes: that they all work, and what they cost. Sizes are measured, printed and bounded: of
 * private memory what the allocator has given out, of the segment what its file holds.
 */
#include "cases.h"

#include <sched.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "nic/qp.h"

#define MANY_QPS       10000u
#define MANY_PROCESSES 1000u
#define BOUND_OF_A_QP  2048.0 /* bytes, beside its rings */
#define PATIENCE_MS    300000

/* What was added since `before`, shared out among count objects; prints it. Bytes of one. */
static double cost(const char *what, struct memory_use before, unsigned count)
{
	struct memory_use now = memory_use();
	double private = (double)(now.private - before.private) / count;
	double segment = (double)(now.segment - before.segment) / count;

	printf("%s: %.0f bytes (private %.0f, segment %.0f)\n", what, private + segment, private,
	       segment);
	return private + segment;
}

static struct ibv_qp *make_qp(struct node *node, struct ibv_cq *cq, uint32_t send_wr,
			      uint32_t recv_wr, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = { .max_send_wr = send_wr,
			 .max_recv_wr = recv_wr,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(node->pd, &init);

	CHECK(qp);
	node_init_qp(qp, patient.access);
	return qp;
}

/* Polls count completions that all succeed. */
static void collect(struct ibv_cq *cq, unsigned count)
{
	uint64_t deadline = now_ms() + PATIENCE_MS;
	struct ibv_wc wc[64];

	while (count) {
		int n = ibv_poll_cq(cq, 64, wc);

		CHECK(n >= 0 && (unsigned)n <= count && now_ms() < deadline);
		for (int i = 0; i < n; i++) {
			if (wc[i].status)
				fprintf(stderr, "%s, cause %u\n", ibv_wc_status_str(wc[i].status),
					wc[i].vendor_err);
			CHECK_EQUAL(wc[i].status, IBV_WC_SUCCESS);
		}
		count -= (unsigned)n;
		if (!n)
			usleep(200);
	}
}

/* Every QP receives from and sends to another, all at once. */
static void exchange_all(struct node *node, struct ibv_cq *cq, struct ibv_qp **qps, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		CHECK_EQUAL(node_recv(node, qps[i], i, 4096, 64), 0);
	for (unsigned i = 0; i < count; i++)
		CHECK_EQUAL(node_send(node, qps[i], i, 0, 64), 0);
	collect(cq, 2 * count);
}

static void many_qps_of_one_process(void)
{
	uint64_t start = now_ms(), made;
	struct memory_use before;
	struct ibv_qp **qps = calloc(MANY_QPS, sizeof(*qps));
	struct node node;
	struct ibv_cq *cq;
	double bytes, rings;

	node_open(&node);
	cq = ibv_create_cq(node.ctx, 4 * MANY_QPS, NULL, NULL, 0);
	CHECK(cq && qps);
	before = memory_use();
	for (unsigned i = 0; i < MANY_QPS; i++)
		qps[i] = make_qp(&node, cq, 1, 1, NULL);
	for (unsigned i = 0; i < MANY_QPS; i += 2)
		node_connect_pair(&node, qps[i], qps[i + 1], &patient);
	made = now_ms();
	bytes = cost("an idle connected QP of one send and one receive", before, MANY_QPS);
	/* A request each, of one SGE, as they lie in the rings; and the word that names the receive. */
	rings = (double)(sizeof(struct nic_swqe) + sizeof(struct nic_rwqe) +
			 2 * sizeof(struct ibv_sge) + sizeof(uint64_t));
	printf("of this in the rings: %.0f bytes\n", rings);
	CHECK(bytes - rings <= BOUND_OF_A_QP);
	exchange_all(&node, cq, qps, MANY_QPS);
	printf("%u QPs made and connected in %llu ms, a message of each in %llu ms\n", MANY_QPS,
	       (unsigned long long)(made - start), (unsigned long long)(now_ms() - made));
	for (unsigned i = 0; i < MANY_QPS; i++)
		CHECK_EQUAL(ibv_destroy_qp(qps[i]), 0);
	CHECK_EQUAL(ibv_destroy_cq(cq), 0);
	node_close(&node);
	free(qps);
}

/* The same, each QP connected to one of another process. */
static void one_of_two(int line)
{
	struct ibv_qp **qps = calloc(MANY_QPS, sizeof(*qps));
	struct card card;
	struct node node;
	struct ibv_cq *cq;

	node_open(&node);
	cq = ibv_create_cq(node.ctx, 4 * MANY_QPS, NULL, NULL, 0);
	CHECK(cq && qps);
	for (unsigned i = 0; i < MANY_QPS; i++) {
		qps[i] = make_qp(&node, cq, 1, 1, NULL);
		card = node_card(&node, qps[i]);
		line_send(line, &card, sizeof(card));
		line_receive(line, &card, sizeof(card));
		node_connect(qps[i], &card, &patient);
	}
	say(line, 1);
	expect(line, 1);
	exchange_all(&node, cq, qps, MANY_QPS);
	say(line, 2);
	expect(line, 2);
	for (unsigned i = 0; i < MANY_QPS; i++)
		CHECK_EQUAL(ibv_destroy_qp(qps[i]), 0);
	CHECK_EQUAL(ibv_destroy_cq(cq), 0);
	node_close(&node);
	free(qps);
}

static void many_qps_of_two_processes(void)
{
	run_pair(one_of_two, one_of_two);
}

#define SHARERS	    1000u
#define SRQ_ENTRIES 256u
#define RQ_ENTRIES  16u

static void shared_receives(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = SRQ_ENTRIES, .max_sge = 1 } };
	struct ibv_qp *qps[SHARERS];
	struct ibv_srq *srq;
	struct memory_use before;
	struct node node;
	double apart, together;

	node_open(&node);
	before = memory_use();
	for (unsigned i = 0; i < SHARERS; i++)
		qps[i] = make_qp(&node, node.cq, 1, RQ_ENTRIES, NULL);
	apart = cost("1000 QPs with receive queues of 16", before, 1);
	for (unsigned i = 0; i < SHARERS; i++)
		CHECK_EQUAL(ibv_destroy_qp(qps[i]), 0);
	node_close(&node);

	node_open(&node);
	before = memory_use();
	srq = ibv_create_srq(node.pd, &init);
	CHECK(srq);
	for (unsigned i = 0; i < SHARERS; i++)
		qps[i] = make_qp(&node, node.cq, 1, 0, srq);
	together = cost("1000 QPs on one shared receive queue of 256", before, 1);
	for (unsigned i = 0; i < SHARERS; i++)
		CHECK_EQUAL(ibv_destroy_qp(qps[i]), 0);
	CHECK_EQUAL(ibv_destroy_srq(srq), 0);
	node_close(&node);
	printf("saved: %.0f KiB, %.0f %%\n", (apart - together) / 1024,
	       100 * (apart - together) / apart);
	CHECK(together < apart);
}

/* Seen by the server and all its clients. */
struct gathering {
	sem_t gate;    /* passed by all clients at once */
	sem_t arrived; /* raised by each client that has its card ready */
	struct place {
		struct card client, server;
		sem_t answered;
	} places[MANY_PROCESSES];
};

static struct gathering *gathering;

static void wait_on(sem_t *semaphore)
{
	while (sem_wait(semaphore))
		CHECK_EQUAL(errno, EINTR);
}

static void be_client(struct place *place)
{
	struct node node;
	struct ibv_qp *qp;

	wait_on(&gathering->gate);
	node_open(&node);
	qp = make_qp(&node, node.cq, 1, 1, NULL);
	place->client = node_card(&node, qp);
	sem_post(&gathering->arrived);
	wait_on(&place->answered);
	node_connect(qp, &place->server, &patient);
	CHECK_EQUAL(node_recv(&node, qp, 1, 4096, 64), 0);
	CHECK_EQUAL(node_send(&node, qp, 2, 0, 64), 0);
	collect(node.cq, 2);
	/* The server has all that it sent acknowledged before anybody leaves. */
	sem_post(&gathering->arrived);
	wait_on(&place->answered);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	node_close(&node);
}

static void be_server(void)
{
	struct ibv_qp **qps = calloc(MANY_PROCESSES, sizeof(*qps));
	uint64_t start = now_ms();
	struct node node;
	struct ibv_cq *cq;

	node_open(&node);
	cq = ibv_create_cq(node.ctx, 4 * MANY_PROCESSES, NULL, NULL, 0);
	CHECK(cq && qps);
	for (unsigned i = 0; i < MANY_PROCESSES; i++)
		sem_post(&gathering->gate);
	for (unsigned i = 0; i < MANY_PROCESSES; i++)
		wait_on(&gathering->arrived);
	printf("%u processes have opened the device after %llu ms\n", MANY_PROCESSES,
	       (unsigned long long)(now_ms() - start));
	for (unsigned i = 0; i < MANY_PROCESSES; i++) {
		qps[i] = make_qp(&node, cq, 1, 1, NULL);
		gathering->places[i].server = node_card(&node, qps[i]);
		CHECK_EQUAL(node_recv(&node, qps[i], i, 4096, 64), 0);
		sem_post(&gathering->places[i].answered);
		node_connect(qps[i], &gathering->places[i].client, &patient);
		CHECK_EQUAL(node_send(&node, qps[i], i, 0, 64), 0);
	}
	collect(cq, 2 * MANY_PROCESSES);
	for (unsigned i = 0; i < MANY_PROCESSES; i++)
		wait_on(&gathering->arrived);
	printf("each has sent and received after %llu ms; the server has %u descriptors\n",
	       (unsigned long long)(now_ms() - start), count_fds());
	for (unsigned i = 0; i < MANY_PROCESSES; i++)
		sem_post(&gathering->places[i].answered);
	for (unsigned i = 0; i < MANY_PROCESSES; i++)
		CHECK_EQUAL(ibv_destroy_qp(qps[i]), 0);
	CHECK_EQUAL(ibv_destroy_cq(cq), 0);
	node_close(&node);
	free(qps);
}

/* What this many processes need of a machine. */
static void require_room(void)
{
	struct rlimit files, processes;
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	CHECK_EQUAL(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	CHECK_EQUAL(setrlimit(RLIMIT_NOFILE, &files), 0);
	if (files.rlim_cur < 4 * MANY_PROCESSES + 100)
		SKIP("a server of %u processes needs %u descriptors, and %llu are allowed",
		     MANY_PROCESSES, 4 * MANY_PROCESSES + 100, (unsigned long long)files.rlim_cur);
	CHECK_EQUAL(getrlimit(RLIMIT_NPROC, &processes), 0);
	if (processes.rlim_cur < 2 * MANY_PROCESSES + 200)
		SKIP("%llu threads are allowed", (unsigned long long)processes.rlim_cur);
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	if (file)
		fclose(file);
	if (kib < 6ull << 20)
		SKIP("%u processes need 6 GiB of memory, and %llu MiB are available",
		     MANY_PROCESSES, kib >> 10);
}

static void many_processes(void)
{
	pid_t *clients = calloc(MANY_PROCESSES, sizeof(*clients));
	int status;

	require_room();
	/* There are 1,023 slots in a network namespace, and other tests take some. */
	become_root();
	if (unshare(CLONE_NEWNET))
		SKIP("no network namespace of its own: %s", strerror(errno));
	raise_loopback();
	gathering = mmap(NULL, sizeof(*gathering), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(clients && gathering != MAP_FAILED);
	sem_init(&gathering->gate, 1, 0);
	sem_init(&gathering->arrived, 1, 0);
	for (unsigned i = 0; i < MANY_PROCESSES; i++) {
		sem_init(&gathering->places[i].answered, 1, 0);
		clients[i] = fork();
		CHECK(clients[i] >= 0);
		if (!clients[i]) {
			alarm(PATIENCE_MS / 1000);
			be_client(&gathering->places[i]);
			_exit(0);
		}
	}
	alarm(PATIENCE_MS / 1000);
	be_server();
	for (unsigned i = 0; i < MANY_PROCESSES; i++) {
		CHECK_EQUAL(waitpid(clients[i], &status, 0), clients[i]);
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
	}
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "ten_thousand_qps_of_one_process", many_qps_of_one_process },
		{ "ten_thousand_qps_of_two_processes", many_qps_of_two_processes },
		{ "thousand_qps_on_one_srq", shared_receives },
		{ "thousand_processes_and_one_server", many_processes },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
