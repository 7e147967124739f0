/* SPDX-License-Identifier: MIT */
/* Shared receive queues of the basic kind. */
#include "verbs/verbs.h"

#include <stdlib.h>

EXPORT(create_srq, 1.1);
EXPORT(modify_srq, 1.1);
EXPORT(query_srq, 1.1);
EXPORT(destroy_srq, 1.1);

static int check_limits(struct verbs_ctx *ctx, const struct ibv_srq_attr *attr)
{
	const struct nic_limits *limits = ctx->limits;

	if (!attr->max_wr || attr->max_wr > limits->max_srq_wr)
		return refuse(ctx, EINVAL, CAUSE_CREATE_LIMIT, .thing = CAUSE_THING_SRQ_WR, .count = 1, .limit = limits->max_srq_wr,
			      .value = attr->max_wr);
	if (attr->max_sge > limits->max_srq_sge)
		return refuse(ctx, EINVAL, CAUSE_CREATE_LIMIT, .thing = CAUSE_THING_SRQ_SGE, .limit = limits->max_srq_sge,
			      .value = attr->max_sge);
	return 0;
}

struct ibv_srq *verb_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct verbs_ctx *ctx = to_ctx(pd->context);
	struct verbs_srq *srq;
	int error;

	if (is_forked(ctx))
		return refuse_null(ctx, EIO, CAUSE_FORKED);
	if (!ctx->limits->max_srq)
		return refuse_null(ctx, EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_CREATE_SRQ);
	if (check_limits(ctx, &attr->attr) || object_count(ctx, KIND_SRQ))
		return NULL;
	srq = calloc(1, sizeof(*srq));
	if (!srq) {
		error = refuse(ctx, ENOMEM, CAUSE_NO_MEMORY);
		goto no_memory;
	}
	error = nic_srq_create(ctx->nic, to_pd(pd)->number, attr->attr.max_wr, attr->attr.max_sge,
			       &srq->nic);
	if (error)
		goto no_queue;
	srq->nic.handle = &srq->srq;
	srq->nic.events = &ctx->events;
	srq->srq.context = pd->context;
	srq->srq.srq_context = attr->srq_context;
	srq->srq.pd = pd;
	srq->srq.handle = srq->nic.index;
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	attr->attr.max_wr = srq->nic.rq.max_wr;
	attr->attr.max_sge = srq->nic.rq.max_sge;
	atomic_fetch_add(&to_pd(pd)->users, 1);
	object_enter(ctx, KIND_SRQ, &srq->of_ctx);
	return &srq->srq;

no_queue:
	free(srq);
no_memory:
	object_uncount(ctx, KIND_SRQ);
	errno = error;
	return NULL;
}

/* The inline function of verbs.h sends the plain case to ibv_create_srq: what arrives here is XRC or tag matching, or a
 * basic SRQ with fields that it does not have. */
struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct verbs_ctx *ctx = to_ctx(context);
	enum ibv_srq_type type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type :
									    IBV_SRQT_BASIC;

	if (type != IBV_SRQT_BASIC)
		return refuse_null(ctx, EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_SRQ_TYPE, .value = type);
	return refuse_null(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_SRQ_COMP_MASK, .value = attr->comp_mask);
}

/* Only XRC SRQs have a number that peers use. */
int get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
	(void)srq_num;
	return refuse(to_ctx(srq->context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_SRQ_NUM, .qpn = srq->handle);
}

int verb_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct verbs_ctx *ctx = to_ctx(srq->context);

	if (is_forked(ctx))
		return refuse(ctx, EIO, CAUSE_FORKED);
	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_SRQ_ATTR_MASK, .qpn = srq->handle,
			      .value = (unsigned)mask);
	/* The device does not have IBV_DEVICE_SRQ_RESIZE. */
	if (mask & IBV_SRQ_MAX_WR)
		return refuse(ctx, EINVAL, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_SRQ_MAX_WR, .qpn = srq->handle,
			      .opcode = (unsigned)mask);
	if (mask & IBV_SRQ_LIMIT)
		return answer(nic_srq_arm_limit(&to_srq(srq)->nic, attr->srq_limit));
	return 0;
}

int verb_query_srq(struct ibv_srq *handle, struct ibv_srq_attr *attr)
{
	struct verbs_srq *srq = to_srq(handle);
	struct verbs_ctx *ctx = to_ctx(handle->context);

	if (is_forked(ctx))
		return refuse(ctx, EIO, CAUSE_FORKED);
	*attr = (struct ibv_srq_attr){
		.max_wr = srq->nic.rq.max_wr,
		.max_sge = srq->nic.rq.max_sge,
		.srq_limit = nic_srq_limit(&srq->nic),
	};
	return 0;
}

static void srq_free(struct verbs_srq *srq)
{
	pthread_mutex_destroy(&srq->srq.mutex);
	pthread_cond_destroy(&srq->srq.cond);
	free(srq);
}

int verb_destroy_srq(struct ibv_srq *handle)
{
	struct verbs_srq *srq = to_srq(handle);
	struct verbs_ctx *ctx = to_ctx(handle->context);
	int error;

	if (is_forked(ctx)) {
		atomic_fetch_sub(&to_pd(handle->pd)->users, 1);
		object_uncount(ctx, KIND_SRQ);
		free(srq);
		return 0;
	}
	error = nic_srq_destroy(&srq->nic);
	if (error)
		return refuse(ctx, error, CAUSE_BUSY, .thing = CAUSE_THING_DESTROY_SRQ, .qpn = handle->handle,
			      .count = atomic_load(&srq->nic.users));
	nic_event_forget(&ctx->events, handle);
	wait_for_acknowledgement(&handle->mutex, &handle->cond, &handle->events_completed,
				 srq->events_read);
	atomic_fetch_sub(&to_pd(handle->pd)->users, 1);
	object_leave(ctx, KIND_SRQ, &srq->of_ctx);
	srq_free(srq);
	return 0;
}

void srq_abandon(struct list *of_ctx)
{
	struct verbs_srq *srq = list_entry(of_ctx, struct verbs_srq, of_ctx);
	struct verbs_ctx *ctx = to_ctx(srq->srq.context);

	nic_srq_destroy(&srq->nic);
	nic_event_forget(&ctx->events, &srq->srq);
	object_uncount(ctx, KIND_SRQ);
	srq_free(srq);
}

int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct verbs_ctx *ctx = to_ctx(srq->context);

	if (is_forked(ctx)) {
		*bad_wr = wr;
		return refuse(ctx, EIO, CAUSE_FORKED);
	}
	return answer(nic_srq_post(&to_srq(srq)->nic, wr, bad_wr));
}
