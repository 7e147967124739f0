/* SPDX-License-Identifier: MIT */
/*
 * The work requests that wait in the queues of a running process. Receive queues are in its segment. Send queues are its private
 * memory, read by process_vm_readv: as its debugger might, without stopping it, and where the kernel lets us (the same user and
 * kernel.yama.ptrace_scope 0, or CAP_SYS_PTRACE). What is read while it changes is read again.
 */
#ifndef UROCE_TOOLS_QUEUES_H
#define UROCE_TOOLS_QUEUES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "nic/layout.h"

struct wr_shot {
	uint32_t index; /* place in the queue: modulo 2^32 for a send queue, from the oldest on for a receive queue */
	bool executed;	/* of a send queue: done, and its room not given back by polling */
	bool is_inline;
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint16_t flags; /* enum ibv_send_flags */
	uint64_t wr_id;
	uint64_t length;
	uint64_t remote_addr;
	uint32_t rkey, remote_qpn; /* remote_qpn: of datagrams */
	uint32_t num_sge;
	uint64_t seen_at; /* CLOCK_MONOTONIC ns: when it was first seen here; for who keeps it */
	struct ibv_sge sge[NIC_MAX_SGE];
};

struct wr_list {
	struct wr_shot *wrs;
	uint32_t count;
	bool more; /* than there is room for here */
};

#define WR_LIST_MOST 4096u

/* All to be freed, also after a failure. `most` of them at most, the oldest. False with errno: EPERM where it may not be read. */
bool queues_send(pid_t pid, int fd, uint32_t qp_index, uint32_t most, struct wr_list *list);
/* srq: the index is one of a shared receive queue. */
bool queues_receive(int fd, bool srq, uint32_t index, uint32_t most, struct wr_list *list);
void queues_free(struct wr_list *list);

/* How often the program looked at a completion queue. */
bool queues_polls(pid_t pid, const struct seg_header *header, uint32_t cq_index, uint64_t *polls);

const char *queues_opcode_name(uint8_t opcode);

#endif
