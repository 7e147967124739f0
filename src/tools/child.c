/* SPDX-License-Identifier: MIT */
#include "tools/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/tools.h"

#define LOOK 100 /* ms; without pidfds (before Linux 5.3) */

bool child_start(struct child *child, const char *name, char **argv)
{
	static const int passed[] = { SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGUSR1, SIGUSR2 };
	sigset_t set, old;
	int failure[2], status;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
		sigaddset(&set, passed[i]);
	sigprocmask(SIG_BLOCK, &set, &old);
	child->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	child->pid = child->signals < 0 || pipe2(failure, O_CLOEXEC | O_NONBLOCK) ? -1 : fork();
	if (child->pid < 0) {
		complain(name, "%s", strerror(errno));
		return false;
	}
	if (!child->pid) {
		sigprocmask(SIG_SETMASK, &old, NULL);
		status = run_program(name, argv, false);
		if (write(failure[1], "", 1) != 1)
			status = STATUS_FAILED;
		exit(status);
	}
	close(failure[1]);
	child->failure = failure[0];
	return true;
}

bool child_was_started(const struct child *child)
{
	char byte;

	return read(child->failure, &byte, 1) != 1;
}

/* The terminal sends its own to the whole group. */
static void pass_on(const struct child *child)
{
	struct signalfd_siginfo info;

	if (read(child->signals, &info, sizeof(info)) != sizeof(info))
		return;
	if ((info.ssi_signo == SIGINT || info.ssi_signo == SIGQUIT || info.ssi_signo == SIGHUP) && info.ssi_code == SI_KERNEL)
		return;
	kill(child->pid, (int)info.ssi_signo);
}

int child_attend(struct child *child, int watched, int (*attend)(void *arg), void *arg)
{
	int pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0), status = 0, wait = attend(arg);
	struct pollfd fds[] = { { .fd = watched, .events = POLLIN },
				{ .fd = child->signals, .events = POLLIN },
				{ .fd = pidfd, .events = POLLIN } };

	while (waitpid(child->pid, &status, WNOHANG) != child->pid) {
		if (pidfd < 0 && (wait < 0 || wait > LOOK))
			wait = LOOK;
		if (poll(fds, 3, wait) < 0 && errno != EINTR)
			break;
		wait = attend(arg);
		if (fds[1].revents)
			pass_on(child);
	}
	attend(arg);
	if (pidfd >= 0)
		close(pidfd);
	return status;
}

int child_end_as(int status)
{
	sigset_t one;

	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	prctl(PR_SET_DUMPABLE, 0); /* it has left its core, if any */
	sigemptyset(&one);
	sigaddset(&one, WTERMSIG(status));
	signal(WTERMSIG(status), SIG_DFL);
	fflush(NULL);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	raise(WTERMSIG(status));
	return 128 + WTERMSIG(status);
}
