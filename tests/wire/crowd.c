/* SPDX-License-Identifier: MIT */
/*
 * usage: crowd BOARD COUNT SECONDS SEED [pods]        on each host of `uroce lab 2`
 *
 * Directs COUNT processes of this host (crowd_member.c): starts them, asks them to leave, stops and continues them, kills them, and
 * starts others in their place, at random, for so many seconds. In the end all are there and left alone, and each has to hear from
 * each of the other host once more. With `pods` they live in two containers that have the network in common and nothing else. The file
 * BOARD is made by the first that comes.
 */
#include "crowd.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "../faults/node.h"

#define SKIPPED	 77
#define PATIENCE 60000 /* ms for the other host's director to appear */

static struct board *board;
static struct totals *totals;
static unsigned host, count, first, last, directors;
static uint64_t seed;

static struct tenant {
	pid_t pid;			/* 0: none */
	uint64_t start_at, continue_at; /* ms; 0: not stopped */
	bool leaving, killed;
	uint32_t lives;
} tenants[CROWD_MOST];

static uint32_t draw(uint32_t n)
{
	return crowd_draw(&seed, n);
}

static struct place *place_of(unsigned i)
{
	return &board->places[host][i];
}

static void end_all(void)
{
	for (unsigned i = first; i < last; i++) {
		if (tenants[i].pid)
			kill(tenants[i].pid, SIGKILL);
	}
}

static void fault(const char *what, unsigned i)
{
	atomic_store(&board->failed, true);
	fprintf(stderr, "host %u, process %u: %s\n", host + 1, i, what);
	end_all();
	exit(1);
}

static void start(unsigned i)
{
	struct tenant *t = &tenants[i];
	struct place *place = place_of(i);
	struct member member = { board, host, i, count, directors, ++t->lives, seed ^ ((uint64_t)t->lives << 32) ^ i };

	t->killed = t->leaving = false;
	t->continue_at = 0;
	atomic_store(&place->leave, false);
	atomic_store(&place->slots, 0);
	atomic_store(&place->quiet_since, now_ms());
	fflush(NULL);
	t->pid = fork();
	CHECK(t->pid >= 0);
	if (!t->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		atomic_store(&place->life, member.life);
		crowd_member(&member);
	}
	draw(2); /* another seed for the next */
}

/* Those that have ended, as they were to. */
static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (unsigned i = first; i < last; i++) {
			struct tenant *t = &tenants[i];

			if (t->pid != pid)
				continue;
			t->pid = 0;
			t->start_at = now_ms() + draw(1000);
			atomic_store(&place_of(i)->life, 0);
			if (WIFSIGNALED(status) ? !t->killed || WTERMSIG(status) != SIGKILL : !t->leaving || WEXITSTATUS(status)) {
				fprintf(stderr, "status %#x\n", status);
				fault("ended badly", i);
			}
		}
	}
}

static void stop(unsigned i, uint64_t ms)
{
	struct tenant *t = &tenants[i];

	atomic_store(&place_of(i)->quiet_since, UINT64_MAX);
	kill(t->pid, SIGSTOP);
	t->continue_at = now_ms() + ms;
}

static void continue_those_due(bool all)
{
	for (unsigned i = first; i < last; i++) {
		struct tenant *t = &tenants[i];

		if (!t->pid || !t->continue_at || (!all && now_ms() < t->continue_at))
			continue;
		kill(t->pid, SIGCONT);
		atomic_store(&place_of(i)->quiet_since, now_ms());
		t->continue_at = 0;
	}
}

static void start_those_due(bool all)
{
	for (unsigned i = first; i < last; i++) {
		if (!tenants[i].pid && (all || now_ms() >= tenants[i].start_at))
			start(i);
	}
}

/* Something happens to somebody. */
static void disturb(void)
{
	unsigned i = first + draw(last - first), what = draw(100), away = 0;
	struct tenant *t = &tenants[i];

	for (unsigned j = first; j < last; j++)
		away += !tenants[j].pid || tenants[j].continue_at;
	if (!t->pid || t->leaving || away > (last - first) / 2)
		return;
	if (what < 30) {
		/* Nobody is to count on it from now on; in its place it may be stopped, too. */
		atomic_store(&place_of(i)->life, 0);
		t->killed = true;
		t->leaving = true;
		kill(t->pid, SIGKILL);
		atomic_fetch_add(&totals->killed, 1);
	} else if (t->continue_at) {
		return;
	} else if (what < 50) {
		atomic_store(&place_of(i)->life, 0);
		t->leaving = true;
		atomic_store(&place_of(i)->leave, true);
		atomic_fetch_add(&totals->left, 1);
	} else if (what < 90) {
		stop(i, 20 + draw(400));
		atomic_fetch_add(&totals->stopped, 1);
	} else {
		stop(i, 3000 + draw(3000));
		atomic_fetch_add(&totals->stopped_long, 1);
	}
}

static void attend(void)
{
	if (atomic_load(&board->failed))
		fault("another has failed", first);
	reap();
	usleep(5000);
}

static void wait_for_directors(_Atomic uint32_t *word, uint64_t patience, const char *what)
{
	uint64_t until = now_ms() + patience;

	atomic_fetch_add(word, 1);
	while (atomic_load(word) < directors) {
		attend();
		if (now_ms() > until)
			fault(what, first);
	}
}

static bool all_content(void)
{
	for (unsigned i = first; i < last; i++) {
		if (!tenants[i].pid || atomic_load(&place_of(i)->content) != tenants[i].lives)
			return false;
	}
	return true;
}

static void settle(void)
{
	uint64_t until = now_ms() + 20000;

	/* Those that were asked to leave do so first. */
	continue_those_due(true);
	for (bool any = true; any && now_ms() < until;) {
		attend();
		any = false;
		for (unsigned i = first; i < last; i++)
			any |= tenants[i].pid && tenants[i].leaving;
	}
	start_those_due(true);
	wait_for_directors(&board->quiet, PATIENCE, "the other host does not become quiet");
	until = now_ms() + 2 * crowd_bound(count);
	while (!all_content()) {
		attend();
		if (now_ms() > until)
			fault("not all hear from all in the end", first);
	}
	wait_for_directors(&board->content, 2 * crowd_bound(count), "not all of the other host hear from all in the end");
}

static void let_all_leave(void)
{
	uint64_t until = now_ms() + 20000;
	bool any = true;

	for (unsigned i = first; i < last; i++) {
		tenants[i].leaving = true;
		atomic_store(&place_of(i)->life, 0);
		atomic_store(&place_of(i)->leave, true);
	}
	while (any) {
		attend();
		any = false;
		for (unsigned i = first; i < last; i++) {
			any |= tenants[i].pid;
			if (tenants[i].pid && now_ms() > until)
				fault("does not leave", i);
		}
	}
}

static void direct(unsigned seconds)
{
	uint64_t end, next = 0;

	wait_for_directors(&board->joined, PATIENCE, "the other host does not begin");
	end = now_ms() + 1000ull * seconds;
	start_those_due(true);
	while (now_ms() < end) {
		attend();
		continue_those_due(false);
		start_those_due(false);
		if (now_ms() < next)
			continue;
		if (next)
			disturb();
		next = now_ms() + 20 + draw(230);
	}
	settle();
	let_all_leave();
}

static void report(void)
{
	printf("%llu messages (%llu MiB, %llu behind a WRITE) by %llu connections, %llu of %llu datagrams; %llu killed, %llu left, "
	       "%llu + %llu stopped; %llu connections ended with the peer, %llu without that; worst silence %llu ms\n",
	       (unsigned long long)totals->messages, (unsigned long long)totals->bytes >> 20, (unsigned long long)totals->written,
	       (unsigned long long)totals->connections / 2, (unsigned long long)totals->datagrams,
	       (unsigned long long)totals->datagrams_sent, (unsigned long long)totals->killed, (unsigned long long)totals->left,
	       (unsigned long long)totals->stopped, (unsigned long long)totals->stopped_long, (unsigned long long)totals->ended,
	       (unsigned long long)totals->given_up, (unsigned long long)totals->worst);
}

static void map_board(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK_EQUAL(ftruncate(fd, sizeof(*board)), 0);
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(board != MAP_FAILED);
	close(fd);
	totals = &board->totals;
}

static void write_file(const char *path, const char *format, unsigned id)
{
	char text[32];
	int fd = open(path, O_WRONLY | O_CLOEXEC), n = snprintf(text, sizeof(text), format, id);

	if (fd < 0 || write(fd, text, (size_t)n) != n) {
		printf("skipped: %s: %s\n", path, strerror(errno));
		exit(SKIPPED);
	}
	close(fd);
}

/* Users, processes, mounts and IPC of its own, and nothing in /dev/shm; goes on in its first process. */
static void enter_container(void)
{
	unsigned uid = geteuid(), gid = getegid();
	int status;
	pid_t child;

	if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC)) {
		printf("skipped: no namespaces: %s\n", strerror(errno));
		exit(SKIPPED);
	}
	write_file("/proc/self/setgroups", "deny", 0);
	write_file("/proc/self/uid_map", "0 %u 1", uid);
	write_file("/proc/self/gid_map", "0 %u 1", gid);
	child = fork();
	CHECK(child >= 0);
	if (child) {
		CHECK_EQUAL(waitpid(child, &status, 0), child);
		exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("shm", "/dev/shm", "tmpfs", 0, "size=16m") ||
	    mount("proc", "/proc", "proc", 0, NULL)) {
		printf("skipped: a container's file systems cannot be mounted: %s\n", strerror(errno));
		exit(SKIPPED);
	}
	setenv("HOME", "/nonexistent", 1);
	unsetenv("UROCE_RUNTIME_DIR");
	unsetenv("XDG_RUNTIME_DIR");
}

static void direct_in_pods(unsigned seconds)
{
	pid_t pods[2];
	int status, worst = 0;

	directors *= 2;
	for (unsigned i = 0; i < 2; i++) {
		fflush(NULL);
		pods[i] = fork();
		CHECK(pods[i] >= 0);
		if (!pods[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			enter_container();
			first = i ? count / 2 : 0;
			last = i ? count : count / 2;
			seed += i;
			direct(seconds);
			exit(0);
		}
	}
	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQUAL(waitpid(pods[i], &status, 0), pods[i]);
		status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		worst = status > worst ? status : worst;
	}
	if (worst)
		exit(worst);
}

int main(int argc, char **argv)
{
	const char *number = getenv("UROCE_LAB_HOST");

	if ((argc != 5 && argc != 6) || !number) {
		fprintf(stderr, "usage: crowd BOARD COUNT SECONDS SEED [pods]\n");
		return 2;
	}
	host = (unsigned)atoi(number) - 1;
	count = (unsigned)atoi(argv[2]);
	CHECK(host < CROWD_HOSTS && count >= 2 && count <= CROWD_MOST);
	last = count;
	directors = CROWD_HOSTS;
	seed = strtoull(argv[4], NULL, 10) * 0x9e3779b97f4a7c15ull + host + 1;
	map_board(argv[1]);
	if (argc == 6)
		direct_in_pods((unsigned)atoi(argv[3]));
	else
		direct((unsigned)atoi(argv[3]));
	if (!host)
		report();
	return 0;
}
