/* SPDX-License-Identifier: MIT */
/*
 * A table of objects by index. A freed index goes to the end of a queue, so that it is slow to be
 * given out again. Look-ups need no lock; alloc and free lock for themselves.
 */
#ifndef UROCE_NIC_TABLE_H
#define UROCE_NIC_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct table {
	pthread_mutex_t lock;
	_Atomic(void *) *objects; /* reserved for size, touched when used */
	uint32_t *queue;	  /* ring of freed indices */
	uint32_t size;
	_Atomic uint32_t fresh; /* indices at and above were never used; read by anyone */
	uint32_t freed_head, freed_count;
	uint32_t used;
};

int table_init(struct table *table, uint32_t size);
void table_destroy(struct table *table);

/* Gives out an index below limit (at most the table's size) for object; -1 when there is none. */
int64_t table_alloc(struct table *table, void *object, uint32_t limit);
void table_free(struct table *table, uint32_t index);

static inline void *table_get(struct table *table, uint32_t index)
{
	return index < table->size ?
		       atomic_load_explicit(&table->objects[index], memory_order_acquire) :
		       (void *)0;
}

#endif
