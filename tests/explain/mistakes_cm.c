/* SPDX-License-Identifier: MIT */
/* Mistakes in connecting by address, within one process, over 127.0.0.1. See mistakes.c. */
#include "mistakes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>

static struct rdma_event_channel *channel;

static struct sockaddr_in here(uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				     .sin_port = port };
}

static struct rdma_cm_id *make_id(void)
{
	struct rdma_cm_id *id;

	if (!channel)
		channel = rdma_create_event_channel();
	must(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	return id;
}

static struct rdma_cm_event *await(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	if (event->event == type)
		return event;
	printf("FAILED: %s came, and %s was due\n", rdma_event_str(event->event),
	       rdma_event_str(type));
	must(false, "the event");
	return NULL;
}

/* Of an id that has a port. */
static struct rdma_cm_id *bound(void)
{
	struct sockaddr_in any = here(0);
	struct rdma_cm_id *id = make_id();

	must(!rdma_bind_addr(id, (struct sockaddr *)&any), "rdma_bind_addr");
	printf("port=%u\n", ntohs(rdma_get_src_port(id)));
	return id;
}

/* An id that has asked for a connection to the port of another. */
static void ask(const struct rdma_cm_id *there)
{
	struct sockaddr_in to = here(rdma_get_src_port((struct rdma_cm_id *)there));
	static uint32_t number = 0x4001;
	struct rdma_conn_param param = { .retry_count = 1,
					 .rnr_retry_count = 1,
					 .qp_num = number++ };
	struct rdma_cm_id *id = make_id();

	must(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), "rdma_resolve_addr");
	rdma_ack_cm_event(await(RDMA_CM_EVENT_ADDR_RESOLVED));
	must(!rdma_resolve_route(id, 1000), "rdma_resolve_route");
	rdma_ack_cm_event(await(RDMA_CM_EVENT_ROUTE_RESOLVED));
	must(!rdma_connect(id, &param), "rdma_connect");
}

void cm_nobody_listens(void)
{
	ask(bound());
	rdma_ack_cm_event(await(RDMA_CM_EVENT_REJECTED));
}

void cm_rejected(void)
{
	struct rdma_cm_id *server = bound();

	must(!rdma_listen(server, 1), "rdma_listen");
	ask(server);

	struct rdma_cm_event *request = await(RDMA_CM_EVENT_CONNECT_REQUEST);

	must(!rdma_reject(request->id, NULL, 0), "rdma_reject");
	rdma_ack_cm_event(request);
	rdma_ack_cm_event(await(RDMA_CM_EVENT_REJECTED));
}

void cm_wrong_order(void)
{
	struct rdma_conn_param param = { .retry_count = 1 };

	must(rdma_connect(bound(), &param) == -1 && errno == EINVAL, "refused");
}

void cm_port_used(void)
{
	struct rdma_cm_id *first = bound(), *second = make_id();
	struct sockaddr_in same = here(rdma_get_src_port(first));

	must(rdma_bind_addr(second, (struct sockaddr *)&same) == -1 && errno == EADDRINUSE,
	     "refused");
}

/* 192.0.2.0/24 is nobody's (RFC 5737). */
void cm_no_address(void)
{
	struct sockaddr_in nobodys = here(0);

	nobodys.sin_addr.s_addr = htonl(0xc0000201);
	must(rdma_bind_addr(make_id(), (struct sockaddr *)&nobodys) == -1 && errno == EADDRNOTAVAIL,
	     "refused");
}

void cm_address_of_infiniband(void)
{
	struct sockaddr_ib address = { .sib_family = AF_IB, .sib_pkey = 0xffff };

	must(rdma_resolve_addr(make_id(), NULL, (struct sockaddr *)&address, 1000) == -1 && errno == ENODEV, "refused");
}

void cm_backlog(void)
{
	struct rdma_event_channel *of_server = rdma_create_event_channel();
	struct rdma_cm_id *server;
	struct sockaddr_in any = here(0);

	must(of_server && !rdma_create_id(of_server, &server, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(!rdma_bind_addr(server, (struct sockaddr *)&any) && !rdma_listen(server, 2),
	     "rdma_listen");
	for (int i = 0; i < 3; i++)
		ask(server);
	/* Who hears of this, its requests before have been heard of. */
	ask(bound());
	rdma_ack_cm_event(await(RDMA_CM_EVENT_REJECTED));
}
