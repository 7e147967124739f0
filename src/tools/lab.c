/* SPDX-License-Identifier: MIT */
/*
 * uroce lab: starts a command in each of several hosts, which are namespaces of this machine, joined by links that may
 * have the troubles of real ones. Here is what the user deals with: the command line, signals, and the exit status.
 *
 * Exit status: 0 if all commands succeed, else that of the first that fails; 128 and the signal that ended the lab; 125
 * our own failure; 126 and 127 as of uroce run.
 */
#include "tools/lab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/tools.h"

/* How long the lab may take to end its processes before it is ended itself: longer than it gives them. */
enum { PATIENCE_S = 6 };

enum { OPTION_MTU = 512 };

static const char doc[] =
	"Start COMMAND in each of N hosts, which are joined by a network, and end with them. The hosts are "
	"namespaces of this machine: host1 with the addresses 10.77.0.1 and fd77::1, host2 with "
	"10.77.0.2 and fd77::2, and so on. Several commands are for one host each, the last also for the "
	"hosts that are left.\v"
	"Programs see the devices of uroce as with `uroce run`. Percentages, times (500us, 2ms, 1s) and "
	"amounts (64k, 1.5G) may have fractions.\n"
	"\n"
	"The exit status is 0 if all commands succeed, else that of the first that fails; then the others are "
	"ended.\n"
	"\n"
	"  uroce lab 2 -- ib_write_bw :: ib_write_bw host1\n"
	"  uroce lab 2 --loss=1 --delay=200us -- ib_send_lat :: ib_send_lat host1\n"
	"  uroce lab 4 -- sh -c 'echo $UROCE_LAB_HOST of $UROCE_LAB_HOSTS'";

static const struct argp_option options[] = {
	{ .doc = "The hosts:" },
	{ .name = "wait",
	  .key = 'w',
	  .arg = "listen|TIME",
	  .doc = "Start each host's command when that of the host before listens on a port of TCP or rdma_cm, or "
		 "has ended, or TIME after it. Without it, all at once if all are the same, else as "
		 "'listen', but after a second at the latest" },
	{ .name = "services",
	  .key = 's',
	  .arg = "K",
	  .doc = "The commands of the first K hosts need not end: they are ended after the others" },
	{ .name = "input",
	  .key = 'i',
	  .arg = "HOST",
	  .doc = "Give the command of this host our standard input; the others have none" },
	{ .name = "raw",
	  .key = 'r',
	  .doc = "Leave the output to the commands, and put no host's name before its lines" },
	{ .name = "mtu",
	  .key = OPTION_MTU,
	  .arg = "BYTES",
	  .doc = "The hosts' interfaces have this MTU (else 1500)" },
	{ 0 }
};

static unsigned parse_count(struct argp_state *state, const char *text, unsigned long least,
			    unsigned long most, const char *what)
{
	char *end;
	unsigned long count = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || count < least || count > most)
		argp_error(state, "'%s' is no %s, %lu to %lu", text, what, least, most);
	return (unsigned)count;
}

/* Cuts the rest of the command line, NULL-terminated, at the "::". */
static void parse_commands(struct argp_state *state, struct lab *lab, char **words)
{
	unsigned host = 0;

	for (char **word = words;; word++) {
		bool last = !*word;

		if (!last && strcmp(*word, "::"))
			continue;
		if (word == words)
			argp_error(state, "a command is empty");
		if (host == lab->count)
			argp_error(state, "there are more commands than hosts");
		lab->hosts[host++].command = words;
		if (last)
			break;
		*word = NULL;
		words = word + 1;
	}
	lab->different = host > 1;
	for (; host < lab->count; host++)
		lab->hosts[host].command = lab->hosts[host - 1].command;
}

static error_t parse_argument(struct argp_state *state, struct lab *lab, char *arg)
{
	if (lab->hosts) {
		/* The rest is the commands'. */
		parse_commands(state, lab, state->argv + state->next - 1);
		state->next = state->argc;
		return 0;
	}
	lab->count = parse_count(state, arg, 1, LAB_MAX_HOSTS, "number of hosts");
	lab->hosts = calloc(lab->count, sizeof(*lab->hosts));
	if (!lab->hosts)
		return ENOMEM;
	for (unsigned i = 0; i < lab->count; i++) {
		lab->hosts[i].number = i + 1;
		lab->hosts[i].tap = -1;
		snprintf(lab->hosts[i].name, sizeof(lab->hosts[i].name), "host%u", i + 1);
	}
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct lab *lab = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &lab->trouble;
		state->child_inputs[1] = NULL;
		return 0;
	case 'w':
		lab->wait = strcmp(arg, "listen") ? WAIT_TIME : WAIT_LISTEN;
		if (lab->wait == WAIT_TIME && !parse_time(arg, &lab->wait_ns))
			argp_error(
				state,
				"--wait takes 'listen' or a time, such as 500ms, of at most 60s");
		return 0;
	case 's':
		lab->services = parse_count(state, arg, 0, LAB_MAX_HOSTS, "number of hosts");
		return 0;
	case 'i':
		lab->input = parse_count(state, arg, 1, LAB_MAX_HOSTS, "host");
		return 0;
	case 'r':
		lab->raw = true;
		return 0;
	case OPTION_MTU:
		/* IPv6 takes no less, and a TAP device no more. */
		lab->mtu = parse_count(state, arg, 1280, 65521, "MTU");
		return 0;
	case ARGP_KEY_ARG:
		return parse_argument(state, lab, arg);
	case ARGP_KEY_END:
		if (!lab->hosts)
			argp_error(state, "the number of hosts is missing");
		if (!lab->hosts[0].command)
			argp_error(state, "COMMAND is missing");
		if (lab->services >= lab->count)
			argp_error(state, "one host at least must have a command that ends");
		if (lab->input > lab->count)
			argp_error(state, "there is no host %u", lab->input);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Signals that end the lab; those that we were started to ignore, as by nohup, stay so. */
static sigset_t block_signals(struct lab *lab)
{
	static const int ending[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	struct sigaction action;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++)
		if (!sigaction(ending[i], NULL, &action) && action.sa_handler != SIG_IGN)
			sigaddset(&set, ending[i]);
	/* To whom SIGCHLD is ignored, children are never shown. */
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_BLOCK, &set, &lab->mask);
	return set;
}

/* Until init has ended. The first signal asks it to end, the second, or too long a time, makes it end. */
static int wait_for(pid_t init, const sigset_t *set)
{
	static const struct timespec patience = { .tv_sec = PATIENCE_S };
	int ended_by = 0, status;

	for (;;) {
		int sig = sigtimedwait(set, NULL, ended_by ? &patience : NULL);

		if (waitpid(init, &status, WNOHANG) == init)
			break;
		if (sig == SIGCHLD || (sig < 0 && errno == EINTR))
			continue;
		kill(init, ended_by ? SIGKILL : SIGTERM);
		if (!ended_by)
			ended_by = sig;
	}
	if (ended_by)
		return 128 + ended_by;
	return WIFEXITED(status) ? WEXITSTATUS(status) : LAB_FAILED;
}

/* Starts the lab, and waits until it has ended. */
static int run_lab(struct lab *lab)
{
	sigset_t set = block_signals(lab);
	int alive[2], status;
	pid_t init;

	if (pipe2(alive, O_CLOEXEC)) {
		complain(lab->name, "cannot make a pipe: %s", strerror(errno));
		return LAB_FAILED;
	}
	init = namespaces_fork(lab);
	if (init < 0)
		return LAB_FAILED;
	if (!init) {
		close(alive[1]);
		lab->alive = alive[0];
		status = hosts_run(lab);
		fflush(stdout);
		_exit(status);
	}
	close(alive[0]);
	return wait_for(init, &set);
}

int cmd_lab(int argc, char **argv)
{
	static const struct argp_child children[] = {
		{ .argp = &trouble_argp,
		  .header =
			  "What happens to frames between hosts (without any of these, nothing does, "
			  "and the links are faster):" },
		{ .argp = &settings_argp, .header = "The device:", .group = 3 },
		{ 0 }
	};
	static const struct argp argp = { .options = options,
					  .parser = parse,
					  .args_doc = "N [--] COMMAND [:: COMMAND]...",
					  .doc = doc,
					  .children = children };
	struct lab lab = { .name = argv[0], .mtu = LAB_DEFAULT_MTU };
	int status;

	argp_err_exit_status = LAB_FAILED;
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &lab))
		return LAB_FAILED;
	trouble_complete(&lab.trouble);
	status = settings_check(lab.name) ? run_lab(&lab) : LAB_FAILED;
	free(lab.hosts);
	return status;
}
