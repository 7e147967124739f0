/* SPDX-License-Identifier: MIT */
/* Messages between helpers, over SOCK_SEQPACKET unix sockets: one datagram a message, always of
 * this size. */
#ifndef UROCE_LOCAL_MESSAGE_H
#define UROCE_LOCAL_MESSAGE_H

#include <stdint.h>

#include "nic/layout.h"

enum message_type {
	MESSAGE_HELLO =
		1,	 /* who connects; with fds: segment, doorbell, pages file if there is one */
	MESSAGE_WELCOME, /* who was connected to; with the same fds */
	MESSAGE_READY,	 /* who connected waits for our visits too from now on: visit it */
	MESSAGE_REFUSED, /* value: enum cause_code */
	MESSAGE_ASSIST,	 /* copy or calculate, in your memory */
	MESSAGE_ASSISTED, /* the answer: status, value */
	MESSAGE_TRACE,	  /* who connects wants to see events (observe/trace.h), `length` bytes of payloads; nothing follows it */
	MESSAGE_TRACED,	  /* the answer: status (errno) or 0 and, as its descriptor, the ring. Until this connection is closed */
};

enum assist_op {
	ASSIST_WRITE,	/* from the bounce memory into the receiver's memory, rkey */
	ASSIST_SCATTER, /* the same, into receive SGEs: lkeys */
	ASSIST_READ,	/* from the receiver's memory into the bounce memory, rkey */
	ASSIST_COMPARE_SWAP,
	ASSIST_FETCH_ADD,
};

struct message {
	uint64_t magic;	   /* NIC_MAGIC */
	uint32_t version;  /* NIC_LAYOUT_VERSION; these two have their place in every version */
	uint32_t type;	   /* enum message_type */
	uint64_t instance; /* of the sender */
	uint64_t size;	   /* HELLO, WELCOME: bytes of the sender's segment */
	uint32_t primary_slot;

	uint32_t op;  /* enum assist_op */
	uint64_t id;  /* of the request; the answer repeats it */
	uint32_t qpn; /* requester's QP */
	uint32_t dest_qpn;
	uint32_t life;	 /* of the destination QP, when it admitted the message: nic_qp_life() */
	uint32_t status; /* answer: enum cause_code, CAUSE_NONE when done */
	uint32_t pd;
	uint64_t bounce; /* offset in the requester's segment */
	uint64_t length; /* bytes */
	uint64_t compare_add, swap;
	uint64_t value; /* answer: the old value of an atomic; REFUSED: the cause */
	uint32_t count; /* of ranges */
	struct ibv_sge
		/* in the address space of their keys; together `length` bytes */
		ranges[NIC_MAX_SGE];
};

/* Descriptors that a message has at most. */
#define MESSAGE_FDS 3

/* Sends a message with up to MESSAGE_FDS descriptors, without waiting: 0, or errno. */
int message_send(int fd, const struct message *message, const int *fds, int count);

/* Receives one, without waiting; fds: MESSAGE_FDS, the receiver's from now on, -1 where none came. 0; EAGAIN;
 * ECONNRESET at the end; EPROTO for what is no message. */
int message_receive(int fd, struct message *message, int *fds);

/* Asks the process that holds a slot for a trace. The connection, nonblocking, with *ring; -1 with errno: ECONNREFUSED, nobody has
 * that slot; EBUSY, it is being traced; EPERM, of another user; EPROTO, of another version; EAGAIN, no answer in five seconds (it is stopped);
 * or what it lacks. */
int message_ask_trace(uint32_t slot, uint32_t snap, int *ring);

/* Closes what message_receive gave. */
void message_close_fds(const int *fds);

#endif
