/* SPDX-License-Identifier: MIT */
/* CM MADs as bytes. See mad.h. */
#include "cm/mad.h"

#include <stddef.h>
#include <string.h>

#include "nic/gid.h"

#define BASE_VERSION  1
#define CM_CLASS      7
#define CLASS_VERSION 2
#define METHOD_SEND   3

/* A field: bits from the most significant of byte `byte` + `bit`, in a member of `bytes` bytes. 0 bits: as bytes. */
struct field {
	uint16_t byte, bits;
	uint8_t bit;
	uint8_t bytes;
	uint16_t at;
};

#define MEMBER_BYTES(member)	  sizeof(((struct mad *)0)->member)
#define BITS(byte, bit, n, where) { byte, n, bit, MEMBER_BYTES(where), offsetof(struct mad, where) }
#define BYTES(byte, where)	  { byte, 0, 0, MEMBER_BYTES(where), offsetof(struct mad, where) }
#define DATA			  24 /* bytes of the MAD's header */
#define FIELD(byte, bit, n, where) BITS(DATA + (byte), bit, n, where)
#define RAW(byte, where)	   BYTES(DATA + (byte), where)
#define PATH(byte, path)                                                                                                     \
	FIELD(byte, 0, 16, path.local_lid), FIELD((byte) + 2, 0, 16, path.remote_lid), RAW((byte) + 4, path.local_gid),      \
		RAW((byte) + 20, path.remote_gid), FIELD((byte) + 36, 0, 20, path.flow_label),                               \
		FIELD((byte) + 39, 2, 6, path.rate), FIELD((byte) + 40, 0, 8, path.traffic_class),                           \
		FIELD((byte) + 41, 0, 8, path.hop_limit), FIELD((byte) + 42, 0, 4, path.sl),                                 \
		FIELD((byte) + 42, 4, 1, path.subnet_local), FIELD((byte) + 43, 0, 5, path.ack_timeout)

static const struct field header[] = {
	BITS(4, 0, 16, status),
	BITS(8, 0, 64, tid),
	BITS(16, 0, 16, attribute),
	BITS(20, 0, 32, modifier),
};

/* Table 106 */
static const struct field req[] = {
	FIELD(0, 0, 32, local_id),
	FIELD(5, 0, 24, req.vendor_id),
	FIELD(8, 0, 64, req.service_id),
	FIELD(16, 0, 64, req.ca_guid),
	FIELD(28, 0, 32, req.qkey),
	FIELD(32, 0, 24, req.qpn),
	FIELD(35, 0, 8, req.responder_resources),
	FIELD(36, 0, 24, req.eecn),
	FIELD(39, 0, 8, req.initiator_depth),
	FIELD(40, 0, 24, req.remote_eecn),
	FIELD(43, 0, 5, req.remote_timeout),
	FIELD(43, 5, 2, req.transport),
	FIELD(43, 7, 1, req.flow_control),
	FIELD(44, 0, 24, req.psn),
	FIELD(47, 0, 5, req.local_timeout),
	FIELD(47, 5, 3, req.retry_count),
	FIELD(48, 0, 16, req.pkey),
	FIELD(50, 0, 4, req.mtu),
	FIELD(50, 4, 1, req.rdc_exists),
	FIELD(50, 5, 3, req.rnr_retry_count),
	FIELD(51, 0, 4, req.max_retries),
	FIELD(51, 4, 1, req.srq),
	FIELD(51, 5, 3, req.extended_transport),
	PATH(52, req.primary),
	PATH(96, req.alternate),
	RAW(140, req.private_data),
};

/* Table 107 */
static const struct field mra[] = {
	FIELD(0, 0, 32, local_id),   FIELD(4, 0, 32, remote_id),  FIELD(8, 0, 2, mra.about),
	FIELD(9, 0, 5, mra.timeout), RAW(10, mra.private_data),
};

/* Table 108 */
static const struct field rej[] = {
	FIELD(0, 0, 32, local_id),	FIELD(4, 0, 32, remote_id),  FIELD(8, 0, 2, rej.about),
	FIELD(9, 0, 7, rej.info_length), FIELD(10, 0, 16, rej.reason), RAW(12, rej.info),
	RAW(84, rej.private_data),
};

/* Table 110 */
static const struct field rep[] = {
	FIELD(0, 0, 32, local_id),
	FIELD(4, 0, 32, remote_id),
	FIELD(8, 0, 32, rep.qkey),
	FIELD(12, 0, 24, rep.qpn),
	FIELD(15, 0, 8, rep.vendor_high),
	FIELD(16, 0, 24, rep.eecn),
	FIELD(19, 0, 8, rep.vendor_middle),
	FIELD(20, 0, 24, rep.psn),
	FIELD(23, 0, 8, rep.vendor_low),
	FIELD(24, 0, 8, rep.responder_resources),
	FIELD(25, 0, 8, rep.initiator_depth),
	FIELD(26, 0, 5, rep.target_ack_delay),
	FIELD(26, 5, 2, rep.failover),
	FIELD(26, 7, 1, rep.flow_control),
	FIELD(27, 0, 3, rep.rnr_retry_count),
	FIELD(27, 3, 1, rep.srq),
	FIELD(28, 0, 64, rep.ca_guid),
	RAW(36, rep.private_data),
};

static const struct field rtu[] = { FIELD(0, 0, 32, local_id), FIELD(4, 0, 32, remote_id), RAW(8, rtu.private_data) };

static const struct field dreq[] = {
	FIELD(0, 0, 32, local_id),
	FIELD(4, 0, 32, remote_id),
	FIELD(8, 0, 24, dreq.qpn),
	RAW(12, dreq.private_data),
};

static const struct field drep[] = { FIELD(0, 0, 32, local_id), FIELD(4, 0, 32, remote_id), RAW(8, drep.private_data) };

/* Table 119 */
static const struct field sidr_req[] = {
	FIELD(0, 0, 32, local_id),
	FIELD(4, 0, 16, sidr_req.pkey),
	FIELD(8, 0, 64, sidr_req.service_id),
	RAW(16, sidr_req.private_data),
};

/* Table 120 */
static const struct field sidr_rep[] = {
	FIELD(0, 0, 32, local_id),	     FIELD(4, 0, 8, sidr_rep.status), FIELD(5, 0, 8, sidr_rep.info_length),
	FIELD(6, 0, 16, sidr_rep.vendor_high), FIELD(8, 0, 24, sidr_rep.qpn),   FIELD(11, 0, 8, sidr_rep.vendor_low),
	FIELD(12, 0, 64, sidr_rep.service_id), FIELD(20, 0, 32, sidr_rep.qkey), RAW(24, sidr_rep.info),
	RAW(96, sidr_rep.private_data),
};

#define LAYOUT(fields) { fields, sizeof(fields) / sizeof((fields)[0]) }

static const struct layout {
	const struct field *fields;
	size_t count;
} header_layout = LAYOUT(header), layouts[] = {
	[MAD_REQ - MAD_REQ] = LAYOUT(req),
	[MAD_MRA - MAD_REQ] = LAYOUT(mra),
	[MAD_REJ - MAD_REQ] = LAYOUT(rej),
	[MAD_REP - MAD_REQ] = LAYOUT(rep),
	[MAD_RTU - MAD_REQ] = LAYOUT(rtu),
	[MAD_DREQ - MAD_REQ] = LAYOUT(dreq),
	[MAD_DREP - MAD_REQ] = LAYOUT(drep),
	[MAD_SIDR_REQ - MAD_REQ] = LAYOUT(sidr_req),
	[MAD_SIDR_REP - MAD_REQ] = LAYOUT(sidr_rep),
};

static uint64_t get_bits(const uint8_t *from, unsigned bit, unsigned bits)
{
	uint64_t value = 0;

	for (; bits && bit % 8 == 0 && bits >= 8; bits -= 8, bit += 8)
		value = value << 8 | from[bit / 8];
	for (; bits; bits--, bit++)
		value = value << 1 | (from[bit / 8] >> (7 - bit % 8) & 1u);
	return value;
}

static void put_bits(uint8_t *to, unsigned bit, unsigned bits, uint64_t value)
{
	for (; bits; bits--, bit++) {
		if (value >> (bits - 1) & 1u)
			to[bit / 8] |= (uint8_t)(0x80 >> bit % 8);
	}
}

static void set_member(void *to, unsigned bytes, uint64_t value)
{
	switch (bytes) {
	case 1:
		*(uint8_t *)to = (uint8_t)value;
		break;
	case 2:
		*(uint16_t *)to = (uint16_t)value;
		break;
	case 4:
		*(uint32_t *)to = (uint32_t)value;
		break;
	default:
		*(uint64_t *)to = value;
	}
}

static uint64_t get_member(const void *from, unsigned bytes)
{
	switch (bytes) {
	case 1:
		return *(const uint8_t *)from;
	case 2:
		return *(const uint16_t *)from;
	case 4:
		return *(const uint32_t *)from;
	default:
		return *(const uint64_t *)from;
	}
}

static void read_fields(const struct layout *layout, const uint8_t *from, struct mad *mad)
{
	for (size_t i = 0; i < layout->count; i++) {
		const struct field *f = &layout->fields[i];
		uint8_t *member = (uint8_t *)mad + f->at;

		if (f->bits)
			set_member(member, f->bytes, get_bits(from, f->byte * 8u + f->bit, f->bits));
		else
			memcpy(member, from + f->byte, f->bytes);
	}
}

static void write_fields(const struct layout *layout, const struct mad *mad, uint8_t *to)
{
	for (size_t i = 0; i < layout->count; i++) {
		const struct field *f = &layout->fields[i];
		const uint8_t *member = (const uint8_t *)mad + f->at;

		if (f->bits)
			put_bits(to, f->byte * 8u + f->bit, f->bits, get_member(member, f->bytes));
		else
			memcpy(to + f->byte, member, f->bytes);
	}
}

bool mad_decode(const uint8_t *from, struct mad *mad)
{
	if (from[0] != BASE_VERSION || from[1] != CM_CLASS || from[2] != CLASS_VERSION || from[3] != METHOD_SEND)
		return false;
	memset(mad, 0, sizeof(*mad));
	read_fields(&header_layout, from, mad);
	if (mad->attribute >= MAD_REQ && mad->attribute <= MAD_SIDR_REP)
		read_fields(&layouts[mad->attribute - MAD_REQ], from, mad);
	return true;
}

void mad_encode(const struct mad *mad, uint8_t *to)
{
	memset(to, 0, MAD_BYTES);
	to[0] = BASE_VERSION;
	to[1] = CM_CLASS;
	to[2] = CLASS_VERSION;
	to[3] = METHOD_SEND;
	write_fields(&header_layout, mad, to);
	write_fields(&layouts[mad->attribute - MAD_REQ], mad, to);
}

/* Of an IPv4 address only the last four of its sixteen bytes are used. */
static union ibv_gid read_address(const uint8_t *from, uint8_t version)
{
	union ibv_gid gid;
	uint32_t v4;

	memcpy(gid.raw, from, sizeof(gid.raw));
	if (version != 4)
		return gid;
	memcpy(&v4, from + 12, sizeof(v4));
	return gid_from_ipv4(v4);
}

static void write_address(const union ibv_gid *gid, uint8_t version, uint8_t *to)
{
	memset(to, 0, 12);
	if (version != 4)
		memcpy(to, gid->raw, 12);
	memcpy(to + 12, gid->raw + 12, 4);
}

bool mad_ip_decode(const uint8_t *from, struct mad_ip *ip)
{
	*ip = (struct mad_ip){ .major = from[0] >> 4,
			       .minor = from[0] & 15,
			       .version = from[1] >> 4,
			       .source_port = (uint16_t)(from[2] << 8 | from[3]) };
	ip->source = read_address(from + 4, ip->version);
	ip->destination = read_address(from + 20, ip->version);
	return !ip->major && (ip->version == 4 || ip->version == 6);
}

void mad_ip_encode(const struct mad_ip *ip, uint8_t *to)
{
	to[0] = (uint8_t)(ip->major << 4 | ip->minor);
	to[1] = (uint8_t)(ip->version << 4);
	to[2] = (uint8_t)(ip->source_port >> 8);
	to[3] = (uint8_t)ip->source_port;
	write_address(&ip->source, ip->version, to + 4);
	write_address(&ip->destination, ip->version, to + 20);
}
