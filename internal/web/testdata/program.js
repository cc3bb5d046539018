// A program that stands in for Karat's, so that the page can be tested without it: it
// says fixed words, and fails as it is told to by what is asked of it.
globalThis.Go = class {
	importObject = {};
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
const split = text => text.match(/ ?[^ ]+/g)?.map((text, i) => ({ id: 500 + i, text })) || [];
const numbers = { n: 3584, nan: 0, inf: 0, zero: 12, min: -3.25, max: 11.5, mean: 0.02, std: 0.91, rms: 0.92 };
const standIn = {
	version: 'v0.0.0-test',
	adapters: async () => { throw new Error('gpu: the browser has no WebGPU'); },
	sha256() {
		const parts = [];
		return { write: b => parts.push(b), sum: async () => [...new Uint8Array(await crypto.subtle.digest('SHA-256', await new Blob(parts).arrayBuffer()))].map(x => x.toString(16).padStart(2, '0')).join('') };
	},
	async load([source], { backend, onProgress }) {
		const head = source.bytes ? source.bytes.slice(0, 4) : await source.read(0, 4);
		if (String.fromCharCode(...head) !== 'GGUF') throw Object.assign(new Error(`gguf: ${source.name}: offset 0: magic is wrong`), { kind: 'file' });
		onProgress(source.size / 2, source.size);
		const gpu = backend === 'webgpu';
		model.info = { ...model.info, backend: gpu ? backend : 'cpu', adapter: gpu ? { name: 'stand-in', kind: 'discrete', timestamps: true } : null };
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
	async generate(prompt, { maxTokens, sampling, signal }, onToken) {
		const asked = typeof prompt === 'string' ? prompt : prompt.at(-1).content;
		const kind = /^fail (\S+)/.exec(asked)?.[1];
		if (kind) throw Object.assign(new Error(`webgpu: blk.3.ffn_down: ${kind}`), { kind });
		const words = asked === 'settings' ? [JSON.stringify(sampling)] : /^count/.test(asked) ? Array.from({ length: maxTokens }, (_, i) => ' ' + i) : / /.test(asked) && /[؀-ۿ]/.test(asked) ? [' السماء', ' زرقاء.'] : [' The sky', ' is <b>blue</b>', ' & wide.'];
		let n = 0, stop = 'end';
		for (const text of words) {
			try {
				await rest(20, signal);
			} catch {
				stop = 'aborted';
				break;
			}
			n++;
			onToken({ id: n, text, logprob: -0.1 });
		}
		return { text: words.slice(0, n).join(''), stop, prompt: 7, kept: 0, tokens: n, promptSeconds: 0.05, seconds: n * 0.02 };
	},
	async reset() {},
	async stats() { return { gpuBytes: this.info.adapter ? 90 << 20 : 0, kvBytes: 1 << 20, wasmBytes: 64 << 20, dispatches: 0, dispatchesPerToken: 0 }; },
	async prove(_, { onProgress }) {
		const prompts = ['Hello', 'Hello world', 'The color of the sky is', 'ما لون السماء؟'].map((text, index) => ({ index, text, ids: 'equal', positions: 1, kl_mean: 1.2e-13, max_abs_diff: 3.1e-6, max_diff_limit: 1.1e-5, top1: 1, top5: 1, top10: 1, inside: true }));
		onProgress(2, 4, 'Hello');
		return { prompts, all: { kl_mean: 1.2e-13 }, inside: true, taps: [{ name: 'blk.0.attn_q', rows: 7, whole: 1e-7, worst: 3e-7, worst_row: 2 }] };
	},
	async nodes() { return [{ name: 'token_embd', hf: 'model.embed_tokens', op: 'rows', layer: -1, shape: [512] }, { name: 'blk.0.attn_norm', hf: 'input_layernorm', op: 'norm', layer: 0, shape: [512] }]; },
	async probe(name) {
		const counts = Array.from({ length: 64 }, (_, i) => Math.round(900 * Math.exp(-(((i - 14) / 7) ** 2))) + (i === 63 ? 1 : 0));
		return { name, op: 'norm', layer: 0, dtype: 'f32', shape: [7, 512], tokens: Array(7).fill({ id: 500, text: ' sky' }), all: numbers, rows: Array(7).fill(numbers), histogram: { from: -3.25, to: 11.5, counts } };
	},
	async close() {},
};
const kernels = [['linear{layout:{Plain: Bits:4 High:0 Min:true Table:[]} ending:{Outs:1 GLU:gelu_tanh(a) * b Add:false} Lanes:8}', 6, 0.0812], ['map[Binary:true Is:a + b]', 12, 0.0004]]
	.map(([name, dispatches, seconds]) => ({ name, dispatches, seconds }));
