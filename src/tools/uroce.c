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

/* Read by libc, which the rest of our names are hidden from. */
__attribute__((visibility("default"))) const char *argp_program_version = "uroce " UROCE_VERSION;

static const struct command {
	const char *name;
	const char *argv0;
	int (*main)(int argc, char **argv);
} commands[] = {
	{ .name = "run", .argv0 = "uroce run", .main = cmd_run },
	{ .name = "lab", .argv0 = "uroce lab", .main = cmd_lab },
	{ .name = "env", .argv0 = "uroce env", .main = cmd_env },
	{ .name = "explain", .argv0 = "uroce explain", .main = cmd_explain },
	{ .name = "info", .argv0 = "uroce info", .main = cmd_info },
	{ .name = "stat", .argv0 = "uroce stat", .main = cmd_stat },
	{ .name = "top", .argv0 = "uroce top", .main = cmd_top },
	{ .name = "trace", .argv0 = "uroce trace", .main = cmd_trace },
	{ .name = "doctor", .argv0 = "uroce doctor", .main = cmd_doctor },
};

static const char doc[] =
	"An RDMA device in software: unmodified verbs programs run on it, between processes of "
	"this machine.\v"
	"Commands:\n"
	"  run      start a program that sees the device\n"
	"  lab      start a command in each of several hosts, and trouble the links between them\n"
	"  env      print the environment that makes programs see the device\n"
	"  explain  say why programs fail, and what codes and statuses mean\n"
	"  info     show devices, GIDs, limits, and the processes that use them\n"
	"  stat     print counters of running processes, their queue pairs and queues\n"
	"  top      show them live\n"
	"  trace    follow each work request, as packets, a timeline, a page, or in the terminal\n"
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

/* What the command line chose: the subcommand, and where its own arguments begin. */
struct choice {
	const struct command *command;
	int at;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct choice *choice = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
			if (strcmp(arg, commands[i].name))
				continue;
			choice->command = &commands[i];
			choice->at = state->next - 1;
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

int main(int argc, char **argv)
{
	static const struct argp argp = { .parser = parse,
					  .args_doc = "COMMAND [ARGUMENTS]",
					  .doc = doc };
	struct choice choice = { 0 };
	int status;

	argp_err_exit_status = 2;
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &choice))
		return 2;

	argv[choice.at] = (char *)choice.command->argv0;
	status = choice.command->main(argc - choice.at, argv + choice.at);
	if (fflush(stdout) || ferror(stdout)) {
		complain(choice.command->argv0, "cannot write the output: %s", strerror(errno));
		return 1;
	}
	return status;
}
