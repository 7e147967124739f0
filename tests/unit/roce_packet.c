/* SPDX-License-Identifier: MIT */
/* Packets as bytes: what Linux's rxe sent, as tshark reads it (tests/pcaps/dissect), and what no NIC should send. */
#include "unit.h"

#include <arpa/inet.h>
#include <inttypes.h>

#include "pcaps/capture.h"

static struct capture capture;

/* A packet as tests/pcaps/dissect writes it, after the frame's number. The row's headers decide which fields are there. */
static void describe(const struct roce_packet *packet, char *text, size_t size)
{
	const struct roce_opcode *row = roce_opcode(packet->opcode);
	FILE *to = fmemopen(text, size, "w");

	assert_non_null(to);
	fprintf(to, "opcode=%02x se=%d m=%d pad=%u version=0 pkey=%04x qpn=0x%06x ack=%d psn=%06x", packet->opcode,
		packet->solicited, packet->migreq, roce_pad(packet->length), packet->pkey, packet->qpn, packet->ack_req,
		packet->psn);
	if (row->headers & ROCE_HAS_DETH)
		fprintf(to, " qkey=0x%016x src=0x%08x", packet->qkey, packet->src_qpn);
	if (row->headers & (ROCE_HAS_RETH | ROCE_HAS_ATOMIC))
		fprintf(to, " va=0x%016" PRIx64 " rkey=0x%08x", packet->va, packet->rkey);
	if (row->headers & ROCE_HAS_RETH)
		fprintf(to, " len=%u", packet->dma_length);
	if (row->headers & ROCE_HAS_ATOMIC)
		fprintf(to, " swap_add=%" PRIu64 " compare=%" PRIu64, packet->swap_add, packet->compare);
	if (row->headers & ROCE_HAS_AETH)
		fprintf(to, " syndrome=%02x msn=%u", packet->syndrome, packet->msn);
	if (row->headers & ROCE_HAS_ATOMIC_ACK)
		fprintf(to, " original=%" PRIu64, packet->original);
	if (row->headers & ROCE_HAS_IMM)
		fprintf(to, " imm=%08x", ntohl(packet->imm_data));
	if (row->headers & ROCE_HAS_IETH)
		fprintf(to, " invalidate=%08x", packet->rkey);
	fprintf(to, " payload=%u", packet->length);
	assert_int_equal(fclose(to), 0);
}

/* The dissection beside a capture; its frames are in the same order. */
static FILE *open_dissection(const char *path)
{
	char name[4096];
	FILE *file;

	snprintf(name, sizeof(name), "%.*s.txt", (int)(strlen(path) - strlen(".pcap")), path);
	file = fopen(name, "r");
	assert_non_null(file);
	return file;
}

static void every_captured_packet_is_read_as_tshark_reads_it(void **state)
{
	char *line = NULL;
	size_t line_size = 0;
	int refused = 0, read = 0;
	glob_t list;

	(void)state;
	capture_list(PCAPS, &list);
	for (size_t i = 0; i < list.gl_pathc; i++) {
		FILE *dissection = open_dissection(list.gl_pathv[i]);
		struct captured captured;

		capture_open(&capture, list.gl_pathv[i]);
		while (capture_next(&capture, &captured)) {
			struct roce_packet packet;
			char expected[600], text[512];
			bool good = roce_parse(captured.packet, captured.bytes - ROCE_ICRC_BYTES, &packet);

			assert_true(getline(&line, &line_size, dissection) > 0);
			line[strcspn(line, "\n")] = '\0';
			/* In the probe captures a plain socket tries what rxe takes, a header version that there is not too. */
			if (strstr(line, " version=1 ")) {
				assert_false(good);
				refused++;
				continue;
			}
			assert_true(good);
			describe(&packet, text, sizeof(text));
			snprintf(expected, sizeof(expected), "%d %s", capture.frames, text);
			assert_string_equal(expected, line);
			assert_ptr_equal(packet.payload, captured.packet + roce_opcode(packet.opcode)->header_bytes);
			read++;
		}
		assert_int_equal(getline(&line, &line_size, dissection), -1);
		fclose(dissection);
	}
	globfree(&list);
	free(line);
	assert_int_equal(refused, 2);
	assert_int_equal(read, 3637);
}

static void every_captured_packet_is_built_again(void **state)
{
	glob_t list;

	(void)state;
	capture_list(PCAPS, &list);
	for (size_t i = 0; i < list.gl_pathc; i++) {
		struct captured captured;

		capture_open(&capture, list.gl_pathv[i]);
		while (capture_next(&capture, &captured)) {
			const size_t bytes = captured.bytes - ROCE_ICRC_BYTES;
			uint8_t built[ROCE_MAX_HEADERS + 4096] = { 0 };
			struct roce_packet packet;
			size_t header_bytes;

			if (!roce_parse(captured.packet, bytes, &packet))
				continue;
			header_bytes = roce_build(&packet, built);
			memcpy(built + header_bytes, packet.payload, packet.length);
			assert_int_equal(header_bytes + packet.length + roce_pad(packet.length), bytes);
			assert_memory_equal(built, captured.packet, bytes);
		}
	}
	globfree(&list);
}

/* With bits in every field, more than some of them have. */
static struct roce_packet random_packet(uint8_t opcode, uint32_t length)
{
	struct roce_packet packet;
	uint8_t *bytes = (uint8_t *)&packet;

	for (size_t i = 0; i < sizeof(packet); i++)
		bytes[i] = rand() >> 8;
	packet.opcode = opcode;
	packet.solicited = rand() & 0x100;
	packet.migreq = rand() & 0x100;
	packet.ack_req = rand() & 0x100;
	packet.fecn = rand() & 0x100;
	packet.becn = rand() & 0x100;
	packet.length = length;
	return packet;
}

#define SAME(field)    assert_int_equal(read.field, written.field)
#define SAME_24(field) assert_int_equal(read.field, written.field & 0xffffff)
#define ABSENT(field)  assert_int_equal(read.field, 0)

static void what_was_built_is_read_and_the_rest_is_0(void **state)
{
	(void)state;
	srand(1);
	for (int i = 0; i < 256 * 64; i++) {
		const struct roce_opcode *row = roce_opcode(i % 256);
		struct roce_packet written = random_packet(i % 256, i / 256 % 9), read;
		uint8_t bytes[ROCE_MAX_HEADERS + 12] = { 0 };
		size_t header_bytes;

		if (!row->name)
			continue;
		header_bytes = roce_build(&written, bytes);
		assert_int_equal(header_bytes, row->header_bytes);
		assert_true(roce_parse(bytes, header_bytes + written.length + roce_pad(written.length), &read));
		SAME(opcode);
		SAME(solicited);
		SAME(migreq);
		SAME(ack_req);
		SAME(fecn);
		SAME(becn);
		SAME(pkey);
		SAME_24(qpn);
		SAME_24(psn);
		SAME(length);
		assert_ptr_equal(read.payload, bytes + header_bytes);
		if (row->headers & ROCE_HAS_DETH) {
			SAME(qkey);
			SAME_24(src_qpn);
		} else {
			ABSENT(qkey);
			ABSENT(src_qpn);
		}
		if (row->headers & (ROCE_HAS_RETH | ROCE_HAS_ATOMIC))
			SAME(va);
		else
			ABSENT(va);
		if (row->headers & (ROCE_HAS_RETH | ROCE_HAS_ATOMIC | ROCE_HAS_IETH))
			SAME(rkey);
		else
			ABSENT(rkey);
		if (row->headers & ROCE_HAS_RETH)
			SAME(dma_length);
		else
			ABSENT(dma_length);
		if (row->headers & ROCE_HAS_ATOMIC) {
			SAME(swap_add);
			SAME(compare);
		} else {
			ABSENT(swap_add);
			ABSENT(compare);
		}
		if (row->headers & ROCE_HAS_AETH) {
			SAME(syndrome);
			SAME_24(msn);
		} else {
			ABSENT(syndrome);
			ABSENT(msn);
		}
		if (row->headers & ROCE_HAS_ATOMIC_ACK)
			SAME(original);
		else
			ABSENT(original);
		if (row->headers & ROCE_HAS_IMM)
			SAME(imm_data);
		else
			ABSENT(imm_data);
	}
}

/* A congestion notification, byte for byte: no capture has one. */
static void a_cnp_is_a_bth_with_becn_and_16_reserved_bytes(void **state)
{
	const struct roce_packet cnp = { .opcode = ROCE_OPCODE_CNP, .pkey = 0xffff, .becn = true, .qpn = 0x123456 };
	const uint8_t expected[28] = { 0x81, 0x00, 0xff, 0xff, 0x40, 0x12, 0x34, 0x56 };
	uint8_t bytes[ROCE_MAX_HEADERS];

	(void)state;
	memset(bytes, 0xee, sizeof(bytes));
	assert_int_equal(roce_build(&cnp, bytes), sizeof(expected));
	assert_memory_equal(bytes, expected, sizeof(expected));
	assert_int_equal(bytes[sizeof(expected)], 0xee);
}

static void reserved_bits_are_not_looked_at(void **state)
{
	const struct roce_packet packet = { .opcode = ROCE_OPCODE(ROCE_UD, ROCE_SEND_ONLY),
					    .pkey = 0xffff,
					    .qpn = 5,
					    .psn = 7,
					    .qkey = 9,
					    .src_qpn = 11 };
	struct roce_packet read;
	uint8_t bytes[ROCE_MAX_HEADERS];
	size_t length = roce_build(&packet, bytes);

	(void)state;
	bytes[4] |= 0x3f;
	bytes[8] |= 0x7f;
	bytes[16] |= 0xff;
	assert_true(roce_parse(bytes, length, &read));
	assert_false(read.fecn || read.becn || read.ack_req);
	assert_int_equal(read.qpn, 5);
	assert_int_equal(read.psn, 7);
	assert_int_equal(read.src_qpn, 11);
}

/* The bytes are on the heap and not more than said, for the address sanitizer. */
static bool parses(const uint8_t *bytes, size_t length)
{
	struct roce_packet packet;
	uint8_t *copy = malloc(length ? length : 1);
	bool good;

	memcpy(copy, bytes, length);
	good = roce_parse(copy, length, &packet);
	free(copy);
	return good;
}

static void a_packet_has_room_for_headers_and_pad_and_whole_words(void **state)
{
	(void)state;
	for (int opcode = 0; opcode < 256; opcode++) {
		const struct roce_opcode *row = roce_opcode(opcode);

		for (int pad = 0; pad < 4; pad++) {
			const uint8_t bytes[ROCE_MAX_HEADERS + 8] = { opcode, pad << 4 };

			for (size_t length = 0; length <= sizeof(bytes); length++)
				assert_int_equal(parses(bytes, length),
						 row->name && length % 4 == 0 &&
							 length >= (size_t)row->header_bytes + pad);
		}
	}
}

static void there_is_one_header_version(void **state)
{
	(void)state;
	for (int version = 0; version < 16; version++) {
		const uint8_t bytes[12] = { ROCE_OPCODE(ROCE_RC, ROCE_SEND_ONLY), version };

		assert_int_equal(parses(bytes, sizeof(bytes)), version == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_captured_packet_is_read_as_tshark_reads_it),
		cmocka_unit_test(every_captured_packet_is_built_again),
		cmocka_unit_test(what_was_built_is_read_and_the_rest_is_0),
		cmocka_unit_test(a_cnp_is_a_bth_with_becn_and_16_reserved_bytes),
		cmocka_unit_test(reserved_bits_are_not_looked_at),
		cmocka_unit_test(a_packet_has_room_for_headers_and_pad_and_whole_words),
		cmocka_unit_test(there_is_one_header_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
