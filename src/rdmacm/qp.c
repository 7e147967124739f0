/* SPDX-License-Identifier: MIT */
/*
 * The QP of an id, with completion queues where the program brings none, and its way through the states: INIT when it is made (a
 * datagram QP goes on to RTS), RTR and RTS when the exchange has said whom it talks to.
 */
#include "rdmacm/rdmacm.h"

#include <stddef.h>
#include <string.h>

/* As rdma_init_qp_attr(3). */
static int init_attr(struct id *id, struct ibv_qp_attr *attr, int *mask)
{
	int index = id->device ? device_gid_index(id->device, &id->id.route.addr.addr.ibaddr.sgid) : -1;
	int error = cm_init_qp_attr(id->cm, attr->qp_state, attr, mask);

	if (error)
		return error;
	if (*mask & IBV_QP_AV) {
		if (index < 0)
			return ENODEV;
		attr->ah_attr.grh.sgid_index = (uint8_t)index;
	}
	return 0;
}

PUBLIC int rdma_init_qp_attr(struct rdma_cm_id *handle, struct ibv_qp_attr *qp_attr, int *qp_attr_mask)
{
	if (!qp_attr || !qp_attr_mask)
		return answer(EINVAL);
	return answer(init_attr(to_id(handle), qp_attr, qp_attr_mask));
}

static int move(struct id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask, error = init_attr(id, &attr, &mask);

	if (error)
		return error;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		attr.max_dest_rd_atomic = id->responder_resources;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		attr.max_rd_atomic = id->initiator_depth;
	return ibv_modify_qp(qp, &attr, mask);
}

int qp_connect(struct id *id)
{
	struct ibv_qp *qp = id->id.qp;
	int error;

	if (!qp)
		return 0;
	/* INIT again: now the access rights are known. */
	error = move(id, qp, IBV_QPS_INIT);
	if (!error)
		error = move(id, qp, IBV_QPS_RTR);
	return error ? error : move(id, qp, IBV_QPS_RTS);
}

void qp_fail(struct id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (id->id.qp)
		ibv_modify_qp(id->id.qp, &attr, IBV_QP_STATE);
}

static int start_datagrams(struct id *id, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	int error = move(id, qp, IBV_QPS_INIT);

	if (error)
		return error;
	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	if (error)
		return error;
	attr.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

static void destroy_cq(struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	if (*cq)
		ibv_destroy_cq(*cq);
	if (*channel)
		ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
}

/* Those that we made; the program's own are not in the id. */
static void destroy_cqs(struct rdma_cm_id *id)
{
	destroy_cq(&id->recv_cq, &id->recv_cq_channel);
	destroy_cq(&id->send_cq, &id->send_cq_channel);
}

/* A queue of no entries is still one that a QP can have. */
static int create_cq(struct rdma_cm_id *id, uint32_t entries, struct ibv_cq **cq, struct ibv_comp_channel **channel)
{
	*channel = ibv_create_comp_channel(id->verbs);
	if (!*channel)
		return errno;
	*cq = ibv_create_cq(id->verbs, entries ? (int)entries : 1, id, *channel, 0);
	return *cq ? 0 : errno;
}

static int create_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr)
{
	int error = 0;

	if (!attr->recv_cq)
		error = create_cq(id, attr->cap.max_recv_wr, &id->recv_cq, &id->recv_cq_channel);
	if (!error && !attr->send_cq)
		error = create_cq(id, attr->cap.max_send_wr, &id->send_cq, &id->send_cq_channel);
	if (error)
		return error;
	if (!attr->recv_cq)
		attr->recv_cq = id->recv_cq;
	if (!attr->send_cq)
		attr->send_cq = id->send_cq;
	return 0;
}

static int create_qp(struct id *id, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp;
	int error;

	if (id->id.qp || !id->device)
		return EINVAL;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->id.pd;
	}
	if (attr->pd->context != id->id.verbs)
		return EINVAL;
	error = create_cqs(&id->id, attr);
	if (error)
		goto no_qp;
	if (!attr->srq)
		attr->srq = id->id.srq;
	qp = ibv_create_qp_ex(id->id.verbs, attr);
	if (!qp) {
		error = errno;
		goto no_qp;
	}
	error = id->id.qp_type == IBV_QPT_UD ? start_datagrams(id, qp) : move(id, qp, IBV_QPS_INIT);
	if (error) {
		ibv_destroy_qp(qp);
		goto no_qp;
	}
	id->id.qp = qp;
	id->id.pd = qp->pd;
	return 0;

no_qp:
	destroy_cqs(&id->id);
	return error;
}

PUBLIC int rdma_create_qp_ex(struct rdma_cm_id *handle, struct ibv_qp_init_attr_ex *qp_init_attr)
{
	if (!qp_init_attr)
		return answer(EINVAL);
	return answer(create_qp(to_id(handle), qp_init_attr));
}

PUBLIC int rdma_create_qp(struct rdma_cm_id *handle, struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
{
	struct ibv_qp_init_attr_ex attr = { 0 };
	int error;

	if (!qp_init_attr)
		return answer(EINVAL);
	/* The one is the beginning of the other, but for its padding. */
	memcpy(&attr, qp_init_attr, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
	if (pd) {
		attr.comp_mask = IBV_QP_INIT_ATTR_PD;
		attr.pd = pd;
	}
	error = create_qp(to_id(handle), &attr);
	if (!error)
		memcpy(qp_init_attr, &attr, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
	return answer(error);
}

PUBLIC void rdma_destroy_qp(struct rdma_cm_id *id)
{
	if (id->qp)
		ibv_destroy_qp(id->qp);
	id->qp = NULL;
	destroy_cqs(id);
}
