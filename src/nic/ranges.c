/* SPDX-License-Identifier: MIT */
/* Ranges of pages. See ranges.h. */
#include "nic/ranges.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST_ROOM 128
#define SPLITS	   2 /* new ranges that splitting at the two ends of a range makes */

/* Index of the first range that ends after addr. */
static size_t find(const struct page_ranges *ranges, uint64_t addr)
{
	size_t low = 0, high = ranges->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ranges->list[middle].end > addr)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static bool reserve(struct page_ranges *ranges, size_t more)
{
	size_t room = ranges->room ? ranges->room : FIRST_ROOM;
	size_t old = ranges->room * sizeof(*ranges->list);
	void *list;

	while (room < ranges->count + more)
		room *= 2;
	if (room == ranges->room)
		return true;
	/* Not by malloc: tools that look for leaks do not see the pointer, which is in a mapping too. */
	if (old)
		list = mremap(ranges->list, old, room * sizeof(*ranges->list), MREMAP_MAYMOVE);
	else
		list = mmap(NULL, room * sizeof(*ranges->list), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (list == MAP_FAILED)
		return false;
	ranges->list = list;
	ranges->room = room;
	return true;
}

static void insert(struct page_ranges *ranges, size_t at, struct page_range range)
{
	struct page_range *place = &ranges->list[at];

	memmove(place + 1, place, (ranges->count - at) * sizeof(*place));
	*place = range;
	ranges->count++;
}

static void take_out(struct page_ranges *ranges, size_t at)
{
	struct page_range *place = &ranges->list[at];

	ranges->count--;
	memmove(place, place + 1, (ranges->count - at) * sizeof(*place));
}

/* No range goes over addr afterwards. */
static void split(struct page_ranges *ranges, uint64_t addr)
{
	size_t i = find(ranges, addr);

	if (i == ranges->count || ranges->list[i].start >= addr)
		return;
	insert(ranges, i, ranges->list[i]);
	ranges->list[i].end = ranges->list[i + 1].start = addr;
}

/* Neighbours that do not differ become one, from the one before start to the one behind end. */
static void merge(struct page_ranges *ranges, uint64_t start, uint64_t end)
{
	size_t i = find(ranges, start ? start - 1 : 0);

	while (i + 1 < ranges->count && ranges->list[i].start < end) {
		struct page_range *range = &ranges->list[i], *next = range + 1;

		if (range->end == next->start && range->count == next->count &&
		    range->mapped == next->mapped) {
			next->start = range->start;
			take_out(ranges, i);
		} else {
			i++;
		}
	}
}

bool ranges_add(struct page_ranges *ranges, uint64_t start, uint64_t end)
{
	size_t i = find(ranges, start);
	size_t gaps = find(ranges, end) - i + 1;

	if (!reserve(ranges, gaps + SPLITS))
		return false;
	split(ranges, start);
	split(ranges, end);
	i = find(ranges, start);
	for (uint64_t at = start; at < end; at = ranges->list[i++].end) {
		uint64_t next = i < ranges->count ? ranges->list[i].start : end;

		if (next <= at)
			ranges->list[i].count++;
		else
			insert(ranges, i,
			       (struct page_range){
				       .start = at, .end = next < end ? next : end, .count = 1 });
	}
	merge(ranges, start, end);
	return true;
}

/* Takes out what is neither covered nor mapped, of whole ranges. */
static void clean(struct page_ranges *ranges, uint64_t start, uint64_t end)
{
	size_t from = find(ranges, start), to = find(ranges, end), kept = from;

	for (size_t i = from; i < to; i++) {
		if (ranges->list[i].count || ranges->list[i].mapped)
			ranges->list[kept++] = ranges->list[i];
	}
	memmove(&ranges->list[kept], &ranges->list[to],
		(ranges->count - to) * sizeof(*ranges->list));
	ranges->count -= to - kept;
	merge(ranges, start, end);
}

bool ranges_remove(struct page_ranges *ranges, uint64_t start, uint64_t end)
{
	if (!reserve(ranges, SPLITS))
		return false;
	split(ranges, start);
	split(ranges, end);
	for (size_t i = find(ranges, start), to = find(ranges, end); i < to; i++)
		ranges->list[i].count--;
	clean(ranges, start, end);
	return true;
}

bool ranges_reserve(struct page_ranges *ranges)
{
	return reserve(ranges, SPLITS);
}

void ranges_set_mapped(struct page_ranges *ranges, uint64_t start, uint64_t end, bool mapped)
{
	split(ranges, start);
	split(ranges, end);
	for (size_t i = find(ranges, start), to = find(ranges, end); i < to; i++)
		ranges->list[i].mapped = mapped;
	clean(ranges, start, end);
}

bool ranges_next(const struct page_ranges *ranges, uint64_t addr, uint64_t end,
		 struct page_range *range)
{
	size_t i = find(ranges, addr);

	if (addr >= end || i == ranges->count || ranges->list[i].start >= end)
		return false;
	*range = ranges->list[i];
	if (range->start < addr)
		range->start = addr;
	if (range->end > end)
		range->end = end;
	return true;
}

void ranges_destroy(struct page_ranges *ranges)
{
	if (ranges->room)
		munmap(ranges->list, ranges->room * sizeof(*ranges->list));
	*ranges = (struct page_ranges){ 0 };
}
