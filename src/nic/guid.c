/* SPDX-License-Identifier: MIT */
/* EUI-64s of ours. See guid.h. */
#include "nic/guid.h"

#include <ifaddrs.h>
#include <netpacket/packet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t guid_hash(uint64_t seed, const void *data, size_t length)
{
	for (const uint8_t *byte = data; length--; byte++)
		seed = (seed ^ *byte) * 0x100000001b3;
	return seed;
}

uint64_t guid_hash_host(uint32_t ifindex)
{
	static const uint8_t no_address[6];
	uint64_t value = GUID_SEED;
	struct ifaddrs *list = NULL;
	char text[256] = { 0 };
	bool found = false;

	if (getifaddrs(&list))
		list = NULL;
	for (struct ifaddrs *ifa = list; ifa && !found; ifa = ifa->ifa_next) {
		const struct sockaddr_ll *addr = (const struct sockaddr_ll *)ifa->ifa_addr;

		if (!addr || addr->sll_family != AF_PACKET || (ifindex && addr->sll_ifindex != (int)ifindex) ||
		    addr->sll_halen != sizeof(no_address) || !memcmp(addr->sll_addr, no_address, sizeof(no_address)))
			continue;
		value = guid_hash(value, addr->sll_addr, sizeof(no_address));
		found = true;
	}
	freeifaddrs(list);
	if (found)
		return value;

	FILE *file = fopen("/etc/machine-id", "re");

	if (!file || !fgets(text, sizeof(text), file) || !*text)
		gethostname(text, sizeof(text) - 1);
	if (file)
		fclose(file);
	return guid_hash(value, text, strlen(text));
}

uint64_t guid_make(uint64_t hash)
{
	return (hash >> 8) | 0x0200000000000000;
}
