/* SPDX-License-Identifier: MIT */
/*
 * Addresses of this host as GIDs: the order of a port's table, and the cached set of local
 * addresses. Both are under one lock, which a child of fork() finds free.
 */
#include "nic/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "nic/keep_errno.h"

/* Order of a table; equal ranks stay in the order of the interfaces. */
enum gid_rank {
	RANK_DEFAULT_IPV4, /* what the default route would send from */
	RANK_IPV4,
	RANK_DEFAULT_IPV6,
	RANK_IPV6,
	RANK_LINK_LOCAL,
	RANK_LOOPBACK_IPV4,
	RANK_LOOPBACK_IPV6,
};

struct candidate {
	union ibv_gid gid;
	uint32_t ifindex;
	enum gid_rank rank;
	unsigned place; /* as the kernel lists it */
	bool is_entry;	/* of the table that is changed */
};

/* IPv4 is looked for at an address of the class that was never given out, IPv6 at one of the
 * documentation prefix (RFC 3849): only a default route leads there. Connecting a UDP socket sends
 * nothing. */
#define FAR_IPV4 0xf0000001
static const struct in6_addr far_ipv6 = { .s6_addr = { 0x20, 0x01, 0x0d, 0xb8, [15] = 1 } };

union ibv_gid gid_from_ipv4(uint32_t addr)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff } };

	memcpy(gid.raw + 12, &addr, sizeof(addr));
	return gid;
}

bool gid_is_zero(const union ibv_gid *gid)
{
	static const union ibv_gid zero;

	return !memcmp(gid, &zero, sizeof(zero));
}

bool gid_is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(gid->raw, mapped, sizeof(mapped));
}

bool gid_is_loopback(const union ibv_gid *gid)
{
	return gid_is_ipv4(gid) ? gid->raw[12] == 127 :
				  !memcmp(gid->raw, &in6addr_loopback, sizeof(*gid));
}

bool gid_is_link_local(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

const char *gid_text(const union ibv_gid *gid, char *text)
{
	bool v4 = gid_is_ipv4(gid);

	return inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid->raw + 12 : gid->raw, text, GID_TEXT_BYTES);
}

static bool gid_of_address(const struct sockaddr *addr, union ibv_gid *gid)
{
	if (addr && addr->sa_family == AF_INET) {
		*gid = gid_from_ipv4(((const struct sockaddr_in *)addr)->sin_addr.s_addr);
		return true;
	}
	if (addr && addr->sa_family == AF_INET6) {
		memcpy(gid->raw, &((const struct sockaddr_in6 *)addr)->sin6_addr, sizeof(gid->raw));
		return true;
	}
	return false;
}

/* The address that the default route of a family would send from; zero without such a route. */
static union ibv_gid gid_of_default_route(int family)
{
	union ibv_gid gid = { 0 };
	struct sockaddr_storage addr = { .ss_family = family };
	socklen_t length = sizeof(struct sockaddr_in);
	int fd = descriptor_socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return gid;
	if (family == AF_INET) {
		((struct sockaddr_in *)&addr)->sin_addr.s_addr = htonl(FAR_IPV4);
		((struct sockaddr_in *)&addr)->sin_port = htons(9);
	} else {
		length = sizeof(struct sockaddr_in6);
		((struct sockaddr_in6 *)&addr)->sin6_addr = far_ipv6;
		((struct sockaddr_in6 *)&addr)->sin6_port = htons(9);
	}
	if (!connect(fd, (struct sockaddr *)&addr, length)) {
		length = sizeof(addr);
		if (!getsockname(fd, (struct sockaddr *)&addr, &length))
			gid_of_address((struct sockaddr *)&addr, &gid);
	}
	close(fd);
	return gid;
}

static enum gid_rank rank_of(const union ibv_gid *gid, const union ibv_gid *route4,
			     const union ibv_gid *route6)
{
	if (gid_is_loopback(gid))
		return gid_is_ipv4(gid) ? RANK_LOOPBACK_IPV4 : RANK_LOOPBACK_IPV6;
	if (gid_is_ipv4(gid))
		return memcmp(gid, route4, sizeof(*gid)) ? RANK_IPV4 : RANK_DEFAULT_IPV4;
	if (gid_is_link_local(gid))
		return RANK_LINK_LOCAL;
	return memcmp(gid, route6, sizeof(*gid)) ? RANK_IPV6 : RANK_DEFAULT_IPV6;
}

static int by_rank(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	if (a->rank != b->rank)
		return a->rank < b->rank ? -1 : 1;
	return a->place < b->place ? -1 : a->place > b->place;
}

static bool is_named(const char *name, const char *const *interfaces)
{
	if (!interfaces)
		return true;
	for (; *interfaces; interfaces++)
		if (!strcmp(name, *interfaces))
			return true;
	return false;
}

/* The candidates of the host, as the kernel lists them; *count of them, to be freed. NULL with
 * errno. */
static struct candidate *read_candidates(const char *const *interfaces, unsigned *count)
{
	struct ifaddrs *list;
	struct candidate *candidates;
	unsigned room = 0;

	if (getifaddrs(&list))
		return NULL;
	for (struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next)
		room++;
	candidates = calloc(room ? room : 1, sizeof(*candidates));
	*count = 0;
	for (struct ifaddrs *ifa = list; candidates && ifa; ifa = ifa->ifa_next) {
		struct candidate *c = &candidates[*count];

		if (!(ifa->ifa_flags & IFF_UP) || !is_named(ifa->ifa_name, interfaces) ||
		    !gid_of_address(ifa->ifa_addr, &c->gid))
			continue;
		c->ifindex = if_nametoindex(ifa->ifa_name);
		c->place = (*count)++;
	}
	freeifaddrs(list);
	if (!candidates)
		errno = ENOMEM;
	return candidates;
}

/* What an Ethernet has, if the interface does not say. */
#define USUAL_MTU 1500

uint32_t gid_interface_mtu(uint32_t ifindex)
{
	struct ifreq request = { 0 };
	int fd = descriptor_socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool known = fd >= 0 && if_indextoname(ifindex, request.ifr_name) && !ioctl(fd, SIOCGIFMTU, &request);

	if (fd >= 0)
		close(fd);
	return known && request.ifr_mtu > 0 ? (uint32_t)request.ifr_mtu : USUAL_MTU;
}

/* Tables that are in use, and the host's addresses, for gid_is_local(). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	struct candidate *addresses;
	unsigned count;
	time_t read_at; /* CLOCK_MONOTONIC, s */
} local;

static void lock_addresses(void)
{
	pthread_mutex_lock(&lock);
}

static void unlock_addresses(void)
{
	pthread_mutex_unlock(&lock);
}

/* A child must not inherit the lock from a thread that it does not have. Before others do so for their locks: the last is taken
 * first at fork(), and this one is taken inside others. */
__attribute__((constructor)) static void watch_fork(void)
{
	pthread_atfork(lock_addresses, unlock_addresses, unlock_addresses);
}

/* The host's addresses in the order of a table; as read_candidates(). */
static struct candidate *read_in_order(const char *const *interfaces, unsigned *count)
{
	union ibv_gid route4 = gid_of_default_route(AF_INET), route6 = gid_of_default_route(AF_INET6);
	struct candidate *candidates = read_candidates(interfaces, count);

	if (!candidates)
		return NULL;
	for (unsigned i = 0; i < *count; i++)
		candidates[i].rank = rank_of(&candidates[i].gid, &route4, &route6);
	qsort(candidates, *count, sizeof(*candidates), by_rank);
	return candidates;
}

/* A free index, the first; one stays free for ever, programs look for the end. */
static uint32_t find_gap(const struct gid_table *table)
{
	uint32_t i = 0;

	while (i < table->count && !gid_is_zero(&table->gids[i]))
		i++;
	return i < GID_TABLE_LENGTH - 1 ? i : GID_TABLE_LENGTH;
}

/* Whether an address is an entry, which is then marked. Its interface may not be known: some sandboxes do not let it be asked for. */
static bool keep_entry(const struct gid_table *table, const struct candidate *c, bool *kept)
{
	for (uint32_t i = 0; i < table->count; i++) {
		if (!kept[i] && (table->ifindex[i] == c->ifindex || !c->ifindex) &&
		    !memcmp(&table->gids[i], &c->gid, sizeof(c->gid)))
			return kept[i] = true;
	}
	return false;
}

/* Lock held. */
static void change(struct gid_table *table, struct candidate *candidates, unsigned count)
{
	bool kept[GID_TABLE_LENGTH] = { false };
	uint32_t changed = 0;

	for (unsigned i = 0; i < count; i++)
		candidates[i].is_entry = keep_entry(table, &candidates[i], kept);
	for (uint32_t i = 0; i < table->count; i++) {
		if (kept[i] || gid_is_zero(&table->gids[i]))
			continue;
		table->gids[i] = (union ibv_gid){ 0 };
		table->ifindex[i] = 0;
		table->present--;
		changed = 1;
	}
	for (unsigned i = 0; i < count; i++) {
		uint32_t at = candidates[i].is_entry ? GID_TABLE_LENGTH : find_gap(table);

		if (at == GID_TABLE_LENGTH)
			continue;
		table->gids[at] = candidates[i].gid;
		table->ifindex[at] = candidates[i].ifindex;
		if (at == table->count)
			table->count++;
		table->present++;
		changed = 1;
	}
	table->changes += changed;
	for (uint32_t i = 0; i < table->count; i++) {
		if (!gid_is_zero(&table->gids[i])) {
			table->interface_mtu = gid_interface_mtu(table->ifindex[i]);
			break;
		}
	}
}

void gid_table_update(struct gid_table *table, const char *const *interfaces)
{
	unsigned count;
	struct candidate *candidates = read_in_order(interfaces, &count);

	if (!candidates)
		return;
	lock_addresses();
	change(table, candidates, count);
	unlock_addresses();
	free(candidates);
}

int gid_table_read(struct gid_table *table, const char *const *interfaces)
{
	KEEP_ERRNO;
	unsigned count;
	struct candidate *candidates = read_in_order(interfaces, &count);

	int error = candidates ? 0 : errno;

	lock_addresses();
	memset(table, 0, sizeof(*table));
	table->interface_mtu = USUAL_MTU;
	if (candidates)
		change(table, candidates, count);
	unlock_addresses();
	free(candidates);
	return error;
}

bool gid_table_get(const struct gid_table *table, uint32_t index, union ibv_gid *gid, uint32_t *ifindex)
{
	bool there = false;

	if (index >= GID_TABLE_LENGTH)
		return false;
	lock_addresses();
	there = !gid_is_zero(&table->gids[index]);
	*gid = table->gids[index];
	if (ifindex)
		*ifindex = table->ifindex[index];
	unlock_addresses();
	return there;
}

int gid_table_find(const struct gid_table *table, const union ibv_gid *gid)
{
	int found = -1;

	lock_addresses();
	for (uint32_t i = 0; i < table->count && found < 0; i++) {
		if (!memcmp(&table->gids[i], gid, sizeof(*gid)))
			found = (int)i;
	}
	unlock_addresses();
	return found;
}

static bool is_cached(const union ibv_gid *gid)
{
	for (unsigned i = 0; i < local.count; i++)
		if (!memcmp(&local.addresses[i].gid, gid, sizeof(*gid)))
			return true;
	return false;
}

/* Lock held. */
static void keep_local(struct candidate *addresses, unsigned count)
{
	struct timespec now;

	if (!addresses)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	free(local.addresses);
	local.addresses = addresses;
	local.count = count;
	local.read_at = now.tv_sec;
}

bool gid_is_local(const union ibv_gid *gid)
{
	struct timespec now;
	bool found;

	if (gid_is_loopback(gid))
		return true;
	clock_gettime(CLOCK_MONOTONIC, &now);
	lock_addresses();
	found = is_cached(gid);
	if (!found && (!local.addresses || now.tv_sec != local.read_at)) {
		unsigned count;
		struct candidate *addresses = read_candidates(NULL, &count);

		keep_local(addresses, count);
		found = addresses && is_cached(gid);
	}
	unlock_addresses();
	return found;
}

void gid_update_local(void)
{
	unsigned count;
	struct candidate *addresses = read_candidates(NULL, &count);

	lock_addresses();
	keep_local(addresses, count);
	unlock_addresses();
}
