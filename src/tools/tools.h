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

/* Of those that start a program, if it is not started: our own failure, it cannot be served or executed, not found. */
enum { STATUS_FAILED = 125, STATUS_CANNOT_RUN = 126, STATUS_NOT_FOUND = 127 };

int cmd_run(int argc, char **argv);
int cmd_env(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_lab(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_trace(int argc, char **argv);

/* run.c: becomes the program argv[0], which sees the device; the settings are to be right. Returns the exit status, after
 * one line on stderr, if it does not. With `unserved`, a program that cannot be served is started after that line. */
int run_program(const char *name, char **argv, bool unserved);

/* Prints "uroce NAME: ..." as one line on stderr; name is argv[0] of the subcommand. */
void complain(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* settings.c: --devices, --memory, --profile and --timing, for use as an argp child. Sets UROCE_* in our own environment. */
extern const struct argp settings_argp;

/* Both in words that follow "; " or stand alone. */
struct settings_fault {
	char what[384];	  /* the variable, and which part of it is wrong */
	char remedy[256]; /* what it may be */
};

/* Whether a setting, whoever made it, leaves programs without a device; then fault is filled in. */
bool settings_are_wrong(struct settings_fault *fault);

/* Whether UROCE_DEVICES, not wrong, names interfaces that this machine does not have, which give a device no address;
 * then fault is filled in. */
bool settings_name_absent_interfaces(struct settings_fault *fault);

/* False after one line on stderr if the settings are wrong. */
bool settings_check(const char *name);

/* One line on stderr if interfaces are absent. */
void settings_warn(const char *name);

/* The names of the variables that settings_argp sets, NULL at the end. */
extern const char *const settings_variables[];

#endif
