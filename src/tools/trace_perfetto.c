/* SPDX-License-Identifier: MIT */
#include "tools/trace_perfetto.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

/* Tracks of one kind of a queue pair. A slice is in a track where none is at that time. */
#define LANES 512

struct lanes {
	uint64_t until[LANES]; /* the end of the last slice in each */
	uint32_t used;
};

enum track { TRACK_SENDS, TRACK_RECEIVES, TRACK_SRQ, TRACK_CQ };

struct writing {
	FILE *out;
	const struct trace_told *told;
	const struct trace_model *model;
	struct lanes *sends, *receives, *srqs;
	bool begun;
};

/* ---- Events ---- */

/* The part that all have; more members follow. */
static void begin(struct writing *w, const char *phase, uint32_t process, uint32_t thread)
{
	fprintf(w->out, "%s{\"ph\":\"%s\",\"pid\":%u,\"tid\":%u", w->begun ? ",\n" : "", phase, process + 1, thread);
	w->begun = true;
}

/* Times are in µs. */
static void at(struct writing *w, const char *name, uint64_t ns)
{
	fprintf(w->out, ",\"%s\":%" PRIu64 ".%03u", name, ns / 1000, (unsigned)(ns % 1000));
}

static void slice(struct writing *w, uint32_t process, uint32_t thread, const char *name, uint64_t from, uint64_t to)
{
	begin(w, "X", process, thread);
	fprintf(w->out, ",\"name\":\"%s\"", name);
	at(w, "ts", from);
	at(w, "dur", to - from);
}

static void end(struct writing *w)
{
	fputc('}', w->out);
}

/* Threads are numbered so that those of a queue pair are together. */
static uint32_t thread_of(enum track track, uint32_t id, uint32_t lane)
{
	return (uint32_t)(((track == TRACK_CQ  ? 0x100000u :
			    track == TRACK_SRQ ? 0x80000u :
						 2 * id + track) +
			   (track >= TRACK_SRQ ? id : 0)) *
			  LANES) +
	       lane + 1;
}

static void name_thread(struct writing *w, uint32_t process, uint32_t thread, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void name_thread(struct writing *w, uint32_t process, uint32_t thread, const char *format, ...)
{
	va_list args;

	begin(w, "M", process, thread);
	fputs(",\"name\":\"thread_name\",\"args\":{\"name\":\"", w->out);
	va_start(args, format);
	vfprintf(w->out, format, args);
	va_end(args);
	fputs("\"}}", w->out);
	begin(w, "M", process, thread);
	fprintf(w->out, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%u}}", thread);
}

static uint32_t owner_of(const struct trace_model *model, uint32_t qp)
{
	return qp < model->qps.count ? model->qps.at[qp].process : TRACE_NONE;
}

/* ---- Lives ---- */

/* The first free track from this time on, the last one if there is none. */
static uint32_t lane_for(struct lanes *lanes, uint64_t from, uint64_t to, bool *is_new)
{
	uint32_t lane = 0;

	while (lane < LANES - 1 && lane < lanes->used && lanes->until[lane] > from)
		lane++;
	*is_new = lane >= lanes->used;
	if (*is_new)
		lanes->used = lane + 1;
	lanes->until[lane] = to;
	return lane;
}

static uint64_t last_of(const uint64_t *times, unsigned count, uint64_t first)
{
	uint64_t last = first;

	for (unsigned i = 0; i < count; i++)
		if (times[i] != TRACE_NEVER && times[i] > last)
			last = times[i];
	return last;
}

/* From each point that is known to the next. Names say what is waited for. */
static void parts(struct writing *w, uint32_t process, uint32_t thread, const uint64_t *times, const char *const *names,
		  unsigned count)
{
	uint64_t from = TRACE_NEVER;

	for (unsigned i = 0; i < count; i++) {
		if (times[i] == TRACE_NEVER || (from != TRACE_NEVER && times[i] < from))
			continue;
		if (from != TRACE_NEVER) {
			slice(w, process, thread, names[i], from, times[i]);
			end(w);
		}
		from = times[i];
	}
}

static void arrow(struct writing *w, const char *phase, uint32_t process, uint32_t thread, uint32_t id, uint64_t time)
{
	begin(w, phase, process, thread);
	fprintf(w->out, ",\"cat\":\"message\",\"name\":\"message\",\"id\":%u", id);
	at(w, "ts", time);
	if (*phase == 'f')
		fputs(",\"bp\":\"e\"", w->out);
	end(w);
}

static void send(struct writing *w, uint32_t id)
{
	static const char *const names[TRACE_POINTS] = {
		[TRACE_POINT_RUNG] = "posting",
		[TRACE_POINT_SEEN] = "waiting in the queue",
		[TRACE_POINT_AGAIN] = "waiting to be sent again",
		[TRACE_POINT_GATHERED] = "gathering",
		[TRACE_POINT_SENT] = "sending",
		[TRACE_POINT_TAKEN] = "taking a receive",
		[TRACE_POINT_PLACED] = "placing",
		[TRACE_POINT_ACKED] = "acknowledging",
		[TRACE_POINT_CQE] = "completing",
		[TRACE_POINT_POLLED] = "waiting to be polled",
	};
	const struct trace_send *send = &w->model->sends.at[id];
	const uint32_t process = owner_of(w->model, send->qp);
	const uint64_t from = trace_send_start(send), to = last_of(send->at, TRACE_POINTS, from);
	const char *opcode = trace_opcode_name(send->opcode);
	uint32_t lane, thread;
	bool is_new;

	if (process == TRACE_NONE)
		return;
	lane = lane_for(&w->sends[send->qp], from, to, &is_new);
	thread = thread_of(TRACK_SENDS, send->qp, lane);
	if (is_new)
		name_thread(w, process, thread, lane ? "QP 0x%x sends (%u)" : "QP 0x%x sends", w->model->qps.at[send->qp].qpn,
			    lane + 1);
	slice(w, process, thread, opcode ? opcode : "request", from, to);
	fprintf(w->out,
		",\"cat\":\"send\",\"args\":{\"wr_id\":\"0x%" PRIx64 "\",\"index\":%u,\"bytes\":%" PRId64
		",\"status\":\"%s\",\"retries\":%u",
		send->wr_id, send->index, send->length == TRACE_NONE ? -1 : (int64_t)send->length,
		send->status == TRACE_NO_STATUS ? "none" : trace_status_name(send->status), send->retries);
	if (send->cause < w->model->causes.count && w->told->words && w->told->words[send->cause].brief[TRACE_EN]) {
		fputs(",\"cause\":", w->out);
		trace_json_text(w->out, w->told->words[send->cause].brief[TRACE_EN]);
	}
	fputs("}}", w->out);
	parts(w, process, thread, send->at, names, TRACE_POINTS);
	/* To the receive; the arrow ends where that is, if it is shown. */
	if (send->receive < w->model->receives.count && w->told->shown->receives[send->receive] != TRACE_NONE &&
	    send->at[TRACE_POINT_TAKEN] != TRACE_NEVER)
		arrow(w, "s", process, thread, id, send->at[TRACE_POINT_TAKEN] < from ? from : send->at[TRACE_POINT_TAKEN]);
}

static void receive(struct writing *w, uint32_t id)
{
	static const char *const names[] = { NULL, "waiting for a message", "placing", "completing", "waiting to be polled" };
	const struct trace_receive *receive = &w->model->receives.at[id];
	const uint64_t times[] = { receive->posted, receive->taken, receive->placed, receive->cqe, receive->polled };
	const bool shared = receive->srq != TRACE_NONE;
	const uint32_t process = shared ? w->model->srqs.at[receive->srq].process : owner_of(w->model, receive->qp);
	const uint64_t from = trace_receive_start(receive), to = last_of(times, 5, from);
	const uint32_t owner = shared ? receive->srq : receive->qp;
	uint32_t lane, thread;
	bool is_new;

	if (process == TRACE_NONE || owner == TRACE_NONE)
		return;
	lane = lane_for(shared ? &w->srqs[owner] : &w->receives[owner], from, to, &is_new);
	thread = thread_of(shared ? TRACK_SRQ : TRACK_RECEIVES, owner, lane);
	if (is_new && shared)
		name_thread(w, process, thread, lane ? "SRQ %u (%u)" : "SRQ %u", w->model->srqs.at[owner].number, lane + 1);
	else if (is_new)
		name_thread(w, process, thread, lane ? "QP 0x%x receives (%u)" : "QP 0x%x receives", w->model->qps.at[owner].qpn,
			    lane + 1);
	slice(w, process, thread, "RECV", from, to);
	fprintf(w->out,
		",\"cat\":\"receive\",\"args\":{\"wr_id\":\"0x%" PRIx64 "\",\"slot\":%u,\"bytes\":%" PRId64 ",\"status\":\"%s\"}}",
		receive->wr_id, receive->index, receive->length == TRACE_NONE ? -1 : (int64_t)receive->length,
		receive->status == TRACE_NO_STATUS ? "none" : trace_status_name(receive->status));
	parts(w, process, thread, times, names, 5);
	if (receive->send < w->model->sends.count && w->told->shown->sends[receive->send] != TRACE_NONE &&
	    owner_of(w->model, w->model->sends.at[receive->send].qp) != TRACE_NONE &&
	    w->model->sends.at[receive->send].receive == id &&
	    w->model->sends.at[receive->send].at[TRACE_POINT_TAKEN] != TRACE_NEVER)
		arrow(w, "f", process, thread, receive->send,
		      receive->placed != TRACE_NEVER ? receive->placed :
		      receive->taken != TRACE_NEVER  ? receive->taken :
						       from);
}

/* ---- Queues ---- */

static void counter(struct writing *w, uint32_t process, const char *kind, uint32_t number, const struct trace_fill *fill)
{
	if (process == TRACE_NONE)
		return;
	for (uint32_t i = 0; i < fill->count; i++) {
		begin(w, "C", process, 0);
		fprintf(w->out, ",\"name\":\"%s 0x%x filled\"", kind, number);
		at(w, "ts", fill->points[i].time);
		fprintf(w->out, ",\"args\":{\"entries\":%u}}", fill->points[i].high);
	}
}

static void counters(struct writing *w)
{
	const struct trace_model *model = w->model;

	for (uint32_t i = 0; i < model->qps.count; i++) {
		counter(w, model->qps.at[i].process, "SQ of QP", model->qps.at[i].qpn, &model->qps.at[i].sq);
		counter(w, model->qps.at[i].process, "RQ of QP", model->qps.at[i].qpn, &model->qps.at[i].rq);
	}
	for (uint32_t i = 0; i < model->srqs.count; i++)
		counter(w, model->srqs.at[i].process, "SRQ", model->srqs.at[i].number, &model->srqs.at[i].fill);
	for (uint32_t i = 0; i < model->cqs.count; i++)
		counter(w, model->cqs.at[i].process, "CQ", model->cqs.at[i].number, &model->cqs.at[i].fill);
}

static void instant(struct writing *w, uint32_t process, uint32_t thread, const char *name, uint64_t time)
{
	begin(w, "i", process, thread);
	fputs(",\"s\":\"t\",\"name\":", w->out);
	trace_json_text(w->out, name);
	at(w, "ts", time);
	end(w);
}

static void marks(struct writing *w)
{
	static const char *const kinds[] = { "polled in vain", "armed", "armed for solicited", "event raised", "event taken" };
	const struct trace_model *model = w->model;

	for (uint32_t i = 0; i < model->cqs.count; i++)
		name_thread(w, model->cqs.at[i].process, thread_of(TRACK_CQ, i, 0), "CQ %u", model->cqs.at[i].number);
	for (uint32_t i = 0; i < model->cq_events.count; i++) {
		const struct trace_cq_event *event = &model->cq_events.at[i];

		instant(w, model->cqs.at[event->cq].process, thread_of(TRACK_CQ, event->cq, 0), kinds[event->kind], event->time);
	}
	for (uint32_t i = 0; i < model->causes.count; i++) {
		const struct trace_cause *cause = &model->causes.at[i];
		const char *text = w->told->words ? w->told->words[i].brief[TRACE_EN] : NULL;

		instant(w, cause->process, cause->qp < model->qps.count ? thread_of(TRACK_SENDS, cause->qp, 0) : 0,
			text ? text : "cause", cause->time);
	}
}

bool trace_perfetto(FILE *out, const struct trace_told *told)
{
	const struct trace_model *model = told->model;
	struct writing w = { .out = out,
			     .told = told,
			     .model = model,
			     .sends = calloc(model->qps.count + 1ul, sizeof(*w.sends)),
			     .receives = calloc(model->qps.count + 1ul, sizeof(*w.receives)),
			     .srqs = calloc(model->srqs.count + 1ul, sizeof(*w.srqs)) };
	const bool enough = w.sends && w.receives && w.srqs;

	fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"program\":", out);
	trace_json_text(out, told->program);
	fprintf(out, ",\"start_ns\":\"%" PRIu64 "\",\"events\":%" PRIu64 ",\"dropped\":%" PRIu64 "},\n\"traceEvents\":[\n",
		told->start, model->events, model->dropped);
	for (uint32_t i = 0; i < model->processes.count; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s (%u)", model->processes.at[i].name, model->processes.at[i].pid);
		begin(&w, "M", i, 0);
		fputs(",\"name\":\"process_name\",\"args\":{\"name\":", out);
		trace_json_text(out, name);
		fputs("}}", out);
	}
	for (uint32_t i = 0; enough && i < model->sends.count; i++)
		if (told->shown->sends[i] != TRACE_NONE)
			send(&w, i);
	for (uint32_t i = 0; enough && i < model->receives.count; i++)
		if (told->shown->receives[i] != TRACE_NONE)
			receive(&w, i);
	marks(&w);
	counters(&w);
	fputs("\n]}\n", out);
	free(w.sends);
	free(w.receives);
	free(w.srqs);
	return enough;
}
