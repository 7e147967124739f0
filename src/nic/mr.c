/* SPDX-License-Identifier: MIT */
/*
 * Memory regions. The protocol of deregistration is docs/protocols.md, "Memory region".
 */
#include "nic/mr.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sysinfo.h>

#include "nic/buffers.h"
#include "nic/crash.h"
#include "nic/keep_errno.h"
#include "nic/mw.h"
#include "nic/share.h"
#include "nic/visit.h"
#include "nic/vma.h"
#include "observe/watch.h"

static uint64_t make_state(uint32_t tag, bool valid, uint32_t access)
{
	return (uint64_t)tag << MR_TAG_SHIFT | (valid ? NIC_MR_VALID : 0) |
	       (access & MR_ACCESS_MASK);
}

static uint32_t state_tag(uint64_t state)
{
	return state >> MR_TAG_SHIFT & MR_TAG_MASK;
}

/* A tag that neither the last life of this entry had, nor, by its step of 1 to 1023 (odd), one soon
 * before it. */
static uint32_t next_tag(uint32_t last)
{
	uint16_t step = 0;

	if (getrandom(&step, sizeof(step), GRND_NONBLOCK) != sizeof(step))
		step = (uint16_t)nic_now();
	return (last + (step & 0x3fe) + 1) & MR_TAG_MASK;
}

static uint32_t make_lkey(const struct nic_segment *seg, uint32_t index, uint32_t tag)
{
	return (index ^ seg->hdr.key_mask) << MR_KEY_INDEX | tag << 1;
}

uint32_t mr_lkey(const struct nic_segment *seg, uint32_t index, uint64_t state)
{
	return make_lkey(seg, index, state_tag(state));
}

static void set_keys(struct nic_mr *mr, uint32_t tag)
{
	mr->lkey = make_lkey(mr->nic->seg, mr->index, tag);
	mr->rkey = mr->lkey | MR_KEY_REMOTE;
}

static int refuse(struct nic *nic, enum cause_code code, int error, const struct nic_mr *mr)
{
	cause_record(nic_causes(nic), &(struct cause){ .code = code,
						       .error = error,
						       .addr = mr->addr,
						       .length = mr->length,
						       .access = mr->access,
						       .pd = mr->pd });
	return error;
}

#define VAST (64ull << 20) /* any machine has that */

/* Of the machine. */
static uint64_t memory_bytes(void)
{
	struct sysinfo info;

	return sysinfo(&info) ? UINT64_MAX : (uint64_t)info.totalram * info.mem_unit;
}

#define WRITE_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static int check_range(struct nic *nic, const struct nic_mr *mr)
{
	enum vma_verdict verdict;

	if (!mr->length || mr->addr + mr->length < mr->addr || mr->iova + mr->length < mr->iova)
		return refuse(nic, CAUSE_REG_RANGE, EINVAL, mr);
	if ((mr->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return refuse(nic, CAUSE_REG_ACCESS, EINVAL, mr);
	/* Where another thread's registration is switching pages there may be none for a moment. */
	share_lock(nic);
	verdict = vma_check(mr->addr, mr->length, mr->access & WRITE_RIGHTS);
	share_unlock(nic);
	switch (verdict) {
	case VMA_UNMAPPED:
		return refuse(nic, CAUSE_REG_UNMAPPED, EFAULT, mr);
	case VMA_PROTECTED:
		return refuse(nic, CAUSE_REG_NOT_WRITABLE, EFAULT, mr);
	default:
		break;
	}
	/* What cannot be pinned cannot be registered. */
	if (mr->length >= VAST && mr->length > memory_bytes()) {
		cause_record(nic_causes(nic), &(struct cause){ .code = CAUSE_NO_MEMORY,
							       .error = ENOMEM,
							       .thing = CAUSE_THING_REG_MR,
							       .addr = mr->addr,
							       .length = mr->length,
							       .limit = memory_bytes() });
		return ENOMEM;
	}
	return 0;
}

static void publish(struct nic_mr *mr, bool new_keys, const struct share_run *run)
{
	struct seg_mr *shared = mr->shared;
	uint32_t tag = state_tag(atomic_load_explicit(&shared->state, memory_order_relaxed));

	if (new_keys)
		tag = next_tag(tag);

	shared->addr = mr->addr;
	shared->length = mr->length;
	shared->iova = mr->iova;
	shared->pd = mr->pd;
	shared->unmapped = run->why;
	shared->file = run->file;
	if (new_keys)
		atomic_store_explicit(&shared->refused, 0, memory_order_relaxed);
	atomic_store_explicit(&shared->mapped_start, run->start, memory_order_relaxed);
	atomic_store_explicit(&shared->mapped_end, run->end, memory_order_relaxed);
	set_keys(mr, tag);
	/* Release: who sees it valid sees the fields. */
	atomic_store_explicit(&shared->state, make_state(tag, true, mr->access),
			      memory_order_release);
}

int nic_mr_register(struct nic *nic, uint32_t pd, uint64_t addr, uint64_t length, uint64_t iova,
		    uint32_t access, struct nic_mr *mr)
{
	KEEP_ERRNO;
	*mr = (struct nic_mr){
		.nic = nic, .pd = pd, .access = access, .addr = addr, .length = length, .iova = iova
	};
	if (nic_is_orphan(nic))
		return EIO;

	int error = check_range(nic, mr);

	if (error)
		return error;

	int64_t index = table_alloc(&nic->mrs, mr, NIC_MAX_MR);

	if (index < 0)
		return refuse(nic, CAUSE_OBJECT_TABLE_FULL, ENOMEM, mr);
	mr->index = (uint32_t)index;
	mr->shared = &nic->seg->mrs[index];
	if (segment_commit(nic->seg, nic->seg_fd, mr->shared, sizeof(*mr->shared))) {
		table_free(&nic->mrs, mr->index);
		return refuse(nic, CAUSE_NO_MEMORY, ENOMEM, mr);
	}

	struct share_run run;

	share_lock(nic);
	error = share_add(nic, mr->addr, mr->length, &run);
	if (!error)
		publish(mr, true, &run);
	share_unlock(nic);
	if (error) {
		table_free(&nic->mrs, mr->index);
		return refuse(nic, CAUSE_NO_MEMORY, error, mr);
	}
	watch_region_registered(mr->lkey);
	return 0;
}

/* It has been revoked in vain, and is valid again. */
static int refuse_busy(struct nic_mr *mr, uint32_t pid)
{
	atomic_fetch_or(&mr->shared->state, NIC_MR_VALID);
	cause_record(nic_causes(mr->nic), &(struct cause){ .code = CAUSE_DEREG_STOPPED_PEER,
							   .error = EBUSY,
							   .addr = mr->addr,
							   .length = mr->length,
							   .key = mr->rkey,
							   .peer_pid = (int32_t)pid,
							   .limit = NIC_GRACE });
	return EBUSY;
}

static void forget_windows(struct nic_mr *mr)
{
	pthread_mutex_lock(&mr->nic->mw_lock);
	mw_forget_region(mr->nic, mr->index);
	pthread_mutex_unlock(&mr->nic->mw_lock);
}

/* Makes the region unreachable and waits until nobody uses it: *left, or with one, *pid, that does not move. On failure it is as
 * before. */
static int revoke(struct nic_mr *mr, bool *left, uint32_t *pid)
{
	struct seg_mr *shared = mr->shared;
	uint32_t bound;

	/* Nothing is bound to it from here on: binding looks at its state under the same lock. */
	pthread_mutex_lock(&mr->nic->mw_lock);
	bound = mw_bound_to(mr->nic, mr->index);
	if (!bound)
		atomic_fetch_and(&shared->state, ~NIC_MR_VALID);
	pthread_mutex_unlock(&mr->nic->mw_lock);
	if (bound) {
		cause_record(nic_causes(mr->nic), &(struct cause){ .code = CAUSE_REGION_HAS_WINDOWS,
								   .error = EBUSY,
								   .addr = mr->addr,
								   .length = mr->length,
								   .key = mr->rkey,
								   .count = bound });
		return EBUSY;
	}
	crash_point(MR_INVALID);
	*left = visits_over_region(mr->nic, mr->index, NIC_GRACE, pid);
	if (*left) {
		crash_point(MR_REVOKED);
		forget_windows(mr);
	}
	return 0;
}

int nic_mr_reregister(struct nic_mr *mr, int flags, uint32_t pd, uint64_t addr, uint64_t length,
		      uint32_t access)
{
	KEEP_ERRNO;
	if (nic_is_orphan(mr->nic))
		return EIO;

	struct nic_mr changed = *mr;

	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		changed.addr = changed.iova = addr;
		changed.length = length;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD)
		changed.pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		changed.access = access;

	int error = check_range(mr->nic, &changed);
	struct share_run run;
	uint32_t pid = 0;
	bool left;

	if (!error)
		error = revoke(mr, &left, &pid);
	if (error)
		return error;
	if (!left)
		return refuse_busy(mr, pid);
	/* The new range first: what both have stays as it is. */
	share_lock(mr->nic);
	error = share_add(mr->nic, changed.addr, changed.length, &run);
	if (!error) {
		share_remove(mr->nic, mr->addr, mr->length, mr->shared->file);
		watch_region_deregistered(mr->lkey);
		*mr = changed;
		publish(mr, flags & IBV_REREG_MR_CHANGE_TRANSLATION, &run);
		watch_region_registered(mr->lkey);
	}
	share_unlock(mr->nic);
	if (error) {
		atomic_fetch_or(&mr->shared->state, NIC_MR_VALID);
		return refuse(mr->nic, CAUSE_NO_MEMORY, error, &changed);
	}
	return 0;
}

int nic_mr_deregister(struct nic_mr *mr)
{
	KEEP_ERRNO;
	if (nic_is_orphan(mr->nic))
		return 0;
	if (watch_now())
		buffers_deregister(mr);

	uint32_t pid = 0;
	bool left;
	int error = revoke(mr, &left, &pid);

	if (error)
		return error;
	share_lock(mr->nic);
	if (left)
		share_remove(mr->nic, mr->addr, mr->length, mr->shared->file);
	else if (share_abandon(mr->nic, mr->index, mr->addr, mr->length, mr->shared->file, &pid))
		forget_windows(mr);
	else
		error = refuse_busy(mr, pid);
	share_unlock(mr->nic);
	if (error)
		return error;
	watch_region_deregistered(mr->lkey);
	table_free(&mr->nic->mrs, mr->index);
	return 0;
}

static enum cause_code check(struct nic_segment *seg, struct seg_mr *mr, bool remote, uint32_t key, uint64_t addr, uint64_t length,
			     uint32_t rights, uint32_t pd, uint32_t qpn, struct piece *piece, struct cause *c)
{
	uint64_t state = atomic_load_explicit(&mr->state, memory_order_acquire);

	c->key = key;
	c->addr = addr;
	c->length = length;
	c->access = rights;
	c->pd = pd;
	if (state & NIC_MW)
		return remote ? mw_check(seg, key, addr, length, rights, pd, qpn, piece, c) : CAUSE_LKEY_IS_RKEY;
	if ((key >> 1 & MR_TAG_MASK) != state_tag(state) || !state)
		return remote ? CAUSE_RKEY_UNKNOWN : CAUSE_LKEY_UNKNOWN;
	c->region_addr = mr->iova;
	c->region_length = mr->length;
	c->region_access = state & MR_ACCESS_MASK;
	c->region_pd = mr->pd;
	if (!(state & NIC_MR_VALID))
		return remote ? CAUSE_RKEY_DEREGISTERED : CAUSE_LKEY_DEREGISTERED;
	if ((key & MR_KEY_REMOTE) != (remote ? MR_KEY_REMOTE : 0))
		return remote ? CAUSE_RKEY_IS_LKEY : CAUSE_LKEY_IS_RKEY;
	if (mr->pd != pd)
		return remote ? CAUSE_RKEY_PD : CAUSE_LKEY_PD;
	if (addr < mr->iova || length > mr->length || addr - mr->iova > mr->length - length)
		return remote ? CAUSE_RKEY_BOUNDS : CAUSE_LKEY_BOUNDS;
	if ((state & rights) != rights)
		return remote ? CAUSE_RKEY_ACCESS : CAUSE_LKEY_ACCESS;
	*piece = mr_piece(mr, addr, length);
	return CAUSE_NONE;
}

enum cause_code mr_check(struct nic_segment *seg, bool remote, uint32_t key, uint64_t addr,
			 uint64_t length, uint32_t rights, uint32_t pd, uint32_t qpn, struct piece *piece,
			 struct cause *c)
{
	struct seg_mr *mr = mr_of_key(seg, key);
	enum cause_code code = check(seg, mr, remote, key, addr, length, rights, pd, qpn, piece, c);

	uint64_t watch = code ? atomic_load_explicit(&seg->hdr.watch, memory_order_acquire) : 0;

	if (watch)
		watch_find_region(seg_at(seg, watch), key, c);
	/* Not one that the key does not, or no longer, name. */
	if (code && c->region_length && code != CAUSE_RKEY_DEREGISTERED && code != CAUSE_LKEY_DEREGISTERED)
		atomic_fetch_add_explicit(&mr->refused, 1, memory_order_relaxed);
	return code;
}
