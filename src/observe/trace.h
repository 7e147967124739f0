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
 * 32 bytes. stamp: lap 15 | more 1 | time 48; stored last (release), and 0 before. lap: of the ring, from 1, never 0 (modulo 2^15 - 1);
 * more: this slot continues the event before it, and 24 bytes of that stand behind the stamp. time: ns since trace_ring.start,
 * or for a slot that continues, how many still follow.
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

struct trace_ring {
	uint64_t magic; /* TRACE_MAGIC */
	uint32_t version;
	uint32_t slots;	     /* a power of two */
	uint64_t start;	     /* CLOCK_REALTIME, ns, of time 0 */
	uint64_t instance;   /* seg_header.instance of the process */
	uint32_t pid;	     /* in its own PID namespace */
	uint32_t snap;	     /* bytes kept of a payload; the observer sets it, 0 at first */
	char comm[16];
	_Alignas(64) _Atomic uint64_t next; /* writers: slots that were ever claimed */
	_Alignas(64) struct trace_event events[];
};

#define TRACE_MAGIC 0x65636172546f6375ull

#endif
