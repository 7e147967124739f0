/* SPDX-License-Identifier: MIT */
/*
 * The UDP sockets of one address of this host: one that packets arrive on (port 4791, or UROCE_PORT), and a few that they are
 * sent from. The source port tells flows apart, to routers as well as to the kernel, which merges what arrives of one flow.
 */
#ifndef UROCE_ROCE_PORT_H
#define UROCE_ROCE_PORT_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#include "nic/helper.h"
#include "observe/trace.h"
#include "roce/icrc.h"
#include "roce/identification.h"
#include "roce/packet.h"

#define PORT_FLOWS	 16
#define GROUP_INTERFACES 16 /* that a group is joined on, at most */

union port_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

struct port {
	struct helper_source source; /* must be first */
	union ibv_gid gid;
	union port_address address;
	int fd;
	struct device_counters *counters; /* that packets are counted in; set by who opens it to send */
	int flows[PORT_FLOWS];		/* -1: not opened yet; under the wire's lock */
	uint16_t flow_port[PORT_FLOWS]; /* source port of each */
	_Atomic bool polled; /* pollers look at it: a connected QP uses it, or something has arrived on it */
	_Atomic uint32_t strays;   /* packets of other processes, since the filter was renewed */
	_Atomic uint64_t asked_at; /* CLOCK_MONOTONIC ns, when anybody last asked who is where */
	_Atomic bool steered;	   /* others know that we are there; set under the wire's lock */
	struct asking *asking;	   /* helper; NULL: never yet (roce/steering.h) */
	pthread_mutex_t receiving; /* held by who receives: what follows */
	struct port_buffers *buffers;
	struct id_flows *seen;
	pthread_mutex_t spare_lock; /* what follows: memory for bursts (roce/burst.h) */
	struct burst_buffer *spare;
	unsigned spares;
};

/* A packet as it arrived. */
struct arrival {
	struct roce_packet packet;
	union ibv_gid sgid, dgid;
	uint16_t sport;
	uint8_t traffic_class; /* with ECN */
	uint8_t hop_limit;
	uint16_t bytes; /* from BTH to ICRC */
	const uint8_t *raw; /* the same */
};

/* Where a UDP datagram goes to. */
struct route {
	struct port *port;
	int fd;
	union port_address to;
	socklen_t to_bytes;
	struct icrc_path path;
	uint8_t traffic_class, hop_limit; /* hop_limit 0: the system's */
};

/* The UDP port that is used: 4791, or UROCE_PORT. False for a value that is none. */
bool port_number(const char *value, uint16_t *number);
uint16_t port_configured(void);

/* A packet from BTH to ICRC, in the trace: TRACE_PACKET_OUT or _IN. */
void packet_trace(enum trace_kind kind, uint32_t qpn, const struct icrc_path *path, const uint8_t *packet, uint32_t bytes);

/* Opens the sockets of an address; NULL with errno. EADDRINUSE: another user, or another RoCE, has the port. */
struct port *port_open(const union ibv_gid *gid);
/* Whether a socket of this network namespace has the port of the address, or of all addresses; *uid is its user's. A socket of the
 * kernel, soft-RoCE's above all, is root's. */
bool port_owner(const union ibv_gid *gid, uint16_t number, uint32_t *uid);

/* As a member of a multicast group, on interfaces; it receives a copy of what comes, as others that join do. NULL with errno. */
struct port *port_open_group(const union ibv_gid *mgid, const uint32_t interfaces[], unsigned count);
void port_close(struct port *port);
/* In a forked child, whose copy of the rest may be anything. */
void port_close_descriptors(struct port *port);

/* A socket of its own for a flow, of which *number is the source port; nothing is ever received on it. -1 with errno. */
int port_open_flow(struct port *port, uint16_t *number);

/* From the port to a GID; entropy chooses the flow. 0, or errno. */
int port_route(struct port *port, const union ibv_gid *dgid, uint32_t entropy, struct route *route);
/* The longest packet, with its IP header, that the system sends on this way, bytes; 0: not known. */
uint32_t port_route_mtu(const struct route *route);

/*
 * Takes what has arrived and calls `arrived` for each good packet, at most a few hundred; ones that are damaged or no RoCE are
 * counted and dropped. Returns the number of datagrams that the kernel gave, without the questions of who is where; 0 when there was
 * nothing, or somebody else is receiving.
 */
unsigned port_receive(struct port *port, struct nic *nic, void (*arrived)(void *arg, const struct arrival *arrival), void *arg);

#endif
