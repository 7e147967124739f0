/* SPDX-License-Identifier: MIT */
/*
 * The switch of a range of this process's memory from private pages to pages of the pages file at the same address, and
 * back, while its other threads use it. No byte that they store is lost, on success or on failure; pages that were never
 * touched stay so.
 *
 * To the file: userfaultfd holds whoever touches the range, the pages move away (UFFDIO_MOVE, which refuses those that
 * a device or the kernel has pinned, that are locked or protected by a key), are copied, and the file is mapped over
 * them. What an ordinary user gets is a userfaultfd that holds only user mode, or none. Without other threads that is
 * enough. With them there is the guard (nic/guard.h), under which a system call that writes there would fail with EFAULT;
 * so it is used only while the others sleep in calls that have nothing to do with the range, and what it holds is who
 * wakes up just then.
 *
 * Who calls has all signals blocked, and the range holds nothing that this file, or a handler, touches: no stack of ours,
 * no variable, nothing from the allocator during the switch.
 */
#ifndef UROCE_NIC_SWITCH_H
#define UROCE_NIC_SWITCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "nic/layout.h"
#include "nic/threads.h"

#define SWITCH_CHUNK (16u << 20) /* bytes: what exists twice at most */

struct switcher {
	int file;	  /* of the pages */
	dev_t device;	  /* by these two it is known: the number may be the program's by now */
	ino_t inode;
	int uffd;	  /* -1: refused, or without UFFDIO_MOVE */
	bool holds_all;	  /* the uffd holds system calls too */
	uint8_t *scratch; /* where pages move to, a chunk and what aligns it */
	uint64_t scratch_bytes;
	uint64_t seen[SWITCH_CHUNK / 4096]; /* of a chunk: /proc/self/pagemap */
};

/* False without memory. */
bool switch_init(struct switcher *s, int file);
void switch_destroy(struct switcher *s);
/* In a forked child: the descriptor only. */
void switch_close(struct switcher *s);

/*
 * Private memory [start, end), whole pages of one mapping of protection prot, becomes shared. threads: as seen just now.
 * NIC_MAPPED, or why not all; *done tells how far it came.
 */
enum nic_unmapped switch_to_shared(struct switcher *s, uint64_t start, uint64_t end, int prot,
				   const struct threads *threads, uint64_t *done);

/*
 * And back: [start, end) is a mapping of the pages file from offset on, whose pages are freed. Without a way to hold other
 * threads it becomes a private mapping of the file, each page of it copied.
 */
void switch_to_private(struct switcher *s, uint64_t start, uint64_t end, uint64_t offset, int prot,
		       const struct threads *threads);

/* Ends what the file holds of a range, if it is still there. */
void switch_empty(struct switcher *s, uint64_t offset, uint64_t length);

/* In a forked child without threads: a mapping [start, end) of the parent's pages file, at its place, becomes private memory
 * that holds the same. */
void switch_copy(struct switcher *s, uint64_t start, uint64_t end, int prot);

#endif
