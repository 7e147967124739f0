/* SPDX-License-Identifier: MIT */
/*
 * The model of a trace: events of all processes, told one by one in the order of their time, become the lives of requests and queues.
 * docs/trace-model.md says what its parts mean to who reads them.
 *
 * Nothing is taken for granted of the events: some may be lost, come a moment late or be of objects that were there before the trace.
 * A life is made by whichever event of it is the first. Numbers are used again: a QP's when it was destroyed, a receive's slot when
 * it was polled, a send queue's index after 2^32. Ids of things are their places in the arrays here; NONE where there is none.
 */
#ifndef UROCE_TOOLS_TRACE_MODEL_H
#define UROCE_TOOLS_TRACE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/cause.h"
#include "observe/trace.h"

#define TRACE_NONE  UINT32_MAX /* an id, index, length or PSN that is not known */
#define TRACE_NEVER UINT64_MAX /* a time that is not known */

/* One event as it is told. */
struct trace_item {
	uint64_t time;	  /* ns since the start of the trace */
	uint32_t process; /* id */
	const struct trace_event *event;
	const void *more; /* struct trace_qp and so on; not aligned */
	size_t bytes;	  /* of it */
};

/* Points of a request's life, in the order in which most are reached. */
enum trace_point {
	TRACE_POINT_POSTED,
	TRACE_POINT_RUNG,
	TRACE_POINT_SEEN,
	TRACE_POINT_GATHERED,
	TRACE_POINT_SENT,
	TRACE_POINT_TAKEN,
	TRACE_POINT_PLACED,
	TRACE_POINT_ACKED,
	TRACE_POINT_CQE,
	TRACE_POINT_POLLED,
	TRACE_POINTS,
};
extern const char *const trace_point_names[TRACE_POINTS];

#define TRACE_NO_STATUS 0xff

struct trace_send {
	uint64_t at[TRACE_POINTS];
	uint64_t wr_id, addr;
	uint32_t qp, index, length, psn, packets;
	uint32_t dest;	  /* QP */
	uint32_t receive; /* that it took */
	uint32_t cause;
	uint32_t list;
	uint16_t retries;
	uint8_t opcode; /* enum ibv_wr_opcode; TRACE_NO_STATUS: not known */
	uint8_t flags;
	uint8_t status;
	bool has_wr_id;
};

/* TRACE_POINT_POSTED, TAKEN, PLACED, CQE and POLLED of it. */
struct trace_receive {
	uint64_t posted, taken, placed, cqe, polled;
	uint64_t wr_id;
	uint32_t qp, srq, index, room, length, send;
	uint8_t status;
	bool has_wr_id;
};

/* How full a queue was. Where there are many points two neighbours become one. */
struct trace_fill_point {
	uint64_t time;
	uint32_t low, high; /* from then to the next point */
};

struct trace_fill {
	struct trace_fill_point *points;
	uint32_t count, room;
	uint64_t width; /* ns that a point stands for at least; 0: none was merged */
	uint32_t now, max;
};

struct trace_process {
	uint32_t pid, host;
	char name[17];
	uint64_t events, dropped;
};

struct trace_state {
	uint64_t time;
	uint8_t state; /* enum ibv_qp_state */
};

struct trace_queue_pair {
	uint32_t qpn, process, host;
	bool known; /* attr holds */
	struct trace_qp attr;
	uint32_t peer;
	uint64_t created, destroyed;
	struct trace_state *states;
	uint32_t state_count;
	struct trace_fill sq, rq;
	/* Requests by their index, and by PSN what they sent on the wire: ids + 1, of the last that had this place */
	uint32_t *sends, *receives, *psns;
	bool began;	     /* head and tail hold */
	uint32_t head, tail; /* of the send queue: the next to be posted, and the first that may not be done */
	uint32_t next_psn;   /* of its next message through shared memory */
	bool sending;	     /* next_sent holds */
	uint32_t next_sent;  /* on the wire: the request that the next new packet begins */
	uint32_t read_left;  /* bytes of it that are still to be asked for */
	uint32_t arriving;   /* on the wire: id of the peer's request that the last packet was of */
	uint32_t cause;	     /* the last, of no request so far */
};

/* Of a CQ or SRQ. */
struct trace_queue {
	uint32_t number, process, entries;
	uint64_t created, destroyed;
	struct trace_fill fill;
	uint32_t *receives; /* of an SRQ, as those of a QP */
};

enum trace_cq_kind { TRACE_CQ_EMPTY, TRACE_CQ_ARMED, TRACE_CQ_ARMED_SOLICITED, TRACE_CQ_FIRED, TRACE_CQ_AWOKE };

struct trace_cq_event {
	uint64_t time;
	uint32_t cq;
	uint8_t kind;
};

struct trace_again {
	uint64_t time;
	uint32_t qp, send, count;
	uint8_t kind; /* enum trace_retry */
};

struct trace_packet_seen {
	uint64_t time;
	uint32_t qp, psn, length, send;
	uint8_t opcode;
	bool out, again;
};

struct trace_cause {
	uint64_t time, position;
	uint32_t process, qp, send, code;
	int32_t error;
	bool told; /* record holds */
	struct cause record;
};

/* An array that grows: `all` of it are known by their number, but no more than so many are kept. */
#define TRACE_ARRAY(type)       \
	struct {                \
		type *at;       \
		uint32_t count; \
		uint64_t total; \
		uint32_t room;  \
	}

struct trace_model {
	uint64_t duration, events, dropped;
	bool short_of_memory; /* something is missing for want of it */
	TRACE_ARRAY(struct trace_process) processes;
	TRACE_ARRAY(struct trace_queue_pair) qps;
	TRACE_ARRAY(struct trace_queue) cqs;
	TRACE_ARRAY(struct trace_queue) srqs;
	TRACE_ARRAY(struct trace_send) sends;
	TRACE_ARRAY(struct trace_receive) receives;
	TRACE_ARRAY(struct trace_packet_seen) packets;
	TRACE_ARRAY(struct trace_cq_event) cq_events;
	TRACE_ARRAY(struct trace_again) retries;
	TRACE_ARRAY(struct trace_cause) causes;
	void *numbers; /* ids of QPs, CQs and SRQs by their numbers: a tree of tsearch(3) */
	/* Fills in the record at a position of a process's ring of causes, if it is still there. May be NULL. */
	bool (*find_cause)(void *arg, uint32_t process, uint64_t position, struct cause *record);
	void *find_cause_arg;
};

/* Packets, events of CQs, retries and causes beyond so many of each are counted only. */
#define TRACE_KEPT_MARKS 200000u

/* Adds a process before its events are told; its id, or TRACE_NONE for want of memory. */
uint32_t trace_model_process(struct trace_model *model, uint32_t pid, uint32_t host, const char *name);

void trace_model_tell(struct trace_model *model, const struct trace_item *item);

/* When all were told: finds the peers of queue pairs, and joins the causes of two ends. */
void trace_model_end(struct trace_model *model);

void trace_model_free(struct trace_model *model);

/* The QP that has, or had last, this number; TRACE_NONE. */
uint32_t trace_model_qp(const struct trace_model *model, uint32_t host, uint32_t qpn);

/* The CQ or SRQ of a process that has, or had last, this number; NULL. */
const struct trace_queue *trace_model_cq(const struct trace_model *model, uint32_t process, uint32_t number);
const struct trace_queue *trace_model_srq(const struct trace_model *model, uint32_t process, uint32_t number);

/* The request of a QP with this index of its send queue; TRACE_NONE if it is not known (any more). */
uint32_t trace_model_send(const struct trace_model *model, uint32_t qp, uint32_t index);

/* The first time that is known. */
uint64_t trace_send_start(const struct trace_send *send);
uint64_t trace_receive_start(const struct trace_receive *receive);

/* ibv_wr_opcode without IBV_WR_; NULL: there is no such. */
const char *trace_opcode_name(uint8_t opcode);

#endif
