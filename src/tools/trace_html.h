/* SPDX-License-Identifier: MIT */
/* A trace as one page that draws it (src/tools/trace_page/), with the model in it. */
#ifndef UROCE_TOOLS_TRACE_HTML_H
#define UROCE_TOOLS_TRACE_HTML_H

#include "tools/trace_json.h"

/* Whether all was written the stream knows. */
void trace_html(FILE *out, const struct trace_told *told);

#endif
