/* SPDX-License-Identifier: MIT */
/*
 * Processes that may have few descriptors, threads, bytes of address space, data or file. They work with less, or the
 * device does not open, by one errno and leaving nothing behind; and no peer suffers from it.
 */
#include "cases.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#define NOBODY 65534
#define MIB    (1ull << 20)

/* The soft limit only, so that it can be raised again. */
static void set_limit(int resource, rlim_t value)
{
	struct rlimit limit;

	CHECK_EQUAL(getrlimit(resource, &limit), 0);
	limit.rlim_cur = value < limit.rlim_max ? value : limit.rlim_max;
	CHECK_EQUAL(setrlimit(resource, &limit), 0);
}

/* Leaves so many numbers for new descriptors. */
static void leave_descriptors(unsigned room)
{
	int fd;

	set_limit(RLIMIT_NOFILE, 1024);
	fd = dup(0);
	CHECK(fd >= 0);
	close(fd);
	set_limit(RLIMIT_NOFILE, (rlim_t)fd + room);
}

static double cpu_seconds(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static void descriptors_at_open(void)
{
	unsigned before = count_fds();
	struct ibv_context *ctx = NULL;

	for (unsigned room = 0; !ctx; room++) {
		CHECK(room < 32);
		leave_descriptors(room);
		ctx = open_device();
		CHECK(ctx || errno == EMFILE);
		set_limit(RLIMIT_NOFILE, 1024);
		if (!ctx)
			CHECK_EQUAL(count_fds(), before);
		else
			printf("an open device has %u descriptors\n", room);
	}
	CHECK_EQUAL(ibv_close_device(ctx), 0);
	CHECK_EQUAL(count_fds(), before);
}

static void short_of_descriptors(int line)
{
	struct node node;
	struct outcome outcome;

	node_open(&node);
	for (unsigned room = 0; room < 3; room++) { /* attaching takes three */
		leave_descriptors(room);
		outcome = try_to_send(&node, line);
		printf("with %u descriptors to attach with: %s, cause %u\n", room,
		       ibv_wc_status_str(outcome.status), outcome.cause);
		CHECK_EQUAL(outcome.status, IBV_WC_RETRY_EXC_ERR);
		CHECK_EQUAL(outcome.cause, 52);
	}
	set_limit(RLIMIT_NOFILE, 1024);
	exchange(&node, line);
	node_close(&node);
}

static void tried_thrice(int line)
{
	struct node node;

	node_open(&node);
	for (int i = 0; i < 3; i++)
		be_tried(&node, line);
	exchange(&node, line);
	node_close(&node);
}

static void descriptors_at_attach(void)
{
	run_pair(short_of_descriptors, tried_thrice);
}

static void accepts_nobody(int line)
{
	struct node node;

	node_open(&node);
	for (unsigned room = 0; room < 3; room++) {
		leave_descriptors(room);

		double before = cpu_seconds();

		be_tried(&node, line);
		printf("with %u descriptors to accept with: %.0f ms of CPU\n", room,
		       1e3 * (cpu_seconds() - before));
		CHECK(cpu_seconds() - before < 0.3);
	}
	set_limit(RLIMIT_NOFILE, 1024);
	exchange(&node, line);
	node_close(&node);
}

static void not_accepted(int line)
{
	struct node node;
	struct outcome outcome;

	node_open(&node);
	for (int i = 0; i < 3; i++) {
		outcome = try_to_send(&node, line);
		printf("not accepted: %s, cause %u\n", ibv_wc_status_str(outcome.status),
		       outcome.cause);
		CHECK_EQUAL(outcome.status, IBV_WC_RETRY_EXC_ERR);
		CHECK(outcome.cause == 42 || outcome.cause == 52);
	}
	exchange(&node, line);
	node_close(&node);
}

static void descriptors_at_accept(void)
{
	run_pair(not_accepted, accepts_nobody);
}

/* Root may have any number of threads. */
static void become_somebody(void)
{
	if (geteuid())
		return;
	CHECK_EQUAL(setgroups(0, NULL), 0);
	CHECK_EQUAL(setresgid(NOBODY, NOBODY, NOBODY), 0);
	CHECK_EQUAL(setresuid(NOBODY, NOBODY, NOBODY), 0);
}

static void no_thread(void)
{
	unsigned before;
	struct ibv_context *ctx;

	become_somebody();
	before = count_fds();
	set_limit(RLIMIT_NPROC, 1);
	for (int i = 0; i < 3; i++) {
		ctx = open_device();
		CHECK(!ctx && errno == EAGAIN);
		CHECK_EQUAL(count_fds(), before);
		CHECK_EQUAL(count_maps(), 0);
	}
	set_limit(RLIMIT_NPROC, 1000);
	ctx = open_device();
	CHECK(ctx);
	CHECK_EQUAL(ibv_close_device(ctx), 0);
}

static uint64_t limited_to;

static void in_little_space(int line)
{
	set_limit(RLIMIT_AS, limited_to);
	open_and_exchange(line);
}

static void space(uint64_t mib)
{
	limited_to = mib * MIB;
	run_pair(in_little_space, in_little_space);
}

static void address_space_512_mib(void)
{
	space(512);
}

static void address_space_2_gib(void)
{
	space(2048);
}

/* From what holds a program at all to what holds a device: opens, or says ENOMEM. */
static void address_space_for_nothing(void)
{
	unsigned before = count_fds();
	struct ibv_context *ctx = NULL;

	for (uint64_t mib = 16; !ctx && mib <= 512; mib += 16) {
		set_limit(RLIMIT_AS, mib * MIB);
		ctx = open_device();
		CHECK(ctx || errno == ENOMEM || errno == EAGAIN); /* EAGAIN: of pthread_create */
		set_limit(RLIMIT_AS, RLIM_INFINITY);
		if (!ctx)
			CHECK_EQUAL(count_fds(), before);
		else
			printf("opens in %llu MiB\n", (unsigned long long)mib);
	}
	CHECK(ctx);
	CHECK_EQUAL(ibv_close_device(ctx), 0);
}

static void data_limited(void)
{
	struct ibv_context *ctx = NULL;

	for (uint64_t mib = 1; !ctx && mib <= 256; mib *= 2) {
		set_limit(RLIMIT_DATA, mib * MIB);
		ctx = open_device();
		CHECK(ctx || errno == ENOMEM || errno == EAGAIN);
		if (ctx)
			printf("opens with %llu MiB of data\n", (unsigned long long)mib);
	}
	CHECK(ctx);
	CHECK_EQUAL(ibv_close_device(ctx), 0);
}

/* Beyond RLIMIT_FSIZE the kernel sends SIGXFSZ, which ends who does not expect it. */
static void file_size_of_nothing(void)
{
	struct ibv_context *ctx;

	set_limit(RLIMIT_FSIZE, MIB);
	ctx = open_device();
	CHECK(!ctx && errno == EFBIG);
	set_limit(RLIMIT_FSIZE, RLIM_INFINITY);
	ctx = open_device();
	CHECK(ctx);
	CHECK_EQUAL(ibv_close_device(ctx), 0);
}

static void with_small_files(int line)
{
	set_limit(RLIMIT_FSIZE, 200 * MIB);
	open_and_exchange(line);
}

static void file_size_200_mib(void)
{
	run_pair(with_small_files, with_small_files);
}

static void file_size_of_one_side(void)
{
	run_pair(with_small_files, open_and_exchange);
}

static void without_locked_memory(int line)
{
	set_limit(RLIMIT_MEMLOCK, 0);
	open_and_exchange(line);
}

static void locked_memory_of_nothing(void)
{
	run_pair(without_locked_memory, without_locked_memory);
}

/* Where a memory cgroup of version 1 or 2 can be made. */
static const char *const cgroups[][2] = {
	{ "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
	{ "/sys/fs/cgroup", "memory.max" },
};

static bool set_control(const char *dir, const char *name, const char *text)
{
	char path[128];
	int fd;
	bool written;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return written;
}

static char cgroup[96];

static void make_cgroup(void)
{
	for (size_t i = 0; i < sizeof(cgroups) / sizeof(cgroups[0]); i++) {
		snprintf(cgroup, sizeof(cgroup), "%s/uroce-test-%d", cgroups[i][0], (int)getpid());
		if (mkdir(cgroup, 0700))
			continue;
		if (set_control(cgroup, cgroups[i][1], "16M"))
			return;
		rmdir(cgroup);
	}
	SKIP("no memory cgroup can be made");
}

/* Queues take their memory when they are made; past the limit the kernel kills. */
static void takes_too_much(int line)
{
	char pid[16];
	struct node node;

	node_open(&node);
	exchange(&node, line);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	CHECK(set_control(cgroup, "cgroup.procs", pid));
	while (ibv_create_cq(node.ctx, 1 << 18, NULL, NULL, 0))
		;
	/* Refused after all: then this is an ordinary end. */
	CHECK_EQUAL(errno, ENOMEM);
	raise(SIGKILL);
}

static void survives_it(int line)
{
	struct node node;
	uint64_t deadline = now_ms() + TIMEOUT_MS;

	node_open(&node);
	exchange(&node, line);
	while (count_maps() > 1 && now_ms() < deadline)
		usleep(1000);
	CHECK_EQUAL(count_maps(), 1);
	node_close(&node);
}

static void run_victim(int to_test, void *arg)
{
	close(to_test);
	takes_too_much(*(int *)arg);
}

static void run_survivor(int to_test, void *arg)
{
	close(to_test);
	survives_it(*(int *)arg);
}

static void memory_cgroup(void)
{
	struct actor victim, survivor;
	int line[2], ended, survived;

	make_cgroup();
	make_line(line);
	actor_start(&victim, run_victim, &line[0]);
	actor_start(&survivor, run_survivor, &line[1]);
	ended = actor_end(&victim);
	survived = actor_end(&survivor);
	for (int i = 0; rmdir(cgroup) && i < 1000; i++)
		usleep(1000);
	CHECK_EQUAL(ended, 128 + SIGKILL);
	CHECK_EQUAL(survived, 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "descriptors_exhausted_at_open", descriptors_at_open },
		{ "descriptors_exhausted_at_attach", descriptors_at_attach },
		{ "descriptors_exhausted_at_accept", descriptors_at_accept },
		{ "no_thread_for_the_helper", no_thread },
		{ "address_space_of_512_mib", address_space_512_mib },
		{ "address_space_of_2_gib", address_space_2_gib },
		{ "address_space_that_holds_no_device", address_space_for_nothing },
		{ "data_limited", data_limited },
		{ "file_size_that_holds_no_device", file_size_of_nothing },
		{ "file_size_of_200_mib", file_size_200_mib },
		{ "file_size_of_one_side", file_size_of_one_side },
		{ "no_locked_memory", locked_memory_of_nothing },
		{ "memory_cgroup_kills_only_its_own", memory_cgroup },
		{ "memory_cgroup_kills_only_its_own", memory_cgroup },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
