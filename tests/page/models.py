#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Models of traces for the tests of the page (docs/trace-model.md), made from nothing but a seed, and pages with them.

usage: models.py PAGE MODEL OUTPUT    PAGE: the template; MODEL: a name of MODELS
"""
import gc
import json
import random
import sys

MARK = "/*UROCE_TRACE_MODEL*/null"

SENDS = (
    "time qp index wr_id opcode flags length status posted rung seen gathered sent taken placed acked cqe polled "
    "remote_cqe remote_polled list dest receive addr psn packets retries"
).split()
RECEIVES = "time qp srq index wr_id room length status posted taken placed cqe polled send".split()
PHASES = [
    ("posted", "seen"),
    ("seen", "gathered"),
    ("gathered", "placed"),
    ("placed", "cqe"),
    ("cqe", "polled"),
    ("posted", "placed"),
    ("posted", "polled"),
]


def text(en, zh):
    return {"en": en, "zh": zh}


class Trace:
    """Two processes or more and what they do; rows are made in the order of their times."""

    def __init__(self, program, names=("ib_send_lat", "ib_send_lat"), seed=1):
        self.random = random.Random(seed)
        self.model = {
            "format": "uroce-trace",
            "version": 1,
            "program": program,
            "start_ns": "1767000000123456789",
            "duration": 0,
            "events": 0,
            "dropped": 0,
            "processes": [
                {"id": i, "pid": 4711 + i, "name": name, "host": 0, "events": 0, "dropped": 0} for i, name in enumerate(names)
            ],
            "qps": [],
            "cqs": [],
            "srqs": [],
            "fills": [],
            "phases": [],
            "causes": [],
        }
        self.sends, self.receives = [], []
        self.packets, self.cq_events, self.retries = [], [], []
        self.levels = {}
        self.next_index = {}

    def cq(self, process, entries):
        number = len(self.model["cqs"])
        self.model["cqs"].append(
            {"id": number, "process": process, "cqn": number + 1, "entries": entries, "created": 900, "destroyed": None}
        )
        return number

    def srq(self, process, max_wr):
        number = len(self.model["srqs"])
        self.model["srqs"].append(
            {"id": number, "process": process, "srqn": number + 1, "max_wr": max_wr, "created": 950, "destroyed": None}
        )
        return number

    def qp(self, process, cq, srq=None, depth=128, kind="RC", wire=False):
        number = len(self.model["qps"])
        self.model["qps"].append(
            {
                "id": number,
                "process": process,
                "qpn": 0x4000 * (1 + process) + number,
                "type": kind,
                "wire": wire,
                "sgid": "::ffff:10.0.0.%d" % (1 + process),
                "dgid": None,
                "dest_qpn": None,
                "peer": None,
                "mtu": 1024,
                "send_cq": cq,
                "recv_cq": cq,
                "srq": srq,
                "max_send_wr": depth,
                "max_recv_wr": depth,
                "created": 1000,
                "destroyed": None,
                "states": [[1000, "RESET"], [2000, "INIT"], [3000, "RTR"], [4000, "RTS"]],
            }
        )
        return number

    def connect(self, a, b):
        for mine, other in ((a, b), (b, a)):
            qp, peer = self.model["qps"][mine], self.model["qps"][other]
            qp["peer"], qp["dest_qpn"], qp["dgid"] = other, peer["qpn"], peer["sgid"]

    def step(self, queue, owner, time, by):
        self.levels.setdefault((queue, owner), []).append((time, by))

    def index(self, what):
        self.next_index[what] = self.next_index.get(what, -1) + 1
        return self.next_index[what]

    def receive(self, time, qp, room=64, wr_id=None):
        """A receive posted at a time; taken later by a send."""
        srq = self.model["qps"][qp]["srq"]
        row = dict.fromkeys(RECEIVES)
        index = self.index(("rq", qp) if srq is None else ("srq", srq))
        row.update(
            time=time,
            qp=qp if srq is None else None,
            srq=srq,
            index=index,
            room=room,
            posted=0,
            wr_id="0x%x" % (index if wr_id is None else wr_id),
        )
        self.receives.append(row)
        self.step("rq" if srq is None else "srq", qp if srq is None else srq, time, 1)
        return row

    def send(self, time, qp, opcode="SEND", length=64, receive=None, signaled=True, polled=None, list_of=1, slow=1.0, wr_id=None):
        """A request that succeeds; its times are drawn. Returns its row."""
        draw = lambda low, high: int(self.random.uniform(low, high) * slow)
        mine, dest = self.model["qps"][qp], self.model["qps"][qp]["peer"]
        row = dict.fromkeys(SENDS)
        index = self.index(("sq", qp))
        row.update(
            time=time,
            qp=qp,
            index=index,
            wr_id="0x%x" % (index if wr_id is None else wr_id),
            opcode=opcode,
            flags=2 if signaled else 0,
            length=length,
            posted=0,
            list=list_of,
            dest=dest,
            psn=index,
            retries=0,
            packets=max(1, -(-length // mine["mtu"])),
        )
        if opcode.startswith("RDMA") or opcode.startswith("ATOMIC"):
            row["addr"] = "0x7f00deadb000"
        at = 0
        for stage, low, high in (("rung", 40, 90), ("seen", 20, 120), ("gathered", 60, 200 + length / 10)):
            at += draw(low, high)
            row[stage] = at
        row["seen"] = draw(30, 100) if row["seen"] > row["rung"] else row["seen"]
        row["gathered"] = row["seen"] + draw(60, 200 + length / 10)
        row["sent"] = row["gathered"]
        if receive is not None:
            row["taken"] = row["gathered"] + draw(10, 40)
        row["placed"] = row["gathered"] + draw(80, 300 + length / 8)
        end = row["placed"]
        if mine["wire"]:
            end += draw(900, 2500)
            row["acked"] = end
        if signaled:
            row["cqe"] = end + draw(30, 120)
            row["polled"] = max(row["cqe"] + draw(40, 400), polled or 0)
            row["status"] = "SUCCESS"
            end = row["polled"]
            self.step("cq", mine["send_cq"], time + row["cqe"], 1)
            self.step("cq", mine["send_cq"], time + row["polled"], -1)
        self.step("sq", qp, time, 1)
        self.step("sq", qp, time + end, -1)
        if receive is not None:
            taken = time + row["taken"]
            wait = taken - receive["time"]
            receive.update(qp=dest, length=length, status="SUCCESS", taken=wait, placed=wait + row["placed"] - row["taken"])
            receive["cqe"] = receive["placed"] + draw(20, 60)
            receive["polled"] = receive["cqe"] + draw(60, 500)
            row["remote_cqe"] = receive["time"] + receive["cqe"] - time
            row["remote_polled"] = receive["time"] + receive["polled"] - time
            receive["of"], row["takes"] = row, receive
            srq = receive["srq"]
            self.step("rq" if srq is None else "srq", dest if srq is None else srq, taken, -1)
            cq = self.model["qps"][dest]["recv_cq"]
            self.step("cq", cq, receive["time"] + receive["cqe"], 1)
            self.step("cq", cq, receive["time"] + receive["polled"], -1)
        self.sends.append(row)
        return row

    def fail(self, time, qp, opcode, status, number, cause, after=1500, length=64):
        """A request that completes with an error, and its cause."""
        row = self.send(time, qp, opcode, length)
        self.sends.pop()
        queues = [("sq", qp), ("cq", self.model["qps"][qp]["send_cq"])]
        for queue in queues:
            del self.levels[queue][-2:]
        row.update(placed=None, gathered=None, sent=None, status=status, cqe=after, polled=after + 700)
        for queue, begin in zip(queues, (0, after)):
            self.step(*queue, time + begin, 1)
            self.step(*queue, time + after + 700, -1)
        self.sends.append(row)
        if cause:
            code, name, short, what, todo = cause
            self.model["causes"].append(
                {
                    "time": time + after - 10,
                    "process": self.model["qps"][qp]["process"],
                    "qp": qp,
                    "of": row,
                    "code": code,
                    "name": name,
                    "error": number,
                    "outcome": "IBV_WC_" + status,
                    "wr_id": row["wr_id"],
                    "short": short,
                    "what": what,
                    "todo": todo,
                }
            )
        return row

    def finish(self, shown=None):
        model = self.model
        self.sends.sort(key=lambda row: row["time"])
        self.receives.sort(key=lambda row: row["time"])
        for place, row in enumerate(self.sends):
            row["place"] = place
        for place, row in enumerate(self.receives):
            row["place"] = place
        for row in self.receives:
            row["send"] = row["of"]["place"] if row.get("of") else None
        for row in self.sends:
            row["receive"] = row["takes"]["place"] if row.get("takes") else None
        for row in model["causes"]:
            of = row.pop("of", None)
            row["send"] = of["place"] if of else None
        model["causes"].sort(key=lambda row: row["time"])
        model["sends"] = self.table(SENDS, self.sends)
        model["receives"] = self.table(RECEIVES, self.receives)
        model["packets"] = self.table("time qp out opcode psn length send again".split(), self.packets)
        model["cq_events"] = self.table("time cq kind".split(), self.cq_events)
        model["retries"] = self.table("time qp send kind count".split(), self.retries)
        limits = {
            "sq": lambda i: model["qps"][i]["max_send_wr"],
            "rq": lambda i: model["qps"][i]["max_recv_wr"],
            "srq": lambda i: model["srqs"][i]["max_wr"],
            "cq": lambda i: model["cqs"][i]["entries"],
        }
        for (queue, owner), steps in sorted(self.levels.items()):
            level, most, points = 0, 0, [[0, 0]]
            for time, by in sorted(steps):
                level += by
                most = max(most, level)
                if points[-1][0] == time:
                    points[-1][1] = level
                else:
                    points.append([time, level])
            fill = {"queue": queue, "owner": owner, "limit": limits[queue](owner), "max": most, "points": points}
            if len(points) > 4000:
                size = -(-len(points) // 2000)
                fill["merged"] = True
                fill["points"] = [
                    [part[0][0], min(p[1] for p in part), max(p[1] for p in part)]
                    for part in (points[i : i + size] for i in range(0, len(points), size))
                ]
            model["fills"].append(fill)
        for opcode in sorted({row["opcode"] for row in self.sends}):
            for begin, end in PHASES:
                took = sorted(
                    row[end] - row[begin]
                    for row in self.sends
                    if row["opcode"] == opcode and row[begin] is not None and row[end] is not None
                )
                if took:
                    model["phases"].append(
                        {
                            "opcode": opcode,
                            "from": begin,
                            "to": end,
                            "count": len(took),
                            "min": took[0],
                            "p50": took[len(took) // 2],
                            "p99": took[len(took) * 99 // 100],
                            "max": took[-1],
                            "sum": sum(took),
                        }
                    )
        times = [row["time"] + max(row[c] or 0 for c in ("cqe", "polled", "placed")) for row in self.sends + self.receives]
        model["duration"] = max([model["duration"]] + times) + 1000
        model["events"] = 9 * len(self.sends) + 5 * len(self.receives)
        for process in model["processes"]:
            process["events"] = model["events"] // len(model["processes"])
        if shown is not None and len(self.sends) > shown:
            half = shown // 2
            for name in "sends", "receives":
                rows = model[name]["rows"]
                model[name]["rows"] = rows[:half] + rows[-half:]
                model[name]["shown"] = len(model[name]["rows"])
        return model

    @staticmethod
    def table(columns, rows):
        return {"columns": columns, "rows": [[row.get(c) for c in columns] for row in rows], "total": len(rows), "shown": len(rows)}


def pair(program, names, depth=128, entries=256, **more):
    trace = Trace(program, names)
    qps = [trace.qp(process, trace.cq(process, entries), depth=depth, **more) for process in (0, 1)]
    trace.connect(*qps)
    return trace, qps


def small():
    """Ping-pong of SENDs, then WRITEs in lists, READs and an atomic."""
    trace, (a, b) = pair("ib_send_lat -d uroce0 -n 20", ("ib_send_lat", "ib_send_lat"), depth=16, entries=32)
    waiting = {qp: [trace.receive(5000 + 50 * i, qp) for i in range(8)] for qp in (a, b)}
    time = 12000
    for turn in range(20):
        for here, there in ((a, b), (b, a)):
            row = trace.send(time, here, receive=waiting[there].pop(0), length=64 << turn % 4)
            time += row["remote_polled"] + trace.random.randint(80, 300)
            waiting[there].append(trace.receive(time - 60, there))
    for burst in range(4):
        for i in range(6):
            trace.send(time + 30 * i, a, "RDMA_WRITE", 4096, signaled=i == 5, list_of=6)
        time += 6000
    for i in range(4):
        trace.send(time + 900 * i, b, "RDMA_READ", 8192)
    trace.send(time + 4500, a, "ATOMIC_FETCH_AND_ADD", 8)
    row = trace.send(time + 5200, a, "RDMA_WRITE_WITH_IMM", 512, receive=waiting[b].pop(0))
    for i in range(10):
        trace.cq_events.append(
            {"time": 12500 + 1100 * i, "cq": 1, "kind": ("empty", "armed", "fired", "awoke", "armed solicited")[i % 5]}
        )
    return trace.finish()


RNR = (
    31,
    "RNR",
    text("receiver not ready", "接收方未就绪"),
    text(
        "The SEND of wr_id 0x11 on QP 0x4000 found no receive posted at QP 0x8001 of process 4712; 7 tries in 4.6 ms, "
        "min_rnr_timer 12 (0.64 ms).",
        "QP 0x4000 上 wr_id 为 0x11 的 SEND 在进程 4712 的 QP 0x8001 上没有找到已提交的接收；4.6 ms 内尝试了 7 次，min_rnr_timer 为 12（0.64 ms）。",
    ),
    text(
        "Post receives before the other end sends, and post new ones as soon as completions are polled.",
        "在对端发送之前提交接收，并在轮询到完成后立即提交新的接收。",
    ),
)
BOUNDS = (
    12,
    "RKEY_BOUNDS",
    text("outside of the remote region", "超出远端内存区域"),
    text(
        "The RDMA WRITE of wr_id 0x13 on QP 0x4000 names 4097 bytes at 0x7f12a4000000 with rkey 0x1a2b00, and that region ends "
        "one byte before: it is 0x7f12a4000000-0x7f12a4001000 (4096 bytes).",
        "QP 0x4000 上 wr_id 为 0x13 的 RDMA WRITE 用 rkey 0x1a2b00 指定了 0x7f12a4000000 处的 4097 字节，超出该区域 1 字节："
        "该区域为 0x7f12a4000000-0x7f12a4001000（4096 字节）。",
    ),
    text("Register all of the buffer, or write less.", "注册整个缓冲区，或写入更少的数据。"),
)


def causes():
    """A receiver that runs dry, an address one byte outside, and what is flushed behind it."""
    trace, (a, b) = pair("build/store --peer 10.0.0.2", ("store", "store-backup"), depth=8, entries=16)
    waiting = [trace.receive(5000 + 40 * i, b, 4096) for i in range(6)]
    time = 9000
    for receive in waiting:
        time += trace.send(time, a, receive=receive, length=1024)["polled"] + 200
    row = trace.fail(time, a, "SEND", "RNR_RETRY_EXC_ERR", 13, RNR, after=9000)
    row["retries"] = 7
    for i in range(7):
        trace.retries.append({"time": time + 900 + i * 1100, "qp": a, "of": row, "kind": "rnr", "count": i + 1})
    trace.model["qps"][a]["states"].append([time + 9000, "ERR"])
    for i in range(3):
        trace.fail(time + 9800 + 100 * i, a, "SEND", "WR_FLUSH_ERR", 5, None, after=300)
    trace.model["qps"][a]["states"] += [
        [time + 15000, "RESET"],
        [time + 15500, "INIT"],
        [time + 16000, "RTR"],
        [time + 16500, "RTS"],
    ]
    time += 18000
    for i in range(3):
        trace.send(time, a, "RDMA_WRITE", 2048)
        time += 1500
    trace.fail(time, a, "RDMA_WRITE", "REM_ACCESS_ERR", 10, BOUNDS, after=1300, length=4097)
    trace.model["qps"][a]["states"].append([time + 1300, "ERR"])
    trace.model["dropped"] = 17
    trace.model["processes"][1]["dropped"] = 17
    trace.model["advice"] = [
        {
            "process": 1,
            "what": text("CQ 1: it was created for 100000 completions. At most 5 waited in it.", "CQ 1：它按 100000 个完成创建。最多有 5 个在其中等待。"),
        },
        {
            "process": 0,
            "what": text("It would fail on a card as rxe: cqe 100000 > 32767.", "它在 rxe 这样的网卡上会失败：cqe 100000 > 32767。"),
        },
    ]
    model = trace.finish()
    for row, retry in zip(model["retries"]["rows"], trace.retries):
        row[2] = retry["of"]["place"]
    return model


def wire():
    """A server with an SRQ, three clients on another host, over the wire, with packets."""
    trace = Trace("uroce lab --hosts 2 -- kv-bench", ("kv-server", "kv-client", "kv-client", "kv-client"))
    cq, srq = trace.cq(0, 512), trace.srq(0, 64)
    for process in trace.model["processes"][1:]:
        process["host"] = 1
    clients, servers = [], []
    for process in (1, 2, 3):
        client, server = trace.qp(process, trace.cq(process, 64), depth=32, wire=True), trace.qp(0, cq, srq, depth=32, wire=True)
        trace.connect(client, server)
        clients.append(client)
        servers.append(server)
    pool = [trace.receive(5000 + 30 * i, servers[0], 4096) for i in range(48)]
    time = 10000
    for turn in range(90):
        here = trace.random.randrange(3)
        row = trace.send(time, clients[here], "SEND", trace.random.choice((48, 200, 1800)), receive=pool.pop(0))
        for n in range(row["packets"]):
            for qp, out, at in ((clients[here], 1, row["sent"]), (servers[here], 0, row["placed"] - 20)):
                trace.packets.append(
                    {
                        "time": time + at + 60 * n,
                        "qp": qp,
                        "out": out,
                        "opcode": 4,
                        "psn": row["psn"] + n,
                        "length": 1024,
                        "of": row,
                        "again": 0,
                    }
                )
        done = time + row["remote_polled"]
        trace.send(done + 400, servers[here], "RDMA_WRITE_WITH_IMM" if turn % 3 else "SEND_WITH_IMM", 4096)
        if turn % 2:
            pool += [trace.receive(done + 300 + i, servers[0], 4096) for i in range(2)]
        time += trace.random.randint(300, 2600)
    trace.packets.sort(key=lambda packet: packet["time"])
    model = trace.finish()
    for row, packet in zip(model["packets"]["rows"], trace.packets):
        row[6] = packet["of"]["place"]
    return model


def big():
    """200,000 requests of a million, in bursts of 16."""
    trace, (a, b) = pair("ib_write_bw -d uroce0 --run_infinitely", ("ib_write_bw", "ib_write_bw"))
    time, receives = 20000, []
    for burst in range(12500):
        slow = 30 if trace.random.random() < 0.002 else 1
        kind = ("RDMA_WRITE", "RDMA_WRITE", "SEND", "RDMA_READ")[burst // 3000 % 4]
        for i in range(16):
            receive = trace.receive(time - 4000, b) if kind == "SEND" else None
            row = trace.send(time + 40 * i, a, kind, 64, receive=receive, list_of=16, polled=2500 * slow, slow=slow)
        time += 4000 * slow + trace.random.randint(0, 900)
    for i in range(5):
        trace.fail(time + i * 30, a, "RDMA_WRITE", "WR_FLUSH_ERR" if i else "REM_ACCESS_ERR", 5 if i else 10, None if i else BOUNDS)
    model = trace.finish()
    model["sends"]["total"] = 1000000
    model["events"] = 10000000
    return model


def empty():
    """A program that opened nothing."""
    trace = Trace("true", ())
    return trace.finish()


def idle():
    """Objects, and not a request."""
    trace, _ = pair("ibv_devinfo", ("a", "b"))
    trace.model["duration"] = 5000000
    return trace.finish()


HOSTILE = "</script><script>document.title='executed'</script><img src=x onerror=\"document.title='executed'\">"


def hostile():
    """Texts that would be code if a page took them for HTML."""
    trace, (a, b) = pair(HOSTILE, (HOSTILE, "<!--<script>" + HOSTILE), depth=16, entries=32)
    trace.send(9000, a, HOSTILE, wr_id=0)
    trace.send(12000, a, "__proto__", wr_id=0xFFFFFFFFFFFFFFFF)
    trace.fail(
        15000, b, "SEND", "toString", 10, (1, HOSTILE, text(HOSTILE, HOSTILE), text(HOSTILE, HOSTILE), text(HOSTILE, HOSTILE))
    )
    trace.model["qps"][a]["sgid"] = HOSTILE
    trace.model["qps"][a]["states"].append([9000, HOSTILE])
    model = trace.finish()
    model["sends"]["rows"][0][SENDS.index("wr_id")] = HOSTILE
    return model


def sparse():
    """Most of what may be unknown is: rows that lost events, a peer that was not traced."""
    trace, (a, b) = pair("pid 4711", ("half", "other"), depth=16, entries=32)
    trace.model["processes"].pop()
    trace.model["qps"][b]["process"] = None
    trace.model["cqs"].pop()
    trace.model["qps"][b].update(send_cq=None, recv_cq=None, type=None, states=[], created=None)
    trace.model["qps"][a].update(srq=None, dgid=None)
    rows = [trace.send(9000 + 700 * i, a, ("SEND", "RDMA_READ")[i % 2]) for i in range(12)]
    for i, row in enumerate(rows):
        for j, stage in enumerate(
            ("posted", "rung", "seen", "gathered", "sent", "placed", "cqe", "polled", "status", "dest", "length", "wr_id")
        ):
            if (i * 7 + j * 5) % 12 < i:
                row[stage] = None
    trace.model["qps"][a]["mtu"] = None
    model = trace.finish()
    model["start_ns"] = None
    model["causes"].append(
        {
            "time": 9100,
            "process": 0,
            "qp": None,
            "send": None,
            "code": 3,
            "name": "ENOMEM",
            "error": 12,
            "outcome": "ibv_post_send: ENOMEM",
            "wr_id": None,
            "short": {"en": "the send queue is full"},
            "what": None,
            "todo": None,
        }
    )
    return model


MODELS = {make.__name__: make for make in (small, causes, wire, big, empty, idle, hostile, sparse)}


def page(template, model):
    if template.count(MARK) != 1:
        raise ValueError("the template has no single place for the model")
    return template.replace(MARK, json.dumps(model, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


def main():
    gc.disable()  # rows of one trace name each other, and all stay
    _, template, name, output = sys.argv
    with open(template, encoding="utf-8") as file:
        text = file.read()
    with open(output, "w", encoding="utf-8") as file:
        file.write(page(text, MODELS[name]()))


if __name__ == "__main__":
    main()
