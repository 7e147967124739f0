/* SPDX-License-Identifier: MIT */
/* The process's connection manager: made with its NIC, served by its helper, ended with it. See engine.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "cm/engine.h"
#include "nic/gid.h"
#include "nic/event.h"
#include "nic/keep_errno.h"
#include "nic/nic.h"
#include "nic/own_thread.h"
#include "observe/cause.h"

/* For who ends by exit: what is connected is told. Under its lock; it is freed after it was taken out. */
static struct cm *the_cm;
static pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER;

static void set_the_cm(struct cm *cm)
{
	pthread_mutex_lock(&the_lock);
	the_cm = cm;
	pthread_mutex_unlock(&the_lock);
}

/* ns: for how long exit waits for a lock that another thread may never give back */
#define EXIT_WAIT 100000000ull
/* Letters that find full sockets: how often, and after how many us, they are tried again */
#define EXIT_TRIES 50
#define EXIT_PAUSE 1000

struct cm *cm_make(void)
{
	struct cm *cm = calloc(1, sizeof(*cm));

	if (!cm)
		return NULL;
	pthread_mutex_init(&cm->lock, NULL);
	for (unsigned i = 0; i < CM_BUCKETS; i++) {
		list_init(&cm->by_comm[i]);
		list_init(&cm->by_remote[i]);
		list_init(&cm->by_qpn[i]);
	}
	list_init(&cm->listeners);
	list_init(&cm->channels);
	list_init(&cm->destroyed);
	list_init(&cm->inbox);
	list_init(&cm->outbox);
	list_init(&cm->outlets);
	list_init(&cm->names);
	list_init(&cm->dead_names);
	cm->wakes_at = 0;
	cm->send = courier_send;
	if (getrandom(&cm->next_id, sizeof(cm->next_id), 0) != sizeof(cm->next_id))
		cm->next_id = (uint32_t)nic_now();
	return cm;
}

static void free_letters(struct list *letters)
{
	list_for_each_safe(node, tmp, letters)
		free(list_entry(node, struct queued_letter, node));
	list_init(letters);
}

void cm_free(struct cm *cm)
{
	list_for_each_safe(node, tmp, &cm->destroyed)
		id_free(list_entry(node, struct cm_id, of_channel));
	free_letters(&cm->inbox);
	names_free(cm, false);
	courier_stop(cm, false);
	outlets_close(cm, false);
	pthread_mutex_destroy(&cm->lock);
	free(cm->heap);
	free(cm);
}

int cm_start(struct nic *nic)
{
	struct cm *cm = cm_make();

	if (!cm)
		return ENOMEM;
	cm->nic = nic;
	nic->cm = cm;
	set_the_cm(cm);
	return 0;
}

void cm_stop(struct nic *nic)
{
	struct cm *cm = nic->cm;

	if (!cm)
		return;
	if (nic_is_orphan(nic)) {
		the_cm = NULL;
		pthread_mutex_init(&the_lock, NULL);
		names_free(cm, true);
		courier_stop(cm, true);
		outlets_close(cm, true);
		pthread_mutex_init(&cm->lock, NULL);
		return;
	}
	set_the_cm(NULL);
	nic->cm = NULL;
	cm_free(cm);
}

void cm_before_fork(struct nic *nic)
{
	pthread_mutex_lock(&nic->cm->lock);
}

void cm_after_fork_in_parent(struct nic *nic)
{
	pthread_mutex_unlock(&nic->cm->lock);
}

void cm_record_address(struct cm *cm, const struct cm_id *id, const union cm_address *address, enum cause_code code, int error,
		       uint64_t value)
{
	struct cause c = { .code = code, .error = error, .value = value };

	if (!cm->nic || code == CAUSE_NONE)
		return;
	if (id) {
		c.qpn = id->local_qpn;
		c.peer_qpn = id->remote_qpn;
	}
	if (address && address->any.sa_family) {
		union ibv_gid gid = address_gid(address);

		memcpy(c.address, gid.raw, sizeof(c.address));
		c.port = address_port(address);
	}
	cause_record(nic_causes(cm->nic), &c);
}

void cm_record(struct cm *cm, const struct cm_id *id, enum cause_code code, int error, uint64_t value)
{
	cm_record_address(cm, id, !id ? NULL : id->dst.any.sa_family ? &id->dst : &id->src, code, error, value);
}

static uint64_t next_due(const struct cm *cm)
{
	uint64_t timer = cm->heap_count ? cm->heap[0]->due : UINT64_MAX, again = courier_next(cm);

	return timer < again ? timer : again;
}

void cm_settle(struct cm *cm)
{
	while (!list_empty(&cm->inbox)) {
		struct queued_letter *queued = list_entry(cm->inbox.next, struct queued_letter, node);

		list_del(&queued->node);
		conn_take(cm, &queued->letter);
		free(queued);
	}
	/* The helper sleeps for longer than it now may. */
	if (cm->nic && next_due(cm) < cm->wakes_at) {
		cm->wakes_at = 0;
		nic_ring_doorbell(cm->nic);
	}
}

static void bury_peers(struct cm *cm)
{
	uint64_t dead[NIC_SLOTS / 64];

	if (!atomic_exchange(&cm->any_dead, false))
		return;
	for (unsigned i = 0; i < NIC_SLOTS / 64; i++)
		dead[i] = atomic_exchange(&cm->dead[i], 0);
	for (unsigned i = 0; i < CM_BUCKETS; i++) {
		list_for_each_safe(node, tmp, &cm->by_comm[i]) {
			struct cm_id *id = list_entry(node, struct cm_id, of_comm);
			uint32_t slot = id->remote_id >> CM_ID_BITS;

			if (!id->wire && id->remote_id && dead[slot / 64] >> slot % 64 & 1)
				conn_peer_died(id);
		}
	}
	if (cm->courier)
		will_seek_heir(cm);
}

/* Whether somebody still has to be told. */
static bool is_waiting(const struct cm *cm)
{
	list_for_each(node, &cm->destroyed) {
		if (list_entry(node, struct cm_id, of_channel)->state == CONN_DREQ_SENT)
			return true;
	}
	return !list_empty(&cm->outbox);
}

static void *close_nic(void *nic)
{
	nic_close(nic);
	return NULL;
}

/* What closed channels left is done. By a thread of its own: the helper cannot wait for its own end. */
static void end_parking(struct cm *cm)
{
	pthread_t thread;

	if (!cm->parked || is_waiting(cm))
		return;
	if (!own_thread_start(&thread, true, close_nic, cm->nic))
		cm->parked = false;
}

uint64_t cm_run(struct cm *cm)
{
	uint64_t now = nic_now();
	struct cm_id *id;

	names_bury(cm);
	bury_peers(cm);
	while ((id = timer_due(cm, now)))
		conn_timer(id);
	cm_settle(cm);
	courier_run(cm);
	cm_settle(cm);
	end_parking(cm);
	return next_due(cm);
}

uint64_t cm_help(struct nic *nic)
{
	struct cm *cm = nic->cm;
	uint64_t next;

	pthread_mutex_lock(&cm->lock);
	cm->wakes_at = 0; /* who sets a timer meanwhile need not ring */
	next = cm_run(cm);
	cm->wakes_at = next;
	pthread_mutex_unlock(&cm->lock);
	return next;
}

void cm_peer_died(struct nic *nic, uint32_t slot)
{
	atomic_fetch_or(&nic->cm->dead[slot / 64], 1ull << slot % 64);
	atomic_store(&nic->cm->any_dead, true);
	nic_ring_doorbell(nic);
}

int cm_open_channel(struct cm_channel **channel, int *fd)
{
	KEEP_ERRNO;
	const char *why;
	struct nic *nic = nic_open(&why);
	int error = 0;

	if (!nic)
		return errno;
	pthread_mutex_lock(&nic->cm->lock);
	error = courier_start(nic->cm);
	*channel = error ? NULL : channel_make(nic->cm);
	if (!*channel && !error)
		error = errno;
	pthread_mutex_unlock(&nic->cm->lock);
	if (error) {
		nic_close(nic);
		return error;
	}
	(*channel)->nic = nic;
	*fd = (*channel)->fd;
	return 0;
}

void cm_close_channel(struct cm_channel *channel)
{
	KEEP_ERRNO;
	struct nic *nic = channel->nic;
	struct cm *cm = channel->cm;
	bool parked;

	if (nic_is_orphan(nic)) {
		nic_tokens_close(channel->fd);
		free(channel);
		nic_close(nic);
		return;
	}
	pthread_mutex_lock(&cm->lock);
	while (!list_empty(&channel->ids)) {
		unsigned read;

		id_destroy(list_entry(channel->ids.next, struct cm_id, of_channel), &read);
	}
	channel_free(channel);
	cm_settle(cm);
	parked = is_waiting(cm) && !cm->parked;
	if (parked)
		cm->parked = true;
	pthread_mutex_unlock(&cm->lock);
	if (!parked)
		nic_close(nic);
}

static void leave_all(struct cm *cm)
{
	list_for_each(channel_node, &cm->channels) {
		struct cm_channel *channel = list_entry(channel_node, struct cm_channel, of_cm);

		list_for_each_safe(node, tmp, &channel->ids) {
			struct cm_id *id = list_entry(node, struct cm_id, of_channel);

			if (id->phase != CM_CONNECTING && id->phase != CM_DISCONNECTED)
				continue;
			/* To a process of this host it must not arrive at our own port, where nobody will read it. */
			if (gid_is_local(&id->dgid))
				id->wire = false;
			conn_abandon(id);
		}
	}
}

static void tell_all(struct cm *cm)
{
	leave_all(cm);
	for (int i = 0; i < EXIT_TRIES && !list_empty(&cm->outbox); i++) {
		usleep(EXIT_PAUSE);
		courier_run(cm);
	}
}

/* exit(3): what a kernel does that closes the process's files. Threads may still run, and may hold a lock for ever. */
static __attribute__((destructor)) void at_exit(void)
{
	uint64_t until = nic_wall_clock() + EXIT_WAIT;
	struct timespec limit = { .tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u) };

	if (pthread_mutex_timedlock(&the_lock, &limit))
		return;
	if (the_cm && !pthread_mutex_timedlock(&the_cm->lock, &limit)) {
		tell_all(the_cm);
		pthread_mutex_unlock(&the_cm->lock);
	}
	pthread_mutex_unlock(&the_lock);
}
