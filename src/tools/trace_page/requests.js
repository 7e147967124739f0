/* The table of requests. Only the rows in sight are in the page; so it may have any number of them. */
const ROW = 28,
	TALLEST = 8e6;

const grid = { element: null, rows: null, order: new Uint32Array(0), by: "time", down: false, at: 0, heads: new Map(), pool: [] };

/* On a phone the wide ones are hidden by the style sheet. */
const COLUMNS = [
	{
		key: "time",
		title: "colTime",
		value: (t, i) => (Number.isFinite(t.posted[i]) ? t.posted[i] : t.time[i]),
		text: (t, i) => moment(Number.isFinite(t.posted[i]) ? t.posted[i] : t.time[i]),
		number: true,
	},
	{ key: "op", title: "colOp", value: (t, i) => opcodeAt(t, i), text: (t, i) => opcodeAt(t, i), dot: true },
	{ key: "wr", title: "colWr", value: (t, i) => t.wr_id[i] ?? "", text: (t, i) => t.wr_id[i] ?? "–", mono: true },
	{
		key: "process",
		title: "colProcess",
		value: (t, i) => processName(processOfItem(itemOf(t, i))),
		text: (t, i) => processName(processOfItem(itemOf(t, i))),
		wide: true,
	},
	{
		key: "qp",
		title: "colQp",
		value: (t, i) => (qpAt(t.qp[i]) ? qpAt(t.qp[i]).qpn : -1),
		text: (t, i) => (qpAt(t.qp[i]) ? hex(qpAt(t.qp[i]).qpn) : t.srq && Number.isFinite(t.srq[i]) ? "SRQ" : "–"),
		wide: true,
		mono: true,
	},
	{
		key: "bytes",
		title: "colBytes",
		value: (t, i) => (Number.isFinite(t.length[i]) ? t.length[i] : -1),
		text: (t, i) => count(t.length[i]),
		number: true,
		wide: true,
	},
	{
		key: "status",
		title: "colStatus",
		value: (t, i) => outcomeAt(t, i),
		text: (t, i) => (narrow() && outcomeAt(t, i) === "SUCCESS" ? "✓" : outcomeAt(t, i)),
	},
	{
		key: "retries",
		title: "colRetries",
		value: (t, i) => (t.retries && t.retries[i]) || 0,
		text: (t, i) => (t.retries && t.retries[i] ? count(t.retries[i]) : ""),
		number: true,
		wide: true,
	},
	{
		key: "took",
		title: "colTook",
		value: (t, i) => (Number.isFinite(tookAt(t, i)) ? tookAt(t, i) : -1),
		text: (t, i) => lasting(tookAt(t, i)),
		number: true,
	},
	{ key: "parts", title: "colParts", value: () => 0, text: () => "", wide: true, parts: true },
];

function makeGrid() {
	const element = (grid.element = document.getElementById("grid"));
	element.addEventListener("scroll", () => requestAnimationFrame(fillGrid), { passive: true });
	element.addEventListener("keydown", gridKeys);
	element.addEventListener("focus", fillGrid);
	element.addEventListener("blur", fillGrid);
	element.addEventListener("click", (event) => {
		const line = event.target.closest(".rows .line");
		if (line) followRow(Number(line.dataset.place));
	});
}

function gridHeads() {
	const line = make("div", { class: "line heads", role: "row", "aria-rowindex": "1" });
	grid.heads.clear();
	for (const column of COLUMNS) {
		const head = make("div", {
			role: "columnheader",
			class: [column.wide ? "wide" : "", column.number ? "number" : ""].join(" "),
		});
		if (column.parts) {
			head.append(make("span", { class: "dim" }, say(column.title)));
		} else {
			const button = make("button", {
				type: "button",
				title: column.key === "took" ? say("tookHint") : say(column.title),
			});
			button.addEventListener("click", () => {
				grid.down = grid.by === column.key && !grid.down;
				grid.by = column.key;
				sortGrid();
			});
			head.append(button);
			grid.heads.set(column.key, [head, button, column]);
		}
		line.append(head);
	}
	grid.rows = make("div", { class: "rows", role: "rowgroup" });
	grid.pool = [];
	grid.element.replaceChildren(line, grid.rows);
}

/* Chooses and sorts; by time it is one merge of two sorted tables, else a sort by precomputed values. */
function sortGrid() {
	const column = COLUMNS.find((c) => c.key === grid.by),
		order = new Uint32Array(chosen.count),
		n = itemCount();
	let place = 0;
	for (let item = 0; item < n; item++) if (chosen.passes[item]) order[place++] = item;
	const values = new Array(n);
	for (const item of order) values[item] = column.value(tableOf(item), rowOf(item));
	const time = (item) => tableOf(item).time[rowOf(item)];
	if (["wr", "op", "process", "status"].includes(grid.by)) {
		/* Hexadecimal numbers: the shorter is the smaller. */
		const wr = grid.by === "wr";
		order.sort(
			(a, b) =>
				(wr && values[a].length - values[b].length) ||
				(values[a] < values[b] ? -1 : values[a] > values[b] ? 1 : time(a) - time(b)),
		);
	} else {
		order.sort((a, b) => values[a] - values[b] || time(a) - time(b));
	}
	if (grid.down) order.reverse();
	grid.order = order;
	grid.at = Math.min(grid.at, Math.max(order.length - 1, 0));
	for (const [key, [head, button, col]] of grid.heads) {
		head.setAttribute("aria-sort", key === grid.by ? (grid.down ? "descending" : "ascending") : "none");
		button.textContent = say(col.title) + (key === grid.by ? (grid.down ? " ↓" : " ↑") : "");
	}
	grid.element.setAttribute("aria-rowcount", String(order.length + 1));
	grid.element.setAttribute("aria-colcount", String(COLUMNS.length));
	grid.element.style.height = Math.min(420, Math.max(order.length, 2) * ROW + 52) + "px";
	grid.rows.style.height = Math.min(order.length * ROW, TALLEST) + "px";
	document.getElementById("matching").textContent = matchingText();
	fillGrid();
}

const matchingText = () =>
	say(chosen.count === itemCount() ? "matchingAll" : "matching", { n: count(chosen.count), all: count(itemCount()) });

/* Which row is at the top. Where all rows together would be taller than a browser bears, scrolling goes in larger steps. */
function gridTop() {
	const n = grid.order.length,
		sight = Math.ceil(grid.element.clientHeight / ROW);
	if (n * ROW <= TALLEST) return Math.floor(grid.element.scrollTop / ROW);
	const share = grid.element.scrollTop / Math.max(TALLEST + 32 - grid.element.clientHeight, 1);
	return Math.max(0, Math.min(n - 1, Math.round(share * (n - sight + 2))));
}

function fillGrid() {
	const n = grid.order.length,
		tall = n * ROW > TALLEST,
		first = Math.max(0, gridTop() - (tall ? 0 : 4)),
		sight = Math.ceil(grid.element.clientHeight / ROW) + (tall ? 0 : 8);
	const base = tall ? grid.element.scrollTop : first * ROW;
	for (let k = 0; k < Math.max(sight, grid.pool.length); k++) {
		const place = first + k;
		if (k >= sight || place >= n) {
			if (grid.pool[k]) grid.pool[k].hidden = true;
			continue;
		}
		const line = grid.pool[k] || (grid.pool[k] = grid.rows.appendChild(make("div", { role: "row" })));
		fillRow(line, place);
		line.style.top = base + k * ROW + "px";
		line.hidden = false;
	}
	const at = grid.pool.find((line) => !line.hidden && Number(line.dataset.place) === grid.at);
	if (at) grid.element.setAttribute("aria-activedescendant", at.id);
	else grid.element.removeAttribute("aria-activedescendant");
}

function fillRow(line, place) {
	const item = grid.order[place],
		table = tableOf(item),
		i = rowOf(item);
	line.dataset.place = place;
	line.id = "row" + place;
	line.className =
		"line" +
		(table.bad[i] ? " bad" : "") +
		(item === chosen.followed ? " followed" : "") +
		(place === grid.at && document.activeElement === grid.element ? " at" : "");
	line.setAttribute("aria-rowindex", String(place + 2));
	line.setAttribute("aria-selected", String(item === chosen.followed));
	line.replaceChildren(
		...COLUMNS.map((column) => {
			const cell = make("div", {
				role: "gridcell",
				class: [
					column.wide ? "wide" : "",
					column.number ? "number" : "",
					column.mono ? "mono" : "",
					column.dot ? "dot" : "",
					column.key === "status" ? "status" : "",
				].join(" "),
			});
			if (column.parts) {
				if (table === M.sends) cell.append(partsBar(i));
			} else {
				cell.textContent = cell.title = column.text(table, i);
				if (column.dot) cell.style.setProperty("--dot", `var(--${opcodeVariable(opcodeAt(table, i))})`);
			}
			return cell;
		}),
	);
}

function showRow(place) {
	const sight = grid.element.clientHeight - 32,
		tall = grid.order.length * ROW > TALLEST;
	if (tall) {
		const top = gridTop(),
			lines = Math.floor(sight / ROW);
		if (place < top || place >= top + lines) grid.element.scrollTop = (place / grid.order.length) * TALLEST;
	} else if (place * ROW < grid.element.scrollTop) {
		grid.element.scrollTop = place * ROW;
	} else if ((place + 1) * ROW > grid.element.scrollTop + sight) {
		grid.element.scrollTop = (place + 1) * ROW - sight;
	}
	fillGrid();
}

function followRow(place) {
	if (place >= grid.order.length) return;
	grid.at = place;
	follow(grid.order[place]);
}

function gridKeys(event) {
	if (event.target !== grid.element || event.ctrlKey || event.metaKey || event.altKey) return;
	const page = Math.max(1, Math.floor(grid.element.clientHeight / ROW) - 2),
		last = grid.order.length - 1;
	const to = {
		ArrowDown: grid.at + 1,
		ArrowUp: grid.at - 1,
		PageDown: grid.at + page,
		PageUp: grid.at - page,
		Home: 0,
		End: last,
	}[event.key];
	if (event.key === "Enter" || event.key === " ") {
		followRow(grid.at);
	} else if (event.key === "Escape") {
		follow(-1);
	} else if (to !== undefined) {
		grid.at = Math.max(0, Math.min(last, to));
		showRow(grid.at);
	} else {
		return;
	}
	event.preventDefault();
}
