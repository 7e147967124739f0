/* SPDX-License-Identifier: MIT */
/* Tables by index, and lists. */
#include "unit.h"

#include "nic/list.h"
#include "nic/table.h"

static void freed_index_comes_again_last(void **state)
{
	struct table table;
	int a, b, c;

	(void)state;
	assert_int_equal(table_init(&table, 4), 0);
	assert_int_equal(table_alloc(&table, &a, 4), 0);
	assert_int_equal(table_alloc(&table, &b, 4), 1);
	table_free(&table, 0);
	table_free(&table, 1);
	assert_int_equal(table_alloc(&table, &c, 4), 2);
	assert_int_equal(table_alloc(&table, &c, 4), 3);
	assert_int_equal(table_alloc(&table, &c, 4), 0);
	assert_int_equal(table_alloc(&table, &c, 4), 1);
	assert_int_equal(table_alloc(&table, &c, 4), -1);
	table_destroy(&table);
}

static void freed_indices_queue_up_over_many_rounds(void **state)
{
	struct table table;
	int object;

	(void)state;
	assert_int_equal(table_init(&table, 8), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(table_alloc(&table, &object, 8), i);
	for (uint32_t i = 0; i < 1000; i++) {
		table_free(&table, i % 8);
		assert_int_equal(table.used, 7);
		assert_int_equal(table_alloc(&table, &object, 8), i % 8);
	}
	table_destroy(&table);
}

static void limit_below_size_is_kept(void **state)
{
	struct table table;
	int object;

	(void)state;
	assert_int_equal(table_init(&table, 8), 0);
	assert_int_equal(table_alloc(&table, &object, 2), 0);
	assert_int_equal(table_alloc(&table, &object, 2), 1);
	assert_int_equal(table_alloc(&table, &object, 2), -1);
	table_destroy(&table);
}

static void look_up_finds_only_what_is_there(void **state)
{
	struct table table;
	int object;

	(void)state;
	assert_int_equal(table_init(&table, 4), 0);
	assert_null(table_get(&table, 0));
	assert_int_equal(table_alloc(&table, &object, 4), 0);
	assert_ptr_equal(table_get(&table, 0), &object);
	assert_null(table_get(&table, 1));
	assert_null(table_get(&table, 4));
	assert_null(table_get(&table, UINT32_MAX));
	table_free(&table, 0);
	assert_null(table_get(&table, 0));
	table_destroy(&table);
}

struct item {
	int value;
	struct list node;
};

static void list_keeps_order_and_bears_double_removal(void **state)
{
	struct list head;
	struct item items[3] = { { .value = 1 }, { .value = 2 }, { .value = 3 } };
	int sum = 0, last = 0;

	(void)state;
	list_init(&head);
	assert_true(list_empty(&head));
	for (int i = 0; i < 3; i++)
		list_add_tail(&head, &items[i].node);
	list_for_each(node, &head) {
		int value = list_entry(node, struct item, node)->value;

		assert_true(value > last);
		last = value;
	}
	list_del(&items[1].node);
	list_del(&items[1].node);
	list_for_each_safe(node, tmp, &head) {
		sum += list_entry(node, struct item, node)->value;
		list_del(node);
	}
	assert_int_equal(sum, 4);
	assert_true(list_empty(&head));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(freed_index_comes_again_last),
		cmocka_unit_test(freed_indices_queue_up_over_many_rounds),
		cmocka_unit_test(limit_below_size_is_kept),
		cmocka_unit_test(look_up_finds_only_what_is_there),
		cmocka_unit_test(list_keeps_order_and_bears_double_removal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
