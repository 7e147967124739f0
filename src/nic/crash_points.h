/* SPDX-License-Identifier: MIT */
/* The crash points: CRASH_POINT(NAME). See nic/crash.h; what each leaves: docs/protocols.md. */

/* Initiator: a visit */
CRASH_POINT(VISIT_ENTERED)
CRASH_POINT(VISIT_TOUCHES) /* it says so, and has not looked yet */
CRASH_POINT(VISIT_LEAVING)
/* Initiator: taking a receive, placing data, completing it */
CRASH_POINT(RQ_TAKEN) /* the FIFO's word says so, its head does not yet */
CRASH_POINT(COPY_BEGIN)
CRASH_POINT(COPY_TAIL) /* all but the last word is there */
CRASH_POINT(COPY_END)
CRASH_POINT(DELIVERING)
CRASH_POINT(EPSN_MOVED)
CRASH_POINT(CQE_WRITTEN)
CRASH_POINT(CQ_PUBLISHING)
CRASH_POINT(CQ_PUBLISHED) /* the ring's word is there, its tail is not moved yet */
CRASH_POINT(CQ_FIRED)
CRASH_POINT(RQ_DONE) /* published, and the FIFO's word still says TAKEN */
/* Initiator: telling the owner */
CRASH_POINT(QP_FLAGGED)
CRASH_POINT(LIMIT_FIRED)
CRASH_POINT(ATTENTION_LEAF)
CRASH_POINT(ATTENTION_SUMMARY)
/* Attaching, as client and as server */
CRASH_POINT(SLOT_BOUND)
CRASH_POINT(HELLO_SENT)
CRASH_POINT(PEER_KNOWN)
CRASH_POINT(WELCOME_SENT)
CRASH_POINT(READY_SENT)
/* Assistance, as requester and as helper */
CRASH_POINT(ASK_SENT)
CRASH_POINT(ASK_SERVING)
CRASH_POINT(ASK_SERVED)
/* Owner: switching a chunk of its memory to shared pages, and back */
CRASH_POINT(SHARE_AWAY)	  /* its pages are away, nothing is mapped in their place */
CRASH_POINT(SHARE_MAPPED) /* the file is there, and who touched it still waits */
CRASH_POINT(SHARE_RETURNING)
CRASH_POINT(SHARE_RETURNED) /* it is private, and the file still has its pages */
/* Owner: taking back */
CRASH_POINT(MR_INVALID)
CRASH_POINT(MR_REVOKED)
CRASH_POINT(QP_GONE)
CRASH_POINT(CQ_NEXT) /* resize: the old ring knows the new one */
CRASH_POINT(CQ_SEALED)
CRASH_POINT(RQ_POSTED) /* the FIFO's word is there, its tail is not moved yet */
