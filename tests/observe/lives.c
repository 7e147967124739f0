/* SPDX-License-Identifier: MIT */
/*
 * The life of requests, as traces tell it: of each all that happens, in its order, at both ends; and that being looked at changes
 * nothing. Two processes, the initiator and the responder, are started with the test as their observer.
 */
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "local/message.h"
#include "nic/gid.h"
#include "observe/trace.h"
#include "roce/packet.h"

enum { READY = 1, GO, DONE, END };

#define SEND_ID	 0x51
#define RECV_ID	 0x52
#define FROM	 256 /* where payload is, and where it goes to, in the node's memory */
#define TO	 32768
#define SNAP	 TRACE_SNAP
#define QKEY	 0x11
#define GRH	 40
#define SKEW	 2000 /* ns between clocks of two processors, generously */
#define BATCH	 4096u
#define PATIENCE 60000 /* ms */

/* ---- What is watched ---- */

struct seen {
	struct trace_event event;
	uint64_t time;
	uint8_t *more;
	size_t bytes;
};

struct watched {
	struct trace_reader reader;
	struct seen *seen;
	size_t count, room;
};

static int listener = -1;
static char name[TRACE_NAME];

static void watch(void)
{
	listener = trace_listen(name);
	assert_true(listener >= 0);
	setenv(TRACE_VARIABLE, name, 1);
}

static void watch_no_more(void)
{
	unsetenv(TRACE_VARIABLE);
	trace_stop_listening(listener, name);
}

/* The next process that opens a device. */
static void meet(struct trace_reader *reader)
{
	struct pollfd readable = { .fd = listener, .events = POLLIN };

	while (!trace_next(listener, SNAP, reader))
		assert_int_equal(poll(&readable, 1, PATIENCE), 1);
}

static void take(struct watched *w)
{
	static struct trace_event out[BATCH];
	uint32_t count;

	while ((count = trace_read(&w->reader, out, BATCH))) {
		for (uint32_t at = 0; at < count; at += 1u + out[at].more) {
			struct seen *seen;

			if (w->count == w->room) {
				w->room = w->room ? 2 * w->room : 1024;
				w->seen = realloc(w->seen, w->room * sizeof(*w->seen));
				assert_non_null(w->seen);
			}
			seen = &w->seen[w->count++];
			memcpy(&seen->event, &out[at], sizeof(seen->event));
			seen->time = trace_time(&out[at]);
			seen->more = malloc((size_t)out[at].more * 24 + 1);
			seen->bytes = trace_more(&out[at], seen->more);
		}
	}
}

static void forget(struct watched *w)
{
	for (size_t i = 0; i < w->count; i++)
		free(w->seen[i].more);
	free(w->seen);
	trace_close(&w->reader);
}

/* Fields of an event; ANY: whatever. */
#define ANY 0xfffffffe
struct want {
	enum trace_kind kind;
	uint32_t qpn, index, opcode, flags;
};

static bool fits(const struct seen *seen, const struct want *want)
{
	const struct trace_event *event = &seen->event;

	return event->kind == want->kind && (want->qpn == ANY || event->qpn == want->qpn) &&
	       (want->index == ANY || event->index == want->index) && (want->opcode == ANY || event->opcode == want->opcode) &&
	       (want->flags == ANY || event->flags == want->flags);
}

static const struct seen *find(const struct watched *w, struct want want)
{
	for (size_t i = 0; i < w->count; i++)
		if (fits(&w->seen[i], &want))
			return &w->seen[i];
	return NULL;
}

static unsigned count_of(const struct watched *w, struct want want)
{
	unsigned count = 0;

	for (size_t i = 0; i < w->count; i++)
		count += fits(&w->seen[i], &want);
	return count;
}

/* It must be there, and not before `last`. */
static const struct seen *then(const struct watched *w, struct want want, const struct seen *last)
{
	const struct seen *seen = find(w, want);

	if (!seen)
		fail_msg("no event of kind %d, qpn 0x%x, index %u, opcode %u, flags %u", want.kind, want.qpn, want.index,
			 want.opcode, want.flags);
	if (last && seen->time + SKEW < last->time)
		fail_msg("event of kind %d comes %llu ns before kind %d", want.kind, (unsigned long long)(last->time - seen->time),
			 last->event.kind);
	return seen;
}

/* ---- The two ends ---- */

struct plan {
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	bool srq, late, events, bad_key;
	enum ibv_wc_status status;
};

struct ends {
	struct actor a, b;
	struct watched of_a, of_b;
};

static void post(struct node *node, struct ibv_qp *qp, const struct plan *plan, const struct card *other)
{
	struct ibv_sge sge = { (uintptr_t)node->buf + FROM, plan->length, plan->bad_key ? 0x1234500 : node->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = SEND_ID, .sg_list = &sge, .num_sge = 1, .opcode = plan->opcode }, *bad;
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = other->gid, .hop_limit = 1 } };

	if (plan->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = other->addr + TO;
		wr.wr.atomic.rkey = other->rkey;
		wr.wr.atomic.compare_add = 3;
	} else if (plan->type == IBV_QPT_UD) {
		wr.wr.ud.ah = ibv_create_ah(node->pd, &attr);
		CHECK(wr.wr.ud.ah);
		wr.wr.ud.remote_qpn = other->qpn;
		wr.wr.ud.remote_qkey = QKEY;
	} else {
		wr.wr.rdma.remote_addr = other->addr + TO;
		wr.wr.rdma.rkey = other->rkey;
	}
	CHECK_EQUAL(ibv_post_send(qp, &wr, &bad), 0);
	if (plan->type == IBV_QPT_UD)
		CHECK_EQUAL(ibv_destroy_ah(wr.wr.ud.ah), 0);
}

static struct link_attr patient(void)
{
	struct link_attr link = node_defaults;

	link.timeout = 18;
	link.rnr_retry = 7;
	link.min_rnr_timer = 12;
	return link;
}

static void initiate(int line, void *arg)
{
	const struct link_attr link = patient();
	const struct plan *plan = arg;
	struct ibv_qp *qp;
	struct node node;
	struct card other;

	node_open(&node);
	for (uint32_t i = 0; i < plan->length; i++)
		node.buf[FROM + i] = (uint8_t)(i * 3 + 1);
	qp = node_qp(&node, plan->type, NULL);
	node_meet(&node, qp, line, &other, &link);
	expect(line, GO);
	post(&node, qp, plan, &other);
	node_expect(node.cq, SEND_ID, plan->status);
	say(line, DONE);
	expect(line, END);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	node_close(&node);
}

static bool has_receive(const struct plan *plan)
{
	return (plan->opcode == IBV_WR_SEND || plan->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) && !plan->bad_key;
}

static void await_event(struct node *node)
{
	struct ibv_cq *cq;
	void *context;

	CHECK_EQUAL(ibv_get_cq_event(node->channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
}

static void respond(int line, void *arg)
{
	const struct link_attr link = patient();
	const struct plan *plan = arg;
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = NULL;
	struct ibv_qp *qp;
	struct node node;
	struct card other;

	node_open(&node);
	for (uint32_t i = 0; i < plan->length; i++)
		node.buf[TO + i] = (uint8_t)(i * 5 + 2);
	if (plan->srq)
		srq = ibv_create_srq(node.pd, &init);
	CHECK(!plan->srq || srq);
	qp = node_qp(&node, plan->type, srq);
	node_meet(&node, qp, line, &other, &link);
	if (plan->events)
		CHECK_EQUAL(ibv_req_notify_cq(node.cq, 0), 0);
	if (plan->late)
		expect(line, GO);
	if (has_receive(plan) && srq)
		CHECK_EQUAL(node_srq_recv(&node, srq, RECV_ID, TO, 16384), 0);
	else if (has_receive(plan))
		CHECK_EQUAL(node_recv(&node, qp, RECV_ID, TO, 16384), 0);
	if (!plan->late)
		say(line, READY);
	if (plan->events)
		await_event(&node);
	if (has_receive(plan))
		node_expect(node.cq, RECV_ID, IBV_WC_SUCCESS);
	if (plan->opcode == IBV_WR_SEND && has_receive(plan)) {
		for (uint32_t i = 0; i < plan->length; i++)
			CHECK_EQUAL(node.buf[TO + (plan->type == IBV_QPT_UD ? GRH : 0) + i], (uint8_t)(i * 3 + 1));
	}
	say(line, DONE);
	expect(line, END);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	if (srq)
		CHECK_EQUAL(ibv_destroy_srq(srq), 0);
	node_close(&node);
}

static void hear(struct actor *actor, uint32_t word)
{
	uint32_t got = 0;

	assert_true(line_receive(actor->line, &got, sizeof(got)));
	assert_int_equal(got, word);
}

static void begin(struct ends *ends, const struct plan *plan)
{
	struct trace_reader reader;

	memset(ends, 0, sizeof(*ends));
	watch();
	actor_start(&ends->a, initiate, (void *)plan);
	actor_start(&ends->b, respond, (void *)plan);
	for (int i = 0; i < 2; i++) {
		meet(&reader);
		assert_true(reader.ring->pid == (uint32_t)ends->a.pid || reader.ring->pid == (uint32_t)ends->b.pid);
		(reader.ring->pid == (uint32_t)ends->a.pid ? &ends->of_a : &ends->of_b)->reader = reader;
	}
	assert_true(ends->of_a.reader.ring && ends->of_b.reader.ring);
	assert_true(introduce(&ends->a, &ends->b));
}

static void finish(struct ends *ends)
{
	hear(&ends->a, DONE);
	hear(&ends->b, DONE);
	say(ends->a.line, END);
	say(ends->b.line, END);
	assert_int_equal(actor_end(&ends->a), 0);
	assert_int_equal(actor_end(&ends->b), 0);
	take(&ends->of_a);
	take(&ends->of_b);
	assert_true(ends->of_a.reader.ended && ends->of_b.reader.ended);
	assert_int_equal(ends->of_a.reader.dropped, 0);
	assert_int_equal(ends->of_b.reader.dropped, 0);
	watch_no_more();
}

static void run(struct ends *ends, const struct plan *plan)
{
	begin(ends, plan);
	hear(&ends->b, READY);
	say(ends->a.line, GO);
	finish(ends);
}

static void done(struct ends *ends)
{
	forget(&ends->of_a);
	forget(&ends->of_b);
}

/* ---- What must be seen ---- */

/* Who writes what happens at the responder. */
static struct watched *far_end(struct ends *ends)
{
	return over_the_wire() ? &ends->of_b : &ends->of_a;
}

static void check_message(struct ends *ends, const struct plan *plan)
{
	const struct seen *seen = then(&ends->of_a, (struct want){ TRACE_MESSAGE, ends->a.qpn, ANY, plan->opcode, ANY }, NULL);
	struct trace_message about;
	bool reads = plan->opcode == IBV_WR_RDMA_READ, atomic = plan->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	assert_int_equal(seen->event.length, plan->length);
	assert_true(seen->bytes >= sizeof(about));
	memcpy(&about, seen->more, sizeof(about));
	assert_int_equal(about.sq_index, 0);
	assert_int_equal(about.dest_qpn, ends->b.qpn);
	assert_int_equal(about.kept, plan->length < SNAP ? plan->length : SNAP);
	for (uint32_t i = 0; i < about.kept; i++)
		assert_int_equal(seen->more[sizeof(about) + i], (uint8_t)(reads || atomic ? i * 5 + 2 : i * 3 + 1));
	if (atomic)
		assert_int_equal(about.compare_add, 3);
}

/* Packets of a message and of what answers it; the first that left, and the last that arrived there. */
static void check_packets(struct ends *ends, const struct plan *plan)
{
	const struct seen *out = then(&ends->of_a, (struct want){ TRACE_PACKET_OUT, ends->a.qpn, ANY, ANY, ANY }, NULL);
	const struct seen *in = then(&ends->of_b, (struct want){ TRACE_PACKET_IN, ends->b.qpn, out->event.index, ANY, ANY }, out);
	struct roce_packet packet;
	struct trace_packet about;

	memcpy(&about, out->more, sizeof(about));
	assert_int_equal(about.kept, out->event.length);
	assert_true(roce_parse(out->more + sizeof(about), about.kept - ROCE_ICRC_BYTES, &packet));
	assert_int_equal(packet.opcode, out->event.opcode);
	assert_int_equal(packet.psn, out->event.index);
	assert_int_equal(packet.qpn, ends->b.qpn);
	assert_int_equal(in->event.opcode, out->event.opcode);
	assert_int_equal(in->event.length, out->event.length);
	/* The same packet: but that the kernel may number it. */
	assert_memory_equal(in->more + sizeof(about), out->more + sizeof(about), about.kept - ROCE_ICRC_BYTES);
	if (plan->type != IBV_QPT_RC)
		return;
	in = then(&ends->of_a, (struct want){ TRACE_PACKET_IN, ends->a.qpn, ANY, ANY, ANY }, in);
	then(&ends->of_b, (struct want){ TRACE_PACKET_OUT, ends->b.qpn, ANY, in->event.opcode, ANY }, out);
}

static void check_initiator(struct ends *ends, const struct plan *plan)
{
	const struct watched *a = &ends->of_a;
	const uint32_t qpn = ends->a.qpn;
	const struct seen *posted = then(a, (struct want){ TRACE_POST_SEND, qpn, 0, plan->opcode, ANY }, NULL), *last;

	assert_int_equal(posted->event.arg, SEND_ID);
	assert_int_equal(posted->event.length, plan->length);
	assert_true(posted->event.flags & IBV_SEND_SIGNALED);
	last = then(a, (struct want){ TRACE_RING, qpn, 0, ANY, ANY }, posted);
	assert_int_equal(last->event.length, 1);
	last = then(a, (struct want){ TRACE_SEEN, qpn, 0, ANY, ANY }, last);
	if (plan->status == IBV_WC_SUCCESS)
		last = then(a, (struct want){ TRACE_GATHERED, qpn, 0, ANY, ANY }, last);
	last = then(a, (struct want){ TRACE_CQE, qpn, 0, plan->status, 0 }, last);
	last = then(a, (struct want){ TRACE_POLLED, qpn, 0, plan->status, 0 }, last);
	assert_int_equal(last->event.arg, SEND_ID);
	assert_int_equal(count_of(a, (struct want){ TRACE_CQE, qpn, ANY, ANY, 0 }), 1);
	assert_int_equal(count_of(a, (struct want){ TRACE_POLLED, qpn, ANY, ANY, 0 }), 1);
}

static void check_responder(struct ends *ends, const struct plan *plan)
{
	const uint8_t flags = TRACE_CQE_RECV | (plan->srq ? TRACE_CQE_SRQ : 0);
	const struct watched *b = &ends->of_b, *there = far_end(ends);
	const struct seen *posted =
		then(b, (struct want){ TRACE_POST_RECV, plan->srq ? ANY : ends->b.qpn, ANY, plan->srq, ANY }, NULL);
	const struct seen *sent = find(&ends->of_a, (struct want){ TRACE_POST_SEND, ends->a.qpn, 0, ANY, ANY }), *last;
	const uint32_t slot = posted->event.index;

	assert_int_equal(posted->event.arg, RECV_ID);
	assert_int_equal(posted->event.length, 16384);
	last = then(there, (struct want){ TRACE_TAKEN, ends->b.qpn, slot, plan->srq, ANY }, sent);
	if (!over_the_wire())
		assert_int_equal(last->event.arg, (uint64_t)ends->a.qpn << 32);
	last = then(there, (struct want){ TRACE_PLACED, ends->b.qpn, slot, plan->srq, ANY }, last);
	last = then(there, (struct want){ TRACE_CQE, ends->b.qpn, slot, IBV_WC_SUCCESS, flags }, last);
	assert_int_equal(last->event.length, plan->length + (plan->type == IBV_QPT_UD ? GRH : 0));
	if (plan->events)
		last = then(b, (struct want){ TRACE_AWOKE, ANY, ANY, ANY, ANY }, last);
	last = then(b, (struct want){ TRACE_POLLED, ends->b.qpn, slot, IBV_WC_SUCCESS, flags }, last);
	assert_int_equal(last->event.arg, RECV_ID);
}

static void check_life(const struct plan *plan)
{
	struct ends ends;

	run(&ends, plan);
	check_initiator(&ends, plan);
	if (has_receive(plan))
		check_responder(&ends, plan);
	else if (plan->status == IBV_WC_SUCCESS)
		then(plan->opcode == IBV_WR_RDMA_WRITE ? far_end(&ends) : &ends.of_a,
		     (struct want){ TRACE_PLACED, ends.b.qpn, ~0u, ANY, ANY },
		     find(&ends.of_a, (struct want){ TRACE_SEEN, ends.a.qpn, 0, ANY, ANY }));
	if (plan->status == IBV_WC_SUCCESS && over_the_wire())
		check_packets(&ends, plan);
	else if (plan->status == IBV_WC_SUCCESS)
		check_message(&ends, plan);
	done(&ends);
}

#define LIFE(what, ...)                                          \
	static void what(void **state)                           \
	{                                                        \
		static const struct plan plan = { __VA_ARGS__ }; \
                                                                 \
		(void)state;                                     \
		check_life(&plan);                               \
	}

LIFE(send_lives_at_both_ends, .type = IBV_QPT_RC, .opcode = IBV_WR_SEND, .length = 1000)
LIFE(long_send_is_kept_in_part, .type = IBV_QPT_RC, .opcode = IBV_WR_SEND, .length = 16000)
LIFE(send_over_uc_lives_at_both_ends, .type = IBV_QPT_UC, .opcode = IBV_WR_SEND, .length = 100)
LIFE(datagram_lives_at_both_ends, .type = IBV_QPT_UD, .opcode = IBV_WR_SEND, .length = 100)
LIFE(send_to_a_shared_queue_lives_at_both_ends, .type = IBV_QPT_RC, .opcode = IBV_WR_SEND, .length = 100, .srq = true)
LIFE(datagram_to_a_shared_queue_lives_at_both_ends, .type = IBV_QPT_UD, .opcode = IBV_WR_SEND, .length = 100, .srq = true)
LIFE(write_lives, .type = IBV_QPT_RC, .opcode = IBV_WR_RDMA_WRITE, .length = 100)
LIFE(write_with_immediate_lives_at_both_ends, .type = IBV_QPT_RC, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .length = 100)
LIFE(read_lives, .type = IBV_QPT_RC, .opcode = IBV_WR_RDMA_READ, .length = 3000)
LIFE(atomic_lives, .type = IBV_QPT_RC, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .length = 8)

static void event_is_seen_from_arming_to_waking(void **state)
{
	static const struct plan plan = { .type = IBV_QPT_RC, .opcode = IBV_WR_SEND, .length = 100, .events = true };
	const struct seen *armed, *fired;
	struct ends ends;

	(void)state;
	run(&ends, &plan);
	check_responder(&ends, &plan);
	armed = then(&ends.of_b, (struct want){ TRACE_ARMED, ANY, ANY, 0, ANY }, NULL);
	fired = then(far_end(&ends), (struct want){ TRACE_FIRED, armed->event.qpn, ANY, ANY, ANY }, armed);
	assert_int_equal((uint32_t)fired->event.arg, ends.b.qpn);
	then(&ends.of_b, (struct want){ TRACE_AWOKE, armed->event.qpn, ANY, ANY, ANY }, fired);
	done(&ends);
}

static void receiver_that_is_late_is_seen_to_be_waited_for(void **state)
{
	static const struct plan plan = { .type = IBV_QPT_RC, .opcode = IBV_WR_SEND, .length = 100, .late = true };
	struct want retry = { TRACE_RETRY, ANY, 0, TRACE_RETRY_RNR, ANY };
	const struct seen *last;
	struct ends ends;

	(void)state;
	begin(&ends, &plan);
	say(ends.a.line, GO);
	while (count_of(&ends.of_a, retry) < 2) {
		usleep(1000);
		take(&ends.of_a);
	}
	say(ends.b.line, GO);
	finish(&ends);
	check_initiator(&ends, &plan);
	check_responder(&ends, &plan);
	last = then(&ends.of_a, retry, find(&ends.of_a, (struct want){ TRACE_SEEN, ends.a.qpn, 0, ANY, ANY }));
	assert_int_equal(last->event.length, 1);
	then(far_end(&ends), (struct want){ TRACE_TAKEN, ends.b.qpn, ANY, ANY, ANY }, last);
	done(&ends);
}

static void failure_comes_with_its_cause(void **state)
{
	static const struct plan plan = {
		.type = IBV_QPT_RC, .opcode = IBV_WR_SEND, .length = 100, .bad_key = true, .status = IBV_WC_LOC_PROT_ERR
	};
	const struct seen *cause;
	struct ends ends;

	(void)state;
	run(&ends, &plan);
	check_initiator(&ends, &plan);
	cause = then(&ends.of_a, (struct want){ TRACE_CAUSE, ends.a.qpn, ANY, ANY, ANY }, NULL);
	assert_int_equal(cause->event.length, IBV_WC_LOC_PROT_ERR);
	then(&ends.of_a, (struct want){ TRACE_CQE, ends.a.qpn, 0, IBV_WC_LOC_PROT_ERR, ANY }, cause);
	then(&ends.of_a, (struct want){ TRACE_QP, ends.a.qpn, ANY, IBV_QPS_ERR, ANY }, cause);
	done(&ends);
}

static void objects_are_told_from_their_making_to_their_end(void **state)
{
	static const struct plan plan = { .type = IBV_QPT_RC, .opcode = IBV_WR_SEND, .length = 100, .srq = true };
	const struct watched *b;
	const struct seen *last, *rtr;
	struct trace_qp about;
	struct ends ends;

	(void)state;
	run(&ends, &plan);
	b = &ends.of_b;
	last = then(b, (struct want){ TRACE_CQ, ANY, ANY, ANY, ANY }, NULL);
	assert_true(last->event.length >= 4 * NODE_DEPTH);
	last = then(b, (struct want){ TRACE_SRQ, ANY, ANY, ANY, ANY }, last);
	assert_true(last->event.length >= 8);
	last = then(b, (struct want){ TRACE_QP, ends.b.qpn, ANY, IBV_QPS_RESET, ANY }, last);
	last = then(b, (struct want){ TRACE_QP, ends.b.qpn, ANY, IBV_QPS_INIT, ANY }, last);
	rtr = then(b, (struct want){ TRACE_QP, ends.b.qpn, ANY, IBV_QPS_RTR, ANY }, last);
	last = then(b, (struct want){ TRACE_QP, ends.b.qpn, ANY, IBV_QPS_RTS, ANY }, rtr);
	then(b, (struct want){ TRACE_QP, ends.b.qpn, ANY, 255, ANY }, last);
	assert_int_equal(count_of(b, (struct want){ TRACE_QP, ends.b.qpn, ANY, ANY, ANY }), 5);
	assert_int_equal(count_of(b, (struct want){ TRACE_CQ, ANY, ANY, ANY, ANY }), 2);
	assert_int_equal(count_of(b, (struct want){ TRACE_SRQ, ANY, ANY, ANY, ANY }), 2);
	assert_int_equal(b->seen[b->count - 1].event.kind == TRACE_CQ || b->seen[b->count - 1].event.kind == TRACE_SRQ, true);
	memcpy(&about, rtr->more, sizeof(about));
	assert_int_equal(about.type, IBV_QPT_RC);
	assert_int_equal(about.dest_qpn, ends.a.qpn);
	assert_int_equal(about.path_mtu, 128u << node_defaults.mtu);
	assert_int_equal(about.max_send_wr, NODE_DEPTH);
	assert_int_equal(about.srq, find(b, (struct want){ TRACE_SRQ, ANY, ANY, ANY, ANY })->event.qpn);
	assert_int_equal(about.wire, over_the_wire());
	assert_false(gid_is_zero((const union ibv_gid *)(const void *)about.sgid));
	done(&ends);
}

/* ---- One process ---- */

static void flush_some(int line, void *arg)
{
	const struct link_attr link = patient();
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct node node;
	struct ibv_qp *a, *b;

	(void)arg;
	node_open(&node);
	a = node_qp(&node, IBV_QPT_RC, NULL);
	b = node_qp(&node, IBV_QPT_RC, NULL);
	node_connect_pair(&node, a, b, &link);
	say(line, a->qp_num);
	CHECK_EQUAL(node_recv(&node, a, 7, 0, 8), 0);
	CHECK_EQUAL(ibv_modify_qp(a, &attr, IBV_QP_STATE), 0);
	CHECK_EQUAL(node_send(&node, a, 8, 0, 8), 0);
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc;

		CHECK(node_poll(node.cq, &wc, TIMEOUT_MS));
		CHECK_EQUAL(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	CHECK_EQUAL(ibv_destroy_qp(a), 0);
	CHECK_EQUAL(ibv_destroy_qp(b), 0);
	node_close(&node);
}

static void flushed_requests_are_seen_to_be(void **state)
{
	struct watched w = { 0 };
	struct actor actor;
	uint32_t qpn;

	(void)state;
	watch();
	actor_start(&actor, flush_some, NULL);
	meet(&w.reader);
	assert_true(line_receive(actor.line, &qpn, sizeof(qpn)));
	assert_int_equal(actor_end(&actor), 0);
	take(&w);
	then(&w, (struct want){ TRACE_CQE, qpn, 0, IBV_WC_WR_FLUSH_ERR, 0 },
	     then(&w, (struct want){ TRACE_QP, qpn, ANY, IBV_QPS_ERR, ANY }, NULL));
	then(&w, (struct want){ TRACE_POLLED, qpn, 0, IBV_WC_WR_FLUSH_ERR, 0 }, NULL);
	then(&w, (struct want){ TRACE_CQE, qpn, ANY, IBV_WC_WR_FLUSH_ERR, TRACE_CQE_RECV }, NULL);
	then(&w, (struct want){ TRACE_POLLED, qpn, ANY, IBV_WC_WR_FLUSH_ERR, TRACE_CQE_RECV }, NULL);
	assert_null(find(&w, (struct want){ TRACE_SEEN, qpn, ANY, ANY, ANY }));
	watch_no_more();
	forget(&w);
}

/* Sends to itself, one after the other, as many as it is told, until that is 0; checks all that arrives. */
static void send_to_itself(int line, void *arg)
{
	const struct link_attr link = patient();
	struct ibv_qp *a, *b;
	uint32_t count, number = 0;
	struct node node;

	(void)arg;
	node_open(&node);
	a = node_qp(&node, IBV_QPT_RC, NULL);
	b = node_qp(&node, IBV_QPT_RC, NULL);
	node_connect_pair(&node, a, b, &link);
	say(line, a->qp_num);
	for (;;) {
		CHECK(line_receive(line, &count, sizeof(count)));
		for (uint32_t i = 0; i < count; i++) {
			memcpy(node.buf, &number, sizeof(number));
			CHECK_EQUAL(node_recv(&node, b, RECV_ID, TO, 8), 0);
			CHECK_EQUAL(node_send(&node, a, SEND_ID, 0, 8), 0);
			for (int n = 0; n < 2; n++) {
				struct ibv_wc wc;

				CHECK(node_poll(node.cq, &wc, TIMEOUT_MS));
				CHECK_EQUAL(wc.status, IBV_WC_SUCCESS);
				CHECK(wc.wr_id == RECV_ID || wc.wr_id == SEND_ID);
			}
			CHECK(!memcmp(node.buf + TO, &number, sizeof(number)));
			number++;
		}
		say(line, DONE);
		if (!count)
			break;
	}
	CHECK_EQUAL(ibv_destroy_qp(a), 0);
	CHECK_EQUAL(ibv_destroy_qp(b), 0);
	node_close(&node);
}

static void let_send(struct actor *actor, uint32_t count)
{
	say(actor->line, count);
	hear(actor, DONE);
}

static void running_process_is_asked_and_left(void **state)
{
	const struct seen *last;
	struct trace_ring *kept;
	struct actor actor;
	uint32_t qpn;
	uint64_t next;
	int ring, copy, connection, other;

	(void)state;
	actor_start(&actor, send_to_itself, NULL);
	assert_true(line_receive(actor.line, &qpn, sizeof(qpn)));
	let_send(&actor, 10);
	for (int round = 0; round < 2; round++) {
		struct watched w = { 0 };

		/* The one before may not have been seen to go yet; and a process without CPU is slow to answer. */
		do
			connection = message_ask_trace(qpn >> NIC_QPN_INDEX_BITS, SNAP, &ring);
		while (connection < 0 && (errno == EBUSY || errno == EAGAIN));
		assert_true(connection >= 0);
		copy = fcntl(ring, F_DUPFD_CLOEXEC, 0);
		assert_int_equal(trace_open(&w.reader, ring, connection), 0);
		errno = 0;
		assert_int_equal(message_ask_trace(qpn >> NIC_QPN_INDEX_BITS, SNAP, &other), -1);
		assert_int_equal(errno, EBUSY);
		let_send(&actor, 100);
		take(&w);
		assert_int_equal(w.reader.dropped, 0);
		/* What was there before, and then what happens. */
		assert_int_equal(w.seen[0].event.kind, TRACE_CQ);
		last = then(&w, (struct want){ TRACE_QP, qpn, ANY, IBV_QPS_RTS, ANY }, NULL);
		last = then(&w, (struct want){ TRACE_POST_SEND, qpn, 10 + 100 * (uint32_t)round, ANY, ANY }, last);
		last = then(&w, (struct want){ TRACE_POLLED, qpn, 109 + 100 * (uint32_t)round, ANY, ANY }, last);
		assert_int_equal(count_of(&w, (struct want){ TRACE_POST_SEND, qpn, ANY, ANY, ANY }), 100);
		assert_int_equal(count_of(&w, (struct want){ TRACE_POST_RECV, ANY, ANY, ANY, ANY }), 100);
		forget(&w);
	}
	/* It stops writing. */
	kept = mmap(NULL, sizeof(*kept), PROT_READ, MAP_SHARED, copy, 0);
	assert_true(kept != MAP_FAILED);
	do {
		next = atomic_load(&kept->next);
		let_send(&actor, 10);
	} while (atomic_load(&kept->next) != next);
	munmap(kept, sizeof(*kept));
	close(copy);
	let_send(&actor, 0);
	assert_int_equal(actor_end(&actor), 0);
}

static void nobody_answers_for_a_slot_that_is_free(void **state)
{
	int ring;

	(void)state;
	assert_int_equal(message_ask_trace(NIC_SLOTS + 7, SNAP, &ring), -1);
	assert_int_equal(errno, ECONNREFUSED);
}

/* Forks, and sends to itself in both processes. */
static void fork_and_send(int line, void *arg)
{
	struct node node;
	int status;
	pid_t child;

	(void)arg;
	node_open(&node);
	say(line, READY);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		send_to_itself(line, NULL);
		_exit(0);
	}
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	CHECK_EQUAL(status, 0);
	node_close(&node);
}

static void forked_child_has_a_trace_of_its_own(void **state)
{
	struct watched parent = { 0 }, child = { 0 };
	struct actor actor;
	uint32_t qpn;

	(void)state;
#ifdef __SANITIZE_THREAD__
	printf("skipped: ThreadSanitizer does not follow a fork of several threads into a child that starts one\n");
	skip();
#endif
	watch();
	actor_start(&actor, fork_and_send, NULL);
	meet(&parent.reader);
	hear(&actor, READY);
	meet(&child.reader);
	assert_int_equal(parent.reader.ring->pid, actor.pid);
	assert_int_not_equal(child.reader.ring->pid, actor.pid);
	assert_true(line_receive(actor.line, &qpn, sizeof(qpn)));
	let_send(&actor, 10);
	let_send(&actor, 0);
	assert_int_equal(actor_end(&actor), 0);
	take(&parent);
	take(&child);
	assert_true(parent.reader.ended && child.reader.ended);
	assert_int_equal(count_of(&child, (struct want){ TRACE_POST_SEND, qpn, ANY, ANY, ANY }), 10);
	assert_int_equal(count_of(&parent, (struct want){ TRACE_POST_SEND, ANY, ANY, ANY, ANY }), 0);
	watch_no_more();
	forget(&parent);
	forget(&child);
}

/* All that a process did before it was killed is there. */
static void killed_process_leaves_its_trace(void **state)
{
	struct watched w = { 0 };
	struct actor actor;
	uint32_t qpn;

	(void)state;
	watch();
	actor_start(&actor, send_to_itself, NULL);
	meet(&w.reader);
	assert_true(line_receive(actor.line, &qpn, sizeof(qpn)));
	let_send(&actor, 10);
	kill(actor.pid, SIGKILL);
	assert_int_equal(actor_end(&actor), 128 + SIGKILL);
	while (!w.reader.ended)
		take(&w);
	then(&w, (struct want){ TRACE_POLLED, qpn, 9, ANY, ANY }, NULL);
	watch_no_more();
	forget(&w);
}

static void program_runs_without_its_observer(void **state)
{
	struct actor actor;
	uint32_t qpn;

	(void)state;
	setenv(TRACE_VARIABLE, "/nowhere/observer", 1);
	actor_start(&actor, send_to_itself, NULL);
	assert_true(line_receive(actor.line, &qpn, sizeof(qpn)));
	let_send(&actor, 10);
	let_send(&actor, 0);
	assert_int_equal(actor_end(&actor), 0);
	unsetenv(TRACE_VARIABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_lives_at_both_ends),
		cmocka_unit_test(long_send_is_kept_in_part),
		cmocka_unit_test(send_over_uc_lives_at_both_ends),
		cmocka_unit_test(datagram_lives_at_both_ends),
		cmocka_unit_test(send_to_a_shared_queue_lives_at_both_ends),
		cmocka_unit_test(datagram_to_a_shared_queue_lives_at_both_ends),
		cmocka_unit_test(write_lives),
		cmocka_unit_test(write_with_immediate_lives_at_both_ends),
		cmocka_unit_test(read_lives),
		cmocka_unit_test(atomic_lives),
		cmocka_unit_test(event_is_seen_from_arming_to_waking),
		cmocka_unit_test(receiver_that_is_late_is_seen_to_be_waited_for),
		cmocka_unit_test(failure_comes_with_its_cause),
		cmocka_unit_test(objects_are_told_from_their_making_to_their_end),
		cmocka_unit_test(flushed_requests_are_seen_to_be),
		cmocka_unit_test(running_process_is_asked_and_left),
		cmocka_unit_test(nobody_answers_for_a_slot_that_is_free),
		cmocka_unit_test(forked_child_has_a_trace_of_its_own),
		cmocka_unit_test(killed_process_leaves_its_trace),
		cmocka_unit_test(program_runs_without_its_observer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
