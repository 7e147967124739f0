/* SPDX-License-Identifier: MIT */
/* Whose the UDP port of an address is. */
#ifndef UROCE_TOOLS_UDP_H
#define UROCE_TOOLS_UDP_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/* Whether a socket of this network namespace has the port of the address, or of all addresses; *uid is its user's. A socket of the
 * kernel, soft-RoCE's above all, is root's. */
bool udp_port_owner(const union ibv_gid *gid, uint16_t port, uint32_t *uid);

#endif
