/* SPDX-License-Identifier: MIT */
/*
 * The strict suite: what bad input gets. Each case does something wrong through the public verbs
 * and says what hardware answers: errno or completion status, the state of the QP at both ends,
 * what is flushed and in which order, the events, the recorded cause with its numbers, and which
 * bytes may change.
 *
 * A case is a function that the *controller* runs. It works on two ends, the nodes A and B. B lives
 * in another process or, in the other placement, in the controller's own with a context of its own;
 * the case does not see the difference, because everything that touches a node goes through at(),
 * which runs a function in the node's process. Every case runs in fresh processes, with the classic
 * and with the extended API.
 *
 * Every node also has a bystander QP that is connected to the other's: whatever the case did,
 * messages go through it afterwards. And no event may be left that the case did not ask for, no
 * byte changed that it did not allow, and all objects can be destroyed.
 */
#ifndef STRICT_H
#define STRICT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/types.h>

#include <infiniband/verbs.h>

#include "observe/cause.h"
#include "observe/counters.h"

#define ARENA	  (256u << 10) /* bytes of a node's memory; all of it has a known content */
#define GUARD	  4096u	       /* at both ends of it, outside the region that the node registers */
#define QPS	  8
#define CQS	  10
#define PDS	  3
#define MRS	  16
#define MWS	  4
#define SRQS	  2
#define AHS	  3
#define SGES	  4
#define LIST	  8
#define GRH_BYTES 40
#define QKEY	  0x11111111u
#define WAIT_MS	  10000

#define ALL_RIGHTS                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* A QPN that no process can have: of the first slot. */
#define QPN_OF_NO_PROCESS 0x3abc

/* Slots with a meaning; the rest is the case's own. */
enum { BYSTANDER = QPS - 1 };
enum { SEND_CQ, RECV_CQ, BYSTANDER_CQ = CQS - 1 };
enum { NO_SRQ = -1 };

/* ---- Cases ---- */

struct world;

struct test_case {
	const char *name; /* group/behaviour */
	void (*run)(struct world *w, const void *arg);
	const void *arg;
};

/* Each group adds its cases, in order; names and args live for ever. */
void add_case(const char *group, void (*run)(struct world *w, const void *arg), const void *arg,
	      const char *format, ...) __attribute__((format(printf, 4, 5)));
void add_keys(void);
void add_posts(void);
void add_states(void);
void add_transitions(void);
void add_receives(void);
void add_completion(void);
void add_memory(void);
void add_order(void);
void add_windows(void);

/* Ends the case: says what is wrong, and where. */
#define fail(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void fail_at(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#define check(condition, ...)              \
	do {                               \
		if (!(condition))          \
			fail(__VA_ARGS__); \
	} while (0)
#define equal(got, want) equal_at(__FILE__, __LINE__, #got, (int64_t)(got), (int64_t)(want))
void equal_at(const char *file, int line, const char *what, int64_t got, int64_t want);

uint64_t now_ns(void);
void pause_ms(unsigned ms);

/* ---- The world ---- */

/* A node as the controller knows it; what is below `own` only exists in the node's process. */
struct node {
	unsigned id; /* 0: A, 1: B */
	bool remote; /* in another process than the controller */
	int line;    /* to that process */
	pid_t pid;
	bool extended;
	uint8_t *memory; /* ARENA bytes, at the same address in both processes */
	uint32_t qpn[QPS];
	union ibv_gid gid;
	unsigned gid_index;

	/* own */
	struct ibv_context *ctx;
	struct ibv_pd *pd[PDS];
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[CQS];
	struct ibv_cq_ex *cqx[CQS];
	struct ibv_qp *qp[QPS];
	struct ibv_qp_ex *qpx[QPS];
	struct ibv_mr *mr[MRS];
	struct ibv_mw *mw[MWS];
	struct ibv_srq *srq[SRQS];
	struct ibv_ah *ah[AHS];
};

/* Memory that a key of a node names. */
struct region {
	struct node *node;
	int slot;
	uint64_t addr; /* of the first byte, as SGEs and remote addresses name it */
	uint64_t length;
	uint32_t lkey, rkey;
};

/* Bytes that must have, at the end, another content than at the beginning. */
struct change {
	struct node *node;
	uint32_t at, length;
	const struct node *from; /* NULL: any content */
	uint32_t from_at;	 /* of what from's memory had at the beginning */
};

#define CHANGES 32

struct world {
	bool extended;
	bool two_processes;
	struct node *a, *b;
	struct region ra, rb; /* of A and B: all but the guards, all rights, PD 0 */
	struct change change[CHANGES];
	unsigned changes;
};

/* Runs fn in the node's process with a copy of *arg, which comes back. */
void at(struct node *n, void (*fn)(struct node *n, void *arg), void *arg, size_t size);

struct node *peer_of(const struct node *n);

/* Opens two nodes with PDs 0 and 1, the CQs that have names, the regions and the bystanders. */
void world_open(struct world *w);
/* The checks that end every case. */
void world_close(struct world *w);

/* The offset's address in a node's memory, and what is there at the beginning. */
static inline uint64_t addr_of(const struct node *n, uint32_t offset)
{
	return (uintptr_t)n->memory + offset;
}
uint8_t content(const struct node *n, uint32_t offset);

/* Allows a change of a node's memory: to what another's had at the beginning, or to anything. */
void changes_to(struct world *w, struct node *n, uint32_t at, uint32_t length,
		const struct node *from, uint32_t from_at);
void changes(struct world *w, struct node *n, uint32_t at, uint32_t length);

/* ---- Objects (objects.c): all return what the verb said, 0 or errno; regions fail the case when
 * they cannot be ---- */

int make_cq(struct node *n, unsigned slot, int cqe);
/* The same, with events on the node's channel. */
int make_cq_with_events(struct node *n, unsigned slot, int cqe);
int cq_capacity(struct node *n, unsigned slot);
int resize_cq(struct node *n, unsigned slot, int cqe);
int drop_cq(struct node *n, unsigned slot);
int make_srq(struct node *n, unsigned slot, unsigned pd, uint32_t max_wr, uint32_t max_sge);
int arm_srq(struct node *n, unsigned slot, uint32_t limit);
int drop_srq(struct node *n, unsigned slot);
int drop_pd(struct node *n, unsigned slot);
/* Without a GRH when dgid is NULL. */
int make_ah(struct node *n, unsigned slot, unsigned pd, const union ibv_gid *dgid);
int drop_ah(struct node *n, unsigned slot);

struct region try_register(struct node *n, unsigned pd, uint64_t addr, uint64_t length,
			   unsigned access, int *error);
struct region register_at(struct node *n, unsigned pd, uint64_t addr, uint64_t length,
			  unsigned access);
struct region register_iova(struct node *n, unsigned pd, uint64_t addr, uint64_t length,
			    uint64_t iova, unsigned access, int *error);
int reregister(struct region *r, int flags, unsigned pd, uint64_t addr, uint64_t length,
	       unsigned access);
int deregister(struct region *r);

/* A memory window; *rkey is the key that it has then. */
int make_window(struct node *n, unsigned slot, unsigned pd, enum ibv_mw_type type, uint32_t *rkey);
int drop_window(struct node *n, unsigned slot);
/* ibv_bind_mw: on success *rkey is the new key. */
struct bind;
int bind_window(struct node *n, unsigned qp, uint64_t id, const struct bind *bind, uint32_t *rkey);

struct qp_want {
	enum ibv_qp_type type;
	unsigned pd, send_cq, recv_cq;
	int srq;
	struct ibv_qp_cap cap;
	bool sig_all;
	bool no_operations; /* extended: none of the ibv_wr_* */
};

struct qp_want qp_default(enum ibv_qp_type type);
int make_qp(struct node *n, unsigned slot, struct qp_want *want);
int drop_qp(struct node *n, unsigned slot);
int modify_qp(struct node *n, unsigned slot, const struct ibv_qp_attr *attr, int mask);
void query_qp(struct node *n, unsigned slot, struct ibv_qp_attr *attr);
enum ibv_qp_state state_of(struct node *n, unsigned slot);
/* Waits for a state that an event of the NIC's brings about. */
void becomes(struct node *n, unsigned slot, enum ibv_qp_state state);

/* One side of a connection. */
struct side {
	struct node *n;
	unsigned qp;
	enum ibv_qp_type type;
	uint32_t dest_qpn;
	union ibv_gid dgid;
	enum ibv_mtu mtu;
	uint32_t sq_psn, rq_psn;
	uint8_t timeout, retries, rnr_retries, min_rnr_timer, depth, dest_depth;
	unsigned access;
};

struct side side_default(struct node *n, unsigned qp, enum ibv_qp_type type,
			 const struct node *peer, unsigned peer_qp);
int to_init(const struct side *s);
int to_rtr(const struct side *s);
int to_rts(const struct side *s);
void bring_up(const struct side *s);
/* Makes QP 0 of both nodes as qp_default says, and connects them. */
void make_pair(struct world *w, enum ibv_qp_type type);
void make_pair_with(struct world *w, struct qp_want *a, struct qp_want *b, const struct side *sa,
		    const struct side *sb);

/* ---- Work (work.c) ---- */

/* What a window is bound to. */
struct bind {
	int window, region; /* slots; -1: NULL */
	uint64_t addr, length;
	unsigned access;
};

struct wr {
	uint64_t id;
	enum ibv_wr_opcode op;
	unsigned flags;
	int sges;
	struct ibv_sge sge[SGES];
	uint64_t remote;
	uint32_t rkey;
	uint32_t imm;
	uint64_t compare_add, swap;
	struct bind bind; /* rkey: the new one */
	int ah; /* slot; -1: none */
	uint32_t qpn, qkey;
};

/* length bytes from or to offset at of the node's own region. */
struct wr send_wr(uint64_t id, const struct region *r, uint32_t at, uint32_t length);
struct wr rdma_wr(uint64_t id, enum ibv_wr_opcode op, const struct region *r, uint32_t at,
		  uint32_t length, const struct region *remote, uint32_t remote_at);
struct wr recv_wr(uint64_t id, const struct region *r, uint32_t at, uint32_t length);

/* Post a list; *bad is the index of the WR that bad_wr named, -1 when it was left alone. With the
 * extended API a list of sends is one batch, and *bad stays -1. */
int post_list(struct node *n, unsigned qp, const struct wr *wr, unsigned count, int *bad);
int post_receives(struct node *n, unsigned qp, const struct wr *wr, unsigned count, int *bad);
int post_srq(struct node *n, unsigned srq, const struct wr *wr, unsigned count, int *bad);
/* The same, which must succeed. */
void post(struct node *n, unsigned qp, const struct wr *wr, unsigned count);
void receive(struct node *n, unsigned qp, const struct wr *wr, unsigned count);

/* Waits for the next completion. */
struct ibv_wc next_wc(struct node *n, unsigned cq);
/* It must be this one. */
#define completes(n, cq, id, status) completes_at(__FILE__, __LINE__, n, cq, id, status)
struct ibv_wc completes_at(const char *file, int line, struct node *n, unsigned cq, uint64_t id,
			   enum ibv_wc_status status);
/* Polls until nothing is left, whatever it is: how many there were. */
unsigned drain(struct node *n, unsigned cq);
/* No completion comes within a moment. */
#define silent(n, cq) silent_at(__FILE__, __LINE__, n, cq)
void silent_at(const char *file, int line, struct node *n, unsigned cq);

/* The next asynchronous event must be this one, about this slot. */
#define raises(n, type, slot) raises_at(__FILE__, __LINE__, n, type, slot)
void raises_at(const char *file, int line, struct node *n, enum ibv_event_type type, unsigned slot);
void no_event(struct node *n);

/* Completion events. */
int arm_cq(struct node *n, unsigned cq, bool solicited);
/* Reads one event, waiting so long for it; false when there is none. */
bool read_event(struct node *n, unsigned cq, unsigned ms, bool acknowledge);
void acknowledge(struct node *n, unsigned cq, unsigned count);

/*
 * Causes. Between processes of one host an initiator records exactly what it met at the other end. Over the wire it hears a NAK,
 * or nothing, and says that; what exactly was wrong is recorded by the responder. Of a message that is lost there no initiator
 * hears, and what no queue pair wants is only counted. Cases say what was wrong: these say where that can be found.
 */

/* Whether the two nodes exchange packets (UROCE_TRANSPORT=roce). */
bool over_the_wire(void);

/* The completion says what was wrong, or what its initiator heard of it. */
#define says(wc, code) says_at(__FILE__, __LINE__, wc, code)
void says_at(const char *file, int line, struct ibv_wc wc, enum cause_code code);

/* The newest cause of this code in the node's process; fails the case if there is none. Over the wire, of what the responder
 * found: what both ends' causes say, as one. */
#define cause_of(n, code) cause_at(__FILE__, __LINE__, n, code)
struct cause cause_at(const char *file, int line, struct node *n, enum cause_code code);

/* Whether there is a cause of such a code anywhere. */
bool leaves_cause(enum cause_code code);

/* The cause names this request; a responder that drops its message does not know it. */
#define is_of_request(c, id) is_of_request_at(__FILE__, __LINE__, c, id)
void is_of_request_at(const char *file, int line, const struct cause *c, uint64_t id);

/* A counter of the node's device, by its place in struct device_counters. */
uint64_t counter_of(struct node *n, size_t place);

/* The verb that was just refused said why: the newest cause of the thread has this code and
 * errno. */
#define refused_with(n, code, error) refused_at(__FILE__, __LINE__, n, code, error)
struct cause refused_at(const char *file, int line, struct node *n, enum cause_code code,
			int error);

/* ---- Memory that does not stay as it was (work.c) ---- */

enum fate { UNMAPPED, NO_ACCESS, READ_ONLY, TRUNCATED, DISCARDED, REPLACED };

/* Private memory, or a memfd. */
enum backing { ANONYMOUS, UNSEALED, SEALED };

/* Maps pages of content(n, 0…) somewhere in the node's process; returns their address. */
uint64_t map_pages(struct node *n, unsigned pages, enum backing backing);
/* Lets that happen to the pages behind the first `kept`. */
void let_happen(struct node *n, uint64_t addr, unsigned pages, unsigned kept, enum fate fate);
/* Bytes of a node's process, at any address that can be read: whether they are content(from,
 * from_at…), or all zero. */
bool has_content(struct node *n, uint64_t addr, uint32_t length, const struct node *from,
		 uint32_t from_at);
bool is_zero(struct node *n, uint64_t addr, uint32_t length);
/* A sum over bytes of a node's process, to see whether they change. */
uint64_t sum_of(struct node *n, uint64_t addr, uint32_t length);

#endif
