/* SPDX-License-Identifier: MIT */
/*
 * What the tests of memory that is shared already have in common: such memory, two processes of which one writes into the
 * other's region, and which way the bytes went. That is read in the segments.
 */
#ifndef TESTS_MACHINE_MEETING_H
#define TESTS_MACHINE_MEETING_H

#include "cases.h"

#include "nic/mr.h"

#define PAGE  4096u
#define BYTES (8 * PAGE)
#define NAME  "views-test" /* of memfds */

struct memory {
	uint8_t *at;
	int fd; /* -1: none */
};

int make_memfd(size_t bytes, unsigned flags, int seals);
/* MAP_SHARED; NULL when that is refused. */
uint8_t *map(int fd, size_t bytes, int flags);
struct memory sealed_memory(size_t bytes);

/* Of memfds of these tests, in this process. */
unsigned count_mappings(void);
void wait_for_mappings(unsigned count);

/* All rights. */
struct ibv_mr *enroll(struct node *node, void *at, size_t bytes);
/* Why a region is not mapped by peers from a file of its own, or that it is, to its end. */
enum nic_unmapped why_not(const struct ibv_mr *mr);

/* Copies that this process, by its QP, did between mapped pages, and those that it did in any other way. */
struct copies {
	uint64_t mapped, other;
};
struct copies copies_of(const struct ibv_qp *qp);

/* Each side has a QP, which is connected to the other's. */
struct meeting {
	struct node node;
	struct ibv_qp *qp;
	struct card other;
};

void join(struct meeting *m, int line);
void part(struct meeting *m);
/* Of a node that is open. */
void connect_pair(struct meeting *m, int line);
/* To another QP of the same node, which is returned. */
struct ibv_qp *connect_within(struct meeting *self, const struct meeting *m);

/* A region, as the other side is told of it. */
struct place {
	uint64_t addr;
	uint32_t rkey;
};
void offer(int line, const struct ibv_mr *mr);
struct place take_offer(int line);

/* With the node's buffer from offset on; it must succeed. */
void do_rdma(struct meeting *m, enum ibv_wr_opcode opcode, uint32_t offset, uint32_t length,
	     const struct place *place);

/* From a region of ours, into the other side's buffer. */
void write_from(struct meeting *m, const struct ibv_mr *mr);

/* Of the node's buffer: the first part goes to a region, what is read from there comes into the second. */
enum { SENT = 0, READ = BYTES };

/* Uses all of a region: a WRITE, an atomic on its first word, a READ. */
#define MESSAGES 3
void use(struct meeting *m, const struct place *place, uint8_t with);
/* Whether this is what a region holds then. */
bool is_used(const uint8_t *at, uint8_t with);

/* Bytes as they are sent. */
void fill(uint8_t *at, uint8_t with);

#endif
