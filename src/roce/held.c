/* SPDX-License-Identifier: MIT */
/* Packets that came before those that are due. See wire.h. */
#include <stdlib.h>
#include <string.h>

#include "roce/wire.h"

bool held_add(struct held_list *list, const struct arrival *arrival)
{
	uint32_t psn = arrival->packet.psn;
	struct held **at = &list->first, *held;

	if (list->count == HELD_MOST)
		return false;
	while (*at && psn_diff((*at)->arrival.packet.psn, psn) < 0)
		at = &(*at)->next;
	if (*at && (*at)->arrival.packet.psn == psn)
		return false;
	held = malloc(sizeof(*held) + arrival->bytes);
	if (!held)
		return false;
	memcpy(held->raw, arrival->raw, arrival->bytes);
	held->arrival = *arrival;
	held->arrival.raw = held->raw;
	held->arrival.packet.payload = held->raw + (arrival->packet.payload - arrival->raw);
	held->next = *at;
	*at = held;
	list->count++;
	return true;
}

struct held *held_take(struct held_list *list, uint32_t psn)
{
	while (list->first) {
		struct held *held = list->first;
		int32_t ahead = psn_diff(held->arrival.packet.psn, psn);

		if (ahead > 0)
			return NULL;
		list->first = held->next;
		list->count--;
		if (!ahead)
			return held;
		free(held);
	}
	return NULL;
}

void held_clear(struct held_list *list)
{
	while (list->first) {
		struct held *held = list->first;

		list->first = held->next;
		free(held);
	}
	list->count = 0;
}
