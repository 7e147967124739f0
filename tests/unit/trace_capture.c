/* SPDX-License-Identifier: MIT */
/*
 * usage: trace_capture FILE
 *
 * Writes the capture of a trace that is made by hand: each operation through shared memory, over IPv4 and IPv6, payloads that were kept
 * in part, and packets of the wire. trace_capture.sh has tshark say what it sees in it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "trace_scene.h"

enum { LEFT = 0x4001, RIGHT = 0x8001, MTU = 256 };

static struct trace_model model;
static struct trace_capture capture;
static uint32_t psn = ROCE_PSN_MASK - 3; /* they wrap */

/* A request and all that becomes of it, from a QP to its peer; the next microsecond begins behind it. */
static void request(struct scene *s, uint32_t from, uint32_t to, uint32_t index, uint8_t opcode, uint32_t length, uint32_t kept)
{
	const uint64_t addr = opcode == IBV_WR_SEND ? 0 : 0x7000;

	scene_event(s, TRACE_POST_SEND, opcode, IBV_SEND_SIGNALED | (index == 1 ? IBV_SEND_SOLICITED : 0), from, index, length,
		    0x100 + index);
	s->time += 100;
	scene_event(s, TRACE_PLACED, 0, 0, to, ~0u, length, scene_whose(from, index));
	scene_message(s, opcode, from, psn & ROCE_PSN_MASK, index, to, length, kept, addr);
	psn += length ? (length + MTU - 1) / MTU : 1;
	s->time += 900;
}

static void connect(struct scene *s, uint32_t left, uint32_t right, enum ibv_qp_type type, uint8_t own, uint8_t peer)
{
	s->process = 1;
	scene_qp(s, right, left, type, peer, own, MTU, -1);
	s->process = 0;
	scene_qp(s, left, right, type, own, peer, MTU, -1);
}

static void over_the_wire(struct scene *s)
{
	struct roce_packet packet = { .opcode = ROCE_OPCODE(ROCE_RC, ROCE_SEND_ONLY),
				      .psn = 7,
				      .length = 13,
				      .qpn = RIGHT + 9,
				      .pkey = 0xffff,
				      .ack_req = true };
	struct roce_packet ack = {
		.opcode = ROCE_OPCODE(ROCE_RC, ROCE_ACKNOWLEDGE), .psn = 7, .qpn = LEFT + 9, .pkey = 0xffff, .syndrome = 31, .msn = 1
	};

	connect(s, LEFT + 9, RIGHT + 9, IBV_QPT_RC, 1, 2);
	scene_event(s, TRACE_POST_SEND, IBV_WR_SEND, IBV_SEND_SIGNALED, LEFT + 9, 0, 13, 0xfeed);
	scene_event(s, TRACE_SEEN, 0, 0, LEFT + 9, 0, 13, 0);
	scene_packet(s, true, LEFT + 9, &packet, 1, 2);
	s->process = 1;
	s->time += 500;
	scene_packet(s, false, RIGHT + 9, &packet, 1, 2); /* it is there already */
	scene_packet(s, true, RIGHT + 9, &ack, 2, 1);
	/* From somebody who is not traced. */
	packet.qpn = RIGHT + 10;
	scene_qp(s, RIGHT + 10, 0x1234, IBV_QPT_RC, 2, 3, MTU, -1);
	scene_packet(s, false, RIGHT + 10, &packet, 3, 2);
}

int main(int argc, char **argv)
{
	static const uint8_t operations[] = {
		IBV_WR_SEND,	  IBV_WR_SEND_WITH_IMM,	     IBV_WR_RDMA_WRITE,		  IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV
	};
	struct scene s = { .model = &model, .capture = &capture, .time = 1000 };
	FILE *out = argc == 2 ? fopen(argv[1], "w") : NULL;
	uint32_t index = 0;

	if (!out)
		return 1;
	trace_model_process(&model, 100, 0, "left");
	trace_model_process(&model, 200, 0, "right");
	trace_capture_begin(&capture, out, &model, 1700000000000000000ull);
	connect(&s, LEFT, RIGHT, IBV_QPT_RC, 1, 2);
	for (size_t i = 0; i < sizeof(operations); i++)
		request(&s, LEFT, RIGHT, index++, operations[i],
			operations[i] == IBV_WR_ATOMIC_CMP_AND_SWP || operations[i] == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 13,
			operations[i] == IBV_WR_ATOMIC_CMP_AND_SWP || operations[i] == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 13);
	/* Of several packets: 256, 256 and 88 bytes; of the last of them 8 bytes were kept. */
	request(&s, LEFT, RIGHT, index++, IBV_WR_RDMA_WRITE, 600, 600);
	request(&s, LEFT, RIGHT, index++, IBV_WR_RDMA_READ, 600, 600);
	request(&s, LEFT, RIGHT, index++, IBV_WR_SEND, 600, 520);
	request(&s, LEFT, RIGHT, index++, IBV_WR_SEND, 0, 0);
	connect(&s, LEFT + 1, RIGHT + 1, IBV_QPT_RC, 101, 102);
	request(&s, LEFT + 1, RIGHT + 1, 0, IBV_WR_SEND, 300, 300);
	connect(&s, LEFT + 2, RIGHT + 2, IBV_QPT_UC, 1, 2);
	request(&s, LEFT + 2, RIGHT + 2, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 13, 13);
	connect(&s, LEFT + 3, RIGHT + 3, IBV_QPT_UD, 1, 2);
	request(&s, LEFT + 3, RIGHT + 3, 0, IBV_WR_SEND, 13, 13);
	over_the_wire(&s);
	trace_capture_end(&capture);
	trace_model_free(&model);
	return fclose(out) ? 1 : 0;
}
