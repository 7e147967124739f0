/* SPDX-License-Identifier: MIT */
/* What the unit tests share: cmocka, the process's NIC, and queue pairs of it without the verbs
 * face. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "nic/nic.h"
#include "nic/qp.h"

/* Fewer where system calls are emulated: qemu-user makes up /proc/self/maps, which each registration reads. */
#ifdef UROCE_EMULATED
#define TIMES(n) ((n) / 50)
#else
#define TIMES(n) (n)
#endif

/* cmocka's assertions may only be made by the thread that runs the test; others tell it by this. */
#define THREAD_CHECK(condition)                                                             \
	do {                                                                                \
		if (!(condition)) {                                                         \
			print_error("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                            \
		}                                                                           \
	} while (0)

static inline int open_nic(void **state)
{
	const char *why = NULL;

	*state = nic_open(&why);
	return *state ? 0 : -1;
}

static inline int close_nic(void **state)
{
	nic_close(*state);
	return 0;
}

/* The loopback address: a GID that every machine has. */
#define UNIT_GID { .raw = { [10] = 0xff, 0xff, 127, 0, 0, 1 } }
static const union ibv_gid unit_gid = UNIT_GID;
static const struct gid_table unit_gids = { .count = 1, .present = 1, .gids = { UNIT_GID } };

#define UNIT_PD 1u

static inline void make_qp(struct nic *nic, enum ibv_qp_type type, struct nic_cq *cq,
			   struct nic_srq *srq, uint32_t depth, struct nic_qp *qp)
{
	const struct nic_qp_init init = {
		.type = type,
		.pd = UNIT_PD,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = { .max_send_wr = depth,
			 .max_recv_wr = srq ? 0 : depth,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = 64 },
		.sq_sig_all = true,
		.gids = &unit_gids,
		.mtu = 4096,
	};

	assert_int_equal(nic_qp_create(nic, &init, qp), 0);
}

/* Attributes that every transition accepts. */
static inline struct ibv_qp_attr good_attr(uint32_t dest_qpn)
{
	return (struct ibv_qp_attr){
		.port_num = 1,
		.qkey = 0x11,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest_qpn,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = unit_gid, .hop_limit = 1 } },
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = 8,
		.retry_cnt = 1,
		.rnr_retry = 1,
	};
}

static inline int required_mask(enum ibv_qp_type type, enum ibv_qp_state to)
{
	switch (to) {
	case IBV_QPS_INIT:
		return IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	case IBV_QPS_RTR:
		return (type == IBV_QPT_UD ?
				0 :
				IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
		       (type == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	case IBV_QPS_RTS:
		return IBV_QP_SQ_PSN |
		       (type == IBV_QPT_RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						     IBV_QP_MAX_QP_RD_ATOMIC :
					     0);
	default:
		return 0;
	}
}

static inline int move_to(struct nic_qp *qp, enum ibv_qp_state to, uint32_t dest_qpn)
{
	struct ibv_qp_attr attr = good_attr(dest_qpn);

	attr.qp_state = to;
	return nic_qp_modify(qp, &attr, IBV_QP_STATE | required_mask(qp->type, to));
}

static inline void bring_up(struct nic_qp *qp, uint32_t dest_qpn)
{
	assert_int_equal(move_to(qp, IBV_QPS_INIT, dest_qpn), 0);
	assert_int_equal(move_to(qp, IBV_QPS_RTR, dest_qpn), 0);
	assert_int_equal(move_to(qp, IBV_QPS_RTS, dest_qpn), 0);
}

#endif
