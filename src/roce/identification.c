/* SPDX-License-Identifier: MIT */
/* Identifications that are to be expected. See identification.h. */
#include "roce/identification.h"

#include <string.h>

#include "nic/nic.h"

#define IDLE_MOST 0x4000u /* skipped in a pause, however long */

static bool is_in_step(const struct id_flow *flow, uint16_t id, uint64_t now)
{
	uint64_t idle = (now - flow->at) / 1000000u;
	uint32_t step = ID_STEP + (idle > IDLE_MOST ? IDLE_MOST : (uint32_t)idle);

	return (uint16_t)(id - flow->last) <= step;
}

bool id_is_expected(struct id_flows *flows, const union ibv_gid *sender, uint16_t id)
{
	uint32_t address;

	memcpy(&address, sender->raw + 12, sizeof(address));
	/* Linux counts per pair of addresses, not per port. */
	uint32_t key = address * 0x9e3779b1u;
	struct id_flow *flow = &flows->flow[key >> 22 & (ID_FLOWS - 1)];

	if (!flow->known || flow->key != key) {
		*flow = (struct id_flow){
			.known = true, .key = key, .last = id, .counts = id >= ID_OURS, .at = id >= ID_OURS ? nic_now() : 0
		};
		return true;
	}
	if (id < ID_OURS) {
		/* One of ours, or a stranger's whose count begins again: that goes on from where it was. */
		if (!flow->counts) {
			flow->last = id;
			flow->refused = false;
		}
		return true;
	}
	if (flow->counts && (uint16_t)(flow->last - id) < ID_LATE)
		return true;

	uint64_t now = nic_now();
	/* Who begins to count does so where a datagram of ours would end. */
	bool expected = flow->counts ? is_in_step(flow, id, now) : (uint16_t)(id - flow->last) <= ID_OURS;

	/* It jumped, and twice to the same place: that is where it is now. */
	if (!expected && !(flow->refused && (uint16_t)(id - flow->unexpected) < ID_STEP)) {
		flow->refused = true;
		flow->unexpected = id;
		return false;
	}
	flow->refused = false;
	flow->counts = true;
	flow->last = id;
	flow->at = now;
	return true;
}
