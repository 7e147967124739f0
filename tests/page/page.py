#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The page of a trace in a real browser: each function below is a test. It sees and does what a person does: texts, pictures, keys, clicks.

usage: page.py PAGE TEST    PAGE: the template; exits with 77 where there is no browser
"""
import gc
import os
import re
import sys
import tempfile

import models
from browser import Browser, found

# Pixels of a canvas: how many differ from what is most there, and where those of one colour are.
PIXELS = """(id => {
    const canvas = document.getElementById(id), {data, width, height} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const colours = new Map();
    for (let i = 0; i < data.length; i += 4) {
        const key = data[i] << 24 | data[i + 1] << 16 | data[i + 2] << 8 | data[i + 3];
        colours.set(key, (colours.get(key) || 0) + 1);
    }
    return width * height - Math.max(...colours.values());
})(%r)"""
FIND = """((id, variable, nth) => {
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = `var(--${variable})`;
    const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
    probe.remove();
    const canvas = document.getElementById(id), {data, width, height} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    canvas.scrollIntoView({block: "center"});
    const box = canvas.getBoundingClientRect(), found = [];
    for (let i = 0; i < data.length; i += 4)
        if (Math.abs(data[i] - r) < 8 && Math.abs(data[i + 1] - g) < 8 && Math.abs(data[i + 2] - b) < 8 && data[i + 3] > 240 && i / 4 %% width > 140)
            found.push(i / 4);
    const at = found[Math.floor(found.length * nth)];
    return at === undefined ? null : [box.left + at %% width + 0.5, box.top + Math.floor(at / width) + 0.5];
})(%r, %r, %r)"""


class Test:
    def __init__(self, browser, template, directory):
        self.browser, self.template, self.directory = browser, template, directory

    def open(self, model, **how):
        """The page with a model: its name, the model itself, or None for the page as it is."""
        path = os.path.join(self.directory, "page.html")
        text = self.template
        if model is not None:
            text = models.page(text, models.MODELS[model]() if isinstance(model, str) else model)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        self.path = path
        self.browser.page(path, **how)
        self.quiet()

    def quiet(self):
        """Nothing failed, was complained of or asked for but the file (and the empty picture of the tab, which is in it)."""
        same(self.browser.failed, [])
        same(
            [text for text in self.browser.said if "willReadFrequently" not in text], []
        )  # that is said of this test's own reading
        same([url for url in self.browser.asked if not url.startswith(("file://" + self.path, "data:,", "about:"))], [])

    def js(self, script):
        value = self.browser.run(script)
        self.browser.frames()
        return value

    def text(self, selector):
        return self.browser.run("document.querySelector(%r).innerText" % selector)

    def count(self, selector):
        return self.browser.run("document.querySelectorAll(%r).length" % selector)

    def press(self, selector, nth=0):
        self.js("document.querySelectorAll(%r)[%d].click()" % (selector, nth))

    def row(self, place):
        """Clicks a row of the table."""
        self.js("new Promise(done => { document.getElementById('grid').scrollTop = %d; setTimeout(done, 50); })" % (28 * place))
        self.press('#grid .rows .line[data-place="%d"]' % place)

    def fill(self, name, value):
        self.js(
            """new Promise(done => {
            const field = document.getElementById("filter").elements[%r];
            field.value = %r;
            field.dispatchEvent(new Event("input", {bubbles: true}));
            setTimeout(done, 260);
        })"""
            % (name, value)
        )

    def rows(self):
        """The rows of the table that are in sight, as lists of texts."""
        return self.js(
            """[...document.querySelectorAll("#grid .rows .line")].filter(line => !line.hidden)
            .sort((a, b) => a.dataset.place - b.dataset.place).map(line => [...line.children].map(cell => cell.textContent))"""
        )

    def passing(self):
        return int(re.match(r"[\d,]+", self.text("#matching")).group().replace(",", ""))

    def span(self):
        """The window of time: from and to, ns."""
        units = {"µs": 1e3, "ms": 1e6, "s": 1e9}
        return [float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (µs|ms|s)", self.text("#window"))[:2]]

    def drawn(self, canvas, least=300):
        assert self.browser.run(PIXELS % canvas) > least, "%s is empty" % canvas

    def find(self, canvas, variable, nth=0.5):
        at = self.js(FIND % (canvas, variable, nth))
        assert at, "nothing in %s is of %s" % (canvas, variable)
        return at


def same(got, wanted):
    assert got == wanted, "%r, not %r" % (got, wanted)


def holds(text, *parts):
    for part in parts:
        assert part in text, "no %r in %r" % (part, text)


# ---- The tests ----


def pictures_are_drawn(t):
    for dark in False, True:
        t.open("small", dark=dark)
        for canvas in "overview", "messages", "queues", "stacks":
            t.drawn(canvas)
        for canvas, variable in (
            ("messages", "op-send"),
            ("messages", "op-read"),
            ("queues", "sq"),
            ("queues", "rq"),
            ("queues", "cq"),
            ("stacks", "p4"),
        ):
            t.find(canvas, variable)
    t.open("wire")
    t.find("queues", "srq")
    holds(t.text("#phases"), "SEND_WITH_IMM", "posted → polled", "gathered → placed")
    holds(t.js("document.getElementById('queuesText').textContent"), "SRQ 1 of kv-server", "depth 64")
    holds(t.js("document.getElementById('messagesText').textContent"), "180 requests", "0 of them failed")


def causes_are_told_where_they_happened(t):
    t.open("causes")
    same(t.count(".cause"), 2)
    holds(t.text("#causeList"), "IBV_WC_RNR_RETRY_EXC_ERR", "found no receive posted at QP 0x8001", "ends one byte before")
    holds(t.text("#facts"), "5 failed")
    holds(t.text("#notices"), "17 events")
    t.find("messages", "bad-ground")
    t.press("#causes button")
    holds(t.text("#life"), "SEND wr_id 0x6", "found no receive posted", "retry 7", "Its CQE was written: RNR_RETRY_EXC_ERR")
    # The sentence in the picture leads there too.
    t.press("#life .last")
    same(t.count("#life[hidden]"), 1)
    t.browser.click(*t.find("messages", "bad-ground", 0.1))
    holds(t.text("#life"), "found no receive posted")
    t.quiet()


def advice_has_a_section_in_both_languages(t):
    t.open("causes")
    same(t.count(".advice"), 2)
    holds(t.text("#advised"), "Advice, from what was seen", "created for 100000 completions", "a card as rxe: cqe 100000 > 32767")
    first, second = t.js("[...document.querySelectorAll('.advice')].map(card => card.innerText)")
    assert first.split("\n")[0] != second.split("\n")[0], "the advice does not say whose it is: %r" % first
    t.press("#language")
    holds(t.text("#advised"), "根据所见给出的建议", "它按 100000 个完成创建", "在 rxe 这样的网卡上会失败")
    assert "created for" not in t.text("#advised"), "English words among the Chinese"
    t.quiet()
    # Who does well gets none.
    t.open("small")
    same(t.count("#advised[hidden]"), 1)


def clicked_request_is_followed_everywhere(t):
    t.open("small")
    t.browser.click(*t.find("messages", "op-write", 0.5))
    holds(
        t.text("#life"),
        "RDMA_WRITE wr_id",
        "The program posted it",
        "It was taken up",
        "The last byte was in the memory of the other end",
        "ns later, at",
    )
    same(t.count("#grid .line.followed"), 1)
    # Another request, in the same window of time: each picture looks different.
    names, window = ("overview", "messages", "queues", "stacks"), t.text("#window")
    before = [t.js("document.getElementById('%s').toDataURL()" % name) for name in names]
    t.js("document.getElementById('messages').focus()")
    t.browser.key("n")
    same(t.text("#window"), window)
    for name, picture in zip(names, before):
        assert t.js("document.getElementById('%s').toDataURL()" % name) != picture, "%s does not show what is followed" % name
    t.browser.key("p")
    holds(t.browser.run("location.hash"), "#send")
    hash_of_first = t.browser.run("location.hash")
    # Its place can be handed on.
    t.browser.page(t.path, fragment=hash_of_first)
    holds(t.text("#life"), "RDMA_WRITE wr_id")
    t.browser.key("Escape")
    t.js("document.getElementById('messages').focus()")
    t.browser.key("Escape")
    same(t.count("#life[hidden]"), 1)
    # By a row, a bar and a queue.
    t.row(0)
    holds(
        t.text("#life"), "Receive wr_id 0x0", "The program posted this receive, with room for 64 bytes", "A message took it: SEND"
    )
    t.press("#life > button")
    holds(t.text("#life"), "SEND wr_id", "which had waited for", "at the other end, ib_send_lat")
    before = t.text("#lifeTitle")
    t.browser.click(*t.find("stacks", "p2", 0.01))
    assert t.text("#lifeTitle") != before, "a bar does not lead to its request"
    t.browser.click(*t.find("queues", "sq", 0.3))
    same(t.count("#life[hidden]"), 0)
    t.js("document.getElementById('messages').focus()")
    first = t.text("#lifeTitle")
    t.browser.key("n")
    assert t.text("#lifeTitle") != first, "N does not lead on"
    t.browser.key("p")
    same(t.text("#lifeTitle"), first)
    t.quiet()


def filter_and_order_are_those_asked_for(t):
    t.open("small")
    same(t.passing(), 126)
    t.fill("opcode", "RDMA_WRITE")
    same(t.passing(), 24)
    assert all(row[1] == "RDMA_WRITE" for row in t.rows())
    same(t.js("document.querySelectorAll('#filterBox.on').length"), 1)
    t.press("#reset")
    same(t.passing(), 126)
    t.fill("wr", "0x13")
    assert all("0x13" in row[2] for row in t.rows()) and t.passing() > 1
    t.fill("wr", "19")
    assert all(row[2] == "0x13" or "19" in row[2] for row in t.rows()) and t.passing() > 1
    t.press("#reset")
    t.fill("text", "atomic")
    same(t.passing(), 1)
    t.fill("text", "no such thing")
    same(t.passing(), 0)
    t.press("#reset")
    t.fill("status", "open")
    assert t.passing() > 20 and all(row[6] in ("not signaled", "not taken") for row in t.rows())
    t.press("#reset")
    t.press("#grid .heads button", 5)
    got = [int(row[5].replace(",", "")) for row in t.rows() if row[5] != "–"]
    same(got, sorted(got))
    t.press("#grid .heads button", 5)
    same(t.rows()[0][5], "8,192")
    same(t.js("document.querySelectorAll('#grid [aria-sort=descending]').length"), 1)
    t.open("causes")
    t.fill("status", "failed")
    same(t.passing(), 5)
    t.fill("status", "REM_ACCESS_ERR")
    same(t.passing(), 1)
    t.press("#reset")
    t.fill("text", "one byte before")
    same(t.passing(), 1)
    t.fill("text", "")
    t.fill("qp", "1")
    same(t.passing(), 20)
    t.quiet()


def both_languages_are_spoken(t):
    t.open("causes", language="zh-CN")
    same(t.browser.run("document.documentElement.lang"), "zh-CN")
    holds(t.text("main"), "失败了什么，为什么", "没有找到已提交的接收", "消息", "队列")
    same(t.text("#language"), "English")
    chinese = t.text("body")
    t.press("#causes button")
    holds(t.text("#life"), "程序提交了它", "接收方未就绪", "写入了它的 CQE")
    t.press("#language")
    same(t.browser.run("document.documentElement.lang"), "en")
    english = t.text("body")
    holds(english, "What failed, and why", "The program posted it", "found no receive posted")
    assert not re.search(r"[\u4e00-\u9fff]", english.replace("中文", "")), "Chinese is left"
    # What is never translated are names: of states, verbs, fields, programs, units.
    allowed = set(
        """English SQ RQ CQ SRQ WQE CQE SEND RDMA WRITE READ RECV QP PID RNR SUCCESS IBV_WC Esc Ctrl Shift uroce trace of wr_id 0x rkey min_rnr_timer ms µs ns us store
        backup build peer WR_FLUSH_ERR REM_ACCESS_ERR RNR_RETRY_EXC_ERR RKEY_BOUNDS IBV_WC_RNR_RETRY_EXC_ERR IBV_WC_REM_ACCESS_ERR RDMA_WRITE signaled s N P x cqe rxe""".split()
    )
    left = {word for word in re.findall(r"[A-Za-z_]{2,}", re.sub(r"0x[0-9a-f]+", "", chinese))} - allowed
    same(left, set())
    same(t.browser.run("document.querySelectorAll('[data-t]:empty').length"), 0)
    t.quiet()


def words_are_there_in_both_languages(t):
    """The same keys on both sides, but for singulars, which Chinese has not; and none is missing."""
    t.open("small")
    block = re.search(r"const WORDS = \{.*?\n\};\n", t.template, re.S).group()
    keys = t.browser.run(
        """(() => { %s
        const flat = (at, name) => typeof at === "object" ? Object.entries(at).flatMap(([k, v]) => flat(v, name + "." + k)) : [name];
        return [flat(WORDS.en, ""), flat(WORDS.zh, "")]; })()"""
        % block
    )
    english, chinese = (
        set(key for key in side if not key.endswith("1") or "glossary" in key or "flags" in key or "parts" in key) for side in keys
    )
    same(english ^ chinese, set())
    used = set(re.findall(r"""say\("([\w.]+)"[,)]""", t.template)) | set(re.findall(r'data-t="(\w+)"', t.template))
    known = {key[1:] for key in keys[0]}
    same({key for key in used if key not in known}, set())


def phone_needs_no_sideways_scrolling(t):
    for name in "causes", "wire", "hostile", "sparse", "empty":
        t.open(name, width=390, height=844)
        same(t.browser.run("document.documentElement.scrollWidth"), 390)
    t.open("causes", width=390, height=844)
    t.drawn("messages")
    t.press("#causes button")
    same(t.browser.run("document.documentElement.scrollWidth"), 390)
    box = t.browser.run("(b => [b.left, b.right, b.bottom, innerHeight])(document.getElementById('life').getBoundingClientRect())")
    same(box, [0, 390, 844, 844])
    # Two fingers that part zoom; one that goes sideways moves.
    t.press("#life .last")
    x, y = t.js(
        "(c => { c.scrollIntoView({block: 'center'}); const b = c.getBoundingClientRect(); return [b.left, b.top + b.height / 2]; })(document.getElementById('messages'))"
    )

    def touch(kind, *points):
        t.browser.call(
            "Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": px, "y": y, "id": n} for n, px in enumerate(points)]
        )

    before = t.span()
    touch("touchStart", x + 120, x + 200)
    for apart in 10, 30, 60:
        touch("touchMove", x + 120 - apart, x + 200 + apart)
    touch("touchEnd")
    t.browser.frames()
    zoomed = t.span()
    assert zoomed[1] - zoomed[0] < 0.6 * (before[1] - before[0]), "two fingers do not zoom: %r, %r" % (before, zoomed)
    touch("touchStart", x + 200)
    for by in 20, 60, 100:
        touch("touchMove", x + 200 - by)
    touch("touchEnd")
    t.browser.frames()
    assert t.span()[0] > zoomed[0], "one finger does not move"
    t.quiet()


def pictures_zoom_and_move(t):
    t.open("small")
    start = t.span()
    t.press("#zoom button", 0)
    nearer = t.span()
    assert abs((nearer[1] - nearer[0]) * 2 / (start[1] - start[0]) - 1) < 0.05
    t.press("#zoom button", 3)
    assert t.span()[0] > nearer[0]
    t.press("#zoom button", 5)
    assert t.span()[0] == 0 and t.span()[1] > start[1] - 2000
    t.press("#zoom button", 4)
    same(t.span(), start)
    x, y = t.js(
        "(c => { c.scrollIntoView({block: 'center'}); const b = c.getBoundingClientRect(); return [b.left + 500, b.top + b.height / 2]; })(document.getElementById('messages'))"
    )
    # The wheel is the page's until the picture was clicked, or Ctrl is held.
    t.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=0.001)
    t.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-120, modifiers=2)
    t.browser.frames()
    wheel = t.span()
    assert wheel[1] - wheel[0] < start[1] - start[0], "the wheel does not zoom"
    t.browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    t.browser.mouse("mouseMoved", x + 60, y, button="left", buttons=1)
    t.browser.mouse("mouseMoved", x + 200, y, button="left", buttons=1)
    t.browser.mouse("mouseReleased", x + 200, y, button="left", clickCount=1)
    t.browser.frames()
    assert t.span()[0] < wheel[0], "dragging does not move"
    same(t.count("#life[hidden]"), 1)
    t.press("#zoom button", 4)
    t.browser.mouse("mousePressed", x, y, button="left", clickCount=1, modifiers=8)
    for to in 50, 100:
        t.browser.mouse("mouseMoved", x + to, y, button="left", buttons=1, modifiers=8)
    t.browser.mouse("mouseReleased", x + 100, y, button="left", clickCount=1, modifiers=8)
    t.browser.frames()
    assert t.span()[1] - t.span()[0] < 0.15 * (start[1] - start[0]), "Shift and drag does not choose a span"
    t.js("document.getElementById('queues').focus()")
    span = t.span()
    t.browser.key("ArrowRight")
    assert t.span()[0] > span[0]
    t.browser.key("+")
    assert t.span()[1] - t.span()[0] < span[1] - span[0]
    for _ in range(30):
        t.browser.call("Input.dispatchKeyEvent", type="keyDown", key="+")
    t.browser.frames()
    deep = t.span()
    assert 15 <= round(deep[1] - deep[0]) <= 25, "it zooms to 20 ns: %r" % deep
    t.browser.key("0")
    same(t.span()[0], 0)
    t.quiet()


def many_requests_are_borne(t):
    t.open("big")
    t.drawn("messages")
    t.drawn("stacks")
    holds(t.text("#notices"), "of 1,048,000 requests")
    same(t.passing(), 248005)
    assert t.count("#grid .rows .line") < 60
    # A frame is the time of some milliseconds of the processor, not of seconds, at every zoom; the machine may be slow.
    for button in 5, 4, 0, 0, 0, 0, 0, 0, 0:
        took = t.js(
            """new Promise(done => {
            document.querySelectorAll("#zoom button")[%d].click();
            requestAnimationFrame(() => { const begin = performance.now(); requestAnimationFrame(() => done(performance.now() - begin)); });
        })"""
            % button
        )
        assert took < 3000, "a frame took %d ms" % took
        t.drawn("messages")
    t.js("document.getElementById('grid').scrollTop = 1e9")
    t.js("new Promise(done => setTimeout(done, 50))")
    same(t.rows()[-1][6], "WR_FLUSH_ERR")
    t.fill("status", "failed")
    same(t.passing(), 5)
    t.row(0)
    holds(t.text("#life"), "REM_ACCESS_ERR")
    t.quiet()


def hostile_texts_stay_texts(t):
    for language in "en-US", "zh-CN":
        t.open("hostile", language=language)
        t.press("#causes button")
        for place in range(3):
            t.row(place)
        assert t.browser.run("document.title").startswith("</script>"), t.browser.run("document.title")
        same(t.count("img"), 0)
        same(t.count("script"), 1)
        holds(t.text("#facts"), "1 ")
        t.quiet()


def many_processes_and_queues_are_borne(t):
    trace = models.Trace("crowd", tuple("peer%d" % n for n in range(300)))
    cqs = [trace.cq(process, 16) for process in range(300)]
    time = 9000
    for n in range(1, 300):
        a, b = trace.qp(0, cqs[0]), trace.qp(n, cqs[n])
        trace.connect(a, b)
        time += 300
        trace.send(time, b, receive=trace.receive(8000 + n, a))
    t.open(trace.finish())
    t.drawn("messages")
    t.drawn("queues")
    same(t.text("#moreQueues"), "Show all 500 queues")
    t.press("#moreQueues")
    t.drawn("queues")
    t.press("#moreQueues")
    t.fill("qp", "1")
    same(t.passing(), 1)
    same(t.js("document.getElementById('moreQueues').hidden"), True)
    t.quiet()


def nothing_is_said_to_be_nothing(t):
    t.open("empty")
    holds(t.text("#notices"), "No work request was posted")
    t.open("idle")
    holds(t.text("#notices"), "No work request was posted")
    t.drawn("messages", 50)
    t.open(None)
    holds(t.text("#notices"), "has no trace in it")
    t.open("sparse")
    t.drawn("messages")
    holds(t.text("main"), "not traced", "the send queue is full")
    for place in range(12):
        t.row(place)
    t.quiet()


def colours_can_be_told_from_their_ground(t):
    for dark in False, True:
        t.open("small", dark=dark)
        ratios = t.browser.run(
            """(() => {
            const style = getComputedStyle(document.documentElement), light = name => {
                const [r, g, b] = style.getPropertyValue("--" + name).trim().match(/[0-9a-f]{2}/gi).map(x => parseInt(x, 16) / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                return .2126 * r + .7152 * g + .0722 * b;
            };
            const ratio = (a, b) => (Math.max(light(a), light(b)) + .05) / (Math.min(light(a), light(b)) + .05);
            return [["ink", "card"], ["dim", "card"], ["dim", "faint"], ["dim", "ground"], ["accent", "card"], ["bad", "card"], ["bad", "bad-ground"], ["ink", "bad-ground"], ["dim", "bad-ground"], ["warn", "warn-ground"], ["good", "card"],
                ...["send", "imm", "inv", "write", "writeimm", "read", "atomic", "recv", "other"].map(name => ["op-" + name, "card", 3])].map(([a, b, least]) => [a, b, ratio(a, b), least || 4.5]);
        })()"""
        )
        t.press("#theme")
        same(t.browser.run("document.documentElement.dataset.theme"), "light" if dark else "dark")
        for a, b, ratio, least in ratios:
            assert ratio >= least, "%s on %s: %.2f" % (a, b, ratio)


def keyboard_and_readers_reach_everything(t):
    t.open("causes")
    same(
        t.browser.run(
            """[...document.querySelectorAll("button, select, input, canvas[tabindex], [role=grid]")].filter(e => e.offsetParent)
        .filter(e => !(e.textContent.trim() || e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels && e.labels.length)).map(e => e.outerHTML)"""
        ),
        [],
    )
    t.js("document.getElementById('grid').focus()")
    for _ in range(3):
        t.browser.key("ArrowDown")
    t.browser.key("Enter")
    holds(t.text("#life"), "wr_id 0x3")
    holds(t.browser.run("document.getElementById('said').textContent"), "wr_id 0x3 is followed")
    same(t.browser.run("document.querySelector('#grid [aria-selected=true]').getAttribute('aria-rowindex')"), "5")
    t.browser.key("Escape")
    same(t.count("#life[hidden]"), 1)
    t.quiet()


def page_is_one_file(t):
    """It names no other: nothing of it could be asked for."""
    same(
        re.findall(
            r"""(?:src|href)\s*=\s*["'](?!data:,|#)[^"']*|url\((?!data:)[^)]*|@import|\bfetch\(|XMLHttpRequest|WebSocket""",
            t.template,
        ),
        [],
    )
    same(re.findall(r"https?://(?!www\.w3\.org/2000/svg)[^\s\"']*", t.template), [])
    same(t.template.count(models.MARK), 1)


def main():
    _, page, name = sys.argv
    if not found():
        print("skipped: there is no chromium (scripts/need page)")
        return 77
    gc.disable()  # the rows of a model name each other, and all stay
    with open(page, encoding="utf-8") as file:
        template = file.read()
    with tempfile.TemporaryDirectory(prefix="uroce-page.") as directory, Browser() as browser:
        globals()[name](Test(browser, template, directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
