/* SPDX-License-Identifier: MIT */
/*
 * What the links of a lab do to frames: the options that say so, and the dice.
 *
 * Each direction between two hosts has dice of its own, thrown once for each frame in the order in which they were sent:
 * the same seed and the same frames give the same losses, whatever other hosts do meanwhile. Times are ns, sizes bytes.
 */
#ifndef UROCE_TOOLS_LAB_TROUBLE_H
#define UROCE_TOOLS_LAB_TROUBLE_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trouble {
	double loss, duplicate, corrupt, reorder; /* chances, 0 to 1 */
	uint64_t delay, jitter;			  /* jitter is at most delay */
	uint64_t rate;				  /* bits per second, 0: no limit */
	uint64_t queue;				  /* what may wait for the rate; 0: not given */
	uint64_t seed;
	bool seeded; /* the seed was given */
	bool asked;  /* one of the options was given, be it as 0 */
};

/* For use as an argp child, with a struct trouble as input. */
extern const struct argp trouble_argp;

/* Fills in what was not given. Called once, after the options. */
void trouble_complete(struct trouble *trouble);

struct dice {
	uint64_t state;
};

void dice_seed(struct dice *dice, uint64_t seed, unsigned from, unsigned to);

/* True with this chance. */
bool dice_chance(struct dice *dice, double chance);

/* 0 to below - 1; below is not 0. */
uint64_t dice_below(struct dice *dice, uint64_t below);

/* Flips 1 to 8 bits of the data. */
void dice_corrupt(struct dice *dice, unsigned char *data, size_t size);

/* "500us", "1.5ms", "2s", "0" as ns. False if it is none, or longer than a minute. */
bool parse_time(const char *text, uint64_t *ns);

#endif
