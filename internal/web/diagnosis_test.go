//go:build !js

package web

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/report"
)

// reported writes the report of a diagnosis that the tests of package report have, and returns its folder.
func reported(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../lab/report/testdata/ember.json")
	if err != nil {
		t.Fatal(err)
	}
	d, dir := new(diagnose.Diagnosis), t.TempDir()
	if err := json.Unmarshal(b, d); err != nil {
		t.Fatal(err)
	}
	if err := report.WriteDir(dir, d); err != nil {
		t.Fatal(err)
	}
	return dir
}

// drawn waits for a drawing, and returns its figures and how many charts it has.
const drawn = `const root = await until('the drawing', () => $('#drawn')?.shadowRoot); await until('its charts', () => root.querySelectorAll('.live .uplot').length >= 5);
	const figures = [...root.querySelectorAll('figcaption strong')].map(e => e.textContent); `

// TestDiagnosis: a diagnosis.json, and a report's index.html, are drawn as the report draws them, each chart once, at
// any width and in the page's own light, with the page's language around it.
func TestDiagnosis(t *testing.T) {
	t.Parallel()
	p, url := visited(t)
	dir := reported(t)
	p.upload("#diagnosis-file", filepath.Join(dir, "diagnosis.json"))
	got := do[[]string](p, drawn+`return [...figures.filter((f, i) => figures.indexOf(f) < i && f !== 'Logits'), figures.slice(0, 3).join(), root.querySelector('h1').textContent, String(document.querySelectorAll("main").length + root.querySelectorAll("main").length)]`)
	if len(got) != 3 || got[0] != "Operations by layers,Equations,Free run" || got[1] == "" || got[2] != "1" {
		t.Errorf("the drawing: %q", got)
	}
	for _, width := range []int64{320, 768, 1920} {
		for _, scheme := range []string{"light", "dark"} {
			p.size(scheme, width)
			if got := do[string](p, `await new Promise(go => setTimeout(go, 200)); const c = $('#drawn').shadowRoot.querySelector('header'); const box = c.getBoundingClientRect();
				return getComputedStyle(c).backgroundColor + ' ' + (box.left >= 0 && box.right <= innerWidth)`); got != map[string]string{"light": "rgb(255, 255, 255) true", "dark": "rgb(26, 30, 34) true"}[scheme] {
				t.Errorf("at %d, %s: %s", width, scheme, got)
			}
			p.look("diagnosis")
		}
	}
	if got := do[string](p, `$('#theme').value = 'light'; $('#theme').dispatchEvent(new Event('change', {bubbles: true})); return getComputedStyle($('#drawn').shadowRoot.querySelector('header')).backgroundColor`); got != "rgb(255, 255, 255)" {
		t.Errorf("in the light that the reader chose: %s", got)
	}
	p.visit(url + "?lang=ar#diagnosis")
	do[any](p, `await ready()`)
	p.size("light", 320)
	p.upload("#diagnosis-file", filepath.Join(dir, "index.html"))
	if got := do[string](p, drawn+`return document.documentElement.dir + getComputedStyle($('#drawn')).direction + figures[0]`); got != "rtlltrOperations by layers" {
		t.Errorf("in Arabic: %q", got)
	}
	p.look("diagnosis-arabic")
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// TestDiagnosisKeyboard: without a mouse a reader opens the tab, goes to a chart and reads its values, which a screen
// reader hears, and leaves it.
func TestDiagnosisKeyboard(t *testing.T) {
	t.Parallel()
	p, _ := visited(t)
	do[any](p, `$('#tab-chat').focus()`)
	p.keys(kb.End)
	if at := do[string](p, `return document.activeElement.id + ' ' + $('#diagnosis').hidden`); at != "tab-diagnosis false" {
		t.Fatalf("the last tab is %q", at)
	}
	p.upload("#diagnosis-file", filepath.Join(reported(t), "diagnosis.json"))
	at := func() string {
		return do[string](p, `const e = document.activeElement.shadowRoot?.activeElement ?? document.activeElement; return e.getAttribute('aria-label') || e.textContent`)
	}
	do[any](p, drawn)
	var seen []string
	for range 40 {
		p.keys(kb.Tab)
		if seen = append(seen, at()); strings.Contains(at(), "Arrow keys") {
			break
		}
	}
	if !slices.Contains(seen, "Open a diagnosis…") || !slices.Contains(seen, "Operations by layers") || !strings.HasPrefix(at(), "Equations: ") {
		t.Errorf("Tab goes to %q", seen)
	}
	const told = `const tip = $('#drawn').shadowRoot.querySelector('.tip'); return tip.hidden ? '' : tip.getAttribute('role') + ' ' + tip.innerText`
	var said []string
	for _, key := range []string{kb.ArrowRight, kb.ArrowRight, kb.ArrowLeft, kb.End, kb.ArrowRight, kb.Home, kb.Escape} {
		p.keys(key)
		said = append(said, do[string](p, `await new Promise(go => requestAnimationFrame(() => setTimeout(go))); `+told))
	}
	if !strings.HasPrefix(said[0], "status ") || said[0] == said[1] || said[2] != said[0] || said[3] == said[1] || said[4] != said[3] || said[5] != said[0] || said[6] != "" {
		t.Errorf("the keys tell %q", said)
	}
	p.keys(kb.ArrowRight)
	p.keys(kb.Tab)
	if left := do[string](p, told); left != "" {
		t.Errorf("behind the chart the page still tells %q", left)
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// TestDropped: a diagnosis and a receipt that are dropped on the chat open where they belong, whatever they are called,
// at any width, in all languages.
func TestDropped(t *testing.T) {
	t.Parallel()
	p, url := visited(t)
	b, err := os.ReadFile(filepath.Join(reported(t), "diagnosis.json"))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		lang, scheme string
		width        int64
	}{{"en", "light", 768}, {"ar", "dark", 320}, {"zh", "light", 320}} {
		p.size(c.scheme, c.width)
		p.visit(url + "?lang=" + c.lang + "#chat")
		do[any](p, `await ready()`)
		if got := do[string](p, dropping+`drop('<img src=x onerror=alert(1)>.json', `+strconv.Quote(string(b))+`, 'application/json'); `+drawn+`
			return $('#tab-diagnosis').getAttribute('aria-selected') + ' ' + $('#drawn').getAttribute('aria-label').includes('<img') + ' ' + document.querySelectorAll('main img').length + ' ' + figures[0]`); got != "true true 0 Operations by layers" {
			t.Errorf("%s: a dropped diagnosis: %s", c.lang, got)
		}
		p.look("dropped-diagnosis-" + c.lang)
		if got := do[string](p, dropping+`$('#tab-chat').click(); drop('<img src=x onerror=alert(1)>.json', '{"receipt": 1, "answer": [1, 2], "says": [{"kind": "engine", "at": 1, "text": "<img src=x onerror=alert(1)>"}]}', 'application/json'); await until('the verdict', () => $('#receipt-verdict') && !$('#proof-run').hidden);
			$('#receipt-result').scrollIntoView({ block: 'center' }); return $('#tab-proof').getAttribute('aria-selected') + ' ' + document.querySelectorAll('main img').length + ' ' + document.querySelectorAll('#receipt-result .badly').length`); got != "true 0 2" {
			t.Errorf("%s: a dropped receipt: %s", c.lang, got)
		}
		p.look("dropped-receipt-" + c.lang)
		if got := do[string](p, dropping+`$('#tab-chat').click(); drop('notes.json', '{"a": 1}', 'application/json'); await until('the file', () => $('#attached .chip')); return text('#attached .chip span') + $('#chat').hidden`); i == 0 && got != "notes.jsonfalse" {
			t.Errorf("a dropped file of another kind: %s", got)
		}
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// TestHostileDiagnosis: whatever a diagnosis.json says, nothing of it runs or becomes markup, and the page goes on.
func TestHostileDiagnosis(t *testing.T) {
	t.Parallel()
	p, _ := visited(t)
	b, err := os.ReadFile(filepath.Join(reported(t), "diagnosis.json"))
	if err != nil {
		t.Fatal(err)
	}
	var whole struct {
		Page map[string]any `json:"page"`
	}
	if err := json.Unmarshal(b, &whole); err != nil {
		t.Fatal(err)
	}
	strung := regexp.MustCompile(`": "[^"]*"`).ReplaceAllString(string(b), `": "<img src=x onerror=alert(1)><script>alert(1)</script>"`)
	files := map[string]string{"markup.json": strung, "large.json": `{"page": {"story": ["` + strings.Repeat("a", 5<<20) + `"]}}`, "empty.json": `{"page": {"story": []}}`,
		"old.json": `{"verdict": "diverges", "curves": []}`, "text.json": "<script type=\"application/json\">alert(1)</script>", "infinite.json": strings.NewReplacer(`"layer": 1`, `"layer": 1e999`, `"positions": [`, `"positions": [1e999,`).Replace(string(b))}
	for k, field := range slices.Sorted(maps.Keys(whole.Page)) {
		for i, bad := range []any{nil, 1e300, "<img src=x onerror=alert(1)>", []any{nil}, []any{map[string]any{"traces": 1, "rows": []any{"a"}, "positions": []any{}}}, map[string]any{"length": 1e9}} {
			if (i+k)%3 != 0 && !golden.Slow() { // two of six a field; the long ring has all
				continue
			}
			page := maps.Clone(whole.Page)
			page[field] = bad
			text, err := json.Marshal(map[string]any{"page": page})
			if err != nil {
				t.Fatal(err)
			}
			files[field+string(rune('a'+i))+".json"] = string(text)
		}
	}
	refused := 0
	for name, text := range files {
		p.upload("#diagnosis-file", written(t, name, text))
		got := do[string](p, `const name = '`+name+`', drawn = () => $('#drawn')?.getAttribute('aria-label').endsWith(name), told = () => text('#notes [role=alert]').includes(name);
			await until('an end of ' + name, () => drawn() || told()); await new Promise(go => setTimeout(go, 50));
			const root = $('#drawn')?.shadowRoot || document; return (told() ? 'told ' : 'drawn ') + root.querySelectorAll('img, script:not([src]), [onerror]').length`)
		if !strings.HasSuffix(got, " 0") {
			t.Errorf("%s: %s", name, got)
		}
		if strings.HasPrefix(got, "told") {
			refused++
		} else if name == "large.json" || name == "old.json" || name == "text.json" {
			t.Errorf("%s is drawn", name)
		}
	}
	if refused < 10 || refused == len(files) {
		t.Errorf("%d of %d files are refused", refused, len(files))
	}
	if got := do[string](p, `$('#tab-chat').click(); ask('What is it?'); return answered(1)`); got == "" {
		t.Error("the page does not answer any more")
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// TestProofRows: a proof's rows come one by one, and the model's name counts along in the page's language. What runs can
// be stopped, and then nothing is said to be proved.
func TestProofRows(t *testing.T) {
	t.Parallel()
	p, url := visited(t)
	for _, width := range []int64{320, 768, 1920} {
		p.size("dark", width)
		got := do[string](p, `$('#tab-proof').click(); const seen = new Set(), line = () => document.querySelectorAll('#proof-result tbody tr').length + ' ' + text('#proved'), watch = new MutationObserver(() => seen.add(line()));
			watch.observe(document.body, { childList: true, subtree: true }); $('#proof-run').click(); await until('the verdict', () => $('#verdict')); watch.disconnect(); await until('rest', () => !$('#proof-run').hidden); seen.add(line()); return [...seen].join()`)
		if !regexp.MustCompile(`1 proved here: 1 of 1.*2 proved here: 2 of 2.*4 proved here: 4 of 4`).MatchString(got) {
			t.Errorf("at %d the rows fill so: %s", width, got)
		}
		p.look("proof-rows")
	}
	p.visit(url + "?lang=ar#proof")
	if got := do[string](p, `await ready(); localStorage.clear(); $('#proof-run').click(); await until('a row', () => $('#proof-result tbody tr')); const first = text('#proved'); $('#proof-stop').click(); await until('the end', () => !$('#proof-run').hidden); return first`); !strings.HasPrefix(got, "بُرهن هنا: 1") {
		t.Errorf("in Arabic: %q", got)
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// TestReceipts: an answer's receipt is saved as it was made, and verifying one fills a row for each check; the first
// step that finds a difference is the last. A receipt is a stranger's: nothing of it runs.
func TestReceipts(t *testing.T) {
	t.Parallel()
	p, url := visited(t)
	got := do[string](p, `$('#receipts').click(); let saved; const make = URL.createObjectURL; URL.createObjectURL = b => { saved = b; return make(b) };
		ask('What is it?'); await answered(1); [...document.querySelectorAll('.turn.assistant .does button')].find(b => b.textContent === 'Download receipt').click(); await until('the file', () => saved); return saved.text()`)
	if got != `{"receipt":1,"answer":[0,1,2]}` {
		t.Errorf("the receipt is %q", got)
	}
	const hostile = `<img src=x onerror=alert(1)>`
	for _, c := range []struct{ says, want string }{
		{`[]`, "Verified: not signed equal equal equal equal equal equal equal equal 3 / 3"},
		{`[{"kind": "tampered", "at": -1, "text": "` + hostile + `"}]`, "Not verified. differs not checked not checked not checked not checked not checked not checked not checked not checked"},
		{`[{"kind": "weights", "at": -1, "text": "other"}]`, "Not verified. not signed equal differs equal equal equal equal not checked not checked"},
		{`[{"kind": "engine", "at": 2, "text": "token 2"}]`, "Not verified. not signed equal equal equal equal equal equal differs not checked"},
	} {
		do[any](p, `window.live = new Set(); window.watch ||= new MutationObserver(() => live.add(document.querySelector('#receipt-result tr:nth-child(8) td:nth-child(3)')?.textContent)); watch.observe(document.body, { childList: true, subtree: true })`)
		p.upload("#receipt-file", written(t, "receipt.json", `{"receipt": 1, "answer": [1, 2, 3], "says": `+c.says+`, "model": {"name": "`+hostile+`"}}`))
		got := do[string](p, `await until('the verdict', () => $('#receipt-verdict'));
			const of = n => [...document.querySelectorAll('#receipt-result td:nth-child(' + n + ')')].map(e => e.textContent); const said = text('#receipt-verdict').split(' this')[0] + ' ' + of(2).join(' ') + (of(3)[7] === '3 / 3' ? ' 3 / 3' : '');
			const marks = document.querySelectorAll('#receipt-result img').length; $('#receipt-result').replaceChildren(); return said + (live.has('1 / 3') && live.has('2 / 3') ? '' : ' not live') + (marks || '')`)
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.says, got, c.want)
		}
	}
	for _, bad := range []string{`{"receipt": 1}`, `[]`, `{"receipt": "x", "answer": {}}`, hostile} {
		p.upload("#receipt-file", written(t, "bad.json", bad))
		if got := do[string](p, `const said = await failed('receipt'); $('#notes').replaceChildren(); return said`); !strings.Contains(got, "cannot be verified") {
			t.Errorf("%s: %q", bad, got)
		}
	}
	p.visit(url + "?lang=ar#proof")
	do[any](p, `await ready()`)
	for _, width := range []int64{320, 768, 1920} {
		p.size("dark", width)
		p.upload("#receipt-file", written(t, "receipt.json", `{"receipt": 1, "answer": [1, 2, 3]}`))
		do[any](p, `await until('the verdict', () => $('#receipt-verdict')); $('#receipt-result').scrollIntoView()`)
		p.look("receipt-arabic")
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// TestProbeBeside: the probe stands beside the conversation, computes that up to its last question, and the page chats on.
func TestProbeBeside(t *testing.T) {
	t.Parallel()
	p, _ := visited(t)
	do[any](p, `ask('What is it?'); await answered(1); openProbe(); $('#probe-run').click(); await until('the values', () => $('#probe-facts') && !$('#probe-run').hidden)`)
	for width, want := range map[int64]string{320: "below", 768: "beside", 1920: "beside"} {
		for _, scheme := range []string{"light", "dark"} {
			p.size(scheme, width)
			got := do[string](p, `$('#tab-chat').scrollIntoView(); const a = $('#middle').getBoundingClientRect(), b = $('#probe').getBoundingClientRect();
				return (a.width > 200 && b.width > 200 ? a.right <= b.left + 1 && b.right <= innerWidth ? 'beside' : a.bottom <= b.top + 1 ? 'below' : 'over' : 'narrow')`)
			if got != want {
				t.Errorf("at %d the probe is %s, want %s", width, got, want)
			}
			p.look("probe-beside")
		}
	}
	got := do[string](p, `$('#probe-of').value = 'talk'; $('#probe-of').dispatchEvent(new Event('change', {bubbles: true})); $('#probe-run').click(); await until('rest', () => !$('#probe-run').hidden && $('#change-by'));
		$('#change-by').value = 0; $('#change-by').dispatchEvent(new Event('input', {bubbles: true})); $('#change-by').dispatchEvent(new Event('change', {bubbles: true})); await until('the effect', () => text('#change-result'));
		await until('rest', () => !$('#probe-run').hidden); ask('one'); await answered(2); const both = answers().length + ' ' + !!$('#probe-facts'); $('#open-probe').click(); return both + ' ' + $('#probe').hidden + ' ' + $('#open-probe').getAttribute('aria-expanded')`)
	if got != "2 true true false" {
		t.Errorf("chat and probe: %s", got)
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}
