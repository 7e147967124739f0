/* SPDX-License-Identifier: MIT */
/*
 * Programs that close descriptors which are not theirs: daemons, that close all they have inherited, and careless ones
 * that close the library's own, and get its numbers for files of their own. And programs without standard descriptors.
 */
#include "cases.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static void close_all_but(int kept)
{
	if (kept > 3)
		CHECK_EQUAL(close_range(3, (unsigned)kept - 1, 0), 0);
	CHECK_EQUAL(close_range((unsigned)kept + 1, ~0u, 0), 0);
}

/* The parent opens the device; its child gives up all descriptors, has new ones of the same numbers, and goes on with a
 * device of its own. */
static void daemon_closes_all(int line)
{
	int files[32], status;
	struct node inherited;
	pid_t child;

	node_open(&inherited);
	child = fork();
	CHECK(child >= 0);
	if (child) {
		CHECK_EQUAL(waitpid(child, &status, 0), child);
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
		exchange(&inherited, line);
		node_close(&inherited);
		return;
	}
	close_all_but(line);
	for (int i = 0; i < 32; i++)
		files[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
	open_and_exchange(line);
	for (int i = 0; i < 32; i++)
		CHECK_EQUAL(fcntl(files[i], F_GETFD), FD_CLOEXEC);
	_exit(0);
}

static void exchanges_twice(int line)
{
	struct node node;

	node_open(&node);
	exchange(&node, line);
	exchange(&node, line);
	node_close(&node);
}

static void daemon_child(void)
{
	run_pair(daemon_closes_all, exchanges_twice);
}

/* As daemon(3): the parent ends, and its child is nobody's. */
static void daemonizes(int line)
{
	struct node inherited;
	pid_t child;

	node_open(&inherited);
	child = fork();
	CHECK(child >= 0);
	if (child)
		_exit(0);
	CHECK(setsid() > 0);
	open_and_exchange(line);
	_exit(0);
}

static void daemon_of_its_own(void)
{
	run_pair(daemonizes, open_and_exchange);
}

static unsigned cpu_ms(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (unsigned)(used.tv_sec * 1000 + used.tv_nsec / 1000000);
}

/* Whatever its verbs then say, they return, and no thread spins. */
static void closes_its_own(int line)
{
	struct timespec time = { .tv_nsec = 100000000 };
	struct ibv_qp *qp;
	struct node node;
	struct ibv_wc wc;
	unsigned before;

	node_open(&node);
	exchange(&node, line);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	close_all_but(line);
	say(line, 4);
	before = cpu_ms();
	nanosleep(&time, NULL);
	CHECK(cpu_ms() - before < 50);
	node_recv(&node, qp, 1, 0, 64);
	node_send(&node, qp, 1, 0, 64);
	ibv_poll_cq(node.cq, 1, &wc);
	ibv_reg_mr(node.pd, node.buf, 64, 0);
	ibv_create_cq(node.ctx, 100000, NULL, NULL, 0);
	ibv_destroy_qp(qp);
	ibv_close_device(node.ctx);
	say(line, 5);
}

static void sees_it_end(int line)
{
	struct node node;
	uint64_t deadline = now_ms() + TIMEOUT_MS;

	node_open(&node);
	exchange(&node, line);
	expect(line, 4);
	while (count_maps() > 1 && now_ms() < deadline)
		usleep(1000);
	CHECK_EQUAL(count_maps(), 1);
	expect(line, 5);
	node_close(&node);
}

static void careless(void)
{
	run_pair(closes_its_own, sees_it_end);
}

#define NUMBERS	   64u
#define FILE_BYTES 4096

enum own { OWN_FILE, OWN_EVENTFD, OWN_EPOLL, OWN_SOCKET, OWNS };

/* Takes all numbers that are free for one file of the program's, which something can be read from; *other is its other end. */
static int take_numbers(enum own own, int *other)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 12345 };
	uint8_t bytes[FILE_BYTES];
	int fd = -1, pair[2];

	memset(bytes, 'o', sizeof(bytes));
	CHECK(!socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	*other = fcntl(pair[0], F_DUPFD, NUMBERS + 1);
	if (own == OWN_FILE) {
		fd = memfd_create("program", 0);
		CHECK_EQUAL(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	} else if (own == OWN_EVENTFD) {
		fd = eventfd(7, EFD_NONBLOCK);
	} else if (own == OWN_EPOLL) {
		CHECK_EQUAL(write(*other, "x", 1), 1);
		fd = epoll_create1(0);
		CHECK(!epoll_ctl(fd, EPOLL_CTL_ADD, fcntl(pair[1], F_DUPFD, NUMBERS + 2), &event));
	} else {
		fd = dup(pair[1]);
		CHECK_EQUAL(write(*other, "x", 1), 1);
	}
	close(pair[0]);
	close(pair[1]);
	for (int number = dup(fd); number < (int)NUMBERS; number = dup(fd))
		CHECK(number >= 0);
	return fd;
}

/* All numbers are what they were, and nothing was done to what they are. */
static void check_numbers(enum own own, int fd, int other, int line)
{
	struct epoll_event event;
	uint8_t bytes[FILE_BYTES + 1];
	struct stat st, one;
	uint64_t count;

	CHECK(!fstat(fd, &st));
	for (int number = 3; number < (int)NUMBERS; number++) {
		if (number == line)
			continue;
		CHECK(!fstat(number, &one));
		CHECK_EQUAL(one.st_ino, st.st_ino);
	}
	if (own == OWN_FILE) {
		CHECK_EQUAL(st.st_blocks * 512, FILE_BYTES);
		CHECK_EQUAL(pread(fd, bytes, sizeof(bytes), 0), FILE_BYTES);
		for (int i = 0; i < FILE_BYTES; i++)
			CHECK_EQUAL(bytes[i], 'o');
	} else if (own == OWN_EVENTFD) {
		CHECK_EQUAL(read(fd, &count, sizeof(count)), sizeof(count));
		CHECK_EQUAL(count, 7);
	} else if (own == OWN_EPOLL) {
		CHECK_EQUAL(epoll_wait(fd, &event, 1, 0), 1);
		CHECK_EQUAL(event.data.u64, 12345);
	} else {
		CHECK_EQUAL(recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT), 1);
		CHECK_EQUAL(recv(other, bytes, sizeof(bytes), MSG_DONTWAIT), -1);
	}
}

static enum own owned;

/* What the library says then is its own business, but it must not be done by the program's files. The first message needs windows
 * that are not mapped yet. */
static void has_its_numbers(int line)
{
	struct ibv_mr *mr, *another;
	struct ibv_qp *qp;
	struct node node;
	struct ibv_wc wc;
	uint8_t *memory;
	int fd, other;

	node_open(&node);
	exchange(&node, line);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	memory = mmap(NULL, 4u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(memory, 5, 4u << 20);
	mr = ibv_reg_mr(node.pd, memory, 1u << 20, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	close_all_but(line);
	fd = take_numbers(owned, &other);
	say(line, 4);
	node_recv(&node, qp, 1, 0, 64);
	node_send(&node, qp, 1, 0, 64);
	ibv_poll_cq(node.cq, 1, &wc);
	another = ibv_reg_mr(node.pd, memory + (2u << 20), 1u << 20, IBV_ACCESS_LOCAL_WRITE);
	ibv_create_cq(node.ctx, 100000, NULL, NULL, 0);
	if (another)
		ibv_dereg_mr(another);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	for (unsigned i = 0; i < 4u << 20; i++)
		CHECK_EQUAL(memory[i], 5);
	ibv_destroy_qp(qp);
	ibv_close_device(node.ctx);
	check_numbers(owned, fd, other, line);
	say(line, 5);
}

static void is_not_disturbed(int line)
{
	struct node node;

	node_open(&node);
	exchange(&node, line);
	expect(line, 4);
	expect(line, 5);
	node_close(&node);
}

static void own_files(void)
{
	for (owned = OWN_FILE; owned < OWNS; owned++)
		run_pair(has_its_numbers, is_not_disturbed);
}

/* One loopback connection whose first message comes after the descriptors have gone. */
static void first_message(int line)
{
	struct ibv_qp *a, *b;
	struct node node;
	struct ibv_wc wc;
	int fd, other;

	(void)line;
	node_open(&node);
	a = node_qp(&node, IBV_QPT_RC, NULL);
	b = node_qp(&node, IBV_QPT_RC, NULL);
	node_connect_pair(&node, a, b, &patient);
	close_all_but(line);
	fd = take_numbers(OWN_FILE, &other);
	node_recv(&node, b, 1, 0, 64);
	node_send(&node, a, 2, 128, 64);
	for (int got = 0; got < 2;) {
		int n = ibv_poll_cq(node.cq, 1, &wc);

		CHECK(n >= 0);
		if (n)
			CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
		got += n;
	}
	check_numbers(OWN_FILE, fd, other, line);
}

static void no_windows_of_the_programs(void)
{
	run_pair(first_message, first_message);
}

/* Whoever writes to number 2 then must not write into the library's files. */
static void has_no_standard_descriptors(int line)
{
	struct ibv_comp_channel *channel;
	struct node node;

	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		close(fd);
	node_open(&node);
	channel = ibv_create_comp_channel(node.ctx);
	CHECK(channel);
	exchange(&node, line);
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		CHECK(fcntl(fd, F_GETFD) < 0);
	CHECK_EQUAL(write(STDERR_FILENO, "words", 5), -1);
	exchange(&node, line);
	CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
	node_close(&node);
}

static void no_standard_descriptors(void)
{
	run_pair(has_no_standard_descriptors, has_no_standard_descriptors);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "daemon_closes_what_it_inherited", daemon_child },
		{ "daemon_without_its_parent", daemon_of_its_own },
		{ "process_that_closes_the_librarys_own", careless },
		{ "programs_files_under_the_librarys_numbers", own_files },
		{ "first_message_after_the_librarys_were_closed", no_windows_of_the_programs },
		{ "standard_descriptors_are_closed", no_standard_descriptors },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
