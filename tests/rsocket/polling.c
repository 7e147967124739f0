/* SPDX-License-Identifier: MIT */
/* rpoll and rselect say what is so, wake whoever waits, and know other descriptors. */
#include <poll.h>
#include <pthread.h>
#include <time.h>

#include "pair.h"

static void nothing_is_ready_until_it_is(void **state)
{
	struct pollfd fd = { .events = POLLIN };
	struct timespec before, after;
	struct pair pair;
	char byte = 'x';

	(void)state;
	pair_open(&pair, NULL);
	fd.fd = pair.server;
	assert_int_equal(rpoll(&fd, 1, 0), 0);
	clock_gettime(CLOCK_MONOTONIC, &before);
	assert_int_equal(rpoll(&fd, 1, 50), 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	assert_true((after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec >= 50000000);
	await(pair.server, POLLOUT | POLLIN, POLLOUT);
	assert_int_equal(rsend(pair.client, &byte, 1, 0), 1);
	await(pair.server, POLLIN, POLLIN);
	/* For as long as it is there. */
	await(pair.server, POLLIN | POLLOUT | POLLRDNORM, POLLIN | POLLOUT | POLLRDNORM);
	assert_int_equal(rrecv(pair.server, &byte, 1, 0), 1);
	assert_int_equal(rpoll(&fd, 1, 0), 0);
	assert_int_equal(rsend(pair.client, &byte, 1, 0), 1);
	assert_int_equal(rclose(pair.client), 0);
	pair.client = -1;
	/* First what is to be read, then the end. */
	await(pair.server, POLLIN, POLLIN);
	assert_int_equal(rrecv(pair.server, &byte, 1, 0), 1);
	await(pair.server, POLLIN, POLLIN | POLLHUP);
	pair_close(&pair);
}

struct later {
	int socket;
	int fd;
};

/* After those who wait have gone to sleep; or before, which must be the same to them. */
static void *send_later(void *arg)
{
	struct later *later = arg;

	usleep(20000);
	if (later->socket >= 0)
		assert_int_equal(rsend(later->socket, "x", 1, 0), 1);
	else
		assert_int_equal(write(later->fd, "x", 1), 1);
	return NULL;
}

static void other_descriptors_are_seen_beside(void **state)
{
	struct pollfd fds[4];
	pthread_t thread;
	struct pair pair;
	int pipes[2];
	char byte;

	(void)state;
	pair_open(&pair, NULL);
	assert_int_equal(pipe(pipes), 0);
	fds[0] = (struct pollfd){ pipes[0], POLLIN, 0 };
	fds[1] = (struct pollfd){ pair.server, POLLIN, 0 };
	fds[2] = (struct pollfd){ -1, POLLIN, 77 };
	fds[3] = (struct pollfd){ pair.listener, POLLOUT, 0 };
	for (int turn = 0; turn < 4; turn++) {
		struct later later = { turn & 1 ? pair.client : -1, pipes[1] };
		assert_int_equal(pthread_create(&thread, NULL, send_later, &later), 0);
		assert_int_equal(rpoll(fds, 4, PATIENCE_MS), 1);
		pthread_join(thread, NULL);
		assert_int_equal(fds[0].revents, turn & 1 ? 0 : POLLIN);
		assert_int_equal(fds[1].revents, turn & 1 ? POLLIN : 0);
		assert_int_equal(fds[2].revents, 0);
		if (turn & 1)
			assert_int_equal(rrecv(pair.server, &byte, 1, 0), 1);
		else
			assert_int_equal(read(pipes[0], &byte, 1), 1);
	}
	assert_int_equal(write(pipes[1], "x", 1), 1);
	assert_int_equal(rsend(pair.client, "x", 1, 0), 1);
	await(pair.server, POLLIN, POLLIN);
	assert_int_equal(rpoll(fds, 4, PATIENCE_MS), 2);
	close(pipes[0]);
	close(pipes[1]);
	pair_close(&pair);
}

static void *await_data(void *arg)
{
	await(*(int *)arg, POLLIN, POLLIN);
	return NULL;
}

/* Each of them, although the first takes the event. */
static void all_threads_that_wait_are_woken(void **state)
{
	pthread_t threads[4];
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, await_data, &pair.server), 0);
	usleep(20000);
	assert_int_equal(rsend(pair.client, "x", 1, 0), 1);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	pair_close(&pair);
}

static void many_at_once(void **state)
{
	enum { PAIRS = 24 };
	struct pollfd fds[2 * PAIRS];
	struct pair pairs[PAIRS];

	(void)state;
	for (int i = 0; i < PAIRS; i++) {
		pair_open(&pairs[i], NULL);
		fds[2 * i] = (struct pollfd){ pairs[i].server, POLLIN, 0 };
		fds[2 * i + 1] = (struct pollfd){ pairs[i].listener, POLLIN, 0 };
	}
	for (int i = 0; i < PAIRS; i++) {
		char byte;
		assert_int_equal(rpoll(fds, 2 * PAIRS, 0), 0);
		assert_int_equal(rsend(pairs[i].client, "x", 1, 0), 1);
		assert_int_equal(rpoll(fds, 2 * PAIRS, PATIENCE_MS), 1);
		assert_int_equal(fds[2 * i].revents, POLLIN);
		assert_int_equal(rrecv(pairs[i].server, &byte, 1, 0), 1);
	}
	for (int i = 0; i < PAIRS; i++)
		pair_close(&pairs[i]);
}

static void selecting(void **state)
{
	struct timeval patience = { 20, 0 }, none = { 0, 0 };
	fd_set readable, writable;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	FD_ZERO(&readable);
	FD_SET(pair.server, &readable);
	FD_SET(pair.client, &readable);
	assert_int_equal(rselect(FD_SETSIZE, &readable, NULL, NULL, &none), 0);
	assert_false(FD_ISSET(pair.server, &readable));
	assert_int_equal(rsend(pair.client, "x", 1, 0), 1);
	FD_ZERO(&writable);
	FD_SET(pair.server, &readable);
	FD_SET(pair.client, &readable);
	await(pair.server, POLLIN, POLLIN);
	FD_SET(pair.client, &writable);
	assert_int_equal(rselect(FD_SETSIZE, &readable, &writable, NULL, &patience), 2);
	assert_true(FD_ISSET(pair.server, &readable));
	assert_false(FD_ISSET(pair.client, &readable));
	assert_true(FD_ISSET(pair.client, &writable));
	pair_close(&pair);
	FD_ZERO(&readable);
	FD_SET(pair.server, &readable);
	assert_int_equal(failure(rselect(pair.server + 1, &readable, NULL, NULL, &none)), EBADF);
}

static void an_unconnected_one_hangs_up(void **state)
{
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	await(socket, POLLIN | POLLOUT, POLLOUT | POLLHUP);
	assert_int_equal(rclose(socket), 0);
	await(socket, POLLIN, POLLNVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_ready_until_it_is),
		cmocka_unit_test(other_descriptors_are_seen_beside),
		cmocka_unit_test(all_threads_that_wait_are_woken),
		cmocka_unit_test(many_at_once),
		cmocka_unit_test(selecting),
		cmocka_unit_test(an_unconnected_one_hangs_up),
	};

	return cmocka_run_group_tests_name("rsocket.polling", tests, NULL, NULL);
}
