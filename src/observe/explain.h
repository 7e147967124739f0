/* SPDX-License-Identifier: MIT */
/*
 * From a cause to words: what happened, with the program's own numbers, and what to do. The words are in explain_texts.h, and in
 * po/ for other languages. Nothing here allocates memory or takes a lock but explain_translate(): sentences can be made where a
 * cause is recorded.
 */
#ifndef UROCE_OBSERVE_EXPLAIN_H
#define UROCE_OBSERVE_EXPLAIN_H

#include <stddef.h>

#include "observe/cause.h"

#define EXPLAIN_DOMAIN "uroce"
#define EXPLAIN_TEXT   1024 /* bytes that a sentence of any language fits into */

/* Who is refused so; bits in explain_row.verbs. */
enum explain_verb {
	EXPLAIN_POST_SEND,
	EXPLAIN_POST_RECV,
	EXPLAIN_MODIFY_QP,
	EXPLAIN_CREATE, /* and alloc, open of objects */
	EXPLAIN_CREATE_AH,
	EXPLAIN_REG_MR,
	EXPLAIN_DESTROY, /* and dereg, dealloc */
	EXPLAIN_QUERY,
	EXPLAIN_RESIZE_CQ,
	EXPLAIN_MODIFY_SRQ,
	EXPLAIN_ATTACH, /* multicast */
	EXPLAIN_OPEN,
	EXPLAIN_CM, /* rdma_* */
	EXPLAIN_ANY,
};

struct explain_row {
	uint32_t code;
	uint32_t subject;  /* explain.c's */
	uint32_t statuses; /* bits: 1 << enum ibv_wc_status */
	int error;	   /* errno, or 0 */
	uint32_t verbs;	   /* bits: 1 << enum explain_verb */
	const char *what, *todo;
};

/* The line of a code; NULL if it has none. */
const struct explain_row *explain_row(uint32_t code);

/* Has the words in the language of the environment (LC_ALL, LC_MESSAGES, LANG, LANGUAGE) from now on, if catalogues, a directory
 * of gettext's, has them. To be called once, before the rest is used. The program's own locale stays as it is. */
void explain_translate(const char *catalogues);

/* What happened, as one sentence or two. Returns its length; it is cut where size ends. */
size_t explain_what(const struct cause *c, char *text, size_t size);

/* What to do about it, in the same language; "" where there is nothing to say. Lives for ever. */
const char *explain_todo(uint32_t code);

/* The short text, in the same language. Lives for ever. */
const char *explain_short(uint32_t code);

/* What the program saw of it: "IBV_WC_RNR_RETRY_EXC_ERR", "ENOMEM"; "" if it saw nothing. Lives for ever. */
const char *explain_outcome(const struct cause *c);

/* Names of enum ibv_wc_status (NULL past the end), and of enum ibv_qp_state. */
const char *explain_status(uint32_t status);
const char *explain_state(uint32_t state);

/* Words around causes, in the same language; each a printf format for what its comment says. */
enum explain_word {
	EXPLAIN_WORD_TODO,    /* before explain_todo(): string */
	EXPLAIN_WORD_AGAIN,   /* number of times in all */
	EXPLAIN_WORD_FLUSHED, /* number of work requests */
	EXPLAIN_WORD_FLUSHED_ONE,
	EXPLAIN_WORD_MORE,    /* number of kinds of causes that were not told apart */
	EXPLAIN_WORD_END,     /* string: program; number: pid; number of causes; string: the first */
	EXPLAIN_WORD_HOW,     /* how to see more */
	EXPLAIN_WORD_END_ONE, /* as END, for one */
	/* Before call stacks, in the order of enum cause_stack */
	EXPLAIN_WORD_STACK,
	EXPLAIN_WORD_LAST_STACK = EXPLAIN_WORD_STACK + CAUSE_STACKS - 1,
	EXPLAIN_WORD_LINES, /* how to see lines */
	EXPLAIN_WORDS,
};
const char *explain_word(enum explain_word word);

#endif
