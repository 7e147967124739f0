/* SPDX-License-Identifier: MIT */
/*
 * The state machine: each pair of states, each attribute that must, may or must not be given, each
 * value out of range (specification 10.3.1 and tables 91 to 97; ibv_modify_qp(3)). What is refused
 * changes nothing.
 */
#include <string.h>

#include "strict.h"

#define STATES (IBV_QPS_ERR + 1)

enum { RC, UC, UD, TYPES };

static const enum ibv_qp_type type_of[TYPES] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
static const char *const type_name[TYPES] = { "rc", "uc", "ud" };
static const char *const state_name[STATES] = { "reset", "init", "rtr", "rts", "sqd", "sqe", "err" };

struct transition {
	enum ibv_qp_state from, to;
	int required[TYPES], optional[TYPES];
};

#define CURRENT	  IBV_QP_CUR_STATE
#define MIGRATION (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define RIGHTS	  IBV_QP_ACCESS_FLAGS
#define HOME	  (IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define PATH	  (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define TIMERS	  (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

/* Every state may also go to RESET and, but for RESET itself, to ERR, with nothing else. */
static const struct transition transitions[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, { HOME | RIGHTS, HOME | RIGHTS, HOME | IBV_QP_QKEY }, { 0 } },
	{ IBV_QPS_INIT, IBV_QPS_INIT, { 0 }, { HOME | RIGHTS, HOME | RIGHTS, HOME | IBV_QP_QKEY } },
	{ IBV_QPS_INIT,
	  IBV_QPS_RTR,
	  { PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, PATH, 0 },
	  { RIGHTS | IBV_QP_PKEY_INDEX | IBV_QP_ALT_PATH,
	    RIGHTS | IBV_QP_PKEY_INDEX | IBV_QP_ALT_PATH, IBV_QP_PKEY_INDEX | IBV_QP_QKEY } },
	{ IBV_QPS_RTR,
	  IBV_QPS_RTS,
	  { TIMERS | IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN },
	  { CURRENT | MIGRATION | RIGHTS | IBV_QP_MIN_RNR_TIMER, CURRENT | MIGRATION | RIGHTS,
	    CURRENT | IBV_QP_QKEY } },
	{ IBV_QPS_RTS,
	  IBV_QPS_RTS,
	  { 0 },
	  { CURRENT | MIGRATION | RIGHTS | IBV_QP_MIN_RNR_TIMER, CURRENT | MIGRATION | RIGHTS,
	    CURRENT | IBV_QP_QKEY } },
	{ IBV_QPS_RTS,
	  IBV_QPS_SQD,
	  { 0 },
	  { IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY } },
	{ IBV_QPS_SQD,
	  IBV_QPS_RTS,
	  { 0 },
	  { CURRENT | MIGRATION | RIGHTS | IBV_QP_MIN_RNR_TIMER, CURRENT | MIGRATION | RIGHTS,
	    CURRENT | IBV_QP_QKEY } },
	{ IBV_QPS_SQD,
	  IBV_QPS_SQD,
	  { 0 },
	  { HOME | IBV_QP_AV | TIMERS | IBV_QP_MAX_DEST_RD_ATOMIC | MIGRATION | RIGHTS |
		    IBV_QP_MIN_RNR_TIMER,
	    IBV_QP_PKEY_INDEX | IBV_QP_AV | MIGRATION | RIGHTS, IBV_QP_PKEY_INDEX | IBV_QP_QKEY } },
	{ IBV_QPS_SQE, IBV_QPS_RTS, { 0 }, { 0, CURRENT | RIGHTS, CURRENT | IBV_QP_QKEY } },
};

struct place {
	unsigned type;
	enum ibv_qp_state from;
};

/* A new QP 0 of A in the state; its peer is the bystander, which sends it nothing. */
static void put_into(struct world *w, const struct place *p)
{
	struct qp_want want = qp_default(type_of[p->type]);
	struct side s;
	struct ibv_qp_attr attr = { .qp_state = p->from };

	equal(make_qp(w->a, 0, &want), 0);
	s = side_default(w->a, 0, want.type, w->b, BYSTANDER);
	if (p->from == IBV_QPS_RESET)
		return;
	equal(to_init(&s), 0);
	if (p->from == IBV_QPS_INIT)
		return;
	if (p->from == IBV_QPS_ERR) {
		equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
		return;
	}
	equal(to_rtr(&s), 0);
	if (p->from == IBV_QPS_RTR)
		return;
	equal(to_rts(&s), 0);
	if (p->from == IBV_QPS_SQD)
		equal(modify_qp(w->a, 0, &attr, IBV_QP_STATE), 0);
	if (p->from == IBV_QPS_SQE) {
		struct wr bad = send_wr(1, &w->ra, 0x2000, 16);

		bad.sge[0].lkey ^= 0x1000;
		bad.ah = 0;
		bad.qpn = w->b->qpn[BYSTANDER];
		post(w->a, 0, &bad, 1);
		completes(w->a, SEND_CQ, 1, IBV_WC_LOC_PROT_ERR);
	}
}

/* Values that are right for all attributes. */
static struct ibv_qp_attr values(struct world *w, const struct place *p, enum ibv_qp_state to)
{
	return (struct ibv_qp_attr){
		.qp_state = to,
		.cur_qp_state = p->from,
		.path_mtu = IBV_MTU_512,
		.path_mig_state = IBV_MIG_MIGRATED,
		.qkey = QKEY,
		.rq_psn = 7,
		.sq_psn = 9,
		.dest_qp_num = w->b->qpn[BYSTANDER],
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = w->b->gid, .hop_limit = 3 } },
		.alt_ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = w->b->gid } },
		.max_rd_atomic = 2,
		.max_dest_rd_atomic = 3,
		.min_rnr_timer = 4,
		.port_num = 1,
		.timeout = 14,
		.retry_cnt = 5,
		.rnr_retry = 6,
		.alt_port_num = 1,
		.cap = { .max_send_wr = 1 },
	};
}

static void refuses(struct world *w, const struct place *p, const struct ibv_qp_attr *attr,
		    int mask, enum cause_code code, const char *what, int detail)
{
	struct ibv_qp_attr before, after;
	struct cause c;
	int error;

	query_qp(w->a, 0, &before);
	error = modify_qp(w->a, 0, attr, mask);
	check(error == EINVAL, "%s %#x, %s to %d: %d, not EINVAL", what, detail,
	      state_name[p->from], attr->qp_state, error);
	c = refused_with(w->a, code, EINVAL);
	equal(c.qpn, w->a->qpn[0]);
	equal(c.state, p->from);
	query_qp(w->a, 0, &after);
	check(!memcmp(&before, &after, sizeof(before)), "%s %#x changed something", what, detail);
}

static void accepts(struct world *w, const struct ibv_qp_attr *attr, int mask, const char *what,
		    int detail)
{
	int error = modify_qp(w->a, 0, attr, mask);
	enum ibv_qp_state state = state_of(w->a, 0);

	check(!error, "%s %#x, to %s: %d", what, detail, state_name[attr->qp_state], error);
	check(state == attr->qp_state, "the QP is in %s, not %s", state_name[state],
	      state_name[attr->qp_state]);
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify)
		raises(w->a, IBV_EVENT_SQ_DRAINED, 0);
	equal(drop_qp(w->a, 0), 0);
}

static const struct transition *allowed(enum ibv_qp_state from, enum ibv_qp_state to)
{
	static const struct transition plain;

	if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
		return &plain;
	for (unsigned i = 0; i < sizeof(transitions) / sizeof(*transitions); i++)
		if (transitions[i].from == from && transitions[i].to == to)
			return &transitions[i];
	return NULL;
}

static void try_attributes(struct world *w, const struct place *p, enum ibv_qp_state to,
			   const struct transition *t)
{
	const struct ibv_qp_attr attr = values(w, p, to);
	int required = t->required[p->type], optional = t->optional[p->type];

	put_into(w, p);
	for (int bit = IBV_QP_CUR_STATE; bit <= (int)IBV_QP_RATE_LIMIT; bit <<= 1) {
		int mask = IBV_QP_STATE | required;

		if (required & bit) {
			refuses(w, p, &attr, mask & ~bit, CAUSE_MODIFY_MISSING, "without", bit);
		} else if (optional & bit & ~MIGRATION) {
			accepts(w, &attr, mask | bit, "with", bit);
			put_into(w, p);
		} else {
			/* Migration is in the tables and not in NICs for RoCE. */
			refuses(w, p, &attr, mask | bit, CAUSE_MODIFY_SUPERFLUOUS, "with", bit);
		}
	}
	accepts(w, &attr, IBV_QP_STATE | required | (optional & ~MIGRATION), "with everything of",
		to);
	put_into(w, p);
	accepts(w, &attr, IBV_QP_STATE | required, "with what is required for", to);
}

static void run_transitions(struct world *w, const void *arg)
{
	const struct place *p = arg;

	equal(make_ah(w->a, 0, 0, &w->b->gid), 0);
	for (enum ibv_qp_state to = IBV_QPS_RESET; to < STATES; to++) {
		const struct transition *t = allowed(p->from, to);
		struct ibv_qp_attr attr = values(w, p, to);

		if (t) {
			try_attributes(w, p, to, t);
			continue;
		}
		put_into(w, p);
		refuses(w, p, &attr, IBV_QP_STATE, CAUSE_MODIFY_TRANSITION, "plain", to);
		refuses(w, p, &attr, IBV_QP_STATE | HOME | RIGHTS | PATH | TIMERS,
			CAUSE_MODIFY_TRANSITION, "with much", to);
		equal(drop_qp(w->a, 0), 0);
	}
	put_into(w, p);
	/* No such states. */
	for (unsigned to = STATES; to < STATES + 2; to++) {
		struct ibv_qp_attr attr = values(w, p, (enum ibv_qp_state)to);

		refuses(w, p, &attr, IBV_QP_STATE, CAUSE_MODIFY_TRANSITION, "unknown state",
			(int)to);
	}
	equal(drop_qp(w->a, 0), 0);
}

/* ---- Values ---- */

struct value_case {
	const char *name;
	enum ibv_qp_state from, to;
	void (*spoil)(struct ibv_qp_attr *attr);
	enum cause_code code;
};

#define VALUE(function, assignment)                    \
	static void function(struct ibv_qp_attr *attr) \
	{                                              \
		attr->assignment;                      \
	}

VALUE(port_0, port_num = 0)
VALUE(port_2, port_num = 2)
VALUE(pkey_1, pkey_index = 1)
VALUE(strange_access, qp_access_flags = 1 << 9)
VALUE(mtu_0, path_mtu = 0)
VALUE(mtu_6, path_mtu = 6)
VALUE(long_qpn, dest_qp_num = 0x1000000)
VALUE(much_depth, max_dest_rd_atomic = 255)
VALUE(rnr_timer_32, min_rnr_timer = 32)
VALUE(no_grh, ah_attr.is_global = 0)
VALUE(no_sgid, ah_attr.grh.sgid_index = 255)
VALUE(av_port_2, ah_attr.port_num = 2)
VALUE(timeout_32, timeout = 32)
VALUE(retry_8, retry_cnt = 8)
VALUE(rnr_retry_8, rnr_retry = 8)
VALUE(much_initiator_depth, max_rd_atomic = 255)
VALUE(wrong_current_state, cur_qp_state = IBV_QPS_SQD)

static void zero_dgid(struct ibv_qp_attr *attr)
{
	memset(&attr->ah_attr.grh.dgid, 0, sizeof(attr->ah_attr.grh.dgid));
}

static const struct value_case value_cases[] = {
	{ "port-0", IBV_QPS_RESET, IBV_QPS_INIT, port_0, CAUSE_MODIFY_VALUE },
	{ "port-2", IBV_QPS_RESET, IBV_QPS_INIT, port_2, CAUSE_MODIFY_VALUE },
	{ "pkey-index-1", IBV_QPS_RESET, IBV_QPS_INIT, pkey_1, CAUSE_MODIFY_VALUE },
	{ "unknown-access-flag", IBV_QPS_RESET, IBV_QPS_INIT, strange_access, CAUSE_MODIFY_VALUE },
	{ "mtu-0", IBV_QPS_INIT, IBV_QPS_RTR, mtu_0, CAUSE_MODIFY_VALUE },
	{ "mtu-6", IBV_QPS_INIT, IBV_QPS_RTR, mtu_6, CAUSE_MODIFY_VALUE },
	{ "qpn-of-25-bits", IBV_QPS_INIT, IBV_QPS_RTR, long_qpn, CAUSE_MODIFY_VALUE },
	{ "responder-depth-above-the-limit", IBV_QPS_INIT, IBV_QPS_RTR, much_depth,
	  CAUSE_MODIFY_VALUE },
	{ "rnr-timer-32", IBV_QPS_INIT, IBV_QPS_RTR, rnr_timer_32, CAUSE_MODIFY_VALUE },
	{ "no-grh", IBV_QPS_INIT, IBV_QPS_RTR, no_grh, CAUSE_NO_GRH },
	{ "unknown-sgid-index", IBV_QPS_INIT, IBV_QPS_RTR, no_sgid, CAUSE_BAD_SGID_INDEX },
	{ "dgid-zero", IBV_QPS_INIT, IBV_QPS_RTR, zero_dgid, CAUSE_BAD_DGID },
	{ "path-of-port-2", IBV_QPS_INIT, IBV_QPS_RTR, av_port_2, CAUSE_MODIFY_VALUE },
	{ "timeout-32", IBV_QPS_RTR, IBV_QPS_RTS, timeout_32, CAUSE_MODIFY_VALUE },
	{ "retry-count-8", IBV_QPS_RTR, IBV_QPS_RTS, retry_8, CAUSE_MODIFY_VALUE },
	{ "rnr-retry-8", IBV_QPS_RTR, IBV_QPS_RTS, rnr_retry_8, CAUSE_MODIFY_VALUE },
	{ "initiator-depth-above-the-limit", IBV_QPS_RTR, IBV_QPS_RTS, much_initiator_depth,
	  CAUSE_MODIFY_VALUE },
	{ "wrong-current-state", IBV_QPS_RTR, IBV_QPS_RTS, wrong_current_state,
	  CAUSE_MODIFY_CUR_STATE },
};

static void run_value(struct world *w, const void *arg)
{
	const struct value_case *v = arg;
	const struct place p = { RC, v->from };
	const struct transition *t = allowed(v->from, v->to);
	struct ibv_qp_attr attr = values(w, &p, v->to), before, after;
	int mask = IBV_QP_STATE | t->required[RC] | (t->optional[RC] & ~MIGRATION);
	struct cause c;

	put_into(w, &p);
	query_qp(w->a, 0, &before);
	v->spoil(&attr);
	equal(modify_qp(w->a, 0, &attr, mask), EINVAL);
	c = refused_with(w->a, v->code, EINVAL);
	equal(c.qpn, w->a->qpn[0]);
	query_qp(w->a, 0, &after);
	check(!memcmp(&before, &after, sizeof(before)), "what was refused changed something");
	attr = values(w, &p, v->to);
	equal(modify_qp(w->a, 0, &attr, mask), 0);
}

void add_transitions(void)
{
	for (unsigned type = RC; type < TYPES; type++) {
		for (enum ibv_qp_state from = IBV_QPS_RESET; from < STATES; from++) {
			static struct place places[TYPES * STATES];
			struct place *p = &places[type * STATES + from];

			/* RC has no such state. */
			if (type == RC && from == IBV_QPS_SQE)
				continue;
			*p = (struct place){ type, from };
			add_case("transitions", run_transitions, p, "%s/from-%s", type_name[type],
				 state_name[from]);
		}
	}
	for (unsigned i = 0; i < sizeof(value_cases) / sizeof(*value_cases); i++)
		add_case("transitions", run_value, &value_cases[i], "value/%s",
			 value_cases[i].name);
}
