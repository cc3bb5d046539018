// Files that a reader opens or drops on the page: a diagnosis is drawn, as its report draws it, and a receipt
// is verified. A file may be a
// stranger's: what it says becomes text, and its size is bounded.

const mostRead = 64 << 20, mostDrawn = 4 << 20; // bytes of a file, and of what is drawn
const isReport = /\.(json|html)$/i;

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

// openReport shows a file that is a diagnosis, or verifies one that is a receipt, and reports whether it is one of these.
async function openReport(file) {
	if (!isReport.test(file.name) || file.size > mostRead) return false;
	const text = await file.text();
	let v;
	try {
		v = JSON.parse(/<script type="application\/json">([^<]*)</.exec(text)?.[1] ?? text); // a report's index.html has it inside
	} catch {
		return false;
	}
	if (typeof v?.receipt === 'number' && Array.isArray(v.answer)) {
		go($('tab-proof'));
		await verifyReceipt(text, v);
		return true;
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

// checks are what verifying compares, with the kinds of findings: the signature first, then the model's parts, then the
// tokens. The first of these steps with a finding is the last.
const checks = [['signature', 0, 'tampered', 'unsigned', 'signer'], ['model', 1, 'model', 'quantization'], ['weights', 1, 'weights'], ['vocabulary', 1, 'vocabulary'], ['template', 1, 'template'],
	['adapters', 1, 'adapters'], ['end', 1, 'end'], ['logits', 2, 'engine'], ['choices', 2, 'choice']];

// verifyReceipt has the engine compute a receipt's answer again, and fills a row for each check.
async function verifyReceipt(text, { answer, key }) {
	await during('proof', async () => {
		const show = (done, verdict) => {
			const found = verdict?.findings || [], last = Math.min(3, ...found.map(f => checks.find(c => c.includes(f.kind, 2))?.[1] ?? 0));
			$('receipt-result').replaceChildren(table('receiptTable', [{ t: 'checkColumn' }, { t: 'verdict' }, { t: 'detail' }], checks.map(([name, step, ...kinds]) => {
				const f = found.find(f => kinds.includes(f.kind)), open = !verdict || step > last || name === 'choices' && (found.length || !verdict.draws), none = name === 'signature' && verdict && !verdict.signed;
				const state = f ? { t: 'differs', class: 'badly' } : open || none ? { t: none ? 'unsigned' : verdict ? 'notChecked' : 'reading_', class: 'muted' } : { t: 'holds', class: 'good' };
				return [{ t: 'check_' + name }, state, { text: f ? f.text : name === 'logits' && (verdict ? !open : done) ? `${number(verdict ? verdict.tokens : done)} / ${number(answer.length)}` : name === 'signature' && verdict?.signed ? String(key) : '', class: 'text', dir: 'auto', title: f?.text }];
			})));
		};
		show(0);
		try {
			const verdict = await call('verify', { receipt: text }, ({ done }) => show(done));
			show(verdict.tokens, verdict);
			$('receipt-result').prepend(h('p', { id: 'receipt-verdict', class: verdict.verified ? 'good' : 'badly', role: 'status', t: verdict.verified ? 'receiptGood' : 'receiptBad' }));
		} catch (e) {
			$('receipt-result').replaceChildren();
			throw e.kind === 'other' ? trouble('noReceipt', e.message) : e;
		}
	});
}
