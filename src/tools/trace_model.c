/* SPDX-License-Identifier: MIT */
#include "tools/trace_model.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "roce/packet.h"
#include "tools/trace_causes.h"
#include "tools/trace_fill.h"

#define PLACES	     65536u /* of requests that a queue pair remembers: more than a queue has */
#define PLACE(i)     ((i) & (PLACES - 1))
#define LATE_POST    100000 /* ns that a post may be told after what followed it in another process */
#define QP_DESTROYED 255

const char *const trace_point_names[TRACE_POINTS] = {
	"posted", "rung", "seen", "again", "gathered", "sent", "taken", "placed", "acked", "cqe", "polled",
};

const char *trace_opcode_name(uint8_t opcode)
{
	static const char *const names[] = {
		[IBV_WR_RDMA_WRITE] = "RDMA_WRITE",
		[IBV_WR_RDMA_WRITE_WITH_IMM] = "RDMA_WRITE_WITH_IMM",
		[IBV_WR_SEND] = "SEND",
		[IBV_WR_SEND_WITH_IMM] = "SEND_WITH_IMM",
		[IBV_WR_RDMA_READ] = "RDMA_READ",
		[IBV_WR_ATOMIC_CMP_AND_SWP] = "ATOMIC_CMP_AND_SWP",
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = "ATOMIC_FETCH_AND_ADD",
		[IBV_WR_LOCAL_INV] = "LOCAL_INV",
		[IBV_WR_BIND_MW] = "BIND_MW",
		[IBV_WR_SEND_WITH_INV] = "SEND_WITH_INV",
	};

	return opcode < sizeof(names) / sizeof(names[0]) ? names[opcode] : NULL;
}

/* ---- Arrays ---- */

/* Room for one more; NULL for want of memory. */
static void *append(struct trace_model *model, void **at, uint32_t *count, uint32_t *room, uint64_t *total, size_t size)
{
	++*total;
	if (*count == *room) {
		uint32_t more = *room ? *room * 2 : 64;
		void *larger = more > *room ? realloc(*at, more * size) : NULL;

		if (!larger) {
			model->short_of_memory = true;
			return NULL;
		}
		*at = larger;
		*room = more;
	}
	return memset((char *)*at + (*count)++ * size, 0, size);
}

#define APPEND(model, array)                                                                                        \
	((__typeof__((array).at))append(model, (void **)&(array).at, &(array).count, &(array).room, &(array).total, \
					sizeof(*(array).at)))

#define APPEND_MARK(model, array) ((array).count < TRACE_KEPT_MARKS ? APPEND(model, array) : ((array).total++, NULL))

/* ---- Ids by numbers ---- */

enum kind { KIND_QP, KIND_CQ, KIND_SRQ };

struct number {
	uint32_t kind, scope, number; /* a QP's number is of its host, others' are of their process */
	uint32_t id;
};

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, offsetof(struct number, id));
}

static struct number *find_number(const struct trace_model *model, enum kind kind, uint32_t scope, uint32_t number)
{
	const struct number key = { kind, scope, number, 0 };
	struct number **found = tfind(&key, (void *const *)&model->numbers, compare);

	return found ? *found : NULL;
}

static bool set_number(struct trace_model *model, enum kind kind, uint32_t scope, uint32_t number, uint32_t id)
{
	struct number *entry = find_number(model, kind, scope, number);

	if (!entry) {
		entry = malloc(sizeof(*entry));
		if (!entry)
			return false;
		*entry = (struct number){ kind, scope, number, id };
		if (!tsearch(entry, &model->numbers, compare)) {
			free(entry);
			return false;
		}
	}
	entry->id = id;
	return true;
}

static uint32_t add_qp(struct trace_model *model, uint32_t host, uint32_t qpn)
{
	struct trace_queue_pair *qp;

	if (!set_number(model, KIND_QP, host, qpn, model->qps.count)) {
		model->short_of_memory = true;
		return TRACE_NONE;
	}
	qp = APPEND(model, model->qps);
	if (!qp)
		return TRACE_NONE;
	qp->qpn = qpn;
	qp->host = host;
	qp->process = qp->peer = qp->arriving = qp->cause = TRACE_NONE;
	qp->created = qp->destroyed = TRACE_NEVER;
	return model->qps.count - 1;
}

uint32_t trace_model_qp(const struct trace_model *model, uint32_t host, uint32_t qpn)
{
	const struct number *entry = find_number(model, KIND_QP, host, qpn);

	return entry ? entry->id : TRACE_NONE;
}

const struct trace_queue *trace_model_cq(const struct trace_model *model, uint32_t process, uint32_t number)
{
	const struct number *entry = find_number(model, KIND_CQ, process, number);

	return entry && entry->id < model->cqs.count ? &model->cqs.at[entry->id] : NULL;
}

const struct trace_queue *trace_model_srq(const struct trace_model *model, uint32_t process, uint32_t number)
{
	const struct number *entry = find_number(model, KIND_SRQ, process, number);

	return entry && entry->id < model->srqs.count ? &model->srqs.at[entry->id] : NULL;
}

static uint32_t host_of(const struct trace_model *model, uint32_t process)
{
	return model->processes.at[process].host;
}

/* The QP of this number in the host of a process. What is told of one that was destroyed is of that. */
static struct trace_queue_pair *qp_of(struct trace_model *model, uint32_t process, uint32_t qpn)
{
	const uint32_t host = host_of(model, process);
	uint32_t id = trace_model_qp(model, host, qpn);

	if (id == TRACE_NONE)
		id = add_qp(model, host, qpn);
	return id < model->qps.count ? &model->qps.at[id] : NULL;
}

/* One that this process has, and that begins something: so it is a new one if the last was destroyed. */
static struct trace_queue_pair *own_qp(struct trace_model *model, uint32_t process, uint32_t qpn)
{
	struct trace_queue_pair *qp = qp_of(model, process, qpn);
	uint32_t id;

	if (qp && qp->destroyed != TRACE_NEVER) {
		id = add_qp(model, qp->host, qpn);
		qp = id < model->qps.count ? &model->qps.at[id] : NULL;
	}
	if (qp)
		qp->process = process;
	return qp;
}

static uint32_t id_of(const struct trace_model *model, const struct trace_queue_pair *qp)
{
	return (uint32_t)(qp - model->qps.at);
}

static struct trace_queue *add_queue(struct trace_model *model, enum kind kind, uint32_t process, uint32_t number)
{
	const uint32_t id = kind == KIND_CQ ? model->cqs.count : model->srqs.count;
	struct trace_queue *queue;

	if (!set_number(model, kind, process, number, id)) {
		model->short_of_memory = true;
		return NULL;
	}
	queue = kind == KIND_CQ ? APPEND(model, model->cqs) : APPEND(model, model->srqs);
	if (!queue)
		return NULL;
	*queue = (struct trace_queue){ .number = number, .process = process, .created = TRACE_NEVER, .destroyed = TRACE_NEVER };
	return queue;
}

static struct trace_queue *queue_of(struct trace_model *model, enum kind kind, uint32_t process, uint32_t number)
{
	const struct number *entry = find_number(model, kind, process, number);
	const uint32_t count = kind == KIND_CQ ? model->cqs.count : model->srqs.count;

	if (!entry)
		return add_queue(model, kind, process, number);
	if (entry->id >= count)
		return NULL;
	return kind == KIND_CQ ? &model->cqs.at[entry->id] : &model->srqs.at[entry->id];
}

static struct trace_queue *owned_cq(struct trace_model *model, const struct trace_queue_pair *qp, uint32_t number)
{
	return qp->process == TRACE_NONE ? NULL : queue_of(model, KIND_CQ, qp->process, number);
}

static struct trace_queue *srq_of(struct trace_model *model, const struct trace_queue_pair *qp)
{
	return qp->process == TRACE_NONE || !qp->known || qp->attr.srq < 0 ?
		       NULL :
		       queue_of(model, KIND_SRQ, qp->process, (uint32_t)qp->attr.srq);
}

/* ---- Lives by their places ---- */

/* The place of a number in a table that is made when it is first used; NULL for want of memory. */
static uint32_t *place(struct trace_model *model, uint32_t **table, uint32_t number)
{
	if (!*table)
		*table = calloc(PLACES, sizeof(**table));
	if (!*table) {
		model->short_of_memory = true;
		return NULL;
	}
	return &(*table)[PLACE(number)];
}

static struct trace_send *find_send(const struct trace_model *model, const struct trace_queue_pair *qp, uint32_t index)
{
	const uint32_t id = qp->sends ? qp->sends[PLACE(index)] - 1 : TRACE_NONE;

	return id < model->sends.count && model->sends.at[id].index == index ? &model->sends.at[id] : NULL;
}

uint32_t trace_model_send(const struct trace_model *model, uint32_t qp, uint32_t index)
{
	const struct trace_send *send = qp < model->qps.count ? find_send(model, &model->qps.at[qp], index) : NULL;

	return send ? (uint32_t)(send - model->sends.at) : TRACE_NONE;
}

static struct trace_send *new_send(struct trace_model *model, struct trace_queue_pair *qp, uint32_t index)
{
	uint32_t *at = place(model, &qp->sends, index);
	struct trace_send *send = at ? APPEND(model, model->sends) : NULL;

	if (!send)
		return NULL;
	*at = model->sends.count;
	memset(send->at, 0xff, sizeof(send->at));
	send->qp = id_of(model, qp);
	send->index = index;
	send->length = send->psn = send->dest = send->receive = send->cause = TRACE_NONE;
	send->opcode = send->status = TRACE_NO_STATUS;
	return send;
}

static struct trace_send *send_of(struct trace_model *model, struct trace_queue_pair *qp, uint32_t index)
{
	struct trace_send *send = find_send(model, qp, index);

	return send ? send : new_send(model, qp, index);
}

static uint32_t send_id(const struct trace_model *model, const struct trace_send *send)
{
	return send ? (uint32_t)(send - model->sends.at) : TRACE_NONE;
}

/* Receives of a QP, or of the SRQ where that is given. */
static uint32_t **receives_of(struct trace_queue_pair *qp, struct trace_queue *srq)
{
	return srq ? &srq->receives : &qp->receives;
}

static struct trace_receive *find_receive(const struct trace_model *model, uint32_t *const *table, uint32_t slot)
{
	const uint32_t id = *table ? (*table)[PLACE(slot)] - 1 : TRACE_NONE;

	return id < model->receives.count && model->receives.at[id].index == slot ? &model->receives.at[id] : NULL;
}

static struct trace_receive *new_receive(struct trace_model *model, struct trace_queue_pair *qp, struct trace_queue *srq,
					 uint32_t slot)
{
	uint32_t *at = place(model, receives_of(qp, srq), slot);
	struct trace_receive *receive = at ? APPEND(model, model->receives) : NULL;

	if (!receive)
		return NULL;
	*at = model->receives.count;
	*receive = (struct trace_receive){ .posted = TRACE_NEVER,
					   .taken = TRACE_NEVER,
					   .placed = TRACE_NEVER,
					   .cqe = TRACE_NEVER,
					   .polled = TRACE_NEVER,
					   .qp = qp ? id_of(model, qp) : TRACE_NONE,
					   .srq = srq ? (uint32_t)(srq - model->srqs.at) : TRACE_NONE,
					   .index = slot,
					   .room = TRACE_NONE,
					   .length = TRACE_NONE,
					   .send = TRACE_NONE,
					   .status = TRACE_NO_STATUS };
	return receive;
}

/* The receive in a slot, to which something happens for the first time: `happened` of the one that is there says if that was so before. */
#define RECEIVE_FOR(model, qp, srq, slot, happened)                                                  \
	({                                                                                           \
		struct trace_receive *there = find_receive(model, receives_of(qp, srq), slot);       \
		there && there->happened == TRACE_NEVER ? there : new_receive(model, qp, srq, slot); \
	})

static struct trace_fill *fill_of(struct trace_queue_pair *qp, struct trace_queue *srq)
{
	return srq ? &srq->fill : &qp->rq;
}

/* ---- Objects ---- */

static void drop_places(struct trace_queue_pair *qp)
{
	free(qp->sends);
	free(qp->receives);
	free(qp->psns);
	qp->sends = qp->receives = qp->psns = NULL;
	qp->began = qp->sending = false;
	qp->arriving = qp->cause = TRACE_NONE;
}

static void add_state(struct trace_model *model, struct trace_queue_pair *qp, uint64_t time, uint8_t state)
{
	struct trace_state *larger = realloc(qp->states, (qp->state_count + 1) * sizeof(*larger));

	if (!larger) {
		model->short_of_memory = true;
		return;
	}
	qp->states = larger;
	qp->states[qp->state_count++] = (struct trace_state){ time, state };
}

static void tell_qp(struct trace_model *model, const struct trace_item *item)
{
	const struct trace_event *event = item->event;
	struct trace_queue_pair *qp;

	if (event->opcode == QP_DESTROYED) {
		qp = qp_of(model, item->process, event->qpn);
		if (!qp || qp->destroyed != TRACE_NEVER)
			return;
		qp->process = item->process;
		qp->destroyed = item->time;
		trace_fill_set(&qp->sq, item->time, 0);
		trace_fill_set(&qp->rq, item->time, 0);
		return;
	}
	qp = own_qp(model, item->process, event->qpn);
	if (!qp)
		return;
	if (item->bytes >= sizeof(qp->attr)) {
		memcpy(&qp->attr, item->more, sizeof(qp->attr));
		qp->known = true;
		qp->next_psn = event->opcode <= IBV_QPS_RTS ? qp->attr.sq_psn : qp->next_psn;
	}
	if (!qp->state_count && event->opcode == IBV_QPS_RESET)
		qp->created = item->time;
	/* Its queues are empty then, and their indices begin anew. */
	if (qp->state_count && event->opcode == IBV_QPS_RESET) {
		drop_places(qp);
		trace_fill_set(&qp->sq, item->time, 0);
		trace_fill_set(&qp->rq, item->time, 0);
	}
	add_state(model, qp, item->time, event->opcode);
}

static void tell_queue(struct trace_model *model, const struct trace_item *item, enum kind kind)
{
	struct trace_queue *queue = queue_of(model, kind, item->process, item->event->qpn);

	if (queue && item->event->length && queue->destroyed != TRACE_NEVER)
		queue = add_queue(model, kind, item->process, item->event->qpn);
	if (!queue)
		return;
	if (!item->event->length) {
		queue->destroyed = item->time;
		trace_fill_set(&queue->fill, item->time, 0);
		return;
	}
	/* A CQ that is resized is told again. */
	if (queue->created == TRACE_NEVER)
		queue->created = item->time;
	queue->entries = item->event->length;
}

/* ---- Requests ---- */

static void post_send(struct trace_model *model, const struct trace_item *item)
{
	const struct trace_event *event = item->event;
	struct trace_queue_pair *qp = own_qp(model, item->process, event->qpn);
	struct trace_send *send = qp ? find_send(model, qp, event->index) : NULL;

	if (!qp)
		return;
	if (!send || send->at[TRACE_POINT_POSTED] != TRACE_NEVER)
		send = new_send(model, qp, event->index);
	if (!send)
		return;
	send->at[TRACE_POINT_POSTED] = item->time;
	send->opcode = event->opcode;
	send->flags = event->flags;
	send->length = event->length;
	send->wr_id = event->arg;
	send->has_wr_id = true;
	if (!qp->began)
		qp->tail = event->index;
	qp->began = true;
	qp->head = event->index + 1;
	trace_fill_set(&qp->sq, item->time, qp->head - qp->tail);
}

static void post_recv(struct trace_model *model, const struct trace_item *item)
{
	const struct trace_event *event = item->event;
	struct trace_queue *srq = event->opcode == 1 ? queue_of(model, KIND_SRQ, item->process, event->qpn) : NULL;
	struct trace_queue_pair *qp = event->opcode == 1 ? NULL : own_qp(model, item->process, event->qpn);
	struct trace_receive *receive;

	if (!qp && !srq)
		return;
	receive = find_receive(model, receives_of(qp, srq), event->index);
	/* What a peer did to it may be told a moment earlier. */
	if (!receive || receive->posted != TRACE_NEVER || receive->taken == TRACE_NEVER || receive->polled != TRACE_NEVER ||
	    receive->taken + LATE_POST < item->time) {
		receive = new_receive(model, qp, srq, event->index);
		trace_fill_add(fill_of(qp, srq), item->time, 1);
	}
	if (!receive)
		return;
	receive->posted = item->time;
	receive->room = event->length;
	receive->wr_id = event->arg;
	receive->has_wr_id = true;
}

static void ring(struct trace_model *model, const struct trace_item *item)
{
	const struct trace_event *event = item->event;
	struct trace_queue_pair *qp = own_qp(model, item->process, event->qpn);
	struct trace_send *send;

	for (uint32_t i = 0; qp && i < event->length && i < PLACES; i++) {
		send = find_send(model, qp, event->index + i);
		if (!send || send->at[TRACE_POINT_RUNG] != TRACE_NEVER)
			continue;
		send->at[TRACE_POINT_RUNG] = item->time;
		send->list = event->length;
	}
}

static void seen(struct trace_model *model, const struct trace_item *item)
{
	struct trace_queue_pair *qp = own_qp(model, item->process, item->event->qpn);
	struct trace_send *send = qp ? send_of(model, qp, item->event->index) : NULL;

	if (!send)
		return;
	if (send->at[TRACE_POINT_SEEN] == TRACE_NEVER)
		send->at[TRACE_POINT_SEEN] = item->time;
	if (!qp->sending) {
		qp->sending = true;
		qp->next_sent = item->event->index;
	}
}

/* It is sent again, or has failed. What the wire misses is sent at once; else a time passes first, at the end of which this is. */
static void stop_waiting(struct trace_send *send, uint64_t time)
{
	if (send->waits)
		send->at[TRACE_POINT_AGAIN] = time;
	send->waits = false;
}

/* The last time counts: what is sent again is gathered again. */
static void gathered(struct trace_model *model, const struct trace_item *item)
{
	struct trace_queue_pair *qp = own_qp(model, item->process, item->event->qpn);
	struct trace_send *send = qp ? send_of(model, qp, item->event->index) : NULL;
	uint64_t *at;

	if (!send)
		return;
	at = send->at;
	/* Behind what was lost, all is sent again. */
	if (at[TRACE_POINT_GATHERED] != TRACE_NEVER &&
	    (at[TRACE_POINT_AGAIN] == TRACE_NEVER || at[TRACE_POINT_AGAIN] < at[TRACE_POINT_GATHERED]))
		at[TRACE_POINT_AGAIN] = item->time;
	at[TRACE_POINT_GATHERED] = item->time;
	stop_waiting(send, item->time);
}

static uint32_t packets_of(const struct trace_queue_pair *qp, uint32_t length)
{
	const uint32_t mtu = qp->known && qp->attr.path_mtu ? qp->attr.path_mtu : 1024;

	return length ? (uint32_t)(((uint64_t)length + mtu - 1) / mtu) : 1;
}

static void message(struct trace_model *model, const struct trace_item *item)
{
	const struct trace_event *event = item->event;
	struct trace_queue_pair *qp = own_qp(model, item->process, event->qpn);
	struct trace_message about;
	struct trace_send *send;

	if (!qp || item->bytes < sizeof(about))
		return;
	memcpy(&about, item->more, sizeof(about));
	send = send_of(model, qp, about.sq_index);
	if (!send)
		return;
	if (send->at[TRACE_POINT_SENT] == TRACE_NEVER)
		send->at[TRACE_POINT_SENT] = item->time;
	send->opcode = event->opcode;
	send->length = event->length;
	send->psn = event->index & ROCE_PSN_MASK;
	send->packets = packets_of(qp, event->length);
	qp->next_psn = (send->psn + send->packets) & ROCE_PSN_MASK;
	send->addr = event->arg;
	send->dest = trace_model_qp(model, qp->host, about.dest_qpn);
}

static void again(struct trace_model *model, const struct trace_item *item)
{
	struct trace_queue_pair *qp = own_qp(model, item->process, item->event->qpn);
	struct trace_send *send = qp ? find_send(model, qp, item->event->index) : NULL;
	struct trace_again *mark = qp ? APPEND_MARK(model, model->retries) : NULL;

	if (send && send->retries < UINT16_MAX)
		send->retries++;
	if (send) {
		send->at[TRACE_POINT_AGAIN] = item->time;
		send->starved |= item->event->opcode == TRACE_RETRY_RNR;
		send->waits = !qp->attr.wire || item->event->opcode == TRACE_RETRY_RNR;
	}
	if (mark)
		*mark = (struct trace_again){ item->time, id_of(model, qp), send_id(model, send), item->event->length,
					      item->event->opcode };
}

/* ---- At the other end ---- */

/* The request that an event at the receiving QP is about: by its name, or on the wire by what arrived there last. */
static struct trace_send *cause_of_arrival(struct trace_model *model, const struct trace_item *item,
					   const struct trace_queue_pair *receiver)
{
	const uint32_t qpn = (uint32_t)(item->event->arg >> 32);
	struct trace_queue_pair *sender = qpn ? qp_of(model, item->process, qpn) : NULL;

	if (sender)
		return send_of(model, sender, (uint32_t)item->event->arg);
	return receiver->arriving < model->sends.count ? &model->sends.at[receiver->arriving] : NULL;
}

static void taken(struct trace_model *model, const struct trace_item *item)
{
	const struct trace_event *event = item->event;
	struct trace_queue_pair *qp = qp_of(model, item->process, event->qpn);
	struct trace_send *send = qp ? cause_of_arrival(model, item, qp) : NULL;
	struct trace_receive *receive;
	struct trace_queue *srq;

	/* The sender may be new to us: then QPs have moved. */
	qp = qp_of(model, item->process, event->qpn);
	if (!qp)
		return;
	srq = event->opcode == 1 ? srq_of(model, qp) : NULL;
	receive = RECEIVE_FOR(model, qp, srq, event->index, taken);
	trace_fill_add(fill_of(qp, srq), item->time, -1);
	if (receive) {
		receive->taken = item->time;
		receive->qp = id_of(model, qp);
		receive->send = send_id(model, send);
	}
	if (!send)
		return;
	send->at[TRACE_POINT_TAKEN] = item->time;
	stop_waiting(send, item->time);
	send->dest = id_of(model, qp);
	send->receive = receive ? (uint32_t)(receive - model->receives.at) : TRACE_NONE;
}

static void placed(struct trace_model *model, const struct trace_item *item)
{
	const struct trace_event *event = item->event;
	struct trace_queue_pair *qp = qp_of(model, item->process, event->qpn);
	struct trace_send *send = qp ? cause_of_arrival(model, item, qp) : NULL;

	if (!send)
		return;
	send->at[TRACE_POINT_PLACED] = item->time;
	send->dest = trace_model_qp(model, host_of(model, item->process), event->qpn);
	if (send->receive < model->receives.count && model->receives.at[send->receive].index == event->index)
		model->receives.at[send->receive].placed = item->time;
}

/* ---- The wire ---- */

static bool is_local(uint8_t opcode)
{
	return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW;
}

/* The request of which a packet with this PSN was; it may be of an older one that had the same. */
static struct trace_send *sent_with(struct trace_model *model, const struct trace_queue_pair *qp, uint32_t psn)
{
	const uint32_t id = qp->psns ? qp->psns[PLACE(psn)] - 1 : TRACE_NONE;
	struct trace_send *send = id < model->sends.count ? &model->sends.at[id] : NULL;

	return send && ((psn - send->psn) & ROCE_PSN_MASK) < send->packets ? send : NULL;
}

/* A new packet belongs to the request whose turn it is, or goes on with the one before. */
static struct trace_send *request_of_new(struct trace_model *model, struct trace_queue_pair *qp, const struct roce_packet *packet)
{
	const uint8_t place_in = roce_opcode(packet->opcode)->place;
	const bool read = (packet->opcode & 0x1f) == ROCE_READ_REQUEST;
	struct trace_send *send;

	if (place_in == ROCE_MIDDLE || place_in == ROCE_LAST || (read && qp->read_left)) {
		send = find_send(model, qp, qp->next_sent - 1);
	} else {
		while ((send = find_send(model, qp, qp->next_sent)) && is_local(send->opcode))
			qp->next_sent++;
		qp->next_sent++;
		qp->read_left = read && send && send->length != TRACE_NONE ? send->length : 0;
		if (send) {
			send->psn = packet->psn;
			send->packets = 0;
			send->addr = packet->va;
		}
	}
	if (!send)
		return NULL;
	if (read)
		qp->read_left -= packet->dma_length < qp->read_left ? packet->dma_length : qp->read_left;
	for (uint32_t i = read ? packets_of(qp, packet->dma_length) : 1; i; i--) {
		uint32_t *at = place(model, &qp->psns, send->psn + send->packets++);

		if (at)
			*at = send_id(model, send) + 1;
	}
	return send;
}

static void acknowledged(struct trace_model *model, struct trace_queue_pair *qp, const struct trace_item *item,
			 const struct roce_packet *packet)
{
	struct trace_send *send = sent_with(model, qp, packet->psn);
	const uint8_t operation = packet->opcode & 0x1f;

	if (!send || operation == ROCE_READ_RESPONSE_FIRST || operation == ROCE_READ_RESPONSE_MIDDLE ||
	    (operation == ROCE_ACKNOWLEDGE && packet->syndrome >> 5 != ROCE_ACK))
		return;
	/* Older ones are acknowledged with it; this one, if it is its last packet. */
	if (((packet->psn - send->psn) & ROCE_PSN_MASK) + 1 != send->packets)
		send = find_send(model, qp, send->index - 1);
	for (; send && send->at[TRACE_POINT_ACKED] == TRACE_NEVER && send->at[TRACE_POINT_POLLED] == TRACE_NEVER;
	     send = find_send(model, qp, send->index - 1))
		if (send->at[TRACE_POINT_SENT] != TRACE_NEVER)
			send->at[TRACE_POINT_ACKED] = item->time;
}

static uint32_t peer_of(const struct trace_model *model, const struct trace_queue_pair *qp);

/* The QP at the other end that has sent the packet to this one. */
static uint32_t sender_of(const struct trace_model *model, struct trace_queue_pair *qp, const struct roce_packet *packet,
			  const struct trace_packet *about)
{
	/* Of datagrams only the packet says it. */
	if (packet->src_qpn) {
		for (uint32_t id = model->qps.count; id--;)
			if (model->qps.at[id].qpn == packet->src_qpn && model->qps.at[id].known &&
			    !memcmp(model->qps.at[id].attr.sgid, about->sgid, 16))
				return id;
		return TRACE_NONE;
	}
	if (qp->peer == TRACE_NONE)
		qp->peer = peer_of(model, qp);
	return qp->peer;
}

static void packet(struct trace_model *model, const struct trace_item *item, bool out)
{
	const struct trace_event *event = item->event;
	struct trace_queue_pair *qp = own_qp(model, item->process, event->qpn);
	struct roce_packet parsed = { .opcode = event->opcode, .psn = event->index };
	struct trace_packet about = { 0 };
	struct trace_send *send = NULL;
	struct trace_packet_seen *mark;
	bool was = false;

	if (!qp)
		return;
	if (item->bytes > sizeof(about)) {
		memcpy(&about, item->more, sizeof(about));
		/* What is cut off is payload; the words that are there are enough for the headers. */
		roce_parse((const uint8_t *)item->more + sizeof(about), (item->bytes - sizeof(about)) & ~3ul, &parsed);
	}
	if (!out && roce_opcode(parsed.opcode)->response) {
		acknowledged(model, qp, item, &parsed);
		send = sent_with(model, qp, parsed.psn);
	} else if (!out) {
		const uint32_t sender = sender_of(model, qp, &parsed, &about);

		if (sender < model->qps.count)
			send = sent_with(model, &model->qps.at[sender], parsed.psn);
		qp->arriving = send_id(model, send);
	} else if (!roce_opcode(parsed.opcode)->response && parsed.opcode != ROCE_OPCODE_CNP && qp->sending) {
		send = sent_with(model, qp, parsed.psn);
		was = send;
		if (!send)
			send = request_of_new(model, qp, &parsed);
		if (send && send->at[TRACE_POINT_SENT] == TRACE_NEVER)
			send->at[TRACE_POINT_SENT] = item->time;
	} else if (out && qp->peer < model->qps.count) {
		send = sent_with(model, &model->qps.at[qp->peer], parsed.psn);
	}
	mark = APPEND_MARK(model, model->packets);
	if (mark)
		*mark = (struct trace_packet_seen){ item->time,		  id_of(model, qp), parsed.psn, event->length,
						    send_id(model, send), parsed.opcode,    out,	was };
}

/* ---- Completions ---- */

/* A cause belongs to the failure that it came before. */
static void blame(struct trace_model *model, struct trace_queue_pair *qp, struct trace_send *send, uint8_t status)
{
	if (status == IBV_WC_SUCCESS || status == IBV_WC_WR_FLUSH_ERR || qp->cause >= model->causes.count)
		return;
	if (model->causes.at[qp->cause].error != status)
		return;
	send->cause = qp->cause;
	model->causes.at[qp->cause].send = send_id(model, send);
	qp->cause = TRACE_NONE;
}

static void complete_receive(struct trace_model *model, const struct trace_item *item, struct trace_queue_pair *qp, bool polled)
{
	const struct trace_event *event = item->event;
	struct trace_queue *srq = event->flags & TRACE_CQE_SRQ ? srq_of(model, qp) : NULL;
	struct trace_receive *receive;

	receive = polled ? RECEIVE_FOR(model, qp, srq, event->index, polled) : RECEIVE_FOR(model, qp, srq, event->index, cqe);
	if (!receive)
		return;
	/* Nobody took it: it was flushed, or taken where nobody traces. */
	if (receive->taken == TRACE_NEVER && receive->cqe == TRACE_NEVER && receive->posted != TRACE_NEVER)
		trace_fill_add(fill_of(qp, srq), item->time, -1);
	receive->qp = id_of(model, qp);
	receive->status = event->opcode;
	if (polled) {
		receive->polled = item->time;
		receive->wr_id = event->arg;
		receive->has_wr_id = true;
	} else {
		receive->cqe = item->time;
		receive->length = event->length;
	}
}

static void complete(struct trace_model *model, const struct trace_item *item)
{
	const struct trace_event *event = item->event;
	struct trace_queue_pair *qp = qp_of(model, item->process, event->qpn);
	struct trace_queue *cq;
	struct trace_send *send;

	if (!qp)
		return;
	/* Send queues are their owner's own. */
	if (qp->process == TRACE_NONE && !(event->flags & TRACE_CQE_RECV))
		qp->process = item->process;
	cq = owned_cq(model, qp, (uint32_t)event->arg);
	/* Of one that is full the completion is lost. */
	if (cq && (!cq->entries || cq->fill.now < cq->entries))
		trace_fill_add(&cq->fill, item->time, 1);
	if (event->flags & TRACE_CQE_RECV) {
		complete_receive(model, item, qp, false);
		return;
	}
	send = send_of(model, qp, event->index);
	if (!send)
		return;
	send->at[TRACE_POINT_CQE] = item->time;
	send->status = event->opcode;
	if (event->opcode != IBV_WC_SUCCESS)
		stop_waiting(send, item->time);
	send->starved |= event->opcode == IBV_WC_RNR_RETRY_EXC_ERR;
	blame(model, qp, send, event->opcode);
}

static void polled(struct trace_model *model, const struct trace_item *item)
{
	const struct trace_event *event = item->event;
	struct trace_queue *cq = queue_of(model, KIND_CQ, item->process, event->length);
	struct trace_queue_pair *qp = qp_of(model, item->process, event->qpn);
	struct trace_send *send;

	if (cq)
		trace_fill_add(&cq->fill, item->time, -1);
	if (!qp)
		return;
	qp->process = item->process;
	if (event->flags & TRACE_CQE_RECV) {
		complete_receive(model, item, qp, true);
		return;
	}
	send = send_of(model, qp, event->index);
	if (send) {
		send->at[TRACE_POINT_POLLED] = item->time;
		send->status = event->opcode;
		send->wr_id = event->arg;
		send->has_wr_id = true;
	}
	/* All before it are done with it. */
	if (qp->began && (int32_t)(event->index + 1 - qp->tail) > 0 && (int32_t)(qp->head - event->index) > 0) {
		qp->tail = event->index + 1;
		trace_fill_set(&qp->sq, item->time, qp->head - qp->tail);
	}
}

static void mark_cq(struct trace_model *model, const struct trace_item *item, enum trace_cq_kind kind)
{
	const uint32_t owner = (uint32_t)item->event->arg;
	const struct trace_queue_pair *qp = kind == TRACE_CQ_FIRED && owner ? qp_of(model, item->process, owner) : NULL;
	struct trace_queue *cq = qp ? owned_cq(model, qp, item->event->qpn) :
				      queue_of(model, KIND_CQ, item->process, item->event->qpn);
	struct trace_cq_event *mark = cq ? APPEND_MARK(model, model->cq_events) : NULL;

	if (mark)
		*mark = (struct trace_cq_event){ item->time, (uint32_t)(cq - model->cqs.at), kind };
}

static void cause(struct trace_model *model, const struct trace_item *item)
{
	const struct trace_event *event = item->event;
	struct trace_queue_pair *qp = NULL;
	struct trace_cause *mark = APPEND_MARK(model, model->causes);

	if (!mark)
		return;
	*mark = (struct trace_cause){ .time = item->time,
				      .position = event->arg,
				      .process = item->process,
				      .qp = trace_model_qp(model, host_of(model, item->process), event->qpn),
				      .send = TRACE_NONE,
				      .code = event->index,
				      .error = (int32_t)event->length };
	if (model->find_cause)
		mark->told = model->find_cause(model->find_cause_arg, item->process, event->arg, &mark->record);
	if (mark->qp < model->qps.count)
		qp = &model->qps.at[mark->qp];
	if (qp)
		qp->cause = model->causes.count - 1;
}

/* ---- All ---- */

uint32_t trace_model_process(struct trace_model *model, uint32_t pid, uint32_t host, const char *name)
{
	struct trace_process *process = APPEND(model, model->processes);

	if (!process)
		return TRACE_NONE;
	process->pid = pid;
	process->host = host;
	memcpy(process->name, name, strnlen(name, sizeof(process->name) - 1));
	return model->processes.count - 1;
}

void trace_model_tell(struct trace_model *model, const struct trace_item *item)
{
	if (item->process >= model->processes.count)
		return;
	model->events++;
	model->processes.at[item->process].events++;
	if (model->duration < item->time)
		model->duration = item->time;
	switch ((enum trace_kind)item->event->kind) {
	case TRACE_QP:
		tell_qp(model, item);
		break;
	case TRACE_CQ:
		tell_queue(model, item, KIND_CQ);
		break;
	case TRACE_SRQ:
		tell_queue(model, item, KIND_SRQ);
		break;
	case TRACE_POST_SEND:
		post_send(model, item);
		break;
	case TRACE_POST_RECV:
		post_recv(model, item);
		break;
	case TRACE_RING:
		ring(model, item);
		break;
	case TRACE_SEEN:
		seen(model, item);
		break;
	case TRACE_GATHERED:
		gathered(model, item);
		break;
	case TRACE_MESSAGE:
		message(model, item);
		break;
	case TRACE_PACKET_OUT:
	case TRACE_PACKET_IN:
		packet(model, item, item->event->kind == TRACE_PACKET_OUT);
		break;
	case TRACE_RETRY:
		again(model, item);
		break;
	case TRACE_TAKEN:
		taken(model, item);
		break;
	case TRACE_PLACED:
		placed(model, item);
		break;
	case TRACE_CQE:
		complete(model, item);
		break;
	case TRACE_POLLED:
		polled(model, item);
		break;
	case TRACE_POLLED_EMPTY:
		mark_cq(model, item, TRACE_CQ_EMPTY);
		break;
	case TRACE_ARMED:
		mark_cq(model, item, item->event->opcode == 1 ? TRACE_CQ_ARMED_SOLICITED : TRACE_CQ_ARMED);
		break;
	case TRACE_FIRED:
		mark_cq(model, item, TRACE_CQ_FIRED);
		break;
	case TRACE_AWOKE:
		mark_cq(model, item, TRACE_CQ_AWOKE);
		break;
	case TRACE_CAUSE:
		cause(model, item);
		break;
	}
}

/* The QP that this one was connected to, and that was connected to it, at the same time; the last of such. */
static uint32_t peer_of(const struct trace_model *model, const struct trace_queue_pair *qp)
{
	if (!qp->known || qp->attr.type == IBV_QPT_UD)
		return TRACE_NONE;
	for (uint32_t id = model->qps.count; id--;) {
		const struct trace_queue_pair *other = &model->qps.at[id];

		if (other->known && other->qpn == qp->attr.dest_qpn && other->attr.dest_qpn == qp->qpn &&
		    !memcmp(other->attr.sgid, qp->attr.dgid, 16) && !memcmp(other->attr.dgid, qp->attr.sgid, 16) &&
		    (other->destroyed == TRACE_NEVER || qp->created == TRACE_NEVER || other->destroyed >= qp->created))
			return id;
	}
	return TRACE_NONE;
}

/* The receive queue at the other end had nothing for it. */
static void tell_starved(struct trace_model *model, const struct trace_send *send)
{
	struct trace_queue_pair *qp = send->dest < model->qps.count ? &model->qps.at[send->dest] : NULL;
	struct trace_queue *srq = qp ? srq_of(model, qp) : NULL;
	const uint64_t *at = send->at, since = at[TRACE_POINT_SEEN] != TRACE_NEVER ? at[TRACE_POINT_SEEN] : trace_send_start(send);
	const uint64_t until = at[TRACE_POINT_AGAIN] != TRACE_NEVER ? at[TRACE_POINT_AGAIN] : at[TRACE_POINT_CQE];
	const uint64_t made = srq ? srq->created : qp ? qp->created : TRACE_NEVER;
	struct trace_fill *fill = qp ? fill_of(qp, srq) : NULL;

	if (!fill || until == TRACE_NEVER)
		return;
	fill->waited += until > since ? until - since : 1;
	if (!fill->count || since < fill->points[0].time)
		trace_fill_begin(fill, made == TRACE_NEVER ? 0 : made);
}

void trace_model_end(struct trace_model *model)
{
	for (uint32_t id = 0; id < model->qps.count; id++) {
		struct trace_queue_pair *qp = &model->qps.at[id];

		if (qp->peer == TRACE_NONE)
			qp->peer = peer_of(model, qp);
	}
	/* Where only one end is traced, its requests went to the peer all the same. */
	for (uint32_t id = 0; id < model->sends.count; id++) {
		struct trace_send *send = &model->sends.at[id];

		if (send->dest == TRACE_NONE && (send->at[TRACE_POINT_SENT] != TRACE_NEVER || send->starved))
			send->dest = model->qps.at[send->qp].peer;
		if (send->starved)
			tell_starved(model, send);
	}
	trace_causes_join(model);
}

void trace_model_free(struct trace_model *model)
{
	for (uint32_t id = 0; id < model->qps.count; id++) {
		struct trace_queue_pair *qp = &model->qps.at[id];

		drop_places(qp);
		free(qp->states);
		free(qp->sq.points);
		free(qp->rq.points);
	}
	for (uint32_t id = 0; id < model->cqs.count; id++)
		free(model->cqs.at[id].fill.points);
	for (uint32_t id = 0; id < model->srqs.count; id++) {
		free(model->srqs.at[id].fill.points);
		free(model->srqs.at[id].receives);
	}
	free(model->processes.at);
	free(model->qps.at);
	free(model->cqs.at);
	free(model->srqs.at);
	free(model->sends.at);
	free(model->receives.at);
	free(model->packets.at);
	free(model->cq_events.at);
	free(model->retries.at);
	free(model->causes.at);
	tdestroy(model->numbers, free);
	*model = (struct trace_model){ 0 };
}

uint64_t trace_send_start(const struct trace_send *send)
{
	uint64_t first = TRACE_NEVER;

	for (unsigned point = 0; point < TRACE_POINTS; point++)
		if (send->at[point] < first)
			first = send->at[point];
	return first;
}

uint64_t trace_receive_start(const struct trace_receive *receive)
{
	const uint64_t at[] = { receive->posted, receive->taken, receive->placed, receive->cqe, receive->polled };
	uint64_t first = TRACE_NEVER;

	for (unsigned point = 0; point < sizeof(at) / sizeof(at[0]); point++)
		if (at[point] < first)
			first = at[point];
	return first;
}
