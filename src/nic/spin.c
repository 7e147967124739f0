/* SPDX-License-Identifier: MIT */
/* Threads that spin. See spin.h. */
#include "nic/spin.h"

#include <sched.h>
#include <stdint.h>
#include <time.h>

#include "nic/lock.h"
#include "nic/nic.h"

/* So many polls in a row that found nothing, within such a time, are spinning. One takes some 20 ns:
 * a peer that has a processor has answered by then. */
#define SPIN_POLLS 256
#define SPIN_TIME  200000u /* ns */

static NIC_HOT_TLS struct {
	uint32_t polls;
	uint64_t since; /* when the first of them was made, or somewhat before */
} idle;

#define SPINS 1000 /* looks without a system call */

void spin_relax(unsigned looks)
{
	if (looks < SPINS)
		return;
	if (looks < SPIN_LOOKS)
		sched_yield();
	else
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

void spin_polled(bool found)
{
	if (found) {
		idle.polls = 0;
		return;
	}
	if (++idle.polls < SPIN_POLLS)
		return;
	if (nic_now() - idle.since < SPIN_TIME)
		sched_yield();
	idle.polls = 0;
	idle.since = nic_now();
}
