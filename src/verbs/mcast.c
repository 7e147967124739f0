/* SPDX-License-Identifier: MIT */
/* Multicast groups: ibv_attach_mcast(3). On RoCE a LID means nothing. */
#include "roce/group.h"
#include "verbs/verbs.h"

EXPORT(attach_mcast, 1.1);
EXPORT(detach_mcast, 1.1);

static int change(struct ibv_qp *handle, const union ibv_gid *gid, int (*group_change)(struct nic_qp *qp, const union ibv_gid *mgid))
{
	struct verbs_ctx *ctx = to_ctx(handle->context);
	int error;

	if (is_forked(ctx))
		return refuse(ctx, EIO, CAUSE_FORKED);
	error = group_change(&to_qp(handle)->nic, gid);
	if (!error)
		return 0;
	return refuse(ctx, error,
		      error == EINVAL ? CAUSE_GROUP :
		      error == ENOMEM ? CAUSE_NO_MEMORY :
					CAUSE_GROUP_JOIN,
		      .qpn = handle->qp_num);
}

int verb_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)lid;
	return change(qp, gid, group_attach);
}

int verb_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)lid;
	return change(qp, gid, group_detach);
}
