// Files that a reader opens or drops on the page: a diagnosis is drawn, as its report draws it. A file may be a
// stranger's: what it says becomes text, and its size is bounded.

const mostRead = 64 << 20, mostDrawn = 4 << 20; // bytes of a file, and of what is drawn

// chooser is a button that opens a file of this device.
function chooser(id, key, accept, open) {
	const file = h('input', { id, type: 'file', accept, hidden: true, onchange: () => { const f = file.files[0]; file.value = ''; if (f) open(f); } });
	return [h('button', { class: 'main', t: key, onclick: () => file.click() }), file];
}

function makeDiagnosis() {
	$('diagnosis').append(h('div', { class: 'card' }, h('h2', { t: 'diagnosisTitle' }), h('p', { class: 'muted', t: 'diagnosisHelp' }),
		h('div', { class: 'row' }, chooser('diagnosis-file', 'openDiagnosis', '.json,.html', async f => { if (!await openReport(f)) fail(trouble('diagnosis', f.name)); }))),
	h('div', { id: 'diagnosis-result', class: 'result' }));
	for (const media of ['(prefers-color-scheme: dark)', 'print']) matchMedia(media).addEventListener('change', () => redrawn());
}

let redrawn = () => {}; // draws the charts anew, in other colors

// openReport shows a file that is a diagnosis, and reports whether it is one.
async function openReport(file) {
	if (!/\.(json|html)$/i.test(file.name) || file.size > mostRead) return false;
	const text = await file.text();
	let v;
	try {
		v = JSON.parse(/<script type="application\/json">([^<]*)</.exec(text)?.[1] ?? text); // a report's index.html has it inside
	} catch {
		return false;
	}
	const drawn = v?.page ?? v;
	if (!Array.isArray(drawn?.story)) return false;
	go($('tab-diagnosis'));
	await showDiagnosis(drawn, file.name);
	return true;
}

// showDiagnosis draws into a shadow root: the report's own style reaches nothing else of the page, and the page's nothing there.
async function showDiagnosis(drawn, name) {
	clearNote('error');
	const host = h('div', { id: 'drawn', role: 'region', tLabel: ['diagnosisOf', { name }], lang: 'en', dir: 'ltr' }), root = host.attachShadow({ mode: 'open' }), style = new CSSStyleSheet();
	try {
		if (JSON.stringify(drawn).length > mostDrawn) throw new Error(`${name}: more than ${mostDrawn} bytes are to be drawn`);
		await library('report');
		style.replaceSync(globalThis.drawReport.style);
		root.adoptedStyleSheets = [style];
		redrawn = globalThis.drawReport(drawn, root);
		$('diagnosis-result').replaceChildren(host);
		announce(t('diagnosisOf', { name }));
	} catch (e) {
		$('diagnosis-result').replaceChildren();
		fail(e.kind ? e : trouble('diagnosis', `${name}: ${e.message}`));
	}
}
