/* SPDX-License-Identifier: MIT */
#include "tools/lab_trouble.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SECOND 1000000000ULL

enum {
	OPTION_LOSS = 256,
	OPTION_DUPLICATE,
	OPTION_CORRUPT,
	OPTION_REORDER,
	OPTION_DELAY,
	OPTION_RATE,
	OPTION_QUEUE,
	OPTION_SEED
};

static const struct argp_option options[] = {
	{ .name = "loss", .key = OPTION_LOSS, .arg = "PERCENT", .doc = "Lose frames" },
	{ .name = "duplicate",
	  .key = OPTION_DUPLICATE,
	  .arg = "PERCENT",
	  .doc = "Deliver frames twice" },
	{ .name = "corrupt",
	  .key = OPTION_CORRUPT,
	  .arg = "PERCENT",
	  .doc = "Flip 1 to 8 bits of frames, behind the Ethernet header" },
	{ .name = "reorder",
	  .key = OPTION_REORDER,
	  .arg = "PERCENT",
	  .doc = "Hold frames back until 1 to 8 later ones have passed, or 5 ms" },
	{ .name = "delay",
	  .key = OPTION_DELAY,
	  .arg = "TIME[,JITTER]",
	  .doc = "Deliver frames so much later, more or less by up to JITTER, in order" },
	{ .name = "rate",
	  .key = OPTION_RATE,
	  .arg = "BITS",
	  .doc = "Bits per second towards each host, as in 100M or 2.5G" },
	{ .name = "queue",
	  .key = OPTION_QUEUE,
	  .arg = "BYTES",
	  .doc = "What may wait at the rate before frames are lost (else 10 ms of it, and at least 64k)" },
	{ .name = "seed",
	  .key = OPTION_SEED,
	  .arg = "NUMBER",
	  .doc = "Repeat what happened to frames under this seed" },
	{ 0 }
};

/* A number of at least 0 with what follows it; NULL if there is none. */
static const char *parse_number(const char *text, double *number)
{
	char *end;

	/* strtod also takes hexadecimal numbers, infinities and signs. */
	if (strspn(text, "0123456789.") == 0)
		return NULL;
	*number = strtod(text, &end);
	return end == text || strpbrk(text, "xXpP") ? NULL : end;
}

static double parse_chance(struct argp_state *state, const char *text)
{
	double percent = 0;
	const char *end = parse_number(text, &percent);

	if (!end || (*end && strcmp(end, "%")) || percent > 100)
		argp_error(state, "'%s' is no percentage, 0 to 100", text);
	return percent / 100;
}

/* Decimal suffixes, up to 1 T. */
static uint64_t parse_amount(struct argp_state *state, const char *text)
{
	static const char suffixes[] = "kMGT";
	double amount = 0;
	const char *end = parse_number(text, &amount);
	const char *suffix = end && *end ? strchr(suffixes, *end == 'K' ? 'k' : *end) : NULL;

	if (suffix) {
		for (int i = 0; i <= suffix - suffixes; i++)
			amount *= 1000;
		end++;
	}
	if (!end || *end || amount < 1 || amount > 1e12)
		argp_error(state, "'%s' is no amount, such as 8000, 64k, 100M or 2.5G", text);
	return (uint64_t)amount;
}

bool parse_time(const char *text, uint64_t *ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = { { "ns", 1 }, { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
	double number;
	const char *end = parse_number(text, &number);

	if (!end)
		return false;
	if (!*end && number == 0) {
		*ns = 0;
		return true;
	}
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(end, units[i].name) && number * units[i].ns <= 60. * SECOND) {
			*ns = (uint64_t)(number * units[i].ns);
			return true;
		}
	return false;
}

static void parse_delay(struct argp_state *state, struct trouble *trouble, char *text)
{
	char *comma = strchr(text, ',');

	trouble->jitter = 0;
	if (comma)
		*comma = '\0';
	if (!parse_time(text, &trouble->delay) ||
	    (comma && !parse_time(comma + 1, &trouble->jitter)))
		argp_error(
			state,
			"a delay is TIME or TIME,JITTER, such as 2ms or 200us,50us, of at most 60s");
	if (trouble->jitter > trouble->delay)
		argp_error(state, "the jitter is longer than the delay");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct trouble *trouble = state->input;
	char *end;

	switch (key) {
	case OPTION_LOSS:
		trouble->loss = parse_chance(state, arg);
		break;
	case OPTION_DUPLICATE:
		trouble->duplicate = parse_chance(state, arg);
		break;
	case OPTION_CORRUPT:
		trouble->corrupt = parse_chance(state, arg);
		break;
	case OPTION_REORDER:
		trouble->reorder = parse_chance(state, arg);
		break;
	case OPTION_DELAY:
		parse_delay(state, trouble, arg);
		break;
	case OPTION_RATE:
		trouble->rate = parse_amount(state, arg);
		break;
	case OPTION_QUEUE:
		trouble->queue = parse_amount(state, arg);
		break;
	case OPTION_SEED:
		errno = 0;
		trouble->seed = strtoull(arg, &end, 10);
		if (errno || *end || *arg < '0' || *arg > '9')
			argp_error(state, "a seed is a number from 0 to 18446744073709551615");
		trouble->seeded = true;
		break;
	case ARGP_KEY_END:
		if (trouble->queue && !trouble->rate)
			argp_error(state, "--queue is of use only with --rate");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	trouble->asked = true;
	return 0;
}

const struct argp trouble_argp = { .options = options, .parser = parse };

void trouble_complete(struct trouble *trouble)
{
	if (!trouble->queue) {
		trouble->queue = trouble->rate / 8 / 100;
		if (trouble->queue < 64000)
			trouble->queue = 64000;
	}
	/* Short, so that it is easily given again. */
	if (!trouble->seeded && getrandom(&trouble->seed, sizeof(trouble->seed), 0) > 0)
		trouble->seed %= 1000000;
}

/* SplitMix64: any seed is as good as any other. */
static uint64_t next(struct dice *dice)
{
	uint64_t z = dice->state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

void dice_seed(struct dice *dice, uint64_t seed, unsigned from, unsigned to)
{
	dice->state = seed;
	/* Far apart on the generator's cycle for neighbouring numbers. */
	dice->state = next(dice) ^ (uint64_t)from << 32 ^ to;
	dice->state = next(dice);
}

bool dice_chance(struct dice *dice, double chance)
{
	/* No throw, so that an option that is not given changes nothing of what the others do. */
	return chance > 0 && (double)(next(dice) >> 11) * 0x1p-53 < chance;
}

uint64_t dice_below(struct dice *dice, uint64_t below)
{
	return next(dice) % below;
}

void dice_corrupt(struct dice *dice, unsigned char *data, size_t size)
{
	for (uint64_t flips = 1 + dice_below(dice, 8); flips && size; flips--) {
		uint64_t bit = dice_below(dice, size * 8);

		data[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
}
