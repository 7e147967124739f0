/* SPDX-License-Identifier: MIT */
#include "tools/trace_svg.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "observe/explain.h"
#include "tools/explain.h"
#include "tools/trace_json.h"
#include "tools/trace_values.h"

enum { MESSAGES = 12, COLUMNS = 6, QPS = 2 * MESSAGES, KINDS = 4, OF_KIND = 3, FAILURES = 5 };
enum { STEPS = 120, STEPS_BEFORE = 30 }; /* of the charts, at most; before the first message */

/* Pixels. */
enum { WIDTH = 900, MARGIN = 20, LINE = 15, LINES_LEFT = 140, LINES_RIGHT = 500, WORDS = 552 };
enum { CHART_LEFT = 140, CHART_RIGHT = 730, CHART_HEIGHT = 36, CHART_GAP = 16 };

static const char style[] =
	"text{font:12px system-ui,'Noto Sans','Noto Sans CJK SC',sans-serif;fill:#1f2933}.page{fill:#fff}.title{font-size:14px;font-weight:600}"
	".strong{font-weight:600}.muted{fill:#5f6c7b;font-size:11px}.middle{text-anchor:middle}.end{text-anchor:end}"
	".small{font-size:10px}text.bad{fill:#c0262d}.process{fill:#f1f4f8;stroke:#cbd3dd}.life{stroke:#9aa7b5;stroke-width:1.5}"
	".name{fill:#fff;stroke:#5f6c7b}.arrow{stroke:#1f6feb;fill:none;stroke-width:1.6}.asks{stroke-dasharray:3 3}.head{fill:#1f6feb}"
	".bad .arrow,.cross{stroke:#c0262d;fill:none}.cross{stroke-width:2.2}.post{stroke:#cbd3dd;stroke-dasharray:2 3}.axis{stroke:#9aa7b5}"
	".depth{stroke:#5f6c7b}.high{stroke-dasharray:5 3;stroke:#5f6c7b}.k0{stroke:#1f6feb;fill:#1f6feb}.k1{stroke:#1a7f4b;fill:#1a7f4b}"
	".k2{stroke:#8250c4;fill:#8250c4}.k3{stroke:#b35900;fill:#b35900}.fill{fill-opacity:.22;stroke:none!important}"
	".level{fill:none!important;stroke-width:1.6}"
	"@media(prefers-color-scheme:dark){text{fill:#e4e9ef}.page{fill:#12171d}.muted{fill:#9aa7b5}text.bad{fill:#ff8a80}"
	".process{fill:#1b232c;stroke:#3a4653}.life,.axis{stroke:#5f6c7b}.name{fill:#12171d;stroke:#9aa7b5}.arrow{stroke:#6cb0ff}"
	".head{fill:#6cb0ff}.bad .arrow,.cross{stroke:#ff8a80}.post{stroke:#3a4653}.depth,.high{stroke:#9aa7b5}.k0{stroke:#6cb0ff;fill:#6cb0ff}"
	".k1{stroke:#5fd08f;fill:#5fd08f}.k2{stroke:#c09cf5;fill:#c09cf5}.k3{stroke:#f0a35c;fill:#f0a35c}}";

struct chart {
	char name[32], whose[32];
	unsigned kind;
	const struct trace_fill *fill;
	uint32_t limit;
};

struct picture {
	FILE *out;
	const struct trace_model *model;
	unsigned y;
	uint32_t messages; /* that are drawn */
	uint64_t from;	   /* when the first began */
	uint32_t qps[QPS]; /* the place of each is its letter */
	unsigned qp_count;
	uint32_t columns[COLUMNS]; /* QPs of the lines that are drawn now; TRACE_NONE: who is not traced */
	unsigned column_count;
	struct chart charts[KINDS * OF_KIND];
	unsigned chart_count, of_kind[KINDS];
	const struct trace_fill *left_out[5 * QPS]; /* of which there is no chart: a QP has five queues at most */
	unsigned left_out_count;
	uint64_t steps[KINDS * OF_KIND * (STEPS_BEFORE + STEPS)];
	unsigned step_count;
};

/* ---- Text ---- */

static void escaped(FILE *out, const char *text, size_t bytes)
{
	const char *const end = text + bytes;

	while (text < end) {
		const unsigned width = trace_character(text);
		const unsigned char c = (unsigned char)*text;

		/* Some characters are none in XML, whichever way they are written. */
		if (!width || c < ' ' || c == 0x7f || !strncmp(text, "\xef\xbf\xbe", 3) || !strncmp(text, "\xef\xbf\xbf", 3))
			fputc('?', out);
		else if (strchr("<>&'\"", c))
			fprintf(out, "&#%u;", c);
		else
			fwrite(text, 1, width, out);
		text += width ? width : 1;
	}
}

static void write_text(struct picture *p, unsigned x, unsigned y, const char *class, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

static void write_text(struct picture *p, unsigned x, unsigned y, const char *class, const char *format, ...)
{
	char text[256];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	fprintf(p->out, "<text x=\"%u\" y=\"%u\" class=\"%s\">", x, y, class);
	escaped(p->out, text, strlen(text));
	fputs("</text>\n", p->out);
}

/* How much of a text goes into so many columns; beyond ASCII most letters take two of them, and words need no blanks. */
static size_t fitting(const char *text, unsigned columns)
{
	size_t at = 0, good = 0;

	while (text[at]) {
		const unsigned width = trace_character(text + at), takes = width > 2 ? 2 : 1;

		if (takes > columns)
			return good ? good : at;
		columns -= takes;
		if (text[at] == ' ' || width > 2)
			good = at + (width ? width : 1);
		at += width ? width : 1;
	}
	return at;
}

/* A text in lines, from p->y on. */
static void write_lines(struct picture *p, unsigned x, const char *class, unsigned columns, unsigned lines, const char *text)
{
	while (*text && lines--) {
		const size_t bytes = fitting(text, columns);

		fprintf(p->out, "<text x=\"%u\" y=\"%u\" class=\"%s\">", x, p->y, class);
		escaped(p->out, text, bytes);
		fputs(text[bytes] && !lines ? "…</text>\n" : "</text>\n", p->out);
		p->y += LINE;
		text += bytes;
	}
}

static const char *since(const struct picture *p, uint64_t time, char *text, size_t size)
{
	*text = time < p->from ? '-' : '+';
	trace_duration(time < p->from ? p->from - time : time - p->from, text + 1, size - 1);
	return text;
}

/* ---- Lines ---- */

static bool is_local(const struct trace_send *send)
{
	return send->opcode == IBV_WR_LOCAL_INV || send->opcode == IBV_WR_BIND_MW;
}

static uint32_t other_end(const struct picture *p, const struct trace_send *send)
{
	return is_local(send) ? send->qp : trace_send_dest(p->model, send);
}

static uint32_t process_of(const struct picture *p, uint32_t qp)
{
	return qp == TRACE_NONE ? TRACE_NONE : p->model->qps.at[qp].process;
}

/* In the order of their first messages, those of one process side by side. */
static bool add_column(struct picture *p, uint32_t qp)
{
	unsigned at = p->column_count;

	for (unsigned i = 0; i < p->column_count; i++)
		if (p->columns[i] == qp)
			return true;
	if (p->column_count == COLUMNS)
		return false;
	for (unsigned i = 0; i < p->column_count; i++)
		if (process_of(p, p->columns[i]) == process_of(p, qp))
			at = i + 1;
	memmove(&p->columns[at + 1], &p->columns[at], (p->column_count++ - at) * sizeof(qp));
	p->columns[at] = qp;
	return true;
}

static unsigned letter_of(const struct picture *p, uint32_t qp)
{
	unsigned i = 0;

	while (i < p->qp_count && p->qps[i] != qp)
		i++;
	return i;
}

/* The messages from the first on for whose ends there is room; the end of them. */
static uint32_t choose_columns(struct picture *p, uint32_t first)
{
	uint32_t i = first;

	for (p->column_count = 0; i < p->messages; i++) {
		const struct trace_send *send = &p->model->sends.at[i];
		uint32_t before[COLUMNS];
		const unsigned count = p->column_count;

		memcpy(before, p->columns, sizeof(before));
		if (add_column(p, send->qp) && add_column(p, other_end(p, send)))
			continue;
		memcpy(p->columns, before, sizeof(before));
		p->column_count = count;
		break;
	}
	for (unsigned column = 0; column < p->column_count; column++)
		if (p->columns[column] != TRACE_NONE && letter_of(p, p->columns[column]) == p->qp_count && p->qp_count < QPS)
			p->qps[p->qp_count++] = p->columns[column];
	return i;
}

static unsigned line_of(const struct picture *p, uint32_t qp)
{
	unsigned column = 0;

	while (column + 1 < p->column_count && p->columns[column] != qp)
		column++;
	return p->column_count < 2 ? (LINES_LEFT + LINES_RIGHT) / 2 :
				     LINES_LEFT + column * (LINES_RIGHT - LINES_LEFT) / (p->column_count - 1);
}

static void draw_heads(struct picture *p)
{
	const unsigned half = p->column_count > 4 ? 37 : p->column_count > 3 ? 58 : 82;

	for (unsigned i = 0, end; i < p->column_count; i = end) {
		const uint32_t id = process_of(p, p->columns[i]);
		const struct trace_process *process = id == TRACE_NONE ? NULL : &p->model->processes.at[id];
		const unsigned left = line_of(p, p->columns[i]);
		unsigned right = left;

		for (end = i; end < p->column_count && process_of(p, p->columns[end]) == id; end++)
			right = line_of(p, p->columns[end]);
		fprintf(p->out, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"68\" rx=\"6\" class=\"process\"/>\n", left - half, p->y,
			right - left + 2 * half);
		if (process && right - left + 2 * half > 100)
			write_text(p, (left + right) / 2, p->y + 16, "middle", "%s (%u)", process->name, process->pid);
		else
			write_text(p, (left + right) / 2, p->y + 16, "middle small", "%s", process ? process->name : _("not traced"));
		for (unsigned column = i; column < end; column++) {
			const uint32_t qp = p->columns[column];
			const unsigned x = line_of(p, qp);

			if (qp == TRACE_NONE)
				continue;
			write_text(p, x, p->y + 32, "middle muted", p->column_count > 4 ? "0x%x" : "QP 0x%x", p->model->qps.at[qp].qpn);
			fprintf(p->out, "<circle cx=\"%u\" cy=\"%u\" r=\"11\" class=\"name\"/>\n", x, p->y + 50);
			write_text(p, x, p->y + 54, "middle strong", "%c", 'A' + letter_of(p, qp));
		}
	}
	p->y += 68;
}

/* ---- Messages ---- */

static void line(struct picture *p, const char *class, unsigned x1, unsigned y1, unsigned x2, unsigned y2)
{
	fprintf(p->out, "<path d=\"M%u,%uL%u,%u\" class=\"%s\"/>\n", x1, y1, x2, y2, class);
}

static void head(struct picture *p, unsigned from, unsigned x, unsigned y)
{
	fprintf(p->out, "<path d=\"M%u,%ul%d,-4v8z\" class=\"head\"/>\n", x, y, from < x ? -9 : 9);
}

static void draw_arrow(struct picture *p, const struct trace_send *send)
{
	const bool fetches = send->opcode == IBV_WR_RDMA_READ || send->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
			     send->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	const unsigned x1 = line_of(p, send->qp), y = p->y;
	unsigned x2 = line_of(p, other_end(p, send));
	const char *opcode = trace_opcode_name(send->opcode);

	/* What was flushed did not get far. */
	if (send->status == IBV_WC_WR_FLUSH_ERR && x1 != x2)
		x2 = x1 < x2 ? x1 + 30 : x1 - 30;
	if (x1 == x2) {
		fprintf(p->out, "<path d=\"M%u,%uh26v14h-18\" class=\"arrow\"/>\n", x1, y + 6);
		if (!trace_failed(send))
			head(p, x1 + 1, x1, y + 20);
	} else if (fetches) {
		line(p, "arrow asks", x1, y + 6, x2, y + 12);
		if (!trace_failed(send)) {
			line(p, "arrow", x2, y + 14, x1, y + 20);
			head(p, x2, x1, y + 20);
		}
	} else {
		line(p, "arrow", x1, y + 8, x2, y + 14);
		if (!trace_failed(send))
			head(p, x1, x2, y + 14);
	}
	if (trace_failed(send))
		fprintf(p->out, "<path d=\"M%u,%ul10,10m0,-10l-10,10\" class=\"cross\"/>\n", x2 - 5, y + 8);
	if (x1 + 200 < x2 || x2 + 200 < x1)
		write_text(p, (x1 + x2) / 2, y + 5, "middle small", "%s", opcode ? opcode : "?");
}

/* What became of it, beside its arrow. */
static void tell(struct picture *p, const struct trace_send *send)
{
	const uint64_t start = trace_send_start(send), *at = send->at;
	const char *opcode = trace_opcode_name(send->opcode), *comma = "";
	const struct trace_receive *receive = send->receive < p->model->receives.count ? &p->model->receives.at[send->receive] : NULL;
	const struct trace_cause *cause = send->cause < p->model->causes.count ? &p->model->causes.at[send->cause] : NULL;
	char size[24], took[24], *words = NULL;
	size_t length;
	FILE *more;

	fprintf(p->out, "<text x=\"%u\" y=\"%u\"><tspan class=\"strong\">%s</tspan> wr_id %" PRIu64 ", %s</text>\n", WORDS, p->y,
		opcode ? opcode : "?", send->wr_id, trace_bytes(send->length, size, sizeof(size)));
	p->y += LINE;
	if (trace_failed(send))
		write_lines(p, WORDS, "strong bad", 46, 1, trace_status_name(send->status));
	if (cause) {
		const char *name = cause_name(cause->code);

		if (asprintf(&words, "%s (%u): %s", name ? name : "?", cause->code, explain_short(cause->code)) >= 0)
			write_lines(p, WORDS, "muted bad", 56, 3, words);
		free(words);
		words = NULL;
	}
	more = open_memstream(&words, &length);
	if (!more)
		return;
	if (receive && receive->has_wr_id) {
		fprintf(more, _("takes the receive with wr_id %llu"), (unsigned long long)receive->wr_id);
		comma = _(", ");
	}
	if (send->retries) {
		fprintf(more, "%s", comma);
		fprintf(more, _("sent again %u times"), send->retries);
		comma = _(", ");
	}
	if (at[TRACE_POINT_PLACED] != TRACE_NEVER) {
		fprintf(more, "%s", comma);
		fprintf(more, _("placed after %s"), trace_duration(at[TRACE_POINT_PLACED] - start, took, sizeof(took)));
		comma = _(", ");
	}
	if (at[TRACE_POINT_POLLED] != TRACE_NEVER) {
		fprintf(more, "%s", comma);
		fprintf(more, _("polled after %s"), trace_duration(at[TRACE_POINT_POLLED] - start, took, sizeof(took)));
	} else if (send->status == TRACE_NO_STATUS && !(send->flags & IBV_SEND_SIGNALED)) {
		fprintf(more, "%s%s", comma, _("no completion of it"));
	}
	if (!fclose(more))
		write_lines(p, WORDS, "muted", 56, 2, words);
	free(words);
}

static void draw_message(struct picture *p, uint32_t id)
{
	const struct trace_send *send = &p->model->sends.at[id];
	const unsigned top = p->y;
	char time[24];

	fprintf(p->out, "<g class=\"message%s\">\n", trace_failed(send) ? " bad" : "");
	write_text(p, MARGIN, top + 12, trace_failed(send) ? "strong bad" : "strong", "%u", id + 1);
	write_text(p, 118, top + 12, "end muted", "%s", since(p, trace_send_start(send), time, sizeof(time)));
	draw_arrow(p, send);
	p->y = top + 12;
	tell(p, send);
	fputs("</g>\n", p->out);
	p->y = p->y < top + 30 ? top + 30 : p->y;
}

static void draw_messages(struct picture *p)
{
	for (uint32_t i = 0, end; i < p->messages; i = end) {
		unsigned top;

		end = choose_columns(p, i);
		draw_heads(p);
		top = p->y;
		p->y += 14;
		for (; i < end; i++)
			draw_message(p, i);
		for (unsigned column = 0; column < p->column_count; column++)
			line(p, "life", line_of(p, p->columns[column]), top, line_of(p, p->columns[column]), p->y);
		p->y += 16;
	}
	if (!p->messages)
		write_lines(p, MARGIN, "", 140, 1, _("No request was posted."));
	if (p->model->sends.total > p->messages) {
		write_text(p, MARGIN, p->y, "muted", _("and %llu more requests"), (unsigned long long)p->model->sends.total - p->messages);
		p->y += LINE;
	}
}

/* ---- Queues ---- */

static void add_chart(struct picture *p, unsigned kind, const struct trace_fill *fill, uint32_t limit, const char *name,
		      const char *whose)
{
	struct chart *chart = &p->charts[p->chart_count];

	for (unsigned i = 0; i < p->chart_count; i++)
		if (p->charts[i].fill == fill)
			return;
	if (!fill->max && !fill->waited)
		return;
	if (p->of_kind[kind] == OF_KIND) {
		for (unsigned i = 0; i < p->left_out_count; i++)
			if (p->left_out[i] == fill)
				return;
		p->left_out[p->left_out_count++] = fill;
		return;
	}
	*chart = (struct chart){ .kind = kind, .fill = fill, .limit = limit };
	snprintf(chart->name, sizeof(chart->name), "%s", name);
	snprintf(chart->whose, sizeof(chart->whose), "%s", whose);
	p->of_kind[kind]++;
	p->chart_count++;
}

/* A CQ, or an SRQ, with the names of the queues that complete in it, or of the QPs that take from it. */
static void add_shared(struct picture *p, const struct trace_queue *queue, bool srq)
{
	char name[32], whose[256] = "";
	size_t length = 0;

	if (!queue)
		return;
	for (unsigned i = 0; i < p->qp_count; i++) {
		const struct trace_queue_pair *qp = &p->model->qps.at[p->qps[i]];
		const char letter = (char)('A' + i), *comma = length ? ", " : "";

		if (!qp->known || qp->process != queue->process)
			continue;
		if (srq && qp->attr.srq >= 0 && (uint32_t)qp->attr.srq == queue->number)
			length += (size_t)sprintf(whose + length, "%s%c", comma, letter);
		if (!srq && qp->attr.send_cq == queue->number && qp->sq.max)
			length += (size_t)sprintf(whose + length, "%sSQ %c", comma, letter);
		comma = length ? ", " : "";
		if (!srq && qp->attr.recv_cq == queue->number && (qp->rq.max || qp->attr.srq >= 0))
			length += (size_t)sprintf(whose + length, "%sRQ %c", comma, letter);
	}
	snprintf(name, sizeof(name), "%s %u", srq ? "SRQ" : "CQ", queue->number);
	add_chart(p, srq ? 2 : 3, &queue->fill, queue->entries, name, whose);
}

static void choose_charts(struct picture *p)
{
	for (unsigned kind = 0; kind < KINDS; kind++) {
		for (unsigned i = 0; i < p->qp_count; i++) {
			const struct trace_queue_pair *qp = &p->model->qps.at[p->qps[i]];
			char name[8];

			snprintf(name, sizeof(name), "%s %c", kind ? "RQ" : "SQ", (char)('A' + i));
			if (kind == 0)
				add_chart(p, kind, &qp->sq, qp->attr.max_send_wr, name, "");
			else if (kind == 1)
				add_chart(p, kind, &qp->rq, qp->attr.max_recv_wr, name, "");
			else if (kind == 2 && qp->known && qp->attr.srq >= 0)
				add_shared(p, trace_model_srq(p->model, qp->process, (uint32_t)qp->attr.srq), true);
			else if (kind == 3 && qp->known)
				add_shared(p, trace_model_cq(p->model, qp->process, qp->attr.send_cq), false);
			if (kind == 3 && qp->known)
				add_shared(p, trace_model_cq(p->model, qp->process, qp->attr.recv_cq), false);
		}
	}
}

static int by_time(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* The times at which any of them changed: the last before the first message, and from then on. */
static void choose_steps(struct picture *p)
{
	unsigned count = 0, first = 0;

	for (unsigned i = 0; i < p->chart_count; i++) {
		const struct trace_fill *fill = p->charts[i].fill;
		uint32_t at = 0;

		while (at < fill->count && fill->points[at].time < p->from)
			at++;
		at = at > STEPS_BEFORE ? at - STEPS_BEFORE : 0;
		for (uint32_t end = at + STEPS_BEFORE + STEPS; at < fill->count && at < end; at++)
			p->steps[count++] = fill->points[at].time;
	}
	qsort(p->steps, count, sizeof(p->steps[0]), by_time);
	for (unsigned i = 0; i < count; i++)
		if (!i || p->steps[i] != p->steps[p->step_count - 1])
			p->steps[p->step_count++] = p->steps[i];
	while (first < p->step_count && p->steps[first] < p->from)
		first++;
	first = first > STEPS_BEFORE ? first - STEPS_BEFORE : 0;
	p->step_count = p->step_count - first < STEPS ? p->step_count - first : STEPS;
	memmove(p->steps, p->steps + first, p->step_count * sizeof(p->steps[0]));
}

static unsigned step_x(const struct picture *p, unsigned step)
{
	return CHART_LEFT + (step + 1) * (CHART_RIGHT - CHART_LEFT) / (p->step_count + 1);
}

static unsigned height(uint32_t level, uint64_t scale)
{
	return (unsigned)(level * (uint64_t)CHART_HEIGHT / scale);
}

/* The area, or the line above it, which does not go down where the chart ends. */
static void draw_filling(struct picture *p, const struct chart *chart, uint64_t scale, bool area)
{
	const struct trace_fill *fill = chart->fill;
	const unsigned base = p->y + CHART_HEIGHT;
	uint32_t at = 0, level = 0;

	for (; at < fill->count && fill->points[at].time < p->steps[0]; at++)
		level = fill->points[at].high;
	fprintf(p->out, "<path class=\"%s k%u\" d=\"M%u,%uV%u", area ? "fill" : "level", chart->kind, CHART_LEFT,
		area ? base : base - height(level, scale), base - height(level, scale));
	for (unsigned step = 0; step < p->step_count; step++) {
		for (; at < fill->count && fill->points[at].time <= p->steps[step]; at++)
			level = fill->points[at].high;
		fprintf(p->out, "H%uV%u", step_x(p, step), base - height(level, scale));
	}
	fprintf(p->out, "H%u", CHART_RIGHT);
	if (area)
		fprintf(p->out, "V%u", base);
	fputs("\"/>\n", p->out);
}

static void draw_chart(struct picture *p, const struct chart *chart)
{
	const struct trace_fill *fill = chart->fill;
	const uint32_t held = fill->max ? fill->max : 1;
	/* One that is far deeper than ever needed is no scale: then there is air above it. */
	const uint64_t scale = chart->limit / 3 > held ? 2ull * held : chart->limit > held ? chart->limit : held;
	const unsigned base = p->y + CHART_HEIGHT;
	const unsigned highest = base - height(fill->max, scale);
	char most[64];

	write_text(p, MARGIN, p->y + 18, "strong", "%s", chart->name);
	write_text(p, MARGIN, p->y + 32, "small", "%s", chart->whose);
	draw_filling(p, chart, scale, true);
	draw_filling(p, chart, scale, false);
	line(p, "axis", CHART_LEFT, base, CHART_RIGHT, base);
	if (scale == chart->limit)
		line(p, "depth", CHART_LEFT, p->y, CHART_RIGHT, p->y);
	line(p, "high", CHART_LEFT, highest, CHART_RIGHT, highest);
	write_text(p, CHART_RIGHT + 12, p->y + 22, "muted", "%s", trace_most(fill, chart->limit, most, sizeof(most)));
	p->y = base + CHART_GAP;
}

static void draw_queues(struct picture *p)
{
	unsigned top, last = 0;
	char time[24];

	choose_charts(p);
	choose_steps(p);
	if (!p->step_count)
		return;
	p->y += 12;
	write_lines(p, MARGIN, "muted", 150, 2,
		    _("How full the queues are. Each step to the right is a change of one of them, however long after the last; the numbers "
		      "stand where the messages were posted. Dashed: the most that was in it; solid: its depth."));
	p->y += 16;
	top = p->y - 6;
	for (uint32_t i = 0, step = 0; i < p->messages; i++) {
		const struct trace_send *send = &p->model->sends.at[i];

		while (step < p->step_count && p->steps[step] < trace_send_start(send))
			step++;
		if (step == p->step_count)
			break;
		write_text(p, step_x(p, step), top, trace_failed(send) ? "small middle bad" : "small middle", "%u", i + 1);
		line(p, "post", step_x(p, step), top + 4, step_x(p, step),
		     top + 6 + p->chart_count * (CHART_HEIGHT + CHART_GAP) - CHART_GAP);
	}
	for (unsigned i = 0; i < p->chart_count; i++)
		draw_chart(p, &p->charts[i]);
	for (unsigned step = 0; step < p->step_count; step++) {
		if (last && step_x(p, step) - last < 84)
			continue;
		last = step_x(p, step);
		line(p, "axis", last, p->y - CHART_GAP, last, p->y - CHART_GAP + 4);
		write_text(p, last, p->y, "small middle", "%s", since(p, p->steps[step], time, sizeof(time)));
	}
	p->y += 24;
	if (p->left_out_count) {
		write_text(p, MARGIN, p->y, "muted", _("and %u more queues"), p->left_out_count);
		p->y += LINE;
	}
}

/* ---- Failures ---- */

/* Those of no message that is drawn: these have theirs beside them. */
static void draw_failures(struct picture *p)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < p->model->causes.count; i++) {
		const struct trace_cause *cause = &p->model->causes.at[i];
		const char *name = cause_name(cause->code);
		char what[EXPLAIN_TEXT], time[24], *words;

		if (cause->send < p->messages || count++ >= FAILURES)
			continue;
		snprintf(what, sizeof(what), "%s", explain_short(cause->code));
		if (cause->told)
			explain_what(&cause->record, what, sizeof(what));
		if (asprintf(&words, "%s %s (%u): %s", since(p, cause->time, time, sizeof(time)), name ? name : "?", cause->code, what) < 0)
			continue;
		write_lines(p, MARGIN, "bad", 135, 3, words);
		p->y += 4;
		free(words);
	}
	if (count > FAILURES) {
		write_text(p, MARGIN, p->y, "bad", _("and %u more causes of failure"), count - FAILURES);
		p->y += LINE;
	}
}

bool trace_svg(FILE *out, const struct trace_model *model, const char *program)
{
	struct picture *p = calloc(1, sizeof(*p));
	char *body = NULL;
	size_t length;

	if (!p)
		return false;
	p->model = model;
	p->messages = model->sends.count < MESSAGES ? model->sends.count : MESSAGES;
	p->from = p->messages ? trace_send_start(&model->sends.at[0]) : 0;
	p->out = open_memstream(&body, &length);
	if (!p->out) {
		free(p);
		return false;
	}
	p->y = MARGIN + 8;
	write_lines(p, MARGIN, "title", 95, 1, program);
	p->y += 4;
	draw_messages(p);
	draw_queues(p);
	draw_failures(p);
	if (fclose(p->out)) {
		free(body);
		free(p);
		return false;
	}
	fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" viewBox=\"0 0 %u %u\" role=\"img\">\n<title>", WIDTH,
		p->y, WIDTH, p->y);
	escaped(out, program, fitting(program, 95));
	fprintf(out, "</title>\n<style>%s</style>\n<rect width=\"100%%\" height=\"100%%\" class=\"page\"/>\n", style);
	fwrite(body, 1, length, out);
	fputs("</svg>\n", out);
	free(body);
	free(p);
	return true;
}
