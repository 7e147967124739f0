/* SPDX-License-Identifier: MIT */
/* Meeting the process of another host, over TCP: for each row a connection, which takes the place of the socket pair. */
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "verify.h"

/* ms: how long the other one may take to come. */
#define MEET_TIMEOUT 30000
#define MEET_STEP    20

static void give_up(const char *what)
{
	perror(what);
	exit(2);
}

int meet_listen(const char *port)
{
	const struct addrinfo hints = { .ai_family = AF_INET6, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	struct addrinfo *at;
	int fd, on = 1, off = 0;

	if (getaddrinfo(NULL, port, &hints, &at))
		give_up("verify: no such port");
	fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) || bind(fd, at->ai_addr, at->ai_addrlen) ||
	    listen(fd, 1))
		give_up("verify: listen");
	freeaddrinfo(at);
	return fd;
}

static int ready(int fd)
{
	int on = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		give_up("verify: TCP_NODELAY");
	return fd;
}

int meet_accept(int listener)
{
	struct timeval limit = { .tv_sec = MEET_TIMEOUT / 1000 };
	int fd;

	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		give_up("verify: the other host does not come");
	return ready(fd);
}

int meet_connect(const char *host, const char *port)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	const struct timespec step = { .tv_nsec = MEET_STEP * 1000000l };
	struct addrinfo *at;

	if (getaddrinfo(host, port, &hints, &at))
		give_up("verify: no such host");
	for (int waited = 0; waited < MEET_TIMEOUT; waited += MEET_STEP) {
		int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0);

		if (fd >= 0 && !connect(fd, at->ai_addr, at->ai_addrlen)) {
			freeaddrinfo(at);
			return ready(fd);
		}
		close(fd);
		nanosleep(&step, NULL);
	}
	give_up("verify: the other host does not listen");
	return -1;
}
