/* SPDX-License-Identifier: MIT */
/*
 * The 40 bytes before a received datagram, as RoCE v2 delivers them (RoCE v2 annex A17): the IPv6
 * header that the packet had or, for IPv4, 20 unused bytes and the IPv4 header.
 */
#ifndef UROCE_LOCAL_GRH_H
#define UROCE_LOCAL_GRH_H

#include "nic/qp.h"

#define GRH_BYTES 40

/* length: bytes of payload. */
void grh_write(uint8_t grh[GRH_BYTES], const struct nic_ah *ah, uint64_t length);

#endif
