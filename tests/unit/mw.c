/* SPDX-License-Identifier: MIT */
/* Memory windows: keys, who waits for whom, and two who invalidate at once. What the verbs say of them is tests/strict's. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "nic/mw.h"
#include "nic/visit.h"

#define REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static uint8_t memory[8192];

struct bench {
	struct nic *nic;
	struct nic_cq cq;
	struct nic_qp qp;
	struct nic_mr mr;
	struct nic_mw mw;
};

static struct bench bench;

static int set_up(void **state)
{
	struct nic *nic = *state;

	bench.nic = nic;
	assert_int_equal(nic_cq_create(nic, 16, NULL, &bench.cq), 0);
	make_qp(nic, IBV_QPT_RC, &bench.cq, NULL, 4, &bench.qp);
	assert_int_equal(nic_mr_register(nic, UNIT_PD, (uintptr_t)memory, sizeof(memory),
					 (uintptr_t)memory,
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &bench.mr),
			 0);
	assert_int_equal(nic_mw_alloc(nic, UNIT_PD, IBV_MW_TYPE_2, &bench.mw), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_int_equal(nic_mw_dealloc(&bench.mw), 0);
	assert_int_equal(nic_mr_deregister(&bench.mr), 0);
	nic_qp_destroy(&bench.qp);
	assert_int_equal(nic_cq_destroy(&bench.cq), 0);
	return 0;
}

static enum cause_code execute(struct nic_swqe *wqe)
{
	struct transport_result result = { 0 };
	enum transport_outcome outcome = mw_execute(&bench.qp, wqe, &result);

	if (outcome == TRANSPORT_DONE)
		return CAUSE_NONE;
	assert_int_equal(outcome, TRANSPORT_FAILED);
	assert_int_equal(result.status, IBV_WC_MW_BIND_ERR);
	return (enum cause_code)result.cause;
}

static enum cause_code bind(uint64_t offset, uint64_t length, uint32_t key)
{
	return execute(&(struct nic_swqe){ .opcode = IBV_WR_BIND_MW,
					   .window = mw_key(&bench.mw),
					   .window_lkey = bench.mr.lkey,
					   .window_access = REMOTE,
					   .window_length = length,
					   .remote_addr = (uintptr_t)memory + offset,
					   .rkey = key });
}

static enum cause_code invalidate(uint32_t key)
{
	return execute(&(struct nic_swqe){ .opcode = IBV_WR_LOCAL_INV, .rkey = key });
}

static enum cause_code look(uint32_t key, uint64_t offset, uint64_t length)
{
	struct piece piece = { 0 };
	struct cause c = { 0 };
	enum cause_code code = mr_check(bench.nic->seg, true, key, (uintptr_t)memory + offset,
					length, IBV_ACCESS_REMOTE_WRITE, UNIT_PD, bench.qp.qpn,
					&piece, &c);

	if (!code)
		assert_int_equal(piece.addr, (uintptr_t)memory + offset);
	return code;
}

static void a_bind_chooses_eight_bits_of_the_key(void **state)
{
	uint32_t first = mw_key(&bench.mw);

	(void)state;
	for (uint32_t i = 0; i < 256; i++) {
		/* Of what is asked for nothing but these 8 bits counts. */
		assert_int_equal(bind(100, 50, 0xabcdef00u | i), CAUSE_NONE);
		assert_int_equal(mw_key(&bench.mw), (first & ~0xffu) | i);
		assert_int_equal(look(mw_key(&bench.mw), 100, 50), CAUSE_NONE);
		assert_int_equal(look(mw_key(&bench.mw), 100, 51), CAUSE_WINDOW_BOUNDS);
		assert_int_equal(look(mw_key(&bench.mw) ^ 1, 100, 50), CAUSE_WINDOW_OTHER_KEY);
		assert_int_equal(look(mw_key(&bench.mw) ^ 0x100, 100, 50), CAUSE_RKEY_UNKNOWN);
		assert_int_equal(invalidate(mw_key(&bench.mw) ^ 1), CAUSE_INVALIDATE_KEY);
		assert_int_equal(invalidate(mw_key(&bench.mw)), CAUSE_NONE);
		assert_int_equal(look(mw_key(&bench.mw), 100, 50), CAUSE_WINDOW_UNBOUND);
	}
}

/* By mr_find, which is for regions only, a window is never found. */
static void the_short_look_leaves_windows_to_the_long_one(void **state)
{
	struct piece piece;

	(void)state;
	assert_int_equal(bind(0, 64, 1), CAUSE_NONE);
	for (int remote = 0; remote < 2; remote++)
		assert_false(mr_find(bench.nic->seg, remote, mw_key(&bench.mw), (uintptr_t)memory,
				     8, 0, UNIT_PD, &piece));
}

/* A window and a region after it in the same entry, and the other way round, have other keys. */
static void an_entrys_lives_have_other_keys(void **state)
{
	struct seg_mr *entry = bench.mw.shared;
	uint64_t state_word;

	(void)state;
	assert_int_equal(bind(0, 64, 77), CAUSE_NONE);

	uint32_t key = mw_key(&bench.mw);

	assert_int_equal(nic_mw_dealloc(&bench.mw), 0);
	state_word = atomic_load(&entry->state);
	/* What a region's key is made of next to (nic/mr.c) still stands there. */
	assert_int_equal(state_word >> MR_TAG_SHIFT & MR_TAG_MASK, key >> 1 & MR_TAG_MASK);
	assert_int_equal(state_word & (NIC_MW | NIC_MW_BOUND | NIC_MR_VALID), 0);
	assert_int_equal(look(key, 0, 1), CAUSE_RKEY_DEREGISTERED);
	assert_int_equal(invalidate(key), CAUSE_INVALIDATE_KEY);
	assert_int_equal(nic_mw_alloc(bench.nic, UNIT_PD, IBV_MW_TYPE_2, &bench.mw), 0);
}

static void a_deallocated_window_is_not_bound(void **state)
{
	uint32_t key = mw_key(&bench.mw);

	(void)state;
	assert_int_equal(nic_mw_dealloc(&bench.mw), 0);
	assert_int_equal(execute(&(struct nic_swqe){ .opcode = IBV_WR_BIND_MW,
						     .window = key,
						     .window_lkey = bench.mr.lkey,
						     .window_length = 1,
						     .remote_addr = (uintptr_t)memory }),
			 CAUSE_BIND_WINDOW);
	assert_int_equal(nic_mw_alloc(bench.nic, UNIT_PD, IBV_MW_TYPE_2, &bench.mw), 0);
}

static void a_visitor_that_stands_still_is_waited_for_as_long_as_the_grace(void **state)
{
	struct seg_visit *visit;
	uint32_t key;
	uint64_t start;

	(void)state;
	assert_int_equal(bind(0, 64, 5), CAUSE_NONE);
	key = mw_key(&bench.mw);
	visit = visit_enter(bench.nic, bench.nic->seg);
	assert_non_null(visit);
	start = nic_now();
	assert_int_equal(nic_mw_dealloc(&bench.mw), EBUSY);
	assert_true(nic_now() - start >= NIC_GRACE);
	assert_int_equal(look(key, 0, 64), CAUSE_NONE);
	/* An invalidation that fails lets nobody in all the same; the region is kept for who stands there. */
	assert_int_equal(invalidate(key), CAUSE_WINDOW_STOPPED_PEER);
	assert_int_equal(look(key, 0, 64), CAUSE_WINDOW_UNBOUND);
	assert_int_equal(bind(0, 64, 6), CAUSE_WINDOW_STOPPED_PEER);
	assert_int_equal(nic_mr_deregister(&bench.mr), EBUSY);
	visit_leave(visit);
	assert_int_equal(bind(64, 64, 7), CAUSE_NONE);
	assert_int_equal(look(mw_key(&bench.mw), 64, 64), CAUSE_NONE);
}

static void a_region_counts_the_windows_that_are_bound_to_it(void **state)
{
	struct nic_mw more[3];
	struct cause c = { 0 };
	uint32_t key;

	(void)state;
	assert_int_equal(bind(0, 64, 1), CAUSE_NONE);
	key = mw_key(&bench.mw);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(nic_mw_alloc(bench.nic, UNIT_PD, IBV_MW_TYPE_1, &more[i]), 0);
		assert_int_equal(execute(&(struct nic_swqe){ .opcode = IBV_WR_BIND_MW,
							     .window = mw_key(&more[i]),
							     .window_lkey = bench.mr.lkey,
							     .window_length = 1 + i,
							     .remote_addr = (uintptr_t)memory }),
				 CAUSE_NONE);
	}
	assert_int_equal(mw_bound_to(bench.nic, bench.mr.index), 4);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(nic_mw_dealloc(&more[i]), 0);
	assert_int_equal(nic_mr_deregister(&bench.mr), EBUSY);
	/* A peer invalidates the last one: the owner finds that out by itself. */
	assert_int_equal(mw_invalidate(bench.nic->seg, key, bench.qp.qpn, UNIT_PD, &c), CAUSE_NONE);
	assert_int_equal(mw_bound_to(bench.nic, bench.mr.index), 0);
	assert_int_equal(nic_mr_deregister(&bench.mr), 0);
	assert_int_equal(nic_mr_register(bench.nic, UNIT_PD, (uintptr_t)memory, sizeof(memory),
					 (uintptr_t)memory,
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &bench.mr),
			 0);
	assert_int_equal(bind(0, 64, 2), CAUSE_NONE);
}

static _Atomic uint32_t phase, current;
static _Atomic bool stop;
static _Atomic uint64_t seen;

/* Looks, works a moment, and must not be overtaken by the end of an invalidation. */
static void *visitor(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		struct seg_visit *visit = visit_enter(bench.nic, bench.nic->seg);
		uint32_t key = atomic_load(&current);

		if (!visit)
			continue;
		if (!look(key, 0, 64)) {
			uint32_t before = atomic_load(&phase);

			for (volatile int i = 0; i < 50; i++)
				;
			THREAD_CHECK(atomic_load(&phase) == before);
			atomic_fetch_add(&seen, 1);
		}
		visit_leave(visit);
	}
	return NULL;
}

static void nobody_is_inside_when_an_invalidation_is_done(void **state)
{
	pthread_t thread;

	(void)state;
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&thread, NULL, visitor, NULL), 0);
	for (uint32_t i = 0; i < TIMES(100) || (atomic_load(&seen) < 10 && i < 1000000); i++) {
		assert_int_equal(bind(0, 64, i), CAUSE_NONE);
		atomic_store(&current, mw_key(&bench.mw));
		if (i % 64 == 0)
			sched_yield();
		assert_int_equal(invalidate(mw_key(&bench.mw)), CAUSE_NONE);
		atomic_fetch_add(&phase, 1);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	assert_true(atomic_load(&seen) >= 10);
}

static _Atomic uint64_t taken_by_peer;

static void *peer(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		struct seg_visit *visit = visit_enter(bench.nic, bench.nic->seg);
		struct cause c = { 0 };

		if (!visit)
			continue;
		if (!mw_invalidate(bench.nic->seg, atomic_load(&current), bench.qp.qpn, UNIT_PD,
				   &c))
			atomic_fetch_add(&taken_by_peer, 1);
		visit_leave(visit);
	}
	return NULL;
}

static void of_two_who_invalidate_one_does(void **state)
{
	uint64_t ours = 0, rounds = 0;
	pthread_t thread;

	(void)state;
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&thread, NULL, peer, NULL), 0);
	for (; rounds < TIMES(150); rounds++) {
		enum cause_code code;

		assert_int_equal(bind(0, 64, (uint32_t)rounds), CAUSE_NONE);
		atomic_store(&current, mw_key(&bench.mw));
		if (rounds % 2)
			sched_yield();
		code = invalidate(mw_key(&bench.mw));
		assert_true(code == CAUSE_NONE || code == CAUSE_INVALIDATE_UNBOUND);
		ours += !code;
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	assert_int_equal(ours + atomic_load(&taken_by_peer), rounds);
	assert_int_equal(mw_bound_to(bench.nic, bench.mr.index), 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_bind_chooses_eight_bits_of_the_key),
		CASE(the_short_look_leaves_windows_to_the_long_one),
		CASE(an_entrys_lives_have_other_keys),
		CASE(a_deallocated_window_is_not_bound),
		CASE(a_visitor_that_stands_still_is_waited_for_as_long_as_the_grace),
		CASE(a_region_counts_the_windows_that_are_bound_to_it),
		CASE(nobody_is_inside_when_an_invalidation_is_done),
		CASE(of_two_who_invalidate_one_does),
	};

	return cmocka_run_group_tests(tests, open_nic, close_nic);
}
