/* SPDX-License-Identifier: MIT */
/* Shared receive queues. */
#include "nic/srq.h"

#include <errno.h>
#include <string.h>

#include "nic/keep_errno.h"
#include "nic/visit.h"
#include "observe/trace.h"
#include "observe/watch.h"

int nic_srq_create(struct nic *nic, uint32_t pd, uint32_t max_wr, uint32_t max_sge,
		   struct nic_srq *srq)
{
	KEEP_ERRNO;
	int64_t index = table_alloc(&nic->srqs, NULL, NIC_MAX_SRQ);

	if (index < 0)
		return ENOMEM;
	memset(srq, 0, sizeof(*srq));
	srq->nic = nic;
	srq->index = (uint32_t)index;
	srq->pd = pd;
	srq->shared = &nic->seg->srqs[index];

	int error = segment_commit(nic->seg, nic->seg_fd, srq->shared, sizeof(*srq->shared));

	if (!error)
		error = nic_rq_create(nic, &srq->shared->rq, max_wr, max_sge, &srq->rq);
	if (error) {
		table_free(&nic->srqs, srq->index);
		return error;
	}
	watch_asks((struct watch_asked){ .srqs = 1 });
	srq->shared->pd = pd;
	atomic_store(&srq->shared->exists, 1);
	if (trace_on())
		trace_write(TRACE_SRQ, 0, 0, srq->index, 0, max_wr, 0);
	atomic_store_explicit(&nic->srqs.objects[srq->index], srq, memory_order_release);
	return 0;
}

int nic_srq_destroy(struct nic_srq *srq)
{
	KEEP_ERRNO;
	struct nic *nic = srq->nic;
	bool visited = false;

	if (atomic_load(&srq->users))
		return EBUSY;
	if (!nic_is_orphan(nic)) {
		atomic_store(&srq->shared->exists, 0);
		if (trace_on())
			trace_write(TRACE_SRQ, 0, 0, srq->index, 0, 0, 0);
		pthread_mutex_lock(&nic->lock);
		table_free(&nic->srqs, srq->index);
		pthread_mutex_unlock(&nic->lock);
		visited = !visits_over(nic, NIC_GRACE, NULL);
	}
	nic_rq_destroy(&srq->rq, visited);
	return 0;
}

static void raise_limit(struct nic_srq *srq)
{
	if (srq->events)
		nic_event_raise(srq->events, &(struct ibv_async_event){
						     .element.srq = srq->handle,
						     .event_type = IBV_EVENT_SRQ_LIMIT_REACHED });
}

int nic_srq_arm_limit(struct nic_srq *srq, uint32_t limit)
{
	if (nic_is_orphan(srq->nic))
		return EIO;
	if (limit > srq->rq.max_wr) {
		cause_record(nic_causes(srq->nic), &(struct cause){ .code = CAUSE_SRQ_LIMIT,
								    .error = EINVAL,
								    .qpn = srq->index,
								    .limit = srq->rq.max_wr,
								    .value = limit });
		return EINVAL;
	}
	/* seq_cst: pairs with responder_take(), which moves the head and then looks at the
	 * limit. */
	if (atomic_exchange(&srq->shared->rq.limit, limit) & NIC_LIMIT_FIRED)
		raise_limit(srq);
	/* Armed above what is there already: the event is due at once. */
	nic_srq_recheck_limit(srq);
	return 0;
}

void nic_srq_recheck_limit(struct nic_srq *srq)
{
	uint32_t limit = atomic_load(&srq->shared->rq.limit);

	if (limit && !(limit & NIC_LIMIT_FIRED) && rq_available(&srq->shared->rq) < limit)
		atomic_compare_exchange_strong(&srq->shared->rq.limit, &limit, NIC_LIMIT_FIRED);
	nic_srq_attend(srq);
}

uint32_t nic_srq_limit(const struct nic_srq *srq)
{
	return nic_is_orphan(srq->nic) ? 0 : atomic_load(&srq->shared->rq.limit) & ~NIC_LIMIT_FIRED;
}

int nic_srq_post(struct nic_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	if (nic_is_orphan(srq->nic)) {
		if (bad_wr)
			*bad_wr = wr;
		return EIO;
	}
	return nic_rq_post(&srq->rq, wr, bad_wr, srq->index, CAUSE_SRQ_FULL);
}

void nic_srq_attend(struct nic_srq *srq)
{
	uint32_t fired = NIC_LIMIT_FIRED;

	if (atomic_compare_exchange_strong(&srq->shared->rq.limit, &fired, 0))
		raise_limit(srq);
}
