/* SPDX-License-Identifier: MIT */
/* The UDP sockets of an address. See port.h. */
#include "roce/port.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "nic/gid.h"
#include "nic/keep_errno.h"
#include "roce/burst.h"
#include "roce/steering.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

/* Source ports of flows: 0xC000 and up, as RoCEv2 has it (annex A17.9.2). */
#define FLOW_FIRST 0xc000u
#define FLOW_TRIES 64

#define RECEIVE_BYTES	 65536u
#define RECEIVE_MESSAGES 16
#define RECEIVE_ROUNDS	 4
#define SOCKET_BUFFER	 (8 << 20) /* bytes; the system may give less */

/* What the kernel tells beside a datagram. */
#define CONTROL_BYTES 128

struct port_buffers {
	struct mmsghdr messages[RECEIVE_MESSAGES];
	struct iovec iov[RECEIVE_MESSAGES];
	union port_address from[RECEIVE_MESSAGES];
	_Alignas(struct cmsghdr) uint8_t control[RECEIVE_MESSAGES][CONTROL_BYTES];
	uint8_t bytes[RECEIVE_MESSAGES][RECEIVE_BYTES];
};

bool port_number(const char *value, uint16_t *number)
{
	char *end;

	*number = ROCE_PORT;
	if (!value || !*value)
		return true;
	unsigned long n = strtoul(value, &end, 10);

	if (*end || n == 0 || n >= FLOW_FIRST)
		return false;
	*number = (uint16_t)n;
	return true;
}

uint16_t port_configured(void)
{
	uint16_t number;

	port_number(getenv("UROCE_PORT"), &number);
	return number;
}

/* The interface that has an IPv6 address of ours. */
static uint32_t interface_of(const union ibv_gid *gid)
{
	struct ifaddrs *list;
	uint32_t ifindex = 0;

	if (getifaddrs(&list))
		return 0;
	for (struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)ifa->ifa_addr;

		if (v6 && v6->sin6_family == AF_INET6 && !memcmp(&v6->sin6_addr, gid->raw, sizeof(gid->raw)))
			ifindex = if_nametoindex(ifa->ifa_name);
	}
	freeifaddrs(list);
	return ifindex;
}

/* Groups whose packets stay on a link or an interface. */
static bool is_link_group(const union ibv_gid *mgid)
{
	return mgid->raw[0] == 0xff && (mgid->raw[1] & 0xf) <= 2;
}

static socklen_t address_of(const union ibv_gid *gid, uint16_t number, uint32_t scope, union port_address *address)
{
	memset(address, 0, sizeof(*address));
	if (gid_is_ipv4(gid)) {
		address->v4.sin_family = AF_INET;
		address->v4.sin_port = htons(number);
		memcpy(&address->v4.sin_addr, gid->raw + 12, 4);
		return sizeof(address->v4);
	}
	address->v6.sin6_family = AF_INET6;
	address->v6.sin6_port = htons(number);
	address->v6.sin6_scope_id = scope;
	memcpy(&address->v6.sin6_addr, gid->raw, sizeof(gid->raw));
	return sizeof(address->v6);
}

static void set(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value));
}

/* DF, so that the kernel gives the identification 0; 64 hops. */
static int open_socket(const union port_address *address)
{
	bool v4 = address->any.sa_family == AF_INET;
	int fd = descriptor_socket(address->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (v4) {
		set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	} else {
		set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
		set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
	}
	return fd;
}

static void make_receiver(int fd, bool v4)
{
	set(fd, IPPROTO_UDP, UDP_GRO, 1);
	set(fd, SOL_SOCKET, SO_RCVBUF, SOCKET_BUFFER);
	set(fd, SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BUFFER);
	if (v4) {
		set(fd, IPPROTO_IP, IP_RECVTOS, 1);
		set(fd, IPPROTO_IP, IP_RECVTTL, 1);
	} else {
		set(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
		set(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
#ifdef UDP_NO_CHECK6_RX
		set(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1); /* what soft-RoCE of Linux sends */
#else
		set(fd, IPPROTO_UDP, 102, 1);
#endif
	}
}

/* share: SO_REUSEPORT, by which one of its sockets gets a packet, or SO_REUSEADDR, by which a group's all do. */
static struct port *open_port(const union ibv_gid *gid, uint32_t scope, int share)
{
	struct port *port = calloc(1, sizeof(*port));
	bool v4 = gid_is_ipv4(gid);
	socklen_t bytes;
	int error;

	if (!port)
		return NULL;
	port->gid = *gid;
	bytes = address_of(gid, port_configured(), scope, &port->address);
	for (int i = 0; i < PORT_FLOWS; i++)
		port->flows[i] = -1;
	port->fd = open_socket(&port->address);
	if (port->fd < 0)
		goto no_socket;
	set(port->fd, SOL_SOCKET, share, 1);
	make_receiver(port->fd, v4);
	if (bind(port->fd, &port->address.any, bytes))
		goto no_name;
	pthread_mutex_init(&port->receiving, NULL);
	pthread_mutex_init(&port->spare_lock, NULL);
	return port;

no_name:
	error = errno;
	descriptor_close(port->fd);
	errno = error;
no_socket:
	error = errno;
	free(port);
	errno = error;
	return NULL;
}

struct port *port_open(const union ibv_gid *gid)
{
	return open_port(gid, gid_is_link_local(gid) ? interface_of(gid) : 0, SO_REUSEPORT);
}

static int join(const struct port *port, uint32_t ifindex)
{
	struct ip_mreqn v4 = { .imr_multiaddr = port->address.v4.sin_addr, .imr_ifindex = (int)ifindex };
	struct ipv6_mreq v6 = { .ipv6mr_multiaddr = port->address.v6.sin6_addr, .ipv6mr_interface = ifindex };

	return gid_is_ipv4(&port->gid) ? setsockopt(port->fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &v4, sizeof(v4)) :
					 setsockopt(port->fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &v6, sizeof(v6));
}

struct port *port_open_group(const union ibv_gid *mgid, const uint32_t interfaces[], unsigned count)
{
	/* A name with a scope is for one interface. */
	bool one = is_link_group(mgid);
	struct port *port = open_port(mgid, one && count ? interfaces[0] : 0, SO_REUSEADDR);
	unsigned joined = 0;
	int error = ENODEV;

	if (!port)
		return NULL;
	if (gid_is_ipv4(mgid))
		set(port->fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
	for (unsigned i = 0; i < (one && count ? 1 : count); i++) {
		if (!join(port, interfaces[i]))
			joined++;
		else
			error = errno;
	}
	if (joined)
		return port;
	port_close(port);
	errno = error;
	return NULL;
}

static void close_sockets(struct port *port)
{
	descriptor_close(port->fd);
	for (int i = 0; i < PORT_FLOWS; i++) {
		if (port->flows[i] >= 0)
			descriptor_close(port->flows[i]);
	}
}

void port_close_descriptors(struct port *port)
{
	close_sockets(port);
	steering_forget(port, true);
}

void port_close(struct port *port)
{
	close_sockets(port);
	steering_forget(port, false);
	burst_forget_spares(port);
	free(port->buffers);
	free(port->seen);
	free(port);
}

int port_open_flow(struct port *port, uint16_t *number)
{
	union port_address address = port->address;
	int fd = open_socket(&address);
	int error = EADDRINUSE;

	if (fd < 0)
		return -1;
	set(fd, SOL_SOCKET, SO_SNDBUF, SOCKET_BUFFER);
	set(fd, SOL_SOCKET, SO_SNDBUFFORCE, SOCKET_BUFFER);
	/* What goes to a group leaves by the interface that has the address. */
	if (address.any.sa_family == AF_INET)
		setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &address.v4.sin_addr, sizeof(address.v4.sin_addr));
	else
		set(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, (int)interface_of(&port->gid));
	for (int i = 0; i < FLOW_TRIES; i++) {
		uint16_t random = 0;

		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			random = (uint16_t)(nic_wall_clock() >> 4);
		*number = (uint16_t)(FLOW_FIRST | random);
		if (address.any.sa_family == AF_INET)
			address.v4.sin_port = htons(*number);
		else
			address.v6.sin6_port = htons(*number);
		if (!bind(fd, &address.any, address.any.sa_family == AF_INET ? sizeof(address.v4) : sizeof(address.v6)))
			return fd;
		error = errno;
	}
	descriptor_close(fd);
	errno = error;
	return -1;
}

int port_route(struct port *port, const union ibv_gid *dgid, uint32_t entropy, struct route *route)
{
	uint32_t flow = entropy % PORT_FLOWS;
	uint16_t number = port_configured();

	if (port->flows[flow] < 0) {
		port->flows[flow] = port_open_flow(port, &port->flow_port[flow]);
		if (port->flows[flow] < 0)
			return errno;
	}
	memset(route, 0, sizeof(*route));
	route->port = port;
	route->fd = port->flows[flow];
	route->to_bytes = address_of(dgid, number, port->address.any.sa_family == AF_INET6 ? port->address.v6.sin6_scope_id : 0,
				     &route->to);
	route->path = (struct icrc_path){
		.sgid = port->gid, .dgid = *dgid, .sport = port->flow_port[flow], .dport = number
	};
	return 0;
}

uint32_t port_route_mtu(const struct route *route)
{
	bool v4 = route->to.any.sa_family == AF_INET;
	int fd = socket(route->to.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), mtu = 0;
	socklen_t size = sizeof(mtu);

	if (fd < 0)
		return 0;
	if (connect(fd, &route->to.any, route->to_bytes) ||
	    getsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU : IPV6_MTU, &mtu, &size))
		mtu = 0;
	close(fd);
	return (uint32_t)mtu;
}

static union ibv_gid gid_of(const union port_address *address)
{
	union ibv_gid gid;

	if (address->any.sa_family == AF_INET)
		return gid_from_ipv4(address->v4.sin_addr.s_addr);
	memcpy(gid.raw, &address->v6.sin6_addr, sizeof(gid.raw));
	return gid;
}

/* One packet of a datagram. */
static bool read_packet(struct port *port, struct nic *nic, const uint8_t *bytes, size_t length, struct icrc_path *path,
			struct arrival *arrival)
{
	uint16_t id;

	if (length < ROCE_BTH_BYTES + ROCE_ICRC_BYTES || !roce_parse(bytes, length - ROCE_ICRC_BYTES, &arrival->packet)) {
		counter_add(&nic->seg->counters.rx_malformed, 1);
		return false;
	}
	if (!icrc_solve(path, bytes, length, &id) || (gid_is_ipv4(&path->dgid) && !id_is_expected(port->seen, &path->sgid, id))) {
		counter_add(&nic->seg->counters.rx_icrc_errors, 1);
		return false;
	}
	arrival->raw = bytes;
	arrival->bytes = (uint16_t)length;
	return true;
}

static void read_control(struct msghdr *message, size_t *segment, struct arrival *arrival)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		int value = 0;

		memcpy(&value, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0) < sizeof(value) ? 1 : sizeof(value));
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO && value > 0)
			*segment = (size_t)value;
		else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
			 (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS))
			arrival->traffic_class = (uint8_t)value;
		else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TTL) ||
			 (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_HOPLIMIT))
			arrival->hop_limit = (uint8_t)value;
	}
}

/* False: it was somebody's question (roce/steering.h). */
static bool read_datagram(struct port *port, struct nic *nic, unsigned i,
			  void (*arrived)(void *arg, const struct arrival *arrival), void *arg)
{
	struct port_buffers *buffers = port->buffers;
	size_t length = buffers->messages[i].msg_len, segment = length;
	const union port_address *from = &buffers->from[i];
	struct icrc_path path = {
		.sgid = gid_of(from),
		.dgid = port->gid,
		.sport = ntohs(from->any.sa_family == AF_INET ? from->v4.sin_port : from->v6.sin6_port),
		.dport = ntohs(from->any.sa_family == AF_INET ? port->address.v4.sin_port : port->address.v6.sin6_port),
	};
	struct arrival arrival = { .sgid = path.sgid, .dgid = path.dgid, .sport = path.sport };

	if (steering_answer(nic, port, buffers->bytes[i], length, from))
		return false;
	read_control(&buffers->messages[i].msg_hdr, &segment, &arrival);
	for (size_t at = 0; at < length; at += segment) {
		size_t bytes = length - at < segment ? length - at : segment;

		if (read_packet(port, nic, buffers->bytes[i] + at, bytes, &path, &arrival))
			arrived(arg, &arrival);
	}
	return true;
}

/* Before the kernel fills it. */
static void make_ready(struct port_buffers *buffers, unsigned i)
{
	buffers->iov[i] = (struct iovec){ .iov_base = buffers->bytes[i], .iov_len = RECEIVE_BYTES };
	buffers->messages[i].msg_hdr = (struct msghdr){ .msg_name = &buffers->from[i],
							.msg_namelen = sizeof(buffers->from[i]),
							.msg_iov = &buffers->iov[i],
							.msg_iovlen = 1,
							.msg_control = buffers->control[i],
							.msg_controllen = CONTROL_BYTES };
}

static bool prepare(struct port *port)
{
	if (port->buffers)
		return true;
	port->seen = port->seen ? port->seen : calloc(1, sizeof(*port->seen));
	port->buffers = port->seen ? malloc(sizeof(*port->buffers)) : NULL;
	for (unsigned i = 0; i < RECEIVE_MESSAGES && port->buffers; i++)
		make_ready(port->buffers, i);
	return port->buffers;
}

unsigned port_receive(struct port *port, struct nic *nic, void (*arrived)(void *arg, const struct arrival *arrival), void *arg)
{
	KEEP_ERRNO;
	unsigned total = 0;

	if (pthread_mutex_trylock(&port->receiving))
		return 0;
	for (int round = 0; round < RECEIVE_ROUNDS && descriptor_is_ours(port->fd) && prepare(port); round++) {
		int n = recvmmsg(port->fd, port->buffers->messages, RECEIVE_MESSAGES, MSG_DONTWAIT, NULL);

		for (int i = 0; i < n; i++) {
			total += read_datagram(port, nic, (unsigned)i, arrived, arg);
			make_ready(port->buffers, (unsigned)i);
		}
		if (n < RECEIVE_MESSAGES)
			break;
	}
	pthread_mutex_unlock(&port->receiving);
	return total;
}
