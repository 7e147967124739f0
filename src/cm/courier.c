/* SPDX-License-Identifier: MIT */
/*
 * Letters: MADs between processes of this host over abstract unix sockets, between hosts as datagrams between the hosts' QPs 1.
 * Every process has the socket "uroce/SLOT/cm" for those that name a comm ID of its own; requests go to the sockets of listeners
 * (name.c). A packet arrives at any process that shares its port: that process takes the part of the host's QP 1, and puts the
 * letter where it belongs.
 *
 * A socket of another process may be full (the kernel queues few datagrams): then letters wait here, in order.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cm/engine.h"
#include "nic/gid.h"
#include "nic/guid.h"
#include "roce/wire.h"

#define FIRST_DEVICE "uroce0"
#define MAGIC	     0x6d63u /* "cm": and what the letter's layout is */
#define QP1_QKEY     0x80010000u
#define RETRY_PAUSE  200000ull	  /* ns: a full socket is tried again after */
#define RETRY_FOR    1000000000ull /* ns: and no longer than */
#define RECEIVE_MOST 256

struct cm_courier {
	struct helper_source source; /* must be first */
	struct cm *cm;
	int fd;
	uint32_t psn; /* of QP 1 */
};

static socklen_t write_address(const char *name, struct sockaddr_un *address)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "%s", name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address->sun_path + 1));
}

int courier_bind(struct cm *cm, const char *name, struct helper_source *source, int *fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = source };
	struct sockaddr_un address;
	socklen_t bytes = write_address(name, &address);
	int on = 1, error;

	*fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0)
		return errno;
	if (!setsockopt(*fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) && !bind(*fd, (struct sockaddr *)&address, bytes) &&
	    (!source || !cm->nic || !epoll_ctl(cm->nic->epoll, EPOLL_CTL_ADD, *fd, &event)))
		return 0;
	error = errno;
	close(*fd);
	*fd = -1;
	return error;
}

static void courier_ready(struct nic *nic, struct helper_source *source)
{
	struct cm_courier *courier = (struct cm_courier *)source;
	struct cm *cm = courier->cm;

	(void)nic;
	pthread_mutex_lock(&cm->lock);
	courier_receive(cm, courier->fd);
	cm_settle(cm);
	pthread_mutex_unlock(&cm->lock);
}

/* That of the first device, as its programs see it (verbs/device.c). */
static uint64_t ca_guid(void)
{
	struct gid_table *table = malloc(sizeof(*table));
	uint32_t ifindex = 0;

	if (table && !gid_table_read(table, NULL))
		ifindex = table->ifindex[0];
	free(table);
	return guid_make(guid_hash(guid_hash_host(ifindex), FIRST_DEVICE, sizeof(FIRST_DEVICE) - 1));
}

int courier_start(struct cm *cm)
{
	struct cm_courier *courier;
	char name[32];
	int error;

	if (cm->courier || !cm->nic)
		return 0;
	courier = calloc(1, sizeof(*courier));
	if (!courier)
		return ENOMEM;
	courier->source.ready = courier_ready;
	courier->cm = cm;
	cm->guid = ca_guid();
	cm->slot = cm->nic->seg->hdr.primary_slot;
	snprintf(name, sizeof(name), "uroce/%u/cm", cm->slot);
	error = courier_bind(cm, name, &courier->source, &courier->fd);
	if (error) {
		free(courier);
		return error;
	}
	cm->courier = courier;
	return 0;
}

void courier_stop(struct cm *cm, bool is_child)
{
	if (!cm->courier)
		return;
	close(cm->courier->fd);
	if (is_child)
		return;
	free(cm->courier);
	cm->courier = NULL;
}

void courier_to_self(struct cm *cm, const struct letter *letter)
{
	struct queued_letter *queued = malloc(sizeof(*queued));

	if (!queued)
		return;
	queued->letter = *letter;
	list_add_tail(&cm->inbox, &queued->node);
}

/* 0, or errno: ECONNREFUSED when there is no such socket, EAGAIN when it is full. */
static int send_to(struct cm *cm, const char *name, const struct letter *letter)
{
	struct sockaddr_un address;
	socklen_t bytes = write_address(name, &address);

	return sendto(cm->courier->fd, letter, sizeof(*letter), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address,
		      bytes) < 0 ?
		       errno :
		       0;
}

static bool is_listening_here(const struct cm *cm, const char *name)
{
	list_for_each(node, &cm->names) {
		const struct cm_name *own = list_entry(node, struct cm_name, of_cm);
		char text[96];

		snprintf(text, sizeof(text), "uroce/cm/%x/%u/%s", own->ps, own->port, own->address);
		if (!strcmp(text, name))
			return true;
	}
	return false;
}

/* To who listens. 0, or errno. */
static int send_to_service(struct cm *cm, uint64_t service_id, const union ibv_gid *gid, const struct letter *letter)
{
	char name[96];
	int error = ECONNREFUSED;

	for (unsigned i = 0; i < 3 && error == ECONNREFUSED; i++) {
		name_of_listener(service_id, gid, i, name, sizeof(name));
		if (is_listening_here(cm, name)) {
			courier_to_self(cm, letter);
			return 0;
		}
		error = send_to(cm, name, letter);
	}
	return error;
}

static int send_to_slot(struct cm *cm, uint32_t comm_id, const struct letter *letter)
{
	uint32_t slot = comm_id >> CM_ID_BITS;
	char name[32];

	if (slot == cm->slot) {
		courier_to_self(cm, letter);
		return 0;
	}
	snprintf(name, sizeof(name), "uroce/%u/cm", slot);
	return slot ? send_to(cm, name, letter) : ECONNREFUSED;
}

/* To the process of this host that it is for. 0, or errno. */
static int send_here(struct cm *cm, const struct letter *letter)
{
	uint64_t service_id;
	struct mad_ip ip;
	struct mad mad;

	if (!cm->courier || !mad_decode(letter->mad, &mad))
		return EINVAL;
	switch (mad.attribute) {
	case MAD_REQ:
	case MAD_SIDR_REQ:
		if (!conn_read_service(&mad, &service_id, &ip))
			return ECONNREFUSED;
		return send_to_service(cm, service_id, &ip.destination, letter);
	case MAD_SIDR_REP:
		return send_to_slot(cm, mad.local_id, letter);
	case MAD_REJ:
		if (!mad.remote_id && letter->service_id)
			return send_to_service(cm, letter->service_id, &letter->to, letter);
		return send_to_slot(cm, mad.remote_id, letter);
	default:
		return send_to_slot(cm, mad.remote_id, letter);
	}
}

/* A datagram from QP 1 to QP 1. 0, or errno. */
static int send_by_wire(struct cm *cm, const struct letter *letter)
{
	const struct nic_ah ah = { .sgid = letter->from,
				   .dgid = letter->to,
				   .traffic_class = letter->traffic_class,
				   .hop_limit = letter->hop_limit };
	struct roce_packet packet = {
		.opcode = ROCE_OPCODE(ROCE_UD, ROCE_SEND_ONLY),
		.migreq = true,
		.pkey = ROCE_DEFAULT_PKEY,
		.qpn = 1,
		.psn = cm->courier ? cm->courier->psn++ & ROCE_PSN_MASK : 0,
		.qkey = QP1_QKEY,
		.src_qpn = 1,
		.length = MAD_BYTES,
	};
	enum cause_code code;
	struct burst burst;
	struct route route;
	struct port *port = wire_port(cm->nic, &letter->from, false, &code);
	int error = port ? wire_route_to(cm->nic, port, &ah, 1, &route) : errno;
	uint8_t *to;
	size_t bytes;

	if (error)
		return error;
	if (!burst_begin(&burst, &route))
		return ENOMEM;
	to = burst_next(&burst, ROCE_MAX_HEADERS + MAD_BYTES);
	bytes = roce_build(&packet, to);
	memcpy(to + bytes, letter->mad, MAD_BYTES);
	burst_add(&burst, bytes + MAD_BYTES);
	return burst_end(&burst);
}

/* Nobody of this host has what the letter is for: its sender, which is we or came by the wire, is told. */
static void answer(struct cm *cm, const struct letter *question)
{
	struct letter reply;

	if (!conn_answer_for_nobody(question, &reply))
		return;
	if (question->wire)
		send_by_wire(cm, &reply);
	else
		courier_to_self(cm, &reply);
}

static void enqueue(struct cm *cm, const struct letter *letter)
{
	struct queued_letter *queued = malloc(sizeof(*queued));

	if (!queued) /* lost, as on the way */
		return;
	queued->letter = *letter;
	queued->until = nic_now() + RETRY_FOR;
	if (list_empty(&cm->outbox))
		cm->tried_at = nic_now();
	list_add_tail(&cm->outbox, &queued->node);
}

/* To a process of this host; false when it has to be tried again. */
static bool deliver(struct cm *cm, const struct letter *letter)
{
	int error = send_here(cm, letter);

	if (error == EAGAIN || error == ENOBUFS)
		return false;
	if (error == ECONNREFUSED || error == ENOENT)
		answer(cm, letter);
	return true;
}

void courier_send(struct cm *cm, const struct letter *letter)
{
	if (letter->wire) {
		int error = send_by_wire(cm, letter);

		if (error)
			cm_record(cm, NULL, error == EADDRINUSE ? CAUSE_WIRE_PORT : CAUSE_WIRE_UNREACHABLE, error, 0);
		return;
	}
	if (!list_empty(&cm->outbox) || !deliver(cm, letter))
		enqueue(cm, letter);
}

uint64_t courier_next(const struct cm *cm)
{
	return list_empty(&cm->outbox) ? UINT64_MAX : cm->tried_at + RETRY_PAUSE;
}

void courier_run(struct cm *cm)
{
	uint64_t now = nic_now();
	struct list waiting;

	/* Who waits for one full socket must not hold up others: each is tried. */
	list_init(&waiting);
	while (!list_empty(&cm->outbox)) {
		struct queued_letter *queued = list_entry(cm->outbox.next, struct queued_letter, node);

		list_del(&queued->node);
		if (now < queued->until && !deliver(cm, &queued->letter))
			list_add_tail(&waiting, &queued->node);
		else
			free(queued);
	}
	list_for_each_safe(node, tmp, &waiting) {
		list_del(node);
		list_add_tail(&cm->outbox, node);
	}
	cm->tried_at = now;
}

/* Of a process of this user. */
static bool is_of_our_user(struct cm *cm, struct msghdr *message)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		struct ucred who;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
			continue;
		memcpy(&who, CMSG_DATA(c), sizeof(who));
		if (who.uid == geteuid())
			return true;
		cm_record(cm, NULL, CAUSE_CM_OTHER_USER, EPERM, who.uid);
		return false;
	}
	return false;
}

void courier_receive(struct cm *cm, int fd)
{
	for (int i = 0; i < RECEIVE_MOST; i++) {
		union {
			struct cmsghdr align;
			uint8_t bytes[CMSG_SPACE(sizeof(struct ucred))];
		} control;
		struct letter letter;
		struct iovec iov = { &letter, sizeof(letter) };
		struct msghdr message = {
			.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
		};
		ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

		if (n < 0)
			return;
		if (!is_of_our_user(cm, &message))
			continue;
		if (n != sizeof(letter) || letter.magic != MAGIC || letter.bytes != sizeof(letter)) {
			cm_record(cm, NULL, CAUSE_CM_MALFORMED, EPROTO, (uint64_t)n);
			continue;
		}
		conn_take(cm, &letter);
	}
}

void courier_stamp(struct letter *letter)
{
	letter->magic = MAGIC;
	letter->bytes = sizeof(*letter);
}

void cm_take_packet(struct nic *nic, const struct arrival *arrival)
{
	const struct roce_packet *packet = &arrival->packet;
	struct cm *cm = nic->cm;
	struct letter letter = { .from = arrival->sgid,
				 .to = arrival->dgid,
				 .wire = true,
				 .traffic_class = arrival->traffic_class & 0xfc, /* without ECN */
				 .hop_limit = arrival->hop_limit };

	if (packet->opcode != ROCE_OPCODE(ROCE_UD, ROCE_SEND_ONLY) || packet->qkey != QP1_QKEY || packet->src_qpn != 1 ||
	    packet->length != MAD_BYTES || (packet->pkey | 0x8000) != ROCE_DEFAULT_PKEY) {
		counter_add(&nic->seg->counters.rx_foreign, 1);
		return;
	}
	courier_stamp(&letter);
	memcpy(letter.mad, packet->payload, MAD_BYTES);
	pthread_mutex_lock(&cm->lock);
	if (!courier_start(cm) && (!list_empty(&cm->outbox) || !deliver(cm, &letter)))
		enqueue(cm, &letter);
	cm_settle(cm);
	pthread_mutex_unlock(&cm->lock);
}

void courier_open_ports(struct cm_id *id)
{
	struct cm *cm = id->cm;
	struct gid_table *table;
	enum cause_code code;

	if (!cm->nic)
		return;
	if (!gid_is_zero(&id->sgid)) {
		if (!gid_is_loopback(&id->sgid) || transport_is_wire_only()) {
			if (!wire_port(cm->nic, &id->sgid, false, &code))
				cm_record(cm, id, code, errno, 0);
		}
		return;
	}
	table = malloc(sizeof(*table));
	for (uint32_t i = 0; table && (i || !gid_table_read(table, NULL)) && i < table->count; i++) {
		if (gid_is_loopback(&table->gids[i]) && !transport_is_wire_only())
			continue;
		if (!wire_port(cm->nic, &table->gids[i], false, &code))
			cm_record(cm, id, code, errno, 0);
	}
	free(table);
}
