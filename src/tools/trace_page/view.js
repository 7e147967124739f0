/*
 * The span of time that all pictures show, and how it is moved: by wheel, fingers, drag, keys and buttons. A picture registers itself
 * with picture(); what changes calls redraw(), and all are drawn once in the next frame.
 */
const view = { from: 0, to: 1 };
const LEAST_SPAN = 20;
const pictures = [];
const narrow = () => document.documentElement.clientWidth <= 600;
const gutter = () => (narrow() ? 6 : 134);
const RIGHT = 10;

let ink = {};
let asked = false;

/* The colours of the style sheet. */
function mix() {
	const style = getComputedStyle(document.documentElement);
	ink = {};
	for (const name of (
		"ground card ink dim line faint accent bad bad-ground warn good op-send op-imm op-inv op-write op-writeimm op-read op-atomic op-recv op-other " +
		"p0 p1 p2 p3 p4 p5 sq rq cq srq"
	).split(" "))
		ink[name] = style.getPropertyValue("--" + name).trim();
	ink.font = getComputedStyle(document.body).fontFamily;
}

const OPCODE_INK = new Map(
	Object.entries({
		SEND: "op-send",
		SEND_WITH_IMM: "op-imm",
		SEND_WITH_INV: "op-inv",
		RDMA_WRITE: "op-write",
		RDMA_WRITE_WITH_IMM: "op-writeimm",
		RDMA_READ: "op-read",
		ATOMIC_CMP_AND_SWP: "op-atomic",
		ATOMIC_FETCH_AND_ADD: "op-atomic",
		RECV: "op-recv",
	}),
);
const opcodeVariable = (opcode) => OPCODE_INK.get(opcode) || "op-other";
const opcodeInk = (opcode) => ink[opcodeVariable(opcode)];

function picture(canvas, draw, hit) {
	const p = { canvas, draw, hit, width: 0, height: 0, context: canvas.getContext("2d") };
	pictures.push(p);
	return p;
}

function redraw() {
	if (asked) return;
	asked = true;
	requestAnimationFrame(() => {
		asked = false;
		for (const p of pictures) p.draw(p);
		drawn();
	});
}

/* Makes a picture of so many pixels, whatever the screen's own are, and clears it. */
function sheet(p, height) {
	/* A browser bears some 32,000 pixels of height. */
	const scale = height > 15000 ? 1 : Math.min(window.devicePixelRatio || 1, 2),
		width = Math.max(p.canvas.parentElement.clientWidth - inset(p.canvas.parentElement), 120);
	const w = Math.round(width * scale),
		h = Math.round(height * scale);
	if (p.canvas.width !== w || p.canvas.height !== h) {
		p.canvas.width = w;
		p.canvas.height = h;
		p.canvas.style.height = height + "px";
	}
	p.width = width;
	p.height = height;
	const c = p.context;
	c.setTransform(scale, 0, 0, scale, 0, 0);
	c.globalAlpha = 1;
	c.setLineDash([]);
	c.clearRect(0, 0, width, height);
	c.font = `12px ${ink.font}`;
	c.textBaseline = "middle";
	c.textAlign = "left";
	return c;
}

function inset(element) {
	const style = getComputedStyle(element);
	return parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
}

/* ---- Time ---- */

/* From a moment to a place in a picture. */
function scaleOf(p) {
	const left = gutter(),
		by = (p.width - left - RIGHT) / (view.to - view.from),
		from = view.from;
	return (time) => left + (time - from) * by;
}

const timeAt = (p, x) => view.from + ((x - gutter()) * (view.to - view.from)) / (p.width - gutter() - RIGHT);

function look(from, to) {
	let span = Math.max(to - from, LEAST_SPAN);
	const edge = M.duration * 0.02 + 100;
	span = Math.min(span, M.duration + 2 * edge);
	const middle = (from + to) / 2;
	view.from = Math.min(Math.max(middle - span / 2, -edge), M.duration + edge - span);
	view.to = view.from + span;
	redraw();
}

function zoomBy(factor, at = (view.from + view.to) / 2) {
	const span = Math.max((view.to - view.from) * factor, LEAST_SPAN),
		share = (at - view.from) / (view.to - view.from);
	look(at - span * share, at + span * (1 - share));
}

const moveBy = (share) => look(view.from + (view.to - view.from) * share, view.to + (view.to - view.from) * share);

/* So that a span is seen well, without leaving what is seen already. */
function bring(from, to) {
	const span = view.to - view.from,
		margin = span * 0.05;
	if (from >= view.from + margin && to <= view.to - margin && to - from > span / 400) return;
	const wanted = to - from > span || to - from < span / 400 ? (to - from) * 6 + 100 : span,
		middle = (from + to) / 2;
	look(middle - wanted / 2, middle + wanted / 2);
}

/* Round moments to label, about so many pixels apart. Deep in a long trace they are counted from a base, which is named apart. */
function ticks(p) {
	const span = view.to - view.from,
		raw = (span * 96) / Math.max(p.width - gutter() - RIGHT, 60),
		power = 10 ** Math.floor(Math.log10(raw));
	const step = Math.max(1, [1, 2, 5, 10].find((n) => n * power >= raw) * power),
		first = Math.ceil(view.from / step) * step;
	const large = 10 ** Math.ceil(Math.log10(span) + 0.3),
		base = Math.max(Math.abs(view.from), Math.abs(view.to)) > span * 30 ? Math.floor(view.from / large) * large : 0;
	const [size, unit] = unitOf(Math.max(Math.abs(view.from - base), Math.abs(view.to - base)) || 1);
	const digits = Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9)),
		out = [];
	for (let time = first; time <= view.to; time += step)
		out.push({ time, label: (base ? "+" : "") + ((time - base) / size).toFixed(digits) + " " + unit });
	return { list: out, base };
}

/* The axis at the top of a picture, and its lines down to the bottom. */
function axis(p, c, bottom) {
	const x = scaleOf(p),
		{ list, base } = ticks(p);
	c.strokeStyle = ink.line;
	c.fillStyle = ink.dim;
	c.lineWidth = 1;
	c.font = `11px ${ink.font}`;
	c.textAlign = "center";
	c.beginPath();
	for (const tick of list) {
		const at = Math.round(x(tick.time)) + 0.5,
			half = c.measureText(tick.label).width / 2;
		if (at < gutter()) continue;
		c.moveTo(at, 18);
		c.lineTo(at, bottom);
		if (at - half > gutter() + (base && narrow() ? 96 : 0) && at + half < p.width) c.fillText(tick.label, at, 9);
	}
	c.globalAlpha = 0.7;
	c.stroke();
	c.globalAlpha = 1;
	c.textAlign = "left";
	if (base) c.fillText(moment(base), 4, 9);
	c.font = `12px ${ink.font}`;
}

/* Keeps drawing to the part behind the gutter. */
function clipped(p, c, draw) {
	c.save();
	c.beginPath();
	c.rect(gutter(), 0, p.width - gutter(), p.height);
	c.clip();
	draw();
	c.restore();
}

/* Places that are taken, so that texts do not lie on each other. */
class Places {
	constructor() {
		this.taken = [];
	}
	take(left, top, width, height) {
		for (const [l, t, w, h] of this.taken)
			if (left < l + w && l < left + width && top < t + h && t < top + height) return false;
		this.taken.push([left, top, width, height]);
		return true;
	}
}

function shorten(c, text, width) {
	if (c.measureText(text).width <= width) return text;
	let n = lowest(text.length, (i) => c.measureText(text.slice(0, i + 1) + "…").width > width);
	return text.slice(0, n) + "…";
}

/* ---- Hands ---- */

/* Whether the wheel alone zooms: after a click into a picture, until the focus leaves it. */
let wheelIsOurs = false;

function handle(p) {
	const canvas = p.canvas,
		cursors = document.querySelectorAll(".cursor"),
		touches = new Map();
	let start = null,
		pinch = null,
		moved = false;
	const at = (event) => {
		const box = canvas.getBoundingClientRect();
		return [event.clientX - box.left, event.clientY - box.top];
	};
	canvas.addEventListener(
		"wheel",
		(event) => {
			const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
			if (!event.ctrlKey && !event.metaKey && !sideways && !wheelIsOurs) return;
			event.preventDefault();
			const by = (event.deltaMode === 1 ? 16 : 1) * (sideways ? event.deltaX || event.deltaY : event.deltaY);
			if (sideways) moveBy(by / 800);
			else
				zoomBy(
					Math.exp(
						Math.max(-300, Math.min(300, by)) *
							(event.ctrlKey && Math.abs(by) < 50 ? 0.012 : 0.0022),
					),
					p.timed ? timeAt(p, at(event)[0]) : undefined,
				);
		},
		{ passive: false },
	);
	canvas.addEventListener("pointerdown", (event) => {
		if (event.button) return;
		touches.set(event.pointerId, at(event));
		moved = touches.size > 1;
		start = { at: at(event), from: view.from, to: view.to, span: event.shiftKey && p.timed };
		pinch = null;
		if (event.pointerType === "mouse") {
			wheelIsOurs = true;
			canvas.setPointerCapture(event.pointerId);
		}
	});
	canvas.addEventListener("pointermove", (event) => {
		const [x, y] = at(event);
		if (!touches.has(event.pointerId)) {
			hover(p, x, y, event);
			return;
		}
		touches.set(event.pointerId, [x, y]);
		const points = [...touches.values()];
		if (points.length === 2) {
			const middle = (points[0][0] + points[1][0]) / 2,
				apart = Math.max(Math.abs(points[0][0] - points[1][0]), 20);
			if (!pinch) pinch = { time: timeAt(p, middle), apart, span: view.to - view.from };
			const span = (pinch.span * pinch.apart) / apart,
				share = (middle - gutter()) / (p.width - gutter() - RIGHT);
			look(pinch.time - span * share, pinch.time + span * (1 - share));
			moved = true;
			return;
		}
		if (!moved && Math.hypot(x - start.at[0], y - start.at[1]) < 5) return;
		if (!moved && event.pointerType !== "mouse") canvas.setPointerCapture(event.pointerId);
		moved = true;
		tip();
		if (start.span) {
			chosenSpan = [timeAt(p, start.at[0]), timeAt(p, x)].sort((a, b) => a - b);
			redraw();
			return;
		}
		canvas.classList.add("dragging");
		const by = ((start.at[0] - x) * (start.to - start.from)) / (p.width - gutter() - RIGHT);
		look(start.from + by, start.to + by);
	});
	const release = (event) => {
		if (!touches.delete(event.pointerId)) return;
		canvas.classList.remove("dragging");
		pinch = null;
		if (chosenSpan) {
			const [from, to] = chosenSpan;
			chosenSpan = null;
			look(from, to);
		} else if (event.type === "pointerup" && !moved) {
			p.hit(...at(event), true);
		}
		/* The finger that stays goes on from here. */
		for (const point of touches.values()) start = { at: point, from: view.from, to: view.to, span: false };
		moved = touches.size > 0;
	};
	canvas.addEventListener("pointerup", release);
	canvas.addEventListener("pointercancel", release);
	canvas.addEventListener("pointerleave", () => {
		tip();
		for (const cursor of cursors) cursor.style.display = "none";
	});
	canvas.addEventListener("blur", () => (wheelIsOurs = false));
	canvas.addEventListener("keydown", keys);

	function hover(picture, x, y, event) {
		if (event.pointerType !== "mouse") return;
		for (const cursor of cursors) {
			cursor.style.display = x >= gutter() && picture.timed ? "block" : "none";
			cursor.style.transform = `translateX(${x}px)`;
		}
		tip(picture.hit(x, y, false), event);
	}
}

let chosenSpan = null;

/* A span under selection, in any picture. */
function drawSpan(p, c) {
	if (!chosenSpan) return;
	const x = scaleOf(p),
		left = x(chosenSpan[0]);
	c.fillStyle = ink.accent;
	c.globalAlpha = 0.18;
	c.fillRect(left, 0, x(chosenSpan[1]) - left, p.height);
	c.globalAlpha = 1;
}

function keys(event) {
	if (event.ctrlKey || event.metaKey || event.altKey) return;
	const actions = {
		ArrowLeft: () => moveBy(-0.15),
		ArrowRight: () => moveBy(0.15),
		"+": () => zoomBy(0.6),
		"=": () => zoomBy(0.6),
		"-": () => zoomBy(1 / 0.6),
		_: () => zoomBy(1 / 0.6),
		0: lookAtAll,
		Home: lookAtAll,
		n: () => followNext(1),
		p: () => followNext(-1),
		N: () => followNext(1),
		P: () => followNext(-1),
		Escape: () => follow(-1),
	};
	if (!Object.hasOwn(actions, event.key)) return;
	event.preventDefault();
	actions[event.key]();
	announceLater();
}

const lookAtAll = () => look(0, M.duration);

/* The little text beside the pointer; without a text it goes. */
function tip(text, event) {
	const element = document.getElementById("tip");
	element.hidden = !text;
	if (!text) return;
	element.textContent = text;
	const box = element.getBoundingClientRect(),
		width = document.documentElement.clientWidth;
	const left = event.clientX + 16 + box.width > width ? event.clientX - box.width - 12 : event.clientX + 16;
	element.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, Math.min(event.clientY + 14, window.innerHeight - box.height - 4))}px)`;
}

/* ---- The whole trace in one strip, with the part that is shown ---- */

function overview(canvas) {
	const p = picture(canvas, draw);
	let density = null,
		made = 0;
	const x = (time) => (time / M.duration) * p.width;

	/* How many requests are in each pixel; made anew for another width or filter. */
	function count() {
		const width = Math.ceil(p.width),
			out = {
				level: new Float32Array(width + 1),
				bad: new Uint8Array(width + 1),
				passes: chosen.passes,
				most: 1,
			};
		for (let i = 0; i < M.sends.count; i++) {
			if (!chosen.passes[i]) continue;
			const at = Math.min(width, Math.max(0, Math.floor(x(M.sends.time[i]))));
			out.level[at]++;
			out.bad[at] |= M.sends.bad[i];
			out.most = Math.max(out.most, out.level[at]);
		}
		for (const cause of M.causes) out.bad[Math.min(width, Math.max(0, Math.floor(x(cause.time))))] = 1;
		return out;
	}

	function draw() {
		const c = sheet(p, 44),
			bottom = 40;
		if (!density || density.passes !== chosen.passes || made !== p.width) {
			density = count();
			made = p.width;
		}
		c.fillStyle = ink.faint;
		c.fillRect(0, 0, p.width, 44);
		for (let i = 0; i < density.level.length; i++) {
			if (density.level[i]) {
				const height = 3 + (30 * Math.log1p(density.level[i])) / Math.log1p(density.most);
				c.fillStyle = ink["op-send"];
				c.fillRect(i, bottom - height, 1, height);
			}
			if (density.bad[i]) {
				c.fillStyle = ink.bad;
				c.fillRect(i - 1, 0, 3, 8);
				c.fillRect(i, 8, 1, bottom - 8);
			}
		}
		const left = Math.max(0, x(view.from)),
			right = Math.min(p.width, x(view.to));
		c.fillStyle = ink.ground;
		c.globalAlpha = 0.72;
		c.fillRect(0, 0, left, 44);
		c.fillRect(right, 0, p.width - right, 44);
		c.globalAlpha = 1;
		c.strokeStyle = ink.accent;
		c.lineWidth = 1.5;
		c.strokeRect(left + 0.75, 0.75, Math.max(right - left - 1.5, 2), 42.5);
		if (chosen.followed >= 0) {
			c.fillStyle = ink.ink;
			c.fillRect(x(tableOf(chosen.followed).time[rowOf(chosen.followed)]) - 1, 0, 2, 44);
		}
	}

	let grip = null;
	canvas.addEventListener("pointerdown", (event) => {
		canvas.setPointerCapture(event.pointerId);
		const time = ((event.clientX - canvas.getBoundingClientRect().left) / p.width) * M.duration,
			span = view.to - view.from;
		if (time < view.from || time > view.to) look(time - span / 2, time + span / 2);
		grip = time - view.from;
	});
	canvas.addEventListener("pointermove", (event) => {
		if (grip === null) return;
		const time = ((event.clientX - canvas.getBoundingClientRect().left) / p.width) * M.duration - grip,
			span = view.to - view.from;
		look(time, time + span);
	});
	for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (grip = null));
	return p;
}
