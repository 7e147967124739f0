/* SPDX-License-Identifier: MIT */
/*
 * uroce explain: why a program fails. It runs one and tells at the end, tells what the last one left behind, or documents a code.
 */
#include "tools/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "observe/kept.h"
#include "observe/runtime.h"
#include "tools/libraries.h"
#include "tools/stacks.h"
#include "tools/tools.h"

#define KEPT_MAX 256

static const char doc[] =
	"Say why programs fail. PROGRAM is run as by uroce run, and at its end the causes of what failed in it are told, with a "
	"short story of each queue pair. WHAT is documented: the number or name of a cause (vendor_err), the name, number or "
	"words of a completion's status, what a verb answered, or a CM's reason for a reject.\v"
	"For example:\n"
	"  uroce explain -- ./my_program\n"
	"  uroce explain IBV_WC_RETRY_EXC_ERR\n"
	"  uroce explain ibv_post_send: 12\n"
	"  uroce explain transport retry counter exceeded\n"
	"  uroce explain reject 28";

enum { OPTION_LAST = 256 };

static const struct argp_option options[] = {
	{ .name = "last",
	  .key = OPTION_LAST,
	  .doc = "Tell what failed in the last program that left causes behind, even if it crashed" },
	{ 0 }
};

struct request {
	bool last;
	char what[512];
	int program; /* index in argv; 0: none */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct request *request = state->input;
	size_t length = strlen(request->what);

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = NULL;
		return 0;
	case OPTION_LAST:
		request->last = true;
		return 0;
	case ARGP_KEY_ARG:
		if (state->quoted && state->quoted == state->next - 1 && !length) {
			request->program = state->next - 1;
			state->next = state->argc;
			return 0;
		}
		snprintf(request->what + length, sizeof(request->what) - length, "%s%s", length ? " " : "", arg);
		return 0;
	case ARGP_KEY_END:
		if (request->last + !!request->program + !!*request->what != 1)
			argp_error(state, "give one of -- PROGRAM, --last, or what is to be explained");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void print_time(FILE *to, uint64_t ns)
{
	time_t seconds = (time_t)(ns / 1000000000u);
	struct tm local;
	char text[32];

	localtime_r(&seconds, &local);
	strftime(text, sizeof(text), "%H:%M:%S", &local);
	fprintf(to, "%s.%06" PRIu64, text, ns % 1000000000u / 1000);
}

void explain_tell(FILE *to, const struct told *told)
{
	const struct cause *c = told->cause;
	const char *outcome = explain_outcome(c), *name = cause_name(c->code);
	char words[EXPLAIN_TEXT];

	fprintf(to, "  ");
	if (c->time)
		print_time(to, c->time);
	fprintf(to, " %s%s%s (", outcome, *outcome ? ", " : "", name ? name : "?");
	fprintf(to, _("cause %u"), c->code);
	fprintf(to, ")");
	if (told->count > 1) {
		fprintf(to, ", ");
		fprintf(to, _("%llu times"), (unsigned long long)told->count);
	}
	explain_what(c, words, sizeof(words));
	fprintf(to, "\n    %s\n", words);
	if (*explain_todo(c->code)) {
		fprintf(to, "    ");
		fprintf(to, explain_word(EXPLAIN_WORD_TODO), explain_todo(c->code));
		fprintf(to, "\n");
	}
	for (unsigned i = 0; i < CAUSE_STACKS; i++) {
		struct stacks *stacks = told->stacks[!!(c->stacks[i] & CAUSE_STACK_OF_PEER)];

		if (stacks)
			stacks_print(to, stacks, c->stacks[i] & ~CAUSE_STACK_OF_PEER, explain_word(EXPLAIN_WORD_STACK + i));
	}
}

static int explain_last(const char *name)
{
	static struct cause causes[KEPT_MAX];
	struct kept_head head;
	int count = kept_read(runtime_directory(), &head, causes, KEPT_MAX);

	if (count < 0 && errno == EPROTO) {
		complain(name, "%s", _("what was left behind is of another version of uroce"));
		return 1;
	}
	if (count < 0 && errno == ENOENT) {
		complain(name,
			 _("nothing is left behind in %s: no program of this user has failed since this machine started, or it was "
			   "not started by uroce run or uroce explain, or with UROCE_EXPLAIN=off, or UROCE_RUNTIME_DIR is another"),
			 runtime_directory());
		return 1;
	}
	if (count < 0) {
		complain(name, "%s: %s", runtime_directory(), strerror(errno));
		return 1;
	}
	printf(_("%s (process %d) left behind these causes, the first of each kind and queue pair:\n"), head.program, head.pid);
	for (int i = 0; i < count; i++)
		explain_tell(stdout, &(struct told){ .cause = &causes[i], .count = 1 });
	return 0;
}

bool explain_speak(const char *name, struct libraries *libs, char catalogues[CATALOGUES_BYTES])
{
	setlocale(LC_CTYPE, "");
	setlocale(LC_MESSAGES, "");
	if (!libraries_find(libs, name))
		return false;
	snprintf(catalogues, CATALOGUES_BYTES, "%s/locale", libs->dir);
	explain_translate(catalogues);
	textdomain(EXPLAIN_DOMAIN);
	return true;
}

int cmd_explain(int argc, char **argv)
{
	static const struct argp_child children[] = { { .argp = &settings_argp }, { 0 } };
	static const struct argp argp = { .options = options,
					  .parser = parse,
					  .args_doc = "-- PROGRAM [ARGUMENTS]\nWHAT\n--last",
					  .doc = doc,
					  .children = children };
	struct request request = { 0 };
	struct libraries libs;
	char catalogues[CATALOGUES_BYTES];

	argp_err_exit_status = STATUS_FAILED;
	if (!explain_speak(argv[0], &libs, catalogues) || argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &request) ||
	    !settings_check(argv[0]))
		return STATUS_FAILED;
	if (request.last)
		return explain_last(argv[0]);
	if (request.program)
		return explain_run(argv[0], argv + request.program);
	if (explain_query(request.what))
		return 0;
	complain(argv[0], _("'%s' is no cause, status, errno or reject reason; try --help"), request.what);
	return 1;
}
