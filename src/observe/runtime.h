/* SPDX-License-Identifier: MIT */
/*
 * The user's directory for files of ours that outlive a process: $UROCE_RUNTIME_DIR, or /dev/shm/uroce-UID.
 */
#ifndef UROCE_OBSERVE_RUNTIME_H
#define UROCE_OBSERVE_RUNTIME_H

#include <stdbool.h>

/* Its path, whether it exists or not. Lives for ever, or as long as the variable stays. */
const char *runtime_directory(void);

/* Whether UROCE_RUNTIME_DIR is one; unset or empty is. One that is relative would be another place for each program. */
bool runtime_parse(const char *setting);

/* Opens it, and makes it if it is not there; -1 if it cannot be, or is not this user's alone. */
int runtime_open(void);

#endif
