/* SPDX-License-Identifier: MIT */
/*
 * The runner: for each chosen row starts two processes (this program again) with a socket between
 * them, prints the row of the matrix with what was done, and ends with the number of rows that
 * failed. With --listen and --connect it starts one of them, and a runner on another host the other.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "verify.h"

#define TRIES 3

enum { OPT_LONG = 256, OPT_WITHOUT_CMA, OPT_PATH_MTU, OPT_NO_CHAIN, OPT_LISTEN, OPT_CONNECT, OPT_PLAY };

static struct {
	regex_t row;
	bool any_row, list, with_long, without_cma, no_chain;
	uint64_t seed;
	unsigned ops, timeout, path_mtu;
	int gid_index;
	/* With the other node on another host: where they meet. */
	const char *port, *host; /* host: of the one to connect to; NULL: we listen */
	int listener;
	/* In a player: its node and its sockets. */
	bool plays;
	unsigned node;
	int oob, report;
	const char *row_name;
} options = { .seed = 1, .ops = 160, .timeout = 30 };

static const struct argp_option option_table[] = {
	{ "row", 'r', "REGEX", 0, "only rows whose name this fits", 0 },
	{ "list", 'l', NULL, 0, "print the rows' names and stop", 0 },
	{ "seed", 's', "N", 0, "seed of everything random (1)", 0 },
	{ "ops", 'n', "N", 0, "operations in a row, times what the row says (160)", 0 },
	{ "timeout", 't', "SECONDS", 0, "how long a round of a row may take (30)", 0 },
	{ "gid", 'g', "INDEX", 0, "index of the GID to use (0)", 0 },
	{ "long", OPT_LONG, NULL, 0, "also rows that need gigabytes of memory", 0 },
	{ "without-cma", OPT_WITHOUT_CMA, NULL, 0,
	  "refuse process_vm_readv and process_vm_writev, as many containers do", 0 },
	{ "path-mtu", OPT_PATH_MTU, "BYTES", 0, "path MTU of rows that have none of their own", 0 },
	{ "no-chain", OPT_NO_CHAIN, NULL, 0, "nothing touches what an earlier operation has touched: no fences", 0 },
	{ "listen", OPT_LISTEN, "PORT", 0,
	  "be one node only; the other, with the same options otherwise, connects to this TCP port", 0 },
	{ "connect", OPT_CONNECT, "HOST:PORT", 0, "be the other one", 0 },
	{ "play", OPT_PLAY, "NODE,OOB,REPORT,ROW", OPTION_HIDDEN, NULL, 0 },
	{},
};

static void parse_play(const char *arg, struct argp_state *state)
{
	int used;

	if (sscanf(arg, "%u,%d,%d,%n", &options.node, &options.oob, &options.report, &used) != 3)
		argp_error(state, "--play is not for you");
	options.row_name = arg + used;
	options.plays = true;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 'r':
		if (regcomp(&options.row, arg, REG_EXTENDED | REG_NOSUB))
			argp_error(state, "no regular expression: %s", arg);
		options.any_row = true;
		return 0;
	case 'l':
		options.list = true;
		return 0;
	case 's':
		options.seed = strtoull(arg, NULL, 0);
		return 0;
	case 'n':
		options.ops = strtoul(arg, NULL, 0);
		return 0;
	case 't':
		options.timeout = strtoul(arg, NULL, 0);
		return 0;
	case 'g':
		options.gid_index = strtol(arg, NULL, 0);
		return 0;
	case OPT_LONG:
		options.with_long = true;
		return 0;
	case OPT_WITHOUT_CMA:
		options.without_cma = true;
		return 0;
	case OPT_PATH_MTU:
		options.path_mtu = strtoul(arg, NULL, 0);
		return 0;
	case OPT_NO_CHAIN:
		options.no_chain = true;
		return 0;
	case OPT_LISTEN:
		options.port = arg;
		return 0;
	case OPT_CONNECT:
		options.host = arg;
		arg = strrchr(arg, ':');
		if (!arg)
			argp_error(state, "--connect wants HOST:PORT");
		*arg = '\0';
		options.port = arg + 1;
		return 0;
	case OPT_PLAY:
		parse_play(arg, state);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = {
	option_table, parse,
	NULL,	      "Tries the matrix of verbs operations and compares every byte with a model.",
	NULL,	      NULL,
	NULL
};

static int player(void)
{
	const struct row *known = row_by_name(options.row_name);
	struct report report;
	struct row row;

	if (!known)
		return VERDICT_FAIL;
	row = *known;
	if (options.path_mtu && !row.path_mtu)
		row.path_mtu = (unsigned)__builtin_ctz(options.path_mtu / 128);
	row.chain &= !options.no_chain;
	report = play(&row, options.node, options.oob, options.seed, options.ops, options.gid_index,
		      options.timeout);
	return write(options.report, &report, sizeof(report)) == sizeof(report) ? VERDICT_OK :
										  VERDICT_FAIL;
}

/* ---- Running a row ---- */

/* From here on, in this process and what it starts. */
static void refuse_cma(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_writev, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("seccomp");
		exit(2);
	}
}

struct process {
	pid_t pid;
	int report; /* the end to read */
	enum verdict verdict;
};

/* One process for each node, or one for all: oob is -1. Closes oob. */
static struct process start(const struct row *row, unsigned node, int oob)
{
	struct process p = { .verdict = VERDICT_OK };
	char play[160], seed[32], ops[16], gid[16], timeout[16], path_mtu[24];
	int pipe_fds[2];

	if (pipe2(pipe_fds, O_CLOEXEC)) {
		perror("pipe");
		exit(2);
	}
	snprintf(play, sizeof(play), "--play=%u,%d,%d,%s", node, oob, pipe_fds[1], row->name);
	snprintf(seed, sizeof(seed), "--seed=%llu", (unsigned long long)options.seed);
	snprintf(ops, sizeof(ops), "--ops=%u", options.ops);
	snprintf(gid, sizeof(gid), "--gid=%d", options.gid_index);
	snprintf(timeout, sizeof(timeout), "--timeout=%u",
		 row->on_request ? 10 * options.timeout : options.timeout);
	snprintf(path_mtu, sizeof(path_mtu), "--path-mtu=%u", options.path_mtu);
	p.pid = fork();
	if (p.pid == 0) {
		/* Its own ends and nobody else's, so that a process's end is seen by the other. */
		fcntl(pipe_fds[1], F_SETFD, 0);
		if (oob >= 0)
			fcntl(oob, F_SETFD, 0);
		execl("/proc/self/exe", "verify", play, seed, ops, gid, timeout, path_mtu,
		      options.no_chain ? "--no-chain" : NULL, (char *)NULL);
		_exit(2);
	}
	if (p.pid < 0) {
		perror("fork");
		exit(2);
	}
	close(pipe_fds[1]);
	if (oob >= 0)
		close(oob);
	p.report = pipe_fds[0];
	return p;
}

static void ended(struct process *p, int status)
{
	if (WIFEXITED(status)) {
		p->verdict = WEXITSTATUS(status);
	} else {
		fprintf(stderr, "verify: a process died of signal %d (%s)\n", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
		p->verdict = VERDICT_FAIL;
	}
}

/* Wait for all; when one has failed, have the other say where it was and end it. */
static enum verdict wait_all(struct process *p, unsigned count)
{
	enum verdict worst = VERDICT_OK;
	unsigned alive = count;
	int status;
	pid_t pid;

	while (alive > 0 && (pid = wait(&status)) > 0)
		for (unsigned i = 0; i < count; i++) {
			if (p[i].pid != pid)
				continue;
			alive--;
			ended(&p[i], status);
			if (p[i].verdict == VERDICT_OK)
				continue;
			if (worst == VERDICT_OK || worst == VERDICT_PEER)
				worst = p[i].verdict;
			/* It may hang where no SIGTERM is served: an alarm of its own ends that. */
			if (alive > 0)
				kill(p[!i].pid, SIGTERM);
		}
	return worst;
}

static const char *verdict_name(enum verdict verdict)
{
	return verdict == VERDICT_OK ? "ok" : verdict == VERDICT_DROP ? "DROP" : "FAIL";
}

static enum verdict run(const struct row *row)
{
	const unsigned processes = row->place == TWO_PROCESSES && !options.port ? 2 : 1;
	const unsigned first = options.host ? 1 : 0;
	struct report sum = {}, part;
	struct process p[MAX_NODES];
	struct timespec from, to;
	enum verdict verdict;
	int pair[2] = { -1, -1 };

	if (processes == 2 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
		perror("socketpair");
		exit(2);
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	if (options.port)
		pair[0] = options.host ? meet_connect(options.host, options.port) : meet_accept(options.listener);
	for (unsigned i = 0; i < processes; i++)
		p[i] = start(row, first + i, pair[i]);
	verdict = wait_all(p, processes);
	clock_gettime(CLOCK_MONOTONIC, &to);
	for (unsigned i = 0; i < processes; i++) {
		if (read(p[i].report, &part, sizeof(part)) == sizeof(part)) {
			/* Both count the operations of both. */
			sum.ops = part.ops > sum.ops ? part.ops : sum.ops;
			sum.bytes += part.bytes;
		}
		close(p[i].report);
	}
	printf("%-52s %8llu %14llu %7.0f  %s\n", row->name, (unsigned long long)sum.ops,
	       (unsigned long long)sum.bytes,
	       (to.tv_sec - from.tv_sec) * 1e3 + (to.tv_nsec - from.tv_nsec) / 1e6,
	       verdict_name(verdict));
	fflush(stdout);
	return verdict;
}

/* What the wire may lose is tried again: where a process is kept from its CPU, sockets overflow and messages come later than one
 * waits for them. Nothing else loses any (tests/wire/neighbours.c), so that is seldom. */
static bool run_again(const struct row *row)
{
	enum verdict verdict = run(row);

	for (unsigned i = 1; i < TRIES && verdict == VERDICT_DROP && row_may_lose(row) && !options.port; i++)
		verdict = run(row);
	return verdict == VERDICT_OK;
}

int main(int argc, char **argv)
{
	unsigned count, tried = 0, failed = 0;
	const struct row *rows = rows_all(&count);

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	if (options.plays)
		return player();
	if (options.without_cma)
		refuse_cma();
	if (options.port && !options.host)
		options.listener = meet_listen(options.port);
	if (!options.list) {
		printf("seed %llu, UROCE_TIMING=%s%s\n", (unsigned long long)options.seed,
		       getenv("UROCE_TIMING") ?: "", options.without_cma ? ", no CMA" : "");
		printf("%-52s %8s %14s %7s\n", "row", "ops", "bytes checked", "ms");
	}
	for (unsigned i = 0; i < count; i++) {
		if (options.any_row && regexec(&options.row, rows[i].name, 0, NULL, 0))
			continue;
		if (rows[i].on_request && !options.with_long)
			continue;
		if (options.port && rows[i].place != TWO_PROCESSES)
			continue;
		if (options.list) {
			puts(rows[i].name);
			continue;
		}
		tried++;
		failed += !run_again(&rows[i]);
	}
	if (options.list)
		return 0;
	printf("%u rows, %u failed\n", tried, failed);
	return tried == 0 || failed > 0;
}
