/* SPDX-License-Identifier: MIT */
/*
 * Fuzzer of the responder's state: a QP, and any sequence of packets. What would only be dropped is put right in each packet
 * (QPN, PSN, keys, addresses, lengths), unless its flags say that it is to stay as it is; so most of them get far.
 *
 * Whatever comes: nothing outside of the memory that the requests may write to changes, each receive completes at most once and
 * in its turn and with no more than it has room for, what is answered is not more than what was asked, nothing of memory that
 * no request may read is in it, what comes from strangers is not answered, and a correct request at the end is served if the QP
 * is not in error.
 *
 * Input: 4 bytes that choose the QP (make_all), then actions (enum action).
 */
#include <endian.h>

#include "nic/attention.h"
#include "nic/mw.h"
#include "nic/srq.h"
#include "world.h"

#define QP_DEPTH     32u
#define CQ_DEPTH     127u
#define SMALL_CQ     3u
#define RECEIVES     64u /* of an input */
#define SGE_ROOM     4160u
#define RECEIVE_ROOM (2 * SGE_ROOM + 64u) /* bytes of the area for each; canaries are between */
#define READ_BYTES   600000u		  /* more than one turn answers */
#define WRITE_BYTES  12800u
#define PAYLOAD_MOST 4200u
#define WINDOW_EDGE  700u
#define WINDOW_BYTES 4500u
#define BY_WINDOW    0x80u /* of where a packet's key and address point */
#define SECRET_BYTES 32u
#define MESSAGES     8192u /* of an input */
#define QKEY	     0x11u
#define PEER_QPN     0x345678u

/* Memory: what the peer may read, write and calculate with; what it may only read; what belongs to somebody else; receives. */
enum { WRITABLE, READABLE, FOREIGN, RECEIVING, AREAS };
static struct area areas[AREAS];
static uint8_t readable[READ_BYTES]; /* as it is to stay */
/* Nobody's by its region's key, but by that of a window of type 2 over its middle, until that is invalidated. */
static struct area windowed;
static struct nic_mw window;

enum packet_flags {
	RAW_QPN = 1 << 0,
	RAW_PSN = 1 << 1,
	RAW_KEYS = 1 << 2,   /* rkey, address, Q_Key */
	RAW_LENGTH = 1 << 3, /* of a READ or WRITE */
	STRANGER = 1 << 4,
	TOGETHER = 1 << 5, /* arrives with the next one */
	JOINED = 1 << 6,   /* in one datagram with the one before, if that is as long */
	BROKEN = 1 << 7,   /* ICRC */
};

enum action { PACKET = 0, POST = 12, POLL, TIME, CHANGE, ACTIONS };

static struct {
	enum ibv_qp_type type;
	bool with_srq, v6, small_cq;
	uint32_t mtu;
	struct ibv_qp_attr attr;
	struct nic_qp qp;
	struct nic_cq cq;
	struct nic_srq srq;
} it;

static struct {
	bool open; /* posted, and not completed */
	uint32_t length[2];
} receives[RECEIVES];
static uint32_t posted, next_completed;
static uint64_t accepted; /* successful receives */
static bool was_reset;

/* What may still be answered, and what was. */
static struct {
	uint64_t packets, bytes;
} allowed, answered;
static uint32_t messages[MESSAGES], message_count; /* PSNs */
static uint32_t last_ack;
static bool any_ack;

static uint8_t *receive_start(uint32_t i, int sge)
{
	return areas[RECEIVING].start + (size_t)i * RECEIVE_ROOM + (sge ? SGE_ROOM + 32 : 0);
}

static uint32_t room_of(uint32_t i)
{
	return receives[i].length[0] + receives[i].length[1];
}

static void make_areas(void)
{
	const uint32_t all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			     IBV_ACCESS_REMOTE_ATOMIC;

	if (areas[0].start)
		return;
	area_make(&areas[WRITABLE], WRITE_BYTES, WORLD_PD, all);
	area_make(&areas[READABLE], READ_BYTES, WORLD_PD, IBV_ACCESS_REMOTE_READ);
	area_make(&areas[FOREIGN], 5000, WORLD_OTHER_PD, all);
	area_make(&areas[RECEIVING], RECEIVES * RECEIVE_ROOM, WORLD_PD, IBV_ACCESS_LOCAL_WRITE);
	area_make(&windowed, WINDOW_BYTES + 2 * WINDOW_EDGE, WORLD_PD, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	fill(readable, READABLE, 0, READ_BYTES);
	memcpy(areas[READABLE].start, readable, READ_BYTES);
}

static void bring_up(enum ibv_qp_state to)
{
	for (enum ibv_qp_state state = IBV_QPS_INIT; state <= to; state++)
		CHECK(world_move_qp(&it.qp, state, &it.attr));
}

static void bind_window(void)
{
	struct nic_swqe wqe = { .opcode = IBV_WR_BIND_MW, .window_length = WINDOW_BYTES };
	struct transport_result result;

	memset(windowed.start + WINDOW_EDGE, 0, WINDOW_BYTES);
	area_register(&windowed);
	if (window.nic)
		CHECK(!nic_mw_dealloc(&window));
	CHECK(!nic_mw_alloc(world_nic(), WORLD_PD, IBV_MW_TYPE_2, &window));
	wqe.window = wqe.rkey = mw_key(&window);
	wqe.window_lkey = windowed.mr.lkey;
	wqe.window_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	wqe.remote_addr = (uintptr_t)windowed.start + WINDOW_EDGE;
	CHECK(mw_execute(&it.qp, &wqe, &result) == TRANSPORT_DONE);
}

static void make_all(struct input *input)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	uint8_t what = take_8(input), rights = take_8(input), depth = take_8(input), psn = take_8(input);

	memset(&it, 0, sizeof(it));
	memset(receives, 0, sizeof(receives));
	memset(&allowed, 0, sizeof(allowed));
	memset(&answered, 0, sizeof(answered));
	posted = next_completed = message_count = 0;
	accepted = 0;
	any_ack = was_reset = false;
	it.type = types[what & 3];
	it.with_srq = what & 4;
	it.v6 = what & 8;
	it.mtu = 256u << ((what >> 5) % 5);
	it.small_cq = depth & 0x80;
	it.attr = (struct ibv_qp_attr){
		.port_num = 1,
		.qkey = QKEY,
		/* Bits that are set take away. */
		.qp_access_flags = (unsigned)~rights &
				   (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC),
		.path_mtu = (enum ibv_mtu)(IBV_MTU_256 + (what >> 5) % 5),
		.dest_qp_num = PEER_QPN,
		.rq_psn = psn ? (uint32_t)psn << 16 : ROCE_PSN_MASK - 2,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = world_gid(WORLD_PEER, it.v6), .hop_limit = 64, .sgid_index = it.v6 } },
		.max_dest_rd_atomic = 7 - (depth & 7),
		.max_rd_atomic = 1,
		.min_rnr_timer = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
	for (int i = 0; i < AREAS; i++)
		area_register(&areas[i]);
	CHECK(!nic_cq_create(world_nic(), it.small_cq ? SMALL_CQ : CQ_DEPTH, NULL, &it.cq));
	if (it.with_srq)
		CHECK(!nic_srq_create(world_nic(), WORLD_PD, QP_DEPTH, 2, &it.srq));
	world_make_qp(it.type, &it.cq, it.with_srq ? &it.srq : NULL, QP_DEPTH, &it.qp);
	bring_up(what & 16 ? IBV_QPS_RTR : IBV_QPS_RTS);
	bind_window();
}

static void check_completion(const struct ibv_wc *wc)
{
	uint32_t i = (uint32_t)wc->wr_id, room;

	CHECK(wc->wr_id < posted && receives[i].open);
	if (!it.with_srq)
		CHECK(i >= next_completed);
	next_completed = i + 1;
	receives[i].open = false;
	room = room_of(i);
	CHECK(wc->qp_num == it.qp.qpn);
	if (wc->status != IBV_WC_SUCCESS) {
		CHECK(wc->status == IBV_WC_WR_FLUSH_ERR || wc->status == IBV_WC_LOC_LEN_ERR ||
		      wc->status == IBV_WC_LOC_PROT_ERR || wc->status == IBV_WC_REM_OP_ERR ||
		      (it.type == IBV_QPT_RC && wc->status == IBV_WC_REM_INV_REQ_ERR));
		return;
	}
	accepted++;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		CHECK(it.type != IBV_QPT_UD && wc->wc_flags & IBV_WC_WITH_IMM && wc->byte_len <= WRITE_BYTES);
		return;
	}
	CHECK(wc->opcode == IBV_WC_RECV && wc->byte_len <= room);
	CHECK(!(wc->wc_flags & IBV_WC_GRH) == (it.type != IBV_QPT_UD));
	if (wc->wc_flags & IBV_WC_WITH_INV)
		CHECK(it.type == IBV_QPT_RC && wc->invalidated_rkey == mw_key(&window) &&
		      !(atomic_load(&window.shared->state) & NIC_MW_BOUND));
	if (it.type == IBV_QPT_UD)
		CHECK(wc->byte_len >= 40);
	/* A longer message may have ended in it before: of UC, or before a RESET. */
	for (uint32_t sge = 0, at = 0; sge < 2 && it.type != IBV_QPT_UC && !was_reset; at += receives[i].length[sge++]) {
		uint32_t used = wc->byte_len > at ? wc->byte_len - at : 0;

		if (used < receives[i].length[sge])
			CHECK(is_canary(receive_start(i, (int)sge) + used, receives[i].length[sge] - used));
	}
}

static void poll_all(void)
{
	struct ibv_wc wc[4];
	int n;

	while ((n = nic_cq_poll(&it.cq, 4, wc)) > 0) {
		for (int i = 0; i < n; i++)
			check_completion(&wc[i]);
	}
	CHECK(n == 0);
}

static bool post_receive(uint8_t first, uint8_t second, bool broken)
{
	uint32_t i = posted;
	struct ibv_sge sges[2];
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = sges, .num_sge = 2 }, *bad;

	if (i == RECEIVES)
		return false;
	receives[i].length[0] = first * 33u < SGE_ROOM ? first * 33u : SGE_ROOM;
	receives[i].length[1] = second * 33u < SGE_ROOM ? second * 33u : SGE_ROOM;
	for (int sge = 0; sge < 2; sge++)
		sges[sge] = (struct ibv_sge){ .addr = (uintptr_t)receive_start(i, sge),
					      .length = receives[i].length[sge],
					      .lkey = areas[RECEIVING].mr.lkey + (broken ? 2 : 0) };
	if (it.with_srq ? nic_srq_post(&it.srq, &wr, &bad) : nic_qp_post_recv(&it.qp, &wr, &bad))
		return false;
	receives[i].open = true;
	posted++;
	return true;
}

/* Bytes of others are in no answer. A few like theirs an atomic may have made. */
static void check_secrets(const struct roce_packet *packet)
{
	for (uint32_t i = 0, run = 0; i < packet->length; i++) {
		run = packet->payload[i] == CANARY ? run + 1 : 0;
		CHECK(run < SECRET_BYTES);
	}
}

/* Whether a SEND or WRITE came with this PSN: only those are acknowledged by themselves. What came before the first is, too. */
static bool is_message(uint32_t psn)
{
	for (uint32_t i = 0; i < message_count; i++) {
		if (messages[i] == psn)
			return true;
	}
	return psn == psn_add(it.attr.rq_psn, ROCE_PSN_MASK);
}

void world_sent(const struct world_sent *sent)
{
	const struct roce_packet *packet = &sent->packet;
	union ibv_gid peer = world_gid(WORLD_PEER, it.v6);

	CHECK(it.type != IBV_QPT_UD && !memcmp(&sent->dgid, &peer, sizeof(peer)) && packet->qpn == PEER_QPN);
	CHECK(it.type == IBV_QPT_RC || packet->opcode == ROCE_OPCODE_CNP);
	CHECK(packet->length <= it.mtu);
	CHECK(packet->opcode == ROCE_OPCODE_CNP || roce_opcode(packet->opcode)->response);
	answered.packets++;
	answered.bytes += packet->length;
	CHECK(answered.packets <= allowed.packets && answered.bytes <= allowed.bytes);
	check_secrets(packet);
	if (packet->opcode == ROCE_OPCODE_CNP || packet->opcode == ROCE_OPCODE(ROCE_RC, ROCE_READ_RESPONSE_MIDDLE))
		return;
	any_ack = true;
	if (packet->opcode == ROCE_OPCODE(ROCE_RC, ROCE_ACKNOWLEDGE) && packet->syndrome >> 5 == ROCE_ACK) {
		CHECK(is_message(packet->psn));
		last_ack = packet->psn;
	} else {
		/* What comes before one that is answered otherwise is acknowledged by that. */
		last_ack = psn_add(packet->psn, ROCE_PSN_MASK);
	}
}

/* What may be answered to it: to a request an acknowledgement, and that behind it something is missing. */
static void allow(const struct roce_packet *packet, uint8_t flags, uint8_t traffic_class)
{
	uint32_t length = packet->dma_length;

	if (flags & (STRANGER | BROKEN) || it.type == IBV_QPT_UD || packet->qpn != it.qp.qpn ||
	    (packet->pkey | 0x8000) != ROCE_DEFAULT_PKEY)
		return;
	if ((traffic_class & 3) == 3)
		allowed.packets++; /* CNP */
	if (it.type != IBV_QPT_RC)
		return;
	allowed.packets += 2;
	if (((packet->opcode & 31) <= ROCE_WRITE_ONLY_IMM || (packet->opcode & 31) >= ROCE_SEND_LAST_INV) &&
	    message_count < MESSAGES)
		messages[message_count++] = packet->psn;
	if (packet->opcode == ROCE_OPCODE(ROCE_RC, ROCE_READ_REQUEST) && length <= READ_BYTES) {
		allowed.packets += psn_packets(length, it.mtu);
		allowed.bytes += length;
	}
}

static void put_right(struct roce_packet *packet, uint8_t flags, int8_t psn, uint8_t where, int16_t address)
{
	const struct area *area = where & BY_WINDOW ? &windowed : &areas[where % AREAS];

	if (!(flags & RAW_QPN))
		packet->qpn = it.qp.qpn;
	if (!(flags & RAW_PSN))
		packet->psn = psn_add(atomic_load(&it.qp.shared->epsn), (uint32_t)psn);
	if (!(flags & RAW_KEYS)) {
		packet->qkey = QKEY;
		packet->rkey = where & BY_WINDOW ? mw_key(&window) : area->mr.rkey;
		packet->va = (uintptr_t)area->start + (uint64_t)address;
	}
	if (!(flags & RAW_LENGTH))
		packet->dma_length %= area->length + 16;
}

/* Its bytes: headers of the opcode from the input, then flags and numbers of what is put right. */
static void take_packet(struct input *input)
{
	uint8_t bytes[ROCE_MAX_HEADERS + PAYLOAD_MOST + 4], header[ROCE_MAX_HEADERS] = { 0 };
	uint8_t flags = take_8(input), traffic_class = take_8(input);
	int8_t psn = (int8_t)take_8(input);
	uint8_t where = take_8(input);
	int16_t address = (int16_t)take_16(input);
	uint16_t payload = take_16(input);
	const struct roce_opcode *row;
	struct roce_packet packet;

	header[0] = take_8(input);
	row = roce_opcode(header[0]);
	for (uint32_t i = 1; i < (row->name ? row->header_bytes : ROCE_BTH_BYTES); i++)
		header[i] = take_8(input);
	/* A little less, or more, than the path takes; else so many. */
	uint32_t length = payload >= 0xff00 ? it.mtu - (uint32_t)(int8_t)~payload : payload % PAYLOAD_MOST;
	struct world_packet arrives = { .from = flags & STRANGER ? WORLD_STRANGER : WORLD_PEER,
					.v6 = it.v6,
					.joined = flags & JOINED,
					.broken = flags & BROKEN,
					.traffic_class = traffic_class,
					.bytes = bytes,
					.length = ROCE_BTH_BYTES };

	if (length > PAYLOAD_MOST)
		length = PAYLOAD_MOST;
	header[1] = (uint8_t)((header[1] & ~0x30) | roce_pad(length) << 4);
	memcpy(bytes, header, sizeof(header));
	if (row->name) {
		memset(bytes + row->header_bytes, 0, length + roce_pad(length));
		fill(bytes + row->header_bytes, 100, 0, length);
		arrives.length = row->header_bytes + length + roce_pad(length);
	}
	if (roce_parse(bytes, arrives.length, &packet)) {
		put_right(&packet, flags, psn, where, address);
		roce_build(&packet, bytes);
		allow(&packet, flags, traffic_class);
	}
	world_bring(&arrives);
	if (!(flags & TOGETHER))
		world_arrive();
}

/* What may be no packet at all. */
static void bring_bytes(struct input *input, uint8_t length)
{
	uint8_t bytes[UINT8_MAX];

	for (uint32_t i = 0; i < length; i++)
		bytes[i] = take_8(input);
	world_bring(
		&(struct world_packet){ .from = WORLD_PEER, .v6 = it.v6, .bytes = bytes, .length = length, .broken = true });
	world_arrive();
}

static void forget_receives(void)
{
	for (uint32_t i = 0; i < posted && !it.with_srq; i++)
		receives[i].open = false;
	poll_all(); /* SRQ: of other lives there is nothing */
	next_completed = 0;
}

static void change(struct input *input)
{
	uint8_t how = take_8(input), number = take_8(input), i = number % AREAS;

	switch (how % 9) {
	case 0:
		world_move_qp(&it.qp, IBV_QPS_ERR, &it.attr);
		break;
	case 1:
		/* What is completed and not polled by then, a receive of an SRQ too, is gone. */
		world_arrive();
		world_turn();
		poll_all();
		CHECK(world_move_qp(&it.qp, IBV_QPS_RESET, &it.attr));
		forget_receives();
		was_reset = true;
		bring_up(IBV_QPS_RTS);
		break;
	case 2:
		world_move_qp(&it.qp, IBV_QPS_RTS, &it.attr);
		break;
	case 3:
		world_move_qp(&it.qp, IBV_QPS_SQD, &it.attr);
		break;
	case 4:
		area_deregister(&areas[i]);
		break;
	case 5:
		area_register(&areas[i]);
		break;
	case 6:
		bring_bytes(input, number);
		break;
	case 7:
		world_arrive();
		area_protect(&areas[i], true);
		take_packet(input);
		world_arrive();
		world_turn();
		area_protect(&areas[i], false);
		break;
	default:
		world_turn();
	}
}

static void act(struct input *input)
{
	uint8_t action = take_8(input) % ACTIONS, first, second;

	switch (action) {
	case POST:
		first = take_8(input);
		second = take_8(input);
		post_receive(first, second, take_8(input) == 0xff);
		break;
	case POLL:
		poll_all();
		break;
	case TIME:
		world_wait(1ull << take_8(input) % 36);
		world_turn();
		break;
	case CHANGE:
		change(input);
		break;
	default:
		take_packet(input);
	}
	for (int i = 0; i < AREAS; i++)
		area_check_edges(&areas[i]);
}

/* What the responder, with its own state, takes for right: the end of the message that has begun, or a new one. */
static void bring_correct(uint32_t psn)
{
	static const enum roce_service services[] = { [IBV_QPT_RC] = ROCE_RC, [IBV_QPT_UC] = ROCE_UC, [IBV_QPT_UD] = ROCE_UD };
	const struct wire_qp *w = it.qp.wire;
	bool begun = w && w->begun;
	uint8_t bytes[ROCE_MAX_HEADERS + 4] = { 0 };
	struct roce_packet packet = { .ack_req = true, .pkey = ROCE_DEFAULT_PKEY, .qpn = it.qp.qpn, .psn = psn, .qkey = QKEY };
	struct world_packet arrives = { .from = WORLD_PEER, .v6 = it.v6, .bytes = bytes };

	packet.length = begun;
	packet.opcode = ROCE_OPCODE(services[it.type], !begun				? ROCE_SEND_ONLY :
						       w->operation >= ROCE_WRITE_FIRST ? ROCE_WRITE_LAST :
											  ROCE_SEND_LAST);
	arrives.length = roce_build(&packet, bytes) + (begun ? 4 : 0);
	allow(&packet, 0, 0);
	world_bring(&arrives);
	world_arrive();
}

static bool is_in_error(void)
{
	world_turn();
	return it.qp.state == IBV_QPS_ERR;
}

static void check_not_stuck(void)
{
	const struct wire_qp *w = it.qp.wire;
	uint64_t before;

	/* Earlier receives may be too short, or in nobody's memory. */
	area_register(&areas[RECEIVING]);
	poll_all();
	post_receive(255, 255, false);
	for (int turns = 0; w && w->is_busy; turns++) {
		CHECK(turns < 1000);
		world_turn();
	}
	if (is_in_error() || it.small_cq)
		return;
	before = accepted;

	uint32_t psn = atomic_load(&it.qp.shared->epsn);
	bool begun = w && w->begun, has_receive = rq_available(it.with_srq ? &it.srq.shared->rq : &it.qp.shared->rq);

	any_ack = false;
	bring_correct(psn);
	for (int turns = 0; w && w->is_busy; turns++) {
		CHECK(turns < 1000);
		world_turn();
	}
	poll_all();
	if (is_in_error() || it.type == IBV_QPT_UD)
		return;
	/* Without a receive left RC has told so. */
	if (it.type == IBV_QPT_RC && (begun || has_receive || w->taken)) {
		CHECK(atomic_load(&it.qp.shared->epsn) != psn);
		CHECK(any_ack && psn_diff(last_ack, psn) >= 0);
	}
	if (!begun && has_receive)
		CHECK(accepted > before);
}

/* Every receive that was not completed is still there, or comes back. */
static void check_receives(void)
{
	struct rq_taken taken;
	uint32_t open = 0, left = 0;

	if (!it.small_cq && it.qp.state != IBV_QPS_RESET) {
		world_move_qp(&it.qp, IBV_QPS_ERR, &it.attr);
		world_turn();
		poll_all();
	}
	nic_qp_destroy(&it.qp);
	for (uint32_t i = 0; i < posted; i++)
		open += receives[i].open;
	if (it.small_cq)
		return;
	while (it.with_srq && rq_take(world_nic()->seg, &it.srq.shared->rq, 0, 1, 0, false, &taken) == RQ_TAKEN)
		left++;
	CHECK(open == left);
}

static void check_memory(void)
{
	const uint8_t *at = areas[RECEIVING].start, *end = at + areas[RECEIVING].length;

	CHECK(is_same(areas[READABLE].start, readable, READ_BYTES));
	CHECK(is_canary(areas[FOREIGN].start, areas[FOREIGN].length));
	CHECK(is_canary(windowed.start, WINDOW_EDGE));
	CHECK(is_canary(windowed.start + WINDOW_EDGE + WINDOW_BYTES, WINDOW_EDGE));
	for (uint32_t i = 0; i < posted; i++) {
		for (int sge = 0; sge < 2; sge++) {
			CHECK(is_canary(at, (size_t)(receive_start(i, sge) - at)));
			at = receive_start(i, sge) + receives[i].length[sge];
		}
	}
	CHECK(is_canary(at, (size_t)(end - at)));
	memset(areas[RECEIVING].start, CANARY, (size_t)posted * RECEIVE_ROOM);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct input input = { bytes, length };

	make_areas();
	/* It is answered what is there: without canaries. */
	memset(areas[WRITABLE].start, 0, WRITE_BYTES);
	make_all(&input);
	while (input.left)
		act(&input);
	world_arrive();
	check_not_stuck();
	check_receives();
	CHECK(!nic_cq_destroy(&it.cq) && (!it.with_srq || !nic_srq_destroy(&it.srq)));
	for (int i = 0; i < AREAS; i++)
		area_check_edges(&areas[i]);
	area_check_edges(&windowed);
	check_memory();
	return 0;
}
