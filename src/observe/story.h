/* SPDX-License-Identifier: MIT */
/*
 * The life of a process's queue pairs, for `uroce explain`: when each was created, changed its state and was destroyed. A ring in
 * the segment, as that of causes: the newest records survive.
 */
#ifndef UROCE_OBSERVE_STORY_H
#define UROCE_OBSERVE_STORY_H

#include <stdatomic.h>
#include <stdint.h>

enum story_kind { STORY_CREATED = 1, STORY_STATE, STORY_DESTROYED };

struct story {
	/* position + 1, stored last (release); 0 before, STORY_BEING_WRITTEN meanwhile */
	_Atomic uint64_t seq;
	uint64_t time; /* CLOCK_REALTIME, ns */
	uint32_t qpn;
	uint16_t kind;	   /* enum story_kind */
	uint16_t state;	   /* enum ibv_qp_state, from now on */
	uint32_t peer_qpn; /* from RTR on; not of UD */
	uint32_t type;	   /* enum ibv_qp_type */
	/* STORY_DESTROYED: of its whole life */
	uint64_t requests; /* executed */
	uint64_t bytes;	   /* that these moved */
	uint32_t arrived;  /* requests of the peer, modulo 2^32 */
	uint32_t flushed;  /* send and receive requests, the same */
};

#define STORY_BEING_WRITTEN UINT64_MAX

struct story_ring {
	_Atomic uint64_t next;
	struct story records[2048];
};

/* Records *s: stamps time and sequence. Never blocks. */
void story_record(struct story_ring *ring, const struct story *s);

#endif
