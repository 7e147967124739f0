/* SPDX-License-Identifier: MIT */
/* The codes of causes: CAUSE(name, number, text). Numbers are what ibv_wc.vendor_err shows: never
 * reuse one. */

/* Local checks of a work request */
CAUSE(LKEY_UNKNOWN, 1, "the SGE's lkey names no memory region of this process")
CAUSE(LKEY_IS_RKEY, 2, "the SGE's lkey is an rkey")
CAUSE(LKEY_DEREGISTERED, 3, "the SGE's lkey names a region that was deregistered")
CAUSE(LKEY_BOUNDS, 4, "the SGE reaches outside its memory region")
CAUSE(LKEY_PD, 5,
      "the SGE's memory region belongs to another protection domain than the queue pair")
CAUSE(LKEY_ACCESS, 6, "the SGE's memory region lacks IBV_ACCESS_LOCAL_WRITE")
CAUSE(LOCAL_FAULT, 7,
      "memory of a registered region is no longer mapped, or no longer accessible, in this process")
CAUSE(MESSAGE_TOO_LONG, 8, "the message is longer than the port's max_msg_sz")
CAUSE(UD_TOO_LONG, 9, "the UD message is longer than the path MTU")
CAUSE(NO_INITIATOR_DEPTH, 10, "RDMA READ or atomic on a queue pair whose max_rd_atomic is 0")
CAUSE(AH_PD, 11, "the address handle belongs to another protection domain than the queue pair")
CAUSE(ATOMIC_LENGTH, 12, "an atomic needs exactly 8 bytes of local buffer")

/* What the responder answers */
CAUSE(RKEY_UNKNOWN, 20, "the rkey names no memory region of the remote process")
CAUSE(RKEY_IS_LKEY, 21, "the rkey is an lkey")
CAUSE(RKEY_DEREGISTERED, 22, "the rkey names a region that was deregistered")
CAUSE(RKEY_BOUNDS, 23, "the remote address range reaches outside the memory region")
CAUSE(RKEY_PD, 24,
      "the memory region belongs to another protection domain than the remote queue pair")
CAUSE(RKEY_ACCESS, 25, "the remote memory region does not grant this access")
CAUSE(QP_ACCESS, 26, "the remote queue pair's qp_access_flags do not allow this operation")
CAUSE(REMOTE_FAULT, 27,
      "memory of the remote region is no longer mapped, or no longer accessible, in its process")
CAUSE(ATOMIC_ALIGNMENT, 28, "the remote address of an atomic is not a multiple of 8")
CAUSE(RECEIVE_TOO_SHORT, 29, "the message is longer than the receive buffer posted for it")
CAUSE(RECEIVE_BAD_SGE, 30, "an SGE of the remote receive request is not valid")
CAUSE(RESPONDER_DEPTH, 31,
      "more RDMA READs and atomics outstanding than the remote max_dest_rd_atomic")
CAUSE(MTU_MISMATCH, 32, "the two ends disagree about the path MTU")
CAUSE(PSN_MISMATCH, 33, "the first PSN sent is not the one that the other end expects")
CAUSE(RNR, 34, "no receive request was posted at the other end, until rnr_retry was used up")
CAUSE(REMOTE_CQ_ERROR, 35, "the remote receive completion queue is in error")
CAUSE(NAK_INVALID_REQUEST, 36, "the responder refused the request as invalid (NAK); its own causes say more")
CAUSE(NAK_ACCESS, 37, "the responder refused access to its memory (NAK); its own causes say more")
CAUSE(NAK_OPERATION, 38, "the responder could not do the request (NAK); its own causes say more")
CAUSE(BAD_RESPONSE, 39, "a response that does not fit its request")

/* No response until retry_cnt was used up */
CAUSE(PEER_ABSENT, 40, "no process holds the destination queue pair number")
CAUSE(PEER_DIED, 41, "the process at the other end died")
CAUSE(PEER_SILENT, 42, "the process at the other end does not answer")
CAUSE(PEER_QP_STATE, 43, "the queue pair at the other end is not in RTR or RTS")
CAUSE(PEER_QP_UNKNOWN, 44, "the process at the other end has no such queue pair")
CAUSE(PEER_NOT_CONNECTED, 45, "the queue pair at the other end is not connected to this one")
CAUSE(PEER_GID, 46, "the two ends disagree about their GIDs")
CAUSE(PEER_OTHER_USER, 47,
      "the process at the other end belongs to another user: no shared memory with it")
CAUSE(PEER_OTHER_VERSION, 48, "the process at the other end runs another version of uroce")
/* 49 was: no wire transport */
CAUSE(ATTACH_FAILED, 50, "the process at the other end could not be attached")
CAUSE(PEER_QP_TYPE, 51, "the queue pair at the other end is of another type")
CAUSE(NO_DESCRIPTORS, 52,
      "no file descriptors are left, here or at the other end, to attach with (ulimit -n)")
CAUSE(NO_ADDRESS_SPACE, 53,
      "no address space is left, here or at the other end, to map a peer's segment in (ulimit -v)")
CAUSE(NO_ANSWER, 54, "no packet came back from the other host")
CAUSE(WIRE_UNREACHABLE, 55, "the system refuses to send to the other host: no route, or no source address")
CAUSE(WIRE_PORT, 56, "another user, or another RoCE, has the UDP port of this address: use another address, or UROCE_PORT")
CAUSE(WIRE_MTU, 57, "the packets are longer than the interface takes: use a smaller path MTU")

/* Flushes and consequences */
CAUSE(FLUSHED, 60, "flushed: the queue pair was already in the error state")
CAUSE(CQ_OVERFLOW, 61, "the completion queue was full")
CAUSE(BAD_REQUEST, 63, "a packet from the peer that its message has no place for")
CAUSE(PEER_REPORTED, 62, "the peer's request failed at this queue pair")

/* Datagrams and UC messages that nobody hears of */
CAUSE(DROP_NO_RECEIVE, 70, "message dropped: no receive request was posted")
CAUSE(DROP_QKEY, 71, "datagram dropped: wrong Q_Key")
CAUSE(DROP_NO_QP, 72, "message dropped: no such queue pair, or not ready to receive")
CAUSE(DROP_TOO_LONG, 73, "message dropped: longer than the receive buffer")
CAUSE(DROP_ACCESS, 74, "message dropped: the remote access was not allowed")
CAUSE(DROP_BAD_SGE, 75, "message dropped: an SGE of the receive request is not valid")
CAUSE(DROP_UNREACHABLE, 76, "message dropped: the destination cannot be reached")

/* Verbs that refuse */
CAUSE(POST_STATE, 100, "posted in a state that does not allow it")
CAUSE(POST_OPCODE, 101, "the opcode is not supported by the queue pair's type")
CAUSE(POST_SGES, 102, "more SGEs than the queue was created for")
CAUSE(POST_INLINE, 103, "inline data longer than the queue was created for")
CAUSE(SQ_FULL, 104, "the send queue is full")
CAUSE(RQ_FULL, 105, "the receive queue is full")
CAUSE(SRQ_FULL, 106, "the shared receive queue is full")
CAUSE(POST_ON_SRQ_QP, 107, "receive posted to a queue pair that uses a shared receive queue")
CAUSE(POST_NO_AH, 108, "UD send without an address handle")
CAUSE(FORKED, 109, "the object was inherited over fork: only the process that made it can use it")
CAUSE(POST_FLAGS, 110, "send flags that the operation does not allow")
CAUSE(MODIFY_TRANSITION, 120, "no such transition between queue pair states")
CAUSE(MODIFY_MISSING, 121, "an attribute that the transition requires is missing")
CAUSE(MODIFY_SUPERFLUOUS, 122, "an attribute that the transition does not allow was given")
CAUSE(MODIFY_VALUE, 123, "an attribute's value is out of range")
CAUSE(NO_GRH, 124,
      "RoCE needs a GRH: set is_global, and sgid_index to 0 or that of another address")
CAUSE(BAD_SGID_INDEX, 125, "the GID table has no entry at this sgid_index")
CAUSE(BAD_DGID, 126, "the destination GID is zero")
CAUSE(MODIFY_CUR_STATE, 127, "cur_qp_state is not the queue pair's state")
CAUSE(GROUP, 128, "the GID is no multicast address, or the queue pair is not of type UD, or is not attached to this group")
CAUSE(GROUP_JOIN, 129, "none of the host's interfaces lets this group be joined")
CAUSE(CREATE_LIMIT, 130, "a capability above the device's limit")
CAUSE(CREATE_ARGUMENT, 131, "an argument that is not allowed")
CAUSE(CREATE_PD_MISMATCH, 132, "objects of different devices, or contexts")
CAUSE(OBJECT_TABLE_FULL, 133, "no free entry in the device's table of such objects")
CAUSE(NO_MEMORY, 134, "not enough memory")
CAUSE(NOT_SUPPORTED, 135, "not supported by this device")
CAUSE(BUSY, 136, "the object is in use")
CAUSE(SRQ_LIMIT, 137, "the limit is above the shared receive queue's size")
CAUSE(REG_UNMAPPED, 140, "part of the range is not mapped")
CAUSE(REG_NOT_WRITABLE, 141, "part of the range is not writable, but write access was asked for")
CAUSE(REG_ACCESS, 142, "access flags that do not go together")
CAUSE(REG_RANGE, 143, "the range is empty, too long or wraps")
CAUSE(DEREG_STOPPED_PEER, 144, "a stopped process is in the middle of an access to this region")
CAUSE(RESIZE_TOO_SMALL, 145, "the new size is below the number of completions in the queue")
CAUSE(REG_IOVA, 146, "iova and address are not at the same place within a page")
CAUSE(DEVICE_OPEN, 150, "the device could not be opened")

/* Memory windows: accesses through them */
CAUSE(WINDOW_UNBOUND, 202, "the rkey names a memory window that is not bound, or not any more")
CAUSE(WINDOW_OTHER_KEY, 203, "the rkey is not the one that the memory window got when it was last bound")
CAUSE(WINDOW_PD, 204, "the memory window belongs to another protection domain than the remote queue pair")
CAUSE(WINDOW_QP, 205, "the memory window is of type 2, and was bound by another queue pair")
CAUSE(WINDOW_BOUNDS, 206, "the remote address range reaches outside the memory window")
CAUSE(WINDOW_ACCESS, 207, "the memory window does not grant this access")

/* … binding them */
CAUSE(BIND_WINDOW, 186, "the memory window to be bound was deallocated")
CAUSE(BIND_REGION, 187, "the lkey of the region to bind a memory window to names none")
CAUSE(BIND_PD, 188, "memory window, region and queue pair belong to different protection domains")
CAUSE(BIND_ZERO_BASED, 189, "a memory window of type 1 cannot be zero-based, and none can be bound to a zero-based region")
CAUSE(BIND_RIGHT, 190, "the region was registered without IBV_ACCESS_MW_BIND")
CAUSE(BIND_ACCESS, 191, "a memory window for remote writes or atomics needs a region with IBV_ACCESS_LOCAL_WRITE")
CAUSE(BIND_BOUNDS, 192, "the memory window would reach outside its region")
CAUSE(BIND_BOUND, 193, "the memory window is of type 2, and bound: invalidate it first")
CAUSE(BIND_EMPTY, 194, "a memory window of type 2 cannot be bound to nothing: invalidate it")

/* … invalidating them */
CAUSE(INVALIDATE_KEY, 195, "the key to be invalidated is not that of a memory window")
CAUSE(INVALIDATE_TYPE, 196, "the key to be invalidated is that of a memory window of type 1: bind it to nothing")
CAUSE(INVALIDATE_UNBOUND, 197, "the memory window to be invalidated is not bound")
CAUSE(INVALIDATE_QP, 198, "the memory window to be invalidated was bound by another queue pair")
CAUSE(WINDOW_STOPPED_PEER, 199, "a stopped process is in the middle of an access through this memory window")
CAUSE(POST_BIND, 200, "a bind without a memory window, of bytes without a region, or with access flags that a window cannot have")
CAUSE(REGION_HAS_WINDOWS, 201, "memory windows are bound to the region: unbind, invalidate or deallocate them first")
