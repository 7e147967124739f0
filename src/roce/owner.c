/* SPDX-License-Identifier: MIT */
/* Whose a port is, from /proc/net/udp and udp6. See port.h. */
#include "roce/port.h"

#include <stdio.h>
#include <string.h>

#include "nic/gid.h"

/* The kernel prints addresses as words of the machine's byte order. */
static bool is_address(const char *text, const uint8_t *address, size_t bytes)
{
	static const uint8_t any[16];
	uint32_t words[4] = { 0 };

	for (size_t i = 0; i < bytes / sizeof(*words); i++) {
		if (sscanf(text + 8 * i, "%8x", &words[i]) != 1)
			return false;
	}
	return !memcmp(words, address, bytes) || !memcmp(words, any, bytes);
}

bool port_owner(const union ibv_gid *gid, uint16_t port, uint32_t *uid)
{
	bool v4 = gid_is_ipv4(gid), found = false;
	FILE *file = fopen(v4 ? "/proc/net/udp" : "/proc/net/udp6", "re");
	char line[512], address[64];
	unsigned number;

	while (file && !found && fgets(line, sizeof(line), file)) {
		found = sscanf(line, " %*d: %63[0-9A-F]:%4x %*s %*s %*s %*s %*s %u", address, &number, uid) == 3 &&
			number == port && is_address(address, v4 ? gid->raw + 12 : gid->raw, v4 ? 4 : 16);
	}
	if (file)
		fclose(file);
	return found;
}
