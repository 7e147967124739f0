/* SPDX-License-Identifier: MIT */
/* The causes of a model, once each: where both ends of a connection were traced, one failure has a record at each. */
#ifndef UROCE_TOOLS_TRACE_CAUSES_H
#define UROCE_TOOLS_TRACE_CAUSES_H

#include "tools/trace_model.h"

/* When all were told, and peers were found. */
void trace_causes_join(struct trace_model *model);

#endif
