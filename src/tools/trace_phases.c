/* SPDX-License-Identifier: MIT */
#include "tools/trace_phases.h"

#include <string.h>

static const struct {
	uint8_t from, to;
} pairs[] = {
	{ TRACE_POINT_POSTED, TRACE_POINT_RUNG },   { TRACE_POINT_POSTED, TRACE_POINT_SEEN },
	{ TRACE_POINT_SEEN, TRACE_POINT_AGAIN },    { TRACE_POINT_AGAIN, TRACE_POINT_PLACED },
	{ TRACE_POINT_SEEN, TRACE_POINT_GATHERED }, { TRACE_POINT_GATHERED, TRACE_POINT_SENT },
	{ TRACE_POINT_SEEN, TRACE_POINT_SENT },	    { TRACE_POINT_SEEN, TRACE_POINT_TAKEN },
	{ TRACE_POINT_SENT, TRACE_POINT_TAKEN },    { TRACE_POINT_TAKEN, TRACE_POINT_PLACED },
	{ TRACE_POINT_SENT, TRACE_POINT_PLACED },   { TRACE_POINT_SENT, TRACE_POINT_ACKED },
	{ TRACE_POINT_PLACED, TRACE_POINT_CQE },    { TRACE_POINT_ACKED, TRACE_POINT_CQE },
	{ TRACE_POINT_CQE, TRACE_POINT_POLLED },    { TRACE_POINT_POSTED, TRACE_POINT_PLACED },
	{ TRACE_POINT_POSTED, TRACE_POINT_POLLED },
};

/* A part of a life in which it waited to be sent again: that is a part of its own. */
static bool is_broken(const struct trace_send *send, uint8_t from, uint8_t to)
{
	const uint64_t again = send->at[TRACE_POINT_AGAIN];

	return again != TRACE_NEVER && from != TRACE_POINT_POSTED && from != TRACE_POINT_AGAIN && to != TRACE_POINT_AGAIN &&
	       send->at[from] < again && again <= send->at[to];
}

static unsigned bin_of(uint64_t ns)
{
	unsigned shift;

	if (ns < 2 * TRACE_PHASE_WIDTHS)
		return (unsigned)ns;
	/* The highest bit and the five below it. */
	shift = 58 - (unsigned)__builtin_clzll(ns);
	return shift * TRACE_PHASE_WIDTHS + (unsigned)(ns >> shift);
}

uint64_t trace_phase_quantile(const struct trace_phase *phase, double part)
{
	const double wanted = part * (double)phase->count;
	uint64_t seen = 0;

	for (unsigned bin = 0; bin < TRACE_PHASE_BINS; bin++) {
		seen += phase->bins[bin];
		if (phase->bins[bin] && (double)seen >= wanted)
			return phase->most[bin];
	}
	return phase->max;
}

void trace_phases_tell(const struct trace_model *model, uint8_t opcode, struct trace_phase *phase,
		       void (*tell)(void *arg, const struct trace_phase *phase), void *arg)
{
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		memset(phase, 0, sizeof(*phase));
		phase->from = pairs[i].from;
		phase->to = pairs[i].to;
		phase->opcode = opcode;
		for (uint32_t id = 0; id < model->sends.count; id++) {
			const struct trace_send *send = &model->sends.at[id];
			const uint64_t from = send->at[phase->from], to = send->at[phase->to];
			uint64_t took;

			if (send->opcode != opcode || from == TRACE_NEVER || to == TRACE_NEVER || to < from ||
			    is_broken(send, phase->from, phase->to))
				continue;
			took = to - from;
			phase->min = phase->count && phase->min < took ? phase->min : took;
			phase->max = phase->max > took ? phase->max : took;
			phase->sum += took;
			phase->count++;
			phase->bins[bin_of(took)]++;
			if (phase->most[bin_of(took)] < took)
				phase->most[bin_of(took)] = took;
		}
		if (phase->count)
			tell(arg, phase);
	}
}
