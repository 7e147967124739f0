/* SPDX-License-Identifier: MIT */
/*
 * What a process does, event by event, for `uroce trace`: a ring in a memfd of its own, made when somebody asks for a trace and handed
 * to him. Without one nothing is written, and each place that would is one branch.
 *
 * Any thread of the process writes; one observer reads while it goes on, and may be slower: then the oldest are lost, and counted.
 * Nobody waits for anybody, and a writer that is killed in between leaves slots that the reader passes over.
 */
#ifndef UROCE_OBSERVE_TRACE_H
#define UROCE_OBSERVE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The kinds, and what the fields of struct trace_event mean in each: `qpn` is the QP's own number unless said otherwise; `index` of a
 * send queue is the position modulo 2^32 (as seg_sent.posted counts), of a receive queue the number of the slot (of the WQE).
 * TRACE(name, number, text)
 */
#define TRACE_KINDS                                                                                                        \
	/* Objects. more: struct trace_qp */                                                                               \
	TRACE(QP, 1, "QP changed its state")		/* opcode: enum ibv_qp_state, 255: destroyed */                    \
	TRACE(CQ, 2, "CQ")				/* qpn: CQ number; length: entries, 0: destroyed */                \
	TRACE(SRQ, 3, "SRQ")				/* qpn: SRQ number; length: WQEs, 0: destroyed */                  \
	/* Requests */                                                                                                     \
	TRACE(POST_SEND, 10, "posted")			/* opcode: ibv_wr_opcode; flags: ibv_send_flags; arg: wr_id */     \
	TRACE(POST_RECV, 11, "receive posted")		/* opcode: 1: qpn is an SRQ number; length: bytes of room; arg: wr_id */ \
	TRACE(RING, 12, "list handed over")		/* end of a post call; index: of the first; length: requests */    \
	TRACE(SEEN, 13, "taken up")			/* executed for the first time */                                  \
	TRACE(GATHERED, 14, "payload gathered")		/* the last byte of it was read (of a READ: has arrived) */        \
	/* What the wire would carry, or carries. more: the packet, or as much of the payload as was kept */                \
	TRACE(MESSAGE, 20, "sent by shared memory")	/* index: PSN; arg: remote address; more: struct trace_message, payload */ \
	TRACE(PACKET_OUT, 21, "packet sent")		/* opcode: of the BTH; index: PSN; qpn: sender's; more: struct trace_packet, packet */ \
	TRACE(PACKET_IN, 22, "packet arrived")		/* the same; qpn: receiver's */                                    \
	TRACE(RETRY, 23, "sent again")			/* index: send queue; opcode: enum trace_retry; length: the how-manieth */ \
	/* At the other end; written by whoever does it there: here by the initiator. qpn: of the receiving QP */           \
	TRACE(TAKEN, 30, "receive taken")		/* index: receive slot; opcode: 1: of an SRQ; arg: sender's QPN << 32 | its send queue's index */ \
	TRACE(PLACED, 31, "payload placed")		/* the last byte is there; index: receive slot or ~0; arg: as TAKEN */ \
	/* Completions */                                                                                                  \
	TRACE(CQE, 40, "completed")			/* index: of the WQE; opcode: ibv_wc_status; flags: enum trace_cqe; length: bytes; arg: CQ number */ \
	TRACE(POLLED, 41, "polled")			/* index: of the WQE; opcode: ibv_wc_status; flags: enum trace_cqe; length: CQ number; arg: wr_id */ \
	TRACE(POLLED_EMPTY, 42, "polled in vain")	/* qpn: CQ number; the first after one that found something */     \
	TRACE(ARMED, 43, "armed")			/* qpn: CQ number; opcode: 1: for solicited only */                \
	TRACE(FIRED, 44, "event raised")		/* qpn: CQ number of the receiver; arg: its owner's QPN or 0 */    \
	TRACE(AWOKE, 45, "event taken")			/* qpn: CQ number */                                               \
	TRACE(CAUSE, 50, "cause")			/* qpn; index: cause code; arg: its position in the ring of causes; length: error */

enum trace_kind {
#define TRACE(name, number, text) TRACE_##name = number,
	TRACE_KINDS
#undef TRACE
};

enum trace_cqe {
	TRACE_CQE_RECV = 1, /* of a receive; else of a send queue */
	TRACE_CQE_SRQ = 2,  /* index is a slot of the SRQ */
};

enum trace_retry { TRACE_RETRY_RNR = 1, TRACE_RETRY_TIMEOUT, TRACE_RETRY_SEQUENCE };

/*
 * 32 bytes. stamp: lap 15 | more 1 | ticks 48; stored last (release), and 0 before. lap: of the ring, from 1, never 0 (modulo
 * 2^15 - 1); more: this slot continues the event before it, and 24 bytes of that stand behind the stamp. ticks: of the ring's clock
 * since trace_ring.start_ticks, modulo 2^48; or for a slot that continues, how many still follow.
 *
 * Out of trace_read() the stamp is the time: CLOCK_REALTIME, ns, by one clock for all processes.
 */
struct trace_event {
	_Atomic uint64_t stamp;
	uint8_t kind; /* enum trace_kind */
	uint8_t opcode;
	uint8_t flags;
	uint8_t more; /* slots that follow and belong to it */
	uint32_t qpn;
	uint32_t index;
	uint32_t length;
	uint64_t arg;
};

/* ---- What may follow ---- */

struct trace_qp {
	uint8_t sgid[16], dgid[16]; /* from RTR on */
	uint32_t type;		    /* enum ibv_qp_type */
	uint32_t dest_qpn, sq_psn, rq_psn;
	uint32_t path_mtu; /* bytes */
	uint32_t max_send_wr, max_recv_wr;
	uint32_t send_cq, recv_cq;
	int32_t srq; /* or -1 */
	uint32_t wire; /* 1: its messages go over the wire */
};

struct trace_message {
	uint32_t sq_index;
	uint32_t dest_qpn;
	uint32_t rkey;
	uint32_t imm; /* network order; or the key that is invalidated */
	uint32_t qkey;
	uint32_t kept; /* bytes of payload that follow, of `length` */
	uint64_t compare_add, swap; /* atomics; the original value is in the payload */
	uint8_t dgid[16]; /* UD */
};

struct trace_packet {
	uint8_t sgid[16], dgid[16];
	uint16_t sport, dport; /* UDP, host order */
	uint32_t kept; /* bytes that follow, from the BTH on, of `length` */
};

/* The most of a payload or packet that is kept. */
#define TRACE_SNAP 4200

/* The whole ring is there, in memory, before anybody writes: no access can fail. */
struct trace_ring {
	uint64_t magic; /* TRACE_MAGIC */
	uint32_t version;
	uint32_t slots;	     /* a power of two */
	uint64_t start;	     /* CLOCK_REALTIME, ns, when it was made */
	uint64_t start_ticks;
	uint32_t clock;	     /* enum trace_clock */
	uint32_t pid;	     /* in its own PID namespace */
	uint64_t instance;   /* seg_header.instance of the process */
	uint64_t first;	     /* position at which this trace begins: what is before it was another observer's */
	_Atomic uint32_t snap; /* bytes kept of a payload: 0 or TRACE_SNAP at most; as the observer asked */
	char comm[16];
	_Alignas(64) _Atomic uint64_t next; /* writers: slots that were ever claimed */
	_Alignas(64) struct trace_event events[];
};

#define TRACE_MAGIC   0x65636172546f6375ull
#define TRACE_VERSION 1

/* What ticks are: where the kernel itself keeps time by the processor's counter, that; it is the same on all processors. */
enum trace_clock { TRACE_CLOCK_MONOTONIC /* ns */, TRACE_CLOCK_PROCESSOR };

/* ---- The process that is observed (nic/observed.h says when) ---- */

/* The ring that is written to now; NULL, mostly: nobody asks. A line of its own, that nobody writes to while messages go. */
extern struct trace_now {
	_Alignas(64) _Atomic(struct trace_ring *) ring;
} trace_now;

/* UROCE_UNTRACED: for bench/trace, to see what the branches cost. */
static inline bool trace_on(void)
{
#ifdef UROCE_UNTRACED
	return false;
#endif
	return __builtin_expect(!!atomic_load_explicit(&trace_now.ring, memory_order_relaxed), false);
}

/* A ring in memory of its own, *fd, for this process, named so: 0, or errno. */
int trace_make(struct trace_ring **ring, int *fd, uint64_t instance, const char name[16]);
void trace_unmake(struct trace_ring *ring, int fd);
/* For another observer, before he gets it: what is in it now is none of his. */
void trace_renew(struct trace_ring *ring);

/* From now on, and not any more. Who is writing meanwhile writes on: a ring stays until no thread can be. */
void trace_begin(struct trace_ring *ring, uint32_t snap);
void trace_end(void);

/*
 * Slots of the ring, all of one time, to be filled by trace_put() and the like, one after the other and to the last. Nothing here
 * waits, allocates or makes a system call, and all of it may be used in a signal handler.
 */
struct trace_claim {
	struct trace_ring *ring; /* NULL: tracing has ended */
	uint64_t position, ticks;
};
struct trace_claim trace_claim(unsigned slots);
void trace_put(struct trace_claim *claim, enum trace_kind kind, uint8_t opcode, uint8_t flags, uint32_t qpn, uint32_t index,
	       uint32_t length, uint64_t arg);

/* Slots of an event with so many bytes behind it. */
static inline unsigned trace_slots(size_t bytes)
{
	return 1 + (unsigned)((bytes + 23) / 24);
}

/* The same with bytes that follow: `head`, a struct of the above, and then `body`. */
void trace_put_more(struct trace_claim *claim, enum trace_kind kind, uint8_t opcode, uint8_t flags, uint32_t qpn, uint32_t index,
		    uint32_t length, uint64_t arg, const void *head, size_t head_bytes, const void *body, size_t body_bytes);

/* One event, if tracing is on. Far from those who do not call it. */
__attribute__((cold, noinline)) void trace_write(enum trace_kind kind, uint8_t opcode, uint8_t flags, uint32_t qpn, uint32_t index,
						 uint32_t length, uint64_t arg);

/* Bytes of a payload or packet of this length that are to be kept, of which the first `least` are headers. */
uint32_t trace_kept(uint64_t length, uint32_t least);

/* ---- The observer ---- */

struct trace_reader {
	struct trace_ring *ring;
	size_t bytes;	   /* mapped */
	int connection;	   /* to the process: readable when that has ended; -1: none */
	uint64_t position; /* next to be read */
	uint64_t dropped;  /* slots that were lost: written over before they were read, or never written by who claimed them */
	bool ended;	   /* the process writes no more */
	uint64_t waits_since; /* CLOCK_MONOTONIC ns: for the slot at `position`; 0: it does not */
};

/* Maps a ring, whose descriptor is closed in any case. 0, or errno. The connection is the reader's. */
int trace_open(struct trace_reader *reader, int fd, int connection);
/* The process writes no more. */
void trace_close(struct trace_reader *reader);

/*
 * The next events: their slots, whole events only, at most `max` of them (TRACE_MOST_SLOTS at least); returns how many. 0: there is
 * nothing now; and nothing will come, if reader->ended was set by the call. To be called often: at 10 million events a second a
 * ring is written over in a fifth of a second.
 */
#define TRACE_MOST_SLOTS 256u
uint32_t trace_read(struct trace_reader *reader, struct trace_event *out, uint32_t max);

/* The time of an event that was read: CLOCK_REALTIME, ns. */
static inline uint64_t trace_time(const struct trace_event *event)
{
	return atomic_load_explicit(&event->stamp, memory_order_relaxed);
}

/* The bytes behind an event that was read: copied to `to`, of event->more * 24 bytes of room; returns how many. */
size_t trace_more(const struct trace_event *event, void *to);

/*
 * A socket that processes give their rings to, and the name of it for the variable UROCE_TRACE (of 108 bytes): a file in TMPDIR or
 * /tmp, so that it is seen in all network namespaces. -1 with errno.
 */
#define TRACE_VARIABLE "UROCE_TRACE"
#define TRACE_NAME     108
int trace_listen(char *name);
/* Closes it, and removes the name. */
void trace_stop_listening(int socket, const char *name);
/* The next process, of this user, that gave its ring; it keeps `snap` bytes of payloads. False if none waits. */
bool trace_next(int socket, uint32_t snap, struct trace_reader *reader);

/* A process gives its ring to the listener that the variable names, and waits a moment for its answer, which is *snap. The connection, or
 * -1: there is none. */
int trace_give(const char *name, int ring, uint32_t *snap);

#endif
