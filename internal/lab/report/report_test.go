package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
)

var update = flag.Bool("update", false, "write the golden files")

// samples are diagnoses as they come, from testdata.
func samples(t testing.TB) map[string]*diagnose.Diagnosis {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	all := map[string]*diagnose.Diagnosis{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		e := json.NewDecoder(bytes.NewReader(b))
		e.DisallowUnknownFields()
		d := new(diagnose.Diagnosis)
		if err := e.Decode(d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = d
	}
	return all
}

// form is one of the ways to write a diagnosis.
type form func(io.Writer, *diagnose.Diagnosis) error

func write(t testing.TB, f form, d *diagnose.Diagnosis) string {
	t.Helper()
	var b bytes.Buffer
	if err := f(&b, d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func text(o Terminal) form {
	return func(w io.Writer, d *diagnose.Diagnosis) error { return Text(w, d, o) }
}

var when = regexp.MustCompile(`timestamp="[-0-9T:]*"`)

func TestGolden(t *testing.T) {
	for name, d := range samples(t) {
		for end, f := range map[string]form{".txt": text(Terminal{Width: 80}), ".xml": JUnit} {
			got := when.ReplaceAllString(write(t, f, d), `timestamp=""`)
			path := filepath.Join("testdata", name+end)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs (-update writes it):\n%s", path, got)
			}
		}
	}
}

// TestTerminal checks the width of lines, that there are escape sequences only
// where they are asked for, and that without a width a fact is one line.
func TestTerminal(t *testing.T) {
	escapes := regexp.MustCompile("\x1b\\[[0-9;]*m")
	for name, d := range samples(t) {
		plain := write(t, text(Terminal{Width: 80}), d)
		for line := range strings.Lines(plain) {
			if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > 80 && strings.Contains(strings.TrimSpace(line), " ") && name != "hostile" {
				t.Errorf("%s: a line of %d: %q", name, utf8.RuneCountInString(line), line)
			}
			if i := strings.IndexFunc(line, unicode.IsControl); i >= 0 {
				t.Errorf("%s: %q has a control character", name, line)
			}
		}
		if colored := write(t, text(Terminal{Width: 80, Color: true}), d); escapes.ReplaceAllString(colored, "") != plain || colored == plain {
			t.Errorf("%s: colors change the text:\n%s", name, colored)
		}
		first, _, _ := strings.Cut(plain, ":")
		if name != "hostile" && first != string(d.Verdict) {
			t.Errorf("%s begins with %q", name, first)
		}
		unbroken := write(t, text(Terminal{}), d)
		for i := range d.Findings {
			if f := strings.Join(strings.Fields(d.Findings[i].Fix), " "); name != "hostile" && !strings.Contains(unbroken, f+"\n") {
				t.Errorf("%s: not on one line: %q in\n%s", name, f, unbroken)
			}
		}
	}
}

// TestWellFormed checks that nothing of a dump is obeyed, that a page asks for nothing from elsewhere, and that its scripts
// are its data and the script that its policy names.
func TestWellFormed(t *testing.T) {
	elsewhere := regexp.MustCompile(`(?i)<(script|link|img|iframe|object|embed|base|form)\b|\s(src|href|on[a-z]+)\s*=|url\(|@import`)
	for name, d := range samples(t) {
		page := write(t, HTML, d)
		if n := len(page); n > 1<<20 {
			t.Errorf("%s: a page of %d bytes", name, n)
		}
		page = withoutScripts(t, name, page)
		outside := regexp.MustCompile(`>[^<]*<|"[^"]*"`).ReplaceAllString(page, "><")
		if m := elsewhere.FindString(outside); m != "" {
			t.Errorf("%s: the page has %q", name, m)
		}
		if strings.Contains(page, "<script") || strings.Contains(page, "{{") || !utf8.ValidString(page) {
			t.Errorf("%s: the page has what it must not have", name)
		}
		plain := html.EscapeString(write(t, text(Terminal{Width: 100}), d))
		if !strings.Contains(page, "<noscript><main><pre>"+plain+"</pre>") {
			t.Errorf("%s: the page has no text for readers without scripts", name)
		}
	}
}

// withoutScripts is a page without its scripts: the last, which its policy names by its
// hash, and data in JSON.
func withoutScripts(t *testing.T, name, page string) string {
	t.Helper()
	scripts := regexp.MustCompile(`(?s)<script([^>]*)>(.*?)</script>`).FindAllStringSubmatch(page, -1)
	for i, s := range scripts {
		switch {
		case i == len(scripts)-1:
			sum := sha256.Sum256([]byte(s[2]))
			policy := `script-src 'sha256-` + base64.StdEncoding.EncodeToString(sum[:]) + `'">`
			if s[1] != "" || s[2] != script || strings.Count(html.UnescapeString(page), policy) != 1 {
				t.Errorf("%s: the script is not the one of the policy %s", name, policy)
			}
		case s[1] != ` type="application/json"` || !json.Valid([]byte(s[2])):
			t.Errorf("%s: a script%s: %.200s", name, s[1], s[2])
		}
		page = strings.Replace(page, s[0], "", 1)
	}
	return page
}

// TestJUnit reads the XML back.
func TestJUnit(t *testing.T) {
	for name, d := range samples(t) {
		var suites testSuites
		if err := xml.Unmarshal([]byte(write(t, JUnit, d)), &suites); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s := suites.Suites[0]
		failures := 0
		for _, c := range s.Cases {
			if c.Failure != nil {
				failures++
			}
		}
		if s.Tests != len(s.Cases) || s.Failures != failures || s.Cases[0].Name != "verdict" {
			t.Errorf("%s: %d tests, %d failures of %d, %d", name, s.Tests, s.Failures, len(s.Cases), failures)
		}
		if bad := s.Cases[0].Failure != nil; bad == Passed(d) {
			t.Errorf("%s: the verdict %s fails: %v", name, d.Verdict, bad)
		}
	}
	ember := write(t, JUnit, samples(t)["ember"])
	for _, want := range []string{`name="Attention, layer 7"`, `message="kv_share_source: `, `name="verdict"`} {
		if !strings.Contains(ember, want) {
			t.Errorf("no %s", want)
		}
	}
}

// large is a diagnosis of a model that is larger than any, with values of all kinds.
func large(layers, places int) *diagnose.Diagnosis {
	d := &diagnose.Diagnosis{Verdict: diagnose.Structural, Layers: layers}
	for l := range layers {
		for p := range places {
			c := diagnose.Curve{Tap: fmt.Sprintf("model.layers.%d.part%d.out", l, p), Op: "Linear", Layer: l,
				Residual: lab.Number(math.Ldexp(1e-7, p%40)), Floor: 1e-7, Free: 0, FreeFloor: lab.Number(math.NaN()), Flagged: p%7 == 0}
			for i := range 64 {
				c.Rows = append(c.Rows, lab.Number(i))
			}
			d.Curves = append(d.Curves, c)
		}
	}
	for i := range 2000 {
		f := diagnose.Finding{Cause: "unknown", Op: "Linear", Layers: []int{i}, Tap: fmt.Sprintf("model.layers.%d.part0.out", i%layers), Residual: 1, Floor: 1e-7}
		for range 300 {
			f.From, f.Also = append(f.From, "x"), append(f.Also, "y")
		}
		d.Findings = append(d.Findings, f)
		l := diagnose.Logits{Prompt: i, Text: strings.Repeat("ä ", 5000), KLBefore: lab.Number(i), ByPosition: make([]lab.Number, 4000), Scatter: make([][2]lab.Number, 3000)}
		d.Logits = append(d.Logits, l)
		d.Inferred, d.Coverage.Blind = append(d.Inferred, "one"), append(d.Coverage.Blind, "another")
	}
	return d
}

func TestBounded(t *testing.T) {
	d := large(300, 100)
	for name, c := range map[string]struct {
		form form
		most int
	}{"page": {HTML, 4 << 20}, "text": {text(Terminal{Width: 80}), 64 << 10}, "JUnit": {JUnit, 16 << 20}} {
		if n := len(write(t, c.form, d)); n > c.most {
			t.Errorf("%s: %d bytes, at most %d", name, n, c.most)
		}
	}
}

// TestLeftOut: what has no room is counted, and taps that were not looked at are said whatever the verdict.
func TestLeftOut(t *testing.T) {
	d := &diagnose.Diagnosis{Verdict: diagnose.Structural, Layers: 1}
	for i := range maxList + 3 {
		d.Curves = append(d.Curves, diagnose.Curve{Tap: fmt.Sprint("x", i), Op: "Linear", Layer: -1, Flagged: true})
		d.Findings = append(d.Findings, diagnose.Finding{Cause: "unknown", AddTaps: []string{"a", fmt.Sprint("b", i%2)}})
		d.Findings[0].Nodes = append(d.Findings[0].Nodes, fmt.Sprint("y", i))
	}
	for name, c := range map[string]struct {
		form form
		want []string
	}{
		"text":  {text(Terminal{}), []string{"and 3 more findings"}},
		"JUnit": {JUnit, []string{"and 3 more findings", "and 3 more equations"}},
		"SARIF": {SARIF, []string{"and 3 more findings", "the places and 3 more operations"}},
	} {
		got := write(t, c.form, d)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
	}
	if taps := NewBrief(d).AddTaps; !slices.Equal(taps, []string{"a", "b0", "b1"}) {
		t.Errorf("add taps %q", taps)
	}
	got := write(t, JUnit, &diagnose.Diagnosis{Verdict: diagnose.Clean, Errors: []string{"a tap without a place"}})
	if !strings.Contains(got, "<system-err>a tap without a place</system-err>") {
		t.Error(got)
	}
}

// TestNoNumber checks that values that JSON does not have are drawn and written.
func TestNoNumber(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	d := samples(t)["structural"]
	d.Findings[0].Residual, d.Findings[0].Floor = lab.Number(nan), lab.Number(inf)
	d.Findings[0].Detail = map[string]any{"c": nan, "f": func() {}}
	d.Curves[0].Residual, d.Curves[1].Floor, d.Curves[2].Free = lab.Number(nan), lab.Number(inf), lab.Number(-inf)
	d.Logits[0].Scatter[0] = [2]lab.Number{lab.Number(nan), lab.Number(inf)}
	d.Logits[0].Engine[0].Probability = lab.Number(nan)
	d.Coverage.Nodes, d.Seconds = nan, inf
	for i := range d.Curves {
		for j := range d.Curves[i].Rows {
			d.Curves[i].Rows[j] = lab.Number(nan)
		}
	}
	for _, f := range []form{HTML, text(Terminal{}), JUnit} {
		write(t, f, d)
	}
	if s := write(t, JUnit, d); !strings.Contains(s, `time="0.000"`) {
		t.Errorf("infinite seconds: %.400s", s)
	}
	dir := t.TempDir()
	if err := WriteDir(dir, d); err == nil {
		t.Error("there is no JSON of NaN")
	}
	if _, err := os.Stat(filepath.Join(dir, "index.html")); err != nil {
		t.Error("without JSON there is no page:", err)
	}
	if s := positions(d, &d.Findings[0]); s != "all 24 positions" {
		t.Errorf("positions %q", s)
	}
}

// TestPositions tells positions from how many were looked at: a late one may be wrong of few.
func TestPositions(t *testing.T) {
	d := &diagnose.Diagnosis{Coverage: diagnose.Coverage{Positions: 126}}
	c := diagnose.Curve{Tap: "a", Floor: 1, Flagged: true}
	for i := range 48 {
		c.Positions, c.Rows = append(c.Positions, 125-i), append(c.Rows, 1)
	}
	c.Rows[0] = 9
	slices.Reverse(c.Positions)
	slices.Reverse(c.Rows)
	c.Positions, c.Rows = append(c.Positions, 126), append(c.Rows, 1)
	d.Curves = []diagnose.Curve{c}
	if got := positions(d, &diagnose.Finding{Tap: "a"}); got != "125: 1 of 49 looked at" {
		t.Errorf("%q", got)
	}
}

func TestWriteDir(t *testing.T) {
	d := samples(t)["ember"]
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		if err := WriteDir(dir, d); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if want := []string{"diagnosis.json", "findings.sarif", "index.html", "junit.xml"}; !slices.Equal(got, want) {
		t.Errorf("the folder has %v", got)
	}
	var back diagnose.Diagnosis
	if b, err := os.ReadFile(filepath.Join(dir, "diagnosis.json")); err != nil || json.Unmarshal(b, &back) != nil || len(back.Curves) != len(d.Curves) {
		t.Errorf("the JSON does not come back: %v", err)
	}
	file := filepath.Join(dir, "junit.xml")
	if err := WriteDir(file, d); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("a file in the folder's place: %v", err)
	}
}

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		number(0.0): "0", number(1.0): "1", number(0.2131): "0.21", number(3.14e-7): "3.1e-7", number(123.4): "123", number(9999.0): "9999",
		number(1.5e7): "1.5e7", number(-2e-9): "-2e-9", number(math.Inf(-1)): "-∞", number(math.NaN()): "NaN",
		percent(0.5): "50 %", percent(1.0): "100 %", percent(1e-9): "< 0.1 %", percent(0.9999): "> 99.9 %", percent(0.0): "0 %", percent(math.NaN()): "NaN",
		ranges([]int{0, 1, 2, 5, 7, 8}): "0–2, 5, 7, 8", ranges(nil): "",
		layers(nil, 4): "outside the layers", layers([]int{3}, 4): "layer 3", layers([]int{0, 1, 2, 3}, 4): "all 4 layers", layers([]int{0, 2}, 4): "layers 0, 2",
		clip("a\nb\x1bc\tdefghijk", 8): "a⏎b\uFFFDc d…",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestStatsHTML: the page has the nodes and the weights, whatever their names and numbers are.
func TestStatsHTML(t *testing.T) {
	nan := lab.Number(math.NaN())
	r := &lab.RunStats{Model: "<b>", Prompts: 1, IDs: 3}
	for i := range 9000 {
		r.Nodes = append(r.Nodes, lab.NodeStats{Name: fmt.Sprintf("<script>%d", i), Layer: i / 10, Stats: lab.Stats{Values: 1, Mean: -1, RMS: 2, MaxAbs: lab.Number(i)}})
	}
	r.Weights = []lab.WeightStats{{Name: "w", Stats: lab.Stats{Values: 1, NaN: 1, Min: nan, Max: nan, Mean: nan, RMS: nan, MaxAbs: nan}}}
	var b strings.Builder
	if err := StatsHTML(&b, r); err != nil {
		t.Fatal(err)
	}
	if page := b.String(); len(page) > 1<<20 {
		t.Errorf("%d bytes", len(page))
	} else {
		withoutScripts(t, "stats", page)
	}
	b.Reset()
	if err := StatsHTML(&b, &lab.RunStats{}); err != nil || !strings.Contains(b.String(), `"nodes":null`) {
		t.Errorf("nothing: %v", err)
	}
}

// TestSARIF: what is against the engine has a result of level error, and values that nobody looked at an error likewise.
func TestSARIF(t *testing.T) {
	rounds := diagnose.Finding{Cause: "numeric_activations"}
	wrong := diagnose.Finding{Cause: "attention_scale"}
	for _, c := range []struct {
		d    diagnose.Diagnosis
		want string
	}{
		{diagnose.Diagnosis{Verdict: diagnose.Clean}, ""},
		{diagnose.Diagnosis{Verdict: diagnose.Clean, Errors: []string{"a tap"}}, "dump error"},
		{diagnose.Diagnosis{Verdict: diagnose.Unexplained}, "unexplained error"},
		{diagnose.Diagnosis{Verdict: diagnose.Reference, Findings: []diagnose.Finding{rounds}}, "numeric_activations note, reference error"},
		{diagnose.Diagnosis{Verdict: diagnose.Structural, Findings: []diagnose.Finding{wrong}}, "attention_scale error"},
	} {
		var b bytes.Buffer
		if err := SARIF(&b, &c.d); err != nil {
			t.Fatal(err)
		}
		var log struct {
			Runs []struct {
				Results []struct{ RuleID, Level string }
			}
		}
		if err := json.Unmarshal(b.Bytes(), &log); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range log.Runs[0].Results {
			got = append(got, r.RuleID+" "+r.Level)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %q, want %q", c.d.Verdict, text, c.want)
		}
	}
}
