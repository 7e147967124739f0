/* SPDX-License-Identifier: MIT */
/* Descriptors that go from process to process, over unix sockets. */
#ifndef UROCE_OBSERVE_PASS_H
#define UROCE_OBSERVE_PASS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/* The address of a socket by its name: a path if that begins with '/', else an abstract one. Its length; 0: too long. */
socklen_t pass_address(struct sockaddr_un *address, const char *name);

/* Whether who is at the other end of a connection was of this user when it began. */
bool pass_is_own_user(int socket);

/* Sends one, beside a byte. 0, or -1 with errno. */
int pass_send(int socket, int fd);

/* The next that has come, without waiting: the receiver's, closed at exec. -1 with errno; EPROTO: a message without one. Of a socket with
 * SO_PASSCRED *sender is who sent it; it may be NULL. */
int pass_receive(int socket, struct ucred *sender);

#endif
