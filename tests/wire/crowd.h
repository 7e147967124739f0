/* SPDX-License-Identifier: MIT */
/*
 * Crowds: many processes on each of two hosts, each connected to all of the other host, while they start, leave, are stopped and
 * killed. What both hosts' processes know of each other stands on a board: a file that all map. Each word of it has one writer, and
 * what is more than a word is read again when it has changed meanwhile.
 */
#ifndef TESTS_WIRE_CROWD_H
#define TESTS_WIRE_CROWD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define CROWD_HOSTS 2u
#define CROWD_MOST  64u /* processes of a host */

/* What a process offers another for a connection. The first host's leads: it offers, the other answers by an offer with the same
 * lives and attempt, and may send when that is confirmed. */
struct offer {
	uint32_t life, peer_life; /* of whom it is, and for whom */
	uint32_t attempt;
	uint32_t qpn, psn, rkey;
	uint64_t addr; /* where the other may write */
	uint32_t is_confirmed, is_broken;
};

struct offer_box {
	_Atomic uint32_t version; /* odd: being written, perhaps by who has been killed in it */
	struct offer offer;
};

struct whoami {
	uint32_t life;
	uint32_t ud_qpn;
	union ibv_gid gids[2]; /* IPv4, IPv6 */
};

struct whoami_box {
	_Atomic uint32_t version;
	struct whoami whoami;
};

/* A process's place; its tenants change. */
struct place {
	/* By the director. */
	_Atomic uint32_t life;	      /* of the tenant, counts up; 0: there is none, or it is about to be killed */
	_Atomic uint64_t quiet_since; /* ms: since then it was neither started nor stopped; UINT64_MAX: it is stopped */
	_Atomic bool leave;
	/* By the tenant. */
	_Atomic uint32_t content; /* its life, when it has heard enough of all in the end */
	_Atomic uint32_t slots;	  /* of its QPNs: those of a host must be different */
	struct whoami_box whoami;
	struct offer_box offers[CROWD_MOST]; /* to each of the other host */
};

struct totals {
	_Atomic uint64_t messages, bytes, written, connections;
	_Atomic uint64_t datagrams_sent, datagrams;
	_Atomic uint64_t ended;	   /* connections whose peer was gone, or stopped, ended with RETRY_EXC */
	_Atomic uint64_t given_up; /* the same, though the peer was there */
	_Atomic uint64_t killed, left, stopped, stopped_long;
	_Atomic uint64_t worst; /* ms without a message between two that were there */
};

struct board {
	_Atomic uint32_t joined;  /* directors */
	_Atomic uint32_t quiet;	  /* those whose processes are all there to stay */
	_Atomic uint32_t content; /* those whose processes are all content */
	_Atomic bool failed;
	struct totals totals;
	struct place places[CROWD_HOSTS][CROWD_MOST];
};

struct member {
	struct board *board;
	unsigned host, index, count, directors;
	uint32_t life;
	uint64_t seed;
};

/* A tenant's life; does not return. */
void crowd_member(const struct member *member) __attribute__((noreturn));

/* ms that two who are there may go without a message from each other. */
uint64_t crowd_bound(unsigned count);

/* xorshift64*. */
static inline uint32_t crowd_draw(uint64_t *state, uint32_t n)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (uint32_t)((*state * 0x2545f4914f6cdd1dull) >> 32) % n;
}

#endif
