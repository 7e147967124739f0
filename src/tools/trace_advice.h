/* SPDX-License-Identifier: MIT */
/* What is advised to the programs that were traced (explain_advice.c), in all languages that there are. */
#ifndef UROCE_TOOLS_TRACE_ADVICE_H
#define UROCE_TOOLS_TRACE_ADVICE_H

#include "tools/trace_collect.h"
#include "tools/trace_words.h"

struct trace_advice {
	uint32_t process;	    /* id */
	char *what[TRACE_LANGUAGES]; /* malloc'ed; NULL: for want of memory */
};

struct trace_advices {
	struct trace_advice *at;
	uint32_t count;
};

/* Of processes that have kept what it needs; when all has been collected. catalogues: as in trace_words_each(). */
void trace_advice_make(struct trace_advices *advices, const struct trace_collect *collect, const char *catalogues);
void trace_advice_free(struct trace_advices *advices);

#endif
