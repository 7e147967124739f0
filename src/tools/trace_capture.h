/* SPDX-License-Identifier: MIT */
/*
 * A trace as a capture of RoCEv2: packets of the wire as they were, and for messages of shared memory those that the wire would have
 * carried, answers included. A packet that was sent by a process of the trace is there once, as it was sent.
 *
 * It is told the same events as the model, after it.
 */
#ifndef UROCE_TOOLS_TRACE_CAPTURE_H
#define UROCE_TOOLS_TRACE_CAPTURE_H

#include <stdio.h>

#include "tools/trace_frame.h"
#include "tools/trace_model.h"

struct trace_capture {
	FILE *out;
	const struct trace_model *model;
	uint64_t start; /* CLOCK_REALTIME, ns, of time 0 */
	uint64_t packets;
	uint64_t misread; /* RC SENDs shorter than any RPC over RDMA: Wireshark looks for that in each, and calls these malformed */
	uint32_t interfaces; /* that were written: of the processes with the first ids */
	uint32_t *answers;   /* by the id of the sender's QP: messages that were acknowledged to it */
	uint32_t answers_count;
	struct trace_frame frame;
	uint8_t packet[ROCE_MAX_HEADERS + TRACE_FRAME_PACKET];
	char comment[2048];
};

void trace_capture_begin(struct trace_capture *capture, FILE *out, const struct trace_model *model, uint64_t start);
void trace_capture_tell(struct trace_capture *capture, const struct trace_item *item);
void trace_capture_end(struct trace_capture *capture);

#endif
