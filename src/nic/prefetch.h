/* SPDX-License-Identifier: MIT */
/* Cache lines asked for in time: a line that another processor wrote last takes its travel, and several
 * travel at once. */
#ifndef UROCE_NIC_PREFETCH_H
#define UROCE_NIC_PREFETCH_H

/* A line that will be written. The compiler's own asks only for reading, unless it builds for newer
 * processors than we do; older ones take this for nothing to do. */
static inline void prefetch_to_write(const void *line)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
	__builtin_prefetch(line, 1);
#endif
}

#endif
