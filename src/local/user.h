/* SPDX-License-Identifier: MIT */
/*
 * Users: with whom this process shares memory. Who does can change the other's segment at will, so both must be able to do the
 * same: they opened their device as one user, and have the same real, effective and saved user now. A daemon that opened it as root
 * and then became somebody else meets others that did so too, and not those who have been that somebody from the start.
 *
 * All of this is the kernel's word, not the peer's. What changes after they have met is not looked at again, as with an open file.
 */
#ifndef UROCE_LOCAL_USER_H
#define UROCE_LOCAL_USER_H

#include <stdbool.h>
#include <sys/socket.h>

#include "observe/cause.h"

/* Whether the process behind a connection may be given our segment: CAUSE_NONE, CAUSE_PEER_OTHER_USER, or why that cannot be found
 * out. accepted: it has connected to us, else we to a socket that it made when it opened its device. ours: our segment's descriptor;
 * theirs: its, or -1 while we do not have it. *cred becomes who connected, or listens. */
enum cause_code user_check(int connection, bool accepted, int ours, int theirs, struct ucred *cred);

/* Who sent a datagram that came by a socket with SO_PASSCRED: the real user, as the kernel writes it. false: it does not say. */
bool user_sent(struct msghdr *message, uid_t *user);

#endif
