/* SPDX-License-Identifier: MIT */
/*
 * What rsockets say to each other, as rdma-core's do (its docs/rsocket; what that leaves open was taken from captures of its
 * programs).
 *
 * Streams: both sides put struct connection_data into the private data of the CM's REQ and REP. Data is written into the receive
 * buffer of the peer by RDMA WRITE with immediate data, which says what happened (struct is none: 3 bits of type, 29 of value).
 * The peer's receive buffer is two halves. A half that is free is announced by writing a struct target into the announcer's peer,
 * whose table has two; the first half is announced in the connection data.
 *
 * Every message takes a receive of the peer's. Data and iomap updates are counted: the count of one's own may not pass the count
 * that the peer allowed last (credits, modulo 2^16). Others are not, but at most CONTROL_SENDS are under way; a peer that has no
 * receive left answers RNR until it polls.
 *
 * Datagrams: header before the data, in UDP datagrams while the peer's QP is not known, later in UD messages.
 */
#ifndef UROCE_RSOCKET_PROTOCOL_H
#define UROCE_RSOCKET_PROTOCOL_H

#include <stdint.h>

enum {
	PROTOCOL_VERSION = 1,
	TARGETS = 2,	   /* halves of a receive buffer */
	CONTROL_SENDS = 4, /* messages without credit that a side may have under way */
	DATA_MOST = 65536, /* bytes in a message */
};

enum message_type {
	MESSAGE_DATA = 0,    /* value: bytes */
	MESSAGE_CREDITS = 4, /* value: the count of messages that may be sent; the target table may have changed */
	MESSAGE_IOMAP = 6,   /* value: index of the entry that changed */
	MESSAGE_CONTROL = 7, /* value: below */
};

enum control {
	CONTROL_DISCONNECT = 0, /* the sender neither sends nor receives any more */
	CONTROL_KEEPALIVE = 1,	/* never seen by the peer: a WRITE of nothing, without immediate data */
	CONTROL_SHUTDOWN = 2,	/* the sender sends no more */
};

#define MESSAGE(type, value)   ((uint32_t)(type) << 29 | (value))
#define MESSAGE_TYPE(message)  ((message) >> 29)
#define MESSAGE_VALUE(message) ((message)&0x1fffffff)

/* In connection data big endian; in tables, which the peer writes, in the byte order of the reader. */
struct target {
	uint64_t address;
	uint32_t key;
	uint32_t length; /* bytes; in connection data of the table: entries */
};

/* An entry of the table of iomapped memory, which follows the table of targets. */
struct iomap {
	uint64_t offset;
	struct target target;
};

enum {
	CONNECTION_BIG_ENDIAN = 1, /* the sender's host is */
	CONNECTION_IOMAP = 2,	   /* iomaps is valid */
};

struct connection_data {
	uint8_t version;
	uint8_t flags;
	uint16_t credits; /* messages; big endian */
	uint8_t reserved[3];
	uint8_t iomaps;	      /* entries of the sender's table of iomaps: iomaps_coded() */
	struct target table;  /* the sender's table of targets */
	struct target buffer; /* the first half of its receive buffer */
};
_Static_assert(sizeof(struct connection_data) == 40, "as on the wire");

/* Entries in 8 bits: up to 128 as they are, above in units of 256, rounded down. */
static inline uint8_t iomaps_coded(uint16_t entries)
{
	return entries <= 128 ? entries : entries >> 8 | 128;
}

static inline uint16_t iomaps_decoded(uint8_t coded)
{
	return coded <= 128 ? coded : (coded & 127) << 8;
}

/* Before the data of a UD message. */
struct datagram_header {
	uint8_t version; /* of IP: 4 or 6 */
	uint8_t length;	 /* of this header: 8 or 24 */
	uint16_t port;	 /* of the sender's UDP socket; big endian, as all here */
	union {
		uint32_t v4;
		struct {
			uint32_t flow;
			uint8_t address[16];
		} v6;
	};
};
enum { DATAGRAM_HEADER_V4 = 8, DATAGRAM_HEADER_V6 = 24 };

/* Before the data of a UDP datagram. */
struct udp_header {
	uint32_t tag; /* UDP_TAG */
	uint8_t version;
	uint8_t type;	/* MESSAGE_DATA; MESSAGE_CONTROL: no data, tells the QP in answer to data */
	uint8_t length; /* of this header: 16 or 28 */
	uint8_t reserved;
	uint32_t qpn;	     /* the sender's, 24 bits */
	uint8_t address[16]; /* the address that the QP is bound to; IPv4: the first 4 bytes */
};
enum { UDP_TAG = 0x55555555, UDP_HEADER_V4 = 16, UDP_HEADER_V6 = 28, UDP_QKEY = 0x01234567 };

#endif
