/* SPDX-License-Identifier: MIT */
/*
 * rdma_getaddrinfo: names and services to addresses, as getaddrinfo(3) knows them, with the port space and the type of QP that go
 * with the program's hints. Sources and routes are left open: what rdma_resolve_addr() finds by the host's routes is right on
 * Ethernet.
 */
#include "rdmacm/rdmacm.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#define FLAGS (RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY)

static bool is_datagram(const struct rdma_addrinfo *hints)
{
	if (hints->ai_qp_type)
		return hints->ai_qp_type == IBV_QPT_UD;
	return hints->ai_port_space == RDMA_PS_UDP || hints->ai_port_space == RDMA_PS_IPOIB;
}

/* 0, or what the hints contradict themselves in. */
static int check_hints(const struct rdma_addrinfo *hints)
{
	bool is_ud = is_datagram(hints);

	if (hints->ai_flags & ~FLAGS)
		return EAI_BADFLAGS;
	if (hints->ai_flags & RAI_FAMILY && hints->ai_family != AF_UNSPEC && hints->ai_family != AF_INET &&
	    hints->ai_family != AF_INET6)
		return EAI_FAMILY;
	switch (hints->ai_port_space) {
	case 0:
	case RDMA_PS_IB:
		return 0;
	case RDMA_PS_TCP:
		return is_ud ? EAI_SOCKTYPE : 0;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		return is_ud ? 0 : EAI_SOCKTYPE;
	default:
		return EAI_SERVICE;
	}
}

/* An entry without addresses. */
static struct rdma_addrinfo *make_entry(const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *entry = calloc(1, sizeof(*entry));
	bool is_ud = is_datagram(hints);

	if (!entry)
		return NULL;
	entry->ai_flags = hints->ai_flags;
	entry->ai_family = hints->ai_family;
	entry->ai_qp_type = hints->ai_qp_type ? hints->ai_qp_type : is_ud ? IBV_QPT_UD : IBV_QPT_RC;
	entry->ai_port_space = hints->ai_port_space ? hints->ai_port_space : is_ud ? RDMA_PS_UDP : RDMA_PS_TCP;
	return entry;
}

static int copy_address(const struct sockaddr *from, socklen_t length, struct sockaddr **to, socklen_t *to_length)
{
	if (!from || !length)
		return 0;
	*to = malloc(length);
	if (!*to)
		return EAI_MEMORY;
	memcpy(*to, from, length);
	*to_length = length;
	return 0;
}

static int copy_name(const char *from, char **to)
{
	if (!from)
		return 0;
	*to = strdup(from);
	return *to ? 0 : EAI_MEMORY;
}

/* What getaddrinfo found: our own address of a passive side, else the other end's. */
static int fill(struct rdma_addrinfo *entry, const struct addrinfo *found, const struct rdma_addrinfo *hints)
{
	int error;

	entry->ai_family = found->ai_family;
	if (entry->ai_flags & RAI_PASSIVE) {
		error = copy_address(found->ai_addr, found->ai_addrlen, &entry->ai_src_addr, &entry->ai_src_len);
		return error ? error : copy_name(found->ai_canonname, &entry->ai_src_canonname);
	}
	error = copy_address(found->ai_addr, found->ai_addrlen, &entry->ai_dst_addr, &entry->ai_dst_len);
	if (!error)
		error = copy_name(found->ai_canonname, &entry->ai_dst_canonname);
	return error ? error : copy_address(hints->ai_src_addr, hints->ai_src_len, &entry->ai_src_addr, &entry->ai_src_len);
}

/* Without a name: what the hints say, for rdma_create_ep(). */
static int take_hints(const struct rdma_addrinfo *hints, struct rdma_addrinfo **list)
{
	int error;

	*list = make_entry(hints);
	if (!*list)
		return EAI_MEMORY;
	error = copy_address(hints->ai_src_addr, hints->ai_src_len, &(*list)->ai_src_addr, &(*list)->ai_src_len);
	if (!error)
		error = copy_address(hints->ai_dst_addr, hints->ai_dst_len, &(*list)->ai_dst_addr, &(*list)->ai_dst_len);
	return error;
}

static int look_up(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **list)
{
	bool is_ud = is_datagram(hints);
	struct addrinfo wanted = {
		.ai_flags = (hints->ai_flags & RAI_PASSIVE ? AI_PASSIVE : 0) |
			    (hints->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0),
		.ai_family = hints->ai_flags & RAI_FAMILY ? hints->ai_family : AF_UNSPEC,
		.ai_socktype = is_ud ? SOCK_DGRAM : SOCK_STREAM,
	}, *found;
	struct rdma_addrinfo **end = list;
	int error = getaddrinfo(node, service, &wanted, &found);

	if (error)
		return error;
	for (const struct addrinfo *next = found; next && !error; next = next->ai_next) {
		*end = make_entry(hints);
		error = *end ? fill(*end, next, hints) : EAI_MEMORY;
		if (*end)
			end = &(*end)->ai_next;
	}
	freeaddrinfo(found);
	return error;
}

PUBLIC int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	static const struct rdma_addrinfo no_hints;
	struct rdma_addrinfo *list = NULL;
	int before = errno, error;

	if (!res || (!node && !service && !hints))
		return answer(EINVAL);
	if (!hints)
		hints = &no_hints;
	error = check_hints(hints);
	if (!error)
		error = node || service ? look_up(node, service, hints, &list) : take_hints(hints, &list);
	if (error) {
		rdma_freeaddrinfo(list);
		return error;
	}
	errno = before; /* whatever files were looked for */
	*res = list;
	return 0;
}

PUBLIC void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_route);
		free(res->ai_connect);
		free(res);
		res = next;
	}
}
