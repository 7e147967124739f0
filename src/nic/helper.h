/* SPDX-License-Identifier: MIT */
/*
 * The helper: the one thread that the library adds to a process. It covers the time in which nobody
 * calls in: timers, unfinished copies, attention, peers that attach, ask for assistance or die. It
 * sleeps in epoll, never spins, and blocks all signals, so that the program's handlers run on the
 * program's threads.
 */
#ifndef UROCE_NIC_HELPER_H
#define UROCE_NIC_HELPER_H

#include "nic/nic.h"

/* What has a descriptor in the helper's epoll set, as data.ptr; the first member of what it is. */
struct helper_source {
	void (*ready)(struct nic *nic, struct helper_source *source);
};

/* The helper calls source->ready when there is something to read on fd, until that is closed. 0, or errno. */
int helper_watch(struct nic *nic, int fd, struct helper_source *source);
/* Whether it is listened to, from now on; and no more at all, which closing does not do while a forked child has a copy. */
void helper_listen(struct nic *nic, int fd, struct helper_source *source, bool listen);
void helper_ignore(struct nic *nic, int fd);

/* 0, or errno. */
int helper_start(struct nic *nic);
/* False when it cannot be told: the program closed its descriptors behind our back. */
bool helper_stop(struct nic *nic);

#endif
