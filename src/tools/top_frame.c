/* SPDX-License-Identifier: MIT */
/* Tables of `uroce top` as lines of text, as wide as they may be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/explain.h"
#include "tools/top.h"
#include "tools/width.h"

static struct line *add_line(struct frame *frame, enum look look)
{
	struct line *line = grow((void **)&frame->lines, &frame->count, sizeof(*line));

	if (line)
		line->look = look;
	return line;
}

static bool add_text(struct frame *frame, enum look look, unsigned columns, const char *text)
{
	struct line *line = add_line(frame, look);
	size_t bytes = width_fit(text, columns);

	if (line)
		snprintf(line->text, LINE_BYTES, "%.*s", (int)bytes, text);
	return line;
}

/* A cell, and a blank if it is not the first. */
static void append(char *line, unsigned columns, const struct column *column, const char *text)
{
	const unsigned width = (unsigned)abs(column->width);
	const size_t used = strlen(line), bytes = width_fit(text, width);
	const int blanks = (int)(width - (width_of(text) - width_of(text + bytes)));

	if (width_of(line) + width + !!used > columns || used + bytes + (unsigned)blanks + 2 > LINE_BYTES)
		return;
	snprintf(line + used, LINE_BYTES - used, "%s%*s%.*s%*s", used ? " " : "", column->width < 0 ? 0 : blanks, "", (int)bytes, text,
		 column->width < 0 ? blanks : 0, "");
}

static void end_line(struct line *line)
{
	for (size_t length = strlen(line->text); length && line->text[length - 1] == ' '; length--)
		line->text[length - 1] = '\0';
}

static bool add_titles(struct frame *frame, const struct sheet *sheet, const struct sight *sight, unsigned columns)
{
	struct line *line = add_line(frame, LOOK_TITLE);

	for (unsigned i = 0; line && i < sheet->column_count; i++) {
		char title[32];

		if (sheet->columns[i].from > columns)
			continue;
		/* The one that is sorted by, if there is room to say so. */
		snprintf(title, sizeof(title), "%s%s", sheet->columns[i].title,
			 sight->view == VIEW_QUEUE || i != sight->sort[sight->view] ? "" :
			 sight->up[sight->view]					    ? "^" :
										      "*");
		append(line->text, columns, &sheet->columns[i],
		       strlen(title) > (size_t)abs(sheet->columns[i].width) ? sheet->columns[i].title : title);
	}
	if (line)
		end_line(line);
	return line;
}

static bool add_row(struct frame *frame, const struct sheet *sheet, const struct row *row, unsigned columns, enum look look)
{
	struct line *line;

	if (row->note[0])
		return add_text(frame, look, columns, row->note);
	line = add_line(frame, look);
	if (!line)
		return false;
	for (unsigned i = 0; i < sheet->column_count; i++) {
		if (sheet->columns[i].from <= columns)
			append(line->text, columns, &sheet->columns[i], row->cells[i].text);
	}
	end_line(line);
	return true;
}

static bool is_looked_at(const struct sight *sight, const struct process_shot *process)
{
	return !sight->pid || sight->pid == process->pid;
}

static bool add_summary(struct frame *frame, const struct sight *sight, const struct snapshot *now, unsigned columns)
{
	unsigned long long qps = 0, cqs = 0, srqs = 0;
	char text[LINE_BYTES], clock[16];
	time_t seconds = time(NULL);
	uint32_t processes = 0, hidden = 0;
	struct tm local;

	for (uint32_t i = 0; i < now->count; i++) {
		const struct process_shot *process = &now->processes[i];

		if (!is_looked_at(sight, process))
			continue;
		processes++;
		qps += process->qp_count;
		cqs += process->cq_count;
		srqs += process->srq_count;
		hidden += !process->seen;
	}
	localtime_r(&seconds, &local);
	strftime(clock, sizeof(clock), "%H:%M:%S", &local);
	if (sight->pid)
		snprintf(text, sizeof(text), _("uroce top %s  process %d, %llu QPs, %llu CQs, %llu SRQs, every %.1f s"), clock,
			 (int)sight->pid, qps, cqs, srqs, sight->interval);
	else
		snprintf(text, sizeof(text), _("uroce top %s  %u processes, %llu QPs, %llu CQs, %llu SRQs, every %.1f s"), clock, processes,
			 qps, cqs, srqs, sight->interval);
	if (sight->paused)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", _(" (paused)"));
	if (hidden)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), _(", %u not shown"), hidden);
	return add_text(frame, LOOK_HEAD, columns, text);
}

/* The first process that is not shown, and why. */
static bool add_hidden(struct frame *frame, const struct sight *sight, const struct snapshot *now, unsigned columns, bool all)
{
	char text[LINE_BYTES];

	for (uint32_t i = 0; i < now->count; i++) {
		const struct process_shot *process = &now->processes[i];

		if (process->seen || !is_looked_at(sight, process))
			continue;
		if (process->pid)
			snprintf(text, sizeof(text), _("process %d (%s) is not shown: %s"), (int)process->pid, process->command,
				 _(process->reason));
		else
			snprintf(text, sizeof(text), _("a process is not shown: %s"), _(process->reason));
		if (!add_text(frame, LOOK_ALARM, columns, text))
			return false;
		if (!all)
			break;
	}
	return true;
}

static bool add_views(struct frame *frame, const struct sight *sight, unsigned columns)
{
	char text[LINE_BYTES] = "";

	for (unsigned i = 0; i < VIEW_LISTS; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), sight->view == i ? "[%u %s] " : " %u %s  ", i + 1,
			 view_name((enum view)i));
	if (sight->view == VIEW_QUEUE)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "[%s] ", view_name(VIEW_QUEUE));
	if (sight->pid)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), _("of process %d"), (int)sight->pid);
	return add_text(frame, LOOK_HEAD, columns, text);
}

/* Moves what is shown so that the selected row is. */
static void follow(struct sight *sight, uint32_t rows, uint32_t room)
{
	uint32_t *selected = &sight->selected[sight->view], *first = &sight->first[sight->view];

	if (*selected >= rows)
		*selected = rows ? rows - 1 : 0;
	if (*first > *selected)
		*first = *selected;
	if (room && *selected - *first >= room)
		*first = *selected - room + 1;
}

bool frame_screen(struct frame *frame, struct sight *sight, const struct sheet *sheet, const struct snapshot *now, unsigned columns,
		  unsigned lines)
{
	const char *keys = _("q quit  1-4 view  arrows  Enter into  Esc back  < > r sort  space pause  ? help");
	uint32_t room;
	bool done;

	*frame = (struct frame){ 0 };
	if (columns >= LINE_BYTES)
		columns = LINE_BYTES - 1;
	done = add_summary(frame, sight, now, columns) && add_views(frame, sight, columns) &&
	       add_hidden(frame, sight, now, columns, false) && add_titles(frame, sheet, sight, columns);
	room = lines > frame->count + 1 ? lines - frame->count - 1 : 0;
	follow(sight, sheet->count, room);
	for (uint32_t i = 0; done && i < room; i++) {
		uint32_t at = sight->first[sight->view] + i;

		if (at >= sheet->count)
			done = add_text(frame, LOOK_PLAIN, columns, "");
		else
			done = add_row(frame, sheet, &sheet->rows[at], columns,
				       at == sight->selected[sight->view] ? LOOK_SELECTED :
				       sheet->rows[at].alarm		  ? LOOK_ALARM :
									    LOOK_PLAIN);
	}
	return done && add_text(frame, LOOK_HEAD, columns, keys);
}

bool frame_text(struct frame *frame, const struct sight *sight, const struct sheet *sheet, const struct snapshot *now,
		unsigned columns)
{
	bool done = true;

	*frame = (struct frame){ 0 };
	if (columns >= LINE_BYTES)
		columns = LINE_BYTES - 1;
	if (sight->view == VIEW_PROCESSES)
		done = add_summary(frame, sight, now, columns) && add_hidden(frame, sight, now, columns, true);
	done = done && add_text(frame, LOOK_PLAIN, columns, "") && add_text(frame, LOOK_HEAD, columns, view_name(sight->view)) &&
	       add_titles(frame, sheet, sight, columns);
	for (uint32_t i = 0; done && i < sheet->count; i++)
		done = add_row(frame, sheet, &sheet->rows[i], columns, LOOK_PLAIN);
	return done;
}

void frame_free(struct frame *frame)
{
	free(frame->lines);
	frame->lines = NULL;
	frame->count = 0;
}
