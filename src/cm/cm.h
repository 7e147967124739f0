/* SPDX-License-Identifier: MIT */
/*
 * The connection manager: what librdmacm asks, and what Linux has in its kernel. An id is bound to an address, finds the way to
 * another, and exchanges the specification's CM messages (volume 1, chapter 12) with another id on this host or elsewhere, with
 * the header of the RDMA IP CM service (annex A11) in their private data. It knows no QPs: who has one asks for its attributes.
 *
 * It is part of libibverbs.so.1, where the process's NIC, its helper thread and its UDP ports are; librdmacm.so.1 (src/rdmacm)
 * reaches it through the symbols of version UROCE_PRIVATE.
 *
 * All functions may be called from any thread. They return 0 or a positive errno, unless they say otherwise, and never wait for
 * the other end: what it answers comes as an event. In a forked child what was inherited answers ENODEV.
 */
#ifndef UROCE_CM_CM_H
#define UROCE_CM_CM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <rdma/rdma_cma.h>

#define CM_PUBLIC __attribute__((visibility("default")))

/* Events for a reader: several ids have one. While there is a channel the process has its NIC. */
struct cm_channel;
/* An id. Valid until cm_destroy_id(). */
struct cm_id;

/* Bytes of private data that the consumer may give, with the IP CM header taken off (tables 106 to 119 of the specification). */
enum {
	CM_REQ_PRIVATE = 56,
	CM_REP_PRIVATE = 196,
	CM_REJ_PRIVATE = 148,
	CM_SIDR_REQ_PRIVATE = 180,
	CM_SIDR_REP_PRIVATE = 136,
	CM_PRIVATE_MOST = 224,
};

struct cm_event {
	struct cm_id *id;	/* that it is about; CONNECT_REQUEST: a new one, which the reader owns */
	struct cm_id *listener; /* CONNECT_REQUEST: who listened; else NULL */
	void *context;		/* the id's; CONNECT_REQUEST: the listener's; of multicast: what cm_join() was given */
	enum rdma_cm_event_type type;
	int status;	/* negative errno; REJECTED: the reason of the REJ, positive; 0: success */
	bool is_ud;	/* which of the two is set; private_data points into `data` or is NULL */
	union {
		struct rdma_conn_param conn;
		struct rdma_ud_param ud;
	} param;
	struct ibv_ece ece; /* conn: the other end's */
	uint8_t data[CM_PRIVATE_MOST];
};

/* Where an id is and whom it talks to, as far as that is known; what is not is zero. */
struct cm_addresses {
	struct sockaddr_storage src, dst; /* ports included */
	union ibv_gid sgid, dgid;	  /* zero: not known, or the wildcard */
	enum ibv_mtu mtu;		  /* of the path */
	uint8_t traffic_class, hop_limit;
	uint8_t packet_lifetime; /* 4.096 us * 2^n */
};

/* fd: an eventfd in semaphore mode with a token for each event; the reader polls it and may make it O_NONBLOCK. It belongs to
 * the channel. */
CM_PUBLIC int cm_open_channel(struct cm_channel **channel, int *fd);
/* All its ids are destroyed. */
CM_PUBLIC void cm_close_channel(struct cm_channel *channel);
/* Takes the next event; waits unless the fd is O_NONBLOCK: EAGAIN, EINTR. */
CM_PUBLIC int cm_get_event(struct cm_channel *channel, struct cm_event *event);

/* ps: RDMA_PS_TCP, UDP, IPOIB or IB. type: IBV_QPT_RC, UC, UD, XRC_SEND, XRC_RECV. */
CM_PUBLIC int cm_create_id(struct cm_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type,
			   struct cm_id **id);
/*
 * Ends whatever the id does, as the kernel does it: a request that was not answered is rejected, a connection gets a DREQ, which
 * is sent again in the background until it is answered. Events that were not read are dropped. *read: the events about it that
 * cm_get_event() gave. No event about it is given afterwards.
 */
CM_PUBLIC void cm_destroy_id(struct cm_id *id, unsigned *read);
/* What later events carry. There are none about the id of a CONNECT_REQUEST before it is called. */
CM_PUBLIC void cm_set_context(struct cm_id *id, void *context);
/* Its events, those not read included, go to another channel. *read as above. */
CM_PUBLIC int cm_migrate_id(struct cm_id *id, struct cm_channel *to, unsigned *read);

/* Port 0: one is chosen. EADDRINUSE, EADDRNOTAVAIL, EACCES. */
CM_PUBLIC int cm_bind(struct cm_id *id, const struct sockaddr *address);
/* ADDR_RESOLVED or ADDR_ERROR follows. src may be NULL. */
CM_PUBLIC int cm_resolve_addr(struct cm_id *id, const struct sockaddr *src, const struct sockaddr *dst, int timeout_ms);
/* ROUTE_RESOLVED or ROUTE_ERROR follows. */
CM_PUBLIC int cm_resolve_route(struct cm_id *id, int timeout_ms);
CM_PUBLIC int cm_query(struct cm_id *id, struct cm_addresses *addresses);

CM_PUBLIC int cm_listen(struct cm_id *id, int backlog);
/* param->qp_num and srq are set. ece: NULL, or what is told to the other end. */
CM_PUBLIC int cm_connect(struct cm_id *id, const struct rdma_conn_param *param, const struct ibv_ece *ece);
/* Of a CONNECT_REQUEST: sends REP (SIDR_REP, with qkey). Of a CONNECT_RESPONSE, param NULL: sends RTU. Where it fails and there is
 * somebody who asked, he is rejected, as the kernel does it: also by a second call before he has confirmed. */
CM_PUBLIC int cm_accept(struct cm_id *id, const struct rdma_conn_param *param, uint32_t qkey, const struct ibv_ece *ece);
/* reason: IB's; 28 is "consumer reject", for which rdma_reject() stands. */
CM_PUBLIC int cm_reject(struct cm_id *id, const void *private_data, uint8_t length, uint8_t reason);
CM_PUBLIC int cm_disconnect(struct cm_id *id);
/* IBV_EVENT_COMM_EST: a packet came before the RTU: ESTABLISHED follows. */
CM_PUBLIC int cm_notify(struct cm_id *id, enum ibv_event_type event);

/* For a QP's way to `state` (INIT, RTR, RTS): the attributes that the exchange agreed on, and their mask. The caller sets
 * ah_attr.grh.sgid_index and, for RTR, nothing else. */
CM_PUBLIC int cm_init_qp_attr(struct cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *attr, int *mask);

/* RDMA_OPTION_ID and RDMA_OPTION_IB as rdma_set_option(3) has them. */
CM_PUBLIC int cm_set_option(struct cm_id *id, int level, int name, const void *value, size_t length);

/* MULTICAST_JOIN or MULTICAST_ERROR follows, with `context`. send_only: RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER. */
CM_PUBLIC int cm_join(struct cm_id *id, const struct sockaddr *group, bool send_only, void *context);
CM_PUBLIC int cm_leave(struct cm_id *id, const struct sockaddr *group, unsigned *read);

#endif
