/* SPDX-License-Identifier: MIT */
/*
 * What is said of each cause: TEXT(name, subject, statuses, errno, verbs, what happened, what to do).
 *
 * Subject: what the sentence is about, and so how it begins (explain.c). Statuses: of completions that end so, errno and verbs: of
 * calls that are refused so. In the texts {field} is a member of struct cause, {field:as} the same in another form, and
 * [a|b] is a where all its fields are known, else b. Every code has a line.
 */

/* Local checks of a work request */
TEXT(LKEY_UNKNOWN, REQUEST, S(LOC_PROT_ERR), 0, 0,
     N_("the SGE of {length:bytes} at {addr} has lkey {key}, and no memory region of this process has that key."),
     N_("Take the lkey from the struct ibv_mr that ibv_reg_mr returned for this memory, in this process and of this device; 0 "
	"or a key of another process names nothing here."))
TEXT(LKEY_IS_RKEY, REQUEST, S(LOC_PROT_ERR), 0, 0,
     N_("the SGE of {length:bytes} at {addr} has {key} as its lkey, which is the rkey of the region {region}."),
     N_("Put mr->lkey into sge.lkey; mr->rkey is for the other end. On some cards the two are the same number, here they never "
	"are."))
TEXT(LKEY_DEREGISTERED, REQUEST, S(LOC_PROT_ERR), 0, 0,
     N_("the SGE of {length:bytes} at {addr} has lkey {key}, whose region {region} was deregistered."),
     N_("Keep the region registered until every work request that uses it has completed, and post with the key of the newest "
	"registration."))
TEXT(LKEY_BOUNDS, REQUEST, S(LOC_PROT_ERR), 0, 0,
     N_("the SGE of {length:bytes} at {addr} {miss} the region {region} of lkey {key}."),
     N_("Register all of the buffer, or shorten the SGE. For UD a receive needs 40 bytes more, for the GRH."))
TEXT(LKEY_PD, REQUEST, S(LOC_PROT_ERR), 0, 0,
     N_("the SGE at {addr} has lkey {key}, whose region {region} belongs to protection domain {region_pd}; the queue pair "
	"belongs to {pd}."),
     N_("Register the memory with the PD that the queue pair was created with; it may be registered with several."))
TEXT(LKEY_ACCESS, REQUEST, S(LOC_PROT_ERR), 0, 0,
     N_("the SGE of {length:bytes} at {addr} is to be written to, which needs {access}; the region {region} of lkey {key} has "
	"{region_access}."),
     N_("Register memory that receives, RDMA READs or atomics write to with IBV_ACCESS_LOCAL_WRITE."))
TEXT(LOCAL_FAULT, REQUEST, S(LOC_PROT_ERR), 0, 0,
     N_("memory of a registered region of this process is not mapped, or not accessible, any more[: {addr}, {length:bytes}]."),
     N_("Do not free, unmap or protect memory before it is deregistered; look for free(), munmap() or mprotect() of that "
	"address."))
TEXT(MESSAGE_TOO_LONG, REQUEST, S(LOC_LEN_ERR), 0, 0,
     N_("the message has {value:bytes}, and the port takes {limit:bytes}."),
     N_("Cut it into several; max_msg_sz of ibv_query_port is the limit."))
TEXT(UD_TOO_LONG, REQUEST, S(LOC_LEN_ERR), 0, 0,
     N_("the datagram has {value:bytes}, and the path MTU is {limit:bytes}."),
     N_("UD messages are one packet: cut them to the MTU (active_mtu of ibv_query_port), or use RC."))
TEXT(NO_INITIATOR_DEPTH, REQUEST, S(LOC_QP_OP_ERR), 0, 0,
     N_("it needs a place among the outstanding READs and atomics, and max_rd_atomic of the queue pair is 0."),
     N_("Set max_rd_atomic to 1 or more at RTR to RTS, and max_dest_rd_atomic at the other end to as many."))
TEXT(AH_PD, REQUEST, S(LOC_QP_OP_ERR), 0, 0,
     N_("its address handle belongs to protection domain {region_pd}, the queue pair to {pd}."),
     N_("Create the address handle with the PD of the queue pair."))
TEXT(ATOMIC_LENGTH, REQUEST, S(LOC_LEN_ERR), 0, 0,
     N_("an atomic brings back {limit:bytes}, and its SGEs have {value:bytes}."),
     N_("Give it SGEs of 8 bytes together."))

/* What the responder answers */
TEXT(RKEY_UNKNOWN, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("it names {length:bytes} at {addr} with rkey {key}, and the process at {there} has no region with that key."),
     N_("Send rkey and address from the other end after its ibv_reg_mr, in one byte order; a key of another device, another "
	"process or an earlier run names nothing."))
TEXT(RKEY_IS_LKEY, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("it names {length:bytes} at {addr} with {key}, which is the lkey of the region {region} at {there}."),
     N_("Send mr->rkey to the peer, not mr->lkey. On some cards the two are the same number, here they never are."))
TEXT(RKEY_DEREGISTERED, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("it names {length:bytes} at {addr} with rkey {key}, whose region {region} {there} has deregistered."),
     N_("The owner must wait until the peer says that it is done before it deregisters; after registering again the new rkey "
	"must be sent."))
TEXT(RKEY_BOUNDS, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("the range of {length:bytes} at {addr} of {there} {miss} the region {region} of rkey {key}."),
     N_("Compare address and length with what the other end registered; an address is that of its process, not an offset."))
TEXT(RKEY_PD, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("it names {addr} with rkey {key}, whose region {region} belongs to protection domain {region_pd} of {there}; the queue "
	"pair there belongs to {pd}."),
     N_("The other end must register the memory with the PD of the queue pair that this request goes to."))
TEXT(RKEY_ACCESS, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("it needs {access} at {addr}; the region {region} of rkey {key} at {there} has {region_access}."),
     N_("Add the missing right to the other end's ibv_reg_mr; IBV_ACCESS_REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE with "
	"them."))
TEXT(QP_ACCESS, MESSAGE, S(REM_INV_REQ_ERR), 0, 0,
     N_("it needs {access} of the queue pair at {there}, whose qp_access_flags are {region_access}."),
     N_("Set qp_access_flags at the other end's transition to INIT; rights of the memory region do not replace them."))
TEXT(REMOTE_FAULT, MESSAGE, S(REM_ACCESS_ERR) | S(REM_OP_ERR), 0, 0,
     N_("memory of a registered region at {there} is not mapped, or not accessible, any more[: {addr}, {length:bytes}]."),
     N_("The other end must not free, unmap or protect memory before it is deregistered."))
TEXT(ATOMIC_ALIGNMENT, MESSAGE, S(REM_INV_REQ_ERR), 0, 0,
     N_("its address {addr} is not a multiple of 8."),
     N_("Align the 8 bytes that atomics work on."))
TEXT(RECEIVE_TOO_SHORT, MESSAGE, S(REM_INV_REQ_ERR) | S(LOC_LEN_ERR), 0, 0,
     N_("it has {value:bytes}, and the receive that was posted for it has room for {limit:bytes}."),
     N_("Post receives as long as the longest message, in the order in which messages come: each takes the oldest one, whatever "
	"its length."))
TEXT(RECEIVE_BAD_SGE, MESSAGE, S(REM_OP_ERR) | S(LOC_PROT_ERR), 0, 0,
     N_("an SGE of the receive that it met is not valid: {length:bytes} at {addr} with lkey {key}[, {miss} the region "
	"{region}, which has {region_access}][ ({value:cause})]."),
     N_("The receiver must post SGEs that lie within a region of the queue pair's PD, registered with IBV_ACCESS_LOCAL_WRITE."))
TEXT(RESPONDER_DEPTH, MESSAGE, S(REM_INV_REQ_ERR), 0, 0,
     N_("it is READ or atomic number {value} under way, and max_dest_rd_atomic of {there} is {limit:zero}."),
     N_("Set max_rd_atomic here no higher than max_dest_rd_atomic there."))
TEXT(MTU_MISMATCH, MESSAGE, S(REM_INV_REQ_ERR) | S(BAD_RESP_ERR), 0, 0,
     N_("the packets do not have the size that the path MTU says: {value:bytes} at one end, {limit:bytes} at the other[, in a "
	"message of {length:bytes}]."),
     N_("Set the same path_mtu at both ends. Messages that fit into one packet of either get through, so that only longer ones "
	"fail."))
TEXT(PSN_MISMATCH, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("its first packet [has PSN {psn}{peer_pid:is}, and the other end expects {peer_psn}|does not have the PSN that the "
	"other end expects]: it takes that for old, or for a loss, and stays silent; {tries}."),
     N_("sq_psn of one end must be rq_psn of the other, and the other way round; connect both queue pairs anew together."))
TEXT(RNR, REQUEST, S(RNR_RETRY_EXC_ERR), 0, 0,
     N_("no receive was posted[ to the shared receive queue{thing:is}] at the other end, QP {peer_qpn}[, process {peer_pid}]"
	"[{peer_pid:is}: [all {value} that it had posted were used up[, for all queue pairs of that queue{thing:is}]|it has never "
	"posted one]|]. [Retries (rnr_retry): {count}, each after {limit:ms}|rnr_retry is 0, "
	"so it was not tried again]."),
     N_("Post receives before the peer may send: right after INIT, before RTR and the exchange of addresses; and post new ones "
	"before the last is used. rnr_retry 7 waits for ever; min_rnr_timer of the receiver is how long each wait is (0 is the "
	"longest, 655.36 ms)."))
TEXT(RNR_WAIT, REQUEST, 0, 0, 0,
     N_("it has been waiting for {value:ms} because the other end, QP {peer_qpn}[, process {peer_pid}], has no receive posted[ to its "
	"shared receive queue{thing:is}]; "
	"each wait is {limit:ms} (its min_rnr_timer), and rnr_retry {count:zero} allows more of them."),
     N_("Post receives in time, and set min_rnr_timer to a short wait, as 12 (0.64 ms): 0 is the longest there is, 655.36 ms."))
TEXT(RNR_TIMER, REQUEST, 0, 0, 0,
     N_("it waited {value:ms} for a receive at the other end, QP {peer_qpn}[. That one was posted too late, by {count:ms}; the rest "
	"was lost because it is looked for only when a wait is over]: min_rnr_timer there is {limit:timer}."),
     N_("Set min_rnr_timer of the receiver to a short wait (at RTR), as 12 (0.64 ms): 0 is the longest there is, 655.36 ms. And post "
	"receives before the peer may send; how deep the queue is does not matter for that."))
TEXT(REMOTE_CQ_ERROR, MESSAGE, S(REM_OP_ERR), 0, 0,
     N_("the completion queue for receives at {there} is in error: it had been full[; completions lost: {count}]."),
     N_("Make that CQ as deep as all queues that complete in it together, and poll it more often."))
TEXT(NAK_INVALID_REQUEST, REQUEST, S(REM_INV_REQ_ERR), 0, 0,
     N_("QP {peer_qpn} of the other host refused it as an invalid request (NAK); packets say no more."),
     N_("Look at the causes of the other host's program, which name it: a receive that is too short, an operation or depth that "
	"the queue pair does not allow, another path MTU."))
TEXT(NAK_ACCESS, REQUEST, S(REM_ACCESS_ERR), 0, 0,
     N_("QP {peer_qpn} of the other host refused access to its memory (NAK); packets say no more."),
     N_("Look at the causes of the other host's program, which name key, range and rights. Compare rkey, address and length "
	"with its ibv_reg_mr."))
TEXT(NAK_OPERATION, REQUEST, S(REM_OP_ERR), 0, 0,
     N_("QP {peer_qpn} of the other host could not carry it out (NAK); packets say no more."),
     N_("Look at the causes of the other host's program: an SGE of its receive, or its CQ, is not in order."))
TEXT(BAD_RESPONSE, REQUEST, S(BAD_RESP_ERR), 0, 0,
     N_("a response of QP {peer_qpn} does not fit its request[: it brings {value:zero} bytes where {limit} were due|[: of its kind "
	"({value:hex}, BTH opcode or AETH syndrome) there is none for it]]."),
     N_("The other end's path MTU differs, or it is no correct RoCE device: look at the packets."))

/* No response until retry_cnt was used up */
TEXT(PEER_ABSENT, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("no process of this host holds QP {peer_qpn}; {tries}."),
     N_("Compare dest_qp_num with the qp_num of the other end: it ended, or the number was sent in the wrong byte order or from "
	"an earlier run."))
TEXT(PEER_DIED, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("the process at the other end[, {peer_pid}], QP {peer_qpn}, has died; {tries}."),
     N_("Find out why that program ended; its own causes are shown when it runs under uroce explain."))
TEXT(PEER_SILENT, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("the process of QP {peer_qpn}[, {peer_pid},] exists, but does not answer; {tries}."),
     N_("It may be stopped (a debugger, SIGSTOP) or starved of processor time. A longer timeout, as 18, waits longer."))
TEXT(PEER_QP_STATE, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("QP {peer_qpn} of the other end[, process {peer_pid},] is in {peer_state}, which takes no messages; {tries}."),
     N_("Bring the other end to RTR before this one sends: exchange a message of your own after both are there. If it was "
	"there, look for the error that took it to ERR."))
TEXT(PEER_QP_UNKNOWN, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("the process at the other end[, {peer_pid},] has no QP {peer_qpn}; {tries}."),
     N_("Compare dest_qp_num with the qp_num of the other end, and do not destroy that queue pair while this one sends."))
TEXT(PEER_NOT_CONNECTED, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("QP {peer_qpn} of the other end[, process {peer_pid},] is connected to another queue pair than {qpn}; {tries}."),
     N_("Each end's dest_qp_num must be the other's qp_num; a queue pair talks to one other only, and after a restart both "
	"connect anew."))
TEXT(PEER_GID, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("QP {peer_qpn} of the other end[, process {peer_pid},] was connected with other GIDs than this one uses; {tries}."),
     N_("Send the peer the GID at the sgid_index that you connect with, and set dgid to the one it sent; a wrong GID index is "
	"the usual mistake."))
TEXT(PEER_OTHER_USER, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("the process of QP {peer_qpn} runs as another user, or opened its device as another, and memory is not shared between users; "
	"{tries}."),
     N_("Start both as one user, and where they change it (setuid), let both do it on the same side of opening the device; or use "
	"UROCE_TRANSPORT=roce."))
TEXT(PEER_OTHER_VERSION, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("the process of QP {peer_qpn} runs another version of uroce; {tries}."),
     N_("Start it again with this version; a container may have its own."))
TEXT(ATTACH_FAILED, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("the segment of the process of QP {peer_qpn} could not be attached; {tries}."),
     N_("uroce doctor says what this machine refuses."))
TEXT(PEER_QP_TYPE, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("QP {peer_qpn} of the other end is of another type; {tries}."),
     N_("Create both with the same qp_type."))
TEXT(NO_DESCRIPTORS, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("no file descriptors are left, here or at QP {peer_qpn}, to reach each other with; {tries}."),
     N_("Raise ulimit -n, at both ends."))
TEXT(NO_ADDRESS_SPACE, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("no address space is left, here or at QP {peer_qpn}, to reach each other in; {tries}."),
     N_("Raise ulimit -v, at both ends."))
TEXT(NO_ANSWER, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("no packet came back from QP {peer_qpn} of the other host; {tries}."),
     N_("Either nobody is at that GID, its queue pair is not in RTR, ended, or has other numbers (QPN, GID, rkey owner), or a "
	"firewall drops UDP port 4791. Check the GID index at both ends, then that port, then the other program's causes."))
TEXT(WIRE_UNREACHABLE, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("the system does not send to the other host[: {value:errno}]; {tries}."),
     N_("Check the destination GID, and that the address of the source GID's index can reach it: ip route get ADDRESS."))
TEXT(WIRE_PORT, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("the UDP port of this address belongs to another user[ (uid {value})], or to another RoCE; {tries}."),
     N_("Use another address (GID index), or UROCE_PORT at both ends; uroce info shows whose the ports are."))
TEXT(WIRE_MTU, REQUEST, S(RETRY_EXC_ERR), 0, 0,
     N_("its packets are longer than the way to the other host takes[: path_mtu is {length:bytes}, and with all headers they "
	"have to fit into {value:bytes}]; {tries}."),
     N_("Use a path_mtu that leaves room for about 80 bytes of headers: 1024 with an interface MTU of 1500, 4096 with 4200 or "
	"more."))

/* Flushes and consequences */
TEXT(FLUSHED, REQUEST, S(WR_FLUSH_ERR), 0, 0,
     N_("it was not carried out: the queue pair was in the error state already."),
     N_("This is a consequence. Find the first completion of this queue pair whose status is another."))
TEXT(FLUSHED_BY_PROGRAM, REQUEST, S(WR_FLUSH_ERR), 0, 0,
     N_("it was not carried out: no error came before, the program itself had moved the queue pair to ERR (ibv_modify_qp, or "
	"rdma_disconnect). Requests of its send queue that are lost so: {count}."),
     N_("Nothing, if the connection was to end. Else poll for the completions of all that was posted before leaving RTS."))
TEXT(FLUSHED_BY_CQ, REQUEST, S(WR_FLUSH_ERR), 0, 0,
     N_("it was not carried out: a completion queue of the queue pair had been full, which is the error."),
     N_("Create that CQ as deep as the send and receive queues that complete in it together, or poll more often; see "
	"CQ_OVERFLOW."))
TEXT(CQ_OVERFLOW, CQ, 0, 0, 0,
     N_("it was full with {limit} entries; completions lost: {count}. All queue pairs that use it go to the error state."),
     N_("Create it as deep as the send and receive queues that complete in it together, or poll more often. ibv_poll_cq does "
	"not show this: the asynchronous event IBV_EVENT_CQ_ERR does."))
TEXT(BAD_REQUEST, MESSAGE, S(REM_INV_REQ_ERR), 0, 0,
     N_("a packet came that its message has no place for (opcode {opcode:hex}[, {value:bytes}])."),
     N_("The path MTUs of the two ends differ, or the peer is no correct RoCE device."))
TEXT(PEER_REPORTED, QP, 0, 0, 0,
     N_("a request of the peer, QP {peer_qpn}, failed here; the queue pair went from {state} to ERR, and what is posted is "
	"flushed."),
     N_("The error is the peer's: its completion, and its causes, say what it did wrong."))

/* Misuse of buffers, found under uroce explain */
TEXT(BUFFER_CHANGED, REQUEST, 0, 0, 0,
     N_("byte {count:zero} of its {length:bytes}, at {addr}, was {limit:zero} when it was posted and {value:zero} when its completion "
	"was polled: the program changed, or freed, the buffer in between."),
     N_("Leave the memory of a request alone until its completion, or that of a later request of the same queue, was polled; use "
	"several buffers in turn, or IBV_SEND_INLINE for short messages. On a card the peer may get either content, or a part of "
	"each."))
TEXT(BUFFER_GONE, REQUEST, 0, 0, 0,
     N_("its memory at {addr} was unmapped before its completion was polled."),
     N_("Keep the memory until the completion was polled, and deregister it before it is unmapped."))
TEXT(REGION_UNMAPPED, MEMORY, 0, 0, 0,
     N_("the {length:bytes} at {addr} of lkey {key}, or a part of them, were unmapped before they were deregistered."),
     N_("Call ibv_dereg_mr before free() or munmap(): what is mapped there next is not what the card would reach."))

TEXT(CQ_EVENT_LOST, CQ, 0, 0, 0,
     N_("it was armed while completions waited in it ({value:zero}), and not polled in the {limit:ms} since: no event comes for these, "
	"and who waits for one waits for ever."),
     N_("After ibv_req_notify_cq poll once more until the CQ is empty, and only then wait for the event: what came before it was "
	"armed brings none."))

/* Datagrams and UC messages that nobody hears of */
TEXT(DROP_NO_RECEIVE, MESSAGE, 0, 0, 0,
     N_("it was lost: no receive was posted at QP {dest}."),
     N_("UC and UD do not wait for receives and send nothing again: post enough of them beforehand."))
TEXT(DROP_QKEY, MESSAGE, 0, 0, 0,
     N_("it was lost: its Q_Key[ {value:hex}] is not that of the queue pair it went to[, {limit:hex}]."),
     N_("Set wr.ud.remote_qkey to the qkey that the other end's queue pair got at INIT."))
TEXT(DROP_NO_QP, MESSAGE, 0, 0, 0,
     N_("it was lost: QP {dest} does not exist, or is not in RTR or RTS[ ({peer_state})]."),
     N_("Check the QP number, and bring the other end to RTR before sending."))
TEXT(DROP_TOO_LONG, MESSAGE, 0, 0, 0,
     N_("it was lost: it is longer than the receive that was posted for it[: {value:bytes} for {limit:bytes}]."),
     N_("Post longer receives; for UD 40 bytes longer than the message, for the GRH."))
TEXT(DROP_ACCESS, MESSAGE, 0, 0, 0,
     N_("it was lost: the access is not allowed[: {length:bytes} at {addr} with rkey {key}]."),
     N_("Check rkey, range and rights of the region, and qp_access_flags, at the other end."))
TEXT(DROP_BAD_SGE, MESSAGE, S(LOC_PROT_ERR), 0, 0,
     N_("it was lost: an SGE of the receive is not valid[: {length:bytes} at {addr} with lkey {key}]."),
     N_("Receives need a region of the queue pair's PD with IBV_ACCESS_LOCAL_WRITE that holds all of the SGE."))
TEXT(DROP_UNREACHABLE, MESSAGE, 0, 0, 0,
     N_("it was lost: the destination[, QP {peer_qpn},] cannot be reached[: {value:errno}]."),
     N_("Check GID, GID index and QP number of the destination."))

/* Verbs that refuse */
TEXT(POST_STATE, REQUEST, 0, EINVAL, V(POST_SEND) | V(POST_RECV),
     N_("it was posted while the queue pair is in {state}."),
     N_("Sends need RTS, receives INIT or later: call ibv_modify_qp first, and check what it returns."))
TEXT(POST_OPCODE, REQUEST, 0, EINVAL, V(POST_SEND),
     N_("this operation is not one of the queue pair's type, or not one of those asked for in send_ops_flags."),
     N_("READs and atomics need RC; UD only sends. With ibv_create_qp_ex name the operations in send_ops_flags."))
TEXT(POST_SGES, REQUEST, 0, EINVAL, V(POST_SEND) | V(POST_RECV),
     N_("it has {value} SGEs, and the queue was created for {limit:zero}."),
     N_("Ask for more in cap.max_send_sge or max_recv_sge of ibv_create_qp; what you got is in cap afterwards. Other cards give "
	"more than was asked for, so that this shows on some only."))
TEXT(POST_INLINE, REQUEST, 0, EINVAL, V(POST_SEND),
     N_("it has {value:bytes} inline, and the queue was created for {limit:bytes}."),
     N_("Ask for more in cap.max_inline_data, or send without IBV_SEND_INLINE; how much a card allows differs from card to card."))
TEXT(SQ_FULL, REQUEST, 0, ENOMEM, V(POST_SEND),
     N_("all {limit:zero} places of the send queue are taken. [{value} of them are done, [and completions of theirs wait in the "
	"CQ: the program has not polled them{count:is}|but none of these was signaled: without a completion that is polled "
	"their places do not come back]|None of them is done yet: more is under way than the queue is deep]."),
     N_("Poll the send CQ before posting more; signal at least one request in each max_send_wr; or ask for a deeper queue "
	"(cap.max_send_wr)."))
TEXT(RQ_FULL, RECEIVE, 0, ENOMEM, V(POST_RECV),
     N_("all {limit:zero} places of the receive queue are taken: {value:zero} wait for messages, the others' completions were "
	"not polled."),
     N_("Post a new receive only after polling the completion of an old one, or ask for a deeper queue (cap.max_recv_wr)."))
TEXT(SRQ_FULL, SRQ, 0, ENOMEM, V(POST_RECV),
     N_("all {limit:zero} places of the shared receive queue are taken: {value:zero} wait for messages, the others' completions "
	"were not polled."),
     N_("Post a new receive only after polling the completion of an old one, or ask for a larger max_wr."))
TEXT(POST_ON_SRQ_QP, RECEIVE, 0, EINVAL, V(POST_RECV),
     N_("the queue pair takes its receives from a shared receive queue."),
     N_("Use ibv_post_srq_recv."))
TEXT(POST_NO_AH, REQUEST, 0, EINVAL, V(POST_SEND),
     N_("a UD send has no address handle."),
     N_("Set wr.ud.ah, from ibv_create_ah; it must outlive the posting."))
TEXT(FORKED, PROCESS, 0, EIO, V(ANY),
     N_("process {value} inherited the object over fork: only the process that made it can use it."),
     N_("Open the device in the child, after fork."))
TEXT(POST_FLAGS, REQUEST, 0, EINVAL, V(POST_SEND),
     N_("its flags {value:send} do not go with this operation."),
     N_("READs and atomics bring data back: they cannot be inline."))
TEXT(MODIFY_TRANSITION, QP, 0, EINVAL, V(MODIFY_QP),
     N_("no transition leads from {limit:state} to {value:state}."),
     N_("The way is RESET, INIT, RTR, RTS; from everywhere to RESET and ERR."))
TEXT(MODIFY_MISSING, QP, 0, EINVAL, V(MODIFY_QP),
     N_("the transition from {state} needs attributes that the mask lacks: {value:mask}."),
     N_("Set them, and their bits in attr_mask."))
TEXT(MODIFY_SUPERFLUOUS, QP, 0, EINVAL, V(MODIFY_QP),
     N_("the transition from {state} does not allow these attributes: {value:mask}."),
     N_("Take their bits out of attr_mask; queue pairs of other types need others."))
TEXT(MODIFY_VALUE, QP, 0, EINVAL, V(MODIFY_QP),
     N_("{opcode:mask}: the value is {value:zero}; the least is {count:zero}, the most {limit:zero}."),
     N_("Compare with ibv_query_device and ibv_query_port."))
TEXT(NO_GRH, PATH, 0, EINVAL, V(MODIFY_QP) | V(CREATE_AH),
     N_("the path has no GRH (is_global is 0), and RoCE has no other way to name the other end."),
     N_("Set is_global to 1, grh.dgid to the peer's GID and grh.sgid_index to that of your own; ibv_*_pingpong want -g INDEX."))
TEXT(BAD_SGID_INDEX, PATH, 0, EINVAL, V(MODIFY_QP) | V(CREATE_AH) | V(QUERY),
     N_("the GID table has no entry at index {value:zero}[; it has {limit} entries]."),
     N_("uroce info shows the table; its indexes are not those of other cards."))
TEXT(BAD_DGID, PATH, 0, EINVAL, V(MODIFY_QP) | V(CREATE_AH),
     N_("the destination GID is zero."),
     N_("Exchange GIDs with the peer and set grh.dgid; the LID alone is not enough for RoCE."))
TEXT(MODIFY_CUR_STATE, QP, 0, EINVAL, V(MODIFY_QP),
     N_("cur_qp_state says {value:state}, and the queue pair is in {limit:state}."),
     N_("Ask with ibv_query_qp: an error may have moved it."))
TEXT(GROUP, QP, 0, EINVAL, V(ATTACH),
     N_("it cannot be attached to that group: the GID is no multicast address, or the queue pair is not UD, or not attached."),
     N_("Use a UD queue pair and a multicast GID."))
TEXT(GROUP_JOIN, QP, 0, 0, V(ATTACH),
     N_("none of the host's interfaces lets that group be joined."),
     N_("Check that an interface is up and has the MULTICAST flag: ip link."))
TEXT(CREATE_LIMIT, PROCESS, 0, EINVAL, V(CREATE),
     N_("[{thing}: ]{value:zero} was asked for, and the device allows [{count} to {limit}|{limit:zero} at most]."),
     N_("Ask ibv_query_device first, and for no more; cards differ (UROCE_PROFILE)."))
TEXT(CREATE_ARGUMENT, PROCESS, 0, EINVAL, V(ANY),
     N_("[{thing}|an argument] is not allowed[: it is {value}][, and {limit} is the most][, and {count} are needed]."),
     N_("See the verb's man page."))
TEXT(CREATE_NULL, PROCESS, 0, EINVAL, V(CREATE),
     N_("{thing} is NULL, and needed."),
     N_("Create that object first, and look at what its verb returned: that may have failed."))
TEXT(CREATE_PD_MISMATCH, PROCESS, 0, EINVAL, V(CREATE),
     N_("[{thing}: ]the objects belong to different devices, or to contexts that were opened separately."),
     N_("Create them all from one struct ibv_context."))
TEXT(OBJECT_TABLE_FULL, PROCESS, 0, ENOMEM, V(CREATE) | V(REG_MR),
     N_("[{thing}: ]no more such objects can be created[: the device has {limit}]."),
     N_("Destroy what is not used any more; a leak is likely."))
TEXT(NO_MEMORY, PROCESS, 0, ENOMEM, V(CREATE) | V(REG_MR),
     N_("[{thing}: ]there is not enough memory[ ({error:errno})][: {length:bytes} are to be pinned, and the machine has {limit:bytes}]."),
     N_("See the limits of the process, its cgroup and /dev/shm; uroce doctor shows them."))
TEXT(NOT_SUPPORTED, PROCESS, 0, EOPNOTSUPP, V(ANY),
     N_("this device does not support [{thing}|what was asked for][: {value}]."),
     N_("Programs mostly ask and do without; see the README for what there is."))
TEXT(BUSY, PROCESS, 0, EBUSY, V(DESTROY),
     N_("[{thing}: ]the object is still in use[ (others that use it: {count})]."),
     N_("Destroy in the opposite order: QPs, then SRQs and CQs, then MRs and AHs, then the PD."))
TEXT(SRQ_LIMIT, SRQ, 0, EINVAL, V(MODIFY_SRQ),
     N_("the limit {value} is above the {limit} work requests that the queue holds."),
     N_("Use a limit of at most max_wr."))
TEXT(REG_UNMAPPED, MEMORY, 0, EFAULT, V(REG_MR),
     N_("part of the {length:bytes} at {addr} is not mapped."),
     N_("Compare with the size that was allocated; the range must be mapped when it is registered."))
TEXT(REG_NOT_WRITABLE, MEMORY, 0, EFAULT, V(REG_MR),
     N_("part of the {length:bytes} at {addr} cannot be written to, and {access} were asked for."),
     N_("Register read-only memory (constants, files mapped for reading) without write rights."))
TEXT(REG_ACCESS, MEMORY, 0, EINVAL, V(REG_MR),
     N_("these access flags do not go together: {access}."),
     N_("IBV_ACCESS_REMOTE_WRITE and IBV_ACCESS_REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE."))
TEXT(REG_RANGE, MEMORY, 0, EINVAL, V(REG_MR),
     N_("the range of {length:bytes} at {addr} is empty, too long, or passes the end of the address space."),
     N_("Check the length: a negative number becomes a huge one."))
TEXT(DEREG_STOPPED_PEER, MEMORY, 0, EBUSY, V(DESTROY),
     N_("process {peer_pid} stands still in the middle of an access to the {length:bytes} at {addr}, which cannot be kept from "
	"reaching them; it was waited {limit:ms} for."),
     N_("Let that process go on (fg, SIGCONT, the debugger), and deregister again."))
TEXT(RESIZE_TOO_SMALL, CQ, 0, EINVAL, V(RESIZE_CQ),
     N_("the new size {limit:zero} is below the {value} completions in the queue."),
     N_("Poll them first, or choose a larger size."))
TEXT(REG_IOVA, MEMORY, 0, EINVAL, V(REG_MR),
     N_("the address {addr} is at byte {limit:zero} of its page, its iova at byte {value:zero}."),
     N_("Both must be at the same place within a page."))
TEXT(DEVICE_OPEN, PROCESS, 0, 0, V(OPEN),
     N_("the device could not be opened[: {error:errno}]."),
     N_("uroce doctor says what of this machine is in the way; VERBS_LOG_LEVEL=1 gives the reason."))

/* Connections by address */
TEXT(CM_STATE, CONNECTION, 0, EINVAL, V(CM),
     N_("the id is {value:phase}, which does not allow this call."),
     N_("Call in this order, each after the event of the one before: rdma_resolve_addr, rdma_resolve_route, "
	"rdma_connect; or rdma_bind_addr, rdma_listen, and rdma_accept or rdma_reject for the id of a request."))
TEXT(CM_NO_ADDRESS, CONNECTION, 0, EADDRNOTAVAIL, V(CM),
     N_("no interface of this host has that address, or it is link-local and comes without its interface."),
     N_("Bind to an address that ip address shows, or to the wildcard (0.0.0.0 or ::); a link-local one needs "
	"sin6_scope_id."))
TEXT(CM_FAMILY, CONNECTION, 0, 0, V(CM),
     N_("the address is neither of IPv4 nor of IPv6."),
     N_("Use the IP address of an interface. Addresses of InfiniBand (AF_IB) are for ports whose link layer that is, and this one's is "
	"Ethernet."))
TEXT(CM_PORT_USED, CONNECTION, 0, EADDRINUSE, V(CM),
     N_("another id has this port already, of this program or another."),
     N_("End the other one (a server that still runs?), or use another port; 0 takes one that is free."))
TEXT(CM_PORT_PRIVILEGED, CONNECTION, 0, EACCES, V(CM),
     N_("the port is below net.ipv4.ip_unprivileged_port_start, and so for the privileged."),
     N_("Use a port from 1024 on, or lower that sysctl."))
TEXT(CM_NO_ROUTE, CONNECTION, 0, 0, V(CM),
     N_("there is no way there[ ({error:errno})]: no route, no such source address, or a link-local address without its "
	"interface."),
     N_("Look at ip route get ADDRESS and ping ADDRESS; give a link-local address its interface (sin6_scope_id)."))
TEXT(CM_NO_LISTENER, CONNECTION, 0, 0, 0,
     N_("refused: no program listens there on that port."),
     N_("Start the server first and wait until it has called rdma_listen; compare address, port and port space "
	"(RDMA_PS_TCP, RDMA_PS_UDP)."))
TEXT(CM_REJECTED_BY_PROGRAM, CONNECTION, 0, 0, 0,
     N_("the program at the other end rejected it: it called rdma_reject, or destroyed the id of the request."),
     N_("Only that program knows why: look at the event's private data, and at its log."))
TEXT(CM_STALE, CONNECTION, 0, 0, 0,
     N_("one end counts a queue pair as connected still that the other end uses anew (stale connection)."),
     N_("Call rdma_disconnect before the end of a program, and connect again after a moment."))
TEXT(CM_PEER_GAVE_UP, CONNECTION, 0, 0, 0,
     N_("the other end has given it up: it waited too long for this end, or has ended."),
     N_("Read events with rdma_get_cm_event without delay, and answer a request within a few seconds; look whether the "
	"other program still runs."))
TEXT(CM_WRONG_TYPE, CONNECTION, 0, 0, 0,
     N_("the program that listens there does so for another type of queue pair."),
     N_("Use the same port space and qp_type at both ends: RDMA_PS_TCP goes with RC, RDMA_PS_UDP with UD."))
TEXT(CM_REJECTED, CONNECTION, 0, 0, 0,
     N_("the other end rejected it for reason {value:zero} of the specification's table 108."),
     N_("uroce explain reject NUMBER says what the reason means."))
TEXT(CM_REQ_UNANSWERED, CONNECTION, 0, 0, 0,
     N_("nobody answered the request, which was sent {value:zero} times."),
     N_("Look whether the host is up (ping), whether a firewall drops UDP port 4791, and whether the program there reads "
	"its events and calls rdma_accept."))
TEXT(CM_REP_UNANSWERED, CONNECTION, 0, 0, 0,
     N_("it was accepted here, and the other end, told {value:zero} times, did not confirm that."),
     N_("Look whether that program still runs and reads its events: its rdma_get_cm_event is what confirms, or "
	"rdma_establish where it has no queue pair on the id."))
TEXT(CM_DREQ_UNANSWERED, CONNECTION, 0, 0, 0,
     N_("the other end, told {value:zero} times, did not confirm its end; it is over all the same."),
     N_("Nothing has to be done: the other program or host has ended, or cannot be reached any more."))
TEXT(CM_PEER_DIED, CONNECTION, 0, 0, 0,
     N_("the process at the other end died."),
     N_("Find out why that program ended; its own causes are shown when it runs under uroce explain."))
TEXT(CM_BACKLOG, CONNECTION, 0, 0, 0,
     N_("a request was dropped: {value:zero} wait already, which is the backlog of rdma_listen."),
     N_("Read events faster, or give rdma_listen a larger backlog. Who was dropped asks again, and connects late."))
TEXT(CM_PRIVATE_DATA, CONNECTION, 0, EINVAL, V(CM),
     N_("the message has no room for that much private data."),
     N_("The most is: 56 bytes for rdma_connect, 196 for rdma_accept, 148 for rdma_reject; for UD 180, 136 and 136."))
TEXT(CM_OTHER_USER, CONNECTION, 0, 0, 0,
     N_("a message of a process of another user (uid {value:zero}) was ignored."),
     N_("Run both programs as one user, or with UROCE_TRANSPORT=roce."))
TEXT(CM_MALFORMED, CONNECTION, 0, 0, 0,
     N_("a message was ignored that is none of a connection manager, or of a kind that is not supported[ ({value:hex})]."),
     N_("The other end is no correct RoCE device, or other data comes to this port: look at the packets."))
TEXT(CM_GROUP, CONNECTION, 0, 0, 0,
     N_("the multicast group could not be joined[ ({error:errno})]."),
     N_("Use a multicast address, and an id whose interface is up and has the MULTICAST flag (ip link)."))
TEXT(CM_INHERITED, CONNECTION, 0, 0, 0,
     N_("a process that died left it behind; the other host was told that it has ended[ (QP {value:hex})]."),
     N_("Nothing has to be done here. Find out why that process died."))

/* Memory windows: accesses through them */
TEXT(WINDOW_UNBOUND, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("it names {length:bytes} at {addr} with rkey {key}, whose memory window at {there} is not bound, or not any more."),
     N_("The owner must send the rkey after its bind has completed, and keep the window bound until the peer says that "
	"it is done."))
TEXT(WINDOW_OTHER_KEY, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("it names {length:bytes} at {addr} with rkey {key}, which is an earlier key of a memory window at {there}: it "
	"was bound anew."),
     N_("Each bind gives the window a new rkey: send it to the peer again."))
TEXT(WINDOW_PD, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("it names {addr} with rkey {key}, whose memory window belongs to protection domain {region_pd} of {there}; the "
	"queue pair there belongs to {pd}."),
     N_("Allocate the memory window with the PD of the queue pair that this request goes to."))
TEXT(WINDOW_QP, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("it names {addr} with rkey {key}, whose memory window at {there} is of type 2 and was bound by another queue "
	"pair than the one that this goes to."),
     N_("Use it through the queue pair that bound it; a window of type 1 goes with all queue pairs of its PD."))
TEXT(WINDOW_BOUNDS, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("the range of {length:bytes} at {addr} of {there} {miss} the memory window {region} of rkey {key}."),
     N_("Compare address and length with what the other end bound; those of a zero-based window count from 0."))
TEXT(WINDOW_ACCESS, MESSAGE, S(REM_ACCESS_ERR), 0, 0,
     N_("it needs {access} at {addr}; the memory window {region} of rkey {key} at {there} has {region_access}."),
     N_("Add the missing right to mw_access_flags of the bind; rights of the region do not replace it."))

/* … binding them */
TEXT(BIND_WINDOW, REQUEST, S(MW_BIND_ERR), 0, 0,
     N_("the memory window that it is to bind was deallocated."),
     N_("Keep the window until the bind has completed."))
TEXT(BIND_REGION, REQUEST, S(MW_BIND_ERR), 0, 0,
     N_("it is to bind a memory window to {length:bytes} at {addr}, and no region has the lkey {value:hex}."),
     N_("Keep the region registered until the bind has completed, and take bind_info.mr from the newest registration."))
TEXT(BIND_PD, REQUEST, S(MW_BIND_ERR), 0, 0,
     N_("the memory window, or its region, belongs to protection domain {region_pd}, and the queue pair to {pd}."),
     N_("Create window, region and queue pair with the same PD."))
TEXT(BIND_ZERO_BASED, REQUEST, S(MW_BIND_ERR), EINVAL, V(POST_SEND),
     N_("a memory window of type 1 cannot be zero-based, and none can be bound to a region that is."),
     N_("Leave IBV_ACCESS_ZERO_BASED out, or use a window of type 2 and a region without it."))
TEXT(BIND_RIGHT, REQUEST, S(MW_BIND_ERR), 0, 0,
     N_("the region {region} that the memory window is to be bound to has {region_access}, and not IBV_ACCESS_MW_BIND."),
     N_("Add IBV_ACCESS_MW_BIND to ibv_reg_mr."))
TEXT(BIND_ACCESS, REQUEST, S(MW_BIND_ERR), 0, 0,
     N_("the memory window is to grant {access}, which needs a region with IBV_ACCESS_LOCAL_WRITE; the region {region} "
	"has {region_access}."),
     N_("Add IBV_ACCESS_LOCAL_WRITE to ibv_reg_mr."))
TEXT(BIND_BOUNDS, REQUEST, S(MW_BIND_ERR), 0, 0,
     N_("the memory window of {length:bytes} at {addr} {miss} the region {region}."),
     N_("Bind it to a part of the region: compare address and length with ibv_reg_mr."))
TEXT(BIND_BOUND, REQUEST, S(MW_BIND_ERR), 0, 0,
     N_("the memory window is of type 2, and bound already."),
     N_("Invalidate it first (IBV_WR_LOCAL_INV, or the peer's IBV_WR_SEND_WITH_INV), then bind it anew."))
TEXT(BIND_EMPTY, REQUEST, S(MW_BIND_ERR), 0, 0,
     N_("a memory window of type 2 cannot be bound to 0 bytes."),
     N_("To end a binding of type 2, invalidate it (IBV_WR_LOCAL_INV)."))

/* … invalidating them, and what stands in the way */
TEXT(INVALIDATE_KEY, MESSAGE, S(MW_BIND_ERR) | S(REM_INV_REQ_ERR), 0, 0,
     N_("the key {key} that it is to invalidate is that of no memory window."),
     N_("Take the rkey of the last bind; keys of regions cannot be invalidated here."))
TEXT(INVALIDATE_TYPE, MESSAGE, S(MW_BIND_ERR) | S(REM_INV_REQ_ERR), 0, 0,
     N_("the key {key} that it is to invalidate is that of a memory window of type 1."),
     N_("Windows of type 1 are unbound by binding them to 0 bytes (ibv_bind_mw)."))
TEXT(INVALIDATE_UNBOUND, MESSAGE, S(MW_BIND_ERR) | S(REM_INV_REQ_ERR), 0, 0,
     N_("the memory window of key {key} that it is to invalidate is not bound."),
     N_("Invalidate once after each bind: either the owner does it or the peer, not both."))
TEXT(INVALIDATE_QP, MESSAGE, S(MW_BIND_ERR) | S(REM_INV_REQ_ERR), 0, 0,
     N_("the memory window of key {key} that it is to invalidate was bound by another queue pair[, or belongs to another "
	"protection domain ({region_pd}; the queue pair to {pd})]."),
     N_("Invalidate it through the queue pair that bound it."))
TEXT(WINDOW_STOPPED_PEER, MEMORY, S(MW_BIND_ERR), EBUSY, V(DESTROY),
     N_("process {peer_pid} stands still in the middle of an access through the memory window of key {key}[; it was "
	"waited {limit:ms} for]."),
     N_("Let that process go on (fg, SIGCONT, the debugger), and try again."))
TEXT(POST_BIND, REQUEST, 0, EINVAL, V(POST_SEND),
     N_("it has no memory window, or bytes without a region, or access flags that a window cannot have: its flags are "
	"{value:rights}, and {limit:rights} are possible."),
     N_("Set bind_mw.mw, bind_info.mr and mw_access_flags."))
TEXT(REGION_HAS_WINDOWS, MEMORY, 0, EBUSY, V(DESTROY) | V(REG_MR),
     N_("{count:zero} memory windows are bound to the {length:bytes} at {addr}."),
     N_("Unbind, invalidate or deallocate them first."))
TEXT(DESCRIPTORS_CLOSED, PROCESS, 0, ENOMEM, V(CREATE) | V(REG_MR),
     N_("the program has closed descriptors of the library, which cannot do this without."),
     N_("Close only what the program opened; look for close_range(), closefrom() or a loop over all numbers. A daemon does that before "
	"it opens the device."))
