/* SPDX-License-Identifier: MIT */
#include "tools/trace_words.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "observe/explain.h"

const char *const trace_language_names[TRACE_LANGUAGES] = { "en", "zh" };

static const struct {
	const char *locale, *languages;
} environments[TRACE_LANGUAGES] = { { "C", "" }, { "C.UTF-8", "zh_CN" } };

static const char *const variables[] = { "LC_ALL", "LANGUAGE" };
#define VARIABLES (sizeof(variables) / sizeof(variables[0]))

static void set(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

/* In another language only what is another text. */
static void keep(char *texts[TRACE_LANGUAGES], enum trace_language language, const char *text)
{
	if (*text && (language == TRACE_EN || (texts[TRACE_EN] && strcmp(text, texts[TRACE_EN]))))
		texts[language] = strdup(text);
}

void trace_words_each(const char *catalogues, void (*call)(void *arg, enum trace_language language), void *arg)
{
	char *old[VARIABLES];

	for (size_t i = 0; i < VARIABLES; i++) {
		const char *value = getenv(variables[i]);

		old[i] = value ? strdup(value) : NULL;
	}
	for (unsigned language = 0; language < TRACE_LANGUAGES; language++) {
		locale_t locale, before;

		set("LC_ALL", environments[language].locale);
		set("LANGUAGE", environments[language].languages);
		explain_translate(catalogues);
		locale = newlocale(LC_CTYPE_MASK | LC_MESSAGES_MASK, "", (locale_t)0);
		before = locale ? uselocale(locale) : (locale_t)0;
		call(arg, language);
		if (locale) {
			uselocale(before);
			freelocale(locale);
		}
	}
	for (size_t i = 0; i < VARIABLES; i++) {
		set(variables[i], old[i]);
		free(old[i]);
	}
	explain_translate(catalogues);
}

struct making {
	const struct trace_model *model;
	struct trace_words *words;
};

static void make(void *arg, enum trace_language language)
{
	const struct making *making = arg;
	char text[EXPLAIN_TEXT];

	for (uint32_t id = 0; id < making->model->causes.count; id++) {
		const struct trace_cause *cause = &making->model->causes.at[id];
		struct trace_words *words = &making->words[id];

		keep(words->brief, language, explain_short(cause->code));
		keep(words->todo, language, explain_todo(cause->code));
		if (cause->told) {
			explain_what(&cause->record, text, sizeof(text));
			keep(words->what, language, text);
		}
	}
}

struct trace_words *trace_words_make(const struct trace_model *model, const char *catalogues)
{
	struct trace_words *words = model->causes.count ? calloc(model->causes.count, sizeof(*words)) : NULL;
	struct making making = { model, words };

	if (words)
		trace_words_each(catalogues, make, &making);
	return words;
}

void trace_words_free(struct trace_words *words, const struct trace_model *model)
{
	for (uint32_t id = 0; words && id < model->causes.count; id++) {
		for (unsigned language = 0; language < TRACE_LANGUAGES; language++) {
			free(words[id].brief[language]);
			free(words[id].what[language]);
			free(words[id].todo[language]);
		}
	}
	free(words);
}
