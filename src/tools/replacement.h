/* SPDX-License-Identifier: MIT */
/*
 * A file that is written anew: its old content stays until all of the new one is there. That is written to a file beside it, which
 * takes its name, its mode and, where we may, its owner. Through a symbolic link it is the file that the link leads to.
 *
 * What is not a regular file has no content to keep, and is written as it is: a device, a FIFO, what our own standard output is.
 */
#ifndef UROCE_TOOLS_REPLACEMENT_H
#define UROCE_TOOLS_REPLACEMENT_H

#include <stdbool.h>
#include <stdio.h>

struct replacement {
	FILE *out;
	char *target;	 /* whose name it takes; NULL: written in place */
	char *temporary; /* once it is made; NULL */
};

/* Whether `file` can be written, as far as that can be known without doing so. Nothing has changed then. 0, or errno. */
int replacement_prepare(struct replacement *replacement, const char *file);

/* Makes `out` what is to be written to. 0, or errno. */
int replacement_open(struct replacement *replacement);

/* When all is written: puts it into place. 0, or errno, and then the old content is still there. */
int replacement_finish(struct replacement *replacement);

/* Leaves everything as it was; does nothing after replacement_finish(). */
void replacement_abandon(struct replacement *replacement);

#endif
