// The program's kernels: a WebAssembly module with vectors, in the memory of the program, which imports its functions.
// Where memory can be shared, further threads run kernels as well: workers that have this module and the program's
// memory, but no Go.
import { KERNELS, FUSED } from './kernels.js';

// Words shared with the workers: lanes left to run and done, where the lanes are and how many, how often there were
// some, how many workers wait for the first, and whether a kernel failed.
const LEFT = 0, DONE = 1, BASE = 2, COUNT = 3, TURN = 4, READY = 5, FAILED = 6;
const MOST = 65536; // pages of a memory
const PATIENCE = 3000; // looks at a word before a sleep, some ten microseconds

// giveKernels adds the kernels to a program's imports. What it returns takes the program's memory, before the program
// runs: a first instance of the module calls through a table what the second one, with the memory, puts there. In a
// browser without vectors the functions do nothing, which the program finds out.
export function giveKernels(imports) {
	const code = codeOf();
	if (!WebAssembly.validate(code)) {
		imports.gojs = new Proxy(imports.gojs, { get: (all, name) => all[name] || (() => {}) });
		return () => {};
	}
	const module = new WebAssembly.Module(code), table = new WebAssembly.Table({ element: 'anyfunc', initial: 128 });
	const fill = memory => new WebAssembly.Instance(module, { env: { memory, table, join() {} } }).exports;
	Object.assign(imports.gojs, fill(new WebAssembly.Memory({ initial: 1 })));
	return memory => void fill(memory);
}

// codeOf is the module: with the processor's fused sums, where the browser has them and its relaxed_madd rounds once.
// The choice is the browser's, and the same in all of a program. (WebAssembly Core Specification 3.0, 4.3.)
const codeOf = () => code ??= fusedCode() ?? bytesOf(KERNELS);
let code;

const bytesOf = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));

function fusedCode() {
	const code = bytesOf(FUSED);
	if (!WebAssembly.validate(code)) return;
	const { fuses } = instance(new WebAssembly.Module(code), new WebAssembly.Memory({ initial: 1 }), () => {});
	for (let i = 0; i < 2000; i++) if (fuses(1 + 2 ** -12, -1 - 2 ** -11) !== 2 ** -24) return; // compiled again by then
	return code;
}

// sharedMemory is a memory for a program and its workers, or nothing where the place allows none.
export function sharedMemory() {
	if (globalThis.crossOriginIsolated === false || !globalThis.SharedArrayBuffer || !WebAssembly.validate(codeOf())) return;
	try {
		return new WebAssembly.Memory({ initial: 0, maximum: MOST, shared: true });
	} catch {} // no room for so many addresses
}

// giveThreads adds the kernels of a program that has a shared memory, and starts workers for all threads but one. It
// promises the number of threads.
export async function giveThreads(imports, memory, threads, make) {
	const code = codeOf().slice(), words = new Int32Array(new SharedArrayBuffer(64));
	code.set([3, 0x81, 0, 0x80, 0x80, 4], String.fromCharCode(...code.subarray(0, 500)).indexOf('memory') + 7); // limits: 1 to MOST, shared
	const module = new WebAssembly.Module(code);
	const kernels = instance(module, memory, (base, count) => {
		words[BASE] = base;
		words[COUNT] = count;
		Atomics.store(words, DONE, 0);
		Atomics.store(words, LEFT, count);
		Atomics.add(words, TURN, 1);
		Atomics.notify(words, TURN, count - 1);
		runLanes(kernels, words);
		for (let done, looks = 0; (done = Atomics.load(words, DONE)) < count;) if (++looks > PATIENCE) Atomics.wait(words, DONE, done);
		if (words[FAILED]) throw new Error('a kernel failed in a worker');
	});
	imports.env = { memory };
	copyShared();
	let wanted = threads - 1; // workers that may still begin
	for (let i = 1; i < threads; i++) {
		try {
			const worker = make();
			worker.onerror = () => { wanted--; };
			worker.postMessage({ kernels: { module, memory, words } });
		} catch {
			wanted--; // the page's policy forbids it
		}
	}
	for (let waits = 0; Atomics.load(words, READY) < wanted && waits < 500; waits++) await new Promise(go => setTimeout(go, 10));
	kernels.threads.value = 1 + Atomics.load(words, READY);
	Object.assign(imports.gojs, kernels);
	return kernels.threads.value;
}

const instance = (module, memory, join) => new WebAssembly.Instance(module, { env: { memory, join, table: new WebAssembly.Table({ element: 'anyfunc', initial: 128 }) } }).exports;

// runLanes takes lanes until none is left.
function runLanes(kernels, words) {
	for (let i; (i = Atomics.sub(words, LEFT, 1)) > 0;) {
		try {
			kernels.run(words[BASE], i - 1);
		} catch {
			words[FAILED] = 1;
		}
		if (Atomics.add(words, DONE, 1) + 1 === words[COUNT]) Atomics.notify(words, DONE);
	}
}

// runKernels is all that a worker of kernels does.
export function runKernels({ module, memory, words }) {
	const kernels = instance(module, memory, () => {});
	let turn = Atomics.load(words, TURN);
	for (Atomics.add(words, READY, 1);; turn = Atomics.load(words, TURN)) {
		runLanes(kernels, words);
		let looks = 0;
		while (Atomics.load(words, TURN) === turn && ++looks < PATIENCE);
		Atomics.wait(words, TURN, turn);
	}
}

// copyShared lets functions of the browser that refuse shared memory have copies, for Go's script.
function copyShared() {
	const shared = x => x?.buffer instanceof SharedArrayBuffer, copy = x => new Uint8Array(x.buffer, x.byteOffset, x.byteLength).slice();
	const { decode } = TextDecoder.prototype, { getRandomValues } = Crypto.prototype;
	TextDecoder.prototype.decode = function (x, ...more) { return decode.call(this, shared(x) ? copy(x) : x, ...more); };
	Crypto.prototype.getRandomValues = function (x) {
		if (!shared(x)) return getRandomValues.call(this, x);
		x.set(getRandomValues.call(this, copy(x)));
		return x;
	};
}

// importing makes a program, as it comes, import a shared memory. The memory gets the pages that the program wants, and
// stays empty for a program without a memory of its own.
export function importing(memory) {
	let have = new Uint8Array(0);
	return new TransformStream({
		transform(part, out) {
			if (!have) return out.enqueue(part);
			const all = new Uint8Array(have.length + part.length);
			all.set(have);
			all.set(part, have.length);
			const changed = withMemory(all, memory);
			have = changed ? null : all;
			for (const x of changed ?? []) out.enqueue(Uint8Array.from(x));
		},
		flush(out) {
			if (have) out.enqueue(have);
		},
	});
}

// withMemory returns the parts of a program's module, or of its beginning, that imports its memory instead of having its
// own, and nothing if the memory's section has not come yet.
export function withMemory(b, memory) {
	const leb = n => n < 128 ? [n] : [n & 127 | 128, ...leb(n >>> 7)];
	let i = 8, head, tail;
	const number = () => {
		for (let n = 0, s = 0; ; s += 7) {
			const x = b[i++];
			n |= (x & 127) << s;
			if (!(x > 127)) return n;
		}
	};
	for (;;) {
		const from = i, id = b[i++], end = number() + i;
		if (!(end <= b.length)) return;
		if (id === 2) {
			const count = leb(number() + 1);
			head = [b.subarray(0, from), count, b.subarray(i, end)];
			tail = end;
		}
		if (id === 5 && head) {
			i += 2; // one memory, without a bound
			const pages = number(), added = [...new TextEncoder().encode('\x03env\x06memory\x02\x03'), ...leb(pages), ...leb(MOST)];
			const [before, count, body] = head, size = count.length + body.length + added.length;
			memory.grow(pages);
			return [before, [2, ...leb(size)], count, body, added, b.subarray(tail, from), b.subarray(end)];
		}
		i = end;
	}
}
