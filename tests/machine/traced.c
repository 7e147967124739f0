/* SPDX-License-Identifier: MIT */
/* Two processes that exchange one message of each kind: small enough for any tool to run it (programs.sh). */
#include "cases.h"

#include <sys/wait.h>

int main(int argc, char **argv __attribute__((unused)))
{
	static struct node left;
	int line[2], status = 1;
	pid_t child;

	make_line(line);
	child = fork();
	CHECK(child >= 0);
	open_and_exchange(line[!child]);
	if (!child)
		return 0;
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	/* A program may end with its device open. */
	if (argc > 1)
		node_open(&left);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
