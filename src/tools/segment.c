/* SPDX-License-Identifier: MIT */
#include "tools/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/explain.h"

#define SEGMENT_NAME "/memfd:uroce (deleted)"
#define CHUNK	     65536u /* bytes read at a time, about */

static bool has_slot(const struct seg_header *header, unsigned slot)
{
	uint32_t count = header->version == NIC_LAYOUT_VERSION ? atomic_load(&header->slot_count) : 0;

	for (uint32_t i = 0; i < count && i < NIC_OWN_SLOTS; i++) {
		if (atomic_load(&header->slots[i]) == slot)
			return true;
	}
	return header->primary_slot == slot;
}

enum segment_answer segment_open(pid_t pid, unsigned slot, int *fd, uint32_t *version)
{
	enum segment_answer answer = SEGMENT_GONE;
	char path[64], target[64];
	struct dirent *entry;
	DIR *dir;

	*fd = -1;
	*version = 0;
	if (!pid)
		return SEGMENT_HIDDEN;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return errno == EACCES || errno == EPERM ? SEGMENT_OTHER_USER : SEGMENT_GONE;
	while (answer == SEGMENT_GONE && (entry = readdir(dir))) {
		ssize_t length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
		struct seg_header header;

		if (length < 0 && (errno == EACCES || errno == EPERM))
			answer = SEGMENT_OTHER_USER;
		target[length < 0 ? 0 : length] = '\0';
		if (strcmp(target, SEGMENT_NAME))
			continue;
		*fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
		if (*fd < 0)
			continue;
		memset(&header, 0, sizeof(header));
		/* It has those of its peers too. The first fields are the same in all versions. */
		if (pread(*fd, &header, sizeof(header), 0) >= (ssize_t)offsetof(struct seg_header, instance) &&
		    header.magic == NIC_MAGIC && has_slot(&header, slot)) {
			*version = header.version;
			answer = header.version == NIC_LAYOUT_VERSION ? SEGMENT_OPEN : SEGMENT_OTHER_VERSION;
		}
		if (answer != SEGMENT_OPEN) {
			close(*fd);
			*fd = -1;
		}
	}
	closedir(dir);
	return answer;
}

void segment_reason(enum segment_answer answer, uint32_t version, char *words, size_t size)
{
	static const char *const reasons[] = {
		[SEGMENT_OPEN] = "",
		[SEGMENT_GONE] = N_("it has ended"),
		[SEGMENT_HIDDEN] = N_("it is of another PID namespace, or did not answer"),
		[SEGMENT_OTHER_USER] = N_("it is of another user, or may not be looked into for another reason"),
	};

	if (answer == SEGMENT_OTHER_VERSION)
		snprintf(words, size, "its uroce is of another version (layout %u; this command reads %u)", version,
			 NIC_LAYOUT_VERSION);
	else
		snprintf(words, size, "%s", reasons[answer]);
}

bool segment_table(int fd, uint64_t table, uint32_t entry, uint32_t count, void (*visit)(void *arg, uint32_t index, const void *at),
		   void *arg)
{
	const uint32_t most = CHUNK / entry;
	uint8_t *chunk = aligned_alloc(NIC_CACHE_LINE, (size_t)most * entry);
	bool complete = chunk;
	uint32_t next = 0;

	while (complete && next < count) {
		off_t data = lseek(fd, (off_t)(table + (uint64_t)next * entry), SEEK_DATA);
		uint64_t first;
		ssize_t n;

		if (data < 0) { /* ENXIO: nothing but a hole follows */
			complete = errno == ENXIO;
			break;
		}
		first = ((uint64_t)data - table) / entry;
		if (first >= count)
			break;
		next = (uint32_t)first;
		n = pread(fd, chunk, (size_t)entry * (count - next < most ? count - next : most),
			  (off_t)(table + (uint64_t)next * entry));
		if (n < (ssize_t)entry) {
			complete = false;
			break;
		}
		for (uint32_t i = 0; i < (size_t)n / entry; i++)
			visit(arg, next++, chunk + (size_t)i * entry);
	}
	free(chunk);
	return complete;
}
