/* SPDX-License-Identifier: MIT */
/*
 * Reaching memory: copies between our memory and that of a process of this host. This file is the
 * seam: which way a copy goes (CMA now; mapped pages later) is decided here, and where none is open
 * the caller asks the target's helper (local/assist.h).
 *
 * No copy ever raises a signal: the kernel copies, and says EFAULT.
 */
#ifndef UROCE_LOCAL_MEMORY_H
#define UROCE_LOCAL_MEMORY_H

#include <sys/uio.h>

#include "local/attach.h"

enum copy_result {
	COPY_DONE,
	COPY_LOCAL_FAULT,
	COPY_REMOTE_FAULT,
	COPY_REFUSED, /* this way is not open: ask the helper */
	COPY_GONE,    /* the process ended */
};

enum copy_direction { COPY_TO_PEER, COPY_FROM_PEER };

/* Parts of a message: at most this many pieces of memory on a side. */
#define MEMORY_PIECES (NIC_MAX_SGE + 1)

/* The bytes [offset, offset + length) of a list of pieces, as a list; returns its number of
 * pieces. */
uint32_t memory_slice(const struct iovec *pieces, uint32_t count, uint64_t offset, uint64_t length,
		      struct iovec *slice);

/*
 * Copies length bytes, which local and remote both have. ordered: the last word is written after
 * all others, and as one aligned store as far as the kernel's copy does that (a program may be
 * spinning on it); for COPY_TO_PEER with one remote piece.
 */
enum copy_result memory_copy(struct peer *peer, enum copy_direction direction,
			     const struct iovec *local, uint32_t local_count,
			     const struct iovec *remote, uint32_t remote_count, uint64_t length,
			     bool ordered);

/* The same within this process, for the helper and for results: addr may be bad. False on a
 * fault. */
bool memory_read_own(struct nic *nic, uint64_t addr, void *to, uint64_t length);
bool memory_write_own(struct nic *nic, uint64_t addr, const void *from, uint64_t length);

/* Whether CMA reaches the process: reads its segment's instance where it says that it has it
 * mapped. */
bool memory_probe(const struct peer *peer);

#endif
