/* SPDX-License-Identifier: MIT */
/* The order of a GID table and what counts as local, on hosts that are made up: the linker turns the system's calls to
 * the functions below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "nic/gid.h"

struct address {
	const char *interface;
	unsigned ifindex;
	const char *address;
	bool down;
};

/* The host: NULL interface at the end. */
static const struct address *host;
static const char *route4, *route6; /* what the default routes send from; NULL: no route */
static unsigned reads;		    /* of the host's addresses */

int __wrap_getifaddrs(struct ifaddrs **list);
void __wrap_freeifaddrs(struct ifaddrs *list);
unsigned __wrap_if_nametoindex(const char *name);
int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t length);
int __wrap_getsockname(int fd, struct sockaddr *addr, socklen_t *length);

static void to_sockaddr(const char *text, struct sockaddr_storage *storage)
{
	struct sockaddr_in *in = (struct sockaddr_in *)storage;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)storage;

	memset(storage, 0, sizeof(*storage));
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1)
		storage->ss_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1)
		storage->ss_family = AF_INET6;
	else
		fail_msg("no address: %s", text);
}

int __wrap_getifaddrs(struct ifaddrs **list)
{
	*list = NULL;
	reads++;
	for (const struct address *last = host; last && last->interface; last++) {
		struct ifaddrs *entry = calloc(1, sizeof(*entry)), **end = list;
		struct sockaddr_storage *storage = calloc(1, sizeof(*storage));

		assert_true(entry && storage);
		to_sockaddr(last->address, storage);
		entry->ifa_name = (char *)last->interface;
		entry->ifa_flags = last->down ? 0 : IFF_UP;
		entry->ifa_addr = (struct sockaddr *)storage;
		while (*end)
			end = &(*end)->ifa_next;
		*end = entry;
	}
	return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *list)
{
	while (list) {
		struct ifaddrs *next = list->ifa_next;

		free(list->ifa_addr);
		free(list);
		list = next;
	}
}

unsigned __wrap_if_nametoindex(const char *name)
{
	for (const struct address *address = host; address->interface; address++)
		if (!strcmp(name, address->interface))
			return address->ifindex;
	return 0;
}

static int family_asked;

int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t length)
{
	(void)fd;
	(void)length;
	family_asked = addr->sa_family;
	if (family_asked == AF_INET ? !!route4 : !!route6)
		return 0;
	errno = ENETUNREACH;
	return -1;
}

int __wrap_getsockname(int fd, struct sockaddr *addr, socklen_t *length)
{
	(void)fd;
	to_sockaddr(family_asked == AF_INET ? route4 : route6, (struct sockaddr_storage *)addr);
	*length = family_asked == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	return 0;
}

static union ibv_gid gid_of(const char *text)
{
	struct sockaddr_storage storage;
	union ibv_gid gid;

	to_sockaddr(text, &storage);
	if (storage.ss_family == AF_INET)
		return gid_from_ipv4(((struct sockaddr_in *)&storage)->sin_addr.s_addr);
	memcpy(&gid, &((struct sockaddr_in6 *)&storage)->sin6_addr, sizeof(gid));
	return gid;
}

static void assert_table(const char *const *interfaces, const char *const *expected)
{
	static struct gid_table table;
	uint32_t count = 0;

	assert_int_equal(gid_table_read(&table, interfaces), 0);
	for (; expected[count]; count++) {
		union ibv_gid gid = gid_of(expected[count]);

		assert_true(count < table.count);
		assert_memory_equal(&table.gids[count], &gid, sizeof(gid));
		assert_int_equal(gid_table_find(&table, &gid), count);
	}
	assert_int_equal(table.count, count);
	assert_true(gid_is_zero(&table.gids[count]));
}

#define TABLE(interfaces, ...) assert_table(interfaces, (const char *const[]){__VA_ARGS__, NULL})

static const struct address laptop[] = {
	{"lo", 1, "127.0.0.1", false},
	{"docker0", 2, "172.17.0.1", false},
	{"wlan0", 3, "192.168.1.7", false},
	{"old0", 4, "10.9.9.9", true},
	{"lo", 1, "::1", false},
	{"docker0", 2, "fe80::1", false},
	{"wlan0", 3, "2001:db8:5::7", false},
	{"wlan0", 3, "fd00::7", false},
	{"wlan0", 3, "fe80::7", false},
	{NULL, 0, NULL, false},
};

static void default_routes_address_is_first_and_loopback_last(void **state)
{
	(void)state;
	host = laptop;
	route4 = "192.168.1.7";
	route6 = "fd00::7";
	TABLE(NULL, "192.168.1.7", "172.17.0.1", "fd00::7", "2001:db8:5::7", "fe80::1", "fe80::7", "127.0.0.1", "::1");
}

static void without_a_default_route_the_first_ipv4_address_is_first(void **state)
{
	(void)state;
	host = laptop;
	route4 = route6 = NULL;
	TABLE(NULL, "172.17.0.1", "192.168.1.7", "2001:db8:5::7", "fd00::7", "fe80::1", "fe80::7", "127.0.0.1", "::1");
}

static void loopback_is_first_only_where_there_is_nothing_else(void **state)
{
	static const struct address alone[] = {
		{"lo", 1, "127.0.0.1", false},
		{"lo", 1, "::1", false},
		{NULL, 0, NULL, false},
	};

	(void)state;
	host = alone;
	route4 = route6 = NULL;
	TABLE(NULL, "127.0.0.1", "::1");
}

static void device_has_the_addresses_of_its_interfaces_only(void **state)
{
	const char *docker[] = {"docker0", NULL}, *two[] = {"lo", "wlan0", NULL}, *absent[] = {"eth9", NULL};
	static struct gid_table table;

	(void)state;
	host = laptop;
	route4 = "192.168.1.7";
	route6 = NULL;
	TABLE(docker, "172.17.0.1", "fe80::1");
	TABLE(two, "192.168.1.7", "2001:db8:5::7", "fd00::7", "fe80::7", "127.0.0.1", "::1");
	assert_int_equal(gid_table_read(&table, absent), 0);
	assert_int_equal(table.count, 0);
}

static void entries_name_their_interface(void **state)
{
	static struct gid_table table;
	union ibv_gid gid = gid_of("172.17.0.1");

	(void)state;
	host = laptop;
	route4 = route6 = NULL;
	assert_int_equal(gid_table_read(&table, NULL), 0);
	assert_int_equal(table.ifindex[gid_table_find(&table, &gid)], 2);
	gid = gid_of("10.9.9.9"); /* of an interface that is down */
	assert_int_equal(gid_table_find(&table, &gid), -1);
}

static void table_of_more_addresses_than_entries_keeps_a_gap(void **state)
{
	static struct address many[GID_TABLE_LENGTH + 50];
	static char texts[GID_TABLE_LENGTH + 50][16];
	static struct gid_table table;

	(void)state;
	for (unsigned i = 0; i + 1 < GID_TABLE_LENGTH + 50; i++) {
		snprintf(texts[i], sizeof(texts[i]), "10.0.%u.%u", i / 200, i % 200 + 1);
		many[i] = (struct address){"eth0", 2, texts[i], false};
	}
	host = many;
	route4 = texts[GID_TABLE_LENGTH + 40];
	assert_int_equal(gid_table_read(&table, NULL), 0);
	assert_int_equal(table.count, GID_TABLE_LENGTH - 1);
	union ibv_gid gid = gid_of(route4);

	assert_memory_equal(&table.gids[0], &gid, sizeof(gid));
}

static void assert_entry(const struct gid_table *table, uint32_t index, const char *expected)
{
	union ibv_gid gid, want = { 0 };
	bool there = gid_table_get(table, index, &gid, NULL);

	if (expected)
		want = gid_of(expected);
	assert_int_equal(there, !!expected);
	assert_memory_equal(&gid, &want, sizeof(gid));
}

/* An index that a program uses must not come to mean another address. */
static void addresses_that_come_take_the_place_of_those_that_went(void **state)
{
	static const struct address before[] = {
		{"eth0", 2, "10.0.0.1", false},
		{"eth0", 2, "10.0.0.2", false},
		{"lo", 1, "127.0.0.1", false},
		{NULL, 0, NULL, false},
	}, without[] = {
		{"eth0", 2, "10.0.0.1", false},
		{"lo", 1, "127.0.0.1", false},
		{NULL, 0, NULL, false},
	}, after[] = {
		{"eth1", 3, "10.1.0.1", false},
		{"eth1", 3, "10.1.0.2", false},
		{"lo", 1, "127.0.0.1", false},
		{"eth0", 2, "10.0.0.1", false},
		{NULL, 0, NULL, false},
	};
	static struct gid_table table;

	(void)state;
	host = before;
	route4 = route6 = NULL;
	assert_int_equal(gid_table_read(&table, NULL), 0);
	uint32_t changes = table.changes;

	gid_table_update(&table, NULL);
	assert_int_equal(table.changes, changes);
	host = without;
	gid_table_update(&table, NULL);
	assert_int_equal(table.changes, changes + 1);
	assert_int_equal(table.present, 2);
	assert_entry(&table, 0, "10.0.0.1");
	assert_entry(&table, 1, NULL);
	assert_entry(&table, 2, "127.0.0.1");
	host = after;
	gid_table_update(&table, NULL);
	assert_int_equal(table.present, 4);
	assert_int_equal(table.count, 4);
	assert_entry(&table, 0, "10.0.0.1");
	assert_entry(&table, 1, "10.1.0.1");
	assert_entry(&table, 2, "127.0.0.1");
	assert_entry(&table, 3, "10.1.0.2");
}

/* As where a sandbox refuses the ioctl. */
static void interfaces_need_not_be_known(void **state)
{
	static const struct address known[] = {
		{"eth0", 2, "10.0.0.1", false},
		{NULL, 0, NULL, false},
	}, unknown[] = {
		{"eth0", 0, "10.0.0.1", false},
		{"eth0", 0, "10.0.0.2", false},
		{NULL, 0, NULL, false},
	};
	static struct gid_table table;

	(void)state;
	route4 = route6 = NULL;
	host = known;
	assert_int_equal(gid_table_read(&table, NULL), 0);
	host = unknown;
	gid_table_update(&table, NULL);
	assert_int_equal(table.present, 2);
	assert_entry(&table, 0, "10.0.0.1");
	assert_entry(&table, 1, "10.0.0.2");
}

static void port_without_addresses_has_none_present(void **state)
{
	static const struct address none[] = { {NULL, 0, NULL, false} };
	static struct gid_table table;

	(void)state;
	host = laptop;
	assert_int_equal(gid_table_read(&table, NULL), 0);
	host = none;
	gid_table_update(&table, NULL);
	assert_int_equal(table.present, 0);
	host = laptop;
	gid_table_update(&table, NULL);
	assert_int_equal(table.present, 8);
}

static void local_is_every_address_and_all_of_127(void **state)
{
	union ibv_gid ours = gid_of("10.9.9.8"), loopback = gid_of("127.3.2.1"), loopback6 = gid_of("::1"),
		      theirs = gid_of("8.8.8.8"), theirs6 = gid_of("2001:db8::5");
	static const struct address server[] = {{"eth0", 2, "10.9.9.8", false}, {NULL, 0, NULL, false}};
	unsigned before;

	(void)state;
	host = server;
	assert_true(gid_is_local(&ours));
	assert_true(gid_is_local(&loopback));
	assert_true(gid_is_local(&loopback6));
	assert_false(gid_is_local(&theirs));
	assert_false(gid_is_local(&theirs6));
	/* what is known is not asked for again */
	before = reads;
	for (int i = 0; i < 1000; i++)
		assert_true(gid_is_local(&ours));
	assert_int_equal(reads, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(default_routes_address_is_first_and_loopback_last),
		cmocka_unit_test(without_a_default_route_the_first_ipv4_address_is_first),
		cmocka_unit_test(loopback_is_first_only_where_there_is_nothing_else),
		cmocka_unit_test(device_has_the_addresses_of_its_interfaces_only),
		cmocka_unit_test(entries_name_their_interface),
		cmocka_unit_test(table_of_more_addresses_than_entries_keeps_a_gap),
		cmocka_unit_test(addresses_that_come_take_the_place_of_those_that_went),
		cmocka_unit_test(interfaces_need_not_be_known),
		cmocka_unit_test(port_without_addresses_has_none_present),
		cmocka_unit_test(local_is_every_address_and_all_of_127),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
