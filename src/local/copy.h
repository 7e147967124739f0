/* SPDX-License-Identifier: MIT */
/*
 * The copy into memory that its owner may be watching. Bytes arrive in the order that programs rely on from RDMA: the last
 * word is stored last, and the last cache line after all others; libc's memcpy promises neither.
 */
#ifndef UROCE_LOCAL_COPY_H
#define UROCE_LOCAL_COPY_H

#include <stdint.h>

/* Words of 8 bytes that the target has whole are stored whole. The ranges do not overlap, or are the same. */
void copy_ordered(void *to, const void *from, uint64_t length);

#endif
