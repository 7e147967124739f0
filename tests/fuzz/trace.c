/* SPDX-License-Identifier: MIT */
/*
 * Fuzzer of what is made of a trace: events are what other processes wrote into memory, and may be anything. The input is a list of
 * events, each 24 bytes, the first being the time since the last one (2), process (1), kind, opcode, flags, 2 of length of what follows,
 * then as in struct trace_event; they go into the model, the capture, both kinds of JSON and the picture.
 */
#include "fuzz.h"

#include <string.h>

#include "tools/trace_capture.h"
#include "tools/trace_perfetto.h"
#include "tools/trace_svg.h"

enum { PROCESSES = 3, EVENT_BYTES = 24 };

static struct trace_model model;
static struct trace_capture capture;

/* Reads one event; returns its bytes, 0 at the end. */
static size_t tell(const uint8_t *from, size_t bytes, uint64_t *time)
{
	struct trace_event event = { 0 };
	struct trace_item item = { .event = &event };
	uint16_t since, more;
	uint8_t *copy;

	if (bytes < EVENT_BYTES)
		return 0;
	memcpy(&since, from, sizeof(since));
	memcpy(&more, from + 6, sizeof(more));
	event.kind = from[3];
	event.opcode = from[4];
	event.flags = from[5];
	memcpy(&event.qpn, from + 8, sizeof(event.qpn));
	memcpy(&event.index, from + 12, sizeof(event.index));
	memcpy(&event.length, from + 16, sizeof(event.length));
	/* The rest names the sender as often as it can: it is as few QPs as the input has. */
	event.arg = (uint64_t)(event.qpn ^ 1) << 32 | from[20] | (uint64_t)from[21] << 8;
	if (event.kind == TRACE_MESSAGE && event.length > 1u << 20)
		event.length &= (1u << 20) - 1; /* else it is told for long */
	item.process = from[2] % PROCESSES;
	item.bytes = more < bytes - EVENT_BYTES ? more : bytes - EVENT_BYTES;
	item.time = *time += since;
	copy = malloc(item.bytes + !item.bytes);
	CHECK(copy);
	if (item.bytes)
		memcpy(copy, from + EVENT_BYTES, item.bytes);
	item.more = copy;
	trace_model_tell(&model, &item);
	trace_capture_tell(&capture, &item);
	free(copy);
	return EVENT_BYTES + item.bytes;
}

static void check(void)
{
	for (uint32_t i = 0; i < model.sends.count; i++) {
		const struct trace_send *send = &model.sends.at[i];

		CHECK(send->qp < model.qps.count);
		CHECK(send->dest == TRACE_NONE || send->dest < model.qps.count);
		CHECK(send->receive == TRACE_NONE || send->receive < model.receives.count);
		CHECK(trace_send_start(send) != TRACE_NEVER);
	}
	for (uint32_t i = 0; i < model.receives.count; i++) {
		CHECK(model.receives.at[i].send == TRACE_NONE || model.receives.at[i].send < model.sends.count);
		CHECK(trace_receive_start(&model.receives.at[i]) != TRACE_NEVER);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
	static FILE *null;
	struct trace_shown shown;
	uint64_t time = 0;
	size_t used;

	if (!null)
		null = fopen("/dev/null", "w");
	CHECK(null);
	for (uint32_t i = 0; i < PROCESSES; i++)
		trace_model_process(&model, i, i / 2, "fuzz");
	trace_capture_begin(&capture, null, &model, 0);
	while ((used = tell(input, bytes, &time))) {
		input += used;
		bytes -= used;
	}
	trace_capture_end(&capture);
	trace_model_end(&model);
	check();
	CHECK(trace_shown_choose(&shown, &model, 8));

	const struct trace_told told = { .model = &model, .shown = &shown, .program = "fuzz" };

	trace_json_model(null, &told);
	CHECK(trace_perfetto(null, &told));
	CHECK(trace_svg(null, &model, "fuzz"));
	trace_shown_free(&shown);
	trace_model_free(&model);
	return 0;
}
