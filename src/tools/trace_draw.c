/* SPDX-License-Identifier: MIT */
#include "tools/trace_draw.h"

#include <inttypes.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "observe/explain.h"
#include "tools/explain.h"
#include "tools/trace_json.h"
#include "tools/trace_phases.h"
#include "tools/trace_values.h"
#include "tools/width.h"

/* Behind an arrow: how long it took, or the longest name of a status. */
enum { LEAST_COLUMNS = 72, TIME_COLUMNS = 13, LATENCY_COLUMNS = 14, STATUS_COLUMNS = 21 };
/* Of a screen: heads, what says how many more there are, the line at the end and the prompt. */
enum { OTHER_LINES = 6, LEAST_MESSAGES = 3, LEVELS = 8 };

static const struct glyphs {
	const char *line, *dash, *right, *left, *broken;
	const char *levels[LEVELS + 1];
} ascii = { "|", "-", ">", "<", "X", { " ", ".", ":", "-", "=", "+", "*", "#", "@" } },
  utf8 = { "│", "─", "▶", "◀", "✗", { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" } };

struct drawing {
	FILE *out;
	const struct trace_model *model;
	const struct glyphs *glyphs;
	unsigned rows, columns, behind; /* of all, and behind an arrow */
	uint32_t left, right; /* QPs; right may be TRACE_NONE */
	uint64_t from, to;    /* the time of all requests */
};

/* ---- Messages ---- */

static void find_time(struct drawing *d)
{
	d->from = d->model->sends.count ? TRACE_NEVER : 0;
	d->to = d->from ? 0 : d->model->duration;
	for (uint32_t i = 0; i < d->model->sends.count; i++) {
		const struct trace_send *send = &d->model->sends.at[i];
		const uint64_t start = trace_send_start(send);

		d->from = start < d->from ? start : d->from;
		for (unsigned point = 0; point < TRACE_POINTS; point++)
			if (send->at[point] != TRACE_NEVER && send->at[point] > d->to)
				d->to = send->at[point];
	}
}

/* The connection, or the QP, of the first message. */
static void choose(struct drawing *d)
{
	d->left = d->right = TRACE_NONE;
	for (uint32_t i = 0; i < d->model->sends.count; i++) {
		const struct trace_send *send = &d->model->sends.at[i];

		d->left = send->qp;
		d->right = trace_send_dest(d->model, send);
		if (d->right != TRACE_NONE)
			return;
	}
}

static bool is_drawn(const struct drawing *d, const struct trace_send *send)
{
	const uint32_t dest = trace_send_dest(d->model, send);

	return (send->qp == d->left && dest == d->right) || (send->qp == d->right && dest == d->left && d->left != d->right);
}

static void repeat(FILE *out, const char *glyph, unsigned count)
{
	while (count--)
		fputs(glyph, out);
}

/* A process, and below it the QP, over each of the lines. */
static void draw_heads(const struct drawing *d)
{
	const int width = (int)(d->columns - TIME_COLUMNS - d->behind), half = width / 2;
	const uint32_t ids[] = { d->left, d->right };
	char process[2][32], number[2][32];

	for (unsigned i = 0; i < 2; i++) {
		const struct trace_queue_pair *qp = ids[i] == TRACE_NONE ? NULL : &d->model->qps.at[ids[i]];
		const struct trace_process *owner = qp && qp->process != TRACE_NONE ? &d->model->processes.at[qp->process] : NULL;

		snprintf(process[i], sizeof(process[i]), "%s", owner ? owner->name : _("not traced"));
		if (owner)
			snprintf(process[i], sizeof(process[i]), "%s (%u)", owner->name, owner->pid);
		snprintf(number[i], sizeof(number[i]), "%s", "");
		if (qp)
			snprintf(number[i], sizeof(number[i]), "QP 0x%x", qp->qpn);
	}
	fprintf(d->out, "%*s ", TIME_COLUMNS - 2, "");
	width_put(d->out, process[0], half);
	width_put(d->out, process[1], half - width);
	fprintf(d->out, "\n%*s ", TIME_COLUMNS - 2, "us");
	width_put(d->out, number[0], half);
	width_put(d->out, number[1], half - width);
	fputc('\n', d->out);
}

static void arrow(const struct drawing *d, const struct trace_send *send)
{
	const struct glyphs *g = d->glyphs;
	const bool reads = send->opcode == IBV_WR_RDMA_READ;
	const bool to_right = (send->qp == d->left) != reads, bad = trace_failed(send);
	const unsigned width = d->columns - TIME_COLUMNS - d->behind - 2;
	const uint64_t *at = send->at, start = trace_send_start(send);
	const uint64_t end = at[TRACE_POINT_PLACED] != TRACE_NEVER ? at[TRACE_POINT_PLACED] : at[TRACE_POINT_CQE];
	const char *opcode = trace_opcode_name(send->opcode);
	char label[96], size[24], took[24] = "";
	unsigned dashes;

	snprintf(label, sizeof(label), " %s wr_id %" PRIu64 " %s%s%s ", opcode ? opcode : "?", send->wr_id,
		 trace_bytes(send->length, size, sizeof(size)), send->retries ? _(", again") : "", bad ? " !" : "");
	label[width_fit(label, width - 4)] = '\0';
	dashes = width - width_of(label) - 1;
	if (end != TRACE_NEVER)
		trace_duration(end - start, took, sizeof(took));
	fprintf(d->out, "%*.3f %s", TIME_COLUMNS - 2, (double)(start - d->from) / 1e3, g->line);
	if (!to_right)
		fputs(bad ? g->broken : g->left, d->out);
	repeat(d->out, g->dash, dashes / 2);
	fputs(label, d->out);
	repeat(d->out, g->dash, dashes - dashes / 2);
	if (to_right)
		fputs(bad ? g->broken : g->right, d->out);
	fprintf(d->out, "%s %s\n", g->line, bad ? trace_status_name(send->status) : took);
}

static unsigned count_drawn(struct drawing *d)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < d->model->sends.count; i++) {
		if (!is_drawn(d, &d->model->sends.at[i]))
			continue;
		count++;
		if (trace_failed(&d->model->sends.at[i]))
			d->behind = STATUS_COLUMNS;
	}
	return count;
}

static void draw_messages(struct drawing *d, unsigned most)
{
	unsigned all, drawn = 0;

	if (d->left == TRACE_NONE) {
		fprintf(d->out, "%s\n", _("No request was posted."));
		return;
	}
	all = count_drawn(d);
	draw_heads(d);
	for (uint32_t i = 0; i < d->model->sends.count && drawn < most; i++) {
		if (!is_drawn(d, &d->model->sends.at[i]))
			continue;
		arrow(d, &d->model->sends.at[i]);
		drawn++;
	}
	if (all > drawn)
		fprintf(d->out, _("%*s and %u more between these two\n"), TIME_COLUMNS - 2, "", all - drawn);
	if (d->model->sends.total > all)
		fprintf(d->out, _("%*s and %llu of other queue pairs\n"), TIME_COLUMNS - 2, "",
			(unsigned long long)(d->model->sends.total - all));
}

/* ---- How long it took ---- */

/* Operation, until when, how many; in how long half of them, 99 % and all were there. */
static void draw_latency(const struct drawing *d, const char *const cells[6])
{
	static const int widths[] = { 21, 12, -9, -10, -10, -10 };

	for (unsigned i = 0; i < 6; i++)
		width_put(d->out, cells[i], widths[i]);
	fputc('\n', d->out);
}

static void draw_phase(void *arg, const struct trace_phase *phase)
{
	const struct drawing *d = arg;
	char count[24], p50[24], p99[24], max[24];

	if (phase->from != TRACE_POINT_POSTED || (phase->to != TRACE_POINT_PLACED && phase->to != TRACE_POINT_POLLED))
		return;
	snprintf(count, sizeof(count), "%" PRIu64, phase->count);
	trace_duration(trace_phase_quantile(phase, 0.5), p50, sizeof(p50));
	trace_duration(trace_phase_quantile(phase, 0.99), p99, sizeof(p99));
	trace_duration(phase->max, max, sizeof(max));
	draw_latency(d, (const char *[]){ trace_opcode_name(phase->opcode),
					  phase->to == TRACE_POINT_PLACED ? _("placed") : _("polled"), count, p50, p99, max });
}

static void draw_phases(struct drawing *d)
{
	static struct trace_phase room;

	if (!d->model->sends.count)
		return;
	/* xgettext:no-c-format */
	const char *const most = _("99 % in");

	draw_latency(d, (const char *[]){ "", _("posted to"), _("times"), _("half in"), most, _("all in") });
	for (uint8_t opcode = 0; opcode <= IBV_WR_SEND_WITH_INV; opcode++)
		if (trace_opcode_name(opcode))
			trace_phases_tell(d->model, opcode, &room, draw_phase, d);
}

/* ---- Queues ---- */

static void draw_fill(const struct drawing *d, const char *kind, uint32_t number, uint32_t limit, const struct trace_fill *fill)
{
	const unsigned width = d->columns - 44;
	const uint64_t step = (d->to - d->from) / width + 1;
	uint32_t at = 0, level = 0;
	char most[64];

	if (!fill->max && !fill->waited)
		return;
	for (; at < fill->count && fill->points[at].time < d->from; at++)
		level = fill->points[at].low;
	fprintf(d->out, number > 0xff ? "%3s 0x%-8x %s" : "%3s %-10u %s", kind, number, d->glyphs->line);
	for (unsigned column = 0; column < width; column++) {
		uint32_t high = level;

		for (; at < fill->count && fill->points[at].time < d->from + (column + 1) * step; at++) {
			high = fill->points[at].high > high ? fill->points[at].high : high;
			level = fill->points[at].low;
		}
		fputs(d->glyphs->levels[high ? 1 + (uint64_t)high * (LEVELS - 1) / fill->max : 0], d->out);
	}
	fprintf(d->out, "%s %s\n", d->glyphs->line, trace_most(fill, limit, most, sizeof(most)));
}

/* A CQ or SRQ, if it is known. */
static void draw_queue(const struct drawing *d, const char *kind, const struct trace_queue *queue)
{
	if (queue)
		draw_fill(d, kind, queue->number, queue->entries, &queue->fill);
}

/* Of one end; what the other end has too was drawn already. */
static void draw_queues(struct drawing *d, uint32_t id, uint32_t other)
{
	const struct trace_queue_pair *seen = other < d->model->qps.count ? &d->model->qps.at[other] : NULL;
	const struct trace_queue_pair *qp = id < d->model->qps.count ? &d->model->qps.at[id] : NULL;

	if (!qp)
		return;
	draw_fill(d, "SQ", qp->qpn, qp->attr.max_send_wr, &qp->sq);
	draw_fill(d, "RQ", qp->qpn, qp->attr.max_recv_wr, &qp->rq);
	if (!qp->known || qp->process == TRACE_NONE)
		return;
	if (qp->attr.srq >= 0)
		draw_queue(d, "SRQ", trace_model_srq(d->model, qp->process, (uint32_t)qp->attr.srq));
	if (seen && seen->known && seen->process == qp->process && seen->attr.send_cq == qp->attr.send_cq &&
	    seen->attr.recv_cq == qp->attr.recv_cq)
		return;
	draw_queue(d, "CQ", trace_model_cq(d->model, qp->process, qp->attr.send_cq));
	if (qp->attr.recv_cq != qp->attr.send_cq)
		draw_queue(d, "CQ", trace_model_cq(d->model, qp->process, qp->attr.recv_cq));
}

static void draw_all_queues(struct drawing *d)
{
	draw_queues(d, d->left, TRACE_NONE);
	if (d->right != d->left)
		draw_queues(d, d->right, d->left);
}

/* ---- Failures ---- */

/* As many as there are lines for, but one at least. */
static void draw_failures(struct drawing *d, unsigned lines)
{
	uint32_t i;

	for (i = 0; i < d->model->causes.count; i++) {
		const struct trace_cause *cause = &d->model->causes.at[i];
		char words[EXPLAIN_TEXT], text[EXPLAIN_TEXT + 128];
		unsigned more;

		snprintf(words, sizeof(words), "%s", explain_short(cause->code));
		if (cause->told)
			explain_what(&cause->record, words, sizeof(words));
		snprintf(text, sizeof(text), "%*.3f %s (%u): %s\n", TIME_COLUMNS - 2, ((double)cause->time - (double)d->from) / 1e3,
			 cause_name(cause->code) ? cause_name(cause->code) : "?", cause->code, words);
		more = width_lines(text, d->columns);
		if (i && more > lines)
			break;
		fputs(text, d->out);
		lines -= more < lines ? more : lines;
	}
	if (d->model->causes.total > i) {
		fprintf(d->out, _("and %u more causes of failure"), (unsigned)(d->model->causes.total - i));
		fputc('\n', d->out);
	}
}

/* ---- A screenful ---- */

/* The text that is drawn by that, malloc'ed; NULL for want of memory. */
static char *drawn(struct drawing *d, void (*draw)(struct drawing *d))
{
	FILE *out = d->out;
	char *text = NULL;
	size_t size;

	d->out = open_memstream(&text, &size);
	if (d->out) {
		draw(d);
		fclose(d->out);
	}
	d->out = out;
	return text;
}

/* The first lines of a text. */
static void put_lines(FILE *out, const char *text, unsigned most)
{
	while (*text && most--) {
		const size_t bytes = strcspn(text, "\n") + 1;

		fwrite(text, 1, bytes, out);
		text += bytes;
	}
}

static void draw_third(struct drawing *d)
{
	draw_failures(d, d->rows / 3);
}

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

void trace_draw(FILE *out, const struct trace_model *model, unsigned columns, unsigned rows)
{
	struct drawing d = { .out = out,
			     .model = model,
			     .glyphs = strcmp(nl_langinfo(CODESET), "UTF-8") ? &ascii : &utf8,
			     .columns = columns < LEAST_COLUMNS ? LEAST_COLUMNS : columns,
			     .behind = LATENCY_COLUMNS,
			     .rows = rows };
	char *phases, *queues, *failures;
	unsigned room, phase_lines, queue_lines;

	find_time(&d);
	choose(&d);
	phases = drawn(&d, draw_phases);
	queues = drawn(&d, draw_all_queues);
	failures = drawn(&d, draw_third);
	if (phases && queues && failures) {
		room = OTHER_LINES + LEAST_MESSAGES + width_lines(failures, d.columns);
		room = rows > room ? rows - room : 0;
		/* Half for each, and what one does not need for the other, then for messages. */
		phase_lines = width_lines(phases, d.columns);
		queue_lines = least(width_lines(queues, d.columns), room - least(phase_lines, room / 2));
		phase_lines = least(phase_lines, room - queue_lines);
		draw_messages(&d, LEAST_MESSAGES + room - phase_lines - queue_lines);
		put_lines(out, phases, phase_lines);
		put_lines(out, queues, queue_lines);
		fputs(failures, out);
	}
	free(phases);
	free(queues);
	free(failures);
}
