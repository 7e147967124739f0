/* SPDX-License-Identifier: MIT */
/* Streams: they connect, carry what they are given, and end, as TCP's do. */
#include <dirent.h>
#include <poll.h>
#include <pthread.h>

#include "pair.h"

enum { MUCH = 4 << 20 };

struct job {
	int socket;
	uint64_t bytes;
	size_t piece;
};

static void *send_job(void *arg)
{
	struct job *job = arg;

	send_all(job->socket, 0, job->bytes, job->piece);
	return NULL;
}

static void *receive_job(void *arg)
{
	struct job *job = arg;

	receive_all(job->socket, 0, job->bytes, job->piece);
	return NULL;
}

static void run_jobs(void *(*calls[])(void *), struct job *jobs, int count)
{
	pthread_t threads[4];

	for (int i = 0; i < count; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, calls[i], &jobs[i]), 0);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

static void two_threads_on_each_end_send_and_receive_at_once(void **state)
{
	void *(*calls[])(void *) = { send_job, receive_job, send_job, receive_job };
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	struct job jobs[] = {
		{ pair.client, MUCH, 100000 }, { pair.server, MUCH, 3000 }, { pair.server, MUCH, 777 }, { pair.client, MUCH, 65536 }
	};
	run_jobs(calls, jobs, 4);
	pair_close(&pair);
}

/* More messages than the other end has receives for, and more bytes than it has room for. */
static void pieces_of_any_size_arrive(void **state)
{
	static const size_t pieces[] = { 1, 63, 64, 65, 4096, 65535, 65537, MUCH };
	void *(*calls[])(void *) = { send_job, receive_job };
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
		uint64_t bytes = pieces[i] < 100 ? 5000 * pieces[i] : MUCH;
		struct job jobs[] = { { pair.client, bytes, pieces[i] }, { pair.server, bytes, 50000 } };
		run_jobs(calls, jobs, 2);
	}
	pair_close(&pair);
}

static void small_queues(int socket)
{
	int size = 16, bytes = 1;

	assert_int_equal(failure(rsetsockopt(socket, SOL_RDMA, RDMA_SQSIZE, &size, sizeof(size))), 0);
	assert_int_equal(failure(rsetsockopt(socket, SOL_RDMA, RDMA_RQSIZE, &size, sizeof(size))), 0);
	assert_int_equal(failure(rsetsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes))), 0);
	assert_int_equal(failure(rsetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes))), 0);
}

static void the_smallest_queues_carry_all(void **state)
{
	void *(*calls[])(void *) = { send_job, receive_job, send_job, receive_job };
	struct pair pair;

	(void)state;
	pair_open(&pair, small_queues);
	struct job jobs[] = {
		{ pair.client, MUCH, 10000 }, { pair.server, MUCH, 3000 }, { pair.server, 100000, 7 }, { pair.client, 100000, 5 }
	};
	run_jobs(calls, jobs, 4);
	pair_close(&pair);
}

static void connecting_needs_no_accept(void **state)
{
	struct pair pair;
	char byte = 'x';

	(void)state;
	pair_listen(&pair, 4, NULL);
	for (int i = 0; i < 3; i++) {
		pair.client = rsocket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(failure(rconnect(pair.client, (struct sockaddr *)&pair.address, sizeof(pair.address))), 0);
		assert_int_equal(rsend(pair.client, &byte, 1, 0), 1);
		assert_int_equal(rclose(pair.client), 0);
	}
	/* What was sent, and that it ended, is kept for who comes late. */
	for (int i = 0; i < 3; i++) {
		pair.server = raccept(pair.listener, NULL, NULL);
		assert_int_equal(failure(pair.server), 0);
		assert_int_equal(rrecv(pair.server, &byte, 1, 0), 1);
		assert_int_equal(rrecv(pair.server, &byte, 1, 0), 0);
		assert_int_equal(rclose(pair.server), 0);
	}
	pair.client = pair.server = -1;
	pair_close(&pair);
}

static void a_full_backlog_makes_clients_wait(void **state)
{
	struct pair pair;
	int clients[4];

	(void)state;
	pair_listen(&pair, 1, NULL);
	for (int i = 0; i < 4; i++) {
		clients[i] = rsocket(AF_INET, SOCK_STREAM, 0);
		set_nonblocking(clients[i]);
		int error = failure(rconnect(clients[i], (struct sockaddr *)&pair.address, sizeof(pair.address)));
		assert_true(!error || error == EINPROGRESS);
	}
	await(clients[0], POLLOUT, POLLOUT);
	pair.server = raccept(pair.listener, NULL, NULL);
	assert_int_equal(failure(pair.server), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(rclose(clients[i]), 0);
	pair_close(&pair);
}

/* A port that was somebody's a moment ago. */
static struct sockaddr_in nobodys_address(void)
{
	struct pair pair;

	pair_listen(&pair, 1, NULL);
	pair_close(&pair);
	return pair.address;
}

static void a_port_without_listener_refuses(void **state)
{
	struct sockaddr_in address = nobodys_address();
	int client = rsocket(AF_INET, SOCK_STREAM, 0), error = 0;
	socklen_t length = sizeof(error);

	(void)state;
	assert_int_equal(failure(rconnect(client, (struct sockaddr *)&address, sizeof(address))), ECONNREFUSED);
	set_nonblocking(client);
	int begun = failure(rconnect(client, (struct sockaddr *)&address, sizeof(address)));
	if (begun == EINPROGRESS) {
		await(client, POLLOUT, POLLOUT | POLLERR | POLLHUP);
		assert_int_equal(failure(rgetsockopt(client, SOL_SOCKET, SO_ERROR, &error, &length)), 0);
		assert_int_equal(error, ECONNREFUSED);
	} else {
		assert_int_equal(begun, ECONNREFUSED);
	}
	assert_int_equal(failure(rsend(client, &error, 1, 0)), ENOTCONN);
	assert_int_equal(failure(rrecv(client, &error, 1, 0)), ENOTCONN);
	assert_int_equal(rclose(client), 0);
}

static void who_was_refused_may_ask_again(void **state)
{
	struct sockaddr_in nobody = nobodys_address();
	struct pair pair;

	(void)state;
	pair_listen(&pair, 1, NULL);
	pair.client = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(failure(rconnect(pair.client, (struct sockaddr *)&nobody, sizeof(nobody))), ECONNREFUSED);
	assert_int_equal(failure(rconnect(pair.client, (struct sockaddr *)&pair.address, sizeof(pair.address))), 0);
	assert_int_equal(failure(rconnect(pair.client, (struct sockaddr *)&pair.address, sizeof(pair.address))), EISCONN);
	pair_close(&pair);
}

static void connecting_without_blocking(void **state)
{
	socklen_t length = sizeof(int);
	struct pair pair;
	int error = -1;

	(void)state;
	pair_listen(&pair, 1, NULL);
	set_nonblocking(pair.listener);
	assert_int_equal(failure(raccept(pair.listener, NULL, NULL)), EAGAIN);
	pair.client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int begun = failure(rconnect(pair.client, (struct sockaddr *)&pair.address, sizeof(pair.address)));
	assert_true(!begun || begun == EINPROGRESS);
	await(pair.client, POLLOUT | POLLIN, POLLOUT);
	assert_int_equal(failure(rgetsockopt(pair.client, SOL_SOCKET, SO_ERROR, &error, &length)), 0);
	assert_int_equal(error, 0);
	await(pair.listener, POLLIN, POLLIN);
	pair.server = raccept(pair.listener, NULL, NULL);
	assert_int_equal(failure(pair.server), 0);
	assert_int_equal(failure(raccept(pair.listener, NULL, NULL)), EAGAIN);
	pair_close(&pair);
}

static void calls_that_would_block_say_so(void **state)
{
	uint8_t bytes[10000];
	uint64_t sent = 0;
	struct pair pair;
	ssize_t some;

	(void)state;
	pair_open(&pair, NULL);
	assert_int_equal(failure(rrecv(pair.server, bytes, sizeof(bytes), MSG_DONTWAIT)), EAGAIN);
	for (;;) {
		fill(bytes, sizeof(bytes), sent);
		some = rsend(pair.client, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (some < 0)
			break;
		sent += some;
	}
	assert_int_equal(errno, EAGAIN);
	/* The half that the peer announces without being in a call. */
	assert_true(sent >= 65536);
	/* Room again: as soon as half of it was read. */
	receive_all(pair.server, 0, sent, 5000);
	await(pair.client, POLLOUT, POLLOUT);
	pair_close(&pair);
}

static void one_direction_can_be_shut_down(void **state)
{
	struct pair pair;
	char byte = 'x';

	(void)state;
	pair_open(&pair, NULL);
	send_all(pair.client, 0, 1000, 1000);
	assert_int_equal(failure(rshutdown(pair.client, SHUT_WR)), 0);
	assert_int_equal(failure(rsend(pair.client, &byte, 1, 0)), EPIPE);
	receive_all(pair.server, 0, 1000, 300);
	assert_int_equal(rrecv(pair.server, &byte, 1, 0), 0);
	send_all(pair.server, 0, 100000, 5000);
	assert_int_equal(failure(rshutdown(pair.server, SHUT_WR)), 0);
	receive_all(pair.client, 0, 100000, 3000);
	assert_int_equal(rrecv(pair.client, &byte, 1, 0), 0);
	pair_close(&pair);
}

static void what_was_sent_before_closing_arrives(void **state)
{
	struct pair pair;
	char byte = 'x';

	(void)state;
	pair_open(&pair, NULL);
	send_all(pair.client, 0, 60000, 60000);
	assert_int_equal(rclose(pair.client), 0);
	pair.client = -1;
	receive_all(pair.server, 0, 60000, 7000);
	assert_int_equal(rrecv(pair.server, &byte, 1, 0), 0);
	assert_int_equal(failure(rsend(pair.server, &byte, 1, 0)), ECONNRESET);
	pair_close(&pair);
}

static void looking_leaves_what_came(void **state)
{
	uint8_t bytes[1000];
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	send_all(pair.client, 0, 300, 100);
	/* Over the bounds of messages, but not waiting for more. */
	do
		await(pair.server, POLLIN, POLLIN);
	while (rrecv(pair.server, bytes, sizeof(bytes), MSG_PEEK) < 300);
	assert_true(filled(bytes, 300, 0));
	await(pair.server, POLLIN, POLLIN);
	assert_int_equal(rrecv(pair.server, bytes, 10, MSG_PEEK), 10);
	assert_int_equal(rrecv(pair.server, bytes, 300, MSG_WAITALL), 300);
	assert_true(filled(bytes, 300, 0));
	pair_close(&pair);
}

static void vectors_are_gathered_and_scattered(void **state)
{
	uint8_t bytes[600], got[600];
	struct iovec from[] = { { bytes, 1 }, { bytes + 1, 0 }, { bytes + 1, 399 }, { bytes + 400, 200 } };
	struct iovec to[] = { { got, 500 }, { got + 500, 100 } };
	struct msghdr message = { .msg_iov = to, .msg_iovlen = 2 };
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	fill(bytes, sizeof(bytes), 0);
	assert_int_equal(rwritev(pair.client, from, 4), 600);
	assert_int_equal(rrecvmsg(pair.server, &message, MSG_WAITALL), 600);
	assert_true(filled(got, 600, 0));
	assert_int_equal(rwrite(pair.client, bytes, 10), 10);
	assert_int_equal(rread(pair.server, got, 10), 10);
	pair_close(&pair);
}

static void both_ends_know_the_addresses(void **state)
{
	struct sockaddr_in own, peer;
	socklen_t length = sizeof(own);
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	assert_int_equal(failure(rgetsockname(pair.client, (struct sockaddr *)&own, &length)), 0);
	length = sizeof(peer);
	assert_int_equal(failure(rgetpeername(pair.server, (struct sockaddr *)&peer, &length)), 0);
	assert_memory_equal(&own.sin_addr, &peer.sin_addr, sizeof(own.sin_addr));
	assert_int_equal(own.sin_port, peer.sin_port);
	length = sizeof(peer);
	assert_int_equal(failure(rgetpeername(pair.client, (struct sockaddr *)&peer, &length)), 0);
	assert_int_equal(peer.sin_port, pair.address.sin_port);
	assert_int_equal(failure(rgetpeername(pair.listener, (struct sockaddr *)&peer, &length)), ENOTCONN);
	pair_close(&pair);
}

static void *read_one(void *arg)
{
	char byte;

	return (void *)(intptr_t)failure(rrecv(*(int *)arg, &byte, 1, 0));
}

static void closing_wakes_who_waits(void **state)
{
	struct pair pair;
	pthread_t thread;
	void *error;

	(void)state;
	pair_open(&pair, NULL);
	assert_int_equal(pthread_create(&thread, NULL, read_one, &pair.client), 0);
	/* Whether it sleeps by then or not. */
	usleep(20000);
	assert_int_equal(rclose(pair.client), 0);
	pthread_join(thread, &error);
	assert_true((intptr_t)error == EBADF || error == NULL);
	pair.client = -1;
	pair_close(&pair);
}

static int descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void use_connections(int count)
{
	struct pair pair;

	for (int i = 0; i < count; i++) {
		pair_open(&pair, NULL);
		send_all(pair.client, 0, 100, 100);
		receive_all(pair.server, 0, 100, 100);
		pair_close(&pair);
	}
}

/* Other programs that use connections on this host come and go meanwhile, and each is a peer, with descriptors (docs/architecture.md,
 * "The end of a process"). What is left behind is so each time. */
static void connections_leave_nothing_behind(void **state)
{
	int before, after, attempts = 10;

	(void)state;
	use_connections(1);
	do {
		before = descriptors();
		use_connections(20);
		after = descriptors();
	} while (after != before && --attempts);
	assert_int_equal(after, before);
}

static void a_closed_listener_ends_what_waited(void **state)
{
	struct pair pair;
	char byte;

	(void)state;
	pair_listen(&pair, 4, NULL);
	pair.client = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(failure(rconnect(pair.client, (struct sockaddr *)&pair.address, sizeof(pair.address))), 0);
	assert_int_equal(rclose(pair.listener), 0);
	pair.listener = -1;
	ssize_t got = rrecv(pair.client, &byte, 1, 0);
	assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
	pair_close(&pair);
}

static void ipv6_works_too(void **state)
{
	struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int listener = rsocket(AF_INET6, SOCK_STREAM, 0), client = rsocket(AF_INET6, SOCK_STREAM, 0);
	socklen_t length = sizeof(address);

	(void)state;
	assert_int_equal(failure(rbind(listener, (struct sockaddr *)&address, sizeof(address))), 0);
	assert_int_equal(failure(rlisten(listener, 1)), 0);
	assert_int_equal(failure(rgetsockname(listener, (struct sockaddr *)&address, &length)), 0);
	assert_int_equal(failure(rconnect(client, (struct sockaddr *)&address, sizeof(address))), 0);
	int server = raccept(listener, (struct sockaddr *)&address, &length);
	assert_int_equal(failure(server), 0);
	assert_int_equal(length, sizeof(address));
	assert_true(IN6_IS_ADDR_LOOPBACK(&address.sin6_addr));
	send_all(client, 0, 1000, 100);
	receive_all(server, 0, 1000, 100);
	assert_int_equal(rclose(client), 0);
	assert_int_equal(rclose(server), 0);
	assert_int_equal(rclose(listener), 0);
}

static void nonsense_gets_an_errno(void **state)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	assert_int_equal(failure(rsocket(AF_UNIX, SOCK_STREAM, 0)), EAFNOSUPPORT);
	assert_int_equal(failure(rsocket(AF_INET, SOCK_RAW, 0)), ENOTSUP);
	assert_int_equal(failure(rsend(12345, "", 1, 0)), EBADF);
	assert_int_equal(failure(rclose(-1)), EBADF);
	assert_int_equal(failure(rclose(0)), EBADF);
	assert_int_equal(failure(rsend(socket, "", 1, 0)), ENOTCONN);
	assert_int_equal(failure(rshutdown(socket, SHUT_WR)), ENOTCONN);
	assert_int_equal(failure(raccept(socket, NULL, NULL)), EINVAL);
	assert_int_equal(failure(rconnect(socket, (struct sockaddr *)&address, 3)), EINVAL);
	assert_int_equal(failure(rbind(socket, (struct sockaddr *)&(struct sockaddr_in6){ .sin6_family = AF_INET6 }, 28)),
			 EAFNOSUPPORT);
	assert_int_equal(failure(rfcntl(socket, F_GETLK)), ENOTSUP);
	assert_int_equal(rclose(socket), 0);
	assert_int_equal(failure(rclose(socket)), EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_threads_on_each_end_send_and_receive_at_once),
		cmocka_unit_test(pieces_of_any_size_arrive),
		cmocka_unit_test(the_smallest_queues_carry_all),
		cmocka_unit_test(connecting_needs_no_accept),
		cmocka_unit_test(a_full_backlog_makes_clients_wait),
		cmocka_unit_test(a_port_without_listener_refuses),
		cmocka_unit_test(who_was_refused_may_ask_again),
		cmocka_unit_test(connecting_without_blocking),
		cmocka_unit_test(calls_that_would_block_say_so),
		cmocka_unit_test(one_direction_can_be_shut_down),
		cmocka_unit_test(what_was_sent_before_closing_arrives),
		cmocka_unit_test(looking_leaves_what_came),
		cmocka_unit_test(vectors_are_gathered_and_scattered),
		cmocka_unit_test(both_ends_know_the_addresses),
		cmocka_unit_test(closing_wakes_who_waits),
		cmocka_unit_test(connections_leave_nothing_behind),
		cmocka_unit_test(a_closed_listener_ends_what_waited),
		cmocka_unit_test(ipv6_works_too),
		cmocka_unit_test(nonsense_gets_an_errno),
	};

	return cmocka_run_group_tests_name("rsocket.streams", tests, NULL, NULL);
}
