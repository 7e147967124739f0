/* SPDX-License-Identifier: MIT */
/* Shared memory. See share.h. */
#include "nic/share.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "local/memory.h"
#include "local/window.h"
#include "nic/descriptor.h"
#include "nic/files.h"
#include "nic/pins.h"
#include "nic/proc.h"
#include "nic/ranges.h"
#include "nic/switch.h"
#include "nic/threads.h"
#include "nic/visit.h"
#include "nic/vma.h"

#define MAPPINGS_DEFAULT 65530
#define MAPPINGS_READ	 1024
#define COUNT_AGAIN	 128 /* switches, each of which adds two mappings at most */
#define POLICY_OF_ADDR	 2   /* MPOL_F_ADDR */
#define LOOK_LONG	 10000000	/* ns: as long signals are blocked, and forks wait */
#define STEP		 (64ull << 20)	/* bytes that are switched before looking at the time */
#define MSEAL		 462 /* of all architectures; Debian 12's headers lack it */
#define LINGERING_LOOKED \
	8 /* ranges that wait to be given back, of which each look asks whether they can be */

struct sealed {
	uint64_t start, end;
	int prot;
};

/* Pages of the file that a visitor of an earlier region may still store to. */
struct haunt {
	uint64_t start, end;
	struct visit_seen visit;
};

/* Mapped, not allocated: a program that registers its whole heap must not have it switched under our feet. */
struct share {
	pthread_mutex_t lock;
	struct page_ranges ranges;
	struct switcher switcher;
	struct files files; /* other than the pages file */
	struct stat file;
	uint64_t page;
	/* Mappings of the process when they were last counted, switches since, and what it may have. */
	uint64_t mappings, switches, mappings_max;
	/* Whether ranges that nobody covers are mapped still, and from where on to look at them next. */
	bool lingers;
	uint64_t lingers_at;
	struct haunt haunts[VISITS_SEEN];
	uint32_t haunted;
	/* While a child copies what could not become private: it closes the other end. */
	int child[2];
	/* What of that is sealed, and so is made anew in the child. */
	struct sealed *sealed;
	size_t sealed_count;
};

/* A look at the process, for as long as the lock is held. */
struct look {
	struct threads threads;
	int maps;
	sigset_t signals;
	uint64_t since; /* ns */
};

static uint64_t read_mappings_max(void)
{
	unsigned long numbers[2];

	return proc_numbers("/proc/sys/vm/max_map_count", numbers) ? numbers[0] : MAPPINGS_DEFAULT;
}

static int make_file(struct stat *st)
{
	int fd = segment_memfd("uroce-pages");

	if (fd >= 0 && (!segment_file_fits(SHARE_ADDRESSES) || ftruncate(fd, SHARE_ADDRESSES) ||
			fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) || fstat(fd, st))) {
		descriptor_close(fd);
		fd = -1;
	}
	return fd;
}

void share_start(struct nic *nic)
{
	struct share *share;
	int file;

	if (memory_way() != MEMORY_MAPPED)
		return;
	share = mmap(NULL, sizeof(*share), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	if (share == MAP_FAILED)
		return;
	file = make_file(&share->file);
	if (file < 0 || !switch_init(&share->switcher, file)) {
		if (file >= 0)
			descriptor_close(file);
		munmap(share, sizeof(*share));
		return;
	}
	pthread_mutex_init(&share->lock, NULL);
	share->page = (uint64_t)sysconf(_SC_PAGESIZE);
	share->child[0] = share->child[1] = -1;
	share->mappings_max = read_mappings_max();
	nic->share = share;
}

int share_file(const struct nic *nic)
{
	return nic->share ? nic->share->switcher.file : -1;
}

void share_lock(struct nic *nic)
{
	if (nic->share)
		pthread_mutex_lock(&nic->share->lock);
}

void share_unlock(struct nic *nic)
{
	if (nic->share)
		pthread_mutex_unlock(&nic->share->lock);
}

/* No handler of ours may run into what we hold. */
static bool look_begin(struct nic *nic, struct look *look)
{
	sigset_t all;

	look->maps = vma_open();
	if (look->maps < 0 || !threads_look(&look->threads, atomic_load(&nic->helper_tid))) {
		if (look->maps >= 0)
			close(look->maps);
		return false;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &look->signals);
	look->since = nic_now();
	return true;
}

static void look_end(struct look *look)
{
	pthread_sigmask(SIG_SETMASK, &look->signals, NULL);
	threads_forget(&look->threads);
	close(look->maps);
}

/* Whoever waits for the lock, and the signals that have come meanwhile, have their turn now and then; what was seen of the process, and
 * of ranges, may have changed. False when there can be no look any more: it has ended. */
static bool look_again(struct nic *nic, struct look *look)
{
	if (nic_now() - look->since < LOOK_LONG)
		return true;
	look_end(look);
	share_unlock(nic);
	share_lock(nic);
	return look_begin(nic, look);
}

static bool is_ours(const struct share *share, const struct vma *vma)
{
	return vma->shared && vma->inode == share->file.st_ino &&
	       makedev(vma->major, vma->minor) == share->file.st_dev;
}

/* Half of what the kernel allows is the program's; and no more than can be read at each registration, where looking for
 * one, or for pins (nic/pins.h), means reading. */
static bool has_mappings_left(struct share *share, int maps)
{
	uint64_t allowed = share->mappings_max / 2;

	if ((!vma_is_quick() || share->switcher.uffd < 0) && allowed > MAPPINGS_READ)
		allowed = MAPPINGS_READ;
	if (!(share->switches++ % COUNT_AGAIN)) {
		share->mappings = vma_count(maps);
		share->switches = 1;
	}
	return share->mappings + 2 * share->switches <= allowed;
}

/* Whether mbind() says where the pages belong, which a new mapping would forget. */
static bool has_policy(uint64_t addr)
{
	int of_memory, of_thread;

	return !syscall(SYS_get_mempolicy, &of_memory, NULL, 0ul, addr, (long)POLICY_OF_ADDR) &&
	       !syscall(SYS_get_mempolicy, &of_thread, NULL, 0ul, NULL, 0l) &&
	       of_memory != of_thread;
}

/* Sealed by mseal(2) there can be no other mapping in this place, ever. */
static bool is_sealed(uint64_t start, uint64_t end, int prot)
{
	/* What it is already it may not become either. */
	return mprotect((void *)(uintptr_t)start, end - start, prot) && errno == EPERM;
}

static bool suits(const struct vma *vma, uint64_t start)
{
	return !vma->shared && !vma->inode && vma->prot & PROT_READ && vma->prot & PROT_WRITE &&
	       !has_policy(start) && !is_sealed(start, vma->end, vma->prot);
}

/* Those that are over: nobody stores to the pages any more, and what was stored is nobody's. */
static void end_haunts(struct nic *nic)
{
	struct share *share = nic->share;

	for (uint32_t i = 0; i < share->haunted;) {
		struct haunt *haunt = &share->haunts[i];

		if (!visit_is_over(nic, &haunt->visit)) {
			i++;
			continue;
		}
		switch_empty(&share->switcher, haunt->start, haunt->end - haunt->start);
		*haunt = share->haunts[--share->haunted];
	}
}

static bool is_haunted(const struct share *share, uint64_t start, uint64_t end)
{
	for (uint32_t i = 0; i < share->haunted; i++) {
		if (share->haunts[i].start < end && share->haunts[i].end > start)
			return true;
	}
	return false;
}

static enum nic_unmapped share_part(struct share *share, const struct look *look,
				    const struct vma *vma, uint64_t start, uint64_t end)
{
	enum nic_unmapped why;
	uint64_t done;

	if (!segment_file_fits(SHARE_ADDRESSES))
		return NIC_UNMAPPED_OFF;
	if (is_haunted(share, start, end))
		return NIC_UNMAPPED_STOPPED;
	if (!has_mappings_left(share, look->maps))
		return NIC_UNMAPPED_LIMIT;
	if (!ranges_reserve(&share->ranges))
		return NIC_UNMAPPED_MEMORY;
	why = switch_to_shared(&share->switcher, start, end, vma->prot, &look->threads, &done);
	if (done > start)
		ranges_set_mapped(&share->ranges, start, done, true);
	return why;
}

/* Pages that no other region covers: those that suit are switched. Not all at once: *next is where to go on. */
static enum nic_unmapped share_pages(struct share *share, const struct look *look, uint64_t start,
				     uint64_t end, uint64_t *next)
{
	enum nic_unmapped why = NIC_MAPPED, one;
	struct vma vma;

	*next = end;
	if (end - start > STEP)
		*next = end = start + STEP;
	for (; start < end && vma_find(look->maps, start, &vma) && vma.start < end;
	     start = vma.end) {
		uint64_t part = start > vma.start ? start : vma.start, own, own_end;
		uint64_t last = end < vma.end ? end : vma.end;

		if (!suits(&vma, part)) {
			why = NIC_UNMAPPED_KIND;
			continue;
		}
		while (part < last) {
			bool owned = threads_own(&look->threads, &vma, part, &own, &own_end) &&
				     own < last;

			if (!owned || own > part) {
				one = share_part(share, look, &vma, part, owned ? own : last);
				if (one)
					why = one;
				part = owned ? own : last;
			} else {
				why = NIC_UNMAPPED_STACK;
				part = own_end;
			}
		}
	}
	return why;
}

/* How far, from start on, the program still has [start, end) from the pages file. Where that ends *next is where to look
 * again: behind what it has mapped there instead. */
static uint64_t still_ours(const struct share *share, int maps, uint64_t start, uint64_t end,
			   uint64_t *next)
{
	uint64_t at = start;
	struct vma vma;

	for (; at < end; at = vma.end) {
		if (!vma_find(maps, at, &vma)) {
			*next = end;
			return at;
		}
		if (vma.start > at || !is_ours(share, &vma) || vma.offset != vma.start) {
			*next = vma.start > at ? vma.start : vma.end;
			return at;
		}
	}
	*next = end;
	return end;
}

/* The longest run of [start, end) that is mapped. */
static void find_run(const struct share *share, int maps, uint64_t start, uint64_t end,
		     struct share_run *run)
{
	struct page_range range;
	uint64_t begin = 0, last = 0;

	for (uint64_t at = start, to; ranges_next(&share->ranges, at, end, &range);) {
		if (!range.mapped) {
			at = range.end;
			continue;
		}
		to = still_ours(share, maps, range.start, range.end, &at);
		if (to == range.start)
			continue;
		if (range.start != last)
			begin = range.start;
		last = to;
		if (last - begin > run->end - run->start) {
			run->start = begin;
			run->end = last;
		}
	}
}

/* Whether all of it is one mapping of a file that is shared already. */
static bool is_in_file(const struct share *share, const struct look *look, uint64_t start,
		       uint64_t end, struct vma *vma)
{
	return vma_find(look->maps, start, vma) && vma->start <= start && vma->end >= end &&
	       vma->shared && vma->prot & PROT_READ && vma->prot & PROT_WRITE &&
	       !is_ours(share, vma);
}

/* Pages that lie wholly in the region come into the pages file, if they may; what of it is there then. False when the look has
 * ended. */
static bool add_pages(struct nic *nic, struct look *look, uint64_t addr, uint64_t length,
		      struct share_run *run)
{
	struct share *share = nic->share;
	uint64_t below = ~(share->page - 1), above = share->page - 1;
	uint64_t start = addr & below, end = (addr + length + above) & below;
	uint64_t inner = (addr + above) & below, inner_end = (addr + length) & below;
	struct page_range range;

	run->why = start < inner || inner_end < end ? NIC_UNMAPPED_EDGE : NIC_MAPPED;
	if (inner >= inner_end)
		return true;
	for (uint64_t at = inner, next; ranges_next(&share->ranges, at, inner_end, &range); at = next) {
		enum nic_unmapped why = NIC_MAPPED;

		next = range.end;
		if (!range.mapped && range.count == 1)
			why = share_pages(share, look, range.start, range.end, &next);
		else if (!range.mapped)
			why = NIC_UNMAPPED_KNOWN;
		if (why)
			run->why = why;
		if (next < inner_end && !look_again(nic, look)) {
			run->why = NIC_UNMAPPED_OFF;
			return false;
		}
	}
	find_run(share, look->maps, start, end, run);
	if (!run->why && (run->start > addr || run->end < addr + length))
		run->why = NIC_UNMAPPED_SPLIT;
	return true;
}

/* What is left of [start, end) of the file, at any address, becomes the program's private memory. */
static void give_back_moved(struct nic *nic, const struct look *look, uint64_t start, uint64_t end)
{
	struct share *share = nic->share;
	struct vma vma = { 0 };

	while (vma_find(look->maps, vma.end, &vma)) {
		uint64_t last = vma.offset + (vma.end - vma.start);
		uint64_t from = vma.offset > start ? vma.offset : start;
		uint64_t to = last < end ? last : end;

		if (from < to && is_ours(share, &vma) &&
		    !window_is(&attach_self(nic)->windows, vma.start) && !is_sealed(vma.start, vma.end, vma.prot))
			switch_to_private(&share->switcher, vma.start + (from - vma.offset),
					  vma.start + (to - vma.offset), from, vma.prot,
					  &look->threads);
	}
}

/* Ends what the file holds of [start, end), except what the program still has from it there. */
static void empty_unused(struct share *share, int maps, uint64_t start, uint64_t end)
{
	for (uint64_t at = start, next; at < end; at = next) {
		uint64_t from = still_ours(share, maps, at, end, &next);

		if (from < end)
			switch_empty(&share->switcher, from, (next < end ? next : end) - from);
	}
}

/* Pages that no region covers any more, or that must be private for a fork. What is sealed stays. */
static void give_back(struct nic *nic, const struct look *look, uint64_t start, uint64_t end)
{
	struct share *share = nic->share;
	bool missing = false;
	struct vma vma;

	for (uint64_t at = start; at < end; at = vma.end) {
		if (!vma_find(look->maps, at, &vma) || vma.start >= end) {
			missing = true;
			break;
		}
		uint64_t from = at > vma.start ? at : vma.start;
		uint64_t to = end < vma.end ? end : vma.end;

		if (!is_ours(share, &vma) || vma.offset != vma.start)
			missing = true;
		else if (!is_sealed(from, to, vma.prot))
			switch_to_private(&share->switcher, from, to, from, vma.prot,
					  &look->threads);
		missing |= from > at;
	}
	if (!missing)
		return;
	/* The program has unmapped some of it, or moved it: then it still uses the file's pages elsewhere. */
	give_back_moved(nic, look, start, end);
	empty_unused(share, look->maps, start, end);
}

static void end_sharing(struct nic *nic, const struct look *look, uint64_t start, uint64_t end)
{
	struct share *share = nic->share;

	give_back(nic, look, start, end);
	for (uint64_t at = start, next; at < end; at = next) {
		uint64_t from = still_ours(share, look->maps, at, end, &next);

		if (from < end && ranges_reserve(&share->ranges))
			ranges_set_mapped(&share->ranges, from, next < end ? next : end, false);
	}
}

/* Whether the kernel may be writing to these pages, and would not notice that they are not the program's any more. */
static bool is_in_use(const struct look *look, uint64_t start, uint64_t end)
{
	return threads_read_into(&look->threads, start, end) || pins_of_rings(start, end);
}

/* Ends what lingers in [start, end), some ranges at most, and can be given back or was unmapped by the program. Returns where to
 * go on; *left: whether something still lingers there. */
static uint64_t end_lingering(struct nic *nic, const struct look *look, uint64_t start,
			      uint64_t end, bool *left)
{
	struct share *share = nic->share;
	struct page_range range;
	uint64_t at = start, next;

	*left = false;
	for (int looked = 0; ranges_next(&share->ranges, at, end, &range); at = range.end) {
		if (range.count)
			continue;
		if (looked++ == LINGERING_LOOKED)
			return at;
		if (still_ours(share, look->maps, range.start, range.end, &next) == range.end &&
		    is_in_use(look, range.start, range.end))
			*left = true;
		else
			end_sharing(nic, look, range.start, range.end);
	}
	return end;
}

/* With each look, as long as something lingers. */
static void look_at_lingering(struct nic *nic, const struct look *look)
{
	struct share *share = nic->share;
	uint64_t from = share->lingers_at;
	bool left;

	if (!share->lingers)
		return;
	share->lingers_at = end_lingering(nic, look, from, SHARE_ADDRESSES, &left);
	if (share->lingers_at == SHARE_ADDRESSES) {
		share->lingers_at = 0;
		share->lingers = from || left;
	}
}

/* What lingers of memory that the program has unmapped since is not what it has there now. */
static void forget_unmapped(struct nic *nic, const struct look *look, uint64_t start, uint64_t end)
{
	struct share *share = nic->share;
	struct page_range range;
	uint64_t next;

	for (uint64_t at = start; ranges_next(&share->ranges, at, end, &range); at = range.end) {
		if (!range.count &&
		    still_ours(share, look->maps, range.start, range.end, &next) != range.end)
			end_sharing(nic, look, range.start, range.end);
	}
}

int share_add(struct nic *nic, uint64_t addr, uint64_t length, struct share_run *run)
{
	struct share *share = nic->share;
	struct look look;
	struct vma vma;
	uint64_t start, end;
	bool looking;

	*run = (struct share_run){ .why = NIC_UNMAPPED_OFF };
	if (!share || addr + length > SHARE_ADDRESSES)
		return 0;
	start = addr & ~(share->page - 1);
	end = (addr + length + share->page - 1) & ~(share->page - 1);
	end_haunts(nic);
	looking = look_begin(nic, &look);
	if (looking && share->lingers)
		forget_unmapped(nic, &look, start, end);
	if (!ranges_add(&share->ranges, start, end)) {
		if (looking)
			look_end(&look);
		return ENOMEM;
	}
	if (!looking)
		return 0;
	if (is_in_file(share, &look, start, end, &vma))
		files_begin(nic, &share->files, &vma, addr, length, run);
	else if (!add_pages(nic, &look, addr, length, run))
		return 0;
	look_at_lingering(nic, &look);
	look_end(&look);
	return 0;
}

void share_remove(struct nic *nic, uint64_t addr, uint64_t length, uint32_t file)
{
	struct share *share = nic->share;
	struct page_range range;
	struct look look;
	uint64_t start, end;
	bool looking = false;

	if (!share || addr + length > SHARE_ADDRESSES)
		return;
	if (file)
		files_end(nic, &share->files, file);
	start = addr & ~(share->page - 1);
	end = (addr + length + share->page - 1) & ~(share->page - 1);
	for (uint64_t at = start; ranges_next(&share->ranges, at, end, &range); at = range.end) {
		if (!range.mapped || range.count > 1)
			continue;
		/* Without a descriptor to look with it stays shared, and counted. */
		if (!looking && !look_begin(nic, &look))
			return;
		looking = true;
		if (is_in_use(&look, range.start, range.end))
			share->lingers = true;
		else
			end_sharing(nic, &look, range.start, range.end);
	}
	ranges_remove(&share->ranges, start, end);
	if (looking) {
		look_at_lingering(nic, &look);
		look_end(&look);
	}
}

/* Whether all of [start, end) that is mapped can become private at once. */
static bool is_left_alone(const struct share *share, const struct look *look, uint64_t start, uint64_t end)
{
	struct page_range range;

	for (uint64_t at = start; ranges_next(&share->ranges, at, end, &range); at = range.end) {
		if (range.mapped && (range.count > 1 || is_in_use(look, range.start, range.end)))
			return false;
	}
	return true;
}

/* Pages of a private mapping of the file that were never touched: they would show what is stored to the file. */
static void touch_detached(const struct share *share, const struct look *look, uint64_t start, uint64_t end)
{
	struct vma vma;

	for (uint64_t at = start; at < end && vma_find(look->maps, at, &vma) && vma.start < end; at = vma.end) {
		uint64_t from = at > vma.start ? at : vma.start, to = end < vma.end ? end : vma.end;

		if (!vma.shared && vma.inode == share->file.st_ino && makedev(vma.major, vma.minor) == share->file.st_dev)
			madvise((void *)(uintptr_t)from, to - from, MADV_POPULATE_WRITE);
	}
}

bool share_abandon(struct nic *nic, uint32_t region, uint64_t addr, uint64_t length, uint32_t file, uint32_t *pid)
{
	struct share *share = nic->share;
	struct visit_seen evicted[VISITS_SEEN];
	struct page_range range;
	uint64_t start, end;
	uint32_t count;
	struct look look;
	bool done;

	/* A file of the program's own is its memory wherever it is mapped. */
	if (file)
		return false;
	if (!share || addr + length > SHARE_ADDRESSES)
		return visits_evict(nic, region, evicted, VISITS_SEEN, &count, pid);
	start = addr & ~(share->page - 1);
	end = (addr + length + share->page - 1) & ~(share->page - 1);
	end_haunts(nic);
	if (!look_begin(nic, &look))
		return false;
	done = is_left_alone(share, &look, start, end) &&
	       visits_evict(nic, region, evicted, VISITS_SEEN - share->haunted, &count, pid);
	for (uint32_t i = 0; done && i < count; i++)
		share->haunts[share->haunted++] = (struct haunt){ start, end, evicted[i] };
	for (uint64_t at = start; done && ranges_next(&share->ranges, at, end, &range); at = range.end) {
		if (range.mapped)
			end_sharing(nic, &look, range.start, range.end);
	}
	if (done) {
		touch_detached(share, &look, start, end);
		ranges_remove(&share->ranges, start, end);
	}
	look_end(&look);
	return done;
}

bool share_find(const struct nic *nic, struct piece *word)
{
	int maps = nic->share ? vma_open() : -1;
	struct vma vma;
	bool found;

	if (maps < 0)
		return false;
	found = vma_find(maps, word->addr, &vma) && vma.start <= word->addr && vma.shared;
	close(maps);
	if (!found)
		return false;
	if (!is_ours(nic->share, &vma))
		return files_find(nic, &vma, word);
	if (vma.offset != vma.start)
		return false;
	word->kind = PIECE_MAPPED;
	return true;
}

/* From here on until further notice every visitor takes another way. */
static void hide_all(struct nic *nic)
{
	uint32_t used = atomic_load(&nic->mrs.fresh);

	for (uint32_t i = 0; i < used; i++) {
		struct seg_mr *mr = &nic->seg->mrs[i];

		/* What is in a file of the program's it shares with the child. */
		if (!mr->file && atomic_load_explicit(&mr->mapped_end, memory_order_relaxed)) {
			atomic_store_explicit(&mr->mapped_end, 0, memory_order_relaxed);
			mr->unmapped = NIC_UNMAPPED_FORK;
		}
	}
	visits_over(nic, NIC_GRACE, NULL);
}

static bool make_child(struct share *share)
{
	if (pipe2(share->child, O_CLOEXEC))
		return false;
	for (int i = 0; i < 2; i++)
		share->child[i] = descriptor_keep(share->child[i]);
	return true;
}

/* What is still in the file is not the child's, who makes it anew with what the file holds. */
static void keep_sealed(struct share *share, int maps, uint64_t start, uint64_t end)
{
	struct vma vma;

	for (uint64_t at = start; at < end && vma_find(maps, at, &vma) && vma.start < end; at = vma.end) {
		struct sealed one = { vma.start > at ? vma.start : at, vma.end < end ? vma.end : end, vma.prot };
		struct sealed *list;

		if (!is_ours(share, &vma) || vma.offset != vma.start)
			continue;
		list = realloc(share->sealed, (share->sealed_count + 1) * sizeof(*list));
		if (!list)
			return;
		share->sealed = list;
		if ((share->child[0] < 0 && !make_child(share)) ||
		    madvise((void *)(uintptr_t)one.start, one.end - one.start, MADV_DONTFORK))
			return;
		list[share->sealed_count++] = one;
	}
}

void share_before_fork(struct nic *nic)
{
	struct share *share = nic->share;
	struct page_range range;
	struct look look;
	bool looking = false;
	uint64_t next;

	share_lock(nic);
	if (!share)
		return;
	for (uint64_t at = 0; ranges_next(&share->ranges, at, UINT64_MAX, &range); at = range.end) {
		if (!range.mapped)
			continue;
		if (!looking) {
			looking = look_begin(nic, &look);
			if (!looking)
				return;
			hide_all(nic);
		}
		/* What is in use stays, and the child gets a copy before anybody goes on. */
		if (still_ours(share, look.maps, range.start, range.end, &next) == range.end &&
		    is_in_use(&look, range.start, range.end) &&
		    (share->child[0] >= 0 || make_child(share)))
			continue;
		end_sharing(nic, &look, range.start, range.end);
		keep_sealed(share, look.maps, range.start, range.end);
	}
	if (looking)
		look_end(&look);
}

static void close_child(struct share *share)
{
	for (int i = 0; i < 2; i++) {
		if (share->child[i] >= 0)
			descriptor_close(share->child[i]);
		share->child[i] = -1;
	}
}

void share_after_fork_in_parent(struct nic *nic)
{
	struct share *share = nic->share;
	char none;

	if (share && share->child[0] >= 0) {
		descriptor_close(share->child[1]);
		share->child[1] = -1;
		while (read(share->child[0], &none, 1) < 0 && errno == EINTR)
			;
		close_child(share);
		for (size_t i = 0; i < share->sealed_count; i++)
			madvise((void *)(uintptr_t)share->sealed[i].start, share->sealed[i].end - share->sealed[i].start,
				MADV_DOFORK);
		share->sealed_count = 0;
	}
	share_unlock(nic);
}

/* In the child, where nobody else runs. */
static void copy_mapped(struct share *share)
{
	int maps = vma_open();
	struct page_range range;
	struct vma vma;

	for (size_t i = 0; i < share->sealed_count; i++) {
		const struct sealed *one = &share->sealed[i];

		switch_copy(&share->switcher, one->start, one->end, one->prot);
		syscall(MSEAL, one->start, one->end - one->start, 0ul);
	}
	for (uint64_t at = 0; maps >= 0 && ranges_next(&share->ranges, at, UINT64_MAX, &range);
	     at = range.end) {
		for (uint64_t from = range.start;
		     range.mapped && from < range.end && vma_find(maps, from, &vma) &&
		     vma.start < range.end;
		     from = vma.end) {
			uint64_t start = vma.start > from ? vma.start : from;
			uint64_t end = vma.end < range.end ? vma.end : range.end;

			if (is_ours(share, &vma) && vma.offset == vma.start)
				switch_copy(&share->switcher, start, end, vma.prot);
		}
	}
	if (maps >= 0)
		close(maps);
}

void share_after_fork_in_child(struct nic *nic)
{
	if (!nic->share)
		return;
	if (nic->share->child[0] >= 0)
		copy_mapped(nic->share);
	close_child(nic->share);
	descriptor_close(nic->share->switcher.file);
	switch_close(&nic->share->switcher);
	files_close(&nic->share->files);
}

void share_stop(struct nic *nic)
{
	struct share *share = nic->share;
	struct page_range range;
	struct look look;

	if (!share)
		return;
	/* Regions that the program has not deregistered go with the device. What is in use stays in the file, which the
	 * program's mapping keeps. */
	if (look_begin(nic, &look)) {
		for (uint64_t at = 0; ranges_next(&share->ranges, at, UINT64_MAX, &range);
		     at = range.end) {
			if (range.mapped && !is_in_use(&look, range.start, range.end))
				give_back(nic, &look, range.start, range.end);
		}
		look_end(&look);
	}
	files_close(&share->files);
	free(share->sealed);
	ranges_destroy(&share->ranges);
	switch_destroy(&share->switcher);
	descriptor_close(share->switcher.file);
	pthread_mutex_destroy(&share->lock);
	munmap(share, sizeof(*share));
	nic->share = NULL;
}
