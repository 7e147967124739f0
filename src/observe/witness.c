/* SPDX-License-Identifier: MIT */
#include "observe/witness.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nic/abstract_name.h"

#define PATIENCE 200 /* ms */

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

void witness_show(int segment)
{
	const char *name = secure_getenv(WITNESS_VARIABLE);
	struct sockaddr_un address;
	socklen_t length = name ? abstract_name(&address, "%s", name) : 0;
	char byte = 0;
	struct iovec one = { &byte, 1 };
	union control control = { 0 };
	struct msghdr message = {
		.msg_iov = &one, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(sizeof(int))
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	struct pollfd writable = { .events = POLLOUT };

	if (!length)
		return;
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &segment, sizeof(int));
	writable.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (writable.fd < 0)
		return;
	if (!connect(writable.fd, (struct sockaddr *)&address, length) && sendmsg(writable.fd, &message, MSG_NOSIGNAL) < 0 &&
	    errno == EAGAIN && poll(&writable, 1, PATIENCE) == 1 && sendmsg(writable.fd, &message, MSG_NOSIGNAL) < 0)
		errno = 0; /* it stays unseen */
	close(writable.fd);
}

int witness_open(char *name)
{
	struct sockaddr_un address;
	uint64_t random[2];
	socklen_t length;
	int fd, one = 1;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -1;
	sprintf(name, "uroce-witness-%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
	length = abstract_name(&address, "%s", name);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&address, length) || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one))) {
		close(fd);
		return -1;
	}
	return fd;
}

int witness_next(int socket)
{
	for (;;) {
		char byte;
		struct iovec one = { &byte, 1 };
		union control control;
		struct msghdr message = {
			.msg_iov = &one, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
		};
		struct ucred sender = { .uid = (uid_t)-1 };
		int segment = -1;

		if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) < 0)
			return -1;
		for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
			if (header->cmsg_level != SOL_SOCKET)
				continue;
			if (header->cmsg_type == SCM_RIGHTS)
				memcpy(&segment, CMSG_DATA(header), sizeof(segment));
			else if (header->cmsg_type == SCM_CREDENTIALS)
				memcpy(&sender, CMSG_DATA(header), sizeof(sender));
		}
		if (segment >= 0 && sender.uid == getuid())
			return segment;
		if (segment >= 0)
			close(segment);
	}
}
