/* SPDX-License-Identifier: MIT */
/* Random numbers and random bytes, the same for the same seed on every machine (splitmix64). */
#include <string.h>
#include "verify.h"

static const uint64_t golden = 0x9e3779b97f4a7c15;

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

uint64_t rng_next(struct rng *rng)
{
	rng->state += golden;
	return mix(rng->state);
}

uint64_t rng_below(struct rng *rng, uint64_t limit)
{
	return rng_next(rng) % limit;
}

bool rng_chance(struct rng *rng, unsigned percent)
{
	return rng_below(rng, 100) < percent;
}

uint64_t rng_hash(uint64_t seed, const char *text)
{
	for (; *text; text++)
		seed = mix(seed + golden + (unsigned char)*text);
	return seed;
}

void rng_fill(void *buf, size_t len, uint64_t seed)
{
	uint8_t *to = buf;
	uint64_t word;

	seed = mix(seed + golden);
	for (; len >= sizeof(word); len -= sizeof(word), to += sizeof(word)) {
		word = mix(seed += golden);
		memcpy(to, &word, sizeof(word));
	}
	word = mix(seed + golden);
	memcpy(to, &word, len);
}
