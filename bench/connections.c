/* SPDX-License-Identifier: MIT */
/*
 * usage: connections COUNT
 *
 * COUNT connections of TCP over 127.0.0.1 to another process, which accepts them, made and closed as cmtime does with rdma_cm's:
 * each step for all before the next. Prints how long one took, in microseconds.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Accepts, and closes what the other end has closed. */
static void serve(int listener, int *fds, int count)
{
	char byte;

	must(prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl");
	for (int i = 0; i < count; i++) {
		fds[i] = accept(listener, NULL, NULL);
		must(fds[i], "accept");
		must((int)write(fds[i], "", 1), "write");
	}
	for (int i = 0; i < count; i++) {
		must((int)read(fds[i], &byte, 1), "read");
		close(fds[i]);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), count = argc > 1 ? atoi(argv[1]) : 0;
	socklen_t length = sizeof(address);
	struct rlimit limit;
	double start;
	char byte;
	int *fds;

	if (count <= 0) {
		fprintf(stderr, "usage: connections COUNT\n");
		return 2;
	}
	must(getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
	limit.rlim_cur = limit.rlim_max;
	must(setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
	fds = calloc((size_t)count, sizeof(int));
	must(fds ? 0 : -1, "calloc");
	must(listener, "socket");
	must(bind(listener, (struct sockaddr *)&address, sizeof(address)), "bind");
	must(listen(listener, count), "listen");
	must(getsockname(listener, (struct sockaddr *)&address, &length), "getsockname");
	if (!fork())
		serve(listener, fds, count);

	start = now();
	for (int i = 0; i < count; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		must(fds[i], "socket");
	}
	for (int i = 0; i < count; i++)
		must(connect(fds[i], (struct sockaddr *)&address, sizeof(address)), "connect");
	/* The other end has accepted it. */
	for (int i = 0; i < count; i++)
		must((int)read(fds[i], &byte, 1), "read");
	for (int i = 0; i < count; i++)
		must(shutdown(fds[i], SHUT_WR), "shutdown");
	for (int i = 0; i < count; i++) {
		must((int)read(fds[i], &byte, 1), "read");
		close(fds[i]);
	}
	printf("%.2f\n", (now() - start) / count);
	return 0;
}
