/* SPDX-License-Identifier: MIT */
/*
 * Advice: what a program could do with less, or better, judged by what it did (observe/watch.h). Each line has the numbers that it
 * comes from. A program that does nothing of this gets none.
 */
#include "tools/explain.h"

#include <stdarg.h>
#include <string.h>

#include "nic/layout.h"
#include "nic/limits.h"
#include "observe/watch.h"
#include "tools/stacks.h"

#define ROWS_MATTER    16u /* calls */
#define SIGNALS_MATTER 64u /* requests */
#define BYTES_MATTER   (64u << 10)
#define QPS_MATTER     4u
#define ENTRIES_MATTER 8u
#define TIMERS_MATTER  10000000u /* ns */
#define SENTENCE       512	 /* bytes */

#define LINE	       2048 /* bytes of one, with its end */

struct advice {
	const struct advised *process;
	void (*tell)(void *arg, const char *line);
	void *arg;
};

static void say(struct advice *advice, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void say(struct advice *advice, const char *format, ...)
{
	char line[LINE];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	advice->tell(advice->arg, line);
}

typedef unsigned long long count;

/* ---- Queue pairs ---- */

static const struct seg_qp *living(const struct nic_segment *seg, uint32_t qpn)
{
	uint32_t slots = atomic_load(&seg->hdr.slot_count);

	for (uint32_t i = 0; i < slots && i < NIC_OWN_SLOTS; i++) {
		const struct seg_qp *qp = &seg->qps[(i << NIC_QPN_INDEX_BITS) |
						    (qpn & ((1u << NIC_QPN_INDEX_BITS) - 1))];

		if (atomic_load(&seg->hdr.slots[i]) == qpn >> NIC_QPN_INDEX_BITS)
			return atomic_load(&qp->state) & NIC_QP_EXISTS ? qp : NULL;
	}
	return NULL;
}

static void advise_posting(struct advice *advice, const struct watch_qp *qp, uint32_t qpn)
{
	uint32_t every = qp->longest_row < qp->max_send_wr / 2 ? qp->longest_row :
								 qp->max_send_wr / 2;

	if (qp->calls_in_row >= ROWS_MATTER && qp->calls_in_row >= qp->calls / 2)
		say(advice,
		    _("QP 0x%x: %llu of its %llu calls that post sends followed another with nothing polled in between, up to %u "
		      "requests in a row. Lists (wr.next) would have saved %llu calls."),
		    qpn, (count)qp->calls_in_row, (count)qp->calls, qp->longest_row,
		    (count)qp->calls_in_row);
	if (qp->signaled == qp->requests && qp->requests >= SIGNALS_MATTER && every >= 8)
		say(advice,
		    _("QP 0x%x: all of its %llu requests were signaled, and up to %u posted in a row. One completion for each %u "
		      "would have saved %llu of them."),
		    qpn, (count)qp->requests, qp->longest_row, every,
		    (count)(qp->requests - qp->requests / every));
}

static const struct watch_qp *find_anywhere(const struct advised *process, uint32_t qpn)
{
	for (unsigned i = 0; i < process->count; i++) {
		const struct watch *watch = process->all[i];
		const struct watch_qp *qp = watch ? &watch->qps[qpn % WATCH_QPS] : NULL;

		if (qp && qpn && qp->qpn == qpn)
			return qp;
	}
	return NULL;
}

/* How late they came, where that is known. */
static void describe_lateness(const struct watch_qp *qp, char *text, size_t size)
{
	*text = '\0';
	if (qp->lost > qp->late && qp->timer >= TIMERS_MATTER)
		snprintf(
			text, size,
			_("The receives came %.3f ms late; %.3f ms more passed before they were looked for, since each wait is %.2f ms "
			  "(min_rnr_timer of QP 0x%x)."),
			(double)qp->late / 1e6, (double)qp->lost / 1e6, (double)qp->timer / 1e6, qp->peer_qpn);
	else if (qp->late)
		snprintf(text, size, _("The receives were posted too late, by %.3f ms in all."), (double)qp->late / 1e6);
}

static void describe_depth(const struct watch_qp *qp, const struct watch_qp *peer, char *text, size_t size)
{
	if (!peer || !peer->max_recv_wr)
		snprintf(text, size, _("Up to %u waited at once: post so many before the peer sends."), qp->most_waiting);
	else if (peer->most_when_dry >= peer->max_recv_wr)
		snprintf(
			text, size,
			_("That queue was full with the %u receives that it was made for: it is too small; %u would have sufficed."),
			peer->max_recv_wr, peer->max_recv_wr + qp->most_waiting);
	else
		snprintf(
			text, size,
			_("That queue was made for %u receives and had %u at most: its depth is not the problem. Post them before the "
			  "peer sends; up to %u waited at once."),
			peer->max_recv_wr, peer->most_posted, qp->most_waiting);
}

static void advise_receives(struct advice *advice, const struct watch_qp *qp, uint32_t qpn)
{
	const struct watch_qp *peer = find_anywhere(advice->process, qp->peer_qpn);
	char waits[SENTENCE], late[SENTENCE], depth[SENTENCE];

	if (!qp->waits)
		return;
	snprintf(waits, sizeof(waits),
		 _("QP 0x%x: its requests found no receive at QP 0x%x, and waited for one (times: %llu; in all: %.3f ms)."), qpn,
		 qp->peer_qpn, (count)qp->waits, (double)qp->waited / 1e6);
	describe_lateness(qp, late, sizeof(late));
	describe_depth(qp, peer, depth, sizeof(depth));
	say(advice, "%s%s%s %s", waits, *late ? " " : "", late, depth);
}

/* Most of its receives that were used at once. */
static uint32_t most_used(const struct advice *advice, const struct watch_qp *qp)
{
	const struct seg_qp *now = living(advice->process->seg, qp->qpn);
	uint64_t head = now ? atomic_load(&now->rq.head) : 0,
		 tail = now ? atomic_load(&now->rq.tail) : 0;
	uint64_t available = tail > head ? tail - head : 0;
	uint32_t used =
		now && qp->most_posted > available ? (uint32_t)(qp->most_posted - available) : 0;

	return used > qp->most_used ? used : qp->most_used;
}

/* One queue for all, of as many receives as were used at once, if all of them are used most at the same time. */
static void advise_sharing(struct advice *advice)
{
	uint64_t posted = 0, used = 0;
	unsigned queues = 0;

	for (unsigned i = 0; i < WATCH_QPS; i++) {
		const struct watch_qp *qp = &advice->process->watch->qps[i];

		if (!qp->qpn || !qp->most_posted)
			continue;
		queues++;
		posted += qp->most_posted * qp->room;
		used += most_used(advice, qp) * qp->room;
	}
	if (queues >= QPS_MATTER && used && posted - used >= BYTES_MATTER && posted >= 2 * used)
		say(advice,
		    _("%u queue pairs had receives of %llu bytes posted, and at most %llu bytes of them in use. A shared receive queue "
		      "(ibv_create_srq) would save %llu bytes."),
		    queues, (count)posted, (count)used, (count)(posted - used));
}

/* ---- Completion queues ---- */

static void advise_depth(struct advice *advice, const struct watch_cq *cq)
{
	uint32_t index = cq->name - 1;
	uint32_t high = cq->ended ? cq->high : atomic_load(&advice->process->seg->cqs[index].high);
	uint64_t wasted = cq->cqe > cq->most_fed ?
				  (uint64_t)(cq->cqe - cq->most_fed) * sizeof(struct seg_cq_entry) :
				  0;

	if (cq->has_srq || !cq->most_fed)
		return;
	if (cq->cqe < cq->most_fed && cq->cqe >= ENTRIES_MATTER && high >= cq->cqe - cq->cqe / 4)
		say(advice,
		    _("CQ %u: up to %u completions waited in it, and it was created for %u: it is polled too seldom, or too small. The "
		      "queues that complete in it can bring %u, which is its safe depth."),
		    index, high, cq->cqe, cq->most_fed);
	if (wasted >= BYTES_MATTER && cq->cqe >= 2 * cq->most_fed)
		say(advice,
		    _("CQ %u: it was created for %u completions. At most %u waited in it, and the queues that complete in it can bring "
		      "no more than %u: above that %llu bytes are wasted (of 16 here; most cards take 64 for each)."),
		    index, cq->cqe, high, cq->most_fed, (count)wasted);
}

/* ---- Other cards ---- */

/* Who asked for exactly what the device has, has asked the device. */
static void add_limit(char *text, size_t size, const char *what, uint32_t asked, uint32_t limit,
		      uint32_t ours)
{
	size_t length = strlen(text);

	if (asked > limit && asked != ours)
		snprintf(text + length, size - length, "%s%s %u > %u", length ? ", " : "", what,
			 asked, limit);
}

static void advise_porting(struct advice *advice)
{
	const struct watch_asked *asked = &advice->process->watch->asked;
	const struct nic_limits *nic, *own = nic_limits();

	for (unsigned i = 0; (nic = nic_profile(i)); i++) {
		char text[512] = "";

		add_limit(text, sizeof(text), "max_send_wr", asked->send_wr, nic->max_qp_wr,
			  own->max_qp_wr);
		add_limit(text, sizeof(text), "max_recv_wr", asked->recv_wr, nic->max_qp_wr,
			  own->max_qp_wr);
		add_limit(text, sizeof(text), "max_send_sge", asked->send_sge, nic->max_sge,
			  own->max_sge);
		add_limit(text, sizeof(text), "max_recv_sge", asked->recv_sge, nic->max_sge,
			  own->max_sge);
		add_limit(text, sizeof(text), "max_inline_data", asked->inline_bytes,
			  nic->max_inline, own->max_inline);
		add_limit(text, sizeof(text), "max_rd_atomic", asked->rd_atomic,
			  nic->max_init_rd_atomic, own->max_init_rd_atomic);
		add_limit(text, sizeof(text), "cqe", asked->cqe, nic->max_cqe, own->max_cqe);
		add_limit(text, sizeof(text), "SRQ", asked->srqs, nic->max_srq, own->max_srq);
		add_limit(text, sizeof(text), "atomics", asked->atomics, nic->atomics, UINT32_MAX);
		if (*text)
			say(advice,
			    _("It would fail on a card as %s: %s (uroce run --profile=%s tries that)."),
			    nic->name, text, nic->name);
	}
}

void explain_advise(const struct advised *process, void (*tell)(void *arg, const char *line), void *arg)
{
	const struct watch *watch = process->watch;
	struct advice advice = { .process = process, .tell = tell, .arg = arg };

	for (unsigned i = 0; i < WATCH_QPS; i++) {
		const struct watch_qp *qp = &watch->qps[i];
		uint32_t qpn = qp->qpn;

		if (!qpn)
			continue;
		advise_posting(&advice, qp, qpn);
		advise_receives(&advice, qp, qpn);
	}
	advise_sharing(&advice);
	for (unsigned i = 0; i < WATCH_CQS; i++)
		if (watch->cqs[i].name && watch->cqs[i].name <= NIC_MAX_CQ)
			advise_depth(&advice, &watch->cqs[i]);
	advise_porting(&advice);
}
