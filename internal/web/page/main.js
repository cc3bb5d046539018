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
		if (source.kind !== 'served' && !await boot()) return void (info ? showInfo() : showModel('noModel'));
		showModel('loadingModel', { name: source.name || 'demo.gguf' });
		if (source.about) $('model').append(facts(source.about));
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
			info = e.model || (before?.driver === 'server' ? before : null);
			throw Object.assign(e, { source });
		} finally {
			progress(false);
			info ? showInfo() : showModel('noModel');
			remember('model', JSON.stringify({ kind: choice.kind, key: choice.key, name: choice.name }));
		}
		clearNote('again');
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
	if (!info) return;
	const served = info.driver === 'server', facts = [info.architecture, info.quantization, info.parameters || (info.bytes && bytes(info.bytes)), memory(info.stats)].filter(Boolean).join(' · ');
	const proved = served ? null : proving || recallJSON('proved ' + provedName());
	$('model').replaceChildren(h('b', { dir: 'auto', title: info.name }, info.name), badge(served), proved ? h('span', { id: 'proved', class: proved.ok === proved.n ? 'good' : 'badly', title: t('provedHere', proved), 'data-share': `${proved.ok === proved.n ? '✓' : '✗'} ${proved.ok}/${proved.n}`, t: ['provedShort', proved] }) : '', h('span', { class: 'muted facts', dir: 'auto' }, facts));
}

// badge says in a word what computes; opened, it says why.
function badge(served) {
	const gpu = info.backend === 'webgpu', why = [];
	if (served) why.push(h('p', { t: ['onServer', { host: location.host }] }));
	else if (gpu) why.push(h('p', null, 'WebGPU, ' + (info.adapter?.name || '')), info.adapter?.kind === 'cpu' ? h('p', { t: 'fallback' }) : null);
	else why.push(h('p', { t: !adapters?.why ? adapters?.[0]?.kind === 'cpu' ? 'onCPUFallback' : 'onCPUChosen' : /has no WebGPU/.test(adapters.why) ? 'onCPU' : 'noAdapter' }), adapters?.why ? h('code', { dir: 'auto', lang: 'en' }, adapters.why) : null);
	return h('details', { class: 'badge' }, h('summary', { t: served ? 'server' : gpu ? 'gpu' : 'cpu' }), h('div', { class: 'card pop' }, why));
}

const memory = s => !s ? '' : s.gpuBytes ? t('memoryBoth', { own: bytes(s.wasmBytes), gpu: bytes(s.gpuBytes) }) : bytes(s.wasmBytes || 0);

// keep shows the memory after something ran.
function keep(stats) { if (info && stats) { info.stats = stats; showInfo(); } }

let booting; // the start of this browser's engine, which happens once it is wanted

// boot starts the engine of this browser, and reports whether it did.
function boot() {
	return booting ||= (async () => {
		showModel('starting');
		progress(true);
		engine.start();
		try {
			const r = await ask('boot', { program: 'karat.wasm?' + SITE.files['karat.wasm'].sha256.slice(0, 12), length: SITE.files['karat.wasm'].bytes }, ({ have, size }) => progress(true, have, size));
			adapters = r.adapters;
			version = r.version;
			return true;
		} catch (e) {
			progress(false);
			booting = null;
			fail(e);
			return false;
		}
	})();
}

let version = '';

async function restart() {
	setBusy('');
	booting = null;
	info = null;
	await reload();
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
	$('language').onchange = e => { remember('language', e.target.value); speak(e.target.value); if (info) { showInfo(); recommend(); } listTalks(); };
	$('theme').onchange = e => { remember('theme', e.target.value); light(e.target.value); redrawn(); };
	$('cancel').onclick = stop;
	document.querySelector('.skip').onclick = e => { if (!$('chat').hidden) { e.preventDefault(); $('say').focus(); } };
	$('list-talks').onclick = () => document.body.classList.toggle('listing');
	for (const make of [makeModels, makeChat, makeProof, makeBench, makeDiagnosis, makeProbe]) make();
	$('backend').value = recall('backend') || '';
	setTabs();
	setBusy('');
	if (!globalThis.isSecureContext || !globalThis.Worker || !globalThis.WebAssembly) return note('error', 'error_old');
	if (!SITE.server) navigator.serviceWorker?.register(scripts.createScriptURL('sw.js')).catch(() => {}); // without one the page works online
	await recallChat();
	if (!SITE.server || !await loadServed()) await loadLast();
}

// loadServed loads one of the server's models, unless the reader has chosen this browser's engine.
async function loadServed() {
	const last = recallJSON('model');
	if (last && last.kind !== 'served') return false;
	let list;
	try {
		list = await served();
	} catch (e) {
		showModel('noModel');
		e.kind === 'key' ? askKey() : fail(e);
		return true;
	}
	if (!list.length) return false;
	await loadModel({ kind: 'served', name: (list.find(m => m.id === last?.name) || list[0]).id });
	return true;
}

// askKey asks for the key of the server, and begins again with it.
function askKey() {
	const input = h('input', { id: 'key', type: 'password', autocomplete: 'off', dir: 'ltr' });
	$('notes').replaceChildren(h('form', { class: 'note', 'data-kind': 'key', onsubmit: e => {
		e.preventDefault();
		remember('key', input.value.trim(), tabStore);
		clearNote('key');
		loadServed();
	} }, apiKey() ? h('p', { class: 'badly', role: 'alert', t: 'error_key' }) : null, field('wantsKey', input, { class: 'field grow' }), h('button', { class: 'main', t: 'useKey' }), h('button', { type: 'button', t: 'useBrowser', onclick: () => { clearNote('key'); loadLast(); } })));
	input.focus();
}

// loadLast loads the model of this browser that the page had when it was left, or the demo.
async function loadLast() {
	const last = recallJSON('model'), demo = { kind: 'demo', name: 'demo.gguf' };
	if (last?.kind === 'kept') {
		const { models } = await ask('kept').catch(() => ({ models: [] }));
		if (models.some(m => m.key === last.key && m.done)) await loadModel(last);
	}
	if (!info) await loadModel(demo);
	if (last?.kind === 'file') note('again', 'openAgain', { name: last.name }, '', ['localFile', () => $('file').click()]);
}

if (typeof document === 'undefined') serve(() => new Worker(scripts.createScriptURL('karat.js')));
else document.readyState === 'loading' ? addEventListener('DOMContentLoaded', start) : start();
