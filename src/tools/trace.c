/* SPDX-License-Identifier: MIT */
/*
 * uroce trace: what becomes of each request of a program, written as a capture, a timeline or a page, or drawn in the terminal.
 */
#include <errno.h>
#include <langinfo.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "local/message.h"
#include "tools/child.h"
#include "tools/explain.h"
#include "tools/libraries.h"
#include "tools/processes.h"
#include "tools/replacement.h"
#include "tools/segment.h"
#include "tools/tools.h"
#include "tools/trace_advice.h"
#include "tools/trace_capture.h"
#include "tools/trace_collect.h"
#include "tools/trace_draw.h"
#include "tools/trace_html.h"
#include "tools/trace_perfetto.h"
#include "tools/trace_svg.h"

static const char doc[] =
	"Follow each work request of a program: when it was posted, taken up, sent, placed at the other end, completed and polled. PROGRAM is "
	"run as by uroce run. The suffix of FILE says what is written:\n"
	"  .pcapng  the packets, as Wireshark opens them; for messages of shared memory those that the wire would have carried\n"
	"  .json    a timeline for ui.perfetto.dev\n"
	"  .html    a page that draws it, to be opened in a browser\n"
	"  .svg     a picture of the first messages and of the queues\n"
	"Without FILE the first messages and the queues are drawn in the terminal.\v"
	"For example:\n"
	"  uroce trace -- ./my_program\n"
	"  uroce trace -o trace.pcapng -- sh -c './server & ./client 127.0.0.1; wait'\n"
	"  uroce trace -o trace.html --pid 4711 --seconds 10";

enum { OPTION_PID = 256, OPTION_SECONDS };

static const struct argp_option options[] = {
	{ .name = "output", .key = 'o', .arg = "FILE", .doc = "Write the trace to FILE" },
	{ .name = "pid", .key = OPTION_PID, .arg = "PID", .doc = "Trace a process that runs, until it ends or Ctrl-C" },
	{ .name = "seconds", .key = OPTION_SECONDS, .arg = "N", .doc = "With --pid: for so long at most" },
	{ 0 }
};

enum format { FORMAT_DRAWN, FORMAT_PCAPNG, FORMAT_JSON, FORMAT_HTML, FORMAT_SVG };
static const char *const suffixes[] = { [FORMAT_PCAPNG] = ".pcapng", [FORMAT_JSON] = ".json", [FORMAT_HTML] = ".html", [FORMAT_SVG] = ".svg" };

struct request {
	const char *file; /* NULL: the terminal */
	enum format format;
	pid_t pid;
	unsigned seconds;
	int program; /* index in argv; 0: none */
};

static unsigned long number_of(struct argp_state *state, const char *text, const char *what)
{
	char *end;
	unsigned long number;

	errno = 0;
	number = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || !number || number > INT_MAX)
		argp_error(state, "'%s' is no %s", text, what);
	return number;
}

static void set_file(struct argp_state *state, struct request *request, const char *file)
{
	const size_t length = strlen(file);

	request->file = file;
	for (unsigned format = FORMAT_PCAPNG; format <= FORMAT_SVG; format++) {
		const size_t suffix = strlen(suffixes[format]);

		if (length > suffix && !strcmp(file + length - suffix, suffixes[format]))
			request->format = format;
	}
	if (!request->format)
		argp_error(state, "'%s' ends neither in .pcapng nor .json nor .html nor .svg", file);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct request *request = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = NULL;
		return 0;
	case 'o':
		set_file(state, request, arg);
		return 0;
	case OPTION_PID:
		request->pid = (pid_t)number_of(state, arg, "process id");
		return 0;
	case OPTION_SECONDS:
		request->seconds = (unsigned)number_of(state, arg, "number of seconds");
		return 0;
	case ARGP_KEY_ARG:
		request->program = state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_END:
		if (!request->program == !request->pid)
			argp_error(state, "give one of -- PROGRAM and --pid");
		if (request->seconds && !request->pid)
			argp_error(state, "--seconds is for --pid");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- What becomes of it ---- */

struct output {
	const char *name; /* of the subcommand */
	const struct request *request;
	const char *program, *catalogues;
	struct replacement to; /* with a file */
	struct trace_collect collect;
	struct trace_model model;
	struct trace_capture *capture;
};

/* Where there is room for the output there is for the events, until all are there. */
static bool begin(struct output *output)
{
	const char *file = output->request->file, *temporary = getenv("TMPDIR"), *slash = file ? strrchr(file, '/') : NULL;
	char directory[PATH_MAX];
	int err;

	snprintf(directory, sizeof(directory), "%s", file ? "." : temporary && *temporary ? temporary : "/tmp");
	if (slash)
		snprintf(directory, sizeof(directory), "%.*s", slash == file ? 1 : (int)(slash - file), file);
	err = file ? replacement_prepare(&output->to, file) : 0;
	if (err) {
		complain(output->name, "%s: %s", file, strerror(err));
		return false;
	}
	if (output->request->format == FORMAT_PCAPNG) {
		output->capture = malloc(sizeof(*output->capture));
		if (!output->capture) {
			complain(output->name, "%s", strerror(ENOMEM));
			return false;
		}
	}
	err = trace_collect_begin(&output->collect, directory, output->capture ? TRACE_SNAP : 0);
	if (err)
		complain(output->name, _("cannot begin a trace: %s"), strerror(err));
	return !err;
}

/* Whatever there is by now. */
static void end(struct output *output)
{
	replacement_abandon(&output->to);
	if (output->collect.slots)
		trace_collect_end(&output->collect);
	trace_model_free(&output->model);
	output->model = (struct trace_model){ 0 };
	free(output->capture);
	output->capture = NULL;
}

static void capture(void *arg, const struct trace_item *item)
{
	trace_capture_tell(arg, item);
}

static void terminal_size(FILE *out, unsigned *columns, unsigned *rows)
{
	struct winsize size;

	*columns = 80;
	*rows = 24;
	if (!ioctl(fileno(out), TIOCGWINSZ, &size) && size.ws_col && size.ws_row) {
		*columns = size.ws_col;
		*rows = size.ws_row;
	}
}

/* False for want of memory. */
static bool write_picture(struct output *output)
{
	bool enough;

	bind_textdomain_codeset(EXPLAIN_DOMAIN, "UTF-8");
	explain_translate(output->catalogues);
	enough = trace_svg(output->to.out, &output->model, output->program);
	bind_textdomain_codeset(EXPLAIN_DOMAIN, nl_langinfo(CODESET));
	explain_translate(output->catalogues);
	return enough;
}

/* False for want of memory. */
static bool write_model(struct output *output)
{
	struct trace_shown shown;
	struct trace_words *words;
	struct trace_advices advices = { 0 };
	const bool page = output->request->format == FORMAT_HTML;
	bool enough = true;

	if (output->request->format == FORMAT_SVG)
		return write_picture(output);
	if (!trace_shown_choose(&shown, &output->model, TRACE_SHOWN_MOST))
		return false;
	words = trace_words_make(&output->model, output->catalogues);
	if (page)
		trace_advice_make(&advices, &output->collect, output->catalogues);

	const struct trace_told told = { .model = &output->model,
					 .shown = &shown,
					 .words = words,
					 .advices = &advices,
					 .program = output->program,
					 .start = output->collect.count ? output->collect.start : 0 };

	if (page)
		trace_html(output->to.out, &told);
	else
		enough = trace_perfetto(output->to.out, &told);
	trace_words_free(words, &output->model);
	trace_advice_free(&advices);
	trace_shown_free(&shown);
	return enough;
}

/* The line at the end, and what is to be known of the file. */
static void sum_up(const struct output *output)
{
	const struct trace_model *model = &output->model;

	fprintf(stderr, "%s: ", output->name);
	if (model->processes.count == 1)
		fprintf(stderr, _("%llu events of 1 process, %llu dropped"), (unsigned long long)model->events,
			(unsigned long long)model->dropped);
	else
		fprintf(stderr, _("%llu events of %u processes, %llu dropped"), (unsigned long long)model->events,
			model->processes.count, (unsigned long long)model->dropped);
	if (output->request->file) {
		fprintf(stderr, ", ");
		fprintf(stderr, _("written to %s"), output->request->file);
	}
	fprintf(stderr, "\n");
	if (output->capture && output->capture->misread)
		complain(output->name,
			 _("%llu of %llu packets are SENDs of at most 12 bytes, which Wireshark calls malformed unless it is "
			   "told not to look for RPC in them: wireshark --disable-heuristic rpcrdma_infiniband %s"),
			 (unsigned long long)output->capture->misread, (unsigned long long)output->capture->packets,
			 output->request->file);
	if (!model->processes.count)
		complain(output->name, "%s", _("no device of uroce was opened"));
}

/* Tells all events, and writes what becomes of them. 0, or errno. */
static int write_all(struct output *output)
{
	const bool drawn = !output->request->file;
	int err = drawn ? 0 : replacement_open(&output->to);

	if (err)
		return err;
	if (output->capture)
		trace_capture_begin(output->capture, output->to.out, &output->model, output->collect.start);
	err = trace_collect_tell(&output->collect, &output->model, output->capture ? capture : NULL, output->capture);
	if (output->capture)
		trace_capture_end(output->capture);
	if (!err)
		err = output->collect.spool.error;
	if (!err && (output->model.short_of_memory || (!drawn && !output->capture && !write_model(output))))
		err = ENOMEM;
	return err || drawn ? err : replacement_finish(&output->to);
}

/* When all events are there. False after one line on stderr. */
static bool finish(struct output *output)
{
	const char *file = output->request->file;
	/* What the program prints stays what it is. */
	FILE *terminal = output->request->pid ? stdout : stderr;
	unsigned columns, rows;
	int err;

	trace_collect_stop(&output->collect);
	err = write_all(output);
	if (!file) {
		terminal_size(terminal, &columns, &rows);
		trace_draw(terminal, &output->model, columns, rows);
	}
	if (err && file)
		complain(output->name, _("the trace could not be written: %s: %s"), file, strerror(err));
	else if (err)
		complain(output->name, _("the trace is not complete: %s"), strerror(err));
	else
		sum_up(output);
	end(output);
	return !err;
}

static int trace_program(struct output *output, char **argv)
{
	struct child child;
	int status, err;

	err = trace_collect_listen(&output->collect);
	/* What is drawn has the causes, too. */
	if (!err && !output->request->file && setenv("UROCE_EXPLAIN", "off", 0))
		err = errno;
	if (err)
		complain(output->name, _("cannot begin a trace: %s"), strerror(err));
	if (err || !child_start(&child, output->name, argv))
		return STATUS_FAILED;
	status = child_attend(&child, output->collect.listener, trace_collect_empty, &output->collect);
	if (child_was_started(&child) && !finish(output) && !status)
		return STATUS_FAILED;
	return child_end_as(status);
}

/* ---- A process that runs ---- */

static const char *refusal(int error)
{
	switch (error) {
	case ECONNREFUSED:
		return _("it has ended");
	case EBUSY:
		return _("it is being traced already");
	case EPERM:
		return _("it is another user's");
	case EPROTO:
		return _("it uses another version of uroce");
	case EAGAIN:
		return _("it does not answer (is it stopped?)");
	default:
		return strerror(error);
	}
}

/* False after one line on stderr. */
static bool attach(struct output *output, pid_t pid)
{
	static struct claim claims[SLOT_COUNT];
	int count = processes_claims(claims), connection, ring, segment, error;
	struct trace_reader reader;
	uint32_t version;

	for (int i = 0; i < count; i++) {
		if (claims[i].pid != pid)
			continue;
		connection = message_ask_trace(claims[i].slot, output->collect.snap, &ring);
		error = connection < 0 ? errno : trace_open(&reader, ring, connection);
		if (!error && !trace_collect_add(&output->collect, &reader))
			error = ENOMEM;
		if (error) {
			complain(output->name, _("process %d cannot be traced: %s"), (int)pid, refusal(error));
			return false;
		}
		if (segment_open(pid, claims[i].slot, &segment, &version) == SEGMENT_OPEN)
			trace_collect_segment(&output->collect, segment);
		return true;
	}
	complain(output->name, _("process %d does not use uroce in this network namespace"), (int)pid);
	return false;
}

/* Until it ends, we are told to leave, or the time is over. */
static void follow(struct trace_collect *collect, unsigned seconds)
{
	struct timespec now;
	struct pollfd stop = { .events = POLLIN };
	time_t end;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	stop.fd = signalfd(-1, &set, SFD_CLOEXEC);
	clock_gettime(CLOCK_MONOTONIC, &now);
	end = now.tv_sec + (time_t)seconds;
	while (!collect->sources[0].closed) {
		const int wait = trace_collect_empty(collect);

		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((seconds && now.tv_sec >= end) || poll(&stop, 1, wait) > 0)
			break;
	}
	close(stop.fd);
}

static int trace_process(struct output *output)
{
	if (!attach(output, output->request->pid))
		return 1;
	follow(&output->collect, output->request->seconds);
	return finish(output) ? 0 : 1;
}

/* The words of a command line. */
static char *joined(char **argv)
{
	size_t length = 1;
	char *text;

	for (char **word = argv; *word; word++)
		length += strlen(*word) + 1;
	text = calloc(1, length);
	for (char **word = argv; text && *word; word++) {
		strcat(text, *word);
		if (word[1])
			strcat(text, " ");
	}
	return text;
}

int cmd_trace(int argc, char **argv)
{
	static const struct argp_child children[] = { { .argp = &settings_argp }, { 0 } };
	static const struct argp argp = { .options = options,
					  .parser = parse,
					  .args_doc = "-- PROGRAM [ARGUMENTS]\n--pid PID",
					  .doc = doc,
					  .children = children };
	struct request request = { 0 };
	struct output output = { .name = argv[0], .request = &request };
	struct libraries libs;
	char catalogues[CATALOGUES_BYTES], *program;
	int status;

	argp_err_exit_status = STATUS_FAILED;
	if (!explain_speak(argv[0], &libs, catalogues) || argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &request) ||
	    !settings_check(argv[0]))
		return STATUS_FAILED;
	program = request.program ? joined(argv + request.program) : NULL;
	if (request.pid && asprintf(&program, "pid %d", (int)request.pid) < 0)
		program = NULL;
	output.program = program ? program : "";
	output.catalogues = catalogues;
	if (!begin(&output))
		status = STATUS_FAILED;
	else
		status = request.pid ? trace_process(&output) : trace_program(&output, argv + request.program);
	end(&output);
	free(program);
	return status;
}
