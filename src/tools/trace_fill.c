/* SPDX-License-Identifier: MIT */
#include "tools/trace_fill.h"

#include <stdlib.h>
#include <string.h>

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint32_t most(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* Points that are nearer than twice the width become one. */
static void merge(struct trace_fill *fill)
{
	uint32_t count = fill->count;

	/* To half of them, on average. */
	while (count > TRACE_FILL_POINTS / 2) {
		uint32_t to = 0;

		fill->width = fill->width ? 2 * fill->width :
					    1 + (fill->points[count - 1].time - fill->points[0].time) / TRACE_FILL_POINTS;
		for (uint32_t from = 1; from < count; from++) {
			struct trace_fill_point *last = &fill->points[to];

			if (fill->points[from].time - last->time >= fill->width) {
				fill->points[++to] = fill->points[from];
				continue;
			}
			last->low = least(last->low, fill->points[from].low);
			last->high = most(last->high, fill->points[from].high);
		}
		count = to + 1;
	}
	fill->count = count;
}

/* For one more point. */
static bool make_room(struct trace_fill *fill)
{
	const uint32_t room = fill->room ? 2 * fill->room : 16;
	struct trace_fill_point *larger;

	if (fill->count < fill->room)
		return true;
	larger = realloc(fill->points, room * sizeof(*larger));
	if (!larger)
		return false;
	fill->points = larger;
	fill->room = room;
	return true;
}

void trace_fill_set(struct trace_fill *fill, uint64_t time, uint32_t now)
{
	struct trace_fill_point *last = fill->count ? &fill->points[fill->count - 1] : NULL;

	if (now == fill->now && last)
		return;
	fill->max = most(fill->max, now);
	if (last && fill->width && time - last->time < fill->width) {
		fill->now = now;
		last->low = least(last->low, now);
		last->high = most(last->high, now);
		return;
	}
	if (fill->count == TRACE_FILL_POINTS)
		merge(fill);
	if (!make_room(fill))
		return;
	fill->now = now;
	fill->points[fill->count++] = (struct trace_fill_point){ time, now, now };
}

void trace_fill_add(struct trace_fill *fill, uint64_t time, int32_t more)
{
	trace_fill_set(fill, time, more < 0 && fill->now < (uint32_t)-more ? 0 : fill->now + (uint32_t)more);
}

void trace_fill_begin(struct trace_fill *fill, uint64_t time)
{
	if ((fill->count && fill->points[0].time <= time) || !make_room(fill))
		return;
	memmove(fill->points + 1, fill->points, fill->count * sizeof(*fill->points));
	fill->points[0] = (struct trace_fill_point){ time, 0, 0 };
	fill->count++;
}
