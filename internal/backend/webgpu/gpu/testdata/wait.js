// A device that does what was submitted only after a turn of the event loop, given to
// gpu.js: a run must end when the device has done with it, whether it reads or not.
'use strict';
const fs = require('node:fs');
const assert = require('node:assert');

Object.assign(globalThis, {GPUBufferUsage: {}, GPUShaderStage: {}, GPUMapMode: {READ: 1}});
let finished = 0, submitted = 0;
const later = (what) => new Promise((go) => { setTimeout(() => { finished = submitted; go(what); }, 5); });
const device = {
	lost: new Promise(() => {}),
	pushErrorScope() {},
	popErrorScope: async () => null,
	createBuffer: ({size}) => ({size, bytes: new ArrayBuffer(size), mapAsync: () => later(), unmap() {}, getMappedRange() { return this.bytes; }}),
	createCommandEncoder: () => {
		const copies = [];
		return {copyBufferToBuffer: (src, from, dst, to, n) => copies.push(() => new Uint8Array(dst.bytes, to, n).set(new Uint8Array(src.bytes, from, n))), finish: () => copies};
	},
	queue: {
		submit: (lists) => { submitted++; setTimeout(() => lists.flat().forEach((copy) => copy()), 2); },
		onSubmittedWorkDone: () => later(),
	},
};
Object.defineProperty(globalThis, 'navigator', {value: {gpu: {requestAdapter: async () => ({features: new Set(), limits: {}, requestDevice: async () => device})}}});
new Function(fs.readFileSync(process.argv[2], 'utf8'))();

(async () => {
	const d = await karatGPU.open();
	await d.buffer(0, 'a', 4);
	await d.buffer(1, 'b', 4);
	for (let run = 1; run <= 3; run++) {
		new Uint8Array(d.objects[0].bytes)[0] = run;
		d.script(11);
		d.words.set([1, 1, 0, 0, 0, 4, 3, 1, 0, 0, 4]); // copy 0 to 1, read 1
		d.begin(4, 0);
		d.replay(11);
		assert.equal((await d.end())[0], run, 'what is read');
		d.taken();
		d.begin(0, 0);
		d.replay(6); // the copy alone
		assert.equal(await d.end(), null);
		assert.equal(finished, submitted, 'runs that ended before the device had');
	}
})().catch((e) => { console.error(e.message); process.exit(1); });
