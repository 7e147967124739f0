/* Where the time went: stacked bars of the requests in the window of time, and the table of all. */
const STACKS_HEIGHT = 190;

function stacks(canvas) {
	const p = picture(canvas, draw, hit);
	let columns = [],
		each = 1;

	function draw() {
		const s = M.sends,
			[first, behind] = touching(s, view.from, view.to),
			items = [];
		for (let i = first; i < behind; i++)
			if (chosen.passes[i] && s.last[i] > s.posted[i] && s.time[i] >= view.from) items.push(i);
		const c = sheet(p, items.length ? STACKS_HEIGHT : 40),
			left = narrow() ? 50 : gutter(),
			width = p.width - left - RIGHT,
			bottom = p.height - 8,
			height = bottom - 14;
		each = Math.max(1, Math.ceil(items.length / Math.max(width / 3, 20)));
		columns = [];
		for (let n = 0; n < items.length; n += each) {
			let slowest = items[n];
			for (let k = n; k < Math.min(n + each, items.length); k++)
				if (tookAt(s, items[k]) > tookAt(s, slowest)) slowest = items[k];
			columns.push(slowest);
		}
		const took = columns.map((i) => tookAt(s, i)).sort((a, b) => a - b),
			usual = took[Math.floor((took.length - 1) * 0.95)] || 1,
			longest = took[took.length - 1] || 1;
		const scale = longest > usual * 2 ? usual * 1.35 : longest * 1.04,
			step = Math.min(width / Math.max(columns.length, 1), 26);
		document.getElementById("stacksText").textContent = !items.length
			? say("stacksNone")
			: say(each > 1 ? "stacksMany" : "stacks", { k: each, n: count(items.length) }) +
				(longest > scale ? " " + say("clipped", { x: lasting(longest) }) : "");
		if (!items.length) return;
		c.font = `11px ${ink.font}`;
		c.strokeStyle = ink.line;
		c.lineWidth = 1;
		const power = 10 ** Math.floor(Math.log10(scale / 3)),
			grid = [1, 2, 5, 10].find((n) => n * power >= scale / 4) * power;
		for (let value = 0; value <= scale; value += grid) {
			const y = Math.round(bottom - (value / scale) * height) + 0.5;
			line(c, left, y, p.width - RIGHT, y);
			c.fillStyle = ink.dim;
			c.textAlign = "right";
			c.fillText(lasting(value), left - 6, Math.max(y, 7));
		}
		c.textAlign = "left";
		columns.forEach((i, n) => {
			const x = left + n * step,
				w = Math.max(step > 4 ? step - 1.5 : step, 1);
			let from = s.posted[i];
			PARTS.forEach((stage, part) => {
				const to = s[stage][i];
				if (!(to > from)) return;
				const y = bottom - Math.min((to - s.posted[i]) / scale, 1) * height,
					low = bottom - Math.min((from - s.posted[i]) / scale, 1) * height;
				c.fillStyle = ink["p" + part];
				c.fillRect(x, y, w, Math.max(low - y, 0));
				from = to;
			});
			if (tookAt(s, i) > scale) {
				c.fillStyle = ink.bad;
				c.fillRect(x, bottom - height - 3, w, 4);
			}
			if (s.bad[i]) {
				c.strokeStyle = ink.bad;
				cross(c, x + w / 2, bottom + 4, 2.5);
			}
			if (chosen.followed === itemOf(s, i)) {
				c.strokeStyle = ink.ink;
				c.lineWidth = 2;
				c.strokeRect(
					x - 1,
					bottom - Math.min(tookAt(s, i) / scale, 1) * height - 2,
					w + 2,
					Math.min(tookAt(s, i) / scale, 1) * height + 3,
				);
			}
		});
		p.place = { left, step };
	}

	function hit(px, py, click) {
		const at = p.place && columns[Math.floor((px - p.place.left) / p.place.step)];
		if (click) follow(at === undefined ? -1 : itemOf(M.sends, at));
		return at === undefined ? "" : itemTip(itemOf(M.sends, at));
	}
	return p;
}

/* The parts of one life as a bar, with widths in per cent. */
function partsBar(i) {
	const s = M.sends,
		bar = make("div", { class: "parts", "aria-hidden": "true" }),
		whole = s.last[i] - s.posted[i];
	let from = s.posted[i];
	PARTS.forEach((stage, part) => {
		const to = s[stage][i];
		if (!(to > from) || !whole) return;
		const piece = make("i", { title: `${WORDS[language].parts[part]}: ${lasting(to - from)}` });
		piece.style.width = (100 * (to - from)) / whole + "%";
		piece.style.background = `var(--p${part})`;
		bar.append(piece);
		from = to;
	});
	return bar;
}

/* The table of phases: each operation's own, and first what it took as a whole. */
function phasesTable() {
	const table = document.getElementById("phases"),
		stage = (name) => wordsAt("phase." + name) || String(name);
	table.replaceChildren();
	if (!M.phases.length) return;
	const logs = M.phases
			.flatMap((phase) => [phase.min, phase.p99, phase.p50])
			.filter((n) => n > 0)
			.map(Math.log10),
		low = Math.floor(Math.min(...logs, 2)),
		high = Math.ceil(Math.max(...logs, 3));
	const place = (n) => (100 * (Math.log10(Math.max(n, 10 ** low)) - low)) / (high - low || 1);
	/* A phone has room for those that are not wide. */
	const heads = [
		["colOp"],
		["phaseFrom"],
		["phaseCount", "number wide"],
		["least", "number wide"],
		["median", "number"],
		["p99", "number"],
		["most", "number wide"],
		["mean", "number wide"],
		["spread", "range wide"],
	];
	table.append(
		make("caption", { class: "hidden" }, say("latency")),
		make(
			"thead",
			{},
			make("tr", {}, ...heads.map(([key, kind]) => make("th", { scope: "col", class: kind }, say(key)))),
		),
	);
	const body = make("tbody");
	let before = null;
	const whole = (phase) => phase.from === "posted" && phase.to === "polled";
	for (const opcode of [...new Set(M.phases.map((phase) => phase.opcode))]) {
		const rows = M.phases.filter((phase) => phase.opcode === opcode).sort((a, b) => whole(b) - whole(a));
		for (const phase of rows) {
			const name = make("td", {}, before === opcode ? "" : String(opcode)),
				mean = phase.count ? phase.sum / phase.count : NaN;
			before = opcode;
			const part = PARTS.indexOf(phase.to),
				colour =
					whole(phase) || (phase.from === "posted" && phase.to === "placed") || part < 0
						? `var(--${opcodeVariable(String(opcode))})`
						: `var(--p${part})`;
			const a = place(phase.min),
				b = place(phase.p50),
				z = place(phase.p99);
			const drawing = vector(
				"svg",
				{ viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" },
				vector("rect", { x: 0, y: 6.5, width: 100, height: 1, fill: "var(--faint)" }),
				vector("rect", { x: a, y: 6, width: Math.max(z - a, 0.5), height: 2, fill: colour, opacity: 0.55 }),
				vector("rect", {
					x: b,
					y: 2,
					width: Math.max(z - b, 0.8),
					height: 10,
					fill: colour,
					opacity: 0.75,
				}),
				vector("rect", { x: Math.max(b - 0.4, 0), y: 1, width: 0.8, height: 12, fill: "var(--ink)" }),
			);
			body.append(
				make(
					"tr",
					{ class: whole(phase) ? "whole" : "" },
					name,
					make("td", {}, `${stage(phase.from)} → ${stage(phase.to)}`),
					make("td", { class: "number wide" }, count(phase.count)),
					...[phase.min, phase.p50, phase.p99, phase.max, mean].map((n, k) =>
						make("td", { class: heads[k + 3][1] }, lasting(n)),
					),
					make("td", { class: "range wide" }, drawing),
				),
			);
		}
	}
	table.append(body);
}
