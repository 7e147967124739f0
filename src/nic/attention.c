/* SPDX-License-Identifier: MIT */
/* Attention. See attention.h. */
#include "nic/attention.h"

#include <unistd.h>

#include "nic/cq.h"
#include "nic/crash.h"
#include "nic/descriptor.h"
#include "nic/qp.h"
#include "nic/srq.h"

static void raise_bit(const struct target *target, struct seg_attention *attention, uint32_t index)
{
	uint64_t one = 1;

	atomic_fetch_or(&attention->leaf[index / 64], 1ull << (index % 64));
	crash_point(ATTENTION_LEAF);
	atomic_fetch_or(&attention->summary[index / 4096], 1ull << (index / 64 % 64));
	crash_point(ATTENTION_SUMMARY);
	/* A full counter (2^64 - 2 rings) is no loss: the helper is being woken anyway. */
	if (!descriptor_is_ours(target->doorbell) || write(target->doorbell, &one, sizeof(one)) < 0)
		return;
}

void attention_qp(const struct target *target, uint32_t index)
{
	raise_bit(target, &target->seg->qp_attention, index);
}

void attention_srq(const struct target *target, uint32_t index)
{
	raise_bit(target, &target->seg->srq_attention, index);
}

void attention_cq(const struct target *target, uint32_t index)
{
	struct seg_cq *shared = &target->seg->cqs[index];

	if (target->nic && !atomic_load_explicit(&shared->error, memory_order_relaxed)) {
		struct nic_cq *cq = table_get(&target->nic->cqs, index);

		if (cq)
			nic_cq_attend(cq);
		return;
	}
	raise_bit(target, &target->seg->cq_attention, index);
}

static void attend_qp(struct nic *nic, uint32_t index)
{
	struct nic_qp *qp = nic_qp_get(nic, index);

	if (qp) {
		nic_qp_attend(qp);
		nic_qp_put(qp);
	}
}

static void attend_srq(struct nic *nic, uint32_t index)
{
	pthread_mutex_lock(&nic->lock);
	struct nic_srq *srq = table_get(&nic->srqs, index);

	if (srq)
		nic_srq_attend(srq);
	pthread_mutex_unlock(&nic->lock);
}

static void recheck_srq(struct nic *nic, uint32_t index)
{
	pthread_mutex_lock(&nic->lock);
	struct nic_srq *srq = table_get(&nic->srqs, index);

	if (srq)
		nic_srq_recheck_limit(srq);
	pthread_mutex_unlock(&nic->lock);
}

static void refire_cq(struct nic *nic, uint32_t index)
{
	pthread_mutex_lock(&nic->lock);
	struct nic_cq *cq = table_get(&nic->cqs, index);

	if (cq)
		nic_cq_refire(cq);
	pthread_mutex_unlock(&nic->lock);
}

static void attend_cq(struct nic *nic, uint32_t index)
{
	pthread_mutex_lock(&nic->lock);
	struct nic_cq *cq = table_get(&nic->cqs, index);
	bool broken = false;

	if (cq) {
		nic_cq_attend(cq);
		broken = nic_cq_find_error(cq);
	}
	pthread_mutex_unlock(&nic->lock);
	if (!broken)
		return;
	/* Who reads the event finds its QPs in the error state. */
	nic_qp_fail_users(nic, index);
	pthread_mutex_lock(&nic->lock);
	cq = table_get(&nic->cqs, index);
	if (cq && cq->error_reported) /* the program may have destroyed it meanwhile */
		nic_cq_raise_error(cq);
	pthread_mutex_unlock(&nic->lock);
	nic_qp_raise_users(nic, index);
}

static void serve(struct nic *nic, struct seg_attention *attention,
		  void (*attend)(struct nic *, uint32_t), bool all)
{
	for (unsigned s = 0; s < 16; s++) {
		if (!all && !atomic_load_explicit(&attention->summary[s], memory_order_relaxed))
			continue;
		uint64_t summary = atomic_exchange(&attention->summary[s], 0);

		if (all)
			summary = UINT64_MAX;
		for (; summary; summary &= summary - 1) {
			unsigned word = s * 64 + (unsigned)__builtin_ctzll(summary);

			if (!atomic_load_explicit(&attention->leaf[word], memory_order_relaxed))
				continue;
			for (uint64_t leaf = atomic_exchange(&attention->leaf[word], 0); leaf;
			     leaf &= leaf - 1)
				attend(nic, word * 64 + (unsigned)__builtin_ctzll(leaf));
		}
	}
}

void attention_serve(struct nic *nic, bool all)
{
	serve(nic, &nic->seg->qp_attention, attend_qp, all);
	serve(nic, &nic->seg->srq_attention, attend_srq, all);
	serve(nic, &nic->seg->cq_attention, attend_cq, all);
	if (all) {
		for (uint32_t i = 0; i < nic->cqs.fresh; i++) {
			if (atomic_load(&nic->seg->cqs[i].arm) != NIC_ARM_NONE)
				refire_cq(nic, i);
		}
		for (uint32_t i = 0; i < nic->srqs.fresh; i++) {
			if (atomic_load(&nic->seg->srqs[i].rq.limit))
				recheck_srq(nic, i);
		}
	}
}
