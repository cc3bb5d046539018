// Chat: a conversation by the model's own template, or a raw text to continue.

// Examples are of what the demo knows, which is English.
const examples = { chat: ['What is the color of the sky?', 'What is the opposite of wet?'], text: ['The color of the sky is', 'func main() {'] };

// talk is what was said in each mode: turns of {role, text}, and e, what shows one. It is
// kept for this tab, so that a reload or a lost GPU loses nothing.
const talk = { chat: [], text: [] };
const messages = () => talk.chat.map(({ role, text }) => ({ role, content: text }));
const mode = () => $('mode').value;

function keepTalk() {
	const plain = list => list.map(({ role, text }) => ({ role, text }));
	remember('talk', JSON.stringify({ chat: plain(talk.chat), text: plain(talk.text), draft: $('say').value }), tabStore);
}

function recallTalk() {
	const kept = recallJSON('talk', tabStore);
	for (const name of ['chat', 'text']) talk[name] = Array.isArray(kept?.[name]) ? kept[name].filter(x => typeof x?.text === 'string' && /^(user|assistant)$/.test(x.role)) : [];
	if (talk.chat.at(-1)?.role === 'user') talk.chat.pop(); // nothing had come of it
	$('say').value = typeof kept?.draft === 'string' ? kept.draft : '';
}

function makeChat() {
	const say_ = h('textarea', { id: 'say', rows: 2, dir: 'auto', onkeydown: e => {
		if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
	} });
	$('chat').append(
		h('div', { id: 'log', class: 'log', tabindex: '0', role: 'log', 'aria-live': 'off', tLabel: 'conversation' }),
		sideOfChat(),
		h('form', { id: 'composer', onsubmit: e => { e.preventDefault(); send(); } },
			field('message', say_),
			h('div', { class: 'row' },
				h('button', { id: 'send', class: 'main', t: 'send', 'data-needs': '', 'data-starts': 'chat' }),
				h('button', { id: 'stop', type: 'button', t: 'stop', 'data-stops': 'chat', hidden: true, onclick: stop }),
				h('button', { id: 'show-prompt', type: 'button', t: 'showPrompt', 'data-needs': '', 'aria-expanded': 'false', 'aria-controls': 'prompt', onclick: togglePrompt }),
				h('button', { id: 'forget', type: 'button', t: 'forget', 'data-needs': '', onclick: forget })),
			h('div', { id: 'prompt', class: 'card shown', hidden: true, tabindex: '0', role: 'region', tLabel: 'promptTitle' })));
	addEventListener('keydown', e => { if (e.key === 'Escape' && busy && busy !== 'load' && !$('models').open) stop(); });
	$('chat').querySelector('.side').addEventListener('change', keepSettings);
	addEventListener('pagehide', keepTalk);
	fresh.push(settle);
	recallSettings();
	recallTalk();
	draw();
}

// The fields of settings, which are kept for this browser.
const settings = ['mode', 'max-tokens', 'temperature', 'top-k', 'top-p', 'min-p', 'seed', 'repeat-penalty', 'repeat-last'];

let wanted = 'chat', settled = ''; // the mode that the reader chose, and the model whose recommendations were taken

function keepSettings(e) {
	if (e?.target === $('mode')) wanted = mode();
	remember('settings', JSON.stringify({ ...Object.fromEntries(settings.map(id => [id, $(id).value])), mode: wanted, settled }));
}

function recallSettings() {
	const kept = recallJSON('settings') || {};
	for (const id of settings) if (typeof kept[id] === 'string') $(id).value = kept[id];
	if (!$('mode').value) $('mode').value = 'chat';
	[wanted, settled] = [mode(), kept.settled];
}

// settle fits the settings to a model that was loaded: its publisher's recommendations if it
// is another one, and what it can do.
function settle() {
	const name = info.sha256 || `${info.name} ${info.size}`;
	if (settled !== name) {
		settled = name;
		recommend();
	}
	$('mode').querySelector('[value=chat]').disabled = !info.template;
	if (!info.template) note('mode', 'noTemplate');
	else clearNote('mode');
	$('log').scrollTop = $('log').scrollHeight; // which has less room below a note
	const able = info.template ? wanted : 'text';
	if (mode() === able) return;
	$('mode').value = able;
	draw();
}

function sideOfChat() {
	const fields = h('div', { class: 'fields' },
		h('label', { class: 'field wide' }, h('span', { t: 'mode' }), h('select', { id: 'mode', onchange: draw }, h('option', { value: 'chat', t: 'modeChat' }), h('option', { value: 'text', t: 'modeText' }))),
		field('maxTokens', amount('max-tokens', 128, 1, 100000)), field('temperature', amount('temperature', 0, 0, 5, 0.05)),
		field('topK', amount('top-k', 0, 0, 1000000)), field('topP', amount('top-p', 0, 0, 1, 0.01)),
		field('minP', amount('min-p', 0, 0, 1, 0.01)), field('seed', amount('seed', '', 0, 2 ** 53 - 1)),
		field('repeatPenalty', amount('repeat-penalty', 0, 0, 10, 0.01)), field('repeatLast', amount('repeat-last', 64, -1, 1000000)),
		h('p', { class: 'muted wide', t: 'samplingHelp' }), h('button', { type: 'button', class: 'small wide', t: 'recommended', onclick: recommend }));
	return h('details', { class: 'side card', open: wide() }, h('summary', { t: 'sampling' }), fields);
}

// recommend sets what the model's publisher recommends.
function recommend() {
	const s = info?.sampling || {};
	for (const [id, v] of Object.entries({ temperature: s.temperature, 'top-k': s.topK, 'top-p': s.topP, 'min-p': s.minP, 'repeat-penalty': s.repeatPenalty })) $(id).value = v || 0;
	$('repeat-last').value = s.repeatLast || 64;
	keepSettings();
}

// seed is the one that was set, or one that is drawn anew for each answer.
const seed = () => $('seed').value.trim() === '' ? crypto.getRandomValues(new Uint32Array(1))[0] : read($('seed'));

const samplingOf = () => ({ ...info.sampling, temperature: read($('temperature')), topK: read($('top-k')), topP: read($('top-p')), minP: read($('min-p')), seed: seed(), repeatPenalty: read($('repeat-penalty')), repeatLast: read($('repeat-last')) });

function forget() {
	talk[mode()] = [];
	keepTalk();
	draw();
}

// draw shows the conversation of the mode, or how to begin one.
function draw() {
	hidePrompt();
	const turns = talk[mode()];
	$('log').replaceChildren(...turns.map(x => (x.e ||= turn(x))));
	if (!turns.length) $('log').append(h('div', { class: 'empty' }, h('p', { t: mode() === 'text' ? 'emptyText' : 'emptyChat' }),
		h('div', { class: 'row' }, examples[mode()].map(x => h('button', { type: 'button', class: 'small', dir: 'auto', lang: 'en', onclick: () => { $('say').value = x; $('say').focus(); } }, x)))));
	$('log').scrollTop = $('log').scrollHeight;
}

function hidePrompt() {
	$('prompt').hidden = true;
	$('show-prompt').setAttribute('aria-expanded', 'false');
}

const draft = () => $('say').value.trim();

const turn = ({ role, text }) => h('div', { class: 'turn ' + role }, h('span', { class: 'who', t: role === 'user' ? 'you' : 'answer' }),
	h('div', { class: 'text', dir: 'auto' }, role === 'user' || mode() === 'text' ? text : text.trimStart()), h('div', { class: 'muted stats' }));

async function send() {
	const text = mode() === 'text' ? $('say').value : draft();
	if (!text.trim() || busy || !info) return;
	const where = mode(), before = where === 'text' ? [] : talk.chat, old = talk[where];
	const said = { role: 'assistant', text: '' };
	const prompt = where === 'text' ? text : [...messages(), { role: 'user', content: text }];
	$('say').value = '';
	talk[where] = [...before, { role: 'user', text }, said];
	draw();
	const r = await during('chat', () => answer(prompt, said));
	said.e.querySelector('.text').classList.remove('typing');
	if (!said.text && r?.stop !== 'end') { // nothing came of it: what was asked is there to be sent again
		talk[where] = old;
		$('say').value = $('say').value ? text + '\n' + $('say').value : text; // with what was typed meanwhile
		draw();
	}
	keepTalk();
	$('say').focus();
}

// answer streams an answer into a turn. A screen reader hears it sentence by sentence.
async function answer(prompt, said) {
	const began = performance.now(), log = $('log'), body = said.e.querySelector('.text'), line = said.e.querySelector('.stats'), sampling = samplingOf();
	let first = 0, tokens = 0, unsaid = '';
	body.classList.add('typing');
	const hear = end => {
		const cut = end ? unsaid.length : unsaid.search(/[.!?؟。\n][^.!?]*$/) + 1;
		if (cut > 0 && unsaid.slice(0, cut).trim()) announce(unsaid.slice(0, cut));
		unsaid = unsaid.slice(cut);
	};
	const r = await call('generate', { prompt, options: { maxTokens: read($('max-tokens')), sampling } }, token => {
		first ||= performance.now();
		const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 80, text = ++tokens === 1 && Array.isArray(prompt) ? token.text.trimStart() : token.text;
		said.text += text;
		body.append(text);
		unsaid += token.text;
		hear();
		say(line, 'speedNow', { tokens: counted('tokens', tokens), rate: () => number(tokens / ((performance.now() - first) / 1000 || 1), 3) });
		if (follow) log.scrollTop = log.scrollHeight;
	});
	hear(true);
	if (Array.isArray(prompt) && r.text) said.text = r.text; // as the model said it, for the next prompt
	say(line, sampling.temperature > 0 ? 'speedSeed' : 'speed', { tokens: counted('tokens', r.tokens), rate: rate(r), prompt: counted('tokens', r.prompt), kept: r.kept, promptSeconds: () => number(r.promptSeconds, 2),
		first: () => number(((first || performance.now()) - began) / 1000, 2), why: () => t('stop_' + r.stop), seed: String(sampling.seed) });
	if (log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
	keep(r.stats);
	return r;
}

// rate is tokens a second behind the first, which the prompt's step gives.
const rate = r => r.tokens > 1 && r.seconds > 0 ? (r.tokens - 1) / r.seconds : 0;

async function togglePrompt() {
	const shown = $('prompt');
	if (!shown.hidden) return hidePrompt();
	await during('render', async () => {
		const text = mode() === 'text';
		const r = text ? { text: $('say').value, tokens: await call('tokenize', { text: $('say').value }) }
			: await call('render', { messages: draft() ? [...messages(), { role: 'user', content: draft() }] : messages() });
		shown.replaceChildren(h('h3', { t: text ? 'promptText' : 'promptTitle' }), h('pre', { dir: 'auto' }, r.text), idList(r.tokens),
			text ? '' : h('details', null, h('summary', { t: 'template' }), h('pre', { dir: 'ltr' }, info.template)));
		shown.hidden = false;
		$('log').scrollTop = $('log').scrollHeight; // which has less room now
		$('show-prompt').setAttribute('aria-expanded', 'true');
		shown.scrollIntoView({ block: 'nearest' });
	});
}

// visible is a token's text whose spaces and lines' ends are seen.
const visible = text => text.replace(/ /g, '␣').replace(/\n/g, '↵');

// idList shows tokens with their ids.
function idList(tokens) {
	return h('div', null, h('p', { class: 'muted', t: ['tokenCount', { tokens: counted('tokens', tokens.length) }] }),
		h('ol', { class: 'tokens', dir: 'ltr' }, tokens.map(x => h('li', null, h('small', null, String(x.id)), visible(x.text)))));
}
