/* SPDX-License-Identifier: MIT */
/* Shared receive queues: a receive queue with an index of its own, and the limit event. */
#ifndef UROCE_NIC_SRQ_H
#define UROCE_NIC_SRQ_H

#include "nic/event.h"
#include "nic/rq.h"

struct nic_srq {
	struct nic *nic;
	struct seg_srq *shared;
	uint32_t index;
	uint32_t pd;
	struct nic_rq rq;
	void *handle;			/* the ibv_srq, for events */
	struct nic_event_queue *events; /* of its context */
	_Atomic uint32_t users;		/* QPs that take from it */
};

/* 0, or errno. */
int nic_srq_create(struct nic *nic, uint32_t pd, uint32_t max_wr, uint32_t max_sge,
		   struct nic_srq *srq);
int nic_srq_destroy(struct nic_srq *srq);		    /* EBUSY while QPs use it */
int nic_srq_arm_limit(struct nic_srq *srq, uint32_t limit); /* EINVAL above max_wr */
uint32_t nic_srq_limit(const struct nic_srq *srq);
int nic_srq_post(struct nic_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* Owner, upon attention: raises the event if the limit is fired. */
void nic_srq_attend(struct nic_srq *srq);
/* Owner, after arming or a peer's death: fires the limit itself if the queue is below it. */
void nic_srq_recheck_limit(struct nic_srq *srq);

#endif
