/* SPDX-License-Identifier: MIT */
/*
 * Makes the fuzzers' corpora from the captures, a folder of its name each. usage: corpus CAPTURES FOLDER
 *
 *	packet	    of each capture one IP packet of each kind (opcode, BTH flags, AETH syndrome), a file each
 *	responder   what went to each QP, in actions of responder.c
 *	cm	    the CM's messages of a capture, in actions of cm.c: to one who asks, and to one who is asked
 *	requester   what came back to one end of RC connections, with what was sent for it, in actions of requester.c
 */
#include <sys/stat.h>

#include "pcaps/capture.h"
#include "roce/psn.h"

#define FLOWS	    64
#define MOST	    3000   /* bytes of a sequence */
#define MOST_LENGTH 12800u /* bytes of a message: what the fuzzers have memory for */

/* See responder.c and requester.c. */
enum responder_action { PACKET = 0, POST_RECEIVE = 12, POLL_RECEIVES };
enum requester_action { ANSWER = 0, POST = 7, POLL = 11, TIME };
#define RNR_PAST 30 /* log2 ns */
enum { WRITABLE, READABLE };
#define RAW_OPCODE (1 << 0)
#define RAW_LENGTH (1 << 1)

static struct capture capture;
static const char *folder;
static int sequences; /* written so far */

/* Opcode, flags, syndrome, in the order in which they are found. */
struct kinds {
	uint32_t seen[256];
	int count;
};

static bool is_new(struct kinds *kinds, const struct captured *captured)
{
	const uint8_t *bth = captured->packet;
	const bool has_syndrome = roce_opcode(bth[0])->headers & ROCE_HAS_AETH;
	const uint32_t kind = bth[0] << 16 | bth[1] << 8 | (has_syndrome ? bth[ROCE_BTH_BYTES] : 0);

	for (int i = 0; i < kinds->count; i++) {
		if (kinds->seen[i] == kind)
			return false;
	}
	if (kinds->count == sizeof(kinds->seen) / sizeof(*kinds->seen))
		return false;
	kinds->seen[kinds->count++] = kind;
	return true;
}

static void write_file(const char *fuzzer, int number, const uint8_t *bytes, size_t length)
{
	char name[4096];
	FILE *file;

	snprintf(name, sizeof(name), "%s/%s/%.*s.%d", folder, fuzzer, capture.name_length, capture.name, number);
	file = fopen(name, "wb");
	if (!file || fwrite(bytes, length, 1, file) != 1 || fclose(file)) {
		perror(name);
		exit(1);
	}
}

/* What goes to a QP, or (requester) comes to an address. */
struct flow {
	union ibv_gid dgid;
	uint32_t qpn;
	bool started;
	uint32_t expected; /* PSN */
	size_t length;
	uint8_t bytes[2 * MOST];
};

static struct flow flows[FLOWS];
static int flow_count;

static struct flow *find_flow(const union ibv_gid *dgid, uint32_t qpn)
{
	for (int i = 0; i < flow_count; i++) {
		if (flows[i].qpn == qpn && !memcmp(&flows[i].dgid, dgid, sizeof(*dgid)))
			return &flows[i];
	}
	if (flow_count == FLOWS)
		return NULL;
	flows[flow_count] = (struct flow){ .dgid = *dgid, .qpn = qpn };
	return &flows[flow_count++];
}

static void put(struct flow *flow, const uint8_t *bytes, size_t length)
{
	memcpy(flow->bytes + flow->length, bytes, length);
	flow->length += length;
}

#define PUT(flow, ...) put(flow, (const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }))

/* Of the file's name: 0 for 256, up to 4 for 4096. */
static uint8_t mtu_code(void)
{
	return strstr(capture.name, "-256") ? 0 : strstr(capture.name, "-4096") ? 4 : 2;
}

static uint32_t mtu(void)
{
	return 256u << mtu_code();
}

static void end_sequence(const char *fuzzer, struct flow *flow)
{
	if (flow->started)
		write_file(fuzzer, sequences++, flow->bytes, flow->length);
	flow->started = false;
	flow->length = 0;
}

/* A PSN relative to the one that is expected next; as near as a byte says it. */
static uint8_t relative(const struct flow *flow, uint32_t psn)
{
	int32_t difference = psn_diff(psn, flow->expected);

	return (uint8_t)(int8_t)(difference < -128 ? -128 : difference > 127 ? 127 : difference);
}

static void expect(struct flow *flow, const struct roce_packet *packet)
{
	bool read = packet->opcode == ROCE_OPCODE(ROCE_RC, ROCE_READ_REQUEST);

	if (packet->psn == flow->expected || packet->opcode >> 5 != ROCE_RC)
		flow->expected = psn_add(packet->psn, read ? psn_packets(packet->dma_length, mtu()) : 1);
}

static uint16_t payload_code(uint32_t length)
{
	return length == mtu() ? 0xffff : (uint16_t)length;
}

static void add_request(const struct captured *captured, const struct roce_packet *packet)
{
	static const uint8_t types[] = { [ROCE_RC] = 0, [ROCE_UC] = 2, [ROCE_UD] = 3 };
	const struct roce_opcode *row = roce_opcode(packet->opcode);
	uint32_t service = packet->opcode >> 5;
	uint16_t payload = payload_code(packet->length);
	struct flow *flow = find_flow(&captured->path.dgid, packet->qpn);

	if (service > ROCE_UD || row->response || !flow)
		return;
	if (flow->length > MOST)
		end_sequence("responder", flow);
	if (!flow->started) {
		if (row->place != ROCE_ONLY && row->place != ROCE_FIRST)
			return;
		flow->started = true;
		flow->expected = packet->psn;
		PUT(flow, (uint8_t)(types[service] | mtu_code() << 5), 0, 0, 0);
		for (int i = 0; i < 8; i++)
			PUT(flow, POST_RECEIVE, 255, 255, 0);
	}
	PUT(flow, PACKET, 0, 0, relative(flow, packet->psn), packet->opcode == ROCE_READ_REQUEST ? READABLE : WRITABLE, 0, 0,
	    (uint8_t)payload, (uint8_t)(payload >> 8));
	put(flow, captured->packet, row->header_bytes);
	expect(flow, packet);
	/* So that there are receives again. */
	if ((packet->opcode & 31) < ROCE_WRITE_FIRST && (row->place == ROCE_ONLY || row->place == ROCE_LAST))
		PUT(flow, POLL_RECEIVES, POST_RECEIVE, 255, 255, 0);
}

/* The WR behind a request's first packet: 8 where it is none. */
static uint8_t wr_code(const struct roce_packet *packet)
{
	switch (packet->opcode & 31) {
	case ROCE_SEND_FIRST:
	case ROCE_SEND_ONLY:
		return 0;
	case ROCE_READ_REQUEST:
		return 1;
	case ROCE_WRITE_FIRST:
	case ROCE_WRITE_ONLY:
		return 2;
	case ROCE_COMPARE_SWAP:
		return 3;
	case ROCE_FETCH_ADD:
		return 4;
	case ROCE_SEND_ONLY_IMM:
		return 5;
	case ROCE_WRITE_ONLY_IMM:
		return 6;
	default:
		return 8;
	}
}

/* The capture does not say which QPs belong together: of each address all are taken for one. */
static void add_connected(const struct captured *captured, const struct roce_packet *packet)
{
	bool response = roce_opcode(packet->opcode)->response;
	struct flow *flow = find_flow(response ? &captured->path.dgid : &captured->path.sgid, 0);
	/* A SEND's first packet does not say how long it is. */
	uint32_t length = packet->dma_length ? packet->dma_length : packet->length;
	uint8_t code = wr_code(packet);

	if (packet->opcode >> 5 != ROCE_RC || !flow)
		return;
	if (flow->length > MOST)
		end_sequence("requester", flow);
	if (!flow->started) {
		flow->started = true;
		flow->expected = packet->psn;
		/* The peer ends in each of the three ways. */
		PUT(flow, (uint8_t)(10 | mtu_code() << 5), (uint8_t)(7 | capture.frames % 3 << 6), 0, 0);
	}
	if (!response && code < 8 && length <= MOST_LENGTH && psn_diff(packet->psn, flow->expected) >= 0)
		PUT(flow, POST, code, 0, (uint8_t)length, (uint8_t)(length >> 8));
	if (!response)
		return;
	if (packet->syndrome >> 5 == ROCE_ACK && packet->psn == psn_add(flow->expected, 1)) {
		PUT(flow, ANSWER, 0, 0, packet->syndrome);
	} else {
		PUT(flow, ANSWER, RAW_OPCODE | RAW_LENGTH, relative(flow, packet->psn), packet->syndrome, packet->opcode,
		    (uint8_t)packet->length, (uint8_t)(packet->length >> 8));
	}
	if (packet->syndrome >> 5 == ROCE_ACK && psn_diff(packet->psn, flow->expected) >= 0)
		flow->expected = psn_add(packet->psn, 1);
	if (packet->syndrome >> 5 == ROCE_RNR_NAK)
		PUT(flow, TIME, RNR_PAST);
	PUT(flow, POLL);
}

static void begin_capture(const char *path)
{
	capture_open(&capture, path);
	flow_count = sequences = 0;
}

static void make_packets(const char *path)
{
	struct kinds kinds = { .count = 0 };
	struct captured captured;

	begin_capture(path);
	while (capture_next(&capture, &captured)) {
		if (is_new(&kinds, &captured))
			write_file("packet", capture.frames, captured.ip, captured.ip_bytes);
	}
}

static void make_sequences(const char *path, const char *fuzzer,
			   void (*add)(const struct captured *captured, const struct roce_packet *packet))
{
	struct roce_packet packet;
	struct captured captured;

	begin_capture(path);
	while (capture_next(&capture, &captured)) {
		if (captured.bytes >= ROCE_ICRC_BYTES && roce_parse(captured.packet, captured.bytes - ROCE_ICRC_BYTES, &packet))
			add(&captured, &packet);
	}
	for (int i = 0; i < flow_count; i++)
		end_sequence(fuzzer, &flows[i]);
}

static void make_folder(const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	mkdir(path, 0777);
}

/* For each end one that does next what the capture's messages are answers to. */
static void make_exchanges(const char *path)
{
	/* Of cm.c: who asks connects twice, once for datagrams; who is asked has listeners. */
	static const uint8_t asking[] = { 1, 9, 4, 0, 1, 9, 4, 1 };
	/* Behind each message: reads events, accepts (who asks: without parameters); after the second disconnects, too. */
	static const uint8_t all_fits = 31;
	struct captured captured;

	for (int asks = 0; asks < 2; asks++) {
		uint8_t bytes[8192];
		size_t length = 0;
		int messages = 0;

		if (asks) {
			memcpy(bytes, asking, sizeof(asking));
			length = sizeof(asking);
		}
		capture_open(&capture, path);
		while (capture_next(&capture, &captured)) {
			struct roce_packet packet;

			if (!roce_parse(captured.packet, captured.bytes - ROCE_ICRC_BYTES, &packet) || packet.qpn != 1 ||
			    packet.length != 256 || length + 300 > sizeof(bytes))
				continue;
			const uint8_t letter[] = { 0, all_fits, 0 };
			const uint8_t reaction[] = { 7, 2, 9, 4, 0, !asks, 4, 0 };
			size_t reacts = sizeof(reaction) - (messages++ > 1 ? 0 : 2);

			memcpy(bytes + length, letter, sizeof(letter));
			memcpy(bytes + length + sizeof(letter), packet.payload, 256);
			length += sizeof(letter) + 256;
			memcpy(bytes + length, reaction, reacts);
			length += reacts;
		}
		if (messages)
			write_file("cm", asks, bytes, length);
	}
}

int main(int argc, char **argv)
{
	glob_t list;

	if (argc != 3) {
		fprintf(stderr, "usage: corpus CAPTURES FOLDER\n");
		return 2;
	}
	folder = argv[2];
	mkdir(folder, 0777);
	make_folder("packet");
	make_folder("responder");
	make_folder("requester");
	make_folder("cm");
	capture_list(argv[1], &list);
	for (size_t i = 0; i < list.gl_pathc; i++) {
		make_packets(list.gl_pathv[i]);
		make_exchanges(list.gl_pathv[i]);
		make_sequences(list.gl_pathv[i], "responder", add_request);
		make_sequences(list.gl_pathv[i], "requester", add_connected);
	}
	globfree(&list);
	return 0;
}
