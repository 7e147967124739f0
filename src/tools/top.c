/* SPDX-License-Identifier: MIT */
/*
 * uroce top: the processes that use uroce, their queue pairs and queues, live. Snapshots are taken as `uroce stat` takes its one:
 * the processes do not notice.
 */
#include <errno.h>
#include <ncurses.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "nic/nic.h"
#include "tools/explain.h"
#include "tools/libraries.h"
#include "tools/tools.h"
#include "tools/top.h"
#include "tools/width.h"

static const char doc[] =
	"Show the processes that use uroce, their queue pairs and queues, live.\v"
	"Keys: q quits, 1 to 4 choose what is shown, arrows and pages move, Enter goes into a process or the queues of "
	"a queue pair, Esc back, < and > choose the column to sort by and r reverses, space stops and goes on, + and - "
	"change the interval, ? explains the columns.";

enum { OPTION_ONCE = 256, OPTION_PID, OPTION_QP, OPTION_INTERVAL, OPTION_COLUMNS };

static const struct argp_option options[] = {
	{ .name = "once", .key = OPTION_ONCE, .doc = "Print all tables once, as text" },
	{ .name = "interval", .key = OPTION_INTERVAL, .arg = "SECONDS", .doc = "Between two looks; 1 without it" },
	{ .name = "pid", .key = OPTION_PID, .arg = "PID", .doc = "Only this process" },
	{ .name = "qp", .key = OPTION_QP, .arg = "QPN", .doc = "The queues of this queue pair" },
	{ .name = "columns", .key = OPTION_COLUMNS, .arg = "N", .doc = "With --once: how wide lines may be" },
	{ 0 },
};

#define INTERVAL_LEAST 0.1
#define INTERVAL_MOST  3600.0
#define COLUMNS_LEAST  20
#define TEXT_COLUMNS   132

struct top {
	const char *name;
	struct sight sight;
	bool once;
	bool has_qpn;
	uint32_t qpn;
	unsigned columns; /* of --once; 0: the terminal's */
	bool help;
	struct snapshot now, before;
	struct queues queues;
};

static double number_of(struct argp_state *state, const char *arg, double least, double most, const char *what)
{
	char *end;
	double number = strtod(arg, &end);

	if (end == arg || *end || !(number >= least && number <= most))
		argp_error(state, "'%s' is no %s; it is a number from %g to %g", arg, what, least, most);
	return number;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct top *top = state->input;
	unsigned long qpn;
	char *end;

	switch (key) {
	case OPTION_ONCE:
		top->once = true;
		return 0;
	case OPTION_PID:
		top->sight.pid = (pid_t)number_of(state, arg, 1, 1 << 22, "process id");
		return 0;
	case OPTION_QP:
		errno = 0;
		qpn = strtoul(arg, &end, 0);
		if (errno || end == arg || *end || qpn > 0xffffff)
			argp_error(state, "'%s' is no queue pair number", arg);
		top->has_qpn = true;
		top->qpn = (uint32_t)qpn;
		return 0;
	case OPTION_INTERVAL:
		top->sight.interval = number_of(state, arg, INTERVAL_LEAST, INTERVAL_MOST, "interval");
		return 0;
	case OPTION_COLUMNS:
		top->columns = (unsigned)number_of(state, arg, COLUMNS_LEAST, LINE_BYTES - 1, "width");
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "no arguments are taken");
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct process_shot *process_of(const struct top *top, pid_t pid)
{
	for (uint32_t i = 0; i < top->now.count; i++) {
		if (top->now.processes[i].pid == pid)
			return &top->now.processes[i];
	}
	return NULL;
}

/* When a request was first seen: it is the same while index and wr_id are. */
static void carry_queue(struct wr_list *list, const struct wr_list *before, uint64_t at)
{
	uint32_t j = 0;

	for (uint32_t i = 0; i < list->count; i++) {
		struct wr_shot *wr = &list->wrs[i];

		wr->seen_at = at;
		while (j < before->count && (int32_t)(before->wrs[j].index - wr->index) < 0)
			j++;
		if (j < before->count && before->wrs[j].index == wr->index && before->wrs[j].wr_id == wr->wr_id)
			wr->seen_at = before->wrs[j].seen_at;
	}
}

/* The queues of the queue pair that is looked at. */
static void read_queues(struct top *top)
{
	const struct process_shot *process = process_of(top, top->sight.pid);
	const struct qp_shot *qp = NULL;
	struct queues queues = { .error = ESRCH };
	uint32_t version;
	int fd;

	for (uint32_t i = 0; process && i < process->qp_count; i++) {
		if (process->qps[i].index == top->sight.qp_index)
			qp = &process->qps[i];
	}
	if (qp && segment_open(process->pid, process->slot, &fd, &version) == SEGMENT_OPEN) {
		queues.send_known = queues_send(process->pid, fd, qp->index, WR_LIST_MOST, &queues.send);
		queues.error = errno;
		if (!queues.send_known)
			queues_free(&queues.send);
		queues.receive_known = queues_receive(fd, qp->srq >= 0, qp->srq >= 0 ? (uint32_t)qp->srq : qp->index, WR_LIST_MOST,
						      &queues.receive);
		close(fd);
		carry_queue(&queues.send, &top->queues.send, process->at);
	}
	queues_free(&top->queues.send);
	queues_free(&top->queues.receive);
	top->queues = queues;
}

/* The next look: what was `now` is `before`. */
static bool look(struct top *top)
{
	struct snapshot older = top->before;

	top->before = top->now;
	top->now = older;
	/* Who is who is known to the newer one. */
	memcpy(top->now.claims, top->before.claims, sizeof(top->now.claims));
	top->now.claim_count = top->before.claim_count;
	if (!snapshot_take(&top->now, top->once ? top->sight.pid : 0))
		return false;
	snapshot_carry(&top->now, &top->before);
	if (top->sight.view == VIEW_QUEUE)
		read_queues(top);
	return true;
}

static bool make_table(struct top *top, struct sheet *sheet)
{
	return rows_make(sheet, &top->sight, &top->now, top->before.count ? &top->before : NULL, &top->queues);
}

static unsigned text_columns(const struct top *top)
{
	struct winsize size;

	if (top->columns)
		return top->columns;
	return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col >= COLUMNS_LEAST ? size.ws_col : TEXT_COLUMNS;
}

static bool print_view(struct top *top)
{
	struct sheet sheet;
	struct frame frame = { 0 };
	bool done = make_table(top, &sheet) && frame_text(&frame, &top->sight, &sheet, &top->now, text_columns(top));

	for (uint32_t i = 0; i < frame.count; i++)
		puts(frame.lines[i].text);
	frame_free(&frame);
	rows_free(&sheet);
	return done;
}

/* To the queue pair that --qp names; false if there is none. */
static bool enter_qpn(struct top *top)
{
	for (uint32_t i = 0; i < top->now.count; i++) {
		const struct process_shot *process = &top->now.processes[i];

		for (uint32_t j = 0; j < process->qp_count; j++) {
			if (process->qps[j].qpn != top->qpn || (top->sight.pid && top->sight.pid != process->pid))
				continue;
			top->sight.pid = process->pid;
			top->sight.qp_index = process->qps[j].index;
			top->sight.view = VIEW_QUEUE;
			read_queues(top);
			return true;
		}
	}
	return false;
}

static void pause_for(double seconds)
{
	struct timespec left = { .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static int print_once(struct top *top)
{
	bool done = true;

	pause_for(top->sight.interval);
	if (!look(top))
		return 1;
	if (top->sight.view == VIEW_QUEUE)
		return print_view(top) ? 0 : 1;
	for (unsigned view = 0; view < VIEW_LISTS && done; view++) {
		top->sight.view = (enum view)view;
		done = print_view(top);
	}
	return done ? 0 : 1;
}

/* ---- The terminal ---- */

static volatile sig_atomic_t ended;

static void end(int signal)
{
	ended = signal;
}

static attr_t attributes(enum look look)
{
	switch (look) {
	case LOOK_HEAD:
		return A_BOLD;
	case LOOK_TITLE:
		return A_REVERSE | A_BOLD;
	case LOOK_SELECTED:
		return A_REVERSE;
	case LOOK_ALARM:
		return has_colors() ? (attr_t)COLOR_PAIR(1) | A_BOLD : A_BOLD;
	default:
		return A_NORMAL;
	}
}

static void draw_help(const struct top *top)
{
	unsigned count;
	const struct column *columns = view_columns(top->sight.view, &count);
	char text[LINE_BYTES];
	int line = 0;

	erase();
	snprintf(text, sizeof(text), _("%s: columns from left to right, wide terminals' last. Any key goes back."),
		 view_name(top->sight.view));
	mvaddnstr(line++, 0, text, (int)width_fit(text, (unsigned)COLS));
	for (unsigned i = 0; i < count && line < LINES; i++) {
		snprintf(text, sizeof(text), "%-8s %s", columns[i].title, _(columns[i].meaning));
		mvaddnstr(line++, 0, text, (int)width_fit(text, (unsigned)COLS - 1));
	}
	refresh();
}

static void draw(struct top *top)
{
	struct sheet sheet;
	struct frame frame = { 0 };

	if (top->help) {
		draw_help(top);
		return;
	}
	erase();
	if (make_table(top, &sheet) && frame_screen(&frame, &top->sight, &sheet, &top->now, (unsigned)COLS, (unsigned)LINES)) {
		for (uint32_t i = 0; i < frame.count && (int)i < LINES; i++) {
			attrset(attributes(frame.lines[i].look));
			/* The last place of the last line is left out: to write there would scroll some terminals. */
			mvaddnstr((int)i, 0, frame.lines[i].text,
				  (int)width_fit(frame.lines[i].text, (unsigned)((int)i == LINES - 1 ? COLS - 1 : COLS)));
		}
		attrset(A_NORMAL);
	}
	frame_free(&frame);
	rows_free(&sheet);
	refresh();
}

/* Into the row that is selected. */
static void enter(struct top *top)
{
	struct sight *sight = &top->sight;
	uint32_t selected = sight->selected[sight->view];
	struct sheet sheet;

	if (make_table(top, &sheet) && selected < sheet.count) {
		const struct row *row = &sheet.rows[selected];

		if (sight->view == VIEW_PROCESSES && row->pid) {
			sight->pid = row->pid;
			sight->view = VIEW_QPS;
		} else if (sight->view == VIEW_QPS) {
			sight->pid = row->pid;
			sight->qp_index = row->index;
			sight->view = VIEW_QUEUE;
			sight->selected[VIEW_QUEUE] = sight->first[VIEW_QUEUE] = 0;
			read_queues(top);
		}
	}
	rows_free(&sheet);
}

static void back(struct sight *sight)
{
	if (sight->view == VIEW_QUEUE) {
		sight->view = VIEW_QPS;
	} else {
		sight->view = VIEW_PROCESSES;
		sight->pid = 0;
	}
}

/* To the next column that is shown, or the one before. */
static void move_sort(struct sight *sight, int by)
{
	unsigned count, at = sight->sort[sight->view];
	const struct column *columns = view_columns(sight->view, &count);

	for (unsigned next = at + (unsigned)by; next < count; next += (unsigned)by) {
		if (columns[next].from > (unsigned)COLS)
			continue;
		sight->sort[sight->view] = next;
		return;
	}
}

static void set_interval(struct sight *sight, double interval)
{
	sight->interval = interval < INTERVAL_LEAST ? INTERVAL_LEAST : interval > INTERVAL_MOST ? INTERVAL_MOST : interval;
}

/* False to quit. */
static bool take_key(struct top *top, int key)
{
	struct sight *sight = &top->sight;
	uint32_t *selected = &sight->selected[sight->view];
	uint32_t page = LINES > 6 ? (uint32_t)LINES - 6 : 1;

	if (top->help && key != KEY_RESIZE) {
		top->help = false;
		return true;
	}
	switch (key) {
	case 'q':
	case 'Q':
		return false;
	case '1':
	case '2':
	case '3':
	case '4':
		sight->view = (enum view)(key - '1');
		break;
	case '\t':
		sight->view = sight->view + 1 < VIEW_LISTS ? sight->view + 1 : 0;
		break;
	case KEY_UP:
	case 'k':
		*selected -= !!*selected;
		break;
	case KEY_DOWN:
	case 'j':
		++*selected;
		break;
	case KEY_PPAGE:
		*selected -= *selected < page ? *selected : page;
		break;
	case KEY_NPAGE:
		*selected += page;
		break;
	case KEY_HOME:
		*selected = 0;
		break;
	case KEY_END:
		*selected = UINT32_MAX >> 1;
		break;
	case '\r':
	case '\n':
	case KEY_ENTER:
	case KEY_RIGHT:
		enter(top);
		break;
	case 27: /* Esc */
	case KEY_BACKSPACE:
	case KEY_LEFT:
	case 127:
		back(sight);
		break;
	case '<':
	case ',':
		move_sort(sight, -1);
		break;
	case '>':
	case '.':
		move_sort(sight, 1);
		break;
	case 'r':
		sight->up[sight->view] = !sight->up[sight->view];
		break;
	case ' ':
		sight->paused = !sight->paused;
		break;
	case '+':
		set_interval(sight, sight->interval * 2);
		break;
	case '-':
		set_interval(sight, sight->interval / 2);
		break;
	case '?':
	case 'h':
		top->help = true;
		break;
	default:
		break;
	}
	return true;
}

/* Until the next look is due, or the user quits: then false. */
static bool take_keys(struct top *top, uint64_t due)
{
	for (uint64_t at = nic_now(); at < due && !ended; at = nic_now()) {
		uint64_t left = (due - at) / 1000000u + 1;
		int key;

		timeout(left > 1000 ? 1000 : (int)left);
		errno = 0;
		key = getch();
		if (key == ERR) {
			/* The terminal has gone: read() says so at once, again and again. */
			if (errno == EIO || !isatty(STDIN_FILENO))
				return false;
			continue;
		}
		if (!take_key(top, key))
			return false;
		draw(top);
	}
	return !ended;
}

static int run_screen(struct top *top)
{
	struct sigaction action = { .sa_handler = end };
	SCREEN *screen = newterm(NULL, stdout, stdin);
	int error = 0;

	if (!screen) {
		complain(top->name, _("this terminal is not known (TERM=%s); --once prints text"),
			 getenv("TERM") ? getenv("TERM") : "");
		return 1;
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, true);
	set_escdelay(50);
	curs_set(0);
	if (has_colors() && start_color() == OK && use_default_colors() == OK)
		init_pair(1, COLOR_RED, -1);
	do {
		draw(top);
		if (!take_keys(top, nic_now() + (uint64_t)(top->sight.interval * 1e9)))
			break;
		if (!top->sight.paused && !look(top))
			error = errno;
	} while (!error);
	endwin();
	delscreen(screen);
	if (error)
		complain(top->name, _("cannot see who uses the device: %s"), strerror(error));
	return error ? 1 : 0;
}

int cmd_top(int argc, char **argv)
{
	static const struct argp argp = { .options = options, .parser = parse, .doc = doc };
	struct top top = { .name = argv[0], .sight.interval = 1 };
	struct libraries libs;
	char catalogues[CATALOGUES_BYTES];
	int status = 1;

	if (!explain_speak(argv[0], &libs, catalogues))
		return 1;
	for (unsigned view = 0; view < VIEWS; view++)
		top.sight.sort[view] = view_first_sort((enum view)view);
	if (argp_parse(&argp, argc, argv, 0, NULL, &top))
		return 1;
	if (!top.once && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))) {
		complain(top.name, "%s", _("there is no terminal here; --once prints text"));
		return 1;
	}
	if (!look(&top)) {
		complain(top.name, _("cannot see who uses the device: %s"), strerror(errno));
		return 1;
	}
	if (top.sight.pid && !process_of(&top, top.sight.pid))
		complain(top.name, _("process %d does not use uroce in this network namespace"), (int)top.sight.pid);
	else if (top.has_qpn && !enter_qpn(&top))
		complain(top.name, _("there is no queue pair 0x%06x"), top.qpn);
	else
		status = top.once ? print_once(&top) : run_screen(&top);
	snapshot_free(&top.now);
	snapshot_free(&top.before);
	queues_free(&top.queues.send);
	queues_free(&top.queues.receive);
	return status;
}
