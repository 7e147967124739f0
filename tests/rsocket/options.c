/* SPDX-License-Identifier: MIT */
/* Options, and memory that the peer writes into. */
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>

#include "pair.h"

static int get(int socket, int level, int name)
{
	socklen_t length = sizeof(int);
	int value = -1;

	assert_int_equal(failure(rgetsockopt(socket, level, name, &value, &length)), 0);
	assert_int_equal(length, sizeof(int));
	return value;
}

static int set(int socket, int level, int name, int value)
{
	return failure(rsetsockopt(socket, level, name, &value, sizeof(value)));
}

static void options_are_kept(void **state)
{
	static const struct {
		int level, name, value;
	} rows[] = {
		{ SOL_SOCKET, SO_REUSEADDR, 1 }, { SOL_SOCKET, SO_KEEPALIVE, 1 },  { SOL_SOCKET, SO_OOBINLINE, 1 },
		{ IPPROTO_TCP, TCP_NODELAY, 1 }, { IPPROTO_TCP, TCP_KEEPIDLE, 5 }, { SOL_RDMA, RDMA_SQSIZE, 100 },
		{ SOL_RDMA, RDMA_RQSIZE, 50 },	 { SOL_RDMA, RDMA_INLINE, 32 },	   { SOL_RDMA, RDMA_IOMAPSIZE, 16 },
	};
	int socket = rsocket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(set(socket, rows[i].level, rows[i].name, rows[i].value), 0);
		assert_int_equal(get(socket, rows[i].level, rows[i].name), rows[i].value);
	}
	assert_int_equal(set(socket, SOL_SOCKET, SO_RCVBUF, 100000), 0);
	assert_int_equal(get(socket, SOL_SOCKET, SO_RCVBUF), 200000);
	assert_int_equal(set(socket, SOL_SOCKET, SO_SNDBUF, 100000), 0);
	assert_int_equal(get(socket, SOL_SOCKET, SO_SNDBUF), 200000);
	struct linger linger = { 1, 3 };
	assert_int_equal(failure(rsetsockopt(socket, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger))), 0);
	assert_int_equal(set(socket, SOL_SOCKET, SO_BROADCAST, 1), ENOTSUP);
	assert_int_equal(set(socket, IPPROTO_IP, 1, 1), ENOTSUP);
	assert_int_equal(failure(rsetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &linger, 1)), EINVAL);
	assert_int_equal(get(socket, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
	assert_int_equal(rclose(socket), 0);
}

static void the_path_of_a_connection_is_told(void **state)
{
	struct ibv_path_data records[2];
	socklen_t length = sizeof(records);
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	assert_int_equal(failure(rgetsockopt(pair.client, SOL_RDMA, RDMA_ROUTE, records, &length)), 0);
	assert_int_equal(length, sizeof(records[0]));
	assert_true(records[0].path.reversible_numpath & 0x80);
	assert_true(get(pair.client, IPPROTO_TCP, TCP_MAXSEG) >= 256);
	assert_int_equal(set(pair.client, SOL_RDMA, RDMA_SQSIZE, 100), EINVAL);
	pair_close(&pair);
}

static void ask_for_keepalives(int socket)
{
	assert_int_equal(set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1), 0);
	assert_int_equal(set(socket, SOL_SOCKET, SO_KEEPALIVE, 1), 0);
}

/* And the peer's program sees nothing of them. */
static void keepalives_harm_nobody(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, ask_for_keepalives);
	struct pollfd fd = { pair.server, POLLIN, 0 };
	assert_int_equal(rpoll(&fd, 1, 2500), 0);
	send_all(pair.client, 0, 1000, 100);
	receive_all(pair.server, 0, 1000, 100);
	pair_close(&pair);
}

static void allow_iomaps(int socket)
{
	assert_int_equal(set(socket, SOL_RDMA, RDMA_IOMAPSIZE, 2), 0);
}

/* A byte that tells the other end that what went before has happened. */
static void signal_peer(int from, int to)
{
	char byte = 's';

	assert_int_equal(rsend(from, &byte, 1, 0), 1);
	assert_int_equal(rrecv(to, &byte, 1, 0), 1);
}

static void mapped_memory_is_written_into(void **state)
{
	enum { LENGTH = 1 << 20 };
	uint8_t *memory = calloc(1, LENGTH), *bytes = malloc(LENGTH);
	struct pair pair;

	(void)state;
	pair_open(&pair, allow_iomaps);
	assert_int_equal(riomap(pair.server, memory, LENGTH, PROT_WRITE, 0, 1000), 1000);
	signal_peer(pair.server, pair.client);
	fill(bytes, LENGTH, 0);
	assert_int_equal(riowrite(pair.client, bytes, LENGTH, 1000, 0), LENGTH);
	assert_int_equal(riowrite(pair.client, "second", 6, 1010, 0), 6);
	signal_peer(pair.client, pair.server);
	assert_memory_equal(memory + 10, "second", 6);
	memcpy(memory + 10, bytes + 10, 6);
	assert_true(filled(memory, LENGTH, 0));
	/* No further, and not elsewhere. */
	assert_int_equal(riowrite(pair.client, bytes, 10, 1000 + LENGTH - 3, 0), 3);
	assert_int_equal(failure((ssize_t)riowrite(pair.client, bytes, 10, 1000 + LENGTH, 0)), EINVAL);
	assert_int_equal(failure((ssize_t)riowrite(pair.client, bytes, 10, 999, 0)), EINVAL);
	pair_close(&pair);
	free(memory);
	free(bytes);
}

static void what_was_unmapped_is_not_found(void **state)
{
	uint8_t memory[3][100] = { 0 };
	struct pair pair;

	(void)state;
	pair_open(&pair, allow_iomaps);
	assert_int_equal(riomap(pair.server, memory[0], 100, PROT_WRITE, 0, -1), (off_t)(uintptr_t)memory[0]);
	assert_int_equal(riomap(pair.server, memory[1], 100, PROT_WRITE, 0, 0), 0);
	assert_int_equal(failure(riomap(pair.server, memory[2], 100, PROT_WRITE, 0, 500)), ENOBUFS);
	signal_peer(pair.server, pair.client);
	assert_int_equal(failure(riounmap(pair.server, memory[1], 99)), EINVAL);
	assert_int_equal(failure(riounmap(pair.server, memory[1], 100)), 0);
	signal_peer(pair.server, pair.client);
	assert_int_equal(failure((ssize_t)riowrite(pair.client, "x", 1, 0, 0)), EINVAL);
	assert_int_equal(riomap(pair.server, memory[2], 100, PROT_WRITE, 0, 500), 500);
	signal_peer(pair.server, pair.client);
	assert_int_equal(riowrite(pair.client, "x", 1, 599, 0), 1);
	assert_int_equal(riowrite(pair.client, "y", 1, (off_t)(uintptr_t)memory[0], 0), 1);
	signal_peer(pair.client, pair.server);
	assert_int_equal(memory[2][99], 'x');
	assert_int_equal(memory[0][0], 'y');
	/* At once another in its place. */
	assert_int_equal(failure(riounmap(pair.server, memory[2], 100)), 0);
	assert_int_equal(riomap(pair.server, memory[1], 50, PROT_WRITE, 0, 500), 500);
	signal_peer(pair.server, pair.client);
	assert_int_equal(failure((ssize_t)riowrite(pair.client, "x", 1, 599, 0)), EINVAL);
	assert_int_equal(riowrite(pair.client, "z", 1, 549, 0), 1);
	signal_peer(pair.client, pair.server);
	assert_int_equal(memory[1][49], 'z');
	pair_close(&pair);
}

static void without_a_table_nothing_is_mapped(void **state)
{
	struct pair pair;
	char byte;

	(void)state;
	pair_open(&pair, NULL);
	assert_int_equal(failure(riomap(pair.server, &byte, 1, PROT_WRITE, 0, 0)), ENOBUFS);
	/* For oneself there is no need of one. */
	assert_int_equal(riomap(pair.server, &byte, 1, PROT_NONE, 0, 0), 0);
	assert_int_equal(failure(riounmap(pair.server, &byte, 1)), 0);
	assert_int_equal(failure(riomap(pair.server, &byte, 1, PROT_EXEC, 0, 0)), EINVAL);
	assert_int_equal(failure(riomap(pair.listener, &byte, 1, PROT_WRITE, 0, 0)), ENOTCONN);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_are_kept),
		cmocka_unit_test(the_path_of_a_connection_is_told),
		cmocka_unit_test(keepalives_harm_nobody),
		cmocka_unit_test(mapped_memory_is_written_into),
		cmocka_unit_test(what_was_unmapped_is_not_found),
		cmocka_unit_test(without_a_table_nothing_is_mapped),
	};

	return cmocka_run_group_tests_name("rsocket.options", tests, NULL, NULL);
}
