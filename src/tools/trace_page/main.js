/* Puts the page together: texts, filter, buttons, causes, and what is drawn beside the pictures. */

const byId = (id) => document.getElementById(id);

/* An element; texts in it are always text. */
function make(tag, attributes = {}, ...inside) {
	const element = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes)) if (value) element.setAttribute(name, value);
	element.append(...inside.map((part) => (part instanceof Node ? part : String(part))));
	return element;
}

function vector(tag, attributes, ...inside) {
	const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
	for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
	element.append(...inside);
	return element;
}

/* A text with <b> in it, and nothing else. */
function bold(text) {
	return text.split(/<\/?b>/).map((part, n) => (n % 2 ? make("b", {}, part) : part));
}

let saying = 0;

function announce(text) {
	byId("said").textContent = text;
}

/* The window of time, once it stands still. */
function announceLater() {
	clearTimeout(saying);
	saying = setTimeout(() => announce(byId("window").textContent), 600);
}

/* ---- What stands beside the pictures ---- */

function facts() {
	const list = byId("facts"),
		failed = M.sends.bad.reduce((n, bad) => n + bad, 0) + M.receives.bad.reduce((n, bad) => n + bad, 0),
		add = (key, values, kind = "") => list.append(make("li", { class: kind }, ...bold(say("facts." + key, values))));
	list.replaceChildren();
	if (/^\d+$/.test(M.start || ""))
		add("when", { x: new Date(Number(M.start.slice(0, -6))).toLocaleString(language === "zh" ? "zh-CN" : "en-GB") });
	add("lasted", { x: lasting(M.duration) });
	const counted = (key, n) => add(key + (n === 1 && wordsAt(`facts.${key}1`) ? "1" : ""), { n: count(n) });
	counted("processes", M.processes.length);
	counted("sends", M.sends.total);
	counted("receives", M.receives.total);
	counted("events", M.events);
	if (failed) add("failed", { n: count(failed) }, "bad");
	else if (M.causes.length) add("causes", { n: count(M.causes.length) }, "bad");
	else if (M.sends.count) add("fine", {}, "good");
	byId("program").textContent = M.program;
	document.title = `${M.program || "uroce"} – uroce trace`;
}

function notices() {
	const list = byId("notices"),
		add = (text, kind = "") => list.append(make("p", { class: kind }, text));
	list.replaceChildren();
	if (M.version !== 1) add(say("otherVersion"));
	if (M.dropped) add(say("dropped", { n: count(M.dropped) }));
	if (!M.sends.count && !M.receives.count) add(say("noRequests"), "plain");
	if (M.sends.count < M.sends.total || M.receives.count < M.receives.total)
		add(say("thinned", { shown: count(itemCount()), n: count(M.sends.total + M.receives.total) }), "plain");
}

const CAUSES_FIRST = 3;
let causesShown = CAUSES_FIRST;

function causeCard(cause, leads) {
	const head = make(
		"div",
		{ class: "head" },
		make("b", {}, causeTitle(cause)),
		make("span", { class: "dim" }, moment(cause.time)),
	);
	if (leads && processAt(cause.process)) head.append(make("span", { class: "dim" }, processName(cause.process)));
	if (leads && qpAt(cause.qp)) head.append(make("span", { class: "dim" }, qpName(cause.qp)));
	if (leads && cause.wr_id) head.append(make("span", { class: "dim" }, "wr_id " + cause.wr_id));
	const card = make("div", { class: "cause" }, head, make("p", {}, told(cause.what) || told(cause.short)));
	if (told(cause.todo)) card.append(make("p", { class: "dim" }, `${say("todo")}${told(cause.todo)}`));
	if (leads) {
		const button = make("button", { type: "button", class: "small" }, say("show"));
		button.addEventListener("click", () => {
			showCause(cause);
			byId("pictures").scrollIntoView({ block: "start" });
		});
		head.append(button);
	}
	return card;
}

/* Where it happened: its request, or its time. */
function showCause(cause) {
	if (Number.isFinite(cause.send) && cause.send !== null && cause.send < M.sends.count) follow(itemOf(M.sends, cause.send));
	else bring(cause.time - 1, cause.time + 1);
}

function causes() {
	const list = byId("causeList"),
		left = M.causes.length - causesShown;
	byId("causes").hidden = !M.causes.length;
	list.replaceChildren(...M.causes.slice(0, causesShown).map((cause) => causeCard(cause, true)));
	if (left > 0) {
		const button = make("button", { type: "button" }, say("more", { n: String(left) }));
		button.addEventListener("click", () => {
			causesShown += 50;
			causes();
		});
		list.append(button);
	}
}

function advice() {
	byId("advised").hidden = !M.advice.length;
	byId("advice").replaceChildren(
		...M.advice.map((one) =>
			make("div", { class: "advice" }, make("span", { class: "dim" }, processName(one.process)), make("p", {}, told(one.what))),
		),
	);
	const list = byId("habits"),
		s = M.sends;
	list.replaceChildren();
	let signaled = 0,
		calls = 0,
		known = 0;
	for (let i = 0; i < s.count; i++) {
		signaled += s.flags[i] & 2 ? 1 : 0;
		if (s.list[i] > 0) {
			known++;
			calls += 1 / s.list[i];
		}
	}
	if (known)
		list.append(
			make(
				"li",
				{},
				say("habitLists", {
					n: count(known),
					calls: count(Math.round(calls)),
					mean: (known / Math.max(calls, 1)).toFixed(1),
				}),
			),
		);
	if (s.count) list.append(make("li", {}, say("habitSignaled", { share: percent(signaled / s.count) })));
	const used = M.fills.filter((fill) => fill.max > 0);
	for (const fill of used.slice(0, 200)) list.append(make("li", {}, queueSentence(fill)));
	byId("queuesText").replaceChildren(make("ul", {}, ...queueRows.list.map((fill) => make("li", {}, queueSentence(fill)))));
	byId("seen").hidden = !list.children.length;
}

function legends() {
	const item = (text, shape) => make("li", {}, shape, text);
	const shape = (...inside) => vector("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, ...inside);
	const swatch = (colour) => {
		const i = make("i", { class: "swatch" });
		i.style.background = `var(--${colour})`;
		return i;
	};
	const words = WORDS[language].legend,
		some = M.sends.opcode.names,
		list = byId("messagesLegend");
	list.replaceChildren(
		...some.map((name) => item(name, swatch(opcodeVariable(name)))),
		item(
			words.posted,
			shape(
				vector("circle", {
					cx: 6,
					cy: 6,
					r: 3.6,
					fill: "none",
					stroke: "currentColor",
					"stroke-width": 1.8,
				}),
			),
		),
		item(words.placed, shape(vector("circle", { cx: 6, cy: 6, r: 4, fill: "currentColor" }))),
		item(words.cqe, shape(vector("path", { d: "M1 6 6 1l5 5-5 5z", fill: "currentColor" }))),
		item(words.polled, shape(vector("rect", { x: 2.5, y: 2.5, width: 7, height: 7, fill: "currentColor" }))),
		item(
			words.back,
			shape(
				vector("path", {
					d: "M0 6h12",
					stroke: "currentColor",
					"stroke-width": 1.6,
					"stroke-dasharray": "1.5 2.5",
				}),
			),
		),
	);
	if (M.sends.bad.includes(1) || M.causes.length)
		list.append(
			item(
				words.failed,
				shape(vector("path", { d: "M2 2l8 8M10 2l-8 8", stroke: "var(--bad)", "stroke-width": 2.2 })),
			),
		);
	if (M.retries.count)
		list.append(
			item(
				words.retry,
				shape(
					vector("path", {
						d: "M10 8a4.2 4.2 0 1 1 0-4M10 1v3.5H6.5",
						fill: "none",
						stroke: "var(--warn)",
						"stroke-width": 1.8,
					}),
				),
			),
		);
	if (some.some(isBack))
		list.append(
			item(
				words.read,
				shape(
					vector("path", {
						d: "M1 1l5 10 5-10",
						fill: "none",
						stroke: "currentColor",
						"stroke-width": 1.5,
					}),
				),
			),
		);
	if (M.sends.count > ARROWS)
		list.append(
			item(
				words.many,
				shape(vector("path", { d: "M2 0v12M5 0v12M7 0v12", stroke: "currentColor", "stroke-width": 1.2 })),
			),
		);
	const q = WORDS[language].queueLegend,
		dash = (colour, pattern) =>
			shape(
				vector("path", {
					d: "M0 6h12",
					stroke: `var(--${colour})`,
					"stroke-width": 1.6,
					"stroke-dasharray": pattern,
				}),
			);
	byId("queuesLegend").replaceChildren(
		...["sq", "rq", "srq", "cq"]
			.filter((kind) => M.fills.some((fill) => fill.queue === kind && fill.max))
			.map((kind) => item(kind.toUpperCase(), swatch(kind))),
		item(q.high, dash("dim", "1.5 2")),
		item(q.limit, dash("dim", "4 2")),
		item(q.full, shape(vector("path", { d: "M0 6h12", stroke: "var(--warn)", "stroke-width": 4 }))),
	);
	if (M.fills.some((fill) => fill.merged)) byId("queuesLegend").append(item(q.merged, swatch("dim")));
	if (M.cqEvents.count) byId("queuesLegend").append(make("li", {}, q.events));
	byId("stacksLegend").replaceChildren(...WORDS[language].parts.map((text, n) => item(text, swatch("p" + n))));
}

/* After each frame: what the pictures show, in words. */
function drawn() {
	const from = Math.max(view.from, 0),
		to = Math.min(view.to, M.duration);
	const span = say("window", {
		from: moment(from, to - from),
		to: moment(to, to - from),
		span: lasting(to - from),
		all: lasting(M.duration),
	});
	byId("window").textContent = span;
	const [first, behind] = touching(M.sends, view.from, view.to);
	let number = 0,
		failed = 0;
	for (let i = first; i < behind; i++)
		if (chosen.passes[i] && M.sends.end[i] >= view.from) {
			number++;
			failed += M.sends.bad[i];
		}
	byId("messagesText").textContent = say("messagesText", { n: count(number), failed: count(failed), window: span });
}

/* ---- Filter and buttons ---- */

function filterForm() {
	const form = byId("filter"),
		words = WORDS[language];
	const field = (key, control) => make("label", {}, say(key), control);
	const select = (name, options, value) => {
		const element = make("select", { name });
		for (const [v, text] of options) element.append(new Option(text, v, false, String(v) === String(value)));
		return element;
	};
	const opcodes = [...M.sends.opcode.names, ...(M.receives.count ? ["RECV"] : [])],
		statuses = [...new Set([...M.sends.status.names, ...M.receives.status.names])]
			.filter((name) => name !== "SUCCESS")
			.sort();
	const input = (name, hint) =>
		make("input", { name, type: "search", value: chosen[name], placeholder: hint, spellcheck: "false" });
	const reset = make("button", { type: "button", id: "reset" }, words.reset);
	form.setAttribute("aria-label", words.filterLabel);
	form.replaceChildren(
		field(
			"filterQp",
			select(
				"qp",
				[
					[-1, words.any],
					...M.qps.slice(0, 2000).map((qp) => [qp.id, `${hex(qp.qpn)} · ${processName(qp.process)}`]),
				],
				chosen.qp,
			),
		),
		field("filterOp", select("opcode", [["", words.any], ...opcodes.map((name) => [name, name])], chosen.opcode)),
		field(
			"filterStatus",
			select(
				"status",
				[
					["", words.any],
					["ok", words.ok],
					["failed", words.failed],
					["open", words.open],
					...statuses.map((name) => [name, name]),
				],
				chosen.status,
			),
		),
		field("filterWr", input("wr", "0x…")),
		field("filterText", input("text", "")),
		reset,
	);
	reset.addEventListener("click", () => {
		Object.assign(chosen, { qp: -1, opcode: "", status: "", wr: "", text: "" });
		filterForm();
		filtered();
	});
	passing();
}

function passing() {
	byId("passing").textContent = matchingText();
	byId("filterBox").classList.toggle("on", chosen.count < itemCount());
}

function readFilter() {
	const form = byId("filter");
	chosen.qp = Number(form.elements.qp.value);
	for (const name of ["opcode", "status", "wr", "text"]) chosen[name] = form.elements[name].value;
	filtered();
}

function filtered() {
	choose();
	chooseQueues();
	moreQueues();
	sortGrid();
	advice();
	passing();
	redraw();
}

function moreQueues() {
	const button = byId("moreQueues");
	button.hidden = queueRows.more <= QUEUES_FIRST;
	button.textContent = queueRows.all ? say("lessQueues") : say("moreQueues", { n: count(queueRows.more) });
}

function zoomButtons() {
	const bar = byId("zoom");
	bar.setAttribute("aria-label", say("zoomLabel"));
	const add = (text, label, act) => {
		const button = make("button", { type: "button", title: label, "aria-label": label }, text);
		button.addEventListener("click", () => {
			act();
			announceLater();
		});
		bar.append(button);
	};
	bar.replaceChildren();
	add("+", say("zoomIn"), () => zoomBy(0.5));
	add("−", say("zoomOut"), () => zoomBy(2));
	add("←", say("left"), () => moveBy(-0.4));
	add("→", say("right"), () => moveBy(0.4));
	add(say("active"), say("activeHint"), () => look(...M.active));
	add(say("all"), say("allHint"), lookAtAll);
}

function laneButton() {
	const button = byId("lanes");
	button.hidden = !lanes.choice;
	button.textContent = say("lanesTo", { what: say(lanes.byQp ? "byProcess" : "byQp") });
}

/* All texts, in the language that is set. */
function speak() {
	document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
	for (const element of document.querySelectorAll("[data-t]")) element.textContent = say(element.dataset.t);
	byId("language").textContent = say("other");
	byId("language").lang = language === "zh" ? "en" : "zh-CN";
	themeName();
	byId("glossary").replaceChildren(
		...WORDS[language].glossary.map(([term, text]) => make("div", {}, make("dt", {}, term), make("dd", {}, text))),
	);
	if (!M) {
		byId("notices").replaceChildren(make("p", {}, say("noModel")));
		return;
	}
	byId("messages").setAttribute("aria-label", say("messagesLabel"));
	byId("queues").setAttribute("aria-label", say("queuesLabel"));
	byId("stacks").setAttribute("aria-label", say("stacksLabel"));
	facts();
	notices();
	causes();
	zoomButtons();
	filterForm();
	laneButton();
	moreQueues();
	legends();
	phasesTable();
	gridHeads();
	sortGrid();
	advice();
	if (chosen.followed >= 0) tellLife(byId("life"), chosen.followed);
	announce("");
	redraw();
}

/* ---- Light and dark: as the system has it, until the button is pressed ---- */

const darkSystem = matchMedia("(prefers-color-scheme: dark)");
let theme = darkSystem.matches ? "dark" : "light",
	themeChosen = false;

function themeName() {
	byId("theme").textContent = say(theme === "dark" ? "themeLight" : "themeAuto");
}

function paint() {
	document.documentElement.dataset.theme = theme;
	themeName();
	mix();
	if (M) redraw();
}

function start() {
	byId("language").addEventListener("click", () => {
		language = language === "zh" ? "en" : "zh";
		speak();
	});
	byId("theme").addEventListener("click", () => {
		theme = theme === "dark" ? "light" : "dark";
		themeChosen = true;
		paint();
	});
	darkSystem.addEventListener("change", () => {
		if (!themeChosen) theme = darkSystem.matches ? "dark" : "light";
		paint();
	});
	if (!M) {
		speak();
		paint();
		return;
	}
	byId("main").hidden = false;
	byId("latency").hidden = !M.sends.count && !M.phases.length;
	byId("requests").hidden = !itemCount();
	byId("filterBox").open = !narrow();
	makeLanes();
	choose();
	chooseQueues();
	makeGrid();
	overview(byId("overview"));
	for (const p of [messages(byId("messages")), queues(byId("queues")), stacks(byId("stacks"))]) handle(p);
	paint();
	look(...M.active);
	speak();
	let typing = 0;
	byId("filter").addEventListener("input", (event) => {
		clearTimeout(typing);
		typing = setTimeout(readFilter, event.target.tagName === "SELECT" ? 0 : 200);
	});
	byId("filter").addEventListener("submit", (event) => event.preventDefault());
	byId("lanes").addEventListener("click", () => {
		lanes.byQp = !lanes.byQp;
		makeLanes();
		laneButton();
		redraw();
	});
	byId("moreQueues").addEventListener("click", () => {
		queueRows.all = !queueRows.all;
		chooseQueues();
		moreQueues();
		redraw();
	});
	byId("life").addEventListener("keydown", (event) => event.key === "Escape" && follow(-1));
	new ResizeObserver(() => {
		redraw();
		fillGrid();
	}).observe(byId("main"));
	const [, kind, number] = /^#(send|receive)(\d+)$/.exec(location.hash) || [];
	if (kind && Number(number) < (kind === "send" ? M.sends : M.receives).count)
		follow(itemOf(kind === "send" ? M.sends : M.receives, Number(number)));
}

start();
