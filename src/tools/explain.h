/* SPDX-License-Identifier: MIT */
/*
 * uroce explain: its parts. Its words are in the language of the environment (po/).
 */
#ifndef UROCE_TOOLS_EXPLAIN_H
#define UROCE_TOOLS_EXPLAIN_H

#include <libintl.h>
#include <stdbool.h>
#include <stdio.h>

#include "observe/explain.h"

#define _(text)	 gettext(text)
#define N_(text) text

/* explain_query.c: documents what a log shows. False if it is understood as nothing. */
bool explain_query(const char *text);

/* explain_run.c: runs a program and tells its causes and the story of its queue pairs. Returns the exit status. */
int explain_run(const char *name, char **argv);

/* The process of a place, from 0: false past the end. *watch: what it kept, or NULL. */
struct watch;
bool explain_watch(unsigned place, const struct watch **watch);

/* explain_advice.c */
struct nic_segment;
void explain_advise(FILE *to, const struct nic_segment *seg, const struct watch *watch);

/* What happened and what to do, indented. Kinds of causes are told once, with their number. */
struct stacks;
struct told {
	const struct cause *cause; /* the first of its kind */
	uint64_t count;
	struct stacks *stacks[2]; /* of its process, and of the other end's; NULL: not known */
};
void explain_tell(FILE *to, const struct told *told);

#endif
