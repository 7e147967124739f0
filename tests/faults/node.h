/* SPDX-License-Identifier: MIT */
/*
 * What the fault tests share: actors (forked processes that each open the device), the messages
 * between them and the test that directs them, and the verbs objects that most of them need.
 *
 * The test itself opens no device before it forks an actor. An actor that finds something wrong
 * says where and exits with 1; the test sees that when it waits for it. A wait that has a bound
 * says so by its name, everything else by TIMEOUT_MS. /
 */
#ifndef TESTS_FAULTS_NODE_H
#define TESTS_FAULTS_NODE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

#include <infiniband/verbs.h>

#define TIMEOUT_MS 60000

/* In an actor. */
#define CHECK(condition)  check_that(condition, #condition, __FILE__, __LINE__)
#define CHECK_EQUAL(a, b) check_equal((int64_t)(a), (int64_t)(b), #a, #b, __FILE__, __LINE__)

void check_that(bool holds, const char *text, const char *file, int line);
void check_equal(int64_t a, int64_t b, const char *a_text, const char *b_text, const char *file,
		 int line);

uint64_t now_ms(void);

/* An actor, as the test sees it. */
struct actor {
	pid_t pid;
	int line;	      /* to the actor: SOCK_SEQPACKET */
	uint32_t qpn;	      /* from introduce() */
	uint64_t slot_socket; /* the same; another one's in its place is another process */
};

/* The other end of the line, in the actor. */
typedef void actor_main(int line, void *arg);

void actor_start(struct actor *actor, actor_main *run, void *arg);
/* Waits for its end; its exit status, 128 + signal, or -1 when it took more than TIMEOUT_MS (it is
 * killed then). */
int actor_end(struct actor *actor);

/* Whole messages over a line; receiving waits TIMEOUT_MS at most. Both end an actor that fails; the
 * test's own calls return false then (the other end died). */
bool line_send(int line, const void *bytes, size_t size);
bool line_receive(int line, void *bytes, size_t size);
/* A single number. */
void say(int line, uint32_t word);
void expect(int line, uint32_t word);

/* What two ends must know of each other. */
struct card {
	uint32_t qpn, rkey;
	uint64_t addr;
	union ibv_gid gid;
};

/* Of a connection; node_defaults fills in what works. */
struct link_attr {
	uint32_t sq_psn, rq_psn;
	enum ibv_mtu mtu;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer, rd_atomic, dest_rd_atomic;
	unsigned access;
};
extern const struct link_attr node_defaults;

#define NODE_BYTES (64u << 10)
#define NODE_DEPTH 64

struct node {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq; /* all QPs send and receive here */
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	uint8_t *buf; /* NODE_BYTES, all rights */
	union ibv_gid gid;
};

void node_open(struct node *node);
void node_close(struct node *node);

/* In INIT. */
struct ibv_qp *node_qp(struct node *node, enum ibv_qp_type type, struct ibv_srq *srq);
struct card node_card(const struct node *node, const struct ibv_qp *qp);
void node_init_qp(struct ibv_qp *qp, unsigned access);
/* To RTS; UD ignores card. */
void node_connect(struct ibv_qp *qp, const struct card *card, const struct link_attr *attr);
/* Two QPs of this process. */
void node_connect_pair(struct node *node, struct ibv_qp *a, struct ibv_qp *b,
		       const struct link_attr *attr);

/* Through the test: an actor gives its card and connects to the one that it gets; the test hands
 * them over, and lets both go on when both are connected. */
void node_meet(struct node *node, struct ibv_qp *qp, int line, struct card *other,
	       const struct link_attr *attr);
bool introduce(struct actor *a, struct actor *b);

/* 0, or the errno of posting. offset and length of node->buf. */
int node_recv(struct node *node, struct ibv_qp *qp, uint64_t wr_id, uint32_t offset,
	      uint32_t length);
int node_srq_recv(struct node *node, struct ibv_srq *srq, uint64_t wr_id, uint32_t offset,
		  uint32_t length);
int node_send(struct node *node, struct ibv_qp *qp, uint64_t wr_id, uint32_t offset,
	      uint32_t length);
/* RDMA WRITE, READ; atomics with length 8. */
int node_rdma(struct node *node, struct ibv_qp *qp, uint64_t wr_id, enum ibv_wr_opcode opcode,
	      uint32_t offset, uint32_t length, uint64_t remote_addr, uint32_t rkey);

/* The next completion, by polling; false when none came in ms. */
bool node_poll(struct ibv_cq *cq, struct ibv_wc *wc, uint32_t ms);
/* The next completion must be this one. */
void node_expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status);
enum ibv_qp_state node_state(struct ibv_qp *qp);
/* The next asynchronous event must be of this type; acknowledged. */
void node_expect_event(struct ibv_context *ctx, enum ibv_event_type type, const void *element);

/* Whether the actors exchange packets (UROCE_TRANSPORT=roce). */
bool over_the_wire(void);

/* Bytes that the allocator has given out, and that the segment's file holds. */
struct memory_use {
	size_t private, segment;
};

struct memory_use memory_use(void);

/* Resources of this process: open descriptors, without those of the wire, which are the device's and come with the first packet that
 * needs one; segments in /proc/self/maps. What else it maps of a peer has a descriptor. */
unsigned count_fds(void);
unsigned count_maps(void);
/* Whether this page is one that peers map. */
bool is_shared(const void *at);
/* The socket that holds the slot of a QPN in this network namespace (its inode in /proc/net/unix); 0
 * when nobody does. */
uint64_t slot_socket(uint32_t qpn);

/* A case that is an actor of its own, so that one which crashes or hangs costs the others nothing.
 * The function is the test's initial state. */
#define CASE(name)                                        \
	{                                                 \
#name, run_case, NULL, NULL, (void *)name \
	}
void run_case(void **state);

#endif
