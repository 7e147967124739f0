/* SPDX-License-Identifier: MIT */
/*
 * The CRC itself is libdeflate's. What is ours is to find the IPv4 identification by it. In what the CRC covers,
 * the identification's two bytes a, b are followed by n bytes. Whatever the rest is, they add to the CRC the
 * number a + 256 b, taken as a polynomial, times x^(8 (n + 2)) modulo the CRC's. So the CRC with identification 0,
 * less the one received, times x^(-8 (n + 2)), is the identification, and has nothing beyond its 16 bits if the
 * packets differ in it alone. That factor depends on the length only and is kept.
 */
#include "roce/icrc.h"

#include <byteswap.h>
#include <endian.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <stdatomic.h>
#include <string.h>

#include <libdeflate.h>

#include "nic/gid.h"
#include "roce/packet.h"

#define ONES		8
#define MASKED_BTH_BYTE 4 /* FECN, BECN and reserved bits */
#define MAX_MTU		4096

/* Polynomials modulo the CRC's: the coefficient of x^0 is the highest bit. */
#define POLYNOMIAL    0xedb88320u
#define ONE	      0x80000000u
#define X_TO_MINUS_32 0x5b358fd3u

/* By the packet's words: x to the power of minus the bits from the identification's first to the end. 0: not yet known. */
static _Atomic uint32_t factors[(ROCE_MAX_HEADERS + MAX_MTU) / 4 + 1];

static uint8_t *put_ipv4(uint8_t *at, const struct icrc_path *path, uint16_t id, size_t udp_bytes)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = sizeof(ip) / 4,
		.tos = 0xff,
		.tot_len = htobe16(sizeof(ip) + udp_bytes),
		.id = htobe16(id),
		.frag_off = htobe16(IP_DF),
		.ttl = 0xff,
		.protocol = IPPROTO_UDP,
		.check = 0xffff,
	};

	memcpy(&ip.saddr, path->sgid.raw + 12, sizeof(ip.saddr));
	memcpy(&ip.daddr, path->dgid.raw + 12, sizeof(ip.daddr));
	return mempcpy(at, &ip, sizeof(ip));
}

static uint8_t *put_ipv6(uint8_t *at, const struct icrc_path *path, size_t udp_bytes)
{
	struct ip6_hdr ip = {
		.ip6_flow = htobe32(0x6fffffff),
		.ip6_plen = htobe16(udp_bytes),
		.ip6_nxt = IPPROTO_UDP,
		.ip6_hlim = 0xff,
	};

	memcpy(&ip.ip6_src, path->sgid.raw, sizeof(ip.ip6_src));
	memcpy(&ip.ip6_dst, path->dgid.raw, sizeof(ip.ip6_dst));
	return mempcpy(at, &ip, sizeof(ip));
}

uint32_t icrc_of(const struct icrc_path *path, uint16_t id, const uint8_t *packet, size_t bytes)
{
	uint8_t head[ONES + sizeof(struct ip6_hdr) + sizeof(struct udphdr) + ROCE_BTH_BYTES];
	const size_t udp_bytes = sizeof(struct udphdr) + bytes + ROCE_ICRC_BYTES;
	const struct udphdr udp = {
		.source = htobe16(path->sport),
		.dest = htobe16(path->dport),
		.len = htobe16(udp_bytes),
		.check = 0xffff,
	};
	uint8_t *at = head;
	uint32_t crc;

	memset(at, 0xff, ONES);
	at += ONES;
	at = gid_is_ipv4(&path->dgid) ? put_ipv4(at, path, id, udp_bytes) : put_ipv6(at, path, udp_bytes);
	at = mempcpy(at, &udp, sizeof(udp));
	memcpy(at, packet, ROCE_BTH_BYTES);
	at[MASKED_BTH_BYTE] = 0xff;
	at += ROCE_BTH_BYTES;

	crc = libdeflate_crc32(0, head, at - head);
	return libdeflate_crc32(crc, packet + ROCE_BTH_BYTES, bytes - ROCE_BTH_BYTES);
}

static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a; a <<= 1) {
		product ^= a & ONE ? b : 0;
		b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
	}
	return product;
}

static uint32_t factor_of(size_t bytes)
{
	const size_t from_id = sizeof(struct iphdr) - offsetof(struct iphdr, id) + sizeof(struct udphdr);
	const size_t kept = sizeof(factors) / sizeof(*factors);
	uint32_t power = X_TO_MINUS_32, factor = 0;

	if (bytes / 4 < kept)
		factor = atomic_load_explicit(&factors[bytes / 4], memory_order_relaxed);
	if (factor)
		return factor;
	factor = ONE;
	for (size_t words = (from_id + bytes) / 4; words; words >>= 1) {
		if (words & 1)
			factor = multiply(factor, power);
		power = multiply(power, power);
	}
	/* Other threads store the same, so it does not matter whose store is seen, nor when. */
	if (bytes / 4 < kept)
		atomic_store_explicit(&factors[bytes / 4], factor, memory_order_relaxed);
	return factor;
}

bool icrc_solve(const struct icrc_path *path, const uint8_t *packet, size_t bytes, uint16_t *id)
{
	uint32_t received, difference, solution;

	*id = 0;
	if (bytes < ROCE_BTH_BYTES + ROCE_ICRC_BYTES || bytes % 4)
		return false;
	bytes -= ROCE_ICRC_BYTES;
	memcpy(&received, packet + bytes, sizeof(received));
	difference = icrc_of(path, 0, packet, bytes) ^ le32toh(received);
	if (!difference)
		return true;
	if (!gid_is_ipv4(&path->dgid))
		return false;
	solution = multiply(difference, factor_of(bytes));
	*id = bswap_16(solution);
	return solution <= UINT16_MAX;
}
