/* SPDX-License-Identifier: MIT */
/* Packets as bytes: one walk over the headers of an opcode to write them, one to read them, both in the table's order. */
#include "roce/packet.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

/* Bits of the BTH's second byte, and of the words with destination QP and PSN. */
#define SOLICITED   0x80
#define MIGREQ	    0x40
#define PAD_SHIFT   4
#define PAD_MASK    3
#define VERSION	    0x0f
#define FECN	    (1u << 31)
#define BECN	    (1u << 30)
#define ACK_REQUEST (1u << 31)
#define MASK_24	    0xffffffu

static uint8_t *put16(uint8_t *to, uint16_t value)
{
	value = htobe16(value);
	return mempcpy(to, &value, sizeof(value));
}

static uint8_t *put32(uint8_t *to, uint32_t value)
{
	value = htobe32(value);
	return mempcpy(to, &value, sizeof(value));
}

static uint8_t *put64(uint8_t *to, uint64_t value)
{
	value = htobe64(value);
	return mempcpy(to, &value, sizeof(value));
}

static uint16_t get16(const uint8_t **from)
{
	uint16_t value;

	memcpy(&value, *from, sizeof(value));
	*from += sizeof(value);
	return be16toh(value);
}

static uint32_t get32(const uint8_t **from)
{
	uint32_t value;

	memcpy(&value, *from, sizeof(value));
	*from += sizeof(value);
	return be32toh(value);
}

static uint64_t get64(const uint8_t **from)
{
	uint64_t value;

	memcpy(&value, *from, sizeof(value));
	*from += sizeof(value);
	return be64toh(value);
}

size_t roce_build(const struct roce_packet *packet, uint8_t *to)
{
	const struct roce_opcode *row = roce_opcode(packet->opcode);
	uint8_t *at = to;

	assert(row->name);
	*at++ = packet->opcode;
	*at++ = (packet->solicited ? SOLICITED : 0) | (packet->migreq ? MIGREQ : 0) |
		roce_pad(packet->length) << PAD_SHIFT;
	at = put16(at, packet->pkey);
	at = put32(at, (packet->fecn ? FECN : 0) | (packet->becn ? BECN : 0) | (packet->qpn & MASK_24));
	at = put32(at, (packet->ack_req ? ACK_REQUEST : 0) | (packet->psn & ROCE_PSN_MASK));

	if (row->headers & ROCE_HAS_DETH) {
		at = put32(at, packet->qkey);
		at = put32(at, packet->src_qpn & MASK_24);
	}
	if (row->headers & ROCE_HAS_RETH) {
		at = put64(at, packet->va);
		at = put32(at, packet->rkey);
		at = put32(at, packet->dma_length);
	}
	if (row->headers & ROCE_HAS_ATOMIC) {
		at = put64(at, packet->va);
		at = put32(at, packet->rkey);
		at = put64(at, packet->swap_add);
		at = put64(at, packet->compare);
	}
	if (row->headers & ROCE_HAS_AETH)
		at = put32(at, (uint32_t)packet->syndrome << 24 | (packet->msn & MASK_24));
	if (row->headers & ROCE_HAS_ATOMIC_ACK)
		at = put64(at, packet->original);
	if (row->headers & ROCE_HAS_IMM)
		at = mempcpy(at, &packet->imm_data, sizeof(packet->imm_data));
	if (row->headers & ROCE_HAS_IETH)
		at = put32(at, packet->rkey);
	if (row->headers & ROCE_HAS_CNP_PAD)
		memset(at, 0, row->header_bytes - ROCE_BTH_BYTES);
	return row->header_bytes;
}

/* The headers that the row has; all of them are there. */
static void parse_headers(const struct roce_opcode *row, const uint8_t *at, struct roce_packet *packet)
{
	if (row->headers & ROCE_HAS_DETH) {
		packet->qkey = get32(&at);
		packet->src_qpn = get32(&at) & MASK_24;
	}
	if (row->headers & ROCE_HAS_RETH) {
		packet->va = get64(&at);
		packet->rkey = get32(&at);
		packet->dma_length = get32(&at);
	}
	if (row->headers & ROCE_HAS_ATOMIC) {
		packet->va = get64(&at);
		packet->rkey = get32(&at);
		packet->swap_add = get64(&at);
		packet->compare = get64(&at);
	}
	if (row->headers & ROCE_HAS_AETH) {
		const uint32_t aeth = get32(&at);

		packet->syndrome = aeth >> 24;
		packet->msn = aeth & MASK_24;
	}
	if (row->headers & ROCE_HAS_ATOMIC_ACK)
		packet->original = get64(&at);
	if (row->headers & ROCE_HAS_IMM) {
		memcpy(&packet->imm_data, at, sizeof(packet->imm_data));
		at += sizeof(packet->imm_data);
	}
	if (row->headers & ROCE_HAS_IETH)
		packet->rkey = get32(&at);
}

bool roce_parse(const uint8_t *from, size_t bytes, struct roce_packet *packet)
{
	const struct roce_opcode *row;
	const uint8_t *at = from;
	uint32_t pad, word;
	uint8_t flags;

	if (bytes < ROCE_BTH_BYTES || bytes % 4)
		return false;
	row = roce_opcode(from[0]);
	flags = from[1];
	pad = flags >> PAD_SHIFT & PAD_MASK;
	if (!row->name || flags & VERSION || bytes < (size_t)row->header_bytes + pad)
		return false;

	*packet = (struct roce_packet){
		.opcode = from[0],
		.solicited = flags & SOLICITED,
		.migreq = flags & MIGREQ,
		.payload = from + row->header_bytes,
		.length = bytes - row->header_bytes - pad,
	};
	at += 2;
	packet->pkey = get16(&at);
	word = get32(&at);
	packet->fecn = word & FECN;
	packet->becn = word & BECN;
	packet->qpn = word & MASK_24;
	word = get32(&at);
	packet->ack_req = word & ACK_REQUEST;
	packet->psn = word & ROCE_PSN_MASK;
	parse_headers(row, at, packet);
	return true;
}
