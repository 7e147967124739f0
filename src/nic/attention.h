/* SPDX-License-Identifier: MIT */
/*
 * Attention: how an initiator tells the owner of an object that it must act. Leaf bit, then summary
 * bit, then doorbell; always all three, so that one who is stopped in between delays nobody.
 */
#ifndef UROCE_NIC_ATTENTION_H
#define UROCE_NIC_ATTENTION_H

#include "nic/nic.h"

/* The segment that an initiator works on: another process's, within a visit, or our own. */
struct target {
	struct nic *nic; /* ours, if the segment is our own, else NULL */
	struct nic_segment *seg;
	int doorbell;
};

static inline struct target target_self(struct nic *nic)
{
	return (struct target){ .nic = nic, .seg = nic->seg, .doorbell = nic->doorbell };
}

/* The QP's state says why; the SRQ's limit is fired. */
void attention_qp(const struct target *target, uint32_t index);
void attention_srq(const struct target *target, uint32_t index);
/* The CQ's arm is FIRED, or its error flag is set. Our own CQ's event is delivered at once. */
void attention_cq(const struct target *target, uint32_t index);

/* The helper's side: attends to all objects that asked for it. With all, looks at every leaf and
 * every CQ: after a peer's death, who may have died between two of the three steps. */
void attention_serve(struct nic *nic, bool all);

#endif
