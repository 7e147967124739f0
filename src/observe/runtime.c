/* SPDX-License-Identifier: MIT */
#include "observe/runtime.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool runtime_parse(const char *setting)
{
	return !setting || !*setting || *setting == '/';
}

const char *runtime_directory(void)
{
	static char path[PATH_MAX];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const char *setting = getenv("UROCE_RUNTIME_DIR");

	if (setting && *setting && runtime_parse(setting))
		return setting;
	pthread_mutex_lock(&lock);
	if (!*path)
		snprintf(path, sizeof(path), "/dev/shm/uroce-%u", geteuid());
	pthread_mutex_unlock(&lock);
	return path;
}

int runtime_open(void)
{
	const char *path = runtime_directory();
	bool made = !mkdir(path, 0700);
	struct stat stat;
	int fd;

	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &stat) || stat.st_uid != geteuid() || stat.st_mode & 077) {
		/* Of a user that is none: a filter may refuse even to tell who we are. */
		if (made)
			rmdir(path);
		close(fd);
		return -1;
	}
	return fd;
}
