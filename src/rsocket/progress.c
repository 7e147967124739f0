/* SPDX-License-Identifier: MIT */
/* News about an rsocket, whatever its type. */
#include <poll.h>

#include "rsocket.h"
#include "nic/keep_errno.h"

void progress_quick(struct rsocket *rs)
{
	if (is_stream(rs))
		stream_progress(rs);
	else
		datagram_quick(rs);
}

void progress_all(struct rsocket *rs)
{
	KEEP_ERRNO;
	if (!is_stream(rs)) {
		datagram_progress(rs);
		return;
	}
	/* A listener's events are the service's. */
	if (rs->stream.state != STREAM_LISTENING)
		connect_events(rs);
	stream_progress(rs);
}

static void arm(struct rsocket *rs)
{
	if (!is_stream(rs))
		datagram_arm(rs);
	else if (rs->stream.cq && !rs->stream.armed && ibv_req_notify_cq(rs->stream.cq, 0) == 0)
		rs->stream.armed = true;
}

void progress_arm(struct rsocket *rs)
{
	arm(rs);
	progress_quick(rs);
}

static short connected_poll(const struct rsocket *rs)
{
	const struct stream *stream = &rs->stream;

	return (stream_readable(rs) ? POLLIN : 0) | (stream_writable(rs) ? POLLOUT : 0) | (stream->may_read ? 0 : POLLRDHUP) |
	       (stream->may_read || stream->may_write ? 0 : POLLHUP) | (rs->error ? POLLERR : 0);
}

static short stream_poll(struct rsocket *rs)
{
	switch (rs->stream.state) {
	case STREAM_NEW:
		return POLLOUT | POLLHUP;
	case STREAM_LISTENING:
		return listen_ready(rs) ? POLLIN : 0;
	case STREAM_RESOLVING_ADDRESS:
	case STREAM_RESOLVING_ROUTE:
	case STREAM_CONNECTING:
		return 0;
	case STREAM_CONNECTED:
		return connected_poll(rs);
	case STREAM_CLOSED:
	case STREAM_FAILED:
		break;
	}
	/* That it ended comes after what there is to read: some programs stop at a hang-up. */
	if (rs->stream.head != rs->stream.tail)
		return POLLIN | POLLOUT | POLLRDHUP;
	return POLLIN | POLLOUT | POLLRDHUP | POLLHUP | (rs->error ? POLLERR : 0);
}

/* The names that differ for data of one priority. */
static short with_aliases(short events)
{
	return events | (events & POLLIN ? POLLRDNORM : 0) | (events & POLLOUT ? POLLWRNORM : 0);
}

short progress_poll(struct rsocket *rs, short events)
{
	short all = rs->closed ? POLLNVAL : is_stream(rs) ? stream_poll(rs) : datagram_poll(rs);

	return with_aliases(all) & (events | POLLERR | POLLHUP | POLLNVAL);
}
