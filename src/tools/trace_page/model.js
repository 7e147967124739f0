/*
 * The model (docs/trace-model.md) as the pictures need it: a typed array for each column, moments instead of durations, NaN for what
 * is not known. What is missing in it is taken as empty.
 */
const SEND_STAGES = [
	"posted",
	"rung",
	"seen",
	"again",
	"gathered",
	"sent",
	"taken",
	"placed",
	"acked",
	"cqe",
	"polled",
	"remote_cqe",
	"remote_polled",
];
const RECEIVE_STAGES = ["posted", "taken", "placed", "cqe", "polled"];
/* What the stacked bars divide a life by; an unknown one adds to the next. */
const PARTS = ["seen", "again", "gathered", "placed", "cqe", "polled"];
const STATUSES = (
	"SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR BAD_RESP_ERR LOC_ACCESS_ERR " +
	"REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR RNR_RETRY_EXC_ERR LOC_RDD_VIOL_ERR REM_INV_RD_REQ_ERR REM_ABORT_ERR " +
	"INV_EECN_ERR INV_EEC_STATE_ERR FATAL_ERR RESP_TIMEOUT_ERR GENERAL_ERR TM_ERR TM_RNDV_INCOMPLETE"
).split(" ");

function readModel() {
	let text = document.getElementById("model"),
		raw = null;
	try {
		raw = JSON.parse(text.textContent);
	} catch {
		return null;
	}
	text.remove();
	if (!raw || raw.format !== "uroce-trace") return null;
	const list = (name) => (Array.isArray(raw[name]) ? raw[name] : []);
	const model = {
		version: raw.version,
		program: String(raw.program || ""),
		start: raw.start_ns,
		duration: raw.duration || 0,
		events: raw.events || 0,
		dropped: raw.dropped || 0,
		processes: list("processes"),
		qps: list("qps"),
		cqs: list("cqs"),
		srqs: list("srqs"),
		phases: list("phases"),
		advice: list("advice"),
		fills: list("fills").filter((fill) => fill.points && fill.points.length),
		causes: list("causes")
			.filter((cause) => cause)
			.sort((a, b) => a.time - b.time),
		sends: readTable(
			raw.sends,
			SEND_STAGES,
			["opcode", "status"],
			["qp", "index", "flags", "length", "list", "dest", "receive", "psn", "packets", "retries"],
			["wr_id", "addr"],
		),
		receives: readTable(
			raw.receives,
			RECEIVE_STAGES,
			["status"],
			["qp", "srq", "index", "room", "length", "send"],
			["wr_id"],
		),
		packets: readTable(raw.packets, [], [], ["qp", "out", "opcode", "psn", "length", "send", "again"], []),
		cqEvents: readTable(raw.cq_events, [], ["kind"], ["cq"], []),
		retries: readTable(raw.retries, [], ["kind"], ["qp", "send", "count:nth"], []),
	};
	const { sends, receives } = model;
	receives.opcode = { codes: new Int32Array(receives.count), names: ["RECV"] };
	/* Of a life here, without what the other end did with it. */
	sends.last = lastOf(sends, ["posted", "seen", "gathered", "sent", "placed", "acked", "cqe", "polled"]);
	sends.end = lastOf(sends, SEND_STAGES);
	receives.last = receives.end = lastOf(receives, RECEIVE_STAGES);
	for (const table of [sends, receives]) {
		table.reach = table.end.slice();
		for (let i = 1; i < table.count; i++) table.reach[i] = Math.max(table.reach[i], table.reach[i - 1]);
		table.bad = Uint8Array.from(table.status.codes, (code) => code >= 0 && table.status.names[code] !== "SUCCESS");
	}
	model.causeOf = new Map();
	for (const cause of model.causes)
		if (cause.send !== null && cause.send !== undefined && !model.causeOf.has(cause.send))
			model.causeOf.set(cause.send, cause);
	/* The times that are worth showing first. */
	let from = Infinity,
		to = -Infinity;
	for (let i = 0; i < sends.count; i++) {
		from = Math.min(from, sends.time[i]);
		to = Math.max(to, sends.end[i]);
	}
	for (const cause of model.causes) {
		from = Math.min(from, cause.time);
		to = Math.max(to, cause.time);
	}
	model.duration = Math.max(model.duration, Number.isFinite(to) ? to : 0, 1);
	const margin = Math.max((to - from) * 0.03, 50);
	model.active = to >= from ? [Math.max(0, from - margin), to + margin] : [0, model.duration];
	return model;
}

function readTable(table, stages, words, numbers, texts) {
	const rows = (table && table.rows) || [],
		names = (table && table.columns) || [],
		n = rows.length;
	const place = (name) => names.indexOf(name);
	const numeric = (at, add) => {
		const out = new Float64Array(n).fill(NaN);
		for (let i = 0; at >= 0 && i < n; i++)
			if (typeof rows[i][at] === "number") out[i] = rows[i][at] + (add ? add[i] : 0);
		return out;
	};
	const out = { count: n, total: Math.max((table && table.total) || 0, n), time: numeric(place("time")) };
	for (const name of stages) out[name] = numeric(place(name), out.time);
	for (const name of numbers) {
		const [column, as] = name.split(":");
		out[as || column] = numeric(place(column));
	}
	for (const name of words) out[name] = codes(rows, place(name), name === "status");
	for (const name of texts)
		out[name] = rows.map((row) =>
			place(name) < 0 || row[place(name)] === null || row[place(name)] === undefined
				? null
				: String(row[place(name)]),
		);
	return out;
}

/* A column of few different words: a number for each row, -1 for none. */
function codes(rows, at, status) {
	const known = new Map(),
		out = { codes: new Int32Array(rows.length).fill(-1), names: [] };
	for (let i = 0; at >= 0 && i < rows.length; i++) {
		const word = rows[i][at];
		if (word === null || word === undefined) continue;
		if (!known.has(word)) {
			known.set(word, out.names.length);
			out.names.push(status ? statusName(word) : String(word));
		}
		out.codes[i] = known.get(word);
	}
	return out;
}

function statusName(word) {
	return typeof word === "number" ? STATUSES[word] || String(word) : String(word).replace(/^IBV_WC_/, "");
}

function lastOf(table, stages) {
	const out = table.time.slice();
	for (const name of stages) {
		const at = table[name];
		for (let i = 0; i < out.length; i++) if (at[i] > out[i]) out[i] = at[i];
	}
	return out;
}

/* The rows that may touch a span of time: [first, behind the last]. */
function touching(table, from, to) {
	return [lowest(table.count, (i) => table.reach[i] >= from), lowest(table.count, (i) => table.time[i] > to)];
}

/* The first i of 0..n for which it is so, where it stays so behind that. */
function lowest(n, so) {
	let low = 0,
		high = n;
	while (low < high) {
		const middle = (low + high) >> 1;
		if (so(middle)) high = middle;
		else low = middle + 1;
	}
	return low;
}

/* ---- Names ---- */

const M = readModel();

const opcodeAt = (table, i) => (table.opcode.codes[i] < 0 ? say("lostEvent") : table.opcode.names[table.opcode.codes[i]]);
const qpAt = (id) => (Number.isFinite(id) && M.qps[id]) || null;
const processAt = (id) => (Number.isFinite(id) && id !== null && M.processes[id]) || null;
const processName = (id) => (processAt(id) ? `${processAt(id).name} (${processAt(id).pid})` : say("notTraced"));
const qpName = (id) => (qpAt(id) ? "QP " + hex(qpAt(id).qpn) : "QP –");
const numberName = (value, fallback) => (Number.isFinite(value) ? value : fallback);
const isBack = (opcode) => opcode === "RDMA_READ" || opcode.startsWith("ATOMIC");

/* The outcome of a request, as a word. */
function outcomeAt(table, i) {
	if (table.status.codes[i] >= 0) return table.status.names[table.status.codes[i]];
	if (table === M.receives) return say(Number.isFinite(table.taken[i]) ? "filled" : "waiting");
	return say(!Number.isFinite(table.flags[i]) || table.flags[i] & 2 ? "noCompletion" : "unsignaled");
}

/* From posted to polled, or as far as is known; NaN where the beginning is not. */
const tookAt = (table, i) => table.last[i] - table.posted[i];

/* A request is named by one number: a row of `sends`, or behind these of `receives`. */
const tableOf = (item) => (item < M.sends.count ? M.sends : M.receives);
const rowOf = (item) => (item < M.sends.count ? item : item - M.sends.count);
const itemOf = (table, i) => (table === M.sends ? i : M.sends.count + i);
const itemCount = () => M.sends.count + M.receives.count;

function itemTitle(item) {
	const table = tableOf(item),
		i = rowOf(item),
		wr = "wr_id " + (table.wr_id[i] === null ? "–" : table.wr_id[i]);
	return table === M.sends ? say("life.send", { op: opcodeAt(table, i), wr }) : say("life.receive", { wr });
}

/* The process of a request; of an SRQ's receive that nobody took, of the SRQ. */
function processOfItem(item) {
	const table = tableOf(item),
		i = rowOf(item),
		qp = qpAt(table.qp[i]);
	if (qp) return qp.process;
	const srq = table === M.receives && Number.isFinite(table.srq[i]) && M.srqs[table.srq[i]];
	return srq ? srq.process : null;
}

/* ---- What is chosen ---- */

const chosen = { qp: -1, opcode: "", status: "", wr: "", text: "", passes: null, count: 0, followed: -1 };

/* Which requests pass the filter: one byte for each. */
function choose() {
	const passes = new Uint8Array(itemCount()),
		wr = chosen.wr.trim().toLowerCase(),
		text = chosen.text.trim().toLowerCase();
	let passing = 0;
	for (const table of [M.sends, M.receives]) {
		const base = table === M.sends ? 0 : M.sends.count;
		const opcodeFits = table.opcode.names.map((name) => !chosen.opcode || name === chosen.opcode);
		const opcodeHas = table.opcode.names.map((name) => name.toLowerCase().includes(text));
		const statusFits = table.status.names.map(
			(name) =>
				!chosen.status ||
				chosen.status === name ||
				(chosen.status === "ok" && name === "SUCCESS") ||
				(chosen.status === "failed" && name !== "SUCCESS"),
		);
		const statusHas = table.status.names.map((name) => name.toLowerCase().includes(text));
		const qpHas = M.qps.map((qp) =>
			`${qpName(qp.id)} ${processName(qp.process)} ${qp.type}`.toLowerCase().includes(text),
		);
		const openFits = !chosen.status || chosen.status === "open";
		for (let i = 0; i < table.count; i++) {
			const qp = table.qp[i],
				op = table.opcode.codes[i],
				status = table.status.codes[i],
				word = table.wr_id[i];
			if (chosen.qp >= 0 && qp !== chosen.qp && !(table === M.sends && table.dest[i] === chosen.qp)) continue;
			if (op < 0 ? chosen.opcode : !opcodeFits[op]) continue;
			if (status < 0 ? !openFits : !statusFits[status]) continue;
			if (
				wr &&
				!(
					word !== null &&
					(word.toLowerCase().includes(wr) || (/^\d+$/.test(wr) && word.toLowerCase() === hex(wr)))
				)
			)
				continue;
			if (
				text &&
				!(
					(op >= 0 && opcodeHas[op]) ||
					(status >= 0 && statusHas[status]) ||
					qpHas[qp] ||
					(word !== null && word.toLowerCase().includes(text)) ||
					causeHas(table, i, text)
				)
			)
				continue;
			passes[base + i] = 1;
			passing++;
		}
	}
	chosen.passes = passes;
	chosen.count = passing;
}

function causeHas(table, i, text) {
	const cause = table === M.sends && M.causeOf.get(i);
	return cause && `${cause.name} ${cause.outcome} ${told(cause.short)} ${told(cause.what)}`.toLowerCase().includes(text);
}
