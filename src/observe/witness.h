/* SPDX-License-Identifier: MIT */
/*
 * UROCE_WITNESS: the abstract unix socket (datagrams) of a process that wants to see the segments of those that it starts:
 * `uroce explain -- PROGRAM`. It gets a descriptor of each, and so has what is in it when its owner has crashed.
 */
#ifndef UROCE_OBSERVE_WITNESS_H
#define UROCE_OBSERVE_WITNESS_H

#include <stdbool.h>

#define WITNESS_VARIABLE "UROCE_WITNESS"

/* Shows the witness, if there is one, a new segment. A witness that is busy is waited for a moment. */
void witness_show(int segment);

/* Whether there is one. */
bool witness_is_there(void);

/* A socket for witnessing, and the name to be put into the variable (of at least 64 bytes). -1 with errno. */
int witness_open(char *name);

/* The next segment that a process of this user has shown; -1 if none waits. */
int witness_next(int socket);

#endif
