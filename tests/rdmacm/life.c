/* SPDX-License-Identifier: MIT */
/* How long things live: ids wait for the acknowledgement of their events, move between channels, and end in a forked child. */
#include "meet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* As long as a thread is given to do what it must not do. */
#define MOMENT_US 50000

struct destruction {
	struct rdma_cm_id *id;
	atomic_bool done;
};

static void *destroy(void *arg)
{
	struct destruction *destruction = arg;

	rdma_destroy_id(destruction->id);
	destruction->done = true;
	return NULL;
}

static void destroying_waits_for_acknowledgements(void **state)
{
	struct destruction destruction = { 0 };
	struct rdma_cm_event *event;
	struct meeting meeting;
	pthread_t thread;

	(void)state;
	meet_request(&meeting, RDMA_PS_TCP, NULL, 0);
	assert_int_equal(failure(rdma_reject(meeting.to_client, "reason", 7)), 0);
	event = expect(meeting.client, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_qp(meeting.to_server);
	destruction.id = meeting.to_server;
	meeting.to_server = NULL;
	assert_int_equal(pthread_create(&thread, NULL, destroy, &destruction), 0);
	usleep(MOMENT_US);
	assert_false(destruction.done);
	/* What the event holds lives as long. */
	assert_string_equal(event->param.conn.private_data, "reason");
	assert_int_equal(failure(rdma_ack_cm_event(event)), 0);
	pthread_join(thread, NULL);
	assert_true(destruction.done);
	part(&meeting);
}

static void a_request_counts_for_its_listener(void **state)
{
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7 };
	struct destruction destruction = { 0 };
	struct rdma_cm_event *event;
	struct meeting meeting;
	pthread_t thread;

	(void)state;
	meet_listen(&meeting, RDMA_PS_TCP);
	meeting.to_server = meet_resolve(meeting.client, RDMA_PS_TCP, rdma_get_src_port(meeting.listener));
	equip(meeting.to_server);
	assert_int_equal(failure(rdma_connect(meeting.to_server, &param)), 0);
	event = expect(meeting.server, RDMA_CM_EVENT_CONNECT_REQUEST);
	/* The new id may go before its event. */
	assert_int_equal(failure(rdma_destroy_id(event->id)), 0);
	destruction.id = meeting.listener;
	meeting.listener = NULL;
	assert_int_equal(pthread_create(&thread, NULL, destroy, &destruction), 0);
	usleep(MOMENT_US);
	assert_false(destruction.done);
	assert_int_equal(failure(rdma_ack_cm_event(event)), 0);
	pthread_join(thread, NULL);
	expect_only(meeting.client, RDMA_CM_EVENT_REJECTED);
	part(&meeting);
}

static void events_not_read_go_with_the_id(void **state)
{
	struct meeting meeting;

	(void)state;
	meet_request(&meeting, RDMA_PS_TCP, NULL, 0);
	assert_int_equal(failure(rdma_reject(meeting.to_client, NULL, 0)), 0);
	struct pollfd fd = { .fd = meeting.client->fd, .events = POLLIN };

	assert_int_equal(poll(&fd, 1, 20000), 1);
	rdma_destroy_qp(meeting.to_server);
	rdma_destroy_id(meeting.to_server);
	meeting.to_server = NULL;
	expect_none(meeting.client);
	part(&meeting);
}

static void the_listener_may_go_before_its_connections(void **state)
{
	struct meeting meeting;

	(void)state;
	meet(&meeting);
	rdma_destroy_id(meeting.listener);
	meeting.listener = NULL;
	assert_int_equal(failure(rdma_disconnect(meeting.to_server)), 0);
	expect_only(meeting.server, RDMA_CM_EVENT_DISCONNECTED);
	part(&meeting);
}

/* And before its requests that the program has: they are asked for again, after half a second first, while it thinks. */
static void the_listener_may_go_before_a_request_is_accepted(void **state)
{
	struct meeting meeting;

	(void)state;
	meet_request(&meeting, RDMA_PS_TCP, NULL, 0);
	rdma_destroy_id(meeting.listener);
	meeting.listener = NULL;
	usleep(700000);
	expect_none(meeting.client);
	equip(meeting.to_client);
	assert_int_equal(failure(rdma_accept(meeting.to_client, NULL)), 0);
	expect_only(meeting.client, RDMA_CM_EVENT_ESTABLISHED);
	expect_only(meeting.server, RDMA_CM_EVENT_ESTABLISHED);
	part(&meeting);
}

static void an_id_destroyed_disconnects(void **state)
{
	struct rdma_cm_event *event;
	struct meeting meeting;

	(void)state;
	meet(&meeting);
	rdma_destroy_qp(meeting.to_client);
	rdma_destroy_id(meeting.to_client);
	meeting.to_client = NULL;
	event = expect(meeting.client, RDMA_CM_EVENT_DISCONNECTED);
	assert_ptr_equal(event->id, meeting.to_server);
	rdma_ack_cm_event(event);
	part(&meeting);
}

static void an_id_moves_with_its_events(void **state)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct pollfd fd;
	struct meeting meeting;

	(void)state;
	meet(&meeting);
	assert_int_equal(failure(rdma_disconnect(meeting.to_server)), 0);
	fd = (struct pollfd){ .fd = meeting.server->fd, .events = POLLIN };
	assert_int_equal(poll(&fd, 1, 20000), 1);
	assert_int_equal(failure(rdma_migrate_id(meeting.to_client, other)), 0);
	assert_ptr_equal(meeting.to_client->channel, other);
	expect_none(meeting.server);
	expect_only(other, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(meeting.to_client);
	rdma_destroy_id(meeting.to_client);
	meeting.to_client = NULL;
	rdma_destroy_event_channel(other);
	part(&meeting);
}

static void an_id_may_become_synchronous(void **state)
{
	struct meeting meeting;

	(void)state;
	meet(&meeting);
	assert_int_equal(failure(rdma_migrate_id(meeting.to_server, NULL)), 0);
	assert_ptr_not_equal(meeting.to_server->channel, meeting.client);
	assert_int_equal(failure(rdma_migrate_id(meeting.to_server, NULL)), EINVAL);
	/* Now it waits for its event. The other end is first, or both would wait for it. */
	assert_int_equal(failure(rdma_disconnect(meeting.to_client)), 0);
	assert_int_equal(failure(rdma_disconnect(meeting.to_server)), 0);
	assert_non_null(meeting.to_server->event);
	assert_int_equal(meeting.to_server->event->event, RDMA_CM_EVENT_DISCONNECTED);
	expect_only(meeting.server, RDMA_CM_EVENT_DISCONNECTED);
	part(&meeting);
}

static void one_id_has_one_qp(void **state)
{
	struct ibv_srq_init_attr srq_attr;
	struct ibv_qp_init_attr attr;
	struct meeting meeting;

	(void)state;
	/* The structures end in padding, in which there may be anything. */
	memset(&attr, 0xff, sizeof(attr));
	memset(&srq_attr, 0xff, sizeof(srq_attr));
	attr.qp_context = NULL;
	attr.send_cq = attr.recv_cq = NULL;
	attr.srq = NULL;
	attr.cap = (struct ibv_qp_cap){ .max_send_wr = 1, .max_recv_wr = 1 };
	attr.qp_type = IBV_QPT_RC;
	attr.sq_sig_all = 0;
	srq_attr.attr = (struct ibv_srq_attr){ .max_wr = 4, .max_sge = 1 };
	meet_request(&meeting, RDMA_PS_TCP, NULL, 0);
	assert_int_equal(failure(rdma_create_qp(meeting.to_server, NULL, &attr)), EINVAL);
	/* What it makes for the QP is the id's, and goes with it. */
	assert_non_null(meeting.to_server->send_cq);
	assert_non_null(meeting.to_server->recv_cq_channel);
	rdma_destroy_qp(meeting.to_server);
	assert_null(meeting.to_server->qp);
	assert_null(meeting.to_server->send_cq);
	assert_null(meeting.to_server->recv_cq_channel);
	assert_int_equal(failure(rdma_create_qp(meeting.to_server, NULL, &attr)), 0);
	assert_ptr_equal(attr.send_cq, meeting.to_server->send_cq);

	assert_int_equal(failure(rdma_create_srq(meeting.to_client, NULL, &srq_attr)), 0);
	assert_non_null(meeting.to_client->srq);
	assert_int_equal(failure(rdma_create_srq(meeting.to_client, NULL, &srq_attr)), EINVAL);
	equip(meeting.to_client);
	assert_ptr_equal(meeting.to_client->qp->srq, meeting.to_client->srq);
	rdma_destroy_qp(meeting.to_client);
	rdma_destroy_srq(meeting.to_client);
	assert_null(meeting.to_client->srq);
	part(&meeting);
}

/* The child's end of a test: 0, or the number of the line that failed. */
#define check(condition)                 \
	do {                             \
		if (!(condition))        \
			return __LINE__; \
	} while (0)

static int use_in_child(const struct meeting *meeting)
{
	__attribute__((unused)) struct rdma_event_channel *channel;
	__attribute__((unused)) struct sockaddr_in address;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	check(failure(rdma_get_cm_event(meeting->client, &event)) == ENODEV);
	check(failure(rdma_create_id(meeting->client, &id, NULL, RDMA_PS_TCP)) == ENODEV);
	check(failure(rdma_resolve_route(meeting->to_server, 1)) == ENODEV);
	check(failure(rdma_disconnect(meeting->to_server)) == ENODEV);
	check(failure(rdma_listen(meeting->listener, 1)) == ENODEV);
	check(failure(rdma_accept(meeting->to_client, NULL)) != 0);
	rdma_destroy_qp(meeting->to_server);
	check(!rdma_destroy_id(meeting->to_server));
	check(!rdma_destroy_id(meeting->listener));
	rdma_destroy_event_channel(meeting->client);
	/* And it may begin again; but ThreadSanitizer bears no new threads in the child of a process that had some. */
#ifndef __SANITIZE_THREAD__
	channel = rdma_create_event_channel();
	check(channel);
	check(!rdma_create_id(channel, &id, NULL, RDMA_PS_UDP));
	set_loopback(&address, 0);
	check(!rdma_bind_addr(id, (struct sockaddr *)&address));
	check(id->verbs && id->verbs != meeting->to_client->verbs);
	check(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
#endif
	return 0;
}

static void a_forked_child_gets_errors(void **state)
{
	struct meeting meeting;
	int status;
	pid_t child;

	(void)state;
	meet(&meeting);
	child = fork();
	if (!child) {
		int line = use_in_child(&meeting);

		if (line)
			dprintf(2, "line %d failed in the child\n", line);
		_exit(!!line);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The parent's connection is as it was. */
	expect_none(meeting.client);
	assert_int_equal(failure(rdma_disconnect(meeting.to_server)), 0);
	expect_only(meeting.server, RDMA_CM_EVENT_DISCONNECTED);
	part(&meeting);
}

static void devices_are_opened_once(void **state)
{
	struct ibv_context **first, **again;
	struct meeting meeting;
	int count;

	(void)state;
	first = rdma_get_devices(&count);
	assert_non_null(first);
	assert_in_range(count, 1, 100);
	assert_null(first[count]);
	again = rdma_get_devices(NULL);
	assert_ptr_equal(first[0], again[0]);
	meet(&meeting);
	assert_ptr_equal(meeting.to_server->verbs, meeting.to_client->verbs);
	part(&meeting);
	rdma_free_devices(first);
	rdma_free_devices(again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(destroying_waits_for_acknowledgements),
		cmocka_unit_test(a_request_counts_for_its_listener),
		cmocka_unit_test(events_not_read_go_with_the_id),
		cmocka_unit_test(the_listener_may_go_before_its_connections),
		cmocka_unit_test(the_listener_may_go_before_a_request_is_accepted),
		cmocka_unit_test(an_id_destroyed_disconnects),
		cmocka_unit_test(an_id_moves_with_its_events),
		cmocka_unit_test(an_id_may_become_synchronous),
		cmocka_unit_test(one_id_has_one_qp),
		cmocka_unit_test(a_forked_child_gets_errors),
		cmocka_unit_test(devices_are_opened_once),
	};

	return cmocka_run_group_tests_name("life", tests, NULL, NULL);
}
