/* SPDX-License-Identifier: MIT */
/*
 * The runner: the table of cases, and each of them in fresh processes, with both APIs and in both
 * placements.
 *
 * The last lines are those that scripts/check counts.
 */
#include <argp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <regex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "strict.h"

enum { OPT_WITHOUT_CMA = 0x100, OPT_TWO_PROCESSES };

static struct {
	regex_t pattern;
	bool any_pattern, list, without_cma, two_processes;
	unsigned timeout; /* s, of a case in one variant */
} options = { .timeout = 40 };

static const struct argp_option option_table[] = {
	{ "case", 'c', "REGEX", 0, "only cases whose name this fits", 0 },
	{ "list", 'l', NULL, 0, "print the cases' names and stop", 0 },
	{ "timeout", 't', "SECONDS", 0, "how long a case may take (40)", 0 },
	{ "two-processes", OPT_TWO_PROCESSES, NULL, 0, "not also with both ends in one process",
	  0 },
	{ "without-cma", OPT_WITHOUT_CMA, NULL, 0,
	  "refuse process_vm_readv and process_vm_writev, as many containers do", 0 },
	{}
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 'c':
		if (regcomp(&options.pattern, arg, REG_EXTENDED | REG_NOSUB))
			argp_error(state, "no regular expression: %s", arg);
		options.any_pattern = true;
		return 0;
	case 'l':
		options.list = true;
		return 0;
	case 't':
		options.timeout = (unsigned)atoi(arg);
		return 0;
	case OPT_TWO_PROCESSES:
		options.two_processes = true;
		return 0;
	case OPT_WITHOUT_CMA:
		options.without_cma = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = {
	.options = option_table,
	.parser = parse,
	.doc = "Does what is wrong through the verbs, and compares what comes of it "
	       "with what hardware answers."
};

static void refuse_cma(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
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

static struct test_case *cases;
static unsigned case_count;

void add_case(const char *group, void (*run)(struct world *w, const void *arg), const void *arg,
	      const char *format, ...)
{
	char name[200];
	int length = snprintf(name, sizeof(name), "%s/", group);
	va_list args;

	va_start(args, format);
	vsnprintf(name + length, sizeof(name) - (size_t)length, format, args);
	va_end(args);
	cases = realloc(cases, (case_count + 1) * sizeof(*cases));
	cases[case_count++] = (struct test_case){ strdup(name), run, arg };
}

static _Noreturn void child(const struct test_case *c, unsigned variant)
{
	static struct world world;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	alarm(options.timeout);
	world.extended = variant & 1;
	world.two_processes = !(variant & 2);
	world_open(&world);
	c->run(&world, c->arg);
	world_close(&world);
	_exit(0);
}

#define VARIANTS 4

static const char *const variants[VARIANTS] = { "classic, two processes", "extended, two processes",
						"classic, one process", "extended, one process" };

/* One variant: whether the case passed. */
static bool try(const struct test_case *c, unsigned variant)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid)
		child(c, variant);
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		perror("fork");
		exit(2);
	}
	if (!status)
		return true;
	fprintf(stderr, "    in %s, %s%s%s\n", c->name, variants[variant],
		WIFSIGNALED(status) ? ": SIG" : "",
		WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : "");
	return false;
}

/* A line of the table: how long each variant took, in ms. */
static bool try_all(const struct test_case *c)
{
	char line[VARIANTS][24];
	bool all = true;

	for (unsigned variant = 0; variant < VARIANTS; variant++) {
		uint64_t start = now_ns();

		if (variant >= 2 && options.two_processes) {
			strcpy(line[variant], "-");
		} else if (try(c, variant)) {
			snprintf(line[variant], sizeof(line[variant]), "%llu",
				 (unsigned long long)(now_ns() - start) / 1000000);
		} else {
			strcpy(line[variant], "FAIL");
			all = false;
		}
	}
	printf("%-66s %8s %8s %8s %8s\n", c->name, line[0], line[1], line[2], line[3]);
	return all;
}

int main(int argc, char **argv)
{
	unsigned passed = 0, failed = 0;

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	add_keys();
	add_posts();
	add_states();
	add_transitions();
	add_receives();
	add_completion();
	add_memory();
	add_order();
	add_windows();
	if (options.without_cma)
		refuse_cma();
	if (!options.list)
		printf("UROCE_TIMING=%s%s\n%-66s %8s %8s %8s %8s\n%-66s %8s %8s %8s %8s\n",
		       getenv("UROCE_TIMING") ?: "", options.without_cma ? ", no CMA" : "", "ms",
		       "two proc", "esses", "one proc", "ess", "", "classic", "extended", "classic",
		       "extended");
	for (unsigned i = 0; i < case_count; i++) {
		bool good;

		if (options.any_pattern && regexec(&options.pattern, cases[i].name, 0, NULL, 0))
			continue;
		if (options.list) {
			puts(cases[i].name);
			continue;
		}
		good = try_all(&cases[i]);
		passed += good;
		failed += !good;
	}
	if (options.list)
		return 0;
	printf("[  PASSED  ] %u test(s).\n", passed);
	if (failed)
		printf("[  FAILED  ] %u test(s), listed below: those with FAIL above\n", failed);
	return failed || !passed;
}
