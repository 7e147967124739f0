/* SPDX-License-Identifier: MIT */
/*
 * Ids: their making and end, the count of events that these wait for, the way of those that work without a channel, and the move
 * from one channel to another.
 */
#include "rdmacm/rdmacm.h"

#include <stdlib.h>

/* What is ours of an id; the connection manager's part is to be set. */
static struct id *make_id(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->id.channel = channel;
	id->id.context = context;
	id->id.ps = ps;
	id->id.qp_type = type;
	id->generation = fork_generation();
	pthread_mutex_init(&id->lock, NULL);
	pthread_cond_init(&id->cond, NULL);
	return id;
}

static void free_id(struct id *id)
{
	if (!is_forked(id->generation)) {
		pthread_mutex_destroy(&id->lock);
		pthread_cond_destroy(&id->cond);
		if (id->device)
			device_release(id->device);
	}
	groups_free(id);
	free(id->id.route.path_rec);
	free(id->qp_init_attr);
	free(id);
}

int id_create(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type, struct id **made)
{
	struct rdma_event_channel *own = NULL;
	struct id *id;
	int error;

	if (!channel) {
		own = rdma_create_event_channel();
		if (!own)
			return errno;
		channel = own;
	}
	id = make_id(channel, context, ps, type);
	error = id ? cm_create_id(to_channel(channel)->cm, id, ps, type, &id->cm) : ENOMEM;
	if (error) {
		if (id)
			free_id(id);
		rdma_destroy_event_channel(own);
		return error;
	}
	id->sync = own;
	*made = id;
	return 0;
}

int id_adopt(struct cm_id *cm, struct id *listener, struct id **made)
{
	struct id *id = make_id(listener->id.channel, listener->id.context, listener->id.ps, listener->id.qp_type);
	unsigned read;
	int error;

	if (!id) {
		cm_destroy_id(cm, &read);
		return ENOMEM;
	}
	id->cm = cm;
	cm_set_context(cm, id);
	error = id_query(id, true);
	if (!error && listener->sync && rdma_migrate_id(&id->id, NULL))
		error = errno;
	if (error) {
		rdma_destroy_id(&id->id);
		return error;
	}
	*made = id;
	return 0;
}

static enum ibv_qp_type type_of(enum rdma_port_space ps)
{
	return ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
}

PUBLIC int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	struct id *made;
	int error;

	if (!id || (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IPOIB && ps != RDMA_PS_IB))
		return answer(EINVAL);
	error = id_create(channel, context, ps, type_of(ps), &made);
	if (!error)
		*id = &made->id;
	return answer(error);
}

void id_acknowledge(struct id *id, struct group *group)
{
	if (is_forked(id->generation))
		return;
	pthread_mutex_lock(&id->lock);
	id->acknowledged++;
	if (group)
		group->acknowledged++;
	pthread_cond_broadcast(&id->cond);
	pthread_mutex_unlock(&id->lock);
}

void id_wait_acknowledged(struct id *id, const unsigned *acknowledged, unsigned read)
{
	pthread_mutex_lock(&id->lock);
	while (*acknowledged != read)
		pthread_cond_wait(&id->cond, &id->lock);
	pthread_mutex_unlock(&id->lock);
}

static void drop_event(struct id *id)
{
	struct rdma_cm_event *event = id->id.event;

	id->id.event = NULL;
	if (event)
		rdma_ack_cm_event(event);
}

PUBLIC int rdma_destroy_id(struct rdma_cm_id *handle)
{
	struct id *id;
	unsigned read = 0;

	if (!handle)
		return answer(EINVAL);
	id = to_id(handle);
	cm_destroy_id(id->cm, &read);
	drop_event(id);
	if (!is_forked(id->generation))
		id_wait_acknowledged(id, &id->acknowledged, read);
	if (id->sync)
		rdma_destroy_event_channel(handle->channel);
	free_id(id);
	return 0;
}

int id_complete(struct id *id)
{
	const struct rdma_cm_event *event;

	if (!id->sync)
		return 0;
	drop_event(id);
	if (rdma_get_cm_event(id->id.channel, &id->id.event))
		return errno;
	event = id->id.event;
	if (!event->status)
		return 0;
	/* A reason of the other end's, no errno */
	return event->status > 0 ? ECONNREFUSED : -event->status;
}

PUBLIC int rdma_migrate_id(struct rdma_cm_id *handle, struct rdma_event_channel *channel)
{
	struct rdma_event_channel *own = NULL;
	struct id *id = to_id(handle);
	unsigned read = 0;
	int error;

	if (id->sync && !channel)
		return answer(EINVAL);
	if (!channel) {
		own = rdma_create_event_channel();
		if (!own)
			return -1;
		channel = own;
	}
	error = cm_migrate_id(id->cm, to_channel(channel)->cm, &read);
	if (error) {
		rdma_destroy_event_channel(own);
		return answer(error);
	}
	if (id->sync)
		drop_event(id);
	id_wait_acknowledged(id, &id->acknowledged, read);
	if (id->sync)
		rdma_destroy_event_channel(handle->channel);
	id->sync = own;
	handle->channel = channel;
	return 0;
}
