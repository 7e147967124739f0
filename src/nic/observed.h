/* SPDX-License-Identifier: MIT */
/*
 * The process's trace (observe/trace.h): begins when somebody asks for one, by UROCE_TRACE when the NIC is made, or by a message to
 * one of its slots later, and ends when his connection does. One observer at a time, of the same user.
 *
 * The ring of a trace that has ended stays for the next one, since threads may still be writing into it: until the NIC is closed,
 * when none can be.
 */
#ifndef UROCE_NIC_OBSERVED_H
#define UROCE_NIC_OBSERVED_H

#include "nic/nic.h"

/* When the NIC is made, before its helper: gives the ring to who UROCE_TRACE names. Without one, or without memory, nothing is traced. */
void observed_start(struct nic *nic);

/* The helper has ended. In a forked child: nothing of it is traced. */
void observed_stop(struct nic *nic);

/* Helper. A ring for who asks, *ring its descriptor: 0, or errno (EBUSY: somebody else observes). */
int observed_prepare(struct nic *nic, int *ring);
/* He has it: what there is already is written first of all. Takes over the connection, whose end is the trace's. */
void observed_begin(struct nic *nic, int connection, uint32_t snap);

#endif
