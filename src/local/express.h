/* SPDX-License-Identifier: MIT */
/*
 * The way that most messages go: over a connection that has carried one before, between memory that
 * is mapped at both ends. It makes every check that the walk makes (initiator.c), each from what the
 * last message left or by one look; and whatever it does not find as it expects, it leaves to the
 * walk, which begins anew or goes on with the receive that was taken.
 */
#ifndef UROCE_LOCAL_EXPRESS_H
#define UROCE_LOCAL_EXPRESS_H

#include "local/walk.h"

/* The walk's message was admitted: the next one need not show all of that again. */
void express_know(struct walk *w);

/* Executes the WQE at the head of the send queue, if this is the way for it. */
bool express(struct walk *w, uint64_t *budget);

#endif
