/* SPDX-License-Identifier: MIT */
/*
 * The segment of a running process, opened to be read: by the descriptor that the process has of it, so that it needs to do
 * nothing, and may be stopped. It is never mapped, which would fill its holes, nor written.
 */
#ifndef UROCE_TOOLS_SEGMENT_H
#define UROCE_TOOLS_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "nic/layout.h"

enum segment_answer {
	SEGMENT_OPEN,
	SEGMENT_GONE,	       /* the process has ended, or uses the device no more */
	SEGMENT_HIDDEN,	       /* its process id is not to be seen from here */
	SEGMENT_OTHER_USER,    /* we may not look into it */
	SEGMENT_OTHER_VERSION, /* its uroce has another layout */
};

/* Opens the process's own segment, which has this slot (of another version: as its first). *version is that of its layout, if it
 * was found. Close *fd if it is open. */
enum segment_answer segment_open(pid_t pid, unsigned slot, int *fd, uint32_t *version);

/* Why it is not open, in words; "" if it is. */
void segment_reason(enum segment_answer answer, uint32_t version, char *words, size_t size);

/*
 * Calls visit for each entry of a table, `entry` bytes from `table` on and up to `count` of them, that is in a page that was ever
 * written. False when the file could not be read.
 */
bool segment_table(int fd, uint64_t table, uint32_t entry, uint32_t count, void (*visit)(void *arg, uint32_t index, const void *at),
		   void *arg);

#endif
