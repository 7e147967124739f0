/* SPDX-License-Identifier: MIT */
/* Tables of objects by index. */
#include "nic/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nic/mapping.h"

int table_init(struct table *table, uint32_t size)
{
	memset(table, 0, sizeof(*table));
	/* Large and mostly untouched: mmap rather than calloc, so that no allocator writes to
	 * it. */
	table->objects = mapping_make(size * sizeof(*table->objects), MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	table->queue = mapping_make(size * sizeof(*table->queue), MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (table->objects == MAP_FAILED || table->queue == MAP_FAILED)
		return ENOMEM;
	pthread_mutex_init(&table->lock, NULL);
	table->size = size;
	return 0;
}

void table_destroy(struct table *table)
{
	munmap(table->objects, table->size * sizeof(*table->objects));
	munmap(table->queue, table->size * sizeof(*table->queue));
	pthread_mutex_destroy(&table->lock);
}

int64_t table_alloc(struct table *table, void *object, uint32_t limit)
{
	int64_t index = -1;

	pthread_mutex_lock(&table->lock);
	/* Never-used indices first: a freed one comes again as late as possible. */
	if (table->fresh < limit) {
		index = table->fresh++;
	} else if (table->freed_count) {
		index = table->queue[table->freed_head];
		table->freed_head = (table->freed_head + 1) % table->size;
		table->freed_count--;
	}
	if (index >= 0) {
		table->used++;
		atomic_store_explicit(&table->objects[index], object, memory_order_release);
	}
	pthread_mutex_unlock(&table->lock);
	return index;
}

void table_free(struct table *table, uint32_t index)
{
	pthread_mutex_lock(&table->lock);
	atomic_store_explicit(&table->objects[index], NULL, memory_order_release);
	table->queue[(table->freed_head + table->freed_count) % table->size] = index;
	table->freed_count++;
	table->used--;
	pthread_mutex_unlock(&table->lock);
}
