/* SPDX-License-Identifier: MIT */
#include "tools/trace_frame.h"

#include <endian.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <string.h>

#include "nic/gid.h"

#define HOPS	  64
#define NOT_KNOWN 0xffff /* a UDP checksum of what is cut off: none would be wrong in IPv6 */

static uint32_t sum(uint32_t so_far, const void *bytes, size_t count)
{
	const uint8_t *at = bytes;

	for (; count > 1; count -= 2, at += 2)
		so_far += (uint32_t)at[0] << 8 | at[1];
	return count ? so_far + ((uint32_t)at[0] << 8) : so_far;
}

static uint16_t checksum(uint32_t so_far)
{
	while (so_far >> 16)
		so_far = (so_far & 0xffff) + (so_far >> 16);
	return (uint16_t)~so_far;
}

/* Locally administered. */
static uint8_t *put_mac(uint8_t *to, const union ibv_gid *gid)
{
	to[0] = 2;
	to[1] = gid_is_ipv4(gid) ? 0 : gid->raw[8] ^ gid->raw[11];
	memcpy(to + 2, gid->raw + 12, 4);
	return to + ETH_ALEN;
}

static uint8_t *put_ipv4(uint8_t *at, const struct icrc_path *path, uint16_t id, size_t udp_bytes)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = sizeof(ip) / 4,
		.tot_len = htobe16(sizeof(ip) + udp_bytes),
		.id = htobe16(id),
		.frag_off = htobe16(IP_DF),
		.ttl = HOPS,
		.protocol = IPPROTO_UDP,
	};

	memcpy(&ip.saddr, path->sgid.raw + 12, sizeof(ip.saddr));
	memcpy(&ip.daddr, path->dgid.raw + 12, sizeof(ip.daddr));
	ip.check = htobe16(checksum(sum(0, &ip, sizeof(ip))));
	return mempcpy(at, &ip, sizeof(ip));
}

static uint8_t *put_ipv6(uint8_t *at, const struct icrc_path *path, size_t udp_bytes)
{
	struct ip6_hdr ip = {
		.ip6_flow = htobe32(0x60000000),
		.ip6_plen = htobe16(udp_bytes),
		.ip6_nxt = IPPROTO_UDP,
		.ip6_hlim = HOPS,
	};

	memcpy(&ip.ip6_src, path->sgid.raw, sizeof(ip.ip6_src));
	memcpy(&ip.ip6_dst, path->dgid.raw, sizeof(ip.ip6_dst));
	return mempcpy(at, &ip, sizeof(ip));
}

/* Over the addresses too, whose form does not matter to the sum but for the prefix of IPv4. */
static uint16_t udp_checksum(const struct icrc_path *path, const uint8_t *udp, size_t bytes)
{
	const size_t from = gid_is_ipv4(&path->dgid) ? 12 : 0;
	uint32_t so_far = sum(IPPROTO_UDP + (uint32_t)bytes, path->sgid.raw + from, 16 - from);
	uint16_t value;

	so_far = sum(so_far, path->dgid.raw + from, 16 - from);
	value = checksum(sum(so_far, udp, bytes));
	return value ? value : 0xffff;
}

/* All but the UDP checksum; returns where the packet is. */
static uint8_t *put_headers(struct trace_frame *frame, const struct icrc_path *path, uint16_t id, size_t udp_bytes)
{
	const bool ipv4 = gid_is_ipv4(&path->dgid);
	const struct udphdr udp = { .source = htobe16(path->sport), .dest = htobe16(path->dport), .len = htobe16(udp_bytes) };
	const uint16_t type = htobe16(ipv4 ? ETHERTYPE_IP : ETHERTYPE_IPV6);
	uint8_t *at = put_mac(frame->bytes, &path->dgid);

	at = put_mac(at, &path->sgid);
	at = mempcpy(at, &type, sizeof(type));
	at = ipv4 ? put_ipv4(at, path, id, udp_bytes) : put_ipv6(at, path, udp_bytes);
	return mempcpy(at, &udp, sizeof(udp));
}

/* When the packet is there, `bytes` of it of `udp_bytes` with the header. */
static void finish(struct trace_frame *frame, const struct icrc_path *path, uint8_t *packet, size_t bytes, size_t udp_bytes)
{
	uint8_t *const udp = packet - sizeof(struct udphdr);
	const uint16_t check = htobe16(bytes + sizeof(struct udphdr) == udp_bytes ? udp_checksum(path, udp, udp_bytes) : NOT_KNOWN);

	memcpy(udp + offsetof(struct udphdr, check), &check, sizeof(check));
	frame->kept = (uint32_t)(packet - frame->bytes + bytes);
	frame->length = (uint32_t)(udp - frame->bytes + udp_bytes);
}

void trace_frame_make(struct trace_frame *frame, const struct icrc_path *path, uint16_t id, const uint8_t *packet, size_t kept,
		      size_t length)
{
	const size_t udp_bytes = sizeof(struct udphdr) + length + ROCE_ICRC_BYTES;
	uint8_t *at = put_headers(frame, path, id, udp_bytes);
	uint32_t icrc;

	memcpy(at, packet, kept);
	if (kept == length) {
		icrc = htole32(icrc_of(path, id, packet, length));
		memcpy(at + length, &icrc, sizeof(icrc));
		kept += sizeof(icrc);
	}
	finish(frame, path, at, kept, udp_bytes);
}

void trace_frame_of_captured(struct trace_frame *frame, const struct icrc_path *path, const uint8_t *packet, size_t kept,
			     size_t length)
{
	const size_t udp_bytes = sizeof(struct udphdr) + length;
	uint16_t id = 0;
	uint8_t *at;

	/* The identification was the kernel's: only the ICRC knows it. */
	if (kept == length)
		icrc_solve(path, packet, length, &id);
	at = put_headers(frame, path, id, udp_bytes);
	memcpy(at, packet, kept);
	finish(frame, path, at, kept, udp_bytes);
}
