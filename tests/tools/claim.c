/* SPDX-License-Identifier: MIT */
/*
 * Claims a slot as a process that uses the device does, and says so. Then it stops, with a queue of connections that
 * takes very few; or, with a second argument, it serves: whoever connects is let go.
 */
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	int length;

	if (argc < 2)
		return 2;
	length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "uroce/%s", argv[1]);
	if (bind(listener, (struct sockaddr *)&address,
		 offsetof(struct sockaddr_un, sun_path) + 1 + length) ||
	    listen(listener, 0)) {
		perror(argv[1]);
		return 1;
	}
	puts("claimed");
	fflush(stdout);
	if (argc == 2)
		raise(SIGSTOP);
	for (;;)
		close(accept(listener, NULL, NULL));
}
