/* SPDX-License-Identifier: MIT */
/*
 * Memory windows, type 1 and 2B: remote access to a part of a region, given and taken back by work requests (specification
 * 10.6.7). A window takes an entry of the regions' table (struct seg_mr) and names the region that it is bound to; what a peer
 * reaches through it is found by both. A bound window keeps its region registered.
 *
 * nic->mw_lock is held over each change here. It is taken after a QP's lock, never within a visit, and held while visits are
 * waited for. Only who invalidates for a peer does without it, by one CAS within a visit: nobody else uses that window then, since
 * one of type 2 serves a single connection, whose requests are executed in order. What the owner counts is put right later.
 */
#ifndef UROCE_NIC_MW_H
#define UROCE_NIC_MW_H

#include "nic/mr.h"
#include "nic/transport.h"

struct nic_mw {
	struct nic *nic;
	struct seg_mr *shared;
	uint32_t index;
	uint32_t pd;
	enum ibv_mw_type type;
};

/* A window that is not bound. 0, or errno with a cause: ENOMEM. */
int nic_mw_alloc(struct nic *nic, uint32_t pd, enum ibv_mw_type type, struct nic_mw *mw);

/* Unbinds it. EBUSY as nic_mr_deregister: the window remains as it was. */
int nic_mw_dealloc(struct nic_mw *mw);

/* The window's key. Its lowest 8 bits are the consumer's to choose when it is bound. */
uint32_t mw_key(const struct nic_mw *mw);

/* Executes IBV_WR_BIND_MW and IBV_WR_LOCAL_INV: TRANSPORT_DONE, or TRANSPORT_FAILED with IBV_WC_MW_BIND_ERR. QP's lock held. From
 * the end of an invalidation on nobody reaches the memory through the window any more. */
enum transport_outcome mw_execute(struct nic_qp *qp, struct nic_swqe *wqe,
				  struct transport_result *result);

/* mr_check() for the key of a window. */
enum cause_code mw_check(struct nic_segment *seg, uint32_t key, uint64_t addr, uint64_t length,
			 uint32_t rights, uint32_t pd, uint32_t qpn, struct piece *piece,
			 struct cause *c);

/* Invalidates a window for a peer, whose message came to QP qpn of domain pd: CAUSE_NONE, or why that cannot be. Within a visit of
 * the segment. */
enum cause_code mw_invalidate(struct nic_segment *seg, uint32_t key, uint32_t qpn, uint32_t pd,
			      struct cause *c);

/* How many windows are bound to a region. Lock held. */
uint32_t mw_bound_to(struct nic *nic, uint32_t region);
/* Visits of a region that no window was bound to are over. Lock held. */
void mw_forget_region(struct nic *nic, uint32_t region);

#endif
