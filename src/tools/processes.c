/* SPDX-License-Identifier: MIT */
#include "tools/processes.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nic/abstract_name.h"

#define LISTENING 0x10000u /* __SO_ACCEPTCON in the flags of /proc/net/unix */

/* The kernel noted who listens when they began to: connecting and asking for that needs nothing of the other side.
 * Where its queue of connections is full, as a long stopped process's can be, nothing is known. */
static void ask_owner(struct claim *claim)
{
	struct sockaddr_un address;
	socklen_t length = abstract_name(&address, "uroce/%u", claim->slot);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct ucred owner;
	socklen_t size = sizeof(owner);

	claim->pid = 0;
	claim->uid = (uid_t)-1;
	if (fd < 0)
		return;
	if (!connect(fd, (struct sockaddr *)&address, length) &&
	    !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &size)) {
		claim->pid = owner.pid;
		claim->uid = owner.uid;
	}
	close(fd);
}

/* The sockets of one process that are claims of unknown owners; returns how many these were. */
static int look_into(const char *pid, struct claim *claims, int count)
{
	char path[300], target[64];
	struct dirent *entry;
	struct stat stat;
	int found = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		ssize_t length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
		unsigned long inode;

		target[length < 0 ? 0 : length] = '\0';
		if (sscanf(target, "socket:[%lu]", &inode) != 1)
			continue;
		for (int i = 0; i < count; i++) {
			if (claims[i].pid || claims[i].inode != inode || fstat(dirfd(dir), &stat))
				continue;
			claims[i].pid = (pid_t)atoi(pid);
			claims[i].uid = stat.st_uid;
			found++;
		}
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Those whose descriptors we may see are found without their doing anything; the others are asked. */
static void find_owners(struct claim *claims, int count)
{
	struct dirent *entry;
	int unknown = 0;
	DIR *proc;

	for (int i = 0; i < count; i++)
		unknown += !claims[i].pid;
	proc = unknown ? opendir("/proc") : NULL;
	while (proc && unknown && (entry = readdir(proc))) {
		if (*entry->d_name >= '1' && *entry->d_name <= '9')
			unknown -= look_into(entry->d_name, claims, count);
	}
	if (proc)
		closedir(proc);
	for (int i = 0; i < count && unknown; i++) {
		if (!claims[i].pid)
			ask_owner(&claims[i]);
	}
}

static const struct claim *known(const struct claim *claims, int count, const struct claim *claim)
{
	for (int i = 0; i < count; i++) {
		if (claims[i].slot == claim->slot && claims[i].inode == claim->inode && claims[i].pid)
			return &claims[i];
	}
	return NULL;
}

int processes_refresh(struct claim claims[SLOT_COUNT], int count)
{
	unsigned long inodes[SLOT_COUNT] = { 0 };
	struct claim before[SLOT_COUNT];
	FILE *sockets = fopen("/proc/net/unix", "re");
	char *line = NULL;
	size_t size = 0;
	int found = 0;

	if (!sockets)
		return -1;
	while (getline(&line, &size, sockets) > 0) {
		unsigned flags, slot;
		unsigned long inode;
		char end;

		if (sscanf(line, "%*s %*s %*s %x %*s %*s %lu @uroce/%u%c", &flags, &inode, &slot, &end) == 4 && end == '\n' &&
		    (flags & LISTENING) && slot < SLOT_COUNT)
			inodes[slot] = inode;
	}
	free(line);
	fclose(sockets);

	memcpy(before, claims, sizeof(*claims) * (size_t)count);
	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		struct claim *claim = &claims[found];
		const struct claim *same;

		if (!inodes[slot])
			continue;
		claim->slot = slot;
		claim->inode = inodes[slot];
		same = known(before, count, claim);
		claim->pid = 0;
		claim->uid = (uid_t)-1;
		if (same)
			*claim = *same;
		found++;
	}
	find_owners(claims, found);
	return found;
}

int processes_claims(struct claim claims[SLOT_COUNT])
{
	return processes_refresh(claims, 0);
}

static FILE *open_proc(pid_t pid, const char *file)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	return pid ? fopen(path, "re") : NULL;
}

char *process_command(pid_t pid)
{
	FILE *file = open_proc(pid, "comm");
	char *name = NULL;
	size_t size = 0;

	if (!file)
		return NULL;
	if (getline(&name, &size, file) > 0) {
		name[strcspn(name, "\n")] = '\0';
	} else {
		free(name);
		name = NULL;
	}
	fclose(file);
	return name;
}

char process_state(pid_t pid)
{
	FILE *file = open_proc(pid, "stat");
	char line[256] = "";
	char *end;
	char state = '?';

	if (!file)
		return state;
	/* The name stands in parentheses and may hold some itself. */
	if (fgets(line, sizeof(line), file) && (end = strrchr(line, ')')))
		sscanf(end + 1, " %c", &state);
	fclose(file);
	return state;
}
