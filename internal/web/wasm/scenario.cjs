// What a page does, for a test: node scenario.cjs WASM_EXEC KARAT.WASM MODEL RECORD BACKEND
// prints as JSON what came of it.
'use strict';
const fs = require('fs');
const [exec, wasm, path, record, backend] = process.argv.slice(2);
require(exec);

const said = async (promise) => {
	try { return await promise; } catch ({message, kind}) { return {message, kind}; }
};

(async () => {
	const out = {}, reads = [];
	const go = new Go(), give = giveKernels(go.importObject);
	const {instance} = await WebAssembly.instantiate(fs.readFileSync(wasm), go.importObject);
	give(instance.exports.mem);
	const ended = go.run(instance).then(() => { throw new Error('the program has ended'); });
	const {karat} = globalThis;
	const file = fs.openSync(path);
	const size = fs.fstatSync(file).size;
	const read = (offset, length) => { // as a Blob has it for large pieces, as an OPFS handle for others
		reads.push(length);
		const b = new Uint8Array(length);
		fs.readSync(file, b, 0, length, offset);
		return length > 1 << 20 ? new Promise((ok) => setTimeout(ok, 1, b)) : b;
	};
	const scenario = async () => {
		const start = performance.now();
		out.adapters = await said(karat.adapters());
		let progress = 0;
		const m = await karat.load({name: 'demo.gguf', size, read}, {backend, onProgress: (done, total) => { progress = done / total; }});
		out.loadSeconds = (performance.now() - start) / 1000;
		out.info = m.info, out.progress = progress, out.largest = Math.max(...reads);
		const chat = [{role: 'user', content: 'What color is the sky?'}];
		out.render = await m.render(chat);
		const greedy = {maxTokens: 3, sampling: {temperature: 0}, top: 2};
		const tokens = [];
		out.first = await m.generate('The color of the sky is', greedy, (t) => {
			out.firstSeconds ||= (performance.now() - start) / 1000;
			tokens.push(t);
		});
		out.tokens = tokens;
		out.chat = await m.generate(chat, greedy);
		const parts = [], schema = {type: 'object', properties: {color: {enum: ['blue', 'red']}}, required: ['color'], additionalProperties: false};
		out.formed = await m.generate(chat, {...greedy, maxTokens: 40, schema});
		const tools = [{type: 'function', function: {name: 'paint', parameters: schema}}];
		await m.generate(chat, {...greedy, maxTokens: 80, tools, toolChoice: 'required'}, (t) => { if (t.call) parts.push(t.call); });
		out.calls = parts;
		const {receipt, text} = await m.generate(chat, {...greedy, receipt: true}), made = JSON.parse(receipt);
		out.receipt = made.answer.length, out.same = text === out.chat.text;
		const judged = [];
		out.verified = await m.verify(receipt, {onProgress: (done, total) => judged.push(done + '/' + total)});
		out.judged = judged;
		made.answer[1]++; // another token, which no logits choose
		out.altered = await m.verify(JSON.stringify(made));
		out.noReceipt = await said(m.verify(receipt.slice(0, -9)));
		const held = new AbortController(); // a few tokens are made before the program looks up
		out.busy = (await Promise.allSettled([
			m.generate('func main() {', {maxTokens: 200, signal: held.signal, sampling: {temperature: 0}}),
			said(m.tokenize('a')).finally(() => held.abort())]))[1].value;
		const abort = new AbortController();
		out.aborted = await m.generate('func main() {', {maxTokens: 200, signal: abort.signal, sampling: {temperature: 0}}, () => setTimeout(() => abort.abort()));
		const long = new AbortController();
		setTimeout(() => long.abort(), 30);
		out.abortedPrompt = await m.generate('word '.repeat(backend === 'cpu' ? 500 : 5), {signal: long.signal});
		out.plain = (await m.tokenize('The color of the sky is')).length; // what first was given
		out.template = await said(m.render([{role: 'user', content: 'a'}, {role: 'user', content: 'b'}]));
		out.bytes = (await m.tokenize('\u2603\u{1f9ea}')).map(({text}) => text).join('');
		out.unknown = await said(m.probe('blk.99', 'a'));
		out.nodes = (await m.nodes()).length;
		out.probe = await m.probe('blk.3.ffn_down', 'The color of the sky is');
		delete out.probe.tokens, delete out.probe.rows;
		out.stats = await m.stats();
		const seen = [];
		const prompts = [out.render.tokens.map(({id}) => id), out.render.tokens.slice(0, 3).map(({id}) => id)];
		out.proof = await m.prove(null, {prompts, taps: true, prompt: 1, onProgress: (done, total) => seen.push(done + '/' + total)});
		out.seen = seen;
		const other = {json: fs.readFileSync(record + '/golden.json', 'utf8'), tensors: new Uint8Array(fs.readFileSync(record + '/golden.safetensors'))};
		if (backend === 'cpu') out.other = (await m.prove(other)).inside;
		await m.close();
		out.closed = await said(m.tokenize('a'));
		const hash = karat.sha256();
		hash.write(new TextEncoder().encode('ab')), hash.write(new TextEncoder().encode('c'));
		out.sha256 = hash.sum();
		const strange = new Uint8Array(fs.readFileSync(path));
		strange.set(new TextEncoder().encode('mambas'), Buffer.from(strange.buffer).indexOf('gemma3'));
		out.strange = await said(karat.load({name: 'strange.gguf', bytes: strange}, {backend}));
		out.checked = [await said(karat.check({name: 'demo.gguf', size, read})), await said(karat.check({name: 'strange.gguf', bytes: strange})), await said(karat.check({name: 'garbage.gguf', bytes: new Uint8Array(100)}))].map((e) => e && e.kind);
		out.garbage = await said(karat.load({name: 'garbage.gguf', bytes: new Uint8Array(100)}, {backend}));
		out.torn = await said(karat.load({name: 'torn.gguf', size, read: (offset, length) => (offset + length > 2e6 ? Promise.reject(new Error('the file is gone')) : read(offset, length))}, {backend}));
		if (backend === 'webgpu') await faults();
	};
	// faults breaks a shader, and the device while a model runs; each time the next model works.
	const faults = async () => {
		const bytes = new Uint8Array(fs.readFileSync(path));
		const device = GPUDevice.prototype, {createShaderModule} = device;
		device.createShaderModule = function (d) { return createShaderModule.call(this, {...d, code: d.code.replace(/fn main/, 'fn main(')}); };
		out.brokenShader = await said(karat.load({name: 'demo.gguf', bytes}, {backend}));
		device.createShaderModule = createShaderModule;
		const {createBuffer} = device;
		let last;
		device.createBuffer = function (d) { last = this; return createBuffer.call(this, d); };
		const m = await karat.load({name: 'demo.gguf', bytes}, {backend});
		let n = 0;
		out.lost = await said(m.generate('a', {maxTokens: 50}, () => { if (++n === 2) last.destroy(); }));
		device.createBuffer = createBuffer;
		out.stillLost = await said(m.generate('a', {maxTokens: 5}));
		await m.close();
		const next = await karat.load({name: 'demo.gguf', bytes}, {backend});
		out.afterLost = await next.generate('The color of the sky is', {maxTokens: 3, sampling: {temperature: 0}});
		await next.close();
	};
	await Promise.race([scenario(), ended]);
	fs.writeSync(1, JSON.stringify(out));
	process.exit(0);
})().catch((e) => {
	console.error(e);
	process.exit(1);
});
