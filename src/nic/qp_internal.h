/* SPDX-License-Identifier: MIT */
/* What the files of queue pairs share among themselves. */
#ifndef UROCE_NIC_QP_INTERNAL_H
#define UROCE_NIC_QP_INTERNAL_H

#include "nic/qp.h"

/* The type in seg_qp.state. */
uint8_t qp_type_code(enum ibv_qp_type type);

static inline uint32_t qp_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

/* Address vector of a connected QP: 0, or EINVAL with a cause. */
int qp_check_path(const struct nic_qp *qp, int mask, const struct ibv_ah_attr *av);

/* To RESET: forgets all work; lock held. */
void nic_qp_reset(struct nic_qp *qp);

#endif
