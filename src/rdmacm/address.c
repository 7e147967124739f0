/* SPDX-License-Identifier: MIT */
/*
 * Addresses of an id: binding, resolving, listening, and what is public of them in id.route. An id is bound to the device that has
 * its own address as a GID as soon as it has one.
 */
#include "rdmacm/rdmacm.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

/* Of path records: the value given is the value meant. */
#define SELECTOR_EXACTLY 2
#define PKEY		 0xffff

socklen_t address_length(const struct sockaddr *address)
{
	if (!address)
		return 0;
	switch (address->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return 0;
	}
}

static bool is_zero(const union ibv_gid *gid)
{
	return !gid->global.subnet_prefix && !gid->global.interface_id;
}

/* By the code of the port's speed a lane; our ports have four. */
static uint8_t port_rate(const struct device *device)
{
	static const struct {
		uint8_t speed, rate;
	} rates[] = {
		{ 1, IBV_RATE_10_GBPS },  { 2, IBV_RATE_20_GBPS },   { 4, IBV_RATE_40_GBPS },	{ 8, IBV_RATE_40_GBPS },
		{ 16, IBV_RATE_56_GBPS }, { 32, IBV_RATE_100_GBPS }, { 64, IBV_RATE_200_GBPS },
	};
	struct ibv_port_attr port;

	if (ibv_query_port(device->verbs, 1, &port))
		return IBV_RATE_MAX;
	for (unsigned i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
		if (rates[i].speed == port.active_speed)
			return rates[i].rate;
	}
	return IBV_RATE_MAX;
}

static int set_path(struct id *id, const struct cm_addresses *addresses)
{
	struct rdma_route *route = &id->id.route;

	if (!route->path_rec) {
		route->path_rec = calloc(1, sizeof(*route->path_rec));
		if (!route->path_rec)
			return ENOMEM;
	}
	route->num_paths = 1;
	*route->path_rec = (struct ibv_sa_path_rec){
		.dgid = addresses->dgid,
		.sgid = addresses->sgid,
		.hop_limit = addresses->hop_limit,
		.traffic_class = addresses->traffic_class,
		.reversible = 1,
		.numb_path = 1,
		.pkey = htobe16(PKEY),
		.mtu_selector = SELECTOR_EXACTLY,
		.mtu = (uint8_t)addresses->mtu,
		.rate_selector = SELECTOR_EXACTLY,
		.rate = port_rate(id->device),
		.packet_life_time_selector = SELECTOR_EXACTLY,
		.packet_life_time = addresses->packet_lifetime,
	};
	return 0;
}

static int query_addresses(struct id *id, struct cm_addresses *addresses)
{
	struct rdma_addr *addr = &id->id.route.addr;
	int error = cm_query(id->cm, addresses);

	if (error)
		return error;
	addr->src_storage = addresses->src;
	/* Before it is resolved we know of a destination what the program has said. */
	if (addresses->dst.ss_family)
		addr->dst_storage = addresses->dst;
	return 0;
}

static int bind_device(struct id *id, const struct cm_addresses *addresses)
{
	struct rdma_ib_addr *addr = &id->id.route.addr.addr.ibaddr;
	int error;

	if (!id->device) {
		error = device_hold(&addresses->sgid, &id->device);
		if (error)
			return error;
		id->id.verbs = id->device->verbs;
		id->id.pd = id->device->pd;
		id->id.port_num = 1;
	}
	addr->sgid = addresses->sgid;
	addr->dgid = addresses->dgid;
	addr->pkey = htobe16(PKEY);
	return 0;
}

int id_query(struct id *id, bool with_path)
{
	struct cm_addresses addresses;
	int error = query_addresses(id, &addresses);

	if (!error)
		error = bind_device(id, &addresses);
	return error || !with_path ? error : set_path(id, &addresses);
}

static bool is_loopback(const struct sockaddr *address)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;

	if (address->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
	return address->sa_family == AF_INET && ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

/*
 * What binding makes of an id: its own address, and if that is one of a device, that. A connected service at a loopback address gets
 * its device with its connections, as on Linux: libfabric binds there, and takes a device that it finds for the one to use, and the
 * address for the one to be reached by. Of datagrams the QP is made on this id.
 */
static int query_bound(struct id *id)
{
	struct cm_addresses addresses;
	int error = query_addresses(id, &addresses);

	if (error || is_zero(&addresses.sgid))
		return error;
	if (id->id.qp_type != IBV_QPT_UD && is_loopback(&id->id.route.addr.src_addr))
		return 0;
	return bind_device(id, &addresses);
}

PUBLIC int rdma_bind_addr(struct rdma_cm_id *handle, struct sockaddr *addr)
{
	struct id *id = to_id(handle);
	int error;

	if (!addr)
		return answer(EINVAL);
	error = cm_bind(id->cm, addr);
	return answer(error ? error : query_bound(id));
}

PUBLIC int rdma_resolve_addr(struct rdma_cm_id *handle, struct sockaddr *src_addr, struct sockaddr *dst_addr, int timeout_ms)
{
	struct id *id = to_id(handle);
	int error;

	if (!dst_addr)
		return answer(EINVAL);
	error = cm_resolve_addr(id->cm, src_addr, dst_addr, timeout_ms);
	if (error)
		return answer(error);
	memcpy(&handle->route.addr.dst_storage, dst_addr, address_length(dst_addr));
	return answer(id_complete(id));
}

PUBLIC int rdma_resolve_route(struct rdma_cm_id *handle, int timeout_ms)
{
	struct id *id = to_id(handle);
	int error = cm_resolve_route(id->cm, timeout_ms);

	return answer(error ? error : id_complete(id));
}

PUBLIC int rdma_listen(struct rdma_cm_id *handle, int backlog)
{
	struct id *id = to_id(handle);
	int error = cm_listen(id->cm, backlog);

	return answer(error ? error : query_bound(id));
}

static __be16 port_of(const struct sockaddr *address)
{
	switch (address->sa_family) {
	case AF_INET:
		return ((const struct sockaddr_in *)address)->sin_port;
	case AF_INET6:
		return ((const struct sockaddr_in6 *)address)->sin6_port;
	default:
		return 0;
	}
}

PUBLIC __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.src_addr);
}

PUBLIC __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return port_of(&id->route.addr.dst_addr);
}
