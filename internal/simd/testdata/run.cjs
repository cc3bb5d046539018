// Runs a Go program for js as go_js_wasm_exec does, with the kernels of the tier wasm: node run.cjs SCRIPT PROGRAM
// ARGUMENTS. The script is Go's wasm_exec.js, and what gives the kernels.
'use strict';
const fs = require('fs');
const [script, program, ...args] = process.argv.slice(2);
Object.assign(globalThis, {require, fs, path: require('path')});
require(script);
const go = new Go(), run = giveKernels(go.importObject);
go.argv = [program, ...args], go.env = {}, go.exit = process.exit;
WebAssembly.instantiate(fs.readFileSync(program), go.importObject).then(({instance}) => {
	run(instance.exports.mem);
	return go.run(instance);
}).catch(e => { console.error(e); process.exit(1); });
