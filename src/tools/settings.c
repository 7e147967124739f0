/* SPDX-License-Identifier: MIT */
/*
 * The device's settings, which the library takes from environment variables: given as options of `run` and `env`, or
 * found in the environment. What is wrong is said here, because the programs that would meet it may say nothing.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tools/tools.h"

const char *const settings_variables[] = { "UROCE_DEVICES", "UROCE_PROFILE", "UROCE_TIMING", NULL };

/* "late", or "random:" and a seed of 64 bits, as the library reads them (nic/timing.h). */
static bool timing_is_valid(const char *text)
{
	char *end;

	if (!strcmp(text, "late"))
		return true;
	if (strncmp(text, "random:", 7) || text[7] < '0' || text[7] > '9')
		return false;
	errno = 0;
	strtoull(text + 7, &end, 0);
	return !errno && !*end;
}

static error_t set(struct argp_state *state, const char *variable, const char *value)
{
	if (!*value)
		argp_error(state, "%s cannot be set to nothing", variable);
	if (setenv(variable, value, 1))
		return errno;
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 'd':
		return set(state, "UROCE_DEVICES", arg);
	case 'p':
		return set(state, "UROCE_PROFILE", arg);
	case 't':
		return set(state, "UROCE_TIMING", arg);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ .name = "devices",
	  .key = 'd',
	  .arg = "LIST",
	  .doc = "Show these devices, NAME or NAME:INTERFACE+INTERFACE..., separated by commas; GIDs come "
		 "from the interfaces, or from all (UROCE_DEVICES)" },
	{ .name = "profile",
	  .key = 'p',
	  .arg = "NAME",
	  .doc = "Report and enforce the limits of a real card: connectx-3, connectx-5, connectx-6, e810, "
		 "rxe (UROCE_PROFILE)" },
	{ .name = "timing",
	  .key = 't',
	  .arg = "late|random:SEED",
	  .doc = "Run work requests as late, or in as unkind an order, as the specification allows "
		 "(UROCE_TIMING)" },
	{ 0 }
};

const struct argp settings_argp = { .options = options, .parser = parse };

bool settings_check(const char *name)
{
	const char *timing = getenv("UROCE_TIMING");

	if (!timing || !*timing || timing_is_valid(timing))
		return true;
	complain(name, "UROCE_TIMING is 'late' or 'random:SEED', not '%s'", timing);
	return false;
}
