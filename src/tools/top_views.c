/* SPDX-License-Identifier: MIT */
/* The tables of `uroce top`. Rates are what changed between two snapshots, by the time between them. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nic/gid.h"
#include "tools/explain.h"
#include "tools/render.h"
#include "tools/top.h"

enum {
	P_PID,
	P_COMMAND,
	P_STATE,
	P_QPS,
	P_CQS,
	P_MRS,
	P_OUT,
	P_IN,
	P_MB,
	P_RNR,
	P_RETRY,
	P_ERRORS,
	P_SRQS,
	P_DROPS,
	P_CAUSES,
	P_REGISTERED,
	P_XMIT,
	P_RCV,
	P_UID,
	P_DEVICES
};

static const struct column process_columns[] = {
	[P_PID] = { "PID", 7, 0, N_("process") },
	[P_COMMAND] = { "COMMAND", -12, 0, N_("its name") },
	[P_STATE] = { "S", 1, 0, N_("its state as proc(5) has it; T: stopped") },
	[P_QPS] = { "QPS", 4, 0, N_("queue pairs") },
	[P_CQS] = { "CQS", 4, 0, N_("completion queues") },
	[P_MRS] = { "MRS", 5, 0, N_("memory regions") },
	[P_OUT] = { "OUT/s", 6, 0, N_("requests of its own that were executed") },
	[P_IN] = { "IN/s", 6, 0, N_("requests of peers that arrived") },
	[P_MB] = { "MB/s", 7, 0, N_("of both") },
	[P_RNR] = { "RNR", 5, 0, N_("times that a receiver was not ready") },
	[P_RETRY] = { "RETRY", 5, 0, N_("times that nothing came back, or something got lost") },
	[P_ERRORS] = { "ERRS", 5, 0, N_("completions with an error, without flushes") },
	[P_SRQS] = { "SRQS", 4, 90, N_("shared receive queues") },
	[P_DROPS] = { "DROPS", 6, 97, N_("UC and UD messages dropped") },
	[P_CAUSES] = { "CAUSES", 6, 104, N_("causes recorded") },
	[P_REGISTERED] = { "REG-MB", 8, 113, N_("memory registered") },
	[P_XMIT] = { "XMIT/s", 7, 122, N_("packets sent") },
	[P_RCV] = { "RCV/s", 7, 130, N_("packets received") },
	[P_UID] = { "UID", 6, 138, N_("its user") },
	[P_DEVICES] = { "DEVICE", -20, 160, N_("devices that it opened") },
};

enum {
	Q_PID,
	Q_QPN,
	Q_TYPE,
	Q_STATE,
	Q_PEER,
	Q_SQ,
	Q_RQ,
	Q_OUT,
	Q_IN,
	Q_MB,
	Q_RNR,
	Q_RETRY,
	Q_STANDS,
	Q_ERRORS,
	Q_COMMAND,
	Q_SQ_HIGH,
	Q_RQ_HIGH,
	Q_BUFFER,
	Q_DROPS,
	Q_SEQUENCE,
	Q_DUPLICATE,
	Q_FLUSHED,
	Q_SEND_CQ,
	Q_RECV_CQ,
	Q_SRQ,
	Q_MTU,
	Q_PATH
};

static const struct column qp_columns[] = {
	[Q_PID] = { "PID", 7, 0, N_("process") },
	[Q_QPN] = { "QPN", 6, 0, N_("number, hexadecimal") },
	[Q_TYPE] = { "TY", 2, 0, N_("type") },
	[Q_STATE] = { "STATE", 5, 0, N_("state") },
	[Q_PEER] = { "PEER", 6, 0, N_("number of the other end, hexadecimal") },
	[Q_SQ] = { "SQ", 7, 0, N_("work requests in the send queue, and its size") },
	[Q_RQ] = { "RQ", 7, 0, N_("receives that can be taken, and the queue's size") },
	[Q_OUT] = { "OUT/s", 6, 0, N_("its requests that were executed") },
	[Q_IN] = { "IN/s", 6, 0, N_("requests of the peer that arrived") },
	[Q_MB] = { "MB/s", 6, 0, N_("of both") },
	[Q_RNR] = { "RNR", 5, 0, N_("times that the receiver was not ready") },
	[Q_RETRY] = { "RETRY", 5, 0, N_("times that nothing came back, or something got lost") },
	[Q_STANDS] = { "STANDS", 6, 88, N_("for how long nothing was executed though something waits, as seen") },
	[Q_ERRORS] = { "ERRS", 5, 95, N_("completions with an error, without flushes of the send queue") },
	[Q_COMMAND] = { "COMMAND", -12, 108, N_("the process's name") },
	[Q_SQ_HIGH] = { "SQ-HI", 6, 115, N_("most that the send queue has held") },
	[Q_RQ_HIGH] = { "RQ-HI", 6, 122, N_("most receives posted and not polled") },
	[Q_BUFFER] = { "NOBUF", 6, 129, N_("messages that found no receive") },
	[Q_DROPS] = { "DROPS", 6, 136, N_("UC and UD messages dropped") },
	[Q_SEQUENCE] = { "OOSEQ", 6, 143, N_("requests behind a gap") },
	[Q_DUPLICATE] = { "DUP", 6, 150, N_("requests that had been there before") },
	[Q_FLUSHED] = { "FLUSH", 6, 157, N_("flushes of the send queue") },
	[Q_SEND_CQ] = { "SCQ", 4, 162, N_("CQ of the send queue") },
	[Q_RECV_CQ] = { "RCQ", 4, 167, N_("CQ of the receive queue") },
	[Q_SRQ] = { "SRQ", 4, 172, N_("shared receive queue") },
	[Q_MTU] = { "MTU", 4, 177, N_("of the path") },
	[Q_PATH] = { "TO", -22, 200, N_("GID of the other end") },
};

enum { C_PID, C_COMMAND, C_CQ, C_FILL, C_SIZE, C_HIGH, C_RATE, C_ARMED, C_POLLS, C_POLLED, C_LOST, C_TOTAL, C_USERS };

static const struct column cq_columns[] = {
	[C_PID] = { "PID", 7, 0, N_("process") },
	[C_COMMAND] = { "COMMAND", -10, 0, N_("its name") },
	[C_CQ] = { "CQ", 5, 0, N_("number") },
	[C_FILL] = { "FILL", 6, 0, N_("completions that wait") },
	[C_SIZE] = { "SIZE", 6, 0, N_("that there is room for") },
	[C_HIGH] = { "HIGH", 6, 0, N_("most that ever waited") },
	[C_RATE] = { "CQE/s", 6, 0, N_("completions") },
	[C_ARMED] = { "ARMED", 5, 0, N_("any or solicited: which completion raises an event") },
	[C_POLLS] = { "POLL/s", 6, 0, N_("looks of the program; ?: its memory may not be read") },
	[C_POLLED] = { "POLLED", 7, 0, N_("how long ago; >: at least") },
	[C_LOST] = { "LOST", 5, 0, N_("completions that found no room") },
	[C_TOTAL] = { "CQES", 12, 95, N_("completions so far") },
	[C_USERS] = { "QPS", 5, 101, N_("queue pairs that complete there") },
};

enum { S_PID, S_COMMAND, S_SRQ, S_POSTED, S_SIZE, S_HIGH, S_RATE, S_LIMIT, S_BUFFER, S_TOTAL, S_USERS };

static const struct column srq_columns[] = {
	[S_PID] = { "PID", 7, 0, N_("process") },
	[S_COMMAND] = { "COMMAND", -12, 0, N_("its name") },
	[S_SRQ] = { "SRQ", 5, 0, N_("number") },
	[S_POSTED] = { "POSTED", 7, 0, N_("receives that can be taken") },
	[S_SIZE] = { "SIZE", 7, 0, N_("that there is room for") },
	[S_HIGH] = { "HIGH", 7, 0, N_("most that were posted and not polled") },
	[S_RATE] = { "TAKEN/s", 7, 0, N_("receives that messages took") },
	[S_LIMIT] = { "LIMIT", 6, 0, N_("below which an event is raised") },
	[S_BUFFER] = { "NOBUF", 6, 0, N_("messages that found no receive") },
	[S_TOTAL] = { "TAKEN", 12, 95, N_("receives taken so far") },
	[S_USERS] = { "QPS", 5, 101, N_("queue pairs that take from it") },
};

enum { W_QUEUE, W_INDEX, W_STATE, W_AGE, W_WR_ID, W_OPCODE, W_LENGTH, W_FLAGS };

static const struct column queue_columns[] = {
	[W_QUEUE] = { "QUEUE", -5, 0, N_("SQ: send, RQ or SRQ: receive") },
	[W_INDEX] = { "INDEX", 10, 0, N_("place in the queue") },
	[W_STATE] = { "STATE", -6, 0, N_("waits, or done: executed, and its room not given back by polling") },
	[W_AGE] = { "AGE", 7, 0, N_("how long it has been seen, at least") },
	[W_WR_ID] = { "WR_ID", 18, 0, N_("the program's number") },
	[W_OPCODE] = { "OPCODE", -9, 0, N_("operation") },
	[W_LENGTH] = { "LENGTH", 10, 0, N_("bytes") },
	[W_FLAGS] = { "FLAGS", -5, 0, N_("S signaled, F fence, E solicited, I inline") },
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
	const char *name;
	const struct column *columns;
	unsigned count, sort;
} views[VIEWS] = {
	[VIEW_PROCESSES] = { N_("processes"), process_columns, LENGTH(process_columns), P_OUT },
	[VIEW_QPS] = { "QPs", qp_columns, LENGTH(qp_columns), Q_OUT },
	[VIEW_CQS] = { "CQs", cq_columns, LENGTH(cq_columns), C_FILL },
	[VIEW_SRQS] = { "SRQs", srq_columns, LENGTH(srq_columns), S_RATE },
	[VIEW_QUEUE] = { N_("queues of a QP"), queue_columns, LENGTH(queue_columns), 0 },
};

const char *view_name(enum view view)
{
	return _(views[view].name);
}

const struct column *view_columns(enum view view, unsigned *count)
{
	*count = views[view].count;
	return views[view].columns;
}

unsigned view_first_sort(enum view view)
{
	return views[view].sort;
}

void format_count(char *text, unsigned width, double number)
{
	static const char units[] = " kMGTPE";
	unsigned unit = 0;

	if (snprintf(text, width + 1, "%.0f", number) <= (int)width)
		return;
	while (number >= 1000 && unit < sizeof(units) - 2) {
		number /= 1000;
		unit++;
	}
	if (snprintf(text, width + 1, "%.1f%c", number, units[unit]) > (int)width)
		snprintf(text, width + 1, "%.0f%c", number, units[unit]);
}

void format_age(char *text, unsigned width, uint64_t ns)
{
	double s = (double)ns / 1e9;

	if (s < 100)
		snprintf(text, width + 1, "%.1fs", s);
	else if (s < 6000)
		snprintf(text, width + 1, "%.0fm", s / 60);
	else
		snprintf(text, width + 1, "%.0fh", s / 3600);
}

static void set_number(struct row *row, const struct column *columns, unsigned column, double number)
{
	format_count(row->cells[column].text, (unsigned)abs(columns[column].width), number);
	row->cells[column].key = number;
}

static __attribute__((format(printf, 4, 5))) void set_text(struct row *row, unsigned column, double key, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(row->cells[column].text, sizeof(row->cells[column].text), format, args);
	va_end(args);
	row->cells[column].key = key;
}

/* MB/s and the like: with a decimal while it is small. */
static void set_megabytes(struct row *row, const struct column *columns, unsigned column, double megabytes)
{
	if (megabytes < 100)
		set_text(row, column, megabytes, "%.1f", megabytes);
	else
		set_number(row, columns, column, megabytes);
}

/* Of room for so many. */
static void set_part(struct row *row, const struct column *columns, unsigned column, uint64_t part, uint64_t whole)
{
	char text[48];

	if (snprintf(text, sizeof(text), "%" PRIu64 "/%" PRIu64, part, whole) > columns[column].width)
		snprintf(text, sizeof(text), "%" PRIu64 "%%", 100 * part / whole);
	set_text(row, column, (double)part, "%s", text);
}

/* The process that rows are made of, and what it was before. */
struct making {
	struct sheet *sheet;
	const struct process_shot *process, *before;
	double seconds; /* between the two; 0: nothing is known of rates */
};

static struct row *add_row(const struct making *making, uint32_t index)
{
	struct row *row = grow((void **)&making->sheet->rows, &making->sheet->count, sizeof(*row));

	if (row) {
		row->pid = making->process->pid;
		row->index = index;
	}
	return row;
}

static double rate(const struct making *making, uint64_t now, uint64_t before)
{
	return making->seconds > 0 && now > before ? (double)(now - before) / making->seconds : 0;
}

static uint64_t sum(const uint64_t *values, const unsigned *which, unsigned count)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < count; i++)
		total += values[which[i]];
	return total;
}

#define SUM(values, ...) \
	sum(values, (const unsigned[]){ __VA_ARGS__ }, sizeof((const unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned))

static bool add_process(const struct making *making)
{
	const struct process_shot *process = making->process;
	const uint64_t *v = process->values, *b = making->before ? making->before->values : v;
	const struct column *columns = process_columns;
	struct row *row = add_row(making, 0);
	double registered = 0;

	if (!row)
		return false;
	for (uint32_t i = 0; i < process->mr_count; i++)
		registered += (double)process->mrs[i].values[MR_length];
	set_text(row, P_PID, process->pid, "%d", (int)process->pid);
	if (!process->pid)
		set_text(row, P_PID, 0, "?");
	set_text(row, P_COMMAND, NAN, "%s", process->command);
	set_text(row, P_STATE, NAN, "%c", process->state);
	row->alarm = process->state == 'T';
	for (unsigned i = P_QPS; i < LENGTH(process_columns) && !process->seen; i++)
		set_text(row, i, -1, "-");
	if (!process->seen)
		return true;
	set_number(row, columns, P_QPS, process->qp_count);
	set_number(row, columns, P_CQS, process->cq_count);
	set_number(row, columns, P_MRS, process->mr_count);
	set_number(row, columns, P_SRQS, process->srq_count);
#define OUT(values) SUM(values, DEVICE_rdma_sends, DEVICE_rdma_writes, DEVICE_rdma_reads, DEVICE_rdma_atomics)
#define IN(values)  SUM(values, DEVICE_rdma_recvs, DEVICE_rx_write_requests, DEVICE_rx_read_requests, DEVICE_rx_atomic_requests)
	set_number(row, columns, P_OUT, rate(making, OUT(v), OUT(b)));
	set_number(row, columns, P_IN, rate(making, IN(v), IN(b)));
#undef IN
#undef OUT
	set_megabytes(row, columns, P_MB,
		      rate(making, SUM(v, DEVICE_req_bytes, DEVICE_resp_bytes), SUM(b, DEVICE_req_bytes, DEVICE_resp_bytes)) / 1e6);
	set_number(row, columns, P_RNR, (double)v[DEVICE_rnr_nak_retry_err]);
	set_number(row, columns, P_RETRY,
		   (double)SUM(v, DEVICE_local_ack_timeout_err, DEVICE_packet_seq_err, DEVICE_implied_nak_seq_err));
	set_number(row, columns, P_ERRORS,
		   (double)(SUM(v, DEVICE_req_cqe_error, DEVICE_resp_cqe_error) -
			    SUM(v, DEVICE_req_cqe_flush_error, DEVICE_resp_cqe_flush_error)));
	set_number(row, columns, P_DROPS, (double)v[DEVICE_rx_drops]);
	set_number(row, columns, P_CAUSES, (double)process->causes);
	set_megabytes(row, columns, P_REGISTERED, registered / 1e6);
	set_number(row, columns, P_XMIT, rate(making, v[DEVICE_port_xmit_packets], b[DEVICE_port_xmit_packets]));
	set_number(row, columns, P_RCV, rate(making, v[DEVICE_port_rcv_packets], b[DEVICE_port_rcv_packets]));
	set_text(row, P_UID, process->uid, "%u", process->uid);
	set_text(row, P_DEVICES, NAN, "%s", process->devices);
	return true;
}

static bool add_qp(const struct making *making, const struct qp_shot *qp)
{
	const struct qp_shot *before = qp_shot_before(making->before, qp);
	const uint64_t *v = qp->values, *b = before ? before->values : v;
	const struct column *columns = qp_columns;
	struct row *row = add_row(making, qp->index);
	char gid[GID_TEXT_BYTES];
	uint64_t stands = qp->stands_at ? making->process->at - qp->stands_at : 0;

	if (!row)
		return false;
	row->alarm = qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE || stands > 1000000000u;
	set_text(row, Q_PID, making->process->pid, "%d", (int)making->process->pid);
	set_text(row, Q_COMMAND, NAN, "%s", making->process->command);
	set_text(row, Q_QPN, qp->qpn, "%06x", qp->qpn);
	set_text(row, Q_TYPE, NAN, "%s", qp_type_name(qp->type));
	set_text(row, Q_STATE, qp->state, "%s", explain_state(qp->state));
	set_text(row, Q_PEER, qp->peer_qpn, "%06x", qp->peer_qpn);
	if (!qp->peer_qpn)
		set_text(row, Q_PEER, 0, "-");
	set_part(row, columns, Q_SQ, v[QP_sq_depth], v[QP_sq_size]);
	if (qp->srq >= 0)
		set_text(row, Q_RQ, -1, "SRQ %d", qp->srq);
	else
		set_part(row, columns, Q_RQ, v[QP_rq_posted], v[QP_rq_size]);
#define OUT(values) SUM(values, QP_rdma_sends, QP_rdma_writes, QP_rdma_reads, QP_rdma_atomics)
#define IN(values)  SUM(values, QP_rdma_recvs, QP_rx_write_requests, QP_rx_read_requests, QP_rx_atomic_requests)
	set_number(row, columns, Q_OUT, rate(making, OUT(v), OUT(b)));
	set_number(row, columns, Q_IN, rate(making, IN(v), IN(b)));
#undef IN
#undef OUT
	set_megabytes(row, columns, Q_MB,
		      rate(making, SUM(v, QP_req_bytes, QP_resp_bytes), SUM(b, QP_req_bytes, QP_resp_bytes)) / 1e6);
	set_number(row, columns, Q_RNR, (double)v[QP_rnr_nak_retry_err]);
	set_number(row, columns, Q_RETRY, (double)SUM(v, QP_local_ack_timeout_err, QP_packet_seq_err));
	format_age(row->cells[Q_STANDS].text, 6, stands);
	if (!stands)
		strcpy(row->cells[Q_STANDS].text, "-");
	row->cells[Q_STANDS].key = (double)stands;
	set_number(row, columns, Q_ERRORS, (double)(SUM(v, QP_req_cqe_error, QP_resp_cqe_error) - v[QP_req_cqe_flush_error]));
	set_number(row, columns, Q_SQ_HIGH, (double)v[QP_sq_high_water]);
	set_number(row, columns, Q_RQ_HIGH, (double)v[QP_rq_high_water]);
	set_number(row, columns, Q_BUFFER, (double)v[QP_out_of_buffer]);
	set_number(row, columns, Q_DROPS, (double)v[QP_rx_drops]);
	set_number(row, columns, Q_SEQUENCE, (double)v[QP_out_of_sequence]);
	set_number(row, columns, Q_DUPLICATE, (double)v[QP_duplicate_request]);
	set_number(row, columns, Q_FLUSHED, (double)v[QP_req_cqe_flush_error]);
	set_number(row, columns, Q_SEND_CQ, qp->send_cq);
	set_number(row, columns, Q_RECV_CQ, qp->recv_cq);
	set_text(row, Q_SRQ, -1, "-");
	if (qp->srq >= 0)
		set_number(row, columns, Q_SRQ, qp->srq);
	set_number(row, columns, Q_MTU, qp->mtu);
	set_text(row, Q_PATH, NAN, "%s", qp->peer_qpn ? gid_text(&qp->dgid, gid) : "-");
	return true;
}

static bool add_cq(const struct making *making, const struct cq_shot *cq)
{
	static const char *const armed[] = { "-", "any", "sol" };
	const struct cq_shot *before = cq_shot_before(making->before, cq);
	const uint64_t *v = cq->values, *b = before ? before->values : v;
	const struct column *columns = cq_columns;
	struct row *row = add_row(making, cq->index);
	uint32_t users = 0;

	if (!row)
		return false;
	for (uint32_t i = 0; i < making->process->qp_count; i++)
		users += making->process->qps[i].send_cq == cq->index || making->process->qps[i].recv_cq == cq->index;
	row->alarm = cq->failed;
	set_text(row, C_PID, making->process->pid, "%d", (int)making->process->pid);
	set_text(row, C_COMMAND, NAN, "%s", making->process->command);
	set_number(row, columns, C_CQ, cq->index);
	set_number(row, columns, C_FILL, (double)v[CQ_fill]);
	set_number(row, columns, C_SIZE, (double)v[CQ_size]);
	set_number(row, columns, C_HIGH, (double)v[CQ_high_water]);
	set_number(row, columns, C_RATE, rate(making, v[CQ_completions], b[CQ_completions]));
	set_text(row, C_ARMED, (double)v[CQ_armed], "%s", armed[v[CQ_armed]]);
	set_text(row, C_POLLS, -1, "?");
	set_text(row, C_POLLED, -1, "?");
	if (cq->polls_known) {
		uint64_t ago = making->process->at - (cq->polled_at ? cq->polled_at : cq->known_at);
		char *text = row->cells[C_POLLED].text;

		set_number(row, columns, C_POLLS,
			   rate(making, cq->polls, before && before->polls_known ? before->polls : cq->polls));
		if (!cq->polls) {
			set_text(row, C_POLLED, INFINITY, "%s", _("never"));
		} else {
			*text = '>';
			format_age(cq->polled_at ? text : text + 1, 6, ago);
			row->cells[C_POLLED].key = (double)ago;
		}
	}
	set_number(row, columns, C_LOST, (double)v[CQ_overflows]);
	set_number(row, columns, C_TOTAL, (double)v[CQ_completions]);
	set_number(row, columns, C_USERS, users);
	return true;
}

static bool add_srq(const struct making *making, const struct srq_shot *srq)
{
	const struct srq_shot *before = srq_shot_before(making->before, srq);
	const uint64_t *v = srq->values, *b = before ? before->values : v;
	const struct column *columns = srq_columns;
	struct row *row = add_row(making, srq->index);
	uint32_t users = 0;

	if (!row)
		return false;
	for (uint32_t i = 0; i < making->process->qp_count; i++)
		users += making->process->qps[i].srq == (int32_t)srq->index;
	row->alarm = users && !v[SRQ_posted];
	set_text(row, S_PID, making->process->pid, "%d", (int)making->process->pid);
	set_text(row, S_COMMAND, NAN, "%s", making->process->command);
	set_number(row, columns, S_SRQ, srq->index);
	set_number(row, columns, S_POSTED, (double)v[SRQ_posted]);
	set_number(row, columns, S_SIZE, (double)v[SRQ_size]);
	set_number(row, columns, S_HIGH, (double)v[SRQ_high_water]);
	set_number(row, columns, S_RATE, rate(making, v[SRQ_taken], b[SRQ_taken]));
	set_number(row, columns, S_LIMIT, (double)v[SRQ_limit]);
	set_number(row, columns, S_BUFFER, (double)v[SRQ_out_of_buffer]);
	set_number(row, columns, S_TOTAL, (double)v[SRQ_taken]);
	set_number(row, columns, S_USERS, users);
	return true;
}

static __attribute__((format(printf, 2, 3))) bool add_note(const struct making *making, const char *format, ...)
{
	struct row *row = add_row(making, 0);
	va_list args;

	if (!row)
		return false;
	va_start(args, format);
	vsnprintf(row->note, sizeof(row->note), format, args);
	va_end(args);
	return true;
}

static bool add_wr(const struct making *making, const char *queue, const struct wr_shot *wr)
{
	bool send = !strcmp(queue, "SQ");
	struct row *row = add_row(making, wr->index);
	char age[8] = "-";

	if (!row)
		return false;
	if (wr->seen_at && making->process->at > wr->seen_at)
		format_age(age, 7, making->process->at - wr->seen_at);
	set_text(row, W_QUEUE, NAN, "%s", queue);
	set_text(row, W_INDEX, wr->index, "%u", wr->index);
	set_text(row, W_STATE, NAN, "%s", wr->executed ? _("done") : _("waits"));
	set_text(row, W_AGE, 0, "%s", age);
	set_text(row, W_WR_ID, (double)wr->wr_id, "0x%" PRIx64, wr->wr_id);
	set_text(row, W_OPCODE, NAN, "%s", send ? queues_opcode_name(wr->opcode) : "RECV");
	set_text(row, W_LENGTH, (double)wr->length, "%" PRIu64, wr->length);
	set_text(row, W_FLAGS, NAN, "%s%s%s%s", wr->flags & IBV_SEND_SIGNALED ? "S" : "", wr->flags & IBV_SEND_FENCE ? "F" : "",
		 wr->flags & IBV_SEND_SOLICITED ? "E" : "", wr->is_inline ? "I" : "");
	for (uint32_t i = 0; i < wr->num_sge && i < NIC_MAX_SGE; i++) {
		if (!add_note(making, _("      SGE %u: address 0x%llx, %u bytes, lkey 0x%08x"), i,
			      (unsigned long long)wr->sge[i].addr, wr->sge[i].length, wr->sge[i].lkey))
			return false;
	}
	if (wr->remote_qpn)
		return add_note(making, _("      to QP 0x%06x"), wr->remote_qpn);
	if (send && wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM)
		return add_note(making, _("      remote address 0x%llx, rkey 0x%08x"), (unsigned long long)wr->remote_addr, wr->rkey);
	return true;
}

/* What a queue pair is besides its queues. */
static bool add_description(const struct making *making, const struct qp_shot *qp, const struct queues *queues)
{
	const uint64_t *v = qp->values;
	char gid[GID_TEXT_BYTES];
	bool done = add_note(making, _("QP 0x%06x of process %d (%s): %s, %s"), qp->qpn, (int)making->process->pid,
			     making->process->command, qp_type_name(qp->type), explain_state(qp->state));

	if (done && qp->peer_qpn)
		done = add_note(making, _("peer 0x%06x at %s, path MTU %u"), qp->peer_qpn, gid_text(&qp->dgid, gid), qp->mtu);
	if (done)
		done = add_note(making, _("SQ %llu of %llu, %llu wait, at most %llu so far; RQ %llu of %llu, at most %llu"),
				(unsigned long long)v[QP_sq_depth], (unsigned long long)v[QP_sq_size],
				(unsigned long long)v[QP_sq_pending], (unsigned long long)v[QP_sq_high_water],
				(unsigned long long)v[QP_rq_posted], (unsigned long long)v[QP_rq_size],
				(unsigned long long)v[QP_rq_high_water]);
	if (done && !queues->send_known)
		done = add_note(making, _("the send queue cannot be read: %s"), strerror(queues->error));
	return done;
}

static bool add_queues(const struct making *making, uint32_t index, const struct queues *queues)
{
	const struct qp_shot *qp = NULL;
	bool done;

	for (uint32_t i = 0; i < making->process->qp_count; i++) {
		if (making->process->qps[i].index == index)
			qp = &making->process->qps[i];
	}
	if (!qp || !queues)
		return add_note(making, _("this queue pair is gone"));
	done = add_description(making, qp, queues);
	for (uint32_t i = 0; i < queues->send.count && done; i++)
		done = add_wr(making, "SQ", &queues->send.wrs[i]);
	if (done && queues->send.more)
		done = add_note(making, _("      ... more in the send queue"));
	for (uint32_t i = 0; i < queues->receive.count && done; i++)
		done = add_wr(making, qp->srq >= 0 ? "SRQ" : "RQ", &queues->receive.wrs[i]);
	if (done && queues->receive.more)
		done = add_note(making, _("      ... more in the receive queue"));
	return done;
}

/* What rows are sorted by, for qsort(). */
static _Thread_local struct {
	unsigned column;
	bool up;
} order;

static int compare(const void *left, const void *right)
{
	const struct row *a = left, *b = right;
	const struct cell *x = &a->cells[order.column], *y = &b->cells[order.column];
	int result = isnan(x->key) ? strcmp(y->text, x->text) : x->key < y->key ? 1 : x->key > y->key ? -1 : 0;

	if (order.up)
		result = -result;
	if (!result)
		result = a->pid != b->pid ? (a->pid > b->pid ? 1 : -1) : (a->index > b->index) - (a->index < b->index);
	return result;
}

static bool add_rows(const struct making *making, const struct sight *sight, const struct queues *queues)
{
	const struct process_shot *process = making->process;
	bool done = true;

	switch (sight->view) {
	case VIEW_PROCESSES:
		return add_process(making);
	case VIEW_QPS:
		for (uint32_t i = 0; i < process->qp_count && done; i++)
			done = add_qp(making, &process->qps[i]);
		return done;
	case VIEW_CQS:
		for (uint32_t i = 0; i < process->cq_count && done; i++)
			done = add_cq(making, &process->cqs[i]);
		return done;
	case VIEW_SRQS:
		for (uint32_t i = 0; i < process->srq_count && done; i++)
			done = add_srq(making, &process->srqs[i]);
		return done;
	default:
		return add_queues(making, sight->qp_index, queues);
	}
}

bool rows_make(struct sheet *sheet, const struct sight *sight, const struct snapshot *now, const struct snapshot *before,
	       const struct queues *queues)
{
	bool done = true;

	*sheet = (struct sheet){ .columns = views[sight->view].columns, .column_count = views[sight->view].count };
	for (uint32_t i = 0; i < now->count && done; i++) {
		struct making making = { .sheet = sheet, .process = &now->processes[i] };

		if (sight->pid && making.process->pid != sight->pid)
			continue;
		making.before = before ? process_shot_before(before, making.process) : NULL;
		if (making.before)
			making.seconds = (double)(making.process->at - making.before->at) / 1e9;
		done = add_rows(&making, sight, queues);
	}
	order.column = sight->sort[sight->view];
	order.up = sight->up[sight->view];
	if (done && sight->view != VIEW_QUEUE && sheet->count)
		qsort(sheet->rows, sheet->count, sizeof(*sheet->rows), compare);
	return done;
}

void rows_free(struct sheet *sheet)
{
	free(sheet->rows);
	sheet->rows = NULL;
	sheet->count = 0;
}
