// The page: its tabs, language and light, and the model that it begins with.

let info = null; // of the model that is loaded
let choice = { kind: 'demo' }; // the model that was asked for
let adapters = null;

// busy is what runs on the model; the buttons that would start something wait.
let busy = '';
function setBusy(what) {
	busy = what;
	for (const e of document.querySelectorAll('[data-needs]')) e.disabled = !!busy || !info;
	for (const e of document.querySelectorAll('[data-stops]')) e.hidden = busy !== e.dataset.stops;
	for (const e of document.querySelectorAll('[data-starts]')) e.hidden = busy === e.dataset.starts;
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
	patience = setTimeout(() => { if (busy && busy === what) note('info', 'hangs', undefined, '', ['restart', restart]); }, 5000);
}

const backend = () => $('backend')?.value || undefined;

async function loadModel(source, with_) {
	choice = source;
	await during('load', async () => {
		info = null;
		showModel('loadingModel', { name: source.name || 'demo.gguf' });
		$('loading').hidden = false;
		try {
			info = await call('load', { source, backend: with_ || backend() }, e => {
				const done = e.have ?? e.checked ?? e.read;
				if (done !== undefined && e.size) { $('loading').max = e.size; $('loading').value = done; }
			});
			if (source.kind === 'file') source.name = info.name;
			showInfo();
			for (const f of fresh) f();
		} catch (e) {
			showModel('noModel');
			throw e;
		} finally {
			$('loading').hidden = true;
			$('loading').removeAttribute('value');
		}
	});
}

const fresh = []; // what each tab does when a model was loaded

const reload = with_ => loadModel(choice, with_);

function showModel(key, values) { $('model').replaceChildren(h('span', { t: [key, values] })); }

function showInfo() {
	const device = info.backend === 'webgpu' ? info.adapter?.name || 'WebGPU' : t('processor');
	$('model').replaceChildren(h('b', { dir: 'auto' }, info.name), h('span', { t: ['modelLine', {
		arch: info.architecture, bytes: () => bytes(info.bytes), device: () => info.backend === 'webgpu' ? 'WebGPU, ' + device : t('processor'), memory: () => memory(info.stats) }] }));
	if (info.backend === 'cpu' && adapters?.why) note('info', 'onCPU', undefined, adapters.why);
	else if (info.backend === 'cpu' && adapters?.[0]?.kind === 'cpu') note('info', 'onCPUFallback');
	else if (info.backend === 'webgpu' && info.adapter?.kind === 'cpu') note('info', 'fallback');
	else clearNote('info');
}

const memory = s => !s ? '' : s.gpuBytes ? t('memoryBoth', { own: bytes(s.wasmBytes), gpu: bytes(s.gpuBytes) }) : bytes(s.wasmBytes || 0);

// keep shows the memory after something ran.
function keep(stats) { if (info && stats) { info.stats = stats; showInfo(); } }

async function boot() {
	showModel('starting');
	$('loading').hidden = false;
	startWorker();
	try {
		const r = await call('boot', {}, ({ have, size }) => { $('loading').max = size; $('loading').value = have; });
		adapters = r.adapters;
		version = r.version;
	} catch (e) {
		$('loading').hidden = true;
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

// remember keeps a choice of the reader, where the browser lets pages keep something.
const remember = (key, value) => { try { localStorage.setItem(key, value); } catch { /* it is forgotten */ } };
const recall = key => { try { return localStorage.getItem(key); } catch { return null; } };

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
	for (const make of [makeModels, makeChat, makeProof, makeBench, makeProbe]) make();
	$('backend').value = recall('backend') || '';
	setTabs();
	setBusy('');
	if (!globalThis.isSecureContext || !globalThis.Worker || !globalThis.WebAssembly) return note('error', 'error_old');
	if (await boot()) await loadModel({ kind: 'demo', name: 'demo.gguf' });
}

if (typeof document === 'undefined') serve();
else document.readyState === 'loading' ? addEventListener('DOMContentLoaded', start) : start();
