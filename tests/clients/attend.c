/* SPDX-License-Identifier: MIT */
/*
 * usage: attend SECONDS COMMAND...
 *
 * Runs a command, which is killed after SECONDS, and ends with its status: 128 + N after signal N, 124 when its time was
 * up. If it failed, the causes that it left are printed after its own output. A process takes its segment with it when it
 * ends, so whoever wants to know why has to hold the segment before.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nic/layout.h"

#define LOOK_EVERY  2 /* ms: for the segment, which is made when the program opens the device */
#define LINES	    20
#define STATUS_TIME 124

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

/* A file of that name may be another one, or still be empty, or not filled in: only a segment begins as one. */
static const struct nic_segment *map_segment(const char *path)
{
	struct nic_segment *seg = MAP_FAILED;
	struct stat stat;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return NULL;
	if (!fstat(fd, &stat) && stat.st_size >= (off_t)sizeof(*seg))
		seg = mmap(NULL, sizeof(*seg), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (seg == MAP_FAILED)
		return NULL;
	if (seg->hdr.magic == NIC_MAGIC && seg->hdr.version == NIC_LAYOUT_VERSION)
		return seg;
	munmap(seg, sizeof(*seg));
	return NULL;
}

/* The process's own segment: those of its peers come later, and with higher descriptors. */
static const struct nic_segment *find_segment(pid_t pid)
{
	const struct nic_segment *seg = NULL;
	struct dirent *entry;
	char path[64], target[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	while (dir && !seg && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", pid, entry->d_name);

		ssize_t length = readlink(path, target, sizeof(target) - 1);

		target[length < 0 ? 0 : length] = 0;
		if (!strncmp(target, "/memfd:uroce ", 13))
			seg = map_segment(path);
	}
	if (dir)
		closedir(dir);
	return seg;
}

static void print_causes(const struct nic_segment *seg)
{
	const struct cause_ring *ring = &seg->causes;
	uint64_t next = atomic_load(&ring->next);

	for (uint64_t position = next > LINES ? next - LINES : 0; position < next; position++) {
		const struct cause *cause = &ring->slots[position % NIC_CAUSES];

		fprintf(stderr,
			"cause %u: %s; error %d, qpn 0x%x, peer 0x%x, wr_id %#llx, opcode %#x, state %u, limit %llu, value %llu, "
			"count %llu\n",
			cause->code, cause_text(cause->code), cause->error, cause->qpn,
			cause->peer_qpn, (unsigned long long)cause->wr_id, cause->opcode,
			cause->state, (unsigned long long)cause->limit,
			(unsigned long long)cause->value, (unsigned long long)cause->count);
	}
}

static int status_of(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	const struct nic_segment *seg = NULL;
	int64_t until = now() + (argc > 2 ? atoll(argv[1]) : 0) * 1000;
	bool late = false;
	pid_t pid;
	int status;

	if (argc < 3) {
		fprintf(stderr, "usage: attend SECONDS COMMAND...\n");
		return 2;
	}
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execvp(argv[2], argv + 2);
		fprintf(stderr, "attend: %s: %s\n", argv[2], strerror(errno));
		_exit(127);
	}

	struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };

	while (!late) {
		int64_t left = until - now();

		if (poll(&end, 1,
			 left < 0		   ? 0 :
			 !seg && left > LOOK_EVERY ? LOOK_EVERY :
						     (int)left) > 0)
			break;
		late = left <= 0;
		if (!seg)
			seg = find_segment(pid);
	}
	if (late)
		kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	if (seg && (late || status))
		print_causes(seg);
	return late ? STATUS_TIME : status_of(status);
}
