package syntax

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/jinja"
)

var update = flag.Bool("update", false, "write testdata/templates.jsonl and the table of docs/serving.md")

// published is a line of testdata/templates.jsonl: templates that show the same marks, and the answer of such a model
// that they make of a text and of two calls. A line with a source was written by hand.
type published struct {
	Templates []string `json:"templates"`
	Hashes    []string `json:"sha256,omitempty"` // of the templates
	Families  []string `json:"families,omitempty"`
	Source    string   `json:"source,omitempty"`
	Marks     []string `json:"marks"`
	Opened    bool     `json:"opened,omitempty"`
	Answer    string   `json:"answer,omitempty"` // "" where the template writes no calls
	Calls     int      `json:"calls,omitempty"`  // of the two that the template writes
}

const templatesFile = "testdata/templates.jsonl"

func readPublished(t *testing.T) (all []published) {
	t.Helper()
	b, err := os.ReadFile(templatesFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var p published
		if err := json.Unmarshal(line, &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// TestTemplates: the syntax of every published template that has tools, found by its marks, reads the answer that the
// template itself writes.
func TestTemplates(t *testing.T) {
	if *update {
		writePublished(t)
	}
	table(t)
	two := Tools{"get_weather": {"city": {"string"}}, "add": {}}
	for _, p := range readPublished(t) {
		s := Of(strings.Join(p.Marks, " "))
		if s.General {
			t.Errorf("%v: no syntax of calls", p.Templates)
		}
		if p.Answer == "" {
			continue
		}
		text, reasoning, called := read(s.NewParser(two, p.Opened), strings.Split(p.Answer, ""))
		want := strings.Join([]string{`get_weather{"city":"Paris"}`, `add{"a":2,"b":3}`}[:p.Calls], " ")
		if called != want || text != "" && text != "Let me look." || reasoning != "" && reasoning != "Hm." && reasoning != "Let me look." {
			t.Errorf("%v: %q: text %q, reasoning %q, calls %q", p.Templates, p.Answer, text, reasoning, called)
		}
	}
}

// TestSharedTemplates: the file of published templates is what they make.
func TestSharedTemplates(t *testing.T) {
	want := map[string]published{}
	for _, p := range makePublished(t) {
		want[p.Templates[0]] = p
	}
	for _, p := range readPublished(t) {
		if p.Source != "" {
			continue
		}
		w := want[p.Templates[0]]
		w.Families = p.Families
		if got, want := fmt.Sprintf("%+v", p), fmt.Sprintf("%+v", w); got != want {
			t.Errorf("%s (-update writes it):\n%s\nwant\n%s", templatesFile, got, want)
		}
		delete(want, p.Templates[0])
	}
	for name := range want {
		t.Errorf("%s: no line of %s (-update writes it)", templatesFile, name)
	}
}

// answerEnds are the marks with which templates end an answer.
var answerEnds = []string{"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "<seed:eos>", "[e~[", "<|END_OF_TURN_TOKEN|>",
	"<|START_OF_TURN_TOKEN|>", "<|message_sep|>", "<SPECIAL_12>", "<turn|>", "<|observation|>", "</assistant>", "<sep>", "\n<|end|>", "<|assistant_end|>", "<|tool_response>"}

// marksOf returns the marks that Of looks for in a template.
func marksOf(template string) (all []string) {
	add := func(m string) {
		if strings.Contains(template, m) && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	for _, k := range known().Calls {
		for _, m := range k.If {
			add(m)
		}
	}
	for _, k := range known().Reasoning {
		add(k.If)
	}
	return all
}

// makePublished makes the lines of the shared templates that have tools and show how they are called.
func makePublished(t *testing.T) (all []published) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(golden.Shared(t, "chat/templates"), "*.jinja"))
	if err != nil || len(files) < 50 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source, name := string(b), strings.TrimSuffix(filepath.Base(file), ".jinja")
		s := Of(source)
		if s.General {
			if toolless[name] == "" && strings.Contains(source, "tool") {
				t.Errorf("%s: it has tools, and no syntax of calls is known", name)
			}
			continue
		}
		p := published{Templates: []string{name}, Marks: marksOf(source)}
		tmpl, err := chat.Parse(source, chat.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		p.Hashes = []string{tmpl.Hash()[:16]}
		p.answer(t, tmpl, &s)
		if i := slices.IndexFunc(all, func(o published) bool {
			return o.Answer == p.Answer && o.Opened == p.Opened && slices.Equal(o.Marks, p.Marks)
		}); i >= 0 {
			all[i].Templates = append(all[i].Templates, name)
			all[i].Hashes = append(all[i].Hashes, p.Hashes...)
			continue
		}
		all = append(all, p)
	}
	return all
}

// toolless are templates that speak of tools and take none, or show no syntax.
var toolless = map[string]string{
	"HuggingFaceTB-SmolLM3-3B":                 "it has results of tools alone",
	"deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "it has results of tools alone",
}

// answer is what a template writes of an answer with two calls, or with one where it takes no more.
func (p *published) answer(t *testing.T, tmpl *chat.Template, s *Syntax) {
	t.Helper()
	calls := []string{`{"id":"aaaaaaaa1","type":"function","function":{"name":"get_weather","arguments":{"city":"Paris"}}}`, `{"id":"aaaaaaaa2","type":"function","function":{"name":"add","arguments":{"a":2,"b":3}}}`}
	user := `{"role":"user","content":"Q"}`
	for p.Calls = 2; p.Calls > 0; p.Calls-- {
		for _, content := range []string{`"Let me look."`, `""`} {
			turn := `{"role":"assistant","content":` + content + `,"reasoning_content":"Hm.","tool_calls":[` + strings.Join(calls[:p.Calls], ",") + `]}`
			prompt, err := render(t, tmpl, true, user)
			whole, err2 := render(t, tmpl, false, user, turn)
			if err != nil || err2 != nil {
				continue
			}
			n := 0
			for n < len(prompt) && n < len(whole) && prompt[n] == whole[n] {
				n++
			}
			if n < len(prompt) { // whole marks and lines
				n = strings.LastIndexAny(whole[:n], "\n>") + 1
			}
			answer := whole[n:]
			for _, end := range answerEnds {
				answer, _, _ = strings.Cut(answer, end)
			}
			answer = strings.TrimPrefix(answer, "<|CHATBOT_TOKEN|>") // of a prompt that ends in a turn of the system
			p.Opened = s.Opens(prompt) && (n == len(prompt) || strings.HasPrefix(answer, "Hm."))
			if rest, closed := strings.CutPrefix(answer, s.Close); closed { // of a template that leaves reasoning out
				answer, p.Opened = rest, false
			}
			if strings.Contains(answer, "get_weather") && strings.Contains(answer, "add") == (p.Calls == 2) {
				p.Answer = answer
				return
			}
		}
	}
	p.Opened = false
}

func render(t *testing.T, tmpl *chat.Template, generate bool, messages ...string) (string, error) {
	t.Helper()
	in := chat.Input{BOSToken: "<s>", EOSToken: "</s>", AddGenerationPrompt: generate, Now: func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }}
	for _, m := range messages {
		v, err := jinja.DecodeJSON([]byte(m))
		if err != nil {
			t.Fatal(err)
		}
		in.Messages = append(in.Messages, v.(*jinja.Dict))
	}
	for _, tool := range [][2]string{
		{"get_weather", `{"type":"object","properties":{"city":{"type":"string","description":"d"}},"required":["city"]}`},
		{"add", `{"type":"object","properties":{"a":{"type":"integer","description":"d"},"b":{"type":"integer","description":"d"}},"required":["a"]}`},
	} {
		v, err := chat.Tool(tool[0], "d", []byte(tool[1]))
		if err != nil {
			t.Fatal(err)
		}
		in.Tools = append(in.Tools, v)
	}
	args, err := chat.Args(map[string]any{"enable_thinking": true, "thinking": true, "functions": "[]", "datetime": "now"})
	if err != nil {
		t.Fatal(err)
	}
	in.Args = args
	return tmpl.Render(t.Context(), in)
}

// writePublished writes the lines anew, but for families and lines that were written by hand.
func writePublished(t *testing.T) {
	t.Helper()
	all := makePublished(t)
	if old, err := os.ReadFile(templatesFile); err == nil && len(old) > 0 {
		for _, p := range readPublished(t) {
			if p.Source != "" {
				all = append(all, p)
			} else if i := slices.IndexFunc(all, func(n published) bool { return n.Templates[0] == p.Templates[0] }); i >= 0 {
				all[i].Families = p.Families
			}
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, p := range all {
		if err := e.Encode(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(templatesFile, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// example returns a call of the tool f with the argument x as a model writes it.
func (s *Syntax) example() string {
	y := &s.Style
	arguments := map[Form]string{Object: `{"x": "a"}`, Keyed: `{"x": "a"}`, Named: `{"x": "a"}`, Quoted: "{x:" + Quote + "a" + Quote + "}", Python: "x='a'", Tagged: y.Key + "x" + y.Value + "a" + y.End, Nested: y.Key + "x>a" + y.End + "x>"}[y.Form]
	m := Marks{}
	if !s.Bare && len(s.Calls) > 0 {
		m = s.Calls[0]
	}
	call := m.Begin + y.First + y.Name + "f" + y.Then + arguments + y.After + y.Last + m.End
	if y.Each {
		call = y.First + m.Begin + y.Name + "f" + y.Then + arguments + y.After + m.End + y.Last
	}
	return call
}

// Marks of the table in docs/serving.md.
const (
	tableBegin = "<!-- syntaxes: go test ./internal/syntax -run Templates -update -->\n"
	tableEnd   = "<!-- end of syntaxes -->\n"
)

// table wants the table of docs/serving.md to be what the file of templates says.
func table(t *testing.T) {
	t.Helper()
	type row struct{ families, templates []string }
	rows, order := map[string]*row{}, []string(nil)
	code := func(text string) string {
		text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
		if strings.Contains(text, "`") {
			return "```` " + text + " ````"
		}
		return "`" + text + "`"
	}
	for _, p := range readPublished(t) {
		for _, name := range p.Families {
			if !slices.ContainsFunc(registry.Families, func(f *family.Family) bool { return f.Name == name }) {
				t.Errorf("%v: there is no family %s", p.Templates, name)
			}
		}
		s := Of(strings.Join(p.Marks, " "))
		key := code(s.example()) + " | "
		if s.Open != "" {
			key += code(s.Open + "…" + s.Close)
		}
		r := rows[key]
		if r == nil {
			r = &row{}
			rows[key], order = r, append(order, key)
		}
		r.families, r.templates = append(r.families, p.Families...), append(r.templates, p.Templates...)
	}
	var b strings.Builder
	b.WriteString(tableBegin + "| a call of `f` with `x` = `a` | reasoning | families | templates |\n|---|---|---|---|\n")
	for _, key := range order {
		r := rows[key]
		slices.Sort(r.families)
		fmt.Fprintf(&b, "| %s | %s | %s |\n", key, strings.Join(slices.Compact(r.families), ", "), strings.Join(r.templates, ", "))
	}
	b.WriteString(tableEnd)
	path := filepath.Join(golden.Root(t), "docs/serving.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatal("docs/serving.md has no table of syntaxes")
	}
	if want := before + b.String() + after; want != string(page) {
		if !*update {
			t.Fatalf("docs/serving.md: the table of syntaxes is stale (-update writes it); want\n%s", b.String())
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
