/* SPDX-License-Identifier: MIT */
/*
 * librdmacm: what it does in user space, on the connection manager (cm/cm.h) and the verbs. This is what its files share.
 *
 * Rules of every file here:
 * - A handle is one allocation: the public structure first, what is ours after it.
 * - Functions of the API answer 0, or -1 with errno; those among us answer 0 or a positive errno.
 * - An id is used by one thread at a time, as a socket is while it is being connected. Events about it may be read and acknowledged
 *   in others; destroying it waits for that. What is counted for this is under the id's lock.
 * - In a forked child inherited handles answer ENODEV, and destroying them only frees memory. No lock is taken then: a thread that
 *   does not exist in the child may have held it.
 */
#ifndef UROCE_RDMACM_RDMACM_H
#define UROCE_RDMACM_RDMACM_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "cm/cm.h"

#define PUBLIC __attribute__((visibility("default")))

/* An open device: one for each in the process, opened when it is first needed and never closed, as rdma_get_devices(3) has it. */
struct device {
	struct ibv_context *verbs;
	uint8_t initiator_depth, responder_resources; /* the most it has */
	struct ibv_pd *pd;			      /* the default one; NULL while no id is bound */
	unsigned users;				      /* of pd: ids */
};

struct channel {
	struct rdma_event_channel channel; /* must be first */
	struct cm_channel *cm;
	unsigned generation; /* see is_forked() */
};

/* A multicast group that an id joined or is joining. Freed by leaving, and with the id. */
struct group {
	struct group *next;
	struct id *id;
	void *context; /* the program's */
	struct sockaddr_storage address;
	union ibv_gid gid; /* once the QP is attached */
	bool send_only, attached;
	unsigned acknowledged; /* events; under the id's lock */
};

struct id {
	struct rdma_cm_id id; /* must be first */
	struct cm_id *cm;
	struct device *device; /* whose context id.verbs is; NULL: not bound to one */
	bool sync;	       /* the channel is its own, and calls wait for their events */
	bool failed;	       /* a CONNECT_ERROR of ours was reported: what the other end says to that is not */
	/* What its QP is given: of who asks what he asked for, or less if the answer says so; of who is asked what is asked for, until
	 * rdma_accept says otherwise. */
	uint8_t initiator_depth, responder_resources;
	struct ibv_ece local_ece, remote_ece;
	struct ibv_qp_init_attr *qp_init_attr; /* passive rdma_create_ep: of the QPs of its requests */
	struct group *groups;
	unsigned generation;
	pthread_mutex_t lock;
	pthread_cond_t cond;   /* acknowledged changed, here or in a group */
	unsigned acknowledged; /* events about it; CONNECT_REQUEST is about the listener */
};

struct event {
	struct rdma_cm_event event; /* must be first */
	struct id *owner;	    /* whom it is counted for */
	struct group *group;	    /* of multicast events */
	struct cm_event cm;	    /* with the private data */
};

static inline struct channel *to_channel(struct rdma_event_channel *channel)
{
	return (struct channel *)channel;
}

static inline struct id *to_id(struct rdma_cm_id *id)
{
	return (struct id *)id;
}

/* 0, or -1 with errno. */
static inline int answer(int error)
{
	if (!error)
		return 0;
	errno = error;
	return -1;
}

static inline uint8_t smaller(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

/* How often this process was forked off another: handles keep it from their making. */
unsigned fork_generation(void);

static inline bool is_forked(unsigned generation)
{
	return generation != fork_generation();
}

/* sizeof its kind of address; 0: neither IPv4 nor IPv6. */
socklen_t address_length(const struct sockaddr *address);

/* device.c: looks at the environment, once: what it asks for counts from here on, also that causes be told. 0 or errno. */
int devices_begin(void);

/* The device that has the address, with its default PD, until device_release(). ENODEV. */
int device_hold(const union ibv_gid *gid, struct device **device);
void device_release(struct device *device);
/* Its index in the table of the port, or -1. */
int device_gid_index(const struct device *device, const union ibv_gid *gid);

/* id.c */
int id_create(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type, struct id **id);
/* One for what the connection manager made of a request to the listener; on failure that is rejected and gone. */
int id_adopt(struct cm_id *cm, struct id *listener, struct id **id);
/* For an id of one's own: takes the event that the call before leads to, into id.event, and answers how it went. */
int id_complete(struct id *id);
/* An event was acknowledged; group: or NULL. */
void id_acknowledge(struct id *id, struct group *group);
/* Waits until *acknowledged reaches `read`. */
void id_wait_acknowledged(struct id *id, const unsigned *acknowledged, unsigned read);

/* address.c: the addresses as the connection manager knows them now, the device that has them and, if with_path, the path. */
int id_query(struct id *id, bool with_path);

/* qp.c: of the id's QP, if it has one. */
int qp_connect(struct id *id);
void qp_fail(struct id *id);

/* multicast.c: duties when its events are read. */
int group_joined(struct group *group, struct rdma_ud_param *param);
void groups_free(struct id *id);

#endif
