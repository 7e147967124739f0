/* SPDX-License-Identifier: MIT */
/*
 * usage: many CONNECTIONS
 *
 * Connections that are made, used and ended one after the other, by two threads of one process: each carries a message. Afterwards
 * there are as many descriptors as before, and soon not noticeably more memory.
 */
#include "meet.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Connections until everything that is kept for the next is there, bytes that a process may have more after many of them, and
 * seconds: an ended connection is remembered for some */
#define WARM_UP	  100
#define TOLERANCE (256 << 10)
#define PATIENCE  60

static unsigned connections;

static unsigned count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void serve_one(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	uint32_t received = 0;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	rdma_ack_cm_event(event);
	equip(id);
	mr = rdma_reg_msgs(id, &received, sizeof(received));
	assert_non_null(mr);
	assert_int_equal(failure(rdma_post_recv(id, NULL, &received, sizeof(received), mr)), 0);
	assert_int_equal(failure(rdma_accept(id, NULL)), 0);
	expect_only(channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(rdma_get_recv_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(received, 4711);
	expect_only(channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

static void use_one(struct rdma_event_channel *channel, __be16 port)
{
	struct rdma_cm_id *id = meet_resolve(channel, RDMA_PS_TCP, port);
	uint32_t sent = 4711;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	equip(id);
	mr = rdma_reg_msgs(id, &sent, sizeof(sent));
	assert_non_null(mr);
	assert_int_equal(failure(rdma_connect(id, NULL)), 0);
	expect_only(channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(failure(rdma_post_send(id, NULL, &sent, sizeof(sent), mr, 0)), 0);
	assert_int_equal(rdma_get_send_comp(id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(failure(rdma_disconnect(id)), 0);
	expect_only(channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_dereg_mr(mr);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

static void *serve(void *arg)
{
	for (unsigned i = 0; i < connections; i++)
		serve_one(arg);
	return NULL;
}

static void nothing_is_left_of_ended_connections(void **state)
{
	unsigned descriptors = 0;
	struct meeting meeting;
	size_t memory = 0;
	pthread_t thread;

	(void)state;
	meet_listen(&meeting, RDMA_PS_TCP);
	assert_int_equal(pthread_create(&thread, NULL, serve, meeting.server), 0);
	for (unsigned i = 0; i < connections; i++) {
		if (i == WARM_UP) {
			descriptors = count_descriptors();
			memory = mallinfo2().uordblks;
		}
		use_one(meeting.client, rdma_get_src_port(meeting.listener));
	}
	pthread_join(thread, NULL);
	/* The other thread may be one step behind, or have been. */
	assert_in_range(count_descriptors(), descriptors - 8, descriptors + 8);
	for (unsigned tries = 0; mallinfo2().uordblks > memory + TOLERANCE; tries++) {
		if (tries == 10 * PATIENCE)
			fail_msg("%zu bytes more", mallinfo2().uordblks - memory);
		usleep(100000);
	}
	part(&meeting);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(nothing_is_left_of_ended_connections) };

	mallopt(M_ARENA_MAX, 1); /* so that all of it is counted */
	connections = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	if (connections <= WARM_UP) {
		fprintf(stderr, "usage: many CONNECTIONS (more than %d)\n", WARM_UP);
		return 2;
	}
	return cmocka_run_group_tests_name("many", tests, NULL, NULL);
}
