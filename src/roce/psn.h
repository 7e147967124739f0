/* SPDX-License-Identifier: MIT */
/* Packet sequence numbers: 24 bits that wrap (specification 9.7.2). */
#ifndef UROCE_ROCE_PSN_H
#define UROCE_ROCE_PSN_H

#include <stdint.h>

#include "roce/packet.h"

static inline uint32_t psn_add(uint32_t psn, uint32_t packets)
{
	return (psn + packets) & ROCE_PSN_MASK;
}

/* a - b, where both are less than 2^23 apart. */
static inline int32_t psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

/* Packets of a message: one at least. */
static inline uint32_t psn_packets(uint64_t length, uint32_t mtu)
{
	return length ? (uint32_t)((length + mtu - 1) / mtu) : 1;
}

#endif
