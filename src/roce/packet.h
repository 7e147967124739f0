/* SPDX-License-Identifier: MIT */
/*
 * One packet: BTH, the headers that its opcode has, payload, pad. The ICRC behind them is roce/icrc.h's. Numbers are in host
 * order, but for immediate data, which verbs keep in network order.
 */
#ifndef UROCE_ROCE_PACKET_H
#define UROCE_ROCE_PACKET_H

#include <stddef.h>

#include "roce/opcode.h"

#define ROCE_PORT	  4791
#define ROCE_BTH_BYTES	  12
#define ROCE_ICRC_BYTES	  4
#define ROCE_MAX_HEADERS  64 /* bytes of BTH and headers, no opcode has more */
#define ROCE_DEFAULT_PKEY  0xffff
#define ROCE_MULTICAST_QPN 0xffffff
#define ROCE_PSN_MASK	  0xffffffu

/* AETH syndrome (specification 9.7.5.1.1): kind 3 bits | value 5 bits. */
enum roce_syndrome_kind { ROCE_ACK = 0, ROCE_RNR_NAK = 1, ROCE_NAK = 3 };
enum roce_nak {
	ROCE_NAK_PSN,
	ROCE_NAK_INVALID_REQUEST,
	ROCE_NAK_ACCESS,
	ROCE_NAK_OPERATION,
	ROCE_NAK_INVALID_RD
};
#define ROCE_SYNDROME(kind, value) ((uint8_t)((kind) << 5 | (value)))
#define ROCE_CREDITS_INVALID	   31

struct roce_packet {
	/* BTH */
	uint8_t opcode;
	bool solicited, migreq, ack_req, fecn, becn;
	uint16_t pkey;
	uint32_t qpn, psn;
	/* Those that the opcode has; parsing sets the others to 0 */
	uint32_t qkey, src_qpn;	    /* DETH */
	uint64_t va;		    /* RETH, AtomicETH */
	uint32_t rkey;		    /* RETH, AtomicETH; IETH: the key to be invalidated */
	uint32_t dma_length;	    /* RETH */
	uint64_t swap_add, compare; /* AtomicETH */
	uint8_t syndrome;	    /* AETH */
	uint32_t msn;		    /* AETH */
	uint64_t original;	    /* AtomicAckETH */
	uint32_t imm_data;	    /* ImmDt, network order */
	/* Behind them; parsing: within the parsed bytes */
	const uint8_t *payload;
	uint32_t length; /* bytes of payload without pad */
};

/* Bytes of pad behind so many of payload. */
static inline uint32_t roce_pad(uint32_t length)
{
	return -length & 3;
}

/* Writes BTH and headers of *packet to `to` (ROCE_MAX_HEADERS bytes of room), reserved bits 0, pad count that of its length;
 * returns their bytes. Payload and pad go behind them. The opcode is one of the table's; the payload is not looked at. */
size_t roce_build(const struct roce_packet *packet, uint8_t *to);

/*
 * Reads a packet of `bytes` bytes from BTH to pad, without ICRC. False when it is none: too short for its headers or its pad,
 * no such opcode, another header version than 0, bytes no multiple of 4. What a QP makes of it (P_Key, payload's length) is not
 * looked at, nor are reserved bits and the pad's bytes.
 */
bool roce_parse(const uint8_t *from, size_t bytes, struct roce_packet *packet);

#endif
