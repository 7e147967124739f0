/* SPDX-License-Identifier: MIT */
#include "pair.h"

void pair_listen(struct pair *pair, int backlog, void (*prepare)(int socket))
{
	socklen_t length = sizeof(pair->address);

	*pair = (struct pair){ -1, -1, -1, { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) } };
	pair->listener = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(failure(pair->listener), 0);
	if (prepare)
		prepare(pair->listener);
	assert_int_equal(failure(rbind(pair->listener, (struct sockaddr *)&pair->address, sizeof(pair->address))), 0);
	assert_int_equal(failure(rlisten(pair->listener, backlog)), 0);
	assert_int_equal(failure(rgetsockname(pair->listener, (struct sockaddr *)&pair->address, &length)), 0);
	assert_int_equal(length, sizeof(pair->address));
	assert_int_not_equal(pair->address.sin_port, 0);
}

void pair_open(struct pair *pair, void (*prepare)(int socket))
{
	pair_listen(pair, 8, prepare);
	pair->client = rsocket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(failure(pair->client), 0);
	if (prepare)
		prepare(pair->client);
	assert_int_equal(failure(rconnect(pair->client, (struct sockaddr *)&pair->address, sizeof(pair->address))), 0);
	pair->server = raccept(pair->listener, NULL, NULL);
	assert_int_equal(failure(pair->server), 0);
}

void pair_close(struct pair *pair)
{
	int sockets[] = { pair->client, pair->server, pair->listener };

	for (int i = 0; i < 3; i++)
		if (sockets[i] >= 0)
			assert_int_equal(failure(rclose(sockets[i])), 0);
}

void set_nonblocking(int socket)
{
	assert_int_equal(failure(rfcntl(socket, F_SETFL, O_NONBLOCK)), 0);
	assert_true(rfcntl(socket, F_GETFL) & O_NONBLOCK);
}

void await(int socket, short events, short expected)
{
	struct pollfd fd = { socket, events, 0 };

	assert_int_equal(rpoll(&fd, 1, PATIENCE_MS), 1);
	assert_int_equal(fd.revents, expected);
}

static uint8_t byte(uint64_t position)
{
	return (position * 0x9e3779b97f4a7c15) >> 56;
}

void fill(uint8_t *bytes, size_t length, uint64_t position)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = byte(position + i);
}

bool filled(const uint8_t *bytes, size_t length, uint64_t position)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != byte(position + i))
			return false;
	return true;
}

void send_all(int socket, uint64_t from, uint64_t to, size_t piece)
{
	uint8_t *bytes = malloc(piece);

	while (from < to) {
		size_t length = to - from < piece ? to - from : piece;
		fill(bytes, length, from);
		assert_int_equal(rsend(socket, bytes, length, 0), length);
		from += length;
	}
	free(bytes);
}

void receive_all(int socket, uint64_t from, uint64_t to, size_t piece)
{
	uint8_t *bytes = malloc(piece);

	while (from < to) {
		ssize_t got = rrecv(socket, bytes, to - from < piece ? to - from : piece, 0);
		assert_int_equal(failure(got), 0);
		assert_int_not_equal(got, 0);
		assert_true(filled(bytes, got, from));
		from += got;
	}
	free(bytes);
}
