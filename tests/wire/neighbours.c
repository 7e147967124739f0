/* SPDX-License-Identifier: MIT */
/*
 * usage: neighbours MILLISECONDS FAMILY PERMILLE        on each host of `uroce lab 2`; FAMILY 4 or 6
 *
 * Messages of UD and UC from the first host's process to one of the second host, where meanwhile other processes open and close the
 * device, or are killed with it open. Counts what is lost and what comes late: nothing of either while nobody comes and goes, and
 * else no more than so many in a thousand. No more messages are under way than sockets and queues hold, so that these lose none.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "../faults/node.h"

#define PORT	   9977
#define UNDER_WAY  32u
#define RECEIVES   256u
#define MESSAGE	   64u
#define GRH	   40u
#define STALL_MS   200 /* without a message the rest is taken for lost */
#define NEIGHBOURS 3
#define QKEY	   0x1234u

enum phase { NOBODY, CLOSING, KILLED, PHASES };
enum { UD, UC, TYPES };

static const char *phase_names[PHASES] = { "alone", "others open and close", "others are killed" };
static const char *type_names[TYPES] = { "UD", "UC" };

struct hello {
	uint32_t qpns[TYPES];
	union ibv_gid gid;
};

struct message {
	uint32_t type, phase;
	uint64_t number; /* of its type, in its phase; from 1 */
};

struct tally {
	uint64_t arrived, late, last;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qps[TYPES];
static uint8_t memory[TYPES][RECEIVES][GRH + MESSAGE];
static int gid_index, line;
static union ibv_gid gid;

static void open_device(bool v6)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	const char *address = getenv(v6 ? "UROCE_LAB_IPV6" : "UROCE_LAB_IPV4");
	union ibv_gid found;

	CHECK(list && list[0] && address);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	if (!v6)
		gid.raw[10] = gid.raw[11] = 0xff;
	CHECK_EQUAL(inet_pton(v6 ? AF_INET6 : AF_INET, address, gid.raw + (v6 ? 0 : 12)), 1);
	for (;; gid_index++) {
		CHECK_EQUAL(ibv_query_gid(context, 1, gid_index, &found), 0);
		if (!memcmp(&found, &gid, sizeof(gid)))
			break;
	}
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 2 * TYPES * RECEIVES, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(pd && cq && mr);
}

static void make_qp(int type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = RECEIVES,
			 .max_recv_wr = RECEIVES,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = MESSAGE },
		.qp_type = type == UD ? IBV_QPT_UD : IBV_QPT_UC,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	qps[type] = ibv_create_qp(pd, &init);
	CHECK(qps[type]);
	CHECK_EQUAL(ibv_modify_qp(qps[type], &attr,
				  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					  (type == UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
		    0);
}

static struct ibv_ah_attr path_to(const union ibv_gid *to)
{
	return (struct ibv_ah_attr){ .is_global = 1,
				     .port_num = 1,
				     .grh = { .dgid = *to, .sgid_index = (uint8_t)gid_index, .hop_limit = 64 } };
}

static void connect_qp(int type, const struct hello *other)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024 };

	if (type == UC) {
		attr.dest_qp_num = other->qpns[UC];
		attr.ah_attr = path_to(&other->gid);
	}
	CHECK_EQUAL(ibv_modify_qp(qps[type], &attr,
				  IBV_QP_STATE | (type == UC ? IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN : 0)),
		    0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK_EQUAL(ibv_modify_qp(qps[type], &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static void post_receive(int type, unsigned i)
{
	struct ibv_sge sge = { (uintptr_t)memory[type][i], GRH + MESSAGE, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = (uint64_t)type << 32 | i, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK_EQUAL(ibv_post_recv(qps[type], &wr, &bad), 0);
}

static struct hello meet(void)
{
	struct hello mine = { .qpns = { qps[UD]->qp_num, qps[UC]->qp_num }, .gid = gid }, theirs;

	CHECK_EQUAL(write(line, &mine, sizeof(mine)), sizeof(mine));
	CHECK_EQUAL(recv(line, &theirs, sizeof(theirs), MSG_WAITALL), sizeof(theirs));
	return theirs;
}

/* The number that the other end has heard of last, of both types together; true when it has said something. */
static bool hear(uint64_t *heard, int ms)
{
	struct pollfd readable = { .fd = line, .events = POLLIN };

	if (poll(&readable, 1, ms) <= 0)
		return false;
	CHECK_EQUAL(recv(line, heard, sizeof(*heard), MSG_WAITALL), sizeof(*heard));
	return true;
}

static void send_phase(enum phase phase, uint64_t ms, struct ibv_ah *ah, const struct hello *other)
{
	uint64_t end = now_ms() + ms, count = 0, heard = 0;
	struct message message = { .phase = phase };
	struct ibv_wc wc[UNDER_WAY];

	while (now_ms() < end) {
		while (count - heard >= UNDER_WAY) {
			if (!hear(&heard, STALL_MS))
				heard = count;
		}
		while (count - heard < UNDER_WAY) {
			message.type = (uint32_t)(count % TYPES);
			message.number = count++ / TYPES + 1;
			struct ibv_sge sge = { (uintptr_t)&message, sizeof(message), 0 };
			struct ibv_send_wr wr = {
				.sg_list = &sge,
				.num_sge = 1,
				.opcode = IBV_WR_SEND,
				.send_flags = IBV_SEND_INLINE,
			}, *bad;

			if (message.type == UD) {
				wr.wr.ud.ah = ah;
				wr.wr.ud.remote_qpn = other->qpns[UD];
				wr.wr.ud.remote_qkey = QKEY;
			}
			CHECK_EQUAL(ibv_post_send(qps[message.type], &wr, &bad), 0);
		}
		for (int n; (n = ibv_poll_cq(cq, UNDER_WAY, wc)) > 0;) {
			for (int i = 0; i < n; i++)
				CHECK_EQUAL(wc[i].status, IBV_WC_SUCCESS);
		}
	}
	/* What is still on its way arrives, and what was said of it is not for the next phase. */
	while (heard < count && hear(&heard, 5 * STALL_MS))
		continue;
	uint64_t sent[2] = { UINT64_MAX, count };

	CHECK_EQUAL(write(line, sent, sizeof(sent)), sizeof(sent));
	do
		CHECK(hear(&heard, TIMEOUT_MS));
	while (heard != UINT64_MAX);
}

/* Opens the device and a port, and closes it after a moment, or is killed then. */
static void be_neighbour(enum phase phase)
{
	for (uint32_t i = 0;; i++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			gid_index = 0;
			memset(&gid, 0, sizeof(gid));
			open_device(false);
			make_qp(UD);
			connect_qp(UD, NULL);
			usleep(3000 + (i * 7919 + (uint32_t)getpid() * 104729) % 20000);
			if (phase == KILLED)
				kill(getpid(), SIGKILL);
			CHECK_EQUAL(ibv_destroy_qp(qps[UD]), 0);
			CHECK_EQUAL(ibv_dereg_mr(mr), 0);
			CHECK_EQUAL(ibv_destroy_cq(cq), 0);
			CHECK_EQUAL(ibv_dealloc_pd(pd), 0);
			CHECK_EQUAL(ibv_close_device(context), 0);
			_exit(0);
		}
		waitpid(child, NULL, 0);
		usleep((i * 31337 + (uint32_t)getpid()) % 10000);
	}
}

/* Forked by one who has not opened the device: it directs the neighbours of each phase, and ends with the last. */
static void direct_neighbours(int orders)
{
	uint32_t phase;

	while (recv(orders, &phase, sizeof(phase), 0) == sizeof(phase)) {
		pid_t pids[NEIGHBOURS];

		for (int i = 0; i < NEIGHBOURS && phase != NOBODY; i++) {
			pids[i] = fork();
			CHECK(pids[i] >= 0);
			if (!pids[i]) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				be_neighbour(phase);
			}
		}
		if (recv(orders, &phase, sizeof(phase), 0) != sizeof(phase))
			break;
		for (int i = 0; i < NEIGHBOURS && phase != NOBODY; i++) {
			kill(pids[i], SIGKILL);
			waitpid(pids[i], NULL, 0);
		}
	}
	_exit(0);
}

static void take(struct tally tallies[TYPES], enum phase phase, const struct ibv_wc *wc)
{
	int type = (int)(wc->wr_id >> 32);
	unsigned i = wc->wr_id & 0xffff;
	struct tally *tally = &tallies[type];
	struct message message;

	CHECK_EQUAL(wc->status, IBV_WC_SUCCESS);
	memcpy(&message, memory[type][i] + (type == UD ? GRH : 0), sizeof(message));
	post_receive(type, i);
	CHECK_EQUAL(message.type, type);
	CHECK_EQUAL(message.phase, phase);
	tally->arrived++;
	if (message.number < tally->last)
		tally->late++;
	else
		tally->last = message.number;
}

/* False: more was lost, or came late, than may be. */
static bool receive_phase(enum phase phase, uint64_t permille)
{
	struct tally tallies[TYPES] = { 0 };
	uint64_t sent[2], arrived = 0, heard, told = 0, idle_since = now_ms(), finished = UINT64_MAX;
	struct pollfd readable = { .fd = line, .events = POLLIN };
	struct ibv_wc wc[64];
	bool good = true;

	while (finished == UINT64_MAX || now_ms() < finished + 50) {
		int n = ibv_poll_cq(cq, 64, wc);

		for (int i = 0; i < n; i++)
			take(tallies, phase, &wc[i]);
		arrived += (uint64_t)n;
		if (n > 0)
			idle_since = now_ms();
		/* Both types take turns. */
		heard = TYPES * (tallies[UD].last > tallies[UC].last ? tallies[UD].last : tallies[UC].last);
		if (heard >= told + UNDER_WAY / 4 || (heard > told && now_ms() > idle_since + 2)) {
			CHECK_EQUAL(write(line, &heard, sizeof(heard)), sizeof(heard));
			told = heard;
		}
		if (finished == UINT64_MAX && poll(&readable, 1, 0) > 0) {
			CHECK_EQUAL(recv(line, sent, sizeof(sent), MSG_WAITALL), sizeof(sent));
			finished = now_ms();
		}
		if (!n)
			usleep(50);
	}
	heard = UINT64_MAX;
	CHECK_EQUAL(write(line, &heard, sizeof(heard)), sizeof(heard));
	for (int type = 0; type < TYPES; type++) {
		uint64_t of_type = (sent[1] + (type == UD)) / TYPES, lost = of_type - tallies[type].arrived;

		printf("%s, %s: %llu sent, %llu lost, %llu late\n", type_names[type], phase_names[phase],
		       (unsigned long long)of_type, (unsigned long long)lost, (unsigned long long)tallies[type].late);
		good &= lost + tallies[type].late <= (phase == NOBODY ? 0 : of_type * permille / 1000);
		/* UC keeps the order of what it delivers. */
		good &= type != UC || !tallies[type].late;
	}
	return good;
}

static int be_sender(uint64_t ms, bool v6)
{
	struct addrinfo *found;

	while (getaddrinfo("host2", NULL, &(struct addrinfo){ .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, &found))
		usleep(10000);
	((struct sockaddr_in *)found->ai_addr)->sin_port = htons(PORT);
	line = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	for (int i = 0; connect(line, found->ai_addr, found->ai_addrlen); i++) {
		CHECK(i < 1000);
		usleep(10000);
	}
	freeaddrinfo(found);
	setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	open_device(v6);
	make_qp(UD);
	make_qp(UC);
	struct hello other = meet();
	struct ibv_ah_attr path = path_to(&other.gid);
	struct ibv_ah *ah = ibv_create_ah(pd, &path);
	char ready;

	CHECK(ah);
	connect_qp(UD, &other);
	connect_qp(UC, &other);
	for (enum phase phase = 0; phase < PHASES; phase++) {
		CHECK_EQUAL(recv(line, &ready, 1, MSG_WAITALL), 1);
		send_phase(phase, ms, ah, &other);
	}
	return 0;
}

static int be_receiver(bool v6, uint64_t permille)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), orders[2];
	bool good = true;

	CHECK_EQUAL(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, orders), 0);
	fflush(NULL);
	pid_t director = fork();

	CHECK(director >= 0);
	if (!director) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(orders[0]);
		close(listener);
		direct_neighbours(orders[1]);
	}
	close(orders[1]);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	CHECK_EQUAL(bind(listener, (struct sockaddr *)&any, sizeof(any)), 0);
	CHECK_EQUAL(listen(listener, 1), 0);
	line = accept(listener, NULL, NULL);
	CHECK(line >= 0);
	setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
	open_device(v6);
	make_qp(UD);
	make_qp(UC);
	for (unsigned i = 0; i < RECEIVES; i++) {
		post_receive(UD, i);
		post_receive(UC, i);
	}
	struct hello other = meet();

	connect_qp(UD, &other);
	connect_qp(UC, &other);
	for (uint32_t phase = 0; phase < PHASES; phase++) {
		CHECK_EQUAL(send(orders[0], &phase, sizeof(phase), 0), sizeof(phase));
		CHECK_EQUAL(write(line, "", 1), 1);
		good &= receive_phase(phase, permille);
		CHECK_EQUAL(send(orders[0], &phase, sizeof(phase), 0), sizeof(phase));
		usleep(100000);
	}
	close(orders[0]);
	waitpid(director, NULL, 0);
	return !good;
}

int main(int argc, char **argv)
{
	const char *host = getenv("UROCE_LAB_HOST");

	if (argc != 4 || !host) {
		fprintf(stderr, "usage: neighbours MILLISECONDS FAMILY PERMILLE\n");
		return 2;
	}
	bool v6 = *argv[2] == '6';

	return atoi(host) == 1 ? be_sender(strtoull(argv[1], NULL, 10), v6) : be_receiver(v6, strtoull(argv[3], NULL, 10));
}
