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

#endif
