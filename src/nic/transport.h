/* SPDX-License-Identifier: MIT */
/*
 * What carries a QP's messages: chosen per QP at RTR, or per datagram, once for both directions.
 * Called with the QP's lock held.
 */
#ifndef UROCE_NIC_TRANSPORT_H
#define UROCE_NIC_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

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
	uint64_t timer; /* RNR: how long the responder tells to wait, ns */
	uint64_t value; /* no response: of the cause; RNR: receives posted there so far, 0 if that is not known */
	uint64_t length; /* no response: of the cause, bytes */
	/* No response: what was found at the other end, where it is known */
	uint32_t psn, peer_psn;
	uint32_t peer_state;
	int32_t peer_pid;
	bool srq;	/* RNR: the receives there are those of an SRQ */
	bool waited;	/* no response: it was waited for */
};

struct transport {
	/* At RTR: 0, or ENOMEM. Never waits long for the other end: who is not there is found out when
	 * sending. */
	int (*connect)(struct nic_qp *qp);
	/* At RESET and destroy. */
	void (*disconnect)(struct nic_qp *qp);
	/* Executes, or goes on executing, the WQE at the head of the send queue; moves at most
	 * *budget bytes. */
	enum transport_outcome (*execute)(struct nic_qp *qp, struct nic_swqe *wqe, uint64_t *budget,
					  struct transport_result *result);
	/* Sends what may be sent behind the WQE at the head while that waits for its answer; NULL: there is never
	 * anything. */
	void (*advance)(struct nic_qp *qp);
	/* Gives up the WQE that execute began (flush, error). */
	void (*cancel)(struct nic_qp *qp);
	/* When receives were posted at the other end after requests had found none (CLOCK_MONOTONIC ns; 0: not known), asked behind the
	 * request that took one. NULL: never known. */
	uint64_t (*filled_at)(const struct nic_qp *qp);
};

extern const struct transport local_transport, wire_transport;

/* The way to a GID: shared memory on this host, else the wire. UROCE_TRANSPORT=roce: the wire even to this host. */
const struct transport *transport_to(const union ibv_gid *dgid);

/* At RTR: chooses qp->transport and connects; UD may then use either. 0, or ENOMEM: it is as it was. */
int transport_connect(struct nic_qp *qp);
void transport_disconnect(struct nic_qp *qp);

/* Whether a value of UROCE_TRANSPORT is understood; with one that is not there is no device (verbs/device.c). */
bool transport_parse(const char *value, bool *wire_only);
bool transport_is_wire_only(void);

#endif
