/* SPDX-License-Identifier: MIT */
/*
 * The invariant CRC (RoCEv2 annex A17.3.3): CRC-32 over 8 bytes of ones, IP header, UDP header, and the packet from BTH to pad, with
 * what routers may change set to ones. Stored little-endian behind the packet.
 *
 * It covers the IPv4 identification, which a UDP socket neither sets nor sees. To an unconnected socket with DF the kernel gives
 * 0, and counts up over the segments of one UDP_SEGMENT send. For what is received the CRC is solved for it: see icrc_solve().
 */
#ifndef UROCE_ROCE_ICRC_H
#define UROCE_ROCE_ICRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/* What of IP and UDP is the same for all packets of a flow. Both GIDs are IPv4 (mapped), or neither. */
struct icrc_path {
	union ibv_gid sgid, dgid;
	uint16_t sport, dport; /* host order */
};

/*
 * The ICRC of a packet of `bytes` bytes from BTH to pad, at least a BTH. id: the IPv4 identification, with DF set
 * and no more fragments; IPv6 has none.
 */
uint32_t icrc_of(const struct icrc_path *path, uint16_t id, const uint8_t *packet, size_t bytes);

/*
 * Checks a packet of `bytes` bytes from BTH to ICRC. IPv6: true if it is right. IPv4: true if there is an
 * identification with which it is right (DF set, no fragment), then in *id: by itself that is a check of 16 bits
 * only, and the caller must know which identifications to expect. *id is 0 for IPv6. False too for what has no
 * room for BTH and ICRC, or is not whole words. Any thread may call both functions at any time.
 */
bool icrc_solve(const struct icrc_path *path, const uint8_t *packet, size_t bytes, uint16_t *id);

#endif
