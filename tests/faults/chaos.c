/* SPDX-License-Identifier: MIT */
/*
 * chaos SECONDS [SEED]: one end of busy connections is killed, stopped or leaves at random
 * instants.
 *
 * The hub lives throughout. Each round it connects to a fresh victim by an RC, a UC, a UD and an
 * SRQ's RC queue pair, and both send, write, read and calculate at random. The director stops and
 * continues either of them, and in the end kills the victim, lets it exit, or has the hub leave
 * first. Then the hub must find all that it posted completed with a status that is right, in time,
 * its messages in order and whole, and no more mappings and descriptors than before. Beside that
 * the hub and a third process exchange messages all the time, which nothing of this may delay. /
 */
#include "node.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define FLOWS	   4
#define SLOTS	   16  /* messages under way a flow and direction */
#define MESSAGE	   256 /* bytes at most, a multiple of 8 */
#define SLOT_BYTES (MESSAGE + 64)
#define SENDS_AT   (FLOWS * SLOTS * SLOT_BYTES)
#define TARGET_AT  (2 * SENDS_AT)
#define TARGET	   4096
#define GRH	   40
#define BOUND_MS   20000 /* for everything to be completed once the peer is dead */
#define GAP_MS	   15000 /* for the bystander's answer */

_Static_assert(TARGET_AT + TARGET <= NODE_BYTES, "the memory is large enough");

enum { RC_FLOW, SRQ_FLOW, UC_FLOW, UD_FLOW };
static const enum ibv_qp_type flow_types[FLOWS] = { IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC,
						    IBV_QPT_UD };

enum word { ROUND = 1, READY, DEAD, LEAVE, STAY, DONE, END };

static const struct link_attr chaos_link = {
	.mtu = IBV_MTU_1024,
	.timeout = 10, /* 4 ms */
	.retry_cnt = 3,
	.rnr_retry = 7,
	.min_rnr_timer = 1,
	.rd_atomic = 4,
	.dest_rd_atomic = 4,
	.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
};

static uint32_t seed; /* of the process; xorshift */

static uint32_t draw(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed % n;
}

struct flow {
	struct ibv_qp *qp;
	struct card peer;
	uint64_t sent, received;  /* sequence numbers of messages that take a receive */
	uint32_t sends, receives; /* under way */
	uint32_t free_sends;	  /* bit mask of slots */
	bool failed;
};

struct end {
	struct node node;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct flow flows[FLOWS];
	uint32_t srq_receives;
	bool leaving; /* receives are not posted anew */
};

enum kind { SEND = 1, RECEIVE };

static uint64_t make_id(unsigned flow, enum kind kind, unsigned slot)
{
	return (uint64_t)flow << 32 | (uint64_t)kind << 16 | slot;
}

static uint32_t receive_at(unsigned flow, unsigned slot)
{
	return (flow * SLOTS + slot) * SLOT_BYTES;
}

static void post_receive(struct end *end, unsigned flow, unsigned slot)
{
	uint64_t id = make_id(flow, RECEIVE, slot);

	if (flow == SRQ_FLOW) {
		CHECK_EQUAL(node_srq_recv(&end->node, end->srq, id, receive_at(flow, slot),
					  SLOT_BYTES),
			    0);
		end->srq_receives++;
	} else {
		CHECK_EQUAL(node_recv(&end->node, end->flows[flow].qp, id, receive_at(flow, slot),
				      SLOT_BYTES),
			    0);
		end->flows[flow].receives++;
	}
}

static void open_flows(struct end *end)
{
	for (unsigned f = 0; f < FLOWS; f++) {
		struct flow *flow = &end->flows[f];

		*flow = (struct flow){ .qp = node_qp(&end->node, flow_types[f],
						     f == SRQ_FLOW ? end->srq : NULL),
				       .free_sends = (1u << SLOTS) - 1 };
		for (unsigned slot = 0; slot < SLOTS && f != SRQ_FLOW; slot++)
			post_receive(end, f, slot);
	}
}

static void send_cards(struct end *end, int line)
{
	struct card cards[FLOWS];

	for (unsigned f = 0; f < FLOWS; f++)
		cards[f] = node_card(&end->node, end->flows[f].qp);
	line_send(line, cards, sizeof(cards));
}

static void connect_flows(struct end *end, int line)
{
	struct card cards[FLOWS];
	struct ibv_ah_attr ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };

	line_receive(line, cards, sizeof(cards));
	for (unsigned f = 0; f < FLOWS; f++) {
		end->flows[f].peer = cards[f];
		node_connect(end->flows[f].qp, &cards[f], &chaos_link);
	}
	ah_attr.grh.dgid = cards[UD_FLOW].gid;
	end->ah = ibv_create_ah(end->node.pd, &ah_attr);
	CHECK(end->ah);
}

static enum ibv_wr_opcode draw_opcode(unsigned f)
{
	static const enum ibv_wr_opcode rc[] = { IBV_WR_SEND,
						 IBV_WR_SEND,
						 IBV_WR_RDMA_WRITE,
						 IBV_WR_RDMA_READ,
						 IBV_WR_RDMA_WRITE_WITH_IMM,
						 IBV_WR_ATOMIC_FETCH_AND_ADD };
	static const enum ibv_wr_opcode uc[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
						 IBV_WR_RDMA_WRITE_WITH_IMM };

	switch (f) {
	case UC_FLOW:
		return uc[draw(3)];
	case UD_FLOW:
		return IBV_WR_SEND;
	default:
		return rc[draw(6)];
	}
}

/* Posts something at random. */
static void post_send(struct end *end, unsigned f)
{
	struct flow *flow = &end->flows[f];
	unsigned slot = (unsigned)__builtin_ctz(flow->free_sends);
	uint64_t *words = (uint64_t *)(end->node.buf + SENDS_AT + receive_at(f, slot));
	struct ibv_sge sge = { .addr = (uintptr_t)words,
			       .lkey = end->node.mr->lkey,
			       .length = 8 + 8 * draw(MESSAGE / 8) };
	struct ibv_send_wr wr = { .wr_id = make_id(f, SEND, slot),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = draw_opcode(f) };
	struct ibv_send_wr *bad;

	if (wr.opcode == IBV_WR_SEND || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		for (uint32_t i = 0; i < sge.length / 8; i++)
			words[i] = flow->sent;
		wr.imm_data = htonl((uint32_t)flow->sent);
		flow->sent++;
	}
	if (f == UD_FLOW) {
		wr.wr.ud.ah = end->ah;
		wr.wr.ud.remote_qpn = flow->peer.qpn;
		wr.wr.ud.remote_qkey = 0x11;
	} else if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = flow->peer.addr + TARGET_AT + 8 * draw(TARGET / 8);
		wr.wr.atomic.rkey = flow->peer.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = flow->peer.addr + TARGET_AT + draw(TARGET - MESSAGE);
		wr.wr.rdma.rkey = flow->peer.rkey;
	}
	CHECK_EQUAL(ibv_post_send(flow->qp, &wr, &bad), 0);
	flow->free_sends &= ~(1u << slot);
	flow->sends++;
}

/* A message that arrived: whole, and in order. A datagram may be a stranger's, meant for who had our
 * QPN before. */
static void check_message(struct end *end, unsigned f, unsigned slot, const struct ibv_wc *wc)
{
	struct flow *flow = &end->flows[f];
	const uint64_t *words =
		(uint64_t *)(end->node.buf + receive_at(f, slot) + (f == UD_FLOW ? GRH : 0));
	uint32_t length = wc->byte_len - (f == UD_FLOW ? GRH : 0);
	uint64_t sequence = wc->wc_flags & IBV_WC_WITH_IMM ? ntohl(wc->imm_data) : words[0];

	if (!(wc->wc_flags & IBV_WC_WITH_IMM)) {
		CHECK(length >= 8 && length <= MESSAGE && length % 8 == 0);
		for (uint32_t i = 0; i < length / 8; i++)
			CHECK_EQUAL(words[i], sequence);
	}
	if (f == UD_FLOW && wc->src_qp != flow->peer.qpn)
		return;
	if (flow_types[f] == IBV_QPT_RC)
		CHECK_EQUAL(sequence, flow->received);
	else /* packets that one process hands over to another are overtaken by others */
		CHECK(sequence >= flow->received || over_the_wire());
	flow->received = sequence + 1;
}

static void take_completion(struct end *end, const struct ibv_wc *wc)
{
	unsigned f = (unsigned)(wc->wr_id >> 32), slot = wc->wr_id & 0xffff;
	struct flow *flow = &end->flows[f];

	CHECK(f < FLOWS && slot < SLOTS);
	CHECK_EQUAL(wc->qp_num, flow->qp->qp_num);
	if ((wc->wr_id >> 16 & 0xffff) == SEND) {
		CHECK(!(flow->free_sends & 1u << slot));
		flow->free_sends |= 1u << slot;
		flow->sends--;
		if (wc->status != IBV_WC_SUCCESS) {
			CHECK(flow_types[f] == IBV_QPT_RC || end->leaving);
			CHECK_EQUAL(wc->status, flow->failed || end->leaving ?
							IBV_WC_WR_FLUSH_ERR :
							IBV_WC_RETRY_EXC_ERR);
			flow->failed = true;
		} else {
			CHECK(!flow->failed);
		}
		return;
	}
	if (f == SRQ_FLOW)
		end->srq_receives--;
	else
		flow->receives--;
	if (wc->status == IBV_WC_SUCCESS)
		check_message(end, f, slot, wc);
	else
		CHECK_EQUAL(wc->status, IBV_WC_WR_FLUSH_ERR);
	if (!end->leaving && !flow->failed)
		post_receive(end, f, slot);
}

static bool poll_some(struct end *end)
{
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(end->node.cq, 8, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		take_completion(end, &wc[i]);
	return n > 0;
}

/* Works until the director says something; says what. */
static uint32_t work(struct end *end, int line)
{
	struct pollfd readable = { .fd = line, .events = POLLIN };
	uint32_t word;

	while (poll(&readable, 1, 0) != 1) {
		unsigned f = draw(FLOWS);

		if (end->flows[f].free_sends && !end->flows[f].failed)
			post_send(end, f);
		if (draw(2) || !end->flows[f].free_sends) {
			if (!poll_some(end))
				usleep(draw(50));
		}
	}
	if (recv(line, &word, sizeof(word), 0) != sizeof(word))
		exit(0); /* the director is gone */
	return word;
}

static void poll_until_sent(struct end *end)
{
	for (uint64_t limit = now_ms() + BOUND_MS;;) {
		uint32_t sends = 0;

		for (unsigned f = 0; f < FLOWS; f++)
			sends += end->flows[f].sends;
		if (!sends)
			return;
		CHECK(now_ms() < limit);
		if (!poll_some(end))
			usleep(50);
	}
}

/* The peer is dead: all that was posted completes, what is posted now fails, and so do the
 * receives. Where its memory is mapped, that begins when the helper has found out. */
static void settle(struct end *end)
{
	poll_until_sent(end);
	for (uint64_t limit = now_ms() + BOUND_MS;
	     !end->flows[RC_FLOW].failed || !end->flows[SRQ_FLOW].failed;) {
		CHECK(now_ms() < limit);
		for (unsigned f = 0; f < FLOWS; f++) {
			if (!end->flows[f].failed)
				post_send(end, f);
		}
		poll_until_sent(end);
	}
	CHECK_EQUAL(node_state(end->flows[RC_FLOW].qp), IBV_QPS_ERR);
	CHECK_EQUAL(node_state(end->flows[UC_FLOW].qp), IBV_QPS_RTS);
	end->leaving = true;
	for (unsigned f = 0; f < FLOWS; f++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

		CHECK_EQUAL(ibv_modify_qp(end->flows[f].qp, &attr, IBV_QP_STATE), 0);
	}
	for (uint64_t limit = now_ms() + BOUND_MS;;) {
		uint32_t receives = 0;

		for (unsigned f = 0; f < FLOWS; f++)
			receives += end->flows[f].receives;
		if (!poll_some(end)) {
			if (!receives)
				break;
			usleep(50);
		}
		CHECK(now_ms() < limit);
	}
}

static void take_events(struct ibv_context *ctx, const void *last_wqe_of)
{
	struct pollfd readable = { .fd = ctx->async_fd, .events = POLLIN };
	bool reached = !last_wqe_of;

	while (poll(&readable, 1, reached ? 0 : BOUND_MS) == 1) {
		struct ibv_async_event event;

		CHECK_EQUAL(ibv_get_async_event(ctx, &event), 0);
		CHECK(event.event_type == IBV_EVENT_COMM_EST ||
		      event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
		reached |= event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED &&
			   event.element.qp == last_wqe_of;
		ibv_ack_async_event(&event);
	}
	CHECK(reached);
}

/* The SRQ still holds all that was posted to it and did not complete: as many messages find room
 * there. */
static void check_srq(struct end *end)
{
	struct link_attr link = chaos_link;
	struct ibv_qp *a = node_qp(&end->node, IBV_QPT_RC, NULL),
		      *b = node_qp(&end->node, IBV_QPT_RC, end->srq);
	uint32_t found = 0;

	link.rnr_retry = 0;
	node_connect_pair(&end->node, a, b, &link);
	for (;;) {
		struct ibv_wc wc[2];
		bool sent = false;

		CHECK_EQUAL(node_send(&end->node, a, 1, SENDS_AT, 8), 0);
		for (int expected = 2, got = 0; got < expected; got++) {
			CHECK(node_poll(end->node.cq, wc, TIMEOUT_MS));
			if (wc->wr_id == 1 && wc->status != IBV_WC_SUCCESS) {
				CHECK_EQUAL(wc->status, IBV_WC_RNR_RETRY_EXC_ERR);
				expected = 1;
			} else {
				CHECK_EQUAL(wc->status, IBV_WC_SUCCESS);
				sent = true;
			}
		}
		if (!sent)
			break;
		found++;
	}
	CHECK_EQUAL(found, end->srq_receives);
	end->srq_receives = 0;
	CHECK_EQUAL(ibv_destroy_qp(a), 0);
	CHECK_EQUAL(ibv_destroy_qp(b), 0);
}

static void open_end(struct end *end, uint32_t its_seed)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = SLOTS, .max_sge = 1 } };

	memset(end, 0, sizeof(*end));
	seed = its_seed;
	node_open(&end->node);
	end->srq = ibv_create_srq(end->node.pd, &srq_attr);
	CHECK(end->srq);
	for (unsigned slot = 0; slot < SLOTS; slot++)
		post_receive(end, SRQ_FLOW, slot);
}

static void victim(int line, void *arg)
{
	struct end end;

	open_end(&end, *(uint32_t *)arg);
	open_flows(&end);
	send_cards(&end, line);
	connect_flows(&end, line);
	say(line, READY);
	work(&end, line); /* until it is killed, or told to exit */
}

struct steady {
	struct node node;
	struct ibv_qp *qp;
	_Atomic bool stop;
	uint64_t longest; /* ms */
};

/* Sleeps until a completion event comes; false after ms. */
static bool sleep_for_event(struct node *node, int ms)
{
	struct pollfd readable = { .fd = node->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&readable, 1, ms) != 1)
		return false;
	CHECK_EQUAL(ibv_get_cq_event(node->channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	return true;
}

static void await_message(struct node *node, struct ibv_qp *qp, int ms)
{
	struct ibv_wc wc;

	for (bool received = false; !received;) {
		CHECK_EQUAL(ibv_req_notify_cq(node->cq, 0), 0);
		while (ibv_poll_cq(node->cq, 1, &wc) == 1) {
			CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
			received |= wc.opcode == IBV_WC_RECV;
		}
		if (!received)
			CHECK(sleep_for_event(node, ms));
	}
	CHECK_EQUAL(node_recv(node, qp, 1, 4096, 64), 0);
}

static struct ibv_qp *open_steady(struct node *node, int line)
{
	struct link_attr link = node_defaults;
	struct ibv_qp *qp;
	struct card other;

	link.timeout = 16; /* 268 ms: the hub is stopped at times */

	node_open(node);
	qp = node_qp(node, IBV_QPT_RC, NULL);
	for (int i = 0; i < 4; i++)
		CHECK_EQUAL(node_recv(node, qp, 1, 4096, 64), 0);
	node_meet(node, qp, line, &other, &link);
	return qp;
}

#define QPN_SLOT   14 /* bits of an index below it */
#define SLOTS_MOST 4

static void bystander(int line, void *arg)
{
	struct node node;
	struct ibv_qp *qp = open_steady(&node, line);

	(void)arg;
	say(line, READY);
	for (;;) { /* until it is killed */
		await_message(&node, qp, -1);
		CHECK_EQUAL(node_send(&node, qp, 2, 0, 64), 0);
	}
}

static void *keep_steady(void *arg)
{
	struct steady *steady = arg;

	while (!steady->stop) {
		uint64_t start = now_ms();

		CHECK_EQUAL(node_send(&steady->node, steady->qp, 2, 0, 64), 0);
		await_message(&steady->node, steady->qp, GAP_MS);
		if (now_ms() - start > steady->longest)
			steady->longest = now_ms() - start;
		usleep(500);
	}
	return NULL;
}

static void tell_what_is_left(unsigned fds)
{
	char look[256];

	fprintf(stderr, "%u segments mapped, %u descriptors where there were %u:\n", count_maps(),
		count_fds(), fds);
	snprintf(look, sizeof(look),
		 "exec >&2; grep uroce /proc/%d/maps; ls -l /proc/%d/fd | sed -n 's/.* \\([0-9]* ->\\)/\\1/p'; "
		 "ls -l /proc/%d/fd | sed -n 's/.*socket:.\\([0-9]*\\).*/\\1/p' | grep -wFf- /proc/net/unix /proc/net/udp*",
		 getpid(), getpid(), getpid());
	if (system(look))
		fprintf(stderr, "nothing to see\n");
}

/* QPNs are not used again before all others, so that in time a process takes more slots (nic/layout.h). Each is a socket, and, since a
 * UD queue pair can be reached from other hosts, another for packets that came to another process. */
#define SLOT_SOCKETS 2

struct slots {
	uint32_t numbers[SLOTS_MOST];
	unsigned count;
};

/* Looks at the slot of a QP that is made now: whether it is a new one. */
static bool newest_slot(struct slots *slots, struct node *node)
{
	struct ibv_qp *qp = node_qp(node, IBV_QPT_RC, NULL);
	uint32_t number = qp->qp_num >> QPN_SLOT;

	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	for (unsigned i = 0; i < slots->count; i++) {
		if (slots->numbers[i] == number)
			return false;
	}
	CHECK(slots->count < SLOTS_MOST);
	slots->numbers[slots->count++] = number;
	return true;
}

static void hub(int line, void *arg)
{
	struct slots slots = { .count = 0 };
	struct end end;
	struct steady steady = { .stop = false };
	pthread_t thread;
	uint32_t word;
	unsigned fds = 0, maps = 0;

	steady.qp = open_steady(&steady.node, line);
	say(line, READY);
	expect(line, ROUND); /* both are ready */
	CHECK_EQUAL(pthread_create(&thread, NULL, keep_steady, &steady), 0);
	open_end(&end, *(uint32_t *)arg);
	for (uint32_t round = 0;; round++) {
		line_receive(line, &word, sizeof(word));
		if (word != ROUND)
			break;
		if (round == 3) { /* by now it has what it needs for the bystander */
			maps = count_maps();
			fds = count_fds();
		}
		open_flows(&end);
		send_cards(&end, line);
		connect_flows(&end, line);
		say(line, READY);
		if (work(&end, line) == DEAD) {
			settle(&end);
			take_events(end.node.ctx, end.flows[SRQ_FLOW].qp);
		} else {
			take_events(end.node.ctx, NULL);
		}
		for (unsigned f = 0; f < FLOWS; f++)
			CHECK_EQUAL(ibv_destroy_qp(end.flows[f].qp), 0);
		CHECK_EQUAL(ibv_destroy_ah(end.ah), 0);
		if (end.leaving) {
			check_srq(&end);
		} else {
			/* What it held then is not known: a new one. */
			struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = SLOTS,
									.max_sge = 1 } };

			CHECK_EQUAL(ibv_destroy_srq(end.srq), 0);
			end.srq = ibv_create_srq(end.node.pd, &srq_attr);
			CHECK(end.srq);
		}
		struct ibv_wc wc;

		CHECK_EQUAL(ibv_poll_cq(end.node.cq, 1, &wc), 0);
		end.leaving = false;
		end.srq_receives = 0;
		for (unsigned slot = 0; slot < SLOTS; slot++)
			post_receive(&end, SRQ_FLOW, slot);
		say(line, DONE);
		expect(line, STAY); /* the victim is dead in any case */
		bool more = newest_slot(&slots, &end.node) && fds;
		fds += more ? SLOT_SOCKETS : 0;
		if (round < 2)
			continue;
		/* The helper lets go of the dead: first of its memory, so that some descriptors may still
		 * have been there when they were counted. */
		for (uint64_t limit = now_ms() + BOUND_MS;
		     count_maps() > 2 || (fds && count_fds() > fds); usleep(1000)) {
			if (now_ms() >= limit)
				tell_what_is_left(fds);
			CHECK(now_ms() < limit);
		}
		/* The second socket of a slot comes with the next queue pair that is connected. */
		if (fds && !more)
			fds = count_fds();
		CHECK(round < 3 || count_maps() == maps);
	}
	steady.stop = true;
	pthread_join(thread, NULL);
	printf("longest wait of the bystander: %u ms\n", (unsigned)steady.longest);
	CHECK_EQUAL(ibv_destroy_qp(steady.qp), 0);
	node_close(&steady.node);
	CHECK_EQUAL(ibv_destroy_srq(end.srq), 0);
	node_close(&end.node);
}

static bool exchange_cards(struct actor *a, struct actor *b)
{
	struct card a_cards[FLOWS], b_cards[FLOWS];

	return line_receive(a->line, a_cards, sizeof(a_cards)) &&
	       line_receive(b->line, b_cards, sizeof(b_cards)) &&
	       line_send(a->line, b_cards, sizeof(b_cards)) &&
	       line_send(b->line, a_cards, sizeof(a_cards));
}

static void stop_for_a_while(pid_t pid)
{
	kill(pid, SIGSTOP);
	usleep(draw(20000));
	kill(pid, SIGCONT);
}

static bool hear(struct actor *actor, uint32_t word)
{
	uint32_t heard = 0;

	return line_receive(actor->line, &heard, sizeof(heard)) && heard == word;
}

static bool end_victim(struct actor *v, bool by_exit)
{
	if (by_exit)
		say(v->line, END);
	else
		kill(v->pid, SIGKILL);
	return actor_end(v) != -1;
}

/* False when something is wrong: the actor has said what. */
static bool play_round(struct actor *h, struct actor *v, char *what, size_t size)
{
	bool leave = !draw(4), by_exit = !draw(4), stopped = false;

	what[0] = 0;
	if (!exchange_cards(h, v))
		return false;
	/* From here on anything may happen, also before they are connected. */
	usleep(draw(draw(2) ? 3000 : 30000));
	for (uint32_t i = draw(4); i; i--) {
		if (draw(2)) {
			snprintf(what + strlen(what), size - strlen(what), "stop victim, ");
			stop_for_a_while(v->pid);
		} else {
			snprintf(what + strlen(what), size - strlen(what), "stop hub, ");
			stop_for_a_while(h->pid);
		}
		usleep(draw(5000));
	}
	if (!by_exit && draw(2)) {
		snprintf(what + strlen(what), size - strlen(what), "leave victim stopped, ");
		kill(v->pid, SIGSTOP);
		stopped = true;
		usleep(draw(2000));
	}
	if (leave) {
		snprintf(what + strlen(what), size - strlen(what), "hub leaves");
		say(h->line, LEAVE);
		if (!hear(h, READY) || !hear(h, DONE))
			return false;
		if (stopped && draw(2)) {
			kill(v->pid, SIGCONT);
			usleep(draw(10000));
		}
		if (!end_victim(v, false))
			return false;
	} else {
		snprintf(what + strlen(what), size - strlen(what),
			 by_exit ? "victim exits" : "victim is killed");
		if (!end_victim(v, by_exit))
			return false;
		say(h->line, DEAD);
		if (!hear(h, READY) || !hear(h, DONE))
			return false;
	}
	say(h->line, STAY);
	return true;
}

int main(int argc, char **argv)
{
	uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
	uint32_t first = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) :
				    (uint32_t)now_ms() ^ (uint32_t)getpid();
	struct actor h, b, v;
	uint32_t rounds = 0, actor_seed;
	char what[256] = "start";
	bool good;

	if (!seconds) {
		fprintf(stderr, "usage: chaos SECONDS [SEED]\n");
		return 2;
	}
	seed = first ? first : 1;
	printf("seed %u\n", first);
	actor_seed = draw(1u << 30) + 1;
	actor_start(&b, bystander, NULL);
	actor_start(&h, hub, &actor_seed);
	good = introduce(&b, &h) && hear(&b, READY) && hear(&h, READY);
	say(h.line, ROUND);
	for (uint64_t end = now_ms() + seconds * 1000; good && now_ms() < end; rounds++) {
		actor_seed = draw(1u << 30) + 1;
		actor_start(&v, victim, &actor_seed);
		say(h.line, ROUND);
		good = play_round(&h, &v, what, sizeof(what));
	}
	if (!good)
		printf("round %u: %s\n", rounds, what);
	else
		say(h.line, END);
	int status = actor_end(&h);

	kill(b.pid, SIGKILL);
	actor_end(&b);
	printf("%u rounds, %s\n", rounds, good && !status ? "all well" : "failed");
	return good && !status ? 0 : 1;
}
