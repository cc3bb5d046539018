//go:build !js

package web

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
	for field := range whole.Page {
		for i, bad := range []any{nil, 1e300, "<img src=x onerror=alert(1)>", []any{nil}, []any{map[string]any{"traces": 1, "rows": []any{"a"}, "positions": []any{}}}, map[string]any{"length": 1e9}} {
			page := map[string]any{}
			for k, v := range whole.Page {
				page[k] = v
			}
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
		got := do[string](p, `$('#tab-proof').click(); $('#proof-run').click(); const seen = new Set(), line = () => document.querySelectorAll('#proof-result tbody tr').length + ' ' + text('#proved');
			await until('the verdict', () => { seen.add(line()); return $('#verdict') }); await until('rest', () => !$('#proof-run').hidden); seen.add(line()); return [...seen].join()`)
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
