/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the machine share: programs made of named cases, of which a run does one, and pairs of processes that
 * either exchange messages of every kind or find out that they cannot.
 *
 * A case passes by returning, fails by CHECK of tests/faults/node.h, and where this machine cannot make its condition it
 * says why and is skipped.
 */
#ifndef TESTS_MACHINE_CASES_H
#define TESTS_MACHINE_CASES_H

#include <errno.h>

#include "../faults/node.h"

struct test_case {
	const char *name;
	void (*run)(void);
};

/* Runs the case that the first argument names; without one, prints the names. The last of cases has no name. */
int run_named_case(int argc, char **argv, const struct test_case *cases);

/* Ends the program with CTest's SKIP_RETURN_CODE; in an actor too, see run_pair. */
#define SKIPPED	  77
#define SKIP(...) skip_case(__VA_ARGS__)
void skip_case(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Root of a user namespace of its own, for this process and its actors, from here on; skips where that is refused. */
void enter_user_namespace(void);
/* The same, for those who are not root already. */
void become_root(void);
/* Of a new network namespace, where it is down. */
void raise_loopback(void);

/* Two processes and a line between them. None has opened the device when it begins. */
typedef void side_main(int line);
/* Waits for both: fails when one failed, is skipped when one was skipped. */
void run_pair(side_main *first, side_main *second);
/* Ends of the line between the sides, for cases that start their actors themselves. */
void make_line(int line[2]);
/* The status of an actor that must have passed or been skipped. */
void end_well(struct actor *actor);

/* A connection patient enough for loaded machines and slow tools, and one that gives up soon. */
extern const struct link_attr patient, hasty;

/* Both ends call it: each connects a QP, then SEND, WRITE, READ and FETCH_ADD go in both directions, all bytes compared. */
void exchange(struct node *node, int line);
/* Opens the device, exchanges, closes. */
void open_and_exchange(int line);

/* Tries to send to the QP at the other end of the line, which is told whether that worked: the status and vendor_err. */
struct outcome {
	enum ibv_wc_status status;
	uint32_t cause;
};
struct outcome try_to_send(struct node *node, int line);
/* The other end of a try: offers a QP with a receive posted, until the sender has finished. */
void be_tried(struct node *node, int line);

/* Opens the first device; NULL with the errno of what failed. */
struct ibv_context *open_device(void);

#endif
