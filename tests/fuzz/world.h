/* SPDX-License-Identifier: MIT */
/*
 * The world that a NIC is fuzzed in: nothing in it happens by itself. Its clock stands until it is moved (and a bit with each
 * look at it), there is no helper thread but world_turn(), and its network is this file: sockets are bound to nothing, packets
 * arrive by world_bring(), and what is sent goes to the fuzzer. So the same input does the same, and no other process sees any
 * of it.
 *
 * The linker puts this in the place of the library's own: see CMakeLists.txt.
 */
#ifndef TESTS_FUZZ_WORLD_H
#define TESTS_FUZZ_WORLD_H

#include <string.h>

#include "fuzz.h"
#include "nic/mr.h"
#include "nic/qp.h"
#include "roce/wire.h"

#define WORLD_PD       1u
#define WORLD_OTHER_PD 2u

/* A fuzzer's input, read from the front; behind its end there are zeros. */
struct input {
	const uint8_t *at;
	size_t left;
};

static inline uint8_t take_8(struct input *input)
{
	if (!input->left)
		return 0;
	input->left--;
	return *input->at++;
}

static inline uint16_t take_16(struct input *input)
{
	uint8_t low = take_8(input);

	return (uint16_t)(low | take_8(input) << 8);
}

/* The NIC, opened at the first call. It stays. */
struct nic *world_nic(void);

/* The ends of all connections, over IPv4 or IPv6. A stranger has an address like the peer's. */
enum world_end { WORLD_US, WORLD_PEER, WORLD_STRANGER };
union ibv_gid world_gid(enum world_end end, bool v6);

/* A QP with what all have, still in RESET. */
void world_make_qp(enum ibv_qp_type type, struct nic_cq *cq, struct nic_srq *srq, uint32_t depth, struct nic_qp *qp);
/* Modifies with all attributes that the transition needs. False if the NIC refuses. */
bool world_move_qp(struct nic_qp *qp, enum ibv_qp_state to, const struct ibv_qp_attr *attr);

/* Time passes, ns. */
void world_wait(uint64_t ns);
uint64_t world_time(void);

/* What the helper does when it wakes. */
void world_turn(void);
/* The time goes on to when the helper would wake next, and it does. False if it has nothing to wait for. */
bool world_wait_for_helper(void);

/* A packet arrives: BTH to pad; the ICRC is made here, wrong if so asked. With joined it stands in one datagram with the one
 * before, if that is as long. Those that were brought arrive together with world_arrive(). */
struct world_packet {
	enum world_end from;
	bool v6, joined, broken;
	uint8_t traffic_class;
	const uint8_t *bytes;
	size_t length;
};
void world_bring(const struct world_packet *packet);
void world_arrive(void);

/* Sending fails with this errno from now on; 0: it works. The fuzzer sees the packets all the same. */
void world_refuse_sending(int error);

/* What was sent, checked as far as any packet can be: its ICRC, its parse. The fuzzer's. */
struct world_sent {
	struct roce_packet packet;
	union ibv_gid dgid;
};
void world_sent(const struct world_sent *sent);

/* Memory with a region in it, around which there are bytes that must not change, and pages that must not be touched. */
struct area {
	uint8_t *start; /* of the region */
	size_t length;
	uint8_t *pages;
	size_t pages_length;
	uint32_t pd, access;
	bool registered;
	struct nic_mr mr;
};

/* What canaries are made of. Neither payloads nor fill bytes have it. */
#define CANARY 0xa5

void area_make(struct area *area, size_t length, uint32_t pd, uint32_t access);
void area_register(struct area *area);
void area_deregister(struct area *area);
/* The program takes its memory's rights away, and gives them back, while the region stays. */
void area_protect(const struct area *area, bool protect);
/* Aborts if anything around the region changed. */
void area_check_edges(const struct area *area);

/* The bytes of all messages: a function of what they belong to (a number of the fuzzer's) and their place. Never CANARY. */
static inline uint8_t fill_byte(uint32_t key, uint32_t i)
{
	return (uint8_t)((key * 37 + (key >> 8) * 3 + i * 11 + (i >> 7) * 5) & 0x7f);
}

static inline void fill(uint8_t *to, uint32_t key, uint32_t from, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		to[i] = fill_byte(key, from + i);
}

static inline bool is_filled(const uint8_t *bytes, uint32_t key, uint32_t from, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++) {
		if (bytes[i] != fill_byte(key, from + i))
			return false;
	}
	return true;
}

/* Much is looked at each time: words at once, and no sanitizer in between, whose memcmp() goes by bytes. */
#define FAST_LOOK __attribute__((no_sanitize("address", "undefined")))

FAST_LOOK static inline bool is_same(const uint8_t *a, const uint8_t *b, size_t length)
{
	uint64_t difference = 0;

	for (; length >= sizeof(uint64_t); a += sizeof(uint64_t), b += sizeof(uint64_t), length -= sizeof(uint64_t)) {
		uint64_t left, right;

		__builtin_memcpy(&left, a, sizeof(left));
		__builtin_memcpy(&right, b, sizeof(right));
		difference |= left ^ right;
	}
	for (; length; length--)
		difference |= (uint64_t)(*a++ ^ *b++);
	return !difference;
}

static inline bool is_canary(const uint8_t *bytes, size_t length)
{
	return !length || (bytes[0] == CANARY && is_same(bytes, bytes + 1, length - 1));
}

#endif
