/* SPDX-License-Identifier: MIT */
#include "tools/queues.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "nic/qp.h"

/* nic/layout.h: the word of a FIFO. */
#define FIFO_LAP_SHIFT	 41
#define FIFO_STATE_SHIFT 15
#define FIFO_SLOT_MASK	 0x7fffu

static bool peek(pid_t pid, uint64_t from, void *to, size_t length)
{
	struct iovec here = { .iov_base = to, .iov_len = length };
	struct iovec there = { .iov_base = (void *)(uintptr_t)from, .iov_len = length };
	ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);

	if (n >= 0 && n != (ssize_t)length)
		errno = EFAULT;
	return n == (ssize_t)length;
}

/* A private object of a table, if it is there and the other's build is ours. */
static bool peek_object(pid_t pid, uint64_t table, uint32_t index, uint32_t bytes, void *object, size_t size)
{
	uint64_t pointer;

	if (bytes != size) {
		errno = EPROTO;
		return false;
	}
	if (!peek(pid, table + index * sizeof(pointer), &pointer, sizeof(pointer)))
		return false;
	if (!pointer) {
		errno = ENOENT;
		return false;
	}
	return peek(pid, pointer, object, size);
}

bool queues_polls(pid_t pid, const struct seg_header *header, uint32_t cq_index, uint64_t *polls)
{
	struct nic_cq cq;

	if (!peek_object(pid, header->cqs_va, cq_index, header->cq_bytes, &cq, sizeof(cq)) || cq.index != cq_index)
		return false;
	*polls = cq.polls;
	return true;
}

static bool read_sent(int fd, uint32_t index, struct seg_qp *qp)
{
	off_t at = (off_t)(offsetof(struct nic_segment, qps) + index * sizeof(*qp));

	if (pread(fd, qp, sizeof(*qp), at) != sizeof(*qp))
		return false;
	if (atomic_load(&qp->state) & NIC_QP_EXISTS)
		return true;
	errno = ENOENT;
	return false;
}

static bool read_wqe(pid_t pid, const struct nic_qp *qp, uint32_t position, struct wr_shot *wr)
{
	union {
		struct nic_swqe wqe;
		uint8_t bytes[sizeof(struct nic_swqe) + NIC_MAX_SGE * sizeof(struct ibv_sge)];
	} * copy;
	uint32_t slot = position & ((1u << qp->sq_log2) - 1);
	size_t bytes = qp->sq_stride < sizeof(*copy) ? qp->sq_stride : sizeof(*copy);
	bool done;

	copy = aligned_alloc(NIC_CACHE_LINE, (sizeof(*copy) + NIC_CACHE_LINE - 1) & ~(size_t)(NIC_CACHE_LINE - 1));
	if (!copy)
		return false;
	done = peek(pid, (uintptr_t)qp->sq + (uint64_t)slot * qp->sq_stride, copy, bytes);
	if (done) {
		const struct nic_swqe *wqe = &copy->wqe;

		*wr = (struct wr_shot){ .index = position,
					.is_inline = wqe->send_flags & IBV_SEND_INLINE,
					.opcode = wqe->opcode,
					.flags = wqe->send_flags,
					.wr_id = wqe->wr_id,
					.length = wqe->length,
					.remote_addr = wqe->remote_addr,
					.rkey = wqe->rkey,
					.remote_qpn = qp->type == IBV_QPT_UD ? wqe->remote_qpn : 0,
					.num_sge = wqe->num_sge };
		for (uint32_t i = 0; i < wr->num_sge && i < NIC_MAX_SGE && !wr->is_inline; i++) {
			if (offsetof(struct nic_swqe, sge) + (i + 1) * sizeof(struct ibv_sge) <= bytes)
				wr->sge[i] = wqe->sge[i];
		}
	}
	free(copy);
	return done;
}

bool queues_send(pid_t pid, int fd, uint32_t qp_index, uint32_t most, struct wr_list *list)
{
	struct seg_header header;
	struct seg_qp shared;
	struct nic_qp qp;
	uint32_t head, posted, executed, life, from;

	memset(list, 0, sizeof(*list));
	if (pread(fd, &header, sizeof(header), 0) != sizeof(header) || !read_sent(fd, qp_index, &shared))
		return false;
	if (header.swqe_bytes != sizeof(struct nic_swqe)) {
		errno = EPROTO;
		return false;
	}
	head = atomic_load(&shared.sent.head);
	posted = atomic_load(&shared.sent.posted);
	life = nic_qp_life(atomic_load(&shared.state));
	if (!peek_object(pid, header.qps_va, qp_index, header.qp_bytes, &qp, sizeof(qp)))
		return false;
	if (qp.index != qp_index || qp.sq_log2 > 15 || !qp.sq) {
		errno = EPROTO;
		return false;
	}
	if ((int32_t)(posted - head) < 0)
		posted = head;
	list->more = posted - head > most;
	list->wrs = calloc(posted - head < most ? posted - head + 1 : most, sizeof(*list->wrs));
	if (!list->wrs)
		return false;
	for (uint32_t i = head; i != posted && list->count < most; i++) {
		if (!read_wqe(pid, &qp, i, &list->wrs[list->count]))
			return false;
		list->count++;
	}
	/* Those that were given back meanwhile may be others by now. */
	if (!read_sent(fd, qp_index, &shared) || nic_qp_life(atomic_load(&shared.state)) != life) {
		list->count = 0;
		return true;
	}
	from = atomic_load(&shared.sent.head) - head;
	executed = atomic_load(&shared.sent.executed);
	from = from < list->count ? from : list->count;
	list->count -= from;
	memmove(list->wrs, list->wrs + from, list->count * sizeof(*list->wrs));
	for (uint32_t i = 0; i < list->count; i++)
		list->wrs[i].executed = (int32_t)(executed - list->wrs[i].index) > 0;
	return true;
}

/* The receive that a position of the FIFO names; false if it was taken, or is of another lap. */
static bool read_receive(int fd, const struct seg_rq *rq, uint64_t position, struct wr_shot *wr)
{
	uint64_t word, at = rq->fifo + (position & ((1ull << rq->log2) - 1)) * sizeof(word);
	union {
		struct nic_rwqe wqe;
		uint8_t bytes[sizeof(struct nic_rwqe) + NIC_MAX_SGE * sizeof(struct ibv_sge)];
	} copy;
	size_t bytes = rq->stride < sizeof(copy) ? rq->stride : sizeof(copy);

	if (pread(fd, &word, sizeof(word), (off_t)at) != sizeof(word) || (word >> FIFO_STATE_SHIFT & 3) != NIC_FIFO_AVAILABLE ||
	    word >> FIFO_LAP_SHIFT != (position >> rq->log2 & 0x7fffff))
		return false;
	at = rq->slots + (word & FIFO_SLOT_MASK) * rq->stride;
	if (pread(fd, &copy, bytes, (off_t)at) != (ssize_t)bytes)
		return false;
	*wr = (struct wr_shot){ .wr_id = copy.wqe.wr_id, .length = copy.wqe.room, .num_sge = copy.wqe.num_sge };
	for (uint32_t i = 0; i < wr->num_sge && i < rq->max_sge && i < NIC_MAX_SGE; i++)
		wr->sge[i] = copy.wqe.sge[i];
	return true;
}

bool queues_receive(int fd, bool srq, uint32_t index, uint32_t most, struct wr_list *list)
{
	off_t at =
		srq ? (off_t)(offsetof(struct nic_segment, srqs) + index * sizeof(struct seg_srq) + offsetof(struct seg_srq, rq)) :
		      (off_t)(offsetof(struct nic_segment, qps) + index * sizeof(struct seg_qp) + offsetof(struct seg_qp, rq));
	struct seg_rq rq;
	uint64_t head, tail;

	memset(list, 0, sizeof(*list));
	if (pread(fd, &rq, sizeof(rq), at) != sizeof(rq))
		return false;
	head = atomic_load(&rq.head);
	tail = atomic_load(&rq.tail);
	if (rq.log2 > 15 || tail - head > NIC_MAX_WR)
		tail = head;
	list->more = tail - head > most;
	list->wrs = calloc(tail - head < most ? tail - head + 1 : most, sizeof(*list->wrs));
	for (uint64_t i = head; i != tail && list->wrs && list->count < most; i++) {
		if (read_receive(fd, &rq, i, &list->wrs[list->count])) {
			list->wrs[list->count].index = list->count;
			list->count++;
		}
	}
	return list->wrs;
}

void queues_free(struct wr_list *list)
{
	free(list->wrs);
	list->wrs = NULL;
	list->count = 0;
}

const char *queues_opcode_name(uint8_t opcode)
{
	static const char *const names[] = {
		[IBV_WR_RDMA_WRITE] = "WRITE",
		[IBV_WR_RDMA_WRITE_WITH_IMM] = "WRITE_IMM",
		[IBV_WR_SEND] = "SEND",
		[IBV_WR_SEND_WITH_IMM] = "SEND_IMM",
		[IBV_WR_RDMA_READ] = "READ",
		[IBV_WR_ATOMIC_CMP_AND_SWP] = "CMP_SWAP",
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = "FETCH_ADD",
		[IBV_WR_LOCAL_INV] = "LOCAL_INV",
		[IBV_WR_BIND_MW] = "BIND_MW",
		[IBV_WR_SEND_WITH_INV] = "SEND_INV",
	};

	return opcode < sizeof(names) / sizeof(names[0]) && names[opcode] ? names[opcode] : "?";
}
