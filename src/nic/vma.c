/* SPDX-License-Identifier: MIT */
/*
 * Ranges of this process's address space, from /proc/self/maps: by PROCMAP_QUERY (Linux 6.11),
 * which costs the same with 30,000 mappings as with ten, else by reading it.
 */
#include "nic/vma.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* linux/fs.h of 6.11 and later; Debian 12's is older. */
struct vma_query {
	uint64_t size, query_flags, query_addr, vma_start, vma_end, vma_flags, vma_page_size,
		vma_offset, inode;
	uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
#define VMA_QUERY	     _IOWR('f', 17, struct vma_query)
#define VMA_QUERY_READABLE   0x01
#define VMA_QUERY_WRITABLE   0x02
#define VMA_QUERY_EXECUTABLE 0x04
#define VMA_QUERY_SHARED     0x08
#define VMA_QUERY_OR_NEXT    0x10

/* Not /proc/self, which shows nothing any more when the first thread has ended. */
int vma_open(void)
{
	return open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC);
}

static bool find_by_query(int maps, uint64_t addr, struct vma *vma)
{
	char name[32] = "";
	struct vma_query q = { .size = sizeof(q),
			       .query_flags = VMA_QUERY_OR_NEXT,
			       .query_addr = addr,
			       .vma_name_size = sizeof(name),
			       .vma_name_addr = (uintptr_t)name };

	/* A name that is longer is not the one that matters. */
	if (ioctl(maps, VMA_QUERY, &q)) {
		if (errno != ENAMETOOLONG)
			return false;
		q = (struct vma_query){ .size = sizeof(q),
					.query_flags = VMA_QUERY_OR_NEXT,
					.query_addr = addr };
		if (ioctl(maps, VMA_QUERY, &q))
			return false;
	}
	*vma = (struct vma){
		.start = q.vma_start,
		.end = q.vma_end,
		.prot = (q.vma_flags & VMA_QUERY_READABLE ? PROT_READ : 0) |
			(q.vma_flags & VMA_QUERY_WRITABLE ? PROT_WRITE : 0) |
			(q.vma_flags & VMA_QUERY_EXECUTABLE ? PROT_EXEC : 0),
		.shared = q.vma_flags & VMA_QUERY_SHARED,
		.is_stack = !strcmp(name, "[stack]"),
		.offset = q.vma_offset,
		.inode = q.inode,
		.major = q.dev_major,
		.minor = q.dev_minor,
	};
	return true;
}

/* Bytes: a path, and what stands before it. No more, threads may have small stacks. */
#define LINE_MOST (PATH_MAX + 128)

/* By reading, line by line; with a buffer of its own, so that nothing is allocated. */
static bool find_by_reading(int maps, uint64_t addr, struct vma *vma)
{
	char buffer[LINE_MOST];
	size_t held = 0;
	ssize_t n;

	lseek(maps, 0, SEEK_SET);
	while ((n = read(maps, buffer + held, sizeof(buffer) - 1 - held)) > 0) {
		char *line = buffer, *end;

		held += (size_t)n;
		buffer[held] = 0;
		for (; (end = strchr(line, '\n')); line = end + 1) {
			char prot[5], name[32] = "";

			*end = 0;
			if (sscanf(line,
				   "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %31s",
				   &vma->start, &vma->end, prot, &vma->offset, &vma->major,
				   &vma->minor, &vma->inode, name) < 7 ||
			    vma->end <= addr)
				continue;
			vma->prot = (prot[0] == 'r' ? PROT_READ : 0) |
				    (prot[1] == 'w' ? PROT_WRITE : 0) |
				    (prot[2] == 'x' ? PROT_EXEC : 0);
			vma->shared = prot[3] == 's';
			vma->is_stack = !strcmp(name, "[stack]");
			return true;
		}
		held -= (size_t)(line - buffer);
		memmove(buffer, line, held);
	}
	return false;
}

static _Atomic bool must_read;

bool vma_find(int maps, uint64_t addr, struct vma *vma)
{
	if (!atomic_load_explicit(&must_read, memory_order_relaxed)) {
		if (find_by_query(maps, addr, vma))
			return true;
		if (errno == ENOENT)
			return false;
		atomic_store_explicit(&must_read, true, memory_order_relaxed);
	}
	return find_by_reading(maps, addr, vma);
}

bool vma_is_quick(void)
{
	return !atomic_load_explicit(&must_read, memory_order_relaxed);
}

uint64_t vma_count(int maps)
{
	char buffer[LINE_MOST];
	uint64_t count = 0;
	ssize_t n;

	lseek(maps, 0, SEEK_SET);
	while ((n = read(maps, buffer, sizeof(buffer))) > 0) {
		for (ssize_t i = 0; i < n; i++)
			count += buffer[i] == '\n';
	}
	return count;
}

enum vma_verdict vma_check(uint64_t addr, uint64_t length, bool write)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = addr & ~(page - 1), end = addr + length;
	enum vma_verdict verdict = VMA_OK;
	int maps = vma_open();
	struct vma vma;

	if (maps < 0) /* MS_ASYNC does nothing, but ENOMEM says that something is not mapped */
		return msync((void *)start, end - start, MS_ASYNC) && errno == ENOMEM ?
			       VMA_UNMAPPED :
			       VMA_OK;
	/* What is not mapped says more than what is only protected: a range that is much too long often meets both. */
	for (uint64_t at = start; at < end && verdict != VMA_UNMAPPED; at = vma.end) {
		if (!vma_find(maps, at, &vma) || vma.start > at)
			verdict = VMA_UNMAPPED;
		else if (!(vma.prot & PROT_READ) || (write && !(vma.prot & PROT_WRITE)))
			verdict = VMA_PROTECTED;
	}
	close(maps);
	return verdict;
}
