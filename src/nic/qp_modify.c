/* SPDX-License-Identifier: MIT */
/*
 * The state machine of queue pairs: which transitions there are, which attributes each requires and
 * allows (specification tables 91 to 97; ibv_modify_qp(3)), and what each value may be.
 */
#include <errno.h>
#include <string.h>

#include "nic/attention.h"
#include "nic/keep_errno.h"
#include "nic/limits.h"
#include "nic/qp.h"
#include "nic/qp_internal.h"
#include "nic/requester.h"
#include "observe/watch.h"

enum { RC, UC, UD, TYPES };

struct transition {
	bool valid;
	int required[TYPES], optional[TYPES];
};

#define INIT_C (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define INIT_D (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)

#define CONNECT	   (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define CONNECT_RC (CONNECT | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTR_OPT	   (IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX)
#define RTR_OPT_D  (IBV_QP_PKEY_INDEX | IBV_QP_QKEY)

#define REPLIES (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
#define RUN_OPT (IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE)
#define RUN_RC	(RUN_OPT | IBV_QP_MIN_RNR_TIMER)
#define RUN_D	(IBV_QP_CUR_STATE | IBV_QP_QKEY)
#define SQE_OPT (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS)
#define NOTIFY	IBV_QP_EN_SQD_ASYNC_NOTIFY
#define DRAINED (IBV_QP_AV | RTR_OPT | IBV_QP_PATH_MIG_STATE)
#define DRAIN_RC \
	(DRAINED | IBV_QP_PORT | IBV_QP_MIN_RNR_TIMER | REPLIES | IBV_QP_MAX_DEST_RD_ATOMIC)

/* Beside these, every state may go to RESET, and all but RESET to ERR, without attributes. */
static const struct transition table[IBV_QPS_ERR + 1][IBV_QPS_ERR + 1] = {
	[IBV_QPS_RESET][IBV_QPS_INIT] = { true, .required = { INIT_C, INIT_C, INIT_D } },
	[IBV_QPS_INIT][IBV_QPS_INIT] = { true, .optional = { INIT_C, INIT_C, INIT_D } },
	[IBV_QPS_INIT][IBV_QPS_RTR] = { true, .required = { CONNECT_RC, CONNECT, 0 },
					.optional = { RTR_OPT, RTR_OPT, RTR_OPT_D } },
	[IBV_QPS_RTR][IBV_QPS_RTS] = { true,
				       .required = { IBV_QP_SQ_PSN | REPLIES, IBV_QP_SQ_PSN,
						     IBV_QP_SQ_PSN },
				       .optional = { RUN_RC, RUN_OPT, RUN_D } },
	[IBV_QPS_RTS][IBV_QPS_RTS] = { true, .optional = { RUN_RC, RUN_OPT, RUN_D } },
	[IBV_QPS_RTS][IBV_QPS_SQD] = { true, .optional = { NOTIFY, NOTIFY, NOTIFY } },
	[IBV_QPS_SQD][IBV_QPS_RTS] = { true, .optional = { RUN_RC, RUN_OPT, RUN_D } },
	[IBV_QPS_SQD][IBV_QPS_SQD] = { true, .optional = { DRAIN_RC, DRAINED, RTR_OPT_D } },
	[IBV_QPS_SQE][IBV_QPS_RTS] = { true, .optional = { 0, SQE_OPT, RUN_D } },
};

static bool is_valid(enum ibv_qp_state from, enum ibv_qp_state to)
{
	return to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET) ||
	       (to < IBV_QPS_ERR && table[from][to].valid);
}

static int column(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC ? RC : type == IBV_QPT_UC ? UC : UD;
}

static int refuse_with(const struct nic_qp *qp, struct cause c)
{
	c.error = EINVAL;
	c.qpn = qp->qpn;
	c.state = qp->state;
	cause_record(nic_causes(qp->nic), &c);
	return EINVAL;
}

static int refuse(const struct nic_qp *qp, int mask, enum cause_code code, uint64_t value, uint64_t limit)
{
	return refuse_with(qp, (struct cause){ .code = code, .opcode = (uint32_t)mask, .value = value, .limit = limit });
}

/* The bit is the attribute's. */
static int refuse_value(const struct nic_qp *qp, int bit, uint64_t value, uint64_t least, uint64_t most)
{
	return refuse_with(qp, (struct cause){
				       .code = CAUSE_MODIFY_VALUE, .opcode = (uint32_t)bit, .value = value, .count = least, .limit = most });
}

int qp_check_path(const struct nic_qp *qp, int mask, const struct ibv_ah_attr *av)
{
	union ibv_gid sgid;

	if (!av->is_global)
		return refuse(qp, mask, CAUSE_NO_GRH, 0, qp->gids->count);
	if (!gid_table_get(qp->gids, av->grh.sgid_index, &sgid, NULL))
		return refuse(qp, mask, CAUSE_BAD_SGID_INDEX, av->grh.sgid_index, qp->gids->count);
	if (gid_is_zero(&av->grh.dgid))
		return refuse(qp, mask, CAUSE_BAD_DGID, 0, 0);
	if (av->port_num != 1)
		return refuse_value(qp, IBV_QP_AV, av->port_num, 1, 1);
	return 0;
}

static int check_values(const struct nic_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const struct nic_limits *limits = nic_limits();
	const struct {
		int bit;
		uint64_t value, limit;
	} bounds[] = {
		{ IBV_QP_PKEY_INDEX, attr->pkey_index, 0 },
		{ IBV_QP_DEST_QPN, attr->dest_qp_num, 0xffffff },
		{ IBV_QP_TIMEOUT, attr->timeout, 31 },
		{ IBV_QP_RETRY_CNT, attr->retry_cnt, 7 },
		{ IBV_QP_RNR_RETRY, attr->rnr_retry, 7 },
		{ IBV_QP_MIN_RNR_TIMER, attr->min_rnr_timer, 31 },
		{ IBV_QP_MAX_QP_RD_ATOMIC, attr->max_rd_atomic, limits->max_init_rd_atomic },
		{ IBV_QP_MAX_DEST_RD_ATOMIC, attr->max_dest_rd_atomic, limits->max_rd_atomic },
		{ IBV_QP_ACCESS_FLAGS, attr->qp_access_flags,
		  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			  IBV_ACCESS_REMOTE_ATOMIC },
	};

	for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
		if (mask & bounds[i].bit && bounds[i].value > bounds[i].limit)
			return refuse_value(qp, bounds[i].bit, bounds[i].value, 0, bounds[i].limit);
	}
	if (mask & IBV_QP_PORT && attr->port_num != 1)
		return refuse_value(qp, IBV_QP_PORT, attr->port_num, 1, 1);
	if (mask & IBV_QP_PATH_MTU &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return refuse_value(qp, IBV_QP_PATH_MTU, attr->path_mtu, IBV_MTU_256, IBV_MTU_4096);
	/* Automatic path migration: hardware for RoCE has none either. */
	if (mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE))
		return refuse(qp, mask, CAUSE_MODIFY_SUPERFLUOUS,
			      (uint64_t)mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE), 0);
	if (mask & IBV_QP_AV)
		return qp_check_path(qp, mask, &attr->ah_attr);
	return 0;
}

/* Takes over the attributes and shows initiators theirs; the state comes afterwards. */
static void apply(struct nic_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct seg_qp *shared = qp->shared;

	if (mask & IBV_QP_PKEY_INDEX)
		qp->attr.pkey_index = attr->pkey_index;
	if (mask & IBV_QP_PORT)
		qp->attr.port_num = attr->port_num;
	if (mask & IBV_QP_ACCESS_FLAGS) {
		qp->attr.qp_access_flags = attr->qp_access_flags;
		atomic_store(&shared->access, (uint32_t)attr->qp_access_flags);
	}
	if (mask & IBV_QP_QKEY) {
		qp->attr.qkey = attr->qkey;
		shared->qkey = attr->qkey;
	}
	if (mask & IBV_QP_AV) {
		const struct ibv_ah_attr *av = &attr->ah_attr;

		qp->attr.ah_attr = *av;
		qp->path = (struct nic_ah){ .pd = qp->pd,
					    .dgid = av->grh.dgid,
					    .flow_label = av->grh.flow_label,
					    .sgid_index = av->grh.sgid_index,
					    .hop_limit = av->grh.hop_limit,
					    .traffic_class = av->grh.traffic_class,
					    .sl = av->sl };
		gid_table_get(qp->gids, av->grh.sgid_index, &qp->path.sgid, NULL);
		shared->sgid = qp->path.sgid;
		shared->dgid = qp->path.dgid;
	}
	if (mask & IBV_QP_PATH_MTU) {
		qp->attr.path_mtu = attr->path_mtu;
		shared->path_mtu = qp_mtu_bytes(attr->path_mtu);
	}
	if (mask & IBV_QP_TIMEOUT)
		qp->attr.timeout = attr->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		qp->attr.retry_cnt = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		qp->attr.rnr_retry = attr->rnr_retry;
	if (mask & IBV_QP_RQ_PSN) {
		qp->attr.rq_psn = attr->rq_psn & 0xffffff;
		atomic_store(&shared->epsn, qp->attr.rq_psn);
	}
	if (mask & IBV_QP_SQ_PSN) {
		qp->attr.sq_psn = attr->sq_psn & 0xffffff;
		qp->sq_psn = qp->attr.sq_psn;
	}
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		qp->attr.max_rd_atomic = attr->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) {
		qp->attr.max_dest_rd_atomic = attr->max_dest_rd_atomic;
		shared->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	}
	if (mask & IBV_QP_MIN_RNR_TIMER) {
		qp->attr.min_rnr_timer = attr->min_rnr_timer;
		atomic_store(&shared->min_rnr_timer, attr->min_rnr_timer);
	}
	if (mask & IBV_QP_DEST_QPN) {
		qp->attr.dest_qp_num = attr->dest_qp_num;
		shared->dest_qpn = attr->dest_qp_num;
	}
}

/* notify: SQD is to raise IBV_EVENT_SQ_DRAINED. 0, or ENOMEM: it stays in the state that it was in. */
static int enter(struct nic_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, bool notify)
{
	int error = 0;

	switch (to) {
	case IBV_QPS_RESET:
		nic_qp_reset(qp);
		break;
	case IBV_QPS_ERR:
		nic_qp_fail(qp, CAUSE_FLUSHED_BY_PROGRAM);
		requester_run(qp);
		break;
	case IBV_QPS_RTR:
		error = transport_connect(qp);
		if (!error)
			nic_qp_set_state(qp, to);
		break;
	case IBV_QPS_SQD:
		if (from == IBV_QPS_RTS)
			qp->drain_event = notify;
		nic_qp_set_state(qp, to);
		requester_run(qp);
		break;
	default:
		nic_qp_set_state(qp, to);
		requester_run(qp);
	}
	return error;
}

/* Lock held. */
static int modify(struct nic_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = qp->state;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;

	if (mask & IBV_QP_CUR_STATE) {
		/* The program may be behind: it thinks RTS while the QP has gone to SQE or ERR. */
		if (attr->cur_qp_state != from)
			return refuse(qp, mask, CAUSE_MODIFY_CUR_STATE, attr->cur_qp_state, from);
	}
	if (!is_valid(from, to))
		return refuse(qp, mask, CAUSE_MODIFY_TRANSITION, to, from);

	int type = column(qp->type);
	int required = table[from][to].required[type];
	int allowed = required | table[from][to].optional[type] | IBV_QP_STATE;

	if ((mask & required) != required)
		return refuse(qp, mask, CAUSE_MODIFY_MISSING, (uint64_t)(required & ~mask),
			      (uint64_t)required);
	if (mask & ~allowed)
		return refuse(qp, mask, CAUSE_MODIFY_SUPERFLUOUS, (uint64_t)(mask & ~allowed),
			      (uint64_t)allowed);

	int error = check_values(qp, attr, mask);

	if (error)
		return error;
	apply(qp, attr, mask);
	if (watch_now())
		watch_qp_connected(qp->qpn, mask & IBV_QP_DEST_QPN ? attr->dest_qp_num : 0,
				   mask & IBV_QP_MAX_QP_RD_ATOMIC ? attr->max_rd_atomic : 0);
	qp->modified++;
	/* Of this transition only; the attribute is none that stays. */
	bool notify = mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify;

	return to != from || mask & IBV_QP_STATE ? enter(qp, from, to, notify) : 0;
}

int nic_qp_modify(struct nic_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	KEEP_ERRNO;
	if (nic_is_orphan(qp->nic))
		return EIO;
	if (atomic_load(&qp->shared->state) & NIC_QP_RESP_ERROR)
		nic_qp_attend(qp);
	nic_lock(&qp->lock);
	int error = modify(qp, attr, mask);

	nic_unlock(&qp->lock);
	return error;
}
