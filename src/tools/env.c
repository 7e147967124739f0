/* SPDX-License-Identifier: MIT */
/*
 * uroce env: prints the environment that makes programs see the device, for a shell, a CI job or a Dockerfile.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/libraries.h"
#include "tools/tools.h"

static const char doc[] = "Print the environment that makes programs see the devices of uroce.\v"
			  "In a shell:\n"
			  "  eval \"$(uroce env)\"";

enum { OPTION_DOCKERFILE = 256 };

static const struct argp_option options[] = {
	{ .name = "dockerfile",
	  .key = OPTION_DOCKERFILE,
	  .doc = "Print the ENV lines of a Dockerfile instead of shell commands" },
	{ 0 }
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = NULL;
		return 0;
	case OPTION_DOCKERFILE:
		*(bool *)state->input = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "no arguments are taken");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* In single quotes everything is itself but the quote. */
static void print_export(const char *name, const char *value)
{
	printf("export %s='", name);
	for (; *value; value++)
		if (*value == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*value);
	puts("'");
}

/* In a Dockerfile's double quotes. `rest` follows as it is. */
static void print_docker_env(const char *name, const char *value, const char *rest)
{
	printf("ENV %s=\"", name);
	for (; *value; value++) {
		if (strchr("\"\\$", *value))
			putchar('\\');
		putchar(*value);
	}
	printf("%s\"\n", rest);
}

int cmd_env(int argc, char **argv)
{
	static const struct argp_child children[] = { { .argp = &settings_argp }, { 0 } };
	static const struct argp argp = {
		.options = options, .parser = parse, .doc = doc, .children = children
	};
	const char *name = argv[0];
	bool dockerfile = false;
	struct libraries libs;
	char *path;

	if (argp_parse(&argp, argc, argv, 0, NULL, &dockerfile) || !settings_check(name) ||
	    !libraries_find(&libs, name))
		return 1;
	path = path_list_with(getenv("LD_LIBRARY_PATH"), libs.dir);
	if (!path) {
		complain(name, "%s", strerror(ENOMEM));
		return 1;
	}

	/* An image has its own interfaces, and its own path: ours comes before what it is when it is built. */
	if (!dockerfile)
		settings_warn(name);
	if (dockerfile)
		print_docker_env("LD_LIBRARY_PATH", libs.dir,
				 "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}");
	else
		print_export("LD_LIBRARY_PATH", path);
	free(path);

	for (const char *const *variable = settings_variables; *variable; variable++) {
		const char *value = getenv(*variable);

		if (value && dockerfile)
			print_docker_env(*variable, value, "");
		else if (value)
			print_export(*variable, value);
	}
	return 0;
}
