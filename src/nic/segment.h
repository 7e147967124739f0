/* SPDX-License-Identifier: MIT */
/*
 * Making and committing the segment, and the arena at its end from which rings are taken.
 */
#ifndef UROCE_NIC_SEGMENT_H
#define UROCE_NIC_SEGMENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct nic_segment;

#define ARENA_CLASSES 32 /* powers of two from 128 bytes */

struct arena {
	pthread_mutex_t lock;
	int fd;
	struct nic_segment *seg;
	uint64_t next,
		/* offsets from the segment's start; what lies at and above next was never used */
		size;
	struct arena_block *free[ARENA_CLASSES];
	struct arena_block *quarantine; /* freed while a visitor could still write into it */
};

/* For mappings of the library's: a forked child must not take part (nic.c), and a core dump would be as long as they are. */
void segment_keep_apart(void *start, uint64_t bytes);

/* A memfd of this name that can be sealed; -1 with errno. */
int segment_memfd(const char *name);

/* Whether RLIMIT_FSIZE lets a file have so many bytes: past it ftruncate and writing do not just fail, they send
 * SIGXFSZ. */
bool segment_file_fits(uint64_t size);

/* Creates the memfd and maps it; the largest size that the address space allows. 0, or errno. */
int segment_create(struct nic_segment **seg, int *fd, uint64_t *size);

/* Unmaps and closes: the end of the process's life for its peers. */
void segment_destroy(struct nic_segment *seg, int fd, uint64_t size);

/* Makes sure that the pages of [ptr, ptr + length) exist, so that no access can fail later. 0, or
 * errno (ENOMEM). */
int segment_commit(struct nic_segment *seg, int fd, const void *ptr, uint64_t length);

void arena_init(struct arena *arena, struct nic_segment *seg, int fd, uint64_t size);
void arena_destroy(struct arena *arena);

/* Zeroed memory, 128 bytes aligned; offset from the segment's start, or 0 when there is none. */
uint64_t arena_alloc(struct arena *arena, uint64_t length);

/* Gives memory back. With visited true a stopped visitor may still write there: it is kept until
 * that is over. */
void arena_free(struct arena *arena, uint64_t offset, uint64_t length, int visited);

/* For visits_over: the blocks in quarantine when the look at the visits began; afterwards they can
 * be used again if it found that all visits are over, else they go on waiting. */
struct arena_block *arena_take_quarantine(struct arena *arena);
void arena_end_quarantine(struct arena *arena, struct arena_block *blocks, int over);

#endif
