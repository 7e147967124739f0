/* SPDX-License-Identifier: MIT */
/*
 * A program that runs as our child, while we attend to something: `uroce explain` and `uroce trace`.
 *
 * It is in our process group, so that the terminal's signals reach it as they would without us; others are passed on.
 */
#ifndef UROCE_TOOLS_CHILD_H
#define UROCE_TOOLS_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

struct child {
	pid_t pid;
	int signals; /* a signalfd of those that are passed on */
	int failure; /* a pipe that has something in it once the program could not be started */
};

/* Starts it as uroce run does; variables of the environment are to be set before. False after one line on stderr. */
bool child_start(struct child *child, const char *name, char **argv);

/* Until it has ended; its status. Meanwhile calls attend() whenever `watched` is readable, and at least each time that so many
 * milliseconds have passed as attend() has answered; -1: as long as nothing comes. */
int child_attend(struct child *child, int watched, int (*attend)(void *arg), void *arg);

/* Whether there was a program: what child_attend() returned is of it, and not of run_program(), which has said why not. */
bool child_was_started(const struct child *child);

/* Ends as the program did; returns the exit status where it did not end by a signal. */
int child_end_as(int status);

#endif
