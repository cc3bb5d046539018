// Chat: a conversation by the model's own template, or a raw text to continue.

// Examples are of what the demo knows, which is English.
const examples = { chat: ['What is the color of the sky?', 'What is the opposite of wet?'], text: ['The color of the sky is', 'func main() {'] };

let messages = []; // of the conversation, as the template gets them

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
	fresh.push(forget, recommend);
	forget();
}

function sideOfChat() {
	const fields = h('div', { class: 'fields' },
		h('label', { class: 'field wide' }, h('span', { t: 'mode' }), h('select', { id: 'mode', onchange: forget }, h('option', { value: 'chat', t: 'modeChat' }), h('option', { value: 'text', t: 'modeText' }))),
		field('maxTokens', amount('max-tokens', 128, 1, 100000)), field('temperature', amount('temperature', 0, 0, 5, 0.05)),
		field('topK', amount('top-k', 0, 0, 1000000)), field('topP', amount('top-p', 0, 0, 1, 0.01)),
		field('minP', amount('min-p', 0, 0, 1, 0.01)), field('seed', amount('seed', 0, 0, 2 ** 53 - 1)),
		field('repeatPenalty', amount('repeat-penalty', 0, 0, 10, 0.01)), field('repeatLast', amount('repeat-last', 64, -1, 1000000)),
		h('p', { class: 'muted wide', t: 'samplingHelp' }), h('button', { type: 'button', class: 'small wide', t: 'recommended', onclick: recommend }));
	return h('details', { class: 'side card', open: matchMedia('(min-width: 761px)').matches }, h('summary', { t: 'sampling' }), fields);
}

// recommend sets what the model's publisher recommends.
function recommend() {
	const s = info?.sampling || {};
	for (const [id, v] of Object.entries({ temperature: s.temperature, 'top-k': s.topK, 'top-p': s.topP, 'min-p': s.minP, 'repeat-penalty': s.repeatPenalty })) $(id).value = v || 0;
	$('repeat-last').value = s.repeatLast || 64;
	if (info && !info.template) $('mode').value = 'text';
}

const samplingOf = () => ({ ...info.sampling, temperature: read($('temperature')), topK: read($('top-k')), topP: read($('top-p')), minP: read($('min-p')), seed: read($('seed')), repeatPenalty: read($('repeat-penalty')), repeatLast: read($('repeat-last')) });

function forget() {
	messages = [];
	const mode = $('mode').value;
	$('log').replaceChildren(h('div', { class: 'empty' }, h('p', { t: mode === 'text' ? 'emptyText' : 'emptyChat' }),
		h('div', { class: 'row' }, examples[mode].map(x => h('button', { type: 'button', class: 'small', dir: 'auto', lang: 'en', onclick: () => { $('say').value = x; $('say').focus(); } }, x)))));
	$('prompt').hidden = true;
	$('show-prompt').setAttribute('aria-expanded', 'false');
}

const draft = () => $('say').value.trim();

function turn(role, text) {
	$('log').querySelector('.empty')?.remove();
	const body = h('div', { class: 'text', dir: 'auto' }, text), line = h('div', { class: 'muted stats' });
	const e = h('div', { class: 'turn ' + role }, h('span', { class: 'who', t: role === 'user' ? 'you' : 'answer' }), body, line);
	$('log').append(e);
	e.scrollIntoView({ block: 'end' });
	return { e, body, line };
}

async function send() {
	const text = $('mode').value === 'text' ? $('say').value : draft();
	if (!text.trim() || busy || !info) return;
	$('say').value = '';
	$('prompt').hidden = true;
	$('show-prompt').setAttribute('aria-expanded', 'false');
	if ($('mode').value === 'text') forget();
	turn('user', text);
	const prompt = $('mode').value === 'text' ? text : [...messages, { role: 'user', content: text }];
	const { body, line } = turn('assistant', '');
	const said = await during('chat', () => answer(prompt, body, line));
	body.classList.remove('typing');
	if (said === undefined && !body.textContent) { // nothing came of it: what was asked is there to be sent again
		body.closest('.turn').remove();
		$('log').lastChild?.remove();
		if (!$('log').childElementCount) forget();
		$('say').value = text;
	} else if (Array.isArray(prompt)) messages = [...prompt, { role: 'assistant', content: said ? said.text : body.textContent }];
	$('say').focus();
}

// answer streams an answer into an element. A screen reader hears it sentence by sentence.
async function answer(prompt, body, line) {
	const began = performance.now();
	let first = 0, tokens = 0, unsaid = '';
	body.classList.add('typing');
	const hear = end => {
		const cut = end ? unsaid.length : unsaid.search(/[.!?؟。\n][^.!?]*$/) + 1;
		if (cut > 0 && unsaid.slice(0, cut).trim()) announce(unsaid.slice(0, cut));
		unsaid = unsaid.slice(cut);
	};
	const down = $('log');
	const r = await call('generate', { prompt, options: { maxTokens: read($('max-tokens')), sampling: samplingOf() } }, token => {
		first ||= performance.now();
		tokens++;
		const stay = down.scrollHeight - down.scrollTop - down.clientHeight > 80;
		body.append(tokens === 1 && $('mode').value === 'chat' ? token.text.trimStart() : token.text);
		unsaid += token.text;
		hear();
		if (!stay) down.scrollTop = down.scrollHeight;
		say(line, 'speedNow', { tokens, rate: () => number(tokens / ((performance.now() - first) / 1000 || 1), 3) });
	});
	hear(true);
	say(line, 'speed', { tokens: r.tokens, rate: rate(r), prompt: r.prompt, kept: r.kept, promptSeconds: () => number(r.promptSeconds, 2), first: () => number(((first || performance.now()) - began) / 1000, 2), why: () => t('stop_' + r.stop) });
	keep(r.stats);
	return r;
}

// rate is tokens a second behind the first, which the prompt's step gives.
const rate = r => r.tokens > 1 && r.seconds > 0 ? (r.tokens - 1) / r.seconds : 0;

async function togglePrompt() {
	const shown = $('prompt');
	if (!shown.hidden) {
		shown.hidden = true;
		return $('show-prompt').setAttribute('aria-expanded', 'false');
	}
	await during('render', async () => {
		const text = $('mode').value === 'text';
		const r = text ? { text: $('say').value, tokens: await call('tokenize', { text: $('say').value }) }
			: await call('render', { messages: draft() ? [...messages, { role: 'user', content: draft() }] : messages });
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
	return h('div', null, h('p', { class: 'muted', t: ['tokenCount', { n: tokens.length }] }),
		h('ol', { class: 'tokens', dir: 'ltr' }, tokens.map(x => h('li', null, h('small', null, String(x.id)), visible(x.text)))));
}
