package parity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/round"
)

func load(t *testing.T, name string) *Model {
	t.Helper()
	return open(t, name, golden.Model(t, name))
}

func open(t *testing.T, name, path string) *Model {
	t.Helper()
	file, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	m := &Model{Name: name, Template: file.Template()}
	if m.Tokenizer, err = file.Tokenizer(); err != nil {
		t.Fatal(err)
	}
	if m.Graph, _, err = arch.Load(file); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRun runs a few engines and checks the output. How good the diagnosis is
// is not its concern.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	o := Options{Models: []*Model{load(t, "tiny-qwen2")}, Conditions: []Condition{Single, Clean}, Every: 300, Jobs: 2}
	calls := 0
	o.Progress = func(done, total int, x *Result) {
		if calls++; done != calls || total != 2 || x == nil {
			t.Errorf("%d of %d: %v", done, total, x)
		}
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 2 || r.Cases != 2 || r.Total[Single].Runs != 1 || r.Total[Single].Detected.Of != 1 || r.Total[Clean].False.Of != 1 {
		t.Errorf("%+v", r)
	}
	var text, page, data bytes.Buffer
	for _, err := range []error{r.Text(&text), r.HTML(&page), r.JSON(&data)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"2 engines of 2 planned", "one case in 300", "detected", "false findings", "engine runs"} {
		if !strings.Contains(text.String(), want) || !strings.Contains(page.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	var back Report
	if err := json.Unmarshal(data.Bytes(), &back); err != nil || len(back.Results) != 2 || back.Total[Single].Detected.Of != 1 {
		t.Errorf("%v: %s", err, data.Bytes())
	}
}

// TestInterrupted wants a report of what was done.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	r, err := Run(ctx, Options{Models: []*Model{load(t, "tiny-qwen2")}, Conditions: []Condition{Probe}})
	if !errors.Is(err, context.Canceled) || r == nil || len(r.Results) != 0 || r.Cases == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := r.Text(&bytes.Buffer{}); err != nil {
		t.Error(err)
	}
}

// TestPlan: the same seed gives the same cases, a slice has cases of all conditions,
// and every fault and class of a model is among all.
func TestPlan(t *testing.T) {
	m := load(t, "gemma2")
	names := func(every int, seed uint64) (list []string) {
		for _, c := range plan(&Options{Models: []*Model{m}, Seed: seed, Sets: 5, Every: every}) {
			list = append(list, string(c.condition)+" "+c.name())
		}
		return list
	}
	all, slice := names(1, 3), names(100, 3)
	if !slices.Equal(slice, names(100, 3)) || slices.Equal(all, names(1, 4)) {
		t.Error("the seed does not decide the cases")
	}
	for _, condition := range Conditions {
		if condition != Pictures && !slices.ContainsFunc(slice, func(s string) bool { return strings.HasPrefix(s, string(condition)+" ") }) {
			t.Errorf("no %s in a slice", condition)
		}
	}
	for _, s := range slice {
		if !slices.Contains(all, s) {
			t.Errorf("%s is not among all", s)
		}
	}
	for _, f := range mistake.Applicable(m.Graph) {
		want := "single " + f.String()
		if strings.HasPrefix(f.ID, "same_") {
			want = "clean " + f.String()
		}
		if !slices.Contains(all, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, c := range plan(&Options{Models: []*Model{m}, Match: "mask=self"}) {
		if !strings.Contains(c.name(), "mask=self") {
			t.Errorf("%s was not asked for", c.name())
		}
	}
	for _, condition := range Conditions {
		few := plan(&Options{Models: []*Model{m}, Conditions: []Condition{condition}, Sets: 5, Most: 3})
		if len(few) != 3 && condition != Pictures {
			t.Errorf("%d of %s, at most 3 are wanted", len(few), condition)
		}
	}
	for _, want := range []string{"clean exact", "clean exact declared", "clean activations=bf16", "clean activations=f32,gelu=f16-table", "single input_bos", "probe probe_dtype"} {
		if !slices.Contains(all, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestSeen: what another fault hides is not wanted, in the layers where it does.
func TestSeen(t *testing.T) {
	m := load(t, "tiny-qwen3")
	for set, want := range map[string]string{
		"weight_missing:ffn_down@1-2; activation@all":     "weight_missing Linear [1,2] + activation GLU [0,1,2,3]",
		"weight_missing:ffn_down; x_residual_scaled:out":  "weight_missing Linear [0,1,2,3]",
		"weight_missing:attn_q@1; rope_style:attn_q_rope": "weight_missing Linear [1] + rope_style RoPE [0,2,3]",
		"weight_missing:attn_v@1-2; attention_scale@all":  "weight_missing Linear [1,2] + attention_scale Attention [0,3]",
	} {
		faults, err := mistake.Parse(set)
		if err != nil {
			t.Fatal(err)
		}
		c := &example{model: m, condition: Multi, faults: faults, longest: 16}
		_, _, injected, err := mistake.Inject(m.Graph, faults)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := c.seen(t.Context(), injected)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range wanted(seen) {
			got = append(got, p.String())
		}
		if got := strings.Join(got, " + "); got != want {
			t.Errorf("%s: %s, want %s", set, got, want)
		}
	}
}

// TestPrompts: one is longer than the window, and texts are told as they were encoded.
func TestPrompts(t *testing.T) {
	m := load(t, "tiny-gemma4-moe")
	window := 0
	for _, n := range m.Graph.Nodes {
		if a, ok := n.Attr.(*graph.KV); ok {
			window = max(window, a.Window)
		}
	}
	prompts, _ := m.prompts(1, 0)
	if len(prompts) != 3 || len(prompts[2].IDs) != window+8 || len(prompts[1].IDs) < 20 || prompts[1].Decode == 0 {
		t.Errorf("%v", prompts)
	}
	if short, _ := m.prompts(1, window); len(short[2].IDs) != usual {
		t.Errorf("%d tokens, at most %d", len(short[2].IDs), window)
	}
	for _, p := range prompts[:2] {
		if !slices.Equal(p.IDs, m.encode(p.Text)) || *p.Input.Text != p.Text {
			t.Errorf("%q: %v", p.Text, p.IDs)
		}
	}
}

// TestSections wants rope's sections placed and named, which a prompt with an image shows.
func TestSections(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	m := load(t, "tiny-qwen3")
	for _, n := range m.Graph.Nodes {
		if a, ok := n.Attr.(graph.RoPEAttr); ok {
			pairs := a.Turning(n.Shape.Last()) / 2
			a.Sections = [3]int{pairs - 2*(pairs/4), pairs / 4, pairs / 4}
			n.Attr = a
		}
	}
	allNamed(t, m, "rope_sections", 3)
}

// TestLayerNorms wants missing LayerNorms and missing biases placed and named.
func TestLayerNorms(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	m := load(t, "gpt2")
	for _, match := range []string{"norm_missing", "bias_missing"} {
		allNamed(t, m, match, 3)
	}
}

// TestFamilies wants cases of each family's model: kinds of layers without rope are among them.
func TestFamilies(t *testing.T) {
	for _, name := range golden.Sample(golden.Families(t)) {
		if n := len(plan(&Options{Models: []*Model{load(t, name)}, Conditions: []Condition{Single}})); n < 50 {
			t.Errorf("%s: %d cases", name, n)
		}
	}
}

// TestNewer wants faults placed and named that the newer families brought: routers that divide the
// chosen probabilities by their sum, a layer treated as one of a kind that turns nothing, a prompt
// with an image that loses a token.
func TestNewer(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	for name, match := range map[string]string{"mixtral": "router_softmax@2", "deepseek2-lite": "router_softmax=sigmoid@all", "cohere2": "layer_pattern@all", "qwen35": "input_ids=lost"} {
		r, err := Run(t.Context(), Options{Models: []*Model{load(t, name)}, Conditions: []Condition{Single}, Match: match, Longest: 24, Jobs: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Results) == 0 {
			t.Errorf("%s: no %s", name, match)
		}
		for _, x := range r.Results {
			if len(x.Failed) > 0 {
				t.Error(x.Line())
			}
		}
	}
}

// allNamed wants one in so many of the faults of that name placed and named.
func allNamed(t *testing.T, m *Model, match string, every int) {
	t.Helper()
	r, err := Run(t.Context(), Options{Models: []*Model{m}, Conditions: []Condition{Single}, Match: match, Every: every, Longest: 24, Jobs: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Results {
		if len(x.Failed) > 0 {
			t.Error(x.Line())
		}
	}
	if len(r.Results) < 3 {
		t.Errorf("%s: %d engines", match, len(r.Results))
	}
}

// TestOverflow wants numbers that are far out, and numbers that float32 does not have, named as others are.
func TestOverflow(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds")
	}
	models := map[string]*Model{}
	for i, c := range []struct{ model, class, fault string }{
		{"tiny-gemma4", "", "rope_factors=multiplied@sliding"}, {"tiny-gemma4", "", "rope_factors=multiplied@full"},
		{"tiny-gemma4", "f32", "rope_factors=overflow@full"}, {"tiny-gemma4", "", "rope_factors=multiplied@all"},
		{"tiny-llama", "f32", "embed_scale=1e30"}, {"tiny-llama", "f32", "weight_scale:ffn_norm=1e30@1"},
		{"tiny-llama", "", "norm_eps:ffn_norm=1e30@all"}, {"gpt2", "", "norm_eps:ffn_norm=1e30@1"},
		{"gpt-oss", "", "attention_scale=1e30@all"}, {"phi3", "", "rope_magnitude=1e30@all"},
		{"tiny-llama", "f32", "attention_scale=1e10@1"}, {"tiny-gemma4", "", "attention_scale=1e-30@1"},
		{"tiny-gemma4", "", "rope_theta=1e30@all"}, {"tiny-gemma4", "", "ple_scale=1e30"},
		{"tiny-llama", "", "logits_scale=1e30"}, {"mixtral", "", "weight_scale:ffn_experts=1e30@1"},
	} {
		if !golden.Slow() && i%3 != 2 {
			continue
		}
		if models[c.model] == nil {
			models[c.model] = load(t, c.model)
		}
		e := &example{model: models[c.model], condition: Multi, faults: parsed(t, c.fault), taps: AllTaps, longest: 24}
		e.class.Activations = round.Format(c.class)
		if x, err := e.run(t.Context()); err != nil || x == nil || len(x.Failed) > 0 {
			t.Errorf("%v: %s", err, x.Line())
		}
	}
}

// TestByModel wants a row for each model, with its own counts and processor time.
func TestByModel(t *testing.T) {
	r := &Report{Total: map[Condition]*Sum{}, Models: []ModelSum{{"a", map[Condition]*Sum{}}, {"b", map[Condition]*Sum{}}, {"c", map[Condition]*Sum{}}}}
	for i := range 3 {
		r.add(&Result{Model: "a", Condition: Single, Processor: float64(i + 1), Scores: Scores{Layers: Count{1, 1}, Named: Count{i % 2, 1}, Seconds: 9}})
	}
	r.add(&Result{Model: "a", Condition: Clean, Processor: 5, Scores: Scores{False: Count{0, 1}}})
	r.add(&Result{Model: "b", Condition: Right, Scores: Scores{False: Count{1, 1}, Seconds: 7}})
	var rows []string
	for _, row := range r.families().rows {
		rows = append(rows, row.name+": "+strings.Join(row.texts(), " | "))
	}
	want := []string{"a: 3 | 3/3 100% | 1/3 33.33% | - | 1 | 0/1 0% | 3 | 5", "b: 0 | - | - | - | 1 | 1/1 100% | 7 | 7"}
	if !slices.Equal(rows, want) {
		t.Errorf("%q, want %q", rows, want)
	}
}

// TestShown: a fault that float32 does not hold is no case; an encoder runs.
func TestShown(t *testing.T) {
	m := load(t, "bert")
	for fault, want := range map[string]bool{"norm_eps=1e-3@1": true, "norm_eps=1.00001e-12@1": false} {
		c := &example{model: m, condition: Single, faults: parsed(t, fault), taps: AllTaps, longest: 12}
		if got, err := c.shown(t.Context()); err != nil || got != want {
			t.Errorf("%s: %v, %v", fault, got, err)
		}
	}
	if p, _ := m.prompts(1, 12); p[1].Decode != 0 {
		t.Error("an encoder decodes")
	}
}

func parsed(t *testing.T, text string) []mistake.Fault {
	t.Helper()
	list, err := mistake.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
