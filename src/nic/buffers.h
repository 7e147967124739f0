/* SPDX-License-Identifier: MIT */
/*
 * What programs do to memory that work requests still hold, found while somebody watches (observe/watch.h):
 *
 *	changed		between the posting of a SEND or WRITE and the poll of its completion, or of a later one of its queue
 *	gone		unmapped in that time
 *	unmapped	while it is registered; found by its deregistration, or at the end of the program
 *
 * The first BUFFERS_COMPARED bytes of a message are copied when it is posted and compared when it is given back: a program that
 * polls first never changes what is compared. What this device may have written itself is left alone: where receives were posted
 * or READs and atomics bring data, and regions that peers may write to, once one has written. All is read by system calls, so that
 * memory that is not there is no signal.
 */
#ifndef UROCE_NIC_BUFFERS_H
#define UROCE_NIC_BUFFERS_H

#include "nic/mr.h"
#include "nic/qp.h"

#define BUFFERS_COMPARED 65536u

/* Before anybody posts, when somebody watches. */
void buffers_start(void);
/* In a forked child: nobody holds the lock. */
void buffers_after_fork(void);
/* A WQE that is whole; QP's lock held. */
void buffers_posted(struct nic_swqe *wqe);
/* A receive. */
void buffers_receive(const struct ibv_sge *sge, uint32_t count);
/* `count` WQEs from a position are about to be given back. */
void buffers_completed(struct nic_qp *qp, uint32_t position, uint32_t count);
/* A region that is about to be deregistered. */
void buffers_deregister(const struct nic_mr *mr);
/* The program ends: regions that it has never deregistered. */
void buffers_end(struct nic *nic);

#endif
