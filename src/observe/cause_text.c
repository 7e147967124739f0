/* SPDX-License-Identifier: MIT */
/* The names and short texts of causes. */
#include "observe/cause.h"

#include <stddef.h>

static const struct cause_entry entries[] = {
#define CAUSE(name, number, text) { number, #name, text },
#include "observe/cause_codes.h"
#undef CAUSE
};

const struct cause_entry *cause_entry(unsigned place)
{
	return place < sizeof(entries) / sizeof(entries[0]) ? &entries[place] : NULL;
}

const char *cause_thing(uint32_t thing)
{
	static const char *const names[CAUSE_THINGS] = {
#define THING(name, text) [CAUSE_THING_##name] = text,
#include "observe/cause_things.h"
#undef THING
	};

	return thing < CAUSE_THINGS ? names[thing] : NULL;
}

#define CAUSE(name, number, text) _Static_assert(number < CAUSE_CODES, #name);
#include "observe/cause_codes.h"
#undef CAUSE

static const struct cause_entry *find(uint32_t code)
{
	const struct cause_entry *entry;

	for (unsigned place = 0; (entry = cause_entry(place)); place++)
		if (entry->code == code)
			return entry;
	return NULL;
}

const char *cause_text(uint32_t code)
{
	const struct cause_entry *entry = find(code);

	return entry ? entry->text : "unknown cause";
}

const char *cause_name(uint32_t code)
{
	const struct cause_entry *entry = find(code);

	return entry ? entry->name : NULL;
}
