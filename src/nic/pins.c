/* SPDX-License-Identifier: MIT */
/* Pins. See pins.h. */
#include "nic/pins.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether a line of /proc/self/status says more than 0. */
static bool status_tells(const char *field)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[128];
	bool found = !file;
	size_t n = strlen(field);
	unsigned long kib;

	while (!found && fgets(line, sizeof(line), file))
		found = !strncmp(line, field, n) && sscanf(line + n, "%lu", &kib) == 1 && kib;
	if (file)
		fclose(file);
	return found;
}

static bool descriptors_tell(void)
{
	static const char *const names[] = { "anon_inode:[io_uring]", "/dev/vfio", "/dev/nvidia",
					     "/dev/kfd" };
	DIR *dir = opendir("/proc/self/fd");
	bool found = !dir;
	struct dirent *entry;

	while (!found && (entry = readdir(dir))) {
		char target[64];
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		target[n < 0 ? 0 : n] = 0;
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			found |= !strncmp(target, names[i], strlen(names[i]));
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Whether anybody on the machine has a context of asynchronous I/O. */
static bool contexts_exist(void)
{
	FILE *file = fopen("/proc/sys/fs/aio-nr", "re");
	unsigned long count;
	bool exist = !file || fscanf(file, "%lu", &count) != 1 || count;

	if (file)
		fclose(file);
	return exist;
}

/* Such a context is a mapping. */
static bool mappings_tell(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = !file;

	while (!found && fgets(line, sizeof(line), file))
		found = strstr(line, "/[aio]");
	if (file)
		fclose(file);
	return found;
}

bool pins_are_possible(void)
{
	return status_tells("VmPin:") || descriptors_tell() ||
	       (contexts_exist() && mappings_tell());
}

bool memory_is_locked(void)
{
	return status_tells("VmLck:");
}
