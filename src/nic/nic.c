/* SPDX-License-Identifier: MIT */
/*
 * The process's NIC: made for the first context, given up with the last, orphaned in a forked
 * child.
 */
#include "nic/nic.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "cm/engine.h"
#include "local/attach.h"
#include "nic/addresses.h"
#include "nic/buffers.h"
#include "nic/descriptor.h"
#include "nic/helper.h"
#include "nic/keep_errno.h"
#include "nic/life.h"
#include "nic/lock.h"
#include "nic/observed.h"
#include "nic/qp.h"
#include "nic/share.h"
#include "nic/transport.h"
#include "nic/visit.h"
#include "observe/report.h"
#include "observe/watch.h"
#include "observe/witness.h"
#include "roce/wire.h"

static pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER; /* the process's NIC lock */
static struct nic *the_nic;

uint64_t nic_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t nic_wall_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void nic_ring_doorbell(struct nic *nic)
{
	uint64_t one = 1;

	if (!descriptor_is_ours(nic->doorbell))
		return;
	/* Fails only past 2^64 - 2 rings, with the helper awake anyway. */
	if (write(nic->doorbell, &one, sizeof(one)) < 0)
		return;
}

uint32_t nic_new_pd(struct nic *nic)
{
	return atomic_fetch_add(&nic->next_pd, 1) + 1;
}

/* Not of the thread that opens the device, which may have a name of its own. */
static void name_process(char name[16])
{
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? -1 : read(fd, name, 15);

	if (fd >= 0)
		close(fd);
	if (bytes > 0)
		name[strcspn(name, "\n")] = '\0';
	else
		prctl(PR_GET_NAME, name);
}

/* Whose it is. */
static void begin_header(struct seg_header *hdr, uint64_t size)
{
	hdr->magic = NIC_MAGIC;
	hdr->version = NIC_LAYOUT_VERSION;
	hdr->size = size;
	hdr->pid = (uint32_t)getpid();
	hdr->uid = geteuid();
	name_process(hdr->comm);
}

/* ---- Forked children ---- */

/* What a child records of the objects that it inherited: in a segment of its own, which is only there to be shown to a witness. */
static _Atomic(struct nic_segment *) orphanage;

static struct nic_segment *make_orphanage(void)
{
	struct nic_segment *seg = NULL;
	uint64_t size;
	int fd;

	if (!witness_is_there() || segment_create(&seg, &fd, &size))
		return NULL;
	if (segment_commit(seg, fd, seg, offsetof(struct nic_segment, guard))) {
		segment_destroy(seg, fd, size);
		return NULL;
	}
	begin_header(&seg->hdr, size);
	witness_show(fd);
	descriptor_close(fd);
	return seg;
}

struct cause_ring *nic_orphan_causes(void)
{
	KEEP_ERRNO;
	struct nic_segment *seg = atomic_load(&orphanage);

	if (!seg) {
		pthread_mutex_lock(&the_lock);
		seg = atomic_load(&orphanage);
		if (!seg) {
			seg = make_orphanage();
			atomic_store(&orphanage, seg);
		}
		pthread_mutex_unlock(&the_lock);
	}
	return seg ? &seg->causes : NULL;
}

/* In the parent, around fork: the child's copy of these structures is whole. */
static void before_fork(void)
{
	pthread_mutex_lock(&the_lock);
	if (the_nic) {
		cm_before_fork(the_nic);
		share_before_fork(the_nic);
		attach_lock(the_nic);
	}
}

static void after_fork_in_parent(void)
{
	if (the_nic) {
		attach_unlock(the_nic);
		share_after_fork_in_parent(the_nic);
		cm_after_fork_in_parent(the_nic);
	}
	pthread_mutex_unlock(&the_lock);
}

/* The segment is not mapped here (MADV_DONTFORK), the helper does not run, the life lock is the
 * parent's. Our copies of its descriptors must go: they would keep its slots bound and its
 * connections open after its death. */
static void after_fork_in_child(void)
{
	atomic_store(&orphanage, NULL); /* not mapped here either */
	if (the_nic) {
		observed_stop(the_nic); /* first: its ring is not mapped here either */
		atomic_store(&the_nic->orphan, true);
		watch_stop();
		buffers_after_fork();
		share_after_fork_in_child(the_nic);
		cm_stop(the_nic);
		wire_stop(the_nic);
		addresses_stop(the_nic);
		attach_stop(the_nic);
		descriptor_close(the_nic->epoll);
		descriptor_close(the_nic->doorbell);
		descriptor_close(the_nic->seg_fd);
		the_nic = NULL; /* handles still point to it: it stays */
	}
	pthread_mutex_init(&the_lock, NULL);
}

static void install_fork_handlers(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static __attribute__((destructor)) void at_exit(void)
{
	struct nic *nic = the_nic;

	if (nic && watch_now())
		buffers_end(nic);
}

static void introduce(struct nic *nic, uint64_t size)
{
	struct seg_header *hdr = &nic->seg->hdr;
	uint64_t random[2] = { 0 };

	if (getrandom(random, sizeof(random), 0) !=
	    sizeof(random)) { /* refused: unlike others all the same */
		random[0] = nic_wall_clock() ^ (uint64_t)getpid() << 40;
		random[1] = random[0] * 0x9e3779b97f4a7c15u;
	}
	begin_header(hdr, size);
	hdr->instance = random[0] | 1;
	hdr->self_va = (uint64_t)(uintptr_t)nic->seg;
	hdr->key_mask = random[1] & (NIC_MAX_MR - 1);
	hdr->wire_only = transport_is_wire_only();
	hdr->membarrier = visit_start();
	hdr->qps_va = (uintptr_t)nic->qps.objects;
	hdr->cqs_va = (uintptr_t)nic->cqs.objects;
	hdr->qp_bytes = sizeof(struct nic_qp);
	hdr->cq_bytes = sizeof(struct nic_cq);
	hdr->swqe_bytes = sizeof(struct nic_swqe);
	witness_show(nic->seg_fd);
}

/* Without room for it there are no stacks. */
static void start_watch(struct nic *nic)
{
	uint64_t offset;

	if (!report_tells() && !witness_is_there())
		return;
	offset = arena_alloc(&nic->arena, sizeof(struct watch));
	if (!offset)
		return;
	buffers_start();
	watch_start(seg_at(nic->seg, offset));
	atomic_store_explicit(&nic->seg->hdr.watch, offset, memory_order_release);
}

/* Whoever may not use it would not fail at once, but wait for ever later. 0, or errno. */
static int try_doorbell(struct nic *nic)
{
	uint64_t rings = 1;

	if (write(nic->doorbell, &rings, sizeof(rings)) != sizeof(rings) ||
	    read(nic->doorbell, &rings, sizeof(rings)) != sizeof(rings))
		return errno;
	return 0;
}

static void destroy_tables(struct nic *nic)
{
	table_destroy(&nic->qps);
	table_destroy(&nic->cqs);
	table_destroy(&nic->srqs);
	table_destroy(&nic->mrs);
}

static struct nic *make(const char **why, int *error)
{
	struct nic *nic = calloc(1, sizeof(*nic));
	uint64_t size;

	*why = "out of memory";
	*error = ENOMEM;
	if (!nic || table_init(&nic->qps, NIC_MAX_QP) || table_init(&nic->cqs, NIC_MAX_CQ) ||
	    table_init(&nic->srqs, NIC_MAX_SRQ) || table_init(&nic->mrs, NIC_MAX_MR))
		goto no_tables;
	pthread_mutex_init(&nic->visitors_lock, NULL);
	pthread_mutex_init(&nic->assist_lock, NULL);
	pthread_mutex_init(&nic->atomic_lock, NULL);
	pthread_mutex_init(&nic->mw_lock, NULL);
	pthread_mutex_init(&nic->lock, NULL);
	list_init(&nic->visitors);
	list_init(&nic->deferred);
	*why = "no shared memory (memfd_create, mmap)";
	*error = segment_create(&nic->seg, &nic->seg_fd, &size);
	if (*error)
		goto no_tables;
	*error = segment_commit(nic->seg, nic->seg_fd, nic->seg, offsetof(struct nic_segment, guard));
	if (*error)
		goto no_descriptors;
	introduce(nic, size);
	arena_init(&nic->arena, nic->seg, nic->seg_fd, size);
	start_watch(nic);
	*why = "no file locks (fcntl F_SETLK)";
	*error = life_begin(nic->seg_fd);
	if (*error)
		goto no_descriptors;
	*why = "no descriptors (eventfd, epoll_create)";
	nic->doorbell = descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	nic->epoll = descriptor_keep(epoll_create1(EPOLL_CLOEXEC));
	*error = errno;
	if (nic->doorbell < 0 || nic->epoll < 0)
		goto no_attach;
	*error = try_doorbell(nic);
	if (*error)
		goto no_attach;
	share_start(nic);
	*why = "out of memory";
	*error = addresses_start(nic);
	if (!*error)
		*error = wire_start(nic);
	if (!*error)
		*error = cm_start(nic);
	if (*error)
		goto no_attach;
	*why = "no slot (abstract unix sockets)";
	*error = attach_start(nic);
	if (*error)
		goto no_attach;
	observed_start(nic);
	*why = "no thread";
	*error = helper_start(nic);
	if (*error)
		goto no_helper;
	return nic;

no_helper:
	observed_stop(nic);
	attach_stop(nic);
no_attach:
	cm_stop(nic);
	wire_stop(nic);
	addresses_stop(nic);
	share_stop(nic);
	if (nic->doorbell >= 0)
		descriptor_close(nic->doorbell);
	if (nic->epoll >= 0)
		descriptor_close(nic->epoll);
no_descriptors:
	watch_stop();
	segment_destroy(nic->seg, nic->seg_fd, size);
no_tables:
	if (nic)
		destroy_tables(nic);
	free(nic);
	return NULL;
}

struct nic *nic_open(const char **why)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int before = errno, error = 0;

	pthread_once(&once, install_fork_handlers);
	nic_lock_start();
	pthread_mutex_lock(&the_lock);
	if (!the_nic)
		the_nic = make(why, &error);
	struct nic *nic = the_nic;

	if (nic)
		nic->users++;
	pthread_mutex_unlock(&the_lock);
	errno = nic ? before : error;
	return nic;
}

void nic_name_device(struct nic *nic, const char *name)
{
	char *devices = nic->seg->hdr.devices;
	size_t more = strlen(name), length;

	pthread_mutex_lock(&the_lock);
	length = strlen(devices);
	for (const char *at = devices; *at; at += strcspn(at, "+"), at += *at == '+') {
		if (strcspn(at, "+") == more && !strncmp(at, name, more))
			goto end;
	}
	if (length + 1 + more >= NIC_DEVICES_BYTES)
		goto end;
	/* Who reads meanwhile sees a string that ends too early, at worst. */
	memcpy(devices + length + !!length, name, more);
	if (length)
		devices[length] = '+';
end:
	pthread_mutex_unlock(&the_lock);
}

void nic_close(struct nic *nic)
{
	KEEP_ERRNO;
	pthread_mutex_lock(&the_lock);
	if (--nic->users || nic_is_orphan(nic)) {
		pthread_mutex_unlock(&the_lock);
		return;
	}
	the_nic = NULL;
	if (!helper_stop(nic)) { /* it sleeps for ever on what it still uses */
		pthread_mutex_unlock(&the_lock);
		return;
	}
	wire_drain(nic);
	observed_stop(nic);
	cm_stop(nic);
	share_stop(nic);
	wire_stop(nic);
	addresses_stop(nic);
	attach_stop(nic);
	watch_stop();
	arena_destroy(&nic->arena);
	descriptor_close(nic->doorbell);
	descriptor_close(nic->epoll);
	segment_destroy(nic->seg, nic->seg_fd, nic->seg->hdr.size);
	destroy_tables(nic);
	free(nic);
	pthread_mutex_unlock(&the_lock);
}
