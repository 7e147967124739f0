/* SPDX-License-Identifier: MIT */
/* How long the parts of requests' lives took, over all of them. */
#ifndef UROCE_TOOLS_TRACE_PHASES_H
#define UROCE_TOOLS_TRACE_PHASES_H

#include "tools/trace_model.h"

/* Counts by 32 widths to each power of two: what is read off is right within 3 %. */
#define TRACE_PHASE_WIDTHS 32
#define TRACE_PHASE_BINS   (60 * TRACE_PHASE_WIDTHS)

struct trace_phase {
	enum trace_point from, to;
	uint8_t opcode;
	uint64_t count, min, max, sum;
	uint64_t bins[TRACE_PHASE_BINS], most[TRACE_PHASE_BINS];
};

/* Those that there are of the sends with this opcode, in the order of their points: calls tell for each. `phase` is room for one. */
void trace_phases_tell(const struct trace_model *model, uint8_t opcode, struct trace_phase *phase,
		       void (*tell)(void *arg, const struct trace_phase *phase), void *arg);

/* A value that this part of all (0 to 1) does not exceed: one that was there. */
uint64_t trace_phase_quantile(const struct trace_phase *phase, double part);

#endif
