/* SPDX-License-Identifier: MIT */
/* Events of ids, and the channels that they are read from. See engine.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cm/engine.h"
#include "cm/group.h"
#include "nic/event.h"
#include "nic/keep_errno.h"

struct cm_channel *channel_make(struct cm *cm)
{
	struct cm_channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return NULL;
	channel->cm = cm;
	channel->fd = nic_tokens_open();
	if (channel->fd < 0) {
		free(channel);
		return NULL;
	}
	list_init(&channel->ids);
	list_init(&channel->events);
	list_add_tail(&cm->channels, &channel->of_cm);
	return channel;
}

void channel_free(struct cm_channel *channel)
{
	list_for_each_safe(node, tmp, &channel->events)
		free(list_entry(node, struct queued_event, node));
	list_del(&channel->of_cm);
	nic_tokens_close(channel->fd);
	free(channel);
}

void channel_raise(struct cm_id *id, const struct cm_event *event, struct cm_group *group)
{
	struct queued_event *queued;

	/* As the kernel: of a new id only the request itself. */
	if (!id->channel || (id->is_new && event->type != RDMA_CM_EVENT_CONNECT_REQUEST))
		return;
	queued = malloc(sizeof(*queued));
	if (!queued) {
		queued = id->spare;
		id->spare = NULL;
	}
	if (!queued) /* lost, as a message would be */
		return;
	queued->event = *event;
	queued->group = group;
	list_add_tail(&id->channel->events, &queued->node);
	nic_tokens_add(id->channel->fd, 1);
}

void channel_raise_plain(struct cm_id *id, enum rdma_cm_event_type type, int status)
{
	const struct cm_event event = { .id = id, .type = type, .status = status, .is_ud = id->type == IBV_QPT_UD };

	channel_raise(id, &event, NULL);
}

void channel_forget(struct cm_id *id)
{
	struct cm_channel *channel = id->channel;
	struct list children;

	list_init(&children);
	list_for_each_safe(node, tmp, &channel->events) {
		struct queued_event *queued = list_entry(node, struct queued_event, node);

		if (queued->event.id != id && queued->event.listener != id)
			continue;
		list_del(node);
		nic_tokens_drop(channel->fd, 1);
		/* A request that its listener leaves behind. */
		if (queued->event.listener == id)
			list_add_tail(&children, node);
		else
			free(queued);
	}
	list_for_each_safe(node, tmp, &children) {
		struct queued_event *queued = list_entry(node, struct queued_event, node);
		unsigned read;

		id_destroy(queued->event.id, &read);
		free(queued);
	}
}

/* The next event, with the context that its id has now. Lock held. */
static bool take_event(struct cm_channel *channel, struct cm_event *event)
{
	struct queued_event *queued;
	struct cm_id *about;

	if (list_empty(&channel->events)) /* it was dropped */
		return false;
	queued = list_entry(channel->events.next, struct queued_event, node);
	list_del(&queued->node);
	*event = queued->event;
	about = event->listener ? event->listener : event->id;
	about->events_read++;
	if (event->listener) {
		event->listener->pending--;
		event->id->listener = NULL;
	}
	event->context = about->context;
	if (queued->group)
		event->context = group_event_read(queued->group);
	if (event->is_ud)
		event->param.ud.private_data = event->param.ud.private_data_len ? event->data : NULL;
	else
		event->param.conn.private_data = event->param.conn.private_data_len ? event->data : NULL;
	if (event->id->spare)
		free(queued);
	else
		event->id->spare = queued;
	return true;
}

int cm_get_event(struct cm_channel *channel, struct cm_event *event)
{
	KEEP_ERRNO;
	bool taken = false;

	while (!taken) {
		if (cm_is_forked(channel->cm))
			return ENODEV;
		if (nic_tokens_take(channel->fd))
			return errno;
		pthread_mutex_lock(&channel->cm->lock);
		taken = take_event(channel, event);
		pthread_mutex_unlock(&channel->cm->lock);
	}
	return 0;
}

int cm_migrate_id(struct cm_id *id, struct cm_channel *to, unsigned *read)
{
	KEEP_ERRNO;
	struct cm *cm = id->cm;
	struct cm_channel *from = id->channel;
	uint32_t moved = 0;

	*read = 0;
	if (cm_is_forked(cm) || to->cm != cm)
		return ENODEV;
	pthread_mutex_lock(&cm->lock);
	list_for_each_safe(node, tmp, &from->events) {
		struct queued_event *queued = list_entry(node, struct queued_event, node);

		if (queued->event.id != id && queued->event.listener != id)
			continue;
		if (queued->event.listener == id) {
			list_del(&queued->event.id->of_channel);
			list_add_tail(&to->ids, &queued->event.id->of_channel);
			queued->event.id->channel = to;
		}
		list_del(node);
		list_add_tail(&to->events, node);
		moved++;
	}
	list_del(&id->of_channel);
	list_add_tail(&to->ids, &id->of_channel);
	id->channel = to;
	nic_tokens_drop(from->fd, moved);
	if (moved)
		nic_tokens_add(to->fd, moved);
	*read = id->events_read;
	pthread_mutex_unlock(&cm->lock);
	return 0;
}
