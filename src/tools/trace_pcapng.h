/* SPDX-License-Identifier: MIT */
/*
 * A pcapng file (IETF draft-ietf-opsawg-pcapng), as much of it as is written here: one section of Ethernet interfaces with times in
 * ns, and enhanced packet blocks with comments.
 */
#ifndef UROCE_TOOLS_TRACE_PCAPNG_H
#define UROCE_TOOLS_TRACE_PCAPNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum pcapng_direction { PCAPNG_INBOUND = 1, PCAPNG_OUTBOUND = 2 };

struct pcapng_packet {
	uint32_t interface; /* in the order in which they were written, from 0 */
	uint64_t time;	    /* ns since 1970 */
	enum pcapng_direction direction;
	const uint8_t *bytes;
	uint32_t kept, length; /* bytes that there are, and that it had */
	const char *comment;   /* UTF-8; NULL: none */
};

/* What was not written the stream knows. */
void pcapng_begin(FILE *out, const char *application);
void pcapng_interface(FILE *out, const char *name, const char *description);
void pcapng_packet(FILE *out, const struct pcapng_packet *packet);

#endif
