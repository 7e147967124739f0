/* SPDX-License-Identifier: MIT */
/*
 * Memory regions. Here the access flags are checked (specification section 10.6.3.1, ibv_reg_mr(3)); what the range may be
 * is the NIC's to say.
 */
#include "verbs/verbs.h"

#include <stdlib.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

EXPORT(reg_mr, 1.1);
EXPORT(reg_mr_iova, 1.7);
EXPORT(reg_mr_iova2, 1.8);
EXPORT(reg_dmabuf_mr, 1.12);
EXPORT(rereg_mr, 1.1);
EXPORT(dereg_mr, 1.1);

#define REMOTE_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define KNOWN_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | REMOTE_ACCESS | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB)
#define NEEDS_LOCAL_WRITE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* Flags of the optional range may be ignored by definition; the huge page promise changes nothing for us. */
static unsigned kept_access(unsigned access)
{
	return access & (IBV_ACCESS_LOCAL_WRITE | REMOTE_ACCESS | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND);
}

static int check_access(struct verbs_ctx *ctx, unsigned access)
{
	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	if (access & IBV_ACCESS_ON_DEMAND || (access & IBV_ACCESS_MW_BIND && !ctx->limits->windows))
		return refuse(ctx, EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_MR_ACCESS, .access = access);
	if (access & ~(unsigned)KNOWN_ACCESS)
		return refuse(ctx, EINVAL, CAUSE_REG_ACCESS, .access = access);
	if ((access & NEEDS_LOCAL_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return refuse(ctx, EINVAL, CAUSE_REG_ACCESS, .access = access);
	return 0;
}

/* A NIC's page tables map whole pages, so the kernel (ib_uverbs_reg_mr) asks for the same place within one. */
static int check_iova(struct verbs_ctx *ctx, uint64_t addr, uint64_t iova, unsigned access)
{
	uint64_t within = (uint64_t)sysconf(_SC_PAGESIZE) - 1;

	if (access & IBV_ACCESS_ZERO_BASED || !((addr ^ iova) & within))
		return 0;
	return refuse(ctx, EINVAL, CAUSE_REG_IOVA, .addr = addr, .limit = addr & within,
		      .value = iova & within);
}

struct ibv_mr *verb_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				 unsigned int access)
{
	struct verbs_ctx *ctx = to_ctx(pd->context);
	struct verbs_mr *mr;
	int error;

	if (is_forked(ctx))
		return refuse_null(ctx, EIO, CAUSE_FORKED);
	if (check_access(ctx, access) || check_iova(ctx, (uintptr_t)addr, iova, access) ||
	    object_count(ctx, KIND_MR))
		return NULL;
	if (access & IBV_ACCESS_ZERO_BASED)
		iova = 0;
	mr = calloc(1, sizeof(*mr));
	if (!mr) {
		error = refuse(ctx, ENOMEM, CAUSE_NO_MEMORY);
		goto no_memory;
	}
	error = nic_mr_register(ctx->nic, to_pd(pd)->number, (uintptr_t)addr, length, iova,
				kept_access(access), &mr->nic);
	if (error)
		goto no_region;
	mr->mr = (struct ibv_mr){
		.context = pd->context,
		.pd = pd,
		.addr = addr,
		.length = length,
		.handle = mr->nic.index,
		.lkey = mr->nic.lkey,
		.rkey = mr->nic.rkey,
	};
	atomic_fetch_add(&to_pd(pd)->users, 1);
	object_enter(ctx, KIND_MR, &mr->of_ctx);
	return &mr->mr;

no_region:
	free(mr);
no_memory:
	object_uncount(ctx, KIND_MR);
	errno = error;
	return NULL;
}

struct ibv_mr *verb_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return verb_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *verb_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				int access)
{
	return verb_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

struct ibv_mr *verb_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				  int fd, int access)
{
	(void)iova;
	(void)fd;
	return refuse_null(to_ctx(pd->context), EOPNOTSUPP, CAUSE_NOT_SUPPORTED, .thing = CAUSE_THING_REG_DMABUF, .addr = offset,
			   .length = length, .access = (unsigned)access);
}

/* What can be told to be wrong without the region: such a call leaves it as it was. */
static int check_reregistration(struct verbs_ctx *ctx, int flags, struct ibv_pd *pd, void *addr,
				size_t length, int access)
{
	if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
		return refuse(ctx, EINVAL, CAUSE_CREATE_ARGUMENT, .thing = CAUSE_THING_REREG_FLAGS, .value = (unsigned)flags);
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length))
		return refuse(ctx, EINVAL, CAUSE_REG_RANGE, .addr = (uintptr_t)addr,
			      .length = length);
	if ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->context != &ctx->vctx.context))
		return refuse(ctx, EINVAL, CAUSE_CREATE_PD_MISMATCH, .thing = CAUSE_THING_REREG_PD);
	if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
		return access ? refuse(ctx, EINVAL, CAUSE_REG_ACCESS, .access = (unsigned)access) :
				0;
	return check_access(ctx, (unsigned)access);
}

int verb_rereg_mr(struct ibv_mr *handle, int flags, struct ibv_pd *pd, void *addr, size_t length,
		  int access)
{
	struct verbs_mr *mr = (struct verbs_mr *)handle;
	struct verbs_ctx *ctx = to_ctx(handle->context);
	uint32_t number = flags & IBV_REREG_MR_CHANGE_PD && pd ? to_pd(pd)->number : mr->nic.pd;
	int error;

	if (is_forked(ctx)) {
		refuse(ctx, EIO, CAUSE_FORKED);
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (check_reregistration(ctx, flags, pd, addr, length, access))
		return IBV_REREG_MR_ERR_INPUT;
	error = nic_mr_reregister(&mr->nic, flags, number, (uintptr_t)addr, length,
				  kept_access((unsigned)access));
	if (error) {
		errno = error;
		return IBV_REREG_MR_ERR_CMD;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		atomic_fetch_sub(&to_pd(handle->pd)->users, 1);
		atomic_fetch_add(&to_pd(pd)->users, 1);
		handle->pd = pd;
	}
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		handle->addr = addr;
		handle->length = length;
	}
	handle->lkey = mr->nic.lkey;
	handle->rkey = mr->nic.rkey;
	return 0;
}

int verb_dereg_mr(struct ibv_mr *handle)
{
	struct verbs_mr *mr = (struct verbs_mr *)handle;
	struct verbs_ctx *ctx = to_ctx(handle->context);
	int error = is_forked(ctx) ? 0 : nic_mr_deregister(&mr->nic);

	if (error)
		return answer(error);
	atomic_fetch_sub(&to_pd(handle->pd)->users, 1);
	object_leave(ctx, KIND_MR, &mr->of_ctx);
	free(mr);
	return 0;
}

/* A region that a stopped process holds stays registered: what it writes late must not find other memory. */
void mr_abandon(struct list *of_ctx)
{
	struct verbs_mr *mr = list_entry(of_ctx, struct verbs_mr, of_ctx);

	object_uncount(to_ctx(mr->mr.context), KIND_MR);
	if (!nic_mr_deregister(&mr->nic))
		free(mr);
}
