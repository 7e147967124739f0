/* SPDX-License-Identifier: MIT */
/*
 * usage: damage TRIALS [SEED]
 *
 * How many damaged packets are taken for good ones. Packets of every opcode and many lengths get a right ICRC, are damaged, each
 * kind of damage TRIALS times for each kind of sender, and are given to the parser, the ICRC and the check of identifications, as
 * port.c does; undamaged ones in between keep the latter up to date. Printed for each: how many the CRC lets through (IPv4: by some
 * identification; 1 in 65,536 is to be expected, IPv6: 1 in 2^32), how many were taken, how many are to be expected to be taken of
 * a thousand million, and how many of the damages the UDP checksum does not see. Fails when more get through than chance lets.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nic/gid.h"
#include "roce/icrc.h"
#include "roce/identification.h"
#include "roce/packet.h"

#define PAYLOAD_MOST 1024u
#define PACKET_MOST  (ROCE_MAX_HEADERS + PAYLOAD_MOST + ROCE_ICRC_BYTES)
#define MASKED	     4 /* the BTH's byte that the ICRC leaves out */
#define DRAWS	     200000u

enum sender { OURS, STRANGER, IPV6, SENDERS };

static const char *sender_names[SENDERS] = { "ours over IPv4", "a stranger over IPv4", "anybody over IPv6" };

struct packet {
	uint32_t bytes; /* with ICRC */
	uint8_t at[PACKET_MOST];
};

static uint64_t seed;
static uint8_t noise[PAYLOAD_MOST];

static uint32_t draw(uint32_t n)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return (uint32_t)((seed * 0x2545f4914f6cdd1dull) >> 32) % n;
}

/* Kinds of damage. */
static void flip(struct packet *packet, uint32_t from, uint32_t bits)
{
	while (bits--) {
		uint32_t bit = 8 * from + draw(8 * (packet->bytes - from));

		packet->at[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void one_bit(struct packet *packet)
{
	flip(packet, 0, 1);
}

static void two_bits(struct packet *packet)
{
	flip(packet, 0, 2);
}

static void up_to_eight_bits(struct packet *packet)
{
	flip(packet, 0, 1 + draw(8));
}

static void many_bits(struct packet *packet)
{
	flip(packet, 0, 9 + draw(56));
}

static void header_bits(struct packet *packet)
{
	uint32_t bytes = packet->bytes;

	packet->bytes = 28;
	flip(packet, 0, 1 + draw(8));
	packet->bytes = bytes;
}

/* All bits of a stretch at random. */
static void burst(struct packet *packet, uint32_t bits)
{
	uint32_t first = draw(8 * packet->bytes - bits);

	for (uint32_t bit = first; bit < first + bits; bit++)
		packet->at[bit / 8] ^= (uint8_t)(draw(2) << bit % 8);
}

static void short_burst(struct packet *packet)
{
	burst(packet, 32);
}

static void long_burst(struct packet *packet)
{
	burst(packet, 33 + draw(8 * (packet->bytes - ROCE_BTH_BYTES) - 33));
}

static void swapped_bytes(struct packet *packet)
{
	uint32_t a = draw(packet->bytes), b = draw(packet->bytes);
	uint8_t byte = packet->at[a];

	packet->at[a] = packet->at[b];
	packet->at[b] = byte;
}

/* What no sum of words sees. */
static void swapped_words(struct packet *packet)
{
	uint32_t a = 2 * draw(packet->bytes / 2), b = 2 * draw(packet->bytes / 2);
	uint8_t word[2];

	memcpy(word, packet->at + a, 2);
	memcpy(packet->at + a, packet->at + b, 2);
	memcpy(packet->at + b, word, 2);
}

static void zeroed(struct packet *packet)
{
	uint32_t from = draw(packet->bytes - 4), length = 4 + draw(packet->bytes - from - 3);

	memset(packet->at + from, 0, length);
}

static void shortened(struct packet *packet)
{
	uint32_t less = 4 * (1 + draw(packet->bytes / 4 - (ROCE_BTH_BYTES + ROCE_ICRC_BYTES) / 4));

	packet->bytes -= less;
}

static void of_another(struct packet *packet)
{
	uint32_t from = draw(packet->bytes - 4), length = 4 + draw(packet->bytes - from - 3);

	for (uint32_t i = from; i < from + length; i++)
		packet->at[i] = (uint8_t)draw(256);
}

static const struct damage {
	const char *name;
	void (*damage)(struct packet *packet);
} damages[] = {
	{ "1 bit", one_bit },
	{ "2 bits", two_bits },
	{ "1 to 8 bits", up_to_eight_bits },
	{ "1 to 8 bits of the header", header_bits },
	{ "9 to 64 bits", many_bits },
	{ "burst of 32 bits", short_burst },
	{ "longer burst", long_burst },
	{ "two bytes swapped", swapped_bytes },
	{ "two words swapped", swapped_words },
	{ "zeroed from a place on", zeroed },
	{ "random from a place on", of_another },
	{ "shortened", shortened },
};

#define DAMAGES (sizeof(damages) / sizeof(damages[0]))

/* Who sends what next. */
struct source {
	struct icrc_path path;
	enum sender sender;
	uint16_t id;
};

static uint16_t next_id(struct source *source)
{
	if (source->sender == STRANGER)
		return ++source->id;
	/* Alone, or in a datagram that is cut. */
	source->id = source->sender == OURS && draw(2) ? (uint16_t)(source->id + 1) % ID_OURS : 0;
	return source->id;
}

static void make(struct source *source, struct packet *packet)
{
	struct roce_packet head = { .migreq = true, .pkey = ROCE_DEFAULT_PKEY };
	const struct roce_opcode *row;

	do {
		head.opcode = (uint8_t)draw(256);
		row = roce_opcode(head.opcode);
	} while (!row->name);
	head.length = row->payload == ROCE_PAYLOAD_NONE ? 0 :
		      row->payload == ROCE_PAYLOAD_FULL ? PAYLOAD_MOST :
							  1 + draw(PAYLOAD_MOST);
	head.qpn = draw(1u << 24);
	head.psn = draw(1u << 24);
	head.va = (uint64_t)draw(UINT32_MAX) << 16;
	head.rkey = draw(UINT32_MAX);
	head.dma_length = head.length;
	head.qkey = draw(UINT32_MAX);
	head.src_qpn = draw(1u << 24);

	uint32_t bytes = (uint32_t)roce_build(&head, packet->at), crc;
	uint32_t from = draw(64);

	/* Zeros and text are as frequent as noise. */
	switch (draw(3)) {
	case 0:
		memset(packet->at + bytes, 0, head.length);
		break;
	case 1:
		memset(packet->at + bytes, 'a', head.length);
		break;
	default:
		memcpy(packet->at + bytes, noise + from, head.length - (head.length > from ? from : 0));
		memset(packet->at + bytes + head.length - (head.length > from ? from : 0), 7, head.length > from ? from : 0);
	}
	bytes += head.length;
	memset(packet->at + bytes, 0, roce_pad(head.length));
	bytes += roce_pad(head.length);
	crc = htole32(icrc_of(&source->path, next_id(source), packet->at, bytes));
	memcpy(packet->at + bytes, &crc, sizeof(crc));
	packet->bytes = bytes + ROCE_ICRC_BYTES;
}

/* Of 16-bit words, with the length, as UDP's. */
static uint32_t checksum(const struct packet *packet)
{
	uint64_t sum = 2 * packet->bytes; /* in its own header and in the pseudo header */
	uint16_t word;

	for (uint32_t i = 0; i < packet->bytes; i += 2) {
		memcpy(&word, packet->at + i, 2);
		sum += be16toh(word);
	}
	return (uint32_t)(sum % 65535);
}

static bool is_same(const struct packet *a, const struct packet *b)
{
	return a->bytes == b->bytes && !memcmp(a->at, b->at, MASKED) &&
	       !memcmp(a->at + MASKED + 1, b->at + MASKED + 1, a->bytes - MASKED - 1);
}

/* As port.c does. *solved: the CRC says nothing against it. */
static bool is_taken(const struct source *source, struct id_flows *flows, const struct packet *packet, bool *solved)
{
	struct roce_packet parsed;
	uint16_t id;

	*solved = roce_parse(packet->at, packet->bytes - ROCE_ICRC_BYTES, &parsed) &&
		  icrc_solve(&source->path, packet->at, packet->bytes, &id);
	return *solved && (source->sender == IPV6 || id_is_expected(flows, &source->path.sgid, id));
}

static struct source source_of(enum sender sender)
{
	struct source source = { .sender = sender,
				 .path = { .sport = 0xc123, .dport = ROCE_PORT },
				 .id = (uint16_t)draw(1u << 16) };

	if (sender == IPV6) {
		memcpy(source.path.sgid.raw, "\xfd\x77\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
		memcpy(source.path.dgid.raw, "\xfd\x77\0\0\0\0\0\0\0\0\0\0\0\0\0\2", 16);
	} else {
		source.path.sgid = gid_from_ipv4(htobe32(0x0a4d0001));
		source.path.dgid = gid_from_ipv4(htobe32(0x0a4d0002));
	}
	return source;
}

/* The part of all identifications that would be taken of a sender in the middle of its traffic. */
static double part_expected(enum sender sender)
{
	static struct id_flows flows;
	struct source source = source_of(sender);
	uint32_t taken = 0;

	if (sender == IPV6)
		return 1;
	memset(&flows, 0, sizeof(flows));
	for (uint32_t i = 0; i < DRAWS; i++) {
		for (int j = 0; j < 4; j++)
			id_is_expected(&flows, &source.path.sgid, next_id(&source));
		struct id_flows *copy = &flows;
		struct id_flow before[ID_FLOWS];

		memcpy(before, copy->flow, sizeof(before));
		taken += id_is_expected(copy, &source.path.sgid, (uint16_t)draw(1u << 16));
		memcpy(copy->flow, before, sizeof(before));
	}
	return (double)taken / DRAWS;
}

/* Whether so many are more than chance makes of them. */
static bool too_many(double seen, double expected)
{
	return seen > expected + 6 * sqrt(expected) + 3;
}

static bool run(enum sender sender, const struct damage *damage, uint64_t trials, double part)
{
	static struct id_flows flows;
	struct source source = source_of(sender);
	struct packet good, bad;
	uint64_t damaged = 0, solved = 0, taken = 0, unseen = 0, refused = 0;
	double one = sender == IPV6 ? 0x1p-32 : 0x1p-16;
	bool by_crc;

	memset(&flows, 0, sizeof(flows));
	for (uint64_t i = 0; i < trials; i++) {
		make(&source, &good);
		refused += !is_taken(&source, &flows, &good, &by_crc);
		make(&source, &good);
		bad = good;
		damage->damage(&bad);
		if (is_same(&good, &bad))
			continue;
		damaged++;
		unseen += checksum(&good) == checksum(&bad);
		taken += is_taken(&source, &flows, &bad, &by_crc);
		solved += by_crc;
	}
	double crc = (double)solved / (double)damaged, miss = (double)unseen / (double)damaged;

	printf("%-22s %-26s %10llu %8llu %8.2f %6llu %10.2f %11.6f %12.2g\n", sender_names[sender], damage->name,
	       (unsigned long long)damaged, (unsigned long long)solved, crc / one, (unsigned long long)taken, one * part * 1e9,
	       miss, one * part * 1e9 * miss);
	fflush(stdout);
	return !too_many((double)solved, one * (double)damaged) && !too_many((double)taken, one * part * (double)damaged) &&
	       !too_many((double)refused, 2 * (double)solved);
}

int main(int argc, char **argv)
{
	uint64_t trials = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	bool good = true;

	seed = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * 0x9e3779b97f4a7c15ull;
	if (!trials || !seed) {
		fprintf(stderr, "usage: damage TRIALS [SEED]\n");
		return 2;
	}
	for (uint32_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)draw(256);
	printf("%-22s %-26s %10s %8s %8s %6s %10s %11s %12s\n", "sender", "damage", "damaged", "by CRC", "of chance", "taken",
	       "of 10^9", "UDP blind", "both of 10^9");
	for (enum sender sender = 0; sender < SENDERS; sender++) {
		double part = part_expected(sender);

		printf("%s: %.5f of the identifications are taken\n", sender_names[sender], part);
		for (unsigned i = 0; i < DAMAGES; i++)
			good &= run(sender, &damages[i], trials, part);
	}
	return !good;
}
