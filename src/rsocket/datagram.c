/* SPDX-License-Identifier: MIT */
/*
 * Datagrams. Such an rsocket is a UDP socket, which gives it its address, and a UD QP for each local address that is in use. What is
 * sent to somebody for the first time goes by UDP, with our QP's number before it; the answer has the other's, and from then on UD
 * messages go from QP to QP. What is too long for those goes on by UDP.
 *
 * A datagram that arrived lies where it came, in a receive buffer or, from UDP, in memory of its own, until the program takes it.
 */
#include <endian.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "rsocket.h"
#include "nic/keep_errno.h"

enum {
	GRH_BYTES = 40,
	MESSAGE_MOST = 2048,	    /* bytes, header included: as long as rdma-core's buffers */
	RECEIVE_STRIDE = 2048 + 64, /* with the GRH */
	SEND_STRIDE = 2048,
	BATCH = 32,
};
#define WORK_RECEIVE (UINT64_C(1) << 32)

struct arrival {
	struct list link;
	struct ud_qp *qp; /* whose receive buffer it is in; NULL: its own memory */
	union address source;
	const uint8_t *data;
	uint32_t length;
	uint8_t own[]; /* qp is NULL */
};

/* The QP of one of our addresses. */
struct ud_qp {
	struct list link;
	union address local; /* with the UDP socket's port */
	struct rdma_cm_id *id;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	bool armed;
	uint8_t sgid_index;
	uint32_t most;	 /* bytes of a message */
	uint8_t *memory; /* receive buffers, then send buffers */
	size_t memory_size;
	struct ibv_mr *mr;
	struct arrival *arrivals; /* by receive buffer */
	uint16_t *sends;	  /* buffers that are free */
	int sends_free;
};

/* Somebody that we talk to. */
struct peer {
	union address address;
	struct ud_qp *qp;  /* that he is reached from */
	struct ibv_ah *ah; /* NULL: his QP is not known */
	uint32_t qpn;
};

static int compare(const void *a, const void *b)
{
	const union address *one = &((const struct peer *)a)->address, *other = &((const struct peer *)b)->address;

	if (one->any.sa_family != other->any.sa_family)
		return one->any.sa_family - other->any.sa_family;
	return memcmp(one, other, address_length(&one->any));
}

/* Addresses. */

static bool is_mapped(const union address *address)
{
	return address->any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&address->v6.sin6_addr);
}

/* IPv4 in IPv6 as what it is. */
static union address plain(const union address *address)
{
	union address v4 = { .v4 = { .sin_family = AF_INET } };

	if (!is_mapped(address))
		return *address;
	v4.v4.sin_port = address->v6.sin6_port;
	memcpy(&v4.v4.sin_addr, &address->v6.sin6_addr.s6_addr[12], 4);
	return v4;
}

/* As a program with such a socket has it. */
static union address in_domain(int domain, const union address *address)
{
	union address v6 = { .v6 = { .sin6_family = AF_INET6 } };

	if (domain == AF_INET || address->any.sa_family == AF_INET6)
		return *address;
	v6.v6.sin6_port = address->v4.sin_port;
	memset(&v6.v6.sin6_addr.s6_addr[10], 0xff, 2);
	memcpy(&v6.v6.sin6_addr.s6_addr[12], &address->v4.sin_addr, 4);
	return v6;
}

static union ibv_gid gid_of(const union address *address)
{
	union address mapped = in_domain(AF_INET6, address);
	union ibv_gid gid;

	memcpy(&gid, &mapped.v6.sin6_addr, sizeof(gid));
	return gid;
}

static bool is_any(const union address *address)
{
	if (address->any.sa_family == AF_INET)
		return !address->v4.sin_addr.s_addr;
	return IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr);
}

/* Which of our addresses a datagram to `peer` comes from, with our port. */
static int local_for(struct rsocket *rs, const union address *peer, union address *local)
{
	socklen_t length = sizeof(*local);
	union address own = { 0 };

	if (getsockname(rs->datagram.udp, &own.any, &length))
		return errno;
	if (!own.v4.sin_port) {
		own = (union address){ .any.sa_family = rs->domain };
		if (bind(rs->datagram.udp, &own.any, address_length(&own.any)) || getsockname(rs->datagram.udp, &own.any, &length))
			return errno;
	}
	*local = own;
	if (!is_any(&own))
		return 0;
	int probe = descriptor_socket(rs->domain, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (probe < 0)
		return errno;
	int error = 0;
	length = sizeof(*local);
	if (connect(probe, &peer->any, address_length(&peer->any)) || getsockname(probe, &local->any, &length))
		error = errno;
	descriptor_close(probe);
	local->v4.sin_port = own.v4.sin_port;
	return error;
}

/* QPs. */

static int post_receive(struct ud_qp *qp, uint32_t buffer)
{
	struct ibv_sge sge = { (uintptr_t)qp->memory + buffer * RECEIVE_STRIDE, GRH_BYTES + MESSAGE_MOST, qp->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = WORK_RECEIVE | buffer, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(qp->id->qp, &wr, &bad);
}

static void free_qp(struct ud_qp *qp)
{
	if (qp->id && qp->id->qp)
		rdma_destroy_qp(qp->id);
	if (qp->cq)
		ibv_destroy_cq(qp->cq);
	if (qp->completions)
		ibv_destroy_comp_channel(qp->completions);
	if (qp->mr)
		ibv_dereg_mr(qp->mr);
	if (qp->memory)
		munmap(qp->memory, qp->memory_size);
	if (qp->id)
		rdma_destroy_id(qp->id);
	free(qp->arrivals);
	free(qp->sends);
	free(qp);
}

static int find_gid(struct ud_qp *qp, const union ibv_gid *gid, struct ibv_port_attr *port)
{
	if (ibv_query_port(qp->id->verbs, qp->id->port_num, port))
		return EIO;
	for (int index = 0; index < port->gid_tbl_len; index++) {
		union ibv_gid entry;
		if (ibv_query_gid(qp->id->verbs, qp->id->port_num, index, &entry) || memcmp(&entry, gid, sizeof(entry)))
			continue;
		qp->sgid_index = index;
		return 0;
	}
	return EADDRNOTAVAIL;
}

static int make_queues(struct rsocket *rs, struct ud_qp *qp)
{
	struct epoll_event event = { .events = EPOLLIN };

	qp->completions = ibv_create_comp_channel(qp->id->verbs);
	if (!qp->completions)
		return errno;
	fcntl(qp->completions->fd, F_SETFL, O_NONBLOCK);
	if (epoll_ctl(rs->fd, EPOLL_CTL_ADD, qp->completions->fd, &event))
		return errno;
	qp->cq = ibv_create_cq(qp->id->verbs, rs->sends + rs->receives, NULL, qp->completions, 0);
	if (!qp->cq)
		return errno;
	struct ibv_qp_init_attr attr = {
		.send_cq = qp->cq,
		.recv_cq = qp->cq,
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = rs->sends, .max_recv_wr = rs->receives, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	return rdma_create_qp(qp->id, NULL, &attr) ? errno : 0;
}

static int make_buffers(struct rsocket *rs, struct ud_qp *qp)
{
	qp->memory_size = (size_t)rs->receives * RECEIVE_STRIDE + (size_t)rs->sends * SEND_STRIDE;
	void *memory = mmap(NULL, qp->memory_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return ENOMEM;
	qp->memory = memory;
	qp->mr = ibv_reg_mr(qp->id->pd, memory, qp->memory_size, IBV_ACCESS_LOCAL_WRITE);
	if (!qp->mr)
		return errno;
	qp->arrivals = calloc(rs->receives, sizeof(*qp->arrivals));
	qp->sends = calloc(rs->sends, sizeof(*qp->sends));
	if (!qp->arrivals || !qp->sends)
		return ENOMEM;
	for (int i = 0; i < rs->sends; i++)
		qp->sends[qp->sends_free++] = i;
	for (int i = 0; i < rs->receives; i++) {
		qp->arrivals[i].qp = qp;
		list_init(&qp->arrivals[i].link);
		int error = post_receive(qp, i);
		if (error)
			return error;
	}
	return 0;
}

static int make_qp(struct rsocket *rs, const union address *local, struct ud_qp **out)
{
	struct ud_qp *qp = calloc(1, sizeof(*qp));
	union address address = plain(local);
	union ibv_gid gid = gid_of(local);
	struct ibv_port_attr port;
	int error = 0;

	if (!qp)
		return ENOMEM;
	qp->local = *local;
	address.v4.sin_port = 0;
	if (rdma_create_id(NULL, &qp->id, NULL, RDMA_PS_UDP))
		error = errno;
	if (!error && rdma_bind_addr(qp->id, &address.any))
		error = errno;
	if (!error)
		error = find_gid(qp, &gid, &port);
	if (!error)
		error = make_queues(rs, qp);
	if (!error)
		error = make_buffers(rs, qp);
	if (error) {
		free_qp(qp);
		return error;
	}
	qp->most = 128 << port.active_mtu;
	if (qp->most > MESSAGE_MOST)
		qp->most = MESSAGE_MOST;
	list_add_tail(&rs->datagram.qps, &qp->link);
	*out = qp;
	return 0;
}

static int qp_for(struct rsocket *rs, const union address *peer, struct ud_qp **qp)
{
	union address local = { 0 };
	int error = local_for(rs, peer, &local);

	if (error)
		return error;
	list_for_each(node, &rs->datagram.qps) {
		*qp = list_entry(node, struct ud_qp, link);
		if (address_equal(&(*qp)->local.any, &local.any))
			return 0;
	}
	return make_qp(rs, &local, qp);
}

/* Peers. */

static int peer_for(struct rsocket *rs, const union address *address, struct peer **out)
{
	struct peer key = { .address = *address };
	struct peer **found = tfind(&key, &rs->datagram.peers, compare);

	if (found) {
		*out = *found;
		return 0;
	}
	struct peer *peer = malloc(sizeof(*peer));
	if (!peer)
		return ENOMEM;
	*peer = key;
	int error = qp_for(rs, address, &peer->qp);
	if (!error && !tsearch(peer, &rs->datagram.peers, compare))
		error = ENOMEM;
	if (error) {
		free(peer);
		return error;
	}
	*out = peer;
	return 0;
}

static void free_peer(void *node)
{
	struct peer *peer = node;

	if (peer->ah)
		ibv_destroy_ah(peer->ah);
	free(peer);
}

/* He told us his QP. */
static void know(struct peer *peer, uint32_t qpn)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = peer->qp->id->port_num,
		.grh = { .dgid = gid_of(&peer->address), .sgid_index = peer->qp->sgid_index, .hop_limit = 64 },
	};

	peer->qpn = qpn;
	if (!peer->ah)
		peer->ah = ibv_create_ah(peer->qp->id->pd, &attr);
}

/* UDP. */

static ssize_t send_udp(struct rsocket *rs, const struct peer *peer, enum message_type type, const struct iovec *iov, int count)
{
	union address local = plain(&peer->qp->local);
	bool v4 = local.any.sa_family == AF_INET;
	struct udp_header header = {
		.tag = htobe32(UDP_TAG),
		.version = v4 ? 4 : 6,
		.type = type,
		.length = v4 ? UDP_HEADER_V4 : UDP_HEADER_V6,
		.qpn = htobe32(peer->qp->id->qp->qp_num),
	};
	struct iovec pieces[count + 1];
	struct msghdr message = { .msg_name = (void *)&peer->address,
				  .msg_namelen = address_length(&peer->address.any),
				  .msg_iov = pieces,
				  .msg_iovlen = count + 1 };

	memcpy(header.address, v4 ? (void *)&local.v4.sin_addr : (void *)&local.v6.sin6_addr, v4 ? 4 : 16);
	pieces[0] = (struct iovec){ &header, header.length };
	for (int i = 0; i < count; i++)
		pieces[i + 1] = iov[i];
	if (!descriptor_is_ours(rs->datagram.udp)) {
		errno = EBADF;
		return -1;
	}
	ssize_t sent = sendmsg(rs->datagram.udp, &message, MSG_NOSIGNAL);
	return sent < 0 ? sent : sent - header.length;
}

static void arrive(struct rsocket *rs, struct arrival *arrival)
{
	list_add_tail(&rs->datagram.arrived, &arrival->link);
	wait_wake(rs);
}

static void arrive_by_udp(struct rsocket *rs, const union address *source, const uint8_t *data, uint32_t length)
{
	if (rs->datagram.arrived_bytes + length > rs->receive_size)
		return;
	struct arrival *arrival = malloc(sizeof(*arrival) + length);
	if (!arrival)
		return;
	*arrival = (struct arrival){ .source = *source, .data = arrival->own, .length = length };
	memcpy(arrival->own, data, length);
	rs->datagram.arrived_bytes += length;
	arrive(rs, arrival);
}

static void on_udp(struct rsocket *rs, const union address *source, const uint8_t *bytes, size_t length)
{
	struct udp_header header = { 0 };
	struct peer *peer;

	memcpy(&header, bytes, length < sizeof(header) ? length : sizeof(header));
	if (length < header.length || header.tag != htobe32(UDP_TAG))
		return;
	if (header.version == 4 ? header.length != UDP_HEADER_V4 : header.version != 6 || header.length != UDP_HEADER_V6)
		return;
	int error = peer_for(rs, source, &peer);
	if (!error)
		know(peer, be32toh(header.qpn) & 0xffffff);
	if (header.type != MESSAGE_DATA)
		return;
	arrive_by_udp(rs, source, bytes + header.length, length - header.length);
	if (!error)
		send_udp(rs, peer, MESSAGE_CONTROL, NULL, 0);
}

static void take_udp(struct rsocket *rs)
{
	uint8_t bytes[MESSAGE_MOST + sizeof(struct udp_header)];

	while (descriptor_is_ours(rs->datagram.udp)) {
		union address source = { 0 };
		socklen_t length = sizeof(source);
		ssize_t got = recvfrom(rs->datagram.udp, bytes, sizeof(bytes), MSG_DONTWAIT, &source.any, &length);
		if (got >= 0) {
			on_udp(rs, &source, bytes, got);
			continue;
		}
		if (errno == EAGAIN || errno == EINTR)
			return;
		/* What ICMP says about a peer that we are connected to. */
		rs->error = errno;
		return;
	}
}

/* UD. */

static bool parse(struct rsocket *rs, struct arrival *arrival, const uint8_t *bytes, uint32_t length)
{
	struct datagram_header header = { 0 };
	union address source = { 0 };

	memcpy(&header, bytes, length < sizeof(header) ? length : sizeof(header));
	if (length < header.length)
		return false;
	if (header.version == 4 && header.length == DATAGRAM_HEADER_V4) {
		source.v4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = header.port, .sin_addr.s_addr = header.v4 };
	} else if (header.version == 6 && header.length == DATAGRAM_HEADER_V6) {
		source.v6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = header.port };
		source.v6.sin6_flowinfo = header.v6.flow;
		memcpy(&source.v6.sin6_addr, header.v6.address, sizeof(header.v6.address));
		/* Of the interface that it came by. */
		if (IN6_IS_ADDR_LINKLOCAL(&source.v6.sin6_addr))
			source.v6.sin6_scope_id = arrival->qp->local.v6.sin6_scope_id;
	} else {
		return false;
	}
	arrival->source = in_domain(rs->domain, &source);
	arrival->data = bytes + header.length;
	arrival->length = length - header.length;
	return !rs->datagram.peer || address_equal(&rs->datagram.peer->address.any, &arrival->source.any);
}

static void take_completions(struct rsocket *rs, struct ud_qp *qp)
{
	struct ibv_wc wcs[BATCH];
	int count;

	do {
		count = ibv_poll_cq(qp->cq, BATCH, wcs);
		for (int i = 0; i < count; i++) {
			const struct ibv_wc *wc = &wcs[i];
			uint32_t buffer = wc->wr_id;
			if (!(wc->wr_id & WORK_RECEIVE)) {
				qp->sends[qp->sends_free++] = buffer;
				wait_wake(rs);
				continue;
			}
			const uint8_t *bytes = qp->memory + buffer * RECEIVE_STRIDE + GRH_BYTES;
			if (wc->status == IBV_WC_SUCCESS && wc->byte_len >= GRH_BYTES &&
			    parse(rs, &qp->arrivals[buffer], bytes, wc->byte_len - GRH_BYTES))
				arrive(rs, &qp->arrivals[buffer]);
			else if (wc->status == IBV_WC_SUCCESS)
				post_receive(qp, buffer);
		}
	} while (count == BATCH);
}

static int send_ud(const struct peer *peer, const struct iovec *iov, int count)
{
	struct ud_qp *qp = peer->qp;
	union address local = plain(&qp->local);
	uint16_t buffer = qp->sends[--qp->sends_free];
	uint8_t *bytes = qp->memory + qp->memory_size - (buffer + 1) * (size_t)SEND_STRIDE;
	struct datagram_header header = { .port = local.v4.sin_port };

	if (local.any.sa_family == AF_INET) {
		header.version = 4;
		header.length = DATAGRAM_HEADER_V4;
		header.v4 = local.v4.sin_addr.s_addr;
	} else {
		header.version = 6;
		header.length = DATAGRAM_HEADER_V6;
		memcpy(header.v6.address, &local.v6.sin6_addr, sizeof(header.v6.address));
	}
	memcpy(bytes, &header, header.length);
	uint32_t length = header.length;
	for (int i = 0; i < count; i++) {
		memcpy(bytes + length, iov[i].iov_base, iov[i].iov_len);
		length += iov[i].iov_len;
	}
	struct ibv_sge sge = { (uintptr_t)bytes, length, qp->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = buffer,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = { .ah = peer->ah, .remote_qpn = peer->qpn, .remote_qkey = UDP_QKEY },
	};
	struct ibv_send_wr *bad;
	int error = ibv_post_send(qp->id->qp, &wr, &bad);
	if (error)
		qp->sends[qp->sends_free++] = buffer;
	return error;
}

/* What the others ask of us. */

int datagram_open(struct rsocket *rs)
{
	KEEP_ERRNO;
	struct datagram *datagram = &rs->datagram;
	struct epoll_event event = { .events = EPOLLIN };

	list_init(&datagram->qps);
	list_init(&datagram->arrived);
	datagram->udp = descriptor_socket(rs->domain, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (datagram->udp < 0)
		return errno;
	return epoll_ctl(rs->fd, EPOLL_CTL_ADD, datagram->udp, &event) ? errno : 0;
}

static void release(struct rsocket *rs, struct arrival *arrival)
{
	list_del(&arrival->link);
	if (arrival->qp) {
		post_receive(arrival->qp, arrival - arrival->qp->arrivals);
		return;
	}
	rs->datagram.arrived_bytes -= arrival->length;
	free(arrival);
}

void datagram_close(struct rsocket *rs)
{
	struct datagram *datagram = &rs->datagram;

	if (datagram->udp < 0)
		return;
	list_for_each_safe(node, next, &datagram->arrived)
		release(rs, list_entry(node, struct arrival, link));
	tdestroy(datagram->peers, free_peer);
	list_for_each_safe(node, next, &datagram->qps) {
		list_del(node);
		free_qp(list_entry(node, struct ud_qp, link));
	}
	descriptor_close(datagram->udp);
}

int datagram_connect(struct rsocket *rs, const struct sockaddr *address, socklen_t length)
{
	KEEP_ERRNO;
	union address peer = { 0 };

	if (length >= sizeof(address->sa_family) && address->sa_family == AF_UNSPEC) {
		rs->datagram.peer = NULL;
		return connect(rs->datagram.udp, address, length) ? errno : 0;
	}
	int error = address_check(rs, address, length);
	if (error)
		return error;
	memcpy(&peer, address, address_length(address));
	if (connect(rs->datagram.udp, address, length))
		return errno;
	return peer_for(rs, &peer, &rs->datagram.peer);
}

int datagram_shutdown(struct rsocket *rs, int how)
{
	KEEP_ERRNO;
	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return EINVAL;
	if (!rs->datagram.peer)
		return ENOTCONN;
	rs->datagram.shut_read |= how != SHUT_WR;
	rs->datagram.shut_write |= how != SHUT_RD;
	wait_wake(rs);
	return 0;
}

void datagram_quick(struct rsocket *rs)
{
	list_for_each(node, &rs->datagram.qps)
		take_completions(rs, list_entry(node, struct ud_qp, link));
}

void datagram_progress(struct rsocket *rs)
{
	list_for_each(node, &rs->datagram.qps) {
		struct ud_qp *qp = list_entry(node, struct ud_qp, link);
		struct ibv_cq *cq;
		void *context;
		if (qp->armed && ibv_get_cq_event(qp->completions, &cq, &context) == 0) {
			qp->armed = false;
			ibv_ack_cq_events(cq, 1);
			wait_wake(rs);
		}
	}
	take_udp(rs);
	datagram_quick(rs);
}

void datagram_arm(struct rsocket *rs)
{
	list_for_each(node, &rs->datagram.qps) {
		struct ud_qp *qp = list_entry(node, struct ud_qp, link);
		if (!qp->armed && ibv_req_notify_cq(qp->cq, 0) == 0)
			qp->armed = true;
	}
}

static bool readable(const struct rsocket *rs)
{
	return !list_empty(&rs->datagram.arrived) || rs->error || rs->datagram.shut_read;
}

static bool writable(const struct rsocket *rs)
{
	list_for_each(node, &rs->datagram.qps)
		if (!list_entry(node, struct ud_qp, link)->sends_free)
			return false;
	return true;
}

short datagram_poll(const struct rsocket *rs)
{
	return (readable(rs) ? POLLIN : 0) | (writable(rs) ? POLLOUT : 0) | (rs->error ? POLLERR : 0);
}

static int64_t patience(const struct rsocket *rs, int flags)
{
	return (flags & MSG_DONTWAIT) || (atomic_load(&rs->flags) & O_NONBLOCK) ? 0 : -1;
}

static ssize_t scatter(const struct arrival *arrival, const struct iovec *iov, int count)
{
	size_t done = 0;

	for (int i = 0; i < count && done < arrival->length; i++) {
		size_t some = arrival->length - done < iov[i].iov_len ? arrival->length - done : iov[i].iov_len;
		memcpy(iov[i].iov_base, arrival->data + done, some);
		done += some;
	}
	return done;
}

ssize_t datagram_receive(struct rsocket *rs, const struct iovec *iov, int count, int flags, struct sockaddr *source,
			 socklen_t *length, int *out_flags)
{
	if (flags & (MSG_OOB | MSG_ERRQUEUE))
		return fail(EOPNOTSUPP);
	int error = wait_until(rs, readable, patience(rs, flags));
	if (error)
		return fail(error);
	if (list_empty(&rs->datagram.arrived)) {
		error = rs->error;
		rs->error = 0;
		return answer(error);
	}
	struct arrival *arrival = list_entry(rs->datagram.arrived.next, struct arrival, link);
	ssize_t got = scatter(arrival, iov, count);
	if (source && length)
		address_copy(source, length, &arrival->source.any);
	if (out_flags && got < arrival->length)
		*out_flags |= MSG_TRUNC;
	if (flags & MSG_TRUNC)
		got = arrival->length;
	if (!(flags & MSG_PEEK))
		release(rs, arrival);
	return got;
}

static int peer_named(struct rsocket *rs, const struct sockaddr *address, socklen_t length, struct peer **peer)
{
	union address named = { 0 };

	if (!address) {
		*peer = rs->datagram.peer;
		return *peer ? 0 : EDESTADDRREQ;
	}
	int error = address_check(rs, address, length);
	if (error)
		return error;
	memcpy(&named, address, address_length(address));
	return peer_for(rs, &named, peer);
}

ssize_t datagram_send(struct rsocket *rs, const struct iovec *iov, int count, int flags, const struct sockaddr *address,
		      socklen_t length)
{
	struct peer *peer;
	size_t bytes = DATAGRAM_HEADER_V6;

	if (flags & MSG_OOB)
		return fail(EOPNOTSUPP);
	int error = rs->datagram.shut_write ? EPIPE : peer_named(rs, address, length, &peer);
	for (int i = 0; i < count && bytes <= MESSAGE_MOST; i++)
		bytes += iov[i].iov_len;
	if (!error && bytes > MESSAGE_MOST)
		error = EMSGSIZE;
	if (error)
		return fail(error);
	if (!peer->ah)
		take_udp(rs);
	if (!peer->ah || bytes > peer->qp->most)
		return send_udp(rs, peer, MESSAGE_DATA, iov, count);
	error = wait_until(rs, writable, patience(rs, flags));
	if (!error)
		error = send_ud(peer, iov, count);
	return error ? fail(error) : (ssize_t)(bytes - DATAGRAM_HEADER_V6);
}
