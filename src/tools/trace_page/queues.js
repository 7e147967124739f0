/* The filling of the queues: a row for each, in the order of processes and queue pairs. */
const QUEUE_ROW = 56,
	QUEUES_FIRST = 12,
	QUEUES_MOST = 500; /* what a picture can be tall */

const queueRows = { list: [], all: false, more: 0 };

function fillName(fill) {
	const owner = fill.queue === "cq" ? M.cqs[fill.owner] : fill.queue === "srq" ? M.srqs[fill.owner] : M.qps[fill.owner];
	if (!owner) return fill.queue.toUpperCase();
	return fill.queue === "cq"
		? `CQ ${owner.cqn}`
		: fill.queue === "srq"
			? `SRQ ${owner.srqn}`
			: `${fill.queue.toUpperCase()} ${hex(owner.qpn)}`;
}

function fillProcess(fill) {
	const owner = fill.queue === "cq" ? M.cqs[fill.owner] : fill.queue === "srq" ? M.srqs[fill.owner] : M.qps[fill.owner];
	return owner ? owner.process : null;
}

/* The rows that are shown: queues that held something; with a filter by queue pair, its own and its peer's. Of very many, the busiest. */
function chooseQueues() {
	const qp = qpAt(chosen.qp),
		peer = qp && qpAt(qp.peer ?? NaN),
		wanted = [qp, peer].filter(Boolean);
	const concerns = (fill) =>
		!qp ||
		wanted.some((q) =>
			fill.queue === "cq"
				? q.send_cq === fill.owner || q.recv_cq === fill.owner
				: fill.queue === "srq"
					? q.srq === fill.owner
					: q.id === fill.owner,
		);
	let list = M.fills.filter((fill) => wasUsed(fill) && concerns(fill));
	const most = queueRows.all ? QUEUES_MOST : QUEUES_FIRST;
	queueRows.more = Math.min(list.length, QUEUES_MOST);
	if (list.length > most) {
		const best = new Set([...list].sort((a, b) => b.points.length - a.points.length).slice(0, most));
		list = list.filter((fill) => best.has(fill));
	}
	const order = { sq: 0, rq: 1, srq: 2, cq: 3 };
	list.sort(
		(a, b) => (fillProcess(a) ?? 1e9) - (fillProcess(b) ?? 1e9) || order[a.queue] - order[b.queue] || a.owner - b.owner,
	);
	queueRows.list = list;
}

/* It held something, or a message waited that it should. */
const wasUsed = (fill) => fill.max > 0 || fill.waited > 0;

const low = (point) => point[1];
const high = (point) => (point.length > 2 ? point[2] : point[1]);

/* For how long a queue was so, from one of its points until it changes for the last time, or until the trace ends. */
function heldFor(fill, so, from, end) {
	let time = 0;
	const points = fill.points;
	for (let i = from; i < points.length; i++)
		if (so(points[i])) time += (i + 1 < points.length ? points[i + 1][0] : end) - points[i][0];
	return time;
}

/* What is before the first receive and behind the last is told apart. */
const dryTime = (fill) => heldFor(fill, (point) => high(point) === 0, 1, fill.points[fill.points.length - 1][0]);
/* That a receive queue is full is as it should be. */
const fullTime = (fill) =>
	fill.limit && !receiveQueue(fill) ? heldFor(fill, (point) => low(point) >= fill.limit, 0, M.duration) : 0;
const receiveQueue = (fill) => fill.queue === "rq" || fill.queue === "srq";

function queues(canvas) {
	const p = picture(canvas, draw, hit);
	p.timed = true;
	let starts = [];

	/* Where the followed request was in a queue: a span for each. */
	function stay(fill) {
		const item = chosen.followed,
			out = [];
		if (item < 0) return out;
		const table = tableOf(item),
			i = rowOf(item),
			s = M.sends,
			r = M.receives;
		const send = table === s ? i : r.send[i],
			receive = table === r ? i : s.receive[i];
		const add = (from, to) => Number.isFinite(from) && out.push([from, Number.isFinite(to) ? to : M.duration]);
		if (Number.isFinite(send)) {
			const qp = qpAt(s.qp[send]);
			if (fill.queue === "sq" && fill.owner === s.qp[send])
				add(s.posted[send], Number.isFinite(s.polled[send]) ? s.polled[send] : s.last[send]);
			if (fill.queue === "cq" && qp && qp.send_cq === fill.owner) add(s.cqe[send], s.polled[send]);
			const there = qpAt(s.dest[send]);
			if (!Number.isFinite(receive) && fill.queue === "cq" && there && there.recv_cq === fill.owner)
				add(s.remote_cqe[send], s.remote_polled[send]);
		}
		if (Number.isFinite(receive) && receive < r.count) {
			const qp = qpAt(r.qp[receive]);
			if (
				(fill.queue === "rq" && !Number.isFinite(r.srq[receive]) && fill.owner === r.qp[receive]) ||
				(fill.queue === "srq" && fill.owner === r.srq[receive])
			)
				add(r.posted[receive], r.taken[receive]);
			if (fill.queue === "cq" && qp && qp.recv_cq === fill.owner) add(r.cqe[receive], r.polled[receive]);
		}
		return out;
	}

	function draw() {
		starts = [];
		let y = 24,
			process;
		for (const fill of queueRows.list) {
			if (process !== fillProcess(fill)) y += 22;
			process = fillProcess(fill);
			starts.push(y);
			y += QUEUE_ROW;
		}
		const c = sheet(p, Math.max(y + 4, 60)),
			x = scaleOf(p);
		axis(p, c, y);
		if (!queueRows.list.length) {
			c.fillStyle = ink.dim;
			c.fillText(say("queuesNone"), gutter() + 8, 40);
		}
		process = undefined;
		queueRows.list.forEach((fill, n) => {
			if (process !== fillProcess(fill)) {
				process = fillProcess(fill);
				c.font = `600 12px ${ink.font}`;
				c.fillStyle = ink.card;
				c.fillRect(0, starts[n] - 21, c.measureText(processName(process)).width + 12, 18);
				c.fillStyle = ink.ink;
				c.fillText(shorten(c, processName(process), p.width - 20), 4, starts[n] - 12);
			}
			row(c, x, fill, starts[n]);
		});
		drawSpan(p, c);
	}

	function row(c, x, fill, top) {
		const colour = ink[fill.queue],
			base = top + QUEUE_ROW - 8,
			height = QUEUE_ROW - 22,
			scale = fill.limit && fill.limit <= fill.max * 3 ? fill.limit : fill.max * 1.25 || 1;
		const level = (n) => base - (Math.min(n, scale * 1.05) / scale) * height,
			points = fill.points;
		const first = Math.max(0, lowest(points.length, (i) => points[i][0] > view.from) - 1),
			behind = Math.min(points.length, lowest(points.length, (i) => points[i][0] > view.to) + 1);
		clipped(p, c, () => {
			c.fillStyle = ink.accent;
			c.globalAlpha = 0.22;
			for (const [from, to] of stay(fill))
				c.fillRect(x(from), top + 4, Math.max(x(to) - x(from), 2), QUEUE_ROW - 8);
			c.globalAlpha = 1;
			c.strokeStyle = colour;
			c.lineWidth = 1.4;
			/* The surface up to the highest, and where they differ the way from the lowest, as columns of pixels. */
			const outline = new Path2D(),
				surface = new Path2D(),
				band = new Path2D();
			let lastX = -1,
				most = 0,
				least = Infinity,
				y = base,
				end = gutter();
			surface.moveTo(gutter(), base);
			for (let i = first; i < behind; i++) {
				const at = Math.max(x(points[i][0]), gutter() - 2),
					next =
						i + 1 < points.length
							? Math.min(x(points[i + 1][0]), p.width + 2)
							: Math.min(x(Math.max(M.duration, points[i][0])), p.width + 2);
				const to = level(high(points[i]));
				if (i === first) {
					outline.moveTo(at, to);
					surface.lineTo(at, base);
				} else {
					outline.lineTo(at, y);
					outline.lineTo(at, to);
				}
				surface.lineTo(at, y);
				surface.lineTo(at, to);
				if (high(points[i]) !== low(points[i]))
					band.rect(at, to, Math.max(next - at, 1), level(low(points[i])) - to);
				y = to;
				end = next;
				outline.lineTo(next, to);
				surface.lineTo(next, to);
			}
			surface.lineTo(end, base);
			c.fillStyle = colour;
			c.globalAlpha = 0.2;
			c.fill(surface);
			c.globalAlpha = 0.35;
			c.fill(band);
			c.globalAlpha = 1;
			c.stroke(outline);
			for (let i = first; i < behind; i++) {
				const full = !receiveQueue(fill) && fill.limit && low(points[i]) >= fill.limit,
					dry = receiveQueue(fill) && high(points[i]) === 0;
				if (!full && !dry) continue;
				c.fillStyle = ink.warn;
				c.fillRect(
					x(points[i][0]),
					full ? level(fill.limit) - 2 : base - 1,
					Math.max(x(i + 1 < points.length ? points[i + 1][0] : M.duration) - x(points[i][0]), 1),
					4,
				);
			}
			c.strokeStyle = ink.line;
			line(c, gutter(), base + 0.5, p.width, base + 0.5);
			if (fill.limit && fill.limit <= scale) {
				c.strokeStyle = ink.dim;
				c.globalAlpha = 0.8;
				c.setLineDash([6, 4]);
				line(
					c,
					gutter(),
					Math.round(level(fill.limit)) + 0.5,
					p.width,
					Math.round(level(fill.limit)) + 0.5,
				);
			}
			c.globalAlpha = 0.9;
			c.strokeStyle = ink.dim;
			c.setLineDash([1, 3]);
			line(c, gutter(), Math.round(level(fill.max)) + 0.5, p.width, Math.round(level(fill.max)) + 0.5);
			c.setLineDash([]);
			c.globalAlpha = 1;
			if (fill.queue === "cq") events(c, x, fill.owner, base);
		});
		const note = say("highOf", { max: count(fill.max), limit: fill.limit ? count(fill.limit) : "–" });
		c.fillStyle = colour;
		c.font = `600 12px ${ink.font}`;
		if (narrow()) {
			const name = fillName(fill),
				width = c.measureText(name).width;
			c.globalAlpha = 0.85;
			c.fillStyle = ink.card;
			c.font = `11px ${ink.font}`;
			c.fillRect(6, top - 1, width + c.measureText(note).width + 16, 14);
			c.globalAlpha = 1;
			c.font = `600 12px ${ink.font}`;
			c.fillStyle = colour;
			c.fillText(name, 8, top + 6);
			c.fillStyle = ink.dim;
			c.font = `11px ${ink.font}`;
			c.fillText(note, 14 + width, top + 6);
		} else {
			c.fillText(fillName(fill), 4, top + 20);
			c.font = `11px ${ink.font}`;
			c.fillStyle = ink.dim;
			c.fillText(shorten(c, note, gutter() - 12), 4, top + 36);
		}
	}

	function events(c, x, cq, base) {
		const e = M.cqEvents,
			first = lowest(e.count, (i) => e.time[i] >= view.from),
			behind = lowest(e.count, (i) => e.time[i] > view.to);
		if (behind - first > 2000) return;
		let lastX = -10;
		c.fillStyle = c.strokeStyle = ink.ink;
		for (let i = first; i < behind; i++) {
			const at = x(e.time[i]),
				kind = e.kind.names[e.kind.codes[i]],
				y = base - 4;
			if (e.cq[i] !== cq || at - lastX < 5) continue;
			lastX = at;
			c.lineWidth = 1.2;
			if (kind === "fired") {
				triangle(c, at, y, -4);
				c.fill();
			} else if (kind === "awoke") {
				disc(c, at, y, 3);
			} else if (kind === "empty") {
				disc(c, at, y, 1.2);
			} else {
				triangle(c, at, y, 4);
				c.stroke();
			}
		}
	}

	/* What the queue holds there; a click follows the request whose coming or going is nearest. */
	function hit(px, py, click) {
		const n = starts.findIndex((y) => py >= y && py < y + QUEUE_ROW),
			fill = queueRows.list[n];
		if (!fill || px < gutter()) {
			if (click) follow(-1);
			return "";
		}
		const time = timeAt(p, px);
		if (click) {
			follow(nearest(fill, time, timeAt(p, px + 40) - time));
			return "";
		}
		const place = lowest(fill.points.length, (i) => fill.points[i][0] > time) - 1,
			point = fill.points[place];
		const level = point
			? high(point) === low(point)
				? count(low(point))
				: `${count(low(point))}–${count(high(point))}`
			: "0";
		return `${fillName(fill)}: ${level} / ${fill.limit ? count(fill.limit) : "–"}\n${moment(time)}`;
	}

	function nearest(fill, time, within) {
		let best = -1,
			least = within;
		const near = (table, i, ...moments) => {
			for (const at of moments)
				if (Math.abs(at - time) < least) {
					least = Math.abs(at - time);
					best = itemOf(table, i);
				}
		};
		const around = (table, each) => {
			const [first, behind] = touching(table, time - within, time + within);
			for (let i = first; i < behind; i++) if (chosen.passes[itemOf(table, i)]) each(i);
		};
		const { sends: s, receives: r } = M;
		around(s, (i) => {
			const qp = qpAt(s.qp[i]);
			if (fill.queue === "sq" && s.qp[i] === fill.owner) near(s, i, s.posted[i], s.polled[i]);
			if (fill.queue === "cq" && qp && qp.send_cq === fill.owner) near(s, i, s.cqe[i], s.polled[i]);
		});
		around(r, (i) => {
			const qp = qpAt(r.qp[i]),
				shared = Number.isFinite(r.srq[i]);
			if (
				(fill.queue === "rq" && !shared && r.qp[i] === fill.owner) ||
				(fill.queue === "srq" && r.srq[i] === fill.owner)
			)
				near(r, i, r.posted[i], r.taken[i]);
			if (fill.queue === "cq" && qp && qp.recv_cq === fill.owner) near(r, i, r.cqe[i], r.polled[i]);
		});
		return best;
	}
	return p;
}

function triangle(c, x, y, r) {
	c.beginPath();
	c.moveTo(x - 4, y - r * 0.8);
	c.lineTo(x + 4, y - r * 0.8);
	c.lineTo(x, y + r);
	c.closePath();
}

/* A queue's use in words. A receive queue that is empty at the end may be so because nothing more is to come. */
function queueSentence(fill) {
	const dry = dryTime(fill),
		full = fullTime(fill),
		last = fill.points[fill.points.length - 1],
		seen = [];
	if (full) seen.push(say("fullFor", { x: lasting(full) }));
	else if (!receiveQueue(fill) && fill.limit && fill.max >= fill.limit) seen.push(say("fullAtTimes"));
	if (receiveQueue(fill) && !fill.max) {
		seen.push(say("dryAlways"));
	} else if (receiveQueue(fill)) {
		if (high(fill.points[0]) === 0 && fill.waited) seen.push(say("dryUntil", { x: moment(fill.points[1][0]) }));
		if (dry) seen.push(say("dryFor", { x: lasting(dry) }));
		if (high(last) === 0) seen.push(say("dryFrom", { x: moment(last[0]) }));
	}
	if (fill.waited) seen.push(say("waited", { x: lasting(fill.waited) }));
	return say("fillingText", {
		name: fillName(fill),
		process: processName(fillProcess(fill)),
		limit: fill.limit ? count(fill.limit) : "–",
		max: count(fill.max),
		share: seen.join(say("comma")) || say(receiveQueue(fill) ? "neverDry" : "neverFull"),
	});
}
