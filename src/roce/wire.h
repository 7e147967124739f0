/* SPDX-License-Identifier: MIT */
/*
 * The transport over UDP: what its files share. wire.c owns the ports and gives arrivals to their QPs; requester.c sends requests,
 * completer.c takes what is answered to them, responder.c takes others' requests and answers, datagram.c does UD.
 *
 * Everything of a QP here is under the QP's lock. Nothing of it is seen by other processes.
 */
#ifndef UROCE_ROCE_WIRE_H
#define UROCE_ROCE_WIRE_H

#include "local/memory.h"
#include "nic/gid.h"
#include "nic/qp.h"
#include "nic/request.h"
#include "nic/responder.h"
#include "roce/burst.h"
#include "roce/congestion.h"
#include "roce/psn.h"
#include "roce/steering.h"

/* Packets that came before those that are due: kept in order of their PSN. */
#define HELD_MOST 256u

/* Packets ahead of the one that is due, behind which requests are not kept: more than a requester has under way, they would only
 * take up the room, and seem to say that all before them got lost. */
#define HELD_AHEAD 4096

struct held {
	struct held *next;
	struct arrival arrival; /* its packet's payload is in raw */
	uint8_t raw[];
};

struct held_list {
	struct held *first;
	uint32_t count;
};

/* A READ or an atomic that was asked of us: answered once, and again when it is asked for again (specification 9.4.5). */
struct reply {
	uint32_t psn, packets;
	uint32_t sent; /* packets of its answer */
	bool is_atomic;
	uint64_t original; /* atomic: the answer */
	uint64_t va;	   /* READ */
	uint32_t length, rkey;
};

/* What a QP has on the wire, from its first use to RESET and destroy. */
struct wire_qp {
	struct list of_busy; /* wire->busy: replies are left to be sent */
	bool is_busy;
	uint32_t index; /* of the QP */
	struct route route;
	bool has_route;
	enum cause_code no_route; /* why not */
	int route_error;	  /* errno of it, or of what was last refused to be sent */
	uint32_t mtu;		  /* bytes, of the path */

	/* Requester. PSNs: una, the oldest without an answer; next, to be sent; end, behind the last that was ever sent. Positions
	 * in the send queue: of the request that una and next are in; end_pos, behind the last that was begun. */
	bool started;
	uint32_t una, next, end;
	uint64_t una_pos, next_pos, end_pos;
	struct congestion congestion;
	uint32_t recover; /* loss: nothing before it counts as another */
	bool recovering;
	uint32_t resent;   /* the PSN of the one packet that was sent again, */
	bool resent_one;   /* if one was */
	bool peer_holds;   /* the responder keeps what comes behind a gap */
	bool peer_forgets; /* it does not: go back */
	uint32_t back;	   /* PSN to which sending last went back, */
	uint64_t back_at;  /* and when; 0: it has not yet */
	bool resend_one;   /* packet una is to be sent again, alone */
	uint32_t timed;	   /* PSN whose round trip is measured */
	uint64_t timed_at; /* when it was sent; 0: none is */
	uint64_t deadline; /* of the answer to una by the QP's timeout; 0: nothing is under way, or there is none */
	uint64_t probe_at; /* when to ask, if nothing comes before; 0: nothing is under way */
	uint32_t *read_ends; /* PSNs behind the READs and atomics under way, max_rd_atomic of room */
	uint32_t reads, reads_room;
	/* How the request at failed_pos ends; it has not been said yet. */
	bool failed;
	uint64_t failed_pos;
	enum ibv_wc_status status;
	enum cause_code code;
	struct cause cause;
	bool psn_mismatch; /* nothing was acknowledged, and what comes back tells of PSNs that we never sent */
	bool rnr; /* an RNR NAK came for una */
	uint8_t rnr_code;
	uint64_t rnr_until;
	struct held_list responses;

	/* Responder */
	uint32_t msn;
	bool begun;	     /* a message of several packets */
	uint8_t operation;   /* its first packet's: SEND or WRITE */
	uint64_t offset;     /* its bytes so far */
	bool taken;	     /* receive is valid */
	struct receive receive;
	uint64_t va, dma_length;
	uint32_t rkey;
	bool gap;	/* something is missing */
	bool gap_told;	/* and was told, or the requester knows by an RNR NAK */
	bool ack_due;	/* for ack_psn, */
	uint32_t ack_psn; /* the last packet of a SEND or WRITE: READs and atomics are acknowledged by their answers alone */
	uint8_t nak;	/* syndrome that ends the connection; 0: none. Sent behind the replies */
	uint32_t nak_psn;
	bool nak_sent;
	struct reply *replies; /* a ring of max_dest_rd_atomic */
	uint32_t replies_room;
	uint32_t reply_next, reply_end; /* next to be answered, behind the last; count up for ever */
	uint64_t cnp_at; /* the last CNP */
	struct held_list requests;
};

#define EVERYWHERE_MOST 8u

struct wire {
	pthread_cond_t steered;	 /* one of the ports is */
	pthread_mutex_t lock;	 /* opening ports, their flows, busy, helped */
	struct port *ports[GID_TABLE_LENGTH]; /* they stay until the end */
	_Atomic uint32_t count;	 /* of ports; release, after the port is there */
	struct list busy;	 /* QPs that have replies to send */
	/* Of each of our slots; opened with the lock held, and there to the end. Who hands over reads them without it. */
	_Atomic(struct strays *) strays[NIC_OWN_SLOTS];
	struct everywhere {
		const struct gid_table *gids;
		uint32_t changes; /* of the table, when its ports were opened last */
	} everywhere[EVERYWHERE_MOST]; /* datagrams are received at all addresses of these devices, those to come too */
	struct list groups;	 /* multicast: struct group */
	struct list left;	 /* those whose ports the helper closes */
	uint32_t group_count;
	_Atomic bool used;	 /* there is a port that pollers look at */
	_Atomic uint64_t polled_at; /* CLOCK_MONOTONIC ns */
	_Atomic bool helped;	 /* the helper listens to the polled ports */
	_Atomic uint32_t polls;	 /* in vain, since the helper listens */
	/* How much the helper is needed although the program polls: it spins on its memory in between. */
	_Atomic int32_t needed;
};

/* The QP's wire state, made if there is none; NULL without memory. */
struct wire_qp *wire_of(struct nic_qp *qp);

/* Makes the route of a connected QP if there is none yet: false if that cannot be, then no_route. */
bool wire_route(struct nic_qp *qp, struct wire_qp *w);
/* The port of an address of ours, opened if need be; NULL: *code, errno. */
struct port *wire_port(struct nic *nic, const union ibv_gid *gid, bool polled, enum cause_code *code);

/* Opens the ports of all addresses of a device, which is there as long as the NIC, and of those that it will have. */
void wire_open_all(struct nic *nic, const struct gid_table *gids);

/* The helper receives on a group's port, or does not any more. Wire's lock held. */
void wire_listen_to(struct nic *nic, struct port *port);
void wire_ignore(struct nic *nic, struct port *port);

/* From a port to where an address handle points. 0, or errno. */
int wire_route_to(struct nic *nic, struct port *port, const struct nic_ah *ah, uint32_t entropy, struct route *route);

/* Sends what may be sent of the QP's queue. */
void wire_send(struct nic_qp *qp, struct wire_qp *w);
/* Everything from una on is to be sent again. */
void wire_go_back(struct wire_qp *w);
/* The WQE at a position will end so; what follows is not sent. */
void wire_fail(struct wire_qp *w, uint64_t position, enum ibv_wc_status status, enum cause_code code, const struct cause *c);
enum transport_outcome wire_outcome(struct nic_qp *qp, struct nic_swqe *wqe, struct transport_result *result);

/* An answer to a request of ours. */
void wire_take_response(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival);

/* A request of the QP's peer. */
void wire_take_request(struct nic_qp *qp, struct wire_qp *w, const struct arrival *arrival);
/* Sends the acknowledgements and replies that are due. */
void wire_answer(struct nic_qp *qp, struct wire_qp *w);
/* Forgets what was received in part. */
void wire_reset_responder(struct wire_qp *w);

/* UD. */
enum transport_outcome wire_send_datagram(struct nic_qp *qp, struct nic_swqe *wqe, struct transport_result *result);
void wire_take_datagram(struct nic_qp *qp, const struct arrival *arrival);

/* Keeps a packet that came early; false when there is no room, or it is there already. */
bool held_add(struct held_list *list, const struct arrival *arrival);
/* The one of this PSN, to be freed by the caller; older ones are dropped. */
struct held *held_take(struct held_list *list, uint32_t psn);
void held_clear(struct held_list *list);

/* Ours, as the verbs see it. */
extern const struct transport wire_transport;

/* The NIC's wire: made in nic_open, ended in nic_close. 0, or errno. */
int wire_start(struct nic *nic);
/* The helper has ended: what it has not looked at yet goes to whom it is for, in this process and others. All that packets are for is
 * still there. */
void wire_drain(struct nic *nic);
/* The helper has ended. In a forked child: only closes descriptors. */
void wire_stop(struct nic *nic);

/* Whether the CQ's completions may come by the wire. */
bool wire_is_used(const struct nic_cq *cq);
/* A program polls, and found nothing: takes what has arrived. True if that was anything. */
bool wire_poll(struct nic *nic);
/* The program is about to sleep: the helper takes over. */
void wire_listen(struct nic *nic);
/* Helper, each time it wakes: returns when to call again (CLOCK_MONOTONIC ns; 0: at once; UINT64_MAX: when something arrives). */
uint64_t wire_help(struct nic *nic);

#endif
