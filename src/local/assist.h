/* SPDX-License-Identifier: MIT */
/*
 * Assistance: the target's helper copies, or calculates an atomic, in its own process's memory. The
 * way that always works.
 *
 * Payload goes through bounce memory in the requester's segment. It is not used again before the
 * answer has come, or the connection ended: until then the target's helper may be reading or
 * writing it.
 */
#ifndef UROCE_LOCAL_ASSIST_H
#define UROCE_LOCAL_ASSIST_H

#include "local/attach.h"
#include "nic/mr.h"

/* Bytes that one request moves at most. */
#define ASSIST_CHUNK (256u << 10)

enum ask_state { ASK_SENT, ASK_ANSWERED, ASK_LOST };

/* A request under way. */
struct ask {
	struct list of_peer; /* this and state: under nic->assist_lock */
	enum ask_state state;
	bool abandoned;
	uint64_t id;
	uint32_t qp; /* index, to be woken */
	enum assist_op op;
	uint64_t bounce; /* offset, 0: none */
	uint64_t length;
	/* The answer */
	enum cause_code status;
	uint64_t value;
};

/*
 * Sends a request; message has op, ranges, length and what the operation needs. The payload of a
 * write comes from the local pieces. NULL when it could not be sent: *error is EFAULT (local
 * memory), ENOMEM, EAGAIN (ask again later) or ECONNRESET (the peer is gone).
 */
struct ask *assist_begin(struct nic *nic, struct peer *peer, uint32_t qp, struct message *message,
			 const struct piece *local, uint32_t local_count, int *error);
enum ask_state assist_state(struct nic *nic, struct ask *ask);
/* After ASK_ANSWERED of a read: the bytes into local memory; false on a fault. */
bool assist_collect(struct nic *nic, struct ask *ask, const struct piece *local,
		    uint32_t local_count);
/* Ends a request, in whatever state. */
void assist_end(struct nic *nic, struct ask *ask);

/* Helper: an answer came; the connection ended; the peer is being freed. */
void assist_answered(struct nic *nic, struct peer *peer, const struct message *answer);
void assist_lost(struct nic *nic, struct peer *peer);
void assist_forget(struct nic *nic, struct peer *peer);

/* Helper: does what a peer asks for. */
void assist_serve(struct nic *nic, struct peer *peer, const struct message *message,
		  struct message *answer);

/* An atomic on 8 bytes of our own memory that are not mapped. All atomics of a process on such memory go through here,
 * one after the other: they are atomic with respect to each other (IBV_ATOMIC_HCA). On mapped memory they are the
 * CPU's, whoever does them and by whichever region (memory_atomic). False on a fault. */
bool assist_atomic(struct nic *nic, const struct piece *at, enum assist_op op, uint64_t compare_add,
		   uint64_t swap, uint64_t *old);

#endif
