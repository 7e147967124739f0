/* SPDX-License-Identifier: MIT */
/* Actors and verbs objects of the fault tests. See node.h. With KEEP_HANGING in the environment what
 * is wrong stays there for a debugger. */
#include "node.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define CONNECTED 0x636f6e6eu

static bool is_actor;

const struct link_attr node_defaults = {
	.mtu = IBV_MTU_1024,
	.timeout = 14, /* 67 ms: a peer that answers must get a CPU first */
	.retry_cnt = 7,
	.rnr_retry = 7,
	.min_rnr_timer = 1,
	.rd_atomic = 16,
	.dest_rd_atomic = 16,
	.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
};

static void end_badly(void)
{
	if (getenv("KEEP_HANGING"))
		pause();
	_exit(1);
}

void check_that(bool holds, const char *text, const char *file, int line)
{
	if (holds)
		return;
	fprintf(stderr, "%s:%d: [%d] not so: %s (errno: %s)\n", file, line, (int)getpid(), text,
		strerror(errno));
	end_badly();
}

void check_equal(int64_t a, int64_t b, const char *a_text, const char *b_text, const char *file,
		 int line)
{
	if (a == b)
		return;
	fprintf(stderr, "%s:%d: [%d] %s is %lld, %s is %lld (errno: %s)\n", file, line,
		(int)getpid(), a_text, (long long)a, b_text, (long long)b, strerror(errno));
	end_badly();
}

uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void actor_start(struct actor *actor, actor_main *run, void *arg)
{
	int lines[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, lines))
		abort();
	fflush(NULL);
	actor->pid = fork();
	if (actor->pid < 0)
		abort();
	if (!actor->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		is_actor = true;
		close(lines[0]);
		run(lines[1], arg);
		exit(0);
	}
	close(lines[1]);
	actor->line = lines[0];
}

int actor_end(struct actor *actor)
{
	int pidfd = (int)syscall(SYS_pidfd_open, actor->pid, 0);
	struct pollfd ended = { .fd = pidfd, .events = POLLIN };
	int status = 0, n = poll(&ended, 1, TIMEOUT_MS);

	if (n != 1) {
		fprintf(stderr, "actor %d does not end\n", (int)actor->pid);
		if (getenv("KEEP_HANGING"))
			pause();
		kill(actor->pid, SIGKILL);
	}
	waitpid(actor->pid, &status, 0);
	close(pidfd);
	close(actor->line);
	if (n != 1)
		return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool line_send(int line, const void *bytes, size_t size)
{
	bool sent = send(line, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;

	if (is_actor)
		CHECK(sent);
	return sent;
}

bool line_receive(int line, void *bytes, size_t size)
{
	struct pollfd readable = { .fd = line, .events = POLLIN };
	bool received = poll(&readable, 1, TIMEOUT_MS) == 1 &&
			recv(line, bytes, size, 0) == (ssize_t)size;

	if (is_actor)
		CHECK(received);
	return received;
}

void say(int line, uint32_t word)
{
	line_send(line, &word, sizeof(word));
}

void expect(int line, uint32_t word)
{
	uint32_t heard = 0;

	line_receive(line, &heard, sizeof(heard));
	if (is_actor)
		CHECK_EQUAL(heard, word);
}

void node_open(struct node *node)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	memset(node, 0, sizeof(*node));
	CHECK(list && list[0]);
	node->ctx = ibv_open_device(list[0]);
	CHECK(node->ctx);
	ibv_free_device_list(list);
	node->pd = ibv_alloc_pd(node->ctx);
	CHECK(node->pd);
	node->channel = ibv_create_comp_channel(node->ctx);
	CHECK(node->channel);
	node->cq = ibv_create_cq(node->ctx, 4 * NODE_DEPTH, NULL, node->channel, 0);
	CHECK(node->cq);
	node->buf = aligned_alloc(4096, NODE_BYTES);
	CHECK(node->buf);
	memset(node->buf, 0, NODE_BYTES);
	node->mr = ibv_reg_mr(node->pd, node->buf, NODE_BYTES,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(node->mr);
	CHECK_EQUAL(ibv_query_gid(node->ctx, 1, 0, &node->gid), 0);
}

void node_close(struct node *node)
{
	CHECK_EQUAL(ibv_dereg_mr(node->mr), 0);
	CHECK_EQUAL(ibv_destroy_cq(node->cq), 0);
	CHECK_EQUAL(ibv_destroy_comp_channel(node->channel), 0);
	CHECK_EQUAL(ibv_dealloc_pd(node->pd), 0);
	CHECK_EQUAL(ibv_close_device(node->ctx), 0);
	free(node->buf);
}

void node_init_qp(struct ibv_qp *qp, unsigned access)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11, .qp_access_flags = access
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		   (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);

	CHECK_EQUAL(ibv_modify_qp(qp, &attr, mask), 0);
}

struct ibv_qp *node_qp(struct node *node, enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = node->cq,
		.recv_cq = node->cq,
		.srq = srq,
		.cap = { .max_send_wr = NODE_DEPTH,
			 .max_recv_wr = NODE_DEPTH,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = type,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(node->pd, &init);

	CHECK(qp);
	node_init_qp(qp, node_defaults.access);
	return qp;
}

struct card node_card(const struct node *node, const struct ibv_qp *qp)
{
	return (struct card){ .qpn = qp->qp_num,
			      .rkey = node->mr->rkey,
			      .addr = (uintptr_t)node->buf,
			      .gid = node->gid };
}

void node_connect(struct ibv_qp *qp, const struct card *card, const struct link_attr *link)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type != IBV_QPT_UD) {
		attr.path_mtu = link->mtu;
		attr.dest_qp_num = card->qpn;
		attr.rq_psn = link->rq_psn;
		attr.ah_attr = (struct ibv_ah_attr){ .is_global = 1,
						     .port_num = 1,
						     .grh = { .dgid = card->gid, .hop_limit = 1 } };
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (qp->qp_type == IBV_QPT_RC) {
		attr.max_dest_rd_atomic = link->dest_rd_atomic;
		attr.min_rnr_timer = link->min_rnr_timer;
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	CHECK_EQUAL(ibv_modify_qp(qp, &attr, rtr), 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = link->sq_psn;
	if (qp->qp_type == IBV_QPT_RC) {
		attr.timeout = link->timeout;
		attr.retry_cnt = link->retry_cnt;
		attr.rnr_retry = link->rnr_retry;
		attr.max_rd_atomic = link->rd_atomic;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	}
	CHECK_EQUAL(ibv_modify_qp(qp, &attr, rts), 0);
}

void node_connect_pair(struct node *node, struct ibv_qp *a, struct ibv_qp *b,
		       const struct link_attr *attr)
{
	struct card a_card = node_card(node, a), b_card = node_card(node, b);

	node_connect(a, &b_card, attr);
	node_connect(b, &a_card, attr);
}

void node_meet(struct node *node, struct ibv_qp *qp, int line, struct card *other,
	       const struct link_attr *attr)
{
	struct card card = node_card(node, qp);

	line_send(line, &card, sizeof(card));
	line_receive(line, other, sizeof(*other));
	node_connect(qp, other, attr);
	say(line, CONNECTED);
	expect(line, CONNECTED);
}

bool introduce(struct actor *a, struct actor *b)
{
	struct card a_card, b_card;

	if (!line_receive(a->line, &a_card, sizeof(a_card)) ||
	    !line_receive(b->line, &b_card, sizeof(b_card)))
		return false;
	a->qpn = a_card.qpn;
	b->qpn = b_card.qpn;
	a->slot_socket = slot_socket(a->qpn);
	b->slot_socket = slot_socket(b->qpn);
	if (!line_send(a->line, &b_card, sizeof(b_card)) ||
	    !line_send(b->line, &a_card, sizeof(a_card)))
		return false;
	for (int i = 0; i < 2; i++) {
		struct actor *actor = i ? b : a;
		uint32_t word = 0;

		if (!line_receive(actor->line, &word, sizeof(word)) || word != CONNECTED)
			return false;
	}
	say(a->line, CONNECTED);
	say(b->line, CONNECTED);
	return true;
}

static struct ibv_sge sge_of(const struct node *node, uint32_t offset, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)node->buf + offset,
				 .length = length,
				 .lkey = node->mr->lkey };
}

int node_recv(struct node *node, struct ibv_qp *qp, uint64_t wr_id, uint32_t offset,
	      uint32_t length)
{
	struct ibv_sge sge = sge_of(node, offset, length);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

int node_srq_recv(struct node *node, struct ibv_srq *srq, uint64_t wr_id, uint32_t offset,
		  uint32_t length)
{
	struct ibv_sge sge = sge_of(node, offset, length);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

int node_send(struct node *node, struct ibv_qp *qp, uint64_t wr_id, uint32_t offset,
	      uint32_t length)
{
	struct ibv_sge sge = sge_of(node, offset, length);
	struct ibv_send_wr wr = { .wr_id = wr_id,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND },
			   *bad;

	return ibv_post_send(qp, &wr, &bad);
}

int node_rdma(struct node *node, struct ibv_qp *qp, uint64_t wr_id, enum ibv_wr_opcode opcode,
	      uint32_t offset, uint32_t length, uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge sge = sge_of(node, offset, length);
	struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode },
			   *bad;

	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote_addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = remote_addr;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(qp, &wr, &bad);
}

bool node_poll(struct ibv_cq *cq, struct ibv_wc *wc, uint32_t ms)
{
	uint64_t deadline = now_ms() + ms;

	do {
		int n = ibv_poll_cq(cq, 1, wc);

		CHECK(n >= 0);
		if (n)
			return true;
		usleep(50);
	} while (now_ms() < deadline);
	return false;
}

void node_expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	CHECK(node_poll(cq, &wc, TIMEOUT_MS));
	CHECK_EQUAL(wc.wr_id, wr_id);
	CHECK_EQUAL(wc.status, status);
}

enum ibv_qp_state node_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	CHECK_EQUAL(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void node_expect_event(struct ibv_context *ctx, enum ibv_event_type type, const void *element)
{
	struct pollfd readable = { .fd = ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	CHECK_EQUAL(poll(&readable, 1, TIMEOUT_MS), 1);
	CHECK_EQUAL(ibv_get_async_event(ctx, &event), 0);
	CHECK_EQUAL(event.event_type, type);
	CHECK((const void *)event.element.qp == element);
	ibv_ack_async_event(&event);
}

bool over_the_wire(void)
{
	const char *transport = getenv("UROCE_TRANSPORT");

	return transport && !strcmp(transport, "roce");
}

/* Is it a socket of the wire? */
static bool is_of_the_wire(int fd)
{
	int domain;

	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &(socklen_t){ sizeof(domain) }) &&
	       (over_the_wire() || domain == AF_INET || domain == AF_INET6);
}

unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	for (struct dirent *entry; dir && (entry = readdir(dir));)
		count += entry->d_name[0] == '.' || !is_of_the_wire(atoi(entry->d_name));
	closedir(dir);
	return count - 3; /* ., .. and the directory itself */
}

/* The segment's file, which has the lowest number of those that have its name. */
static int segment_fd(void)
{
	char path[32], target[64];

	for (int fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);

		ssize_t length = readlink(path, target, sizeof(target) - 1);

		target[length < 0 ? 0 : length] = 0;
		if (!strncmp(target, "/memfd:uroce ", 13))
			return fd;
	}
	CHECK(false);
	return -1;
}

struct memory_use memory_use(void)
{
	struct mallinfo2 info = mallinfo2();
	struct stat stat;

	CHECK_EQUAL(fstat(segment_fd(), &stat), 0);
	return (struct memory_use){ .private = info.uordblks + info.hblkhd, .segment = (size_t)stat.st_blocks * 512 };
}

static unsigned count_lines(const char *path, const char *with)
{
	FILE *file = fopen(path, "r");
	char line[1024];
	unsigned count = 0;

	while (file && fgets(line, sizeof(line), file))
		count += !!strstr(line, with);
	if (file)
		fclose(file);
	return count;
}

unsigned count_maps(void)
{
	return count_lines("/proc/self/maps", "memfd:uroce (");
}

bool is_shared(const void *at)
{
	FILE *maps = fopen("/proc/thread-self/maps", "re"); /* the main thread may have ended */
	unsigned long from, to;
	bool found = false;
	char line[512];

	while (maps && !found && fgets(line, sizeof(line), maps))
		found = sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)at >= from &&
			(uintptr_t)at < to;
	if (maps)
		fclose(maps);
	return found && strstr(line, "uroce-pages") && strstr(line, " rw-s ");
}

uint64_t slot_socket(uint32_t qpn)
{
	FILE *file = fopen("/proc/net/unix", "r");
	char line[256], name[64], expected[32];
	uint64_t inode = 0, found;

	snprintf(expected, sizeof(expected), "@uroce/%u", qpn >> 14);
	while (file && !inode && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%*s %*s %*s %*s %*s %*s %" SCNu64 " %63s", &found, name) == 2 &&
		    !strcmp(name, expected))
			inode = found;
	}
	if (file)
		fclose(file);
	return inode;
}

static void call(int line, void *arg)
{
	void (**function)(void) = arg;

	(void)line;
	(*function)();
}

void run_case(void **state)
{
	struct actor actor;

	actor_start(&actor, call, state);
	assert_int_equal(actor_end(&actor), 0);
}
