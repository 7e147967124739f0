/* SPDX-License-Identifier: MIT */
/* Memory regions: registration, keys, and the byte-exact check that every access passes. */
#ifndef UROCE_NIC_MR_H
#define UROCE_NIC_MR_H

#include "nic/nic.h"

struct nic_mr {
	struct nic *nic;
	struct seg_mr *shared;
	uint32_t index;
	uint32_t lkey, rkey;
	uint32_t pd;
	uint32_t access;
	uint64_t addr, length, iova;
};

/* A run of memory that an access goes to, and how it is reached. */
enum piece_kind {
	PIECE_PRIVATE, /* the program's: by the kernel, or its process's helper */
	PIECE_MAPPED,  /* the program's, in its pages file */
	PIECE_FILE,    /* the program's, in a file of its own */
	PIECE_OURS,    /* this library's, in this process: by its address */
};

struct piece {
	uint64_t addr; /* in the owner's address space */
	uint64_t length;
	enum piece_kind kind;
	uint32_t file; /* PIECE_FILE: seg_file.file */
};

/* Memory of this library. */
static inline struct piece piece_ours(const void *start, uint64_t length)
{
	return (struct piece){ .addr = (uintptr_t)start, .length = length, .kind = PIECE_OURS };
}

/*
 * Registers [addr, addr + length) of this process; the first byte is iova to whoever uses the keys.
 * 0, or errno: EINVAL (flags, range), EFAULT (not mapped, or not writable as access asks), ENOMEM.
 * Causes are recorded.
 */
int nic_mr_register(struct nic *nic, uint32_t pd, uint64_t addr, uint64_t length, uint64_t iova,
		    uint32_t access, struct nic_mr *mr);

/* Changes what flags (enum ibv_rereg_mr_flags) names. The keys change when the range does; programs
 * count on them as long as it does not. errno values of registration and deregistration; after a failure the region is
 * as it was. */
int nic_mr_reregister(struct nic_mr *mr, int flags, uint32_t pd, uint64_t addr, uint64_t length,
		      uint32_t access);

/* When this returns 0, nothing that an initiator does reaches the region any more. EBUSY when a window is bound to the region
 * (specification 10.6.7.2.6), or a stopped process is in the middle of an access, stays so for a second, and cannot be kept from
 * finishing it (share_abandon): the region remains registered. */
int nic_mr_deregister(struct nic_mr *mr);

/* seg_mr.state and keys: see nic/layout.h. */
#define MR_TAG_SHIFT   21
#define MR_TAG_MASK    0x7ffu
#define MR_ACCESS_MASK 0xfffffu
#define MR_KEY_INDEX   12
#define MR_KEY_REMOTE  1u

static inline struct seg_mr *mr_of_key(struct nic_segment *seg, uint32_t key)
{
	return &seg->mrs[((key >> MR_KEY_INDEX) ^ seg->hdr.key_mask) & (NIC_MAX_MR - 1)];
}

/* The lkey of the region of a place whose state this is. */
uint32_t mr_lkey(const struct nic_segment *seg, uint32_t index, uint64_t state);

/* Where an address of a region is. */
static inline struct piece mr_piece(const struct seg_mr *mr, uint64_t addr, uint64_t length)
{
	uint64_t va = mr->addr + (addr - mr->iova);
	bool mapped = va >= atomic_load_explicit(&mr->mapped_start, memory_order_relaxed) &&
		      va + length <= atomic_load_explicit(&mr->mapped_end, memory_order_relaxed);

	return (struct piece){ .addr = va,
			       .length = length,
			       .kind = !mapped	? PIECE_PRIVATE :
				       mr->file ? PIECE_FILE :
						  PIECE_MAPPED,
			       .file = mr->file };
}

/*
 * Checks a key of a segment, our own or, within a visit, another's: [addr, addr + length) in the
 * key's address space, rights (enum ibv_access_flags that must all be there), protection domain; with remote, the number of
 * the QP that is accessed through, which a window may belong to.
 * Returns CAUSE_NONE and *piece, where that is in the owner's address space; or the cause's code, as for
 * an lkey (CAUSE_LKEY_*) or, with remote, an rkey (CAUSE_RKEY_*, CAUSE_WINDOW_*); c gets the region's numbers.
 */
enum cause_code mr_check(struct nic_segment *seg, bool remote, uint32_t key, uint64_t addr,
			 uint64_t length, uint32_t rights, uint32_t pd, uint32_t qpn, struct piece *piece,
			 struct cause *c);

/* The same without saying what is wrong: whether it is all right. Windows are left to mr_check. */
static inline bool mr_find(struct nic_segment *seg, bool remote, uint32_t key, uint64_t addr,
			   uint64_t length, uint32_t rights, uint32_t pd, struct piece *piece)
{
	const struct seg_mr *mr = mr_of_key(seg, key);
	uint64_t state = atomic_load_explicit(&mr->state, memory_order_acquire);
	uint64_t right = (uint64_t)(key >> 1 & MR_TAG_MASK) << MR_TAG_SHIFT | NIC_MR_VALID | rights;

	if ((state & (((uint64_t)MR_TAG_MASK << MR_TAG_SHIFT) | NIC_MR_VALID | rights)) != right ||
	    (key & MR_KEY_REMOTE) != (remote ? MR_KEY_REMOTE : 0) || mr->pd != pd ||
	    addr < mr->iova || length > mr->length || addr - mr->iova > mr->length - length)
		return false;
	*piece = mr_piece(mr, addr, length);
	return true;
}

#endif
