/* SPDX-License-Identifier: MIT */
/*
 * Our own sockets are sockets, whatever else socket(2) is made to mean in the process: a preload library that turns a program's
 * sockets into rsockets (librspreload) would turn ours too, and call us from within ourselves. So the name is bound within each of
 * our libraries. What is done with the descriptor then may go through such a library: it does not know it.
 */
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nic/descriptor.h"

__attribute__((visibility("hidden"))) int socket(int domain, int type, int protocol)
{
	return descriptor_keep((int)syscall(SYS_socket, domain, type, protocol));
}
