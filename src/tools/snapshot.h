/* SPDX-License-Identifier: MIT */
/*
 * What the segments of running processes say at one moment: the numbers of their devices, queue pairs, completion queues, shared
 * receive queues and memory regions. Taken by reading only (tools/segment.h): each number is right, but two of them may be some
 * microseconds apart.
 *
 * The numbers of each kind of object are a list of VALUE(name, kind, text), so that all that prints them prints all of them.
 */
#ifndef UROCE_TOOLS_SNAPSHOT_H
#define UROCE_TOOLS_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/processes.h"
#include "tools/segment.h"

#define QP_VALUES(VALUE)                                                                                           \
	VALUE(rdma_sends, COUNTS, "SENDs executed")                                                                \
	VALUE(rdma_writes, COUNTS, "RDMA WRITEs executed")                                                         \
	VALUE(rdma_reads, COUNTS, "RDMA READs executed")                                                           \
	VALUE(rdma_atomics, COUNTS, "atomics executed")                                                            \
	VALUE(req_bytes, COUNTS, "bytes that its requests moved, READs included")                                  \
	VALUE(mapped_copies, COUNTS, "requests whose bytes were copied between mapped pages")                      \
	VALUE(rdma_recvs, COUNTS, "SENDs that arrived; of datagrams, unless they go to an SRQ, receives taken")    \
	VALUE(rx_write_requests, COUNTS, "RDMA WRITEs of the peer that arrived")                                   \
	VALUE(rx_read_requests, COUNTS, "RDMA READs of the peer that were answered")                               \
	VALUE(rx_atomic_requests, COUNTS, "atomics of the peer that were answered")                                \
	VALUE(resp_bytes, COUNTS, "bytes that requests of peers moved, READs included")                            \
	VALUE(rnr_nak_retry_err, COUNTS, "times that the receiver was not ready")                                  \
	VALUE(retry_rnr_exceeded_err, COUNTS, "requests that failed with rnr_retry used up")                       \
	VALUE(local_ack_timeout_err, COUNTS, "times that nothing came back in time")                               \
	VALUE(retry_exceeded_err, COUNTS, "requests that failed with retry_cnt used up")                           \
	VALUE(packet_seq_err, COUNTS, "NAKs for a gap that came back")                                             \
	VALUE(req_cqe_error, COUNTS, "completions of the send queue with an error, flushes included")              \
	VALUE(req_cqe_flush_error, COUNTS, "of these, flushes")                                                    \
	VALUE(resp_cqe_error, COUNTS, "completions of receives with an error, flushes included")                   \
	VALUE(out_of_buffer, COUNTS, "times that a message found no receive posted, unless in an SRQ")             \
	VALUE(out_of_sequence, COUNTS, "requests behind a gap")                                                    \
	VALUE(duplicate_request, COUNTS, "requests that had been there before")                                    \
	VALUE(rx_drops, COUNTS, "UC and UD messages that were dropped")                                            \
	VALUE(sq_size, IS, "work requests that the send queue has room for")                                       \
	VALUE(sq_pending, IS, "work requests that are posted and not executed")                                    \
	VALUE(sq_depth, IS, "work requests that are posted and whose room was not given back by polling")          \
	VALUE(sq_high_water, IS, "most that sq_depth has ever been")                                               \
	VALUE(rq_size, IS, "work requests that the receive queue has room for")                                    \
	VALUE(rq_posted, IS, "receives that are posted and not taken")                                             \
	VALUE(rq_high_water, IS, "most receives that have ever been posted and not polled")

#define CQ_VALUES(VALUE)                                                                \
	VALUE(completions, COUNTS, "completions that were put into the queue")          \
	VALUE(overflows, COUNTS, "completions that were lost since the queue was full") \
	VALUE(size, IS, "completions that the queue has room for")                      \
	VALUE(fill, IS, "completions that wait to be polled")                           \
	VALUE(high_water, IS, "most completions that a poll has ever found waiting")    \
	VALUE(armed, IS, "1 if the next completion, 2 if the next solicited one raises an event")

#define SRQ_VALUES(VALUE)                                                                       \
	VALUE(taken, COUNTS, "receives that messages took")                                     \
	VALUE(out_of_buffer, COUNTS, "times that a message found no receive posted")            \
	VALUE(datagram_bytes, COUNTS, "bytes of the datagrams that were received")              \
	VALUE(size, IS, "work requests that the queue has room for")                            \
	VALUE(posted, IS, "receives that are posted and not taken")                             \
	VALUE(high_water, IS, "most receives that have ever been posted and not polled")        \
	VALUE(limit, IS, "number of posted receives below which an event is raised; 0: never")

#define MR_VALUES(VALUE)                                                     \
	VALUE(length, IS, "bytes of the region")                             \
	VALUE(mapped, IS, "bytes that peers reach through shared pages")     \
	VALUE(refused, COUNTS, "accesses with its key that were not right")

enum value_kind { COUNTS, IS };

/* What is to be known of one number. */
struct value {
	const char *name, *text;
	enum value_kind kind;
};

#define VALUE_INDEX_QP(name, kind, text)  QP_##name,
#define VALUE_INDEX_CQ(name, kind, text)  CQ_##name,
#define VALUE_INDEX_SRQ(name, kind, text) SRQ_##name,
#define VALUE_INDEX_MR(name, kind, text)  MR_##name,
enum { QP_VALUES(VALUE_INDEX_QP) QP_COUNT };
enum { CQ_VALUES(VALUE_INDEX_CQ) CQ_COUNT };
enum { SRQ_VALUES(VALUE_INDEX_SRQ) SRQ_COUNT };
enum { MR_VALUES(VALUE_INDEX_MR) MR_COUNT };

enum {
#define COUNTER(name, text) DEVICE_##name,
#define GAUGE		    COUNTER
#include "observe/counter_names.h"
#undef GAUGE
#undef COUNTER
	DEVICE_COUNT
};

extern const struct value device_values[DEVICE_COUNT], qp_values[QP_COUNT], cq_values[CQ_COUNT], srq_values[SRQ_COUNT],
	mr_values[MR_COUNT];

struct qp_shot {
	uint32_t qpn, index, life;
	enum ibv_qp_type type;
	enum ibv_qp_state state;
	uint32_t peer_qpn; /* 0: none */
	uint32_t pd, send_cq, recv_cq, mtu;
	int32_t srq; /* -1: none */
	union ibv_gid sgid, dgid;
	uint32_t executed;  /* work requests, modulo 2^32 */
	/* CLOCK_MONOTONIC ns: since when nothing was executed while something waits, as far as seen; 0: not so. */
	uint64_t stands_at;
	uint64_t values[QP_COUNT];
};

struct cq_shot {
	uint32_t index;
	bool failed;
	bool polls_known; /* the kernel lets us read the process's memory */
	uint64_t polls;
	/* CLOCK_MONOTONIC ns: when it was last seen to have been polled; 0: not since known_at, when it was first seen. */
	uint64_t polled_at, known_at;
	uint64_t values[CQ_COUNT];
};

struct srq_shot {
	uint32_t index, pd;
	uint64_t values[SRQ_COUNT];
};

struct mr_shot {
	uint32_t lkey, rkey, pd, access;
	uint64_t addr, iova;
	uint64_t values[MR_COUNT];
};

/* A process. What follows `seen` is there if it is true, else `reason` says why not. */
struct process_shot {
	pid_t pid;   /* 0 if it is hidden from us */
	uid_t uid;   /* (uid_t)-1 likewise */
	char state;  /* as proc(5) has it; '?' */
	char command[32];
	unsigned slot; /* its first */
	bool seen;
	char reason[128];
	char devices[NIC_DEVICES_BYTES];
	uint64_t instance;
	uint64_t at; /* CLOCK_MONOTONIC ns */
	uint64_t causes; /* recorded so far */
	uint64_t values[DEVICE_COUNT];
	struct qp_shot *qps;
	struct cq_shot *cqs;
	struct srq_shot *srqs;
	struct mr_shot *mrs;
	uint32_t qp_count, cq_count, srq_count, mr_count;
};

struct snapshot {
	struct process_shot *processes;
	uint32_t count;
	struct claim claims[SLOT_COUNT]; /* as found; kept so that each process is looked for only once */
	int claim_count;
};

/* Looks at all processes of this network namespace that use the device or, if pid is not 0, at that one. To be zeroed before the
 * first time, taken again as often as wanted, freed at the end. False with errno if it cannot be seen who uses the device, or
 * memory is short. */
bool snapshot_take(struct snapshot *snapshot, pid_t pid);
void snapshot_free(struct snapshot *snapshot);

/* The same process, queue pair or completion queue in an earlier snapshot; NULL if it was not there. */
const struct process_shot *process_shot_before(const struct snapshot *before, const struct process_shot *process);
const struct qp_shot *qp_shot_before(const struct process_shot *before, const struct qp_shot *qp);
const struct cq_shot *cq_shot_before(const struct process_shot *before, const struct cq_shot *cq);
const struct srq_shot *srq_shot_before(const struct process_shot *before, const struct srq_shot *srq);

/* Takes over what an earlier snapshot knew of times. */
void snapshot_carry(struct snapshot *snapshot, const struct snapshot *before);

/* From an open segment; of use to tests. False if it could not be read. */
bool process_shot_read(struct process_shot *process, int fd);
void process_shot_free(struct process_shot *process);

const char *qp_type_name(enum ibv_qp_type type);

/* Appends a zeroed entry to an array of *count that grows; NULL without memory. */
void *grow(void **array, uint32_t *count, size_t entry);

#endif
