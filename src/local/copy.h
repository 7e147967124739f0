/* SPDX-License-Identifier: MIT */
/*
 * The copy into memory that its owner may be watching. Bytes arrive in the order that programs rely on from RDMA: the last
 * word is stored last, and the last cache line after all others; libc's memcpy promises neither.
 */
#ifndef UROCE_LOCAL_COPY_H
#define UROCE_LOCAL_COPY_H

#include <stdbool.h>
#include <stdint.h>

/* Words of 8 bytes that the target has whole are stored whole. The ranges do not overlap, or are the same. */
void copy_ordered(void *to, const void *from, uint64_t length);

/* An atomic of the CPU on 8 aligned bytes: returns what was there. compare: becomes swap if it was
 * compare_add; else compare_add is added. */
static inline uint64_t copy_atomic(void *word, bool compare, uint64_t compare_add, uint64_t swap)
{
	uint64_t old = compare_add;

	if (!compare)
		return __atomic_fetch_add((uint64_t *)word, compare_add, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n((uint64_t *)word, &old, swap, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
	return old;
}

#endif
