/* SPDX-License-Identifier: MIT */
/*
 * UROCE_EXPLAIN: the causes of this process, told to people as they happen or at the end, and kept for them.
 *
 *	stderr	a paragraph for each cause when it happens
 *	FILE	the same, appended to it
 *	line	one line on stderr when the process ends, if anything failed (what uroce run sets)
 *	off	nothing
 *
 * The same cause of the same queue pair is told once and counted, and flushes are counted under the last cause of their queue
 * pair, or that of the CQ that took it down; the sums are told at the end. The end is exit(), or return from main: who is killed,
 * aborts or calls _exit has none.
 *
 * Nothing here may disturb the program. What cannot be written at once is not written; signals that writing brings are taken
 * back; descriptors that the program has closed and reused are left alone; a forked child starts with nothing told.
 */
#ifndef UROCE_OBSERVE_REPORT_H
#define UROCE_OBSERVE_REPORT_H

#include <stdbool.h>
#include <stdint.h>

enum report_way { REPORT_OFF, REPORT_LINE, REPORT_STDERR, REPORT_FILE };

/* What a value of UROCE_EXPLAIN means; NULL: off. False with errno if it is a file that cannot be appended to, or "". */
bool report_parse(const char *setting, enum report_way *way);

/* From now on. catalogues: of translations; kept: a directory of the user's for causes that outlive the process (kept.h), or NULL.
 * Later calls change nothing. */
void report_start(const char *setting, const char *catalogues, const char *kept);

/* Whether causes are told as they happen. */
bool report_tells(void);

/* A completion with IBV_WC_WR_FLUSH_ERR, which comes of a cause of this code (CAUSE_NONE: the newest) of this object. */
void report_flush(uint32_t code, uint32_t object);

#endif
