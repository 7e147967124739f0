/* SPDX-License-Identifier: MIT */
#include "tools/trace_spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUFFER (1u << 20)

/* An event in the file; what belongs to it follows, to a multiple of 8. */
struct record {
	uint64_t time;
	uint64_t bytes; /* that follow */
	struct trace_event event;
};

static uint32_t padded(size_t bytes)
{
	return (uint32_t)((bytes + 7) & ~7ul);
}

int trace_spool_open(struct trace_spool *spool, const char *directory)
{
	char name[4096];

	*spool = (struct trace_spool){ .fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), .buffer = malloc(BUFFER) };
	/* Not all file systems have unnamed files. */
	if (spool->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) &&
	    snprintf(name, sizeof(name), "%s/.uroce-trace-XXXXXX", directory) < (int)sizeof(name)) {
		spool->fd = mkostemp(name, O_CLOEXEC);
		if (spool->fd >= 0)
			unlink(name);
	}
	if (spool->fd >= 0 && spool->buffer)
		return 0;
	trace_spool_close(spool);
	return errno ? errno : ENOMEM;
}

static void note_chunk(struct trace_spool *spool)
{
	if (spool->count == spool->room) {
		uint32_t room = spool->room ? 2 * spool->room : 64;
		struct trace_chunk *larger = realloc(spool->chunks, room * sizeof(*larger));

		if (!larger) {
			spool->error = ENOMEM;
			return;
		}
		spool->chunks = larger;
		spool->room = room;
	}
	spool->chunks[spool->count++] = (struct trace_chunk){ spool->process, spool->filled, spool->bytes };
	spool->bytes += spool->filled;
}

static void flush(struct trace_spool *spool)
{
	for (uint32_t at = 0; at < spool->filled && !spool->error;) {
		ssize_t written = pwrite(spool->fd, spool->buffer + at, spool->filled - at, (off_t)(spool->bytes + at));

		if (written > 0)
			at += (uint32_t)written;
		else if (!written)
			spool->error = ENOSPC;
		else if (errno != EINTR)
			spool->error = errno;
	}
	if (spool->filled && !spool->error)
		note_chunk(spool);
	spool->filled = 0;
}

void trace_spool_add(struct trace_spool *spool, uint32_t process, uint64_t time, const struct trace_event *event, const void *more,
		     size_t bytes)
{
	const struct record record = { time, bytes, *event };

	if (spool->error)
		return;
	if (spool->process != process || spool->filled + sizeof(record) + padded(bytes) > BUFFER)
		flush(spool);
	if (sizeof(record) + padded(bytes) > BUFFER)
		return;
	spool->process = process;
	memcpy(spool->buffer + spool->filled, &record, sizeof(record));
	spool->filled += sizeof(record);
	if (bytes)
		memcpy(spool->buffer + spool->filled, more, bytes);
	spool->filled += padded(bytes);
	spool->events++;
}

/* ---- Telling ---- */

/* Where a process's next event is. */
struct cursor {
	uint32_t chunk, chunks; /* of `first` on; each process's are together */
	const uint8_t *at, *end;
};

struct reading {
	const uint8_t *bytes;
	const struct trace_chunk *chunks;
	struct cursor *cursors;
	uint32_t count;
};

static const struct record *peek(struct reading *reading, struct cursor *cursor)
{
	while (cursor->at == cursor->end) {
		const struct trace_chunk *chunk;

		if (cursor->chunk == cursor->chunks)
			return NULL;
		chunk = &reading->chunks[cursor->chunk++];
		cursor->at = reading->bytes + chunk->offset;
		cursor->end = cursor->at + chunk->bytes;
	}
	return (const struct record *)cursor->at;
}

/* The process whose event is the next, and the time until which it may go on alone. */
static struct cursor *earliest(struct reading *reading, uint64_t *until)
{
	struct cursor *first = NULL;
	uint64_t time = UINT64_MAX;

	*until = UINT64_MAX;
	for (uint32_t i = 0; i < reading->count; i++) {
		const struct record *record = peek(reading, &reading->cursors[i]);

		if (!record)
			continue;
		if (!first || record->time < time) {
			*until = time;
			time = record->time;
			first = &reading->cursors[i];
		} else if (record->time < *until) {
			*until = record->time;
		}
	}
	return first;
}

static int compare(const void *a, const void *b)
{
	const struct trace_chunk *left = a, *right = b;

	if (left->process != right->process)
		return left->process < right->process ? -1 : 1;
	return left->offset < right->offset ? -1 : left->offset > right->offset;
}

static void tell_all(struct reading *reading, uint64_t start, void (*tell)(void *arg, const struct trace_item *item), void *arg)
{
	struct cursor *cursor;
	uint64_t until;

	while ((cursor = earliest(reading, &until))) {
		const struct record *record;

		/* One's own events are never exchanged: not even where threads have taken the time in another order than places. */
		while ((record = peek(reading, cursor)) && record->time <= until) {
			const struct trace_item item = { .time = record->time < start ? 0 : record->time - start,
							 .process = (uint32_t)(cursor - reading->cursors),
							 .event = &record->event,
							 .more = record + 1,
							 .bytes = record->bytes };

			cursor->at += sizeof(*record) + padded(record->bytes);
			tell(arg, &item);
		}
	}
}

int trace_spool_tell(struct trace_spool *spool, uint32_t processes, uint64_t start,
		     void (*tell)(void *arg, const struct trace_item *item), void *arg)
{
	struct reading reading = { .count = processes };
	void *bytes;

	flush(spool);
	if (!spool->bytes)
		return 0;
	reading.cursors = calloc(processes, sizeof(*reading.cursors));
	bytes = mmap(NULL, spool->bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, spool->fd, 0);
	if (bytes == MAP_FAILED || !reading.cursors) {
		free(reading.cursors);
		return errno ? errno : ENOMEM;
	}
	reading.bytes = bytes;
	reading.chunks = spool->chunks;
	madvise(bytes, spool->bytes, MADV_SEQUENTIAL);
	qsort(spool->chunks, spool->count, sizeof(*spool->chunks), compare);
	for (uint32_t i = 0; i < spool->count; i++) {
		struct cursor *cursor = &reading.cursors[spool->chunks[i].process];

		if (!cursor->chunks)
			cursor->chunk = i;
		cursor->chunks = i + 1;
	}
	tell_all(&reading, start, tell, arg);
	munmap(bytes, spool->bytes);
	free(reading.cursors);
	return 0;
}

void trace_spool_close(struct trace_spool *spool)
{
	if (spool->fd >= 0)
		close(spool->fd);
	free(spool->buffer);
	free(spool->chunks);
	spool->fd = -1;
	spool->buffer = NULL;
	spool->chunks = NULL;
}
