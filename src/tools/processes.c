/* SPDX-License-Identifier: MIT */
#include "tools/processes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTENING 0x10000u /* __SO_ACCEPTCON in the flags of /proc/net/unix */

/* The kernel noted who listens when they began to: connecting and asking for that needs nothing of the other side.
 * Where its queue of connections is full, as a long stopped process's can be, nothing is known. */
static void ask_owner(struct claim *claim)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "uroce/%u",
			      claim->slot);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct ucred owner;
	socklen_t size = sizeof(owner);

	claim->pid = 0;
	claim->uid = (uid_t)-1;
	if (fd < 0)
		return;
	if (!connect(fd, (struct sockaddr *)&address,
		     offsetof(struct sockaddr_un, sun_path) + 1 + length) &&
	    !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &size)) {
		claim->pid = owner.pid;
		claim->uid = owner.uid;
	}
	close(fd);
}

int processes_claims(struct claim claims[SLOT_COUNT])
{
	bool claimed[SLOT_COUNT] = { false };
	FILE *sockets = fopen("/proc/net/unix", "re");
	char *line = NULL;
	size_t size = 0;
	int count = 0;

	if (!sockets)
		return -1;
	while (getline(&line, &size, sockets) > 0) {
		unsigned flags, slot;
		char end;

		if (sscanf(line, "%*s %*s %*s %x %*s %*s %*s @uroce/%u%c", &flags, &slot, &end) ==
			    3 &&
		    end == '\n' && (flags & LISTENING) && slot < SLOT_COUNT)
			claimed[slot] = true;
	}
	free(line);
	fclose(sockets);

	for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
		if (!claimed[slot])
			continue;
		claims[count].slot = slot;
		ask_owner(&claims[count++]);
	}
	return count;
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
