// karat for Node: the functions of index.js, with files by their paths and a folder as the store.
import { resolve } from 'node:path';
import { Worker } from 'node:worker_threads';
import { connect } from './api.js';
import { trouble } from './hub.js';

export const { load, kept, remove } = connect({
	worker() {
		const w = new Worker(new URL('./node-entry.js', import.meta.url), { execArgv: process.execArgv.filter(x => !x.startsWith('--input-type')) }); // which is of --eval alone
		let open = 0; // calls without an answer: else the worker does not keep the process from its end
		const self = {
			postMessage(m) {
				if (open++ === 0) w.ref();
				w.postMessage(m);
			},
			terminate: () => w.terminate(),
		};
		w.unref();
		w.on('message', data => {
			if (data.event === undefined && --open === 0) w.unref();
			self.onmessage({ data });
		});
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
