/* SPDX-License-Identifier: MIT */
/* Objects: what may be made, in which order they may go, and what is left of them after close and fork. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/ip.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

struct bench {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
};

static int set_up(void **state)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	struct ibv_device **list = ibv_get_device_list(NULL);

	assert_non_null(bench);
	assert_non_null(list);
	bench->context = ibv_open_device(list[0]);
	assert_non_null(bench->context);
	ibv_free_device_list(list);
	bench->pd = ibv_alloc_pd(bench->context);
	assert_non_null(bench->pd);
	bench->cq = ibv_create_cq(bench->context, 16, bench, NULL, 0);
	assert_non_null(bench->cq);
	*state = bench;
	return 0;
}

static int tear_down(void **state)
{
	struct bench *bench = *state;

	assert_int_equal(ibv_destroy_cq(bench->cq), 0);
	assert_int_equal(ibv_dealloc_pd(bench->pd), 0);
	assert_int_equal(ibv_close_device(bench->context), 0);
	free(bench);
	return 0;
}

static struct ibv_qp_init_attr qp_attr(const struct bench *bench, enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = bench->cq,
		.recv_cq = bench->cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2 },
		.qp_type = type,
	};
}

static struct ibv_srq *make_srq(const struct bench *bench)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 8, .max_sge = 2 } };

	return ibv_create_srq(bench->pd, &attr);
}

static struct ibv_ah_attr ah_attr(const struct bench *bench)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };

	assert_int_equal(ibv_query_gid(bench->context, 1, 0, &attr.grh.dgid), 0);
	return attr;
}

#define REFUSED(call, error)                    \
	do {                                    \
		errno = 0;                      \
		assert_null(call);              \
		assert_int_equal(errno, error); \
	} while (0)

static void pd_is_busy_while_anything_uses_it(void **state)
{
	struct bench *bench = *state;
	struct ibv_pd *pd = ibv_alloc_pd(bench->context);
	struct ibv_qp_init_attr attr = qp_attr(bench, IBV_QPT_RC);
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_ah_attr address = ah_attr(bench);
	char memory[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_attr);
	struct ibv_ah *ah = ibv_create_ah(pd, &address);

	assert_true(mr && qp && srq && ah);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void queues_are_busy_while_a_qp_uses_them(void **state)
{
	struct bench *bench = *state;
	struct ibv_qp_init_attr attr = qp_attr(bench, IBV_QPT_RC);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(bench->context);
	struct ibv_cq *cq = ibv_create_cq(bench->context, 1, NULL, channel, 0);
	struct ibv_srq *srq = make_srq(bench);
	struct ibv_qp *qp;

	assert_true(channel && cq && srq);
	assert_int_equal(channel->refcnt, 1);
	attr.recv_cq = cq;
	attr.srq = srq;
	qp = ibv_create_qp(bench->pd, &attr);
	assert_non_null(qp);
	assert_int_equal(ibv_destroy_cq(cq), EBUSY);
	assert_int_equal(ibv_destroy_srq(srq), EBUSY);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), EBUSY);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(channel), 0);
}

static void cq_sizes_and_vectors_have_bounds(void **state)
{
	struct bench *bench = *state;
	struct ibv_device_attr attr;
	struct ibv_cq *cq;

	assert_int_equal(ibv_query_device(bench->context, &attr), 0);
	REFUSED(ibv_create_cq(bench->context, 0, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(bench->context, -1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(bench->context, attr.max_cqe + 1, NULL, NULL, 0), EINVAL);
	REFUSED(ibv_create_cq(bench->context, 1, NULL, NULL, bench->context->num_comp_vectors),
		EINVAL);
	REFUSED(ibv_create_cq(bench->context, 1, NULL, NULL, -1), EINVAL);
	cq = ibv_create_cq(bench->context, 100, bench, NULL, 0);
	assert_non_null(cq);
	assert_true(cq->cqe >= 100);
	assert_ptr_equal(cq->cq_context, bench);
	assert_int_equal(ibv_resize_cq(cq, 5000), 0);
	assert_true(cq->cqe >= 5000);
	assert_int_equal(ibv_resize_cq(cq, 0), EINVAL);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void extended_cq_is_empty_at_first(void **state)
{
	struct bench *bench = *state;
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 10,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
	};
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(bench->context, &attr);

	assert_non_null(cq);
	assert_int_equal(ibv_start_poll(cq, &poll), ENOENT);
	poll.comp_mask = 1;
	assert_int_equal(ibv_start_poll(cq, &poll), EINVAL);
	assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);

	attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	REFUSED(ibv_create_cq_ex(bench->context, &attr), EOPNOTSUPP);
	attr.flags = 0;
	attr.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
	REFUSED(ibv_create_cq_ex(bench->context, &attr), EOPNOTSUPP);
}

static void access_flags_have_rules(void **state)
{
	struct bench *bench = *state;
	char memory[4096];
	struct ibv_mr *mr;

	REFUSED(ibv_reg_mr(bench->pd, memory, sizeof(memory), IBV_ACCESS_REMOTE_WRITE), EINVAL);
	REFUSED(ibv_reg_mr(bench->pd, memory, sizeof(memory), IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	REFUSED(ibv_reg_mr(bench->pd, memory, sizeof(memory), 1 << 15), EINVAL);
	REFUSED(ibv_reg_mr(bench->pd, memory, sizeof(memory),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND),
		EOPNOTSUPP);
	mr = ibv_reg_mr(bench->pd, memory, sizeof(memory), IBV_ACCESS_MW_BIND);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr(bench->pd, memory, sizeof(memory),
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING);
	assert_non_null(mr);
	assert_ptr_equal(mr->addr, memory);
	assert_int_equal(mr->length, sizeof(memory));
	assert_ptr_equal(mr->pd, bench->pd);
	assert_int_not_equal(mr->lkey, mr->rkey);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS << 1, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 100, 200, 0), 0);
	assert_ptr_equal(mr->addr, memory + 100);
	assert_int_equal(mr->length, 200);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void qp_capabilities_have_bounds(void **state)
{
	struct bench *bench = *state;
	struct ibv_device_attr limits;
	struct ibv_qp_init_attr attr;
	struct ibv_qp *qp;

	assert_int_equal(ibv_query_device(bench->context, &limits), 0);
#define TOO_MUCH(member, value)                                   \
	do {                                                      \
		attr = qp_attr(bench, IBV_QPT_RC);                \
		attr.cap.member = (uint32_t)(value);              \
		REFUSED(ibv_create_qp(bench->pd, &attr), EINVAL); \
	} while (0)
	TOO_MUCH(max_send_wr, limits.max_qp_wr + 1);
	TOO_MUCH(max_recv_wr, limits.max_qp_wr + 1);
	TOO_MUCH(max_send_sge, limits.max_sge + 1);
	TOO_MUCH(max_recv_sge, limits.max_sge + 1);
	TOO_MUCH(max_inline_data, -1);
	attr = qp_attr(bench, IBV_QPT_RAW_PACKET);
	REFUSED(ibv_create_qp(bench->pd, &attr), EOPNOTSUPP);
	attr = qp_attr(bench, IBV_QPT_RC);
	attr.send_cq = NULL;
	REFUSED(ibv_create_qp(bench->pd, &attr), EINVAL);
	attr = qp_attr(bench, IBV_QPT_RC);
	attr.cap.max_inline_data = 1024;
	qp = ibv_create_qp(bench->pd, &attr);
	assert_non_null(qp);
	assert_true(attr.cap.max_send_wr >= 4 && attr.cap.max_recv_wr >= 4 &&
		    attr.cap.max_inline_data >= 1024);
	assert_int_equal(qp->state, IBV_QPS_RESET);
	assert_null(ibv_qp_to_qp_ex(qp));
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void send_operations_are_those_of_the_type(void **state)
{
	static const struct {
		enum ibv_qp_type type;
		uint64_t operation;
		int supported;
	} cases[] = {
		{ IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_READ, 1 },
		{ IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, 1 },
		{ IBV_QPT_RC, IBV_QP_EX_WITH_SEND_WITH_INV, 1 },
		{ IBV_QPT_RC, IBV_QP_EX_WITH_BIND_MW, 1 },
		{ IBV_QPT_UC, IBV_QP_EX_WITH_LOCAL_INV, 1 },
		{ IBV_QPT_UC, IBV_QP_EX_WITH_SEND_WITH_INV, 0 },
		{ IBV_QPT_UD, IBV_QP_EX_WITH_BIND_MW, 0 },
		{ IBV_QPT_RC, IBV_QP_EX_WITH_TSO, 0 },
		{ IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE, 0 },
		{ IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_WRITE, 1 },
		{ IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ, 0 },
		{ IBV_QPT_UD, IBV_QP_EX_WITH_SEND_WITH_IMM, 1 },
		{ IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE, 0 },
	};
	struct bench *bench = *state;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ibv_qp_init_attr plain = qp_attr(bench, cases[i].type);
		struct ibv_qp_init_attr_ex attr = { 0 };
		struct ibv_qp *qp;

		memcpy(&attr, &plain, sizeof(plain));
		attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.pd = bench->pd;
		attr.send_ops_flags = cases[i].operation;
		if (!cases[i].supported) {
			REFUSED(ibv_create_qp_ex(bench->context, &attr), EOPNOTSUPP);
			continue;
		}
		qp = ibv_create_qp_ex(bench->context, &attr);
		assert_non_null(qp);
		assert_ptr_equal(ibv_qp_to_qp_ex(qp), qp);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
}

static void posting_what_was_not_asked_for_fails_the_batch(void **state)
{
	struct bench *bench = *state;
	struct ibv_qp_init_attr plain = qp_attr(bench, IBV_QPT_RC);
	struct ibv_qp_init_attr_ex attr = { 0 };
	struct ibv_qp_ex *qp;

	memcpy(&attr, &plain, sizeof(plain));
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.pd = bench->pd;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
	qp = ibv_qp_to_qp_ex(ibv_create_qp_ex(bench->context, &attr));
	assert_non_null(qp);
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, 1, 2);
	ibv_wr_set_sge(qp, 1, 2, 3);
	assert_int_equal(ibv_wr_complete(qp), EINVAL);
	/* in RESET nothing can be sent */
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	assert_int_equal(ibv_wr_complete(qp), EINVAL);
	ibv_wr_start(qp);
	ibv_wr_abort(qp);
	assert_int_equal(ibv_destroy_qp(&qp->qp_base), 0);
}

static void query_tells_what_the_qp_was_made_with(void **state)
{
	struct bench *bench = *state;
	struct ibv_qp_init_attr attr = qp_attr(bench, IBV_QPT_UD), found;
	struct ibv_qp_attr values = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234 };
	struct ibv_qp *qp;

	attr.qp_context = bench;
	attr.sq_sig_all = 1;
	qp = ibv_create_qp(bench->pd, &attr);
	assert_non_null(qp);
	assert_int_equal(ibv_modify_qp(qp, &values,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					       IBV_QP_QKEY),
			 0);
	assert_int_equal(qp->state, IBV_QPS_INIT);
	memset(&values, 0xee, sizeof(values));
	assert_int_equal(ibv_query_qp(qp, &values, IBV_QP_STATE | IBV_QP_QKEY, &found), 0);
	assert_int_equal(values.qp_state, IBV_QPS_INIT);
	assert_int_equal(values.qkey, 0x1234);
	assert_ptr_equal(found.qp_context, bench);
	assert_ptr_equal(found.send_cq, bench->cq);
	assert_int_equal(found.qp_type, IBV_QPT_UD);
	assert_int_equal(found.sq_sig_all, 1);
	assert_memory_equal(&found.cap, &attr.cap, sizeof(attr.cap));
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void srq_has_bounds_and_a_limit(void **state)
{
	struct bench *bench = *state;
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 0, .max_sge = 1 } };
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad;
	struct ibv_srq_attr values;
	struct ibv_srq *srq;
	uint32_t number;

	REFUSED(ibv_create_srq(bench->pd, &attr), EINVAL);
	attr.attr.max_wr = 1u << 30;
	REFUSED(ibv_create_srq(bench->pd, &attr), EINVAL);
	srq = make_srq(bench);
	assert_non_null(srq);
	assert_int_equal(ibv_get_srq_num(srq, &number), EOPNOTSUPP);
	for (int i = 0; i < 5; i++) /* an SRQ below its limit tells so at once */
		assert_int_equal(ibv_post_srq_recv(srq, &receive, &bad), 0);
	values = (struct ibv_srq_attr){ .srq_limit = 3 };
	assert_int_equal(ibv_modify_srq(srq, &values, IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_query_srq(srq, &values), 0);
	assert_int_equal(values.srq_limit, 3);
	assert_true(values.max_wr >= 8 && values.max_sge >= 2);
	assert_int_equal(ibv_modify_srq(srq, &values, IBV_SRQ_MAX_WR), EINVAL);
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

static void address_handle_needs_a_route(void **state)
{
	struct bench *bench = *state;
	struct ibv_ah_attr attr = ah_attr(bench);

	attr.is_global = 0;
	REFUSED(ibv_create_ah(bench->pd, &attr), EINVAL);
	attr = ah_attr(bench);
	attr.grh.sgid_index = 255;
	REFUSED(ibv_create_ah(bench->pd, &attr), EINVAL);
	attr = ah_attr(bench);
	attr.port_num = 2;
	REFUSED(ibv_create_ah(bench->pd, &attr), EINVAL);
	attr = ah_attr(bench);
	memset(&attr.grh.dgid, 0, sizeof(attr.grh.dgid));
	REFUSED(ibv_create_ah(bench->pd, &attr), EINVAL);
}

/* The GID's index and the GID itself of a family; -1 when the host has none. */
static int find_gid(const struct bench *bench, int ipv4, union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entries[256];
	ssize_t count = ibv_query_gid_table(bench->context, entries, 256, 0);

	for (int i = 0; i < count; i++) {
		*gid = entries[i].gid;
		if (!memcmp(gid, mapped, sizeof(mapped)) == !!ipv4)
			return i;
	}
	return -1;
}

static void reply_goes_back_over_ipv4(void **state)
{
	struct bench *bench = *state;
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .sl = 3 };
	struct ibv_ah_attr attr;
	union ibv_gid ours;
	int index = find_gid(bench, 1, &ours);
	/* what stands before the IPv4 header is undefined */
	union {
		struct ibv_grh grh;
		uint8_t bytes[40];
	} header = { .bytes = { [0] = 0x40 } };
	struct iphdr ip = {
		.version = 4, .ihl = 5, .tos = 0x20, .ttl = 17, .protocol = IPPROTO_UDP
	};
	struct ibv_ah *ah;

	if (index < 0) {
		puts("skipped: no GID of IPv4");
		skip();
	}
	ip.saddr = inet_addr("198.51.100.7");
	memcpy(&ip.daddr, ours.raw + 12, 4);
	memcpy(header.bytes + 20, &ip, sizeof(ip));
	assert_int_equal(ibv_init_ah_from_wc(bench->context, 1, &wc, &header.grh, &attr), 0);
	assert_int_equal(attr.is_global, 1);
	assert_int_equal(attr.grh.sgid_index, index);
	assert_int_equal(attr.grh.hop_limit, 17);
	assert_int_equal(attr.grh.traffic_class, 0x20);
	assert_int_equal(attr.sl, 3);
	assert_memory_equal(attr.grh.dgid.raw + 12, &ip.saddr, 4);
	assert_int_equal(attr.grh.dgid.raw[11], 0xff);
	ah = ibv_create_ah_from_wc(bench->pd, &wc, &header.grh, 1);
	assert_non_null(ah);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void reply_goes_back_over_ipv6(void **state)
{
	struct bench *bench = *state;
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	struct ibv_ah_attr attr;
	struct ibv_grh grh = { .version_tclass_flow = htobe32(0x65912345),
			       .next_hdr = IPPROTO_UDP,
			       .hop_limit = 9 };
	int index = find_gid(bench, 0, &grh.dgid);

	if (index < 0) {
		puts("skipped: no GID of IPv6");
		skip();
	}
	grh.sgid.raw[0] = 0xfd;
	grh.sgid.raw[15] = 9;
	assert_int_equal(ibv_init_ah_from_wc(bench->context, 1, &wc, &grh, &attr), 0);
	assert_int_equal(attr.grh.sgid_index, index);
	assert_int_equal(attr.grh.flow_label, 0x12345);
	assert_int_equal(attr.grh.traffic_class, 0x59);
	assert_int_equal(attr.grh.hop_limit, 9);
	assert_memory_equal(&attr.grh.dgid, &grh.sgid, sizeof(grh.sgid));
}

static void closing_takes_along_what_was_left(void **state)
{
	struct bench *bench = *state;
	struct ibv_context *context = ibv_open_device(bench->context->device);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct bench left = { context, ibv_alloc_pd(context),
			      ibv_create_cq(context, 4, NULL, channel, 0) };
	struct ibv_qp_init_attr attr = qp_attr(&left, IBV_QPT_RC);
	struct ibv_ah_attr address = ah_attr(&left);
	char memory[64];

	attr.srq = make_srq(&left);
	assert_non_null(attr.srq);
	assert_non_null(ibv_create_qp(left.pd, &attr));
	assert_non_null(ibv_reg_mr(left.pd, memory, sizeof(memory), 0));
	assert_non_null(ibv_create_ah(left.pd, &address));
	assert_int_equal(ibv_close_device(context), 0);
}

/* In a child: the process's exit status names the line that went wrong, 0 none. */
#define CHILD_EXPECTS(condition)                \
	do {                                    \
		if (!(condition))               \
			_exit(__LINE__ & 0xff); \
	} while (0)

__attribute__((unused)) static void own_device(struct ibv_device *device, uint32_t other_qpn)
{
	struct ibv_context *context = ibv_open_device(device);

	CHILD_EXPECTS(context);
	struct bench own = { context, ibv_alloc_pd(context),
			     ibv_create_cq(context, 4, NULL, NULL, 0) };
	CHILD_EXPECTS(own.pd && own.cq);
	struct ibv_qp_init_attr init = qp_attr(&own, IBV_QPT_RC);
	struct ibv_qp *own_qp = ibv_create_qp(own.pd, &init);

	CHILD_EXPECTS(own_qp && own_qp->qp_num != other_qpn);
	CHILD_EXPECTS(!ibv_destroy_qp(own_qp) && !ibv_destroy_cq(own.cq) &&
		      !ibv_dealloc_pd(own.pd));
	CHILD_EXPECTS(!ibv_close_device(context));
}

static void in_the_child(struct bench *bench, struct ibv_qp *qp, struct ibv_mr *mr,
			 struct ibv_srq *srq)
{
	struct ibv_recv_wr receive = { .num_sge = 0 }, *bad_receive;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct ibv_wc wc;

	CHILD_EXPECTS(ibv_post_send(qp, &send, &bad_send) == EIO && bad_send == &send);
	CHILD_EXPECTS(ibv_post_recv(qp, &receive, &bad_receive) == EIO && bad_receive == &receive);
	CHILD_EXPECTS(ibv_post_srq_recv(srq, &receive, &bad_receive) == EIO);
	CHILD_EXPECTS(ibv_poll_cq(bench->cq, 1, &wc) == -1);
	CHILD_EXPECTS(ibv_req_notify_cq(bench->cq, 0) == EIO);
	CHILD_EXPECTS(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EIO);
	CHILD_EXPECTS(!ibv_alloc_pd(bench->context) && errno == EIO);
	CHILD_EXPECTS(!ibv_reg_mr(bench->pd, &wc, sizeof(wc), 0) && errno == EIO);

#ifndef __SANITIZE_THREAD__ /* no new threads in the child of a process that had some */
	own_device(bench->context->device, qp->qp_num);
#endif

	CHILD_EXPECTS(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_dereg_mr(mr));
	CHILD_EXPECTS(!ibv_destroy_cq(bench->cq) && !ibv_dealloc_pd(bench->pd) &&
		      !ibv_close_device(bench->context));
	_exit(0);
}

static void child_is_refused_and_parent_goes_on(void **state)
{
	struct bench *bench = *state;
	struct ibv_qp_init_attr attr = qp_attr(bench, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(bench->pd, &attr);
	struct ibv_qp_attr values = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_srq *srq = make_srq(bench);
	char memory[64];
	struct ibv_mr *mr = ibv_reg_mr(bench->pd, memory, sizeof(memory), 0);
	int status;
	pid_t child;

	assert_true(qp && srq && mr);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		in_the_child(bench, qp, mr, srq);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(ibv_modify_qp(qp, &values,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS),
			 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
}

#define ON_BENCH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BENCH(pd_is_busy_while_anything_uses_it),
		ON_BENCH(queues_are_busy_while_a_qp_uses_them),
		ON_BENCH(cq_sizes_and_vectors_have_bounds),
		ON_BENCH(extended_cq_is_empty_at_first),
		ON_BENCH(access_flags_have_rules),
		ON_BENCH(qp_capabilities_have_bounds),
		ON_BENCH(send_operations_are_those_of_the_type),
		ON_BENCH(posting_what_was_not_asked_for_fails_the_batch),
		ON_BENCH(query_tells_what_the_qp_was_made_with),
		ON_BENCH(srq_has_bounds_and_a_limit),
		ON_BENCH(address_handle_needs_a_route),
		ON_BENCH(reply_goes_back_over_ipv4),
		ON_BENCH(reply_goes_back_over_ipv6),
		ON_BENCH(closing_takes_along_what_was_left),
		ON_BENCH(child_is_refused_and_parent_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
