/* SPDX-License-Identifier: MIT */
/*
 * usage: limits ROUNDS CPU CPU
 *
 * What the machine itself gives, one figure a line ("NAME VALUE"): GB/s of memcpy from one buffer to another at the sizes
 * of the bandwidth tests; and one way, in microseconds, of a cache line that two processors write in turn, and of a byte
 * that two processes pass through pipes, each sleeping until it comes.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Bytes that memcpy moves for each of the rounds asked for. */
#define COPY_PER_ROUND (64u << 10)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		perror("limits: sched_setaffinity");
}

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void copy(size_t size, long rounds)
{
	char *from = aligned_alloc(4096, size), *to = aligned_alloc(4096, size);
	long n = (long)((double)rounds * COPY_PER_ROUND / (double)size) + 1;

	if (!from || !to)
		exit(1);
	memset(from, 1, size);
	memset(to, 2, size);

	double start = now();

	for (long i = 0; i < n; i++) {
		memcpy(to, from, size);
		/* Nobody looks at it, but the compiler may not know. */
		__asm__ volatile("" ::"r"(to) : "memory");
	}
	printf("memcpy_%zu %.3f\n", size, (double)size * (double)n / (now() - start) / 1e9);
	free(from);
	free(to);
}

static void line(long rounds, const int *cpus)
{
	struct {
		_Alignas(4096) _Atomic long there;
		_Alignas(4096) _Atomic long back;
	} *lines = mmap(NULL, sizeof(*lines), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);

	if (lines == MAP_FAILED)
		exit(1);
	fflush(stdout);

	pid_t child = fork();

	pin(cpus[child ? 1 : 0]);
	if (!child) {
		for (long i = 1; i <= rounds; i++) {
			while (atomic_load_explicit(&lines->there, memory_order_acquire) != i)
				relax();
			atomic_store_explicit(&lines->back, i, memory_order_release);
		}
		_exit(0);
	}

	double start = now();

	for (long i = 1; i <= rounds; i++) {
		atomic_store_explicit(&lines->there, i, memory_order_release);
		while (atomic_load_explicit(&lines->back, memory_order_acquire) != i)
			relax();
	}
	printf("line %.4f\n", (now() - start) / (double)rounds / 2 * 1e6);
	waitpid(child, NULL, 0);
}

static void pass(int from, int to)
{
	char byte;

	if (read(from, &byte, 1) != 1 || write(to, &byte, 1) != 1)
		_exit(1);
}

static void pipes(long rounds, const int *cpus)
{
	int there[2], back[2];

	if (pipe(there) || pipe(back))
		exit(1);
	fflush(stdout);

	pid_t child = fork();

	pin(cpus[child ? 1 : 0]);
	if (!child) {
		for (long i = 0; i < rounds; i++)
			pass(there[0], back[1]);
		_exit(0);
	}

	double start = now();

	if (write(there[1], "", 1) != 1)
		exit(1);
	for (long i = 1; i < rounds; i++)
		pass(back[0], there[1]);
	printf("pipe %.3f\n", (now() - start) / (double)rounds / 2 * 1e6);
	waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: limits ROUNDS CPU CPU\n");
		return 2;
	}

	long rounds = atol(argv[1]);
	int cpus[2] = { atoi(argv[2]), atoi(argv[3]) };

	pin(cpus[1]);
	copy(64u << 10, rounds);
	copy(1u << 20, rounds);
	line(rounds, cpus);
	pipes(rounds / 10, cpus);
	return 0;
}
