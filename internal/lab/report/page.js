// The charts of a page with scripts. Each figure brings its SVG, which stays for
// print, and its data as JSON: charts are drawn anew by uPlot, to be read point by
// point and enlarged; a heat map's cells say their values.
(() => {
	"use strict";
	const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
	const element = (parent, tag, className, text) => {
		const e = document.createElement(tag);
		if (className) e.className = className;
		if (text !== undefined) e.textContent = text;
		return parent.appendChild(e);
	};
	const plots = [];

	// tip is the box with the values at the pointer.
	const tip = element(document.body, "div", "tip");
	tip.hidden = true;
	tip.setAttribute("role", "status");
	function tell(x, y, title, lines) {
		tip.replaceChildren();
		element(tip, "b", "", title);
		for (const [ink, text] of lines) {
			const row = element(tip, "div");
			if (ink) element(row, "i").style.setProperty("--ink", `var(${ink})`);
			row.append(text);
		}
		tip.hidden = false;
		const left = x + 14 + tip.offsetWidth > innerWidth ? x - 14 - tip.offsetWidth : x + 14;
		tip.style.left = `${scrollX + Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 4))}px`;
		tip.style.top = `${scrollY + Math.max(4, y - 14 - tip.offsetHeight)}px`;
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
		const all = element(box, "button", "", "Whole chart");
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
		for (const name of ["touchstart", "touchmove"])
			u.over.addEventListener(name, e => {
				const r = u.over.getBoundingClientRect(), t = e.touches[0];
				u.setCursor({ left: t.clientX - r.left, top: t.clientY - r.top });
			}, { passive: true });
		new ResizeObserver(() => { if (box.clientWidth && box.clientWidth != u.width) u.setSize(size()) }).observe(box);
		plots.push(u);
		return u;
	}

	// cells lets a heat map's cells say their values.
	function cells(svg, map) {
		const say = p => {
			const r = svg.getBoundingClientRect(), scale = r.width / svg.viewBox.baseVal.width;
			const c = Math.floor(((p.clientX - r.left) / scale - map.left) / map.cellWidth), w = Math.floor(((p.clientY - r.top) / scale - map.top) / map.cellHeight);
			const value = map.values[w]?.[c];
			if (!value) return hush();
			tell(p.clientX, p.clientY, map.rows[w], [["", `layer ${map.columns[c]}: ${value} floors`]]);
		};
		svg.addEventListener("mousemove", say);
		svg.addEventListener("mouseleave", hush);
		svg.addEventListener("touchstart", e => say(e.touches[0]), { passive: true });
	}

	for (const data of document.querySelectorAll("figure > script")) {
		const chart = JSON.parse(data.textContent), svg = data.parentElement.querySelector("svg");
		if (chart.values) {
			cells(svg, chart);
			continue;
		}
		const box = document.createElement("div");
		box.className = "live";
		box.title = "";
		box.setAttribute("role", "img");
		box.setAttribute("aria-label", chart.label + ". Drag to enlarge, double-click for the whole.");
		svg.before(box);
		// What is folded has no width yet.
		const first = new ResizeObserver(() => {
			if (!box.clientWidth) return;
			first.disconnect();
			draw(box, chart);
		});
		first.observe(box);
	}
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach(u => u.redraw(false)));
})();
