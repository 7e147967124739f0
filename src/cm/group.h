/* SPDX-License-Identifier: MIT */
/* Multicast groups of an id. */
#ifndef UROCE_CM_GROUP_H
#define UROCE_CM_GROUP_H

#include "cm/engine.h"

/* An event about it is being handed out: the context that the caller gave with it. */
void *group_event_read(struct cm_group *group);

#endif
