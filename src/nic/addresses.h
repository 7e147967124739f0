/* SPDX-License-Identifier: MIT */
/*
 * Watches the host's addresses and interfaces, which come and go: the kernel tells (rtnetlink(7)). Where it does not, nothing is
 * seen to change until a device is opened anew.
 */
#ifndef UROCE_NIC_ADDRESSES_H
#define UROCE_NIC_ADDRESSES_H

#include "nic/helper.h"
#include "nic/list.h"

struct addresses {
	struct helper_source source; /* must be first */
	int fd;			     /* -1: not told */
	pthread_mutex_t lock;	     /* what follows */
	struct list watchers;
};

/* Whom it concerns. */
struct address_watcher {
	/* Something may have changed. Called by the helper, and once when the watch begins; under the lock, so neither of
	 * the two below may be. */
	void (*changed)(struct address_watcher *watcher);
	struct list of_addresses;
};

/* 0, or ENOMEM. */
int addresses_start(struct nic *nic);
/* The helper has ended. In a forked child: only closes the descriptor. */
void addresses_stop(struct nic *nic);

void addresses_watch(struct nic *nic, struct address_watcher *watcher);
/* It is not called any more. */
void addresses_ignore(struct nic *nic, struct address_watcher *watcher);

#endif
