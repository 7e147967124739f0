/* SPDX-License-Identifier: MIT */
/* The completion queue's protocol: publish, consume, overflow, laps, resize, forget, arm. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "nic/visit.h"

#define LAP_SHIFT 33	   /* nic/layout.h */
#define QPN	  0xabcdef /* of the completions */

/* Completions of receives of an SRQ: what an initiator publishes. */
struct queue {
	struct nic *nic;
	struct nic_cq cq;
	struct nic_srq srq;
	struct nic_channel channel;
	uint64_t posted;
};

static void open_queue(void **state, struct queue *q, uint32_t cqe, uint32_t depth)
{
	memset(q, 0, sizeof(*q));
	q->nic = *state;
	assert_int_equal(nic_channel_init(&q->channel), 0);
	assert_int_equal(nic_cq_create(q->nic, cqe, &q->channel, &q->cq), 0);
	assert_int_equal(nic_srq_create(q->nic, UNIT_PD, depth, 1, &q->srq), 0);
}

static void close_queue(struct queue *q)
{
	assert_int_equal(nic_srq_destroy(&q->srq), 0);
	assert_int_equal(nic_cq_destroy(&q->cq), 0);
	nic_channel_destroy(&q->channel);
}

static void post(struct queue *q)
{
	struct ibv_recv_wr wr = { .wr_id = q->posted++ }, *bad;

	assert_int_equal(nic_srq_post(&q->srq, &wr, &bad), 0);
}

static uint32_t length_of(uint64_t wr_id)
{
	return (uint32_t)wr_id * 3;
}

/* As an initiator does it: every second completion in brief. */
static enum cq_publish publish(struct queue *q, bool solicited)
{
	struct nic_segment *seg = q->nic->seg;
	const struct seg_rq *rq = &q->srq.shared->rq;
	uint64_t brief = 0;
	struct nic_cqe cqe = { .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV, .qp_num = QPN };
	struct rq_taken taken;
	struct seg_visit *visit = visit_enter(q->nic, seg);

	THREAD_CHECK(visit);
	THREAD_CHECK(rq_take(seg, &q->srq.shared->rq, 0, 1, 0, false, &taken) == RQ_TAKEN);
	cqe.byte_len = length_of(rq_wqe(seg, rq, taken.slot)->wr_id);
	if (taken.position % 2)
		brief = cq_brief(q->cq.shared, &cqe);
	else
		rq_complete(rq_wqe(seg, rq, taken.slot), &cqe);

	enum cq_publish result =
		cq_publish(seg, q->cq.index,
			   cq_reference(NIC_REF_SRQ, q->srq.index, taken.slot, brief), solicited);

	visit_leave(visit);
	return result;
}

static void post_and_publish(struct queue *q)
{
	post(q);
	assert_int_equal(publish(q, false), CQ_PUBLISHED);
}

static void expect_polled(struct queue *q, uint64_t wr_id)
{
	struct ibv_wc wc;

	assert_int_equal(nic_cq_poll(&q->cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.byte_len, length_of(wr_id));
	assert_int_equal(wc.qp_num, QPN);
}

static void expect_empty(struct queue *q)
{
	struct ibv_wc wc;

	assert_int_equal(nic_cq_poll(&q->cq, 1, &wc), 0);
}

static void completions_come_in_the_order_of_publishing(void **state)
{
	struct queue q;
	struct ibv_wc wc[16];

	open_queue(state, &q, 10, 16);
	expect_empty(&q);
	for (int i = 0; i < 10; i++)
		post_and_publish(&q);
	assert_int_equal(nic_cq_poll(&q.cq, 4, wc), 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(wc[i].wr_id, i);
	assert_int_equal(nic_cq_poll(&q.cq, 16, wc), 6);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(wc[i].wr_id, 4 + i);
	expect_empty(&q);
	close_queue(&q);
}

static void capacity_is_kept_exactly(void **state)
{
	struct queue q;

	open_queue(state, &q, 5, 16);
	assert_int_equal(q.cq.capacity, 7);
	for (uint32_t i = 0; i < q.cq.capacity; i++)
		post_and_publish(&q);
	post(&q);
	assert_int_equal(publish(&q, false), CQ_OVERFLOW);
	assert_int_equal(atomic_load(&q.cq.shared->error), 1);
	assert_int_equal(atomic_load(&q.cq.shared->overflows), 1);
	for (uint64_t i = 0; i < 7; i++)
		expect_polled(&q, i);
	/* It stays in error although there is room. */
	post(&q);
	assert_int_equal(publish(&q, false), CQ_OVERFLOW);
	close_queue(&q);
}

static void smallest_queue_goes_round_many_times(void **state)
{
	struct queue q;

	open_queue(state, &q, 1, 2);
	assert_int_equal(q.cq.capacity, 1);
	for (uint64_t i = 0; i < 10000; i++) {
		post_and_publish(&q);
		expect_polled(&q, i);
		expect_empty(&q);
	}
	close_queue(&q);
}

/* Puts an empty queue at a position that it would reach after long use. */
static void go_to(struct queue *q, uint64_t position)
{
	struct seg_cq_ring *ring = q->cq.ring;
	uint64_t size = 1ull << ring->log2;

	for (uint64_t p = position; p < position + size; p++)
		atomic_store(&ring->entries[p % size].word, (p >> ring->log2 & 0x7fffffff)
								    << LAP_SHIFT);
	atomic_store(&ring->tail, position);
	q->cq.head = position;
}

static void laps_are_truncated_without_harm(void **state)
{
	struct queue q;

	open_queue(state, &q, 3, 8);
	go_to(&q, (0x7fffffffull << 2) - 1);
	for (uint64_t i = 0; i < 20; i += 2) {
		post_and_publish(&q);
		post_and_publish(&q);
		expect_polled(&q, i);
		expect_polled(&q, i + 1);
		expect_empty(&q);
	}
	/* And full across the boundary. */
	go_to(&q, (0x80000000ull << 2) - 2);
	for (int i = 0; i < 3; i++)
		post_and_publish(&q);
	post(&q);
	assert_int_equal(publish(&q, false), CQ_OVERFLOW);
	for (uint64_t i = 20; i < 23; i++)
		expect_polled(&q, i);
	close_queue(&q);
}

static void positions_beyond_32_bits_are_whole(void **state)
{
	struct queue q;

	open_queue(state, &q, 3, 8);
	go_to(&q, (1ull << 32) - 3);
	for (uint64_t i = 0; i < 10; i++) {
		post_and_publish(&q);
		expect_polled(&q, i);
	}
	assert_true(atomic_load(&q.cq.ring->tail) > 1ull << 32);
	close_queue(&q);
}

/* A publisher that stops after its CAS and before it moves the tail: everybody goes on. */
static void tail_that_lags_behind_is_helped(void **state)
{
	struct queue q;

	open_queue(state, &q, 3, 8);
	/* Once the completion is still there when the next publisher comes, once it is polled
	 * already. */
	for (uint64_t i = 0; i < 40; i += 2) {
		uint64_t tail = atomic_load(&q.cq.ring->tail);

		post_and_publish(&q);
		atomic_store(&q.cq.ring->tail, tail);
		if (i % 4)
			expect_polled(&q, i);
		post_and_publish(&q);
		if (!(i % 4))
			expect_polled(&q, i);
		expect_polled(&q, i + 1);
	}
	expect_empty(&q);
	close_queue(&q);
}

static void resize_goes_on_where_the_tail_lags_behind(void **state)
{
	struct queue q;

	open_queue(state, &q, 3, 8);
	post_and_publish(&q);
	atomic_store(&q.cq.ring->tail, 0);
	expect_polled(&q, 0);
	assert_int_equal(nic_cq_resize(&q.cq, 7), 0);
	post_and_publish(&q);
	expect_polled(&q, 1);
	close_queue(&q);
}

#define PRODUCERS 2
#define EACH	  100000

struct producer {
	pthread_t thread;
	struct queue *q;
};

/* Each has receives of its own, so that the order of its completions is known. */
static void *produce(void *arg)
{
	struct producer *producer = arg;
	struct queue *q = producer->q;

	for (uint64_t i = 0; i < EACH; i++) {
		while (rq_available(&q->srq.shared->rq) == 0)
			sched_yield();
		THREAD_CHECK(publish(q, false) == CQ_PUBLISHED);
	}
	return NULL;
}

struct poster {
	struct queue *queues;
	_Atomic bool stop;
};

static void *keep_resizing(void *arg)
{
	struct poster *poster = arg;

	for (uint32_t i = 0; !atomic_load(&poster->stop); i++) {
		int error = nic_cq_resize(&poster->queues[0].cq, 300 << i % 3);

		THREAD_CHECK(!error);
		sched_yield();
	}
	return NULL;
}

/* Two producers, each with an SRQ of 128, complete into one CQ; a consumer posts again what it
 * polled. */
static void race(void **state, bool resizing)
{
	struct queue q[PRODUCERS];
	struct producer producers[PRODUCERS];
	struct poster poster = { .queues = q };
	uint64_t expected[PRODUCERS] = { 0 }, got = 0;
	pthread_t resizer;

	for (uint32_t p = 0; p < PRODUCERS; p++) {
		open_queue(state, &q[p], 300, 128);
		q[p].posted = (uint64_t)p << 32;
		for (uint32_t i = 0; i < 128; i++)
			post(&q[p]);
	}
	for (uint32_t p = 0; p < PRODUCERS; p++) {
		/* All complete into the first one's CQ. */
		producers[p] = (struct producer){ .q = &q[p] };
		if (p) {
			assert_int_equal(nic_cq_destroy(&q[p].cq), 0);
			q[p].cq.index = q[0].cq.index;
		}
	}
	for (uint32_t p = 0; p < PRODUCERS; p++)
		assert_int_equal(pthread_create(&producers[p].thread, NULL, produce, &producers[p]),
				 0);
	if (resizing)
		assert_int_equal(pthread_create(&resizer, NULL, keep_resizing, &poster), 0);
	while (got < PRODUCERS * EACH) {
		struct nic_cqe cqe;

		nic_lock(&q[0].cq.lock);
		bool taken = nic_cq_take(&q[0].cq, &cqe);

		nic_unlock(&q[0].cq.lock);
		if (!taken) {
			sched_yield();
			continue;
		}
		uint32_t p = (uint32_t)(cqe.wr_id >> 32);

		assert_int_equal(cqe.wr_id & 0xffffffff, expected[p]);
		assert_int_equal(cqe.byte_len, length_of(cqe.wr_id));
		expected[p]++;
		got++;
		if ((uint32_t)q[p].posted < EACH)
			post(&q[p]);
	}
	for (uint32_t p = 0; p < PRODUCERS; p++)
		pthread_join(producers[p].thread, NULL);
	if (resizing) {
		atomic_store(&poster.stop, true);
		pthread_join(resizer, NULL);
	}
	expect_empty(&q[0]);
	assert_int_equal(nic_cq_destroy(&q[0].cq), 0);
	for (uint32_t p = 0; p < PRODUCERS; p++) {
		assert_int_equal(nic_srq_destroy(&q[p].srq), 0);
		nic_channel_destroy(&q[p].channel);
	}
}

static void two_producers_lose_nothing_and_keep_their_order(void **state)
{
	race(state, false);
}

static void resizing_under_two_producers_loses_nothing(void **state)
{
	race(state, true);
}

static void resize_keeps_what_is_queued_and_its_order(void **state)
{
	struct queue q;

	open_queue(state, &q, 7, 64);
	for (int i = 0; i < 7; i++)
		post_and_publish(&q);
	assert_int_equal(nic_cq_resize(&q.cq, 20), 0);
	assert_int_equal(q.cq.capacity, 31);
	for (int i = 0; i < 10; i++)
		post_and_publish(&q);
	assert_int_equal(nic_cq_resize(&q.cq, 40), 0);
	for (int i = 0; i < 3; i++)
		post_and_publish(&q);
	for (uint64_t i = 0; i < 20; i++)
		expect_polled(&q, i);
	expect_empty(&q);
	post_and_publish(&q);
	expect_polled(&q, 20);
	close_queue(&q);
}

static void resize_below_what_is_queued_changes_nothing(void **state)
{
	struct queue q;

	open_queue(state, &q, 15, 64);
	for (int i = 0; i < 8; i++)
		post_and_publish(&q);
	assert_int_equal(nic_cq_resize(&q.cq, 7), EINVAL);
	assert_int_equal(q.cq.capacity, 15);
	assert_int_equal(nic_cq_resize(&q.cq, 8), 0);
	for (uint64_t i = 0; i < 8; i++)
		expect_polled(&q, i);
	close_queue(&q);
}

static void destroying_a_resized_queue_gives_all_rings_back(void **state)
{
	struct queue q;
	uint64_t end;

	open_queue(state, &q, 15, 64);
	post_and_publish(&q);
	assert_int_equal(nic_cq_resize(&q.cq, 4000), 0);
	end = q.nic->arena.next;
	close_queue(&q);
	/* Rings of the same sizes fit into what came back. */
	open_queue(state, &q, 15, 64);
	post_and_publish(&q);
	assert_int_equal(nic_cq_resize(&q.cq, 4000), 0);
	assert_int_equal(q.nic->arena.next, end);
	close_queue(&q);
}

/* The places of what was taken away are free for others at once, between what stays and around the ring's end. */
static void forgetting_makes_room(void **state)
{
	struct queue a, b;
	uint64_t expected = 0;

	open_queue(state, &a, 7, 64);
	open_queue(state, &b, 7, 64);
	assert_int_equal(nic_cq_destroy(&b.cq), 0);
	b.cq.index = a.cq.index;
	for (int round = 0; round < 30; round++) {
		bool full = round % 3 == 0;
		int kept = 0;

		for (int i = 0; i < 7; i++) {
			struct queue *q = i % (2 + round % 2) == 1 || full ? &b : &a;

			kept += q == &a;
			post(q);
			assert_int_equal(publish(q, false), CQ_PUBLISHED);
		}
		nic_cq_forget(&a.cq, NIC_REF_SRQ, b.srq.index, QPN);
		for (int i = kept; i < 7; i++) {
			post(&a);
			assert_int_equal(publish(&a, false), CQ_PUBLISHED);
		}
		for (int i = 0; i < 7; i++)
			expect_polled(&a, expected++);
		expect_empty(&a);
	}
	assert_int_equal(nic_srq_destroy(&b.srq), 0);
	nic_channel_destroy(&b.channel);
	close_queue(&a);
}

static void forgetting_takes_only_one_queues_completions(void **state)
{
	struct queue a, b;

	open_queue(state, &a, 7, 8);
	open_queue(state, &b, 7, 8);
	assert_int_equal(nic_cq_destroy(&b.cq), 0);
	b.cq.index = a.cq.index;
	for (int i = 0; i < 3; i++) {
		post(&a);
		assert_int_equal(publish(&a, false), CQ_PUBLISHED);
		post(&b);
		assert_int_equal(publish(&b, false), CQ_PUBLISHED);
	}
	nic_cq_forget(&a.cq, NIC_REF_SRQ, b.srq.index, QPN);
	for (uint64_t i = 0; i < 3; i++)
		expect_polled(&a, i);
	expect_empty(&a);
	/* The room is there again. */
	for (int i = 0; i < 7; i++)
		post_and_publish(&a);
	assert_int_equal(nic_srq_destroy(&b.srq), 0);
	nic_channel_destroy(&b.channel);
	close_queue(&a);
}

static unsigned tokens(struct queue *q)
{
	unsigned count = 0;
	uint64_t token;

	fcntl(q->channel.fd, F_SETFL, O_NONBLOCK);
	while (read(q->channel.fd, &token, sizeof(token)) == sizeof(token))
		count++;
	return count;
}

static void armed_queue_fires_once(void **state)
{
	struct queue q;

	open_queue(state, &q, 15, 16);
	post_and_publish(&q);
	assert_int_equal(nic_cq_arm(&q.cq, false), 0);
	post(&q);
	assert_int_equal(publish(&q, false), CQ_PUBLISHED_FIRED);
	nic_cq_attend(&q.cq);
	nic_cq_attend(&q.cq);
	post_and_publish(&q);
	nic_cq_attend(&q.cq);
	assert_int_equal(tokens(&q), 1);
	close_queue(&q);
}

static void solicited_arm_waits_for_a_solicited_completion(void **state)
{
	struct queue q;

	open_queue(state, &q, 15, 16);
	assert_int_equal(nic_cq_arm(&q.cq, true), 0);
	post_and_publish(&q);
	post(&q);
	assert_int_equal(publish(&q, true), CQ_PUBLISHED_FIRED);
	nic_cq_attend(&q.cq);
	/* A weaker request does not take a stronger one back. */
	assert_int_equal(nic_cq_arm(&q.cq, false), 0);
	assert_int_equal(nic_cq_arm(&q.cq, true), 0);
	post(&q);
	assert_int_equal(publish(&q, false), CQ_PUBLISHED_FIRED);
	close_queue(&q);
}

/* Whoever finds an event due rings too: the one who made it so may have been stopped before it
 * rang. */
static void due_event_is_told_by_every_publisher(void **state)
{
	struct queue q;

	open_queue(state, &q, 15, 16);
	assert_int_equal(nic_cq_arm(&q.cq, false), 0);
	post(&q);
	assert_int_equal(publish(&q, false), CQ_PUBLISHED_FIRED);
	post(&q);
	assert_int_equal(publish(&q, false), CQ_PUBLISHED_FIRED);
	nic_cq_attend(&q.cq);
	post_and_publish(&q);
	assert_int_equal(tokens(&q), 1);
	close_queue(&q);
}

static void arming_again_delivers_the_event_that_is_due(void **state)
{
	struct queue q;

	open_queue(state, &q, 15, 16);
	assert_int_equal(nic_cq_arm(&q.cq, false), 0);
	post(&q);
	assert_int_equal(publish(&q, false), CQ_PUBLISHED_FIRED);
	/* The initiator died before it told the owner. */
	assert_int_equal(nic_cq_arm(&q.cq, false), 0);
	assert_int_equal(q.cq.events_due, 1);
	assert_int_equal(tokens(&q), 1);
	close_queue(&q);
}

static void channel_hands_out_its_queues_in_turn(void **state)
{
	struct queue a;
	struct nic_cq b;

	open_queue(state, &a, 15, 16);
	assert_int_equal(nic_cq_create(a.nic, 1, &a.channel, &b), 0);
	nic_cq_deliver(&a.cq);
	nic_cq_deliver(&a.cq);
	nic_cq_deliver(&b);
	assert_ptr_equal(nic_channel_wait(&a.channel), &a.cq);
	assert_ptr_equal(nic_channel_wait(&a.channel), &b);
	assert_ptr_equal(nic_channel_wait(&a.channel), &a.cq);
	fcntl(a.channel.fd, F_SETFL, O_NONBLOCK);
	assert_null(nic_channel_wait(&a.channel));
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(nic_cq_destroy(&b), 0);
	close_queue(&a);
}

#define ARM_ROUNDS 20000

struct sleeper {
	struct queue *q;
	_Atomic uint64_t polled;
};

/* As a program that sleeps does it: arm, poll once more, wait. */
static void *sleep_and_poll(void *arg)
{
	struct sleeper *sleeper = arg;
	struct queue *q = sleeper->q;
	struct ibv_wc wc;
	uint64_t token;

	for (uint64_t polled = 0; polled < ARM_ROUNDS;) {
		THREAD_CHECK(!nic_cq_arm(&q->cq, false));
		int n = nic_cq_poll(&q->cq, 1, &wc);

		if (!n) {
			struct pollfd readable = { .fd = q->channel.fd, .events = POLLIN };

			THREAD_CHECK(poll(&readable, 1, 10000) == 1); /* the wake-up was lost */
			THREAD_CHECK(read(q->channel.fd, &token, sizeof(token)) == sizeof(token));
			continue;
		}
		atomic_store(&sleeper->polled, ++polled);
	}
	return NULL;
}

static void arming_and_publishing_never_miss_each_other(void **state)
{
	struct queue q;
	struct sleeper sleeper = { .q = &q };
	pthread_t thread;

	open_queue(state, &q, 63, 64);
	assert_int_equal(pthread_create(&thread, NULL, sleep_and_poll, &sleeper), 0);
	for (uint64_t i = 0; i < ARM_ROUNDS; i++) {
		/* Mostly one at a time, so that the sleeper sleeps. */
		while (i - atomic_load(&sleeper.polled) > (i % 8 ? 32 : 0))
			sched_yield();
		post(&q);
		if (publish(&q, false) == CQ_PUBLISHED_FIRED)
			nic_cq_attend(&q.cq);
	}
	pthread_join(thread, NULL);
	close_queue(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(completions_come_in_the_order_of_publishing),
		cmocka_unit_test(capacity_is_kept_exactly),
		cmocka_unit_test(smallest_queue_goes_round_many_times),
		cmocka_unit_test(laps_are_truncated_without_harm),
		cmocka_unit_test(positions_beyond_32_bits_are_whole),
		cmocka_unit_test(tail_that_lags_behind_is_helped),
		cmocka_unit_test(resize_goes_on_where_the_tail_lags_behind),
		cmocka_unit_test(two_producers_lose_nothing_and_keep_their_order),
		cmocka_unit_test(resizing_under_two_producers_loses_nothing),
		cmocka_unit_test(resize_keeps_what_is_queued_and_its_order),
		cmocka_unit_test(resize_below_what_is_queued_changes_nothing),
		cmocka_unit_test(destroying_a_resized_queue_gives_all_rings_back),
		cmocka_unit_test(forgetting_makes_room),
		cmocka_unit_test(forgetting_takes_only_one_queues_completions),
		cmocka_unit_test(armed_queue_fires_once),
		cmocka_unit_test(solicited_arm_waits_for_a_solicited_completion),
		cmocka_unit_test(due_event_is_told_by_every_publisher),
		cmocka_unit_test(arming_again_delivers_the_event_that_is_due),
		cmocka_unit_test(channel_hands_out_its_queues_in_turn),
		cmocka_unit_test(arming_and_publishing_never_miss_each_other),
	};

	return cmocka_run_group_tests(tests, open_nic, close_nic);
}
