/* SPDX-License-Identifier: MIT */
/* Profiles: which there are, and that none promises more than the NIC has. A process chooses once, so each is a child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "nic/layout.h"
#include "nic/limits.h"

static bool holds_with(const char *profile, bool (*check)(const struct nic_limits *limits, const char *name))
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		if (profile)
			setenv("UROCE_PROFILE", profile, 1);
		else
			unsetenv("UROCE_PROFILE");
		_exit(!check(nic_limits(), profile));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

static bool is_within_ours(const struct nic_limits *limits, const char *name)
{
	return limits && !strcmp(limits->name, name) && limits->max_qp && limits->max_qp <= NIC_MAX_QP && limits->max_qp_wr &&
	       limits->max_qp_wr <= NIC_MAX_WR && limits->max_sge && limits->max_sge <= NIC_MAX_SGE &&
	       limits->max_inline <= NIC_MAX_INLINE && limits->max_cq && limits->max_cq <= NIC_MAX_CQ && limits->max_cqe &&
	       limits->max_cqe <= NIC_MAX_CQE && limits->max_mr && limits->max_mr <= NIC_MAX_MR &&
	       limits->max_mw <= (limits->windows ? NIC_MAX_MW : 0) && limits->max_rd_atomic &&
	       limits->max_rd_atomic <= NIC_MAX_RD_ATOMIC && limits->max_init_rd_atomic <= NIC_MAX_RD_ATOMIC &&
	       limits->max_srq <= NIC_MAX_SRQ && limits->max_srq_wr <= NIC_MAX_WR && limits->max_srq_sge <= NIC_MAX_SGE &&
	       limits->max_msg && limits->max_msg <= NIC_MAX_MSG;
}

static void no_profile_promises_more_than_the_nic_has(void **state)
{
	unsigned count = 0;

	(void)state;
	for (const char *const *name = nic_profiles(); *name; name++, count++)
		assert_true(holds_with(*name, is_within_ours));
	assert_true(count >= 2);
}

static bool is_own(const struct nic_limits *limits, const char *name)
{
	(void)name;
	return limits && !strcmp(limits->name, "uroce") && limits->max_qp == NIC_MAX_QP && limits->atomics;
}

static void without_a_profile_the_limits_are_our_own(void **state)
{
	(void)state;
	assert_true(holds_with(NULL, is_own));
	assert_true(holds_with("", is_own));
	assert_true(holds_with("uroce", is_own));
}

static bool is_none(const struct nic_limits *limits, const char *name)
{
	(void)name;
	return !limits;
}

static void unknown_profile_is_none(void **state)
{
	(void)state;
	assert_true(holds_with("e81", is_none));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_profile_promises_more_than_the_nic_has),
		cmocka_unit_test(without_a_profile_the_limits_are_our_own),
		cmocka_unit_test(unknown_profile_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
