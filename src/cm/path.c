/* SPDX-License-Identifier: MIT */
/* Addresses, and the ways between them. See engine.h. */
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cm/engine.h"
#include "nic/descriptor.h"
#include "nic/gid.h"

/* UDP's discard: connecting sends nothing. */
#define SOME_PORT 9

/* ns for which an interface's MTU is believed */
#define MTU_GOOD 1000000000ull

/* Bytes of headers on the wire, as the port's active MTU counts them (verbs/port.c). */
#define WIRE_OVERHEAD 96

uint16_t address_port(const union cm_address *address)
{
	return ntohs(address->any.sa_family == AF_INET ? address->v4.sin_port : address->v6.sin6_port);
}

void address_set_port(union cm_address *address, uint16_t port)
{
	if (address->any.sa_family == AF_INET)
		address->v4.sin_port = htons(port);
	else
		address->v6.sin6_port = htons(port);
}

bool address_is_any(const union cm_address *address)
{
	if (address->any.sa_family == AF_INET)
		return !address->v4.sin_addr.s_addr;
	return IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr);
}

socklen_t address_bytes(int family)
{
	return family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

int address_copy(union cm_address *to, const struct sockaddr *from)
{
	memset(to, 0, sizeof(*to));
	if (from->sa_family != AF_INET && from->sa_family != AF_INET6)
		return EAFNOSUPPORT;
	memcpy(to, from, address_bytes(from->sa_family));
	return 0;
}

union ibv_gid address_gid(const union cm_address *address)
{
	union ibv_gid gid = { 0 };

	if (address->any.sa_family == AF_INET)
		return address_is_any(address) ? gid : gid_from_ipv4(address->v4.sin_addr.s_addr);
	memcpy(gid.raw, &address->v6.sin6_addr, sizeof(gid.raw));
	return gid;
}

void address_from_gid(union cm_address *address, const union ibv_gid *gid, uint8_t ip_version, uint16_t port)
{
	memset(address, 0, sizeof(*address));
	if (ip_version == 4) {
		address->v4.sin_family = AF_INET;
		memcpy(&address->v4.sin_addr, gid->raw + 12, 4);
	} else {
		address->v6.sin6_family = AF_INET6;
		memcpy(&address->v6.sin6_addr, gid->raw, sizeof(gid->raw));
	}
	address_set_port(address, port);
}

static bool needs_scope(const union cm_address *address)
{
	return address->any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address->v6.sin6_addr) && !address->v6.sin6_scope_id;
}

int path_check_local(const union cm_address *address)
{
	union cm_address copy = *address;
	int fd, error = 0;

	if (address_is_any(address))
		return 0;
	if (needs_scope(address))
		return EINVAL;
	fd = descriptor_socket(address->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	address_set_port(&copy, 0);
	if (bind(fd, &copy.any, address_bytes(copy.any.sa_family)))
		error = errno;
	descriptor_close(fd);
	return error;
}

int path_source(const union cm_address *src, const union cm_address *dst, union cm_address *found)
{
	union cm_address from = *src, to = *dst;
	socklen_t bytes = address_bytes(to.any.sa_family);
	int error = 0, fd;

	if (needs_scope(dst))
		return EINVAL;
	fd = descriptor_socket(to.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	if (from.any.sa_family == to.any.sa_family && !address_is_any(&from)) {
		address_set_port(&from, 0);
		if (bind(fd, &from.any, bytes))
			error = errno;
	}
	address_set_port(&to, SOME_PORT);
	if (!error && connect(fd, &to.any, bytes))
		error = errno;
	*found = (union cm_address){ 0 };
	bytes = sizeof(*found);
	if (!error && getsockname(fd, &found->any, &bytes))
		error = errno;
	descriptor_close(fd);
	if (!error)
		address_set_port(found, 0);
	return error;
}

/* As large as the port's active MTU, and as what has the address sends. */
enum ibv_mtu path_mtu(const union ibv_gid *sgid)
{
	/* Under the lock of the connection manager. */
	static union ibv_gid last;
	static enum ibv_mtu mtu;
	static uint64_t until;
	struct gid_table *table;
	uint32_t bytes;
	int i;

	if (nic_now() < until && !memcmp(&last, sgid, sizeof(last)))
		return mtu;
	mtu = IBV_MTU_1024;
	table = malloc(sizeof(*table));
	if (!table || gid_table_read(table, NULL)) {
		free(table);
		return mtu;
	}
	bytes = table->interface_mtu;
	i = gid_table_find(table, sgid);
	if (i >= 0) {
		uint32_t its = gid_interface_mtu(table->ifindex[i]);

		bytes = its < bytes ? its : bytes;
	}
	free(table);
	for (mtu = IBV_MTU_4096; mtu > IBV_MTU_256 && (128u << mtu) + WIRE_OVERHEAD > bytes;)
		mtu--;
	last = *sgid;
	until = nic_now() + MTU_GOOD;
	return mtu;
}
