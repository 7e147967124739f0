/* SPDX-License-Identifier: MIT */
/* Segments that processes have shown us as their witness (observe/witness.h), also when they have ended. */
#ifndef UROCE_TOOLS_WITNESSED_H
#define UROCE_TOOLS_WITNESSED_H

#include <stdbool.h>
#include <stddef.h>

#include "nic/layout.h"

/* Of what is mapped: the head and the tables, not the arena. */
#define WITNESSED_BYTES offsetof(struct nic_segment, arena)

/* To be read; NULL if it is of another version of uroce. munmap() it. */
const struct nic_segment *witnessed_map(int fd);

/* Copies the records of a ring, the oldest first, that are whole; their number. Both kinds (causes, stories) begin with seq. `count` is
 * the ring's size, `next` of it the position of the next record. */
unsigned witnessed_records(const void *slots, size_t size, uint64_t count, uint64_t next, void *to);

/* The cause of this position, if it is still there. */
/* All causes that are known still, the firsts of their kinds before the others: at most WITNESSED_CAUSES. */
#define WITNESSED_CAUSES (NIC_CAUSES + CAUSE_KINDS)
unsigned witnessed_causes(const struct nic_segment *seg, struct cause *causes);

/* How often causes of this kind (cause_kind()) came; 0: there are more kinds of this code than are told apart. */
uint64_t witnessed_times(const struct nic_segment *seg, uint64_t kind);

bool witnessed_cause(const struct nic_segment *seg, uint64_t position, struct cause *cause);

#endif
