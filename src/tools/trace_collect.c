/* SPDX-License-Identifier: MIT */
#include "tools/trace_collect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "observe/witness.h"
#include "tools/witnessed.h"

#define SLOTS (1u << 14) /* that are read at once */

/* Milliseconds until the next look: after one that found nothing, something, and this part of a ring. */
enum { WAIT_IDLE = 50, WAIT_SOME = 20, WAIT_MUCH = 2 };
#define MUCH 16

int trace_collect_begin(struct trace_collect *collect, const char *directory, uint32_t snap)
{
	int err;

	*collect = (struct trace_collect){ .listener = -1, .witness = -1, .snap = snap, .start = UINT64_MAX };
	err = trace_spool_open(&collect->spool, directory);
	if (err)
		return err;
	collect->slots = malloc(SLOTS * sizeof(*collect->slots));
	if (collect->slots)
		return 0;
	trace_collect_end(collect);
	return ENOMEM;
}

int trace_collect_listen(struct trace_collect *collect)
{
	collect->listener = trace_listen(collect->listener_name);
	if (collect->listener < 0)
		return errno;
	collect->witness = witness_open(collect->witness_name);
	if (collect->witness < 0 || setenv(TRACE_VARIABLE, collect->listener_name, 1) ||
	    setenv(WITNESS_VARIABLE, collect->witness_name, 1))
		return errno;
	return 0;
}

/* ---- Processes ---- */

/* Who is at the other end of the connection, as we see it. Processes of one network namespace are on one host. */
static void identify(struct trace_source *source)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	struct stat status;
	char path[64];

	if (getsockopt(source->reader.connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) || !peer.pid)
		return;
	source->pid = (uint32_t)peer.pid;
	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)peer.pid);
	if (!stat(path, &status))
		source->network = status.st_ino;
}

bool trace_collect_add(struct trace_collect *collect, const struct trace_reader *reader)
{
	struct trace_source *larger = realloc(collect->sources, (collect->count + 1) * sizeof(*larger)), *source;

	if (!larger)
		return false;
	collect->sources = larger;
	source = &larger[collect->count];
	*source = (struct trace_source){ .reader = *reader, .instance = reader->ring->instance, .pid = reader->ring->pid };
	memcpy(source->name, reader->ring->comm, strnlen(reader->ring->comm, sizeof(source->name) - 1));
	if (reader->ring->start < collect->start)
		collect->start = reader->ring->start;
	identify(source);
	for (uint32_t i = 0; i < collect->count; i++) {
		if (collect->sources[i].network == source->network) {
			source->host = collect->sources[i].host;
			break;
		}
		if (collect->sources[i].host >= source->host)
			source->host = collect->sources[i].host + 1;
	}
	collect->count++;
	return true;
}

static void add_new(struct trace_collect *collect)
{
	struct trace_reader reader;

	while (trace_next(collect->listener, collect->snap, &reader))
		if (!trace_collect_add(collect, &reader))
			trace_close(&reader);
}

void trace_collect_segment(struct trace_collect *collect, int fd)
{
	const struct nic_segment *segment = witnessed_map(fd);
	struct trace_segment *larger = NULL;

	if (segment)
		larger = realloc(collect->segments, (collect->segment_count + 1) * sizeof(*larger));
	if (larger) {
		collect->segments = larger;
		larger[collect->segment_count++] = (struct trace_segment){ segment, fd };
		return;
	}
	if (segment)
		munmap((void *)segment, WITNESSED_BYTES);
	close(fd);
}

static void add_segments(struct trace_collect *collect)
{
	int fd;

	while ((fd = witness_next(collect->witness)) >= 0)
		trace_collect_segment(collect, fd);
}

/* ---- Events ---- */

/* Slots of whole events, as trace_read() has left them, go into the spool. */
static void keep(struct trace_collect *collect, uint32_t process, uint32_t slots)
{
	uint8_t more[UINT8_MAX * 24];

	for (uint32_t at = 0; at < slots; at += 1u + collect->slots[at].more) {
		const struct trace_event *event = &collect->slots[at];

		if (event->more >= slots - at)
			return;
		trace_spool_add(&collect->spool, process, trace_time(event), event, more, trace_more(event, more));
	}
}

/* Not more than a ring at once, so that all have their turn. Returns how much it was. */
static uint32_t empty(struct trace_collect *collect, uint32_t process)
{
	struct trace_source *source = &collect->sources[process];
	uint32_t all = 0, slots;

	while (!source->closed && all < source->reader.ring->slots) {
		slots = trace_read(&source->reader, collect->slots, SLOTS);
		keep(collect, process, slots);
		all += slots;
		if (slots)
			continue;
		if (source->reader.ended) {
			trace_close(&source->reader);
			source->closed = true;
		}
		break;
	}
	return all;
}

int trace_collect_empty(void *arg)
{
	struct trace_collect *collect = arg;
	int wait = WAIT_IDLE;

	if (collect->listener >= 0) {
		add_new(collect);
		add_segments(collect);
	}
	for (uint32_t i = 0; i < collect->count; i++) {
		const uint32_t size = collect->sources[i].closed ? UINT32_MAX : collect->sources[i].reader.ring->slots;
		const uint32_t slots = empty(collect, i);

		if (slots > size / MUCH)
			wait = WAIT_MUCH;
		else if (slots && wait > WAIT_SOME)
			wait = WAIT_SOME;
	}
	return wait;
}

void trace_collect_stop(struct trace_collect *collect)
{
	trace_collect_empty(collect);
	for (uint32_t i = 0; i < collect->count; i++) {
		if (collect->sources[i].closed)
			continue;
		trace_close(&collect->sources[i].reader);
		collect->sources[i].closed = true;
	}
}

/* ---- Telling ---- */

struct telling {
	struct trace_model *model;
	void (*also)(void *arg, const struct trace_item *item);
	void *arg;
};

static void tell(void *arg, const struct trace_item *item)
{
	const struct telling *telling = arg;

	trace_model_tell(telling->model, item);
	if (telling->also)
		telling->also(telling->arg, item);
}

static bool find_cause(void *arg, uint32_t process, uint64_t position, struct cause *record)
{
	const struct trace_collect *collect = arg;

	for (uint32_t i = 0; i < collect->segment_count; i++)
		if (collect->segments[i].seg->hdr.instance == collect->sources[process].instance)
			return witnessed_cause(collect->segments[i].seg, position, record);
	return false;
}

int trace_collect_tell(struct trace_collect *collect, struct trace_model *model,
		       void (*also)(void *arg, const struct trace_item *item), void *arg)
{
	struct telling telling = { model, also, arg };
	int err;

	model->find_cause = find_cause;
	model->find_cause_arg = collect;
	for (uint32_t i = 0; i < collect->count; i++) {
		const struct trace_source *source = &collect->sources[i];

		if (trace_model_process(model, source->pid, source->host, source->name) == TRACE_NONE)
			return ENOMEM;
		model->processes.at[i].dropped = source->reader.dropped;
		model->dropped += source->reader.dropped;
	}
	err = trace_spool_tell(&collect->spool, collect->count, collect->start, tell, &telling);
	trace_model_end(model);
	return err;
}

void trace_collect_end(struct trace_collect *collect)
{
	for (uint32_t i = 0; i < collect->count; i++)
		if (!collect->sources[i].closed)
			trace_close(&collect->sources[i].reader);
	for (uint32_t i = 0; i < collect->segment_count; i++) {
		munmap((void *)collect->segments[i].seg, WITNESSED_BYTES);
		close(collect->segments[i].fd);
	}
	free(collect->segments);
	if (collect->listener >= 0)
		trace_stop_listening(collect->listener, collect->listener_name);
	if (collect->witness >= 0)
		close(collect->witness);
	trace_spool_close(&collect->spool);
	free(collect->sources);
	free(collect->slots);
	*collect = (struct trace_collect){ .listener = -1, .witness = -1, .spool = { .fd = -1 } };
}
