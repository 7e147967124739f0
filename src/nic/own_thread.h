/* SPDX-License-Identifier: MIT */
/*
 * Threads of the libraries' own. All signals are blocked in them, and they have a stack of their own size: what a program makes the
 * default for its threads may be too little, or too much to be locked into memory.
 */
#ifndef UROCE_NIC_OWN_THREAD_H
#define UROCE_NIC_OWN_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#define OWN_STACK (256u << 10) /* bytes */

/* 0, or errno. */
static inline int own_thread_start(pthread_t *thread, bool detached, void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int error = pthread_attr_init(&attr);

	if (error)
		return error;
	if (detached)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	/* EINVAL: the program's thread-local storage, which is a part of the stack, leaves nothing of that. Then as its own threads. */
	if (!pthread_attr_setstacksize(&attr, OWN_STACK))
		error = pthread_create(thread, &attr, run, arg);
	if (error == EINVAL) {
		size_t usual;
		pthread_attr_t program;

		if (!pthread_getattr_default_np(&program)) {
			pthread_attr_getstacksize(&program, &usual);
			pthread_attr_setstacksize(&attr, usual);
			pthread_attr_destroy(&program);
		}
		error = pthread_create(thread, &attr, run, arg);
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return error;
}

#endif
