/* SPDX-License-Identifier: MIT */
#include "tools/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nic/mr.h"
#include "nic/nic.h"
#include "nic/qp_internal.h"
#include "tools/queues.h"

#define VALUE(name, kind, text) { #name, text, kind },
const struct value qp_values[QP_COUNT] = { QP_VALUES(VALUE) };
const struct value cq_values[CQ_COUNT] = { CQ_VALUES(VALUE) };
const struct value srq_values[SRQ_COUNT] = { SRQ_VALUES(VALUE) };
const struct value mr_values[MR_COUNT] = { MR_VALUES(VALUE) };

const struct value device_values[DEVICE_COUNT] = {
#define COUNTER(name, text) { #name, text, COUNTS },
#define GAUGE(name, text)   { #name, text, IS },
#include "observe/counter_names.h"
#undef GAUGE
#undef COUNTER
};

/* Completion queues of one process whose polls are looked up: each costs two system calls. */
#define POLLS_MOST 256u

/* Positions that publishers may be ahead of a ring's tail: each helps it on by one. */
#define TAIL_LAG 1024u

/* nic/layout.h: the word of a CQ's entry. */
#define CQ_LAP_SHIFT 33

void *grow(void **array, uint32_t *count, size_t entry)
{
	/* Room for powers of two. */
	if (!(*count & (*count - 1)) || !*count) {
		void *more = realloc(*array, entry * (*count ? 2ul * *count : 1));

		if (!more)
			return NULL;
		*array = more;
	}
	return memset((char *)*array + entry * (*count)++, 0, entry);
}

const char *qp_type_name(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC ? "RC" : type == IBV_QPT_UC ? "UC" : type == IBV_QPT_UD ? "UD" : "?";
}

/* Of what others wrote, only what every terminal and format takes. */
static void make_text(char *text)
{
	for (; *text; text++)
		*text = *text < ' ' || *text > '~' ? '?' : *text;
}

struct reading {
	struct process_shot *process;
	int fd;
	bool short_of_memory;
};

static void *add(struct reading *reading, void **array, uint32_t *count, size_t entry)
{
	void *shot = grow(array, count, entry);

	reading->short_of_memory |= !shot;
	return shot;
}

static enum ibv_qp_type type_of(uint64_t state)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	for (unsigned i = 0; i < 3; i++) {
		if ((state >> 8 & 0xff) == qp_type_code(types[i]))
			return types[i];
	}
	return 0;
}

static uint64_t queued(const struct seg_rq *rq)
{
	uint64_t head = atomic_load(&rq->head), tail = atomic_load(&rq->tail);

	return tail > head ? tail - head : 0;
}

static void add_qp(void *arg, uint32_t index, const void *at)
{
	struct reading *reading = arg;
	struct process_shot *process = reading->process;
	const struct seg_qp *qp = at;
	const struct seg_sent *sent = &qp->sent;
	const struct seg_received *received = &qp->received;
	const struct seg_qp_events *events = &qp->events;
	uint64_t state = atomic_load(&qp->state);
	bool datagrams;
	struct qp_shot *shot;

	if (!(state & NIC_QP_EXISTS))
		return;
	shot = add(reading, (void **)&process->qps, &process->qp_count, sizeof(*shot));
	if (!shot)
		return;
	*shot = (struct qp_shot){ .qpn = qp->qpn,
				  .index = index,
				  .life = nic_qp_life(state),
				  .type = type_of(state),
				  .state = (enum ibv_qp_state)(state & 0xff),
				  .pd = qp->pd,
				  .send_cq = qp->send_cq,
				  .recv_cq = qp->recv_cq,
				  .srq = qp->srq };
	datagrams = shot->type == IBV_QPT_UD;
	/* What an earlier queue pair in this place was connected to is still there. */
	if (!datagrams && shot->state >= IBV_QPS_RTR) {
		shot->peer_qpn = qp->dest_qpn;
		shot->mtu = qp->path_mtu;
		shot->sgid = qp->sgid;
		shot->dgid = qp->dgid;
	}

	uint32_t head = atomic_load(&sent->head), executed = atomic_load(&sent->executed), posted = atomic_load(&sent->posted);
	const uint64_t values[QP_COUNT] = {
		[QP_rdma_sends] = atomic_load(&sent->requests[NIC_SENDS]),
		[QP_rdma_writes] = atomic_load(&sent->requests[NIC_WRITES]),
		[QP_rdma_reads] = atomic_load(&sent->requests[NIC_READS]),
		[QP_rdma_atomics] = atomic_load(&sent->requests[NIC_ATOMICS]),
		[QP_req_bytes] = atomic_load(&sent->bytes),
		[QP_mapped_copies] = atomic_load(&sent->mapped),
		[QP_rdma_recvs] = datagrams ? atomic_load(&qp->rq.head) : atomic_load(&received->requests[NIC_SENDS]),
		[QP_rx_write_requests] = atomic_load(&received->requests[NIC_WRITES]),
		[QP_rx_read_requests] = atomic_load(&received->requests[NIC_READS]),
		[QP_rx_atomic_requests] = atomic_load(&received->requests[NIC_ATOMICS]),
		[QP_resp_bytes] = atomic_load(&received->bytes) + atomic_load(&qp->rq.datagram_bytes),
		[QP_rnr_nak_retry_err] = atomic_load(&events->rnr_nak_retry_err),
		[QP_retry_rnr_exceeded_err] = atomic_load(&events->retry_rnr_exceeded_err),
		[QP_local_ack_timeout_err] = atomic_load(&events->local_ack_timeout_err),
		[QP_retry_exceeded_err] = atomic_load(&events->retry_exceeded_err),
		[QP_packet_seq_err] = atomic_load(&events->packet_seq_err),
		[QP_req_cqe_error] = atomic_load(&events->req_cqe_error),
		[QP_req_cqe_flush_error] = atomic_load(&events->req_cqe_flush_error),
		[QP_resp_cqe_error] = atomic_load(&events->resp_cqe_error),
		[QP_out_of_buffer] = atomic_load(&qp->rq.out_of_buffer),
		[QP_out_of_sequence] = atomic_load(&qp->out_of_sequence),
		[QP_duplicate_request] = atomic_load(&qp->duplicate_request),
		[QP_rx_drops] = atomic_load(&qp->drops),
		[QP_sq_size] = qp->max_send_wr,
		/* The three are read one after the other, and may be a moment apart. */
		[QP_sq_pending] = (int32_t)(posted - executed) > 0 ? posted - executed : 0,
		[QP_sq_depth] = (int32_t)(posted - head) > 0 ? posted - head : 0,
		[QP_sq_high_water] = atomic_load(&sent->high),
		[QP_rq_size] = qp->rq.max_wr,
		[QP_rq_posted] = queued(&qp->rq),
		[QP_rq_high_water] = atomic_load(&qp->rq.high),
	};

	shot->executed = executed;
	memcpy(shot->values, values, sizeof(values));
}

/* The words of a ring are read where they are: a large ring is mostly not of interest. */
static uint64_t ring_word(int fd, uint64_t ring, uint32_t mask, uint64_t position)
{
	uint64_t word = 0;
	uint64_t at = ring + offsetof(struct seg_cq_ring, entries) + (position & mask) * sizeof(struct seg_cq_entry);

	return pread(fd, &word, sizeof(word), (off_t)at) == sizeof(word) ? word : 0;
}

/* Completions that wait in the ring, and *position behind the last that was ever published. */
static uint64_t ring_fill(int fd, uint64_t ring, uint64_t *position, uint64_t *size)
{
	struct seg_cq_ring header;
	uint64_t tail, low, high;

	*position = *size = 0;
	if (pread(fd, &header, sizeof(header), (off_t)ring) != sizeof(header) || header.log2 > 31 ||
	    header.mask != (1ull << header.log2) - 1)
		return 0;
	*size = header.mask;
	tail = atomic_load(&header.tail);
	for (unsigned i = 0; i < TAIL_LAG; i++, tail++) {
		uint64_t word = ring_word(fd, ring, header.mask, tail), free_word = tail >> header.log2 << CQ_LAP_SHIFT;

		/* Free, or the mark that ends a ring. */
		if (word >> CQ_LAP_SHIFT << CQ_LAP_SHIFT != free_word || !(word >> 31 & 3))
			break;
	}
	*position = tail;
	/* What was consumed has the next lap's word; it is all before what was not. */
	low = tail > header.mask ? tail - header.mask : 0;
	for (high = tail; low < high;) {
		uint64_t middle = low + (high - low) / 2;
		uint64_t word = ring_word(fd, ring, header.mask, middle);

		if (word >> CQ_LAP_SHIFT == (middle >> header.log2 & 0x7fffffff))
			high = middle;
		else
			low = middle + 1;
	}
	return tail - low;
}

static void add_cq(void *arg, uint32_t index, const void *at)
{
	struct reading *reading = arg;
	struct process_shot *process = reading->process;
	const struct seg_cq *cq = at;
	uint64_t ring = atomic_load(&cq->ring), position;
	uint32_t arm = atomic_load(&cq->arm);
	struct cq_shot *shot;

	if (!ring)
		return;
	shot = add(reading, (void **)&process->cqs, &process->cq_count, sizeof(*shot));
	if (!shot)
		return;
	shot->index = index;
	shot->failed = atomic_load(&cq->error);
	shot->values[CQ_fill] = ring_fill(reading->fd, ring, &position, &shot->values[CQ_size]);
	shot->values[CQ_completions] = position + atomic_load(&cq->earlier);
	shot->values[CQ_overflows] = atomic_load(&cq->overflows);
	shot->values[CQ_high_water] = atomic_load(&cq->high);
	/* What waits has not been polled, and so not been counted by a poll. */
	if (shot->values[CQ_fill] > shot->values[CQ_high_water])
		shot->values[CQ_high_water] = shot->values[CQ_fill];
	shot->values[CQ_armed] = arm == NIC_ARM_ANY ? 1 : arm == NIC_ARM_SOLICITED ? 2 : 0;
}

static void add_srq(void *arg, uint32_t index, const void *at)
{
	struct reading *reading = arg;
	struct process_shot *process = reading->process;
	const struct seg_srq *srq = at;
	uint32_t limit = atomic_load(&srq->rq.limit);
	struct srq_shot *shot;

	if (!atomic_load(&srq->exists))
		return;
	shot = add(reading, (void **)&process->srqs, &process->srq_count, sizeof(*shot));
	if (!shot)
		return;
	shot->index = index;
	shot->pd = srq->pd;
	shot->values[SRQ_taken] = atomic_load(&srq->rq.head);
	shot->values[SRQ_out_of_buffer] = atomic_load(&srq->rq.out_of_buffer);
	shot->values[SRQ_datagram_bytes] = atomic_load(&srq->rq.datagram_bytes);
	shot->values[SRQ_size] = srq->rq.max_wr;
	shot->values[SRQ_posted] = queued(&srq->rq);
	shot->values[SRQ_high_water] = atomic_load(&srq->rq.high);
	shot->values[SRQ_limit] = limit & NIC_LIMIT_FIRED ? 0 : limit;
}

struct reading_mrs {
	struct reading *reading;
	uint32_t key_mask;
};

static void add_mr(void *arg, uint32_t index, const void *at)
{
	struct reading_mrs *mrs = arg;
	struct process_shot *process = mrs->reading->process;
	const struct seg_mr *mr = at;
	uint64_t state = atomic_load(&mr->state);
	uint64_t start = atomic_load(&mr->mapped_start), end = atomic_load(&mr->mapped_end);
	struct mr_shot *shot;

	if (!(state & NIC_MR_VALID))
		return;
	shot = add(mrs->reading, (void **)&process->mrs, &process->mr_count, sizeof(*shot));
	if (!shot)
		return;
	shot->lkey = (index ^ mrs->key_mask) << MR_KEY_INDEX | (uint32_t)(state >> MR_TAG_SHIFT & MR_TAG_MASK) << 1;
	shot->rkey = shot->lkey | MR_KEY_REMOTE;
	shot->pd = mr->pd;
	shot->access = state & MR_ACCESS_MASK;
	shot->addr = mr->addr;
	shot->iova = mr->iova;
	if (start < mr->addr)
		start = mr->addr;
	if (end > mr->addr + mr->length)
		end = mr->addr + mr->length;
	shot->values[MR_length] = mr->length;
	shot->values[MR_mapped] = end > start ? end - start : 0;
	shot->values[MR_refused] = atomic_load(&mr->refused);
}

/* The device's counters are of queue pairs that are gone, as far as the others have their own. */
static void add_living(struct process_shot *process)
{
	static const struct {
		unsigned device, qp;
	} same[] = {
		{ DEVICE_rdma_sends, QP_rdma_sends },
		{ DEVICE_rdma_writes, QP_rdma_writes },
		{ DEVICE_rdma_reads, QP_rdma_reads },
		{ DEVICE_rdma_atomics, QP_rdma_atomics },
		{ DEVICE_req_bytes, QP_req_bytes },
		{ DEVICE_mapped_copies, QP_mapped_copies },
		{ DEVICE_rdma_recvs, QP_rdma_recvs },
		{ DEVICE_rx_write_requests, QP_rx_write_requests },
		{ DEVICE_rx_read_requests, QP_rx_read_requests },
		{ DEVICE_rx_atomic_requests, QP_rx_atomic_requests },
		{ DEVICE_resp_bytes, QP_resp_bytes },
	};

	for (uint32_t i = 0; i < process->qp_count; i++) {
		for (size_t j = 0; j < sizeof(same) / sizeof(same[0]); j++)
			process->values[same[j].device] += process->qps[i].values[same[j].qp];
	}
	for (uint32_t i = 0; i < process->srq_count; i++)
		process->values[DEVICE_resp_bytes] += process->srqs[i].values[SRQ_datagram_bytes];
}

bool process_shot_read(struct process_shot *process, int fd)
{
	struct device_counters counters;
	struct reading reading = { .process = process, .fd = fd };
	struct reading_mrs mrs = { .reading = &reading };
	struct seg_header header;

	process->at = nic_now();
	if (pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
	    pread(fd, &counters, sizeof(counters), offsetof(struct nic_segment, counters)) != sizeof(counters) ||
	    pread(fd, &process->causes, sizeof(process->causes), offsetof(struct nic_segment, causes.next)) !=
		    sizeof(process->causes))
		return false;
	mrs.key_mask = header.key_mask;
	process->instance = header.instance;
	memcpy(process->devices, header.devices, sizeof(process->devices));
	process->devices[sizeof(process->devices) - 1] = '\0';
	make_text(process->devices);
#define COUNTER(name, text) process->values[DEVICE_##name] = atomic_load(&counters.name);
#define GAUGE		    COUNTER
#include "observe/counter_names.h"
#undef GAUGE
#undef COUNTER
	if (!segment_table(fd, offsetof(struct nic_segment, qps), sizeof(struct seg_qp), NIC_MAX_QP, add_qp, &reading) ||
	    !segment_table(fd, offsetof(struct nic_segment, cqs), sizeof(struct seg_cq), NIC_MAX_CQ, add_cq, &reading) ||
	    !segment_table(fd, offsetof(struct nic_segment, srqs), sizeof(struct seg_srq), NIC_MAX_SRQ, add_srq, &reading) ||
	    !segment_table(fd, offsetof(struct nic_segment, mrs), sizeof(struct seg_mr), NIC_MAX_MR, add_mr, &mrs) ||
	    reading.short_of_memory)
		return false;
	for (uint32_t i = 0; i < process->cq_count && i < POLLS_MOST && process->pid; i++) {
		struct cq_shot *cq = &process->cqs[i];

		cq->polls_known = queues_polls(process->pid, &header, cq->index, &cq->polls);
		if (!cq->polls_known)
			break;
	}
	add_living(process);
	return true;
}

void process_shot_free(struct process_shot *process)
{
	free(process->qps);
	free(process->cqs);
	free(process->srqs);
	free(process->mrs);
	process->qps = NULL;
	process->cqs = NULL;
	process->srqs = NULL;
	process->mrs = NULL;
	process->qp_count = process->cq_count = process->srq_count = process->mr_count = 0;
}

static void look_at(struct process_shot *process, const struct claim *claim)
{
	char *command = process_command(claim->pid);
	enum segment_answer answer;
	uint32_t version;
	int fd;

	process->pid = claim->pid;
	process->uid = claim->uid;
	process->slot = claim->slot;
	process->state = process_state(claim->pid);
	strncpy(process->command, command ? command : "?", sizeof(process->command) - 1);
	make_text(process->command);
	free(command);
	answer = segment_open(claim->pid, claim->slot, &fd, &version);
	segment_reason(answer, version, process->reason, sizeof(process->reason));
	if (answer != SEGMENT_OPEN)
		return;
	process->seen = process_shot_read(process, fd);
	if (!process->seen) {
		process_shot_free(process);
		strcpy(process->reason, "its segment could not be read");
	}
	close(fd);
}

/* Each of its slots is a claim, but a segment names only the first. */
static bool is_further_slot(const struct snapshot *snapshot, const struct claim *claim)
{
	for (int i = 0; i < snapshot->claim_count && &snapshot->claims[i] != claim; i++) {
		if (claim->pid && snapshot->claims[i].pid == claim->pid)
			return true;
	}
	return false;
}

const struct process_shot *process_shot_before(const struct snapshot *before, const struct process_shot *process)
{
	for (uint32_t i = 0; i < before->count; i++) {
		const struct process_shot *old = &before->processes[i];

		if (old->seen && process->seen && old->instance == process->instance)
			return old;
	}
	return NULL;
}

/* The entry of this index in an array that is in the order of indices, which stand at an offset of its entries. */
static const void *find(const void *array, uint32_t count, size_t entry, size_t offset, uint32_t wanted)
{
	uint32_t low = 0, high = count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2, index;
		const char *at = (const char *)array + middle * entry;

		memcpy(&index, at + offset, sizeof(index));
		if (index == wanted)
			return at;
		if (index < wanted)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

#define FIND(array, count, wanted) find(array, count, sizeof(*(array)), offsetof(typeof(*(array)), index), wanted)

const struct qp_shot *qp_shot_before(const struct process_shot *before, const struct qp_shot *qp)
{
	const struct qp_shot *old = before ? FIND(before->qps, before->qp_count, qp->index) : NULL;

	/* A RESET begins another life, but its counters go on: only the number tells another queue pair. */
	return old && old->qpn == qp->qpn && old->values[QP_req_bytes] <= qp->values[QP_req_bytes] ? old : NULL;
}

const struct cq_shot *cq_shot_before(const struct process_shot *before, const struct cq_shot *cq)
{
	const struct cq_shot *old = before ? FIND(before->cqs, before->cq_count, cq->index) : NULL;

	return old && old->values[CQ_completions] <= cq->values[CQ_completions] ? old : NULL;
}

const struct srq_shot *srq_shot_before(const struct process_shot *before, const struct srq_shot *srq)
{
	const struct srq_shot *old = before ? FIND(before->srqs, before->srq_count, srq->index) : NULL;

	return old && old->values[SRQ_taken] <= srq->values[SRQ_taken] ? old : NULL;
}

static void carry_qp(struct qp_shot *qp, const struct qp_shot *old, uint64_t at)
{
	if (!qp->values[QP_sq_pending])
		return;
	qp->stands_at = old && old->stands_at && old->executed == qp->executed ? old->stands_at : at;
}

static void carry_cq(struct cq_shot *cq, const struct cq_shot *old, uint64_t at)
{
	cq->known_at = at;
	if (!cq->polls_known || !old || !old->polls_known)
		return;
	cq->known_at = old->known_at;
	cq->polled_at = old->polls == cq->polls ? old->polled_at : at;
}

void snapshot_carry(struct snapshot *snapshot, const struct snapshot *before)
{
	for (uint32_t i = 0; i < snapshot->count; i++) {
		struct process_shot *process = &snapshot->processes[i];
		const struct process_shot *old = process_shot_before(before, process);

		for (uint32_t j = 0; j < process->qp_count; j++)
			carry_qp(&process->qps[j], qp_shot_before(old, &process->qps[j]), process->at);
		for (uint32_t j = 0; j < process->cq_count; j++)
			carry_cq(&process->cqs[j], cq_shot_before(old, &process->cqs[j]), process->at);
	}
}

static void forget(struct snapshot *snapshot)
{
	for (uint32_t i = 0; i < snapshot->count; i++)
		process_shot_free(&snapshot->processes[i]);
	free(snapshot->processes);
	snapshot->processes = NULL;
	snapshot->count = 0;
}

bool snapshot_take(struct snapshot *snapshot, pid_t pid)
{
	int count = processes_refresh(snapshot->claims, snapshot->claim_count);

	forget(snapshot);
	if (count < 0)
		return false;
	snapshot->claim_count = count;
	for (int i = 0; i < count; i++) {
		const struct claim *claim = &snapshot->claims[i];
		struct process_shot *process;

		if ((pid && claim->pid != pid) || claim->pid == getpid() || is_further_slot(snapshot, claim))
			continue;
		process = grow((void **)&snapshot->processes, &snapshot->count, sizeof(*process));
		if (!process) {
			errno = ENOMEM;
			return false;
		}
		look_at(process, claim);
	}
	return true;
}

void snapshot_free(struct snapshot *snapshot)
{
	forget(snapshot);
}
