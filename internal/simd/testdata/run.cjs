// Runs a Go program for js as go_js_wasm_exec does, with the kernels of the tier wasm: node run.cjs SCRIPT THREADS PROGRAM
// ARGUMENTS. The script is Go's wasm_exec.js, and what gives the kernels.
'use strict';
const fs = require('fs'), {Worker, parentPort, workerData} = require('worker_threads');
const [script, threads, program, ...args] = workerData ?? process.argv.slice(2);
Object.assign(globalThis, {require, fs, path: require('path')});
require('v8').setFlagsFromString('--experimental-wasm-relaxed-simd'); // newer releases have it
require(script);
const run = async () => {
	const go = new Go();
	go.argv = [program, ...args], go.env = {}, go.exit = process.exit;
	let code = fs.readFileSync(program), give = () => {};
	if (threads > 1) {
		const memory = sharedMemory();
		code = Buffer.concat(withMemory(code, memory).map(b => Buffer.from(b)));
		if (await giveThreads(go.importObject, memory, +threads, () => new Worker(__filename, {workerData: [script]}).on('error', e => { throw e; })) !== +threads) throw new Error('workers are missing');
	} else give = giveKernels(go.importObject);
	const {instance} = await WebAssembly.instantiate(code, go.importObject);
	give(instance.exports.mem);
	return go.run(instance);
};
if (parentPort) parentPort.on('message', ({kernels}) => runKernels(kernels));
else run().catch(e => { console.error(e); process.exit(1); });
