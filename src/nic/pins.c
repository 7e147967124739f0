/* SPDX-License-Identifier: MIT */
/* Pins. See pins.h. */
#include "nic/pins.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "nic/proc.h"

/* Whether a line of /proc/self/status says more than 0. */
static bool status_tells(const char *field)
{
	FILE *file = fopen("/proc/thread-self/status", "re");
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

#define URING "anon_inode:[io_uring]"

/* Looks at what the process has open until one of them tells. */
static bool descriptors_tell(bool (*tells)(const char *number, const char *target, void *arg),
			     void *arg)
{
	DIR *dir = opendir("/proc/thread-self/fd");
	bool found = !dir;
	struct dirent *entry;

	while (!found && (entry = readdir(dir))) {
		char target[64];
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		target[n < 0 ? 0 : n] = 0;
		found = tells(entry->d_name, target, arg);
	}
	if (dir)
		closedir(dir);
	return found;
}

static bool pins_without_saying(const char *number, const char *target, void *arg)
{
	static const char *const names[] = { URING, "/dev/vfio", "/dev/nvidia", "/dev/kfd" };

	(void)number;
	(void)arg;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strncmp(target, names[i], strlen(names[i])))
			return true;
	}
	return false;
}

struct range {
	uint64_t start, end;
};

/* The list of its buffers follows "UserBufs:", a line each: number, address, bytes. */
static bool has_buffer_in(const char *number, const char *target, void *arg)
{
	const struct range *range = arg;
	bool list = false, found = false;
	char text[128];
	FILE *file;

	if (strcmp(target, URING))
		return false;
	snprintf(text, sizeof(text), "/proc/thread-self/fdinfo/%.20s", number);
	file = fopen(text, "re");
	while (file && !found && fgets(text, sizeof(text), file)) {
		uint64_t addr, bytes;

		if (!strncmp(text, "UserBufs:", 9))
			list = true;
		else if (list && sscanf(text, " %*u: 0x%" SCNx64 "/%" SCNu64, &addr, &bytes) == 2)
			found = addr < range->end && addr + bytes > range->start;
		else
			list = false;
	}
	if (file)
		fclose(file);
	return found;
}

bool pins_of_rings(uint64_t start, uint64_t end)
{
	return descriptors_tell(has_buffer_in, &(struct range){ start, end });
}

/* Whether anybody on the machine has a context of asynchronous I/O. */
static bool contexts_exist(void)
{
	unsigned long numbers[2];

	return !proc_numbers("/proc/sys/fs/aio-nr", numbers) || numbers[0];
}

/* Such a context is a mapping. */
static bool mappings_tell(void)
{
	FILE *file = fopen("/proc/thread-self/maps", "re");
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
	return status_tells("VmPin:") || descriptors_tell(pins_without_saying, NULL) ||
	       (contexts_exist() && mappings_tell());
}

bool memory_is_locked(void)
{
	return status_tells("VmLck:");
}
