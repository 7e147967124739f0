/* SPDX-License-Identifier: MIT */
/* The header area of a received datagram. See grh.h. */
#include "local/grh.h"

#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <string.h>

#include "nic/gid.h"

#define UDP_BYTES  8
#define BTH_BYTES  12
#define DETH_BYTES 8
#define ICRC_BYTES 4

static uint16_t checksum(const uint8_t *bytes, size_t length)
{
	uint32_t sum = 0;

	for (size_t i = 0; i + 1 < length; i += 2)
		sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

void grh_write(uint8_t grh[GRH_BYTES], const struct nic_ah *ah, uint64_t length)
{
	/* The payload is padded to words on the wire. */
	uint16_t bytes = (uint16_t)(UDP_BYTES + BTH_BYTES + DETH_BYTES + ((length + 3) & ~3ull) +
				    ICRC_BYTES);

	memset(grh, 0, GRH_BYTES);
	if (gid_is_ipv4(&ah->dgid)) {
		struct iphdr ip = {
			.version = 4,
			.ihl = 5,
			.tos = ah->traffic_class,
			.tot_len = htons((uint16_t)(bytes + sizeof(ip))),
			.frag_off = htons(IP_DF),
			.ttl = ah->hop_limit ? ah->hop_limit : 64,
			.protocol = IPPROTO_UDP,
		};

		memcpy(&ip.saddr, &ah->sgid.raw[12], 4);
		memcpy(&ip.daddr, &ah->dgid.raw[12], 4);
		memcpy(grh + 20, &ip, sizeof(ip));

		uint16_t check = htons(checksum(grh + 20, sizeof(ip)));

		memcpy(grh + 20 + offsetof(struct iphdr, check), &check, sizeof(check));
		return;
	}

	struct ip6_hdr ip6 = { 0 };

	ip6.ip6_flow =
		htonl(6u << 28 | (uint32_t)ah->traffic_class << 20 | (ah->flow_label & 0xfffff));
	ip6.ip6_plen = htons(bytes);
	ip6.ip6_nxt = IPPROTO_UDP;
	ip6.ip6_hlim = ah->hop_limit ? ah->hop_limit : 64;
	memcpy(&ip6.ip6_src, &ah->sgid, 16);
	memcpy(&ip6.ip6_dst, &ah->dgid, 16);
	memcpy(grh, &ip6, sizeof(ip6));
}
