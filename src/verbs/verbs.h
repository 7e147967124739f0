/* SPDX-License-Identifier: MIT */
/*
 * The verbs face: what the public structures of <infiniband/verbs.h> are part of, and what its files share.
 *
 * Rules of every file here:
 * - A handle is one allocation: the public structure first, the NIC's object after it.
 * - What is refused has a cause: refuse() records it, sets errno and returns it.
 * - In a forked child the inherited handles belong to a NIC that is no longer there. Verbs on them answer EIO; destroying
 *   them only frees memory. No lock is taken then: a thread that does not exist in the child may have held it.
 * - Lists, reference counts and comp_channel->refcnt are under the context's mutex.
 */
#ifndef UROCE_VERBS_VERBS_H
#define UROCE_VERBS_VERBS_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "nic/addresses.h"
#include "nic/cq.h"
#include "nic/event.h"
#include "nic/gid.h"
#include "nic/limits.h"
#include "nic/mr.h"
#include "nic/nic.h"
#include "nic/qp.h"
#include "nic/srq.h"
#include "observe/cause.h"

/* Defines the symbol of a verb with its default version; the function itself is verb_NAME. */
#define EXPORT_AS(function, symbol, version)  \
	__attribute__((visibility("default"), \
		       symver(symbol "@@IBVERBS_" #version))) extern typeof(function) function
#define EXPORT(name, version)                 \
	__attribute__((visibility("default"), \
		       symver("ibv_" #name    \
			      "@@IBVERBS_" #version))) extern typeof(ibv_##name) verb_##name

/* For symbols that the public headers do not declare; the version is that of their node in libibverbs.map. */
#define EXPORTED __attribute__((visibility("default")))

static inline uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}


/* Counted per device and process, against nic_limits(). */
enum verbs_kind { KIND_PD, KIND_MR, KIND_MW, KIND_CQ, KIND_QP, KIND_SRQ, KIND_AH, KINDS };

struct verbs_device {
	struct ibv_device dev; /* must be first */
	/* libmlx5, libmlx4 and libefa look behind the public part for a table of their own to tell their devices by; zero
	 * says that this is none. */
	uint8_t zero[720];
	unsigned index;
	const char **interfaces; /* whose addresses it has, NULL at the end; NULL: all interfaces */
	struct gid_table gids;
	__be64 node_guid, sys_image_guid;
	unsigned contexts; /* under the lock of device.c */
	_Atomic uint32_t objects[KINDS];
};

/* Handles of a context by kind, so that closing it can give up what the program left. */
struct verbs_ctx {
	struct verbs_context vctx; /* must be first; ends in the public ibv_context */
	struct nic *nic;
	struct verbs_device *device;
	const struct nic_limits *limits;
	struct nic_event_queue events;
	struct address_watcher watcher;
	uint32_t gid_changes; /* of the device's table, that events were raised for */
	bool up;	      /* the port was */
	struct list objects[KINDS];
	struct list channels;
};

/* What the port's packets carry as its interface is. */
enum ibv_mtu active_mtu(const struct verbs_ctx *ctx);

struct verbs_pd {
	struct ibv_pd pd; /* must be first */
	uint32_t number;
	_Atomic uint32_t users; /* MRs, MWs, SRQs, QPs, AHs */
	struct list of_ctx;
};

struct verbs_mr {
	struct ibv_mr mr; /* must be first */
	struct nic_mr nic;
	struct list of_ctx;
};

struct verbs_mw {
	struct nic_mw_handle handle; /* must be first */
	struct list of_ctx;
};

struct verbs_channel {
	struct ibv_comp_channel channel; /* must be first */
	struct nic_channel nic;
	struct list of_ctx;
};

struct verbs_cq {
	union {
		struct ibv_cq cq; /* must be first */
		struct ibv_cq_ex ex;
	};
	void *later[8]; /* zero: where headers newer than ours look for more */
	struct nic_cq nic;
	struct nic_cqe current; /* the completion between start_poll and end_poll; under nic.lock */
	uint32_t async_events_read; /* under ctx->events.lock */
	struct list of_ctx;
};

struct verbs_srq {
	struct ibv_srq srq; /* must be first */
	struct nic_srq nic;
	uint32_t events_read; /* under ctx->events.lock */
	struct list of_ctx;
};

struct verbs_qp {
	union {
		struct ibv_qp qp; /* must be first */
		struct ibv_qp_ex ex;
	};
	void *later[8]; /* zero: where headers newer than ours look for more */
	struct nic_qp nic;
	uint32_t events_read; /* under ctx->events.lock */
	bool is_ex;	      /* made with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS */
	/* Between wr_start and wr_complete or wr_abort, under nic.lock */
	struct nic_swqe *wqe; /* being built */
	int error;	      /* first failure of the batch */
	struct list of_ctx;
};

struct verbs_ah {
	struct nic_ah_handle handle; /* must be first */
	struct list of_ctx;
};

static inline struct verbs_ctx *to_ctx(struct ibv_context *context)
{
	return (struct verbs_ctx *)((char *)context - offsetof(struct verbs_ctx, vctx.context));
}

static inline struct verbs_device *to_device(struct ibv_device *device)
{
	return (struct verbs_device *)device;
}

static inline struct verbs_pd *to_pd(struct ibv_pd *pd)
{
	return (struct verbs_pd *)pd;
}

static inline struct verbs_channel *to_channel(struct ibv_comp_channel *channel)
{
	return (struct verbs_channel *)channel;
}

static inline struct verbs_cq *to_cq(struct ibv_cq *cq)
{
	return (struct verbs_cq *)cq;
}

static inline struct verbs_srq *to_srq(struct ibv_srq *srq)
{
	return (struct verbs_srq *)srq;
}

static inline struct verbs_qp *to_qp(struct ibv_qp *qp)
{
	return (struct verbs_qp *)qp;
}

static inline bool is_forked(const struct verbs_ctx *ctx)
{
	return nic_is_orphan(ctx->nic);
}

/* Records why, sets errno and returns it. */
int refuse_with(struct verbs_ctx *ctx, int error, struct cause *cause);

/* refuse(ctx, EINVAL, CAUSE_X, .limit = 1, .value = 2) */
#define refuse(ctx, errno_, code_, ...) \
	refuse_with(ctx, errno_, &(struct cause){ .code = (code_), __VA_ARGS__ })

/* The same for verbs that return a pointer. */
#define refuse_null(...) ((void)refuse(__VA_ARGS__), NULL)

/* Sets errno to what the NIC answered and returns it; the NIC has recorded the cause. */
static inline int answer(int error)
{
	if (error)
		errno = error;
	return error;
}

/* Takes a place among the device's objects of a kind: 0, or ENOMEM with a cause. */
int object_count(struct verbs_ctx *ctx, enum verbs_kind kind);
/* Enters a counted handle into the context's list. */
void object_enter(struct verbs_ctx *ctx, enum verbs_kind kind, struct list *of_ctx);
/* Gives the place back; leave also takes the handle out of the list. */
void object_uncount(struct verbs_ctx *ctx, enum verbs_kind kind);
void object_leave(struct verbs_ctx *ctx, enum verbs_kind kind, struct list *of_ctx);

/* Waits until the program has acknowledged what it read: *completed, under mutex, reaches read. */
void wait_for_acknowledgement(pthread_mutex_t *mutex, pthread_cond_t *cond,
			      const uint32_t *completed, uint32_t read);

/* event.c: counts an event that the program has to acknowledge. */
void event_handed_out(const struct ibv_async_event *event);

/* Give up an object on ibv_close_device, whatever still uses it and without waiting for acknowledgements. */
void qp_abandon(struct list *of_ctx);
void srq_abandon(struct list *of_ctx);
void cq_abandon(struct list *of_ctx);
void mr_abandon(struct list *of_ctx);
void mw_abandon(struct list *of_ctx);
void ah_abandon(struct list *of_ctx);
void pd_abandon(struct list *of_ctx);
void channel_abandon(struct list *of_ctx);

/* log.c: one line when VERBS_LOG_LEVEL asks for errors. */
void verbs_log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* port.c */
extern typeof(ibv_query_port) verb_query_port;
int query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr,
	       size_t length);

/* cq.c, cq_ex.c */
struct verbs_cq *cq_make(struct verbs_ctx *ctx, uint32_t cqe, void *cq_context,
			 struct ibv_comp_channel *channel, int comp_vector);
struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* srq.c */
struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int get_srq_num(struct ibv_srq *srq, uint32_t *srq_num);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

/* mw.c */
struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int dealloc_mw(struct ibv_mw *mw);
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* qp.c, qp_ex.c */
struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int post_send_without_atomics(struct ibv_qp *qp, struct ibv_send_wr *wr,
			      struct ibv_send_wr **bad_wr);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
void qp_ex_init(struct verbs_qp *qp, uint64_t send_ops_flags);
/* The operations of ibv_wr_* that QPs of this type have; 0 for types that we do not have. */
uint64_t qp_ex_operations(enum ibv_qp_type type, const struct nic_limits *limits);

/* sysfs.c: the tree of files that programs read beside the verbs. */
void sysfs_name_paths(struct verbs_device *device);
void sysfs_render(const struct verbs_device *device);

/* device.c: the devices of this process; NULL with errno when the settings are wrong. fresh: read the host's addresses
 * again for those that no context holds. */
struct verbs_device *devices_get(unsigned *count, bool fresh);
/* While a context holds a device its GID table stands still. */
void device_hold(struct verbs_device *device);
void device_release(struct verbs_device *device);

#endif
