/* SPDX-License-Identifier: MIT */
/*
 * The counters of a device: COUNTER(name, text), and GAUGE(name, text) for what also goes down. Where rdma-core or a driver of
 * the kernel (hw_counters of mlx5 and rxe, counters of the port) has a name for the same thing, that is its name here.
 */

/* Requests that were executed. Of queue pairs that are gone; those of the others are their own (seg_qp.sent, seg_qp.received). */
COUNTER(rdma_sends, "SENDs of this process that were executed")
COUNTER(rdma_writes, "RDMA WRITEs of this process that were executed")
COUNTER(rdma_reads, "RDMA READs of this process that were executed")
COUNTER(rdma_atomics, "atomics of this process that were executed")
COUNTER(req_bytes, "bytes that requests of this process moved, READs included")
COUNTER(mapped_copies, "copies between mapped pages")
COUNTER(rdma_recvs, "SENDs of peers that arrived")
COUNTER(rx_write_requests, "RDMA WRITEs of peers that arrived")
COUNTER(rx_read_requests, "RDMA READs of peers that were answered")
COUNTER(rx_atomic_requests, "atomics of peers that were answered")
COUNTER(resp_bytes, "bytes that requests of peers moved, READs included")

/* Requester */
COUNTER(rnr_nak_retry_err, "times that a receiver was not ready")
COUNTER(retry_rnr_exceeded_err, "requests that failed with rnr_retry used up")
COUNTER(local_ack_timeout_err, "times that nothing came back in time")
COUNTER(retry_exceeded_err, "requests that failed with retry_cnt used up")
COUNTER(packet_seq_err, "NAKs for a gap that came back")
COUNTER(implied_nak_seq_err, "answers of READs or atomics that were found missing by what came behind them")
COUNTER(req_cqe_error, "completions of the send queues with an error, flushes included")
COUNTER(req_cqe_flush_error, "of these, flushes")
COUNTER(req_remote_access_errors, "requests that the responder refused for its key, range or rights")
COUNTER(req_remote_invalid_request, "requests that the responder refused as invalid")

/* Responder */
COUNTER(out_of_buffer, "times that a message found no receive posted")
COUNTER(out_of_sequence, "requests behind a gap")
COUNTER(duplicate_request, "requests that had been there before")
COUNTER(resp_cqe_error, "completions of receives with an error, flushes included")
COUNTER(resp_cqe_flush_error, "of these, flushes")
COUNTER(resp_local_length_error, "receives that were too short")
COUNTER(rx_drops, "UC and UD messages that were dropped")

/* The device */
COUNTER(cq_overflows, "completions that were lost since a completion queue was full")
COUNTER(cma_copies, "copies by the kernel (process_vm_readv, process_vm_writev)")
COUNTER(assisted_copies, "copies that the helper of the target did")
COUNTER(peers_died, "processes that died while they were peers")
GAUGE(quarantined, "bytes that a stopped visitor keeps from being used again")

/* The wire: between processes of one host nothing passes the port. */
COUNTER(port_xmit_packets, "packets sent")
COUNTER(port_xmit_data, "their length in words of 4 bytes, from the BTH to the ICRC")
COUNTER(port_rcv_packets, "packets received")
COUNTER(port_rcv_data, "their length in words of 4 bytes, from the BTH to the ICRC")
COUNTER(rx_malformed, "packets that are no RoCE")
COUNTER(rx_icrc_errors, "packets with a wrong ICRC")
COUNTER(rx_foreign, "packets for no queue pair of this process, or not from its peer")
COUNTER(np_ecn_marked_roce_packets, "packets that were marked for congestion on their way")
COUNTER(np_cnp_sent, "congestion notifications sent")
COUNTER(rp_cnp_handled, "congestion notifications that came")
