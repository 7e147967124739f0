/* SPDX-License-Identifier: MIT */
/*
 * What the commands of a lab print, passed on line by line with the host's name before each.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/lab.h"

/* A longer line is passed on in parts. */
enum { MAX_LINE = 1 << 20 };

static void print(const struct output *output, const char *text, size_t size)
{
	FILE *to = output->error ? stderr : stdout;

	fprintf(to, "%s: ", output->host);
	fwrite(text, 1, size, to);
	putc('\n', to);
}

static void print_lines(struct output *output)
{
	char *text = output->text, *end = text + output->used, *newline;

	while ((newline = memchr(text, '\n', (size_t)(end - text)))) {
		print(output, text, (size_t)(newline - text));
		text = newline + 1;
	}
	output->used = (size_t)(end - text);
	memmove(output->text, text, output->used);
}

/* Makes room to read into; a line that there is no memory for is passed on as far as it goes. */
static bool make_room(struct output *output)
{
	size_t size = output->size ? output->size * 2 : 4096;
	char *text;

	if (output->used < output->size)
		return true;
	text = size <= MAX_LINE ? realloc(output->text, size) : NULL;
	if (text) {
		output->text = text;
		output->size = size;
	} else {
		print(output, output->text, output->used);
		output->used = 0;
	}
	return output->size;
}

bool output_pass(struct output *output)
{
	FILE *to = output->error ? stderr : stdout;
	ssize_t got = -1;

	if (make_room(output))
		got = read(output->from, output->text + output->used, output->size - output->used);
	if (got < 0 && errno == EINTR)
		return true;
	if (got > 0) {
		output->used += (size_t)got;
		print_lines(output);
	} else {
		if (output->used)
			print(output, output->text, output->used);
		free(output->text);
		output->text = NULL;
		output->used = output->size = 0;
		close(output->from);
		output->from = -1;
	}
	return !fflush(to) && !ferror(to);
}
