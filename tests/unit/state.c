/* SPDX-License-Identifier: MIT */
/*
 * The state machine of queue pairs: every transition of every type, with each required attribute
 * missing, each superfluous one given, each optional one taken; values; what a refused call leaves.
 * The tables stand here a second time, as the kernel's ib_modify_qp_is_ok() has them
 * (drivers/infiniband/core/verbs.c). /
 */
#include "unit.h"

#include <errno.h>

#include "nic/limits.h"

#define STATES (IBV_QPS_ERR + 1)

struct objects {
	struct nic *nic;
	struct nic_cq cq;
	struct nic_qp qp;
};

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
#define TYPES (sizeof(types) / sizeof(types[0]))

/* In the order of types. */
struct masks {
	int rc, uc, ud;
};

struct rule {
	enum ibv_qp_state from, to;
	struct masks required, optional;
};

#define CUR    IBV_QP_CUR_STATE
#define ACCESS IBV_QP_ACCESS_FLAGS
#define ALT    IBV_QP_ALT_PATH
#define MIG    IBV_QP_PATH_MIG_STATE
#define PKEY   IBV_QP_PKEY_INDEX
#define PORT   IBV_QP_PORT
#define QKEY   IBV_QP_QKEY
#define RNR    IBV_QP_MIN_RNR_TIMER
#define NOTIFY IBV_QP_EN_SQD_ASYNC_NOTIFY
#define PATH   (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RETRY  (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

static const struct rule rules[] = {
	{ IBV_QPS_RESET, IBV_QPS_RESET, { 0 }, { 0 } },
	{ IBV_QPS_RESET,
	  IBV_QPS_INIT,
	  { PKEY | PORT | ACCESS, PKEY | PORT | ACCESS, PKEY | PORT | QKEY },
	  { 0 } },
	{ IBV_QPS_INIT, IBV_QPS_RESET, { 0 }, { 0 } },
	{ IBV_QPS_INIT, IBV_QPS_ERR, { 0 }, { 0 } },
	{ IBV_QPS_INIT,
	  IBV_QPS_INIT,
	  { 0 },
	  { PKEY | PORT | ACCESS, PKEY | PORT | ACCESS, PKEY | PORT | QKEY } },
	{ IBV_QPS_INIT,
	  IBV_QPS_RTR,
	  { PATH | IBV_QP_MAX_DEST_RD_ATOMIC | RNR, PATH, 0 },
	  { ALT | ACCESS | PKEY, ALT | ACCESS | PKEY, PKEY | QKEY } },
	{ IBV_QPS_RTR, IBV_QPS_RESET, { 0 }, { 0 } },
	{ IBV_QPS_RTR, IBV_QPS_ERR, { 0 }, { 0 } },
	{ IBV_QPS_RTR,
	  IBV_QPS_RTS,
	  { RETRY | IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN },
	  { CUR | ALT | ACCESS | RNR | MIG, CUR | ALT | ACCESS | MIG, CUR | QKEY } },
	{ IBV_QPS_RTS, IBV_QPS_RESET, { 0 }, { 0 } },
	{ IBV_QPS_RTS, IBV_QPS_ERR, { 0 }, { 0 } },
	{ IBV_QPS_RTS,
	  IBV_QPS_RTS,
	  { 0 },
	  { CUR | ALT | ACCESS | RNR | MIG, CUR | ALT | ACCESS | MIG, CUR | QKEY } },
	{ IBV_QPS_RTS, IBV_QPS_SQD, { 0 }, { NOTIFY, NOTIFY, NOTIFY } },
	{ IBV_QPS_SQD, IBV_QPS_RESET, { 0 }, { 0 } },
	{ IBV_QPS_SQD, IBV_QPS_ERR, { 0 }, { 0 } },
	{ IBV_QPS_SQD,
	  IBV_QPS_RTS,
	  { 0 },
	  { CUR | ALT | ACCESS | RNR | MIG, CUR | ALT | ACCESS | MIG, CUR | QKEY } },
	{ IBV_QPS_SQD,
	  IBV_QPS_SQD,
	  { 0 },
	  { PORT | IBV_QP_AV | RETRY | IBV_QP_MAX_DEST_RD_ATOMIC | ALT | ACCESS | PKEY | RNR | MIG,
	    IBV_QP_AV | ALT | ACCESS | PKEY | MIG, PKEY | QKEY } },
	{ IBV_QPS_SQE, IBV_QPS_RESET, { 0 }, { 0 } },
	{ IBV_QPS_SQE, IBV_QPS_ERR, { 0 }, { 0 } },
	{ IBV_QPS_SQE, IBV_QPS_RTS, { 0 }, { 0, CUR | ACCESS, CUR | QKEY } },
	{ IBV_QPS_ERR, IBV_QPS_RESET, { 0 }, { 0 } },
	{ IBV_QPS_ERR, IBV_QPS_ERR, { 0 }, { 0 } },
};

static int of_type(struct masks masks, enum ibv_qp_type type)
{
	return type == IBV_QPT_RC ? masks.rc : type == IBV_QPT_UC ? masks.uc : masks.ud;
}

static const struct rule *rule_of(enum ibv_qp_state from, enum ibv_qp_state to)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		if (rules[i].from == from && rules[i].to == to)
			return &rules[i];
	}
	return NULL;
}

static void bring_to(struct nic_qp *qp, enum ibv_qp_state state)
{
	struct ibv_sge sge = { .length = 1, .lkey = 0 };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct nic_ah_handle ah = { .nic = { .pd = UNIT_PD, .dgid = unit_gid, .sgid = unit_gid } };
	struct ibv_wc wc;

	if (qp->state == state)
		return;
	assert_int_equal(move_to(qp, IBV_QPS_RESET, 0), 0);
	for (enum ibv_qp_state to = IBV_QPS_INIT; to <= state && to <= IBV_QPS_RTS; to++)
		assert_int_equal(move_to(qp, to, qp->qpn), 0);
	if (state == IBV_QPS_SQD || state == IBV_QPS_ERR)
		assert_int_equal(move_to(qp, state, 0), 0);
	if (state == IBV_QPS_SQE) { /* by a send with a bad key */
		wr.wr.ud.ah = &ah.ah;
		assert_int_equal(nic_qp_post_send(qp, &wr, &bad), 0);
		while (!nic_cq_poll(qp->send_cq, 1, &wc))
			;
	}
	assert_int_equal(qp->state, state);
}

static int try(struct nic_qp *qp, enum ibv_qp_state to, int mask)
{
	struct ibv_qp_attr attr = good_attr(qp->qpn);

	attr.qp_state = to;
	attr.cur_qp_state = qp->state;
	return nic_qp_modify(qp, &attr, mask | IBV_QP_STATE);
}

static void open_objects(void **state, struct objects *o, enum ibv_qp_type type)
{
	o->nic = *state;
	assert_int_equal(nic_cq_create(o->nic, 64, NULL, &o->cq), 0);
	make_qp(o->nic, type, &o->cq, NULL, 8, &o->qp);
}

static void close_objects(struct objects *o)
{
	nic_qp_destroy(&o->qp);
	assert_int_equal(nic_cq_destroy(&o->cq), 0);
}

/* Calls check for each transition that this type can be asked for. */
static void for_each_transition(void **state,
				void (*check)(struct nic_qp *qp, enum ibv_qp_state from,
					      enum ibv_qp_state to, const struct rule *rule))
{
	for (size_t t = 0; t < TYPES; t++) {
		struct objects o;

		open_objects(state, &o, types[t]);
		for (enum ibv_qp_state from = 0; from < STATES; from++) {
			if (from == IBV_QPS_SQE && types[t] == IBV_QPT_RC)
				continue; /* RC never gets there */
			for (enum ibv_qp_state to = 0; to < STATES; to++)
				check(&o.qp, from, to, rule_of(from, to));
		}
		close_objects(&o);
	}
}

static void check_transition(struct nic_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to,
			     const struct rule *rule)
{
	struct ibv_qp_attr attr;
	int required = rule ? of_type(rule->required, qp->type) : 0;

	bring_to(qp, from);
	assert_int_equal(try(qp, to, required), rule ? 0 : EINVAL);
	nic_qp_query(qp, &attr);
	assert_int_equal(attr.qp_state, rule ? to : from);
	assert_int_equal(attr.cur_qp_state, attr.qp_state);
}

static void every_transition_is_allowed_or_refused_as_specified(void **state)
{
	for_each_transition(state, check_transition);
}

static void check_missing(struct nic_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to,
			  const struct rule *rule)
{
	int required = rule ? of_type(rule->required, qp->type) : 0;

	for (int bits = required; bits; bits &= bits - 1) {
		bring_to(qp, from);
		assert_int_equal(try(qp, to, required & ~(bits & -bits)), EINVAL);
		assert_int_equal(qp->state, from);
	}
}

static void each_missing_attribute_is_refused(void **state)
{
	for_each_transition(state, check_missing);
}

static void check_superfluous(struct nic_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to,
			      const struct rule *rule)
{
	if (!rule)
		return;

	int required = of_type(rule->required, qp->type),
	    optional = of_type(rule->optional, qp->type);

	for (int bit = 1; bit <= 1 << 26; bit <<= 1) {
		if (bit & (required | optional | IBV_QP_STATE))
			continue;
		bring_to(qp, from);
		assert_int_equal(try(qp, to, required | bit), EINVAL);
		assert_int_equal(qp->state, from);
	}
}

static void each_superfluous_attribute_is_refused(void **state)
{
	for_each_transition(state, check_superfluous);
}

static void check_optional(struct nic_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to,
			   const struct rule *rule)
{
	if (!rule)
		return;

	int required = of_type(rule->required, qp->type);

	for (int bits = of_type(rule->optional, qp->type); bits; bits &= bits - 1) {
		int bit = bits & -bits;

		bring_to(qp, from);
		/* No automatic path migration on RoCE. */
		assert_int_equal(try(qp, to, required | bit), bit & (ALT | MIG) ? EINVAL : 0);
	}
}

static void each_optional_attribute_is_taken(void **state)
{
	for_each_transition(state, check_optional);
}

static void state_beyond_the_last_is_refused(void **state)
{
	struct objects o;

	open_objects(state, &o, IBV_QPT_RC);
	assert_int_equal(try(&o.qp, IBV_QPS_ERR + 1, 0), EINVAL);
	assert_int_equal(try(&o.qp, (enum ibv_qp_state) - 1, 0), EINVAL);
	close_objects(&o);
}

static void current_state_that_is_not_so_is_refused(void **state)
{
	struct objects o;
	struct ibv_qp_attr attr = good_attr(1);

	open_objects(state, &o, IBV_QPT_RC);
	bring_to(&o.qp, IBV_QPS_RTS);
	attr.qp_state = IBV_QPS_RTS;
	attr.cur_qp_state = IBV_QPS_SQD;
	assert_int_equal(nic_qp_modify(&o.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
	attr.cur_qp_state = IBV_QPS_RTS;
	assert_int_equal(nic_qp_modify(&o.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
	close_objects(&o);
}

static void wrong(struct nic_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to,
		  struct ibv_qp_attr attr)
{
	bring_to(qp, from);
	attr.qp_state = to;
	assert_int_equal(nic_qp_modify(qp, &attr, IBV_QP_STATE | required_mask(qp->type, to)),
			 EINVAL);
	assert_int_equal(qp->state, from);
}

#define WRONG(from, to, field, value)                      \
	do {                                               \
		struct ibv_qp_attr changed = good_attr(1); \
                                                           \
		changed.field = (value);                   \
		wrong(&o.qp, from, to, changed);           \
	} while (0)

static void each_value_out_of_range_is_refused(void **state)
{
	const union ibv_gid zero = { .raw = { 0 } };
	struct objects o;

	open_objects(state, &o, IBV_QPT_RC);
	WRONG(IBV_QPS_RESET, IBV_QPS_INIT, pkey_index, 1);
	WRONG(IBV_QPS_RESET, IBV_QPS_INIT, port_num, 0);
	WRONG(IBV_QPS_RESET, IBV_QPS_INIT, port_num, 2);
	WRONG(IBV_QPS_RESET, IBV_QPS_INIT, qp_access_flags, 1 << 10);
	WRONG(IBV_QPS_INIT, IBV_QPS_RTR, path_mtu, 0);
	WRONG(IBV_QPS_INIT, IBV_QPS_RTR, path_mtu, IBV_MTU_4096 + 1);
	WRONG(IBV_QPS_INIT, IBV_QPS_RTR, dest_qp_num, 1 << 24);
	WRONG(IBV_QPS_INIT, IBV_QPS_RTR, max_dest_rd_atomic, NIC_MAX_RD_ATOMIC + 1);
	WRONG(IBV_QPS_INIT, IBV_QPS_RTR, min_rnr_timer, 32);
	WRONG(IBV_QPS_INIT, IBV_QPS_RTR, ah_attr.is_global, 0);
	WRONG(IBV_QPS_INIT, IBV_QPS_RTR, ah_attr.port_num, 2);
	WRONG(IBV_QPS_INIT, IBV_QPS_RTR, ah_attr.grh.sgid_index, 1);
	WRONG(IBV_QPS_INIT, IBV_QPS_RTR, ah_attr.grh.dgid, zero);
	WRONG(IBV_QPS_RTR, IBV_QPS_RTS, timeout, 32);
	WRONG(IBV_QPS_RTR, IBV_QPS_RTS, retry_cnt, 8);
	WRONG(IBV_QPS_RTR, IBV_QPS_RTS, rnr_retry, 8);
	WRONG(IBV_QPS_RTR, IBV_QPS_RTS, max_rd_atomic, NIC_MAX_RD_ATOMIC + 1);
	close_objects(&o);
}

static void refused_call_changes_no_attribute(void **state)
{
	struct objects o;
	struct ibv_qp_attr attr = good_attr(1), before, after;

	open_objects(state, &o, IBV_QPT_RC);
	bring_to(&o.qp, IBV_QPS_RTS);
	nic_qp_query(&o.qp, &before);
	attr.qp_state = IBV_QPS_RTS;
	attr.qp_access_flags = 0;
	attr.min_rnr_timer = 40;
	assert_int_equal(nic_qp_modify(&o.qp, &attr, IBV_QP_STATE | ACCESS | RNR), EINVAL);
	nic_qp_query(&o.qp, &after);
	assert_memory_equal(&before, &after, sizeof(before));
	close_objects(&o);
}

static void reset_leaves_nothing_of_the_last_life(void **state)
{
	struct objects o;
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;

	open_objects(state, &o, IBV_QPT_RC);
	for (int round = 0; round < 3; round++) {
		bring_to(&o.qp, IBV_QPS_RTS);
		for (int i = 0; i < 8; i++)
			assert_int_equal(nic_qp_post_recv(&o.qp, &recv, &bad), 0);
		assert_int_equal(nic_qp_post_recv(&o.qp, &recv, &bad), ENOMEM);
		assert_int_equal(move_to(&o.qp, IBV_QPS_ERR, 0), 0);
		assert_int_equal(nic_cq_poll(&o.cq, 1, &wc), 1);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(move_to(&o.qp, IBV_QPS_RESET, 0), 0);
		assert_int_equal(nic_cq_poll(&o.cq, 1, &wc), 0);
		nic_qp_query(&o.qp, &attr);
		assert_int_equal(attr.qp_state, IBV_QPS_RESET);
		assert_int_equal(attr.dest_qp_num, 0);
		assert_int_equal(attr.timeout, 0);
	}
	close_objects(&o);
}

static void posting_follows_the_state(void **state)
{
	static const struct {
		enum ibv_qp_state state;
		int send, recv;
	} allowed[] = {
		{ IBV_QPS_RESET, EINVAL, EINVAL },
		{ IBV_QPS_INIT, EINVAL, 0 },
		{ IBV_QPS_RTR, EINVAL, 0 },
		{ IBV_QPS_RTS, 0, 0 },
		{ IBV_QPS_SQD, 0, 0 },
		{ IBV_QPS_SQE, 0, 0 },
		{ IBV_QPS_ERR, 0, 0 },
	};

	for (size_t t = 0; t < TYPES; t++) {
		struct objects o;

		open_objects(state, &o, types[t]);
		for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
			struct nic_ah_handle ah = {
				.nic = { .pd = UNIT_PD, .dgid = unit_gid, .sgid = unit_gid }
			};
			struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .wr.ud.ah = &ah.ah },
					   *bad_send = NULL;
			struct ibv_recv_wr recv = { .wr_id = 1 }, *bad_recv = NULL;

			if (allowed[i].state == IBV_QPS_SQE && types[t] == IBV_QPT_RC)
				continue;
			bring_to(&o.qp, allowed[i].state);
			assert_int_equal(nic_qp_post_recv(&o.qp, &recv, &bad_recv),
					 allowed[i].recv);
			assert_int_equal(nic_qp_post_send(&o.qp, &send, &bad_send),
					 allowed[i].send);
			assert_ptr_equal(bad_send, allowed[i].send ? &send : NULL);
			assert_ptr_equal(bad_recv, allowed[i].recv ? &recv : NULL);
		}
		close_objects(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_transition_is_allowed_or_refused_as_specified),
		cmocka_unit_test(each_missing_attribute_is_refused),
		cmocka_unit_test(each_superfluous_attribute_is_refused),
		cmocka_unit_test(each_optional_attribute_is_taken),
		cmocka_unit_test(state_beyond_the_last_is_refused),
		cmocka_unit_test(current_state_that_is_not_so_is_refused),
		cmocka_unit_test(each_value_out_of_range_is_refused),
		cmocka_unit_test(refused_call_changes_no_attribute),
		cmocka_unit_test(reset_leaves_nothing_of_the_last_life),
		cmocka_unit_test(posting_follows_the_state),
	};

	return cmocka_run_group_tests(tests, open_nic, close_nic);
}
