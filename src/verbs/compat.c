/* SPDX-License-Identifier: MIT */
/*
 * Names that have to resolve so that programs and libraries load, and that nobody calls with success.
 *
 * The versions of libibverbs 1.0 stand for structures that have not been since 2008. The private interface is what
 * rdma-core's own provider libraries drive the kernel with; programs load some of them (libmlx5, libefa) to ask whether
 * our device is theirs, which it is not.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "verbs/verbs.h"

#define OLD(name, version, type, value)                                                  \
	__attribute__((visibility("default"), symver("ibv_" #name "@IBVERBS_" version))) \
	type old_##name(void);                                                           \
	type old_##name(void)                                                            \
	{                                                                                \
		errno = ENOSYS;                                                          \
		return value;                                                            \
	}

#define OLD_INT(name)	  OLD(name, "1.0", int, ENOSYS)
#define OLD_POINTER(name) OLD(name, "1.0", void *, NULL)

OLD_INT(ack_async_event)
OLD_INT(ack_cq_events)
OLD_POINTER(alloc_pd)
OLD_INT(attach_mcast)
OLD_INT(close_device)
OLD_POINTER(create_ah)
OLD_POINTER(create_cq)
OLD_POINTER(create_qp)
OLD_POINTER(create_srq)
OLD_INT(dealloc_pd)
OLD_INT(dereg_mr)
OLD_INT(destroy_ah)
OLD_INT(destroy_cq)
OLD_INT(destroy_qp)
OLD_INT(destroy_srq)
OLD_INT(detach_mcast)
OLD_INT(free_device_list)
OLD(get_async_event, "1.0", int, -1)
OLD(get_cq_event, "1.0", int, -1)
OLD(get_device_guid, "1.0", uint64_t, 0)
OLD_POINTER(get_device_list)
OLD_POINTER(get_device_name)
OLD_INT(modify_qp)
OLD_INT(modify_srq)
OLD_POINTER(open_device)
OLD_INT(query_device)
OLD(query_gid, "1.0", int, -1)
OLD(query_pkey, "1.0", int, -1)
OLD_INT(query_port)
OLD_INT(query_qp)
OLD_INT(query_srq)
OLD_POINTER(reg_mr)
OLD_INT(resize_cq)
OLD(register_driver, "1.1", int, ENOSYS)

/* Of the private interface: what a provider calls when it is loaded or gives up. */
EXPORTED bool verbs_allow_disassociate_destroy;

EXPORTED void verbs_register_driver_34(const void *ops)
{
	(void)ops;
}

EXPORTED void verbs_uninit_context(struct verbs_context *context)
{
	(void)context;
}

EXPORTED void *_verbs_init_and_alloc_context(struct ibv_device *device)
{
	(void)device;
	errno = ENOSYS;
	return NULL;
}

EXPORTED struct ibv_context *verbs_open_device(struct ibv_device *device)
{
	(void)device;
	errno = ENOSYS;
	return NULL;
}

EXPORTED int ibv_read_ibdev_sysfs_file(void)
{
	errno = ENOSYS;
	return -1;
}

static int refuse_private(void)
{
	errno = ENOSYS;
	return ENOSYS;
}

#define PRIVATE(name) EXPORTED __attribute__((alias("refuse_private"))) int name(void);

PRIVATE(__ioctl_final_num_attrs)
PRIVATE(execute_ioctl)
PRIVATE(ibv_cmd_advise_mr)
PRIVATE(ibv_cmd_alloc_dm)
PRIVATE(ibv_cmd_alloc_mw)
PRIVATE(ibv_cmd_alloc_pd)
PRIVATE(ibv_cmd_attach_mcast)
PRIVATE(ibv_cmd_close_xrcd)
PRIVATE(ibv_cmd_create_ah)
PRIVATE(ibv_cmd_create_counters)
PRIVATE(ibv_cmd_create_cq)
PRIVATE(ibv_cmd_create_cq_ex)
PRIVATE(ibv_cmd_create_flow)
PRIVATE(ibv_cmd_create_flow_action_esp)
PRIVATE(ibv_cmd_create_qp)
PRIVATE(ibv_cmd_create_qp_ex)
PRIVATE(ibv_cmd_create_qp_ex2)
PRIVATE(ibv_cmd_create_rwq_ind_table)
PRIVATE(ibv_cmd_create_srq)
PRIVATE(ibv_cmd_create_srq_ex)
PRIVATE(ibv_cmd_create_wq)
PRIVATE(ibv_cmd_dealloc_mw)
PRIVATE(ibv_cmd_dealloc_pd)
PRIVATE(ibv_cmd_dereg_mr)
PRIVATE(ibv_cmd_destroy_ah)
PRIVATE(ibv_cmd_destroy_counters)
PRIVATE(ibv_cmd_destroy_cq)
PRIVATE(ibv_cmd_destroy_flow)
PRIVATE(ibv_cmd_destroy_flow_action)
PRIVATE(ibv_cmd_destroy_qp)
PRIVATE(ibv_cmd_destroy_rwq_ind_table)
PRIVATE(ibv_cmd_destroy_srq)
PRIVATE(ibv_cmd_destroy_wq)
PRIVATE(ibv_cmd_detach_mcast)
PRIVATE(ibv_cmd_free_dm)
PRIVATE(ibv_cmd_get_context)
PRIVATE(ibv_cmd_modify_cq)
PRIVATE(ibv_cmd_modify_flow_action_esp)
PRIVATE(ibv_cmd_modify_qp)
PRIVATE(ibv_cmd_modify_qp_ex)
PRIVATE(ibv_cmd_modify_srq)
PRIVATE(ibv_cmd_modify_wq)
PRIVATE(ibv_cmd_open_qp)
PRIVATE(ibv_cmd_open_xrcd)
PRIVATE(ibv_cmd_poll_cq)
PRIVATE(ibv_cmd_post_recv)
PRIVATE(ibv_cmd_post_send)
PRIVATE(ibv_cmd_post_srq_recv)
PRIVATE(ibv_cmd_query_context)
PRIVATE(ibv_cmd_query_device_any)
PRIVATE(ibv_cmd_query_mr)
PRIVATE(ibv_cmd_query_port)
PRIVATE(ibv_cmd_query_qp)
PRIVATE(ibv_cmd_query_srq)
PRIVATE(ibv_cmd_read_counters)
PRIVATE(ibv_cmd_reg_dm_mr)
PRIVATE(ibv_cmd_reg_dmabuf_mr)
PRIVATE(ibv_cmd_reg_mr)
PRIVATE(ibv_cmd_req_notify_cq)
PRIVATE(ibv_cmd_rereg_mr)
PRIVATE(ibv_cmd_resize_cq)
PRIVATE(verbs_init_cq)
PRIVATE(verbs_set_ops)
PRIVATE(ibv_cmd_create_cq_ex2)
