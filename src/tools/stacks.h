/* SPDX-License-Identifier: MIT */
/*
 * Call stacks that a process kept (observe/watch.h), with functions and lines. These are read from the program's files, as a
 * debugger does (elfutils' libdwfl), once the process may have ended.
 */
#ifndef UROCE_TOOLS_STACKS_H
#define UROCE_TOOLS_STACKS_H

#include <stdint.h>
#include <stdio.h>

struct stacks;
struct watch;

/* What the process whose segment this is kept, whose watch is at an offset of it. NULL: nothing, or no memory. */
struct stacks *stacks_read(int segment, uint64_t watch);
/* All that it kept; as long as stacks. */
const struct watch *stacks_watch(const struct stacks *stacks);
void stacks_free(struct stacks *stacks);

/* Prints the stack of a number, a line for each frame down to main, and before it the title; nothing if there is none. */
void stacks_print(FILE *to, struct stacks *stacks, uint32_t number, const char *title);

#endif
