/* What the page says, in both languages. {name} is put in by say(). */
const WORDS = {
	en: {
		other: "中文", themeAuto: "Dark", themeLight: "Light",
		title: "Trace of", skip: "To the pictures", terms: "What are SQ, RQ, CQ, SRQ, WQE and CQE?",
		footer: "Drawn by uroce trace. This page is one file: it works offline and asks nothing of any network.",
		glossary: [
			["SQ: send queue", "Work that a program hands to its queue pair: SENDs, RDMA WRITEs and READs, atomics. Executed in order."],
			["RQ: receive queue", "Places for messages that are still to come. Each SEND of the peer takes the oldest; if there is none, the receiver is not ready (RNR)."],
			["CQ: completion queue", "Where the results of finished work appear. The program polls them out; a CQ that is not polled overflows."],
			["SRQ: shared receive queue", "One receive queue for many queue pairs."],
			["WQE: work queue element", "One entry of an SQ, RQ or SRQ: a request as the program posted it, with its wr_id."],
			["CQE: completion queue element", "One entry of a CQ: which request is done, and with what status."],
		],
		readingLine: "How a message runs: a request is posted (a WQE in the SQ), taken up, its payload gathered and placed at the other end, for a SEND into a receive of the RQ; then a CQE is written at both ends, and each program polls its own.",
		keys: "Click a request anywhere to follow it. Zoom: buttons, Ctrl + wheel (or the wheel alone after a click into a picture), two fingers, Shift + drag over a span. Keys in a picture: ← → move, + − zoom, 0 all, N and P next and previous request, Esc lets go.",
		causes: "What failed, and why", todo: "What to do:", show: "Show it", more: "{n} more",
		pictures: "What happened", messages: "Messages", queues: "Queues", latency: "Where the time went", requests: "Requests", advice: "How the queues were used",
		asText: "The pictures as text",
		zoomIn: "Zoom in", zoomOut: "Zoom out", left: "Earlier", right: "Later", all: "All", active: "Requests", allHint: "The whole trace", activeHint: "From the first request to the last",
		window: "{from} to {to}, {span} of {all}",
		byProcess: "a line for each process", byQp: "a line for each queue pair", lanesTo: "Show {what}",
		moreQueues: "Show all {n} queues", lessQueues: "Show fewer queues", queuesNone: "No queue held anything.",
		filterQp: "Queue pair", filterOp: "Operation", filterStatus: "Outcome", filterWr: "wr_id", filterText: "Text", reset: "Show all",
		any: "all", ok: "succeeded", failed: "failed", open: "no completion", matching: "{n} of {all} requests.", matchingAll: "{n} requests.",
		requestsHint: "Click one to follow it, or a heading to sort. They are also what the picture above says in words.",
		colTime: "Posted at", colOp: "Operation", colWr: "wr_id", colStatus: "Outcome", colTook: "Took", colProcess: "Process", colQp: "QP", colBytes: "Bytes", colRetries: "Retries", colParts: "Phases",
		tookHint: "from posted to polled, or as far as is known",
		noCompletion: "no completion", unsignaled: "not signaled", waiting: "not taken", filled: "taken",
		facts: {
			when: "<b>{x}</b>", lasted: "lasted <b>{x}</b>", processes: "<b>{n}</b> processes", processes1: "<b>1</b> process", sends: "<b>{n}</b> send requests", sends1: "<b>1</b> send request",
			receives: "<b>{n}</b> receives", receives1: "<b>1</b> receive", events: "<b>{n}</b> events", events1: "<b>1</b> event", failed: "<b>{n}</b> failed", fine: "<b>nothing failed</b>",
		},
		noModel: "This page has no trace in it. uroce trace -o FILE.html -- PROGRAM writes one that has.",
		otherVersion: "This trace has another format than this page was made for; what it does not know is left out.",
		noRequests: "No work request was posted while the trace was taken.",
		dropped: "{n} events came faster than they could be kept and are lost: some times are unknown, and the queues' filling may be off after that.",
		thinned: "{shown} of {n} requests are shown one by one: the first, the last, and the first that failed. Queues and the table of latencies are of all of them.",
		notTraced: "not traced", noneHere: "No request here.", allFiltered: "No request passes the filter.",
		lostEvent: "unknown",
		phase: { "posted": "posted", "rung": "handed over", "seen": "taken up", "gathered": "gathered", "sent": "sent", "taken": "receive taken", "placed": "placed", "acked": "acknowledged", "cqe": "completed", "polled": "polled", "remote_cqe": "completed there", "remote_polled": "polled there" },
		parts: ["waited in the SQ", "payload gathered", "travelled, placed", "completed", "waited in the CQ"],
		phaseFrom: "Phase", phaseCount: "Requests", median: "Median", p99: "99 %", most: "Most", least: "Least", mean: "Mean", spread: "Least, median, 99 % (logarithmic)",
		stacks: "Each column is one of the {n} requests in the window of time above.", stacksMany: "Each column is the slowest of {k} requests; {n} are in the window of time above.", clipped: "Red tips: cut off, longest {x}.", stacksNone: "No request in the window of time above has known times.",
		legend: { posted: "posted", placed: "placed", cqe: "CQE", polled: "polled", failed: "failed", retry: "sent again", back: "completion comes back", read: "READ, atomic: asks and comes back; the turning point is not measured", many: "many requests: one stroke for all of a pixel, small area: requests in flight", state: "QP changes its state" },
		queueLegend: { level: "entries", high: "most (high-water mark)", limit: "depth asked for", full: "full, or an empty receive queue", events: "CQ: ▽ armed  ▲ event raised  ● event taken  · polled in vain", merged: "long trace: lowest to highest" },
		highOf: "most {max} of {limit}",
		fillingText: "{name} of {process}: depth {limit}, at most {max}, {share}.", dryFor: "empty for {x} in between", dryFrom: "empty from {x} on", comma: ", ", fullFor: "full for {x}", neverFull: "never full", neverDry: "never empty",
		messagesText: "{n} requests in the window of time {window}, {failed} of them failed. The table of requests has them all, one by one.",
		messagesLabel: "Messages between processes over time. Arrow keys move, plus and minus zoom, N and P follow the next and previous request.",
		queuesLabel: "Fill of the queues over time. Arrow keys move, plus and minus zoom.", stacksLabel: "Latency of requests, split into phases.",
		zoomLabel: "Zoom", filterLabel: "Filter",
		life: {
			send: "{op} {wr}", receive: "Receive {wr}", close: "Close", prev: "Previous of this QP", next: "Next of this QP", zoom: "Zoom to it",
			of: "{qp} of {process}", size: "{n} bytes", slot: "slot {i}", wqe: "WQE {i}",
			posted: "The program posted it: a WQE in the send queue.", postedList: "The program posted it with {n} others in one list: WQEs in the send queue.",
			rung: "The post call ended.", seen: "It was taken up for execution.", gathered: "The last byte of the payload had been read.", sent: "It left.",
			taken: "It took a receive there: {wr}, slot {i}, which had waited for {x}.", takenBare: "It took a receive there.", placed: "The last byte was in the memory of the other end.", placedHere: "The last byte had come back into this memory.",
			acked: "The acknowledgement came.", cqe: "Its CQE was written: {status}.", polled: "The program polled the CQE. From post to poll: {x}.",
			remote_cqe: "There, the receive's CQE was written.", remote_polled: "There, the program polled that.",
			retry: "It was sent again (retry {n}): {why}.", rnr: "the receiver was not ready", timeout: "nothing came back in time", sequence: "something was lost on the way",
			noCqe: "It is not signaled: there is no CQE of it.", noPoll: "Its CQE was never polled while the trace was taken.", noEnd: "No completion of it was seen.", noPlace: "It was never placed at the other end.",
			rposted: "The program posted this receive, with room for {n} bytes.", rtaken: "A message took it: {op} {wr}, {n} bytes.", rtakenBare: "A message took it.", rplaced: "The last byte of the payload was there.", rcqe: "Its CQE was written: {status}.", rpolled: "The program polled the CQE.", rwaiting: "No message had taken it when the trace ended.",
			there: "at the other end", start: "at {x}", after: "{x} later, at {t}", same: "at the same time", followOther: "Follow the receive", followSend: "Follow the send",
			packets: "Packets", packetLine: "{dir} PSN {psn}, {n} bytes", out: "sent", "in": "arrived", again: "again", details: "Details", addr: "Remote address", psn: "First PSN", packetCount: "Packets", flags: "Flags", retries: "Retries", dest: "To", peerGid: "Path",
		},
		flags: { 1: "fence", 2: "signaled", 4: "solicited", 8: "inline" },
		habitLists: "{n} requests were posted in {calls} calls: {mean} each.", habitSignaled: "{share} of the send requests were signaled.",
		said: { follow: "{what} is followed.", none: "No request is followed." },
	},
	zh: {
		other: "English", themeAuto: "深色", themeLight: "浅色",
		title: "跟踪：", skip: "跳到图表", terms: "SQ、RQ、CQ、SRQ、WQE、CQE 是什么？",
		footer: "由 uroce trace 绘制。本页是单个文件：可离线使用，不访问任何网络。",
		glossary: [
			["SQ：发送队列", "程序交给队列对的工作：SEND、RDMA WRITE、RDMA READ、原子操作，按顺序执行。"],
			["RQ：接收队列", "为尚未到达的消息准备的位置。对端的每个 SEND 取走最早的一个；没有可取的，就是接收方未就绪（RNR）。"],
			["CQ：完成队列", "已完成工作的结果出现在这里，由程序轮询取走；不轮询的 CQ 会溢出。"],
			["SRQ：共享接收队列", "多个队列对共用的一个接收队列。"],
			["WQE：工作队列元素", "SQ、RQ 或 SRQ 中的一项：程序提交的一个请求，带有它的 wr_id。"],
			["CQE：完成队列元素", "CQ 中的一项：哪个请求已完成，状态是什么。"],
		],
		readingLine: "一个消息的过程：请求被提交（SQ 中的一个 WQE），被取出执行，数据被读取并放到对端（SEND 放入 RQ 中的一个接收），然后两端各写入一个 CQE，由各自的程序轮询取走。",
		keys: "在任何地方点击一个请求即可追踪它。缩放：按钮、Ctrl + 滚轮（点击图表后可只用滚轮）、双指、Shift + 拖动选择一段。图表中的按键：← → 移动，+ − 缩放，0 全部，N 和 P 下一个和上一个请求，Esc 取消追踪。",
		causes: "失败了什么，为什么", todo: "怎么办：", show: "在图中显示", more: "另外 {n} 个",
		pictures: "发生了什么", messages: "消息", queues: "队列", latency: "时间花在哪里", requests: "请求", advice: "队列的使用情况",
		asText: "图表的文字版",
		zoomIn: "放大", zoomOut: "缩小", left: "更早", right: "更晚", all: "全部", active: "请求", allHint: "整个跟踪", activeHint: "从第一个请求到最后一个",
		window: "{from} 至 {to}，共 {all} 中的 {span}",
		byProcess: "每个进程一条线", byQp: "每个队列对一条线", lanesTo: "显示{what}",
		moreQueues: "显示全部 {n} 个队列", lessQueues: "显示较少的队列", queuesNone: "没有队列存放过内容。",
		filterQp: "队列对", filterOp: "操作", filterStatus: "结果", filterWr: "wr_id", filterText: "文字", reset: "显示全部",
		any: "全部", ok: "成功", failed: "失败", open: "无完成", matching: "{all} 个请求中的 {n} 个。", matchingAll: "{n} 个请求。",
		requestsHint: "点击一个即可追踪，点击列名可排序。上面的图也就是用文字写在这里的内容。",
		colTime: "提交时间", colOp: "操作", colWr: "wr_id", colStatus: "结果", colTook: "耗时", colProcess: "进程", colQp: "QP", colBytes: "字节", colRetries: "重试", colParts: "阶段",
		tookHint: "从提交到轮询，或到已知的最后时间",
		noCompletion: "无完成", unsignaled: "未置 signaled", waiting: "未被取用", filled: "已被取用",
		facts: {
			when: "<b>{x}</b>", lasted: "历时 <b>{x}</b>", processes: "<b>{n}</b> 个进程", sends: "<b>{n}</b> 个发送请求", receives: "<b>{n}</b> 个接收", events: "<b>{n}</b> 个事件",
			failed: "<b>{n}</b> 个失败", fine: "<b>没有失败</b>",
		},
		noModel: "本页中没有跟踪数据。uroce trace -o FILE.html -- PROGRAM 会写出带有数据的页面。",
		otherVersion: "该跟踪的格式与本页所适用的不同；无法识别的内容被略去。",
		noRequests: "跟踪期间没有提交任何工作请求。",
		dropped: "{n} 个事件来得太快，未能保留：部分时间未知，此后队列的占用可能不准确。",
		thinned: "{n} 个请求中逐一显示 {shown} 个：最前的、最后的和最先失败的。队列和延迟表包含全部请求。",
		notTraced: "未跟踪", noneHere: "此处没有请求。", allFiltered: "没有请求符合筛选条件。",
		lostEvent: "未知",
		phase: { "posted": "提交", "rung": "交出", "seen": "取出执行", "gathered": "读取完毕", "sent": "发出", "taken": "取用接收", "placed": "放置完毕", "acked": "确认", "cqe": "完成", "polled": "轮询", "remote_cqe": "对端完成", "remote_polled": "对端轮询" },
		parts: ["在 SQ 中等待", "读取数据", "传送、放置", "完成", "在 CQ 中等待"],
		phaseFrom: "阶段", phaseCount: "请求数", median: "中位数", p99: "99 %", most: "最大", least: "最小", mean: "平均", spread: "最小、中位数、99 %（对数刻度）",
		stacks: "每一列是上面时间窗口内 {n} 个请求中的一个。", stacksMany: "每一列是 {k} 个请求中最慢的一个；上面的时间窗口内有 {n} 个请求。", clipped: "红色顶端：已截断，最长 {x}。", stacksNone: "上面的时间窗口内没有时间已知的请求。",
		legend: { posted: "提交", placed: "放置完毕", cqe: "CQE", polled: "轮询", failed: "失败", retry: "重发", back: "完成返回", read: "READ、原子操作：去而复返；折返点并非测得", many: "请求很多时：每个像素合为一笔，小面积图：进行中的请求", state: "QP 状态改变" },
		queueLegend: { level: "项数", high: "最高水位", limit: "申请的深度", full: "已满，或接收队列为空", events: "CQ：▽ 已请求通知  ▲ 产生事件  ● 取走事件  · 轮询为空", merged: "长跟踪：最低到最高" },
		highOf: "最多 {max} / {limit}",
		fillingText: "{process} 的 {name}：深度 {limit}，最多 {max}，{share}。", dryFor: "其间有 {x} 为空", dryFrom: "自 {x} 起为空", comma: "，", fullFor: "有 {x} 是满的", neverFull: "从未满过", neverDry: "从未为空",
		messagesText: "时间窗口 {window} 内有 {n} 个请求，其中 {failed} 个失败。请求表逐一列出全部请求。",
		messagesLabel: "各进程之间的消息随时间的变化。方向键移动，加号和减号缩放，N 和 P 追踪下一个和上一个请求。",
		queuesLabel: "队列占用随时间的变化。方向键移动，加号和减号缩放。", stacksLabel: "请求的延迟，按阶段划分。",
		zoomLabel: "缩放", filterLabel: "筛选",
		life: {
			send: "{op} {wr}", receive: "接收 {wr}", close: "关闭", prev: "该 QP 的上一个", next: "该 QP 的下一个", zoom: "放大到它",
			of: "{process} 的 {qp}", size: "{n} 字节", slot: "槽位 {i}", wqe: "WQE {i}",
			posted: "程序提交了它：发送队列中的一个 WQE。", postedList: "程序把它与另外 {n} 个请求在一个链表中提交：发送队列中的 WQE。",
			rung: "提交调用结束。", seen: "开始执行它。", gathered: "数据的最后一个字节已读取。", sent: "它已发出。",
			taken: "它在对端取用了一个接收：{wr}，槽位 {i}，该接收已等待 {x}。", takenBare: "它在对端取用了一个接收。", placed: "最后一个字节已在对端的内存中。", placedHere: "最后一个字节已回到本端的内存中。",
			acked: "确认已到达。", cqe: "写入了它的 CQE：{status}。", polled: "程序轮询取走了 CQE。从提交到轮询：{x}。",
			remote_cqe: "在对端写入了该接收的 CQE。", remote_polled: "对端程序轮询取走了它。",
			retry: "第 {n} 次重发：{why}。", rnr: "接收方未就绪", timeout: "没有及时收到回应", sequence: "途中有丢失",
			noCqe: "它未置 signaled：没有它的 CQE。", noPoll: "跟踪期间它的 CQE 一直没有被轮询取走。", noEnd: "没有看到它的完成。", noPlace: "它从未放置到对端。",
			rposted: "程序提交了这个接收，可容纳 {n} 字节。", rtaken: "一个消息取用了它：{op} {wr}，{n} 字节。", rtakenBare: "一个消息取用了它。", rplaced: "数据的最后一个字节已到达。", rcqe: "写入了它的 CQE：{status}。", rpolled: "程序轮询取走了 CQE。", rwaiting: "跟踪结束时还没有消息取用它。",
			there: "在对端", start: "时间 {x}", after: "{x} 之后，时间 {t}", same: "同一时间", followOther: "追踪该接收", followSend: "追踪该发送",
			packets: "数据包", packetLine: "{dir} PSN {psn}，{n} 字节", out: "发出", "in": "到达", again: "重发", details: "详情", addr: "远端地址", psn: "首个 PSN", packetCount: "数据包数", flags: "标志", retries: "重试", dest: "发往", peerGid: "路径",
		},
		flags: { 1: "fence", 2: "signaled", 4: "solicited", 8: "inline" },
		habitLists: "{n} 个请求由 {calls} 次调用提交：平均每次 {mean} 个。", habitSignaled: "{share} 的发送请求置了 signaled。",
		said: { follow: "正在追踪 {what}。", none: "没有追踪任何请求。" },
	},
};

let language = /^zh\b/i.test(navigator.language || "") ? "zh" : "en";

/* The text at a path of WORDS ("life.posted"), with {name} replaced from values. A key with 1 behind it is for n === 1. */
function say(path, values = {}) {
	let text = WORDS[language];
	for (const key of path.split("."))
		text = text[key];
	if (values.n === 1 || values.n === "1")
		text = wordsAt(path + "1") || text;
	return text.replace(/\{(\w+)\}/g, (all, name) => (name in values ? values[name] : all));
}

function wordsAt(path) {
	return path.split(".").reduce((at, key) => at && at[key], WORDS[language]);
}

/* A text of the model: {"en": …, "zh": …}. */
function told(text) {
	return !text ? "" : typeof text === "string" ? text : text[language] || text.en || "";
}

/* ---- Numbers ---- */

const NUMBERS = new Intl.NumberFormat("en-US");
const count = (n) => (Number.isFinite(n) ? NUMBERS.format(n) : "–");
const hex = (n) => "0x" + Number(n).toString(16);
const percent = (x) => (x * 100).toFixed(x > 0 && x < 0.1 ? 1 : 0) + " %";

const UNITS = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];

function unitOf(ns) {
	let unit = UNITS[0];
	for (const u of UNITS)
		if (Math.abs(ns) >= u[0])
			unit = u;
	return unit;
}

/* A duration, to three digits or so; in nanoseconds it is whole. */
function lasting(ns) {
	if (!Number.isFinite(ns))
		return "–";
	const [size, name] = unitOf(ns), value = ns / size;
	return (size === 1 ? Math.round(value) : value.toFixed(Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0)) + " " + name;
}

/* A duration to the nanosecond. */
function exactly(ns) {
	if (!Number.isFinite(ns))
		return "–";
	const [size, name] = unitOf(ns), digits = Math.round(Math.log10(size));
	return (ns / size).toFixed(Math.min(digits, 6)) + " " + name;
}

/* A moment of the trace: to the nanosecond, or only so fine as a span of time needs it. */
function moment(ns, span = 1) {
	if (!Number.isFinite(ns))
		return "–";
	const [size, name] = ns < 1e6 ? UNITS[1] : unitOf(ns);
	return (ns / size).toFixed(Math.max(0, Math.min(Math.round(Math.log10(size)), Math.ceil(Math.log10((size * 1000) / span))))) + " " + name;
}
