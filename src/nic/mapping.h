/* SPDX-License-Identifier: MIT */
/*
 * Mappings of the library's own that are large and mostly empty, in a process that may lock all its memory (mlockall(2)), which
 * would fill them: a segment has 16 GiB.
 *
 * What is mapped after mlockall(MCL_FUTURE) is not locked: one page is, is unlocked, and grows as what it then is; so
 * RLIMIT_MEMLOCK does not count it either. What is mapped when mlockall(MCL_CURRENT) comes is locked, but the kernel goes no
 * further in a mapping than to a page that it cannot have: one near its beginning is a guard (Linux 6.15; before, nothing helps).
 */
#ifndef UROCE_NIC_MAPPING_H
#define UROCE_NIC_MAPPING_H

#include <stdint.h>

/* As mmap(2), readable and writable; bytes are whole pages. MAP_FAILED with errno. */
void *mapping_make(uint64_t bytes, int flags, int fd, uint64_t offset);

/* Makes a page that nobody must touch: the first whole one from there on. */
void mapping_guard(void *from);

#endif
