// The page's ground: elements, words, numbers and notes.
// Text becomes text nodes only; nothing here parses HTML.

// h makes an element. Of props, "on…" are listeners, "t" and "tLabel" are words of the
// interface ([key, values] or a key), as is "tPlaceholder"; "class", "dir" and the like are attributes.
function h(tag, props, ...kids) {
	const e = document.createElement(tag);
	for (const [k, v] of Object.entries(props || {})) {
		if (v === undefined || v === null || v === false) continue;
		if (k.startsWith('on')) e.addEventListener(k.slice(2), v);
		else if (k === 't') say(e, ...[v].flat());
		else if (k === 'tLabel') say(e, ...[v].flat(), 'label');
		else if (k === 'tPlaceholder') say(e, ...[v].flat(), 'placeholder');
		else if (k === 'value' || k === 'checked' || k === 'disabled' || k === 'max') e[k] = v;
		else e.setAttribute(k, v === true ? '' : v);
	}
	e.append(...kids.flat().filter(k => k !== undefined && k !== null));
	return e;
}

const $ = id => document.getElementById(id);

// said are the words that an element shows, to be said again in another language.
const said = new WeakMap();

// say puts words into an element, or into its label for screen readers, or its placeholder.
function say(e, key, values, where = 'text') {
	if (typeof values === 'string') [values, where] = [undefined, values];
	said.set(e, { ...said.get(e), [where]: [key, values] });
	e.dataset.said = '';
	spell(e);
}

function spell(e) {
	const { text, label, placeholder } = said.get(e) || {};
	if (text) e.textContent = t(...text);
	if (label) e.setAttribute('aria-label', t(...label));
	if (placeholder) e.placeholder = t(...placeholder);
}

// remember keeps a choice of the reader, where the browser lets pages keep something: for
// this browser or, in tabStore, for this tab, whose reloads it survives.
const tabStore = () => sessionStorage, siteStore = () => localStorage;
const remember = (key, value, store = siteStore) => { try { store().setItem(key, value); } catch { /* it is forgotten */ } };
const recall = (key, store = siteStore) => { try { return store().getItem(key); } catch { return null; } };
const recallJSON = (key, store) => { try { return JSON.parse(recall(key, store)); } catch { return null; } };

let language = 'en';

// t is a text of the interface, with {names} replaced. Values that are functions are
// called, so that numbers follow the language.
function t(key, values) {
	const text = WORDS[language][key] ?? WORDS.en[key] ?? key;
	return text.replace(/\{(\w+)\}/g, (all, name) => {
		const v = values && values[name];
		return v === undefined ? all : typeof v === 'function' ? v() : typeof v === 'number' ? number(v) : v;
	});
}

function speak(lang) {
	language = WORDS[lang] ? lang : 'en';
	document.documentElement.lang = language;
	document.documentElement.dir = language === 'ar' ? 'rtl' : 'ltr';
	for (const e of document.querySelectorAll('[data-t]')) if (!said.get(e)) say(e, e.dataset.t);
	for (const e of document.querySelectorAll('[data-t-label]')) if (!said.get(e)?.label) say(e, e.dataset.tLabel, 'label');
	for (const e of document.querySelectorAll('[data-said]')) spell(e);
	$('language').value = language;
}

// counted is a word for so many of something: the forms in WORDS, between bars, are those
// of FORMS, in that order.
const FORMS = { en: ['one', 'other'], ar: ['one', 'two', 'few', 'many', 'other'], zh: ['other'] };
const counted = (key, n) => () => {
	const forms = WORDS[language][key].split('|'), i = FORMS[language].indexOf(new Intl.PluralRules(language).select(n));
	return (forms[i] ?? forms.at(-1)).replace('{n}', number(n));
};

// locale has European digits in Arabic, too: figures here are compared with others'.
const locale = () => language === 'ar' ? 'ar-u-nu-latn' : language;

const number = (v, digits = 3) => typeof v !== 'number' ? String(v) : new Intl.NumberFormat(locale(), { maximumSignificantDigits: Number.isInteger(v) ? 21 : digits }).format(v);

// exponent is a number as 1.2e-7 where it is small or large: the same in all languages,
// and not broken at its hyphen.
const exponent = v => {
	v = Number(v);
	const text = v === 0 || !isFinite(v) ? String(v) : Math.abs(v) < 1e-3 || Math.abs(v) >= 1e5 ? v.toExponential(1) : String(+v.toPrecision(3));
	return '\u2066' + text.replace(/-/g, '\u2060-\u2060') + '\u2069';
};

function bytes(n) {
	const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
	let i = 0;
	for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
	return '\u2066' + new Intl.NumberFormat(locale(), { maximumFractionDigits: n < 10 && i ? 1 : 0 }).format(n) + '\u00a0' + units[i] + '\u2069';
}

const percent = v => new Intl.NumberFormat(locale(), { style: 'percent', maximumFractionDigits: 1 }).format(v);

// field is a labelled input.
function field(key, input, props) {
	return h('label', { class: 'field', ...props }, h('span', { t: key }), input);
}

const amount = (id, value, min, max, step) => h('input', { id, type: 'number', value, min, max, step: step || 1, inputmode: 'decimal', dir: 'ltr' });

// read is the number in an input, within its bounds.
function read(input) {
	const v = Number(input.value), min = Number(input.min), max = Number(input.max);
	const ok = input.value.trim() !== '' && isFinite(v) ? Math.min(Math.max(v, min), max) : Number(input.defaultValue || input.getAttribute('value') || min);
	input.value = ok;
	return ok;
}

// menu is a button that opens a list of things to do: [word, function].
function menu(label, items) {
	const e = h('details', { class: 'menu', onfocusout: x => { if (!e.contains(x.relatedTarget)) e.open = false; } }, h('summary', { tLabel: label }, '⋯'),
		h('div', { class: 'card pop' }, items.map(([key, act]) => h('button', { type: 'button', class: 'small', t: key, onclick: () => { e.open = false; act(); } }))));
	return e;
}

// table is rows of cells: strings, or {text, n (a number's cell), dir, class, t}.
function table(caption, heads, rows) {
	const cell = (c, tag) => {
		if (typeof c !== 'object' || c instanceof Node) c = { text: c };
		return h(tag, { class: [c.n && 'n', c.class].filter(Boolean).join(' ') || undefined, dir: c.dir || (c.n ? 'ltr' : undefined), t: c.t, title: c.title, scope: tag === 'th' ? 'col' : undefined }, c.t ? [] : c.text ?? '');
	};
	return h('div', { class: 'scroll', tabindex: '0', role: 'region', tLabel: caption },
		h('table', null, h('caption', { t: caption }), h('thead', null, h('tr', null, heads.map(c => cell(c, 'th')))),
			h('tbody', null, rows.map(r => h('tr', null, r.map(c => cell(c, 'td')))))));
}

// announce has a screen reader say a text when it is through with what it says.
function announce(text) { $('live').append(h('p', { dir: 'auto' }, text)); while ($('live').childElementCount > 20) $('live').firstChild.remove(); }

// note shows what happened, with what to do. One of each kind is shown; what a reader has
// dismissed is not told again in this tab, but for errors.
function note(kind, key, values, detail, ...actions) {
	clearNote(kind);
	const error = kind === 'error';
	if (!error && recall('dismissed ' + key, tabStore)) return;
	$('notes').append(h('div', { class: 'note ' + (error ? 'bad' : ''), 'data-kind': kind, role: error ? 'alert' : 'status' },
		h('div', null, h('span', { t: [key, values] }), detail ? h('code', { dir: 'auto', lang: 'en' }, detail) : null),
		actions.map(([key, act]) => h('button', { class: 'small', t: key, onclick: () => { clearNote(kind); act(); } })),
		h('button', { class: 'small', t: 'dismiss', onclick: () => { clearNote(kind); if (!error) remember('dismissed ' + key, '1', tabStore); } })));
	if (error) $('notes').lastChild.scrollIntoView({ block: 'nearest' });
}

function clearNote(kind) { for (const e of document.querySelectorAll(`#notes [data-kind=${kind}]`)) e.remove(); }

// Errors for which there are words, by kind; others are shown as they are.
function fail(e) {
	if (e.kind === 'aborted') return;
	const kind = WORDS.en['error_' + e.kind] ? e.kind : 'other';
	const again = with_ => loadModel(e.source || choice, with_); // what failed to load, or else what is there
	const actions = {
		lost: [['again', () => again()], ['useCPU', () => again('cpu')]],
		'no-gpu': [['useCPU', () => again('cpu')]],
		shader: [['useCPU', () => again('cpu')]],
		memory: [['models', () => openModels()]],
		crash: [['restart', () => restart()]],
		file: [['models', () => openModels()]],
		architecture: [['models', () => openModels()]],
		noReceipt: info?.backend === 'webgpu' ? [['useCPU', () => again('cpu')]] : [],
		browser: [['demo', () => loadModel({ kind: 'demo', name: 'demo.gguf' })], ['models', () => openModels()]],
	}[kind] || [];
	note('error', 'error_' + kind, undefined, e.message, ...actions);
}
