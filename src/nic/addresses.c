/* SPDX-License-Identifier: MIT */
/* Watches the host's addresses. See addresses.h. */
#include "nic/addresses.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "nic/gid.h"
#include "nic/keep_errno.h"

/* Of what the messages say, only that they came is of interest: lost ones do no harm. */
static void ready(struct nic *nic, struct helper_source *source)
{
	struct addresses *addresses = (struct addresses *)source;
	char message[4096];

	while (descriptor_is_ours(addresses->fd) && recv(addresses->fd, message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC) >= 0)
		continue;
	(void)nic;
	gid_update_local();
	pthread_mutex_lock(&addresses->lock);
	list_for_each(node, &addresses->watchers) {
		struct address_watcher *watcher = list_entry(node, struct address_watcher, of_addresses);

		watcher->changed(watcher);
	}
	pthread_mutex_unlock(&addresses->lock);
}

int addresses_start(struct nic *nic)
{
	const struct sockaddr_nl name = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR };
	struct addresses *addresses = calloc(1, sizeof(*addresses));

	if (!addresses)
		return ENOMEM;
	nic->addresses = addresses;
	addresses->source.ready = ready;
	pthread_mutex_init(&addresses->lock, NULL);
	list_init(&addresses->watchers);
	addresses->fd = descriptor_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (addresses->fd >= 0 && (bind(addresses->fd, (const struct sockaddr *)&name, sizeof(name)) ||
				   helper_watch(nic, addresses->fd, &addresses->source))) {
		descriptor_close(addresses->fd);
		addresses->fd = -1;
	}
	return 0;
}

void addresses_stop(struct nic *nic)
{
	struct addresses *addresses = nic->addresses;

	if (!addresses)
		return;
	if (addresses->fd >= 0)
		descriptor_close(addresses->fd);
	if (nic_is_orphan(nic))
		return;
	pthread_mutex_destroy(&addresses->lock);
	free(addresses);
	nic->addresses = NULL;
}

void addresses_watch(struct nic *nic, struct address_watcher *watcher)
{
	KEEP_ERRNO;
	pthread_mutex_lock(&nic->addresses->lock);
	list_add_tail(&nic->addresses->watchers, &watcher->of_addresses);
	watcher->changed(watcher); /* between its last look and now */
	pthread_mutex_unlock(&nic->addresses->lock);
}

void addresses_ignore(struct nic *nic, struct address_watcher *watcher)
{
	pthread_mutex_lock(&nic->addresses->lock);
	list_del(&watcher->of_addresses);
	pthread_mutex_unlock(&nic->addresses->lock);
}
