/* SPDX-License-Identifier: MIT */
/*
 * Crash points: the steps of the shared protocols after which a process may die or be stopped. In
 * an ordinary build they are nothing. With UROCE_CRASH_POINTS (the library of
 * tests/faults/points.c) the process kills or stops itself at the one that UROCE_CRASH=NAME[:COUNT]
 * names, when it comes there for the COUNT-th time; UROCE_CRASH_BY=stop stops it instead.
 */
#ifndef UROCE_NIC_CRASH_H
#define UROCE_NIC_CRASH_H

#ifdef UROCE_CRASH_POINTS

enum crash_point {
#define CRASH_POINT(name) CRASH_##name,
#include "nic/crash_points.h"
#undef CRASH_POINT
	CRASH_POINTS
};

void crash_at(enum crash_point point);

#define crash_point(name) crash_at(CRASH_##name)

#else
#define crash_point(name) ((void)0)
#endif

#endif
