/* SPDX-License-Identifier: MIT */
/* Packets in the trace. See port.h. */
#include <string.h>

#include "roce/port.h"

void packet_trace(enum trace_kind kind, uint32_t qpn, const struct icrc_path *path, const uint8_t *packet, uint32_t bytes)
{
	struct trace_packet about = { .sport = path->sport, .dport = path->dport, .kept = trace_kept(bytes, ROCE_MAX_HEADERS) };
	struct trace_claim claim = trace_claim(trace_slots(sizeof(about) + about.kept));
	uint32_t psn = (uint32_t)packet[9] << 16 | (uint32_t)packet[10] << 8 | packet[11]; /* of the BTH */

	memcpy(about.sgid, path->sgid.raw, sizeof(about.sgid));
	memcpy(about.dgid, path->dgid.raw, sizeof(about.dgid));
	trace_put_more(&claim, kind, packet[0], 0, qpn, psn, bytes, 0, &about, sizeof(about), packet, about.kept);
}
