/* SPDX-License-Identifier: MIT */
/*
 * The command's entry: picks the subcommand, explains itself otherwise.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tools.h"

const char *argp_program_version = "uroce " UROCE_VERSION;

static const struct command {
	const char *name;
	const char *argv0;
	int (*main)(int argc, char **argv);
} commands[] = {
	{ "run", "uroce run", cmd_run },
	{ "env", "uroce env", cmd_env },
	{ "info", "uroce info", cmd_info },
	{ "doctor", "uroce doctor", cmd_doctor },
};

static const char doc[] =
	"An RDMA device in software: unmodified verbs programs run on it, between processes of "
	"this machine.\v"
	"Commands:\n"
	"  run      start a program that sees the device\n"
	"  env      print the environment that makes programs see the device\n"
	"  info     show devices, GIDs, limits, and the processes that use them\n"
	"  doctor   say what of this machine limits uroce, and what to do\n"
	"\n"
	"`uroce COMMAND --help` explains each of them.";

void complain(const char *name, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case ARGP_KEY_ARG:
		for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
			if (strcmp(arg, commands[i].name))
				continue;
			*(const struct command **)state->input = &commands[i];
			/* The rest is the subcommand's; argv[next - 1] becomes its argv[0]. */
			state->argv[state->next - 1] = (char *)commands[i].argv0;
			*(int *)state->hook = state->next - 1;
			state->next = state->argc;
			return 0;
		}
		argp_error(state, "there is no command '%s'", arg);
		return EINVAL;
	case ARGP_KEY_NO_ARGS:
		argp_usage(state);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}
