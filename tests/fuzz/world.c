/* SPDX-License-Identifier: MIT */
/* The world of a fuzzed NIC. See world.h. */
#include "world.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "nic/attention.h"
#include "nic/helper.h"
#include "nic/requester.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO	    104
#endif

#define PAGE	       4096u
#define EDGE	       200u /* bytes of canaries before a region, at least as many behind it */
#define SOCKETS	       1024
#define NAMES	       (2 * NIC_OWN_SLOTS)
#define LOOK	       50u     /* ns that a look at the clock takes */
#define SOURCE_PORT    0xc123u /* of packets that arrive */
#define MTU	       4096u
#define QUESTION_SLOTS 16u /* where a question has their number: see roce/steering.c */

static struct nic *nic;
static uint64_t now = 1000000000;
static int send_error;

/* What sockets are bound to. */
static struct {
	sa_family_t family;
	uint16_t port;
} bound[SOCKETS];

/* What is on its way to us. */
#define DATAGRAMS 16
static struct datagram {
	struct world_packet packet; /* of the first */
	uint32_t segments;
	size_t length, segment;
	uint8_t bytes[65536];
} arriving[DATAGRAMS];
static unsigned arriving_count;

uint64_t __wrap_nic_now(void)
{
	return now += LOOK;
}

int __wrap_helper_start(struct nic *of)
{
	(void)of;
	return 0;
}

bool __wrap_helper_stop(struct nic *of)
{
	(void)of;
	return true;
}

/* Names of slots: each only once. */
static bool is_new_name(const struct sockaddr_un *address, socklen_t length)
{
	static struct sockaddr_un names[NAMES];
	static unsigned count;
	struct sockaddr_un name = { 0 };

	memcpy(&name, address, length);
	for (unsigned i = 0; i < count; i++) {
		if (!memcmp(&names[i], &name, sizeof(name)))
			return false;
	}
	CHECK(count < NAMES);
	names[count++] = name;
	return true;
}

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length)
{
	CHECK(fd >= 0 && fd < SOCKETS);
	if (address->sa_family == AF_UNIX && !is_new_name((const struct sockaddr_un *)address, length)) {
		errno = EADDRINUSE;
		return -1;
	}
	bound[fd].family = address->sa_family;
	if (address->sa_family == AF_INET)
		bound[fd].port = be16toh(((const struct sockaddr_in *)address)->sin_port);
	else if (address->sa_family == AF_INET6)
		bound[fd].port = be16toh(((const struct sockaddr_in6 *)address)->sin6_port);
	return 0;
}

int __wrap_listen(int fd, int backlog)
{
	(void)fd;
	(void)backlog;
	return 0;
}

static union ibv_gid gid_of(const struct sockaddr *address)
{
	union ibv_gid gid;

	if (address->sa_family == AF_INET)
		return gid_from_ipv4(((const struct sockaddr_in *)address)->sin_addr.s_addr);
	memcpy(gid.raw, &((const struct sockaddr_in6 *)address)->sin6_addr, sizeof(gid.raw));
	return gid;
}

static void see_packet(int fd, const union ibv_gid *dgid, uint16_t id, const uint8_t *bytes, size_t length)
{
	bool v6 = bound[fd].family == AF_INET6;
	struct icrc_path path = { .sgid = world_gid(WORLD_US, v6), .dgid = *dgid, .sport = bound[fd].port, .dport = ROCE_PORT };
	struct world_sent sent = { .dgid = *dgid };
	uint32_t icrc;

	CHECK(length >= ROCE_BTH_BYTES + ROCE_ICRC_BYTES);
	length -= ROCE_ICRC_BYTES;
	CHECK(roce_parse(bytes, length, &sent.packet));
	CHECK(sent.packet.length <= MTU);
	memcpy(&icrc, bytes + length, sizeof(icrc));
	CHECK(le32toh(icrc) == icrc_of(&path, id, bytes, length));
	world_sent(&sent);
}

static void see_message(int fd, const struct msghdr *message)
{
	const uint8_t *bytes = message->msg_iov[0].iov_base;
	size_t length = message->msg_iov[0].iov_len;
	uint16_t segment = 0, id = 0;
	union ibv_gid dgid = gid_of(message->msg_name);

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR((struct msghdr *)message, c)) {
		if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_SEGMENT)
			memcpy(&segment, CMSG_DATA(c), sizeof(segment));
	}
	for (size_t at = 0, bytes_here; at < length; at += bytes_here) {
		bytes_here = segment && length - at > segment ? segment : length - at;
		see_packet(fd, &dgid, id++, bytes + at, bytes_here);
	}
}

int __wrap_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
	(void)flags;
	for (unsigned i = 0; i < count; i++) {
		/* To who sends, what is refused is as good as lost. */
		see_message(fd, &messages[i].msg_hdr);
		messages[i].msg_len = (unsigned)messages[i].msg_hdr.msg_iov[0].iov_len;
		if (send_error) {
			errno = send_error;
			return -1;
		}
	}
	return (int)count;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	const struct sockaddr *to = message->msg_name;

	(void)flags;
	/* To another process: there is none. */
	if (!to || to->sa_family == AF_UNIX) {
		errno = ECONNREFUSED;
		return -1;
	}
	see_message(fd, message);
	return (ssize_t)message->msg_iov[0].iov_len;
}

ssize_t __wrap_sendto(int fd, const void *bytes, size_t length, int flags, const struct sockaddr *to, socklen_t to_length)
{
	uint32_t slots;

	(void)fd;
	(void)flags;
	(void)to;
	(void)to_length;
	/* Who else has the port? Nobody. It may ask, but not answer, since nobody here asks. */
	CHECK(length >= QUESTION_SLOTS + sizeof(slots));
	memcpy(&slots, (const uint8_t *)bytes + QUESTION_SLOTS, sizeof(slots));
	CHECK(!slots);
	errno = ENETUNREACH;
	return -1;
}

static void add_control(struct msghdr *message, size_t *used, int level, int type, int value)
{
	struct cmsghdr *c = (struct cmsghdr *)((uint8_t *)message->msg_control + *used);

	CHECK(*used + CMSG_SPACE(sizeof(value)) <= message->msg_controllen);
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(sizeof(value));
	memcpy(CMSG_DATA(c), &value, sizeof(value));
	*used += CMSG_SPACE(sizeof(value));
}

static void give_datagram(const struct datagram *datagram, struct mmsghdr *to)
{
	struct msghdr *message = &to->msg_hdr;
	union ibv_gid from = world_gid(datagram->packet.from, datagram->packet.v6);
	union port_address *address = message->msg_name;
	size_t used = 0;

	CHECK(message->msg_iovlen == 1 && message->msg_iov[0].iov_len >= datagram->length);
	memcpy(message->msg_iov[0].iov_base, datagram->bytes, datagram->length);
	to->msg_len = (unsigned)datagram->length;
	memset(address, 0, sizeof(*address));
	if (datagram->packet.v6) {
		address->v6.sin6_family = AF_INET6;
		address->v6.sin6_port = htobe16(SOURCE_PORT);
		memcpy(&address->v6.sin6_addr, from.raw, sizeof(from.raw));
	} else {
		address->v4.sin_family = AF_INET;
		address->v4.sin_port = htobe16(SOURCE_PORT);
		memcpy(&address->v4.sin_addr, from.raw + 12, 4);
	}
	add_control(message, &used, datagram->packet.v6 ? IPPROTO_IPV6 : IPPROTO_IP, datagram->packet.v6 ? IPV6_TCLASS : IP_TOS,
		    datagram->packet.traffic_class);
	add_control(message, &used, datagram->packet.v6 ? IPPROTO_IPV6 : IPPROTO_IP,
		    datagram->packet.v6 ? IPV6_HOPLIMIT : IP_TTL, 64);
	if (datagram->segments > 1)
		add_control(message, &used, IPPROTO_UDP, UDP_GRO, (int)datagram->segment);
	message->msg_controllen = used;
}

int __wrap_recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout)
{
	int given = 0;

	(void)flags;
	(void)timeout;
	/* All of one input are of one family. */
	if (!arriving_count || (bound[fd].family == AF_INET6) != arriving[0].packet.v6) {
		errno = EAGAIN;
		return -1;
	}
	for (unsigned i = 0; i < arriving_count && i < count; i++)
		give_datagram(&arriving[given++], &messages[i]);
	CHECK((unsigned)given == arriving_count);
	arriving_count = 0;
	return given;
}

struct nic *world_nic(void)
{
	const char *why = NULL;

	if (nic)
		return nic;
	setenv("UROCE_TRANSPORT", "roce", 1);
	unsetenv("UROCE_PORT");
	nic = nic_open(&why);
	if (!nic)
		fprintf(stderr, "no NIC: %s\n", why);
	CHECK(nic);
	return nic;
}

union ibv_gid world_gid(enum world_end end, bool v6)
{
	static const uint8_t host[] = { [WORLD_US] = 1, [WORLD_PEER] = 2, [WORLD_STRANGER] = 3 };
	/* Addresses for documentation: RFC 5737, RFC 3849. */
	union ibv_gid v4_gid = { .raw = { [10] = 0xff, 0xff, 192, 0, 2, host[end] } };
	union ibv_gid v6_gid = { .raw = { 0x20, 0x01, 0x0d, 0xb8, [15] = host[end] } };

	return v6 ? v6_gid : v4_gid;
}

void world_make_qp(enum ibv_qp_type type, struct nic_cq *cq, struct nic_srq *srq, uint32_t depth, struct nic_qp *qp)
{
	static struct gid_table gids = { .count = 2, .present = 2 };
	const struct nic_qp_init init = {
		.type = type,
		.pd = WORLD_PD,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = { .max_send_wr = depth,
			 .max_recv_wr = srq ? 0 : depth,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = 64 },
		.gids = &gids,
		.mtu = MTU,
	};

	gids.gids[0] = world_gid(WORLD_US, false);
	gids.gids[1] = world_gid(WORLD_US, true);
	CHECK(!nic_qp_create(world_nic(), &init, qp));
}

bool world_move_qp(struct nic_qp *qp, enum ibv_qp_state to, const struct ibv_qp_attr *attr)
{
	struct ibv_qp_attr all = *attr;
	int mask = IBV_QP_STATE;

	all.qp_state = to;
	if (to == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (qp->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (to == IBV_QPS_RTR && qp->type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (to == IBV_QPS_RTR && qp->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (to == IBV_QPS_RTS && qp->state == IBV_QPS_RTR) {
		mask |= IBV_QP_SQ_PSN;
		if (qp->type == IBV_QPT_RC)
			mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	return !nic_qp_modify(qp, &all, mask);
}

void world_wait(uint64_t ns)
{
	now += ns;
}

uint64_t world_time(void)
{
	return now;
}

void world_turn(void)
{
	attention_serve(nic, false);
	requester_run_due(nic);
	wire_help(nic);
}

bool world_wait_for_helper(void)
{
	uint64_t due = requester_next_due(nic);

	if (due == UINT64_MAX)
		return false;
	if (due > now)
		now = due;
	world_turn();
	return true;
}

void world_bring(const struct world_packet *packet)
{
	struct datagram *datagram = arriving_count ? &arriving[arriving_count - 1] : NULL;
	size_t length = packet->length + ROCE_ICRC_BYTES;
	struct icrc_path path = { .sgid = world_gid(packet->from, packet->v6),
				  .dgid = world_gid(WORLD_US, packet->v6),
				  .sport = SOURCE_PORT,
				  .dport = ROCE_PORT };
	uint8_t *to;
	uint32_t icrc = 0;

	if (!datagram || !packet->joined || datagram->segment != length ||
	    datagram->length + length > sizeof(datagram->bytes) || datagram->packet.from != packet->from) {
		if (arriving_count == DATAGRAMS)
			world_arrive();
		datagram = &arriving[arriving_count++];
		datagram->packet = *packet;
		datagram->segments = 0;
		datagram->length = 0;
		datagram->segment = length;
	}
	to = datagram->bytes + datagram->length;
	memcpy(to, packet->bytes, packet->length);
	/* Each of a datagram has the next identification; so long as they are few, all are to be expected. */
	if (packet->length >= ROCE_BTH_BYTES)
		icrc = icrc_of(&path, (uint16_t)(datagram->segments % 32), to, packet->length);
	icrc = htole32(icrc ^ packet->broken);
	memcpy(to + packet->length, &icrc, sizeof(icrc));
	datagram->segments++;
	datagram->length += length;
}

void world_arrive(void)
{
	uint32_t count = atomic_load(&nic->wire->count);

	for (uint32_t i = 0; i < count && arriving_count; i++) {
		struct port *port = nic->wire->ports[i];

		port->source.ready(nic, &port->source);
	}
	/* Where no port is open it arrives at nobody. */
	arriving_count = 0;
}

void world_refuse_sending(int error)
{
	send_error = error;
}

static void *pages(size_t length)
{
	void *start = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(start != MAP_FAILED);
	return start;
}

void area_make(struct area *area, size_t length, uint32_t pd, uint32_t access)
{
	size_t whole = (length + 2 * (size_t)EDGE + PAGE - 1) / PAGE * PAGE;
	uint8_t *all = pages(whole + 2 * (size_t)PAGE);

	CHECK(!mprotect(all, PAGE, PROT_NONE) && !mprotect(all + PAGE + whole, PAGE, PROT_NONE));
	*area = (struct area){ .start = all + PAGE + EDGE,
			       .length = length,
			       .pages = all + PAGE,
			       .pages_length = whole,
			       .pd = pd,
			       .access = access };
	memset(area->pages, CANARY, whole);
}

void area_register(struct area *area)
{
	if (!area->registered)
		CHECK(!nic_mr_register(world_nic(), area->pd, (uintptr_t)area->start, area->length, (uintptr_t)area->start,
				       area->access, &area->mr));
	area->registered = true;
}

void area_deregister(struct area *area)
{
	if (area->registered)
		CHECK(!nic_mr_deregister(&area->mr));
	area->registered = false;
}

void area_protect(const struct area *area, bool protect)
{
	CHECK(!mprotect(area->pages, area->pages_length, protect ? PROT_NONE : PROT_READ | PROT_WRITE));
}

void area_check_edges(const struct area *area)
{
	CHECK(is_canary(area->pages, (size_t)(area->start - area->pages)));
	CHECK(is_canary(area->start + area->length, area->pages_length - (size_t)(area->start - area->pages) - area->length));
}
