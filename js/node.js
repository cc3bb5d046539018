// karat for Node: the functions of index.js, with files by their paths and a folder as the store.
import { resolve } from 'node:path';
import { Worker } from 'node:worker_threads';
import { connect } from './api.js';
import { trouble } from './hub.js';

export const { load, kept, remove } = connect({
	worker() {
		const w = new Worker(new URL('./node-entry.js', import.meta.url)), self = { postMessage: m => w.postMessage(m), terminate: () => w.terminate() };
		w.on('message', data => self.onmessage({ data }));
		w.on('error', e => self.onerror(e));
		return self;
	},
	program: new URL('./karat.wasm.gz', import.meta.url),
	absolute: url => url,
	localFile(files) {
		for (const f of files) if (typeof f !== 'string') throw trouble('request', 'load: file must be a path, or several');
		return { kind: 'path', paths: files.map(f => resolve(f)) };
	},
});
export { ggufFiles } from './hub.js';
