/* SPDX-License-Identifier: MIT */
/* Queue pairs: creation against the device's limits, the verbs that pass on to the state machine, and posting. */
#include "verbs/verbs.h"

#include <stdlib.h>
#include <string.h>

#include "roce/group.h"

EXPORT(create_qp, 1.1);
EXPORT(modify_qp, 1.1);
EXPORT(query_qp, 1.1);
EXPORT(destroy_qp, 1.1);
EXPORT(qp_to_qp_ex, 1.6);
EXPORT(query_ece, 1.10);
EXPORT(set_ece, 1.10);
EXPORT(query_qp_data_in_order, 1.14);

#define LIMIT(ctx, name, maximum, asked) \
	refuse(ctx, EINVAL, CAUSE_CREATE_LIMIT, .thing = CAUSE_THING_QP_##name, .limit = (maximum), .value = (asked))
#define ARGUMENT(ctx, name, ...)    refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_QP_##name, __VA_ARGS__)
#define UNSUPPORTED(ctx, name, ...) refuse(ctx, EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_QP_##name, __VA_ARGS__)

static int check_capabilities(struct verbs_ctx *ctx, const struct ibv_qp_init_attr_ex *attr)
{
	const struct nic_limits *limits = ctx->limits;
	const struct ibv_qp_cap *cap = &attr->cap;

	if (cap->max_send_wr > limits->max_qp_wr)
		return LIMIT(ctx, SEND_WR, limits->max_qp_wr, cap->max_send_wr);
	if (cap->max_send_sge > limits->max_sge)
		return LIMIT(ctx, SEND_SGE, limits->max_sge, cap->max_send_sge);
	if (cap->max_inline_data > limits->max_inline)
		return LIMIT(ctx, INLINE, limits->max_inline, cap->max_inline_data);
	if (attr->srq) /* the receive queue's numbers are ignored then */
		return 0;
	if (cap->max_recv_wr > limits->max_qp_wr)
		return LIMIT(ctx, RECV_WR, limits->max_qp_wr, cap->max_recv_wr);
	if (cap->max_recv_sge > limits->max_sge)
		return LIMIT(ctx, RECV_SGE, limits->max_sge, cap->max_recv_sge);
	return 0;
}

static int check_objects(struct verbs_ctx *ctx, const struct ibv_qp_init_attr_ex *attr)
{
	const struct ibv_context *context = &ctx->vctx.context;

	const struct ibv_pd *pd = attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL;
	const struct {
		enum cause_thing thing;
		const struct ibv_context *context; /* NULL: it is not there */
		bool needed;
	} objects[] = {
		{ CAUSE_THING_QP_PD, pd ? pd->context : NULL, true },
		{ CAUSE_THING_QP_SEND_CQ, attr->send_cq ? attr->send_cq->context : NULL, true },
		{ CAUSE_THING_QP_RECV_CQ, attr->recv_cq ? attr->recv_cq->context : NULL, true },
		{ CAUSE_THING_QP_SRQ, attr->srq ? attr->srq->context : NULL, false },
	};

	for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
		if (objects[i].needed && !objects[i].context)
			return refuse(ctx, EINVAL, CAUSE_CREATE_NULL, .thing = objects[i].thing);
		if (objects[i].context && objects[i].context != context)
			return refuse(ctx, EINVAL, CAUSE_CREATE_PD_MISMATCH, .thing = objects[i].thing);
	}
	if (attr->srq && attr->qp_type == IBV_QPT_UC)
		return ARGUMENT(ctx, TYPE, .value = attr->qp_type);
	return 0;
}

static int check_creation(struct verbs_ctx *ctx, const struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	uint64_t operations = qp_ex_operations(attr->qp_type, ctx->limits);

	if (!operations)
		return UNSUPPORTED(ctx, TYPE, .value = attr->qp_type);
	if (attr->comp_mask & ~known)
		return UNSUPPORTED(ctx, COMP_MASK, .value = attr->comp_mask);
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags)
		return UNSUPPORTED(ctx, FLAGS, .value = attr->create_flags);
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
	    (attr->send_ops_flags & ~operations))
		return UNSUPPORTED(ctx, SEND_OPS, .limit = operations, .value = attr->send_ops_flags);
	if (check_objects(ctx, attr))
		return errno;
	return check_capabilities(ctx, attr);
}

struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct verbs_ctx *ctx = to_ctx(context);
	struct verbs_qp *qp;
	int error;

	if (is_forked(ctx))
		return refuse_null(ctx, EIO, CAUSE_FORKED);
	if (check_creation(ctx, attr) || object_count(ctx, KIND_QP))
		return NULL;
	qp = calloc(1, sizeof(*qp));
	if (!qp) {
		error = refuse(ctx, ENOMEM, CAUSE_NO_MEMORY);
		goto no_memory;
	}
	const struct nic_qp_init init = {
		.type = attr->qp_type,
		.pd = to_pd(attr->pd)->number,
		.send_cq = &to_cq(attr->send_cq)->nic,
		.recv_cq = &to_cq(attr->recv_cq)->nic,
		.srq = attr->srq ? &to_srq(attr->srq)->nic : NULL,
		.cap = {
			.max_send_wr = attr->cap.max_send_wr,
			.max_send_sge = attr->cap.max_send_sge,
			.max_inline_data = attr->cap.max_inline_data,
			.max_recv_wr = attr->srq ? 0 : attr->cap.max_recv_wr,
			.max_recv_sge = attr->srq ? 0 : attr->cap.max_recv_sge,
		},
		.sq_sig_all = attr->sq_sig_all,
		.gids = &ctx->device->gids,
		.mtu = mtu_bytes(active_mtu(ctx)),
	};

	error = nic_qp_create(ctx->nic, &init, &qp->nic);
	if (error)
		goto no_queue;
	qp->nic.handle = &qp->qp;
	qp->nic.events = &ctx->events;
	qp->qp.context = context;
	qp->qp.qp_context = attr->qp_context;
	qp->qp.pd = attr->pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.srq = attr->srq;
	qp->qp.handle = qp->nic.index;
	qp->qp.qp_num = qp->nic.qpn;
	qp->qp.state = IBV_QPS_RESET;
	qp->qp.qp_type = attr->qp_type;
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		qp_ex_init(qp, attr->send_ops_flags);
	attr->cap = qp->nic.cap;
	atomic_fetch_add(&to_pd(attr->pd)->users, 1);
	object_enter(ctx, KIND_QP, &qp->of_ctx);
	return &qp->qp;

no_queue:
	free(qp);
no_memory:
	object_uncount(ctx, KIND_QP);
	errno = error;
	return NULL;
}

struct ibv_qp *verb_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex extended = { 0 };
	struct ibv_qp *qp;

	/* The extended structure begins with the plain one. */
	memcpy(&extended, attr, sizeof(*attr));
	extended.comp_mask = IBV_QP_INIT_ATTR_PD;
	extended.pd = pd;
	qp = create_qp_ex(pd->context, &extended);
	if (qp)
		attr->cap = extended.cap;
	return qp;
}

struct ibv_qp_ex *verb_qp_to_qp_ex(struct ibv_qp *qp)
{
	return to_qp(qp)->is_ex ? &to_qp(qp)->ex : NULL;
}

/* Depths of RDMA READs and atomics are the device's to limit; the rest is the state machine's. */
static int check_depths(struct verbs_ctx *ctx, const struct ibv_qp *qp,
			const struct ibv_qp_attr *attr, int mask)
{
	const struct nic_limits *limits = ctx->limits;

	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > limits->max_init_rd_atomic)
		return refuse(ctx, EINVAL, CAUSE_MODIFY_VALUE, .qpn = qp->qp_num,
			      .opcode = IBV_QP_MAX_QP_RD_ATOMIC,
			      .limit = limits->max_init_rd_atomic, .value = attr->max_rd_atomic);
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > limits->max_rd_atomic)
		return refuse(ctx, EINVAL, CAUSE_MODIFY_VALUE, .qpn = qp->qp_num,
			      .opcode = IBV_QP_MAX_DEST_RD_ATOMIC, .limit = limits->max_rd_atomic,
			      .value = attr->max_dest_rd_atomic);
	return 0;
}

int verb_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct verbs_ctx *ctx = to_ctx(qp->context);
	int error;

	if (is_forked(ctx))
		return refuse(ctx, EIO, CAUSE_FORKED);
	if (check_depths(ctx, qp, attr, mask))
		return errno;
	error = nic_qp_modify(&to_qp(qp)->nic, attr, mask);
	if (error)
		return answer(error);
	if (mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return 0;
}

int verb_query_qp(struct ibv_qp *handle, struct ibv_qp_attr *attr, int mask,
		  struct ibv_qp_init_attr *init_attr)
{
	struct verbs_qp *qp = to_qp(handle);
	struct verbs_ctx *ctx = to_ctx(handle->context);

	(void)mask; /* a hint: all attributes cost the same */
	if (is_forked(ctx))
		return refuse(ctx, EIO, CAUSE_FORKED);
	memset(attr, 0, sizeof(*attr));
	nic_qp_query(&qp->nic, attr);
	handle->state = attr->qp_state;
	*init_attr = (struct ibv_qp_init_attr){
		.qp_context = handle->qp_context,
		.send_cq = handle->send_cq,
		.recv_cq = handle->recv_cq,
		.srq = handle->srq,
		.cap = qp->nic.cap,
		.qp_type = handle->qp_type,
		.sq_sig_all = qp->nic.sq_sig_all,
	};
	return 0;
}

static void qp_free(struct verbs_qp *qp)
{
	pthread_mutex_destroy(&qp->qp.mutex);
	pthread_cond_destroy(&qp->qp.cond);
	free(qp);
}

int verb_destroy_qp(struct ibv_qp *handle)
{
	struct verbs_qp *qp = to_qp(handle);
	struct verbs_ctx *ctx = to_ctx(handle->context);

	if (is_forked(ctx)) {
		atomic_fetch_sub(&to_pd(handle->pd)->users, 1);
		object_uncount(ctx, KIND_QP);
		free(qp);
		return 0;
	}
	if (group_has(&qp->nic))
		return refuse(ctx, EBUSY, CAUSE_BUSY, .thing = CAUSE_THING_DESTROY_QP, .qpn = handle->qp_num);
	nic_qp_destroy(&qp->nic);
	nic_event_forget(&ctx->events, handle);
	wait_for_acknowledgement(&handle->mutex, &handle->cond, &handle->events_completed,
				 qp->events_read);
	atomic_fetch_sub(&to_pd(handle->pd)->users, 1);
	object_leave(ctx, KIND_QP, &qp->of_ctx);
	qp_free(qp);
	return 0;
}

void qp_abandon(struct list *of_ctx)
{
	struct verbs_qp *qp = list_entry(of_ctx, struct verbs_qp, of_ctx);
	struct verbs_ctx *ctx = to_ctx(qp->qp.context);

	group_forget(&qp->nic);
	nic_qp_destroy(&qp->nic);
	nic_event_forget(&ctx->events, &qp->qp);
	object_uncount(ctx, KIND_QP);
	qp_free(qp);
}

/* Enhanced connection establishment is between NICs of one maker; we have nothing to agree on. */
int verb_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)ece;
	return refuse(to_ctx(qp->context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_ECE, .qpn = qp->qp_num);
}

int verb_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return refuse(to_ctx(qp->context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_ECE, .qpn = qp->qp_num,
		      .value = ece->vendor_id);
}

/* process_vm_writev promises no order. */
int verb_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp;
	(void)op;
	(void)flags;
	return 0;
}

int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct verbs_ctx *ctx = to_ctx(qp->context);

	if (is_forked(ctx)) {
		*bad_wr = wr;
		return refuse(ctx, EIO, CAUSE_FORKED);
	}
	return answer(nic_qp_post_send(&to_qp(qp)->nic, wr, bad_wr));
}

/* For profiles of NICs without atomics: what stands before the first one in the list is posted. */
int post_send_without_atomics(struct ibv_qp *qp, struct ibv_send_wr *wr,
			      struct ibv_send_wr **bad_wr)
{
	struct ibv_send_wr *last = NULL, *atomic = wr;
	uint32_t index = 0;
	int error = 0;

	for (; atomic; last = atomic, atomic = atomic->next, index++)
		if (atomic->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		    atomic->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			break;
	if (!atomic)
		return post_send(qp, wr, bad_wr);
	if (last) {
		last->next = NULL;
		error = post_send(qp, wr, bad_wr);
		last->next = atomic;
		if (error)
			return error;
	}
	*bad_wr = atomic;
	return refuse(to_ctx(qp->context), EOPNOTSUPP, CAUSE_POST_OPCODE, .qpn = qp->qp_num,
		      .wr_id = atomic->wr_id, .wr_index = index, .opcode = atomic->opcode);
}

int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct verbs_ctx *ctx = to_ctx(qp->context);

	if (is_forked(ctx)) {
		*bad_wr = wr;
		return refuse(ctx, EIO, CAUSE_FORKED);
	}
	return answer(nic_qp_post_recv(&to_qp(qp)->nic, wr, bad_wr));
}
