/* SPDX-License-Identifier: MIT */
/* Options of rsockets, and what fcntl(2) has. A datagram's socket options are those of its UDP socket. */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "rsocket.h"
#include "service.h"

enum {
	QUEUE_LEAST = 16,
	QUEUE_MOST = 0xfffe,
	BUFFER_LEAST = 4096,
	BUFFER_MOST = 1 << 28, /* bytes; a half of it in 29 bits of a message */
};

/* Before it has a QP. */
static bool unprepared(const struct rsocket *rs)
{
	return is_stream(rs) ?
		       rs->stream.state == STREAM_NEW || rs->stream.state == STREAM_LISTENING || rs->stream.state == STREAM_FAILED :
		       list_empty(&rs->datagram.qps);
}

static uint32_t clamp(int64_t value, int64_t least, int64_t most)
{
	return value < least ? least : value > most ? most : value;
}

/* A keepalive is due. */
static void on_timer(struct rsocket *rs)
{
	uint64_t times;

	pthread_mutex_lock(&rs->lock);
	if (descriptor_is_ours(rs->keepalive_timer) && read(rs->keepalive_timer, &times, sizeof(times)) == sizeof(times))
		connect_keepalive(rs);
	pthread_mutex_unlock(&rs->lock);
}

/* With the service's lock held. */
static int time_keepalives(struct rsocket *rs)
{
	struct itimerspec every = { { rs->keepalive_idle, 0 }, { rs->keepalive_idle, 0 } };
	int error = 0;

	if (rs->keepalive && !rs->keeper) {
		rs->keepalive_timer = descriptor_keep(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
		if (rs->keepalive_timer < 0)
			return errno;
		error = service_add(rs->keepalive_timer, on_timer, rs, &rs->keeper);
		if (error) {
			descriptor_close(rs->keepalive_timer);
			return error;
		}
	}
	if (!rs->keepalive && rs->keeper) {
		service_remove(rs->keeper);
		rs->keeper = NULL;
		descriptor_close(rs->keepalive_timer);
	}
	if (rs->keepalive && timerfd_settime(rs->keepalive_timer, 0, &every, NULL))
		error = errno;
	return error;
}

static int set_socket(struct rsocket *rs, int name, int value)
{
	switch (name) {
	case SO_REUSEADDR:
		rs->reuse_address = value;
		return 0;
	case SO_RCVBUF:
		if (!unprepared(rs))
			return EINVAL;
		/* Twice, as Linux does. */
		rs->receive_size = clamp(2LL * value, BUFFER_LEAST, BUFFER_MOST);
		return 0;
	case SO_SNDBUF:
		if (!unprepared(rs))
			return EINVAL;
		rs->send_size = clamp(2LL * value, BUFFER_LEAST, BUFFER_MOST);
		return 0;
	case SO_KEEPALIVE:
		rs->keepalive = value;
		return time_keepalives(rs);
	case SO_OOBINLINE:
		rs->oob_inline = value;
		return 0;
	default:
		return ENOTSUP;
	}
}

static int set_tcp(struct rsocket *rs, int name, int value)
{
	switch (name) {
	case TCP_NODELAY:
		rs->nodelay = value;
		return 0;
	case TCP_KEEPIDLE:
		if (value < 1 || value > 32767)
			return EINVAL;
		rs->keepalive_idle = value;
		return time_keepalives(rs);
	case TCP_MAXSEG:
		return 0;
	default:
		return ENOTSUP;
	}
}

static int set_rdma(struct rsocket *rs, int name, int value)
{
	if (!unprepared(rs))
		return EINVAL;
	switch (name) {
	case RDMA_SQSIZE:
		rs->sends = clamp(value, QUEUE_LEAST, QUEUE_MOST);
		return 0;
	case RDMA_RQSIZE:
		rs->receives = clamp(value, QUEUE_LEAST, QUEUE_MOST);
		return 0;
	case RDMA_INLINE:
		rs->inlined = clamp(value, 0, QUEUE_MOST);
		return 0;
	case RDMA_IOMAPSIZE:
		if (!is_stream(rs))
			return ENOTSUP;
		/* As many as can be said to the peer. */
		rs->stream.iomaps = iomaps_decoded(iomaps_coded(clamp(value, 0, 0x7fff)));
		return 0;
	default:
		return ENOTSUP;
	}
}

static int set_route(struct rsocket *rs, const void *value, socklen_t length)
{
	if (!is_stream(rs) || !unprepared(rs) || !length || length % sizeof(struct ibv_path_data))
		return EINVAL;
	void *route = malloc(length);
	if (!route)
		return ENOMEM;
	memcpy(route, value, length);
	free(rs->stream.route);
	rs->stream.route = route;
	rs->stream.route_size = length;
	return 0;
}

static int set(struct rsocket *rs, int level, int name, const void *value, socklen_t length)
{
	if (level == SOL_RDMA && name == RDMA_ROUTE)
		return set_route(rs, value, length);
	if (level == SOL_SOCKET && name == SO_LINGER) {
		if (length < sizeof(rs->linger))
			return EINVAL;
		memcpy(&rs->linger, value, sizeof(rs->linger));
		return 0;
	}
	if (length < sizeof(int))
		return EINVAL;
	int number;
	memcpy(&number, value, sizeof(number));
	if (level == SOL_SOCKET)
		return set_socket(rs, name, number);
	if (level == IPPROTO_TCP && is_stream(rs))
		return set_tcp(rs, name, number);
	if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) {
		rs->v6only = number;
		return 0;
	}
	return level == SOL_RDMA ? set_rdma(rs, name, number) : ENOTSUP;
}

PUBLIC int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen)
{
	struct rsocket *rs = table_get(socket);

	if (!rs)
		return fail(EBADF);
	service_lock();
	pthread_mutex_lock(&rs->lock);
	int error = set(rs, level, optname, optval, optlen);
	if (!is_stream(rs) && level != SOL_RDMA && setsockopt(rs->datagram.udp, level, optname, optval, optlen) == 0)
		error = 0;
	pthread_mutex_unlock(&rs->lock);
	service_unlock();
	table_put(rs);
	return answer(error);
}

static int get_socket(struct rsocket *rs, int name, int *value)
{
	switch (name) {
	case SO_REUSEADDR:
		*value = rs->reuse_address;
		return 0;
	case SO_RCVBUF:
		*value = rs->receive_size;
		return 0;
	case SO_SNDBUF:
		*value = rs->send_size;
		return 0;
	case SO_KEEPALIVE:
		*value = rs->keepalive;
		return 0;
	case SO_OOBINLINE:
		*value = rs->oob_inline;
		return 0;
	case SO_ERROR:
		progress_all(rs);
		*value = rs->error;
		rs->error = 0;
		return 0;
	case SO_TYPE:
		*value = rs->type;
		return 0;
	case SO_DOMAIN:
		*value = rs->domain;
		return 0;
	case SO_ACCEPTCONN:
		*value = is_stream(rs) && rs->stream.state == STREAM_LISTENING;
		return 0;
	default:
		return ENOTSUP;
	}
}

/* Bytes of a packet: the path's MTU. */
static int segment(const struct stream *stream)
{
	if (!stream->id || !stream->id->route.num_paths || !stream->id->route.path_rec)
		return 2048;
	return 128 << (stream->id->route.path_rec->mtu & 7);
}

static int get_tcp(struct rsocket *rs, int name, int *value)
{
	switch (name) {
	case TCP_NODELAY:
		*value = rs->nodelay;
		return 0;
	case TCP_KEEPIDLE:
		*value = rs->keepalive_idle;
		return 0;
	case TCP_MAXSEG:
		*value = segment(&rs->stream);
		return 0;
	default:
		return ENOTSUP;
	}
}

/* What programs that measure look at. There are no retransmissions here to report, nor a congestion window. */
static void tell_tcp_info(const struct rsocket *rs, void *value, socklen_t *length)
{
	struct tcp_info info = { .tcpi_state = TCP_CLOSE };

	if (rs->stream.state == STREAM_CONNECTED)
		info.tcpi_state = TCP_ESTABLISHED;
	if (rs->stream.state == STREAM_LISTENING)
		info.tcpi_state = TCP_LISTEN;
	info.tcpi_snd_mss = info.tcpi_rcv_mss = segment(&rs->stream);
	*length = *length < sizeof(info) ? *length : sizeof(info);
	memcpy(value, &info, *length);
}

static int get_rdma(struct rsocket *rs, int name, int *value)
{
	switch (name) {
	case RDMA_SQSIZE:
		*value = rs->sends;
		return 0;
	case RDMA_RQSIZE:
		*value = rs->receives;
		return 0;
	case RDMA_INLINE:
		*value = rs->inlined;
		return 0;
	case RDMA_IOMAPSIZE:
		*value = is_stream(rs) ? rs->stream.iomaps : 0;
		return 0;
	default:
		return ENOTSUP;
	}
}

/* Whole records only. */
static int get_route(const struct rsocket *rs, void *value, socklen_t *length)
{
	if (!is_stream(rs) || !rs->stream.id || !rs->stream.id->route.num_paths)
		return ENOTCONN;
	const struct rdma_route *route = &rs->stream.id->route;
	struct ibv_path_data *records = value;
	int most = *length / sizeof(*records);
	if (!most)
		return EINVAL;
	int count = route->num_paths < most ? route->num_paths : most;
	for (int i = 0; i < count; i++) {
		records[i] =
			(struct ibv_path_data){ .flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL };
		struct ibv_path_record *path = &records[i].path;
		const struct ibv_sa_path_rec *from = &route->path_rec[i];
		path->dgid = from->dgid;
		path->sgid = from->sgid;
		path->dlid = from->dlid;
		path->slid = from->slid;
		path->flowlabel_hoplimit = htobe32(be32toh(from->flow_label) << 8 | from->hop_limit);
		path->tclass = from->traffic_class;
		path->reversible_numpath = from->reversible << 7 | 1;
		path->pkey = from->pkey;
		path->qosclass_sl = htobe16(from->sl);
		path->mtu = from->mtu | 2 << 6;
		path->rate = from->rate | 2 << 6;
		path->packetlifetime = from->packet_life_time | 2 << 6;
	}
	*length = count * sizeof(*records);
	return 0;
}

static int get(struct rsocket *rs, int level, int name, void *value, socklen_t *length)
{
	int number = 0, error = ENOTSUP;

	if (level == SOL_RDMA && name == RDMA_ROUTE)
		return get_route(rs, value, length);
	if (level == SOL_SOCKET && name == SO_LINGER) {
		*length = *length < sizeof(rs->linger) ? *length : sizeof(rs->linger);
		memcpy(value, &rs->linger, *length);
		return 0;
	}
	if (level == IPPROTO_TCP && name == TCP_INFO && is_stream(rs)) {
		tell_tcp_info(rs, value, length);
		return 0;
	}
	if (level == SOL_SOCKET)
		error = get_socket(rs, name, &number);
	else if (level == IPPROTO_TCP && is_stream(rs))
		error = get_tcp(rs, name, &number);
	else if (level == SOL_RDMA)
		error = get_rdma(rs, name, &number);
	else if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY)
		number = rs->v6only, error = 0;
	if (error)
		return error;
	*length = *length < sizeof(number) ? *length : sizeof(number);
	memcpy(value, &number, *length);
	return 0;
}

PUBLIC int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen)
{
	struct rsocket *rs = table_get(socket);

	if (!rs)
		return fail(EBADF);
	pthread_mutex_lock(&rs->lock);
	int error = get(rs, level, optname, optval, optlen);
	if (error == ENOTSUP && !is_stream(rs) && getsockopt(rs->datagram.udp, level, optname, optval, optlen) == 0)
		error = 0;
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return answer(error);
}

PUBLIC int rfcntl(int socket, int cmd, ...)
{
	struct rsocket *rs = table_get(socket);
	va_list arguments;
	int result = 0;

	if (!rs)
		return fail(EBADF);
	va_start(arguments, cmd);
	switch (cmd) {
	case F_GETFL:
		result = O_RDWR | atomic_load(&rs->flags);
		break;
	case F_SETFL:
		atomic_store(&rs->flags, va_arg(arguments, int) & O_NONBLOCK);
		break;
	case F_GETFD:
		result = fcntl(rs->fd, F_GETFD);
		break;
	case F_SETFD:
		result = fcntl(rs->fd, F_SETFD, va_arg(arguments, int));
		break;
	default:
		result = fail(ENOTSUP);
	}
	va_end(arguments);
	table_put(rs);
	return result;
}
