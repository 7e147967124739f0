/* SPDX-License-Identifier: MIT */
/*
 * Contexts: opening and closing the device, the table of operations that the inline functions of verbs.h jump through,
 * and what the device says of itself. All contexts of a process share its one NIC.
 *
 * The table is part of the binary interface: verbs_context stands before ibv_context, with its size in front of it, and
 * what we do not have stays NULL, which the inline functions answer with EOPNOTSUPP.
 */
#include "verbs/verbs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nic/descriptor.h"
#include "roce/group.h"

EXPORT(open_device, 1.1);
EXPORT(close_device, 1.1);
EXPORT(query_device, 1.1);

/* Locally administered, so that no client takes us for a NIC that it knows. */
#define VENDOR_ID	   0x02726f
#define VENDOR_PART_ID	   1
#define MAX_MR_SIZE	   (1ULL << 47)
#define PAGE_SIZES	   0xfffffffffffff000ULL
#define CLOCK_KHZ	   1000000 /* timestamps count nanoseconds */
#define LOCAL_CA_ACK_DELAY 13 /* 4.096 us * 2^13 = 34 ms: how long a process may wait for a CPU */

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	return refuse(to_ctx(xrcd->context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_XRCD);
}

static struct ibv_flow *create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
	(void)attr;
	return refuse_null(to_ctx(qp->context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_FLOW, .qpn = qp->qp_num);
}

static int destroy_flow(struct ibv_flow *flow)
{
	return refuse(to_ctx(flow->context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_FLOW);
}

static void fill_device_attr(const struct verbs_ctx *ctx, struct ibv_device_attr *attr)
{
	const struct nic_limits *limits = ctx->limits;
	unsigned windows = limits->windows ? IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B : 0;

	*attr = (struct ibv_device_attr){
		.fw_ver = UROCE_VERSION,
		.node_guid = ctx->device->node_guid,
		.sys_image_guid = ctx->device->sys_image_guid,
		.max_mr_size = MAX_MR_SIZE,
		.page_size_cap = PAGE_SIZES,
		.vendor_id = VENDOR_ID,
		.vendor_part_id = VENDOR_PART_ID,
		.max_qp = (int)limits->max_qp,
		.max_qp_wr = (int)limits->max_qp_wr,
		.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SYS_IMAGE_GUID |
				    IBV_DEVICE_RC_RNR_NAK_GEN | windows,
		.max_sge = (int)limits->max_sge,
		.max_sge_rd = (int)limits->max_sge_rd,
		.max_cq = (int)limits->max_cq,
		.max_cqe = (int)limits->max_cqe,
		.max_mr = (int)limits->max_mr,
		.max_mw = (int)limits->max_mw,
		.max_pd = (int)limits->max_pd,
		.max_qp_rd_atom = (int)limits->max_rd_atomic,
		.max_res_rd_atom = (int)(limits->max_rd_atomic * limits->max_qp),
		.max_qp_init_rd_atom = (int)limits->max_init_rd_atomic,
		.atomic_cap = limits->atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE,
		.max_mcast_grp = GROUPS_MOST,
		.max_mcast_qp_attach = GROUP_MEMBERS_MOST,
		.max_total_mcast_qp_attach = GROUPS_MOST * GROUP_MEMBERS_MOST,
		.max_ah = (int)limits->max_ah,
		.max_srq = (int)limits->max_srq,
		.max_srq_wr = (int)limits->max_srq_wr,
		.max_srq_sge = (int)limits->max_srq_sge,
		.max_pkeys = 1,
		.local_ca_ack_delay = LOCAL_CA_ACK_DELAY,
		.phys_port_cnt = 1,
	};
}

int verb_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	fill_device_attr(to_ctx(context), attr);
	return 0;
}

/* attr_size is the caller's sizeof: an older or newer structure than ours. */
static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct verbs_ctx *ctx = to_ctx(context);
	struct ibv_device_attr_ex full = {
		.completion_timestamp_mask = UINT64_MAX,
		.hca_core_clock = CLOCK_KHZ,
		.phys_port_cnt_ex = 1,
	};

	if (input && input->comp_mask)
		return refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_QUERY_INPUT, .value = input->comp_mask);
	if (attr_size < sizeof(full.orig_attr))
		return refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_QUERY_SIZE, .value = attr_size);
	fill_device_attr(ctx, &full.orig_attr);
	full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
	memset(attr, 0, attr_size);
	memcpy(attr, &full, attr_size < sizeof(full) ? attr_size : sizeof(full));
	return 0;
}

/* The clock of the completions' timestamps. As libmlx5 does it, the count stands in tv_nsec alone. */
static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	if (values->comp_mask & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK)
		return refuse(to_ctx(context), EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_RT_VALUES,
			      .value = values->comp_mask);
	if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK)
		values->raw_clock = (struct timespec){ .tv_nsec = (long)nic_wall_clock() };
	return 0;
}

static void fill_operations(struct verbs_ctx *ctx)
{
	struct verbs_context *vctx = &ctx->vctx;
	struct ibv_context_ops *ops = &vctx->context.ops;

	vctx->sz = sizeof(*vctx);
	vctx->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	vctx->query_port = query_port;
	vctx->query_device_ex = query_device_ex;
	vctx->query_rt_values = query_rt_values;
	vctx->create_cq_ex = create_cq_ex;
	vctx->create_qp_ex = create_qp_ex;
	vctx->create_srq_ex = create_srq_ex;
	vctx->get_srq_num = get_srq_num;
	vctx->close_xrcd = close_xrcd;
	vctx->ibv_create_flow = create_flow;
	vctx->ibv_destroy_flow = destroy_flow;
	/* Programs built before rdma-core 1.1.8 look for the two here. */
	vctx->ABI_placeholder1 = (void (*)(void))create_flow;
	vctx->ABI_placeholder2 = (void (*)(void))destroy_flow;

	ops->_compat_query_device = verb_query_device;
	ops->_compat_query_port = verb_query_port;
	ops->alloc_mw = alloc_mw;
	ops->bind_mw = bind_mw;
	ops->dealloc_mw = dealloc_mw;
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
	ops->post_srq_recv = post_srq_recv;
	ops->post_send = ctx->limits->atomics ? post_send : post_send_without_atomics;
	ops->post_recv = post_recv;
}

/* What a card tells of its port, when the host's addresses changed. */
static void addresses_changed(struct address_watcher *watcher)
{
	struct verbs_ctx *ctx = (struct verbs_ctx *)((char *)watcher - offsetof(struct verbs_ctx, watcher));
	struct gid_table *gids = &ctx->device->gids;
	struct ibv_async_event event = { .element.port_num = 1 };
	bool up;

	gid_table_update(gids, ctx->device->interfaces);
	up = gids->present;
	if (ctx->gid_changes != gids->changes) {
		event.event_type = IBV_EVENT_GID_CHANGE;
		nic_event_raise(&ctx->events, &event);
	}
	if (ctx->up != up) {
		event.event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
		nic_event_raise(&ctx->events, &event);
	}
	ctx->gid_changes = gids->changes;
	ctx->up = up;
}

static void watch_addresses(struct verbs_ctx *ctx)
{
	ctx->gid_changes = ctx->device->gids.changes;
	ctx->up = ctx->device->gids.present;
	ctx->watcher.changed = addresses_changed;
	gid_update_local();
	addresses_watch(ctx->nic, &ctx->watcher);
}

struct ibv_context *verb_open_device(struct ibv_device *device)
{
	struct verbs_ctx *ctx = calloc(1, sizeof(*ctx));
	struct ibv_context *context = ctx ? &ctx->vctx.context : NULL;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	const char *why = NULL;
	int error;

	if (!ctx)
		return NULL;
	ctx->device = to_device(device);
	ctx->limits = nic_limits();
	device_hold(ctx->device);
	ctx->nic = nic_open(&why);
	if (!ctx->nic) {
		error = errno;
		verbs_log_error("%s: cannot be opened: %s: %s", device->name, why ? why : "",
				strerror(error));
		goto no_nic;
	}
	nic_name_device(ctx->nic, device->name);
	error = nic_event_queue_init(&ctx->events);
	if (error)
		goto no_events;
	ctx->events.handed_out = event_handed_out;
	/* Nothing is read or written here, but programs pass it on, duplicate and stat it. */
	context->cmd_fd = descriptor_keep(memfd_create(device->name, MFD_CLOEXEC));
	if (context->cmd_fd < 0) {
		error = errno;
		goto no_cmd_fd;
	}

	context->device = device;
	context->async_fd = ctx->events.fd;
	/* Vectors spread interrupts over CPUs; events here wake their thread wherever it is, so any number will do. */
	context->num_comp_vectors = cpus > 0 ? (int)cpus : 1;
	pthread_mutex_init(&context->mutex, NULL);
	for (unsigned kind = 0; kind < KINDS; kind++)
		list_init(&ctx->objects[kind]);
	list_init(&ctx->channels);
	fill_operations(ctx);
	/* Reads the host's addresses now: when a QP needs them there may be no descriptor left to ask with. */
	watch_addresses(ctx);
	return context;

no_cmd_fd:
	nic_event_queue_destroy(&ctx->events);
no_events:
	refuse(ctx, error, CAUSE_DEVICE_OPEN);
	nic_close(ctx->nic);
no_nic:
	device_release(ctx->device);
	free(ctx);
	errno = error;
	return NULL;
}

static void abandon_all(struct list *head, void (*abandon)(struct list *of_ctx))
{
	while (!list_empty(head)) {
		struct list *node = head->next;

		list_del(node);
		abandon(node);
	}
}

/* What the program did not destroy goes with the context, users before what they use, as it does when the kernel's file
 * is closed. */
static void abandon_objects(struct verbs_ctx *ctx)
{
	abandon_all(&ctx->objects[KIND_QP], qp_abandon);
	abandon_all(&ctx->objects[KIND_SRQ], srq_abandon);
	abandon_all(&ctx->objects[KIND_CQ], cq_abandon);
	abandon_all(&ctx->objects[KIND_MW], mw_abandon);
	abandon_all(&ctx->objects[KIND_MR], mr_abandon);
	abandon_all(&ctx->objects[KIND_AH], ah_abandon);
	abandon_all(&ctx->objects[KIND_PD], pd_abandon);
	abandon_all(&ctx->channels, channel_abandon);
}

int verb_close_device(struct ibv_context *context)
{
	struct verbs_ctx *ctx = to_ctx(context);

	if (is_forked(ctx)) {
		nic_tokens_close(context->async_fd);
	} else {
		addresses_ignore(ctx->nic, &ctx->watcher);
		abandon_objects(ctx);
		nic_event_queue_destroy(&ctx->events);
		pthread_mutex_destroy(&context->mutex);
	}
	descriptor_close(context->cmd_fd);
	nic_close(ctx->nic);
	device_release(ctx->device);
	free(ctx);
	return 0;
}
