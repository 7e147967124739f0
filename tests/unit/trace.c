/* SPDX-License-Identifier: MIT */
/* The ring of a trace: what is read is what was written, and what is lost is counted. */
#include "unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "observe/trace.h"

#define OUT 4096u

static struct trace_ring *ring;
static struct trace_reader reader;
static struct trace_event out[OUT];
static int line; /* to the reader: the process's end of the connection */

static int set_up(void **state)
{
	int fd, copy, ends[2];

	(void)state;
	if (trace_make(&ring, &fd, 7, (char[16]){ "unit" }) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends))
		return -1;
	line = ends[0];
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	close(fd);
	trace_begin(ring, TRACE_SNAP);
	return trace_open(&reader, copy, ends[1]);
}

static int tear_down(void **state)
{
	(void)state;
	trace_end();
	trace_close(&reader);
	close(line);
	trace_unmake(ring, -1);
	return 0;
}

static void hang_up(void)
{
	shutdown(line, SHUT_RDWR);
}

static void write_numbered(uint32_t number)
{
	trace_write(TRACE_POST_SEND, 1, 2, 3, number, ~number, (uint64_t)number << 32 | 5);
}

static void check_numbered(const struct trace_event *event, uint32_t number)
{
	assert_int_equal(event->kind, TRACE_POST_SEND);
	assert_int_equal(event->opcode, 1);
	assert_int_equal(event->flags, 2);
	assert_int_equal(event->more, 0);
	assert_int_equal(event->qpn, 3);
	assert_int_equal(event->index, number);
	assert_int_equal(event->length, ~number);
	assert_int_equal(event->arg, (uint64_t)number << 32 | 5);
}

static void events_are_read_as_they_were_written(void **state)
{
	uint64_t before = nic_wall_clock(), last = 0;

	(void)state;
	assert_int_equal(trace_read(&reader, out, OUT), 0);
	assert_false(reader.ended);
	for (uint32_t i = 0; i < 100; i++)
		write_numbered(i);
	assert_int_equal(trace_read(&reader, out, OUT), 100);
	for (uint32_t i = 0; i < 100; i++) {
		check_numbered(&out[i], i);
		assert_true(trace_time(&out[i]) >= last);
		last = trace_time(&out[i]);
	}
	/* Two clocks that were compared a moment ago. */
	assert_true(trace_time(&out[0]) + 1000000 > before && last < nic_wall_clock() + 1000000);
	assert_int_equal(reader.dropped, 0);
}

static void what_follows_an_event_follows_it(void **state)
{
	static const size_t sizes[] = { 1, 23, 24, 25, 48, 1000, TRACE_SNAP };
	uint8_t body[TRACE_SNAP], back[TRACE_SNAP + 2 * sizeof(struct trace_message)];
	struct trace_message head;

	(void)state;
	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = (uint8_t)(i * 7 + 1);
	memset(&head, 0xa5, sizeof(head));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct trace_claim claim = trace_claim(1 + trace_slots(sizeof(head) + sizes[i]));

		trace_put_more(&claim, TRACE_MESSAGE, 1, 2, 3, 4, 5, 6, &head, sizeof(head), body, sizes[i]);
		trace_put(&claim, TRACE_CQE, 1, 2, 3, (uint32_t)i, 5, 6);
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		/* One event after the other: there is room for no more. */
		assert_int_equal(trace_read(&reader, out, trace_slots(sizeof(head) + sizes[i]) - 1), 0);
		assert_int_equal(trace_read(&reader, out, trace_slots(sizeof(head) + sizes[i])),
				 trace_slots(sizeof(head) + sizes[i]));
		assert_int_equal(out->kind, TRACE_MESSAGE);
		assert_int_equal(out->arg, 6);
		assert_true(trace_more(out, back) >= sizeof(head) + sizes[i]);
		assert_memory_equal(back, &head, sizeof(head));
		assert_memory_equal(back + sizeof(head), body, sizes[i]);
		assert_int_equal(trace_read(&reader, out, 1), 1);
		assert_int_equal(out->kind, TRACE_CQE);
		assert_int_equal(out->index, i);
	}
	assert_int_equal(reader.dropped, 0);
}

static void nothing_is_lost_where_the_reader_keeps_up(void **state)
{
	uint32_t written = 0, read = 0;

	(void)state;
	while (written < 3 * ring->slots) {
		uint32_t count;

		for (int i = 0; i < 100000; i++)
			write_numbered(written++);
		while ((count = trace_read(&reader, out, OUT)))
			for (uint32_t i = 0; i < count; i++)
				check_numbered(&out[i], read++);
	}
	assert_int_equal(read, written);
	assert_int_equal(reader.dropped, 0);
}

static void what_was_written_over_is_counted(void **state)
{
	uint32_t written = ring->slots + ring->slots / 2, read = 0, count, next = 0;

	(void)state;
	for (uint32_t i = 0; i < written; i++)
		write_numbered(i);
	while ((count = trace_read(&reader, out, OUT))) {
		if (!read)
			next = out->index;
		for (uint32_t i = 0; i < count; i++)
			check_numbered(&out[i], next++);
		read += count;
	}
	assert_int_equal(next, written);
	assert_true(read >= ring->slots / 2);
	assert_int_equal(read + reader.dropped, written);
}

static void slot_that_is_being_written_is_waited_for(void **state)
{
	struct trace_claim late;

	(void)state;
	late = trace_claim(1);
	write_numbered(1);
	assert_int_equal(trace_read(&reader, out, OUT), 0);
	trace_put(&late, TRACE_POST_SEND, 1, 2, 3, 0, ~0u, 5);
	assert_int_equal(trace_read(&reader, out, OUT), 2);
	check_numbered(&out[0], 0);
	check_numbered(&out[1], 1);
	assert_int_equal(reader.dropped, 0);
}

static void slots_of_a_killed_writer_are_passed_over(void **state)
{
	uint8_t body[100] = { 0 };
	struct trace_claim claim;
	uint64_t head;

	(void)state;
	write_numbered(0);
	trace_claim(3);
	write_numbered(1);
	/* All but the first slot, which is the last to be written. */
	claim = trace_claim(trace_slots(sizeof(body)));
	head = claim.position;
	trace_put_more(&claim, TRACE_MESSAGE, 1, 2, 3, 4, 5, 6, body, sizeof(body), NULL, 0);
	atomic_store(&ring->events[head].stamp, 0);
	write_numbered(2);
	assert_int_equal(trace_read(&reader, out, OUT), 1);
	assert_int_equal(trace_read(&reader, out, OUT), 0);
	assert_false(reader.ended);
	hang_up();
	assert_int_equal(trace_read(&reader, out, OUT), 2);
	check_numbered(&out[0], 1);
	check_numbered(&out[1], 2);
	assert_int_equal(reader.dropped, 3 + trace_slots(sizeof(body)));
	assert_int_equal(trace_read(&reader, out, OUT), 0);
	assert_true(reader.ended);
}

static void slot_that_nobody_writes_is_not_waited_for_longer_than_it_lasts(void **state)
{
	uint64_t before = nic_now();
	uint32_t count;

	(void)state;
	trace_claim(1);
	write_numbered(0);
	while (!(count = trace_read(&reader, out, OUT)))
		usleep(10000);
	assert_int_equal(count, 1);
	check_numbered(out, 0);
	assert_true(nic_now() - before >= 1000000000u);
}

static void writer_that_stood_still_for_a_lap_harms_nothing(void **state)
{
	struct trace_claim late;
	uint32_t count, next = 0;

	(void)state;
	late = trace_claim(1);
	for (uint32_t i = 0; i < ring->slots; i++)
		write_numbered(i);
	trace_put(&late, TRACE_CAUSE, 9, 9, 9, 9, 9, 9);
	while ((count = trace_read(&reader, out, OUT)))
		for (uint32_t i = 0; i < count; i++, next = out[count - 1].index + 1)
			assert_int_equal(out[i].kind, TRACE_POST_SEND);
	assert_int_equal(next, ring->slots);
}

static void without_an_observer_nothing_is_written(void **state)
{
	(void)state;
	assert_true(trace_on());
	trace_end();
	assert_false(trace_on());
	write_numbered(0);
	assert_int_equal(atomic_load(&ring->next), 0);
	assert_int_equal(trace_kept(100, 0), 0);
}

static void next_observer_sees_what_comes_then(void **state)
{
	(void)state;
	write_numbered(0);
	trace_end();
	trace_renew(ring);
	trace_begin(ring, 10);
	reader.position = ring->first;
	write_numbered(1);
	assert_int_equal(trace_read(&reader, out, OUT), 1);
	check_numbered(out, 1);
	assert_int_equal(trace_kept(100, 0), 10);
	assert_int_equal(trace_kept(5, 0), 5);
	assert_int_equal(trace_kept(100, 64), 74);
	assert_int_equal(trace_kept(1 << 20, 64), 74);
}

/* ---- Many at once ---- */

#define WRITERS 4

struct writer {
	pthread_t thread;
	uint32_t number;
};

static uint32_t rounds(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	return 50000;
#else
	return TIMES(1000000);
#endif
}

/* Event i of a writer has i % 5 slots of its bytes behind it. */
static void *write_many(void *arg)
{
	struct writer *writer = arg;
	uint8_t body[100];

	for (uint32_t i = 0; i < rounds(); i++) {
		size_t bytes = i % 5 * 24;
		struct trace_claim claim = trace_claim(trace_slots(bytes));

		memset(body, (int)(i + writer->number), bytes);
		trace_put_more(&claim, TRACE_MESSAGE, (uint8_t)i, 0, writer->number, i, ~i, (uint64_t)i * 0x9e3779b97f4a7c15u, body,
			       bytes, NULL, 0);
	}
	return NULL;
}

static void check_one(const struct trace_event *event, uint32_t next[WRITERS])
{
	uint8_t body[100];
	uint32_t i = event->index;

	assert_true(event->qpn < WRITERS);
	assert_true(i >= next[event->qpn]);
	next[event->qpn] = i + 1;
	assert_int_equal(event->kind, TRACE_MESSAGE);
	assert_int_equal(event->opcode, (uint8_t)i);
	assert_int_equal(event->length, ~i);
	assert_int_equal(event->arg, (uint64_t)i * 0x9e3779b97f4a7c15u);
	assert_int_equal(trace_more(event, body), i % 5 * 24);
	for (uint32_t at = 0; at < i % 5 * 24; at++)
		assert_int_equal(body[at], (uint8_t)(i + event->qpn));
}

static void writers_and_reader_do_not_disturb_each_other(void **state)
{
	struct writer writers[WRITERS];
	uint32_t next[WRITERS] = { 0 }, count;
	uint64_t read = 0;

	(void)state;
	for (uint32_t i = 0; i < WRITERS; i++) {
		writers[i].number = i;
		assert_int_equal(pthread_create(&writers[i].thread, NULL, write_many, &writers[i]), 0);
	}
	for (bool joined = false; !reader.ended;) {
		count = trace_read(&reader, out, OUT);
		for (uint32_t at = 0; at < count; at += 1u + out[at].more)
			check_one(&out[at], next);
		read += count;
		if (count || joined)
			continue;
		for (uint32_t i = 0; i < WRITERS; i++)
			pthread_join(writers[i].thread, NULL);
		joined = true;
		hang_up();
	}
	/* Every slot was claimed, and is read or counted. Who writes so much needs a reader that is no slower, or loses. */
	assert_int_equal(read + reader.dropped, atomic_load(&ring->next));
	assert_true(read > 0);
}

/* ---- Meeting ---- */

struct giver {
	pthread_t thread;
	char name[TRACE_NAME];
	int ring, connection;
	uint32_t snap;
};

static void *give(void *arg)
{
	struct giver *giver = arg;

	giver->connection = trace_give(giver->name, giver->ring, &giver->snap);
	return NULL;
}

static void process_gives_its_ring_and_is_seen_to_go(void **state)
{
	struct trace_reader seen;
	struct trace_ring *given;
	struct giver giver;
	int listener = trace_listen(giver.name);

	(void)state;
	trace_end();
	assert_true(listener >= 0);
	assert_false(trace_next(listener, 0, &seen));
	assert_int_equal(trace_make(&given, &giver.ring, 4711, (char[16]){ "giver" }), 0);
	assert_int_equal(pthread_create(&giver.thread, NULL, give, &giver), 0);
	while (!trace_next(listener, 17, &seen))
		usleep(1000);
	pthread_join(giver.thread, NULL);
	assert_true(giver.connection >= 0);
	assert_int_equal(giver.snap, 17);
	assert_int_equal(seen.ring->instance, 4711);
	assert_string_equal(seen.ring->comm, "giver");
	assert_int_equal(seen.ring->pid, getpid());
	trace_begin(given, giver.snap);
	write_numbered(5);
	assert_int_equal(trace_read(&seen, out, OUT), 1);
	check_numbered(out, 5);
	assert_int_equal(trace_read(&seen, out, OUT), 0);
	assert_false(seen.ended);
	trace_end();
	close(giver.connection);
	assert_int_equal(trace_read(&seen, out, OUT), 0);
	assert_true(seen.ended);
	trace_close(&seen);
	trace_unmake(given, giver.ring);
	trace_stop_listening(listener, giver.name);
	assert_int_equal(trace_give(giver.name, 0, &giver.snap), -1);
}

static void what_is_no_ring_is_refused(void **state)
{
	struct trace_reader none;
	int fd = open("/dev/null", O_RDWR);

	(void)state;
	assert_true(trace_open(&none, fd, -1));
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	fd = memfd_create("short", MFD_ALLOW_SEALING);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_true(trace_open(&none, fd, -1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(events_are_read_as_they_were_written, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_follows_an_event_follows_it, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nothing_is_lost_where_the_reader_keeps_up, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_was_written_over_is_counted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(slot_that_is_being_written_is_waited_for, set_up, tear_down),
		cmocka_unit_test_setup_teardown(slots_of_a_killed_writer_are_passed_over, set_up, tear_down),
		cmocka_unit_test_setup_teardown(slot_that_nobody_writes_is_not_waited_for_longer_than_it_lasts, set_up, tear_down),
		cmocka_unit_test_setup_teardown(writer_that_stood_still_for_a_lap_harms_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(without_an_observer_nothing_is_written, set_up, tear_down),
		cmocka_unit_test_setup_teardown(next_observer_sees_what_comes_then, set_up, tear_down),
		cmocka_unit_test_setup_teardown(writers_and_reader_do_not_disturb_each_other, set_up, tear_down),
		cmocka_unit_test_setup_teardown(process_gives_its_ring_and_is_seen_to_go, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_is_no_ring_is_refused, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
