/* SPDX-License-Identifier: MIT */
/*
 * Registered memory that the program shares already: what cannot lose pages peers map from its own file, everything else is
 * copied, and the region says why. Which way was gone is read in the segments.
 */
#include "cases.h"

#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/wait.h>

#include "nic/mr.h"

#define PAGE  4096u
#define BYTES (8 * PAGE)
#define NAME  "views-test" /* of memfds */
#define ACCESS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_ATOMIC)

enum kind { SEALED, UNSEALED, NO_WRITERS, ANONYMOUS, SYSTEM_V, POSIX, HUGE };

struct memory {
	uint8_t *at;
	int fd; /* -1: none */
};

static int make_memfd(size_t bytes, unsigned flags, int seals)
{
	int fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	CHECK(fd >= 0);
	CHECK_EQUAL(ftruncate(fd, (off_t)bytes), 0);
	CHECK_EQUAL(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static uint8_t *map(int fd, size_t bytes, int flags)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

static struct memory sealed_memory(size_t bytes)
{
	int fd = make_memfd(bytes, 0, F_SEAL_SHRINK);
	struct memory memory = { .at = map(fd, bytes, 0), .fd = fd };

	CHECK(memory.at);
	return memory;
}

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

/* Of the memfds of this test, in this process. */
static unsigned count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned count = 0;
	char line[512];

	CHECK(maps);
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, "memfd:" NAME) != NULL;
	fclose(maps);
	return count;
}

static void wait_for_mappings(unsigned count)
{
	uint64_t end = now_ms() + TIMEOUT_MS;

	while (count_mappings() != count && now_ms() < end)
		usleep(1000);
	CHECK_EQUAL(count_mappings(), count);
}

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

/* This process's. */
static struct nic_segment *own_segment(void)
{
	static struct nic_segment *found;
	FILE *maps;
	char line[512];

	if (found)
		return found;
	maps = fopen("/proc/self/maps", "re");
	CHECK(maps);
	while (!found && fgets(line, sizeof(line), maps)) {
		unsigned long start, end;

		if (!strstr(line, "/memfd:uroce (") || sscanf(line, "%lx-%lx", &start, &end) != 2 ||
		    end - start < sizeof(*found))
			continue;
		found = (struct nic_segment *)start;
		if (found->hdr.magic != NIC_MAGIC || found->hdr.pid != (uint32_t)getpid())
			found = NULL;
	}
	fclose(maps);
	CHECK(found);
	return found;
}

/* Why a region is not mapped by peers from a file of its own, or that it is, to its end. */
static enum nic_unmapped why_not(const struct ibv_mr *mr)
{
	const struct seg_mr *entry = mr_of_key(own_segment(), mr->lkey);
	bool mapped = entry->file && atomic_load(&entry->mapped_start) == entry->addr &&
		      atomic_load(&entry->mapped_end) == entry->addr + entry->length;

	CHECK_EQUAL(entry->addr, (uintptr_t)mr->addr);
	CHECK_EQUAL(mapped, entry->unmapped == NIC_MAPPED);
	return entry->unmapped;
}

/* Copies that this process did between mapped pages, and in any other way. */
struct copies {
	uint64_t mapped, other;
};

static struct copies copies_of(const struct ibv_qp *qp)
{
	struct nic_segment *seg = own_segment();
	struct seg_qp *shared = &seg->qps[qp->qp_num & ((1 << NIC_QPN_INDEX_BITS) - 1)];

	return (struct copies){
		.mapped = atomic_load(&shared->sent.mapped) +
			  atomic_load(&seg->counters.mapped_copies),
		.other = atomic_load(&seg->counters.cma_copies) +
			 atomic_load(&seg->counters.assisted_copies),
	};
}

static struct ibv_mr *enroll(struct node *node, void *at, size_t bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(node->pd, at, bytes, ACCESS);

	CHECK(mr);
	return mr;
}

/* Each side has a QP, which is connected to the other's. */
struct meeting {
	struct node node;
	struct ibv_qp *qp;
	struct card other;
};

static void connect_pair(struct meeting *m, int line)
{
	struct card card;

	m->qp = node_qp(&m->node, IBV_QPT_RC, NULL);
	card = node_card(&m->node, m->qp);
	line_send(line, &card, sizeof(card));
	line_receive(line, &m->other, sizeof(m->other));
	node_connect(m->qp, &m->other, &patient);
	say(line, 1);
	expect(line, 1);
}

static void join(struct meeting *m, int line)
{
	node_open(&m->node);
	connect_pair(m, line);
}

static void part(struct meeting *m)
{
	CHECK_EQUAL(ibv_destroy_qp(m->qp), 0);
	node_close(&m->node);
}

/* A QP of the same process at the other end. */
static struct ibv_qp *connect_within(struct meeting *self, const struct meeting *m)
{
	struct ibv_qp *end;

	self->node = m->node;
	self->qp = node_qp(&self->node, IBV_QPT_RC, NULL);
	end = node_qp(&self->node, IBV_QPT_RC, NULL);
	node_connect_pair(&self->node, self->qp, end, &patient);
	self->other = node_card(&self->node, end);
	return end;
}

struct place {
	uint64_t addr;
	uint32_t rkey;
};

static void offer(int line, const struct ibv_mr *mr)
{
	struct place place = { (uintptr_t)mr->addr, mr->rkey };

	line_send(line, &place, sizeof(place));
}

static struct place take_offer(int line)
{
	struct place place;

	line_receive(line, &place, sizeof(place));
	return place;
}

static void do_rdma(struct meeting *m, enum ibv_wr_opcode opcode, uint32_t offset, uint32_t length,
		    const struct place *place)
{
	CHECK_EQUAL(node_rdma(&m->node, m->qp, 7, opcode, offset, length, place->addr, place->rkey),
		    0);
	node_expect(m->node.cq, 7, IBV_WC_SUCCESS);
}

/* Of a buffer: the first part goes to a region, what is read from there comes into the second. */
enum { SENT = 0, READ = BYTES };

static void fill(uint8_t *at, uint8_t with)
{
	for (uint32_t i = 0; i < BYTES; i++)
		at[i] = (uint8_t)(i * 7 + i / PAGE + with);
}

/* Whether this is what a region holds that use() has been at. */
static bool is_used(const uint8_t *at, uint8_t with)
{
	_Alignas(uint64_t) uint8_t bytes[BYTES];

	fill(bytes, with);
	++*(uint64_t *)bytes;
	return !memcmp(at, bytes, BYTES);
}

/* By a WRITE of all of it, an atomic on its first word and a READ. */
#define MESSAGES 3

static void use(struct meeting *m, const struct place *place, uint8_t with)
{
	fill(m->node.buf + SENT, with);
	do_rdma(m, IBV_WR_RDMA_WRITE, SENT, BYTES, place);
	do_rdma(m, IBV_WR_ATOMIC_FETCH_AND_ADD, READ, 8, place);
	CHECK(!memcmp(m->node.buf + READ, m->node.buf + SENT, 8));
	do_rdma(m, IBV_WR_RDMA_READ, READ, BYTES, place);
	CHECK(is_used(m->node.buf + READ, with));
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

static void write_from(struct meeting *m, const struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, BYTES, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 8,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .wr.rdma = { m->other.addr + SENT, m->other.rkey } },
			   *bad;

	CHECK_EQUAL(ibv_post_send(m->qp, &wr, &bad), 0);
	node_expect(m->node.cq, 8, IBV_WC_SUCCESS);
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
	struct meeting m;

	join(&m, line);
	offer(line, enroll(&m.node, memory.at, BYTES));
	while (!atomic_load((_Atomic uint64_t *)memory.at))
		;
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
		{ "peer_without_descriptors", poor_in_descriptors },
		{ "peer_without_addresses", poor_in_addresses },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
