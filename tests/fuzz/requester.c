/* SPDX-License-Identifier: MIT */
/*
 * Fuzzer of the requester's state: a connected QP of RC, what a program posts to it, and any sequence of answers. In each
 * answer QPN, opcode and length are made what the request at its PSN waits for, and the PSN is counted from the oldest that
 * waits, unless its flags say otherwise.
 *
 * Whatever comes: what is sent is what was posted; requests complete in order, each once, successful only if it was answered;
 * what was read is what was answered, and memory that no READ under way may write to does not change. And at the end all
 * requests end: in the time that the QP's attributes say when nothing comes any more, and in success when their peer has them
 * all; also one whose peer has nothing of what is not acknowledged yet, and goes back to what it misses.
 *
 * Input: 4 bytes that choose the QP (make_all), then actions (enum action).
 */
#include <endian.h>
#include <errno.h>

#include "nic/request.h"
#include "nic/requester.h"
#include "world.h"

#define DEPTH	     16u
#define CQ_DEPTH     63u
#define SGE_ROOM     9000u
#define SLOT_ROOM    (2 * SGE_ROOM + 64u) /* bytes of memory for each request; canaries are between */
#define REQUESTS     256u		  /* of one life of the QP */
#define PLACES	     16384u		  /* packets of all of them */
#define PAYLOAD_MOST 4200u
#define PEER_QPN     0x345678u
#define RKEY	     0x76543210u
#define REMOTE	     0x7f0123456780u
#define RNR_MOST     700000000ull /* ns: the longest that a peer may ask for, and some more */
#define ROUNDS	     3000u
#define ASKS	     100u
#define TIMEOUT_LONG 12u /* code of one that does not pass while we look */
#define PATIENCE     4u	 /* times the timeout: a requester may wait as long (specification 9.7.6.1.3) */

static struct area memory;

enum answer_flags {
	RAW_OPCODE = 1 << 0,
	RAW_LENGTH = 1 << 1,
	RAW_QPN = 1 << 2,
	FROM_END = 1 << 3, /* PSN: from behind what was ever sent */
	STRANGER = 1 << 4,
	TOGETHER = 1 << 5,
	BROKEN = 1 << 6,
	JOINED = 1 << 7,
};

enum action { ANSWER = 0, POST = 7, ANSWER_ALL = 10, POLL, TIME, CHANGE, ACTIONS };

enum at_end { DEAD, HAS_ALL, GOES_BACK };

static struct {
	bool v6;
	enum at_end at_end;
	uint32_t mtu;
	struct ibv_qp_attr attr;
	struct nic_qp qp;
	struct nic_cq cq;
} it;

/* A request. Places are PSNs, counted from the first. */
struct posted {
	enum ibv_wr_opcode opcode;
	unsigned flags;
	uint32_t length[2], total;
	uint32_t place, packets;
	uint64_t at; /* when it was posted */
};

static struct posted posts[REQUESTS];
static uint32_t posted, ended; /* all before `ended` are */
static uint32_t places;	       /* of all that were posted */
static uint32_t first_psn;
static uint32_t sent_to;	 /* place behind what was sent */
static uint32_t acknowledged_to; /* place */
static uint32_t had_to;		 /* place behind the last that any answer was to: a peer that has gone so far has all before */
static bool answered[PLACES];	 /* with data */
static uint32_t read_ends[PLACES], read_count; /* places behind the READs and atomics that were sent */
static bool failed, nak_came, rnr_came;
static enum ibv_wc_status failed_with; /* the first that did */

/* A peer that takes what comes in order, and forgets the rest. */
static struct {
	bool there;
	uint32_t next; /* place */
	bool told;     /* what is missing */
	uint32_t answers;
	struct answer {
		uint32_t place;
		uint8_t opcode, syndrome;
	} answer[PLACES];
} peer;

static uint8_t *sge_start(uint32_t i, int sge)
{
	return memory.start + (size_t)(i % DEPTH) * SLOT_ROOM + (sge ? SGE_ROOM + 32 : 0);
}

static uint32_t place_of(uint32_t psn)
{
	return (psn - first_psn) & ROCE_PSN_MASK;
}

/* The request that a place belongs to, or NULL. */
static struct posted *post_at(uint32_t place)
{
	for (uint32_t i = 0; i < posted; i++) {
		if (place >= posts[i].place && place < posts[i].place + posts[i].packets)
			return &posts[i];
	}
	return NULL;
}

/* Bytes of the packet at a place. */
static uint32_t length_at(const struct posted *post, uint32_t place)
{
	uint32_t offset = (place - post->place) * it.mtu;

	return post->total - offset < it.mtu ? post->total - offset : it.mtu;
}

static void forget_all(void)
{
	posted = ended = places = 0;
	first_psn = it.attr.sq_psn;
	sent_to = acknowledged_to = had_to = read_count = 0;
	failed = nak_came = rnr_came = false;
	memset(answered, 0, sizeof(answered));
	memset(memory.start, CANARY, memory.length);
}

static void bring_up(void)
{
	for (enum ibv_qp_state state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		CHECK(world_move_qp(&it.qp, state, &it.attr));
}

static void make_all(struct input *input)
{
	uint8_t what = take_8(input), retries = take_8(input), depth = take_8(input), psn = take_8(input);

	memset(&it, 0, sizeof(it));
	world_refuse_sending(0);
	it.mtu = 256u << (what >> 5) % 5;
	it.v6 = what & 16;
	it.at_end = (retries >> 6) % (GOES_BACK + 1);
	it.attr = (struct ibv_qp_attr){
		.port_num = 1,
		.path_mtu = (enum ibv_mtu)(IBV_MTU_256 + (what >> 5) % 5),
		.dest_qp_num = PEER_QPN,
		.sq_psn = psn ? (uint32_t)psn << 16 : ROCE_PSN_MASK - 9,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = world_gid(WORLD_PEER, it.v6), .hop_limit = 64, .sgid_index = it.v6 } },
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 7 - (depth & 7),
		.timeout = what & 15,
		.retry_cnt = retries & 7,
		.rnr_retry = 7 - (retries >> 3 & 7),
	};
	area_register(&memory);
	CHECK(!nic_cq_create(world_nic(), CQ_DEPTH, NULL, &it.cq));
	world_make_qp(IBV_QPT_RC, &it.cq, NULL, DEPTH, &it.qp);
	forget_all();
	bring_up();
}

/* Ended well: its answers came, and brought what is there. Its memory is canaries again. */
static void check_success(uint32_t i)
{
	const struct posted *post = &posts[i];
	uint32_t done = 0;

	if (!reads_remote(post->opcode))
		CHECK(acknowledged_to >= post->place + post->packets);
	for (uint32_t place = post->place; reads_remote(post->opcode) && place < post->place + post->packets; place++) {
		uint32_t length = length_at(post, place);

		CHECK(answered[place]);
		for (uint32_t at = 0; at < length; at++, done++) {
			const uint8_t *byte = done < post->length[0] ? sge_start(i, 0) + done :
								       sge_start(i, 1) + done - post->length[0];

			CHECK(*byte == fill_byte(place, at));
		}
	}
}

static void end_post(uint32_t i, bool success)
{
	const struct posted *post = &posts[i];

	if (success)
		check_success(i);
	/* What was sent from is as it was. */
	for (uint32_t sge = 0, at = 0; sge < 2; at += post->length[sge++]) {
		if (!reads_remote(post->opcode) && !(post->flags & IBV_SEND_INLINE))
			CHECK(is_filled(sge_start(i, (int)sge), i, at, post->length[sge]));
		memset(sge_start(i, (int)sge), CANARY, post->length[sge]);
	}
	ended = i + 1;
}

static void check_status(const struct ibv_wc *wc, const struct posted *post)
{
	uint64_t timeout = 4096ull << it.attr.timeout;

	switch (wc->status) {
	case IBV_WC_RETRY_EXC_ERR:
		CHECK(it.attr.timeout && world_time() - post->at >= timeout * (it.attr.retry_cnt + 1u));
		break;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		CHECK(rnr_came && it.attr.rnr_retry != 7);
		break;
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_INV_RD_REQ_ERR:
		CHECK(nak_came);
		break;
	case IBV_WC_BAD_RESP_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_WR_FLUSH_ERR:
		break;
	default:
		CHECK(false);
	}
}

static void check_completion(const struct ibv_wc *wc)
{
	uint32_t i = (uint32_t)wc->wr_id;

	CHECK(wc->wr_id >= ended && wc->wr_id < posted && wc->qp_num == it.qp.qpn);
	/* Those before that wanted no completion were successful. */
	while (ended < i) {
		CHECK(!failed && !(posts[ended].flags & IBV_SEND_SIGNALED));
		end_post(ended, true);
	}
	CHECK(failed ? wc->status == IBV_WC_WR_FLUSH_ERR : wc->status != IBV_WC_SUCCESS || posts[i].flags & IBV_SEND_SIGNALED);
	if (wc->status != IBV_WC_SUCCESS)
		check_status(wc, &posts[i]);
	if (wc->status != IBV_WC_SUCCESS && !failed)
		failed_with = wc->status;
	failed |= wc->status != IBV_WC_SUCCESS;
	end_post(i, wc->status == IBV_WC_SUCCESS);
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

static void post(struct input *input)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND,
						      IBV_WR_RDMA_READ,
						      IBV_WR_RDMA_WRITE,
						      IBV_WR_ATOMIC_CMP_AND_SWP,
						      IBV_WR_ATOMIC_FETCH_AND_ADD,
						      IBV_WR_SEND_WITH_IMM,
						      IBV_WR_RDMA_WRITE_WITH_IMM,
						      IBV_WR_RDMA_READ };
	uint8_t what = take_8(input), how = take_8(input);
	uint16_t length = take_16(input);
	uint32_t i = posted;
	struct posted *new = &posts[i];
	struct ibv_sge sges[2];
	struct ibv_send_wr wr = { .wr_id = i, .sg_list = sges, .num_sge = 2 }, *bad;

	/* Its memory must not be another's. */
	if (i == REQUESTS || i - ended == DEPTH)
		return;
	*new = (struct posted){ .opcode = opcodes[what & 7], .at = world_time() };
	/* Bits that are set take away. */
	new->flags = (how & 1 ? 0 : IBV_SEND_SIGNALED) | (how & 2 ? IBV_SEND_FENCE : 0) | (how & 4 ? IBV_SEND_SOLICITED : 0);
	new->total = is_atomic(new->opcode) ? 8 : length % (2 * SGE_ROOM);
	if (how & 8 && !reads_remote(new->opcode)) {
		new->flags |= IBV_SEND_INLINE;
		new->total %= 65;
	}
	new->length[0] = how & 16 ? new->total / 2 : new->total;
	if (new->length[0] > SGE_ROOM)
		new->length[0] = SGE_ROOM;
	new->length[1] = new->total - new->length[0];
	new->packets = psn_packets(new->total, it.mtu);
	new->place = places;
	if (places + new->packets >= PLACES)
		return;
	for (uint32_t sge = 0, at = 0; sge < 2; at += new->length[sge++]) {
		sges[sge] = (struct ibv_sge){ .addr = (uintptr_t)sge_start(i, (int)sge),
					      .length = new->length[sge],
					      .lkey = memory.mr.lkey + (how == 0xff ? 2 : 0) };
		if (!reads_remote(new->opcode))
			fill(sge_start(i, (int)sge), i, at, new->length[sge]);
	}
	wr.opcode = new->opcode;
	wr.send_flags = new->flags;
	wr.imm_data = i;
	if (is_atomic(new->opcode)) {
		wr.wr.atomic.remote_addr = REMOTE + i * 8ull;
		wr.wr.atomic.rkey = RKEY;
		wr.wr.atomic.compare_add = i;
		wr.wr.atomic.swap = ~(uint64_t)i;
	} else {
		wr.wr.rdma.remote_addr = REMOTE + i * 0x10000ull;
		wr.wr.rdma.rkey = RKEY;
	}
	/* It may be sent before the call returns. */
	posted++;
	places += new->packets;
	if (nic_qp_post_send(&it.qp, &wr, &bad)) {
		posted--;
		places -= new->packets;
		for (int sge = 0; sge < 2; sge++)
			memset(sge_start(i, sge), CANARY, new->length[sge]);
	}
}

static void check_read(const struct roce_packet *packet, const struct posted *post, uint32_t i, uint32_t place)
{
	uint32_t offset = (place - post->place) * it.mtu;

	CHECK(packet->va == REMOTE + i * 0x10000ull + offset && packet->rkey == RKEY);
	CHECK(packet->dma_length <= post->total - offset);
	CHECK(packet->dma_length || !post->total);
	CHECK(packet->dma_length % it.mtu == 0 || packet->dma_length == post->total - offset);
}

static void check_atomic(const struct roce_packet *packet, const struct posted *post, uint32_t i)
{
	bool swap = post->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

	CHECK(packet->va == REMOTE + i * 8ull && packet->rkey == RKEY);
	CHECK(packet->swap_add == (swap ? ~(uint64_t)i : i));
	CHECK(!swap || packet->compare == i);
}

static void check_data(const struct roce_packet *packet, const struct posted *post, uint32_t i, uint32_t place)
{
	const struct roce_opcode *row = roce_opcode(packet->opcode);
	uint32_t k = place - post->place, operation = packet->opcode & 31;
	bool first = !k, last = k + 1 == post->packets;

	CHECK(row->place == (first && last ? ROCE_ONLY : first ? ROCE_FIRST : last ? ROCE_LAST : ROCE_MIDDLE));
	CHECK((operation < ROCE_WRITE_FIRST) == is_send(post->opcode));
	CHECK(!(row->headers & ROCE_HAS_IMM) == !(last && has_imm(post->opcode)));
	CHECK(!(row->headers & ROCE_HAS_IMM) || packet->imm_data == i);
	CHECK(packet->length == length_at(post, place) && is_filled(packet->payload, i, k * it.mtu, packet->length));
	if (row->headers & ROCE_HAS_RETH)
		CHECK(packet->va == REMOTE + i * 0x10000ull && packet->rkey == RKEY && packet->dma_length == post->total);
	CHECK(!last || packet->ack_req);
}

static uint32_t una(void)
{
	return it.qp.wire ? it.qp.wire->una : first_psn;
}

/* What the peer agreed to has room for it. */
static void check_depth(uint32_t end)
{
	uint32_t under_way = 1;

	for (uint32_t i = read_count; i && read_ends[i - 1] > place_of(una()); i--)
		under_way++;
	CHECK(under_way <= it.attr.max_rd_atomic);
	read_ends[read_count++] = end;
}

/* Begun only when everything that was to be read before is there. */
static void check_fence(const struct posted *post)
{
	for (const struct posted *before = posts; before < post; before++) {
		for (uint32_t i = 0; i < before->packets && reads_remote(before->opcode); i++)
			CHECK(answered[before->place + i]);
	}
}

/* The answer that the request at a place waits for. */
static uint8_t opcode_for(const struct posted *post, uint32_t place)
{
	if (post && is_atomic(post->opcode))
		return ROCE_OPCODE(ROCE_RC, ROCE_ATOMIC_ACKNOWLEDGE);
	if (!post || post->opcode != IBV_WR_RDMA_READ)
		return ROCE_OPCODE(ROCE_RC, ROCE_ACKNOWLEDGE);
	return ROCE_OPCODE(ROCE_RC, post->packets == 1			     ? ROCE_READ_RESPONSE_ONLY :
				    place == post->place		     ? ROCE_READ_RESPONSE_FIRST :
				    place + 1 == post->place + post->packets ? ROCE_READ_RESPONSE_LAST :
									       ROCE_READ_RESPONSE_MIDDLE);
}

static void peer_answers(uint32_t place, uint8_t opcode, uint8_t syndrome)
{
	if (peer.answers < PLACES)
		peer.answer[peer.answers++] = (struct answer){ place, opcode, syndrome };
}

static void peer_takes(const struct roce_packet *packet, const struct posted *post, uint32_t place, uint32_t packets)
{
	uint8_t ack = ROCE_SYNDROME(ROCE_ACK, ROCE_CREDITS_INVALID), acknowledge = ROCE_OPCODE(ROCE_RC, ROCE_ACKNOWLEDGE);

	if (place > peer.next) {
		if (!peer.told)
			peer_answers(peer.next, acknowledge, ROCE_SYNDROME(ROCE_NAK, ROCE_NAK_PSN));
		peer.told = true;
		return;
	}
	if (place + packets > peer.next) {
		peer.next = place + packets;
		peer.told = false;
	}
	if (!reads_remote(post->opcode) && packet->ack_req)
		peer_answers(peer.next - 1, acknowledge, ack);
	for (uint32_t i = 0; i < packets && reads_remote(post->opcode); i++)
		peer_answers(place + i, opcode_for(post, place + i), ack);
}

void world_sent(const struct world_sent *sent)
{
	const struct roce_packet *packet = &sent->packet;
	union ibv_gid dgid = world_gid(WORLD_PEER, it.v6);
	uint32_t place = place_of(packet->psn), i, packets = 1;
	struct posted *post = post_at(place);

	CHECK(!memcmp(&sent->dgid, &dgid, sizeof(dgid)) && packet->qpn == PEER_QPN && packet->opcode >> 5 == ROCE_RC);
	/* Our own answer, to a request among the answers: the responder's fuzzer looks at those. */
	if (roce_opcode(packet->opcode)->response)
		return;
	CHECK(post && place <= sent_to);
	i = (uint32_t)(post - posts);
	CHECK(i >= ended);
	switch (packet->opcode & 31) {
	case ROCE_READ_REQUEST:
		CHECK(post->opcode == IBV_WR_RDMA_READ);
		check_read(packet, post, i, place);
		packets = psn_packets(packet->dma_length, it.mtu);
		break;
	case ROCE_COMPARE_SWAP:
	case ROCE_FETCH_ADD:
		CHECK((packet->opcode & 31) ==
		      (post->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? ROCE_COMPARE_SWAP : ROCE_FETCH_ADD));
		check_atomic(packet, post, i);
		break;
	default:
		CHECK(!reads_remote(post->opcode) && (packet->opcode & 31) <= ROCE_WRITE_ONLY_IMM);
		check_data(packet, post, i, place);
	}
	if (place == sent_to && reads_remote(post->opcode))
		check_depth(place + packets);
	if (place == sent_to && place == post->place && post->flags & IBV_SEND_FENCE)
		check_fence(post);
	if (place + packets > sent_to)
		sent_to = place + packets;
	if (peer.there)
		peer_takes(packet, post, place, packets);
}

/* What the requester may now take for answered. */
static void note(const struct roce_packet *packet)
{
	uint32_t place = place_of(packet->psn), operation = packet->opcode & 31, to = place;
	const struct posted *post = post_at(place);

	if (place >= sent_to || !post)
		return;
	if (operation == ROCE_ACKNOWLEDGE) {
		to += packet->syndrome >> 5 == ROCE_ACK;
		nak_came |= packet->syndrome >> 5 == ROCE_NAK;
		rnr_came |= packet->syndrome >> 5 == ROCE_RNR_NAK;
	} else if (operation == ROCE_ATOMIC_ACKNOWLEDGE) {
		answered[place] |= is_atomic(post->opcode);
	} else {
		answered[place] |= post->opcode == IBV_WR_RDMA_READ && packet->length == length_at(post, place);
	}
	if (to > acknowledged_to)
		acknowledged_to = to;
	if (operation != ROCE_ACKNOWLEDGE)
		to = place + 1;
	if (to > had_to)
		had_to = to;
}

static void bring(uint32_t psn, uint8_t flags, uint8_t opcode, uint8_t syndrome, uint16_t length)
{
	static uint8_t bytes[ROCE_MAX_HEADERS + PAYLOAD_MOST + 4];
	uint32_t place = place_of(psn);
	const struct posted *post = post_at(place);
	struct roce_packet packet = { .pkey = ROCE_DEFAULT_PKEY,
				      .qpn = it.qp.qpn ^ (flags & RAW_QPN ? 1 : 0),
				      .psn = psn,
				      .syndrome = syndrome,
				      .msn = posted,
				      .opcode = flags & RAW_OPCODE ? opcode : opcode_for(post, place) };
	const struct roce_opcode *row = roce_opcode(packet.opcode);
	size_t headers;

	if (!row->name)
		return;
	if (row->payload != ROCE_PAYLOAD_NONE)
		packet.length = flags & RAW_LENGTH ? length % PAYLOAD_MOST : post ? length_at(post, place) : 0;
	fill((uint8_t *)&packet.original, place, 0, sizeof(packet.original));
	headers = roce_build(&packet, bytes);
	fill(bytes + headers, place, 0, packet.length);
	memset(bytes + headers + packet.length, 0, roce_pad(packet.length));
	if (!(flags & (STRANGER | BROKEN | RAW_QPN)) && packet.opcode >> 5 == ROCE_RC && row->response)
		note(&packet);
	world_bring(&(struct world_packet){ .from = flags & STRANGER ? WORLD_STRANGER : WORLD_PEER,
					    .v6 = it.v6,
					    .joined = flags & JOINED,
					    .broken = flags & BROKEN,
					    .bytes = bytes,
					    .length = headers + packet.length + roce_pad(packet.length) });
	if (!(flags & TOGETHER))
		world_arrive();
}

static void bring_answer(struct input *input)
{
	uint8_t flags = take_8(input), syndrome, opcode = 0;
	int8_t psn = (int8_t)take_8(input);
	uint16_t length = 0;
	uint32_t base = flags & FROM_END ? psn_add(first_psn, sent_to) : una();

	syndrome = take_8(input);
	if (flags & RAW_OPCODE)
		opcode = take_8(input);
	if (flags & RAW_LENGTH)
		length = take_16(input);
	bring(psn_add(base, (uint32_t)psn), flags, opcode, syndrome, length);
}

/* A peer that answers so many packets as it should. */
static void answer_all(uint32_t count)
{
	for (uint32_t place = place_of(una()); count && place < sent_to; count--, place++)
		bring(psn_add(first_psn, place), count > 1 ? TOGETHER : 0, 0, ROCE_SYNDROME(ROCE_ACK, ROCE_CREDITS_INVALID), 0);
	world_arrive();
}

static void change(struct input *input)
{
	uint8_t how = take_8(input);

	switch (how % 8) {
	case 0:
		world_move_qp(&it.qp, IBV_QPS_ERR, &it.attr);
		break;
	case 1:
		CHECK(world_move_qp(&it.qp, IBV_QPS_RESET, &it.attr));
		poll_all();
		CHECK(ended == posted || !nic_cq_poll(&it.cq, 1, &(struct ibv_wc){ 0 }));
		forget_all();
		bring_up();
		break;
	case 2:
		world_move_qp(&it.qp, IBV_QPS_RTS, &it.attr);
		break;
	case 3:
		world_move_qp(&it.qp, IBV_QPS_SQD, &it.attr);
		break;
	case 4:
		area_deregister(&memory);
		break;
	case 5:
		world_refuse_sending(how & 8 ? ENETUNREACH : how & 16 ? EMSGSIZE : 0);
		break;
	case 6:
		area_protect(&memory, true);
		answer_all(UINT32_MAX);
		world_wait(how * 10000000ull);
		world_turn();
		area_protect(&memory, false);
		break;
	default:
		world_turn();
	}
}

static void act(struct input *input)
{
	uint8_t action = take_8(input) % ACTIONS;

	/* What was noted of an answer was so when it arrived. */
	if (action >= POST)
		world_arrive();
	switch (action) {
	case POST:
	case POST + 1:
	case POST + 2:
		post(input);
		break;
	case ANSWER_ALL:
		answer_all(take_8(input));
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
		bring_answer(input);
	}
	area_check_edges(&memory);
}

static bool is_waiting(void)
{
	return it.qp.state == IBV_QPS_RTS && it.qp.sq_exec != it.qp.sq_tail;
}

static void check_dead_peer(void)
{
	uint64_t start = world_time();
	uint64_t most = RNR_MOST + (it.attr.retry_cnt + 2) * PATIENCE * (4096ull << it.attr.timeout);

	while (it.attr.timeout && is_waiting()) {
		CHECK(world_wait_for_helper());
		CHECK(world_time() - start < most);
		poll_all();
	}
	/* Without a timeout it is asked for ever, and not ever more seldom. */
	for (uint32_t round = 0; round < ASKS && is_waiting(); round++) {
		start = world_time();
		CHECK(world_wait_for_helper());
		CHECK(world_time() - start < RNR_MOST);
		poll_all();
	}
}

/* From now on the peer does what it should: requests that fail all the same were to fail before, or have faults of their own. */
static bool may_fail;

static void expect_success(void)
{
	const struct wire_qp *w = it.qp.wire;

	/* What came early, and is not looked at yet, may be wrong. */
	may_fail = failed || it.qp.state == IBV_QPS_ERR || (w && (w->failed || w->responses.first)) ||
		   it.attr.timeout < TIMEOUT_LONG || (it.qp.started && it.qp.retry_left < 2);
}

static void check_successful(void)
{
	CHECK(!failed || may_fail || failed_with == IBV_WC_LOC_PROT_ERR || failed_with == IBV_WC_LOC_QP_OP_ERR);
}

static void check_peer_that_has_all(void)
{
	for (uint32_t round = 0; is_waiting(); round++) {
		CHECK(round < ROUNDS);
		answer_all(UINT32_MAX);
		poll_all();
		if (is_waiting() && place_of(una()) >= sent_to)
			CHECK(world_wait_for_helper());
	}
}

static void check_peer_that_goes_back(void)
{
	peer.next = had_to;
	peer.answers = 0;
	peer.there = true;
	peer.told = false;
	for (uint32_t round = 0; is_waiting(); round++) {
		CHECK(round < ROUNDS);
		for (uint32_t i = 0; i < peer.answers; i++)
			bring(psn_add(first_psn, peer.answer[i].place), TOGETHER | RAW_OPCODE, peer.answer[i].opcode,
			      peer.answer[i].syndrome, 0);
		peer.answers = 0;
		world_arrive();
		poll_all();
		if (!peer.answers && is_waiting())
			CHECK(world_wait_for_helper());
	}
	peer.there = false;
}

static void check_end(void)
{
	world_arrive();
	world_refuse_sending(0);
	world_turn();
	poll_all();
	expect_success();
	if (it.at_end == DEAD)
		check_dead_peer();
	else if (it.at_end == HAS_ALL)
		check_peer_that_has_all();
	else
		check_peer_that_goes_back();
	poll_all();
	if (it.at_end != DEAD)
		check_successful();
	world_move_qp(&it.qp, IBV_QPS_ERR, &it.attr);
	world_turn();
	poll_all();
	while (ended != posted) {
		CHECK(!(posts[ended].flags & IBV_SEND_SIGNALED) && !failed);
		end_post(ended, true);
	}
	CHECK(is_canary(memory.start, memory.length));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct input input = { bytes, length };

	if (!memory.start)
		area_make(&memory, (size_t)DEPTH * SLOT_ROOM, WORLD_PD, IBV_ACCESS_LOCAL_WRITE);
	make_all(&input);
	while (input.left)
		act(&input);
	check_end();
	nic_qp_destroy(&it.qp);
	CHECK(!nic_cq_destroy(&it.cq));
	area_check_edges(&memory);
	return 0;
}
