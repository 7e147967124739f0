/* SPDX-License-Identifier: MIT */
/* Which requests are told of one by one, where there are many: the first, the last, and those that failed. */
#ifndef UROCE_TOOLS_TRACE_SHOWN_H
#define UROCE_TOOLS_TRACE_SHOWN_H

#include "tools/trace_model.h"

#define TRACE_SHOWN_MOST 120000u /* of each */

struct trace_shown {
	uint32_t *sends, *receives; /* by id: the row, or TRACE_NONE */
	uint32_t send_rows, receive_rows;
};

/* False for want of memory. */
bool trace_shown_choose(struct trace_shown *shown, const struct trace_model *model, uint32_t most);
void trace_shown_free(struct trace_shown *shown);

#endif
