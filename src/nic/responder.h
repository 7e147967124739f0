/* SPDX-License-Identifier: MIT */
/*
 * The responder's rules: what a message meets at the QP that it is sent to. Run by whoever executes
 * the message: the initiator's thread within a visit, on the target's segment.
 */
#ifndef UROCE_NIC_RESPONDER_H
#define UROCE_NIC_RESPONDER_H

#include "nic/attention.h"
#include "nic/mr.h"
#include "nic/rq.h"

/* A message as it arrives. */
struct request {
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
	uint32_t src_qpn, dest_qpn;
	uint64_t instance; /* of the sender's process */
	const union ibv_gid *sgid, *dgid;
	uint32_t psn;	 /* of its first packet */
	uint32_t mtu;	 /* bytes; of the sender's path */
	uint64_t length; /* bytes */
	uint32_t qkey;	 /* UD */
	/* RDMA READs and atomics that the sender has under way, this one included */
	uint32_t outstanding;
};

enum response {
	RESPONSE_ACK,
	RESPONSE_NONE, /* silence: RC retries, UC and UD are dropped */
	RESPONSE_RNR,
	RESPONSE_BUSY,		/* another datagram is being received: in a moment */
	RESPONSE_NAK_INVALID,	/* invalid request */
	RESPONSE_NAK_ACCESS,	/* remote access error */
	RESPONSE_NAK_OPERATION, /* remote operational error */
	RESPONSE_BAD, /* an answer that the requester finds wrong: the responder goes on */
};

/* The QP that a QPN names in a segment; NULL if the segment has no such slot. *index for
 * attention. */
struct seg_qp *responder_find(const struct target *target, uint32_t qpn, uint32_t *index);

/* The rights that an operation needs of the QP, and of the memory that its rkey names. */
uint32_t responder_rights(enum ibv_wr_opcode opcode);

/* Whether the QP takes this message at all: existence, state, connection, PSN, MTU, rights. *c gets
 * code and numbers of what is wrong, *state the word that it was admitted by. */
enum response responder_admit(const struct target *target, struct seg_qp *qp,
			      const struct request *request, uint64_t *state, struct cause *c);

/* A receive that was taken for a message. */
struct receive {
	struct seg_rq *rq;
	struct nic_rwqe *wqe;
	struct rq_taken taken;
	int32_t srq;   /* index, or -1 */
	uint32_t pd;   /* that its SGEs must belong to */
	uint32_t life; /* of the QP that it was taken for */
};

/* Takes a receive for a message of `length` bytes; RESPONSE_RNR when there is none,
 * RESPONSE_NAK_OPERATION when the receive CQ is in error. RESPONSE_NONE: UC and UD messages that
 * are too long for the next receive of an RQ leave it alone (specification 9.9.3, class D).
 * RESPONSE_BUSY only with in_order, which datagrams give up for a neighbour that stands still. */
enum response responder_take(const struct target *target, struct seg_qp *qp, uint64_t state,
			     const struct request *request, uint64_t length, bool in_order,
			     struct receive *receive, struct cause *c);

/* The memory that `length` bytes go to: pieces, at most NIC_MAX_SGE, in the target's address
 * space, from the receive's first byte. Checks every SGE. CAUSE_NONE, CAUSE_RECEIVE_TOO_SHORT or
 * CAUSE_RECEIVE_BAD_SGE. here: the visit, by `nic`, of another process; NULL: the target is ourselves. */
enum cause_code responder_scatter(const struct nic *nic, struct seg_visit *here, const struct target *target,
				  const struct receive *receive, uint64_t length, struct piece *pieces, uint32_t *count,
				  struct cause *c);

/* Completes a receive: stamps and writes the CQE, publishes it, tells the owner. */
void responder_complete(const struct target *target, struct seg_qp *qp,
			const struct receive *receive, struct nic_cqe *cqe, bool solicited);

/* A message of a connected peer was executed; length: bytes that it moved. */
static inline void responder_count(struct seg_qp *qp, enum ibv_wr_opcode opcode, uint64_t length)
{
	struct seg_received *received = &qp->received;

	counter_add_alone(&received->requests[nic_kind(opcode)], 1);
	counter_add_alone(&received->bytes, length);
}

/* A message found no receive posted. */
void responder_count_empty(struct nic_segment *seg, struct seg_qp *qp);

/* A receive completes with an error. */
void responder_count_error(struct nic_segment *seg, struct seg_qp *qp, enum ibv_wc_status status);

/* The responder's side fails: later messages find silence, its owner moves it to the error state.
 * flag: why (NIC_QP_ACCESS_ERR, …). Nothing happens if the QP has begun another life since it
 * admitted us. */
void responder_fail(const struct target *target, struct seg_qp *qp, uint64_t state, uint64_t flag, uint64_t why);

/* A message of `packets` packets from psn on arrived: the next one is expected behind it; in RTR
 * the owner hears of it. */
void responder_established(const struct target *target, struct seg_qp *qp, uint64_t state,
			   uint32_t psn, uint32_t next_psn);

/* The time that an RNR NAK tells the requester to wait (specification table 45), ns. */
uint64_t rnr_timer(uint32_t code);

#endif
