/* SPDX-License-Identifier: MIT */
/*
 * Receive queues: one structure serves a QP's RQ and an SRQ. The FIFO protocol is described in
 * nic/layout.h and docs/protocols.md: the owner posts, initiators take by CAS.
 */
#ifndef UROCE_NIC_RQ_H
#define UROCE_NIC_RQ_H

#include "nic/lock.h"
#include "nic/nic.h"

/* What the owner knows of a slot. */
struct nic_rq_slot {
	bool posted;	   /* from posting until its completion is polled */
	bool kept;	   /* out of use: see nic_rq_reset() */
	uint32_t taker;	   /* QPN, once the FIFO's word was reused; 0: ask the word */
	uint64_t position; /* in the FIFO */
};

struct nic_rq {
	struct nic *nic;
	struct seg_rq *shared;
	uint32_t max_wr, max_sge;
	bool keeps_order;     /* datagrams, and no SRQ: see rq_take() */
	uint32_t life;	      /* see nic/layout.h; set by the QP */
	struct nic_lock lock; /* posting; slots */
	uint16_t *free_slots; /* stack */
	uint32_t free_count;
	struct nic_rq_slot *slots;
	uint64_t fifo_length, slots_length; /* bytes, for the arena */
};

/* max_wr and max_sge are what the program gets; 0 WRs make a queue that is always full and always
 * empty. */
int nic_rq_create(struct nic *nic, struct seg_rq *shared, uint32_t max_wr, uint32_t max_sge,
		  struct nic_rq *rq);
/* visited: a stopped visitor may still write into the WQEs. */
void nic_rq_destroy(struct nic_rq *rq, bool visited);

/* Posts a list. 0, or a positive errno with *bad_wr at the first request that was not posted.
 * state: of the QP, for the cause; qpn: of the QP, or the SRQ's index. full: the cause for
 * ENOMEM. */
int nic_rq_post(struct nic_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr,
		uint32_t qpn, enum cause_code full);

/* Gives a slot back when its completion was polled. */
void nic_rq_release(struct nic_rq *rq, uint32_t slot);

/* Whether a reference to the slot is a real one: it is posted, and its CQE is written or (brief) there is none. */
bool nic_rq_is_completed(const struct nic_rq *rq, uint32_t slot, bool brief);

/* A completion in brief is taken away: who took the slot has ended all the same, see nic_rq_reset(). */
void nic_rq_published(struct nic_rq *rq, uint32_t slot);

/* The QPN that took the slot; 0 when it is not posted, or posted and not taken. */
uint32_t nic_rq_taker(struct nic_rq *rq, uint32_t slot);

/* The taker of a slot died. Before it completed it: the slot is available again, at the end. After
 * publishing, and before rq_done(): that is made up for. */
void nic_rq_repost(struct nic_rq *rq, uint32_t slot);
void nic_rq_settle(struct nic_rq *rq, uint32_t slot);

/* Forgets everything posted (RESET), and goes on in another life. visited: a visitor still stands
 * inside; slots that were taken and not completed are kept out of use then, since it may write
 * their completion at any time. */
void nic_rq_reset(struct nic_rq *rq, uint32_t life, bool visited);

/* The initiator's side: what was taken. */
struct rq_taken {
	uint64_t position;
	uint32_t slot;
};

enum rq_answer {
	RQ_TAKEN,
	RQ_EMPTY,
	/* not taken: the oldest, of which only taken->slot is told, has room for less than need
	 * bytes */
	RQ_TOO_SHORT,
	RQ_BUSY, /* not taken: in_order, and the one before is taken and not published yet */
};

/*
 * Takes the oldest available WQE for taker (a QPN), in the life of the queue that it was admitted
 * by (0 for an SRQ). in_order: receives of an RQ complete in the order in which they were posted,
 * also when several processes send datagrams to it: each is taken only after the one before it was
 * published, which its taker says by rq_done().
 */
enum rq_answer rq_take(struct nic_segment *seg, struct seg_rq *rq, uint32_t life, uint32_t taker,
		       uint64_t need, bool in_order, struct rq_taken *taken);
void rq_done(struct nic_segment *seg, struct seg_rq *rq, uint64_t position);

/* After a take: asks for the cache lines that one of the next will want, if slots go in order. */
void rq_prefetch(struct nic_segment *seg, const struct seg_rq *rq, const struct rq_taken *taken);

/* Writes the CQE of a WQE that was taken; wr_id is filled in. Publish it afterwards. What can be said in brief is
 * published without. */
void rq_complete(struct nic_rwqe *wqe, const struct nic_cqe *cqe);

/* How many are available now; a moment later it may be another number. */
uint32_t rq_available(const struct seg_rq *rq);

static inline struct nic_rwqe *rq_wqe(struct nic_segment *seg, const struct seg_rq *rq,
				      uint32_t slot)
{
	return seg_at(seg, rq->slots + (uint64_t)slot * rq->stride);
}

#endif
