/* SPDX-License-Identifier: MIT */
/*
 * Shared memory: the pages of this process's memory regions in a file that peers map, the pages file. Its offsets are
 * this process's addresses; it is sparse, and as long as the address space. Only pages that lie wholly inside a region
 * are ever in it, and only as long as there is a region over them.
 *
 * Pages that a region already covers keep what they are until the last such region goes: a peer may be copying into
 * them in another way, and that store would be lost.
 *
 * Pages come back when no region is over them any more, unless the kernel may still be writing to them (nic/pins.h): then
 * at one of the next registrations or deregistrations.
 *
 * Memory that is shared already stays in its own file (nic/files.h).
 *
 * Whatever the machine refuses, memory stays private and is reached in the other ways (local/memory.h).
 */
#ifndef UROCE_NIC_SHARE_H
#define UROCE_NIC_SHARE_H

#include "nic/mr.h"

#define SHARE_ADDRESSES (1ull << 47) /* bytes of the pages file */

struct share;

/* nic->share, NULL when there can be no pages file. */
void share_start(struct nic *nic);
void share_stop(struct nic *nic);

/* The pages file, -1: none. Its descriptor is ours. */
int share_file(const struct nic *nic);

/* Around registering: from the switch until what became of it is published, a fork has to wait. */
void share_lock(struct nic *nic);
void share_unlock(struct nic *nic);

/* What of a region is mapped. */
struct share_run {
	uint64_t start, end; /* the longest run; none: 0, 0 */
	enum nic_unmapped why;
	uint32_t file; /* as seg_mr.file */
};

/* A region begins over [addr, addr + length): what can be shared is. 0, or ENOMEM. Locked. */
int share_add(struct nic *nic, uint64_t addr, uint64_t length, struct share_run *run);
/* It ends, and nobody uses it any more. Locked. */
void share_remove(struct nic *nic, uint64_t addr, uint64_t length, uint32_t file);

/*
 * The same for region number `region`, which is not valid any more, where visitors that do not move may be using it: they are
 * evicted, and its pages become private; what they still store goes to pages of the file that nobody has mapped, and that are not
 * used again before their visits are over. False, with the region as it was and one of them in *pid, where that cannot be: the kernel
 * may be copying for them, or the pages are not this region's alone. Locked.
 */
bool share_abandon(struct nic *nic, uint32_t region, uint64_t addr, uint64_t length, uint32_t file, uint32_t *pid);

/* Whether private memory, no longer than a word, is in the pages file or another one now, by some region whose run it need
 * not be in; then the piece says so. Within a visit of ourselves that found a valid region over it: then it stays what it is. */
bool share_find(const struct nic *nic, struct piece *word);

/*
 * Around fork: all pages are private then, so that the child has its own copy of what they hold at that moment. They
 * stay so in the parent until the regions over them are gone: switching again would copy each page that the child
 * still shares. Only what the kernel may be writing to stays, and what was sealed (mseal(2)) since it was registered; the parent
 * waits until the child has copied it.
 */
void share_before_fork(struct nic *nic);
void share_after_fork_in_parent(struct nic *nic);
void share_after_fork_in_child(struct nic *nic);

#endif
