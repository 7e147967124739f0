/* SPDX-License-Identifier: MIT */
/*
 * Registered memory that the program shares already: what cannot lose pages peers map from its own file, everything else is
 * copied, and the region says why.
 */
#include "meeting.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>

enum kind { SEALED, UNSEALED, NO_WRITERS, ANONYMOUS, SYSTEM_V, POSIX, HUGE };

static struct memory get_memory(enum kind kind, size_t bytes)
{
	struct memory memory = { .fd = -1 };
	char name[32];
	int id;

	switch (kind) {
	case SEALED:
		return sealed_memory(bytes);
	case UNSEALED:
		memory.fd = make_memfd(bytes, 0, F_SEAL_GROW);
		memory.at = map(memory.fd, bytes, 0);
		break;
	case NO_WRITERS:
		memory.fd = make_memfd(bytes, 0, F_SEAL_SHRINK);
		memory.at = map(memory.fd, bytes, 0);
		/* From now on; what is mapped stays writable. */
		CHECK_EQUAL(fcntl(memory.fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
		break;
	case ANONYMOUS:
		memory.at = map(-1, bytes, MAP_ANONYMOUS);
		break;
	case SYSTEM_V:
		id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
		CHECK(id >= 0);
		memory.at = shmat(id, NULL, 0);
		CHECK_EQUAL(shmctl(id, IPC_RMID, NULL), 0);
		break;
	case POSIX:
		snprintf(name, sizeof(name), "/" NAME "-%d", (int)getpid());
		memory.fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		CHECK(memory.fd >= 0);
		shm_unlink(name);
		CHECK_EQUAL(ftruncate(memory.fd, (off_t)bytes), 0);
		memory.at = map(memory.fd, bytes, 0);
		break;
	case HUGE:
		memory.fd = make_memfd(bytes, MFD_HUGETLB, F_SEAL_SHRINK);
		memory.at = map(memory.fd, bytes, 0);
		if (!memory.at)
			SKIP("no huge pages");
		break;
	}
	CHECK(memory.at);
	return memory;
}

/* Whether files that no descriptor names can be opened. */
static bool is_privileged(void)
{
	uint8_t *at = map(-1, PAGE, MAP_ANONYMOUS);
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)at,
		 (unsigned long)at + PAGE);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	munmap(at, PAGE);
	return fd >= 0;
}

/* Memory of a kind, which the peer uses, and its owner sends from. */
static struct {
	enum kind kind;
	enum nic_unmapped why;
	size_t bytes;
	bool closed; /* the program's descriptor */
} given;

static void expect_copies(const struct ibv_qp *qp, const struct copies *before, uint64_t messages)
{
	struct copies after = copies_of(qp);

	if (given.why == NIC_MAPPED) {
		CHECK_EQUAL(after.mapped - before->mapped, messages);
		CHECK_EQUAL(after.other, before->other);
	} else {
		CHECK(after.other - before->other >= messages);
	}
}

static void own_kind(int line)
{
	struct memory memory = get_memory(given.kind, given.bytes);
	struct copies before;
	struct meeting m;
	struct ibv_mr *mr;

	join(&m, line);
	if (given.closed)
		close(memory.fd);
	mr = enroll(&m.node, memory.at, given.bytes);
	CHECK_EQUAL(why_not(mr), given.why);
	offer(line, mr);
	expect(line, 1);
	CHECK(is_used(memory.at, 1));
	before = copies_of(m.qp);
	write_from(&m, mr);
	expect_copies(m.qp, &before, 1);
	say(line, 2);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK(is_used(memory.at, 1));
	expect(line, 3);
	part(&m);
}

static void use_kind(int line)
{
	struct copies before;
	struct meeting m;
	struct place place;

	join(&m, line);
	place = take_offer(line);
	before = copies_of(m.qp);
	use(&m, &place, 1);
	expect_copies(m.qp, &before, MESSAGES);
	say(line, 1);
	expect(line, 2);
	CHECK(is_used(m.node.buf + SENT, 1));
	say(line, 3);
	part(&m);
}

static void run_kind(enum kind kind, enum nic_unmapped why)
{
	given.kind = kind;
	given.why = why;
	if (!given.bytes)
		given.bytes = BYTES;
	run_pair(own_kind, use_kind);
}

static void sealed(void)
{
	run_kind(SEALED, NIC_MAPPED);
}

static void sealed_without_descriptor(void)
{
	given.closed = true;
	run_kind(SEALED, is_privileged() ? NIC_MAPPED : NIC_UNMAPPED_CLOSED);
}

static void anonymous(void)
{
	run_kind(ANONYMOUS, is_privileged() ? NIC_MAPPED : NIC_UNMAPPED_CLOSED);
}

static void system_v(void)
{
	run_kind(SYSTEM_V, is_privileged() ? NIC_MAPPED : NIC_UNMAPPED_CLOSED);
}

static void unsealed(void)
{
	run_kind(UNSEALED, NIC_UNMAPPED_SHRINKS);
}

static void no_writers(void)
{
	run_kind(NO_WRITERS, NIC_UNMAPPED_SHRINKS);
}

static void posix(void)
{
	run_kind(POSIX, NIC_UNMAPPED_SHRINKS);
}

static void huge(void)
{
	given.bytes = 2u << 20;
	run_kind(HUGE, NIC_UNMAPPED_SHRINKS);
}

/* The same by a user who may do nothing special. */
static void become_nobody(void)
{
	if (geteuid())
		return;
	CHECK_EQUAL(setgroups(0, NULL), 0);
	CHECK_EQUAL(setresgid(65534, 65534, 65534), 0);
	CHECK_EQUAL(setresuid(65534, 65534, 65534), 0);
	/* What a change of users takes away. */
	CHECK_EQUAL(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
}

static void sealed_unprivileged(void)
{
	become_nobody();
	sealed();
}

static void anonymous_unprivileged(void)
{
	become_nobody();
	CHECK(!is_privileged());
	anonymous();
}

/* A peer that has no descriptor, or no addresses, for it copies. */
static int scarce; /* RLIMIT_… */

static void use_poor(int line)
{
	struct copies before, after;
	struct rlimit limit;
	rlim_t allowed;
	struct meeting m;
	struct place place;

	join(&m, line);
	place = take_offer(line);
	before = copies_of(m.qp);
	CHECK_EQUAL(getrlimit(scarce, &limit), 0);
	allowed = limit.rlim_cur;
	limit.rlim_cur = 0;
	CHECK_EQUAL(setrlimit(scarce, &limit), 0);
	do_rdma(&m, IBV_WR_RDMA_WRITE, SENT, BYTES, &place);
	limit.rlim_cur = allowed;
	CHECK_EQUAL(setrlimit(scarce, &limit), 0);
	use(&m, &place, 1);
	after = copies_of(m.qp);
	CHECK(after.other - before.other > MESSAGES);
	say(line, 1);
	expect(line, 2);
	CHECK(is_used(m.node.buf + SENT, 1));
	say(line, 3);
	part(&m);
}

static void run_poor(int resource)
{
	given.bytes = BYTES;
	scarce = resource;
	run_pair(own_kind, use_poor);
}

static void poor_in_descriptors(void)
{
	run_poor(RLIMIT_NOFILE);
}

static void poor_in_addresses(void)
{
	run_poor(RLIMIT_AS);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "sealed_memfd", sealed },
		{ "sealed_memfd_unprivileged", sealed_unprivileged },
		{ "sealed_memfd_without_descriptor", sealed_without_descriptor },
		{ "anonymous", anonymous },
		{ "anonymous_unprivileged", anonymous_unprivileged },
		{ "system_v", system_v },
		{ "unsealed_memfd", unsealed },
		{ "memfd_without_writers", no_writers },
		{ "posix", posix },
		{ "huge_pages", huge },
		{ "peer_without_descriptors", poor_in_descriptors },
		{ "peer_without_addresses", poor_in_addresses },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
