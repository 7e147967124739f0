/* SPDX-License-Identifier: MIT */
/* Calls that succeed leave errno as it was. What tries something that may fail, as a part of what it does, keeps it. */
#ifndef UROCE_NIC_KEEP_ERRNO_H
#define UROCE_NIC_KEEP_ERRNO_H

#include <errno.h>

static inline void errno_restore(const int *before)
{
	errno = *before;
}

/* At the beginning of a function that does not answer by errno: when it returns, errno is what it is now. */
#define KEEP_ERRNO __attribute__((cleanup(errno_restore), unused)) const int errno_before = errno

#endif
