// A program that stands in for Karat's, so that the page can be tested without it: it
// says fixed words, and fails as it is told to by what is asked of it.
globalThis.Go = class {
	importObject = { gojs: {} };
	run() {
		globalThis.karat = standIn;
		globalThis.karatGPU = { time: on => on ? [] : kernels };
		return new Promise(() => {});
	}
};
const rest = (ms, signal) => new Promise((done, gone) => {
	setTimeout(done, ms);
	signal?.addEventListener('abort', () => gone(new DOMException('stopped', 'AbortError')));
});
let seen = []; // the tokens whose keys and values the model has
const split = text => text.match(/\s?\S+/g)?.map((text, i) => ({ id: 500 + i, text })) || [];
const numbers = { n: 3584, nan: 0, inf: 0, zero: 12, min: -3.25, max: 11.5, mean: 0.02, std: 0.91, rms: 0.92 };
const standIn = {
	version: 'v0.0.0-test',
	loads: 0,
	adapters: async () => { throw new Error('gpu: the browser has no WebGPU'); },
	sha256() {
		const parts = [];
		return { write: b => parts.push(b), sum: async () => [...new Uint8Array(await crypto.subtle.digest('SHA-256', await new Blob(parts).arrayBuffer()))].map(x => x.toString(16).padStart(2, '0')).join('') };
	},
	async check([source]) {
		const head = source.bytes ? source.bytes.slice(0, 16) : await source.read(0, 16), text = String.fromCharCode(...head);
		if (!text.startsWith('GGUF')) throw Object.assign(new Error(`gguf: ${source.name}: offset 0: magic is wrong`), { kind: 'file' });
		if (text.startsWith('GGUFmamba')) throw Object.assign(new Error(`checkpoint: ${source.name}: architecture "mamba" is not supported (llama is)`), { kind: 'architecture' });
	},
	async load([source], { backend, onProgress }) {
		const text = String.fromCharCode(...source.bytes ? source.bytes.slice(0, 16) : await source.read(0, 16));
		onProgress(source.size / 2, source.size);
		for (let i = 0; text.startsWith('GGUFslow') && i < 500; i++) await rest(20).then(() => source.read(i, 1)); // a load that takes long
		if (text.startsWith('GGUFlarge')) throw Object.assign(new Error('gpu: out of memory'), { kind: 'memory' });
		standIn.loads++;
		seen = [];
		const gpu = backend === 'webgpu';
		model.info = { ...model.info, template: text.startsWith('GGUFbare') ? '' : '{{ messages }}', sampling: { temperature: text.startsWith('GGUFwarm') ? 0.7 : 0 }, backend: gpu ? backend : 'cpu', adapter: gpu ? { name: 'stand-in', kind: 'discrete', timestamps: true } : null };
		return model;
	},
};
const model = {
	info: { name: 'stand-in', architecture: 'gemma3', bytes: 11853824, vocab: 6144, context: 4096, maxContext: 4096, template: '{{ messages }}', notes: [], backend: 'cpu', adapter: null, threads: 1, sampling: { temperature: 0 } },
	async render(messages) {
		const text = messages.map(m => `<start_of_turn>${m.role}\n${m.content}<end_of_turn>\n`).join('') + '<start_of_turn>model\n';
		return { text, tokens: split(text) };
	},
	async tokenize(text) { return split(text); },
	async generate(prompt, { maxTokens, sampling, signal, tools, receipt }, onToken) {
		const asked = typeof prompt === 'string' ? prompt : prompt.at(-1).content;
		const ids = typeof prompt === 'string' ? split(prompt) : (await this.render(prompt)).tokens;
		let kept = 0;
		while (kept < ids.length - 1 && ids[kept].text === seen[kept]?.text) kept++;
		seen = ids;
		const kind = /^fail (\S+)/.exec(asked)?.[1];
		if (kind) throw Object.assign(new Error(`webgpu: blk.3.ffn_down: ${kind}`), { kind });
		const most = maxTokens < 0 ? 4096 : maxTokens;
		const fenced = v => ['````\n', JSON.stringify(v), '\n````']; // as it is, whatever Markdown makes of the rest
		const calls = tools && /^call /.test(asked) ? asked.slice(5).split(' ').map((name, i) => ({ id: 'c' + i, name, arguments: '{"city":"Paris"}' })) : [];
		const words = calls.length ? [] : asked === 'settings' ? fenced(sampling) : /(^|\n)prompt$/.test(asked) ? fenced(prompt) : asked.startsWith('echo ') ? asked.slice(5).match(/[^]{1,7}/g) : asked === 'one' ? ['One'] : asked === 'wait' ? ['never'] : /^lines/.test(asked) ? Array.from({ length: most }, (_, i) => `line ${i}\n`) : /^count/.test(asked) ? Array.from({ length: most }, (_, i) => ' ' + i) : / /.test(asked) && /[؀-ۿ]/.test(asked) ? [' السماء', ' زرقاء.'] : [' The sky', ' is <b>blue</b>', ' & wide.'];
		let n = 0, stop = 'end';
		for (const text of words) {
			try {
				await rest(asked === 'wait' ? 1e6 : 20, signal);
			} catch {
				stop = 'aborted';
				break;
			}
			n++;
			onToken({ id: n, text, logprob: -0.1 });
		}
		for (const call of calls) onToken({ call });
		return { text: words.slice(0, n).join(''), stop, prompt: ids.length, kept, tokens: n, promptSeconds: 0.05, seconds: n * 0.02, receipt: receipt ? JSON.stringify({ receipt: 1, answer: [...Array(n).keys()] }) : undefined };
	},
	progress: () => [340, 1200],
	async embed(texts) { return { vectors: texts.map((_, i) => [1, i]), tokens: texts.length }; },
	async verify(text, { onProgress }) {
		const { answer = [], says = [] } = JSON.parse(text);
		for (let i = 1; i <= answer.length; i++) await rest(20).then(() => onProgress(i, answer.length));
		return { findings: says, tokens: 3, signed: false, draws: true, distance: 0, verified: !says.length };
	},
	async reset() { seen = []; },
	async stats() { return { gpuBytes: this.info.adapter ? 90 << 20 : 0, kvBytes: 1 << 20, wasmBytes: 64 << 20, dispatches: 0, dispatchesPerToken: 0 }; },
	async prove(_, { onProgress }) {
		const prompts = ['Hello', 'Hello world', 'The color of the sky is', 'ما لون السماء؟'].map((text, index) => ({ index, text, ids: 'equal', positions: 1, kl_mean: 1.2e-13, max_abs_diff: 3.1e-6, max_diff_limit: 1.1e-5, top1: 1, top5: 1, top10: 1, inside: true }));
		for (const p of prompts) { onProgress(p.index + 1, 5, p.text, p); await rest(50); }
		return { prompts, all: { kl_mean: 1.2e-13 }, inside: true, taps: [{ name: 'blk.0.attn_q', rows: 7, whole: 1e-7, worst: 3e-7, worst_row: 2 }] };
	},
	async nodes() { return [{ name: 'token_embd', hf: 'model.embed_tokens', op: 'rows', layer: -1, shape: [512], heads: 0 }, { name: 'blk.0.attn_norm', hf: 'input_layernorm', op: 'norm', layer: 0, shape: [512], heads: 0 }, { name: 'blk.0.attention', hf: '', op: 'attention', layer: 0, shape: [512], heads: 8 }]; },
	async probe(name) {
		const counts = Array.from({ length: 64 }, (_, i) => Math.round(900 * Math.exp(-(((i - 14) / 7) ** 2))) + (i === 63 ? 1 : 0));
		return { name, op: 'norm', layer: 0, dtype: 'f32', shape: [7, 512], tokens: Array(7).fill({ id: 500, text: ' sky' }), all: numbers, rows: Array(7).fill(numbers), histogram: { from: -3.25, to: 11.5, counts } };
	},
	async change(change, prompt) {
		const { by } = change;
		await rest(30);
		const rank = (rank, logprob, logit) => ({ rank, logprob, logit });
		return { same_bits: by === 1, kl: 0.25 * Math.abs(1 - by), text_before: ' blue. The day', text_after: prompt === 'settings' ? JSON.stringify(change) : by ? ' blue. The day' : ' green. The day', tokens: [{ id: 1, text: ' blue.', before: rank(1, -0.01, 21.8), after: rank(by ? 1 : 2, -0.01 - 2 * Math.abs(1 - by), 21.8 - 8 * (1 - by)) }, { id: 2, text: ' green.', before: rank(2, -5, 3.2), after: rank(by ? 2 : 1, -5 + 4.9 * Math.abs(1 - by), 18) }] };
	},
	async close() {},
};
const kernels = [['linear{layout:{Plain: Bits:4 High:0 Min:true Table:[]} ending:{Outs:1 GLU:gelu_tanh(a) * b Add:false} Lanes:8}', 6, 0.0812], ['map[Binary:true Is:a + b]', 12, 0.0004]]
	.map(([name, dispatches, seconds]) => ({ name, dispatches, seconds }));
