/* SPDX-License-Identifier: MIT */
/*
 * Letters: MADs between processes of this host over abstract unix sockets, between hosts as datagrams between the hosts' QPs 1.
 * Every process has the socket "uroce/SLOT/cm" for those that name a comm ID of its own; requests go to the sockets of listeners
 * (name.c). A packet arrives at any process that shares its port: that process takes the part of the host's QP 1, and puts the
 * letter where it belongs.
 *
 * A socket of another process may be full (the kernel queues few datagrams): then letters for it wait here, and are sent together.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cm/engine.h"
#include "local/user.h"
#include "nic/abstract_name.h"
#include "nic/descriptor.h"
#include "nic/gid.h"
#include "nic/guid.h"
#include "roce/wire.h"

#define FIRST_DEVICE "uroce0"
#define MAGIC	     0x6d63u	   /* "cm": and what the letter's layout is */
#define RETRY_PAUSE  200000ull	   /* ns: a full socket is tried again after */
#define RETRY_FOR    1000000000ull /* ns: and no longer than */
#define RECEIVE_MOST 256
#define LETTERS_MOST 32 /* in one datagram */

struct cm_courier {
	struct helper_source source; /* must be first */
	struct cm *cm;
	int fd;
};

/* Letters that wait for room in another process's socket. */
struct box {
	struct list of_cm;
	char name[CM_NAME_BYTES];
	struct list letters;
};

static void box_free(struct box *box)
{
	list_del(&box->of_cm);
	list_for_each_safe(node, tmp, &box->letters)
		free(list_entry(node, struct queued_letter, node));
	free(box);
}

int courier_bind(struct cm *cm, const char *name, struct helper_source *source, int *fd)
{
	struct sockaddr_un address;
	socklen_t bytes = abstract_name(&address, "%s", name);
	int on = 1, error;

	*fd = descriptor_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0)
		return errno;
	if (!setsockopt(*fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) && !bind(*fd, (struct sockaddr *)&address, bytes) &&
	    (!source || !cm->nic || !helper_watch(cm->nic, *fd, source)))
		return 0;
	error = errno;
	descriptor_close(*fd);
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
	will_seek_heir(cm);
	return 0;
}

void courier_stop(struct cm *cm, bool is_child)
{
	if (!cm->courier)
		return;
	descriptor_close(cm->courier->fd);
	if (is_child)
		return;
	list_for_each_safe(node, tmp, &cm->outbox)
		box_free(list_entry(node, struct box, of_cm));
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

static struct box *find_box(struct cm *cm, const char *name)
{
	list_for_each(node, &cm->outbox) {
		struct box *box = list_entry(node, struct box, of_cm);

		if (!strcmp(box->name, name))
			return box;
	}
	return NULL;
}

/* Behind those that wait already. Without memory it is lost, as on the way. */
static void put_into_box(struct cm *cm, const char *name, const struct letter *letter)
{
	struct queued_letter *queued = malloc(sizeof(*queued));
	struct box *box = find_box(cm, name);

	if (queued && !box) {
		box = calloc(1, sizeof(*box));
		if (box) {
			snprintf(box->name, sizeof(box->name), "%s", name);
			list_init(&box->letters);
			if (list_empty(&cm->outbox))
				cm->tried_at = nic_now();
			list_add_tail(&cm->outbox, &box->of_cm);
		}
	}
	if (!box) {
		free(queued);
		return;
	}
	queued->letter = *letter;
	queued->until = nic_now() + RETRY_FOR;
	list_add_tail(&box->letters, &queued->node);
}

/* As one datagram. 0, or errno. */
static int send_letters(struct cm *cm, const char *name, struct iovec *letters, size_t count)
{
	struct sockaddr_un address;
	struct msghdr message = { .msg_name = &address,
				  .msg_namelen = abstract_name(&address, "%s", name),
				  .msg_iov = letters,
				  .msg_iovlen = count };

	if (!descriptor_is_ours(cm->courier->fd))
		return EBADF;
	return sendmsg(cm->courier->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

/* Sends, or keeps. 0, or errno: ECONNREFUSED when there is no such socket. */
static int send_to(struct cm *cm, const char *name, const struct letter *letter)
{
	struct iovec iov = { (void *)letter, sizeof(*letter) };
	int error = find_box(cm, name) ? EAGAIN : send_letters(cm, name, &iov, 1);

	if (error != EAGAIN && error != ENOBUFS)
		return error;
	put_into_box(cm, name, letter);
	return 0;
}

/* To who listens. 0, or errno. */
static int send_to_service(struct cm *cm, uint64_t service_id, const union ibv_gid *gid, const struct letter *letter)
{
	char name[CM_NAME_BYTES];
	int error = ECONNREFUSED;

	if (name_is_here(cm, service_id, gid)) {
		courier_to_self(cm, letter);
		return 0;
	}
	for (unsigned i = 0; i < CM_LISTENERS && error == ECONNREFUSED; i++) {
		name_of_listener(service_id, gid, i, name);
		error = send_to(cm, name, letter);
	}
	return error;
}

static int send_to_slot(struct cm *cm, uint32_t comm_id, const struct letter *letter)
{
	uint32_t slot = comm_id >> CM_ID_BITS;
	char name[32];

	if (slot == cm->slot || conn_is_ours(cm, comm_id)) {
		courier_to_self(cm, letter);
		return 0;
	}
	snprintf(name, sizeof(name), "uroce/%u/cm", slot);
	return slot ? send_to(cm, name, letter) : ECONNREFUSED;
}

/* A REJ by which a request is taken back names nothing of its receiver's (specification 12.6.7: a timeout): who was asked knows the
 * request. It is rare, so all are told. */
static void send_to_all(struct cm *cm, const struct letter *letter)
{
	struct iovec iov = { (void *)letter, sizeof(*letter) };
	char name[32];

	courier_to_self(cm, letter);
	for (uint32_t slot = 1; slot < NIC_SLOTS; slot++) {
		snprintf(name, sizeof(name), "uroce/%u/cm", slot);
		if (slot != cm->slot)
			send_letters(cm, name, &iov, 1);
	}
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
		if (mad.remote_id || mad.rej.reason != MAD_REJ_TIMEOUT)
			return send_to_slot(cm, mad.remote_id, letter);
		send_to_all(cm, letter);
		return 0;
	default:
		return send_to_slot(cm, mad.remote_id, letter);
	}
}

/* Nobody of this host has what the letter is for: its sender, which is we or came by the wire, is told. */
static void answer(struct cm *cm, const struct letter *question)
{
	struct letter reply;

	if (!conn_answer_for_nobody(question, &reply))
		return;
	if (question->wire)
		outlet_send(cm, &reply);
	else
		courier_to_self(cm, &reply);
}

/* To a process of this host. */
static void deliver(struct cm *cm, const struct letter *letter)
{
	int error = send_here(cm, letter);

	if (error == ECONNREFUSED || error == ENOENT)
		answer(cm, letter);
}

void courier_send(struct cm *cm, const struct letter *letter)
{
	int error;

	if (!letter->wire) {
		deliver(cm, letter);
		return;
	}
	error = outlet_send(cm, letter);
	if (error)
		cm_record(cm, NULL, error == EADDRINUSE ? CAUSE_WIRE_PORT : CAUSE_WIRE_UNREACHABLE, error, 0);
}

uint64_t courier_next(const struct cm *cm)
{
	return list_empty(&cm->outbox) ? UINT64_MAX : cm->tried_at + RETRY_PAUSE;
}

/* The first letters of a box; false when they have to wait on. */
static bool send_box(struct cm *cm, struct box *box, uint64_t now)
{
	struct iovec iov[LETTERS_MOST];
	size_t count = 0;
	int error;

	list_for_each(node, &box->letters) {
		struct queued_letter *queued = list_entry(node, struct queued_letter, node);

		if (count < LETTERS_MOST)
			iov[count++] = (struct iovec){ &queued->letter, sizeof(queued->letter) };
	}
	error = send_letters(cm, box->name, iov, count);
	if ((error == EAGAIN || error == ENOBUFS) && now < list_entry(box->letters.next, struct queued_letter, node)->until)
		return false;
	while (count--) {
		struct queued_letter *queued = list_entry(box->letters.next, struct queued_letter, node);

		list_del(&queued->node);
		if (error == ECONNREFUSED || error == ENOENT)
			answer(cm, &queued->letter);
		free(queued);
	}
	return true;
}

void courier_run(struct cm *cm)
{
	cm->tried_at = nic_now();
	list_for_each_safe(node, tmp, &cm->outbox) {
		struct box *box = list_entry(node, struct box, of_cm);

		while (!list_empty(&box->letters) && send_box(cm, box, cm->tried_at))
			;
		if (list_empty(&box->letters))
			box_free(box);
	}
}

/* Of a process of this user. */
static bool is_of_our_user(struct cm *cm, struct msghdr *message)
{
	uid_t who;

	if (!user_sent(message, &who))
		return false;
	if (who == getuid())
		return true;
	cm_record(cm, NULL, CAUSE_CM_OTHER_USER, EPERM, who);
	return false;
}

void courier_receive(struct cm *cm, int fd)
{
	for (int i = 0; i < RECEIVE_MOST && descriptor_is_ours(fd); i++) {
		union {
			struct cmsghdr align;
			uint8_t bytes[CMSG_SPACE(sizeof(struct ucred))];
		} control;
		struct letter letters[LETTERS_MOST];
		struct iovec iov = { letters, sizeof(letters) };
		struct msghdr message = {
			.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
		};
		ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

		if (n < 0)
			return;
		if (!is_of_our_user(cm, &message))
			continue;
		for (size_t k = 0; k < (size_t)n / sizeof(letters[0]) + !!((size_t)n % sizeof(letters[0])); k++) {
			if ((k + 1) * sizeof(letters[0]) <= (size_t)n && letters[k].magic == MAGIC &&
			    letters[k].bytes == sizeof(letters[k]))
				conn_take(cm, &letters[k]);
			else
				cm_record(cm, NULL, CAUSE_CM_MALFORMED, EPROTO, (uint64_t)n);
		}
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

	if (packet->opcode != ROCE_OPCODE(ROCE_UD, ROCE_SEND_ONLY) || packet->qkey != CM_QP1_QKEY || packet->src_qpn != 1 ||
	    packet->length != MAD_BYTES || (packet->pkey | 0x8000) != ROCE_DEFAULT_PKEY) {
		counter_add(&nic->seg->counters.rx_foreign, 1);
		return;
	}
	courier_stamp(&letter);
	memcpy(letter.mad, packet->payload, MAD_BYTES);
	pthread_mutex_lock(&cm->lock);
	if (!courier_start(cm))
		deliver(cm, &letter);
	cm_settle(cm);
	pthread_mutex_unlock(&cm->lock);
}

int courier_open_ports(struct cm_id *id)
{
	struct cm *cm = id->cm;
	struct gid_table *table;
	enum cause_code code;
	int error;

	if (!cm->nic)
		return 0;
	if (!gid_is_zero(&id->sgid)) {
		if ((gid_is_loopback(&id->sgid) && !transport_is_wire_only()) || wire_port(cm->nic, &id->sgid, false, &code))
			return 0;
		error = errno;
		cm_record(cm, id, code, error, 0);
		return error;
	}
	table = malloc(sizeof(*table));
	for (uint32_t i = 0; table && (i || !gid_table_read(table, NULL)) && i < table->count; i++) {
		if (gid_is_loopback(&table->gids[i]) && !transport_is_wire_only())
			continue;
		if (!wire_port(cm->nic, &table->gids[i], false, &code))
			cm_record(cm, id, code, errno, 0);
	}
	free(table);
	return 0;
}
