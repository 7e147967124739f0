/* SPDX-License-Identifier: MIT */
#include "tools/trace_advice.h"

#include <stdlib.h>
#include <string.h>

#include "tools/explain.h"
#include "tools/stacks.h"

struct making {
	struct trace_advices *advices;
	const struct trace_collect *collect;
	const struct watch **watches; /* of the segments */
	enum trace_language language;
	uint32_t process, place; /* of the next line */
};

/* The same lines come in each language. */
static void tell(void *arg, const char *line)
{
	struct making *making = arg;
	struct trace_advices *advices = making->advices;

	if (making->place == advices->count) {
		struct trace_advice *larger = realloc(advices->at, (advices->count + 1) * sizeof(*larger));

		if (!larger)
			return;
		advices->at = larger;
		larger[advices->count++] = (struct trace_advice){ .process = making->process };
	}
	advices->at[making->place++].what[making->language] = strdup(line);
}

static void make(void *arg, enum trace_language language)
{
	struct making *making = arg;
	const struct trace_collect *collect = making->collect;

	making->language = language;
	making->place = 0;
	for (uint32_t process = 0; process < collect->count; process++) {
		for (uint32_t i = 0; i < collect->segment_count; i++) {
			const struct nic_segment *seg = collect->segments[i].seg;

			if (!making->watches[i] || seg->hdr.instance != collect->sources[process].instance)
				continue;
			making->process = process;
			explain_advise(&(struct advised){ seg, making->watches[i], making->watches, collect->segment_count }, tell,
				       making);
		}
	}
}

void trace_advice_make(struct trace_advices *advices, const struct trace_collect *collect, const char *catalogues)
{
	uint32_t count = collect->segment_count;
	struct stacks **kept = calloc(count + 1u, sizeof(*kept));
	const struct watch **watches = calloc(count + 1u, sizeof(*watches));
	struct making making = { .advices = advices, .collect = collect, .watches = watches };

	*advices = (struct trace_advices){ 0 };
	for (uint32_t i = 0; kept && watches && i < count; i++) {
		kept[i] = stacks_read(collect->segments[i].fd, atomic_load(&collect->segments[i].seg->hdr.watch));
		watches[i] = kept[i] ? stacks_watch(kept[i]) : NULL;
	}
	if (kept && watches)
		trace_words_each(catalogues, make, &making);
	for (uint32_t i = 0; kept && i < count; i++)
		stacks_free(kept[i]);
	free(kept);
	free(watches);
}

void trace_advice_free(struct trace_advices *advices)
{
	for (uint32_t i = 0; i < advices->count; i++)
		for (unsigned language = 0; language < TRACE_LANGUAGES; language++)
			free(advices->at[i].what[language]);
	free(advices->at);
}
