/* SPDX-License-Identifier: MIT */
/*
 * Makes the fuzzers' corpus from the captures: of each capture one IP packet of each kind (opcode, BTH flags, AETH syndrome), a
 * file each. usage: corpus CAPTURES FOLDER
 */
#include <sys/stat.h>

#include "pcaps/capture.h"

static struct capture capture;

/* Opcode, flags, syndrome, in the order in which they are found. */
struct kinds {
	uint32_t seen[256];
	int count;
};

static bool is_new(struct kinds *kinds, const struct captured *captured)
{
	const uint8_t *bth = captured->packet;
	const bool has_syndrome = roce_opcode(bth[0])->headers & ROCE_HAS_AETH;
	const uint32_t kind = bth[0] << 16 | bth[1] << 8 | (has_syndrome ? bth[ROCE_BTH_BYTES] : 0);

	for (int i = 0; i < kinds->count; i++) {
		if (kinds->seen[i] == kind)
			return false;
	}
	if (kinds->count == sizeof(kinds->seen) / sizeof(*kinds->seen))
		return false;
	kinds->seen[kinds->count++] = kind;
	return true;
}

static void write_file(const char *folder, const struct captured *captured)
{
	char name[4096];
	FILE *file;

	snprintf(name, sizeof(name), "%s/%.*s.%d", folder, capture.name_length, capture.name, capture.frames);
	file = fopen(name, "wb");
	if (!file || fwrite(captured->ip, captured->ip_bytes, 1, file) != 1 || fclose(file)) {
		perror(name);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	glob_t list;

	if (argc != 3) {
		fprintf(stderr, "usage: corpus CAPTURES FOLDER\n");
		return 2;
	}
	mkdir(argv[2], 0777);
	capture_list(argv[1], &list);
	for (size_t i = 0; i < list.gl_pathc; i++) {
		struct kinds kinds = { .count = 0 };
		struct captured captured;

		capture_open(&capture, list.gl_pathv[i]);
		while (capture_next(&capture, &captured)) {
			if (is_new(&kinds, &captured))
				write_file(argv[2], &captured);
		}
	}
	globfree(&list);
	return 0;
}
