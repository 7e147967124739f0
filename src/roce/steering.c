/* SPDX-License-Identifier: MIT */
/* Who gets what arrives. See steering.h. */
#include "roce/steering.h"

#include <errno.h>
#include <linux/filter.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "nic/gid.h"

/* A question: no opcode of RoCE, a place. Its answer: the same, and the slots of who is there. */
#define QUESTION 0xff
static const uint8_t magic[] = "uroce place";

struct question {
	uint8_t kind, reserved;
	uint16_t place; /* network order: read by the filter */
	uint8_t magic[sizeof(magic)];
	uint32_t slot_count; /* in the answer */
	uint32_t slots[NIC_OWN_SLOTS];
};

/* ms: how long an answer is waited for; who is stopped has none. */
#define ANSWER_WAIT 5
#define SILENT_MOST 4 /* in a row, behind which nobody is looked for */

bool steering_answer(struct nic *nic, struct port *port, const uint8_t *bytes, size_t length, const union port_address *from)
{
	struct question question;
	struct seg_header *hdr = &nic->seg->hdr;

	if (length != sizeof(question) || bytes[0] != QUESTION)
		return false;
	memcpy(&question, bytes, sizeof(question));
	/* Only for processes of this host: to others it would be an answer without a need. */
	if (memcmp(question.magic, magic, sizeof(magic)) || question.slot_count ||
	    (from->any.sa_family == AF_INET ? memcmp(&from->v4.sin_addr, &port->address.v4.sin_addr, 4) :
					      memcmp(&from->v6.sin6_addr, &port->address.v6.sin6_addr, 16)))
		return true;
	question.slot_count = atomic_load(&hdr->slot_count);
	for (uint32_t i = 0; i < question.slot_count && i < NIC_OWN_SLOTS; i++)
		question.slots[i] = atomic_load(&hdr->slots[i]);
	sendto(port->fd, &question, sizeof(question), MSG_DONTWAIT | MSG_NOSIGNAL, &from->any,
	       from->any.sa_family == AF_INET ? sizeof(from->v4) : sizeof(from->v6));
	return true;
}

/* Slots in the order of the sockets that have the port. */
struct places {
	uint32_t count; /* of entries */
	struct {
		uint32_t slot, place;
	} entry[NIC_SLOTS];
};

static void set_filter(struct port *port, const struct places *places)
{
	/* Questions go to the place that they name; others by bits 23 to 14 of the destination QPN. Behind the table: to anybody. */
	static const struct sock_filter head[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, QUESTION, 0, 2),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 2),
		BPF_STMT(BPF_RET | BPF_A, 0),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 5),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, NIC_QPN_INDEX_BITS - 8),
	};
	size_t room = sizeof(head) / sizeof(head[0]) + 2 * places->count + 1, n = sizeof(head) / sizeof(head[0]);
	struct sock_filter *code = calloc(room, sizeof(*code));

	if (!code)
		return;
	memcpy(code, head, sizeof(head));
	for (uint32_t i = 0; i < places->count; i++) {
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, places->entry[i].slot, 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, places->entry[i].place);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT16_MAX);

	struct sock_fprog program = { .len = (unsigned short)n, .filter = code };

	setsockopt(port->fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program));
	free(code);
}

/* Who asks, and what it serves meanwhile. */
struct asker {
	int fd;
	struct port *port;
	struct nic *nic;
	const struct served *served;
	unsigned count;
};

/* Waits until something has arrived; true if that was an answer, perhaps. */
static bool wait_for_answer(const struct asker *asker, int ms)
{
	struct pollfd fds[1 + SERVED_MOST] = { { .fd = asker->fd, .events = POLLIN } };

	for (unsigned i = 0; i < asker->count; i++)
		fds[1 + i] = (struct pollfd){ .fd = asker->served[i].fd, .events = POLLIN };
	if (poll(fds, 1 + asker->count, ms) <= 0)
		return false;
	for (unsigned i = 0; i < asker->count; i++) {
		if (fds[1 + i].revents)
			asker->served[i].source->ready(asker->nic, asker->served[i].source);
	}
	return fds[0].revents;
}

/* Who is at a place: its slots in *answer; false when nobody says. */
static bool ask(const struct asker *asker, uint16_t place, struct question *answer)
{
	const union port_address *to = &asker->port->address;
	struct question question = { .kind = QUESTION, .place = htons(place) };
	uint64_t until = nic_now() + ANSWER_WAIT * 1000000ull, now;

	memcpy(question.magic, magic, sizeof(magic));
	if (sendto(asker->fd, &question, sizeof(question), MSG_NOSIGNAL, &to->any,
		   to->any.sa_family == AF_INET ? sizeof(to->v4) : sizeof(to->v6)) < 0)
		return false;
	while ((now = nic_now()) < until) {
		/* An answer to an earlier question may still come. */
		if (wait_for_answer(asker, (int)((until - now) / 1000000u + 1)) &&
		    recv(asker->fd, answer, sizeof(*answer), MSG_DONTWAIT) == sizeof(*answer) &&
		    answer->place == question.place && answer->slot_count && answer->slot_count <= NIC_OWN_SLOTS)
			return true;
	}
	return false;
}

static bool is_known(const struct places *places, uint32_t slot)
{
	for (uint32_t i = 0; i < places->count; i++) {
		if (places->entry[i].slot == slot)
			return true;
	}
	return false;
}

void steering_renew(struct port *port, struct nic *nic, const struct served *served, unsigned count)
{
	union port_address address = port->address;
	struct places *places = calloc(1, sizeof(*places));
	int fd = socket(address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), silent = 0;
	struct asker asker = { .fd = fd, .port = port, .nic = nic, .served = served, .count = count };

	if (address.any.sa_family == AF_INET)
		address.v4.sin_port = 0;
	else
		address.v6.sin6_port = 0;
	if (fd < 0 || !places ||
	    bind(fd, &address.any, address.any.sa_family == AF_INET ? sizeof(address.v4) : sizeof(address.v6)))
		goto out;
	/* Without a filter questions go anywhere. */
	set_filter(port, places);
	for (uint16_t place = 0; place < NIC_SLOTS && silent < SILENT_MOST; place++) {
		struct question answer;

		if (!ask(&asker, place, &answer)) {
			silent++;
			continue;
		}
		silent = 0;
		if (is_known(places, answer.slots[0])) /* there are no more: it went anywhere */
			break;
		for (uint32_t i = 0; i < answer.slot_count && places->count < NIC_SLOTS; i++) {
			places->entry[places->count].slot = answer.slots[i];
			places->entry[places->count++].place = place;
		}
	}
	set_filter(port, places);
out:
	if (fd >= 0)
		close(fd);
	free(places);
}

/* What is handed over: as many packets at a time as fit, since the kernel queues few messages, however short. Before each from BTH
 * to ICRC stands this. */
struct stray {
	union ibv_gid sgid, dgid;
	uint16_t sport;
	uint16_t bytes; /* of the packet */
	uint8_t traffic_class, hop_limit;
};

#define STRAYS_BYTES 61440u
#define STRAYS_MOST  16 /* messages at a time */

static socklen_t name_of(uint32_t slot, struct sockaddr_un *address)
{
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	int n = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "uroce/%u/strays", slot);

	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

struct strays *strays_open(uint32_t slot)
{
	struct strays *strays = calloc(1, sizeof(*strays));
	struct sockaddr_un address;
	socklen_t bytes = name_of(slot, &address);
	int on = 1, size = 4 << 20, error;

	if (!strays)
		return NULL;
	strays->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (strays->fd >= 0 && !setsockopt(strays->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) &&
	    !bind(strays->fd, (struct sockaddr *)&address, bytes)) {
		setsockopt(strays->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		return strays;
	}
	error = errno;
	if (strays->fd >= 0)
		close(strays->fd);
	free(strays);
	errno = error;
	return NULL;
}

void strays_close(struct strays *strays)
{
	if (strays)
		close(strays->fd);
	free(strays);
}

bool strays_add(struct strays_batch *batch, uint32_t slot, const struct arrival *arrival)
{
	struct stray stray = { .sgid = arrival->sgid,
			       .dgid = arrival->dgid,
			       .sport = arrival->sport,
			       .bytes = arrival->bytes,
			       .traffic_class = arrival->traffic_class,
			       .hop_limit = arrival->hop_limit };

	if (batch->packets && (batch->slot != slot || batch->used + sizeof(stray) + arrival->bytes > STRAYS_BYTES))
		return false;
	if (!batch->bytes)
		batch->bytes = malloc(STRAYS_BYTES);
	if (!batch->bytes)
		return true; /* as if it had got lost */
	memcpy(batch->bytes + batch->used, &stray, sizeof(stray));
	memcpy(batch->bytes + batch->used + sizeof(stray), arrival->raw, arrival->bytes);
	batch->used += (uint32_t)sizeof(stray) + arrival->bytes;
	batch->slot = slot;
	batch->packets++;
	return true;
}

bool strays_hand_over(struct strays_batch *batch, struct strays *ours)
{
	struct iovec iov = { batch->bytes, batch->used };
	struct sockaddr_un address;
	struct msghdr message = { .msg_name = &address,
				  .msg_namelen = name_of(batch->slot, &address),
				  .msg_iov = &iov,
				  .msg_iovlen = 1 };

	batch->used = batch->packets = 0;
	/* A full socket loses them, as a full socket of the port would. */
	return ours && (sendmsg(ours->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN);
}

/* Only processes of this user may put words into others' mouths. */
static bool is_of_our_user(struct msghdr *message)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		struct ucred who;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
			continue;
		memcpy(&who, CMSG_DATA(c), sizeof(who));
		return who.uid == geteuid();
	}
	return false;
}

/* The packets of one message. */
static void read_strays(struct nic *nic, const uint8_t *bytes, size_t length,
			void (*arrived)(void *arg, const struct arrival *arrival), void *arg)
{
	while (length) {
		struct arrival arrival;
		struct stray stray;

		if (length >= sizeof(stray))
			memcpy(&stray, bytes, sizeof(stray));
		if (length < sizeof(stray) || length - sizeof(stray) < stray.bytes ||
		    stray.bytes < ROCE_BTH_BYTES + ROCE_ICRC_BYTES ||
		    !roce_parse(bytes + sizeof(stray), stray.bytes - ROCE_ICRC_BYTES, &arrival.packet)) {
			counter_add(&nic->seg->counters.rx_malformed, 1);
			return;
		}
		arrival.sgid = stray.sgid;
		arrival.dgid = stray.dgid;
		arrival.sport = stray.sport;
		arrival.traffic_class = stray.traffic_class;
		arrival.hop_limit = stray.hop_limit;
		arrival.raw = bytes + sizeof(stray);
		arrival.bytes = stray.bytes;
		arrived(arg, &arrival);
		bytes += sizeof(stray) + stray.bytes;
		length -= sizeof(stray) + stray.bytes;
	}
}

void strays_receive(struct strays *strays, struct nic *nic, void (*arrived)(void *arg, const struct arrival *arrival), void *arg)
{
	uint8_t *bytes = malloc(STRAYS_BYTES);

	for (int i = 0; bytes && i < STRAYS_MOST; i++) {
		union {
			struct cmsghdr align;
			uint8_t bytes[CMSG_SPACE(sizeof(struct ucred))];
		} control;
		struct iovec iov = { bytes, STRAYS_BYTES };
		struct msghdr message = {
			.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
		};
		ssize_t n = recvmsg(strays->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

		if (n < 0)
			break;
		if (message.msg_flags & MSG_TRUNC || !is_of_our_user(&message))
			counter_add(&nic->seg->counters.rx_malformed, 1);
		else
			read_strays(nic, bytes, (size_t)n, arrived, arg);
	}
	free(bytes);
}
