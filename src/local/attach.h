/* SPDX-License-Identifier: MIT */
/*
 * Attaching: the sockets of our slots, the processes that we share memory with, their life and
 * death.
 *
 * A slot is claimed by binding the abstract unix socket "uroce/SLOT": such names are unique in a
 * network namespace, as UDP ports are, and the kernel frees them at death. Peers connect there,
 * both sides tell what they are and hand over their segment and doorbell. Everything here that
 * waits for others runs on the helper's thread.
 */
#ifndef UROCE_LOCAL_ATTACH_H
#define UROCE_LOCAL_ATTACH_H

#include <sys/types.h>

#include "local/message.h"
#include "local/view.h"
#include "local/window.h"
#include "nic/attention.h"
#include "nic/nic.h"
#include "nic/visit.h"

struct peer {
	struct visitor visitor; /* its segment; must be first */
	struct target target;
	struct windows windows; /* its pages file */
	struct views views;	/* other files of its regions */
	uint64_t instance;
	uint64_t size; /* bytes mapped */
	uint32_t primary_slot;
	pid_t pid; /* as we see it; 0: not visible */
	bool is_self;
	_Atomic bool dead;
	_Atomic bool cma; /* process_vm_readv reaches it */
	_Atomic uint32_t
		/* QPs connected to it, messages under way; under attach->lock when it drops to 0 */
		refs;
	struct list of_attach;
	int conn; /* where we ask it for assistance, -1: not connected; under attach->lock */
	_Atomic uint32_t asked; /* requests without an answer */
	struct list asks;	/* of assist.c, under its lock */
};

/* Claims the first slot and makes the sockets; in nic_open. 0, or errno. */
int attach_start(struct nic *nic);
/* Closes the sockets, detaches from all peers; the helper has ended. In a forked child: only closes
 * descriptors. */
void attach_stop(struct nic *nic);

/* Around fork, so that the child's copy of the lists is whole. */
void attach_lock(struct nic *nic);
void attach_unlock(struct nic *nic);

/* Makes sure that the process has its slot number n (0 to NIC_OWN_SLOTS - 1), claiming it if need
 * be. 0, or errno. */
int attach_own_slot(struct nic *nic, uint32_t n);

/*
 * The living process that holds a slot, with a reference; attaches to it if that has not been done.
 * NULL when there is none yet: *why is CAUSE_NONE while the answer is under way, else says why it
 * cannot be. Waits at most `wait` ns for an answer; the helper's thread passes 0.
 */
struct peer *attach_get(struct nic *nic, uint32_t slot, uint64_t wait, enum cause_code *why);
void attach_put(struct nic *nic, struct peer *peer);

/* Ourselves, as a peer: QPs of one process talk to each other in the same way. */
struct peer *attach_self(struct nic *nic);

struct endpoint;

/* Helper, each time it wakes: finds out who died, repairs, lets go of dead peers that are not used
 * any more, and of what peers have ended. Returns when to call again at the latest (CLOCK_MONOTONIC
 * ns; UINT64_MAX: when something happens). */
uint64_t attach_bury(struct nic *nic);

/* Sends a request to a peer's helper, opening the connection if need be. 0, or errno (EAGAIN: ask
 * later). */
int attach_ask(struct nic *nic, struct peer *peer, struct message *message);

/* Rings all peers: they find out in our segment what has ended. */
void attach_ring(struct nic *nic);

#endif
