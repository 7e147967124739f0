/* SPDX-License-Identifier: MIT */
/*
 * Where our libraries are, and how the loader is made to find them.
 */
#ifndef UROCE_TOOLS_LIBRARIES_H
#define UROCE_TOOLS_LIBRARIES_H

#include <limits.h>
#include <stdbool.h>

struct libraries {
	char dir[PATH_MAX];   /* absolute, without symbolic links */
	char verbs[PATH_MAX]; /* dir/libibverbs.so.1 */
	char rdmacm[PATH_MAX]; /* dir/librdmacm.so.1 */
};

/* What a program needs to be preloaded. The second only for programs that use it: it has short names, as rread, which others may
 * have given something of theirs. */
enum preload { PRELOAD_NOTHING, PRELOAD_VERBS, PRELOAD_BOTH };

/* Finds them beside this command: ../lib/uroce as seen from its directory. False after one line on stderr, in the name
 * of the subcommand, when they are not there or the loader could not be told of their directory. */
bool libraries_find(struct libraries *libs, const char *name);

/* `list`, a colon-separated list of paths or NULL, with `path` as its first element and nowhere else. malloc'ed; NULL
 * when there is no memory. What else stands in the list, empty elements too, stays as it is. */
char *path_list_with(const char *list, const char *path);

/* The same with what is to be preloaded. */
char *path_list_with_preload(const char *list, const struct libraries *libs, enum preload preload);

#endif
