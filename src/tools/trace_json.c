/* SPDX-License-Identifier: MIT */
#include "tools/trace_json.h"

#include <inttypes.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "nic/gid.h"
#include "observe/explain.h"
#include "tools/trace_advice.h"
#include "tools/trace_phases.h"
#include "tools/trace_values.h"

/* ---- Values ---- */

void trace_json_text(FILE *out, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	fputc('"', out);
	while (*at) {
		const unsigned bytes = trace_character((const char *)at);

		if (!bytes)
			fputc('?', out);
		else if (*at < ' ' || *at == '"' || *at == '\\' || *at == '<' || *at == 0x7f)
			fprintf(out, "\\u%04x", *at);
		else
			fwrite(at, 1, bytes, out);
		at += bytes ? bytes : 1;
	}
	fputc('"', out);
}

static void text_or_null(FILE *out, const char *text)
{
	if (text)
		trace_json_text(out, text);
	else
		fputs("null", out);
}

static void id(FILE *out, uint32_t value)
{
	if (value == TRACE_NONE)
		fputs("null", out);
	else
		fprintf(out, "%" PRIu32, value);
}

static void time_(FILE *out, uint64_t value)
{
	if (value == TRACE_NEVER)
		fputs("null", out);
	else
		fprintf(out, "%" PRIu64, value);
}

static void after(FILE *out, uint64_t value, uint64_t start)
{
	fputc(',', out);
	time_(out, value == TRACE_NEVER ? value : value - start);
}

static void next_id(FILE *out, uint32_t value)
{
	fputc(',', out);
	id(out, value);
}

static void status(FILE *out, uint8_t value)
{
	const char *name = value == TRACE_NO_STATUS ? NULL : trace_status_name(value);

	fputc(',', out);
	text_or_null(out, name);
}

static void wide(FILE *out, bool known, uint64_t value)
{
	if (known)
		fprintf(out, ",\"0x%" PRIx64 "\"", value);
	else
		fputs(",null", out);
}

static void field(FILE *out, const char *name)
{
	fprintf(out, ",\"%s\":", name);
}

static void field_id(FILE *out, const char *name, uint32_t value)
{
	field(out, name);
	id(out, value);
}

static void field_time(FILE *out, const char *name, uint64_t value)
{
	field(out, name);
	time_(out, value);
}

static void comma(FILE *out, bool *first)
{
	if (!*first)
		fputs(",\n", out);
	*first = false;
}

const char *trace_status_name(uint8_t value)
{
	static const char prefix[] = "IBV_WC_";
	const char *name = explain_status(value);

	return name ? name + sizeof(prefix) - 1 : "?";
}

const char *trace_type_name(uint32_t type)
{
	return type == IBV_QPT_RC ? "RC" : type == IBV_QPT_UC ? "UC" : type == IBV_QPT_UD ? "UD" : NULL;
}

const char *trace_state_name(uint8_t state)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : NULL;
}

/* ---- Objects ---- */

static void processes(FILE *out, const struct trace_model *model)
{
	bool first = true;

	fputs("\"processes\":[", out);
	for (uint32_t i = 0; i < model->processes.count; i++) {
		const struct trace_process *process = &model->processes.at[i];

		comma(out, &first);
		fprintf(out, "{\"id\":%u,\"pid\":%u,\"name\":", i, process->pid);
		trace_json_text(out, process->name);
		fprintf(out, ",\"host\":%u,\"events\":%" PRIu64 ",\"dropped\":%" PRIu64 "}", process->host, process->events,
			process->dropped);
	}
	fputs("],\n", out);
}

/* The id of the last queue of this number in a process. */
static uint32_t queue_id(const struct trace_queue *queues, uint32_t count, uint32_t process, uint32_t number)
{
	while (count--)
		if (queues[count].process == process && queues[count].number == number)
			return count;
	return TRACE_NONE;
}

static void gid(FILE *out, const char *name, bool known, const uint8_t *raw)
{
	char text[GID_TEXT_BYTES];
	union ibv_gid value;

	memcpy(value.raw, raw, sizeof(value.raw));
	field(out, name);
	text_or_null(out, known && !gid_is_zero(&value) ? gid_text(&value, text) : NULL);
}

static void qp(FILE *out, const struct trace_model *model, uint32_t i)
{
	const struct trace_queue_pair *qp = &model->qps.at[i];
	const struct trace_qp *attr = &qp->attr;
	const bool known = qp->known;

	fprintf(out, "{\"id\":%u", i);
	field_id(out, "process", qp->process);
	field_id(out, "qpn", qp->qpn);
	field(out, "type");
	text_or_null(out, known ? trace_type_name(attr->type) : NULL);
	fprintf(out, ",\"wire\":%s", known && attr->wire ? "true" : "false");
	gid(out, "sgid", known, attr->sgid);
	gid(out, "dgid", known, attr->dgid);
	field_id(out, "dest_qpn", known && attr->dest_qpn ? attr->dest_qpn : TRACE_NONE);
	field_id(out, "peer", qp->peer);
	field_id(out, "mtu", known && attr->path_mtu ? attr->path_mtu : TRACE_NONE);
	field_id(out, "send_cq", known ? queue_id(model->cqs.at, model->cqs.count, qp->process, attr->send_cq) : TRACE_NONE);
	field_id(out, "recv_cq", known ? queue_id(model->cqs.at, model->cqs.count, qp->process, attr->recv_cq) : TRACE_NONE);
	field_id(out, "srq",
		 known && attr->srq >= 0 ? queue_id(model->srqs.at, model->srqs.count, qp->process, (uint32_t)attr->srq) :
					   TRACE_NONE);
	field_id(out, "max_send_wr", known ? attr->max_send_wr : TRACE_NONE);
	field_id(out, "max_recv_wr", known ? attr->max_recv_wr : TRACE_NONE);
	field_time(out, "created", qp->created);
	field_time(out, "destroyed", qp->destroyed);
	field(out, "states");
	fputc('[', out);
	for (uint32_t state = 0; state < qp->state_count; state++) {
		const char *name = trace_state_name(qp->states[state].state);

		fprintf(out, "%s[%" PRIu64 ",\"%s\"]", state ? "," : "", qp->states[state].time, name ? name : "?");
	}
	fputs("]}", out);
}

static void queues(FILE *out, const char *name, const char *number, const char *size, const struct trace_queue *all, uint32_t count)
{
	bool first = true;

	fprintf(out, "\"%s\":[", name);
	for (uint32_t i = 0; i < count; i++) {
		comma(out, &first);
		fprintf(out, "{\"id\":%u,\"process\":%u", i, all[i].process);
		field_id(out, number, all[i].number);
		field_id(out, size, all[i].entries ? all[i].entries : TRACE_NONE);
		field_time(out, "created", all[i].created);
		field_time(out, "destroyed", all[i].destroyed);
		fputc('}', out);
	}
	fputs("],\n", out);
}

static void qps(FILE *out, const struct trace_model *model)
{
	bool first = true;

	fputs("\"qps\":[", out);
	for (uint32_t i = 0; i < model->qps.count; i++) {
		comma(out, &first);
		qp(out, model, i);
	}
	fputs("],\n", out);
	queues(out, "cqs", "cqn", "entries", model->cqs.at, model->cqs.count);
	queues(out, "srqs", "srqn", "max_wr", model->srqs.at, model->srqs.count);
}

/* ---- Tables ---- */

static void table(FILE *out, const char *name, const char *columns, uint64_t total, uint64_t shown)
{
	fprintf(out, "\"%s\":{\"total\":%" PRIu64 ",\"shown\":%" PRIu64 ",\"columns\":[%s],\"rows\":[\n", name, total, shown,
		columns);
}

static uint32_t send_row(const struct trace_told *told, uint32_t send)
{
	return send < told->model->sends.count ? told->shown->sends[send] : TRACE_NONE;
}

static void send(FILE *out, const struct trace_told *told, const struct trace_send *send)
{
	const struct trace_model *model = told->model;
	const struct trace_receive *receive = send->receive < model->receives.count ? &model->receives.at[send->receive] : NULL;
	const char *opcode = trace_opcode_name(send->opcode);
	const uint64_t start = trace_send_start(send);

	fprintf(out, "[%" PRIu64 ",%u,%u", start, send->qp, send->index);
	wide(out, send->has_wr_id, send->wr_id);
	fputc(',', out);
	text_or_null(out, opcode);
	fprintf(out, ",%u", send->flags);
	next_id(out, send->length);
	status(out, send->status);
	for (unsigned point = 0; point < TRACE_POINTS; point++)
		after(out, send->at[point], start);
	after(out, receive ? receive->cqe : TRACE_NEVER, start);
	after(out, receive ? receive->polled : TRACE_NEVER, start);
	next_id(out, send->list ? send->list : TRACE_NONE);
	next_id(out, send->dest);
	next_id(out, receive ? told->shown->receives[send->receive] : TRACE_NONE);
	wide(out, send->addr, send->addr);
	next_id(out, send->psn);
	next_id(out, send->packets ? send->packets : TRACE_NONE);
	fprintf(out, ",%u]", send->retries);
}

static void sends(FILE *out, const struct trace_told *told)
{
	const struct trace_model *model = told->model;
	bool first = true;

	table(out, "sends",
	      "\"time\",\"qp\",\"index\",\"wr_id\",\"opcode\",\"flags\",\"length\",\"status\",\"posted\",\"rung\",\"seen\",\"gathered\",\"sent\",\"taken\","
	      "\"placed\",\"acked\",\"cqe\",\"polled\",\"remote_cqe\",\"remote_polled\",\"list\",\"dest\",\"receive\",\"addr\",\"psn\",\"packets\",\"retries\"",
	      model->sends.total, told->shown->send_rows);
	for (uint32_t i = 0; i < model->sends.count; i++) {
		if (told->shown->sends[i] == TRACE_NONE)
			continue;
		comma(out, &first);
		send(out, told, &model->sends.at[i]);
	}
	fputs("]},\n", out);
}

static void receives(FILE *out, const struct trace_told *told)
{
	const struct trace_model *model = told->model;
	bool first = true;

	table(out, "receives",
	      "\"time\",\"qp\",\"srq\",\"index\",\"wr_id\",\"room\",\"length\",\"status\",\"posted\",\"taken\",\"placed\",\"cqe\",\"polled\",\"send\"",
	      model->receives.total, told->shown->receive_rows);
	for (uint32_t i = 0; i < model->receives.count; i++) {
		const struct trace_receive *receive = &model->receives.at[i];
		const uint64_t start = trace_receive_start(receive);

		if (told->shown->receives[i] == TRACE_NONE)
			continue;
		comma(out, &first);
		fprintf(out, "[%" PRIu64, start);
		next_id(out, receive->qp);
		next_id(out, receive->srq);
		next_id(out, receive->index);
		wide(out, receive->has_wr_id, receive->wr_id);
		next_id(out, receive->room);
		next_id(out, receive->length);
		status(out, receive->status);
		after(out, receive->posted, start);
		after(out, receive->taken, start);
		after(out, receive->placed, start);
		after(out, receive->cqe, start);
		after(out, receive->polled, start);
		next_id(out, send_row(told, receive->send));
		fputc(']', out);
	}
	fputs("]},\n", out);
}

static void packets(FILE *out, const struct trace_told *told)
{
	const struct trace_model *model = told->model;
	bool first = true;

	table(out, "packets", "\"time\",\"qp\",\"out\",\"opcode\",\"psn\",\"length\",\"send\",\"again\"", model->packets.total,
	      model->packets.count);
	for (uint32_t i = 0; i < model->packets.count; i++) {
		const struct trace_packet_seen *packet = &model->packets.at[i];

		comma(out, &first);
		fprintf(out, "[%" PRIu64 ",%u,%d,%u,%u,%u", packet->time, packet->qp, packet->out, packet->opcode, packet->psn,
			packet->length);
		next_id(out, send_row(told, packet->send));
		fprintf(out, ",%d]", packet->again);
	}
	fputs("]},\n", out);
}

static void marks(FILE *out, const struct trace_told *told)
{
	static const char *const kinds[] = { "empty", "armed", "armed solicited", "fired", "awoke" };
	static const char *const again[] = { "?", "rnr", "timeout", "sequence" };
	const struct trace_model *model = told->model;
	bool first = true;

	table(out, "cq_events", "\"time\",\"cq\",\"kind\"", model->cq_events.total, model->cq_events.count);
	for (uint32_t i = 0; i < model->cq_events.count; i++) {
		const struct trace_cq_event *event = &model->cq_events.at[i];

		comma(out, &first);
		fprintf(out, "[%" PRIu64 ",%u,\"%s\"]", event->time, event->cq, kinds[event->kind]);
	}
	fputs("]},\n", out);
	table(out, "retries", "\"time\",\"qp\",\"send\",\"kind\",\"count\"", model->retries.total, model->retries.count);
	first = true;
	for (uint32_t i = 0; i < model->retries.count; i++) {
		const struct trace_again *retry = &model->retries.at[i];

		comma(out, &first);
		fprintf(out, "[%" PRIu64 ",%u", retry->time, retry->qp);
		next_id(out, send_row(told, retry->send));
		fprintf(out, ",\"%s\",%u]", again[retry->kind < sizeof(again) / sizeof(again[0]) ? retry->kind : 0], retry->count);
	}
	fputs("]},\n", out);
}

/* ---- Fills ---- */

static void fill(FILE *out, const char *queue, uint32_t owner, uint32_t limit, const struct trace_fill *fill, bool *first)
{
	if (!fill->count)
		return;
	comma(out, first);
	fprintf(out, "{\"queue\":\"%s\",\"owner\":%u,\"limit\":", queue, owner);
	id(out, limit ? limit : TRACE_NONE);
	fprintf(out, ",\"max\":%u,%s\"points\":[", fill->max, fill->width ? "\"merged\":true," : "");
	for (uint32_t i = 0; i < fill->count; i++) {
		const struct trace_fill_point *point = &fill->points[i];

		fprintf(out, "%s[%" PRIu64 ",%u", i ? "," : "", point->time, point->low);
		if (fill->width)
			fprintf(out, ",%u", point->high);
		fputc(']', out);
	}
	fputs("]}", out);
}

static void fills(FILE *out, const struct trace_model *model)
{
	bool first = true;

	fputs("\"fills\":[", out);
	for (uint32_t i = 0; i < model->qps.count; i++) {
		const struct trace_queue_pair *qp = &model->qps.at[i];

		fill(out, "sq", i, qp->attr.max_send_wr, &qp->sq, &first);
		fill(out, "rq", i, qp->attr.max_recv_wr, &qp->rq, &first);
	}
	for (uint32_t i = 0; i < model->srqs.count; i++)
		fill(out, "srq", i, model->srqs.at[i].entries, &model->srqs.at[i].fill, &first);
	for (uint32_t i = 0; i < model->cqs.count; i++)
		fill(out, "cq", i, model->cqs.at[i].entries, &model->cqs.at[i].fill, &first);
	fputs("],\n", out);
}

/* ---- Phases ---- */

struct phases {
	FILE *out;
	bool first;
};

static void phase(void *arg, const struct trace_phase *phase)
{
	struct phases *phases = arg;
	FILE *out = phases->out;

	comma(out, &phases->first);
	fprintf(out, "{\"opcode\":\"%s\",\"from\":\"%s\",\"to\":\"%s\",\"count\":%" PRIu64 ",\"min\":%" PRIu64,
		trace_opcode_name(phase->opcode), trace_point_names[phase->from], trace_point_names[phase->to], phase->count,
		phase->min);
	fprintf(out, ",\"p50\":%" PRIu64 ",\"p99\":%" PRIu64 ",\"max\":%" PRIu64 ",\"sum\":%" PRIu64 "}",
		trace_phase_quantile(phase, 0.5), trace_phase_quantile(phase, 0.99), phase->max, phase->sum);
}

static void all_phases(FILE *out, const struct trace_model *model)
{
	static struct trace_phase room;
	struct phases phases = { out, true };

	fputs("\"phases\":[", out);
	for (uint8_t opcode = 0; opcode <= IBV_WR_SEND_WITH_INV; opcode++)
		if (trace_opcode_name(opcode))
			trace_phases_tell(model, opcode, &room, phase, &phases);
	fputs("],\n", out);
}

/* ---- Causes ---- */

static void words(FILE *out, const char *name, char *const texts[TRACE_LANGUAGES])
{
	field(out, name);
	if (!texts || !texts[TRACE_EN]) {
		fputs("null", out);
		return;
	}
	for (unsigned language = 0; language < TRACE_LANGUAGES; language++) {
		if (!texts[language])
			continue;
		fprintf(out, "%c\"%s\":", language ? ',' : '{', trace_language_names[language]);
		trace_json_text(out, texts[language]);
	}
	fputc('}', out);
}

static void causes(FILE *out, const struct trace_told *told)
{
	const struct trace_model *model = told->model;
	bool first = true;

	fputs("\"causes\":[", out);
	for (uint32_t i = 0; i < model->causes.count; i++) {
		const struct trace_cause *cause = &model->causes.at[i];
		const struct trace_words *texts = told->words ? &told->words[i] : NULL;
		const char *outcome = cause->told ? explain_outcome(&cause->record) : "";

		comma(out, &first);
		fprintf(out, "{\"time\":%" PRIu64 ",\"process\":%u", cause->time, cause->process);
		field_id(out, "qp", cause->qp);
		field_id(out, "send", send_row(told, cause->send));
		field_id(out, "code", cause->code);
		field(out, "name");
		text_or_null(out, cause_name(cause->code));
		fprintf(out, ",\"error\":%d", cause->error);
		field(out, "outcome");
		text_or_null(out, *outcome ? outcome : NULL);
		field(out, "wr_id");
		if (cause->told)
			fprintf(out, "\"0x%" PRIx64 "\"", cause->record.wr_id);
		else
			fputs("null", out);
		words(out, "short", texts ? texts->brief : NULL);
		words(out, "what", texts ? texts->what : NULL);
		words(out, "todo", texts ? texts->todo : NULL);
		fputc('}', out);
	}
	fputs("]", out);
}

static void advices(FILE *out, const struct trace_told *told)
{
	bool first = true;

	fputs(",\n\"advice\":[", out);
	for (uint32_t i = 0; told->advices && i < told->advices->count; i++) {
		const struct trace_advice *advice = &told->advices->at[i];

		comma(out, &first);
		fprintf(out, "{\"process\":%u", advice->process);
		words(out, "what", advice->what);
		fputc('}', out);
	}
	fputs("]", out);
}

void trace_json_model(FILE *out, const struct trace_told *told)
{
	const struct trace_model *model = told->model;

	fputs("{\"format\":\"uroce-trace\",\"version\":1,\"program\":", out);
	trace_json_text(out, told->program);
	fprintf(out, ",\"start_ns\":\"%" PRIu64 "\",\"duration\":%" PRIu64 ",\"events\":%" PRIu64 ",\"dropped\":%" PRIu64 ",\n",
		told->start, model->duration, model->events, model->dropped);
	processes(out, model);
	qps(out, model);
	sends(out, told);
	receives(out, told);
	packets(out, told);
	marks(out, told);
	fills(out, model);
	all_phases(out, model);
	causes(out, told);
	advices(out, told);
	fputs("}\n", out);
}
