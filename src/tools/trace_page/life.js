/* The panel that tells the life of the followed request in words, and what leads to it: follow(). */

/* Follows a request in all pictures; -1: none. */
function follow(item, where = true) {
	const panel = document.getElementById("life");
	chosen.followed = item;
	document.body.classList.toggle("following", item >= 0);
	panel.hidden = item < 0;
	try {
		history.replaceState(null, "", item < 0 ? "#" : item < M.sends.count ? "#send" + item : "#receive" + rowOf(item));
	} catch {
		/* A page that may not name its place is as good. */
	}
	if (item >= 0) {
		tellLife(panel, item);
		if (where) {
			const table = tableOf(item),
				i = rowOf(item),
				from = table === M.receives && Number.isFinite(table.taken[i]) ? table.taken[i] : table.time[i];
			bring(from, table.end[i]);
		}
		const place = grid.order.indexOf(item);
		if (place >= 0) {
			grid.at = place;
			showRow(place);
		}
	}
	fillGrid();
	announce(item < 0 ? say("said.none") : say("said.follow", { what: itemTitle(item) }));
	redraw();
}

/* The next or previous request of the same queue pair that passes the filter; with none followed, the first in sight. */
function followNext(by) {
	const item = chosen.followed;
	if (item < 0) {
		const [first, behind] = touching(M.sends, view.from, view.to);
		for (let i = first; i < behind; i++) if (chosen.passes[i] && M.sends.time[i] >= view.from) return follow(i);
		return;
	}
	const table = tableOf(item),
		qp = table.qp[rowOf(item)];
	for (let i = rowOf(item) + by; i >= 0 && i < table.count; i += by)
		if (table.qp[i] === qp && chosen.passes[itemOf(table, i)]) return follow(itemOf(table, i));
}

function tellLife(panel, item) {
	const table = tableOf(item),
		i = rowOf(item),
		send = table === M.sends,
		qp = qpAt(table.qp[i]);
	const button = (key, act, more = {}) => {
		const b = make("button", { type: "button", class: "small", ...more }, say("life." + key));
		b.addEventListener("click", act);
		return b;
	};
	const icon = (text, key, act, more = {}) => {
		const b = make(
			"button",
			{ type: "button", "aria-label": say("life." + key), title: say("life." + key), ...more },
			text,
		);
		b.addEventListener("click", act);
		return b;
	};
	const title = make("h2", { id: "lifeTitle" }, make("i", { class: "swatch" }), itemTitle(item));
	title.firstChild.style.background = table.bad[i] ? "var(--bad)" : `var(--${opcodeVariable(opcodeAt(table, i))})`;
	const facts = [
		qp ? say("life.of", { qp: qpName(qp.id), process: processName(qp.process) }) : processName(processOfItem(item)),
		say(send ? "life.wqe" : "life.slot", { i: numberName(table.index[i], "–") }),
	];
	if (Number.isFinite(table.length[i])) facts.push(say("life.size", { n: count(table.length[i]) }));
	facts.push(outcomeAt(table, i));
	panel.replaceChildren(
		make(
			"div",
			{ class: "head" },
			icon("←", "prev", () => followNext(-1)),
			icon("→", "next", () => followNext(1)),
			icon("⌕", "zoom", () => zoomTo(item)),
			icon("✕", "close", () => follow(-1), { class: "last" }),
		),
		title,
		make("div", { class: "dim" }, facts.join(" · ")),
	);
	if (send && Number.isFinite(table.posted[i])) panel.append(partsBar(i));
	const cause = send && M.causeOf.get(i);
	if (cause) panel.append(causeCard(cause, false));
	panel.append(make("ol", {}, ...(send ? sendLife(i) : receiveLife(i))));
	const other = send ? table.receive[i] : table.send[i];
	if (Number.isFinite(other) && other < (send ? M.receives : M.sends).count)
		panel.append(button(send ? "followOther" : "followSend", () => follow(itemOf(send ? M.receives : M.sends, other))));
	if (send) details(panel, i);
}

function zoomTo(item) {
	const table = tableOf(item),
		i = rowOf(item),
		from = table.time[i],
		span = Math.max(table.end[i] - from, 20);
	look(from - span * 0.15, from + span * 1.15);
}

/* Sentences in the order of their times; those without a time at the end. */
function story(begin, list) {
	const known = list.filter((step) => Number.isFinite(step.time)).sort((a, b) => a.time - b.time),
		rest = list.filter((step) => !Number.isFinite(step.time));
	let before = NaN;
	return [...known, ...rest].map((step) => {
		const when = !Number.isFinite(step.time)
			? ""
			: !Number.isFinite(before)
				? say("life.start", { x: moment(step.time) })
				: step.time === before
					? say("life.same")
					: say("life.after", { x: exactly(step.time - before), t: moment(step.time) });
		if (Number.isFinite(step.time)) before = step.time;
		const element = make(
			"li",
			{ class: [step.far ? "far" : "", step.bad ? "bad" : ""].join(" ") },
			make("span", { class: "when" }, when + (step.far ? " · " + step.far : "")),
			step.text,
		);
		if (step.dot) element.style.setProperty("--dot", `var(--${step.dot})`);
		return element;
	});
}

function sendLife(i) {
	const s = M.sends,
		bad = s.bad[i],
		status = outcomeAt(s, i),
		back = isBack(opcodeAt(s, i)),
		dot = opcodeVariable(opcodeAt(s, i)),
		list = [],
		receive = s.receive[i],
		dest = qpAt(s.dest[i]);
	const far = say("life.there") + (dest ? `, ${processName(dest.process)}` : ""),
		add = (stage, values = {}, more = {}, key = stage) =>
			Number.isFinite(s[stage][i]) &&
			list.push({ time: s[stage][i], text: say("life." + key, values), dot, ...more });
	add("posted", { n: count(s.list[i] - 1) }, {}, s.list[i] > 1 ? "postedList" : "posted");
	add("rung");
	add("seen");
	add("gathered");
	if (s.sent[i] !== s.gathered[i]) add("sent");
	const r = M.receives,
		known = Number.isFinite(receive) && receive < r.count;
	add(
		"taken",
		known
			? {
					wr: "wr_id " + (r.wr_id[receive] ?? "–"),
					i: numberName(r.index[receive], "–"),
					x: lasting(r.taken[receive] - r.posted[receive]),
				}
			: {},
		{ far, dot: "op-recv" },
		known ? "taken" : "takenBare",
	);
	add("placed", {}, back ? {} : { far, dot: "op-recv" }, back ? "placedHere" : "placed");
	add("acked");
	add("cqe", { status }, { bad });
	add("polled", { x: exactly(s.polled[i] - s.posted[i]) });
	add("remote_cqe", {}, { far, dot: "op-recv" });
	add("remote_polled", {}, { far, dot: "op-recv" });
	const retries = M.retries;
	let told = 0;
	for (let k = lowest(retries.count, (n) => retries.time[n] >= s.time[i]); k < retries.count && told < 20; k++)
		if (retries.send[k] === i) {
			const kind = retries.kind.names[retries.kind.codes[k]];
			list.push({
				time: retries.time[k],
				text: say("life.retry", {
					n: String(numberName(retries.nth[k], "?")),
					why: wordsAt("life." + kind) || String(kind),
				}),
				dot: "warn",
			});
			told++;
		}
	if (!Number.isFinite(s.placed[i]) && bad) list.push({ time: NaN, text: say("life.noPlace"), bad });
	if (!Number.isFinite(s.cqe[i]))
		list.push({
			time: NaN,
			text: say(Number.isFinite(s.flags[i]) && !(s.flags[i] & 2) ? "life.noCqe" : "life.noEnd"),
			dot: "dim",
		});
	else if (!Number.isFinite(s.polled[i])) list.push({ time: NaN, text: say("life.noPoll"), dot: "dim" });
	return story(s.time[i], list);
}

function receiveLife(i) {
	const r = M.receives,
		s = M.sends,
		send = r.send[i],
		list = [],
		known = Number.isFinite(send) && send < s.count,
		dot = "op-recv";
	const add = (stage, values = {}, more = {}, key = stage) =>
		Number.isFinite(r[stage][i]) && list.push({ time: r[stage][i], text: say("life.r" + key, values), dot, ...more });
	add("posted", { n: count(r.room[i]) });
	add(
		"taken",
		known ? { op: opcodeAt(s, send), wr: "wr_id " + (s.wr_id[send] ?? "–"), n: count(r.length[i]) } : {},
		known ? { dot: opcodeVariable(opcodeAt(s, send)) } : {},
		known ? "taken" : "takenBare",
	);
	add("placed");
	add("cqe", { status: outcomeAt(r, i) }, { bad: r.bad[i] });
	add("polled");
	if (!Number.isFinite(r.taken[i]) && !Number.isFinite(r.cqe[i]))
		list.push({ time: NaN, text: say("life.rwaiting"), dot: "dim" });
	else if (Number.isFinite(r.cqe[i]) && !Number.isFinite(r.polled[i]))
		list.push({ time: NaN, text: say("life.noPoll"), dot: "dim" });
	return story(r.time[i], list);
}

function details(panel, i) {
	const s = M.sends,
		dest = qpAt(s.dest[i]),
		qp = qpAt(s.qp[i]),
		rows = [];
	const add = (key, value) =>
		value && rows.push(make("tr", {}, make("th", { scope: "row" }, say("life." + key)), make("td", {}, value)));
	add("dest", dest && say("life.of", { qp: qpName(dest.id), process: processName(dest.process) }));
	add("peerGid", qp && qp.dgid && `${qp.sgid || "–"} → ${qp.dgid}`);
	add("addr", s.addr[i]);
	add(
		"flags",
		Object.entries(WORDS[language].flags)
			.filter(([bit]) => s.flags[i] & bit)
			.map(([, name]) => name)
			.join(", "),
	);
	add("psn", Number.isFinite(s.psn[i]) && count(s.psn[i]));
	add("packetCount", Number.isFinite(s.packets[i]) && count(s.packets[i]));
	add("retries", s.retries[i] > 0 && count(s.retries[i]));
	if (rows.length) panel.append(make("h3", {}, say("life.details")), make("table", {}, make("tbody", {}, ...rows)));
	const packets = M.packets,
		lines = [];
	for (
		let k = lowest(packets.count, (n) => packets.time[n] >= s.time[i]);
		k < packets.count && lines.length < 40 && packets.time[k] <= s.end[i] + 1e9;
		k++
	)
		if (packets.send[k] === i)
			lines.push(
				make(
					"tr",
					{},
					make("td", { class: "number" }, moment(packets.time[k])),
					make(
						"td",
						{},
						say("life.packetLine", {
							dir: say(packets.out[k] ? "life.out" : "life.in"),
							psn: packets.psn[k],
							n: String(packets.length[k]),
						}) + (packets.again[k] ? `, ${say("life.again")}` : ""),
					),
				),
			);
	if (lines.length) panel.append(make("h3", {}, say("life.packets")), make("table", {}, make("tbody", {}, ...lines)));
}
