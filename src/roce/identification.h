/* SPDX-License-Identifier: MIT */
/*
 * IPv4 identifications, which the ICRC covers and no UDP socket tells: the CRC is solved for them (icrc_solve()), so a damaged
 * packet is only noticed if what comes out is not to be expected of its sender. Ours give 0, and count up from it within a
 * datagram that the kernel cuts. Strangers count from packet to packet; Linux skips as many as milliseconds have passed, at most.
 */
#ifndef UROCE_ROCE_IDENTIFICATION_H
#define UROCE_ROCE_IDENTIFICATION_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define ID_FLOWS 1024u
#define ID_STEP	 512u /* packets of other flows in between, or lost */
#define ID_LATE	 512u /* reordered: soft-RoCE numbers a request, and may send all of a READ's answer before it */
#define ID_OURS	 64u  /* segments of a datagram */

/* What was seen last of each sender. */
struct id_flows {
	struct id_flow {
		uint64_t at;  /* CLOCK_MONOTONIC ns, of the last good one, while it counts */
		uint32_t key; /* of the sender, see id_is_expected() */
		uint16_t last;
		uint16_t unexpected; /* which came out of the last packet that was refused */
		bool known, refused;
		bool counts; /* it is a stranger */
	} flow[ID_FLOWS];
};

/* Whether this identification is one to expect of the sender, whose IPv4 address the GID holds; notes that it came. */
bool id_is_expected(struct id_flows *flows, const union ibv_gid *sender, uint16_t id);

#endif
