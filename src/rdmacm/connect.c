/* SPDX-License-Identifier: MIT */
/*
 * Connections: asking for one, answering, ending. An id's QP follows: to RTR and RTS before the answer is sent, to the error state
 * before the end.
 */
#include "rdmacm/rdmacm.h"

#include <string.h>

/* Reasons of a REJ: volume 1, table 114 */
#define REASON_CONSUMER	     28
#define REASON_VENDOR_OPTION 35
#define MOST_RETRIES	     7
#define ECE(id, ece)	     ((id)->id.qp || !(ece).vendor_id ? NULL : &(ece))

/* Of a connected QP: what the device cannot hold is refused here, the other end would learn it too late. */
static int check_param(const struct id *id, const struct rdma_conn_param *param)
{
	if (id->id.qp_type == IBV_QPT_UD)
		return 0;
	if (!id->device || (!id->id.qp && !param))
		return EINVAL;
	if (!param)
		return 0;
	if (param->responder_resources != RDMA_MAX_RESP_RES && param->responder_resources > id->device->responder_resources)
		return EINVAL;
	if (param->initiator_depth != RDMA_MAX_INIT_DEPTH && param->initiator_depth > id->device->initiator_depth)
		return EINVAL;
	return 0;
}

/* What is told to the other end. given: NULL, or the program's. */
static struct rdma_conn_param make_param(const struct id *id, const struct rdma_conn_param *given)
{
	struct rdma_conn_param param = { .retry_count = MOST_RETRIES, .rnr_retry_count = MOST_RETRIES };

	if (given)
		param = *given;
	param.initiator_depth = id->initiator_depth;
	param.responder_resources = id->responder_resources;
	if (id->id.qp) {
		param.qp_num = id->id.qp->qp_num;
		param.srq = !!id->id.qp->srq;
	}
	return param;
}

PUBLIC int rdma_connect(struct rdma_cm_id *handle, struct rdma_conn_param *conn_param)
{
	struct id *id = to_id(handle);
	struct rdma_conn_param param;
	int error;

	/* Not resolved: the connection manager refuses, and says why. */
	if (!id->device)
		return answer(cm_connect(id->cm, NULL, NULL));
	error = check_param(id, conn_param);
	if (error)
		return answer(error);
	id->initiator_depth = id->device->initiator_depth;
	id->responder_resources = id->device->responder_resources;
	if (conn_param && conn_param->initiator_depth != RDMA_MAX_INIT_DEPTH)
		id->initiator_depth = conn_param->initiator_depth;
	if (conn_param && conn_param->responder_resources != RDMA_MAX_RESP_RES)
		id->responder_resources = conn_param->responder_resources;
	param = make_param(id, conn_param);
	error = cm_connect(id->cm, &param, ECE(id, id->local_ece));
	return answer(error ? error : id_complete(id));
}

PUBLIC int rdma_accept(struct rdma_cm_id *handle, struct rdma_conn_param *conn_param)
{
	struct id *id = to_id(handle);
	bool is_ud = handle->qp_type == IBV_QPT_UD;
	struct rdma_conn_param param;
	int error = check_param(id, conn_param);

	if (error)
		return answer(error);
	if (conn_param && conn_param->initiator_depth != RDMA_MAX_INIT_DEPTH)
		id->initiator_depth = conn_param->initiator_depth;
	else if (id->device)
		id->initiator_depth = smaller(id->initiator_depth, id->device->initiator_depth);
	if (conn_param && conn_param->responder_resources != RDMA_MAX_RESP_RES)
		id->responder_resources = conn_param->responder_resources;
	else if (id->device)
		id->responder_resources = smaller(id->responder_resources, id->device->responder_resources);
	param = make_param(id, conn_param);
	/* Of a QP that is connected already this fails, and leaves it as it is. */
	if (!is_ud)
		error = qp_connect(id);
	if (error)
		return answer(error);
	error = cm_accept(id->cm, &param, RDMA_UDP_QKEY, ECE(id, id->local_ece));
	if (error) {
		if (!is_ud)
			qp_fail(id);
		return answer(error);
	}
	/* Of a datagram service the other end's answer is all that there is. */
	return is_ud ? 0 : answer(id_complete(id));
}

PUBLIC int rdma_establish(struct rdma_cm_id *handle)
{
	if (handle->qp)
		return answer(EINVAL);
	return answer(cm_accept(to_id(handle)->cm, NULL, 0, NULL));
}

PUBLIC int rdma_reject(struct rdma_cm_id *handle, const void *private_data, uint8_t private_data_len)
{
	return answer(cm_reject(to_id(handle)->cm, private_data, private_data_len, REASON_CONSUMER));
}

PUBLIC int rdma_reject_ece(struct rdma_cm_id *handle, const void *private_data, uint8_t private_data_len)
{
	return answer(cm_reject(to_id(handle)->cm, private_data, private_data_len, REASON_VENDOR_OPTION));
}

PUBLIC int rdma_disconnect(struct rdma_cm_id *handle)
{
	struct id *id = to_id(handle);
	int error;

	qp_fail(id);
	error = cm_disconnect(id->cm);
	return answer(error ? error : id_complete(id));
}

PUBLIC int rdma_notify(struct rdma_cm_id *handle, enum ibv_event_type event)
{
	return answer(cm_notify(to_id(handle)->cm, event));
}

/* Both are for who has a QP of his own; of ours the device negotiates. */
PUBLIC int rdma_set_local_ece(struct rdma_cm_id *handle, struct ibv_ece *ece)
{
	if (handle->qp || !ece)
		return answer(EINVAL);
	to_id(handle)->local_ece = *ece;
	return 0;
}

PUBLIC int rdma_get_remote_ece(struct rdma_cm_id *handle, struct ibv_ece *ece)
{
	if (handle->qp || !ece)
		return answer(EINVAL);
	*ece = to_id(handle)->remote_ece;
	return 0;
}
