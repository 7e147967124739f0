/* SPDX-License-Identifier: MIT */
/*
 * Views: files of a process's regions other than its pages file (nic/files.h), as this process sees them. A view is a
 * whole file, mapped when it is first needed, from the descriptor that its owner names, and until the owner's last region
 * in it has ended. Our own files too are reached by our own view.
 *
 * A view is used only within a visit in which a valid region names it. So it may be unmapped as soon as the owner has
 * ended the entry: that comes after the regions have become invalid and visits are over.
 */
#ifndef UROCE_LOCAL_VIEW_H
#define UROCE_LOCAL_VIEW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "nic/layout.h"

struct nic;

struct view {
	_Atomic uint32_t file; /* which one it is; 0: none */
	uint32_t refused;      /* could not be had, and is not tried again; under the lock */
	uint8_t *base;
	uint64_t start, size; /* as in seg_file */
};

struct views {
	struct seg_file *files; /* the process's, in its segment */
	pid_t pid;		/* as we see it; 0: we cannot have views */
	bool is_ours;
	int memfd;		/* some file of the kernel's own memory */
	pthread_mutex_t lock;	/* opening and closing views */
	_Atomic uint32_t count; /* of open ones */
	struct view at[NIC_FILES];
};

void views_init(struct views *views, const struct nic *nic, struct nic_segment *seg, pid_t pid);
void views_destroy(struct views *views);

/* Closes the views of files that have ended. */
void views_tidy(struct views *views);

/* Opens a view: false when that is refused. */
bool view_open(struct views *views, uint32_t file);

/* Our view of an address of the file's process, as far as the file goes. NULL: there is no view. */
static inline void *view_at(struct views *views, uint32_t file, uint64_t addr)
{
	struct view *view = &views->at[file % NIC_FILES];

	/* Acquire: pairs with the store in view_open. */
	if (__builtin_expect(atomic_load_explicit(&view->file, memory_order_acquire) != file, 0) &&
	    !view_open(views, file))
		return NULL;
	return view->base + (addr - view->start);
}

#endif
