/* SPDX-License-Identifier: MIT */
/* Crash points, in the build that has them. See crash.h. */
#include "nic/crash.h"

#ifdef UROCE_CRASH_POINTS

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const names[] = {
#define CRASH_POINT(name) #name,
#include "nic/crash_points.h"
#undef CRASH_POINT
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int chosen = -1, by = SIGKILL;
static _Atomic long left;

static void choose(void)
{
	const char *value = getenv("UROCE_CRASH"), *how = getenv("UROCE_CRASH_BY");
	const char *colon = value ? strchr(value, ':') : NULL;
	size_t length = colon ? (size_t)(colon - value) : value ? strlen(value) : 0;

	for (int i = 0; value && i < CRASH_POINTS; i++) {
		if (strlen(names[i]) == length && !strncmp(names[i], value, length))
			chosen = i;
	}
	atomic_store(&left, colon ? atol(colon + 1) : 1);
	if (how && !strcmp(how, "stop"))
		by = SIGSTOP;
}

void crash_at(enum crash_point point)
{
	pthread_once(&once, choose);
	if ((int)point == chosen && atomic_fetch_sub(&left, 1) == 1)
		kill((pid_t)syscall(SYS_getpid), by);
}

#endif
