/* SPDX-License-Identifier: MIT */
/* Memory windows: allocation and, for type 1, the verb that posts a bind. The rest are work requests (nic/mw.h). */
#include "verbs/verbs.h"

#include <stdlib.h>

static struct verbs_mw *to_mw(struct ibv_mw *mw)
{
	return (struct verbs_mw *)mw;
}

struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct verbs_ctx *ctx = to_ctx(pd->context);
	struct verbs_mw *mw;
	int error;

	if (is_forked(ctx))
		return refuse_null(ctx, EIO, CAUSE_FORKED);
	if (!ctx->limits->windows)
		return refuse_null(ctx, EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_ALLOC_MW, .value = type);
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return refuse_null(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_MW_TYPE, .value = type);
	if (object_count(ctx, KIND_MW))
		return NULL;
	mw = calloc(1, sizeof(*mw));
	if (!mw) {
		error = refuse(ctx, ENOMEM, CAUSE_NO_MEMORY);
		goto no_memory;
	}
	error = nic_mw_alloc(ctx->nic, to_pd(pd)->number, type, &mw->handle.nic);
	if (error)
		goto no_window;
	mw->handle.mw = (struct ibv_mw){
		.context = pd->context,
		.pd = pd,
		.rkey = mw_key(&mw->handle.nic),
		.handle = mw->handle.nic.index,
		.type = type,
	};
	atomic_fetch_add(&to_pd(pd)->users, 1);
	object_enter(ctx, KIND_MW, &mw->of_ctx);
	return &mw->handle.mw;

no_window:
	free(mw);
no_memory:
	object_uncount(ctx, KIND_MW);
	errno = error;
	return NULL;
}

int dealloc_mw(struct ibv_mw *handle)
{
	struct verbs_mw *mw = to_mw(handle);
	struct verbs_ctx *ctx = to_ctx(handle->context);
	int error = is_forked(ctx) ? 0 : nic_mw_dealloc(&mw->handle.nic);

	if (error)
		return answer(error);
	atomic_fetch_sub(&to_pd(handle->pd)->users, 1);
	object_leave(ctx, KIND_MW, &mw->of_ctx);
	free(mw);
	return 0;
}

/* One that a stopped process is using stays, and with it its region. */
void mw_abandon(struct list *of_ctx)
{
	struct verbs_mw *mw = list_entry(of_ctx, struct verbs_mw, of_ctx);

	object_uncount(to_ctx(mw->handle.mw.context), KIND_MW);
	if (!nic_mw_dealloc(&mw->handle.nic))
		free(mw);
}

/* Type 1; verbs.h has looked at that, and at the region's protection domain. The key is the next one, as hardware's libraries make
 * it: it counts once the bind has completed. */
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct verbs_ctx *ctx = to_ctx(qp->context);
	struct ibv_send_wr *bad, wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = {
			.mw = mw,
			.rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = bind->bind_info,
		},
	};
	int error;

	if (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED)
		return refuse(ctx, EINVAL, CAUSE_BIND_ZERO_BASED, .qpn = qp->qp_num,
			      .wr_id = bind->wr_id, .access = bind->bind_info.mw_access_flags);
	error = post_send(qp, &wr, &bad);
	if (!error)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}
