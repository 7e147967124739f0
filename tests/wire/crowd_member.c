/* SPDX-License-Identifier: MIT */
/*
 * One process of a crowd. It has an RC queue pair to each of the other host's, and one UD queue pair. Each message says who sent
 * it, in which life, to whom, and what number it is of its connection; every byte of it follows from that. A WRITE goes before some,
 * to memory that is for this sender alone, and is looked at when the message is there.
 */
#include "crowd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>

#include "../faults/node.h"

#define END_BOUND  15000 /* ms until a connection to who is gone has failed, beside what is allowed for the crowd */
#define BUSY	   4u	 /* connections that are sent on in each tick, about */
#define RECEIVES   4u
#define MESSAGE	   2048u
#define WRITE_MOST 4096u
#define GRH	   40u
#define DATAGRAMS  64u
#define QKEY	   0x1234u /* of all: nothing but the QPN keeps from them what is for others */
#define ENOUGH	   3	   /* messages in the end */
#define QPN_SLOT   14	   /* bits of a QPN below its owner's number */

enum kind { RECEIVE = 1, SEND, DATAGRAM_RECEIVE, DATAGRAM_SEND };

struct header {
	uint32_t from_host, from_index, from_life;
	uint32_t to_host, to_index, to_life;
	uint32_t attempt, to_qpn; /* attempt 0: a datagram */
	uint32_t length;	  /* with this header */
	uint32_t written;	  /* bytes of the WRITE before it */
	uint64_t number;
	uint64_t heard; /* the number of the last that came the other way */
};

struct flow {
	struct ibv_qp *qp;
	enum { NONE, OFFERED, ANSWERED, UP } state;
	uint32_t life; /* of the peer */
	uint32_t attempt;
	struct offer peer, mine;
	uint64_t sent, received;
	uint64_t peer_heard, write_sent; /* the last WRITE's message */
	unsigned under_way;		 /* requests */
	bool failed;
	uint64_t sent_at, heard_at, gone_at; /* ms */
	unsigned heard_in_the_end, datagrams_in_the_end;
};

/* Memory for each flow, then that for datagrams. */
struct flow_memory {
	uint8_t receives[RECEIVES][MESSAGE];
	uint8_t target[WRITE_MOST];
	uint8_t message[MESSAGE], write[WRITE_MOST];
};

struct memory {
	struct flow_memory flows[CROWD_MOST];
	uint8_t datagrams[DATAGRAMS][GRH + MESSAGE];
	uint8_t datagram[MESSAGE];
};

static struct member me;
static struct place *my_place;
static struct place *peers;
static struct flow flows[CROWD_MOST];
static struct memory *memory;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *ud;
static struct ibv_ah *ahs[2];
static struct whoami whoami;
static int gid_indices[2];
static bool datagram_under_way, sleeps;
static uint32_t attempts;
static uint64_t datagrams_sent;

#define COUNT(what, n) atomic_fetch_add_explicit(&me.board->totals.what, n, memory_order_relaxed)

uint64_t crowd_bound(unsigned count)
{
	return 20000 + 500 * (uint64_t)count;
}

static uint32_t draw(uint32_t n)
{
	return crowd_draw(&me.seed, n);
}

/* ms between looks at the board, and after which a connection is used at the latest: a large crowd has many of them, and the
 * machine is no larger for it. */
static uint64_t tick_of(unsigned count)
{
	return 10 + count;
}

static uint64_t send_again_after(unsigned count)
{
	return 40 * count;
}

static void fault(unsigned index, const char *what)
{
	struct flow *flow = &flows[index];

	fprintf(stderr,
		"host %u, process %u in life %u: with process %u in life %u (now %u): %s; state %d, attempt %u, sent %llu, "
		"received %llu, under way %u\n",
		me.host + 1, me.index, me.life, index, flow->life, atomic_load(&peers[index].life), what, flow->state,
		flow->attempt, (unsigned long long)flow->sent, (unsigned long long)flow->received, flow->under_way);
	_exit(1);
}

/* The board's boxes. */
static void write_box(_Atomic uint32_t *version, void *box, const void *value, size_t bytes)
{
	uint32_t begun = atomic_load(version) | 1;

	atomic_store(version, begun);
	atomic_thread_fence(memory_order_seq_cst);
	memcpy(box, value, bytes);
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store(version, begun + 1);
}

static bool read_box(_Atomic uint32_t *version, const void *box, void *value, size_t bytes)
{
	uint32_t before = atomic_load(version);

	atomic_thread_fence(memory_order_seq_cst);
	memcpy(value, box, bytes);
	atomic_thread_fence(memory_order_seq_cst);
	return !(before & 1) && atomic_load(version) == before;
}

static void publish(unsigned index)
{
	struct offer_box *box = &my_place->offers[index];

	write_box(&box->version, &box->offer, &flows[index].mine, sizeof(box->offer));
}

/* What a peer offers me now, in its life and mine. */
static bool read_offer(unsigned index, struct offer *offer)
{
	struct offer_box *box = &peers[index].offers[me.index];

	return read_box(&box->version, &box->offer, offer, sizeof(*offer)) && offer->peer_life == me.life &&
	       offer->life == atomic_load(&peers[index].life);
}

static uint8_t byte_of(const struct header *header, uint32_t at)
{
	uint32_t x = (header->from_host * 64 + header->from_index) * 0x9e3779b1u ^ header->from_life * 0x85ebca6bu ^
		     (header->to_index * 0xc2b2ae35u) ^ (uint32_t)header->number * 0x27d4eb2fu ^ header->attempt;

	x = (x ^ at / 4) * 0x2c1b3c6du;
	return (uint8_t)((x ^ x >> 15) >> 8 * (at % 4));
}

static void fill(const struct header *header, uint8_t *to, uint32_t from, uint32_t length)
{
	for (uint32_t i = from; i < length; i++)
		to[i] = byte_of(header, i);
}

static bool is_filled(const struct header *header, const uint8_t *at, uint32_t from, uint32_t length)
{
	for (uint32_t i = from; i < length; i++) {
		if (at[i] != byte_of(header, i))
			return false;
	}
	return true;
}

static uint64_t make_id(enum kind kind, unsigned index, uint32_t attempt, unsigned i)
{
	return (uint64_t)attempt << 32 | (uint64_t)kind << 16 | index << 8 | i;
}

static unsigned family_of(unsigned index)
{
	return (me.index + index) % 2;
}

static void post_receive(unsigned index, unsigned i)
{
	struct ibv_sge sge = { (uintptr_t)memory->flows[index].receives[i], MESSAGE, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = make_id(RECEIVE, index, flows[index].attempt, i), .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK_EQUAL(ibv_post_recv(flows[index].qp, &wr, &bad), 0);
}

static void post_datagram_receive(unsigned i)
{
	struct ibv_sge sge = { (uintptr_t)memory->datagrams[i], GRH + MESSAGE, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = make_id(DATAGRAM_RECEIVE, 0, 0, i), .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK_EQUAL(ibv_post_recv(ud, &wr, &bad), 0);
}

static struct header header_to(unsigned index, uint32_t attempt, uint32_t qpn, uint64_t number)
{
	return (struct header){ .from_host = me.host,
				.from_index = me.index,
				.from_life = me.life,
				.to_host = 1 - me.host,
				.to_index = index,
				.to_life = flows[index].life,
				.attempt = attempt,
				.to_qpn = qpn,
				.number = number,
				.heard = flows[index].received,
				.length = (uint32_t)sizeof(struct header) + draw(MESSAGE - (uint32_t)sizeof(struct header) + 1) };
}

/* A message, with a WRITE before it or not. */
static void send_on(unsigned index)
{
	struct flow *flow = &flows[index];
	struct flow_memory *own = &memory->flows[index];
	struct header header = header_to(index, flow->attempt, flow->peer.qpn, flow->sent + 1);
	struct ibv_sge write_sge = { (uintptr_t)own->write, 0, mr->lkey };
	struct ibv_sge sge = { (uintptr_t)own->message, header.length, mr->lkey };
	struct ibv_send_wr wrs[2] = {
		{ .opcode = IBV_WR_RDMA_WRITE,
		  .sg_list = &write_sge,
		  .num_sge = 1,
		  .next = &wrs[1],
		  .wr.rdma = { .remote_addr = flow->peer.addr, .rkey = flow->peer.rkey } },
		{ .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 },
	}, *bad;
	bool writes = draw(3) == 0 && flow->peer_heard >= flow->write_sent;

	wrs[0].wr_id = wrs[1].wr_id = make_id(SEND, index, flow->attempt, 0);
	if (writes) {
		header.written = write_sge.length = 1 + draw(WRITE_MOST);
		fill(&header, own->write, 0, header.written);
		flow->write_sent = header.number;
	}
	memcpy(own->message, &header, sizeof(header));
	fill(&header, own->message, sizeof(header), header.length);
	CHECK_EQUAL(ibv_post_send(flow->qp, &wrs[writes ? 0 : 1], &bad), 0);
	flow->under_way += writes ? 2 : 1;
	flow->sent++;
	flow->sent_at = now_ms();
}

static bool read_whoami(unsigned index, struct whoami *other)
{
	struct whoami_box *box = &peers[index].whoami;

	return read_box(&box->version, &box->whoami, other, sizeof(*other)) && other->life &&
	       other->life == atomic_load(&peers[index].life);
}

static void send_datagram(unsigned index)
{
	unsigned family = draw(2);
	struct whoami other;

	if (datagram_under_way || !read_whoami(index, &other))
		return;
	if (!ahs[family]) {
		struct ibv_ah_attr attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = other.gids[family], .sgid_index = (uint8_t)gid_indices[family], .hop_limit = 64 },
		};

		ahs[family] = ibv_create_ah(pd, &attr);
		CHECK(ahs[family]);
	}
	struct header header = header_to(index, 0, other.ud_qpn, ++datagrams_sent);

	/* Its MTU is the port's. */
	header.length = (uint32_t)sizeof(header) + draw(900);
	header.to_life = other.life;
	struct ibv_sge sge = { (uintptr_t)memory->datagram, header.length, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = make_id(DATAGRAM_SEND, index, 0, 0),
		.opcode = IBV_WR_SEND,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.ud = { .ah = ahs[family], .remote_qpn = other.ud_qpn, .remote_qkey = QKEY },
	}, *bad;

	memcpy(memory->datagram, &header, sizeof(header));
	fill(&header, memory->datagram, sizeof(header), header.length);
	CHECK_EQUAL(ibv_post_send(ud, &wr, &bad), 0);
	datagram_under_way = true;
	COUNT(datagrams_sent, 1);
}

static void make_qp(unsigned index)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct flow *flow = &flows[index];

	flow->qp = ibv_create_qp(pd, &init);
	CHECK(flow->qp);
	node_init_qp(flow->qp, IBV_ACCESS_REMOTE_WRITE);
	flow->sent = flow->received = flow->peer_heard = flow->write_sent = flow->gone_at = 0;
	flow->under_way = 0;
	flow->failed = false;
	flow->mine = (struct offer){ .life = me.life,
				     .peer_life = flow->life,
				     .attempt = flow->attempt,
				     .qpn = flow->qp->qp_num,
				     .psn = draw(1u << 24),
				     .rkey = mr->rkey,
				     .addr = (uintptr_t)memory->flows[index].target };
	for (unsigned i = 0; i < RECEIVES; i++)
		post_receive(index, i);
}

/* False: the peer is gone. */
static bool connect_qp(unsigned index)
{
	struct flow *flow = &flows[index];
	struct whoami other = { 0 };
	unsigned family = family_of(index);

	/* It has offered something, so it has said who it is. */
	while (!read_whoami(index, &other)) {
		if (atomic_load(&peers[index].life) != flow->life)
			return false;
		usleep(100);
	}
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = flow->peer.qpn,
		.rq_psn = flow->peer.psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = other.gids[family], .sgid_index = (uint8_t)gid_indices[family], .hop_limit = 64 } },
	};

	CHECK_EQUAL(ibv_modify_qp(flow->qp, &attr,
				  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		    0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = flow->mine.psn, .timeout = 13, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1
	};
	CHECK_EQUAL(ibv_modify_qp(flow->qp, &attr,
				  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_MAX_QP_RD_ATOMIC),
		    0);
	COUNT(connections, 1);
	return true;
}

static void drop(unsigned index)
{
	struct flow *flow = &flows[index];

	CHECK_EQUAL(ibv_destroy_qp(flow->qp), 0);
	flow->qp = NULL;
	flow->state = NONE;
	flow->under_way = 0;
	flow->failed = false;
}

/* Leads: offers, and confirms what is answered. */
static void lead(unsigned index)
{
	struct flow *flow = &flows[index];
	struct offer offer;
	bool has_answer = read_offer(index, &offer) && offer.attempt == flow->attempt && offer.life == flow->life;

	if (flow->state == NONE) {
		flow->life = atomic_load(&peers[index].life);
		if (!flow->life)
			return;
		flow->attempt = ++attempts;
		make_qp(index);
		flow->state = OFFERED;
		publish(index);
	} else if (flow->state == OFFERED && has_answer) {
		flow->peer = offer;
		if (!connect_qp(index)) {
			drop(index);
			return;
		}
		flow->mine.is_confirmed = true;
		flow->state = UP;
		publish(index);
	} else if (flow->state == UP && has_answer && offer.is_broken) {
		drop(index);
	}
}

/* Follows: answers what is offered. */
static void follow(unsigned index)
{
	struct flow *flow = &flows[index];
	struct offer offer;

	if (!read_offer(index, &offer))
		return;
	if (offer.attempt != flow->attempt || offer.life != flow->life) {
		if (flow->qp)
			drop(index);
		flow->life = offer.life;
		flow->attempt = offer.attempt;
		flow->peer = offer;
		make_qp(index);
		if (!connect_qp(index)) {
			drop(index);
			return;
		}
		flow->state = ANSWERED;
		publish(index);
	} else if (flow->state == ANSWERED && offer.is_confirmed) {
		flow->state = UP;
	}
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Since when both are there and may be expected to do something; UINT64_MAX: one is not. */
static uint64_t both_there_since(unsigned index)
{
	return later(atomic_load(&my_place->quiet_since), atomic_load(&peers[index].quiet_since));
}

/* A connection to who is gone must fail; something is sent to find that out. True: look at it no further. */
static bool bury(unsigned index)
{
	struct flow *flow = &flows[index];
	uint64_t now = now_ms();

	if (!flow->qp || atomic_load(&peers[index].life) == flow->life)
		return false;
	if (flow->state != UP) {
		drop(index);
		return false;
	}
	flow->gone_at = later(later(flow->gone_at ? flow->gone_at : now, atomic_load(&my_place->quiet_since)), 0);
	if (!flow->under_way)
		send_on(index);
	if (flow->gone_at < now && now - flow->gone_at > END_BOUND + crowd_bound(me.count))
		fault(index, "its connection does not end");
	return true;
}

static void check_progress(unsigned index)
{
	struct flow *flow = &flows[index];
	uint32_t life = atomic_load(&peers[index].life);
	uint64_t since = both_there_since(index), now = now_ms();

	if (!life || since >= now)
		return;
	since = later(since, flow->heard_at);
	uint64_t silence = now > since ? now - since : 0, worst = atomic_load(&me.board->totals.worst);

	/* It was there throughout. */
	if (atomic_load(&peers[index].life) != life || both_there_since(index) > since)
		return;
	while (silence > worst && !atomic_compare_exchange_weak(&me.board->totals.worst, &worst, silence))
		continue;
	if (silence > crowd_bound(me.count))
		fault(index, "nothing is heard");
}

static void look_at_board(void)
{
	bool quiet = atomic_load(&me.board->quiet) == me.directors, content = quiet;

	for (unsigned i = 0; i < me.count; i++) {
		struct flow *flow = &flows[i];

		if (flow->failed) {
			if (flow->state != NONE && me.host) {
				flow->mine.is_broken = true;
				publish(i);
			}
			drop(i);
		}
		if (bury(i)) {
			content = false;
			continue;
		}
		(me.host ? follow : lead)(i);
		if (flow->state == UP && !flow->under_way &&
		    (now_ms() - flow->sent_at > send_again_after(me.count) || draw(me.count) < BUSY))
			send_on(i);
		check_progress(i);
		content &= flow->heard_in_the_end >= ENOUGH && flow->datagrams_in_the_end;
	}
	send_datagram(draw(me.count));
	if (content)
		atomic_store(&my_place->content, me.life);
}

/* From whom it says it is, to me, in this life. */
static void check_header(const struct header *header, uint32_t bytes, uint32_t qpn, unsigned index)
{
	if (header->to_host != me.host || header->to_index != me.index || header->to_life != me.life || header->to_qpn != qpn) {
		fprintf(stderr,
			"host %u, process %u in life %u, QPN %#x: got what process %u in life %u of host %u sent to QPN %#x of "
			"process %u in life %u of host %u\n",
			me.host + 1, me.index, me.life, qpn, header->from_index, header->from_life, header->from_host + 1,
			header->to_qpn, header->to_index, header->to_life, header->to_host + 1);
		fault(index, "served by the wrong process");
	}
	CHECK_EQUAL(header->from_host, 1 - me.host);
	CHECK_EQUAL(header->length, bytes);
}

static void take_message(unsigned index, unsigned i, const struct ibv_wc *wc)
{
	struct flow *flow = &flows[index];
	const struct flow_memory *own = &memory->flows[index];
	struct header header;

	CHECK(wc->byte_len >= sizeof(header));
	memcpy(&header, own->receives[i], sizeof(header));
	check_header(&header, wc->byte_len, flow->qp->qp_num, index);
	CHECK_EQUAL(wc->qp_num, flow->qp->qp_num);
	if (header.from_index != index || header.from_life != flow->life || header.attempt != flow->attempt)
		fault(index, "a message of another connection");
	if (header.number != flow->received + 1)
		fault(index, "not the next message");
	if (!is_filled(&header, own->receives[i], sizeof(header), header.length))
		fault(index, "wrong bytes");
	if (!is_filled(&header, own->target, 0, header.written))
		fault(index, "wrong bytes were written");
	flow->received = header.number;
	flow->peer_heard = header.heard;
	flow->heard_at = now_ms();
	flow->heard_in_the_end += atomic_load(&me.board->quiet) == me.directors;
	/* The leader sends only when it is connected, so it may be sent to. */
	flow->state = UP;
	COUNT(messages, 1);
	COUNT(bytes, header.length + header.written);
	COUNT(written, header.written ? 1 : 0);
	post_receive(index, i);
}

static void take_datagram(unsigned i, const struct ibv_wc *wc)
{
	struct header header;
	const uint8_t *at = memory->datagrams[i] + GRH;

	CHECK(wc->byte_len >= GRH + sizeof(header));
	memcpy(&header, at, sizeof(header));
	/* Who got its QPN after a death may get what was on its way. */
	if (header.to_host == me.host && header.to_index < me.count && (header.to_index != me.index || header.to_life != me.life) &&
	    atomic_load(&me.board->places[me.host][header.to_index].life) != header.to_life) {
		post_datagram_receive(i);
		return;
	}
	check_header(&header, wc->byte_len - GRH, ud->qp_num, header.from_index % CROWD_MOST);
	CHECK(!header.attempt && header.from_index < me.count);
	if (!is_filled(&header, at, sizeof(header), header.length))
		fault(header.from_index, "wrong bytes in a datagram");
	flows[header.from_index].datagrams_in_the_end += atomic_load(&me.board->quiet) == me.directors;
	COUNT(datagrams, 1);
	post_datagram_receive(i);
}

/* Who is gone, or was stopped, may have answered too late; so may one who was not. */
static void note_end(unsigned index, const struct ibv_wc *wc)
{
	struct flow *flow = &flows[index];
	uint64_t since = both_there_since(index);
	bool was_there = atomic_load(&peers[index].life) == flow->life && since < now_ms() && now_ms() - since > END_BOUND;

	if (flow->failed)
		return;
	flow->failed = true;
	if (wc->status != IBV_WC_RETRY_EXC_ERR) {
		fprintf(stderr, "%s, cause %u\n", ibv_wc_status_str(wc->status), wc->vendor_err);
		fault(index, "a connection ends otherwise than by silence");
	}
	if (was_there)
		COUNT(given_up, 1);
	else
		COUNT(ended, 1);
}

static void complete(const struct ibv_wc *wc)
{
	enum kind kind = (wc->wr_id >> 16) & 0xff;
	unsigned index = (wc->wr_id >> 8) & 0xff, i = wc->wr_id & 0xff;
	struct flow *flow = &flows[index];

	if (kind == DATAGRAM_SEND || kind == DATAGRAM_RECEIVE)
		CHECK_EQUAL(wc->status, IBV_WC_SUCCESS);
	if (kind == DATAGRAM_SEND) {
		datagram_under_way = false;
	} else if (kind == DATAGRAM_RECEIVE) {
		take_datagram(i, wc);
	} else if (!flow->qp || (uint32_t)(wc->wr_id >> 32) != flow->attempt) {
		return; /* of a connection that was given up */
	} else if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		/* The requester fails first; both queues are flushed behind it. */
		flow->under_way -= kind == SEND;
	} else if (wc->status) {
		flow->under_way -= kind == SEND;
		note_end(index, wc);
	} else if (kind == SEND) {
		flow->under_way--;
	} else {
		take_message(index, i, wc);
	}
}

static void drain(void)
{
	struct ibv_wc wc[32];
	int n;

	while ((n = ibv_poll_cq(cq, 32, wc)) > 0) {
		for (int i = 0; i < n; i++)
			complete(&wc[i]);
	}
	CHECK(n >= 0);
}

/* Until there may be something, or the tick is over: on the channel, or by polling now and then. */
static void wait_until(uint64_t tick)
{
	struct pollfd readable = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *fired;
	void *arg;
	uint64_t now;

	if (!sleeps) {
		usleep(500);
		return;
	}
	CHECK_EQUAL(ibv_req_notify_cq(cq, 0), 0);
	drain();
	now = now_ms();
	if (now < tick && poll(&readable, 1, (int)(tick - now)) > 0) {
		CHECK_EQUAL(ibv_get_cq_event(channel, &fired, &arg), 0);
		ibv_ack_cq_events(fired, 1);
	}
}

static void find_gids(void)
{
	const char *names[2] = { getenv("UROCE_LAB_IPV4"), getenv("UROCE_LAB_IPV6") };
	union ibv_gid gid;

	CHECK(names[0] && names[1]);
	whoami.gids[0].raw[10] = whoami.gids[0].raw[11] = 0xff;
	CHECK_EQUAL(inet_pton(AF_INET, names[0], whoami.gids[0].raw + 12), 1);
	CHECK_EQUAL(inet_pton(AF_INET6, names[1], whoami.gids[1].raw), 1);
	for (unsigned family = 0; family < 2; family++) {
		do {
			CHECK_EQUAL(ibv_query_gid(context, 1, gid_indices[family]++, &gid), 0);
		} while (memcmp(&gid, &whoami.gids[family], sizeof(gid)));
		gid_indices[family]--;
	}
}

static void make_ud(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = DATAGRAMS, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	ud = ibv_create_qp(pd, &init);
	CHECK(ud);
	CHECK_EQUAL(ibv_modify_qp(ud, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	for (unsigned i = 0; i < DATAGRAMS; i++)
		post_datagram_receive(i);
	attr.qp_state = IBV_QPS_RTR;
	CHECK_EQUAL(ibv_modify_qp(ud, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK_EQUAL(ibv_modify_qp(ud, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	whoami.life = me.life;
	whoami.ud_qpn = ud->qp_num;
	write_box(&my_place->whoami.version, &my_place->whoami.whoami, &whoami, sizeof(whoami));
}

static void open_all(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	size_t bytes = (sizeof(*memory) + 4095) & ~4095ul;

	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	memory = aligned_alloc(4096, bytes);
	CHECK(pd && memory);
	memset(memory, 0, bytes);
	mr = ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	channel = ibv_create_comp_channel(context);
	CHECK(mr && channel);
	CHECK_EQUAL(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), 0);
	cq = ibv_create_cq(context, (int)(CROWD_MOST * (RECEIVES + 4) * 2 + DATAGRAMS), NULL, channel, 0);
	CHECK(cq);
	find_gids();
	make_ud();
}

/* No two of a host have the same numbers. Those that are being killed still have theirs for a moment. */
static void check_numbers(void)
{
	uint32_t mine = ud->qp_num >> QPN_SLOT;

	atomic_store(&my_place->slots, mine);
	for (unsigned i = 0; i < me.count; i++) {
		struct place *other = &me.board->places[me.host][i];
		uint32_t life = atomic_load(&other->life), slots = atomic_load(&other->slots);

		if (i != me.index && life && slots == mine && atomic_load(&other->life) == life &&
		    atomic_load(&other->slots) == slots)
			fault(i, "the other, on the same host, has the same QPNs");
	}
}

static void leave(void)
{
	/* Some close everything, some just end. */
	if (draw(2))
		_exit(0);
	for (unsigned i = 0; i < me.count; i++) {
		if (flows[i].qp)
			drop(i);
	}
	CHECK_EQUAL(ibv_destroy_qp(ud), 0);
	for (int i = 0; i < 2; i++)
		CHECK(!ahs[i] || !ibv_destroy_ah(ahs[i]));
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(ibv_destroy_cq(cq), 0);
	CHECK_EQUAL(ibv_destroy_comp_channel(channel), 0);
	CHECK_EQUAL(ibv_dealloc_pd(pd), 0);
	CHECK_EQUAL(ibv_close_device(context), 0);
	_exit(0);
}

void crowd_member(const struct member *member)
{
	me = *member;
	my_place = &me.board->places[me.host][me.index];
	peers = me.board->places[1 - me.host];
	sleeps = draw(4);
	open_all();
	check_numbers();
	while (!atomic_load(&my_place->leave)) {
		uint64_t tick = now_ms() + tick_of(me.count);

		look_at_board();
		do {
			drain();
			wait_until(tick);
		} while (now_ms() < tick);
	}
	leave();
	__builtin_unreachable();
}
