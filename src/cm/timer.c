/* SPDX-License-Identifier: MIT */
/* Timers of ids: a heap of those that have one, the next first. Each id of the process has its place kept from the start, so that
 * setting a timer cannot fail. */
#include "cm/engine.h"

static void put(struct cm *cm, size_t place, struct cm_id *id)
{
	cm->heap[place] = id;
	id->heap_place = place;
}

static void move_up(struct cm *cm, size_t place)
{
	struct cm_id *id = cm->heap[place];

	for (; place && cm->heap[(place - 1) / 2]->due > id->due; place = (place - 1) / 2)
		put(cm, place, cm->heap[(place - 1) / 2]);
	put(cm, place, id);
}

static void move_down(struct cm *cm, size_t place)
{
	struct cm_id *id = cm->heap[place];

	for (;;) {
		size_t child = 2 * place + 1;

		if (child + 1 < cm->heap_count && cm->heap[child + 1]->due < cm->heap[child]->due)
			child++;
		if (child >= cm->heap_count || cm->heap[child]->due >= id->due)
			break;
		put(cm, place, cm->heap[child]);
		place = child;
	}
	put(cm, place, id);
}

void timer_clear(struct cm_id *id)
{
	struct cm *cm = id->cm;
	size_t place = id->heap_place;

	if (!id->due)
		return;
	id->due = 0;
	if (place == --cm->heap_count)
		return;
	put(cm, place, cm->heap[cm->heap_count]);
	move_up(cm, place);
	move_down(cm, place);
}

void timer_set(struct cm_id *id, uint64_t due)
{
	struct cm *cm = id->cm;

	timer_clear(id);
	id->due = due;
	put(cm, cm->heap_count++, id);
	move_up(cm, id->heap_place);
}

struct cm_id *timer_due(struct cm *cm, uint64_t now)
{
	struct cm_id *id = cm->heap_count ? cm->heap[0] : NULL;

	if (!id || id->due > now)
		return NULL;
	timer_clear(id);
	return id;
}
