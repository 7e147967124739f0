/* SPDX-License-Identifier: MIT */
/* The one port of a device: its attributes, its GID table and its P_Key table. */
#include "verbs/verbs.h"

#include <endian.h>
#include <string.h>

#undef ibv_query_port

EXPORT(query_port, 1.1);
EXPORT(query_gid, 1.1);
EXPORT(query_pkey, 1.1);
EXPORT(get_pkey_index, 1.5);
extern typeof(_ibv_query_gid_ex) query_gid_ex;
extern typeof(_ibv_query_gid_table) query_gid_table;
EXPORT_AS(query_gid_ex, "_ibv_query_gid_ex", 1.11);
EXPORT_AS(query_gid_table, "_ibv_query_gid_table", 1.11);

/* Codes of the specification's PortInfo, and of the kernel for link speeds */
#define PHYS_STATE_DISABLED 3
#define PHYS_STATE_LINK_UP  5
#define WIDTH_4X	    2
#define SPEED_EDR	    32 /* 25 Gb/s a lane: 100 Gb/s, about what a core copies */
#define VL0_ONLY	    1
#define DEFAULT_PKEY	    0xffff
#define WIRE_OVERHEAD	    96 /* bytes: IPv6, UDP, BTH, the longest headers behind it, ICRC, and some */

/* What ibv_query_port knew before rdma-core 26; programs built then have no more room. */
#define OLD_PORT_ATTR offsetof(struct ibv_port_attr, port_cap_flags2)

/* rdma-core's private enumeration of the kernel's file. */
enum ibv_gid_type_sysfs { GID_TYPE_SYSFS_ROCE_V1, GID_TYPE_SYSFS_ROCE_V2 };

static int check_port(struct verbs_ctx *ctx, uint32_t port_num)
{
	if (port_num == 1)
		return 0;
	return refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_PORT, .limit = 1, .value = port_num);
}

/* The largest whose packets, with all headers, fit into what the interface of the first GID sends. */
enum ibv_mtu active_mtu(const struct verbs_ctx *ctx)
{
	enum ibv_mtu mtu = IBV_MTU_4096;

	while (mtu > IBV_MTU_256 && mtu_bytes(mtu) + WIRE_OVERHEAD > ctx->device->gids.interface_mtu)
		mtu--;
	return mtu;
}

int query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
	       size_t length)
{
	struct verbs_ctx *ctx = to_ctx(context);
	bool up = ctx->device->gids.present;
	const struct ibv_port_attr full = {
		.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = active_mtu(ctx),
		.gid_tbl_len = GID_TABLE_LENGTH,
		.port_cap_flags = IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = (uint32_t)ctx->limits->max_msg,
		.pkey_tbl_len = 1,
		.max_vl_num = VL0_ONLY,
		.active_width = WIDTH_4X,
		.active_speed = SPEED_EDR,
		.phys_state = up ? PHYS_STATE_LINK_UP : PHYS_STATE_DISABLED,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = IBV_QPF_GRH_REQUIRED,
	};

	if (check_port(ctx, port_num))
		return errno;
	memset(attr, 0, length);
	memcpy(attr, &full, length < sizeof(full) ? length : sizeof(full));
	return 0;
}

int verb_query_port(struct ibv_context *context, uint8_t port_num,
		    struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port_num, (struct ibv_port_attr *)attr, OLD_PORT_ATTR);
}

/* ENODATA for an index that has no entry. */
static int find_gid(struct verbs_ctx *ctx, uint32_t port_num, uint32_t index,
		    struct ibv_gid_entry *entry)
{
	union ibv_gid gid;
	uint32_t ifindex;

	if (check_port(ctx, port_num))
		return errno;
	if (index >= GID_TABLE_LENGTH)
		return refuse(ctx, EINVAL, CAUSE_BAD_SGID_INDEX, .limit = GID_TABLE_LENGTH - 1,
			      .value = index);
	if (!gid_table_get(&ctx->device->gids, index, &gid, &ifindex))
		return ENODATA;
	*entry = (struct ibv_gid_entry){
		.gid = gid,
		.gid_index = index,
		.port_num = 1,
		.gid_type = IBV_GID_TYPE_ROCE_V2,
		.ndev_ifindex = ifindex,
	};
	return 0;
}

int verb_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry entry = { 0 };
	int error = find_gid(to_ctx(context), port_num, (uint32_t)index, &entry);

	if (error && error != ENODATA)
		return -1;
	*gid = entry.gid;
	return 0;
}

/* entry_size is the caller's sizeof; fields of a longer one are zero. */
int query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		 struct ibv_gid_entry *out, uint32_t flags, size_t entry_size)
{
	struct verbs_ctx *ctx = to_ctx(context);
	struct ibv_gid_entry entry;
	int error;

	if (flags || entry_size < sizeof(entry))
		return refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = flags ? CAUSE_THING_GID_FLAGS : CAUSE_THING_GID_ENTRY,
			      .value = flags ? flags : entry_size);
	error = find_gid(ctx, port_num, gid_index, &entry);
	if (error)
		return answer(error);
	memset(out, 0, entry_size);
	memcpy(out, &entry, sizeof(entry));
	return 0;
}

ssize_t query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			size_t max_entries, uint32_t flags, size_t entry_size)
{
	struct verbs_ctx *ctx = to_ctx(context);
	uint32_t count = ctx->device->gids.count, present = ctx->device->gids.present;
	ssize_t filled = 0;

	if (flags)
		return -refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_GID_FLAGS, .value = flags);
	if (max_entries < present)
		return -refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_GID_ENTRIES, .value = max_entries,
			       .count = present);
	for (uint32_t i = 0; i < count && (size_t)filled < max_entries; i++) {
		void *out = (char *)entries + (size_t)filled * entry_size;
		int error = query_gid_ex(context, 1, i, out, 0, entry_size);

		if (error && error != ENODATA)
			return -error;
		filled += !error;
	}
	return filled;
}

/* Not in the public header; ibv_devinfo and pyverbs use it. */
EXPORTED int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned index,
				enum ibv_gid_type_sysfs *type)
{
	struct ibv_gid_entry entry;
	int error = find_gid(to_ctx(context), port_num, index, &entry);

	if (error && error != ENODATA)
		return -1;
	*type = error ? GID_TYPE_SYSFS_ROCE_V1 : GID_TYPE_SYSFS_ROCE_V2;
	return 0;
}

int verb_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	struct verbs_ctx *ctx = to_ctx(context);

	if (check_port(ctx, port_num))
		return -1;
	if (index) {
		refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_PKEY_INDEX, .limit = 0, .value = (uint64_t)index);
		return -1;
	}
	*pkey = htobe16(DEFAULT_PKEY);
	return 0;
}

int verb_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	__be16 ours;

	if (verb_query_pkey(context, port_num, 0, &ours))
		return -1;
	if (pkey == ours)
		return 0;
	errno = ENOENT;
	return -1;
}
