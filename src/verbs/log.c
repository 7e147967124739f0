/* SPDX-License-Identifier: MIT */
/*
 * The log of rdma-core: silent unless VERBS_LOG_LEVEL (1 errors ... 4 everything) asks for it; then to VERBS_LOG_FILE or
 * stderr. Provider libraries call __verbs_log, some of them once per query of a device that is not theirs.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "verbs/verbs.h"

#define LOG_ERROR 1u

static FILE *log_file;
static unsigned log_level;
static struct stat log_status;

static FILE *open_file(const char *path)
{
	int fd = descriptor_above(open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
	FILE *file = fd < 0 ? NULL : fdopen(fd, "a");

	if (fd >= 0 && !file)
		close(fd);
	return file;
}

static void log_open(void)
{
	const char *level = getenv("VERBS_LOG_LEVEL"), *path = getenv("VERBS_LOG_FILE");

	if (!level)
		return;
	log_level = (unsigned)strtoul(level, NULL, 10);
	log_file = path ? open_file(path) : stderr;
	if (!log_file || (path && fstat(fileno(log_file), &log_status)))
		log_level = 0;
	else
		setvbuf(log_file, NULL, _IOLBF, 0);
}

/* What the program has opened in its place, by its number, is not written to. */
static bool is_still_there(void)
{
	struct stat now;

	return log_file == stderr || (!fstat(fileno(log_file), &now) && now.st_dev == log_status.st_dev &&
				      now.st_ino == log_status.st_ino);
}

static void log_line(unsigned level, const char *end, const char *format, va_list arguments)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int error = errno;

	pthread_once(&once, log_open);
	if (level <= log_level && is_still_there()) {
		vfprintf(log_file, format, arguments);
		fputs(end, log_file);
	}
	errno = error;
}

void verbs_log_error(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	log_line(LOG_ERROR, "\n", format, arguments);
	va_end(arguments);
}

EXPORTED __attribute__((format(printf, 3, 4))) void
__verbs_log(struct verbs_context *ctx, uint32_t level, const char *format, ...)
{
	va_list arguments;

	(void)ctx;
	va_start(arguments, format);
	log_line(level, "", format, arguments);
	va_end(arguments);
}
