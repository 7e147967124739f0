/* SPDX-License-Identifier: MIT */
/*
 * Address handles: where a UD message goes. On RoCE that is a GRH: without one there is nothing to send to.
 *
 * Also the way back from a received message. Its first 40 bytes are the network header: an IPv6 header, or 20 bytes of
 * nothing and an IPv4 header (Annex A17 of the specification, "RoCEv2").
 */
#include "verbs/verbs.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <stdlib.h>
#include <string.h>

EXPORT(create_ah, 1.1);
EXPORT(create_ah_from_wc, 1.1);
EXPORT(init_ah_from_wc, 1.1);
EXPORT(destroy_ah, 1.1);

static int check_attributes(struct verbs_ctx *ctx, const struct ibv_ah_attr *attr, union ibv_gid *sgid)
{
	uint32_t entries = ctx->device->gids.count;

	if (attr->port_num != 1)
		return refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_AH_PORT, .limit = 1,
			      .value = attr->port_num);
	if (!attr->is_global)
		return refuse(ctx, EINVAL, CAUSE_NO_GRH, .limit = entries);
	if (!gid_table_get(&ctx->device->gids, attr->grh.sgid_index, sgid, NULL))
		return refuse(ctx, EINVAL, CAUSE_BAD_SGID_INDEX, .limit = entries,
			      .value = attr->grh.sgid_index);
	if (gid_is_zero(&attr->grh.dgid))
		return refuse(ctx, EINVAL, CAUSE_BAD_DGID);
	return 0;
}

struct ibv_ah *verb_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct verbs_ctx *ctx = to_ctx(pd->context);
	union ibv_gid sgid;
	struct verbs_ah *ah;

	if (is_forked(ctx))
		return refuse_null(ctx, EIO, CAUSE_FORKED);
	if (check_attributes(ctx, attr, &sgid) || object_count(ctx, KIND_AH))
		return NULL;
	ah = calloc(1, sizeof(*ah));
	if (!ah) {
		object_uncount(ctx, KIND_AH);
		return refuse_null(ctx, ENOMEM, CAUSE_NO_MEMORY);
	}
	ah->handle = (struct nic_ah_handle){
		.ah = { .context = pd->context, .pd = pd },
		.nic = {
			.pd = to_pd(pd)->number,
			.dgid = attr->grh.dgid,
			.sgid = sgid,
			.flow_label = attr->grh.flow_label,
			.sgid_index = attr->grh.sgid_index,
			.hop_limit = attr->grh.hop_limit,
			.traffic_class = attr->grh.traffic_class,
			.sl = attr->sl,
		},
	};
	atomic_fetch_add(&to_pd(pd)->users, 1);
	object_enter(ctx, KIND_AH, &ah->of_ctx);
	return &ah->handle.ah;
}

int verb_destroy_ah(struct ibv_ah *handle)
{
	struct verbs_ah *ah = (struct verbs_ah *)handle;

	atomic_fetch_sub(&to_pd(handle->pd)->users, 1);
	object_leave(to_ctx(handle->context), KIND_AH, &ah->of_ctx);
	free(ah);
	return 0;
}

void ah_abandon(struct list *of_ctx)
{
	struct verbs_ah *ah = list_entry(of_ctx, struct verbs_ah, of_ctx);

	object_uncount(to_ctx(ah->handle.ah.context), KIND_AH);
	free(ah);
}

static bool checksum_is_right(const struct iphdr *header)
{
	uint32_t sum = 0;
	uint16_t words[sizeof(*header) / 2];

	memcpy(words, header, sizeof(words));
	for (unsigned i = 0; i < sizeof(words) / 2; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return ((sum & 0xffff) + (sum >> 16)) == 0xffff;
}

/* The IPv4 header at the end of grh; false when it is an IPv6 header. The bytes before an IPv4 header are undefined and
 * may look like IPv6: then the checksum decides. */
static bool get_ipv4_header(const struct ibv_grh *grh, struct iphdr *header)
{
	memcpy(header, (const char *)grh + sizeof(*grh) - sizeof(*header), sizeof(*header));
	if (header->version != 4 || header->ihl != 5)
		return false;
	return be32toh(grh->version_tclass_flow) >> 28 != 6 || checksum_is_right(header);
}

/* The reply comes from the address that the message went to. */
static int reply_from(struct verbs_ctx *ctx, const union ibv_gid *gid, struct ibv_ah_attr *attr)
{
	int index = gid_table_find(&ctx->device->gids, gid);

	if (index < 0) {
		refuse(ctx, EINVAL, CAUSE_BAD_SGID_INDEX, .limit = ctx->device->gids.count);
		return -1;
	}
	attr->grh.sgid_index = (uint8_t)index;
	return 0;
}

int verb_init_ah_from_wc(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
			 struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	struct verbs_ctx *ctx = to_ctx(context);
	uint32_t version_tclass_flow;
	struct iphdr ipv4;
	union ibv_gid ours;

	*attr = (struct ibv_ah_attr){
		.dlid = wc->slid,
		.sl = wc->sl,
		.src_path_bits = wc->dlid_path_bits,
		.port_num = port_num,
	};
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	attr->is_global = 1;
	if (get_ipv4_header(grh, &ipv4)) {
		attr->grh.dgid = gid_from_ipv4(ipv4.saddr);
		attr->grh.hop_limit = ipv4.ttl;
		attr->grh.traffic_class = ipv4.tos;
		ours = gid_from_ipv4(ipv4.daddr);
		return reply_from(ctx, &ours, attr);
	}
	version_tclass_flow = be32toh(grh->version_tclass_flow);
	if (version_tclass_flow >> 28 != 6) {
		refuse(ctx, EPROTONOSUPPORT, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_AH_GRH, .limit = 6,
		       .value = version_tclass_flow >> 28);
		return -1;
	}
	attr->grh.dgid = grh->sgid;
	attr->grh.flow_label = version_tclass_flow & 0xfffff;
	attr->grh.hop_limit = grh->hop_limit;
	attr->grh.traffic_class = version_tclass_flow >> 20 & 0xff;
	return reply_from(ctx, &grh->dgid, attr);
}

struct ibv_ah *verb_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
				      uint8_t port_num)
{
	struct ibv_ah_attr attr;

	if (verb_init_ah_from_wc(pd->context, port_num, wc, grh, &attr))
		return NULL;
	return verb_create_ah(pd, &attr);
}
