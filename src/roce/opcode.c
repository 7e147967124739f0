/* SPDX-License-Identifier: MIT */
/* The table of opcodes. RC and UC share the rows of SEND and RDMA WRITE. */
#include "roce/opcode.h"

#include "roce/packet.h"

enum {
	DETH = ROCE_HAS_DETH,
	RETH = ROCE_HAS_RETH,
	ATOMIC = ROCE_HAS_ATOMIC,
	AETH = ROCE_HAS_AETH,
	ATOMIC_ACK = ROCE_HAS_ATOMIC_ACK,
	IMM = ROCE_HAS_IMM,
	IETH = ROCE_HAS_IETH,
	CNP_PAD = ROCE_HAS_CNP_PAD,
};

#define IF_HAS(headers, header, bytes) ((headers) & (header) ? (bytes) : 0)
#define HEADER_BYTES(headers)                                                                      \
	(ROCE_BTH_BYTES + IF_HAS(headers, DETH, 8) + IF_HAS(headers, RETH, 16) +                   \
	 IF_HAS(headers, ATOMIC, 28) + IF_HAS(headers, AETH, 4) + IF_HAS(headers, ATOMIC_ACK, 8) + \
	 IF_HAS(headers, IMM, 4) + IF_HAS(headers, IETH, 4) + IF_HAS(headers, CNP_PAD, 16))

#define ROW(service, operation, text, has, rule, where, answers) \
	[ROCE_OPCODE(ROCE_##service, operation)] = {             \
		.name = text,                                    \
		.headers = (has),                                \
		.header_bytes = HEADER_BYTES(has),               \
		.payload = ROCE_PAYLOAD_##rule,                  \
		.place = ROCE_##where,                           \
		.response = answers,                             \
	}

#define REQUEST(service, operation, text, has, rule, where) \
	ROW(service, ROCE_##operation, #service " " text, has, rule, where, false)
#define RESPONSE(operation, text, has, rule, where) \
	ROW(RC, ROCE_##operation, "RC " text, has, rule, where, true)

/* clang-format off */
#define SENDS_AND_WRITES(service)								\
	REQUEST(service, SEND_FIRST, "SEND First", 0, FULL, FIRST),				\
	REQUEST(service, SEND_MIDDLE, "SEND Middle", 0, FULL, MIDDLE),				\
	REQUEST(service, SEND_LAST, "SEND Last", 0, SOME, LAST),				\
	REQUEST(service, SEND_LAST_IMM, "SEND Last with Immediate", IMM, SOME, LAST),		\
	REQUEST(service, SEND_ONLY, "SEND Only", 0, ANY, ONLY),					\
	REQUEST(service, SEND_ONLY_IMM, "SEND Only with Immediate", IMM, ANY, ONLY),		\
	REQUEST(service, WRITE_FIRST, "RDMA WRITE First", RETH, FULL, FIRST),			\
	REQUEST(service, WRITE_MIDDLE, "RDMA WRITE Middle", 0, FULL, MIDDLE),			\
	REQUEST(service, WRITE_LAST, "RDMA WRITE Last", 0, SOME, LAST),				\
	REQUEST(service, WRITE_LAST_IMM, "RDMA WRITE Last with Immediate", IMM, SOME, LAST),	\
	REQUEST(service, WRITE_ONLY, "RDMA WRITE Only", RETH, ANY, ONLY),			\
	REQUEST(service, WRITE_ONLY_IMM, "RDMA WRITE Only with Immediate", RETH | IMM, ANY, ONLY)

static const struct roce_opcode opcodes[256] = {
	SENDS_AND_WRITES(RC),
	REQUEST(RC, READ_REQUEST, "RDMA READ Request", RETH, NONE, ONLY),
	RESPONSE(READ_RESPONSE_FIRST, "RDMA READ response First", AETH, FULL, FIRST),
	RESPONSE(READ_RESPONSE_MIDDLE, "RDMA READ response Middle", 0, FULL, MIDDLE),
	RESPONSE(READ_RESPONSE_LAST, "RDMA READ response Last", AETH, SOME, LAST),
	RESPONSE(READ_RESPONSE_ONLY, "RDMA READ response Only", AETH, ANY, ONLY),
	RESPONSE(ACKNOWLEDGE, "Acknowledge", AETH, NONE, ONLY),
	RESPONSE(ATOMIC_ACKNOWLEDGE, "ATOMIC Acknowledge", AETH | ATOMIC_ACK, NONE, ONLY),
	REQUEST(RC, COMPARE_SWAP, "CmpSwap", ATOMIC, NONE, ONLY),
	REQUEST(RC, FETCH_ADD, "FetchAdd", ATOMIC, NONE, ONLY),
	REQUEST(RC, SEND_LAST_INV, "SEND Last with Invalidate", IETH, SOME, LAST),
	REQUEST(RC, SEND_ONLY_INV, "SEND Only with Invalidate", IETH, ANY, ONLY),

	SENDS_AND_WRITES(UC),

	REQUEST(UD, SEND_ONLY, "SEND Only", DETH, ANY, ONLY),
	REQUEST(UD, SEND_ONLY_IMM, "SEND Only with Immediate", DETH | IMM, ANY, ONLY),

	/* Sent by a responder, but no answer to a request. */
	ROW(CNP, 1, "CNP", CNP_PAD, NONE, ONLY, false),
};
/* clang-format on */

const struct roce_opcode *roce_opcode(uint8_t opcode)
{
	return &opcodes[opcode];
}

bool roce_payload_fits(const struct roce_opcode *row, uint32_t length, uint32_t mtu)
{
	switch ((enum roce_payload)row->payload) {
	case ROCE_PAYLOAD_NONE:
		return length == 0;
	case ROCE_PAYLOAD_FULL:
		return length == mtu;
	case ROCE_PAYLOAD_SOME:
		return length > 0 && length <= mtu;
	case ROCE_PAYLOAD_ANY:
		return length <= mtu;
	}
	return false;
}
