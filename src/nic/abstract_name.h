/* SPDX-License-Identifier: MIT */
/* Abstract names of unix sockets (unix(7)): unique in a network namespace, and freed by the kernel at their owner's death. */
#ifndef UROCE_NIC_ABSTRACT_NAME_H
#define UROCE_NIC_ABSTRACT_NAME_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* The address's length; 0 when the name is too long. */
static inline __attribute__((format(printf, 2, 3))) socklen_t abstract_name(struct sockaddr_un *address, const char *format, ...)
{
	const size_t room = sizeof(address->sun_path) - 1;
	va_list arguments;
	int length;

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	/* It starts with a zero byte, and needs none at its end. */
	va_start(arguments, format);
	length = vsnprintf(address->sun_path + 1, room, format, arguments);
	va_end(arguments);
	return length < 0 || (size_t)length >= room ? 0 : (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

#endif
