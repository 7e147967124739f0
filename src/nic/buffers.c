/* SPDX-License-Identifier: MIT */
/* Misuse of buffers. See buffers.h. */
#include "nic/buffers.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "nic/request.h"
#include "nic/visit.h"
#include "nic/vma.h"
#include "observe/watch.h"

#define POOL   (32u << 20) /* bytes of copies; the oldest make room for new ones */
#define CHUNK  4096u
#define RANGES 512

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

void buffers_deregister(const struct nic_mr *mr)
{
	struct cause c = { .code = CAUSE_REGION_UNMAPPED,
			   .addr = mr->addr,
			   .length = mr->length,
			   .key = mr->lkey,
			   .pd = mr->pd };

	if (vma_check(mr->addr, mr->length, 0) != VMA_UNMAPPED)
		return;
	watch_find_region(watch_now(), mr->lkey, &c);
	c.stacks[CAUSE_STACK_CALL] = watch_stack();
	cause_record(nic_causes(mr->nic), &c);
}
