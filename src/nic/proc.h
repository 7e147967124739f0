/* SPDX-License-Identifier: MIT */
/* What the system says of itself in files of one line (proc(5), cgroups). */
#ifndef UROCE_NIC_PROC_H
#define UROCE_NIC_PROC_H

/* The numbers that a file begins with, at most two; how many there are, 0 also when it cannot be read. Others stay as they are. */
int proc_numbers(const char *path, unsigned long numbers[2]);

#endif
