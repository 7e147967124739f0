/* SPDX-License-Identifier: MIT */
/*
 * A trace as a still picture, an SVG 900 wide: the first messages as arrows between lines, one for each queue pair, what became of each
 * beside it, and below how the queues of these queue pairs filled and drained. Light or dark as the reader has it; in the language of the
 * environment. Texts are what other programs call themselves: they are escaped, and never become markup.
 */
#ifndef UROCE_TOOLS_TRACE_SVG_H
#define UROCE_TOOLS_TRACE_SVG_H

#include <stdio.h>

#include "tools/trace_model.h"

/* UTF-8 whatever the locale: gettext has to give that. False for want of memory; whether all was written the stream knows. */
bool trace_svg(FILE *out, const struct trace_model *model, const char *program);

#endif
