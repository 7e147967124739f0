/* SPDX-License-Identifier: MIT */
/*
 * Windows: the pages files of processes, our own among them, as this process sees them. A window is a large aligned part of
 * the file, mapped when it is first needed and until its process is freed.
 *
 * A page is touched only within a visit in which a valid region says that it is mapped (nic/share.h). Our own memory too
 * is reached by our own window, so that what the program has since unmapped or protected raises no signal.
 */
#ifndef UROCE_LOCAL_WINDOW_H
#define UROCE_LOCAL_WINDOW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "nic/share.h"

struct window;

struct windows {
	int file;	/* -1: the process has no pages file, or we cannot have windows */
	uint64_t inode;
	bool is_ours;	/* the descriptor is not to be closed */
	uint32_t shift; /* log2 of a window's bytes */
	_Atomic(uint8_t *) *bases; /* by address >> shift; NULL where no window is mapped */
	pthread_mutex_t lock;	   /* list, and mapping one */
	struct window *list;
};

/* Takes over the descriptor of a pages file, unless it is our own; what is no such file, or -1, gives no windows. */
void windows_init(struct windows *windows, int file, bool is_ours);
void windows_destroy(struct windows *windows);

/* Maps a window: NULL when that is refused. */
uint8_t *window_open(struct windows *windows, uint64_t index);

/* Whether addr is in one. */
bool window_is(struct windows *windows, uint64_t addr);

/* Our view of an address of the file's process; *length is cut to what lies in the same window. NULL: there is no view. */
static inline void *window_at(struct windows *windows, uint64_t addr, uint64_t *length)
{
	uint64_t size = 1ull << windows->shift, within = addr & (size - 1);
	uint8_t *base;

	if (windows->file < 0 || addr >= SHARE_ADDRESSES)
		return NULL;
	/* Acquire: pairs with the store in window_open. */
	base = atomic_load_explicit(&windows->bases[addr >> windows->shift], memory_order_acquire);
	if (__builtin_expect(!base, 0)) {
		base = window_open(windows, addr >> windows->shift);
		if (!base)
			return NULL;
	}
	if (*length > size - within)
		*length = size - within;
	return base + within;
}

#endif
