/* SPDX-License-Identifier: MIT */
/* Windows. See window.h. */
#include "local/window.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "local/memory.h"
#include "nic/descriptor.h"
#include "nic/mapping.h"
#include "nic/segment.h"

/* Bytes, log2. The smaller one is for processes whose address space is limited. */
#define WINDOW_LARGE 30
#define WINDOW_SMALL 26
#define ADDRESS_ROOM (64ull << 30)

/* Before what is seen by it comes a page that nobody may have (nic/mapping.h); the first window begins with it, for there is nobody's
 * memory. */
struct window {
	struct window *next;
	uint8_t *start;
	uint64_t bytes;
};

static bool has_room(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur >= ADDRESS_ROOM;
}

static uint64_t table_bytes(const struct windows *windows)
{
	return (SHARE_ADDRESSES >> windows->shift) * sizeof(*windows->bases);
}

/* One whose owner cannot make our accesses fail: it is sealed against shrinking. */
static bool is_pages_file(int file, uint64_t *inode)
{
	int seals = fcntl(file, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(file, &st) || st.st_size != (off_t)SHARE_ADDRESSES)
		return false;
	*inode = st.st_ino;
	return true;
}

/* The number may be another file's by now, which may have fewer bytes, or be another process's. */
static bool has_file(const struct windows *windows)
{
	uint64_t inode;

	return descriptor_is_ours(windows->file) && is_pages_file(windows->file, &inode) && inode == windows->inode;
}

void windows_init(struct windows *windows, int file, bool is_ours)
{
	void *bases = MAP_FAILED;

	windows->file = -1;
	windows->is_ours = is_ours;
	windows->list = NULL;
	windows->shift = has_room() ? WINDOW_LARGE : WINDOW_SMALL;
	pthread_mutex_init(&windows->lock, NULL);
	if (memory_way() == MEMORY_MAPPED && file >= 0 && is_pages_file(file, &windows->inode))
		bases = mapping_make(table_bytes(windows), MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (bases != MAP_FAILED) {
		windows->file = file;
		windows->bases = bases;
	} else if (file >= 0 && !is_ours) {
		descriptor_close(file);
	}
}

void windows_destroy(struct windows *windows)
{
	pthread_mutex_destroy(&windows->lock);
	if (windows->file < 0)
		return;
	while (windows->list) {
		struct window *window = windows->list;

		windows->list = window->next;
		munmap(window->start, window->bytes);
		free(window);
	}
	munmap(windows->bases, table_bytes(windows));
	if (!windows->is_ours)
		descriptor_close(windows->file);
}

/* Lock held. */
static uint8_t *map(struct windows *windows, uint64_t index)
{
	uint64_t size = 1ull << windows->shift;
	uint64_t before = index ? (uint64_t)sysconf(_SC_PAGESIZE) : 0, bytes = before + size;
	struct window *window = malloc(sizeof(*window));
	uint8_t *start;

	if (!window || !has_file(windows)) {
		free(window);
		return NULL;
	}
	start = mapping_make(bytes, MAP_SHARED | MAP_NORESERVE, windows->file, index * size - before);
	if (start == MAP_FAILED) {
		free(window);
		return NULL;
	}
	segment_keep_apart(start, bytes);
	mapping_guard(start);
	*window = (struct window){ .next = windows->list, .start = start, .bytes = bytes };
	windows->list = window;
	return start + before;
}

uint8_t *window_open(struct windows *windows, uint64_t index)
{
	uint8_t *base;

	pthread_mutex_lock(&windows->lock);
	base = atomic_load_explicit(&windows->bases[index], memory_order_relaxed);
	if (!base) {
		base = map(windows, index);
		/* Release: who finds the window finds it mapped. */
		atomic_store_explicit(&windows->bases[index], base, memory_order_release);
	}
	pthread_mutex_unlock(&windows->lock);
	return base;
}

bool window_is(struct windows *windows, uint64_t addr)
{
	bool found = false;

	pthread_mutex_lock(&windows->lock);
	for (struct window *window = windows->list; window && !found; window = window->next)
		found = addr - (uint64_t)(uintptr_t)window->start < window->bytes;
	pthread_mutex_unlock(&windows->lock);
	return found;
}
