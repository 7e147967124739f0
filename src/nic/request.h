/* SPDX-License-Identifier: MIT */
/*
 * A send request as far as it concerns its own side, whatever carries it: what its opcode means, what it gets wrong whoever it
 * is sent to, its memory, and the record of its failure.
 */
#ifndef UROCE_NIC_REQUEST_H
#define UROCE_NIC_REQUEST_H

#include "nic/mr.h"
#include "nic/qp.h"

static inline bool is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static inline bool reads_remote(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

static inline bool is_send(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}

/* Of memory windows of our own: executed here, whatever the transport (nic/mw.h). */
static inline bool is_local(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

static inline bool has_imm(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static inline bool needs_receive(enum ibv_wr_opcode opcode)
{
	return is_send(opcode) || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

/* A remote Q_Key with the top bit set means the QP's own (specification 10.2.5). */
static inline uint32_t request_qkey(const struct nic_qp *qp, const struct nic_swqe *wqe)
{
	return wqe->remote_qkey & 0x80000000u ? qp->attr.qkey : wqe->remote_qkey;
}

/*
 * Checks a request and its memory: pieces gets the message's memory of this process, up to NIC_MAX_SGE pieces, *count their
 * number. CAUSE_NONE, or what is wrong with its numbers in *c and the completion's status in *status. Within a visit of our own
 * segment as long as the pieces are used.
 */
enum cause_code request_check(struct nic_qp *qp, struct nic_swqe *wqe, struct piece *pieces, uint32_t *count, struct cause *c,
			      enum ibv_wc_status *status);

/* Records why a request ends with this status; what else is known stands in *c. Returns the code, for vendor_err. */
uint32_t request_record(const struct nic_qp *qp, const struct nic_swqe *wqe, enum cause_code code, enum ibv_wc_status status,
			struct cause *c);

#endif
