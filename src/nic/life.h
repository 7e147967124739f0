/* SPDX-License-Identifier: MIT */
/*
 * Life: a process lives as long as it holds a POSIX record lock on its segment's memfd. Such a lock
 * is not inherited by fork, and it goes when the process ends, execs (the descriptor is
 * close-on-exec) or closes any descriptor of the file: therefore nobody in the owner's process ever
 * closes a second one.
 */
#ifndef UROCE_NIC_LIFE_H
#define UROCE_NIC_LIFE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

/* 0, or errno. */
static inline int life_begin(int seg_fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };

	return fcntl(seg_fd, F_SETLK, &lock) ? errno : 0;
}

/* For a segment of another process. */
static inline bool life_is_alive(int seg_fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };

	/* If the question itself fails, nothing was learnt: not a reason to call anybody dead. */
	return fcntl(seg_fd, F_GETLK, &lock) || lock.l_type != F_UNLCK;
}

#endif
