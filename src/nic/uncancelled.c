/* SPDX-License-Identifier: MIT */
/*
 * The C library's cancellation points, as the libraries call them: without cancellation. See cancel.h. The linker's --wrap=NAME
 * makes of a call of NAME one of __wrap_NAME, and of __real_NAME the C library's own; src/CMakeLists.txt reads the names from here.
 */
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "nic/cancel.h"

static inline int disable(void)
{
	int before;

	if (cancel_allowed)
		return -1;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void restore(const int *before)
{
	if (*before >= 0)
		pthread_setcancelstate(*before, NULL);
}

#define UNCANCELLED __attribute__((cleanup(restore), unused)) const int before = disable()

#define WRAP(type, name, parameters, arguments)  \
	extern type __real_##name parameters;    \
	extern type __wrap_##name parameters;    \
	type __wrap_##name parameters            \
	{                                        \
		UNCANCELLED;                     \
		return __real_##name arguments;  \
	}

WRAP(int, accept4, (int fd, struct sockaddr *address, socklen_t *length, int flags), (fd, address, length, flags))
WRAP(int, close, (int fd), (fd))
WRAP(int, connect, (int fd, const struct sockaddr *address, socklen_t length), (fd, address, length))
WRAP(int, epoll_pwait2, (int epoll, struct epoll_event *events, int most, const struct timespec *timeout, const sigset_t *mask),
     (epoll, events, most, timeout, mask))
WRAP(int, epoll_wait, (int epoll, struct epoll_event *events, int most, int timeout), (epoll, events, most, timeout))
WRAP(int, eventfd_read, (int fd, eventfd_t *value), (fd, value))
WRAP(int, eventfd_write, (int fd, eventfd_t value), (fd, value))
WRAP(int, fallocate, (int fd, int mode, off_t offset, off_t length), (fd, mode, offset, length))
WRAP(int, fclose, (FILE *file), (file))
WRAP(char *, fgets, (char *text, int size, FILE *file), (text, size, file))
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode))
WRAP(int, fputc, (int c, FILE *file), (c, file))
WRAP(int, getaddrinfo, (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **list),
     (node, service, hints, list))
WRAP(int, getifaddrs, (struct ifaddrs **list), (list))
WRAP(ssize_t, getrandom, (void *bytes, size_t size, unsigned flags), (bytes, size, flags))
WRAP(int, msync, (void *addr, size_t length, int flags), (addr, length, flags))
WRAP(int, nanosleep, (const struct timespec *time, struct timespec *left), (time, left))
WRAP(int, poll, (struct pollfd *fds, nfds_t count, int timeout), (fds, count, timeout))
WRAP(ssize_t, pread, (int fd, void *bytes, size_t size, off_t offset), (fd, bytes, size, offset))
WRAP(ssize_t, preadv2, (int fd, const struct iovec *iov, int count, off_t offset, int flags), (fd, iov, count, offset, flags))
WRAP(int, pthread_cond_clockwait, (pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until),
     (cond, mutex, clock, until))
WRAP(int, pthread_cond_timedwait, (pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until),
     (cond, mutex, until))
WRAP(int, pthread_cond_wait, (pthread_cond_t *cond, pthread_mutex_t *mutex), (cond, mutex))
WRAP(int, pthread_timedjoin_np, (pthread_t thread, void **result, const struct timespec *until), (thread, result, until))
WRAP(ssize_t, read, (int fd, void *bytes, size_t size), (fd, bytes, size))
WRAP(ssize_t, recv, (int fd, void *bytes, size_t size, int flags), (fd, bytes, size, flags))
WRAP(ssize_t, recvfrom, (int fd, void *bytes, size_t size, int flags, struct sockaddr *address, socklen_t *length),
     (fd, bytes, size, flags, address, length))
WRAP(int, recvmmsg, (int fd, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout),
     (fd, messages, count, flags, timeout))
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
WRAP(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned count, int flags), (fd, messages, count, flags))
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
WRAP(ssize_t, sendto, (int fd, const void *bytes, size_t size, int flags, const struct sockaddr *address, socklen_t length),
     (fd, bytes, size, flags, address, length))
WRAP(int, sigtimedwait, (const sigset_t *set, siginfo_t *info, const struct timespec *timeout), (set, info, timeout))
WRAP(int, usleep, (useconds_t time), (time))
WRAP(int, vfprintf, (FILE *file, const char *format, va_list arguments), (file, format, arguments))
WRAP(ssize_t, write, (int fd, const void *bytes, size_t size), (fd, bytes, size))

#define WRAP_OPEN(name, parameters, arguments)                                    \
	extern int __real_##name parameters;                                      \
	extern int __wrap_##name parameters;                                      \
	int __wrap_##name parameters                                              \
	{                                                                         \
		UNCANCELLED;                                                      \
		mode_t mode = 0;                                                  \
		va_list rest;                                                     \
                                                                                  \
		va_start(rest, flags);                                            \
		if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE)          \
			mode = va_arg(rest, mode_t);                              \
		va_end(rest);                                                     \
		return __real_##name arguments;                                   \
	}

WRAP_OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
WRAP_OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
