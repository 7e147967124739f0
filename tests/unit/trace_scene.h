/* SPDX-License-Identifier: MIT */
/* Events of traces, made by hand: one call each, in the words of observe/trace.h. */
#ifndef TESTS_UNIT_TRACE_SCENE_H
#define TESTS_UNIT_TRACE_SCENE_H

#include <string.h>

#include <infiniband/verbs.h>

#include "roce/packet.h"
#include "tools/trace_capture.h"
#include "tools/trace_model.h"

/* Who is told, and of which process and time the next event is. */
struct scene {
	struct trace_model *model;
	struct trace_capture *capture; /* or NULL */
	uint32_t process;
	uint64_t time;
};

static inline void scene_more(struct scene *s, enum trace_kind kind, uint8_t opcode, uint8_t flags, uint32_t qpn, uint32_t index,
			      uint32_t length, uint64_t arg, const void *more, size_t bytes)
{
	const struct trace_event event = {
		.kind = kind, .opcode = opcode, .flags = flags, .qpn = qpn, .index = index, .length = length, .arg = arg
	};
	const struct trace_item item = { s->time, s->process, &event, more, bytes };

	trace_model_tell(s->model, &item);
	if (s->capture)
		trace_capture_tell(s->capture, &item);
}

static inline void scene_event(struct scene *s, enum trace_kind kind, uint8_t opcode, uint8_t flags, uint32_t qpn, uint32_t index,
			       uint32_t length, uint64_t arg)
{
	scene_more(s, kind, opcode, flags, qpn, index, length, arg, NULL, 0);
}

#define SCENE_CQ    1u
#define SCENE_DEPTH 16u

/* A GID of IPv4 (last byte), or of IPv6 where that is 100 or more. */
static inline void scene_gid(uint8_t *gid, uint8_t last)
{
	memset(gid, 0, 16);
	if (last < 100) {
		gid[10] = gid[11] = 0xff;
		gid[12] = 10;
	} else {
		gid[0] = 0xfd;
	}
	gid[15] = last;
}

/* A QP of the scene's process, connected and ready. srq: -1: none. */
static inline void scene_qp(struct scene *s, uint32_t qpn, uint32_t dest, enum ibv_qp_type type, uint8_t own, uint8_t peer,
			    uint32_t mtu, int32_t srq)
{
	struct trace_qp qp = { .type = type,
			       .dest_qpn = dest,
			       .path_mtu = mtu,
			       .max_send_wr = SCENE_DEPTH,
			       .max_recv_wr = SCENE_DEPTH,
			       .send_cq = SCENE_CQ,
			       .recv_cq = SCENE_CQ,
			       .srq = srq };

	scene_gid(qp.sgid, own);
	scene_gid(qp.dgid, peer);
	for (uint8_t state = IBV_QPS_RESET; state <= IBV_QPS_RTS; state++)
		scene_more(s, TRACE_QP, state, 0, qpn, 0, 0, 0, &qp, sizeof(qp));
}

/* One message through shared memory, of which `kept` bytes are shown; they count up. */
static inline void scene_message(struct scene *s, uint8_t opcode, uint32_t qpn, uint32_t psn, uint32_t index, uint32_t dest,
				 uint32_t length, uint32_t kept, uint64_t addr)
{
	struct {
		struct trace_message about;
		uint8_t payload[TRACE_SNAP];
	} more = { .about = { .sq_index = index,
			      .dest_qpn = dest,
			      .rkey = 0x1234,
			      .imm = htobe32(0x55),
			      .qkey = 0x11111111,
			      .kept = kept } };

	more.about.compare_add = 5;
	more.about.swap = 6;
	scene_gid(more.about.dgid, 2);
	for (uint32_t i = 0; i < kept; i++)
		more.payload[i] = (uint8_t)i;
	scene_more(s, TRACE_MESSAGE, opcode, 0, qpn, psn, length, addr, &more, sizeof(more.about) + kept);
}

/* A packet of the wire, with its ICRC. `out`: the one who sends is the first of the GIDs. */
static inline void scene_packet(struct scene *s, bool out, uint32_t qpn, const struct roce_packet *packet, uint8_t from, uint8_t to)
{
	struct {
		struct trace_packet about;
		uint8_t bytes[ROCE_MAX_HEADERS + 4096];
	} more = { .about = { .sport = 0xc001, .dport = ROCE_PORT } };
	struct icrc_path path = { .sport = 0xc001, .dport = ROCE_PORT };
	size_t header = roce_build(packet, more.bytes), bytes;
	uint32_t icrc;

	scene_gid(more.about.sgid, from);
	scene_gid(more.about.dgid, to);
	memcpy(path.sgid.raw, more.about.sgid, 16);
	memcpy(path.dgid.raw, more.about.dgid, 16);
	for (uint32_t i = 0; i < packet->length; i++)
		more.bytes[header + i] = (uint8_t)i;
	bytes = header + packet->length + roce_pad(packet->length);
	icrc = htole32(icrc_of(&path, 0, more.bytes, bytes));
	memcpy(more.bytes + bytes, &icrc, sizeof(icrc));
	bytes += sizeof(icrc);
	more.about.kept = (uint32_t)bytes;
	scene_more(s, out ? TRACE_PACKET_OUT : TRACE_PACKET_IN, packet->opcode, 0, qpn, packet->psn, (uint32_t)bytes, 0, &more,
		   sizeof(more.about) + bytes);
}

/* The other end of a request of QP `from` of this index: who it is done by is s->process. */
static inline uint64_t scene_whose(uint32_t from, uint32_t index)
{
	return (uint64_t)from << 32 | index;
}

#endif
