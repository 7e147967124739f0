/* SPDX-License-Identifier: MIT */
/*
 * Reaching memory: copies between our memory and that of a process of this host, by the best way that is open to both
 * ends: mapped pages, else the kernel's cross memory attach (CMA). Where none is, the caller asks the target's helper
 * (local/assist.h).
 *
 * No copy ever raises a signal: mapped pages stay when the program unmaps or protects them, and elsewhere the kernel
 * copies, and says EFAULT.
 */
#ifndef UROCE_LOCAL_MEMORY_H
#define UROCE_LOCAL_MEMORY_H

#include <sys/uio.h>

#include "local/attach.h"
#include "nic/mr.h"

/* The best way that may be used: UROCE_MEMORY, for tests of the others. */
enum memory_way { MEMORY_MAPPED, MEMORY_CMA, MEMORY_ASSIST };

enum memory_way memory_way(void);

/* Whether a value of UROCE_MEMORY is understood; with one that is not there is no device (verbs/device.c). */
bool memory_parse(const char *value, enum memory_way *way);

enum copy_result {
	COPY_DONE,
	COPY_LOCAL_FAULT,
	COPY_REMOTE_FAULT,
	COPY_REFUSED, /* this way is not open: ask the helper */
	COPY_GONE,    /* the process ended */
	COPY_EVICTED, /* its owner has given up this visit: look again, in another one */
};

enum copy_direction { COPY_TO_PEER, COPY_FROM_PEER };

/* Parts of a message: at most this many pieces of memory on a side. */
#define MEMORY_PIECES (NIC_MAX_SGE + 1)

/* The bytes [offset, offset + length) of a list of pieces, as a list; returns its number of
 * pieces. */
uint32_t memory_slice(const struct piece *pieces, uint32_t count, uint64_t offset, uint64_t length,
		      struct piece *slice);

/* Where this library sees a piece of a process's memory from offset on, *length bytes of it at most; NULL: nowhere.
 * Within a visit. */
static inline uint8_t *memory_see(struct peer *peer, const struct piece *piece, uint64_t offset,
				  uint64_t *length)
{
	if (*length > piece->length - offset)
		*length = piece->length - offset;
	switch (piece->kind) {
	case PIECE_MAPPED:
		return window_at(&peer->windows, piece->addr + offset, length);
	case PIECE_FILE:
		return view_at(&peer->views, piece->file, piece->addr + offset);
	case PIECE_OURS:
		return (uint8_t *)(uintptr_t)piece->addr + offset;
	default:
		return NULL;
	}
}

/* The whole piece; NULL also where it is seen in parts only. */
static inline void *memory_view(struct peer *peer, const struct piece *piece)
{
	uint64_t length = piece->length;
	void *start = memory_see(peer, piece, 0, &length);

	return length == piece->length ? start : NULL;
}

/* Pieces of this process's memory for the kernel: as this library sees them, where it does. */
void memory_vector(struct nic *nic, const struct piece *pieces, uint32_t count, struct iovec *iov);

/*
 * Copies length bytes, which local and remote both have. ordered: the last word is written after
 * all others, and as one aligned store as far as the kernel's copy does that (a program may be
 * spinning on it); for COPY_TO_PEER with one remote piece. Within a visit: of another process, in `here`.
 */
enum copy_result memory_copy(struct nic *nic, struct peer *peer, struct seg_visit *here, enum copy_direction direction,
			     const struct piece *local, uint32_t local_count,
			     const struct piece *remote, uint32_t remote_count, uint64_t length,
			     bool ordered);

/* An atomic of the CPU on 8 aligned bytes of a process's memory; false where they are not mapped. compare: *old becomes
 * swap if it is compare_add; else compare_add is added. Within a visit. */
bool memory_atomic(struct peer *peer, const struct piece *at, bool compare, uint64_t compare_add,
		   uint64_t swap, uint64_t *old);

/* The same within this process, for the helper and for results: addr may be bad. False on a
 * fault. */
bool memory_read_own(struct nic *nic, uint64_t addr, void *to, uint64_t length);
bool memory_write_own(struct nic *nic, uint64_t addr, const void *from, uint64_t length);

/* Whether CMA reaches the process: reads its segment's instance where it says that it has it
 * mapped. */
bool memory_probe(const struct peer *peer);

#endif
