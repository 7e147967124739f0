/* SPDX-License-Identifier: MIT */
/*
 * How many packets a requester keeps under way, and when it misses an answer. RoCE's own answer to congestion is a network without
 * loss; here packets are lost, most of all at the receiver's socket buffer, so the window grows until something is lost.
 */
#ifndef UROCE_ROCE_CONGESTION_H
#define UROCE_ROCE_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

struct congestion {
	uint32_t window;    /* packets, in 256ths */
	uint32_t threshold; /* up to here it doubles with each round trip */
	uint64_t srtt;	    /* smoothed round trip, ns; 0: not measured yet */
	uint64_t probe;	    /* ns without an answer until a packet is sent again; doubles each time, to half a second */
};

void congestion_start(struct congestion *congestion);

static inline uint32_t congestion_window(const struct congestion *congestion)
{
	return congestion->window >> 8;
}

/* So many packets were acknowledged; full: the window was used. */
void congestion_acknowledged(struct congestion *congestion, uint32_t packets, bool full);
/* Something of this window was lost, or marked; call once a window. */
void congestion_lost(struct congestion *congestion);
/* No answer came at all. */
void congestion_silent(struct congestion *congestion);
/* A packet is sent again because nothing came; with no timeout that goes on for ever. */
void congestion_probed(struct congestion *congestion);
/* A round trip took so long (ns). */
void congestion_measured(struct congestion *congestion, uint64_t rtt);

#endif
