// The dialog of models: the demo, a file, an address, and what is kept.

function openModels() {
	if (!$('models').open) {
		$('models').showModal();
		$('models').querySelector('.head').after($('notes'), $('live')); // nothing is seen or heard of what lies behind
	}
	showServed();
	showKept();
}

// showServed lists the server's models, where there is a server.
async function showServed() {
	if (!SITE.server) return;
	const about = async path => new Map((await json(path).catch(() => ({ models: [] }))).models.map(m => [m.model, m])); // a key may not ask for them
	const [list, all, loaded] = await Promise.all([served().catch(() => []), about('api/tags'), about('api/ps')]);
	$('served').replaceChildren(...list.map(m => h('li', null, h('span', { class: 'name', dir: 'auto' }, m.id),
		facts({ size: all.get(m.id)?.size, type: all.get(m.id)?.details.quantization_level || typeOf(m.id), context: m.max_model_len }),
		h('span', { class: 'muted', t: loaded.has(m.id) ? ['usesMemory', { memory: () => bytes(loaded.get(m.id).size) }] : all.get(m.id)?.size ? ['leastMemory', { memory: () => bytes(all.get(m.id).size) }] : 'notLoaded' }), m.modalities?.vision ? h('span', { class: 'muted', t: 'sees' }) : null,
		h('button', { class: 'small', t: 'use', tLabel: ['useName', { name: m.id }], onclick: () => take({ kind: 'served', name: m.id }) }))));
}

function makeModels() {
	$('open-models').onclick = openModels;
	$('models').onclose = () => document.querySelector('header').after($('notes'), $('live'));
	const file = h('input', { id: 'file', type: 'file', accept: '.gguf', multiple: true, hidden: true, onchange: () => {
		const files = [...file.files];
		file.value = '';
		if (files.length) takeFiles(files);
	} });
	const url = h('input', { id: 'url', type: 'text', inputmode: 'url', dir: 'ltr', placeholder: 'ORG/REPO, https://…/model.gguf', autocomplete: 'off' });
	const sum = h('input', { id: 'sum', dir: 'ltr', placeholder: '64 × 0–9 a–f', autocomplete: 'off', spellcheck: 'false' });
	$('models').append(h('div', null,
		h('div', { class: 'head' }, h('h2', { id: 'models-title', t: 'models' }), h('button', { t: 'close', onclick: () => $('models').close() })),
		SITE.server ? h('div', { class: 'part' }, h('h3', { t: 'onThisServer' }), h('ul', { id: 'served', class: 'kept' }), h('h3', { t: 'inThisBrowser' })) : null,
		h('div', { class: 'part' }, h('h3', { t: 'kept' }), h('ul', { id: 'kept', class: 'kept' })),
		h('div', { class: 'part' }, h('div', { class: 'row' }, h('button', { class: 'main', id: 'demo', t: 'demo', onclick: () => take({ kind: 'demo', name: 'demo.gguf' }) }),
			h('button', { t: 'localFile', 'aria-describedby': 'local-help', onclick: () => file.click() }), file), h('p', { class: 'muted', id: 'local-help', t: 'localHelp' })),
		h('form', { novalidate: true, onsubmit: e => { e.preventDefault(); fetchModel(url, sum); } }, h('h3', { t: 'network' }), h('p', { class: 'muted', t: 'addressHelp' }),
			field('address', url), h('div', { class: 'row' }, field('sum', sum, { class: 'field grow' }), h('button', { id: 'fetch', t: 'fetchOrFind' })), h('div', { id: 'files' })),
		field('backend', h('select', { id: 'backend', onchange: e => { remember('backend', e.target.value); if (info && info.driver !== 'server') reload(); } }, h('option', { value: '', t: 'backendAuto' }), h('option', { value: 'webgpu', t: 'backendGPU' }), h('option', { value: 'cpu', t: 'backendCPU' }))),
		h('div', { class: 'part' }, h('p', { id: 'room', class: 'muted' }), h('meter', { id: 'quota', tLabel: 'room' }))));
}

function take(source) {
	$('models').close();
	if (busy) return note('busy', 'busyNow');
	loadModel(source);
}

// typeOf is the type of weights that a file's name says.
const typeOf = name => /(?:^|[-_.\/])((?:I?Q|TQ)\d_\w+?|MXFP4(?:_MOE)?|NVFP4|BF16|F16|F32)(?=[-.]|$)/i.exec(name)?.[1].toUpperCase();

// facts are those of a model that one chooses by: size, type of weights, context.
const facts = ({ size, type, context }) => h('span', { class: 'muted facts' }, [size && h('span', null, bytes(size)), type && h('span', { dir: 'ltr' }, type), context && h('span', { t: ['servedFacts', { context }] })].filter(Boolean).flatMap((x, i) => i ? [' · ', x] : [x]));

// FILE_TYPES are llama.cpp's numbers of mixtures of types.
const FILE_TYPES = 'F32 F16 Q4_0 Q4_1 - - - Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ2_XXS IQ2_XS Q2_K_S IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M BF16 - - - TQ1_0 TQ2_0 MXFP4_MOE'.split(' ');

// headOf reads what the beginning of a GGUF file tells: {type, context}, as far as it does.
async function headOf(file) {
	const b = new DataView(await file.slice(0, 1 << 18).arrayBuffer()), found = {}, decoder = new TextDecoder();
	const sizes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
	let at = 24;
	const long = () => { at += 8; return Number(b.getBigUint64(at - 8, true)); };
	const text = () => { const n = long(), s = decoder.decode(new Uint8Array(b.buffer, at, n)); at += n; return s; };
	const skip = (type, n) => { if (type !== 8) at += sizes[type] * n; else for (; n > 0; n--) text(); };
	try {
		for (let n = Number(b.getBigUint64(16, true)); n > 0; n--) {
			const key = text(), type = b.getUint32(at, true), from = at += 4;
			if (type === 9) {
				const of = b.getUint32(at, true);
				at += 4;
				skip(of, long());
			} else skip(type, 1);
			if (type !== 4) continue;
			if (key === 'general.file_type') found.type = FILE_TYPES[b.getUint32(from, true) & 1023]?.replace('-', '') || undefined;
			else if (/^[\w-]+\.context_length$/.test(key)) found.context = b.getUint32(from, true);
		}
	} catch { /* what follows is of no interest, or no model */ }
	return found;
}

// takeFiles loads files of this device. It says what they are, and asks before one that is too large.
async function takeFiles(files) {
	const size = files.reduce((sum, f) => sum + f.size, 0), head = await headOf(files[0]).catch(() => ({}));
	const about = { size, type: head.type || typeOf(files[0].name), context: head.context }, source = { kind: 'file', files, name: files[0].name, about };
	if (fits(size)) return take(source);
	$('models').close();
	note('large', 'tooLarge', { name: source.name, size: () => bytes(size) }, [about.type, about.context && t('servedFacts', { context: about.context })].filter(Boolean).join(' · '), ['loadAnyway', () => take(source)]);
}

// room says before a download or a load about how much memory a model of so many bytes takes, or that it is too large.
const mostInMemory = 2 ** 31;
const fits = size => size <= mostInMemory || backend() === 'webgpu' || Array.isArray(adapters) && adapters[0]?.kind !== 'cpu' && backend() !== 'cpu';
function room(size) {
	return h('span', { class: fits(size) ? 'muted' : 'badly', t: fits(size) ? ['needsMemory', { memory: () => bytes(size * 1.2 + 2 ** 25) }] : 'needsGPU' });
}

// listRepos lists the repositories that words find at Hugging Face, one to be opened.
async function listRepos(words, url) {
	try {
		const all = await findRepos(words);
		$('files').replaceChildren(h('h3', { t: all.length ? 'repos' : 'nothingFound' }), h('ul', { class: 'kept' }, all.map(x => h('li', null, h('span', { class: 'name', dir: 'ltr' }, x.repo), x.downloads ? h('span', { class: 'muted', t: ['downloads', { n: x.downloads }] }) : null,
			h('button', { type: 'button', class: 'small', t: 'showFiles', tLabel: ['filesName', { name: x.repo }], onclick: () => { url.value = x.repo; listFiles(x.repo, url); } })))));
	} catch (e) {
		fail(e);
	}
}

// listFiles lists the GGUF files of ORG/REPO at Hugging Face, one to be chosen.
async function listFiles(repo, url) {
	try {
		const [all, about] = await Promise.all([ggufFiles(repo), aboutRepo(repo)]), files = [];
		for (const f of all) { // a split model is one
			const first = files.find(x => partOf(f.name) && partOf(x.name) === partOf(f.name));
			first ? Object.assign(first, { size: first.size + f.size, sha256: '' }) : files.push(f);
		}
		$('files').replaceChildren(h('h3', { t: [files.length ? 'files' : 'noFiles', { repo }] }), h('ul', { class: 'kept' }, files.map(f => h('li', null, h('span', { class: 'name', dir: 'ltr' }, f.name), facts({ size: f.size, type: typeOf(f.name), context: about?.context_length }), room(f.size),
			h('button', { type: 'button', class: 'small', t: 'download', onclick: () => { url.value = f.url; $('sum').value = f.sha256; $('files').replaceChildren(); $('fetch').click(); } })))));
	} catch (e) {
		fail(e);
	}
}

function fetchModel(url, sum) {
	const repo = repoOf(url.value);
	if (repo) return void listFiles(repo, url);
	if (url.value.trim() && !/[:/]|\.gguf$/i.test(url.value.trim())) return void listRepos(url.value.trim(), url);
	let address;
	try {
		address = addressOf(url.value.trim());
	} catch {
		url.setCustomValidity(t('badAddress'));
		url.reportValidity();
		url.oninput = () => url.setCustomValidity('');
		return;
	}
	const want = sum.value.trim().toLowerCase();
	if (want && !/^[0-9a-f]{64}$/.test(want)) {
		sum.setCustomValidity(t('badSum'));
		sum.reportValidity();
		sum.oninput = () => sum.setCustomValidity('');
		return;
	}
	navigator.storage.persist?.(); // asks that it is not thrown out when room gets scarce
	url.value = sum.value = '';
	fetchParts(want ? [address] : partsOf(address), want || undefined).then(done => {
		if (!done && !url.value) [url.value, sum.value] = [address, want]; // to be mended, or tried again
	});
}

async function fetchParts(urls, sha256) {
	for (const url of urls) if (!await fetchKept({ url, sha256 })) return false; // what is lacking can be asked for again
	return true;
}

const active = new Map(); // downloads that run, by address: {have, size, checked}

async function fetchKept(what) {
	active.set(what.url, {});
	showKept();
	let key, done = false;
	try {
		const about = await call('download', what, e => {
			key ||= e.key;
			Object.assign(active.get(what.url), e);
			showProgress(key, active.get(what.url));
			tellDownload(what, active.get(what.url));
		});
		clearNote('download');
		announce(t('downloaded', { name: about.name }));
		done = true;
		if (!$('models').open && !busy && !partOf(about.name)) loadModel({ kind: 'kept', key: about.key, name: about.name });
	} catch (e) {
		clearNote('download');
		fail(e);
	}
	active.delete(what.url);
	showKept();
	return done;
}

// tellDownload tells on the page itself how far a download is.
function tellDownload(what, { have, size }) {
	if (!size || $('models').open) return;
	const words = ['downloading', { name: what.name || nameOf(what.url), have: () => bytes(have ?? 0), size: () => bytes(size) }], shown = $('notes').querySelector('[data-kind=download] span');
	if (shown) say(shown, ...words);
	else note('download', ...words, '', ['pause', () => call('pause', { url: what.url })]);
}

function showProgress(key, { have, checked, size }) {
	const row = document.querySelector(`#kept [data-key="${key}"]`);
	if (!size) return;
	if (!row?.querySelector('progress')) return void showKept(); // it is new
	row.querySelector('progress').max = size;
	row.querySelector('progress').value = checked ?? have ?? 0;
	say(row.querySelector('.state'), checked !== undefined ? 'checking' : 'loaded', { have: () => bytes(checked ?? have), size: () => bytes(size) });
}

// showKept lists what is kept.
async function showKept() {
	if (!$('models').open) return;
	let k;
	try {
		k = await call('kept');
	} catch (e) {
		say($('room'), 'error_' + (e.kind === 'store' ? 'store' : 'other'));
		return;
	}
	say($('room'), 'roomUsed', { usage: () => bytes(k.usage), quota: () => bytes(k.quota) });
	$('quota').max = k.quota;
	$('quota').value = k.usage;
	$('kept').replaceChildren(...k.models.map(keptRow));
	if (!k.models.length) $('kept').append(h('li', { class: 'muted', t: 'nothingKept' }));
}

function keptRow(m) {
	const going = active.get(m.url), row = h('li', { 'data-key': m.key });
	const act = (key, f) => h('button', { class: 'small', t: key, tLabel: [key + 'Name', { name: m.name }], onclick: f });
	const buttons = going ? [act('pause', () => call('pause', { url: m.url }))]
		: m.done ? [act('use', () => take({ kind: 'kept', key: m.key, name: m.name })), act('check', e => checkModel(m, e.target))]
			: [act('resume', () => fetchKept({ url: m.url, name: m.name, sha256: m.want }))];
	const remove = act('remove', () => remove.replaceWith(act('reallyRemove', async () => {
		const done = await call('remove', { key: m.key }).catch(fail);
		if (done?.closed) noModel();
		$('open-models').focus();
		showKept();
	})));
	if (!going) buttons.push(remove);
	row.append(h('span', { class: 'name', dir: 'auto' }, m.name),
		m.done ? h('span', { class: 'state muted', t: [verified.has(m.key) ? 'checked' : 'size', { size: () => bytes(m.size) }] }) : h('span', { class: 'state muted', t: ['loaded', { have: () => bytes(m.have), size: () => bytes(m.size) }] }),
		facts({ type: typeOf(m.name) }), room(m.size),
		m.done ? '' : h('progress', { max: m.size, value: m.have, tLabel: ['downloadOf', { name: m.name }] }),
		m.sha256 ? h('code', { class: 'muted', dir: 'ltr', title: m.sha256 }, 'sha256 ' + m.sha256.slice(0, 16) + '…') : '',
		h('div', { class: 'row' }, buttons));
	return row;
}

const verified = new Set(); // the kept files whose hash was computed again

async function checkModel(m, button) {
	button.disabled = true;
	try {
		await call('check', { key: m.key });
		verified.add(m.key);
		showKept();
	} catch (e) {
		fail(e);
		button.disabled = false;
	}
}
