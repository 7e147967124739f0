/* SPDX-License-Identifier: MIT */
/*
 * Collects the events of processes while they run: their rings are emptied into a spool often enough, and at the end everything is told
 * in the order of its time. Nothing of it disturbs the processes; one that is faster than we are loses its oldest events, and says
 * how many.
 */
#ifndef UROCE_TOOLS_TRACE_COLLECT_H
#define UROCE_TOOLS_TRACE_COLLECT_H

#include "nic/layout.h"
#include "tools/trace_spool.h"

/* A process that is, or was, traced; its id is its place. */
struct trace_source {
	struct trace_reader reader;
	bool closed;	  /* of the reader only counts are right */
	uint64_t network; /* a number of its network namespace */
	uint64_t instance;
	uint32_t host, pid;
	char name[17];
};

struct trace_segment {
	const struct nic_segment *seg;
	int fd;
};

struct trace_collect {
	int listener, witness; /* sockets; -1 */
	char listener_name[TRACE_NAME], witness_name[64];
	uint32_t snap; /* bytes of payloads that are kept */
	struct trace_spool spool;
	struct trace_source *sources;
	uint32_t count;
	struct trace_segment *segments; /* that were shown to us, for their causes */
	uint32_t segment_count;
	uint64_t start; /* CLOCK_REALTIME, ns: when the first ring was made */
	struct trace_event *slots;
};

/* Prepares; the spool is in `directory`. 0, or errno. */
int trace_collect_begin(struct trace_collect *collect, const char *directory, uint32_t snap);

/* Traces processes that are told so by their environment: sets the variables in our own, for programs that we start. 0, or errno. */
int trace_collect_listen(struct trace_collect *collect);

/* A process that is traced by another way than by its environment. False for want of memory. */
bool trace_collect_add(struct trace_collect *collect, const struct trace_reader *reader);

/* A segment, for its causes; the descriptor is ours then. */
void trace_collect_segment(struct trace_collect *collect, int fd);

/* Empties all rings; returns the milliseconds after which to do so again. The argument is a struct trace_collect. For child_attend(). */
int trace_collect_empty(void *collect);

/* What was the last of a process may come late by so much, where a writer was stopped between two instructions. */
void trace_collect_stop(struct trace_collect *collect);

/* Tells all to the model, and behind it to `also`, which may be NULL. 0, or errno. */
int trace_collect_tell(struct trace_collect *collect, struct trace_model *model,
		       void (*also)(void *arg, const struct trace_item *item), void *arg);

void trace_collect_end(struct trace_collect *collect);

#endif
