/* SPDX-License-Identifier: MIT */
/*
 * Registered memory becomes shared and private again under a program that goes on using it in every way: it must not
 * notice. Whether pages are shared is read in /proc/self/maps.
 */
#include "cases.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

#define PAGE   4096u
#define PAGES  16u
#define BYTES  ((size_t)PAGES * PAGE)
#define VAST_TOUCHED (512u << 20)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static struct ibv_pd *open_pd(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(open_device());

	CHECK(pd);
	return pd;
}

static void *get_pages(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static struct ibv_mr *enroll(struct ibv_pd *pd, void *at, size_t bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, bytes, ACCESS);

	CHECK(mr);
	return mr;
}

static uint64_t cpu_ms(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000;
}

static unsigned count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned count = 0;
	int c;

	CHECK(maps);
	while ((c = getc(maps)) != EOF)
		count += c == '\n';
	fclose(maps);
	return count;
}

/* KiB, of a line of a file. */
static long kib_in(const char *path, const char *field)
{
	FILE *file = fopen(path, "re");
	char line[128];
	long value = -1;

	CHECK(file);
	while (value < 0 && fgets(line, sizeof(line), file)) {
		if (!strncmp(line, field, strlen(field)))
			sscanf(line + strlen(field), ": %ld", &value);
	}
	fclose(file);
	return value;
}

static long status_of(const char *field)
{
	return kib_in("/proc/self/status", field);
}

static unsigned number_in(const char *path)
{
	FILE *file = fopen(path, "re");
	unsigned number = 0;

	CHECK(file && fscanf(file, "%u", &number) == 1);
	fclose(file);
	return number;
}

/* A thread that writes to each page and finds what it wrote. */
struct writer {
	pthread_t thread;
	_Atomic uint64_t *words; /* its own, one in each page */
	_Atomic uint64_t *common;
	_Atomic bool stop;
	uint64_t rounds;
	/* Of one that sleeps in between: a page that it runs into, and how often it was let in. */
	volatile uint8_t *unreadable;
	_Atomic uint64_t faults;
};

static void write_round(struct writer *writer)
{
	writer->rounds++;
	for (unsigned i = 0; i < PAGES; i++) {
		_Atomic uint64_t *word = &writer->words[i * PAGE / sizeof(uint64_t)];

		CHECK_EQUAL(atomic_load_explicit(word, memory_order_relaxed), writer->rounds - 1);
		atomic_store_explicit(word, writer->rounds, memory_order_relaxed);
	}
	atomic_fetch_add_explicit(writer->common, 1, memory_order_relaxed);
}

static void *write_all(void *arg)
{
	struct writer *writer = arg;

	while (!atomic_load(&writer->stop))
		write_round(writer);
	return NULL;
}

#define WRITERS 2

static void start_writers(struct writer *writers, void *memory)
{
	_Atomic uint64_t *words = memory;

	for (unsigned i = 0; i < WRITERS; i++) {
		writers[i] =
			(struct writer){ .words = &words[i + 1], .common = &words[WRITERS + 1] };
		CHECK_EQUAL(pthread_create(&writers[i].thread, NULL, write_all, &writers[i]), 0);
	}
}

static void stop_writers(struct writer *writers)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < WRITERS; i++) {
		atomic_store(&writers[i].stop, true);
		pthread_join(writers[i].thread, NULL);
		sum += writers[i].rounds;
	}
	CHECK_EQUAL(atomic_load(writers[0].common), sum);
}

/* By a userfaultfd that holds system calls too. */
static bool threads_can_be_held(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

/* What threads store while their memory is registered and deregistered. */
static void store_during(unsigned rounds)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES);
	struct writer writers[WRITERS];
	unsigned shared = 0;

	start_writers(writers, memory);
	for (unsigned round = 0; round < rounds; round++) {
		struct ibv_mr *mr = enroll(pd, memory, BYTES);

		if (round % 100 == 0)
			shared += is_shared(memory);
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
		if (round % 100 == 0)
			CHECK(!is_shared(memory));
	}
	stop_writers(writers);
	printf("shared in %u of %u looks\n", shared, rounds / 100);
	if (threads_can_be_held())
		CHECK_EQUAL(shared, rounds / 100);
}

static void storing(void)
{
	store_during(10000);
}

static void storing_long(void)
{
	store_during(1000000);
}

/* Rounds leave nothing behind: no memory, no mappings, no addresses, no descriptors. */
static void do_rounds(unsigned rounds)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES);
	unsigned fds = 0, maps = 0;
	long anonymous = 0, shared = 0, addresses = 0;

	for (unsigned i = 0; i < BYTES; i++)
		memory[i] = (uint8_t)(i * 7);
	for (unsigned round = 0; round < rounds; round++) {
		size_t offset = round % 3 * PAGE / 2, bytes = BYTES - offset - round % 5 * PAGE / 2;
		struct ibv_mr *mr = enroll(pd, memory + offset, bytes);

		CHECK(is_shared(memory + PAGE) || round);
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
		if (round == 1000) {
			fds = count_fds();
			maps = count_mappings();
			anonymous = status_of("RssAnon");
			shared = status_of("RssShmem");
			addresses = status_of("VmSize");
		}
	}
	CHECK_EQUAL(count_fds(), fds);
	CHECK(count_mappings() <= maps + 2);
	printf("anonymous %ld kB, then %ld; shared %ld, then %ld\n", anonymous,
	       status_of("RssAnon"), shared, status_of("RssShmem"));
	CHECK(status_of("VmSize") - addresses < 512);
	/* Of what regions are entered in the first place is reused last: 12 bytes of a table, 64 of the segment. A leak of
	 * whatever was allocated would be more. */
	CHECK(status_of("RssAnon") - anonymous < (long)rounds * 16 / 1024 + 256);
	CHECK(status_of("RssShmem") - shared < (long)rounds * 64 / 1024 + 256);
	for (unsigned i = 0; i < BYTES; i++)
		CHECK(memory[i] == (uint8_t)(i * 7));
}

static void rounds(void)
{
	do_rounds(20000);
}

static void rounds_long(void)
{
	do_rounds(100000);
}

/* From here on one system call, or with a request one ioctl() alone, fails. */
static void refuse_call(unsigned call, uint32_t request, unsigned error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | (request ? BPF_JEQ : BPF_JGE) | BPF_K, request, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

	CHECK_EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* More regions than mappings that may be used for them: all of them are there, and so is room for the program. */
static void scatter(unsigned regions)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(2 * (size_t)regions * PAGE);
	struct ibv_mr **mrs = calloc(regions, sizeof(*mrs));
	unsigned allowed = number_in("/proc/sys/vm/max_map_count");
	unsigned before = count_mappings(), most, shared = 0;

	CHECK(mrs);
	for (unsigned i = 0; i < regions; i++) {
		memory[2 * (size_t)i * PAGE] = (uint8_t)i;
		mrs[i] = enroll(pd, memory + 2 * (size_t)i * PAGE, PAGE);
	}
	most = count_mappings();
	/* Looking is slow; no page is shared behind the first that is not. */
	while (shared < regions && is_shared(memory + 2 * (size_t)shared * PAGE))
		shared += 100;
	printf("%u of %u mappings, %u regions shared\n", most, allowed, shared);
	CHECK(shared && most <= before + allowed / 2);
	for (unsigned i = 0; i < regions; i++) {
		CHECK_EQUAL(ibv_dereg_mr(mrs[i]), 0);
		CHECK_EQUAL(memory[2 * (size_t)i * PAGE], (uint8_t)i);
	}
	CHECK(count_mappings() <= before + 16);
}

static void scattered(void)
{
	scatter(30000);
}

#define QUERY_OF_MAPPINGS _IOWR('f', 17, uint64_t[13])

/* As before Linux 6.11: each look at the mappings reads them. */
static void scattered_without_query(void)
{
	refuse_call(SYS_ioctl, QUERY_OF_MAPPINGS, ENOTTY);
	scatter(3000);
}

/* Regions over each other, begun and ended in any order, while the bytes change. */
static void overlapping(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES), model[BYTES];
	struct ibv_mr *mrs[12] = { 0 };

	memset(model, 0, sizeof(model));
	srandom(1);
	for (unsigned round = 0; round < 20000; round++) {
		struct ibv_mr **mr = &mrs[random() % 12];
		size_t offset = (size_t)random() % BYTES, i = (size_t)random() % BYTES;

		if (*mr) {
			CHECK_EQUAL(ibv_dereg_mr(*mr), 0);
			*mr = NULL;
		} else {
			*mr = enroll(pd, memory + offset, 1 + (size_t)random() % (BYTES - offset));
		}
		memory[i] = model[i] = (uint8_t)random();
		if (round % 16 == 0)
			CHECK(!memcmp(memory, model, BYTES));
	}
	for (unsigned i = 0; i < 12; i++) {
		if (mrs[i])
			CHECK_EQUAL(ibv_dereg_mr(mrs[i]), 0);
	}
	CHECK(!memcmp(memory, model, BYTES));
	for (unsigned i = 0; i < PAGES; i++)
		CHECK(!is_shared(memory + i * PAGE));
}

/* Threads that register parts of the same memory: while one's pages are being switched they are there for the other. */
struct registrar {
	pthread_t thread;
	struct ibv_pd *pd;
	uint8_t *memory;
	size_t bytes;
	uint64_t until; /* ms */
};

static void *register_again(void *arg)
{
	const struct registrar *registrar = arg;

	while (now_ms() < registrar->until)
		CHECK_EQUAL(
			ibv_dereg_mr(enroll(registrar->pd, registrar->memory, registrar->bytes)),
			0);
	return NULL;
}

static void registering_in_threads(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES);
	struct registrar registrars[3];

	memset(memory, 5, BYTES);
	for (unsigned i = 0; i < 3; i++) {
		registrars[i] = (struct registrar){ .pd = pd,
						    .memory = memory + i * PAGE,
						    .bytes = BYTES >> i,
						    .until = now_ms() + 4000 };
		CHECK_EQUAL(pthread_create(&registrars[i].thread, NULL, register_again,
					   &registrars[i]),
			    0);
	}
	for (unsigned i = 0; i < 3; i++)
		pthread_join(registrars[i].thread, NULL);
	for (unsigned i = 0; i < BYTES; i++)
		CHECK_EQUAL(memory[i], 5);
	CHECK(!is_shared(memory));
}

/* What the program does to memory that was registered once. */
static void afterwards(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES), *moved;

	memset(memory, 5, BYTES);
	CHECK_EQUAL(ibv_dereg_mr(enroll(pd, memory, BYTES)), 0);
	CHECK_EQUAL(mprotect(memory, PAGE, PROT_READ), 0);
	CHECK_EQUAL(mprotect(memory, PAGE, PROT_READ | PROT_WRITE), 0);
	memory[0] = 6;
	CHECK_EQUAL(madvise(memory + PAGE, PAGE, MADV_DONTNEED), 0);
	CHECK_EQUAL(memory[PAGE], 0);
	CHECK_EQUAL(memory[2 * PAGE], 5);
	moved = mremap(memory, BYTES, 4 * BYTES, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED);
	CHECK_EQUAL(moved[0], 6);
	CHECK_EQUAL(moved[BYTES - 1], 5);
	CHECK_EQUAL(moved[BYTES], 0);
	CHECK_EQUAL(ibv_dereg_mr(enroll(pd, moved, 4 * BYTES)), 0);
	CHECK_EQUAL(moved[0], 6);
	CHECK_EQUAL(moved[BYTES - 1], 5);
	CHECK_EQUAL(munmap(moved, 4 * BYTES), 0);
}

/* What it does to memory that is still registered, as an allocator does that does not know. */
static void meanwhile(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES), *moved;
	struct ibv_mr *mr, *again;

	memset(memory, 5, BYTES);
	/* A part goes, and something else comes in its place. */
	mr = enroll(pd, memory, BYTES);
	CHECK_EQUAL(munmap(memory + 4 * PAGE, 4 * PAGE), 0);
	CHECK(mmap(memory + 4 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	memset(memory + 4 * PAGE, 8, 2 * PAGE);
	again = enroll(pd, memory + 4 * PAGE, 2 * PAGE);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(memory[4 * PAGE], 8);
	CHECK_EQUAL(ibv_dereg_mr(again), 0);
	CHECK_EQUAL(memory[4 * PAGE], 8);
	CHECK_EQUAL(memory[3 * PAGE], 5);
	CHECK_EQUAL(memory[8 * PAGE], 5);
	munmap(memory, BYTES);

	/* It moves, and is used where it went. */
	memory = get_pages(BYTES);
	memset(memory, 5, BYTES);
	mr = enroll(pd, memory, BYTES);
	moved = mremap(memory, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
	CHECK(moved != MAP_FAILED);
	moved[PAGE] = 9;
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(moved[0], 5);
	CHECK_EQUAL(moved[PAGE], 9);
	CHECK_EQUAL(moved[BYTES - 1], 5);

	/* It is protected, and stays so. */
	memory = get_pages(BYTES);
	memset(memory, 5, BYTES);
	mr = enroll(pd, memory, BYTES);
	CHECK_EQUAL(mprotect(memory + PAGE, PAGE, PROT_READ), 0);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(memory[PAGE], 5);
	CHECK_EQUAL(read(open("/dev/zero", O_RDONLY | O_CLOEXEC), memory + PAGE, 1), -1);
	CHECK_EQUAL(errno, EFAULT);
}

/* A core dump has the program's memory, registered or not, and not the gigabytes of addresses in which the library sees its own and
 * others'. */
static void dumped(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES);
	unsigned long start = 0, end = 0, from, to;
	bool ours = false, seen = false;
	unsigned apart = 0;
	FILE *maps;
	char line[512];

	memset(memory, 1, BYTES);
	enroll(pd, memory, BYTES);
	CHECK(is_shared(memory));
	maps = fopen("/proc/self/smaps", "re");
	if (!maps)
		SKIP("the system does not show the flags of mappings");
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
			start = from;
			end = to;
			ours = strstr(line, "/memfd:uroce");
		}
		if (strncmp(line, "VmFlags:", 8) || !ours)
			continue;
		if (start <= (uintptr_t)memory && (uintptr_t)memory < end) {
			CHECK(!strstr(line, " dd"));
			seen = true;
		} else {
			CHECK(strstr(line, " dd"));
			apart++;
		}
	}
	fclose(maps);
	CHECK(seen && apart);
}

/* The main thread may end before the others; then its /proc files are empty. */
static void *register_alone(void *arg)
{
	struct ibv_pd *pd = arg;
	uint8_t *memory = get_pages(BYTES);

	/* Until it has. */
	while (kib_in("/proc/self/status", "VmSize") > 0)
		usleep(1000);
	for (unsigned i = 0; i < 100; i++) {
		struct ibv_mr *mr;

		memset(memory, (int)i, BYTES);
		mr = enroll(pd, memory, BYTES);
		CHECK(is_shared(memory));
		memory[BYTES / 2] = (uint8_t)(i + 1);
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
		CHECK_EQUAL(memory[0], (uint8_t)i);
		CHECK_EQUAL(memory[BYTES / 2], (uint8_t)(i + 1));
		CHECK_EQUAL(memory[BYTES - 1], (uint8_t)i);
	}
	exit(0);
}

static void without_main_thread(void)
{
	pthread_t thread;

	CHECK_EQUAL(pthread_create(&thread, NULL, register_alone, open_pd()), 0);
	pthread_exit(NULL);
}

/* Pages that nobody touched cost nothing, registered or not. */
static void untouched(void)
{
	const size_t bytes = 256u << 20;
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(bytes);
	struct ibv_mr *mr;
	long before;

	madvise(memory, bytes, MADV_NOHUGEPAGE);
	memory[0] = memory[bytes / 2] = memory[bytes - 1] = 1;
	before = status_of("VmRSS");
	mr = enroll(pd, memory, bytes);
	CHECK(is_shared(memory + PAGE));
	CHECK(status_of("VmRSS") - before < 1024);
	CHECK_EQUAL(memory[bytes / 2], 1);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK(status_of("VmRSS") - before < 1024);
	CHECK_EQUAL(memory[bytes / 2], 1);
	CHECK_EQUAL(memory[PAGE], 0);
}

/* The child's memory is its own, as it was in one moment, and the parent's is its own again. */
static void forking(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES);
	_Atomic uint64_t *common = (_Atomic uint64_t *)memory + WRITERS + 1;
	struct writer writers[WRITERS];
	struct ibv_mr *mr;
	int status;

	start_writers(writers, memory);
	for (unsigned round = 0; round < 300; round++) {
		mr = enroll(pd, memory, BYTES);

		pid_t child = fork();

		if (!child) {
			uint64_t seen = atomic_load(common);

			for (unsigned i = 0; i < 200; i++) {
				if (atomic_load(common) != seen)
					_exit(1);
			}
			if (is_shared(memory))
				_exit(2);
			/* Nobody misses these. */
			memset(memory, 0xff, BYTES);
			_exit(0);
		}
		CHECK(child > 0);
		CHECK_EQUAL(waitpid(child, &status, 0), child);
		CHECK_EQUAL(status, 0);
		CHECK(!is_shared(memory));
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	}
	stop_writers(writers);
}

/* Sealed memory can never be another mapping: what is sealed before is not shared, and what is sealed afterwards stays so; a child has
 * its own copy all the same, while it is registered and afterwards, and has it sealed. */
#define MSEAL 462

static void check_child(uint8_t *memory, uint8_t holds)
{
	pid_t child = fork();
	int status;

	if (!child) {
		for (size_t i = 0; i < BYTES; i++) {
			if (memory[i] != holds)
				_exit(1);
		}
		if (is_shared(memory) || is_shared(memory + BYTES / 2))
			_exit(2);
		if (!mprotect(memory, PAGE, PROT_NONE))
			_exit(3);
		memset(memory, 0xff, BYTES);
		_exit(0);
	}
	CHECK(child > 0);
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	CHECK_EQUAL(status, 0);
	for (size_t i = 0; i < BYTES; i++)
		CHECK_EQUAL(memory[i], holds);
}

static void sealing(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES), *other = get_pages(BYTES);
	struct ibv_mr *mr;

	memset(memory, 1, BYTES);
	memset(other, 2, BYTES);
	if (syscall(MSEAL, other, BYTES, 0ul))
		SKIP("the kernel has no mseal(2): %s", strerror(errno));
	mr = enroll(pd, other, BYTES);
	CHECK(!is_shared(other));
	check_child(other, 2);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	mr = enroll(pd, memory, BYTES);
	CHECK(is_shared(memory));
	/* The second half, then all of it. */
	CHECK(!syscall(MSEAL, memory + BYTES / 2, BYTES / 2, 0ul));
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK(!is_shared(memory));
	CHECK(is_shared(memory + BYTES / 2));
	mr = enroll(pd, memory, BYTES);
	CHECK(!syscall(MSEAL, memory, BYTES, 0ul));
	check_child(memory, 1);
	memset(memory, 3, BYTES);
	check_child(memory, 3);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	memset(memory, 4, BYTES);
	check_child(memory, 4);
	mr = enroll(pd, memory, BYTES);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	check_child(memory, 4);
}

/* What the machine could never pin is refused at once, and most of what it could is not touched yet: that takes no time. A signal
 * that comes meanwhile does not wait. */
static _Atomic uint64_t alarmed;

static void note_alarm(int signal)
{
	(void)signal;
	atomic_store(&alarmed, now_ms());
}

static void vast(void)
{
	const size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) / 2 * PAGE & ~((size_t)PAGE - 1), beyond = 1ull << 40;
	struct itimerval soon = { .it_value.tv_usec = 1000 };
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = mmap(NULL, beyond, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t before, after;
	struct ibv_mr *mr;

	if (memory == MAP_FAILED)
		SKIP("1 TiB of addresses is refused: %s", strerror(errno));
	before = cpu_ms();
	CHECK(!ibv_reg_mr(pd, memory, beyond, ACCESS));
	CHECK_EQUAL(errno, ENOMEM);
	memory[0] = memory[bytes / 3] = memory[bytes - 1] = 7;
	mr = enroll(pd, memory, bytes);
	CHECK(is_shared(memory + PAGE));
	CHECK_EQUAL(memory[bytes / 3], 7);
	CHECK_EQUAL(memory[bytes / 2], 0);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(memory[bytes / 3], 7);
	CHECK_EQUAL(memory[bytes / 2], 0);
	printf("%llu ms of CPU\n", (unsigned long long)(cpu_ms() - before));
	CHECK(cpu_ms() - before < 500);
	munmap(memory, beyond);

	/* Much to copy. */
	memory = get_pages(VAST_TOUCHED);
	memset(memory, 1, VAST_TOUCHED);
	signal(SIGALRM, note_alarm);
	before = now_ms();
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	mr = enroll(pd, memory, VAST_TOUCHED);
	after = now_ms();
	printf("%llu ms, the signal came after %llu\n", (unsigned long long)(after - before),
	       (unsigned long long)(atomic_load(&alarmed) - before));
	CHECK(atomic_load(&alarmed) && atomic_load(&alarmed) - before <= (after - before) / 2 + 1);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
}

/* Reads from a disk into memory that is being registered. */
#define DISK_BYTES (1u << 20)

struct reader {
	int file;
	uint8_t *to;
	_Atomic bool reading;
};

static void *read_disk(void *arg)
{
	struct reader *reader = arg;

	atomic_store(&reader->reading, true);
	CHECK_EQUAL(pread(reader->file, reader->to, DISK_BYTES, 0), DISK_BYTES);
	return NULL;
}

/* A file that is full of 'D', to be read directly; -1 where that cannot be. */
static int open_disk(void)
{
	char name[] = "/var/tmp/uroce-direct-XXXXXX", *bytes = get_pages(DISK_BYTES);
	int file = mkostemp(name, O_CLOEXEC);

	CHECK(file >= 0);
	memset(bytes, 'D', DISK_BYTES);
	CHECK_EQUAL(write(file, bytes, DISK_BYTES), DISK_BYTES);
	CHECK_EQUAL(fsync(file), 0);
	close(file);
	munmap(bytes, DISK_BYTES);
	file = open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
	unlink(name);
	return file;
}

static void reading_directly(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(DISK_BYTES);
	struct reader reader = { .file = open_disk(), .to = memory };
	unsigned shared = 0;

	if (reader.file < 0)
		SKIP("no O_DIRECT in /var/tmp");
	for (unsigned round = 0; round < 200; round++) {
		struct ibv_mr *mr;
		pthread_t thread;

		memset(memory, 'o', DISK_BYTES);
		atomic_store(&reader.reading, false);
		CHECK_EQUAL(pthread_create(&thread, NULL, read_disk, &reader), 0);
		while (!atomic_load(&reader.reading))
			;
		usleep(round * 5);
		mr = enroll(pd, memory, DISK_BYTES);
		shared += is_shared(memory);
		pthread_join(thread, NULL);
		for (unsigned i = 0; i < DISK_BYTES; i += 512)
			CHECK_EQUAL(memory[i], 'D');
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	}
	printf("shared in %u of 200 rounds\n", shared);
}

/* The same while it is deregistered. */
static void reading_directly_at_the_end(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(DISK_BYTES);
	struct reader reader = { .file = open_disk(), .to = memory };

	if (reader.file < 0)
		SKIP("no O_DIRECT in /var/tmp");
	for (unsigned round = 0; round < 300; round++) {
		struct ibv_mr *mr = enroll(pd, memory, DISK_BYTES);
		pthread_t thread;

		memset(memory, 'o', DISK_BYTES);
		atomic_store(&reader.reading, false);
		CHECK_EQUAL(pthread_create(&thread, NULL, read_disk, &reader), 0);
		while (!atomic_load(&reader.reading))
			;
		usleep(round % 100 * 5);
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
		pthread_join(thread, NULL);
		for (unsigned i = 0; i < DISK_BYTES; i += 512)
			CHECK_EQUAL(memory[i], 'D');
	}
	/* Nothing waits any more to be given back. */
	CHECK_EQUAL(ibv_dereg_mr(enroll(pd, memory, DISK_BYTES)), 0);
	CHECK(!is_shared(memory));
}

/* A ring of one buffer that the kernel has pinned, by the system calls alone. */
struct uring {
	int fd;
	struct io_uring_params params;
	uint8_t *queues;
	struct io_uring_sqe *sqes;
};

static bool uring_open(struct uring *ring, void *buffer, size_t bytes)
{
	struct iovec pinned = { .iov_base = buffer, .iov_len = bytes };

	*ring = (struct uring){ 0 };
	ring->fd = (int)syscall(SYS_io_uring_setup, 4, &ring->params);
	if (ring->fd < 0)
		return false;
	CHECK(ring->params.features & IORING_FEAT_SINGLE_MMAP);
	ring->queues =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
	ring->sqes =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQES);
	CHECK(ring->queues != MAP_FAILED && ring->sqes != MAP_FAILED);
	return !syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_BUFFERS, &pinned, 1);
}

static void uring_close(struct uring *ring)
{
	munmap(ring->queues, 4096);
	munmap(ring->sqes, 4096);
	close(ring->fd);
}

static void uring_read(struct uring *ring, int fd, void *to, uint32_t length)
{
	ring->sqes[0] = (struct io_uring_sqe){
		.opcode = IORING_OP_READ_FIXED, .fd = fd, .addr = (uintptr_t)to, .len = length
	};
	*(uint32_t *)(ring->queues + ring->params.sq_off.array) = 0;
	__atomic_fetch_add((uint32_t *)(ring->queues + ring->params.sq_off.tail), 1,
			   __ATOMIC_RELEASE);
	CHECK_EQUAL(syscall(SYS_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0), 1);
}

static int uring_result(struct uring *ring)
{
	CHECK_EQUAL(syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0),
		    0);
	return ((struct io_uring_cqe *)(ring->queues + ring->params.cq_off.cqes))[0].res;
}

/* A pinned buffer in memory that is registered first, or last, and not any more when the kernel writes to it. */
static void read_into_pinned(bool pinned_first)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES);
	struct uring ring;
	struct ibv_mr *mr;
	int line[2];

	CHECK_EQUAL(pipe(line), 0);
	memset(memory, 'o', BYTES);
	mr = pinned_first ? NULL : enroll(pd, memory, BYTES);
	if (!uring_open(&ring, memory, BYTES))
		SKIP("no io_uring, or not enough memory may be locked for it");
	if (pinned_first)
		mr = enroll(pd, memory, BYTES);
	CHECK_EQUAL(is_shared(memory), !pinned_first);
	uring_read(&ring, line[0], memory + PAGE, 8);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	CHECK_EQUAL(write(line[1], "uringing", 8), 8);
	CHECK_EQUAL(uring_result(&ring), 8);
	CHECK(!memcmp(memory + PAGE, "uringing", 8));
	/* Without it the next look gives back what had to stay. */
	uring_close(&ring);
	for (uint64_t end = now_ms() + 5000; is_shared(memory) && now_ms() < end;)
		CHECK_EQUAL(ibv_dereg_mr(enroll(pd, memory + 4 * PAGE, PAGE)), 0);
	CHECK(!is_shared(memory));
	CHECK(!memcmp(memory + PAGE, "uringing", 8));
	CHECK_EQUAL(memory[2 * PAGE], 'o');
}

/* A fork in between: the ring stays the parent's, and the child has what was there. */
static void pinned_and_forked(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES);
	struct uring ring;
	int line[2], status;
	pid_t child;

	CHECK_EQUAL(pipe(line), 0);
	memset(memory, 'o', BYTES);
	enroll(pd, memory, BYTES);
	if (!uring_open(&ring, memory, BYTES))
		SKIP("no io_uring, or not enough memory may be locked for it");
	CHECK(is_shared(memory));
	uring_read(&ring, line[0], memory + PAGE, 8);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		CHECK(!is_shared(memory));
		for (unsigned i = 0; i < BYTES; i++)
			CHECK_EQUAL(memory[i], 'o');
		memset(memory, 'c', BYTES);
		_exit(0);
	}
	memset(memory, 'p', BYTES);
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	CHECK_EQUAL(status, 0);
	CHECK_EQUAL(write(line[1], "uringing", 8), 8);
	CHECK_EQUAL(uring_result(&ring), 8);
	CHECK(!memcmp(memory + PAGE, "uringing", 8));
	CHECK_EQUAL(memory[0], 'p');
}

static void pinned_by_a_ring(void)
{
	read_into_pinned(false);
}

static void pinned_by_a_ring_before(void)
{
	read_into_pinned(true);
}

/* KiB that the pages file holds. */
static long pages_held(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	long held = -1;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		char target[64];
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
		struct stat st;

		target[n < 0 ? 0 : n] = 0;
		if (strstr(target, "uroce-pages") && !fstat(atoi(entry->d_name), &st))
			held = st.st_blocks / 2;
	}
	closedir(dir);
	CHECK(held >= 0);
	return held;
}

/* Memory that had to stay shared and was unmapped: its pages go, and what comes in its place is another matter. */
static void unmapped_while_lingering(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES);

	for (unsigned round = 0; round < 300; round++) {
		struct ibv_mr *mr = enroll(pd, memory, BYTES);
		struct uring ring;

		CHECK(is_shared(memory));
		memset(memory, 'o', BYTES);
		if (!uring_open(&ring, memory, BYTES))
			SKIP("no io_uring, or not enough memory may be locked for it");
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
		CHECK(is_shared(memory));
		CHECK_EQUAL(munmap(memory, BYTES), 0);
		CHECK(mmap(memory, BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == memory);
		uring_close(&ring);
		CHECK_EQUAL(memory[PAGE], 0);
		if (round % 2)
			memory = get_pages(BYTES);
	}
	CHECK_EQUAL(ibv_dereg_mr(enroll(pd, memory, BYTES)), 0);
	CHECK_EQUAL(pages_held(), 0);
}

/* Memory that is not registered any more is freed and comes again as zeros, whatever the process has open and its threads wait for. */
static void *wait_for_message(void *arg)
{
	char byte;
	struct iovec to = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &to, .msg_iovlen = 1 };

	CHECK_EQUAL(recvmsg(*(int *)arg, &message, 0), 1);
	return NULL;
}

static void discarding_afterwards(void)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES), *pinned = get_pages(PAGE);
	struct uring ring;
	pthread_t thread;
	int line[2];

	CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, line), 0);
	CHECK_EQUAL(pthread_create(&thread, NULL, wait_for_message, &line[0]), 0);
	if (!uring_open(&ring, pinned, PAGE))
		printf("no io_uring\n");
	usleep(50000); /* there is no event: it waits */
	for (unsigned round = 0; round < 100; round++) {
		struct ibv_mr *mr = enroll(pd, memory, BYTES);

		memset(memory, 'o', BYTES);
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
		CHECK_EQUAL(madvise(memory, BYTES, MADV_DONTNEED), 0);
		for (unsigned i = 0; i < BYTES; i += 64)
			CHECK_EQUAL(memory[i], 0);
	}
	CHECK_EQUAL(write(line[1], "", 1), 1);
	pthread_join(thread, NULL);
}

/* An ordinary user has a userfaultfd for user mode, or none. */
static void be_ordinary(void)
{
	if (geteuid() == 0)
		CHECK_EQUAL(seteuid(65534), 0);
	/* What a change of users takes away. */
	CHECK_EQUAL(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
}

static void refuse_userfaultfd(void)
{
	be_ordinary(); /* for /dev/userfaultfd */
	refuse_call(SYS_userfaultfd, 0, EPERM);
}

/* Where nothing holds other threads: a process without any still shares. */
static void without_userfaultfd(void)
{
	refuse_userfaultfd();
	overlapping();

	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES);
	struct writer writers[WRITERS];
	struct ibv_mr *mr = enroll(pd, memory, BYTES), *other;

	CHECK(is_shared(memory));
	/* Threads that came later lose nothing either. */
	start_writers(writers, memory);
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	for (unsigned round = 0; round < 1000; round++) {
		other = enroll(pd, memory, BYTES);
		CHECK(!is_shared(memory));
		CHECK_EQUAL(ibv_dereg_mr(other), 0);
	}
	stop_writers(writers);
}

/* Threads that sleep and wake up now and then: their memory is shared all the same, and they lose nothing. */
static void *write_and_sleep(void *arg)
{
	struct writer *writer = arg;
	uint64_t fault = 0;

	while (!atomic_load(&writer->stop)) {
		write_round(writer);
		if (writer->unreadable) {
			fault = atomic_load(&writer->faults);
			*writer->unreadable = 1;
			CHECK_EQUAL(atomic_load(&writer->faults), fault + 1);
			CHECK_EQUAL(mprotect((void *)writer->unreadable, PAGE, PROT_NONE), 0);
		}
		usleep(200 + (unsigned)writer->rounds * 37 % 1500);
	}
	return NULL;
}

static struct writer sleepers[WRITERS];

/* The program's own: whoever runs into its own page is let in. */
static void let_in(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	for (unsigned i = 0; i < WRITERS; i++) {
		if (info->si_addr == sleepers[i].unreadable) {
			atomic_fetch_add(&sleepers[i].faults, 1);
			if (!mprotect(info->si_addr, PAGE, PROT_READ | PROT_WRITE))
				return;
		}
	}
	_exit(1);
}

static void store_between_sleeps(bool faulting)
{
	struct sigaction own = { .sa_sigaction = let_in, .sa_flags = SA_SIGINFO }, after;
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES);
	_Atomic uint64_t *words = (_Atomic uint64_t *)memory;
	unsigned shared = 0, looks = 0, rounds = 0;

	CHECK_EQUAL(sigaction(SIGSEGV, &own, NULL), 0);
	for (unsigned i = 0; i < WRITERS; i++) {
		sleepers[i] = (struct writer){
			.words = &words[i + 1],
			.common = &words[WRITERS + 1],
			.unreadable = faulting ? mmap(NULL, PAGE, PROT_NONE,
						      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) :
						 NULL,
		};
		CHECK_EQUAL(pthread_create(&sleepers[i].thread, NULL, write_and_sleep,
					   &sleepers[i]),
			    0);
	}
	for (uint64_t end = now_ms() + 5000; now_ms() < end; rounds++) {
		struct ibv_mr *mr = enroll(pd, memory, BYTES);

		/* A look takes long. Whoever runs when a region ends may keep the memory from being shared again. */
		if (rounds % 16 == 0 || !shared) {
			shared += is_shared(memory);
			looks++;
		}
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	}
	stop_writers(sleepers);
	printf("shared in %u of %u looks\n", shared, looks);
	CHECK(shared);
	CHECK_EQUAL(sigaction(SIGSEGV, NULL, &after), 0);
	CHECK(after.sa_sigaction == let_in);
}

static void sleeping(void)
{
	be_ordinary();
	store_between_sleeps(false);
}

static void sleeping_without_userfaultfd(void)
{
	refuse_userfaultfd();
	store_between_sleeps(false);
}

static void faulting_without_userfaultfd(void)
{
	refuse_userfaultfd();
	store_between_sleeps(true);
}

/* Who sleeps in a call that will write to the memory, or could not be held when it wakes up, leaves it private. */
struct sleeper {
	pthread_t thread;
	int pipe[2];
	uint8_t *to;
	bool blocks;
};

static void *sleep_in_read(void *arg)
{
	struct sleeper *sleeper = arg;
	sigset_t faults;

	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	if (sleeper->blocks)
		pthread_sigmask(SIG_BLOCK, &faults, NULL);
	CHECK_EQUAL(read(sleeper->pipe[0], sleeper->to, 2 * PAGE), 1);
	return NULL;
}

/* Whether memory is shared that is registered while a thread sleeps so. */
static bool shares_beside(struct ibv_pd *pd, uint8_t *memory, uint8_t *to, bool blocks)
{
	struct sleeper sleeper = { .to = to, .blocks = blocks };
	struct ibv_mr *mr;
	bool shared;

	CHECK_EQUAL(pipe(sleeper.pipe), 0);
	CHECK_EQUAL(pthread_create(&sleeper.thread, NULL, sleep_in_read, &sleeper), 0);
	usleep(50000); /* there is no event: it sleeps */
	mr = enroll(pd, memory, BYTES);
	shared = is_shared(memory);
	CHECK_EQUAL(write(sleeper.pipe[1], "!", 1), 1);
	pthread_join(sleeper.thread, NULL);
	CHECK_EQUAL(*to, '!');
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	close(sleeper.pipe[0]);
	close(sleeper.pipe[1]);
	return shared;
}

/* A thread whose stack, or stack for signals, lies in the memory. */
#define WIDE (4u << 20)

static ucontext_t of_thread, of_coroutine;
static _Atomic bool coroutine_ends;

static void run_coroutine(void)
{
	while (!atomic_load(&coroutine_ends))
		usleep(50);
}

static void *sleep_on_stacks(void *arg)
{
	uint8_t *memory = arg;
	stack_t signals = { .ss_sp = memory + WIDE / 4, .ss_size = BYTES };

	CHECK_EQUAL(sigaltstack(&signals, NULL), 0);
	for (unsigned i = 0; i < 20000; i++) {
		memory[WIDE - 1]++;
		usleep(50);
	}
	CHECK_EQUAL(getcontext(&of_coroutine), 0);
	of_coroutine.uc_stack.ss_sp = memory + WIDE / 2;
	of_coroutine.uc_stack.ss_size = BYTES;
	of_coroutine.uc_link = &of_thread;
	makecontext(&of_coroutine, run_coroutine, 0);
	CHECK_EQUAL(swapcontext(&of_thread, &of_coroutine), 0);
	return NULL;
}

static void sleeping_on_stacks(void)
{
	struct sigaction own = { .sa_sigaction = let_in, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	struct ibv_pd *pd;
	uint8_t *memory = get_pages(WIDE);
	pthread_t thread;

	refuse_userfaultfd();
	pd = open_pd();
	memset(memory, 1, WIDE);
	CHECK_EQUAL(sigaction(SIGSEGV, &own, NULL), 0);
	CHECK_EQUAL(pthread_create(&thread, NULL, sleep_on_stacks, memory), 0);
	for (uint64_t end = now_ms() + 5000; now_ms() < end;) {
		CHECK_EQUAL(ibv_dereg_mr(enroll(pd, memory, WIDE)), 0);
		usleep(100);
	}
	atomic_store(&coroutine_ends, true);
	pthread_join(thread, NULL);
}

static void sleeping_in_calls(void)
{
	refuse_userfaultfd();

	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES + PAGE), *elsewhere = get_pages(BYTES);

	CHECK(shares_beside(pd, memory, elsewhere, false));
	CHECK(!shares_beside(pd, memory, elsewhere, true));
	CHECK(!shares_beside(pd, memory, memory + PAGE, false));
	/* It begins before the region and reaches into it. */
	CHECK(!shares_beside(pd, memory + PAGE, memory, false));
}

/* Threads that wait for each other by words of memory that is being registered and deregistered. */
struct turns {
	_Atomic uint32_t *turn;
	int private; /* or 0 */
	uint32_t rounds;
};

static void wait_for_turn(const struct turns *turns, uint32_t turn)
{
	uint32_t now;

	while ((now = atomic_load(turns->turn)) != turn)
		syscall(SYS_futex, turns->turn, FUTEX_WAIT | turns->private, now, NULL, NULL, 0);
}

static void next_turn(const struct turns *turns)
{
	atomic_fetch_add(turns->turn, 1);
	syscall(SYS_futex, turns->turn, FUTEX_WAKE | turns->private, 1, NULL, NULL, 0);
}

static void *take_turns(void *arg)
{
	const struct turns *turns = arg;

	for (uint32_t i = 1; i < 2 * turns->rounds; i += 2) {
		wait_for_turn(turns, i);
		usleep(i % 3 * 50);
		next_turn(turns);
	}
	return NULL;
}

static void waiting_for_each_other(int private)
{
	struct ibv_pd *pd = open_pd();
	uint8_t *memory = get_pages(BYTES);
	struct turns turns = { .turn = (_Atomic uint32_t *)(memory + PAGE),
			       .private = private,
			       .rounds = 2000 };
	unsigned shared = 0;
	pthread_t thread;

	CHECK_EQUAL(pthread_create(&thread, NULL, take_turns, &turns), 0);
	alarm(60); /* who is not woken waits for ever */
	for (uint32_t i = 0; i < 2 * turns.rounds; i += 2) {
		struct ibv_mr *mr = enroll(pd, memory, BYTES);

		shared += is_shared(memory);
		wait_for_turn(&turns, i);
		next_turn(&turns);
		CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	}
	alarm(0);
	pthread_join(thread, NULL);
	printf("shared in %u of %u rounds\n", shared, turns.rounds);
}

static void futexes(void)
{
	waiting_for_each_other(FUTEX_PRIVATE_FLAG);
}

static void shared_futexes(void)
{
	waiting_for_each_other(0);
}

/* Memory comes from the heap and goes back to it while other threads use the pages beside it. */
struct churner {
	pthread_t thread;
	_Atomic bool *stop;
	unsigned seed;
};

#define CHURNED 64

static void *churn(void *arg)
{
	struct churner *churner = arg;
	struct {
		uint8_t *at;
		size_t size;
		uint8_t byte;
	} held[CHURNED] = { 0 };

	while (!atomic_load(churner->stop)) {
		unsigned i = (unsigned)rand_r(&churner->seed) % CHURNED, how;
		size_t size = 1 + (size_t)rand_r(&churner->seed) % (i % 8 ? 3000 : 300000);

		for (size_t k = 0; k < held[i].size; k += 61)
			CHECK_EQUAL(held[i].at[k], held[i].byte);
		how = (unsigned)rand_r(&churner->seed) % 4;
		if (how == 0) {
			free(held[i].at);
			held[i].at = NULL;
			held[i].size = 0;
			continue;
		}
		if (how == 1) {
			free(held[i].at);
			held[i].at = calloc(1, size);
			CHECK(held[i].at);
			for (size_t k = 0; k < size; k += 61)
				CHECK_EQUAL(held[i].at[k], 0);
		} else {
			held[i].at = realloc(held[i].at, size);
			CHECK(held[i].at);
		}
		held[i].size = size;
		held[i].byte = (uint8_t)rand_r(&churner->seed);
		memset(held[i].at, held[i].byte, size);
	}
	for (unsigned i = 0; i < CHURNED; i++)
		free(held[i].at);
	return NULL;
}

static void churning(void)
{
	struct ibv_pd *pd = open_pd();
	struct churner churners[2];
	_Atomic bool stop = false;
	struct ibv_mr *mrs[32] = { 0 };
	uint8_t *at[32];
	unsigned seed = 7;

	for (unsigned i = 0; i < 2; i++) {
		churners[i] = (struct churner){ .stop = &stop, .seed = i + 1 };
		CHECK_EQUAL(pthread_create(&churners[i].thread, NULL, churn, &churners[i]), 0);
	}
	for (uint64_t end = now_ms() + 5000; now_ms() < end;) {
		unsigned i = (unsigned)rand_r(&seed) % 32;

		if (mrs[i]) {
			for (size_t k = 0; k < mrs[i]->length; k += 509)
				CHECK_EQUAL(at[i][k], (uint8_t)i);
			CHECK_EQUAL(ibv_dereg_mr(mrs[i]), 0);
			mrs[i] = NULL;
			free(at[i]);
			continue;
		}
		size_t size = 1 + (size_t)rand_r(&seed) % 100000;

		at[i] = malloc(size);
		CHECK(at[i]);
		memset(at[i], (int)i, size);
		mrs[i] = enroll(pd, at[i], size);
	}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(churners[i].thread, NULL);
}

/* As before Linux 6.8. */
static void refuse_uffdio_api(void)
{
	refuse_call(SYS_ioctl, UFFDIO_API, EINVAL);
}

static void sleeping_without_move(void)
{
	refuse_uffdio_api();
	store_between_sleeps(false);
}

static void overlapping_without_move(void)
{
	refuse_uffdio_api();
	overlapping();
}

/* Atomics on a word that two regions cover, of which one has it mapped and the other has a longer run elsewhere. */

struct adder {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct node *node;
	uint32_t result; /* offset in the node's buffer */
	uint64_t word;
	uint32_t rkey;
	unsigned additions;
};

/* The helper, which may just be starting, is not taken for a thread of the program. */
static void at_once(void)
{
	refuse_userfaultfd();
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (!pid) {
			struct ibv_pd *pd = open_pd();
			uint8_t *memory = get_pages(BYTES);

			enroll(pd, memory, BYTES);
			_exit(!is_shared(memory));
		}
		CHECK_EQUAL(waitpid(pid, &status, 0), pid);
		CHECK_EQUAL(status, 0);
	}
}

static void *add_up(void *arg)
{
	struct adder *adder = arg;

	for (unsigned i = 0; i < adder->additions; i++) {
		CHECK_EQUAL(node_rdma(adder->node, adder->qp, i, IBV_WR_ATOMIC_FETCH_AND_ADD,
				      adder->result, 8, adder->word, adder->rkey),
			    0);
		node_expect(adder->cq, i, IBV_WC_SUCCESS);
	}
	return NULL;
}

static struct ibv_mr *enroll_for_atomics(struct node *node, uint8_t *at, size_t bytes)
{
	struct ibv_mr *mr =
		ibv_reg_mr(node->pd, at, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);

	CHECK(mr);
	return mr;
}

static void adding(void)
{
	uint8_t *memory = get_pages(BYTES);
	struct adder adders[2];
	pthread_t thread;
	struct node node;

	node_open(&node);
	/* The fourth page parts what follows. */
	enroll(node.pd, memory + 3 * PAGE, PAGE / 2);
	for (unsigned i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.cap = { .max_send_wr = 1,
				 .max_recv_wr = 1,
				 .max_send_sge = 1,
				 .max_recv_sge = 1 },
			.qp_type = IBV_QPT_RC,
			.sq_sig_all = 1,
		};
		struct ibv_mr *mr = enroll_for_atomics(&node, memory, i ? 2 * PAGE : BYTES);
		struct ibv_qp *target = node_qp(&node, IBV_QPT_RC, NULL);

		adders[i] = (struct adder){ .cq = ibv_create_cq(node.ctx, 4, NULL, NULL, 0),
					    .node = &node,
					    .result = 8 * i,
					    .word = (uintptr_t)memory + 64,
					    .rkey = mr->rkey,
					    /* For about as long. */
					    .additions = i ? 200000 : 20000 };
		init.send_cq = init.recv_cq = adders[i].cq;
		adders[i].qp = ibv_create_qp(node.pd, &init);
		CHECK(adders[i].qp);
		node_init_qp(adders[i].qp, patient.access);
		node_connect_pair(&node, adders[i].qp, target, &patient);
	}
	CHECK(is_shared(memory) && !is_shared(memory + 3 * PAGE));
	CHECK_EQUAL(pthread_create(&thread, NULL, add_up, &adders[0]), 0);
	add_up(&adders[1]);
	pthread_join(thread, NULL);
	CHECK_EQUAL(*(uint64_t *)(memory + 64), adders[0].additions + adders[1].additions);
}

/* A message over addresses at which the library's view of them changes. */
static void across_windows(void)
{
	const size_t length = 48u << 10;
	uint8_t *memory = (uint8_t *)(0x200040000000 - length / 2 - 4);
	struct ibv_qp *a, *b;
	struct ibv_mr *mr;
	struct node node;

	CHECK(mmap((void *)(0x200040000000 - BYTES), 2 * BYTES, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED);
	node_open(&node);
	a = node_qp(&node, IBV_QPT_RC, NULL);
	b = node_qp(&node, IBV_QPT_RC, NULL);
	node_connect_pair(&node, a, b, &patient);
	mr = enroll(node.pd, (void *)(0x200040000000 - BYTES), 2 * BYTES);
	CHECK(is_shared(memory));
	for (size_t i = 0; i < length; i++)
		node.buf[i] = (uint8_t)(i * 11 + 3);
	CHECK_EQUAL(node_rdma(&node, a, 1, IBV_WR_RDMA_WRITE, 0, (uint32_t)length,
			      (uintptr_t)memory, mr->rkey),
		    0);
	node_expect(node.cq, 1, IBV_WC_SUCCESS);
	CHECK(!memcmp(memory, node.buf, length));
	CHECK(!memory[-1] && !memory[length]);
}

/* A region of most of a machine: it exists once, but for what is being switched, and is reached to its end. */
#define HUGE_BYTES (16ull << 30)
#define HUGE_ROOM  (18ull << 20) /* KiB that must be available */
#define HUGE_SLACK \
	(256l << 10) /* KiB: chunks, the library's view of what is written, the process */
#define HUGE_STEP (64ull << 20)

static void huge(void)
{
	struct ibv_qp *a, *b;
	struct node node;
	uint64_t available = (uint64_t)kib_in("/proc/meminfo", "MemAvailable"), start, *words;
	struct ibv_mr *mr;
	uint8_t *memory;

	if (available < HUGE_ROOM)
		SKIP("a region of 16 GiB needs 18 GiB of memory, and %llu MiB are available",
		     (unsigned long long)available >> 10);
	node_open(&node);
	a = node_qp(&node, IBV_QPT_RC, NULL);
	b = node_qp(&node, IBV_QPT_RC, NULL);
	node_connect_pair(&node, a, b, &patient);
	memory = get_pages(HUGE_BYTES);
	words = (uint64_t *)memory;
	for (uint64_t i = 0; i < HUGE_BYTES / sizeof(*words); i += PAGE / sizeof(*words))
		words[i] = i + 1;
	start = now_ms();
	mr = enroll(node.pd, memory, HUGE_BYTES);
	printf("registered in %llu ms\n", (unsigned long long)(now_ms() - start));
	CHECK(is_shared(memory) && is_shared(memory + HUGE_BYTES - PAGE));
	for (uint64_t at = HUGE_STEP - NODE_BYTES; at < HUGE_BYTES; at += HUGE_STEP) {
		memset(node.buf, (int)(at / HUGE_STEP), NODE_BYTES);
		CHECK_EQUAL(node_rdma(&node, a, 1, IBV_WR_RDMA_WRITE, 0, NODE_BYTES,
				      (uintptr_t)memory + at, mr->rkey),
			    0);
		node_expect(node.cq, 1, IBV_WC_SUCCESS);
	}
	start = now_ms();
	CHECK_EQUAL(ibv_dereg_mr(mr), 0);
	printf("deregistered in %llu ms\n", (unsigned long long)(now_ms() - start));
	for (uint64_t at = 0; at < HUGE_BYTES; at += PAGE) {
		bool written = at % HUGE_STEP >= HUGE_STEP - NODE_BYTES;

		CHECK(written ? memory[at] == (uint8_t)(at / HUGE_STEP) &&
					memory[at + PAGE - 1] == memory[at] :
				*(uint64_t *)(memory + at) == at / sizeof(*words) + 1);
	}
	printf("most memory at any time: %ld MiB\n", status_of("VmHWM") >> 10);
	CHECK(status_of("VmHWM") < (long)(HUGE_BYTES >> 10) + HUGE_SLACK);
}

/* Everything, over each way. */
static void exchange_over(const char *way)
{
	CHECK_EQUAL(setenv("UROCE_MEMORY", way, 1), 0);
	run_pair(open_and_exchange, open_and_exchange);
}

static void over_mapped_pages(void)
{
	exchange_over("mapped");
}

static void over_cma(void)
{
	exchange_over("cma");
}

static void over_assistance(void)
{
	exchange_over("assist");
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "threads_lose_no_store", storing },
		{ "rounds_leave_nothing", rounds },
		{ "threads_lose_no_store_in_a_million_rounds", storing_long },
		{ "hundred_thousand_rounds_leave_nothing", rounds_long },
		{ "thirty_thousand_scattered_regions", scattered },
		{ "scattered_regions_without_query", scattered_without_query },
		{ "overlapping_regions", overlapping },
		{ "registering_in_threads", registering_in_threads },
		{ "memory_used_afterwards", afterwards },
		{ "memory_changed_meanwhile", meanwhile },
		{ "untouched_pages_stay_so", untouched },
		{ "core_dumps_hold_the_programs_memory", dumped },
		{ "main_thread_has_ended", without_main_thread },
		{ "fork_beside_writers", forking },
		{ "memory_that_is_sealed", sealing },
		{ "vast_regions", vast },
		{ "direct_reads_while_registering", reading_directly },
		{ "direct_reads_while_deregistering", reading_directly_at_the_end },
		{ "buffer_of_io_uring", pinned_by_a_ring },
		{ "buffer_of_io_uring_before", pinned_by_a_ring_before },
		{ "buffer_of_io_uring_and_fork", pinned_and_forked },
		{ "discarded_when_not_registered_any_more", discarding_afterwards },
		{ "lingering_memory_is_unmapped", unmapped_while_lingering },
		{ "without_userfaultfd", without_userfaultfd },
		{ "threads_that_sleep", sleeping },
		{ "threads_that_sleep_without_userfaultfd", sleeping_without_userfaultfd },
		{ "faults_of_the_program_meanwhile", faulting_without_userfaultfd },
		{ "threads_that_sleep_in_calls", sleeping_in_calls },
		{ "threads_that_sleep_on_stacks_there", sleeping_on_stacks },
		{ "threads_that_sleep_without_move", sleeping_without_move },
		{ "overlapping_regions_without_move", overlapping_without_move },
		{ "futexes", futexes },
		{ "shared_futexes", shared_futexes },
		{ "heap_that_churns", churning },
		{ "registering_at_once", at_once },
		{ "atomics_by_overlapping_regions", adding },
		{ "message_across_windows", across_windows },
		{ "region_of_16_gib", huge },
		{ "exchange_over_mapped_pages", over_mapped_pages },
		{ "exchange_over_cma", over_cma },
		{ "exchange_over_assistance", over_assistance },
		{ 0 },
	};

	return run_named_case(argc, argv, cases);
}
