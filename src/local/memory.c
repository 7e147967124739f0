/* SPDX-License-Identifier: MIT */
/* Reaching memory. See memory.h. */
#include "local/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "local/copy.h"
#include "local/dma.h"
#include "nic/crash.h"
#include "nic/keep_errno.h"
#include "nic/life.h"
#include "nic/vma.h"

#define WORD 8u

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum memory_way best_way;

bool memory_parse(const char *value, enum memory_way *way)
{
	static const char *const names[] = { "mapped", "cma", "assist" };

	*way = MEMORY_MAPPED;
	if (!value || !*value)
		return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(value, names[i])) {
			*way = (enum memory_way)i;
			return true;
		}
	}
	return false;
}

static void init(void)
{
	memory_parse(getenv("UROCE_MEMORY"), &best_way);
}

enum memory_way memory_way(void)
{
	pthread_once(&once, init);
	return best_way;
}

uint32_t memory_slice(const struct piece *pieces, uint32_t count, uint64_t offset, uint64_t length,
		      struct piece *slice)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < count && length; i++) {
		if (offset >= pieces[i].length) {
			offset -= pieces[i].length;
			continue;
		}
		uint64_t part = pieces[i].length - offset;

		if (part > length)
			part = length;
		slice[n++] = (struct piece){ .addr = pieces[i].addr + offset,
					     .length = part,
					     .kind = pieces[i].kind,
					     .file = pieces[i].file };
		length -= part;
		offset = 0;
	}
	return n;
}

void memory_vector(struct nic *nic, const struct piece *pieces, uint32_t count, struct iovec *iov)
{
	for (uint32_t i = 0; i < count; i++) {
		void *seen = memory_view(attach_self(nic), &pieces[i]);

		if (!seen)
			seen = (void *)(uintptr_t)pieces[i].addr;
		iov[i] = (struct iovec){ .iov_base = seen, .iov_len = pieces[i].length };
	}
}

/* As another process names them. */
static void plain_vector(const struct piece *pieces, uint32_t count, struct iovec *iov)
{
	for (uint32_t i = 0; i < count; i++)
		iov[i] = (struct iovec){ .iov_base = (void *)(uintptr_t)pieces[i].addr,
					 .iov_len = pieces[i].length };
}

/* By mapped pages: false when they are not to be had, and then another way copies it all. */
static bool copy_mapped(struct peer *to_peer, const struct piece *to, struct peer *from_peer,
			const struct piece *from, uint64_t length)
{
	uint64_t to_offset = 0, from_offset = 0;

	while (length) {
		uint64_t part = length;
		uint8_t *target = memory_see(to_peer, to, to_offset, &part);
		const uint8_t *source = memory_see(from_peer, from, from_offset, &part);

		if (!target || !source)
			return false;
		copy_ordered(target, source, part);
		length -= part;
		to_offset += part;
		from_offset += part;
		if (to_offset == to->length) {
			to++;
			to_offset = 0;
		}
		if (from_offset == from->length) {
			from++;
			from_offset = 0;
		}
	}
	return true;
}

static bool is_mapped(const struct piece *pieces, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (pieces[i].kind == PIECE_PRIVATE)
			return false;
	}
	return true;
}

/* False where the mapping is there and its pages cannot be had: behind the end of a file that was
 * truncated, above all. Kernels before 5.14 do not tell. */
static bool has_pages(const struct iovec *piece, bool write)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t within = (uintptr_t)piece->iov_base & (page - 1);

	return !madvise((uint8_t *)piece->iov_base - within, piece->iov_len + within,
			write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) ||
	       errno != EFAULT;
}

static bool is_reachable(const struct iovec *pieces, uint32_t count, bool write)
{
	for (uint32_t i = 0; i < count; i++) {
		if (vma_check((uint64_t)(uintptr_t)pieces[i].iov_base, pieces[i].iov_len, write) !=
			    VMA_OK ||
		    !has_pages(&pieces[i], write))
			return false;
	}
	return true;
}

/* By cross memory attach. */
static enum copy_result copy_by_cma(struct peer *peer, enum copy_direction direction,
				    const struct iovec *local, uint32_t local_count,
				    const struct iovec *remote, uint32_t remote_count,
				    uint64_t length)
{
	KEEP_ERRNO;
	ssize_t n;

	if (!atomic_load_explicit(&peer->cma, memory_order_relaxed))
		return COPY_REFUSED;
	/* The PID could name another program by now, after an exec or its reuse: then the life lock
	 * is gone too. */
	if (!peer->is_self && !life_is_alive(peer->visitor.seg_fd))
		return COPY_GONE;
	if (direction == COPY_TO_PEER)
		n = dma_write(peer->pid, local, local_count, remote, remote_count);
	else
		n = dma_read(peer->pid, local, local_count, remote, remote_count);
	if (n == (ssize_t)length)
		return COPY_DONE;
	if (n < 0 && errno == ESRCH)
		return COPY_GONE;
	if (n < 0 && errno != EFAULT) {
		atomic_store_explicit(&peer->cma, false, memory_order_relaxed);
		return COPY_REFUSED;
	}
	/* EFAULT, or fewer bytes because the rest faulted: on whose side? An exec takes the memory
	 * before it drops the lock. */
	if (!peer->is_self && !memory_probe(peer))
		return COPY_GONE;
	return is_reachable(local, local_count, direction == COPY_FROM_PEER) ? COPY_REMOTE_FAULT :
									       COPY_LOCAL_FAULT;
}

/* The process's own memory without CMA: through the page cache of a piece of the segment, which
 * faults the same way. */
static enum copy_result copy_own(struct nic *nic, const struct iovec *from, uint32_t from_count,
				 const struct iovec *to, uint32_t to_count, uint64_t length,
				 enum copy_result from_fault, enum copy_result to_fault)
{
	uint64_t bounce = arena_alloc(&nic->arena, length);
	enum copy_result result = COPY_DONE;

	if (!bounce)
		return from_fault;
	if (dma_to_file(nic->seg_fd, from, from_count, bounce) != (ssize_t)length)
		result = from_fault;
	else if (dma_from_file(nic->seg_fd, to, to_count, bounce) != (ssize_t)length)
		result = to_fault;
	arena_free(&nic->arena, bounce, length, 0);
	return result;
}

static enum copy_result copy_by_kernel(struct nic *nic, struct peer *peer,
				       enum copy_direction direction,
				       const struct piece *local_pieces, uint32_t local_count,
				       const struct piece *remote_pieces, uint32_t remote_count,
				       uint64_t length)
{
	struct iovec local[MEMORY_PIECES], remote[MEMORY_PIECES];
	enum copy_result result;

	memory_vector(nic, local_pieces, local_count, local);
	if (peer->is_self)
		memory_vector(nic, remote_pieces, remote_count, remote);
	else
		plain_vector(remote_pieces, remote_count, remote);
	result = copy_by_cma(peer, direction, local, local_count, remote, remote_count, length);

	if (result != COPY_REFUSED || !peer->is_self) {
		if (result == COPY_DONE)
			counter_add(&nic->seg->counters.cma_copies, 1);
		return result;
	}
	if (direction == COPY_TO_PEER)
		return copy_own(peer->target.nic, local, local_count, remote, remote_count, length,
				COPY_LOCAL_FAULT, COPY_REMOTE_FAULT);
	return copy_own(peer->target.nic, remote, remote_count, local, local_count, length,
			COPY_REMOTE_FAULT, COPY_LOCAL_FAULT);
}

enum copy_result memory_copy(struct nic *nic, struct peer *peer, struct seg_visit *here, enum copy_direction direction,
			     const struct piece *local, uint32_t local_count,
			     const struct piece *remote, uint32_t remote_count, uint64_t length,
			     bool ordered)
{
	struct peer *self = attach_self(nic);

	if (!length)
		return COPY_DONE;
	crash_point(COPY_BEGIN);
	if (is_mapped(local, local_count) && is_mapped(remote, remote_count) &&
	    (direction == COPY_TO_PEER ? copy_mapped(peer, remote, self, local, length) :
					 copy_mapped(self, local, peer, remote, length))) {
		if (here && visit_is_evicted(here))
			return COPY_EVICTED;
		counter_add(&nic->seg->counters.mapped_copies, 1);
		return COPY_DONE;
	}

	if (here && !visit_copies(nic, here, peer->visitor.seg))
		return COPY_EVICTED;

	uint64_t end = ordered && remote_count == 1 ? remote[0].addr + length : 0;
	uint64_t tail = end % WORD ? end % WORD : WORD;

	if (!end || length <= tail)
		return copy_by_kernel(nic, peer, direction, local, local_count, remote,
				      remote_count, length);

	struct piece local_part[MEMORY_PIECES], remote_part;
	uint32_t n = memory_slice(local, local_count, 0, length - tail, local_part);

	memory_slice(remote, 1, 0, length - tail, &remote_part);

	enum copy_result result =
		copy_by_kernel(nic, peer, direction, local_part, n, &remote_part, 1, length - tail);

	if (result != COPY_DONE)
		return result;
	crash_point(COPY_TAIL);
	n = memory_slice(local, local_count, length - tail, tail, local_part);
	memory_slice(remote, 1, length - tail, tail, &remote_part);
	return copy_by_kernel(nic, peer, direction, local_part, n, &remote_part, 1, tail);
}

bool memory_atomic(struct peer *peer, const struct piece *at, bool compare, uint64_t compare_add,
		   uint64_t swap, uint64_t *old)
{
	void *word = memory_view(peer, at);

	if (!word || at->length < WORD)
		return false;
	*old = copy_atomic(word, compare, compare_add, swap);
	return true;
}

static bool own(struct nic *nic, enum copy_direction direction, uint64_t addr, void *buffer,
		uint64_t length)
{
	struct piece ours = piece_ours(buffer, length);
	struct piece theirs = { .addr = addr, .length = length };

	return copy_by_kernel(nic, attach_self(nic), direction, &ours, 1, &theirs, 1, length) ==
	       COPY_DONE;
}

bool memory_read_own(struct nic *nic, uint64_t addr, void *to, uint64_t length)
{
	return own(nic, COPY_FROM_PEER, addr, to, length);
}

bool memory_write_own(struct nic *nic, uint64_t addr, const void *from, uint64_t length)
{
	return own(nic, COPY_TO_PEER, addr, (void *)from, length);
}

bool memory_probe(const struct peer *peer)
{
	struct seg_header *theirs = (struct seg_header *)(uintptr_t)peer->visitor.seg->hdr.self_va;
	uint64_t instance = 0;
	struct iovec local = { .iov_base = &instance, .iov_len = sizeof(instance) };
	struct iovec remote = { .iov_base = &theirs->instance, .iov_len = sizeof(instance) };

	return peer->pid && dma_read(peer->pid, &local, 1, &remote, 1) == sizeof(instance) &&
	       instance == peer->instance;
}
