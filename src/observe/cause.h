/* SPDX-License-Identifier: MIT */
/*
 * Causes: why something was refused or failed, with the numbers that explain it.
 *
 * Whoever refuses records a cause into its own process's segment (a ring, so the newest NIC_CAUSES survive; and beside it the first
 * of each kind, whatever comes later) and, where a completion carries the failure, puts the code into ibv_wc.vendor_err. The words
 * are made later from the numbers; the facts have to be taken here, where they are known.
 */
#ifndef UROCE_OBSERVE_CAUSE_H
#define UROCE_OBSERVE_CAUSE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum cause_code {
	CAUSE_NONE = 0,
#define CAUSE(name, number, text) CAUSE_##name = number,
#include "observe/cause_codes.h"
#undef CAUSE
};

/* What the numbers are of. */
enum cause_role {
	CAUSE_OF_OTHER,	  /* a message that arrived, or a verb: error is an errno, or 0 */
	CAUSE_OF_REQUEST, /* a work request of ours that was executed: error is an enum ibv_wc_status */
	CAUSE_OF_POST,	  /* one that was refused when it was posted; the opcode of a receive is IBV_WC_RECV */
};

/* What an argument or attribute is, or which verb was called, where a code is of several. */
enum cause_thing {
	CAUSE_THING_NONE,
#define THING(name, text) CAUSE_THING_##name,
#include "observe/cause_things.h"
#undef THING
	CAUSE_THINGS,
};

/* Whose call stacks belong to it. They are kept while somebody is told of causes (watch.h). */
enum cause_stack {
	CAUSE_STACK_CALL,	  /* of the work request's posting, or of the verb that was refused */
	CAUSE_STACK_REGISTERED,	  /* of the region that the key names, or named */
	CAUSE_STACK_DEREGISTERED, /* the same */
	CAUSE_STACK_QP,		  /* of the queue pair's creation */
	CAUSE_STACK_CQ,		  /* of the completion queue's */
	CAUSE_STACKS,
};

/* In a number: it is one of the process at the other end, peer_pid. */
#define CAUSE_STACK_OF_PEER (1u << 31)

/* Unused numbers are 0; a field means the same in every code. */
struct cause {
	_Atomic uint64_t
		/* position + 1, stored last (release); 0 before, CAUSE_BEING_WRITTEN meanwhile */
		seq;
	uint64_t time; /* CLOCK_REALTIME, ns */
	uint32_t code; /* enum cause_code */
	int32_t error; /* errno that the verb returned, or enum ibv_wc_status of the completion: see role */
	uint32_t qpn;  /* ours; for other objects their handle */
	uint32_t peer_qpn;
	uint64_t wr_id;
	uint32_t wr_index; /* place in the posted list, from 0 */
	uint32_t opcode;   /* enum ibv_wr_opcode, or the attribute mask of a modify verb */
	uint64_t addr;	   /* what was asked for */
	uint64_t length;
	uint32_t key;
	uint32_t access;      /* rights needed, enum ibv_access_flags */
	uint64_t region_addr; /* the region that the key names, in the key's address space */
	uint64_t region_length;
	uint32_t region_access;
	uint32_t region_pd;
	uint32_t pd;
	uint32_t state; /* enum ibv_qp_state of our QP */
	uint32_t peer_state;
	int32_t peer_pid;
	uint64_t limit; /* the bound that was passed: depth, SGEs, bytes, ns */
	uint64_t value; /* what was found instead */
	uint64_t count; /* retries made, completions lost, … */
	uint32_t tid;
	uint32_t role; /* enum cause_role */
	uint32_t psn;  /* of the first packet */
	uint32_t peer_psn; /* the one that the other end expects */
	/* Connections by address: where to, or what was to be bound. IPv6, or IPv4 mapped into it; all 0: not known. */
	uint8_t address[16];
	uint32_t port;
	uint32_t thing;		       /* enum cause_thing */
	uint32_t stacks[CAUSE_STACKS]; /* enum cause_stack: numbers of watch.h; 0: none */
};

#define CAUSE_BEING_WRITTEN UINT64_MAX

#define CAUSE_CODES	  256 /* codes are below */
#define CAUSE_KINDS	  256
#define CAUSE_OF_ONE_CODE 8

/*
 * The first of each kind, in the order in which they came, and how often each came. A code has CAUSE_OF_ONE_CODE kinds at most: what is
 * of others, or finds no room, is counted by its code.
 */
struct cause_kinds {
	_Atomic uint64_t kinds[CAUSE_KINDS]; /* cause_kind(); 0: free, and so are those behind it */
	_Atomic uint64_t counts[CAUSE_KINDS];
	struct cause firsts[CAUSE_KINDS]; /* seq as in the ring */
	_Atomic uint64_t others[CAUSE_CODES];
};

struct cause_ring {
	_Atomic uint64_t next;
	struct cause slots[4096];
	struct cause_kinds kinds;
};

/* The mistake that it is of: the same code of the same object, and the same thing of it. Never 0. */
uint64_t cause_kind(const struct cause *c);

/* Records *c: stamps time, thread and sequence. Never blocks; returns c->code, for use as
 * vendor_err. A null ring (no device is open yet) keeps nothing. */
uint32_t cause_record(struct cause_ring *ring, const struct cause *c);

/* Into the ring of another process, which tells of it when it comes across it. Returns its number there. */
uint64_t cause_leave(struct cause_ring *ring, const struct cause *c);

/* Tells of one that was left in our ring. False: it is not there any more. */
bool cause_tell(const struct cause_ring *ring, uint64_t number);

/* In the place of a number: its process has recorded it itself. */
#define CAUSE_TOLD UINT64_MAX

/*
 * Where both ends are known one failure has two records: that of the request, and that of its message where it arrived. *request
 * becomes the only one: of packets it has said only that there was a NAK. False: they are of two failures.
 */
bool cause_join(struct cause *request, const struct cause *message);

/* The short text of a code; "unknown cause" for a number that is none. */
const char *cause_text(uint32_t code);

/* What a thing is called, as "cap.max_send_wr of ibv_create_qp"; NULL for a number that is none, and CAUSE_THING_NONE. */
const char *cause_thing(uint32_t thing);

/* Its name, as "RNR"; NULL for a number that is none. */
const char *cause_name(uint32_t code);

/* All codes, in the order of their numbers' places in cause_codes.h; NULL past the end. */
struct cause_entry {
	uint32_t code;
	const char *name, *text;
};
const struct cause_entry *cause_entry(unsigned place);

/* Called with each cause as it is recorded, by whoever records it; it does not wait. NULL: nobody is. The library sets it. */
extern void (*_Atomic cause_listener)(const struct cause *c);

#endif
