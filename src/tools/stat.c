/* SPDX-License-Identifier: MIT */
/* uroce stat: the counters of running processes, once. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/render.h"
#include "tools/snapshot.h"
#include "tools/tools.h"

static const char doc[] = "Show the counters of the processes that use uroce: of their devices, queue pairs, completion queues, "
			  "shared receive queues and memory regions.\v"
			  "Nothing is asked of the processes: they may be stopped, and do not notice.";

enum { OPTION_JSON = 256, OPTION_PROMETHEUS, OPTION_PID };

static const struct argp_option options[] = {
	{ .name = "json", .key = OPTION_JSON, .doc = "Print JSON" },
	{ .name = "prometheus", .key = OPTION_PROMETHEUS, .doc = "Print Prometheus's text format" },
	{ .name = "pid", .key = OPTION_PID, .arg = "PID", .doc = "Only this process" },
	{ 0 },
};

struct choice {
	void (*render)(FILE *out, const struct snapshot *snapshot);
	pid_t pid;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct choice *choice = state->input;
	char *end;
	long pid;

	switch (key) {
	case OPTION_JSON:
	case OPTION_PROMETHEUS:
		if (choice->render != render_table)
			argp_error(state, "one format only");
		choice->render = key == OPTION_JSON ? render_json : render_prometheus;
		return 0;
	case OPTION_PID:
		errno = 0;
		pid = strtol(arg, &end, 10);
		if (errno || *end || pid <= 0 || pid != (pid_t)pid)
			argp_error(state, "'%s' is no process id", arg);
		choice->pid = (pid_t)pid;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "no arguments are taken");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int cmd_stat(int argc, char **argv)
{
	static const struct argp argp = { .options = options, .parser = parse, .doc = doc };
	struct choice choice = { .render = render_table };
	struct snapshot snapshot = { 0 };
	const char *name = argv[0];
	int status = 0;

	if (argp_parse(&argp, argc, argv, 0, NULL, &choice))
		return 1;
	if (!snapshot_take(&snapshot, choice.pid)) {
		complain(name, "cannot see who uses the device: %s", strerror(errno));
		return 1;
	}
	if (choice.pid && !snapshot.count) {
		complain(name, "process %d does not use uroce in this network namespace", (int)choice.pid);
		return 1;
	}
	choice.render(stdout, &snapshot);
	/* Of all others the output says it. */
	if (choice.pid && !snapshot.processes[0].seen) {
		complain(name, "process %d cannot be shown: %s", (int)choice.pid, snapshot.processes[0].reason);
		status = 1;
	}
	snapshot_free(&snapshot);
	return status;
}
