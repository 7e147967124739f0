/* SPDX-License-Identifier: MIT */
/*
 * The segment's memfd and its arena.
 *
 * The arena gives out powers of two from 128 bytes. A block that was never used comes from the end;
 * a freed one of 64 KiB or more has its pages punched out, so that a program which made large
 * queues once does not pay for them for ever.
 */
#include "nic/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "nic/layout.h"
#include "nic/mapping.h"

#define ARENA_MIN_LOG2 7
#define ARENA_PUNCH    (64u << 10)
#define PAGE	       4096u
#define SPACE_PARTS    8 /* of RLIMIT_AS: what one segment may take */

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

struct arena_block {
	struct arena_block *next;
	uint64_t offset;
	uint32_t class;
};

void segment_keep_apart(void *start, uint64_t bytes)
{
	madvise(start, bytes, MADV_DONTFORK);
	madvise(start, bytes, MADV_DONTDUMP);
}

int segment_memfd(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return descriptor_keep(fd);
}

/* Whether a segment of this size leaves room: for those of peers, which mostly have the same limit,
 * and the program. */
static bool suits_address_space(uint64_t size)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY ||
	       size <= limit.rlim_cur / SPACE_PARTS;
}

bool segment_file_fits(uint64_t size)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || size <= limit.rlim_cur;
}

int segment_create(struct nic_segment **seg, int *fd, uint64_t *size)
{
	/* Address space is all that a sparse file costs, but RLIMIT_AS or a debugger's allocator
	 * may have little. */
	static const uint64_t sizes[] = { 16ull << 30, 4ull << 30, 1ull << 30, 256ull << 20,
					  128ull << 20 };
	const size_t count = sizeof(sizes) / sizeof(sizes[0]);
	int error = ENOMEM;

	*fd = segment_memfd("uroce");
	if (*fd < 0)
		return errno;
	for (size_t i = 0; i < count; i++) {
		*size = sizes[i];
		if (i < count - 1 && !suits_address_space(*size))
			continue;
		if (!segment_file_fits(*size)) {
			error = EFBIG;
			continue;
		}
		if (ftruncate(*fd, (off_t)*size)) {
			error = errno;
			continue;
		}
		void *map = mapping_make(*size, MAP_SHARED | MAP_NORESERVE, *fd, 0);

		if (map == MAP_FAILED) {
			error = errno;
			continue;
		}
		segment_keep_apart(map, *size);
		mapping_guard(((struct nic_segment *)map)->guard);
		fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
		*seg = map;
		return 0;
	}
	descriptor_close(*fd);
	return error;
}

void segment_destroy(struct nic_segment *seg, int fd, uint64_t size)
{
	munmap(seg, size);
	descriptor_close(fd);
}

int segment_commit(struct nic_segment *seg, int fd, const void *ptr, uint64_t length)
{
	uint64_t start = (uint64_t)((const uint8_t *)ptr - (const uint8_t *)seg);
	uint64_t end = (start + length + PAGE - 1) & ~(uint64_t)(PAGE - 1);

	start &= ~(uint64_t)(PAGE - 1);
	if (!descriptor_is_ours(fd)) {
		cause_record(&seg->causes, &(struct cause){ .code = CAUSE_DESCRIPTORS_CLOSED, .error = EBADF });
		return EBADF;
	}
	while (fallocate(fd, 0, (off_t)start, (off_t)(end - start))) {
		if (errno != EINTR)
			return errno == ENOSPC ? ENOMEM : errno;
	}
	return 0;
}

void arena_init(struct arena *arena, struct nic_segment *seg, int fd, uint64_t size)
{
	memset(arena, 0, sizeof(*arena));
	pthread_mutex_init(&arena->lock, NULL);
	arena->seg = seg;
	arena->fd = fd;
	arena->next = offsetof(struct nic_segment, arena);
	arena->size = size;
}

static void free_blocks(struct arena_block *block)
{
	while (block) {
		struct arena_block *next = block->next;

		free(block);
		block = next;
	}
}

void arena_destroy(struct arena *arena)
{
	for (int i = 0; i < ARENA_CLASSES; i++)
		free_blocks(arena->free[i]);
	free_blocks(arena->quarantine);
	pthread_mutex_destroy(&arena->lock);
}

static uint32_t class_of(uint64_t length)
{
	uint32_t class = 0;

	while (class < ARENA_CLASSES && (1ull << (class + ARENA_MIN_LOG2)) < length)
		class ++;
	return class;
}

uint64_t arena_alloc(struct arena *arena, uint64_t length)
{
	uint32_t class = class_of(length);
	uint64_t bytes = 1ull << (class + ARENA_MIN_LOG2), offset = 0;

	if (class >= ARENA_CLASSES)
		return 0;
	pthread_mutex_lock(&arena->lock);
	if (arena->free[class]) {
		struct arena_block *block = arena->free[class];

		arena->free[class] = block->next;
		offset = block->offset;
		free(block);
	} else {
		/* Page-sized blocks and larger ones start at a page, so that punching one leaves
		 * its neighbours. */
		uint64_t align = bytes < PAGE ? bytes : PAGE;
		uint64_t start = (arena->next + align - 1) & ~(align - 1);

		if (start + bytes <= arena->size) {
			offset = start;
			arena->next = start + bytes;
		}
	}
	pthread_mutex_unlock(&arena->lock);
	if (!offset)
		return 0;
	if (segment_commit(arena->seg, arena->fd, seg_at(arena->seg, offset), bytes)) {
		arena_free(arena, offset, length, 0);
		return 0;
	}
	memset(seg_at(arena->seg, offset), 0, length);
	return offset;
}

/* Lock held. */
static void make_free(struct arena *arena, struct arena_block *block)
{
	uint64_t bytes = 1ull << (block->class + ARENA_MIN_LOG2);

	if (bytes >= ARENA_PUNCH && descriptor_is_ours(arena->fd))
		fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			  (off_t)block->offset, (off_t)bytes);
	block->next = arena->free[block->class];
	arena->free[block->class] = block;
}

void arena_free(struct arena *arena, uint64_t offset, uint64_t length, int visited)
{
	struct arena_block *block = malloc(sizeof(*block));

	if (!offset ||
	    /* without memory for the note, the block is lost rather than reused wrongly */
	    !block) {
		free(block);
		return;
	}
	block->offset = offset;
	block->class = class_of(length);
	pthread_mutex_lock(&arena->lock);
	if (visited) {
		counter_add(&arena->seg->counters.quarantined,
			    1ull << (block->class + ARENA_MIN_LOG2));
		block->next = arena->quarantine;
		arena->quarantine = block;
	} else {
		make_free(arena, block);
	}
	pthread_mutex_unlock(&arena->lock);
}

struct arena_block *arena_take_quarantine(struct arena *arena)
{
	pthread_mutex_lock(&arena->lock);
	struct arena_block *blocks = arena->quarantine;

	arena->quarantine = NULL;
	pthread_mutex_unlock(&arena->lock);
	return blocks;
}

void arena_end_quarantine(struct arena *arena, struct arena_block *blocks, int over)
{
	if (!blocks)
		return;
	pthread_mutex_lock(&arena->lock);
	while (blocks) {
		struct arena_block *next = blocks->next;

		if (over) {
			atomic_fetch_sub(&arena->seg->counters.quarantined,
					 1ull << (blocks->class + ARENA_MIN_LOG2));
			make_free(arena, blocks);
		} else {
			blocks->next = arena->quarantine;
			arena->quarantine = blocks;
		}
		blocks = next;
	}
	pthread_mutex_unlock(&arena->lock);
}
