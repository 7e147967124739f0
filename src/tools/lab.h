/* SPDX-License-Identifier: MIT */
/*
 * uroce lab: hosts made of namespaces, the links between them, and a command in each.
 *
 * The processes:
 *	uroce lab	what the user started: waits, and passes signals on (lab.c)
 *	  init		process 1 of a PID namespace: makes the hosts, starts and ends the commands, passes on what they
 *			print (lab_hosts.c). When it goes, the kernel ends whatever was started in the lab.
 *	    switch	carries the frames when they meet trouble (lab_switch.c)
 *	    commands	one for each host (lab_namespaces.c makes its surroundings)
 */
#ifndef UROCE_TOOLS_LAB_H
#define UROCE_TOOLS_LAB_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/lab_trouble.h"

enum { LAB_MAX_HOSTS = 100, LAB_FAILED = 125, LAB_DEFAULT_MTU = 1500 };

/* When the next host's command starts. */
enum lab_wait {
	WAIT_DEFAULT, /* all at once if all are the same, else as WAIT_LISTEN, but for a second at most */
	WAIT_LISTEN, /* when something in this host listens on a TCP port, or its command has ended */
	WAIT_TIME,   /* some time after this host's */
};

struct host {
	unsigned number; /* 1 to lab.count */
	char name[16];
	char **command; /* NULL-terminated; part of argv */
	int netns;
	int tap;    /* -1 without the switch */
	int tcp[2]; /* its tables of TCP sockets, IPv4 and IPv6; -1 where there is no IPv6 */
	int local;  /* its table of unix sockets, among which are the ports of rdma_cm (cm/name.c) */
	int counts; /* its interfaces' counts */
};

struct lab {
	const char *name; /* "uroce lab" */
	struct host *hosts;
	unsigned count;
	unsigned mtu;
	unsigned services; /* the commands of the first so many hosts need not end */
	unsigned input;	   /* the host that has our standard input; 0: none */
	bool raw;	   /* commands have our output, and not a pipe */
	bool different;	   /* not all commands are the same */
	enum lab_wait wait;
	uint64_t wait_ns;
	struct trouble trouble;

	bool unprivileged; /* in a user namespace of our own */
	bool switched;	   /* the hosts are joined by our switch, else by a bridge */
	sigset_t mask;	   /* as the commands are to have it */
	int alive;	   /* a pipe that hangs up when the user's process has gone */
};

/* lab_namespaces.c. These return -1 or false after one line on stderr. */

/* In the user's process: forks init, in a PID namespace of its own; both are in a user namespace if an ordinary user needs
 * one. */
pid_t namespaces_fork(struct lab *lab);

/* In init. */
bool namespaces_enter(const struct lab *lab);

/* In a process that is to become a command. */
bool namespaces_enter_host(const struct lab *lab, const struct host *host);

/* lab_network.c. In init: makes the hosts' network namespaces and links, addresses included, and sets lab->switched. */
bool network_make(struct lab *lab);

/* The number of the host with this Ethernet address, 0 if it is none's. */
unsigned network_number_of(const unsigned char *address);

/* How many frames of the host's the switch was too slow for. */
uint64_t network_overruns(const struct host *host);

/* lab_switch.c. What has happened to frames; written by the switch, read by init when the commands have ended. */
struct switch_counts {
	uint64_t carried, lost, duplicated, corrupted, reordered;
	uint64_t overflowed; /* did not fit the queue of --rate */
	uint64_t unkept;     /* there was no memory to keep them for later */
};

/* In a process of its own. Never returns. */
_Noreturn void switch_run(const struct lab *lab, struct switch_counts *counts);

/* lab_output.c. The lines of one of a command's outputs. */
struct output {
	int from;   /* the pipe's end; -1 when it has ended */
	bool error; /* goes to stderr, else to stdout */
	const char *host;
	char *text; /* a line that has begun */
	size_t used, size;
};

/* Passes on what can be read. False when our own output takes no more. */
bool output_pass(struct output *output);

/* lab_hosts.c. Init's whole life; returns the lab's exit status. */
int hosts_run(struct lab *lab);

#endif
