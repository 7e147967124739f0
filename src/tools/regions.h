/* SPDX-License-Identifier: MIT */
/* How peers reach the memory regions of a running process: read from its segment, without its doing anything. */
#ifndef UROCE_TOOLS_REGIONS_H
#define UROCE_TOOLS_REGIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "nic/layout.h"

struct regions {
	uint64_t mapped, partly, unmapped;
	uint64_t reasons[NIC_UNMAPPED_REASONS]; /* regions by why they are not mapped, or not wholly */
};

/* Adds the regions of the process's device whose first slot this is. False when that is not ours to see, or there is none. */
bool regions_count(pid_t pid, unsigned slot, struct regions *regions);

/* A reason in words. */
const char *regions_reason(enum nic_unmapped reason);

#endif
