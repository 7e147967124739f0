/* SPDX-License-Identifier: MIT */
/*
 * Limits: our own, and those that real NICs report. A profile never promises more than we have:
 * each number is the smaller of the NIC's and ours.
 */
#include "nic/limits.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nic/layout.h"

static const struct nic_limits own = {
	.name = "uroce",
	.max_qp = NIC_MAX_QP,
	.max_qp_wr = NIC_MAX_WR,
	.max_sge = NIC_MAX_SGE,
	.max_sge_rd = NIC_MAX_SGE,
	.max_inline = NIC_MAX_INLINE,
	.max_cq = NIC_MAX_CQ,
	.max_cqe = NIC_MAX_CQE,
	.max_mr = NIC_MAX_MR,
	.max_pd = 1u << 20,
	.max_ah = 1u << 20,
	.max_mw = NIC_MAX_MW,
	.windows = true,
	.max_rd_atomic = NIC_MAX_RD_ATOMIC,
	.max_init_rd_atomic = NIC_MAX_RD_ATOMIC,
	.max_srq = NIC_MAX_SRQ,
	.max_srq_wr = NIC_MAX_WR,
	.max_srq_sge = NIC_MAX_SGE,
	.atomics = true,
	.max_msg = NIC_MAX_MSG,
};

/*
 * What `ibv_devinfo -v` printed for these NICs, as published in the places named. A max_mw of 0 is also what
 * those print that have memory windows. It does not print
 * the inline limit, which the drivers make of their WQE's size: here it is what an RC queue pair
 * gets. libmlx4 and libmlx5 have WQEs of 1008 and 1024 bytes, less the segments in front of the
 * data; irdma's WQE leaves 101 bytes, rxe's has room for 32 SGEs.
 */
static const struct nic_limits nics[] = {
	{
		/* Mellanox, fw 2.33.5100: github.com/claudebarthels/infinity issue 5 */
		.name = "connectx-3",
		.max_qp = 131000,
		.max_qp_wr = 16351,
		.max_sge = 32,
		.max_sge_rd = 30,
		.max_inline = 900,
		.max_cq = 65408,
		.max_cqe = 4194303,
		.max_mr = 524032,
		.max_pd = 32764,
		.max_ah = INT_MAX,
		.windows = true,
		.max_rd_atomic = 16,
		.max_init_rd_atomic = 128,
		.max_srq = 65472,
		.max_srq_wr = 16383,
		.max_srq_sge = 31,
		.atomics = true,
		.max_msg = 0x40000000,
	},
	{
		/* Mellanox, fw 16.23.1020: github.com/open-mpi/ompi pull request 6137 */
		.name = "connectx-5",
		.max_qp = 262144,
		.max_qp_wr = 32768,
		.max_sge = 30,
		.max_sge_rd = 30,
		.max_inline = 828,
		.max_cq = 16777216,
		.max_cqe = 4194303,
		.max_mr = 16777216,
		.max_pd = 16777216,
		.max_ah = INT_MAX,
		.windows = true,
		.max_rd_atomic = 16,
		.max_init_rd_atomic = 16,
		.max_srq = 8388608,
		.max_srq_wr = 32767,
		.max_srq_sge = 31,
		.atomics = true,
		.max_msg = 0x40000000,
	},
	{
		/* Mellanox (part 4127): github.com/openucx/ucx issue 10317 */
		.name = "connectx-6",
		.max_qp = 131072,
		.max_qp_wr = 32768,
		.max_sge = 30,
		.max_sge_rd = 30,
		.max_inline = 828,
		.max_cq = 16777216,
		.max_cqe = 4194303,
		.max_mr = 16777216,
		.max_pd = 8388608,
		.max_ah = INT_MAX,
		.windows = true,
		.max_rd_atomic = 16,
		.max_init_rd_atomic = 16,
		.max_srq = 8388608,
		.max_srq_wr = 32767,
		.max_srq_sge = 31,
		.atomics = true,
		.max_msg = 0x40000000,
	},
	{
		/* Intel, fw 1.74, neither SRQ nor atomics: github.com/deepseek-ai/3FS issue 192 */
		.name = "e810",
		.max_qp = 4092,
		.max_qp_wr = 8127,
		.max_sge = 6,
		.max_sge_rd = 6,
		.max_inline = 101,
		.max_cq = 8189,
		.max_cqe = 1048574,
		.max_mr = 4194301,
		.max_pd = 262141,
		.max_ah = 131072,
		.windows = true,
		.max_rd_atomic = 8,
		.max_init_rd_atomic = 8,
		.max_msg = 0x7fffffff,
	},
	{
		/* Linux soft-RoCE of 2020: github.com/openucx/ucx issue 5045 */
		.name = "rxe",
		.max_qp = 65536,
		.max_qp_wr = 16384,
		.max_sge = 32,
		.max_sge_rd = 32,
		.max_inline = 512,
		.max_cq = 16384,
		.max_cqe = 32767,
		.max_mr = 262144,
		.max_pd = 32764,
		.max_ah = 100,
		.max_rd_atomic = 128,
		.max_init_rd_atomic = 128,
		.max_srq = 960,
		.max_srq_wr = 16384,
		.max_srq_sge = 27,
		.atomics = true,
		.max_msg = 0x800000,
	},
};

#define NICS (sizeof(nics) / sizeof(nics[0]))

static struct nic_limits profile;
static const struct nic_limits *chosen;

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static struct nic_limits within_own(const struct nic_limits *nic)
{
	return (struct nic_limits){
		.name = nic->name,
		.max_qp = smaller(nic->max_qp, own.max_qp),
		.max_qp_wr = smaller(nic->max_qp_wr, own.max_qp_wr),
		.max_sge = smaller(nic->max_sge, own.max_sge),
		.max_sge_rd = smaller(nic->max_sge_rd, own.max_sge_rd),
		.max_inline = smaller(nic->max_inline, own.max_inline),
		.max_cq = smaller(nic->max_cq, own.max_cq),
		.max_cqe = smaller(nic->max_cqe, own.max_cqe),
		.max_mr = smaller(nic->max_mr, own.max_mr),
		.max_pd = smaller(nic->max_pd, own.max_pd),
		.max_ah = smaller(nic->max_ah, own.max_ah),
		.max_mw = smaller(nic->max_mw, own.max_mw),
		.windows = nic->windows,
		.max_rd_atomic = smaller(nic->max_rd_atomic, own.max_rd_atomic),
		.max_init_rd_atomic = smaller(nic->max_init_rd_atomic, own.max_init_rd_atomic),
		.max_srq = smaller(nic->max_srq, own.max_srq),
		.max_srq_wr = smaller(nic->max_srq_wr, own.max_srq_wr),
		.max_srq_sge = smaller(nic->max_srq_sge, own.max_srq_sge),
		.atomics = nic->atomics,
		.max_msg = nic->max_msg < own.max_msg ? nic->max_msg : own.max_msg,
	};
}

static void choose(void)
{
	const char *name = getenv("UROCE_PROFILE");

	if (!name || !*name || !strcmp(name, own.name)) {
		chosen = &own;
		return;
	}
	for (unsigned i = 0; i < NICS; i++) {
		if (strcmp(name, nics[i].name))
			continue;
		profile = within_own(&nics[i]);
		chosen = &profile;
	}
}

const struct nic_limits *nic_limits(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, choose);
	return chosen;
}

const struct nic_limits *nic_profile(unsigned place)
{
	return place < NICS ? &nics[place] : NULL;
}

const char *const *nic_profiles(void)
{
	static const char *names[NICS + 2];

	for (unsigned i = 0; i < NICS; i++)
		names[i + 1] = nics[i].name;
	names[0] = own.name;
	return names;
}
