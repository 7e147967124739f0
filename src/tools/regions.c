/* SPDX-License-Identifier: MIT */
#include "tools/regions.h"

#include <stddef.h>
#include <unistd.h>

#include "tools/segment.h"

const char *regions_reason(enum nic_unmapped reason)
{
	static const char *const words[NIC_UNMAPPED_REASONS] = {
		[NIC_UNMAPPED_OFF] = "this process shares no memory (UROCE_MEMORY, or its limits)",
		[NIC_UNMAPPED_EDGE] = "other memory of the program is in their first or last page",
		[NIC_UNMAPPED_KIND] =
			"neither private, anonymous memory nor all of one shared mapping; or not readable and writable",
		[NIC_UNMAPPED_SHRINKS] =
			"a shared file that is not sealed against shrinking, is sealed against writing, or has huge pages",
		[NIC_UNMAPPED_CLOSED] = "shared memory of which the process has no descriptor, and may not open one",
		[NIC_UNMAPPED_STACK] = "a thread's stack",
		[NIC_UNMAPPED_KNOWN] = "also in an earlier region, in which it was not mapped",
		[NIC_UNMAPPED_SPLIT] = "mapped in several pieces, of which one counts",
		[NIC_UNMAPPED_THREADS] = "other threads of the process ran, and nothing held them (userfaultfd)",
		[NIC_UNMAPPED_PINNED] = "a device or the kernel used the memory",
		[NIC_UNMAPPED_LIMIT] = "too many mappings (vm.max_map_count), or too many shared files",
		[NIC_UNMAPPED_MEMORY] = "not enough memory",
		[NIC_UNMAPPED_FORK] = "the process forked",
		[NIC_UNMAPPED_STOPPED] = "a process was stopped while it used an earlier region there",
	};

	return reason < NIC_UNMAPPED_REASONS && words[reason] ? words[reason] : "unknown";
}

static void add(void *arg, uint32_t index, const void *at)
{
	struct regions *regions = arg;
	const struct seg_mr *mr = at;
	uint64_t start = atomic_load(&mr->mapped_start), end = atomic_load(&mr->mapped_end);

	(void)index;
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
	uint32_t version;
	int segment;

	if (segment_open(pid, slot, &segment, &version) != SEGMENT_OPEN)
		return false;
	segment_table(segment, offsetof(struct nic_segment, mrs), sizeof(struct seg_mr), NIC_MAX_MR, add, regions);
	close(segment);
	return true;
}
