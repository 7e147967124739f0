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

struct watch_qp {
	_Atomic uint32_t qpn;
	_Atomic uint32_t created;
};

/* Written by its process only. */
struct watch {
	struct watch_module modules[WATCH_MODULES];
	struct watch_region regions[WATCH_REGIONS];
	struct watch_qp qps[WATCH_QPS];
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
void watch_qp_created(uint32_t qpn);

/* What a watch, of this process or in a peer's segment, knows of the region of a key. */
void watch_find_region(const struct watch *watch, uint32_t key, struct cause *c);

/* Adds what is known to a cause that is being recorded. */
void watch_complete(struct cause *c);

/* A stack by its number; NULL: there is none. */
const struct watch_stack *watch_get(const struct watch *watch, uint32_t number);
/* Where an address is; NULL: not known. */
const struct watch_module *watch_module_of(const struct watch *watch, uint64_t address);

#endif
