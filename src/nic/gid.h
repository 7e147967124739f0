/* SPDX-License-Identifier: MIT */
/*
 * Addresses of this host as GIDs. A RoCE v2 GID is an IP address: IPv6 as it is, IPv4 mapped
 * (::ffff:a.b.c.d).
 *
 * A table is read once and keeps its order: who runs `-g 0` wants the address that others reach
 * this host by, so the address of the default route comes first and loopback last.
 */
#ifndef UROCE_NIC_GID_H
#define UROCE_NIC_GID_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

/* gid_tbl_len of a port; more than a host has addresses. What lies beyond the entries is zero. */
#define GID_TABLE_LENGTH 256

struct gid_table {
	uint32_t count;
	union ibv_gid gids[GID_TABLE_LENGTH];
	uint32_t ifindex[GID_TABLE_LENGTH]; /* the interface that has the address */
	uint32_t interface_mtu; /* bytes; of the interface of the first entry */
};

/*
 * Reads the addresses of the interfaces that are up: all of them, or only those named in interfaces
 * (NULL at the end). 0, or errno. A table without entries is no error.
 */
int gid_table_read(struct gid_table *table, const char *const *interfaces);

/* The entry's index, or -1. */
int gid_table_find(const struct gid_table *table, const union ibv_gid *gid);

/* True if packets to this GID stay on this host: an address of any interface, and all of
 * 127.0.0.0/8. An address that was added less than a second ago may still be unknown. */
bool gid_is_local(const union ibv_gid *gid);

/* Bytes; 1500 if the interface does not say. */
uint32_t gid_interface_mtu(uint32_t ifindex);

bool gid_is_zero(const union ibv_gid *gid);
bool gid_is_ipv4(const union ibv_gid *gid);
bool gid_is_loopback(const union ibv_gid *gid);

/* addr in network byte order. */
union ibv_gid gid_from_ipv4(uint32_t addr);

#endif
