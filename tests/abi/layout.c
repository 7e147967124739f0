/* SPDX-License-Identifier: MIT */
/*
 * Sizes and offsets that programs of Debian 12 (rdma-core 44.0, amd64) were compiled with. Compiling this is the test: it
 * fails where the headers that we build with have other ones.
 */
#include <infiniband/verbs.h>

#ifdef __x86_64__

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), "size of " #type)
#define OFFSET(type, member, bytes) \
	_Static_assert(offsetof(struct type, member) == (bytes), #type "." #member)

SIZE(ibv_device, 664);
OFFSET(ibv_device, node_type, 16);
OFFSET(ibv_device, transport_type, 20);
OFFSET(ibv_device, name, 24);
OFFSET(ibv_device, dev_name, 88);
OFFSET(ibv_device, dev_path, 152);
OFFSET(ibv_device, ibdev_path, 408);

SIZE(ibv_context_ops, 256);
OFFSET(ibv_context_ops, alloc_mw, 56);
OFFSET(ibv_context_ops, bind_mw, 64);
OFFSET(ibv_context_ops, dealloc_mw, 72);
OFFSET(ibv_context_ops, poll_cq, 88);
OFFSET(ibv_context_ops, req_notify_cq, 96);
OFFSET(ibv_context_ops, post_srq_recv, 160);
OFFSET(ibv_context_ops, post_send, 200);
OFFSET(ibv_context_ops, post_recv, 208);

SIZE(ibv_context, 328);
OFFSET(ibv_context, ops, 8);
OFFSET(ibv_context, cmd_fd, 264);
OFFSET(ibv_context, async_fd, 268);
OFFSET(ibv_context, num_comp_vectors, 272);
OFFSET(ibv_context, mutex, 280);
OFFSET(ibv_context, abi_compat, 320);

SIZE(verbs_context, 648);
OFFSET(verbs_context, query_port, 0);
OFFSET(verbs_context, priv, 208);
OFFSET(verbs_context, sz, 312);
OFFSET(verbs_context, context, 320);

SIZE(ibv_pd, 16);
SIZE(ibv_mr, 48);
SIZE(ibv_mw, 32);
SIZE(ibv_cq, 128);
SIZE(ibv_cq_ex, 288);
OFFSET(ibv_cq_ex, comp_mask, 128);
OFFSET(ibv_cq_ex, status, 132);
OFFSET(ibv_cq_ex, wr_id, 136);
OFFSET(ibv_cq_ex, start_poll, 144);
SIZE(ibv_qp, 160);
SIZE(ibv_qp_ex, 352);
OFFSET(ibv_qp_ex, comp_mask, 160);
OFFSET(ibv_qp_ex, wr_id, 168);
OFFSET(ibv_qp_ex, wr_flags, 176);
OFFSET(ibv_qp_ex, wr_start, 320);
OFFSET(ibv_qp_ex, wr_atomic_write, 344);
SIZE(ibv_srq, 128);
SIZE(ibv_wq, 152);
SIZE(ibv_ah, 24);
SIZE(ibv_comp_channel, 16);
SIZE(ibv_wc, 48);
SIZE(ibv_send_wr, 128);
SIZE(ibv_recv_wr, 32);
SIZE(ibv_sge, 16);
SIZE(ibv_device_attr, 232);
SIZE(ibv_device_attr_ex, 400);
SIZE(ibv_port_attr, 52);
SIZE(ibv_qp_attr, 144);
SIZE(ibv_qp_init_attr, 64);
SIZE(ibv_qp_init_attr_ex, 136);
SIZE(ibv_gid_entry, 32);
SIZE(ibv_dm, 32);
SIZE(ibv_td, 8);
SIZE(ibv_xrcd, 8);
SIZE(ibv_flow, 24);
SIZE(ibv_counters, 8);
SIZE(ibv_rwq_ind_table, 24);
SIZE(ibv_async_event, 16);
SIZE(ibv_ece, 12);
SIZE(ibv_srq_init_attr_ex, 64);
SIZE(ibv_grh, 40);
SIZE(ibv_ah_attr, 32);

#endif
