/* SPDX-License-Identifier: MIT */
/* Memory windows. See mw.h; the protocol is docs/protocols.md, "Memory window". */
#include "nic/mw.h"

#include <errno.h>

#include "nic/request.h"
#include "nic/visit.h"

/* A window's key below the index: 4 bits that name its life, 8 of the consumer's. The word's tag holds the upper 11. */
#define KEY_BITS 0xfffu
#define KEY_LIFE 0xf00u
#define KEY_USER 0x0ffu

static uint32_t key_bits(uint64_t state)
{
	return (uint32_t)(state >> MR_TAG_SHIFT & MR_TAG_MASK) << 1 |
	       (state & NIC_MW_KEY_ODD ? 1 : 0);
}

static uint64_t make_state(const struct nic_mw *mw, uint32_t bits, uint64_t flags)
{
	return (uint64_t)(bits >> 1) << MR_TAG_SHIFT | (bits & 1 ? NIC_MW_KEY_ODD : 0) | NIC_MW |
	       (mw->type == IBV_MW_TYPE_2 ? NIC_MW_TYPE_2 : 0) | flags;
}

uint32_t mw_key(const struct nic_mw *mw)
{
	return (mw->index ^ mw->nic->seg->hdr.key_mask) << MR_KEY_INDEX |
	       key_bits(atomic_load(&mw->shared->state));
}

static int refuse(const struct nic_mw *mw, enum cause_code code, int error, uint32_t pid)
{
	cause_record(nic_causes(mw->nic), &(struct cause){ .code = code,
							   .error = error,
							   .key = mw->shared ? mw_key(mw) : 0,
							   .pd = mw->pd,
							   .peer_pid = (int32_t)pid,
							   .limit = pid ? NIC_GRACE : 0 });
	return error;
}

int nic_mw_alloc(struct nic *nic, uint32_t pd, enum ibv_mw_type type, struct nic_mw *mw)
{
	*mw = (struct nic_mw){ .nic = nic, .pd = pd, .type = type };
	if (nic_is_orphan(nic))
		return EIO;

	int64_t index = table_alloc(&nic->mrs, mw, NIC_MAX_MR);

	if (index < 0)
		return refuse(mw, CAUSE_OBJECT_TABLE_FULL, ENOMEM, 0);
	if (segment_commit(nic->seg, nic->seg_fd, &nic->seg->mrs[index], sizeof(*mw->shared))) {
		table_free(&nic->mrs, (uint32_t)index);
		return refuse(mw, CAUSE_NO_MEMORY, ENOMEM, 0);
	}
	mw->index = (uint32_t)index;
	mw->shared = &nic->seg->mrs[index];

	/* Not a key of the entry's last life. */
	uint32_t last = (uint32_t)(atomic_load(&mw->shared->state) >> MR_TAG_SHIFT & MR_TAG_MASK)
			<< 1;

	mw->shared->pd = pd;
	mw->shared->region = 0;
	atomic_store(&mw->shared->mapped_start, 0);
	atomic_store(&mw->shared->mapped_end, 0);
	pthread_mutex_lock(&nic->mw_lock);
	atomic_store_explicit(&mw->shared->state,
			      make_state(mw, ((last & KEY_LIFE) + KEY_USER + 1) & KEY_LIFE, 0),
			      memory_order_release);
	pthread_mutex_unlock(&nic->mw_lock);
	return 0;
}

static uint32_t windows_of(struct nic *nic, uint32_t region)
{
	return (uint32_t)(atomic_load(&nic->seg->mrs[region].state) / NIC_MR_WINDOWS);
}

/* The region of a window that nobody looks at any more. */
static void leave_region(struct nic *nic, struct seg_mr *shared)
{
	if (shared->region)
		atomic_fetch_sub(&nic->seg->mrs[shared->region - 1].state, NIC_MR_WINDOWS);
	shared->region = 0;
}

/* Takes the binding away, if there is one: false if it had gone. */
static bool unbind(struct seg_mr *shared)
{
	return atomic_fetch_and(&shared->state, ~NIC_MW_BOUND) & NIC_MW_BOUND;
}

/* Waits until nobody uses the binding that was taken away. False when a visitor, *pid, stands still. */
static bool is_left(struct nic_mw *mw, uint32_t *pid)
{
	if (mw->shared->region && !visits_over_region(mw->nic, mw->index, NIC_GRACE, pid))
		return false;
	leave_region(mw->nic, mw->shared);
	return true;
}

int nic_mw_dealloc(struct nic_mw *mw)
{
	struct nic *nic = mw->nic;
	uint32_t pid = 0;
	bool bound, left;

	if (nic_is_orphan(nic))
		return 0;
	pthread_mutex_lock(&nic->mw_lock);
	bound = unbind(mw->shared);
	left = is_left(mw, &pid);
	if (left) {
		/* No window any more; the tag stays for the entry's next life. */
		atomic_fetch_and(&mw->shared->state, (uint64_t)MR_TAG_MASK << MR_TAG_SHIFT);
		table_free(&nic->mrs, mw->index);
	} else if (bound) {
		atomic_fetch_or(&mw->shared->state, NIC_MW_BOUND);
	}
	pthread_mutex_unlock(&nic->mw_lock);
	return left ? 0 : refuse(mw, CAUSE_WINDOW_STOPPED_PEER, EBUSY, pid);
}

uint32_t mw_bound_to(struct nic *nic, uint32_t region)
{
	uint32_t used = atomic_load(&nic->mrs.fresh), left = windows_of(nic, region), bound = 0;

	for (uint32_t i = 0; i < used && left; i++) {
		const struct seg_mr *entry = &nic->seg->mrs[i];
		uint64_t state = atomic_load(&entry->state);

		if (!(state & NIC_MW) || entry->region != region + 1)
			continue;
		left--;
		bound += !!(state & NIC_MW_BOUND);
	}
	return bound;
}

void mw_forget_region(struct nic *nic, uint32_t region)
{
	uint32_t used = atomic_load(&nic->mrs.fresh);

	for (uint32_t i = 0; i < used && windows_of(nic, region); i++) {
		struct seg_mr *entry = &nic->seg->mrs[i];

		if (atomic_load(&entry->state) & NIC_MW && entry->region == region + 1)
			leave_region(nic, entry);
	}
}

enum cause_code mw_check(struct nic_segment *seg, uint32_t key, uint64_t addr, uint64_t length,
			 uint32_t rights, uint32_t pd, uint32_t qpn, struct piece *piece,
			 struct cause *c)
{
	const struct seg_mr *mw = mr_of_key(seg, key);
	uint64_t state = atomic_load_explicit(&mw->state, memory_order_acquire);

	if ((key ^ key_bits(state)) & KEY_LIFE)
		return CAUSE_RKEY_UNKNOWN;
	if ((key ^ key_bits(state)) & KEY_USER)
		return CAUSE_WINDOW_OTHER_KEY;
	if (!(state & NIC_MW_BOUND))
		return CAUSE_WINDOW_UNBOUND;
	c->region_addr = mw->iova;
	c->region_length = mw->length;
	c->region_access = state & MR_ACCESS_MASK;
	c->region_pd = mw->pd;
	if (mw->pd != pd)
		return CAUSE_WINDOW_PD;
	if (state & NIC_MW_TYPE_2 && mw->qpn != qpn)
		return CAUSE_WINDOW_QP;
	if (addr < mw->iova || length > mw->length || addr - mw->iova > mw->length - length)
		return CAUSE_WINDOW_BOUNDS;
	if ((state & rights) != rights)
		return CAUSE_WINDOW_ACCESS;
	*piece = mr_piece(&seg->mrs[(mw->region - 1) & (NIC_MAX_MR - 1)],
			  mw->addr + (addr - mw->iova), length);
	return CAUSE_NONE;
}

enum cause_code mw_invalidate(struct nic_segment *seg, uint32_t key, uint32_t qpn, uint32_t pd,
			      struct cause *c)
{
	struct seg_mr *mw = mr_of_key(seg, key);
	uint64_t state = atomic_load_explicit(&mw->state, memory_order_acquire);

	c->key = key;
	c->pd = pd;
	if (!(state & NIC_MW) || (key ^ key_bits(state)) & KEY_BITS)
		return CAUSE_INVALIDATE_KEY;
	if (!(state & NIC_MW_TYPE_2))
		return CAUSE_INVALIDATE_TYPE;
	if (!(state & NIC_MW_BOUND))
		return CAUSE_INVALIDATE_UNBOUND;
	c->region_addr = mw->iova;
	c->region_length = mw->length;
	c->region_pd = mw->pd;
	if (mw->pd != pd || mw->qpn != qpn)
		return CAUSE_INVALIDATE_QP;
	return unbind(mw) ? CAUSE_NONE : CAUSE_INVALIDATE_UNBOUND;
}

/* A window of ours by a key of it, or an earlier one. Lock held. */
static struct nic_mw *find(struct nic *nic, uint32_t key)
{
	struct seg_mr *entry = mr_of_key(nic->seg, key);
	uint64_t state = atomic_load(&entry->state);

	if (!(state & NIC_MW) || (key ^ key_bits(state)) & KEY_LIFE)
		return NULL;
	return table_get(&nic->mrs, (uint32_t)(entry - nic->seg->mrs));
}

/* Whether the region lets a window be bound to it so (specification C10-72 to C10-75). */
static enum cause_code check_region(const struct nic_qp *qp, const struct nic_swqe *wqe,
				    const struct seg_mr *region, struct cause *c)
{
	uint64_t state = atomic_load(&region->state), tag = state >> MR_TAG_SHIFT & MR_TAG_MASK;
	uint64_t start = wqe->remote_addr, length = wqe->window_length;

	if (!(state & NIC_MR_VALID) || tag != (wqe->window_lkey >> 1 & MR_TAG_MASK) ||
	    wqe->window_lkey & MR_KEY_REMOTE)
		return CAUSE_BIND_REGION;
	c->region_addr = region->iova;
	c->region_length = region->length;
	c->region_access = state & MR_ACCESS_MASK;
	c->region_pd = region->pd;
	if (region->pd != qp->pd)
		return CAUSE_BIND_PD;
	if (state & IBV_ACCESS_ZERO_BASED)
		return CAUSE_BIND_ZERO_BASED;
	if (!(state & IBV_ACCESS_MW_BIND))
		return CAUSE_BIND_RIGHT;
	if (wqe->window_access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(state & IBV_ACCESS_LOCAL_WRITE))
		return CAUSE_BIND_ACCESS;
	if (start < region->iova || length > region->length ||
	    start - region->iova > region->length - length)
		return CAUSE_BIND_BOUNDS;
	return CAUSE_NONE;
}

static enum cause_code check_bind(const struct nic_qp *qp, const struct nic_swqe *wqe,
				  const struct nic_mw *mw, struct cause *c)
{
	bool zero_based = wqe->window_access & IBV_ACCESS_ZERO_BASED;

	if (mw->pd != qp->pd) {
		c->region_pd = mw->pd;
		return CAUSE_BIND_PD;
	}
	if (mw->type == IBV_MW_TYPE_1 && zero_based)
		return CAUSE_BIND_ZERO_BASED;
	if (mw->type == IBV_MW_TYPE_2 && atomic_load(&mw->shared->state) & NIC_MW_BOUND)
		return CAUSE_BIND_BOUND;
	if (mw->type == IBV_MW_TYPE_2 && !wqe->window_length)
		return CAUSE_BIND_EMPTY;
	return wqe->window_length ?
		       check_region(qp, wqe, mr_of_key(qp->nic->seg, wqe->window_lkey), c) :
		       CAUSE_NONE;
}

static enum cause_code bind(struct nic_qp *qp, const struct nic_swqe *wqe, struct cause *c)
{
	struct nic *nic = qp->nic;
	struct nic_mw *mw = find(nic, wqe->window);
	enum cause_code code = mw ? check_bind(qp, wqe, mw, c) : CAUSE_BIND_WINDOW;
	uint32_t pid = 0, bits;

	c->key = wqe->rkey;
	c->addr = wqe->remote_addr;
	c->length = wqe->window_length;
	c->access = wqe->window_access;
	c->pd = qp->pd;
	if (code == CAUSE_BIND_REGION)
		c->value = wqe->window_lkey;
	if (code)
		return code;
	unbind(mw->shared);
	if (!is_left(mw, &pid)) {
		c->peer_pid = (int32_t)pid;
		return CAUSE_WINDOW_STOPPED_PEER;
	}

	struct seg_mr *shared = mw->shared;

	bits = (key_bits(atomic_load(&shared->state)) & KEY_LIFE) | (wqe->rkey & KEY_USER);
	if (wqe->window_length) {
		struct seg_mr *region = mr_of_key(nic->seg, wqe->window_lkey);

		shared->addr = wqe->remote_addr;
		shared->iova = wqe->window_access & IBV_ACCESS_ZERO_BASED ? 0 : wqe->remote_addr;
		shared->length = wqe->window_length;
		shared->qpn = qp->qpn;
		shared->region = (uint32_t)(region - nic->seg->mrs) + 1;
		atomic_fetch_add(&region->state, NIC_MR_WINDOWS);
	}
	/* Release: who sees it bound sees the fields. */
	atomic_store_explicit(&shared->state,
			      make_state(mw, bits,
					 wqe->window_length ? NIC_MW_BOUND | (wqe->window_access &
									      MR_ACCESS_MASK) :
							      0),
			      memory_order_release);
	return CAUSE_NONE;
}

static enum cause_code invalidate(struct nic_qp *qp, const struct nic_swqe *wqe, struct cause *c)
{
	struct nic_mw *mw = find(qp->nic, wqe->rkey);
	enum cause_code code = mw_invalidate(qp->nic->seg, wqe->rkey, qp->qpn, qp->pd, c);
	uint32_t pid = 0;

	if (code || is_left(mw, &pid))
		return code;
	c->peer_pid = (int32_t)pid;
	return CAUSE_WINDOW_STOPPED_PEER;
}

enum transport_outcome mw_execute(struct nic_qp *qp, struct nic_swqe *wqe,
				  struct transport_result *result)
{
	struct cause c = { 0 };
	enum cause_code code;

	pthread_mutex_lock(&qp->nic->mw_lock);
	code = wqe->opcode == IBV_WR_BIND_MW ? bind(qp, wqe, &c) : invalidate(qp, wqe, &c);
	pthread_mutex_unlock(&qp->nic->mw_lock);
	if (!code)
		return TRANSPORT_DONE;
	result->status = IBV_WC_MW_BIND_ERR;
	result->cause = request_record(qp, wqe, code, IBV_WC_MW_BIND_ERR, &c);
	return TRANSPORT_FAILED;
}
