/* SPDX-License-Identifier: MIT */
/* Views. See view.h. */
#include "local/view.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "local/memory.h"
#include "nic/files.h"
#include "nic/mapping.h"
#include "nic/segment.h"

void views_init(struct views *views, const struct nic *nic, struct nic_segment *seg, pid_t pid)
{
	*views = (struct views){
		.files = seg->files,
		.pid = memory_way() == MEMORY_MAPPED ? pid : 0,
		.is_ours = seg == nic->seg,
		.memfd = nic->seg_fd,
	};
	pthread_mutex_init(&views->lock, NULL);
}

/* Lock held. */
static void view_close(struct views *views, struct view *view)
{
	atomic_store_explicit(&view->file, 0, memory_order_relaxed);
	munmap(view->base, view->size);
	atomic_fetch_sub_explicit(&views->count, 1, memory_order_relaxed);
}

void views_destroy(struct views *views)
{
	for (unsigned i = 0; i < NIC_FILES; i++) {
		if (atomic_load_explicit(&views->at[i].file, memory_order_relaxed))
			view_close(views, &views->at[i]);
	}
	pthread_mutex_destroy(&views->lock);
}

void views_tidy(struct views *views)
{
	if (!atomic_load_explicit(&views->count, memory_order_relaxed))
		return;
	pthread_mutex_lock(&views->lock);
	for (unsigned i = 0; i < NIC_FILES; i++) {
		uint32_t file = atomic_load_explicit(&views->at[i].file, memory_order_relaxed);

		if (file && file != atomic_load(&views->files[i].file))
			view_close(views, &views->at[i]);
	}
	pthread_mutex_unlock(&views->lock);
}

/* Maps the file that an entry names. What its owner says is looked at: its descriptors may have been closed behind its
 * back, and its PID be another's. */
static void *map(const struct views *views, const struct seg_file *entry)
{
	void *base = MAP_FAILED;
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)views->pid, (int)entry->fd);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return MAP_FAILED;
	if (file_safe_bytes(fd, views->memfd, entry->inode) >= entry->size)
		base = mapping_make(entry->size, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (base != MAP_FAILED)
		segment_keep_apart(base, entry->size);
	close(fd);
	return base;
}

/* Lock held. */
static bool view_make(struct views *views, struct view *view, uint32_t file)
{
	struct seg_file *entry = &views->files[file % NIC_FILES];
	void *base;

	if (!views->pid)
		return false;
	/* Before it is mapped: who ends it then tells us. */
	if (!views->is_ours)
		atomic_store(&entry->viewed, 1);
	base = map(views, entry);
	if (base == MAP_FAILED)
		return false;
	view->base = base;
	view->start = entry->start;
	view->size = entry->size;
	/* Release: who finds the view finds it mapped. */
	atomic_store_explicit(&view->file, file, memory_order_release);
	atomic_fetch_add_explicit(&views->count, 1, memory_order_relaxed);
	return true;
}

bool view_open(struct views *views, uint32_t file)
{
	struct view *view = &views->at[file % NIC_FILES];
	bool open;

	pthread_mutex_lock(&views->lock);
	open = atomic_load_explicit(&view->file, memory_order_relaxed) == file;
	if (!open && view->refused != file) {
		/* Of a file that has ended. */
		if (atomic_load_explicit(&view->file, memory_order_relaxed))
			view_close(views, view);
		open = view_make(views, view, file);
		if (!open)
			view->refused = file;
	}
	pthread_mutex_unlock(&views->lock);
	return open;
}
