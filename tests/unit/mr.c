/* SPDX-License-Identifier: MIT */
/* Memory regions: keys, the byte-exact check, domains, rights, what is done with them after
 * deregistration. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "nic/mr.h"
#include "nic/visit.h"

#define ALL                                                                          \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_ATOMIC)

static uint8_t memory[4096];

static struct nic_mr region(void **state, uint64_t offset, uint64_t length, uint64_t iova,
			    uint32_t access)
{
	struct nic_mr mr;

	assert_int_equal(nic_mr_register(*state, UNIT_PD, (uintptr_t)memory + offset, length, iova,
					 access, &mr),
			 0);
	return mr;
}

static enum cause_code check(void **state, bool remote, uint32_t key, uint64_t addr,
			     uint64_t length, uint32_t rights, uint32_t pd, uint64_t *va)
{
	struct nic *nic = *state;
	struct cause cause = { 0 };
	struct piece piece = { 0 };
	enum cause_code code =
		mr_check(nic->seg, remote, key, addr, length, rights, pd, 0, &piece, &cause);

	*va = piece.addr;
	return code;
}

static enum cause_code check_lkey(void **state, const struct nic_mr *mr, uint64_t addr,
				  uint64_t length)
{
	uint64_t va;

	return check(state, false, mr->lkey, addr, length, 0, UNIT_PD, &va);
}

static void bounds_are_exact_to_the_byte(void **state)
{
	const uint64_t iova = 0x123456789000;
	struct nic_mr mr = region(state, 17, 100, iova, 0);
	uint64_t va;

	assert_int_equal(check(state, false, mr.lkey, iova, 100, 0, UNIT_PD, &va), CAUSE_NONE);
	assert_int_equal(va, (uintptr_t)memory + 17);
	assert_int_equal(check(state, false, mr.lkey, iova + 99, 1, 0, UNIT_PD, &va), CAUSE_NONE);
	assert_int_equal(va, (uintptr_t)memory + 17 + 99);
	assert_int_equal(check_lkey(state, &mr, iova - 1, 1), CAUSE_LKEY_BOUNDS);
	assert_int_equal(check_lkey(state, &mr, iova - 1, 100), CAUSE_LKEY_BOUNDS);
	assert_int_equal(check_lkey(state, &mr, iova, 101), CAUSE_LKEY_BOUNDS);
	assert_int_equal(check_lkey(state, &mr, iova + 1, 100), CAUSE_LKEY_BOUNDS);
	assert_int_equal(check_lkey(state, &mr, iova + 100, 1), CAUSE_LKEY_BOUNDS);
	assert_int_equal(nic_mr_deregister(&mr), 0);
}

static void ranges_that_wrap_are_out_of_bounds(void **state)
{
	const uint64_t top = UINT64_MAX - 200;
	struct nic_mr mr = region(state, 0, 100, top, 0);

	assert_int_equal(check_lkey(state, &mr, top, UINT64_MAX), CAUSE_LKEY_BOUNDS);
	assert_int_equal(check_lkey(state, &mr, top + 50, UINT64_MAX - 49), CAUSE_LKEY_BOUNDS);
	assert_int_equal(check_lkey(state, &mr, 0, 1), CAUSE_LKEY_BOUNDS);
	assert_int_equal(check_lkey(state, &mr, UINT64_MAX, 2), CAUSE_LKEY_BOUNDS);
	assert_int_equal(check_lkey(state, &mr, top + 99, 1), CAUSE_NONE);
	assert_int_equal(nic_mr_deregister(&mr), 0);
}

static void registration_refuses_impossible_ranges(void **state)
{
	struct nic_mr mr;
	void *page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_int_equal(nic_mr_register(*state, 1, (uintptr_t)memory, 0, 0, 0, &mr), EINVAL);
	assert_int_equal(nic_mr_register(*state, 1, UINT64_MAX - 10, 100, 0, 0, &mr), EINVAL);
	assert_int_equal(nic_mr_register(*state, 1, (uintptr_t)memory, 100, UINT64_MAX - 10, 0,
					 &mr),
			 EINVAL);
	assert_int_equal(nic_mr_register(*state, 1, (uintptr_t)memory, 1, 0,
					 IBV_ACCESS_REMOTE_WRITE, &mr),
			 EINVAL);
	assert_int_equal(nic_mr_register(*state, 1, (uintptr_t)memory, 1, 0,
					 IBV_ACCESS_REMOTE_ATOMIC, &mr),
			 EINVAL);
	assert_int_equal(nic_mr_register(*state, 1, (uintptr_t)page, 8192, 0,
					 IBV_ACCESS_LOCAL_WRITE, &mr),
			 EFAULT);
	assert_int_equal(nic_mr_register(*state, 1, (uintptr_t)page, 8192, 0,
					 IBV_ACCESS_REMOTE_READ, &mr),
			 0);
	assert_int_equal(nic_mr_deregister(&mr), 0);
	munmap((uint8_t *)page + 4096, 4096);
	assert_int_equal(nic_mr_register(*state, 1, (uintptr_t)page, 8192, 0, 0, &mr), EFAULT);
	assert_int_equal(nic_mr_register(*state, 1, (uintptr_t)page + 4095, 2, 0, 0, &mr), EFAULT);
	assert_int_equal(nic_mr_register(*state, 1, (uintptr_t)page + 4095, 1, 0, 0, &mr), 0);
	assert_int_equal(nic_mr_deregister(&mr), 0);
	munmap(page, 4096);
}

static void lkey_and_rkey_are_not_interchangeable(void **state)
{
	struct nic_mr mr = region(state, 0, 100, 0, ALL);
	uint64_t va;

	assert_int_not_equal(mr.lkey, mr.rkey);
	assert_int_equal(check(state, true, mr.lkey, 0, 1, 0, UNIT_PD, &va), CAUSE_RKEY_IS_LKEY);
	assert_int_equal(check(state, false, mr.rkey, 0, 1, 0, UNIT_PD, &va), CAUSE_LKEY_IS_RKEY);
	assert_int_equal(nic_mr_deregister(&mr), 0);
}

static void domain_must_be_the_regions(void **state)
{
	struct nic_mr mr = region(state, 0, 100, 0, ALL);
	uint64_t va;

	assert_int_equal(check(state, true, mr.rkey, 0, 1, 0, UNIT_PD + 1, &va), CAUSE_RKEY_PD);
	assert_int_equal(check(state, false, mr.lkey, 0, 1, 0, UNIT_PD + 1, &va), CAUSE_LKEY_PD);
	assert_int_equal(nic_mr_deregister(&mr), 0);
}

static void each_right_is_asked_for_by_itself(void **state)
{
	const uint32_t rights[] = { IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ,
				    IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC };
	uint64_t va;

	for (uint32_t given = 0; given < 16; given++) {
		uint32_t access = 0;

		for (int i = 0; i < 4; i++)
			access |= given >> i & 1 ? rights[i] : 0;
		if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
		    !(access & IBV_ACCESS_LOCAL_WRITE))
			continue;
		struct nic_mr mr = region(state, 0, 100, 0, access);

		for (int i = 0; i < 4; i++)
			assert_int_equal(check(state, true, mr.rkey, 0, 1, rights[i], UNIT_PD, &va),
					 access & rights[i] ? CAUSE_NONE : CAUSE_RKEY_ACCESS);
		assert_int_equal(nic_mr_deregister(&mr), 0);
	}
}

static void keys_of_the_past_are_told_from_unknown_ones(void **state)
{
	struct nic_mr mr = region(state, 0, 100, 0, ALL);
	uint64_t va;

	assert_int_equal(nic_mr_deregister(&mr), 0);
	assert_int_equal(check(state, true, mr.rkey, 0, 1, 0, UNIT_PD, &va),
			 CAUSE_RKEY_DEREGISTERED);
	assert_int_equal(check(state, false, mr.lkey, 0, 1, 0, UNIT_PD, &va),
			 CAUSE_LKEY_DEREGISTERED);
	assert_int_equal(check(state, true, mr.rkey ^ 2, 0, 1, 0, UNIT_PD, &va),
			 CAUSE_RKEY_UNKNOWN);
	assert_int_equal(check(state, true, 0, 0, 1, 0, UNIT_PD, &va), CAUSE_RKEY_UNKNOWN);
	assert_int_equal(check(state, true, UINT32_MAX, 0, 1, 0, UNIT_PD, &va), CAUSE_RKEY_UNKNOWN);
}

static void keys_are_not_used_again_soon(void **state)
{
	struct nic_mr mr = region(state, 0, 100, 0, ALL);
	uint32_t first = mr.lkey;

	for (int i = 0; i < TIMES(10000); i++) {
		assert_int_equal(nic_mr_deregister(&mr), 0);
		mr = region(state, 0, 100, 0, ALL);
		assert_int_not_equal(mr.lkey, first);
		assert_int_not_equal(mr.rkey, first);
	}
	assert_int_equal(nic_mr_deregister(&mr), 0);
}

/* Where every entry of the table has been used, the same one comes again: under another tag. */
static void entry_that_comes_again_has_another_key(void **state)
{
	struct nic *nic = *state;
	struct nic_mr mr = region(state, 0, 100, 0, ALL);
	uint32_t last[2] = { 0, 0 };

	for (int i = 0; i < TIMES(3000); i++) {
		uint32_t index = mr.index;
		uint64_t va;

		assert_int_not_equal(mr.lkey, last[0]);
		assert_int_not_equal(mr.lkey, last[1]);
		last[1] = last[0];
		last[0] = mr.lkey;
		assert_int_equal(nic_mr_deregister(&mr), 0);
		/* Makes the table's queue give the same entry out. */
		pthread_mutex_lock(&nic->mrs.lock);
		uint32_t fresh = nic->mrs.fresh;

		nic->mrs.fresh = NIC_MAX_MR;
		while (nic->mrs.queue[nic->mrs.freed_head] != index) {
			uint32_t other = nic->mrs.queue[nic->mrs.freed_head];

			nic->mrs.freed_head = (nic->mrs.freed_head + 1) % nic->mrs.size;
			nic->mrs.queue[(nic->mrs.freed_head + nic->mrs.freed_count - 1) %
				       nic->mrs.size] = other;
		}
		pthread_mutex_unlock(&nic->mrs.lock);
		mr = region(state, 0, 100, 0, ALL);
		nic->mrs.fresh = fresh;
		assert_int_equal(mr.index, index);
		assert_int_equal(check(state, false, last[0], 0, 1, 0, UNIT_PD, &va),
				 CAUSE_LKEY_UNKNOWN);
	}
	assert_int_equal(nic_mr_deregister(&mr), 0);
}

static void reregistration_changes_what_it_names(void **state)
{
	struct nic_mr mr = region(state, 0, 100, (uintptr_t)memory, IBV_ACCESS_LOCAL_WRITE),
		      before = mr;
	uint64_t va;

	assert_int_equal(nic_mr_reregister(&mr, IBV_REREG_MR_CHANGE_PD, 9, 0, 0, 0), 0);
	assert_int_equal(check(state, false, before.lkey, (uintptr_t)memory, 100, 0, 9, &va),
			 CAUSE_NONE);
	assert_int_equal(check(state, false, before.lkey, (uintptr_t)memory, 100, 0, UNIT_PD, &va),
			 CAUSE_LKEY_PD);
	assert_int_equal(nic_mr_reregister(&mr, IBV_REREG_MR_CHANGE_ACCESS, 0, 0, 0,
					   IBV_ACCESS_REMOTE_READ),
			 0);
	assert_int_equal(check(state, true, mr.rkey, (uintptr_t)memory, 1, IBV_ACCESS_REMOTE_READ,
			       9, &va),
			 CAUSE_NONE);
	assert_int_equal(check(state, false, mr.lkey, (uintptr_t)memory, 1, IBV_ACCESS_LOCAL_WRITE,
			       9, &va),
			 CAUSE_LKEY_ACCESS);
	assert_int_equal(nic_mr_reregister(&mr, IBV_REREG_MR_CHANGE_TRANSLATION, 0,
					   (uintptr_t)memory + 200, 10, 0),
			 0);
	assert_int_equal(check(state, false, mr.lkey, (uintptr_t)memory + 200, 10, 0, 9, &va),
			 CAUSE_NONE);
	assert_int_equal(check(state, false, mr.lkey, (uintptr_t)memory + 200, 11, 0, 9, &va),
			 CAUSE_LKEY_BOUNDS);
	assert_int_not_equal(check(state, false, before.lkey, (uintptr_t)memory, 1, 0, 9, &va),
			     CAUSE_NONE);
	/* A failure leaves all as it was. */
	before = mr;
	assert_int_equal(nic_mr_reregister(&mr, IBV_REREG_MR_CHANGE_TRANSLATION, 0, 4096, 10, 0),
			 EFAULT);
	assert_memory_equal(&mr, &before, sizeof(mr));
	assert_int_equal(check(state, false, mr.lkey, (uintptr_t)memory + 200, 10, 0, 9, &va),
			 CAUSE_NONE);
	assert_int_equal(nic_mr_deregister(&mr), 0);
}

/* Somebody stands still in the middle of an access. */
static void visitor_that_stands_still_makes_deregistration_fail_after_the_grace(void **state)
{
	struct nic *nic = *state;
	struct nic_mr mr = region(state, 0, 100, 0, ALL);
	struct seg_visit *visit = visit_enter(nic, nic->seg);
	uint64_t va, start = nic_now();

	assert_non_null(visit);
	assert_int_equal(nic_mr_deregister(&mr), EBUSY);
	assert_in_range(nic_now() - start, NIC_GRACE, 5 * NIC_GRACE);
	assert_int_equal(check(state, true, mr.rkey, 0, 100, ALL, UNIT_PD, &va), CAUSE_NONE);
	/* It has been waited for once: a thousand regions do not take a thousand times as long. */
	start = nic_now();
	assert_int_equal(nic_mr_reregister(&mr, IBV_REREG_MR_CHANGE_PD, 9, 0, 0, 0), EBUSY);
	assert_true(nic_now() - start < NIC_GRACE);
	assert_int_equal(check(state, true, mr.rkey, 0, 100, ALL, UNIT_PD, &va), CAUSE_NONE);
	visit_leave(visit);
	assert_int_equal(nic_mr_deregister(&mr), 0);
	assert_int_equal(check(state, true, mr.rkey, 0, 1, 0, UNIT_PD, &va),
			 CAUSE_RKEY_DEREGISTERED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bounds_are_exact_to_the_byte),
		cmocka_unit_test(ranges_that_wrap_are_out_of_bounds),
		cmocka_unit_test(registration_refuses_impossible_ranges),
		cmocka_unit_test(lkey_and_rkey_are_not_interchangeable),
		cmocka_unit_test(domain_must_be_the_regions),
		cmocka_unit_test(each_right_is_asked_for_by_itself),
		cmocka_unit_test(keys_of_the_past_are_told_from_unknown_ones),
		cmocka_unit_test(keys_are_not_used_again_soon),
		cmocka_unit_test(entry_that_comes_again_has_another_key),
		cmocka_unit_test(reregistration_changes_what_it_names),
		cmocka_unit_test(
			visitor_that_stands_still_makes_deregistration_fail_after_the_grace),
	};

	return cmocka_run_group_tests(tests, open_nic, close_nic);
}
