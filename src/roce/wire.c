/* SPDX-License-Identifier: MIT */
/* The transport over UDP: ports, the state of QPs, who gets what arrives, and who looks for it. See wire.h. */
#include "roce/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "cm/engine.h"
#include "nic/descriptor.h"
#include "nic/requester.h"
#include "nic/timing.h"
#include "nic/visit.h"
#include "roce/group.h"

/* Polls in vain until the program's own thread takes over from the helper, and ns without one until that takes over again. */
#define TAKE_OVER 16u
#define POLL_IDLE 500000ull

/* ns since the last poll after which a packet would have waited for the helper; and what one such packet counts against those that
 * the helper came for in vain. */
#define POLL_RECENT 20000ull
#define NEEDED_STEP 4
#define NEEDED_MOST 64

/* Packets of other processes until the port's filter is renewed, and ns until it is again. */
#define STRAYS_MANY 4u
#define RENEW_PAUSE 20000000ull

/* ns that a QP waits, on its way to RTR, until the kernel knows whose its packets are, and rounds in which what is left on a port
 * that is being closed goes to whom it is for. */
#define STEERED_WAIT 100000000ull
#define LAST_ROUNDS  16

static void port_ready(struct nic *nic, struct helper_source *source);
static unsigned receive(struct nic *nic, struct port *port);

int wire_start(struct nic *nic)
{
	struct wire *wire = calloc(1, sizeof(*wire));

	if (!wire)
		return ENOMEM;
	pthread_mutex_init(&wire->lock, NULL);
	pthread_cond_init(&wire->steered, NULL);
	list_init(&wire->busy);
	list_init(&wire->groups);
	list_init(&wire->left);
	atomic_store(&wire->helped, true);
	nic->wire = wire;
	return 0;
}

void wire_drain(struct nic *nic)
{
	struct wire *wire = nic->wire;

	for (uint32_t i = 0; i < atomic_load(&wire->count); i++) {
		for (int round = 0; round < LAST_ROUNDS && receive(nic, wire->ports[i]); round++)
			continue;
	}
}

void wire_stop(struct nic *nic)
{
	struct wire *wire = nic->wire;

	if (!wire)
		return;
	group_stop(nic);
	if (nic_is_orphan(nic)) {
		for (uint32_t i = 0; i < atomic_load(&wire->count); i++)
			port_close_descriptors(wire->ports[i]);
		for (uint32_t i = 0; i < NIC_OWN_SLOTS; i++) {
			if (wire->strays[i])
				descriptor_close(wire->strays[i]->fd);
		}
		return;
	}
	for (uint32_t i = 0; i < atomic_load(&wire->count); i++)
		port_close(wire->ports[i]);
	for (uint32_t i = 0; i < NIC_OWN_SLOTS; i++)
		strays_close(wire->strays[i]);
	pthread_cond_destroy(&wire->steered);
	pthread_mutex_destroy(&wire->lock);
	free(wire);
	nic->wire = NULL;
}

static void set_listened(struct nic *nic, struct port *port, bool listen)
{
	helper_listen(nic, port->fd, &port->source, listen);
}

static void group_ready(struct nic *nic, struct helper_source *source);

void wire_listen_to(struct nic *nic, struct port *port)
{
	port->source.ready = group_ready;
	helper_watch(nic, port->fd, &port->source);
}

void wire_ignore(struct nic *nic, struct port *port)
{
	helper_ignore(nic, port->fd);
}

/* Pollers look at it from now on. Wire's lock held. */
static void set_polled(struct nic *nic, struct port *port)
{
	if (atomic_load(&port->polled))
		return;
	atomic_store(&port->polled, true);
	if (!atomic_load(&nic->wire->helped))
		set_listened(nic, port, false);
	atomic_store(&nic->wire->used, true);
}

static void strays_ready(struct nic *nic, struct helper_source *source);

/* Others can hand over to us what is ours. Wire's lock held. */
static void open_strays(struct nic *nic)
{
	struct wire *wire = nic->wire;
	uint32_t slots = atomic_load(&nic->seg->hdr.slot_count);

	for (uint32_t i = 0; i < slots && i < NIC_OWN_SLOTS; i++) {
		if (atomic_load(&wire->strays[i]))
			continue;

		struct strays *strays = strays_open(atomic_load(&nic->seg->hdr.slots[i]));

		if (!strays)
			continue;
		strays->source.ready = strays_ready;
		atomic_store(&wire->strays[i], strays);
		helper_watch(nic, strays->fd, &strays->source);
	}
}

struct port *wire_port(struct nic *nic, const union ibv_gid *gid, bool polled, enum cause_code *code)
{
	struct wire *wire = nic->wire;
	struct port *port = NULL;
	uint32_t count;

	pthread_mutex_lock(&wire->lock);
	count = atomic_load(&wire->count);
	for (uint32_t i = 0; i < count && !port; i++) {
		if (!memcmp(&wire->ports[i]->gid, gid, sizeof(*gid)))
			port = wire->ports[i];
	}
	*code = CAUSE_NONE;
	if (!port && count < GID_TABLE_LENGTH) {
		port = port_open(gid);
		if (port) {
			port->counters = &nic->seg->counters;
			port->source.ready = port_ready;
			helper_watch(nic, port->fd, &port->source);
			/* Whoever comes last tells the kernel who is there, before there is anything to steer. */
			atomic_store(&port->strays, STRAYS_MANY + 1);
			wire->ports[count] = port;
			atomic_store_explicit(&wire->count, count + 1, memory_order_release);
			nic_ring_doorbell(nic);
		} else {
			*code = errno == EADDRINUSE ? CAUSE_WIRE_PORT : CAUSE_WIRE_UNREACHABLE;
		}
	}
	if (port)
		open_strays(nic);
	if (port && polled)
		set_polled(nic, port);
	pthread_mutex_unlock(&wire->lock);
	return port;
}

int wire_route_to(struct nic *nic, struct port *port, const struct nic_ah *ah, uint32_t entropy, struct route *route)
{
	pthread_mutex_lock(&nic->wire->lock);
	int error = port_route(port, &ah->dgid, entropy, route);

	pthread_mutex_unlock(&nic->wire->lock);
	route->traffic_class = ah->traffic_class;
	route->hop_limit = ah->hop_limit;
	return error;
}

struct wire_qp *wire_of(struct nic_qp *qp)
{
	if (qp->wire)
		return qp->wire;
	struct wire_qp *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->mtu = qp->type == IBV_QPT_UD ? qp->mtu : qp->shared->path_mtu;
	w->index = qp->index;
	w->ack_psn = psn_add(atomic_load(&qp->shared->epsn), ROCE_PSN_MASK);
	congestion_start(&w->congestion);
	qp->wire = w;
	atomic_fetch_add(&qp->send_cq->wired, 1);
	atomic_fetch_add(&qp->recv_cq->wired, 1);
	return w;
}

bool wire_route(struct nic_qp *qp, struct wire_qp *w)
{
	struct port *port;

	if (w->has_route)
		return true;
	port = wire_port(qp->nic, &qp->path.sgid, true, &w->no_route);
	w->route_error = port ? wire_route_to(qp->nic, port, &qp->path, qp->qpn ^ qp->attr.dest_qp_num, &w->route) : errno;
	w->has_route = !w->route_error;
	if (!w->has_route && !w->no_route)
		w->no_route = CAUSE_WIRE_UNREACHABLE;
	return w->has_route;
}

static void open_ports(struct nic *nic, const struct gid_table *gids)
{
	enum cause_code code;
	union ibv_gid gid;

	for (uint32_t i = 0; i < gids->count; i++) {
		if (gid_table_get(gids, i, &gid, NULL) && !gid_is_loopback(&gid))
			wire_port(nic, &gid, false, &code);
	}
}

void wire_open_all(struct nic *nic, const struct gid_table *gids)
{
	struct wire *wire = nic->wire;
	uint32_t changes = gids->changes;

	pthread_mutex_lock(&wire->lock);
	for (unsigned i = 0; i < EVERYWHERE_MOST; i++) {
		struct everywhere *place = &wire->everywhere[i];

		if (place->gids && place->gids != gids)
			continue;
		*place = (struct everywhere){ gids, changes };
		break;
	}
	pthread_mutex_unlock(&wire->lock);
	open_ports(nic, gids);
}

/* A table that has changed since its ports were opened; NULL: none has. Wire's lock held. */
static const struct gid_table *find_changed(struct wire *wire)
{
	for (unsigned i = 0; i < EVERYWHERE_MOST && wire->everywhere[i].gids; i++) {
		struct everywhere *place = &wire->everywhere[i];

		if (place->changes == place->gids->changes)
			continue;
		place->changes = place->gids->changes;
		return place->gids;
	}
	return NULL;
}

/* Helper: closes what groups have left, and opens the ports of addresses that have come. */
static void keep_up(struct nic *nic)
{
	struct wire *wire = nic->wire;
	const struct gid_table *gids;

	do {
		pthread_mutex_lock(&wire->lock);
		group_close_left(nic);
		gids = find_changed(wire);
		pthread_mutex_unlock(&wire->lock);
		if (gids)
			open_ports(nic, gids);
	} while (gids);
}

/* What comes for us until the kernel knows that we are there goes round by others, and what comes then would overtake it. */
static void await_steering(struct nic *nic)
{
	struct wire *wire = nic->wire;
	uint64_t until = nic_now() + STEERED_WAIT;
	struct timespec at = { (time_t)(until / 1000000000u), (long)(until % 1000000000u) };

	pthread_mutex_lock(&wire->lock);
	for (uint32_t i = 0; i < atomic_load(&wire->count); i++) {
		struct port *port = wire->ports[i];

		while (!atomic_load(&port->steered)) {
			/* Once is enough, where others have no CPU to answer. */
			if (pthread_cond_clockwait(&wire->steered, &wire->lock, CLOCK_MONOTONIC, &at))
				atomic_store(&port->steered, true);
		}
	}
	pthread_mutex_unlock(&wire->lock);
}

/* The helper. */
static void set_steered(struct wire *wire, struct port *port)
{
	pthread_mutex_lock(&wire->lock);
	atomic_store(&port->steered, true);
	pthread_cond_broadcast(&wire->steered);
	pthread_mutex_unlock(&wire->lock);
}

static int connect_qp(struct nic_qp *qp)
{
	struct wire_qp *w = wire_of(qp);

	if (!w)
		return ENOMEM;
	if (qp->type == IBV_QPT_UD)
		wire_open_all(qp->nic, qp->gids);
	else
		wire_route(qp, w);
	await_steering(qp->nic);
	return 0;
}

static void set_idle(struct nic_qp *qp, struct wire_qp *w)
{
	pthread_mutex_lock(&qp->nic->wire->lock);
	if (w->is_busy)
		list_del(&w->of_busy);
	w->is_busy = false;
	pthread_mutex_unlock(&qp->nic->wire->lock);
}

static void disconnect(struct nic_qp *qp)
{
	struct wire_qp *w = qp->wire;

	if (!w)
		return;
	set_idle(qp, w);
	wire_reset_responder(w);
	atomic_fetch_sub(&qp->send_cq->wired, 1);
	atomic_fetch_sub(&qp->recv_cq->wired, 1);
	free(w->read_ends);
	free(w->replies);
	free(w);
	qp->wire = NULL;
}

static void cancel(struct nic_qp *qp)
{
	struct wire_qp *w = qp->wire;

	if (!w)
		return;
	w->failed = w->rnr = w->resend_one = w->recovering = false;
	w->deadline = w->probe_at = w->rnr_until = w->timed_at = 0;
	w->reads = 0;
	wire_reset_responder(w);
}

static enum transport_outcome execute(struct nic_qp *qp, struct nic_swqe *wqe, uint64_t *budget, struct transport_result *result)
{
	(void)budget; /* a window's worth at a time */
	if (qp->type == IBV_QPT_UD)
		return wire_send_datagram(qp, wqe, result);
	return wire_outcome(qp, wqe, result);
}

static void advance(struct nic_qp *qp)
{
	/* Unkind timing: not before the requester's turn. */
	if (qp->wire && qp->type != IBV_QPT_UD && timing_mode() == TIMING_PROMPT)
		wire_send(qp, qp->wire);
}

const struct transport wire_transport = {
	.connect = connect_qp,
	.disconnect = disconnect,
	.execute = execute,
	.advance = advance,
	.cancel = cancel,
};

/* What arrives goes to its QPs, whose locks are held from the first packet to another QP's. */
struct delivery {
	struct nic *nic;
	struct nic_qp *qp;
	uint32_t qpn;
	bool answered; /* to requests of ours */
	struct strays_batch strays;
	union ibv_gid stray_gid; /* that they were sent to */
	uint64_t packets, words; /* received for us, words of 4 bytes */
};

static void end_of_qp(struct delivery *delivery)
{
	struct nic_qp *qp = delivery->qp;

	if (!qp)
		return;
	if (qp->wire && qp->type != IBV_QPT_UD)
		wire_answer(qp, qp->wire);
	if (delivery->answered) {
		if (!qp->finish_at)
			qp->due = 0;
		requester_run(qp);
	}
	nic_unlock(&qp->lock);
	nic_qp_put(qp);
	delivery->qp = NULL;
}

static bool same_gid(const union ibv_gid *a, const union ibv_gid *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static bool is_ours(struct nic *nic, uint32_t qpn)
{
	const struct target self = target_self(nic);
	uint32_t index;

	return responder_find(&self, qpn, &index);
}

/* What is for another process goes there. */
static void hand_over(struct delivery *delivery)
{
	struct nic *nic = delivery->nic;
	struct wire *wire = nic->wire;
	uint32_t packets = delivery->strays.packets;

	if (!packets)
		return;
	if (!strays_hand_over(&delivery->strays, atomic_load(&wire->strays[0]))) {
		counter_add(&nic->seg->counters.rx_foreign, packets);
		return;
	}
	for (uint32_t i = 0; i < atomic_load(&wire->count); i++) {
		if (!same_gid(&wire->ports[i]->gid, &delivery->stray_gid))
			continue;
		uint32_t before = atomic_fetch_add(&wire->ports[i]->strays, packets);

		if (before <= STRAYS_MANY && before + packets > STRAYS_MANY)
			nic_ring_doorbell(nic);
	}
}

static void add_stray(struct delivery *delivery, const struct arrival *arrival)
{
	uint32_t slot = arrival->packet.qpn >> NIC_QPN_INDEX_BITS;

	if (!strays_add(&delivery->strays, slot, arrival)) {
		hand_over(delivery);
		strays_add(&delivery->strays, slot, arrival);
	}
	delivery->stray_gid = arrival->dgid;
}

static void begin_qp(struct delivery *delivery, uint32_t qpn)
{
	const struct target self = target_self(delivery->nic);
	uint32_t index;

	end_of_qp(delivery);
	delivery->qpn = qpn;
	delivery->answered = false;
	if (!responder_find(&self, qpn, &index))
		return;
	delivery->qp = nic_qp_get(delivery->nic, index);
	if (delivery->qp)
		nic_lock(&delivery->qp->lock);
}

/* RC and UC: from the other end of the connection. */
static bool is_of_peer(const struct nic_qp *qp, const struct arrival *arrival)
{
	return qp->transport == &wire_transport && same_gid(&arrival->sgid, &qp->path.dgid) &&
	       same_gid(&arrival->dgid, &qp->path.sgid);
}

static void take_datagram(struct nic_qp *qp, const struct arrival *arrival)
{
	struct seg_visit *here = visit_enter(qp->nic, qp->nic->seg);

	if (!here)
		return;
	wire_take_datagram(qp, arrival);
	visit_leave(here);
}

static void trace_arrival(const struct arrival *arrival, uint32_t qpn)
{
	const struct icrc_path path = {
		.sgid = arrival->sgid, .dgid = arrival->dgid, .sport = arrival->sport, .dport = port_configured()
	};

	packet_trace(TRACE_PACKET_IN, qpn, &path, arrival->raw, arrival->bytes);
}

/* To each QP that is in the group. */
static void arrived_for_group(struct delivery *delivery, const struct arrival *arrival)
{
	uint32_t members[GROUP_MEMBERS_MOST], count = group_members(delivery->nic, &arrival->dgid, members);

	end_of_qp(delivery);
	if (!count)
		counter_add(&delivery->nic->seg->counters.rx_foreign, 1);
	for (uint32_t i = 0; i < count; i++) {
		struct nic_qp *qp = nic_qp_get(delivery->nic, members[i]);

		if (!qp)
			continue;
		nic_lock(&qp->lock);
		if (trace_on())
			trace_arrival(arrival, qp->qpn);
		if (qp->state >= IBV_QPS_RTR && wire_of(qp))
			take_datagram(qp, arrival);
		nic_unlock(&qp->lock);
		nic_qp_put(qp);
	}
}

static void count_received(struct delivery *delivery, const struct arrival *arrival)
{
	delivery->packets++;
	delivery->words += arrival->bytes / 4u;
}

static void arrived(void *arg, const struct arrival *arrival)
{
	static const enum ibv_qp_type types[] = { [ROCE_RC] = IBV_QPT_RC, [ROCE_UC] = IBV_QPT_UC, [ROCE_UD] = IBV_QPT_UD };
	struct delivery *delivery = arg;
	const struct roce_packet *packet = &arrival->packet;
	uint32_t service = packet->opcode >> 5;
	struct nic_qp *qp;
	struct wire_qp *w;

	if (packet->qpn == ROCE_MULTICAST_QPN && service == ROCE_UD) {
		count_received(delivery, arrival);
		arrived_for_group(delivery, arrival);
		return;
	}
	if (packet->qpn == 1) {
		end_of_qp(delivery);
		if (trace_on())
			trace_arrival(arrival, 1);
		cm_take_packet(delivery->nic, arrival);
		return;
	}
	if (!delivery->qp || delivery->qpn != packet->qpn) {
		if (!is_ours(delivery->nic, packet->qpn)) {
			add_stray(delivery, arrival);
			return;
		}
		begin_qp(delivery, packet->qpn);
	}
	count_received(delivery, arrival);
	if (trace_on())
		trace_arrival(arrival, packet->qpn);
	qp = delivery->qp;
	if (!qp || (packet->pkey | 0x8000) != ROCE_DEFAULT_PKEY || qp->state < IBV_QPS_RTR)
		goto foreign;
	w = wire_of(qp);
	if (!w)
		return;
	if (service == ROCE_UD && qp->type == IBV_QPT_UD) {
		take_datagram(qp, arrival);
		return;
	}
	if (qp->type == IBV_QPT_UD || !is_of_peer(qp, arrival))
		goto foreign;
	if (service == ROCE_CNP) {
		counter_add(&delivery->nic->seg->counters.rp_cnp_handled, 1);
		congestion_lost(&w->congestion);
		return;
	}
	if (service > ROCE_UC || types[service] != qp->type)
		goto foreign;
	if (roce_opcode(packet->opcode)->response) {
		delivery->answered = true;
		wire_take_response(qp, w, arrival);
	} else {
		wire_take_request(qp, w, arrival);
	}
	return;
foreign:
	counter_add(&delivery->nic->seg->counters.rx_foreign, 1);
}

static void end(struct delivery *delivery)
{
	struct device_counters *counters = &delivery->nic->seg->counters;

	end_of_qp(delivery);
	hand_over(delivery);
	if (delivery->packets) {
		counter_add(&counters->port_rcv_packets, delivery->packets);
		counter_add(&counters->port_rcv_data, delivery->words);
	}
	free(delivery->strays.bytes);
}

static unsigned receive(struct nic *nic, struct port *port)
{
	struct delivery delivery = { .nic = nic };
	unsigned n = port_receive(port, nic, arrived, &delivery);

	end(&delivery);
	return n;
}

/* Helper. */
static void port_ready(struct nic *nic, struct helper_source *source)
{
	struct port *port = (struct port *)source;

	struct wire *wire = nic->wire;
	bool waited = nic_now() - atomic_load_explicit(&wire->polled_at, memory_order_relaxed) > POLL_RECENT;
	int32_t needed = atomic_load_explicit(&wire->needed, memory_order_relaxed);
	unsigned n = receive(nic, port);

	if (n && waited)
		needed = needed + NEEDED_STEP < NEEDED_MOST ? needed + NEEDED_STEP : NEEDED_MOST;
	else if (!n && needed)
		needed--;
	atomic_store_explicit(&wire->needed, needed, memory_order_relaxed);
	if (n && !atomic_load(&port->polled)) {
		pthread_mutex_lock(&wire->lock);
		set_polled(nic, port);
		pthread_mutex_unlock(&wire->lock);
	}
}

static void group_ready(struct nic *nic, struct helper_source *source)
{
	receive(nic, (struct port *)source);
}

static void strays_ready(struct nic *nic, struct helper_source *source)
{
	struct delivery delivery = { .nic = nic };

	strays_receive((struct strays *)source, nic, arrived, &delivery);
	end(&delivery);
}

/* Ports whose packets keep coming to the wrong process. Returns when to look again. */
static uint64_t renew_filters(struct nic *nic)
{
	struct wire *wire = nic->wire;
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < atomic_load(&wire->count); i++) {
		struct port *port = wire->ports[i];
		uint64_t again, now = nic_now();

		if (!steering_is_asking(port, &again) && atomic_load(&port->strays) > STRAYS_MANY) {
			/* What came before somebody asked last, it may have been another, is no reason to ask again. */
			atomic_store(&port->strays, 0);
			if (now >= atomic_load_explicit(&port->asked_at, memory_order_relaxed) + RENEW_PAUSE) {
				atomic_store_explicit(&port->asked_at, now, memory_order_relaxed);
				steering_ask(nic, port);
			}
		}
		if (steering_is_asking(port, &again))
			next = again < next ? again : next;
		else if (!atomic_load(&port->steered))
			set_steered(wire, port);
	}
	return next;
}

/* Who listens to the ports that pollers look at. */
static void set_helped(struct nic *nic, bool helped)
{
	struct wire *wire = nic->wire;

	pthread_mutex_lock(&wire->lock);
	if (atomic_load(&wire->helped) != helped) {
		for (uint32_t i = 0; i < atomic_load(&wire->count); i++) {
			if (atomic_load(&wire->ports[i]->polled))
				set_listened(nic, wire->ports[i], helped);
		}
		atomic_store(&wire->polls, 0);
		atomic_store(&wire->helped, helped);
	}
	pthread_mutex_unlock(&wire->lock);
}

bool wire_is_used(const struct nic_cq *cq)
{
	return atomic_load_explicit(&cq->wired, memory_order_relaxed) &&
	       atomic_load_explicit(&cq->nic->wire->used, memory_order_relaxed);
}

bool wire_poll(struct nic *nic)
{
	struct wire *wire = nic->wire;
	bool any = false;

	atomic_store_explicit(&wire->polled_at, nic_now(), memory_order_relaxed);
	if (atomic_load_explicit(&wire->helped, memory_order_relaxed) &&
	    !atomic_load_explicit(&wire->needed, memory_order_relaxed) &&
	    atomic_fetch_add_explicit(&wire->polls, 1, memory_order_relaxed) >= TAKE_OVER) {
		set_helped(nic, false);
		nic_ring_doorbell(nic); /* it looks again when we have stopped */
	}
	for (uint32_t i = 0; i < atomic_load_explicit(&wire->count, memory_order_acquire); i++) {
		if (atomic_load_explicit(&wire->ports[i]->polled, memory_order_relaxed))
			any |= receive(nic, wire->ports[i]) > 0;
	}
	return any;
}

void wire_listen(struct nic *nic)
{
	if (!atomic_load(&nic->wire->helped))
		set_helped(nic, true);
}

/* QPs that have more to answer than one turn sends. */
static bool serve_busy(struct nic *nic)
{
	struct wire *wire = nic->wire;
	struct nic_qp *qp = NULL;
	bool left;

	pthread_mutex_lock(&wire->lock);
	if (!list_empty(&wire->busy)) {
		struct wire_qp *w = list_entry(wire->busy.next, struct wire_qp, of_busy);

		/* At the end, so that all get their turn. */
		list_del(&w->of_busy);
		list_add_tail(&wire->busy, &w->of_busy);
		qp = nic_qp_get(nic, w->index);
	}
	pthread_mutex_unlock(&wire->lock);
	if (!qp)
		return false;
	nic_lock(&qp->lock);
	if (qp->wire)
		wire_answer(qp, qp->wire);
	nic_unlock(&qp->lock);
	nic_qp_put(qp);
	pthread_mutex_lock(&wire->lock);
	left = !list_empty(&wire->busy);
	pthread_mutex_unlock(&wire->lock);
	return left;
}

uint64_t wire_help(struct nic *nic)
{
	struct wire *wire = nic->wire;

	uint64_t renew = renew_filters(nic);

	keep_up(nic);
	if (serve_busy(nic))
		return 0;
	if (atomic_load(&wire->helped))
		return renew;

	uint64_t until = atomic_load_explicit(&wire->polled_at, memory_order_relaxed) + POLL_IDLE;

	if (nic_now() < until)
		return until < renew ? until : renew;
	set_helped(nic, true);
	return renew;
}
