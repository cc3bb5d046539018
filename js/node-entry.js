// The worker of Node: what a browser's worker has besides, over files. KARAT_CACHE names the folder of the store.
import * as fs from 'node:fs';
import { availableParallelism, homedir } from 'node:os';
import { basename, join } from 'node:path';
import { parentPort, Worker } from 'node:worker_threads';
import './wasm_exec.js';
import './gpu.js';
import { serve, sources } from './worker.js';

const missing = e => { throw e.code === 'ENOENT' ? new DOMException(e.message, 'NotFoundError') : e; };
const attempt = f => { try { return f(); } catch (e) { return missing(e); } };

// A handle of a file and one of a folder, with the functions of a browser's private file system that the store calls.
const fileHandle = path => ({
	getFile: async () => ({ size: attempt(() => fs.statSync(path)).size, text: async () => fs.readFileSync(path, 'utf8') }),
	async createSyncAccessHandle({ mode } = {}) {
		const fd = attempt(() => fs.openSync(path, mode === 'read-only' ? 'r' : fs.constants.O_RDWR | fs.constants.O_CREAT));
		return {
			getSize: () => fs.fstatSync(fd).size,
			read: (b, { at }) => fs.readSync(fd, b, 0, b.length, at),
			write: (b, { at }) => fs.writeSync(fd, b, 0, b.length, at),
			truncate: n => fs.ftruncateSync(fd, n),
			flush: () => fs.fsyncSync(fd),
			close: () => fs.closeSync(fd),
		};
	},
});
const folderHandle = dir => ({
	async getDirectoryHandle(name) {
		fs.mkdirSync(join(dir, name), { recursive: true });
		return folderHandle(join(dir, name));
	},
	async getFileHandle(name, { create } = {}) {
		if (!create) attempt(() => fs.statSync(join(dir, name)));
		return fileHandle(join(dir, name));
	},
	async *keys() { yield* fs.readdirSync(dir); },
	removeEntry: async name => attempt(() => fs.rmSync(join(dir, name))),
});

const cache = process.env.KARAT_CACHE || join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'karat-js');
const storage = {
	async getDirectory() {
		fs.mkdirSync(cache, { recursive: true });
		return folderHandle(cache);
	},
	async estimate() {
		fs.mkdirSync(cache, { recursive: true });
		const s = fs.statfsSync(cache);
		return { usage: 0, quota: s.bavail * s.bsize };
	},
};
Object.defineProperty(globalThis, 'navigator', { value: { storage, hardwareConcurrency: availableParallelism() }, configurable: true });
globalThis.location = { href: 'file:///' };

const usual = globalThis.fetch; // which knows no files
globalThis.fetch = async (url, options) => String(url).startsWith('file:') ? new Response(fs.readFileSync(new URL(url))) : usual(url, options);

sources.path = ({ paths }) => paths.map(path => {
	const fd = fs.openSync(path);
	return {
		name: basename(path), size: fs.fstatSync(fd).size, close: () => fs.closeSync(fd),
		read(at, length) {
			const b = new Uint8Array(length);
			if (fs.readSync(fd, b, 0, length, at) !== length) throw new Error(`${path} ends before byte ${at + length}`);
			return b;
		},
	};
}).sort((a, b) => a.name < b.name ? -1 : 1);

globalThis.postMessage = m => parentPort.postMessage(m);
serve(() => new Worker(new URL(import.meta.url)));
parentPort.on('message', data => globalThis.onmessage({ data }));
