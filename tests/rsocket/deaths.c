/* SPDX-License-Identifier: MIT */
/* Peers that end, with and without saying so, and children that inherit rsockets. */
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "pair.h"

/* A child that connects to a port that it is told, and does `act` then. */
struct child {
	pid_t pid;
	int port; /* a socket: it reads the address from there, and writes a byte when it has acted */
};

static struct child start(void (*act)(int socket))
{
	struct child child;
	int sockets[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	child.pid = fork();
	if (child.pid) {
		close(sockets[1]);
		child.port = sockets[0];
		return child;
	}
	struct sockaddr_in address;
	if (read(sockets[1], &address, sizeof(address)) != sizeof(address))
		_exit(100);
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);
	if (rconnect(socket, (struct sockaddr *)&address, sizeof(address)))
		_exit(errno);
	act(socket);
	if (write(sockets[1], "x", 1) != 1)
		_exit(101);
	for (;;)
		pause();
}

/* Listens, lets the child connect, and waits until it has acted. */
static void meet(struct child *child, struct pair *pair)
{
	char byte;

	pair_listen(pair, 1, NULL);
	assert_int_equal(write(child->port, &pair->address, sizeof(pair->address)), sizeof(pair->address));
	pair->server = raccept(pair->listener, NULL, NULL);
	assert_int_equal(failure(pair->server), 0);
	assert_int_equal(read(child->port, &byte, 1), 1);
}

static void kill_child(struct child *child)
{
	kill(child->pid, SIGKILL);
	waitpid(child->pid, NULL, 0);
	close(child->port);
}

static void do_nothing(int socket)
{
	(void)socket;
}

static void send_and_stay(int socket)
{
	uint8_t bytes[5000];

	fill(bytes, sizeof(bytes), 0);
	if (rsend(socket, bytes, sizeof(bytes), 0) != sizeof(bytes))
		_exit(102);
}

static void a_killed_peer_resets_who_reads(void **state)
{
	struct child child = start(send_and_stay);
	struct pair pair;
	char byte;

	(void)state;
	meet(&child, &pair);
	kill_child(&child);
	/* What had come is there. */
	receive_all(pair.server, 0, 5000, 1000);
	/* Whoever notices first: who answers for the dead, or a retry counter. */
	int error = failure(rrecv(pair.server, &byte, 1, 0));
	assert_true(error == ECONNRESET || error == ETIMEDOUT);
	assert_int_equal(rrecv(pair.server, &byte, 1, 0), 0);
	assert_int_equal(failure(rsend(pair.server, "x", 1, 0)), ECONNRESET);
	pair_close(&pair);
}

static void a_killed_peer_wakes_who_polls(void **state)
{
	struct child child = start(do_nothing);
	struct pair pair;

	(void)state;
	meet(&child, &pair);
	struct pollfd fd = { pair.server, POLLIN, 0 };
	assert_int_equal(rpoll(&fd, 1, 0), 0);
	kill_child(&child);
	await(pair.server, POLLIN, POLLIN | POLLERR | POLLHUP);
	pair_close(&pair);
}

static void a_killed_peer_ends_a_full_sender(void **state)
{
	struct child child = start(do_nothing);
	static uint8_t bytes[1 << 20];
	struct pair pair;
	ssize_t sent;

	(void)state;
	meet(&child, &pair);
	while ((sent = rsend(pair.server, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		;
	assert_int_equal(failure(sent), EAGAIN);
	kill_child(&child);
	int error = failure(rsend(pair.server, bytes, sizeof(bytes), 0));
	assert_true(error == ECONNRESET || error == ETIMEDOUT);
	pair_close(&pair);
}

/* Nobody there reads, or could. */
static void closing_towards_a_stopped_peer_ends(void **state)
{
	struct linger linger = { 1, 1 };
	struct child child = start(do_nothing);
	static uint8_t bytes[1 << 20];
	struct pair pair;

	(void)state;
	meet(&child, &pair);
	kill(child.pid, SIGSTOP);
	assert_int_equal(failure(rsetsockopt(pair.server, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger))), 0);
	while (rsend(pair.server, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	pair_close(&pair);
	kill_child(&child);
}

static void end_program(int socket)
{
	send_and_stay(socket);
	exit(0);
}

static void a_program_that_ends_has_closed(void **state)
{
	struct child child = start(end_program);
	struct pair pair;
	char byte;

	(void)state;
	pair_listen(&pair, 1, NULL);
	assert_int_equal(write(child.port, &pair.address, sizeof(pair.address)), sizeof(pair.address));
	waitpid(child.pid, NULL, 0);
	close(child.port);
	pair.server = raccept(pair.listener, NULL, NULL);
	assert_int_equal(failure(pair.server), 0);
	receive_all(pair.server, 0, 5000, 1000);
	assert_int_equal(rrecv(pair.server, &byte, 1, 0), 0);
	pair_close(&pair);
}

#ifndef __SANITIZE_THREAD__ /* no new threads in the child of a process that had some */
/* 0, or the line where it went wrong. */
static int use_in_child(struct pair *inherited)
{
	struct pair own;
	char byte;

	if (failure(rsend(inherited->client, "x", 1, 0)) != EBADF || failure(rrecv(inherited->server, &byte, 1, 0)) != EBADF)
		return __LINE__;
	if (rclose(inherited->client) || rclose(inherited->listener))
		return __LINE__;
	pair_open(&own, NULL);
	send_all(own.client, 0, 1000, 100);
	receive_all(own.server, 0, 1000, 100);
	pair_close(&own);
	return 0;
}

static void a_child_has_its_own(void **state)
{
	struct pair pair;
	int status;

	(void)state;
	pair_open(&pair, NULL);
	pid_t child = fork();
	if (!child)
		_exit(use_in_child(&pair) & 255);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* And the parent's go on. */
	send_all(pair.client, 0, 1000, 100);
	receive_all(pair.server, 0, 1000, 100);
	pair_close(&pair);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_killed_peer_resets_who_reads),   cmocka_unit_test(a_killed_peer_wakes_who_polls),
		cmocka_unit_test(a_killed_peer_ends_a_full_sender), cmocka_unit_test(closing_towards_a_stopped_peer_ends),
		cmocka_unit_test(a_program_that_ends_has_closed),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test(a_child_has_its_own),
#endif
	};

	return cmocka_run_group_tests_name("rsocket.deaths", tests, NULL, NULL);
}
