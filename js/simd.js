// The program's kernels: a WebAssembly module with vectors, in the memory of the program, which imports its functions.
import { KERNELS } from './kernels.js';

// giveKernels adds the kernels to a program's imports. What it returns takes the program's memory, before the program
// runs: a first instance of the module calls through a table what the second one, with the memory, puts there. In a
// browser without vectors the functions do nothing, which the program finds out.
export function giveKernels(imports) {
	const code = Uint8Array.from(atob(KERNELS), c => c.charCodeAt(0));
	if (!WebAssembly.validate(code)) {
		imports.gojs = new Proxy(imports.gojs, { get: (all, name) => all[name] || (() => {}) });
		return () => {};
	}
	const module = new WebAssembly.Module(code), table = new WebAssembly.Table({ element: 'anyfunc', initial: 128 });
	const fill = memory => new WebAssembly.Instance(module, { env: { memory, table } }).exports;
	Object.assign(imports.gojs, fill(new WebAssembly.Memory({ initial: 1 })));
	return memory => void fill(memory);
}
