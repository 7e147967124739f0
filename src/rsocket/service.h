/* SPDX-License-Identifier: MIT */
/*
 * The service thread: what has to happen while the program is in no call about its rsockets. It calls for descriptors that are
 * readable; there is one for the process, from the first that asks for it on, and it sleeps in epoll.
 *
 * Its lock is held during calls, and is taken before any rsocket's. It is recursive.
 */
#ifndef UROCE_RSOCKET_SERVICE_H
#define UROCE_RSOCKET_SERVICE_H

struct rsocket;
struct service;

void service_lock(void);
void service_unlock(void);
/* With the lock held, as all below. call(rs): the descriptor is readable. */
int service_add(int fd, void (*call)(struct rsocket *rs), struct rsocket *rs, struct service **service);
void service_pause(struct service *service);
void service_resume(struct service *service);
/* It is not called any more. NULL: nothing. */
void service_remove(struct service *service);

#endif
