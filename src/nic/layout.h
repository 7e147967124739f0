/* SPDX-License-Identifier: MIT */
/*
 * The segment: everything of one process's NIC that other processes read or write.
 *
 * One memfd per process, mapped whole by its owner and by every attached peer (src/local/attach.c).
 * It starts with struct nic_segment below; the rest is the arena that holds the rings. The file is
 * sparse: the owner commits pages with fallocate before anybody can reach them, and the file is
 * sealed against shrinking, so no access ever raises SIGBUS.
 *
 * Two processes whose NIC_LAYOUT_VERSION differs refuse each other. Whoever changes anything here
 * raises it.
 *
 * Each field says who writes it. "Initiator" is the thread, of any attached process, that runs a
 * message against this segment, always inside a visit (nic/visit.h). Orders and crash cases:
 * docs/protocols.md.
 */
#ifndef UROCE_NIC_LAYOUT_H
#define UROCE_NIC_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "observe/cause.h"
#include "observe/counters.h"
#include "observe/story.h"

#define NIC_LAYOUT_VERSION 18
#define NIC_MAGIC	   0x65636f7275ULL /* "uroce" */

/* A QPN is slot << 14 | index. Slot 0 is kept for QP0 and QP1. A process takes up to four slots. */
#define NIC_QPN_INDEX_BITS 14
#define NIC_SLOTS	   1024
#define NIC_OWN_SLOTS	   4
#define NIC_MAX_QP	   (NIC_OWN_SLOTS << NIC_QPN_INDEX_BITS)
#define NIC_MAX_CQ	   65536
#define NIC_MAX_SRQ	   65536
#define NIC_MAX_MR_LOG2	   20
#define NIC_MAX_MR	   (1u << NIC_MAX_MR_LOG2)
#define NIC_MAX_MW	   65536 /* they take entries of the regions' table */
#define NIC_MAX_WR	   32768
#define NIC_MAX_CQE	   ((1 << 23) - 1)
#define NIC_MAX_SGE	   32
#define NIC_PAGE_MIN	   4096
#define NIC_PAGE_MAX	   65536 /* of any machine */
#define NIC_MAX_INLINE	   1024
#define NIC_MAX_RD_ATOMIC  128
#define NIC_MAX_MSG	   (1ULL << 31)
#define NIC_VISITS	   128
#define NIC_TOUCHES	   (NIC_MAX_SGE + 1) /* a receive's regions, and a window that is invalidated */
#define NIC_FILES	   64
#define NIC_CAUSES	   4096
#define NIC_DEVICES_BYTES  128
#define NIC_CACHE_LINE	   64

#define nic_aligned __attribute__((aligned(NIC_CACHE_LINE)))

/* A completion of which there is more to say than struct seg_cq_entry can: written by whoever completes the
 * work request into the WQE that it completes, before its reference is published in the CQ. Read by the CQ's
 * consumer only. */
struct nic_cqe {
	uint64_t wr_id;
	uint64_t timestamp; /* CLOCK_REALTIME, ns; 0 in a CQ that does not ask for them */
	uint32_t status;    /* enum ibv_wc_status */
	uint32_t opcode;    /* enum ibv_wc_opcode */
	uint32_t byte_len;
	uint32_t imm_data; /* network order */
	uint32_t qp_num;
	uint32_t src_qp;
	uint32_t wc_flags;
	uint32_t vendor_err; /* enum cause_code */
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
	uint32_t reserved;
};

/* A receive WQE: slot of an RQ or SRQ. The owner writes it before it makes the slot available in
 * the FIFO; the initiator that took it writes cqe; nobody else touches it until the completion is
 * polled. */
struct nic_rwqe {
	struct nic_cqe cqe;
	uint64_t wr_id;
	uint64_t room; /* bytes of all SGEs */
	uint32_t num_sge;
	uint32_t stack; /* of its posting (observe/watch.h); meaningless while nobody watches */
	struct ibv_sge sge[]; /* the queue's max_sge */
};

/*
 * The FIFO of an RQ or SRQ: log2 words that name slots in the order in which they were posted. Word
 * of position p:
 *   lap 23 | taker's QPN 24 | state 2 | slot 15      lap = p >> log2, truncated
 * The owner turns the last lap's word into AVAILABLE at tail; an initiator turns AVAILABLE into
 * TAKEN at head by CAS.
 * In an AVAILABLE word the taker's place holds the life of the queue (nic_qp_life of its QP; 0 in
 * an SRQ): one who was
 * admitted in another life takes nothing.
 */
enum nic_fifo_state {
	NIC_FIFO_AVAILABLE = 1,
	NIC_FIFO_TAKEN = 2,
	NIC_FIFO_DONE =
		3, /* datagrams in an RQ: taken, and its completion is published; see rq_take() */
};

struct seg_rq {
	nic_aligned uint64_t fifo; /* owner, at creation: offset of the words */
	uint64_t slots;		   /* owner, at creation: offset of the WQEs */
	uint32_t stride;	   /* bytes from WQE to WQE */
	uint32_t max_sge;
	uint32_t max_wr;
	uint16_t log2;
	uint16_t one_taker; /* of a connected QP: one initiator takes, and slots come back in order */
	/* SRQ: owner arms it; the initiator that falls below it turns it into NIC_LIMIT_FIRED by
	 * CAS and tells the owner, as does everyone who finds it fired; the owner takes that by
	 * CAS. */
	_Atomic uint32_t limit;
	/* Initiators: next position to take; advanced by anyone past TAKEN words. */
	nic_aligned _Atomic uint64_t head;
	_Atomic uint64_t datagram_bytes; /* initiators, by adds: received by UD QPs, without headers */
	_Atomic uint32_t out_of_buffer;	 /* initiators, by adds: messages that found nothing posted */
	/* Owner: next position to post; release after the FIFO word. */
	nic_aligned _Atomic uint64_t tail;
	_Atomic uint32_t high; /* the same: most that were posted and not yet polled */
	/* Owner, while somebody is told: when it first posted after a message had found nothing (CLOCK_MONOTONIC ns), and what
	 * out_of_buffer was then. */
	_Atomic uint32_t filled_after;
	_Atomic uint64_t filled_at;
};

#define NIC_LIMIT_FIRED (1u << 31)

/*
 * State of a QP as initiators see it, one word: generation 32 | flags 16 | type 8 | enum
 * ibv_qp_state 8. The owner stores it; each RESET and each new QP in this place has another
 * generation. An initiator only adds one of the flags below, by CAS from a word of the generation
 * that it was admitted by, and then tells the owner. Whoever finds an error flag tells the owner
 * again: who set it may have been stopped before he did.
 */
#define NIC_QP_EXISTS	  (1ull << 16)
#define NIC_QP_ACCESS_ERR (1ull << 17) /* raise IBV_EVENT_QP_ACCESS_ERR, go to the error state */
#define NIC_QP_REQ_ERR	  (1ull << 18) /* raise IBV_EVENT_QP_REQ_ERR, go to the error state */
#define NIC_QP_FAILED \
	(1ull << 19) /* a receive failed, or its CQ is in error: go to the error state */
#define NIC_QP_COMM_EST	  (1ull << 20) /* raise IBV_EVENT_COMM_EST: a message arrived in RTR */
#define NIC_QP_RESP_ERROR (NIC_QP_ACCESS_ERR | NIC_QP_REQ_ERR | NIC_QP_FAILED)

static inline uint32_t nic_qp_life(uint64_t state)
{
	return state >> 32;
}

/* What requests are counted by. */
enum nic_kind { NIC_SENDS, NIC_WRITES, NIC_READS, NIC_ATOMICS, NIC_KINDS };

/* Of an opcode: two bits each, in the order of enum ibv_wr_opcode. */
#define NIC_KIND(opcode, kind) ((uint32_t)(kind) << 2 * (opcode))
static inline enum nic_kind nic_kind(enum ibv_wr_opcode opcode)
{
	const uint32_t kinds = NIC_KIND(IBV_WR_RDMA_WRITE, NIC_WRITES) | NIC_KIND(IBV_WR_RDMA_WRITE_WITH_IMM, NIC_WRITES) |
			       NIC_KIND(IBV_WR_SEND, NIC_SENDS) | NIC_KIND(IBV_WR_SEND_WITH_IMM, NIC_SENDS) |
			       NIC_KIND(IBV_WR_SEND_WITH_INV, NIC_SENDS) |
			       NIC_KIND(IBV_WR_RDMA_READ, NIC_READS) | NIC_KIND(IBV_WR_ATOMIC_CMP_AND_SWP, NIC_ATOMICS) |
			       NIC_KIND(IBV_WR_ATOMIC_FETCH_AND_ADD, NIC_ATOMICS);

	return (enum nic_kind)(kinds >> 2 * opcode & 3);
}

/* The send queue as it may be seen, and what was executed. Written by the owner under the QP's lock, `head` by its threads that
 * poll (release: its posters read it); read by anyone. Positions are modulo 2^32: head <= executed <= posted. */
struct seg_sent {
	_Atomic uint64_t requests[NIC_KINDS];
	_Atomic uint64_t bytes;
	_Atomic uint64_t mapped;   /* copies between mapped pages */
	_Atomic uint32_t head;	   /* the oldest that was not given back */
	_Atomic uint32_t executed; /* behind the last that was completed */
	_Atomic uint32_t posted;   /* behind the last that was posted */
	_Atomic uint32_t high;	   /* most between head and posted */
};

/* What arrived from the peer of a connected QP. Written by the one initiator that is connected, or the owner for the wire. Of
 * datagrams the RQ tells: seg_rq.head, seg_rq.datagram_bytes. */
struct seg_received {
	_Atomic uint64_t requests[NIC_KINDS];
	_Atomic uint64_t bytes;
};

/* What happens seldom, modulo 2^32 (the device's counters of these names are not). By adds; read by anyone. */
struct seg_qp_events {
	/* Owner */
	_Atomic uint32_t rnr_nak_retry_err, retry_rnr_exceeded_err, local_ack_timeout_err, retry_exceeded_err;
	_Atomic uint32_t packet_seq_err, req_cqe_error, req_cqe_flush_error;
	/* Owner or initiators */
	_Atomic uint32_t resp_cqe_error;
};

struct seg_qp {
	nic_aligned _Atomic uint64_t state;
	/* To rq, where nothing else is said: written by the owner before the state that makes it
	 * matter is stored (release). */
	uint32_t qpn;
	uint32_t pd;
	uint32_t recv_cq;
	int32_t srq; /* index, or -1 */
	uint32_t dest_qpn;
	uint32_t path_mtu; /* bytes */
	uint32_t qkey;
	uint32_t max_dest_rd_atomic;
	_Atomic uint32_t access;	/* enum ibv_access_flags of the QP */
	_Atomic uint32_t min_rnr_timer; /* code, specification table 45 */
	_Atomic uint64_t
		peer_instance; /* the life of the process that owns dest_qpn; 0 while unknown */
	uint32_t send_cq;      /* this and the next: for who looks from outside */
	uint32_t max_send_wr;
	/* Responder state, written by the one initiator that is connected: a line of its own, since
	 * the owner looks at its state whenever it posts. */
	nic_aligned _Atomic uint32_t epsn;
	_Atomic uint32_t out_of_sequence, duplicate_request; /* the wire's owner; modulo 2^32 */
	struct seg_received received;
	_Atomic uint64_t drops; /* UC and UD messages dropped, by any initiator */
	/* Owner, with dest_qpn; not looked at on the way that most messages go. */
	nic_aligned union ibv_gid sgid, dgid;
	struct seg_qp_events events;
	/* Initiators, before a flag of NIC_QP_RESP_ERROR: the number of its cause in the owner's ring (cause_leave), CAUSE_TOLD, or
	 * 0: not known */
	_Atomic uint64_t why;
	nic_aligned struct seg_sent sent;
	struct seg_rq rq;
};

struct seg_srq {
	nic_aligned _Atomic uint32_t exists; /* owner */
	uint32_t pd;
	struct seg_rq rq;
};

/*
 * An entry of a CQ ring: a word and what it brings, published by one CAS of both.
 *   word: lap 31 | kind 2 | object index 16 | slot 15     lap = position >> log2, truncated
 * EMPTY with the lap of position p: p can be published. The consumer turns a word into EMPTY of the next
 * lap. A resize ends a ring with the word MOVED at its tail (kind EMPTY, slot 0x7fff); the ring goes on in
 * `next`.
 *   brief: opcode 8 | QPN 24 | bytes 32
 * All that there is to say about most completions, which spares a cache line on its way: success, nothing
 * immediate, no timestamp, a service level of 0. 0, also in an EMPTY entry: it stands in the WQE.
 */
enum nic_ref_kind { NIC_REF_EMPTY, NIC_REF_SQ, NIC_REF_RQ, NIC_REF_SRQ };

struct seg_cq_entry {
	_Alignas(16) _Atomic uint64_t word;
	uint64_t brief; /* initiator: by the CAS; owner: 0 before it stores EMPTY (release) */
};

struct seg_cq_ring {
	nic_aligned _Atomic uint64_t tail; /* hint, advanced by anyone past published words */
	nic_aligned uint32_t log2;	   /* owner, before the ring can be reached */
	uint32_t mask;			   /* the same: positions to entries */
	_Atomic uint64_t next; /* owner: offset of the ring that follows, before MOVED is stored */
	nic_aligned struct seg_cq_entry entries[];
};

/* seg_cq.arm */
enum nic_arm {
	NIC_ARM_NONE,
	NIC_ARM_SOLICITED,
	NIC_ARM_ANY,
	NIC_ARM_FIRED, /* an event is due and not yet delivered to the channel */
};

struct seg_cq {
	nic_aligned _Atomic uint64_t
		ring; /* owner: offset of the current ring, 0 when the CQ does not exist */
	_Atomic uint32_t
		arm; /* owner arms; initiators turn armed into FIRED by CAS; owner takes FIRED */
	_Atomic uint32_t error;	     /* initiators or owner: 1 after an overflow */
	_Atomic uint32_t timestamps; /* owner, at creation: completions carry one */
	_Atomic uint32_t high;	     /* owner, when it polls and finds more than ever: most completions that waited */
	_Atomic uint64_t overflows;  /* completions lost, by anyone */
	_Atomic uint64_t earlier;    /* owner, at a resize: completions that the rings before this one have brought */
};

/* Why not all of a region is mapped. */
enum nic_unmapped {
	NIC_MAPPED,
	NIC_UNMAPPED_OFF,     /* there is no pages file */
	NIC_UNMAPPED_EDGE,    /* pages that the region covers in part */
	NIC_UNMAPPED_KIND,    /* neither private nor of one shared file, or not writable */
	NIC_UNMAPPED_SHRINKS, /* a shared file that can lose pages */
	NIC_UNMAPPED_CLOSED,  /* a shared file that the owner cannot open */
	NIC_UNMAPPED_STACK,   /* a thread's stack is there */
	NIC_UNMAPPED_KNOWN,   /* an earlier region has it, and it was not mapped then */
	NIC_UNMAPPED_SPLIT,   /* mapped, but apart from the longest run */
	NIC_UNMAPPED_THREADS, /* other threads, and nothing that holds them (userfaultfd) */
	NIC_UNMAPPED_PINNED,  /* a device or the kernel uses the pages */
	NIC_UNMAPPED_LIMIT,   /* too many mappings (vm.max_map_count), or NIC_FILES */
	NIC_UNMAPPED_MEMORY,  /* no memory */
	NIC_UNMAPPED_FORK,    /* it was, until a fork */
	NIC_UNMAPPED_STOPPED, /* a process that is stopped may still store to these pages of the file */
	NIC_UNMAPPED_REASONS,
};

/*
 * A memory region, or a memory window. Word `state`: tag 11 | valid 1 | access 20, in bits 0..31. A key is (index ^
 * key_mask) << 12 | tag << 1 | r, where r is 0 in the lkey and 1 in the rkey. The owner writes the
 * other fields while state says invalid; deregistration stores invalid, then waits until every
 * visit that may have seen it valid is over.
 *
 * A window is never "valid": who looks for a region does not find it. Its state has NIC_MW, its only key's bit 0 is
 * NIC_MW_KEY_ODD, and NIC_MW_BOUND says that the fields may be used. The owner sets that; the owner, or the initiator of a SEND
 * with Invalidate, takes it away by CAS. `addr` of a window is in its region's address space.
 */
struct seg_mr {
	_Atomic uint64_t state;
	uint64_t addr;	 /* in the owner's address space */
	uint64_t length; /* bytes */
	uint64_t iova;	 /* what remote addresses and SGEs name the first byte */
	uint32_t pd;
	union {
		uint32_t unmapped; /* enum nic_unmapped */
		uint32_t qpn;	   /* window of type 2: by which it was bound, and by which alone it is used */
	};
	/* What of it peers reach through a file of the owner, in the owner's address space; none: 0, 0. With the pages file
	 * the owner ends that before fork by storing 0 to mapped_end while the region stays valid. */
	_Atomic uint64_t mapped_start, mapped_end;
	union {
		uint32_t file;	 /* 0: the pages file; else seg_file.file of the one that has it all */
		_Atomic uint32_t region; /* window: index + 1 of the region that it lies in; 0: nobody looks at these fields */
	};
	_Atomic uint32_t refused; /* by anyone: accesses with its key that were not right */
};
#define NIC_MR_VALID   (1ull << 20)
#define NIC_MW	       (1ull << 32)
#define NIC_MW_BOUND   (1ull << 33)
#define NIC_MW_TYPE_2  (1ull << 34)
#define NIC_MW_KEY_ODD (1ull << 35)
/* Of a region, for the owner alone: how many windows' `region` it is. */
#define NIC_MR_WINDOWS (1ull << 40)

/*
 * A file that regions of the owner lie in (nic/files.h). The owner writes it before a region that names it is valid, and
 * ends it after the last such region has become invalid and visits are over.
 */
struct seg_file {
	/* Names this use of the entry, which is number file % NIC_FILES; 0: not in use. After the rest (release). */
	_Atomic uint32_t file;
	int32_t fd; /* the owner's descriptor */
	uint64_t inode;
	uint64_t start; /* where its first byte is, or would be, in the owner's address space */
	uint64_t size;	/* bytes, whole pages */
	/* Initiators, before they map it: they are to be rung when it ends. */
	_Atomic uint32_t viewed;
	uint32_t reserved;
};

/*
 * A visit: this process's thread works on another segment (or its own). word is target's primary slot
 * | count << 10; slot 0 is no process's: then there is no visit. Stored by the thread that keeps the
 * word (nic.visit_owners), or claimed by CAS from 0 by any; ended by a store (release). Read by the
 * target's owner, who waits for it to change before it reuses what it took back.
 *
 * The rest says what the visit is about, and is the visitor's too, but for `evicted`.
 */
struct seg_visit {
	nic_aligned _Atomic uint64_t word;
	/* Owner of the target: the word of a visit that it has given up waiting for; what that touches counts for nothing. */
	_Atomic uint64_t evicted;
	/* The same word, from before the kernel is asked to copy to or from the target's memory. */
	_Atomic uint64_t copying;
	/* Keys of the target that this visit looks at, the lowest bit set; the count before the word that begins the visit, and
	 * each before the look. More than there is room for: any. */
	_Atomic uint32_t touches;
	_Atomic uint32_t keys[NIC_TOUCHES];
};

/* Bits that tell the owner's helper which objects want it. The leaf is set first, then the summary,
 * then the doorbell is rung; the helper takes them in the opposite order. After a peer's death the
 * helper scans the leaves. */
struct seg_attention {
	nic_aligned _Atomic uint64_t summary[16];
	_Atomic uint64_t leaf[1024];
};

/*
 * What is to be said for the owner if it is killed: a connection of src/cm to another host, which would not hear of it. The owner
 * writes it; of the processes that are attached and outlive it, the one that turns `state` from 1 into 2 by CAS sends the DREQ.
 */
struct seg_will {
	_Atomic uint32_t state; /* owner: 1 when the rest is there (release), 0 when the connection is over */
	uint32_t local_id, remote_id, remote_qpn;
	union ibv_gid sgid, dgid;
	uint8_t traffic_class, hop_limit;
	uint16_t port; /* UDP */
	uint32_t reserved;
};

#define NIC_WILLS 255

struct seg_wills {
	nic_aligned _Atomic uint64_t next; /* owner: offset of more of them, or 0; after they are zero */
	struct seg_will will[NIC_WILLS];
};

struct seg_header {
	uint64_t magic;
	uint32_t version;
	uint32_t primary_slot;
	uint64_t instance; /* random, never 0: names this process's life */
	uint64_t size;	   /* bytes of the file */
	uint64_t self_va;  /* where the owner has mapped it: probes whether CMA reaches the owner */
	uint32_t pid;	   /* in the owner's PID namespace: for people */
	uint32_t uid;
	uint32_t key_mask; /* of memory keys, below NIC_MAX_MR */
	uint32_t wire_only;  /* it takes no messages by shared memory: UROCE_TRANSPORT=roce */
	uint32_t membarrier; /* the owner's membarrier(2) reaches others, and theirs the owner: see nic/visit.h */
	_Atomic uint32_t slot_count;
	_Atomic uint32_t slots[NIC_OWN_SLOTS];
	_Atomic uint64_t wills; /* owner: offset of the first struct seg_wills, or 0 */
	_Atomic uint64_t watch; /* owner: offset of its struct watch (observe/watch.h), or 0 */
	char comm[16];
	/* For who may read the owner's memory (uroce top): the tables of its private struct nic_qp and nic_cq, by index, and the
	 * sizes of what they hold, which tell another build from ours. */
	uint64_t qps_va, cqs_va;
	uint32_t qp_bytes, cq_bytes, swqe_bytes;
	char devices[NIC_DEVICES_BYTES]; /* names of those that were ever opened, with '+' between; for people */
};

struct nic_segment {
	struct seg_header hdr; /* owner, before anybody attaches */
	struct seg_visit visits[NIC_VISITS];
	struct seg_attention qp_attention, cq_attention, srq_attention;
	struct device_counters counters;
	struct cause_ring causes;
	struct story_ring stories;
	struct seg_file files[NIC_FILES];
	/* Of each mapping (nic/mapping.h); holds nothing. Wherever a page's multiple is from its beginning, it has that page. */
	_Alignas(NIC_PAGE_MIN) uint8_t guard[2 * NIC_PAGE_MAX - NIC_PAGE_MIN];
	struct seg_cq cqs[NIC_MAX_CQ];
	struct seg_srq srqs[NIC_MAX_SRQ];
	struct seg_qp qps[NIC_MAX_QP];
	struct seg_mr mrs[NIC_MAX_MR];
	_Alignas(NIC_PAGE_MIN) uint8_t
		arena[]; /* offsets in the structures above count from the segment's start */
};

static inline void *seg_at(struct nic_segment *seg, uint64_t offset)
{
	return (uint8_t *)seg + offset;
}

#endif
