/* SPDX-License-Identifier: MIT */
/* The table of opcodes against the specification's, written down once more as it stands there. */
#include "unit.h"

#include "roce/packet.h"

struct expected {
	uint8_t opcode;
	const char *name;
	uint8_t headers;
	uint8_t bytes; /* of BTH and headers */
	enum roce_payload payload;
	enum roce_place place;
	bool response;
};

#define FULL ROCE_PAYLOAD_FULL
#define SOME ROCE_PAYLOAD_SOME
#define ANY  ROCE_PAYLOAD_ANY
#define NONE ROCE_PAYLOAD_NONE

/* clang-format off */
static const struct expected table[] = {
	{ 0x00, "RC SEND First", 0, 12, FULL, ROCE_FIRST, false },
	{ 0x01, "RC SEND Middle", 0, 12, FULL, ROCE_MIDDLE, false },
	{ 0x02, "RC SEND Last", 0, 12, SOME, ROCE_LAST, false },
	{ 0x03, "RC SEND Last with Immediate", ROCE_HAS_IMM, 16, SOME, ROCE_LAST, false },
	{ 0x04, "RC SEND Only", 0, 12, ANY, ROCE_ONLY, false },
	{ 0x05, "RC SEND Only with Immediate", ROCE_HAS_IMM, 16, ANY, ROCE_ONLY, false },
	{ 0x06, "RC RDMA WRITE First", ROCE_HAS_RETH, 28, FULL, ROCE_FIRST, false },
	{ 0x07, "RC RDMA WRITE Middle", 0, 12, FULL, ROCE_MIDDLE, false },
	{ 0x08, "RC RDMA WRITE Last", 0, 12, SOME, ROCE_LAST, false },
	{ 0x09, "RC RDMA WRITE Last with Immediate", ROCE_HAS_IMM, 16, SOME, ROCE_LAST, false },
	{ 0x0a, "RC RDMA WRITE Only", ROCE_HAS_RETH, 28, ANY, ROCE_ONLY, false },
	{ 0x0b, "RC RDMA WRITE Only with Immediate", ROCE_HAS_RETH | ROCE_HAS_IMM, 32, ANY, ROCE_ONLY, false },
	{ 0x0c, "RC RDMA READ Request", ROCE_HAS_RETH, 28, NONE, ROCE_ONLY, false },
	{ 0x0d, "RC RDMA READ response First", ROCE_HAS_AETH, 16, FULL, ROCE_FIRST, true },
	{ 0x0e, "RC RDMA READ response Middle", 0, 12, FULL, ROCE_MIDDLE, true },
	{ 0x0f, "RC RDMA READ response Last", ROCE_HAS_AETH, 16, SOME, ROCE_LAST, true },
	{ 0x10, "RC RDMA READ response Only", ROCE_HAS_AETH, 16, ANY, ROCE_ONLY, true },
	{ 0x11, "RC Acknowledge", ROCE_HAS_AETH, 16, NONE, ROCE_ONLY, true },
	{ 0x12, "RC ATOMIC Acknowledge", ROCE_HAS_AETH | ROCE_HAS_ATOMIC_ACK, 24, NONE, ROCE_ONLY, true },
	{ 0x13, "RC CmpSwap", ROCE_HAS_ATOMIC, 40, NONE, ROCE_ONLY, false },
	{ 0x14, "RC FetchAdd", ROCE_HAS_ATOMIC, 40, NONE, ROCE_ONLY, false },
	{ 0x16, "RC SEND Last with Invalidate", ROCE_HAS_IETH, 16, SOME, ROCE_LAST, false },
	{ 0x17, "RC SEND Only with Invalidate", ROCE_HAS_IETH, 16, ANY, ROCE_ONLY, false },
	{ 0x20, "UC SEND First", 0, 12, FULL, ROCE_FIRST, false },
	{ 0x21, "UC SEND Middle", 0, 12, FULL, ROCE_MIDDLE, false },
	{ 0x22, "UC SEND Last", 0, 12, SOME, ROCE_LAST, false },
	{ 0x23, "UC SEND Last with Immediate", ROCE_HAS_IMM, 16, SOME, ROCE_LAST, false },
	{ 0x24, "UC SEND Only", 0, 12, ANY, ROCE_ONLY, false },
	{ 0x25, "UC SEND Only with Immediate", ROCE_HAS_IMM, 16, ANY, ROCE_ONLY, false },
	{ 0x26, "UC RDMA WRITE First", ROCE_HAS_RETH, 28, FULL, ROCE_FIRST, false },
	{ 0x27, "UC RDMA WRITE Middle", 0, 12, FULL, ROCE_MIDDLE, false },
	{ 0x28, "UC RDMA WRITE Last", 0, 12, SOME, ROCE_LAST, false },
	{ 0x29, "UC RDMA WRITE Last with Immediate", ROCE_HAS_IMM, 16, SOME, ROCE_LAST, false },
	{ 0x2a, "UC RDMA WRITE Only", ROCE_HAS_RETH, 28, ANY, ROCE_ONLY, false },
	{ 0x2b, "UC RDMA WRITE Only with Immediate", ROCE_HAS_RETH | ROCE_HAS_IMM, 32, ANY, ROCE_ONLY, false },
	{ 0x64, "UD SEND Only", ROCE_HAS_DETH, 20, ANY, ROCE_ONLY, false },
	{ 0x65, "UD SEND Only with Immediate", ROCE_HAS_DETH | ROCE_HAS_IMM, 24, ANY, ROCE_ONLY, false },
	{ 0x81, "CNP", ROCE_HAS_CNP_PAD, 28, NONE, ROCE_ONLY, false },
};
/* clang-format on */

#define ROWS (sizeof(table) / sizeof(*table))

static void every_row_is_the_specifications(void **state)
{
	(void)state;
	for (size_t i = 0; i < ROWS; i++) {
		const struct roce_opcode *row = roce_opcode(table[i].opcode);

		assert_non_null(row->name);
		assert_string_equal(row->name, table[i].name);
		assert_int_equal(row->headers, table[i].headers);
		assert_int_equal(row->header_bytes, table[i].bytes);
		assert_int_equal(row->payload, table[i].payload);
		assert_int_equal(row->place, table[i].place);
		assert_int_equal(row->response, table[i].response);
	}
}

static void the_others_have_no_name(void **state)
{
	size_t next = 0;

	(void)state;
	for (int opcode = 0; opcode < 256; opcode++) {
		if (next < ROWS && table[next].opcode == opcode)
			next++;
		else
			assert_null(roce_opcode(opcode)->name);
	}
	assert_int_equal(next, ROWS);
}

static void no_row_needs_more_room_than_there_is(void **state)
{
	(void)state;
	for (int opcode = 0; opcode < 256; opcode++)
		assert_in_range(roce_opcode(opcode)->header_bytes, 0, ROCE_MAX_HEADERS);
}

static void names_make_the_opcodes(void **state)
{
	(void)state;
	assert_int_equal(ROCE_OPCODE(ROCE_RC, ROCE_SEND_ONLY_INV), 0x17);
	assert_int_equal(ROCE_OPCODE(ROCE_RC, ROCE_FETCH_ADD), 0x14);
	assert_int_equal(ROCE_OPCODE(ROCE_UC, ROCE_WRITE_ONLY_IMM), 0x2b);
	assert_int_equal(ROCE_OPCODE(ROCE_UD, ROCE_SEND_ONLY_IMM), 0x65);
	assert_int_equal(ROCE_OPCODE_CNP, 0x81);
}

static void payload_is_as_long_as_the_place_allows(void **state)
{
	/* 0, 1, MTU - 1, MTU, MTU + 1 */
	static const bool fits[4][5] = {
		[NONE] = { true, false, false, false, false },
		[FULL] = { false, false, false, true, false },
		[SOME] = { false, true, true, true, false },
		[ANY] = { true, true, true, true, false },
	};

	(void)state;
	for (size_t i = 0; i < ROWS; i++) {
		for (uint32_t mtu = 256; mtu <= 4096; mtu *= 2) {
			const uint32_t lengths[] = { 0, 1, mtu - 1, mtu, mtu + 1 };

			for (int j = 0; j < 5; j++)
				assert_int_equal(roce_payload_fits(roce_opcode(table[i].opcode), lengths[j], mtu),
						 fits[table[i].payload][j]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_is_the_specifications),	  cmocka_unit_test(the_others_have_no_name),
		cmocka_unit_test(no_row_needs_more_room_than_there_is),	  cmocka_unit_test(names_make_the_opcodes),
		cmocka_unit_test(payload_is_as_long_as_the_place_allows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
