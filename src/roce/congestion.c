/* SPDX-License-Identifier: MIT */
/* Windows. See congestion.h. */
#include "roce/congestion.h"

#define PACKETS(n) ((n) << 8)
#define START	   PACKETS(32u)
#define LEAST	   PACKETS(4u)
#define MOST	   PACKETS(1024u)

/* ns. A receiver may have to be woken and scheduled before it answers. */
#define PROBE_START 10000000ull
#define PROBE_LEAST 1000000ull
#define PROBE_MOST  500000000ull

void congestion_start(struct congestion *congestion)
{
	*congestion = (struct congestion){ .window = START, .threshold = MOST, .probe = PROBE_START };
}

static uint64_t at_most(uint64_t probe)
{
	return probe < PROBE_MOST ? probe : PROBE_MOST;
}

static uint64_t probe_time(const struct congestion *congestion)
{
	return congestion->srtt ? at_most(3 * congestion->srtt + PROBE_LEAST) : PROBE_START;
}

void congestion_acknowledged(struct congestion *congestion, uint32_t packets, bool full)
{
	congestion->probe = probe_time(congestion);
	if (!full)
		return;
	if (congestion->window < congestion->threshold)
		congestion->window += PACKETS(packets);
	else
		congestion->window += (uint32_t)((uint64_t)PACKETS(packets) * PACKETS(1) * 2 / congestion->window);
	if (congestion->window > MOST)
		congestion->window = MOST;
}

void congestion_lost(struct congestion *congestion)
{
	congestion->window = congestion->window / 10 * 7;
	if (congestion->window < LEAST)
		congestion->window = LEAST;
	congestion->threshold = congestion->window;
}

void congestion_silent(struct congestion *congestion)
{
	congestion->threshold = congestion->window / 2 > LEAST ? congestion->window / 2 : LEAST;
	congestion->window = LEAST;
}

void congestion_measured(struct congestion *congestion, uint64_t rtt)
{
	congestion->srtt = congestion->srtt ? (7 * congestion->srtt + rtt) / 8 : rtt;
}

void congestion_probed(struct congestion *congestion)
{
	congestion->probe = at_most(2 * congestion->probe);
}
