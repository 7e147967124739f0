/* SPDX-License-Identifier: MIT */
#include "tools/trace_causes.h"

#include <stdlib.h>

/* Causes of requests that failed, for each QP in a chain from the oldest to the newest. */
struct chains {
	uint32_t *first, *last; /* by QP */
	uint32_t *next;		/* by cause */
};

static void chain(const struct trace_model *model, struct chains *chains)
{
	for (uint32_t qp = 0; qp < model->qps.count; qp++)
		chains->first[qp] = TRACE_NONE;
	for (uint32_t id = 0; id < model->causes.count; id++) {
		const struct trace_cause *cause = &model->causes.at[id];

		chains->next[id] = TRACE_NONE;
		if (!cause->told || cause->record.role != CAUSE_OF_REQUEST || !cause->error || cause->qp >= model->qps.count)
			continue;
		if (chains->first[cause->qp] == TRACE_NONE)
			chains->first[cause->qp] = id;
		else
			chains->next[chains->last[cause->qp]] = id;
		chains->last[cause->qp] = id;
	}
}

/* The request whose message this is, which is taken out of its chain. False: it is none, or that is not known. */
static bool join(struct trace_model *model, struct chains *chains, const struct trace_cause *message)
{
	uint32_t peer = message->told && message->qp < model->qps.count ? model->qps.at[message->qp].peer : TRACE_NONE;
	uint32_t *from = peer < model->qps.count ? &chains->first[peer] : NULL;

	for (; from && *from != TRACE_NONE; from = &chains->next[*from]) {
		struct trace_cause *request = &model->causes.at[*from];

		if (!cause_join(&request->record, &message->record))
			continue;
		request->code = request->record.code;
		*from = chains->next[*from];
		return true;
	}
	return false;
}

void trace_causes_join(struct trace_model *model)
{
	struct chains chains = {
		.first = calloc(model->qps.count + 1u, sizeof(uint32_t)),
		.last = calloc(model->qps.count + 1u, sizeof(uint32_t)),
		.next = calloc(model->causes.count + 1u, sizeof(uint32_t)),
	};
	uint32_t left = 0;

	if (chains.first && chains.last && chains.next) {
		chain(model, &chains);
		for (uint32_t id = 0; id < model->causes.count; id++) {
			struct trace_cause *cause = &model->causes.at[id];

			if (join(model, &chains, cause))
				continue;
			if (cause->send < model->sends.count)
				model->sends.at[cause->send].cause = left;
			model->causes.at[left++] = *cause;
		}
		model->causes.count = left;
	}
	free(chains.first);
	free(chains.last);
	free(chains.next);
}
