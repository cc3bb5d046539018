// The worker: Karat's WebAssembly, and the model that it has loaded. The page calls an
// operation by its name; many may run, but of those on the model one at a time.
import { partOf, partsOf, trouble } from './hub.js';
import { giveKernels, giveThreads, importing, runKernels, sharedMemory } from './simd.js';
import { checkKept, download, hex, kept, listKept, lock, readAbout, reader, removeKept } from './store.js';

let karat; // what the WebAssembly offers
let model, opened; // the model, and what to close with it
let running; // the AbortController of what runs on the model
let another; // makes a worker of the same script, for kernels
let downloads = new Map();

const operations = {
	// The program comes from an address, as it is or in gzip; its length is that of the module.
	// Threads compute where memory can be shared: as many as are asked for, or as there are processors.
	async boot({ program, length, threads = Math.min(navigator.hardwareConcurrency || 1, 16) }, tell) {
		const go = new Go(), memory = threads > 1 && another ? sharedMemory() : null;
		const module = await compile(program, length, tell, memory), shares = memory?.buffer.byteLength > 0;
		threads = shares ? await giveThreads(go.importObject, memory, threads, another) : 1;
		const run = shares ? () => {} : giveKernels(go.importObject), instance = await WebAssembly.instantiate(module, go.importObject);
		run(instance.exports.mem);
		go.run(instance).then(() => postMessage({ error: { kind: 'crash', message: globalThis.karatPanic || 'the program ended' } }));
		karat = globalThis.karat;
		const adapters = await karat.adapters().catch(e => ({ why: e.message }));
		return { version: karat.version, adapters, threads };
	},

	// A load that fails or is stopped leaves the model that was there: what cannot be a
	// model is found out before that one is closed, and else it is opened again.
	load: exclusive(async ({ source, ...options }, tell, signal) => {
		const before = opened;
		try {
			const files = await openFiles(source, tell, signal);
			try {
				await karat.check(files);
			} catch (e) {
				for (const f of files) f.close?.();
				throw e;
			}
			await closeModel();
			return await openModel(files, { source, options }, tell);
		} catch (e) {
			const why = signal.aborted ? signal.reason : e;
			if (model || !before) throw told(why, model ? await described() : null);
			const again = await openFiles(before.source, () => {}).then(files => openModel(files, before, () => {})).catch(() => null);
			throw told(why, again);
		}
	}),
	close: exclusive(closeModel),
	stop: () => running?.abort(),
	stats: () => model?.stats(),
	render: exclusive(({ messages, options = {} }) => loaded().render(messages, options)),
	tokenize: exclusive(({ text }) => loaded().tokenize(text, false)),
	generate: exclusive(async ({ prompt, options }, tell, signal) => {
		const read = () => { // how far the prompt is read
			const [have, size] = model?.progress?.() ?? [0, 0];
			if (have < size) tell({ prompt: { have, size } });
		};
		const watch = setInterval(read, 250);
		try {
			const r = await loaded().generate(prompt, { ...options, signal }, token => {
				clearInterval(watch);
				tell(token);
			});
			return { ...r, stats: await model.stats() };
		} finally {
			clearInterval(watch);
		}
	}),
	reset: exclusive(() => loaded().reset()),
	time: exclusive(({ on }) => karatGPU.time(on)), // of kernels; it gives what those so far took
	// A record is two files, {url, sha256}: json, tensors. Without one the model's own float64 is the measure.
	prove: exclusive(async ({ record: files, prompt = files ? 2 : 0 }, tell, signal) => {
		const record = files ? { json: await whole(files.json), tensors: await whole(files.tensors) } : null;
		return loaded().prove(record, { kv: 'f32', taps: true, prompt, signal, onProgress: (done, total, text, row) => tell({ done, total, text, row }) });
	}),
	embed: exclusive(({ texts, options }, _, signal) => loaded().embed(texts, { ...options, signal })),
	verify: exclusive(({ receipt }, tell, signal) => loaded().verify(receipt, { signal, onProgress: (done, total) => tell({ done, total }) })),
	nodes: exclusive(() => loaded().nodes()),
	probe: exclusive(({ name, prompt }, _, signal) => loaded().probe(name, prompt, { signal })),
	change: exclusive(({ change, prompt }, _, signal) => loaded().change(change, prompt, { signal })),

	kept: listKept,
	async remove(args) {
		const inUse = opened?.keys.includes(args.key);
		if (inUse && running) throw trouble('busy', 'something runs on this model');
		if (inUse) await closeModel();
		await removeKept(args);
		return { closed: inUse };
	},
	check: checkKept,
	pause: ({ url }) => downloads.get(url)?.abort(),
	async download(args, tell) {
		const control = new AbortController();
		downloads.set(args.url, control);
		try {
			return await download(args, tell, control.signal);
		} finally {
			downloads.delete(args.url);
		}
	},
};

// exclusive runs an operation that stop can end, if nothing else runs on the model.
function exclusive(operation) {
	return async (args, tell) => {
		if (running) throw trouble('busy', 'something else runs on the model');
		running = new AbortController();
		try {
			return await operation(args, tell, running.signal);
		} finally {
			running = null;
		}
	};
}

function loaded() {
	if (!model) throw trouble('empty', 'no model is loaded');
	return model;
}

// told is an error of a load, with what is said of the model that is there now.
const told = (e, model) => ({ kind: kindOf(e), message: String(e.message || e), model });

// openFiles opens a model's files for reading, which ends when the signal says so.
async function openFiles(source, tell, signal) {
	const files = [].concat(await sources[source.kind](source, tell, signal || new AbortController().signal));
	let rested = performance.now();
	const ending = read => async (at, length) => {
		if (performance.now() - rested > 50) {
			await new Promise(go => setTimeout(go)); // the page's stop is heard
			rested = performance.now();
		}
		signal.throwIfAborted();
		return read(at, length);
	};
	return signal ? files.map(f => f.read ? { ...f, read: ending(f.read), usual: f.read } : f) : files;
}

async function openModel(files, { source, options }, tell) {
	opened = { source, options, files, keys: files.map(f => f.key), close: () => { for (const f of files) f.close?.(); } };
	try {
		model = await karat.load(files, { ...options, onProgress: (done, total) => tell({ read: done, size: total }) });
	} catch (e) {
		await closeModel();
		throw e;
	}
	for (const f of files) if (f.usual) f.read = f.usual;
	return described();
}

async function described() {
	const { files } = opened;
	const size = files.reduce((sum, f) => sum + f.size, 0);
	return { ...model.info, name: files[0].name, size, sha256: files.length === 1 ? files[0].sha256 : undefined, stats: await model.stats() };
}

async function closeModel() {
	const [old, file] = [model, opened];
	model = opened = null;
	try {
		await old?.close();
	} finally {
		file?.close();
	}
}

// compile compiles the module during its arrival, and tells how much has come. The module may get a memory.
async function compile(program, size, tell, memory) {
	const body = (await get(program)).body.getReader(), first = await body.read();
	let begun = false, have = 0;
	const rest = new ReadableStream({
		async pull(out) {
			const part = begun ? await body.read() : first;
			begun = true;
			part.done ? out.close() : out.enqueue(part.value);
		},
	});
	const counted = new TransformStream({ transform(part, out) { tell({ have: have += part.length, size }); out.enqueue(part); } });
	const packed = first.value?.[0] === 0x1f; // some servers unpack such a file on the way
	let module = (packed ? rest.pipeThrough(new DecompressionStream('gzip')) : rest).pipeThrough(counted);
	if (memory) module = module.pipeThrough(importing(memory));
	return WebAssembly.compileStreaming(new Response(module, { headers: { 'Content-Type': 'application/wasm' } }));
}

async function get(url) {
	const r = await fetch(url).catch(e => { throw trouble('network', `${url}: ${e.message}`); });
	if (!r.ok) throw trouble('network', `${url}: the server says ${r.status}`);
	return r;
}

// whole is a file with the bytes that it was published with.
async function whole({ url, sha256 }) {
	const b = new Uint8Array(await (await get(url)).arrayBuffer());
	if (sha256 && hex(new Uint8Array(await crypto.subtle.digest('SHA-256', b))) !== sha256) throw trouble('hash', `${url} is not the file that was published`);
	return b;
}

// sources open a model's file: what gives its bytes, slice by slice.
export const sources = {
	// A file at an address is kept like any other. Where nothing can be kept it lies in memory, if that is known to be small.
	async url({ url, name, sha256, bytes }, tell, signal) {
		url = new URL(url, location.href).href;
		try {
			const { models } = await listKept(), here = models.find(m => m.done && m.have === m.size && (sha256 ? m.sha256 === sha256 : m.url === url));
			if (here) return await sources.kept(here); // it may be in use, and then cannot be opened to be written
			const parts = sha256 ? [url] : partsOf(url), keys = [];
			for (const part of parts) keys.push((await download({ url: part, name: parts.length > 1 ? undefined : name, sha256 }, tell, signal)).key);
			return await sources.kept({ key: keys[0] });
		} catch (e) {
			if (e.name === 'AbortError' || kindOf(e) === 'hash' || !bytes) throw e;
			return { name, size: bytes, bytes: await whole({ url, sha256 }), sha256 };
		}
	},

	// A part of a split model brings the others that are kept.
	async kept({ key }) {
		const { models } = await listKept(), one = models.find(m => m.key === key);
		if (!one) throw trouble('file', 'the model is not kept any more');
		const parts = partOf(one.name) ? models.filter(m => m.done && m.key !== key && m.name !== one.name && partOf(m.name) === partOf(one.name)) : [];
		const files = [];
		try {
			for (const m of [one, ...parts].sort((a, b) => a.name < b.name ? -1 : 1)) files.push(await openKept(m.key));
		} catch (e) {
			for (const f of files) f.close();
			throw e;
		}
		return files;
	},

	// Files are read slice by slice; those that a user chose may be the parts of a split model.
	file({ files }) {
		const read = file => (at, length) => new Uint8Array(new FileReaderSync().readAsArrayBuffer(file.slice(at, at + length)));
		return files.map(f => ({ name: f.name, size: f.size, read: read(f) })).sort((a, b) => a.name < b.name ? -1 : 1);
	},
};

async function openKept(key) {
	const dir = await kept(), about = await readAbout(dir, key), file = await lock(dir, key + '.gguf', 'read-only');
	return { key, name: about.name, size: file.getSize(), sha256: about.sha256, read: reader(file), close: () => file.close() };
}

// kindOf is the kind of trouble that an error tells of; the page has words for each.
function kindOf(e) {
	if (e.kind) return e.kind;
	const names = { AbortError: 'aborted', QuotaExceededError: 'quota', NoModificationAllowedError: 'taken', NotReadableError: 'file', NotFoundError: 'file' };
	return names[e.name] || 'other';
}

// serve answers the calls of the page. Make starts another worker of the same script, which the page does not call: that
// worker runs kernels.
export function serve(make) {
	another = make;
	globalThis.onmessage = async ({ data: { id, op, args, kernels } }) => {
		if (kernels) return runKernels(kernels);
		try {
			const result = await operations[op](args || {}, event => postMessage({ id, event }));
			postMessage({ id, result });
		} catch (e) {
			postMessage({ id, error: { kind: kindOf(e), message: String(e.message || e), model: e.model } });
		}
	};
}
