/* SPDX-License-Identifier: MIT */
/*
 * Threads that spin. What a thread polls for may be brought by one that needs this very processor:
 * a peer, or our own helper. So who does nothing but poll lets others run now and then: too seldom
 * to be felt where processors are plenty. Who computes between its polls keeps its processor.
 */
#ifndef UROCE_NIC_SPIN_H
#define UROCE_NIC_SPIN_H

#include <stdbool.h>

/* The calling thread polled, and found something or did not: then it may lose the processor, and
 * should hold no lock. */
void spin_polled(bool found);

/* Between two looks at something that another thread or process is about to change, of which the
 * caller has made `looks`: spins a little, since that mostly lasts a microsecond, yields, then
 * sleeps for 50 us. */
void spin_relax(unsigned looks);

/* So many looks do not sleep yet. */
#define SPIN_LOOKS 2000

#endif
