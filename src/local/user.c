/* SPDX-License-Identifier: MIT */
/* Users. See user.h. */
#include "local/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATUS_BYTES 4096

struct ids {
	uid_t real, effective, saved;
};

/* Whether /proc numbers processes as this process does. */
static bool has_our_proc(void)
{
	char self[16] = "";

	return readlink("/proc/self", self, sizeof(self) - 1) > 0 && atoi(self) == getpid();
}

/* A process's users now. EAGAIN: that is not to be seen here; else errno. */
static int read_ids(pid_t pid, struct ids *ids)
{
	char path[32], text[STATUS_BYTES] = "";
	const char *line;
	ssize_t length;
	int fd;

	if (pid <= 0 || !has_our_proc())
		return EAGAIN;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == EMFILE || errno == ENFILE ? errno : EAGAIN;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	line = length > 0 ? strstr(text, "\nUid:") : NULL;
	return line && sscanf(line, " Uid: %u %u %u", &ids->real, &ids->effective, &ids->saved) == 3 ? 0 : EAGAIN;
}

/* A segment's file belongs to who was its process's user when it made it. */
static bool opened_by(int segment, uid_t *user)
{
	struct stat st;

	if (fstat(segment, &st))
		return false;
	*user = st.st_uid;
	return true;
}

enum cause_code user_check(int connection, bool accepted, int ours, int theirs, struct ucred *cred)
{
	socklen_t length = sizeof(*cred);
	uid_t opened, they_opened;
	struct ids self, peer;
	int error;

	if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, cred, &length) || !opened_by(ours, &opened))
		return CAUSE_ATTACH_FAILED;
	if (theirs < 0)
		they_opened = cred->uid;
	else if (!opened_by(theirs, &they_opened))
		return CAUSE_ATTACH_FAILED;
	if (they_opened != opened)
		return CAUSE_PEER_OTHER_USER;
	error = read_ids(cred->pid, &peer);
	if (error == EMFILE || error == ENFILE)
		return CAUSE_NO_DESCRIPTORS;
	if (!error && !getresuid(&self.real, &self.effective, &self.saved))
		return peer.real == self.real && peer.effective == self.effective && peer.saved == self.saved ?
			       CAUSE_NONE :
			       CAUSE_PEER_OTHER_USER;
	/* In another PID namespace. Who connected says who he was then; of who listens no more is known than when he began to. */
	return !accepted || cred->uid == geteuid() ? CAUSE_NONE : CAUSE_PEER_OTHER_USER;
}

bool user_sent(struct msghdr *message, uid_t *user)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		struct ucred who;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
			continue;
		memcpy(&who, CMSG_DATA(c), sizeof(who));
		*user = who.uid;
		return true;
	}
	return false;
}
