/* SPDX-License-Identifier: MIT */
/*
 * A guard holds the threads that write to a range of memory, where no userfaultfd does that: the range is read-only for a
 * moment, and a handler of SIGSEGV lets who writes there wait until the moment is over. Other faults go to the program's own
 * handler. A system call that writes there meanwhile fails with EFAULT, and a thread that has SIGSEGV blocked would be
 * killed, so a guard is for processes whose other threads sleep elsewhere: threads_sleep().
 */
#ifndef UROCE_NIC_GUARD_H
#define UROCE_NIC_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "nic/threads.h"

/* Makes whole pages [start, end) of protection prot read-only, and holds who writes there. One at a time in a process.
 * False, and nothing is done, when that is refused. */
bool guard_begin(uint64_t start, uint64_t end, int prot);

/* Who was held goes on: something else has taken the place or, with restore, it is as it was. */
void guard_end(const struct threads *threads, bool restore);

#endif
