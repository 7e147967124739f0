/* SPDX-License-Identifier: MIT */
/* How all that draws or tells a trace writes its values. */
#ifndef UROCE_TOOLS_TRACE_VALUES_H
#define UROCE_TOOLS_TRACE_VALUES_H

#include "tools/trace_model.h"

/* Bytes of the UTF-8 character here; 0 if it is none. */
unsigned trace_character(const char *at);

/* Return text. A length that is not known is "?". */
const char *trace_duration(uint64_t ns, char *text, size_t size);
const char *trace_bytes(uint32_t count, char *text, size_t size);

/* There was a completion, and it was no success. */
bool trace_failed(const struct trace_send *send);

/* How full a queue was, in the language of the environment. limit: 0 if it is not known. */
const char *trace_most(const struct trace_fill *fill, uint32_t limit, char *text, size_t size);

/* The QP that a request went to, or would have gone to; TRACE_NONE: not traced. */
uint32_t trace_send_dest(const struct trace_model *model, const struct trace_send *send);

#endif
