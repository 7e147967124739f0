/* SPDX-License-Identifier: MIT */
/*
 * Addresses of this host as GIDs. A RoCE v2 GID is an IP address: IPv6 as it is, IPv4 mapped
 * (::ffff:a.b.c.d).
 *
 * Who runs `-g 0` wants the address that others reach this host by, so in a table that is read the address of the default
 * route comes first and loopback last. Later an address keeps its index as long as it is there; one that comes takes a free one.
 */
#ifndef UROCE_NIC_GID_H
#define UROCE_NIC_GID_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/* gid_tbl_len of a port; more than a host has addresses. What lies beyond the entries is zero. */
#define GID_TABLE_LENGTH 256

struct gid_table {
	_Atomic uint32_t count; /* entries, with the gaps between them; only grows after gid_table_read() */
	_Atomic uint32_t present; /* without the gaps */
	_Atomic uint32_t changes; /* how often it was changed */
	_Atomic uint32_t interface_mtu; /* bytes; of the interface of the first entry */
	/* By gid_table_get() where the table may change; zero: a gap. */
	union ibv_gid gids[GID_TABLE_LENGTH];
	uint32_t ifindex[GID_TABLE_LENGTH]; /* the interface that has the address */
};

/*
 * Reads the addresses of the interfaces that are up: all of them, or only those named in interfaces
 * (NULL at the end). 0, or errno. A table without entries is no error.
 */
int gid_table_read(struct gid_table *table, const char *const *interfaces);

/* Brings it up to date; says in table->changes whether anything had. What cannot be read stays as it was. */
void gid_table_update(struct gid_table *table, const char *const *interfaces);

/* False when the index has no entry. ifindex may be NULL. */
bool gid_table_get(const struct gid_table *table, uint32_t index, union ibv_gid *gid, uint32_t *ifindex);

/* The entry's index, or -1. */
int gid_table_find(const struct gid_table *table, const union ibv_gid *gid);

/* True if packets to this GID stay on this host: an address of any interface, and all of
 * 127.0.0.0/8. An address that was added less than a second ago may still be unknown. */
bool gid_is_local(const union ibv_gid *gid);
/* Reads the host's addresses again, if it can. */
void gid_update_local(void);

/* Bytes; 1500 if the interface does not say. */
uint32_t gid_interface_mtu(uint32_t ifindex);

bool gid_is_zero(const union ibv_gid *gid);
bool gid_is_ipv4(const union ibv_gid *gid);
bool gid_is_loopback(const union ibv_gid *gid);
bool gid_is_link_local(const union ibv_gid *gid); /* of IPv6 */

/* As an IP address, IPv4 without the prefix; text has GID_TEXT_BYTES and is returned. */
#define GID_TEXT_BYTES 46 /* INET6_ADDRSTRLEN */
const char *gid_text(const union ibv_gid *gid, char *text);

/* addr in network byte order. */
union ibv_gid gid_from_ipv4(uint32_t addr);

#endif
