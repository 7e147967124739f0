/* SPDX-License-Identifier: MIT */
/* Causes that outlive their process. See kept.h. */
#include "observe/kept.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nic/descriptor.h"

#define PREFIX	"last-"
#define OLD_AGE 600 /* s: of dead processes' files, to be removed */

static bool is_kept(const struct dirent *entry, pid_t *pid)
{
	char *end;

	if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)))
		return false;
	*pid = (pid_t)strtol(entry->d_name + strlen(PREFIX), &end, 10);
	return *pid > 0 && !*end;
}

static void remove_old(int dir)
{
	int copy = fcntl(dir, F_DUPFD_CLOEXEC, 0);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;
	struct stat status;
	pid_t pid;

	while (list && (entry = readdir(list))) {
		if (is_kept(entry, &pid) && kill(pid, 0) && errno == ESRCH &&
		    !fstatat(dir, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) && time(NULL) - status.st_mtime > OLD_AGE)
			unlinkat(dir, entry->d_name, 0);
	}
	if (list)
		closedir(list);
	else if (copy >= 0)
		close(copy);
}

/* The process's file, to be appended to; -1 if there is none. */
static int open_own(int dir, pid_t pid, const char *program, bool first)
{
	struct kept_head head = { .magic = KEPT_MAGIC, .size = sizeof(struct cause), .pid = pid };
	char name[32];
	int fd;

	snprintf(name, sizeof(name), PREFIX "%d", pid);
	if (!first)
		return descriptor_above(openat(dir, name, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
	remove_old(dir);
	snprintf(head.program, sizeof(head.program), "%s", program);
	unlinkat(dir, name, 0); /* an earlier process's */
	fd = descriptor_above(openat(dir, name, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
	if (fd >= 0 && write(fd, &head, sizeof(head)) != sizeof(head)) {
		unlinkat(dir, name, 0);
		close(fd);
		return -1;
	}
	return fd;
}

void kept_add(const char *directory, pid_t pid, const char *program, const struct cause *c)
{
	static pid_t began; /* whose file it is: a forked child makes its own */
	int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), fd;

	if (dir < 0)
		return;
	fd = open_own(dir, pid, program, began != pid);
	began = pid;
	if (fd >= 0) {
		ssize_t written = write(fd, c, sizeof(*c)); /* with a full disk it is not kept */

		(void)written;
		close(fd);
	}
	close(dir);
}

static int open_newest(const char *directory)
{
	DIR *list = opendir(directory);
	struct timespec newest = { 0 };
	struct dirent *entry;
	struct stat status;
	char name[256] = "";
	pid_t pid;
	int fd;

	if (!list)
		return -1;
	while ((entry = readdir(list))) {
		if (!is_kept(entry, &pid) || fstatat(dirfd(list), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) ||
		    !S_ISREG(status.st_mode) || status.st_mtim.tv_sec < newest.tv_sec ||
		    (status.st_mtim.tv_sec == newest.tv_sec && status.st_mtim.tv_nsec < newest.tv_nsec))
			continue;
		newest = status.st_mtim;
		snprintf(name, sizeof(name), "%s", entry->d_name);
	}
	errno = ENOENT;
	fd = *name ? openat(dirfd(list), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
	closedir(list);
	return fd;
}

int kept_read(const char *directory, struct kept_head *head, struct cause *causes, int max)
{
	int fd = open_newest(directory);
	ssize_t bytes;

	if (fd < 0)
		return -1;
	bytes = read(fd, head, sizeof(*head));
	if (bytes != sizeof(*head) || memcmp(head->magic, KEPT_MAGIC, sizeof(KEPT_MAGIC)) || head->size != sizeof(struct cause)) {
		close(fd);
		errno = EPROTO;
		return -1;
	}
	head->program[sizeof(head->program) - 1] = '\0';
	bytes = read(fd, causes, (size_t)max * sizeof(*causes));
	close(fd);
	return bytes < 0 ? -1 : (int)(bytes / (ssize_t)sizeof(*causes));
}
