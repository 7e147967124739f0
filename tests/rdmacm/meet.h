/* SPDX-License-Identifier: MIT */
/*
 * What tests of connections share: a listener and a client in this process, on an address of this host, each with an event channel.
 * Whatever goes wrong fails the test.
 */
#ifndef UROCE_TESTS_RDMACM_MEET_H
#define UROCE_TESTS_RDMACM_MEET_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define RESOLVE_MS 2000

/* 0, or errno: of functions that answer -1. */
#define failure(call) ((call) ? errno : 0)

struct meeting {
	struct rdma_event_channel *server, *client;
	struct rdma_cm_id *listener, *to_client, *to_server;
};

/* Fails if the next event on the channel is another, or none comes within 20 s. */
struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type);
/* Whichever it is. */
struct rdma_cm_event *next(struct rdma_event_channel *channel);
/* Of expect(), acknowledged at once. */
void expect_only(struct rdma_event_channel *channel, enum rdma_cm_event_type type);
/* Nothing can be read now. */
void expect_none(struct rdma_event_channel *channel);

/* A listener on the loopback address, with a port of its own. */
void meet_listen(struct meeting *meeting, enum rdma_port_space ps);
/* A client's id that has found the way to the port. */
struct rdma_cm_id *meet_resolve(struct rdma_event_channel *channel, enum rdma_port_space ps, __be16 port);
/* Listener, client and request: to_client has its id. */
void meet_request(struct meeting *meeting, enum rdma_port_space ps, const void *data, uint8_t length);
/* And a connection with QPs (equip()) at both ends. */
void meet(struct meeting *meeting);
/* Destroys what there is. */
void part(struct meeting *meeting);

/* A small QP with queues of librdmacm's. */
void equip(struct rdma_cm_id *id);
void set_loopback(struct sockaddr_in *address, __be16 port);

#endif
