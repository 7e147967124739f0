/* SPDX-License-Identifier: MIT */
/* Event queues and channels: an fd is readable exactly as long as there is an event. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/uio.h>

#include "nic/event.h"

static void handed_out(const struct ibv_async_event *event)
{
	(void)event;
}

static void make_queue(struct nic_event_queue *queue)
{
	*queue = (struct nic_event_queue){ .handed_out = handed_out };
	assert_int_equal(nic_event_queue_init(queue), 0);
}

static void raise_for(struct nic_event_queue *queue, void *element, enum ibv_event_type type)
{
	nic_event_raise(queue,
			&(struct ibv_async_event){ .element.qp = element, .event_type = type });
}

static bool is_readable(int fd)
{
	struct pollfd readable = { .fd = fd, .events = POLLIN };

	return poll(&readable, 1, 0) == 1;
}

/* Tokens are taken back by preadv2, which qemu-user does not know. */
static void skip_where_tokens_stay(void)
{
	uint64_t token;
	struct iovec iov = { .iov_base = &token, .iov_len = sizeof(token) };

	if (preadv2(-1, &iov, 1, -1, RWF_NOWAIT) < 0 && errno != EBADF) {
		puts("skipped: preadv2 does not know RWF_NOWAIT here");
		skip();
	}
}

static void events_come_in_their_order(void **state)
{
	struct nic_event_queue queue;
	struct ibv_async_event event;
	int a, b;

	(void)state;
	make_queue(&queue);
	assert_false(is_readable(queue.fd));
	raise_for(&queue, &a, IBV_EVENT_COMM_EST);
	raise_for(&queue, &b, IBV_EVENT_SQ_DRAINED);
	assert_true(is_readable(queue.fd));
	assert_int_equal(nic_event_wait(&queue, &event), 0);
	assert_ptr_equal(event.element.qp, &a);
	assert_int_equal(event.event_type, IBV_EVENT_COMM_EST);
	assert_int_equal(nic_event_wait(&queue, &event), 0);
	assert_ptr_equal(event.element.qp, &b);
	assert_false(is_readable(queue.fd));
	nic_event_queue_destroy(&queue);
}

static void forgotten_events_leave_nothing_to_read(void **state)
{
	struct nic_event_queue queue;
	struct ibv_async_event event;
	int a, b;

	(void)state;
	skip_where_tokens_stay();
	make_queue(&queue);
	raise_for(&queue, &a, IBV_EVENT_COMM_EST);
	raise_for(&queue, &b, IBV_EVENT_SQ_DRAINED);
	raise_for(&queue, &a, IBV_EVENT_SQ_DRAINED);
	assert_int_equal(nic_event_forget(&queue, &a), 2);
	assert_true(is_readable(queue.fd));
	assert_int_equal(nic_event_wait(&queue, &event), 0);
	assert_ptr_equal(event.element.qp, &b);
	assert_false(is_readable(queue.fd));
	assert_int_equal(nic_event_forget(&queue, &a), 0);
	nic_event_queue_destroy(&queue);
}

static void reading_without_waiting_says_so(void **state)
{
	struct nic_event_queue queue;
	struct ibv_async_event event;
	int a;

	(void)state;
	make_queue(&queue);
	fcntl(queue.fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(nic_event_wait(&queue, &event), -1);
	assert_int_equal(errno, EAGAIN);
	raise_for(&queue, &a, IBV_EVENT_COMM_EST);
	assert_int_equal(nic_event_forget(&queue, &a), 1);
	assert_int_equal(nic_event_wait(&queue, &event), -1);
	assert_int_equal(errno, EAGAIN);
	nic_event_queue_destroy(&queue);
}

#define READ_TIMES 20000

struct reader {
	struct nic_event_queue queue;
	int kept, dropped;
};

static void *read_events(void *arg)
{
	struct reader *reader = arg;

	for (int i = 0; i < READ_TIMES; i++) {
		struct ibv_async_event event;

		THREAD_CHECK(!nic_event_wait(&reader->queue, &event));
		if ((void *)event.element.qp == &reader->dropped)
			i--; /* it came before it was forgotten */
	}
	return NULL;
}

/* A reader between its token and its event finds the event gone, and waits for another. */
static void forgetting_beside_a_reader_loses_no_other_event(void **state)
{
	struct reader reader;
	pthread_t thread;

	(void)state;
	skip_where_tokens_stay();
	make_queue(&reader.queue);
	assert_int_equal(pthread_create(&thread, NULL, read_events, &reader), 0);
	for (int i = 0; i < READ_TIMES; i++) {
		raise_for(&reader.queue, &reader.dropped, IBV_EVENT_COMM_EST);
		raise_for(&reader.queue, &reader.kept, IBV_EVENT_COMM_EST);
		nic_event_forget(&reader.queue, &reader.dropped);
	}
	pthread_join(thread, NULL);
	assert_false(is_readable(reader.queue.fd));
	nic_event_queue_destroy(&reader.queue);
}

static void destroyed_cq_takes_its_events_along(void **state)
{
	struct nic_channel channel;
	struct nic_cq a, b;

	skip_where_tokens_stay();
	assert_int_equal(nic_channel_init(&channel), 0);
	assert_int_equal(nic_cq_create(*state, 1, &channel, &a), 0);
	assert_int_equal(nic_cq_create(*state, 1, &channel, &b), 0);
	nic_cq_deliver(&a);
	nic_cq_deliver(&b);
	nic_cq_deliver(&a);
	assert_int_equal(nic_cq_destroy(&a), 0);
	assert_true(is_readable(channel.fd));
	assert_ptr_equal(nic_channel_wait(&channel), &b);
	assert_false(is_readable(channel.fd));
	assert_int_equal(nic_cq_destroy(&b), 0);
	nic_channel_destroy(&channel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_come_in_their_order),
		cmocka_unit_test(forgotten_events_leave_nothing_to_read),
		cmocka_unit_test(reading_without_waiting_says_so),
		cmocka_unit_test(forgetting_beside_a_reader_loses_no_other_event),
		cmocka_unit_test(destroyed_cq_takes_its_events_along),
	};

	return cmocka_run_group_tests(tests, open_nic, close_nic);
}
