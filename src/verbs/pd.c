/* SPDX-License-Identifier: MIT */
/* Protection domains: a number that keys and queues carry, and a count of who uses it. */
#include "verbs/verbs.h"

#include <stdlib.h>

EXPORT(alloc_pd, 1.1);
EXPORT(dealloc_pd, 1.1);

struct ibv_pd *verb_alloc_pd(struct ibv_context *context)
{
	struct verbs_ctx *ctx = to_ctx(context);
	struct verbs_pd *pd;

	if (is_forked(ctx))
		return refuse_null(ctx, EIO, CAUSE_FORKED);
	if (object_count(ctx, KIND_PD))
		return NULL;
	pd = calloc(1, sizeof(*pd));
	if (!pd) {
		object_uncount(ctx, KIND_PD);
		return refuse_null(ctx, ENOMEM, CAUSE_NO_MEMORY);
	}
	pd->number = nic_new_pd(ctx->nic);
	pd->pd.context = context;
	pd->pd.handle = pd->number;
	object_enter(ctx, KIND_PD, &pd->of_ctx);
	return &pd->pd;
}

int verb_dealloc_pd(struct ibv_pd *handle)
{
	struct verbs_pd *pd = to_pd(handle);
	struct verbs_ctx *ctx = to_ctx(handle->context);
	uint32_t users = atomic_load(&pd->users);

	if (users && !is_forked(ctx))
		return refuse(ctx, EBUSY, CAUSE_BUSY, .thing = CAUSE_THING_DEALLOC_PD, .pd = pd->number, .count = users);
	object_leave(ctx, KIND_PD, &pd->of_ctx);
	free(pd);
	return 0;
}

void pd_abandon(struct list *of_ctx)
{
	struct verbs_pd *pd = list_entry(of_ctx, struct verbs_pd, of_ctx);

	object_uncount(to_ctx(pd->pd.context), KIND_PD);
	free(pd);
}
