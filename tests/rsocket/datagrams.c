/* SPDX-License-Identifier: MIT */
/* Datagrams: whole, from whom they say, first by UDP and then by UD. */
#include <poll.h>

#include "pair.h"

struct ends {
	int one, other;
	struct sockaddr_in one_address, other_address;
};

static int bound(struct sockaddr_in *address)
{
	int socket = rsocket(AF_INET, SOCK_DGRAM, 0);
	socklen_t length = sizeof(*address);

	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	assert_int_equal(failure(socket), 0);
	assert_int_equal(failure(rbind(socket, (struct sockaddr *)address, sizeof(*address))), 0);
	assert_int_equal(failure(rgetsockname(socket, (struct sockaddr *)address, &length)), 0);
	return socket;
}

static void open_ends(struct ends *ends)
{
	ends->one = bound(&ends->one_address);
	ends->other = bound(&ends->other_address);
}

static void close_ends(struct ends *ends)
{
	assert_int_equal(rclose(ends->one), 0);
	assert_int_equal(rclose(ends->other), 0);
}

static void expect_from(int socket, const struct sockaddr_in *from, size_t length, uint64_t position)
{
	uint8_t bytes[4096];
	struct sockaddr_in source;
	socklen_t size = sizeof(source);

	await(socket, POLLIN, POLLIN);
	assert_int_equal(rrecvfrom(socket, bytes, sizeof(bytes), 0, (struct sockaddr *)&source, &size), length);
	assert_true(filled(bytes, length, position));
	assert_int_equal(size, sizeof(source));
	assert_int_equal(source.sin_port, from->sin_port);
	assert_int_equal(source.sin_addr.s_addr, from->sin_addr.s_addr);
}

static void send_to(int socket, const struct sockaddr_in *to, size_t length, uint64_t position)
{
	uint8_t bytes[4096];

	fill(bytes, length, position);
	assert_int_equal(rsendto(socket, bytes, length, 0, (const struct sockaddr *)to, sizeof(*to)), length);
}

static void they_go_both_ways(void **state)
{
	static const size_t lengths[] = { 0, 1, 100, 900, 1100, 2000 };
	struct ends ends;

	(void)state;
	open_ends(&ends);
	for (int turn = 0; turn < 20; turn++) {
		size_t length = lengths[turn % 6];
		send_to(ends.one, &ends.other_address, length, turn);
		expect_from(ends.other, &ends.one_address, length, turn);
		send_to(ends.other, &ends.one_address, length, turn + 1);
		expect_from(ends.one, &ends.other_address, length, turn + 1);
	}
	close_ends(&ends);
}

static void too_long_is_refused(void **state)
{
	static uint8_t bytes[5000];
	struct ends ends;

	(void)state;
	open_ends(&ends);
	assert_int_equal(failure(rsendto(ends.one, bytes, sizeof(bytes), 0, (struct sockaddr *)&ends.other_address,
					 sizeof(ends.other_address))),
			 EMSGSIZE);
	assert_int_equal(failure(rsend(ends.one, bytes, 1, 0)), EDESTADDRREQ);
	close_ends(&ends);
}

static void connected_ones_hear_only_their_peer(void **state)
{
	struct sockaddr_in stranger_address;
	struct ends ends;
	uint8_t bytes[10];

	(void)state;
	open_ends(&ends);
	int stranger = bound(&stranger_address);
	assert_int_equal(failure(rconnect(ends.one, (struct sockaddr *)&ends.other_address, sizeof(ends.other_address))), 0);
	assert_int_equal(rsend(ends.one, "hello", 5, 0), 5);
	await(ends.other, POLLIN, POLLIN);
	assert_int_equal(rrecv(ends.other, bytes, 3, MSG_TRUNC), 5);
	send_to(stranger, &ends.one_address, 100, 7);
	send_to(ends.other, &ends.one_address, 200, 8);
	expect_from(ends.one, &ends.other_address, 200, 8);
	assert_int_equal(failure(rrecv(ends.one, bytes, sizeof(bytes), MSG_DONTWAIT)), EAGAIN);
	assert_int_equal(rclose(stranger), 0);
	close_ends(&ends);
}

static void one_hears_many(void **state)
{
	enum { MANY = 20 };
	struct sockaddr_in addresses[MANY], address;
	int sockets[MANY], socket = bound(&address);

	(void)state;
	for (int i = 0; i < MANY; i++)
		sockets[i] = bound(&addresses[i]);
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < MANY; i++) {
			send_to(sockets[i], &address, 50 + i, i);
			expect_from(socket, &addresses[i], 50 + i, i);
			send_to(socket, &addresses[i], 60 + i, i);
			expect_from(sockets[i], &address, 60 + i, i);
		}
	}
	for (int i = 0; i < MANY; i++)
		assert_int_equal(rclose(sockets[i]), 0);
	assert_int_equal(rclose(socket), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(they_go_both_ways),
		cmocka_unit_test(too_long_is_refused),
		cmocka_unit_test(connected_ones_hear_only_their_peer),
		cmocka_unit_test(one_hears_many),
	};

	return cmocka_run_group_tests_name("rsocket.datagrams", tests, NULL, NULL);
}
