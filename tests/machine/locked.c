/* SPDX-License-Identifier: MIT */
/*
 * Programs that lock all their memory, as those for real time do, before and after they open the device. What the library maps is
 * large and mostly empty, and must stay so.
 */
#include "cases.h"

#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define NOBODY	       65534
#define MIB	       (1ull << 20)
#define MOST	       (256 * MIB) /* of memory for a side, all its libraries' included */
#define GUARD_INSTALL  102	   /* MADV_GUARD_INSTALL */
#define ORDINARY_LIMIT (8 * MIB)   /* RLIMIT_MEMLOCK where nobody has changed it */

static uint64_t memory_of(pid_t pid)
{
	char path[32];
	unsigned long pages = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/statm", pid);
	file = fopen(path, "re");
	if (file) {
		CHECK(fscanf(file, "%*u %lu", &pages) == 1 || !pages);
		fclose(file);
	}
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A process of its own kills this one before the machine has no memory left. */
static void build_cage(void)
{
	pid_t caged = getpid(), watcher = fork();

	CHECK(watcher >= 0);
	if (watcher)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == caged) {
		if (memory_of(caged) > MOST) {
			fprintf(stderr, "%llu MiB of memory: it would go on\n", memory_of(caged) / MIB);
			kill(caged, SIGKILL);
			break;
		}
		usleep(500);
	}
	_exit(0);
}

static int flags;
static bool is_ordinary;

static void lock_all(void)
{
	if (!mlockall(flags))
		return;
	CHECK(errno == ENOMEM || errno == EPERM);
	SKIP("this user may not lock all memory (ulimit -l): %s", strerror(errno));
}

static void locks_before(int line)
{
	struct rlimit limit = { ORDINARY_LIMIT, ORDINARY_LIMIT };

	build_cage();
	if (is_ordinary) {
		CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
		if (!geteuid()) {
			CHECK(!setgroups(0, NULL) && !setresgid(NOBODY, NOBODY, NOBODY));
			CHECK(!setresuid(NOBODY, NOBODY, NOBODY));
		}
	}
	lock_all();
	open_and_exchange(line);
	CHECK(memory_of(getpid()) < MOST);
}

static void locks_afterwards(int line)
{
	struct node node;
	void *page;

	page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, memfd_create("page", 0), 0);
	if (page != MAP_FAILED && madvise(page, (size_t)sysconf(_SC_PAGESIZE), GUARD_INSTALL))
		SKIP("the kernel has no guard pages in files: before Linux 6.15");
	build_cage();
	node_open(&node);
	exchange(&node, line);
	lock_all();
	exchange(&node, line);
	CHECK(memory_of(getpid()) < MOST);
	node_close(&node);
}

static void before(int how)
{
	flags = how;
	run_pair(locks_before, locks_before);
}

static void future(void)
{
	before(MCL_FUTURE);
}

static void current_and_future(void)
{
	before(MCL_CURRENT | MCL_FUTURE);
}

static void future_on_fault(void)
{
	before(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
}

static void future_of_an_ordinary_user(void)
{
	is_ordinary = true;
	before(MCL_FUTURE);
}

static void afterwards(void)
{
	flags = MCL_CURRENT;
	run_pair(locks_afterwards, locks_afterwards);
}

static void afterwards_and_future(void)
{
	flags = MCL_CURRENT | MCL_FUTURE;
	run_pair(locks_afterwards, locks_afterwards);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "future", future },
		{ "current_and_future", current_and_future },
		{ "future_on_fault", future_on_fault },
		{ "future_of_an_ordinary_user", future_of_an_ordinary_user },
		{ "when_the_device_is_open", afterwards },
		{ "when_the_device_is_open_and_future", afterwards_and_future },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
