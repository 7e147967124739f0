/* SPDX-License-Identifier: MIT */
/*
 * Ranges of pages that memory regions cover: disjoint, sorted, each with the number of regions over it and whether its
 * pages are in the pages file (nic/share.h). Knows nothing of the kernel; its user locks.
 */
#ifndef UROCE_NIC_RANGES_H
#define UROCE_NIC_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct page_range {
	uint64_t start, end;
	uint32_t count; /* of regions; 0: mapped, and to be given back when that is possible */
	bool mapped;
};

struct page_ranges {
	struct page_range *list;
	size_t count, room;
};

/* One more region covers [start, end); what no other did is not mapped. False without memory. */
bool ranges_add(struct page_ranges *ranges, uint64_t start, uint64_t end);

/* One region less covers [start, end), which it did; what is mapped stays so. False without memory: it counts as covered
 * for ever. */
bool ranges_remove(struct page_ranges *ranges, uint64_t start, uint64_t end);

/* [start, end), all of it there, is mapped or is not any more; after ranges_reserve(). */
void ranges_set_mapped(struct page_ranges *ranges, uint64_t start, uint64_t end, bool mapped);

/* Room for one ranges_set_mapped(): asked for before what it is to note is done. */
bool ranges_reserve(struct page_ranges *ranges);

/* The first range that ends after addr, as far as it lies in [addr, end); false when there is none. */
bool ranges_next(const struct page_ranges *ranges, uint64_t addr, uint64_t end,
		 struct page_range *range);

void ranges_destroy(struct page_ranges *ranges);

#endif
