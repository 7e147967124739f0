/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of ours, in a process whose numbers are the program's.
 *
 * The program may have closed its standard ones, and whoever writes to number 2 must not write into a file of ours: what we open
 * and may be written to, or keep, goes above them. Only an rsocket has the lowest number that is free, as a socket has.
 *
 * The program may also close what it did not open, as daemons do, and open files of its own, which get the numbers that we
 * remember. So what we keep is marked, and before anything is done by a number that would harm a file of the program's, or
 * take what is in it (write, send, receive, fallocate, mmap, epoll_ctl, close), the mark is looked at: it is the open file's
 * signal (fcntl(2), F_SETSIG), which is none unless somebody sets it.
 */
#ifndef UROCE_NIC_DESCRIPTOR_H
#define UROCE_NIC_DESCRIPTOR_H

#include <stdbool.h>

/* The same file, close-on-exec, by a number above the standard ones. -1 with errno; -1 stays so. Takes fd over. */
int descriptor_above(int fd);

/* The same, and marks it: for what is kept, and what another process sent of its own. */
int descriptor_keep(int fd);

/* socket(2), kept. Ours are sockets, whatever else that name is made to mean in the process: a preload library that turns a program's
 * sockets into rsockets (librspreload) would turn ours too, and call us from within ourselves. What is done with the descriptor then
 * may go through such a library: it does not know it. */
int descriptor_socket(int domain, int type, int protocol);

/* Where it is: for what has the number that the program expects. */
void descriptor_mark(int fd);

/* Whether a number still is what was kept; errno stays. The mark is the open file's: another one of ours may have it too. */
bool descriptor_is_ours(int fd);

/* The same of one that the program has too (channels, events), and that it may have given another signal. */
bool descriptor_is_shared(int fd);

/* Closes what was kept, if it is still that. */
void descriptor_close(int fd);

#endif
