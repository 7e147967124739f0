/* SPDX-License-Identifier: MIT */
/*
 * What the device can do: our own limits, or those of the real NIC that UROCE_PROFILE names.
 * Reported by ibv_query_device and enforced by the verbs face.
 */
#ifndef UROCE_NIC_LIMITS_H
#define UROCE_NIC_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

struct nic_limits {
	const char *name;
	uint32_t max_qp, max_qp_wr, max_sge, max_sge_rd, max_inline;
	uint32_t max_cq, max_cqe;
	uint32_t max_mr, max_pd, max_ah;
	uint32_t max_mw; /* as it is reported */
	bool windows;	 /* there are memory windows: NIC_MAX_MW of them */
	uint32_t max_rd_atomic, max_init_rd_atomic; /* as responder, as initiator; per QP */
	uint32_t max_srq, max_srq_wr, max_srq_sge;
	bool atomics;
	uint64_t max_msg; /* bytes */
};

/* Our own limits without a profile, else those of UROCE_PROFILE; NULL if there is no profile of
 * that name. */
const struct nic_limits *nic_limits(void);

/* The limits of the NICs that there are profiles of, as they have them; NULL past the end. */
const struct nic_limits *nic_profile(unsigned place);

/* The names that UROCE_PROFILE may have, NULL at the end. */
const char *const *nic_profiles(void);

#endif
