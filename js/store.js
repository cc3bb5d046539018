// The models that the browser keeps for this site (the origin's private file system), in
// the worker: KEY.gguf is a model or its beginning, KEY.json tells about it.
import { nameOf, trouble } from './hub.js';

export async function kept() {
	if (!navigator.storage?.getDirectory) throw trouble('store', 'this browser keeps no files for pages (OPFS)');
	return (await navigator.storage.getDirectory()).getDirectoryHandle('models', { create: true });
}

async function keyOf(url) {
	const sum = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(url));
	return hex(new Uint8Array(sum)).slice(0, 32);
}

export const hex = b => Array.from(b, x => x.toString(16).padStart(2, '0')).join('');

export async function readAbout(dir, key) {
	try {
		return JSON.parse(await (await (await dir.getFileHandle(key + '.json')).getFile()).text());
	} catch {
		return null; // none, or one that was not written to its end
	}
}

// lock opens a file of the store for reading and writing; nobody else has it open then.
export async function lock(dir, name, mode) {
	const handle = await dir.getFileHandle(name, { create: mode !== 'read-only' });
	return handle.createSyncAccessHandle(mode && { mode });
}

async function writeAbout(dir, about) {
	const file = await lock(dir, about.key + '.json');
	try {
		file.truncate(0);
		file.write(new TextEncoder().encode(JSON.stringify(about)), { at: 0 });
		file.flush();
	} finally {
		file.close();
	}
}

// listKept tells what is kept, and how much room there is.
export async function listKept() {
	const { usage, quota } = await navigator.storage.estimate();
	const dir = await kept(), models = [];
	for await (const name of dir.keys()) {
		if (!name.endsWith('.json')) continue;
		const about = await readAbout(dir, name.slice(0, -5));
		if (!about) continue;
		const file = await dir.getFileHandle(about.key + '.gguf').then(f => f.getFile(), () => null);
		models.push({ ...about, have: file ? file.size : 0 });
	}
	models.sort((a, b) => a.name < b.name ? -1 : 1);
	return { models, usage, quota };
}

export async function removeKept({ key }) {
	const dir = await kept();
	for (const name of [key + '.gguf', key + '.json']) await dir.removeEntry(name).catch(e => { if (e.name !== 'NotFoundError') throw e; });
}

// digest is the SHA-256 of what read(offset, length) gives, tell hears how far it is.
async function digest(size, read, tell, signal) {
	const hash = karat.sha256(), step = 4 << 20;
	for (let at = 0; at < size; at += step) {
		signal?.throwIfAborted();
		hash.write(read(at, Math.min(step, size - at)));
		tell({ checked: at, size });
		await new Promise(go => setTimeout(go));
	}
	return hash.sum();
}

export const reader = file => (at, length) => {
	const b = new Uint8Array(length);
	if (file.read(b, { at }) !== length) throw trouble('file', `the kept file ends before byte ${at + length}`);
	return b;
};

// download brings a file into the store, from where an earlier try left off, and checks
// its hash: against sha256 if that is said. It resolves to what is known of the file.
export async function download({ url, name, sha256 }, tell, signal) {
	url = new URL(url, location.href).href;
	const dir = await kept(), key = await keyOf(url);
	const about = { key, url, name: name || nameOf(url), ...await readAbout(dir, key) };
	about.want = sha256 || about.want;
	const file = await lock(dir, key + '.gguf');
	try {
		if (about.done && file.getSize() === about.size && (!about.want || about.want === about.sha256)) return about;
		about.done = false;
		tell({ key });
		for (let tries = 0, left = file.getSize(); !await fetchRest(dir, about, file, tell, signal); tries++) {
			if (file.getSize() > left) [tries, left] = [0, file.getSize()];
			if (tries === 3) throw trouble('network', `the connection broke at byte ${left} of ${about.size}`);
			await new Promise(go => setTimeout(go, 1000 << tries));
			signal.throwIfAborted();
		}
		about.sha256 = await digest(about.size, reader(file), tell, signal);
		if (about.want && about.want !== about.sha256) {
			file.truncate(0);
			throw trouble('hash', `SHA-256 is ${about.sha256}, and should be ${about.want}`);
		}
		about.done = true;
		await writeAbout(dir, about);
		return about;
	} finally {
		file.flush();
		file.close();
	}
}

// fetchRest appends what the file lacks, and reports whether it has all.
async function fetchRest(dir, about, file, tell, signal) {
	let at = file.getSize();
	if (about.size && at === about.size) return true;
	if (about.size && at > about.size) file.truncate(at = 0);
	let r;
	try {
		r = await fetch(about.url, { headers: { Range: `bytes=${at}-` }, signal, cache: 'no-store', credentials: 'omit' });
	} catch (e) {
		if (e.name === 'AbortError' || at > 0) { signal.throwIfAborted(); return false; }
		throw trouble('network', `${about.url}: ${e.message}`);
	}
	if (r.status !== 206 && r.status !== 200) throw trouble('network', `${about.url}: the server says ${r.status} ${r.statusText}`);
	const from = r.status === 206 ? at : 0; // 200: a server without ranges begins anew
	const size = total(r, from), tag = r.headers.get('ETag') || r.headers.get('Last-Modified');
	if (from > 0 && (about.size && size !== about.size || about.tag && tag && tag !== about.tag)) { // it is another file now
		await r.body.cancel();
		file.truncate(0);
		[about.size, about.tag] = [size, tag];
		return false;
	}
	if (from < at) file.truncate(at = 0);
	const { usage, quota } = await navigator.storage.estimate();
	if (size - at > quota - usage) {
		await r.body.cancel();
		throw trouble('quota', `${size - at} bytes are needed, ${quota - usage} are free`);
	}
	[about.size, about.tag] = [size, tag];
	await writeAbout(dir, about);
	return append(r.body.getReader(), at, about, file, tell);
}

// total is how long the whole file is, by the headers of an answer that begins at from.
function total(r, from) {
	const range = /^bytes (\d+)-\d+\/(\d+)$/.exec(r.headers.get('Content-Range') || '');
	if (range && Number(range[1]) !== from) throw trouble('network', `the server sent byte ${range[1]} where ${from} was asked for`);
	const size = range ? Number(range[2]) : from + Number(r.headers.get('Content-Length') || NaN);
	if (!(size > 0)) throw trouble('network', 'the server does not say how long the file is');
	return size;
}

async function append(body, at, about, file, tell) {
	for (let told = 0, flushed = at; ;) {
		let part;
		try {
			part = await body.read();
		} catch (e) {
			if (e.name === 'AbortError') throw e;
			return false; // the connection broke; what came is kept
		}
		if (part.done) return at === about.size;
		if (at + part.value.length > about.size) throw trouble('network', `the server sends more than the ${about.size} bytes that it said`);
		if (at === 0 && String.fromCharCode(...part.value.subarray(0, 4)) !== 'GGUF') {
			await body.cancel();
			throw trouble('file', 'what the server sends is not a GGUF file');
		}
		file.write(part.value, { at });
		at += part.value.length;
		if (at - flushed > 64 << 20) { file.flush(); flushed = at; }
		if (Date.now() - told > 150) { told = Date.now(); tell({ key: about.key, have: at, size: about.size }); }
	}
}

// checkKept hashes a kept file again, and reports whether it is what was loaded.
export async function checkKept({ key }, tell, signal) {
	const dir = await kept(), about = await readAbout(dir, key), file = await lock(dir, key + '.gguf', 'read-only');
	try {
		if (await digest(file.getSize(), reader(file), tell, signal) !== about.sha256) throw trouble('hash', `${about.name}: its bytes are not those that were loaded`);
	} finally {
		file.close();
	}
}
