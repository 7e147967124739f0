/* SPDX-License-Identifier: MIT */
/*
 * Who uses the device on this host: each claimed slot is a listening abstract unix socket named "uroce/SLOT", visible
 * across users and containers that share the network namespace.
 */
#ifndef UROCE_TOOLS_PROCESSES_H
#define UROCE_TOOLS_PROCESSES_H

#include <sys/types.h>

#define SLOT_COUNT 1024 /* slot 0 is never claimed */

struct claim {
	unsigned slot;
	unsigned long inode; /* of its socket */
	pid_t pid;	     /* 0 if it lives in a PID namespace that we cannot see, or did not answer */
	uid_t uid;	     /* (uid_t)-1 if it did not answer */
};

/* Fills in the claims in the order of their slots and returns how many there are, or -1 with errno. Never waits: the
 * kernel answers for a process, which may be stopped. One of another user is connected to for that. */
int processes_claims(struct claim claims[SLOT_COUNT]);

/* The same where `count` claims are known from before: only those that are new are looked for. */
int processes_refresh(struct claim claims[SLOT_COUNT], int count);

/* The command's name, malloc'ed; NULL if it is not ours to see. */
char *process_command(pid_t pid);

/* The letter of its state as proc(5) has it, T for stopped; '?' if it is not ours to see. */
char process_state(pid_t pid);

#endif
