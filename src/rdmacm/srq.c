/* SPDX-License-Identifier: MIT */
/* The shared receive queue of an id, which its QP takes by itself. */
#include "rdmacm/rdmacm.h"

#include <stddef.h>
#include <string.h>

static int create_srq(struct id *id, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq *srq;

	if (id->id.srq || !id->device)
		return EINVAL;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = id->id.pd;
	}
	if (attr->pd->context != id->id.verbs)
		return EINVAL;
	srq = ibv_create_srq_ex(id->id.verbs, attr);
	if (!srq)
		return errno;
	id->id.srq = srq;
	id->id.pd = srq->pd;
	return 0;
}

PUBLIC int rdma_create_srq_ex(struct rdma_cm_id *handle, struct ibv_srq_init_attr_ex *attr)
{
	if (!attr)
		return answer(EINVAL);
	return answer(create_srq(to_id(handle), attr));
}

PUBLIC int rdma_create_srq(struct rdma_cm_id *handle, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = { 0 };
	int error;

	if (!attr)
		return answer(EINVAL);
	/* The one is the beginning of the other, but for its padding. */
	memcpy(&ex, attr, offsetof(struct ibv_srq_init_attr_ex, comp_mask));
	ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	ex.srq_type = IBV_SRQT_BASIC;
	if (pd) {
		ex.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		ex.pd = pd;
	}
	error = create_srq(to_id(handle), &ex);
	if (!error)
		memcpy(attr, &ex, offsetof(struct ibv_srq_init_attr_ex, comp_mask));
	return answer(error);
}

PUBLIC void rdma_destroy_srq(struct rdma_cm_id *id)
{
	if (id->srq)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
}
