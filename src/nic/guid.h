/* SPDX-License-Identifier: MIT */
/* EUI-64s of ours, made from what tells this host from others. */
#ifndef UROCE_NIC_GUID_H
#define UROCE_NIC_GUID_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a, 64 bits; seed: what came before, or GUID_SEED. */
#define GUID_SEED 0xcbf29ce484222325
uint64_t guid_hash(uint64_t seed, const void *data, size_t length);

/* Of the interface's hardware address; of any interface's for 0; else of the machine's id or name. */
uint64_t guid_hash_host(uint32_t ifindex);

/* A GUID of a hash, in host order: its first byte says "locally administered", so that no maker's number is taken. */
uint64_t guid_make(uint64_t hash);

#endif
