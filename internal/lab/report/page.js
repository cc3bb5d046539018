// drawReport draws a diagnosis, or a model's numbers, into the body of a page of its own or into a shadow root. uPlot draws
// the charts, to be read point by point and enlarged. The function that it returns draws them anew in other colors.
function drawReport(data, root) {
	"use strict";
	const plots = [];

	// h makes an element; children that are null or empty are left out.
	function h(tag, className, ...children) {
		const e = document.createElement(tag);
		if (className) e.className = className;
		e.append(...children.flat(2).filter(c => c != null && c !== ""));
		return e;
	}
	const sample = root.appendChild(h("i"));
	sample.hidden = true;
	const color = name => {
		sample.style.color = `var(${name})`;
		return getComputedStyle(sample).color;
	};
	const inked = (className, ink) => {
		const e = h("i", className);
		e.style.setProperty("--ink", `var(${ink})`);
		return e;
	};
	const mainTag = root == document.body ? "main" : "div"; // a page has one main
	const section = (title, ...children) => h("section", "", h("h2", "", title), ...children);
	// unbroken keeps numbers and ranges whole where lines are broken: joiners stand at their hyphens.
	const unbroken = s => s.replaceAll("e-", "e-\u2060").replaceAll("–", "\u2060–\u2060");
	const list = (all, none) => !all?.length ? none && h("p", "", none) : all.length == 1 ? h("p", "", unbroken(all[0])) : h("ul", "", all.map(s => h("li", "", unbroken(s))));
	const facts = all => all.map(f => h("div", "", h("dt", "", f.label), h("dd", "", unbroken(f.text))));
	function scroll(label, e) {
		const box = h("div", "scroll", e);
		box.tabIndex = 0;
		box.setAttribute("role", "group");
		for (const named of [box, e]) named.setAttribute("aria-label", label);
		return box;
	}
	function folded(title, open, ...children) {
		const e = h("details", "", h("summary", "", title), ...children);
		e.open = open;
		return e;
	}
	// table makes a table; columns begin with # where they hold numbers.
	function table(label, columns, all, className) {
		const classes = columns.map(c => c.startsWith("#") ? "n" : "");
		const row = (tag, cells) => cells.map((c, i) => h(c === "" ? "td" : tag, classes[i], c)); // no empty heads
		return scroll(label, h("table", className, h("thead", "", h("tr", "", row("th", columns.map(c => c.replace("#", ""))))),
			h("tbody", "", all.map(r => h("tr", r.className, row("td", r))))));
	}

	// Numbers that JSON does not have are strings.
	const value = v => typeof v == "number" ? v : v == "Infinity" ? Infinity : v == "-Infinity" ? -Infinity : NaN;
	const ratio = (v, floor) => (v = value(v), floor = value(floor), !isFinite(v) ? Infinity : v <= 0 ? 0 : floor > 0 ? v / floor : Infinity);
	// number has two digits: 0.33, 970, 1.1e-7.
	function number(v) {
		v = value(v);
		const size = Math.abs(v);
		if (isNaN(v)) return "NaN";
		if (size == Infinity) return v < 0 ? "-∞" : "∞";
		if (size == 0 || 1e-4 <= size && size < 99.5) return String(+v.toPrecision(2));
		if (1 <= size && size < 1e4) return v.toFixed(0);
		const [mantissa, exponent] = v.toExponential(1).split("e");
		return `${+mantissa}e${+exponent}`;
	}
	function percent(v) {
		v = 100 * value(v);
		if (!isFinite(v)) return number(v);
		return 0 < v && v < .1 ? "< 0.1 %" : 99.9 < v && v < 100 ? "> 99.9 %" : `${Math.round(10 * v) / 10} %`;
	}

	// tip is the box with the values at the pointer.
	const tip = root.appendChild(h("div", "tip"));
	tip.hidden = true;
	tip.setAttribute("role", "status");
	function tell(x, y, title, lines) {
		tip.replaceChildren();
		tip.append(h("b", "", title), ...lines.map(([ink, text]) => h("div", "", ink ? inked("", ink) : null, text)));
		tip.hidden = false;
		const left = x + 14 + tip.offsetWidth > innerWidth ? x - 14 - tip.offsetWidth : x + 14;
		tip.style.left = `${Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 4))}px`;
		tip.style.top = `${Math.max(4, y - 14 - tip.offsetHeight)}px`;
	}
	const hush = () => { tip.hidden = true };

	// rows puts traces with places of their own on one list of places, as uPlot wants
	// them. A place that a trace has twice is there twice.
	function rows(traces) {
		const at = new Map();
		traces.forEach((t, k) => {
			const seen = new Map();
			t.x.forEach((x, i) => {
				const n = (seen.get(x) || 0) + 1, key = `${x} ${n}`;
				seen.set(x, n);
				if (!at.has(key)) at.set(key, { x, y: traces.map(() => null), text: traces.map(() => "") });
				at.get(key).y[k] = t.y[i];
				at.get(key).text[k] = t.text ? t.text[i] : "";
			});
		});
		return [...at.values()].sort((a, b) => a.x - b.x);
	}

	const round = v => String(+v.toPrecision(3));

	// axis labels an axis with its ticks as far as there is room, and with others where
	// it was enlarged so far that fewer than two are left. Where places have names, a tick
	// names all places up to the next.
	function axis(a, size, named) {
		const words = new Map((a.ticks || []).map(t => [t.at, t.text]));
		return {
			label: a.label, labelSize: 16, labelFont: "11px sans-serif", font: "11px sans-serif", size, gap: 4,
			stroke: () => color("--muted"), ticks: { show: false },
			splits: (u, i, min, max) => {
				const inside = [...words.keys()].filter(v => v >= min && v <= max), most = i ? 8 : Math.max(2, u.width / 45);
				if (inside.length < 2 && named) return [(min + max) / 2];
				if (inside.length < 2) return [0, 1, 2, 3].map(k => min + (max - min) * (k + .5) / 4);
				const step = Math.ceil(inside.length / most);
				return inside.filter((_, k) => k % step == 0);
			},
			values: (u, splits) => splits.map(v => words.get(v) ?? (a.log ? (10 ** v).toPrecision(2) : named ? (a.ticks.findLast(t => t.at <= v)?.text ?? "") : round(v))),
		};
	}

	// stems draws the lines between two values of a place.
	const stems = traces => u => {
		for (const t of traces) {
			u.ctx.strokeStyle = color(t.ink);
			u.ctx.lineWidth = 2 * devicePixelRatio;
			t.x.forEach((x, i) => {
				if (x < u.scales.x.min || x > u.scales.x.max) return;
				const at = u.valToPos(x, "x", true), { top, height } = u.bbox;
				const y = v => Math.min(Math.max(u.valToPos(v, "y", true), top), top + height);
				u.ctx.beginPath();
				u.ctx.moveTo(at, y(t.y[i]));
				u.ctx.lineTo(at, y(t.to[i]));
				u.ctx.stroke();
			});
		}
	};

	function draw(box, chart) {
		const traces = chart.traces.filter(t => t.shape != "stem" && t.x), data = rows(traces);
		const longest = Math.max(...chart.y.ticks.map(t => t.text.length));
		const all = box.appendChild(h("button", "", "Whole chart"));
		all.type = "button";
		all.hidden = true;
		const whole = u => u.scales.x.min <= chart.x.min && u.scales.x.max >= chart.x.max && u.scales.y.min <= chart.y.min && u.scales.y.max >= chart.y.max;
		const show = u => {
			const i = u.cursor.idx, row = data[i];
			if (i == null || u.cursor.left < 0 || !row) return hush();
			const lines = [];
			traces.forEach((t, k) => { if (row.text[k]) lines.push([t.ink, `${t.name} ${row.text[k]}`]) });
			if (!lines.length) return hush();
			const r = u.over.getBoundingClientRect();
			tell(r.left + u.cursor.left, r.top + u.cursor.top, (chart.names || {})[row.x] ?? `${chart.x.label} ${round(row.x)}`, lines);
		};
		const size = () => ({ width: box.clientWidth, height: Math.max(220, Math.round(box.clientWidth * chart.height / chart.width)) });
		const u = new uPlot({
			...size(), legend: { show: false }, padding: [10, 10, 0, 0],
			cursor: { drag: { x: true, y: true, uni: 20 }, y: false, points: { size: 8 } },
			scales: { x: { time: false, range: (u, min, max) => min <= data[0].x && max >= data[data.length - 1].x ? [chart.x.min, chart.x.max] : [min, max] }, y: { range: () => [chart.y.min, chart.y.max] } },
			axes: [{ ...axis(chart.x, 26, chart.names), grid: { show: false } }, { ...axis(chart.y, 14 + 6.5 * longest), grid: { stroke: () => color("--grid"), width: 1 } }],
			series: [{}, ...traces.map(t => ({
				label: t.name, stroke: () => color(t.ink), width: t.shape == "dashed" ? 1.25 : 1.75, dash: t.shape == "dashed" ? [4, 3] : [], spanGaps: true,
				paths: t.shape == "dot" ? () => null : undefined,
				points: { show: !!t.radius, size: 2 * (t.radius || 2), width: 0, fill: () => color(t.ink) },
			}))],
			hooks: {
				drawAxes: [stems(chart.traces.filter(t => t.shape == "stem"))],
				setCursor: [show],
				setScale: [u => { all.hidden = whole(u) }],
			},
		}, [data.map(r => r.x), ...traces.map((_, k) => data.map(r => r.y[k]))], box);
		const reset = () => u.batch(() => {
			u.setScale("x", chart.x);
			u.setScale("y", chart.y);
		});
		all.onclick = reset;
		u.over.addEventListener("mouseleave", hush);
		// Arrow keys go along the chart as the mouse does, over places that tell something.
		box.tabIndex = 0;
		box.onblur = hush;
		box.onkeydown = e => {
			const told = data.map((r, i) => i).filter(i => data[i].text.some(x => x)), now = told.indexOf(u.cursor.left < 0 ? -1 : u.cursor.idx);
			const to = { ArrowRight: now + 1, ArrowLeft: Math.max(0, now - 1), Home: 0, End: told.length - 1 }[e.key];
			if (e.key == "Escape" && !tip.hidden) hush();
			else if (to === undefined || !told.length) return;
			else u.setCursor({ left: u.valToPos(data[told[Math.min(to, told.length - 1)]].x, "x"), top: u.over.clientHeight / 2 });
			e.preventDefault();
			e.stopPropagation();
		};
		for (const name of ["touchstart", "touchmove"])
			u.over.addEventListener(name, e => {
				const r = u.over.getBoundingClientRect(), t = e.touches[0];
				u.setCursor({ left: t.clientX - r.left, top: t.clientY - r.top });
			}, { passive: true });
		new ResizeObserver(() => { if (box.clientWidth && box.clientWidth != u.width) u.setSize(size()) }).observe(box);
		plots.push(u);
		return u;
	}

	const charts = (...all) => h("div", "charts", all);

	// figure is a drawing with its title and a legend of [text, ink, shape].
	const figure = (title, note, body, keys, className) => h("figure", className, h("figcaption", "", h("strong", "", title), " ", note), body,
		keys && h("ul", "keys", keys.map(([text, ink, shape]) => h("li", "", inked(shape, ink), text))));

	// drawn is the place of a chart, drawn once it has a width: a folded one has none yet.
	function drawn(label, chart) {
		const box = h("div", "live");
		box.setAttribute("role", "img");
		box.setAttribute("aria-label", `${label}. Arrow keys tell its values; drag to enlarge, double-click for the whole.`);
		const first = new ResizeObserver(() => {
			if (!box.clientWidth) return;
			first.disconnect();
			draw(box, { width: 400, height: 240, ...chart });
		});
		first.observe(box);
		return box;
	}

	// decades is a logarithmic axis for values: a zero lies a step below the powers of ten, and a value that is not finite a
	// step above.
	function decades(values) {
		const clamp = x => Math.min(Math.max(x, -20), 10), logs = values.filter(v => v > 0 && v < Infinity).map(v => clamp(Math.log10(v)));
		let lo = -1, hi = 0;
		if (logs.length) {
			lo = Math.floor(logs.reduce((a, b) => Math.min(a, b)));
			hi = Math.ceil(logs.reduce((a, b) => Math.max(a, b)));
			if (lo == hi) lo--;
		}
		const step = Math.max(1, Math.floor((hi - lo + 5) / 6));
		const at = v => !isFinite(v) ? hi + step : v <= 0 ? lo - step : clamp(Math.log10(v));
		const power = e => e == 0 ? "1" : e == 1 ? "10" : "10" + [...String(e)].map(c => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]).join("");
		const y = { min: lo, max: hi, log: true, ticks: [] };
		if (values.some(v => v <= 0 && isFinite(v))) y.ticks.push({ at: y.min = at(0), text: "0" });
		for (let e = lo; e <= hi; e += step) y.ticks.push({ at: e, text: power(e) });
		if (values.some(v => !isFinite(v))) y.ticks.push({ at: y.max = at(NaN), text: "NaN, ∞" });
		const trace = (name, shape, ink, x, values, radius) => ({ name, shape, ink, x, y: values.map(at), text: values.map(number), radius });
		return { at, y, trace };
	}

	// layerAxis is a horizontal axis of places in the graph's order, labelled where a layer begins.
	const layerAxis = all => ({ label: "layer", min: -.5, max: all.length - .5, ticks: all.flatMap((c, i) => c.layer >= 0 && c.layer != all[i - 1]?.layer ? [{ at: i, text: String(c.layer) }] : []) });
	const placeNames = all => Object.fromEntries(all.map((c, i) => [i, `${c.tap} · ${c.op}`]));
	const indices = all => all.map((_, i) => i);
	const rounding = "what rounding makes", floorKey = [rounding, "--floor", "dashed"];

	function equationChart(curves) {
		const values = curves.map(c => value(c.residual)), floors = curves.map(c => value(c.floor)), s = decades([...values, ...floors]);
		const part = (name, ink, radius, flagged) => {
			const x = indices(curves).filter(i => curves[i].flagged == flagged);
			return s.trace(name, "dot", ink, x, x.map(i => values[i]), radius);
		};
		return figure("Equations", "Each dot is an operation computed again from the engine's own inputs: relative error of its worst row. Errors don't pile up here, so a high dot is where an error is made.",
			drawn("Equations: relative error by layer, logarithmic", { x: layerAxis(curves), y: s.y, names: placeNames(curves), traces: [s.trace(rounding, "dashed", "--floor", indices(curves), floors), part("holds", "--series0", 1.8, false), part("does not hold", "--bad", 2.6, true)] }),
			[["holds", "--series0", "dot"], ["does not hold", "--bad", "dot"], floorKey]);
	}
	function freeChart(curves) {
		const values = curves.map(c => value(c.free)), floors = curves.map(c => value(c.free_floor)), s = decades([...values, ...floors]);
		return figure("Free run", "The same places against the reference's own run: what an error has grown to on its way.",
			drawn("Free run: relative error by layer, logarithmic", { x: layerAxis(curves), y: s.y, names: placeNames(curves), traces: [s.trace("what rounding grows to", "dashed", "--floor", indices(curves), floors), s.trace("engine", "line", "--series0", indices(curves), values)] }),
			[["engine", "--series0", "line"], ["what rounding grows to", "--floor", "dashed"]]);
	}

	// heatMap sets operations by layers: the worst ratio of residual and floor of each.
	function heatMap(curves) {
		const bounds = [1, 3, 10, 1e2, 1e3, 1e4, 1e6], maxRows = 64, maxColumns = 160;
		const step = r => isFinite(r) ? bounds.filter(b => r > b).length : bounds.length + 1;
		const layers = [...new Set(curves.map(c => Math.max(-1, c.layer)))].sort((a, b) => a - b), share = Math.max(1, Math.ceil(layers.length / maxColumns));
		const columns = layers.filter((_, i) => i % share == 0), column = new Map(layers.map((l, i) => [l, Math.floor(i / share)]));
		let all = new Map();
		for (const c of curves) {
			const tap = c.tap.replace(/^(.*\.)?layers\.\d+\./, "").replace(/^model\./, "").replace(/\.out$/, ""), key = `${tap.slice(0, 32)} · ${c.op.slice(0, 12)}`;
			if (!all.has(key)) all.set(key, []);
			const row = all.get(key), at = column.get(Math.max(-1, c.layer)), r = ratio(c.residual, c.floor);
			if (!(row[at] >= r)) row[at] = r;
		}
		const worst = row => row.reduce((a, b) => Math.max(a, b), 0), left = Math.max(0, all.size - maxRows);
		const kept = new Set([...all].sort((a, b) => worst(b[1]) - worst(a[1]) || 0).slice(0, maxRows).map(r => r[0]));
		const every = Math.ceil(22 / Math.min(Math.max(560 / columns.length, 9), 24));
		const body = [...all].filter(r => kept.has(r[0])).map(([name, row]) => {
			const cells = columns.map((l, i) => {
				const cell = h("td", row[i] === undefined ? "" : `heat${step(row[i])}`);
				if (row[i] === undefined) return cell;
				cell.say = [name, `layer ${l < 0 ? "–" : l}: ${number(row[i])} floors`];
				cell.setAttribute("aria-label", number(row[i]));
				return cell;
			});
			return h("tr", "", h("th", "", name), cells);
		});
		const labels = columns.filter((_, i) => i % every == 0).map((l, i, some) => {
			const cell = h("th", "", l < 0 ? "–" : String(l));
			cell.colSpan = i == some.length - 1 ? columns.length - i * every : every;
			return cell;
		});
		const map = h("table", "map", h("tbody", "", body), h("tfoot", "", h("tr", "", h("th", "", "layer"), labels)));
		const say = p => {
			const told = root.getRootNode().elementFromPoint(p.clientX, p.clientY)?.say;
			told ? tell(p.clientX, p.clientY, told[0], [["", told[1]]]) : hush();
		};
		map.addEventListener("mousemove", say);
		map.addEventListener("mouseleave", hush);
		map.addEventListener("touchstart", e => say(e.touches[0]), { passive: true });
		const note = ["Residual of each operation in each layer, in floors: what rounding alone makes of it.", layers[0] < 0 && "– is outside the layers.",
			share > 1 && `A column is the worst of ${share} layers.`, left && `${left} rows with smaller errors are left out.`].filter(s => s).join(" ");
		const keys = ["up to 1", ...bounds.slice(1).map(b => `to ${number(b)}`), "more", "not a number, or no floor"].map((text, i) => [text, `--heat${i}`, "box"]);
		return figure("Operations by layers", note, scroll("Operations by layers", map), keys, "heat");
	}

	// wholeTicks labels positions 0 to n-1.
	function wholeTicks(n) {
		let step = 1;
		for (let i = 0; (n - 1) / step > 8; i++) step = [2, 5, 10][i % 3] * 10 ** Math.floor(i / 3);
		return Array.from({ length: Math.ceil(Math.max(n, 1) / step) }, (_, i) => ({ at: i * step, text: String(i * step) }));
	}
	// byPosition draws lines of [name, values, positions], and a floor if there is one.
	function byPosition(title, note, lines, floor) {
		lines = lines.slice(0, 5).map(([name, values, at]) => [name, values.map(value), at]);
		const most = Math.max(...lines.map(l => l[2].at(-1) + 1)), s = decades([...lines.flatMap(l => l[1]), ...(floor === undefined ? [] : [floor])]);
		const x = { label: "position", min: 0, max: Math.max(1, most - 1), ticks: wholeTicks(most) };
		const traces = lines.map(([name, values, at], i) => s.trace(name, "line", `--series${i}`, at, values, at.length <= 40 ? 2 : 0));
		const keys = traces.map(t => [t.name, t.ink, "line"]);
		if (floor !== undefined) {
			traces.unshift(s.trace(rounding, "dashed", "--floor", [0, x.max], [floor, floor]));
			keys.unshift(floorKey);
		}
		return figure(title, note, drawn(`${title} by position, logarithmic`, { x, y: s.y, traces }), keys);
	}

	// closureChart sets each prompt's distance before the findings are built in beside the distance after.
	function closureChart(logits) {
		const floor = value(data.floor), before = logits.map(l => value(l.kl_before)), after = logits.map(l => value(l.kl_after)), s = decades([...before, ...after, floor]), x = indices(logits);
		const from = s.trace("before", "dot", "--bad", x, before, 3.4), to = s.trace("with the findings built in", "dot", "--series0", x, after, 3.4);
		const across = { label: "prompt", min: -.5, max: logits.length - .5, ticks: logits.map((l, i) => ({ at: i, text: String(l.prompt) })) };
		return figure("Closure", "KL divergence of the engine's logits from the reference's, in nats.",
			drawn("KL divergence of each prompt before and after the findings are built in, logarithmic", {
				x: across, y: s.y, names: Object.fromEntries(logits.map((l, i) => [i, `prompt ${l.prompt}`])),
				traces: [{ shape: "stem", ink: "--grid", x, y: from.y, to: to.y }, s.trace(rounding, "dashed", "--floor", [across.min, across.max], [floor, floor]), from, to],
			}), [["before", "--bad", "dot"], ["with the findings built in", "--series0", "dot"], floorKey]);
	}

	// scatter sets the engine's logits against the reference's, null if there are none.
	function scatter(l) {
		const all = (l.scatter || []).map(p => p.map(value)).filter(p => p.every(isFinite)).sort((a, b) => a[0] - b[0]);
		if (!all.length) return null;
		let lo = Math.min(...all.flat()), hi = Math.max(...all.flat());
		if (hi - lo < 1e-3) [lo, hi] = [lo - 1, hi + 1];
		let step = 10 ** Math.floor(Math.log10((hi - lo) / 3));
		step *= [5, 2].find(t => (hi - lo) / (step * t) >= 3) || 1;
		const ticks = [];
		for (let i = Math.ceil(lo / step); i * step <= hi && ticks.length < 12; i++) ticks.push({ at: i * step, text: String(+(i * step).toPrecision(4)) });
		return figure("Logits", `${all.length} of the last position's; on the line they are equal.`, drawn(`The engine's logits of prompt ${l.prompt} over the reference's`, {
			width: 300, height: 300, x: { label: "reference's logit", min: lo, max: hi, ticks }, y: { label: "engine's logit", min: lo, max: hi, ticks },
			traces: [{ shape: "line", ink: "--floor", x: [lo, hi], y: [lo, hi] }, { name: "engine", shape: "dot", ink: "--series0", radius: 1.6, x: all.map(p => p[0]), y: all.map(p => p[1]), text: all.map(p => String(+p[1].toPrecision(5))) }],
		}));
	}

	// tokens sets the likeliest tokens of both sides beside each other.
	function tokens(l) {
		const engine = l.engine || [], reference = l.reference || [], n = Math.max(engine.length, reference.length);
		if (!n) return null;
		const cells = t => t ? [h("span", "", h("code", "", t.text), " ", h("small", "", String(t.id))), percent(t.probability)] : ["", ""];
		return table("Likeliest tokens", ["#", "engine", "#", "reference", "#"], Array.from({ length: n }, (_, i) => {
			const row = [String(i + 1), ...cells(engine[i]), ...cells(reference[i])];
			row.className = engine[i] && engine[i].id === reference[i]?.id ? "" : "differs";
			return row;
		}), "tokens");
	}

	function equationTable(curves) {
		const far = c => ratio(c.residual, c.floor), all = [...curves].sort((a, b) => far(b) - far(a) || 0);
		const more = all.length - 40 + data.more_curves;
		return folded("The worst equations as a table", false, table("The worst equations", ["tap", "operation", "#residual", "#floor", "#ratio", "#free run", "#its floor", "holds", "causes"], all.slice(0, 40).map(c =>
			[h("code", "", c.tap), c.op, number(c.residual), number(c.floor), number(far(c)), number(c.free), number(c.free_floor), c.flagged ? "no" : "yes", (c.causes || []).join(", ")])),
			more > 0 ? h("p", "", `And ${more} more, less far off.`) : null);
	}

	function closure() {
		const logits = data.logits || [];
		if (!logits.length) return section("Closure: do the findings explain the logits?", list([data.closure]));
		const all = table("Logits of each prompt", ["#prompt", "#KL before", "#after", "#top 1", "#top 10", "#cosine", "text"], logits.map(l =>
			[String(l.prompt), number(l.kl_before), number(l.kl_after), percent(l.top1), percent(l.top10), h("span", "faint", isFinite(value(l.cosine)) ? l.cosine.toFixed(5) : number(l.cosine)), h("span", "text", l.short)]));
		all.append(h("p", "note", "Cosine is shown because people ask for it; nothing is judged by it.", data.more_logits ? ` ${data.more_logits} more prompts, less far away, are in the JSON file.` : ""));
		return section("Closure: do the findings explain the logits?", list([data.closure]), h("div", "beside", data.findings?.length ? closureChart(logits.slice(0, 60)) : null, all));
	}

	function diagnosis() {
		const curves = data.curves || [], findings = data.findings || [], logits = data.logits || [];
		const main = h(mainTag, "main", section("What happened", data.story.map(s => h("p", "", unbroken(s)))));
		main.firstChild.className = "story";
		if (findings.length)
			main.append(section("Findings, first cause first", h("ol", "findings", findings.map((f, i) => h("li", "", h("h3", "", h("span", "number", String(i + 1)), " ", h("code", "", f.cause)),
				h("dl", "", facts(f.facts), f.met && h("div", "met", h("dt", "", "met before"), h("dd", "", f.met)))))), data.more_findings ? h("p", "", `And ${data.more_findings} more, in the JSON file.`) : null));
		if (curves.length) main.append(section("Where", heatMap(curves), charts(equationChart(curves), freeChart(curves)), equationTable(curves)));
		const rows = findings.filter(f => f.rows).map(f => [f.name, f.rows, f.positions]), kl = logits.filter(l => l.by_position).map(l => [`prompt ${l.prompt}`, l.by_position, l.positions]);
		if (rows.length || kl.length)
			main.append(section("By position", charts(rows.length ? byPosition("Findings by position", "Relative error of each finding's first equation, in the longest tapped prompt.", rows) : null,
				kl.length ? byPosition("Logits by position", "KL divergence in nats, of the prompts that are farthest away, before the findings are built in.", kl, value(data.floor)) : null)));
		main.append(closure());
		const last = logits.map(l => [l, scatter(l), tokens(l)]).filter(p => p[1] || p[2]);
		if (last.length) main.append(section("The last position's logits", last.map(([l, ...parts], i) => folded(`Prompt ${l.prompt}${l.text ? `: ${l.text}` : ""}`, i == 0, h("div", "beside", parts)))));
		const floors = Object.entries(data.floors).sort((a, b) => a[0] < b[0] ? -1 : 1);
		main.append(h("section", "columns", h("div", "", h("h2", "", "Not to be seen with these taps and prompts"), list(data.blind, "Nothing that is known.")),
			h("div", "", h("h2", "", "Inferred, since the dump does not tell"), list(data.inferred, "Nothing.")),
			h("div", "", h("h2", "", "Seen"), list(data.seen), floors.length ? table("Floors", ["operation", "#floor, relative"], floors.map(([op, floor]) => [op, number(floor)])) : null)));
		const raw = folded("The data of this page as JSON", false, h("pre", "", JSON.stringify(data, null, 1)));
		raw.className = "raw";
		main.append(h("section", "", raw));
		return [h("header", data.passed ? "good" : "bad", h("p", "verdict", data.verdict), h("h1", "", unbroken(data.headline)),
			h("p", "what", data.dump && h("b", "", data.dump), data.model && [" against ", h("b", "", data.model)]), h("dl", "facts", facts(data.facts))), main,
		h("footer", "", h("p", "", "Made by ", h("code", "", "karat lab diagnose"), ". Residual: relative error of the worst row, the operation computed again in float64 from the engine's own inputs. Floor: what rounding alone makes of it, measured. KL: nats, mean over positions."),
			data.hashes && h("p", "hashes", data.hashes))];
	}

	function stats() {
		const panels = [["RMS", "Root of the mean square of the finite values.", p => value(p.rms)],
		["Largest", "Largest absolute value; a value that is not finite is at the top.", p => p.nan + p.inf > 0 ? NaN : value(p.max_abs)],
		["Mean", "Absolute mean of the finite values.", p => Math.abs(value(p.mean))]];
		const figures = [["Nodes", data.nodes], ["Weights", data.weights]].flatMap(([of, points]) => !points ? [] : panels.map(([title, note, get]) => {
			const values = points.map(get), s = decades(values);
			return figure(`${of}: ${title}`, note, drawn(`${of}: ${title} by layer, logarithmic`, { x: layerAxis(points), y: s.y, names: placeNames(points), traces: [s.trace(title, "dot", "--series0", indices(points), values, 1.8)] }));
		}));
		return [h("header", "good", h("h1", "", data.model), h("p", "what", data.of)), h(mainTag, "main", section("In the order of the graph", charts(figures)))];
	}

	root.prepend(...(data.stats ? stats() : diagnosis()));
	return () => plots.forEach(u => u.redraw(false));
}
