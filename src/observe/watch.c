/* SPDX-License-Identifier: MIT */
/* Call stacks. See watch.h. */
#include "observe/watch.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define OWN_FRAMES 16 /* of ours, above the program's */
#define PROBES	   32

struct watch *_Atomic the_watch;

/* This library, and the C library, which calls our threads. */
static struct range {
	uintptr_t start, end;
} ours, libc;

static char program[WATCH_PATH];

static bool is_within(const struct range *range, uintptr_t address)
{
	return address >= range->start && address < range->end;
}

static struct range range_of(const void *address)
{
	struct dl_find_object found;

	if (_dl_find_object((void *)(uintptr_t)address, &found))
		return (struct range){ 0 };
	return (struct range){ (uintptr_t)found.dlfo_map_start, (uintptr_t)found.dlfo_map_end };
}

void watch_start(struct watch *watch)
{
	void *frame[1];
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);

	program[length < 0 ? 0 : length] = '\0';
	ours = range_of((const void *)(uintptr_t)&watch_start);
	libc = range_of((const void *)(uintptr_t)&pthread_create);
	/* The first time it loads the unwinder, which may wait and takes memory. */
	backtrace(frame, 1);
	atomic_store_explicit(&the_watch, watch, memory_order_release);
}

void watch_stop(void)
{
	atomic_store_explicit(&the_watch, NULL, memory_order_release);
}

/* ---- Files ---- */

/* Lock free: a thread that loads a library may hold the linker's lock and wait for us. */
static void note_module(struct watch *watch, uintptr_t address)
{
	struct dl_find_object found;
	struct watch_module *module;
	const char *path;

	if (_dl_find_object((void *)address, &found))
		return;
	for (unsigned i = 0; i < WATCH_MODULES; i++) {
		uint64_t start = 0;

		module = &watch->modules[i];
		if (!atomic_compare_exchange_strong(&module->start, &start, (uintptr_t)found.dlfo_map_start)) {
			if (start == (uintptr_t)found.dlfo_map_start)
				return;
			continue;
		}
		path = found.dlfo_link_map->l_name;
		if (!path || !*path)
			path = program;
		module->end = (uintptr_t)found.dlfo_map_end;
		module->bias = found.dlfo_link_map->l_addr;
		strncpy(module->path, path, sizeof(module->path) - 1);
		atomic_store_explicit(&module->ready, 1, memory_order_release);
		return;
	}
}

const struct watch_module *watch_module_of(const struct watch *watch, uint64_t address)
{
	for (unsigned i = 0; i < WATCH_MODULES; i++) {
		const struct watch_module *module = &watch->modules[i];

		if (!atomic_load_explicit(&module->ready, memory_order_acquire))
			continue;
		if (address >= atomic_load_explicit(&module->start, memory_order_relaxed) && address < module->end)
			return module;
	}
	return NULL;
}

/* ---- Stacks ---- */

static uint64_t hash_of(void *const *frames, unsigned count)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (unsigned i = 0; i < count; i++) {
		hash ^= (uintptr_t)frames[i];
		hash *= 0x9e3779b97f4a7c15u;
		hash ^= hash >> 29;
	}
	return hash ? hash : 1;
}

static uint32_t store(struct watch *watch, void *const *frames, unsigned count)
{
	uint64_t hash = hash_of(frames, count);

	for (unsigned i = 0; i < PROBES; i++) {
		uint32_t place = (uint32_t)(hash + i) % WATCH_STACKS;
		struct watch_stack *stack = &watch->stacks[place];
		uint64_t there = atomic_load_explicit(&stack->hash, memory_order_relaxed);

		if (there == hash)
			return place + 1;
		if (there || !atomic_compare_exchange_strong(&stack->hash, &there, hash)) {
			if (there == hash)
				return place + 1;
			continue;
		}
		for (unsigned f = 0; f < count; f++) {
			stack->frames[f] = (uintptr_t)frames[f];
			note_module(watch, (uintptr_t)frames[f] - 1);
		}
		atomic_store_explicit(&stack->count, count, memory_order_release);
		return place + 1;
	}
	return 0;
}

uint32_t watch_stack(void)
{
	struct watch *watch = watch_now();
	void *frames[OWN_FRAMES + WATCH_FRAMES];
	int count, first = 0;

	if (!watch)
		return 0;
	count = backtrace(frames, OWN_FRAMES + WATCH_FRAMES);
	while (first < count && is_within(&ours, (uintptr_t)frames[first]))
		first++;
	/* Our own thread. */
	if (first >= count || is_within(&libc, (uintptr_t)frames[first]))
		return 0;
	count -= first;
	return store(watch, frames + first, (unsigned)(count < WATCH_FRAMES ? count : WATCH_FRAMES));
}

const struct watch_stack *watch_get(const struct watch *watch, uint32_t number)
{
	const struct watch_stack *stack;

	if (!number || number > WATCH_STACKS)
		return NULL;
	stack = &watch->stacks[number - 1];
	return atomic_load_explicit(&stack->count, memory_order_acquire) ? stack : NULL;
}

/* ---- Objects ---- */

/* Keys of both ends of a region are one but for the last bit. */
static uint32_t lkey_of(uint32_t key)
{
	return key & ~1u;
}

static uint32_t place_of_region(uint32_t lkey)
{
	return (lkey * 0x9e3779b1u) >> 18;
}

_Static_assert(WATCH_REGIONS == 1u << (32 - 18), "places of regions");

void watch_region_registered(uint32_t lkey)
{
	struct watch *watch = watch_now();

	if (!watch)
		return;

	struct watch_region *region = &watch->regions[place_of_region(lkey)];

	atomic_store(&region->lkey, 0);
	atomic_store(&region->registered, watch_stack());
	atomic_store(&region->deregistered, 0);
	atomic_store(&region->lkey, lkey);
}

void watch_region_deregistered(uint32_t lkey)
{
	struct watch *watch = watch_now();

	if (!watch)
		return;

	struct watch_region *region = &watch->regions[place_of_region(lkey)];

	if (atomic_load(&region->lkey) == lkey)
		atomic_store(&region->deregistered, watch_stack());
}

void watch_find_region(const struct watch *watch, uint32_t key, struct cause *c)
{
	uint32_t flag = watch == watch_now() ? 0 : CAUSE_STACK_OF_PEER, lkey = lkey_of(key);
	const struct watch_region *region = &watch->regions[place_of_region(lkey)];
	uint32_t registered = atomic_load(&region->registered), deregistered = atomic_load(&region->deregistered);

	if (!key || atomic_load(&region->lkey) != lkey)
		return;
	c->stacks[CAUSE_STACK_REGISTERED] = registered ? registered | flag : 0;
	c->stacks[CAUSE_STACK_DEREGISTERED] = deregistered ? deregistered | flag : 0;
}

void watch_qp_created(uint32_t qpn)
{
	struct watch *watch = watch_now();

	if (!watch)
		return;

	struct watch_qp *qp = &watch->qps[qpn % WATCH_QPS];

	atomic_store(&qp->qpn, 0);
	atomic_store(&qp->created, watch_stack());
	atomic_store(&qp->qpn, qpn);
}

void watch_complete(struct cause *c)
{
	struct watch *watch = watch_now();

	if (!watch)
		return;

	const struct watch_qp *qp = &watch->qps[c->qpn % WATCH_QPS];

	/* A refusal is recorded by who was refused. */
	if (!c->stacks[CAUSE_STACK_CALL] && (c->role == CAUSE_OF_POST || (c->role == CAUSE_OF_OTHER && c->error)))
		c->stacks[CAUSE_STACK_CALL] = watch_stack();
	if (c->qpn && atomic_load(&qp->qpn) == c->qpn)
		c->stacks[CAUSE_STACK_QP] = atomic_load(&qp->created);
}
