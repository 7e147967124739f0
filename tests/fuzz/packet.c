/* SPDX-License-Identifier: MIT */
/*
 * Fuzzer of parsing, building and ICRC. Its input is an IP packet, of which it puts right what must be for RoCEv2: lengths,
 * protocol, port.
 */
#include "fuzz.h"

#include "pcaps/capture.h"

/* A copy of the input that is RoCEv2; its bytes are on the heap and not more than there are, for the address sanitizer. */
static uint8_t *as_roce(const uint8_t *input, size_t bytes, struct captured *captured)
{
	const bool is_ipv4 = bytes && input[0] >> 4 != 6;
	const size_t header_bytes = is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ip6_hdr);
	struct udphdr *udp;
	struct ip6_hdr *ip6;
	struct iphdr *ip4;
	uint8_t *ip;

	if (bytes < header_bytes + sizeof(*udp) || bytes > CAPTURE_MAX_IP)
		return NULL;
	ip = malloc(bytes);
	memcpy(ip, input, bytes);
	if (is_ipv4) {
		ip[0] = 0x45;
		ip4 = (struct iphdr *)ip;
		ip4->tot_len = htobe16(bytes);
		ip4->frag_off = htobe16(IP_DF);
		ip4->protocol = IPPROTO_UDP;
	} else {
		ip6 = (struct ip6_hdr *)ip;
		ip6->ip6_plen = htobe16(bytes - header_bytes);
		ip6->ip6_nxt = IPPROTO_UDP;
	}
	udp = (struct udphdr *)(ip + header_bytes);
	udp->dest = htobe16(ROCE_PORT);
	udp->len = htobe16(bytes - header_bytes);
	CHECK(captured_from_ip(ip, bytes, captured));
	return ip;
}

/* The headers as they are built: without what is reserved. */
static void clear_reserved(const struct roce_opcode *row, uint8_t *header)
{
	header[4] &= 0xc0;
	header[8] &= 0x80;
	if (row->headers & ROCE_HAS_DETH)
		header[ROCE_BTH_BYTES + 4] = 0;
	if (row->headers & ROCE_HAS_CNP_PAD)
		memset(header + ROCE_BTH_BYTES, 0, 16);
}

static void try_parsing(const uint8_t *from, size_t bytes)
{
	uint8_t header[ROCE_MAX_HEADERS], built[ROCE_MAX_HEADERS];
	const struct roce_opcode *row;
	struct roce_packet packet;

	if (!roce_parse(from, bytes, &packet))
		return;
	row = roce_opcode(from[0]);
	CHECK(row->name && packet.payload == from + row->header_bytes);
	CHECK(row->header_bytes + packet.length + roce_pad(packet.length) <= bytes);
	CHECK(roce_build(&packet, built) == row->header_bytes);
	memcpy(header, from, row->header_bytes);
	clear_reserved(row, header);
	CHECK(memcmp(header, built, row->header_bytes) == 0);
}

static void try_icrc(const struct captured *captured, uint8_t *packet)
{
	const size_t bytes = captured->bytes - ROCE_ICRC_BYTES;
	uint32_t icrc;
	uint16_t id;

	if (icrc_solve(&captured->path, packet, captured->bytes, &id)) {
		memcpy(&icrc, packet + bytes, sizeof(icrc));
		CHECK(icrc_of(&captured->path, id, packet, bytes) == le32toh(icrc));
	}
	if (captured->bytes < ROCE_BTH_BYTES + ROCE_ICRC_BYTES || captured->bytes % 4)
		return;
	icrc = htole32(icrc_of(&captured->path, captured->id, packet, bytes));
	memcpy(packet + bytes, &icrc, sizeof(icrc));
	CHECK(icrc_solve(&captured->path, packet, captured->bytes, &id));
	CHECK(id == captured->id);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
	struct captured captured;
	uint8_t *ip = as_roce(input, bytes, &captured);

	if (!ip)
		return 0;
	if (captured.bytes >= ROCE_ICRC_BYTES)
		try_parsing(captured.packet, captured.bytes - ROCE_ICRC_BYTES);
	try_icrc(&captured, ip + (captured.packet - ip));
	free(ip);
	return 0;
}
