/* SPDX-License-Identifier: MIT */
/* Fork: registered memory is not pinned, so there is nothing to keep a child from copying. */
#include "verbs/verbs.h"

EXPORT(fork_init, 1.1);
EXPORT(is_fork_initialized, 1.13);

int verb_fork_init(void)
{
	return 0;
}

enum ibv_fork_status verb_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

/* For providers; not in the public headers. */
EXPORTED int ibv_dontfork_range(void *base, size_t size)
{
	(void)base;
	(void)size;
	return 0;
}

EXPORTED int ibv_dofork_range(void *base, size_t size)
{
	(void)base;
	(void)size;
	return 0;
}
