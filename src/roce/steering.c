/* SPDX-License-Identifier: MIT */
/* Who gets what arrives. See steering.h. */
#include "roce/steering.h"

#include <errno.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "local/user.h"
#include "nic/abstract_name.h"
#include "nic/descriptor.h"
#include "nic/gid.h"
#include "nic/keep_errno.h"

/* Of a CM message in a UDP payload: its attribute, SIDR_REP's number, and the comm IDs, of which the receiver's is the second, but of
 * SIDR_REP the first. */
#define CM_ATTRIBUTE (ROCE_BTH_BYTES + 8 + 16)
#define CM_SIDR_REP  0x18
#define CM_FIRST_ID  (ROCE_BTH_BYTES + 8 + 24)
#define CM_SECOND_ID (CM_FIRST_ID + 4)

/* A question: no opcode of RoCE, a place. Its answer: the same, and the slots of who is there. */
#define QUESTION 0xff
static const uint8_t magic[] = "uroce place";

struct question {
	uint8_t kind;
	uint8_t round;	/* of the asker's, to tell late answers */
	uint16_t place; /* network order: read by the filter */
	uint8_t magic[sizeof(magic)];
	uint32_t slot_count; /* in the answer */
	uint32_t slots[NIC_OWN_SLOTS];
};

/* Places that are asked for at once, and ns since the last answer after which the others of them are given up. */
#define ASKED_AT_ONCE 16u
#define ANSWER_WAIT   50000000ull

static socklen_t bytes_of(const union port_address *address)
{
	return address->any.sa_family == AF_INET ? sizeof(address->v4) : sizeof(address->v6);
}

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
	/* Whoever asks gives the port a filter in a moment: we need not. */
	atomic_store_explicit(&port->asked_at, nic_now(), memory_order_relaxed);
	question.slot_count = atomic_load(&hdr->slot_count);
	for (uint32_t i = 0; i < question.slot_count && i < NIC_OWN_SLOTS; i++)
		question.slots[i] = atomic_load(&hdr->slots[i]);
	if (descriptor_is_ours(port->fd))
		sendto(port->fd, &question, sizeof(question), MSG_DONTWAIT | MSG_NOSIGNAL, &from->any, bytes_of(from));
	return true;
}

/* Whose packets go where. */
struct places {
	uint32_t count; /* of entries */
	struct {
		uint32_t slot, place;
	} entry[NIC_SLOTS];
};

struct asking {
	struct helper_source source; /* must be first */
	struct port *port;
	int fd;		/* -1: not now */
	uint64_t until; /* CLOCK_MONOTONIC ns, when the rest of the answers is given up */
	uint8_t round;
	uint32_t from, to; /* places asked for now */
	uint32_t missing;  /* their answers */
	uint32_t found;	   /* processes that were not known before, by them */
	bool has_head;	   /* the port has a filter that gives questions to their places */
	struct places places;
};

static void set_filter(struct port *port, const struct places *places)
{
	/* Questions go to the place that they name; others by the slot in the destination QPN. What is for QP 1, the connection
	 * manager's, has the slot in its receiver's comm ID (cm/engine.h), which only requests do not have. Behind it: to anybody. */
	static const struct sock_filter head[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, QUESTION, 0, 2),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 2),
		BPF_STMT(BPF_RET | BPF_A, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 6),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, CM_ATTRIBUTE),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CM_SIDR_REP, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, CM_FIRST_ID),
		BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, CM_SECOND_ID),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 32 - 24),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, NIC_QPN_INDEX_BITS),
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

	if (descriptor_is_ours(port->fd))
		setsockopt(port->fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program));
	free(code);
}

static void ask_for_more(struct asking *asking)
{
	const union port_address *to = &asking->port->address;
	struct question question = { .kind = QUESTION, .round = ++asking->round };

	memcpy(question.magic, magic, sizeof(magic));
	asking->from = asking->to;
	asking->to = asking->from + ASKED_AT_ONCE < NIC_SLOTS ? asking->from + ASKED_AT_ONCE : NIC_SLOTS;
	asking->missing = asking->to - asking->from;
	asking->found = 0;
	asking->until = nic_now() + ANSWER_WAIT;
	if (!descriptor_is_ours(asking->fd))
		return;
	for (uint32_t place = asking->from; place < asking->to; place++) {
		question.place = htons((uint16_t)place);
		sendto(asking->fd, &question, sizeof(question), MSG_DONTWAIT | MSG_NOSIGNAL, &to->any, bytes_of(to));
	}
}

static void ask_from_the_start(struct asking *asking)
{
	asking->places.count = asking->to = 0;
	ask_for_more(asking);
}

static void stop(struct asking *asking)
{
	atomic_store(&asking->port->strays, 0); /* those had not been steered by what is known now */
	descriptor_close(asking->fd);			/* and so out of the helper's set */
	asking->fd = -1;
}

/* All of the answers that will come are there. */
static void go_on(struct asking *asking)
{
	/* Nobody has had a CPU for an answer; that says nothing about who is there. */
	if (!asking->places.count) {
		stop(asking);
		return;
	}
	/* Behind the last place, and where there is no filter yet, all questions go to the same process. */
	if (!asking->has_head && asking->from == 0 && asking->found == 1) {
		static const struct places none;

		set_filter(asking->port, &none);
		asking->has_head = true;
		ask_from_the_start(asking);
		return;
	}
	if (asking->found && asking->to < NIC_SLOTS) {
		ask_for_more(asking);
		return;
	}
	set_filter(asking->port, &asking->places);
	stop(asking);
}

/* A process is where it answered from first: behind the last place it may answer for more. */
static void enter(struct asking *asking, const struct question *answer, uint32_t place)
{
	struct places *places = &asking->places;
	bool is_new = true;

	for (uint32_t i = 0; i < places->count; i++) {
		for (uint32_t j = 0; j < answer->slot_count; j++) {
			if (places->entry[i].slot != answer->slots[j])
				continue;
			is_new = false;
			if (place < places->entry[i].place)
				places->entry[i].place = place;
		}
	}
	asking->found += is_new;
	for (uint32_t i = 0; is_new && i < answer->slot_count && places->count < NIC_SLOTS; i++) {
		places->entry[places->count].slot = answer->slots[i];
		places->entry[places->count++].place = place;
	}
}

static void answers_ready(struct nic *nic, struct helper_source *source)
{
	struct asking *asking = (struct asking *)source;
	struct question answer;
	ssize_t n;

	(void)nic;
	while (descriptor_is_ours(asking->fd) && (n = recv(asking->fd, &answer, sizeof(answer), MSG_DONTWAIT)) >= 0) {
		uint32_t place = ntohs(answer.place);

		if (n != sizeof(answer) || answer.round != asking->round || memcmp(answer.magic, magic, sizeof(magic)) ||
		    !answer.slot_count || answer.slot_count > NIC_OWN_SLOTS || place < asking->from || place >= asking->to)
			continue;
		enter(asking, &answer, place);
		asking->until = nic_now() + ANSWER_WAIT;
		if (!--asking->missing)
			go_on(asking);
	}
}

void steering_ask(struct nic *nic, struct port *port)
{
	struct asking *asking = port->asking;
	union port_address address = port->address;

	if (!asking)
		asking = port->asking = calloc(1, sizeof(*asking));
	if (!asking)
		return;
	*asking = (struct asking){ .source.ready = answers_ready,
				   .port = port,
				   .fd = descriptor_socket(address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0) };
	if (address.any.sa_family == AF_INET)
		address.v4.sin_port = 0;
	else
		address.v6.sin6_port = 0;
	if (asking->fd < 0)
		return;
	/* Connected: nobody but who has the port can answer. */
	if (bind(asking->fd, &address.any, bytes_of(&address)) ||
	    connect(asking->fd, &port->address.any, bytes_of(&port->address)) || helper_watch(nic, asking->fd, &asking->source)) {
		descriptor_close(asking->fd);
		asking->fd = -1;
		return;
	}
	ask_from_the_start(asking);
}

bool steering_is_asking(struct port *port, uint64_t *again)
{
	struct asking *asking = port->asking;

	if (asking && asking->fd >= 0 && nic_now() >= asking->until)
		go_on(asking);
	if (!asking || asking->fd < 0)
		return false;
	*again = asking->until;
	return true;
}

void steering_forget(struct port *port, bool is_orphan)
{
	if (!port->asking)
		return;
	if (port->asking->fd >= 0)
		descriptor_close(port->asking->fd);
	if (!is_orphan)
		free(port->asking);
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

struct strays *strays_open(uint32_t slot)
{
	struct strays *strays = calloc(1, sizeof(*strays));
	struct sockaddr_un address;
	socklen_t bytes = abstract_name(&address, "uroce/%u/strays", slot);
	int on = 1, size = 4 << 20, error;

	if (!strays)
		return NULL;
	strays->fd = descriptor_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (strays->fd >= 0 && !setsockopt(strays->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) &&
	    !bind(strays->fd, (struct sockaddr *)&address, bytes)) {
		setsockopt(strays->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		return strays;
	}
	error = errno;
	if (strays->fd >= 0)
		descriptor_close(strays->fd);
	free(strays);
	errno = error;
	return NULL;
}

void strays_close(struct strays *strays)
{
	if (strays)
		descriptor_close(strays->fd);
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
	KEEP_ERRNO;
	struct iovec iov = { batch->bytes, batch->used };
	struct sockaddr_un address;
	struct msghdr message = {
		.msg_name = &address, .msg_namelen = abstract_name(&address, "uroce/%u/strays", batch->slot), .msg_iov = &iov, .msg_iovlen = 1
	};

	batch->used = batch->packets = 0;
	/* A full socket loses them, as a full socket of the port would. */
	return ours && descriptor_is_ours(ours->fd) && (sendmsg(ours->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN);
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

	for (int i = 0; bytes && i < STRAYS_MOST && descriptor_is_ours(strays->fd); i++) {
		union {
			struct cmsghdr align;
			uint8_t bytes[CMSG_SPACE(sizeof(struct ucred))];
		} control;
		struct iovec iov = { bytes, STRAYS_BYTES };
		struct msghdr message = {
			.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
		};
		ssize_t n = recvmsg(strays->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		uid_t sender;

		if (n < 0)
			break;
		/* Only processes of this user may put words into others' mouths. */
		if (message.msg_flags & MSG_TRUNC || !user_sent(&message, &sender) || sender != getuid())
			counter_add(&nic->seg->counters.rx_malformed, 1);
		else
			read_strays(nic, bytes, (size_t)n, arrived, arg);
	}
	free(bytes);
}
