/* SPDX-License-Identifier: MIT */
/*
 * Extended completion queues: polling one completion at a time and reading the fields that were asked for at creation.
 * From start_poll to end_poll the caller holds the CQ's lock and `current` is the completion it stands at.
 *
 * A field that was not asked for reads as 0 and leaves a cause: providers jump through NULL there.
 */
#include "verbs/verbs.h"

#include "nic/spin.h"
#include "roce/wire.h"

#define WC_FLAGS                                                                 \
	((uint64_t)IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | \
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

static const struct nic_cqe *current_of(struct ibv_cq_ex *ex)
{
	return &((struct verbs_cq *)ex)->current;
}

/* Takes the oldest completion, or says that there is none; lock held. */
static int take_next(struct verbs_cq *cq)
{
	if (!nic_cq_take(&cq->nic, &cq->current))
		return ENOENT;
	cq->ex.status = cq->current.status;
	cq->ex.wr_id = cq->current.wr_id;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct verbs_cq *cq = (struct verbs_cq *)ex;
	struct verbs_ctx *ctx = to_ctx(ex->context);
	int error;

	if (is_forked(ctx))
		return refuse(ctx, EIO, CAUSE_FORKED);
	if (attr && attr->comp_mask)
		return refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_CQ_POLL_MASK, .value = attr->comp_mask);
	do {
		nic_lock(&cq->nic.lock);
		nic_cq_begin(&cq->nic);
		error = take_next(cq);
		if (error)
			nic_unlock(&cq->nic.lock);
	} while (error && wire_is_used(&cq->nic) && wire_poll(ctx->nic));
	spin_polled(!error);
	return error;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	return take_next((struct verbs_cq *)ex);
}

static void end_poll(struct ibv_cq_ex *ex)
{
	struct verbs_cq *cq = (struct verbs_cq *)ex;

	nic_unlock(&cq->nic.lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return current_of(ex)->opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return current_of(ex)->vendor_err;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return current_of(ex)->wc_flags;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return current_of(ex)->byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return current_of(ex)->imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return current_of(ex)->qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return current_of(ex)->src_qp;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	return current_of(ex)->slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return current_of(ex)->sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return current_of(ex)->dlid_path_bits;
}

/* The device's clock and the wall clock are one. */
static uint64_t read_timestamp(struct ibv_cq_ex *ex)
{
	return current_of(ex)->timestamp;
}

static void not_asked_for(struct ibv_cq_ex *ex)
{
	refuse(to_ctx(ex->context), EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_CQ_READ, .qpn = ex->handle);
}

static uint64_t not_asked_for_64(struct ibv_cq_ex *ex)
{
	not_asked_for(ex);
	return 0;
}

static uint32_t not_asked_for_32(struct ibv_cq_ex *ex)
{
	not_asked_for(ex);
	return 0;
}

static uint16_t not_asked_for_16(struct ibv_cq_ex *ex)
{
	not_asked_for(ex);
	return 0;
}

static uint8_t not_asked_for_8(struct ibv_cq_ex *ex)
{
	not_asked_for(ex);
	return 0;
}

static void no_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *tm_info)
{
	not_asked_for(ex);
	*tm_info = (struct ibv_wc_tm_info){ 0 };
}

static void fill_operations(struct ibv_cq_ex *ex, uint64_t flags)
{
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
	ex->read_byte_len = flags & IBV_WC_EX_WITH_BYTE_LEN ? read_byte_len : not_asked_for_32;
	ex->read_imm_data = flags & IBV_WC_EX_WITH_IMM ? read_imm_data : not_asked_for_32;
	ex->read_qp_num = flags & IBV_WC_EX_WITH_QP_NUM ? read_qp_num : not_asked_for_32;
	ex->read_src_qp = flags & IBV_WC_EX_WITH_SRC_QP ? read_src_qp : not_asked_for_32;
	ex->read_slid = flags & IBV_WC_EX_WITH_SLID ? read_slid : not_asked_for_32;
	ex->read_sl = flags & IBV_WC_EX_WITH_SL ? read_sl : not_asked_for_8;
	ex->read_dlid_path_bits = flags & IBV_WC_EX_WITH_DLID_PATH_BITS ? read_dlid_path_bits :
									  not_asked_for_8;
	ex->read_completion_ts = flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP ? read_timestamp :
									       not_asked_for_64;
	ex->read_completion_wallclock_ns = flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK ?
						   read_timestamp :
						   not_asked_for_64;
	ex->read_cvlan = not_asked_for_16;
	ex->read_flow_tag = not_asked_for_32;
	ex->read_tm_info = no_tm_info;
}

struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct verbs_ctx *ctx = to_ctx(context);
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct verbs_cq *cq;

	if (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
		return refuse_null(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_CQ_COMP_MASK, .value = attr->comp_mask);
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD)
		return refuse_null(ctx, EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_CQ_COMP_MASK,
				   .value = attr->comp_mask);
	if (attr->wc_flags & ~WC_FLAGS)
		return refuse_null(ctx, EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_CQ_WC_FLAGS, .limit = WC_FLAGS,
				   .value = attr->wc_flags);
	/* Overrun is always an error here. Single-threaded use needs no less locking: initiators come in too. */
	if (flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
		return refuse_null(ctx, EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_CQ_FLAGS, .value = flags);
	if (attr->comp_vector > INT32_MAX)
		return refuse_null(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_CQ_VECTOR, .value = attr->comp_vector);

	cq = cq_make(ctx, attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector);
	if (!cq)
		return NULL;
	atomic_store(&cq->nic.shared->timestamps,
		     !!(attr->wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
					  IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)));
	fill_operations(&cq->ex, attr->wc_flags);
	return &cq->ex;
}
