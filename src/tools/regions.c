/* SPDX-License-Identifier: MIT */
#include "tools/regions.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SEGMENT_NAME "/memfd:uroce (deleted)"
#define ENTRIES	     1024 /* read at a time */

static_assert(!(offsetof(struct nic_segment, mrs) % sizeof(struct seg_mr)) &&
		      !(4096 % sizeof(struct seg_mr)),
	      "entries do not lie across pages, of which each may be a hole");

const char *regions_reason(enum nic_unmapped reason)
{
	static const char *const words[NIC_UNMAPPED_REASONS] = {
		[NIC_UNMAPPED_OFF] = "this process shares no memory (UROCE_MEMORY, or its limits)",
		[NIC_UNMAPPED_EDGE] = "other memory of the program is in their first or last page",
		[NIC_UNMAPPED_KIND] =
			"neither private, anonymous memory nor all of one shared mapping; or not readable and writable",
		[NIC_UNMAPPED_SHRINKS] =
			"a shared file that is not sealed against shrinking, is sealed against writing, or has huge pages",
		[NIC_UNMAPPED_CLOSED] =
			"shared memory of which the process has no descriptor, and may not open one",
		[NIC_UNMAPPED_STACK] = "a thread's stack",
		[NIC_UNMAPPED_KNOWN] = "also in an earlier region, in which it was not mapped",
		[NIC_UNMAPPED_SPLIT] = "mapped in several pieces, of which one counts",
		[NIC_UNMAPPED_THREADS] =
			"other threads of the process ran, and nothing held them (userfaultfd)",
		[NIC_UNMAPPED_PINNED] = "a device or the kernel used the memory",
		[NIC_UNMAPPED_LIMIT] =
			"too many mappings (vm.max_map_count), or too many shared files",
		[NIC_UNMAPPED_MEMORY] = "not enough memory",
		[NIC_UNMAPPED_FORK] = "the process forked",
	};

	return reason < NIC_UNMAPPED_REASONS && words[reason] ? words[reason] : "unknown";
}

/* The segment of which the process is the owner: it has those of its peers too. -1: not to be had. */
static int open_segment(pid_t pid, unsigned slot)
{
	char path[64], target[64];
	struct dirent *entry;
	int segment = -1;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && segment < 0 && (entry = readdir(dir))) {
		ssize_t length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
		struct seg_header header;

		target[length < 0 ? 0 : length] = '\0';
		if (strcmp(target, SEGMENT_NAME))
			continue;
		segment = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
		if (segment < 0)
			continue;
		if (pread(segment, &header, sizeof(header), 0) == sizeof(header) &&
		    header.magic == NIC_MAGIC && header.version == NIC_LAYOUT_VERSION &&
		    header.primary_slot == slot)
			break;
		close(segment);
		segment = -1;
	}
	if (dir)
		closedir(dir);
	return segment;
}

static void add(struct regions *regions, const struct seg_mr *mr)
{
	uint64_t start = atomic_load(&mr->mapped_start), end = atomic_load(&mr->mapped_end);

	if (!(atomic_load(&mr->state) & NIC_MR_VALID))
		return;
	if (end <= start)
		regions->unmapped++;
	else if (start <= mr->addr && end >= mr->addr + mr->length)
		regions->mapped++;
	else
		regions->partly++;
	if (mr->unmapped && mr->unmapped < NIC_UNMAPPED_REASONS)
		regions->reasons[mr->unmapped]++;
}

bool regions_count(pid_t pid, unsigned slot, struct regions *regions)
{
	const off_t first = offsetof(struct nic_segment, mrs);
	const off_t end = first + (off_t)sizeof(((struct nic_segment *)NULL)->mrs);
	int segment = pid ? open_segment(pid, slot) : -1;
	struct seg_mr entries[ENTRIES];
	ssize_t n;

	if (segment < 0)
		return false;
	/* Where there are none the file has a hole, which a mapping of ours would fill. */
	for (off_t at = first; (at = lseek(segment, at, SEEK_DATA)) >= 0 && at < end; at += n) {
		size_t left = (size_t)(end - at);

		n = pread(segment, entries, left < sizeof(entries) ? left : sizeof(entries), at);
		if (n <= 0)
			break;
		for (size_t i = 0; i < (size_t)n / sizeof(entries[0]); i++)
			add(regions, &entries[i]);
	}
	close(segment);
	return true;
}
