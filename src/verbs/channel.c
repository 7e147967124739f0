/* SPDX-License-Identifier: MIT */
/* Completion channels: where completion events of CQs are read. */
#include "verbs/verbs.h"

#include <stdlib.h>
#include <unistd.h>

EXPORT(create_comp_channel, 1.0);
EXPORT(destroy_comp_channel, 1.0);
EXPORT(get_cq_event, 1.1);
EXPORT(ack_cq_events, 1.1);

struct ibv_comp_channel *verb_create_comp_channel(struct ibv_context *context)
{
	struct verbs_ctx *ctx = to_ctx(context);
	struct verbs_channel *channel;
	int error;

	if (is_forked(ctx))
		return refuse_null(ctx, EIO, CAUSE_FORKED);
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return refuse_null(ctx, ENOMEM, CAUSE_NO_MEMORY);
	error = nic_channel_init(&channel->nic);
	if (error) {
		free(channel);
		return refuse_null(ctx, error, CAUSE_NO_MEMORY);
	}
	channel->channel.context = context;
	channel->channel.fd = channel->nic.fd;
	pthread_mutex_lock(&context->mutex);
	list_add_tail(&ctx->channels, &channel->of_ctx);
	pthread_mutex_unlock(&context->mutex);
	return &channel->channel;
}

int verb_destroy_comp_channel(struct ibv_comp_channel *handle)
{
	struct verbs_channel *channel = to_channel(handle);
	struct verbs_ctx *ctx = to_ctx(handle->context);
	int users;

	if (is_forked(ctx)) {
		nic_tokens_close(handle->fd);
		free(channel);
		return 0;
	}
	pthread_mutex_lock(&handle->context->mutex);
	users = handle->refcnt;
	if (!users)
		list_del(&channel->of_ctx);
	pthread_mutex_unlock(&handle->context->mutex);
	if (users)
		return refuse(ctx, EBUSY, CAUSE_BUSY, .thing = CAUSE_THING_DESTROY_CHANNEL, .count = (uint64_t)users);
	nic_channel_destroy(&channel->nic);
	free(channel);
	return 0;
}

void channel_abandon(struct list *of_ctx)
{
	struct verbs_channel *channel = list_entry(of_ctx, struct verbs_channel, of_ctx);

	nic_channel_destroy(&channel->nic);
	free(channel);
}

int verb_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct verbs_ctx *ctx = to_ctx(channel->context);
	struct nic_cq *found;

	if (is_forked(ctx)) {
		refuse(ctx, EIO, CAUSE_FORKED);
		return -1;
	}
	found = nic_channel_wait(&to_channel(channel)->nic);
	if (!found)
		return -1;
	*cq = found->handle;
	*cq_context = (*cq)->cq_context;
	return 0;
}

void verb_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	if (is_forked(to_ctx(cq->context)))
		return;
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
