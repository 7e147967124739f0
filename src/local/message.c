/* SPDX-License-Identifier: MIT */
/* Messages between helpers. See message.h. */
#include "local/message.h"
#include "nic/descriptor.h"
#include "nic/keep_errno.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nic/abstract_name.h"

#define TRACE_PATIENCE 5000 /* ms */

int message_send(int fd, const struct message *message, const int *fds, int count)
{
	KEEP_ERRNO;
	union {
		char bytes[CMSG_SPACE(MESSAGE_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)message, .iov_len = sizeof(*message) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (count) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));

		struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, (size_t)count * sizeof(int));
	}
	if (!descriptor_is_ours(fd))
		return EBADF;
	for (int i = 0; i < count; i++) {
		if (!descriptor_is_ours(fds[i]))
			return EBADF;
	}
	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*message) ? 0 :
	       errno									   ? errno :
											     EIO;
}

int message_receive(int fd, struct message *message, int *fds)
{
	union {
		char bytes[CMSG_SPACE(MESSAGE_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = message, .iov_len = sizeof(*message) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	ssize_t n = -1;
	int got = 0;

	for (int i = 0; i < MESSAGE_FDS; i++)
		fds[i] = -1;
	errno = EBADF;
	if (descriptor_is_ours(fd))
		n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? EAGAIN : ECONNRESET;
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg); cmsg; cmsg = CMSG_NXTHDR(&msg, cmsg)) {
		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= cmsg->cmsg_len; i++) {
			int received;

			memcpy(&received, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
			if (got < MESSAGE_FDS)
				fds[got++] = descriptor_keep(received);
			else
				close(received);
		}
	}
	if (!n)
		return ECONNRESET;
	/* magic and version come first in every version. */
	if (n < (ssize_t)offsetof(struct message, type) || message->magic != NIC_MAGIC)
		return EPROTO;
	if (message->version == NIC_LAYOUT_VERSION && n != (ssize_t)sizeof(*message))
		return EPROTO;
	return 0;
}

/* The answer to MESSAGE_TRACE: 0, or errno. */
static int take_ring(int fd, int *ring)
{
	struct pollfd readable = { .fd = fd, .events = POLLIN };
	struct message answer;
	int fds[MESSAGE_FDS], error;

	if (poll(&readable, 1, TRACE_PATIENCE) != 1)
		return EAGAIN;
	error = message_receive(fd, &answer, fds);
	/* Another version knows no such message, and closes. */
	if (error)
		return error == EAGAIN ? EAGAIN : EPROTO;
	*ring = fds[0];
	fds[0] = -1;
	message_close_fds(fds);
	if (answer.type == MESSAGE_TRACED && !answer.status && *ring >= 0)
		return 0;
	if (*ring >= 0)
		close(*ring);
	return answer.type == MESSAGE_TRACED && answer.status ? (int)answer.status : EPROTO;
}

int message_ask_trace(uint32_t slot, uint32_t snap, int *ring)
{
	struct message ask = { .magic = NIC_MAGIC, .version = NIC_LAYOUT_VERSION, .type = MESSAGE_TRACE, .length = snap };
	int fd = descriptor_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;
	struct sockaddr_un address;
	socklen_t length = abstract_name(&address, "uroce/%u", slot);

	if (fd < 0)
		return -1;
	error = connect(fd, (struct sockaddr *)&address, length) ? errno : message_send(fd, &ask, NULL, 0);
	if (!error)
		error = take_ring(fd, ring);
	if (!error)
		return fd;
	close(fd);
	errno = error;
	return -1;
}

void message_close_fds(const int *fds)
{
	for (int i = 0; i < MESSAGE_FDS; i++) {
		if (fds[i] >= 0)
			descriptor_close(fds[i]);
	}
}
