/* SPDX-License-Identifier: MIT */
/* Misuse of buffers. See buffers.h. */
#include "nic/buffers.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "nic/request.h"
#include "nic/share.h"
#include "nic/visit.h"
#include "nic/vma.h"
#include "observe/watch.h"

#define POOL   (32u << 20) /* bytes of copies; the oldest make room for new ones */
#define CHUNK  4096u
#define RANGES 512
#define REGIONS_AT_END 4096u

/* Copies: a ring of bytes. Positions count from the beginning of the process. */
static uint8_t *pool; /* NULL: there is none */
static _Atomic uint64_t pool_end = 1;

/* What the device may write to, by its own requests and receives. */
static struct {
	pthread_mutex_t lock;
	struct {
		uint64_t start, end;
	} ranges[RANGES];
	unsigned count;
	bool all; /* more than there is room for */
} written = { .lock = PTHREAD_MUTEX_INITIALIZER };

void buffers_start(void)
{
	void *map = mmap(NULL, POOL, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map != MAP_FAILED && !pool)
		pool = map;
}

void buffers_after_fork(void)
{
	pthread_mutex_init(&written.lock, NULL);
}

/* ---- What the device writes ---- */

static void note_range(uint64_t start, uint64_t end)
{
	pthread_mutex_lock(&written.lock);
	for (unsigned i = 0; i < written.count; i++) {
		if (start > written.ranges[i].end || end < written.ranges[i].start)
			continue;
		if (start < written.ranges[i].start)
			written.ranges[i].start = start;
		if (end > written.ranges[i].end)
			written.ranges[i].end = end;
		goto out;
	}
	if (written.count < RANGES) {
		written.ranges[written.count].start = start;
		written.ranges[written.count++].end = end;
	} else {
		written.all = true;
	}
out:
	pthread_mutex_unlock(&written.lock);
}

void buffers_receive(const struct ibv_sge *sge, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (sge[i].length)
			note_range(sge[i].addr, sge[i].addr + sge[i].length);
}

static bool device_writes(uint64_t address)
{
	bool found;

	pthread_mutex_lock(&written.lock);
	found = written.all;
	for (unsigned i = 0; i < written.count && !found; i++)
		found = address >= written.ranges[i].start && address < written.ranges[i].end;
	pthread_mutex_unlock(&written.lock);
	return found;
}

/* Whether a peer has ever written to memory of ours. */
static bool peers_write(struct nic *nic)
{
	const struct device_counters *counters = &nic->seg->counters;
	uint64_t count = atomic_load(&counters->rx_write_requests) +
			 atomic_load(&counters->rx_atomic_requests);
	uint32_t used = atomic_load(&nic->qps.fresh);

	for (uint32_t i = 0; i < used && !count; i++) {
		const struct seg_received *received = &nic->seg->qps[i].received;

		count = atomic_load(&received->requests[NIC_WRITES]) +
			atomic_load(&received->requests[NIC_ATOMICS]);
	}
	return count;
}

static bool peers_may_write(struct nic *nic, uint64_t address)
{
	uint32_t used = atomic_load(&nic->mrs.fresh);

	for (uint32_t i = 0; i < used; i++) {
		const struct seg_mr *mr = &nic->seg->mrs[i];

		if (atomic_load(&mr->state) &
			    (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
		    address >= mr->addr && address < mr->addr + mr->length)
			return true;
	}
	return false;
}

/* ---- Copies ---- */

/* Of our own memory. */
static bool read_memory(void *to, uint64_t address, size_t length)
{
	struct iovec local = { to, length }, remote = { (void *)(uintptr_t)address, length };

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)length;
}

static bool is_compared(const struct nic_swqe *wqe)
{
	return !(wqe->send_flags & IBV_SEND_INLINE) &&
	       (is_send(wqe->opcode) || wqe->opcode == IBV_WR_RDMA_WRITE ||
		wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
}

void buffers_posted(struct nic_swqe *wqe)
{
	uint32_t length = wqe->length < BUFFERS_COMPARED ? (uint32_t)wqe->length : BUFFERS_COMPARED,
		 done = 0;
	uint64_t at;

	wqe->copy = 0;
	if (reads_remote(wqe->opcode))
		buffers_receive(wqe->sge, wqe->num_sge);
	if (!pool || !length || !is_compared(wqe))
		return;
	at = atomic_fetch_add(&pool_end, length);
	for (uint32_t i = 0; i < wqe->num_sge; i++) {
		for (uint32_t offset = 0; offset < wqe->sge[i].length && done < length;) {
			uint32_t place = (uint32_t)((at + done) % POOL),
				 part = wqe->sge[i].length - offset;

			part = part < length - done ? part : length - done;
			part = part < POOL - place ? part : POOL - place;
			if (!read_memory(pool + place, wqe->sge[i].addr + offset, part))
				return; /* the requester says so */
			offset += part;
			done += part;
		}
	}
	wqe->copy = at;
}

static bool is_kept(uint64_t copy)
{
	return atomic_load(&pool_end) - copy <= POOL - BUFFERS_COMPARED;
}

/* What is wrong with a piece of memory that was `copy` when it was posted. */
static enum cause_code compare(uint64_t address, uint32_t length, uint64_t copy, struct cause *c)
{
	uint8_t now[CHUNK];

	for (uint32_t done = 0; done < length;) {
		uint32_t part = length - done < CHUNK ? length - done : CHUNK;

		if (!read_memory(now, address + done, part)) {
			c->addr = address + done;
			return errno == EFAULT ? CAUSE_BUFFER_GONE : CAUSE_NONE;
		}
		for (uint32_t i = 0; i < part; i++) {
			uint8_t before = pool[(copy + done + i) % POOL];

			if (now[i] == before || device_writes(address + done + i))
				continue;
			c->addr = address + done + i;
			c->limit = before;
			c->value = now[i];
			c->count = done + i;
			return CAUSE_BUFFER_CHANGED;
		}
		done += part;
	}
	return CAUSE_NONE;
}

static void check(struct nic_qp *qp, struct nic_swqe *wqe)
{
	uint64_t copy = wqe->copy;
	uint32_t left = wqe->length < BUFFERS_COMPARED ? (uint32_t)wqe->length : BUFFERS_COMPARED,
		 before = 0;
	enum cause_code code = CAUSE_NONE;
	struct cause c = { 0 };

	wqe->copy = 0;
	if (!copy || !is_kept(copy))
		return;
	for (uint32_t i = 0; i < wqe->num_sge && !code && left; i++) {
		uint32_t part = wqe->sge[i].length < left ? wqe->sge[i].length : left;

		code = compare(wqe->sge[i].addr, part, copy + before, &c);
		c.count += before;
		c.key = wqe->sge[i].lkey;
		before += part;
		left -= part;
	}
	/* A copy that was overwritten meanwhile says nothing, nor does memory that a peer is writing to, or may have. */
	if (!code || !is_kept(copy))
		return;
	if (code == CAUSE_BUFFER_CHANGED &&
	    (!visits_over(qp->nic, 0, NULL) ||
	     (peers_write(qp->nic) && peers_may_write(qp->nic, c.addr))))
		return;
	watch_find_region(watch_now(), c.key, &c);
	request_record(qp, wqe, code, IBV_WC_SUCCESS, &c);
}

void buffers_completed(struct nic_qp *qp, uint32_t position, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		check(qp, qp_swqe(qp, position + i));
}

/* Where a file's byte is mapped that belongs at an address; false for files that regions are not in. */
static bool offset_of(struct nic *nic, const struct seg_mr *mr, uint64_t pages, uint64_t inode, uint64_t address, uint64_t *offset)
{
	const struct seg_file *file = &nic->seg->files[mr->file % NIC_FILES];

	*offset = address;
	if (!mr->file)
		return inode == pages;
	*offset = address - file->start;
	return atomic_load(&file->file) == mr->file && inode == file->inode;
}

static uint64_t inode_of(int fd)
{
	struct stat status;

	return fd < 0 || fstat(fd, &status) ? 0 : status.st_ino;
}

/* Whether something else is mapped there by now than what was registered. The hole that munmap(2) leaves is soon filled, often by
 * mappings of our own. */
static bool is_replaced(struct nic *nic, const struct seg_mr *mr)
{
	uint64_t mapped_start = atomic_load(&mr->mapped_start), mapped_end = atomic_load(&mr->mapped_end);
	uint64_t pages = inode_of(share_file(nic)), segment = inode_of(nic->seg_fd), offset;
	int maps = vma_open();
	bool replaced = false;
	struct vma vma;

	for (uint64_t at = mr->addr; maps >= 0 && at < mr->addr + mr->length && !replaced; at = vma.end) {
		if (!vma_find(maps, at, &vma) || vma.start > at)
			break;

		bool right = offset_of(nic, mr, pages, vma.inode, at, &offset) && vma.offset + (at - vma.start) == offset;
		bool is_mapped = at < mapped_end && vma.end > mapped_start;

		/* Within what is mapped by peers there is nothing but its file, elsewhere none of ours. */
		if (is_mapped || (vma.inode && (vma.inode == pages || vma.inode == segment)))
			replaced = !right;
	}
	if (maps >= 0)
		close(maps);
	return replaced;
}

/* call: the stack of what it is found by. */
static void look_at_region(struct nic *nic, uint32_t index, uint32_t lkey, uint32_t call)
{
	const struct seg_mr *mr = &nic->seg->mrs[index];
	struct cause c = { .code = CAUSE_REGION_UNMAPPED, .addr = mr->addr, .length = mr->length, .key = lkey, .pd = mr->pd };
	bool unmapped;

	/* Where another thread's registration is switching pages there may be none for a moment. */
	share_lock(nic);
	unmapped = vma_check(mr->addr, mr->length, 0) == VMA_UNMAPPED || is_replaced(nic, mr);
	share_unlock(nic);
	if (!unmapped)
		return;
	watch_find_region(watch_now(), lkey, &c);
	c.stacks[CAUSE_STACK_CALL] = call;
	cause_record(nic_causes(nic), &c);
}

void buffers_deregister(const struct nic_mr *mr)
{
	look_at_region(mr->nic, mr->index, mr->lkey, watch_stack());
}

void buffers_end(struct nic *nic)
{
	uint32_t used = atomic_load(&nic->mrs.fresh), looks = 0;

	for (uint32_t i = 0; i < used && looks < REGIONS_AT_END; i++) {
		uint64_t state = atomic_load(&nic->seg->mrs[i].state);

		if (state & NIC_MW || !(state & NIC_MR_VALID))
			continue;
		look_at_region(nic, i, mr_lkey(nic->seg, i, state), 0);
		looks++;
	}
}
