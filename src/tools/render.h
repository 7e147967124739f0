/* SPDX-License-Identifier: MIT */
/* A snapshot as text: for people, as JSON, and in Prometheus's text format. */
#ifndef UROCE_TOOLS_RENDER_H
#define UROCE_TOOLS_RENDER_H

#include <stdio.h>

#include "tools/snapshot.h"

/* Counters that are 0 are left out of the first only. */
void render_table(FILE *out, const struct snapshot *snapshot);
void render_json(FILE *out, const struct snapshot *snapshot);
void render_prometheus(FILE *out, const struct snapshot *snapshot);

#endif
