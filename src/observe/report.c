/* SPDX-License-Identifier: MIT */
/* UROCE_EXPLAIN. See report.h. */
#include "observe/report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "observe/explain.h"
#include "observe/kept.h"
#include "observe/watch.h"

#define KINDS CAUSE_KINDS
/* What a pipe that can be written to takes without waiting (PIPE_BUF). */
#define PARAGRAPH 4096
#define FRAMES_TOLD 8

/* A cause of a queue pair (or another object), which may happen often. */
struct kind {
	uint64_t kind; /* cause_kind() */
	uint32_t code, qpn;
	uint32_t peer_qpn; /* of this process, which fails with it; 0: none */
	uint64_t count, flushed, told; /* told: of count */
	uint64_t order;		       /* of the last time */
};

static struct {
	pthread_mutex_t lock; /* all but way, which is set first; taken with all signals blocked */
	enum report_way way;
	char path[PATH_MAX];
	char kept[PATH_MAX]; /* "": nowhere */
	int fd;
	struct stat file; /* what fd was when it was opened: the program may close it and open another */
	struct kind kinds[KINDS];
	unsigned count;
	uint64_t order, untold;
	uint64_t failures; /* of all kinds but what programs ask for and can do without */
	struct cause first;
	/* What is being told: threads may have small stacks. */
	char text[PARAGRAPH], line[PARAGRAPH / 2], words[EXPLAIN_TEXT], todo[EXPLAIN_TEXT];
} report = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

/* ---- Not to disturb ---- */

struct calm {
	sigset_t old;
	int error, cancel;
};

static void enter(struct calm *calm)
{
	sigset_t all;

	calm->error = errno;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &calm->cancel);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &calm->old);
	pthread_mutex_lock(&report.lock);
}

static void leave(const struct calm *calm)
{
	pthread_mutex_unlock(&report.lock);
	pthread_sigmask(SIG_SETMASK, &calm->old, NULL);
	pthread_setcancelstate(calm->cancel, NULL);
	errno = calm->error;
}

static struct calm around_fork; /* under the lock */

static void before_fork(void)
{
	struct calm calm;

	enter(&calm);
	around_fork = calm;
}

static void after_fork_in_parent(void)
{
	struct calm calm = around_fork;

	leave(&calm);
}

static void after_fork_in_child(void)
{
	struct calm calm = around_fork;

	/* What the parent has told is not told again. */
	memset(report.kinds, 0, sizeof(report.kinds));
	report.count = 0;
	report.untold = report.failures = 0;
	leave(&calm);
}

static bool is_the_same(int fd, const struct stat *file)
{
	struct stat now;

	return fd >= 0 && !fstat(fd, &now) && now.st_dev == file->st_dev && now.st_ino == file->st_ino;
}

static int open_file(const char *path)
{
	return descriptor_above(open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));
}

/* Lock held, signals blocked. A signal of this thread's that was not pending before is of our making. */
static void write_text(const char *text, size_t length)
{
	static const int ours[] = { SIGPIPE, SIGXFSZ };
	struct pollfd writable;
	sigset_t before, after, one;

	if (!is_the_same(report.fd, &report.file)) {
		if (report.way != REPORT_FILE)
			return;
		report.fd = open_file(report.path);
		if (report.fd < 0 || fstat(report.fd, &report.file))
			return;
	}
	writable = (struct pollfd){ .fd = report.fd, .events = POLLOUT };
	if (poll(&writable, 1, 0) != 1 || !(writable.revents & POLLOUT))
		return;
	sigpending(&before);
	if (write(report.fd, text, length) >= 0)
		return;
	sigpending(&after);
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
		if (sigismember(&before, ours[i]) || !sigismember(&after, ours[i]))
			continue;
		sigemptyset(&one);
		sigaddset(&one, ours[i]);
		sigtimedwait(&one, NULL, &(struct timespec){ 0 });
	}
}

/* ---- Words ---- */

/* A longer line is cut, but not its end. */
static void add_line(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add_line(char *text, size_t size, const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + length, size - length - 1, format, arguments);
	va_end(arguments);
	strcat(text, "\n");
}

static void begin_paragraph(char *text, size_t size, uint32_t code, const char *outcome)
{
	const char *name = cause_name(code);

	add_line(text, size, "uroce: %s (%d): %s%s%s (cause %u)", program_invocation_short_name, getpid(), outcome,
		 *outcome ? ", " : "", name ? name : "?", code);
}

/* The catalogue's formats are checked by msgfmt -c. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void tell(const struct cause *c)
{
	*report.text = '\0';
	begin_paragraph(report.text, sizeof(report.text), c->code, explain_outcome(c));
	explain_what(c, report.words, sizeof(report.words));
	add_line(report.text, sizeof(report.text), "  %s", report.words);
	if (*explain_todo(c->code)) {
		snprintf(report.todo, sizeof(report.todo), explain_word(EXPLAIN_WORD_TODO), explain_todo(c->code));
		add_line(report.text, sizeof(report.text), "  %s", report.todo);
	}
	write_text(report.text, strlen(report.text));
}

/* Where in which file: symbols are looked up under the linker's lock, which another thread may hold while it waits for us. */
static void add_frame(char *text, size_t size, const struct watch *watch, unsigned place, uint64_t address)
{
	const struct watch_module *module = watch_module_of(watch, address - 1);

	if (module)
		add_line(text, size, "    #%u %s+0x%llx", place, module->path, (unsigned long long)(address - module->bias));
	else
		add_line(text, size, "    #%u 0x%llx", place, (unsigned long long)address);
}

static void tell_stacks(const struct cause *c)
{
	const struct watch *watch = watch_now();
	bool any = false;

	for (unsigned i = 0; watch && i < CAUSE_STACKS; i++) {
		const struct watch_stack *stack = watch_get(watch, c->stacks[i]); /* a peer's is none */

		if (!stack)
			continue;
		any = true;
		*report.text = '\0';
		add_line(report.text, sizeof(report.text), "  %s", explain_word(EXPLAIN_WORD_STACK + i));
		for (unsigned f = 0; f < FRAMES_TOLD && f < stack->count; f++)
			add_frame(report.text, sizeof(report.text), watch, f, stack->frames[f]);
		write_text(report.text, strlen(report.text));
	}
	if (any) {
		*report.text = '\0';
		add_line(report.text, sizeof(report.text), "  %s", explain_word(EXPLAIN_WORD_LINES));
		write_text(report.text, strlen(report.text));
	}
}

static void tell_sum(struct kind *kind)
{
	char object[16] = "";

	*report.text = '\0';
	if (kind->qpn >> 14) /* handles of others are small numbers */
		snprintf(object, sizeof(object), "QP 0x%x: ", kind->qpn);
	begin_paragraph(report.text, sizeof(report.text), kind->code, "");
	if (kind->count > kind->told) {
		snprintf(report.words, sizeof(report.words), explain_word(EXPLAIN_WORD_AGAIN), (unsigned long long)kind->count);
		add_line(report.text, sizeof(report.text), "  %s%s", object, report.words);
	}
	if (kind->flushed) {
		snprintf(report.words, sizeof(report.words),
			 explain_word(kind->flushed == 1 ? EXPLAIN_WORD_FLUSHED_ONE : EXPLAIN_WORD_FLUSHED),
			 (unsigned long long)kind->flushed);
		add_line(report.text, sizeof(report.text), "  %s%s", object, report.words);
	}
	write_text(report.text, strlen(report.text));
	kind->told = kind->count;
	kind->flushed = 0;
}

static void tell_end(void)
{
	*report.text = '\0';
	explain_what(&report.first, report.words, sizeof(report.words));
	snprintf(report.line, sizeof(report.line), explain_word(report.failures == 1 ? EXPLAIN_WORD_END_ONE : EXPLAIN_WORD_END),
		 program_invocation_short_name, getpid(), (unsigned long long)report.failures, report.words);
	add_line(report.text, sizeof(report.text), "%s %s", report.line, explain_word(EXPLAIN_WORD_HOW));
	write_text(report.text, strlen(report.text));
}

static void tell_untold(void)
{
	*report.text = '\0';
	snprintf(report.words, sizeof(report.words), explain_word(EXPLAIN_WORD_MORE), (unsigned long long)report.untold);
	add_line(report.text, sizeof(report.text), "uroce: %s (%d): %s", program_invocation_short_name, getpid(), report.words);
	write_text(report.text, strlen(report.text));
}
#pragma GCC diagnostic pop

/* ---- Events ---- */

static struct kind *find(uint64_t kind)
{
	for (unsigned i = 0; i < report.count; i++)
		if (report.kinds[i].kind == kind)
			return &report.kinds[i];
	return NULL;
}

static bool is_enough(uint32_t code)
{
	unsigned same = 0;

	for (unsigned i = 0; i < report.count; i++)
		same += report.kinds[i].code == code;
	return report.count == KINDS || same >= CAUSE_OF_ONE_CODE;
}

/* True for a kind that is new, and to be told. */
static bool count(const struct cause *c)
{
	struct kind *kind = find(cause_kind(c));
	bool is_new = !kind;

	/* Programs ask for what they can do without, and end connections that they do not need any more. And what is found at one end
	 * and at the other is told by who caused it. */
	if (c->code != CAUSE_NOT_SUPPORTED && c->code != CAUSE_FLUSHED_BY_PROGRAM &&
	    (!report.failures++ || report.first.code == CAUSE_PEER_REPORTED))
		report.first = *c;
	if (is_new && is_enough(c->code)) {
		report.untold++;
		return false;
	}
	if (is_new) {
		kind = &report.kinds[report.count++];
		*kind = (struct kind){ .kind = cause_kind(c), .code = c->code, .qpn = c->qpn, .told = 1 };
		if (c->role == CAUSE_OF_REQUEST && c->peer_pid == getpid())
			kind->peer_qpn = c->peer_qpn;
	}
	kind->count++;
	kind->order = ++report.order;
	return is_new;
}

static void listen(const struct cause *c)
{
	struct calm calm;

	enter(&calm);
	if (count(c)) {
		if (report.way != REPORT_LINE) {
			tell(c);
			tell_stacks(c);
		}
		if (*report.kept)
			kept_add(report.kept, getpid(), program_invocation_short_name, c);
	}
	leave(&calm);
}

void report_flush(uint32_t code, uint32_t object)
{
	struct kind *last = NULL;
	struct calm calm;

	if (!atomic_load_explicit(&cause_listener, memory_order_acquire))
		return;
	enter(&calm);
	for (unsigned i = 0; i < report.count; i++)
		if ((report.kinds[i].qpn == object || report.kinds[i].peer_qpn == object) && (!code || report.kinds[i].code == code) &&
		    (!last || report.kinds[i].order > last->order))
			last = &report.kinds[i];
	if (last)
		last->flushed++;
	leave(&calm);
}

/* ---- Life ---- */

/* What stderr is when the program begins; it may be another file's number before a device is opened. */
static struct stat stderr_at_load;

__attribute__((constructor)) static void look_at_stderr(void)
{
	if (fstat(STDERR_FILENO, &stderr_at_load)) /* closed already: no file has such a number */
		memset(&stderr_at_load, 0xff, sizeof(stderr_at_load));
}

bool report_parse(const char *setting, enum report_way *way)
{
	int fd;

	*way = !setting || !strcmp(setting, "off") ? REPORT_OFF :
	       !strcmp(setting, "stderr")	   ? REPORT_STDERR :
	       !strcmp(setting, "line")		   ? REPORT_LINE :
						     REPORT_FILE;
	if (*way != REPORT_FILE)
		return true;
	if (strlen(setting) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return false;
	}
	fd = open_file(setting);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static void start(const char *setting, enum report_way way, const char *catalogues, const char *kept)
{
	explain_translate(catalogues);
	report.way = way;
	if (kept)
		snprintf(report.kept, sizeof(report.kept), "%s", kept);
	if (way == REPORT_FILE) {
		/* The program may change its directory. */
		if (!realpath(setting, report.path))
			snprintf(report.path, sizeof(report.path), "%s", setting);
		int low = open_file(report.path);

		/* Out of the way of programs that count on low numbers. */
		report.fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, 64);
		if (report.fd < 0)
			report.fd = low;
		else
			close(low);
		if (report.fd >= 0)
			fstat(report.fd, &report.file);
	} else {
		report.fd = STDERR_FILENO;
		report.file = stderr_at_load;
	}
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
	atomic_store_explicit(&cause_listener, listen, memory_order_release);
}

void report_start(const char *setting, const char *catalogues, const char *kept)
{
	static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
	enum report_way way;

	pthread_mutex_lock(&starting);
	if (!atomic_load(&cause_listener) && report_parse(setting, &way) && way != REPORT_OFF)
		start(setting, way, catalogues, kept);
	pthread_mutex_unlock(&starting);
}

bool report_tells(void)
{
	return atomic_load_explicit(&cause_listener, memory_order_acquire) && report.way != REPORT_LINE;
}

/* Behind those without a priority, which may find something still. */
__attribute__((destructor(65535))) static void end(void)
{
	struct calm calm;

	if (!atomic_load_explicit(&cause_listener, memory_order_acquire))
		return;
	enter(&calm);
	if (report.way == REPORT_LINE) {
		if (report.failures)
			tell_end();
	} else {
		for (unsigned i = 0; i < report.count; i++)
			if (report.kinds[i].count > report.kinds[i].told || report.kinds[i].flushed)
				tell_sum(&report.kinds[i]);
		if (report.untold)
			tell_untold();
	}
	leave(&calm);
}
