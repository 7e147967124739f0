/* SPDX-License-Identifier: MIT */
/*
 * librdmacm: what it does in user space, on the connection manager (cm/cm.h) and the verbs. This is what its files share.
 *
 * Rules of every file here:
 * - A handle is one allocation: the public structure first, what is ours after it.
 * - Functions of the API answer 0, or -1 with errno; those among us answer 0 or a positive errno.
 * - An id is used by one thread at a time, as rdma_cm(7) has it for a socket-like object, with two exceptions: events about it may
 *   be read and acknowledged anywhere, and destroying waits for that. What these have in common is under the id's lock.
 * - In a forked child inherited handles answer ENODEV, and destroying them only frees memory. No lock is taken then: a thread that
 *   does not exist in the child may have held it.
 */
#ifndef UROCE_RDMACM_RDMACM_H
#define UROCE_RDMACM_RDMACM_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "cm/cm.h"

#define PUBLIC __attribute__((visibility("default")))

#endif
