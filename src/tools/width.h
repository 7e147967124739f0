/* SPDX-License-Identifier: MIT */
/* How wide a text is on a terminal, by wcwidth(3): Chinese characters take two columns. The locale says what its bytes are. */
#ifndef UROCE_TOOLS_WIDTH_H
#define UROCE_TOOLS_WIDTH_H

#include <stddef.h>
#include <stdio.h>

/* Columns that it takes. */
unsigned width_of(const char *text);

/* How many bytes of it, whole characters, take no more columns than that. */
size_t width_fit(const char *text, unsigned columns);

/* Lines that it takes, its own and those that the terminal breaks it into. */
unsigned width_lines(const char *text, unsigned columns);

/* As much of it as fits, with blanks behind it up to so many columns; or, negative, before it. */
void width_put(FILE *out, const char *text, int columns);

#endif
