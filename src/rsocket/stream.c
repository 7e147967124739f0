/* SPDX-License-Identifier: MIT */
/*
 * What goes over a stream's connection: messages, credits, and the buffers that they are about (protocol.h).
 *
 * Data is copied into the send buffer, written from there into the peer's receive buffer, and copied from there by the reader. Both
 * buffers are rings, used in order. Nothing in the send buffer is split: what is left at its end becomes a message of its own.
 *
 * What the peer writes into our table is looked at only when it says so by a message, and what it says is not trusted to be right.
 */
#include <byteswap.h>
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rsocket.h"

enum {
	TRANSFER_FIRST = 2048, /* bytes of a call's first message */
	SEND_LOW = 2048,       /* bytes of room below which it is not worth while to send */
	BATCH = 32,	       /* completions polled at once */
	/*
	 * Receives beyond those that credits are for: what a peer may send without, while we do not look: two halves, two counts,
	 * and that it ends. One that finds none is sent again after RNR_TIMER (10 ms; the CM's is 655 ms).
	 */
	RECEIVES_MORE = 8,
	RNR_TIMER = 20,
};

/* wr_id: what is given back when it completes, and for the first how many bytes. */
enum work { WORK_DATA, WORK_CONTROL, WORK_RECEIVE };
#define WORK(work, bytes) ((uint64_t)(work) << 32 | (bytes))

static uint32_t half(const struct stream *stream)
{
	return stream->receive.size / TARGETS;
}

static bool opening(const struct stream *stream)
{
	return stream->state == STREAM_RESOLVING_ADDRESS || stream->state == STREAM_RESOLVING_ROUTE ||
	       stream->state == STREAM_CONNECTING;
}

/* Memory and queues. */

static size_t page_up(size_t bytes)
{
	size_t page = sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

static int make_memory(struct rsocket *rs)
{
	struct stream *stream = &rs->stream;
	struct ibv_pd *pd = stream->id->pd;
	int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	size_t table = TARGETS * sizeof(struct target) + stream->iomaps * sizeof(struct iomap);

	stream->receive.size = page_up(rs->receive_size / TARGETS) * TARGETS;
	stream->send.size = page_up(rs->send_size);
	stream->memory_size = stream->receive.size + stream->send.size + page_up(table);
	stream->memory = mmap(NULL, stream->memory_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stream->memory == MAP_FAILED) {
		stream->memory = NULL;
		return ENOMEM;
	}
	stream->receive.bytes = stream->memory;
	stream->send.bytes = stream->memory + stream->receive.size;
	stream->table = (struct target *)(stream->send.bytes + stream->send.size);
	stream->receive.mr = ibv_reg_mr(pd, stream->receive.bytes, stream->receive.size, remote);
	stream->send.mr = ibv_reg_mr(pd, stream->send.bytes, stream->send.size, IBV_ACCESS_LOCAL_WRITE);
	stream->table_mr = ibv_reg_mr(pd, stream->table, page_up(table), remote);
	if (!stream->receive.mr || !stream->send.mr || !stream->table_mr)
		return errno;
	stream->lengths = calloc(rs->receives + 1, sizeof(*stream->lengths));
	return stream->lengths ? 0 : ENOMEM;
}

static int make_queues(struct rsocket *rs)
{
	struct stream *stream = &rs->stream;
	struct ibv_context *verbs = stream->id->verbs;
	struct ibv_device_attr device;

	if (ibv_query_device(verbs, &device))
		return EIO;
	if (rs->sends > device.max_qp_wr)
		rs->sends = device.max_qp_wr;
	if (rs->receives + RECEIVES_MORE > device.max_qp_wr)
		rs->receives = device.max_qp_wr - RECEIVES_MORE;
	stream->completions = ibv_create_comp_channel(verbs);
	if (!stream->completions)
		return errno;
	fcntl(stream->completions->fd, F_SETFL, O_NONBLOCK);
	struct epoll_event event = { .events = EPOLLIN };
	if (epoll_ctl(rs->fd, EPOLL_CTL_ADD, stream->completions->fd, &event))
		return errno;
	stream->cq = ibv_create_cq(verbs, rs->sends + rs->receives + RECEIVES_MORE, NULL, stream->completions, 0);
	if (!stream->cq)
		return errno;
	struct ibv_qp_init_attr attr = {
		.send_cq = stream->cq,
		.recv_cq = stream->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = rs->sends,
			 .max_recv_wr = rs->receives + RECEIVES_MORE,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	/* What is announced goes inline whatever the program asked for. */
	attr.cap.max_inline_data = rs->inlined < sizeof(struct iomap) ? sizeof(struct iomap) : rs->inlined;
	return rdma_create_qp(stream->id, NULL, &attr) ? errno : 0;
}

static int post_receives(struct stream *stream, int count)
{
	struct ibv_recv_wr wrs[BATCH], *bad;

	while (count > 0) {
		int some = count < BATCH ? count : BATCH;
		for (int i = 0; i < some; i++)
			wrs[i] = (struct ibv_recv_wr){ .wr_id = WORK(WORK_RECEIVE, 0), .next = i + 1 < some ? &wrs[i + 1] : NULL };
		int error = ibv_post_recv(stream->id->qp, wrs, &bad);
		if (error)
			return error;
		count -= some;
	}
	return 0;
}

int stream_prepare(struct rsocket *rs)
{
	struct stream *stream = &rs->stream;
	int error = make_queues(rs);

	if (!error)
		error = make_memory(rs);
	if (!error)
		error = post_receives(stream, rs->receives + RECEIVES_MORE);
	if (error)
		return error;
	stream->receive_due = half(stream);
	stream->receive_free = half(stream);
	stream->receive_next = half(stream);
	stream->allow_at = rs->receives / 2;
	stream->send_free = stream->send.size;
	stream->sends_free = rs->sends - CONTROL_SENDS;
	stream->controls_free = CONTROL_SENDS;
	return 0;
}

static void free_mr(struct ibv_mr **mr)
{
	if (*mr)
		ibv_dereg_mr(*mr);
	*mr = NULL;
}

void stream_release(struct rsocket *rs)
{
	struct stream *stream = &rs->stream;

	iomap_release(rs);
	if (stream->id && stream->id->qp)
		rdma_destroy_qp(stream->id);
	if (stream->cq)
		ibv_destroy_cq(stream->cq);
	stream->cq = NULL;
	stream->armed = false;
	if (stream->completions)
		ibv_destroy_comp_channel(stream->completions);
	stream->completions = NULL;
	free_mr(&stream->receive.mr);
	free_mr(&stream->send.mr);
	free_mr(&stream->table_mr);
	if (stream->memory)
		munmap(stream->memory, stream->memory_size);
	stream->memory = NULL;
	free(stream->lengths);
	stream->lengths = NULL;
}

/* What the two tell each other when they connect. */

void stream_describe(const struct rsocket *rs, struct connection_data *ours)
{
	const struct stream *stream = &rs->stream;

	*ours = (struct connection_data){
		.version = PROTOCOL_VERSION,
		.flags = CONNECTION_IOMAP | (__BYTE_ORDER == __BIG_ENDIAN ? CONNECTION_BIG_ENDIAN : 0),
		.credits = htobe16(rs->receives),
		.iomaps = iomaps_coded(stream->iomaps),
		.table = { htobe64((uintptr_t)stream->table), htobe32(stream->table_mr->rkey), htobe32(TARGETS) },
		.buffer = { htobe64((uintptr_t)stream->receive.bytes), htobe32(stream->receive.mr->rkey), htobe32(half(stream)) },
	};
}

static struct target from_wire(const struct target *wire)
{
	return (struct target){ be64toh(wire->address), be32toh(wire->key), be32toh(wire->length) };
}

void stream_learn(struct rsocket *rs, const struct connection_data *theirs)
{
	struct stream *stream = &rs->stream;

	stream->allowed = be16toh(theirs->credits);
	stream->targets[0] = from_wire(&theirs->buffer);
	stream->peer_table = from_wire(&theirs->table);
	stream->peer_table_next = stream->peer_table.length > 1;
	stream->peer_swapped = (__BYTE_ORDER == __BIG_ENDIAN) != !!(theirs->flags & CONNECTION_BIG_ENDIAN);
	if (theirs->flags & CONNECTION_IOMAP) {
		stream->peer_iomaps = stream->peer_table.address + stream->peer_table.length * sizeof(struct target);
		stream->peer_iomaps_most = iomaps_decoded(theirs->iomaps);
	}
}

void stream_begin(struct rsocket *rs)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .min_rnr_timer = RNR_TIMER };

	/* If not, it only takes longer. */
	ibv_modify_qp(rs->stream.id->qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
	rs->stream.state = STREAM_CONNECTED;
	rs->stream.may_read = rs->stream.may_write = true;
	wait_wake(rs);
}

void stream_end(struct rsocket *rs, int error)
{
	struct stream *stream = &rs->stream;

	if (stream->state != STREAM_CONNECTED)
		return;
	stream->state = STREAM_CLOSED;
	if (error)
		rs->error = error;
	wait_wake(rs);
}

/* Messages. */

static int post(struct rsocket *rs, struct ibv_send_wr *wr, uint64_t address, uint32_t key, const uint32_t *message)
{
	struct ibv_send_wr *bad;

	wr->opcode = message ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	if (message)
		wr->imm_data = htobe32(*message);
	wr->wr.rdma.remote_addr = address;
	wr->wr.rdma.rkey = key;
	int error = ibv_post_send(rs->stream.id->qp, wr, &bad);
	if (error)
		stream_end(rs, error == EINVAL ? ECONNRESET : error);
	return error;
}

/* length bytes, at most those that go inline always, that the peer gets at an address; with no credit. */
static void post_control(struct rsocket *rs, void *bytes, uint32_t length, uint64_t address, uint32_t key, const uint32_t *message)
{
	struct ibv_sge sge = { (uintptr_t)bytes, length, 0 };
	struct ibv_send_wr wr = {
		.wr_id = WORK(WORK_CONTROL, 0), .sg_list = &sge, .num_sge = length ? 1 : 0, .send_flags = IBV_SEND_INLINE
	};

	rs->stream.controls_free--;
	post(rs, &wr, address, key, message);
}

bool stream_control_free(const struct rsocket *rs)
{
	return rs->stream.controls_free > 0 || rs->stream.state != STREAM_CONNECTED;
}

void stream_control(struct rsocket *rs, enum control control)
{
	uint32_t message = MESSAGE(MESSAGE_CONTROL, control);

	if (rs->stream.state == STREAM_CONNECTED && rs->stream.controls_free > 0)
		post_control(rs, NULL, 0, 0, 0, control == CONTROL_KEEPALIVE ? NULL : &message);
}

/* Says what was read meanwhile, when it is worth a message. */
static void give_credits(struct rsocket *rs)
{
	struct stream *stream = &rs->stream;
	bool buffer = stream->receive_free >= half(stream);
	uint32_t message = MESSAGE(MESSAGE_CREDITS, (uint16_t)(stream->counted + rs->receives));

	if (stream->state != STREAM_CONNECTED || stream->controls_free == 0)
		return;
	if (!buffer && (int16_t)(stream->counted - stream->allow_at) < 0)
		return;
	stream->allow_at = stream->counted + rs->receives / 2;
	if (!buffer) {
		post_control(rs, NULL, 0, 0, 0, &message);
		return;
	}
	struct target target = { (uintptr_t)stream->receive.bytes + stream->receive_next, stream->receive.mr->rkey, half(stream) };
	if (stream->peer_swapped)
		target = (struct target){ bswap_64(target.address), bswap_32(target.key), bswap_32(target.length) };
	uint64_t entry = stream->peer_table.address + stream->peer_table_next * sizeof(target);
	stream->receive_free -= half(stream);
	stream->receive_due += half(stream);
	stream->receive_next = (stream->receive_next + half(stream)) % stream->receive.size;
	stream->peer_table_next = (stream->peer_table_next + 1) % stream->peer_table.length;
	post_control(rs, &target, sizeof(target), entry, stream->peer_table.key, &message);
}

/* Takes from the table what the peer has put there for a target that is used up. */
static void take_targets(struct stream *stream)
{
	for (int i = 0; i < TARGETS; i++) {
		volatile struct target *announced = &stream->table[i];
		if (stream->targets[i].length || !announced->length)
			continue;
		stream->targets[i] = (struct target){ announced->address, announced->key, announced->length };
		announced->length = 0;
	}
}

static void on_data(struct rsocket *rs, uint32_t length)
{
	struct stream *stream = &rs->stream;
	unsigned next = (stream->tail + 1) % (rs->receives + 1);

	if (next == stream->head || length > stream->receive_due) {
		stream_end(rs, EPROTO);
		return;
	}
	if (!length) {
		stream->counted++;
		return;
	}
	stream->receive_due -= length;
	stream->lengths[stream->tail] = length;
	stream->tail = next;
}

static void on_control(struct rsocket *rs, uint32_t control)
{
	struct stream *stream = &rs->stream;

	if (control == CONTROL_DISCONNECT) {
		stream->farewell = true;
		stream_end(rs, 0);
	}
	if (control == CONTROL_SHUTDOWN) {
		/* Not the end, even if we shut down ours: some of what we sent may be under way. */
		stream->farewell = true;
		stream->may_read = false;
	}
}

static void on_message(struct rsocket *rs, uint32_t message)
{
	uint32_t value = MESSAGE_VALUE(message);

	switch (MESSAGE_TYPE(message)) {
	case MESSAGE_DATA:
		on_data(rs, value);
		break;
	case MESSAGE_CREDITS:
		rs->stream.allowed = value;
		take_targets(&rs->stream);
		break;
	case MESSAGE_IOMAP:
		rs->stream.counted++;
		break;
	case MESSAGE_CONTROL:
		on_control(rs, value);
		break;
	default:
		stream_end(rs, EPROTO);
	}
}

static void on_sent(struct stream *stream, uint64_t wr_id)
{
	if (wr_id >> 32 == WORK_CONTROL) {
		stream->controls_free++;
		return;
	}
	stream->sends_free++;
	stream->send_free += (uint32_t)wr_id;
}

/* The receives that completed. */
static int take_completions(struct rsocket *rs, const struct ibv_wc *wcs, int count)
{
	int receives = 0;

	for (int i = 0; i < count; i++) {
		const struct ibv_wc *wc = &wcs[i];
		if (wc->status != IBV_WC_SUCCESS) {
			/* The first that fails says why, the others are flushed. */
			stream_end(rs, wc->status == IBV_WC_RETRY_EXC_ERR ? ETIMEDOUT : ECONNRESET);
		} else if (wc->wr_id >> 32 == WORK_RECEIVE) {
			receives++;
			on_message(rs, be32toh(wc->imm_data));
		} else {
			on_sent(&rs->stream, wc->wr_id);
		}
	}
	return receives;
}

void stream_progress(struct rsocket *rs)
{
	struct stream *stream = &rs->stream;
	struct ibv_wc wcs[BATCH];
	int count, some = 0;

	/* Before it is established, what came early waits in the CQ. */
	if (!stream->cq || (stream->state != STREAM_CONNECTED && stream->state != STREAM_CLOSED))
		return;
	while ((count = ibv_poll_cq(stream->cq, BATCH, wcs)) > 0) {
		int receives = take_completions(rs, wcs, count);
		if (stream->state == STREAM_CONNECTED && post_receives(stream, receives))
			stream_end(rs, ECONNRESET);
		some += count;
		if (count < BATCH)
			break;
	}
	if (count < 0)
		stream_end(rs, EIO);
	give_credits(rs);
	if (some)
		wait_wake(rs);
}

/* What the program asks. */

bool stream_readable(const struct rsocket *rs)
{
	const struct stream *stream = &rs->stream;

	if (stream->head != stream->tail)
		return true;
	return stream->state == STREAM_CONNECTED ? !stream->may_read : !opening(stream);
}

bool stream_queue_free(const struct rsocket *rs)
{
	return rs->stream.sends_free > 0 && rs->stream.send_free >= SEND_LOW;
}

static bool may_send(const struct rsocket *rs)
{
	const struct stream *stream = &rs->stream;

	return stream_queue_free(rs) && stream->sent != stream->allowed && stream->targets[stream->target_next].length;
}

bool stream_writable(const struct rsocket *rs)
{
	const struct stream *stream = &rs->stream;

	if (stream->state == STREAM_CONNECTED)
		return !stream->may_write || may_send(rs);
	return !opening(stream);
}

bool stream_all_sent(const struct rsocket *rs)
{
	const struct stream *stream = &rs->stream;

	return stream->state != STREAM_CONNECTED ||
	       (stream->sends_free == rs->sends - CONTROL_SENDS && stream->controls_free == CONTROL_SENDS);
}

/* A place in what the program gave. */
struct place {
	const struct iovec *iov;
	size_t at; /* in the first */
};

/* Copies between the place and `bytes`, and moves on. There is that much. */
static void copy(struct place *place, uint8_t *bytes, size_t length, bool out)
{
	while (length) {
		size_t some = place->iov->iov_len - place->at;
		if (some > length)
			some = length;
		uint8_t *there = (uint8_t *)place->iov->iov_base + place->at;
		if (out && some)
			memcpy(there, bytes, some);
		else if (some)
			memcpy(bytes, there, some);
		bytes += some;
		length -= some;
		place->at += some;
		if (length && place->at == place->iov->iov_len) {
			place->iov++;
			place->at = 0;
		}
	}
}

static size_t total(const struct iovec *iov, int count)
{
	size_t length = 0;

	for (int i = 0; i < count; i++)
		length += iov[i].iov_len;
	return length;
}

/* Up to `left` bytes of what has come; `receiving` and the lock are held, which is given up while copying. */
static size_t read_messages(struct rsocket *rs, struct place *place, size_t left, bool peek)
{
	struct stream *stream = &rs->stream;
	unsigned head = stream->head;
	uint32_t at = stream->receive.at;
	size_t done = 0;

	while (done < left && head != stream->tail) {
		uint32_t length = stream->lengths[head];
		uint32_t some = left - done < length ? left - done : length;
		if (some > stream->receive.size - at)
			some = stream->receive.size - at;
		pthread_mutex_unlock(&rs->lock);
		copy(place, stream->receive.bytes + at, some, true);
		pthread_mutex_lock(&rs->lock);
		at = (at + some) % stream->receive.size;
		done += some;
		if (peek) {
			/* Only whole messages are passed, which is less than there may be. */
			if (some < length)
				break;
			head = (head + 1) % (rs->receives + 1);
			continue;
		}
		stream->receive.at = at;
		stream->receive_free += some;
		stream->lengths[head] -= some;
		if (!stream->lengths[head]) {
			head = stream->head = (head + 1) % (rs->receives + 1);
			stream->counted++;
		}
		give_credits(rs);
	}
	return done;
}

static int take_error(struct rsocket *rs)
{
	int error = rs->error;

	rs->error = 0;
	return error;
}

/* There is nothing to read, and there will not be. */
static int end_of_reading(struct rsocket *rs)
{
	if (rs->error)
		return take_error(rs);
	return rs->stream.state == STREAM_CONNECTED || rs->stream.state == STREAM_CLOSED ? 0 : ENOTCONN;
}

static int64_t patience(const struct rsocket *rs, int flags)
{
	return (flags & MSG_DONTWAIT) || (atomic_load(&rs->flags) & O_NONBLOCK) ? 0 : -1;
}

ssize_t stream_receive(struct rsocket *rs, const struct iovec *iov, int count, int flags)
{
	struct place place = { .iov = iov };
	size_t length = total(iov, count), done = 0;
	bool ended = false;
	int error = 0;

	if (flags & (MSG_OOB | MSG_ERRQUEUE))
		return fail(EOPNOTSUPP);
	while (!ended && !error) {
		pthread_mutex_lock(&rs->lock);
		error = wait_until(rs, stream_readable, patience(rs, flags));
		pthread_mutex_unlock(&rs->lock);
		if (error)
			break;
		/* Another thread may have taken it meanwhile. */
		pthread_mutex_lock(&rs->receiving);
		pthread_mutex_lock(&rs->lock);
		ended = rs->stream.head == rs->stream.tail && stream_readable(rs);
		if (!ended)
			done += read_messages(rs, &place, length - done, flags & MSG_PEEK);
		else if (!done)
			error = end_of_reading(rs);
		pthread_mutex_unlock(&rs->lock);
		pthread_mutex_unlock(&rs->receiving);
		if (done == length || (done && !(flags & MSG_WAITALL)) || (flags & MSG_PEEK))
			break;
	}
	return done || !error ? (ssize_t)done : fail(error);
}

uint32_t stream_room(const struct rsocket *rs, uint8_t **room)
{
	const struct stream *stream = &rs->stream;
	uint32_t end = stream->send.size - stream->send.at;

	*room = stream->send.bytes + stream->send.at;
	return stream->send_free < end ? stream->send_free : end;
}

int stream_write_inline(struct rsocket *rs, const void *bytes, uint32_t length, uint64_t address, uint32_t key,
			const uint32_t *message)
{
	struct ibv_sge sge = { (uintptr_t)bytes, length, 0 };
	struct ibv_send_wr wr = { .wr_id = WORK(WORK_DATA, 0), .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_INLINE };

	rs->stream.sends_free--;
	rs->stream.sent++;
	return post(rs, &wr, address, key, message);
}

int stream_write(struct rsocket *rs, uint32_t length, uint64_t address, uint32_t key, const uint32_t *message)
{
	struct stream *stream = &rs->stream;
	struct ibv_sge sge = { (uintptr_t)stream->send.bytes + stream->send.at, length, stream->send.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = WORK(WORK_DATA, length),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .send_flags = length <= rs->inlined ? IBV_SEND_INLINE : 0 };

	stream->send.at = (stream->send.at + length) % stream->send.size;
	stream->send_free -= length;
	stream->sends_free--;
	if (message)
		stream->sent++;
	return post(rs, &wr, address, key, message);
}

/* The next message: `sending` and the lock are held, which is given up while copying. */
static size_t send_message(struct rsocket *rs, struct place *place, size_t left)
{
	struct stream *stream = &rs->stream;
	struct target *target = &stream->targets[stream->target_next];
	uint8_t *room;
	uint32_t length = stream_room(rs, &room);

	if (length > left)
		length = left;
	if (length > stream->transfer)
		length = stream->transfer;
	if (length > target->length)
		length = target->length;
	pthread_mutex_unlock(&rs->lock);
	copy(place, room, length, false);
	pthread_mutex_lock(&rs->lock);
	if (stream->state != STREAM_CONNECTED)
		return 0;

	uint64_t address = target->address;
	uint32_t message = MESSAGE(MESSAGE_DATA, length);
	target->address += length;
	target->length -= length;
	uint32_t key = target->key;
	if (!target->length)
		stream->target_next = (stream->target_next + 1) % TARGETS;
	if (stream->transfer < DATA_MOST)
		stream->transfer *= 2;
	return stream_write(rs, length, address, key, &message) ? 0 : length;
}

/* Why nothing can be sent, which is so for good. */
static int end_of_writing(struct rsocket *rs)
{
	if (rs->error)
		return take_error(rs);
	if (rs->stream.state == STREAM_CONNECTED)
		return EPIPE;
	return rs->stream.state == STREAM_CLOSED ? ECONNRESET : ENOTCONN;
}

/* As much as may be sent now. */
static int send_some(struct rsocket *rs, struct place *place, size_t length, size_t *done)
{
	struct stream *stream = &rs->stream;
	int error = 0;

	if (iomap_waiting(rs))
		error = iomap_announce(rs);
	while (!error && *done < length && stream->state == STREAM_CONNECTED && stream->may_write && may_send(rs)) {
		*done += send_message(rs, place, length - *done);
		if (*done < length && !may_send(rs))
			stream_progress(rs);
	}
	if (!error && *done < length && (stream->state != STREAM_CONNECTED || !stream->may_write))
		error = *done ? EPIPE : end_of_writing(rs); /* the former is nobody's: he gets what was sent, and asks again */
	return error;
}

ssize_t stream_send(struct rsocket *rs, const struct iovec *iov, int count, int flags)
{
	struct place place = { .iov = iov };
	size_t length = total(iov, count), done = 0;
	int error = 0;

	if (flags & MSG_OOB)
		return fail(EOPNOTSUPP);
	do {
		pthread_mutex_lock(&rs->lock);
		error = wait_until(rs, stream_writable, patience(rs, flags));
		pthread_mutex_unlock(&rs->lock);
		if (error)
			break;
		pthread_mutex_lock(&rs->sending);
		pthread_mutex_lock(&rs->lock);
		if (!done)
			rs->stream.transfer = TRANSFER_FIRST;
		error = send_some(rs, &place, length, &done);
		pthread_mutex_unlock(&rs->lock);
		pthread_mutex_unlock(&rs->sending);
	} while (!error && done < length);
	return done || !error ? (ssize_t)done : fail(error);
}
