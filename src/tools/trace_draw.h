/* SPDX-License-Identifier: MIT */
/*
 * A trace for a terminal, a screenful of it: the first messages of a connection as arrows between two lines, how long requests took,
 * how full queues were, and what failed. UTF-8 where the locale has it, ASCII elsewhere; in the language of the environment.
 */
#ifndef UROCE_TOOLS_TRACE_DRAW_H
#define UROCE_TOOLS_TRACE_DRAW_H

#include <stdio.h>

#include "tools/trace_model.h"

/* Of so many columns and rows; rows are a wish. */
void trace_draw(FILE *out, const struct trace_model *model, unsigned columns, unsigned rows);

#endif
