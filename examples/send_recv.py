#!/usr/bin/python3
# SPDX-License-Identifier: MIT
#
# SEND and RECV as in send_recv.c, with pyverbs (Debian: python3-pyverbs).
# See docs/concepts/send-recv.md.
#
#     uroce run -- python3 send_recv.py

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e

SIZE = 64


def make_qp(pd, cq):
    return QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4, max_recv_wr=4)))


def connect(qp, peer, gid):
    """Takes a queue pair from RESET to RTS; to_rts makes all three transitions."""
    attr = QPAttr(port_num=1)
    attr.dest_qp_num = peer.qp_num
    attr.path_mtu = e.IBV_MTU_1024
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 1
    attr.min_rnr_timer = 12
    attr.timeout = 14
    attr.retry_cnt = attr.rnr_retry = 7
    attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=GlobalRoute(dgid=gid, sgid_index=0))
    qp.to_rts(attr)


def poll(cq):
    """Polls until there is a completion."""
    count = 0
    while not count:
        count, completions = cq.poll(1)
    return completions[0]


context = Context(name=get_device_list()[0].name.decode())
gid = context.query_gid(port_num=1, index=0)
pd = PD(context)
sender_cq, receiver_cq = CQ(context, 8), CQ(context, 8)
sender, receiver = make_qp(pd, sender_cq), make_qp(pd, receiver_cq)
connect(sender, receiver, gid)
connect(receiver, sender, gid)

orders = [b"soup", b"a longer order: noodles with vegetables", b"tea"]
sent = [MR(pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE) for _ in orders]
received = [MR(pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE) for _ in orders]

# First the receiver.
for i, mr in enumerate(received):
    receiver.post_recv(RecvWR(wr_id=i, num_sge=1, sg=[SGE(mr.buf, SIZE, mr.lkey)]))

# Then the sender.
for i, (order, mr) in enumerate(zip(orders, sent)):
    mr.write(order, len(order))
    sender.post_send(SendWR(wr_id=i, opcode=e.IBV_WR_SEND, send_flags=e.IBV_SEND_SIGNALED, num_sge=1,
                            sg=[SGE(mr.buf, len(order), mr.lkey)]))

for _ in orders:
    wc = poll(receiver_cq)
    assert wc.status == e.IBV_WC_SUCCESS
    text = received[wc.wr_id].read(wc.byte_len, 0).decode()
    print(f"receive {wc.wr_id} of {SIZE} bytes took a message of {wc.byte_len}: '{text}'")
for _ in orders:
    wc = poll(sender_cq)
    print(f"send {wc.wr_id}: {'success' if wc.status == e.IBV_WC_SUCCESS else wc.status}")
