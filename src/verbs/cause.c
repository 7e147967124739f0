/* SPDX-License-Identifier: MIT */
/* Refusing: every verb that says no leaves the reason in the segment's ring. And counting, which is one reason. */
#include "verbs/verbs.h"

#include <unistd.h>

int refuse_with(struct verbs_ctx *ctx, int error, struct cause *cause)
{
	cause->error = error;
	if (cause->code == CAUSE_FORKED)
		cause->value = (uint64_t)getpid();
	cause_record(nic_causes(ctx->nic), cause);
	errno = error;
	return error;
}

static uint32_t limit_of(const struct nic_limits *limits, enum verbs_kind kind)
{
	switch (kind) {
	case KIND_PD:
		return limits->max_pd;
	case KIND_MR:
		return limits->max_mr;
	case KIND_MW:
		return NIC_MAX_MW;
	case KIND_CQ:
		return limits->max_cq;
	case KIND_QP:
		return limits->max_qp;
	case KIND_SRQ:
		return limits->max_srq;
	case KIND_AH:
		return limits->max_ah;
	default:
		return 0;
	}
}

/* What makes one. */
static const enum cause_thing makers[KINDS] = {
	[KIND_PD] = CAUSE_THING_ALLOC_PD,  [KIND_MR] = CAUSE_THING_REG_MR,    [KIND_MW] = CAUSE_THING_ALLOC_MW,
	[KIND_CQ] = CAUSE_THING_CREATE_CQ, [KIND_QP] = CAUSE_THING_CREATE_QP, [KIND_SRQ] = CAUSE_THING_CREATE_SRQ,
	[KIND_AH] = CAUSE_THING_CREATE_AH,
};

int object_count(struct verbs_ctx *ctx, enum verbs_kind kind)
{
	uint32_t limit = limit_of(ctx->limits, kind);

	if (atomic_fetch_add(&ctx->device->objects[kind], 1) < limit)
		return 0;
	object_uncount(ctx, kind);
	return refuse(ctx, ENOMEM, CAUSE_OBJECT_TABLE_FULL, .thing = makers[kind], .limit = limit, .value = (uint64_t)limit + 1);
}

void object_uncount(struct verbs_ctx *ctx, enum verbs_kind kind)
{
	atomic_fetch_sub(&ctx->device->objects[kind], 1);
}

void object_enter(struct verbs_ctx *ctx, enum verbs_kind kind, struct list *of_ctx)
{
	pthread_mutex_lock(&ctx->vctx.context.mutex);
	list_add_tail(&ctx->objects[kind], of_ctx);
	pthread_mutex_unlock(&ctx->vctx.context.mutex);
}

void object_leave(struct verbs_ctx *ctx, enum verbs_kind kind, struct list *of_ctx)
{
	object_uncount(ctx, kind);
	/* Another thread may have been in the middle of the list at the fork. */
	if (is_forked(ctx))
		return;
	pthread_mutex_lock(&ctx->vctx.context.mutex);
	list_del(of_ctx);
	pthread_mutex_unlock(&ctx->vctx.context.mutex);
}

void wait_for_acknowledgement(pthread_mutex_t *mutex, pthread_cond_t *cond,
			      const uint32_t *completed, uint32_t read)
{
	pthread_mutex_lock(mutex);
	while (*completed != read)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}
