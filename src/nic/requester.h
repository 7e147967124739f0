/* SPDX-License-Identifier: MIT */
/*
 * The requester: executes a QP's send queue in order, completes and flushes. Runs inside post_send,
 * a later poll_cq, or on the helper's thread; when is nic/timing.h's affair.
 */
#ifndef UROCE_NIC_REQUESTER_H
#define UROCE_NIC_REQUESTER_H

#include "nic/qp.h"

/* Bytes that one call moves at most, so that a large message keeps nobody else waiting. */
#define REQUESTER_BUDGET (1u << 20)

/* Executes what can be executed now, lock held; what cannot goes to nic->deferred. */
void requester_run(struct nic_qp *qp);

/* Runs deferred QPs that complete into the CQ, whose consumer the caller is. */
void requester_run_for(struct nic_cq *cq);

/* Helper: runs what is due; returns when to call again (CLOCK_MONOTONIC ns; 0: at once; UINT64_MAX:
 * nothing is waiting). */
uint64_t requester_run_due(struct nic *nic);

/* When that will be, without running anything. */
uint64_t requester_next_due(struct nic *nic);

/* Takes the QP off nic->deferred. */
void requester_forget(struct nic_qp *qp);

/* Something that the QP waits for has happened: run it now. Takes the lock. */
void requester_wake(struct nic_qp *qp);

#endif
