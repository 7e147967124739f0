/* SPDX-License-Identifier: MIT */
/*
 * Packets on their way out: collected, given their ICRC, and handed to the kernel in as few calls as it takes. Packets of one
 * size, of which the last may be shorter, leave as one UDP_SEGMENT datagram; the IPv4 identification of its segments counts up
 * from 0, which their ICRCs must know.
 */
#ifndef UROCE_ROCE_BURST_H
#define UROCE_ROCE_BURST_H

#include "roce/port.h"

#define BURST_BYTES    (128u << 10)
#define BURST_RUNS     32
#define BURST_SEGMENTS 64     /* of one datagram: UDP_MAX_SEGMENTS of all kernels */
#define BURST_DATAGRAM 65000u /* bytes of one, all headers counted generously */

struct burst_run {
	uint32_t at, bytes;
	uint16_t segment; /* bytes of all packets but the last */
	uint16_t count;
	bool closed; /* the last packet was shorter */
};

struct burst {
	const struct route *route;
	uint32_t qpn; /* whose they are */
	struct burst_buffer *buffer;
	uint32_t used;
	unsigned runs;
	struct burst_run run[BURST_RUNS];
};

/* False without memory. The route must stay until the end. */
bool burst_begin(struct burst *burst, const struct route *route, uint32_t qpn);

/* Where the next packet, of so many bytes from BTH to pad at most, is to be written; NULL when the burst is full: flush it. */
uint8_t *burst_next(struct burst *burst, size_t bytes);

/* The packet of so many bytes is there. */
void burst_add(struct burst *burst, size_t bytes);

/* Sends all. 0, or errno: some were not sent, which is a loss as on the way. */
int burst_flush(struct burst *burst);

/* Flushes, and gives the memory back. */
int burst_end(struct burst *burst);

/* The port is being closed. */
void burst_forget_spares(struct port *port);

#endif
