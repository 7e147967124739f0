/* SPDX-License-Identifier: MIT */
#include "observe/pass.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "nic/abstract_name.h"

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

socklen_t pass_address(struct sockaddr_un *address, const char *name)
{
	if (*name != '/')
		return abstract_name(address, "%s", name);
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	if (strlen(name) >= sizeof(address->sun_path))
		return 0;
	strcpy(address->sun_path, name);
	return sizeof(*address);
}

bool pass_is_own_user(int socket)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	return !getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) && peer.uid == geteuid();
}

int pass_send(int socket, int fd)
{
	char byte = 0;
	struct iovec one = { &byte, 1 };
	union control control = { 0 };
	struct msghdr message = {
		.msg_iov = &one, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(sizeof(int))
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(int));
	return sendmsg(socket, &message, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

int pass_receive(int socket, struct ucred *sender)
{
	char byte;
	struct iovec one = { &byte, 1 };
	union control control;
	struct msghdr message = {
		.msg_iov = &one, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)
	};
	int fd = -1;

	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0)
		return -1;
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
		if (header->cmsg_level != SOL_SOCKET)
			continue;
		if (header->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(header), sizeof(fd));
		else if (header->cmsg_type == SCM_CREDENTIALS && sender)
			memcpy(sender, CMSG_DATA(header), sizeof(*sender));
	}
	if (fd < 0)
		errno = EPROTO;
	return fd;
}
