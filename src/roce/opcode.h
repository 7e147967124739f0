/* SPDX-License-Identifier: MIT */
/*
 * The packets of RC, UC and UD, one row each: from this table they are parsed, built and checked. Specification: tables 38
 * (opcodes) and 5 (header sequences), RoCEv2 annex A17.
 */
#ifndef UROCE_ROCE_OPCODE_H
#define UROCE_ROCE_OPCODE_H

#include <stdbool.h>
#include <stdint.h>

/* A BTH opcode is service << 5 | operation. */
enum roce_service { ROCE_RC = 0, ROCE_UC = 1, ROCE_UD = 3, ROCE_CNP = 4 };

#define ROCE_OPCODE(service, operation) ((uint8_t)((service) << 5 | (operation)))
#define ROCE_OPCODE_CNP			ROCE_OPCODE(ROCE_CNP, 1)

enum roce_operation {
	ROCE_SEND_FIRST,
	ROCE_SEND_MIDDLE,
	ROCE_SEND_LAST,
	ROCE_SEND_LAST_IMM,
	ROCE_SEND_ONLY,
	ROCE_SEND_ONLY_IMM,
	ROCE_WRITE_FIRST,
	ROCE_WRITE_MIDDLE,
	ROCE_WRITE_LAST,
	ROCE_WRITE_LAST_IMM,
	ROCE_WRITE_ONLY,
	ROCE_WRITE_ONLY_IMM,
	ROCE_READ_REQUEST,
	ROCE_READ_RESPONSE_FIRST,
	ROCE_READ_RESPONSE_MIDDLE,
	ROCE_READ_RESPONSE_LAST,
	ROCE_READ_RESPONSE_ONLY,
	ROCE_ACKNOWLEDGE,
	ROCE_ATOMIC_ACKNOWLEDGE,
	ROCE_COMPARE_SWAP,
	ROCE_FETCH_ADD,
	ROCE_SEND_LAST_INV = 22,
	ROCE_SEND_ONLY_INV,
};

/* Headers behind the BTH, in the order in which they stand there. */
enum roce_header {
	ROCE_HAS_DETH = 1 << 0,
	ROCE_HAS_RETH = 1 << 1,
	ROCE_HAS_ATOMIC = 1 << 2,
	ROCE_HAS_AETH = 1 << 3,
	ROCE_HAS_ATOMIC_ACK = 1 << 4,
	ROCE_HAS_IMM = 1 << 5,
	ROCE_HAS_IETH = 1 << 6,
	ROCE_HAS_CNP_PAD = 1 << 7, /* 16 reserved bytes */
};

/* How long the payload may be, where mtu is the path's. */
enum roce_payload {
	ROCE_PAYLOAD_NONE,
	ROCE_PAYLOAD_FULL, /* mtu: FIRST and MIDDLE */
	ROCE_PAYLOAD_SOME, /* 1 to mtu: LAST */
	ROCE_PAYLOAD_ANY,  /* 0 to mtu: ONLY */
};

/* What a packet is to the message that it belongs to. */
enum roce_place { ROCE_ONLY, ROCE_FIRST, ROCE_MIDDLE, ROCE_LAST };

struct roce_opcode {
	const char *name;     /* the specification's; NULL: there is no such opcode */
	uint8_t headers;      /* enum roce_header */
	uint8_t header_bytes; /* BTH and headers */
	uint8_t payload;      /* enum roce_payload */
	uint8_t place;	      /* enum roce_place */
	bool response;	      /* from a responder to its requester */
};

/* The row of any opcode byte; never NULL. Its name is NULL where the specification has none. */
const struct roce_opcode *roce_opcode(uint8_t opcode);

/* Whether so many bytes of payload, pad not counted, are right for it. */
bool roce_payload_fits(const struct roce_opcode *row, uint32_t length, uint32_t mtu);

#endif
