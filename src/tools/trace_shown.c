/* SPDX-License-Identifier: MIT */
#include "tools/trace_shown.h"

#include <stdlib.h>

#include <infiniband/verbs.h>

static bool failed(uint8_t status)
{
	return status != IBV_WC_SUCCESS && status != TRACE_NO_STATUS;
}

/* Failures have a third of the rows, what comes first and last the rest. */
static bool is_shown(uint32_t id, uint32_t count, uint8_t status, uint32_t most, uint32_t *failures)
{
	if (id < most / 3 || id >= count - most / 3)
		return true;
	return failed(status) && (*failures)++ < most / 3;
}

bool trace_shown_choose(struct trace_shown *shown, const struct trace_model *model, uint32_t most)
{
	const uint32_t sends = model->sends.count, receives = model->receives.count;
	uint32_t failures = 0;

	*shown = (struct trace_shown){ .sends = malloc((sends + 1ul) * sizeof(uint32_t)),
				       .receives = malloc((receives + 1ul) * sizeof(uint32_t)) };
	if (!shown->sends || !shown->receives) {
		trace_shown_free(shown);
		return false;
	}
	for (uint32_t id = 0; id < sends; id++)
		shown->sends[id] = sends <= most || is_shown(id, sends, model->sends.at[id].status, most, &failures) ?
					   shown->send_rows++ :
					   TRACE_NONE;
	failures = 0;
	for (uint32_t id = 0; id < receives; id++)
		shown->receives[id] = receives <= most || is_shown(id, receives, model->receives.at[id].status, most, &failures) ?
					      shown->receive_rows++ :
					      TRACE_NONE;
	return true;
}

void trace_shown_free(struct trace_shown *shown)
{
	free(shown->sends);
	free(shown->receives);
	*shown = (struct trace_shown){ 0 };
}
