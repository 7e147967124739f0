/* SPDX-License-Identifier: MIT */
/*
 * A message while the initiator executes it: what it is, how far it has come, and how it ends.
 * Shared by the files of the walk: initiator.c leads it, payload.c moves the bytes, outcome.c says
 * to both ends what came of it.
 */
#ifndef UROCE_LOCAL_WALK_H
#define UROCE_LOCAL_WALK_H

#include "local/assist.h"
#include "local/grh.h"
#include "local/memory.h"
#include "nic/request.h"
#include "nic/responder.h"

struct transport_state {
	struct peer *peer; /* RC, UC: from when it is reachable; UD: while a message is under way */
	/* What has admitted a message of ours (local/express.h): the QP, by which state word, and what we
	 * were then (nic_qp.modified); NULL: nothing has. */
	struct seg_qp *known;
	uint64_t known_state;
	uint32_t known_as;
	/* since when it cannot be attached, or asked for assistance; 0: not so */
	uint64_t attach_since;
	uint64_t busy_since; /* UD: since when another datagram is being received; 0: it is not */
	/* since when the receiver has been found empty at every look; 0: the last one was taken */
	uint64_t paced_since;
	/* The message under way */
	bool taken; /* receive is valid */
	struct receive receive;
	uint64_t done; /* bytes in place */
	struct ask *ask;
	uint64_t ask_deadline;
	uint8_t grh[GRH_BYTES]; /* UD */
};

/* All that a message needs while it is being executed. */
struct walk {
	struct nic_qp *qp;
	struct nic_swqe *wqe;
	struct transport_state *ts;
	struct transport_result *result;
	struct request request;
	struct seg_visit *here; /* of the target; NULL outside */
	struct seg_qp *target_qp;
	uint32_t target_index;
	uint64_t target_state; /* by which it admitted us */
	struct piece local[MEMORY_PIECES];
	uint32_t local_count;
	uint64_t length; /* to be moved; UD: with the GRH */
	const void *seen; /* all of it, as we see it; NULL: look at the pieces */
	struct piece remote[NIC_MAX_SGE];
	uint32_t remote_count;
	struct cause cause;
};

/* The WQE fails: records the cause. */
enum transport_outcome walk_failed(struct walk *w, enum cause_code code, enum ibv_wc_status status);

/* Goes on at `due` (CLOCK_MONOTONIC ns). */
enum transport_outcome walk_wait(struct walk *w, uint64_t due);

/* UC and UD: the message is lost and its sender does not hear of it; but it can be found out. */
enum transport_outcome walk_dropped(struct walk *w, enum cause_code code);

/* Nothing came back. */
enum transport_outcome walk_silence(struct walk *w, enum cause_code code);

/* The responder refuses with a NAK; w->cause says why. */
enum transport_outcome walk_refused(struct walk *w, enum response response);

/* The receive that was taken fails. */
enum transport_outcome walk_receive_fails(struct walk *w, enum cause_code code);

/* A copy did not succeed. */
enum transport_outcome walk_copy_failed(struct walk *w, enum copy_result result);

/* All bytes are in place. */
enum transport_outcome walk_delivered(struct walk *w);

/* The same in the trace, before that. Where all is done at once (w->seen) it says too which receive was taken; else that is said
 * when it is. Within a visit. */
__attribute__((cold)) void walk_trace(struct walk *w);
__attribute__((cold)) void walk_trace_taken(struct walk *w);

#endif
