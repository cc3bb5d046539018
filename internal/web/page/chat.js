// Chat: a conversation by the model's own template, or a raw text to continue.

// Examples are of what the demo knows, which is English.
const examples = { chat: ['What is the color of the sky?', 'What is the opposite of wet?'], text: ['The color of the sky is', 'func main() {'] };

const open_ = {}; // the talk that is open in each mode
const current = () => open_[mode()] ||= newTalk(mode());

let editing = null; // the turn whose text is in the box to be written anew
let attached = []; // files that go with the next message: {name, text} or {name, image: a data: URL}

function makeChat() {
	const box = h('textarea', { id: 'say', rows: 1, dir: 'auto', tPlaceholder: 'placeholder', tLabel: 'message', oninput: grow, onpaste: e => attach(e.clipboardData.files, e), onkeydown: e => {
		if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
	} });
	const file = h('input', { id: 'attach-file', type: 'file', multiple: true, hidden: true, onchange: () => { attach([...file.files]); file.value = ''; } });
	$('chat').append(makeTalks(),
		h('div', { id: 'middle' },
			h('div', { id: 'log', class: 'log', tabindex: '0', role: 'log', 'aria-live': 'off', tLabel: 'conversation' }),
			h('form', { id: 'composer', onsubmit: e => { e.preventDefault(); send(); } },
				h('div', { id: 'attached', class: 'row' }),
				h('div', { class: 'box' }, box, h('div', { class: 'row' },
					h('button', { id: 'attach', type: 'button', class: 'small', t: 'attach', onclick: () => file.click() }), file,
					h('button', { id: 'show-prompt', type: 'button', class: 'small', t: 'showPrompt', 'data-needs': '', 'aria-expanded': 'false', 'aria-controls': 'prompt', onclick: togglePrompt }),
					h('button', { id: 'open-probe', type: 'button', class: 'small', t: 'probe', 'aria-expanded': 'false', 'aria-controls': 'probe', onclick: () => openProbe($('probe').hidden) }),
					h('button', { id: 'send', class: 'main', t: 'send', 'data-needs': '', 'data-starts': 'chat' }),
					h('button', { id: 'stop', type: 'button', t: 'stop', 'data-stops': 'chat', hidden: true, onclick: stop }))),
				h('div', { id: 'prompt', class: 'card shown', hidden: true, tabindex: '0', role: 'region', tLabel: 'promptTitle' }))),
		h('div', { id: 'probe', role: 'region', tLabel: 'probe', tabindex: '0', hidden: true }), makeSettings());
	addEventListener('keydown', e => {
		if (e.key !== 'Escape' || $('models').open) return;
		const shown = e.target.closest?.(':is(.menu, .badge, .side)[open]');
		document.body.classList.remove('listing');
		if (shown) {
			shown.open = false;
			shown.firstElementChild.focus();
		} else if (busy && busy !== 'load') stop();
		else if (editing) endEdit();
	});
	$('settings').addEventListener('change', keepSettings);
	addEventListener('pagehide', keepDraft);
	addEventListener('dragover', e => e.preventDefault());
	addEventListener('drop', e => dropped(e));
	fresh.push(settle);
	bringMarkdown().catch(() => {}); // answers are plain text without it
	recallSettings();
	draw();
}

// recallChat opens the talk that this tab had, with what was being written.
async function recallChat() {
	await readTalks();
	const kept = recallJSON('open', tabStore) || {};
	for (const m of ['chat', 'text']) {
		const talk = talks.get(kept[m]);
		if (talk?.mode === m) open_[m] = talk;
		if (talk) withdraw(talk, talk.turns.find(x => x.id === talk.at));
	}
	if (typeof kept.draft === 'string' && kept.draft) $('say').value = kept.draft;
	draw();
	listTalks();
}

function keepDraft() {
	remember('open', JSON.stringify({ chat: open_.chat?.id, text: open_.text?.id, draft: $('say').value }), tabStore);
}

// withdraw takes back an answer of which nothing came, and puts the question back into the box.
function withdraw(talk, turn) {
	if (!turn || turn.role !== 'assistant' || !lacks(turn)) return;
	let asked = turnOf(talk, turn.parent);
	dropTurn(talk, turn);
	for (; asked?.role === 'tool' && !talk.turns.some(x => x.parent === asked.id); asked = turnOf(talk, asked.parent)) dropTurn(talk, asked);
	if (asked?.role !== 'user' || talk.turns.some(x => x.parent === asked.id)) return;
	dropTurn(talk, asked);
	$('say').value = $('say').value ? asked.text + '\n' + $('say').value : asked.text; // with what was typed meanwhile
	attached = asked.files || [];
	if (!talk.turns.length) dropTalk(talk);
}

// lacks reports whether nothing came of an answer.
const lacks = turn => !turn.text && !turn.calls && turn.stop !== 'end';

// settle fits the page to a model that was loaded: the recommendations, and what it can do.
function settle() {
	recommend();
	$('receipts').parentElement.hidden = info.driver === 'server'; // which decides itself
	$('mode').querySelector('[value=chat]').disabled = !info.template;
	if (!info.template) note('mode', 'noTemplate');
	else clearNote('mode');
	const able = info.template ? wanted : 'text';
	if (mode() !== able) $('mode').value = able;
	draw();
	if (document.activeElement === document.body && !matchMedia('(pointer: coarse)').matches) $('say').focus();
}

// forget begins a new talk.
function forget() {
	delete open_[mode()];
	endEdit();
	draw();
	listTalks();
	$('say').focus();
}

function openTalk(talk) {
	$('mode').value = talk.mode;
	open_[talk.mode] = talk;
	endEdit();
	draw();
	listTalks();
	document.body.classList.remove('listing');
}

// draw shows the open talk, or how to begin one.
function draw() {
	hidePrompt();
	const talk = current(), turns = branch(talk), log = $('log');
	$('system').value = talk.system;
	log.replaceChildren(...turns.map(x => x._e ||= drawTurn(talk, x)));
	for (const x of turns) x._e.querySelector('.branches')?.replaceWith(branches(talk, x));
	if (!turns.length) log.append(h('div', { class: 'empty' }, h('p', { t: mode() === 'text' ? 'emptyText' : info?.driver === 'server' ? 'emptyServed' : 'emptyChat' }),
		h('div', { class: 'row' }, examples[mode()].map(x => h('button', { type: 'button', class: 'small', dir: 'auto', lang: 'en', 'data-needs': '', disabled: !!busy || !info, onclick: () => { $('say').value = x; send(); } }, x)))));
	log.scrollTop = log.scrollHeight;
}

const name = turn => turn.role === 'user' ? 'you' : turn.role === 'tool' ? ['resultOf', { name: turn.name }] : 'answer';

// drawTurn makes a turn: its text, what is said of it, and what can be done with it.
function drawTurn(talk, turn) {
	const mine = turn.role !== 'assistant', body = h('div', { class: 'text', dir: 'auto' });
	const e = h('article', { class: 'turn ' + turn.role, tLabel: name(turn) },
		h('span', { class: 'who', dir: 'auto', t: name(turn) }), mine ? attachments(turn.files) : h('details', { class: 'reasoning', hidden: !turn.reasoning }, h('summary', { t: 'reasoning' }), h('div', { class: 'thoughts', dir: 'auto' }, turn.reasoning || '')),
		body, mine ? null : h('div', { class: 'calls' }, callBoxes(talk, turn)), mine ? null : h('details', { class: 'muted stats' }, h('summary')), h('div', { class: 'does' }, branches(talk, turn), copier(() => turn.text),
			turn.role === 'tool' ? null : mine ? h('button', { type: 'button', class: 'small', t: 'edit', 'data-needs': '', onclick: () => edit(turn) }) : [
				h('button', { type: 'button', class: 'small', t: 'regenerate', 'data-needs': '', onclick: () => again(turn) }),
				turn.stop === 'length' || turn.stop === 'aborted' ? h('button', { type: 'button', class: 'small', t: 'goOn', 'data-needs': '', onclick: () => goOn(turn) }) : null,
				talk.mode === 'chat' ? h('button', { type: 'button', class: 'small', t: 'edit', 'data-needs': '', onclick: () => rewrite(talk, turn) }) : null,
				turn.tokens?.length ? h('button', { type: 'button', class: 'small', t: 'tokensOf', 'aria-expanded': 'false', onclick: e => toggleTokens(turn, e.target) }) : null,
				turn.receipt ? h('button', { type: 'button', class: 'small', t: 'receipt', onclick: () => saveReceipt(turn) }) : null], h('button', { type: 'button', class: 'small', t: 'remove', 'data-needs': '', onclick: () => cut(talk, turn) })));
	write(body, turn, mine || talk.mode === 'text');
	if (turn.said) showStats(e.querySelector('.stats'), turn.said);
	for (const b of e.querySelectorAll('[data-needs]')) b.disabled = !!busy || !info;
	return e;
}

// rewrite lets the reader write an answer anew: what is kept is a branch of its own, from which the model goes on.
function rewrite(talk, turn) {
	const box = h('textarea', { value: turn.text.trim(), rows: Math.min(12, turn.text.split('\n').length + 1), dir: 'auto', tLabel: 'edit' }), end = () => redraw(talk, turn);
	turn._e.querySelector('.text').replaceChildren(box, h('div', { class: 'row' }, h('button', { type: 'button', class: 'main small', t: 'keep', onclick: async () => {
		if (busy || !box.value.trim()) return;
		addTurn(talk, turn.parent, { role: 'assistant', text: box.value, model: turn.model, calls: turn.calls, stop: 'end' });
		await keepTalk(talk);
		draw();
	} }), h('button', { type: 'button', class: 'small', t: 'cancel', onclick: end })));
	box.focus();
}

// cut deletes a turn and what follows it, and offers to bring them back.
async function cut(talk, turn) {
	const { turns, at } = talk, shown = async () => {
		for (const x of talk.turns) if (x.calls) x._e = null;
		talk.turns.length ? await keepTalk(talk) : await dropTalk(talk);
		if (talk === current()) draw();
		listTalks();
	};
	if (busy) return;
	endEdit();
	cutTurn(talk, turn);
	await shown();
	note('talks', 'turnRemoved', undefined, '', ['undo', () => { Object.assign(talk, { turns, at }); return shown(); }]);
}

// write puts a turn's text into its place: as it is, or as Markdown.
function write(body, turn, plain) {
	if (plain) body.textContent = turn.text;
	else {
		if (!body.firstChild) body.textContent = turn.text.trim();
		formatted(body, turn.text.trim());
	}
}

const redraw = (talk, turn) => { const old = turn._e; turn._e = drawTurn(talk, turn); old?.replaceWith(turn._e); };

// branches tells which of several versions a turn is, and shows the others.
function branches(talk, turn) {
	const all = siblings(talk, turn), i = all.indexOf(turn);
	const to = (d, key, text) => h('button', { type: 'button', class: 'small', tLabel: key, disabled: !all[i + d], onclick: () => { showBranch(talk, all[i + d]); keepTalk(talk); draw(); } }, text);
	return h('span', { class: 'branches', hidden: all.length < 2, dir: 'ltr' }, to(-1, 'older', '‹'), h('span', null, `${i + 1}/${all.length}`), to(1, 'newer', '›'));
}

// messages is a branch as the model gets it.
function messages(talk, turns) {
	const all = turns.map(({ role, text, files, calls, call, name }) => role === 'tool' ? { role, tool_call_id: call, name, content: text }
		: { role, content: calls && !text ? null : contentOf(text, files), tool_calls: calls?.map(c => ({ id: c.id, type: 'function', function: { name: c.name, arguments: c.arguments } })) });
	return talk.system ? [{ role: 'system', content: talk.system }, ...all] : all;
}

function contentOf(text, files = []) {
	const texts = files.filter(f => f.text !== undefined), images = files.filter(f => f.image);
	const whole = [...texts.map(f => `${f.name}:\n\`\`\`\n${f.text}\n\`\`\``), text].join('\n\n');
	return images.length ? [...images.map(f => ({ type: 'image_url', image_url: { url: f.image } })), { type: 'text', text: whole }] : whole;
}

const draft = () => $('say').value.trim();

async function send() {
	const plain = mode() === 'text', text = plain ? $('say').value : draft();
	if (!text.trim() && !attached.length || busy || !info) return;
	if (plain && current().turns.length) forget();
	const talk = current(), parent = editing ? editing.parent : talk.at, files = attached.length ? attached : undefined;
	$('say').value = '';
	attached = [];
	endEdit();
	const asked = addTurn(talk, parent, { role: 'user', text, files });
	await answer(talk, asked);
}

// again asks for another answer to the same question.
const again = turn => answer(current(), turnOf(current(), turn.parent));

// goOn has the model continue an answer that was cut.
const goOn = turn => answer(current(), turnOf(current(), turn.parent), turn);

// answer has the model answer a turn, or go on with an answer, and keeps the talk.
async function answer(talk, asked, begun) {
	if (busy || !info) return;
	const said = begun || addTurn(talk, asked.id, { role: 'assistant', text: '', model: info.name });
	for (const x of talk.turns) if (x === said || x.calls) x._e = null; // only the last turn has boxes for results
	talk.at = said.id;
	draw();
	keepDraft();
	await during('chat', () => Promise.all([keepTalk(talk), stream(talk, said, begun)]));
	if (lacks(said)) {
		withdraw(talk, said);
		for (const x of talk.turns) if (x.calls) x._e = null;
		draw();
	} else redraw(talk, said);
	await keepTalk(talk);
	listTalks();
	showAttached();
	grow();
	if (document.activeElement === document.body) $('say').focus(); // else the reader is somewhere by now
}

// callBoxes are the calls of an answer: the tool's name, its arguments folded, and a box for the result, which the reader
// writes. All results together go back to the model.
function callBoxes(talk, turn) {
	if (!turn.calls) return [];
	const open = talk.at === turn.id, boxes = turn.calls.map((c, i) => h('textarea', { value: turn.results?.[i] || '', class: 'mono result', rows: 2, dir: 'auto', tLabel: ['resultOf', { name: c.name }], tPlaceholder: ['resultOf', { name: c.name }] }));
	const all = turn.calls.map((c, i) => h('div', { class: 'card call' }, h('details', null, h('summary', null, h('span', { t: ['callOf', { name: c.name }] })), h('pre', { dir: 'ltr', tabindex: '0' }, pretty(c.arguments))), open ? boxes[i] : null));
	return open ? [...all, h('button', { type: 'button', class: 'small', t: ['giveResults', { results: counted('resultCount', boxes.length) }], 'data-needs': '', onclick: () => giveResults(talk, turn, boxes.map(x => x.value)) })] : all;
}

function pretty(json) {
	try { return JSON.stringify(JSON.parse(json), null, 2); } catch { return json; }
}

// giveResults sends the results of an answer's calls to the model, which goes on.
async function giveResults(talk, turn, results) {
	if (busy || !info) return;
	let last = turn;
	turn.results = results;
	turn.calls.forEach((c, i) => { last = addTurn(talk, last.id, { role: 'tool', text: results[i], name: c.name, call: c.id }); });
	await answer(talk, last);
}

// stream streams an answer into a turn. A screen reader hears it sentence by sentence.
async function stream(talk, said, begun) {
	const began = performance.now(), log = $('log'), e = said._e, body = e.querySelector('.text'), line = e.querySelector('.stats summary'), sampling = samplingOf(), plain = talk.mode === 'text';
	const turns = branch(talk), asked = turns.at(-2), prompt = plain ? asked.text + said.text : messages(talk, begun ? turns : turns.slice(0, -1));
	const before = said.text, follow = () => log.scrollHeight - log.scrollTop - log.clientHeight < 80;
	let first = 0, tokens = 0, unsaid = '', shown = 0, later;
	said.tokens ||= [];
	if (begun) said.tokens = said.tokens.slice();
	body.classList.add('typing');
	let read; // how far the prompt is read, {have, size} in tokens
	const wait = setInterval(() => { if (!first) read ? say(line, 'readingTokens', { have: read.have, size: read.size }) : say(line, 'reading', { seconds: () => number(Math.round((performance.now() - began) / 1000)) }); }, 1000);
	const hear = end => {
		const cut = end ? unsaid.length : unsaid.search(/[.!?؟。\n][^.!?]*$/) + 1;
		if (cut > 0 && unsaid.slice(0, cut).trim()) announce(unsaid.slice(0, cut));
		unsaid = unsaid.slice(cut);
	};
	const show = () => { // at most ten times a second: a long answer is read anew each time
		const stay = follow();
		later = 0;
		shown = performance.now();
		write(body, said, plain);
		if (stay) log.scrollTop = log.scrollHeight;
	};
	let r;
	try {
		r = await call('generate', { prompt, options: { maxTokens: setting('max-tokens') ?? -1, sampling, top: 5, schema: schemaOf(), tools: toolsOf(), continue: !!begun && !plain, receipt: $('receipts').checked } }, token => {
			if (token.prompt) return void (read = token.prompt);
			first ||= performance.now();
			const list = token.tokens ?? (token.id === undefined ? [] : [{ text: token.token ?? token.text, logprob: token.logprob, top: token.top }]);
			tokens += list.length;
			if (token.reasoning) {
				const r = e.querySelector('.reasoning');
				said.reasoning = (said.reasoning || '') + token.reasoning;
				r.hidden = false;
				r.querySelector('.thoughts').append(token.reasoning);
			}
			if (token.call) (said.calls ||= []).push(token.call);
			if (token.text) {
				said.text += token.text;
				unsaid += token.text;
				hear();
				if (!later) later = setTimeout(show, Math.max(0, shown + 100 - performance.now()));
			}
			said.tokens.push(...list);
			say(line, 'speedNow', { tokens: counted('tokens', tokens), rate: () => number(tokens / ((performance.now() - first) / 1000 || 1), 3) });
			if (follow()) log.scrollTop = log.scrollHeight;
		});
	} catch (e) {
		said.text = before;
		said.stop = 'failed';
		if (!begun) delete said.calls;
		throw e;
	} finally {
		clearInterval(wait);
		clearTimeout(later);
		hear(true);
	}
	if (!plain && r.text && !begun) said.text = r.text; // as the model said it, for the next prompt
	said.stop = said.calls && r.stop === 'end' ? 'tool_calls' : r.stop;
	said.receipt = r.receipt;
	said.said = { tokens: r.tokens, rate: rate(r), prompt: r.prompt, kept: r.kept, promptSeconds: r.promptSeconds, first: ((first || performance.now()) - began) / 1000, stop: said.stop, context: info.context, seed: sampling.temperature !== 0 ? sampling.seed : undefined };
	if (follow()) log.scrollTop = log.scrollHeight;
	keep(r.stats);
}

// showStats says in a line how an answer came, and more where the line is opened.
function showStats(e, x) {
	say(e.firstChild, 'speed', { tokens: counted('tokens', x.tokens), rate: x.rate, why: () => t('stop_' + x.stop) });
	e.append(h('p', { t: ['speedMore', { prompt: counted('tokens', x.prompt), kept: x.kept, promptSeconds: () => number(x.promptSeconds, 2), first: () => number(x.first, 2), seed: () => x.seed === undefined ? '' : t('seedUsed', { seed: String(x.seed) }),
		context: () => x.context ? t('contextUsed', { used: x.prompt + x.tokens, context: x.context, share: () => percent((x.prompt + x.tokens) / x.context) }) : '' }] }));
}

// rate is tokens a second behind the first, which the prompt's step gives.
const rate = r => r.tokens > 1 && r.seconds > 0 ? (r.tokens - 1) / r.seconds : 0;

// saveReceipt offers the receipt of an answer, which karat verify checks.
async function saveReceipt(turn) {
	try {
		const own = turn.receipt[0] === '{'; // of this browser's engine: the receipt itself
		save((own ? 'receipt' : turn.receipt) + '.json', 'application/json', own ? turn.receipt : await (await reach('v1/receipts/' + encodeURIComponent(turn.receipt))).text());
	} catch (e) {
		fail(e.kind === 'other' ? trouble('receipt', e.message) : e);
	}
}

// edit puts a question back into the box; what is sent then is another branch.
function edit(turn) {
	editing = turn;
	$('say').value = turn.text;
	attached = turn.files || [];
	showAttached();
	grow();
	note('edit', 'editing', undefined, '', ['cancel', endEdit]);
	$('say').focus();
}

function endEdit() {
	if (editing) {
		$('say').value = '';
		attached = [];
	}
	editing = null;
	clearNote('edit');
	showAttached();
	grow();
}

// toggleTokens shows an answer's tokens, each with how likely it was and what else might have come. One of these can be
// taken: the answer goes on from there, as another branch.
function toggleTokens(turn, button) {
	const old = turn._e.querySelector('.probable');
	button.setAttribute('aria-expanded', String(!old));
	if (old) return old.remove();
	const detail = h('div', { class: 'row likely' });
	const pick = (x, i) => {
		detail.replaceChildren(h('span', { class: 'muted', t: ['chanceOf', { token: visible(x.text), chance: () => percent(Math.exp(x.logprob)) }] }),
			...(x.top || []).filter(y => y.text !== x.text).map(y => h('button', { type: 'button', class: 'small mono', dir: 'auto', 'data-needs': '', disabled: !!busy, onclick: () => instead(turn, i, y.text) }, `${visible(y.text)} ${percent(Math.exp(y.logprob))}`)));
	};
	turn._e.querySelector('.does').before(h('div', { class: 'probable' }, h('p', { class: 'muted', t: 'tokensHelp' }), detail, h('div', { class: 'spans', dir: 'auto' },
		turn.tokens.map((x, i) => h('button', { type: 'button', class: 'token c' + Math.min(4, Math.floor(-x.logprob || 0)), title: percent(Math.exp(x.logprob ?? 0)), onclick: () => pick(x, i) }, visible(x.text))))));
}

// instead branches an answer at a token.
async function instead(turn, i, text) {
	const talk = current(), before = turn.tokens.slice(0, i);
	const other = addTurn(talk, turn.parent, { role: 'assistant', text: before.map(x => x.text).join('') + text, tokens: [...before, { text, logprob: turn.tokens[i].top.find(y => y.text === text).logprob, top: turn.tokens[i].top }], model: info.name });
	await answer(talk, turnOf(talk, turn.parent), other);
}

// attach takes files along with the next message: pictures where the model sees, and texts.
async function attach(files, e) {
	const list = [...files];
	if (!list.length) return;
	e?.preventDefault();
	for (const f of list) {
		if (f.type.startsWith('image/')) {
			if (!info?.sees) note('error', 'blind', { name: f.name });
			else attached = [...attached, { name: f.name, image: await dataURL(f) }];
			continue;
		}
		const bytes = new Uint8Array(await f.slice(0, 1 << 20).arrayBuffer());
		let text;
		try { text = new TextDecoder('utf-8', { fatal: true }).decode(bytes); } catch { /* it is told below */ }
		if (text === undefined || f.size > 1 << 20 || text.includes('\0')) note('error', 'noText', { name: f.name });
		else attached = [...attached, { name: f.name, text }];
	}
	showAttached();
	$('say').focus();
}

const dataURL = file => new Promise((done, gone) => { const r = new FileReader(); r.onload = () => done(r.result); r.onerror = () => gone(r.error); r.readAsDataURL(file); });

const attachments = files => files?.length ? h('div', { class: 'row' }, files.map(f => f.image ? h('img', { src: f.image, alt: f.name }) : h('details', null, h('summary', { dir: 'auto' }, f.name), h('pre', { dir: 'auto' }, f.text)))) : null;

function showAttached() {
	$('attached').replaceChildren(...attached.map(f => h('span', { class: 'chip' }, h('span', { dir: 'auto' }, f.name), h('button', { type: 'button', class: 'small', tLabel: ['removeName', { name: f.name }], onclick: () => { attached = attached.filter(x => x !== f); showAttached(); } }, '×'))));
}

// dropped takes what a reader drops on the page: models and diagnoses to be opened, files for the message.
async function dropped(e) {
	e.preventDefault();
	clearNote('error');
	const files = [...e.dataTransfer.files], models = files.filter(f => /\.gguf$/i.test(f.name));
	if (models.length) return void takeFiles(models);
	if (files.length === 1 && isReport.test(files[0].name) && await openReport(files[0])) return;
	if (!$('chat').hidden) attach(files);
	else if (files.length) fail(trouble('diagnosis', files[0].name));
}

// grow fits the box to what is written.
function grow() {
	const e = $('say');
	e.rows = Math.min(10, Math.max(1, e.value.split('\n').length));
}

function hidePrompt() {
	$('prompt').hidden = true;
	$('show-prompt').setAttribute('aria-expanded', 'false');
}

async function togglePrompt() {
	const shown = $('prompt');
	if (!shown.hidden) return hidePrompt();
	await during('render', async () => {
		const text = mode() === 'text', turns = branch(current()), asked = draft() ? [{ role: 'user', text: draft() }] : [];
		const r = text ? { text: $('say').value, tokens: await call('tokenize', { text: $('say').value }) } : await call('render', { messages: messages(current(), [...turns, ...asked]), options: { tools: toolsOf() } });
		shown.replaceChildren(h('h2', { t: text ? 'promptText' : 'promptTitle' }), h('pre', { dir: 'auto' }, r.text), idList(r.tokens),
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
