/* SPDX-License-Identifier: MIT */
#include "tools/trace_capture.h"

#include <endian.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "nic/gid.h"
#include "observe/explain.h"
#include "tools/trace_pcapng.h"

#define DEFAULT_MTU  1024
#define FIRST_PORT   0xc000 /* of the source ports that RoCEv2 uses */
#define ATOMIC_BYTES 8

/* ---- Writing ---- */

static void show_interfaces(struct trace_capture *capture)
{
	const struct trace_model *model = capture->model;

	while (capture->interfaces < model->processes.count) {
		const struct trace_process *process = &model->processes.at[capture->interfaces++];
		char name[64], description[96];

		snprintf(name, sizeof(name), "%s-%u", process->name, process->pid);
		snprintf(description, sizeof(description), "process %u, %s, host %u", process->pid, process->name, process->host);
		pcapng_interface(capture->out, name, description);
	}
}

static void write_frame(struct trace_capture *capture, uint32_t process, uint64_t time, enum pcapng_direction direction,
			const char *comment)
{
	const struct pcapng_packet packet = { .interface = process,
					      .time = capture->start + time,
					      .direction = direction,
					      .bytes = capture->frame.bytes,
					      .kept = capture->frame.kept,
					      .length = capture->frame.length,
					      .comment = comment };

	show_interfaces(capture);
	pcapng_packet(capture->out, &packet);
	capture->packets++;
}

/* Behind what the comment has already; nothing if there is no such cause. */
static void add_cause(struct trace_capture *capture, size_t length, uint32_t id)
{
	const struct trace_cause *cause = id < capture->model->causes.count ? &capture->model->causes.at[id] : NULL;
	char sentence[EXPLAIN_TEXT];

	if (!cause)
		return;
	if (cause->told)
		explain_what(&cause->record, sentence, sizeof(sentence));
	snprintf(capture->comment + length, sizeof(capture->comment) - length, "\ncause %u, %s: %s", cause->code,
		 cause_name(cause->code) ? cause_name(cause->code) : "?", cause->told ? sentence : cause_text(cause->code));
}

static const char *comment_of(struct trace_capture *capture, uint32_t id, const char *what)
{
	const struct trace_send *send = id < capture->model->sends.count ? &capture->model->sends.at[id] : NULL;
	char *to = capture->comment;
	const size_t room = sizeof(capture->comment);
	size_t length;

	if (!send)
		return NULL;
	length = (size_t)snprintf(to, room, "%s%s, wr_id 0x%" PRIx64 ", QP 0x%x, send queue index %u", what,
				  trace_opcode_name(send->opcode) ? trace_opcode_name(send->opcode) : "request", send->wr_id,
				  capture->model->qps.at[send->qp].qpn, send->index);
	if (length < room)
		add_cause(capture, length, send->cause);
	return to;
}

/* ---- Packets of the wire ---- */

/* A NAK for good, which ends the connection: who sends it has just recorded why. */
static bool is_nak(const uint8_t *bytes, uint32_t kept)
{
	uint8_t syndrome = kept > ROCE_BTH_BYTES ? bytes[ROCE_BTH_BYTES] : 0;

	return (bytes[0] & 31) == ROCE_ACKNOWLEDGE && syndrome >> 5 == ROCE_NAK && (syndrome & 31) != ROCE_NAK_PSN;
}

static void captured(struct trace_capture *capture, const struct trace_item *item, bool out)
{
	const struct trace_model *model = capture->model;
	const uint32_t qp = trace_model_qp(model, model->processes.at[item->process].host, item->event->qpn);
	struct trace_packet about;
	struct icrc_path path;
	uint32_t kept, length = item->event->length;
	const uint8_t *bytes = (const uint8_t *)item->more + sizeof(about);
	const struct trace_packet_seen *seen;

	if (item->bytes < sizeof(about))
		return;
	memcpy(&about, item->more, sizeof(about));
	kept = about.kept < item->bytes - sizeof(about) ? about.kept : (uint32_t)(item->bytes - sizeof(about));
	if (length > TRACE_FRAME_PACKET || kept > length || kept < ROCE_BTH_BYTES)
		return;
	/* The model has just been told of it; beyond what it keeps, comments end. */
	seen = model->packets.count && model->packets.total == model->packets.count ? &model->packets.at[model->packets.count - 1] :
										      NULL;
	if (!out && seen && seen->send < model->sends.count)
		return;
	if (!out && qp < model->qps.count) {
		const uint32_t peer = model->qps.at[qp].peer;

		if (peer < model->qps.count && model->qps.at[peer].process != TRACE_NONE)
			return;
	}
	memcpy(path.sgid.raw, about.sgid, sizeof(path.sgid.raw));
	memcpy(path.dgid.raw, about.dgid, sizeof(path.dgid.raw));
	path.sport = about.sport;
	path.dport = about.dport;
	trace_frame_of_captured(&capture->frame, &path, bytes, kept, length);

	const bool nak = is_nak(bytes, kept);
	const char *comment = seen ? comment_of(capture, seen->send,
						nak				    ? "NAK of " :
						roce_opcode(seen->opcode)->response ? "answer to " :
						seen->again			    ? "again: " :
										      "") :
				     NULL;

	if (comment && nak && out && qp < model->qps.count)
		add_cause(capture, strlen(comment), model->qps.at[qp].cause);
	write_frame(capture, item->process, item->time, out ? PCAPNG_OUTBOUND : PCAPNG_INBOUND, comment);
}

/* ---- Packets that the wire would have carried ---- */

/* A message and the two ends of its way. */
struct carried {
	const struct trace_send *send;
	uint32_t send_id;
	const struct trace_queue_pair *qp;
	struct icrc_path out, back;
	uint32_t dest_qpn, mtu;
	bool unreliable;
};

static union ibv_gid gid_or_loopback(const uint8_t *raw)
{
	union ibv_gid gid;

	memcpy(gid.raw, raw, sizeof(gid.raw));
	return gid_is_zero(&gid) ? gid_from_ipv4(htobe32(INADDR_LOOPBACK)) : gid;
}

static bool find_way(const struct trace_capture *capture, uint32_t send_id, const uint8_t *dgid, uint32_t dest_qpn,
		     struct carried *way)
{
	const struct trace_send *send = &capture->model->sends.at[send_id];
	const struct trace_queue_pair *qp = &capture->model->qps.at[send->qp];
	static const uint8_t none[16];

	if (!trace_opcode_name(send->opcode) || send->opcode == IBV_WR_LOCAL_INV || send->opcode == IBV_WR_BIND_MW)
		return false;
	*way = (struct carried){ .send = send, .send_id = send_id, .qp = qp, .dest_qpn = dest_qpn };
	way->mtu = qp->known && qp->attr.path_mtu >= 256 && qp->attr.path_mtu <= 4096 ? qp->attr.path_mtu : DEFAULT_MTU;
	way->unreliable = qp->known && qp->attr.type != IBV_QPT_RC;
	way->out.dgid = gid_or_loopback(qp->known && qp->attr.type != IBV_QPT_UD ? qp->attr.dgid : dgid);
	way->out.sgid = gid_or_loopback(qp->known ? qp->attr.sgid : none);
	/* A datagram may be sent from an address of each kind. */
	if (gid_is_ipv4(&way->out.sgid) != gid_is_ipv4(&way->out.dgid))
		way->out.sgid = way->out.dgid;
	way->out.sport = (uint16_t)(FIRST_PORT | (qp->qpn ^ qp->qpn >> 14 ^ dest_qpn) % 0x4000);
	way->out.dport = ROCE_PORT;
	way->back = (struct icrc_path){ .sgid = way->out.dgid, .dgid = way->out.sgid, .sport = way->out.sport, .dport = ROCE_PORT };
	return true;
}

/* One packet: `there` bytes of its payload are. */
static void carry(struct trace_capture *capture, const struct carried *way, bool back, uint64_t time, struct roce_packet *packet,
		  const uint8_t *payload, uint32_t there, const char *what)
{
	const uint32_t peer = way->send->dest;
	const uint32_t process = back && peer < capture->model->qps.count && capture->model->qps.at[peer].process != TRACE_NONE ?
					 capture->model->qps.at[peer].process :
					 way->qp->process;
	const uint32_t pad = roce_pad(packet->length);
	size_t header;

	/* The process may say anything. */
	if (!roce_opcode(packet->opcode)->name)
		return;
	packet->pkey = ROCE_DEFAULT_PKEY;
	packet->qpn = back ? way->qp->qpn : way->dest_qpn;
	header = roce_build(packet, capture->packet);
	if (there)
		memcpy(capture->packet + header, payload, there);
	memset(capture->packet + header + there, 0, pad);
	trace_frame_make(&capture->frame, back ? &way->back : &way->out, 0, capture->packet,
			 header + there + (there == packet->length ? pad : 0), header + packet->length + pad);
	if (process != TRACE_NONE)
		write_frame(capture, process, time, PCAPNG_OUTBOUND, what ? comment_of(capture, way->send_id, what) : NULL);
}

static uint32_t answers_of(struct trace_capture *capture, uint32_t qp, bool one_more)
{
	if (qp >= capture->answers_count) {
		uint32_t count = capture->model->qps.count;
		uint32_t *larger = realloc(capture->answers, count * sizeof(*larger));

		if (!larger)
			return 0;
		memset(larger + capture->answers_count, 0, (count - capture->answers_count) * sizeof(*larger));
		capture->answers = larger;
		capture->answers_count = count;
	}
	return capture->answers[qp] += one_more;
}

static void answer(struct trace_capture *capture, const struct carried *way, uint64_t time, uint8_t syndrome)
{
	const bool good = syndrome >> 5 == ROCE_ACK;
	struct roce_packet packet = {
		.opcode = ROCE_OPCODE(ROCE_RC, ROCE_ACKNOWLEDGE),
		.psn = good ? way->send->psn + way->send->packets - 1 : way->send->psn,
		.syndrome = syndrome,
		.msn = answers_of(capture, way->send->qp, good),
	};

	carry(capture, way, true, time, &packet, NULL, 0,
	      good			    ? "ACK of " :
	      syndrome >> 5 == ROCE_RNR_NAK ? "RNR NAK of " :
					      "NAK of ");
}

static uint8_t request_opcode(const struct carried *way, bool first, bool last)
{
	static const struct {
		uint8_t first, middle, last, only;
	} operations[] = {
		[IBV_WR_RDMA_WRITE] = { ROCE_WRITE_FIRST, ROCE_WRITE_MIDDLE, ROCE_WRITE_LAST, ROCE_WRITE_ONLY },
		[IBV_WR_RDMA_WRITE_WITH_IMM] = { ROCE_WRITE_FIRST, ROCE_WRITE_MIDDLE, ROCE_WRITE_LAST_IMM, ROCE_WRITE_ONLY_IMM },
		[IBV_WR_SEND] = { ROCE_SEND_FIRST, ROCE_SEND_MIDDLE, ROCE_SEND_LAST, ROCE_SEND_ONLY },
		[IBV_WR_SEND_WITH_IMM] = { ROCE_SEND_FIRST, ROCE_SEND_MIDDLE, ROCE_SEND_LAST_IMM, ROCE_SEND_ONLY_IMM },
		[IBV_WR_RDMA_READ] = { .only = ROCE_READ_REQUEST },
		[IBV_WR_ATOMIC_CMP_AND_SWP] = { .only = ROCE_COMPARE_SWAP },
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = { .only = ROCE_FETCH_ADD },
		[IBV_WR_SEND_WITH_INV] = { ROCE_SEND_FIRST, ROCE_SEND_MIDDLE, ROCE_SEND_LAST_INV, ROCE_SEND_ONLY_INV },
	};
	const uint32_t type = way->qp->known ? way->qp->attr.type : IBV_QPT_RC;
	const enum roce_service service = type == IBV_QPT_UD ? ROCE_UD : type == IBV_QPT_UC ? ROCE_UC : ROCE_RC;
	const uint8_t opcode = way->send->opcode;

	return ROCE_OPCODE(service, first && last ? operations[opcode].only :
				    first	  ? operations[opcode].first :
				    last	  ? operations[opcode].last :
						    operations[opcode].middle);
}

/* `kept` bytes of a message of `length`, in packets of the path's MTU, the request's or those of a READ's response. */
static void carry_all(struct trace_capture *capture, const struct carried *way, uint64_t time, const struct trace_message *about,
		      const uint8_t *payload, uint32_t kept)
{
	const bool read = way->send->opcode == IBV_WR_RDMA_READ;
	const uint32_t length = way->send->length;

	for (uint32_t at = 0, number = 0; !number || at < length; at += way->mtu, number++) {
		const uint32_t bytes = length - at < way->mtu ? length - at : way->mtu;
		const uint32_t there = kept <= at ? 0 : kept - at < bytes ? kept - at : bytes;
		const bool first = !number, last = at + bytes == length;
		struct roce_packet packet = {
			.psn = way->send->psn + number,
			.length = bytes,
			.va = way->send->addr,
			.rkey = way->send->opcode == IBV_WR_SEND_WITH_INV ? be32toh(about->imm) : about->rkey,
			.dma_length = length,
			.imm_data = about->imm,
			.qkey = about->qkey,
			.src_qpn = way->qp->qpn,
		};

		if (read) {
			packet.opcode = ROCE_OPCODE(ROCE_RC, first && last ? ROCE_READ_RESPONSE_ONLY :
							     first	   ? ROCE_READ_RESPONSE_FIRST :
							     last	   ? ROCE_READ_RESPONSE_LAST :
									     ROCE_READ_RESPONSE_MIDDLE);
			packet.syndrome = ROCE_SYNDROME(ROCE_ACK, ROCE_CREDITS_INVALID);
			packet.msn = answers_of(capture, way->send->qp, last);
		} else {
			packet.opcode = request_opcode(way, first, last);
			packet.ack_req = last && !way->unreliable;
			packet.solicited = last && way->send->flags & IBV_SEND_SOLICITED;
		}
		carry(capture, way, read, time, &packet, payload + at, there, read ? "response of " : "");
	}
}

static void ask_to_read(struct trace_capture *capture, const struct carried *way, uint64_t time, const struct trace_message *about)
{
	struct roce_packet request = {
		.opcode = ROCE_OPCODE(ROCE_RC, ROCE_READ_REQUEST),
		.psn = way->send->psn,
		.ack_req = true,
		.va = way->send->addr,
		.rkey = about->rkey,
		.dma_length = way->send->length,
	};

	carry(capture, way, false, time, &request, NULL, 0, "");
}

static void carry_atomic(struct trace_capture *capture, const struct carried *way, uint64_t time, const struct trace_message *about,
			 const uint8_t *payload, uint32_t kept)
{
	const bool swaps = way->send->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct roce_packet request = {
		.opcode = request_opcode(way, true, true),
		.psn = way->send->psn,
		.ack_req = true,
		.va = way->send->addr,
		.rkey = about->rkey,
		.swap_add = swaps ? about->swap : about->compare_add,
		.compare = swaps ? about->compare_add : 0,
	};
	struct roce_packet response = {
		.opcode = ROCE_OPCODE(ROCE_RC, ROCE_ATOMIC_ACKNOWLEDGE),
		.psn = way->send->psn,
		.syndrome = ROCE_SYNDROME(ROCE_ACK, ROCE_CREDITS_INVALID),
	};

	carry(capture, way, false, time, &request, NULL, 0, "");
	if (kept < ATOMIC_BYTES)
		return;
	memcpy(&response.original, payload, ATOMIC_BYTES);
	response.msn = answers_of(capture, way->send->qp, true);
	carry(capture, way, true, time, &response, NULL, 0, "response of ");
}

static bool is_answered_by_ack(const struct carried *way)
{
	return !way->unreliable && way->send->opcode != IBV_WR_RDMA_READ && way->send->opcode != IBV_WR_ATOMIC_CMP_AND_SWP &&
	       way->send->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static void message(struct trace_capture *capture, const struct trace_item *item)
{
	const struct trace_model *model = capture->model;
	struct trace_message about;
	const uint8_t *payload = (const uint8_t *)item->more + sizeof(about);
	uint32_t qp = trace_model_qp(model, model->processes.at[item->process].host, item->event->qpn), send, kept;
	struct carried way;

	if (item->bytes < sizeof(about))
		return;
	memcpy(&about, item->more, sizeof(about));
	send = trace_model_send(model, qp, about.sq_index);
	if (send == TRACE_NONE || !find_way(capture, send, about.dgid, about.dest_qpn, &way))
		return;
	kept = about.kept < item->bytes - sizeof(about) ? about.kept : (uint32_t)(item->bytes - sizeof(about));
	switch (way.send->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		carry_atomic(capture, &way, item->time, &about, payload, kept);
		return;
	case IBV_WR_RDMA_READ:
		ask_to_read(capture, &way, item->time, &about);
		carry_all(capture, &way, item->time, &about, payload, kept);
		return;
	default:
		carry_all(capture, &way, item->time, &about, payload, kept);
	}
	/* Where it was placed before it was told of, the answer comes at once. */
	if (is_answered_by_ack(&way) && way.send->at[TRACE_POINT_PLACED] != TRACE_NEVER)
		answer(capture, &way, item->time, ROCE_SYNDROME(ROCE_ACK, ROCE_CREDITS_INVALID));
}

/* A request that was sent through shared memory, of this index. */
static bool carried_before(const struct trace_capture *capture, uint32_t process, uint32_t qpn, uint32_t index, struct carried *way)
{
	static const uint8_t none[16];
	const struct trace_model *model = capture->model;
	const uint32_t qp = trace_model_qp(model, model->processes.at[process].host, qpn),
		       send = trace_model_send(model, qp, index);

	if (send == TRACE_NONE || model->qps.at[qp].attr.wire || model->sends.at[send].psn == TRACE_NONE)
		return false;
	return find_way(capture, send, none, model->qps.at[qp].attr.dest_qpn, way) && is_answered_by_ack(way);
}

static void placed(struct trace_capture *capture, const struct trace_item *item)
{
	const uint64_t arg = item->event->arg;
	struct carried way;

	if (carried_before(capture, item->process, (uint32_t)(arg >> 32), (uint32_t)arg, &way))
		answer(capture, &way, item->time, ROCE_SYNDROME(ROCE_ACK, ROCE_CREDITS_INVALID));
}

/* A request that the other end refused was not told as a message: what is known of it is sent, and the answer with the reason. */
static void refused(struct trace_capture *capture, const struct trace_item *item)
{
	static const uint8_t none[16], syndromes[] = {
		[IBV_WC_REM_INV_REQ_ERR] = ROCE_SYNDROME(ROCE_NAK, ROCE_NAK_INVALID_REQUEST),
		[IBV_WC_REM_ACCESS_ERR] = ROCE_SYNDROME(ROCE_NAK, ROCE_NAK_ACCESS),
		[IBV_WC_REM_OP_ERR] = ROCE_SYNDROME(ROCE_NAK, ROCE_NAK_OPERATION),
		[IBV_WC_RNR_RETRY_EXC_ERR] = ROCE_SYNDROME(ROCE_RNR_NAK, 0),
	};
	const struct trace_model *model = capture->model;
	const struct trace_event *event = item->event;
	const uint32_t qp = trace_model_qp(model, model->processes.at[item->process].host, event->qpn);
	const uint32_t send = trace_model_send(model, qp, event->index);
	const struct trace_cause *cause;
	struct trace_message about = { 0 };
	struct trace_send asked;
	struct carried way;

	if (event->flags & TRACE_CQE_RECV || event->opcode >= sizeof(syndromes) || !syndromes[event->opcode] || send == TRACE_NONE)
		return;
	asked = model->sends.at[send];
	if (!model->qps.at[qp].known || model->qps.at[qp].attr.wire || asked.psn != TRACE_NONE || asked.length == TRACE_NONE ||
	    !find_way(capture, send, none, model->qps.at[qp].attr.dest_qpn, &way) || way.unreliable)
		return;
	cause = asked.cause < model->causes.count && model->causes.at[asked.cause].told ? &model->causes.at[asked.cause] : NULL;
	asked.psn = model->qps.at[qp].next_psn;
	asked.addr = cause ? cause->record.addr : 0;
	about.rkey = cause ? cause->record.key : 0;
	way.send = &asked;
	if (asked.opcode == IBV_WR_RDMA_READ)
		ask_to_read(capture, &way, item->time, &about);
	else if (is_answered_by_ack(&way))
		carry_all(capture, &way, item->time, &about, none, 0);
	else
		return;
	answer(capture, &way, item->time, syndromes[event->opcode]);
}

/* ---- All ---- */

void trace_capture_begin(struct trace_capture *capture, FILE *out, const struct trace_model *model, uint64_t start)
{
	capture->out = out;
	capture->model = model;
	capture->start = start;
	capture->packets = 0;
	capture->interfaces = capture->answers_count = 0;
	capture->answers = NULL;
	pcapng_begin(out, "uroce " UROCE_VERSION);
	show_interfaces(capture);
}

void trace_capture_tell(struct trace_capture *capture, const struct trace_item *item)
{
	switch (item->event->kind) {
	case TRACE_MESSAGE:
		message(capture, item);
		break;
	case TRACE_PACKET_OUT:
	case TRACE_PACKET_IN:
		captured(capture, item, item->event->kind == TRACE_PACKET_OUT);
		break;
	case TRACE_PLACED:
		placed(capture, item);
		break;
	case TRACE_CQE:
		refused(capture, item);
		break;
	}
}

void trace_capture_end(struct trace_capture *capture)
{
	free(capture->answers);
	capture->answers = NULL;
}
