/* SPDX-License-Identifier: MIT */
/*
 * The program's memory: copies from and to it, as a NIC's DMA makes them, and mappings of it: by system calls that no tool interposes.
 * Sanitizers take those of the C library for accesses of the calling thread. But it is the completion that says when the
 * memory is the program's again, through another process perhaps, which they cannot see; and what is registered may be
 * memory that a container has not given out yet.
 */
#ifndef UROCE_LOCAL_DMA_H
#define UROCE_LOCAL_DMA_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "nic/descriptor.h"

/* As process_vm_readv(2) and process_vm_writev(2). */
static inline ssize_t dma_read(pid_t pid, const struct iovec *local, uint32_t local_count,
			       const struct iovec *remote, uint32_t remote_count)
{
	return syscall(SYS_process_vm_readv, pid, local, (unsigned long)local_count, remote,
		       (unsigned long)remote_count, 0ul);
}

static inline ssize_t dma_write(pid_t pid, const struct iovec *local, uint32_t local_count,
				const struct iovec *remote, uint32_t remote_count)
{
	return syscall(SYS_process_vm_writev, pid, local, (unsigned long)local_count, remote,
		       (unsigned long)remote_count, 0ul);
}

/* As preadv(2) and pwritev(2), of a file that is kept. The last argument is the offset's upper half where a word is 32 bits. */
static inline ssize_t dma_from_file(int fd, const struct iovec *to, uint32_t count, uint64_t offset)
{
	if (!descriptor_is_ours(fd))
		return errno = EBADF, -1;
	return syscall(SYS_preadv, (long)fd, to, (long)count, (long)offset, 0l);
}

static inline ssize_t dma_to_file(int fd, const struct iovec *from, uint32_t count, uint64_t offset)
{
	if (!descriptor_is_ours(fd))
		return errno = EBADF, -1;
	return syscall(SYS_pwritev, (long)fd, from, (long)count, (long)offset, 0l);
}

/* As mmap(2) with MAP_FIXED, and mremap(2) with MREMAP_FIXED: the program's memory is put on other pages, which hold what it held.
 * Sanitizers would take that for new memory, stored to by this thread. True if it was done. */
static inline bool dma_map(void *at, uint64_t length, int prot, int flags, int fd, uint64_t offset)
{
	return syscall(SYS_mmap, at, (unsigned long)length, (long)prot, (long)(flags | MAP_FIXED), (long)fd, offset) != -1;
}

static inline bool dma_move(void *from, uint64_t length, void *to)
{
	return syscall(SYS_mremap, from, (unsigned long)length, (unsigned long)length, (long)(MREMAP_MAYMOVE | MREMAP_FIXED),
		       to) != -1;
}

#endif
