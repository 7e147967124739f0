/* SPDX-License-Identifier: MIT */
/* See observed.h. */
#include "nic/observed.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "nic/descriptor.h"
#include "nic/helper.h"
#include "nic/qp.h"
#include "observe/trace.h"

struct observed {
	struct helper_source source; /* must be first */
	struct trace_ring *ring;
	int ring_fd;
	int connection; /* -1: nobody observes */
};

/* Something came from the observer: he has nothing to say but that he goes. */
static void ready(struct nic *nic, struct helper_source *source)
{
	struct observed *observed = (struct observed *)source;
	char byte;

	if (descriptor_is_ours(observed->connection)) {
		ssize_t n = recv(observed->connection, &byte, 1, MSG_DONTWAIT);

		if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
			return;
	}
	trace_end();
	helper_ignore(nic, observed->connection);
	descriptor_close(observed->connection);
	observed->connection = -1;
}

int observed_prepare(struct nic *nic, int *ring)
{
	struct observed *observed = nic->observed;
	int error;

	if (observed && observed->connection >= 0)
		return EBUSY;
	if (!observed) {
		observed = calloc(1, sizeof(*observed));
		if (!observed)
			return ENOMEM;
		error = trace_make(&observed->ring, &observed->ring_fd, nic->seg->hdr.instance, nic->seg->hdr.comm);
		if (error) {
			free(observed);
			return error;
		}
		observed->source.ready = ready;
		observed->connection = -1;
		nic->observed = observed;
	}
	trace_renew(observed->ring);
	*ring = observed->ring_fd;
	return 0;
}

static void tell_qps(struct nic *nic)
{
	for (uint32_t i = 0; i < nic->qps.fresh; i++) {
		struct nic_qp *qp = nic_qp_get(nic, i);

		if (!qp)
			continue;
		/* The lock: what it becomes next is told after this. */
		nic_lock(&qp->lock);
		nic_qp_trace(qp, (uint8_t)qp->state);
		nic_unlock(&qp->lock);
		nic_qp_put(qp);
	}
}

static void tell_queues(struct nic *nic)
{
	pthread_mutex_lock(&nic->lock);
	for (uint32_t i = 0; i < nic->cqs.fresh; i++) {
		struct nic_cq *cq = table_get(&nic->cqs, i);

		if (cq)
			trace_write(TRACE_CQ, 0, 0, i, 0, cq->capacity, 0);
	}
	for (uint32_t i = 0; i < nic->srqs.fresh; i++) {
		struct nic_srq *srq = table_get(&nic->srqs, i);

		if (srq)
			trace_write(TRACE_SRQ, 0, 0, i, 0, srq->rq.max_wr, 0);
	}
	pthread_mutex_unlock(&nic->lock);
}

void observed_begin(struct nic *nic, int connection, uint32_t snap)
{
	struct observed *observed = nic->observed;

	observed->connection = connection;
	if (helper_watch(nic, connection, &observed->source)) {
		descriptor_close(connection);
		observed->connection = -1;
		return;
	}
	trace_begin(observed->ring, snap);
	tell_queues(nic);
	tell_qps(nic);
}

void observed_start(struct nic *nic)
{
	const char *name = secure_getenv(TRACE_VARIABLE);
	int ring, connection;
	uint32_t snap;

	if (!name || !*name || observed_prepare(nic, &ring))
		return;
	connection = trace_give(name, ring, &snap);
	if (connection >= 0)
		observed_begin(nic, connection, snap);
	else
		observed_stop(nic);
}

void observed_stop(struct nic *nic)
{
	struct observed *observed = nic->observed;

	if (!observed)
		return;
	trace_end();
	if (observed->connection >= 0)
		descriptor_close(observed->connection);
	trace_unmake(observed->ring, observed->ring_fd);
	free(observed);
	nic->observed = NULL;
}
