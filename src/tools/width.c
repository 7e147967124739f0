/* SPDX-License-Identifier: MIT */
#include "tools/width.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

/* The next character: its bytes, and its columns. A byte that is none is shown somehow, in one. */
static size_t next(const char *text, unsigned *columns)
{
	mbstate_t state = { 0 };
	wchar_t character;
	size_t bytes = mbrtowc(&character, text, strlen(text), &state);
	int width;

	*columns = 1;
	if (bytes == 0 || bytes > strlen(text))
		return 1;
	width = wcwidth(character);
	*columns = width < 0 ? 1 : (unsigned)width;
	return bytes;
}

size_t width_fit(const char *text, unsigned columns)
{
	unsigned used = 0, width;
	size_t at = 0;

	while (text[at]) {
		const size_t bytes = next(text + at, &width);

		if (used + width > columns)
			break;
		used += width;
		at += bytes;
	}
	return at;
}

unsigned width_of(const char *text)
{
	unsigned used = 0, width;

	while (*text) {
		text += next(text, &width);
		used += width;
	}
	return used;
}

unsigned width_lines(const char *text, unsigned columns)
{
	unsigned lines = 0, width;

	while (*text) {
		const size_t own = strcspn(text, "\n");
		size_t there = 0;

		/* A terminal too narrow for a character has one in a line all the same. */
		do {
			size_t fits = width_fit(text + there, columns);

			if (!fits && there < own)
				fits = next(text + there, &width);
			there += fits > own - there ? own - there : fits;
			lines++;
		} while (there < own);
		text += own + (text[own] == '\n');
	}
	return lines;
}

void width_put(FILE *out, const char *text, int columns)
{
	const unsigned most = (unsigned)abs(columns);
	const size_t bytes = width_fit(text, most);
	const int blanks = (int)(most - (width_of(text) - width_of(text + bytes)));

	fprintf(out, "%*s", columns < 0 ? blanks : 0, "");
	fwrite(text, 1, bytes, out);
	fprintf(out, "%*s", columns < 0 ? 0 : blanks, "");
}
