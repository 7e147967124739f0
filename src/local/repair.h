/* SPDX-License-Identifier: MIT */
/* Repair: what a process that died had taken of our receive queues, and had not yet told us. */
#ifndef UROCE_LOCAL_REPAIR_H
#define UROCE_LOCAL_REPAIR_H

#include "local/attach.h"

/* Helper: a process has ended. */
void repair_after(struct nic *nic, struct peer *peer);

#endif
