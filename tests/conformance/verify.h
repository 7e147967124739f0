/* SPDX-License-Identifier: MIT */
/*
 * The verifying client: random verbs operations between two processes, every byte compared with a
 * model.
 *
 * A row of the matrix (verify_rows.c) says which shape of operations to try. The runner (verify.c)
 * starts two processes for it. Each of them computes, from the row's seed alone, the whole plan of
 * both (verify_plan.c): so each knows what both memories must hold without asking the other. Work
 * goes in rounds: plan, post receives, barrier, post and poll until everything has completed,
 * barrier, compare every byte (verify_round.c). Within a round, bytes are touched by more than one
 * operation only where the specification orders them.
 *
 * Rules: no buffer is reused before its completion; nothing is assumed done when a post returns;
 * one thread.
 */
#ifndef VERIFY_H
#define VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#define MAX_NODES 2
#define MAX_QPS	  8
#define MAX_CQS	  (2 * MAX_QPS)
#define MAX_SGE	  32
#define MAX_MRS	  8
#define MAX_LIST  64
#define MAX_INL	  1024
/* soft-RoCE takes no more than 480 */
#define MAX_FAR_INL 400
#define GRH_BYTES 40
#define QKEY	  0x1ee7c0deu

/* ---- Randomness: all of it comes from seeds (verify_random.c). ---- */

struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *rng);
/* Uniform in 0..limit-1; limit > 0. */
uint64_t rng_below(struct rng *rng, uint64_t limit);
bool rng_chance(struct rng *rng, unsigned percent);
uint64_t rng_hash(uint64_t seed, const char *text);
/* The bytes that a seed stands for. */
void rng_fill(void *buf, size_t len, uint64_t seed);

/* ---- Rows ---- */

enum verify_op {
	OP_SEND,
	OP_SEND_IMM,
	OP_WRITE,
	OP_WRITE_IMM,
	OP_READ,
	OP_CMP_SWP,
	OP_FETCH_ADD,
	OP_KINDS
};

#define OPS_UD	   (1u << OP_SEND | 1u << OP_SEND_IMM)
#define OPS_UC	   (OPS_UD | 1u << OP_WRITE | 1u << OP_WRITE_IMM)
#define OPS_ATOMIC (1u << OP_CMP_SWP | 1u << OP_FETCH_ADD)
#define OPS_RC	   (OPS_UC | 1u << OP_READ | OPS_ATOMIC)

static inline bool op_has_imm(enum verify_op kind)
{
	return kind == OP_SEND_IMM || kind == OP_WRITE_IMM;
}

static inline bool op_is_atomic(enum verify_op kind)
{
	return kind == OP_CMP_SWP || kind == OP_FETCH_ADD;
}

/* Does it take a receive at the responder? */
static inline bool op_takes_receive(enum verify_op kind)
{
	return kind <= OP_SEND_IMM || kind == OP_WRITE_IMM;
}

enum size_class {
	SIZE_ZERO,  /* 0 */
	SIZE_SMALL, /* 1 to 64 */
	SIZE_MTU,   /* multiples of each MTU, one less, one more */
	SIZE_LARGE, /* 4 KiB to 1 MiB; 256 KiB in long lists */
	SIZE_HUGE,  /* 1 MiB to 8 MiB */
	SIZE_ANY,   /* all of them, to 64 KiB */
};

enum api {
	API_CLASSIC,  /* ibv_post_send, ibv_create_cq, ibv_poll_cq */
	API_EXTENDED, /* ibv_wr_*, ibv_create_cq_ex, ibv_start_poll */
	API_BOTH,     /* extended objects, used by both APIs in turn */
};

enum cq_layout { CQ_SPLIT, CQ_SHARED, CQ_PER_QP };
enum place { TWO_PROCESSES, ONE_PROCESS, ONE_NODE };
enum inlining { INLINE_NONE, INLINE_ALL, INLINE_SOME };

/* Kinds of memory region over the data region, as bits of row.mrs. */
#define MR_WHOLE   (1u << 0)
#define MR_HALF	   (1u << 1)
#define MR_LOCAL   (1u << 2) /* no right but reading here */
#define MR_READ	   (1u << 3) /* no right but being read by a peer */
#define MR_IOVA	   (1u << 4) /* addressed from another base */
#define MR_ZERO	   (1u << 5) /* addressed from 0 */
#define MR_WINDOW  (1u << 6) /* without rights for peers, but for a memory window over it: that has the rkey */
#define MR_DEFAULT (MR_WHOLE | MR_HALF | MR_LOCAL | MR_READ)

struct world;

struct row {
	const char *name;
	enum ibv_qp_type type;
	unsigned ops; /* bits of enum verify_op */
	enum size_class size;
	enum inlining inl;
	bool srq;
	unsigned list; /* WRs in one post, at most */
	unsigned sges; /* scatter/gather elements, at most */
	enum api api[MAX_NODES];
	enum place place;
	enum cq_layout cqs;
	unsigned qps;
	unsigned self_qps;     /* of these, the last so many are connected to themselves */
	unsigned round;	       /* operations in a round */
	unsigned signal_every; /* 1: all */
	unsigned sq_depth;     /* 0: as many as list and signal_every need */
	unsigned mrs;
	unsigned path_mtu; /* enum ibv_mtu; 0: the port's */
	unsigned times;	   /* so many times the default number of operations */
	bool sig_all;	   /* sq_sig_all instead of IBV_SEND_SIGNALED */
	bool chain;	   /* reuse ranges where the specification orders the operations; fences */
	bool events;	   /* sleep on the completion channel */
	bool solicited;	   /* arm the receive CQ for solicited events only */
	bool late_receives;
	bool timestamps;
	bool on_request; /* needs much memory or time: only with --long */
	/* Instead of rounds of random operations. */
	void (*scene)(struct world *w);
};

/*
 * Depths asked for. An RQ or SRQ holds all receives of a round, those that end a UC round, and some
 * more.
 */
static inline unsigned row_rq_depth(const struct row *row)
{
	return row->round + row->qps + 8;
}

static inline unsigned row_sq_depth(const struct row *row)
{
	if (row->sq_depth)
		return row->sq_depth;
	return 2 * row->list > row->signal_every ? 2 * row->list : row->signal_every;
}

/* All rows; *count of them. Owned by the table. */
const struct row *rows_all(unsigned *count);
const struct row *row_by_name(const char *name);
/* Whether its messages may get lost: UC and UD over the wire (UROCE_TRANSPORT=roce). */
bool row_may_lose(const struct row *row);

/* ---- Operations ---- */

/* A range of a node's arena and the memory region that names it. */
struct piece {
	size_t off;
	uint32_t len;
	unsigned mr;
};

struct op {
	enum verify_op kind;
	unsigned node, qp; /* the requester's */
	unsigned dnode;	   /* the responder's node */
	unsigned dqp;	   /* and its QP */
	unsigned index;	   /* in the round's order of its QP */
	bool signaled, fence, solicited, inl;
	bool last_word;	 /* no later operation of the round writes where this one does */
	bool no_remote;	 /* zero-length: remote address and key must not be looked at */
	uint32_t len;	 /* bytes of payload */
	unsigned pieces; /* of the local buffer; 0 is a list of no SGE */
	struct piece piece[MAX_SGE];
	struct piece remote;
	uint64_t add_or_compare, swap;
	uint32_t imm; /* as it stands in memory */
	uint64_t wr_id;
	uint64_t inl_seed; /* content of an inline payload */
};

/* ---- A node: one end, with its device, memory and queues ---- */

struct arena {
	uint8_t *mem;	/* what the NIC reads and writes; NULL: another process's */
	uint8_t *model; /* what must be there; of another process only the data region is kept up */
	size_t len;
	size_t data, data_len; /* place of the region that operations read and write */
	size_t recv, recv_len; /* place of the region that receives scatter to */
};

/* What the other end must know. Sent as it is: both ends are the same program. */
struct hello {
	union ibv_gid gid;
	uint32_t qpn[MAX_QPS];
	uint32_t psn[MAX_QPS];
	struct {
		uint64_t base; /* address that stands for arena offset off */
		uint64_t off, len;
		uint32_t lkey, rkey;
		uint32_t access;
		uint32_t is_data;
	} mr[MAX_MRS];
	uint32_t mrs;
};

struct cq {
	struct ibv_cq *cq;
	struct ibv_cq_ex *cqx; /* NULL: classic */
	unsigned events;       /* not yet acknowledged */
	bool receives;	       /* only these come here */
	bool timestamps;       /* asked for */
};

struct slot {
	uint64_t wr_id;
	bool posted;
	unsigned pieces;
	struct piece piece[MAX_SGE];
};

/* A receive queue, or the node's SRQ. */
struct rq {
	struct slot *slot;
	unsigned slots, posted;
	unsigned *fifo; /* slots in posting order: slots entries, used as a ring */
	unsigned head;
	size_t off, stride; /* place of the slots in the arena */
	unsigned owed;	    /* receives of this round still to be posted */
};

struct inbox {
	struct op **op; /* that take a receive, in order */
	unsigned count, got;
};

struct vqp {
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx; /* NULL: classic */
	struct cq *scq, *rcq;
	struct rq *rq;
	struct rq own_rq;
	unsigned peer;	/* node at the other end */
	struct op **sq; /* this round's operations in order */
	unsigned count, posted, completed;
	unsigned visible; /* of the peer's operations; checked when a later message came */
	struct inbox inbox[MAX_QPS]; /* by the requester's QP */
};

struct node {
	struct world *w;
	unsigned id;
	bool mine;	/* else only arena.model, hello and the plan */
	struct rng rng; /* for what the other end need not know */
	struct arena arena;
	struct hello hello;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr[MAX_MRS];
	struct ibv_mw *mw; /* or NULL; over the last region */
	struct ibv_srq *srq;
	struct rq shared_rq;
	struct ibv_ah *ah;
	struct cq cq[MAX_CQS];
	unsigned cqs;
	struct vqp qp[MAX_QPS];
};

struct claim;

struct world {
	const struct row *row;
	uint64_t row_seed; /* as given on the command line */
	uint64_t seed;	   /* of this row */
	unsigned nodes;
	struct node node[MAX_NODES];
	struct rng rng; /* of the plan: both processes draw the same numbers */
	int gid_index;
	int oob;	  /* socket to the other process, or -1 */
	bool far;	  /* which is on another machine */
	uint32_t max_inl; /* bytes of an inline payload */
	uint32_t mtu;	  /* the port's, bytes */
	uint32_t max_len; /* of a message in this row */
	unsigned round;
	struct op *op; /* this round's */
	unsigned ops;
	struct claim *claim;
	unsigned claims, max_claims;
	uint8_t *payload, *got; /* max_len bytes each */
	uint8_t inl[MAX_LIST][MAX_INL];
	uint64_t ops_wanted, ops_done, bytes_checked;
	unsigned timeout; /* seconds, for each round */
};

/* ---- verify_arena.c: memory and its model ---- */

void arena_lay_out(struct world *w, struct node *n);
/* New content, in the model and, of our own node, in memory. */
void arena_fill(struct node *n, size_t off, size_t len, uint64_t seed);
/* Compare every byte of the arena; does not return when one differs. */
void arena_compare(struct world *w, struct node *n);
/* Compare a range now; says what was just seen. */
void range_compare(struct world *w, struct node *n, size_t off, size_t len, const struct op *op,
		   const char *when);
void gather(uint8_t *to, const uint8_t *base, const struct piece *piece, unsigned pieces,
	    size_t skip, size_t len);
void scatter(uint8_t *base, const struct piece *piece, unsigned pieces, size_t skip,
	     const uint8_t *from, size_t len);
/* Cut len bytes in count uneven lengths, some of them 0. */
void cut(struct rng *rng, uint32_t len, struct piece *piece, unsigned count);

/* ---- verify_plan.c: what is done in a round ---- */

void plan_round(struct world *w, unsigned ops);
/* Bytes that an operation carries, into buf, from the model. */
void op_payload(const struct world *w, const struct op *op, uint8_t *buf);
void op_print(const struct world *w, const struct op *op);
/* The operations of this round that touch a byte. */
void plan_print_touching(const struct world *w, unsigned node, size_t off);

/* ---- verify_node.c: verbs objects ---- */

/* The device and what it says of message sizes. */
void node_open(struct world *w, struct node *n);
/* All other objects; the arena is laid out. */
void node_create(struct world *w, struct node *n);
void node_connect(struct world *w, struct node *n);
/*
 * Move the QPs to the error state, see the leftover receives flushed and nothing else, destroy all.
 */
void node_close(struct world *w, struct node *n);

/* ---- verify_classic.c, verify_extended.c: the two APIs ---- */

void classic_create_cq(struct node *n, struct cq *cq, int depth);
void classic_create_qp(struct node *n, struct vqp *q, struct ibv_qp_init_attr *attr);
int classic_post(struct node *n, struct vqp *q, struct op **ops, unsigned count);
int classic_poll(struct cq *cq, struct ibv_wc *wc, int max);
void extended_create_cq(struct node *n, struct cq *cq, int depth);
void extended_create_qp(struct node *n, struct vqp *q, struct ibv_qp_init_attr *attr);
int extended_post(struct node *n, struct vqp *q, struct op **ops, unsigned count);
int extended_poll(struct cq *cq, struct ibv_wc *wc, int max);
/* By the node's API; errors end the row. poll returns how many were written. */
void post(struct node *n, struct vqp *q, struct op **ops, unsigned count);
int poll_cq(struct node *n, struct cq *cq, struct ibv_wc *wc, int max);
/*
 * SGEs of an operation; an inline one's bytes stand in buf, which is the caller's to spoil after
 * posting.
 */
unsigned op_sges(struct node *n, const struct op *op, struct ibv_sge *sge, uint8_t *buf);
void op_remote(const struct node *n, const struct op *op, uint64_t *addr, uint32_t *rkey);

/* ---- verify_receive.c: receive queues ---- */

void rq_init(struct rq *rq, unsigned slots, size_t off, size_t stride);
void rq_post(struct node *n, struct vqp *q, unsigned count);
/* The slot that a completion is about, taken off the queue; checks the order where there is one. */
struct slot *rq_take(struct node *n, struct vqp *q, uint64_t wr_id);
/* Check a receive's completion and data against the plan, and bring the model up to date. */
void receive_done(struct node *n, struct vqp *q, const struct ibv_wc *wc);

/* ---- verify_round.c ---- */

void rounds_run(struct world *w);
/* Poll once, all CQs; true if something came. Everything unexpected ends the row. */
bool node_poll(struct node *n);
bool node_progress(struct node *n);
const char *wc_text(const struct ibv_wc *wc);
/* What is outstanding, to stderr. Also called from signal handlers. */
void world_dump(const struct world *w);

/* ---- verify_oob.c: out of band ---- */

/* A TCP socket of the other node's host; ends the process where it does not come. */
int meet_listen(const char *port);
int meet_accept(int listener);
int meet_connect(const char *host, const char *port);

void oob_exchange_hello(struct world *w);
/* Wait for the other process; both must come with the same plan. */
void oob_barrier(struct world *w);
uint64_t oob_swap(struct world *w, uint64_t value);
bool oob_peer_gone(struct world *w);
/* Whether the other process is on another machine. */
bool oob_is_far(int oob);

/* ---- verify_player.c: one process's part of a row ---- */

enum verdict { VERDICT_OK, VERDICT_FAIL, VERDICT_PEER, VERDICT_DROP };

struct report {
	uint64_t ops, bytes;
};

/* Plays row for node; returns what the runner prints. */
struct report play(const struct row *row, unsigned node, int oob, uint64_t seed, unsigned ops,
		   int gid_index, unsigned timeout);
/* End this process's part with a line, a dump and a verdict. */
_Noreturn void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void fail_as(enum verdict verdict, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- verify_scenes.c ---- */

void scene_last_byte(struct world *w);
void scene_contended_atomics(struct world *w);
void scene_two_gib(struct world *w);

#endif
