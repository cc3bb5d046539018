// Proof: the prompts of the record that travels with the demo, computed here, against
// the logits in it, and what its nodes compute for one of them, against float64.

function makeProof() {
	$('proof').append(h('div', { class: 'card' }, h('h2', { t: 'proofTitle' }), h('p', { class: 'muted', t: 'proofHelp' }),
		h('div', { class: 'row' }, ...runButtons('proof', prove), h('progress', { id: 'proof-progress', hidden: true, tLabel: 'proof' }), h('span', { id: 'proof-state', class: 'muted', role: 'status' }))),
	h('div', { id: 'proof-result', class: 'result' }),
	h('div', { class: 'card' }, h('h2', { t: 'verifyTitle' }), h('p', { class: 'muted', t: 'verifyHelp' }),
		h('div', { class: 'row' }, chooser('receipt-file', 'openReceipt', '.json', async f => { if (!await openReport(f)) fail(trouble('noReceipt', f.name)); })), h('div', { id: 'receipt-result', class: 'result' })));
	fresh.push(() => { $('proof-result').replaceChildren(); $('receipt-result').replaceChildren(); });
}

// runButtons start something on the model, and stop it.
function runButtons(name, start) {
	return [h('button', { id: name + '-run', class: 'main', t: name + 'Run', 'data-needs': '', 'data-starts': name, onclick: start }),
		h('button', { id: name + '-stop', t: 'stop', 'data-stops': name, hidden: true, onclick: stop })];
}

// proofHeads are the columns of a proof, rowOf the cells of a prompt.
const proofHeads = [{ text: '#' }, { t: 'verdict' }, { t: 'promptColumn' }, { t: 'kl', n: true }, { t: 'maxDiff', n: true }, { t: 'limit', n: true }, { t: 'top1', n: true }, { t: 'top5', n: true }, { t: 'top10', n: true }];
const share = v => v === undefined ? '' : percent(Number(v));
const rowOf = p => [String(p.index), verdictCell(p.inside), { text: p.text || '', class: 'text', dir: 'auto', title: p.text }, number_(exponent(p.kl_mean)), number_(exponent(p.max_abs_diff)),
	number_(p.max_diff_limit !== undefined ? exponent(p.max_diff_limit) : p.max_kl_limit !== undefined ? 'KL ' + exponent(p.max_kl_limit) : ''), number_(share(p.top1)), number_(share(p.top5)), number_(share(p.top10))];

// prove fills a row for each prompt as soon as it is judged; the model's name counts along.
async function prove() {
	await during('proof', async () => {
		const bar = $('proof-progress'), rows = [];
		bar.hidden = false;
		bar.removeAttribute('value');
		proving = { n: 0, ok: 0 };
		$('proof-result').replaceChildren(proofTable(rows));
		try {
			const r = await call('prove', recorded() ? { record: { json: published('demo.golden.json'), tensors: published('demo.golden.safetensors') } } : {}, ({ done, total, row }) => {
				bar.max = total;
				bar.value = done;
				say($('proof-state'), 'proofAt', { done, total });
				if (!row) return;
				rows.push(row);
				proving = { n: rows.length, ok: rows.filter(p => p.inside).length };
				$('proof-result').replaceChildren(proofTable(rows));
				showInfo();
			});
			showProof(r);
		} catch (e) {
			$('proof-result').replaceChildren();
			throw e;
		} finally {
			proving = null;
			showInfo();
			bar.hidden = true;
			$('proof-state').textContent = '';
			said.delete($('proof-state'));
		}
	});
}

let proving = null; // how many prompts of the proof that runs are judged, and how many are inside

const proofTable = prompts => h('div', { class: 'card' }, recorded() ? [] : h('p', { class: 'muted', t: 'proofOther' }), table('proofTable', proofHeads, prompts.map(rowOf)));

// recorded reports whether the record that travels with the page is of this model.
const recorded = () => info.sha256 === SITE.files['demo.gguf'].sha256;

// verdictCell is a verdict in words and colour.
const verdictCell = ok => ({ t: ok ? 'inside' : 'outside', class: ok ? 'good' : 'badly' });

function showProof(r) {
	const ok = r.inside ?? r.prompts.every(p => p.inside), all = r.all || {};
	const worst = Math.max(...r.prompts.map(p => Number(p.max_abs_diff)));
	const verdict = h('div', { class: 'card verdict' + (ok ? '' : ' fails'), id: 'verdict', 'data-inside': ok, tabindex: '-1' },
		h('h3', { class: ok ? 'good' : 'badly', t: ok ? 'proofGood' : 'proofBad' }),
		h('p', { t: [ok ? 'proofGoodWhy' : 'proofBadWhy', { n: r.prompts.length, bad: r.prompts.filter(p => !p.inside).length, worst: exponent(worst), kl: exponent(all.kl_mean ?? Math.max(...r.prompts.map(p => Number(p.kl_mean)))), device: () => deviceName() }] }));
	const parts = [verdict, proofTable(r.prompts)];
	const taps = r.taps || r.prompts.flatMap(p => p.taps || []);
	if (taps.length) parts.push(h('div', { class: 'card' }, h('p', { class: 'muted', t: 'tapsHelp' }), table('tapsTable', [{ t: 'tap' }, { t: 'rowsColumn', n: true }, { t: 'whole', n: true }, { t: 'worst', n: true }],
		taps.slice(0, 12).map(x => [{ text: x.name + (x.problem ? ': ' + x.problem : ''), class: 'mono' + (x.problem ? ' badly' : ''), dir: 'ltr' }, number_(number(x.rows)), number_(exponent(x.whole)), number_(exponent(x.worst))]))));
	$('proof-result').replaceChildren(...parts);
	remember('proved ' + provedName(), JSON.stringify({ n: r.prompts.length, ok: r.prompts.filter(p => p.inside).length }));
	verdict.focus();
	announce(t(ok ? 'proofGood' : 'proofBad'));
}

// provedName is what a proof is of: a model on a device.
const provedName = () => `${info.sha256 || info.name + ' ' + info.size} ${deviceName()}`;

const number_ = text => ({ text, n: true });

const deviceName = () => info?.backend === 'webgpu' ? 'WebGPU, ' + (info.adapter?.name || '') : t('processor');
