/* SPDX-License-Identifier: MIT */
/* Ranges of pages: compared with an array that has an entry for every page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "nic/ranges.h"

#define PAGES  64u
#define ROUNDS 20000
#define HELD   24

struct model {
	uint32_t count[PAGES];
	bool mapped[PAGES];
};

static void compare(const struct page_ranges *ranges, const struct model *model)
{
	struct page_range range, last = { 0 };
	uint64_t at = 0;

	for (; ranges_next(ranges, at, PAGES, &range); at = range.end, last = range) {
		assert_true(range.start < range.end && (range.count || range.mapped));
		for (; at < range.start; at++)
			assert_false(model->count[at] || model->mapped[at]);
		for (uint64_t page = range.start; page < range.end; page++) {
			assert_int_equal(model->count[page], range.count);
			assert_int_equal(model->mapped[page], range.mapped);
		}
		/* Neighbours that do not differ are one. */
		assert_false(last.end == range.start && last.count == range.count &&
			     last.mapped == range.mapped);
	}
	for (; at < PAGES; at++)
		assert_false(model->count[at] || model->mapped[at]);
}

static void random_rounds_agree_with_a_page_table(void **state)
{
	struct page_ranges ranges = { 0 };
	struct model model = { 0 };
	struct page_range held[HELD] = { 0 };

	(void)state;
	srandom(1);
	for (int round = 0; round < ROUNDS; round++) {
		struct page_range *one = &held[random() % HELD];

		if (one->count && random() % 3) {
			assert_true(ranges_reserve(&ranges));
			one->mapped = random() % 2;
			ranges_set_mapped(&ranges, one->start, one->end, one->mapped);
			for (uint64_t page = one->start; page < one->end; page++)
				model.mapped[page] = one->mapped;
		} else if (one->count) {
			assert_true(ranges_remove(&ranges, one->start, one->end));
			for (uint64_t page = one->start; page < one->end; page++)
				model.count[page]--;
			one->count = 0;
		} else {
			one->start = (uint64_t)random() % PAGES;
			one->end = one->start + 1 + (uint64_t)random() % (PAGES - one->start);
			one->count = 1;
			assert_true(ranges_add(&ranges, one->start, one->end));
			for (uint64_t page = one->start; page < one->end; page++)
				model.count[page]++;
		}
		/* What nobody covers any more ends when it is not mapped any more. */
		uint64_t page = (uint64_t)random() % PAGES;

		if (!model.count[page] && model.mapped[page]) {
			assert_true(ranges_reserve(&ranges));
			ranges_set_mapped(&ranges, page, page + 1, false);
			model.mapped[page] = false;
		}
		compare(&ranges, &model);
		assert_false(
			ranges_next(&ranges, one->start, one->start, &(struct page_range){ 0 }));
	}
	ranges_destroy(&ranges);
}

static void repeated_ranges_are_one(void **state)
{
	struct page_ranges ranges = { 0 };

	(void)state;
	for (int i = 0; i < 1000; i++)
		assert_true(ranges_add(&ranges, 10, 20));
	assert_int_equal(ranges.count, 1);
	assert_int_equal(ranges.list[0].count, 1000);
	for (int i = 0; i < 1000; i++)
		assert_true(ranges_remove(&ranges, 10, 20));
	assert_int_equal(ranges.count, 0);
	ranges_destroy(&ranges);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_rounds_agree_with_a_page_table),
		cmocka_unit_test(repeated_ranges_are_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
