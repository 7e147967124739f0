/* SPDX-License-Identifier: MIT */
/*
 * Death and standstill of one end, at known moments: what the other end sees, how soon, and what is
 * left behind. Random moments are chaos.c's. /
 */
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

/* Retries for 4 * 134 ms. */
static const struct link_attr impatient = {
	.mtu = IBV_MTU_1024,
	.timeout = 15,
	.retry_cnt = 3,
	.rnr_retry = 3,
	.min_rnr_timer = 12,
	.rd_atomic = 4,
	.dest_rd_atomic = 4,
};
#define BOUND_MS 15000

/* Waits for receives as long as the other end lives. */
static const struct link_attr patient = {
	.mtu = IBV_MTU_1024,
	.timeout = 15,
	.retry_cnt = 3,
	.rnr_retry = 7,
	.min_rnr_timer = 12,
	.rd_atomic = 4,
	.dest_rd_atomic = 4,
};

enum word { READY = 1, GO, DONE, AGAIN };

static void quiet(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
}

/* Stops a process and waits until it stands. */
static void stop(pid_t pid)
{
	int status;

	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
}

static void hear(struct actor *actor, uint32_t word)
{
	uint32_t heard = 0;

	assert_true(line_receive(actor->line, &heard, sizeof(heard)));
	assert_int_equal(heard, word);
}

/* Keeps its RQ full and does what it is told; ends when the test closes the line. */
static void serve(int line, void *arg)
{
	enum ibv_qp_type type = arg ? *(enum ibv_qp_type *)arg : IBV_QPT_RC;
	struct node node;
	struct ibv_qp *qp;
	struct card other;

	node_open(&node);
	qp = node_qp(&node, type, NULL);
	for (int i = 0; i < 16; i++)
		CHECK_EQUAL(node_recv(&node, qp, 100, 4096, 64), 0);
	node_meet(&node, qp, line, &other, &impatient);
	say(line, READY);
	for (;;) {
		struct pollfd readable = { .fd = line, .events = POLLIN };
		struct ibv_wc wc;

		if (poll(&readable, 1, 0) == 1)
			exit(0);
		if (ibv_poll_cq(node.cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)
			CHECK_EQUAL(node_recv(&node, qp, 100, 4096, 64), 0);
	}
}

static enum ibv_wc_status wait_status(struct node *node, uint64_t wr_id, uint64_t bound_ms)
{
	struct ibv_wc wc;

	CHECK(node_poll(node->cq, &wc, (uint32_t)bound_ms));
	CHECK_EQUAL(wc.wr_id, wr_id);
	return wc.status;
}

struct ask {
	enum ibv_wr_opcode opcode;
	uint32_t length;
};

static int post_ask(struct node *node, struct ibv_qp *qp, const struct ask *ask, uint64_t wr_id,
		    const struct card *other)
{
	if (ask->opcode == IBV_WR_SEND)
		return node_send(node, qp, wr_id, 0, ask->length);
	return node_rdma(node, qp, wr_id, ask->opcode, 0, ask->length, other->addr + 8192,
			 other->rkey);
}

/* Works until it fails, which must be by retries running out; all behind it is flushed. Then
 * everything is as before. */
static void work_until_it_fails(int line, void *arg)
{
	const struct ask *ask = arg;
	struct node node;
	struct ibv_qp *qp;
	struct card other;
	unsigned fds, maps;

	node_open(&node);
	fds = count_fds();
	maps = count_maps();
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	node_meet(&node, qp, line, &other, &patient);
	say(line, READY);
	for (bool failed = false; !failed;) {
		for (uint64_t i = 0; i < 4; i++)
			CHECK_EQUAL(post_ask(&node, qp, ask, i, &other), 0);
		for (uint64_t i = 0; i < 4; i++) {
			enum ibv_wc_status status = wait_status(&node, i, BOUND_MS);

			if (failed)
				CHECK_EQUAL(status, IBV_WC_WR_FLUSH_ERR);
			else if (status != IBV_WC_SUCCESS)
				CHECK_EQUAL(status, IBV_WC_RETRY_EXC_ERR);
			failed |= status != IBV_WC_SUCCESS;
		}
	}
	CHECK_EQUAL(node_state(qp), IBV_QPS_ERR);
	say(line, DONE);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	/* The helper lets go of the dead process. */
	for (uint64_t end = now_ms() + BOUND_MS; count_maps() != maps || count_fds() != fds;
	     usleep(1000))
		CHECK(now_ms() < end);
	/* A new process can be connected to. */
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	node_meet(&node, qp, line, &other, &patient);
	CHECK_EQUAL(post_ask(&node, qp, ask, 9, &other), 0);
	node_expect(node.cq, 9, IBV_WC_SUCCESS);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	node_close(&node);
}

static const struct ask asks[] = {
	{ IBV_WR_SEND, 64 },
	{ IBV_WR_RDMA_WRITE, 20000 },
	{ IBV_WR_RDMA_READ, 20000 },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, 8 },
};
#define ASKS (sizeof(asks) / sizeof(asks[0]))

static void end_of_the_server(void (*end)(struct actor *server))
{
	for (size_t i = 0; i < ASKS; i++) {
		struct actor client, server;

		actor_start(&server, serve, NULL);
		actor_start(&client, work_until_it_fails, (void *)&asks[i]);
		assert_true(introduce(&client, &server));
		hear(&client, READY);
		hear(&server, READY);
		usleep(20000);
		end(&server);
		assert_int_not_equal(slot_socket(server.qpn), server.slot_socket);
		hear(&client, DONE);
		actor_start(&server, serve, NULL);
		assert_true(introduce(&client, &server));
		assert_int_equal(actor_end(&client), 0);
		say(server.line, GO);
		assert_int_equal(actor_end(&server), 0);
	}
}

static void end_by_sigkill(struct actor *server)
{
	quiet(server->pid);
	close(server->line);
}

static void end_by_exit(struct actor *server)
{
	say(server->line, GO);
	assert_int_equal(actor_end(server), 0);
}

static void killed_peer_fails_what_is_sent_to_it_in_time(void **state)
{
	(void)state;
	end_of_the_server(end_by_sigkill);
}

static void exited_peer_fails_what_is_sent_to_it_in_time(void **state)
{
	(void)state;
	end_of_the_server(end_by_exit);
}

/* Posts its receives, and says what became of them once the sender is dead. */
static void receive_from_one_who_dies(int line, void *arg)
{
	struct node node;
	struct ibv_qp *qp;
	struct card other;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;
	int received = 0, flushed = 0;

	(void)arg;
	node_open(&node);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	for (int i = 0; i < NODE_DEPTH; i++)
		CHECK_EQUAL(node_recv(&node, qp, 100, 4096, 64), 0);
	node_meet(&node, qp, line, &other, &impatient);
	say(line, READY);
	expect(line, GO);
	/* A responder hears of nothing, as on the wire. */
	CHECK_EQUAL(node_state(qp), IBV_QPS_RTS);
	CHECK_EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	while (received + flushed < NODE_DEPTH) {
		CHECK(node_poll(node.cq, &wc, BOUND_MS));
		CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
		received += wc.status == IBV_WC_SUCCESS;
		flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
	}
	CHECK(!node_poll(node.cq, &wc, 20));
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	node_close(&node);
}

static void send_without_end(int line, void *arg)
{
	struct node node;
	struct ibv_qp *qp;
	struct card other;

	(void)arg;
	node_open(&node);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	node_meet(&node, qp, line, &other, &node_defaults);
	say(line, READY);
	for (;;) {
		struct ibv_wc wc;

		node_send(&node, qp, 1, 0, 64);
		ibv_poll_cq(node.cq, 1, &wc);
	}
}

static void killed_sender_leaves_each_receive_completed_once(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		struct actor sender, receiver;

		actor_start(&receiver, receive_from_one_who_dies, NULL);
		actor_start(&sender, send_without_end, NULL);
		assert_true(introduce(&sender, &receiver));
		hear(&sender, READY);
		hear(&receiver, READY);
		usleep((useconds_t)(round * 37 % 100));
		end_by_sigkill(&sender);
		say(receiver.line, GO);
		assert_int_equal(actor_end(&receiver), 0);
	}
}

/* Whether a process can reach another's memory here. */
static bool has_cma(void)
{
	int from = 1, to = 0;
	struct iovec local = { .iov_base = &to, .iov_len = sizeof(to) },
		     remote = { .iov_base = &from, .iov_len = sizeof(from) };

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == sizeof(to);
}

/* Whether a peer's memory is reached without the peer. */
static bool reaches_memory(const struct node *node)
{
	return !over_the_wire() && (is_shared(node->buf) || has_cma());
}

/* The target does nothing at all. What needs its helper then fails, in time: atomics, and all where
 * CMA is refused; over the wire everything. */
static void work_on_a_stopped_process(int line, void *arg)
{
	struct node node;
	struct ibv_qp *qp;
	struct card other;
	const struct ask *ask = arg;

	node_open(&node);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	node_meet(&node, qp, line, &other, &impatient);
	CHECK_EQUAL(post_ask(&node, qp, ask, 1, &other), 0);
	node_expect(node.cq, 1, IBV_WC_SUCCESS);
	say(line, READY);
	expect(line, GO);
	if (ask->opcode == IBV_WR_SEND && reaches_memory(&node)) {
		/* As far as there are receives, then it is not ready. */
		for (uint64_t i = 0; i < 20; i++)
			CHECK_EQUAL(post_ask(&node, qp, ask, i, &other), 0);
		for (uint64_t i = 0, done = 0; i < 20; i++) {
			enum ibv_wc_status status = wait_status(&node, i, BOUND_MS);

			done += status == IBV_WC_SUCCESS;
			/* It may have stopped before it posted the first one's receive anew. */
			if (i < 15)
				CHECK_EQUAL(status, IBV_WC_SUCCESS);
			else if (i == done)
				CHECK_EQUAL(status, IBV_WC_RNR_RETRY_EXC_ERR);
			else if (i > done)
				CHECK_EQUAL(status, IBV_WC_WR_FLUSH_ERR);
		}
	} else {
		for (uint64_t i = 0; i < 8; i++)
			CHECK_EQUAL(post_ask(&node, qp, ask, i, &other), 0);
		for (uint64_t i = 0; i < 8; i++) {
			enum ibv_wc_status status = wait_status(&node, i, BOUND_MS);

			if (!reaches_memory(&node) ||
			    (ask->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && !is_shared(node.buf)))
				CHECK_EQUAL(status, i ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
			else
				CHECK_EQUAL(status, IBV_WC_SUCCESS);
		}
	}
	say(line, DONE);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	node_close(&node);
}

static void stopped_peer_is_written_read_and_sent_to(void **state)
{
	(void)state;
	for (size_t i = 0; i < ASKS; i++) {
		struct actor client, server;

		actor_start(&server, serve, NULL);
		actor_start(&client, work_on_a_stopped_process, (void *)&asks[i]);
		assert_true(introduce(&client, &server));
		hear(&client, READY);
		hear(&server, READY);
		stop(server.pid);
		say(client.line, GO);
		hear(&client, DONE);
		assert_int_equal(actor_end(&client), 0);
		kill(server.pid, SIGCONT);
		say(server.line, GO);
		assert_int_equal(actor_end(&server), 0);
	}
}

/* One who is stopped for less than its peer's patience, again and again, misses nothing. */
static void work_beside_standstill(int line, void *arg)
{
	struct link_attr link = patient;
	const struct ask *ask = arg;
	struct node node;
	struct ibv_qp *qp;
	struct card other;

	link.timeout = 17; /* 0.5 s */
	link.retry_cnt = 7;
	node_open(&node);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	node_meet(&node, qp, line, &other, &link);
	say(line, READY);
	for (struct pollfd told = { .fd = line, .events = POLLIN }; poll(&told, 1, 0) != 1;) {
		CHECK_EQUAL(post_ask(&node, qp, ask, 1, &other), 0);
		CHECK_EQUAL(wait_status(&node, 1, BOUND_MS), IBV_WC_SUCCESS);
	}
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	node_close(&node);
}

static void standstill_within_the_peers_patience_loses_nothing(void **state)
{
	(void)state;
	for (size_t i = 0; i < ASKS; i++) {
		struct actor client, server;

		actor_start(&server, serve, NULL);
		actor_start(&client, work_beside_standstill, (void *)&asks[i]);
		assert_true(introduce(&client, &server));
		hear(&client, READY);
		hear(&server, READY);
		for (unsigned round = 0; round < 6; round++) {
			pid_t pid = round % 2 ? client.pid : server.pid;

			usleep(2000);
			stop(pid);
			usleep(30000);
			kill(pid, SIGCONT);
		}
		say(client.line, GO);
		assert_int_equal(actor_end(&client), 0);
		say(server.line, GO);
		assert_int_equal(actor_end(&server), 0);
	}
}

/* Meets a process that has been stopped before anybody attached to it. */
static void meet_a_stopped_process(int line, void *arg)
{
	struct node node;
	struct ibv_qp *qp;
	struct card other;
	uint64_t start;

	(void)arg;
	node_open(&node);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	other = node_card(&node, qp);
	line_send(line, &other, sizeof(other));
	line_receive(line, &other, sizeof(other));
	start = now_ms();
	node_connect(qp, &other, &impatient);
	CHECK(now_ms() - start < BOUND_MS);
	start = now_ms();
	CHECK_EQUAL(node_send(&node, qp, 1, 0, 64), 0);
	CHECK_EQUAL(wait_status(&node, 1, 2 * BOUND_MS), IBV_WC_RETRY_EXC_ERR);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	say(line, DONE);
	expect(line, AGAIN);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	node_meet(&node, qp, line, &other, &impatient);
	CHECK_EQUAL(node_send(&node, qp, 2, 0, 64), 0);
	node_expect(node.cq, 2, IBV_WC_SUCCESS);
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	node_close(&node);
}

static void serve_twice(int line, void *arg)
{
	struct node node;
	struct ibv_qp *qp;
	struct card card;

	(void)arg;
	node_open(&node);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	card = node_card(&node, qp);
	line_send(line, &card, sizeof(card));
	expect(line, AGAIN); /* is stopped here */
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	serve(line, NULL);
}

static void peer_stopped_before_attaching_is_silent_and_then_there(void **state)
{
	struct actor client, server;
	struct card mine, theirs;

	(void)state;
	actor_start(&server, serve_twice, NULL);
	assert_true(line_receive(server.line, &theirs, sizeof(theirs)));
	stop(server.pid);
	actor_start(&client, meet_a_stopped_process, NULL);
	assert_true(line_receive(client.line, &mine, sizeof(mine)));
	assert_true(line_send(client.line, &theirs, sizeof(theirs)));
	hear(&client, DONE);
	kill(server.pid, SIGCONT);
	say(server.line, AGAIN);
	say(client.line, AGAIN);
	assert_true(introduce(&client, &server));
	assert_int_equal(actor_end(&client), 0);
	hear(&server, READY);
	say(server.line, GO);
	assert_int_equal(actor_end(&server), 0);
}

/* One after the other connects, works and is killed. */
static void serve_the_doomed(int line, void *arg)
{
	struct node node;
	uint32_t word;
	unsigned fds, maps;

	(void)arg;
	node_open(&node);
	fds = count_fds();
	maps = count_maps();
	for (;;) {
		struct ibv_qp *qp;
		struct card other;

		line_receive(line, &word, sizeof(word));
		if (word != AGAIN)
			break;
		qp = node_qp(&node, IBV_QPT_RC, NULL);
		for (int i = 0; i < NODE_DEPTH; i++)
			CHECK_EQUAL(node_recv(&node, qp, 100, 4096, 64), 0);
		node_meet(&node, qp, line, &other, &impatient);
		CHECK_EQUAL(node_rdma(&node, qp, 1, IBV_WR_RDMA_READ, 0, 8, other.addr, other.rkey),
			    0);
		say(line, READY);
		expect(line, GO); /* it is dead */
		CHECK_EQUAL(ibv_destroy_qp(qp), 0);
		for (uint64_t end = now_ms() + BOUND_MS; count_maps() != maps || count_fds() != fds;
		     usleep(1000))
			CHECK(now_ms() < end);
	}
	node_close(&node);
}

static void many_dead_peers_leave_no_mappings_and_descriptors(void **state)
{
	struct actor survivor;

	(void)state;
	actor_start(&survivor, serve_the_doomed, NULL);
	for (int round = 0; round < 40; round++) {
		struct actor doomed;

		say(survivor.line, AGAIN);
		actor_start(&doomed, send_without_end, NULL);
		assert_true(introduce(&doomed, &survivor));
		hear(&doomed, READY);
		hear(&survivor, READY);
		usleep((useconds_t)(round * 53 % 1000));
		end_by_sigkill(&doomed);
		assert_int_not_equal(slot_socket(doomed.qpn), doomed.slot_socket);
		say(survivor.line, GO);
	}
	say(survivor.line, DONE);
	assert_int_equal(actor_end(&survivor), 0);
}

static void become_another_program(int line, void *arg)
{
	struct node node;
	struct ibv_qp *qp;
	struct card other;

	(void)arg;
	node_open(&node);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	for (int i = 0; i < 16; i++)
		CHECK_EQUAL(node_recv(&node, qp, 100, 4096, 64), 0);
	node_meet(&node, qp, line, &other, &impatient);
	say(line, READY);
	expect(line, GO);
	fcntl(line, F_SETFD, 0);
	execlp("sleep", "sleep", "60", (char *)NULL);
}

static void peer_that_executes_another_program_is_gone(void **state)
{
	(void)state;
	for (size_t i = 0; i < ASKS; i++) {
		struct actor client, server;

		actor_start(&server, become_another_program, NULL);
		actor_start(&client, work_until_it_fails, (void *)&asks[i]);
		assert_true(introduce(&client, &server));
		hear(&client, READY);
		hear(&server, READY);
		say(server.line, GO);
		hear(&client, DONE);
		end_by_sigkill(&server);
		actor_start(&server, serve, NULL);
		assert_true(introduce(&client, &server));
		assert_int_equal(actor_end(&client), 0);
		say(server.line, GO);
		assert_int_equal(actor_end(&server), 0);
	}
}

/* Closes the device under its peer, and opens it again. */
static void close_and_open(int line, void *arg)
{
	struct node node;
	struct ibv_qp *qp;
	struct card other;

	(void)arg;
	for (int round = 0; round < 2; round++) {
		node_open(&node);
		qp = node_qp(&node, IBV_QPT_RC, NULL);
		for (int i = 0; i < 16; i++)
			CHECK_EQUAL(node_recv(&node, qp, 100, 4096, 64), 0);
		node_meet(&node, qp, line, &other, &impatient);
		say(line, READY);
		expect(line, GO);
		CHECK_EQUAL(ibv_destroy_qp(qp), 0);
		node_close(&node);
		CHECK_EQUAL(count_maps(), 0);
	}
}

static void peer_that_closes_its_device_is_gone_until_it_opens_it(void **state)
{
	struct actor client, server;

	(void)state;
	actor_start(&server, close_and_open, NULL);
	actor_start(&client, work_until_it_fails, (void *)&asks[1]);
	assert_true(introduce(&client, &server));
	hear(&client, READY);
	hear(&server, READY);
	say(server.line, GO);
	hear(&client, DONE);
	assert_true(introduce(&client, &server));
	assert_int_equal(actor_end(&client), 0);
	hear(&server, READY);
	say(server.line, GO);
	assert_int_equal(actor_end(&server), 0);
}

/* Datagrams to a dead process are lost; their senders go on. */
static void send_datagrams_past_a_death(int line, void *arg)
{
	struct node node;
	struct ibv_qp *qp;
	struct card other;
	struct ibv_ah_attr ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;

	(void)arg;
	wr.opcode = IBV_WR_SEND;
	node_open(&node);
	qp = node_qp(&node, IBV_QPT_UD, NULL);
	node_meet(&node, qp, line, &other, &impatient);
	ah_attr.grh.dgid = other.gid;
	wr.wr.ud.ah = ibv_create_ah(node.pd, &ah_attr);
	CHECK(wr.wr.ud.ah);
	wr.wr.ud.remote_qpn = other.qpn;
	wr.wr.ud.remote_qkey = 0x11;
	sge = (struct ibv_sge){ .addr = (uintptr_t)node.buf, .length = 24, .lkey = node.mr->lkey };
	say(line, READY);
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 50; j++) {
			CHECK_EQUAL(ibv_post_send(qp, &wr, &bad), 0);
			CHECK_EQUAL(wait_status(&node, 1, BOUND_MS), IBV_WC_SUCCESS);
		}
		say(line, DONE);
		expect(line, GO);
	}
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	CHECK_EQUAL(ibv_destroy_ah(wr.wr.ud.ah), 0);
	node_close(&node);
}

static void datagrams_to_a_dead_process_are_lost_and_nothing_else(void **state)
{
	static enum ibv_qp_type type = IBV_QPT_UD;
	struct actor sender, receiver;

	(void)state;
	actor_start(&receiver, serve, &type);
	actor_start(&sender, send_datagrams_past_a_death, NULL);
	assert_true(introduce(&sender, &receiver));
	hear(&sender, READY);
	hear(&receiver, READY);
	hear(&sender, DONE);
	end_by_sigkill(&receiver);
	say(sender.line, GO);
	hear(&sender, DONE);
	say(sender.line, GO);
	assert_int_equal(actor_end(&sender), 0);
}

/* Loses its connections, as a daemon that closes what it does not know, and lives on. */
static void close_the_connections(int line, void *arg)
{
	struct node node;
	struct ibv_qp *qp;
	struct card other;

	(void)arg;
	node_open(&node);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	node_meet(&node, qp, line, &other, &patient);
	expect(line, GO);
	for (int fd = 3; fd < 1024; fd++) {
		int type = 0, listening = 0;
		socklen_t length = sizeof(int);

		if (fd == line || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) ||
		    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length))
			continue;
		if (type == SOCK_SEQPACKET && !listening)
			close(fd);
	}
	say(line, DONE);
	pause();
}

static void outlive_one_without_connections(int line, void *arg)
{
	struct node node;
	struct ibv_qp *qp;
	struct card other;
	enum ibv_wc_status status = IBV_WC_SUCCESS;

	(void)arg;
	node_open(&node);
	qp = node_qp(&node, IBV_QPT_RC, NULL);
	node_meet(&node, qp, line, &other, &patient);
	expect(line, GO);
	/* It is alive: its memory is reached without them, or it is asked by a new one. */
	CHECK_EQUAL(node_rdma(&node, qp, 1, IBV_WR_RDMA_WRITE, 0, 8, other.addr, other.rkey), 0);
	CHECK_EQUAL(wait_status(&node, 1, BOUND_MS), IBV_WC_SUCCESS);
	say(line, DONE);
	expect(line, AGAIN); /* it is dead */
	/* Mapped pages outlive it until that is found out. */
	for (uint64_t end = now_ms() + BOUND_MS; status == IBV_WC_SUCCESS;) {
		CHECK(now_ms() < end);
		CHECK_EQUAL(node_rdma(&node, qp, 2, IBV_WR_RDMA_WRITE, 0, 8, other.addr,
				      other.rkey),
			    0);
		status = wait_status(&node, 2, BOUND_MS);
	}
	CHECK_EQUAL(ibv_destroy_qp(qp), 0);
	for (uint64_t end = now_ms() + BOUND_MS; count_maps() > 1; usleep(1000))
		CHECK(now_ms() < end);
	node_close(&node);
}

static void peer_that_lost_its_connections_is_still_seen_to_die(void **state)
{
	struct actor survivor, doomed;

	(void)state;
	actor_start(&doomed, close_the_connections, NULL);
	actor_start(&survivor, outlive_one_without_connections, NULL);
	assert_true(introduce(&survivor, &doomed));
	say(doomed.line, GO);
	hear(&doomed, DONE);
	usleep(1500000); /* longer than a process takes to close its descriptors */
	say(survivor.line, GO);
	hear(&survivor, DONE);
	end_by_sigkill(&doomed);
	say(survivor.line, AGAIN);
	assert_int_equal(actor_end(&survivor), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_peer_fails_what_is_sent_to_it_in_time),
		cmocka_unit_test(exited_peer_fails_what_is_sent_to_it_in_time),
		cmocka_unit_test(killed_sender_leaves_each_receive_completed_once),
		cmocka_unit_test(stopped_peer_is_written_read_and_sent_to),
		cmocka_unit_test(standstill_within_the_peers_patience_loses_nothing),
		cmocka_unit_test(peer_stopped_before_attaching_is_silent_and_then_there),
		cmocka_unit_test(many_dead_peers_leave_no_mappings_and_descriptors),
		cmocka_unit_test(peer_that_executes_another_program_is_gone),
		cmocka_unit_test(peer_that_closes_its_device_is_gone_until_it_opens_it),
		cmocka_unit_test(datagrams_to_a_dead_process_are_lost_and_nothing_else),
		cmocka_unit_test(peer_that_lost_its_connections_is_still_seen_to_die),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
