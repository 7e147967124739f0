/* SPDX-License-Identifier: MIT */
/*
 * Which process of this user gets a packet. All of them have the UDP port of an address together (SO_REUSEPORT); a filter in the
 * kernel, in the name of all, picks the socket by the slot in the destination QPN. It names sockets by their place among those of
 * the port, which changes when one is closed, and which nobody tells: so it is asked for, by packets that the filter gives to a
 * place of our choice, and who gets one answers with its slots.
 *
 * A filter that is missing or out of date costs time only: who gets a packet of another process hands it over, through an abstract
 * unix socket named by slot, and asks for a new filter.
 */
#ifndef UROCE_ROCE_STEERING_H
#define UROCE_ROCE_STEERING_H

#include "roce/port.h"

/*
 * Asking. Questions go out for some places at a time, and what comes back is taken by the helper when it comes: who is stopped, or
 * waits for a CPU, does not answer soon. Meanwhile the port keeps the filter that it has, so that nobody else's packets go
 * astray for our sake. Helper only.
 */
void steering_ask(struct nic *nic, struct port *port);
/* Whether the port is being asked about; then goes on when it is time to, and says when to call again (CLOCK_MONOTONIC ns). */
bool steering_is_asking(struct port *port, uint64_t *again);
/* The port is being closed; in a forked child, only descriptors are. */
void steering_forget(struct port *port, bool is_orphan);

/* Whether a datagram is a question of somebody who is asking; it is answered. */
bool steering_answer(struct nic *nic, struct port *port, const uint8_t *bytes, size_t length, const union port_address *from);

/* The sockets on which others hand packets over to us, one for each slot. */
struct strays {
	struct helper_source source; /* must be first */
	int fd;
};

/* For the slot; NULL with errno. arrived is called as by port_receive(). */
struct strays *strays_open(uint32_t slot);
void strays_close(struct strays *strays);
void strays_receive(struct strays *strays, struct nic *nic, void (*arrived)(void *arg, const struct arrival *arrival), void *arg);

/* Packets on their way to one slot's process. */
struct strays_batch {
	uint32_t slot, packets, used;
	uint8_t *bytes; /* NULL: there were none yet; freed by the owner */
};

/* Adds a packet; false when those before it have to be handed over first. */
bool strays_add(struct strays_batch *batch, uint32_t slot, const struct arrival *arrival);
/* Gives them to the process that holds the slot; false when there is none. */
bool strays_hand_over(struct strays_batch *batch, struct strays *ours);

#endif
