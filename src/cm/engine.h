/* SPDX-License-Identifier: MIT */
/*
 * The connection manager inside: what its files share. id.c is the face of cm.h and keeps what an id may do next; conn.c runs the
 * exchange of messages; courier.c carries them between processes and hosts; name.c has the ports; path.c finds ways; channel.c
 * has the events; group.c multicast.
 *
 * One lock for all of a process's connection manager. Under it nothing waits. It is taken after a QP's and a port's locks (packets
 * arrive under them), before those of the wire and of the steps of sending. Timers and sockets are the helper's (cm_help).
 *
 * An id that was destroyed stays while it has something to say: until its DREQ is answered, and in TIMEWAIT. Then it has no
 * channel.
 */
#ifndef UROCE_CM_ENGINE_H
#define UROCE_CM_ENGINE_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#include "cm/cm.h"
#include "cm/mad.h"
#include "nic/helper.h"
#include "nic/list.h"
#include "observe/cause.h"

#define CM_BUCKETS 1024u

/* A comm ID is slot << 22 | number: it names the process that has it, as a QPN does. */
#define CM_ID_BITS 22

union cm_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage storage;
};

/* What the caller of rdma_cm may do next. */
enum cm_phase {
	CM_IDLE,
	CM_BOUND,
	CM_ADDR_RESOLVED,
	CM_ROUTE_RESOLVED,
	CM_LISTENING,
	CM_CONNECTING, /* until it is over */
	CM_DISCONNECTED,
};

/* Of the exchange (specification 12.9); MRA only moves the timer. */
enum cm_state {
	CONN_NONE,
	CONN_REQ_SENT,
	CONN_REQ_RECEIVED,
	CONN_REP_SENT,
	CONN_REP_RECEIVED,
	CONN_ESTABLISHED,
	CONN_DREQ_SENT,
	CONN_DREQ_RECEIVED,
	CONN_TIMEWAIT,
	CONN_SIDR_SENT,
	CONN_SIDR_RECEIVED,
	CONN_SIDR_ANSWERED,
};

/* A MAD and its addresses: what processes of a host send each other. */
struct letter {
	uint32_t magic, bytes;
	union ibv_gid from, to;
	uint64_t service_id; /* a REJ that has no comm ID of its receiver: the service whose listener's process has it; else 0 */
	uint8_t wire;	     /* it came by the wire, or is to go by it */
	uint8_t traffic_class, hop_limit;
	uint8_t mad[MAD_BYTES];
};

struct queued_letter {
	struct list node;
	uint64_t until; /* of the outbox: CLOCK_MONOTONIC ns, when to give up */
	struct letter letter;
};

struct cm_name;
struct cm_group;

struct cm_id {
	struct cm *cm;
	struct cm_channel *channel; /* NULL: destroyed */
	void *context;
	bool is_new; /* of a request: whoever reads about it must have given it a context first */
	enum rdma_port_space ps;
	enum ibv_qp_type type;
	enum cm_phase phase;
	struct list of_channel, of_listeners;
	unsigned events_read;
	struct queued_event *spare; /* for when there is no memory: what happens one by one is told all the same */

	union cm_address src, dst;
	union ibv_gid sgid, dgid;
	enum ibv_mtu mtu;
	bool reuse, afonly, has_afonly, has_timeout;
	uint8_t traffic_class, hop_limit, ack_timeout;
	struct cm_name *name; /* the port, if it was asked for; else one of our blocks has it */
	bool has_block_port;
	struct list of_name;

	/* Listening */
	int backlog, pending;	/* requests that were not read */
	struct cm_id *listener; /* of a request that was not read */
	bool keeps_name; /* of a request: its listener's, until it is connected or over, so that what is asked again comes to us */

	/* The exchange */
	enum cm_state state;
	struct list of_comm, of_remote, of_qpn;
	uint64_t due;	   /* CLOCK_MONOTONIC ns; 0: no timer */
	size_t heap_place; /* meaningful while due */
	uint32_t local_id, remote_id;
	uint64_t tid;
	uint64_t remote_guid;
	uint64_t service_id;
	uint32_t local_qpn, remote_qpn;
	uint32_t rq_psn, sq_psn; /* from which the other end, and from which we send */
	uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count;
	uint8_t timeout; /* of the QP, 4.096 us * 2^n */
	uint8_t remote_timeout, max_retries, packet_lifetime;
	uint32_t flow_label, qkey;
	bool wire;
	struct seg_will *will; /* NULL: there is none */
	unsigned sent;	       /* how often the letter that waits for an answer was sent */
	struct letter letter;

	struct list groups;
};

struct cm_channel {
	struct cm *cm;
	struct nic *nic; /* a use of it */
	int fd;
	struct list of_cm, ids, events;
};

struct queued_event {
	struct list node;
	struct cm_group *group;
	struct cm_event event;
};

/* A bound port of a port space and an address: an abstract socket, on which requests for it arrive. */
struct cm_name {
	struct helper_source source; /* must be first */
	struct cm *cm;
	int fd; /* -1: given up; the helper frees it */
	struct list of_cm, ids;
	uint16_t ps, port;
	char address[INET6_ADDRSTRLEN + 1]; /* name.c says what it looks like */
};

struct cm_courier;
struct cm_ports;

struct cm {
	pthread_mutex_t lock;
	struct nic *nic; /* NULL in tests of the exchange alone */
	uint32_t slot;
	uint64_t guid; /* of the CA */
	/* Sends or queues a letter. courier_send(); tests put another one here. */
	void (*send)(struct cm *cm, const struct letter *letter);
	struct list by_comm[CM_BUCKETS], by_remote[CM_BUCKETS], by_qpn[CM_BUCKETS];
	struct list listeners, channels;
	struct list destroyed; /* ids: through of_channel */
	uint32_t next_id;
	struct cm_id **heap; /* ids with a timer, the next first; room for all ids */
	size_t heap_count, heap_room, ids;
	struct list inbox, outbox; /* struct queued_letter; what waits for full sockets */
	uint64_t tried_at;	   /* when the outbox last was */
	struct list names, dead_names;
	struct cm_courier *courier; /* NULL: not needed yet */
	struct cm_ports *ports;	    /* the same */
	struct list outlets;
	uint32_t psn;		     /* of QP 1 */
	uint64_t wakes_at;	     /* when the helper calls again */
	struct seg_wills *last_will; /* where the last one was taken, and which */
	unsigned last_place;
	bool parked;			       /* a closed channel left its use of the NIC for what is still to be answered */
	_Atomic uint64_t dead[NIC_SLOTS / 64]; /* slots of processes that died, to be looked at by cm_help */
	_Atomic bool any_dead;
};

/* cm.c: of the process. */
int cm_start(struct nic *nic);
/* The helper has ended. In a forked child: only closes descriptors. */
void cm_stop(struct nic *nic);
void cm_before_fork(struct nic *nic);
void cm_after_fork_in_parent(struct nic *nic);
/* Helper, each time it wakes. Returns when to call again at the latest (CLOCK_MONOTONIC ns; UINT64_MAX: when something happens). */
uint64_t cm_help(struct nic *nic);
/* The process that held a slot has died; any lock may be held. */
void cm_peer_died(struct nic *nic, uint32_t slot);
/* Helper: a process that was attached has died, and left this. */
void cm_inherit(struct nic *nic, const struct nic_segment *seg, uint64_t size);
struct arrival;
/* A packet for QP 1. */
void cm_take_packet(struct nic *nic, const struct arrival *arrival);

/* In a forked child nothing of what was inherited works. */
static inline bool cm_is_forked(const struct cm *cm)
{
	return cm->nic && nic_is_orphan(cm->nic);
}

struct cm *cm_make(void);
void cm_free(struct cm *cm);
/* Under the lock, at the end of whatever may have sent or set a timer: what was sent to ourselves is handled. */
void cm_settle(struct cm *cm);
/* Runs what is due; returns when to be called again. Lock held. */
uint64_t cm_run(struct cm *cm);
/* Of an address: the id's destination, else its source, or the one given. */
void cm_record(struct cm *cm, const struct cm_id *id, enum cause_code code, int error, uint64_t value);
void cm_record_address(struct cm *cm, const struct cm_id *id, const union cm_address *address, enum cause_code code, int error,
		       uint64_t value);

/* id.c */
struct cm_id *id_make(struct cm_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type);
/* One without a channel, which was destroyed before it was made. NULL without memory. */
struct cm_id *id_make_heir(struct cm *cm);
void id_free(struct cm_id *id);
/* What cm_destroy_id does. */
void id_destroy(struct cm_id *id, unsigned *read);

/* channel.c. An event about an id that has been destroyed is dropped. */
void channel_raise(struct cm_id *id, const struct cm_event *event, struct cm_group *group);
void channel_raise_plain(struct cm_id *id, enum rdma_cm_event_type type, int status);
/* Drops what was not read; requests are given up too (rejected). */
void channel_forget(struct cm_id *id);
struct cm_channel *channel_make(struct cm *cm);
void channel_free(struct cm_channel *channel);

/* conn.c. A letter that has arrived. */
void conn_take(struct cm *cm, const struct letter *letter);
/* Whether a comm ID is one of ours, or was left to us. */
bool conn_is_ours(struct cm *cm, uint32_t local_id);
int conn_request(struct cm_id *id, const struct rdma_conn_param *param, const struct ibv_ece *ece);
int conn_reply(struct cm_id *id, const struct rdma_conn_param *param, uint32_t qkey, const struct ibv_ece *ece);
int conn_ready(struct cm_id *id);
int conn_reject(struct cm_id *id, const void *private_data, uint8_t length, uint16_t reason);
int conn_disconnect(struct cm_id *id);
int conn_established(struct cm_id *id);
/* The caller has gone: what there is to say is said. False when nothing is left and the id can be freed. */
bool conn_abandon(struct cm_id *id);
void conn_timer(struct cm_id *id);
/* The system says that a message cannot get there (errno): nobody is there, or there is no way. */
void conn_cannot_reach(struct cm *cm, const struct mad *mad, const struct letter *letter, int error);
/* What the process that it talks to leaves when it dies. */
void conn_peer_died(struct cm_id *id);
/* The answer to a message that nobody is there for; false when it gets none. */
bool conn_answer_for_nobody(const struct letter *question, struct letter *answer);
/* The header of the IP CM service in a REQ or SIDR_REQ; false without a port space's service ID, or with a header that is none. */
bool conn_read_service(const struct mad *mad, uint64_t *service_id, struct mad_ip *ip);

/* Another's connection, whose end is to be said for it. */
void conn_inherit(struct cm *cm, const struct seg_will *will);

/* will.c: what survives the process. */
void will_make(struct cm_id *id);
void will_end(struct cm_id *id);
/* Makes sure that another process, if there is one, hears of our end. */
void will_seek_heir(struct cm *cm);

/* timer.c */
void timer_set(struct cm_id *id, uint64_t due);
void timer_clear(struct cm_id *id);
struct cm_id *timer_due(struct cm *cm, uint64_t now);

/* courier.c */
void courier_send(struct cm *cm, const struct letter *letter);
/* Tries again what found a full socket; and when that is to be done next. */
void courier_run(struct cm *cm);
uint64_t courier_next(const struct cm *cm);
/* From here on letters for our slot arrive. 0, or errno. */
int courier_start(struct cm *cm);
void courier_stop(struct cm *cm, bool is_child);
/* Whatever socket they come from: takes letters until there are none. */
void courier_receive(struct cm *cm, int fd);
int courier_bind(struct cm *cm, const char *name, struct helper_source *source, int *fd);
/* Before it is sent, or taken. */
void courier_stamp(struct letter *letter);
/* Puts a letter where cm_settle() finds it. */
void courier_to_self(struct cm *cm, const struct letter *letter);
/* Packets of addresses that the id is reached by may arrive from now on. 0, or errno where it has one address. */
int courier_open_ports(struct cm_id *id);

/* outlet.c: as a datagram from QP 1 to QP 1. 0, or errno. */
#define CM_QP1_QKEY 0x80010000u
int outlet_send(struct cm *cm, const struct letter *letter);
void outlets_close(struct cm *cm, bool is_child);

/* name.c: ports. */
int name_bind(struct cm_id *id, uint16_t port);
/* One of the ports that only tell connections apart. */
int name_take_any(struct cm_id *id);
void name_release(struct cm_id *id);
/* A request keeps the socket that it came by open; until it is released. */
void name_keep(struct cm_id *request, const struct cm_id *listener);
/* Whether another id of ours shares the port: 0, or errno for who wants to listen there. */
int name_check_alone(const struct cm_id *id);
/* Before or after the port is bound: whether it is for one family of addresses alone. */
int name_set_afonly(struct cm_id *id, bool afonly);
/* The names of who may listen for an address, most particular first: i < CM_LISTENERS; and whether it is one of ours. */
#define CM_LISTENERS  4
#define CM_NAME_BYTES 96
void name_of_listener(uint64_t service_id, const union ibv_gid *gid, unsigned i, char *name);
bool name_is_here(const struct cm *cm, uint64_t service_id, const union ibv_gid *gid);
void names_free(struct cm *cm, bool is_child);
void names_bury(struct cm *cm);

/* path.c */
uint16_t address_port(const union cm_address *address);
void address_set_port(union cm_address *address, uint16_t port);
bool address_is_any(const union cm_address *address);
socklen_t address_bytes(int family);
bool address_is_ip(const struct sockaddr *address);
/* EINVAL for what is neither IPv4 nor IPv6, and ENODEV for InfiniBand. */
int address_copy(union cm_address *to, const struct sockaddr *from);
union ibv_gid address_gid(const union cm_address *address);
void address_from_gid(union cm_address *address, const union ibv_gid *gid, uint8_t ip_version, uint16_t port);
/* EADDRNOTAVAIL: no address of this host. EINVAL: link-local without a scope. */
int path_check_local(const union cm_address *address);
/* Which address of ours leads to dst; src's, if that is given. 0, or errno as connect(2). */
int path_source(const union cm_address *src, const union cm_address *dst, union cm_address *found);
enum ibv_mtu path_mtu(const union ibv_gid *sgid);

/* group.c */
void groups_leave_all(struct cm_id *id);

#endif
