/* SPDX-License-Identifier: MIT */
/* The calls of <rdma/rsocket.h> but those of poll.c, options.c and iomap.c: each as the socket call whose name it has. */
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "rsocket.h"
#include "service.h"

void address_copy(struct sockaddr *to, socklen_t *length, const struct sockaddr *from)
{
	socklen_t whole = address_length(from);

	memcpy(to, from, *length < whole ? *length : whole);
	*length = whole;
}

bool address_equal(const struct sockaddr *a, const struct sockaddr *b)
{
	const union address *one = (const union address *)a, *other = (const union address *)b;

	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return one->v4.sin_port == other->v4.sin_port && one->v4.sin_addr.s_addr == other->v4.sin_addr.s_addr;
	return one->v6.sin6_port == other->v6.sin6_port && one->v6.sin6_scope_id == other->v6.sin6_scope_id &&
	       !memcmp(&one->v6.sin6_addr, &other->v6.sin6_addr, sizeof(one->v6.sin6_addr));
}

int address_check(const struct rsocket *rs, const struct sockaddr *address, socklen_t length)
{
	if (length < sizeof(address->sa_family))
		return EINVAL;
	if (address->sa_family != AF_INET && address->sa_family != AF_INET6)
		return EAFNOSUPPORT;
	if (length < address_length(address))
		return EINVAL;
	return address->sa_family == rs->domain ? 0 : EAFNOSUPPORT;
}

static int check_kind(int domain, int type, int protocol)
{
	if (domain != AF_INET && domain != AF_INET6)
		return EAFNOSUPPORT;
	if (type != SOCK_STREAM && type != SOCK_DGRAM)
		return ENOTSUP;
	if (protocol && protocol != (type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP))
		return ENOTSUP;
	return 0;
}

PUBLIC int rsocket(int domain, int type, int protocol)
{
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct rsocket *rs;
	int error = check_kind(domain, kind, protocol);

	if (!error)
		error = table_new(domain, kind, &rs);
	if (error)
		return fail(error);
	atomic_store(&rs->flags, type & SOCK_NONBLOCK ? O_NONBLOCK : 0);
	error = is_stream(rs) ? connect_open(rs) : datagram_open(rs);
	if (!error)
		error = table_add(rs);
	if (error) {
		table_put(rs);
		return fail(error);
	}
	return rs->fd;
}

PUBLIC int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	struct rsocket *rs = table_get(socket);

	if (!rs)
		return fail(EBADF);
	int error = address_check(rs, addr, addrlen);
	pthread_mutex_lock(&rs->lock);
	if (!error && is_stream(rs))
		error = connect_bind(rs, addr);
	else if (!error && bind(rs->datagram.udp, addr, addrlen))
		error = errno;
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return answer(error);
}

PUBLIC int rlisten(int socket, int backlog)
{
	struct rsocket *rs = table_get(socket);

	if (!rs)
		return fail(EBADF);
	service_lock();
	pthread_mutex_lock(&rs->lock);
	int error = is_stream(rs) ? listen_begin(rs, backlog) : EOPNOTSUPP;
	pthread_mutex_unlock(&rs->lock);
	service_unlock();
	table_put(rs);
	return answer(error);
}

static int peer_name(struct rsocket *rs, struct sockaddr *address, socklen_t *length)
{
	if (!is_stream(rs))
		return getpeername(rs->datagram.udp, address, length) ? errno : 0;
	if (rs->stream.state != STREAM_CONNECTED && rs->stream.state != STREAM_CLOSED)
		return ENOTCONN;
	address_copy(address, length, rdma_get_peer_addr(rs->stream.id));
	return 0;
}

static int own_name(struct rsocket *rs, struct sockaddr *address, socklen_t *length)
{
	const union address none = { .any.sa_family = rs->domain };

	if (!is_stream(rs))
		return getsockname(rs->datagram.udp, address, length) ? errno : 0;
	const struct sockaddr *own = rs->stream.id ? rdma_get_local_addr(rs->stream.id) : &none.any;
	address_copy(address, length, own->sa_family ? own : &none.any);
	return 0;
}

static int name(int socket, int (*get)(struct rsocket *rs, struct sockaddr *address, socklen_t *length), struct sockaddr *address,
		socklen_t *length)
{
	struct rsocket *rs = table_get(socket);

	if (!rs)
		return fail(EBADF);
	pthread_mutex_lock(&rs->lock);
	int error = get(rs, address, length);
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return answer(error);
}

PUBLIC int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return name(socket, peer_name, addr, addrlen);
}

PUBLIC int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	return name(socket, own_name, addr, addrlen);
}

PUBLIC int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen)
{
	struct rsocket *listener = table_get(socket), *rs;

	if (!listener)
		return fail(EBADF);
	int error = is_stream(listener) ? listen_accept(listener, &rs) : EOPNOTSUPP;
	table_put(listener);
	if (error)
		return fail(error);
	/*
	 * The lowest descriptor that is free now, as accept(2) has it, not one of when the connection came. librspreload's select()
	 * confuses descriptors unless that is so.
	 */
	int fd = fcntl(rs->fd, F_DUPFD_CLOEXEC, 0);
	if (fd >= 0) {
		descriptor_close(rs->fd);
		rs->fd = fd;
	}
	if (addr && addrlen)
		peer_name(rs, addr, addrlen);
	error = fd < 0 ? errno : table_add(rs);
	if (error) {
		table_put(rs);
		return fail(error);
	}
	return fd;
}

static int connect_stream(struct rsocket *rs, const struct sockaddr *address)
{
	struct stream *stream = &rs->stream;
	int error = 0;

	progress_all(rs);
	if (stream->state == STREAM_LISTENING)
		return EOPNOTSUPP;
	if (stream->state == STREAM_CONNECTED || stream->state == STREAM_CLOSED)
		return EISCONN;
	if (!connect_done(rs))
		return EALREADY;
	/* Of a connection that was begun earlier. */
	if (stream->state == STREAM_FAILED && rs->error) {
		error = rs->error;
		rs->error = 0;
		return error;
	}
	error = connect_begin(rs, address);
	if (error)
		return error;
	error = wait_until(rs, connect_done, atomic_load(&rs->flags) & O_NONBLOCK ? 0 : -1);
	if (error)
		return error == EAGAIN ? EINPROGRESS : error;
	if (stream->state == STREAM_FAILED) {
		error = rs->error;
		rs->error = 0;
	}
	return error;
}

PUBLIC int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen)
{
	struct rsocket *rs = table_get(socket);
	int error;

	if (!rs)
		return fail(EBADF);
	pthread_mutex_lock(&rs->lock);
	if (is_stream(rs)) {
		error = address_check(rs, addr, addrlen);
		if (!error)
			error = connect_stream(rs, addr);
	} else {
		error = datagram_connect(rs, addr, addrlen);
	}
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return answer(error);
}

PUBLIC int rshutdown(int socket, int how)
{
	struct rsocket *rs = table_get(socket);

	if (!rs)
		return fail(EBADF);
	pthread_mutex_lock(&rs->lock);
	int error = is_stream(rs) ? connect_shutdown(rs, how) : datagram_shutdown(rs, how);
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return answer(error);
}

PUBLIC int rclose(int socket)
{
	struct rsocket *rs = table_remove(socket);

	if (!rs)
		return answer(table_close_inherited(socket));
	pthread_mutex_lock(&rs->lock);
	if (is_stream(rs))
		connect_finish(rs);
	rs->closed = true;
	wait_wake(rs);
	pthread_mutex_unlock(&rs->lock);
	if (is_stream(rs))
		listen_end(rs);
	table_put(rs);
	return 0;
}

/* A program that ends has its connections closed, as by rclose(), so that what it sent arrives. */
static void finish(struct rsocket *rs)
{
	struct timespec end;

	if (!is_stream(rs))
		return;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec++;
	/* Some other thread may be inside. */
	if (pthread_mutex_timedlock(&rs->lock, &end))
		return;
	connect_finish(rs);
	pthread_mutex_unlock(&rs->lock);
}

__attribute__((destructor)) static void program_ends(void)
{
	table_each(finish);
}

/* Data. */

static ssize_t receive(int socket, const struct iovec *iov, int count, int flags, struct sockaddr *source, socklen_t *length,
		       int *out_flags)
{
	struct rsocket *rs = table_get(socket);
	int before = errno;
	ssize_t got;

	if (!rs)
		return fail(EBADF);
	if (is_stream(rs)) {
		got = stream_receive(rs, iov, count, flags);
		if (length)
			*length = 0;
	} else {
		pthread_mutex_lock(&rs->lock);
		got = datagram_receive(rs, iov, count, flags, source, length, out_flags);
		pthread_mutex_unlock(&rs->lock);
	}
	table_put(rs);
	if (got >= 0)
		errno = before;
	return got;
}

static ssize_t transmit(int socket, const struct iovec *iov, int count, int flags, const struct sockaddr *address, socklen_t length)
{
	struct rsocket *rs = table_get(socket);
	int before = errno;
	ssize_t sent;

	if (!rs)
		return fail(EBADF);
	if (is_stream(rs)) {
		sent = stream_send(rs, iov, count, flags);
	} else {
		pthread_mutex_lock(&rs->lock);
		sent = datagram_send(rs, iov, count, flags, address, length);
		pthread_mutex_unlock(&rs->lock);
	}
	table_put(rs);
	if (sent >= 0)
		errno = before;
	return sent;
}

PUBLIC ssize_t rrecv(int socket, void *buf, size_t len, int flags)
{
	return receive(socket, &(struct iovec){ buf, len }, 1, flags, NULL, NULL, NULL);
}

PUBLIC ssize_t rrecvfrom(int socket, void *buf, size_t len, int flags, struct sockaddr *src_addr, socklen_t *addrlen)
{
	return receive(socket, &(struct iovec){ buf, len }, 1, flags, src_addr, src_addr ? addrlen : NULL, NULL);
}

PUBLIC ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags)
{
	socklen_t length = msg->msg_namelen;

	msg->msg_flags = 0;
	ssize_t got = receive(socket, msg->msg_iov, msg->msg_iovlen, flags, msg->msg_name, msg->msg_name ? &length : NULL,
			      &msg->msg_flags);
	if (got >= 0) {
		msg->msg_namelen = msg->msg_name ? length : 0;
		msg->msg_controllen = 0;
	}
	return got;
}

PUBLIC ssize_t rread(int socket, void *buf, size_t count)
{
	return rrecv(socket, buf, count, 0);
}

PUBLIC ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt)
{
	return receive(socket, iov, iovcnt, 0, NULL, NULL, NULL);
}

PUBLIC ssize_t rsend(int socket, const void *buf, size_t len, int flags)
{
	return transmit(socket, &(struct iovec){ (void *)buf, len }, 1, flags, NULL, 0);
}

PUBLIC ssize_t rsendto(int socket, const void *buf, size_t len, int flags, const struct sockaddr *dest_addr, socklen_t addrlen)
{
	return transmit(socket, &(struct iovec){ (void *)buf, len }, 1, flags, dest_addr, addrlen);
}

PUBLIC ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags)
{
	if (msg->msg_control && msg->msg_controllen)
		return fail(EOPNOTSUPP);
	return transmit(socket, msg->msg_iov, msg->msg_iovlen, flags, msg->msg_name, msg->msg_namelen);
}

PUBLIC ssize_t rwrite(int socket, const void *buf, size_t count)
{
	return rsend(socket, buf, count, 0);
}

PUBLIC ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt)
{
	return transmit(socket, iov, iovcnt, 0, NULL, 0);
}
