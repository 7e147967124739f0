/* SPDX-License-Identifier: MIT */
/*
 * What is kept of a process only while somebody is told why it fails (`uroce explain`, UROCE_EXPLAIN=stderr or a file): call stacks
 * of what it does, and to which region or queue pair they belong. It stands in the process's segment, so that it outlives a crash.
 *
 * Nobody is told: watch_now() is NULL, and that is all that it costs. Tables are bounded; what finds no room has no stack (number
 * 0), and of two objects in one place the newer one is known. Nothing here allocates memory, takes a lock or waits, so that posting
 * stays what it is. A stack that was there before is not stored again.
 */
#ifndef UROCE_OBSERVE_WATCH_H
#define UROCE_OBSERVE_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/cause.h"

#define WATCH_FRAMES  24
#define WATCH_STACKS  4096
#define WATCH_MODULES 128
#define WATCH_REGIONS 16384
#define WATCH_QPS     4096
#define WATCH_CQS     1024
#define WATCH_PATH    240

/* Return addresses, the innermost first; none of this library. */
struct watch_stack {
	_Atomic uint64_t hash;	/* 0: free */
	_Atomic uint32_t count; /* after the frames (release); 0 before */
	uint32_t reserved;
	uint64_t frames[WATCH_FRAMES];
};

/* A file that is mapped at start, and whose address 0 is at bias. */
struct watch_module {
	_Atomic uint64_t start; /* 0: free */
	uint64_t end, bias;
	_Atomic uint32_t ready; /* after the rest (release) */
	char path[WATCH_PATH];
};

struct watch_region {
	_Atomic uint32_t lkey;
	_Atomic uint32_t registered, deregistered; /* numbers of stacks */
};

/*
 * What a queue pair does, for advice. Written under its send queue's lock or that of its receives; who reads it meanwhile sees some
 * of it earlier than the rest. "In a row": nothing was polled and nothing arrived in between.
 */
struct watch_qp {
	_Atomic uint32_t qpn;
	_Atomic uint32_t created; /* stack */
	uint32_t send_cq, recv_cq, peer_qpn;
	uint32_t max_send_wr, max_recv_wr; /* as asked for; receives of an SRQ: 0 */
	uint64_t calls, calls_in_row, requests, signaled;
	uint32_t row, longest_row; /* requests; of the row that goes on, and of the longest */
	uint64_t seen;		   /* polls and arrivals, when it posted last */
	/* Receives: most that were there at once, most of these that were in use at once, bytes of the largest */
	uint32_t most_posted, most_used;
	uint32_t most_when_dry; /* most_posted, when messages found nothing */
	uint64_t room;
	/* Its requests found no receive at the other end: since when (CLOCK_MONOTONIC ns; 0: they do), how often, for how long in all,
	 * and the most requests that waited */
	uint64_t waits_since, waits, waited;
	/* Of that, where it is known: before the receive was posted, and after; and how long each wait is */
	uint64_t late, lost, timer;
	uint32_t most_waiting;
};

struct watch_cq {
	_Atomic uint32_t name; /* index + 1 */
	uint32_t created;      /* stack */
	uint32_t cqe;	       /* as asked for */
	uint32_t fed,
		most_fed; /* work requests of the queues that complete in it, now and at most */
	uint32_t has_srq; /* receives of an SRQ, which are not in fed */
	uint32_t high;	  /* once it is destroyed: most completions that waited */
	uint32_t ended;
	/* When it was armed last: completions that waited, 0 once it was polled after that; and when, CLOCK_MONOTONIC ns */
	_Atomic uint32_t armed_over;
	uint64_t armed_at;
};

/* The most that was asked for. */
struct watch_asked {
	uint32_t send_wr, recv_wr, send_sge, recv_sge, inline_bytes, rd_atomic, cqe, srqs;
	uint32_t atomics; /* whether one was posted */
};

/* Written by its process only. */
struct watch {
	struct watch_module modules[WATCH_MODULES];
	struct watch_region regions[WATCH_REGIONS];
	struct watch_qp qps[WATCH_QPS];
	struct watch_cq cqs[WATCH_CQS];
	struct watch_asked asked;
	struct watch_stack stacks[WATCH_STACKS];
};

/* The process's own; NULL: nobody is told. */
extern struct watch *_Atomic the_watch;

static inline struct watch *watch_now(void)
{
	return atomic_load_explicit(&the_watch, memory_order_relaxed);
}

/* From now on, into zeroed memory that stays until watch_stop(). Not while a verb runs. */
void watch_start(struct watch *watch);
void watch_stop(void);

/* The stack of the caller's caller, from where it leaves this library: its number, 0: none. */
uint32_t watch_stack(void);

/* Of this process; they do nothing while nobody is told. */
void watch_region_registered(uint32_t lkey);
void watch_region_deregistered(uint32_t lkey);
/* New: qpn, CQs, max_send_wr, max_recv_wr. */
void watch_qp_created(const struct watch_qp *made, bool has_srq);
/* used: receives that were posted and are not any more. */
void watch_qp_ended(uint32_t qpn, uint32_t available);
void watch_qp_connected(uint32_t qpn, uint32_t peer_qpn, uint32_t rd_atomic);
/* seen: all polls and arrivals so far. */
void watch_posted(uint32_t qpn, uint32_t requests, uint32_t signaled, bool atomic, uint64_t seen);
/* available: before and after the call; room: the largest; dry: messages have found nothing before. */
void watch_received(uint32_t qpn, uint32_t before, uint32_t after, uint64_t room, bool dry);
void watch_waits(uint32_t qpn, uint64_t now, uint32_t waiting);
/* late: the receive came so much later, lost: and was found so much later; both 0 where that is not known. ns. */
void watch_waited(uint32_t qpn, uint64_t now, uint32_t waiting, uint64_t late, uint64_t lost, uint64_t timer);
void watch_cq_created(uint32_t index, uint32_t cqe);
/* waiting: completions that are there. */
void watch_cq_armed(uint32_t index, uint32_t waiting, uint64_t now);
void watch_cq_polled(uint32_t index);
/* What it was armed over, if it was not polled since; *armed_at is when. */
uint32_t watch_cq_forgotten(uint32_t index, uint64_t *armed_at);
void watch_cq_ended(uint32_t index, uint32_t high);
void watch_asks(struct watch_asked asked);

/* What a watch, of this process or in a peer's segment, knows of the region of a key. */
void watch_find_region(const struct watch *watch, uint32_t key, struct cause *c);

/* Adds what is known to a cause that is being recorded. */
void watch_complete(struct cause *c);

/* A stack by its number; NULL: there is none. */
const struct watch_stack *watch_get(const struct watch *watch, uint32_t number);
/* Where an address is; NULL: not known. */
const struct watch_module *watch_module_of(const struct watch *watch, uint64_t address);

#endif
