/* SPDX-License-Identifier: MIT */
/*
 * MADs on their way to other hosts: from one socket for each address of ours, which is told what ICMP says of them. Where nobody
 * has the port, a request need not wait for a minute and a half to find out.
 */
#include <errno.h>
#include <time.h> /* before errqueue.h, which needs it */

#include <linux/errqueue.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cm/engine.h"
#include "nic/descriptor.h"
#include "nic/gid.h"
#include "roce/wire.h"

#define ERRORS_MOST 64

struct outlet {
	struct helper_source source; /* must be first */
	struct list of_cm;
	struct cm *cm;
	union ibv_gid gid;
	int fd;
	uint16_t number; /* source port */
};

/* What could not be delivered, as ICMP quotes it. Lock held. */
static void read_error(struct outlet *outlet, const uint8_t *bytes, size_t length, const union cm_address *to, int error)
{
	struct letter letter = { .from = outlet->gid, .to = address_gid(to), .wire = true };
	struct roce_packet packet;
	struct mad mad;

	/* Quoted with or without the ICRC, or not in full. */
	if (length < ROCE_MAX_HEADERS || !roce_parse(bytes, length & ~(size_t)3, &packet) || packet.qpn != 1 ||
	    packet.length < MAD_BYTES)
		return;
	memcpy(letter.mad, packet.payload, MAD_BYTES);
	courier_stamp(&letter);
	if (mad_decode(letter.mad, &mad))
		conn_cannot_reach(outlet->cm, &mad, &letter, error);
}

static void outlet_ready(struct nic *nic, struct helper_source *source)
{
	struct outlet *outlet = (struct outlet *)source;
	struct cm *cm = outlet->cm;

	(void)nic;
	pthread_mutex_lock(&cm->lock);
	for (int i = 0; i < ERRORS_MOST && descriptor_is_ours(outlet->fd); i++) {
		_Alignas(struct cmsghdr) uint8_t control[256];
		uint8_t bytes[512];
		union cm_address to = { 0 };
		struct iovec iov = { bytes, sizeof(bytes) };
		struct msghdr message = { .msg_name = &to,
					  .msg_namelen = sizeof(to),
					  .msg_iov = &iov,
					  .msg_iovlen = 1,
					  .msg_control = control,
					  .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(outlet->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);

		if (n < 0)
			break;
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
			struct sock_extended_err error;

			if ((c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_RECVERR) &&
			    (c->cmsg_level != IPPROTO_IPV6 || c->cmsg_type != IPV6_RECVERR))
				continue;
			memcpy(&error, CMSG_DATA(c), sizeof(error));
			read_error(outlet, bytes, (size_t)n, &to, (int)error.ee_errno);
		}
	}
	/* Nothing else is ever received here. */
	while (descriptor_is_ours(outlet->fd) && recv(outlet->fd, &(char){ 0 }, 1, MSG_DONTWAIT) >= 0)
		;
	cm_settle(cm);
	pthread_mutex_unlock(&cm->lock);
}

static struct outlet *outlet_of(struct cm *cm, struct port *port)
{
	struct outlet *outlet;
	int on = 1;

	list_for_each(node, &cm->outlets) {
		outlet = list_entry(node, struct outlet, of_cm);
		if (!memcmp(&outlet->gid, &port->gid, sizeof(port->gid)))
			return outlet;
	}
	outlet = calloc(1, sizeof(*outlet));
	if (!outlet)
		return NULL;
	outlet->source.ready = outlet_ready;
	outlet->cm = cm;
	outlet->gid = port->gid;
	outlet->fd = port_open_flow(port, &outlet->number);
	if (outlet->fd < 0 || helper_watch(cm->nic, outlet->fd, &outlet->source)) {
		if (outlet->fd >= 0)
			descriptor_close(outlet->fd);
		free(outlet);
		return NULL;
	}
	if (gid_is_ipv4(&port->gid))
		setsockopt(outlet->fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
	else
		setsockopt(outlet->fd, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof(on));
	list_add_tail(&cm->outlets, &outlet->of_cm);
	return outlet;
}

static int send_once(const struct route *route, const struct roce_packet *packet, const struct letter *letter)
{
	struct burst burst;
	uint8_t *to;
	size_t bytes;

	if (!burst_begin(&burst, route, 1))
		return ENOMEM;
	to = burst_next(&burst, ROCE_MAX_HEADERS + MAD_BYTES);
	bytes = roce_build(packet, to);
	memcpy(to + bytes, letter->mad, MAD_BYTES);
	burst_add(&burst, bytes + MAD_BYTES);
	return burst_end(&burst);
}

int outlet_send(struct cm *cm, const struct letter *letter)
{
	const struct nic_ah ah = {
		.sgid = letter->from, .dgid = letter->to, .traffic_class = letter->traffic_class, .hop_limit = letter->hop_limit
	};
	const struct roce_packet packet = {
		.opcode = ROCE_OPCODE(ROCE_UD, ROCE_SEND_ONLY),
		.migreq = true,
		.pkey = ROCE_DEFAULT_PKEY,
		.qpn = 1,
		.psn = cm->psn++ & ROCE_PSN_MASK,
		.qkey = CM_QP1_QKEY,
		.src_qpn = 1,
		.length = MAD_BYTES,
	};
	enum cause_code code;
	struct port *port = wire_port(cm->nic, &letter->from, false, &code);
	struct outlet *outlet = port ? outlet_of(cm, port) : NULL;
	struct route route;
	int error;

	if (!outlet)
		return errno;
	error = wire_route_to(cm->nic, port, &ah, 1, &route);
	if (error)
		return error;
	route.fd = outlet->fd;
	route.path.sport = outlet->number;
	error = send_once(&route, &packet, letter);
	/* What ICMP said of an earlier one is told once by the next. */
	return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH ? send_once(&route, &packet, letter) : error;
}

void outlets_close(struct cm *cm, bool is_child)
{
	list_for_each_safe(node, tmp, &cm->outlets) {
		struct outlet *outlet = list_entry(node, struct outlet, of_cm);

		descriptor_close(outlet->fd);
		if (!is_child)
			free(outlet);
	}
}
