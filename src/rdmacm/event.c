/* SPDX-License-Identifier: MIT */
/*
 * Reading events, and what librdmacm does when one is read: a request gets an id, an id that found its address its device, a QP its
 * states, a group its QP.
 *
 * An event that is read counts for its id until it is acknowledged, and nobody frees the id meanwhile. Who reads one that he does
 * not pass on acknowledges it himself.
 */
#include "rdmacm/rdmacm.h"

#include <stdlib.h>

/* Turns a success that we could not follow into the failure that stands for it. */
static void fail_with(struct event *event, enum rdma_cm_event_type type, int error)
{
	if (!error)
		return;
	event->event.event = type;
	event->event.status = -error;
}

/* False: the request is gone. */
static bool take_request(struct event *event)
{
	struct id *listener = event->owner, *id;

	if (id_adopt(event->cm.id, listener, &id))
		return false;
	id->remote_ece = event->cm.ece;
	if (!event->cm.is_ud) {
		id->initiator_depth = event->cm.param.conn.initiator_depth;
		id->responder_resources = event->cm.param.conn.responder_resources;
	}
	event->event.listen_id = &listener->id;
	event->event.id = &id->id;
	return true;
}

static void take_response(struct event *event)
{
	const struct rdma_conn_param *param = &event->cm.param.conn;
	struct id *id = event->owner;
	int error;

	id->remote_ece = event->cm.ece;
	id->initiator_depth = smaller(id->initiator_depth, param->initiator_depth);
	id->responder_resources = smaller(id->responder_resources, param->responder_resources);
	if (!id->id.qp)
		return; /* rdma_establish() is the program's to call */
	error = qp_connect(id);
	if (!error)
		error = cm_accept(id->cm, NULL, 0, NULL);
	if (error) {
		qp_fail(id);
		id->failed = true;
	}
	event->event.event = RDMA_CM_EVENT_ESTABLISHED;
	fail_with(event, RDMA_CM_EVENT_CONNECT_ERROR, error);
}

/* The address handle's attributes that depend on the device. */
static void complete_ud(struct event *event)
{
	struct rdma_ud_param *ud = &event->event.param.ud;
	const struct id *id = event->owner;
	int index;

	if (!event->cm.is_ud || !id->device)
		return;
	index = device_gid_index(id->device, &id->id.route.addr.addr.ibaddr.sgid);
	if (index < 0)
		return;
	ud->ah_attr.grh.sgid_index = (uint8_t)index;
	ud->ah_attr.port_num = id->id.port_num;
}

/* False: not for the program. */
static bool handle(struct event *event)
{
	struct id *id = event->owner;

	switch (event->event.event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		fail_with(event, RDMA_CM_EVENT_ADDR_ERROR, id_query(id, false));
		return true;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		fail_with(event, RDMA_CM_EVENT_ROUTE_ERROR, id_query(id, true));
		return true;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return take_request(event);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		take_response(event);
		return true;
	case RDMA_CM_EVENT_ESTABLISHED:
		complete_ud(event);
		return true;
	case RDMA_CM_EVENT_REJECTED:
		if (id->failed)
			return false;
		qp_fail(id);
		return true;
	case RDMA_CM_EVENT_DISCONNECTED:
		return !id->failed;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		complete_ud(event);
		fail_with(event, RDMA_CM_EVENT_MULTICAST_ERROR, group_joined(event->group, &event->event.param.ud));
		return true;
	default:
		return true;
	}
}

static bool is_multicast(enum rdma_cm_event_type type)
{
	return type == RDMA_CM_EVENT_MULTICAST_JOIN || type == RDMA_CM_EVENT_MULTICAST_ERROR;
}

/* The public event from the connection manager's. */
static void translate(struct event *event)
{
	struct rdma_cm_event *told = &event->event;

	if (is_multicast(event->cm.type)) {
		event->group = event->cm.context;
		event->owner = event->group->id;
	} else {
		event->owner = event->cm.context;
	}
	told->id = &event->owner->id;
	told->event = event->cm.type;
	told->status = event->cm.status;
	if (event->cm.is_ud)
		told->param.ud = event->cm.param.ud;
	else
		told->param.conn = event->cm.param.conn;
	if (event->group)
		told->param.ud.private_data = event->group->context;
}

/* A cancellation point while it waits. */
static int get_event(struct cm_channel *channel, struct event *event)
{
	int error;

	pthread_cleanup_push(free, event);
	error = cm_get_event(channel, &event->cm);
	pthread_cleanup_pop(false);
	return error;
}

PUBLIC int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **out)
{
	struct event *event;
	int error;

	if (!channel || !out)
		return answer(EINVAL);
	event = calloc(1, sizeof(*event));
	if (!event)
		return answer(ENOMEM);
	while (!(error = get_event(to_channel(channel)->cm, event))) {
		translate(event);
		if (handle(event)) {
			*out = &event->event;
			return 0;
		}
		id_acknowledge(event->owner, event->group);
		event->group = NULL;
	}
	free(event);
	return answer(error);
}

PUBLIC int rdma_ack_cm_event(struct rdma_cm_event *told)
{
	struct event *event = (struct event *)told;

	if (!event)
		return answer(EINVAL);
	id_acknowledge(event->owner, event->group);
	free(event);
	return 0;
}
