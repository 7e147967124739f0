/* SPDX-License-Identifier: MIT */
/*
 * Completion queues: what an overflow costs and whom, resizing with completions inside, events and
 * who waits for their acknowledgement, and arming beside arrivals.
 *
 * An overflow ends the CQ (specification 11.6.3.2): IBV_EVENT_CQ_ERR, and IBV_EVENT_QP_FATAL for
 * each QP that completes into it, at the end where it happened. What was in the queue may be lost.
 */
#include <pthread.h>
#include <string.h>

#include "strict.h"

enum { FIRST = 0x2000, PLACE = 0x3000, INBOX = 0x8000, GOOD = 16, SMALL_CQ = 4, EVENT_CQ = 5 };

static struct wr good_write(struct world *w, uint64_t id, unsigned flags)
{
	struct wr wr = rdma_wr(id, IBV_WR_RDMA_WRITE, &w->ra, FIRST, GOOD, &w->rb, FIRST);

	wr.flags = flags;
	return wr;
}

static struct wr good_send(struct world *w, uint64_t id, unsigned flags)
{
	struct wr wr = send_wr(id, &w->ra, FIRST, GOOD);

	wr.flags = flags;
	wr.ah = 0;
	wr.qpn = w->b->qpn[0];
	wr.qkey = QKEY;
	return wr;
}

static void post_inbox(struct world *w, unsigned from, unsigned count)
{
	struct wr in[LIST];

	for (unsigned i = 0; i < count; i++)
		in[i] = recv_wr(100 + from + i, &w->rb, INBOX + (from + i) * 0x400, 0x100);
	receive(w->b, 0, in, count);
}

/* ---- Overflow ---- */

static void requesters_cq_overflows(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want, second = want;
	unsigned capacity;
	struct wr out[LIST];
	struct side idle;
	struct cause c;

	(void)arg;
	equal(make_cq(w->a, SMALL_CQ, 3), 0);
	capacity = (unsigned)cq_capacity(w->a, SMALL_CQ);
	check(capacity < LIST, "a CQ of 3 has %u", capacity);
	want.send_cq = second.recv_cq = SMALL_CQ;
	make_pair_with(w, &want, &other, NULL, NULL);
	/* Another user of the CQ, which is idle, and one who is not there yet. */
	equal(make_qp(w->a, 1, &second), 0);
	equal(make_qp(w->a, 2, &second), 0);
	idle = side_default(w->a, 1, IBV_QPT_RC, w->b, 0);
	bring_up(&idle);
	for (unsigned i = 0; i < LIST; i++)
		out[i] = good_write(w, 1 + i, IBV_SEND_SIGNALED);
	post(w->a, 0, out, capacity);
	changes_to(w, w->b, FIRST, GOOD, w->a, FIRST);
	no_event(w->a);
	equal(state_of(w->a, 0), IBV_QPS_RTS);
	post(w->a, 0, out, 1);
	raises(w->a, IBV_EVENT_CQ_ERR, SMALL_CQ);
	equal(state_of(w->a, 0), IBV_QPS_ERR);
	raises(w->a, IBV_EVENT_QP_FATAL, 0);
	raises(w->a, IBV_EVENT_QP_FATAL, 1);
	becomes(w->a, 0, IBV_QPS_ERR);
	becomes(w->a, 1, IBV_QPS_ERR);
	equal(state_of(w->a, 2), IBV_QPS_RESET);
	c = cause_of(w->a, CAUSE_CQ_OVERFLOW);
	equal(c.limit, capacity);
	check(c.count >= 1, "no completion was lost");
	/* Whatever can still be polled. */
	check(drain(w->a, SMALL_CQ) <= capacity, "more than there was room for");
	/* The other end has noticed nothing. */
	equal(state_of(w->b, 0), IBV_QPS_RTS);
}

static void responders_cq_overflows(struct world *w, const void *arg)
{
	const enum ibv_qp_type type = *(const enum ibv_qp_type *)arg;
	struct qp_want want = qp_default(type), other = want;
	struct side a = side_default(w->a, 0, type, w->b, 0);
	unsigned capacity;
	struct wr out[LIST];

	a.timeout = 10;
	a.retries = 2;
	equal(make_cq(w->b, SMALL_CQ, 3), 0);
	capacity = (unsigned)cq_capacity(w->b, SMALL_CQ);
	other.recv_cq = SMALL_CQ;
	make_pair_with(w, &want, &other, &a, NULL);
	post_inbox(w, 0, capacity + 2);
	for (unsigned i = 0; i < LIST; i++) {
		out[i] = good_send(w, 1 + i, IBV_SEND_SIGNALED);
		changes(w, w->b, INBOX + i * 0x400, GRH_BYTES + GOOD);
	}
	post(w->a, 0, out, capacity);
	for (unsigned i = 0; i < capacity; i++)
		completes(w->a, SEND_CQ, 1 + i, IBV_WC_SUCCESS);
	no_event(w->b);
	/* This one arrives and cannot be told. */
	post(w->a, 0, out, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	raises(w->b, IBV_EVENT_CQ_ERR, SMALL_CQ);
	equal(state_of(w->b, 0), IBV_QPS_ERR);
	raises(w->b, IBV_EVENT_QP_FATAL, 0);
	becomes(w->b, 0, IBV_QPS_ERR);
	equal(cause_of(w->b, CAUSE_CQ_OVERFLOW).limit, capacity);
	post(w->a, 0, out, 1);
	if (type == IBV_QPT_RC) {
		says(completes(w->a, SEND_CQ, 1, IBV_WC_RETRY_EXC_ERR),
		      CAUSE_PEER_QP_STATE);
		equal(state_of(w->a, 0), IBV_QPS_ERR);
	} else {
		completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
		equal(state_of(w->a, 0), IBV_QPS_RTS);
	}
}

/* A CQ that is polled in time takes any number. */
static void cq_that_is_polled_does_not_overflow(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct wr out[LIST];
	unsigned capacity;

	(void)arg;
	equal(make_cq(w->a, SMALL_CQ, 3), 0);
	capacity = (unsigned)cq_capacity(w->a, SMALL_CQ);
	want.send_cq = SMALL_CQ;
	make_pair_with(w, &want, &other, NULL, NULL);
	for (unsigned i = 0; i < capacity; i++)
		out[i] = good_write(w, 1 + i, IBV_SEND_SIGNALED);
	for (unsigned round = 0; round < 50; round++) {
		post(w->a, 0, out, capacity);
		for (unsigned i = 0; i < capacity; i++)
			completes(w->a, SMALL_CQ, 1 + i, IBV_WC_SUCCESS);
	}
	changes_to(w, w->b, FIRST, GOOD, w->a, FIRST);
}

/* ---- Resize ---- */

static void resizing_keeps_what_is_inside(struct world *w, const void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct wr out[LIST];
	struct cause c;

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	changes_to(w, w->b, FIRST, GOOD, w->a, FIRST);
	for (unsigned i = 0; i < LIST; i++)
		out[i] = good_write(w, 1 + i, i == 7 ? IBV_SEND_SIGNALED : 0);
	/* Six completions lie in the queue when the seventh has been begun, and what was begun has ended. */
	for (unsigned i = 0; i < 6; i++)
		out[i].flags = IBV_SEND_SIGNALED;
	out[6].remote += GOOD;
	post(w->a, 0, out, 7);
	changes_to(w, w->b, FIRST + GOOD, GOOD, w->a, FIRST);
	while (!has_content(w->b, addr_of(w->b, FIRST + GOOD), GOOD, w->a, FIRST))
		pause_ms(1);
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	raises(w->a, IBV_EVENT_SQ_DRAINED, 0);
	attr.qp_state = IBV_QPS_RTS;
	equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	equal(resize_cq(w->a, SEND_CQ, 5), EINVAL);
	c = refused_with(w->a, CAUSE_RESIZE_TOO_SMALL, EINVAL);
	equal(c.limit, 5);
	equal(c.value, 6);
	equal(cq_capacity(w->a, SEND_CQ) >= 64, true);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
	equal(resize_cq(w->a, SEND_CQ, 5), 0);
	check(cq_capacity(w->a, SEND_CQ) >= 5, "resized to less than was asked for");
	completes(w->a, SEND_CQ, 2, IBV_WC_SUCCESS);
	equal(resize_cq(w->a, SEND_CQ, 1000), 0);
	check(cq_capacity(w->a, SEND_CQ) >= 1000, "resized to less than was asked for");
	equal(resize_cq(w->a, SEND_CQ, 64), 0);
	for (unsigned id = 3; id <= 6; id++)
		completes(w->a, SEND_CQ, id, IBV_WC_SUCCESS);
	silent(w->a, SEND_CQ);
	out[7].id = 8;
	post(w->a, 0, out + 7, 1);
	completes(w->a, SEND_CQ, 8, IBV_WC_SUCCESS);
}

static void absurd_sizes_are_refused(struct world *w, const void *arg)
{
	(void)arg;
	equal(resize_cq(w->a, SEND_CQ, 0), EINVAL);
	refused_with(w->a, CAUSE_CREATE_LIMIT, EINVAL);
	equal(resize_cq(w->a, SEND_CQ, -1), EINVAL);
	refused_with(w->a, CAUSE_CREATE_LIMIT, EINVAL);
	equal(resize_cq(w->a, SEND_CQ, INT32_MAX), EINVAL);
	refused_with(w->a, CAUSE_CREATE_LIMIT, EINVAL);
	equal(make_cq(w->a, SMALL_CQ, 0), EINVAL);
	refused_with(w->a, CAUSE_CREATE_LIMIT, EINVAL);
	equal(make_cq(w->a, SMALL_CQ, INT32_MAX), EINVAL);
	refused_with(w->a, CAUSE_CREATE_LIMIT, EINVAL);
	equal(make_srq(w->a, 0, 0, 0, 1), EINVAL);
	refused_with(w->a, CAUSE_CREATE_LIMIT, EINVAL);
	equal(make_srq(w->a, 0, 0, UINT32_MAX, 1), EINVAL);
	refused_with(w->a, CAUSE_CREATE_LIMIT, EINVAL);
	equal(make_srq(w->a, 0, 0, 8, UINT32_MAX), EINVAL);
	refused_with(w->a, CAUSE_CREATE_LIMIT, EINVAL);
}

/* ---- Arming ---- */

static void pair_with_events(struct world *w)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;

	equal(make_cq_with_events(w->b, EVENT_CQ, 16), 0);
	other.recv_cq = EVENT_CQ;
	make_pair_with(w, &want, &other, NULL, NULL);
	post_inbox(w, 0, 8);
	for (unsigned i = 0; i < 8; i++)
		changes_to(w, w->b, INBOX + i * 0x400, GOOD, w->a, FIRST);
}

static void deliver(struct world *w, unsigned flags)
{
	struct wr out = good_send(w, 1, IBV_SEND_SIGNALED | flags);

	post(w->a, 0, &out, 1);
	completes(w->a, SEND_CQ, 1, IBV_WC_SUCCESS);
}

static bool event_comes(struct world *w)
{
	return read_event(w->b, EVENT_CQ, WAIT_MS, true);
}

static bool event_is_there(struct world *w)
{
	return read_event(w->b, EVENT_CQ, 3, true);
}

static void take_one(struct world *w, unsigned i)
{
	completes(w->b, EVENT_CQ, 100 + i, IBV_WC_SUCCESS);
}

static void give_all(struct world *w, unsigned from)
{
	/* The rest of the receives, so that what may change has changed. */
	for (unsigned i = from; i < 8; i++) {
		deliver(w, 0);
		take_one(w, i);
	}
}

static void arming_tells_of_what_comes_later(struct world *w, const void *arg)
{
	(void)arg;
	pair_with_events(w);
	/* Not armed: no event. */
	deliver(w, 0);
	check(!event_is_there(w), "an event without arming");
	/* Armed with a completion inside: that one is not new. */
	equal(arm_cq(w->b, EVENT_CQ, false), 0);
	check(!event_is_there(w), "an event for what was there before");
	take_one(w, 0);
	/* Armed twice and told once. */
	equal(arm_cq(w->b, EVENT_CQ, false), 0);
	deliver(w, 0);
	check(event_comes(w), "no event");
	deliver(w, 0);
	check(!event_is_there(w), "a second event for one arming");
	take_one(w, 1);
	take_one(w, 2);
	/* Arming is over. */
	deliver(w, 0);
	check(!event_is_there(w), "an event without arming again");
	take_one(w, 3);
	give_all(w, 4);
}

static void solicited_events_are_for_solicited_messages(struct world *w, const void *arg)
{
	(void)arg;
	pair_with_events(w);
	equal(arm_cq(w->b, EVENT_CQ, true), 0);
	deliver(w, 0);
	check(!event_is_there(w), "an event for what was not solicited");
	deliver(w, IBV_SEND_SOLICITED);
	check(event_comes(w), "no event for what was solicited");
	take_one(w, 0);
	take_one(w, 1);
	/* All stays all, whoever asks for less afterwards. */
	equal(arm_cq(w->b, EVENT_CQ, false), 0);
	equal(arm_cq(w->b, EVENT_CQ, true), 0);
	deliver(w, 0);
	check(event_comes(w), "arming for solicited ones has weakened arming for all");
	take_one(w, 2);
	/* The other way it becomes more. */
	equal(arm_cq(w->b, EVENT_CQ, true), 0);
	equal(arm_cq(w->b, EVENT_CQ, false), 0);
	deliver(w, 0);
	check(event_comes(w), "arming for all has no effect after arming for solicited ones");
	take_one(w, 3);
	give_all(w, 4);
}

static void errors_count_as_solicited(struct world *w, const void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	(void)arg;
	pair_with_events(w);
	give_all(w, 0);
	post_inbox(w, 0, 2);
	equal(arm_cq(w->b, EVENT_CQ, true), 0);
	equal(modify_qp(w->b, 0, &attr, IBV_QP_STATE), 0);
	check(event_comes(w), "no event for a flushed receive");
	completes(w->b, EVENT_CQ, 100, IBV_WC_WR_FLUSH_ERR);
	completes(w->b, EVENT_CQ, 101, IBV_WC_WR_FLUSH_ERR);
}

/* A sleeping receiver: arm, poll until empty, sleep. Whatever the moment, it is woken for each
 * message. */
enum { MESSAGES = 300 };

static pthread_t sleeper[2];

static void *sleep_and_receive(void *arg)
{
	struct node *n = arg;
	struct ibv_sge sge = { addr_of(n, INBOX), 0x100, n->mr[0]->lkey };
	unsigned got = 0, events = 0;

	while (got < MESSAGES) {
		struct ibv_cq *cq;
		void *context;
		struct ibv_wc wc;

		equal(ibv_req_notify_cq(n->cq[EVENT_CQ], 0), 0);
		while (ibv_poll_cq(n->cq[EVENT_CQ], 1, &wc) == 1) {
			struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

			equal(wc.status, IBV_WC_SUCCESS);
			equal(ibv_post_recv(n->qp[0], &wr, &bad), 0);
			got++;
		}
		if (got == MESSAGES)
			break;
		equal(ibv_get_cq_event(n->channel, &cq, &context), 0);
		events++;
	}
	ibv_ack_cq_events(n->cq[EVENT_CQ], events);
	return NULL;
}

static void do_start_sleeper(struct node *n, void *arg)
{
	(void)arg;
	equal(pthread_create(&sleeper[n->id], NULL, sleep_and_receive, n), 0);
}

static void do_join_sleeper(struct node *n, void *arg)
{
	(void)arg;
	equal(pthread_join(sleeper[n->id], NULL), 0);
}

static void receiver_that_sleeps_is_woken_each_time(struct world *w, const void *arg)
{
	struct qp_want want = qp_default(IBV_QPT_RC), other = want;
	struct wr in[LIST], out;
	uint8_t no = 0;

	(void)arg;
	equal(make_cq_with_events(w->b, EVENT_CQ, 16), 0);
	other.recv_cq = EVENT_CQ;
	make_pair_with(w, &want, &other, NULL, NULL);
	for (unsigned i = 0; i < 8; i++)
		in[i] = recv_wr(0, &w->rb, INBOX, 0x100);
	receive(w->b, 0, in, 8);
	at(w->b, do_start_sleeper, &no, sizeof(no));
	for (unsigned i = 0; i < MESSAGES; i++) {
		uint64_t until = now_ns() + i * 7919 % 200000;

		out = good_send(w, 1 + i, IBV_SEND_SIGNALED);
		post(w->a, 0, &out, 1);
		completes(w->a, SEND_CQ, 1 + i, IBV_WC_SUCCESS);
		while (now_ns() < until)
			;
	}
	at(w->b, do_join_sleeper, &no, sizeof(no));
	changes_to(w, w->b, INBOX, GOOD, w->a, FIRST);
}

/* ---- Acknowledgement ---- */

struct late_acknowledgement {
	struct node *n;
	bool async, acknowledged;
	struct ibv_async_event event;
};

static void *acknowledge_late(void *arg)
{
	struct late_acknowledgement *late = arg;

	pause_ms(50);
	__atomic_store_n(&late->acknowledged, true, __ATOMIC_SEQ_CST);
	if (late->async)
		ibv_ack_async_event(&late->event);
	else
		ibv_ack_cq_events(late->n->cq[EVENT_CQ], 1);
	return NULL;
}

static void do_destroy_beside_acknowledgement(struct node *n, void *arg)
{
	struct late_acknowledgement late = { .n = n, .async = *(bool *)arg };
	pthread_t thread;

	if (late.async) {
		equal(ibv_get_async_event(n->ctx, &late.event), 0);
		equal(late.event.event_type, IBV_EVENT_SQ_DRAINED);
	}
	equal(pthread_create(&thread, NULL, acknowledge_late, &late), 0);
	equal(ibv_destroy_qp(n->qp[0]), 0);
	n->qp[0] = NULL;
	if (!late.async) {
		equal(ibv_destroy_cq(n->cq[EVENT_CQ]), 0);
		n->cq[EVENT_CQ] = NULL;
	}
	check(__atomic_load_n(&late.acknowledged, __ATOMIC_SEQ_CST),
	      "destroyed before the event was acknowledged");
	equal(pthread_join(thread, NULL), 0);
}

static void destroying_a_cq_waits_for_acknowledgements(struct world *w, const void *arg)
{
	bool async = false;

	(void)arg;
	pair_with_events(w);
	equal(arm_cq(w->b, EVENT_CQ, false), 0);
	deliver(w, 0);
	check(read_event(w->b, EVENT_CQ, WAIT_MS, false), "no event");
	give_all(w, 8);
	take_one(w, 0);
	for (unsigned i = 1; i < 8; i++)
		changes(w, w->b, INBOX + i * 0x400, GOOD);
	at(w->b, do_destroy_beside_acknowledgement, &async, sizeof(async));
}

static void destroying_a_qp_waits_for_acknowledgements(struct world *w, const void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	bool async = true;

	(void)arg;
	make_pair(w, IBV_QPT_RC);
	equal(modify_qp(w->b, 0, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	at(w->b, do_destroy_beside_acknowledgement, &async, sizeof(async));
}

void add_completion(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	static const char *const names[] = { "rc", "uc", "ud" };

	add_case("completion", requesters_cq_overflows, NULL, "overflow/requesters");
	for (unsigned i = 0; i < 3; i++)
		add_case("completion", responders_cq_overflows, &types[i], "overflow/responders/%s",
			 names[i]);
	add_case("completion", cq_that_is_polled_does_not_overflow, NULL,
		 "overflow/not-when-it-is-polled");
	add_case("completion", resizing_keeps_what_is_inside, NULL, "resize/keeps-what-is-inside");
	add_case("completion", absurd_sizes_are_refused, NULL, "absurd-sizes");
	add_case("completion", arming_tells_of_what_comes_later, NULL,
		 "arm/tells-of-what-comes-later");
	add_case("completion", solicited_events_are_for_solicited_messages, NULL, "arm/solicited");
	add_case("completion", errors_count_as_solicited, NULL, "arm/errors-count-as-solicited");
	add_case("completion", receiver_that_sleeps_is_woken_each_time, NULL,
		 "arm/receiver-that-sleeps-is-woken-each-time");
	add_case("completion", destroying_a_cq_waits_for_acknowledgements, NULL,
		 "acknowledgement/destroying-a-cq-waits");
	add_case("completion", destroying_a_qp_waits_for_acknowledgements, NULL,
		 "acknowledgement/destroying-a-qp-waits");
}
