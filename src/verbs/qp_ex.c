/* SPDX-License-Identifier: MIT */
/*
 * The work request API, ibv_wr_*: a builder claims a WQE, setters fill it, complete posts all of the batch or nothing.
 *
 * Builders and setters return nothing, so the first failure is kept until wr_complete. From wr_start to wr_complete or
 * wr_abort the caller holds the QP's lock. Operations that were not asked for at creation fail the batch.
 */
#include "verbs/verbs.h"

#define OPERATIONS_UD (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM)
#define OPERATIONS_UC \
	(OPERATIONS_UD | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
#define OPERATIONS_RC (OPERATIONS_UC | IBV_QP_EX_WITH_RDMA_READ)
#define BINDS	      (IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV)
#define ATOMICS	      (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

uint64_t qp_ex_operations(enum ibv_qp_type type, const struct nic_limits *limits)
{
	switch (type) {
	case IBV_QPT_RC:
		return OPERATIONS_RC | (limits->atomics ? ATOMICS : 0) |
		       (limits->windows ? BINDS | IBV_QP_EX_WITH_SEND_WITH_INV : 0);
	case IBV_QPT_UC:
		return OPERATIONS_UC | (limits->windows ? BINDS : 0);
	case IBV_QPT_UD:
		return OPERATIONS_UD;
	default:
		return 0;
	}
}

static struct verbs_qp *from_ex(struct ibv_qp_ex *ex)
{
	return (struct verbs_qp *)ex;
}

/* Keeps the batch's first failure; what is built after it goes nowhere. */
static void fail(struct verbs_qp *qp, int error)
{
	qp->wqe = NULL;
	if (!qp->error)
		qp->error = error;
}

static void fail_unsupported(struct ibv_qp_ex *ex)
{
	struct verbs_qp *qp = from_ex(ex);

	fail(qp, refuse(to_ctx(qp->qp.context), EINVAL, CAUSE_POST_OPCODE, .qpn = qp->qp.qp_num,
			.wr_id = ex->wr_id));
}

static struct nic_swqe *build(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct verbs_qp *qp = from_ex(ex);
	int error = 0;

	if (qp->error)
		return NULL;
	/* Inline is the setter's to say. */
	qp->wqe = nic_qp_claim(&qp->nic, ex->wr_id, opcode,
			       ex->wr_flags & ~(unsigned)IBV_SEND_INLINE, &error);
	if (!qp->wqe)
		fail(qp, error);
	return qp->wqe;
}

/* The WQE that a setter works on; a setter without a builder before it fails the batch. */
static struct nic_swqe *being_built(struct ibv_qp_ex *ex)
{
	struct verbs_qp *qp = from_ex(ex);

	if (!qp->wqe && !qp->error)
		fail_unsupported(ex);
	return qp->wqe;
}

static void wr_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
		    uint64_t remote_addr, __be32 imm_data)
{
	struct nic_swqe *wqe = build(ex, opcode);

	if (!wqe)
		return;
	wqe->rkey = rkey;
	wqe->remote_addr = remote_addr;
	wqe->imm_data = imm_data;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(ex, IBV_WR_RDMA_READ, rkey, remote_addr, 0);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			      __be32 imm_data)
{
	wr_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr, imm_data);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	build(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
	struct nic_swqe *wqe = build(ex, IBV_WR_SEND_WITH_IMM);

	if (wqe)
		wqe->imm_data = imm_data;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
	struct nic_swqe *wqe = build(ex, IBV_WR_SEND_WITH_INV);

	if (wqe)
		wqe->rkey = invalidate_rkey;
}

/* These two have no data: no setter may follow. */
static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *bind_info)
{
	struct verbs_qp *qp = from_ex(ex);
	struct nic_swqe *wqe = build(ex, IBV_WR_BIND_MW);
	int error = wqe ? nic_swqe_set_bind(&qp->nic, wqe, mw, rkey, bind_info) : 0;

	if (error)
		fail(qp, error);
	qp->wqe = NULL;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t invalidate_rkey)
{
	struct nic_swqe *wqe = build(ex, IBV_WR_LOCAL_INV);

	if (wqe)
		wqe->rkey = invalidate_rkey;
	from_ex(ex)->wqe = NULL;
}

static void wr_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
		      uint64_t remote_addr, uint64_t compare_add, uint64_t swap)
{
	struct nic_swqe *wqe = build(ex, opcode);

	if (!wqe)
		return;
	wqe->rkey = rkey;
	wqe->remote_addr = remote_addr;
	wqe->compare_add = compare_add;
	wqe->swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	wr_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
				uint64_t add)
{
	wr_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	struct nic_swqe *wqe = being_built(ex);

	if (!wqe)
		return;
	if (!ah || ex->qp_base.qp_type != IBV_QPT_UD) {
		fail_unsupported(ex);
		return;
	}
	wqe->ah = *nic_ah_of(ah);
	wqe->remote_qpn = remote_qpn;
	wqe->remote_qkey = remote_qkey;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sg_list)
{
	struct nic_swqe *wqe = being_built(ex);
	int error;

	if (!wqe)
		return;
	/* A number of SGEs that 32 bits cannot hold is too many as well. */
	error = nic_swqe_set_sges(&from_ex(ex)->nic, wqe, sg_list,
				  num_sge > UINT32_MAX ? UINT32_MAX : (uint32_t)num_sge);
	if (error)
		fail(from_ex(ex), error);
}

/* A single SGE without bytes is a zero-length message. */
static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	const struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, length ? 1 : 0, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf,
				    const struct ibv_data_buf *buf_list)
{
	struct nic_swqe *wqe = being_built(ex);
	int error;

	if (!wqe)
		return;
	error = nic_swqe_set_inline(&from_ex(ex)->nic, wqe, buf_list, num_buf);
	if (error)
		fail(from_ex(ex), error);
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	const struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(ex, 1, &buf);
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct verbs_qp *qp = from_ex(ex);

	if (!is_forked(to_ctx(qp->qp.context)))
		nic_qp_begin(&qp->nic);
	qp->wqe = NULL;
	qp->error = 0;
	if (is_forked(to_ctx(qp->qp.context)))
		fail(qp, refuse(to_ctx(qp->qp.context), EIO, CAUSE_FORKED));
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct verbs_qp *qp = from_ex(ex);
	int error = qp->error;

	if (!error)
		return answer(nic_qp_commit(&qp->nic));
	if (!is_forked(to_ctx(qp->qp.context)))
		nic_qp_abort(&qp->nic);
	return answer(error);
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	struct verbs_qp *qp = from_ex(ex);

	if (!is_forked(to_ctx(qp->qp.context)))
		nic_qp_abort(&qp->nic);
}

/* Stand where no operation was asked for; one for each signature. */
static void no_rdma(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	(void)rkey;
	(void)remote_addr;
	fail_unsupported(ex);
}

static void no_rdma_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm_data)
{
	(void)imm_data;
	no_rdma(ex, rkey, remote_addr);
}

static void no_send(struct ibv_qp_ex *ex)
{
	fail_unsupported(ex);
}

static void no_send_32(struct ibv_qp_ex *ex, uint32_t value)
{
	(void)value;
	fail_unsupported(ex);
}

static void no_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
		       uint64_t swap)
{
	(void)compare;
	(void)swap;
	no_rdma(ex, rkey, remote_addr);
}

static void no_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	(void)add;
	no_rdma(ex, rkey, remote_addr);
}

static void no_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *bind_info)
{
	(void)mw;
	(void)rkey;
	(void)bind_info;
	fail_unsupported(ex);
}

static void no_send_tso(struct ibv_qp_ex *ex, void *hdr, uint16_t hdr_sz, uint16_t mss)
{
	(void)hdr;
	(void)hdr_sz;
	(void)mss;
	fail_unsupported(ex);
}

static void no_atomic_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			    const void *data)
{
	(void)data;
	no_rdma(ex, rkey, remote_addr);
}

void qp_ex_init(struct verbs_qp *qp, uint64_t flags)
{
	struct ibv_qp_ex *ex = &qp->ex;

	qp->is_ex = true;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = flags & IBV_QP_EX_WITH_SEND ? wr_send : no_send;
	ex->wr_send_imm = flags & IBV_QP_EX_WITH_SEND_WITH_IMM ? wr_send_imm : no_send_32;
	ex->wr_rdma_write = flags & IBV_QP_EX_WITH_RDMA_WRITE ? wr_rdma_write : no_rdma;
	ex->wr_rdma_write_imm = flags & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM ? wr_rdma_write_imm :
									     no_rdma_imm;
	ex->wr_rdma_read = flags & IBV_QP_EX_WITH_RDMA_READ ? wr_rdma_read : no_rdma;
	ex->wr_atomic_cmp_swp = flags & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP ? wr_atomic_cmp_swp :
									    no_cmp_swp;
	ex->wr_atomic_fetch_add =
		flags & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD ? wr_atomic_fetch_add : no_fetch_add;
	ex->wr_bind_mw = flags & IBV_QP_EX_WITH_BIND_MW ? wr_bind_mw : no_bind_mw;
	ex->wr_local_inv = flags & IBV_QP_EX_WITH_LOCAL_INV ? wr_local_inv : no_send_32;
	ex->wr_send_inv = flags & IBV_QP_EX_WITH_SEND_WITH_INV ? wr_send_inv : no_send_32;
	ex->wr_send_tso = no_send_tso;
	ex->wr_atomic_write = no_atomic_write;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = no_send_32;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
}
