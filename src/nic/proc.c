/* SPDX-License-Identifier: MIT */
#include "nic/proc.h"

#include <stdio.h>

int proc_numbers(const char *path, unsigned long numbers[2])
{
	FILE *file = fopen(path, "re");
	char text[64];
	int count = 0;

	if (!file)
		return 0;
	if (fgets(text, sizeof(text), file))
		count = sscanf(text, "%lu %lu", &numbers[0], &numbers[1]);
	fclose(file);
	return count > 0 ? count : 0;
}
