/* SPDX-License-Identifier: MIT */
/*
 * A file that a region lies in while the program, its peers and other regions do what they like: what was registered is
 * reached until the region ends, and then nobody has anything of it.
 */
#include "meeting.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

static unsigned count_descriptors(void)
{
	char path[64], name[64];
	unsigned count = 0;

	for (int fd = 0; fd < 1024; fd++) {
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		length = readlink(path, name, sizeof(name) - 1);
		name[length < 0 ? 0 : length] = '\0';
		count += strstr(name, "memfd:" NAME) != NULL;
	}
	return count;
}

/* The program unmaps what it has registered, and has other memory there: everybody goes on with what was registered. */
static void own_unmapped(int line)
{
	struct memory memory = sealed_memory(BYTES);
	struct meeting m, self;
	uint8_t bytes[BYTES];
	struct ibv_qp *end;
	struct ibv_mr *mr;
	struct place place;

	join(&m, line);
	mr = enroll(&m.node, memory.at, BYTES);
	place = (struct place){ (uintptr_t)mr->addr, mr->rkey };
	CHECK_EQUAL(munmap(memory.at, BYTES / 2), 0);
	CHECK(mmap(memory.at + BYTES / 2, BYTES / 2, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	offer(line, mr);
	expect(line, 1);
	CHECK_EQUAL(pread(memory.fd, bytes, BYTES, 0), BYTES);
	CHECK(is_used(bytes, 1));
	/* Within the process, from both ends. */
	end = connect_within(&self, &m);
	use(&self, &place, 2);
	CHECK_EQUAL(pread(memory.fd, bytes, BYTES, 0), BYTES);
	CHECK(is_used(bytes, 2));
	write_from(&self, mr);
	CHECK(is_used(m.node.buf + SENT, 2));
	for (unsigned i = BYTES / 2; i < BYTES; i++)
		CHECK(!memory.at[i]);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(count_mappings(), 0);
	say(line, 2);
	CHECK_EQUAL(ibv_destroy_qp(end), 0);
	CHECK_EQUAL(ibv_destroy_qp(self.qp), 0);
	part(&m);
}

static void use_unmapped(int line)
{
	struct meeting m;
	struct place place;

	join(&m, line);
	place = take_offer(line);
	use(&m, &place, 1);
	say(line, 1);
	expect(line, 2);
	part(&m);
}

static void unmapped(void)
{
	run_pair(own_unmapped, use_unmapped);
}

/* Pages are punched out while the peer writes: it gets others, and no signal. */
#define PUNCHES 2000

static void own_punched(int line)
{
	struct memory memory = sealed_memory(BYTES);
	struct meeting m;
	struct ibv_mr *mr;

	join(&m, line);
	mr = enroll(&m.node, memory.at, BYTES);
	offer(line, mr);
	for (unsigned i = 0; i < PUNCHES; i++)
		CHECK_EQUAL(madvise(memory.at, BYTES, MADV_REMOVE), 0);
	say(line, 1);
	expect(line, 2);
	CHECK(is_used(memory.at, 1));
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	part(&m);
}

static void use_punched(int line)
{
	struct meeting m;
	struct place place;

	join(&m, line);
	place = take_offer(line);
	for (unsigned i = 0; i < PUNCHES; i++)
		do_rdma(&m, IBV_WR_RDMA_WRITE, SENT, BYTES, &place);
	expect(line, 1);
	use(&m, &place, 1);
	say(line, 2);
	part(&m);
}

static void punched(void)
{
	run_pair(own_punched, use_punched);
}

/* A region that has ended is refused, and then the peer has nothing of it. */
static void own_ended(int line)
{
	struct memory memory = sealed_memory(BYTES);
	struct meeting m;
	struct ibv_mr *mr;

	join(&m, line);
	mr = enroll(&m.node, memory.at, BYTES);
	offer(line, mr);
	expect(line, 1);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	say(line, 2);
	expect(line, 3);
	CHECK(is_used(memory.at, 1));
	part(&m);
}

static void use_ended(int line)
{
	struct meeting m;
	struct place place;

	join(&m, line);
	place = take_offer(line);
	CHECK_EQUAL(count_mappings(), 0);
	use(&m, &place, 1);
	CHECK_EQUAL(count_mappings(), 1);
	say(line, 1);
	expect(line, 2);
	wait_for_mappings(0);
	CHECK_EQUAL(node_rdma(&m.node, m.qp, 9, IBV_WR_RDMA_WRITE, SENT, BYTES, place.addr,
			      place.rkey),
		    0);
	node_expect(m.node.cq, 9, IBV_WC_REM_ACCESS_ERR);
	say(line, 3);
	part(&m);
}

static void ended(void)
{
	run_pair(own_ended, use_ended);
}

/* Rounds leave nothing behind, at either end. */
#define ROUNDS	10000
#define STARTED 100

static void own_rounds(int line)
{
	struct memory memory = sealed_memory(BYTES);
	unsigned fds = 0;
	struct meeting m;

	join(&m, line);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		struct ibv_mr *mr = enroll(&m.node, memory.at, BYTES);

		if (i % 1000 == 0)
			CHECK_EQUAL(why_not(mr), NIC_MAPPED);
		offer(line, mr);
		expect(line, i);
		CHECK_EQUAL(*(uint32_t *)memory.at, i);
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
		if (i == STARTED)
			fds = count_fds();
	}
	CHECK_EQUAL(count_fds(), fds);
	CHECK_EQUAL(count_mappings(), 1);
	say(line, 0);
	part(&m);
}

static void use_rounds(int line)
{
	unsigned fds = 0;
	struct copies before;
	struct meeting m;

	join(&m, line);
	before = copies_of(m.qp);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		struct place place = take_offer(line);

		*(uint32_t *)(m.node.buf + SENT) = i;
		do_rdma(&m, IBV_WR_RDMA_WRITE, SENT, sizeof(i), &place);
		if (i == STARTED)
			fds = count_fds();
		say(line, i);
	}
	expect(line, 0);
	CHECK_EQUAL(copies_of(m.qp).mapped - before.mapped, ROUNDS);
	CHECK_EQUAL(count_fds(), fds);
	wait_for_mappings(0);
	part(&m);
}

static void rounds(void)
{
	run_pair(own_rounds, use_rounds);
}

/* The owner is killed while its peer writes. */
static void own_until_killed(int line)
{
	struct memory memory = sealed_memory(BYTES);
	uint64_t end = now_ms() + TIMEOUT_MS;
	struct meeting m;

	join(&m, line);
	offer(line, enroll(&m.node, memory.at, BYTES));
	while (!atomic_load((_Atomic uint64_t *)memory.at))
		CHECK(now_ms() < end);
	raise(SIGKILL);
}

static void own_killed(int line)
{
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (!pid)
		own_until_killed(line);
	CHECK_EQUAL(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void use_killed(int line)
{
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
	struct meeting m;
	struct place place;

	join(&m, line);
	place = take_offer(line);
	fill(m.node.buf + SENT, 1);
	while (wc.status == IBV_WC_SUCCESS) {
		CHECK_EQUAL(node_rdma(&m.node, m.qp, 7, IBV_WR_RDMA_WRITE, SENT, BYTES, place.addr,
				      place.rkey),
			    0);
		CHECK(node_poll(m.node.cq, &wc, TIMEOUT_MS));
	}
	CHECK_EQUAL(wc.status, IBV_WC_RETRY_EXC_ERR);
	CHECK_EQUAL(ibv_destroy_qp(m.qp), 0);
	wait_for_mappings(0);
	node_close(&m.node);
}

static void killed(void)
{
	run_pair(own_killed, use_killed);
}

/* A child shares it with its parent, as the program wanted, and has nothing else of it. */
static void own_forking(int line)
{
	struct memory memory = sealed_memory(BYTES);
	struct meeting m;
	int to_child[2], status;
	struct ibv_mr *mr;
	pid_t pid;

	join(&m, line);
	mr = enroll(&m.node, memory.at, BYTES);
	write_from(&m, mr);
	CHECK_EQUAL(count_mappings(), 2);
	CHECK_EQUAL(count_descriptors(), 2);
	make_line(to_child);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		CHECK_EQUAL(count_mappings(), 1);
		CHECK_EQUAL(count_descriptors(), 1);
		expect(to_child[1], 1);
		CHECK(is_used(memory.at, 1));
		memory.at[BYTES - 1] ^= 1;
		_exit(0);
	}
	CHECK_EQUAL(why_not(mr), NIC_MAPPED);
	offer(line, mr);
	expect(line, 1);
	say(to_child[0], 1);
	CHECK_EQUAL(waitpid(pid, &status, 0), pid);
	CHECK_EQUAL(status, 0);
	memory.at[BYTES - 1] ^= 1;
	CHECK(is_used(memory.at, 1));
	say(line, 2);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	part(&m);
}

static void use_forking(int line)
{
	struct copies before;
	struct meeting m;
	struct place place;

	join(&m, line);
	place = take_offer(line);
	before = copies_of(m.qp);
	use(&m, &place, 1);
	CHECK_EQUAL(copies_of(m.qp).mapped - before.mapped, MESSAGES);
	say(line, 1);
	expect(line, 2);
	part(&m);
}

static void forking(void)
{
	run_pair(own_forking, use_forking);
}

/* Additions to one word: the peer's, the program's own, and those by a region that cannot be mapped. */
#define ADDITIONS 20000
#define ADDED	  (2 * PAGE - 8) /* the word's place */

static void add_up(struct meeting *m, const struct place *place)
{
	for (unsigned i = 0; i < ADDITIONS; i++)
		do_rdma(m, IBV_WR_ATOMIC_FETCH_AND_ADD, READ, 8, place);
}

static _Atomic bool has_added;

static void *add_by_other_region(void *arg)
{
	struct meeting *m = arg;

	add_up(m, &(struct place){ m->other.addr, m->other.rkey });
	atomic_store(&has_added, true);
	return NULL;
}

static void own_added(int line)
{
	struct memory memory = sealed_memory(BYTES);
	_Atomic uint64_t *word = (_Atomic uint64_t *)(memory.at + ADDED);
	struct ibv_mr *mr, *other;
	struct meeting m, self;
	struct ibv_qp *end;
	pthread_t thread;
	uint64_t own = 0;

	join(&m, line);
	/* The other one is in two mappings. */
	CHECK_EQUAL(mprotect(memory.at + 4 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC),
		    0);
	mr = enroll(&m.node, memory.at, 2 * PAGE);
	other = enroll(&m.node, memory.at, BYTES);
	CHECK_EQUAL(why_not(mr), NIC_MAPPED);
	CHECK_EQUAL(why_not(other), NIC_UNMAPPED_KIND);

	end = connect_within(&self, &m);
	self.other = (struct card){ .addr = (uintptr_t)word, .rkey = other->rkey };
	line_send(line, &(struct place){ (uintptr_t)word, mr->rkey }, sizeof(struct place));
	CHECK_EQUAL(pthread_create(&thread, NULL, add_by_other_region, &self), 0);
	for (; !atomic_load(&has_added); own++)
		atomic_fetch_add(word, 1);
	pthread_join(thread, NULL);
	expect(line, 1);
	CHECK_EQUAL(atomic_load(word), own + 2 * ADDITIONS);
	CHECK_EQUAL(ibv_destroy_qp(end), 0);
	CHECK_EQUAL(ibv_destroy_qp(self.qp), 0);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(ibv_dereg_mr(other), 0);
	part(&m);
}

static void use_added(int line)
{
	struct meeting m;
	struct place place;

	join(&m, line);
	place = take_offer(line);
	add_up(&m, &place);
	say(line, 1);
	part(&m);
}

static void added(void)
{
	run_pair(own_added, use_added);
}

/* Regions over one file, in one mapping and in two: each goes on without the others. */
static void own_several(int line)
{
	struct memory memory = sealed_memory(4 * BYTES);
	struct ibv_mr *mrs[3];
	struct meeting m;
	uint8_t *again;

	again = map(memory.fd, 4 * BYTES, 0);
	CHECK(again);
	join(&m, line);
	mrs[0] = enroll(&m.node, memory.at, BYTES);
	mrs[1] = enroll(&m.node, memory.at + 2 * BYTES + 8, BYTES);
	CHECK_EQUAL(count_descriptors(), 2);
	mrs[2] = enroll(&m.node, again + BYTES, BYTES);
	CHECK_EQUAL(count_descriptors(), 3);
	for (unsigned i = 0; i < 3; i++)
		offer(line, mrs[i]);
	expect(line, 1);
	CHECK(is_used(memory.at, 0) && is_used(memory.at + 2 * BYTES + 8, 1) &&
	      is_used(memory.at + BYTES, 2));
	CHECK_EQUAL(ibv_dereg_mr(mrs[0]), 0);
	say(line, 2);
	expect(line, 3);
	CHECK(is_used(memory.at + 2 * BYTES + 8, 3) && is_used(memory.at + BYTES, 4));
	CHECK_EQUAL(ibv_dereg_mr(mrs[1]), 0);
	CHECK_EQUAL(count_descriptors(), 2);
	CHECK_EQUAL(ibv_dereg_mr(mrs[2]), 0);
	CHECK_EQUAL(count_descriptors(), 1);
	say(line, 4);
	expect(line, 5);
	part(&m);
}

static void use_several(int line)
{
	struct place places[3];
	struct copies before;
	struct meeting m;

	join(&m, line);
	before = copies_of(m.qp);
	for (unsigned i = 0; i < 3; i++)
		places[i] = take_offer(line);
	for (unsigned i = 0; i < 3; i++)
		use(&m, &places[i], (uint8_t)i);
	CHECK_EQUAL(count_mappings(), 2);
	say(line, 1);
	expect(line, 2);
	use(&m, &places[1], 3);
	use(&m, &places[2], 4);
	CHECK_EQUAL(copies_of(m.qp).mapped - before.mapped, 5 * MESSAGES);
	say(line, 3);
	expect(line, 4);
	wait_for_mappings(0);
	say(line, 5);
	part(&m);
}

static void several(void)
{
	run_pair(own_several, use_several);
}

/* More files than there are entries: the others are copied. */
#define FILES (NIC_FILES + 8)

static void own_many(int line)
{
	struct memory memories[FILES];
	struct ibv_mr *mrs[FILES];
	struct meeting m;

	join(&m, line);
	for (unsigned i = 0; i < FILES; i++) {
		memories[i] = sealed_memory(BYTES);
		mrs[i] = enroll(&m.node, memories[i].at, BYTES);
		CHECK_EQUAL(why_not(mrs[i]), i < NIC_FILES ? NIC_MAPPED : NIC_UNMAPPED_LIMIT);
		offer(line, mrs[i]);
	}
	expect(line, 1);
	for (unsigned i = 0; i < FILES; i++) {
		CHECK(is_used(memories[i].at, (uint8_t)i));
		CHECK_EQUAL(ibv_dereg_mr(mrs[i]), 0);
	}
	/* There is room again. */
	mrs[0] = enroll(&m.node, memories[FILES - 1].at, BYTES);
	CHECK_EQUAL(why_not(mrs[0]), NIC_MAPPED);
	offer(line, mrs[0]);
	expect(line, 2);
	CHECK(is_used(memories[FILES - 1].at, 1));
	CHECK_EQUAL(ibv_dereg_mr(mrs[0]), 0);
	part(&m);
}

static void use_many(int line)
{
	struct meeting m;
	struct place place;

	join(&m, line);
	for (unsigned i = 0; i < FILES; i++) {
		place = take_offer(line);
		use(&m, &place, (uint8_t)i);
	}
	CHECK_EQUAL(count_mappings(), NIC_FILES);
	say(line, 1);
	place = take_offer(line);
	use(&m, &place, 1);
	wait_for_mappings(1);
	say(line, 2);
	part(&m);
}

static void many(void)
{
	run_pair(own_many, use_many);
}

/* What lies behind the end of the file is an error until it grows, and no signal. */
static void own_short(int line)
{
	int fd = make_memfd(BYTES, 0, F_SEAL_SHRINK);
	uint8_t *at = map(fd, 2 * BYTES, 0);
	struct ibv_mr *first, *mr;
	struct meeting m;

	CHECK(at);
	join(&m, line);
	first = enroll(&m.node, at, BYTES);
	CHECK_EQUAL(why_not(first), NIC_MAPPED);
	mr = enroll(&m.node, at + BYTES, BYTES);
	CHECK_EQUAL(why_not(mr), NIC_UNMAPPED_SHRINKS);
	offer(line, mr);
	expect(line, 1);
	CHECK_EQUAL(ibv_destroy_qp(m.qp), 0);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(ftruncate(fd, 2 * BYTES), 0);
	mr = enroll(&m.node, at + BYTES, BYTES);
	CHECK_EQUAL(why_not(mr), NIC_MAPPED);
	connect_pair(&m, line);
	offer(line, mr);
	expect(line, 2);
	CHECK(is_used(at + BYTES, 1));
	CHECK_EQUAL(ibv_dereg_mr(first), 0);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	part(&m);
}

static void use_short(int line)
{
	struct meeting m;
	struct place place;

	join(&m, line);
	place = take_offer(line);
	CHECK_EQUAL(node_rdma(&m.node, m.qp, 9, IBV_WR_RDMA_WRITE, SENT, BYTES, place.addr,
			      place.rkey),
		    0);
	node_expect(m.node.cq, 9, IBV_WC_REM_ACCESS_ERR);
	CHECK_EQUAL(ibv_destroy_qp(m.qp), 0);
	say(line, 1);
	connect_pair(&m, line);
	place = take_offer(line);
	use(&m, &place, 1);
	say(line, 2);
	part(&m);
}

static void behind_the_end(void)
{
	run_pair(own_short, use_short);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "unmapped_by_the_program", unmapped },
		{ "punched_meanwhile", punched },
		{ "behind_the_end_of_the_file", behind_the_end },
		{ "ended_region_is_refused", ended },
		{ "rounds_leave_nothing", rounds },
		{ "owner_is_killed", killed },
		{ "fork", forking },
		{ "atomics_of_all", added },
		{ "regions_of_one_file", several },
		{ "more_files_than_entries", many },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
