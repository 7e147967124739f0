/* SPDX-License-Identifier: MIT */
/* When work is executed. See timing.h. */
#include "nic/timing.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LATE_DELAY   100000u /* ns */
#define RANDOM_DELAY 60000u  /* ns at most */

static pthread_once_t once = PTHREAD_ONCE_INIT;
_Atomic int timing_known;
static _Atomic uint64_t state;

bool timing_parse(const char *value, enum timing_mode *to, uint64_t *seed)
{
	*to = TIMING_PROMPT;
	*seed = 0;
	if (!value || !*value)
		return true;
	if (!strcmp(value, "late")) {
		*to = TIMING_LATE;
		return true;
	}
	/* strtoull would take a sign, blanks, and what does not fit. */
	if (strncmp(value, "random:", 7) || value[7] < '0' || value[7] > '9')
		return false;

	char *end;
	int before = errno;

	errno = 0;
	*seed = strtoull(value + 7, &end, 0);
	if (errno || *end)
		return false;
	errno = before;
	*to = TIMING_RANDOM;
	return true;
}

static void init(void)
{
	enum timing_mode mode;
	uint64_t seed;

	timing_parse(getenv("UROCE_TIMING"), &mode, &seed);
	atomic_store(&state, seed);
	atomic_store(&timing_known, (int)mode + 1);
}

enum timing_mode timing_learn(void)
{
	pthread_once(&once, init);
	return timing_mode();
}

/* splitmix64: a counter, mixed; so threads may draw at once. */
static uint64_t draw(void)
{
	uint64_t z = atomic_fetch_add_explicit(&state, 0x9e3779b97f4a7c15u, memory_order_relaxed) +
		     0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint32_t timing_choice(uint32_t n)
{
	return timing_mode() == TIMING_RANDOM && n ? (uint32_t)(draw() % n) : 0;
}

uint64_t timing_unkind_delay(enum timing_mode mode)
{
	switch (mode) {
	case TIMING_LATE:
		return LATE_DELAY;
	case TIMING_RANDOM:
		/* Mostly not at all, so that runs of requests are executed back to back too. */
		return timing_choice(4) ? 0 : 1 + timing_choice(RANDOM_DELAY);
	default:
		return 0;
	}
}
