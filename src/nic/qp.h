/* SPDX-License-Identifier: MIT */
/*
 * Queue pairs: creation, the state machine, the send queue. What executes the send queue is
 * nic/requester.c.
 */
#ifndef UROCE_NIC_QP_H
#define UROCE_NIC_QP_H

#include "nic/cq.h"
#include "nic/gid.h"
#include "nic/lock.h"
#include "nic/mw.h"
#include "nic/rq.h"
#include "nic/srq.h"
#include "nic/transport.h"

/* Where a UD message goes; what ibv_create_ah checked. */
struct nic_ah {
	uint32_t pd;
	union ibv_gid dgid, sgid;
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class, sl;
};

/* What an ibv_ah points to: the verbs face makes it, posting reads it. */
struct nic_ah_handle {
	struct ibv_ah ah; /* must be first */
	struct nic_ah nic;
};

static inline const struct nic_ah *nic_ah_of(const struct ibv_ah *ah)
{
	return &((const struct nic_ah_handle *)ah)->nic;
}

/* What an ibv_mw points to, in the same way. */
struct nic_mw_handle {
	struct ibv_mw mw; /* must be first */
	struct nic_mw nic;
};

/* A send WQE, private to the process. What every request has stands in one cache line, with its first SGE or its first
 * inline bytes. */
struct nic_swqe {
	struct nic_cqe cqe; /* when it is not brief: see nic/layout.h */
	union {
		struct {		  /* UD */
			struct nic_ah ah; /* a copy, so that the AH may be destroyed */
			uint32_t remote_qpn, remote_qkey;
		};
		struct {
			uint64_t compare_add, swap;
		};
		struct { /* a bind; rkey is the new one, remote_addr where the window begins */
			uint64_t window_length;
			uint32_t window; /* a key of it */
			uint32_t window_lkey, window_access;
		};
	};
	/* While somebody watches (observe/watch.h): the stack of its posting, and where a copy of its memory as it was then is kept
	 * (nic/buffers.h; 0: there is none). */
	uint32_t stack;
	uint64_t copy;
	nic_aligned uint64_t wr_id;
	uint64_t remote_addr;
	uint64_t length; /* bytes of the message */
	uint32_t rkey;
	uint32_t imm_data;
	uint32_t list_index; /* place in its posted list */
	/* enum ibv_send_flags; SIGNALED is set for all when the QP was made with sq_sig_all */
	uint16_t send_flags;
	uint8_t opcode;	 /* enum ibv_wr_opcode */
	uint8_t num_sge; /* 0 with IBV_SEND_INLINE */
	uint32_t psn, packets; /* on the wire: of its first packet, once it was sent; its number of packets */
	struct ibv_sge sge[]; /* or the inline bytes: see nic_swqe_inline() */
};

struct nic_qp {
	struct nic *nic;
	struct seg_qp *shared;
	uint32_t index, qpn, generation;
	enum ibv_qp_type type;
	uint32_t pd;
	bool sq_sig_all;
	struct ibv_qp_cap cap;
	struct nic_cq *send_cq, *recv_cq;
	struct nic_srq *srq; /* or NULL */
	struct nic_rq rq;
	void *handle;			/* the ibv_qp, for events */
	struct nic_event_queue *events; /* of its context */
	const struct gid_table *gids;	/* of its device; valid as long as the QP */
	uint32_t mtu; /* of the port, bytes: the longest datagram */

	struct nic_lock lock; /* everything below; taken by posters, pollers and the helper */
	enum ibv_qp_state state;
	struct ibv_qp_attr attr; /* as modify left it */
	uint32_t modified;	 /* how often it did */
	struct nic_ah path;	 /* RC, UC: from the primary path */

	uint8_t *sq; /* WQEs of stride bytes */
	uint32_t sq_stride, sq_log2;
	/* The oldest position not given back is shared->sent.head, for all to see. */
	uint64_t sq_exec;    /* next to execute */
	uint64_t sq_begun;   /* behind what a transport has sent ahead; meaningless if before sq_exec */
	uint64_t sq_tail;    /* next to post */
	uint64_t sq_claimed; /* extended API: sq_tail when the batch is committed */
	int batch_error;     /* extended API: why the batch cannot be committed */
	uint32_t batch_count;

	/* The WQE at sq_exec: reset when it is done. */
	uint64_t due; /* when to go on, CLOCK_MONOTONIC ns; 0: at once */
	uint8_t rnr_left, retry_left;
	bool started;	     /* retry counters are loaded */
	bool rnr_waits;	     /* has found no receive at the other end */
	uint32_t retries;    /* how often it was sent again, for whatever reason */
	uint64_t rnr_since;  /* since then, CLOCK_MONOTONIC ns */
	uint32_t rnr_timer;  /* how long each wait is, ns */
	uint32_t sq_psn;     /* of the next packet */
	uint64_t finish_at;  /* UROCE_TIMING: executed, to be completed at this time; 0: not so */
	bool rnr_told;	     /* that it takes long */

	bool flush_receives;	 /* error state: receives wait to be flushed until no visitor is left */
	bool flush_told;	 /* error state, and SQE: what flushed requests come of was told */
	bool last_wqe_raised;	 /* error state, SRQ: IBV_EVENT_QP_LAST_WQE_REACHED was raised */
	bool fatal_due;		 /* IBV_EVENT_QP_FATAL is to be raised: a CQ is in error */
	bool established;	 /* IBV_EVENT_COMM_EST was raised */
	bool drain_event;	 /* SQD: raise IBV_EVENT_SQ_DRAINED when the WQE at the head is done */
	enum cause_code flushes; /* error state, and SQE: what flushed requests are told to come of */
	uint32_t flushed_receives;
	uint64_t flush_deadline;
	const struct transport *transport; /* of the connection; UD: of the message under way; NULL before RTR */
	struct transport_state *ts;	   /* the local transport's, from connect to disconnect */
	struct wire_qp *wire;		   /* the wire's, in the same way */

	struct list of_deferred; /* nic->deferred; this and the next three under nic->lock */
	bool is_deferred;
	uint64_t poller_due;   /* when a poller of the send CQ may run it */
	uint64_t helper_due;   /* when the helper takes it, if no poller has run it by then */
	_Atomic uint32_t refs; /* helper and pollers that run it */
};

struct nic_qp_init {
	enum ibv_qp_type type; /* RC, UC, UD */
	uint32_t pd;
	struct nic_cq *send_cq, *recv_cq;
	struct nic_srq *srq;
	struct ibv_qp_cap cap; /* asked for; checked against the device's limits by the caller */
	bool sq_sig_all;
	const struct gid_table *gids;
	uint32_t mtu;
};

/* 0, or errno (ENOMEM). cap says what was made: at least what was asked for. Set handle and events
 * afterwards. */
int nic_qp_create(struct nic *nic, const struct nic_qp_init *init, struct nic_qp *qp);
void nic_qp_destroy(struct nic_qp *qp);

/* The state machine of specification section 10.3.1: 0, or errno with a cause. */
int nic_qp_modify(struct nic_qp *qp, const struct ibv_qp_attr *attr, int mask);
/* Fills all of *attr that has a meaning; state included. */
void nic_qp_query(struct nic_qp *qp, struct ibv_qp_attr *attr);

/* 0, or a positive errno with *bad_wr. */
int nic_qp_post_send(struct nic_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int nic_qp_post_recv(struct nic_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/*
 * Posting one by one, for the extended API (ibv_wr_*): lock, then for each WR nic_qp_claim, fill,
 * and at the end commit or abort. The lock is held from begin to commit or abort.
 */
void nic_qp_begin(struct nic_qp *qp);
/* The next WQE, with wr_id, opcode, flags, lists empty; NULL with a positive errno in *error
 * (EINVAL state, ENOMEM). */
struct nic_swqe *nic_qp_claim(struct nic_qp *qp, uint64_t wr_id, enum ibv_wr_opcode opcode,
			      unsigned flags, int *error);
/* SGEs or inline bytes of a claimed WQE; a positive errno when there are too many. */
int nic_swqe_set_sges(struct nic_qp *qp, struct nic_swqe *wqe, const struct ibv_sge *sge,
		      uint32_t num_sge);
int nic_swqe_set_inline(struct nic_qp *qp, struct nic_swqe *wqe, const struct ibv_data_buf *buf,
			size_t num_buf);
/* What a claimed IBV_WR_BIND_MW binds, to what, and its new key: 0, or EINVAL. */
int nic_swqe_set_bind(struct nic_qp *qp, struct nic_swqe *wqe, const struct ibv_mw *mw, uint32_t rkey,
		      const struct ibv_mw_bind_info *info);
/* Checks what can be said only now (UD without AH, atomic length…), publishes, runs, unlocks. On
 * error nothing of the batch is posted. */
int nic_qp_commit(struct nic_qp *qp);
void nic_qp_abort(struct nic_qp *qp);

/* Where a WQE's inline bytes stand. */
static inline uint8_t *nic_swqe_inline(struct nic_swqe *wqe)
{
	return (uint8_t *)wqe->sge;
}

static inline struct nic_swqe *qp_swqe(struct nic_qp *qp, uint64_t position)
{
	return (struct nic_swqe *)(qp->sq + (position & ((1u << qp->sq_log2) - 1)) * qp->sq_stride);
}

/* Owner, upon attention. */
void nic_qp_attend(struct nic_qp *qp);

/* Moves a QP to the error state; lock held. requester_run(), which must follow, flushes it: requests are told to come of `flushes`. */
void nic_qp_fail(struct nic_qp *qp, enum cause_code flushes);
/* A request was flushed: to be counted under what it comes of. */
void nic_qp_count_flush(const struct nic_qp *qp);
/* Changes the state, also as initiators see it; lock held. */
void nic_qp_set_state(struct nic_qp *qp, enum ibv_qp_state state);
/* Completes all undelivered receives with WR_FLUSH_ERR; lock held, in the error state. all: nobody
 * is visiting, so also those that a taker began. */
void nic_qp_flush_receives(struct nic_qp *qp, bool all);
void nic_qp_raise(struct nic_qp *qp, enum ibv_event_type type);
/* Moves to the error state all that complete into CQ `cq`, which is in error; then, when that was told: IBV_EVENT_QP_FATAL
 * (specification 11.6.3.2). */
void nic_qp_fail_users(struct nic *nic, uint32_t cq);
void nic_qp_raise_users(struct nic *nic, uint32_t cq);

/* Writes into the trace what the QP is, and its state, or 255; lock held. */
void nic_qp_trace(const struct nic_qp *qp, uint8_t state);

/* A reference that keeps the QP from being destroyed; NULL if there is none of this index. */
struct nic_qp *nic_qp_get(struct nic *nic, uint32_t index);
void nic_qp_put(struct nic_qp *qp);

#endif
