/* SPDX-License-Identifier: MIT */
/*
 * Files: memory of regions that the program shares already, mapped by peers from the program's own file (local/view.h).
 *
 * Only a file that cannot lose pages is taken: who touches a page that is gone gets SIGBUS. Those are memfds that are
 * sealed against shrinking, and memory of the kernel's own that has no name by which it could be truncated: anonymous
 * shared memory and System V's. Huge pages are not taken: they can be punched out, and the pool may have no others.
 *
 * Entries are in the segment (seg_file), so that peers find the descriptor by themselves.
 */
#ifndef UROCE_NIC_FILES_H
#define UROCE_NIC_FILES_H

#include "nic/share.h"
#include "nic/vma.h"

/* Which entries are in use; under the lock of nic->share. */
struct files {
	struct file {
		uint32_t regions; /* in it; 0: not in use */
		int fd;		  /* which a forked child has too, unlike the segment */
		uint64_t inode;
	} at[NIC_FILES];
	uint32_t uses; /* of entries, ever */
};

/* How much of a file may be mapped, in bytes of whole pages: 0 unless it is safe, and the inode on memfd's file system that
 * is meant. */
uint64_t file_safe_bytes(int fd, int memfd, uint64_t inode);

/* A region begins that lies in one shared mapping: how it is mapped, or why it is not. */
void files_begin(struct nic *nic, struct files *files, const struct vma *vma, uint64_t addr,
		 uint64_t length, struct share_run *run);
/* It ends, and nobody uses it any more. */
void files_end(struct nic *nic, struct files *files, uint32_t file);

/* Whether an address in a shared mapping is in an entry; then the piece says so. Within a visit of ourselves. */
bool files_find(const struct nic *nic, const struct vma *vma, struct piece *word);

/* In a forked child, or with the device. */
void files_close(struct files *files);

#endif
