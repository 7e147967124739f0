/* SPDX-License-Identifier: MIT */
#include "tools/trace_pcapng.h"

#include <string.h>

enum { BLOCK_SECTION = 0x0a0d0d0a, BLOCK_INTERFACE = 1, BLOCK_PACKET = 6 };
enum {
	OPTION_END,
	OPTION_COMMENT,
	OPTION_NAME = 2,
	OPTION_FLAGS = 2,
	OPTION_DESCRIPTION = 3,
	OPTION_APPLICATION = 4,
	OPTION_RESOLUTION = 9
};

#define BYTE_ORDER_MAGIC 0x1a2b3c4d
#define LINK_ETHERNET	 1
#define OPTION_MOST	 0xffff

static size_t padded(size_t bytes)
{
	return (bytes + 3) & ~3ul;
}

static void put16(FILE *out, uint16_t value)
{
	fwrite(&value, sizeof(value), 1, out);
}

static void put32(FILE *out, uint32_t value)
{
	fwrite(&value, sizeof(value), 1, out);
}

static void put(FILE *out, const void *bytes, size_t count)
{
	static const char zeros[4];

	fwrite(bytes, 1, count, out);
	fwrite(zeros, 1, padded(count) - count, out);
}

struct option {
	uint16_t code;
	const void *value;
	size_t bytes;
};

static struct option text(uint16_t code, const char *value)
{
	return (struct option){ code, value, strnlen(value, OPTION_MOST) };
}

/* A block of `fixed` bytes, `bytes` of data and options behind them. */
static void block(FILE *out, uint32_t type, const void *fixed, size_t fixed_bytes, const void *data, size_t bytes,
		  const struct option *options, unsigned count)
{
	size_t total = 12 + fixed_bytes + padded(bytes) + (count ? 4 : 0);

	for (unsigned i = 0; i < count; i++)
		total += 4 + padded(options[i].bytes);
	put32(out, type);
	put32(out, (uint32_t)total);
	put(out, fixed, fixed_bytes);
	put(out, data, bytes);
	for (unsigned i = 0; i < count; i++) {
		put16(out, options[i].code);
		put16(out, (uint16_t)options[i].bytes);
		put(out, options[i].value, options[i].bytes);
	}
	if (count)
		put32(out, OPTION_END);
	put32(out, (uint32_t)total);
}

void pcapng_begin(FILE *out, const char *application)
{
	const struct {
		uint32_t magic;
		uint16_t major, minor;
		uint64_t length; /* not known */
	} __attribute__((packed)) section = { BYTE_ORDER_MAGIC, 1, 0, UINT64_MAX };
	const struct option option = text(OPTION_APPLICATION, application);

	block(out, BLOCK_SECTION, &section, sizeof(section), "", 0, &option, 1);
}

void pcapng_interface(FILE *out, const char *name, const char *description)
{
	const struct {
		uint16_t link, reserved;
		uint32_t snap; /* no limit */
	} interface = { LINK_ETHERNET, 0, 0 };
	const uint8_t nanoseconds = 9;
	const struct option options[] = { text(OPTION_NAME, name),
					  text(OPTION_DESCRIPTION, description),
					  { OPTION_RESOLUTION, &nanoseconds, 1 } };

	block(out, BLOCK_INTERFACE, &interface, sizeof(interface), "", 0, options, 3);
}

void pcapng_packet(FILE *out, const struct pcapng_packet *packet)
{
	const struct {
		uint32_t interface, time_high, time_low, kept, length;
	} fixed = { packet->interface, (uint32_t)(packet->time >> 32), (uint32_t)packet->time, packet->kept, packet->length };
	const uint32_t direction = packet->direction;
	const struct option options[] = { { OPTION_FLAGS, &direction, sizeof(direction) },
					  text(OPTION_COMMENT, packet->comment ? packet->comment : "") };

	block(out, BLOCK_PACKET, &fixed, sizeof(fixed), packet->bytes, packet->kept, options, packet->comment ? 2 : 1);
}
