/* SPDX-License-Identifier: MIT */
/* Ids: what may be done with one next, and what is known of it. See cm.h for what the functions do, engine.h for the parts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cm/engine.h"
#include "nic/gid.h"
#include "nic/keep_errno.h"
#include "nic/nic.h"
#include "nic/transport.h"

#define HOPS 64

/* The kernel's bound of a backlog (net.rdma_ucm.max_backlog). */
#define MAX_BACKLOG 1024

static void enter(struct cm_id *id)
{
	pthread_mutex_lock(&id->cm->lock);
}

/* With what the call returns; a refusal has a cause. */
static int leave(struct cm_id *id, int error, enum cause_code code)
{
	struct cm *cm = id->cm;

	if (error)
		cm_record(cm, id, code, error, (uint64_t)id->phase);
	cm_settle(cm);
	pthread_mutex_unlock(&cm->lock);
	return error;
}

/* The same, of an address that was asked for and is not the id's. */
static int leave_address(struct cm_id *id, int error, enum cause_code code, const struct sockaddr *asked)
{
	struct cm *cm = id->cm;
	union cm_address address = { 0 };

	if (error) {
		address_copy(&address, asked);
		cm_record_address(cm, id, &address, code, error, (uint64_t)id->phase);
	}
	return leave(id, error, CAUSE_NONE);
}

static bool heap_has_room(struct cm *cm)
{
	size_t room = cm->heap_room ? 2 * cm->heap_room : 64;
	struct cm_id **heap;

	if (cm->ids < cm->heap_room)
		return true;
	heap = realloc(cm->heap, room * sizeof(struct cm_id *));
	if (!heap)
		return false;
	cm->heap = heap;
	cm->heap_room = room;
	return true;
}

static struct cm_id *make(struct cm *cm)
{
	struct cm_id *id = heap_has_room(cm) ? calloc(1, sizeof(*id)) : NULL;
	uint32_t random[2];

	if (!id)
		return NULL;
	if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
		random[0] = (uint32_t)nic_now();
		random[1] = random[0] * 0x9e3779b1u;
	}
	id->cm = cm;
	id->rq_psn = random[0] & 0xffffff;
	id->flow_label = random[1] & 0xfffff;
	id->hop_limit = HOPS;
	id->mtu = IBV_MTU_1024;
	list_init(&id->of_listeners);
	list_init(&id->of_name);
	list_init(&id->of_comm);
	list_init(&id->of_remote);
	list_init(&id->of_qpn);
	list_init(&id->groups);
	cm->ids++;
	return id;
}

struct cm_id *id_make(struct cm_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct queued_event *spare = malloc(sizeof(*spare));
	struct cm_id *id = spare ? make(channel->cm) : NULL;

	if (!id) {
		free(spare);
		return NULL;
	}
	id->spare = spare;
	id->channel = channel;
	id->context = context;
	id->ps = ps;
	id->type = type;
	list_add_tail(&channel->ids, &id->of_channel);
	return id;
}

struct cm_id *id_make_heir(struct cm *cm)
{
	struct cm_id *id = make(cm);

	if (!id)
		return NULL;
	id->type = IBV_QPT_RC;
	id->phase = CM_DISCONNECTED;
	list_add_tail(&cm->destroyed, &id->of_channel);
	return id;
}

void id_free(struct cm_id *id)
{
	timer_clear(id);
	will_end(id);
	list_del(&id->of_channel);
	list_del(&id->of_comm);
	list_del(&id->of_remote);
	list_del(&id->of_qpn);
	id->cm->ids--;
	free(id->spare);
	free(id);
}

void id_destroy(struct cm_id *id, unsigned *read)
{
	struct cm *cm = id->cm;

	channel_forget(id);
	list_del(&id->of_listeners);
	if (id->listener)
		id->listener->pending--;
	id->listener = NULL;
	name_release(id);
	groups_leave_all(id);
	*read = id->events_read;
	list_del(&id->of_channel);
	id->channel = NULL;
	if (conn_abandon(id))
		list_add_tail(&cm->destroyed, &id->of_channel);
	else
		id_free(id);
}

int cm_create_id(struct cm_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type, struct cm_id **id)
{
	struct cm *cm = channel->cm;

	if (cm_is_forked(cm))
		return ENODEV;
	if (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP && ps != RDMA_PS_IPOIB && ps != RDMA_PS_IB)
		return EINVAL;
	if (type != IBV_QPT_RC && type != IBV_QPT_UC && type != IBV_QPT_UD && type != IBV_QPT_XRC_SEND && type != IBV_QPT_XRC_RECV)
		return EINVAL;
	pthread_mutex_lock(&cm->lock);
	*id = id_make(channel, context, ps, type);
	pthread_mutex_unlock(&cm->lock);
	return *id ? 0 : ENOMEM;
}

void cm_destroy_id(struct cm_id *id, unsigned *read)
{
	KEEP_ERRNO;
	struct cm *cm = id->cm;

	if (cm_is_forked(cm)) {
		*read = id->events_read;
		list_del(&id->of_channel);
		free(id->spare);
		free(id);
		return;
	}
	pthread_mutex_lock(&cm->lock);
	id_destroy(id, read);
	cm_settle(cm);
	pthread_mutex_unlock(&cm->lock);
}

void cm_set_context(struct cm_id *id, void *context)
{
	if (cm_is_forked(id->cm))
		return;
	enter(id);
	id->context = context;
	id->is_new = false;
	leave(id, 0, CAUSE_NONE);
}

static int bind_address(struct cm_id *id, const struct sockaddr *address)
{
	int error = address_copy(&id->src, address);
	uint16_t port;

	if (error)
		return error;
	error = path_check_local(&id->src);
	port = address_port(&id->src);
	address_set_port(&id->src, 0);
	if (!error)
		error = name_bind(id, port);
	if (error) {
		id->src = (union cm_address){ 0 };
		return error;
	}
	id->sgid = address_gid(&id->src);
	id->phase = CM_BOUND;
	return 0;
}

int cm_bind(struct cm_id *id, const struct sockaddr *address)
{
	KEEP_ERRNO;
	int error = EINVAL;

	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	if (id->phase != CM_IDLE)
		return leave(id, EINVAL, CAUSE_CM_STATE);
	error = bind_address(id, address);
	return leave_address(id, error,
			     !address_is_ip(address) ? CAUSE_CM_FAMILY :
			     error == EADDRINUSE     ? CAUSE_CM_PORT_USED :
			     error == EACCES	     ? CAUSE_CM_PORT_PRIVILEGED :
						       CAUSE_CM_NO_ADDRESS,
			     address);
}

/* To "any" goes to ourselves. */
static void make_definite(union cm_address *dst, const union cm_address *src)
{
	uint16_t port = address_port(dst);

	if (!address_is_any(dst))
		return;
	if (src->any.sa_family == dst->any.sa_family && !address_is_any(src))
		*dst = *src;
	else if (dst->any.sa_family == AF_INET)
		dst->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		dst->v6.sin6_addr = in6addr_loopback;
	address_set_port(dst, port);
}

/* The way to `to`; src: what was asked for. */
static int resolve(struct cm_id *id, const union cm_address *src, union cm_address *to)
{
	union cm_address found;
	uint16_t port = src->any.sa_family ? address_port(src) : 0;
	int error;

	if (src->any.sa_family && src->any.sa_family != to->any.sa_family && !address_is_any(src))
		return EINVAL;
	make_definite(to, src);
	error = path_source(src, to, &found);
	if (error)
		return error;
	if (id->phase == CM_BOUND) {
		address_set_port(&found, address_port(&id->src));
		id->src = found;
		return 0;
	}
	id->src = found;
	error = port ? name_bind(id, port) : name_take_any(id);
	if (error)
		id->src = (union cm_address){ 0 };
	return error;
}

int cm_resolve_addr(struct cm_id *id, const struct sockaddr *src, const struct sockaddr *dst, int timeout_ms)
{
	KEEP_ERRNO;
	union cm_address from = { 0 }, to;
	int error;

	(void)timeout_ms; /* nobody is asked */
	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	if (id->phase != CM_IDLE && id->phase != CM_BOUND)
		return leave(id, EINVAL, CAUSE_CM_STATE);
	error = address_copy(&to, dst);
	if (!error && id->phase == CM_BOUND)
		from = id->src;
	else if (!error && src)
		error = address_copy(&from, src);
	if (!error)
		error = resolve(id, &from, &to);
	if (error)
		return leave_address(id, error,
				     !address_is_ip(dst) || (src && !address_is_ip(src)) ? CAUSE_CM_FAMILY :
				     error == EADDRINUSE				 ? CAUSE_CM_PORT_USED :
											   CAUSE_CM_NO_ROUTE,
				     dst);
	id->dst = to;
	id->sgid = address_gid(&id->src);
	id->dgid = address_gid(&to);
	id->wire = transport_is_wire_only() || !gid_is_local(&id->dgid);
	id->phase = CM_ADDR_RESOLVED;
	channel_raise_plain(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return leave(id, 0, CAUSE_NONE);
}

int cm_resolve_route(struct cm_id *id, int timeout_ms)
{
	KEEP_ERRNO;
	int error;

	(void)timeout_ms;
	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	if (id->phase != CM_ADDR_RESOLVED)
		return leave(id, EINVAL, CAUSE_CM_STATE);
	/* Another user, or another RoCE, may have the address's UDP port: then nothing would ever be answered. */
	error = id->wire ? courier_open_ports(id) : 0;
	if (error) {
		channel_raise_plain(id, RDMA_CM_EVENT_ROUTE_ERROR, -error);
		return leave(id, 0, CAUSE_NONE);
	}
	id->mtu = path_mtu(&id->sgid);
	id->phase = CM_ROUTE_RESOLVED;
	channel_raise_plain(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return leave(id, 0, CAUSE_NONE);
}

int cm_query(struct cm_id *id, struct cm_addresses *addresses)
{
	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	*addresses = (struct cm_addresses){
		.src = id->src.storage,
		.dst = id->dst.storage,
		.sgid = id->sgid,
		.dgid = id->dgid,
		.mtu = id->mtu,
		.traffic_class = id->traffic_class,
		.hop_limit = id->hop_limit,
		.packet_lifetime = id->timeout ? id->timeout - 1u : 0,
	};
	return leave(id, 0, CAUSE_NONE);
}

int cm_listen(struct cm_id *id, int backlog)
{
	KEEP_ERRNO;
	static const struct sockaddr_in any = { .sin_family = AF_INET };
	int error = 0;

	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	if (id->phase == CM_IDLE)
		error = bind_address(id, (const struct sockaddr *)&any);
	if (!error && id->phase != CM_BOUND)
		return leave(id, EINVAL, CAUSE_CM_STATE);
	if (!error)
		error = name_check_alone(id);
	if (error)
		return leave(id, error, CAUSE_CM_PORT_USED);
	id->backlog = backlog > 0 && backlog < MAX_BACKLOG ? backlog : MAX_BACKLOG;
	id->phase = CM_LISTENING;
	list_add_tail(&id->cm->listeners, &id->of_listeners);
	courier_open_ports(id);
	return leave(id, 0, CAUSE_NONE);
}

int cm_connect(struct cm_id *id, const struct rdma_conn_param *param, const struct ibv_ece *ece)
{
	KEEP_ERRNO;
	int error;

	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	if (id->phase != CM_ROUTE_RESOLVED || !param)
		return leave(id, EINVAL, CAUSE_CM_STATE);
	error = conn_request(id, param, ece);
	if (error)
		return leave(id, error, CAUSE_CM_PRIVATE_DATA);
	id->phase = CM_CONNECTING;
	return leave(id, 0, CAUSE_NONE);
}

int cm_accept(struct cm_id *id, const struct rdma_conn_param *param, uint32_t qkey, const struct ibv_ece *ece)
{
	KEEP_ERRNO;
	bool asked;
	int error;

	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	asked = id->state == CONN_REQ_RECEIVED || id->state == CONN_SIDR_RECEIVED;
	if (id->phase != CM_CONNECTING)
		return leave(id, EINVAL, CAUSE_CM_STATE);
	error = param ? conn_reply(id, param, qkey, ece) : conn_ready(id);
	/* As the kernel: the other end is not left waiting. It does not matter whether there is one that waits. */
	if (error)
		conn_reject(id, NULL, 0, MAD_REJ_CONSUMER);
	return leave(id, error, asked ? CAUSE_CM_PRIVATE_DATA : CAUSE_CM_STATE);
}

int cm_reject(struct cm_id *id, const void *private_data, uint8_t length, uint8_t reason)
{
	KEEP_ERRNO;
	int error = EINVAL;

	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	if (id->phase == CM_CONNECTING)
		error = conn_reject(id, private_data, length, reason);
	return leave(id, error, CAUSE_CM_STATE);
}

int cm_disconnect(struct cm_id *id)
{
	KEEP_ERRNO;
	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	if (id->phase != CM_CONNECTING && id->phase != CM_DISCONNECTED)
		return leave(id, EINVAL, CAUSE_CM_STATE);
	/* Of one that is not, or no more, or not yet connected there is nothing to say: as rdma_disconnect(3), no error. */
	conn_disconnect(id);
	return leave(id, 0, CAUSE_NONE);
}

int cm_notify(struct cm_id *id, enum ibv_event_type event)
{
	KEEP_ERRNO;
	int error = EINVAL;

	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	if (event == IBV_EVENT_COMM_EST)
		error = conn_established(id);
	return leave(id, error, CAUSE_CM_STATE);
}

static bool is_known(const struct cm_id *id, enum ibv_qp_state state)
{
	switch (id->state) {
	case CONN_REQ_SENT: /* there is no peer yet */
		return state == IBV_QPS_INIT;
	case CONN_REQ_RECEIVED:
	case CONN_REP_SENT:
	case CONN_REP_RECEIVED:
	case CONN_ESTABLISHED:
		return true;
	default:
		return state == IBV_QPS_INIT && id->phase != CM_DISCONNECTED;
	}
}

static bool is_acknowledged(const struct cm_id *id)
{
	return id->type == IBV_QPT_RC || id->type == IBV_QPT_XRC_SEND || id->type == IBV_QPT_XRC_RECV;
}

static void fill_init(const struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	attr->pkey_index = 0;
	attr->port_num = 1;
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if (id->type == IBV_QPT_UD) {
		attr->qkey = id->qkey ? id->qkey : id->ps == RDMA_PS_UDP ? RDMA_UDP_QKEY : 0;
		*mask |= IBV_QP_QKEY;
		return;
	}
	attr->qp_access_flags = 0;
	if (id->state != CONN_NONE) {
		attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		if (id->responder_resources)
			attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	}
	*mask |= IBV_QP_ACCESS_FLAGS;
}

static void fill_rtr(const struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	attr->ah_attr = (struct ibv_ah_attr){ .grh = { .dgid = id->dgid,
						       .flow_label = id->flow_label,
						       .hop_limit = id->hop_limit,
						       .traffic_class = id->traffic_class },
					      .is_global = 1,
					      .port_num = 1 };
	attr->path_mtu = id->mtu;
	attr->dest_qp_num = id->remote_qpn;
	attr->rq_psn = id->rq_psn;
	if (is_acknowledged(id) && id->type != IBV_QPT_XRC_SEND) {
		*mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		attr->max_dest_rd_atomic = id->responder_resources;
		attr->min_rnr_timer = 0;
	}
}

static void fill_rts(const struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	*mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	attr->sq_psn = id->sq_psn;
	if (!is_acknowledged(id))
		return;
	*mask |= IBV_QP_TIMEOUT;
	attr->timeout = id->has_timeout ? id->ack_timeout : id->timeout;
	if (id->type == IBV_QPT_XRC_RECV)
		return;
	*mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	attr->retry_cnt = id->retry_count;
	attr->rnr_retry = id->rnr_retry_count;
	attr->max_rd_atomic = id->initiator_depth;
}

int cm_init_qp_attr(struct cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *attr, int *mask)
{
	int error = 0;

	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	attr->qp_state = state;
	if (id->type == IBV_QPT_UD && (state == IBV_QPS_RTR || state == IBV_QPS_RTS)) {
		*mask = IBV_QP_STATE;
		if (state == IBV_QPS_RTS) {
			*mask |= IBV_QP_SQ_PSN;
			attr->sq_psn = 0;
		}
	} else if (id->type != IBV_QPT_UD && !is_known(id, state)) {
		error = EINVAL;
	} else if (state == IBV_QPS_INIT) {
		fill_init(id, attr, mask);
	} else if (state == IBV_QPS_RTR) {
		fill_rtr(id, attr, mask);
	} else if (state == IBV_QPS_RTS) {
		fill_rts(id, attr, mask);
	} else {
		error = EINVAL;
	}
	return leave(id, error, CAUSE_CM_STATE);
}

static bool get_int(const void *value, size_t length, int *number)
{
	if (length != sizeof(*number))
		return false;
	memcpy(number, value, sizeof(*number));
	return true;
}

/* 0, EINVAL, or ENOSYS for an option that there is not. */
static int set_own_option(struct cm_id *id, int name, const void *value, size_t length)
{
	int number = 0;

	switch (name) {
	case RDMA_OPTION_ID_TOS:
		if (length != 1)
			return EINVAL;
		id->traffic_class = *(const uint8_t *)value;
		return 0;
	case RDMA_OPTION_ID_REUSEADDR:
		if (!get_int(value, length, &number) || (id->phase != CM_IDLE && (!number || id->phase == CM_LISTENING)))
			return EINVAL;
		id->reuse = number;
		return 0;
	case RDMA_OPTION_ID_AFONLY:
		if (!get_int(value, length, &number) || (id->phase != CM_IDLE && id->phase != CM_BOUND))
			return EINVAL;
		return name_set_afonly(id, number);
	case RDMA_OPTION_ID_ACK_TIMEOUT:
		if (length != 1 || id->type == IBV_QPT_UD || id->type == IBV_QPT_UC)
			return EINVAL;
		id->ack_timeout = *(const uint8_t *)value & 31;
		id->has_timeout = true;
		return 0;
	default:
		return ENOSYS;
	}
}

int cm_set_option(struct cm_id *id, int level, int name, const void *value, size_t length)
{
	KEEP_ERRNO;
	int error;

	if (cm_is_forked(id->cm))
		return ENODEV;
	enter(id);
	if (level == RDMA_OPTION_ID) {
		error = set_own_option(id, name, value, length);
	} else if (level != RDMA_OPTION_IB || name != RDMA_OPTION_IB_PATH) {
		error = ENOSYS;
	} else if (id->phase != CM_ADDR_RESOLVED || !length || length % sizeof(struct ibv_path_data)) {
		error = EINVAL;
	} else { /* the addresses say it all: what is asked of the path is its being there */
		error = 0;
		id->mtu = path_mtu(&id->sgid);
		id->phase = CM_ROUTE_RESOLVED;
		channel_raise_plain(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	}
	return leave(id, error, CAUSE_CM_STATE);
}
