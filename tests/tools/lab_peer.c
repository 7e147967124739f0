/* SPDX-License-Identifier: MIT */
/*
 * Two ends of a link, for the tests of `uroce lab`. Hosts share the file system, so that they agree by files in the
 * working directory, and nothing but the datagrams is on the link.
 *
 *	lab_peer receive ENOUGH	UDP datagrams until the sender has finished and none has come for a while, which is longer
 *				while there are not enough. A line for each: its number, "bad" if its content is; then
 *				one line of sums, delays in ms
 *	lab_peer send ADDRESS COUNT SIZE [nocheck]
 *				so many datagrams, without a checksum if told
 *	lab_peer listen		accepts one TCP connection on IPv6 or IPv4
 *	lab_peer connect ADDRESS	makes it, at once or not at all
 */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT	"7777"
#define GROUP	"239.7.7.7" /* which the receiver joins */
#define FINISH	"finished"
#define MAXSIZE 9000

struct datagram {
	uint64_t sent_ns;
	uint32_t number;
	unsigned char content[];
};

static uint64_t clock_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static unsigned char content_at(uint32_t number, size_t at)
{
	return (unsigned char)(number * 31 + at);
}

static void create(const char *path)
{
	if (open(path, O_WRONLY | O_CREAT, 0644) < 0)
		err(2, "%s", path);
}

/* To the address, or for any (NULL), on which IPv4 arrives as well. */
static int make_socket(const char *address, int type)
{
	struct addrinfo hints = { .ai_socktype = type,
				  .ai_family = address ? AF_UNSPEC : AF_INET6,
				  .ai_flags = AI_PASSIVE };
	struct addrinfo *info;
	int fd, no = 0, yes = 1;

	if (getaddrinfo(address, PORT, &hints, &info))
		errx(2, "no address %s", address);
	fd = socket(info->ai_family, type, 0);
	if (fd < 0)
		err(2, "socket");
	if (!address) {
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
		if (bind(fd, info->ai_addr, info->ai_addrlen))
			err(2, "bind");
	} else {
		setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &yes, sizeof(yes));
		if (connect(fd, info->ai_addr, info->ai_addrlen))
			err(3, "connect");
	}
	freeaddrinfo(info);
	return fd;
}

static void receive_all(unsigned enough)
{
	static union {
		struct datagram datagram;
		unsigned char bytes[MAXSIZE];
	} got;
	struct pollfd pollfd = { .fd = make_socket(NULL, SOCK_DGRAM), .events = POLLIN };
	unsigned received = 0, bad = 0, late = 0;
	uint64_t least = UINT64_MAX, most = 0;
	uint32_t last = 0;
	char ready[32];
	struct ip_mreqn group = { 0 };
	int room = 400000;

	/* For all of a test's datagrams, should we get no turn meanwhile. */
	setsockopt(pollfd.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	if (inet_pton(AF_INET, GROUP, &group.imr_multiaddr) != 1 ||
	    setsockopt(pollfd.fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group)))
		err(2, "joining " GROUP);
	snprintf(ready, sizeof(ready), "ready%s", getenv("UROCE_LAB_HOST"));
	create(ready);
	for (;;) {
		bool finished = !access(FINISH, F_OK), wrong = false;
		ssize_t size;
		int patience = received < enough ? 2000 : 100;
		uint64_t took;

		if (poll(&pollfd, 1, finished ? patience : 10) <= 0) {
			if (finished)
				break;
			continue;
		}
		size = recv(pollfd.fd, &got, sizeof(got), 0);
		if (size < (ssize_t)sizeof(got.datagram))
			continue;
		for (size_t i = 0; i < (size_t)size - sizeof(got.datagram); i++)
			wrong |= got.datagram.content[i] != content_at(got.datagram.number, i);
		printf("%" PRIu32 "%s\n", got.datagram.number, wrong ? " bad" : "");
		received++;
		bad += wrong;
		if (wrong)
			continue;
		late += got.datagram.number < last;
		last = got.datagram.number;
		took = clock_ns() - got.datagram.sent_ns;
		least = took < least ? took : least;
		most = took > most ? took : most;
	}
	printf("received=%u bad=%u late=%u least=%" PRIu64 " most=%" PRIu64 "\n", received, bad,
	       late, received > bad ? least / 1000000 : 0, most / 1000000);
}

static void send_all(const char *address, uint32_t count, size_t size, bool check)
{
	static union {
		struct datagram datagram;
		unsigned char bytes[MAXSIZE];
	} data;
	int fd = make_socket(address, SOCK_DGRAM), yes = 1;

	if (!check && setsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &yes, sizeof(yes)))
		err(2, "SO_NO_CHECK");
	for (uint32_t number = 1; number <= count; number++) {
		data.datagram.number = number;
		for (size_t i = 0; i < size - sizeof(data.datagram); i++)
			data.datagram.content[i] = content_at(number, i);
		data.datagram.sent_ns = clock_ns();
		if (send(fd, &data, size, 0) != (ssize_t)size)
			err(3, "send");
	}
	create(FINISH);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "receive")) {
		receive_all((unsigned)atoi(argv[2]));
	} else if (argc >= 5 && !strcmp(argv[1], "send")) {
		send_all(argv[2], (uint32_t)atoi(argv[3]), (size_t)atoi(argv[4]), argc == 5);
	} else if (argc == 2 && !strcmp(argv[1], "listen")) {
		int fd = make_socket(NULL, SOCK_STREAM);

		if (listen(fd, 1) || accept(fd, NULL, NULL) < 0)
			err(3, "accept");
	} else if (argc == 3 && !strcmp(argv[1], "connect")) {
		make_socket(argv[2], SOCK_STREAM);
	} else {
		return 2;
	}
	return 0;
}
