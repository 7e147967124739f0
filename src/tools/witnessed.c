/* SPDX-License-Identifier: MIT */
#include "tools/witnessed.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

const struct nic_segment *witnessed_map(int fd)
{
	struct stat status;
	int seals = fcntl(fd, F_GET_SEALS);
	const struct nic_segment *seg;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &status) || (uint64_t)status.st_size < WITNESSED_BYTES)
		return NULL;
	seg = mmap(NULL, WITNESSED_BYTES, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (seg == MAP_FAILED)
		return NULL;
	if (seg->hdr.magic == NIC_MAGIC && seg->hdr.version == NIC_LAYOUT_VERSION)
		return seg;
	munmap((void *)seg, WITNESSED_BYTES);
	return NULL;
}

/* The record of a position, if it is whole before and after. */
static bool copy_record(const void *slots, size_t size, uint64_t count, uint64_t position, void *to)
{
	const char *from = (const char *)slots + position % count * size;
	const _Atomic uint64_t *seq = (const _Atomic uint64_t *)from;

	if (atomic_load_explicit(seq, memory_order_acquire) != position + 1)
		return false;
	memcpy(to, from, size);
	/* A load whose value is not wanted orders the copy before the next look. */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(seq, memory_order_relaxed) == position + 1;
}

unsigned witnessed_records(const void *slots, size_t size, uint64_t count, uint64_t next, void *to)
{
	unsigned copied = 0;

	for (uint64_t position = next > count ? next - count : 0; position < next; position++)
		copied += copy_record(slots, size, count, position, (char *)to + copied * size);
	return copied;
}

/* The first of a kind, if it is whole: it is written once. */
static bool copy_first(const struct nic_segment *seg, unsigned place, struct cause *cause)
{
	const struct cause *first = &seg->causes.kinds.firsts[place];

	if (!atomic_load_explicit(&first->seq, memory_order_acquire))
		return false;
	memcpy(cause, first, sizeof(*cause));
	return true;
}

bool witnessed_cause(const struct nic_segment *seg, uint64_t position, struct cause *cause)
{
	if (copy_record(seg->causes.slots, sizeof(*cause), NIC_CAUSES, position, cause))
		return true;
	for (unsigned i = 0; i < CAUSE_KINDS; i++)
		if (atomic_load(&seg->causes.kinds.firsts[i].seq) == position + 1)
			return copy_first(seg, i, cause);
	return false;
}

unsigned witnessed_causes(const struct nic_segment *seg, struct cause *causes)
{
	uint64_t next = atomic_load(&seg->causes.next), oldest = next > NIC_CAUSES ? next - NIC_CAUSES : 0;
	unsigned count = 0;

	for (unsigned i = 0; i < CAUSE_KINDS; i++) {
		uint64_t seq = atomic_load(&seg->causes.kinds.firsts[i].seq);

		count += seq && seq <= oldest && copy_first(seg, i, &causes[count]);
	}
	return count + witnessed_records(seg->causes.slots, sizeof(*causes), NIC_CAUSES, next, causes + count);
}

uint64_t witnessed_times(const struct nic_segment *seg, uint64_t kind)
{
	for (unsigned i = 0; i < CAUSE_KINDS; i++)
		if (atomic_load(&seg->causes.kinds.kinds[i]) == kind)
			return atomic_load(&seg->causes.kinds.counts[i]);
	return 0;
}
