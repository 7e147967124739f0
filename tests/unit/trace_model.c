/* SPDX-License-Identifier: MIT */
/* From events, made by hand, to lives, fills and files: whatever is lost, late or used again. */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include <json-c/json.h>

#include "tools/trace_fill.h"
#include "tools/trace_perfetto.h"
#include "tools/trace_phases.h"
#include "tools/trace_spool.h"
#include "trace_scene.h"

enum { LEFT = 0x4001, RIGHT = 0x8001, MTU = 1024 };

static struct trace_model model;

static int make(void **state)
{
	(void)state;
	assert_int_equal(trace_model_process(&model, 100, 0, "left"), 0);
	assert_int_equal(trace_model_process(&model, 200, 0, "right"), 1);
	return 0;
}

static int unmake(void **state)
{
	(void)state;
	trace_model_free(&model);
	return 0;
}

/* Two connected QPs, one of each process. */
static struct scene connected(enum ibv_qp_type type)
{
	struct scene s = { .model = &model, .time = 10 };

	scene_qp(&s, LEFT, RIGHT, type, 1, 2, MTU, -1);
	scene_event(&s, TRACE_CQ, 0, 0, SCENE_CQ, 0, 32, 0);
	s.process = 1;
	scene_qp(&s, RIGHT, LEFT, type, 2, 1, MTU, -1);
	scene_event(&s, TRACE_CQ, 0, 0, SCENE_CQ, 0, 32, 0);
	s.process = 0;
	return s;
}

static void at(struct scene *s, uint32_t process, uint64_t time)
{
	s->process = process;
	s->time = time;
}

/* A SEND from left to right with this index, to the receive of this slot, from time `t` on; event number `lost` is lost. */
enum { SEND_EVENTS = 14 };

static void tell_send(uint32_t index, uint32_t slot, uint64_t t, unsigned lost)
{
	struct scene s = { .model = &model };
	unsigned number = 0;

#define TELL(process, after, ...)             \
	do {                                  \
		at(&s, process, t + (after)); \
		if (number++ != lost)         \
			__VA_ARGS__;          \
	} while (0)
	TELL(1, 0, scene_event(&s, TRACE_POST_RECV, 0, 0, RIGHT, slot, 64, 900 + slot));
	TELL(0, 10, scene_event(&s, TRACE_POST_SEND, IBV_WR_SEND, IBV_SEND_SIGNALED, LEFT, index, 48, 500ull + index));
	TELL(0, 20, scene_event(&s, TRACE_RING, 0, 0, LEFT, index, 1, 0));
	TELL(0, 30, scene_event(&s, TRACE_SEEN, 0, 0, LEFT, index, 0, 0));
	TELL(0, 40, scene_event(&s, TRACE_TAKEN, 0, 0, RIGHT, slot, 0, scene_whose(LEFT, index)));
	TELL(0, 50, scene_event(&s, TRACE_GATHERED, 0, 0, LEFT, index, 0, 0));
	TELL(0, 60, scene_message(&s, IBV_WR_SEND, LEFT, index & ROCE_PSN_MASK, index, RIGHT, 48, 0, 0));
	TELL(0, 70, scene_event(&s, TRACE_PLACED, 0, 0, RIGHT, slot, 0, scene_whose(LEFT, index)));
	TELL(0, 80, scene_event(&s, TRACE_CQE, IBV_WC_SUCCESS, TRACE_CQE_RECV, RIGHT, slot, 48, SCENE_CQ));
	TELL(0, 85, scene_event(&s, TRACE_FIRED, 0, 0, SCENE_CQ, 0, 0, RIGHT));
	TELL(0, 90, scene_event(&s, TRACE_CQE, IBV_WC_SUCCESS, 0, LEFT, index, 48, SCENE_CQ));
	TELL(0, 100, scene_event(&s, TRACE_POLLED, IBV_WC_SUCCESS, 0, LEFT, index, SCENE_CQ, 500ull + index));
	TELL(1, 110, scene_event(&s, TRACE_AWOKE, 0, 0, SCENE_CQ, 0, 0, 0));
	TELL(1, 120, scene_event(&s, TRACE_POLLED, IBV_WC_SUCCESS, TRACE_CQE_RECV, RIGHT, slot, SCENE_CQ, 900 + slot));
	assert_int_equal(number, SEND_EVENTS);
#undef TELL
}

static void life_of_a_send_has_both_ends(void **state)
{
	static const uint64_t times[TRACE_POINTS] = { [TRACE_POINT_POSTED] = 10,   [TRACE_POINT_RUNG] = 20,
						      [TRACE_POINT_SEEN] = 30,	   [TRACE_POINT_TAKEN] = 40,
						      [TRACE_POINT_GATHERED] = 50, [TRACE_POINT_SENT] = 60,
						      [TRACE_POINT_PLACED] = 70,   [TRACE_POINT_CQE] = 90,
						      [TRACE_POINT_POLLED] = 100 };
	const struct trace_send *send;
	const struct trace_receive *receive;

	(void)state;
	connected(IBV_QPT_RC);
	tell_send(7, 3, 1000, SEND_EVENTS);
	trace_model_end(&model);
	assert_int_equal(model.sends.count, 1);
	assert_int_equal(model.receives.count, 1);
	send = &model.sends.at[0];
	receive = &model.receives.at[0];
	for (unsigned point = 0; point < TRACE_POINTS; point++)
		assert_int_equal(send->at[point], times[point] ? 1000 + times[point] : TRACE_NEVER);
	assert_int_equal(send->wr_id, 507);
	assert_int_equal(send->length, 48);
	assert_int_equal(send->list, 1);
	assert_int_equal(send->packets, 1);
	assert_int_equal(send->status, IBV_WC_SUCCESS);
	assert_int_equal(model.qps.at[send->dest].qpn, RIGHT);
	assert_int_equal(send->receive, 0);
	assert_int_equal(receive->send, 0);
	assert_int_equal(receive->posted, 1000);
	assert_int_equal(receive->taken, 1040);
	assert_int_equal(receive->placed, 1070);
	assert_int_equal(receive->cqe, 1080);
	assert_int_equal(receive->polled, 1120);
	assert_int_equal(receive->room, 64);
	assert_int_equal(receive->length, 48);
	assert_int_equal(receive->wr_id, 903);
	assert_int_equal(model.qps.at[0].peer, 1);
	assert_int_equal(model.qps.at[1].peer, 0);
	assert_int_equal(model.qps.at[1].process, 1);
	/* The event was raised by the initiator, and is of the receiver's CQ. */
	assert_int_equal(model.cq_events.count, 2);
	assert_int_equal(model.cq_events.at[0].kind, TRACE_CQ_FIRED);
	assert_int_equal(model.cqs.at[model.cq_events.at[0].cq].process, 1);
	assert_int_equal(model.cq_events.at[1].cq, model.cq_events.at[0].cq);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(model.qps.at[i].sq.now, 0);
		assert_int_equal(model.qps.at[i].rq.now, 0);
		assert_int_equal(model.cqs.at[i].fill.now, 0);
		assert_int_equal(model.cqs.at[i].fill.max, 1);
	}
	assert_int_equal(model.qps.at[0].sq.max, 1);
	assert_int_equal(model.qps.at[1].rq.max, 1);
}

/* Each event is lost once, from the middle one of three messages: it is one life all the same, and its neighbours are whole. */
static void life_bears_the_loss_of_any_event(void **state)
{
	for (unsigned lost = 0; lost < SEND_EVENTS; lost++) {
		connected(IBV_QPT_RC);
		tell_send(0, 0, 1000, SEND_EVENTS);
		tell_send(1, 1, 2000, lost);
		tell_send(2, 0, 3000, SEND_EVENTS);
		trace_model_end(&model);
		assert_int_equal(model.sends.count, 3);
		assert_int_equal(model.receives.count, 3);
		for (uint32_t i = 0; i < 3; i += 2) {
			assert_int_equal(model.sends.at[i].at[TRACE_POINT_POSTED], 1010 + 1000 * i);
			assert_int_equal(model.sends.at[i].at[TRACE_POINT_POLLED], 1100 + 1000 * i);
			assert_int_equal(model.sends.at[i].receive, i);
			assert_int_equal(model.receives.at[i].posted, 1000 + 1000 * i);
			assert_int_equal(model.receives.at[i].polled, 1120 + 1000 * i);
			assert_int_equal(model.receives.at[i].send, i);
		}
		assert_int_equal(model.qps.at[0].sq.now, 0);
		assert_int_equal(model.qps.at[1].rq.now, 0);
		unmake(state);
		make(state);
	}
}

/* Clocks of processes differ by some ns: what the sender did is told before the post that it needed. */
static void receive_that_was_posted_late_is_one_life(void **state)
{
	struct scene s = connected(IBV_QPT_RC);

	(void)state;
	tell_send(0, 5, 1000, SEND_EVENTS);
	at(&s, 0, 2000);
	scene_event(&s, TRACE_TAKEN, 0, 0, RIGHT, 5, 0, scene_whose(LEFT, 1));
	at(&s, 1, 2030);
	scene_event(&s, TRACE_POST_RECV, 0, 0, RIGHT, 5, 64, 77);
	assert_int_equal(model.receives.count, 2);
	assert_int_equal(model.receives.at[1].posted, 2030);
	assert_int_equal(model.receives.at[1].taken, 2000);
	assert_int_equal(model.receives.at[1].wr_id, 77);
	assert_int_equal(model.qps.at[1].rq.now, 0);
}

static void indices_wrap(void **state)
{
	(void)state;
	connected(IBV_QPT_RC);
	for (uint32_t i = 0; i < 6; i++)
		tell_send(0xfffffffdu + i, i % 2, 1000 * (i + 1), SEND_EVENTS);
	assert_int_equal(model.sends.count, 6);
	assert_int_equal(model.receives.count, 6);
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(model.sends.at[i].index, 0xfffffffdu + i);
		assert_int_equal(model.sends.at[i].receive, i);
		assert_int_equal(model.sends.at[i].at[TRACE_POINT_POLLED], 1000 * (i + 1) + 100);
	}
	assert_int_equal(model.qps.at[0].sq.max, 1);
	assert_int_equal(model.qps.at[0].sq.now, 0);
}

/* One completion, of the last of a list, is that of all before it. */
static void unsignaled_requests_leave_the_queue_with_the_next_completion(void **state)
{
	struct scene s = connected(IBV_QPT_RC);

	(void)state;
	for (uint32_t i = 0; i < 8; i++)
		scene_event(&s, TRACE_POST_SEND, IBV_WR_RDMA_WRITE, i == 7 ? IBV_SEND_SIGNALED : 0, LEFT, 0xfffffffcu + i, 8, i);
	scene_event(&s, TRACE_RING, 0, 0, LEFT, 0xfffffffcu, 8, 0);
	assert_int_equal(model.qps.at[0].sq.now, 8);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(model.sends.at[i].list, 8);
	scene_event(&s, TRACE_CQE, IBV_WC_SUCCESS, 0, LEFT, 3, 8, SCENE_CQ);
	assert_int_equal(model.qps.at[0].sq.now, 8);
	scene_event(&s, TRACE_POLLED, IBV_WC_SUCCESS, 0, LEFT, 3, SCENE_CQ, 7);
	assert_int_equal(model.qps.at[0].sq.now, 0);
	assert_int_equal(model.sends.at[6].status, TRACE_NO_STATUS);
	assert_int_equal(model.sends.at[7].status, IBV_WC_SUCCESS);
}

/* A number that is given again is another QP; what was still to be polled is of the old one. */
static void number_of_a_destroyed_qp_is_another_qp(void **state)
{
	struct scene s = connected(IBV_QPT_RC);

	(void)state;
	tell_send(0, 0, 1000, 11); /* not polled */
	at(&s, 0, 2000);
	scene_event(&s, TRACE_QP, 255, 0, LEFT, 0, 0, 0);
	scene_event(&s, TRACE_POLLED, IBV_WC_SUCCESS, 0, LEFT, 0, SCENE_CQ, 500);
	assert_int_equal(model.qps.count, 2);
	assert_int_equal(model.sends.at[0].at[TRACE_POINT_POLLED], 2000);
	at(&s, 0, 3000);
	scene_qp(&s, LEFT, RIGHT, IBV_QPT_UD, 1, 2, MTU, -1);
	tell_send(0, 1, 4000, SEND_EVENTS);
	trace_model_end(&model);
	assert_int_equal(model.qps.count, 3);
	assert_int_equal(model.sends.count, 2);
	assert_int_equal(model.sends.at[0].qp, 0);
	assert_int_equal(model.sends.at[1].qp, 2);
	assert_int_equal(model.qps.at[0].destroyed, 2000);
	assert_int_equal(model.qps.at[2].created, 3000);
	assert_int_equal(model.qps.at[2].attr.type, IBV_QPT_UD);
}

static void reset_begins_anew(void **state)
{
	struct scene s = connected(IBV_QPT_RC);

	(void)state;
	for (uint32_t round = 0; round < 2; round++) {
		at(&s, 0, 1000 * (round + 1));
		scene_event(&s, TRACE_POST_SEND, IBV_WR_SEND, 0, LEFT, 0, 8, round);
		scene_event(&s, TRACE_POST_SEND, IBV_WR_SEND, 0, LEFT, 1, 8, round);
		assert_int_equal(model.qps.at[0].sq.now, 2);
		scene_event(&s, TRACE_QP, IBV_QPS_RESET, 0, LEFT, 0, 0, 0);
		assert_int_equal(model.qps.at[0].sq.now, 0);
	}
	assert_int_equal(model.qps.count, 2);
	assert_int_equal(model.sends.count, 4);
	/* One that is told of now is none of those. */
	scene_event(&s, TRACE_SEEN, 0, 0, LEFT, 1, 0, 0);
	assert_int_equal(model.sends.count, 5);
}

/* A trace that begins late: all is there already. */
static void objects_from_before_the_trace_are_known_by_what_they_do(void **state)
{
	(void)state;
	for (uint32_t i = 100; i < 103; i++)
		tell_send(i, i, 1000 * i, SEND_EVENTS);
	trace_model_end(&model);
	assert_int_equal(model.qps.count, 2);
	assert_int_equal(model.sends.count, 3);
	assert_int_equal(model.receives.count, 3);
	assert_int_equal(model.sends.at[2].receive, 2);
	assert_false(model.qps.at[0].known);
	assert_int_equal(model.qps.at[0].created, TRACE_NEVER);
	assert_int_equal(model.qps.at[trace_model_qp(&model, 0, RIGHT)].process, 1);
}

static void same_numbers_of_other_hosts_are_others(void **state)
{
	struct scene s = { .model = &model, .time = 10 };

	(void)state;
	assert_int_equal(trace_model_process(&model, 100, 1, "far"), 2);
	scene_qp(&s, LEFT, LEFT, IBV_QPT_RC, 1, 2, MTU, -1);
	s.process = 2;
	scene_qp(&s, LEFT, LEFT, IBV_QPT_RC, 2, 1, MTU, -1);
	at(&s, 0, 20);
	scene_event(&s, TRACE_POST_SEND, IBV_WR_SEND, 0, LEFT, 0, 8, 1);
	at(&s, 2, 30);
	scene_event(&s, TRACE_POST_SEND, IBV_WR_SEND, 0, LEFT, 0, 8, 2);
	trace_model_end(&model);
	assert_int_equal(model.qps.count, 2);
	assert_int_equal(model.sends.count, 2);
	assert_int_equal(model.sends.at[1].qp, 1);
	assert_int_equal(model.qps.at[0].peer, 1);
	assert_int_equal(model.qps.at[1].peer, 0);
}

static void receives_of_an_srq_are_taken_by_its_qps(void **state)
{
	struct scene s = { .model = &model, .time = 10 };

	(void)state;
	scene_qp(&s, LEFT, RIGHT, IBV_QPT_RC, 1, 2, MTU, -1);
	at(&s, 1, 20);
	scene_qp(&s, RIGHT, LEFT, IBV_QPT_RC, 2, 1, MTU, 4);
	scene_event(&s, TRACE_SRQ, 0, 0, 4, 0, 100, 0);
	for (uint32_t slot = 0; slot < 3; slot++)
		scene_event(&s, TRACE_POST_RECV, 1, 0, 4, slot, 64, slot);
	assert_int_equal(model.srqs.at[0].fill.now, 3);
	at(&s, 0, 30);
	scene_event(&s, TRACE_TAKEN, 1, 0, RIGHT, 1, 0, scene_whose(LEFT, 0));
	scene_event(&s, TRACE_CQE, IBV_WC_SUCCESS, TRACE_CQE_RECV | TRACE_CQE_SRQ, RIGHT, 1, 8, SCENE_CQ);
	at(&s, 1, 40);
	scene_event(&s, TRACE_POLLED, IBV_WC_SUCCESS, TRACE_CQE_RECV | TRACE_CQE_SRQ, RIGHT, 1, SCENE_CQ, 1);
	assert_int_equal(model.srqs.at[0].fill.now, 2);
	assert_int_equal(model.qps.at[1].rq.max, 0);
	assert_int_equal(model.receives.count, 3);
	assert_int_equal(model.receives.at[1].qp, 1);
	assert_int_equal(model.receives.at[1].polled, 40);
	assert_int_equal(model.receives.at[0].qp, TRACE_NONE);
	assert_int_equal(model.receives.at[0].taken, TRACE_NEVER);
}

static void flushed_receive_leaves_its_queue(void **state)
{
	struct scene s = connected(IBV_QPT_RC);

	(void)state;
	at(&s, 1, 20);
	scene_event(&s, TRACE_POST_RECV, 0, 0, RIGHT, 0, 64, 1);
	assert_int_equal(model.qps.at[1].rq.now, 1);
	scene_event(&s, TRACE_CQE, IBV_WC_WR_FLUSH_ERR, TRACE_CQE_RECV, RIGHT, 0, 0, SCENE_CQ);
	assert_int_equal(model.qps.at[1].rq.now, 0);
	scene_event(&s, TRACE_POLLED, IBV_WC_WR_FLUSH_ERR, TRACE_CQE_RECV, RIGHT, 0, SCENE_CQ, 1);
	assert_int_equal(model.qps.at[1].rq.now, 0);
	assert_int_equal(model.receives.at[0].status, IBV_WC_WR_FLUSH_ERR);
}

static void cause_is_that_of_the_request_that_failed(void **state)
{
	struct scene s = connected(IBV_QPT_RC);

	(void)state;
	scene_event(&s, TRACE_POST_SEND, IBV_WR_RDMA_WRITE, 0, LEFT, 0, 8, 1);
	scene_event(&s, TRACE_POST_SEND, IBV_WR_RDMA_WRITE, 0, LEFT, 1, 8, 2);
	scene_event(&s, TRACE_CAUSE, 0, 0, LEFT, CAUSE_RNR, IBV_WC_RNR_RETRY_EXC_ERR, 9);
	scene_event(&s, TRACE_CQE, IBV_WC_RNR_RETRY_EXC_ERR, 0, LEFT, 0, 0, SCENE_CQ);
	scene_event(&s, TRACE_CQE, IBV_WC_WR_FLUSH_ERR, 0, LEFT, 1, 0, SCENE_CQ);
	assert_int_equal(model.causes.count, 1);
	assert_int_equal(model.causes.at[0].send, 0);
	assert_int_equal(model.causes.at[0].position, 9);
	assert_int_equal(model.sends.at[0].cause, 0);
	assert_int_equal(model.sends.at[1].cause, TRACE_NONE);
}

/* ---- The wire ---- */

static struct roce_packet packet_of(uint8_t operation, uint32_t psn, uint32_t length)
{
	return (struct roce_packet){ .opcode = ROCE_OPCODE(ROCE_RC, operation), .psn = psn & ROCE_PSN_MASK, .length = length };
}

/* From the process of LEFT to that of RIGHT, or back; it is lost where only `out`. */
static void pass(struct scene *s, uint64_t time, bool back, struct roce_packet packet, bool arrives)
{
	packet.qpn = back ? LEFT : RIGHT;
	at(s, back, time);
	scene_packet(s, true, back ? RIGHT : LEFT, &packet, back ? 2 : 1, back ? 1 : 2);
	at(s, !back, time + 5);
	if (arrives)
		scene_packet(s, false, packet.qpn, &packet, back ? 2 : 1, back ? 1 : 2);
}

static void post(struct scene *s, uint64_t time, uint8_t opcode, uint32_t index, uint32_t length)
{
	at(s, 0, time);
	scene_event(s, TRACE_POST_SEND, opcode, IBV_SEND_SIGNALED, LEFT, index, length, 40 + index);
	scene_event(s, TRACE_SEEN, 0, 0, LEFT, index, 0, 0);
}

/* PSNs wrap within the second message. */
static void packets_are_of_the_requests_that_sent_them(void **state)
{
	const uint32_t first = ROCE_PSN_MASK - 1;
	struct scene s = connected(IBV_QPT_RC);
	struct roce_packet read = packet_of(ROCE_READ_REQUEST, first + 5, 0);

	(void)state;
	read.dma_length = 2 * MTU;
	post(&s, 100, IBV_WR_SEND, 0, 10);
	post(&s, 101, IBV_WR_RDMA_WRITE, 1, 4 * MTU);
	post(&s, 102, IBV_WR_LOCAL_INV, 2, 0);
	post(&s, 103, IBV_WR_RDMA_READ, 3, 2 * MTU);
	pass(&s, 110, false, packet_of(ROCE_SEND_ONLY, first, 10), true);
	pass(&s, 120, false, packet_of(ROCE_WRITE_FIRST, first + 1, MTU), true);
	pass(&s, 130, false, packet_of(ROCE_WRITE_MIDDLE, first + 2, MTU), false);
	pass(&s, 140, false, packet_of(ROCE_WRITE_MIDDLE, first + 3, MTU), true);
	pass(&s, 150, false, packet_of(ROCE_WRITE_LAST, first + 4, MTU), true);
	pass(&s, 160, false, read, true);
	pass(&s, 170, true, packet_of(ROCE_ACKNOWLEDGE, first, 0), true);
	pass(&s, 180, false, packet_of(ROCE_WRITE_MIDDLE, first + 2, MTU), true);
	pass(&s, 190, true, packet_of(ROCE_READ_RESPONSE_FIRST, first + 5, MTU), true);
	pass(&s, 200, true, packet_of(ROCE_READ_RESPONSE_LAST, first + 6, MTU), true);
	assert_int_equal(model.sends.count, 4);
	assert_int_equal(model.sends.at[0].psn, first);
	assert_int_equal(model.sends.at[1].psn, (first + 1) & ROCE_PSN_MASK);
	assert_int_equal(model.sends.at[1].packets, 4);
	assert_int_equal(model.sends.at[3].psn, (first + 5) & ROCE_PSN_MASK);
	assert_int_equal(model.sends.at[3].packets, 2);
	assert_int_equal(model.sends.at[0].at[TRACE_POINT_SENT], 110);
	assert_int_equal(model.sends.at[0].at[TRACE_POINT_ACKED], 175);
	assert_int_equal(model.sends.at[1].at[TRACE_POINT_ACKED], 205);
	assert_int_equal(model.sends.at[2].at[TRACE_POINT_SENT], TRACE_NEVER);
	assert_int_equal(model.sends.at[3].at[TRACE_POINT_SENT], 160);
	assert_int_equal(model.sends.at[3].at[TRACE_POINT_ACKED], 205);
	for (uint32_t i = 0; i < model.packets.count; i++) {
		static const uint32_t sends[] = { 0, 0, 1, 1, 1, 1, 1, 1, 1, 3, 3, 0, 0, 1, 1, 3, 3, 3, 3 };

		assert_int_equal(model.packets.at[i].send, sends[i]);
		assert_int_equal(model.packets.at[i].again, i == 13);
	}
	assert_int_equal(model.packets.count, 19);
}

/* Who receives does not know the sender's index: it is known by the packet that was the last to arrive. */
static void receive_on_the_wire_is_joined_by_psn(void **state)
{
	struct scene s = connected(IBV_QPT_RC);

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		at(&s, 1, 1000 * i);
		scene_event(&s, TRACE_POST_RECV, 0, 0, RIGHT, i, 64, i);
		post(&s, 1000 * i + 10, IBV_WR_SEND, i, 10);
		pass(&s, 1000 * i + 20, false, packet_of(ROCE_SEND_ONLY, i, 10), true);
		at(&s, 1, 1000 * i + 30);
		scene_event(&s, TRACE_TAKEN, 0, 0, RIGHT, i, 0, 0);
		scene_event(&s, TRACE_PLACED, 0, 0, RIGHT, i, 0, 0);
	}
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(model.sends.at[i].receive, i);
		assert_int_equal(model.sends.at[i].at[TRACE_POINT_PLACED], 1000 * i + 30);
		assert_int_equal(model.receives.at[i].send, i);
		assert_int_equal(model.receives.at[i].placed, 1000 * i + 30);
	}
}

/* ---- Fills and phases ---- */

static void fill_of_any_length_has_its_peak_in_few_points(void **state)
{
	struct trace_fill fill = { 0 };
	uint32_t high = 0;

	(void)state;
	for (uint64_t i = 0; i < 1000000; i++)
		trace_fill_set(&fill, i * 1000, i == 777777 ? 99 : i % 7);
	assert_true(fill.count <= TRACE_FILL_POINTS);
	assert_true(fill.count > TRACE_FILL_POINTS / 8);
	assert_int_equal(fill.max, 99);
	for (uint32_t i = 0; i < fill.count; i++) {
		assert_true(fill.points[i].low <= fill.points[i].high);
		assert_true(!i || fill.points[i].time > fill.points[i - 1].time);
		high = fill.points[i].high > high ? fill.points[i].high : high;
	}
	assert_int_equal(high, 99);
	trace_fill_add(&fill, 2000000000, -1000);
	assert_int_equal(fill.now, 0);
	free(fill.points);
}

static uint64_t median, ninety_nine, counted;

static void note_phase(void *arg, const struct trace_phase *phase)
{
	(void)arg;
	if (phase->from != TRACE_POINT_POSTED || phase->to != TRACE_POINT_POLLED)
		return;
	median = trace_phase_quantile(phase, 0.5);
	ninety_nine = trace_phase_quantile(phase, 0.99);
	counted = phase->count;
	assert_int_equal(phase->min, 1);
	assert_int_equal(phase->max, 100000);
}

static void quantiles_are_right_within_3_percent(void **state)
{
	static struct trace_phase room;
	struct scene s = connected(IBV_QPT_RC);

	(void)state;
	for (uint32_t i = 0; i < 100000; i++) {
		at(&s, 0, 1000000 + i);
		scene_event(&s, TRACE_POST_SEND, IBV_WR_SEND, 0, LEFT, i, 8, i);
		s.time += i + 1;
		scene_event(&s, TRACE_POLLED, IBV_WC_SUCCESS, 0, LEFT, i, SCENE_CQ, i);
	}
	trace_phases_tell(&model, IBV_WR_SEND, &room, note_phase, NULL);
	assert_int_equal(counted, 100000);
	assert_in_range(median, 50000, 51600);
	assert_in_range(ninety_nine, 99000, 100000);
}

/* The value of which "half in", "99 % in" are said was there, and they are so. */
static uint64_t halves[2];

static void note_halves(void *arg, const struct trace_phase *phase)
{
	(void)arg;
	if (phase->from != TRACE_POINT_POSTED || phase->to != TRACE_POINT_POLLED)
		return;
	halves[0] = trace_phase_quantile(phase, 0.5);
	halves[1] = trace_phase_quantile(phase, 0.99);
}

static void quantiles_of_few_are_values_of_theirs(void **state)
{
	static const uint64_t took[] = { 49660, 49900, 35980, 50390 };
	static struct trace_phase room;
	struct scene s = connected(IBV_QPT_RC);

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		at(&s, 0, 1000000 + i);
		scene_event(&s, TRACE_POST_SEND, i < 2 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, 0, LEFT, i, 8, i);
		s.time += took[i];
		scene_event(&s, TRACE_POLLED, IBV_WC_SUCCESS, 0, LEFT, i, SCENE_CQ, i);
	}
	trace_phases_tell(&model, IBV_WR_SEND, &room, note_halves, NULL);
	assert_in_range(halves[0], 49660, 49900); /* of one width: any of them that is true */
	assert_int_equal(halves[1], 49900);
	trace_phases_tell(&model, IBV_WR_RDMA_WRITE, &room, note_halves, NULL);
	assert_int_equal(halves[0], 35980);
	assert_int_equal(halves[1], 50390);
}

static uint64_t took[TRACE_POINTS][TRACE_POINTS];

static void note_all(void *arg, const struct trace_phase *phase)
{
	(void)arg;
	took[phase->from][phase->to] = phase->max;
}

static void wait_to_be_sent_again_is_a_part_of_its_own(void **state)
{
	static struct trace_phase room;
	struct scene s = connected(IBV_QPT_RC);

	(void)state;
	/* The receiver is not ready, twice. */
	post(&s, 1000, IBV_WR_SEND, 0, 8);
	at(&s, 0, 1020);
	scene_event(&s, TRACE_RETRY, TRACE_RETRY_RNR, 0, LEFT, 0, 1, 0);
	at(&s, 0, 500000);
	scene_event(&s, TRACE_RETRY, TRACE_RETRY_RNR, 0, LEFT, 0, 2, 0);
	at(&s, 0, 900000);
	scene_event(&s, TRACE_TAKEN, 0, 0, RIGHT, 3, 0, (uint64_t)LEFT << 32);
	s.time++;
	scene_event(&s, TRACE_GATHERED, IBV_WR_SEND, 0, LEFT, 0, 8, 0);
	scene_message(&s, IBV_WR_SEND, LEFT, 7, 0, RIGHT, 8, 0, 0);
	at(&s, 0, 900050);
	scene_event(&s, TRACE_PLACED, 0, 0, RIGHT, 3, 0, (uint64_t)LEFT << 32);
	scene_event(&s, TRACE_CQE, IBV_WC_SUCCESS, 0, LEFT, 0, 0, SCENE_CQ);
	assert_int_equal(model.sends.at[0].at[TRACE_POINT_AGAIN], 900000);
	trace_phases_tell(&model, IBV_WR_SEND, &room, note_all, NULL);
	assert_int_equal(took[TRACE_POINT_SEEN][TRACE_POINT_AGAIN], 899000);
	assert_int_equal(took[TRACE_POINT_AGAIN][TRACE_POINT_PLACED], 50);
	assert_int_equal(took[TRACE_POINT_SEEN][TRACE_POINT_GATHERED], 0);
	assert_int_equal(took[TRACE_POINT_SEEN][TRACE_POINT_SENT], 0);
	assert_int_equal(took[TRACE_POINT_SEEN][TRACE_POINT_TAKEN], 0);
	assert_int_equal(took[TRACE_POINT_POSTED][TRACE_POINT_PLACED], 899050);

	/* It is not, as often as the sender tries. */
	post(&s, 1000000, IBV_WR_SEND, 1, 8);
	scene_event(&s, TRACE_RETRY, TRACE_RETRY_RNR, 0, LEFT, 1, 1, 0);
	at(&s, 0, 1800000);
	scene_event(&s, TRACE_CQE, IBV_WC_RNR_RETRY_EXC_ERR, 0, LEFT, 1, 0, SCENE_CQ);
	assert_int_equal(model.sends.at[1].at[TRACE_POINT_AGAIN], 1800000);
	/* There was never a receive. */
	trace_model_end(&model);
	assert_int_equal(model.qps.at[1].rq.waited, 899000 + 800000);
	assert_int_equal(model.qps.at[1].rq.max, 0);
	assert_int_equal(model.qps.at[1].rq.points[0].time, 10);

	/* On the wire what was lost is sent at once when that is known. */
	model.qps.at[0].attr.wire = 1;
	post(&s, 2000000, IBV_WR_RDMA_WRITE, 2, 8);
	at(&s, 0, 2000010);
	scene_event(&s, TRACE_GATHERED, IBV_WR_RDMA_WRITE, 0, LEFT, 2, 8, 0);
	pass(&s, 2000020, false, packet_of(ROCE_WRITE_ONLY, 9, 8), false);
	post(&s, 2000030, IBV_WR_SEND, 3, 8);
	scene_event(&s, TRACE_GATHERED, IBV_WR_SEND, 0, LEFT, 3, 8, 0);
	at(&s, 0, 2500000);
	scene_event(&s, TRACE_RETRY, TRACE_RETRY_SEQUENCE, 0, LEFT, 2, 1, 0);
	at(&s, 0, 2500070);
	scene_event(&s, TRACE_GATHERED, IBV_WR_RDMA_WRITE, 0, LEFT, 2, 8, 0);
	scene_event(&s, TRACE_GATHERED, IBV_WR_SEND, 0, LEFT, 3, 8, 0);
	at(&s, 0, 2500100);
	scene_event(&s, TRACE_PLACED, 0, 0, RIGHT, UINT32_MAX, 0, (uint64_t)LEFT << 32 | 2);
	assert_int_equal(model.sends.at[2].at[TRACE_POINT_AGAIN], 2500000);
	assert_int_equal(model.sends.at[3].at[TRACE_POINT_AGAIN], 2500070);
	memset(took, 0, sizeof(took));
	trace_phases_tell(&model, IBV_WR_RDMA_WRITE, &room, note_all, NULL);
	assert_int_equal(took[TRACE_POINT_SEEN][TRACE_POINT_AGAIN], 500000);
	assert_int_equal(took[TRACE_POINT_AGAIN][TRACE_POINT_PLACED], 100);
	assert_int_equal(took[TRACE_POINT_SENT][TRACE_POINT_PLACED], 0);
	assert_int_equal(took[TRACE_POINT_SEEN][TRACE_POINT_GATHERED], 0);
}

/* ---- JSON ---- */

static struct json_object *as_json(void (*write)(FILE *out, const struct trace_told *told), struct trace_shown *shown,
				   uint32_t most)
{
	struct trace_told told = {
		.model = &model, .shown = shown, .program = "a \"b\" </script>\\\n\xff\xe2\x82\xac", .start = 1234567890123456789ull
	};
	struct json_object *json;
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	trace_model_end(&model);
	assert_true(trace_shown_choose(shown, &model, most));
	write(out, &told);
	fclose(out);
	assert_null(strstr(text, "</"));
	json = json_tokener_parse(text);
	assert_non_null(json);
	free(text);
	return json;
}

static struct json_object *get(struct json_object *json, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(json, key, &value))
		fail_msg("no %s", key);
	return value;
}

/* A cell of a table by its column; NULL for null. */
static struct json_object *cell(struct json_object *json, const char *name, size_t row, const char *column)
{
	struct json_object *table = get(json, name), *columns = get(table, "columns"), *rows = get(table, "rows");
	struct json_object *at_row = json_object_array_get_idx(rows, row);

	assert_non_null(at_row);
	assert_int_equal(json_object_array_length(at_row), json_object_array_length(columns));
	for (size_t i = 0; i < json_object_array_length(columns); i++)
		if (!strcmp(json_object_get_string(json_object_array_get_idx(columns, i)), column))
			return json_object_array_get_idx(at_row, i);
	fail_msg("no column %s in %s", column, name);
	return NULL;
}

static int64_t number(struct json_object *json, const char *name, size_t row, const char *column)
{
	struct json_object *value = cell(json, name, row, column);

	assert_int_equal(json_object_get_type(value), json_type_int);
	return json_object_get_int64(value);
}

static void json_is_as_documented(void **state)
{
	struct scene s = connected(IBV_QPT_RC);
	struct trace_shown shown;
	struct json_object *json, *qp;

	(void)state;
	tell_send(0xffffffff, 3, 1000, SEND_EVENTS);
	at(&s, 0, 5000);
	scene_event(&s, TRACE_RETRY, TRACE_RETRY_RNR, 0, LEFT, 0xffffffff, 1, 0);
	scene_event(&s, TRACE_CAUSE, 0, 0, LEFT, CAUSE_RNR, IBV_WC_RNR_RETRY_EXC_ERR, 9);
	pass(&s, 6000, false, packet_of(ROCE_SEND_ONLY, 77, 10), false);
	json = as_json(trace_json_model, &shown, TRACE_SHOWN_MOST);
	assert_string_equal(json_object_get_string(get(json, "format")), "uroce-trace");
	assert_int_equal(json_object_get_int(get(json, "version")), 1);
	assert_string_equal(json_object_get_string(get(json, "start_ns")), "1234567890123456789");
	assert_string_equal(json_object_get_string(get(json, "program")), "a \"b\" </script>\\\n?€");
	assert_int_equal(json_object_array_length(get(json, "processes")), 2);
	qp = json_object_array_get_idx(get(json, "qps"), 0);
	assert_string_equal(json_object_get_string(get(qp, "type")), "RC");
	assert_string_equal(json_object_get_string(get(qp, "sgid")), "10.0.0.1");
	assert_int_equal(json_object_get_int(get(qp, "peer")), 1);
	assert_null(get(qp, "srq"));
	assert_int_equal(json_object_array_length(get(qp, "states")), 4);
	assert_int_equal(number(json, "sends", 0, "time"), 1010);
	assert_int_equal(number(json, "sends", 0, "posted"), 0);
	assert_int_equal(number(json, "sends", 0, "polled"), 90);
	assert_int_equal(number(json, "sends", 0, "remote_polled"), 110);
	assert_int_equal(number(json, "sends", 0, "receive"), 0);
	assert_int_equal(number(json, "sends", 0, "retries"), 1);
	assert_int_equal(number(json, "sends", 0, "index"), 0xffffffff);
	assert_null(cell(json, "sends", 0, "acked"));
	assert_string_equal(json_object_get_string(cell(json, "sends", 0, "status")), "SUCCESS");
	assert_string_equal(json_object_get_string(cell(json, "sends", 0, "opcode")), "SEND");
	assert_string_equal(json_object_get_string(cell(json, "sends", 0, "wr_id")), "0x1000001f3");
	assert_int_equal(number(json, "receives", 0, "taken"), 40);
	assert_int_equal(number(json, "receives", 0, "send"), 0);
	assert_int_equal(number(json, "packets", 0, "psn"), 77);
	assert_string_equal(json_object_get_string(cell(json, "cq_events", 0, "kind")), "fired");
	assert_string_equal(json_object_get_string(cell(json, "retries", 0, "kind")), "rnr");
	assert_int_equal(json_object_array_length(get(json, "fills")), 4);
	assert_true(json_object_array_length(get(json, "phases")) > 3);
	assert_string_equal(json_object_get_string(get(json_object_array_get_idx(get(json, "causes"), 0), "name")), "RNR");
	json_object_put(json);
	trace_shown_free(&shown);
}

/* The first, the last and what failed; rows that are named are the right ones. */
static void long_trace_shows_what_matters(void **state)
{
	struct scene s = connected(IBV_QPT_RC);
	struct trace_shown shown;
	struct json_object *json;
	size_t rows;

	(void)state;
	for (uint32_t i = 0; i < 3000; i++)
		tell_send(i, i % 16, 1000 * (i + 1), SEND_EVENTS);
	at(&s, 0, 1);
	scene_event(&s, TRACE_CQE, IBV_WC_REM_OP_ERR, 0, LEFT, 1500, 0, SCENE_CQ);
	json = as_json(trace_json_model, &shown, 300);
	rows = json_object_array_length(get(get(json, "sends"), "rows"));
	assert_int_equal(rows, 201);
	assert_int_equal(json_object_get_int(get(get(json, "sends"), "total")), 3000);
	assert_int_equal(json_object_get_int(get(get(json, "sends"), "shown")), 201);
	assert_string_equal(json_object_get_string(cell(json, "sends", 100, "status")), "REM_OP_ERR");
	assert_null(cell(json, "sends", 100, "receive"));
	for (size_t row = 0; row < rows; row++)
		if (row != 100)
			assert_int_equal(number(json, "receives", (size_t)number(json, "sends", row, "receive"), "send"), row);
	json_object_put(json);
	trace_shown_free(&shown);
}

static void write_perfetto(FILE *out, const struct trace_told *told)
{
	assert_true(trace_perfetto(out, told));
}

/* Slices of a thread nest, arrows have two ends, and names are given once. */
static void timeline_is_one(void **state)
{
	struct trace_shown shown;
	struct json_object *json, *events;
	unsigned arrows[2] = { 0 }, slices = 0, counters = 0, named = 0;

	(void)state;
	connected(IBV_QPT_RC);
	for (uint32_t i = 0; i < 20; i++)
		tell_send(i, i, 1000 + 30 * i, SEND_EVENTS); /* several at a time */
	json = as_json(write_perfetto, &shown, TRACE_SHOWN_MOST);
	events = get(json, "traceEvents");
	for (size_t i = 0; i < json_object_array_length(events); i++) {
		struct json_object *event = json_object_array_get_idx(events, i);
		const char phase = json_object_get_string(get(event, "ph"))[0];

		get(event, "pid");
		get(event, "tid");
		get(event, "name");
		if (phase != 'M')
			assert_true(json_object_get_double(get(event, "ts")) >= 0);
		arrows[0] += phase == 's';
		arrows[1] += phase == 'f';
		counters += phase == 'C';
		named += phase == 'M';
		if (phase != 'X')
			continue;
		slices++;
		for (size_t j = 0; j < i; j++) {
			struct json_object *other = json_object_array_get_idx(events, j);
			double from, to, other_from, other_to;

			if (json_object_get_string(get(other, "ph"))[0] != 'X' ||
			    json_object_get_int(get(other, "tid")) != json_object_get_int(get(event, "tid")))
				continue;
			from = json_object_get_double(get(event, "ts"));
			to = from + json_object_get_double(get(event, "dur")) - 1e-6;
			other_from = json_object_get_double(get(other, "ts"));
			other_to = other_from + json_object_get_double(get(other, "dur")) - 1e-6;
			assert_false((from > other_from && from < other_to && to > other_to + 1e-5) ||
				     (other_from > from && other_from < to && other_to > to + 1e-5));
		}
	}
	assert_int_equal(arrows[0], 20);
	assert_int_equal(arrows[1], 20);
	assert_true(slices >= 20 * 2 * 4);
	assert_true(counters > 0);
	assert_true(named > 4);
	json_object_put(json);
	trace_shown_free(&shown);
}

/* ---- The spool ---- */

static uint64_t last_time;
static unsigned told_events[3];

static void note(void *arg, const struct trace_item *item)
{
	const uint32_t *more = item->more;

	(void)arg;
	assert_true(item->time >= last_time);
	last_time = item->time;
	/* Each process's own are in order, with what belongs to them. */
	assert_int_equal(item->event->index, told_events[item->process]++);
	assert_int_equal(item->bytes, item->event->index % 5 * 4);
	for (size_t i = 0; i < item->bytes / 4; i++)
		assert_int_equal(more[i], item->event->index);
}

static void spool_tells_events_in_the_order_of_their_time(void **state)
{
	struct trace_spool spool;
	unsigned added[3] = { 0 };
	uint64_t times[3] = { 5000, 5000, 5000 };

	(void)state;
	assert_int_equal(trace_spool_open(&spool, "/tmp"), 0);
	srandom(1);
	for (unsigned i = 0; i < 100000; i++) {
		const uint32_t process = i / 1000 % 3, index = added[process]++;
		const uint32_t more[4] = { index, index, index, index };
		const struct trace_event event = { .index = index };

		times[process] += (uint64_t)random() % 100 * (process + 1);
		trace_spool_add(&spool, process, times[process], &event, more, index % 5 * 4);
	}
	assert_int_equal(spool.error, 0);
	assert_int_equal(spool.events, 100000);
	assert_int_equal(trace_spool_tell(&spool, 3, 5000, note, NULL), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(told_events[i], added[i]);
	trace_spool_close(&spool);
}

static void spool_of_little_is_told_too(void **state)
{
	const struct trace_event event = { 0 };
	struct trace_spool spool;

	(void)state;
	last_time = 0;
	memset(told_events, 0, sizeof(told_events));
	assert_int_equal(trace_spool_open(&spool, "/tmp"), 0);
	assert_int_equal(trace_spool_tell(&spool, 3, 0, note, NULL), 0);
	trace_spool_add(&spool, 1, 7, &event, NULL, 0);
	assert_int_equal(trace_spool_tell(&spool, 3, 0, note, NULL), 0);
	assert_int_equal(told_events[1], 1);
	assert_int_equal(last_time, 7);
	trace_spool_close(&spool);
}

static void full_disk_is_said(void **state)
{
	const struct rlimit little = { 1 << 20, RLIM_INFINITY };
	const struct trace_event event = { 0 };
	struct trace_spool spool;
	struct rlimit old;

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ little.rlim_cur, old.rlim_max }), 0);
	assert_int_equal(trace_spool_open(&spool, "/tmp"), 0);
	for (unsigned i = 0; i < 100000; i++)
		trace_spool_add(&spool, 0, i, &event, NULL, 0);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(spool.error, EFBIG);
	trace_spool_close(&spool);
	assert_int_equal(trace_spool_open(&spool, "/no/such/directory"), ENOENT);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)
	static const struct CMUnitTest tests[] = {
		TEST(life_of_a_send_has_both_ends),
		TEST(life_bears_the_loss_of_any_event),
		TEST(receive_that_was_posted_late_is_one_life),
		TEST(indices_wrap),
		TEST(unsignaled_requests_leave_the_queue_with_the_next_completion),
		TEST(number_of_a_destroyed_qp_is_another_qp),
		TEST(reset_begins_anew),
		TEST(objects_from_before_the_trace_are_known_by_what_they_do),
		TEST(same_numbers_of_other_hosts_are_others),
		TEST(receives_of_an_srq_are_taken_by_its_qps),
		TEST(flushed_receive_leaves_its_queue),
		TEST(cause_is_that_of_the_request_that_failed),
		TEST(packets_are_of_the_requests_that_sent_them),
		TEST(receive_on_the_wire_is_joined_by_psn),
		TEST(fill_of_any_length_has_its_peak_in_few_points),
		TEST(quantiles_are_right_within_3_percent),
		TEST(quantiles_of_few_are_values_of_theirs),
		TEST(wait_to_be_sent_again_is_a_part_of_its_own),
		TEST(json_is_as_documented),
		TEST(long_trace_shows_what_matters),
		TEST(timeline_is_one),
		TEST(spool_tells_events_in_the_order_of_their_time),
		TEST(spool_of_little_is_told_too),
		TEST(full_disk_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
