/* SPDX-License-Identifier: MIT */
/* The segment's arena: classes, exhaustion, quarantine. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "nic/segment.h"

#define KIB 1024u

struct place {
	struct nic_segment *seg;
	int fd;
	uint64_t size;
	struct arena arena;
};

static int make_place(void **state)
{
	struct place *place = calloc(1, sizeof(*place));

	if (segment_create(&place->seg, &place->fd, &place->size) ||
	    segment_commit(place->seg, place->fd, place->seg, offsetof(struct nic_segment, cqs)))
		return -1;
	arena_init(&place->arena, place->seg, place->fd, place->size);
	*state = place;
	return 0;
}

static int drop_place(void **state)
{
	struct place *place = *state;

	arena_destroy(&place->arena);
	segment_destroy(place->seg, place->fd, place->size);
	free(place);
	return 0;
}

static void size_is_sealed(void **state)
{
	struct place *place = *state;
	struct stat st;

	assert_int_equal(fstat(place->fd, &st), 0);
	assert_int_equal(st.st_size, place->size);
	assert_int_equal(ftruncate(place->fd, 4096), -1);
	assert_int_equal(ftruncate(place->fd, (off_t)place->size + 4096), -1);
}

static void blocks_are_powers_of_two_and_apart(void **state)
{
	struct place *place = *state;
	uint64_t a = arena_alloc(&place->arena, 1), b = arena_alloc(&place->arena, KIB),
		 c = arena_alloc(&place->arena, KIB + 1), d = arena_alloc(&place->arena, 1);

	assert_true(a && b && c && d);
	assert_int_equal(a % KIB, 0);
	assert_int_equal(b - a, KIB);
	assert_int_equal(c - b, KIB);
	assert_int_equal(d - c, 2 * KIB);
}

static void page_sized_blocks_start_at_a_page(void **state)
{
	struct place *place = *state;

	assert_true(arena_alloc(&place->arena, 1));
	assert_int_equal(arena_alloc(&place->arena, 4096) % 4096, 0);
	assert_int_equal(arena_alloc(&place->arena, 100000) % 4096, 0);
}

static void freed_block_is_used_again_zeroed(void **state)
{
	struct place *place = *state;
	const uint64_t lengths[] = { 3000, 100000 };

	for (int i = 0; i < 2; i++) {
		uint64_t offset = arena_alloc(&place->arena, lengths[i]);

		assert_true(offset);
		memset(seg_at(place->seg, offset), 0xaa, lengths[i]);
		arena_free(&place->arena, offset, lengths[i], 0);
		assert_int_equal(arena_alloc(&place->arena, lengths[i]), offset);
		for (uint64_t at = 0; at < lengths[i]; at++)
			assert_int_equal(((uint8_t *)seg_at(place->seg, offset))[at], 0);
	}
}

static void punched_block_leaves_its_neighbours(void **state)
{
	struct place *place = *state;
	uint64_t small = arena_alloc(&place->arena, KIB),
		 large = arena_alloc(&place->arena, 64 * KIB),
		 after = arena_alloc(&place->arena, KIB);

	memset(seg_at(place->seg, small), 1, KIB);
	memset(seg_at(place->seg, after), 2, KIB);
	arena_free(&place->arena, large, 64 * KIB, 0);
	for (uint64_t at = 0; at < KIB; at++) {
		assert_int_equal(((uint8_t *)seg_at(place->seg, small))[at], 1);
		assert_int_equal(((uint8_t *)seg_at(place->seg, after))[at], 2);
	}
}

static void exhaustion_gives_zero_and_what_is_freed_comes_back(void **state)
{
	struct place *place = *state;

	place->arena.size = place->arena.next + 16 * KIB;

	uint64_t last = 0, count = 0;

	for (uint64_t offset; (offset = arena_alloc(&place->arena, KIB)); last = offset)
		count++;
	assert_int_equal(count, 16);
	assert_int_equal(arena_alloc(&place->arena, KIB), 0);
	arena_free(&place->arena, last, KIB, 0);
	assert_int_equal(arena_alloc(&place->arena, KIB), last);
	assert_int_equal(arena_alloc(&place->arena, UINT64_MAX), 0);
	assert_int_equal(arena_alloc(&place->arena, 1ull << 45), 0);
}

static void quarantined_block_waits_for_the_visitors(void **state)
{
	struct place *place = *state;
	uint64_t offset = arena_alloc(&place->arena, KIB);

	arena_free(&place->arena, offset, KIB, 1);
	assert_int_equal(place->seg->counters.quarantined, KIB);
	assert_int_not_equal(arena_alloc(&place->arena, KIB), offset);
	/* A look that finds a visitor leaves it there. */
	arena_end_quarantine(&place->arena, arena_take_quarantine(&place->arena), 0);
	assert_int_equal(place->seg->counters.quarantined, KIB);
	assert_int_not_equal(arena_alloc(&place->arena, KIB), offset);
	/* A block that comes in during a look is not set free by it. */
	struct arena_block *before = arena_take_quarantine(&place->arena);
	uint64_t late = arena_alloc(&place->arena, KIB);

	arena_free(&place->arena, late, KIB, 1);
	arena_end_quarantine(&place->arena, before, 1);
	assert_int_equal(place->seg->counters.quarantined, KIB);
	assert_int_equal(arena_alloc(&place->arena, KIB), offset);
	assert_int_not_equal(arena_alloc(&place->arena, KIB), late);
	arena_end_quarantine(&place->arena, arena_take_quarantine(&place->arena), 1);
	assert_int_equal(place->seg->counters.quarantined, 0);
	assert_int_equal(arena_alloc(&place->arena, KIB), late);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_place, drop_place)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(size_is_sealed),
		TEST(blocks_are_powers_of_two_and_apart),
		TEST(page_sized_blocks_start_at_a_page),
		TEST(freed_block_is_used_again_zeroed),
		TEST(punched_block_leaves_its_neighbours),
		TEST(exhaustion_gives_zero_and_what_is_freed_comes_back),
		TEST(quarantined_block_waits_for_the_visitors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
