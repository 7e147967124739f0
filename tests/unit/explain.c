/* SPDX-License-Identifier: MIT */
/* The words of causes: templates are whole, whatever the numbers are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <infiniband/verbs.h>

#include "observe/explain.h"

static void for_each_cause(void (*check)(uint32_t code))
{
	const struct cause_entry *entry;

	for (unsigned i = 0; (entry = cause_entry(i)); i++)
		check(entry->code);
}

/* Nothing of a template is left in a sentence. */
static void check_sentence(const struct cause *c)
{
	char text[EXPLAIN_TEXT];
	size_t length = explain_what(c, text, sizeof(text));

	assert_int_equal(length, strlen(text));
	assert_in_range(length, 10, EXPLAIN_TEXT - 2);
	if (strpbrk(text, "{}[]"))
		fail_msg("%s: %s", cause_name(c->code), text);
}

static void check_all_forms(uint32_t code)
{
	struct cause c;

	for (uint32_t role = CAUSE_OF_OTHER; role <= CAUSE_OF_POST; role++) {
		c = (struct cause){ .code = code, .role = role };
		check_sentence(&c);
		memset(&c, 0xff, sizeof(c));
		c.code = code;
		c.role = role;
		check_sentence(&c);
		c = (struct cause){
			.code = code, .role = role, .qpn = 0x4001, .peer_qpn = 0x8001, .value = 1, .limit = 2, .count = 3
		};
		check_sentence(&c);
	}
}

static void sentences_are_whole(void **state)
{
	(void)state;
	for_each_cause(check_all_forms);
}

static void check_words(uint32_t code)
{
	const struct explain_row *row = explain_row(code);

	if (!row || !*row->what || !*row->todo)
		fail_msg("%s has no words", cause_name(code));
}

static void every_code_has_words(void **state)
{
	(void)state;
	for_each_cause(check_words);
}

static void connection_is_named_by_its_address(void **state)
{
	struct cause c = { .code = CAUSE_CM_NO_LISTENER, .address = { [10] = 0xff, 0xff, 10, 1, 2, 3 }, .port = 7471 };
	char text[EXPLAIN_TEXT];

	(void)state;
	explain_what(&c, text, sizeof(text));
	assert_string_equal(text, "Connection with 10.1.2.3, port 7471: refused: no program listens there on that port.");
	memset(c.address, 0, sizeof(c.address));
	c.address[15] = 1;
	explain_what(&c, text, sizeof(text));
	assert_string_equal(text, "Connection with ::1, port 7471: refused: no program listens there on that port.");
	c = (struct cause){ .code = CAUSE_CM_STATE, .value = 1 };
	explain_what(&c, text, sizeof(text));
	assert_string_equal(text, "Connection: the id is bound to an address, which does not allow this call.");
}

static void check_cut(uint32_t code)
{
	struct cause c = { .code = code, .qpn = 0x4001, .role = CAUSE_OF_REQUEST };
	char text[32];

	memset(text, 'x', sizeof(text));
	explain_what(&c, text, 16);
	assert_int_equal(strlen(text), 15);
	for (size_t i = 16; i < sizeof(text); i++)
		assert_int_equal(text[i], 'x');
}

static void long_sentences_are_cut(void **state)
{
	(void)state;
	for_each_cause(check_cut);
}

static void codes_without_words_have_their_short_text(void **state)
{
	struct cause c = { .code = 999999 };
	char text[EXPLAIN_TEXT];

	(void)state;
	explain_what(&c, text, sizeof(text));
	assert_string_equal(text, "unknown cause");
	c.value = 28;
	explain_what(&c, text, sizeof(text));
	assert_string_equal(text, "unknown cause (value: 28)");
	assert_string_equal(explain_todo(999999), "");
	assert_null(explain_row(999999));
}

static void miss_says_which_end_and_by_how_much(void **state)
{
	static const struct {
		uint64_t addr, length;
		const char *says;
	} cases[] = {
		{ 0x1000, 17, "ends 1 byte after the end of the region 0x1000-0x1010 (16 bytes)" },
		{ 0x0ffe, 4, "starts 2 bytes before the region" },
		{ 0x1012, 1, "starts 2 bytes after the end of the region" },
		{ 0x0fff, 20, "starts before, and ends 3 bytes after, the end of the region" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct cause c = { .code = CAUSE_LKEY_BOUNDS,
				   .role = CAUSE_OF_REQUEST,
				   .addr = cases[i].addr,
				   .length = cases[i].length,
				   .region_addr = 0x1000,
				   .region_length = 16 };
		char text[EXPLAIN_TEXT];

		explain_what(&c, text, sizeof(text));
		if (!strstr(text, cases[i].says))
			fail_msg("no '%s' in: %s", cases[i].says, text);
	}
}

static void outcome_is_a_status_or_an_errno(void **state)
{
	(void)state;
	assert_string_equal(explain_outcome(&(struct cause){ .role = CAUSE_OF_REQUEST, .error = 12 }), "IBV_WC_RETRY_EXC_ERR");
	assert_string_equal(explain_outcome(&(struct cause){ .role = CAUSE_OF_POST, .error = 12 }), "ENOMEM");
	assert_string_equal(explain_outcome(&(struct cause){ .role = CAUSE_OF_OTHER }), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sentences_are_whole),
		cmocka_unit_test(every_code_has_words),
		cmocka_unit_test(connection_is_named_by_its_address),
		cmocka_unit_test(long_sentences_are_cut),
		cmocka_unit_test(codes_without_words_have_their_short_text),
		cmocka_unit_test(miss_says_which_end_and_by_how_much),
		cmocka_unit_test(outcome_is_a_status_or_an_errno),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
