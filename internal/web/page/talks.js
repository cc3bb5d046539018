// Talks: the conversations, kept in this browser (IndexedDB) for all its tabs.
//
// A talk is {id, title, changed, mode, system, turns, at}: turns are a tree of {id, parent, role, text, ...}, and at is
// the last turn of the branch that is shown. To edit a turn, or to ask for an answer again, adds a branch.

// database opens the shelf; without one, talks last as long as the page.
let shelf;
const database = () => shelf ||= new Promise((done, gone) => {
	const r = indexedDB.open('karat', 1);
	r.onupgradeneeded = () => r.result.createObjectStore('talks', { keyPath: 'id' });
	r.onsuccess = () => done(r.result);
	r.onerror = () => gone(r.error);
}).catch(() => null);

// onShelf runs a request on the talks.
async function onShelf(mode, request) {
	const db = await database();
	if (!db) return undefined;
	return new Promise((done, gone) => {
		const t = db.transaction('talks', mode), r = request(t.objectStore('talks'));
		t.oncomplete = () => done(r.result);
		t.onabort = t.onerror = () => gone(t.error || r.error);
	});
}

const talks = new Map(); // all, by id
const newId = () => crypto.getRandomValues(new Uint32Array(2)).join('-');
const newTalk = mode => ({ id: newId(), title: '', changed: Date.now(), mode, system: '', turns: [], at: '' });

// neighbours tell each other what changed.
const neighbours = new BroadcastChannel('talks');

async function readTalks() {
	const all = await onShelf('readonly', s => s.getAll()).catch(() => []) || [];
	talks.clear();
	for (const x of all) if (sound(x)) talks.set(x.id, x);
}

// sound reports whether a talk, from the shelf or a file, is one.
function sound(x) {
	if (typeof x?.id !== 'string' || !Array.isArray(x.turns) || !/^(chat|text)$/.test(x.mode)) return false;
	const seen = new Set(['']);
	for (const t of x.turns) { // a parent comes before its children, so that no turn is its own ancestor
		if (typeof t?.id !== 'string' || typeof t.text !== 'string' || !/^(user|assistant|tool)$/.test(t.role) || !(t.calls ?? []).every?.(c => typeof c?.name === 'string' && typeof c.arguments === 'string') || !seen.has(t.parent) || seen.has(t.id)) return false;
		seen.add(t.id);
	}
	return seen.has(x.at);
}

// bare is a talk as it is kept: what begins with _ belongs to the page.
const bare = talk => ({ ...talk, turns: talk.turns.map(t => Object.fromEntries(Object.entries(t).filter(([k]) => k[0] !== '_'))) });

async function keepTalk(talk) {
	if (!talk.turns.length) return;
	talk.changed = Date.now();
	talks.set(talk.id, talk);
	await onShelf('readwrite', s => s.put(bare(talk))).catch(e => note('talks', 'talksLost', undefined, e.message));
	neighbours.postMessage(talk.id);
}

async function dropTalk(talk) {
	talks.delete(talk.id);
	await onShelf('readwrite', s => s.delete(talk.id)).catch(() => {});
	neighbours.postMessage(talk.id);
}

// turnOf is the turn of an id.
const turnOf = (talk, id) => talk.turns.find(t => t.id === id);

// branch lists the turns that lead to at, the first one first.
function branch(talk) {
	const all = [];
	for (let t = turnOf(talk, talk.at); t; t = turnOf(talk, t.parent)) all.unshift(t);
	return all;
}

// siblings are the turns at the place of a turn.
const siblings = (talk, turn) => talk.turns.filter(t => t.parent === turn.parent);

// addTurn adds a turn behind another, and shows its branch.
function addTurn(talk, parent, turn) {
	const t = { id: newId(), parent, ...turn };
	talk.turns.push(t);
	talk.at = t.id;
	return t;
}

// dropTurn takes back a turn without children.
function dropTurn(talk, turn) {
	talk.turns = talk.turns.filter(t => t !== turn);
	talk.at = turn.parent;
}

// cutTurn takes a turn away with all that follows it, and shows what is nearest.
function cutTurn(talk, turn) {
	const gone = new Set([turn.id]), beside = siblings(talk, turn).findLast(x => x !== turn);
	for (const x of talk.turns) if (gone.has(x.parent)) gone.add(x.id); // a parent comes before its children
	talk.turns = talk.turns.filter(x => !gone.has(x.id));
	talk.at = turn.parent;
	if (beside) showBranch(talk, beside);
}

// showBranch shows the newest branch through a turn.
function showBranch(talk, turn) {
	for (let next = turn; next; next = talk.turns.findLast(t => t.parent === next.id)) talk.at = next.id;
}

// titleOf names a talk: as the reader did, else by its first words.
const titleOf = talk => talk.title || talk.turns[0]?.text.trim().replace(/\s+/g, ' ').slice(0, 60) || t('untitled');

// found reports whether a talk has words.
function found(talk, words) {
	const all = (talk.title + '\n' + talk.turns.map(t => t.text).join('\n')).toLowerCase();
	return words.toLowerCase().split(/\s+/).every(w => all.includes(w));
}

// markdownOf is a talk's branch for people.
function markdownOf(talk) {
	const parts = [`# ${titleOf(talk)}`];
	if (talk.system) parts.push(`> ${talk.system.replace(/\n/g, '\n> ')}`);
	for (const turn of branch(talk)) parts.push(`**${t(...[name(turn)].flat())}**`, turn.text.trim(), ...(turn.calls || []).map(c => `\`\`\`\n${c.name}(${c.arguments})\n\`\`\``));
	return parts.join('\n\n') + '\n';
}

// save offers a file to the reader.
function save(name, type, text) {
	const url = URL.createObjectURL(new Blob([text], { type })), a = h('a', { href: url, download: name });
	a.click();
	setTimeout(() => URL.revokeObjectURL(url), 1e4);
}

const fileName = talk => titleOf(talk).replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '') || 'talk';

// importTalks adds the talks of a file that exportTalks wrote, and returns how many.
async function importTalks(file) {
	let list;
	try {
		list = [].concat(JSON.parse(await file.text()).talks);
	} catch {
		list = [];
	}
	if (!list.length || !list.every(sound)) throw trouble('talks', file.name);
	for (const talk of list) await keepTalk(talks.has(talk.id) ? { ...talk, id: newId() } : talk);
	return list.length;
}

const exportTalks = list => JSON.stringify({ karat: 'talks', talks: list.map(bare) }, null, 1);

// makeTalks makes the list at the chat's side.
function makeTalks() {
	const file = h('input', { id: 'import', type: 'file', accept: '.json,application/json', hidden: true, onchange: async () => {
		const [one] = file.files;
		file.value = '';
		try {
			note('talks', 'imported', { talks: counted('talkCount', await importTalks(one)) });
		} catch (e) {
			fail(e);
		}
		listTalks();
	} });
	neighbours.onmessage = async () => { if (!busy) { await readTalks(); listTalks(); } };
	return h('nav', { id: 'talks', tLabel: 'talks' },
		h('div', { class: 'row' }, h('button', { id: 'forget', type: 'button', class: 'grow', t: 'forget', onclick: forget })),
		h('input', { id: 'find', type: 'search', dir: 'auto', tLabel: 'find', tPlaceholder: 'find', oninput: listTalks }),
		h('ul', { id: 'talk-list' }),
		h('div', { class: 'row' }, h('button', { type: 'button', class: 'small', t: 'exportAll', onclick: () => save('karat-talks.json', 'application/json', exportTalks([...talks.values()])) }),
			h('button', { type: 'button', class: 'small', t: 'import', onclick: () => file.click() }), file));
}

// listTalks lists what is kept and found, the newest first.
function listTalks() {
	const words = $('find').value.trim(), all = [...talks.values()].filter(x => found(x, words)).sort((a, b) => b.changed - a.changed);
	$('talk-list').replaceChildren(...all.map(talkRow));
	if (!all.length) $('talk-list').append(h('li', { class: 'muted', t: words ? 'nothingFound' : 'noTalks' }));
}

function talkRow(talk) {
	const open = h('button', { type: 'button', class: 'talk', dir: 'auto', 'aria-current': talk === current() ? 'true' : undefined, onclick: () => openTalk(talk) }, titleOf(talk));
	const rename = () => {
		const input = h('input', { value: titleOf(talk), dir: 'auto', tLabel: 'rename', onkeydown: e => { if (e.key === 'Escape') listTalks(); if (e.key === 'Enter') input.blur(); }, onblur: async () => {
			talk.title = input.value.trim();
			await keepTalk(talk);
			listTalks();
		} });
		open.replaceWith(input);
		input.select();
	};
	return h('li', null, open, menu(['talkMenu', { name: titleOf(talk) }], [
		['rename', rename],
		['exportMarkdown', () => save(fileName(talk) + '.md', 'text/markdown', markdownOf(talk))],
		['exportJSON', () => save(fileName(talk) + '.json', 'application/json', exportTalks([talk]))],
		['remove', () => removeTalk(talk)]]));
}

// removeTalk deletes a talk, and offers to bring it back.
async function removeTalk(talk) {
	await dropTalk(talk);
	if (talk === current()) forget();
	listTalks();
	note('talks', 'talkRemoved', { name: titleOf(talk) }, '', ['undo', async () => { await keepTalk(talk); listTalks(); }]);
}
