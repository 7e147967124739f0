/* SPDX-License-Identifier: MIT */
/*
 * A RoCEv2 packet in its Ethernet frame: the IP and UDP headers with right lengths and checksums, and the ICRC. MAC addresses are made
 * up from the IP addresses.
 */
#ifndef UROCE_TOOLS_TRACE_FRAME_H
#define UROCE_TOOLS_TRACE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "roce/icrc.h"
#include "roce/packet.h"

/* A path MTU is at most 4096; frames that are captured may be some more. */
#define TRACE_FRAME_PACKET 9000
#define TRACE_FRAME_BYTES  (14 + 40 + 8 + TRACE_FRAME_PACKET + ROCE_ICRC_BYTES)

struct trace_frame {
	uint8_t bytes[TRACE_FRAME_BYTES];
	uint32_t kept, length;
};

/*
 * `packet` is from the BTH to the pad, without ICRC: `kept` bytes of `length`, neither more than TRACE_FRAME_PACKET. If not all are there
 * the frame is cut off behind them.
 */
void trace_frame_make(struct trace_frame *frame, const struct icrc_path *path, uint16_t id, const uint8_t *packet, size_t kept,
		      size_t length);

/* The same of a packet whose ICRC is its last four bytes (if kept): that is what is in the frame, right or wrong. */
void trace_frame_of_captured(struct trace_frame *frame, const struct icrc_path *path, const uint8_t *packet, size_t kept,
			     size_t length);

#endif
