/* SPDX-License-Identifier: MIT */
/*
 * Reading the captures: classic pcap files of Ethernet frames, little-endian, each frame RoCEv2 over IPv4 without options or over
 * IPv6. What is not so ends the test: then the file is not one of ours.
 */
#ifndef TESTS_PCAPS_CAPTURE_H
#define TESTS_PCAPS_CAPTURE_H

#include <endian.h>
#include <errno.h>
#include <glob.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nic/gid.h"
#include "roce/icrc.h"
#include "roce/packet.h"

#define CAPTURE_MAX_IP 65535

/* A file, and how far it is read. */
struct capture {
	FILE *file;
	const char *name; /* without folders and ending */
	int name_length;
	int frames; /* read so far */
	uint8_t frame[14 + CAPTURE_MAX_IP];
};

struct captured {
	const uint8_t *ip; /* IP header, UDP header, packet */
	size_t ip_bytes;
	struct icrc_path path;
	uint16_t id;	       /* IPv4 identification */
	const uint8_t *packet; /* BTH to ICRC */
	size_t bytes;
};

/* Takes an IP packet apart: false if it is not RoCEv2. */
static inline bool captured_from_ip(const uint8_t *ip, size_t bytes, struct captured *captured)
{
	struct ip6_hdr ip6;
	struct iphdr ip4;
	struct udphdr udp;
	size_t header;

	*captured = (struct captured){ .ip = ip, .ip_bytes = bytes };
	if (bytes >= sizeof(ip4) + sizeof(udp) && ip[0] == 0x45) {
		memcpy(&ip4, ip, sizeof(ip4));
		header = sizeof(ip4);
		if (ip4.protocol != IPPROTO_UDP || be16toh(ip4.tot_len) != bytes || ip4.frag_off != htobe16(IP_DF))
			return false;
		captured->path.sgid = gid_from_ipv4(ip4.saddr);
		captured->path.dgid = gid_from_ipv4(ip4.daddr);
		captured->id = be16toh(ip4.id);
	} else if (bytes >= sizeof(ip6) + sizeof(udp) && ip[0] >> 4 == 6) {
		memcpy(&ip6, ip, sizeof(ip6));
		header = sizeof(ip6);
		if (ip6.ip6_nxt != IPPROTO_UDP || be16toh(ip6.ip6_plen) != bytes - header)
			return false;
		memcpy(captured->path.sgid.raw, &ip6.ip6_src, sizeof(ip6.ip6_src));
		memcpy(captured->path.dgid.raw, &ip6.ip6_dst, sizeof(ip6.ip6_dst));
	} else {
		return false;
	}
	memcpy(&udp, ip + header, sizeof(udp));
	captured->path.sport = be16toh(udp.source);
	captured->path.dport = be16toh(udp.dest);
	captured->packet = ip + header + sizeof(udp);
	captured->bytes = bytes - header - sizeof(udp);
	return captured->path.dport == ROCE_PORT && be16toh(udp.len) == bytes - header;
}

static inline void capture_broken(const struct capture *capture, const char *why)
{
	fprintf(stderr, "%s: after frame %d: %s\n", capture->name, capture->frames, why);
	abort();
}

static inline void capture_open(struct capture *capture, const char *path)
{
	const char *slash = strrchr(path, '/');
	uint32_t header[6];

	capture->name = slash ? slash + 1 : path;
	capture->name_length = strcspn(capture->name, ".");
	capture->frames = 0;
	capture->file = fopen(path, "rb");
	if (!capture->file)
		capture_broken(capture, strerror(errno));
	if (fread(header, sizeof(header), 1, capture->file) != 1 || le32toh(header[0]) != 0xa1b2c3d4 ||
	    le32toh(header[5]) != 1)
		capture_broken(capture, "no pcap file of Ethernet frames");
}

/* The next frame, valid until the one after it; at the end false, and the file is closed. */
static inline bool capture_next(struct capture *capture, struct captured *captured)
{
	uint32_t header[4]; /* seconds, microseconds, bytes in the file, bytes on the wire */
	uint32_t bytes;

	if (fread(header, sizeof(header), 1, capture->file) != 1) {
		fclose(capture->file);
		return false;
	}
	bytes = le32toh(header[2]);
	if (bytes != le32toh(header[3]) || bytes < 14 || bytes > sizeof(capture->frame) ||
	    fread(capture->frame, bytes, 1, capture->file) != 1)
		capture_broken(capture, "a frame that is cut off");
	if (!captured_from_ip(capture->frame + 14, bytes - 14, captured))
		capture_broken(capture, "a frame that is not RoCEv2");
	capture->frames++;
	return true;
}

/* The files' names; globfree() them. */
static inline void capture_list(const char *folder, glob_t *list)
{
	char pattern[4096];

	snprintf(pattern, sizeof(pattern), "%s/*.pcap", folder);
	if (glob(pattern, 0, NULL, list)) {
		fprintf(stderr, "no captures in %s\n", folder);
		abort();
	}
}

#endif
