/* SPDX-License-Identifier: MIT */
/*
 * uroce explain: its parts. Its words are in the language of the environment (po/).
 */
#ifndef UROCE_TOOLS_EXPLAIN_H
#define UROCE_TOOLS_EXPLAIN_H

#include <libintl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "observe/explain.h"

#define _(text)	 gettext(text)
#define N_(text) text

/* explain.c: speaks the language of the environment from here on. *libs is filled in, and catalogues with where they are. False after
 * one line on stderr. */
#define CATALOGUES_BYTES (PATH_MAX + 16)
struct libraries;
bool explain_speak(const char *name, struct libraries *libs, char catalogues[CATALOGUES_BYTES]);

/* explain_query.c: documents what a log shows. False if it is understood as nothing. */
bool explain_query(const char *text);

/* explain_run.c: runs a program and tells its causes and the story of its queue pairs. Returns the exit status. */
int explain_run(const char *name, char **argv);

/* explain_advice.c: the lines of what is advised to the program of a process. */
struct nic_segment;
struct watch;
struct advised {
	const struct nic_segment *seg;
	const struct watch *watch;	/* what it kept */
	const struct watch *const *all; /* the same of all processes that were seen; NULL: nothing */
	unsigned count;
};
void explain_advise(const struct advised *process, void (*tell)(void *arg, const char *line), void *arg);

/* What happened and what to do, indented. Kinds of causes are told once, with their number. */
struct stacks;
struct told {
	const struct cause *cause; /* the first of its kind */
	uint64_t count;
	struct stacks *stacks[2]; /* of its process, and of the other end's; NULL: not known */
};
void explain_tell(FILE *to, const struct told *told);

#endif
