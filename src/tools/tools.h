/* SPDX-License-Identifier: MIT */
/*
 * The `uroce` command: its subcommands, and what they share.
 *
 * Each subcommand stands in a file of its own and is called with argv[0] as "uroce NAME"; it returns the exit status of
 * the process. What only reports goes to stdout, what went wrong to stderr in one line.
 */
#ifndef UROCE_TOOLS_TOOLS_H
#define UROCE_TOOLS_TOOLS_H

#include <argp.h>
#include <stdbool.h>

int cmd_run(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_doctor(int argc, char **argv);

/* Prints "uroce NAME: ..." as one line on stderr; name is argv[0] of the subcommand. */
void complain(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* settings.c: --devices, --profile and --timing, for use as an argp child. Sets UROCE_* in our own environment. */
extern const struct argp settings_argp;

/* False after one line on stderr if a setting, whoever made it, cannot be meant. */
bool settings_check(const char *name);

/* The names of the variables that settings_argp sets, NULL at the end. */
extern const char *const settings_variables[];

#endif
