/* SPDX-License-Identifier: MIT */
/* Completion queues, as ibv_create_cq makes them. Extended polling is in cq_ex.c. */
#include "verbs/verbs.h"

#include <stdlib.h>

EXPORT(create_cq, 1.1);
EXPORT(resize_cq, 1.1);
EXPORT(destroy_cq, 1.1);

static int check_cqe(struct verbs_ctx *ctx, uint32_t cqe, enum cause_thing thing)
{
	if (cqe && cqe <= ctx->limits->max_cqe)
		return 0;
	return refuse(ctx, EINVAL, CAUSE_CREATE_LIMIT, .thing = thing, .count = 1, .limit = ctx->limits->max_cqe, .value = cqe);
}

static int check_channel(struct verbs_ctx *ctx, const struct ibv_comp_channel *channel,
			 int comp_vector)
{
	int vectors = ctx->vctx.context.num_comp_vectors;

	if (channel && channel->context != &ctx->vctx.context)
		return refuse(ctx, EINVAL, CAUSE_CREATE_PD_MISMATCH, .thing = CAUSE_THING_CQ_CHANNEL);
	if (comp_vector >= 0 && comp_vector < vectors)
		return 0;
	return refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_CQ_VECTOR, .limit = (uint64_t)vectors - 1,
		      .value = (uint64_t)comp_vector);
}

/* The channel is held from before the NIC knows the CQ until after it has forgotten it. */
static void hold_channel(struct ibv_comp_channel *channel, int change)
{
	if (!channel)
		return;
	pthread_mutex_lock(&channel->context->mutex);
	channel->refcnt += change;
	pthread_mutex_unlock(&channel->context->mutex);
}

struct verbs_cq *cq_make(struct verbs_ctx *ctx, uint32_t cqe, void *cq_context,
			 struct ibv_comp_channel *channel, int comp_vector)
{
	struct verbs_cq *cq;
	int error;

	if (is_forked(ctx))
		return refuse_null(ctx, EIO, CAUSE_FORKED);
	if (check_cqe(ctx, cqe, CAUSE_THING_CQ_CQE) || check_channel(ctx, channel, comp_vector) || object_count(ctx, KIND_CQ))
		return NULL;
	cq = calloc(1, sizeof(*cq));
	if (!cq) {
		error = refuse(ctx, ENOMEM, CAUSE_NO_MEMORY);
		goto no_memory;
	}
	cq->cq.context = &ctx->vctx.context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	hold_channel(channel, 1);
	error = nic_cq_create(ctx->nic, cqe, channel ? &to_channel(channel)->nic : NULL, &cq->nic);
	if (error)
		goto no_queue;
	cq->nic.handle = &cq->cq;
	cq->nic.events = &ctx->events;
	cq->cq.handle = cq->nic.index;
	cq->cq.cqe = (int)cq->nic.capacity;
	object_enter(ctx, KIND_CQ, &cq->of_ctx);
	return cq;

no_queue:
	hold_channel(channel, -1);
	free(cq);
no_memory:
	object_uncount(ctx, KIND_CQ);
	errno = error;
	return NULL;
}

struct ibv_cq *verb_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			      struct ibv_comp_channel *channel, int comp_vector)
{
	struct verbs_cq *cq = cq_make(to_ctx(context), cqe < 0 ? 0 : (uint32_t)cqe, cq_context,
				      channel, comp_vector);

	return cq ? &cq->cq : NULL;
}

int verb_resize_cq(struct ibv_cq *handle, int cqe)
{
	struct verbs_cq *cq = to_cq(handle);
	struct verbs_ctx *ctx = to_ctx(handle->context);
	int error;

	if (is_forked(ctx))
		return refuse(ctx, EIO, CAUSE_FORKED);
	if (check_cqe(ctx, cqe < 0 ? 0 : (uint32_t)cqe, CAUSE_THING_CQ_RESIZE))
		return errno;
	error = nic_cq_resize(&cq->nic, (uint32_t)cqe);
	if (error)
		return answer(error);
	handle->cqe = (int)cq->nic.capacity;
	return 0;
}

static void cq_free(struct verbs_cq *cq)
{
	pthread_mutex_destroy(&cq->cq.mutex);
	pthread_cond_destroy(&cq->cq.cond);
	free(cq);
}

int verb_destroy_cq(struct ibv_cq *handle)
{
	struct verbs_cq *cq = to_cq(handle);
	struct verbs_ctx *ctx = to_ctx(handle->context);
	int error;

	if (is_forked(ctx)) {
		object_uncount(ctx, KIND_CQ);
		free(cq);
		return 0;
	}
	error = nic_cq_destroy(&cq->nic);
	if (error)
		return refuse(ctx, error, CAUSE_BUSY, .thing = CAUSE_THING_DESTROY_CQ, .qpn = handle->handle,
			      .count = atomic_load(&cq->nic.users));
	/* From here on nobody hands out events of this CQ. */
	nic_event_forget(&ctx->events, handle);
	wait_for_acknowledgement(&handle->mutex, &handle->cond, &handle->comp_events_completed,
				 cq->nic.events_read);
	wait_for_acknowledgement(&handle->mutex, &handle->cond, &handle->async_events_completed,
				 cq->async_events_read);
	hold_channel(handle->channel, -1);
	object_leave(ctx, KIND_CQ, &cq->of_ctx);
	cq_free(cq);
	return 0;
}

void cq_abandon(struct list *of_ctx)
{
	struct verbs_cq *cq = list_entry(of_ctx, struct verbs_cq, of_ctx);
	struct verbs_ctx *ctx = to_ctx(cq->cq.context);

	nic_cq_destroy(&cq->nic);
	nic_event_forget(&ctx->events, &cq->cq);
	object_uncount(ctx, KIND_CQ);
	cq_free(cq);
}

int poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	struct verbs_ctx *ctx = to_ctx(cq->context);

	if (is_forked(ctx)) {
		refuse(ctx, EIO, CAUSE_FORKED);
		return -1;
	}
	return nic_cq_poll(&to_cq(cq)->nic, num_entries, wc);
}

int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct verbs_ctx *ctx = to_ctx(cq->context);

	if (is_forked(ctx))
		return refuse(ctx, EIO, CAUSE_FORKED);
	return answer(nic_cq_arm(&to_cq(cq)->nic, solicited_only));
}
