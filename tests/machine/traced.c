/* SPDX-License-Identifier: MIT */
/* Two processes that exchange one message of each kind: small enough for any tool to run it (programs.sh). */
#include "cases.h"

#include <sys/wait.h>

int main(void)
{
	int line[2], status = 1;
	pid_t child;

	make_line(line);
	child = fork();
	CHECK(child >= 0);
	open_and_exchange(line[!child]);
	if (!child)
		return 0;
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
