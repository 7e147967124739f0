/*
 * The sequence diagram, time from left to right: a line for each process or queue pair, and each request's way between them. Few
 * requests are drawn with all their points, many as plain arrows, and very many as one stroke for each pixel.
 */
/* Up to so many arrows; with points or labels from so many pixels for each on. */
const ARROWS = 1200,
	POINT_ROOM = 28,
	LABEL_ROOM = 44,
	SLOTS = 5;
const CALLOUT_HEIGHT = 66,
	CALLOUT_WIDTH = 264;

const lanes = { byQp: false, list: [], ofQp: [], choice: false, slot: null };

/* Makes the lines: of queue pairs that take part, or of their processes. What belongs to nobody that was traced has the last. */
function makeLanes() {
	const used = new Set(),
		add = (id) => Number.isFinite(id) && used.add(id);
	for (let i = 0; i < M.sends.count; i++) {
		add(M.sends.qp[i]);
		add(M.sends.dest[i]);
	}
	for (let i = 0; i < M.receives.count; i++) add(M.receives.qp[i]);
	for (const cause of M.causes) add(cause.qp === null ? NaN : cause.qp);
	if (!used.size) M.qps.forEach((qp) => used.add(qp.id));
	const ids = [...used].filter((id) => M.qps[id]).sort((a, b) => a - b),
		processes = new Set(ids.map((id) => M.qps[id].process));
	lanes.choice = ids.length !== processes.size && ids.length <= 24;
	if (makeLanes.first === undefined) {
		makeLanes.first = true;
		const inside = ids.some(
			(id) =>
				M.qps[id].peer !== null &&
				M.qps[M.qps[id].peer] &&
				M.qps[M.qps[id].peer].process === M.qps[id].process,
		);
		lanes.byQp = inside && ids.length <= 24;
	}
	lanes.list = [];
	lanes.ofQp = [];
	const known = new Map();
	ids.sort((a, b) => (M.qps[a].process ?? 1e9) - (M.qps[b].process ?? 1e9) || a - b);
	for (const id of ids) {
		const process = M.qps[id].process,
			key = lanes.byQp ? id : process;
		if (!known.has(key)) {
			known.set(key, lanes.list.length);
			lanes.list.push({ process, qps: [] });
		}
		lanes.list[known.get(key)].qps.push(id);
		lanes.ofQp[id] = known.get(key);
	}
	/* Where bars of a line lie, so that they do not cover each other: chosen once, and so the same at every zoom. */
	const ends = lanes.list.map(() => new Float64Array(SLOTS));
	lanes.slot = new Uint8Array(M.sends.count);
	for (let i = 0; i < M.sends.count; i++) {
		const lane = ends[lanes.ofQp[M.sends.qp[i]]];
		if (!lane) continue;
		let best = 0;
		for (let s = 0; s < SLOTS; s++) {
			if (lane[s] <= M.sends.time[i]) {
				best = s;
				break;
			}
			if (lane[s] < lane[best]) best = s;
		}
		lane[best] = M.sends.last[i];
		lanes.slot[i] = best;
	}
}

const laneOf = (qp) => (Number.isFinite(qp) && lanes.ofQp[qp] !== undefined ? lanes.ofQp[qp] : -1);

/* When a message leaves its sender, and where it turns if it comes back. */
function leaves(i) {
	const { sent, gathered, seen, posted, time } = M.sends;
	for (const at of isBack(opcodeAt(M.sends, i)) ? [seen, posted] : [sent, gathered, seen, posted])
		if (Number.isFinite(at[i])) return at[i];
	return time[i];
}

function messages(canvas) {
	const p = picture(canvas, draw, hit);
	p.timed = true;
	let top = 30,
		boxes = [],
		shown = [];

	const gap = () => (lanes.list.length <= 2 ? 150 : lanes.list.length <= 5 ? 96 : lanes.list.length <= 24 ? 64 : 32);
	const outside = 44,
		room = (pixels) => shown.length * pixels <= p.width - gutter();
	const laneY = (lane) => top + outside + lane * gap();
	/* A line's bars lie outside of the picture's arrows where that can be. */
	const barY = (i) => laneY(laneOf(M.sends.qp[i])) + (laneOf(M.sends.qp[i]) === 0 ? -1 : 1) * (10 + lanes.slot[i] * 6);

	function draw() {
		const seen = M.causes.filter((cause) => cause.time >= view.from && cause.time <= view.to);
		/* The room for sentences stays while the picture is moved. */
		top = 26 + (M.causes.length ? CALLOUT_HEIGHT + 8 : 0);
		const height = laneY(Math.max(lanes.list.length - 1, 0)) + outside + 4,
			c = sheet(p, height),
			x = scaleOf(p);
		axis(p, c, height);
		boxes = [];
		if (!lanes.list.length) {
			c.fillStyle = ink.dim;
			c.fillText(say("noRequests"), gutter() + 8, top + 20);
			return;
		}
		const [first, behind] = touching(M.sends, view.from, view.to);
		shown = [];
		let number = 0;
		for (let i = first; i < behind; i++) {
			if (!chosen.passes[i] || M.sends.end[i] < view.from) continue;
			if (number++ <= ARROWS) shown.push(i);
		}
		p.number = number;
		const texts = new Places();
		for (let lane = 0; lane < lanes.list.length; lane++) laneName(c, lane);
		clipped(p, c, () => {
			c.strokeStyle = ink.dim;
			c.lineWidth = 1.5;
			c.beginPath();
			for (let lane = 0; lane < lanes.list.length; lane++) {
				c.moveTo(gutter(), laneY(lane));
				c.lineTo(p.width - RIGHT / 2, laneY(lane));
			}
			c.stroke();
			if (number > ARROWS) strokes(c, x, first, behind);
			else arrows(c, x, texts);
			marks(c, x, texts, number);
			const followed = chosen.followed;
			if (followed >= 0) highlight(c, x, followed, texts);
		});
		if (!number) {
			c.fillStyle = ink.dim;
			c.textAlign = "center";
			c.fillText(
				say(!itemCount() ? "noRequests" : chosen.count ? "noneHere" : "allFiltered"),
				(gutter() + p.width) / 2,
				laneY(0) + Math.min(gap(), 60) / 2,
			);
			c.textAlign = "left";
		}
		callouts(c, x, seen);
		if (narrow()) for (let lane = 0; lane < lanes.list.length; lane++) laneName(c, lane);
		drawSpan(p, c);
	}

	function laneName(c, lane) {
		const of = lanes.list[lane],
			y = laneY(lane),
			who = processAt(of.process),
			name = who ? who.name : say("notTraced");
		const second =
			(who ? `${who.pid}` : "") +
			(lanes.byQp || of.qps.length === 1 ? ` ${qpName(of.qps[0])}` : ` ${of.qps.length} QP`);
		c.fillStyle = ink.ink;
		if (narrow()) {
			const text = shorten(c, `${name} ${second}`, p.width - 30),
				below = lane > 0;
			c.font = `600 11px ${ink.font}`;
			c.fillStyle = ink.card;
			c.globalAlpha = 0.8;
			c.fillRect(4, y + (below ? outside - 13 : -outside - 1), c.measureText(text).width + 6, 14);
			c.globalAlpha = 1;
			c.fillStyle = ink.ink;
			c.fillText(text, 7, y + (below ? outside - 6 : -outside + 6));
		} else {
			c.font = `600 12px ${ink.font}`;
			c.fillText(shorten(c, name, gutter() - 14), 4, y - 8);
			c.font = `11px ${ink.font}`;
			c.fillStyle = ink.dim;
			c.fillText(shorten(c, second, gutter() - 14), 4, y + 8);
		}
		c.font = `12px ${ink.font}`;
	}

	/* Very many: of each pixel the operation that is there most, and how many are in flight. */
	function strokes(c, x, first, behind) {
		const width = Math.ceil(p.width) + 1,
			kinds = M.sends.opcode.names,
			levels = new Map(),
			flying = lanes.list.map(() => new Float32Array(width + 1));
		const pixel = (time) => Math.max(0, Math.min(width - 1, Math.floor(x(time))));
		let most = 1;
		for (let i = first; i < behind; i++) {
			if (!chosen.passes[i] || M.sends.end[i] < view.from) continue;
			const from = laneOf(M.sends.qp[i]),
				to = laneOf(M.sends.dest[i]),
				op = M.sends.opcode.codes[i];
			if (from < 0) continue;
			flying[from][pixel(M.sends.time[i])]++;
			flying[from][Math.min(width, pixel(M.sends.last[i]) + 1)]--;
			if (to < 0 || op < 0) continue;
			const key = (from * 1000 + to) * kinds.length + op;
			let level = levels.get(key);
			if (!level) levels.set(key, (level = new Uint32Array(width)));
			most = Math.max(most, ++level[pixel(leaves(i))]);
		}
		const winner = new Map();
		for (const [key, level] of levels) {
			const way = Math.floor(key / kinds.length),
				from = Math.floor(way / 1000),
				to = way % 1000,
				low = Math.min(from, to) * 1000 + Math.max(from, to);
			let best = winner.get(low);
			if (!best) winner.set(low, (best = { level: new Uint32Array(width), op: new Int16Array(width) }));
			for (let i = 0; i < width; i++)
				if (level[i] > best.level[i]) {
					best.level[i] = level[i];
					best.op[i] = key % kinds.length;
				}
		}
		const inks = kinds.map(opcodeInk);
		for (const [way, best] of winner) {
			const from = Math.floor(way / 1000),
				to = way % 1000,
				y = laneY(from),
				height = from === to ? 30 : laneY(to) - y;
			for (let i = 0; i < width; i++) {
				if (!best.level[i]) continue;
				c.globalAlpha = 0.25 + (0.6 * Math.log1p(best.level[i])) / Math.log1p(most);
				c.fillStyle = inks[best.op[i]];
				c.fillRect(i, y, 1, height);
			}
		}
		c.globalAlpha = 0.55;
		flying.forEach((level, lane) => {
			let now = 0,
				high = 1;
			for (let i = 0; i < width; i++) high = Math.max(high, (now += level[i]));
			now = 0;
			c.fillStyle = ink.dim;
			for (let i = 0; i < width; i++) {
				now += level[i];
				const height = (34 * now) / high;
				c.fillRect(i, lane ? laneY(lane) + 3 : laneY(lane) - 3 - height, 1, height);
			}
		});
		c.globalAlpha = 1;
	}

	function arrows(c, x, texts) {
		const few = room(POINT_ROOM),
			dim = chosen.followed >= 0;
		c.globalAlpha = dim ? 0.45 : 1;
		for (const i of shown) way(c, x, i, few, room(5) ? 1.3 : 0.8);
		if (room(LABEL_ROOM)) for (const i of shown) label(c, x, i, texts);
		c.globalAlpha = 1;
	}

	function way(c, x, i, points, thick) {
		const s = M.sends,
			from = laneOf(s.qp[i]),
			opcode = opcodeAt(s, i),
			bad = s.bad[i],
			colour = bad ? ink.bad : opcodeInk(opcode);
		if (from < 0) return;
		const y = laneY(from),
			xs = x(leaves(i)),
			placed = s.placed[i],
			to = laneOf(s.dest[i]),
			end = to < 0 ? y + (from ? -1 : 1) * gap() * 0.45 : to === from ? y + 34 : laneY(to);
		const begin = x(s.time[i]),
			last = Math.max(x(s.last[i]), begin + 1.5);
		c.fillStyle = c.strokeStyle = colour;
		const before = c.globalAlpha;
		c.globalAlpha = before * 0.5;
		c.fillRect(begin, barY(i) - 2, last - begin, 4);
		c.globalAlpha = before;
		c.lineWidth = thick;
		if (bad && !Number.isFinite(placed)) {
			/* It did not get there. */
			const xc = Number.isFinite(s.cqe[i]) ? x(s.cqe[i]) : xs,
				middle = y + (end - y) * 0.5,
				turn = xs + Math.min((xc - xs) / 2, 40);
			c.setLineDash([4, 3]);
			line(c, xs, y, turn, middle);
			c.setLineDash([]);
			cross(c, turn, middle, 4);
		} else if (isBack(opcode) && Number.isFinite(placed)) {
			const xp = x(placed),
				turn = (xs + xp) / 2;
			c.setLineDash([3, 3]);
			line(c, xs, y, turn, end);
			c.setLineDash([]);
			arrow(c, turn, end, xp, y);
		} else if (Number.isFinite(placed)) {
			arrow(c, xs, y, x(placed), end);
			if (points && Number.isFinite(s.cqe[i])) {
				c.globalAlpha = before * 0.55;
				c.setLineDash([1.5, 3]);
				line(c, x(placed), end, x(s.cqe[i]), y);
				c.setLineDash([]);
				c.globalAlpha = before;
			}
		}
		if (!points) {
			if (bad && Number.isFinite(s.cqe[i])) cross(c, x(s.cqe[i]), y, 4);
			else if (Number.isFinite(placed) && shown.length * 5 < p.width)
				disc(c, x(placed), isBack(opcode) ? y : end, 2);
			return;
		}
		if (Number.isFinite(s.posted[i])) ring(c, x(s.posted[i]), y, 3.2);
		if (Number.isFinite(placed)) disc(c, x(placed), isBack(opcode) ? y : end, 3.2);
		if (Number.isFinite(s.cqe[i])) bad ? cross(c, x(s.cqe[i]), y, 5) : diamond(c, x(s.cqe[i]), y, 4.2);
		if (Number.isFinite(s.polled[i])) square(c, x(s.polled[i]), y, 3);
		if (to >= 0 && Number.isFinite(s.remote_cqe[i])) {
			c.fillStyle = c.strokeStyle = ink["op-recv"];
			diamond(c, x(s.remote_cqe[i]), end, 3.6);
			if (Number.isFinite(s.remote_polled[i])) square(c, x(s.remote_polled[i]), end, 2.6);
		}
	}

	function label(c, x, i, texts) {
		const s = M.sends,
			from = laneOf(s.qp[i]),
			to = laneOf(s.dest[i]);
		if (from < 0 || to < 0 || to === from || (!Number.isFinite(s.placed[i]) && !s.bad[i])) return;
		const xs = x(leaves(i)),
			xe = Number.isFinite(s.placed[i]) ? x(s.placed[i]) : xs,
			text = `${opcodeAt(s, i)} ${s.wr_id[i] ?? ""} · ${count(s.length[i])} B`;
		const width = c.measureText(text).width,
			left = isBack(opcodeAt(s, i)) ? xs + (xe - xs) / 2 + 6 : (xs + xe) / 2 + 6;
		for (const share of [0.5, 0.36, 0.64, 0.22, 0.78]) {
			const y = laneY(from) + (laneY(to) - laneY(from)) * share;
			if (left < gutter() || left + width > p.width || !texts.take(left - 2, y - 8, width + 4, 16)) continue;
			written(c, text, left, y, s.bad[i] ? ink.bad : opcodeInk(opcodeAt(s, i)));
			return;
		}
	}

	/* What happens to lines and requests besides: states, retries, packets, failures among very many. */
	function marks(c, x, texts, number) {
		const { retries, packets, sends } = M,
			inside = (table) => [
				lowest(table.count, (i) => table.time[i] >= view.from),
				lowest(table.count, (i) => table.time[i] > view.to),
			];
		let [first, behind] = inside(packets);
		if (behind - first <= 3000) {
			for (let i = first; i < behind; i++) {
				const lane = laneOf(packets.qp[i]);
				if (lane < 0) continue;
				c.fillStyle = packets.again[i] ? ink.bad : ink.dim;
				c.fillRect(x(packets.time[i]) - 0.5, laneY(lane) + (packets.out[i] ? -6 : 1), 1, 5);
			}
		}
		[first, behind] = inside(retries);
		let lastX = -100;
		for (let i = first; i < behind; i++) {
			const lane = laneOf(retries.qp[i]),
				at = x(retries.time[i]);
			if (lane < 0 || at - lastX < 9) continue;
			lastX = at;
			c.strokeStyle = c.fillStyle = ink.warn;
			again(c, at, laneY(lane), 5);
		}
		if (number > ARROWS) {
			[first, behind] = touching(sends, view.from, view.to);
			lastX = -100;
			c.strokeStyle = ink.bad;
			for (let i = first; i < behind; i++) {
				if (!sends.bad[i] || !chosen.passes[i] || laneOf(sends.qp[i]) < 0) continue;
				const at = x(Number.isFinite(sends.cqe[i]) ? sends.cqe[i] : sends.time[i]);
				if (Math.abs(at - lastX) < 2) continue;
				lastX = at;
				cross(c, at, laneY(laneOf(sends.qp[i])), 5);
			}
		}
		for (const qp of M.qps) {
			const lane = laneOf(qp.id);
			/* Of those that have no room beside each other the last is named. */
			for (const [time, state] of lane < 0 ? [] : [...(qp.states || [])].reverse()) {
				if (time < view.from || time > view.to) continue;
				const at = x(time),
					y = laneY(lane) + (lane ? -10 : 10),
					name = String(state).slice(0, 12),
					width = c.measureText(name).width;
				c.fillStyle = state === "ERR" ? ink.bad : ink.dim;
				c.fillRect(at - 0.5, laneY(lane) - 7, 1, 14);
				c.font = `10.5px ${ink.font}`;
				if (texts.take(at, y - 7, width + 6, 14))
					written(c, name, at + 3, y, state === "ERR" ? ink.bad : ink.dim);
				c.font = `12px ${ink.font}`;
			}
		}
	}

	function highlight(c, x, item, texts) {
		const table = tableOf(item),
			i = rowOf(item);
		if (table === M.receives) {
			const lane = laneOf(table.qp[i]);
			if (lane < 0) return;
			const y = laneY(lane),
				from = x(table.time[i]),
				to = Math.max(x(table.end[i]), from + 2);
			c.fillStyle = c.strokeStyle = ink["op-recv"];
			c.fillRect(from, y - 2.5, to - from, 5);
			ring(c, from, y, 4.5);
			for (const stage of RECEIVE_STAGES)
				if (Number.isFinite(table[stage][i]))
					pointName(c, x(table[stage][i]), y, stage, lane ? 1 : -1, texts);
			if (Number.isFinite(table.send[i])) way(c, x, table.send[i], true, 3);
			return;
		}
		way(c, x, i, true, 3.2);
		const lane = laneOf(table.qp[i]),
			to = laneOf(table.dest[i]);
		if (lane < 0) return;
		c.strokeStyle = ink.ink;
		c.lineWidth = 1.2;
		c.strokeRect(x(table.time[i]) - 1.5, barY(i) - 3.5, Math.max(x(table.last[i]) - x(table.time[i]), 1.5) + 3, 7);
		const side = lane ? 1 : -1,
			back = isBack(opcodeAt(table, i));
		for (const stage of ["posted", "seen", "gathered", ...(back ? ["placed"] : []), "cqe", "polled"])
			if (Number.isFinite(table[stage][i])) pointName(c, x(table[stage][i]), laneY(lane), stage, side, texts);
		for (const stage of ["placed", "remote_cqe", "remote_polled"])
			if (!back && to >= 0 && to !== lane && Number.isFinite(table[stage][i]))
				pointName(c, x(table[stage][i]), laneY(to), stage, to ? 1 : -1, texts);
	}

	/* A point's name, away from the arrows; where there is no room it has none. */
	function pointName(c, x, y, stage, side, texts) {
		const text = say("phase." + stage);
		c.font = `11px ${ink.font}`;
		const width = c.measureText(text).width,
			middle = Math.max(gutter() + width / 2 + 2, Math.min(x, p.width - width / 2 - 4));
		for (const away of [14, 27, 40]) {
			if (x < gutter() || x > p.width || !texts.take(middle - width / 2, y + side * away - 6, width, 12))
				continue;
			c.strokeStyle = ink.dim;
			c.lineWidth = 0.8;
			line(c, x, y, x, y + side * (away - 6));
			c.textAlign = "center";
			written(c, text, middle, y + side * away, ink.ink);
			c.textAlign = "left";
			break;
		}
		c.font = `12px ${ink.font}`;
	}

	/* The causes' sentences, side by side above the lines, each tied to where it happened. Those that find no room are counted. */
	function callouts(c, x, causes) {
		const left = gutter() + 2,
			right = p.width - 4,
			width = Math.min(
				CALLOUT_WIDTH,
				Math.max(
					(right - left + 8) / Math.min(causes.length, Math.floor((right - left) / 210) || 1) - 8,
					150,
				),
				right - left,
			);
		let starts = [],
			taken = [];
		for (const cause of causes.slice(0, 400)) {
			const all = [...taken, cause],
				tried = [];
			all.forEach(
				(one, n) => (tried[n] = Math.max(n ? tried[n - 1] + width + 8 : left, x(one.time) - width / 3)),
			);
			for (let n = all.length - 1, edge = right; n >= 0; n--) {
				tried[n] = Math.min(tried[n], edge - width);
				edge = tried[n] - 8;
			}
			if (tried[0] < left - 1 || all.some((one, n) => Math.abs(tried[n] + width / 2 - x(one.time)) > width * 1.2))
				continue;
			starts = tried;
			taken = all;
		}
		taken.forEach((cause, n) => {
			const lane = laneOf(cause.qp),
				at = Math.max(x(cause.time), left),
				box = { left: starts[n], top: 22, width, height: CALLOUT_HEIGHT, cause };
			const foot = Math.max(box.left + 8, Math.min(box.left + width - 8, at)),
				y = lane < 0 ? box.top + box.height + 14 : laneY(lane);
			boxes.push(box);
			c.strokeStyle = ink.bad;
			c.lineWidth = 1;
			c.beginPath();
			c.moveTo(foot, box.top + box.height);
			c.lineTo(at, box.top + box.height + 10);
			c.lineTo(at, y);
			c.stroke();
			if (lane < 0) cross(c, at, y, 5);
			c.lineWidth = 1;
			c.fillStyle = ink["bad-ground"];
			c.beginPath();
			c.roundRect(box.left, box.top, box.width, box.height, 6);
			c.fill();
			c.stroke();
			c.font = `600 11px ${ink.font}`;
			c.fillStyle = ink.bad;
			c.fillText(shorten(c, causeTitle(cause), width - 14), box.left + 7, box.top + 11);
			c.font = `11px ${ink.font}`;
			c.fillStyle = ink.ink;
			wrap(c, told(cause.what) || told(cause.short), width - 14, 3).forEach((text, row) =>
				c.fillText(shorten(c, text, width - 14), box.left + 7, box.top + 26 + row * 14),
			);
		});
		if (causes.length > taken.length) {
			const text = say("more", { n: String(causes.length - taken.length) });
			c.font = `600 11px ${ink.font}`;
			c.textAlign = "right";
			/* Over the axis, whose last label is there too. */
			c.fillStyle = ink.card;
			c.fillRect(right - c.measureText(text).width - 8, 2, c.measureText(text).width + 12, 16);
			written(c, text, right, 10, ink.bad);
			c.textAlign = "left";
		}
		c.font = `12px ${ink.font}`;
	}

	/* The request whose way, bar or points are nearest; or a cause. */
	function hit(px, py, click) {
		const box = boxes.find((b) => px >= b.left && px <= b.left + b.width && py >= b.top && py <= b.top + b.height);
		if (box) {
			if (click) showCause(box.cause);
			return `${causeTitle(box.cause)}\n${told(box.cause.what) || told(box.cause.short)}`;
		}
		if (!lanes.list.length || px < gutter()) return "";
		const x = scaleOf(p),
			s = M.sends;
		let best = -1,
			least = 14;
		const near = (d, i) => {
			if (d < least) {
				least = d;
				best = i;
			}
		};
		const look = (i) => {
			const from = laneOf(s.qp[i]),
				to = laneOf(s.dest[i]);
			if (from < 0) return;
			const y = laneY(from),
				end = to < 0 || to === from ? y + 30 : laneY(to),
				xs = x(leaves(i)),
				xe = Number.isFinite(s.placed[i]) ? x(s.placed[i]) : Number.isFinite(s.cqe[i]) ? x(s.cqe[i]) : xs;
			if (isBack(opcodeAt(s, i))) {
				near(apart(px, py, xs, y, (xs + xe) / 2, end), i);
				near(apart(px, py, (xs + xe) / 2, end, xe, y), i);
			} else {
				near(apart(px, py, xs, y, xe, end), i);
			}
			near(apart(px, py, x(s.time[i]), barY(i), x(s.last[i]), barY(i)), i);
			for (const stage of ["posted", "cqe", "polled"])
				if (Number.isFinite(s[stage][i])) near(Math.hypot(px - x(s[stage][i]), py - y) * 0.9, i);
		};
		if (p.number <= ARROWS) {
			shown.forEach(look);
		} else {
			const [first, behind] = touching(s, timeAt(p, px - 16), timeAt(p, px + 16));
			if (!click && behind - first > 4000) return "";
			for (let i = first; i < behind; i++) if (chosen.passes[i]) look(i);
		}
		if (click) {
			follow(best < 0 ? -1 : itemOf(s, best));
			return "";
		}
		return best < 0 ? "" : itemTip(itemOf(s, best));
	}
	return p;
}

const causeTitle = (cause) => [cause.outcome, cause.name].filter(Boolean).join(" · ");

function itemTip(item) {
	const table = tableOf(item),
		i = rowOf(item),
		qp = qpAt(table.qp[i]);
	return `${itemTitle(item)}, ${say("life.size", { n: count(table.length[i]) })}\n${qp ? say("life.of", { qp: qpName(qp.id), process: processName(qp.process) }) : ""}\n${outcomeAt(table, i)}, ${lasting(tookAt(table, i))}`;
}

/* ---- Shapes ---- */

function line(c, x1, y1, x2, y2) {
	c.beginPath();
	c.moveTo(x1, y1);
	c.lineTo(x2, y2);
	c.stroke();
}

function arrow(c, x1, y1, x2, y2) {
	line(c, x1, y1, x2, y2);
	const angle = Math.atan2(y2 - y1, x2 - x1),
		size = 5 + c.lineWidth;
	c.beginPath();
	c.moveTo(x2, y2);
	c.lineTo(x2 - size * Math.cos(angle - 0.38), y2 - size * Math.sin(angle - 0.38));
	c.lineTo(x2 - size * Math.cos(angle + 0.38), y2 - size * Math.sin(angle + 0.38));
	c.fill();
}

function disc(c, x, y, r) {
	c.beginPath();
	c.arc(x, y, r, 0, 7);
	c.fill();
}

function ring(c, x, y, r) {
	const fill = c.fillStyle;
	c.lineWidth = 1.6;
	c.beginPath();
	c.arc(x, y, r, 0, 7);
	c.fillStyle = ink.card;
	c.fill();
	c.stroke();
	c.fillStyle = fill;
}

function diamond(c, x, y, r) {
	c.beginPath();
	c.moveTo(x - r, y);
	c.lineTo(x, y - r);
	c.lineTo(x + r, y);
	c.lineTo(x, y + r);
	c.fill();
}

const square = (c, x, y, r) => c.fillRect(x - r, y - r, 2 * r, 2 * r);

function cross(c, x, y, r) {
	c.lineWidth = 2.2;
	line(c, x - r, y - r, x + r, y + r);
	line(c, x - r, y + r, x + r, y - r);
}

/* A turning arrow. */
function again(c, x, y, r) {
	c.lineWidth = 1.8;
	c.beginPath();
	c.arc(x, y, r, 0.6, 5.6);
	c.stroke();
	c.beginPath();
	c.moveTo(x + r + 2, y - 5);
	c.lineTo(x + r + 2, y + 1);
	c.lineTo(x + r - 4, y - 1);
	c.fill();
}

/* Text that can be read over lines. */
function written(c, text, x, y, colour) {
	c.strokeStyle = ink.card;
	c.lineWidth = 3.5;
	c.lineJoin = "round";
	c.strokeText(text, x, y);
	c.fillStyle = colour;
	c.fillText(text, x, y);
}

/* Lines of a text; the last is cut. Chinese may break anywhere. */
function wrap(c, text, width, most) {
	const words = text.match(/[\u2e80-\uffef]|[^\s\u2e80-\uffef]+\s*|\s+/g) || [],
		out = [""];
	for (let n = 0; n < words.length; n++) {
		const longer = out[out.length - 1] + words[n];
		if (c.measureText(longer.trimEnd()).width <= width || !out[out.length - 1]) {
			out[out.length - 1] = longer;
		} else if (out.length === most) {
			out[most - 1] = shorten(c, out[most - 1] + words.slice(n).join(""), width);
			break;
		} else {
			out.push(words[n]);
		}
	}
	return out;
}

function apart(px, py, x1, y1, x2, y2) {
	const dx = x2 - x1,
		dy = y2 - y1,
		length = dx * dx + dy * dy,
		share = length ? Math.max(0, Math.min(1, ((px - x1) * dx + (py - y1) * dy) / length)) : 0;
	return Math.hypot(px - x1 - share * dx, py - y1 - share * dy);
}
