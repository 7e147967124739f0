/* SPDX-License-Identifier: MIT */
/* Event channels. The descriptor is the connection manager's. */
#include "rdmacm/rdmacm.h"

#include <stdlib.h>

PUBLIC struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct channel *channel;
	int error;

	error = devices_begin();
	if (error) {
		errno = error;
		return NULL;
	}
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return NULL;
	channel->generation = fork_generation();
	error = cm_open_channel(&channel->cm, &channel->channel.fd);
	if (!error)
		return &channel->channel;
	free(channel);
	errno = error;
	return NULL;
}

PUBLIC void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	if (!channel)
		return;
	cm_close_channel(to_channel(channel)->cm);
	free(channel);
}
