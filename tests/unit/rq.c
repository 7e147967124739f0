/* SPDX-License-Identifier: MIT */
/* The receive FIFO's protocol: post, take, repost, laps; and the SRQ's limit. */
#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#define LAP_SHIFT 41 /* nic/layout.h */

struct queue {
	struct nic *nic;
	struct nic_srq srq;
	struct nic_rq *rq;
	struct seg_rq *shared;
};

static void open_queue(void **state, struct queue *q, uint32_t max_wr, uint32_t max_sge)
{
	memset(q, 0, sizeof(*q));
	q->nic = *state;
	assert_int_equal(nic_srq_create(q->nic, UNIT_PD, max_wr, max_sge, &q->srq), 0);
	q->rq = &q->srq.rq;
	q->shared = &q->srq.shared->rq;
}

static void close_queue(struct queue *q)
{
	assert_int_equal(nic_srq_destroy(&q->srq), 0);
}

static int post_of(struct queue *q, uint64_t wr_id, uint32_t length)
{
	struct ibv_sge sge = { .length = length };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = length ? 1 : 0 },
			   *bad = NULL;
	int error = nic_srq_post(&q->srq, &wr, &bad);

	assert_true(error ? bad == &wr : !bad);
	return error;
}

static void post(struct queue *q, uint64_t wr_id)
{
	assert_int_equal(post_of(q, wr_id, 0), 0);
}

static enum rq_answer take(struct queue *q, uint64_t need, struct rq_taken *taken)
{
	return rq_take(q->nic->seg, q->shared, 0, 77, need, false, taken);
}

static uint64_t wr_id_of(struct queue *q, uint32_t slot)
{
	return rq_wqe(q->nic->seg, q->shared, slot)->wr_id;
}

static uint32_t expect_taken(struct queue *q, uint64_t wr_id)
{
	struct rq_taken taken;

	assert_int_equal(take(q, 0, &taken), RQ_TAKEN);
	assert_int_equal(wr_id_of(q, taken.slot), wr_id);
	return taken.slot;
}

static void expect_empty(struct queue *q)
{
	struct rq_taken taken;

	assert_int_equal(take(q, 0, &taken), RQ_EMPTY);
}

static void receives_are_taken_in_the_order_of_posting(void **state)
{
	struct queue q;
	struct rq_taken taken;

	open_queue(state, &q, 5, 1);
	expect_empty(&q);
	for (uint64_t i = 0; i < 5; i++)
		post(&q, i);
	assert_int_equal(rq_available(q.shared), 5);
	for (uint64_t i = 0; i < 5; i++) {
		assert_int_equal(take(&q, 0, &taken), RQ_TAKEN);
		assert_int_equal(wr_id_of(&q, taken.slot), i);
	}
	expect_empty(&q);
	close_queue(&q);
}

static void full_queue_names_the_request_in_the_middle_of_a_list(void **state)
{
	struct queue q;
	struct ibv_recv_wr wr[5] = { { .wr_id = 0 } }, *bad = NULL;

	open_queue(state, &q, 3, 1);
	for (uint64_t i = 0; i < 5; i++)
		wr[i] = (struct ibv_recv_wr){ .wr_id = i, .next = i < 4 ? &wr[i + 1] : NULL };
	assert_int_equal(nic_srq_post(&q.srq, wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr[3]);
	for (uint64_t i = 0; i < 3; i++)
		expect_taken(&q, i);
	expect_empty(&q);
	/* Taken is not given back. */
	assert_int_equal(post_of(&q, 9, 0), ENOMEM);
	nic_rq_release(q.rq, 1);
	post(&q, 9);
	assert_int_equal(post_of(&q, 10, 0), ENOMEM);
	close_queue(&q);
}

static void too_many_sges_are_refused_where_they_stand(void **state)
{
	struct queue q;
	struct ibv_sge sge[3] = { { .length = 1 }, { .length = 2 }, { .length = 3 } };
	struct ibv_recv_wr bad_one = { .wr_id = 2, .sg_list = sge, .num_sge = 3 },
			   first = { .wr_id = 1, .sg_list = sge, .num_sge = 2, .next = &bad_one },
			   *bad;

	open_queue(state, &q, 8, 2);
	assert_int_equal(nic_srq_post(&q.srq, &first, &bad), EINVAL);
	assert_ptr_equal(bad, &bad_one);
	bad_one.num_sge = -1;
	assert_int_equal(nic_srq_post(&q.srq, &bad_one, &bad), EINVAL);
	assert_int_equal(rq_wqe(q.nic->seg, q.shared, expect_taken(&q, 1))->room, 3);
	expect_empty(&q);
	close_queue(&q);
}

static void short_receive_is_left_alone(void **state)
{
	struct queue q;
	struct rq_taken taken;

	open_queue(state, &q, 4, 1);
	assert_int_equal(post_of(&q, 1, 100), 0);
	assert_int_equal(take(&q, 101, &taken), RQ_TOO_SHORT);
	assert_int_equal(rq_available(q.shared), 1);
	assert_int_equal(take(&q, 100, &taken), RQ_TAKEN);
	close_queue(&q);
}

static void queue_of_one_goes_round_many_times(void **state)
{
	struct queue q;

	open_queue(state, &q, 1, 0);
	for (uint64_t i = 0; i < 10000; i++) {
		post(&q, i);
		assert_int_equal(post_of(&q, i, 0), ENOMEM);
		nic_rq_release(q.rq, expect_taken(&q, i));
		expect_empty(&q);
	}
	close_queue(&q);
}

/* Puts an empty queue at a position that it would reach after long use. */
static void go_to(struct queue *q, uint64_t position)
{
	uint64_t size = 1ull << q->shared->log2;
	_Atomic uint64_t *words = seg_at(q->nic->seg, q->shared->fifo);

	for (uint64_t p = position - size; p < position; p++)
		atomic_store(&words[p % size], (p >> q->shared->log2 & 0x7fffff) << LAP_SHIFT |
						       (uint64_t)NIC_FIFO_TAKEN << 15 | p % size);
	atomic_store(&q->shared->head, position);
	atomic_store(&q->shared->tail, position);
}

static void laps_are_truncated_without_harm(void **state)
{
	struct queue q;

	open_queue(state, &q, 4, 0);
	go_to(&q, (0x800000ull << 2) - 3);
	for (uint64_t i = 0; i < 40; i += 4) {
		uint32_t slots[4];

		for (uint64_t j = 0; j < 4; j++)
			post(&q, i + j);
		for (uint64_t j = 0; j < 4; j++)
			slots[j] = expect_taken(&q, i + j);
		expect_empty(&q);
		for (uint64_t j = 0; j < 4; j++)
			nic_rq_release(q.rq, slots[j]);
	}
	close_queue(&q);
}

/* A taker that stops after its CAS and before it moves the head. */
static void head_that_lags_behind_is_helped(void **state)
{
	struct queue q;

	open_queue(state, &q, 4, 0);
	for (uint64_t i = 0; i < 40; i += 2) {
		post(&q, i);
		post(&q, i + 1);

		uint64_t head = atomic_load(&q.shared->head);
		uint32_t slot = expect_taken(&q, i);

		atomic_store(&q.shared->head, head);
		nic_rq_release(q.rq, expect_taken(&q, i + 1));
		nic_rq_release(q.rq, slot);
		expect_empty(&q);
	}
	close_queue(&q);
}

/* The same, and the word that the head points to names a receive of the next lap already: an SRQ's
 * slots come back in any order, and a dead taker's is posted again. */
static void head_a_whole_lap_behind_is_helped(void **state)
{
	struct queue q;
	uint32_t slots[4];

	open_queue(state, &q, 4, 0);
	for (uint64_t i = 0; i < 4; i++)
		post(&q, i);
	slots[0] = expect_taken(&q, 0);
	atomic_store(&q.shared->head, 0);
	nic_rq_release(q.rq, slots[0]);
	post(&q, 4); /* over the word of position 0 */
	for (uint64_t i = 1; i < 5; i++)
		expect_taken(&q, i);
	expect_empty(&q);
	close_queue(&q);
}

static void taker_is_known_until_the_slot_is_back(void **state)
{
	struct queue q;
	uint32_t first, second;
	struct rq_taken taken;

	open_queue(state, &q, 2, 0);
	post(&q, 0);
	post(&q, 1);
	assert_int_equal(nic_rq_taker(q.rq, 0), 0);
	assert_int_equal(rq_take(q.nic->seg, q.shared, 0, 0xabcdef, 0, false, &taken), RQ_TAKEN);
	first = taken.slot;
	assert_int_equal(nic_rq_taker(q.rq, first), 0xabcdef);
	assert_int_equal(rq_take(q.nic->seg, q.shared, 0, 5, 0, false, &taken), RQ_TAKEN);
	second = taken.slot;
	/* Its word is used by the next lap. */
	nic_rq_release(q.rq, second);
	post(&q, 2);
	assert_int_equal(nic_rq_taker(q.rq, first), 0xabcdef);
	assert_int_equal(nic_rq_taker(q.rq, second), 0);
	nic_rq_release(q.rq, first);
	assert_int_equal(nic_rq_taker(q.rq, first), 0);
	close_queue(&q);
}

static void reposted_receive_is_available_again_at_the_end(void **state)
{
	struct queue q;
	uint32_t slot;

	open_queue(state, &q, 3, 0);
	for (uint64_t i = 0; i < 3; i++)
		post(&q, i);
	slot = expect_taken(&q, 0);
	assert_false(nic_rq_is_completed(q.rq, slot, false));
	rq_complete(rq_wqe(q.nic->seg, q.shared, slot), &(struct nic_cqe){ 0 });
	assert_true(nic_rq_is_completed(q.rq, slot, false));
	nic_rq_repost(q.rq, slot);
	assert_false(nic_rq_is_completed(q.rq, slot, false));
	assert_int_equal(rq_available(q.shared), 3);
	expect_taken(&q, 1);
	expect_taken(&q, 2);
	expect_taken(&q, 0);
	expect_empty(&q);
	close_queue(&q);
}

static void reset_forgets_all_and_starts_anew(void **state)
{
	struct queue q;

	open_queue(state, &q, 3, 0);
	for (uint64_t i = 0; i < 3; i++)
		post(&q, i);
	expect_taken(&q, 0);
	nic_rq_reset(q.rq, 0, false);
	expect_empty(&q);
	assert_int_equal(rq_available(q.shared), 0);
	for (uint64_t i = 10; i < 13; i++)
		post(&q, i);
	assert_int_equal(post_of(&q, 13, 0), ENOMEM);
	for (uint64_t i = 10; i < 13; i++)
		expect_taken(&q, i);
	close_queue(&q);
}

/* Somebody was admitted before a RESET and comes to take after it. */
static void receive_of_another_life_is_not_taken(void **state)
{
	struct queue q;
	struct rq_taken taken;

	open_queue(state, &q, 3, 0);
	nic_rq_reset(q.rq, 5, false);
	post(&q, 1);
	assert_int_equal(rq_take(q.nic->seg, q.shared, 4, 77, 0, false, &taken), RQ_EMPTY);
	assert_int_equal(rq_take(q.nic->seg, q.shared, 5, 77, 0, false, &taken), RQ_TAKEN);
	close_queue(&q);
}

/* One that was completed in brief is not begun any more, though nothing was written into its WQE. */
static void receive_published_in_brief_is_used_again_beside_a_visitor(void **state)
{
	struct queue q;
	uint32_t slot;

	open_queue(state, &q, 1, 0);
	post(&q, 0);
	slot = expect_taken(&q, 0);
	assert_true(nic_rq_is_completed(q.rq, slot, true));
	nic_rq_published(q.rq, slot);
	nic_rq_reset(q.rq, 0, true);
	assert_false(nic_rq_is_completed(q.rq, slot, true));
	post(&q, 1);
	assert_false(nic_rq_is_completed(q.rq, slot, false));
	assert_int_equal(expect_taken(&q, 1), slot);
	close_queue(&q);
}

/* A visitor took a receive and stands still: its completion may still be written, so the slot is
 * not used again. */
static void begun_receive_is_kept_out_of_use_while_its_taker_stands_still(void **state)
{
	struct queue q;
	uint32_t begun;

	open_queue(state, &q, 3, 0);
	for (uint64_t i = 0; i < 3; i++)
		post(&q, i);
	begun = expect_taken(&q, 0);
	nic_rq_reset(q.rq, 0, true);
	for (uint64_t round = 0; round < 10; round += 2) {
		uint32_t slots[2];

		post(&q, round);
		post(&q, round + 1);
		assert_int_equal(post_of(&q, 99, 0), ENOMEM);
		for (uint64_t i = 0; i < 2; i++) {
			slots[i] = expect_taken(&q, round + i);
			assert_int_not_equal(slots[i], begun);
		}
		rq_complete(rq_wqe(q.nic->seg, q.shared, begun), &(struct nic_cqe){ 0 });
		assert_false(nic_rq_is_completed(q.rq, begun, true));
		nic_rq_release(q.rq, slots[0]);
		nic_rq_release(q.rq, slots[1]);
	}
	nic_rq_reset(q.rq, 0, false);
	for (uint64_t i = 0; i < 3; i++)
		post(&q, i);
	close_queue(&q);
}

static void in_order_taking_waits_for_the_one_before(void **state)
{
	struct queue q;
	struct rq_taken first, second;

	open_queue(state, &q, 3, 0);
	for (uint64_t i = 0; i < 3; i++)
		post(&q, i);
	assert_int_equal(rq_take(q.nic->seg, q.shared, 0, 1, 0, true, &first), RQ_TAKEN);
	assert_int_equal(rq_take(q.nic->seg, q.shared, 0, 2, 0, true, &second), RQ_BUSY);
	/* Whoever gives up the order gets it all the same. */
	assert_int_equal(rq_take(q.nic->seg, q.shared, 0, 2, 0, false, &second), RQ_TAKEN);
	rq_done(q.nic->seg, q.shared, first.position);
	assert_int_equal(rq_take(q.nic->seg, q.shared, 0, 3, 0, true, &first), RQ_BUSY);
	rq_done(q.nic->seg, q.shared, second.position);
	assert_int_equal(rq_take(q.nic->seg, q.shared, 0, 3, 0, true, &first), RQ_TAKEN);
	close_queue(&q);
}

static void queue_of_nothing_is_full_and_empty(void **state)
{
	struct nic *nic = *state;
	struct nic_cq cq;
	struct nic_qp qp;
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;
	struct rq_taken taken;

	assert_int_equal(nic_cq_create(nic, 1, NULL, &cq), 0);
	make_qp(nic, IBV_QPT_UD, &cq, NULL, 0, &qp);
	assert_int_equal(move_to(&qp, IBV_QPS_INIT, 0), 0);
	assert_int_equal(nic_qp_post_recv(&qp, &wr, &bad), ENOMEM);
	assert_int_equal(rq_take(nic->seg, &qp.shared->rq, qp.rq.life, 1, 0, false, &taken),
			 RQ_EMPTY);
	nic_qp_destroy(&qp);
	assert_int_equal(nic_cq_destroy(&cq), 0);
}

#define TAKERS 2
#define EACH   50000

struct taker {
	pthread_t thread;
	struct queue *q;
	_Atomic uint8_t *seen;
	_Atomic uint32_t *taken;
};

static void *keep_taking(void *arg)
{
	struct taker *taker = arg;
	struct queue *q = taker->q;
	uint64_t last = 0;

	while (atomic_load(taker->taken) < EACH) {
		struct rq_taken taken;

		if (take(q, 0, &taken) != RQ_TAKEN) {
			sched_yield();
			continue;
		}
		uint64_t wr_id = wr_id_of(q, taken.slot);

		THREAD_CHECK(wr_id > last);
		last = wr_id;
		THREAD_CHECK(!atomic_exchange(&taker->seen[wr_id], 1));
		atomic_fetch_add(taker->taken, 1);
		nic_rq_release(q->rq, taken.slot);
	}
	return NULL;
}

static void two_takers_take_each_receive_once(void **state)
{
	static _Atomic uint8_t seen[EACH + 1];
	_Atomic uint32_t taken = 0;
	struct taker takers[TAKERS];
	struct queue q;

	open_queue(state, &q, 37, 0);
	for (int t = 0; t < TAKERS; t++) {
		takers[t] = (struct taker){ .q = &q, .seen = seen, .taken = &taken };
		assert_int_equal(pthread_create(&takers[t].thread, NULL, keep_taking, &takers[t]),
				 0);
	}
	for (uint64_t i = 1; i <= EACH;) {
		struct ibv_recv_wr wr = { .wr_id = i }, *bad;

		if (nic_srq_post(&q.srq, &wr, &bad))
			sched_yield();
		else
			i++;
	}
	for (int t = 0; t < TAKERS; t++)
		pthread_join(takers[t].thread, NULL);
	for (int i = 1; i <= EACH; i++)
		assert_int_equal(seen[i], 1);
	expect_empty(&q);
	close_queue(&q);
}

static void handed_out(const struct ibv_async_event *event)
{
	(void)event;
}

static unsigned events_of(struct nic_event_queue *queue)
{
	struct ibv_async_event event;
	struct pollfd readable = { .fd = queue->fd, .events = POLLIN };
	unsigned count = 0;

	while (poll(&readable, 1, 0) == 1 && !nic_event_wait(queue, &event)) {
		assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
		count++;
	}
	return count;
}

static void limit_armed_above_what_is_posted_is_reached_at_once(void **state)
{
	struct queue q;
	struct nic_event_queue events = { .handed_out = handed_out };

	open_queue(state, &q, 8, 0);
	assert_int_equal(nic_event_queue_init(&events), 0);
	q.srq.events = &events;
	for (uint64_t i = 0; i < 4; i++)
		post(&q, i);
	assert_int_equal(nic_srq_arm_limit(&q.srq, 9), EINVAL);
	assert_int_equal(nic_srq_arm_limit(&q.srq, 4), 0);
	assert_int_equal(nic_srq_limit(&q.srq), 4);
	assert_int_equal(events_of(&events), 0);
	assert_int_equal(nic_srq_arm_limit(&q.srq, 5), 0);
	assert_int_equal(events_of(&events), 1);
	/* Once; it is disarmed then. */
	assert_int_equal(nic_srq_limit(&q.srq), 0);
	q.srq.events = NULL;
	close_queue(&q);
	nic_event_queue_destroy(&events);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(receives_are_taken_in_the_order_of_posting),
		cmocka_unit_test(full_queue_names_the_request_in_the_middle_of_a_list),
		cmocka_unit_test(too_many_sges_are_refused_where_they_stand),
		cmocka_unit_test(short_receive_is_left_alone),
		cmocka_unit_test(queue_of_one_goes_round_many_times),
		cmocka_unit_test(laps_are_truncated_without_harm),
		cmocka_unit_test(head_that_lags_behind_is_helped),
		cmocka_unit_test(head_a_whole_lap_behind_is_helped),
		cmocka_unit_test(taker_is_known_until_the_slot_is_back),
		cmocka_unit_test(reposted_receive_is_available_again_at_the_end),
		cmocka_unit_test(reset_forgets_all_and_starts_anew),
		cmocka_unit_test(receive_of_another_life_is_not_taken),
		cmocka_unit_test(begun_receive_is_kept_out_of_use_while_its_taker_stands_still),
		cmocka_unit_test(receive_published_in_brief_is_used_again_beside_a_visitor),
		cmocka_unit_test(in_order_taking_waits_for_the_one_before),
		cmocka_unit_test(queue_of_nothing_is_full_and_empty),
		cmocka_unit_test(two_takers_take_each_receive_once),
		cmocka_unit_test(limit_armed_above_what_is_posted_is_reached_at_once),
	};

	return cmocka_run_group_tests(tests, open_nic, close_nic);
}
