/* SPDX-License-Identifier: MIT */
/* Files. See files.h. */
#include "nic/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "local/attach.h"
#include "nic/descriptor.h"
#include "nic/visit.h"

/* Names that the kernel gives to what has none; a memfd's begins with "/memfd:". */
static bool is_nameless(int fd)
{
	char path[32], name[64];
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
	length = readlink(path, name, sizeof(name) - 1);
	name[length < 0 ? 0 : length] = '\0';
	return !strcmp(name, "/dev/zero (deleted)") || !strncmp(name, "/SYSV", 5);
}

uint64_t file_safe_bytes(int fd, int memfd, uint64_t inode)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st, own;

	if (seals < 0 || fstat(fd, &st) || fstat(memfd, &own) || st.st_ino != inode ||
	    st.st_dev != own.st_dev || seals & F_SEAL_FUTURE_WRITE ||
	    (!(seals & F_SEAL_SHRINK) && !is_nameless(fd)))
		return 0;
	return ((uint64_t)st.st_size + page - 1) & ~(page - 1);
}

/* Whether it is of the kernel's own memory, where memfds are. */
static bool is_memory(const struct nic *nic, const struct vma *vma)
{
	struct stat own;

	return !fstat(nic->seg_fd, &own) && own.st_dev == makedev(vma->major, vma->minor);
}

static bool is_file_of(int fd, const struct vma *vma)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_ino == vma->inode &&
	       st.st_dev == makedev(vma->major, vma->minor);
}

/* One of the program's descriptors, as our own; -1: it has none that can write. */
static int find_descriptor(const struct vma *vma)
{
	DIR *dir = opendir("/proc/thread-self/fd");
	struct dirent *entry;
	int found = -1;

	while (dir && found < 0 && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (!is_file_of(fd, vma) || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
			continue;
		found = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* A descriptor of the file that is mapped, -1: not to be had. The first way is for the privileged. */
static int open_file(const struct vma *vma)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/map_files/%" PRIx64 "-%" PRIx64, vma->start,
		 vma->end);
	fd = descriptor_above(open(path, O_RDWR | O_CLOEXEC));
	return fd < 0 ? find_descriptor(vma) : fd;
}

/* Enters the file that is mapped there: in use from now on. */
static enum nic_unmapped enter(struct nic *nic, struct files *files, unsigned i,
			       const struct vma *vma, uint64_t end)
{
	struct seg_file *entry = &nic->seg->files[i];
	int fd = open_file(vma);

	if (fd < 0)
		return NIC_UNMAPPED_CLOSED;
	entry->size = file_safe_bytes(fd, nic->seg_fd, vma->inode);
	entry->start = vma->start - vma->offset;
	if (entry->size < end - entry->start) {
		close(fd);
		return NIC_UNMAPPED_SHRINKS;
	}
	entry->inode = vma->inode;
	entry->fd = files->at[i].fd = fd;
	files->at[i].inode = vma->inode;
	atomic_store(&entry->viewed, 0);
	/* Not 0, and another one for 2^26 uses. Release: who finds it finds the rest. */
	if (++files->uses == UINT32_MAX / NIC_FILES)
		files->uses = 1;
	atomic_store_explicit(&entry->file, files->uses * NIC_FILES + i, memory_order_release);
	return NIC_MAPPED;
}

void files_begin(struct nic *nic, struct files *files, const struct vma *vma, uint64_t addr,
		 uint64_t length, struct share_run *run)
{
	unsigned i = 0, unused = NIC_FILES;

	/* Nothing is opened that could not be taken: opening a device has effects. */
	run->why = NIC_UNMAPPED_SHRINKS;
	if (!is_memory(nic, vma))
		return;
	for (; i < NIC_FILES; i++) {
		struct seg_file *entry = &nic->seg->files[i];

		if (!files->at[i].regions)
			unused = i;
		else if (entry->inode == vma->inode && entry->start == vma->start - vma->offset &&
			 entry->size >= addr + length - entry->start)
			break;
	}
	run->why = NIC_MAPPED;
	if (i == NIC_FILES) {
		i = unused;
		run->why = i == NIC_FILES ? NIC_UNMAPPED_LIMIT :
					    enter(nic, files, i, vma, addr + length);
	}
	if (run->why)
		return;
	files->at[i].regions++;
	run->file = atomic_load_explicit(&nic->seg->files[i].file, memory_order_relaxed);
	run->start = addr;
	run->end = addr + length;
}

/* It may have another owner by now. */
static void close_file(const struct file *file)
{
	struct stat st;

	if (!fstat(file->fd, &st) && st.st_ino == file->inode)
		close(file->fd);
}

void files_end(struct nic *nic, struct files *files, uint32_t file)
{
	unsigned i = file % NIC_FILES;
	struct seg_file *entry = &nic->seg->files[i];

	if (--files->at[i].regions)
		return;
	atomic_store(&entry->file, 0);
	/* Who does an atomic by another region may have found it (files_find). */
	visits_to_over(nic, nic->seg->hdr.primary_slot);
	views_tidy(&attach_self(nic)->views);
	close_file(&files->at[i]);
	if (atomic_load(&entry->viewed))
		attach_ring(nic);
}

bool files_find(const struct nic *nic, const struct vma *vma, struct piece *word)
{
	uint64_t offset = word->addr - vma->start + vma->offset;

	if (!is_memory(nic, vma))
		return false;
	for (unsigned i = 0; i < NIC_FILES; i++) {
		const struct seg_file *entry = &nic->seg->files[i];
		uint32_t file = atomic_load_explicit(&entry->file, memory_order_acquire);

		if (!file || entry->inode != vma->inode || offset + word->length > entry->size)
			continue;
		word->kind = PIECE_FILE;
		word->file = file;
		word->addr = entry->start + offset;
		return true;
	}
	return false;
}

void files_close(struct files *files)
{
	for (unsigned i = 0; i < NIC_FILES; i++) {
		if (files->at[i].regions)
			close_file(&files->at[i]);
	}
}
