// The worker: Karat's WebAssembly, and the model that it has loaded. The page calls an
// operation by its name; many may run, but of those on the model one at a time.

let karat; // what the WebAssembly offers
let model, opened; // the model, and what to close with it
let running; // the AbortController of what runs on the model
let downloads = new Map();

const operations = {
	async boot(_, tell) {
		const go = new Go();
		const { instance } = await instantiate(go.importObject, tell);
		go.run(instance).then(() => postMessage({ error: { kind: 'crash', message: globalThis.karatPanic || 'the program ended' } }));
		karat = globalThis.karat;
		const adapters = await karat.adapters().catch(e => ({ why: e.message }));
		return { version: karat.version, adapters };
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
	render: exclusive(({ messages }) => loaded().render(messages, {})),
	tokenize: exclusive(({ text }) => loaded().tokenize(text, false)),
	generate: exclusive(async ({ prompt, options }, tell, signal) => {
		const r = await loaded().generate(prompt, { ...options, signal }, token => tell(token));
		return { ...r, stats: await model.stats() };
	}),
	reset: exclusive(() => loaded().reset()),
	time: exclusive(({ on }) => karatGPU.time(on)), // of kernels; it gives what those so far took
	prove: exclusive(async ({ recorded }, tell, signal) => {
		const record = recorded ? { json: await load('demo.golden.json'), tensors: await load('demo.golden.safetensors') } : null;
		return loaded().prove(record, { kv: 'f32', taps: true, prompt: recorded ? 2 : 0, signal, onProgress: (done, total, text) => tell({ done, total, text }) });
	}),
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

// instantiate compiles the module while it arrives, and tells how much has.
async function instantiate(imports, tell) {
	const r = await get('karat.wasm?' + SITE.files['karat.wasm'].sha256.slice(0, 12));
	let have = 0;
	const counted = r.body.pipeThrough(new TransformStream({ transform(part, out) { tell({ have: have += part.length, size: SITE.files['karat.wasm'].bytes }); out.enqueue(part); } }));
	return WebAssembly.instantiateStreaming(new Response(counted, { headers: { 'Content-Type': 'application/wasm' } }), imports);
}

async function get(name) {
	const r = await fetch(name).catch(e => { throw trouble('network', `${name}: ${e.message}`); });
	if (!r.ok) throw trouble('network', `${name}: the server says ${r.status}`);
	return r;
}

// load is one of the site's own files, with the bytes that it was published with.
async function load(name) {
	const b = new Uint8Array(await (await get(name)).arrayBuffer());
	if (hex(new Uint8Array(await crypto.subtle.digest('SHA-256', b))) !== SITE.files[name].sha256) throw trouble('hash', `${name} is not the file of this site`);
	return b;
}

// sources open a model's file: what gives its bytes, slice by slice.
const sources = {
	// The demo is kept like any other; where nothing can be kept it lies in memory.
	async demo(_, tell, signal) {
		const { sha256 } = SITE.files['demo.gguf'];
		try {
			const { models } = await listKept(), here = models.find(m => m.done && m.sha256 === sha256 && m.have === m.size);
			if (here) return await sources.kept(here); // it may be in use, and then cannot be opened to be written
			const { key } = await download({ url: 'demo.gguf', name: 'demo.gguf', sha256 }, tell, signal);
			return await sources.kept({ key });
		} catch (e) {
			if (e.name === 'AbortError' || kindOf(e) === 'hash') throw e;
			return { name: 'demo.gguf', size: SITE.files['demo.gguf'].bytes, bytes: await load('demo.gguf'), sha256 };
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

// partOf names the model of which a file's name says that it is a part; undefined for others.
const partOf = name => /^(.*)-\d{5}(-of-\d{5}\.gguf)$/.exec(name || '')?.slice(1).join('');

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

function serve() {
	onmessage = async ({ data: { id, op, args } }) => {
		try {
			const result = await operations[op](args || {}, event => postMessage({ id, event }));
			postMessage({ id, result });
		} catch (e) {
			postMessage({ id, error: { kind: kindOf(e), message: String(e.message || e), model: e.model } });
		}
	};
}
