/* SPDX-License-Identifier: MIT */
/*
 * When work is executed. UROCE_TIMING=late runs every work request as late as the program allows,
 * random:SEED at times and in an order that the specification allows and a program must not rely
 * on; without it everything runs at once.
 */
#ifndef UROCE_NIC_TIMING_H
#define UROCE_NIC_TIMING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum timing_mode { TIMING_PROMPT, TIMING_LATE, TIMING_RANDOM };

/* Of the mode: one more than it; 0: not yet known. */
extern _Atomic int timing_known;
enum timing_mode timing_learn(void);

static inline enum timing_mode timing_mode(void)
{
	int known = atomic_load_explicit(&timing_known, memory_order_acquire);

	return known ? (enum timing_mode)(known - 1) : timing_learn();
}

uint64_t timing_unkind_delay(enum timing_mode mode);

/* For how long the next step (beginning a work request; completing it) is put off, ns; 0: not. */
static inline uint64_t timing_delay(void)
{
	enum timing_mode mode = timing_mode();

	return mode == TIMING_PROMPT ? 0 : timing_unkind_delay(mode);
}

/* A number below n; 0 except with random timing. */
uint32_t timing_choice(uint32_t n);

/* Whether a value of UROCE_TIMING is understood; with one that is not there is no device
 * (verbs/device.c). */
bool timing_parse(const char *value, enum timing_mode *mode, uint64_t *seed);

#endif
