// The page: its tabs, language and light, and the model that it begins with.

let info = null; // of the model that is loaded
let choice = { kind: 'demo' }; // the model that was asked for
let adapters = null;

// busy is what runs on the model; the buttons that would start something wait.
let busy = '';
const waiting = new Set(); // functions that are called once nothing runs
function setBusy(what) {
	busy = what;
	for (const e of document.querySelectorAll('[data-needs]')) e.disabled = !!busy || !info;
	for (const e of document.querySelectorAll('[data-stops]')) e.hidden = busy !== e.dataset.stops;
	for (const e of document.querySelectorAll('[data-starts]')) e.hidden = busy === e.dataset.starts;
	if (!busy) for (const f of waiting) waiting.delete(f) && setTimeout(f);
}

// during runs something on the model, and shows what goes wrong.
async function during(what, work) {
	if (busy) return;
	setBusy(what);
	clearNote('error');
	try {
		return await work();
	} catch (e) {
		fail(e);
	} finally {
		setBusy('');
	}
}

// stop asks for an end. What has not ended soon, ends with the worker.
let patience;
function stop() {
	call('stop');
	clearTimeout(patience);
	const what = busy;
	patience = setTimeout(() => { if (busy && busy === what) note('hangs', 'hangs', undefined, '', ['restart', restart]); }, 5000);
}

const backend = () => $('backend')?.value || undefined;

// loadModel loads another model. Where that fails or is cancelled the page goes on with
// the one that it had.
async function loadModel(source, with_) {
	const before = info;
	await during('load', async () => {
		showModel('loadingModel', { name: source.name || 'demo.gguf' });
		progress(true);
		remember('model', ''); // should this end the page, the next one begins with the demo
		try {
			info = await call('load', { source, backend: with_ || backend() }, e => {
				const done = e.have ?? e.checked ?? e.read;
				if (done !== undefined && e.size) progress(true, done, e.size);
			});
			if (source.kind === 'file') source.name = info.name;
			choice = source;
		} catch (e) {
			info = e.model || null;
			throw Object.assign(e, { source });
		} finally {
			progress(false);
			info ? showInfo() : showModel('noModel');
			remember('model', JSON.stringify({ kind: choice.kind, key: choice.key, name: choice.name }));
		}
		clearNote('again');
		tellDevice();
		for (const f of fresh) f(!before || before.sha256 !== info.sha256 || before.name !== info.name || before.size !== info.size);
	});
}

// progress shows how far a load is. It keeps its room, so that nothing moves.
function progress(on, value, max) {
	const e = $('loading');
	e.classList.toggle('idle', !on);
	e.setAttribute('aria-hidden', !on);
	if (max) [e.max, e.value] = [max, value];
	else e.removeAttribute('value');
}

// noModel is for a model in use that was deleted.
function noModel() {
	info = null;
	showModel('noModel');
	setBusy(busy);
}

const fresh = []; // what each tab does when a model was loaded; it is told whether that is another one

const reload = with_ => loadModel(choice, with_);

function showModel(key, values) { $('model').replaceChildren(h('span', { t: [key, values] })); }

function showInfo() {
	const device = info.backend === 'webgpu' ? info.adapter?.name || 'WebGPU' : t('processor');
	$('model').replaceChildren(h('b', { dir: 'auto' }, info.name), h('span', { t: ['modelLine', {
		arch: info.architecture, bytes: () => bytes(info.bytes), device: () => info.backend === 'webgpu' ? 'WebGPU, ' + device : t('processor'), memory: () => memory(info.stats) }] }));
}

// tellDevice tells why no real GPU computes, once for each model.
function tellDevice() {
	if (info.backend === 'cpu' && adapters?.why) note('device', 'onCPU', undefined, adapters.why);
	else if (info.backend === 'cpu' && adapters?.[0]?.kind === 'cpu') note('device', 'onCPUFallback');
	else if (info.backend === 'webgpu' && info.adapter?.kind === 'cpu') note('device', 'fallback');
	else clearNote('device');
}

const memory = s => !s ? '' : s.gpuBytes ? t('memoryBoth', { own: bytes(s.wasmBytes), gpu: bytes(s.gpuBytes) }) : bytes(s.wasmBytes || 0);

// keep shows the memory after something ran.
function keep(stats) { if (info && stats) { info.stats = stats; showInfo(); } }

async function boot() {
	showModel('starting');
	info = null;
	progress(true);
	startWorker();
	try {
		const r = await call('boot', {}, ({ have, size }) => progress(true, have, size));
		adapters = r.adapters;
		version = r.version;
	} catch (e) {
		progress(false);
		showModel('noModel');
		fail(e);
		return false;
	}
	return true;
}

let version = '';

async function restart() {
	setBusy('');
	if (await boot()) await reload();
}

function select(tab, focus) {
	for (const e of document.querySelectorAll('[role=tab]')) {
		const on = e === tab;
		e.setAttribute('aria-selected', on);
		e.tabIndex = on ? 0 : -1;
		$(e.getAttribute('aria-controls')).hidden = !on;
	}
	if (focus) tab.focus();
}

// go selects a tab that the reader asked for; the address keeps it. At the start the
// address stays as it is, else the Tab key would begin behind the tabs.
function go(tab, focus) {
	select(tab, focus);
	history.replaceState(null, '', '#' + tab.getAttribute('aria-controls'));
}

// tabs move by the arrow keys, as their role has it; right is forward where text runs so.
function setTabs() {
	const tabs = [...document.querySelectorAll('[role=tab]')];
	for (const tab of tabs) tab.onclick = () => go(tab);
	$('tabs').onkeydown = e => {
		const i = tabs.indexOf(document.activeElement), right = document.documentElement.dir === 'rtl' ? -1 : 1;
		const to = { ArrowRight: i + right, ArrowLeft: i - right, Home: 0, End: tabs.length - 1 }[e.key];
		if (to === undefined) return;
		e.preventDefault();
		go(tabs[(to + tabs.length) % tabs.length], true);
	};
	select(tabs.find(x => '#' + x.getAttribute('aria-controls') === location.hash) || tabs[0]);
}

function light(theme) {
	if (theme) document.documentElement.dataset.theme = theme;
	else delete document.documentElement.dataset.theme;
	$('theme').value = theme;
}

async function start() {
	speak(new URLSearchParams(location.search).get('lang') || recall('language') || navigator.language.slice(0, 2));
	light(recall('theme') || '');
	$('language').onchange = e => { remember('language', e.target.value); speak(e.target.value); if (info) showInfo(); };
	$('theme').onchange = e => { remember('theme', e.target.value); light(e.target.value); };
	$('cancel').onclick = stop;
	for (const make of [makeModels, makeChat, makeProof, makeBench, makeProbe]) make();
	$('backend').value = recall('backend') || '';
	setTabs();
	setBusy('');
	if (!globalThis.isSecureContext || !globalThis.Worker || !globalThis.WebAssembly) return note('error', 'error_old');
	if (await boot()) await loadLast();
}

// loadLast loads the model that the page had when it was left, or the demo.
async function loadLast() {
	const last = recallJSON('model'), demo = { kind: 'demo', name: 'demo.gguf' };
	if (last?.kind === 'kept') {
		const { models } = await call('kept').catch(() => ({ models: [] }));
		if (models.some(m => m.key === last.key && m.done)) await loadModel(last);
	}
	if (!info) await loadModel(demo);
	if (last?.kind === 'file') note('again', 'openAgain', { name: last.name }, '', ['localFile', () => $('file').click()]);
}

if (typeof document === 'undefined') serve();
else document.readyState === 'loading' ? addEventListener('DOMContentLoaded', start) : start();
