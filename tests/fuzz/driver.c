/* SPDX-License-Identifier: MIT */
/*
 * What runs a fuzzer where there is no libFuzzer: every file of the corpus as it is, then changed at random, for a time. It knows
 * nothing of coverage. The same seed makes the same inputs. usage, as libFuzzer's:
 *
 *	FUZZER [-max_total_time=SECONDS] [-seed=NUMBER] FILE|FOLDER...
 */
#include "fuzz.h"

#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_INPUT 65535

struct input {
	uint8_t *bytes;
	size_t length;
};

static struct input *corpus;
static size_t corpus_size;

static void *need(void *allocated)
{
	if (!allocated) {
		perror("memory");
		exit(1);
	}
	return allocated;
}

static int add_file(const char *path, const struct stat *status, int type, struct FTW *where)
{
	struct input input = { .length = status->st_size };
	FILE *file;

	(void)where;
	if (type != FTW_F || status->st_size > MAX_INPUT)
		return 0;
	input.bytes = need(malloc(input.length + 1));
	file = fopen(path, "rb");
	if (!file || fread(input.bytes, 1, input.length, file) != input.length) {
		perror(path);
		exit(1);
	}
	fclose(file);
	corpus = need(realloc(corpus, (corpus_size + 1) * sizeof(*corpus)));
	corpus[corpus_size++] = input;
	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct input *left = a, *right = b;

	if (left->length != right->length)
		return left->length < right->length ? -1 : 1;
	return memcmp(left->bytes, right->bytes, left->length);
}

static uint32_t below(uint32_t limit)
{
	return limit ? (uint32_t)random() % limit : 0;
}

/* One change of up to MAX_INPUT bytes; returns their new number. */
static size_t change(uint8_t *bytes, size_t length)
{
	static const uint8_t edges[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };
	const struct input *other = &corpus[below(corpus_size)];
	size_t at = below(length), run = 1 + below(16);

	switch (below(7)) {
	case 0:
		if (length)
			bytes[at] ^= 1 << below(8);
		return length;
	case 1:
		if (length)
			bytes[at] = random() >> 8;
		return length;
	case 2:
		if (length)
			bytes[at] = edges[below(sizeof(edges))];
		return length;
	case 3: /* cut off */
		return at;
	case 4: /* grow */
		run = run < MAX_INPUT - length ? run : MAX_INPUT - length;
		memset(bytes + length, (int)(random() >> 8), run);
		return length + run;
	case 5: /* take out */
		run = run < length - at ? run : length - at;
		memmove(bytes + at, bytes + at + run, length - at - run);
		return length - run;
	default: /* go on as another */
		if (at >= other->length)
			return length;
		memcpy(bytes + at, other->bytes + at, other->length - at);
		return other->length;
	}
}

/* Its bytes on the heap and not more than there are, for the address sanitizer. */
static void run_one(const uint8_t *bytes, size_t length)
{
	uint8_t *copy = need(malloc(length + !length));

	memcpy(copy, bytes, length);
	LLVMFuzzerTestOneInput(copy, length);
	free(copy);
}

int main(int argc, char **argv)
{
	static uint8_t bytes[MAX_INPUT];
	unsigned int seconds = 0, seed = 1;
	unsigned long runs = 0;
	time_t end;

	for (int i = 1; i < argc; i++) {
		if (sscanf(argv[i], "-max_total_time=%u", &seconds) == 1 || sscanf(argv[i], "-seed=%u", &seed) == 1)
			continue;
		if (nftw(argv[i], add_file, 16, 0)) {
			perror(argv[i]);
			return 1;
		}
	}
	if (!corpus_size) {
		fprintf(stderr, "%s: no corpus\n", argv[0]);
		return 1;
	}
	/* Folders have no order. */
	qsort(corpus, corpus_size, sizeof(*corpus), compare);
	for (size_t i = 0; i < corpus_size; i++)
		run_one(corpus[i].bytes, corpus[i].length);

	printf("%zu files, then random changes for %u s, seed %u\n", corpus_size, seconds, seed);
	fflush(stdout);
	srandom(seed);
	end = time(NULL) + seconds;
	while (time(NULL) < end) {
		const struct input *from = &corpus[below(corpus_size)];
		size_t length = from->length;

		memcpy(bytes, from->bytes, length);
		for (uint32_t changes = 1 + below(4); changes; changes--)
			length = change(bytes, length);
		run_one(bytes, length);
		runs++;
	}
	printf("%lu inputs\n", runs);
	for (size_t i = 0; i < corpus_size; i++)
		free(corpus[i].bytes);
	free(corpus);
	return 0;
}
