/* SPDX-License-Identifier: MIT */
/*
 * JSON of a trace, written as it is made, since it may be larger than memory: texts, and the model of docs/trace-model.md.
 */
#ifndef UROCE_TOOLS_TRACE_JSON_H
#define UROCE_TOOLS_TRACE_JSON_H

#include <stdio.h>

#include "tools/trace_model.h"
#include "tools/trace_shown.h"
#include "tools/trace_words.h"

struct trace_advices;

/* All that is known of a trace. */
struct trace_told {
	const struct trace_model *model;
	const struct trace_shown *shown;
	const struct trace_words *words; /* NULL: none */
	const struct trace_advices *advices; /* NULL: none */
	const char *program;
	uint64_t start; /* CLOCK_REALTIME, ns, of time 0 */
};

/* A string in quotes. No text ends an HTML script: < is escaped. Bytes that are no UTF-8 become ?. */
void trace_json_text(FILE *out, const char *text);

/* Whether all was written the stream knows. */
void trace_json_model(FILE *out, const struct trace_told *told);

/* enum ibv_qp_type and ibv_qp_state; NULL: there is no such. */
const char *trace_type_name(uint32_t type);
const char *trace_state_name(uint8_t state);

/* enum ibv_wc_status, without IBV_WC_. */
const char *trace_status_name(uint8_t status);

#endif
