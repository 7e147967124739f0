/* SPDX-License-Identifier: MIT */
/*
 * Counters of a device, in the segment (observe/counter_names.h), and how all counters are added to.
 *
 * These here are written with relaxed adds by the owner's threads or, where the responder's side counts, by initiators: never on
 * the way that most messages go. Read by anyone; nothing is ordered by them, each may be a moment older than another.
 */
#ifndef UROCE_OBSERVE_COUNTERS_H
#define UROCE_OBSERVE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

struct device_counters {
#define COUNTER(name, text) _Atomic uint64_t name;
#define GAUGE		    COUNTER
#include "observe/counter_names.h"
#undef GAUGE
#undef COUNTER
};

static inline void counter_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* For a counter that has one writer at a time. */
static inline void counter_add_alone(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* What happens seldom is counted twice: for the object, modulo 2^32, and for the device. */
static inline void counter_add_event(_Atomic uint32_t *of_object, _Atomic uint64_t *of_device)
{
	atomic_fetch_add_explicit(of_object, 1, memory_order_relaxed);
	counter_add(of_device, 1);
}

#endif
