/* SPDX-License-Identifier: MIT */
/* Endpoints: an id with all that belongs to it, made by one call from what rdma_getaddrinfo() answered. */
#include "rdmacm/rdmacm.h"

#include <stdlib.h>

#define RESOLVE_MS 2000

/* For the QPs of its requests. */
static int keep_attributes(struct id *id, struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	if (!attr)
		return 0;
	id->qp_init_attr = malloc(sizeof(*attr));
	if (!id->qp_init_attr)
		return ENOMEM;
	*id->qp_init_attr = *attr;
	id->qp_init_attr->qp_type = id->id.qp_type;
	if (pd)
		id->id.pd = pd;
	return 0;
}

static int start_passive(struct id *id, const struct rdma_addrinfo *info, struct ibv_pd *pd, const struct ibv_qp_init_attr *attr)
{
	if (rdma_bind_addr(&id->id, info->ai_src_addr))
		return errno;
	return keep_attributes(id, pd, attr);
}

static int start_active(struct id *id, const struct rdma_addrinfo *info, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(&id->id, info->ai_src_addr, info->ai_dst_addr, RESOLVE_MS))
		return errno;
	if (info->ai_route_len) {
		int error = cm_set_option(id->cm, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, info->ai_route, info->ai_route_len);

		if (!error)
			error = id_complete(id); /* as a route that was resolved */
		if (error)
			return error;
	} else if (rdma_resolve_route(&id->id, RESOLVE_MS)) {
		return errno;
	}
	if (!attr)
		return 0;
	attr->qp_type = id->id.qp_type;
	return rdma_create_qp(&id->id, pd, attr) ? errno : 0;
}

PUBLIC int rdma_create_ep(struct rdma_cm_id **handle, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct id *id;
	int error;

	if (!handle || !res)
		return answer(EINVAL);
	error = id_create(NULL, NULL, (enum rdma_port_space)res->ai_port_space, (enum ibv_qp_type)res->ai_qp_type, &id);
	if (error)
		return answer(error);
	error = res->ai_flags & RAI_PASSIVE ? start_passive(id, res, pd, attr) : start_active(id, res, pd, attr);
	if (error) {
		rdma_destroy_ep(&id->id);
		return answer(error);
	}
	*handle = &id->id;
	return 0;
}

PUBLIC void rdma_destroy_ep(struct rdma_cm_id *id)
{
	if (!id)
		return;
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

/* Its QP, as the listener was told to make them. */
static int equip(const struct id *listener, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr;

	if (!listener->qp_init_attr)
		return 0;
	attr = *listener->qp_init_attr;
	return rdma_create_qp(id, listener->id.pd, &attr) ? errno : 0;
}

PUBLIC int rdma_get_request(struct rdma_cm_id *handle, struct rdma_cm_id **out)
{
	struct id *listener = to_id(handle);
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int error;

	if (!out || !listener->sync)
		return answer(EINVAL);
	error = id_complete(listener);
	if (error)
		return answer(error);
	event = handle->event;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return answer(EINVAL); /* it stays in handle->event, for who wants to know */
	handle->event = NULL;
	id = event->id;
	id->event = event;
	error = equip(listener, id);
	if (error) {
		rdma_destroy_ep(id); /* rejects it */
		return answer(error);
	}
	*out = id;
	return 0;
}
