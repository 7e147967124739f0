/* SPDX-License-Identifier: MIT */
/* Named cases, pairs of processes, and what they exchange. See cases.h. */
#include "cases.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define PART 4096u /* bytes of a message; the buffer's parts below are this long */

enum part { PART_SENT, PART_RECEIVED, PART_WRITTEN, PART_READ, PART_COUNTED, PART_OLD };

const struct link_attr patient = {
	.mtu = IBV_MTU_1024,
	.timeout = 16, /* 268 ms */
	.retry_cnt = 7,
	.rnr_retry = 7,
	.min_rnr_timer = 12,
	.rd_atomic = 16,
	.dest_rd_atomic = 16,
	.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
};

const struct link_attr hasty = {
	.mtu = IBV_MTU_1024,
	.timeout = 8, /* 1 ms */
	.retry_cnt = 2,
	.rnr_retry = 7,
	.min_rnr_timer = 1,
	.rd_atomic = 16,
	.dest_rd_atomic = 16,
};

void skip_case(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("skipped: ");
	vprintf(format, args);
	putchar('\n');
	va_end(args);
	fflush(stdout);
	_exit(SKIPPED);
}

int run_named_case(int argc, char **argv, const struct test_case *cases)
{
	/* What was found until a check fails. */
	setlinebuf(stdout);
	for (const struct test_case *at = cases; at->name; at++) {
		if (argc < 2)
			puts(at->name);
		else if (!strcmp(at->name, argv[1]))
			return at->run(), 0;
	}
	return argc < 2 ? 0 : 2;
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		SKIP("no user namespace can be set up: %s: %s", path, strerror(errno));
	close(fd);
}

void enter_user_namespace(void)
{
	char users[32], groups[32];

	snprintf(users, sizeof(users), "0 %u 1\n", geteuid());
	snprintf(groups, sizeof(groups), "0 %u 1\n", getegid());
	if (unshare(CLONE_NEWUSER))
		SKIP("no user namespace: %s", strerror(errno));
	write_text("/proc/self/setgroups", "deny");
	write_text("/proc/self/uid_map", users);
	write_text("/proc/self/gid_map", groups);
}

void become_root(void)
{
	if (geteuid())
		enter_user_namespace();
}

void raise_loopback(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	CHECK_EQUAL(ioctl(fd, SIOCSIFFLAGS, &request), 0);
	close(fd);
}

void make_line(int line[2])
{
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line));
}

struct side {
	side_main *run;
	int line[2]; /* ours, the other's */
};

static void side(int to_test, void *arg)
{
	struct side *side = arg;

	close(to_test);
	close(side->line[1]);
	side->run(side->line[0]);
}

/* Skipped wins: the other side then fails for lack of its partner. */
static void judge(const int *statuses, int count)
{
	for (int i = 0; i < count; i++)
		if (statuses[i] == SKIPPED)
			_exit(SKIPPED);
	for (int i = 0; i < count; i++)
		CHECK_EQUAL(statuses[i], 0);
}

void end_well(struct actor *actor)
{
	int status = actor_end(actor);

	judge(&status, 1);
}

void run_pair(side_main *first, side_main *second)
{
	struct actor actors[2];
	int line[2], statuses[2];

	make_line(line);
	actor_start(&actors[0], side, &(struct side){ first, { line[0], line[1] } });
	actor_start(&actors[1], side, &(struct side){ second, { line[1], line[0] } });
	close(line[0]);
	close(line[1]);
	for (int i = 0; i < 2; i++)
		statuses[i] = actor_end(&actors[i]);
	judge(statuses, 2);
}

/* The next completions must be these, in any order. */
static void expect_each(struct node *node, unsigned count, const uint64_t *wr_ids)
{
	unsigned left = (1u << count) - 1;
	struct ibv_wc wc;

	while (left) {
		CHECK(node_poll(node->cq, &wc, TIMEOUT_MS));
		if (wc.status != IBV_WC_SUCCESS)
			fprintf(stderr, "wr_id %llu: %s, cause %u\n", (unsigned long long)wc.wr_id,
				ibv_wc_status_str(wc.status), wc.vendor_err);
		CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
		for (unsigned i = 0; i < count; i++)
			if (wr_ids[i] == wc.wr_id)
				left &= ~(1u << i);
	}
}

static uint32_t part_at(enum part part)
{
	return PART * (uint32_t)part;
}

/* Bytes that name the QP they come from, the part that they are meant for and their place. */
static uint8_t pattern(uint32_t qpn, enum part part, uint32_t at)
{
	return (uint8_t)(qpn * 31 + (qpn >> 14) * 7 + (uint32_t)part * 101 + at * 13 + (at >> 8));
}

static void fill(struct node *node, enum part part, uint32_t qpn, enum part meant)
{
	for (uint32_t i = 0; i < PART; i++)
		node->buf[part_at(part) + i] = pattern(qpn, meant, i);
}

static void compare(const struct node *node, enum part part, uint32_t qpn, enum part meant)
{
	for (uint32_t i = 0; i < PART; i++)
		CHECK_EQUAL(node->buf[part_at(part) + i], pattern(qpn, meant, i));
}

static struct card swap_cards(struct node *node, struct ibv_qp *qp, int line)
{
	struct card mine = node_card(node, qp), theirs;

	line_send(line, &mine, sizeof(mine));
	line_receive(line, &theirs, sizeof(theirs));
	return theirs;
}

static void meet(int line, uint32_t word)
{
	say(line, word);
	expect(line, word);
}

void exchange(struct node *node, int line)
{
	struct ibv_qp *qp = node_qp(node, IBV_QPT_RC, NULL);
	struct card card = swap_cards(node, qp, line);
	uint64_t count, old;

	node_connect(qp, &card, &patient);
	CHECK_EQUAL(node_recv(node, qp, 1, part_at(PART_RECEIVED), PART), 0);
	count = 1000 + qp->qp_num;
	memcpy(node->buf + part_at(PART_COUNTED), &count, sizeof(count));
	meet(line, 1);

	fill(node, PART_SENT, qp->qp_num, PART_RECEIVED);
	CHECK_EQUAL(node_send(node, qp, 2, part_at(PART_SENT), PART), 0);
	expect_each(node, 2, (uint64_t[]){ 1, 2 });
	compare(node, PART_RECEIVED, card.qpn, PART_RECEIVED);

	fill(node, PART_SENT, qp->qp_num, PART_WRITTEN);
	CHECK_EQUAL(node_rdma(node, qp, 3, IBV_WR_RDMA_WRITE, part_at(PART_SENT), PART,
			      card.addr + part_at(PART_WRITTEN), card.rkey),
		    0);
	expect_each(node, 1, (uint64_t[]){ 3 });
	meet(line, 2);
	compare(node, PART_WRITTEN, card.qpn, PART_WRITTEN);

	CHECK_EQUAL(node_rdma(node, qp, 4, IBV_WR_RDMA_READ, part_at(PART_READ), PART,
			      card.addr + part_at(PART_SENT), card.rkey),
		    0);
	CHECK_EQUAL(node_rdma(node, qp, 5, IBV_WR_ATOMIC_FETCH_AND_ADD, part_at(PART_OLD),
			      sizeof(old), card.addr + part_at(PART_COUNTED), card.rkey),
		    0);
	expect_each(node, 2, (uint64_t[]){ 4, 5 });
	compare(node, PART_READ, card.qpn, PART_WRITTEN);
	memcpy(&old, node->buf + part_at(PART_OLD), sizeof(old));
	CHECK_EQUAL(old, 1000 + card.qpn);
	meet(line, 3);
	memcpy(&old, node->buf + part_at(PART_COUNTED), sizeof(old));
	CHECK_EQUAL(old, count + 1);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
}

void open_and_exchange(int line)
{
	struct node node;

	node_open(&node);
	exchange(&node, line);
	node_close(&node);
}

struct outcome try_to_send(struct node *node, int line)
{
	struct ibv_qp *qp = node_qp(node, IBV_QPT_RC, NULL);
	struct card card = swap_cards(node, qp, line);
	struct ibv_wc wc;

	node_connect(qp, &card, &hasty);
	expect(line, 1);
	CHECK_EQUAL(node_send(node, qp, 2, part_at(PART_SENT), PART), 0);
	CHECK(node_poll(node->cq, &wc, TIMEOUT_MS));
	CHECK_EQUAL(wc.wr_id, 2);
	say(line, wc.status);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	return (struct outcome){ wc.status, wc.status ? wc.vendor_err : 0 };
}

void be_tried(struct node *node, int line)
{
	struct ibv_qp *qp = node_qp(node, IBV_QPT_RC, NULL);
	struct card card = swap_cards(node, qp, line);
	struct ibv_wc wc;
	uint32_t status;

	node_connect(qp, &card, &hasty);
	CHECK_EQUAL(node_recv(node, qp, 1, part_at(PART_RECEIVED), PART), 0);
	say(line, 1);
	line_receive(line, &status, sizeof(status));
	/* What its sender was not told of must not have arrived. */
	CHECK_EQUAL(node_poll(node->cq, &wc, status ? 10 : TIMEOUT_MS), !status);
	CHECK_EQUAL(node_state(qp), IBV_QPS_RTS);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
}

struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	int error = errno;

	if (list)
		ibv_free_device_list(list);
	errno = error;
	return ctx;
}
