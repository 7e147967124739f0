/* SPDX-License-Identifier: MIT */
/* Descriptors of ours. See descriptor.h. */
#include "nic/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nic/keep_errno.h"

/* A signal that the C library keeps for itself, and that is never sent: nobody is told of what happens on the file. */
#define MARK 32

/* Marking was refused (a filter of system calls): then nothing can be told apart. */
static _Atomic bool unmarked;

int descriptor_above(int fd)
{
	int low = fd, error;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	fd = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	error = errno;
	close(low);
	errno = error;
	return fd;
}

void descriptor_mark(int fd)
{
	KEEP_ERRNO;

	if (fcntl(fd, F_SETSIG, MARK))
		atomic_store(&unmarked, true);
}

int descriptor_keep(int fd)
{
	fd = descriptor_above(fd);
	if (fd >= 0)
		descriptor_mark(fd);
	return fd;
}

int descriptor_socket(int domain, int type, int protocol)
{
	return descriptor_keep((int)syscall(SYS_socket, domain, type, protocol));
}

/* What its mark is: MARK also where that cannot be told, 0 for none. */
static int mark_of(int fd)
{
	KEEP_ERRNO;
	int signal = fd < 0 ? 0 : fcntl(fd, F_GETSIG);

	if (signal < 0)
		return errno == EBADF ? 0 : MARK;
	return signal || !atomic_load_explicit(&unmarked, memory_order_relaxed) ? signal : MARK;
}

bool descriptor_is_ours(int fd)
{
	return mark_of(fd) == MARK;
}

bool descriptor_is_shared(int fd)
{
	return mark_of(fd);
}

void descriptor_close(int fd)
{
	if (descriptor_is_ours(fd))
		close(fd);
}
