/* SPDX-License-Identifier: MIT */
/*
 * The local transport: the initiator's thread walks the message through the target's segment
 * (nic/responder.h) and moves the payload (local/memory.h, local/assist.h). Its entry points are
 * local_transport (nic/transport.h) and these.
 */
#ifndef UROCE_LOCAL_INITIATOR_H
#define UROCE_LOCAL_INITIATOR_H

#include "local/attach.h"

/* Helper: a process has ended; what it took of our receive queues and left is repaired. */
void initiator_peer_died(struct nic *nic, struct peer *peer);

#endif
