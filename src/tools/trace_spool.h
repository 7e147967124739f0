/* SPDX-License-Identifier: MIT */
/*
 * The events of all processes as they are collected: in one unnamed file, since there may be more than memory holds. Afterwards they
 * are told in the order of their time.
 *
 * Events of one process are kept in the order in which its ring had them, which is that of what depends on one another.
 */
#ifndef UROCE_TOOLS_TRACE_SPOOL_H
#define UROCE_TOOLS_TRACE_SPOOL_H

#include "tools/trace_model.h"

struct trace_chunk {
	uint32_t process;
	uint32_t bytes;
	uint64_t offset;
};

struct trace_spool {
	int fd;
	int error; /* errno of the first write that failed: what came after it is lost; 0 */
	uint64_t bytes, events;
	struct trace_chunk *chunks;
	uint32_t count, room;
	uint32_t process; /* of what is in the buffer */
	uint32_t filled;
	uint8_t *buffer;
};

/* The file is in this directory for as long as the spool is open. 0, or errno. */
int trace_spool_open(struct trace_spool *spool, const char *directory);

/* Adds an event of a process, at a time of CLOCK_REALTIME in ns, with `bytes` bytes that belong to it. */
void trace_spool_add(struct trace_spool *spool, uint32_t process, uint64_t time, const struct trace_event *event, const void *more,
		     size_t bytes);

/* Tells all events of `processes` processes, their times as ns since `start`. 0, or errno. */
int trace_spool_tell(struct trace_spool *spool, uint32_t processes, uint64_t start,
		     void (*tell)(void *arg, const struct trace_item *item), void *arg);

void trace_spool_close(struct trace_spool *spool);

#endif
