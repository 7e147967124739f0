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
		if (!atomic_compare_exchange_strong(&module->start, &start,
						    (uintptr_t)found.dlfo_map_start)) {
			if (start == (uintptr_t)found.dlfo_map_start)
				return;
			continue;
		}
		path = found.dlfo_link_map->l_name;
		if (!path || !*path)
			path = program;
		module->end = (uintptr_t)found.dlfo_map_end;
		module->bias = found.dlfo_link_map->l_addr;
		memcpy(module->path, path, strnlen(path, sizeof(module->path) - 1));
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
		if (address >= atomic_load_explicit(&module->start, memory_order_relaxed) &&
		    address < module->end)
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
	return store(watch, frames + first,
		     (unsigned)(count < WATCH_FRAMES ? count : WATCH_FRAMES));
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
	uint32_t registered = atomic_load(&region->registered),
		 deregistered = atomic_load(&region->deregistered);

	if (!key || atomic_load(&region->lkey) != lkey)
		return;
	c->stacks[CAUSE_STACK_REGISTERED] = registered ? registered | flag : 0;
	c->stacks[CAUSE_STACK_DEREGISTERED] = deregistered ? deregistered | flag : 0;
}

/* NULL: nobody watches, or another has its place by now. */
static struct watch_qp *find_qp(uint32_t qpn)
{
	struct watch *watch = watch_now();
	struct watch_qp *qp = watch ? &watch->qps[qpn % WATCH_QPS] : NULL;

	return qp && atomic_load_explicit(&qp->qpn, memory_order_relaxed) == qpn ? qp : NULL;
}

static struct watch_cq *find_cq(uint32_t index)
{
	struct watch *watch = watch_now();
	struct watch_cq *cq = watch ? &watch->cqs[index % WATCH_CQS] : NULL;

	return cq && atomic_load_explicit(&cq->name, memory_order_relaxed) == index + 1 ? cq : NULL;
}

static void raise_to(uint32_t *most, uint32_t value)
{
	if (value > *most)
		*most = value;
}

static void feed(uint32_t index, uint32_t requests)
{
	struct watch_cq *cq = find_cq(index);

	if (!cq)
		return;
	cq->fed += requests;
	raise_to(&cq->most_fed, cq->fed);
}

void watch_qp_created(const struct watch_qp *made, bool has_srq)
{
	struct watch *watch = watch_now();
	struct watch_cq *cq = find_cq(made->recv_cq);

	if (!watch)
		return;

	struct watch_qp *qp = &watch->qps[made->qpn % WATCH_QPS];
	uint32_t qpn = made->qpn;

	atomic_store(&qp->qpn, 0);
	*qp = *made;
	atomic_store(&qp->qpn, 0);
	atomic_store(&qp->created, watch_stack());
	feed(qp->send_cq, qp->max_send_wr);
	feed(qp->recv_cq, qp->max_recv_wr);
	if (cq && has_srq)
		cq->has_srq = 1;
	atomic_store(&qp->qpn, qpn);
}

static void use_receives(struct watch_qp *qp, uint32_t available)
{
	if (qp->most_posted > available)
		raise_to(&qp->most_used, qp->most_posted - available);
}

void watch_qp_ended(uint32_t qpn, uint32_t available)
{
	struct watch_qp *qp = find_qp(qpn);

	if (!qp)
		return;
	use_receives(qp, available);
	feed(qp->send_cq, -qp->max_send_wr);
	feed(qp->recv_cq, -qp->max_recv_wr);
}

void watch_qp_connected(uint32_t qpn, uint32_t peer_qpn, uint32_t rd_atomic)
{
	struct watch_qp *qp = find_qp(qpn);

	if (qp && peer_qpn)
		qp->peer_qpn = peer_qpn;
	watch_asks((struct watch_asked){ .rd_atomic = rd_atomic });
}

void watch_posted(uint32_t qpn, uint32_t requests, uint32_t signaled, bool atomic, uint64_t seen)
{
	struct watch_qp *qp = find_qp(qpn);

	if (!qp || !requests)
		return;
	if (atomic)
		watch_now()->asked.atomics = 1;
	if (qp->calls && qp->seen == seen) {
		qp->calls_in_row++;
		qp->row += requests;
	} else {
		qp->row = requests;
	}
	raise_to(&qp->longest_row, qp->row);
	qp->seen = seen;
	qp->calls++;
	qp->requests += requests;
	qp->signaled += signaled;
}

void watch_received(uint32_t qpn, uint32_t before, uint32_t after, uint64_t room, bool dry)
{
	struct watch_qp *qp = find_qp(qpn);

	if (!qp)
		return;
	use_receives(qp, before);
	if (dry)
		raise_to(&qp->most_when_dry, qp->most_posted);
	raise_to(&qp->most_posted, after);
	if (room > qp->room)
		qp->room = room;
}

void watch_waits(uint32_t qpn, uint64_t now, uint32_t waiting)
{
	struct watch_qp *qp = find_qp(qpn);

	if (!qp)
		return;
	qp->waits_since = now;
	raise_to(&qp->most_waiting, waiting);
}

void watch_waited(uint32_t qpn, uint64_t now, uint32_t waiting, uint64_t late, uint64_t lost, uint64_t timer)
{
	struct watch_qp *qp = find_qp(qpn);

	if (!qp || !qp->waits_since)
		return;
	raise_to(&qp->most_waiting, waiting);
	qp->waits++;
	qp->waited += now - qp->waits_since;
	qp->late += late;
	qp->lost += lost;
	qp->timer = timer;
	qp->waits_since = 0;
}

void watch_cq_created(uint32_t index, uint32_t cqe)
{
	struct watch *watch = watch_now();

	if (!watch)
		return;

	struct watch_cq *cq = &watch->cqs[index % WATCH_CQS];

	*cq = (struct watch_cq){ .name = index + 1, .created = watch_stack(), .cqe = cqe };
	watch_asks((struct watch_asked){ .cqe = cqe });
}

void watch_cq_armed(uint32_t index, uint32_t waiting, uint64_t now)
{
	struct watch_cq *cq = find_cq(index);

	if (!cq)
		return;
	cq->armed_at = now;
	atomic_store(&cq->armed_over, waiting);
}

void watch_cq_polled(uint32_t index)
{
	struct watch_cq *cq = find_cq(index);

	if (cq)
		atomic_store(&cq->armed_over, 0);
}

uint32_t watch_cq_forgotten(uint32_t index, uint64_t *armed_at)
{
	struct watch_cq *cq = find_cq(index);

	if (!cq)
		return 0;
	*armed_at = cq->armed_at;
	return atomic_load(&cq->armed_over);
}

void watch_cq_ended(uint32_t index, uint32_t high)
{
	struct watch_cq *cq = find_cq(index);

	if (!cq)
		return;
	cq->high = high;
	cq->ended = 1;
}

void watch_asks(struct watch_asked asked)
{
	struct watch *watch = watch_now();

	if (!watch)
		return;
	raise_to(&watch->asked.send_wr, asked.send_wr);
	raise_to(&watch->asked.recv_wr, asked.recv_wr);
	raise_to(&watch->asked.send_sge, asked.send_sge);
	raise_to(&watch->asked.recv_sge, asked.recv_sge);
	raise_to(&watch->asked.inline_bytes, asked.inline_bytes);
	raise_to(&watch->asked.rd_atomic, asked.rd_atomic);
	raise_to(&watch->asked.cqe, asked.cqe);
	watch->asked.srqs += asked.srqs;
}

void watch_complete(struct cause *c)
{
	struct watch *watch = watch_now();

	if (!watch)
		return;

	const struct watch_qp *qp = &watch->qps[c->qpn % WATCH_QPS];

	/* A refusal is recorded by who was refused. */
	if (!c->stacks[CAUSE_STACK_CALL] &&
	    (c->role == CAUSE_OF_POST || (c->role == CAUSE_OF_OTHER && c->error)))
		c->stacks[CAUSE_STACK_CALL] = watch_stack();
	if (c->qpn && atomic_load(&qp->qpn) == c->qpn)
		c->stacks[CAUSE_STACK_QP] = atomic_load(&qp->created);
	if (c->code == CAUSE_CQ_OVERFLOW || c->code == CAUSE_CQ_EVENT_LOST || c->code == CAUSE_RESIZE_TOO_SMALL) {
		const struct watch_cq *cq = find_cq(c->qpn);

		c->stacks[CAUSE_STACK_QP] = 0; /* the number is not of one */
		c->stacks[CAUSE_STACK_CQ] = cq ? cq->created : 0;
	}
}
