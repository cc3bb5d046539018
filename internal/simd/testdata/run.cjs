// Runs a Go program for js with the kernels of the tier wasm: node run.cjs WASM_EXEC SIMD.WASM PROGRAM ARGUMENTS.
'use strict';
const fs = require('fs');
const [exec, simd, program, ...args] = process.argv.slice(2);
Object.assign(globalThis, {require, fs, path: require('path')});
require(exec);
const go = new Go();
go.argv = [program, ...args], go.env = {...process.env}, go.exit = process.exit;
const kept = new WebAssembly.Module(fs.readFileSync(simd)), table = new WebAssembly.Table({element: 'anyfunc', initial: 256});
const kernels = memory => new WebAssembly.Instance(kept, {env: {memory, table}}).exports;
Object.assign(go.importObject.gojs, kernels(new WebAssembly.Memory({initial: 1})));
WebAssembly.instantiate(fs.readFileSync(program), go.importObject).then(({instance}) => {
	kernels(instance.exports.mem);
	process.on('exit', code => { if (code === 0 && !go.exited) { go._pendingEvent = {id: 0}; go._resume(); } });
	return go.run(instance);
}).catch(e => { console.error(e); process.exit(1); });
