/* SPDX-License-Identifier: MIT */
/* Assistance. See assist.h. */
#include "local/assist.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "local/dma.h"
#include "local/memory.h"
#include "nic/crash.h"
#include "nic/mr.h"
#include "nic/qp.h"
#include "nic/requester.h"
#include "nic/responder.h"
#include "nic/share.h"
#include "nic/visit.h"

#define WORD 8u

static bool carries_payload(enum assist_op op)
{
	return op == ASSIST_WRITE || op == ASSIST_SCATTER;
}

static void ask_free(struct nic *nic, struct ask *ask)
{
	if (ask->bounce)
		arena_free(&nic->arena, ask->bounce, ask->length, 0);
	free(ask);
}

/* Pieces of our memory into a file, and back. */
static bool to_file(struct nic *nic, int fd, const struct piece *pieces, uint32_t count,
		    uint64_t offset, uint64_t length)
{
	struct iovec iov[MEMORY_PIECES];

	memory_vector(nic, pieces, count, iov);
	return dma_to_file(fd, iov, count, offset) == (ssize_t)length;
}

static bool from_file(struct nic *nic, int fd, const struct piece *pieces, uint32_t count,
		      uint64_t offset, uint64_t length)
{
	struct iovec iov[MEMORY_PIECES];

	memory_vector(nic, pieces, count, iov);
	return dma_from_file(fd, iov, count, offset) == (ssize_t)length;
}

struct ask *assist_begin(struct nic *nic, struct peer *peer, uint32_t qp, struct message *message,
			 const struct piece *local, uint32_t local_count, int *error)
{
	static _Atomic uint64_t last_id;
	struct ask *ask = calloc(1, sizeof(*ask));

	*error = ENOMEM;
	if (!ask)
		return NULL;
	ask->id = message->id = atomic_fetch_add(&last_id, 1) + 1;
	ask->qp = qp;
	ask->op = message->op;
	ask->length = message->length;
	if (message->op != ASSIST_COMPARE_SWAP && message->op != ASSIST_FETCH_ADD) {
		ask->bounce = message->bounce = arena_alloc(&nic->arena, message->length);
		if (!ask->bounce) {
			free(ask);
			return NULL;
		}
	}
	*error = EFAULT;
	if (carries_payload(message->op) &&
	    !to_file(nic, nic->seg_fd, local, local_count, ask->bounce, message->length)) {
		ask_free(nic, ask);
		return NULL;
	}

	/* On the list before it is sent: the answer may come at once. */
	pthread_mutex_lock(&nic->assist_lock);
	list_add_tail(&peer->asks, &ask->of_peer);
	pthread_mutex_unlock(&nic->assist_lock);
	*error = attach_ask(nic, peer, message);
	if (*error) {
		pthread_mutex_lock(&nic->assist_lock);
		list_del(&ask->of_peer);
		pthread_mutex_unlock(&nic->assist_lock);
		ask_free(nic, ask);
		return NULL;
	}
	crash_point(ASK_SENT);
	counter_add(&nic->seg->counters.assisted_copies, 1);
	return ask;
}

enum ask_state assist_state(struct nic *nic, struct ask *ask)
{
	pthread_mutex_lock(&nic->assist_lock);
	enum ask_state state = ask->state;

	pthread_mutex_unlock(&nic->assist_lock);
	return state;
}

bool assist_collect(struct nic *nic, struct ask *ask, const struct piece *local,
		    uint32_t local_count)
{
	return from_file(nic, nic->seg_fd, local, local_count, ask->bounce, ask->length);
}

void assist_end(struct nic *nic, struct ask *ask)
{
	pthread_mutex_lock(&nic->assist_lock);
	bool under_way = ask->state == ASK_SENT;

	if (under_way)
		ask->abandoned = true; /* the answer, or the connection's end, frees it */
	else
		list_del(&ask->of_peer);
	pthread_mutex_unlock(&nic->assist_lock);
	if (!under_way)
		ask_free(nic, ask);
}

static void wake(struct nic *nic, uint32_t index)
{
	struct nic_qp *qp = nic_qp_get(nic, index);

	if (qp) {
		requester_wake(qp);
		nic_qp_put(qp);
	}
}

void assist_answered(struct nic *nic, struct peer *peer, const struct message *answer)
{
	struct ask *found = NULL;
	uint32_t qp = 0;
	bool abandoned = false;

	pthread_mutex_lock(&nic->assist_lock);
	list_for_each(node, &peer->asks) {
		struct ask *ask = list_entry(node, struct ask, of_peer);

		if (ask->id == answer->id && ask->state == ASK_SENT) {
			found = ask;
			break;
		}
	}
	if (found) {
		abandoned = found->abandoned;
		qp = found->qp;
		found->status = (enum cause_code)answer->status;
		found->value = answer->value;
		found->state = ASK_ANSWERED;
		if (abandoned)
			list_del(&found->of_peer);
	}
	pthread_mutex_unlock(&nic->assist_lock);
	if (found && abandoned)
		ask_free(nic, found);
	else if (found)
		wake(nic, qp);
}

void assist_lost(struct nic *nic, struct peer *peer)
{
	atomic_store(&peer->asked, 0);
	pthread_mutex_lock(&nic->assist_lock);
	list_for_each_safe(node, tmp, &peer->asks) {
		struct ask *ask = list_entry(node, struct ask, of_peer);

		if (ask->state != ASK_SENT)
			continue;
		ask->state = ASK_LOST;
		if (ask->abandoned) {
			list_del(&ask->of_peer);
			ask_free(nic, ask);
		}
	}
	pthread_mutex_unlock(&nic->assist_lock);
	/* Who waits for one of the others looks again when its timer ends. */
}

void assist_forget(struct nic *nic, struct peer *peer)
{
	pthread_mutex_lock(&nic->assist_lock);
	list_for_each_safe(node, tmp, &peer->asks) {
		list_del(node);
		ask_free(nic, list_entry(node, struct ask, of_peer));
	}
	pthread_mutex_unlock(&nic->assist_lock);
}

bool assist_atomic(struct nic *nic, const struct piece *at, enum assist_op op, uint64_t compare_add,
		   uint64_t swap, uint64_t *old)
{
	struct piece word = *at;

	/* By another region over this page somebody may be using the CPU. */
	if (word.kind == PIECE_PRIVATE)
		share_find(nic, &word);
	if (memory_atomic(attach_self(nic), &word, op == ASSIST_COMPARE_SWAP, compare_add, swap,
			  old))
		return true;
	pthread_mutex_lock(&nic->atomic_lock);
	bool done = memory_read_own(nic, at->addr, old, WORD);

	if (done && op == ASSIST_FETCH_ADD) {
		uint64_t sum = *old + compare_add;

		done = memory_write_own(nic, at->addr, &sum, WORD);
	} else if (done && *old == compare_add) {
		done = memory_write_own(nic, at->addr, &swap, WORD);
	}
	pthread_mutex_unlock(&nic->atomic_lock);
	return done;
}

static uint32_t rights_of(uint32_t op)
{
	switch (op) {
	case ASSIST_WRITE:
		return IBV_ACCESS_REMOTE_WRITE;
	case ASSIST_READ:
		return IBV_ACCESS_REMOTE_READ;
	case ASSIST_SCATTER:
		return IBV_ACCESS_LOCAL_WRITE;
	default:
		return IBV_ACCESS_REMOTE_ATOMIC;
	}
}

/* The last word last: a program may be spinning on it. */
static bool fill(struct nic *nic, int fd, const struct piece *pieces, uint32_t count,
		 uint64_t offset, uint64_t length, bool ordered)
{
	uint64_t end = pieces[0].addr + length;
	uint64_t tail = ordered ? end % WORD ? end % WORD : WORD : 0;
	struct piece part[NIC_MAX_SGE];
	uint32_t n;

	if (tail && length > tail) {
		n = memory_slice(pieces, count, 0, length - tail, part);
		if (!from_file(nic, fd, part, n, offset, length - tail))
			return false;
		n = memory_slice(pieces, count, length - tail, tail, part);
		return from_file(nic, fd, part, n, offset + length - tail, tail);
	}
	return from_file(nic, fd, pieces, count, offset, length);
}

/* The message has been in the socket since its sender's visit: is the QP still as it was then? */
static bool is_admitted(struct nic *nic, const struct message *message)
{
	uint32_t index;
	const struct seg_qp *qp =
		responder_find(&attach_self(nic)->target, message->dest_qpn, &index);
	uint64_t word = qp ? atomic_load_explicit(&qp->state, memory_order_acquire) : 0;
	enum ibv_qp_state state = word & 0xff;

	return word & NIC_QP_EXISTS && nic_qp_life(word) == message->life && state >= IBV_QPS_RTR &&
	       state != IBV_QPS_ERR;
}

void assist_serve(struct nic *nic, struct peer *peer, const struct message *message,
		  struct message *answer)
{
	struct piece pieces[NIC_MAX_SGE];
	struct seg_visit *visit;
	struct cause c = { .peer_qpn = message->qpn, .qpn = message->dest_qpn };
	bool atomic = message->op == ASSIST_COMPARE_SWAP || message->op == ASSIST_FETCH_ADD;
	bool done = true;
	uint64_t total = 0;

	answer->id = message->id;
	answer->status = CAUSE_ATTACH_FAILED;
	if (!message->count || message->count > NIC_MAX_SGE || message->length > ASSIST_CHUNK ||
	    !message->length || message->bounce > peer->size - message->length)
		return;
	crash_point(ASK_SERVING);
	/* A visit like the initiator's own: whoever takes the region or the QP back waits for it. */
	while (!(visit = visit_enter(nic, nic->seg)))
		sched_yield();
	answer->status = is_admitted(nic, message) ? CAUSE_NONE : CAUSE_PEER_QP_STATE;
	for (uint32_t i = 0; i < message->count && !answer->status; i++) {
		const struct ibv_sge *range = &message->ranges[i];

		answer->status = mr_check(nic->seg, message->op != ASSIST_SCATTER, range->lkey,
					  range->addr, range->length, rights_of(message->op),
					  message->pd, message->dest_qpn, &pieces[i], &c);
		total += range->length;
	}
	if (!answer->status && total != message->length)
		answer->status = CAUSE_ATTACH_FAILED;
	if (!answer->status) {
		if (atomic)
			done = assist_atomic(nic, &pieces[0], message->op, message->compare_add,
					     message->swap, &answer->value);
		else if (message->op == ASSIST_READ)
			done = to_file(nic, peer->visitor.seg_fd, pieces, message->count,
				       message->bounce, message->length);
		else
			done = fill(nic, peer->visitor.seg_fd, pieces, message->count,
				    message->bounce, message->length, message->op == ASSIST_WRITE);
		if (!done)
			answer->status = CAUSE_REMOTE_FAULT;
	}
	visit_leave(visit);
	crash_point(ASK_SERVED);
}
