/* SPDX-License-Identifier: MIT */
/*
 * The process's NIC: its segment, slots, tables of objects and helper thread. There is one in a
 * process, made when the first context is opened and given up when the last one is closed.
 *
 * After fork the child's copy is an orphan: nothing shared is mapped any more, every operation on
 * an inherited object answers an error, and opening a device makes a new NIC.
 */
#ifndef UROCE_NIC_NIC_H
#define UROCE_NIC_NIC_H

#include <pthread.h>
#include <sys/types.h>

#include "nic/layout.h"
#include "nic/list.h"
#include "nic/segment.h"
#include "nic/table.h"

struct nic_qp;
struct nic_cq;
struct nic_srq;
struct peer;
struct attach;
struct share;
struct wire;
struct addresses;
struct cm;
struct observed;

struct nic {
	struct nic_segment *seg;
	/* also carries the life lock; never dup it and close the copy: that would drop the lock */
	int seg_fd;
	int doorbell; /* eventfd: peers and our own threads wake the helper */
	struct arena arena;
	unsigned users;	     /* open contexts; under the process's NIC lock */
	_Atomic bool orphan; /* true in a child that inherited us over fork */

	struct table qps, cqs, srqs, mrs; /* index → private object */
	pthread_mutex_t assist_lock;	  /* requests for assistance under way (local/assist.c) */
	pthread_mutex_t atomic_lock;	  /* held over each atomic on our memory */
	pthread_mutex_t mw_lock;	  /* nic/mw.h; taken after a QP's lock, and held while visits are waited for */
	_Atomic uint32_t next_pd;

	_Atomic pid_t visit_owners[NIC_VISITS]; /* threads that keep a visit word */
	/* Processes that can visit us (nic/visit.h), ourselves included. */
	pthread_mutex_t visitors_lock;
	struct list visitors;

	/* What the helper looks up by index it looks up, and takes a reference to, under this lock;
	 * who destroys an object takes it out of its table under it. Taken after a QP's lock, never
	 * before. */
	pthread_mutex_t lock;
	struct list deferred; /* QPs with work that could not be done when it was posted */
	_Atomic uint64_t
		helper_wakes_at; /* CLOCK_MONOTONIC ns; UINT64_MAX: only when the doorbell rings */

	pthread_t helper;
	_Atomic pid_t helper_tid; /* 0 until it runs */
	_Atomic bool helper_stop;
	int epoll;
	_Atomic uint32_t sources; /* that helper_watch() was given */
	struct attach *attach; /* src/local: sockets and peers */
	struct share *share;   /* nic/share.h; NULL: memory stays private */
	struct wire *wire;     /* src/roce: UDP sockets */
	struct addresses *addresses; /* nic/addresses.h */
	struct cm *cm;	       /* src/cm: connections by address */
	struct observed *observed; /* nic/observed.h; NULL: never yet. Helper */
};

/* Gets the process's NIC, making it if there is none; one nic_close for each success. NULL with
 * errno and a reason in *why (static text) when the machine refuses something that we cannot do
 * without. */
struct nic *nic_open(const char **why);
void nic_close(struct nic *nic);

/* Who looks at the process from outside will see it by this device's name too; one that finds no room is not named. */
void nic_name_device(struct nic *nic, const char *name);

/* True in a forked child for a NIC that the parent opened. */
static inline bool nic_is_orphan(const struct nic *nic)
{
	return atomic_load_explicit(&nic->orphan, memory_order_relaxed);
}

/* A number for a new protection domain; never 0, never given twice in a process. */
uint32_t nic_new_pd(struct nic *nic);

/* Of a forked child, NULL without a witness. */
struct cause_ring *nic_orphan_causes(void);

static inline struct cause_ring *nic_causes(struct nic *nic)
{
	return nic_is_orphan(nic) ? nic_orphan_causes() : &nic->seg->causes;
}

/* Wakes the helper. */
void nic_ring_doorbell(struct nic *nic);

uint64_t nic_now(void);	       /* CLOCK_MONOTONIC, ns */
uint64_t nic_wall_clock(void); /* CLOCK_REALTIME, ns */

#endif
