/* SPDX-License-Identifier: MIT */
/*
 * pthread_cancel(3). Verbs are no cancellation points on hardware, and a thread that ended inside one would keep its locks for ever.
 * The C library's functions that are cancellation points run with cancellation disabled in these libraries, wherever they are
 * called: the linker puts the functions of nic/uncancelled.c in their place. Those of the program's calls that wait for as long as
 * it takes, as read(2) does, allow it around that one wait, with nothing held or with a handler that gives it back.
 *
 * Cancellation of the asynchronous type may strike anywhere and is not supported, as in any library that has locks.
 */
#ifndef UROCE_NIC_CANCEL_H
#define UROCE_NIC_CANCEL_H

#include <stdbool.h>

#include "nic/lock.h"

/* The calling thread may be cancelled in the calls that it makes now. One for each library. */
extern NIC_HOT_TLS bool cancel_allowed __attribute__((visibility("hidden")));

#endif
