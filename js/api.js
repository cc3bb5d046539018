// The functions of the package, for any place that has workers.
import { Engine } from './client.js';
import { addressOf, chooseFile, ggufFiles, nameOf, partsOf, repoOf, trouble } from './hub.js';
import { Model } from './model.js';

// connect returns the package's functions. The place says how a worker begins, and where the program lies.
export function connect({ worker: usual, program: usualProgram, absolute, localFile }) {
	// open starts an engine of its own for each model.
	async function open({ worker, program = usualProgram, threads, onProgress }) {
		let failed, closed = false;
		const engine = new Engine(() => usual(worker), e => { failed = e; });
		const ask = (op, args, event) => closed ? Promise.reject(trouble('closed', 'the model is closed')) : failed ? Promise.reject(Object.assign(new Error(failed.message), failed)) : engine.ask(op, args, event);
		const end = () => {
			closed = true;
			engine.end();
		};
		try {
			const r = await ask('boot', { program: String(program), threads }, e => onProgress?.({ what: 'program', ...e }));
			return { ask, end, ...r };
		} catch (e) {
			end();
			throw e;
		}
	}

	async function during(options, work) {
		const engine = await open(options);
		try {
			return await work(engine.ask);
		} finally {
			engine.end();
		}
	}

	// sourceOf makes the engine's source of what a caller names.
	async function sourceOf({ url, file, repo, id, sha256, name }) {
		if ([url, file, repo, id].filter(x => x !== undefined).length !== 1) throw trouble('request', 'load: one of url, file, repo and id is wanted');
		if (id !== undefined) return { kind: 'kept', key: id };
		if (file !== undefined) return localFile([file].flat());
		if (repo !== undefined) {
			const [, of, rest = ''] = /^((?:hf:|https:\/\/huggingface\.co\/)?[\w.-]+\/[\w.-]+)(?:[:/](.+))?$/.exec(repo) || [];
			if (!of) throw trouble('request', `${repo} is no ORG/REPO`);
			const f = chooseFile(await ggufFiles(repoOf(of)), rest || name);
			return { kind: 'url', url: f.url, name: nameOf(f.url), sha256: partsOf(f.url).length > 1 ? undefined : f.sha256 || undefined };
		}
		const address = addressOf(absolute(url));
		return { kind: 'url', url: address, name: name ?? nameOf(address), sha256: sha256?.toLowerCase() };
	}

	async function load(source, more = {}) {
		const o = { ...source, ...more }, from = await sourceOf(o);
		o.signal?.throwIfAborted();
		const engine = await open(o), stop = () => engine.ask('stop').catch(() => {});
		o.signal?.addEventListener('abort', stop, { once: true });
		try {
			const info = await engine.ask('load', { source: from, backend: o.backend, kv: o.kv, context: o.context }, e => {
				const done = e.have ?? e.checked ?? e.read;
				if (done !== undefined && e.size) o.onProgress?.({ what: e.have !== undefined ? 'download' : e.checked !== undefined ? 'check' : 'model', have: done, size: e.size });
			});
			return new Model({ ...info, version: engine.version }, engine.ask, engine.end);
		} catch (e) {
			engine.end();
			throw e;
		} finally {
			o.signal?.removeEventListener('abort', stop);
		}
	}

	return {
		load,
		kept: (options = {}) => during(options, async ask => (await ask('kept')).models.map(m => ({ id: m.key, name: m.name, url: m.url, size: m.size, have: m.have, done: !!m.done, sha256: m.sha256 }))),
		remove: (id, options = {}) => during(options, ask => ask('remove', { key: id })),
	};
}
