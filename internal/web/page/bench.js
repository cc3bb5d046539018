// Bench: a prompt as it is, by the model's template or raw, timed again and again.

function makeBench() {
	$('bench').append(h('div', { class: 'card' }, h('h2', { t: 'benchTitle' }), h('p', { class: 'muted', t: 'benchHelp' }),
		field('benchPrompt', h('textarea', { id: 'bench-prompt', rows: 2, dir: 'auto', value: 'The color of the sky is' })),
		h('div', { class: 'row' }, h('label', { class: 'check' }, h('input', { id: 'bench-template', type: 'checkbox' }), h('span', { t: 'withTemplate' })),
			field('benchTokens', amount('bench-tokens', 32, 2, 4096)), field('warmUp', amount('bench-warm', 1, 0, 20)), field('repetitions', amount('bench-repeat', 3, 1, 50))),
		h('div', { class: 'row' }, ...runButtons('bench', bench), h('span', { id: 'bench-state', class: 'muted', role: 'status' }))),
	h('div', { id: 'bench-result', class: 'result' }));
	fresh.push(() => $('bench-result').replaceChildren());
}

const median = a => { const s = [...a].sort((x, y) => x - y), m = s.length >> 1; return s.length % 2 ? s[m] : (s[m - 1] + s[m]) / 2; };
const deviation = a => a.length < 2 ? 0 : Math.sqrt(a.map(x => (x - a.reduce((s, y) => s + y, 0) / a.length) ** 2).reduce((s, y) => s + y, 0) / (a.length - 1));

async function bench() {
	await during('bench', async () => {
		await call('reset');
		const text = $('bench-prompt').value, templated = $('bench-template').checked;
		const prompt = templated ? [{ role: 'user', content: text }] : text;
		const rendered = templated ? await call('render', { messages: prompt }) : { text, tokens: await call('tokenize', { text }) };
		const [count, warm, repeat] = [read($('bench-tokens')), read($('bench-warm')), read($('bench-repeat'))];
		const runs = [];
		for (let i = 0; i < warm + repeat; i++) {
			say($('bench-state'), i < warm ? 'warming' : 'repeating', { i: i < warm ? i + 1 : i - warm + 1, n: i < warm ? warm : repeat });
			await call('reset'); // else the prompt would be there already
			const r = await call('generate', { prompt, options: { maxTokens: count, sampling: { temperature: 0 } } });
			if (r.stop === 'aborted') return;
			guard(r, rendered, count);
			if (i >= warm) runs.push(r);
		}
		keep(runs.at(-1).stats);
		const kernels = info.adapter?.timestamps ? await timeKernels(prompt, count) : null;
		showBench({ rendered, templated, text, count, warm, runs, kernels });
	});
	$('bench-state').textContent = '';
	said.delete($('bench-state'));
}

// guard refuses a run that is not the one that is told of: of other tokens, or with keys and
// values that a run before had left.
function guard(r, { tokens }, count) {
	const what = r.prompt !== tokens.length ? `${r.prompt} tokens of prompt, and not ${tokens.length}` : r.kept !== 0 ? `${r.kept} tokens were there already` : r.tokens > count ? `${r.tokens} tokens, and not ${count}` : '';
	if (what) throw Object.assign(new Error(t('benchOther', { what })), { kind: 'other' });
}

// timeKernels is what each kernel took in a run of its own.
async function timeKernels(prompt, count) {
	say($('bench-state'), 'timing');
	await call('reset');
	await call('time', { on: true });
	try {
		await call('generate', { prompt, options: { maxTokens: count, sampling: { temperature: 0 } } });
		return await call('time', { on: false });
	} catch (e) {
		await call('time', { on: false });
		throw e;
	}
}

// kernelName is a kernel's name without what is 0, false or empty.
const kernelName = name => name.replace(/(\w+:)?[{[]|[}\]]/g, ' ').replace(/\w+:(0|false)?(?= |$)/g, '').replace(/:true\b/g, '').replace(/ +/g, ' ').trim();

// report is what is to be copied: enough that another can do the same.
function report({ rendered, templated, text, count, warm, runs, kernels }) {
	const prompts = runs.map(r => r.prompt / r.promptSeconds), tokens = runs.map(rate);
	return {
		program: 'karat web ' + (version || SITE.version), wasm_sha256: SITE.files['karat.wasm'].sha256, page: 'generate', time: new Date().toISOString(),
		model: { name: info.name, architecture: info.architecture, bytes: info.size, sha256: info.sha256 }, backend: info.backend, adapter: info.adapter || null,
		user_agent: navigator.userAgent, hardware_concurrency: navigator.hardwareConcurrency,
		prompt: { text, template: templated, rendered: rendered.text, ids: rendered.tokens.map(x => x.id) }, max_tokens: count, warm_up: warm, repetitions: runs.length, sampling: 'greedy',
		prompt_tokens: runs.map(r => r.prompt), prompt_kept: runs.map(r => r.kept), stopped: runs.map(r => r.stop), tokens: runs.map(r => r.tokens), prompt_seconds: runs.map(r => r.promptSeconds), decode_seconds: runs.map(r => r.seconds),
		prompt_tokens_per_second: { median: median(prompts), stddev: deviation(prompts) }, decode_tokens_per_second: { median: median(tokens), stddev: deviation(tokens) },
		memory: { wasm_bytes: info.stats.wasmBytes, gpu_bytes: info.stats.gpuBytes }, kernels,
	};
}

function kernelTable(kernels) {
	if (!kernels?.length) return h('div', { class: 'card' }, h('p', { class: 'muted', t: 'noKernels' }));
	const all = kernels.reduce((sum, k) => sum + k.seconds, 0) || 1;
	return h('div', { class: 'card' }, table('kernels', [{ t: 'kernel' }, { t: 'calls', n: true }, { t: 'milliseconds', n: true }, { t: 'share', n: true }],
		kernels.map(k => [{ text: kernelName(k.name), class: 'mono', dir: 'ltr', title: k.name }, number_(number(k.dispatches)), number_(number(k.seconds * 1e3)), number_(percent(k.seconds / all))])), h('p', { class: 'muted', t: 'kernelsHelp' }));
}

function showBench(b) {
	const r = report(b), json = JSON.stringify(r, null, 1), line = x => `${number(x.median)} ± ${number(x.stddev, 2)}`;
	const copy = h('button', { t: 'copy', onclick: async () => {
		try {
			await navigator.clipboard.writeText(json);
			say(copy, 'copied');
		} catch {
			text.select();
			say(copy, 'copyByHand');
		}
	} });
	const text = h('textarea', { class: 'mono', id: 'bench-json', readonly: true, rows: 10, dir: 'ltr', tLabel: 'benchJSON', value: json });
	const parts = [h('div', { class: 'card' }, table('benchTable', [{ t: 'test' }, { t: 'tokensColumn', n: true }, { t: 'rate', n: true }], [
		[{ t: 'promptColumn' }, number_(String(b.rendered.tokens.length)), number_(line(r.prompt_tokens_per_second))],
		[{ t: 'decode' }, number_(String(median(b.runs.map(x => x.tokens)))), number_(line(r.decode_tokens_per_second))]]),
	h('p', { class: 'muted', t: ['benchSaid', { warm: b.warm, runs: counted('runs', b.runs.length) }] }), h('p', { class: 'muted', t: ['benchMemory', { memory: () => memory(info.stats) }] }), idList(b.rendered.tokens))];
	if (info.backend === 'webgpu') parts.push(kernelTable(b.kernels));
	parts.push(h('div', { class: 'card' }, h('div', { class: 'head' }, h('h3', { t: 'benchJSON' }), copy), text));
	$('bench-result').replaceChildren(...parts);
	announce(t('benchDone', { rate: r.decode_tokens_per_second.median }));
}
