/* SPDX-License-Identifier: MIT */
#include "observe/witness.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "observe/pass.h"

#define PATIENCE 200 /* ms */

void witness_show(int segment)
{
	const char *name = secure_getenv(WITNESS_VARIABLE);
	struct sockaddr_un address;
	socklen_t length = name ? pass_address(&address, name) : 0;
	struct pollfd writable = { .events = POLLOUT };

	if (!length)
		return;
	writable.fd = descriptor_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (writable.fd < 0)
		return;
	if (!connect(writable.fd, (struct sockaddr *)&address, length) && pass_send(writable.fd, segment) && errno == EAGAIN &&
	    poll(&writable, 1, PATIENCE) == 1 && pass_send(writable.fd, segment))
		errno = 0; /* it stays unseen */
	close(writable.fd);
}

bool witness_is_there(void)
{
	const char *name = secure_getenv(WITNESS_VARIABLE);

	return name && *name;
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
	length = pass_address(&address, name);
	fd = descriptor_socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
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
		struct ucred sender = { .uid = (uid_t)-1 };
		int segment = pass_receive(socket, &sender);

		if (segment < 0 && errno == EPROTO)
			continue;
		if (segment < 0 || sender.uid == getuid())
			return segment;
		close(segment);
	}
}
