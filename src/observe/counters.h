/* SPDX-License-Identifier: MIT */
/*
 * Counters of a device, in the segment. Names are those of rdma-core and the kernel's hw_counters
 * where they exist. Written with relaxed adds by the owner or, where the responder's side counts,
 * by initiators; read by anyone.
 */
#ifndef UROCE_OBSERVE_COUNTERS_H
#define UROCE_OBSERVE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

struct device_counters {
	/* Of queue pairs that are gone; those of the others are their own (seg_qp.sent). */
	_Atomic uint64_t rdma_sends; /* SENDs executed */
	_Atomic uint64_t rdma_writes;
	_Atomic uint64_t rdma_reads;
	_Atomic uint64_t rdma_atomics;
	_Atomic uint64_t bytes;			/* payload moved by our initiators */
	_Atomic uint64_t rnr_nak_retry_err;	/* RNR retries exhausted */
	_Atomic uint64_t local_ack_timeout_err; /* transport retries exhausted */
	_Atomic uint64_t rx_drops; /* UC and UD messages dropped at our receive queues */
	_Atomic uint64_t cq_overflows;
	_Atomic uint64_t mapped_copies;	  /* copies of our initiators between mapped pages */
	_Atomic uint64_t cma_copies;	  /* and by process_vm_readv/writev */
	_Atomic uint64_t assisted_copies; /* copies that the target's helper did */
	_Atomic uint64_t peers_died;
	/* The wire */
	_Atomic uint64_t rx_malformed;	  /* packets that are no RoCE */
	_Atomic uint64_t rx_icrc_errors;  /* damaged */
	_Atomic uint64_t rx_foreign;	  /* for no queue pair of ours, or not from its peer */
	_Atomic uint64_t out_of_sequence; /* requests behind a gap */
	_Atomic uint64_t duplicate_request;
	_Atomic uint64_t packet_seq_err; /* NAKs for a gap that came back */
	_Atomic uint64_t rnr_naks;	 /* that came back */
	_Atomic uint64_t quarantined; /* bytes that a stopped visitor keeps from being reused */
};

static inline void counter_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* For a counter that has one writer at a time. */
static inline void counter_add_alone(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

#endif
