/* SPDX-License-Identifier: MIT */
/* Attaching. See attach.h; the order of steps and what a crash in between leaves:
 * docs/protocols.md. */
#include "local/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cm/engine.h"
#include "local/assist.h"
#include "local/memory.h"
#include "local/repair.h"
#include "local/user.h"
#include "nic/abstract_name.h"
#include "nic/crash.h"
#include "nic/descriptor.h"
#include "nic/helper.h"
#include "nic/keep_errno.h"
#include "nic/life.h"
#include "nic/mapping.h"
#include "nic/observed.h"
#include "nic/segment.h"
#include "nic/share.h"
#include "observe/pass.h"

#define BACKLOG	  128
#define SUSPICION 1000000000ull /* ns: for how long a lock may outlive its process's sockets */
#define ACCEPT_PAUSE \
	10000000ull  /* ns: until connections are looked at again that could not be accepted */
#define MAX_ASKED 16 /* answers that surely fit into a socket's buffer */

enum endpoint_kind { LISTENING, ACCEPTED, CONNECTED };

struct endpoint {
	struct helper_source source; /* must be first */
	enum endpoint_kind kind;
	int fd;
	uint32_t slot; /* LISTENING: ours; CONNECTED: theirs */
	struct peer
		*peer; /* whose process is at the other end, once it is known; holds a reference */
	struct list of_attach; /* endpoints; suspects, when it is closed and its peer may have died */
	uint64_t until;	       /* of a suspect: CLOCK_MONOTONIC ns */
};

struct attach {
	pthread_mutex_t lock;
	pthread_cond_t resolved; /* an attempt has ended */
	struct peer *by_slot[NIC_SLOTS];
	struct endpoint *attempts[NIC_SLOTS]; /* HELLO sent, no answer yet */
	/* helper: when, after accepting was refused (CLOCK_MONOTONIC ns); 0: it was not */
	uint64_t accept_again;
	enum cause_code
		refusals[NIC_SLOTS]; /* how the last attempt ended, until somebody has read it */
	struct list peers, endpoints, suspects; /* suspects: struct endpoint, which are closed */
	struct peer self;
};

struct peer *attach_self(struct nic *nic)
{
	return &nic->attach->self;
}

/* NULL with errno; the descriptor is the endpoint's or still the caller's. */
static void serve(struct nic *nic, struct helper_source *source);

static struct endpoint *endpoint_add(struct nic *nic, enum endpoint_kind kind, int fd,
				     uint32_t slot)
{
	struct endpoint *endpoint = calloc(1, sizeof(*endpoint));

	if (!endpoint)
		return NULL;
	endpoint->source.ready = serve;
	endpoint->kind = kind;
	endpoint->fd = fd;
	endpoint->slot = slot;
	if (helper_watch(nic, fd, &endpoint->source)) {
		free(endpoint);
		return NULL;
	}
	list_add_tail(&nic->attach->endpoints, &endpoint->of_attach);
	return endpoint;
}

static int claim_slot(struct nic *nic, uint32_t n)
{
	struct attach *attach = nic->attach;
	/* Where to begin looking differs from process to process, so that a QPN is slow to be
	 * reused. */
	uint32_t start = (uint32_t)(nic->seg->hdr.instance % (NIC_SLOTS - 1));
	int fd = descriptor_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error = ENOSPC;

	if (fd < 0)
		return errno;
	for (uint32_t i = 0; i < NIC_SLOTS - 1; i++) {
		uint32_t slot = 1 + (start + i) % (NIC_SLOTS - 1);
		struct sockaddr_un address;
		socklen_t length = abstract_name(&address, "uroce/%u", slot);

		if (bind(fd, (struct sockaddr *)&address, length)) {
			error = errno;
			if (error == EADDRINUSE)
				continue;
			break;
		}
		crash_point(SLOT_BOUND);
		if (listen(fd, BACKLOG)) {
			error = errno;
			break;
		}
		atomic_store(&nic->seg->hdr.slots[n], slot);
		if (!n)
			nic->seg->hdr.primary_slot = attach->self.primary_slot = slot;
		if (!endpoint_add(nic, LISTENING, fd, slot)) {
			error = errno;
			break;
		}
		attach->by_slot[slot] = &attach->self;
		atomic_store_explicit(&nic->seg->hdr.slot_count, n + 1, memory_order_release);
		return 0;
	}
	descriptor_close(fd);
	return error;
}

int attach_own_slot(struct nic *nic, uint32_t n)
{
	int error = 0;

	pthread_mutex_lock(&nic->attach->lock);
	for (uint32_t have = atomic_load(&nic->seg->hdr.slot_count); !error && have <= n; have++)
		error = claim_slot(nic, have);
	pthread_mutex_unlock(&nic->attach->lock);
	return error;
}

int attach_start(struct nic *nic)
{
	struct attach *attach = calloc(1, sizeof(*attach));
	pthread_condattr_t monotonic;

	if (!attach)
		return ENOMEM;
	pthread_mutex_init(&attach->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&attach->resolved, &monotonic);
	list_init(&attach->peers);
	list_init(&attach->endpoints);
	list_init(&attach->suspects);
	attach->self = (struct peer){
		.visitor = { .seg = nic->seg, .seg_fd = -1 },
		.target = target_self(nic),
		.instance = nic->seg->hdr.instance,
		.pid = getpid(),
		.is_self = true,
		.cma = memory_way() <= MEMORY_CMA,
		.conn = -1,
	};
	windows_init(&attach->self.windows, share_file(nic), true);
	views_init(&attach->self.views, nic, nic->seg, getpid());
	nic->attach = attach;
	visitor_add(nic, &attach->self.visitor);

	int error = attach_own_slot(nic, 0);

	if (error)
		attach_stop(nic);
	return error;
}

void attach_lock(struct nic *nic)
{
	pthread_mutex_lock(&nic->attach->lock);
}

void attach_unlock(struct nic *nic)
{
	pthread_mutex_unlock(&nic->attach->lock);
}

static void peer_free(struct nic *nic, struct peer *peer)
{
	assist_forget(nic, peer);
	windows_destroy(&peer->windows);
	views_destroy(&peer->views);
	munmap(peer->visitor.seg, peer->size);
	descriptor_close(peer->visitor.seg_fd);
	descriptor_close(peer->target.doorbell);
	free(peer);
}

/* In a forked child: only the descriptors. The structures stay as they are, for the helper that
 * they belonged to may have been anywhere, and inherited objects still look at them. */
static void close_inherited(struct attach *attach)
{
	list_for_each(node, &attach->endpoints)
		descriptor_close(list_entry(node, struct endpoint, of_attach)->fd);
	list_for_each(node, &attach->peers) {
		struct peer *peer = list_entry(node, struct peer, of_attach);

		descriptor_close(peer->visitor.seg_fd);
		descriptor_close(peer->target.doorbell);
		if (peer->windows.file >= 0)
			descriptor_close(peer->windows.file);
	}
}

void attach_stop(struct nic *nic)
{
	struct attach *attach = nic->attach;

	if (nic_is_orphan(nic)) {
		close_inherited(attach);
		return;
	}
	list_for_each_safe(node, tmp, &attach->endpoints) {
		struct endpoint *endpoint = list_entry(node, struct endpoint, of_attach);

		descriptor_close(endpoint->fd);
		free(endpoint);
	}
	list_for_each_safe(node, tmp, &attach->suspects)
		free(list_entry(node, struct endpoint, of_attach));
	list_for_each_safe(node, tmp, &attach->peers)
		peer_free(nic, list_entry(node, struct peer, of_attach));
	windows_destroy(&attach->self.windows);
	views_destroy(&attach->self.views);
	pthread_cond_destroy(&attach->resolved);
	pthread_mutex_destroy(&attach->lock);
	free(attach);
	nic->attach = NULL;
}

static struct message introduction(struct nic *nic, enum message_type type)
{
	return (struct message){
		.magic = NIC_MAGIC,
		.version = NIC_LAYOUT_VERSION,
		.type = type,
		.instance = nic->seg->hdr.instance,
		.size = nic->seg->hdr.size,
		.primary_slot = nic->seg->hdr.primary_slot,
	};
}

/* Sends an introduction with our descriptors: 0, or errno. */
static int introduce(struct nic *nic, int fd, const struct message *message)
{
	int pages = share_file(nic);

	return message_send(fd, message, (int[]){ nic->seg_fd, nic->doorbell, pages },
			    pages < 0 ? 2 : 3);
}

/* Maps a segment whose owner cannot make our accesses fail: it is sealed against shrinking. */
static struct nic_segment *map_segment(int fd, uint64_t size, uint64_t instance,
				       enum cause_code *why)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (fstat(fd, &st) || seals < 0 || !(seals & F_SEAL_SHRINK) ||
	    (uint64_t)st.st_size != size || size < sizeof(struct nic_segment))
		return NULL;

	struct nic_segment *seg = mapping_make(size, MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (seg == MAP_FAILED) {
		if (errno == ENOMEM)
			*why = CAUSE_NO_ADDRESS_SPACE;
		return NULL;
	}
	segment_keep_apart(seg, size);
	mapping_guard(seg->guard);
	if (seg->hdr.magic != NIC_MAGIC || seg->hdr.version != NIC_LAYOUT_VERSION ||
	    seg->hdr.instance != instance) {
		munmap(seg, size);
		return NULL;
	}
	return seg;
}

/* Lock held. The peer that an introduction names, made if it is new; the descriptors are its or
 * closed. */
static struct peer *know(struct nic *nic, const struct message *message, int *fds, pid_t pid,
			 enum cause_code *why)
{
	struct attach *attach = nic->attach;

	*why = CAUSE_ATTACH_FAILED;
	if (message->instance == nic->seg->hdr.instance) {
		/* Ourselves, by a slot that we had not entered yet. Closing a copy of our segment's
		 * descriptor would end our life lock, so it is never sent to ourselves. */
		message_close_fds(fds);
		return &attach->self;
	}
	list_for_each(node, &attach->peers) {
		struct peer *peer = list_entry(node, struct peer, of_attach);

		if (peer->instance == message->instance) {
			message_close_fds(fds);
			return peer;
		}
	}

	if (fds[1] < 0) {
		*why = CAUSE_NO_DESCRIPTORS;
		message_close_fds(fds);
		return NULL;
	}

	struct nic_segment *seg = map_segment(fds[0], message->size, message->instance, why);
	struct peer *peer = seg ? calloc(1, sizeof(*peer)) : NULL;

	if (!peer) {
		if (seg)
			munmap(seg, message->size);
		message_close_fds(fds);
		return NULL;
	}
	peer->visitor.seg = seg;
	peer->visitor.seg_fd = fds[0];
	peer->target = (struct target){ .seg = seg, .doorbell = fds[1] };
	peer->instance = message->instance;
	peer->size = message->size;
	peer->primary_slot = message->primary_slot;
	peer->pid = pid;
	peer->conn = -1;
	windows_init(&peer->windows, fds[2], false);
	views_init(&peer->views, nic, seg, pid);
	list_init(&peer->asks);
	atomic_store(&peer->cma, memory_way() <= MEMORY_CMA && memory_probe(peer));
	list_add_tail(&attach->peers, &peer->of_attach);
	/* From here on our waits for visits look at this process too: before it gets our segment in
	 * the answer. */
	visitor_add(nic, &peer->visitor);
	return peer;
}

/* Lock held. Enters the slots that a peer has now. */
static void enter_slots(struct attach *attach, struct peer *peer)
{
	struct seg_header *hdr = &peer->visitor.seg->hdr;
	uint32_t count = atomic_load_explicit(&hdr->slot_count, memory_order_acquire);

	for (uint32_t i = 0; i < count && i < NIC_OWN_SLOTS; i++) {
		uint32_t slot = atomic_load(&hdr->slots[i]);

		if (slot && slot < NIC_SLOTS)
			attach->by_slot[slot] = peer;
	}
}

static void begin_attempt(struct nic *nic, uint32_t slot, enum cause_code *why)
{
	struct attach *attach = nic->attach;
	struct sockaddr_un address;
	socklen_t length = abstract_name(&address, "uroce/%u", slot);
	int fd = descriptor_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0) {
		*why = errno == EMFILE || errno == ENFILE ? CAUSE_NO_DESCRIPTORS :
							    CAUSE_ATTACH_FAILED;
		return;
	}
	if (connect(fd, (struct sockaddr *)&address, length)) {
		/* EAGAIN: its backlog is full, it will be tried again. */
		*why = errno == EAGAIN ? CAUSE_NONE : CAUSE_PEER_ABSENT;
		descriptor_close(fd);
		return;
	}
	/* Before it gets what is ours. */
	struct ucred cred;

	*why = user_check(fd, false, nic->seg_fd, -1, &cred);
	if (*why) {
		descriptor_close(fd);
		return;
	}

	/* Sent before the helper can find the endpoint: afterwards it alone may free it. */
	struct message hello = introduction(nic, MESSAGE_HELLO);
	bool sent = !introduce(nic, fd, &hello);

	crash_point(HELLO_SENT);
	struct endpoint *endpoint = sent ? endpoint_add(nic, CONNECTED, fd, slot) : NULL;

	if (!endpoint) {
		*why = CAUSE_ATTACH_FAILED;
		descriptor_close(fd);
		return;
	}
	*why = CAUSE_NONE;
	attach->attempts[slot] = endpoint;
}

struct peer *attach_get(struct nic *nic, uint32_t slot, uint64_t wait, enum cause_code *why)
{
	KEEP_ERRNO;
	struct attach *attach = nic->attach;
	uint64_t deadline = nic_now() + wait;
	struct timespec until = { .tv_sec = (time_t)(deadline / 1000000000u),
				  .tv_nsec = (long)(deadline % 1000000000u) };
	struct peer *peer;

	*why = CAUSE_PEER_ABSENT;
	if (!slot || slot >= NIC_SLOTS)
		return NULL;
	pthread_mutex_lock(&attach->lock);
	for (bool begun = false;;) {
		peer = attach->by_slot[slot];
		if (peer && !atomic_load(&peer->dead)) {
			atomic_fetch_add(&peer->refs, 1);
			*why = CAUSE_NONE;
			break;
		}
		peer = NULL;
		*why = attach->refusals[slot];
		attach->refusals[slot] = CAUSE_NONE;
		if (*why)
			break;
		if (!attach->attempts[slot]) {
			if (begun)
				break; /* it ended with nothing */
			begin_attempt(nic, slot, why);
			begun = true;
			if (*why)
				break;
		}
		if (!wait ||
		    pthread_cond_timedwait(&attach->resolved, &attach->lock, &until) == ETIMEDOUT) {
			*why = CAUSE_NONE;
			break;
		}
	}
	pthread_mutex_unlock(&attach->lock);
	return peer;
}

void attach_put(struct nic *nic, struct peer *peer)
{
	if (atomic_fetch_sub(&peer->refs, 1) == 1 && atomic_load(&peer->dead))
		nic_ring_doorbell(nic);
}

/* Ends a connection; lock held. */
static void endpoint_close(struct nic *nic, struct endpoint *endpoint, enum cause_code refusal)
{
	struct attach *attach = nic->attach;
	struct peer *peer = endpoint->peer;

	if (endpoint->kind == CONNECTED && attach->attempts[endpoint->slot] == endpoint) {
		attach->attempts[endpoint->slot] = NULL;
		attach->refusals[endpoint->slot] = refusal;
		pthread_cond_broadcast(&attach->resolved);
	}
	list_del(&endpoint->of_attach);
	/* Closing would not take it out of the epoll set while a forked child has a copy. */
	helper_ignore(nic, endpoint->fd);
	descriptor_close(endpoint->fd);
	if (!peer) {
		free(endpoint);
		return;
	}
	if (peer->conn == endpoint->fd) {
		peer->conn = -1;
		assist_lost(nic, peer);
	}
	endpoint->until = nic_now() + SUSPICION;
	list_add_tail(&attach->suspects, &endpoint->of_attach); /* with its reference */
}

/* Looks at new connections, or does not for the time being. */
static void listen_to_slots(struct nic *nic, bool look)
{
	list_for_each(node, &nic->attach->endpoints) {
		struct endpoint *endpoint = list_entry(node, struct endpoint, of_attach);
		if (endpoint->kind == LISTENING)
			helper_listen(nic, endpoint->fd, &endpoint->source, look);
	}
}

/* There is no descriptor left, or the like: a connection waits and cannot be taken, so epoll would
 * wake us for ever. */
static void accept_later(struct nic *nic)
{
	struct attach *attach = nic->attach;

	cause_record(nic_causes(nic),
		     &(struct cause){ .code = CAUSE_NO_DESCRIPTORS, .error = errno });
	pthread_mutex_lock(&attach->lock);
	listen_to_slots(nic, false);
	attach->accept_again = nic_now() + ACCEPT_PAUSE;
	pthread_mutex_unlock(&attach->lock);
}

static void accept_one(struct nic *nic, struct endpoint *listening)
{
	int fd = descriptor_keep(accept4(listening->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

	if (fd < 0) {
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			accept_later(nic);
		return;
	}
	pthread_mutex_lock(&nic->attach->lock);
	if (!endpoint_add(nic, ACCEPTED, fd, 0))
		descriptor_close(fd);
	pthread_mutex_unlock(&nic->attach->lock);
}

/* Lock held. Looks who is at the other end, and knows it: NULL with *why when we have nothing to do with it. The
 * descriptors are its or closed. */
static struct peer *meet(struct nic *nic, const struct endpoint *endpoint,
			 const struct message *message, int *fds, enum cause_code *why)
{
	struct ucred cred = { 0 };

	if (message->version != NIC_LAYOUT_VERSION)
		*why = CAUSE_PEER_OTHER_VERSION;
	else if (fds[0] < 0) /* it was sent: the kernel found no number for it */
		*why = CAUSE_NO_DESCRIPTORS;
	else
		*why = user_check(endpoint->fd, endpoint->kind == ACCEPTED, nic->seg_fd, fds[0], &cred);
	if (!*why)
		return know(nic, message, fds, cred.pid, why);
	message_close_fds(fds);
	return NULL;
}

/* HELLO: know who it is, answer with who we are. */
static enum cause_code welcome(struct nic *nic, struct endpoint *endpoint,
			       const struct message *hello, int *fds)
{
	struct message answer = introduction(nic, MESSAGE_WELCOME);
	enum cause_code why;
	struct peer *peer = meet(nic, endpoint, hello, fds, &why);

	if (!peer) {
		answer.type = MESSAGE_REFUSED;
		answer.value = why;
		message_send(endpoint->fd, &answer, NULL, 0);
		return why;
	}
	/* Its slots are entered when it is READY: before that its waits for visits would not look
	 * at us. */
	crash_point(PEER_KNOWN);
	endpoint->peer = peer;
	atomic_fetch_add(&peer->refs, 1);
	if (introduce(nic, endpoint->fd, &answer))
		return CAUSE_ATTACH_FAILED;
	crash_point(WELCOME_SENT);
	return CAUSE_NONE;
}

/* WELCOME: the answer to our HELLO. */
static enum cause_code welcomed(struct nic *nic, struct endpoint *endpoint,
				const struct message *message, int *fds)
{
	struct attach *attach = nic->attach;
	enum cause_code why;
	struct peer *peer = meet(nic, endpoint, message, fds, &why);

	if (!peer)
		return why;

	struct message ready = introduction(nic, MESSAGE_READY);

	endpoint->peer = peer;
	atomic_fetch_add(&peer->refs, 1);
	if (message_send(endpoint->fd, &ready, NULL, 0))
		return CAUSE_ATTACH_FAILED;
	crash_point(READY_SENT);
	enter_slots(attach, peer);
	attach->by_slot[endpoint->slot] = peer;
	if (peer->conn < 0)
		peer->conn = endpoint->fd;
	attach->attempts[endpoint->slot] = NULL;
	pthread_cond_broadcast(&attach->resolved);
	return CAUSE_NONE;
}

/* TRACE: not a peer, but one who looks on. The connection is no endpoint any more. */
static void serve_observer(struct nic *nic, struct endpoint *endpoint, const struct message *ask)
{
	struct message answer = introduction(nic, MESSAGE_TRACED);
	int fd = endpoint->fd, ring = -1;

	pthread_mutex_lock(&nic->attach->lock);
	list_del(&endpoint->of_attach);
	pthread_mutex_unlock(&nic->attach->lock);
	helper_ignore(nic, fd);
	free(endpoint);
	answer.status = pass_is_own_user(fd) ? (uint32_t)observed_prepare(nic, &ring) : EPERM;
	if (message_send(fd, &answer, &ring, !answer.status) || answer.status)
		descriptor_close(fd);
	else
		observed_begin(nic, fd, ask->length < UINT32_MAX ? (uint32_t)ask->length : UINT32_MAX);
}

/* One message of an endpoint; false when there is none (any more). */
static bool serve_one(struct nic *nic, struct endpoint *endpoint)
{
	struct message message;
	int fds[MESSAGE_FDS];
	int error = message_receive(endpoint->fd, &message, fds);
	enum cause_code refusal = CAUSE_PEER_SILENT;

	if (error == EAGAIN)
		return false;
	if (!error && !endpoint->peer && endpoint->kind == ACCEPTED && message.type == MESSAGE_TRACE &&
	    message.version == NIC_LAYOUT_VERSION) {
		message_close_fds(fds);
		serve_observer(nic, endpoint, &message);
		return false;
	}
	pthread_mutex_lock(&nic->attach->lock);
	if (!error && !endpoint->peer && endpoint->kind == ACCEPTED &&
	    message.type == MESSAGE_HELLO) {
		refusal = welcome(nic, endpoint, &message, fds);
		error = refusal != CAUSE_NONE;
	} else if (!error && !endpoint->peer && endpoint->kind == CONNECTED &&
		   message.type == MESSAGE_WELCOME) {
		refusal = welcomed(nic, endpoint, &message, fds);
		error = refusal != CAUSE_NONE;
	} else if (!error && endpoint->peer && endpoint->kind == ACCEPTED &&
		   message.type == MESSAGE_READY) {
		message_close_fds(fds);
		enter_slots(nic->attach, endpoint->peer);
		pthread_cond_broadcast(&nic->attach->resolved);
	} else {
		message_close_fds(fds);
		if (!error && message.type == MESSAGE_REFUSED)
			refusal = (enum cause_code)message.value;
		else if (!error && message.version != NIC_LAYOUT_VERSION)
			refusal = CAUSE_PEER_OTHER_VERSION;
		if (!endpoint->peer)
			error = EPROTO;
	}
	if (error)
		endpoint_close(nic, endpoint, refusal);
	pthread_mutex_unlock(&nic->attach->lock);
	if (error)
		return false;
	if (message.type == MESSAGE_ASSIST && endpoint->kind == ACCEPTED) {
		struct message answer = introduction(nic, MESSAGE_ASSISTED);

		assist_serve(nic, endpoint->peer, &message, &answer);
		message_send(endpoint->fd, &answer, NULL, 0);
	} else if (message.type == MESSAGE_ASSISTED && endpoint->kind == CONNECTED) {
		atomic_fetch_sub(&endpoint->peer->asked, 1);
		assist_answered(nic, endpoint->peer, &message);
	}
	return true;
}

/* Helper: something happened on one of our descriptors. */
static void serve(struct nic *nic, struct helper_source *source)
{
	struct endpoint *endpoint = (struct endpoint *)source;

	/* The lock: who made the endpoint has finished then. */
	pthread_mutex_lock(&nic->attach->lock);
	enum endpoint_kind kind = endpoint->kind;

	pthread_mutex_unlock(&nic->attach->lock);
	if (kind == LISTENING) {
		accept_one(nic, endpoint);
		return;
	}
	/* A few, then the others' turn: epoll is level-triggered. */
	for (int i = 0; i < MAX_ASKED && serve_one(nic, endpoint); i++)
		;
}

/* A process has ended: nobody finds it any more, and what it may have left half done is repaired.
 * Lock held. */
static void declare_dead(struct nic *nic, struct peer *peer)
{
	struct attach *attach = nic->attach;

	atomic_store(&peer->dead, true);
	for (uint32_t slot = 0; slot < NIC_SLOTS; slot++) {
		if (attach->by_slot[slot] == peer)
			attach->by_slot[slot] = NULL;
	}
	cm_peer_died(nic, peer->primary_slot);
	visitor_remove(nic, &peer->visitor);
	counter_add(&nic->seg->counters.peers_died, 1);
}

/* Whether the end of a connection will tell of the peer's death; lock held. */
static bool is_connected(const struct attach *attach, const struct peer *peer)
{
	list_for_each(node, &attach->endpoints) {
		if (list_entry(node, struct endpoint, of_attach)->peer == peer)
			return true;
	}
	return false;
}

uint64_t attach_bury(struct nic *nic)
{
	struct attach *attach = nic->attach;
	struct list died, unused;
	uint64_t next = UINT64_MAX;

	list_init(&died);
	list_init(&unused);
	pthread_mutex_lock(&attach->lock);
	if (attach->accept_again && nic_now() >= attach->accept_again) {
		attach->accept_again = 0;
		listen_to_slots(nic, true);
	}
	if (attach->accept_again)
		next = attach->accept_again;
	list_for_each_safe(node, tmp, &attach->suspects) {
		struct endpoint *suspect = list_entry(node, struct endpoint, of_attach);
		struct peer *peer = suspect->peer;
		bool dead = atomic_load(&peer->dead);

		if (!dead && life_is_alive(peer->visitor.seg_fd)) {
			/* Its descriptors are being closed one by one; or it goes on without our
			 * connection, then only looking tells when it ends. */
			bool soon = nic_now() < suspect->until;

			if (soon || !is_connected(attach, peer)) {
				uint64_t again = nic_now() + (soon ? 1000000 : SUSPICION);

				if (again < next)
					next = again;
				continue;
			}
			list_del(&suspect->of_attach);
			atomic_fetch_sub(&peer->refs, 1);
			free(suspect);
			continue;
		}
		if (!dead)
			declare_dead(nic, peer);
		list_del(&suspect->of_attach);
		if (dead) {
			atomic_fetch_sub(&peer->refs, 1);
			free(suspect);
		} else {
			list_add_tail(&died, &suspect->of_attach);
		}
	}
	pthread_mutex_unlock(&attach->lock);

	list_for_each_safe(node, tmp, &died) {
		struct endpoint *suspect = list_entry(node, struct endpoint, of_attach);

		assist_lost(nic, suspect->peer);
		repair_after(nic, suspect->peer);
		cm_inherit(nic, suspect->peer->visitor.seg, suspect->peer->size);
		atomic_fetch_sub(&suspect->peer->refs, 1);
		free(suspect);
	}

	pthread_mutex_lock(&attach->lock);
	list_for_each_safe(node, tmp, &attach->peers) {
		struct peer *peer = list_entry(node, struct peer, of_attach);

		views_tidy(&peer->views);
		if (atomic_load(&peer->dead) && !atomic_load(&peer->refs)) {
			list_del(&peer->of_attach);
			list_add_tail(&unused, &peer->of_attach);
		}
	}
	pthread_mutex_unlock(&attach->lock);
	list_for_each_safe(node, tmp, &unused) {
		struct peer *peer = list_entry(node, struct peer, of_attach);

		visits_to_over(nic, peer->primary_slot);
		peer_free(nic, peer);
	}
	return next;
}

int attach_ask(struct nic *nic, struct peer *peer, struct message *message)
{
	struct attach *attach = nic->attach;
	enum cause_code why;
	int error = EAGAIN;

	message->magic = NIC_MAGIC;
	message->version = NIC_LAYOUT_VERSION;
	message->type = MESSAGE_ASSIST;
	message->instance = nic->seg->hdr.instance;
	pthread_mutex_lock(&attach->lock);
	if (atomic_load(&peer->dead)) {
		error = ECONNRESET;
	} else if (peer->conn < 0) {
		/* It knows us by its own connection; for asking we need one too. */
		if (!attach->attempts[peer->primary_slot])
			begin_attempt(nic, peer->primary_slot, &why);
	} else if (atomic_load(&peer->asked) < MAX_ASKED) {
		error = message_send(peer->conn, message, NULL, 0);
		if (!error)
			atomic_fetch_add(&peer->asked, 1);
	}
	pthread_mutex_unlock(&attach->lock);
	return error;
}

void attach_ring(struct nic *nic)
{
	uint64_t one = 1;

	pthread_mutex_lock(&nic->attach->lock);
	list_for_each(node, &nic->attach->peers) {
		struct peer *peer = list_entry(node, struct peer, of_attach);

		if (!descriptor_is_ours(peer->target.doorbell) || write(peer->target.doorbell, &one, sizeof(one)) < 0)
			continue; /* it is awake anyway */
	}
	pthread_mutex_unlock(&nic->attach->lock);
}
