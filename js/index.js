// karat: language models in the browser. node.js is the same for Node.
import { connect } from './api.js';
import { trouble } from './hub.js';

// own starts the package's worker. A page of another site, which may not start it, starts one that imports it.
function own() {
	const here = new URL(import.meta.url);
	if (/^https?:$/.test(here.protocol) && here.origin !== location.origin) {
		const text = `import ${JSON.stringify(new URL(here.pathname.replace(/[^/]*$/, 'entry.js'), here).href)};`;
		return new Worker(URL.createObjectURL(new Blob([text], { type: 'text/javascript' })), { type: 'module' });
	}
	return new Worker(new URL('./entry.js', import.meta.url), { type: 'module' });
}

export const { load, kept, remove } = /* @__PURE__ */ connect({
	worker: given => !given ? own() : typeof given === 'function' ? given() : given instanceof Worker ? given : new Worker(given, { type: 'module' }),
	program: new URL('./karat.wasm.gz', import.meta.url),
	absolute: url => new URL(url, location.href).href,
	localFile(files) {
		for (const f of files) if (!(f instanceof File)) throw trouble('request', 'load: file must be a File, or several');
		return { kind: 'file', files, name: files[0].name };
	},
});
export { ggufFiles } from './hub.js';
