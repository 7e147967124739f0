/* SPDX-License-Identifier: MIT */
/*
 * A trace in the Trace Event Format (JSON) that Perfetto and Chrome open: a process for each of ours, a track for the sends and one
 * for the receives of each queue pair, more where requests overlap, one for each CQ; slices for the parts of lives, arrows from
 * requests to the receives that they took, counters for the queues' filling.
 */
#ifndef UROCE_TOOLS_TRACE_PERFETTO_H
#define UROCE_TOOLS_TRACE_PERFETTO_H

#include "tools/trace_json.h"

/* False for want of memory; whether all was written the stream knows. */
bool trace_perfetto(FILE *out, const struct trace_told *told);

#endif
