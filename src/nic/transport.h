/* SPDX-License-Identifier: MIT */
/*
 * What carries a QP's messages: chosen per QP at RTR, or per datagram, once for both directions.
 * Called with the QP's lock held.
 */
#ifndef UROCE_NIC_TRANSPORT_H
#define UROCE_NIC_TRANSPORT_H

#include <stdint.h>

struct nic;
struct nic_qp;
struct nic_swqe;

enum transport_outcome {
	TRANSPORT_DONE,	       /* executed; the WQE's cqe.byte_len is set */
	TRANSPORT_MORE,	       /* the budget is used up; call again */
	TRANSPORT_WAIT,	       /* call again at result->due, or when woken */
	TRANSPORT_RNR,	       /* receiver not ready; result->due is when its timer ends */
	TRANSPORT_NO_RESPONSE, /* nothing came back; result->cause says why if that is known */
	TRANSPORT_FAILED,      /* result->status; a cause was recorded as result->cause */
};

struct transport_result {
	uint32_t status; /* enum ibv_wc_status */
	uint32_t cause;	 /* enum cause_code */
	uint64_t due;	 /* CLOCK_MONOTONIC ns */
	uint64_t timer;	 /* RNR: how long the responder tells to wait, ns */
};

struct transport {
	/* At RTR. Never fails and never waits long for the other end: who is not there is found out
	 * when sending. */
	void (*connect)(struct nic_qp *qp);
	/* At RESET and destroy. */
	void (*disconnect)(struct nic_qp *qp);
	/* Executes, or goes on executing, the WQE at the head of the send queue; moves at most
	 * *budget bytes. */
	enum transport_outcome (*execute)(struct nic_qp *qp, struct nic_swqe *wqe, uint64_t *budget,
					  struct transport_result *result);
	/* Gives up the WQE that execute began (flush, error). */
	void (*cancel)(struct nic_qp *qp);
};

extern const struct transport local_transport;

#endif
