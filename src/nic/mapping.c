/* SPDX-License-Identifier: MIT */
/* Large mappings. See mapping.h. */
#include "nic/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include "nic/keep_errno.h"

#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL, which Debian 12's headers lack */

/* Without access nothing is filled by mapping it. */
static void *make_unlocked(uint64_t bytes, int flags, int fd, uint64_t offset)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	void *start = mmap(NULL, page, PROT_NONE, flags, fd, (off_t)offset), *grown = MAP_FAILED;

	if (start == MAP_FAILED)
		return MAP_FAILED;
	if (!munlock(start, page) && !mprotect(start, page, PROT_READ | PROT_WRITE))
		grown = mremap(start, page, bytes, MREMAP_MAYMOVE);
	if (grown == MAP_FAILED)
		munmap(start, page);
	return grown;
}

void *mapping_make(uint64_t bytes, int flags, int fd, uint64_t offset)
{
	void *map = make_unlocked(bytes, flags, fd, offset);

	/* Where one of its calls is refused. */
	return map == MAP_FAILED ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset) : map;
}

void mapping_guard(void *from)
{
	KEEP_ERRNO;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	madvise((void *)(((uintptr_t)from + page - 1) & ~(page - 1)), page, GUARD_INSTALL);
}
