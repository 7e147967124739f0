/* SPDX-License-Identifier: MIT */
#include "tools/replacement.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_MODE 0666

/* The directory of a path, malloc'ed. */
static char *directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return strdup(".");
	return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* /dev/stdout, by whatever name. */
static bool is_our_output(const struct stat *file)
{
	struct stat own;

	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
		if (!fstat(fd, &own) && own.st_dev == file->st_dev && own.st_ino == file->st_ino)
			return true;
	return false;
}

static int in_place(struct replacement *replacement, const char *file)
{
	replacement->out = fopen(file, "we");
	return replacement->out ? 0 : errno;
}

static int may_make_files(const char *path)
{
	char *directory = directory_of(path);
	int err = directory && !faccessat(AT_FDCWD, directory, W_OK | X_OK, AT_EACCESS) ? 0 : directory ? errno : ENOMEM;

	free(directory);
	return err;
}

int replacement_prepare(struct replacement *replacement, const char *file)
{
	struct stat status;
	int err;

	*replacement = (struct replacement){ 0 };
	if (!stat(file, &status)) {
		if (!S_ISREG(status.st_mode) || is_our_output(&status))
			return in_place(replacement, file);
		if (faccessat(AT_FDCWD, file, W_OK, AT_EACCESS))
			return errno;
		replacement->target = realpath(file, NULL);
	} else if (errno != ENOENT) {
		return errno;
	} else if (!lstat(file, &status)) {
		return in_place(replacement, file); /* a link to what is not there yet */
	} else {
		replacement->target = strdup(file);
	}
	if (!replacement->target)
		return errno;
	err = may_make_files(replacement->target);
	if (err)
		replacement_abandon(replacement);
	return err;
}

/* Others' files stay theirs as far as that is ours to say. */
static int take_over(int fd, const char *target)
{
	struct stat old;
	mode_t mask;

	if (!stat(target, &old)) {
		if (fchown(fd, old.st_uid, old.st_gid) && fchown(fd, (uid_t)-1, old.st_gid))
			old.st_mode &= ~(mode_t)(S_ISUID | S_ISGID);
		return fchmod(fd, old.st_mode & 07777) ? errno : 0;
	}
	mask = umask(0);
	umask(mask);
	return fchmod(fd, DEFAULT_MODE & ~mask) ? errno : 0;
}

int replacement_open(struct replacement *replacement)
{
	char *directory;
	int fd, err;

	if (!replacement->target)
		return 0;
	directory = directory_of(replacement->target);
	if (!directory || asprintf(&replacement->temporary, "%s/.uroce-XXXXXX", directory) < 0)
		replacement->temporary = NULL;
	free(directory);
	if (!replacement->temporary)
		return ENOMEM;
	fd = mkostemp(replacement->temporary, O_CLOEXEC);
	if (fd < 0) {
		err = errno;
		free(replacement->temporary);
		replacement->temporary = NULL;
		return err;
	}
	err = take_over(fd, replacement->target);
	replacement->out = err ? NULL : fdopen(fd, "w");
	if (replacement->out)
		return 0;
	err = err ? err : errno;
	close(fd);
	return err;
}

int replacement_finish(struct replacement *replacement)
{
	int err;

	/* Where only an earlier write failed, errno still says why. */
	err = !fflush(replacement->out) && !ferror(replacement->out) ? 0 : errno ? errno : EIO;
	if (fclose(replacement->out) && !err)
		err = errno;
	replacement->out = NULL;
	if (!err && replacement->temporary) {
		if (rename(replacement->temporary, replacement->target)) {
			err = errno;
		} else {
			free(replacement->temporary);
			replacement->temporary = NULL;
		}
	}
	replacement_abandon(replacement);
	return err;
}

void replacement_abandon(struct replacement *replacement)
{
	if (replacement->out)
		fclose(replacement->out);
	if (replacement->temporary)
		unlink(replacement->temporary);
	free(replacement->temporary);
	free(replacement->target);
	*replacement = (struct replacement){ 0 };
}
