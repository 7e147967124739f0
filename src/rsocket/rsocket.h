/* SPDX-License-Identifier: MIT */
/*
 * rsockets (rsocket(7)): sockets over RDMA, on what librdmacm and libibverbs offer to every program. This is what the files share.
 *
 * An rsocket's descriptor is an epoll instance of all that can bring news to it: the event channel of its id, the channel of its
 * completions, a listener's queue, a datagram's UDP socket. So every thread that has to wait polls that one descriptor.
 *
 * Who calls in does the work: nothing happens to an rsocket unless a thread is in a call about it, with two exceptions that the
 * service thread sees to (service.h): connections that a listener is asked for, and keepalives.
 *
 * Rules of every file here:
 * - Functions of the API answer -1 with errno; those among us answer 0 or a positive errno.
 * - `lock` covers all of an rsocket but what is said to be otherwise. It is held while messages are posted and completions polled,
 *   not while data is copied, and not while a thread sleeps. Before it are taken: the lock of the service (service.h), and
 *   `sending` or `receiving`.
 * - News that one thread has taken may be what another is waiting for: it says so (wait_wake()).
 * - An rsocket lives until it is closed and the last call about it has returned (references).
 * - In a forked child the parent's rsockets answer EBADF, and closing them there closes only the descriptor.
 */
#ifndef UROCE_RSOCKET_RSOCKET_H
#define UROCE_RSOCKET_RSOCKET_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

#include "nic/list.h"
#include "protocol.h"

#define PUBLIC __attribute__((visibility("default")))

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage storage;
};

enum stream_state {
	STREAM_NEW, /* bound or not */
	STREAM_LISTENING,
	STREAM_RESOLVING_ADDRESS,
	STREAM_RESOLVING_ROUTE,
	STREAM_CONNECTING, /* as either side */
	STREAM_CONNECTED,
	STREAM_CLOSED, /* was connected */
	STREAM_FAILED, /* never was connected */
};

/* A ring of bytes that the NIC reads or writes. */
struct ring {
	uint8_t *bytes;
	struct ibv_mr *mr;
	uint32_t size;
	uint32_t at; /* where the next byte is read (receive buffer) or written (send buffer) */
};

struct stream {
	enum stream_state state;
	bool may_read, may_write; /* while connected: false when that direction was shut down */
	bool farewell;		  /* the peer said that it would send no more */
	bool said_all;		  /* we said that we would neither send nor receive */
	bool bound;
	union address local; /* that rbind() was given */

	struct rdma_event_channel *channel; /* NULL: out of descriptors, or closed */
	struct rdma_cm_id *id;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	bool armed;	 /* the CQ is, or its event was not read yet */
	uint8_t *memory; /* of all below; memory_size bytes */
	size_t memory_size;

	/* What we receive. */
	struct ring receive;
	uint32_t receive_free; /* bytes that were read and not announced again */
	uint32_t receive_next; /* where the half begins that is announced next */
	uint32_t *lengths;     /* of messages that were not read: a ring of receives + 1 */
	unsigned head, tail;   /* of it */
	uint16_t counted;      /* messages that were read, of those that are counted */
	uint16_t allow_at;     /* count at which more credits are given */
	uint32_t receive_due;  /* bytes that were announced, and have not come */
	struct target *table;  /* where the peer announces: TARGETS, then `iomaps` of struct iomap */
	struct ibv_mr *table_mr;
	uint16_t iomaps;

	/* What we send. */
	struct ring send;
	uint32_t send_free; /* bytes */
	int sends_free, controls_free;
	uint16_t sent, allowed;		/* counted messages; the next may be sent if these differ */
	struct target targets[TARGETS]; /* what of the table is valid, less what was used of it */
	unsigned target_next;
	struct target peer_table;
	unsigned peer_table_next; /* entry that is announced next */
	uint64_t peer_iomaps;	  /* address of its table */
	uint16_t peer_iomaps_most;
	bool peer_swapped;    /* is of the other byte order */
	uint32_t transfer;    /* bytes of the next message, which grow: the first ones can be copied while others are under way */
	struct list mappings; /* of iomap.c */

	/* A listener's (listen.c). */
	int backlog;
	int queue_fd;	      /* eventfd, readable while the queue is not empty */
	struct list queue;    /* rsockets that raccept() takes, by `queued` */
	struct list arriving; /* those that are not connected yet */
	int queued;	      /* how many there are in both; under the service's lock */

	/* rsetsockopt(RDMA_ROUTE). */
	struct ibv_path_data *route;
	size_t route_size;
};

struct datagram {
	int udp;
	struct list qps;
	void *peers;	     /* of datagram.c, a tree of tsearch(3) */
	struct peer *peer;   /* that it is connected to, or NULL */
	struct list arrived; /* datagrams that nobody received */
	unsigned arrived_bytes;
	bool shut_read, shut_write;
};

struct rsocket {
	int fd;
	int domain;
	int type; /* SOCK_STREAM or SOCK_DGRAM */
	atomic_int references;

	pthread_mutex_t lock;
	pthread_mutex_t sending, receiving; /* order of what is sent, and of what is received */
	struct list waiters;
	bool closed; /* rclose() was called */

	atomic_int flags; /* O_NONBLOCK */
	int error;	  /* SO_ERROR */

	/* Options. */
	bool reuse_address, keepalive, v6only, nodelay, oob_inline;
	int keepalive_idle; /* seconds */
	struct linger linger;
	uint16_t sends, receives; /* work requests */
	uint32_t inlined;	  /* bytes that go inline */
	uint32_t send_size, receive_size;
	struct service *keeper; /* of keepalives, or NULL */
	int keepalive_timer;	/* its timerfd */

	struct list link;	  /* in a listener's queue or arriving */
	struct rsocket *listener; /* while arriving */
	struct service *arrival;  /* a listener's: of requests; while arriving: of events */

	union {
		struct stream stream;
		struct datagram datagram;
	};
};

static inline bool is_stream(const struct rsocket *rs)
{
	return rs->type == SOCK_STREAM;
}

static inline int fail(int error)
{
	errno = error;
	return -1;
}

/* error: 0 or a positive errno. */
static inline int answer(int error)
{
	return error ? fail(error) : 0;
}

static inline socklen_t address_length(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* As getsockname() has it: cut, and *length the length that it has. */
void address_copy(struct sockaddr *to, socklen_t *length, const struct sockaddr *from);
bool address_equal(const struct sockaddr *a, const struct sockaddr *b);
/* EINVAL: too short for its family; EAFNOSUPPORT: the rsocket's family is another. */
int address_check(const struct rsocket *rs, const struct sockaddr *address, socklen_t length);

/* table.c: the rsockets by descriptor. */

/* Makes one, with a reference of the caller's, that is in no table. */
int table_new(int domain, int type, struct rsocket **rs);
/* Now its descriptor names it. ENOMEM. */
int table_add(struct rsocket *rs);
/* The rsocket, with a reference; NULL: none has that descriptor. */
struct rsocket *table_get(int fd);
/* As table_get(), once: NULL when another thread has done it. */
struct rsocket *table_remove(int fd);
void table_put(struct rsocket *rs);
/* In a forked child: closes what was the parent's. EBADF. */
int table_close_inherited(int fd);
/* All there are now: calls with a reference each. */
void table_each(void (*call)(struct rsocket *rs));

/* wait.c: sleeping until something is so. */

int64_t now_us(void);
/*
 * Calls progress() until `ready`, and sleeps in between; with the lock held, which it gives up meanwhile. `patience`: microseconds,
 * -1: for ever; 0: looks once, thoroughly. EAGAIN: out of patience; EINTR; EBADF: closed meanwhile.
 */
int wait_until(struct rsocket *rs, bool (*ready)(const struct rsocket *), int64_t patience);
/*
 * The same where the thread cannot be cancelled meanwhile. In wait_until() it can, as in the socket calls: then the lock and one
 * reference are given back, which must be all that the caller has.
 */
int wait_to_finish(struct rsocket *rs, bool (*ready)(const struct rsocket *), int64_t patience);
/* With the lock held: something happened. All who wait look again, but the calling thread. */
void wait_wake(struct rsocket *rs);
/* poll(2) of `fds` for threads that wait for rsockets: those are told that this thread waits, by wait_enter(). */
struct waiter {
	struct list link;
	int fd;
};
/* The calling thread's eventfd, made when it first waits; -1 with errno. */
int wait_fd(void);
void wait_enter(struct rsocket *rs, struct waiter *waiter);
void wait_leave(struct rsocket *rs, struct waiter *waiter);
/* Reads the eventfd empty. */
void wait_clear(void);

/* progress.c: news, whatever the type. With the lock held. */

/* Completions only, without a system call. */
void progress_quick(struct rsocket *rs);
/* All. */
void progress_all(struct rsocket *rs);
/* Makes the next completion wake those who poll the descriptor, and looks for what came before. After progress_all(). */
void progress_arm(struct rsocket *rs);
/* What poll(2) would say, of `events` and POLLERR and POLLHUP. */
short progress_poll(struct rsocket *rs, short events);

/* connect.c: streams come and go. With the lock held, unless said otherwise. */

int connect_open_channel(struct rsocket *rs); /* for events only */
int connect_open(struct rsocket *rs);	      /* the id of a new one, and the channel if it has none */
int connect_bind(struct rsocket *rs, const struct sockaddr *address);
int connect_begin(struct rsocket *rs, const struct sockaddr *address);
void connect_events(struct rsocket *rs);
/* For an id that was asked for: QP, memory, and the answer. Else the caller destroys rs. */
int connect_accept(struct rsocket *rs, const struct connection_data *theirs);
/* What is in private data, wherever that lies. False: nothing of a version that we know. */
bool connect_check(const void *data, size_t length, struct connection_data *theirs);
int connect_shutdown(struct rsocket *rs, int how);
void connect_keepalive(struct rsocket *rs);
/* Says farewell, and waits for what was sent to arrive. */
void connect_finish(struct rsocket *rs);
/* Frees all there is, without the lock: nobody has it any more. */
void connect_close(struct rsocket *rs);
bool connect_done(const struct rsocket *rs); /* neither resolving nor connecting */

/* stream.c: what is sent and received. */

/* The memory and the queues of an id that has a device. */
int stream_prepare(struct rsocket *rs);
void stream_release(struct rsocket *rs);
void stream_describe(const struct rsocket *rs, struct connection_data *ours);
void stream_learn(struct rsocket *rs, const struct connection_data *theirs);
/* The connection is established. */
void stream_begin(struct rsocket *rs);
void stream_progress(struct rsocket *rs);
/* It ended. error: what the next call is told; 0: nothing went wrong. */
void stream_end(struct rsocket *rs, int error);
bool stream_readable(const struct rsocket *rs);
bool stream_writable(const struct rsocket *rs);
bool stream_all_sent(const struct rsocket *rs);
bool stream_control_free(const struct rsocket *rs);
void stream_control(struct rsocket *rs, enum control control);
/* Takes `length` bytes that the caller has put into the room there. message: NULL: the peer is not told. */
int stream_write(struct rsocket *rs, uint32_t length, uint64_t address, uint32_t key, const uint32_t *message);
/* As that, of at most sizeof(struct iomap) bytes that are anywhere. */
int stream_write_inline(struct rsocket *rs, const void *bytes, uint32_t length, uint64_t address, uint32_t key,
			const uint32_t *message);
/* The send queue and buffer have room, whatever the peer allows. */
bool stream_queue_free(const struct rsocket *rs);
ssize_t stream_receive(struct rsocket *rs, const struct iovec *iov, int count, int flags);
ssize_t stream_send(struct rsocket *rs, const struct iovec *iov, int count, int flags);
/* Bytes that fit into the send buffer in one piece; they begin at *room. */
uint32_t stream_room(const struct rsocket *rs, uint8_t **room);

/* iomap.c. With the lock held. */
int iomap_announce(struct rsocket *rs); /* those that the peer was not told of; as far as may be sent */
bool iomap_waiting(const struct rsocket *rs);
void iomap_release(struct rsocket *rs);

/* listen.c */
int listen_begin(struct rsocket *rs, int backlog);	     /* with the lock and the service's held */
int listen_accept(struct rsocket *rs, struct rsocket **out); /* without */
void listen_end(struct rsocket *rs);			     /* without */
bool listen_ready(const struct rsocket *rs);

/* datagram.c. With the lock held. */
int datagram_open(struct rsocket *rs);
void datagram_close(struct rsocket *rs);
int datagram_shutdown(struct rsocket *rs, int how);
int datagram_connect(struct rsocket *rs, const struct sockaddr *address, socklen_t length);
void datagram_quick(struct rsocket *rs);
void datagram_progress(struct rsocket *rs);
void datagram_arm(struct rsocket *rs);
short datagram_poll(const struct rsocket *rs);
ssize_t datagram_receive(struct rsocket *rs, const struct iovec *iov, int count, int flags, struct sockaddr *source,
			 socklen_t *length, int *out_flags);
ssize_t datagram_send(struct rsocket *rs, const struct iovec *iov, int count, int flags, const struct sockaddr *address,
		      socklen_t length);

#endif
