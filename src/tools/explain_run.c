/* SPDX-License-Identifier: MIT */
/*
 * Running a program to tell about it. We stay its parent and witness: every process that opens a device gives us a descriptor of
 * its segment (observe/witness.h), so that what is in it can be told when it has ended, however it ended.
 */
#include "tools/explain.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "observe/kept.h"
#include "observe/runtime.h"
#include "observe/watch.h"
#include "observe/witness.h"
#include "tools/child.h"
#include "tools/stacks.h"
#include "tools/tools.h"
#include "tools/witnessed.h"

#define SEGMENTS  256
#define FORGOTTEN 1000000000u /* ns */
#define LIVES	 64 /* queue pairs of a process that are told of */

/* The segments that we were shown. */
static struct {
	int fds[SEGMENTS];
	struct stacks *stacks[SEGMENTS]; /* read when they are first wanted */
	uint32_t pids[SEGMENTS];	 /* 0: not known */
	struct cause *causes[SEGMENTS];	 /* those that are still there, of code CAUSE_NONE where the other end tells them */
	unsigned recorded[SEGMENTS];	 /* how many */
	unsigned count, missed;
} segments;

/* ---- Causes ---- */

/* Where both ends were seen, who made the request tells of it. */
static void join_with(unsigned place, struct cause *message)
{
	for (unsigned i = 0; i < segments.count; i++) {
		for (unsigned c = 0; c < segments.recorded[i]; c++) {
			if (!cause_join(&segments.causes[i][c], message))
				continue;
			segments.causes[i][c].peer_pid = (int32_t)segments.pids[place];
			message->code = CAUSE_NONE;
			return;
		}
	}
}

static void join_all(void)
{
	for (unsigned i = 0; i < segments.count; i++)
		for (unsigned c = 0; c < segments.recorded[i]; c++)
			if (segments.causes[i][c].role == CAUSE_OF_OTHER && segments.causes[i][c].peer_qpn)
				join_with(i, &segments.causes[i][c]);
}

/* Kinds that come often are counted in the segment. Of one code so many are told apart as there. */
static unsigned sort_out(const struct nic_segment *seg, const struct cause *causes, unsigned count, struct told *told)
{
	unsigned kinds = 0, i, same;

	for (unsigned c = 0; c < count; c++) {
		if (causes[c].code == CAUSE_NONE)
			continue;
		for (i = same = 0; i < kinds && cause_kind(told[i].cause) != cause_kind(&causes[c]); i++)
			same += told[i].cause->code == causes[c].code;
		if (i == kinds && same == CAUSE_OF_ONE_CODE)
			continue;
		if (i == kinds)
			told[kinds++] = (struct told){ .cause = &causes[c] };
		told[i].count++;
	}
	for (i = 0; i < kinds; i++) {
		uint64_t times = witnessed_times(seg, cause_kind(told[i].cause));

		if (times > told[i].count)
			told[i].count = times;
	}
	return kinds;
}

/* Those of codes that have too many. */
static void tell_others(const struct nic_segment *seg)
{
	for (uint32_t code = 0; code < CAUSE_CODES; code++) {
		unsigned long long others = atomic_load(&seg->causes.kinds.others[code]);

		if (!others)
			continue;
		fprintf(stderr, "  %s (", cause_name(code) ? cause_name(code) : "?");
		fprintf(stderr, _("cause %u"), code);
		fprintf(stderr, "): ");
		fprintf(stderr, ngettext("%llu more, of another object", "%llu more, of other objects", others), others);
		fprintf(stderr, "\n");
	}
}

static void keep(const struct nic_segment *seg, const struct told *told, unsigned kinds)
{
	int dir = runtime_open();

	for (unsigned i = 0; dir >= 0 && i < kinds; i++)
		kept_add(runtime_directory(), (pid_t)seg->hdr.pid, seg->hdr.comm, told[i].cause);
	if (dir >= 0)
		close(dir);
}

/* Of the newest segment of a process that was shown to us; NULL: none. */
static struct stacks *stacks_of(uint32_t pid)
{
	unsigned i = segments.count;

	while (i > 0 && segments.pids[i - 1] != pid)
		i--;
	return i > 0 ? segments.stacks[i - 1] : NULL;
}

/* CQs that were armed over completions at the end, and not polled for long: a program that waits for a descriptor with poll(2) waits
 * where we do not see it. Returns how many causes were added. */
static unsigned find_forgotten(const struct nic_segment *seg, const struct watch *watch, struct cause *causes)
{
	struct timespec now, day;
	unsigned added = 0;

	clock_gettime(CLOCK_MONOTONIC, &now);
	clock_gettime(CLOCK_REALTIME, &day);
	for (unsigned i = 0; i < WATCH_CQS; i++) {
		const struct watch_cq *cq = &watch->cqs[i];
		uint32_t name = atomic_load(&cq->name), over = atomic_load(&cq->armed_over), arm;
		uint64_t since = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - cq->armed_at;

		if (!name || name > NIC_MAX_CQ || !over || cq->ended || since < FORGOTTEN)
			continue;
		arm = atomic_load(&seg->cqs[name - 1].arm);
		if (arm == NIC_ARM_ANY || arm == NIC_ARM_SOLICITED)
			causes[added++] = (struct cause){
				.time = (uint64_t)day.tv_sec * 1000000000u + (uint64_t)day.tv_nsec - since,
				.code = CAUSE_CQ_EVENT_LOST,
				.qpn = name - 1,
				.value = over,
				.limit = since,
				.stacks[CAUSE_STACK_CQ] = cq->created,
			};
	}
	return added;
}

/* Room for those that are found at the end, too. */
static void read_causes(unsigned place, const struct nic_segment *seg)
{
	struct cause *causes = calloc(WITNESSED_CAUSES, sizeof(*causes)), *exact;
	unsigned count = 0;

	if (causes)
		count = witnessed_causes(seg, causes);
	exact = realloc(causes, (count + WATCH_CQS) * sizeof(*causes));
	segments.causes[place] = exact;
	segments.recorded[place] = exact ? count : 0;
	if (!exact)
		free(causes);
}

static void tell_causes(unsigned place, const struct nic_segment *seg)
{
	struct stacks *stacks = segments.stacks[place];
	struct cause *causes = segments.causes[place];
	unsigned count = segments.recorded[place], kept = count, kinds;
	struct told *told = calloc(count + WATCH_CQS, sizeof(*told));

	if (!causes || !told)
		goto out;
	if (stacks)
		count += find_forgotten(seg, stacks_watch(stacks), causes + count);
	kinds = sort_out(seg, causes, count, told);
	if (!kinds && kept)
		fprintf(stderr, _("%.16s (process %u): what failed here is told by the process at the other end.\n"), seg->hdr.comm,
			seg->hdr.pid);
	else if (!kinds)
		fprintf(stderr, _("%.16s (process %u): nothing failed.\n"), seg->hdr.comm, seg->hdr.pid);
	else
		fprintf(stderr, _("%.16s (process %u): this failed:\n"), seg->hdr.comm, seg->hdr.pid);
	for (unsigned i = 0; i < kinds; i++) {
		told[i].stacks[0] = stacks;
		told[i].stacks[1] = told[i].cause->peer_pid ? stacks_of((uint32_t)told[i].cause->peer_pid) : NULL;
		explain_tell(stderr, &told[i]);
	}
	tell_others(seg);
	keep(seg, told, kinds);
out:
	free(told);
}

/* ---- Stories ---- */

static const char *type_name(uint32_t type)
{
	return type == IBV_QPT_RC ? "RC" : type == IBV_QPT_UC ? "UC" : type == IBV_QPT_UD ? "UD" : "?";
}

/* Numbers of a queue pair that was not destroyed. */
static struct story count_living(const struct nic_segment *seg, uint32_t qpn)
{
	uint32_t count = atomic_load(&seg->hdr.slot_count);
	struct story story = { 0 };

	for (uint32_t i = 0; i < count && i < NIC_OWN_SLOTS; i++) {
		if (atomic_load(&seg->hdr.slots[i]) != qpn >> NIC_QPN_INDEX_BITS)
			continue;
		const struct seg_qp *qp = &seg->qps[(i << NIC_QPN_INDEX_BITS) | (qpn & ((1u << NIC_QPN_INDEX_BITS) - 1))];

		for (unsigned kind = 0; kind < NIC_KINDS; kind++) {
			story.requests += atomic_load(&qp->sent.requests[kind]);
			story.arrived += (uint32_t)atomic_load(&qp->received.requests[kind]);
		}
		story.bytes = atomic_load(&qp->sent.bytes);
		story.flushed = atomic_load(&qp->events.req_cqe_flush_error);
	}
	return story;
}

static void tell_counts(const struct story *s)
{
	fprintf(stderr, "    ");
	fprintf(stderr, _("requests carried out: %llu (%llu bytes); of the peer arrived: %u; flushed: %u"),
		(unsigned long long)s->requests, (unsigned long long)s->bytes, s->arrived, s->flushed);
	fprintf(stderr, "\n");
}

/* From a queue pair's creation to its end, or that of the records. */
static void tell_life(const struct nic_segment *seg, const struct story *stories, unsigned first, unsigned count)
{
	const struct story *s = &stories[first];
	uint32_t qpn = s->qpn;
	uint64_t began = s->time;

	fprintf(stderr, "  QP 0x%x (%s): ", qpn, type_name(s->type));
	fprintf(stderr, _("created"));
	for (unsigned i = first + 1; i < count; i++) {
		s = &stories[i];
		if (s->qpn != qpn)
			continue;
		if (s->kind == STORY_CREATED)
			break;
		fprintf(stderr, ", %s +%.3f ms", s->kind == STORY_DESTROYED ? _("destroyed") : explain_state(s->state),
			(double)(int64_t)(s->time - began) / 1e6);
		if (s->kind == STORY_STATE && s->state == IBV_QPS_RTR && s->peer_qpn)
			fprintf(stderr, " (-> QP 0x%x)", s->peer_qpn);
		if (s->kind == STORY_DESTROYED) {
			fprintf(stderr, "\n");
			tell_counts(s);
			return;
		}
	}
	fprintf(stderr, ", %s\n", _("not destroyed"));

	struct story living = count_living(seg, qpn);

	tell_counts(&living);
}

static void tell_stories(const struct nic_segment *seg)
{
	size_t records = sizeof(seg->stories.records) / sizeof(seg->stories.records[0]);
	struct story *stories = calloc(records, sizeof(*stories));
	unsigned lives = 0, count;

	if (!stories)
		return;
	count = witnessed_records(seg->stories.records, sizeof(*stories), records, atomic_load(&seg->stories.next), stories);
	for (unsigned i = 0; i < count; i++)
		if (stories[i].kind == STORY_CREATED && ++lives <= LIVES)
			tell_life(seg, stories, i, count);
	if (lives > LIVES)
		fprintf(stderr, _("  and %u more queue pairs\n"), lives - LIVES);
	free(stories);
}

static void look(unsigned i)
{
	const struct nic_segment *seg = witnessed_map(segments.fds[i]);

	if (!seg)
		return;
	segments.pids[i] = seg->hdr.pid;
	segments.stacks[i] = stacks_read(segments.fds[i], atomic_load(&seg->hdr.watch));
	read_causes(i, seg);
	munmap((void *)seg, WITNESSED_BYTES);
}

static void tell_advice(void *begun, const char *line)
{
	if (!*(bool *)begun)
		fprintf(stderr, "  %s\n", _("Advice, from what was seen:"));
	*(bool *)begun = true;
	fprintf(stderr, "    %s\n", line);
}

static void advise(unsigned place, const struct nic_segment *seg)
{
	const struct watch *all[SEGMENTS];
	bool begun = false;

	for (unsigned i = 0; i < segments.count; i++)
		all[i] = segments.stacks[i] ? stacks_watch(segments.stacks[i]) : NULL;
	if (all[place])
		explain_advise(&(struct advised){ seg, all[place], all, segments.count }, tell_advice, &begun);
}

static void tell(unsigned i)
{
	const struct nic_segment *seg = witnessed_map(segments.fds[i]);

	if (!seg) {
		fprintf(stderr, "%s\n", _("A process used another version of uroce: its causes cannot be told."));
		return;
	}
	tell_causes(i, seg);
	tell_stories(seg);
	advise(i, seg);
	munmap((void *)seg, WITNESSED_BYTES);
}

/* ---- Running ---- */

static int collect(void *witness)
{
	int fd;

	while ((fd = witness_next(*(int *)witness)) >= 0) {
		if (segments.count < SEGMENTS) {
			segments.fds[segments.count++] = fd;
		} else {
			segments.missed++;
			close(fd);
		}
	}
	return -1;
}

static void tell_signal(const char *program, int number)
{
	const char *name = sigabbrev_np(number);

	fprintf(stderr, _("%s: ended by signal %d (SIG%s, %s).\n"), program, number, name ? name : "RT", strsignal(number));
}

int explain_run(const char *name, char **argv)
{
	char address[64];
	int witness = witness_open(address), status;
	struct child child;

	if (witness < 0 || setenv(WITNESS_VARIABLE, address, 1) || setenv("UROCE_EXPLAIN", "off", 0)) {
		complain(name, "%s", strerror(errno));
		return STATUS_FAILED;
	}
	if (!child_start(&child, name, argv))
		return STATUS_FAILED;
	status = child_attend(&child, witness, collect, &witness);
	for (unsigned i = 0; i < segments.count; i++)
		look(i);
	join_all();
	for (unsigned i = 0; i < segments.count; i++)
		tell(i);
	for (unsigned i = 0; i < segments.count; i++)
		free(segments.causes[i]);
	for (unsigned i = 0; i < segments.count; i++)
		stacks_free(segments.stacks[i]);
	if (segments.missed)
		fprintf(stderr,
			ngettext("%u more process opened a device, and is not told of.\n",
				 "%u more processes opened a device, and are not told of.\n", segments.missed),
			segments.missed);
	if (WIFSIGNALED(status))
		tell_signal(argv[0], WTERMSIG(status));
	if (!segments.count && WIFEXITED(status) && WEXITSTATUS(status) < STATUS_FAILED)
		fprintf(stderr, _("%s: no device of uroce was opened.\n"), argv[0]);
	return child_end_as(status);
}
