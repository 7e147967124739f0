/* SPDX-License-Identifier: MIT */
/* The helper thread. See helper.h. */
#include "nic/helper.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "cm/engine.h"
#include "local/attach.h"
#include "nic/attention.h"
#include "nic/descriptor.h"
#include "nic/own_thread.h"
#include "nic/requester.h"
#include "nic/spin.h"
#include "roce/wire.h"

#define EVENTS	   32
#define STOP_WAITS 20
#define STOP_WAIT  100000000ull /* ns */

/* Waits until `until` (CLOCK_MONOTONIC ns). */
static int wait_for_events(int epoll, struct epoll_event *events, uint64_t until)
{
	static bool coarse; /* only the helper's threads come here, and they learn the same */
	struct timespec timeout, *limit = NULL;
	uint64_t now = nic_now();
	int n = -1;

	if (until != UINT64_MAX) {
		uint64_t left = until > now ? until - now : 0;

		timeout = (struct timespec){ .tv_sec = (time_t)(left / 1000000000u),
					     .tv_nsec = (long)(left % 1000000000u) };
		limit = &timeout;
	}
	if (!coarse) {
		n = epoll_pwait2(epoll, events, EVENTS, limit, NULL);
		coarse =
			n < 0 &&
			(errno == ENOSYS ||
			 errno == EPERM); /* before Linux 5.11, or a filter that does not know it */
	}
	if (coarse)
		n = epoll_wait(
			epoll, events, EVENTS,
			limit ? (int)(limit->tv_sec * 1000 + (limit->tv_nsec + 999999) / 1000000) :
				-1);
	return n;
}

static void *helper(void *arg)
{
	struct nic *nic = arg;
	struct epoll_event events[EVENTS];

	atomic_store(&nic->helper_tid, gettid());
	while (!atomic_load(&nic->helper_stop)) {
		/* Whoever defers work after we looked at the list finds 0 here, or the time that we
		 * go to sleep until, and rings if its work is due before that. */
		atomic_store(&nic->helper_wakes_at, 0);
		uint64_t until = requester_run_due(nic), other = attach_bury(nic), wire = wire_help(nic);
		uint64_t cm = cm_help(nic);

		if (other < until)
			until = other;
		if (wire < until)
			until = wire;
		if (cm < until)
			until = cm;
		atomic_store(&nic->helper_wakes_at, until);
		/* Deferred between our look and this store: its due time was compared with 0, so
		 * look again. */
		uint64_t again = requester_next_due(nic);

		if (again < until)
			continue;

		/* Somebody closed our descriptors behind our back: nothing can come any more, and what would come there now
		 * is the program's. */
		if (!descriptor_is_ours(nic->epoll)) {
			cause_record(nic_causes(nic), &(struct cause){ .code = CAUSE_DESCRIPTORS_CLOSED, .error = EBADF });
			break;
		}

		int n = wait_for_events(nic->epoll, events, until);
		bool attention = false;

		if (n < 0 && errno != EINTR)
			break;

		atomic_load(&nic->sources); /* see helper_watch() */
		for (int i = 0; i < n; i++) {
			uint64_t rings;

			struct helper_source *source = events[i].data.ptr;

			if (source)
				source->ready(nic, source);
			else
				attention = descriptor_is_ours(nic->doorbell) && read(nic->doorbell, &rings, sizeof(rings)) ==
					    sizeof(rings);
		}
		if (attention)
			attention_serve(nic, false);
	}
	return NULL;
}

static int control(struct nic *nic, int operation, int fd, uint32_t events, struct helper_source *source)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	if (!descriptor_is_ours(nic->epoll))
		return EBADF;
	return epoll_ctl(nic->epoll, operation, fd, &event) ? errno : 0;
}

int helper_watch(struct nic *nic, int fd, struct helper_source *source)
{
	/* What the source is goes to the helper through the kernel; the language wants it said. */
	atomic_fetch_add(&nic->sources, 1);
	return control(nic, EPOLL_CTL_ADD, fd, EPOLLIN, source);
}

void helper_listen(struct nic *nic, int fd, struct helper_source *source, bool listen)
{
	control(nic, EPOLL_CTL_MOD, fd, listen ? EPOLLIN : 0, source);
}

void helper_ignore(struct nic *nic, int fd)
{
	control(nic, EPOLL_CTL_DEL, fd, 0, NULL);
}

int helper_start(struct nic *nic)
{
	int error = helper_watch(nic, nic->doorbell, NULL);

	if (error)
		return error;
	error = own_thread_start(&nic->helper, false, helper, nic);
	if (error)
		return error;
	pthread_setname_np(nic->helper, "uroce");
	/* Who looks at the process's threads must know it from others. */
	for (unsigned looks = 0; !atomic_load(&nic->helper_tid); looks++)
		spin_relax(looks);
	return 0;
}

bool helper_stop(struct nic *nic)
{
	int error = ETIMEDOUT;

	atomic_store(&nic->helper_stop, true);
	nic_ring_doorbell(nic);
	/* Many short waits: one that we are stopped in counts little. */
	for (int i = 0; i < STOP_WAITS && error == ETIMEDOUT; i++) {
		uint64_t until = nic_wall_clock() + STOP_WAIT;
		struct timespec limit = { .tv_sec = (time_t)(until / 1000000000u),
					  .tv_nsec = (long)(until % 1000000000u) };

		error = pthread_timedjoin_np(nic->helper, NULL, &limit);
	}
	return !error;
}
