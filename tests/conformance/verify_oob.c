/* SPDX-License-Identifier: MIT */
/*
 * Out of band: a socket between the two processes. Without one (both nodes in one process) there is
 * nobody to wait for. Reads block without polling any CQ: the NIC has to go on by itself.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "verify.h"

/* What both must agree on at a barrier. */
struct step {
	uint64_t round, plan, value;
};

static void put(struct world *w, const void *buf, size_t len)
{
	if (write(w->oob, buf, len) != (ssize_t)len)
		fail_as(VERDICT_PEER, "the other process has gone");
}

static void get(struct world *w, void *buf, size_t len)
{
	uint8_t *to = buf;
	ssize_t n;

	while (len > 0) {
		n = read(w->oob, to, len);
		if (n <= 0)
			fail_as(VERDICT_PEER, "the other process has gone");
		to += n;
		len -= n;
	}
}

void oob_exchange_hello(struct world *w)
{
	for (unsigned i = 0; i < w->nodes && w->oob >= 0; i++)
		if (w->node[i].mine)
			put(w, &w->node[i].hello, sizeof(w->node[i].hello));
	for (unsigned i = 0; i < w->nodes && w->oob >= 0; i++)
		if (!w->node[i].mine)
			get(w, &w->node[i].hello, sizeof(w->node[i].hello));
}

uint64_t oob_swap(struct world *w, uint64_t value)
{
	const struct step mine = { w->round, w->rng.state, value };
	struct step theirs;

	if (w->oob < 0)
		return 0;
	put(w, &mine, sizeof(mine));
	get(w, &theirs, sizeof(theirs));
	if (mine.round != theirs.round || mine.plan != theirs.plan)
		fail("the two processes' plans differ: a bug of this test");
	return theirs.value;
}

void oob_barrier(struct world *w)
{
	oob_swap(w, 0);
}

bool oob_is_far(int oob)
{
	int domain = AF_UNIX;
	socklen_t length = sizeof(domain);

	return oob >= 0 && !getsockopt(oob, SOL_SOCKET, SO_DOMAIN, &domain, &length) &&
	       domain != AF_UNIX;
}

bool oob_peer_gone(struct world *w)
{
	struct pollfd fd = { .fd = w->oob, .events = POLLRDHUP };

	return w->oob >= 0 && poll(&fd, 1, 0) > 0 && fd.revents & (POLLRDHUP | POLLHUP | POLLERR);
}
