/* SPDX-License-Identifier: MIT */
/* Asynchronous events: handing them out and taking the acknowledgements, for which destroying an object waits. */
#include "verbs/verbs.h"

EXPORT(get_async_event, 1.1);
EXPORT(ack_async_event, 1.1);

enum subject { ABOUT_PORT, ABOUT_CQ, ABOUT_QP, ABOUT_SRQ };

static enum subject subject_of(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return ABOUT_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return ABOUT_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return ABOUT_SRQ;
	default:
		return ABOUT_PORT;
	}
}

void event_handed_out(const struct ibv_async_event *event)
{
	switch (subject_of(event->event_type)) {
	case ABOUT_CQ:
		to_cq(event->element.cq)->async_events_read++;
		break;
	case ABOUT_QP:
		to_qp(event->element.qp)->events_read++;
		break;
	case ABOUT_SRQ:
		to_srq(event->element.srq)->events_read++;
		break;
	case ABOUT_PORT:
		break;
	}
}

int verb_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct verbs_ctx *ctx = to_ctx(context);

	if (is_forked(ctx)) {
		refuse(ctx, EIO, CAUSE_FORKED);
		return -1;
	}
	return nic_event_wait(&ctx->events, event);
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	(*completed)++;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

void verb_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_cq *cq = event->element.cq;
	struct ibv_qp *qp = event->element.qp;
	struct ibv_srq *srq = event->element.srq;
	enum subject subject = subject_of(event->event_type);

	/* All three begin with their context. */
	if (subject == ABOUT_PORT || is_forked(to_ctx(cq->context)))
		return;
	switch (subject) {
	case ABOUT_CQ:
		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case ABOUT_QP:
		acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	case ABOUT_SRQ:
		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	case ABOUT_PORT:
		break;
	}
}
