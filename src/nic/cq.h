/* SPDX-License-Identifier: MIT */
/*
 * Completion queues. The ring protocol is described in nic/layout.h and docs/protocols.md: anybody
 * publishes by one CAS, the owner's threads consume under nic_cq.ring_lock.
 */
#ifndef UROCE_NIC_CQ_H
#define UROCE_NIC_CQ_H

#include "nic/event.h"
#include "nic/lock.h"
#include "nic/nic.h"

struct nic_cq {
	struct nic *nic;
	struct seg_cq *shared;
	uint32_t index;
	uint32_t capacity; /* completions it holds; what ibv_cq.cqe says */
	void *handle;	   /* the ibv_cq, for events */
	struct nic_event_queue
		*events; /* of its context; set by the verbs face before the first QP uses the CQ */

	/* the extended API holds it while the program looks at a completion */
	struct nic_lock lock;
	/* the next six; nothing is waited for under it but what is a leaf itself */
	struct nic_lock ring_lock;
	struct seg_cq_ring *ring; /* being consumed */
	uint64_t head;		  /* next position in ring */
	uint64_t polls;		  /* how often anybody looked */
	uint32_t high;		  /* as in shared */
	struct nic_cqe brief;	  /* the completion at head, if it is that */
	bool in_vain;		  /* the trace has it that the last poll found nothing */

	struct nic_channel *channel;
	struct list of_channel;
	uint32_t events_due; /* taken from FIRED and not yet read; under channel->lock */
	bool error_reported; /* under nic->lock */
	/* Ever handed out by nic_channel_wait; under channel->lock. What the program has to acknowledge:
	 * destroying the CQ waits for it. */
	uint32_t events_read;
	_Atomic uint32_t users;	   /* QPs and SRQs that complete here */
	_Atomic uint32_t wired; /* QPs, counted for each queue, that have a state on the wire */
	_Atomic uint32_t deferred; /* QPs on nic->deferred that complete here */
};

/* A CQ of at least cqe entries. 0, or errno (EINVAL, ENOMEM). */
int nic_cq_create(struct nic *nic, uint32_t cqe, struct nic_channel *channel, struct nic_cq *cq);

/* EBUSY while QPs use it. Events must have been acknowledged before. */
int nic_cq_destroy(struct nic_cq *cq);

/* EINVAL if more than cqe completions are queued, ENOMEM. */
int nic_cq_resize(struct nic_cq *cq, uint32_t cqe);

/* Up to n completions, as ibv_poll_cq: the number, or -1 with errno. */
int nic_cq_poll(struct nic_cq *cq, int n, struct ibv_wc *wc);

/*
 * Polling one by one; the extended API holds nic_cq.lock from begin to end. begin
 * makes progress: what deferred work completes here. take takes the oldest completion and gives its
 * WQE back, so that the program can post anew while it looks at it; false when there is none.
 */
void nic_cq_begin(struct nic_cq *cq);
bool nic_cq_take(struct nic_cq *cq, struct nic_cqe *cqe);

/* ibv_req_notify_cq. */
int nic_cq_arm(struct nic_cq *cq, bool solicited_only);

/* Takes away the completions of a QP that goes away or is reset. Those of kind NIC_REF_SRQ give
 * their WQE back to the SRQ `index`; of the other kinds index is the QP's. */
void nic_cq_forget(struct nic_cq *cq, enum nic_ref_kind kind, uint32_t index, uint32_t qpn);

/* What is published: a word without its lap, and the brief or 0. See nic/layout.h. */
struct cq_reference {
	uint64_t word, brief;
};

/* index: of the QP or SRQ whose WQE was completed. */
static inline struct cq_reference cq_reference(enum nic_ref_kind kind, uint32_t index,
					       uint32_t slot, uint64_t brief)
{
	return (struct cq_reference){ (uint64_t)kind << 31 | (uint64_t)index << 15 | slot, brief };
}

/* Whether a completion in a CQ can be said in brief, and how: 0 if not. */
static inline uint64_t cq_brief(const struct seg_cq *cq, const struct nic_cqe *cqe)
{
	if (cqe->status != IBV_WC_SUCCESS || cqe->wc_flags || cqe->sl ||
	    atomic_load_explicit(&cq->timestamps, memory_order_relaxed))
		return 0;
	return (uint64_t)cqe->opcode << 56 | (uint64_t)cqe->qp_num << 32 | cqe->byte_len;
}

/* Publishes a reference in CQ `cq` of a segment, our own or, within a visit, another. solicited:
 * an event is due on NIC_ARM_SOLICITED too (solicited or unsuccessful). */
enum cq_publish {
	CQ_PUBLISHED,
	CQ_PUBLISHED_FIRED, /* and the CQ was armed: tell its owner (nic/attention.h) */
	CQ_OVERFLOW,	    /* lost: the CQ is in error; tell its owner */
};
enum cq_publish cq_publish(struct nic_segment *seg, uint32_t cq, struct cq_reference ref,
			   bool solicited);

/* The timestamp of a completion in a CQ, if it asks for one. */
static inline uint64_t cq_timestamp(const struct seg_cq *cq)
{
	return atomic_load_explicit(&cq->timestamps, memory_order_relaxed) ? nic_wall_clock() : 0;
}

/* Owner: the same for our own CQ, outside of a visit; tells whom it concerns. */
enum cq_publish nic_cq_publish(struct nic_cq *cq, struct cq_reference ref, bool solicited);

/* Owner, after a peer's death: who published last may not have lived to look whether the CQ is
 * armed. */
void nic_cq_refire(struct nic_cq *cq);

/* Owner: takes FIRED, if it is there, and delivers the event. */
void nic_cq_attend(struct nic_cq *cq);
/* Counts an event that is due and puts its token into the channel. */
void nic_cq_deliver(struct nic_cq *cq);
/* Owner: true once when the CQ is in error, which is recorded then. */
bool nic_cq_find_error(struct nic_cq *cq);
/* Raises IBV_EVENT_CQ_ERR. */
void nic_cq_raise_error(struct nic_cq *cq);

/* Sets seen[slot] for each queued completion of a WQE queue. */
void nic_cq_mark(struct nic_cq *cq, enum nic_ref_kind kind, uint32_t index, uint8_t *seen);

#endif
