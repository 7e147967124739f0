/* SPDX-License-Identifier: MIT */
/* What causes say, in all languages that there are: a file is read by others than who has made it. */
#ifndef UROCE_TOOLS_TRACE_WORDS_H
#define UROCE_TOOLS_TRACE_WORDS_H

#include "tools/trace_model.h"

enum trace_language { TRACE_EN, TRACE_ZH, TRACE_LANGUAGES };
extern const char *const trace_language_names[TRACE_LANGUAGES];

struct trace_words {
	/* Malloc'ed; NULL: not in this language, or the record is gone. */
	char *brief[TRACE_LANGUAGES], *what[TRACE_LANGUAGES], *todo[TRACE_LANGUAGES];
};

/* Calls once in each language, in whose locale the thread is meanwhile. catalogues: as in explain_translate(), whose language is that of
 * the environment again afterwards. */
void trace_words_each(const char *catalogues, void (*call)(void *arg, enum trace_language language), void *arg);

/* One for each cause of the model; NULL for want of memory, or if there are none. */
struct trace_words *trace_words_make(const struct trace_model *model, const char *catalogues);
void trace_words_free(struct trace_words *words, const struct trace_model *model);

#endif
