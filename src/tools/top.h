/* SPDX-License-Identifier: MIT */
/*
 * What the files of `uroce top` share. top.c takes snapshots and keys, top_views.c makes tables of snapshots, top_frame.c makes
 * lines of tables, which a terminal, a pipe or a test can take.
 */
#ifndef UROCE_TOOLS_TOP_H
#define UROCE_TOOLS_TOP_H

#include "tools/queues.h"
#include "tools/snapshot.h"

enum view { VIEW_PROCESSES, VIEW_QPS, VIEW_CQS, VIEW_SRQS, VIEW_LISTS, VIEW_QUEUE = VIEW_LISTS, VIEWS };

#define COLUMNS_MOST	  32u
#define RENDER_CELL_BYTES 48u

struct column {
	const char *title;
	int width;     /* negative: to the left */
	unsigned from; /* columns that the terminal must have */
	const char *meaning;
};

struct cell {
	char text[RENDER_CELL_BYTES];
	double key; /* to sort by; NAN: by the text */
};

struct row {
	pid_t pid;
	uint32_t index; /* of the object in its process's segment */
	bool alarm;	/* it has failed, or stands */
	char note[320]; /* a line of its own, instead of cells; "" for none */
	struct cell cells[COLUMNS_MOST];
};

struct sheet {
	const struct column *columns;
	unsigned column_count;
	struct row *rows;
	uint32_t count;
};

/* What is shown of what. */
struct sight {
	enum view view;
	pid_t pid;	   /* only this process; 0: all */
	uint32_t qp_index; /* VIEW_QUEUE: whose queues; pid is not 0 */
	unsigned sort[VIEWS];
	bool up[VIEWS];				/* least first */
	uint32_t selected[VIEWS], first[VIEWS]; /* rows */
	double interval;			/* s */
	bool paused;
};

/* The queues of the queue pair that sight is at. */
struct queues {
	bool send_known, receive_known;
	int error; /* why the send queue is not known */
	struct wr_list send, receive;
};

const char *view_name(enum view view);
const struct column *view_columns(enum view view, unsigned *count);
/* The column that a view is sorted by at first. */
unsigned view_first_sort(enum view view);

/* False without memory. Sorted. To be freed. */
bool rows_make(struct sheet *sheet, const struct sight *sight, const struct snapshot *now, const struct snapshot *before,
	       const struct queues *queues);
void rows_free(struct sheet *sheet);

enum look { LOOK_PLAIN, LOOK_HEAD, LOOK_TITLE, LOOK_SELECTED, LOOK_ALARM };

#define LINE_BYTES 512u

struct line {
	enum look look;
	char text[LINE_BYTES];
};

struct frame {
	struct line *lines;
	uint32_t count;
};

/* A screen of `columns` by `lines`; keeps the selected row in sight. False without memory. */
bool frame_screen(struct frame *frame, struct sight *sight, const struct sheet *sheet, const struct snapshot *now, unsigned columns,
		  unsigned lines);
/* The sheet as a whole, with a head. */
bool frame_text(struct frame *frame, const struct sight *sight, const struct sheet *sheet, const struct snapshot *now,
		unsigned columns);
void frame_free(struct frame *frame);

/* At most width characters. */
void format_count(char *text, unsigned width, double number);
void format_age(char *text, unsigned width, uint64_t ns);

#endif
