// Settings of answers: a preset, and what it stands for. An empty field is the publisher's recommendation.

// presets by name; "own" is whatever the fields have.
const presets = {
	publisher: {},
	exact: { temperature: 0 },
	balanced: { temperature: 0.7, 'top-p': 0.95 },
	lively: { temperature: 1, 'min-p': 0.05 },
};

// The fields, which are kept for this browser: id, word, least, most, step.
const amounts = [['max-tokens', 'maxTokens', 1, 1000000, 1], ['temperature', 'temperature', 0, 2, 0.05], ['top-k', 'topK', 0, 1000000, 1], ['top-p', 'topP', 0, 1, 0.01], ['min-p', 'minP', 0, 1, 0.01],
	['seed', 'seed', 0, 2 ** 53 - 1, 1], ['repeat-penalty', 'repeatPenalty', 0.01, 10, 0.01], ['repeat-last', 'repeatLast', -1, 1000000, 1]];
const sampled = ['temperature', 'top-k', 'top-p', 'min-p', 'repeat-penalty', 'repeat-last'];
const settings = ['mode', 'preset', 'schema', 'tools', ...amounts.map(([id]) => id)];

let wanted = 'chat'; // the mode that the reader chose

const mode = () => $('mode').value;

function makeSettings() {
	const number = ([id, key, min, max, step]) => field(key, amount(id, '', min, max, step));
	const choose = (id, key, all, onchange) => field(key, h('select', { id, onchange }, all.map(([value, word]) => h('option', { value, t: word }))), { class: 'field wide' });
	return h('details', { class: 'side card', id: 'settings' }, h('summary', { t: 'sampling' }), h('div', { class: 'fields' },
		field('system', h('textarea', { id: 'system', rows: 2, dir: 'auto', onchange: () => { current().system = $('system').value; keepTalk(current()); } }), { class: 'field wide' }),
		choose('mode', 'mode', [['chat', 'modeChat'], ['text', 'modeText']], draw),
		choose('preset', 'preset', [...Object.keys(presets), 'own'].map(x => [x, 'preset_' + x]), applyPreset),
		number(amounts[0]),
		h('label', { class: 'check wide' }, h('input', { id: 'receipts', type: 'checkbox', checked: !!recall('receipts'), onchange: e => remember('receipts', e.target.checked ? '1' : '') }), h('span', { t: 'receipts' })),
		h('details', { class: 'wide', id: 'more' }, h('summary', { t: 'more' }), h('div', { class: 'fields' }, amounts.slice(1).map(number), h('p', { class: 'muted wide', t: 'samplingHelp' }),
			field('schema', h('textarea', { id: 'schema', class: 'mono', rows: 3, dir: 'ltr', spellcheck: 'false', placeholder: '{"type": "object"}' }), { class: 'field wide' }),
			field('tools', h('textarea', { id: 'tools', class: 'mono', rows: 3, dir: 'ltr', spellcheck: 'false', placeholder: '[{"type": "function", "function": {"name": "f"}}]' }), { class: 'field wide' })))));
}

function keepSettings(e) {
	if (e?.target === $('mode')) wanted = mode();
	if (sampled.includes(e?.target?.id)) $('preset').value = presetOf();
	remember('settings', JSON.stringify({ ...Object.fromEntries(settings.map(id => [id, $(id).value])), mode: wanted }));
}

function recallSettings() {
	const kept = recallJSON('settings') || {};
	for (const id of settings) if (typeof kept[id] === 'string') $(id).value = kept[id];
	if (!$('mode').value) $('mode').value = 'chat';
	$('preset').value = presetOf();
	wanted = mode();
}

function applyPreset() {
	const p = presets[$('preset').value];
	if (!p) return void ($('more').open = true);
	for (const id of sampled) $(id).value = p[id] ?? '';
}

// presetOf names the preset that the fields have.
const presetOf = () => Object.keys(presets).find(name => sampled.every(id => $(id).value === String(presets[name][id] ?? ''))) || 'own';

// recommend shows the publisher's recommendations in the empty fields.
function recommend() {
	const s = info?.sampling || {};
	for (const [id, v] of Object.entries({ temperature: s.temperature, 'top-k': s.topK, 'top-p': s.topP, 'min-p': s.minP, 'repeat-penalty': s.repeatPenalty })) $(id).placeholder = v ? number(v) : t('auto');
	$('max-tokens').placeholder = info?.context ? number(info.context) : t('auto');
	$('seed').placeholder = t('random');
	$('repeat-last').placeholder = number(s.repeatLast || 64);
}

// setting is the number in a field, undefined where it is empty.
function setting(id) {
	const e = $(id);
	if (e.value.trim() === '' || !isFinite(Number(e.value))) return undefined;
	return Number(e.value = Math.min(Math.max(Number(e.value), Number(e.min)), Number(e.max)));
}

// samplingOf are the options of an answer. A seed that nobody chose is drawn, so that it can be told.
const samplingOf = () => {
	const own = { temperature: setting('temperature'), topK: setting('top-k'), topP: setting('top-p'), minP: setting('min-p'), repeatPenalty: setting('repeat-penalty'), repeatLast: setting('repeat-last') };
	for (const [k, v] of Object.entries(own)) if (v === undefined) delete own[k];
	return { ...info.sampling, ...own, seed: setting('seed') ?? crypto.getRandomValues(new Uint32Array(1))[0] };
};

// written is the JSON in a field if it is good, undefined where there is none.
function written(id, good) {
	const text = $(id).value.trim();
	if (!text) return undefined;
	try {
		const v = JSON.parse(text);
		if (good(v)) return v;
	} catch { /* it is told below */ }
	throw trouble(id, text.slice(0, 80));
}

// schemaOf is the JSON schema that an answer has to fit.
const schemaOf = () => written('schema', v => v && typeof v === 'object');

// toolsOf are the tools that the model may call in a chat.
const toolsOf = () => mode() === 'text' ? undefined : written('tools', v => Array.isArray(v) && v.every(x => x?.type === 'function' && typeof x.function?.name === 'string'));
