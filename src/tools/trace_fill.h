/* SPDX-License-Identifier: MIT */
/* How full a queue was over time (struct trace_fill): bounded, whatever happens. */
#ifndef UROCE_TOOLS_TRACE_FILL_H
#define UROCE_TOOLS_TRACE_FILL_H

#include "tools/trace_model.h"

#define TRACE_FILL_POINTS 4000

/* It holds so many from this time on, which is not before any that was told. For want of memory it stays as it was. */
void trace_fill_set(struct trace_fill *fill, uint64_t time, uint32_t now);

/* It was empty from this time on until what was told first. */
void trace_fill_begin(struct trace_fill *fill, uint64_t time);

/* As many more, or less; never less than none, since what was there before the trace is not known. */
void trace_fill_add(struct trace_fill *fill, uint64_t time, int32_t more);

#endif
