/* SPDX-License-Identifier: MIT */
/*
 * The exchange of messages: specification chapter 12, with what Linux's ib_cm and rdma_cm make of it, on which programs rely. The
 * caller's side (conn_request and so on) sends; conn_take() takes what comes; conn_timer() sends again or gives up. What comes of
 * it are events.
 *
 * Both ends repeat what was not answered, first soon and then at the pace of the CM's response timeout, and both know what they
 * have seen already: a REQ by its sender's comm ID and CA, a peer's QP by QPN and CA.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cm/engine.h"
#include "local/attach.h"
#include "nic/gid.h"
#include "nic/nic.h"
#include "nic/transport.h"

/* As Linux's rdma_cm has them: 4.3 s of response timeout, 15 retries; an application that takes its time, 69 s; 1.1 s of a packet's
 * life on the network; the time until a QPN can be used again, from these. */
#define RESPONSE_TIMEOUT 20
#define MAX_RETRIES	 15
#define MRA_TIMEOUT	 24
#define PACKET_LIFETIME	 18
#define TARGET_ACK_DELAY 13 /* the device's local_ca_ack_delay */
#define PKEY		 0xffff

/* ns: when a message is first sent again; each time after twice as much, up to the specification's. A full socket or a lost packet
 * shall not cost seconds. */
#define FIRST_RETRY 500000000ull

/* 4.096 us * 2^n in ns */
static uint64_t timeout_ns(uint8_t exponent)
{
	return 4096ull << exponent;
}

static struct list *bucket(struct list *table, uint64_t a, uint64_t b)
{
	uint64_t hash = (a ^ b * 0x9e3779b97f4a7c15u) * 0x9e3779b97f4a7c15u;

	return &table[hash >> 32 & (CM_BUCKETS - 1)];
}

static struct cm_id *find(struct cm *cm, uint32_t local_id)
{
	list_for_each(node, bucket(cm->by_comm, local_id, 0)) {
		struct cm_id *id = list_entry(node, struct cm_id, of_comm);

		if (id->local_id == local_id)
			return id;
	}
	return NULL;
}

bool conn_is_ours(struct cm *cm, uint32_t local_id)
{
	return find(cm, local_id);
}

/* Who was asked by that comm ID (or SIDR request) of that CA (or, SIDR: address). */
static struct cm_id *find_remote(struct cm *cm, uint32_t remote_id, uint64_t guid, const union ibv_gid *from, bool is_ud)
{
	list_for_each(node, bucket(cm->by_remote, remote_id, is_ud ? 1 : guid)) {
		struct cm_id *id = list_entry(node, struct cm_id, of_remote);

		if (id->remote_id != remote_id || (id->type == IBV_QPT_UD) != is_ud)
			continue;
		if (is_ud ? !memcmp(&id->dgid, from, sizeof(*from)) : id->remote_guid == guid)
			return id;
	}
	return NULL;
}

static struct cm_id *find_qp(struct cm *cm, uint32_t qpn, uint64_t guid)
{
	list_for_each(node, bucket(cm->by_qpn, qpn, guid)) {
		struct cm_id *id = list_entry(node, struct cm_id, of_qpn);

		if (id->remote_qpn == qpn && id->remote_guid == guid)
			return id;
	}
	return NULL;
}

/* A comm ID that is slow to be reused. */
static void begin(struct cm_id *id)
{
	struct cm *cm = id->cm;

	do {
		id->local_id = cm->slot << CM_ID_BITS | (cm->next_id++ & ((1u << CM_ID_BITS) - 1));
	} while (!id->local_id || find(cm, id->local_id));
	list_add_tail(bucket(cm->by_comm, id->local_id, 0), &id->of_comm);
}

static void know_remote(struct cm_id *id)
{
	list_add_tail(bucket(id->cm->by_remote, id->remote_id, id->type == IBV_QPT_UD ? 1 : id->remote_guid), &id->of_remote);
}

static void know_qp(struct cm_id *id)
{
	list_add_tail(bucket(id->cm->by_qpn, id->remote_qpn, id->remote_guid), &id->of_qpn);
}

/* It is not asked for any more. */
static void let_go_of_name(struct cm_id *id)
{
	if (id->keeps_name)
		name_release(id);
}

/* Nothing more of it is expected. */
static void end(struct cm_id *id)
{
	id->state = CONN_NONE;
	let_go_of_name(id);
	will_end(id);
	timer_clear(id);
	list_del(&id->of_comm);
	list_del(&id->of_remote);
	list_del(&id->of_qpn);
	if (!id->channel)
		id_free(id);
}

static void enter_timewait(struct cm_id *id)
{
	let_go_of_name(id);
	will_end(id);
	id->state = CONN_TIMEWAIT;
	timer_set(id, nic_now() + timeout_ns(id->timeout));
}

static void set_way(const struct cm_id *id, struct letter *letter)
{
	*letter = (struct letter){
		.from = id->sgid, .to = id->dgid, .wire = id->wire, .traffic_class = id->traffic_class, .hop_limit = id->hop_limit
	};
	courier_stamp(letter);
}

static struct mad message(const struct cm_id *id, enum mad_attribute attribute)
{
	return (struct mad){ .attribute = attribute, .tid = id->tid, .local_id = id->local_id, .remote_id = id->remote_id };
}

/* Sends once. */
static void send_mad(struct cm_id *id, const struct mad *mad)
{
	struct letter letter;

	set_way(id, &letter);
	mad_encode(mad, letter.mad);
	if (mad->attribute == MAD_REJ && !mad->remote_id)
		letter.service_id = id->service_id;
	id->cm->send(id->cm, &letter);
}

static void send_again(struct cm_id *id)
{
	uint64_t pause = id->sent < 20 ? FIRST_RETRY << id->sent : UINT64_MAX;
	/* The other CM's time to answer, and the way there and back. */
	uint64_t most = 2 * timeout_ns(id->remote_timeout) + timeout_ns(id->packet_lifetime);

	id->sent++;
	timer_set(id, nic_now() + (pause < most ? pause : most));
	id->cm->send(id->cm, &id->letter);
}

/* Sends, and again until there is an answer. */
static void send_lasting(struct cm_id *id, const struct mad *mad, enum cm_state state)
{
	set_way(id, &id->letter);
	mad_encode(mad, id->letter.mad);
	id->sent = 0;
	id->state = state;
	send_again(id);
}

static bool keep_private(uint8_t *to, size_t room, const void *data, size_t length)
{
	if (length > room || (length && !data))
		return false;
	if (length)
		memcpy(to, data, length);
	return true;
}

static void raise_private(struct cm_id *id, struct cm_event *event, const uint8_t *data, size_t length)
{
	event->id = id;
	memcpy(event->data, data, length);
	if (event->is_ud)
		event->param.ud.private_data_len = (uint8_t)length;
	else
		event->param.conn.private_data_len = (uint8_t)length;
	channel_raise(id, event, NULL);
}

/* There was a connection; said once. */
static void raise_disconnected(struct cm_id *id, int status)
{
	if (id->phase != CM_CONNECTING)
		return;
	id->phase = CM_DISCONNECTED;
	channel_raise_plain(id, RDMA_CM_EVENT_DISCONNECTED, status);
}

bool conn_read_service(const struct mad *mad, uint64_t *service_id, struct mad_ip *ip)
{
	bool is_req = mad->attribute == MAD_REQ;

	*service_id = is_req ? mad->req.service_id : mad->sidr_req.service_id;
	switch (*service_id >> 16) {
	case RDMA_PS_TCP:
	case RDMA_PS_UDP:
	case RDMA_PS_IB:
	case RDMA_PS_IPOIB:
		return mad_ip_decode(is_req ? mad->req.private_data : mad->sidr_req.private_data, ip);
	default:
		return false;
	}
}

static void write_service(const struct cm_id *id, uint8_t *private_data)
{
	const struct mad_ip ip = { .version = gid_is_ipv4(&id->dgid) ? 4 : 6,
				   .source_port = address_port(&id->src),
				   .source = id->sgid,
				   .destination = id->dgid };

	mad_ip_encode(&ip, private_data);
}

/* The death of a process of this host is noticed by who is attached to it (local/attach.h). */
static void watch_peer(struct cm_id *id)
{
	uint32_t slot = id->remote_id >> CM_ID_BITS;
	enum cause_code why = CAUSE_NONE;
	struct peer *peer;

	if (!id->cm->nic || id->wire || slot == id->cm->slot)
		return;
	peer = attach_get(id->cm->nic, slot, 0, &why);
	if (peer)
		attach_put(id->cm->nic, peer);
	else if (why == CAUSE_PEER_ABSENT)
		conn_peer_died(id);
}

/* Asking */

static uint8_t at_most_7(uint8_t count)
{
	return count < 7 ? count : 7;
}

static int request_datagrams(struct cm_id *id, const struct rdma_conn_param *param)
{
	struct mad mad;

	begin(id);
	id->tid = id->local_id;
	mad = message(id, MAD_SIDR_REQ);
	mad.sidr_req.pkey = PKEY;
	mad.sidr_req.service_id = id->service_id;
	write_service(id, mad.sidr_req.private_data);
	if (!keep_private(mad.sidr_req.private_data + MAD_IP_BYTES, CM_SIDR_REQ_PRIVATE, param->private_data,
			  param->private_data_len)) {
		end(id);
		return EINVAL;
	}
	send_lasting(id, &mad, CONN_SIDR_SENT);
	return 0;
}

static void set_transport(const struct cm_id *id, struct mad_req *req)
{
	req->transport = id->type == IBV_QPT_RC ? MAD_RC : id->type == IBV_QPT_UC ? MAD_UC : MAD_EXTENDED;
	req->extended_transport = req->transport == MAD_EXTENDED;
}

int conn_request(struct cm_id *id, const struct rdma_conn_param *param, const struct ibv_ece *ece)
{
	struct mad mad;
	struct mad_req *req = &mad.req;

	id->service_id = MAD_SERVICE_ID(id->ps, address_port(&id->dst));
	id->remote_timeout = RESPONSE_TIMEOUT;
	id->max_retries = MAX_RETRIES;
	id->packet_lifetime = id->has_timeout && id->ack_timeout ? id->ack_timeout - 1u : PACKET_LIFETIME;
	id->timeout = id->packet_lifetime + 1u;
	id->remote_id = 0;
	if (id->type == IBV_QPT_UD)
		return request_datagrams(id, param);
	begin(id);
	id->tid = id->local_id;
	id->local_qpn = param->qp_num & 0xffffff;
	id->responder_resources = param->responder_resources;
	id->initiator_depth = param->initiator_depth;
	id->retry_count = at_most_7(param->retry_count);
	id->rnr_retry_count = at_most_7(param->rnr_retry_count);
	mad = message(id, MAD_REQ);
	mad.modifier = ece ? ece->options : 0;
	*req = (struct mad_req){ .vendor_id = ece ? ece->vendor_id : 0,
				 .service_id = id->service_id,
				 .ca_guid = id->cm->guid,
				 .qpn = id->local_qpn,
				 .responder_resources = id->responder_resources,
				 .initiator_depth = id->initiator_depth,
				 .remote_timeout = RESPONSE_TIMEOUT,
				 .local_timeout = RESPONSE_TIMEOUT,
				 .flow_control = param->flow_control,
				 .psn = id->rq_psn,
				 .retry_count = id->retry_count,
				 .rnr_retry_count = id->rnr_retry_count,
				 .max_retries = MAX_RETRIES,
				 .pkey = PKEY,
				 .mtu = id->mtu,
				 .srq = !!param->srq,
				 .primary = { .local_lid = 0xffff,
					      .remote_lid = 0xffff,
					      .local_gid = id->sgid,
					      .remote_gid = id->dgid,
					      .flow_label = id->flow_label,
					      .traffic_class = id->traffic_class,
					      .hop_limit = id->hop_limit,
					      .ack_timeout = id->timeout } };
	set_transport(id, req);
	write_service(id, req->private_data);
	if (!keep_private(req->private_data + MAD_IP_BYTES, CM_REQ_PRIVATE, param->private_data, param->private_data_len)) {
		end(id);
		return EINVAL;
	}
	send_lasting(id, &mad, CONN_REQ_SENT);
	return 0;
}

/* Being asked */

static struct letter answer_to(const struct letter *question)
{
	struct letter answer = { .from = question->to,
				 .to = question->from,
				 .wire = question->wire,
				 .traffic_class = question->traffic_class,
				 .hop_limit = 64 };

	courier_stamp(&answer);
	return answer;
}

static void refuse(struct cm *cm, const struct letter *question, const struct mad *asked, enum mad_about about,
		   enum mad_reason reason)
{
	struct letter answer = answer_to(question);
	struct mad mad = { .attribute = MAD_REJ,
			   .tid = asked->tid,
			   .local_id = about == MAD_ABOUT_REP ? asked->remote_id : 0,
			   .remote_id = asked->local_id,
			   .rej = { .about = about, .reason = reason } };

	mad_encode(&mad, answer.mad);
	cm->send(cm, &answer);
}

bool conn_answer_for_nobody(const struct letter *question, struct letter *answer)
{
	struct mad asked, mad = { 0 };

	if (!mad_decode(question->mad, &asked))
		return false;
	mad = (struct mad){ .tid = asked.tid, .local_id = asked.remote_id, .remote_id = asked.local_id };
	switch (asked.attribute) {
	case MAD_REQ:
		mad.attribute = MAD_REJ;
		mad.rej.reason = MAD_REJ_SERVICE_ID;
		break;
	case MAD_SIDR_REQ:
		mad.attribute = MAD_SIDR_REP;
		mad.local_id = asked.local_id;
		mad.sidr_rep.status = MAD_SIDR_UNSUPPORTED;
		mad.sidr_rep.service_id = asked.sidr_req.service_id;
		break;
	case MAD_DREQ:
		mad.attribute = MAD_DREP;
		break;
	case MAD_REP: /* on this host: the process that asked has gone. Of other hosts such are met with silence. */
		if (question->wire)
			return false;
		mad.attribute = MAD_REJ;
		mad.rej.about = MAD_ABOUT_REP;
		mad.rej.reason = MAD_REJ_TIMEOUT;
		break;
	default:
		return false;
	}
	*answer = answer_to(question);
	mad_encode(&mad, answer->mad);
	return true;
}

static bool is_asked_for(const struct cm_id *listener, const struct mad_ip *ip)
{
	const union ibv_gid gid = address_gid(&listener->src);
	bool v4 = listener->src.any.sa_family == AF_INET;

	if (address_is_any(&listener->src))
		return !listener->afonly || v4 == (ip->version == 4);
	return !memcmp(&gid, &ip->destination, sizeof(gid));
}

static struct cm_id *find_listener(struct cm *cm, uint64_t service_id, const struct mad_ip *ip)
{
	list_for_each(node, &cm->listeners) {
		struct cm_id *id = list_entry(node, struct cm_id, of_listeners);

		if (MAD_SERVICE_ID(id->ps, address_port(&id->src)) == service_id && is_asked_for(id, ip))
			return id;
	}
	return NULL;
}

/* A new id for a request; NULL when it is dropped, as if it had got lost: its sender will ask again. */
static struct cm_id *accept_request(struct cm_id *listener, const struct letter *letter, const struct mad_ip *ip,
				    enum ibv_qp_type type)
{
	struct cm_id *id;

	if (listener->pending >= listener->backlog) {
		cm_record(listener->cm, listener, CAUSE_CM_BACKLOG, 0, (uint64_t)listener->backlog);
		return NULL;
	}
	id = id_make(listener->channel, NULL, listener->ps, type);
	if (!id)
		return NULL;
	id->phase = CM_CONNECTING;
	id->listener = listener;
	id->is_new = true;
	listener->pending++;
	address_from_gid(&id->src, &ip->destination, ip->version, address_port(&listener->src));
	address_from_gid(&id->dst, &ip->source, ip->version, ip->source_port);
	id->sgid = letter->to;
	id->dgid = letter->from;
	id->wire = letter->wire;
	id->hop_limit = 64;
	id->service_id = MAD_SERVICE_ID(id->ps, address_port(&id->src));
	begin(id);
	name_keep(id, listener);
	return id;
}

static enum ibv_qp_type type_of(const struct mad_req *req)
{
	switch (req->transport) {
	case MAD_RC:
		return IBV_QPT_RC;
	case MAD_UC:
		return IBV_QPT_UC;
	default:
		return IBV_QPT_XRC_RECV; /* the other end of XRC_SEND */
	}
}

/* It was asked before. */
static void take_req_again(struct cm_id *id, const struct letter *letter, const struct mad *mad)
{
	struct mad mra;

	switch (id->state) {
	case CONN_REQ_RECEIVED: /* the application has not said anything yet */
		mra = message(id, MAD_MRA);
		mra.mra.about = MAD_ABOUT_REQ;
		mra.mra.timeout = MRA_TIMEOUT;
		send_mad(id, &mra);
		break;
	case CONN_REP_SENT:
		id->cm->send(id->cm, &id->letter);
		break;
	case CONN_TIMEWAIT:
		refuse(id->cm, letter, mad, MAD_ABOUT_REQ, MAD_REJ_STALE);
		break;
	default:
		break;
	}
}

/* The peer uses a QP again that we still think connected to one of ours. */
static void end_stale(struct cm_id *id)
{
	cm_record(id->cm, id, CAUSE_CM_STALE, 0, id->remote_qpn);
	if (id->state == CONN_ESTABLISHED)
		conn_disconnect(id);
}

static void raise_request(struct cm_id *id, const struct mad *mad, const struct ibv_ece *ece)
{
	const struct mad_req *req = &mad->req;
	struct cm_event event = { .listener = id->listener, .type = RDMA_CM_EVENT_CONNECT_REQUEST, .ece = *ece };

	event.param.conn = (struct rdma_conn_param){ .responder_resources = req->initiator_depth,
						     .initiator_depth = req->responder_resources,
						     .flow_control = req->flow_control,
						     .retry_count = req->retry_count,
						     .rnr_retry_count = req->rnr_retry_count,
						     .srq = req->srq,
						     .qp_num = req->qpn };
	raise_private(id, &event, req->private_data + MAD_IP_BYTES, CM_REQ_PRIVATE);
}

static void take_req(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	const struct mad_req *req = &mad->req;
	struct cm_id *id, *listener, *stale;
	uint64_t service_id;
	struct mad_ip ip;

	if (memcmp(&req->primary.local_gid, &letter->from, sizeof(letter->from))) {
		cm_record(cm, NULL, CAUSE_CM_MALFORMED, EPROTO, mad->attribute);
		return;
	}
	id = find_remote(cm, mad->local_id, req->ca_guid, &letter->from, false);
	if (id) {
		take_req_again(id, letter, mad);
		return;
	}
	stale = find_qp(cm, req->qpn, req->ca_guid);
	if (stale) {
		refuse(cm, letter, mad, MAD_ABOUT_REQ, MAD_REJ_STALE);
		end_stale(stale);
		return;
	}
	listener = conn_read_service(mad, &service_id, &ip) ? find_listener(cm, service_id, &ip) : NULL;
	if (!listener) {
		refuse(cm, letter, mad, MAD_ABOUT_REQ, MAD_REJ_SERVICE_ID);
		return;
	}
	if (listener->type != type_of(req) && !(listener->type == IBV_QPT_XRC_SEND && type_of(req) == IBV_QPT_XRC_RECV)) {
		refuse(cm, letter, mad, MAD_ABOUT_REQ, MAD_REJ_TRANSPORT);
		return;
	}
	id = accept_request(listener, letter, &ip, type_of(req));
	if (!id)
		return;
	id->tid = mad->tid;
	id->remote_id = mad->local_id;
	id->remote_guid = req->ca_guid;
	id->remote_qpn = req->qpn;
	id->sq_psn = req->psn;
	/* What it may do is what we have to bear, and the other way round. */
	id->initiator_depth = req->responder_resources;
	id->responder_resources = req->initiator_depth;
	id->retry_count = req->retry_count;
	id->rnr_retry_count = req->rnr_retry_count;
	id->mtu = req->mtu;
	id->traffic_class = req->primary.traffic_class;
	id->flow_label = req->primary.flow_label;
	id->hop_limit = req->primary.hop_limit;
	id->timeout = req->primary.ack_timeout;
	id->packet_lifetime = req->primary.ack_timeout ? req->primary.ack_timeout - 1u : 0;
	id->remote_timeout = req->local_timeout;
	id->max_retries = req->max_retries;
	id->state = CONN_REQ_RECEIVED;
	know_remote(id);
	know_qp(id);
	raise_request(id, mad, &(struct ibv_ece){ .vendor_id = req->vendor_id, .options = mad->modifier });
}

static void take_sidr_req(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	struct cm_event event = { .type = RDMA_CM_EVENT_CONNECT_REQUEST, .is_ud = true };
	struct cm_id *id = find_remote(cm, mad->local_id, 0, &letter->from, true), *listener;
	uint64_t service_id;
	struct letter answer;
	struct mad_ip ip;

	if (id) { /* asked before: answered again, if it was answered */
		if (id->state == CONN_SIDR_ANSWERED)
			cm->send(cm, &id->letter);
		return;
	}
	listener = conn_read_service(mad, &service_id, &ip) ? find_listener(cm, service_id, &ip) : NULL;
	if (!listener || listener->type != IBV_QPT_UD) {
		if (conn_answer_for_nobody(letter, &answer))
			cm->send(cm, &answer);
		return;
	}
	id = accept_request(listener, letter, &ip, IBV_QPT_UD);
	if (!id)
		return;
	id->tid = mad->tid;
	id->remote_id = mad->local_id;
	id->mtu = path_mtu(&id->sgid);
	id->traffic_class = letter->traffic_class;
	id->timeout = PACKET_LIFETIME + 1;
	id->state = CONN_SIDR_RECEIVED;
	know_remote(id);
	event.listener = listener;
	raise_private(id, &event, mad->sidr_req.private_data + MAD_IP_BYTES, CM_SIDR_REQ_PRIVATE);
}

/* Answering */

static int answer_datagrams(struct cm_id *id, const void *private_data, uint8_t length, enum mad_sidr_status status)
{
	struct mad mad = message(id, MAD_SIDR_REP);

	mad.local_id = id->remote_id;
	mad.sidr_rep.status = status;
	mad.sidr_rep.qpn = status ? 0 : id->local_qpn;
	mad.sidr_rep.qkey = status ? 0 : id->qkey;
	mad.sidr_rep.service_id = id->service_id;
	if (!keep_private(mad.sidr_rep.private_data, CM_SIDR_REP_PRIVATE, private_data, length))
		return EINVAL;
	set_way(id, &id->letter);
	mad_encode(&mad, id->letter.mad);
	id->state = CONN_SIDR_ANSWERED;
	id->cm->send(id->cm, &id->letter);
	return 0;
}

int conn_reply(struct cm_id *id, const struct rdma_conn_param *param, uint32_t qkey, const struct ibv_ece *ece)
{
	struct mad mad = message(id, MAD_REP);
	struct mad_rep *rep = &mad.rep;

	if (id->state == CONN_SIDR_RECEIVED) {
		id->local_qpn = param->qp_num & 0xffffff;
		id->qkey = qkey ? qkey : RDMA_UDP_QKEY;
		return answer_datagrams(id, param->private_data, param->private_data_len, MAD_SIDR_VALID);
	}
	if (id->state != CONN_REQ_RECEIVED)
		return EINVAL;
	if (!keep_private(rep->private_data, CM_REP_PRIVATE, param->private_data, param->private_data_len))
		return EINVAL;
	id->local_qpn = param->qp_num & 0xffffff;
	id->responder_resources = param->responder_resources;
	id->initiator_depth = param->initiator_depth;
	mad.modifier = ece ? ece->options : 0;
	rep->qpn = id->local_qpn;
	rep->psn = id->rq_psn;
	rep->vendor_high = ece ? (uint8_t)(ece->vendor_id >> 16) : 0;
	rep->vendor_middle = ece ? (uint8_t)(ece->vendor_id >> 8) : 0;
	rep->vendor_low = ece ? (uint8_t)ece->vendor_id : 0;
	rep->responder_resources = param->responder_resources;
	rep->initiator_depth = param->initiator_depth;
	rep->target_ack_delay = TARGET_ACK_DELAY;
	rep->flow_control = param->flow_control;
	rep->rnr_retry_count = at_most_7(param->rnr_retry_count);
	rep->srq = !!param->srq;
	rep->ca_guid = id->cm->guid;
	will_make(id);
	send_lasting(id, &mad, CONN_REP_SENT);
	return 0;
}

static void send_rtu(struct cm_id *id)
{
	const struct mad mad = message(id, MAD_RTU);

	send_mad(id, &mad);
}

int conn_ready(struct cm_id *id)
{
	if (id->state != CONN_REP_RECEIVED)
		return EINVAL;
	id->state = CONN_ESTABLISHED;
	will_make(id);
	send_rtu(id);
	watch_peer(id);
	return 0;
}

int conn_established(struct cm_id *id)
{
	if (id->state == CONN_ESTABLISHED)
		return EISCONN;
	if (id->state != CONN_REP_SENT)
		return EINVAL;
	timer_clear(id);
	id->state = CONN_ESTABLISHED;
	let_go_of_name(id);
	channel_raise_plain(id, RDMA_CM_EVENT_ESTABLISHED, 0);
	watch_peer(id);
	return 0;
}

static int send_rej(struct cm_id *id, const void *private_data, uint8_t length, uint16_t reason)
{
	struct mad mad = message(id, MAD_REJ);

	if (!keep_private(mad.rej.private_data, CM_REJ_PRIVATE, private_data, length))
		return EINVAL;
	mad.rej.reason = reason;
	switch (id->state) {
	case CONN_REQ_RECEIVED:
		mad.rej.about = MAD_ABOUT_REQ;
		break;
	case CONN_REP_RECEIVED:
		mad.rej.about = MAD_ABOUT_REP;
		break;
	default:
		mad.rej.about = MAD_ABOUT_OTHER;
		break;
	}
	if (reason == MAD_REJ_TIMEOUT) { /* whose: there may be no comm ID of the receiver yet */
		mad.rej.info_length = sizeof(id->cm->guid);
		for (unsigned i = 0; i < sizeof(id->cm->guid); i++)
			mad.rej.info[i] = (uint8_t)(id->cm->guid >> (56 - 8 * i));
	}
	send_mad(id, &mad);
	return 0;
}

int conn_reject(struct cm_id *id, const void *private_data, uint8_t length, uint16_t reason)
{
	int error;

	switch (id->state) {
	case CONN_SIDR_RECEIVED:
		return answer_datagrams(id, private_data, length, MAD_SIDR_REJECTED);
	case CONN_REQ_SENT:
	case CONN_REQ_RECEIVED:
	case CONN_REP_RECEIVED:
		error = send_rej(id, private_data, length, reason);
		if (!error)
			end(id);
		return error;
	case CONN_REP_SENT:
		error = send_rej(id, private_data, length, reason);
		if (!error)
			enter_timewait(id);
		return error;
	default:
		return EINVAL;
	}
}

int conn_disconnect(struct cm_id *id)
{
	struct mad mad;

	switch (id->state) {
	case CONN_ESTABLISHED:
		id->tid = (uint64_t)1 << 32 | id->local_id; /* of a transaction of our own */
		mad = message(id, MAD_DREQ);
		mad.dreq.qpn = id->remote_qpn;
		send_lasting(id, &mad, CONN_DREQ_SENT);
		return 0;
	case CONN_DREQ_RECEIVED:
		mad = message(id, MAD_DREP);
		send_mad(id, &mad);
		enter_timewait(id);
		return 0;
	default:
		return EINVAL;
	}
}

void conn_inherit(struct cm *cm, const struct seg_will *will)
{
	struct cm_id *id = id_make_heir(cm);

	if (!id)
		return;
	id->sgid = will->sgid;
	id->dgid = will->dgid;
	id->traffic_class = will->traffic_class;
	id->hop_limit = will->hop_limit;
	id->wire = true;
	id->local_id = will->local_id;
	id->remote_id = will->remote_id;
	id->remote_qpn = will->remote_qpn;
	id->remote_timeout = RESPONSE_TIMEOUT;
	id->max_retries = MAX_RETRIES;
	id->packet_lifetime = PACKET_LIFETIME;
	id->timeout = PACKET_LIFETIME + 1;
	list_add_tail(bucket(cm->by_comm, id->local_id, 0), &id->of_comm);
	id->state = CONN_ESTABLISHED;
	cm_record(cm, id, CAUSE_CM_INHERITED, 0, will->remote_qpn);
	conn_disconnect(id);
}

bool conn_abandon(struct cm_id *id)
{
	switch (id->state) {
	case CONN_REQ_SENT:
		send_rej(id, NULL, 0, MAD_REJ_TIMEOUT);
		break;
	case CONN_REQ_RECEIVED:
	case CONN_REP_RECEIVED:
	case CONN_REP_SENT:
		send_rej(id, NULL, 0, MAD_REJ_CONSUMER);
		break;
	case CONN_SIDR_RECEIVED:
		answer_datagrams(id, NULL, 0, MAD_SIDR_REJECTED);
		/* fall through */
	case CONN_SIDR_ANSWERED: /* it may be asked for again */
		timer_set(id, nic_now() + timeout_ns(PACKET_LIFETIME));
		return true;
	case CONN_ESTABLISHED:
	case CONN_DREQ_RECEIVED:
		conn_disconnect(id);
		return true;
	case CONN_DREQ_SENT:
	case CONN_TIMEWAIT:
		return true;
	default:
		break;
	}
	id->state = CONN_NONE;
	return false;
}

/* What comes back. Each looks whether it is from where the id's peer is. */

static struct cm_id *find_asker(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	struct cm_id *id = find(cm, mad->remote_id);

	return id && !memcmp(&id->dgid, &letter->from, sizeof(id->dgid)) ? id : NULL;
}

static struct cm_id *find_connected(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	struct cm_id *id = find_asker(cm, letter, mad);

	return id && id->remote_id == mad->local_id ? id : NULL;
}

static void raise_response(struct cm_id *id, const struct mad *mad)
{
	const struct mad_rep *rep = &mad->rep;
	struct cm_event event = { .type = RDMA_CM_EVENT_CONNECT_RESPONSE };

	event.ece.vendor_id = (uint32_t)rep->vendor_high << 16 | (uint32_t)rep->vendor_middle << 8 | rep->vendor_low;
	event.ece.options = mad->modifier;
	event.param.conn = (struct rdma_conn_param){ .responder_resources = rep->initiator_depth,
						     .initiator_depth = rep->responder_resources,
						     .flow_control = rep->flow_control,
						     .rnr_retry_count = rep->rnr_retry_count,
						     .srq = rep->srq,
						     .qp_num = rep->qpn };
	raise_private(id, &event, rep->private_data, CM_REP_PRIVATE);
}

/* Of who asks for a long time, as the kernel has it: the responder's delay, if that is longer than the packet's life. */
static uint8_t ack_timeout(uint8_t delay, uint8_t lifetime)
{
	uint8_t timeout = lifetime + 1u;

	if (timeout >= delay)
		timeout += delay >= timeout - 1;
	else
		timeout = delay + (timeout >= delay - 1);
	return timeout < 31 ? timeout : 31;
}

static void take_rep(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	const struct mad_rep *rep = &mad->rep;
	struct cm_id *id = find_asker(cm, letter, mad), *stale;
	struct mad mra;

	if (!id)
		return;
	if (id->state != CONN_REQ_SENT) { /* it came before, or too late */
		if (id->remote_id != mad->local_id)
			return;
		if (id->state == CONN_ESTABLISHED) {
			send_rtu(id);
		} else if (id->state == CONN_REP_RECEIVED) {
			mra = message(id, MAD_MRA);
			mra.mra.about = MAD_ABOUT_REP;
			mra.mra.timeout = MRA_TIMEOUT;
			send_mad(id, &mra);
		}
		return;
	}
	stale = find_qp(cm, rep->qpn, rep->ca_guid);
	if (stale) {
		refuse(cm, letter, mad, MAD_ABOUT_REP, MAD_REJ_STALE);
		end_stale(stale);
		return;
	}
	timer_clear(id);
	id->remote_id = mad->local_id;
	id->remote_guid = rep->ca_guid;
	id->remote_qpn = rep->qpn;
	id->sq_psn = rep->psn;
	id->initiator_depth = rep->responder_resources;
	id->responder_resources = rep->initiator_depth;
	id->rnr_retry_count = rep->rnr_retry_count;
	id->timeout = ack_timeout(rep->target_ack_delay, id->timeout ? id->timeout - 1u : 0);
	id->state = CONN_REP_RECEIVED;
	know_qp(id);
	raise_response(id, mad);
}

static void take_rtu(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	struct cm_id *id = find_connected(cm, letter, mad);

	if (id && id->state == CONN_REP_SENT)
		conn_established(id);
}

static void take_mra(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	struct cm_id *id = find_asker(cm, letter, mad);

	if (!id || (id->state != CONN_REQ_SENT && (id->state != CONN_REP_SENT || id->remote_id != mad->local_id)))
		return;
	/* It has been received, and its answer takes that long. */
	timer_set(id, nic_now() + timeout_ns(mad->mra.timeout) + timeout_ns(id->packet_lifetime));
}

/* Whom a REJ is about, whose sender may have known no comm ID of ours: then the request by that CA's. */
static struct cm_id *find_rejected(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	uint64_t guid = 0;
	struct cm_id *id;

	if (mad->rej.reason == MAD_REJ_TIMEOUT && !mad->remote_id) {
		for (unsigned i = 0; i < sizeof(guid); i++)
			guid = guid << 8 | mad->rej.info[i];
		id = find_remote(cm, mad->local_id, guid, &letter->from, false);
		return id && !memcmp(&id->dgid, &letter->from, sizeof(id->dgid)) ? id : NULL;
	}
	id = find_asker(cm, letter, mad);
	if (!id || (id->remote_id && mad->local_id && id->remote_id != mad->local_id))
		return NULL;
	return id;
}

static void record_rejection(struct cm_id *id, const struct mad_rej *rej)
{
	static const struct {
		enum mad_reason reason;
		enum cause_code code;
	} words[] = {
		{ MAD_REJ_TIMEOUT, CAUSE_CM_PEER_GAVE_UP },	    { MAD_REJ_SERVICE_ID, CAUSE_CM_NO_LISTENER },
		{ MAD_REJ_TRANSPORT, CAUSE_CM_WRONG_TYPE },	    { MAD_REJ_STALE, CAUSE_CM_STALE },
		{ MAD_REJ_CONSUMER, CAUSE_CM_REJECTED_BY_PROGRAM },
	};
	enum cause_code code = CAUSE_CM_REJECTED;

	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (words[i].reason == rej->reason)
			code = words[i].code;
	}
	cm_record(id->cm, id, code, ECONNREFUSED, rej->reason);
}

static void take_rej(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	struct cm_event event = { .type = RDMA_CM_EVENT_REJECTED, .status = mad->rej.reason };
	struct cm_id *id = find_rejected(cm, letter, mad);

	/* Of a REQ that was answered since, a copy has come late. */
	if (!id || (mad->rej.about == MAD_ABOUT_REQ && id->state != CONN_REQ_SENT))
		return;
	switch (id->state) {
	case CONN_REQ_SENT:
	case CONN_REP_SENT:
	case CONN_REQ_RECEIVED:
	case CONN_REP_RECEIVED:
	case CONN_ESTABLISHED:
	case CONN_DREQ_SENT:
		break;
	default:
		return;
	}
	record_rejection(id, &mad->rej);
	raise_private(id, &event, mad->rej.private_data, CM_REJ_PRIVATE);
	if (id->state == CONN_REP_RECEIVED || id->state == CONN_ESTABLISHED || id->state == CONN_DREQ_SENT ||
	    mad->rej.reason == MAD_REJ_STALE)
		enter_timewait(id);
	else
		end(id);
}

static void take_dreq(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	struct cm_id *id = find_connected(cm, letter, mad);
	struct letter answer;

	if (!id || id->state == CONN_TIMEWAIT) {
		if (conn_answer_for_nobody(letter, &answer))
			cm->send(cm, &answer);
		return;
	}
	if (mad->dreq.qpn != id->local_qpn)
		return;
	if (id->state != CONN_REP_SENT && id->state != CONN_ESTABLISHED && id->state != CONN_DREQ_SENT)
		return;
	timer_clear(id);
	id->tid = mad->tid;
	id->state = CONN_DREQ_RECEIVED;
	raise_disconnected(id, 0);
	/* The program answers by disconnecting, too, or by going. */
	if (!id->channel)
		conn_disconnect(id);
}

static void take_drep(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	struct cm_id *id = find_connected(cm, letter, mad);

	if (!id || (id->state != CONN_DREQ_SENT && id->state != CONN_DREQ_RECEIVED))
		return;
	enter_timewait(id);
	raise_disconnected(id, 0);
}

static void take_sidr_rep(struct cm *cm, const struct letter *letter, const struct mad *mad)
{
	const struct mad_sidr_rep *rep = &mad->sidr_rep;
	struct cm_event event = { .type = RDMA_CM_EVENT_ESTABLISHED, .is_ud = true };
	struct cm_id *id = find(cm, mad->local_id);

	if (!id || id->state != CONN_SIDR_SENT || memcmp(&id->dgid, &letter->from, sizeof(id->dgid)))
		return;
	if (rep->status != MAD_SIDR_VALID) {
		event.type = RDMA_CM_EVENT_UNREACHABLE;
		event.status = rep->status;
		cm_record(cm, id, rep->status == MAD_SIDR_UNSUPPORTED ? CAUSE_CM_NO_LISTENER : CAUSE_CM_REJECTED_BY_PROGRAM,
			  ECONNREFUSED, rep->status);
	} else {
		id->qkey = rep->qkey;
		id->remote_qpn = rep->qpn;
		event.param.ud.qp_num = rep->qpn;
		event.param.ud.qkey = rep->qkey;
		event.param.ud.ah_attr = (struct ibv_ah_attr){ .grh = { .dgid = id->dgid,
									.flow_label = id->flow_label,
									.hop_limit = id->hop_limit,
									.traffic_class = id->traffic_class },
							       .is_global = 1,
							       .port_num = 1 };
	}
	raise_private(id, &event, rep->private_data, CM_SIDR_REP_PRIVATE);
	end(id);
}

void conn_take(struct cm *cm, const struct letter *letter)
{
	struct mad mad;

	if (!mad_decode(letter->mad, &mad)) {
		cm_record(cm, NULL, CAUSE_CM_MALFORMED, EPROTO, 0);
		return;
	}
	switch (mad.attribute) {
	case MAD_REQ:
		take_req(cm, letter, &mad);
		break;
	case MAD_MRA:
		take_mra(cm, letter, &mad);
		break;
	case MAD_REJ:
		take_rej(cm, letter, &mad);
		break;
	case MAD_REP:
		take_rep(cm, letter, &mad);
		break;
	case MAD_RTU:
		take_rtu(cm, letter, &mad);
		break;
	case MAD_DREQ:
		take_dreq(cm, letter, &mad);
		break;
	case MAD_DREP:
		take_drep(cm, letter, &mad);
		break;
	case MAD_SIDR_REQ:
		take_sidr_req(cm, letter, &mad);
		break;
	case MAD_SIDR_REP:
		take_sidr_rep(cm, letter, &mad);
		break;
	default: /* alternate paths, and what there is not */
		cm_record(cm, NULL, CAUSE_CM_MALFORMED, EOPNOTSUPP, mad.attribute);
		break;
	}
}

void conn_cannot_reach(struct cm *cm, const struct mad *mad, const struct letter *letter, int error)
{
	struct cm_event event = { .type = RDMA_CM_EVENT_UNREACHABLE, .status = -error };
	struct cm_id *id = find(cm, mad->local_id);
	struct letter unread = *letter, refusal;

	if (!id || memcmp(&id->dgid, &letter->to, sizeof(id->dgid)))
		return;
	/* Where nobody has the port any more it is as on this host. */
	unread.wire = false;
	if (error == ECONNREFUSED) {
		if (conn_answer_for_nobody(&unread, &refusal))
			courier_to_self(cm, &refusal);
		return;
	}
	if (id->state != CONN_REQ_SENT && id->state != CONN_SIDR_SENT)
		return;
	cm_record(cm, id, CAUSE_CM_NO_ROUTE, error, 0);
	event.id = id;
	event.is_ud = id->type == IBV_QPT_UD;
	channel_raise(id, &event, NULL);
	end(id);
}

static void give_up(struct cm_id *id)
{
	switch (id->state) {
	case CONN_DREQ_SENT:
		cm_record(id->cm, id, CAUSE_CM_DREQ_UNANSWERED, ETIMEDOUT, id->sent);
		enter_timewait(id);
		raise_disconnected(id, -ETIMEDOUT);
		break;
	default:
		cm_record(id->cm, id, id->state == CONN_REP_SENT ? CAUSE_CM_REP_UNANSWERED : CAUSE_CM_REQ_UNANSWERED, ETIMEDOUT,
			  id->sent);
		channel_raise_plain(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		end(id);
		break;
	}
}

void conn_timer(struct cm_id *id)
{
	switch (id->state) {
	case CONN_TIMEWAIT:
		channel_raise_plain(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		end(id);
		break;
	case CONN_SIDR_ANSWERED:
		end(id);
		break;
	case CONN_REQ_SENT:
	case CONN_REP_SENT:
	case CONN_DREQ_SENT:
	case CONN_SIDR_SENT:
		if (id->sent <= id->max_retries)
			send_again(id);
		else
			give_up(id);
		break;
	default:
		break;
	}
}

void conn_peer_died(struct cm_id *id)
{
	struct cm_event event = { .id = id, .type = RDMA_CM_EVENT_REJECTED, .status = MAD_REJ_TIMEOUT };

	switch (id->state) {
	case CONN_REQ_RECEIVED:
	case CONN_REP_RECEIVED:
	case CONN_REP_SENT:
		cm_record(id->cm, id, CAUSE_CM_PEER_DIED, ECONNRESET, 0);
		channel_raise(id, &event, NULL);
		end(id);
		break;
	case CONN_ESTABLISHED:
		cm_record(id->cm, id, CAUSE_CM_PEER_DIED, ECONNRESET, 0);
		/* fall through */
	case CONN_DREQ_SENT:
	case CONN_DREQ_RECEIVED:
		enter_timewait(id);
		raise_disconnected(id, 0);
		break;
	default:
		break;
	}
}
