/* SPDX-License-Identifier: MIT */
/* What tests of rsockets share: two connected rsockets, and bytes that say where they belong. Whatever goes wrong fails the test. */
#ifndef UROCE_TESTS_RSOCKET_PAIR_H
#define UROCE_TESTS_RSOCKET_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rsocket.h>

#define PATIENCE_MS 20000

/* 0, or errno: of calls that answer -1. */
#define failure(call) ((call) < 0 ? errno : 0)

struct pair {
	int listener, client, server;
	struct sockaddr_in address; /* the listener's */
};

/* A listener at a port of its own; `prepare`, if not NULL, is called before it listens, and for the client before it connects. */
void pair_listen(struct pair *pair, int backlog, void (*prepare)(int socket));
void pair_open(struct pair *pair, void (*prepare)(int socket));
/* What is open (not -1) is closed. */
void pair_close(struct pair *pair);
void set_nonblocking(int socket);
/* The event comes, or another. */
void await(int socket, short events, short expected);

/* `length` bytes that are at `position` of a stream. */
void fill(uint8_t *bytes, size_t length, uint64_t position);
bool filled(const uint8_t *bytes, size_t length, uint64_t position);
void send_all(int socket, uint64_t from, uint64_t to, size_t piece);
void receive_all(int socket, uint64_t from, uint64_t to, size_t piece);

#endif
