/* SPDX-License-Identifier: MIT */
/*
 * Causes that outlive their process: a file "last-PID" in the user's runtime directory, with the first of each kind. It is written
 * as they happen, so that a crash leaves it behind.
 */
#ifndef UROCE_OBSERVE_KEPT_H
#define UROCE_OBSERVE_KEPT_H

#include <stdbool.h>
#include <sys/types.h>

#include "observe/cause.h"

#define KEPT_MAGIC "uroce-causes 1"

/* The file's head; causes follow. Written by this version's library, read by its command: size tells others. */
struct kept_head {
	char magic[20];
	uint32_t size; /* of a cause */
	int32_t pid;
	char program[16];
};

/* Adds a cause to the file of a process, which the first that is added makes (removing old ones of others). One process at a time
 * per caller, and one caller at a time. Does not wait for anything. */
void kept_add(const char *directory, pid_t pid, const char *program, const struct cause *c);

/* The newest file in the directory: its head, and up to max causes. Their number, or -1 with errno (ENOENT: there is none). */
int kept_read(const char *directory, struct kept_head *head, struct cause *causes, int max);

#endif
