/* SPDX-License-Identifier: MIT */
/* Packets on their way out. See burst.h. */
#include "roce/burst.h"

#include <errno.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "nic/descriptor.h"
#include "nic/gid.h"
#include "nic/keep_errno.h"
#include "observe/trace.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* Buffers that a port keeps. */
#define SPARE_BUFFERS 8

struct burst_buffer {
	struct burst_buffer *next;
	uint8_t bytes[BURST_BYTES];
};

/* Whether the kernel cuts datagrams for us: it does not where the interface computes no checksums. */
static _Atomic bool segments_refused;

static struct burst_buffer *buffer_get(struct port *port)
{
	pthread_mutex_lock(&port->spare_lock);
	struct burst_buffer *buffer = port->spare;

	if (buffer) {
		port->spare = buffer->next;
		port->spares--;
	}
	pthread_mutex_unlock(&port->spare_lock);
	return buffer ? buffer : malloc(sizeof(*buffer));
}

static void buffer_put(struct port *port, struct burst_buffer *buffer)
{
	pthread_mutex_lock(&port->spare_lock);
	if (port->spares < SPARE_BUFFERS) {
		buffer->next = port->spare;
		port->spare = buffer;
		port->spares++;
		buffer = NULL;
	}
	pthread_mutex_unlock(&port->spare_lock);
	free(buffer);
}

void burst_forget_spares(struct port *port)
{
	while (port->spare) {
		struct burst_buffer *buffer = port->spare;

		port->spare = buffer->next;
		free(buffer);
	}
}

bool burst_begin(struct burst *burst, const struct route *route, uint32_t qpn)
{
	burst->qpn = qpn;
	burst->route = route;
	burst->used = 0;
	burst->runs = 0;
	burst->buffer = buffer_get(route->port);
	return burst->buffer;
}

uint8_t *burst_next(struct burst *burst, size_t bytes)
{
	if (burst->used + bytes + ROCE_ICRC_BYTES > BURST_BYTES || burst->runs == BURST_RUNS)
		return NULL;
	return burst->buffer->bytes + burst->used;
}

static void put_icrc(const struct burst *burst, uint8_t *packet, size_t bytes, uint16_t id)
{
	uint32_t icrc = icrc_of(&burst->route->path, id, packet, bytes);

	for (int i = 0; i < ROCE_ICRC_BYTES; i++)
		packet[bytes + (size_t)i] = (uint8_t)(icrc >> 8 * i);
}

void burst_add(struct burst *burst, size_t bytes)
{
	struct burst_run *run = burst->runs ? &burst->run[burst->runs - 1] : NULL;
	uint32_t size = (uint32_t)bytes + ROCE_ICRC_BYTES;

	if (!run || run->closed || size > run->segment || run->count == BURST_SEGMENTS ||
	    run->bytes + size > BURST_DATAGRAM || atomic_load_explicit(&segments_refused, memory_order_relaxed)) {
		run = &burst->run[burst->runs++];
		*run = (struct burst_run){ .at = burst->used, .segment = (uint16_t)size };
	}
	put_icrc(burst, burst->buffer->bytes + burst->used, bytes, run->count);
	run->count++;
	run->bytes += size;
	run->closed = size < run->segment;
	burst->used += size;
}

/* What one datagram carries beside its bytes. */
union control {
	struct cmsghdr align;
	uint8_t bytes[CMSG_SPACE(sizeof(uint16_t)) + 2 * CMSG_SPACE(sizeof(int))];
};

static void add_control(struct msghdr *message, int level, int type, const void *value, size_t bytes)
{
	struct cmsghdr *header = (struct cmsghdr *)((uint8_t *)message->msg_control + message->msg_controllen);

	header->cmsg_level = level;
	header->cmsg_type = type;
	header->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(header), value, bytes);
	message->msg_controllen += CMSG_SPACE(bytes);
}

static void make_message(const struct burst *burst, const struct burst_run *run, struct msghdr *message, struct iovec *iov,
			 union control *control)
{
	const struct route *route = burst->route;
	bool v4 = gid_is_ipv4(&route->path.dgid);

	*iov = (struct iovec){ .iov_base = burst->buffer->bytes + run->at, .iov_len = run->bytes };
	*message = (struct msghdr){ .msg_name = (void *)&route->to,
				    .msg_namelen = route->to_bytes,
				    .msg_iov = iov,
				    .msg_iovlen = 1,
				    .msg_control = control };
	if (run->count > 1)
		add_control(message, IPPROTO_UDP, UDP_SEGMENT, &run->segment, sizeof(run->segment));
	if (route->traffic_class) {
		int value = route->traffic_class;

		add_control(message, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TOS : IPV6_TCLASS, &value, sizeof(value));
	}
	if (route->hop_limit) {
		int value = route->hop_limit;

		add_control(message, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TTL : IPV6_HOPLIMIT, &value, sizeof(value));
	}
	if (!message->msg_controllen)
		message->msg_control = NULL;
}

/* A run that the kernel does not cut: packet by packet, each with an identification of 0. */
static int send_singly(const struct burst *burst, const struct burst_run *run)
{
	int error = 0;

	for (uint32_t at = 0; at < run->bytes; at += run->segment) {
		uint32_t bytes = run->bytes - at < run->segment ? run->bytes - at : run->segment;
		struct burst_run one = { .at = run->at + at, .bytes = bytes, .segment = (uint16_t)bytes, .count = 1 };
		union control control;
		struct msghdr message;
		struct iovec iov;

		put_icrc(burst, burst->buffer->bytes + one.at, bytes - ROCE_ICRC_BYTES, 0);
		make_message(burst, &one, &message, &iov, &control);
		if (sendmsg(burst->route->fd, &message, MSG_NOSIGNAL) < 0)
			error = errno;
	}
	return error;
}

/* What was given to the system. */
static void count_sent(const struct burst *burst)
{
	struct device_counters *counters = burst->route->port->counters;
	uint32_t packets = 0;

	for (unsigned i = 0; i < burst->runs; i++)
		packets += burst->run[i].count;
	counter_add(&counters->port_xmit_packets, packets);
	counter_add(&counters->port_xmit_data, burst->used / 4);
}

static void trace_packets(const struct burst *burst)
{
	for (unsigned i = 0; i < burst->runs; i++) {
		const struct burst_run *run = &burst->run[i];

		for (uint32_t at = 0; at < run->bytes; at += run->segment)
			packet_trace(TRACE_PACKET_OUT, burst->qpn, &burst->route->path, burst->buffer->bytes + run->at + at,
				     run->bytes - at < run->segment ? run->bytes - at : run->segment);
	}
}

int burst_flush(struct burst *burst)
{
	KEEP_ERRNO;
	struct mmsghdr messages[BURST_RUNS];
	struct iovec iov[BURST_RUNS];
	union control control[BURST_RUNS];
	unsigned sent = 0;
	int error = 0;

	if (trace_on()) /* before they can arrive */
		trace_packets(burst);
	if (!descriptor_is_ours(burst->route->fd)) {
		sent = burst->runs;
		error = EBADF;
	}
	for (unsigned i = 0; i < burst->runs; i++)
		make_message(burst, &burst->run[i], &messages[i].msg_hdr, &iov[i], &control[i]);
	while (sent < burst->runs) {
		int n = sendmmsg(burst->route->fd, messages + sent, burst->runs - sent, MSG_NOSIGNAL);

		if (n > 0) {
			sent += (unsigned)n;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		const struct burst_run *run = &burst->run[sent++];

		error = errno;
		/* EIO: no checksums by the interface; EINVAL: a kernel before 4.18. */
		if (run->count > 1 && (error == EIO || error == EINVAL || error == EOPNOTSUPP)) {
			atomic_store_explicit(&segments_refused, true, memory_order_relaxed);
			error = send_singly(burst, run);
		}
	}
	count_sent(burst);
	burst->used = 0;
	burst->runs = 0;
	return error;
}

int burst_end(struct burst *burst)
{
	int error = burst->runs ? burst_flush(burst) : 0;

	buffer_put(burst->route->port, burst->buffer);
	return error;
}
