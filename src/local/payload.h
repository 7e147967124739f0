/* SPDX-License-Identifier: MIT */
/*
 * The bytes of a message whose memory at both ends is known: copied by ourselves or, where that is
 * not possible, by the target's helper.
 */
#ifndef UROCE_LOCAL_PAYLOAD_H
#define UROCE_LOCAL_PAYLOAD_H

#include "local/walk.h"

/* Goes on moving, at most *budget bytes; within a visit. */
enum transport_outcome payload_move(struct walk *w, uint64_t *budget);

/* Goes on after the helper's answer, which is there; within a visit. */
enum transport_outcome payload_take_answer(struct walk *w);

#endif
