/* SPDX-License-Identifier: MIT */
/*
 * Memory of the program that the peer writes into directly (rsocket(7): riomap, riounmap, riowrite). Each side has a table of what
 * the other has mapped; an entry is written into the peer's table before the data that is sent next.
 *
 * A mapping that is gone has length 0 in the table. Until the peer has seen that, its writes end the connection, as a write
 * to memory without rights does.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rsocket.h"

struct mapping {
	struct list link;
	struct ibv_mr *mr; /* NULL: unmapped, and the peer is not told yet */
	uint64_t offset;
	int index;    /* in the peer's table; -1: the peer does not write into it */
	bool waiting; /* the peer is to be told */
	void *memory; /* that the program named */
	size_t length;
};

static struct mapping *at_index(const struct stream *stream, int index)
{
	list_for_each(node, &stream->mappings) {
		struct mapping *mapping = list_entry(node, struct mapping, link);
		if (mapping->index == index)
			return mapping;
	}
	return NULL;
}

/* An index that no mapping has, or none any more; -1: the peer's table is full. */
static int take_index(struct stream *stream)
{
	for (int index = 0; index < stream->peer_iomaps_most; index++) {
		struct mapping *mapping = at_index(stream, index);
		if (mapping && mapping->mr)
			continue;
		/* The peer hears of the new one instead of the old one's end. */
		if (mapping) {
			list_del(&mapping->link);
			free(mapping);
		}
		return index;
	}
	return -1;
}

bool iomap_waiting(const struct rsocket *rs)
{
	list_for_each(node, &rs->stream.mappings)
		if (list_entry(node, struct mapping, link)->waiting)
			return true;
	return false;
}

static int announce(struct rsocket *rs, struct mapping *mapping)
{
	struct stream *stream = &rs->stream;
	struct iomap entry = { .offset = mapping->offset };
	uint32_t message = MESSAGE(MESSAGE_IOMAP, mapping->index);
	uint64_t address = stream->peer_iomaps + mapping->index * sizeof(entry);

	if (mapping->mr)
		entry.target = (struct target){ (uintptr_t)mapping->memory, mapping->mr->rkey, mapping->length };
	if (stream->peer_swapped) {
		entry.offset = __builtin_bswap64(entry.offset);
		entry.target.address = __builtin_bswap64(entry.target.address);
		entry.target.key = __builtin_bswap32(entry.target.key);
		entry.target.length = __builtin_bswap32(entry.target.length);
	}
	return stream_write_inline(rs, &entry, sizeof(entry), address, stream->peer_table.key, &message);
}

int iomap_announce(struct rsocket *rs)
{
	struct stream *stream = &rs->stream;

	list_for_each_safe(node, next, &stream->mappings) {
		struct mapping *mapping = list_entry(node, struct mapping, link);
		if (!mapping->waiting)
			continue;
		if (stream->state != STREAM_CONNECTED || !stream_queue_free(rs) || stream->sent == stream->allowed)
			return 0;
		int error = announce(rs, mapping);
		if (error)
			return error;
		mapping->waiting = false;
		if (!mapping->mr) {
			list_del(&mapping->link);
			free(mapping);
		}
	}
	return 0;
}

void iomap_release(struct rsocket *rs)
{
	list_for_each_safe(node, next, &rs->stream.mappings) {
		struct mapping *mapping = list_entry(node, struct mapping, link);
		if (mapping->mr)
			ibv_dereg_mr(mapping->mr);
		list_del(&mapping->link);
		free(mapping);
	}
}

/* The program's side. */

static int map(struct rsocket *rs, void *memory, size_t length, int prot, off_t *offset)
{
	struct stream *stream = &rs->stream;

	if (!is_stream(rs) || !length || length > UINT32_MAX || (prot & ~(PROT_NONE | PROT_WRITE)))
		return EINVAL;
	if (stream->state != STREAM_CONNECTED)
		return ENOTCONN;
	struct mapping *mapping = malloc(sizeof(*mapping));
	if (!mapping)
		return ENOMEM;
	*mapping = (struct mapping){ .index = -1, .memory = memory, .length = length, .waiting = prot == PROT_WRITE };
	mapping->offset = *offset == -1 ? (uintptr_t)memory : (uint64_t)*offset;
	if (mapping->waiting)
		mapping->index = take_index(stream);
	if (mapping->waiting && mapping->index < 0) {
		free(mapping);
		return ENOBUFS;
	}
	mapping->mr = ibv_reg_mr(stream->id->pd, memory, length,
				 IBV_ACCESS_LOCAL_WRITE | (mapping->waiting ? IBV_ACCESS_REMOTE_WRITE : 0));
	if (!mapping->mr) {
		int error = errno;
		free(mapping);
		return error;
	}
	list_add_tail(&stream->mappings, &mapping->link);
	*offset = mapping->offset;
	return 0;
}

PUBLIC off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct rsocket *rs = table_get(socket);
	int error;

	(void)flags;
	if (!rs)
		return fail(EBADF);
	pthread_mutex_lock(&rs->lock);
	error = map(rs, buf, len, prot, &offset);
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return error ? fail(error) : offset;
}

static int unmap(struct rsocket *rs, const void *memory, size_t length)
{
	if (!is_stream(rs))
		return EINVAL;
	list_for_each(node, &rs->stream.mappings) {
		struct mapping *mapping = list_entry(node, struct mapping, link);
		if (!mapping->mr || mapping->memory != memory || mapping->length != length)
			continue;
		int error = ibv_dereg_mr(mapping->mr);
		if (error)
			return error;
		mapping->mr = NULL;
		if (mapping->index >= 0 && !mapping->waiting) {
			mapping->waiting = true;
			return 0;
		}
		list_del(&mapping->link);
		free(mapping);
		return 0;
	}
	return EINVAL;
}

PUBLIC int riounmap(int socket, void *buf, size_t len)
{
	struct rsocket *rs = table_get(socket);

	if (!rs)
		return fail(EBADF);
	pthread_mutex_lock(&rs->lock);
	int error = unmap(rs, buf, len);
	pthread_mutex_unlock(&rs->lock);
	table_put(rs);
	return answer(error);
}

/* Where the peer has that offset mapped, and up to how many bytes from there; 0: nowhere. */
static uint64_t find(const struct stream *stream, uint64_t offset, uint32_t *key, size_t *length)
{
	const volatile struct iomap *entries = (const volatile struct iomap *)(stream->table + TARGETS);

	for (int i = 0; i < stream->iomaps; i++) {
		uint64_t first = entries[i].offset;
		uint32_t most = entries[i].target.length;
		if (offset < first || offset - first >= most)
			continue;
		if (*length > most - (offset - first))
			*length = most - (offset - first);
		*key = entries[i].target.key;
		return entries[i].target.address + (offset - first);
	}
	return 0;
}

/* As one that writes data, but for credits: the peer's program is not told. */
static bool ready(const struct rsocket *rs)
{
	return stream_queue_free(rs) || rs->stream.state != STREAM_CONNECTED || !rs->stream.may_write;
}

/* The next piece. `sending` is held, which is all that may put something into the send buffer. */
static int write_piece(struct rsocket *rs, const uint8_t *bytes, size_t *length, uint64_t offset)
{
	struct stream *stream = &rs->stream;
	uint8_t *room;
	uint32_t key;

	if (stream->state != STREAM_CONNECTED)
		return stream->state == STREAM_CLOSED ? ECONNRESET : ENOTCONN;
	if (!stream->may_write)
		return EPIPE;
	if (!stream_queue_free(rs))
		return EAGAIN;
	size_t most = stream_room(rs, &room);
	if (*length > most)
		*length = most;
	if (*length > DATA_MOST)
		*length = DATA_MOST;
	uint64_t address = find(stream, offset, &key, length);
	if (!address)
		return EINVAL;
	memcpy(room, bytes, *length);
	return stream_write(rs, *length, address, key, NULL);
}

PUBLIC size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	struct rsocket *rs = table_get(socket);
	size_t done = 0;
	int error = 0;

	if (!rs)
		return fail(EBADF);
	if (!is_stream(rs))
		error = EINVAL;
	bool at_once = (flags & MSG_DONTWAIT) || (atomic_load(&rs->flags) & O_NONBLOCK);
	while (!error && done < count) {
		size_t some = count - done;
		pthread_mutex_lock(&rs->lock);
		error = wait_until(rs, ready, at_once ? 0 : -1);
		pthread_mutex_unlock(&rs->lock);
		if (error)
			break;
		pthread_mutex_lock(&rs->sending);
		pthread_mutex_lock(&rs->lock);
		error = write_piece(rs, (const uint8_t *)buf + done, &some, offset + done);
		pthread_mutex_unlock(&rs->lock);
		pthread_mutex_unlock(&rs->sending);
		if (!error)
			done += some;
		else if (error == EAGAIN && !at_once)
			error = 0;
	}
	table_put(rs);
	return done || !error ? done : (size_t)fail(error);
}
