/* SPDX-License-Identifier: MIT */
/*
 * What a program file is to the kernel and to the loader: found as execvp finds it, its script interpreters followed,
 * its ELF header read, and the loader itself asked which libibverbs.so.1 and librdmacm.so.1 it would give the program. Asking the loader
 * rather than reading DT_RPATH, DT_RUNPATH, DT_NEEDED and DT_VERNEED ourselves is right by construction.
 */
#ifndef UROCE_TOOLS_PROGRAM_H
#define UROCE_TOOLS_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

#include "tools/libraries.h"

enum program_kind {
	PROGRAM_DYNAMIC, /* the loader will look for its libraries */
	PROGRAM_STATIC,	 /* it has no loader, and is not the loader itself */
	PROGRAM_FOREIGN, /* for another architecture than ours */
	PROGRAM_OPAQUE,	 /* not ELF, or not readable: the kernel alone knows what it does with it */
};

struct program {
	char path[PATH_MAX]; /* the file that was asked for */
	char image[PATH_MAX]; /* the file that the kernel maps: path, or the interpreter of the script that it is */
	enum program_kind kind;
	char arch[32]; /* PROGRAM_FOREIGN: what it is for, in words */
};

/* What the loader says of a program, with our directory first in LD_LIBRARY_PATH. */
struct loading {
	/* Another libibverbs.so.1 or librdmacm.so.1 than ours is loaded, by a DT_RPATH or a path in DT_NEEDED; this keeps it out. */
	enum preload preload;
	char missing[256]; /* a version node that it needs and that ours lacks; "" when there is none */
	const char *library; /* which of ours lacks it */
	char needer[PATH_MAX]; /* the file that needs it */
};

/* 0, or ENOENT or EACCES as execvp would say. A script's missing interpreter is ENOENT with image naming it. */
int program_find(struct program *program, const char *name);

/* True if to run it changes the caller's user, group or capabilities, so that the loader ignores the environment. */
bool program_elevates(const struct program *program);

/* The architecture that our libraries are for, in words. */
void program_own_arch(char arch[32]);

/* Asks the loader about a PROGRAM_DYNAMIC, with our libraries preloaded or only on the path. No code of the program runs.
 * 0, or errno when the loader could not be asked. */
int program_loading(const char *image, const struct libraries *libs, enum preload preload,
		    struct loading *loading);

#endif
