/* SPDX-License-Identifier: MIT */
/* What mistakes.c and mistakes_cm.c share. */
#ifndef MISTAKES_H
#define MISTAKES_H

#include <stdbool.h>
#include <stdint.h>

/* Ends the program (99) if it is not so. */
void must(bool good, const char *what);
/* Prints a number of the program's own. */
void say(const char *name, uint64_t value);

/* mistakes_wire.c: a device at an IPv4 address of this host, and its answer to the next READ of a queue pair, with so many bytes. */
int stranger_open(uint32_t host, uint16_t port);
void stranger_answers(int fd, uint32_t host, uint16_t port, uint32_t qpn, uint16_t payload);

/* mistakes_cm.c: mistakes in connecting by address. */
void cm_nobody_listens(void);
void cm_rejected(void);
void cm_wrong_order(void);
void cm_port_used(void);
void cm_no_address(void);
void cm_backlog(void);

#endif
