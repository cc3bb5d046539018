// Probe: what one node of the graph computes for a text, all of it, and what the model says if that is changed.

// openProbe shows the probe beside the conversation, or takes it away.
function openProbe(on) {
	$('probe').hidden = !on;
	document.body.classList.toggle('probing', on);
	$('open-probe').setAttribute('aria-expanded', on);
	if (on) $('probe').scrollIntoView({ block: 'nearest' });
}

// probed is what the probe computes: the open conversation up to its last question, or a text.
function probed() {
	const turns = branch(current()), last = turns.findLastIndex(x => x.role === 'user');
	return $('probe-of').value === 'talk' && mode() === 'chat' && last >= 0 ? messages(current(), turns.slice(0, last + 1)) : $('probe-text').value;
}

function makeProbe() {
	$('probe').append(h('div', { class: 'card' }, h('h2', { t: 'probeTitle' }), h('p', { class: 'muted', t: 'probeHelp' }),
		field('probeOf', h('select', { id: 'probe-of', onchange: () => { $('probe-text').parentElement.hidden = $('probe-of').value === 'talk'; } }, h('option', { value: '', t: 'probeText' }), h('option', { value: 'talk', t: 'conversation' }))),
		field('probeText', h('textarea', { id: 'probe-text', rows: 2, dir: 'auto', value: 'The color of the sky is' })),
		h('div', { class: 'row' }, field('node', h('input', { id: 'node', list: 'nodes', dir: 'ltr', autocomplete: 'off', spellcheck: 'false', class: 'mono' }), { class: 'field grow' }), h('datalist', { id: 'nodes' })),
		h('div', { class: 'row' }, ...runButtons('probe', probe), h('button', { id: 'node-before', t: 'before', 'data-needs': '', onclick: () => step(-1) }), h('button', { id: 'node-next', t: 'next', 'data-needs': '', onclick: () => step(1) }))),
	h('div', { id: 'probe-result', class: 'result' }));
	fresh.push(listNodes);
	if (location.hash === '#probe') openProbe(true);
}

let nodes = [];

async function listNodes() {
	$('probe-result').replaceChildren();
	try {
		nodes = await call('nodes');
	} catch (e) { // another operation was faster: the list comes with the next model
		nodes = [];
	}
	$('nodes').replaceChildren(...nodes.map(n => h('option', { value: n.name }, [n.op, n.hf].filter(Boolean).join(' · '))));
	$('node').value = nodes.find(n => /attn/.test(n.name))?.name || nodes[0]?.name || '';
}

// step goes to the node before or behind, and probes it.
function step(by) {
	const i = nodes.findIndex(n => n.name === $('node').value), to = nodes[i + by];
	if (!to) return;
	$('node').value = to.name;
	probe();
}

async function probe() {
	const name = $('node').value.trim();
	if (!nodes.some(n => n.name === name)) {
		$('node').setCustomValidity(t('noNode'));
		$('node').reportValidity();
		$('node').oninput = () => $('node').setCustomValidity('');
		return;
	}
	const prompt = probed();
	await during('probe', async () => showProbe(await call('probe', { name, prompt }), prompt));
}

function showProbe(p, prompt) {
	const a = p.all, fact = (key, v) => h('div', null, h('dt', { t: key }), h('dd', { dir: 'ltr' }, v));
	const strange = a.nan + a.inf > 0;
	$('probe-result').replaceChildren(
		h('div', { class: 'card' }, h('h3', { class: 'mono', dir: 'ltr' }, p.name),
			strange ? h('p', { class: 'badly', t: ['probeStrange', { nan: a.nan, inf: a.inf }] }) : null,
			h('dl', { class: 'facts', id: 'probe-facts' }, fact('operation', p.op), fact('dtype', p.dtype), fact('shape', '[' + p.shape.join(', ') + ']'), fact('values', number(a.n)),
				fact('minimum', exponent(a.min)), fact('maximum', exponent(a.max)), fact('mean', exponent(a.mean)), fact('std', exponent(a.std)), fact('rms', exponent(a.rms)),
				fact('zeros', number(a.zero)), fact('nans', number(a.nan)), fact('infs', number(a.inf)))),
		changeCard(p, prompt),
		h('div', { class: 'card' }, h('h3', { t: 'histogram' }), histogram(p.histogram)),
		p.rows?.length ? h('div', { class: 'card' }, table('rows', [{ t: 'row', n: true }, { t: 'tokenColumn' }, { t: 'minimum', n: true }, { t: 'maximum', n: true }, { t: 'mean', n: true }, { t: 'rms', n: true }],
			p.rows.map((r, i) => [number_(String(i)), { text: visible(p.tokens[i].text), class: 'mono', dir: 'auto' }, ...[r.min, r.max, r.mean, r.rms].map(v => number_(exponent(v)))]))) : '');
	announce(t('probeDone', { name: p.name, rms: exponent(a.rms) }));
}

// slider is a labelled range. shown gives the words for a value, a key and what it takes.
function slider(key, id, min, max, step, value, shown) {
	const out = h('output', { for: id }), input = h('input', { id, type: 'range', min, max, step, value, dir: 'ltr' });
	const show = () => {
		say(out, ...shown(Number(input.value)));
		input.setAttribute('aria-valuetext', out.textContent);
	};
	input.addEventListener('input', show);
	show();
	return h('label', { class: 'field' }, h('span', { t: key }), h('div', { class: 'slider' }, input, out));
}

// changeCard has the sliders that multiply values: of all heads or one, at all positions or one.
function changeCard({ name, tokens }, prompt) {
	const heads = nodes.find(n => n.name === name)?.heads || 0, one = id => ($(id)?.value ?? -1) < 0 ? '' : $(id).value;
	const change = () => { // a move while something runs, such as the last one, is computed behind it
		if (busy) waiting.add(change);
		else if (card.isConnected) during('probe', async () => showChange(await call('change', { prompt, change: { node: name, heads: one('change-head'), positions: one('change-position'), by: Number($('change-by').value) } })));
	};
	const card = h('div', { class: 'card', onchange: change }, h('h3', { t: 'changeTitle' }), h('p', { class: 'muted', t: 'changeHelp' }),
		h('div', { class: 'sliders' },
			slider('factor', 'change-by', -2, 4, 0.1, 1, by => ['changeBy', { by }]),
			slider('row', 'change-position', -1, tokens.length - 1, 1, -1, i => i < 0 ? ['every'] : ['changeAt', { i, token: visible(tokens[i].text) }]),
			heads ? slider('head', 'change-head', -1, heads - 1, 1, -1, i => i < 0 ? ['every'] : ['changeHead', { i }]) : null),
		h('div', { id: 'change-result', class: 'result' }));
	return card;
}

function showChange(e) {
	const said = e.same_bits ? ['changeSame'] : ['changeText', { kl: exponent(e.kl), before: e.text_before || '', after: e.text_after || '' }], share = x => number_(percent(Math.exp(Number(x.logprob))));
	$('change-result')?.replaceChildren(h('p', { dir: 'auto', t: said }),
		table('changeTable', [{ t: 'tokenColumn' }, { t: 'unchanged', n: true }, { t: 'changed', n: true }, { t: 'deltaLogit', n: true }],
			e.tokens.map(c => [{ text: visible(c.text), class: 'mono', dir: 'auto' }, share(c.before), share(c.after), number_(exponent(c.after.logit - c.before.logit))])));
	announce(t(...said));
}

// histogram draws counts as bars whose height is their logarithm, so that a single
// outlier is seen beside thousands.
function histogram({ from, to, counts }) {
	const svg = (tag, props, text) => {
		const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
		for (const [k, v] of Object.entries(props)) e.setAttribute(k, v);
		if (text !== undefined) e.textContent = text;
		return e;
	};
	const width = Math.min(640, $('probe').clientWidth - 40), height = 200, foot = 22, most = Math.max(...counts, 1), tall = n => n ? Math.max(2, (height - foot - 14) * Math.log1p(n) / Math.log1p(most)) : 0;
	const root = svg('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img' }), w = width / counts.length;
	say(root, 'histogramLabel', { from: exponent(from), to: exponent(to), most }, 'label');
	counts.forEach((n, i) => {
		const bar = svg('rect', { x: (i * w + 0.5).toFixed(2), y: (height - foot - tall(n)).toFixed(2), width: (w - 1).toFixed(2), height: tall(n).toFixed(2) });
		bar.append(svg('title', {}, `${exponent(from + (to - from) * i / counts.length)} … ${exponent(from + (to - from) * (i + 1) / counts.length)}: ${n}`));
		root.append(bar);
	});
	root.append(svg('line', { x1: 0, x2: width, y1: height - foot, y2: height - foot }), svg('text', { x: 2, y: height - 6 }, exponent(from)),
		svg('text', { x: width - 2, y: height - 6, 'text-anchor': 'end' }, exponent(to)), svg('text', { x: width / 2, y: height - 6, 'text-anchor': 'middle' }, exponent((from + to) / 2)));
	return h('figure', null, root, h('figcaption', { class: 'muted', t: 'histogramHelp' }));
}
