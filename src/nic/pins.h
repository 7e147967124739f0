/* SPDX-License-Identifier: MIT */
/* Pins: memory of this process that the kernel or a device reaches by its physical pages. */
#ifndef UROCE_NIC_PINS_H
#define UROCE_NIC_PINS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether there may be some that outlast a system call, as far as /proc/self tells: memory is pinned, or what pins memory
 * without saying so is open (asynchronous I/O, io_uring, VFIO, a GPU's driver). */
bool pins_are_possible(void);

/* Whether an io_uring has fixed a buffer that reaches into [start, end). */
bool pins_of_rings(uint64_t start, uint64_t end);

/* Whether some is locked (mlock(2)), and would not be in another place. */
bool memory_is_locked(void);

#endif
